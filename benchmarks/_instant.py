"""A provider that costs next to nothing: what it answers is bytes that were made before. A program of its own.

    python benchmarks/_instant.py [EVENTS]

It prints its port. A request whose body holds `"stream": true` gets a stream of so many token events, each its own
write; any other gets one body.
"""

from __future__ import annotations

import asyncio
import json
import sys

WHOLE = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "instant",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}


def body() -> bytes:
    data = json.dumps(WHOLE).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(data),
        data,
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "instant", "choices": [choice]}
    return chunk(b"data: " + json.dumps(value).encode() + b"\n\n")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = event({}, "stop") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Instant(asyncio.Protocol):
    """One connection: requests with a content length, one after the other."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._buffer = b""
        self._whole, self._token = body(), event({"content": "word "})

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            if len(self._buffer) < end + 4 + length:
                return
            request = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            if b'"stream": true' in request[-200:]:
                self._task = asyncio.ensure_future(self._stream())
            else:
                self._transport.write(self._whole)

    async def _stream(self) -> None:
        self._transport.write(HEAD)
        for _ in range(self._events):
            self._transport.write(self._token)
            await asyncio.sleep(0)
        self._transport.write(END)


async def main(events: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Instant(events), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))

"""Provider and programs that are processes of their own, so that nothing they do holds up the process of a test.

    with provider() as url, witness(port, secret) as seen:
        status, body = send(port, other_secret, "bomb")
    assert longest_gap(seen.times()) < 1

As a program it is one of them: `apart.py provider`, `apart.py witness PORT SECRET`, `apart.py CASE PORT SECRET`.
Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from subprocess import PIPE, Popen

MIB = 2**20
SAID = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "apart",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
SMALL = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@contextlib.contextmanager
def provider() -> Iterator[str]:
    """Start a provider that answers every request with the same words, and throws bodies away; get its URL."""
    with _program("provider") as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"


@dataclass
class Seen:
    """What a witness saw."""

    process: Popen[bytes]
    _times: list[float] = field(default_factory=list)

    def times(self) -> Sequence[float]:
        """End the witness; get when it was answered, on the clock of `time.monotonic`."""
        if not self._times:
            out, _ = self.process.communicate()
            self._times = json.loads(out)
        return self._times


@contextlib.contextmanager
def witness(port: int, secret: str) -> Iterator[Seen]:
    """Start a program that makes one small call after the other, until it is asked what it saw.

    Where the proxy runs in this thread, ask in another one.
    """
    with _program("witness", str(port), secret) as process:
        yield Seen(process)


def send(port: int, secret: str, case: str) -> tuple[int, bytes]:
    """Be a bad client, and wait for its end. Gets the status and the body of what it was answered; 0: nothing."""
    with _program(case, str(port), secret) as process:
        out, _ = process.communicate()
    status, _, body = out.partition(b" ")
    return int(status or 0), body


def longest_gap(times: Sequence[float], since: float = 0.0, until: float = float("inf")) -> float:
    """Get the longest time between two answers, of those in a span of time."""
    inside = [at for at in times if since <= at <= until]
    if not inside:
        return until - since
    edges = ([since] if since else []) + inside + ([until] if until != float("inf") else [])
    return max(later - earlier for earlier, later in pairwise(edges))


@contextlib.contextmanager
def _program(*arguments: str) -> Iterator[Popen[bytes]]:
    argv = [sys.executable, "-I", __file__, *arguments]
    with Popen(argv, stdin=PIPE, stdout=PIPE) as process:
        try:
            yield process
        finally:
            if process.stdin is not None and not process.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


async def _provide() -> None:
    body = json.dumps(SAID).encode()
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                left = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
                while left:
                    left -= len(await reader.readexactly(min(left, MIB)))
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2 * MIB, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.stdout.flush()


def _watch(port: int, secret: str) -> None:
    stop = asyncio.run(_watch_until_closed(port, secret))
    print(json.dumps(stop), flush=True)


async def _watch_until_closed(port: int, secret: str) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    closed = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    times: list[float] = []
    while not closed.done():
        writer.write(_head(secret, len(SMALL)) + SMALL)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head)
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        times.append(time.monotonic())
        await asyncio.sleep(0.001)
    return times


def _head(secret: str, length: int, *more: str) -> bytes:
    lines = [
        *("POST /v1/chat/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {secret}"),
        *("Content-Type: application/json", f"Content-Length: {length}", *more),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _chat(content: bytes) -> bytes:
    return b'{"model": "m", "messages": [{"role": "user", "content": ' + content + b"}]}"


def _bomb() -> tuple[bytes, list[str]]:
    """A gibibyte of blanks, packed: the same packed 16 MiB again and again."""
    packer = zlib.compressobj(9, wbits=31)
    first = packer.compress(b" " * 16 * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(b" " * 16 * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + 63 * again, ["Content-Encoding: gzip"]


def _plain(size: int) -> tuple[bytes, list[str]]:
    """One message with so many MiB of words."""
    return _chat(b'"' + b"word " * (size * MIB // 5) + b'"'), []


def _escapes() -> tuple[bytes, list[str]]:
    """One message of 60 MiB in which every character is written as an escape."""
    return _chat(b'"' + rb"\n\"" * (15 * MIB) + b'"'), []


def _messages(count: int) -> tuple[bytes, list[str]]:
    """So many small messages."""
    roles = (b"user", b"assistant")
    items = [b'{"role": "%s", "content": "%d"}' % (roles[n % 2], n) for n in range(count)]
    return b'{"model": "m", "messages": [' + b", ".join(items) + b"]}", []


def _numbers() -> tuple[bytes, list[str]]:
    """One message with 30 million numbers."""
    return _chat(b"[" + b"1," * (30 * MIB) + b"1]"), []


def _lists() -> tuple[bytes, list[str]]:
    """A field with ten million lists, beside the conversation."""
    return b'{"x": [' + b"[]," * (10 * MIB) + b'1], "model": "m", "messages": []}', []


def _packed() -> tuple[bytes, list[str]]:
    """One message with 200 MiB of words, packed."""
    return zlib.compress(_plain(200)[0], 1), ["Content-Encoding: deflate"]


CASES: dict[str, Callable[[], tuple[bytes, list[str]]]] = {
    "bomb": _bomb,
    "plain-30": lambda: _plain(30),
    "plain-150": lambda: _plain(150),
    "plain-250": lambda: _plain(250),
    "escapes": _escapes,
    "messages-15000": lambda: _messages(15_000),
    "messages-400000": lambda: _messages(400_000),
    "numbers": _numbers,
    "lists": _lists,
    "packed": _packed,
}


def _say(port: int, secret: str, case: str) -> bytes:
    body, more = CASES[case]()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(_head(secret, len(body), *more) + body)
        return _answered(connection)


def _drip(port: int, secret: str, _: str) -> bytes:
    """A body that comes byte by byte, as fast as it goes, for two seconds."""
    body = _chat(b'"' + b"x" * 50_000_000 + b'"')
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_head(secret, len(body)))
        end, at = time.monotonic() + 2, 0
        while time.monotonic() < end:
            connection.sendall(body[at : at + 1])
            at += 1
        connection.sendall(body[at:])
        return _answered(connection)


def _malformed(port: int, secret: str, _: str) -> bytes:
    """Two thousand connections that say what is no HTTP, or lie about what they send."""
    answer = b""
    for number in range(2_000):
        packed = _head(secret, 5, "Content-Encoding: gzip") + b"xxxxx"
        lies = (b"\x00\xff" * 400, _head(secret, 10) + b'{"model"', packed)
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", port)) as connection,
        ):
            connection.sendall(lies[number % 3])
            if number % 3 != 1:
                answer = _answered(connection)
    return answer


def _half_open(port: int, secret: str, _: str) -> bytes:
    """Five hundred connections that say the beginning of a request, and then nothing; and one more that asks."""
    opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
    for number, connection in enumerate(opened):
        connection.sendall(_head(secret, 1000)[: 10 if number % 2 else None])
    time.sleep(1)
    with socket.create_connection(("127.0.0.1", port)) as last:
        last.sendall(_head(secret, len(SMALL)) + SMALL)
        answer = _answered(last)
    for connection in opened:
        connection.close()
    return answer


def _answered(connection: socket.socket) -> bytes:
    """The status and the body of an answer, with a blank between; nothing where there is none."""
    connection.settimeout(120)
    data = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while b"\r\n\r\n" not in data and (more := connection.recv(MIB)):
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0) - len(body)
        while left > 0 and (more := connection.recv(MIB)):
            body, left = body + more, left - len(more)
        return head.split(b" ", 2)[1] + b" " + body if head.startswith(b"HTTP/") else b""
    return b""


CLIENTS: dict[str, Callable[[int, str, str], bytes]] = {
    **dict.fromkeys(CASES, _say),
    "drip": _drip,
    "malformed": _malformed,
    "half-open": _half_open,
}


if __name__ == "__main__":
    if sys.argv[1] == "provider":
        asyncio.run(_provide())
    elif sys.argv[1] == "witness":
        _watch(int(sys.argv[2]), sys.argv[3])
    else:
        sys.stdout.buffer.write(CLIENTS[sys.argv[1]](int(sys.argv[2]), sys.argv[3], sys.argv[1]))

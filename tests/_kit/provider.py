"""A scripted provider: a real HTTP server on loopback that stands for a model's API in tests and benchmarks.

    with Provider(call_tool("bash", {"command": "ls"}), say("Two files.")) as provider:
        ...                                     # point something at provider.url, with any key
        assert provider.requests[1].json["messages"][-1]["role"] == "tool"

It runs in a thread with a loop of its own, so synchronous tests, asynchronous tests and programs in other
processes can all use it. What it answers is a script, of which each POST takes the next entry:

* `Provider(reply, reply, ...)`: one after the other; after the last, every POST gets a 400 that says so.
* `Provider(function)`: `function(request) -> Reply` for every POST, run in the server's thread; it may not
  block.

A `Reply` says what is sent. The shapes that tests need most have a name:

* `say(text)`, `call_tool(name, arguments)`: a chat completion; as a stream where the request asks for one.
* `say(text)`, `call_tool(name, arguments)`: a chat completion, streamed where the request asks for it.
* `stream(chunks)`: an event stream, each chunk written as given; chunks need not end where events end.

and each can misbehave, as `replace(say("hi"), wait_s=0.2)`:

* `wait_s` before the headers, `gap_s` before each chunk but the first.
* `cut=3`: close the socket after three chunks, or three bytes of a body; 0: before any header.
* `hold=threading.Event()`: no headers until it is set. `pause=`: nothing after the first chunk until then.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from aiohttp import web

__all__ = [
    "Provider",
    "Received",
    "Reply",
    "call_tool",
    "call_tools",
    "chat",
    "fail",
    "replace",
    "say",
    "stream",
]

Json = Mapping[str, Any]

USAGE: Json = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True)
class Received:
    """One request as it arrived. Header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What is answered to one request. With both `body` and `chunks`, the request's `stream` chooses."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    chunks: tuple[bytes, ...] | None = None
    wait_s: float = 0
    gap_s: float = 0
    cut: int | None = None
    hold: threading.Event | None = None
    pause: threading.Event | None = None


Script = Reply | Callable[[Received], Reply]


def say(text: str, *, usage: Json | None = USAGE, model: str = "scripted", **message: Any) -> Reply:
    """Get a chat completion that says `text`; further fields of its message by keyword."""
    return chat({"role": "assistant", "content": text, **message}, usage=usage, model=model)


def call_tool(name: str, arguments: Json | str, *, id: str = "call_1", **rest: Any) -> Reply:  # noqa: A002
    """Get a chat completion that calls one tool. Arguments given as text are sent as they are."""
    return call_tools((id, name, arguments), **rest)


def call_tools(*calls: tuple[str, str, Json | str], text: str | None = None, **rest: Any) -> Reply:
    """Get a chat completion that calls several tools, each given as (id, name, arguments)."""
    written = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
        for id, name, arguments in calls  # noqa: A001
    ]
    return chat({"role": "assistant", "content": text, "tool_calls": written}, **rest)


def chat(
    message: Json,
    *,
    usage: Json | None = USAGE,
    model: str = "scripted",
    finish: str = "",
) -> Reply:
    """Get a chat completion of any message, as one JSON body and as the stream that says the same."""
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "created": 1700000000, "model": model}
    whole = {**head, "object": "chat.completion", "choices": [choice], **({"usage": usage} if usage else {})}
    return Reply(body=json.dumps(whole).encode(), chunks=_chunks(head, message, finish, usage))


def fail(
    status: int, message: str = "scripted failure", *, headers: Mapping[str, str] | None = None, **error: Any
) -> Reply:
    """Get an error in the words of OpenAI's API; `code=` and `type=` by keyword."""
    body = {
        "error": {
            "message": message,
            "type": "error",
            "param": None,
            "code": None,
            **error,
        }
    }
    return Reply(status=status, headers=headers or {}, body=json.dumps(body).encode())


def stream(chunks: Sequence[bytes], **rest: Any) -> Reply:
    """Get an event stream whose chunks are written one by one, exactly as given."""
    return Reply(chunks=tuple(chunks), **rest)


class Provider:
    """The server; a context manager. See this file's beginning."""

    def __init__(self, *script: Script) -> None:
        self.requests: list[Received] = []
        """Every request, in order of arrival; helper routes included."""
        self.in_flight = 0
        self.peak = 0
        """The most POSTs that were in flight together."""
        self.gone = 0
        """Clients that went away before they had their whole answer."""
        self._script = list(script)
        self._next = 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="provider")
        self.port = 0

    @property
    def url(self) -> str:
        """The base address, with `/v1`."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def posts(self) -> list[Received]:
        """The requests that took an entry of the script."""
        return [request for request in self.requests if request.method == "POST"]

    def wait_until(self, condition: Callable[[Provider], bool], timeout_s: float = 20) -> None:
        """Block until `condition(provider)` holds; in a coroutine, by way of `asyncio.to_thread`."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), timeout_s):
                raise TimeoutError(f"{self.requests=} {self.in_flight=} {self.gone=}")

    def __enter__(self) -> Provider:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self._server = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._listener = await self._loop.create_server(self._server, "127.0.0.1", self.port, backlog=4096)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        self._listener.close()
        await self._server.shutdown(timeout=0)
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = request.raw_path.partition("?")[2]
        received = Received(request.method, request.path, query, headers, await request.content.read())
        if request.method != "POST":
            self._note(received, 0)
            return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        self._note(received, +1)
        try:
            return await self._send(self._pick(received), received, request)
        except (asyncio.CancelledError, ConnectionError):
            self.gone += 1
            raise
        finally:
            self._note(None, -1)

    def _note(self, received: Received | None, change: int) -> None:
        with self._changed:
            if received is not None:
                self.requests.append(received)
            self.in_flight += change
            self.peak = max(self.peak, self.in_flight)
            self._changed.notify_all()

    def _pick(self, received: Received) -> Reply:
        if len(self._script) == 1 and not isinstance(self._script[0], Reply):
            return self._script[0](received)
        if self._next >= len(self._script):
            return fail(400, f"the script has no answer number {self._next + 1}")
        entry = self._script[self._next]
        self._next += 1
        return entry if isinstance(entry, Reply) else entry(received)

    async def _send(self, reply: Reply, received: Received, request: web.BaseRequest) -> web.StreamResponse:
        if reply.hold is not None:
            await _until(reply.hold)
        if reply.wait_s:
            await asyncio.sleep(reply.wait_s)
        if reply.cut == 0:
            return _drop(request)
        if reply.chunks is not None and (reply.body is None or _streams(received)):
            return await self._send_chunks(reply, request)
        headers = {"content-type": "application/json", **reply.headers}
        if reply.cut is None:
            return web.Response(status=reply.status, headers=headers, body=reply.body)
        return await self._send_part(reply, headers, request)

    async def _send_chunks(self, reply: Reply, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            status=reply.status, headers={"content-type": "text/event-stream", **reply.headers}
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        for number, chunk in enumerate(reply.chunks or ()):
            if number == reply.cut:
                return _drop(request)
            if number == 1 and reply.pause is not None:
                await _until(reply.pause)
            if number and reply.gap_s:
                await asyncio.sleep(reply.gap_s)
            await response.write(chunk)
        if reply.cut is not None:
            return _drop(request)
        await response.write_eof()
        return response

    async def _send_part(
        self, reply: Reply, headers: Mapping[str, str], request: web.BaseRequest
    ) -> web.StreamResponse:
        body = reply.body or b""
        response = web.StreamResponse(
            status=reply.status, headers={**headers, "content-length": str(len(body))}
        )
        await response.prepare(request)
        await response.write(body[: reply.cut])
        return _drop(request)


async def _until(event: threading.Event) -> None:
    """Wait for an event that another thread sets, in steps, so that a client that goes is noticed."""
    while not event.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def _drop(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return web.Response()


def _streams(received: Received) -> bool:
    return b'"stream"' in received.body and bool(received.json.get("stream"))


def _text(arguments: Json | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _chunks(head: Json, message: Json, finish: str, usage: Json | None) -> tuple[bytes, ...]:
    """The message as a stream: text and arguments in halves, the finish, the usage, the end."""
    deltas: list[Json] = [{"role": "assistant", "content": None if message.get("tool_calls") else ""}]
    for name, value in message.items():
        if name == "tool_calls":
            deltas += [delta for index, call in enumerate(value) for delta in _call_deltas(index, call)]
        elif name != "role" and isinstance(value, str) and value:
            half = (len(value) + 1) // 2
            deltas += [{name: part} for part in (value[:half], value[half:]) if part]
    head = {**head, "object": "chat.completion.chunk"}
    events = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        events.append({**head, "choices": [], "usage": usage})
    return (*(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events), b"data: [DONE]\n\n")


def _call_deltas(index: int, call: Json) -> list[Json]:
    function = call["function"]
    half = len(function["arguments"]) // 2
    first = {
        **call,
        "index": index,
        "function": {"name": function["name"], "arguments": function["arguments"][:half]},
    }
    rest = {"index": index, "function": {"arguments": function["arguments"][half:]}}
    return [{"tool_calls": [first]}, {"tool_calls": [rest]}]

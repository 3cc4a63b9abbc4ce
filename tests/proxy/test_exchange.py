"""Slow providers, answers that did not arrive, and copies that cannot be read: the program gets what it is due."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from _kit.behind import QUICK, Seat, awaited, behind, talk
from _kit.provider import Reply, fail, replace, say, stream
from aiohttp import web
from multidict import CIMultiDict

from hotswap.dialects import Route
from hotswap.dialects.chat import Chat, ChatAssembler
from hotswap.limits import Limits
from hotswap.messages import Answer
from hotswap.proxy.delivery import Delivery
from hotswap.proxy.down import Down
from hotswap.proxy.ending import Ending
from hotswap.proxy.session import Call
from hotswap.proxy.stream import Stream
from hotswap.proxy.tape import Asked, Tape

NERVOUS = replace(QUICK, quiet_s=0.05)


@awaited
async def test_a_stream_whose_provider_is_slow_is_opened_and_kept_alive() -> None:
    hold = threading.Event()
    async with behind(replace(say("at last"), hold=hold), calls=NERVOUS) as seat:
        async with seat.post({"model": "m", "messages": talk("hi"), "stream": True}) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            first = await response.content.readline()
            hold.set()
            rest = await response.read()
        [call] = seat.trace().calls
    assert first == b": keep-alive\n"
    assert b'"at l"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert (call.error, call.finish) == (None, "stop")


@awaited
async def test_silence_in_the_middle_of_a_stream_is_bridged() -> None:
    pause = threading.Event()
    async with behind(replace(say("hello"), pause=pause), calls=NERVOUS) as seat:
        async with seat.post({"model": "m", "messages": talk("hi"), "stream": True}) as response:
            while b"keep-alive" not in await response.content.readline():
                pass
            pause.set()
            await response.read()
        assert seat.trace().messages[-1].text == "hello"


@awaited
async def test_a_failure_behind_a_stream_that_was_kept_open_arrives_inside_it() -> None:
    hold = threading.Event()
    lost = replace(fail(401, "no such key"), hold=hold)
    async with behind(lost, calls=NERVOUS) as seat:
        async with seat.post({"model": "m", "messages": talk("hi"), "stream": True}) as response:
            await response.content.readline()
            hold.set()
            rest = await response.read()
        [call] = seat.trace().calls
    assert response.status == 200
    assert b"no such key" in rest
    assert call.error is not None
    assert (call.error.blame, call.error.type) == ("provider", "auth")


@awaited
async def test_a_program_that_wants_no_stream_is_sent_nothing_early() -> None:
    hold = threading.Event()
    async with behind(replace(say("hello"), hold=hold), calls=NERVOUS) as seat:
        asking = asyncio.ensure_future(seat.ask("hi"))
        await asyncio.sleep(0.3)
        hold.set()
        assert (await asking).text == "hello"


class Deaf(asyncio.Protocol):
    """A client that sends one request and never reads its answer."""

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        transport.write(self._request)


async def ask_and_never_read(seat: Seat, body: bytes) -> asyncio.BaseTransport:
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: {seat.auth['Authorization']}\r\n\r\n"
    )
    host, port = seat.proxy.gate.host, seat.proxy.gate.port
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: Deaf(head.encode() + body), host, port)
    return transport


async def lose_its_answer(seat: Seat, body: bytes) -> None:
    """Ask, hang up once the answer is recorded, and wait until the session has noticed."""
    transport = await ask_and_never_read(seat, body)
    async with asyncio.timeout(20):
        while not (calls := seat.trace().calls) or calls[0].finish is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        transport.abort()
        while not seat.session._repeats.any_lost:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@awaited
async def test_a_whole_answer_that_did_not_arrive_is_sent_from_the_record_once() -> None:
    body = json.dumps({"model": "shown", "messages": talk("hi")}).encode()
    async with behind(say("x" * 30_000_000), say("new")) as seat:
        await lose_its_answer(seat, body)
        again = await seat.send(body)
        assert (len(again.text), len(seat.provider.posts)) == (30_000_000, 1)
        assert len(seat.trace().calls) == 1
        assert (await seat.send(body)).text == "new"
        assert [call.error for call in seat.trace().calls] == [None, None]


@pytest.mark.parametrize("streams", [True, False])
@awaited
async def test_a_lost_answer_that_is_asked_for_in_the_other_form_is_another_try_of_its_turn(
    streams: bool,
) -> None:
    asked = {"model": "shown", "messages": talk("hi")}
    forms = [asked, {**asked, "stream": True}]
    said = {"index": 0, "delta": {"content": "x" * 30_000_000}, "finish_reason": "stop"}
    last = {"choices": [said], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    large = stream([f"data: {json.dumps(last)}\n\n".encode(), b"data: [DONE]\n\n"])
    first = large if streams else say("x" * 30_000_000)
    async with behind(first, say("new"), say("end"), limits=Limits(turns=2)) as seat:
        await lose_its_answer(seat, json.dumps(forms[streams]).encode())
        again = await seat.send(forms[not streams])
        assert again.status == 200
        trace, [call] = seat.trace(), seat.trace().calls
        assert (call.error, len(call.tries), call.usage.input) == (None, 2, 20)
        assert (trace.turns, seat.session.turns, trace.usage) == (1, 1, call.usage)
        assert [(branch.kind, trace.messages[branch.leaf].text) for branch in trace.branches] == [
            ("main", "new")
        ]
        assert (await seat.ask("hi", "new", "on")).status == 200
        assert (await seat.ask("hi", "new", "on", "end", "more")).status == 400


@awaited
async def test_a_repeat_of_an_answer_that_arrived_is_a_turn_of_its_own() -> None:
    async with behind(say("one"), say("two")) as seat:
        assert [(await seat.ask("hi")).text for _ in range(2)] == ["one", "two"]
        assert seat.session.turns == 2


class Blind(Chat):
    """A dialect whose reader breaks down."""

    def read_answer(self, body: bytes) -> Answer:
        raise RuntimeError("cannot read this")

    def assembler(self) -> ChatAssembler:
        return BlindAssembler()

    @property
    def name(self) -> str:
        return "chat"


class BlindAssembler(ChatAssembler):
    def feed(self, event: Any) -> None:
        raise RuntimeError("cannot read this")


@pytest.mark.parametrize("streams", [True, False])
@awaited
async def test_a_copy_that_cannot_be_read_does_not_stop_the_relay(streams: bool) -> None:
    async with behind(say("hello")) as seat:
        body = json.dumps({"model": "m", "messages": talk("hi"), "stream": streams}).encode()
        received = await through(seat, Route(Blind(), "/chat/completions", True), body)
        [call] = seat.trace().calls
    assert (b"hel" in received) == streams
    assert call.error is not None
    assert call.error.type == "malformed"


class Lost(Chat):
    """A dialect that cannot read a request."""

    def read_items(self, items: Any) -> Any:
        raise RuntimeError("cannot read this")

    @property
    def name(self) -> str:
        return "chat"


@awaited
async def test_a_request_that_cannot_be_read_is_passed_on_as_it_came() -> None:
    async with behind(say("hello"), upstream={"model": "theirs"}) as seat:
        body = json.dumps({"model": "m", "messages": talk("hi")}).encode()
        said = await through(seat, Route(Lost(), "/chat/completions", True), body)
        [call] = seat.trace().calls
        assert seat.provider.posts[0].body == body
    assert b"hello" in said
    assert (call.error, call.input, seat.trace().main[-1].text) == (None, None, "hello")


async def through(seat: Seat, route: Route, body: bytes) -> bytes:
    """Send a call by a route of our own, as the proxy handles one."""
    who = next(iter(seat.proxy._passes.values()))
    server = web.Server(lambda request: seat.proxy._call(body, who, route, request))
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with seat.client.post(f"http://127.0.0.1:{port}/v1/chat/completions", data=body) as answer:
        received = await answer.read()
    listener.close()
    await server.shutdown(0)
    return received


class Watching(Down):
    """A way down that notes whether the call was recorded when its last event went."""

    call: Call
    recorded: bool | None = None

    async def write(self, data: bytes) -> None:
        if b"[DONE]" in data:
            self.recorded = not self.call.busy
        await super().write(data)


class Told:
    """An answer that is there in memory, event by event."""

    def __init__(self, reply: Reply) -> None:
        self.status, self.headers = 200, {"Content-Type": "text/event-stream"}
        self._events = list(reply.chunks or ())
        self.at_end = False

    async def read(self) -> bytes:
        return self._events.pop(0) if self._events else b""

    def close(self) -> None:
        """There is nothing to let go of."""


@awaited
async def test_a_call_is_recorded_before_the_last_event_goes() -> None:
    async with behind() as seat:
        session, route = seat.session, Route(Chat(), "/chat/completions", True)
        body = session.read(json.dumps({"messages": talk("hi"), "stream": True}).encode(), route.dialect)
        call = await session.open(
            body, "/v1/chat/completions", route, next(iter(seat.proxy._passes.values()))
        )
        assert isinstance(call, Call)
        seen: list[Watching] = []

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            asked = Asked("POST", "/v1/chat/completions")
            down = Watching(request, Tape(asked, 0.0))
            down.call = call
            seen.append(down)
            told = Told(say("hello"))
            await down.begin(told.status, CIMultiDict(told.headers))
            delivery = Delivery(call, Ending(session, call), down)
            return await delivery.stream(Stream(route.dialect, told, 10), told.status, 0.0)

        server = web.Server(answer)
        listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with seat.client.post(f"http://127.0.0.1:{port}/") as got:
            assert b"[DONE]" in await got.read()
        listener.close()
        await server.shutdown(0)
    assert [down.recorded for down in seen] == [True]


@awaited
async def test_a_provider_that_only_drips_bytes_is_a_timeout_in_the_end() -> None:
    drip = replace(stream([b": still here\n\n"] * 200), gap_s=0.05)
    patient = replace(QUICK, retries=0, timeout_s=0.5, quiet_s=0)
    async with behind(drip, calls=patient) as seat:
        with suppress(aiohttp.ClientError):
            await seat.ask("hi", stream=True)
        [call] = seat.trace().calls
    assert call.error is not None
    assert call.error.type == "truncated"
    assert "no event for 0.5 s" in call.error.message

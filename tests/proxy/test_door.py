"""Connections that say nothing, or never come to the point, are few and short."""

from __future__ import annotations

import asyncio
import threading

import pytest
from _kit.behind import Seat, awaited, behind
from _kit.provider import replace, say

from hotswap.proxy import arrival, door

ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n%s\r\n"

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def knock(seat: Seat, data: bytes = b"") -> Opened:
    reader, writer = await asyncio.open_connection(seat.proxy.gate.host, seat.proxy.gate.port)
    writer.write(data)
    return reader, writer


async def said(opened: Opened) -> bytes:
    """All that comes until the connection is closed."""
    try:
        return await asyncio.wait_for(opened[0].read(), 20)
    except ConnectionError:
        return b""
    finally:
        opened[1].close()


@awaited
async def test_headers_that_never_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEADERS_S", 0.2)
    async with behind(say("hi"), say("hi")) as seat:
        opened = await knock(seat, b"POST /v1/chat/comple")
        assert await said(opened) == b""
        body = b'{"messages": []}'
        head = ASK % (seat.session.secret().encode(), len(body), b"")
        reader, writer = await knock(seat, head + body)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head[:20])  # the next request of a connection that is known
        await asyncio.wait_for(reader.read(), 20)
        writer.close()


@awaited
async def test_a_connection_between_two_calls_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEADERS_S", 0.05)
    async with behind(lambda _: say("hi")) as seat:
        await seat.ask("one")
        gone = await knock(seat, b"POST /")
        assert await said(gone) == b""  # so long is longer than the headers may take
        ports = len(seat.proxy._server.connections)
        await seat.ask("two")
        assert len(seat.proxy._server.connections) == ports


@awaited
async def test_the_time_for_headers_ends_with_them_however_long_the_answer_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "HEADERS_S", 0.2)
    held = threading.Event()
    async with behind(replace(say("hi"), hold=held)) as seat:
        body = b'{"messages": []}'
        head = ASK % (seat.session.secret().encode(), len(body), b"Connection: close\r\n")
        asking = await knock(seat, head[:20])
        while not any(vars(one)["_timer"] for one in seat.proxy._server.connections):  # noqa: ASYNC110
            await asyncio.sleep(0)  # nothing else tells that a part of a request has come
        asking[1].write(head[20:] + body)
        await seat.session.called.wait()
        assert await said(await knock(seat, b"POST /")) == b""  # that time is over
        held.set()
        assert (await said(asking)).startswith(b"HTTP/1.1 200 ")


@awaited
async def test_programs_that_start_together_may_be_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "STRANGERS", 5)
    monkeypatch.setattr(door, "STRANGER_S", 60.0)
    async with behind(lambda _: say("hi")) as seat:
        body = b'{"messages": []}'
        head = ASK % (seat.session.secret().encode(), len(body), b"Connection: close\r\n")
        opened = [await knock(seat) for _ in range(20)]
        for _, writer in opened:
            writer.write(head + body)
        assert {(await said(each))[:12] for each in opened} == {b"HTTP/1.1 200"}


@awaited
async def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "SILENCE_S", 0.2)
    async with behind(say("hi")) as seat:
        head = ASK % (seat.session.secret().encode(), 100, b"Connection: close\r\n")
        opened = await knock(seat, head + b'{"mess')
        answer = await opened[0].readuntil(b"\r\n\r\n")
        opened[1].close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert seat.proxy.reading == 0
        assert seat.trace().calls == []


@awaited
async def test_of_too_many_strangers_the_oldest_go_and_who_is_known_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "STRANGERS", 5)
    monkeypatch.setattr(door, "STRANGER_S", 0.0)
    async with behind(lambda _: say("hi")) as seat:
        await seat.ask("one")
        opened = [await knock(seat) for _ in range(20)]
        gone = [await said(each) for each in opened[:15]]
        assert gone == [b""] * 15
        assert len(seat.proxy._server.connections) == 6
        await seat.ask("two")
        assert len(seat.provider.posts) == 2
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"X: " + b"x" * 70_000 + b"\r\n", 400),
        (b"".join(b"X-%d: x\r\n" % n for n in range(300)), 400),
        (b"Content-Encoding: br\r\n", 415),
        (b"Content-Encoding: gzip\r\n", 400),
    ],
)
@awaited
async def test_headers_have_a_bound_and_a_coding_that_nobody_reads_is_said(
    more: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(say("hi")) as seat:
        head = ASK % (seat.session.secret().encode(), 5, more + b"Connection: close\r\n")
        answer = await said(await knock(seat, head + b"hello"))
        assert answer.split(b" ")[1] == b"%d" % status
        assert b"xxxxx" not in answer
        assert not caplog.records
        assert (await seat.ask("hi")).status == 200


@awaited
async def test_a_body_above_the_limit_is_refused_before_it_comes() -> None:
    async with behind(say("hi")) as seat:
        head = ASK % (seat.session.secret().encode(), arrival.BODY_LIMIT + 1, b"Connection: close\r\n")
        reader, writer = await knock(seat, head)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")
        writer.close()

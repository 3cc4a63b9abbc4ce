"""A provider's fault is told as what it is, repeated where that can help, passed on where it cannot."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace

import aiohttp
import pytest
from _kit.behind import QUICK, awaited, behind, talk
from _kit.provider import Reply, fail, say, stream

NOW = {"retry-after": "0"}
HTML = Reply(status=502, body=b"<html>Bad Gateway</html>", headers={"content-type": "text/html", **NOW})


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
@pytest.mark.parametrize("streams", [False, True])
@awaited
async def test_what_may_pass_is_sent_again_and_the_program_notices_nothing(
    status: int, streams: bool
) -> None:
    async with behind(fail(status, headers=NOW), say("at last")) as seat:
        said = await seat.ask("hi", stream=streams)
        [call] = seat.trace().calls
        assert said.status == 200
        assert seat.provider.requests[0].body == seat.provider.requests[1].body
        assert [attempt.status for attempt in call.tries] == [status, 200]
        assert (call.error, call.status, seat.session.last_error, seat.session.turns) == (None, 200, None, 1)


@awaited
async def test_a_broken_connection_is_tried_again_while_nothing_has_gone_down() -> None:
    async with behind(replace(say("x"), cut=0), replace(say("y"), cut=40), say("at last")) as seat:
        assert (await seat.ask("hi")).text == "at last"
        [call] = seat.trace().calls
    assert [attempt.error for attempt in call.tries] == ["connection", "truncated", None]


@awaited
async def test_the_time_that_a_provider_asks_for_is_waited() -> None:
    async with behind(fail(429, headers={"retry-after-ms": "300"}), say("x")) as seat:
        started = time.monotonic()
        assert (await seat.ask("hi")).status == 200
        assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (fail(400, "no"), "bad_request"),
        (fail(400, "no", code="context_length_exceeded"), "context_length"),
        (fail(401, "no"), "auth"),
        (fail(404, "no"), "bad_request"),
        (fail(429, "no", code="insufficient_quota"), "rate_limit"),
    ],
)
@awaited
async def test_what_cannot_pass_is_passed_on_as_it_came(reply: Reply, kind: str) -> None:
    async with behind(reply) as seat:
        said = await seat.ask("hi")
        trace = seat.trace()
    [call] = trace.calls
    assert (said.status, said.body, said.headers["x-should-retry"]) == (reply.status, reply.body, "false")
    assert call.error is not None
    assert (call.error.blame, call.error.stage, call.error.type) == ("provider", "agent", kind)
    assert (call.error.message, len(call.tries), trace.branches) == ("no", 1, [])


@awaited
async def test_after_the_last_try_the_program_gets_the_providers_own_answer() -> None:
    async with behind(lambda _: fail(503, "too many of you", headers={**NOW, "x-request-id": "7"})) as seat:
        said = await seat.ask("hi")
        error = seat.session.last_error
        assert len(seat.provider.requests) == 1 + QUICK.retries
    assert (said.status, said.headers["x-request-id"]) == (503, "7")
    assert said.json["error"]["message"] == "too many of you"
    assert error is not None
    assert (error.type, error.status) == ("overloaded", 503)


@awaited
async def test_a_program_that_keeps_repeating_a_lost_call_is_told_to_stop() -> None:
    """The first time we repeat the call; later ones go up once; at last the answer is one that ends it."""
    async with behind(lambda _: fail(500, "broken", headers=NOW)) as seat:
        statuses = [(await seat.ask("hi")).status for _ in range(4)]
        [call] = seat.trace().calls
    assert statuses == [500, 500, 400, 400]
    assert len(call.tries) == 1 + QUICK.retries + 3


@awaited
async def test_html_reaches_the_program_as_an_error_of_its_api() -> None:
    async with behind(lambda _: HTML) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert said.status == 502
    assert said.json["error"]["message"] == "<html>Bad Gateway</html>"
    assert call.error is not None
    assert call.error.type == "server"


@awaited
async def test_a_success_that_is_html_is_malformed() -> None:
    async with behind(Reply(body=b"<html>Welcome</html>", headers={"content-type": "text/html"})) as seat:
        said = await seat.ask("hi", stream=True)
        [call] = seat.trace().calls
    assert said.status == 502
    assert call.error is not None
    assert call.error.type == "malformed"
    assert "Welcome" in said.json["error"]["message"]


@awaited
async def test_nobody_at_the_address_is_a_connection_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        async with behind(upstream={"url": url}, calls=replace(QUICK, retries=1)) as seat:
            said = await seat.ask("hi")
            [call] = seat.trace().calls
    assert (said.status, said.json["error"]["code"]) == (502, "connection")
    assert [attempt.error for attempt in call.tries] == ["connection"] * 2
    assert call.status == 502  # as the program was told; none came from there


@awaited
async def test_a_provider_that_says_nothing_is_a_timeout() -> None:
    never = threading.Event()
    async with behind(replace(say("x"), hold=never), calls=replace(QUICK, retries=0, timeout_s=0.2)) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert (said.status, said.json["error"]["code"]) == (504, "timeout")
    assert call.error is not None
    assert call.error.type == "timeout"


@awaited
async def test_a_stream_that_stalls_is_ended_by_us() -> None:
    stalled = replace(say("hello"), pause=threading.Event())
    async with behind(stalled, calls=replace(QUICK, timeout_s=0.2)) as seat:
        with pytest.raises(aiohttp.ClientPayloadError):
            await seat.ask("hi", stream=True)
        [call] = seat.trace().calls
    assert call.error is not None
    assert call.error.type == "truncated"


@pytest.mark.parametrize("clean", [True, False])
@awaited
async def test_a_stream_without_its_end_never_looks_complete_to_the_program(clean: bool) -> None:
    chunks = (say("Half an answer").chunks or ())[:2]
    broken = stream(chunks) if clean else stream(chunks, cut=2)
    async with behind(broken) as seat:
        async with seat.post({"messages": talk("x"), "stream": True}) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.read()
        trace = seat.trace()
    [call] = trace.calls
    assert call.error is not None
    assert call.error.type == "truncated"
    assert (call.usage.input, trace.usage.input, trace.turns) == (None, None, 0)
    [partial] = [node for node in trace.messages if node.sampled]
    assert (partial.text, partial.extra) == ("Half an", {"truncated": True})


@awaited
async def test_an_error_inside_a_stream_reaches_the_program_as_it_is() -> None:
    event = b'data: {"error": {"message": "queue full", "code": 503}}\n\ndata: [DONE]\n\n'
    async with behind(stream([event])) as seat:
        said = await seat.ask("hi", stream=True)
        [call] = seat.trace().calls
    assert (said.status, said.body) == (200, event)
    assert call.error is not None
    assert (call.error.type, call.error.message) == ("overloaded", "queue full")


@awaited
async def test_an_error_inside_a_body_is_sent_again_where_that_can_help() -> None:
    body = json.dumps({"error": {"message": "queue full", "code": 503}}).encode()
    async with behind(Reply(body=body), say("fine")) as seat:
        assert (await seat.ask("hi")).text == "fine"
        [call] = seat.trace().calls
    assert [attempt.error for attempt in call.tries] == ["overloaded", None]


@awaited
async def test_a_hollow_success_is_flagged_and_passed_on() -> None:
    hollow = say("", usage={"prompt_tokens": 0, "completion_tokens": 0})
    async with behind(hollow) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert (said.status, said.body) == (200, hollow.body)
    assert call.error is not None
    assert call.error.type == "empty"


@awaited
async def test_the_same_request_after_a_broken_answer_is_another_try_of_one_turn() -> None:
    """Programs fall back from a stream to one body, and start with the options of the stream left out."""
    async with behind(replace(say("lost"), cut=3), say("kept")) as seat:
        with pytest.raises(aiohttp.ClientPayloadError):
            await seat.ask("hi", stream=True, stream_options={"include_usage": True})
        assert (await seat.ask("hi")).text == "kept"
        trace = seat.trace()
    [call] = trace.calls
    assert [attempt.error for attempt in call.tries] == ["truncated", None]
    assert (call.error, trace.turns) == (None, 1)
    assert [node.text for node in trace.main] == ["hi", "kept"]


@awaited
async def test_the_same_request_after_a_whole_answer_is_a_new_turn() -> None:
    async with behind(say("one"), say("two")) as seat:
        await seat.ask("hi")
        await seat.ask("hi")
        trace = seat.trace()
    assert [call.outputs for call in trace.calls] == [[1], [2]]
    assert trace.turns == 2


@awaited
async def test_equal_requests_in_flight_together_are_calls_of_their_own() -> None:
    hold = threading.Event()
    async with behind(lambda _: replace(say("x"), hold=hold)) as seat:
        both = asyncio.gather(seat.ask("hi"), seat.ask("hi"))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 2)
        hold.set()
        assert [said.status for said in await both] == [200, 200]
        trace = seat.trace()
    assert (len(trace.calls), trace.turns) == (2, 2)
    assert {len(call.tries) for call in trace.calls} == {1}


@awaited
async def test_another_request_after_a_failure_is_a_call_of_its_own() -> None:
    async with behind(fail(400), say("ok")) as seat:
        await seat.ask("hi")
        await seat.ask("hi", temperature=1)
        assert [call.error is None for call in seat.trace().calls] == [False, True]


@awaited
async def test_a_redirect_is_said_with_where_it_leads() -> None:
    moved = Reply(status=307, headers={"location": "https://elsewhere.example/v1"}, body=b"")
    async with behind(moved) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert said.status == 502
    assert call.error is not None
    assert (call.error.blame, call.error.type, call.error.detail) == ("provider", "redirect", "HTTP 307")
    assert "https://elsewhere.example/v1" in call.error.message


@awaited
async def test_an_empty_success_is_malformed_under_its_own_status() -> None:
    async with behind(Reply(status=204, body=b"")) as seat:
        await seat.ask("hi")
        [call] = seat.trace().calls
    assert call.error is not None
    assert (call.error.type, call.error.detail) == ("malformed", "HTTP 204")


@awaited
async def test_headers_that_drip_for_ever_are_a_timeout() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n")
            for number in range(200):
                writer.write(b"x-%d: y\r\n" % number)
                await writer.drain()
                await asyncio.sleep(0.1)
        writer.close()
        done.set()

    done = asyncio.Event()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    policy = replace(QUICK, retries=0, timeout_s=0.5, connect_s=0.5)
    async with behind(upstream={"url": url}, calls=policy) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    await done.wait()
    server.close()
    assert said.status == 504
    assert call.error is not None
    assert (call.error.type, "0.5 s (calls.timeout_s)" in call.error.message) == ("timeout", True)


@awaited
async def test_a_header_that_no_header_may_be_does_not_stop_the_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = say("hello").body or b""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-odd: a\x0bb\x01\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        done.set()

    done = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with behind(upstream={"url": url}) as seat:
        said = await seat.ask("hi")
    await done.wait()
    server.close()
    assert (said.status, said.text, said.headers["x-odd"]) == (200, "hello", "ab")


@awaited
async def test_a_fault_of_ours_is_not_the_programs() -> None:
    async with behind(upstream={"headers": {"x-team": "a\nb"}}) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert said.status == 502
    assert "the proxy broke down" in said.body.decode()
    assert call.error is not None
    assert (call.error.blame, call.error.type) == ("hotswap", "proxy")

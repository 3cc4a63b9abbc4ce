"""Odd meetings of a program, a provider and a session, each of which once gave a wrong number or a lost answer."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import aiohttp
import pytest
from _kit.agents import in_messages, text
from _kit.behind import QUICK, Seat, awaited, behind, talk
from _kit.provider import USAGE, Reply, call_tool, chat, fail, replace, say

from hotswap.contracts.model import Prices
from hotswap.limits import Limits
from hotswap.masking import Masker
from hotswap.proxy.body import read_body
from hotswap.proxy.chaos import Chaos

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


async def main_call(seat: Seat, *texts: str) -> Any:
    system = {"role": "system", "content": "work"}
    return await seat.send({"model": "m", "messages": [system, *talk(*texts)], "tools": [TOOL]})


async def title(seat: Seat) -> Any:
    return await seat.send(
        {"model": "m", "messages": [{"role": "system", "content": "title"}, *talk("do it")]}
    )


@awaited
async def test_a_side_call_that_fails_does_not_fail_the_work() -> None:
    async with behind(call_tool("f", {}), say("Paris"), fail(400, "no titles here")) as seat:
        await main_call(seat, "do it")
        await main_call(seat, "do it", "so", "and?")
        assert (await title(seat)).status == 400
        assert seat.session.last_error is None


@awaited
async def test_a_side_call_that_goes_well_does_not_hide_that_the_work_failed() -> None:
    script = (call_tool("f", {}), fail(400, "too much"), say("A title"))
    async with behind(*script) as seat:
        await main_call(seat, "do it")
        assert (await main_call(seat, "do it", "so", "and?")).status == 400
        await title(seat)
        assert seat.session.last_error is not None
        assert seat.session.last_error.message == "too much"


@awaited
async def test_a_program_that_hangs_up_after_the_last_event_has_its_answer() -> None:
    late = replace(say("one"), gap_s=0.0)
    chunks = (*(late.chunks or ()), b": bye\n\n")
    slow_end = Reply(chunks=chunks, gap_s=0.1)
    async with behind(slow_end, say("two")) as seat:
        body = {"model": "m", "messages": talk("hi"), "stream": True}
        async with seat.post(body) as response:
            async for line in response.content:
                if b"[DONE]" in line:
                    break
            response.close()
        assert b'"two"' in (await seat.send({**body, "stream": False})).body
        assert (len(seat.provider.posts), len(seat.trace().calls)) == (2, 2)


@pytest.mark.parametrize("gone", [{"b"}, {"a", "b"}, {"input", "a"}, {"model", "input", "a", "b"}, {"model"}])
def test_fields_go_without_a_trace_where_the_conversation_is_no_list(gone: set[str]) -> None:
    value = {"model": "m", "input": "hi", "a": 1, "b": 2}
    body = read_body(json.dumps(value).encode(), "input")
    kept = {name: one for name, one in value.items() if name not in gone}
    assert json.loads(b"".join(body.change({}, gone))) == kept
    assert json.loads(b"".join(body.change({"new": 1}, gone))) == {**kept, "new": 1}


@pytest.mark.parametrize(
    "written",
    [
        r"sk-live\/abc+def\/0123",
        "sk-live%2Fabc%2Bdef%2F0123",
        "sk-live/abc\\u002Bdef/0123",
        "sk-live\\u002fabc\\u002bdef\\u002f0123",
    ],
)
def test_a_secret_is_found_however_it_was_escaped(written: str) -> None:
    masked, count = Masker({"key": "sk-live/abc+def/0123"}).text(f'{{"echo": "{written}"}}')
    assert (count, written in masked) == (1, False)


@awaited
async def test_an_agent_does_not_repeat_anothers_call() -> None:
    async with behind(fail(400, "no"), say("mine"), say("again"), limits=Limits(turns=2)) as seat:
        body = {"model": "m", "messages": talk("hi")}
        sub = {"Authorization": f"Bearer {seat.session.secret('subagent', 'helper')}"}
        assert (await seat.send(body)).status == 400
        assert (await seat.send(body, **sub)).status == 200
        assert (await seat.send(body, **sub)).status == 200
        assert [call.agent for call in seat.trace().calls] == ["main", "helper", "helper"]


@awaited
async def test_a_try_that_is_repeated_is_paid_too() -> None:
    spoilt = {**json.loads(say("x").body or b"{}"), "error": {"message": "busy", "type": "server_error"}}
    prices = Prices(input=1.0, output=1.0)
    async with behind(
        Reply(body=json.dumps(spoilt).encode()), say("ok"), upstream={"prices": prices}
    ) as seat:
        await seat.ask("hi")
        [call] = seat.trace().calls
    assert USAGE["prompt_tokens"] == 10
    assert len(call.tries) == 2
    assert call.usage.input in (10, 20)  # what an answer beside an error used is not always said
    assert call.error is None


@awaited
async def test_routes_beside_the_calls_are_under_the_limits_too() -> None:
    async with behind(say("hi"), limits=Limits(tokens=5)) as seat:
        await seat.ask("hi")
        for path in ("/v1/completions", "/v1/embeddings", "/v1/chat/completions/", "/v1/chat%2Fcompletions"):
            assert (await seat.send({"input": "more"}, path=path)).status == 400
        assert len(seat.provider.posts) == 1


@awaited
async def test_a_route_beside_the_calls_ends_with_its_session() -> None:
    held = replace(say("never"), hold=threading.Event())
    async with behind(held) as seat:
        asking = asyncio.ensure_future(seat.send({"input": "x"}, path="/v1/embeddings"))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 1)
        await seat.session.close()
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.gone == 1)
        with pytest.raises((aiohttp.ClientError, asyncio.CancelledError)):
            await asking


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"<html>down</html>", 502, "malformed"),
        (b'{"error": {"message": "slow down", "type": "rate_limit_error"}}', 429, "rate_limit"),
        (b'{"error": {"message": "no", "type": "invalid_request_error"}}', 400, "bad_request"),
    ],
)
@awaited
async def test_an_error_inside_a_success_is_none_in_another_dialect(
    body: bytes, status: int, kind: str
) -> None:
    reply = Reply(body=body)
    async with behind(reply, upstream={"dialects": ("chat",)}, calls=replace(QUICK, retries=0)) as seat:
        asked = {"model": "m", "max_tokens": 9, "messages": talk("hi")}
        said = await seat.send(asked, path="/v1/messages")
        [call] = seat.trace().calls
    assert (said.status, said.json["type"]) == (status, "error")
    assert call.error is not None
    assert call.error.type == kind


@awaited
async def test_a_time_to_wait_is_not_passed_on_once_we_have_given_up() -> None:
    later = fail(429, "later", headers={"retry-after": "3600"})
    async with behind(later) as seat:
        said = await seat.ask("hi")
        assert said.status == 429
        assert "retry-after" not in {name.lower() for name in said.headers}


@awaited
async def test_a_body_that_is_not_what_it_says_is_refused() -> None:
    async with behind() as seat:
        said = await seat.send(b"this is no gzip", **{"Content-Encoding": "gzip"})
        assert said.status == 400
        assert seat.provider.posts == []


@awaited
async def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    async with behind(say("hello")) as seat:
        said = await seat.ask("hi")
        assert said.status == 200
        reader, writer = await asyncio.open_connection(seat.proxy.gate.host, seat.proxy.gate.port)
        data = json.dumps({"model": "m", "messages": talk("hi")}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        writer.write(
            f"{head}Authorization: {seat.auth['Authorization']}\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(data)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")  # the script is over
        writer.close()
        await writer.wait_closed()


@awaited
async def test_calls_without_ids_at_one_index_are_calls_of_their_own() -> None:
    parts = [("f", '{"a"'), ("", ": 1}"), ("g", '{"b": 2}')]
    events = [
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": some}}]},
                }
            ]
        }
        for name, some in parts
    ]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    chunks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in (*events, end)]
    async with behind(Reply(chunks=(*chunks, b"data: [DONE]\n\n"))) as seat:
        await seat.ask("hi", stream=True)
        calls = seat.trace().messages[-1].tool_calls
    assert [(call.name, call.arguments) for call in calls] == [("f", '{"a": 1}'), ("g", '{"b": 2}')]


@awaited
async def test_tokens_counted_as_fractions_are_counted() -> None:
    async with behind(
        chat({"role": "assistant", "content": "hi"}, usage={"prompt_tokens": 7.0, "completion_tokens": 1.5})
    ) as seat:
        await seat.ask("hi")
        usage = seat.trace().usage
    assert (usage.input, usage.output) == (7, None)


@awaited
async def test_misbehaviour_that_a_program_got_over_stays_marked() -> None:
    chaos = Chaos({"429": 1.0})
    async with behind(say("at last"), chaos=chaos) as seat:
        assert (await seat.ask("hi")).status == 429
        chaos.shares = {}
        assert (await seat.ask("hi")).text == "at last"
        [call] = seat.trace().calls
    assert (call.fault, call.error) == ("429", None)
    assert [(one.status, one.error) for one in call.tries] == [(429, "chaos 429"), (200, None)]


@awaited
async def test_what_a_dialect_cannot_say_of_the_runs_sampling_is_marked() -> None:
    upstream = {"dialects": ("messages",)}
    async with behind(
        in_messages(text("hi")), upstream=upstream, sampling={"seed": 7, "temperature": 0}
    ) as seat:
        asked = {"model": "m", "max_tokens": 9, "messages": talk("hi"), "stream": True}
        await seat.send(asked, path="/v1/messages")
        [call] = seat.trace().calls
    assert (call.dropped, call.sampling["temperature"]) == (["sampling.seed"], 0)

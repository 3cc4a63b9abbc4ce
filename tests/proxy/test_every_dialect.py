"""What holds for a call in whatever dialect: limits, imposed values, secrets, repeats, faults, keep-alive."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from typing import Any

import anthropic
import openai
import pytest
from _kit.agents import in_responses, message
from _kit.behind import KEY, QUICK, awaited, behind
from _kit.dialects import HELLO, RESPONSES, SPOKEN, ask, each_dialect, on, with_body
from _kit.provider import Reply, replace, say

from hotswap.dialects import known
from hotswap.limits import Limits
from hotswap.proxy.events import EventReader


def test_every_dialect_is_spoken_here() -> None:
    assert set(SPOKEN) == set(known())


@pytest.mark.parametrize("stream", [True, False])
@each_dialect
@awaited
async def test_an_answer_passes_byte_for_byte_and_is_read(dialect: str, stream: bool) -> None:
    answer = SPOKEN[dialect].answer
    if dialect == "gemini" and stream:  # it says so in its path alone
        answer = replace(answer, body=None)
    async with behind(answer, upstream=on(dialect)) as seat:
        said = await ask(seat, dialect, stream=stream)
        trace = seat.trace()
    assert said.body == (b"".join(answer.chunks or ()) if stream else answer.body)
    assert (trace.main[-1].text, trace.main[-1].role, trace.turns) == ("hello", "assistant", 1)
    assert (trace.usage.input, trace.usage.output) == (10, 5)
    [call] = trace.calls
    assert (call.dialect, call.translated, call.finish, call.model) == (dialect, None, "stop", "theirs")


@each_dialect
@awaited
async def test_a_call_over_a_limit_is_refused_in_the_programs_words(dialect: str) -> None:
    answer = SPOKEN[dialect].answer
    async with behind(answer, upstream=on(dialect), limits=Limits(turns=1)) as seat:
        assert (await ask(seat, dialect)).status == 200
        refused = await ask(seat, dialect, "more")
        assert len(seat.provider.posts) == 1
        assert seat.session.stop == "turns"
    assert refused.status == 400
    assert SPOKEN[dialect].refusal in refused.body.decode()
    assert "used up its limit of turns" in refused.body.decode()
    error = known()[dialect].read_error(400, refused.body, {})
    assert (error.type, error.retryable) == ("bad_request", False)


@each_dialect
@awaited
async def test_a_limit_of_tokens_is_imposed_in_the_dialects_words(dialect: str) -> None:
    async with behind(
        SPOKEN[dialect].answer, upstream=on(dialect), sampling={"max_tokens": 7, "temperature": 0.5}
    ) as seat:
        await ask(seat, dialect)
        sent: Any = seat.provider.posts[0].json
        for name in SPOKEN[dialect].limit:
            sent = sent[name]
        assert sent == 7
        assert "0.5" in seat.provider.posts[0].body.decode()


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "x-goog-api-key", "query"])
@each_dialect
@awaited
async def test_the_secret_is_taken_wherever_a_program_puts_it(header: str, dialect: str) -> None:
    async with behind(SPOKEN[dialect].answer, upstream=on(dialect)) as seat:
        secret, path = seat.session.secret(), SPOKEN[dialect].path
        headers = {header: f"Bearer {secret}" if header == "Authorization" else secret}
        if header == "query":
            path, headers = f"{path}?key={secret}", {}
        async with seat.client.post(
            seat.url + path, json=SPOKEN[dialect].body("hi"), headers=headers
        ) as answer:
            assert answer.status == 200
        async with seat.client.post(seat.url + SPOKEN[dialect].path, json={}) as stranger:
            assert stranger.status == 401
        [sent] = seat.provider.posts
    assert secret not in json.dumps([dict(sent.headers), sent.query, sent.body.decode()])
    assert KEY in json.dumps(dict(sent.headers))


@each_dialect
@awaited
async def test_the_same_request_after_a_broken_answer_is_another_try(dialect: str) -> None:
    answer = SPOKEN[dialect].answer
    broken = replace(answer, cut=5, chunks=None)
    async with behind(broken, answer, upstream=on(dialect), calls=replace(QUICK, retries=0)) as seat:
        assert (await ask(seat, dialect)).status == 502
        assert (await ask(seat, dialect)).status == 200
        [call] = seat.trace().calls
    assert (call.error, len(call.tries), seat.session.turns) == (None, 2, 1)


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@awaited
async def test_a_late_stream_is_kept_alive_with_what_the_reader_ignores(dialect: str) -> None:
    hold = threading.Event()
    slow = replace(SPOKEN[dialect].answer, hold=hold)
    async with behind(slow, upstream=on(dialect), calls=replace(QUICK, quiet_s=0.05)) as seat:
        asking = asyncio.ensure_future(ask(seat, dialect, stream=True))
        await asyncio.sleep(0.3)
        hold.set()
        said = await asking
        trace = seat.trace()
    assert said.status == 200
    assert len(said.body) > len(b"".join(slow.chunks or ()))
    assert trace.main[-1].text == "hello"
    assert trace.calls[0].error is None


@each_dialect
@awaited
async def test_an_error_of_ours_inside_a_stream_reads_as_what_it_is(dialect: str) -> None:
    spoken = known()[dialect]
    for kind in ("rate_limit", "overloaded", "context_length", "auth", "bad_request", "server"):
        reader, assembler = EventReader(), spoken.assembler()
        for piece in (*reader.feed(spoken.write_error_event(kind, "what happened")), *reader.finish()):
            if piece.event is not None:
                assembler.feed(piece.event)
        error = assembler.answer().error
        assert error is not None
        assert (error.type, "what happened" in error.message) == (kind, True)


@awaited
async def test_an_earlier_response_is_gone_on_from() -> None:
    first = with_body(in_responses(HELLO), RESPONSES)
    second = with_body(in_responses(HELLO), {**RESPONSES, "id": "resp_2", "output": [message("bye")]})
    async with behind(first, second, upstream=on("responses")) as seat:
        await seat.send({"model": "m", "input": "hi"}, path="/v1/responses")
        follow = {"model": "m", "input": "and?", "previous_response_id": "resp_1"}
        await seat.send(follow, path="/v1/responses")
        trace = seat.trace()
    assert [node.text for node in trace.main] == ["hi", "hello", "and?", "bye"]
    assert (trace.turns, len(trace.branches)) == (2, 1)


@awaited
async def test_clients_that_are_slow_or_talk_nonsense_hold_up_nobody() -> None:
    async with behind(*[say("hello")] * 20) as seat:
        host, port = seat.proxy.gate.host, seat.proxy.gate.port
        writers = []
        for start in (
            b"POST /v1/chat",
            b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
            b"\x00\xff nonsense\r\n\r\n",
        ):
            for _ in range(20):
                _, writer = await asyncio.open_connection(host, port)
                writer.write(start)
                writers.append(writer)
        said = await asyncio.gather(*(seat.ask(str(number)) for number in range(20)))
        assert {one.status for one in said} == {200}
        for writer in writers:
            writer.close()


@pytest.mark.parametrize(
    "lost", [b'data: {"id": "half', b"data: Internal Server Error", b"event: error\ndata: overloaded"]
)
@pytest.mark.parametrize("dialect", ["chat", "messages", "gemini"])
@awaited
async def test_an_event_that_is_no_json_is_no_part_of_a_whole_answer(dialect: str, lost: bytes) -> None:
    first, *rest = SPOKEN[dialect].answer.chunks or ()
    odd = (lost + b"\n\n", first, *rest) if dialect == "gemini" else (first, lost + b"\n\n", *rest)
    async with behind(Reply(chunks=odd), upstream=on(dialect)) as seat:
        said = await ask(seat, dialect, stream=True)
        [call] = seat.trace().calls
    assert said.body == b"".join(odd)
    assert call.error is not None
    assert call.error.type == ("server" if b"error\n" in lost else "malformed")
    assert lost.partition(b"data: ")[2].decode() in call.error.message


@awaited
async def test_a_lost_event_of_responses_is_made_good_by_the_last_one() -> None:
    first, *rest = SPOKEN["responses"].answer.chunks or ()
    odd = (first, b"data: half an ev\n\n", *rest)
    async with behind(Reply(chunks=odd), upstream=on("responses")) as seat:
        await ask(seat, "responses", stream=True)
        assert seat.trace().calls[0].error is None


@awaited
async def test_a_nan_is_read_as_nothing() -> None:
    body = (
        b'{"model": "m", "temperature": NaN, "messages": [{"role": "user", "content": "hi", "x": Infinity}]}'
    )
    answer = b'{"choices": [{"message": {"role": "assistant", "content": "yes", "extra": NaN}}], "id": "1"}'
    async with behind(Reply(body=answer)) as seat:
        said = await seat.send(body)
        trace = seat.trace()
        assert b"NaN" in seat.provider.posts[0].body
    assert said.body == answer
    assert json.dumps(trace.to_json(), allow_nan=False)
    assert trace.main[-1].text == "yes"


@awaited
async def test_the_list_of_models_is_written_for_who_reads_it() -> None:
    async with behind(upstream=on("chat", context=8192)) as seat:
        for path, headers in (
            ("/v1/models", {}),
            ("/v1/models", {"anthropic-version": "2023-06-01"}),
            ("/v1beta/models", {}),
        ):
            async with seat.client.get(seat.url + path, headers={**seat.auth, **headers}) as answer:
                listed = await answer.json()
            if path == "/v1beta/models":
                assert listed["models"][0]["name"] == "models/theirs"
                assert listed["models"][0]["inputTokenLimit"] == 8192
                continue
            assert [(one["id"], one["object"]) for one in listed["data"]] == [("theirs", "model")]
            assert (listed.get("has_more"), listed["data"][0].get("type")) == (
                (False, "model") if headers else (None, None)
            )
    async with behind(upstream=on("chat")) as seat:
        key = seat.session.secret()
        async with anthropic.AsyncAnthropic(base_url=seat.url, api_key=key) as client:
            assert [model.id async for model in client.models.list()] == ["theirs"]
        async with openai.AsyncOpenAI(base_url=f"{seat.url}/v1", api_key=key) as other:
            assert [model.id async for model in other.models.list()] == ["theirs"]


def thinks(budget: int) -> dict[str, Any]:
    body = SPOKEN["messages"].body("hi")
    return {**body, "max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": budget}}


@pytest.mark.parametrize(
    ("budget", "limit", "sent"), [(4000, 5000, 4000), (4000, 4000, 2000), (4000, 1500, 1024)]
)
@awaited
async def test_a_limit_of_the_run_leaves_room_for_the_answer_beside_the_thinking(
    budget: int, limit: int, sent: int
) -> None:
    request: Any = {"upstream": on("messages"), "sampling": {"max_tokens": limit}}
    async with behind(SPOKEN["messages"].answer, **request) as seat:
        assert (await seat.send(thinks(budget), path="/v1/messages")).status == 200
        posted = seat.provider.posts[0].json
        [call] = seat.trace().calls
    assert (posted["max_tokens"], posted["thinking"]) == (limit, {"type": "enabled", "budget_tokens": sent})
    assert call.dropped == ([] if sent == budget else ["thinking.budget_tokens"])
    assert call.sampling["thinking"]["budget_tokens"] == sent


@awaited
async def test_a_limit_of_the_run_that_no_thinking_fits_into_is_refused_before_anyone_is_asked() -> None:
    async with behind(upstream=on("messages"), sampling={"max_tokens": 500}) as seat:
        said = await seat.send(thinks(4000), path="/v1/messages")
        [call] = seat.trace().calls
        assert seat.provider.posts == []
    assert said.status == 400
    assert "max_tokens = 500, and the program asks to think for 4000 tokens" in said.json["error"]["message"]
    assert call.error is not None
    assert (call.error.blame, call.error.type) == ("hotswap", "untranslatable")


@awaited
async def test_a_packed_request_goes_up_unpacked_and_its_call_says_so() -> None:
    async with behind(say("a"), say("b")) as seat:
        body = json.dumps({"model": "shown", "messages": [{"role": "user", "content": "hi"}]}).encode()
        await seat.send(gzip.compress(body), **{"Content-Encoding": "gzip"})
        await seat.send(body)
        assert [post.body for post in seat.provider.posts] == [body] * 2
        assert [call.dropped for call in seat.trace().calls] == [["Content-Encoding"], []]

"""A recorded run answers in a model's place: the same bytes, a difference that is shown, and no network."""

import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from _kit.behind import Seat, awaited, behind, talk
from _kit.provider import fail, replace, say

from hotswap.contracts.model import Prices
from hotswap.exchanges.recorded import Recorded, read
from hotswap.exchanges.recorder import About, Recorder
from hotswap.masking import Masker
from hotswap.proxy.tape import Asked, NotRecorded, Tape
from hotswap.replay.comparing import Rules, differences, steady
from hotswap.replay.comparing import read as read_body
from hotswap.replay.matching import Deck
from hotswap.replay.serving import Player

ABOUT = About("01R", "quiz/loop/small/local", "quiz", "loop", "local", "small", "small-1", "fr", 0)
UNMASKED = Masker().raw
NOW = 1764519301.0
"""The 30th of November 2025, in the afternoon."""
CHAT = "/v1/chat/completions"


def asked(body: Any, *, path: str = CHAT, dialect: str | None = "chat", **more: Any) -> Asked:
    call = 0 if dialect else None
    return Asked("POST", path, body=json.dumps(body).encode(), dialect=dialect, call=call, **more)


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(talk(*texts)), **fields}


def recorded(folder: Path, *pairs: tuple[Asked, str], mask: Any = UNMASKED) -> Recorded:
    recorder = Recorder(folder / "r.zst", ABOUT, mask)
    for at, (request, answer) in enumerate(pairs):
        chunks = [(0.0, answer.encode())]
        recorder.append(Tape(request, NOW + at, 200, (("Content-Type", "application/json"),), chunks))
    recorder.close()
    found = read(folder / "r.zst")
    assert found is not None
    return found


def deck(folder: Path, *pairs: tuple[Asked, str], loose: bool = False, rules: Rules | None = None) -> Deck:
    return Deck(recorded(folder, *pairs).exchanges, rules or Rules(), loose, "task 'fr' of quiz--1")


def answers(of: Deck, *requests: Asked) -> list[str]:
    return [of.take(request, NOW).exchange.answer.decode() for request in requests]


def test_a_request_is_answered_by_its_equal_in_whatever_order_they_come(tmp_path: Path) -> None:
    pairs = [(asked(chat("a")), "1"), (asked(chat("b")), "2"), (asked(chat("a", "1", "c")), "3")]
    requests = [request for request, _ in reversed(pairs)]
    assert answers(deck(tmp_path, *pairs), *requests) == ["3", "2", "1"]


def test_the_same_request_again_gets_the_answers_in_their_order_and_then_none(tmp_path: Path) -> None:
    again = deck(tmp_path, (asked(chat("a")), "busy"), (asked(chat("a")), "1"))
    assert answers(again, asked(chat("a")), asked(chat("a"))) == ["busy", "1"]
    with pytest.raises(
        NotRecorded, match="sent again more often than when task 'fr' of quiz--1 was recorded"
    ):
        again.take(asked(chat("a")), NOW)


def test_the_order_of_keys_and_the_spelling_of_text_make_no_difference(tmp_path: Path) -> None:
    of = deck(tmp_path, (asked(chat("é", n=1)), "1"))
    other = Asked(
        "POST",
        CHAT,
        body='{"n": 1, "messages": [{"content": "é", "role": "user"}]}'.encode(),
        dialect="chat",
        call=0,
    )
    assert of.take(other, NOW).exchange.answer == b"1"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (chat("Capital of Spain?"), 'at messages[0].content: recorded "Capital of France?", sent "Capital of Spain?"'),
        (chat("Capital of France?", n=2), "at n: recorded nothing, sent 2"),
        ({"model": "m"}, 'at messages: recorded [{"role": "user", "content": "Capital of France?"}], sent nothing'),
    ],
)  # fmt: skip
def test_a_difference_is_shown_by_its_path_and_both_values(tmp_path: Path, sent: Any, said: str) -> None:
    of = deck(tmp_path, (asked(chat("Capital of France?")), "Paris"))
    with pytest.raises(NotRecorded) as caught:
        of.take(asked(sent), NOW)
    assert str(caught.value) == f"differs from request 1 of task 'fr' of quiz--1 {said}"


def test_a_difference_is_shown_against_the_nearest_request_shortened_and_counted(tmp_path: Path) -> None:
    long = "x" * 500
    of = deck(
        tmp_path, (asked(chat("other", "thing")), "1"), (asked(chat(f"{long}a{long}", n=1, top_p=0.5)), "2")
    )
    with pytest.raises(NotRecorded) as caught:
        of.take(asked(chat(f"{long}b{long}", n=2, top_p=0.5)), NOW)
    assert "request 2 of" in str(caught.value)
    assert f'recorded ..."{"x" * 30}a{"x" * 29}"..., sent ..."{"x" * 30}b' in str(caught.value)
    assert str(caught.value).endswith("(and in one more place)")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("dialect", "one", "other"),
    [
        ("chat", {"model": "a", "user": "u1", "prompt_cache_key": "1"}, {"model": "b"}),
        ("responses", {"client_metadata": {"id": "1"}}, {}),
        ("responses", {"input": [{"id": "i1", "role": "user"}]}, {"input": [{"id": "i2", "role": "user"}]}),
        ("messages", {"metadata": {"user_id": "1"}}, {"metadata": {"user_id": "2"}}),
        ("messages", {"system": "x: cc_version=1.2; cch=36ee5;"}, {"system": "x: cc_version=1.3; cch=00000;"}),
        ("chat", {"q": "at /var/tmp/hotswap-0123456789/workdir"}, {"q": "at /var/tmp/hotswap-9876543210/workdir"}),
        ("chat", {"q": "id 0189a1b2-0000-4000-8000-00000000000a."}, {"q": "id 0189a1b2-0000-4000-8000-00000000000b."}),
        ("chat", {"q": "Today is 2025-11-30."}, {"q": "Today is 2025-12-02."}),
        ("chat", {"q": "It is Sun Nov 30 16:15:01 UTC 2025"}, {"q": "It is Tue Dec  2 09:00:59 UTC 2025"}),
        ("chat", {"q": "on November 30, 2025 at 4:15 PM"}, {"q": "on December 2, 2025 at 11:20 AM"}),
        ("chat", {"q": "2025-11-30T16:15:01.123Z"}, {"q": "2025-12-02T01:02:03.456+00:00"}),
    ],
)  # fmt: skip
def test_what_programs_make_up_for_each_run_is_no_difference(dialect: str, one: Any, other: Any) -> None:
    """Recorded on the 30th of November, replayed on the 2nd of December."""
    days = 2 * 24 * 3600

    def differ(rules: Rules) -> bool:
        bodies = (json.dumps(one).encode(), json.dumps(other).encode())
        first, second = (
            read_body(bodies[0], dialect, NOW, rules),
            read_body(bodies[1], dialect, NOW + days, rules),
        )
        return next(differences(first, second), None) is not None

    assert not differ(Rules())
    assert differ(Rules(exact=True))


def test_a_day_that_is_not_today_is_compared() -> None:
    assert steady("born on 1990-01-01", NOW) == "born on 1990-01-01"
    assert steady("born on 2025-10-30", NOW) == "born on 2025-10-30"
    assert steady("2025-11-30 is today", NOW) == "<time> is today"
    assert steady("see /tmp/report.txt, 12025-11-30", NOW) == "see /tmp/report.txt, 12025-11-30"


@pytest.mark.parametrize(
    "path",
    ["extra.run", "extra.*", "**.run", "messages.*.run", "messages[0].run", "messages.0.run", "**.run,n"],
)
def test_fields_of_ones_own_are_left_out_by_path(path: str) -> None:
    one = {"extra": {"run": 1}} if path.startswith("extra") else {"messages": [{"run": 1}, {"x": 1}]}
    other = {"extra": {"run": 2}} if path.startswith("extra") else {"messages": [{"run": 2}, {"x": 1}]}
    bodies = json.dumps(one).encode(), json.dumps(other).encode()
    rules = Rules(ignore=tuple(path.split(",")))
    first, second = (read_body(body, "chat", NOW, rules) for body in bodies)
    assert list(differences(first, second)) == []
    plain = [read_body(body, "chat", NOW, Rules()) for body in bodies]
    assert list(differences(*plain)) != []


def test_true_is_not_one() -> None:
    first, second = (read_body(body, "chat", NOW, Rules()) for body in (b'{"n": 1}', b'{"n": true}'))
    assert [path for path, _, _ in differences(first, second)] == [("n",)]


def test_a_masked_secret_is_equal_to_whatever_stands_in_its_place(tmp_path: Path) -> None:
    mask = Masker({"MY_TOKEN": "canary-value-0001"}).raw
    found = recorded(tmp_path, (asked(chat("use canary-value-0001 now")), "1"), mask=mask)
    of = Deck(found.exchanges, Rules(), False, "it")
    with pytest.raises(NotRecorded):
        of.take(asked(chat("use canary-value-0002 later")), NOW)
    assert of.take(asked(chat("use canary-value-0002 now")), NOW).exchange.answer == b"1"


def test_another_agent_another_route_and_one_call_too_many_are_said(tmp_path: Path) -> None:
    of = deck(tmp_path, (asked(chat("a")), "1"))
    with pytest.raises(NotRecorded, match="has no request POST /v1/chat/completions of agent 'helper'"):
        of.take(asked(chat("a"), agent="helper"), NOW)
    with pytest.raises(NotRecorded, match="has no request POST /v1/messages"):
        of.take(asked(chat("a"), path="/v1/messages", dialect="messages"), NOW)
    of.take(asked(chat("a")), NOW)
    with pytest.raises(NotRecorded, match=r"a call too many: .* has 1 request of this agent"):
        of.take(asked(chat("b")), NOW)


def test_a_route_beside_is_answered_as_often_as_it_is_asked(tmp_path: Path) -> None:
    count = asked({"q": 1}, path="/v1/messages/count_tokens", dialect=None)
    of = deck(tmp_path, (count, "7"))
    assert answers(of, count, count, count) == ["7", "7", "7"]


def test_loose_goes_by_position_in_each_conversation(tmp_path: Path) -> None:
    tool = {"tools": [{"type": "function", "function": {"name": "bash"}}]}
    pairs = [
        (asked(chat("task", **tool)), "1"),
        (asked(chat("make a title")), "title"),
        (asked(chat("task", "1", "result", **tool)), "2"),
        (asked(chat("task", "1", "result", "2", "result", **tool)), "3"),
    ]
    of = deck(tmp_path, *pairs, loose=True)
    sent = [
        chat("Task!", **tool),
        chat("Task!", "1", "other", **tool),
        chat("title?"),
        chat("Task!", "1", "x", **tool),
    ]
    assert answers(of, *(asked(body) for body in sent)) == ["1", "2", "title", "3"]
    with pytest.raises(NotRecorded, match="has 3 requests of this agent"):
        of.take(asked(chat("Task!", **tool)), NOW)


def test_loose_keeps_two_conversations_of_the_same_tools_apart(tmp_path: Path) -> None:
    asks = [chat("a"), chat("b"), chat("a", "a1", "x"), chat("b", "b1", "x")]
    pairs = [(asked(body), answer) for body, answer in zip(asks, ["a1", "b1", "a2", "b2"], strict=True)]
    of = deck(tmp_path, *pairs, loose=True)
    sent = [chat("b"), chat("b", "b1", "y"), chat("a"), chat("a", "a1", "y")]
    assert answers(of, *(asked(body) for body in sent)) == ["b1", "b2", "a1", "a2"]


# behind the proxy


async def record(folder: Path, *script: Any, use: Any) -> tuple[Any, Recorded]:
    """Let `use` play with a scripted provider. Get what it got, and what was recorded."""
    recorder = Recorder(folder / "r.zst", ABOUT, Masker().raw)
    async with behind(*script, record=recorder.append) as seat:
        got = await use(seat)
    recorder.close()
    found = read(folder / "r.zst")
    assert found is not None
    return got, found


async def replayed(
    found: Recorded, use: Any, timed: bool = False, loose: bool = False, **more: Any
) -> tuple[Any, Seat]:
    player = Player(Deck(found.exchanges, Rules(), loose, "it"), timed)
    upstream = {"url": "", "prices": Prices(input=0.0, output=0.0), **more}
    async with behind(source=player, upstream=upstream) as seat:
        got = await use(seat)
        assert seat.provider.requests == []
        return got, seat


@awaited
async def test_an_answer_comes_again_byte_by_byte_marked_and_at_no_cost(tmp_path: Path) -> None:
    async def use(seat: Seat) -> Any:
        return (await seat.ask("hello")).body, (await seat.ask("hello", "hi", "more", stream=True)).body

    before, found = await record(tmp_path, say("hi"), say("bye"), use=use)
    after, seat = await replayed(found, use)
    assert after == before
    trace = seat.trace()
    assert [call.replayed for call in trace.calls] == [True, True]
    assert trace.cost_usd == 0
    assert trace.usage.input == 20


@awaited
async def test_a_stream_comes_in_the_same_chunks_with_its_gaps_or_at_once(tmp_path: Path) -> None:
    reply = replace(say("a long answer"), gap_s=0.1)

    async def use(seat: Seat) -> Any:
        began, times = time.monotonic(), []
        async with seat.post(chat("hello", stream=True)) as response:
            parts = []
            async for data in response.content.iter_any():
                times.append(time.monotonic() - began)
                parts.append(data)
        return b"".join(parts), times[-1] - times[0], len(parts)

    (before, _, pieces), found = await record(tmp_path, reply, use=use)
    (timed, took, _), _ = await replayed(found, use, timed=True)
    (at_once, quick, _), _ = await replayed(found, use)
    assert timed == at_once == before
    recorded_s = found.exchanges[0].chunks[-1][0] - found.exchanges[0].chunks[0][0]
    assert recorded_s > 0.3
    assert took > 0.8 * recorded_s
    assert quick < took
    assert pieces > 2


@awaited
async def test_an_answer_that_was_cut_is_cut_again_at_the_same_byte(tmp_path: Path) -> None:
    async def use(seat: Seat) -> Any:
        parts = []
        async with seat.post(chat("hello", stream=True)) as response:
            try:
                while data := await response.content.readany():
                    parts.append(data)
            except aiohttp.ClientPayloadError:
                return b"".join(parts), True
        return b"".join(parts), False

    before, found = await record(tmp_path, replace(say("a long answer"), cut=3), use=use)
    after, seat = await replayed(found, use)
    assert after == before
    assert after[0] != b""
    assert after[1]
    assert seat.trace().calls[0].error is not None


@awaited
async def test_an_error_and_the_programs_own_retry_come_again_in_their_order(tmp_path: Path) -> None:
    async def use(seat: Seat) -> Any:
        answers = [await seat.ask("hello") for _ in range(2)]
        return [(answer.status, answer.body) for answer in answers]

    overload = fail(400, "try again")
    before, found = await record(tmp_path, overload, say("hi"), use=use)
    assert [status for status, _ in before] == [400, 200]
    after, seat = await replayed(found, use)
    assert after == before
    assert len(seat.trace().calls) == 1


@awaited
async def test_an_error_that_was_passed_on_is_not_repeated_by_us(tmp_path: Path) -> None:
    async def use(seat: Seat) -> Any:
        return [(await seat.ask("hello")).status for _ in range(2)]

    before, found = await record(tmp_path, *[fail(503, "busy")] * 3, say("hi"), use=use)
    assert before == [503, 200]
    after, _ = await replayed(found, use)
    assert after == before


@awaited
async def test_what_is_not_recorded_is_an_error_of_the_provider_with_the_difference(tmp_path: Path) -> None:
    async def use(seat: Seat) -> Any:
        return await seat.ask("hello")

    async def other(seat: Seat) -> Any:
        return await seat.ask("good day")

    _, found = await record(tmp_path, say("hi"), use=use)
    said, seat = await replayed(found, other)
    assert said.status == 400
    error = seat.trace().calls[0].error
    assert error is not None
    assert (error.blame, error.type) == ("provider", "replay")
    assert 'recorded "hello", sent "good day"' in error.message
    assert error.message in said.json["error"]["message"]
    loosely, _ = await replayed(found, other, loose=True)
    assert loosely.text == "hi"


@awaited
async def test_what_is_not_recorded_goes_to_a_provider_where_there_is_one(tmp_path: Path) -> None:
    async def use(seat: Seat) -> Any:
        return await seat.ask("hello")

    _, found = await record(tmp_path, say("hi"), use=use)
    player = Player(Deck(found.exchanges, Rules(), False, "it"), False)
    upstream = {"prices": Prices(input=1.0, output=1.0)}
    async with behind(say("live"), source=player, upstream=upstream) as seat:
        assert [(await seat.ask(text)).text for text in ("hello", "other")] == ["hi", "live"]
        calls = seat.trace().calls
        assert [call.replayed for call in calls] == [True, False]
        assert [call.cost_usd for call in calls] == [0.0, pytest.approx(15e-6)]

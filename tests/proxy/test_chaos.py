"""The proxy misbehaves on purpose as providers do, and says so."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from _kit.behind import awaited, behind
from _kit.provider import say

from hotswap.proxy.chaos import Chaos, parse_chaos

GONE = (aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


@pytest.mark.parametrize(
    ("status", "type"), [("429", "rate_limit"), ("500", "server"), ("529", "overloaded"), ("401", "auth")]
)
@awaited
async def test_a_status_is_answered_without_asking_the_provider(status: str, type: str) -> None:  # noqa: A002
    async with behind(say("never"), chaos=Chaos({status: 1.0})) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert (said.status, said.json["error"]["code"]) == (int(status), type)
    assert ("retry-after" in {name.lower() for name in said.headers}) == (status == "429")
    assert "x-should-retry" not in said.headers
    assert seat.provider.requests == []
    assert call.error is not None
    assert (call.fault, call.error.blame, call.error.type) == (status, "hotswap", "chaos")
    assert seat.session.last_error is None


@pytest.mark.parametrize("streams", [True, False])
@awaited
async def test_a_cut_answer_is_paid_and_never_looks_whole(streams: bool) -> None:
    async with behind(say("a long answer"), say("again"), chaos=Chaos({"cut": 1.0})) as seat:
        with pytest.raises(GONE):
            await seat.ask("hi", stream=streams)
        [call] = seat.trace().calls
        assert (call.fault, call.outputs) == ("cut", [])
        if not streams:
            assert call.usage.input == 10
        seat.session.request.chaos.shares = {}  # type: ignore[union-attr, misc]
        assert (await seat.ask("hi")).text == "again"
        assert (len(seat.trace().calls), seat.session.turns) == (1, 1)


@awaited
async def test_a_dropped_connection_is_no_answer_at_all() -> None:
    async with behind(say("never"), chaos=Chaos({"drop": 1.0})) as seat:
        with pytest.raises(GONE):
            await seat.ask("hi")
        assert seat.trace().calls[0].fault == "drop"


def test_the_same_seed_draws_the_same_and_shares_come_out() -> None:
    shares = parse_chaos("429:0.2, cut:0.1,slow:0.05")
    draws = [[Chaos(shares, seed).draw() for _ in range(1)] for seed in ("a", "a")]
    assert draws[0] == draws[1]
    one, two = Chaos(shares, "x"), Chaos(shares, "x")
    drawn = [one.draw() for _ in range(4000)]
    assert drawn == [two.draw() for _ in range(4000)]
    assert drawn != [Chaos(shares, "y").draw() for _ in range(4000)]
    for kind, share in shares.items():
        assert abs(drawn.count(kind) / 4000 - share) < 0.03
    assert abs(drawn.count(None) / 4000 - 0.65) < 0.03


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("429", "429: has no share"),
        ("sloth:0.1", "'sloth' is no misbehaviour: one of 400, "),
        ("429:2", "a number above 0 and up to 1"),
        ("429:x", "a number above 0"),
        ("429:0.6,cut:0.6", "add up to 1.2"),
        ("cut:0.1,cut:0.2", "cut is given twice"),
    ],
)
def test_what_is_no_chaos_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_chaos(text)


@awaited
async def test_a_slow_answer_comes_all_the_same() -> None:
    async with behind(say("late"), chaos=Chaos({"slow": 1.0})) as seat:
        asking = asyncio.ensure_future(seat.ask("hi"))
        await asyncio.sleep(0.5)
        assert seat.provider.requests == []
        assert (await asking).text == "late"
        assert seat.trace().calls[0].fault == "slow"
        assert seat.trace().calls[0].error is None

"""A session ends a program that used up its limits, follows one that goes, and adds nothing after its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from _kit.behind import Seat, awaited, behind, talk
from _kit.provider import Provider, Reply, fail, say, stream

from hotswap.contracts.model import Prices
from hotswap.limits import Budget, Limits

PRICES = {"prices": Prices(input=1_000_000, output=2_000_000)}


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"limits": Limits(turns=2)}, "turns"),
        ({"limits": Limits(tokens=30)}, "tokens"),
        ({"limits": Limits(cost_usd=40), "upstream": PRICES}, "cost"),
        ({"budget": Budget(tokens=30)}, "budget"),
        ({"budget": Budget(cost_usd=40), "upstream": PRICES}, "budget"),
    ],
)
@awaited
async def test_a_call_beyond_a_limit_is_refused_with_an_error_that_ends_programs(
    given: Any, limit: str
) -> None:
    async with behind(lambda _: say("hi"), **given) as seat:
        assert [(await seat.ask(text)).status for text in ("a", "b")] == [200, 200]
        assert (seat.session.stop, seat.session.refused.is_set()) == (None, False)
        said = await seat.ask("c", stream=True)
        assert (seat.session.stop, seat.session.refused.is_set()) == (limit, True)
        assert (len(seat.provider.requests), len(seat.trace().calls)) == (2, 2)
    assert (said.status, said.headers["x-should-retry"]) == (400, "false")
    assert said.json["error"]["code"] == "limit_reached"
    assert limit in said.json["error"]["message"]


@awaited
async def test_only_the_main_agents_calls_are_turns() -> None:
    async with behind(lambda _: say("hi"), limits=Limits(turns=1)) as seat:
        side = {"Authorization": f"Bearer {seat.session.secret('side', 'titles')}"}
        for _ in range(3):
            assert (await seat.send({"messages": talk("title")}, **side)).status == 200
        assert (await seat.ask("a")).status == 200
        assert (await seat.ask("b")).status == 400


@awaited
async def test_when_the_time_is_up_a_call_that_waits_is_refused() -> None:
    never = threading.Event()
    async with behind(replace(say("x"), hold=never), limits=Limits(seconds=0.3)) as seat:
        started = time.monotonic()
        said = await seat.ask("hi")
        assert 0.2 < time.monotonic() - started < 5
        assert (said.status, seat.session.stop) == (400, "seconds")
        assert (await seat.ask("again")).status == 400
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.gone == 1)


@awaited
async def test_when_the_time_is_up_a_stream_ends_with_an_error() -> None:
    slow = replace(say("hello"), pause=threading.Event())
    async with behind(slow, limits=Limits(seconds=0.5)) as seat:
        said = await seat.ask("hi", stream=True)
        assert b"limit_reached" in said.body
        assert b'finish_reason": "stop' not in said.body
        assert seat.session.stop == "seconds"
        [call] = seat.trace().calls
    assert call.error is not None
    assert call.error.type == "abandoned"


@awaited
async def test_turns_in_flight_count_before_they_are_over() -> None:
    hold = threading.Event()
    slow = replace(say("x"), hold=hold)
    async with behind(slow, slow, limits=Limits(turns=2)) as seat:
        both = [asyncio.ensure_future(seat.ask(text)) for text in ("a", "b")]
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 2)
        third = await seat.ask("c")
        hold.set()
        assert [said.status for said in await asyncio.gather(*both)] == [200, 200]
        assert (third.status, seat.session.stop) == (400, "turns")


@awaited
async def test_no_repeat_goes_beyond_the_deadline() -> None:
    async with behind(fail(429, headers={"retry-after": "50"}), limits=Limits(seconds=20)) as seat:
        started = time.monotonic()
        assert (await seat.ask("hi")).status == 429
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("reply", "streams"),
    [
        (replace(say("x"), hold=threading.Event()), False),
        (replace(say("x"), hold=threading.Event()), True),
        (replace(say("hello"), pause=threading.Event()), True),
    ],
    ids=["before a body", "before a stream", "in a stream"],
)
@awaited
async def test_when_the_program_goes_the_call_goes(reply: Reply, streams: bool) -> None:
    async with behind(reply) as seat:
        asking = asyncio.ensure_future(seat.ask("hi", stream=streams))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 1)
        asking.cancel()
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.gone == 1, 2)
        await quiet(seat)
        [call] = seat.trace().calls
    assert call.error is not None
    assert (call.error.blame, call.error.type) == ("harness", "abandoned")


@awaited
async def test_a_program_that_goes_while_we_wait_for_a_repeat_ends_the_waiting() -> None:
    async with behind(fail(429, headers={"retry-after": "9"}), say("never")) as seat:
        asking = asyncio.ensure_future(seat.ask("hi"))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: len(provider.requests) == 1)
        asking.cancel()
        await quiet(seat)
        assert len(seat.provider.requests) == 1


async def quiet(seat: Seat) -> None:
    """Wait until the session has recorded how its only call ended."""
    async with asyncio.timeout(2):
        while seat.trace().calls[0].error is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@awaited
async def test_after_its_end_a_session_takes_nothing_and_adds_nothing() -> None:
    hold = threading.Event()
    async with behind(say("one"), replace(say("two"), hold=hold)) as seat:
        await seat.ask("a")
        late = asyncio.ensure_future(seat.ask("b"))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 1)
        await seat.session.close()
        before = seat.trace().to_line()
        hold.set()
        with pytest.raises(aiohttp.ClientError):
            await late
        assert (await seat.ask("c")).status == 401
        async with seat.client.get(f"{seat.url}/v1/models", headers=seat.auth) as models:
            assert models.status == 401
        assert seat.trace().to_line() == before
        assert [call.error is None for call in seat.trace().calls] == [True, False]


@awaited
async def test_one_session_cannot_use_anothers_secret_after_it_ended() -> None:
    async with behind(lambda _: say("x")) as seat:
        other = seat.proxy.open(replace(seat.session.request, rollout="other"))
        old = {"Authorization": f"Bearer {other.secret()}"}
        assert (await seat.send({"messages": talk("x")}, **old)).status == 200
        await other.close()
        assert (await seat.send({"messages": talk("x")}, **old)).status == 401
        assert (await seat.ask("x")).status == 200


@awaited
async def test_costs_are_added_up_and_unknown_ones_are_null() -> None:
    async with behind(say("a"), say("b", usage=None), upstream=PRICES) as seat:
        await seat.ask("a")
        assert (seat.trace().cost_usd, seat.trace().calls[0].cost_usd) == (20.0, 20.0)
        await seat.ask("b")
        assert (seat.trace().cost_usd, seat.trace().calls[1].cost_usd) == (None, None)


@awaited
async def test_every_try_is_paid() -> None:
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\n'
    budget = Budget()
    async with behind(stream([usage]), say("whole"), upstream=PRICES, budget=budget) as seat:
        with pytest.raises(aiohttp.ClientPayloadError):
            await seat.ask("hi", stream=True)
        await seat.ask("hi")
        [call] = seat.trace().calls
    assert (call.usage.input, call.usage.output, call.cost_usd) == (13, 6, 25.0)
    assert (budget.spent.total, budget.spent_usd) == (19, 25.0)


@awaited
async def test_the_endpoint_names_address_secret_and_model() -> None:
    async with behind(upstream={"model": "m", "context": 8}) as seat:
        endpoint = seat.session.endpoint("http://box:1")
        assert (endpoint.url, endpoint.key) == ("http://box:1", seat.session.secret())
        assert (endpoint.model, endpoint.context) == ("m", 8)
        assert endpoint.key not in repr(endpoint)
        assert len(endpoint.key) >= 32


@awaited
async def test_many_callers_at_once_are_all_answered_and_recorded() -> None:
    async with behind(lambda _: say("x")) as seat:
        said = await asyncio.gather(*(seat.ask(str(number), stream=number % 2 == 0) for number in range(200)))
        assert {one.status for one in said} == {200}
        trace = seat.trace()
    assert len(trace.calls) == len({call.outputs[0] for call in trace.calls}) == 200
    assert all(trace.messages[call.outputs[0]].parent == call.input for call in trace.calls)


def test_a_provider_in_a_test_is_gone_when_the_test_is() -> None:
    with Provider(say("x")) as provider:
        pass
    assert provider.in_flight == 0


@awaited
async def test_a_request_whose_body_arrives_after_the_end_is_not_taken() -> None:
    async with behind(say("x")) as seat:
        sent = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield b'{"messages": '
            await sent.wait()
            yield b"[]}"

        url, headers = f"{seat.url}/v1/chat/completions", seat.auth
        asking = asyncio.ensure_future(seat.client.post(url, data=slowly(), headers=headers))
        async with asyncio.timeout(5):
            while not seat.proxy.reading:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await seat.session.close()
        sent.set()
        async with await asking as response:
            assert response.status == 401
        assert (seat.provider.requests, seat.trace().calls) == ([], [])


@awaited
async def test_a_call_that_was_refused_costs_nothing_and_one_that_broke_off_costs_what_nobody_knows() -> None:
    async with behind(fail(400), upstream=PRICES) as seat:
        await seat.ask("a")
        assert seat.trace().cost_usd == 0.0
    cut = replace(say("half an answer", usage=None), cut=2)
    async with behind(cut, say("whole"), upstream=PRICES) as seat:
        with pytest.raises(aiohttp.ClientError):
            await seat.ask("a", stream=True)
        await seat.ask("b")
        assert [call.error is None for call in seat.trace().calls] == [False, True]
        assert seat.trace().cost_usd is None


@awaited
async def test_a_call_of_a_model_that_costs_nothing_has_cost_nothing_where_it_broke_off_too() -> None:
    half = replace(say("half an answer", usage=None), cut=2)
    free = {"prices": Prices(input=0.0, output=0.0)}
    async with behind(half, upstream=free) as seat:
        with pytest.raises(aiohttp.ClientError):
            await seat.ask("a", stream=True)
        assert seat.trace().cost_usd == 0.0
    half_priced = {"prices": Prices(input=0.0, output=1.0)}
    async with behind(half, upstream=half_priced) as seat:
        with pytest.raises(aiohttp.ClientError):
            await seat.ask("a", stream=True)
        assert seat.trace().cost_usd is None


MANY = {"model": "shown", "messages": talk(*map(str, range(12_001)))}
"""A request that takes a while to be taken in."""


@awaited
async def test_a_request_of_very_many_messages_is_waited_for_by_its_own_session_and_by_no_other() -> None:
    async with behind(lambda _: say("x")) as seat:
        other = seat.proxy.open(replace(seat.session.request, rollout="other"))
        key = {"Authorization": f"Bearer {other.secret()}"}
        many = asyncio.ensure_future(seat.send(MANY))
        await seat.session.called.wait()
        own = asyncio.ensure_future(seat.ask("of the same session"))
        assert (await seat.send({"messages": talk("of another")}, **key)).status == 200
        assert [said.status for said in await asyncio.gather(many, own)] == [200, 200]
        sent = [post.json["messages"][0]["content"] for post in seat.provider.posts]
        assert (sent[0], sorted(sent[1:])) == ("of another", ["0", "of the same session"])
        trace = seat.trace()
        await other.close()
    assert [call.input for call in trace.calls] == [12_000, 12_001]


@awaited
async def test_nothing_is_added_to_a_session_that_ends_while_it_takes_in_a_request() -> None:
    async with behind(lambda _: say("x")) as seat:
        many = asyncio.ensure_future(seat.send(MANY))
        await seat.session.called.wait()
        await seat.session.close()
        before = seat.trace().to_line()
        with pytest.raises(aiohttp.ClientError):
            await many
        assert (seat.trace().to_line(), seat.trace().calls, seat.provider.requests) == (before, [], [])

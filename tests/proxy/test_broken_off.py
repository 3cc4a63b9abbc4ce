"""A call that is broken off was made: it stands in the trace with its status, and what it used is counted."""

from __future__ import annotations

import asyncio
import threading

import pytest
from _kit.agents import in_messages, text
from _kit.behind import Seat, awaited, behind
from _kit.dialects import on
from _kit.provider import Reply, fail, replace, say

from hotswap.contracts.model import Prices

BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
PRICES = Prices(input=1_000_000, output=1_000_000)


async def ended(seat: Seat) -> None:
    """Wait until the session has recorded how its only call ended."""
    async with asyncio.timeout(5):
        while seat.trace().calls[0].error is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def leave(seat: Seat, path: str, chunk: bytes) -> None:
    """Ask for a stream, and hang up as soon as a piece of it is there."""
    async with seat.post(BODY, path=path) as response:
        while chunk not in await response.content.readany():
            pass
        response.close()
    await ended(seat)


@awaited
async def test_a_stream_that_the_program_leaves_is_a_try_with_its_status_and_the_tokens_that_were_counted() -> (
    None
):
    begun = replace(in_messages(text("hello")), pause=threading.Event())
    async with behind(begun, upstream=on("messages", prices=PRICES)) as seat:
        await leave(seat, "/v1/messages", b"message_start")
        trace = seat.trace()
    [call] = trace.calls
    assert (call.status, [(one.status, one.error) for one in call.tries]) == (200, [(200, "abandoned")])
    assert (call.usage.input, trace.usage.input, trace.usage.output) == (10, 10, call.usage.output)
    assert (call.cost_usd, trace.cost_usd) == (None, None)  # what was written until then is not counted


@awaited
async def test_the_tokens_of_a_stream_that_was_left_add_to_those_of_the_next_try() -> None:
    begun = replace(in_messages(text("hello")), pause=threading.Event())
    async with behind(begun, in_messages(text("hello")), upstream=on("messages")) as seat:
        await leave(seat, "/v1/messages", b"message_start")
        await seat.send(BODY, path="/v1/messages")
        [call] = seat.trace().calls
    assert [(one.status, one.error) for one in call.tries] == [(200, "abandoned"), (200, None)]
    assert call.usage.input == 20


@awaited
async def test_a_call_that_is_left_before_its_answer_is_a_try_without_a_status() -> None:
    async with behind(replace(say("never"), hold=threading.Event())) as seat:
        asking = asyncio.ensure_future(seat.ask("hi"))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 1)
        asking.cancel()
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.gone == 1)
        await ended(seat)
        [call] = seat.trace().calls
    assert (call.status, [(one.status, one.error) for one in call.tries]) == (None, [(None, "abandoned")])


@pytest.mark.parametrize("how", ["left", "cut"])
@awaited
async def test_the_cost_of_an_answer_that_broke_off_uncounted_stays_unknown_after_the_next_try(
    how: str,
) -> None:
    broken = replace(say("hello"), pause=threading.Event()) if how == "left" else replace(say("hello"), cut=2)
    async with behind(broken, say("hello"), upstream=on("chat", prices=PRICES)) as seat:
        if how == "left":
            await leave(seat, "/v1/chat/completions", b"chunk")
        else:
            with pytest.raises(Exception, match="payload"):
                await seat.send(BODY)
        await seat.send(BODY)
        trace = seat.trace()
    [call] = trace.calls
    assert [(one.status, one.error) for one in call.tries] == [
        (200, "abandoned" if how == "left" else "truncated"),
        (200, None),
    ]
    assert (call.error, call.usage.input, call.cost_usd, trace.cost_usd) == (None, 10, None, None)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(body=b"<html>x</html>", headers={"content-type": "text/html"}), 502),
        (replace(say("x"), cut=0), 502),
        (fail(500), 500),
        (say("fine"), 200),
    ],
    ids=["a page", "dropped", "an error", "an answer"],
)
@awaited
async def test_a_call_has_the_status_that_the_program_was_told(reply: Reply, told: int) -> None:
    async with behind(lambda _: reply) as seat:
        said = await seat.ask("hi")
        [call] = seat.trace().calls
    assert (said.status, call.status) == (told, told)

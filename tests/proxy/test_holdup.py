"""Whatever one client sends, the small calls of another session go on being answered."""

from __future__ import annotations

import asyncio
import time

import pytest
from _kit import apart
from _kit.behind import QUICK, awaited
from _kit.traces import HASH, cell

from hotswap.contracts.model import Upstream
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import SessionRequest
from hotswap.trace import CallRecord, TaskRecord, Trace

ALONE_S = 1.0


async def beside(case: str) -> tuple[int, list[CallRecord]]:
    """Serve a bad client beside a witness, whose longest wait is no other than when it is alone. Gets the status that
    the bad one was answered, and its calls."""
    with apart.provider() as url:
        async with Proxy() as proxy:
            upstream = Upstream(url=url, model="m")
            good, bad = (proxy.open(SessionRequest(name, upstream, calls=QUICK)) for name in ("good", "bad"))
            with apart.witness(proxy.gate.port, good.secret()) as seen:
                while not good.turns:  # noqa: ASYNC110 (it says nothing until it ends)
                    await asyncio.sleep(0.01)
                started = time.monotonic()
                await asyncio.sleep(ALONE_S)
                begun = time.monotonic()
                status, _ = await asyncio.to_thread(apart.send, proxy.gate.port, bad.secret(), case)
                ended = time.monotonic()
                times = await asyncio.to_thread(seen.times)
            alone = apart.longest_gap(times, started, begun)
            assert apart.longest_gap(times, begun, ended) < 1.5 + 5 * alone
            trace = Trace("r", "run", cell(), TaskRecord("t", HASH), 0)
            bad.write(trace)
            return status, trace.calls


@awaited
async def test_a_gibibyte_in_a_small_parcel_holds_up_nobody_and_is_refused() -> None:
    status, calls = await beside("bomb")
    assert (status, calls) == (413, [])


@pytest.mark.parametrize("case", ["plain-150", "messages-400000", "numbers", "escapes", "packed"])
@awaited
async def test_a_huge_body_holds_up_nobody_and_goes_up_unread(case: str) -> None:
    status, [call] = await beside(case)
    assert (status, call.error, call.model, call.input) == (200, None, "m", None)
    assert call.unread is not None
    assert "more than" in call.unread
    assert len(call.outputs) == 1


@awaited
async def test_a_body_that_comes_byte_by_byte_holds_up_nobody() -> None:
    status, [call] = await beside("drip")
    assert (status, call.unread) == (200, None)


@awaited
async def test_clients_that_speak_no_http_or_lie_about_their_bodies_hold_up_nobody() -> None:
    status, calls = await beside("malformed")
    assert (status, calls) == (400, [])


@awaited
async def test_connections_that_stay_half_open_hold_up_nobody() -> None:
    status, [call] = await beside("half-open")
    assert (status, call.error) == (200, None)

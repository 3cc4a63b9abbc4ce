"""The real Codex behind the proxy, beyond what every program is tested for: its own ways on a bad day."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from _kit.agents import acts, drive, needs, says
from _kit.behind import QUICK, awaited, behind
from _kit.provider import Reply, fail, replace
from _kit.recipes import RECIPES

from hotswap.limits import Limits

CODEX = RECIPES["codex"]
DONE = says(CODEX, "All done.")
RESPONSES: Any = {"dialects": ("responses",), "model": "their-model"}

pytestmark = needs(CODEX)


@awaited
async def test_a_limit_that_is_reached_inside_a_stream_ends_it(tmp_path: Path) -> None:
    slow = replace(acts(CODEX, "echo 42 > answer.txt"), pause=threading.Event())
    async with behind(slow, upstream=RESPONSES, limits=Limits(seconds=4)) as seat:
        seat.session.begin()
        ran = await drive(CODEX, seat, tmp_path, "Write 42 to answer.txt")
        assert seat.session.stop == "seconds"
        assert len(seat.provider.posts) == 1
    assert ran.exit == 1
    assert ran.refused_s < 30
    assert "used up its limit" in ran.output


@pytest.mark.parametrize(
    "bad",
    [
        fail(500, "oh no"),
        fail(429, "slow down", headers={"retry-after": "1"}),
        replace(DONE, cut=0),
        Reply(status=502, headers={"content-type": "text/html"}, body=b"<html>bad gateway</html>"),
    ],
    ids=["500", "429 with a time", "dropped", "html"],
)
@awaited
async def test_what_passes_it_does_not_notice(bad: Reply, tmp_path: Path) -> None:
    async with behind(bad, DONE, upstream=RESPONSES) as seat:
        ran = await drive(CODEX, seat, tmp_path, "Say done")
        [call] = seat.trace().calls
    assert ran.exit == 0, ran.output
    assert len(seat.provider.posts) == 2
    assert (call.error, len(call.tries)) == (None, 2)
    assert "error" not in ran.output.replace("Model metadata", "").split('"turn.started"')[1]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (fail(401, "no such key"), "no such key"),
        (fail(400, "too long", code="context_length_exceeded"), "too long"),
    ],
    ids=["401", "context length"],
)
@awaited
async def test_what_does_not_pass_ends_it_and_is_the_providers(
    bad: Reply, words: str, tmp_path: Path
) -> None:
    policy = replace(QUICK, retries=1)
    async with behind(lambda received: bad, upstream=RESPONSES, calls=policy) as seat:
        ran = await drive(CODEX, seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 1
    assert seat.session.last_error is not None
    assert words in seat.session.last_error.message
    assert trace.calls[-1].error is not None
    assert trace.calls[-1].error.blame == "provider"


@awaited
async def test_a_slow_provider_is_bridged_with_events_that_reset_its_clock(tmp_path: Path) -> None:
    hold = threading.Event()
    slow = replace(DONE, hold=hold)
    patient = replace(QUICK, quiet_s=0.5, timeout_s=60)
    async with behind(slow, upstream=RESPONSES, calls=patient) as seat:
        threading.Timer(7, hold.set).start()
        ran = await drive(
            CODEX, seat, tmp_path, "Say done", "-c", "model_providers.eval.stream_idle_timeout_ms=3000"
        )
        [call] = seat.trace().calls
    assert ran.exit == 0, ran.output
    assert len(seat.provider.posts) == 1
    assert (call.error, len(call.tries)) == (None, 1)

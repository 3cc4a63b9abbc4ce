"""The real Claude Code behind the proxy, beyond what every program is tested for: its title call, its bad days."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from _kit.agents import drive, needs, says, text
from _kit.behind import awaited, behind
from _kit.provider import Reply, fail, replace
from _kit.recipes import RECIPES

CLAUDE = RECIPES["claude"]
DONE = says(CLAUDE, "All done.")
MESSAGES: Any = {"dialects": ("messages",), "model": "their-model"}

pytestmark = needs(CLAUDE)


@awaited
async def test_its_title_call_is_a_branch_beside(tmp_path: Path) -> None:
    def answer(received: Any) -> Reply:
        return DONE if received.json.get("tools") else says(CLAUDE, '{"title": "Forty-two"}')

    async with behind(answer, upstream=MESSAGES) as seat:
        ran = await drive(CLAUDE, seat, tmp_path, "Say done", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="")
        trace = seat.trace()
    assert ran.exit == 0, ran.output
    assert (trace.turns, trace.main[-1].text) == (1, "All done.")
    assert sorted(branch.kind for branch in trace.branches)[0] == "main"
    assert all(branch.kind in ("main", "side") for branch in trace.branches)


@pytest.mark.parametrize(
    "bad",
    [
        fail(529, "overloaded", type="overloaded_error"),
        fail(429, "slow down", headers={"retry-after": "1"}),
        replace(DONE, cut=0),
    ],
    ids=["529", "429", "dropped"],
)
@awaited
async def test_what_passes_it_does_not_notice(bad: Reply, tmp_path: Path) -> None:
    async with behind(bad, DONE, upstream=MESSAGES) as seat:
        ran = await drive(CLAUDE, seat, tmp_path, "Say done")
        [call] = seat.trace().calls
    assert ran.exit == 0, ran.output
    assert "api_retry" not in ran.output
    assert (call.error, len(call.tries)) == (None, 2)


@awaited
async def test_its_fall_back_to_one_piece_is_another_try_of_one_turn(tmp_path: Path) -> None:
    whole = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [text("All done.")], "usage": {"input_tokens": 9, "output_tokens": 3},
    }  # fmt: skip
    one_piece = Reply(body=json.dumps(whole).encode())
    async with behind(replace(DONE, cut=1), one_piece, upstream=MESSAGES) as seat:
        ran = await drive(CLAUDE, seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 0, ran.output
    assert [request.json.get("stream", False) for request in seat.provider.posts] == [True, False]
    assert (len(trace.calls), trace.turns) == (1, 1)

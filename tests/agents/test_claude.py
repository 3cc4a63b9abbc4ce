"""The real Claude Code behind the proxy: on its own dialect, on a chat endpoint, over a limit, on a bad day."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from _kit.agents import claude, in_messages, needs, text, tool_use
from _kit.behind import KEY, QUICK, awaited, behind
from _kit.provider import Reply, call_tool, fail, replace, say

from hotswap.limits import Limits

pytestmark = needs("claude")

WRITE = {"command": "echo 42 > answer.txt", "description": "write"}
DONE = in_messages(text("All done."))
MESSAGES: Any = {"dialects": ("messages",), "model": "their-model"}


@awaited
async def test_it_works_and_is_on_record(tmp_path: Path) -> None:
    async with behind(in_messages(tool_use("Bash", WRITE)), DONE, upstream=MESSAGES) as seat:
        ran = await claude(seat, tmp_path, "Write 42 to answer.txt")
        trace = seat.trace()
    assert ran.exit == 0, ran.output + ran.errors
    assert (tmp_path / "work" / "answer.txt").read_text() == "42\n"
    assert [request.headers["x-api-key"] for request in seat.provider.posts] == [KEY] * 2
    assert {request.json["model"] for request in seat.provider.posts} == {"their-model"}
    assert [branch.kind for branch in trace.branches] == ["main"]
    assert (trace.turns, trace.main[-1].text, trace.main[-3].tool_calls[0].name) == (2, "All done.", "Bash")


@awaited
async def test_it_works_on_an_endpoint_that_speaks_chat_alone(tmp_path: Path) -> None:
    script = (call_tool("Bash", WRITE), say("All done."))
    async with behind(*script, upstream={"dialects": ("chat",), "model": "their-model"}) as seat:
        ran = await claude(seat, tmp_path, "Write 42 to answer.txt")
        trace = seat.trace()
    assert ran.exit == 0, ran.output + ran.errors
    assert (tmp_path / "work" / "answer.txt").read_text() == "42\n"
    assert [call.translated for call in trace.calls] == ["chat", "chat"]
    assert (trace.turns, trace.main[-1].text, len(trace.branches)) == (2, "All done.", 1)


@awaited
async def test_its_title_call_is_a_branch_beside(tmp_path: Path) -> None:
    def answer(received: Any) -> Reply:
        return DONE if received.json.get("tools") else in_messages(text('{"title": "Forty-two"}'))

    async with behind(answer, upstream=MESSAGES) as seat:
        ran = await claude(seat, tmp_path, "Say done", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="")
        trace = seat.trace()
    assert ran.exit == 0, ran.output
    assert (trace.turns, trace.main[-1].text) == (1, "All done.")
    assert sorted(branch.kind for branch in trace.branches)[0] == "main"
    assert all(branch.kind in ("main", "side") for branch in trace.branches)


@awaited
async def test_over_its_limit_it_ends_without_a_storm(tmp_path: Path) -> None:
    first = in_messages(tool_use("Bash", WRITE))
    async with behind(first, upstream=MESSAGES, limits=Limits(turns=1)) as seat:
        ran = await claude(seat, tmp_path, "Write 42 to answer.txt")
        assert (seat.session.stop, len(seat.provider.posts)) == ("turns", 1)
    assert ran.exit == 1
    assert ran.elapsed_s < 30
    assert "used up its limit" in ran.output


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
        ran = await claude(seat, tmp_path, "Say done")
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
        ran = await claude(seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 0, ran.output
    assert [request.json.get("stream", False) for request in seat.provider.posts] == [True, False]
    assert (len(trace.calls), trace.turns) == (1, 1)


@awaited
async def test_what_does_not_pass_ends_it_and_is_the_providers(tmp_path: Path) -> None:
    bad = fail(500, "it is down", type="api_error")
    async with behind(lambda received: bad, upstream=MESSAGES, calls=replace(QUICK, retries=1)) as seat:
        ran = await claude(seat, tmp_path, "Say done")
        [call] = seat.trace().calls
    assert ran.exit == 1
    assert ran.elapsed_s < 40
    assert call.error is not None
    assert (call.error.blame, call.error.message) == ("provider", "it is down")

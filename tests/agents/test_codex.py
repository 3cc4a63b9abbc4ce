"""The real Codex behind the proxy: on its own dialect, on a chat endpoint, over a limit, on a bad day."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from _kit.agents import codex, function_call, in_responses, message, needs
from _kit.behind import KEY, QUICK, awaited, behind
from _kit.provider import Reply, call_tool, fail, replace, say

from hotswap.limits import Limits

pytestmark = needs("codex")

WRITE = {"cmd": "echo 42 > answer.txt"}
DONE = in_responses(message("All done."))
RESPONSES: Any = {"dialects": ("responses",), "model": "their-model"}
IMPATIENT: Any = {
    "model_providers__eval__request_max_retries": 1,
    "model_providers__eval__stream_max_retries": 1,
}


@awaited
async def test_it_works_and_is_on_record(tmp_path: Path) -> None:
    async with behind(in_responses(function_call("exec_command", WRITE)), DONE, upstream=RESPONSES) as seat:
        ran = await codex(seat, tmp_path, "Write 42 to answer.txt")
        trace = seat.trace()
    assert ran.exit == 0, ran.output + ran.errors
    assert (tmp_path / "work" / "answer.txt").read_text() == "42\n"
    assert [request.headers["authorization"] for request in seat.provider.posts] == [f"Bearer {KEY}"] * 2
    assert {request.json["model"] for request in seat.provider.posts} == {"their-model"}
    assert [branch.kind for branch in trace.branches] == ["main"]
    assert (trace.turns, trace.main[-1].text, trace.main[-3].tool_calls[0].name) == (
        2,
        "All done.",
        "exec_command",
    )
    assert "42" not in trace.main[-2].text or trace.main[-2].role == "tool"
    assert trace.usage.input == 20


@awaited
async def test_it_works_on_an_endpoint_that_speaks_chat_alone(tmp_path: Path) -> None:
    script = (call_tool("exec_command", WRITE), say("All done."))
    async with behind(*script, upstream={"dialects": ("chat",), "model": "their-model"}) as seat:
        ran = await codex(seat, tmp_path, "Write 42 to answer.txt")
        trace = seat.trace()
    assert ran.exit == 0, ran.output + ran.errors
    assert (tmp_path / "work" / "answer.txt").read_text() == "42\n"
    assert [call.translated for call in trace.calls] == ["chat", "chat"]
    second = seat.provider.posts[1].json["messages"]
    assert [one["role"] for one in second[-2:]] == ["assistant", "tool"]
    assert (trace.turns, trace.main[-1].text, len(trace.branches)) == (2, "All done.", 1)


@pytest.mark.parametrize("streams_end", ["refused", "in the stream"])
@awaited
async def test_over_its_limit_it_ends_without_a_storm(streams_end: str, tmp_path: Path) -> None:
    again = in_responses(function_call("exec_command", WRITE))
    limits = Limits(turns=1) if streams_end == "refused" else Limits(seconds=4)
    slow = again if streams_end == "refused" else replace(again, pause=threading.Event())
    async with behind(slow, upstream=RESPONSES, limits=limits) as seat:
        seat.session.begin()
        ran = await codex(seat, tmp_path, "Write 42 to answer.txt")
        assert seat.session.stop == ("turns" if streams_end == "refused" else "seconds")
        assert len(seat.provider.posts) == 1
    assert ran.exit == 1
    assert ran.elapsed_s < 30
    assert "used up its limit" in ran.output


@pytest.mark.parametrize(
    "bad",
    [
        fail(500, "oh no"),
        fail(429, "slow down"),
        fail(429, "slow down", headers={"retry-after": "1"}),
        replace(DONE, cut=0),
        Reply(status=502, headers={"content-type": "text/html"}, body=b"<html>bad gateway</html>"),
    ],
    ids=["500", "429", "429 with a time", "dropped", "html"],
)
@awaited
async def test_what_passes_it_does_not_notice(bad: Reply, tmp_path: Path) -> None:
    async with behind(bad, DONE, upstream=RESPONSES) as seat:
        ran = await codex(seat, tmp_path, "Say done")
        [call] = seat.trace().calls
    assert ran.exit == 0, ran.output
    assert len(seat.provider.posts) == 2
    assert (call.error, len(call.tries)) == (None, 2)
    assert "error" not in ran.output.replace("Model metadata", "").split('"turn.started"')[1]


@awaited
async def test_a_stream_that_breaks_is_another_try_of_one_turn(tmp_path: Path) -> None:
    async with behind(replace(DONE, cut=1), DONE, upstream=RESPONSES) as seat:
        ran = await codex(seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 0, ran.output
    assert (len(trace.calls), trace.turns, len(trace.branches)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (fail(401, "no such key"), "no such key"),
        (fail(400, "too long", code="context_length_exceeded"), "too long"),
        (fail(500, "it is down"), "it is down"),
    ],
    ids=["401", "context length", "500 for ever"],
)
@awaited
async def test_what_does_not_pass_ends_it_and_is_the_providers(
    bad: Reply, words: str, tmp_path: Path
) -> None:
    policy = replace(QUICK, retries=1)
    async with behind(lambda received: bad, upstream=RESPONSES, calls=policy) as seat:
        ran = await codex(seat, tmp_path, "Say done", **IMPATIENT)
        trace = seat.trace()
    assert ran.exit == 1
    assert ran.elapsed_s < 40
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
        ran = await codex(
            seat, tmp_path, "Say done", model_providers__eval__stream_idle_timeout_ms=3000, **IMPATIENT
        )
        [call] = seat.trace().calls
    assert ran.exit == 0, ran.output
    assert len(seat.provider.posts) == 1
    assert (call.error, len(call.tries)) == (None, 1)

"""What the real agent programs ask beside their conversation, with the settings that a recipe switches off left on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from _kit.agents import drive, needs, says
from _kit.behind import behind, within
from _kit.provider import Received, Reply
from _kit.recipes import RECIPES

OPENCODE, QWEN, RLM = RECIPES["opencode"], RECIPES["qwen"], RECIPES["rlm"]
CHAT: Any = {"dialects": ("chat",), "model": "their-model"}
SUB_CALL = "Looking.\n```repl\nprint(llm_query('Say hi'))\n```"


@needs(OPENCODE)
@within(150)
async def test_the_title_call_of_opencode_is_no_turn(tmp_path: Path) -> None:
    def answer(received: Received) -> Reply:
        return says(OPENCODE, "All done." if received.json.get("tools") else "A title")

    titled = replace(OPENCODE, argv=tuple(word for word in OPENCODE.argv if word not in ("--title", "t")))
    async with behind(answer, upstream=CHAT) as seat:
        ran = await drive(titled, seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 0, ran.words
    assert sorted(bool(sent.json.get("tools")) for sent in seat.provider.posts) == [False, True]
    assert (trace.turns, trace.main[-1].text) == (1, "All done.")
    assert sorted(branch.kind for branch in trace.branches) == ["main", "side"]


@needs(QWEN)
@within(150)
async def test_what_qwen_keeps_of_a_conversation_that_is_over_is_no_turn(tmp_path: Path) -> None:
    def answer(received: Received) -> Reply:
        return says(QWEN, "Kept." if b"memory extraction" in received.body else "All done.")

    settings = {**QWEN.files[".qwen/settings.json"], "memory": {"enableManagedAutoMemory": True}}
    keeping = replace(QWEN, files={".qwen/settings.json": settings})
    async with behind(answer, upstream=CHAT) as seat:
        ran = await drive(keeping, seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 0, ran.words
    assert all(sent.json["tools"] for sent in seat.provider.posts)
    assert [call.kind for call in trace.calls] == ["main", "side"]
    assert (trace.turns, trace.main[-1].text) == (1, "All done.")


@needs(RLM)
@within(150)
async def test_what_an_rlm_asks_another_model_is_no_turn(tmp_path: Path) -> None:
    turns = iter([says(replace(RLM, answers=None), SUB_CALL), says(RLM, "All done.")])

    def answer(received: Received) -> Reply:
        return says(replace(RLM, answers=None), "hi") if len(received.json["messages"]) == 1 else next(turns)

    async with behind(answer, upstream=CHAT) as seat:
        ran = await drive(RLM, seat, tmp_path, "Say done")
        trace = seat.trace()
    assert ran.exit == 0, ran.words
    assert "All done." in ran.output
    assert len(seat.provider.posts) == 3
    assert trace.turns == 2
    assert [branch.kind for branch in trace.branches].count("main") == 1
    assert len(trace.branches) == 2

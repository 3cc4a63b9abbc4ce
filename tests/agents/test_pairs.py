"""Every real agent program behind the proxy, in every case: the table of pairs is `PAIRS`.

A model makes each program run a shell command that writes a file, and then answer. The larger programs, by what their
biggest process takes: qwen 1.9 GiB, gemini 0.8 GiB, opencode 0.7 GiB, claude 0.3 GiB; all others 0.25 GiB and less.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from _kit.agents import acts, drive, needs, says
from _kit.behind import KEY, QUICK, Seat, behind, within
from _kit.provider import Received, Reply, fail, replace
from _kit.recipes import RECIPES, Recipe

from hotswap.limits import Limits

LIMIT_S = 150
"""For one program, on a machine that is busy with others; alone each takes a few seconds."""
PROMPT = "Write 42 to answer.txt"
PROGRAMS = ("codex", "claude", "opencode", "pi", "qwen", "gemini", "mini", "rlm")
IN_OTHER_DIALECTS = (
    "opencode-responses",
    "opencode-messages",
    "pi-responses",
    "pi-messages",
    "qwen-messages",
)
PAIRS: Mapping[str, tuple[str, ...]] = {
    "its own dialect": (*PROGRAMS, *IN_OTHER_DIALECTS),
    "a chat endpoint": ("codex", "claude", "gemini", *IN_OTHER_DIALECTS),
    "a limit of turns": PROGRAMS,
    "429 once": PROGRAMS,
    "500 for ever": PROGRAMS,
    "a cut answer": PROGRAMS,
}
EXITS_WITH_0 = ("pi",)
"""What they exit with says nothing of an API that failed."""


def pairs(case: str) -> pytest.MarkDecorator:
    """Run a test with each program of a case."""
    cells = [pytest.param(RECIPES[name], id=name, marks=needs(RECIPES[name])) for name in PAIRS[case]]
    return pytest.mark.parametrize("recipe", cells)


def command(folder: Path) -> str:
    """What the model runs; an absolute path, since rlm works in a folder of its own."""
    return f"echo 42 > {folder}/work/answer.txt"


def wrote(folder: Path) -> bool:
    answer = folder / "work" / "answer.txt"
    return answer.exists() and answer.read_text() == "42\n"


def endpoint(*dialects: str) -> Any:
    return {"dialects": dialects, "model": "their-model"}


def leaks(seat: Seat, folder: Path) -> list[str]:
    """Where a key is found: the provider's or the session's, in any file that is left or in the trace."""
    keys = [KEY.encode(), seat.session.secret().encode()]
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    texts["the trace"] = seat.trace().to_line()
    return [name for name, text in texts.items() if any(key in text for key in keys)]


def check_conversation(recipe: Recipe, seat: Seat) -> None:
    """The trace is one conversation of two turns: a command that ran, its result, an answer."""
    trace = seat.trace()
    assert [branch.kind for branch in trace.branches] == ["main"]
    assert (trace.turns, len(trace.calls), trace.usage.input, trace.usage.output) == (2, 2, 200, 40)
    said = [place for place, node in enumerate(trace.main) if node.role == "assistant"]
    assert said[1] == len(trace.main) - 1
    called = [call.name for place in said for call in trace.main[place].tool_calls]
    results = [node for node in trace.main[said[0] + 1 : said[1]] if node.role == "tool"]
    if recipe.acts is None:
        assert called == [recipe.tool] * (1 if recipe.ends is None else 2)
        given = trace.main[said[0]].tool_calls[0].id
        assert [node.tool_call_id for node in results] == [given or results[0].tool_call_id]
    else:
        assert trace.main[said[0] + 1].role == "user"
    if recipe.ends is None:
        assert "All done." in trace.main[-1].text


@pairs("its own dialect")
@within(LIMIT_S)
async def test_it_works_and_is_on_record(recipe: Recipe, tmp_path: Path) -> None:
    script = (acts(recipe, command(tmp_path)), says(recipe, "All done."))
    async with behind(*script, upstream=endpoint(recipe.dialect)) as seat:
        ran = await drive(recipe, seat, tmp_path, PROMPT)
        assert ran.exit == 0, ran.words
        assert wrote(tmp_path)
        assert "All done." in ran.words
        check_conversation(recipe, seat)
        assert {call.translated for call in seat.trace().calls} == {None}
        assert [KEY in " ".join(sent.headers.values()) for sent in seat.provider.posts] == [True, True]
        assert {_model(sent) for sent in seat.provider.posts} == {"their-model"}
        assert PROMPT in seat.provider.posts[0].body.decode()
        assert leaks(seat, tmp_path) == []


def _model(sent: Received) -> str:
    """The model that a request asks for: in its body, or in its path as Google's API has it."""
    named = sent.json.get("model") or sent.path.rpartition("/")[2].partition(":")[0]
    return str(named)


@pairs("a chat endpoint")
@within(LIMIT_S)
async def test_it_works_on_an_endpoint_that_speaks_chat_alone(recipe: Recipe, tmp_path: Path) -> None:
    script = (acts(recipe, command(tmp_path), "chat"), says(recipe, "All done.", "chat"))
    async with behind(*script, upstream=endpoint("chat")) as seat:
        ran = await drive(recipe, seat, tmp_path, PROMPT)
        assert ran.exit == 0, ran.words
        assert wrote(tmp_path)
        check_conversation(recipe, seat)
        assert {call.translated for call in seat.trace().calls} == {"chat"}
        second = seat.provider.posts[1].json["messages"]
        assert [one["role"] for one in second[-2:]] == ["assistant", "tool"]
        assert leaks(seat, tmp_path) == []


@pairs("a limit of turns")
@within(LIMIT_S)
async def test_over_its_limit_it_ends_without_a_storm(recipe: Recipe, tmp_path: Path) -> None:
    script = (acts(recipe, command(tmp_path)), says(recipe, "All done."))
    upstream = endpoint(recipe.dialect)
    async with behind(*script, upstream=upstream, limits=Limits(turns=1)) as seat:
        ran = await drive(recipe, seat, tmp_path, PROMPT)
        trace = seat.trace()
        assert (ran.exit == 0) == (recipe.program in EXITS_WITH_0), ran.words
        assert wrote(tmp_path)
        assert (seat.session.stop, len(seat.provider.posts), trace.turns) == ("turns", 1, 1)
        assert [call.error for call in trace.calls] == [None]
        assert 0 < ran.refused_s < 30
        assert "used up its limit" in ran.words
        assert leaks(seat, tmp_path) == []


@pairs("429 once")
@within(LIMIT_S)
async def test_a_provider_that_is_busy_once_is_not_noticed(recipe: Recipe, tmp_path: Path) -> None:
    script = (fail(429, "slow down"), acts(recipe, command(tmp_path)), says(recipe, "All done."))
    async with behind(*script, upstream=endpoint(recipe.dialect)) as seat:
        ran = await drive(recipe, seat, tmp_path, PROMPT)
        trace = seat.trace()
        assert ran.exit == 0, ran.words
        assert wrote(tmp_path)
        assert "slow down" not in ran.words
        assert [(call.error, len(call.tries)) for call in trace.calls] == [(None, 2), (None, 1)]
        assert (trace.turns, len(trace.branches), len(seat.provider.posts)) == (2, 1, 3)
        assert leaks(seat, tmp_path) == []


@pairs("500 for ever")
@within(LIMIT_S)
async def test_a_provider_that_is_down_ends_it_and_is_blamed(recipe: Recipe, tmp_path: Path) -> None:
    def down(received: Received) -> Reply:
        return fail(500, "it is down")

    policy = replace(QUICK, retries=0)
    async with behind(down, upstream=endpoint(recipe.dialect), calls=policy) as seat:
        ran = await drive(recipe, seat, tmp_path, PROMPT)
        [call] = seat.trace().calls
        assert (ran.exit == 0) == (recipe.program in EXITS_WITH_0), ran.words
        assert not wrote(tmp_path)
        assert call.error is not None
        assert (call.error.blame, call.error.type, call.error.message) == ("provider", "server", "it is down")
        assert len(call.tries) == len(seat.provider.posts) <= 4
        assert seat.session.last_error is not None
        assert leaks(seat, tmp_path) == []


@pairs("a cut answer")
@within(LIMIT_S)
async def test_an_answer_that_is_cut_is_asked_for_again_or_is_the_providers(
    recipe: Recipe, tmp_path: Path
) -> None:
    act = acts(recipe, command(tmp_path))
    script = (replace(act, cut=1), act, says(recipe, "All done."))
    async with behind(*script, upstream=endpoint(recipe.dialect)) as seat:
        ran = await drive(recipe, seat, tmp_path, PROMPT)
        trace = seat.trace()
        assert (ran.exit == 0, wrote(tmp_path)) == (recipe.resumes, recipe.resumes), ran.words
        assert len(seat.provider.posts) == (3 if recipe.resumes else 1)
        if recipe.resumes:
            assert [(call.error, len(call.tries)) for call in trace.calls] == [(None, 2), (None, 1)]
            assert (trace.turns, len(trace.branches)) == (2, 1)
        else:
            [call] = trace.calls
            assert call.error is not None
            assert (call.error.blame, call.error.type, trace.turns) == ("provider", "truncated", 0)
        assert leaks(seat, tmp_path) == []

"""How a run shows its progress."""

import io
import json
import time
from pathlib import Path

import pytest
from _kit.evals import evaluate
from _kit.provider import Provider, say
from _kit.traces import scored
from rich.console import Console

from hotswap import Task
from hotswap.cli._live import _look, plain_line
from hotswap.progress import Progress
from hotswap.rollout import Rollout

FORCED = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}
"""What some CI systems set, and what would make other programs write colours into pipes."""


def test_in_a_pipe_there_are_plain_lines_whatever_the_environment_asks_for(tmp_path: Path) -> None:
    rows = [json.dumps({"prompt": "Well?", "answer": answer}) for answer in ("42", "43", "44")]
    (tmp_path / "q.jsonl").write_text("\n".join(rows))
    with Provider(lambda request: say("42")) as provider:
        model = ("-m", f"scripted@{provider.url}", "-H", "loop", "-H", "loop,tools=bash")
        more = ("-k", "2", "--pilot", "1", "--yes")
        done = evaluate(tmp_path, "jsonl", "--taskset.path", "q.jsonl", *model, *more, env=FORCED)
    assert done.code == 0, done.stderr
    assert not [char for char in done.stdout + done.stderr if char < " " and char != "\n"]
    assert "12/12 done" in done.stderr
    assert "reward" in done.stdout


def rollout(number: int) -> Rollout:
    return Rollout(f"r{number}", "run", "a/b/c/d", Task(id=str(number), prompt="Well?"), 0)


def test_the_pace_is_that_of_the_rollouts_and_not_of_what_was_fetched_before_them() -> None:
    progress = Progress(planned=4)
    assert (progress.elapsed_s, progress.left_s) == (0.0, None)
    before = time.monotonic()
    progress.start(rollout(1))
    progress.start(rollout(2))
    assert progress.began is not None
    assert progress.began >= before
    began = progress.began
    progress.finish(rollout(1), scored(), str)
    assert progress.began == began
    assert progress.left_s is not None
    assert progress.left_s <= 3 * (time.monotonic() - before)


def test_before_the_first_rollout_starts_there_is_no_bar() -> None:
    progress = Progress(planned=4)
    console = Console(file=io.StringIO(), width=80)
    console.print(_look(progress, 80))
    assert console.file.getvalue().strip() == ""  # type: ignore[attr-defined]
    progress.start(rollout(1))
    console.print(_look(progress, 80))
    assert "0/4" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("mean", "shown"), [(0.5, "0.50"), (6.7e306, "6.7e+306"), (float("inf"), "inf"), (-1e20, "-1e+20")]
)
def test_a_mean_of_any_size_is_a_short_number(mean: float, shown: str) -> None:
    progress = Progress(planned=1, scored=1, reward_sum=mean)
    assert plain_line(progress).startswith(f"1/1 done, mean reward {shown}, 0 errors")

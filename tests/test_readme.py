"""The README's first page: its commands are those that exist, and its output has the shape of a fresh one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from _kit.docs import ROOT, Block, blocks, shape
from _kit.evals import PROGRAM, environment

README = ROOT / "README.md"


def test_it_opens_with_the_two_commands() -> None:
    first = blocks(README)[0]
    assert (first.language, first.text.splitlines()) == (
        "sh",
        ["python3 -m pip install uv && uv run eval capitals", "uv run --group dev pytest -n auto"],
    )
    assert first.line < 10


def test_the_second_command_is_what_make_test_runs() -> None:
    made = subprocess.run(
        ["make", "-n", "-C", ROOT, "test", "UV=uv"], capture_output=True, text=True, check=True
    )
    assert blocks(README)[0].text.splitlines()[1] in made.stdout


def test_the_first_run_on_the_real_model_prints_what_the_page_shows(tmp_path: Path) -> None:
    (step,) = first_run().steps()
    done = subprocess.run(
        [PROGRAM.with_name("eval"), "capitals", "-n", "6"],
        cwd=tmp_path,
        env=environment(tmp_path, UV="uv", COLUMNS="80"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    printed = [line for line in done.stdout.splitlines() if not line.startswith(("fetching ", "fetched "))]
    assert without_numbers(printed) == without_numbers(step.output)


def test_the_page_shows_a_result_that_is_neither_nothing_nor_everything() -> None:
    reward = re.search(r"^  reward +(\d\.\d+) \[", first_run().text, re.MULTILINE)
    assert reward is not None
    assert 0.1 < float(reward[1]) < 0.9


def first_run() -> Block:
    return next(block for block in blocks(README) if block.text.startswith("$ uv run eval capitals\n"))


def without_numbers(lines: Sequence[str]) -> list[str]:
    """What of a result does not depend on the model: neither its numbers nor whether all were right."""
    text = re.sub(r"\d[\d.,k]*\d|\d", "N", "\n".join(shape(lines)))
    return re.sub(r"^None wrong", "N wrong", text, flags=re.MULTILINE).splitlines()

"""The documentation is true: its generated parts are fresh, its code runs, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _kit.docs import PAGES, ROOT, Desk, answer, blocks, mismatch
from _kit.provider import Provider

GENERATE = ROOT / "docs" / "_generate.py"
RUN = {"python", "toml", "json", "jsonl", "console"}
NOT_RUN = {"text", "sh"}
"""Languages of blocks that are no code of ours, or that set a machine up."""
SHOWN_ELSEWHERE = "$ uv run eval capitals\n"
"""The README's first run, on the real model: tests/test_readme.py."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    with Provider(answer) as provider:
        desk = Desk(tmp_path, provider)
        problems = [
            problem
            for block in blocks(page)
            if not block.text.startswith(SHOWN_ELSEWHERE)
            for problem in desk.run(block)
        ]
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_block_says_what_language_it_is(page: Path) -> None:
    opened = re.findall(r"^```(.*)$", page.read_text("utf-8"), re.MULTILINE)[::2]
    assert set(opened) <= RUN | NOT_RUN


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run([sys.executable, GENERATE, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    assert [target for target in links(page) if not leads_somewhere(page, target)] == []


def test_every_page_can_be_reached_from_the_map() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert {page for page in PAGES if page.parent != ROOT and page != index} - reached == set()


def test_an_output_that_differs_is_told_from_one_that_only_took_longer() -> None:
    assert mismatch(["2 wrong in 1.5 s", "...", "end"], ["2 wrong in 3 min 2 s", "a", "b", "end"]) is None
    assert mismatch(["2 wrong"], ["3 wrong"]) is not None
    assert mismatch(["one"], ["one", "two"]) is not None


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links that are not addresses."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return (target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target)


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, heading = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return False
    return not heading or heading in anchors(there)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as addresses."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

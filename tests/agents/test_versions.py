"""The real agent programs are those that versions.txt pins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _kit.agents import environment, find, versions
from _kit.recipes import RECIPES


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("codex", "@openai/codex"),
        ("claude", "@anthropic-ai/claude-code"),
        ("opencode", "opencode-ai"),
        ("pi", "@earendil-works/pi-coding-agent"),
        ("qwen", "@qwen-code/qwen-code"),
        ("gemini", "@google/gemini-cli"),
    ],
)
def test_the_program_is_the_one_that_is_pinned(name: str, package: str, tmp_path: Path) -> None:
    program = find(RECIPES[name])
    if program is None:
        pytest.skip(f"no {name}: see tests/agents/versions.txt")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, env=environment(tmp_path))
    assert versions()[package] in said.stdout

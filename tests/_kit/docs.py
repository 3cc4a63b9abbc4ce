"""The documentation, run: its blocks of code as they stand, in a folder of their own for each page.

    python     a block whose first line is `# NAME.py` is written under that name; every one is executed
    toml       likewise `# NAME.toml`; every one is read as a settings file
    json       is parsed
    jsonl      is written as questions.jsonl
    console    each line that begins with `$ ` is run by bash; the lines below it are what it must print

What a command prints is compared as `shape` leaves it: times, ids and the tokens of a moment differ from run to run.
A line `...` stands for any lines. A command must exit with 0, or with what a comment says: `# exit 2`.

So that no page needs a key or a model of its own, three things stand around a page, and its text stays as it is:

* `uv run` runs what it names in the environment of the tests;
* http://127.0.0.1:8000 is a scripted provider (its real port is put in), and a user's settings file sends the
  models of `ELSEWHERE` there too;
* that file also names a local copy of gsm8k, of generated rows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _kit.provider import Provider, Received, Reply, call_tool, say

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
ELSEWHERE = ("smollm2", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5")
ADDRESS = "127.0.0.1:8000"
KNOWN = {"France": "Paris.", "Turkey": "Istanbul", "Japan": "Tokyo", "largest": "Jupiter"}
LIMIT_S = 120

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w./-]+\.(?:py|toml))\n")


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str | None:
        """The file that it is, by its first line."""
        match = NAMED.match(self.text)
        return match[1] if match else None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def steps(self) -> Iterator[Step]:
        """The commands of a console block."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            code = re.search(r"# exit (\d+)$", command)
            yield Step(command, tuple(output.splitlines()), int(code[1]) if code else 0)


@dataclass(frozen=True)
class Step:
    """A command, what it prints, and its exit code."""

    command: str
    output: tuple[str, ...]
    code: int


def blocks(page: Path) -> list[Block]:
    """Every block of code that names its language."""
    text = page.read_text("utf-8")
    return [
        Block(page, text[: match.start()].count("\n") + 1, match[1], match[2])
        for match in FENCE.finditer(text)
    ]


def shape(lines: Sequence[str]) -> list[str]:
    """What of an output is the same in every run: no times, no ids, no progress, no widths."""
    text = "\n".join(line.rstrip() for line in lines if not re.match(r"\d+/\d+ done, ", line))
    text = re.sub(r"\d+ min \d+ s\b|\b\d[\d.]* s\b", "TIME", text)
    text = re.sub(r"--\d{8}-\d{6}-[0-9a-z]{4}\b", "--RUN", text)
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{16}\b", "ID", text)
    text = re.sub(r"127\.0\.0\.1:\d+", ADDRESS, text)
    return re.sub(r" {2,}|─+", "  ", text).strip().splitlines()


def mismatch(expected: Sequence[str], found: Sequence[str]) -> str | None:
    """Say how an output differs from the one on the page; null where it does not."""
    wanted, got = shape(expected), shape(found)
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n" for line in wanted)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in got)):
        return None
    return "the page says\n  {}\nand it prints\n  {}".format("\n  ".join(expected), "\n  ".join(found))


class Desk:
    """A folder in which a page's blocks are run, one after the other."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.folder = folder / "desk"
        self._provider = provider
        shutil.copytree(
            ROOT / "examples", self.folder / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        self._around = folder / "around"
        self._around.mkdir()
        self._env = self._environment()

    def run(self, block: Block) -> list[str]:
        """Run a block and get what is wrong with it, in sentences."""
        text = self._addressed(block.text)
        if block.name is not None:
            (self.folder / block.name).write_text(text, "utf-8")
        if block.language == "python":
            exec(compile(text, block.where, "exec", dont_inherit=True), {"__name__": "page"})
        elif block.language == "toml":
            self._read(text, block)
        elif block.language == "json":
            json.loads(text)
        elif block.language == "jsonl":
            (self.folder / "questions.jsonl").write_text(text, "utf-8")
        elif block.language == "console":
            return [f"{block.where}: {problem}" for step in block.steps() for problem in self._step(step)]
        return []

    def _step(self, step: Step) -> Iterator[str]:
        done = subprocess.run(
            ["bash", "-c", self._addressed(step.command)],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode != step.code:
            yield f"$ {step.command}: exit code {done.returncode}, not {step.code}\n{done.stdout}"
        elif step.output and (difference := mismatch(step.output, done.stdout.splitlines())):
            yield f"$ {step.command}: {difference}"

    def _read(self, text: str, block: Block) -> None:
        from hotswap.settings import resolve

        path = self.folder / (block.name or "block.toml")
        path.write_text(text, "utf-8")
        resolve([], [path], {"HOTSWAP_USER_FILE": ""}, self._around)
        if block.name is None:
            path.unlink()

    def _addressed(self, text: str) -> str:
        return text.replace(ADDRESS, f"127.0.0.1:{self._provider.port}")

    def _environment(self) -> Mapping[str, str]:
        """No key and no setting of whoever runs the tests; `uv run` as it is on a machine of a user's."""
        programs, real = Path(sys.executable).parent, shutil.which("uv") or "uv"
        (self._around / "uv").write_text('#!/bin/sh\nshift\nexec "$@"\n')
        (self._around / "uv").chmod(0o755)
        (self._around / "user.toml").write_text("\n".join(self._user_settings()))
        return {
            "PATH": f"{self._around}:{programs}:{os.environ['PATH']}",
            "HOME": str(self._around),
            "HOTSWAP_USER_FILE": "../around/user.toml",
            "UV": real,
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
        }

    def _user_settings(self) -> Iterator[str]:
        rows = [{"question": f"What is {n} plus {n}?", "answer": f"#### {2 * n}"} for n in range(25)]
        (self._around / "gsm8k.jsonl").write_text("\n".join(map(json.dumps, rows)))
        yield '[taskset.gsm8k]\npath = "../around/gsm8k.jsonl"'
        for name in ELSEWHERE:
            yield f'[models."{name}"]\nurl = "{self._provider.url}"\nprices = {{ input = 0.25, output = 2.0 }}'


def answer(request: Received) -> Reply:
    """What the scripted provider says: some things it knows, and a number it can add; a tool is called once."""
    messages: Sequence[Any] = request.json["messages"]
    asked = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
    if request.json.get("tools") and messages[-1]["role"] == "user":
        return call_tool("bash", {"command": "ls"})
    if sum_ := re.search(r"(\S+) plus (\S+)\?", asked):
        return say(str(sum(int(part.replace(",", "")) for part in sum_.groups())))
    return say(next((known for word, known in KNOWN.items() if word in asked), "42"))

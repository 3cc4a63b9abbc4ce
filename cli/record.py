"""`eval record`: what a run recorded, as one file to keep and to commit; and what is in such a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hotswap.cli._columns import columns
from hotswap.cli._complete import Item
from hotswap.cli._say import count, program, visible
from hotswap.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from hotswap.exchanges.cassette import Kept, Recording

ACTIONS = ("save", "list")
LISTED = 40
"""Tasks that are named."""

USAGE = """\
Keep what a run recorded in one file, or list what such a file holds.

Every run records its raw requests and answers, unless --raw off, and each can be replayed
by its name: -m replay:RUN. A file of them is small, and can be committed: then CI replays it
without a key and without network.

  {eval} record save RUN FILE [--force] [--runs FOLDER]
  {eval} record list FILE|RUN [--runs FOLDER]

Examples:
  {eval} capitals -m openai/gpt-5-mini
      A run. It records.
  {eval} record save latest tests/capitals.recorded
      The newest run, as one file.
  {eval} record list tests/capitals.recorded
      Its cells, tasks, attempts, dialects and models.
  {eval} capitals -m replay:tests/capitals.recorded
      The same run from the file: a request that is not the recorded one is an error that shows the difference.
  {eval} capitals -m replay:tests/capitals.recorded,mode=loose
      The recorded answers in their order, whatever is asked.

RUN is a run's name, the beginning of one, its path, or latest.

  --force        Overwrite FILE.
  --runs FOLDER  The folder of the runs. [runs]
"""


@dataclass
class _Asked:
    words: list[str]
    force: bool = False
    runs: Path | None = None


def main(words: Sequence[str]) -> int:
    """Keep what a run recorded in one file, or list what such a file holds."""
    if not words or "--help" in words or "-h" in words:
        print(USAGE.format(eval=program()), end="")
        return 0
    asked = _read(words)
    action, *rest = asked.words or [""]
    if action not in ACTIONS:
        raise UsageError(f"record does not know {action!r}.{did_you_mean(action, ACTIONS)}")
    print(visible(_save(rest, asked) if action == "save" else _list(rest, asked)))
    return 0


def complete(words: Sequence[str], incomplete: str) -> list[Item]:
    """Get what could stand in the place of the incomplete word."""
    return [] if words else [Item(action) for action in ACTIONS if action.startswith(incomplete)]


def _read(words: Sequence[str]) -> _Asked:
    asked, rest = _Asked([]), iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if word == "--force":
            asked.force = True
        elif option == "--runs":
            value = value if equals else next(rest, "")
            if not value:
                raise UsageError("--runs needs a value: --runs FOLDER")
            asked.runs = Path(value)
        elif word.startswith("-"):
            raise UsageError(f"no option {word!r}. See: {program()} record --help")
        else:
            asked.words.append(word)
    return asked


def _save(words: Sequence[str], asked: _Asked) -> str:
    if len(words) != 2:
        raise UsageError(f"record save takes a run and a file: {program()} record save RUN FILE")
    from hotswap.exchanges.cassette import save

    path = Path(words[1]).expanduser()
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it")
    if path.exists() and not asked.force:
        raise UsageError(f"{path} is there already: --force overwrites it")
    recording = _open(words[0], asked.runs)
    size = save(recording, path)
    what = f"{count(len(recording.rollouts), 'rollout')} of run {recording.name}"
    return f"{path}: {what}, {_bytes(size)}. To replay it: -m replay:{path}"


def _list(words: Sequence[str], asked: _Asked) -> str:
    if len(words) != 1:
        raise UsageError(f"record list takes a file: {program()} record list FILE")
    recording = _open(words[0], asked.runs)
    rollouts = recording.rollouts
    calls = [kept.exchanges for kept in rollouts if kept.exchanges is not None]
    counted = f", {count(sum(calls), 'exchange')}" if calls else ""
    size = f", {_bytes(recording.path.stat().st_size)}" if recording.path.is_file() else ""
    head = f"run {recording.name}: {count(len(rollouts), 'rollout')}{counted}{size}"
    cells = dict.fromkeys(kept.about.cell for kept in rollouts)
    return "\n\n".join(
        [head, *(_cell(cell, [kept for kept in rollouts if kept.about.cell == cell]) for cell in cells)]
    )


def _cell(name: str, rollouts: Sequence[Kept]) -> str:
    about = rollouts[0].about
    attempts = {kept.about.task: [] for kept in rollouts}  # type: dict[str, list[int]]
    for kept in rollouts:
        attempts[kept.about.task].append(kept.about.attempt)
    dialects = _names(dialect for kept in rollouts for dialect in kept.dialects)
    rows = [
        ("model", f"{about.model} (as {about.served})" if about.served not in about.model else about.model),
        *([("dialects", dialects)] if dialects else []),
        ("tasks", _some(list(attempts))),
        ("attempts", _names(str(number) for numbers in attempts.values() for number in sorted(numbers))),
    ]
    return f"{name}\n{columns(rows, 2)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _open(ref: str, runs: Path | None) -> Recording:
    from hotswap.cli._runs import runs_folder
    from hotswap.exchanges.cassette import open_recording

    return open_recording(ref, runs_folder(runs))


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{max(1, round(size / 1024))} kB"

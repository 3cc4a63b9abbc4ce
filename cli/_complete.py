"""What the shell offers while `eval run` is typed: tasksets, parts after their flag, names of settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotswap import registry
from hotswap.cli._flags import ACTIONS, SHORT, SWITCHES
from hotswap.errors import UsageError
from hotswap.registry import Kind

AFTER: dict[str, Kind] = {
    "-H": "harness",
    "--harness": "harness",
    "-r": "runtime",
    "--runtime": "runtime",
    "--taskset": "taskset",
}
ALONE = (
    "--dry-run",
    "--json",
    "--yes",
    "--help",
    *(f"--{no}{name}" for name in SWITCHES for no in ("", "no-")),
)
"""Options that take no value."""


@dataclass(frozen=True)
class Item:
    """One offer, in the form that typer's completion reads."""

    value: str
    help: str = ""
    type: str = "plain"


def complete(words: Sequence[str], incomplete: str) -> list[Any]:
    """Get what could stand in the place of the incomplete word."""
    before = words[-1] if words else ""
    return [item for item in _offers(before, incomplete) if item.value.startswith(incomplete)]


def _offers(before: str, incomplete: str) -> Iterator[Item]:
    if before in AFTER:
        yield from _parts(AFTER[before])
    elif before in ("-m", "--model"):
        for entry in registry.entries("preset").values():
            yield Item(entry.name, entry.summary)
        yield from map(Item, _tables())
    elif incomplete.startswith("-"):
        yield from _flags()
    elif before not in (*SHORT, "-f") and not _wants_a_value(before):
        yield from _parts("taskset")


def _wants_a_value(word: str) -> bool:
    return word.startswith("--") and "=" not in word and word not in ALONE


def _tables() -> list[str]:
    """Get the names in [models] of the files that apply here; none of a file that cannot be read."""
    from hotswap.settings.layers import around

    try:
        given = [item for layer in around(os.environ, Path.cwd()) for item in layer.given]
    except UsageError:  # the run itself says what is wrong
        return []
    return sorted({item.key[1] for item in given if item.key[0] == "models" and len(item.key) > 2})


def _parts(kind: Kind) -> Iterator[Item]:
    for entry in registry.entries(kind).values():
        yield Item(entry.name, entry.summary)


def _flags() -> Iterator[Item]:
    from hotswap.settings.resolved import setting_names

    for name, sentence in setting_names():
        yield Item(f"--{name.replace('_', '-')}", sentence)
    for action, sentence in ACTIONS.items():
        yield Item(action.split(", ")[-1].split(" ")[0], sentence)

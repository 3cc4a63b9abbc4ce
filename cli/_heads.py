"""Names of cells above columns or before rows: what tells them apart, cut where a name can be cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINES = 4
"""A name is cut into no more than these."""
_PIECE = re.compile(r".+?(?:[/@:_.-]+|$)", re.DOTALL)


@dataclass(frozen=True)
class Heads:
    """A label for each cell, and, where it is not the cell's name, the lines that say which is which."""

    labels: tuple[str, ...]
    """Lines, ended by a newline where a label is cut."""
    key: tuple[str, ...] = ()

    @classmethod
    def candidates(cls, names: Sequence[str], widest: int) -> list[Heads]:
        """Get the ways to name cells, the plainest first, each narrower than the one before.

        Whole names, then what differs in them, cut at separators into lines of at most `widest` or fewer,
        then letters.
        """
        own = differing(names)
        found = [cls(tuple(names))]
        key = keyed(own, names)
        for limit in range(min(widest, max(map(wide, own))), 0, -1):
            cuts = [cut(name, limit) for name in own]
            labels = tuple("\n".join(lines) for lines in cuts)
            if all(0 < len(lines) <= LINES for lines in cuts) and labels != found[-1].labels:
                found.append(cls(labels, key))
        signs = tuple(letters(at) for at in range(len(names)))
        return [*found, cls(signs, keyed(signs, names))]


def differing(names: Sequence[str]) -> list[str]:
    """Get what is left of names without the parts between slashes that all begin and end with.

    The names themselves, where nothing would be left of one.
    """
    split = [name.split("/") for name in names]
    shortest = min(map(len, split))
    before = _same(split, shortest)
    after = _same([parts[::-1] for parts in split], shortest - before)
    own = ["/".join(parts[before : len(parts) - after]) for parts in split]
    return own if all(own) and len(set(own)) == len(own) else list(names)


def cut(name: str, limit: int) -> list[str]:
    """Get a name as lines of at most `limit`, each ended by a separator; none where that cannot be."""
    lines: list[str] = []
    for piece in _PIECE.findall(name):
        if wide(piece) > limit:
            return []
        if lines and wide(lines[-1] + piece) <= limit:
            lines[-1] += piece
        else:
            lines.append(piece)
    return lines


def keyed(labels: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Get the lines that say which label stands for which cell."""
    longest = max(map(wide, labels))
    return tuple(
        f"{label}{' ' * (longest - wide(label))}  {name}" for label, name in zip(labels, names, strict=True)
    )


def wide(text: str) -> int:
    """Get the columns that the widest line of a text takes on a console."""
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def letters(at: int) -> str:
    """Get A to Z, then AA, AB and so on."""
    return (letters(at // 26 - 1) if at >= 26 else "") + chr(ord("A") + at % 26)


def _same(split: Sequence[Sequence[str]], most: int) -> int:
    """How many parts all begin with."""
    return next((at for at in range(most) if len({parts[at] for parts in split}) > 1), most)

"""Plain columns of text that fit any width: where there is no room beside, the last column goes below."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

NARROW = 24
"""Characters below which the last column is no longer put beside the others."""
WHOLE: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
"""A name or an address that is longer than a line is not cut: it is there to be copied."""


def columns(rows: Iterable[Sequence[str]], indent: int = 0, width: int | None = None) -> str:
    """Lay out rows of equal length; the last column is wrapped."""
    lines = [list(row) for row in rows]
    if not lines:
        return ""
    width = width or shutil.get_terminal_size().columns
    widths = [max(len(row[column]) for row in lines) for column in range(len(lines[0]) - 1)]
    before = indent + sum(widths) + 2 * len(widths)
    return "\n".join(_row(row, widths, indent, before, width) for row in lines)


def wrapped(text: str, indent: int = 0, width: int | None = None) -> str:
    """Get text as lines that fit."""
    width = max(width or shutil.get_terminal_size().columns, indent + 8)
    space = " " * indent
    return textwrap.fill(text, width, initial_indent=space, subsequent_indent=space, **WHOLE)


def _row(row: list[str], widths: list[int], indent: int, before: int, width: int) -> str:
    *first, last = row
    cells = [f"{cell:{size}}" for cell, size in zip(first, widths, strict=True)]
    head = " " * indent + "  ".join(cells)
    if not last and len(head.rstrip()) <= width:
        return head.rstrip()
    if width - before >= NARROW or not first:
        return f"{head}  {wrapped(last, before, width).lstrip()}" if first else wrapped(last, indent, width)
    above = wrapped("  ".join(first), indent, width)
    return f"{above}\n{wrapped(last, indent + 4, width)}" if last else above

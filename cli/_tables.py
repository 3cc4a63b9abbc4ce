"""The tables of a run on a console of any width: cells beside each other, below each other, or as lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotswap.cli._heads import Heads, wide
from hotswap.cli._say import count, program, visible
from hotswap.columns import Column, by_blame, causes, columns, notes

if TYPE_CHECKING:
    from rich.console import Console

    from hotswap.metrics import Row, Summary

GAP = 3
"""Columns of space between two columns of the table."""
NARROW = 40
"""On a narrower console a list is not lined up."""
FEW = 4
"""Cells that stand beside each other."""
_BREAK = re.compile(r" (?=[\[(])|(?<=,) (?=\d+ [a-z])")
"""Where a value of a narrow column goes on in a second line: before brackets, and between errors."""


@dataclass(frozen=True)
class _Spread:
    """Tables that fit: each is its lines, the first of them the head."""

    heads: Heads
    tables: list[list[tuple[str, ...]]]


def render(summary: Summary, console: Console, command: str | None = None) -> None:
    """Print the tables, what they need to be understood, and the command that shows what went wrong.

    One cell is a list; a few are the columns of one table; more are a line each, in as many tables as the
    width asks for. Where none of that fits, each cell is a list.
    """
    shown = columns(summary)
    names = [visible(row.cell).replace("\n", " ") for row in summary.rows]
    if not _print_tables(shown, summary.rows, names, console):
        for name, row in zip(names, summary.rows, strict=True):
            _print_list(shown[1:], name, row, console)
    for note in notes(summary):
        _print_text(visible(note), console, style="dim")
    _print_text(closing(summary, command), console)
    for cause in causes(summary):
        _print_text(visible(cause), console, indent=2)


def _print_text(text: str, console: Console, style: str = "", indent: int = 0) -> None:
    """Print sentences, wrapped in a terminal alone: what reads a pipe, a person's `grep`, wants them whole."""
    from rich.padding import Padding

    if console.is_terminal and console.width > NARROW:
        console.print(Padding(text, (0, 0, 0, indent), expand=False), style=style)
    else:
        console.print(" " * indent + text, style=style, soft_wrap=not console.is_terminal)


def _print_tables(
    shown: Sequence[Column], rows: Sequence[Row], names: Sequence[str], console: Console
) -> bool:
    if len(rows) < 2:
        return False
    spread = _beside if len(rows) <= FEW else _below
    found = spread(shown, rows, names, console.width)
    if found is None:
        return False
    for table in found.tables:
        _print_table(table, console)
    for line in found.heads.key:
        console.print(line, style="dim", soft_wrap=True)
    if found.heads.key:
        console.print()
    return True


def closing(summary: Summary, command: str | None = None) -> str:
    """Get the last lines: how many were wrong, how many were errors, and the command that shows them."""
    command = command or f"{program()} show"
    wrong = "wrong" if all(row.binary for row in summary.rows) else "below a reward of 1"
    errors = count(summary.errors, "error") if summary.errors else "no errors"
    blames = f" ({by_blame(summary.errors_by_blame)})" if summary.errors else ""
    judged = f"{summary.wrong or 'none'} {wrong}" if summary.scored else "nothing was scored"
    said = f"{judged}, {errors}{blames} of {count(summary.finished, 'rollout')}"
    planned = summary.planned
    if planned is not None and planned > summary.finished:
        said += f"; {planned - summary.finished} of {planned} were not played"
    failed = summary.wrong or summary.errors
    todo = f"To see them: {command} --failed" if failed else f"To see the rollouts: {command}"
    return f"{said[0].upper()}{said[1:]}.\n{todo}"


def _beside(shown: Sequence[Column], rows: Sequence[Row], names: Sequence[str], width: int) -> _Spread | None:
    """A line for each number and a column for each cell; null where that does not fit."""
    titles = [column.title for column in shown[1:]]
    whole = [[visible(column.show(row)) for row in rows] for column in shown[1:]]
    broken = [[_BREAK.sub("\n", text) for text in line] for line in whole]
    *named, lettered = Heads.candidates(names, width)
    ways = [(heads, values) for values in (whole, broken) for heads in named]
    for heads, values in [*ways, (lettered, whole), (lettered, broken)]:
        lines = [("", *heads.labels), *((title, *line) for title, line in zip(titles, values, strict=True))]
        if sum(max(map(wide, column)) + GAP for column in zip(*lines, strict=True)) - GAP <= width:
            return _Spread(heads, [lines])
    return None


def _below(shown: Sequence[Column], rows: Sequence[Row], names: Sequence[str], width: int) -> _Spread | None:
    """A line for each cell, the numbers over as many tables as it takes; null where one does not fit."""
    most = max(12, width // 2)
    for heads in Heads.candidates(names, most):
        head = (shown[0].title, *heads.labels)
        if max(map(wide, head)) > most:
            continue
        tables = _layout(shown[1:], rows, width - max(map(wide, head)))
        if tables is not None:
            return _Spread(heads, [list(zip(head, *table, strict=True)) for table in tables])
    return None


def _layout(shown: Sequence[Column], rows: Sequence[Row], room: int) -> list[list[tuple[str, ...]]] | None:
    """Spread columns over tables that have room for them; null where one does not fit."""
    tables: list[list[tuple[str, ...]]] = []
    left = 0
    for column in shown:
        texts = (column.title, *(visible(column.show(row)) for row in rows))
        needed = max(map(wide, texts)) + GAP
        if needed > room:
            return None
        if needed > left:
            tables.append([])
            left = room
        tables[-1].append(texts)
        left -= needed
    return tables


def _print_table(lines: Sequence[tuple[str, ...]], console: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP - 1, 0, 0), pad_edge=False, header_style="bold"
    )
    for at, title in enumerate(lines[0]):
        table.add_column(title, justify="right" if at else "left", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*line)
    console.print(table)
    console.print()


def _print_list(shown: Sequence[Column], name: str, row: Row, console: Console) -> None:
    from rich.text import Text

    console.print(name, style="bold", soft_wrap=True)
    longest = max(len(column.title) for column in shown)
    for column in shown:
        title = f"  {column.title:<{longest}}  " if console.width >= NARROW else f"{column.title}: "
        console.print(Text(title + visible(column.show(row)), overflow="fold"))
    console.print()

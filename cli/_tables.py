"""The tables of a run on a console of any width: as one table, as several below each other, or as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotswap.cli._say import count, program, visible
from hotswap.columns import Column, by_blame, columns, notes

if TYPE_CHECKING:
    from rich.console import Console

    from hotswap.metrics import Row, Summary

GAP = 2
"""Columns of space between two columns of the table."""
NARROW = 40
"""On a narrower console a list is not lined up."""


def render(summary: Summary, console: Console, command: str | None = None) -> None:
    """Print the tables, what they need to be understood, and the command that shows what went wrong.

    One cell is a list; several are a table with a line a cell, cut into as many tables as the width asks for.
    """
    tables = _layout(columns(summary), summary.rows, console.width) if len(summary.rows) > 1 else None
    if tables is None:
        for row in summary.rows:
            _print_list(columns(summary), row, console)
    else:
        for shown in tables:
            _print_table(shown, summary.rows, console)
    for note in notes(summary):
        console.print(note, style="dim")
    console.print(closing(summary, command))


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


def _layout(shown: Sequence[Column], rows: Sequence[Row], width: int) -> list[list[Column]] | None:
    """Spread columns over tables that fit, each beginning with the cell; null where one does not fit."""
    head, *rest = shown
    widths = {column.title: _width(column, rows) for column in shown}
    room = width - min(widths[head.title], max(12, width // 2))
    tables: list[list[Column]] = []
    left = 0
    for column in rest:
        needed = widths[column.title] + GAP
        if needed > room:
            return None
        if needed > left:
            tables.append([head])
            left = room
        tables[-1].append(column)
        left -= needed
    return tables


def _width(column: Column, rows: Sequence[Row]) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (column.title, *(visible(column.show(row)) for row in rows)))


def _print_table(shown: Sequence[Column], rows: Sequence[Row], console: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold"
    )
    for column in shown:
        side = "left" if column.is_text else "right"
        table.add_column(column.title, justify=side, overflow="fold", no_wrap=not column.is_text)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(visible(column.show(row)) for column in shown))
    console.print(table)
    console.print()


def _print_list(shown: Sequence[Column], row: Row, console: Console) -> None:
    from rich.text import Text

    head, *rest = shown
    console.print(Text(visible(head.show(row)), style="bold", overflow="fold"))
    longest = max(len(column.title) for column in rest)
    for column in rest:
        title = f"  {column.title:<{longest}}  " if console.width >= NARROW else f"{column.title}: "
        console.print(Text(title + visible(column.show(row)), overflow="fold"))
    console.print()

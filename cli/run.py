"""`eval run TASKSET ...`, which is `eval TASKSET ...`: play the tasks, print the tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from hotswap.cli import _flags


class COMMAND(TyperCommand):
    """A command whose options are the settings: it hands over its words as they were typed."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.args = [*args]
        return []

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        from hotswap.cli._complete import complete

        return complete(ctx.args, incomplete)


def command(ctx: typer.Context) -> int:
    """Play a taskset's tasks and print the tables. The default: `run` may be left out."""
    line = _flags.parse(ctx.args)
    if line.help:
        from hotswap.cli._help import run_help

        typer.echo(run_help(line))
        return 0
    from hotswap.settings import resolve

    resolved = resolve(line.given, line.files, os.environ, Path.cwd())
    if line.dry_run:
        from hotswap.cli._dry_run import show

        return show(resolved)
    from hotswap.cli._play import play

    return play(resolved, line)

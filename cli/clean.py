"""`eval clean`: remove what evals that are gone left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hotswap.cli._say import count, program, visible
from hotswap.errors import Fault, UsageError


def clean(
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            "-r", "--runtime", help="Only this runtime's; may be repeated. Without it: all that are here."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove boxes whose eval is gone: those that were kept (--keep), and what a crash left."""
    from hotswap.doctor import runtimes
    from hotswap.settings.layers import around

    found = list(runtimes(around(os.environ, Path.cwd()), tuple(runtime or ())))
    names = ", ".join(name for name, _ in found)
    if not yes and not _agreed(f"Remove every box of {names} whose eval is gone, kept ones too? [y/N] "):
        print("nothing was removed")
        return
    removed, problems = 0, []
    for name, one in found:
        try:
            for line in asyncio.run(one.clean()):
                print(visible(f"{name}: removed {line}"))
                removed += 1
        except Fault as fault:
            problems.append(f"{name}: {fault}")
    print(f"{count(removed, 'thing')} removed" if removed else "nothing was left behind")
    for problem in problems:
        print(f"{program()}: {visible(problem)}", file=sys.stderr)
    if problems:
        raise typer.Exit(3)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"no terminal to ask in: {program()} clean --yes")
    return input(question).strip().lower() in ("y", "yes")

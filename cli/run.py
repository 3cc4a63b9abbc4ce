"""`eval run TASKSET ...`, which is `eval TASKSET ...`: play the tasks, print the tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hotswap.cli._complete import complete as complete
from hotswap.cli._flags import parse


def main(words: Sequence[str]) -> int:
    """Play a taskset's tasks and print the tables. The default: `run` may be left out."""
    line = parse(words)
    if line.help:
        from hotswap.cli._help import run_help

        print(run_help(line))
        return 0
    from hotswap.settings import resolve

    resolved = resolve(line.given, line.files, os.environ, Path.cwd())
    if line.dry_run:
        from hotswap.cli._dry_run import show

        return show(resolved, line.json)
    from hotswap.cli._play import play

    return play(resolved, line)

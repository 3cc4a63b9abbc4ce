"""Runs that were written outside of the folder of runs, with `--output`: `.elsewhere` in it names them, one a line.

It is for finding them again. That it cannot be written is no trouble to a run, and what is gone is passed over.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from hotswap.errors import StoreError
from hotswap.lines import Lines, read_lines

FILE = ".elsewhere"


def note(runs: Path, run: Path) -> None:
    """Note where a run is, unless it stands in the folder of runs itself."""
    if run.resolve().parent == runs.resolve():
        return
    with contextlib.suppress(OSError, StoreError):
        runs.mkdir(parents=True, exist_ok=True)
        file = Lines(runs / FILE)
        try:
            file.append(json.dumps(str(run.resolve())).encode() + b"\n")
        finally:
            file.close()


def noted(runs: Path) -> list[Path]:
    """Get the folders that were noted and still exist, each once, the newest last."""
    found: dict[Path, None] = {}
    with contextlib.suppress(OSError):
        for line in read_lines(runs / FILE):
            with contextlib.suppress(ValueError, TypeError):
                path = Path(json.loads(line.content))
                found.pop(path, None)
                found[path] = None
    return [path for path in found if path.is_dir()]

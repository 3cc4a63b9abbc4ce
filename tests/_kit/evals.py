"""Whole evals, as a person starts them: the command as a process, in a folder of its own.

done = evaluate(tmp_path, "reverse_text", "-m", f"scripted@{provider.url}", "-n", "3")
assert done.code == 0
assert [trace["outcome"] for trace in done.traces] == ["scored"] * 3
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from _kit.check import check_trace
from hotswap.provision import cache_root

PROGRAM = Path(sys.executable).parent / "hotswap"
KIT = Path(__file__).parent
LIMIT_S = 240


@dataclass(frozen=True)
class Done:
    """An eval that has ended."""

    code: int
    stdout: str
    stderr: str
    run: Path
    """The newest run directory at its end."""

    @cached_property
    def traces(self) -> list[dict[str, Any]]:
        """The traces as JSON, in the order of their ends; each is checked against the schema."""
        lines = (self.run / "traces.jsonl").read_bytes().splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            check_trace(record)
        return records

    @property
    def metrics(self) -> Any:
        return json.loads((self.run / "metrics.json").read_text())


def environment(folder: Path, **more: str) -> dict[str, str]:
    """An environment without the settings and keys of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "SSL_CERT_FILE")}
    return {**kept, "HOME": str(folder), "HOTSWAP_CACHE": str(cache_root()), **more}


def begin(
    folder: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Start an eval, in a session of its own, with its outputs in pipes; `before` is a command that starts it."""
    return subprocess.Popen(
        [*before, PROGRAM, *words],
        cwd=folder,
        env=environment(folder, **(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], folder: Path) -> Done:
    """Wait for an eval's end."""
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    return Done(process.returncode, stdout, stderr, (folder / "runs" / "latest").resolve())


def evaluate(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """Run an eval to its end."""
    return finish(begin(folder, *words, env=env), folder)

"""Whose something is: a mark that says which process made it, and whether that process is still there.

    linux:3f1c...:4711:889213     the machine's boot, a process id, the time of that process's start

A process id alone is given out again; with the time of the start, and the boot that it is counted from, it is not.
Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path


@cache
def mark() -> str:
    """Get the mark of this process."""
    pid = os.getpid()
    return f"{sys.platform}:{_boot()}:{pid}:{_started(pid)}"


def lives(marked: str) -> bool | None:
    """Whether the process of a mark is still there; null where the mark is not of this machine, or is none."""
    parts = marked.strip().split(":")
    if len(parts) != 4 or parts[0] != sys.platform or not parts[2].isdecimal():
        return None
    _, boot, pid, started = parts
    if boot != _boot():
        # Another boot of this machine, or another machine that shares the folder: only the first is known to be over.
        return None
    return _started(int(pid)) == started


@cache
def _boot() -> str:
    """What tells this boot of this machine from all others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        said = subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False)
        return "".join(letter for letter in said.stdout if letter.isalnum()) or "unknown"


def _started(pid: int) -> str | None:
    """When a process was started, in the system's own words; null where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "surrogateescape")
    except OSError:
        return _started_elsewhere(pid) if sys.platform != "linux" else None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]


def _started_elsewhere(pid: int) -> str | None:
    said = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return "".join(letter for letter in said.stdout if letter.isalnum()) or None

"""What this process arranges for the case that it is killed: a warden that cleans up behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from hotswap.processes import warden
from hotswap.processes.kin import PR_SET_DUMPABLE, control, kin

_pipe: int | None = None
"""Our end of the warden's pipe; null while there is none."""


def guard() -> None:
    """Start the warden, and close this process to others: its memory holds the provider's keys.

    After this, not even a `kill -9` of this process leaves a started process running or an entrusted folder
    behind. Done once a process. Keys are kept from other processes of the same user on Linux alone; elsewhere
    that is up to the system.
    """
    global _pipe
    if _pipe is not None:
        return
    theirs, _pipe = os.pipe()
    try:
        _start_warden(theirs)
    finally:
        os.close(theirs)
    kin().report_group = lambda group, there: tell(f"{'>' if there else '<'}{group}")
    control(PR_SET_DUMPABLE, 0)


def entrust(folder: Path) -> None:
    """Have the folder removed, should this process be killed."""
    tell(f"+{folder}")


def release(folder: Path) -> None:
    """The folder is gone, or is to stay."""
    tell(f"-{folder}")


def tell(entry: str) -> None:
    """Send the warden one entry; without a warden nothing happens."""
    if _pipe is not None:
        with suppress(BrokenPipeError):  # someone killed the warden: what can be done is done without it
            os.write(_pipe, os.fsencode(entry) + b"\0")


def _start_warden(pipe: int) -> None:
    first, last = kin().marks
    libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", warden.__file__, str(first), str(last)],
        stdin=pipe,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=libraries,  # and nothing else: it would be readable there
    )
    kin().mark_by_pid[started.pid] = 0
    started.returncode = 0  # it outlives us: nobody will wait for it

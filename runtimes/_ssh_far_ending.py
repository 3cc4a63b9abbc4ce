# ruff: noqa: PTH208
"""Ending processes on the far machine: TERM, after a short grace KILL, until none is left. They are told by marks.

A mark is the soft value of a resource limit that nothing enforces; it is passed on over fork and exec.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator

from hotswap.processes.warden import mark_of, status_of

LIMITS = (10, getattr(resource, "RLIMIT_RTTIME", 15))
"""RLIMIT_LOCKS, and one more: the limits that may carry a mark."""
GRACE_S = 0.5
KILL_S = 5.0
"""After this long, what KILL has not ended is given up, and counted."""
QUIET_LOOKS = 2
"""So many looks in a row must find nothing."""
LOOKS = 50


def set_mark(mark: int) -> None:
    """Carry a mark from here on, on the first limit that takes it."""
    for limit in LIMITS:
        try:
            resource.setrlimit(limit, (mark, resource.getrlimit(limit)[1]))
        except (OSError, ValueError):
            continue
        return


def living(first: int, last: int) -> Iterator[int]:
    """The processes that carry a mark of a range and live, but for this one."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        mark = mark_of(int(name))
        if (
            mark is not None
            and first <= mark <= last
            and status_of(int(name))[:1] not in ([b"Z"], [b"X"], [])
        ):
            yield int(name)


class Ending:
    """All processes with a mark of a range, which are to end."""

    def __init__(self, first: int, last: int) -> None:
        self._range = (first, last)
        self._kill_at = time.monotonic() + GRACE_S
        self._quiet = 0
        for number in (signal.SIGTERM, signal.SIGCONT):  # one that is stopped would not hear the first
            for pid in living(first, last):
                _send(pid, number)

    def step(self) -> int | None:
        """Go on; get how many are left once it is over."""
        left = list(living(*self._range))
        now = time.monotonic()
        self._quiet = 0 if left else self._quiet + 1
        if self._quiet >= QUIET_LOOKS or now > self._kill_at + KILL_S:
            return len(left)
        if left and now > self._kill_at:
            self._kill()
        return None

    def _kill(self) -> None:
        """Kill them, stopped first, so that none can multiply."""
        seen: set[int] = set()
        for _ in range(LOOKS):
            found = set(living(*self._range))
            for pid in found - seen:
                _send(pid, signal.SIGSTOP)
            if found <= seen:
                break
            seen |= found
        for pid in found:
            _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    """Send a signal to a process and its group, which holds nobody else: every command leads a session."""
    try:
        group = os.getpgid(pid)
        if group not in (0, 1, os.getpgrp()):
            os.killpg(group, number)
    except OSError:
        pass  # gone, or not ours to signal
    try:
        os.kill(pid, number)
    except OSError:
        return

"""Which processes came of which start.

On Linux two facts hold them together, whatever a program does. This process is made the *subreaper* of its
descendants: one whose parent dies becomes our own child, so that all that live are found by walking down
from us. And each start has a *mark*, the soft value of a limit that nothing enforces: it is passed on
over fork, exec, setsid and `env -i`, and says of a process without a known parent what it came of.

Elsewhere (macOS) the table of processes is read, and membership goes by descent and by process group.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

from hotswap.processes.warden import MARK_BASE, mark_of, status_of

PR_SET_CHILD_SUBREAPER = 36
PR_SET_DUMPABLE = 4
RLIMIT_LOCKS = 10
"""Linux's number of a limit that no kernel since 2.4.25 enforces."""
COUNTER_BITS = 24
YOUNGEST = 16
"""Where most of so many children are orphans of one family, it multiplies."""
REAPED_AT_ONCE = 500
"""So many dead orphans are let go while others are to be found, which must not take long."""

Visit = Callable[[int], None]


@dataclass(frozen=True)
class Row:
    """One process, as a table of processes shows it."""

    pid: int
    parent: int
    group: int
    """Its process group (`ps`) or its session (/proc): every process that we start leads both."""
    zombie: bool = False


Table = Callable[[], list[Row]]


class Kin:
    """The processes that this one has started, and all that came of them. One a process: `kin()`.

    With a `table` it looks there and not among its descendants; it can do without marks.
    """

    def __init__(self, table: Table | None = None, *, marks: bool = True) -> None:
        self.mark_by_pid: dict[int, int] = {}
        """Our own children that have not been waited for; mark 0 for one that is never ended."""
        self._mark_by_group: dict[int, int] = {}
        """Used where processes cannot be marked."""
        self.report_group: Callable[[int, bool], None] = _unreported
        """Called when such a group comes and goes."""
        self._base = MARK_BASE | int.from_bytes(os.urandom(8), "big") >> 2 & ~((1 << COUNTER_BITS) - 1)
        self._count = 0
        self._limit = _markable(self._base) if marks else None
        self._table = table
        if table is None and not (self._is_subreaper() and os.access(_children_file(), os.R_OK)):
            self._table = proc_table if status_of(os.getpid()) else ps_table

    @property
    def marks(self) -> tuple[int, int]:
        """The first and last mark that this process may give."""
        return self._base, self._base + (1 << COUNTER_BITS) - 1

    @staticmethod
    def _is_subreaper() -> bool:
        return control(PR_SET_CHILD_SUBREAPER, 1)

    def next_mark(self) -> int:
        """A mark for one start."""
        self._count = (self._count + 1) % (1 << COUNTER_BITS)
        return self._base + self._count

    @contextmanager
    def marking(self, mark: int) -> Iterator[None]:
        """What is started inside is born with the mark. No other thread may start anything meanwhile."""
        if self._limit is None:
            yield
            return
        soft, hard = resource.getrlimit(self._limit)
        resource.setrlimit(self._limit, (mark, hard))
        try:
            yield
        finally:
            resource.setrlimit(self._limit, (soft, hard))

    def add(self, pid: int, mark: int) -> None:
        """Remember a child that was just started, the leader of its own session."""
        self.mark_by_pid[pid] = mark
        if self._limit is None:
            self._mark_by_group[pid] = mark
            self.report_group(pid, True)

    def remove(self, pid: int) -> None:
        """Forget a child that was waited for. Its group is remembered as long as anyone is in it."""
        self.mark_by_pid.pop(pid, None)
        if pid in self._mark_by_group:
            with suppress(PermissionError):
                try:
                    os.killpg(pid, 0)
                except ProcessLookupError:
                    self._forget_group(pid)

    def forget(self, marks: Collection[int]) -> None:
        """All processes of these marks are gone."""
        for group in [group for group, mark in self._mark_by_group.items() if mark in marks]:
            self._forget_group(group)

    def _forget_group(self, group: int) -> None:
        del self._mark_by_group[group]
        self.report_group(group, False)

    def find(self, marks: Collection[int], visit: Visit | None = None) -> list[int]:
        """Get all living processes of these marks, parents before their children.

        Each is visited before its children are looked up. Orphans that have died are waited for on the way.
        """
        if self._table is not None:
            return self._find_in(self._table(), marks, visit)
        found = self._find_by_descent(marks, visit)
        if not found and threading.active_count() > 1:
            # /proc may leave a child out while another thread waits for one: look again
            found = self._find_by_descent(marks, visit)
        return found

    def multiply(self, marks: Collection[int]) -> bool:
        """Whether most of our youngest children are orphans of these marks, dead or alive."""
        if self._table is not None:
            return False
        youngest = _numbers(read_all(_children_file()))[-YOUNGEST:]
        orphans = sum(pid not in self.mark_by_pid and self._mark_of(pid) in marks for pid in youngest)
        return 2 * orphans > YOUNGEST

    def groups(self, marks: Collection[int]) -> set[int]:
        """Get the process groups of our children of these marks, the dead included: by its dead forebears, a process
        is found that is replaced by a child of its own faster than we can look. A look in one step, without walking.

        Every start leads a session of its own, so that its groups hold nobody else.
        """
        if self._table is None:
            member_by_group = {_group_of(child): child for child in _numbers(read_all(_children_file()))}
            found = {group for group, child in member_by_group.items() if self._mark_of(child) in marks}
        else:
            found = {_group_of(pid) for pid in self.find(marks)}
        return found - {0, os.getpgrp()}

    def reap(self) -> None:
        """Wait for orphans of ours that have died: left alone, each keeps a process id."""
        if sys.platform == "linux":  # elsewhere orphans go to the system
            self._let_go(child for child in _numbers(read_all(_children_file())) if _is_zombie(child))

    def _find_by_descent(self, marks: Collection[int], visit: Visit | None) -> list[int]:
        found: list[int] = []
        dead: list[int] = []
        # The youngest first: of processes that replace themselves all the time, only those are still alive.
        for child in reversed(_numbers(read_all(_children_file()))):
            if _is_zombie(child):
                dead.append(child)
                continue
            pending = [child] if self._mark_of(child) in marks else []
            while pending:
                pid = pending.pop()
                found.append(pid)
                if visit:
                    visit(pid)
                pending += children_of(pid)
        self._let_go(dead[:REAPED_AT_ONCE])
        return found

    def _let_go(self, zombies: Iterable[int]) -> None:
        """Wait for those that are orphans of ours. Others have someone here who waits for them."""
        for pid in zombies:
            if pid not in self.mark_by_pid and self._mark_of(pid) is not None:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _mark_of(self, child: int) -> int | None:
        known = self.mark_by_pid.get(child)
        return self._mark_of_orphan(child) if known is None else known

    def _mark_of_orphan(self, pid: int) -> int | None:
        mark = mark_of(pid)
        if mark is not None and self._base <= mark <= self.marks[1]:
            return mark
        if not self._mark_by_group:
            return None
        return self._mark_by_group.get(int((status_of(pid) or [b"0"] * 4)[3]))

    def _find_in(self, rows: Collection[Row], marks: Collection[int], visit: Visit | None) -> list[int]:
        self._let_go(row.pid for row in rows if row.zombie and row.parent == os.getpid())
        alive = [row for row in rows if not row.zombie]
        found = with_descendants({row.pid for row in alive if self._is_of(row, marks)}, alive)
        for pid in found:
            if visit:
                visit(pid)
        return found

    def _is_of(self, row: Row, marks: Collection[int]) -> bool:
        if row.pid in self.mark_by_pid or row.group in self._mark_by_group:
            return self.mark_by_pid.get(row.pid, self._mark_by_group.get(row.group)) in marks
        return self._limit is not None and mark_of(row.pid) in marks


def _unreported(_group: int, _there: bool) -> None:
    """Nobody asked."""


@cache
def kin() -> Kin:
    """The one record of what this process has started; made at the first start."""
    return Kin()


def control(option: int, value: int) -> bool:
    """Call Linux's prctl; False where it cannot be done."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _markable(mark: int) -> int | None:
    """Get the limit that can carry marks, tried out; None where none can."""
    if sys.platform != "linux":
        return None
    for limit in (RLIMIT_LOCKS, resource.RLIMIT_RTTIME):
        try:
            soft, hard = resource.getrlimit(limit)
            resource.setrlimit(limit, (mark, hard))
        except (OSError, ValueError):
            continue  # the person's own hard limit is lower, or this kernel does not know it
        carried = mark_of(os.getpid()) == mark
        resource.setrlimit(limit, (soft, hard))
        if carried:
            return limit
    return None


def children_of(pid: int) -> list[int]:
    """Get the children of a process, those that its other threads started included."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            found += _numbers(read_all(f"/proc/{pid}/task/{thread}/children"))
    return found


def _children_file() -> str:
    # The kernel gives orphans to the main thread, and what other threads of ours start is in `mark_by_pid`.
    return f"/proc/self/task/{os.getpid()}/children"


def read_all(path: str) -> bytes:
    """Get a whole file of /proc, however long; nothing where its process is gone."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall()
    except OSError:
        return b""


def _numbers(text: bytes) -> list[int]:
    return [int(word) for word in text.split()]


def _group_of(pid: int) -> int:
    """The process group of a process, a dead one included; 0 where it is gone."""
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return 0


def _is_zombie(child: int) -> bool:
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def proc_table() -> list[Row]:
    """All processes, as /proc shows them."""
    names = os.listdir("/proc")  # noqa: PTH208
    return [row for name in names if name.isdigit() and (row := _row(int(name)))]


def ps_table() -> list[Row]:
    """All processes, as `ps` shows them."""
    command = ("ps", "-axo", "pid=,ppid=,pgid=,stat=")
    listed = subprocess.run(command, capture_output=True, check=True, env={"PATH": os.defpath, "LC_ALL": "C"})
    return parse_ps(listed.stdout.decode())


def _row(pid: int) -> Row | None:
    status = status_of(pid)
    return Row(pid, int(status[1]), int(status[3]), status[0] in b"ZX") if len(status) > 3 else None


def parse_ps(text: str) -> list[Row]:
    """Read what `ps -axo pid=,ppid=,pgid=,stat=` printed."""
    rows = []
    for line in text.splitlines():
        pid, parent, group, state = line.split()
        rows.append(Row(int(pid), int(parent), int(group), state.startswith("Z")))
    return rows


def with_descendants(roots: Collection[int], rows: Iterable[Row]) -> list[int]:
    """Get the roots and everything below them, parents before their children, each once."""
    children: dict[int, list[int]] = {}
    inner: set[int] = set()
    for row in rows:
        children.setdefault(row.parent, []).append(row.pid)
        if row.parent in roots:
            inner.add(row.pid)
    found: dict[int, None] = {}
    pending = [root for root in roots if root not in inner]
    while pending:
        pid = pending.pop()
        found[pid] = None
        pending += children.get(pid, [])
    return list(found)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone, or not ours to end."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group at one stroke: none of it slips away by a fork meanwhile."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

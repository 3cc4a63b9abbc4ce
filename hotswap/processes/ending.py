"""Ending processes and all that came of them, for certain and in bounded time."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Collection, Coroutine, Iterator
from typing import TypeVar

from hotswap.processes.kin import kin, send, send_group
from hotswap.processes.warden import LOOKS

T = TypeVar("T")

GRACE_S = 0.5
"""Between TERM and KILL."""
KILL_S = 5.0
"""After this long, what KILL has not ended (another user's process, one stuck in the kernel) is given up."""
LONGEST_NAP_S = 0.05
QUIET_LOOKS = 5
"""So many looks in a row must find nothing: a process that is replaced by a child of its own, between two looks at
the one's parent and the other's, is missed by a single one."""
QUIET_NAP_S = 0.001


async def end_all(marks: Collection[int]) -> list[int]:
    """End all processes of these marks; get those that could not be ended. Carried through when cancelled.

    Those that multiply are not asked to go and waited for: each process more slows down every further look.
    """
    if kin().multiply(marks):
        _kill(kin().groups(marks))
    elif not any(kin().find(marks) for _ in range(2)):
        return []
    return await carry_through(_end_all(marks))


async def carry_through(work: Coroutine[object, object, T]) -> T:
    """Await clean-up to its end, even when the caller is cancelled meanwhile; then pass the cancellation on.

    The work must be bounded in time. Only the end of the event loop itself cuts it short.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:
            if cancelled is None:
                raise
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()


async def _end_all(marks: Collection[int]) -> list[int]:
    try:
        for nap_s in _ending(marks):
            await asyncio.sleep(nap_s)
    except asyncio.CancelledError:
        for nap_s in _killing(marks):
            time.sleep(nap_s)  # noqa: ASYNC251 (the event loop is going away: nothing else is waiting)
        raise
    return kin().find(marks)


def _ending(marks: Collection[int]) -> Iterator[float]:
    """Ask, wait, then kill; yields how long to sleep before going on."""
    asked = kin().find(marks)
    for pid in asked:
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)  # one that is stopped would not hear it
    deadline = time.monotonic() + GRACE_S
    for nap_s in _naps():
        left = kin().find(marks)
        if not left or kin().multiply(marks) or time.monotonic() > deadline:
            break
        yield nap_s
    yield from _killing(marks)


def _kill(groups: Collection[int]) -> None:
    for group in groups:
        send_group(group, signal.SIGKILL)


def _killing(marks: Collection[int]) -> Iterator[float]:
    deadline, quiet = time.monotonic() + KILL_S, 0
    for nap_s in _naps():
        _kill(kin().groups(marks))
        living = _frozen(marks)
        for pid in living:
            send(pid, signal.SIGKILL)
        quiet = 0 if living else quiet + 1
        if quiet == QUIET_LOOKS or time.monotonic() > deadline:
            return
        yield nap_s if living else QUIET_NAP_S


def _frozen(marks: Collection[int]) -> list[int]:
    """Stop all processes of these marks and get them: when no new one turns up, none can multiply."""
    seen: set[int] = set()
    for _ in range(LOOKS):
        living = kin().find(marks, visit=lambda pid: send(pid, signal.SIGSTOP))
        if seen.issuperset(living):
            break
        seen.update(living)
    return living


def _naps() -> Iterator[float]:
    nap_s = 0.001
    while True:
        yield nap_s
        nap_s = min(2 * nap_s, LONGEST_NAP_S)

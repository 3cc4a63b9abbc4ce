"""A family: all processes that come from one place, started cheaply and ended together."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from hotswap.contracts.runtime import OUTPUT_LIMIT
from hotswap.errors import Fault
from hotswap.processes.ending import end_all
from hotswap.processes.kin import kin
from hotswap.processes.running import Order, Running, unstarted

NOT_EXECUTABLE, NOT_FOUND = 126, 127
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Family:
    """All processes that come from one place: a box, a server, a worker."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._marks: set[int] = set()
        self._unfinished: set[Running] = set()

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: bytes | None = None,
        output_limit: int = OUTPUT_LIMIT,
        timeout_s: float | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Running:
        """Start a process in a session of its own, with this environment and no other.

        A program that is not there exits with 127, one that cannot be executed with 126, and the reason is on
        its stderr. Raises Fault (runtime) where this machine has no room for another process.
        """
        order = Order(tuple(argv), env, cwd, stdin, tuple(pass_fds))
        try:
            running = Running.start(order, output_limit, timeout_s)
        except (OSError, ValueError) as error:
            return unstarted(*self._refusal(order, error))
        self._unfinished = {other for other in self._unfinished if not other.closed} | {running}
        self._marks.add(running.mark)
        return running

    async def end(self) -> None:
        """End all processes that were started here and all that came of them: TERM, after a short grace KILL.

        Bounded in time, and carried through when the caller is cancelled. More may be started afterwards.
        Raises Fault (runtime) where something could not be ended, such as a process of another user.
        """
        marks, unfinished = self._marks, self._unfinished
        self._marks, self._unfinished = set(), set()
        for running in unfinished:
            running.is_ended_by("us")
        left = await end_all(marks) if marks else []
        for running in unfinished:
            await running.finish(left)
        if left:
            raise Fault("runtime", "box", "processes_left", f"{self.label}: could not end {_names(left)}")
        kin().forget(marks)

    def _refusal(self, order: Order, error: OSError | ValueError) -> tuple[int, str]:
        """The exit code and the words of a shell for a program that cannot be executed."""
        program = order.argv[0] if order.argv else ""
        if isinstance(error, ValueError):
            return NOT_EXECUTABLE, f"{program}: {error}"
        if error.errno in NO_ROOM:
            message = f"{self.label}: could not start {program}: {error.strerror}"
            raise Fault("runtime", "box", "no_room", message) from error
        if order.cwd is not None and error.filename == order.cwd:
            return NOT_EXECUTABLE, f"cannot enter the folder {order.cwd}: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            missing = "its interpreter is not there" if os.path.lexists(program) else "not found"
            return NOT_FOUND, f"{program}: {missing}"
        return NOT_EXECUTABLE, f"{program}: {error.strerror}"


def _names(pids: Sequence[int]) -> str:
    return ", ".join(f"process {pid}" for pid in pids)

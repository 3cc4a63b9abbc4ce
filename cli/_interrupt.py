"""What Ctrl-C does: the first ends the run in order, the second at once, the third without asking anybody.

1st, or SIGTERM   programs are ended, their traces are written as interrupted, tables are written
2nd               everything is cancelled: boxes and programs go, tables are written from what there is
3rd               the process ends; the warden ends the programs and removes the boxes

SIGHUP, which says that the terminal is gone, is a first one however often it comes. When the rollouts are done, only
the third is obeyed: what is left is short, and is the tables.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from hotswap.limits import WindDown

INTERRUPTED = 130


class Interrupts:
    """Hears signals while a run is played, and until its tables are printed; a context manager."""

    def __init__(self, winding_down: WindDown, say: Callable[[str], None]) -> None:
        self._winding_down = winding_down
        self._say = say
        self._count = 0
        self._terminals = [fd for fd in (1, 2) if os.isatty(fd)]
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.getsignal(number) for number in numbers}
        if self._before[signal.SIGHUP] is signal.SIG_IGN:  # as under nohup
            del self._before[signal.SIGHUP]

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def ending_the_run(self) -> Iterator[None]:
        """Let them end what the current asyncio task does in the block. Afterwards the tables are printed in peace."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in self._before:
            loop.add_signal_handler(number, self._interrupt, number, task)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
            for number in self._before:
                loop.remove_signal_handler(number)
                signal.signal(number, self._hear_late)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)

    def _interrupt(self, number: signal.Signals, task: asyncio.Task[object]) -> None:
        first = self._counted(number)
        phase = self._winding_down.phase
        if phase == "concluding":
            self._say("the rollouts are done: writing the tables")
        elif phase == "playing" and first:
            self._say("interrupted: ending what is running; once more to stop at once")
            self._winding_down.begin("interrupted")
        elif first or number != signal.SIGHUP:
            self._winding_down.begin("interrupted")
            task.cancel()

    def _hear_late(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._counted(signal.Signals(number))

    def _counted(self, number: signal.Signals) -> bool:
        """Count a signal, and end the process at the third. Get whether it is the first."""
        if number == signal.SIGHUP:
            self._let_the_terminal_go()
        first = self._count == 0
        if first or number != signal.SIGHUP:
            self._count += 1
        if self._count > 2:
            os._exit(INTERRUPTED)
        return first

    def _let_the_terminal_go(self) -> None:
        """Lead what is still said nowhere: to write to a terminal that is gone is an error."""
        for fd in self._terminals:
            if not os.isatty(fd):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, fd)
                os.close(nowhere)

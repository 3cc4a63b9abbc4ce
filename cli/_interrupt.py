"""What Ctrl-C does: the first ends the run in order, the second at once, the third without asking anybody.

1st, or SIGTERM   programs are ended, their traces are written as interrupted, tables are written
2nd               everything is cancelled: boxes and programs go, tables are written from what there is
3rd               the process ends; the warden ends the programs and removes the boxes
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hotswap.limits import WindDown

INTERRUPTED = 130


@contextmanager
def interruptible(winding_down: WindDown, say: Callable[[str], None]) -> Iterator[None]:
    """Handle signals for as long as the block runs, which is the whole of the current asyncio task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    count = 0

    def interrupt() -> None:
        nonlocal count
        count += 1
        if count == 1 and winding_down.phase == "playing":
            say("interrupted: ending what is running; once more to stop at once")
            winding_down.begin("interrupted")
        elif count == 1 and winding_down.phase == "concluding":
            say("the rollouts are done: writing the tables")
        elif count <= 2:
            winding_down.begin("interrupted")
            task.cancel()
        else:
            os._exit(INTERRUPTED)

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)

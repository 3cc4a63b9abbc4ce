"""A small event loop for the far programs: descriptors and what is to be done when they are ready."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

READ, WRITE = select.POLLIN, select.POLLOUT


class Loop:
    """Waits for descriptors, and calls what was asked for."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(self, descriptor: int, events: int, handler: Callable[[], None]) -> None:
        """Have `handler` called whenever a descriptor is ready, or hung up."""
        self._poll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def drop(self, descriptor: int) -> None:
        """Wait for it no more."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def turn(self, timeout_ms: float | None = None) -> None:
        """Wait once, and call the handlers of all that are ready."""
        for descriptor, _ in self._poll.poll(timeout_ms):
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler()


class Outbox:
    """What waits to be written to a descriptor that must not hold up the loop."""

    def __init__(self, loop: Loop, descriptor: int, readable: Callable[[], None]) -> None:
        self._loop, self._descriptor, self._readable = loop, descriptor, readable
        self._left = bytearray()
        os.set_blocking(descriptor, False)
        loop.watch(descriptor, READ, readable)

    def __len__(self) -> int:
        return len(self._left)

    def add(self, data: bytes) -> None:
        """Write as much as can be written now, and the rest as soon as it can."""
        self._left += data
        self._push()

    def _push(self) -> None:
        try:
            while self._left:
                del self._left[: os.write(self._descriptor, memoryview(self._left)[: 1 << 20])]
        except BlockingIOError:
            self._loop.watch(self._descriptor, READ | WRITE, self._ready)
            return
        except OSError:
            self._left.clear()  # nobody is there any more, which its reader finds out
        self._loop.watch(self._descriptor, READ, self._readable)

    def _ready(self) -> None:
        self._push()
        self._readable()

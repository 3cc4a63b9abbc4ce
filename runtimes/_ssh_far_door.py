"""The proxy's door in a closed box on the far machine: what connects there is carried to the port that leads to it."""

from __future__ import annotations

import socket
from contextlib import suppress

from hotswap.runtimes._ssh_far_loop import READ, WRITE, Loop

PIECE, AHEAD = 1 << 16, 1 << 18
"""Bytes that are read at once, and that wait for the other side before no more is read."""


class Pair:
    """A connection from the box, and the one that it is joined to."""

    def __init__(self, loop: Loop, one: socket.socket, other: socket.socket) -> None:
        self._loop = loop
        self._ways = ((one, other), (other, one))
        self._waiting = {one: bytearray(), other: bytearray()}
        """What was read from each."""
        self._open = {one: True, other: True}
        self.closed = False
        for each in (one, other):
            each.setblocking(False)
        self._watch()

    def step(self) -> None:
        """Carry over what can be."""
        try:
            for source, sink in self._ways:
                self._carry(source, sink)
        except OSError:
            self.close()
        if not self.closed:
            self._watch()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        waiting = self._waiting[source]
        if self._open[source] and len(waiting) < AHEAD:
            with suppress(BlockingIOError):
                data = source.recv(PIECE)
                waiting += data
                self._open[source] = bool(data)
        if waiting:
            with suppress(BlockingIOError):
                del waiting[: sink.send(waiting)]
        if not waiting and not self._open[source]:
            sink.shutdown(socket.SHUT_WR)

    def _watch(self) -> None:
        busy = False
        for source, sink in self._ways:
            events = READ if self._open[source] and len(self._waiting[source]) < AHEAD else 0
            events |= WRITE if self._waiting[sink] else 0
            busy = busy or bool(events)
            if events:
                self._loop.watch(source.fileno(), events, self.step)
            else:
                self._loop.drop(source.fileno())
        if not busy:
            self.close()

    def close(self) -> None:
        """End both connections."""
        if not self.closed:
            self.closed = True
            for each, _ in self._ways:
                self._loop.drop(each.fileno())
                each.close()


class Door:
    """A socket that listens in a box, and all that has come in by it."""

    def __init__(self, loop: Loop, listener: socket.socket, port: int) -> None:
        self._loop, self._listener, self._port = loop, listener, port
        self._pairs: list[Pair] = []
        self.inside: int = listener.getsockname()[1]
        """Its port on the box's own loopback."""
        listener.setblocking(False)
        loop.watch(listener.fileno(), READ, self._accept)

    def _accept(self) -> None:
        try:
            come, _ = self._listener.accept()
        except OSError:
            return
        try:
            joined = socket.create_connection(("127.0.0.1", self._port), timeout=5)
        except OSError:
            come.close()
            return
        self._pairs = [pair for pair in self._pairs if not pair.closed]
        self._pairs.append(Pair(self._loop, come, joined))

    def close(self) -> None:
        """Let nobody in any more."""
        self._loop.drop(self._listener.fileno())
        self._listener.close()
        for pair in self._pairs:
            pair.close()

"""The pipes of a process, read and written by the event loop: constant memory, whatever a program writes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import AsyncIterator

from hotswap.contracts.runtime import Output

CHUNK = 1 << 16
AHEAD = 1 << 20
"""Bytes that wait for the reader of a live stream before reading pauses."""


class Kept:
    """The beginning and the end of what was written to one stream."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._size += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    def output(self) -> Output:
        """What was kept so far."""
        surplus = max(0, len(self._tail) - self._tail_limit)
        return Output(bytes(self._head), bytes(self._tail[surplus:]), self._size)


class Intake:
    """Our end of a pipe that a process writes to."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._kept = Kept(limit)
        self._waiting: deque[bytes] | None = None
        self._ahead = 0
        self._news = asyncio.Event()
        self._settled = False
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    @property
    def output(self) -> Output:
        return self._kept.output()

    @property
    def closed(self) -> bool:
        return self._descriptor is None

    def settle(self) -> None:
        """The process has ended: take what it wrote, and no more.

        A child of it may still hold the other end, and go on writing without harm until the pipe is closed:
        that is read and thrown away.
        """
        if self._descriptor is not None:
            left = _readable_bytes(self._descriptor)
            while left > 0 and (data := self._read(left)):
                self._take(data)
                left -= len(data)
        self._settled = True
        self._news.set()
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._readable)  # it may have paused for its reader
            self._readable()

    def close(self) -> None:
        """Let go of the pipe."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._news.set()

    async def stream(self) -> AsyncIterator[bytes]:
        """Iterate over what comes, from its beginning to its end. A slow reader makes the process pause."""
        if self._waiting is not None:
            raise RuntimeError("this output has a reader already")
        self._waiting = deque([bytes(self.output)])
        self._ahead = len(self._waiting[0])
        try:
            while True:
                while self._waiting:
                    data = self._waiting.popleft()
                    self._ahead -= len(data)
                    if data:
                        yield data
                if self._settled or self._descriptor is None:
                    return
                self._resume()
                self._news.clear()
                await self._news.wait()
        finally:
            self._waiting = None
            self._resume()

    def _readable(self) -> None:
        data = self._read(CHUNK)
        if data and not self._settled:
            self._take(data)

    def _read(self, most: int) -> bytes | None:
        """Get up to `most` bytes, None where there are none now; at the end of file the pipe is closed."""
        if self._descriptor is None:
            return None
        try:
            data = os.read(self._descriptor, min(most, 1 << 20))
        except BlockingIOError:
            return None
        if not data:
            self.close()
        return data

    def _take(self, data: bytes) -> None:
        self._kept.add(data)
        if self._waiting is not None:
            self._waiting.append(data)
            self._ahead += len(data)
            self._news.set()
            if self._descriptor is not None and self._ahead > AHEAD:
                self._loop.remove_reader(self._descriptor)

    def _resume(self) -> None:
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._readable)


def _readable_bytes(descriptor: int) -> int:
    counted: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0]
    return counted


class Feed:
    """Our end of a pipe that a process reads from. What it does not read before it ends is dropped."""

    def __init__(self, descriptor: int, data: bytes, *, keep_open: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = descriptor
        self._left = memoryview(data)
        self._keep_open = keep_open
        self._turn = asyncio.Lock()
        self._written = asyncio.Event()
        os.set_blocking(descriptor, False)
        self._push()

    async def send(self, data: bytes | None) -> None:
        """Hand the process more bytes, and return when the pipe has taken them; None closes it."""
        async with self._turn:
            self._left = memoryview(bytes(self._left) + (data or b""))
            self._keep_open = data is not None
            self._push()
            await self._written.wait()

    def close(self) -> None:
        """Let go of the pipe."""
        self._left = memoryview(b"")
        self._written.set()
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _push(self) -> None:
        if self._descriptor is None:
            self._written.set()
            return
        try:
            while self._left:
                self._left = self._left[os.write(self._descriptor, self._left) :]
        except BlockingIOError:
            self._written.clear()
            self._loop.add_writer(self._descriptor, self._push)
            return
        except BrokenPipeError:
            self.close()
            return
        if not self._keep_open:
            self.close()
            return
        self._loop.remove_writer(self._descriptor)
        self._written.set()

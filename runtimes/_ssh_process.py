"""A process on the far machine, seen from here."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal

from hotswap.contracts.runtime import Command, Process, Result
from hotswap.errors import Fault
from hotswap.processes import carry_through
from hotswap.processes.pipes import Kept
from hotswap.runtimes._ssh_frames import CHUNK, STDERR, STDIN, STDOUT, TAKEN, WINDOW

End = Callable[["FarProcess"], Coroutine[Any, Any, int]]
"""Ends what came of a process; the number of those that are left."""
Say = Callable[[bytes, int, bytes], None]
"""Sends a frame: its kind, the process's number, the payload."""


class FarProcess(Process):
    """A process that was started over the connection."""

    def __init__(self, number: int, command: Command, say: Say, end: End) -> None:
        self.number = number
        self._say, self._ask_end = say, end
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Result] = self._loop.create_future()
        self._ended_by: Literal["itself", "timeout", "us"] = "itself"
        self._ending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._kept = {kind: Kept(command.output_limit) for kind in (STDOUT, STDERR)}
        self._owed = {STDOUT: 0, STDERR: 0}
        self._live: deque[bytes] | None = None
        self._news = asyncio.Event()
        self._open_stdin = command.stdin is not None
        self._room = WINDOW
        self._has_room = asyncio.Event()
        self._turn = asyncio.Lock()
        self._feeding: asyncio.Task[None] | None = None
        self._began = time.monotonic()

    def begin(self, command: Command) -> None:
        """It has started: hand it its input, and count its time."""
        if command.timeout_s is not None:
            self._timer = self._loop.call_later(command.timeout_s, self._run_out)
        if command.stdin:
            self._feeding = self._loop.create_task(self._send_all(command.stdin, last=True))

    @property
    def over(self) -> bool:
        """Whether the process itself has ended."""
        return self._over.done()

    async def wait(self) -> Result:
        result = await asyncio.shield(self._over)
        if self._ending is not None:
            await asyncio.shield(self._ending)
        return result

    async def end(self) -> None:
        await self._end("us")

    async def output(self) -> AsyncIterator[bytes]:
        if self._live is not None:
            raise RuntimeError("this output has a reader already")
        self._live = deque([bytes(self._kept[STDOUT].output())])
        try:
            while True:
                while self._live:
                    data = self._live.popleft()
                    if data:
                        yield data
                if self.over:
                    return
                self._pay(STDOUT)
                self._news.clear()
                await self._news.wait()
        finally:
            self._live = None
            self._pay(STDOUT)

    async def send(self, data: bytes | None) -> None:
        if not self._open_stdin:
            raise ValueError('send() takes a process that was started with stdin=b""')
        await self._send_all(data or b"", last=data is None)

    # what the connection tells

    def wrote(self, kind: bytes, data: bytes) -> None:
        """It wrote something. A slow reader of a live stream makes it pause: then nothing is paid back."""
        self._kept[kind].add(data)
        self._owed[kind] += len(data)
        if kind == STDOUT and self._live is not None:
            self._live.append(data)
            self._news.set()
        elif self._owed[kind] >= WINDOW // 2:
            self._pay(kind)

    def took(self, count: int) -> None:
        """It took so much of its input."""
        self._room += count
        self._has_room.set()

    def exited(self, code: int) -> None:
        """It has ended: by itself, or where the code is negative by that signal."""
        self._settle(code if code >= 0 else None, -code if code < 0 else None)

    def lost(self, fault: Fault) -> None:
        """Its box is no more: whoever waits for it is told so."""
        if not self.over:
            self._let_go()
            self._over.set_exception(fault)
            self._over.exception()  # nobody need be waiting
            self._news.set()

    def is_ended_by(self, by: Literal["timeout", "us"]) -> None:
        """Note who is about to end it, unless it has ended."""
        if not self.over and self._ended_by == "itself":
            self._ended_by = by

    def give_up(self) -> None:
        """What can be ended has been, and would have been told by now: nobody is to wait any longer."""
        self._settle(None, None)

    def _settle(self, code: int | None, number: int | None) -> None:
        if self.over:
            return
        self._let_go()
        stdout, stderr = self._kept[STDOUT].output(), self._kept[STDERR].output()
        elapsed_s = time.monotonic() - self._began
        self._over.set_result(Result(code, number, stdout, stderr, elapsed_s, self._ended_by))
        self._news.set()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._has_room.set()

    def _run_out(self) -> None:
        self._ending = self._loop.create_task(self._end("timeout"))

    async def _end(self, by: Literal["timeout", "us"]) -> None:
        self.is_ended_by(by)
        try:
            await carry_through(self._ask_end(self))
        except Fault:
            return  # with its box, all that came of it has ended
        self.give_up()

    async def _send_all(self, data: bytes, *, last: bool) -> None:
        async with self._turn:
            left = memoryview(data)
            while left and not self.over:
                if self._room <= 0:
                    self._has_room.clear()
                    await self._has_room.wait()
                    continue
                piece = left[: min(CHUNK, self._room)]
                left = left[len(piece) :]
                self._room -= len(piece)
                self._say(STDIN, self.number, bytes(piece))
            if last and not self.over:
                self._say(STDIN, self.number, b"")

    def _pay(self, kind: bytes) -> None:
        """Say that so much of an output was taken, so that more may come."""
        if self._owed[kind] and not self.over:
            self._say(TAKEN, self.number, kind + b"%d" % self._owed[kind])
            self._owed[kind] = 0

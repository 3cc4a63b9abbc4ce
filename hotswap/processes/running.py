"""One started process: its pipes, its end, its result."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakSet

from hotswap.contracts.runtime import Output, Process, Result
from hotswap.processes.ending import end_all
from hotswap.processes.kin import kin
from hotswap.processes.pipes import Feed, Intake

REAP_S = 0.5
"""How often orphans that died are let go while processes run. A program can make thousands a second."""

_reaping: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


@dataclass(frozen=True)
class Order:
    """What is to be started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: bytes | None = None
    pass_fds: tuple[int, ...] = ()


@dataclass
class Pipes:
    """The descriptors of a start: those that the process gets, and ours at the other end."""

    theirs: list[int] = field(default_factory=list)
    ours: list[int] = field(default_factory=list)

    def open(self, *, outwards: bool) -> None:
        """Open one more pipe; `outwards` is away from us."""
        reading, writing = os.pipe()
        self.theirs.append(reading if outwards else writing)
        self.ours.append(writing if outwards else reading)

    @staticmethod
    def close(descriptors: list[int]) -> None:
        while descriptors:
            os.close(descriptors.pop())


class Running(Process):
    """A process that was started in a family. `pid` is null where its program could not be executed."""

    def __init__(self, result: Result | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Result] = self._loop.create_future()
        self._ended_by: Literal["itself", "timeout", "us"] = "itself"
        self._ending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._feed: Feed | None = None
        self._outputs: tuple[Intake, ...] = ()
        self._began = time.monotonic()
        self.pid: int | None = None
        self.mark = 0
        if result is not None:
            self._over.set_result(result)

    @classmethod
    def start(cls, order: Order, output_limit: int, timeout_s: float | None) -> Running:
        """Start the process. Raises OSError or ValueError where that cannot be done."""
        if not order.argv:
            raise ValueError("no program was named")
        running = cls()
        running.mark = kin().next_mark()
        pipes = Pipes()
        try:
            pipes.open(outwards=False)
            pipes.open(outwards=False)
            if order.stdin is not None:
                pipes.open(outwards=True)
            popen = _popen(order, running.mark, pipes)
        except BaseException:
            pipes.close(pipes.ours)
            raise
        finally:
            pipes.close(pipes.theirs)
        running._attend(popen, timeout_s)
        running._outputs = (Intake(pipes.ours[0], output_limit), Intake(pipes.ours[1], output_limit))
        if order.stdin is not None:
            running._feed = Feed(pipes.ours[2], order.stdin, keep_open=not order.stdin)
        return running

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
        if not self._outputs:
            return
        async for data in self._outputs[0].stream():
            yield data

    async def send(self, data: bytes | None) -> None:
        if self._feed is None:
            raise ValueError('send() takes a process that was started with stdin=b""')
        await self._feed.send(data)

    @property
    def closed(self) -> bool:
        """Whether it has ended, and nothing that came of it holds its outputs open."""
        return self.over and all(intake.closed for intake in self._outputs)

    def is_ended_by(self, by: Literal["timeout", "us"]) -> None:
        """Note who is about to end it, unless it has ended."""
        if not self.over and self._ended_by == "itself":
            self._ended_by = by

    async def finish(self, left: Collection[int]) -> None:
        """Get over with it, now that all but `left` have been ended."""
        if self.pid in left:
            self._settle(None, None)  # it cannot be ended by us: nobody is to wait for it
        await asyncio.shield(self._over)
        for intake in self._outputs:
            intake.close()

    def _attend(self, popen: subprocess.Popen[bytes], timeout_s: float | None) -> None:
        self.pid = popen.pid
        kin().add(popen.pid, self.mark)
        watch_exit(popen, lambda: self._exited(popen))
        keep_reaping(self._loop)
        if timeout_s is not None:
            self._timer = self._loop.call_later(timeout_s, self._run_out)

    def _exited(self, popen: subprocess.Popen[bytes]) -> None:
        code = popen.wait()
        kin().remove(popen.pid)
        self._settle(code if code >= 0 else None, -code if code < 0 else None)

    def _settle(self, code: int | None, number: int | None) -> None:
        if self._over.done():
            return
        self._let_go()
        stdout, stderr = (intake.output for intake in self._outputs)
        elapsed_s = time.monotonic() - self._began
        self._over.set_result(Result(code, number, stdout, stderr, elapsed_s, self._ended_by))

    def _let_go(self) -> None:
        """It has ended: take what it still wrote, and hand it nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        for intake in self._outputs:
            intake.settle()
        if self._feed is not None:
            self._feed.close()

    def _run_out(self) -> None:
        self._ending = self._loop.create_task(self._end("timeout"))

    async def _end(self, by: Literal["timeout", "us"]) -> None:
        if self.pid is not None:
            self.is_ended_by(by)
            await self.finish(await end_all((self.mark,)))


def unstarted(code: int, reason: str) -> Running:
    """Get what a shell leaves of a program that cannot be executed: a code, and the reason on stderr."""
    said = f"{reason}\n".encode(errors="backslashreplace")
    return Running(Result(code, None, Output(), Output(said, b"", len(said)), 0.0))


def _popen(order: Order, mark: int, pipes: Pipes) -> subprocess.Popen[bytes]:
    with kin().marking(mark):
        return subprocess.Popen(
            order.argv,
            stdout=pipes.theirs[0],
            stderr=pipes.theirs[1],
            stdin=pipes.theirs[2] if order.stdin is not None else subprocess.DEVNULL,
            env=order.env,
            cwd=order.cwd,
            pass_fds=order.pass_fds,
            start_new_session=True,
        )


def watch_exit(popen: subprocess.Popen[bytes], exited: Callable[[], None]) -> None:
    """Have `exited` called by the event loop once the process has ended."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(popen.pid)
    except (AttributeError, OSError):
        watch_exit_by_thread(popen, exited)
        return

    def readable() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        exited()

    loop.add_reader(descriptor, readable)


def watch_exit_by_thread(popen: subprocess.Popen[bytes], exited: Callable[[], None]) -> None:
    """The same where the system has no descriptors of processes."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        popen.wait()
        with suppress(RuntimeError):  # the event loop is gone, and with it who would want to know
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=wait, name=f"wait-{popen.pid}", daemon=True).start()


def keep_reaping(loop: asyncio.AbstractEventLoop) -> None:
    """Let orphans go that died, every so often, as long as processes of ours run."""

    def reap() -> None:
        kin().reap()
        if any(kin().mark_by_pid.values()):
            loop.call_later(REAP_S, reap)
        else:
            _reaping.discard(loop)

    if loop not in _reaping:
        _reaping.add(loop)
        loop.call_later(REAP_S, reap)

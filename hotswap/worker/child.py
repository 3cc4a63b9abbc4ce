"""The worker from inside: a taskset's own code, called from the eval process over a channel.

Three threads. The main thread runs plain functions, one at a time, since code that uses signals works only
there. One thread reads the channel. The third is an event loop for async functions, started when the first of
them is met.

A frame is four bytes of length and a JSON object, which says what it is by its keys:

    to the worker   {"id": 7, "op": "score", "taskset": {...}, "failed": {...}, "task": {...}, "trace": {...}}
                    {"id": 7, "op": "skip"}                           do not begin this call, if it still waits
    from it         {"hello": {"pid": 4711, "python": "3.12.1"}}      once
                    {"id": 7, "at": "right"}                          this scoring function, or op, starts now
                    {"id": 7, "ok": ...}
                    {"id": 7, "problems": ["..."], "detail": "..."}   the request cannot work

Every call says which taskset it means, with its settings, so that a worker that was started again can serve
it.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import os
import platform
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from hotswap import records
from hotswap.contracts.task import Task
from hotswap.contracts.taskset import ScoringMethod
from hotswap.errors import ErrorRecord, UsageError
from hotswap.registry import Entry
from hotswap.scoring import Sheet
from hotswap.trace import Trace
from hotswap.worker.tasks import Reading, explained, told
from hotswap.worker.tasksets import Opened, build, describe

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

LEAVE_S = 1.0
"""A worker whose eval is gone ends after this long, whatever its taskset is doing."""
TIME_IS_UP = signal.SIGXCPU
"""Sent by the eval process when the running function may be over its time limit."""

PR_CAPBSET_DROP = 24
READING_OTHERS = (16, 17, 19, 21, 38, 39, 40)
"""Linux's numbers of CAP_SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF and CHECKPOINT_RESTORE.
"""


class TimeLimit(BaseException):
    """The running function is over its time limit. No Exception, so that a scorer's `except Exception` lets
    it pass.
    """


class Channel:
    """The worker's end of the socket that leads to the eval process. A copy of the worker does not write."""

    def __init__(self, fd: int) -> None:
        self._owner = os.getpid()
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._writing = threading.Lock()

    def send(self, frame: Mapping[str, Any]) -> None:
        self.end_copy()
        body = json.dumps(frame, allow_nan=False, separators=(",", ":")).encode()
        with self._writing:
            self._socket.sendall(len(body).to_bytes(4, "big") + body)

    def end_copy(self, error: BaseException | None = None) -> None:
        """End this process where a taskset's function forked it and let it come back to us, as Python would end it."""
        if os.getpid() == self._owner:
            return
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        sys.stdout.flush()
        code = error.code if isinstance(error, SystemExit) else int(error is not None)
        os._exit(code if isinstance(code, int) else int(code is not None))

    def frames(self) -> Iterator[Any]:
        """Iterate over what the eval process sends, until it is gone."""
        with suppress(OSError), self._socket.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                yield json.loads(stream.read(int.from_bytes(head, "big")))


class Clock:
    """The time limit of the function that the main thread runs."""

    def __init__(self) -> None:
        self._ends: float | None = None
        signal.signal(TIME_IS_UP, self._ring)

    def start(self, limit_s: float) -> None:
        self._ends = time.monotonic() + limit_s

    def stop(self) -> None:
        self._ends = None

    def _ring(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._ends is not None and time.monotonic() >= self._ends:
            self._ends = None
            raise TimeLimit


class Loop:
    """An event loop in a thread of its own, for the async functions of all rollouts together."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(
        self, outcome: Awaitable[Any], limit_s: float, then: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Await `outcome` within a time limit, and hand what it gave, or raised, to `then`."""
        import asyncio  # a fifth of a worker's start: only where something is async

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="async scoring", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._settle(outcome, limit_s, then), self._loop)

    async def _settle(
        self, outcome: Awaitable[Any], limit_s: float, then: Callable[[Any, BaseException | None], None]
    ) -> None:
        import asyncio

        scope = asyncio.timeout(limit_s)
        try:
            async with scope:
                value = await outcome
        except BaseException as error:  # noqa: BLE001  (whatever an author's function raises is written down)
            self._channel.end_copy(error)
            then(None, TimeLimit().with_traceback(error.__traceback__) if scope.expired() else error)
        else:
            self._channel.end_copy()
            then(value, None)


@dataclass
class Rollout:
    """One rollout on its way through the scoring functions."""

    call: int
    given: Mapping[str, Any]
    """What a scoring function may ask for, by name."""
    failed: Mapping[str, Any]
    """Functions that ended the worker at this rollout before, with the error that this is."""
    sheet: Sheet
    rest: Iterator[ScoringMethod]


class Child:
    """Serves the eval process until it closes the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._steps: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._skipped: set[int] = set()
        """Calls that are not to begin."""
        self._opened: dict[int, Opened] = {}
        self._clock = Clock()
        self._loop = Loop(channel)

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="channel", daemon=True).start()
        self._channel.send({"hello": {"pid": os.getpid(), "python": platform.python_version()}})
        while (step := self._steps.get()) is not None:
            step()

    def _listen(self) -> None:
        for frame in self._channel.frames():
            if frame["op"] == "skip":
                self._skipped.add(frame["id"])
            else:
                self._steps.put(partial(self._answer, frame))
        self._steps.put(None)
        time.sleep(LEAVE_S)
        os._exit(1)  # still here: the main thread, or a thread that a taskset left, does not end

    def _answer(self, frame: Mapping[str, Any]) -> None:
        """Do what a call asks. Only scoring may still be under way when this returns."""
        call = frame["id"]
        try:
            if call in self._skipped:
                self._channel.send({"id": call, "ok": None})
            elif frame["op"] == "score":
                self._score(frame)
            else:
                self._channel.send({"id": call, "at": frame["op"]})
                self._channel.send({"id": call, "ok": self._do(frame)})
        except UsageError as error:
            self._channel.end_copy(error)
            detail = error.detail or told(error.__cause__)
            self._channel.send({"id": call, "problems": error.problems, "detail": detail})
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a taskset's code may raise anything)
            self._channel.end_copy(error)
            failure = explained(f"taskset {frame['taskset']['entry']['name']!r} failed", error)
            self._channel.send({"id": call, "problems": failure.problems, "detail": failure.detail})

    def _do(self, frame: Mapping[str, Any]) -> Any:
        entry = Entry(**frame["taskset"]["entry"])
        match frame["op"]:
            case "describe":
                return describe(entry)
            case "open":
                self._open(frame)
                return describe(entry)
            case "tasks":
                opened = self._open(frame)
                reading = opened.readings.setdefault(frame["reading"], Reading(opened.name, opened.taskset))
                batch = reading.batch(frame["start"], frame["count"])
                if batch["done"]:
                    del opened.readings[frame["reading"]]
                return batch
            case "leave":
                self._open(frame).readings.pop(frame["reading"], None)
                return None
            case "close":
                self._opened.pop(frame["taskset"]["key"], None)
                return None
            case unknown:
                raise ValueError(f"no operation {unknown!r}")

    def _open(self, frame: Mapping[str, Any]) -> Opened:
        """Get the taskset that a call means; it is built at its first call in this process."""
        taskset = frame["taskset"]
        key = taskset["key"]
        if key not in self._opened:
            self._channel.send({"id": frame["id"], "at": "open"})
            self._opened[key] = build(Entry(**taskset["entry"]), taskset["settings"])
        return self._opened[key]

    def _score(self, frame: Mapping[str, Any]) -> None:
        opened = self._open(frame)
        task, trace = Task.from_json(frame["task"]), Trace.from_json(frame["trace"])
        sheet = Sheet(task.id, opened.methods)
        given = {"task": task, "trace": trace, "state": {}}
        self._advance(Rollout(frame["id"], given, frame["failed"], sheet, iter(opened.methods)))

    def _advance(self, rollout: Rollout) -> None:
        """Run scoring functions in their order until one has to be awaited, or all are done."""
        for method in rollout.rest:
            if method.name in rollout.failed:
                rollout.sheet.fail(method, ErrorRecord(**rollout.failed[method.name]))
                continue
            outcome = self._run(rollout, method)
            if inspect.isawaitable(outcome):
                then = partial(self._awaited, rollout, method)
                self._loop.run(outcome, method.scoring.timeout_s, then)
                return
        self._channel.send({"id": rollout.call, "ok": records.write(rollout.sheet.scores())})

    def _run(self, rollout: Rollout, method: ScoringMethod) -> Any:
        """Run one function within its time limit; get what it returned where that is still to be awaited."""
        arguments = {name: rollout.given[name] for name in method.asks}
        outcome = None
        try:
            self._clock.start(
                method.scoring.timeout_s
            )  # first, so that the eval's clock is never ahead of this one
            self._channel.send({"id": rollout.call, "at": method.name})
            try:
                outcome = method.call(**arguments)
            finally:
                self._channel.end_copy(sys.exception())
                self._clock.stop()
                signal.setitimer(
                    signal.ITIMER_REAL, 0
                )  # an alarm that was left set would ring in the next function
        except BaseException as error:  # noqa: BLE001  (whatever an author's function raises is written down)
            self._raised(rollout, method, error)
        else:
            if not inspect.isawaitable(outcome):
                rollout.sheet.enter(method, outcome)
        return outcome

    def _awaited(
        self, rollout: Rollout, method: ScoringMethod, value: Any, error: BaseException | None
    ) -> None:
        """Go on with a rollout, in the main thread, when an async function is done."""
        if error is None:
            rollout.sheet.enter(method, value)
        else:
            self._raised(rollout, method, error)
        self._steps.put(partial(self._advance, rollout))

    def _raised(self, rollout: Rollout, method: ScoringMethod, error: BaseException) -> None:
        if isinstance(error, TimeLimit):
            rollout.sheet.out_of_time(method, error)
        else:
            rollout.sheet.raised(method, error)


def give_up_tracing() -> None:
    """As root, give up what lets a process read the memory and environment of any other.

    The eval process, which holds the keys, is shielded from processes of the same user; against root the
    shield holds only where root is without these capabilities. Elsewhere there is nothing to give up.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the same for capabilities from 32 on
    known = libc.capget(header, sets) == 0
    for capability in READING_OTHERS:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # so that what it starts does not get them back
        for kind in range(3):
            sets[kind + 3 * (capability // 32)] &= ~(1 << capability % 32) & 0xFFFFFFFF
    if known:
        libc.capset(header, sets)


def serve(fd: int) -> None:
    """Serve the channel `fd` until the eval process closes it."""
    channel = Channel(fd)
    give_up_tracing()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.dup2(1, 2)  # one stream, so that what is written stays in order
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    Child(channel).serve()

"""The warm process in which a taskset's own code runs, and the calls to it. Our own process never runs that
code.

One worker serves every taskset of one Python environment, for the length of a run. It holds no provider's
key, and its scoring functions can really be ended. When it dies, by a crash or because a function hung, it is
started again, and what was queued is sent again: a call carries all that it needs.

It is no sandbox: it runs as the same user and sees the same files. What it is kept from is our memory and our
environment.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from hotswap import records
from hotswap.contracts.task import Task
from hotswap.errors import Fault, UsageError
from hotswap.registry import Entry
from hotswap.scoring import Scores
from hotswap.trace import Trace
from hotswap.worker.calls import Call, Calls
from hotswap.worker.process import WorkerProcess

BATCH = 256
"""Tasks that are asked for at once, at most."""
AHEAD = 16
"""Where nobody said how many are wanted, one more task than needed is built for so many that were read."""
MOST_PROBLEMS, FURTHER = 20, 1_000
"""So many problems, or tasks after the first problem, are read before what was found is reported."""
LARGE, MANY = 1 << 18, 100
"""Characters, or messages and calls, from which on a trace is written in a thread."""


@dataclass(frozen=True)
class OptionInfo:
    """One setting of a taskset."""

    name: str
    type: str
    required: bool
    default: Any
    doc: str


@dataclass(frozen=True)
class ScoringInfo:
    """One scoring function of a taskset."""

    name: str
    kind: str
    weight: float
    timeout_s: float


@dataclass(frozen=True)
class TasksetInfo:
    """What a taskset's class says of itself."""

    name: str
    doc: str
    demo_model: str | None = None
    endless: bool = False
    options: tuple[OptionInfo, ...] = ()
    scoring: tuple[ScoringInfo, ...] = ()


class Worker:
    """A worker for one Python environment. `python` is the beginning of a command line that runs it."""

    def __init__(
        self, python: Sequence[str] = (sys.executable,), log: Path | None = None, keep: Collection[str] = ()
    ) -> None:
        """`log` gets what it prints; `keep` names variables that it sees beyond the usual ones."""
        self._new_process = partial(WorkerProcess, tuple(python), keep, log)
        self._calls = Calls()
        self._ids = itertools.count(1)
        self._wanted = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> Worker:
        self._wanted.set()  # warm from the start: the first call finds it up
        self._life = asyncio.create_task(self._live(), name="worker")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing = True
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
        self._calls.fail(Fault("hotswap", "scoring", "closed", "the worker was closed"))

    async def describe(self, entry: Entry) -> TasksetInfo:
        """Get what a taskset's class says of itself, without building one.

        Raises UsageError, with the cause, for a file that cannot be imported.
        """
        return records.read(TasksetInfo, await self.call("describe", Reference(entry, {}, 0)))

    async def open(self, entry: Entry, settings: Mapping[str, Any]) -> OpenTaskset:
        """Get a taskset ready. Raises UsageError for settings, or scoring functions, that cannot work."""
        reference = Reference(entry, settings, self.next_id())
        info = records.read(TasksetInfo, await self.call("open", reference))
        return OpenTaskset(self, reference, info)

    async def call(self, op: str, reference: Reference, **more: Any) -> Any:
        """Send a call and get its answer; for an open taskset's use."""
        fields = [reference.json, *(f'"{key}":{json.dumps(value)}'.encode() for key, value in more.items())]
        return await self.send(Call(self.next_id(), op, reference.entry.name, b",".join(fields)))

    def send(self, call: Call) -> asyncio.Future[Any]:
        """Put a call on its way; for an open taskset's use."""
        if self._life is None or self._life.done():
            raise RuntimeError("the worker is not open")
        self._calls.add(call)
        self._wanted.set()
        return call.answer

    def withdraw(self) -> None:
        """Let no further rollout be scored; for an open taskset's use."""
        self._calls.withdraw()

    def next_id(self) -> int:
        return next(self._ids)

    async def _live(self) -> None:
        """Keep a process up while there is anything to do."""
        while not self._closing:
            await self._wanted.wait()
            process = self._new_process(self._calls.hear)
            try:
                await process.start()
                self._calls.attach(process)
                self._calls.bury(process, await process.ended())
            except Exception as error:  # noqa: BLE001  (whatever it is, no call may wait for ever)
                self._calls.fail(error)
            finally:
                await process.leave()
            if not self._calls:
                self._wanted.clear()


@dataclass(frozen=True)
class Reference:
    """Which taskset a call means, with all that it takes to build it."""

    entry: Entry
    settings: Mapping[str, Any]
    key: int

    @property
    def json(self) -> bytes:
        """As it stands in a frame."""
        taskset = {"key": self.key, "entry": asdict(self.entry), "settings": dict(self.settings)}
        return b'"taskset":' + json.dumps(taskset, default=str).encode()


class OpenTaskset:
    """A taskset that stands ready in a worker."""

    def __init__(self, worker: Worker, reference: Reference, info: TasksetInfo) -> None:
        self.info = info
        self._worker = worker
        self._reference = reference
        self._json = reference.json
        self._limits = {scoring.name: scoring.timeout_s for scoring in info.scoring}
        self._under_way: dict[int, Call] = {}
        """Rollouts on their way through the scoring functions."""

    @property
    def scorers(self) -> int:
        """How many scoring functions are running now."""
        return sum(call.running is not None for call in self._under_way.values())

    async def tasks(self, limit: int | None = None) -> AsyncGenerator[Task, None]:
        """Iterate over the first `limit` tasks, or all, in the order of `load`, each checked.

        With a limit, no more are built than that. Without one, the first 16 are built one by one as they are
        read, and later ones a little ahead. Raises UsageError for all that is wrong with the tasks, at once;
        none is given that comes after the first wrong one.
        """
        reading, batch = _Reading(limit), {"done": False}
        number = self._worker.next_id()
        try:
            while not batch["done"] and (count := reading.next_count()):
                place = {"reading": number, "start": reading.position, "count": count}
                batch = await self._worker.call("tasks", self._reference, **place)
                reading.take(batch)
                for record in () if reading.problems else batch["tasks"]:
                    yield Task.from_json(record)
        finally:
            if not batch["done"]:
                self._forget(number)
        if reading.problems:
            raise UsageError(*reading.problems)

    async def score(self, task: Task, trace: Trace) -> Scores:
        """Run every scoring function on a rollout. What goes wrong in them stands in the scores.

        Raises Fault (taskset) where they cannot be run at all, and Fault (user) after `withdraw`.
        """
        body = (self._json, task, trace)
        fields = await asyncio.to_thread(_fields, *body) if _is_large(task, trace) else _fields(*body)
        call = Call(self._worker.next_id(), "score", self.info.name, fields, task.id, self._limits)
        self._under_way[call.id] = call
        try:
            return records.read(Scores, await self._worker.send(call))
        except UsageError as error:
            raise Fault("taskset", "scoring", "load", str(error), error.detail) from error
        finally:
            del self._under_way[call.id]

    def withdraw(self) -> None:
        """Let no further rollout be scored, in this worker: whoever waits gets a Fault. What is running goes on."""
        self._worker.withdraw()

    async def close(self) -> None:
        """Let go of it in the worker."""
        await self._worker.call("close", self._reference)

    def _forget(self, reading: int) -> None:
        """Tell the worker that nobody reads on. Not awaited: its reader may have been cancelled."""
        fields = b",".join((self._json, f'"reading":{reading}'.encode()))
        answer = self._worker.send(Call(self._worker.next_id(), "leave", self.info.name, fields))
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())


class _Reading:
    """How far a pass over the tasks has come, and how much to ask for next."""

    def __init__(self, limit: int | None) -> None:
        self.position = 0
        self.problems: list[str] = []
        self._limit = limit
        self._last = limit

    def next_count(self) -> int:
        """Get how many tasks to ask for; 0 where it is enough."""
        if len(self.problems) >= MOST_PROBLEMS:
            return 0
        count = BATCH if self._limit is not None else min(BATCH, 1 + self.position // AHEAD)
        return count if self._last is None else max(0, min(count, self._last - self.position))

    def take(self, batch: Mapping[str, Any]) -> None:
        self.position = batch["next"]
        if batch["problems"] and self._last is None:
            self._last = self.position + FURTHER
        self.problems += batch["problems"]


def _is_large(task: Task, trace: Trace) -> bool:
    size = len(task.context or "") + sum(len(content) for content in task.files.values())
    size += sum(len(node.content) for node in trace.messages if isinstance(node.content, str))
    return size > LARGE or len(trace.messages) + len(trace.calls) > MANY


def _fields(reference: bytes, task: Task, trace: Trace) -> bytes:
    """Write the body of a scoring call, piece by piece: one json.dumps holds up every other thread while it
    runs.
    """
    pieces = []
    for key, value in trace.to_json().items():
        text = f"[{','.join(map(json.dumps, value))}]" if isinstance(value, list) else json.dumps(value)
        pieces.append(f"{json.dumps(key)}:{text}")
    rollout = f'"task":{json.dumps(task.to_json())},"trace":{{{",".join(pieces)}}}'
    return b",".join((reference, rollout.encode()))

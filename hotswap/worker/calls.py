"""The calls that are under way to a worker: sent, timed, answered; and sent again when it has died.

Who ended a worker is not guessed. If one call was running, it was that one. If several were (async
functions), each of them is run again alone, and the one that ends the worker alone is the cause.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotswap import records
from hotswap.errors import DETAIL_LIMIT, ErrorRecord, Fault, UsageError
from hotswap.scoring import fault, out_of_time
from hotswap.worker.process import WorkerProcess

GRACE_S = 2.0
"""Between telling a function that its time is up and ending the worker."""
DUMP_S = 0.5
"""Between asking a hung worker for a traceback (it ends by SIGABRT) and KILL."""
MOST_DEATHS = 3
"""So often a worker may die at one call, or in a row with none under way."""


@dataclass
class Call:
    """One call to a worker, with all that it takes to send it again."""

    id: int
    op: str
    taskset: str
    """Its name."""
    fields: bytes
    """The rest of the frame, as the inside of a JSON object."""
    task: str = ""
    """The id of the task that is scored."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each scoring function may take."""
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    failed: dict[str, ErrorRecord] = field(default_factory=dict)
    """Scoring functions that ended the worker."""
    deaths: int = 0
    sent: bool = False
    running: str | None = None
    """The scoring function, or operation, that it is at; null while it is queued."""
    timer: asyncio.TimerHandle | None = None

    def frame(self) -> bytes:
        head: dict[str, Any] = {"id": self.id, "op": self.op}
        if self.op == "score":
            head["failed"] = {name: records.write(error) for name, error in self.failed.items()}
        return b"".join((json.dumps(head)[:-1].encode(), b",", self.fields, b"}"))

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Calls:
    """All calls to one worker, over all its lives."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._process: WorkerProcess | None = None
        self._suspects: list[Call] = []
        """Calls that were running together when the worker died: each runs alone now."""
        self._late: Call | None = None
        """The call whose function hangs, for which the worker is being ended."""
        self._idle_deaths = 0
        self._withdrawn = False
        """No further rollout is to be scored."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: Call) -> None:
        """Send a call, at once or when the worker is up."""
        self._calls[call.id] = call
        if self._withdrawn and call.op == "score":
            self._give_up(call)
        else:
            self._pump()

    def withdraw(self) -> None:
        """Let no further rollout be scored: those that wait get a Fault (user) as their answer, and so does each that
        is added later. What is running goes on."""
        self._withdrawn = True
        for call in list(self._calls.values()):
            if call.op == "score" and call.running is None:
                self._give_up(call)

    def attach(self, process: WorkerProcess) -> None:
        """A worker has been started: send it what waits."""
        self._process = process
        self._pump()

    def hear(self, frame: Mapping[str, Any]) -> None:
        """Take a frame that the worker sent."""
        call = self._calls.get(frame["id"])
        if call is None:
            return
        call.stop_timer()
        if "at" in frame:
            call.running = frame["at"]
            limit_s = call.limits.get(frame["at"])
            if limit_s is not None:
                call.timer = _later(limit_s, self._time_is_up, call)
            return
        self._idle_deaths = 0
        if "problems" in frame:
            error = UsageError(*frame["problems"])
            error.detail = frame["detail"]
            self._settle(call, error)
        else:
            self._settle(call, frame["ok"])

    def fail(self, error: Exception) -> None:
        """Give this error as the answer to every call."""
        for call in list(self._calls.values()):
            self._settle(call, error)

    def bury(self, process: WorkerProcess, ended: str) -> None:
        """The worker has died: blame whose fault it was; all others are sent again to the next one."""
        self._process = None
        late, self._late = self._late, None
        running = [call for call in self._calls.values() if call.running is not None]
        unwanted = [call for call in self._calls.values() if call.running is None and call.answer.done()]
        for call in unwanted:
            self._settle(call, None)
        for call in self._calls.values():
            call.stop_timer()
            call.sent = False
        self._idle_deaths = 0 if running else self._idle_deaths + 1
        if not running:
            self._died_idle(process, ended)
        elif len(running) > 1:
            self._suspects = running
        elif running[0].op == "score":
            self._blame_function(running[0], running[0] is late, ended, process.tail)
        else:
            self._blame_operation(running[0], ended, process.tail)
        for call in running:
            call.running = None

    def _pump(self) -> None:
        """Send what may be sent: everything; or, while there are suspects, one of them."""
        if self._process is None:
            return
        if not self._suspects:
            due = [call for call in self._calls.values() if not call.sent]
        else:
            due = [] if any(call.sent for call in self._calls.values()) else self._suspects[:1]
        for call in due:
            call.sent = True
            self._process.send(call.frame())

    def _give_up(self, call: Call) -> None:
        """Answer a call that has not begun. One that was sent is kept until the worker says that it skipped it: it may
        be about to begin, and is then still held to its time limit."""
        message = f"the run was interrupted before task {call.task!r} was scored"
        withdrawn = Fault("user", "scoring", "interrupted", message)
        if not call.sent or self._process is None:
            self._settle(call, withdrawn)
            return
        if not call.answer.done():
            call.answer.set_exception(withdrawn)
        self._process.send(json.dumps({"id": call.id, "op": "skip"}).encode())

    def _settle(self, call: Call, result: Any) -> None:
        call.stop_timer()
        del self._calls[call.id]
        if not call.answer.done():  # else its caller was cancelled
            if isinstance(result, Exception):
                call.answer.set_exception(result)
            else:
                call.answer.set_result(result)
        if call in self._suspects:
            self._suspects.remove(call)
            self._pump()

    def _time_is_up(self, call: Call) -> None:
        """Tell a function that it is over its limit; one that does not hear it ends the worker."""
        if self._process is not None:
            self._process.signal(signal.SIGXCPU)
            call.timer = _later(GRACE_S, self._end_hung, call)

    def _end_hung(self, call: Call) -> None:
        if self._process is not None:
            self._late = call
            self._process.signal(signal.SIGABRT)  # it writes where it hangs, and ends
            call.timer = _later(DUMP_S, self._process.signal, signal.SIGKILL)

    def _died_idle(self, process: WorkerProcess, ended: str) -> None:
        said = f": {process.tail.splitlines()[-1]}" if process.tail else ""
        if not process.greeted:
            problem = UsageError(f"the worker cannot be started with {process.python} ({ended}){said}")
            problem.detail = process.tail
            self.fail(problem)
        elif self._idle_deaths >= MOST_DEATHS:
            message = f"the worker died {MOST_DEATHS} times in a row ({ended}){said}"
            self.fail(Fault("taskset", "scoring", "crash", message, process.tail))

    def _blame_operation(self, call: Call, ended: str, tail: str | None) -> None:
        problem = UsageError(
            f"taskset {call.taskset!r} ended the worker process ({ended}) in {call.running!r}"
        )
        problem.detail = tail
        self._settle(call, problem)

    def _blame_function(self, call: Call, hung: bool, ended: str, tail: str | None) -> None:
        """Note a function as the one that ended the worker; the rollout goes on with its other functions."""
        function = call.running or ""
        message = f"{function} ended the worker process ({ended}), on task {call.task!r}"
        error = ErrorRecord("scorer", "scoring", "crash", message, tail[-DETAIL_LIMIT:] if tail else None)
        if hung:
            error = fault(function, call.task, "timeout", out_of_time(call.limits[function]), tail)
        if function not in call.limits:  # it died in building the taskset again
            self._settle(call, Fault("taskset", "scoring", error.type, message, tail))
            return
        call.deaths += 1
        for name in call.limits if call.deaths >= MOST_DEATHS else (function,):
            call.failed.setdefault(name, error)


def _later(delay_s: float, function: Any, argument: Any) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, function, argument)

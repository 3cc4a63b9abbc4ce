"""One rollout behind the proxy: what it was opened for, what is in flight, and how each call of it ends.

A call is opened when its request is read, and concluded when its answer was read, before the program sees
the answer's end. A request that repeats one whose answer failed is another try of that call, not a call
of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotswap.blobs import Blobs
from hotswap.capture import Keeper
from hotswap.capture.chat import Asking
from hotswap.contracts.harness import Endpoint
from hotswap.contracts.model import Upstream
from hotswap.dialects import Dialect, Route
from hotswap.errors import ErrorRecord
from hotswap.limits import Budget, Limits
from hotswap.messages import Answer, ProviderError, Usage
from hotswap.proxy.account import Account
from hotswap.proxy.body import Body
from hotswap.proxy.call import Call, Pass
from hotswap.proxy.capturing import Capturing
from hotswap.proxy.chaos import Chaos
from hotswap.proxy.history import History
from hotswap.proxy.log import Log
from hotswap.proxy.passes import Admit, Passes
from hotswap.proxy.repeats import Repeats
from hotswap.proxy.tape import Source, Tape
from hotswap.proxy.upstream import CallPolicy
from hotswap.trace import BranchKind, CallTry, HelperRecord, Trace

__all__ = ["Call", "Pass", "Session", "SessionRequest"]

CLOSE_S = 5.0


@dataclass(frozen=True)
class SessionRequest:
    """What a session is opened for."""

    rollout: str
    upstream: Upstream
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """`temperature`, `top_p`, `max_tokens`, `seed`, `stop`; `extra`: a mapping of fields sent as they are."""
    limits: Limits = field(default_factory=Limits)
    budget: Budget | None = None
    calls: CallPolicy = field(default_factory=CallPolicy)
    record: Callable[[Tape], None] | None = None
    """Takes each raw exchange when it is over."""
    source: Source | None = None
    """Answers in the provider's place."""
    capture: Keeper | None = None
    """Keeps the ids of tokens; null where none are captured."""
    chaos: Chaos | None = None
    """What is done to the program on purpose."""
    blobs: Blobs | None = None
    """Keeps images and other payloads of messages; without it they stay where they are."""


class Session:
    """The proxy's side of one rollout. Opened by `Proxy.open`."""

    def __init__(self, request: SessionRequest, admit: Admit) -> None:
        self.request = request
        self.stop: str | None = None
        """The limit that a call was refused for: turns, tokens, cost, seconds or budget."""
        self.refused = asyncio.Event()
        """Set at the first refused call: a program that goes on after it may be ended."""
        self.called = asyncio.Event()
        """Set at the first call: the program is up."""
        self.ended = False
        """Closed, or about to be: no call may be opened."""
        self._closed = False
        self._account = Account(request.limits, request.budget, request.upstream.prices)
        self._history = History(request.blobs)
        self._log = Log()
        self._repeats = Repeats()
        self._served_model: str | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._model_s = 0.0
        self._busy_since = 0.0
        self._passes = Passes(self, admit)
        self.secret()

    def secret(self, kind: BranchKind = "main", agent: str = "main") -> str:
        """Get a secret of this session; always the same one for the same kind and agent."""
        return self._passes.secret(kind, agent)

    def endpoint(self, box_url: str) -> Endpoint:
        """Get where the main agent sends its calls, with the proxy at `box_url` as seen from inside."""
        upstream = self.request.upstream
        return Endpoint(box_url, self.secret(), upstream.model, upstream.context)

    def begin(self) -> None:
        """Start the rollout's clock: the program is launched now."""
        self._account.begin()

    @property
    def deadline(self) -> float | None:
        """When the session's time is up, on the clock of `time.monotonic`."""
        return self._account.deadline

    @property
    def usage(self) -> Usage:
        """The tokens of all calls and tries."""
        return self._account.usage

    @property
    def turns(self) -> int:
        """Completed calls of the main agent."""
        return self._account.turns

    @property
    def cost_usd(self) -> float | None:
        """What all calls cost together; null where that of one which may have been billed is not known."""
        return self._account.total_usd(self._log.calls)

    @property
    def last_error(self) -> ProviderError | None:
        """Why the last call of the main conversation failed; null where it went well."""
        return self._log.last_error(self._history.graph.kinds(self._log.calls))

    def over(self) -> str | None:
        """Get the limit that is used up, whoever calls; null where another call may go up."""
        return self._account.over()

    def refuse(self, limit: str) -> None:
        """Note that a call was refused."""
        self.stop = self.stop or limit
        self.refused.set()

    def enter(self, task: asyncio.Task[Any]) -> None:
        """Note a request in flight; it is cancelled when the session is closed."""
        self.called.set()
        if not self._tasks:
            self._busy_since = time.monotonic()
        self._tasks.add(task)

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Note that a request is over."""
        self._tasks.discard(task)
        if not self._tasks and not self._closed:
            self._model_s += time.monotonic() - self._busy_since

    def read(self, raw: bytes, dialect: Dialect) -> Body:
        """Read a request's body, as far as it is new. Touches nothing: a large one may be read in a thread."""
        return self._history.read(raw, dialect)

    async def open(self, body: Body, path: str, route: Route, who: Pass) -> Call | str:
        """Take a request into the graph. Gets the call that it is: a new one, one that failed tried again, one whose
        answer was lost (it has the `tape`); or the limit that it is refused for. One that is large is taken in while
        others are served; those of the same session wait for it."""
        dialect, streams = route.dialect, route.dialect.streams(body.fields, route.tail)
        lost = await self._find_lost(body, dialect, who)
        if lost is not None and lost.streams is streams:
            return lost
        if lost is not None:
            self._take_back(lost)
        over = self._account.over()
        if over is not None:
            return over
        await self._history.place(body, dialect)
        talk = self._history.converse(body, route, who)
        if self._account.spent_turns(talk):
            return "turns"
        self._account.open(talk)
        again = self._repeats.take_failed(body, dialect, who)
        if again is None:
            return self._log.open(body, path, dialect, who, streams, talk)
        again.open_again(body, streams, talk)
        return again

    async def _find_lost(self, body: Body, dialect: Dialect, who: Pass) -> Call | None:
        if not self._repeats.any_lost:
            return None
        await self._history.place(body, dialect)
        return self._repeats.take_lost(body, dialect, who)

    def _take_back(self, call: Call) -> None:
        """Make an answer that nobody got a failed try: the turn is that of the next one."""
        if call.record.outputs:
            self._account.count_turn(call.talk, -1)
        self._history.take_back(call.record)
        call.tape = None
        words = "its whole answer did not arrive, and was asked for in another form"
        call.record.error = ErrorRecord("harness", "agent", "lost", words)
        self._repeats.fail(call)

    def lose(self, call: Call, tape: Tape) -> None:
        """Note that a whole answer did not arrive in the program: it may ask for it again."""
        if not self._closed and not call.busy and call.record.error is None:
            self._repeats.lose(call, tape)

    def keep(self, tape: Tape) -> None:
        """Hand on a raw exchange that is over."""
        if self.request.record is not None and not self._closed:
            self.request.record(tape)

    def conclude(self, call: Call, answer: Answer, first_byte_s: float | None = None) -> None:
        """Record an answer, or that there was none. Nothing is added to a session that was closed."""
        if not self._settle(call):
            return
        record = call.record
        call.end_try()
        record.first_byte_s = first_byte_s
        record.finish = answer.finish
        record.served_model = answer.model
        self._served_model = answer.model or self._served_model
        self._account.spend(record, answer)
        self._history.answer(call.body, record, call.number, answer)
        self._log.end(call, answer.error)
        if answer.error is not None:
            self._repeats.fail(call)
            return
        if call.keep is not None:
            record.token_break = call.keep()
        if record.outputs:
            self._account.count_turn(call.talk)

    def reject(self, call: Call, why: str) -> None:
        """Record that a call cannot be sent: the program and the endpoint do not go together."""
        if self._settle(call):
            call.record.error = ErrorRecord("hotswap", "agent", "untranslatable", why)

    def spoil(self, call: Call, status: int | None = None, answer: Answer | None = None) -> None:
        """Record that a call failed by our own misbehaviour; an answer that the provider gave is paid all the same.

        It is no fault of the provider's: a program that does not get over it has failed.
        """
        if not self._settle(call):
            return
        record = call.record
        if answer is not None:
            self._account.spend(record, answer)
        call.end_try()
        self._log.end(call, None)
        record.error = ErrorRecord("hotswap", "agent", "chaos", f"{record.fault} on purpose")
        record.tries.append(CallTry(status, record.duration_s or 0.0, f"chaos {record.fault}"))
        self._repeats.fail(call)

    def abandon(self, call: Call, why: str) -> None:
        """Record that a call was broken off from our side of the provider."""
        if not self._settle(call):
            return
        call.end_try()
        call.record.error = ErrorRecord("harness", "agent", "abandoned", why)
        self._repeats.fail(call)

    def _settle(self, call: Call) -> bool:
        """End a call; whether it was in progress, and its end may be recorded."""
        if self._closed or not call.busy:
            return False
        call.busy = False
        self._account.close(call.talk)
        return True

    def capturing(self, call: Call, asking: Asking) -> Capturing | None:
        """Get what captures the tokens of a call that is about to be sent; null where none are captured."""
        if self.request.capture is None:
            return None
        leaf = call.body.leaf
        conversation = None if leaf is None else self._history.graph.conversation(leaf)
        return Capturing(self.request.capture, call, conversation, asking)

    def note_helper(self, record: HelperRecord) -> None:
        """Record a request that was no call."""
        if not self._closed:
            self._log.helpers.append(record)

    def pay(self, call: Call, answer: Answer) -> None:
        """Count what a try used whose answer is not the call's: it is asked for again."""
        if not self._closed:
            self._account.spend(call.record, answer)

    def note_try(
        self, call: Call, status: int | None, duration_s: float, error: ProviderError | None
    ) -> None:
        """Record one request to the provider."""
        if not self._closed:
            tried = CallTry(status, duration_s, error.type if error else None)
            call.record.tries.append(tried)
            self._account.note(call.record, tried)

    async def close(self) -> None:
        """End the session: its secrets open nothing, what is in flight is cancelled, no more is added."""
        self.ended = True
        self._passes.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self._closed = True
        if self.request.capture is not None:
            self.request.capture.close()

    def write(self, trace: Trace) -> None:
        """Fill in what the proxy knows: messages, branches, tools, calls, usage, cost, the served model.

        Raises StoreError where tokens were to be captured and could not all be written.
        """
        graph, calls = self._history.graph, self._log.calls
        trace.messages = list(graph.nodes)
        trace.branches = graph.branches()
        trace.tools = dict(self._log.tools)
        trace.calls = list(calls)
        for record, kind in zip(calls, graph.kinds(calls), strict=True):
            record.kind = kind
            if not self._account.is_free and self._account.is_unknown(record):
                record.cost_usd = None
        trace.helpers = list(self._log.helpers)
        trace.usage = self.usage
        trace.cost_usd = self.cost_usd
        trace.cell.served_model = self._served_model
        trace.timing.model_s = self._model_s
        if self.request.capture is not None:
            self.request.capture.check()

"""One rollout behind the proxy: its secrets, its limits, its calls, and the graph of its messages.

A call is opened when its request is read, and concluded when its answer was read, before the program sees
the answer's end. A request that repeats one whose answer failed is another try of that call, not a call
of its own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from hotswap.blobs import Blobs
from hotswap.capture import Keeper
from hotswap.capture.chat import Asking
from hotswap.contracts.harness import Endpoint
from hotswap.contracts.model import Upstream
from hotswap.dialects import Dialect, Route
from hotswap.errors import ErrorRecord
from hotswap.graph import Graph
from hotswap.limits import Budget, Limits, cost
from hotswap.messages import Answer, ProviderError, Usage
from hotswap.proxy.body import Body, read_body
from hotswap.proxy.capturing import Capturing
from hotswap.proxy.chaos import Chaos
from hotswap.proxy.tape import Source, Tape
from hotswap.proxy.upstream import CallPolicy
from hotswap.trace import OWN, BranchKind, CallRecord, CallTry, HelperRecord, Trace

BODIES_KEPT = 8
"""Conversations that one session goes on with at a time, so that sub-agents do not push out the main one."""
FAILED_KEPT = 8
STREAM_FIELDS = frozenset({"stream", "stream_options"})
"""Fields in which a repeat may differ: programs fall back from a stream to an answer in one piece."""
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


@dataclass(frozen=True)
class Pass:
    """What a secret opens: a session, as one agent of it."""

    session: Session
    kind: BranchKind
    agent: str
    digest: bytes = field(repr=False)


class Talk(NamedTuple):
    """A conversation, as the limit of turns counts it: whose it is, and the number that the graph gives it."""

    kind: BranchKind
    agent: str
    number: int | None = None


@dataclass(eq=False)
class Call:
    """A call in progress, or one that failed and may be tried again."""

    record: CallRecord
    number: int
    body: Body
    dialect: Dialect
    streams: bool
    talk: Talk
    given_up: int = 0
    """How often the program was told that this call failed."""
    busy: bool = True
    opened: float = field(default_factory=time.monotonic)
    tape: Tape | None = None
    """What the program was sent of a whole answer; null where there is none, or it has arrived."""
    keep: Callable[[], bool | None] | None = None
    """Keeps the tokens of its answer, and says whether its prompt breaks with the call before."""

    def repeats(self, body: Body, dialect: Dialect, who: Pass) -> bool:
        """Whether another request of the same agent asks the same, be it in one piece and not as a stream."""
        if (who.kind, who.agent) != (self.talk.kind, self.talk.agent):
            return False
        same = dialect is self.dialect and body.leaf == self.body.leaf and body.readable
        return same and _without_stream(body.fields) == _without_stream(self.body.fields)


class Session:
    """The proxy's side of one rollout. Opened by `Proxy.open`."""

    def __init__(self, request: SessionRequest, admit: Callable[[Pass, bool], None]) -> None:
        self.request = request
        self.stop: str | None = None
        """The limit that a call was refused for: turns, tokens, cost, seconds or budget."""
        self.refused = asyncio.Event()
        """Set at the first refused call: a program that goes on after it may be ended."""
        self.called = asyncio.Event()
        """Set at the first call: the program is up."""
        self.usage = Usage()
        self.turns = 0
        """Completed calls of the main agent."""
        self.started = time.monotonic()
        self._admit = admit
        self._secrets: dict[tuple[BranchKind, str], str] = {}
        self._passes: list[Pass] = []
        self._graph = Graph(blobs=request.blobs)
        self._records: list[CallRecord] = []
        self._errors: dict[int, ProviderError | None] = {}
        """How each call ended, by its number."""
        self._helpers: list[HelperRecord] = []
        self._tools: dict[str, list[Any]] = {}
        self._tools_read: tuple[Any, str] | None = None
        self._bodies: deque[tuple[Dialect, Body]] = deque(maxlen=BODIES_KEPT)
        self._failed: deque[Call] = deque(maxlen=FAILED_KEPT)
        self._lost: deque[Call] = deque(maxlen=FAILED_KEPT)
        """Calls that were answered, and whose answer did not arrive in the program."""
        self._turns: Counter[Talk] = Counter()
        self._busy: Counter[Talk] = Counter()
        """Calls that are being answered."""
        self._leaf_by_answer: dict[str, int | None] = {}
        self._spent_usd = 0.0
        self._served_model: str | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._model_s = 0.0
        self._busy_since = 0.0
        self.ended = False
        """Closed, or about to be: no call may be opened."""
        self._closed = False
        self.secret()

    def secret(self, kind: BranchKind = "main", agent: str = "main") -> str:
        """Get a secret of this session; always the same one for the same kind and agent."""
        if (kind, agent) not in self._secrets:
            text = self._secrets[kind, agent] = secrets.token_urlsafe(32)
            self._passes.append(Pass(self, kind, agent, sha256(text.encode()).digest()))
            self._admit(self._passes[-1], True)
        return self._secrets[kind, agent]

    def endpoint(self, box_url: str) -> Endpoint:
        """Get where the main agent sends its calls, with the proxy at `box_url` as seen from inside."""
        upstream = self.request.upstream
        return Endpoint(box_url, self.secret(), upstream.model, upstream.context)

    def begin(self) -> None:
        """Start the rollout's clock: the program is launched now."""
        self.started = time.monotonic()

    @property
    def deadline(self) -> float | None:
        """When the session's time is up, on the clock of `time.monotonic`."""
        seconds = self.request.limits.seconds
        return None if seconds is None else self.started + seconds

    def over(self) -> str | None:
        """Get the limit that is used up, whoever calls; null where another call may go up."""
        elapsed = time.monotonic() - self.started
        over = replace(self.request.limits, turns=None).over(0, self.usage.total, self._spent_usd, elapsed)
        budget = self.request.budget
        return over or (budget.over() if budget and not budget.finish else None)

    @property
    def last_error(self) -> ProviderError | None:
        """Why the last call of the main conversation failed; null where it went well. Titles and other side calls
        decide nothing; where there are no others, the last of them does."""
        kinds = self._graph.kinds(self._records)
        ended = [(kinds[number] in OWN, number) for number in self._errors]
        return self._errors[max(ended)[1]] if ended else None

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
        self._tasks.discard(task)
        if not self._tasks and not self._closed:
            self._model_s += time.monotonic() - self._busy_since

    def read(self, raw: bytes, dialect: Dialect) -> Body:
        """Read a request's body, as far as it is new. Touches nothing: a large one may be read in a thread."""
        return read_body(raw, dialect.conversation, [known for by, known in self._bodies if by is dialect])

    def open(self, body: Body, path: str, route: Route, who: Pass) -> Call | str:
        """Take a request into the graph. Gets the call that it is: a new one, one that failed tried again, one whose
        answer was lost (it has the `tape`); or the limit that it is refused for."""
        streams = route.dialect.streams(body.fields, route.tail)
        lost = self._take_lost(body, route.dialect, streams, who)
        if lost is not None:
            return lost
        over = self.over()
        if over is not None:
            return over
        self._place(body, route.dialect)
        talk = self._converse(body, route, who)
        if self._spent_turns(talk):
            return "turns"
        self._busy[talk] += 1
        again = next((call for call in self._failed if call.repeats(body, route.dialect, who)), None)
        if again is None:
            return self._record(body, path, route.dialect, who, streams, talk)
        self._failed.remove(again)
        again.body, again.busy, again.opened, again.streams = body, True, time.monotonic(), streams
        again.talk = talk
        return again

    def _converse(self, body: Body, route: Route, who: Pass) -> Talk:
        """Note whose a request is; get the conversation that it goes on with. Requests without a system prompt are
        one: nothing would hold a program that puts all it knows into a new question each time."""
        if body.leaf is None:
            return Talk(who.kind, who.agent)
        tools = bool(route.dialect.read_tools(body.fields))
        model = route.dialect.read_model(body.fields, route.tail)
        self._graph.use(body.leaf, who.kind, who.agent, tools, model)
        prompted = self._graph.prompted(body.leaf)
        return Talk(who.kind, who.agent, self._graph.conversation(body.leaf) if prompted else None)

    def _spent_turns(self, talk: Talk) -> bool:
        """Whether a conversation has used up its turns, those counted that are being answered. Side calls take none."""
        most = self.request.limits.turns
        return most is not None and talk.kind != "side" and self._turns[talk] + self._busy[talk] >= most

    def _take_lost(self, body: Body, dialect: Dialect, streams: bool, who: Pass) -> Call | None:
        if not self._lost:
            return None
        self._place(body, dialect)
        found = next(
            (call for call in self._lost if call.streams is streams and call.repeats(body, dialect, who)),
            None,
        )
        if found is not None:
            self._lost.remove(found)
        return found

    def lose(self, call: Call, tape: Tape) -> None:
        """Note that a whole answer did not arrive in the program: it may ask for it again."""
        if not self._closed and not call.busy and call.record.error is None:
            call.tape = tape
            self._lost.append(call)

    def keep(self, tape: Tape) -> None:
        """Hand on a raw exchange that is over."""
        if self.request.record is not None and not self._closed:
            self.request.record(tape)

    def _place(self, body: Body, dialect: Dialect) -> None:
        """Walk along a request's messages in the graph, adding what is new. Done once for a body."""
        if body.placed:
            return
        body.placed = True
        try:
            self._walk(body, dialect)
        except Exception:  # noqa: BLE001 (that reading fails is no reason not to pass it on)
            body.give_up()

    def _walk(self, body: Body, dialect: Dialect) -> None:
        previous = dialect.read_previous(body.fields)
        known = self._leaf_by_answer.get(previous) if previous else None
        body.root = self._graph.extend(known, dialect.read_preamble(body.fields))
        if body.continues is not None and body.continues.root != body.root:
            body.start_over(dialect.conversation)  # the same conversation below another system prompt
        if body.continues is None:
            body.leaf = body.root
        read = 0
        for group in dialect.read_items(body.items):
            body.leaf = self._graph.extend(body.leaf, group.messages)
            read += group.items
            if not group.open:
                body.mark(read, body.leaf)
        self._remember(body, dialect)

    def _remember(self, body: Body, dialect: Dialect) -> None:
        earlier, body.continues = body.continues, None
        if earlier is not None and (dialect, earlier) in self._bodies:
            self._bodies.remove((dialect, earlier))
        if body.remembered:
            self._bodies.append((dialect, body.forget()))

    def _record(self, body: Body, path: str, dialect: Dialect, who: Pass, streams: bool, talk: Talk) -> Call:
        record = CallRecord(
            input=body.leaf,
            outputs=[],
            dialect=dialect.name,
            path=path,
            model="",
            status=None,
            started=time.time(),
            tools=self._note_tools(body.fields, dialect),
            agent=who.agent,
            kind=who.kind,
        )
        self._records.append(record)
        return Call(record, len(self._records) - 1, body, dialect, streams, talk)

    def _note_tools(self, fields: Mapping[str, Any], dialect: Dialect) -> str | None:
        """Keep the tools that were offered, each list once. The same object as last time is not read anew."""
        sent = fields.get("tools")
        if self._tools_read is not None and sent is self._tools_read[0]:
            return self._tools_read[1]
        tools = dialect.read_tools(fields)
        if not tools:
            return None
        name = "sha256:" + sha256(json.dumps(tools, sort_keys=True).encode()).hexdigest()
        self._tools.setdefault(name, list(tools))
        self._tools_read = (sent, name)
        return name

    def conclude(self, call: Call, answer: Answer, first_byte_s: float | None = None) -> None:
        """Record an answer, or that there was none. Nothing is added to a session that was closed."""
        if self._closed or not call.busy:
            return
        record = call.record
        self._settle(call)
        record.duration_s = (record.duration_s or 0.0) + time.monotonic() - call.opened
        record.first_byte_s = first_byte_s
        record.finish = answer.finish
        record.served_model = answer.model
        self._served_model = answer.model or self._served_model
        self._spend(record, answer)
        whole = answer.error is None
        record.outputs = [
            self._graph.answer(call.body.leaf, said, call.number, whole) for said in answer.messages
        ]
        for node in record.outputs:
            self._graph.use(node, record.kind, record.agent)
        if answer.id and record.outputs:
            self._leaf_by_answer[answer.id] = record.outputs[0]
        self._errors[call.number] = answer.error
        record.error = _error_record(answer.error) if answer.error else None
        if answer.error is None and call.keep is not None:
            record.token_break = call.keep()
        if answer.error is not None:
            self._failed.append(call)
        elif record.outputs:
            self._turns[call.talk] += 1
            self.turns += record.kind == "main"

    def reject(self, call: Call, why: str) -> None:
        """Record that a call cannot be sent: the program and the endpoint do not go together."""
        if not self._closed and call.busy:
            self._settle(call)
            call.record.error = ErrorRecord("hotswap", "agent", "untranslatable", why)

    def spoil(self, call: Call, status: int | None = None, answer: Answer | None = None) -> None:
        """Record that a call failed by our own misbehaviour; an answer that the provider gave is paid all the same.

        It is no fault of the provider's: a program that does not get over it has failed.
        """
        if self._closed or not call.busy:
            return
        self._settle(call)
        if answer is not None:
            self._spend(call.record, answer)
        call.record.duration_s = (call.record.duration_s or 0.0) + time.monotonic() - call.opened
        call.record.error = ErrorRecord("hotswap", "agent", "chaos", f"{call.record.fault} on purpose")
        call.record.tries.append(CallTry(status, call.record.duration_s, f"chaos {call.record.fault}"))
        self._errors[call.number] = None
        self._failed.append(call)

    def capturing(self, call: Call, asking: Asking) -> Capturing | None:
        """Get what captures the tokens of a call that is about to be sent; null where none are captured."""
        if self.request.capture is None:
            return None
        leaf = call.body.leaf
        conversation = None if leaf is None else self._graph.conversation(leaf)
        return Capturing(self.request.capture, call, conversation, asking)

    def note_helper(self, record: HelperRecord) -> None:
        """Record a request that was no call."""
        if not self._closed:
            self._helpers.append(record)

    def abandon(self, call: Call, why: str) -> None:
        """Record that a call was broken off from our side of the provider."""
        if self._closed or not call.busy:
            return
        self._settle(call)
        call.record.duration_s = (call.record.duration_s or 0.0) + time.monotonic() - call.opened
        call.record.error = ErrorRecord("harness", "agent", "abandoned", why)
        self._failed.append(call)

    def _settle(self, call: Call) -> None:
        call.busy = False
        self._busy[call.talk] -= 1

    def _spend(self, record: CallRecord, answer: Answer) -> None:
        spent = 0.0 if record.replayed else cost(answer.usage, self.request.upstream.prices)
        record.usage = record.usage + answer.usage
        if spent is not None:
            record.cost_usd = (record.cost_usd or 0.0) + spent
            self._spent_usd += spent
        self.usage = self.usage + answer.usage
        if self.request.budget is not None:
            self.request.budget.spend(answer.usage, spent)

    def pay(self, call: Call, answer: Answer) -> None:
        """Count what a try used whose answer is not the call's: it is asked for again."""
        if not self._closed:
            self._spend(call.record, answer)

    def note_try(
        self, call: Call, status: int | None, duration_s: float, error: ProviderError | None
    ) -> None:
        """Record one request to the provider."""
        if not self._closed:
            call.record.status = status
            call.record.tries.append(CallTry(status, duration_s, error.type if error else None))

    async def close(self) -> None:
        """End the session: its secrets open nothing, what is in flight is cancelled, no more is added."""
        self.ended = True
        for who in self._passes:
            self._admit(who, False)
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
        trace.messages = list(self._graph.nodes)
        trace.branches = self._graph.branches()
        trace.tools = dict(self._tools)
        trace.calls = list(self._records)
        for record, kind in zip(self._records, self._graph.kinds(self._records), strict=True):
            record.kind = kind
        trace.helpers = list(self._helpers)
        trace.usage = self.usage
        trace.cost_usd = self.cost_usd
        trace.cell.served_model = self._served_model
        trace.timing.model_s = self._model_s
        if self.request.capture is not None:
            self.request.capture.check()

    @property
    def cost_usd(self) -> float | None:
        """What all calls cost together; null where that of one which may have been billed is not known."""
        prices = self.request.upstream.prices
        if not self._records:
            return None
        if prices is not None and prices.free:  # a call that was broken off, too
            return self._spent_usd
        if any(record.cost_usd is None and _may_be_billed(record) for record in self._records):
            return None
        known = prices is not None or all(record.replayed for record in self._records)
        return self._spent_usd if known else None


def _without_stream(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in STREAM_FIELDS}


def _may_be_billed(record: CallRecord) -> bool:
    """Whether a provider may charge for a call: not where it refused it, was not asked, or could not be reached."""
    if record.replayed:
        return False
    if record.error is None or record.error.type in ("abandoned", "timeout"):
        return True
    return any(one.status is not None and one.status < 400 for one in record.tries)


def _error_record(error: ProviderError) -> ErrorRecord:
    status = "no answer" if error.status is None else f"HTTP {error.status}"
    return ErrorRecord(error.blame, "agent", error.type, error.message, status)

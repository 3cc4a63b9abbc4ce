"""Whatever becomes of calls, tokens and dollars of all tries add up, and an answer that arrived is one turn."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from _kit import traces
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.contracts.model import Prices, Upstream
from hotswap.dialects import Route, known
from hotswap.limits import Budget, Limits
from hotswap.messages import Answer, Message, ProviderError, Usage
from hotswap.proxy.call import Call, Pass
from hotswap.proxy.session import Session, SessionRequest
from hotswap.proxy.tape import Asked, Tape
from hotswap.trace import HelperRecord, TaskRecord, Trace

PRICES = Prices(input=1_000_000, output=2_000_000)
FAULT = ProviderError("overloaded", "too much", 529, retryable=True)
LEFT = ProviderError("abandoned", "so it is")
CUT = ProviderError("truncated", "it broke off", 200)
ENDS = [
    "whole",
    "retried",
    "failed",
    "cut",
    "abandoned",
    "refused",
    "spoiled",
    "replayed",
    "captured",
    "lost",
]


@dataclass(frozen=True)
class Move:
    """One request: which question, in what form, what the provider counted, and how it ends."""

    question: int
    streams: bool
    end: str
    input: int
    output: int

    @property
    def usage(self) -> Usage:
        return Usage(self.input, self.output)


MOVES = st.lists(
    st.builds(
        Move, st.integers(0, 2), st.booleans(), st.sampled_from(ENDS), st.integers(0, 99), st.integers(0, 99)
    ),
    max_size=10,
).map(lambda moves: sorted(moves, key=lambda move: move.question))
"""One question after the other: what is asked and answered while another question waits would be a side call."""


@dataclass
class Books:
    """A session that is played, and what must come of it, counted apart."""

    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    used: list[Usage] = field(default_factory=list)
    paid_usd: float = 0.0
    arrived: set[int] = field(default_factory=set)
    """The calls whose answer is whole."""
    calls: set[int] = field(default_factory=set)
    uncounted: set[int] = field(default_factory=set)
    """The calls with a try of which no count came."""
    open: dict[int, tuple[int, bool | None]] = field(default_factory=dict)
    """What a question repeats: its call, and the form of the answer that was lost; null where the call failed."""

    def __post_init__(self) -> None:
        upstream = Upstream(url="http://127.0.0.1:1", model="m", prices=PRICES)
        passes: list[Pass] = []
        asked = SessionRequest("r", upstream, limits=self.limits, budget=self.budget)
        self.session = Session(asked, lambda who, _: passes.append(who))
        self.who = passes[0]
        self.route = Route(known()["chat"], "/chat/completions", True)

    async def ask(self, move: Move) -> Call | str:
        talk = [{"role": "system", "content": "s"}, {"role": "user", "content": f"question {move.question}"}]
        raw = json.dumps({"messages": talk, "stream": move.streams}).encode()
        body = self.session.read(raw, self.route.dialect)
        return await self.session.open(body, "/v1/chat/completions", self.route, self.who)

    async def play(self, move: Move) -> None:
        call = await self.ask(move)
        if isinstance(call, str):
            assert (call, len(self.arrived)) == ("turns", self.limits.turns)
            return
        number, lost = self.open.pop(move.question, (None, None))
        assert (call.number in self.calls) is (number is not None)
        assert number in (None, call.number)
        assert (call.tape is not None) is (lost is move.streams)
        self.calls.add(call.number)
        if call.tape is None:
            self.arrived.discard(call.number)
            self.end(call, move)

    def end(self, call: Call, move: Move) -> None:
        said = Answer((Message("assistant", f"answer {time.monotonic_ns()}"),), "stop", move.usage)
        session = self.session
        call.record.replayed = move.end == "replayed"
        if move.end == "refused":
            session.reject(call, "so it is")
        elif move.end == "abandoned":
            self.uncounted.add(call.number)
            session.note_try(call, 200, 0.1, LEFT)
            session.abandon(call, "so it is")
        elif move.end == "spoiled":
            self.spend(move)
            session.note_try(call, 200, 0.1, None)
            session.spoil(call, 200, said)
        elif move.end in ("failed", "cut"):
            self.spend(move)
            error = FAULT if move.end == "failed" else CUT
            session.note_try(call, error.status, 0.1, error)
            session.conclude(
                call, Answer(said.messages if error is CUT else (), None, move.usage, error=error)
            )
        else:
            self.arrive(call, move, said)
        if move.end in ("failed", "cut", "abandoned", "spoiled"):
            self.open[move.question] = call.number, None

    def arrive(self, call: Call, move: Move, said: Answer) -> None:
        session = self.session
        if move.end == "retried":
            self.spend(move)
            session.note_try(call, 529, 0.1, FAULT)
            session.pay(call, said)
        if move.end == "captured":
            call.keep = lambda: False
        self.spend(move)
        session.note_try(call, 200, 0.1, None)
        session.conclude(call, said)
        self.arrived.add(call.number)
        if move.end == "lost":
            session.lose(call, Tape(Asked("POST", "/v1/chat/completions"), 0.0))
            self.open[move.question] = call.number, call.streams

    def spend(self, move: Move) -> None:
        self.used.append(move.usage)
        if move.end != "replayed":
            self.paid_usd += move.input + 2.0 * move.output

    def trace(self) -> Trace:
        trace = Trace("r", "run", traces.cell(), TaskRecord("t", traces.HASH), 0)
        trace.error = traces.fault()
        self.session.write(trace)
        return trace

    def check(self) -> None:
        trace, used = self.trace(), sum(self.used, Usage())
        assert (trace.usage, self.budget.spent, self.session.usage) == (used, used, used)
        assert sum((call.usage for call in trace.calls), Usage()) == used
        costs = [call.cost_usd for call in trace.calls]
        unknown = {number for number in self.uncounted if not trace.calls[number].replayed}
        assert all(costs[number] is None for number in unknown)
        assert unknown or sum(cost or 0.0 for cost in costs) == pytest.approx(self.paid_usd)
        assert self.budget.spent_usd == pytest.approx(self.paid_usd)
        assert trace.cost_usd in (None, pytest.approx(self.paid_usd))
        assert (trace.cost_usd is None) is (not costs or bool(unknown))
        assert (len(trace.calls), trace.turns, self.session.turns) == (
            len(self.calls),
            len(self.arrived),
            len(self.arrived),
        )
        whole = {place for place, call in enumerate(trace.calls) if call.error is None and call.outputs}
        assert whole == self.arrived


@settings(max_examples=40, deadline=None)
@given(MOVES, st.sampled_from([None, 1, 3]))
def test_tokens_dollars_and_turns_add_up_whatever_becomes_of_the_calls(
    moves: list[Move], turns: int | None
) -> None:
    async def play() -> None:
        books = Books(Limits(turns=turns))
        for move in moves:
            await books.play(move)
        books.check()

    asyncio.run(play())


@settings(max_examples=15, deadline=None)
@given(MOVES, st.sampled_from([end for end in ENDS if end != "replayed"]))
def test_nothing_is_added_after_the_end_whatever_still_comes(moves: list[Move], end: str) -> None:
    async def play() -> None:
        books = Books()
        for move in moves:
            await books.play(move)
        late = Move(3, False, end, 5, 5)
        call = await books.ask(late)
        assert isinstance(call, Call)
        await books.session.close()
        before: Any = (books.trace().to_line(), books.budget.spent, books.session.turns)
        books.end(call, late)
        books.session.note_helper(HelperRecord("GET", "/v1/models", 200, 0.0))
        assert (books.trace().to_line(), books.budget.spent, books.session.turns) == before

    asyncio.run(play())

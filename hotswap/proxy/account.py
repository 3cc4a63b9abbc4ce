"""What one session has used: tokens, dollars, turns and time, against its limits and the run's budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hotswap.contracts.model import Prices
from hotswap.limits import Budget, Limits, cost
from hotswap.messages import Answer, Usage
from hotswap.proxy.call import Talk
from hotswap.trace import CallRecord, CallTry


class Account:
    """Counts what calls use. Every try is paid for; turns are counted for each conversation apart."""

    def __init__(self, limits: Limits, budget: Budget | None, prices: Prices | None) -> None:
        self.usage = Usage()
        self.turns = 0
        """Completed calls of the main agent."""
        self._limits = limits
        self._shared = replace(limits, turns=None)
        self._budget = budget
        self._prices = prices
        self._spent_usd = 0.0
        self._due: set[int] = set()
        """Calls, by their records' `id`, whose last try may be billed and is not paid for yet."""
        self._missed: set[int] = set()
        """Calls with an earlier try that may be billed and of which no count came."""
        self._turns: Counter[Talk] = Counter()
        self._busy: Counter[Talk] = Counter()
        """Calls that are being answered."""
        self._started = time.monotonic()

    def begin(self) -> None:
        """Start the clock anew."""
        self._started = time.monotonic()

    @property
    def deadline(self) -> float | None:
        """When the time is up, on the clock of `time.monotonic`."""
        return None if self._limits.seconds is None else self._started + self._limits.seconds

    def over(self) -> str | None:
        """Get the limit that is used up, whoever calls; null where another call may go up."""
        elapsed = time.monotonic() - self._started
        over = self._shared.over(0, self.usage.total, self._spent_usd, elapsed)
        return over or (self._budget.over() if self._budget and not self._budget.finish else None)

    def spent_turns(self, talk: Talk) -> bool:
        """Whether a conversation has used up its turns, those counted that are being answered. Side calls take none."""
        most = self._limits.turns
        return most is not None and talk.kind != "side" and self._turns[talk] + self._busy[talk] >= most

    def open(self, talk: Talk) -> None:
        """Note that a call is being answered."""
        self._busy[talk] += 1

    def close(self, talk: Talk) -> None:
        """Note that a call is not being answered any more."""
        self._busy[talk] -= 1

    def count_turn(self, talk: Talk, more: int = 1) -> None:
        """Count a completed call, or one less."""
        self._turns[talk] += more
        self.turns += more if talk.kind == "main" else 0

    def note(self, record: CallRecord, tried: CallTry) -> None:
        """Note a request to the provider; what it used is told before the next one."""
        if id(record) in self._due:
            self._missed.add(id(record))
        (self._due.add if _may_be_billed(tried) else self._due.discard)(id(record))

    def spend(self, record: CallRecord, answer: Answer) -> None:
        """Add what an answer used to its call, to the session and to the run."""
        spent = 0.0 if record.replayed else cost(answer.usage, self._prices)
        record.usage = record.usage + answer.usage
        if spent is not None:
            record.cost_usd = (record.cost_usd or 0.0) + spent
            self._spent_usd += spent
            self._due.discard(id(record))
        self.usage = self.usage + answer.usage
        if self._budget is not None:
            self._budget.spend(answer.usage, spent)

    @property
    def is_free(self) -> bool:
        return self._prices is not None and self._prices.free

    def total_usd(self, records: Sequence[CallRecord]) -> float | None:
        """Get what all calls cost together; null where that of one which may have been billed is not known."""
        if not records:
            return None
        if self.is_free:  # a call that was broken off, too
            return self._spent_usd
        if any(self.is_unknown(record) for record in records):
            return None
        known = self._prices is not None or all(record.replayed for record in records)
        return self._spent_usd if known else None

    def is_unknown(self, record: CallRecord) -> bool:
        """Whether a call has a try that may be billed and of which no count came."""
        if record.replayed:
            return False
        in_flight = record.error is None and record.cost_usd is None
        return in_flight or id(record) in self._missed or id(record) in self._due


def _may_be_billed(tried: CallTry) -> bool:
    """Whether a provider may charge for it: not where it refused, or could not be reached."""
    return tried.error in ("abandoned", "timeout") or (tried.status is not None and tried.status < 400)

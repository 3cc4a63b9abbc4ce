"""Many rollouts at once: how many, in which order, which are tried again, and when to stop.

Knows nothing of boxes or models: it is given one function that plays a rollout, and one that keeps its trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

from hotswap.errors import ErrorRecord
from hotswap.limits import Budget, WindDown
from hotswap.messages import Usage
from hotswap.rollout import Rollout
from hotswap.trace import Trace, Try

TRIED_AGAIN = ("provider", "runtime")
"""Whose faults are worth another try."""
FINAL = ("auth", "bad_request", "context_length", "replay")
"""Faults of a provider that are the same the next time."""


@dataclass
class Scheduler:
    """Plays rollouts, so many at a time, and hands each finished trace on, exactly once."""

    play: Callable[[Rollout], Awaitable[Trace]]
    started: Callable[[Rollout], None]
    tried: Callable[[Rollout, Trace], None]
    """A try failed, and there will be another."""
    finished: Callable[[Rollout, Trace], None]
    concurrency: int
    retries: int
    budget: Budget
    winding_down: WindDown

    async def run(self, rollouts: Iterator[Rollout]) -> None:
        """Play all rollouts, or as many as the budget and the person allow. An exception in here stops the rest."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.concurrency):
                group.create_task(self._work(rollouts))

    async def _work(self, rollouts: Iterator[Rollout]) -> None:
        while not self._over():
            rollout = next(rollouts, None)
            if rollout is None:
                return
            self.started(rollout)
            self.finished(rollout, await self._tries(rollout))

    async def _tries(self, rollout: Rollout) -> Trace:
        """Play a rollout until it is scored, or its fault is not worth another try. Each try is kept and paid."""
        tries: list[Try] = []
        while True:
            trace = await self.play(rollout)
            failed = trace.outcome == "error"
            tries.append(Try(trace.error if failed else None, _cost(trace), trace.usage))
            if not failed or len(tries) > self.retries or self._over() or not _worth_another(trace.error):
                return _with_tries(trace, tries)
            self.tried(rollout, trace)

    def _over(self) -> bool:
        return self.winding_down.reason is not None or self.budget.over() is not None


def _cost(trace: Trace) -> float | None:
    """What a try cost: nothing where no call was made, and null where that of a call is not known."""
    return 0.0 if trace.cost_usd is None and not trace.calls else trace.cost_usd


def _worth_another(error: ErrorRecord | None) -> bool:
    return error is not None and error.blame in TRIED_AGAIN and error.type not in FINAL


def _with_tries(trace: Trace, tries: list[Try]) -> Trace:
    """Put all tries in the last one's trace. What they used adds up; an unknown cost makes the sum unknown."""
    if len(tries) == 1:
        return replace(trace, tries=tries)
    usage = sum((one.usage for one in tries), Usage())
    costs = [one.cost_usd for one in tries]
    cost = None if None in costs else sum(cost for cost in costs if cost is not None)
    return replace(trace, tries=tries, usage=usage, cost_usd=cost)

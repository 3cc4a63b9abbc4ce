"""Which rollouts are played, tried again, and given up."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from hotswap.contracts.task import Task
from hotswap.errors import ErrorRecord
from hotswap.limits import Budget, WindDown
from hotswap.messages import Usage
from hotswap.rollout import Rollout
from hotswap.scheduler import Scheduler
from hotswap.trace import CallRecord, CellRecord, TaskRecord, Trace

PROVIDER = ErrorRecord("provider", "agent", "overloaded", "busy")


def rollouts(count: int) -> Iterator[Rollout]:
    return iter(
        [Rollout(str(number), "run", "cell", Task(id=str(number), prompt="p"), 0) for number in range(count)]
    )


def trace_of(rollout: Rollout, error: ErrorRecord | None = None, cost: float | None = 0.5) -> Trace:
    cell = CellRecord("t/h/m/r", "t", "h", "1", "m", "r")
    trace = Trace(id=rollout.id, run="run", cell=cell, task=TaskRecord(rollout.task.id, ""), attempt=0)
    trace.outcome = "error" if error else "scored"
    trace.error, trace.cost_usd, trace.usage = error, cost, Usage(10, 5)
    trace.calls = [CallRecord(None, [], "chat", "/v1/chat/completions", "m", 200, 0.0)]
    return trace


class Bench:
    """A scheduler over a scripted `play`, with what it reported."""

    def __init__(
        self, play: Callable[[Rollout, int], Trace], *, concurrency: int = 4, retries: int = 1
    ) -> None:
        self.played: dict[str, int] = {}
        self.in_flight = self.peak = 0
        self.finished: list[Trace] = []
        self.budget, self.winding_down = Budget(), WindDown()
        self.script = play
        self.concurrency, self.retries = concurrency, retries

    async def play(self, rollout: Rollout) -> Trace:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        self.played[rollout.id] = self.played.get(rollout.id, 0) + 1
        return self.script(rollout, self.played[rollout.id])

    def run(self, count: int) -> None:
        scheduler = Scheduler(
            play=self.play,
            started=lambda rollout: None,
            tried=lambda rollout, trace: None,
            finished=lambda rollout, trace: self.finished.append(trace),
            concurrency=self.concurrency,
            retries=self.retries,
            budget=self.budget,
            winding_down=self.winding_down,
        )
        asyncio.run(scheduler.run(rollouts(count)))


def test_every_rollout_is_played_once_and_so_many_at_a_time() -> None:
    bench = Bench(lambda rollout, _: trace_of(rollout), concurrency=3)
    bench.run(20)
    assert sorted(int(trace.id) for trace in bench.finished) == list(range(20))
    assert bench.peak == 3


def test_a_fault_of_the_provider_is_tried_again_and_both_tries_are_kept_and_paid() -> None:
    bench = Bench(lambda rollout, number: trace_of(rollout, PROVIDER if number == 1 else None))
    bench.run(1)
    (trace,) = bench.finished
    assert trace.outcome == "scored"
    assert [one.error for one in trace.tries] == [PROVIDER, None]
    assert trace.cost_usd == 1.0
    assert trace.usage == Usage(20, 10)


def test_a_try_of_unknown_cost_makes_the_sum_unknown() -> None:
    bench = Bench(
        lambda rollout, number: trace_of(
            rollout, PROVIDER if number == 1 else None, None if number == 1 else 0.5
        )
    )
    bench.run(1)
    assert bench.finished[0].cost_usd is None


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (PROVIDER, 3),
        (ErrorRecord("runtime", "box", "x", "x"), 3),
        (ErrorRecord("provider", "agent", "auth", "x"), 1),
        (ErrorRecord("harness", "agent", "exit_code", "x"), 1),
        (ErrorRecord("scorer", "scoring", "ValueError", "x"), 1),
    ],
)
def test_only_what_may_differ_the_next_time_is_tried_again(error: ErrorRecord, times: int) -> None:
    bench = Bench(lambda rollout, _: trace_of(rollout, error), retries=2)
    bench.run(1)
    assert bench.played == {"0": times}
    assert len(bench.finished) == 1


def test_winding_down_lets_running_rollouts_end_and_begins_no_more() -> None:
    def play(rollout: Rollout, _: int) -> Trace:
        bench.winding_down.begin("interrupted")
        return trace_of(rollout)

    bench = Bench(play, concurrency=2)
    bench.run(10)
    assert len(bench.finished) == 2


@pytest.mark.parametrize("reason", ["interrupted", "budget"])
def test_what_failed_while_the_run_was_winding_down_is_not_tried_again(reason: str) -> None:
    def play(rollout: Rollout, _: int) -> Trace:
        bench.winding_down.begin(reason)
        return trace_of(rollout, PROVIDER)

    bench = Bench(play, retries=3)
    bench.run(1)
    assert bench.played == {"0": 1}
    assert [trace.error for trace in bench.finished] == [PROVIDER]

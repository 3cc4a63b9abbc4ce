"""What tables and lists need of one rollout: a small record, cut from its trace. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hotswap.errors import ErrorRecord
from hotswap.messages import Usage
from hotswap.records import read, write
from hotswap.trace import Outcome, Timing, Trace

MESSAGE_LIMIT = 500
"""Characters of an error's message that a result keeps; the trace has all of it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one rollout came out."""

    id: str
    cell: str
    taskset: str
    harness: str
    harness_version: str
    model: str
    runtime: str
    task: str
    task_hash: str
    attempt: int
    outcome: Outcome
    served_model: str | None = None
    tags: tuple[str, ...] = ()
    stop: str = "done"
    reward: float | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    error: ErrorRecord | None = None
    """Without its detail, which is in the trace."""
    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    """Of all tries; zero, not null, where no call was made."""
    cost_usd: float | None = None
    """Of all tries; 0, not null, where no call was made."""
    started: float = 0.0
    seconds: float | None = None
    """Box, setup, program and scoring together; null where no stage was ended."""
    model_s: float | None = None
    tries: int = 1
    recovered: bool = False
    """Scored after a try that failed."""
    faults: int = 0
    """Calls that were spoilt on purpose."""
    masked: int = 0
    """Secrets that were masked in its trace."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is the result of: cell, task and attempt."""
        return (self.cell, self.task, self.attempt)

    def is_called(self, part: str) -> bool:
        """Whether the id begins or ends with `part`, in either case of its letters.

        Ids begin with the time, so that it is their end which tells the rollouts of one run apart.
        """
        return self.id.upper().startswith(part.upper()) or self.id.upper().endswith(part.upper())

    @classmethod
    def of(cls, trace: Trace, masked: int = 0) -> Result:
        """Cut a result from a trace."""
        silent = not trace.calls and len(trace.tries) <= 1
        cell = trace.cell
        return cls(
            id=trace.id,
            cell=cell.name,
            taskset=cell.taskset,
            harness=cell.harness,
            harness_version=cell.harness_version,
            model=cell.model,
            served_model=cell.served_model,
            runtime=cell.runtime,
            task=trace.task.id,
            task_hash=trace.task.hash,
            tags=tuple(trace.task.data.get("tags", ())),
            attempt=trace.attempt,
            outcome=trace.outcome,
            stop=trace.stop,
            reward=trace.reward,
            rewards={name: reward.value for name, reward in trace.rewards.items()},
            metrics=dict(trace.metrics),
            error=_short(trace.error),
            turns=trace.turns,
            calls=len(trace.calls),
            usage=Usage(0, 0, 0, 0, 0) if silent else trace.usage,
            cost_usd=0.0 if silent else trace.cost_usd,
            started=trace.timing.started,
            seconds=_seconds(trace.timing),
            model_s=trace.timing.model_s,
            tries=max(1, len(trace.tries)),
            recovered=trace.outcome == "scored" and any(one.error for one in trace.tries[:-1]),
            faults=sum(call.fault is not None for call in trace.calls),
            masked=masked,
        )

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        record: dict[str, Any] = write(self)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Result:
        """Build the result that `to_json` wrote."""
        return read(cls, record)


def _short(error: ErrorRecord | None) -> ErrorRecord | None:
    return replace(error, message=error.message[:MESSAGE_LIMIT], detail=None) if error else None


def _seconds(timing: Timing) -> float | None:
    stages = [timing.box_s, timing.setup_s, timing.agent_s, timing.scoring_s]
    known = [stage for stage in stages if stage is not None]
    return sum(known) if known else None

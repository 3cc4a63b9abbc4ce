"""Scoring one answer by a taskset's own function, as the worker calls it, without a run around it."""

from __future__ import annotations

from typing import Any

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Score, Taskset
from hotswap.trace import CellRecord, TaskRecord, Trace


def trace(task: Task, answer: str | None) -> Trace:
    """Get the trace of a rollout that ended in this answer."""
    cell = CellRecord("cell", "taskset", "loop", "1", "model", "local")
    return Trace("id", "run", cell, TaskRecord(task.id, task.hash), 0, answer=answer)


def score(taskset: Taskset, task: Task, answer: str | None, name: str = "correct") -> Score:
    """Get the Score that one of the taskset's functions gives; a bare number becomes one."""
    [method] = [method for method in taskset.scoring() if method.name == name]
    given: dict[str, Any] = {"task": task, "trace": trace(task, answer), "state": {}}
    found = method.call(**{ask: given[ask] for ask in method.asks})
    return found if isinstance(found, Score) else Score(found)

"""What scoring functions return, read into numbers; and what those numbers make of a trace.

A score is never invented. A function that returns None has no score; NaN, infinity, a word or an exception is
a fault of the scorer that names task and function. One function that fails does not stop the others. Standard
library only: the sheet is filled in the worker, and applied in the eval process.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hotswap.contracts.taskset import Score, ScoringMethod
from hotswap.errors import DETAIL_LIMIT, ErrorRecord, Fault
from hotswap.trace import RewardRecord

if TYPE_CHECKING:
    from hotswap.trace import Trace

KEPT = 10_000
"""Characters that are kept of what a score extracted, of what it expected, and of its note."""


@dataclass
class Scores:
    """What the scoring functions say of one rollout."""

    rewards: dict[str, RewardRecord] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    error: ErrorRecord | None = None
    """The first fault, those of rewards that count before the rest; its detail names the others."""


class Sheet:
    """The scores of one rollout while they come in, one function at a time."""

    def __init__(self, task: str, methods: Iterable[ScoringMethod]) -> None:
        self._task = task
        self._declared = frozenset(method.name for method in methods)
        self._scores = Scores()
        self._faults: list[tuple[bool, ErrorRecord]] = []

    def enter(self, method: ScoringMethod, outcome: Any) -> None:
        """Write down what a function returned. The numbers of a mapping keep their own names, each with the
        function's weight; a mapping without any is a missing score.
        """
        if not isinstance(outcome, Mapping) or not outcome:
            self._enter(method, method.name, None if isinstance(outcome, Mapping) else outcome)
            return
        taken = {*(self._declared - {method.name}), *self._scores.rewards, *self._scores.metrics}
        for name, value in outcome.items():
            if not isinstance(name, str):
                self.fail(
                    method, self._fault(method, "invalid_score", f"names a score {name!r}, which is not text")
                )
            elif name in taken:
                problem = f"names a score {name!r}, and there is one of that name already"
                self.fail(method, self._fault(method, "invalid_score", problem))
            else:
                self._enter(method, name, value)

    def fail(self, method: ScoringMethod, error: ErrorRecord) -> None:
        """Write down that a function has no score, and why."""
        self._write(method, method.name, RewardRecord(None, method.scoring.weight, note=error.message))
        self._note(method, error)

    def raised(self, method: ScoringMethod, error: BaseException) -> None:
        """Write down that a function raised. A Fault says itself whom to blame."""
        if isinstance(error, Fault):
            self.fail(method, error.record)
            return
        kind = type(error).__name__
        self.fail(
            method, self._fault(method, kind, f"raised {kind}: {error}".removesuffix(": "), _traceback(error))
        )

    def out_of_time(self, method: ScoringMethod, error: BaseException) -> None:
        """Write down that a function was ended at its time limit; `error` is what it was ended by."""
        self.fail(
            method, self._fault(method, "timeout", out_of_time(method.scoring.timeout_s), _traceback(error))
        )

    def scores(self) -> Scores:
        """Get what has been written down."""
        errors = [error for counts, error in sorted(self._faults, key=lambda fault: not fault[0])]
        first = errors[0] if errors else None
        for other in errors[1:]:
            first = beside(first, other)
        return replace(self._scores, error=first)

    def _enter(self, method: ScoringMethod, name: str, value: Any) -> None:
        score = value if isinstance(value, Score) else Score(value)
        note = None if score.note is None else str(score.note)[:KEPT]
        record = RewardRecord(
            None, method.scoring.weight, note, plain(score.extracted), plain(score.expected)
        )
        of = "" if name == method.name else f" for {name!r}"
        try:
            record.value = _number(score.value)
            if record.value is None and _counts(method):
                self._note(method, self._fault(method, "missing_score", f"gave no score{of}"))
        except (TypeError, ValueError) as error:
            problem = self._fault(method, "invalid_score", f"returned {error}{of}")
            record.note = record.note or problem.message
            self._note(method, problem)
        self._write(method, name, record)

    def _write(self, method: ScoringMethod, name: str, record: RewardRecord) -> None:
        if method.scoring.kind == "reward":
            self._scores.rewards[name] = record
        else:
            self._scores.metrics[name] = record.value

    def _note(self, method: ScoringMethod, error: ErrorRecord) -> None:
        self._faults.append((_counts(method), error))

    def _fault(self, method: ScoringMethod, kind: str, what: str, detail: str | None = None) -> ErrorRecord:
        return fault(method.name, self._task, kind, what, detail)


def fault(function: str, task: str, kind: str, what: str, detail: str | None = None) -> ErrorRecord:
    """Get the scorer's fault, which always names function and task."""
    message = f"{function} {what}, on task {task!r}"
    return ErrorRecord("scorer", "scoring", kind, message, detail[-DETAIL_LIMIT:] if detail else None)


def out_of_time(limit_s: float) -> str:
    return f"took longer than its time limit of {limit_s:g} s (timeout_s)"


def _traceback(error: BaseException) -> str:
    inside = error.__traceback__.tb_next if error.__traceback__ else None  # our own frame says nothing
    return "".join(traceback.format_exception(type(error), error, inside))


def apply(scores: Scores, trace: Trace) -> None:
    """Write scores into a trace, with the reward and the outcome that follow from them.

    The reward is the weighted sum of the rewards, and is missing as soon as one that counts is missing. What
    has weight 0 is seen and changes neither. The outcome is `scored` exactly where there is a reward, also on
    a trace that carries an error already, such as a time limit of the program; that error stays the first,
    with the scorer's in its detail.
    """
    trace.rewards = scores.rewards
    trace.metrics = {**trace.metrics, **scores.metrics}
    trace.reward = _sum(scores.rewards.values())
    trace.outcome = "error" if trace.reward is None else "scored"
    error = scores.error
    if trace.reward is None and error is None:
        counting = [reward.value for reward in scores.rewards.values() if reward.weight]
        summed = bool(counting) and None not in counting
        what = "gave rewards whose sum is beyond all numbers" if summed else "gave no reward that counts"
        error = fault("scoring", trace.task.id, "invalid_score" if summed else "missing_score", what)
    if error is not None:
        trace.error = beside(trace.error, error)


def beside(first: ErrorRecord | None, other: ErrorRecord) -> ErrorRecord:
    """Get the first error with the other one in its detail; the other itself where there is no first."""
    if first is None:
        return other
    also = f"also ({other.blame}, {other.type}): {other.message}"
    detail = also if first.detail is None else f"{first.detail[: DETAIL_LIMIT - len(also) - 1]}\n{also}"
    return replace(first, detail=detail[:DETAIL_LIMIT])


def plain(value: Any) -> Any:
    """Get a value as JSON of bounded length; what JSON cannot say is written as Python would show it."""
    if value is None or isinstance(value, bool):
        return value
    try:
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        if len(text) <= KEPT:
            return text if isinstance(value, str) else json.loads(text)
    except (TypeError, ValueError, RecursionError):
        text = _shown(value)
    return text if len(text) <= KEPT else f"{text[:KEPT]}..."


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  (an author's __repr__ can raise anything)
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def _number(value: Any) -> float | None:
    """Read a score: anything that `float` takes and that is no text. Raises TypeError or ValueError, saying
    what it is.
    """
    if value is None:
        return None
    if isinstance(value, str | bytes) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{plain(_shown(value)[:100])}, which is not a number")
    try:
        number = float(value)
    except Exception as error:
        raise TypeError(f"{plain(_shown(value)[:100])}, which is not a number ({error})") from error
    if not math.isfinite(number):
        raise ValueError(f"{number}, which is not a finite number")
    return number


def _sum(rewards: Iterable[RewardRecord]) -> float | None:
    counting = [reward for reward in rewards if reward.weight]
    values = [reward.weight * reward.value for reward in counting if reward.value is not None]
    if not values or len(values) < len(counting):
        return None
    try:
        total = math.fsum(values)
    except OverflowError:
        return None
    return total if math.isfinite(total) else None


def _counts(method: ScoringMethod) -> bool:
    return method.scoring.kind == "reward" and method.scoring.weight != 0

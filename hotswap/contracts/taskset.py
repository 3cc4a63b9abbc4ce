"""What a taskset's author writes: a class that loads tasks, and functions that score a rollout on one.

    class CapitalQuiz(Taskset):
        def load(self):
            yield Task(id="fr", prompt="Capital of France?", answer="Paris")

        @reward
        def right(self, task: Task, trace: Trace) -> float:
            return float(task.answer in trace.answer)

Standard library only, so that it loads in anyone's environment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, overload

from hotswap.contracts.options import Part
from hotswap.contracts.task import Task
from hotswap.errors import UsageError

Kind = Literal["reward", "metric"]
F = TypeVar("F", bound=Callable[..., Any])

LATER = ("setup", "play")
"""Methods by which a taskset is to say how a rollout is prepared and played. Nothing calls them yet: refused."""
ASKED_FOR = ("task", "trace", "state")
"""The names that a scoring function may ask for."""


@dataclass(frozen=True)
class Score:
    """A number with its reasons: what was read from the answer, what was wanted, and a note."""

    value: float
    note: str | None = None
    extracted: Any = None
    expected: Any = None


@dataclass(frozen=True)
class Scoring:
    """What a decorator knows of a scoring function."""

    kind: Kind
    weight: float = 1.0
    timeout_s: float = 60.0


@dataclass(frozen=True)
class ScoringMethod:
    """A scoring function of a taskset, bound, by the name that its number has in the trace."""

    name: str
    scoring: Scoring
    call: Callable[..., Any]
    asks: tuple[str, ...]
    """Which of ASKED_FOR it takes."""


@overload
def reward(function: F) -> F: ...
@overload
def reward(*, weight: float = 1.0, timeout_s: float = 60.0) -> Callable[[F], F]: ...
def reward(
    function: F | None = None, *, weight: float = 1.0, timeout_s: float = 60.0
) -> F | Callable[[F], F]:
    """Mark a method whose number counts: the rollout's reward is the weighted sum of these."""
    return _mark(function, Scoring("reward", weight, timeout_s))


@overload
def metric(function: F) -> F: ...
@overload
def metric(*, timeout_s: float = 60.0) -> Callable[[F], F]: ...
def metric(function: F | None = None, *, timeout_s: float = 60.0) -> F | Callable[[F], F]:
    """Mark a method whose number is reported and does not count."""
    return _mark(function, Scoring("metric", 0.0, timeout_s))


class Taskset(Part):
    """Loads tasks, and says how a rollout on one is scored."""

    demo_model: ClassVar[str | None] = None
    """The model that is used where none was chosen. Only a taskset that exists for demonstration names one."""
    endless: ClassVar[bool] = False
    """Tasks are generated without an end: a run must say how many, and they cannot be shuffled."""

    def load(self) -> Iterable[Task]:
        """Yield the tasks, in an order that is the same on every machine. Read lazily: only as many as a run uses."""
        raise UsageError(
            f"taskset {type(self).__name__!r} does not define load(self), which yields its tasks"
        )

    @classmethod
    def unsupported_methods(cls) -> list[str]:
        """Get the methods that a rollout would have to call, and does not: it must not be scored as if it had."""
        scoring = cls.scoring_methods()
        return [name for name in LATER if callable(getattr(cls, name, None)) and name not in scoring]

    @classmethod
    def scoring_methods(cls) -> dict[str, Scoring]:
        """Get every scoring method by name, in order of definition, the bases' first."""
        found: dict[str, Scoring] = {}
        for base in reversed(cls.__mro__):
            for name, value in base.__dict__.items():
                scoring = getattr(value, "__hotswap_scoring__", None)
                if isinstance(scoring, Scoring):
                    found[name] = scoring
                elif name in found:
                    del found[name]
        return found

    def scoring(self) -> list[ScoringMethod]:
        """Get the scoring functions, bound to this taskset. Raises UsageError for one that asks for an unknown name."""
        methods = []
        for name, scoring in self.scoring_methods().items():
            call = getattr(self, name)
            methods.append(ScoringMethod(name, scoring, call, _asks(type(self).__name__, name, call)))
        return methods


def _asks(taskset: str, name: str, call: Callable[..., Any]) -> tuple[str, ...]:
    asks = tuple(inspect.signature(call).parameters)
    unknown = [ask for ask in asks if ask not in ASKED_FOR]
    if unknown:
        known = ", ".join(ASKED_FOR)
        raise UsageError(
            f"{taskset}.{name} asks for {', '.join(unknown)}; a scoring function may ask for {known}"
        )
    return asks


def _mark(function: F | None, scoring: Scoring) -> F | Callable[[F], F]:
    def mark(marked: F) -> F:
        marked.__hotswap_scoring__ = scoring  # type: ignore[attr-defined]
        return marked

    return mark if function is None else mark(function)

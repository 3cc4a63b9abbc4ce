"""Results become tables: one row a cell, with both means, their interval, and what is missing counted.

Every sum is exact before it is rounded (`math.fsum`), so that the numbers do not depend on the order of the
results. Reward, turns, time, rewards and metrics are over scored rollouts; tokens, cost and errors are over
all, and over every try. Standard library only.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hotswap.errors import ErrorRecord
from hotswap.intervals import LARGE, LEVEL, Interval, mean_interval, mean_of, pass_at, percentile
from hotswap.records import to_text, write
from hotswap.result import Result

SCHEMA = 1
KEPT_MESSAGES = 100
"""Messages that are told apart in one kind of error of a cell; further ones are no example."""
ERROR_LIMIT = 160
"""Characters of an error's message by which it is told from others."""
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Mean:
    """The mean of a number over scored rollouts; those where it is missing are left out, and counted."""

    mean: float | None
    count: int
    missing: int = 0


@dataclass(frozen=True)
class PassAt:
    """The chance that one of k attempts is right, averaged over the tasks with k scored attempts or more."""

    value: float | None
    tasks: int


@dataclass(frozen=True)
class Sum:
    """A sum over rollouts; those where the number is unknown are left out, and counted."""

    total: float | None
    """Null where nothing is known, and where it is beyond all numbers: then a note of the row says so."""
    unknown: int = 0


@dataclass(frozen=True)
class CommonError:
    """A kind of error that rollouts ended with, and how many did."""

    blame: str
    type: str
    message: str
    """The first line of the commonest one."""
    count: int
    alike: bool = True
    """Every one of them has this message."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The numbers of one cell."""

    cell: str
    taskset: str
    harness: str
    harness_version: str
    model: str
    served_models: tuple[str, ...]
    runtime: str
    tasks: int
    """With a finished rollout."""
    attempts: int
    """Per task, at most."""
    planned: int | None
    """Rollouts that were to be played; null where that is not known."""
    scored: int
    errors: int
    unplayed: int | None
    """Planned and not finished."""
    errors_by_blame: dict[str, int]
    common_errors: tuple[CommonError, ...]
    """The commonest first. Together they are `errors`."""
    interrupted: int
    """Errors of the person who interrupted the run: nothing is known of what they would have come to."""
    wrong: int
    """Scored below 1."""
    reward: Mean
    interval: Interval | None
    reward_errors_as_zero: Mean
    """Over scored rollouts and errors, an error counted as 0 and an interrupted one left out."""
    binary: bool
    """Every reward is 0 or 1."""
    reward_range: tuple[float, float] | None
    """The smallest and the largest reward."""
    pass_at: dict[str, PassAt] | None
    """By k, for 1 and the number of attempts; null where rewards are not all 0 or 1."""
    rewards: dict[str, Mean]
    metrics: dict[str, Mean]
    turns: Mean
    input_tokens: Sum
    cached_tokens: Sum
    output_tokens: Sum
    cost_usd: Sum
    seconds_p50: float | None
    seconds_p95: float | None
    tries: int
    recovered: int
    calls: int
    faults: int
    """Calls that were spoilt on purpose."""
    masked: int
    stops: dict[str, int]
    """Rollouts by the reason for which they stopped."""
    notes: tuple[str, ...] = ()
    """What could not be computed, and why."""

    @property
    def finished(self) -> int:
        return self.scored + self.errors


@dataclass(frozen=True)
class Summary:
    """The tables of a run."""

    rows: tuple[Row, ...]
    chaos: str | None = None
    """The setting by which calls were spoilt on purpose; null in a clean run."""

    @property
    def scored(self) -> int:
        return sum(row.scored for row in self.rows)

    @property
    def errors(self) -> int:
        return sum(row.errors for row in self.rows)

    @property
    def finished(self) -> int:
        return self.scored + self.errors

    @property
    def planned(self) -> int | None:
        known = [row.planned for row in self.rows if row.planned is not None]
        return sum(known) if len(known) == len(self.rows) else None

    @property
    def wrong(self) -> int:
        return sum(row.wrong for row in self.rows)

    @property
    def errors_by_blame(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for row in self.rows:
            total.update(row.errors_by_blame)
        return dict(sorted(total.items()))

    @property
    def common_errors(self) -> tuple[CommonError, ...]:
        kinds: dict[tuple[str, str], list[CommonError]] = {}
        for row in self.rows:
            for error in row.common_errors:
                kinds.setdefault((error.blame, error.type), []).append(error)
        return _commonest(_together(errors) for errors in kinds.values())

    @property
    def interrupted(self) -> int:
        return sum(row.interrupted for row in self.rows)

    @property
    def cost_usd(self) -> Sum:
        known = [row.cost_usd.total for row in self.rows if row.cost_usd.total is not None]
        return Sum(_sum(known) if known else None, sum(row.cost_usd.unknown for row in self.rows))

    @property
    def calls(self) -> int:
        return sum(row.calls for row in self.rows)

    @property
    def faults(self) -> int:
        return sum(row.faults for row in self.rows)

    @property
    def masked(self) -> int:
        return sum(row.masked for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The tables as JSON values."""
        total = {
            "planned": self.planned,
            "finished": self.finished,
            "scored": self.scored,
            "errors": self.errors,
            "errors_by_blame": self.errors_by_blame,
            "common_errors": write(self.common_errors),
            "interrupted": self.interrupted,
            "wrong": self.wrong,
            "cost_usd": write(self.cost_usd),
            "calls": self.calls,
            "chaos": self.chaos,
            "faults": self.faults,
            "masked": self.masked,
        }
        return {"schema": SCHEMA, "level": LEVEL, "total": total, "cells": [write(row) for row in self.rows]}

    def to_csv(self) -> str:
        """The tables with one line a cell; empty where a number is not there."""
        flat = [_flat(row) for row in self.rows]
        names = list(dict.fromkeys(name for line in flat for name in line))
        text = io.StringIO()
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(flat)
        return text.getvalue()

    def to_markdown(self) -> str:
        """The tables for people, as in the terminal."""
        from hotswap.columns import causes, columns, notes

        shown = columns(self)
        lines = ["| " + " | ".join(_escape(column.title) for column in shown) + " |"]
        lines.append("| " + " | ".join(":--" if column.is_text else "--:" for column in shown) + " |")
        for row in self.rows:
            lines.append("| " + " | ".join(_escape(column.show(row)) for column in shown) + " |")
        said = [*notes(self), *map(_escape, causes(self))]
        return "\n".join(lines) + "\n\n" + "\n".join(f"{note}  " for note in said) + "\n"

    def files(self) -> dict[str, str]:
        """The tables as the files of a run directory."""
        text = to_text(self.to_json(), indent=2) + "\n"
        return {"metrics.json": text, "metrics.csv": self.to_csv(), "metrics.md": self.to_markdown()}


def tabulate(
    results: Iterable[Result], planned: Mapping[str, int] | None = None, chaos: str | None = None
) -> Summary:
    """Get the tables of results, of which there is one for each cell, task and attempt.

    `planned` is the number of rollouts by cell. Its order is that of the rows, and a cell with no result has
    a row too. Without it the rows are sorted by name. `chaos` is the run's setting of that name.
    """
    planned = planned or {}
    tallies = {cell: _Tally(cell) for cell in planned}
    for result in results:
        if result.cell not in tallies:
            tallies[result.cell] = _Tally(result.cell)
        tallies[result.cell].add(result)
    names = [*planned, *sorted(tallies.keys() - planned.keys())]
    return Summary(tuple(tallies[name].row(planned.get(name)) for name in names), chaos)


UNKNOWN = ErrorRecord("hotswap", "finalize", "unknown", "")
"""Of a rollout that has neither a score nor an error."""


def _commonest(errors: Iterable[CommonError]) -> tuple[CommonError, ...]:
    return tuple(sorted(errors, key=lambda error: (-error.count, error.blame, error.type)))


def _together(errors: Sequence[CommonError]) -> CommonError:
    """Get the errors of one kind in several cells as one."""
    shown = min(errors, key=lambda error: (-error.count, error.message))
    alike = all(error.alike and error.message == shown.message for error in errors)
    return replace(shown, count=sum(error.count for error in errors), alike=alike)


@dataclass
class _Kind:
    """The errors of one kind in a cell."""

    count: int = 0
    messages: Counter[str] = field(default_factory=Counter)

    def add(self, message: str) -> None:
        first = message.strip().partition("\n")[0].strip()[:ERROR_LIMIT]
        self.count += 1
        if first in self.messages or len(self.messages) < KEPT_MESSAGES:
            self.messages[first] += 1

    def error(self, blame: str, kind: str) -> CommonError:
        message = min(self.messages, key=lambda text: (-self.messages[text], text))
        return CommonError(blame, kind, message, self.count, alike=len(self.messages) == 1)


@dataclass
class _Values:
    """Numbers of scored rollouts."""

    known: array[float] = field(default_factory=lambda: array("d"))

    def mean(self, of: int) -> Mean:
        count = len(self.known)
        return Mean(mean_of(self.known, count) if count else None, count, of - count)


@dataclass
class _Amount:
    """Numbers of all rollouts, some unknown."""

    known: array[float] = field(default_factory=lambda: array("d"))
    unknown: int = 0

    def add(self, value: float | None) -> None:
        if value is None:
            self.unknown += 1
        else:
            self.known.append(value)

    def sum(self) -> Sum:
        return Sum(_sum(self.known) if self.known else None, self.unknown)

    @property
    def overflows(self) -> bool:
        return bool(self.known) and self.sum().total is None


@dataclass
class _Tokens:
    """Counts of tokens of all rollouts, some unknown; their sum is exact."""

    count: int = 0
    known: int = 0
    unknown: int = 0

    def add(self, value: int | None) -> None:
        self.unknown += value is None
        self.known += value is not None
        self.count += value or 0

    def sum(self) -> Sum:
        return Sum(self.count if self.known and not self.overflows else None, self.unknown)

    @property
    def overflows(self) -> bool:
        return self.count > LARGEST


def _sum(values: Iterable[float]) -> float | None:
    """Get an exact sum, rounded once; null where it is beyond all numbers."""
    try:
        return math.fsum(values)
    except OverflowError:
        return None


class _Tally:
    """What is remembered of a cell's results: a few numbers each."""

    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.parts: dict[str, str] = dict.fromkeys(("taskset", "harness", "model", "runtime"), "")
        self.by_task: dict[str, array[float]] = {}
        self.attempts: Counter[str] = Counter()
        self.blames: Counter[str] = Counter()
        self.kinds: dict[tuple[str, str], _Kind] = {}
        self.stops: Counter[str] = Counter()
        self.served: set[str] = set()
        self.versions: set[str] = set()
        self.scored = self.errors = self.interrupted = self.wrong = 0
        self.tries = self.recovered = self.calls = self.faults = self.masked = 0
        self.rewards: dict[str, _Values] = {}
        self.metrics: dict[str, _Values] = {}
        self.turns, self.seconds = _Values(), _Values()
        self.input, self.cached, self.output, self.cost = _Tokens(), _Tokens(), _Tokens(), _Amount()

    def add(self, result: Result) -> None:
        self.parts = {part: getattr(result, part) for part in self.parts}
        self.attempts[result.task] += 1
        self.stops[result.stop] += 1
        self.tries += result.tries
        self.recovered += result.recovered
        self.calls += result.calls
        self.faults += result.faults
        self.masked += result.masked
        self.versions.add(result.harness_version)
        if result.served_model is not None:
            self.served.add(result.served_model)
        self.input.add(result.usage.input)
        self.cached.add(result.usage.cached)
        self.output.add(result.usage.output)
        self.cost.add(result.cost_usd)
        if result.reward is None:
            self._add_error(result.error)
        else:
            self._add_scored(result, result.reward)

    def _add_error(self, error: ErrorRecord | None) -> None:
        error = error or UNKNOWN
        kind = (error.blame, error.type)
        self.errors += 1
        self.blames[error.blame] += 1
        self.kinds.setdefault(kind, _Kind()).add(error.message)
        self.interrupted += kind == ("user", "interrupted")

    def _add_scored(self, result: Result, reward: float) -> None:
        self.scored += 1
        self.wrong += reward < 1
        self.by_task.setdefault(result.task, array("d")).append(reward)
        self.turns.known.append(result.turns)
        if result.seconds is not None:
            self.seconds.known.append(result.seconds)
        for kept, given in ((self.rewards, result.rewards), (self.metrics, result.metrics)):
            for name, value in given.items():
                values = kept.setdefault(name, _Values())
                if value is not None:
                    values.known.append(value)

    def row(self, planned: int | None) -> Row:
        rewards = [reward for group in self.by_task.values() for reward in group]
        binary = all(reward in (0, 1) for reward in rewards)
        finished = self.scored + self.errors
        judged = finished - self.interrupted
        seconds = sorted(self.seconds.known)
        attempts = max(self.attempts.values(), default=0)
        return Row(
            cell=self.cell,
            **self.parts,
            harness_version=", ".join(sorted(self.versions)),
            served_models=tuple(sorted(self.served)),
            tasks=len(self.attempts),
            attempts=attempts,
            planned=planned,
            scored=self.scored,
            errors=self.errors,
            unplayed=None if planned is None else max(0, planned - finished),
            errors_by_blame=dict(sorted(self.blames.items())),
            common_errors=_commonest(errors.error(*kind) for kind, errors in self.kinds.items()),
            interrupted=self.interrupted,
            wrong=self.wrong,
            reward=Mean(mean_of(rewards, self.scored) if self.scored else None, self.scored),
            interval=(interval := mean_interval(list(self.by_task.values()))),
            reward_errors_as_zero=Mean(mean_of(rewards, judged) if judged else None, judged),
            binary=binary,
            reward_range=(min(rewards) + 0.0, max(rewards) + 0.0) if rewards else None,  # 0.0, not -0.0
            pass_at={str(k): self._pass_at(k) for k in sorted({1, attempts})} if binary and rewards else None,
            rewards={name: values.mean(self.scored) for name, values in sorted(self.rewards.items())},
            metrics={name: values.mean(self.scored) for name, values in sorted(self.metrics.items())},
            turns=self.turns.mean(self.scored),
            input_tokens=self.input.sum(),
            cached_tokens=self.cached.sum(),
            output_tokens=self.output.sum(),
            cost_usd=self.cost.sum(),
            seconds_p50=percentile(seconds, 0.5),
            seconds_p95=percentile(seconds, 0.95),
            tries=self.tries,
            recovered=self.recovered,
            calls=self.calls,
            faults=self.faults,
            masked=self.masked,
            stops=dict(sorted(self.stops.items())),
            notes=tuple(self._notes(interval)),
        )

    def _notes(self, interval: Interval | None) -> Iterator[str]:
        sums: dict[str, _Tokens | _Amount] = {"input_tokens": self.input, "cached_tokens": self.cached}
        sums |= {"output_tokens": self.output, "cost_usd": self.cost}
        for name, amount in sums.items():
            if amount.overflows:
                yield f"{name} is null: the sum is beyond 1.8e308, the largest number"
        rewards = [reward for group in self.by_task.values() for reward in group]
        beyond = interval is None and len(self.by_task) > 1 and max(map(abs, rewards)) > LARGE
        if beyond and min(rewards) < max(rewards):
            yield "interval is null: it would end beyond 1.8e308, the largest number"

    def _pass_at(self, k: int) -> PassAt:
        chances = (
            pass_at(k, len(group), sum(reward == 1 for reward in group)) for group in self.by_task.values()
        )
        defined = [chance for chance in chances if chance is not None]
        return PassAt(math.fsum(defined) / len(defined) if defined else None, len(defined))


def _flat(row: Row) -> dict[str, Any]:
    """A row with one name a number: `reward.mean`, `errors_by_blame.provider`."""
    flat: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                put(f"{name}.{key}", item)
        else:
            flat[name] = " ".join(map(str, value)) if isinstance(value, list) else value

    for name, value in write(row).items():
        if name != "common_errors":  # a list of objects has no place in a line
            put(name, value)
    return flat


def _escape(text: str) -> str:
    return (
        text.replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("\n", " ")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )

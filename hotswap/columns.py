"""What people see of the tables: which columns there are, how numbers are rounded, and what is said below."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotswap.metrics import CommonError, Mean, PassAt, Row, Sum, Summary

NOTHING = "-"
HUGE = 1e15
"""From here on a number is written with its power of ten."""
CAUSES = 3
"""Errors that are named below the tables; the files have more."""
QUIET = ("tool_calls", "invalid_tool_calls", "truncated_answers", "empty_answer")
"""Metrics that are shown where they are not 0 in every row; the files always have them."""


@dataclass(frozen=True)
class Column:
    """One column of the table, or one line where a cell has a list of its own."""

    title: str
    show: Callable[[Row], str]
    is_text: bool = False


def columns(summary: Summary) -> tuple[Column, ...]:
    """Get the columns that this summary needs; what could only say "none" in every row is left out."""
    shown = [Column("cell", lambda row: row.cell, is_text=True), Column("reward", _reward)]
    if summary.errors > summary.interrupted:
        shown.append(Column("errors as 0", lambda row: _mean(row.reward_errors_as_zero)))
    shown += _pass_at(summary)
    shown += [
        Column("tasks", lambda row: str(row.tasks)),
        Column("attempts", lambda row: str(row.attempts)),
        Column("scored", lambda row: f"{row.scored} of {row.finished}"),
        Column("errors", lambda row: by_blame(row.errors_by_blame) or "0"),
    ]
    if any(row.unplayed for row in summary.rows):
        shown.append(Column("not played", lambda row: str(row.unplayed or 0)))
    shown += _means(summary)
    shown += [
        Column("turns", lambda row: _mean(row.turns)),
        Column("tokens in", lambda row: _sum(row.input_tokens, tokens)),
        Column("tokens out", lambda row: _sum(row.output_tokens, tokens)),
        Column("cost", lambda row: _sum(row.cost_usd, dollars)),
        Column("time p50", lambda row: seconds(row.seconds_p50)),
        Column("time p95", lambda row: seconds(row.seconds_p95)),
    ]
    if any(row.recovered for row in summary.rows):
        shown.append(Column("recovered", lambda row: str(row.recovered)))
    return tuple(shown)


def notes(summary: Summary) -> list[str]:
    """Get the sentences that the numbers need: method and scale of the intervals, and what is not known."""
    said = []
    methods = sorted({row.interval.method for row in summary.rows if row.interval})
    if methods:
        said.append(f"[low, high] is the 95% interval of the mean ({'; '.join(methods)}). {_scale(summary)}")
    elif summary.scored:
        said.append(f"No interval: there are too few tasks, or all rewards are the same. {_scale(summary)}")
    if summary.interrupted:
        rollouts = "rollouts are" if summary.interrupted > 1 else "rollout is"
        said.append(f"{summary.interrupted} interrupted {rollouts} counted under errors, and in no mean.")
    if any(_is_partial(row) for row in summary.rows):
        said.append("+ behind a sum: at least so much, since the number of some rollouts is not known.")
    if summary.cost_usd.unknown:
        said.append(f"The cost of {summary.cost_usd.unknown} of {summary.finished} rollouts is not known.")
    said += [f"{row.cell}: {note}." for row in summary.rows for note in row.notes]
    if summary.chaos or summary.faults:
        what = summary.chaos or "as it was recorded"
        said.append(f"{misbehaviour(what, summary.faults, summary.calls)}.")
    if summary.masked:
        said.append(f"{summary.masked} secrets were masked in the traces.")
    return said


def misbehaviour(chaos: str, faults: int | None = None, calls: int = 0) -> str:
    """Get the words that tell a run which spoils calls on purpose from a clean one; once played, with how many."""
    hit = "" if faults is None else f"; {faults:,} of {calls:,} calls were hit"
    return f"Misbehaviour on purpose: {chaos}{hit}"


def causes(summary: Summary) -> list[str]:
    """Get the commonest kinds of errors as `52 x provider, auth: Incorrect API key provided (HTTP 401)`."""
    lines = [_cause(error) for error in summary.common_errors[:CAUSES]]
    more = len(summary.common_errors) - len(lines)
    return [*lines, f"and {more} more kind{'s' * (more > 1)}"] if more else lines


def _cause(error: CommonError) -> str:
    """Say how many errors there are of a kind, with the message that they have, or that one of them has."""
    such = "" if error.alike else ", such as"
    message = f"{such}: {error.message}" if error.message else ""
    return f"{error.count} x {error.blame}, {error.type}{message}"


def by_blame(errors: dict[str, int]) -> str:
    """Get errors as `3 provider, 1 runtime`; empty where there are none."""
    return ", ".join(
        f"{count} {blame}" for blame, count in sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    )


def number(value: float | None) -> str:
    """Get a number with the digits that a person reads; one that is nearly 0 or 1 is not rounded to it."""
    if value is None:
        return NOTHING
    size = abs(value)
    if size >= HUGE:
        return f"{value:.3g}"
    text = f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"
    if float(text.replace(",", "")) in (-1, 0, 1) and value not in (-1, 0, 1):
        text = f"{value:.4g}"
        return text if float(text) not in (-1, 1) else f"{value:.8g}"
    return text


def tokens(value: float) -> str:
    """Get a number of tokens: `812`, `12.3k`, `4.56M`."""
    if value >= HUGE:
        return f"{value:.3g}"
    if value < 10_000:
        return f"{value:.0f}"
    return f"{value / 1e3:.3g}k" if value < 999_500 else f"{value / 1e6:,.2f}M"


def dollars(value: float) -> str:
    """Get a price, small ones with two digits that count: `$12.50`, `$0.00042`, `<$0.00001`."""
    if value >= HUGE:
        return f"${value:.3g}"
    if value == 0 or value >= 0.1:
        return f"${value:,.2f}"
    if value < 1e-5:
        return "<$0.00001"
    decimals = 1 - math.floor(math.log10(value))
    whole, _, part = f"{value:.{decimals}f}".partition(".")
    return f"${whole}.{part.rstrip('0'):<02}"


def seconds(value: float | None) -> str:
    """Get a duration: `0.31 s`, `12.4 s`, `3 min 20 s`."""
    if value is None:
        return NOTHING
    if value < 99.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes / 60:.1f} h"


def _reward(row: Row) -> str:
    text = number(row.reward.mean)
    if row.interval:
        text += f" [{number(row.interval.low)}, {number(row.interval.high)}]"
    return text


def _pass_at(summary: Summary) -> list[Column]:
    ks = sorted({int(k) for row in summary.rows for k in row.pass_at or {}})
    return [Column(f"pass@{k}", lambda row, k=str(k): _chance((row.pass_at or {}).get(k), row)) for k in ks]  # type: ignore[misc]


def _chance(chance: PassAt | None, row: Row) -> str:
    if chance is None or chance.value is None:
        return NOTHING
    return number(chance.value) + (
        f" ({chance.tasks} of {row.tasks} tasks)" if chance.tasks < row.tasks else ""
    )


def _means(summary: Summary) -> list[Column]:
    rewards = list(dict.fromkeys(name for row in summary.rows for name in row.rewards))
    metrics = list(dict.fromkeys(name for row in summary.rows for name in row.metrics if name != "turns"))
    found = []
    if len(rewards) > 1:
        found = [Column(name, lambda row, name=name: _mean(row.rewards.get(name))) for name in rewards]  # type: ignore[misc]
    shown = [
        name for name in metrics if name not in QUIET or any(_is_loud(row, name) for row in summary.rows)
    ]
    return found + [Column(name, lambda row, name=name: _mean(row.metrics.get(name))) for name in shown]  # type: ignore[misc]


def _is_loud(row: Row, metric: str) -> bool:
    """Whether there is anything but a 0 to be seen."""
    mean = row.metrics.get(metric)
    return mean is not None and (mean.mean != 0 or mean.missing > 0)


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    return number(mean.mean) + (f" ({mean.missing} missing)" if mean.missing else "")


def _sum(amount: Sum, show: Callable[[float], str]) -> str:
    if amount.total is None:
        return "not known"
    return show(amount.total) + ("+" if amount.unknown else "")


def _is_partial(row: Row) -> bool:
    """Whether a sum that is shown is marked by a plus."""
    return any(
        amount.unknown and amount.total is not None
        for amount in (row.input_tokens, row.output_tokens, row.cost_usd)
    )


def _scale(summary: Summary) -> str:
    ranges = [row.reward_range for row in summary.rows if row.reward_range]
    if all(row.binary for row in summary.rows):
        return "Every reward is 0 or 1."
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    return f"Rewards are from {number(low)} to {number(high)}."

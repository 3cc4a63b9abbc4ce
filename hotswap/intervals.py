"""How sure a mean is: 95% intervals in closed form, and pass@k. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

LEVEL = 0.95

LARGE = 1e100
"""Rewards beyond this are scaled down before they are squared."""
EXACT_UP_TO = 60
"""Degrees of freedom up to which Student's t is computed exactly."""


@dataclass(frozen=True)
class Interval:
    """Where a mean lies, and by which method that was said."""

    low: float
    high: float
    method: str


def mean_interval(rewards_by_task: Collection[Sequence[float]]) -> Interval | None:
    """Get the interval of the mean over all rollouts from each task's rewards; null where none can be had.

    An end that is beyond all numbers (1.8e308) is none either.

    * One attempt a task, all 0 or 1: Wilson's.
    * Else: cluster-robust by task, with Student's t; for rewards that are all 0 or 1 clipped to [0, 1], for
      others not clipped, since their scale is not known. Where it has no width and all rewards are 0 or 1:
      Wilson's over the tasks, each counted once. Where it has none and they are other numbers: null.
    """
    groups = [group for group in rewards_by_task if group]
    binary = all(value in (0, 1) for group in groups for value in group)
    if binary and groups and all(len(group) == 1 for group in groups):
        return wilson(sum(group[0] == 1 for group in groups), len(groups))
    if len(groups) < 2:
        return None
    interval = clustered(groups)
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return None
    if interval.low < interval.high:
        return _clip(interval) if binary else interval
    if not binary:
        return None
    right = math.fsum(math.fsum(group) / len(group) for group in groups)
    return Interval(*_wilson(right, len(groups)), "Wilson over tasks")


def wilson(successes: int, n: int) -> Interval:
    """Get Wilson's score interval of a share.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927),
    209-212.
    """
    return Interval(*_wilson(successes, n), "Wilson")


def clustered(groups: Sequence[Sequence[float]]) -> Interval:
    """Get the interval of the mean over all values, where the values of one group belong together.

    Its ends are infinite where they are beyond all numbers.

    The variance of the mean is G/(G-1) * sum over groups of (sum of deviations in the group)^2 / N^2, with G
    groups and N values (Liang and Zeger, Biometrika 73 (1986), 13-22, for a mean alone); the quantile is
    Student's with G-1 degrees of freedom. With equal groups this is the t interval of their means.
    """
    largest = max(abs(value) for group in groups for value in group)
    if largest > LARGE:  # squares would be beyond all numbers: count in units of a power of 2, which is exact
        unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)
        small = clustered([[value / unit for value in group] for group in groups])
        return Interval(small.low * unit, small.high * unit, small.method)
    count = sum(len(group) for group in groups)
    mean = math.fsum(value for group in groups for value in group) / count
    squares = math.fsum(math.fsum(value - mean for value in group) ** 2 for group in groups)
    error = math.sqrt(squares * len(groups) / (len(groups) - 1)) / count
    half = t_quantile(0.5 + LEVEL / 2, len(groups) - 1) * error
    if half < 1e-12 * max(1.0, abs(mean)):
        half = 0.0  # what is left of rounding is no width
    return Interval(mean - half, mean + half, "t, clustered by task")


def mean_of(values: Iterable[float], count: int) -> float:
    """Get the sum of values over `count`, of which there are at least as many; exact before it is rounded."""
    known = list(values)
    try:
        return math.fsum(known) / count
    except OverflowError:  # their sum is beyond all numbers, and their mean is not
        return math.fsum(value / count for value in known)


def t_quantile(p: float, df: int) -> float:
    """Get the quantile of Student's t distribution, for p >= 0.5.

    Up to 60 degrees of freedom by inverting the exact distribution function (Abramowitz and Stegun, Handbook
    of Mathematical Functions, 26.7.3 and 26.7.4); above by the expansion 26.7.5, there good to 7 digits.
    """
    if df > EXACT_UP_TO:
        return _t_expansion(NormalDist().inv_cdf(p), df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def t_cdf(t: float, df: int) -> float:
    """Get the probability that Student's t, with `df` degrees of freedom, is at most `t` (not negative)."""
    angle = math.atan(t / math.sqrt(df))
    square = math.cos(angle) ** 2
    odd = df % 2
    term = total = math.cos(angle) if odd else 1.0
    for step in range(2 + odd, df, 2):
        term *= square * (step - 1) / step
        total += term
    if df == 1:
        total = 0.0
    within = (2 / math.pi) * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 + within / 2


def pass_at(k: int, n: int, right: int) -> float | None:
    """Get the chance that one of `k` attempts is right, unbiased, from `right` of `n`; null where n < k.

    1 - C(n-c, k) / C(n, k): M. Chen et al., Evaluating large language models trained on code (2021), eq. 1.
    """
    if n < k:
        return None
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Get the value below which `share` of the sorted values lie, interpolated; null of none."""
    if not values:
        return None
    at = (len(values) - 1) * share
    below = math.floor(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (at - below)


def _wilson(successes: float, n: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return low, 1.0 if successes == n else min(1.0, centre + half)


def _clip(interval: Interval) -> Interval:
    if interval.low >= 0 and interval.high <= 1:
        return interval
    return Interval(max(0.0, interval.low), min(1.0, interval.high), f"{interval.method}, clipped to 0..1")


def _t_expansion(z: float, n: int) -> float:
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / n ** (power + 1) for power, term in enumerate(terms))

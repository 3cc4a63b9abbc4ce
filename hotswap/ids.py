"""Ids of rollouts and names of runs: unique, sorted by time, safe as the name of a file. Standard library only."""

from __future__ import annotations

import secrets
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no I, L, O and U, so that an id can be read out and typed."""
TIME_DIGITS, RANDOM_DIGITS = 9, 7


def new_id() -> str:
    """Get a rollout's id: unique, short, and sorted by the millisecond in which it was made."""
    return _digits(time.time_ns() // 1_000_000, TIME_DIGITS) + _random(RANDOM_DIGITS)


def new_name(taskset: str) -> str:
    """Get a run's name: `gsm8k--20261130-161500-k3f9`, in local time."""
    safe = (
        "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in taskset).strip("-.")
        or "run"
    )
    return f"{safe[:60]}--{time.strftime('%Y%m%d-%H%M%S')}-{_random(4).lower()}"


def _random(digits: int) -> str:
    return _digits(secrets.randbits(5 * digits), digits)


def _digits(number: int, digits: int) -> str:
    return "".join(ALPHABET[number >> 5 * at & 31] for at in reversed(range(digits)))

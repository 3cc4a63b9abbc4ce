"""Misbehaviour on purpose: the proxy treats a program as providers do on a bad day, so that its robustness is a number.

    --chaos 429:0.1,cut:0.05,slow:0.1

Each call of a rollout draws once, from the run's seed, the rollout's task and attempt, and the number of the request:
the same run misbehaves in the same places. What was done is marked on the call.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hotswap.dialects import Dialect

SLOW_S = 5.0
"""How long a slow answer is held back."""
STATUSES = ("400", "401", "408", "429", "500", "502", "503", "504", "529")
KINDS = (*STATUSES, "cut", "drop", "slow")
"""What can be done to a call: it is answered with a status, its answer is cut in the middle, its connection is dropped
before an answer, its answer comes late."""
RETRY_AFTER_S = 1
TYPES = {"400": "bad_request", "401": "auth", "408": "timeout", "429": "rate_limit", "503": "overloaded"}
TYPES |= {"504": "timeout", "529": "overloaded"}
"""What a status stands for; any other for `server`."""


class Misbehaviour(NamedTuple):
    """An error as a provider would answer it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def misbehave(fault: str, dialect: Dialect) -> Misbehaviour | None:
    """Get what takes an answer's place; null where nothing does."""
    if not fault.isdigit():
        return None
    status, headers = int(fault), {"Content-Type": "application/json"}
    if fault == "429":
        headers["Retry-After"] = str(RETRY_AFTER_S)
    words = "put in on purpose, by the setting chaos"
    return Misbehaviour(status, headers, dialect.write_error(status, TYPES.get(fault, "server"), words))


class Chaos:
    """The misbehaviour towards one rollout. `shares` says how often each is drawn, of all requests; `seed` is what
    makes the draws its own."""

    def __init__(self, shares: Mapping[str, float], seed: str = "") -> None:
        self.shares = shares
        self._random = random.Random(seed)

    def draw(self) -> str | None:
        """Get what is done to the next request; null: it is left alone."""
        at = self._random.random()
        for kind, share in self.shares.items():
            if at < share:
                return kind
            at -= share
        return None


def parse_chaos(text: str) -> dict[str, float]:
    """Read `KIND:SHARE,...`. Raises ValueError with what is wrong and what would be right."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        kind, colon, number = part.strip().partition(":")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no misbehaviour: one of {', '.join(KINDS)}")
        if kind in shares:
            raise ValueError(f"{kind} is given twice")
        shares[kind] = _share(kind, number if colon else "")
    if sum(shares.values()) > 1:
        raise ValueError(f"the shares add up to {sum(shares.values()):g}: at most 1")
    return shares


def _share(kind: str, number: str) -> float:
    try:
        share = float(number)
    except ValueError:
        share = -1
    if not 0 < share <= 1:
        raise ValueError(
            f"{kind}:{number} has no share of the calls: a number above 0 and up to 1, as {kind}:0.1"
        )
    return share

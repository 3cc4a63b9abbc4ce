"""Limits of one rollout, the budget of a whole run, and what a call cost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Literal

from hotswap.contracts.model import Prices
from hotswap.messages import Usage

MILLION = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What one rollout may use; null is no limit."""

    turns: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None

    def over(self, turns: int, tokens: int, cost_usd: float, seconds: float) -> str | None:
        """Get the name of the first limit that is used up; null where more may be used."""
        used = {"turns": (turns, self.turns), "tokens": (tokens, self.tokens)}
        used |= {"cost": (cost_usd, self.cost_usd), "seconds": (seconds, self.seconds)}  # type: ignore[dict-item]
        return next(
            (name for name, (spent, limit) in used.items() if limit is not None and spent >= limit), None
        )


@dataclass
class Budget:
    """What a whole run may use, and what it has used. One for a run, shared by all its sessions."""

    cost_usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    """Counted from when the budget was made."""
    finish: bool = False
    """Rollouts in flight may go on when it is used up."""
    spent_usd: float = 0.0
    spent: Usage = field(default_factory=Usage)
    started: float = field(default_factory=time.monotonic)

    def spend(self, usage: Usage, cost_usd: float | None) -> None:
        """Add what one call, a judge or a simulated user used."""
        self.spent = self.spent + usage
        self.spent_usd += cost_usd or 0.0

    def over(self) -> str | None:
        """Get `"budget"` once any part of it is used up."""
        limits = Limits(tokens=self.tokens, cost_usd=self.cost_usd, seconds=self.seconds)
        over = limits.over(0, self.spent.total, self.spent_usd, time.monotonic() - self.started)
        return "budget" if over else None


@dataclass
class WindDown:
    """The end of a run before its work is done: programs that are running are ended, no rollout begins."""

    reason: str | None = None
    """`budget` or `interrupted`; null while the run goes on."""
    event: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where a person ends the run: then what waits to be scored is given up too."""
    phase: Literal["preparing", "playing", "concluding"] = "preparing"
    """What the run is at. Only playing can be wound down; concluding is short, and is not broken off."""

    def begin(self, reason: str) -> None:
        """Begin it. The first reason stays, but for a person's interrupt: that is obeyed after a budget's end, too."""
        if self.reason is None or reason == "interrupted":
            self.reason = reason
            self.event.set()
        if reason == "interrupted":
            self.interrupted.set()


def cost(usage: Usage, prices: Prices | None) -> float | None:
    """Get what a call cost in US dollars; null where the prices or the tokens are not known.

    Tokens read from a cache or written to one cost what other input costs where they have no price.
    """
    if prices is None or usage.input is None or usage.output is None:
        return None
    prices = prices.at(usage.input)
    if prices.input is None or prices.output is None:
        return None
    cached, written = usage.cached or 0, usage.cache_write or 0
    plain = max(0, usage.input - cached - written)
    dollars = plain * prices.input + usage.output * prices.output
    dollars += cached * (prices.input if prices.cached is None else prices.cached)
    dollars += written * (prices.input if prices.cache_write is None else prices.cache_write)
    return dollars / MILLION

"""What a run has come to so far: plain numbers that a live view, a log or a notebook can read at any time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hotswap.rollout import Rollout
from hotswap.trace import Trace


@dataclass
class Progress:
    """The state of a run. Written by the run alone; reading it at any moment is safe."""

    planned: int = 0
    running: dict[str, Rollout] = field(default_factory=dict)
    """By rollout id, in order of their start."""
    scored: int = 0
    reward_sum: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    """Rollouts without a score, by blame."""
    retried: int = 0
    tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown_costs: int = 0
    """Rollouts of unknown cost."""
    latest_fault: str | None = None
    began: float | None = None
    """When the first rollout started, on the clock of `time.monotonic`; null while all is made ready for it."""

    @property
    def done(self) -> int:
        return self.scored + self.errors.total()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first rollout started: to fetch a model, and to start it, is no part of the pace."""
        return 0.0 if self.began is None else time.monotonic() - self.began

    @property
    def mean_reward(self) -> float | None:
        return self.reward_sum / self.scored if self.scored else None

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take at the pace so far; null before the first rollout is done."""
        return self.elapsed_s / self.done * (self.planned - self.done) if self.done else None

    def start(self, rollout: Rollout) -> None:
        if self.began is None:
            self.began = time.monotonic()
        self.running[rollout.id] = rollout

    def retry(self, rollout: Rollout, trace: Trace, mask: Callable[[str], str]) -> None:
        """`mask` takes the secrets out of text, here and below: an error may quote the program."""
        self.retried += 1
        self._note_fault(rollout, trace, mask)

    def finish(self, rollout: Rollout, trace: Trace, mask: Callable[[str], str]) -> None:
        self.running.pop(rollout.id, None)
        if trace.outcome == "scored":
            self.scored += 1
            self.reward_sum += trace.reward or 0.0
        else:
            self.errors[trace.error.blame if trace.error else "hotswap"] += 1
        if trace.cost_usd is None:
            self.unknown_costs += 1
        self.cost_usd += trace.cost_usd or 0.0
        self.tokens += trace.usage.total
        self.output_tokens += trace.usage.output or 0
        self._note_fault(rollout, trace, mask)

    def _note_fault(self, rollout: Rollout, trace: Trace, mask: Callable[[str], str]) -> None:
        if trace.error is not None:
            first_line = trace.error.message.splitlines()[0] if trace.error.message else trace.error.type
            self.latest_fault = f"{rollout.task.id}: {trace.error.blame}: {mask(first_line)}"

"""The recorders of the rollouts that a run is playing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from hotswap.errors import StoreError
from hotswap.exchanges.recorder import About, Recorder
from hotswap.masking import Masker
from hotswap.proxy.tape import Tape
from hotswap.store import EXCHANGES


class Veil:
    """Takes the secrets out of bytes: the run's, and the one that the rollout's program was given as a key."""

    def __init__(self, masker: Masker) -> None:
        self._own = Masker()
        self._masker = masker

    def hide(self, secret: str) -> None:
        """Know the program's key."""
        self._own.add("session", secret)

    def __call__(self, content: bytes) -> bytes:
        return self._masker.raw(self._own.known(content))


class Recorders:
    """One recorder for each rollout in play."""

    def __init__(self, run: Path, masker: Masker, on: bool) -> None:
        """Where it is not `on`, nothing is recorded."""
        self._folder = run / EXCHANGES
        self._masker = masker
        self._on = on
        self._open: dict[str, tuple[Recorder, Veil]] = {}

    def open(self, about: About) -> Callable[[Tape], None] | None:
        """Begin to record a rollout, or a further try of it. Get what takes its exchanges."""
        if not self._on:
            return None
        self.close(about.rollout)
        veil = Veil(self._masker)
        recorder = Recorder(self._folder / f"{about.rollout}.zst", about, veil)
        self._open[about.rollout] = (recorder, veil)
        return recorder.append

    def hide(self, rollout: str, secret: str) -> None:
        """Mask what the rollout's program was given as a key."""
        if rollout in self._open:
            self._open[rollout][1].hide(secret)

    def close(self, rollout: str) -> None:
        """End the recording of a rollout. Raises StoreError where not everything could be written."""
        if rollout in self._open:
            self._open.pop(rollout)[0].close()

    def close_all(self) -> None:
        """End those of rollouts that were broken off: no trace stands beside what they may lack."""
        for rollout in list(self._open):
            with contextlib.suppress(StoreError):
                self.close(rollout)

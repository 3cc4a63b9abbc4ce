"""The model `replay:RUN`: which recorded rollout stands for which, and what is wrong before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from shlex import quote
from typing import TYPE_CHECKING, Any

from hotswap import dialects, models
from hotswap.contracts.model import Preset, Prices, Upstream
from hotswap.errors import UsageError
from hotswap.exchanges.cassette import Kept, Recording, open_recording
from hotswap.models import Model
from hotswap.replay.comparing import Rules
from hotswap.replay.matching import Deck
from hotswap.replay.serving import Player
from hotswap.settings.choices import REPLAY, Choice, parse_variant
from hotswap.trace import CellRecord, Trace

if TYPE_CHECKING:
    from hotswap.settings import Settings

LISTED = 3
Wanted = Collection[tuple[str, int]]
"""Tasks and attempts."""


@dataclass(frozen=True)
class How:
    """How a recording answers."""

    rules: Rules
    of: str | None = None
    loose: bool = False
    timed: bool = False

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> How:
        """Read the settings that stand beside the name."""
        rules = Rules(tuple(given.get("ignore") or ()), bool(given.get("exact")))
        timed, loose = given.get("timing") == "recorded", given.get("mode") == "loose"
        return cls(rules, given.get("of"), loose, timed)


@dataclass(frozen=True)
class ReplayModel(Model):
    """A recording in the place of a model."""

    recording: Recording = field(repr=False, compare=False)
    how: How
    live: bool
    """What is not recorded goes to a provider."""

    def rollouts(self, cell: CellRecord) -> Mapping[tuple[str, int], Kept]:
        """Get the recorded rollouts that stand for those of a cell, by task and attempt. Raises UsageError."""
        found = _of(self.recording, self.how.of)
        for what, same in _SAME:
            fitting = [kept for kept in found if same(kept, cell)]
            if not fitting and what and not self.live:
                raise UsageError(self._other(cell, what, found))
            found = fitting or ([] if what else found)
        cells = list(dict.fromkeys(kept.about.cell for kept in found))
        if len(cells) > 1:
            raise UsageError(
                f"{self.name}: {_several(cells)} could stand for {cell.name}. {_choose(cells, self.name)}"
            )
        return {(kept.about.task, kept.about.attempt): kept for kept in found}

    def player(self, cell: CellRecord, task: str, attempt: int) -> Player:
        """Get what answers the requests of a rollout."""
        known = self.rollouts(cell)
        kept = known.get((task, attempt))
        if kept is None:
            return Player(None, self.how.timed, self._lacks(task, attempt, known))
        exchanges = self.recording.load(kept).exchanges
        where = f"task {task!r} attempt {attempt} in {self.recording.name}"
        return Player(Deck(exchanges, self.how.rules, self.how.loose, where), self.how.timed)

    def problems(self, cell: CellRecord, sampling: Mapping[str, Any], wanted: Wanted) -> list[str]:
        """List why a cell cannot be replayed."""
        try:
            known = self.rollouts(cell)
        except UsageError as error:
            return list(error.problems)
        if not self.live and not any(key in known for key in wanted):
            task, attempt = next(iter(wanted))
            return [f"{cell.name}: nothing of it is recorded: {self._lacks(task, attempt, known)}"]
        return [] if self.how.loose or self.live else self._other_sampling(cell, sampling, known)

    def notes(self, cell: CellRecord, wanted: Wanted) -> list[str]:
        """List the rollouts of a cell that are not recorded, in one line."""
        known = self.rollouts(cell)
        missing = [
            f"task {task!r} attempt {attempt}" for task, attempt in wanted if (task, attempt) not in known
        ]
        if not missing:
            return []
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        fate = "all their calls are live" if self.live else "they will have no score"
        listed = f"{', '.join(missing[:LISTED])}{more}"
        return [
            f"{cell.name}: {len(missing)} of {len(wanted)} rollouts are not recorded, and {fate}: {listed}"
        ]

    def _lacks(self, task: str, attempt: int, known: Mapping[tuple[str, int], Kept]) -> str:
        attempts = sorted(number for name, number in known if name == task)
        if not attempts:
            return f"{self.recording.name} has no task {task!r}"
        has = ", ".join(map(str, attempts))
        return f"{self.recording.name} has no attempt {attempt} of task {task!r}, only {has}"

    def _other(self, cell: CellRecord, what: str, found: Sequence[Kept]) -> str:
        has = sorted({str(getattr(kept.about, what)) for kept in found})
        return f"{cell.name}: {self.recording.name} was recorded with {what} {' and '.join(has)}"

    def _other_sampling(
        self, cell: CellRecord, sampling: Mapping[str, Any], known: Mapping[tuple[str, int], Kept]
    ) -> list[str]:
        then = next((kept.about.sampling for kept in known.values()), {})
        other = [f"{name} = {value}" for name, value in sampling.items() if then.get(name) != value]
        if not other:
            return []
        was = ", ".join(
            f"{name} = {then.get(name, 'not set')}" for name in sampling if then.get(name) != sampling[name]
        )
        return [
            f"{cell.name}: this run sets {', '.join(other)}, and the recorded one had {was}: that needs mode=loose"
        ]


class Answered:
    """How many calls of each cell were answered from where, in cells that may be answered from two places."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[int, int]] = {}

    def count(self, model: ReplayModel, trace: Trace) -> dict[str, float]:
        """Count a rollout. Get its metrics; none where all of it comes from the recording."""
        if not model.live:
            return {}
        replayed = sum(call.replayed for call in trace.calls)
        live = len(trace.calls) - replayed
        before = self._calls.get(trace.cell.name, (0, 0))
        self._calls[trace.cell.name] = (before[0] + replayed, before[1] + live)
        return {"replayed_calls": float(replayed), "live_calls": float(live)}

    def lines(self) -> list[str]:
        """Say it, a line for each cell."""
        return [
            f"{cell}: {replayed} calls replayed, {live} live" + (" (mixed)" if replayed and live else "")
            for cell, (replayed, live) in self._calls.items()
        ]


def resolve(choice: Choice, settings: Settings, environment: Mapping[str, str]) -> ReplayModel:
    """Get the model of `-m replay:RUN`. Raises UsageError: there is no such run, or nothing recorded of it."""
    ref, fallback = choice.ref.removeprefix(REPLAY), choice.settings.get("fallback")
    if not ref:
        raise UsageError("replay needs a run: -m replay:RUN, or replay:FILE, or replay:latest")
    how = How.read(choice.settings)
    if how.loose and fallback:
        raise UsageError(f"{choice.ref}: mode=loose answers every request; fallback is for the strict mode")
    recording = open_recording(ref, settings.runs)
    about = _one_model(recording, how.of, choice).about
    if fallback:
        model = models.resolve(fallback, settings.model_tables(), environment)
        return ReplayModel(choice.text, model.preset, model.upstream, model.part, recording, how, live=True)
    upstream = Upstream(
        url="",
        model=about.served,
        dialects=tuple(dialects.known()),
        context=about.context,
        prices=Prices(input=0.0, output=0.0),
    )
    return ReplayModel(choice.text, None, upstream, Preset(), recording, how, live=False)


def _one_model(recording: Recording, of: str | None, choice: Choice) -> Kept:
    found, ref = _of(recording, of), choice.ref
    if not found:
        raise UsageError(f"{ref}: nothing in it is of {of!r}. It has {_several(_models(recording.rollouts))}")
    names = _models(found)
    if len(names) > 1:
        raise UsageError(f"{ref} was recorded with {_several(names)}. {_choose(names, choice.text)}")
    return found[0]


def _models(found: Iterable[Kept]) -> list[str]:
    return list(dict.fromkeys(kept.about.model for kept in found))


def _of(recording: Recording, of: str | None) -> list[Kept]:
    """Get what is of a model or a cell."""
    return [
        kept
        for kept in recording.rollouts
        if of is None or fnmatchcase(kept.about.model, of) or fnmatchcase(kept.about.cell, of)
    ]


def _several(names: Sequence[str]) -> str:
    return " and ".join(names)


def _choose(names: Sequence[str], typed: str) -> str:
    """Say what to type in the place of what was typed, for each of several."""
    ref, variant = parse_variant(typed)
    variants = [{**variant, "of": name.replace(",", "*")} for name in names]
    texts = [",".join((ref, *(f"{name}={value}" for name, value in one.items()))) for one in variants]
    return f"Choose one: {' or '.join(f'-m {quote(text)}' for text in texts)}"


def _settings(kept: Kept, kind: str) -> Any:
    return kept.about.settings.get(kind, {})


_SAME: Sequence[tuple[str, Callable[[Kept, CellRecord], bool]]] = (
    ("taskset", lambda kept, cell: kept.about.taskset == cell.taskset),
    ("harness", lambda kept, cell: kept.about.harness == cell.harness),
    ("", lambda kept, cell: _settings(kept, "taskset") == cell.settings.get("taskset", {})),
    ("", lambda kept, cell: _settings(kept, "harness") == cell.settings.get("harness", {})),
    ("", lambda kept, cell: kept.about.runtime == cell.runtime),
)
"""In what a recorded rollout and one that is played must be the same (by name), or are rather than not."""

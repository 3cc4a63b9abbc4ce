"""A run before it begins: everything resolved and checked, nothing written, no model called.

Loads the tasksets in their worker, selects the tasks, resolves the models and their keys, builds harnesses and
runtimes, and checks that each pairing can work. All that is wrong is one UsageError. `run.execute` plays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from hotswap import capture, models, replay
from hotswap.contracts.harness import Harness
from hotswap.contracts.model import Say, Upstream
from hotswap.contracts.options import Part
from hotswap.contracts.runtime import Runtime
from hotswap.contracts.task import Task
from hotswap.errors import MissingKey, UsageError
from hotswap.limits import Limits
from hotswap.models import Model
from hotswap.plan import Cell, cells, pairing_problems, select
from hotswap.settings import Resolved, Settings
from hotswap.settings.choices import Choice, choose
from hotswap.settings.layers import Given, Layer
from hotswap.store import refuse_taken
from hotswap.trace import CellRecord
from hotswap.worker.worker import OpenTaskset, Worker

SLOW_S, AGAIN_S = 1.5, 5.0
"""Loading that takes longer is announced, and so often it is said how far it has come."""

STAND_IN = "a-key-that-is-not-set"
"""In the place of a key where a run is only looked at."""


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its parts built."""

    cell: Cell
    harness: Harness
    runtime: Runtime
    model: Model
    sampling: Mapping[str, Any]
    """What the run sets for the model's answers."""

    @property
    def record(self) -> CellRecord:
        """The cell as it stands in a trace."""
        cell = self.cell
        return CellRecord(
            name=cell.name,
            taskset=cell.taskset.name,
            harness=cell.harness.name,
            harness_version=self.harness.version,
            model=cell.model.ref,
            runtime=cell.runtime.name,
            settings={**cell.settings, **({"sampling": dict(self.sampling)} if self.sampling else {})},
        )


@dataclass(frozen=True)
class PlannedRun:
    """All that a run will do."""

    resolved: Resolved
    cells: tuple[PlannedCell, ...]
    tasks: Mapping[str, list[Task]]
    """The selected ones, by the text of the taskset's choice."""
    tasksets: Mapping[str, OpenTaskset]
    """By the same."""
    missing_keys: tuple[str, ...] = ()
    """Why it cannot be played after all, where it was planned without the keys of its models."""

    @property
    def title(self) -> str:
        """What runs, in a few words: `capitals: model smollm2, harness loop, runtime local`."""
        return _title([each.cell for each in self.cells])

    @property
    def planned(self) -> dict[str, int]:
        """The number of rollouts by cell."""
        attempts = self.resolved.settings.attempts
        return {each.cell.name: attempts * len(self.tasks[each.cell.taskset.text]) for each in self.cells}

    @property
    def limits(self) -> Limits:
        limits = self.resolved.settings.limits
        return Limits(limits.turns, limits.tokens, limits.cost, limits.seconds)


@asynccontextmanager
async def planned(
    resolved: Resolved, environment: Mapping[str, str], say: Say = lambda _: None, keyless: bool = False
) -> AsyncIterator[PlannedRun]:
    """Get a run ready to be played, for as long as the block runs. Raises UsageError with all that is wrong.

    With `keyless`, a key that is not set is noted in `missing_keys`: such a run is there to be looked at.
    """
    if not resolved.chosen["taskset"]:
        raise UsageError("no taskset chosen: name one first, as in `capitals`")
    async with Worker() as worker:
        tasksets = await _open(resolved, worker)
        resolved = _with_model(resolved, tasksets, environment)
        plan = cells(resolved.chosen)
        missing: list[str] = []
        found = _models(resolved, environment, missing if keyless else None)
        parts = _build(plan)
        reading = _Reading(_title(plan), say)
        async with reading.said_while_slow():
            tasks = {
                text: await _select(taskset, resolved.settings, reading) for text, taskset in tasksets.items()
            }
        ready = tuple(
            PlannedCell(
                cell,
                cast(Harness, parts["harness", cell.harness.text]),
                cast(Runtime, parts["runtime", cell.runtime.text]),
                found[cell.model.text],
                resolved.sampling(cell.model),
            )
            for cell in plan
        )
        _check(resolved, ready, tasks)
        _say_what_is_not_recorded(resolved, ready, tasks, say)
        _say_what_is_short(resolved, tasks, say)
        yield PlannedRun(resolved, ready, tasks, tasksets, tuple(dict.fromkeys(missing)))


def _title(plan: Sequence[Cell]) -> str:
    names = {
        kind: " and ".join(dict.fromkeys(getattr(cell, kind).text for cell in plan))
        for kind in ("taskset", "model", "harness", "runtime")
    }
    parts = (f"{kind} {names[kind]}" for kind in ("model", "harness", "runtime"))
    return f"{names['taskset']}: {', '.join(parts)}"


@dataclass
class _Reading:
    """Says what takes so long, and how far it has come: a data set may have to be fetched, or read to its end."""

    title: str
    say: Say
    read: int = 0

    @asynccontextmanager
    async def said_while_slow(self) -> AsyncIterator[None]:
        saying = asyncio.ensure_future(self._say_again_and_again())
        try:
            yield
        finally:
            saying.cancel()

    async def counted(self, tasks: AsyncGenerator[Task, None]) -> AsyncGenerator[Task, None]:
        async with aclosing(tasks):
            async for task in tasks:
                self.read += 1
                yield task

    async def _say_again_and_again(self) -> None:
        await asyncio.sleep(SLOW_S)
        while True:
            self.say(f"{self.title}: loading the tasks, {self.read:,} read so far")
            await asyncio.sleep(AGAIN_S)


async def _select(taskset: OpenTaskset, settings: Settings, reading: _Reading) -> list[Task]:
    async with aclosing(reading.counted(taskset.tasks(_enough(settings)))) as tasks:
        return await select(tasks, settings, endless=taskset.info.endless)


def _say_what_is_short(resolved: Resolved, tasks: Mapping[str, list[Task]], say: Say) -> None:
    """Say where there are fewer tasks than a number that was asked for."""
    settings = resolved.settings
    what = "were selected" if settings.select or settings.exclude else "are all that it has"
    for text, selected in tasks.items():
        if settings.tasks is not None and len(selected) < settings.tasks:
            say(f"taskset {text!r}: {settings.tasks} tasks were asked for (-n), and {len(selected)} {what}")


def _say_what_is_not_recorded(
    resolved: Resolved, ready: Sequence[PlannedCell], tasks: Mapping[str, list[Task]], say: Say
) -> None:
    for each in ready:
        if isinstance(each.model, replay.ReplayModel):
            for note in each.model.notes(each.record, _wanted(resolved, each, tasks)):
                say(note)


def _wanted(resolved: Resolved, each: PlannedCell, tasks: Mapping[str, list[Task]]) -> list[tuple[str, int]]:
    """Get the tasks and attempts of a cell."""
    attempts = range(resolved.settings.attempts)
    return [(task.id, attempt) for attempt in attempts for task in tasks[each.cell.taskset.text]]


async def _open(resolved: Resolved, worker: Worker) -> dict[str, OpenTaskset]:
    """Open the chosen tasksets, after checking that they have the settings they are given."""
    choices = resolved.chosen["taskset"]
    known = {}
    for choice in choices:
        assert choice.entry is not None
        known[choice.name] = [option.name for option in (await worker.describe(choice.entry)).options]
    resolved.check("taskset", known)
    opened = {}
    for choice in choices:
        assert choice.entry is not None
        opened[choice.text] = await worker.open(choice.entry, choice.settings)
    return opened


def _with_model(
    resolved: Resolved, tasksets: Mapping[str, OpenTaskset], environment: Mapping[str, str]
) -> Resolved:
    """Choose the demonstration model where every taskset names the same; any other run must name its own."""
    if resolved.chosen["model"]:
        return resolved
    names = {taskset.info.demo_model for taskset in tasksets.values()}
    name = names.pop() if len(names) == 1 else None
    if name is None:
        raise models.none_chosen(environment, resolved.settings.model_tables())
    chosen = {**resolved.chosen, "model": choose("model", (name,), resolved.layers)}
    said = Given(("model", "name"), name, "demonstration model of the taskset")
    settings = resolved.settings.model_copy(
        update={"model": resolved.settings.model.model_copy(update={"name": (name,)})}
    )
    layers = (Layer("user", (said,)), *resolved.layers)
    return replace(resolved, chosen=chosen, settings=settings, layers=layers)


def _models(
    resolved: Resolved, environment: Mapping[str, str], missing: list[str] | None
) -> dict[str, Model]:
    """Resolve each model. What keys are missing is noted, where there is a list for it."""
    found: dict[str, Model] = {}
    problems: list[str] = []
    for choice in resolved.chosen["model"]:
        try:
            found[choice.text] = _model(choice, resolved.settings, environment)
        except MissingKey as error:
            if missing is None:
                problems += error.problems
                continue
            missing += error.problems
            with_key = {**environment, error.variable: STAND_IN}
            found[choice.text] = _model(choice, resolved.settings, with_key)
        except UsageError as error:
            problems += error.problems
    if problems:
        raise UsageError(*problems)
    return found


def _model(choice: Choice, settings: Settings, environment: Mapping[str, str]) -> Model:
    if choice.is_replay:
        return replay.resolve(choice, settings, environment)
    return models.resolve(choice.ref, settings.model_tables(), environment, choice.settings)


def _build(plan: tuple[Cell, ...]) -> dict[tuple[str, str], Part]:
    """Build every harness and runtime once, by kind and text, and ask the runtimes whether this machine has them."""
    parts: dict[tuple[str, str], Part] = {}
    problems: list[str] = []
    for choice in {(choice.kind, choice.text): choice for cell in plan for choice in cell.choices}.values():
        if choice.kind not in ("harness", "runtime"):
            continue
        try:
            part = parts[choice.kind, choice.text] = choice.build()
            if isinstance(part, Runtime):
                part.check()
        except UsageError as error:
            problems += [f"{choice.kind} {choice.name!r}: {problem}" for problem in error.problems]
    if problems:
        raise UsageError(*problems)
    return parts


def _enough(settings: Settings) -> int | None:
    """How many tasks have to be read; null where all of them may be."""
    return None if settings.select or settings.exclude or settings.shuffle else settings.tasks


def _check(resolved: Resolved, ready: tuple[PlannedCell, ...], tasks: Mapping[str, list[Task]]) -> None:
    """Refuse what cannot work before anything runs."""
    problems = []
    for each in ready:
        upstream = each.model.upstream
        wanted = tasks[each.cell.taskset.text]
        spoken = upstream.dialects if resolved.settings.capture is None else (capture.DIALECT,)
        problems += _capture_problems(each) if resolved.settings.capture else []
        problems += pairing_problems(each.cell, type(each.harness), spoken, wanted)
        problems += _environment_problems(each, wanted)
        if isinstance(each.model, replay.ReplayModel):
            problems += each.model.problems(each.record, each.sampling, _wanted(resolved, each, tasks))
    if resolved.settings.output is not None:
        refuse_taken(resolved.settings.output)
    for name in ("budget", "limits"):
        if getattr(resolved.settings, name).cost is not None:
            unpriced = {each.model.name for each in ready if not _is_priced(each.model.upstream)}
            known = "its price is not known: state it, in [models.NAME] prices, or leave the limit out"
            problems += [
                f"{name}.cost cannot be held with model {model!r}: {known}" for model in sorted(unpriced)
            ]
    if problems:
        raise UsageError(*dict.fromkeys(problems))


def _environment_problems(each: PlannedCell, tasks: Sequence[Task]) -> list[str]:
    """Say which tasks ask for a place that the runtime cannot give: the first one of each reason."""
    refused: dict[str, list[str]] = {}
    for task in tasks:
        why = each.runtime.refuses(task.environment) if task.environment else None
        if why is not None:
            refused.setdefault(why, []).append(task.id)
    return [
        f"{each.cell.name}: task {ids[0]}" + (f" and {len(ids) - 1} more" if ids[1:] else "") + f": {why}"
        for why, ids in refused.items()
    ]


def _capture_problems(each: PlannedCell) -> list[str]:
    """Say why a cell's model cannot give the ids of tokens; what nobody knows beforehand is tried."""
    model = each.model
    if capture.DIALECT not in model.upstream.dialects:
        spoken = " and ".join(model.upstream.dialects)
        why = f"only the chat route of an endpoint gives ids, and this one speaks {spoken}"
    elif isinstance(model, replay.ReplayModel):
        why = "what was recorded has no ids of tokens"
    elif not model.part.token_ids:
        why = "its chat route gives no ids of tokens; llama.cpp's and vLLM's do"
    else:
        return []
    return [f"{each.cell.name}: --capture tokens does not work with model {model.name!r}: {why}"]


def _is_priced(upstream: Upstream) -> bool:
    prices = upstream.prices
    return prices is not None and prices.input is not None and prices.output is not None

"""`--dry-run`: each setting and where it comes from, the cells, the number of rollouts. Calls no model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from hotswap.cli._columns import columns
from hotswap.cli._parts import written
from hotswap.cli._say import count, visible
from hotswap.planned import PlannedRun, planned
from hotswap.settings import Resolved


def show(resolved: Resolved) -> int:
    """Print it, after all the checks that a run makes, and get the exit code."""

    async def planned_report() -> str:
        async with planned(resolved, os.environ) as run:
            return report(run)

    print(asyncio.run(planned_report()))
    return 0


def report(run: PlannedRun) -> str:
    """Get the text."""
    resolved, cells, tasks = run.resolved, [each.cell for each in run.cells], run.tasks
    settings = columns([*_settings(resolved), *_part_settings(resolved), *_model_sampling(run)])
    attempts = resolved.settings.attempts
    rows = [(cell.name, count(len(tasks[cell.taskset.text]), "task")) for cell in cells]
    total = sum(len(tasks[cell.taskset.text]) for cell in cells) * attempts
    each = f", {count(attempts, 'attempt')} each" if attempts > 1 else ""
    summary = f"{count(total, 'rollout')}: {count(len(cells), 'cell')}{each}. No model was called."
    return visible("\n".join((settings, "", columns(rows), "", summary)))


def _settings(resolved: Resolved) -> Iterator[tuple[str, str]]:
    for name, value, origin in resolved.rows():
        yield f"{name.removesuffix('.name')} = {written(value)}", origin


def _model_sampling(run: PlannedRun) -> Iterator[tuple[str, str]]:
    """What a model's own preset or table sets where the run sets nothing."""
    for each in {each.model.name: each for each in run.cells}.values():
        for name, value in each.model.upstream.sampling.items():
            if name not in each.sampling and name not in each.cell.model.settings:
                yield f"model.{each.model.name}.{name} = {written(value)}", "the model's preset or table"


def _part_settings(resolved: Resolved) -> Iterator[tuple[str, str]]:
    for choices in resolved.chosen.values():
        for choice in choices:
            for name, value in choice.settings.items():
                yield f"{choice.kind}.{choice.name}.{name} = {written(value)}", choice.origins[name]

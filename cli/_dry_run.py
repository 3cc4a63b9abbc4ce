"""`--dry-run`: each setting and where it comes from, the cells, the number of rollouts. Calls no model.

With `--json`, the same as JSON:

    {"settings": {"tasks": {"value": 5, "origin": "flag -n"}, ...},
     "cells": [{"name": "gsm8k/loop/a/local", "tasks": 5}], "attempts": 2, "rollouts": 10, "missing_keys": []}
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

from hotswap.cli._columns import columns
from hotswap.cli._parts import written
from hotswap.cli._say import count, progress_console, visible
from hotswap.columns import misbehaviour
from hotswap.planned import PlannedRun, planned
from hotswap.settings import Resolved


def show(resolved: Resolved, as_json: bool = False) -> int:
    """Print it, after all the checks that a run makes, and get the exit code."""
    console = progress_console()

    async def planned_report() -> str:
        async with planned(
            resolved, os.environ, lambda text: console.print(visible(text), soft_wrap=True), keyless=True
        ) as run:
            return json.dumps(facts(run), indent=2, default=str) if as_json else report(run)

    print(asyncio.run(planned_report()))
    return 0


def report(run: PlannedRun) -> str:
    """Get the text."""
    found = facts(run)
    settings = [
        (f"{name} = {written(said['value'])}", said["origin"]) for name, said in found["settings"].items()
    ]
    rows = [(cell["name"], count(cell["tasks"], "task")) for cell in found["cells"]]
    each = f", {count(found['attempts'], 'attempt')} each" if found["attempts"] > 1 else ""
    summary = f"{count(found['rollouts'], 'rollout')}: {count(len(rows), 'cell')}{each}. No model was called."
    if run.resolved.settings.chaos:
        summary += f"\n{misbehaviour(run.resolved.settings.chaos)}."
    stops = [f"A run would stop here: {problem}" for problem in run.missing_keys]
    return visible("\n".join((columns(settings), "", columns(rows), "", summary, *stops)))


def facts(run: PlannedRun) -> dict[str, Any]:
    """Get what is said, as JSON values but for paths."""
    resolved, cells = run.resolved, [each.cell for each in run.cells]
    settings = (*_settings(resolved), *_part_settings(resolved), *_model_sampling(run))
    return {
        "settings": {name: {"value": value, "origin": origin} for name, value, origin in settings},
        "cells": [{"name": cell.name, "tasks": len(run.tasks[cell.taskset.text])} for cell in cells],
        "attempts": resolved.settings.attempts,
        "rollouts": sum(run.planned.values()),
        "missing_keys": list(run.missing_keys),
    }


def _settings(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    for name, value, origin in resolved.rows():
        yield name.removesuffix(".name"), value, origin


def _model_sampling(run: PlannedRun) -> Iterator[tuple[str, Any, str]]:
    """What a model's own preset or table sets where the run sets nothing."""
    for each in {each.model.name: each for each in run.cells}.values():
        for name, value in each.model.upstream.sampling.items():
            if name not in each.sampling and name not in each.cell.model.settings:
                yield f"model.{each.model.name}.{name}", value, "the model's preset or table"


def _part_settings(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    for choices in resolved.chosen.values():
        for choice in choices:
            for name, value in choice.settings.items():
                yield f"{choice.kind}.{choice.name}.{name}", value, choice.origins[name]

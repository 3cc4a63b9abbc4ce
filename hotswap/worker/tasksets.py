"""The tasksets of a worker: described from their class, or built with their settings and checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotswap.contracts.options import MISSING, options
from hotswap.contracts.taskset import ScoringMethod, Taskset
from hotswap.errors import UsageError
from hotswap.registry import Entry, load
from hotswap.scoring import plain
from hotswap.worker.tasks import Reading, explained


@dataclass
class Opened:
    """A taskset with its settings, ready to be asked."""

    name: str
    taskset: Taskset
    methods: list[ScoringMethod]
    readings: dict[int, Reading] = field(default_factory=dict)


def build(entry: Entry, settings: Mapping[str, Any]) -> Opened:
    """Get a taskset ready. Raises UsageError for settings and for methods that cannot work."""
    name, cls = entry.name, _class(entry)
    try:
        taskset = cls(**settings)
    except UsageError as error:
        raise UsageError(*(f"taskset {name!r}: {problem}" for problem in error.problems)) from error
    except (Exception, SystemExit) as error:
        raise explained(f"taskset {name!r} cannot be built", error) from error
    methods = taskset.scoring()
    problems = [problem for method in methods if (problem := _unusable(name, method))]
    if not any(method.scoring.kind == "reward" and method.scoring.weight for method in methods):
        problems.append(
            f"taskset {name!r} has no @reward with a weight, so that no rollout on it could be scored"
        )
    if unsupported := cls.unsupported_methods():
        problems.append(
            f"taskset {name!r} defines {' and '.join(unsupported)}, which {_are(unsupported)} not supported yet: "
            "only load and scoring functions are called"
        )
    if problems:
        raise UsageError(*problems)
    return Opened(name, taskset, methods)


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _class(entry: Entry) -> type[Taskset]:
    cls = load(entry)
    if not issubclass(cls, Taskset):
        raise UsageError(f"{entry.target} is no taskset")
    return cls


def _unusable(name: str, method: ScoringMethod) -> str | None:
    weight, limit = method.scoring.weight, method.scoring.timeout_s
    if not (isinstance(weight, int | float) and abs(weight) < float("inf")):
        return f"taskset {name!r}: {method.name} has the weight {weight!r}, which is not a finite number"
    if not (isinstance(limit, int | float) and 0 < limit < float("inf")):
        return f"taskset {name!r}: {method.name} has timeout_s={limit!r}, which is no number of seconds"
    return None


def describe(entry: Entry) -> dict[str, Any]:
    """Get what a taskset's class says of itself, as JSON values."""
    cls = _class(entry)
    return {
        "name": entry.name,
        "doc": inspect.getdoc(cls) or "",
        "demo_model": cls.demo_model,
        "endless": cls.endless,
        "options": [
            {
                "name": option.name,
                "type": option.type_name,
                "required": option.required,
                "default": None if option.default is MISSING else plain(option.default),
                "doc": option.doc,
            }
            for option in options(cls)
        ],
        "scoring": [
            {"name": method, "kind": scoring.kind, "weight": scoring.weight, "timeout_s": scoring.timeout_s}
            for method, scoring in cls.scoring_methods().items()
        ],
    }

"""What a part says of itself: its settings with their sentences. A taskset is asked through its worker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hotswap import registry
from hotswap.contracts.options import MISSING, options
from hotswap.registry import Entry


@dataclass(frozen=True)
class Setting:
    """One setting of a part, for people."""

    name: str
    type: str
    default: str
    """As it would be written, or `required`."""
    doc: str


def settings_of(entry: Entry) -> tuple[Setting, ...]:
    """Get a part's settings. Raises UsageError where it cannot be imported."""
    if entry.kind == "taskset":
        return _ask_worker(entry)
    cls: Any = registry.load(entry)
    return tuple(
        Setting(option.name, option.type_name, written(option.default), option.doc) for option in options(cls)
    )


def written(value: Any) -> str:
    """Get a value as a person would write it."""
    if value is MISSING:
        return "required"
    if value is None or value == "":
        return "none" if value is None else '""'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _ask_worker(entry: Entry) -> tuple[Setting, ...]:
    import asyncio  # these two cost more than all other lists

    from hotswap.worker.worker import Worker

    async def ask() -> tuple[Setting, ...]:
        async with Worker() as worker:
            info = await worker.describe(entry)
        return tuple(
            Setting(
                option.name,
                option.type,
                "required" if option.required else written(option.default),
                option.doc,
            )
            for option in info.options
        )

    return asyncio.run(ask())

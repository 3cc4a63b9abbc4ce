"""What models could be named here and now: the presets, and which of them could be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from hotswap import registry
from hotswap.contracts.model import Preset
from hotswap.errors import UsageError


@dataclass(frozen=True)
class Available:
    """A preset that could be used now."""

    name: str
    key_variable: str | None
    """The variable that holds its key, and is set; null where it can be used without one."""
    single: bool

    def __str__(self) -> str:
        name = self.name if self.single else f"{self.name}/MODEL"
        return f"{name} ({self.key_variable})" if self.key_variable else name


def available(environment: Mapping[str, str]) -> tuple[Available, ...]:
    """Get the presets whose key is set, and after them those that need none."""
    keyed, free = [], []
    for name, cls in presets().items():
        variable = cls.key_variable
        if variable and environment.get(variable, "").strip():
            keyed.append(Available(name, variable, cls.single))
        elif not variable or not cls.key_required:
            free.append(Available(name, None, cls.single))
    return (*keyed, *free)


def none_chosen(environment: Mapping[str, str], tables: Mapping[str, Mapping[str, Any]]) -> UsageError:
    """Get the error of a run that names no model: what could be named here."""
    found = available(environment)
    keyed = [str(one) for one in found if one.key_variable]
    free = [str(one) for one in found if not one.key_variable]
    variables = [cls.key_variable for cls in presets().values() if cls.key_variable and cls.key_required]
    lines = [
        "no model chosen: pass -m NAME",
        f"keys present for: {', '.join(keyed)}"
        if keyed
        else f"no key present; set one of: {', '.join(variables)}",
        f"no key needed: {', '.join(free)}",
    ]
    if tables:
        lines.append(f"from [models]: {', '.join(sorted(tables))}")
    return UsageError(*lines)


def presets() -> dict[str, type[Preset]]:
    """Get every preset's class by name."""
    return {
        name: cast(type[Preset], registry.load(entry)) for name, entry in registry.entries("preset").items()
    }

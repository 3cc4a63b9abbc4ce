"""The settings of a run: what they are (`fields`), where they come from (`layers`), which win (`resolved`).

The names below load on first use: a command line is read without pydantic, which costs more than a start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotswap.settings.choices import Choice as Choice
    from hotswap.settings.fields import Settings as Settings
    from hotswap.settings.layers import Given as Given
    from hotswap.settings.resolved import Resolved as Resolved
    from hotswap.settings.resolved import resolve as resolve

_HOMES = {
    "Choice": "choices",
    "Given": "layers",
    "Resolved": "resolved",
    "Settings": "fields",
    "resolve": "resolved",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hotswap.settings' has no attribute {name!r}")
    return getattr(import_module(f"hotswap.settings.{_HOMES[name]}"), name)

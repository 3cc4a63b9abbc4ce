"""Write resolved settings as a TOML file that needs no other layer.

TOML has no null: it is written as "none", which every setting that may be null reads back. Where the run was
written (`output`) is left out: to run it again takes another place. Secrets are masked: what an address carries
beside the place, and text under a name that says so. A run that would need such a value is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hotswap.masking import is_secret_name, masked_url
from hotswap.settings.choices import Choice
from hotswap.settings.fields import ModelTable, Settings
from hotswap.settings.layers import SELECTORS

HEAD = """\
# The settings of a run, complete: with -f this file alone gives them again. Flags may still change them.
closed = true
"""


def write(settings: Settings, chosen: Mapping[str, Sequence[Choice]]) -> str:
    """Get the text of the file."""
    table = {name: value for name, value in _table(settings).items() if name != "output"}
    table["models"] = {name: _set(model) for name, model in settings.models.items()}
    for kind in SELECTORS:
        table[kind] = {"name": [choice.text for choice in chosen[kind]]}
        for choice in chosen[kind]:
            own = {name: value for name, value in choice.settings.items() if name not in choice.variant}
            if own:
                table[kind].setdefault(choice.name, {}).update(own)
    return HEAD + "".join(_lines((), masked(table)))


def masked(value: Any, name: str = "") -> Any:
    """Get a setting, or a table of them, without what is secret in it."""
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if not isinstance(value, str) or not value:
        return value
    return f"[secret:{name}]" if is_secret_name(name) else masked_url(value) if name == "url" else value


def _table(section: BaseModel) -> dict[str, Any]:
    return {name: _plain(value) for name, value in section if name not in SELECTORS}


def _plain(value: Any) -> Any:
    return _table(value) if isinstance(value, BaseModel) else str(value) if isinstance(value, Path) else value


def _set(model: ModelTable) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_unset=True)


def _lines(at: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Write a table: its values first, then the tables in it."""
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    values = {name: value for name, value in table.items() if name not in inner}
    if at and (values or not inner):
        yield f"\n[{'.'.join(_key(name) for name in at)}]\n"
    for name, value in values.items():
        yield f"{_key(name)} = {_value(value)}\n"
    for name, value in inner.items():
        yield from _lines((*at, name), value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(str(value))


def _text(value: str) -> str:
    """Quote text: JSON's escapes are TOML's, but for DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""What the readers of all dialects share: values that may be anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from typing import Any

from hotswap.translation.pivot import Asked, Tool, Turn, Untranslatable


def items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list, or a text alone."""
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(one for one in found if isinstance(one, str))


def number(value: Any) -> int | None:
    """A number of tokens."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return int(value) if known else None


def written(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps({} if value is None else value, ensure_ascii=False)


def arguments(value: Any) -> str:
    """The arguments of a call as text; an object that is empty where there are none."""
    return written(value) or "{}"


def as_object(words: str) -> dict[str, Any]:
    """The arguments of a call as the object that some dialects demand; text that is none is kept as `input`."""
    try:
        value = json.loads(words or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"input": words}


def note_rest(fields: Mapping[str, Any], known: Iterable[str], dropped: set[str]) -> None:
    """Note the fields that have no place in the pivot, and say something."""
    dropped |= {
        name for name, value in fields.items() if name not in known and value not in (None, [], {}, "", False)
    }


def note_signs(block: Mapping[str, Any], dropped: set[str]) -> None:
    """Note marks on a part that belong to its dialect alone."""
    dropped |= {name for name in ("cache_control", "citations", "annotations", "logprobs") if block.get(name)}


def data_url(media_type: Any, data: Any) -> str:
    return f"data:{text(media_type) or 'application/octet-stream'};base64,{text(data)}"


def refuse_if(condition: Any, kind: str, message: str) -> None:
    if condition:
        raise Untranslatable(kind, message)


def append(asked: Asked, turn: Turn) -> None:
    """Add a turn that says something."""
    if turn.parts:
        asked.turns.append(turn)


def only(tools: list[Tool], names: Set[tuple[str | None, str]]) -> list[Tool]:
    """The tools that a choice leaves the model."""
    return [tool for tool in tools if (tool.namespace, tool.name) in names]

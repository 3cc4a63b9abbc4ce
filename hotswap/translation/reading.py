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


OFF = frozenset({"store", "background", "logprobs", "echo"})
"""Switches that are off where they are absent: `false` says nothing there."""


def note_rest(fields: Mapping[str, Any], known: Iterable[str], dropped: set[str], below: str = "") -> None:
    """Note the fields that have no place in the pivot, and say something; `below`: where they stand."""
    for name, value in fields.items():
        silent = value in (None, "") or value == [] or value == {} or (value is False and name in OFF)
        if name not in known and not silent:
            dropped.add(f"{below}.{name}" if below else name)


def refuse_all(fields: Mapping[str, Any], which: Mapping[str, str]) -> None:
    """Refuse the fields that are said, each with its reason: without them the request would mean something else."""
    for name, why in which.items():
        refuse_if(fields.get(name), name, why)


def refuse_unless(kind: Any, known: Iterable[Any], name: str) -> None:
    """Refuse a value of which only some can be said elsewhere."""
    refuse_if(kind not in known, name, f"{name} = {kind!r} cannot be said in another dialect")


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


def must_call(asked: Asked) -> None:
    """Refuse a request whose model must call a tool that the endpoint is not offered."""
    choice = asked.choice
    if choice is None or choice.mode not in ("required", "named"):
        return
    offered = {tool.name for tool in asked.tools}
    missing = not offered if choice.mode == "required" else choice.name not in offered
    refuse_if(
        missing,
        "tool_choice",
        f"the model must call {choice.name or 'a tool'}, which only its own provider runs",
    )

"""The metrics that every rollout has, whatever its taskset: read from the trace alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hotswap.messages import ToolCall
from hotswap.remarks import refused
from hotswap.trace import Node, Trace

TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "object": dict,
    "array": list,
    "boolean": bool,
    "integer": (int, float),
    "number": (int, float),
    "null": type(None),
}
"""By the names of JSON Schema. Others, and rules that are not about types, are left to the program."""


def vitals(trace: Trace) -> dict[str, float | None]:
    """Count what people chart for every rollout. All are numbers of things but `empty_answer`, which is 0 or 1."""
    sampled = [node for node in trace.messages if node.sampled]
    asked = [(node, call) for node in sampled for call in node.tool_calls]
    captured = [call.token_break for call in trace.calls if call.token_break is not None]
    listed = trace.box is not None and trace.box.network not in (None, "open", "closed")
    return {
        "turns": float(trace.turns),
        "calls": float(len(trace.calls)),
        "tool_calls": float(len(asked)),
        "invalid_tool_calls": float(sum(not _is_valid(call, _offered(trace, node)) for node, call in asked)),
        "truncated_answers": float(sum(call.finish == "length" for call in trace.calls)),
        "empty_answer": float(not (trace.answer or "").strip()),
        **({"token_breaks": float(sum(captured))} if captured else {}),
        **({"refused_hosts": float(len(refused(trace)))} if listed else {}),
    }


def _offered(trace: Trace, node: Node) -> dict[str, Mapping[str, Any]] | None:
    """The tools that the model could choose from, by name; null where they cannot be told."""
    call = trace.calls[node.call] if node.call is not None and node.call < len(trace.calls) else None
    if call is None or call.input is None:
        return None
    tools = trace.tools.get(call.tools or "", [])
    named: list[dict[str, Any]] = [{**tool, **_inner(tool)} for tool in tools if isinstance(tool, dict)]
    if any("name" not in tool or "tools" in tool for tool in named):  # tools inside of others
        return None
    found: dict[str, Mapping[str, Any]] = {str(tool["name"]): tool for tool in named}
    return found if found or not tools else None


def _inner(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a tool says of itself one level down, as in chat; empty where it says all at once."""
    inner = tool.get("function") or tool.get("custom")
    return inner if isinstance(inner, dict) else {}


def _is_valid(call: ToolCall, offered: Mapping[str, Mapping[str, Any]] | None) -> bool:
    """Whether a call names a tool that was offered, and its arguments are a JSON object that fits it."""
    if offered is not None and call.name not in offered:
        return False
    tool = (offered or {}).get(call.name, {})
    if tool.get("type") == "custom":  # what it takes is text
        return True
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return False
    schema = tool.get("parameters") or tool.get("input_schema")
    return isinstance(arguments, dict) and (not isinstance(schema, dict) or _fits(arguments, schema))


def _fits(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether nothing is missing, nothing is unknown where only what is known may be given, and each has its type."""
    known = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or () if name not in arguments]
    unknown = schema.get("additionalProperties") is False and arguments.keys() - known.keys()
    return (
        not missing
        and not unknown
        and all(_has_type(arguments[name], known[name]) for name in arguments.keys() & known.keys())
    )


def _has_type(value: Any, schema: Any) -> bool:
    """Whether a value is of a type that its schema names; where that names none that we know, it is."""
    names = schema.get("type") if isinstance(schema, dict) else None
    names = names if isinstance(names, list) else [names]
    if not all(isinstance(name, str) and name in TYPES for name in names):
        return True
    return any(
        isinstance(value, TYPES[name]) and isinstance(value, bool) <= (name == "boolean") for name in names
    )

"""The metrics that every rollout has, whatever its taskset: read from the trace alone."""

from __future__ import annotations

import json

from hotswap.messages import ToolCall
from hotswap.trace import Node, Trace


def vitals(trace: Trace) -> dict[str, float | None]:
    """Count what people chart for every rollout. All are numbers of things but `empty_answer`, which is 0 or 1."""
    sampled = [node for node in trace.messages if node.sampled]
    asked = [(node, call) for node in sampled for call in node.tool_calls]
    captured = [call.token_break for call in trace.calls if call.token_break is not None]
    return {
        "turns": float(trace.turns),
        "calls": float(len(trace.calls)),
        "tool_calls": float(len(asked)),
        "invalid_tool_calls": float(sum(not _is_valid(call, _offered(trace, node)) for node, call in asked)),
        "truncated_answers": float(sum(call.finish == "length" for call in trace.calls)),
        "empty_answer": float(not (trace.answer or "").strip()),
        **({"token_breaks": float(sum(captured))} if captured else {}),
    }


def _offered(trace: Trace, node: Node) -> set[str]:
    """The names of the tools that the model could choose from; empty where they cannot be told."""
    key = trace.calls[node.call].tools if node.call is not None and node.call < len(trace.calls) else None
    tools = trace.tools.get(key or "", [])
    named = (tool.get("function", tool) for tool in tools if isinstance(tool, dict))
    return {str(tool["name"]) for tool in named if isinstance(tool, dict) and "name" in tool}


def _is_valid(call: ToolCall, offered: set[str]) -> bool:
    """Whether a call names a tool that was offered, and its arguments are a JSON object."""
    if offered and call.name not in offered:
        return False
    try:
        return isinstance(json.loads(call.arguments or "{}"), dict)
    except (json.JSONDecodeError, RecursionError):
        return False

"""The metrics that every rollout has, whatever its taskset: read from the trace alone."""

from __future__ import annotations

import json

from hotswap.messages import ToolCall
from hotswap.trace import Trace


def vitals(trace: Trace) -> dict[str, float | None]:
    """Count what people chart for every rollout. All are numbers of things but `empty_answer`, which is 0 or 1."""
    sampled = [node for node in trace.messages if node.sampled]
    tool_calls = [call for node in sampled for call in node.tool_calls]
    return {
        "turns": float(trace.turns),
        "calls": float(len(trace.calls)),
        "tool_calls": float(len(tool_calls)),
        "invalid_tool_calls": float(sum(not _is_object(call) for call in tool_calls)),
        "truncated_answers": float(sum(call.finish == "length" for call in trace.calls)),
        "empty_answer": float(not (trace.answer or "").strip()),
    }


def _is_object(call: ToolCall) -> bool:
    try:
        return isinstance(json.loads(call.arguments or "{}"), dict)
    except (json.JSONDecodeError, RecursionError):
        return False

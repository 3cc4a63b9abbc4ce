"""Answers in one piece as the streams that say the same: nothing of them is lost, whatever is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hotswap.dialects._reading import table

Json = dict[str, Any]
INNER: Mapping[str, tuple[str, str]] = {
    "output_text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning_text", "text"),
}
"""The events in which a part of an item of Responses grows, and its field."""
ARGUMENTS: Mapping[str, tuple[str, str]] = {
    "function_call": ("function_call_arguments", "arguments"),
    "mcp_call": ("mcp_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}
"""The same for items that are calls."""
GROWN: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "text": (("text", "text_delta", "text"),),
    "thinking": (("thinking", "thinking_delta", "thinking"), ("signature", "signature_delta", "signature")),
}
"""Fields of a block of Messages that grow, with their kind of delta and its field."""


def sse(value: Mapping[str, Any]) -> bytes:
    """One event, named by its type."""
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def of_messages(message: Mapping[str, Any]) -> Iterator[bytes]:
    """Iterate over the events of an answer of Anthropic's Messages."""
    stop = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    last = {name: message[name] for name in ("context_management",) if name in message}
    usage = table(message.get("usage"))
    begun = {**message, "content": [], **dict.fromkeys(stop), "usage": {**usage, "output_tokens": 0}}
    yield sse({"type": "message_start", "message": begun})
    for index, block in enumerate(message.get("content") or ()):
        for event in _of_block(table(block)):
            yield sse({"index": index, **event})
    delta = {**stop, **{name: message[name] for name in ("container", "stop_details") if name in message}}
    yield sse({"type": "message_delta", "delta": delta, **last, "usage": usage})
    yield sse({"type": "message_stop"})


def _of_block(block: Mapping[str, Any]) -> Iterator[Json]:
    kind = str(block.get("type"))
    deltas: list[Json] = [
        {"type": delta, field: block[name]} for name, delta, field in GROWN.get(kind, ()) if block.get(name)
    ]
    empty = {name: "" for name, _, _ in GROWN.get(kind, ()) if name in block}
    start: Json = {**block, **empty}
    if kind == "text" and isinstance(block.get("citations"), list):
        deltas += [{"type": "citations_delta", "citation": one} for one in block["citations"]]
        start["citations"] = []
    if kind.endswith("tool_use"):
        deltas.append({"type": "input_json_delta", "partial_json": json.dumps(block.get("input") or {})})
        start["input"] = {}
    yield {"type": "content_block_start", "content_block": start}
    yield from ({"type": "content_block_delta", "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop"}


def of_responses(response: Mapping[str, Any]) -> Iterator[bytes]:
    """Iterate over the events of an answer of OpenAI's Responses."""
    status = str(response.get("status") or "completed")
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[Json] = [
        {"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")
    ]
    for index, item in enumerate(response.get("output") or ()):
        events += _of_item(index, table(item))
    events.append({"type": f"response.{status}", "response": dict(response)})
    for number, event in enumerate(events):
        yield sse({"type": event.pop("type"), "sequence_number": number, **event})


def _of_item(index: int, item: Mapping[str, Any]) -> Iterator[Json]:
    place = {"output_index": index}
    inside = {**place, "item_id": item.get("id") or f"item_{index}"}
    name, field = ARGUMENTS.get(str(item.get("type")), ("", ""))
    empty: Json = {name: [] for name in ("content", "summary") if isinstance(item.get(name), list)}
    begun = {**item, **empty, **({field: ""} if field else {}), "status": "in_progress"}
    yield {"type": "response.output_item.added", **place, "item": begun}
    if field:
        yield {"type": f"response.{name}.delta", **inside, "delta": item.get(field) or ""}
        yield {"type": f"response.{name}.done", **inside, field: item.get(field) or ""}
    for at, part in enumerate(item.get("summary") or ()):
        yield from _of_part({**inside, "summary_index": at}, table(part), "reasoning_summary_")
    for at, part in enumerate(item.get("content") or ()):
        yield from _of_part({**inside, "content_index": at}, table(part))
    yield {"type": "response.output_item.done", **place, "item": dict(item)}


def _of_part(place: Json, part: Mapping[str, Any], prefix: str = "") -> Iterator[Json]:
    name, field = INNER.get(str(part.get("type")), ("", ""))
    name, field = ("reasoning_summary_text", "text") if prefix else (name, field)
    added = f"response.{prefix or 'content_'}part"
    yield {"type": f"{added}.added", **place, "part": {**part, **({field: ""} if field else {})}}
    if field:
        more: Json = {"logprobs": part.get("logprobs") or []} if name == "output_text" else {}
        yield {"type": f"response.{name}.delta", **place, "delta": part.get(field) or "", **more}
        yield {"type": f"response.{name}.done", **place, field: part.get(field) or "", **more}
    yield {"type": f"{added}.done", **place, "part": dict(part)}

"""An answer in one piece as the stream that a program asked for: chunks that say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

OF_THE_WHOLE = frozenset({"choices", "usage", "object"})
OF_A_CHOICE = frozenset({"index", "message", "finish_reason", "logprobs"})
OF_A_CHUNK = frozenset({"id", "created", "model", "system_fingerprint", "service_tier"})
"""Fields that every chunk repeats; others stand on the last one."""


def as_stream(value: Mapping[str, Any], usage_chunk: bool) -> bytes:
    """Get the events. Usage is on the last chunk that has a choice, or in one of its own where the program asked so."""
    head = {name: part for name, part in value.items() if name in OF_A_CHUNK}
    rest = {name: part for name, part in value.items() if name not in OF_A_CHUNK | OF_THE_WHOLE}
    head["object"] = "chat.completion.chunk"
    chunks = [{**head, "choices": [choice]} for each in value["choices"] for choice in _deltas(each)]
    usage = value.get("usage")
    if usage_chunk:
        chunks.append({**head, "choices": [], "usage": usage})
    elif usage is not None:
        chunks[-1]["usage"] = usage
    chunks[-1] |= rest
    return (
        b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    )


def _deltas(choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    index, message = choice.get("index", 0), choice.get("message")
    message = message if isinstance(message, dict) else {}
    begun = {
        "index": index,
        "delta": {"role": message.get("role", "assistant"), "content": ""},
        "finish_reason": None,
    }
    yield {**begun, "logprobs": choice["logprobs"]} if "logprobs" in choice else begun
    for name, part in message.items():
        if name != "role" and part not in (None, "", []):
            yield {"index": index, "delta": {name: _numbered(name, part)}, "finish_reason": None}
    others = {name: part for name, part in choice.items() if name not in OF_A_CHOICE}
    yield {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason"), **others}


def _numbered(name: str, part: Any) -> Any:
    """Calls of tools have their place in a stream: that is how their pieces are put together."""
    if name != "tool_calls" or not isinstance(part, list):
        return part
    return [{"index": place, **call} if isinstance(call, dict) else call for place, call in enumerate(part)]

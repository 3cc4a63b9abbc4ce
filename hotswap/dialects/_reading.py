"""What the readers of all dialects share: values that may be anything, and what an answer amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hotswap.dialects._errors import MESSAGE_LIMIT, parse
from hotswap.messages import Answer, Message, ProviderError, ToolCall

COUNT_LIMIT = 10**15
"""No call has read or written so many tokens: a number beyond is noise."""

MARKS = frozenset({"type", "id", "status", "thought", "truncated"})
"""Fields of a message and its parts that say nothing to anyone."""


def count(value: Any) -> int | None:
    """Get a number of tokens; null where it is none."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_LIMIT
    return value if known else None


def text_or_none(value: Any) -> str | None:
    """Get a text that is not empty."""
    return value if isinstance(value, str) and value else None


def table(value: Any) -> dict[str, Any]:
    """Get a JSON object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def hollow(message: Message) -> bool:
    """Whether a message says nothing at all."""
    extra = message.extra.keys() - MARKS
    content = message.content if isinstance(message.content, str) else _said(message.content or ())
    return not (content or message.tool_calls or message.reasoning or message.refusal or extra)


def _said(parts: Sequence[Any]) -> bool:
    """Whether any part says more than of which kind it is."""
    return any(
        not isinstance(part, dict) or any(value for name, value in part.items() if name not in MARKS)
        for part in parts
    )


def judge(answer: Answer) -> Answer:
    """Flag a success that holds nothing, unless the model itself wrote tokens that say nothing."""
    silent = all(hollow(message) for message in answer.messages)
    excused = bool(answer.usage.output) or answer.finish in ("length", "content_filter")
    if answer.error is None and silent and not excused:
        return replace(answer, error=ProviderError("empty", "the answer holds nothing", 200))
    return answer


def malformed(body: bytes, wanted: str) -> Answer:
    """Get the answer that a body is which says success and is none."""
    words = body[:500].decode("utf-8", "replace")
    return Answer(error=ProviderError("malformed", f"no {wanted}: {words}", 200))


def unreadable(name: str, data: str) -> ProviderError | None:
    """Get the error of an event in a stream that is no JSON; null where there is nothing in it."""
    words = data.strip()
    if words in ("", "[DONE]"):
        return None
    if name == "error":
        return ProviderError("server", words[:MESSAGE_LIMIT], 200, retryable=True)
    return ProviderError("malformed", f"an event of the stream is no JSON: {words[:500]}", 200)


def truncated(cut: str | None) -> ProviderError:
    """Get the error of a stream that ended before its answer was complete. `cut` says how it broke."""
    words = cut or "the stream ended before the answer was complete"
    return ProviderError("truncated", words, 200, retryable=True)


def set_apart(calls: Sequence[ToolCall]) -> tuple[tuple[ToolCall, ...], dict[str, Any]]:
    """Of an answer that broke off: the calls that are whole, and `extra` with those that are only half there."""
    half = [call for call in calls if parse(call.arguments) is None]
    return tuple(call for call in calls if call not in half), broken_off(half)


def broken_off(half: Sequence[ToolCall]) -> dict[str, Any]:
    """Get the `extra` of a message that broke off, with the calls of which only the beginning is there."""
    extra: dict[str, Any] = {"truncated": True}
    if half:
        extra["unfinished_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in half
        ]
    return extra

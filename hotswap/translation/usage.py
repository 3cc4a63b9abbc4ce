"""How each dialect counts tokens: whether what was cached or thought is a part of a number, or stands beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotswap.messages import Usage
from hotswap.translation.reading import number, table


def from_openai(said: Any, read: str, wrote: str) -> Usage | None:
    """Read OpenAI's usage: `prompt` and `completion` in chat, `input` and `output` in responses."""
    usage = table(said)
    if not usage:
        return None
    details, written = table(usage.get(f"{read}_tokens_details")), table(usage.get(f"{wrote}_tokens_details"))
    return Usage(
        number(usage.get(f"{read}_tokens")),
        number(usage.get(f"{wrote}_tokens")),
        number(details.get("cached_tokens")),
        number(details.get("cache_write_tokens")),
        number(written.get("reasoning_tokens")),
    )


def to_openai(usage: Usage | None, read: str, wrote: str) -> dict[str, Any] | None:
    """Write it; null where the endpoint did not count."""
    if usage is None or (usage.input is None and usage.output is None):
        return None
    details = {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.cache_write or 0}
    return {
        f"{read}_tokens": usage.input or 0,
        f"{wrote}_tokens": usage.output or 0,
        "total_tokens": usage.total,
        f"{read}_tokens_details": details,
        f"{wrote}_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
    }


def from_anthropic(said: Mapping[str, Any]) -> Usage | None:
    """Anthropic's `input_tokens` are those that no cache had part in."""
    plain, cached = number(said.get("input_tokens")), number(said.get("cache_read_input_tokens"))
    written, output = number(said.get("cache_creation_input_tokens")), number(said.get("output_tokens"))
    if plain is None and output is None:
        return None
    whole = None if plain is None else plain + (cached or 0) + (written or 0)
    details = table(said.get("output_tokens_details"))
    return Usage(whole, output, cached, written, number(details.get("thinking_tokens")))


def to_anthropic(usage: Usage | None) -> dict[str, Any]:
    """Its programs add these numbers up: one that is not known is 0 there."""
    counted = usage or Usage()
    cached, written = counted.cached or 0, counted.cache_write or 0
    thought = {"output_tokens_details": {"thinking_tokens": counted.reasoning}} if counted.reasoning else {}
    return {
        "input_tokens": max(0, (counted.input or 0) - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": counted.output or 0,
        **thought,
    }


def to_gemini(usage: Usage | None) -> dict[str, Any] | None:
    """Gemini counts what was thought beside what was said."""
    if usage is None or (usage.input is None and usage.output is None):
        return None
    thought = usage.reasoning or 0
    return {
        "promptTokenCount": usage.input or 0,
        "cachedContentTokenCount": usage.cached or 0,
        "candidatesTokenCount": max(0, (usage.output or 0) - thought),
        "thoughtsTokenCount": thought,
        "totalTokenCount": usage.total,
    }

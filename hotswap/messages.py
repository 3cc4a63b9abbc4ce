"""One neutral form of a model exchange, whatever its dialect.

A dialect reads its wire format into these; the trace stores them. What a dialect says that has no place here is kept
in `extra`, as sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Finish = Literal["stop", "length", "tool_calls", "content_filter", "other"]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asked for."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: text that should be JSON and need not be."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str | Sequence[Any] | None = None
    """Text, or the dialect's list of parts in their order, as sent, or null beside tool calls."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On a tool's message: the call that it answers."""
    reasoning: str | None = None
    refusal: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The content as text; parts that are no text are left out."""
        return "".join(texts(self.content))


THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"})
"""Types of parts in which a model thinks aloud."""
CALL_TYPES = frozenset({"tool_use", "function_call", "custom_tool_call"})
CALL_FIELDS = ("functionCall", "function_call")
"""What calls a tool in a part that has no type."""


def said_elsewhere(part: Mapping[str, Any]) -> bool:
    """Whether a part of a content says what a message has a field of its own for: thoughts, calls, a refusal."""
    kind = str(part.get("type"))
    if kind in THOUGHTS or kind in CALL_TYPES or kind == "refusal" or part.get("thought") is True:
        return True
    return any(isinstance(part.get(name), Mapping) for name in CALL_FIELDS)


def texts(content: Any) -> Iterator[str]:
    """Get the texts of a message's content in their order, whatever its dialect; what the model thought is none."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from texts(part if isinstance(part, str) else _spoken(part))


def _spoken(part: Any) -> Any:
    """The text of one part, or the parts of an item that is a whole message."""
    if not isinstance(part, Mapping) or part.get("thought") is True or str(part.get("type")) in THOUGHTS:
        return None
    text = part.get("text")
    if isinstance(text, str):
        return text
    inner = part.get("content") if part.get("type") == "message" else None
    return [one for one in inner if _flat(one)] if isinstance(inner, list) else inner


def _flat(part: Any) -> bool:
    """Whether a part holds its text itself: a message within a message is none."""
    return not (isinstance(part, Mapping) and part.get("type") == "message")


@dataclass(frozen=True)
class Usage:
    """Tokens; null where the provider did not say.

    `cached` and `cache_write` are parts of `input`, `reasoning` is a part of `output`.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Add field by field; unknown and known is known, so that a sum says how much at least was used."""
        return Usage(
            _sum(self.input, other.input),
            _sum(self.output, other.output),
            _sum(self.cached, other.cached),
            _sum(self.cache_write, other.cache_write),
            _sum(self.reasoning, other.reasoning),
        )

    def values(self) -> tuple[int | None, ...]:
        return (self.input, self.output, self.cached, self.cache_write, self.reasoning)

    @property
    def total(self) -> int:
        """Input and output tokens that are known of."""
        return (self.input or 0) + (self.output or 0)


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@dataclass(frozen=True)
class ProviderError:
    """What a provider said instead of an answer, or that it said nothing."""

    type: str
    """`rate_limit`, `overloaded`, `context_length`, `auth`, `bad_request`, `server`, `connection`, `timeout`,
    `truncated`, `empty`, `malformed`, `redirect`; `proxy` is our own."""
    message: str
    """In the provider's own words where there are any."""
    status: int | None = None
    """The HTTP status; null where there was no answer."""
    retryable: bool = False
    retry_after_s: float | None = None
    blame: Literal["provider", "hotswap"] = "provider"


@dataclass(frozen=True)
class Answer:
    """What came back: messages, or an error, or (cut off) the beginning of one and an error."""

    messages: tuple[Message, ...] = ()
    finish: Finish | None = None
    usage: Usage = Usage()
    model: str | None = None
    """The model that answered, by its own account."""
    error: ProviderError | None = None
    id: str | None = None
    """The provider's own name of the answer."""

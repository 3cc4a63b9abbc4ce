"""What every dialect can be read into and written from: the neutral middle of a translation.

A request is turns of parts with tools and settings; an answer is parts, a finish and usage; a stream is an answer that
comes piece by piece, one part after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from hotswap.messages import Finish, Usage

Role = Literal["system", "developer", "user", "assistant", "tool"]
Kind = Literal["function", "custom", "local_shell", "tool_search"]
"""What a tool takes: an object, a raw text, a command of the program's shell, a search in the program's tools."""


class Untranslatable(Exception):
    """A request that the endpoint's dialect cannot say without changing what it means."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True)
class Text:
    text: str = ""


@dataclass(frozen=True)
class Refusal:
    """What the model says instead of what was asked for."""

    text: str = ""


@dataclass(frozen=True)
class Thinking:
    """What the model thought, in words. Signatures and encrypted forms mean nothing elsewhere: they are left behind."""

    text: str = ""


@dataclass(frozen=True)
class Media:
    """An image or a document."""

    kind: Literal["image", "document"]
    url: str
    """`https:`, or `data:` with the bytes."""
    name: str | None = None

    @property
    def media_type(self) -> str:
        """Of a `data:` address."""
        return self.url[5:].partition(",")[0].partition(";")[0]

    @property
    def data(self) -> str | None:
        """The bytes in base64; null where the address points elsewhere."""
        head, _, data = self.url.partition(",")
        return data if head.startswith("data:") and head.endswith(";base64") else None


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    id: str
    name: str
    arguments: str = ""
    """A JSON object as text; of a custom tool, its raw input."""
    kind: Kind = "function"
    namespace: str | None = None


@dataclass(frozen=True)
class Result:
    """What a tool gave back."""

    call_id: str
    parts: tuple[Text | Media, ...] = ()
    error: bool = False

    @property
    def text(self) -> str:
        """The texts, for a dialect that has no flag for errors: there a failed call says so in words."""
        text = "\n".join(part.text for part in self.parts if isinstance(part, Text))
        return f"Error: {text}" if self.error and not text.lower().startswith("error") else text

    @property
    def media(self) -> tuple[Media, ...]:
        return tuple(part for part in self.parts if isinstance(part, Media))


Part: TypeAlias = Text | Refusal | Thinking | Media | Call | Result


def words(part: Part) -> str:
    """What a part amounts to: its text, or its arguments."""
    if isinstance(part, Call):
        return part.arguments
    return part.text if isinstance(part, Text | Refusal | Thinking) else ""


def reworded(part: Part, text: str) -> Part:
    """The same part with another text."""
    if isinstance(part, Call):
        return replace(part, arguments=text)
    return replace(part, text=text) if isinstance(part, Text | Refusal | Thinking) else part


@dataclass(frozen=True)
class Turn:
    """One message. The results of tools have turns of their own, with the role `tool`."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Tool:
    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "function"
    namespace: str | None = None
    strict: bool | None = None
    format: Any = None
    """Of a custom tool: what its input must look like."""


@dataclass(frozen=True)
class Choice:
    """Which tool the model may or must call."""

    mode: Literal["auto", "none", "required", "named"]
    name: str = ""
    namespace: str | None = None


@dataclass(frozen=True)
class Output:
    """The form that the answer must have: JSON, with a schema or without."""

    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None
    description: str | None = None


@dataclass
class Asked:
    """A request."""

    turns: list[Turn] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    choice: Choice | None = None
    parallel: bool | None = None
    output: Output | None = None
    max_tokens: int | None = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    seed: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    verbosity: str | None = None
    stop: tuple[str, ...] = ()
    effort: str | None = None
    """How hard to think: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`; null: not said."""
    thoughts: bool = False
    """Whether the program asks to see what the model thinks."""
    usage_chunk: bool = False
    """Whether a chat program asks for a last chunk with the usage."""


@dataclass(frozen=True)
class Answered:
    """An answer, or one that has only come so far."""

    id: str = ""
    model: str = ""
    created: int | None = None
    parts: tuple[Part, ...] = ()
    finish: Finish = "stop"
    stop_sequence: str | None = None
    usage: Usage | None = None

    @property
    def calls(self) -> bool:
        return any(isinstance(part, Call) for part in self.parts)


@dataclass(frozen=True)
class Begun:
    """The first piece of a stream."""

    id: str = ""
    model: str = ""
    created: int | None = None


@dataclass(frozen=True)
class Opened:
    """A part begins. It has no text yet; the part before it is closed."""

    part: Part


@dataclass(frozen=True)
class Grew:
    """More of the open part: text, or arguments."""

    text: str


@dataclass(frozen=True)
class Closed:
    """The open part is whole: here it is."""

    part: Part


@dataclass(frozen=True)
class Ended:
    """The answer is whole."""

    finish: Finish
    usage: Usage | None = None
    stop_sequence: str | None = None


@dataclass(frozen=True)
class Failed:
    """An error instead of the rest."""

    type: str
    message: str


Piece: TypeAlias = Begun | Opened | Grew | Closed | Ended | Failed

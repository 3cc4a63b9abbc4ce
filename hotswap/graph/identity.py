"""What makes a message the same message when a program sends it again.

Programs drop fields, move marks of caching, trim what the model said and write its arguments anew. What counts:

* of every message its role, and the call that it answers
* of a model's answer its words without their spaces, in one part or in several, and the tools that it calls; what it
  thought, and parts that say a call again, do not count, and other parts only where there is nothing else
* of any other message its texts and other parts in their order, without fields that wander
* of a system prompt not the lines in which a program says its own version, with values that change
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from hotswap.messages import Message, ToolCall, said_elsewhere

ATTRIBUTION = ("x-anthropic-billing-header",)
"""Names of headers that programs write into a system prompt, a line each: such a line is no part of the identity."""
WANDERING = frozenset((
    "cache_control", "annotations", "citations", "logprobs", "id", "status", "signature", "thoughtSignature",
    "thought_signature", "encrypted_content",
))  # fmt: skip
"""Fields of a part that programs add, move and drop from call to call."""
PROMPTS = frozenset({"system", "developer"})
"""Roles of what a program tells the model about its work."""

SPACE = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"
PROMPT_READ = 1 << 20
"""Characters up to which a part of a prompt is looked through for headers: no model reads one as long as that."""
STEP = 1 << 16
"""Characters that are hashed at a time, so that a long text is never copied whole."""
_ATTRIBUTION = re.compile(rf"(?im)^[ \t]*(?:{'|'.join(map(re.escape, ATTRIBUTION))})[ \t]*:.*(?:\n|\Z)")
_THOUGHT = re.compile(r"\s*<(think|thinking)>.*?</\1>", re.DOTALL)
_WRITER = json.JSONEncoder(sort_keys=True)
_READER = json.JSONDecoder(parse_float=lambda text: _whole(float(text)))


class Key(NamedTuple):
    """A message's identity. Texts are in it as digests; one that is the whole content is the message's own object."""

    role: str
    content: bytes | str
    calls: bytes
    ids: tuple[str, ...]
    """Of the tool calls."""
    answers: str | None

    @property
    def loose(self) -> Key:
        """The same without the calls' ids, which some programs write anew."""
        return self._replace(ids=())


def identity(message: Message) -> Key:
    """Get what makes a message the same message when it is sent again."""
    role = "assistant" if message.role == "model" else message.role
    return Key(
        role,
        _said(message) if role == "assistant" else _sent(message),
        _calls(message.tool_calls) if message.tool_calls else b"",
        tuple(call.id for call in message.tool_calls),
        message.tool_call_id,
    )


NOTHING = sha256().digest()
"""The content of a message that says nothing."""


def _said(message: Message) -> bytes:
    """The digest of an answer: its words, whatever spaces and parts they stand in."""
    hashed, others, begun = sha256(), [], False
    for element in _elements(message.content):
        if not isinstance(element, str):
            others.append(element)
            continue
        thought = None if begun else _THOUGHT.match(element)
        for at in range(thought.end() if thought else 0, len(element), STEP):
            words = _bytes(element[at : at + STEP]).translate(None, SPACE)
            begun = begun or bool(words)
            hashed.update(words)
    if not begun and not message.tool_calls:
        for other in others:
            hashed.update(_bytes(_json(other)))
    return hashed.digest()


def _sent(message: Message) -> bytes | str:
    """What counts of the content of a message that is the program's own."""
    content, found = message.content, []
    if not isinstance(content, str) or message.role in PROMPTS:
        for element in _elements(content):
            prompt = isinstance(element, str) and message.role in PROMPTS and len(element) <= PROMPT_READ
            found.append(_ATTRIBUTION.sub("", element) if prompt else element)
        found = [element for element in found if element != ""]
        if content is None and not message.tool_calls and message.extra:
            found.append(_steady(message.extra))
        if len(found) != 1 or not isinstance(found[0], str):
            return _framed(found) if found else ""
        content = found[0]
    return content


def _framed(elements: list[Any]) -> bytes:
    """The digest of texts and other parts in their order."""
    hashed = sha256()
    for element in elements:
        if isinstance(element, str):
            _frame(hashed, "text", element)
        else:
            _frame(hashed, "part", _json(element))
    return hashed.digest()


def _frame(hashed: Any, kind: str, text: str) -> None:
    """Hash a text so that it cannot run into the next one."""
    if len(text) < STEP:
        hashed.update(_bytes(f"{kind} {len(text)} {text}"))
        return
    hashed.update(f"{kind} {len(text)} ".encode())
    for at in range(0, len(text), STEP):
        hashed.update(_bytes(text[at : at + STEP]))


def _elements(content: Any) -> Iterator[Any]:
    """The texts and the other parts of a content, in order; parts that count elsewhere are left out."""
    if content is None or isinstance(content, str):
        yield content or ""
        return
    for part in content:
        if not isinstance(part, Mapping):
            yield part
        elif part.get("type") == "message" and isinstance(part.get("content"), list | str):
            inner = part["content"]
            yield from _flat([inner] if isinstance(inner, str) else inner)
        else:
            yield from _flat([part])


def _flat(parts: list[Any]) -> Iterator[Any]:
    for part in parts:
        if not isinstance(part, Mapping):
            yield part
        elif not said_elsewhere(part):
            yield part["text"] if isinstance(part.get("text"), str) else _steady(part)


def _steady(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part without fields that wander, unless it has no others."""
    steady = {name: value for name, value in part.items() if name not in WANDERING}
    return steady if steady.keys() - {"type"} else part


def _calls(calls: tuple[ToolCall, ...]) -> bytes:
    hashed = sha256()
    for call in calls:
        _frame(hashed, "name", call.name)
        _frame(hashed, "arguments", _arguments(call.arguments))
    return hashed.digest()


def _arguments(text: str) -> str:
    """Arguments as JSON in one spelling: programs read them and write them again."""
    if not text.strip():
        return "{}"
    try:
        return _WRITER.encode(_READER.decode(text))
    except (ValueError, RecursionError):
        return text


def _whole(number: float) -> float | int:
    """JavaScript writes 1.0 as 1."""
    return int(number) if number.is_integer() else number


def _json(value: Any) -> str:
    try:
        return _WRITER.encode(value)
    except (ValueError, TypeError, RecursionError):
        return f"a part that cannot be written: {type(value).__name__}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

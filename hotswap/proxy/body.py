"""The body of a request: read no more often than needed, and changed in no more places than needed.

A conversation is sent whole with each call. Where its beginning is the same bytes as in an earlier call,
only what was added is read, so that a turn costs the same early and late. A change replaces the bytes of
one top-level field and leaves all others as the program wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SPACE = re.compile(r"[ \t\n\r]*")
PREFIX_LEAST = 2_000
"""Bytes of conversation from which on it pays to remember them."""

_scan = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Pair:
    """Where a top-level field stands in its part of the text."""

    name: str
    before: int
    """The end of what is before it and its comma."""
    start: int
    value: int
    end: int


@dataclass(eq=False)
class Body:
    """A request's body. Without `fields` it is no JSON object, and can only be passed on."""

    raw: bytes
    fields: dict[str, Any] = field(default_factory=dict)
    """The top level as read; of a continued conversation it holds the items that are new."""
    items: list[Any] = field(default_factory=list)
    """The items of the conversation that were not in the body that this one continues."""
    continues: Body | None = None
    """The earlier body that this one goes on from."""
    prefix: memoryview | bytes = b""
    """The raw body up to the end of the conversation's last item."""
    leaf: int | None = None
    """The graph's node of the last item; until the new items are known, of the last one before them."""
    _head: str = ""
    _tail: str = ""
    _head_pairs: list[Pair] = field(default_factory=list)
    _tail_pairs: list[Pair] = field(default_factory=list)

    def forget(self) -> Body:
        """Get what is needed to recognise a body that goes on from this one."""
        return replace(self, raw=b"", items=[], continues=None)

    def change(self, values: Mapping[str, Any], drop: Iterable[str] = ()) -> bytes:
        """Get the body with fields set and left out. The conversation itself stays as it is."""
        gone = set(drop)
        if not (values or gone) or not self._head:
            return self.raw
        known = {pair.name for pair in (*self._head_pairs, *self._tail_pairs)}
        head = _edit(self._head, self._head_pairs, values, gone, first=True)
        tail = _edit(self._tail, self._tail_pairs, values, gone, first=False)
        added = [
            f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items() if name not in known
        ]
        if added:
            brace = head.index("{") + 1
            empty = not (known - gone)
            head = head[:brace] + ", ".join(added) + ("" if empty else ", ") + head[brace:]
        start, end = len(_encode(self._head)), len(self.raw) - len(_encode(self._tail))
        return _encode(head) + self.raw[start:end] + _encode(tail)


def read_body(raw: bytes, conversation: str, earlier: Iterable[Body] = ()) -> Body:
    """Read a body whose field `conversation` is the list that grows, perhaps beyond an earlier one."""
    grown = [body for body in earlier if body.prefix and raw.startswith(body.prefix)]
    try:
        if grown:
            return _continue(raw, max(grown, key=lambda body: len(body.prefix)))
        return _read(raw, conversation)
    except (ValueError, IndexError, RecursionError):
        return Body(raw)


def _read(raw: bytes, conversation: str) -> Body:
    text = raw.decode()
    body = Body(raw, _head=text)
    at = _skip(text, 0)
    if text[at] != "{":
        raise ValueError("no JSON object")
    at, before = _skip(text, at + 1), at + 1
    while text[at] != "}":
        start = at
        name, at = _scan(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        if name == conversation and text[at] == "[":
            body._head, opened = text[: at + 1], at + 1
            body._head_pairs.append(Pair(name, before, start, at, at))
            end = _read_items(text, opened, body.items, first=True)
            _remember(body, len(_encode(text[:end])))
            _read_tail(text[end:], body)
            return body
        body.fields[name], end = _scan(text, at)
        body._head_pairs.append(Pair(name, before, start, at, end))
        at, before = _next(text, end)
    return body


def _continue(raw: bytes, earlier: Body) -> Body:
    text = raw[len(earlier.prefix) :].decode()
    head = {pair.name for pair in earlier._head_pairs}
    body = Body(
        raw, leaf=earlier.leaf, continues=earlier, _head=earlier._head, _head_pairs=earlier._head_pairs
    )
    body.fields = {name: value for name, value in earlier.fields.items() if name in head}
    end = _read_items(text, 0, body.items, first=False)
    _remember(body, len(earlier.prefix) + len(_encode(text[:end])))
    tail = text[end:]
    if tail == earlier._tail:
        body._tail, body._tail_pairs = tail, earlier._tail_pairs
        body.fields |= {pair.name: earlier.fields[pair.name] for pair in earlier._tail_pairs}
    else:
        _read_tail(tail, body)
    return body


def _read_items(text: str, at: int, items: list[Any], first: bool) -> int:
    """Read the items from `at` on, and get the end of the last one."""
    end = at
    at = _skip(text, at)
    while text[at] != "]":
        if not first:
            at = _skip(text, _expect(text, at, ","))
        item, end = _scan(text, at)
        items.append(item)
        at, first = _skip(text, end), False
    return end


def _read_tail(text: str, body: Body) -> None:
    """Read what follows the conversation's last item: its bracket, and the fields after it."""
    at = _expect(text, _skip(text, 0), "]")
    body._tail = text
    at, before = _next(text, at)
    while text[at] != "}":
        start = at
        name, at = _scan(text, at)
        value = _skip(text, _expect(text, _skip(text, at), ":"))
        body.fields[name], end = _scan(text, value)
        body._tail_pairs.append(Pair(name, before, start, value, end))
        at, before = _next(text, end)


def _remember(body: Body, end: int) -> None:
    body.prefix = memoryview(body.raw)[:end] if end >= PREFIX_LEAST else b""


def _next(text: str, end: int) -> tuple[int, int]:
    """From the end of a value: where the next name or the closing brace stands, and that end."""
    at = _skip(text, end)
    if text[at] == ",":
        at = _skip(text, at + 1)
        if text[at] == "}":
            raise ValueError("a comma too many")
        return at, end
    if text[at] != "}":
        raise ValueError("neither comma nor brace")
    return at, end


def _expect(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise ValueError(f"no {mark}")
    return at + 1


def _skip(text: str, at: int) -> int:
    if text[at] > " ":
        return at
    found = SPACE.match(text, at)
    return found.end() if found else at


def _edit(text: str, pairs: list[Pair], values: Mapping[str, Any], gone: set[str], *, first: bool) -> str:
    """Replace and cut fields from the last to the first, so that the places of those before stay true."""
    for place in reversed(range(len(pairs))):
        pair = pairs[place]
        if pair.name in gone:
            following = pairs[place + 1].start if first and place + 1 < len(pairs) else None
            start, end = (pair.before, pair.end) if following is None else (pair.start, following)
            text = text[:start] + text[end:]
        elif pair.name in values:
            text = text[: pair.value] + json.dumps(values[pair.name]) + text[pair.end :]
    return text


def _encode(text: str) -> bytes:
    return text.encode()

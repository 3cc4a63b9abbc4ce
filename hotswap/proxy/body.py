"""The body of a request: read no more often than needed, and changed in no more places than needed.

A conversation is sent whole with each call. Where its beginning is the same bytes as in an earlier call,
only what was added is read, so that a turn costs the same early and late. A change replaces the bytes of
one top-level field and leaves all others as the program wrote them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hotswap.dialects import nothing
from hotswap.proxy.outline import TooMuch, weigh

SPACE = re.compile(r"[ \t\n\r]*")
ITEMS_LIMIT = 20_000
"""New items of a conversation that are read in one body. A turn adds a few."""
PREFIX_LEAST = 2_000
"""Bytes of conversation from which on it pays to remember them."""

UNREADABLE = (ValueError, IndexError, RecursionError)
Parts = tuple[bytes | memoryview, ...]
"""A body as it goes up, in pieces that need not be copied together."""

_scan = json.JSONDecoder(parse_constant=nothing).raw_decode


@dataclass(frozen=True)
class Pair:
    """Where a top-level field stands in its part of the text."""

    name: str
    before: int
    """The end of what is before it and its comma."""
    start: int
    value: int
    end: int


class Mark(NamedTuple):
    """A place in a conversation that a later request may go on from."""

    end: int
    """Bytes of the conversation before it."""
    leaf: int | None
    """The graph's node of the last message before it."""


@dataclass(eq=False)
class Body:
    """A request's body. One that is not `readable` is no JSON object, and can only be passed on."""

    raw: bytes | memoryview
    fields: dict[str, Any] = field(default_factory=dict)
    """The top level as read, without the conversation."""
    items: list[Any] = field(default_factory=list)
    """The items of the conversation that are not in the body that this one continues."""
    continues: Body | None = None
    """The earlier body that this one goes on from."""
    leaf: int | None = None
    """The graph's node of the last item; until the new items are known, of the last one before them."""
    root: int | None = None
    """The graph's node that the conversation hangs below."""
    marks: list[Mark] = field(default_factory=list)
    placed: bool = False
    """Its messages are in the graph, or will never be."""
    unread: str | None = None
    """Why its conversation was not read, and is not in the graph; null where it was."""
    unread_digest: bytes = b""
    """What tells the conversation of one that was not read from others."""
    _ends: list[int] = field(default_factory=list)
    """Where each new item ends, in bytes of the conversation."""
    _head: str = ""
    _tail: str = ""
    _head_bytes: bytes = b""
    _tail_size: int = 0
    _head_pairs: list[Pair] = field(default_factory=list)
    _tail_pairs: list[Pair] = field(default_factory=list)

    def mark(self, items: int, leaf: int | None) -> None:
        """Note where the first so many new items end."""
        self.marks.append(Mark(self._ends[items - 1], leaf))

    def start_over(self, conversation: str) -> None:
        """Read the whole conversation, although its beginning is known."""
        whole = _read(bytes(self.raw), conversation)
        for name in ("items", "continues", "leaf", "marks", "_ends"):
            setattr(self, name, getattr(whole, name))

    def give_up(self) -> None:
        """Take it for what it is on the wire, bytes, and no more."""
        blank = Body(self.raw)
        self.unread = "its messages could not be read"
        for name in ("fields", "items", "continues", "leaf", "root", "marks", "_ends", "_head"):
            setattr(self, name, getattr(blank, name))

    def forget(self) -> Body:
        """Get what is needed to recognise a body that goes on from this one."""
        return replace(self, items=[], continues=None, _ends=[])

    @property
    def readable(self) -> bool:
        """Whether it is a JSON object."""
        return bool(self._head)

    def says_the_same(self, other: Body) -> bool:
        """Whether it is the same conversation as another one; both have been placed."""
        same = (self.leaf, self.unread_digest) == (other.leaf, other.unread_digest)
        return same and self.readable and other.readable

    @property
    def remembered(self) -> bool:
        """Whether it is long enough that recognising it later pays."""
        return bool(self.marks) and self.marks[-1].end >= PREFIX_LEAST

    def furthest(self, raw: bytes) -> int:
        """Get how many marks of this body lie in the part that `raw` begins with too."""
        start = len(self._head_bytes)
        if not raw.startswith(self._head_bytes):
            return 0
        known = memoryview(self.raw)[start:]
        if self.marks and raw.startswith(known[: self.marks[-1].end], start):
            return len(self.marks)
        return bisect_left(self.marks, True, key=lambda mark: not raw.startswith(known[: mark.end], start))

    def change(self, values: Mapping[str, Any], drop: Iterable[str] = ()) -> Parts:
        """Get the body with fields set and left out. The conversation itself stays as it is, and is not copied."""
        gone = set(drop)
        if not (values or gone) or not self._head:
            return (self.raw,)
        known = {pair.name for pair in (*self._head_pairs, *self._tail_pairs)}
        head = _edit(self._head, self._head_pairs, values, gone, first=True)
        tail = _edit(self._tail, self._tail_pairs, values, gone, first=False)
        head = _add(head, {name: values[name] for name in values if name not in known}, not (known - gone))
        end = len(self.raw) - self._tail_size
        middle = memoryview(self.raw)[len(self._head_bytes) : end]
        return (head.encode(), middle, tail.encode()) if middle else (head.encode() + tail.encode(),)


def read_body(raw: bytes, conversation: str, earlier: Iterable[Body] = ()) -> Body:
    """Read a body whose field `conversation` is the list that grows, perhaps beyond an earlier one. Raises TooMuch
    where more of it is new than is read."""
    shared = [Shared(known, body) for body in earlier if (known := body.furthest(raw))]
    if shared:
        with suppress(*UNREADABLE):
            return _continue(raw, max(shared, key=lambda one: one.body.marks[one.marks - 1].end))
    try:
        return _read(raw, conversation)
    except UNREADABLE:
        return Body(raw)


class Shared(NamedTuple):
    """What a body has in common with an earlier one."""

    marks: int
    body: Body


def _read(raw: bytes, conversation: str) -> Body:
    weigh(memoryview(raw))
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
            body._head_bytes = body._head.encode()
            body._head_pairs.append(Pair(name, before, start, at, at))
            end = _read_items(text, opened, body, 0, first=True)
            _read_tail(text[end:], body)
            return body
        body.fields[name], end = _scan(text, at)
        body._head_pairs.append(Pair(name, before, start, at, end))
        at, before = _next(text, end)
    body._head_bytes = raw
    return body


def _continue(raw: bytes, shared: Shared) -> Body:
    earlier, marks = shared.body, shared.body.marks[: shared.marks]
    before = marks[-1].end
    weigh(memoryview(raw)[len(earlier._head_bytes) + before :])
    text = raw[len(earlier._head_bytes) + before :].decode()
    body = Body(raw, leaf=marks[-1].leaf, continues=earlier, marks=marks)
    body._head, body._head_bytes = earlier._head, earlier._head_bytes
    body._head_pairs = earlier._head_pairs
    body.fields = {
        pair.name: earlier.fields[pair.name] for pair in earlier._head_pairs if pair.name in earlier.fields
    }
    end = _read_items(text, 0, body, before, first=False)
    tail = text[end:]
    if tail == earlier._tail:
        body._tail, body._tail_size, body._tail_pairs = tail, earlier._tail_size, earlier._tail_pairs
        body.fields |= {pair.name: earlier.fields[pair.name] for pair in earlier._tail_pairs}
    else:
        _read_tail(tail, body)
    return body


def _read_items(text: str, at: int, body: Body, before: int, first: bool) -> int:
    """Read the items from `at` on, which is `before` bytes into the conversation; get the end of the last one."""
    start = end = at
    at = _skip(text, at)
    while text[at] != "]":
        if not first:
            at = _skip(text, _expect(text, at, ","))
        item, end = _scan(text, at)
        body.items.append(item)
        if len(body.items) > ITEMS_LIMIT:
            raise TooMuch(f"more than {ITEMS_LIMIT} new items")
        before += len(text[start:end].encode())
        body._ends.append(before)
        start = end
        at, first = _skip(text, end), False
    return end


def _read_tail(text: str, body: Body) -> None:
    """Read what follows the conversation's last item: its bracket, and the fields after it."""
    at = _expect(text, _skip(text, 0), "]")
    body._tail, body._tail_size = text, len(text.encode())
    at, before = _next(text, at)
    while text[at] != "}":
        start = at
        name, at = _scan(text, at)
        value = _skip(text, _expect(text, _skip(text, at), ":"))
        body.fields[name], end = _scan(text, value)
        body._tail_pairs.append(Pair(name, before, start, value, end))
        at, before = _next(text, end)


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


def edit(text: str, pairs: list[Pair], values: Mapping[str, Any], gone: set[str]) -> str:
    """Set fields in the text of a whole object, and leave out others."""
    known = {pair.name for pair in pairs}
    text = _edit(text, pairs, values, gone, first=True)
    return _add(text, {name: values[name] for name in values if name not in known}, not (known - gone))


def _add(text: str, values: Mapping[str, Any], empty: bool) -> str:
    """Put fields at the beginning of an object, which may be empty."""
    if not values:
        return text
    brace = text.index("{") + 1
    added = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    return text[:brace] + added + ("" if empty else ", ") + text[brace:]


def _edit(text: str, pairs: list[Pair], values: Mapping[str, Any], gone: set[str], *, first: bool) -> str:
    """Replace and cut fields from the last to the first, so that the places of those before stay true."""
    for place in reversed(range(len(pairs))):
        pair = pairs[place]
        if pair.name in gone:
            kept = any(later.name not in gone for later in pairs[place + 1 :])
            following = pairs[place + 1].start if first and kept else None
            start, end = (pair.before, pair.end) if following is None else (pair.start, following)
            text = text[:start] + text[end:]
        elif pair.name in values:
            text = text[: pair.value] + json.dumps(values[pair.name]) + text[pair.end :]
    return text

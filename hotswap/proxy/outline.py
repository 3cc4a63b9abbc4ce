"""Where the values of a large JSON text begin and end, found without building them.

The text is gone through in slices. In each, what stands in strings is cut out and pairs of brackets are taken away by
a few calls, whatever the slice holds, so that neither its size nor its make holds the interpreter's lock for long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

STEP = 2**16
LARGE = 2**20
"""Bytes below which nothing needs to be weighed."""
READ_LIMIT = 64 * 2**20
"""New bytes of a conversation that are read; no provider takes a body as large as that."""
VALUES_LIMIT = 250_000
ESCAPES_LIMIT = 4_000_000
DEEPEST = 200
"""Brackets within brackets in one slice; what is deeper is not looked through."""
_BRACKETS = b"[]{}"
_ALL_ELSE = bytes(set(range(256)) - set(_BRACKETS))
_TOKEN = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_CLOSED = re.compile(rb"[\]}]*")


class TooMuch(Exception):
    """More than can be read without holding up others. The message says of what."""


class Slice(NamedTuple):
    """A part of the text."""

    at: int
    raw: bytes
    quoted: bool
    """It begins inside a string."""
    outside: bytes
    """What of it stands in no string, without the quotation marks."""
    escapes: int
    """At most so many escapes are in it."""


def weigh(text: memoryview) -> None:
    """Look whether a text is worth reading. Raises TooMuch, with the reason."""
    if len(text) < LARGE:
        return
    if len(text) > READ_LIMIT:
        raise TooMuch(f"{len(text)} new bytes, more than the {READ_LIMIT} that are read")
    values = escapes = 0
    for part in slices(text):
        values += sum(map(part.outside.count, (b",", b"[", b"{")))
        escapes += part.escapes
        if values > VALUES_LIMIT or escapes > ESCAPES_LIMIT:
            raise TooMuch(f"more than {VALUES_LIMIT} new values or {ESCAPES_LIMIT} escapes")


def slices(text: memoryview, at: int = 0) -> Iterator[Slice]:
    """Go through a text from a place outside of strings."""
    quoted = False
    while at < len(text):
        raw = bytes(text[at : at + STEP])
        if (len(raw) - len(raw.rstrip(b"\\"))) % 2 and len(raw) > 1:
            raw = raw[:-1]  # what follows is escaped by it
        plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
        parts = plain.split(b'"')
        yield Slice(at, raw, quoted, b"".join(parts[quoted::2]), raw.count(b"\\"))
        quoted ^= len(parts) % 2 == 0
        at += len(raw)


def end_of(text: memoryview, at: int) -> int:
    """Get the end of the string, list or object that begins at a place. Raises ValueError where it has none."""
    if text[at] == ord('"'):
        found = (_end_within(part, 0) for part in slices(text, at))
        end = next((place for place in found if place is not None), None)
        if end is not None:
            return end
        raise ValueError("a text that does not end")
    depth = 1
    for part in slices(text, at + 1):
        closed, opened = _collapsed(part.outside)
        if depth <= closed and (end := _end_within(part, depth)) is not None:
            return end
        depth += opened - closed
    raise ValueError("a value that does not end")


def _collapsed(outside: bytes) -> tuple[int, int]:
    """Get how many brackets a slice closes that were open before it, and how many it leaves open."""
    left = outside.translate(None, _ALL_ELSE)
    for _ in range(DEEPEST):
        fewer = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(fewer) == len(left):
            break
        left = fewer
    closed = _CLOSED.match(left)
    first = closed.end() if closed else 0
    if any(mark in left[first:] for mark in (b"]", b"}")):
        raise ValueError("brackets that do not match, or too deep")
    return first, len(left) - first


def _end_within(part: Slice, depth: int) -> int | None:
    """Get where in a slice the value ends that is so many brackets deep; null where it does not."""
    quoted = part.quoted
    for token in _TOKEN.finditer(part.raw):
        mark = token[0]
        if mark == b'"':
            quoted = not quoted
        elif not quoted and len(mark) == 1:
            depth += 1 if mark in b"[{" else -1
        if depth == 0 and not quoted and len(mark) == 1:
            return part.at + token.end()
    return None

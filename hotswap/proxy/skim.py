"""Bodies that are too large to be read: of such a one the short top-level fields are read, and no more.

Above a size, or with more values than any conversation has, a body goes up unread: what the run sets in it is set all
the same, its conversation is in the trace by its size alone, and the call says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from hotswap.dialects import nothing
from hotswap.proxy.body import Body, Pair, Parts, edit, read_body
from hotswap.proxy.outline import TooMuch, end_of

FIELD_LIMIT = 2**20
"""Bytes from which on a field is passed over."""
FIELDS_LIMIT = 1_000
_NAME = re.compile(rb'"(?:[^"\\]|\\.)*"')
_SPACE = re.compile(rb"[ \t\n\r]*")
_SCALAR = re.compile(rb"[-+.\w]+")
_GAP = re.compile("\x00(\\d+)\x00")
"""Stands for a value that was passed over. No JSON text has this character in it."""
_LONGEST = 2**12
_read = json.JSONDecoder(parse_constant=nothing).decode


@dataclass(eq=False)
class Skimmed(Body):
    """A body of which only the short top-level fields were read."""

    _passed: list[memoryview] = field(default_factory=list)

    def change(self, values: Mapping[str, Any], drop: Iterable[str] = ()) -> Parts:
        head = edit(self._head, self._head_pairs, values, set(drop))
        pieces: list[bytes | memoryview] = []
        for place, text in enumerate(_GAP.split(head)):
            pieces.append(self._passed[int(text)] if place % 2 else text.encode())
        return tuple(piece for piece in pieces if piece)


def read_or_skim(raw: bytes, conversation: str, earlier: Iterable[Body] = ()) -> Body:
    """Read a body like `read_body`, or as much of it as can be read without holding up others."""
    try:
        return read_body(raw, conversation, earlier)
    except TooMuch as why:
        return skim(raw, conversation, str(why))


def skim(raw: bytes, conversation: str, why: str) -> Body:
    """Get a body unread but for its short fields; one that cannot be gone through is passed on as it is."""
    try:
        return _Skimming(raw, conversation, why).body
    except (ValueError, IndexError, RecursionError):
        return Body(raw, placed=True, unread=f"{why}; it is no JSON object that could be gone through")


class _Skimming:
    """One walk along the top level."""

    def __init__(self, raw: bytes, conversation: str, why: str) -> None:
        self._text = memoryview(raw)
        self._conversation = conversation
        self._skeleton = ""
        self.body = Skimmed(raw, placed=True, unread=why)
        at = self._keep(0, self._skip(0) + 1)
        if raw[at - 1 : at] != b"{":
            raise ValueError("no JSON object")
        at, before = self._keep(at, self._skip(at)), len(self._skeleton)
        while raw[at] != ord("}"):
            at = self._pair(at, before)
            before = len(self._skeleton)
            at = self._keep(at, self._skip(at))
            if raw[at] == ord(","):
                at = self._keep(at, self._skip(at + 1))
            elif raw[at] != ord("}"):
                raise ValueError("neither comma nor brace")
        self._keep(at, len(raw))
        self.body._head, self.body._head_bytes = self._skeleton, b""
        self.body.unread_digest = self._digest()

    def _pair(self, at: int, before: int) -> int:
        """Read a name, and its value where it is short; get the end."""
        if len(self.body._head_pairs) >= FIELDS_LIMIT:
            raise ValueError("too many fields")
        start = len(self._skeleton)
        found = _NAME.match(self._text, at, at + _LONGEST)
        if found is None:
            raise ValueError("no name")
        name = _read(found[0].decode())
        at = self._keep(at, self._skip(found.end()))
        if self._text[at] != ord(":"):
            raise ValueError("no colon")
        at = self._keep(at, self._skip(at + 1))
        value = len(self._skeleton)
        end = self._end(at)
        if end - at > FIELD_LIMIT or name == self._conversation:
            self._skeleton += f"\x00{len(self.body._passed)}\x00"
            self.body._passed.append(self._text[at:end])
        else:
            self.body.fields[name] = _read(bytes(self._text[at:end]).decode())
            self._keep(at, end)
        self.body._head_pairs.append(Pair(name, before, start, value, len(self._skeleton)))
        return end

    def _end(self, at: int) -> int:
        if self._text[at] in b'"[{':
            return end_of(self._text, at)
        found = _SCALAR.match(self._text, at, at + _LONGEST)
        if found is None:
            raise ValueError("no value")
        return found.end()

    def _keep(self, start: int, end: int) -> int:
        """Take a part over into the skeleton."""
        part = bytes(self._text[start:end])
        if b"\x00" in part or len(self._skeleton) + len(part) > 4 * FIELD_LIMIT:
            raise ValueError("what no JSON has, or too long")
        self._skeleton += part.decode()
        return end

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at, at + _LONGEST)
        return found.end() if found else at

    def _digest(self) -> bytes:
        hashed = sha256()
        for passed in self.body._passed:
            hashed.update(passed)
        return hashed.digest()

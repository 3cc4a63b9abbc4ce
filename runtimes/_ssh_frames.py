"""The frames that pass between the eval and its program on the far machine. Standard library only: both have it.

    length (4)  kind (1)  box (4)  number (4)  payload

Box 0 is the far program itself. To it go `q` (a request, JSON), `f` (a piece of a file that is put), `i` (a piece of
standard input; an empty one is its end) and `w` (so many bytes of an output were taken); from it come `r` (the answer
to a request, JSON), `g` (a piece of a file that is got), `1` and `2` (pieces of the outputs), `w` (so many bytes of
standard input were taken) and `x` (the end of a process, JSON). The number is that of the request or of the process.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

HEAD = struct.Struct(">IcII")
CHUNK = 1 << 16
WINDOW = 1 << 20
"""Bytes of one stream that may be on their way before the other side has said that it took some."""
GREETING = b"hotswap-far-1 "
"""What the first line of the far program begins with; whatever a login shell prints comes before it."""

REQUEST, REPLY, EXIT, TAKEN = b"q", b"r", b"x", b"w"
STDIN, STDOUT, STDERR = b"i", b"1", b"2"
PUT, GOT = b"f", b"g"


class Frame(NamedTuple):
    """One message."""

    kind: bytes
    box: int
    number: int
    payload: bytes = b""

    @property
    def json(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)

    def packed(self) -> bytes:
        """Get it as it travels."""
        return HEAD.pack(len(self.payload), self.kind, self.box, self.number) + self.payload


def said(kind: bytes, box: int, number: int, value: Any) -> bytes:
    """Get a message of JSON as it travels."""
    return Frame(kind, box, number, json.dumps(value).encode("ascii")).packed()


class Frames:
    """Takes what comes from a stream, and gives whole frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes; iterate over the frames that are whole by now."""
        self._rest += data
        at, whole = 0, len(self._rest)
        while whole - at >= HEAD.size:
            length, kind, box, number = HEAD.unpack_from(self._rest, at)
            end = at + HEAD.size + length
            if end > whole:
                break
            yield Frame(kind, box, number, bytes(self._rest[at + HEAD.size : end]))
            at = end
        del self._rest[:at]

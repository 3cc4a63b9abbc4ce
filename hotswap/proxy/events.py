"""Server-sent events, read from bytes that may be split anywhere; the bytes of each are kept as they came."""

from __future__ import annotations

import re
from typing import NamedTuple

from hotswap.dialects import Event

BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
BOM = b"\xef\xbb\xbf"


class Piece(NamedTuple):
    """Bytes of the stream up to and with a blank line, and the event in them; null for a comment or an id."""

    raw: bytes
    event: Event | None


class EventReader:
    """Splits a stream into events. All pieces together, and the rest, are the very bytes that came in."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Piece]:
        """Take the next bytes and get the events that are complete with them."""
        searched = max(0, len(self._buffer) - 3)
        self._buffer = buffer = self._buffer + data if self._buffer else data
        pieces, start = [], 0
        for blank in BLANK_LINE.finditer(buffer, searched):
            raw = buffer[start : blank.end()]
            pieces.append(Piece(raw, read_event(raw)))
            start = blank.end()
        if start:
            self._buffer = buffer[start:]
        return pieces

    def finish(self) -> list[Piece]:
        """Get what is left at the end of the stream: some servers leave out the last blank line."""
        rest, self._buffer = self._buffer, b""
        return [Piece(rest, read_event(rest))] if rest else []


def read_event(raw: bytes) -> Event | None:
    """Read the lines of one event. Only CR, LF and CRLF end a line: U+2028 is a character like any other."""
    name, data = "", []
    for line in raw.removeprefix(BOM).splitlines():
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return Event(name, b"\n".join(data).decode("utf-8", "replace")) if data else None

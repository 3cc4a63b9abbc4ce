"""A stream as bytes, read as the proxy reads it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hotswap.dialects import Dialect
from hotswap.messages import Answer
from hotswap.proxy.events import EventReader


def read_stream(dialect: Dialect, data: bytes, cut: str | None = None, places: Sequence[int] = ()) -> Answer:
    """Read a stream as the proxy does, cut into pieces at some places."""
    reader, assembler = EventReader(), dialect.assembler()
    edges = [0, *sorted(place for place in places if place < len(data)), len(data)]
    pieces = [piece for start, end in pairwise(edges) for piece in reader.feed(data[start:end])]
    for piece in pieces + reader.finish():
        if piece.event is not None:
            assembler.feed(piece.event)
    return assembler.answer(cut)

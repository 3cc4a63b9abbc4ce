"""Events are read from any bytes in any pieces, and the bytes stay what they were."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.dialects import Event
from hotswap.proxy.events import EventReader

STREAM = (
    b": a comment\n\n"
    b'data:{"no": "space"}\r\n\r\n'
    b"event: ping\ndata: one\ndata: two\n\n"
    b"id: 7\nretry: 10\n\n"
    + 'data: "é 😀 \u2028 inside"\r\r'.encode()
    + b"data: mixed\r\n\n"
    + b"data\n\n"
    + b"data: [DONE]"
)
EVENTS = [
    Event("", '{"no": "space"}'),
    Event("ping", "one\ntwo"),
    Event("", '"é 😀 \u2028 inside"'),
    Event("", "mixed"),
    Event("", ""),
    Event("", "[DONE]"),
]


def read(pieces: list[bytes]) -> tuple[list[Event], bytes]:
    reader = EventReader()
    found = [piece for data in pieces for piece in reader.feed(data)] + reader.finish()
    return [piece.event for piece in found if piece.event], b"".join(piece.raw for piece in found)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def test_every_spelling_of_an_event_is_read() -> None:
    assert read([STREAM]) == (EVENTS, STREAM)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM))))
def test_cutting_a_stream_anywhere_changes_neither_its_events_nor_its_bytes(places: list[int]) -> None:
    assert read(cut(STREAM, places)) == (EVENTS, STREAM)


def test_one_byte_at_a_time_is_enough() -> None:
    assert read([bytes([byte]) for byte in STREAM]) == (EVENTS, STREAM)


@settings(deadline=None)
@given(st.binary(), st.lists(st.integers(0, 200)))
def test_bytes_that_are_no_event_stream_come_out_as_they_came(data: bytes, places: list[int]) -> None:
    pieces = cut(data, [place for place in places if place <= len(data)])
    assert read(pieces)[1] == data


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_an_event_is_there_as_soon_as_its_blank_line_is(end: bytes) -> None:
    reader = EventReader()
    assert reader.feed(b"data: x" + end[:1]) == []
    assert [piece.event for piece in reader.feed(end[1:])] == [Event("", "x")]

"""How each dialect's answers are read into the pivot and written from it, whole and as streams: one file a dialect.

What an endpoint may speak has `read(body, dropped) -> Answered | Failed` and a `Reader` of its stream; what a program
may speak has `write(answered) -> dict` and a `Writer` of its stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hotswap.dialects import Event
from hotswap.messages import Usage
from hotswap.translation.pivot import Part, Piece, Untranslatable

Read = Callable[[Any, set[str]], list[Part]]


class Reader(Protocol):
    """Reads a stream of an endpoint. It never raises: what it does not know is left out."""

    def feed(self, event: Event) -> list[Piece]: ...

    def finish(self) -> list[Piece]:
        """The stream is over: what could only be said now. Nothing where it broke off."""

    @property
    def usage(self) -> Usage | None:
        """What the endpoint has counted so far."""


class Writer(Protocol):
    """Writes a stream for a program. Failures are not its business."""

    def write(self, piece: Piece) -> bytes: ...


def leniently(read: Read, blocks: Any, dropped: set[str]) -> list[Part]:
    """Read the parts of an answer; what no other dialect can hold is left out, and noted."""
    parts: list[Part] = []
    for block in blocks if isinstance(blocks, list) else ():
        try:
            parts += read([block], dropped)
        except Untranslatable as error:
            dropped.add(f"output.{error.kind}")
    return parts


def encode(value: Mapping[str, Any]) -> bytes:
    """In ASCII: no line separator of Unicode can split an event, no lone surrogate an encoder."""
    return json.dumps(value).encode()


def sse(value: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%sdata: %s\n\n" % (head, encode(value))


def shaped(prefix: str, id: str) -> str:  # noqa: A002
    """An id in the shape of one dialect, out of that of another."""
    for known in ("chatcmpl-", "chatcmpl_", "resp_", "msg_", "gen-"):
        id = id.removeprefix(known)  # noqa: A001
    return prefix + id

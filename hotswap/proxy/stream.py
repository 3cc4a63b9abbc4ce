"""A streamed answer on its way: its bytes as they may be passed on, and a copy of it that is read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from hotswap.dialects import Assembler, Dialect, Event
from hotswap.messages import Answer, ProviderError, Usage
from hotswap.proxy.events import EventReader, Piece
from hotswap.proxy.packed import NotPacked, TooLarge, UnknownCoding, Unpacker, coding_of
from hotswap.proxy.tape import Incoming
from hotswap.proxy.upstream import BROKEN, connection_error


class Rewriter(Protocol):
    """Turns the events of an endpoint's stream into the bytes of the program's."""

    def feed(self, event: Event) -> bytes: ...
    def finish(self) -> bytes: ...
    @property
    def usage(self) -> Usage:
        """What the endpoint counted, of which the program may be told nothing."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """What could not be said to either of them, by name."""


class Stream:
    """One streamed answer. The events from which on a program could take the answer for complete are held until the
    last one is there, so that it can be recorded before they go."""

    def __init__(
        self, dialect: Dialect, incoming: Incoming, silence_s: float, rewriter: Rewriter | None = None
    ) -> None:
        self.ended = False
        self.first_byte_at: float | None = None
        self.rest = b""
        """At the end: what is still to be passed on."""
        self.assembler: Assembler = dialect.assembler()
        """Reads what the program is sent."""
        self._incoming = incoming
        self._silence_s = silence_s
        self._spoke_at = time.monotonic()
        self._rewriter = rewriter
        self._reader = EventReader()
        self._translated = EventReader()
        self._inflater = inflater(incoming.headers)
        self._held = b""
        self._cut: str | None = None
        self._complete = False
        self._unreadable: str | None = None

    async def read(self) -> bytes | None:
        """Get what may be passed on next, perhaps nothing yet; null at the end: `rest` has what is left."""
        try:
            data = await self._incoming.read()
        except BROKEN as error:
            self._cut = None if self.ended else connection_error(error, self._silence_s).message
            self._finish(broken=True)
            return None
        if not data:
            self._finish()
            return None
        now = time.monotonic()
        self.first_byte_at = self.first_byte_at or now
        ready = self._sift(self._pieces(data))
        if self._incoming.at_end:  # the end came along: it goes on along with it
            self.rest = ready
            self._finish()
            return None
        if now - self._spoke_at > self._silence_s and not self.ended:
            self._cut = f"bytes came, and no event for {self._silence_s:g} s"
            self._finish(broken=True)
            return None
        return ready

    def answer(self) -> Answer:
        """Get the answer as far as it has come."""
        if self._unreadable is not None:
            return Answer(error=ProviderError("malformed", self._unreadable, 200))
        answer = self.assembler.answer(self._cut)
        return answer if self._rewriter is None else replace(answer, usage=self._rewriter.usage)

    @property
    def dropped(self) -> tuple[str, ...]:
        """What of it the program cannot be told, by name."""
        return () if self._rewriter is None else self._rewriter.dropped

    def _read(self, event: Event) -> None:
        """Feed the copy. That reading fails is no reason to stop relaying."""
        if self._unreadable is not None:
            return
        try:
            self.assembler.feed(event)
            self.ended = self.ended or self.assembler.ended
            self._complete = self.assembler.complete
        except Exception as error:  # noqa: BLE001
            self._unreadable = f"the stream could not be read: {error!r}"
            self._complete = False

    def _finish(self, *, broken: bool = False) -> None:
        self.rest += self._sift(self._last_pieces(broken=broken)) + self._held
        self._held = b""

    def _last_pieces(self, *, broken: bool) -> list[Piece]:
        pieces = self._reader.finish()
        if self._rewriter is None:
            return [Piece(b"" if self._inflater else piece.raw, piece.event) for piece in pieces]
        said = b"".join(self._rewriter.feed(piece.event) for piece in pieces if piece.event is not None)
        said += b"" if broken else self._rewriter.finish()
        return [*self._translated.feed(said), *self._translated.finish()]

    def _sift(self, pieces: list[Piece]) -> bytes:
        ready = b""
        for piece in pieces:
            if piece.event is not None:
                self._read(piece.event)
            self._held += piece.raw
            if self.ended or not self._complete:
                ready, self._held = ready + self._held, b""
        return ready

    def _pieces(self, data: bytes) -> list[Piece]:
        """Split into events. Compressed bytes are passed on as they come, behind the events in them."""
        plain = data if self._inflater is None else inflate(self._inflater, data)
        pieces = self._reader.feed(plain)
        if any(piece.event is not None for piece in pieces):
            self._spoke_at = time.monotonic()
        if self._rewriter is not None:
            said = b"".join(self._rewriter.feed(piece.event) for piece in pieces if piece.event is not None)
            return self._translated.feed(said)
        if self._inflater is not None:
            return [*(Piece(b"", piece.event) for piece in pieces), Piece(data, None)]
        return pieces


def inflater(headers: Mapping[str, str]) -> Unpacker | None:
    """Get what unpacks an answer; null where it is not packed, or as nobody here can read. We ask for none that is, so
    this is for the stubborn."""
    coding = coding_of(headers)
    try:
        return Unpacker(coding) if coding else None
    except UnknownCoding:
        return None


def inflate(with_: Unpacker | None, data: bytes) -> bytes:
    """Get the plain bytes; the same ones where they are not packed after all, or unpack to more than is read."""
    if with_ is None:
        return data
    try:
        return b"".join(with_.feed(data))
    except (NotPacked, TooLarge):
        return data

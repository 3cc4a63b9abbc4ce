"""One part after the other: a stream whose parts may interleave becomes one whose parts do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from hotswap.translation.pivot import Closed, Grew, Opened, Part, Piece, reworded, words


class Lane:
    """Parts are begun, grown and ended under keys of the reader's own; what comes out is in order.

    The first open part flows through at once. A part that begins before it is over waits until then.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Slot] = deque()
        self._slots: dict[Hashable, _Slot] = {}
        self._out: list[Piece] = []

    def take(self) -> list[Piece]:
        """Get what has come since the last time."""
        out, self._out = self._out, []
        return out

    def begin(self, key: Hashable, part: Part) -> None:
        """Begin a part; once is enough."""
        if key in self._slots:
            return
        slot = self._slots[key] = _Slot(reworded(part, ""))
        self._waiting.append(slot)
        if self._waiting[0] is slot:
            self._out.append(Opened(slot.part))
        self.more(key, words(part))

    def more(self, key: Hashable, text: str) -> None:
        """Add to a part that is open; to any other, nothing happens."""
        slot = self._slots.get(key)
        if slot is None or slot.ended or not text:
            return
        slot.pieces.append(text)
        if self._waiting[0] is slot:
            self._out.append(Grew(text))

    def end(self, key: Hashable, whole: str | None = None) -> None:
        """End a part. `whole` is what it amounts to, where the stream says so: what was missing is added."""
        slot = self._slots.get(key)
        if slot is None or slot.ended:
            return
        seen = "".join(slot.pieces)
        if whole is not None and whole.startswith(seen):
            self.more(key, whole[len(seen) :])
        slot.ended = True
        self._advance()

    def seen(self, key: Hashable) -> str:
        """Get what has come of a part."""
        slot = self._slots.get(key)
        return "".join(slot.pieces) if slot else ""

    def end_all(self) -> None:
        for key in self._slots:
            self.end(key)

    def _advance(self) -> None:
        while self._waiting and self._waiting[0].ended:
            done = self._waiting.popleft()
            self._out.append(Closed(done.whole()))
            if self._waiting:
                following = self._waiting[0]
                self._out.append(Opened(following.part))
                self._out += [Grew(text) for text in following.pieces]


class _Slot:
    def __init__(self, part: Part) -> None:
        self.part = part
        self.pieces: list[str] = []
        self.ended = False

    def whole(self) -> Part:
        return reworded(self.part, "".join(self.pieces))

"""What a request shares with an earlier one, where secrets were masked in both.

Both are compared as they were sent, and stored as they are masked. A cut between what is shared and what is new
may not fall into a secret: it is made where no text of JSON is open, at the beginning or the end of an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Mask = Callable[[bytes], bytes]
"""Gets bytes without their secrets."""

BLOCK = 1 << 16
CLOSE = 16
"""Bytes between two secrets below which they are taken for one."""
SMALL = 64
"""Fewer bytes in common are not worth a reference."""
_MASK = re.compile(rb"\[secret:[^\]]*\]")


class Edit(NamedTuple):
    """A place where something was masked: from `start` to `end` as it was sent, `length` bytes as it is stored."""

    start: int
    end: int
    length: int

    def moved(self, by: int) -> Edit:
        return Edit(self.start + by, self.end + by, self.length)


@dataclass(frozen=True)
class Sent:
    """A request as it was sent, and where it was masked.

    It is kept as the pieces in which it grew, which it shares with the requests before it: comparing another with it
    copies nothing.
    """

    number: int
    pieces: tuple[bytes, ...]
    length: int
    edits: tuple[Edit, ...] = ()

    def stored(self, at: int) -> int:
        """Get the place in the stored request of a place in the sent one; it lies in no edit."""
        return at + sum(edit.length - (edit.end - edit.start) for edit in self.edits if edit.end <= at)

    def common(self, raw: bytes) -> int:
        """Get how many bytes are the same at the beginning."""
        at = 0
        for piece in self.pieces:
            if not raw.startswith(piece, at):
                return at + _prefix(piece, raw[at : at + len(piece)])
            at += len(piece)
        return at

    def common_end(self, raw: bytes, limit: int) -> int:
        """Get how many bytes are the same at the end, at most `limit`."""
        found = 0
        for piece in reversed(self.pieces):
            end = len(raw) - found
            if found + len(piece) > limit or not raw.endswith(piece, 0, end):
                rest = raw[max(0, end - len(piece)) : end]
                return found + _suffix(piece, rest, min(limit - found, len(rest)))
            found += len(piece)
        return found

    def first(self, size: int) -> tuple[bytes, ...]:
        """Get so many bytes of the beginning, as pieces. It is most of them, and is looked for from the end."""
        count, total = len(self.pieces), self.length
        while count and total - len(self.pieces[count - 1]) >= size:
            count -= 1
            total -= len(self.pieces[count])
        if total == size:
            return self.pieces[:count]
        last = self.pieces[count - 1]
        return (*self.pieces[: count - 1], last[: size - (total - len(last))])

    def last(self, size: int) -> tuple[bytes, ...]:
        """Get so many bytes of the end, as pieces."""
        kept, left = [], size
        for piece in reversed(self.pieces):
            if left <= 0:
                break
            kept.append(piece if len(piece) <= left else piece[len(piece) - left :])
            left -= len(piece)
        return tuple(reversed(kept))


class Difference(NamedTuple):
    """A request beside an earlier one."""

    sent: Sent
    base: tuple[int, int, int] | None
    """The earlier one's number, and how many of its stored bytes are shared at the beginning and the end."""
    new: bytes
    """What stands between them, masked."""


def nearest(earlier: Sequence[Sent], raw: bytes) -> tuple[Sent | None, int]:
    """Get the request that another one begins with most of, the newest of several, and how much that is."""
    best: tuple[Sent | None, int] = (None, 0)
    for sent in reversed(earlier):
        if (shared := sent.common(raw)) > best[1]:
            best = (sent, shared)
    return best


def differ(number: int, raw: bytes, base: Sent | None, common: int, mask: Mask) -> Difference:
    """Get a request as what is new in it against another, with which it has `common` bytes at the beginning."""
    before, after = _shared(base, raw, common) if base is not None else (0, 0)
    if base is None or before + after < SMALL:
        new = mask(raw)
        return Difference(Sent(number, (raw,), len(raw), edits(raw, new)), None, new)
    middle = raw[before : len(raw) - after]
    new = mask(middle)
    found = (
        *(edit for edit in base.edits if edit.end <= before),
        *(edit.moved(before) for edit in edits(middle, new)),
        *(edit.moved(len(raw) - base.length) for edit in base.edits if edit.start >= base.length - after),
    )
    pieces = (*base.first(before), middle, *base.last(after))
    tail = base.stored(base.length) - base.stored(base.length - after)
    sent = Sent(number, tuple(piece for piece in pieces if piece), len(raw), found)
    return Difference(sent, (base.number, base.stored(before), tail), new)


def edits(raw: bytes, masked: bytes) -> tuple[Edit, ...]:
    """Find what was masked, from the text before and after; all of it where that cannot be told."""
    if raw is masked or raw == masked:
        return ()
    return tuple(_joined(_aligned(raw, masked) or [Edit(0, len(raw), len(masked))]))


def moved_lengths(lengths: Sequence[int], found: Sequence[Edit]) -> list[int]:
    """Get the lengths of pieces after the masking. What was masked across a border goes to the piece it ends in."""
    moved, at, begun = [], 0, 0
    shift, rest = 0, list(found)
    for length in lengths:
        at += length
        while rest and rest[0].end <= at:
            edit = rest.pop(0)
            shift += edit.length - (edit.end - edit.start)
        inside = rest[0].start if rest and rest[0].start < at else at
        moved.append(max(0, inside + shift - begun))
        begun = max(begun, inside + shift)
    return moved


def _aligned(raw: bytes, masked: bytes) -> list[Edit] | None:
    marks = list(_MASK.finditer(masked))
    if not marks or not raw.startswith(masked[: marks[0].start()]):
        return None
    found: list[Edit] = []
    at = marks[0].start()
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        between = masked[mark.end() : following.start() if following else len(masked)]
        place = raw.find(between, at) if following else len(raw) - len(between)
        if place < at or not raw.startswith(between, place):
            return None
        found.append(Edit(at, place, mark.end() - mark.start()))
        at = place + len(between)
    return found


def _joined(found: Sequence[Edit]) -> Iterator[Edit]:
    """Join what stands so close together that where one ends is uncertain."""
    last = found[0]
    for edit in found[1:]:
        gap = edit.start - last.end
        if gap < CLOSE:
            last = Edit(last.start, edit.end, last.length + gap + edit.length)
        else:
            yield last
            last = edit
    yield last


def _shared(base: Sent, raw: bytes, common: int) -> tuple[int, int]:
    """Get how many bytes of both, as they were sent, may be shared at the beginning and at the end."""
    before = _before(raw, common)
    for edit in reversed(base.edits):
        if edit.start < before < edit.end:
            before = _before(raw, edit.start)
    moved = len(raw) - base.length
    start = len(raw) - base.common_end(raw, min(base.length, len(raw)) - before)
    start = _after(raw, start)
    for edit in base.edits:
        if edit.start < start - moved < edit.end:
            start = _after(raw, edit.end + moved)
    return before, len(raw) - start


def _before(raw: bytes, at: int) -> int:
    """Get the last place up to `at` between objects: before the beginning of one, or after an end."""
    opened = raw.rfind(b'{"', 0, at)
    closed = raw.rfind(b'"}', 0, at)
    if closed >= 0:
        closed += 2
        while closed < at and raw[closed] in b"}]":
            closed += 1
    return max(opened, closed, 0)


def _after(raw: bytes, at: int) -> int:
    """Get the first place from `at` on between objects."""
    if raw[max(0, at - 2) : at] == b'"}':
        return at
    opened, closed = raw.find(b'{"', at), raw.find(b'"}', at)
    return min(place for place in (opened, closed + 2 if closed >= 0 else -1, len(raw)) if place >= 0)


def _prefix(one: bytes, other: bytes) -> int:
    """Get how many bytes are the same at the beginning: block by block, and then by halves."""
    limit, low = min(len(one), len(other)), 0
    while low + BLOCK <= limit and one[low : low + BLOCK] == other[low : low + BLOCK]:
        low += BLOCK
    high = min(low + BLOCK, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _suffix(one: bytes, other: bytes, limit: int) -> int:
    """Get how many bytes are the same at the end, at most `limit`."""
    a, b, low = len(one), len(other), 0
    while low + BLOCK <= limit and one[a - low - BLOCK : a - low] == other[b - low - BLOCK : b - low]:
        low += BLOCK
    high = min(low + BLOCK, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if one[a - middle : a - low] == other[b - middle : b - low]:
            low = middle
        else:
            high = middle - 1
    return low

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
    """A request as it was sent, and where it was masked."""

    number: int
    raw: bytes
    edits: tuple[Edit, ...] = ()

    def stored(self, at: int) -> int:
        """Get the place in the stored request of a place in the sent one; it lies in no edit."""
        return at + sum(edit.length - (edit.end - edit.start) for edit in self.edits if edit.end <= at)

    @property
    def size(self) -> int:
        """Bytes of it as it is stored."""
        return self.stored(len(self.raw))


class Difference(NamedTuple):
    """A request beside an earlier one."""

    sent: Sent
    base: tuple[int, int, int] | None
    """The earlier one's number, and how many of its stored bytes are shared at the beginning and the end."""
    new: bytes
    """What stands between them, masked."""


def differ(number: int, raw: bytes, base: Sent | None, mask: Mask) -> Difference:
    """Get a request as what is new in it against another."""
    before, after = _shared(base, raw) if base is not None else (0, 0)
    if base is None or before + after < SMALL:
        new = mask(raw)
        return Difference(Sent(number, raw, edits(raw, new)), None, new)
    end = len(raw) - after
    middle = raw[before:end]
    new = mask(middle)
    moved = len(raw) - len(base.raw)
    found = (
        *(edit for edit in base.edits if edit.end <= before),
        *(edit.moved(before) for edit in edits(middle, new)),
        *(edit.moved(moved) for edit in base.edits if edit.start >= len(base.raw) - after),
    )
    tail = base.size - base.stored(len(base.raw) - after)
    return Difference(Sent(number, raw, found), (base.number, base.stored(before), tail), new)


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


def _shared(base: Sent, raw: bytes) -> tuple[int, int]:
    """Get how many bytes of both, as they were sent, may be shared at the beginning and at the end."""
    old = base.raw
    before = _outside(_prefix(old, raw), old, base.edits)
    room = min(len(old), len(raw)) - before
    start = len(old) - _suffix(old, raw, room)
    start = _after(old, start)
    for edit in base.edits:
        if edit.start < start < edit.end:
            start = _after(old, edit.end)
    return before, len(old) - start


def _outside(at: int, old: bytes, found: Sequence[Edit]) -> int:
    """Get the last place up to `at` where a cut is safe."""
    at = _before(old, at)
    for edit in reversed(found):
        if edit.start < at < edit.end:
            at = _before(old, edit.start)
    return at


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

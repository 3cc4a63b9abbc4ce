"""What was captured of one rollout so far: which call each call goes on from, and whether its prompt does."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from hotswap.capture.chat import Choice, Tokens
from hotswap.capture.sidecar import Record, Sidecar
from hotswap.errors import StoreError

COMPARED = 32
"""The newest conversations, among which one that begins is looked for what it begins like."""
WIDTH = 4
"""Bytes of an id."""


@dataclass(frozen=True)
class Tip:
    """One record, and all the ids that its call read and wrote."""

    record: int
    ids: bytes
    read: int
    """Bytes of the prompt."""

    def begins(self, prompt: bytes) -> bool:
        return prompt.startswith(self.ids)

    def is_again(self, prompt: bytes) -> bool:
        return self.read == len(prompt) and self.ids.startswith(prompt)


class Keeper:
    """Writes the file of one rollout. What is wrong with the disk is said by `check`; then no more is written."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._tips: OrderedDict[int | None, tuple[Tip, ...]] = OrderedDict()
        self._error: StoreError | None = None

    def before(self, conversation: int | None) -> tuple[Tip, ...]:
        """Get what the last call of a conversation came to, to be handed to `keep` when the next one is answered."""
        return self._tips.get(conversation, ())

    def keep(self, call: int, conversation: int | None, before: Sequence[Tip], tokens: Tokens) -> bool | None:
        """Write the answer of a call, and get whether its prompt breaks with the call before; null where not written.

        The same prompt once more is no break: it is another sample.
        """
        if self._error is not None:
            return None
        prompt = array("I", tokens.prompt or ()).tobytes()
        fits = any(tip.begins(prompt) or tip.is_again(prompt) for tip in before)
        broken = bool(before) and not fits
        try:
            tips = self._write(call, prompt, before, tokens.choices, broken)
        except StoreError as error:
            self._error = error
            return None
        self._tips[conversation] = tips
        self._tips.move_to_end(conversation)
        return broken

    def check(self) -> None:
        """Raise StoreError where not all could be written."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """May be called again."""
        self._sidecar.close()

    def _write(
        self, call: int, prompt: bytes, before: Sequence[Tip], choices: Sequence[Choice], broken: bool
    ) -> tuple[Tip, ...]:
        newest = islice(reversed(self._tips.values()), COMPARED)
        known = [*before, *(tip for tips in newest for tip in tips)]
        base, shared = _longest(prompt, known)
        tips: list[Tip] = []
        for choice in choices:
            new = array("I")
            new.frombytes(prompt[shared:])
            record = Record(
                call, choice.index, broken, base, shared // WIDTH, new, choice.output, choice.logprobs
            )
            base, shared = self._sidecar.append(record), len(prompt)  # the next choice has the same prompt
            tips.append(Tip(base, prompt + array("I", choice.output).tobytes(), len(prompt)))
        return tuple(tips)


def _longest(prompt: bytes, known: Sequence[Tip]) -> tuple[int, int]:
    """Get the record that a prompt has most in common with, and how many bytes; none: 0 and 0."""
    shared, record = max(((_common(prompt, tip.ids), tip.record) for tip in known), default=(0, 0))
    return (record, shared) if shared else (0, 0)


def _common(one: bytes, other: bytes) -> int:
    """Get how many bytes are the same at the beginning, in whole ids."""
    if one.startswith(other):
        return len(other)
    low, high = 0, min(len(one), len(other)) // WIDTH
    left, right = memoryview(one), memoryview(other)
    while low < high:
        middle = (low + high + 1) // 2
        if left[low * WIDTH : middle * WIDTH] == right[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low * WIDTH

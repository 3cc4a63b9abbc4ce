"""Whether a program left a path because it shortened its history: what it went on with is shorter, and goes on from
what it left.

It goes on from there where an earlier answer is sent along in another place, where the longest line of one stands in
what the user says (a summary), or where the provider's own compaction is part of it. A program that asks the same
again, goes back to an earlier message, begins with another task, or writes messages anew has not shortened anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hotswap.graph.hints import Strand, lines
from hotswap.graph.threads import NONE, Threads
from hotswap.messages import texts
from hotswap.trace import Node

SUMMARIES = ("compaction", "compaction_summary")
"""Types of parts in which providers put a history that they have shortened themselves."""
MUCH = 2
"""A history of as many messages is shorter where so many times its text fits into what it was."""


class Size(NamedTuple):
    """How long a part of a path is."""

    messages: int = 0
    text: int = 0
    goes_on: bool = False
    """Something in it comes from an earlier answer."""


@dataclass(eq=False)
class Shortening:
    """Judges the paths that one conversation left. Each message is looked at once."""

    nodes: Sequence[Node]
    threads: Threads
    follows: Mapping[int, int]
    """The message after each on the path that counts; below `NONE` the first one."""
    _sizes: dict[int, Size] = field(default_factory=dict)
    _said: frozenset[str] | None = None

    def left(self, strand: Strand) -> bool:
        """Whether the conversation left a path when it shortened its history."""
        first = self.follows.get(NONE if strand.forked is None else strand.forked)
        if first is None or (self.nodes[first].sampled and self.nodes[strand.own[0]].sampled):
            return False
        new, old = self._request(first), _size(self.nodes[at] for at in strand.own)
        return new.goes_on and (new.messages < old.messages or MUCH * new.text < old.text)

    def _request(self, first: int) -> Size:
        """The size of what follows, up to the first request that ended in it."""
        way: list[int] = []
        at: int | None = first
        while at is not None and at not in self._sizes:
            way.append(at)
            at = None if self._ends(at) else self.follows.get(at)
        size = Size() if at is None else self._sizes[at]
        for place in reversed(way):
            node = self.nodes[place]
            goes_on = size.goes_on or self._comes_from_an_answer(node)
            size = self._sizes[place] = Size(size.messages + 1, size.text + _length(node), goes_on)
        return size

    def _ends(self, at: int) -> bool:
        return at in self.threads.uses and not self.nodes[at].sampled

    def _comes_from_an_answer(self, node: Node) -> bool:
        if node.sampled:
            return False
        if node.id in self.threads.copies or any(_is_summary(part) for part in _parts(node.content)):
            return True
        return node.role == "user" and not self._lines.isdisjoint(
            line for text in texts(node.content) for line in lines(text)
        )

    @property
    def _lines(self) -> frozenset[str]:
        """The longest line of each answer."""
        if self._said is None:
            longest = (max(lines(node.text), key=len, default="") for node in self.nodes if node.sampled)
            self._said = frozenset(longest) - {""}
        return self._said


def _size(nodes: Iterable[Node]) -> Size:
    lengths = [_length(node) for node in nodes]
    return Size(len(lengths), sum(lengths))


def _length(node: Node) -> int:
    """The characters of a message: its texts, and the arguments of its calls."""
    return sum(map(len, texts(node.content))) + sum(len(call.arguments) for call in node.tool_calls)


def _parts(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list | tuple) else ()


def _is_summary(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in SUMMARIES

"""Signs that one conversation was started by a tool call of another: its prompt stood in the call's arguments, or its
answer came back in the result.

Texts are compared line by line, because programs wrap what they pass on. One pass over what the messages hold, however
many conversations there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotswap.graph.threads import LEAST, phrases
from hotswap.messages import texts
from hotswap.trace import Node

LINES = 1_000
"""Lines of one prompt that are looked at."""


@dataclass(eq=False)
class Strand:
    """A path by its leaf, and what of it no path before it has."""

    leaf: int
    answer: int
    """The last answer on it."""
    own: list[int] = field(default_factory=list)
    forked: int | None = None
    asked: bool = False
    """A tool call asked for it."""
    returned: bool = False
    """Its answer came back as the result of a tool."""


def find_hints(nodes: Sequence[Node], strands: Sequence[Strand]) -> None:
    """Mark the strands that a tool call of another one started."""
    if len(strands) < 2:
        return
    owner = {at: strand for strand in strands for at in strand.own}
    openings = {id(strand): _opening(nodes, strand) for strand in strands}
    _find_asked(nodes, strands, owner, openings)
    _find_returned(nodes, strands, owner)


def _find_asked(
    nodes: Sequence[Node],
    strands: Sequence[Strand],
    owner: dict[int, Strand],
    openings: dict[int, frozenset[str]],
) -> None:
    """The first call with a line of a prompt in it asked for every later conversation that has it."""
    wanted: dict[str, list[Strand]] = {}
    for strand in strands:
        for line in openings[id(strand)]:
            wanted.setdefault(line, []).append(strand)
    for node in nodes:
        if not node.sampled or node.id not in owner:
            continue
        known = openings[id(owner[node.id])]
        for line in (line for call in node.tool_calls for line in lines(call.arguments)):
            if line in wanted and line not in known:
                for strand in wanted.pop(line):
                    strand.asked = strand.asked or node.id < strand.own[0]


def _find_returned(nodes: Sequence[Node], strands: Sequence[Strand], owner: dict[int, Strand]) -> None:
    """The last result with an answer's longest line in it returned every earlier answer that has it."""
    wanted: dict[str, list[Strand]] = {}
    for strand in strands:
        said = max(lines(nodes[strand.answer].text), key=len, default="")
        if said and strand.answer in strand.own:
            wanted.setdefault(said, []).append(strand)
    for node in reversed(nodes):
        if node.role != "tool" or node.id not in owner:
            continue
        for line in {line for text in _results(node.content) for line in lines(text)} & wanted.keys():
            if any(strand is owner[node.id] for strand in wanted[line]):
                continue
            for strand in wanted.pop(line):
                strand.returned = strand.answer < node.id


def _opening(nodes: Sequence[Node], strand: Strand) -> frozenset[str]:
    """The lines of what the user says before the first answer of a strand's own part."""
    found: set[str] = set()
    for at in strand.own:
        if nodes[at].role == "assistant" or len(found) > LINES:
            break
        if nodes[at].role == "user":
            found.update(lines("\n".join(texts(nodes[at].content))))
    return frozenset(found)


def _results(content: Any) -> Iterator[str]:
    """The texts of a tool's result, wherever in it they stand."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _results(item)


def lines(text: str) -> Iterator[str]:
    """The lines of a text that are long enough to be told apart."""
    for phrase in phrases(text):
        for line in phrase.splitlines():
            if len(line.strip()) >= LEAST:
                yield line.strip()

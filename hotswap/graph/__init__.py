"""The messages of one rollout as a graph: each follows another, and what requests share is there once.

A program sends its whole conversation with each call. As long as it sends what the graph knows, it walks
along the path; what is new extends it, and what differs forks it. An answer is added when it comes, and
is found again when the program sends it back, although programs drop fields, trim text and write
arguments anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotswap.messages import Message, ToolCall
from hotswap.trace import Branch, BranchKind, Node

Key = tuple[Any, ...]
VOLATILE = frozenset({"cache_control", "annotations"})
"""Fields of a content part that programs add, move and drop from call to call."""


@dataclass
class Origin:
    """Where a path was last used: what kind of conversation it is, of which agent, and when."""

    kind: BranchKind
    agent: str
    at: int


@dataclass
class Graph:
    """Nodes, in order of arrival; a node's id is its place."""

    nodes: list[Node] = field(default_factory=list)
    _children: dict[tuple[int | None, Key], int] = field(default_factory=dict)
    _origins: dict[int, Origin] = field(default_factory=dict)
    _uses: int = 0

    def extend(self, leaf: int | None, messages: Iterable[Message]) -> int | None:
        """Walk on from `leaf` along what a program sent, adding what is not known. Gets the new leaf."""
        for message in messages:
            key = (leaf, identity(message))
            known = self._children.get(key)
            if known is None:
                known = self._children[key] = self._add(leaf, message)
            leaf = known
        return leaf

    def answer(self, leaf: int | None, message: Message, call: int) -> int:
        """Add what the model said after `leaf`, in `call`: always a node of its own."""
        node = self._add(leaf, message)
        self.nodes[node].sampled, self.nodes[node].call = True, call
        self._children[leaf, identity(message)] = node
        return node

    def use(self, leaf: int, kind: BranchKind, agent: str) -> None:
        """Note who the path to `leaf` belongs to."""
        self._uses += 1
        self._origins[leaf] = Origin(kind, agent, self._uses)

    def branches(self) -> list[Branch]:
        """Get a branch for each leaf of a path with an answer in it.

        The one that matters comes first: of all conversations the longest, in it the path that was used last.
        """
        parents = {node.parent for node in self.nodes}
        leaves = [
            node.id for node in self.nodes if node.id not in parents and not node.extra.get("truncated")
        ]
        turns = self._turns()
        longest: dict[int, int] = {}
        roots = self._roots()
        for leaf in leaves:
            longest[roots[leaf]] = max(longest.get(roots[leaf], 0), turns[leaf])
        found = [(leaf, self._origins[leaf]) for leaf in leaves if leaf in self._origins and turns[leaf]]
        found.sort(key=lambda pair: (longest[roots[pair[0]]], pair[1].at), reverse=True)
        return [Branch(leaf, origin.kind, origin.agent) for leaf, origin in found]

    def _add(self, parent: int | None, message: Message) -> int:
        node = Node(
            id=len(self.nodes),
            parent=parent,
            role=message.role,
            content=message.content,
            tool_calls=list(message.tool_calls),
            tool_call_id=message.tool_call_id,
            reasoning=message.reasoning,
            refusal=message.refusal,
            extra=dict(message.extra),
        )
        self.nodes.append(node)
        return node.id

    def _turns(self) -> list[int]:
        """How many answers lie on the path to each node. A parent always stands before its children."""
        counts: list[int] = []
        for node in self.nodes:
            before = 0 if node.parent is None else counts[node.parent]
            counts.append(before + (node.sampled and not node.extra.get("truncated")))
        return counts

    def _roots(self) -> list[int]:
        roots: list[int] = []
        for node in self.nodes:
            roots.append(node.id if node.parent is None else roots[node.parent])
        return roots


def identity(message: Message) -> Key:
    """Get what makes a message the same message when it is sent again."""
    text, rest = _content(message.content)
    if message.role == "assistant":
        text = text.strip()
    calls = tuple((call.id, call.name, _arguments(call)) for call in message.tool_calls)
    return (message.role, text, rest, calls, message.tool_call_id)


def _content(content: Any) -> tuple[str, str]:
    """The text of a content, and what is no text of it; a list of one text part is the same as that text."""
    if content is None or isinstance(content, str):
        return content or "", ""
    texts, rest = [], []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            rest.append((len(texts), _steady(part)))
    return "\x00".join(texts), json.dumps(rest, sort_keys=True) if rest else ""


def _steady(part: Any) -> Any:
    return {k: v for k, v in part.items() if k not in VOLATILE} if isinstance(part, Mapping) else part


def _arguments(call: ToolCall) -> str:
    """Arguments as JSON in one spelling: programs read them and write them again."""
    try:
        return json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments

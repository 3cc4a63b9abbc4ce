"""The messages of one rollout as a graph: each follows another, and what requests share is there once.

A program sends its whole conversation with each call. As long as it sends what the graph knows, it walks
along the path; what is new extends it, and what differs forks it. An answer is added when it comes, and
is found again when the program sends it back, although programs drop fields, trim text and write
arguments anew. The message that came first is what is kept, as sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hotswap.blobs import Blobs
from hotswap.graph.identity import Key, identity
from hotswap.graph.kinds import Looked, look
from hotswap.graph.threads import NONE, Secret, Threads
from hotswap.messages import Message
from hotswap.trace import Branch, BranchKind, CallRecord, Node

__all__ = ["Graph", "Prepared", "identity"]


class Prepared(NamedTuple):
    """A message as it is kept, and what makes it the same one when it is sent again."""

    message: Message
    key: Key


@dataclass
class Graph:
    """Nodes, in order of arrival; a node's id is its place. With `blobs`, large payloads are kept there."""

    nodes: list[Node] = field(default_factory=list)
    blobs: Blobs | None = None
    _children: dict[tuple[int | None, Key], int] = field(default_factory=dict)
    _answers: dict[tuple[int | None, Key], int] = field(default_factory=dict)
    """Answers without their calls' ids: some programs write these anew."""
    _broken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._threads = Threads(self.nodes)

    def prepare(self, messages: Iterable[Message]) -> Iterator[Prepared]:
        """Get what `extend` works out of each message before it looks for it. Touches nothing of the graph: of large
        messages it may be got in a thread."""
        for message in map(self._reduced, messages):
            key = identity(message)
            hash(key)  # a text remembers its hash
            yield Prepared(message, key)

    def extend(self, leaf: int | None, messages: Iterable[Message]) -> int | None:
        """Walk on from `leaf` along what a program sent, adding what is not known. Gets the new leaf."""
        return self.walk(leaf, self.prepare(messages))

    def walk(self, leaf: int | None, prepared: Iterable[Prepared]) -> int | None:
        """Do the same with messages that are prepared."""
        for message, key in prepared:
            known = self._children.get((leaf, key))
            if known is None:
                known = self._answers.get((leaf, key.loose))
            if known is None:
                known = self._add(leaf, message)
                self._threads.sent(self.nodes[known], key)
            self._children[leaf, key] = known
            leaf = known
        return leaf

    def answer(self, leaf: int | None, message: Message, call: int, complete: bool = True) -> int:
        """Add what the model said after `leaf`, in `call`: always a node of its own.

        Of the choices of one call the first counts, until the program goes on from another. One that is not
        `complete` is no turn.
        """
        message = self._reduced(message)
        node = self.nodes[self._add(leaf, message)]
        node.sampled, node.call = True, call
        key, whole = identity(message), complete and not message.extra.get("truncated")
        if not whole:
            self._broken.add(node.id)
        for index, name in ((self._children, key), (self._answers, key.loose)):
            known = index.get((leaf, name))
            if known is None or known in self._broken or (whole and self.nodes[known].call != call):
                index[leaf, name] = node.id
        self._threads.answered(node, key, whole)
        return node.id

    def take_back(self, answers: Iterable[int]) -> None:
        """Make the answers of a call such that did not complete: nobody got them, and they are no turn."""
        for node in answers:
            self._broken.add(node)
            self._threads.take_back(self.nodes[node])

    def use(
        self, leaf: int, kind: BranchKind, agent: str, tools: frozenset[str] = frozenset(), model: str = ""
    ) -> None:
        """Note whose the path to `leaf` is. For a request: the tools it offered, and the model it asked for."""
        self._threads.use(leaf, Secret(kind, agent), tools, model)

    def conversation(self, leaf: int) -> int | None:
        """Get the number of the conversation that a used message belongs to; it never changes."""
        return self._threads.conversation(leaf)

    def prompted(self, leaf: int) -> bool:
        """Whether a message stands below a system prompt."""
        return self._threads.system[leaf] != NONE

    def turns(self, conversation: int) -> int:
        """Get how many calls of a conversation were answered so far."""
        return self._threads.turns(conversation)

    def branches(self) -> list[Branch]:
        """Get a branch for each leaf of a path with an answer in it.

        The main agent's main branch comes first, and what shares a beginning with others after them.
        """
        return self._look().branches

    def kinds(self, calls: Sequence[CallRecord]) -> list[BranchKind]:
        """Get the kind of the branch that each call belongs to: of several outputs, that of the one which counts."""
        looked = self._look()
        return [looked.kind_of(call) for call in calls]

    def _look(self) -> Looked:
        return look(self.nodes, self._threads, self._broken)

    def _reduced(self, message: Message) -> Message:
        if self.blobs is None:
            return message
        content, extra = self.blobs.take(message.content), self.blobs.take(message.extra)
        if content is message.content and extra is message.extra:
            return message
        return replace(message, content=content, extra=extra)

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

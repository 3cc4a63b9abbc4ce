"""Which conversation a request belongs to, decided when it comes and never changed: limits count by it.

Requests that share an answer are one thread. A request that shares none begins a thread, which goes on with a
conversation that is known where the same agent

* sends the same system prompt again (it compacted its history, or was started anew), or
* sends earlier answers along (it rewrote its history, or its system prompt changes from call to call), with the same
  system prompt, with one that is mostly the same, or with tools as before

and begins one of its own otherwise, and where a tool call asked for exactly what its prompt says: that is a sub-agent.
One that takes a history that had come to its end, with another system prompt and not all of its tools, is *about* it: a
title, a suggestion, what is to be remembered.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotswap.graph.identity import NOTHING, PROMPTS, Key
from hotswap.messages import texts
from hotswap.trace import BranchKind, Node

NONE = -1
OPENING = 16
"""Messages at the end of a first request among which its prompt is looked for."""
PROMPT_READ = 2**16
"""Bytes of two system prompts that are compared."""
LEAST = 8
"""Characters from which on a text is no coincidence."""


class Secret(NamedTuple):
    """Who called: the kind and the agent that the secret was made for."""

    kind: BranchKind
    agent: str


@dataclass
class Use:
    """A request that ended in a message, or an answer that is one: whose, with what, and when first and last."""

    secret: Secret
    tools: frozenset[str]
    model: str
    first: int
    last: int


@dataclass
class Thread:
    """Requests that share their first answer. Times are counts of uses."""

    conversation: int
    secret: Secret
    system: int
    model: str
    tools: frozenset[str]
    """The names of those that were offered last."""
    about: bool = False
    """It is about a history that had come to its end, and does not go on with it."""
    first_request: float = math.inf
    first_answer: float = math.inf
    last_request: float = -math.inf
    last: float = -math.inf


class Echo(NamedTuple):
    """The last earlier answer that a program sent along as a copy."""

    thread: int
    final: bool
    """It called no tool."""


class Threads:
    """The threads of one graph. Every step takes the same time, however long the conversation is."""

    def __init__(self, nodes: list[Node]) -> None:
        self.all: list[Thread] = []
        self.of: list[int] = []
        """The thread of each node; `NONE` for what stands before a first answer and was never a request's end."""
        self.system: list[int] = []
        """The last node of the system prompt that each node stands below, or is part of."""
        self.uses: dict[int, Use] = {}
        self.copies: set[int] = set()
        """Earlier answers that a program sent along in another place than where they were given."""
        self._nodes = nodes
        self._echoed: list[Echo | None] = []
        """The last copy of an earlier answer on the path to each node."""
        self._said: dict[Key, int] = {}
        self._asked: set[int] = set()
        self._opened: set[int] = set()
        self._starts: dict[tuple[int, Secret], int] = {}
        self._latest: dict[tuple[int, Secret, str, bool], int] = {}
        self._turns: list[int] = []
        self._counted: dict[int, int] = {}
        self._clock = 0

    def sent(self, node: Node, key: Key) -> None:
        """Note a new message of a program."""
        parent = NONE if node.parent is None else node.parent
        prompt = node.role in PROMPTS and (parent == NONE or self.system[parent] == parent)
        copied = self._said.get(key.loose) if node.role == "assistant" else None
        if copied is not None:
            self.copies.add(node.id)
        inherited = self._echoed[parent] if parent != NONE else None
        self._echoed.append(inherited if copied is None else Echo(copied, not key.calls))
        self.system.append(node.id if prompt else self.system[parent] if parent != NONE else NONE)
        self.of.append(self.of[parent] if parent != NONE else NONE)

    def answered(self, node: Node, key: Key, whole: bool) -> None:
        """Note a new answer."""
        parent = NONE if node.parent is None else node.parent
        thread = self.of[parent] if parent != NONE else NONE
        if thread == NONE:
            thread = self._begin(parent, Secret("main", "main"), frozenset(), "")
        self.of.append(thread)
        self.system.append(self.system[parent] if parent != NONE else NONE)
        self._echoed.append(self._echoed[parent] if parent != NONE else None)
        if key.content != NOTHING or key.calls:
            self._said[key.loose] = thread
        for call in node.tool_calls:
            self._asked.update(hash(text) for text in phrases(call.arguments) if len(text) >= LEAST)
        if whole and node.call is not None and node.call not in self._counted:
            self._count(node.call, self.all[thread].conversation)

    def take_back(self, node: Node) -> None:
        """Count an answer no more."""
        if node.call is not None and node.call in self._counted:
            self._turns[self._counted.pop(node.call)] -= 1

    def use(self, leaf: int, secret: Secret, tools: frozenset[str], model: str) -> None:
        """Note that a request ended in `leaf`, or that it is an answer, and whose."""
        self._clock += 1
        node = self._nodes[leaf]
        self._place(node, secret, tools, model)
        if node.sampled and node.parent in self.uses:
            tools, model = self.uses[node.parent].tools, self.uses[node.parent].model
        thread = self.all[self.of[leaf]]
        thread.last = self._clock
        if node.sampled:
            thread.first_answer = min(thread.first_answer, self._clock)
        else:
            thread.tools = tools or thread.tools
            thread.first_request = min(thread.first_request, self._clock)
            thread.last_request = self._clock
        earlier = self.uses.get(leaf)
        first = earlier.first if earlier else self._clock
        self.uses[leaf] = Use(secret, tools, model, first, self._clock)

    def conversation(self, leaf: int) -> int | None:
        """Get the number of the conversation that a used message belongs to."""
        thread = self.of[leaf]
        return None if thread == NONE else self.all[thread].conversation

    def turns(self, conversation: int) -> int:
        """Get how many calls of a conversation were answered."""
        return self._turns[conversation]

    def _place(self, node: Node, secret: Secret, tools: frozenset[str], model: str) -> None:
        """Find or begin the thread of a message, unless it is in one of this secret."""
        known = self.of[node.id]
        if known != NONE and self.all[known].secret == secret:
            return
        at = node.parent if node.sampled else node.id
        at = NONE if at is None else at
        found = self._starts.get((at, secret))
        self.of[node.id] = self._begin(at, secret, tools, model) if found is None else found
        if node.call is not None and node.call in self._counted:
            self.take_back(node)
            self._count(node.call, self.all[self.of[node.id]].conversation)

    def _begin(self, leaf: int, secret: Secret, tools: frozenset[str], model: str) -> int:
        system = self.system[leaf] if leaf != NONE else NONE
        prompt = {hash(text) for text in self._opening(leaf)}
        own = self._asked.isdisjoint(prompt - self._opened)
        thread = Thread(NONE, secret, system, model, tools)
        continued = self._continued(leaf, thread) if own else None
        thread.conversation = len(self._turns) if continued is None else continued
        if continued is None:
            self._turns.append(0)
        if own:
            self._opened |= prompt
            if system != NONE:
                self._latest[system, secret, model, bool(tools)] = thread.conversation
        self.all.append(thread)
        self._starts[leaf, secret] = len(self.all) - 1
        if leaf != NONE:
            self.of[leaf] = len(self.all) - 1
        return len(self.all) - 1

    def _continued(self, leaf: int, new: Thread) -> int | None:
        """The conversation that a new thread goes on with."""
        known = self._latest.get((new.system, new.secret, new.model, bool(new.tools)))
        if known is not None:
            return known
        echo = self._echoed[leaf] if leaf != NONE else None
        if echo is None or (old := self.all[echo.thread]).secret != new.secret:
            return None
        alike = old.system == new.system or self._alike(old.system, new.system)
        new.about = echo.final and not alike and not (new.tools and old.tools <= new.tools)
        goes_on = alike or (old.tools and new.tools and not new.about)
        return old.conversation if goes_on and old.model == new.model else None

    def _alike(self, one: int, other: int) -> bool:
        """Whether two system prompts differ in a small part: a time, a list of files."""
        if NONE in (one, other):
            return False
        first, second = sorted((self._prompt(one), self._prompt(other)), key=len)
        same = _shared(first, second, len(first))
        rest = first[same:], second[same:]
        return same + _shared(rest[0][::-1], rest[1][::-1], len(rest[0])) > len(second) / 2

    def _prompt(self, last: int) -> bytes:
        """The text of a system prompt, which may stand in several messages."""
        parts, at = [], last
        while at != NONE and self._nodes[at].role in PROMPTS:
            parts.append("\n".join(texts(self._nodes[at].content))[:PROMPT_READ])
            parent = self._nodes[at].parent
            at = NONE if parent is None else parent
        return "\n".join(reversed(parts)).encode("utf-8", "surrogatepass")[:PROMPT_READ]

    def _opening(self, leaf: int) -> Iterator[str]:
        """The texts of the user at the end of a first request."""
        for _ in range(OPENING):
            if leaf == NONE or self._nodes[leaf].role not in ("user", *PROMPTS):
                return
            if self._nodes[leaf].role == "user":
                yield from (text.strip() for text in texts(self._nodes[leaf].content))
            parent = self._nodes[leaf].parent
            leaf = NONE if parent is None else parent

    def _count(self, call: int, conversation: int) -> None:
        self._counted[call] = conversation
        self._turns[conversation] += 1


def _shared(one: bytes, other: bytes, most: int) -> int:
    """How much two texts begin with in common."""
    return bisect_left(range(1, most + 1), True, key=lambda size: one[:size] != other[:size])


def phrases(text: str) -> Iterator[str]:
    """The texts in a text, trimmed: those in its values where it is JSON, else itself."""
    if text.lstrip()[:1] in ("{", "[", '"'):
        try:
            yield from _strings(json.loads(text))
            return
        except (ValueError, RecursionError):
            pass
    yield text.strip()


def _strings(value: Any) -> Iterator[str]:
    """The texts in JSON values."""
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)

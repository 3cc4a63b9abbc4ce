"""What kind of conversation each branch is, judged once all of them are known.

The kind of the secret is final unless it is `main`. Of the conversations of a main secret, one is the agent's own: not
one that a tool call asked for, nor one about another's history, nor one that began and ended while another waited for
it, but the one with tools, then the one with most turns, then the last. Its other paths are its own too, and
`compacted` where it left them when it shortened its history. The rest are sub-agents, where a tool call asked for them,
their answer came back as a tool's result, or they have several turns with tools and a beginning of their own; else they
are side calls.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotswap.graph.hints import Strand, find_hints
from hotswap.graph.shortening import Shortening
from hotswap.graph.threads import NONE, Secret, Thread, Threads, Use
from hotswap.trace import Branch, BranchKind, CallRecord, Node

WEIGHT: dict[BranchKind, int] = {"main": 0, "compacted": 1, "subagent": 2, "side": 3}


@dataclass(eq=False)
class Party:
    """A conversation as it turned out: its threads, and its paths, the one that it ended with first."""

    threads: list[Thread]
    strands: list[Strand] = field(default_factory=list)
    turns: int = 0
    kind: BranchKind = "side"

    def __post_init__(self) -> None:
        self.secret: Secret = self.threads[0].secret
        self.tools = any(thread.tools for thread in self.threads)
        self.about = all(thread.about for thread in self.threads)
        self.first_request = min(thread.first_request for thread in self.threads)
        self.first_answer = min(thread.first_answer for thread in self.threads)
        self.last_request = max(thread.last_request for thread in self.threads)
        self.last = max(thread.last for thread in self.threads)

    @property
    def asked(self) -> bool:
        """Whether a tool call started it."""
        if not self.strands:
            return False
        return min(self.strands, key=lambda strand: strand.own[0]).asked or self.strands[0].returned

    def arrange(self, nodes: Sequence[Node], uses: dict[int, Use], firsts: dict[int | None, int]) -> None:
        """Sort the paths: the one that the conversation went on with first, then those left behind, the last first.

        Of several choices of one answer, the first that was offered stands before the others.
        """

        def order(strand: Strand) -> tuple[Any, ...]:
            use, first = uses[strand.leaf], firsts[nodes[strand.answer].call]
            return (not self.strays(use), first, -strand.answer, use.last)

        self.strands.sort(key=order, reverse=True)

    def strays(self, use: Use) -> bool:
        """Whether a request goes beside the work: another model is asked, and is offered no tools as the one before."""
        return self.tools and not use.tools and use.model != self.threads[0].model


@dataclass
class Looked:
    """Every branch, and the kind of every message."""

    branches: list[Branch]
    kinds: list[BranchKind]

    def kind_of(self, call: CallRecord) -> BranchKind:
        """Get the kind of a call."""
        ends = call.outputs or ([] if call.input is None else [call.input])
        return min((self.kinds[end] for end in ends), key=WEIGHT.__getitem__, default=call.kind)


def look(nodes: Sequence[Node], threads: Threads, broken: set[int]) -> Looked:
    """Judge a graph. `broken`: answers that are none. Takes time in proportion to what the graph holds."""
    parties = _parties(threads.all)
    home = {id(thread): party for party in parties for thread in party.threads}
    for strand in _strands(nodes, threads.uses, broken):
        home[id(threads.all[threads.of[strand.leaf]])].strands.append(strand)
    firsts = _firsts(nodes, broken)
    for first in firsts.values():
        home[id(threads.all[threads.of[first]])].turns += 1
    parties.sort(key=lambda party: party.first_request)
    for party in parties:
        party.arrange(nodes, threads.uses, firsts)
    strands = [strand for party in parties for strand in party.strands]
    _share(nodes, strands)
    find_hints(nodes, strands)
    for secret in dict.fromkeys(party.secret for party in parties):
        _judge([party for party in parties if party.secret == secret])
    kinds = [_kind_at(node, threads, home) for node in nodes]
    outputs = Counter(node.call for node in nodes if node.sampled and node.id not in broken)
    return Looked(list(_branches(nodes, threads, parties, kinds, outputs)), kinds)


def _parties(threads: Sequence[Thread]) -> list[Party]:
    """The threads of each conversation together, except those that ran while another one waited."""
    found: dict[Any, list[Thread]] = {}
    by_conversation: dict[int, list[Thread]] = {}
    for thread in threads:
        by_conversation.setdefault(thread.conversation, []).append(thread)
    for number, group in by_conversation.items():
        within = _nested(group)
        for thread in group:
            apart = id(thread) in within or thread.secret != group[0].secret
            found.setdefault((number, id(thread) if apart else None), []).append(thread)
    return [Party(group) for group in found.values()]


def _nested(spans: Sequence[Any]) -> set[int]:
    """The ids of those that began and ended between an answer of another and its next request."""
    waiting = sorted(spans, key=lambda span: span.first_answer)
    latest, at, within = -math.inf, 0, set()
    for span in sorted(spans, key=lambda span: span.first_request):
        while at < len(waiting) and waiting[at].first_answer < span.first_request:
            latest = max(latest, waiting[at].last_request)
            at += 1
        if span.last < latest:
            within.add(id(span))
    return within


def _strands(nodes: Sequence[Node], uses: dict[int, Use], broken: set[int]) -> Iterator[Strand]:
    """The paths that end in a leaf and have an answer. What was not used, and answers that broke off, are no leaves."""
    alive, ends = [False] * len(nodes), [True] * len(nodes)
    for node in reversed(nodes):
        alive[node.id] = alive[node.id] or (node.id in uses and node.id not in broken)
        if node.parent is not None and alive[node.id]:
            alive[node.parent], ends[node.parent] = True, False
    answers: list[int] = []
    for node in nodes:
        before = NONE if node.parent is None else answers[node.parent]
        answers.append(node.id if node.sampled and node.id not in broken else before)
    for node in nodes:
        if alive[node.id] and ends[node.id] and answers[node.id] != NONE:
            yield Strand(node.id, answers[node.id])


def _firsts(nodes: Sequence[Node], broken: set[int]) -> dict[int | None, int]:
    """The first answer of each call."""
    firsts: dict[int | None, int] = {}
    for node in nodes:
        if node.sampled and node.id not in broken:
            firsts.setdefault(node.call, node.id)
    return firsts


def _share(nodes: Sequence[Node], strands: Iterable[Strand]) -> None:
    """Give each strand the messages that no strand before it has, and where it leaves those."""
    seen: set[int] = set()
    for strand in strands:
        own, at = [], strand.leaf
        parent: int | None = at
        while parent is not None and parent not in seen:
            own.append(parent)
            parent = nodes[parent].parent
        seen.update(own)
        strand.own, strand.forked = own[::-1], parent


def _judge(parties: list[Party]) -> None:
    """Decide the kinds of all conversations of one secret."""
    kind = parties[0].secret.kind
    if kind != "main":
        for party in parties:
            party.kind = kind
        return
    within = _nested(parties)
    for party in parties:
        several = party.turns > 1 and party.tools and not party.about
        party.kind = "subagent" if party.asked or several else "side"
    own = max(
        parties,
        key=lambda party: (
            not party.asked, not party.about, id(party) not in within, party.tools, party.turns, party.last,
        ),
    )  # fmt: skip
    own.kind = "main"


def _kind_at(node: Node, threads: Threads, home: dict[int, Party]) -> BranchKind:
    """The kind of a message that is on no branch: that of its conversation."""
    thread = threads.of[node.id]
    return "main" if thread == NONE else home[id(threads.all[thread])].kind


def _branches(
    nodes: Sequence[Node],
    threads: Threads,
    parties: list[Party],
    kinds: list[BranchKind],
    outputs: Counter[int | None],
) -> Iterator[Branch]:
    """The branches, the main ones first; on the way each message gets the kind of the first that has it."""
    ordered = sorted(parties, key=lambda party: (party.secret.agent != "main", WEIGHT[party.kind] > 0))
    _share(nodes, (strand for party in ordered for strand in party.strands))
    follows: dict[int, int] = {}
    for party in ordered:
        own: dict[int, int] = {}
        shortening = Shortening(nodes, threads, ChainMap(own, follows))
        for strand in party.strands:
            kind, left = party.kind, strand is not party.strands[0]
            if left and kind == "main":
                kind = _kind_beside(nodes, party, strand, threads.uses, outputs, shortening)
            drift = left and kind in (party.kind, "compacted") and _drifted(nodes, threads, strand, follows)
            for at in strand.own:
                kinds[at] = kind
                parent = NONE if (above := nodes[at].parent) is None else above
                follows.setdefault(parent, at)
                own.setdefault(parent, at)
            yield Branch(strand.leaf, kind, party.secret.agent, strand.forked, drift)


def _kind_beside(
    nodes: Sequence[Node],
    party: Party,
    strand: Strand,
    uses: dict[int, Use],
    outputs: Counter[int | None],
    shortening: Shortening,
) -> BranchKind:
    """The kind of a path of the main conversation that it did not end with."""
    if strand.asked or strand.returned:
        return "subagent"
    choice = strand.own == [strand.answer] and outputs[nodes[strand.answer].call] > 1
    if choice or party.strays(uses[strand.leaf]):
        return "side"
    return "compacted" if shortening.left(strand) else "main"


def _drifted(nodes: Sequence[Node], threads: Threads, strand: Strand, follows: dict[int, int]) -> bool:
    """Whether the program rewrote what stands here: not where it asked the same again and got another answer."""
    forked = strand.forked
    if forked is None or threads.system[forked] == forked:
        return False
    return not (nodes[strand.own[0]].sampled and nodes[follows[forked]].sampled)

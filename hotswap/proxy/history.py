"""The conversations of one session: each request is placed in the graph of its messages, read no further than it is
new."""

from __future__ import annotations

from collections import deque

from hotswap.blobs import Blobs
from hotswap.dialects import Dialect, Route
from hotswap.graph import Graph
from hotswap.messages import Answer
from hotswap.proxy.body import Body
from hotswap.proxy.call import Pass, Talk
from hotswap.proxy.skim import read_or_skim
from hotswap.trace import CallRecord

BODIES_KEPT = 8
"""Conversations that one session goes on with at a time, so that sub-agents do not push out the main one."""


class History:
    """The graph, and the last bodies that were placed in it: later ones go on from them."""

    def __init__(self, blobs: Blobs | None) -> None:
        self.graph = Graph(blobs=blobs)
        self._bodies: deque[tuple[Dialect, Body]] = deque(maxlen=BODIES_KEPT)
        self._leaf_by_answer: dict[str, int | None] = {}

    def read(self, raw: bytes, dialect: Dialect) -> Body:
        """Read a request's body, as far as it is new. Touches nothing: a large one may be read in a thread."""
        return read_or_skim(
            raw, dialect.conversation, [known for by, known in tuple(self._bodies) if by is dialect]
        )

    def place(self, body: Body, dialect: Dialect) -> None:
        """Walk along a request's messages in the graph, adding what is new. Done once for a body."""
        if body.placed:
            return
        body.placed = True
        try:
            self._walk(body, dialect)
        except Exception:  # noqa: BLE001 (that reading fails is no reason not to pass it on)
            body.give_up()

    def converse(self, body: Body, route: Route, who: Pass) -> Talk:
        """Note whose a request is; get the conversation that it goes on with. Requests without a system prompt are
        one: nothing would hold a program that puts all it knows into a new question each time."""
        if body.leaf is None:
            return Talk(who.kind, who.agent)
        tools = bool(route.dialect.read_tools(body.fields))
        model = route.dialect.read_model(body.fields, route.tail)
        self.graph.use(body.leaf, who.kind, who.agent, tools, model)
        prompted = self.graph.prompted(body.leaf)
        return Talk(who.kind, who.agent, self.graph.conversation(body.leaf) if prompted else None)

    def answer(self, body: Body, record: CallRecord, number: int, answer: Answer) -> None:
        """Add what was said in a call."""
        whole = answer.error is None
        record.outputs = [self.graph.answer(body.leaf, said, number, whole) for said in answer.messages]
        for node in record.outputs:
            self.graph.use(node, record.kind, record.agent)
        if answer.id and record.outputs:
            self._leaf_by_answer[answer.id] = record.outputs[0]

    def take_back(self, record: CallRecord) -> None:
        """Note that nobody got what was said in a call."""
        self.graph.take_back(record.outputs)
        record.outputs = []

    def _walk(self, body: Body, dialect: Dialect) -> None:
        previous = dialect.read_previous(body.fields)
        known = self._leaf_by_answer.get(previous) if previous else None
        body.root = self.graph.extend(known, dialect.read_preamble(body.fields))
        if body.continues is not None and body.continues.root != body.root:
            body.start_over(dialect.conversation)  # the same conversation below another system prompt
        if body.continues is None:
            body.leaf = body.root
        read = 0
        for group in dialect.read_items(body.items):
            body.leaf = self.graph.extend(body.leaf, group.messages)
            read += group.items
            if not group.open:
                body.mark(read, body.leaf)
        self._remember(body, dialect)

    def _remember(self, body: Body, dialect: Dialect) -> None:
        earlier, body.continues = body.continues, None
        if earlier is not None and (dialect, earlier) in self._bodies:
            self._bodies.remove((dialect, earlier))
        if body.remembered:
            self._bodies.append((dialect, body.forget()))

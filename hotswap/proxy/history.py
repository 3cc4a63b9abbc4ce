"""The conversations of one session: each request is placed in the graph of its messages, read no further than it is
new."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from hotswap.blobs import Blobs
from hotswap.dialects import Dialect, Group, Route
from hotswap.graph import Graph, Prepared
from hotswap.messages import Answer, Message
from hotswap.proxy.body import Body
from hotswap.proxy.call import Pass, Talk
from hotswap.proxy.skim import read_or_skim
from hotswap.trace import CallRecord

BODIES_KEPT = 8
"""Conversations that one session goes on with at a time, so that sub-agents do not push out the main one."""
LARGE = 2**20
MANY = 100
"""Bytes of a body, and messages that are new in it, from which on others are served while it is placed."""
TURN_S = 0.005
"""How long messages are added to the graph before others have their turn."""

Result = TypeVar("Result")


class History:
    """The graph, and the last bodies that were placed in it: later ones go on from them."""

    def __init__(self, blobs: Blobs | None) -> None:
        self.graph = Graph(blobs=blobs)
        self._order = asyncio.Lock()
        self._bodies: deque[tuple[Dialect, Body]] = deque(maxlen=BODIES_KEPT)
        self._leaf_by_answer: dict[str, int | None] = {}

    def read(self, raw: bytes, dialect: Dialect) -> Body:
        """Read a request's body, as far as it is new. Touches nothing: a large one may be read in a thread."""
        return read_or_skim(
            raw, dialect.conversation, [known for by, known in tuple(self._bodies) if by is dialect]
        )

    async def place(self, body: Body, dialect: Dialect) -> None:
        """Walk along a request's messages in the graph, adding what is new. Done once for a body.

        One after the other: a later request waits for an earlier one that is large, and nobody else does.
        """
        if body.placed:
            return
        async with self._order:
            body.placed = True
            try:
                await self._place(body, dialect)
            except Exception:  # noqa: BLE001 (that reading fails is no reason not to pass it on)
                body.give_up()

    def converse(self, body: Body, route: Route, who: Pass) -> Talk:
        """Note whose a request is; get the conversation that it goes on with. Requests without a system prompt are
        one: nothing would hold a program that puts all it knows into a new question each time."""
        if body.leaf is None:
            return Talk(who.kind, who.agent)
        tools = route.dialect.tool_names(body.fields)
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

    async def _place(self, body: Body, dialect: Dialect) -> None:
        previous = dialect.read_previous(body.fields)
        known = self._leaf_by_answer.get(previous) if previous else None
        aside = _is_large(body)
        preamble = await _perhaps(aside, lambda: self._prepare(dialect.read_preamble(body.fields)))
        body.root = self.graph.walk(known, preamble)
        if body.continues is not None and body.continues.root != body.root:
            # the same conversation below another system prompt
            await _perhaps(aside, lambda: body.start_over(dialect.conversation))
            aside = _is_large(body)
        if body.continues is None:
            body.leaf = body.root
        groups = dialect.read_items(body.items)
        if aside:
            await self._walk_in_turns(body, groups)
        else:
            read = 0
            for group in groups:
                read = self._walk(body, read, group, self.graph.prepare(group.messages))
        self._remember(body, dialect)

    async def _walk_in_turns(self, body: Body, groups: Iterable[Group]) -> None:
        """Do the work on each message in a thread, and add to the graph for a short time at once."""

        def work() -> list[tuple[Group, list[Prepared]]]:
            return [(group, self._prepare(group.messages)) for group in groups]

        read, until = 0, 0.0
        for group, prepared in await asyncio.to_thread(work):
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + TURN_S
            read = self._walk(body, read, group, prepared)

    def _walk(self, body: Body, read: int, group: Group, prepared: Iterable[Prepared]) -> int:
        """Add a group, before which so many items were read; get how many it is with them."""
        body.leaf = self.graph.walk(body.leaf, prepared)
        if not group.open:
            body.mark(read + group.items, body.leaf)
        return read + group.items

    def _prepare(self, messages: Iterable[Message]) -> list[Prepared]:
        return list(self.graph.prepare(messages))

    def _remember(self, body: Body, dialect: Dialect) -> None:
        earlier, body.continues = body.continues, None
        if earlier is not None and (dialect, earlier) in self._bodies:
            self._bodies.remove((dialect, earlier))
        if body.remembered:
            self._bodies.append((dialect, body.forget()))


def _is_large(body: Body) -> bool:
    return len(body.raw) >= LARGE or len(body.items) > MANY


async def _perhaps(aside: bool, work: Callable[[], Result]) -> Result:
    """Do some work, in a thread where there is much of it."""
    return await asyncio.to_thread(work) if aside else work()

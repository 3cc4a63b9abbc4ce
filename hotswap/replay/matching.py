"""Which recorded exchange answers a request: the one that equals it, or the next one of its conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from hotswap.exchanges.recorded import Exchange
from hotswap.proxy.tape import Asked, NotRecorded
from hotswap.replay.comparing import Read, Rules, describe, differences, read

LOOKED_AT = 200
"""Differences that are counted when the nearest recorded request is looked for."""
_MODEL = re.compile(r"/models/[^/:]+:")


@dataclass(eq=False)
class Take:
    """A recorded exchange, and whether it has been given as an answer."""

    exchange: Exchange
    rules: Rules
    used: bool = False

    @cached_property
    def read(self) -> Read:
        return read(self.exchange.body, self.exchange.dialect, self.exchange.started, self.rules)

    @cached_property
    def opening(self) -> Any:
        return _opening(self.read.value)

    @cached_property
    def shape(self) -> Any:
        return _shape(self.read.value)

    @property
    def is_call(self) -> bool:
        return self.exchange.call is not None

    def give_back(self) -> None:
        """It did not arrive: it can be given again."""
        self.used = False


class Deck:
    """What is recorded of one rollout, exchange by exchange, as it is being asked for again."""

    def __init__(self, exchanges: Sequence[Exchange], rules: Rules, loose: bool, where: str) -> None:
        """`where` says which recorded rollout this is."""
        self._takes = [Take(exchange, rules) for exchange in exchanges]
        self._rules = rules
        self._loose = loose
        self._where = where

    def take(self, asked: Asked, at: float) -> Take:
        """Get the exchange that answers a request, sent at `at`. Raises NotRecorded where there is none."""
        row = [take for take in self._takes if _same_route(take.exchange, asked)]
        if not row:
            raise NotRecorded(self._no_route(asked))
        sent = read(asked.body, asked.dialect, at, self._rules)
        found = self._next(row, sent) if self._loose else self._equal(row, sent)
        if not found.used or found.is_call:
            found.used = True
        return found

    def _equal(self, row: Sequence[Take], sent: Read) -> Take:
        fresh = [take for take in row if not take.used]
        for take in fresh:
            if next(differences(take.read, sent), None) is None:
                return take
        again = next(
            (take for take in row if take.used and next(differences(take.read, sent), None) is None), None
        )
        if again is not None and not again.is_call:
            return again
        if again is not None:
            raise NotRecorded(f"this request was sent again more often than when {self._where} was recorded")
        raise NotRecorded(self._difference(fresh, row, sent))

    def _next(self, row: Sequence[Take], sent: Read) -> Take:
        """Get the next one of the same conversation: the same opening, else the same tools, else any."""
        opening, shape = _opening(sent.value), _shape(sent.value)
        alike = [take for take in row if take.opening == opening and take.shape == shape]
        alike = alike or [take for take in row if take.shape == shape] or list(row)
        for take in alike:
            if not take.used:
                return take
        if not alike[-1].is_call:
            return alike[-1]
        raise NotRecorded(f"a call too many: {self._where} has {_calls(alike)} of this agent")

    def _difference(self, fresh: Sequence[Take], row: Sequence[Take], sent: Read) -> str:
        if not fresh:
            return f"a call too many: {self._where} has {_calls(row)} of this agent"
        counted = ((sum(1 for _ in islice(differences(take.read, sent), LOOKED_AT)), take) for take in fresh)
        many, nearest = min(counted, key=lambda pair: pair[0])
        path, recorded, other = next(differences(nearest.read, sent))
        more = f" (and in {_more(many - 1)})" if many > 1 else ""
        place = self._takes.index(nearest) + 1
        return f"differs from request {place} of {self._where} {describe(path, recorded, other)}{more}"

    def _no_route(self, asked: Asked) -> str:
        agent = f" of agent {asked.agent!r}" if asked.agent != "main" else ""
        return f"{self._where} has no request {asked.method} {asked.path}{agent}"


def _same_route(exchange: Exchange, asked: Asked) -> bool:
    same = exchange.method == asked.method and _route(exchange.path) == _route(asked.path)
    return same and (exchange.agent == asked.agent or asked.call is None)


def _route(path: str) -> str:
    """A path without the model, which some programs put there."""
    return _MODEL.sub("/models/*:", path)


def _calls(takes: Sequence[Take]) -> str:
    return f"{len(takes)} request{'' if len(takes) == 1 else 's'}"


def _more(many: int) -> str:
    if many >= LOOKED_AT - 1:
        return "many more places"
    return "one more place" if many == 1 else f"{many} more places"


def _opening(value: Any) -> Any:
    """What a conversation begins with: its first item that is no instruction."""
    for item in _items(value):
        if not (isinstance(item, dict) and item.get("role") in ("system", "developer")):
            return item
    return None


def _shape(value: Any) -> Any:
    """What tells the calls of an agent from those beside it, such as the making of a title: the tools on offer."""
    tools = value.get("tools") if isinstance(value, dict) else None
    return json.dumps([_name(tool) for tool in tools]) if isinstance(tools, list) else None


def _name(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return None
    inner = tool.get("function", tool)
    return inner.get("name", tool.get("type")) if isinstance(inner, dict) else None


def _items(value: Any) -> Sequence[Any]:
    fields = value if isinstance(value, dict) else {}
    return next(
        (fields[name] for name in ("messages", "input", "contents") if isinstance(fields.get(name), list)), ()
    )

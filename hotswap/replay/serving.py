"""A recorded answer as it comes again: the same bytes in the same pieces, and broken off where it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from multidict import CIMultiDict

from hotswap.exchanges.recorded import Exchange
from hotswap.proxy.tape import Asked, NotRecorded, Played
from hotswap.replay.matching import Deck

BROKEN_OFF = "the recorded answer broke off here"


class Replayed:
    """A recorded answer on its way."""

    def __init__(self, exchange: Exchange, timed: bool, give_back: Callable[[], None]) -> None:
        self.silent = exchange.status is None
        self.fault, self.verdict = exchange.fault, exchange.verdict
        self.give_back = give_back
        """Puts it back: the next request like this one gets it."""
        self.status = exchange.status or 502  # of a route beside; a call is told nothing again
        headers = exchange.headers if exchange.status else (("Content-Type", "application/json"),)
        self.headers: Mapping[str, str] = CIMultiDict(headers)
        self._chunks: Sequence[tuple[float, bytes]] = [each for each in exchange.chunks if each[1]]
        self.cut = exchange.cut or self.silent
        self._timed = timed
        self._began = time.monotonic()
        self._next = 0

    async def wait(self) -> None:
        """Wait until the next piece is due, which for the first is when the headers are."""
        if self._timed and not self.at_end and self._next < len(self._chunks):
            due = self._began + self._chunks[self._next][0]
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def read(self) -> bytes:
        await self.wait()
        if self._next == len(self._chunks):
            if self.cut:
                raise ConnectionError(BROKEN_OFF)
            return b""
        self._next += 1
        return self._chunks[self._next - 1][1]

    @property
    def at_end(self) -> bool:
        return self._next == len(self._chunks) and not self.cut

    def close(self) -> None:
        self._chunks = self._chunks[: self._next]


class Player:
    """Answers the requests of one rollout from what was recorded; a `Source`."""

    def __init__(self, deck: Deck | None, timed: bool, lacking: str = "") -> None:
        """Without a deck every request is answered by `lacking`: why there is none."""
        self._deck = deck
        self._timed = timed
        self._lacking = lacking

    async def __call__(self, asked: Asked) -> Played:
        if self._deck is None:
            raise NotRecorded(self._lacking)
        take = self._deck.take(asked, time.time())
        answer = Replayed(take.exchange, self._timed, take.give_back)
        await answer.wait()
        return answer

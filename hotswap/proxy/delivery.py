"""An answer on its way down to the program: recorded before its end goes, cut where that is wanted, or played again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from aiohttp import web

from hotswap.messages import Answer, ProviderError
from hotswap.proxy.capturing import read_played
from hotswap.proxy.down import Down
from hotswap.proxy.ending import Ending
from hotswap.proxy.failure import error_headers
from hotswap.proxy.session import Call
from hotswap.proxy.stream import Stream
from hotswap.proxy.tape import Incoming, Played
from hotswap.proxy.upstream import headers_down, lower
from hotswap.proxy.whole import Judge, Whole


class Delivery:
    """What one call's program is sent."""

    def __init__(self, call: Call, ending: Ending, down: Down) -> None:
        self.down = down
        self.cuts = False
        """The answer is to be cut on purpose."""
        self.played: Played | None = None
        """The recorded answer that this one is; null where it is live."""
        self._stream: Stream | None = None
        self._call = call
        self._ending = ending

    @property
    def so_far(self) -> Answer:
        """What has come of a stream's answer; nothing where there is none."""
        return self._stream.answer() if self._stream is not None else Answer()

    def mark(self, fault: str) -> None:
        """Note a misbehaviour; what was done to an earlier try of the call stays noted where there is none."""
        self._call.record.fault = self.down.tape.fault = fault

    def note_dropped(self, names: Iterable[str]) -> None:
        """Note what of the answer the program cannot be told."""
        dropped = self._call.record.dropped
        dropped += [name for name in names if name not in dropped]

    async def error(self, status: int, type: str, message: str) -> web.StreamResponse:  # noqa: A002
        """Tell the program of an error in its dialect's words, be its answer begun or not."""
        dialect = self._call.dialect
        if self.down.begun:
            return await self.down.end(dialect.write_error_event(type, message))
        return await self.down.whole(status, error_headers(), dialect.write_error(status, type, message))

    async def whole(self, whole: Whole, first_byte_s: float) -> web.StreamResponse:
        """Send an answer in one piece."""
        error = whole.answer.error
        if self.cuts:
            await self.down.begin(whole.status, whole.headers)
            return await self._cut(whole.status, whole.body, whole.answer)
        self._ending.conclude(whole.answer, first_byte_s)
        if self.down.begun and error is not None:
            return await self.error(502, error.type, error.message)
        if whole.stream:
            await self.down.begin(whole.status, whole.headers)
            return await self.down.end(whole.body)
        return await self.down.whole(whole.status, whole.headers, whole.body)

    async def stream(self, stream: Stream, status: int, started: float) -> web.StreamResponse:
        """Send a stream whose headers have gone, and end it as its source does."""
        self._stream = stream
        while (ready := await stream.read()) is not None:
            if self.cuts and ready:
                return await self._cut_stream(stream, ready, status, started)
            if stream.ended:
                self._conclude(stream, status, started)
            if ready:
                await self.down.write(ready)
            self.down.arrived = self.down.arrived or stream.ended
        if self.cuts:
            return await self._cut_stream(stream, stream.rest, status, started)
        answer = self._conclude(stream, status, started)
        if answer.error is not None and answer.error.type == "truncated":
            return await self.down.cut(stream.rest)  # never a normal end that the provider did not make
        return await self.down.end(stream.rest)

    def _conclude(self, stream: Stream, status: int, started: float) -> Answer:
        answer = stream.answer()
        if self._call.busy:
            self.note_dropped(stream.dropped)
            self._ending.tried(status, started, answer.error)
            first = stream.first_byte_at
            self._ending.conclude(answer, first - self._call.opened if first else None)
        return answer

    async def _cut_stream(
        self, stream: Stream, ready: bytes, status: int, started: float
    ) -> web.StreamResponse:
        self._ending.tried(status, started, None)
        return await self._cut(status, ready, stream.answer())

    async def _cut(self, status: int, body: bytes, answer: Answer) -> web.StreamResponse:
        """Send half of what there is, and break off."""
        self._ending.spoil(status, answer)
        if self.played is not None:
            self.played.give_back()
        return await self.down.cut(body[: len(body) // 2])

    async def play(self, played: Played, silence_s: float) -> web.StreamResponse:
        """Give the program what it was given then, and make of it what was made of it."""
        started, self.played = time.monotonic(), played
        if played.fault is not None:
            self.mark(played.fault)
        self._ending.follow(played.verdict)
        if played.silent:
            self._ending.conclude(Answer(error=ProviderError("connection", "there was no answer then")))
            return await self.down.drop()
        if not is_stream(played, self._call.streams):
            return await self._play_whole(played, started)
        await self.down.begin(played.status, headers_down(played.headers))
        return await self.stream(Stream(self._call.dialect, played, silence_s), played.status, started)

    async def _play_whole(self, played: Played, started: float) -> web.StreamResponse:
        raw = await read_played(played)
        whole = Judge(self._call.dialect, self._call.dialect).read(played, raw)
        if self.cuts:
            return await self.whole(whole, 0.0)
        self._ending.tried(played.status, started, whole.answer.error)
        self._ending.conclude(whole.answer, time.monotonic() - self._call.opened)
        if not played.cut:
            return await self.down.whole(played.status, whole.headers, raw)
        await self.down.begin(played.status, whole.headers)
        return await self.down.cut(raw)


def is_stream(incoming: Incoming, asked: bool) -> bool:
    """Whether an answer is one of events; `asked`: a stream was asked for."""
    if incoming.status >= 300:
        return False
    kind = lower(incoming.headers).get("content-type", "")
    return "event-stream" in kind or (asked and "json" not in kind and "html" not in kind)

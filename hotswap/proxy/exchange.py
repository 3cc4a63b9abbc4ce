"""One call on its way: up to the provider, again where that can help, and its answer down to the program.

Until the provider's headers are there the program has received nothing, and a failed try can be repeated.
After that a stream is passed on event by event. The events from which on a program could take the answer
for complete are held until the call is recorded, so that a program that ends at once loses nothing.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from hotswap.dialects import Dialect, parse
from hotswap.messages import Answer, ProviderError
from hotswap.proxy.events import EventReader, Piece
from hotswap.proxy.session import Call, Session
from hotswap.proxy.upstream import Client, Target, connection_error, headers_down, lower, pause

BROKEN = (aiohttp.ClientError, OSError, TimeoutError)
"""What a connection to a provider fails with."""
NO_RETRY = ("x-should-retry", "false")
"""Tells the official SDKs that we have repeated a call as often as it makes sense."""
PATIENCE = 3
"""How often a program may learn that the same call failed, before it gets an error that ends it."""


@dataclass(frozen=True)
class Failure:
    """A try that failed before anything had gone to the program, and what it gets if this was the last."""

    error: ProviderError
    status: int
    headers: CIMultiDict[str]
    body: bytes | None = None
    """The provider's own; null where it has none that the program could read."""
    answer: Answer | None = None
    """What could be read of an answer that was sent as a success."""


class Exchange:
    """One call, from the request as it goes up to the end of its answer."""

    def __init__(self, session: Session, call: Call, target: Target, client: Client) -> None:
        self._session = session
        self._call = call
        self._target = target
        self._client = client
        self._dialect: Dialect = call.dialect
        self._policy = session.request.calls

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """Get the answer; of a stream all has been sent by then. The call is concluded in every case."""
        try:
            return await self._within_deadline(request)
        except ConnectionError:
            self._session.abandon(
                self._call, "the program closed the connection before its answer was complete"
            )
            raise
        except BaseException as error:
            self._session.abandon(self._call, f"the call was broken off ({type(error).__name__})")
            raise

    async def _within_deadline(self, request: web.BaseRequest) -> web.StreamResponse:
        deadline = self._session.deadline
        if deadline is None:
            return await self._repeat(request)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())) as limit:
                return await self._repeat(request)
        except TimeoutError:
            if not limit.expired():
                raise
        self._session.abandon(self._call, "the rollout's time was up")
        return refuse(self._session, self._dialect, "seconds", request)

    async def _repeat(self, request: web.BaseRequest) -> web.StreamResponse:
        repeats = 0
        while True:
            outcome = await self._try(request)
            if not isinstance(outcome, Failure):
                return outcome
            if not await self._worth_repeating(outcome.error, repeats):
                return self._give_up(outcome)
            repeats += 1

    async def _worth_repeating(self, error: ProviderError, repeats: int) -> bool:
        """Wait for the next try; False where none is to come."""
        if not error.retryable or repeats >= self._policy.retries or self._call.given_up:
            return False
        wait_s = self._policy.waits(error, repeats)
        return wait_s <= self._policy.timeout_s and await pause(wait_s, self._session.deadline)

    async def _try(self, request: web.BaseRequest) -> web.StreamResponse | Failure:
        started = time.monotonic()
        try:
            response = await self._client.send(self._target, self._policy)
        except BROKEN as error:
            return self._failed(connection_error(error), started)
        try:
            if response.status < 400 and self._is_stream(response):
                return await self._relay(response, request, started)
            return await self._whole(response, started)
        finally:
            response.close() if not response.content.at_eof() else response.release()

    def _failed(self, error: ProviderError, started: float) -> Failure:
        self._session.note_try(self._call, error.status, time.monotonic() - started, error)
        return Failure(error, 504 if error.type == "timeout" else 502, CIMultiDict())

    def _is_stream(self, response: aiohttp.ClientResponse) -> bool:
        kind = response.headers.get("Content-Type", "")
        return "event-stream" in kind or (self._call.streams and "json" not in kind and "html" not in kind)

    async def _whole(self, response: aiohttp.ClientResponse, started: float) -> web.Response | Failure:
        """Read an answer in one piece, and send it once it is recorded."""
        try:
            raw = await response.read()
        except BROKEN as error:
            return self._failed(connection_error(error), started)
        first_byte_s = time.monotonic() - self._call.opened
        headers = headers_down(response)
        body = _inflate(raw, response.headers)
        if response.status >= 400:
            answer = Answer(error=self._dialect.read_error(response.status, body, lower(response.headers)))
        else:
            answer = self._dialect.read_answer(body)
        self._session.note_try(self._call, response.status, time.monotonic() - started, answer.error)
        if answer.error is not None and (
            response.status >= 400 or answer.error.retryable or _foreign(answer)
        ):
            status = response.status if not _foreign(answer) else 502
            return Failure(answer.error, status, headers, None if parse(body) is None else raw, answer)
        self._session.conclude(self._call, answer, first_byte_s)
        return web.Response(status=response.status, headers=headers, body=raw)

    def _give_up(self, failure: Failure) -> web.Response:
        """Record the failure and pass it on, in the provider's words where it has any."""
        self._call.given_up += 1
        self._session.conclude(self._call, failure.answer or Answer(error=failure.error))
        status, headers = failure.status, failure.headers
        if failure.body is not None and self._call.given_up < PATIENCE:
            headers.setdefault(*NO_RETRY)
            return web.Response(status=status, headers=headers, body=failure.body)
        status = 400 if self._call.given_up >= PATIENCE else status
        return write_error(self._dialect, status, failure.error.type, failure.error.message)

    async def _relay(
        self, response: aiohttp.ClientResponse, request: web.BaseRequest, started: float
    ) -> web.StreamResponse:
        """Pass a stream on as it comes."""
        stream = Stream(self._dialect, response)
        down = web.StreamResponse(status=response.status, headers=headers_down(response))
        await down.prepare(request)
        while (ready := await stream.read()) is not None:
            if stream.ended:
                self._conclude(stream, response.status, started)
            if ready:
                await down.write(ready)
        answer = self._conclude(stream, response.status, started)
        if answer.error is not None and answer.error.type == "truncated":
            await down.write(stream.rest)
            _abort(request)  # never a normal end that the provider did not make
        else:
            await down.write_eof(stream.rest)
        return down

    def _conclude(self, stream: Stream, status: int, started: float) -> Answer:
        answer = stream.answer()
        if self._call.busy:
            self._session.note_try(self._call, status, time.monotonic() - started, answer.error)
            first = stream.first_byte_at
            self._session.conclude(self._call, answer, first - self._call.opened if first else None)
        return answer


class Stream:
    """A streamed answer: its bytes as they may be passed on, and a copy of it that is read."""

    def __init__(self, dialect: Dialect, response: aiohttp.ClientResponse) -> None:
        self.ended = False
        self.first_byte_at: float | None = None
        self.rest = b""
        """At the end: what is still to be passed on."""
        self._content = response.content
        self._reader = EventReader()
        self._assembler = dialect.assembler()
        self._inflater = _inflater(response.headers)
        self._held = b""
        self._cut: str | None = None

    async def read(self) -> bytes | None:
        """Get what may be passed on next, perhaps nothing yet; null at the end: `rest` has what is left."""
        try:
            data = await self._content.readany()
        except BROKEN as error:
            self._cut = None if self.ended else connection_error(error).message
            self._finish()
            return None
        if not data:
            self._finish()
            return None
        if self.first_byte_at is None:
            self.first_byte_at = time.monotonic()
        ready = self._sift(data)
        if self._content.at_eof():  # the end came along: it goes on along with it
            self.rest = ready
            self._finish()
            return None
        return ready

    def _finish(self) -> None:
        self.rest += self._held
        for piece in self._reader.finish():
            if piece.event is not None:
                self._assembler.feed(piece.event)
            if self._inflater is None:
                self.rest += piece.raw

    def _sift(self, data: bytes) -> bytes:
        ready = b""
        for piece in self._pieces(data):
            if piece.event is not None:
                self._assembler.feed(piece.event)
            self._held += piece.raw
            self.ended = self.ended or self._assembler.ended
            if self.ended or not self._assembler.complete:
                ready, self._held = ready + self._held, b""
        return ready

    def _pieces(self, data: bytes) -> list[Piece]:
        """Split into events. Compressed bytes are passed on as they come, behind the events in them."""
        if self._inflater is None:
            return self._reader.feed(data)
        try:
            plain = self._inflater.decompress(data)
        except zlib.error:
            plain = b""
        return [*(Piece(b"", piece.event) for piece in self._reader.feed(plain)), Piece(data, None)]

    def answer(self) -> Answer:
        """Get the answer as far as it has come."""
        return self._assembler.answer(self._cut)


def write_error(dialect: Dialect, status: int, type: str, message: str) -> web.Response:  # noqa: A002
    """Get an error of ours in the dialect's words. None of them is worth a retry by the program."""
    headers = dict([NO_RETRY, ("Content-Type", "application/json")])
    return web.Response(status=status, headers=headers, body=dialect.write_error(status, type, message))


def refuse(session: Session, dialect: Dialect, limit: str, request: web.BaseRequest) -> web.Response:
    """Refuse a call because a limit is used up: with 400, which hardly any program repeats."""
    session.refuse(limit)
    if request.writer.output_size:  # the answer has begun: all that is left is to break it off
        _abort(request)
    words = f"this rollout has used up its limit of {limit}: no further model calls are answered"
    return write_error(dialect, 400, "limit_reached", words)


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.close()


def _foreign(answer: Answer) -> bool:
    return answer.error is not None and answer.error.type == "malformed"


def _inflater(headers: Mapping[str, str]) -> zlib._Decompress | None:
    """For the two codings that the standard library reads; we ask for none, so this is for the stubborn."""
    coding = headers.get("Content-Encoding", "identity").lower()
    return zlib.decompressobj(47) if coding in ("gzip", "deflate") else None


def _inflate(raw: bytes, headers: Mapping[str, str]) -> bytes:
    inflater = _inflater(headers)
    if inflater is None:
        return raw
    try:
        return inflater.decompress(raw)
    except zlib.error:
        return raw

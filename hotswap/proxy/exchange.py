"""One call on its way: up to the provider, again where that can help, and its answer down to the program.

Until the provider's headers are there the program has received nothing of its answer, and a failed try can be
repeated. After that a stream is passed on event by event. The events from which on a program could take the answer
for complete are held until the call is recorded, so that a program that ends at once loses nothing.

whole.py     an answer in one piece, read and judged
stream.py    one that comes event by event
failure.py   a try that failed, and what the program gets then
delivery.py  an answer on its way down, or one that was recorded as it comes again
ending.py    what becomes of the call: said to the session, and kept on tape
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

from hotswap.messages import Answer, ProviderError
from hotswap.proxy.capturing import NoTokens, read_all
from hotswap.proxy.chaos import SLOW_S, misbehave
from hotswap.proxy.delivery import Delivery, is_stream
from hotswap.proxy.down import Down
from hotswap.proxy.ending import Ending
from hotswap.proxy.failure import NO_RETRY, Failure, answered, unanswered
from hotswap.proxy.failure import error_headers as error_headers
from hotswap.proxy.failure import refusal as refusal
from hotswap.proxy.session import Call, Session
from hotswap.proxy.stream import Stream
from hotswap.proxy.tape import Asked, Incoming, NotRecorded, Played, Tape
from hotswap.proxy.upstream import BROKEN, Client, Live, connection_error, headers_down, pause
from hotswap.proxy.way import Way
from hotswap.proxy.whole import Judge, Whole

if TYPE_CHECKING:
    from hotswap.translation import Translated

PATIENCE = 3
"""How often a program may learn that the same call failed, before it gets an error that ends it."""


class Exchange:
    """One call, from the request as it goes up to the end of its answer."""

    def __init__(self, session: Session, call: Call, way: Way, client: Client, asked: Asked) -> None:
        self._session = session
        self._call = call
        self._way = way
        self._client = client
        self._asked = asked
        self._policy = session.request.calls
        self._ending = Ending(session, call)

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """Get the answer; all of it has been sent by then. The call is concluded in every case."""
        tape = Tape(self._asked, time.time(), translated=self._way.translated is not None)
        down = Down(request, tape)
        delivery = Delivery(self._call, self._ending, down)
        try:
            response = await self._within_deadline(delivery)
        except (ConnectionError, asyncio.CancelledError) as error:
            self._broken_off(error, delivery)
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours is no fault of the program's)
            response = await self._break_down(error, delivery)
        finally:
            down.stop_signs()
            self._call.record.status = tape.status
            tape.verdict = self._ending.verdict
            self._session.keep(tape)
        if down.lost and not down.arrived and not tape.cut:
            self._session.lose(self._call, tape)
        return response

    async def _break_down(self, error: Exception, delivery: Delivery) -> web.StreamResponse:
        """Record a fault of ours, and tell the program."""
        fault = ProviderError("proxy", f"the proxy broke down: {error!r}", blame="hotswap")
        self._ending.conclude(Answer(error=fault))
        if delivery.down.begun:
            return await delivery.down.cut()
        return await delivery.error(502, "server", fault.message)

    def _broken_off(self, error: BaseException, delivery: Delivery) -> None:
        """Note that the program is gone, or is being ended."""
        down = delivery.down
        if down.arrived:
            return  # it hung up once it had all that it wanted
        if not self._call.busy:
            self._session.lose(self._call, down.tape)
        else:
            self._ending.abandon(_why(error), delivery.so_far)
            if delivery.played is not None:
                delivery.played.give_back()
        down.tape.cut = True

    async def _within_deadline(self, delivery: Delivery) -> web.StreamResponse:
        deadline = self._session.deadline
        if deadline is None:
            return await self._answer(delivery)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())) as limit:
                return await self._answer(delivery)
        except TimeoutError:
            if not limit.expired():
                raise
        self._ending.abandon("the rollout's time was up", delivery.so_far)
        self._session.refuse("seconds")
        return await delivery.error(400, "limit_reached", refusal("seconds"))

    async def _answer(self, delivery: Delivery) -> web.StreamResponse:
        chaos = self._session.request.chaos
        fault = chaos.draw() if chaos is not None else None
        if fault is None:
            return await self._repeat(delivery)
        return await self._misbehave(fault, delivery)

    async def _misbehave(self, fault: str, delivery: Delivery) -> web.StreamResponse:
        """Do to the program what was drawn."""
        delivery.mark(fault)
        delivery.cuts = fault == "cut"
        if fault == "slow":
            await asyncio.sleep(SLOW_S)
        if fault in ("slow", "cut"):
            return await self._repeat(delivery)
        said = misbehave(fault, self._call.dialect)
        self._ending.spoil(said.status if said is not None else None)
        if said is None:
            return await delivery.down.drop()
        return await delivery.down.whole(said.status, CIMultiDict(said.headers), said.body)

    async def _repeat(self, delivery: Delivery) -> web.StreamResponse:
        """Try until there is an answer, or no hope for one."""
        if self._call.streams and self._call.dialect.sends_events(self._asked.query):
            delivery.down.keep_alive(self._call.dialect.assembler().keep_alive, self._policy.quiet_s)
        repeats = 0
        while True:
            outcome = await self._try(delivery)
            if not isinstance(outcome, Failure):
                return outcome
            if not await self._worth_repeating(outcome.error, repeats):
                return await self._give_up(outcome, delivery)
            if outcome.answer is not None:
                self._ending.pay(outcome.answer)
            repeats += 1

    async def _worth_repeating(self, error: ProviderError, repeats: int) -> bool:
        """Wait for the next try; False where none is to come."""
        if not error.retryable or repeats >= self._policy.retries or self._call.given_up:
            return False
        wait_s = self._policy.waits(error, repeats)
        return wait_s <= self._policy.timeout_s and await pause(wait_s, self._session.deadline)

    async def _give_up(self, failure: Failure, delivery: Delivery) -> web.StreamResponse:
        """Record the failure and pass it on, in the provider's words where it has any."""
        self._call.given_up += 1
        self._ending.conclude(failure.answer or Answer(error=failure.error))
        if failure.body is not None and self._call.given_up < PATIENCE and not delivery.down.begun:
            failure.headers.setdefault(*NO_RETRY)
            return await delivery.down.whole(failure.status, failure.headers, failure.body)
        status = 400 if self._call.given_up >= PATIENCE else failure.status
        return await delivery.error(status, failure.error.type, failure.error.message)

    async def _try(self, delivery: Delivery) -> web.StreamResponse | Failure:
        """Send the request once, or take what was recorded of it."""
        started = time.monotonic()
        try:
            played = await self._recorded()
            if played is None:
                self._ending.asked(started)
            incoming = played or await self._send()
        except NotRecorded as error:
            return self._failed(ProviderError("replay", str(error)), started)
        except NoTokens as error:
            return self._failed(error.error, started)
        except BROKEN as error:
            return self._failed(connection_error(error, self._policy.timeout_s), started)
        self._ending.status = incoming.status
        try:
            if played is not None:
                return await delivery.play(played, self._policy.timeout_s)
            if is_stream(incoming, self._call.streams):
                return await self._relay(incoming, delivery, started)
            return await self._take(incoming, delivery, started)
        finally:
            incoming.close()

    async def _recorded(self) -> Played | None:
        """Get the answer from an earlier run; null where it is to come from a provider."""
        source, record = self._session.request.source, self._call.record
        record.replayed = False
        if source is None:
            return None
        try:
            played = await source(self._asked)
        except NotRecorded:
            if not self._session.request.upstream.url:  # nobody else can answer
                raise
            return None
        if self._way.capturing is not None:
            raise NoTokens("what was recorded has none")
        record.replayed = True
        return played

    async def _send(self) -> Incoming:
        async with asyncio.timeout(self._policy.connect_s + self._policy.timeout_s):  # headers may drip, too
            incoming = await self._client.send(self._way.target, self._policy)
        if self._way.capturing is None:
            return incoming
        return await self._way.capturing.take(incoming, self._way.target, self._client, self._policy)

    def _failed(self, error: ProviderError, started: float) -> Failure:
        self._ending.tried(error.status, started, error)
        return unanswered(error)

    async def _take(
        self, incoming: Incoming, delivery: Delivery, started: float
    ) -> web.StreamResponse | Failure:
        """Read an answer in one piece, and send it where it is one."""
        try:
            raw = await self._read(incoming)
        except BROKEN as error:
            return self._failed(connection_error(error, self._policy.timeout_s), started)
        first_byte_s = time.monotonic() - self._call.opened
        whole = Judge(self._call.dialect, self._way.dialect, self._translated()).read(incoming, raw)
        delivery.note_dropped(whole.dropped)
        fault = whole.answer.error
        self._ending.tried(incoming.status, started, fault)
        if fault is not None and whole.refused:
            return answered(whole, fault)
        return await delivery.whole(self._as_asked(whole), first_byte_s)

    async def _read(self, incoming: Incoming) -> bytes:
        if isinstance(incoming, Live) and incoming.here:
            return await read_all(incoming)
        async with asyncio.timeout(self._policy.timeout_s):
            return await read_all(incoming)

    def _as_asked(self, whole: Whole) -> Whole:
        """A stream was asked for: the program gets one, and its call says so where the endpoint sent none."""
        if not self._call.streams:
            return whole
        asked = whole.as_asked(self._call.dialect, self._call.body.fields, self._asked.query)
        self._call.record.made_stream = asked is not whole and self._way.streams
        return asked

    async def _relay(self, incoming: Incoming, delivery: Delivery, started: float) -> web.StreamResponse:
        """Pass a stream on as it comes."""
        translated, down = self._translated(), delivery.down
        stream = Stream(self._call.dialect, incoming, self._policy.timeout_s, translated)
        headers = headers_down(incoming.headers, rewritten=translated is not None)
        if translated is not None:
            headers["Content-Type"] = translated.content_type
        await down.begin(incoming.status, headers)
        if "Content-Encoding" not in headers:
            down.keep_alive(stream.assembler.keep_alive, self._policy.quiet_s)
        return await delivery.stream(stream, incoming.status, started)

    def _translated(self) -> Translated | None:
        """Begin to translate an answer; null where it goes down as it comes."""
        return self._way.translated.begin() if self._way.translated is not None else None


def _why(error: BaseException) -> str:
    if isinstance(error, ConnectionError):
        return "the program closed the connection before its answer was complete"
    return f"the call was broken off ({type(error).__name__})"


async def play_back(tape: Tape, request: web.BaseRequest) -> web.StreamResponse:
    """Send the answer of an earlier exchange once more."""
    response = web.StreamResponse(status=tape.status or 200, headers=CIMultiDict(tape.headers))
    await response.prepare(request)
    await response.write_eof(b"".join(data for _, data in tape.chunks))
    return response

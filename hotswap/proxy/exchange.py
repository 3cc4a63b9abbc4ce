"""One call on its way: up to the provider, again where that can help, and its answer down to the program.

Until the provider's headers are there the program has received nothing of its answer, and a failed try can be
repeated. After that a stream is passed on event by event. The events from which on a program could take the answer
for complete are held until the call is recorded, so that a program that ends at once loses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

from hotswap.dialects import Dialect, parse
from hotswap.messages import Answer, ProviderError
from hotswap.proxy.capturing import NoTokens, read_all
from hotswap.proxy.chaos import RETRY_AFTER_S, SLOW_S, TYPES
from hotswap.proxy.down import Down
from hotswap.proxy.session import Call, Session
from hotswap.proxy.stream import Stream, inflate, inflater
from hotswap.proxy.tape import Asked, Incoming, NotRecorded, Tape
from hotswap.proxy.upstream import BROKEN, Client, connection_error, headers_down, lower, pause
from hotswap.proxy.way import Way

if TYPE_CHECKING:
    from hotswap.translation import Translated

NO_RETRY = ("x-should-retry", "false")
"""Tells the official SDKs that we have repeated a call as often as it makes sense."""
STATUS = {"timeout": 504, "replay": 400, "capture": 400}
"""What a program is told where nothing came from the provider; else 502."""
RETRY_AFTER = ("Retry-After", "Retry-After-Ms")
UNREADABLE = ("malformed", "redirect")
"""Errors of which the provider's own bytes would tell the program nothing."""
SAID = {
    "rate_limit": 429,
    "overloaded": 503,
    "auth": 401,
    "bad_request": 400,
    "context_length": 400,
    "timeout": 504,
}
"""The status of an error that came as a success, where it is said in the program's words; else 502."""
PATIENCE = 3
"""How often a program may learn that the same call failed, before it gets an error that ends it."""


@dataclass(frozen=True)
class Failure:
    """A try that failed before anything of its answer had gone to the program, and what it gets if this was the
    last."""

    error: ProviderError
    status: int
    headers: CIMultiDict[str]
    body: bytes | None = None
    """The provider's own; null where it has none that the program could read."""
    answer: Answer | None = None
    """What could be read of an answer that was sent as a success."""


class Exchange:
    """One call, from the request as it goes up to the end of its answer."""

    def __init__(self, session: Session, call: Call, way: Way, client: Client, asked: Asked) -> None:
        self._session = session
        self._call = call
        self._way = way
        self._client = client
        self._asked = asked
        self._dialect = call.dialect
        self._policy = session.request.calls
        self._cuts = False
        """Its answer is to be cut on purpose."""

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """Get the answer; all of it has been sent by then. The call is concluded in every case."""
        tape = Tape(self._asked, time.time(), translated=self._way.translation is not None)
        down = Down(request, tape)
        try:
            response = await self._within_deadline(down)
        except (ConnectionError, asyncio.CancelledError) as error:
            self._broken_off(error, down)
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours is no fault of the program's)
            response = await self._break_down(error, down)
        finally:
            down.stop_signs()
            self._session.keep(tape)
        if down.lost and not down.arrived and not tape.cut:
            self._session.lose(self._call, tape)
        return response

    async def _break_down(self, error: Exception, down: Down) -> web.StreamResponse:
        """Record a fault of ours, and tell the program."""
        fault = ProviderError("proxy", f"the proxy broke down: {error!r}", blame="hotswap")
        self._session.conclude(self._call, Answer(error=fault))
        if down.begun:
            return await down.cut()
        return await self._say_error(down, 502, "server", fault.message)

    def _broken_off(self, error: BaseException, down: Down) -> None:
        if down.arrived:
            return  # it hung up once it had all that it wanted
        if not self._call.busy:
            self._session.lose(self._call, down.tape)
        elif isinstance(error, ConnectionError):
            self._session.abandon(
                self._call, "the program closed the connection before its answer was complete"
            )
        else:
            self._session.abandon(self._call, f"the call was broken off ({type(error).__name__})")
        down.tape.cut = True

    async def _within_deadline(self, down: Down) -> web.StreamResponse:
        deadline = self._session.deadline
        if deadline is None:
            return await self._answer(down)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())) as limit:
                return await self._answer(down)
        except TimeoutError:
            if not limit.expired():
                raise
        self._session.abandon(self._call, "the rollout's time was up")
        self._session.refuse("seconds")
        return await self._say_error(down, 400, "limit_reached", refusal("seconds"))

    async def _answer(self, down: Down) -> web.StreamResponse:
        chaos = self._session.request.chaos
        if chaos is None:
            return await self._repeat(down)
        fault = chaos.draw()
        down.tape.fault, self._cuts = fault, fault == "cut"
        if fault is not None:  # else what was done to an earlier try of the call stays noted
            self._call.record.fault = fault
        if fault == "slow":
            await asyncio.sleep(SLOW_S)
        if fault in (None, "slow", "cut"):
            return await self._repeat(down)
        self._session.spoil(self._call, int(fault) if fault.isdigit() else None)
        if fault == "drop":
            return await down.drop()
        type, words = TYPES.get(fault, "server"), "put in on purpose, by the setting chaos"  # noqa: A001
        headers = CIMultiDict({"Content-Type": "application/json"})
        if fault == "429":
            headers["Retry-After"] = str(RETRY_AFTER_S)
        return await down.whole(int(fault), headers, self._dialect.write_error(int(fault), type, words))

    async def _repeat(self, down: Down) -> web.StreamResponse:
        if self._call.streams:
            down.keep_alive(self._dialect.assembler().keep_alive, self._policy.quiet_s)
        repeats = 0
        while True:
            outcome = await self._try(down)
            if not isinstance(outcome, Failure):
                return outcome
            if not await self._worth_repeating(outcome.error, repeats):
                return await self._give_up(outcome, down)
            if outcome.answer is not None:
                self._session.pay(self._call, outcome.answer)
            repeats += 1

    async def _worth_repeating(self, error: ProviderError, repeats: int) -> bool:
        """Wait for the next try; False where none is to come."""
        if not error.retryable or repeats >= self._policy.retries or self._call.given_up:
            return False
        if self._call.record.replayed:  # the program was told of it then, and is to be told again
            return False
        wait_s = self._policy.waits(error, repeats)
        return wait_s <= self._policy.timeout_s and await pause(wait_s, self._session.deadline)

    async def _try(self, down: Down) -> web.StreamResponse | Failure:
        started = time.monotonic()
        try:
            incoming = await self._send()
        except NotRecorded as error:
            return self._failed(ProviderError("replay", str(error)), started)
        except NoTokens as error:
            return self._failed(error.error, started)
        except BROKEN as error:
            return self._failed(connection_error(error, self._policy.timeout_s), started)
        try:
            if incoming.status < 300 and self._is_stream(incoming):
                return await self._relay(incoming, down, started)
            return await self._whole(incoming, down, started)
        finally:
            incoming.close()

    async def _send(self) -> Incoming:
        source, record = self._session.request.source, self._call.record
        record.replayed = False
        if source is not None:
            try:
                incoming = await source(self._asked)
            except NotRecorded:
                if not self._session.request.upstream.url:  # nobody else can answer
                    raise
            else:
                if self._way.capturing is not None:
                    raise NoTokens("what was recorded has none")
                record.replayed = True
                return incoming
        async with asyncio.timeout(self._policy.connect_s + self._policy.timeout_s):  # headers may drip, too
            incoming = await self._client.send(self._way.target, self._policy)
        if self._way.capturing is None:
            return incoming
        return await self._way.capturing.take(incoming, self._way.target, self._client, self._policy)

    def _translated(self) -> Translated | None:
        """Begin to translate an answer; what is replayed is in the program's dialect already."""
        return None if self._call.record.replayed else self._way.translated()

    @property
    def _spoken(self) -> Dialect:
        """The dialect that the answer comes in."""
        return self._dialect if self._call.record.replayed else self._way.dialect

    def _failed(self, error: ProviderError, started: float) -> Failure:
        self._session.note_try(self._call, error.status, time.monotonic() - started, error)
        return Failure(error, STATUS.get(error.type, 502), CIMultiDict())

    def _is_stream(self, incoming: Incoming) -> bool:
        kind = lower(incoming.headers).get("content-type", "")
        return "event-stream" in kind or (self._call.streams and "json" not in kind and "html" not in kind)

    async def _whole(self, incoming: Incoming, down: Down, started: float) -> web.StreamResponse | Failure:
        """Read an answer in one piece, and send it once it is recorded."""
        try:
            async with asyncio.timeout(self._policy.timeout_s):
                raw = await read_all(incoming)
        except BROKEN as error:
            return self._failed(connection_error(error, self._policy.timeout_s), started)
        first_byte_s = time.monotonic() - self._call.opened
        headers = headers_down(incoming.headers)
        body = inflate(inflater(incoming.headers), raw)
        answer = (
            self._read_error(incoming, body)
            if incoming.status >= 300
            else self._foreign_error(body, incoming)
        )
        translated = self._translated() if answer is None else None
        if translated is not None:
            raw = body = translated.whole(body)
            headers = headers_down(incoming.headers, rewritten=True)
            headers["Content-Type"] = "application/json"
        foreign = answer is not None
        answer = answer or self._read_answer(body, incoming.status)
        if translated is not None:
            answer = replace(answer, usage=translated.usage)
            self._note_dropped(translated.dropped)
        self._session.note_try(self._call, incoming.status, time.monotonic() - started, answer.error)
        if answer.error is not None and (
            incoming.status >= 300 or answer.error.retryable or answer.error.type == "malformed" or foreign
        ):
            return self._failure(answer, incoming.status, headers, raw)
        if self._cuts:
            self._session.spoil(self._call, incoming.status, answer)
            await down.begin(incoming.status, headers)
            return await down.cut(raw[: len(raw) // 2])
        if down.begun and answer.error is None:
            words = "the provider sent its answer in one piece, after a stream had been opened for it"
            answer = replace(answer, error=ProviderError("malformed", words, incoming.status))
        self._session.conclude(self._call, answer, first_byte_s)
        if down.begun and answer.error is not None:
            return await self._say_error(down, 502, answer.error.type, answer.error.message)
        return await down.whole(incoming.status, headers, raw)

    def _failure(self, answer: Answer, status: int, headers: CIMultiDict[str], raw: bytes) -> Failure:
        assert answer.error is not None
        foreign = answer.error.type in UNREADABLE or self._spoken is not self._dialect
        own = None if foreign or parse(raw) is None else raw
        if answer.error.type in UNREADABLE or (own is None and status < 300):
            status = SAID.get(answer.error.type, 502)
        return Failure(answer.error, status, headers, own, answer)

    def _read_error(self, incoming: Incoming, body: bytes) -> Answer:
        if incoming.status < 400:
            place = lower(incoming.headers).get("location", "nowhere")
            words = f"the provider redirects to {place}: if that is its address, set it as the model's url"
            return Answer(error=ProviderError("redirect", words, incoming.status))
        try:
            return Answer(error=self._spoken.read_error(incoming.status, body, lower(incoming.headers)))
        except Exception as error:  # noqa: BLE001 (that reading fails is no reason to stop relaying)
            words = f"HTTP {incoming.status}, with words that could not be read: {error!r}"
            return Answer(error=ProviderError("server", words, incoming.status))

    def _foreign_error(self, body: bytes, incoming: Incoming) -> Answer | None:
        """Get the error that an endpoint of another dialect sent as a success; null where it is an answer."""
        if self._spoken is self._dialect:
            return None
        try:
            answer = self._spoken.read_answer(body)
        except Exception:  # noqa: BLE001 (it is read once more, translated)
            return None
        if answer.error is None or answer.error.type == "empty":
            return None
        return replace(answer, error=replace(answer.error, status=incoming.status))

    def _read_answer(self, body: bytes, status: int) -> Answer:
        try:
            answer = self._dialect.read_answer(body)
            return replace(answer, error=answer.error and replace(answer.error, status=status))
        except Exception as error:  # noqa: BLE001 (as above)
            return Answer(error=ProviderError("malformed", f"the answer could not be read: {error!r}", 200))

    async def _give_up(self, failure: Failure, down: Down) -> web.StreamResponse:
        """Record the failure and pass it on, in the provider's words where it has any."""
        self._call.given_up += 1
        self._session.conclude(self._call, failure.answer or Answer(error=failure.error))
        status, headers = failure.status, failure.headers
        for name in RETRY_AFTER:
            headers.popall(name, None)  # we have waited for it, or it is longer than anyone should
        if failure.body is not None and self._call.given_up < PATIENCE and not down.begun:
            headers.setdefault(*NO_RETRY)
            return await down.whole(status, headers, failure.body)
        status = 400 if self._call.given_up >= PATIENCE else status
        return await self._say_error(down, status, failure.error.type, failure.error.message)

    async def _say_error(self, down: Down, status: int, type: str, message: str) -> web.StreamResponse:  # noqa: A002
        """Tell the program of an error in its dialect's words, be its answer begun or not."""
        if down.begun:
            return await down.end(self._dialect.write_error_event(type, message))
        return await down.whole(status, error_headers(), self._dialect.write_error(status, type, message))

    async def _relay(self, incoming: Incoming, down: Down, started: float) -> web.StreamResponse:
        """Pass a stream on as it comes."""
        rewriter = self._translated()
        stream = Stream(self._dialect, incoming, self._policy.timeout_s, rewriter)
        headers = headers_down(incoming.headers, rewritten=rewriter is not None)
        if rewriter is not None:
            headers["Content-Type"] = rewriter.content_type
        await down.begin(incoming.status, headers)
        if "Content-Encoding" not in headers:
            down.keep_alive(stream.assembler.keep_alive, self._policy.quiet_s)
        while (ready := await stream.read()) is not None:
            if self._cuts and ready:
                self._session.spoil(self._call, incoming.status, Answer(usage=stream.answer().usage))
                return await down.cut(ready[: len(ready) // 2])
            if stream.ended:
                self._conclude(stream, incoming.status, started)
            if ready:
                await down.write(ready)
            down.arrived = down.arrived or stream.ended
        if self._cuts:
            self._session.spoil(self._call, incoming.status, stream.answer())
            return await down.cut(stream.rest[: len(stream.rest) // 2])
        answer = self._conclude(stream, incoming.status, started)
        if answer.error is not None and answer.error.type == "truncated":
            return await down.cut(stream.rest)  # never a normal end that the provider did not make
        return await down.end(stream.rest)

    def _note_dropped(self, names: Iterable[str]) -> None:
        dropped = self._call.record.dropped
        dropped += [name for name in names if name not in dropped]

    def _conclude(self, stream: Stream, status: int, started: float) -> Answer:
        answer = stream.answer()
        if self._call.busy:
            self._note_dropped(stream.dropped)
            self._session.note_try(self._call, status, time.monotonic() - started, answer.error)
            first = stream.first_byte_at
            self._session.conclude(self._call, answer, first - self._call.opened if first else None)
        return answer


async def play_back(tape: Tape, request: web.BaseRequest) -> web.StreamResponse:
    """Send the answer of an earlier exchange once more."""
    response = web.StreamResponse(status=tape.status or 200, headers=CIMultiDict(tape.headers))
    await response.prepare(request)
    await response.write_eof(b"".join(data for _, data in tape.chunks))
    return response


def refusal(limit: str) -> str:
    """Get the words in which a call is refused."""
    return f"this rollout has used up its limit of {limit}: no further model calls are answered"


def error_headers() -> CIMultiDict[str]:
    """The headers of an error of ours. None is worth a retry by the program."""
    return CIMultiDict([NO_RETRY, ("Content-Type", "application/json")])

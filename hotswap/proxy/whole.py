"""An answer in one piece: read and judged, and as the program gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict

from hotswap.dialects import Dialect
from hotswap.messages import Answer, ProviderError
from hotswap.proxy.stream import inflate, inflater
from hotswap.proxy.tape import Incoming
from hotswap.proxy.upstream import headers_down, lower

if TYPE_CHECKING:
    from hotswap.translation import Translated


@dataclass(frozen=True)
class Whole:
    """What came, and what goes down."""

    status: int
    headers: CIMultiDict[str]
    body: bytes
    answer: Answer
    plain: bytes = b""
    """The body, not compressed."""
    refused: bool = False
    """An error stands in the answer's place."""
    own: bool = True
    """The body is as the provider sent it, in the program's dialect."""
    dropped: tuple[str, ...] = ()
    """What of it the program cannot be told, by name."""
    stream: bool = False
    """The body is a stream of events that was made of the answer."""

    def as_asked(self, dialect: Dialect, fields: Mapping[str, Any], query: str) -> Whole:
        """Get it as the stream that a program asked for; an error, and what is such a stream already, stay."""
        body = dialect.write_stream(self.plain, fields, query) if self.answer.error is None else None
        if body is None:
            return self
        events = dialect.sends_events(query)
        headers = headers_down(self.headers, rewritten=True)
        headers["Content-Type"] = "text/event-stream" if events else "application/json"
        return replace(self, body=body, headers=headers, stream=events)


@dataclass(frozen=True)
class Judge:
    """Reads what an endpoint answers to a program."""

    own: Dialect
    """The program's dialect."""
    spoken: Dialect
    """The endpoint's."""
    translated: Translated | None = None

    def read(self, incoming: Incoming, raw: bytes) -> Whole:
        """Read an answer. Never raises: that reading fails is no reason to stop relaying."""
        plain = inflate(inflater(incoming.headers), raw)
        refusal = self._refusal(incoming, plain)
        if refusal is not None:
            headers, own = headers_down(incoming.headers), self.spoken is self.own
            return Whole(incoming.status, headers, raw, refusal, plain, refused=True, own=own)
        if self.translated is not None:
            return self._translate(incoming, plain, self.translated)
        answer = self._read(plain, incoming.status)
        headers = headers_down(incoming.headers)
        return Whole(incoming.status, headers, raw, answer, plain, refused=_is_refused(answer))

    def _translate(self, incoming: Incoming, plain: bytes, translated: Translated) -> Whole:
        body = translated.whole(plain)
        headers = headers_down(incoming.headers, rewritten=True)
        headers["Content-Type"] = "application/json"
        answer = replace(self._read(body, incoming.status), usage=translated.usage)
        whole = Whole(incoming.status, headers, body, answer, body, _is_refused(answer), own=False)
        return replace(whole, dropped=translated.dropped)

    def _refusal(self, incoming: Incoming, plain: bytes) -> Answer | None:
        """Get the error that the endpoint's status, or its own dialect, says; null where it is an answer."""
        if incoming.status >= 400:
            return Answer(error=self._read_error(incoming, plain))
        if incoming.status >= 300:
            place = lower(incoming.headers).get("location", "nowhere")
            words = f"the provider redirects to {place}: if that is its address, set it as the model's url"
            return Answer(error=ProviderError("redirect", words, incoming.status))
        return None if self.spoken is self.own else self._foreign_error(incoming.status, plain)

    def _read_error(self, incoming: Incoming, plain: bytes) -> ProviderError:
        try:
            return self.spoken.read_error(incoming.status, plain, lower(incoming.headers))
        except Exception as error:  # noqa: BLE001 (as said above)
            words = f"HTTP {incoming.status}, with words that could not be read: {error!r}"
            return ProviderError("server", words, incoming.status)

    def _foreign_error(self, status: int, plain: bytes) -> Answer | None:
        """Get the error that an endpoint of another dialect sent as a success."""
        try:
            answer = self.spoken.read_answer(plain)
        except Exception:  # noqa: BLE001 (it is read once more, translated)
            return None
        if answer.error is None or answer.error.type == "empty":
            return None
        return replace(answer, error=replace(answer.error, status=status))

    def _read(self, plain: bytes, status: int) -> Answer:
        try:
            answer = self.own.read_answer(plain)
            if answer.error is None:
                return answer
            return replace(answer, error=replace(answer.error, status=status))
        except Exception as error:  # noqa: BLE001 (as said above)
            return Answer(error=ProviderError("malformed", f"the answer could not be read: {error!r}", 200))


def _is_refused(answer: Answer) -> bool:
    """Whether an answer that was read is none: asked again there could be one, or the program could not read it."""
    error = answer.error
    return error is not None and (error.retryable or error.type == "malformed")

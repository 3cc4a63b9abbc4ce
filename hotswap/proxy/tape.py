"""One raw exchange: what the program sent and what it was sent, byte for byte. What recording and replay work on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from hotswap.messages import ProviderError, Usage


@dataclass(frozen=True)
class Asked:
    """A request as it came from the program, without the secret that opened the session."""

    method: str
    path: str
    """Decoded, with its leading slash and without the query."""
    query: str = ""
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    """Not compressed."""
    dialect: str | None = None
    """The dialect of a call; null for a route beside."""
    call: int | None = None
    """The call of the trace; null for a route beside."""
    agent: str = "main"


@dataclass(frozen=True)
class Verdict:
    """What was made of an answer, of which the bytes that the program got say less, or nothing."""

    how: Literal["concluded", "spoilt", "abandoned"] = "concluded"
    """The provider's answer or error; our own misbehaviour; broken off from our side of the provider."""
    error: ProviderError | None = None
    why: str = ""
    """Of what was abandoned."""
    status: int | None = None
    """Of what was spoilt."""
    tries: tuple[tuple[int | None, str | None], ...] = ()
    """The status and the kind of error of each request to the provider."""
    usage: Usage = field(default_factory=Usage)
    """What all tries used."""
    made_stream: bool = False
    """The stream was made of an answer in one piece."""

    def to_json(self) -> dict[str, Any]:
        """Get it without what is not said."""
        said: dict[str, Any] = {"how": self.how, "why": self.why, "status": self.status, "tries": self.tries}
        said["made_stream"] = self.made_stream or None
        said["error"] = asdict(self.error) if self.error else None
        said["usage"] = dict(vars(self.usage)) if self.usage != PLAIN.usage else None
        return {name: value for name, value in said.items() if value not in (None, "", PLAIN.how, ())}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Verdict:
        error, usage = record.get("error"), record.get("usage")
        return cls(
            record.get("how", PLAIN.how),
            ProviderError(**error) if error else None,
            record.get("why", PLAIN.why),
            record.get("status"),
            tuple((status, kind) for status, kind in record.get("tries", ())),
            Usage(**usage) if usage else Usage(),
            bool(record.get("made_stream")),
        )


PLAIN = Verdict()


@dataclass
class Tape:
    """A request and the answer that the program got, with its timing."""

    asked: Asked
    started: float
    """Epoch seconds."""
    status: int | None = None
    """Null where the program got nothing."""
    headers: Sequence[tuple[str, str]] = ()
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    """The answer's body in the pieces that were written, each with its seconds since `started`."""
    cut: bool = False
    """The connection was closed before the answer's end."""
    translated: bool = False
    fault: str | None = None
    """The misbehaviour that was put in on purpose."""
    verdict: Verdict | None = None
    """Null for a route beside."""


class Incoming(Protocol):
    """An answer as it comes from its source: status and headers are there, the body is on its way."""

    status: int
    headers: Mapping[str, str]
    """Names in any case; reading them does not depend on it."""

    async def read(self) -> bytes:
        """Get the next bytes of the body; none: its end. Raises OSError, TimeoutError or aiohttp's errors where it
        breaks off."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether all bytes of the body have been read, as far as is known yet."""
        ...

    def close(self) -> None:
        """Let go of the answer, read or not. May be called more than once."""
        ...


class Played(Incoming, Protocol):
    """A recorded answer as it comes again."""

    silent: bool
    """The program got nothing, not even a status."""
    cut: bool
    fault: str | None
    verdict: Verdict | None

    def give_back(self) -> None:
        """Note that it did not reach the program: the next request like this one gets it."""
        ...


class NotRecorded(Exception):
    """A source has no answer to this request; the message says why. It will have none the next time either.

    In a trace it is the provider's fault, of the type `replay`, where no provider answers in the source's place.
    """


Source = Callable[[Asked], Awaitable[Played]]
"""Answers requests in a provider's place: a run that was recorded. Raises like `Incoming.read`, and NotRecorded."""

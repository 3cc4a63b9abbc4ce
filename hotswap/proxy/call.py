"""A call of a program, from its request to its end, and whose it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hotswap.dialects import Dialect
from hotswap.proxy.body import Body
from hotswap.proxy.tape import Tape
from hotswap.trace import BranchKind, CallRecord

if TYPE_CHECKING:
    from hotswap.proxy.session import Session

STREAM_FIELDS = frozenset({"stream", "stream_options"})
"""Fields in which a repeat may differ: programs fall back from a stream to an answer in one piece."""


@dataclass(frozen=True)
class Pass:
    """What a secret opens: a session, as one agent of it."""

    session: Session
    kind: BranchKind
    agent: str
    digest: bytes = field(repr=False)


class Talk(NamedTuple):
    """A conversation, as the limit of turns counts it: whose it is, and the number that the graph gives it."""

    kind: BranchKind
    agent: str
    number: int | None = None


@dataclass(eq=False)
class Call:
    """A call in progress, or one that failed and may be tried again."""

    record: CallRecord
    number: int
    body: Body
    dialect: Dialect
    streams: bool
    talk: Talk
    given_up: int = 0
    """How often the program was told that this call failed."""
    busy: bool = True
    opened: float = field(default_factory=time.monotonic)
    tape: Tape | None = None
    """What the program was sent of a whole answer; null where there is none, or it has arrived."""
    keep: Callable[[], bool | None] | None = None
    """Keeps the tokens of its answer, and says whether its prompt breaks with the call before."""

    def repeats(self, body: Body, dialect: Dialect, who: Pass) -> bool:
        """Whether another request of the same agent asks the same, be it in one piece and not as a stream."""
        if (who.kind, who.agent) != (self.talk.kind, self.talk.agent):
            return False
        same = dialect is self.dialect and body.says_the_same(self.body)
        return same and _without_stream(body.fields) == _without_stream(self.body.fields)

    def open_again(self, body: Body, streams: bool, talk: Talk) -> None:
        """Take a request that repeats it as its next try."""
        self.body, self.streams, self.talk = body, streams, talk
        self.busy, self.opened = True, time.monotonic()

    def end_try(self) -> None:
        """Note how long the try took that is over."""
        self.record.duration_s = (self.record.duration_s or 0.0) + time.monotonic() - self.opened


def _without_stream(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in STREAM_FIELDS}

"""What becomes of one exchange: it is said to the session, and kept on tape, so that it can be played again."""

from __future__ import annotations

import time
from dataclasses import replace

from hotswap.messages import Answer, ProviderError, Usage
from hotswap.proxy.session import Call, Session
from hotswap.proxy.tape import Verdict


class Ending:
    """The end of a call's exchange. Only the first one counts, as in the session."""

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call
        self._given: Verdict | None = None
        self._tries: list[tuple[int | None, str | None]] = []
        self._used = Usage()
        self._asked: float | None = None
        self.status: int | None = None
        """Of the answer that has begun to come; null as long as none has."""
        self.verdict: Verdict | None = None
        """Null as long as there is none."""

    def follow(self, verdict: Verdict | None) -> None:
        """From now on tell what was made of the exchange when it was recorded; null: that is not known."""
        self._given = verdict
        self._call.record.made_stream = verdict is not None and verdict.made_stream
        for status, kind in verdict.tries if verdict is not None else ():
            self._note(status, 0.0, None if kind is None else ProviderError(kind, ""))

    def asked(self, started: float) -> None:
        """A request goes to the provider, and none is open before it."""
        self._asked, self.status = started, None

    def tried(self, status: int | None, started: float, error: ProviderError | None) -> None:
        """One request to the provider was answered, or was not."""
        self._asked = None
        if self._given is None:
            self._note(status, time.monotonic() - started, error)

    def _note(self, status: int | None, duration_s: float, error: ProviderError | None) -> None:
        self._tries.append((status, error.type if error else None))
        self._session.note_try(self._call, status, duration_s, error)

    def pay(self, answer: Answer) -> None:
        """What a try used is counted, whose answer is not the call's."""
        self._used = self._used + answer.usage
        self._session.pay(self._call, answer)

    def conclude(self, answer: Answer, first_byte_s: float | None = None) -> None:
        """The answer is there, or the error in its place."""
        given = self._given
        if given is None or given.how == "concluded":
            said = answer if given is None else replace(answer, error=given.error, usage=given.usage)
            if self._decide(Verdict(error=said.error, usage=said.usage)):
                self._session.conclude(self._call, said, first_byte_s)
        elif given.how == "spoilt":
            self.spoil(given.status, answer)
        else:
            self.abandon(given.why)

    def spoil(self, status: int | None, answer: Answer | None = None) -> None:
        """Our own misbehaviour took the answer's place; one that the provider gave is paid all the same."""
        if answer is not None and self._given is not None:
            answer = replace(answer, usage=self._given.usage)
        usage = answer.usage if answer is not None else Usage()
        if self._decide(Verdict("spoilt", status=status, usage=usage)):
            self._session.spoil(self._call, status, answer)

    def abandon(self, why: str, so_far: Answer | None = None) -> None:
        """The call was broken off from our side of the provider. What it had come to is a try, and is paid."""
        if self._asked is not None and self._call.busy:
            self.tried(self.status, self._asked, ProviderError("abandoned", why))
        used = (
            self._given.usage if self._given is not None else so_far.usage if so_far is not None else Usage()
        )
        if self._decide(Verdict("abandoned", why=why, usage=used)):
            self._session.pay(self._call, Answer(usage=used))
            self._session.abandon(self._call, why)

    def _decide(self, verdict: Verdict) -> bool:
        if not self._call.busy:
            return False
        self.verdict = replace(
            verdict,
            tries=tuple(self._tries),
            usage=self._used + verdict.usage,
            made_stream=self._call.record.made_stream,
        )
        return True

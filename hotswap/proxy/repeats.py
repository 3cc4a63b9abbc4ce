"""Calls that a program may ask for again: a request that repeats one of them is no call of its own.

One whose whole answer was lost gets it from the record. Where the program has changed from a stream to an answer in one
piece, or back, what was recorded is no answer for it: then the call has another try.
"""

from __future__ import annotations

from collections import deque

from hotswap.dialects import Dialect
from hotswap.proxy.body import Body
from hotswap.proxy.call import Call, Pass
from hotswap.proxy.tape import Tape

KEPT = 8
"""Calls of each sort that are remembered."""


class Repeats:
    """The last calls of a session that failed, and those whose whole answer did not arrive in the program."""

    def __init__(self) -> None:
        self._failed: deque[Call] = deque(maxlen=KEPT)
        self._lost: deque[Call] = deque(maxlen=KEPT)

    @property
    def any_lost(self) -> bool:
        """Whether an answer is to be had from the record."""
        return bool(self._lost)

    def fail(self, call: Call) -> None:
        """Note that a call failed: the same request is its next try."""
        self._failed.append(call)

    def lose(self, call: Call, tape: Tape) -> None:
        """Note that a whole answer did not arrive: the same request gets it from the tape."""
        call.tape = tape
        self._lost.append(call)

    def take_failed(self, body: Body, dialect: Dialect, who: Pass) -> Call | None:
        """Get the failed call that a request repeats. It is forgotten here."""
        found = next((call for call in self._failed if call.repeats(body, dialect, who)), None)
        if found is not None:
            self._failed.remove(found)
        return found

    def take_lost(self, body: Body, dialect: Dialect, who: Pass) -> Call | None:
        """Get the call whose lost answer a request asks for, in whatever form. It is forgotten here."""
        found = next((call for call in self._lost if call.repeats(body, dialect, who)), None)
        if found is not None:
            self._lost.remove(found)
        return found

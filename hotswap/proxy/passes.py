"""The secrets of one session: each opens it as one agent, until its end."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from hotswap.proxy.call import Pass
from hotswap.trace import BranchKind

if TYPE_CHECKING:
    from hotswap.proxy.session import Session

BYTES = 32
Admit = Callable[[Pass, bool], None]
"""Lets a secret in at the door, or no more."""


class Passes:
    """Makes the secrets of a session. `admit` is told of each, and of its end."""

    def __init__(self, session: Session, admit: Admit) -> None:
        self._session = session
        self._admit = admit
        self._made: dict[tuple[BranchKind, str], tuple[str, Pass]] = {}

    def secret(self, kind: BranchKind, agent: str) -> str:
        """Get the secret of an agent; always the same one for the same kind and agent."""
        if (kind, agent) not in self._made:
            text = secrets.token_urlsafe(BYTES)
            who = Pass(self._session, kind, agent, sha256(text.encode()).digest())
            self._made[kind, agent] = text, who
            self._admit(who, True)
        return self._made[kind, agent][0]

    def close(self) -> None:
        """Let no secret in any more."""
        for _, who in self._made.values():
            self._admit(who, False)

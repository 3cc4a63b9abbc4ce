"""The log of one session: a record of every call and every request beside them, and the tools that were offered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from hotswap.dialects import Dialect
from hotswap.errors import ErrorRecord
from hotswap.messages import ProviderError
from hotswap.proxy.body import Body
from hotswap.proxy.call import Call, Pass, Talk
from hotswap.trace import OWN, BranchKind, CallRecord, HelperRecord


class Log:
    """Records in order of arrival; a call's number is its place."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.helpers: list[HelperRecord] = []
        self.tools: dict[str, list[Any]] = {}
        self._tools_read: tuple[Any, str] | None = None
        self._errors: dict[int, ProviderError | None] = {}
        """How each call ended, by its number."""

    def open(self, body: Body, path: str, dialect: Dialect, who: Pass, streams: bool, talk: Talk) -> Call:
        """Begin the record of a call."""
        record = CallRecord(
            input=body.leaf,
            outputs=[],
            dialect=dialect.name,
            path=path,
            model="",
            status=None,
            started=time.time(),
            tools=self._note_tools(body.fields, dialect),
            agent=who.agent,
            kind=who.kind,
            unread=body.unread,
        )
        self.calls.append(record)
        return Call(record, len(self.calls) - 1, body, dialect, streams, talk)

    def end(self, call: Call, error: ProviderError | None) -> None:
        """Note how a call ended."""
        self._errors[call.number] = error
        call.record.error = _error_record(error) if error else None

    def last_error(self, kinds: Sequence[BranchKind]) -> ProviderError | None:
        """Why the last call of the main conversation failed; null where it went well. Titles and other side calls
        decide nothing; where there are no others, the last of them does."""
        ended = [(kinds[number] in OWN, number) for number in self._errors]
        return self._errors[max(ended)[1]] if ended else None

    def _note_tools(self, fields: Mapping[str, Any], dialect: Dialect) -> str | None:
        """Keep the tools that were offered, each list once. The same object as last time is not read anew."""
        sent = fields.get("tools")
        if self._tools_read is not None and sent is self._tools_read[0]:
            return self._tools_read[1]
        tools = dialect.read_tools(fields)
        if not tools:
            return None
        name = "sha256:" + sha256(json.dumps(tools, sort_keys=True).encode()).hexdigest()
        self.tools.setdefault(name, list(tools))
        self._tools_read = (sent, name)
        return name


def _error_record(error: ProviderError) -> ErrorRecord:
    status = "no answer" if error.status is None else f"HTTP {error.status}"
    return ErrorRecord(error.blame, "agent", error.type, error.message, status)

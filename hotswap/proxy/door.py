"""The connections that come in. One that opens and says nothing, or never ends its headers, costs the others nothing.

Whoever can reach the port can open connections; only a request with a session's secret makes one known. Those that
are not known yet are few at any moment: when they are many, the oldest go. One that begins to ask and does not come to
the end of its headers is closed after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

STRANGERS = 256
"""Connections that may be open without having shown a secret."""
STRANGER_S = 10.0
"""So long one may stay in any case: a thousand programs may start together, on a machine that is busy with that."""
HEADERS_S = 30.0
"""Seconds from the first byte of a request to the end of its headers."""
HEADER_LIMIT = 64 * 2**10
"""Bytes of one line."""
HEADERS_LIMIT = 256
KEEP_ALIVE_S = 3600

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """One connection of a program."""

    def __init__(self, door: Door, **rest: Any) -> None:
        super().__init__(door, **rest)
        self._door = door
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._door.opened(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        asking = self._current_request is not None or bool(self._messages)
        if asking and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif not asking and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HEADERS_S, self.force_close)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP. It is said in no log, and not quoted: anyone can send as much of it as they like, and
        a header may hold a secret."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        answer = web.Response(status=status, text="this is no request that could be read\n")
        answer.force_close()
        return answer

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._door.closed(self)
        super().connection_lost(exc)


class Door(web.Server):
    """What makes a connection for each that comes."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._strangers: dict[Connection, float] = {}

    def __call__(self) -> web.RequestHandler:
        return Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_S,
            max_headers=HEADERS_LIMIT,
            max_line_size=HEADER_LIMIT,
            max_field_size=HEADER_LIMIT,
        )

    def know(self, request: web.BaseRequest) -> None:
        """Note that a request came with a session's secret."""
        if self._strangers and isinstance(request.protocol, Connection):
            self._strangers.pop(request.protocol, None)

    def opened(self, connection: Connection) -> None:
        """Take a connection in; where there are too many that nobody knows, the oldest of them go."""
        now = asyncio.get_running_loop().time()
        self._strangers[connection] = now
        while len(self._strangers) > STRANGERS:
            oldest, since = next(iter(self._strangers.items()))
            if now - since < STRANGER_S:
                return
            self.closed(oldest)
            oldest.force_close()

    def closed(self, connection: Connection) -> None:
        """Note that a connection is gone."""
        self._strangers.pop(connection, None)

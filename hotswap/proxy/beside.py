"""Routes that are no turn: token counters, compaction, model lists, whatever else a program asks its provider."""

from __future__ import annotations

import asyncio
import json
import time

from aiohttp import web
from multidict import CIMultiDict

from hotswap.dialects import Dialect, Route, known
from hotswap.errors import ErrorRecord
from hotswap.proxy.down import Down
from hotswap.proxy.exchange import error_headers, refusal
from hotswap.proxy.session import Session
from hotswap.proxy.tape import Asked, Incoming, NotRecorded, Tape
from hotswap.proxy.upstream import (
    BROKEN,
    VERSION,
    Client,
    clean_query,
    connection_error,
    headers_down,
    open_headers,
)
from hotswap.proxy.way import beside
from hotswap.trace import HelperRecord

BYTES_A_TOKEN = 4
"""So many bytes of a request are about one token: what a program is told that asks an endpoint which cannot count."""


class Beside:
    """One request that is relayed as it is, or answered cheaply where the endpoint has no such route."""

    def __init__(self, session: Session, route: Route | None, client: Client) -> None:
        self._session = session
        self._route = route
        self._client = client
        self._upstream = session.request.upstream

    async def run(self, request: web.BaseRequest, path: str, raw: bytes) -> web.StreamResponse:
        """Get the answer, which has been sent by then."""
        asked = ask(request, raw)
        tape, started = Tape(asked, time.time()), time.monotonic()
        down = Down(request, tape)
        record = HelperRecord(request.method, path, None, tape.started)
        task = asyncio.current_task()
        assert task is not None
        self._session.enter(task)
        try:
            return await self._within_limits(asked, path, down, request)
        except ConnectionError:
            raise  # the program is gone
        except Exception as error:  # noqa: BLE001 (a fault of ours is no fault of the program's)
            words = f"the proxy broke down: {error!r}"
            record.error = ErrorRecord("hotswap", "agent", "proxy", words)
            return await down.cut() if down.begun else await self._say(down, 502, "server", words)
        finally:
            self._session.leave(task)
            record.status, record.duration_s = tape.status, time.monotonic() - started
            self._session.note_helper(record)
            self._session.keep(tape)

    async def _within_limits(
        self, asked: Asked, path: str, down: Down, request: web.BaseRequest
    ) -> web.StreamResponse:
        over = self._session.over()
        if over is None:
            return await self._answer(asked, path, down, request)
        self._session.refuse(over)
        return await self._say(down, 400, "limit_reached", refusal(over))

    async def _answer(
        self, asked: Asked, path: str, down: Down, request: web.BaseRequest
    ) -> web.StreamResponse:
        foreign = self._route is not None and self._route.dialect.name not in self._upstream.dialects
        if foreign and self._session.request.source is None:
            return await self._stand_in(path, asked.body, down)
        try:
            incoming = await self._send(asked, path, request)
        except NotRecorded:
            return await self._stand_in(path, asked.body, down)
        except BROKEN as error:
            failed = connection_error(error, self._session.request.calls.timeout_s)
            return await self._say(down, 502, failed.type, failed.message)
        try:
            return await _pass_on(incoming, down)
        finally:
            incoming.close()

    async def _send(self, asked: Asked, path: str, request: web.BaseRequest) -> Incoming:
        source = self._session.request.source
        if source is not None:
            try:
                return await source(asked)
            except NotRecorded:
                if not self._upstream.url:  # nobody else can answer
                    raise
        dialect = self._route.dialect if self._route else known()[self._upstream.dialects[0]]
        version = VERSION.match(path)
        tail = self._route.tail if self._route else path[version.start(1) :] if version else path
        target = beside(self._upstream, tail, request, dialect, asked.body)
        return await self._client.send(target, self._session.request.calls)

    async def _stand_in(self, path: str, body: bytes, down: Down) -> web.StreamResponse:
        if path.endswith("/count_tokens"):
            about = json.dumps({"input_tokens": max(1, len(body) // BYTES_A_TOKEN)}).encode()
            return await down.whole(200, CIMultiDict({"Content-Type": "application/json"}), about)
        return await self._say(down, 404, "not_found_error", f"this endpoint has no route {path}")

    async def _say(self, down: Down, status: int, type: str, message: str) -> web.StreamResponse:  # noqa: A002
        dialect: Dialect = self._route.dialect if self._route else known()[self._upstream.dialects[0]]
        return await down.whole(status, error_headers(), dialect.write_error(status, type, message))


def ask(
    request: web.BaseRequest,
    body: bytes,
    dialect: str | None = None,
    call: int | None = None,
    agent: str = "main",
) -> Asked:
    """Get a request as it is recorded: without its secret."""
    query = clean_query(request.raw_path.partition("?")[2])
    return Asked(
        request.method, request.path, query, open_headers(request.headers), body, dialect, call, agent
    )


async def _pass_on(incoming: Incoming, down: Down) -> web.StreamResponse:
    await down.begin(incoming.status, headers_down(incoming.headers))
    try:
        while data := await incoming.read():
            await down.write(data)
    except BROKEN:
        return await down.cut()
    return await down.end()

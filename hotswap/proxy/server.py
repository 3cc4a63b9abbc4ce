"""The server that every agent program takes for its provider: one for a run, on loopback.

A request's secret says whose it is, its path says the dialect. Calls become exchanges; helper routes are
answered here and are no turn.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from types import TracebackType
from typing import TypeVar
from urllib.parse import unquote

from aiohttp import web

from hotswap import dialects
from hotswap.contracts.runtime import Gate
from hotswap.dialects import Dialect, Route
from hotswap.proxy.arrival import LARGE_BODY, Refused, receive
from hotswap.proxy.beside import Beside, ask
from hotswap.proxy.door import Door
from hotswap.proxy.exchange import Exchange, error_headers, play_back, refusal
from hotswap.proxy.session import Call, Pass, Session, SessionRequest
from hotswap.proxy.upstream import Client
from hotswap.proxy.way import NoWay, find_way

READERS = 4
"""Threads for large bodies: work of another kind does not wait for them."""
KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")

Result = TypeVar("Result")


class Proxy:
    """The server; an async context manager. `gate` says where it listens."""

    gate: Gate

    def __init__(self) -> None:
        self._passes: dict[bytes, Pass] = {}
        self._sessions: set[Session] = set()
        self.reading = 0
        """Requests whose body is on its way to us."""

    async def __aenter__(self) -> Proxy:
        self._server = Door(self._handle)
        self._threads = ThreadPoolExecutor(READERS, "bodies")
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, "127.0.0.1", 0, backlog=4096)
        host, port = self._listener.sockets[0].getsockname()[:2]
        self.gate = Gate(host, port, self._accept)
        self._client = Client()  # after what may be interrupted: nothing would close it
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for session in list(self._sessions):
            await session.close()
        await self._server.shutdown(timeout=1)
        await self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def open(self, request: SessionRequest) -> Session:
        """Open a session for one rollout; whoever opens it closes it."""
        session = Session(request, self._admit)
        self._sessions.add(session)
        return session

    async def _accept(self, listener: socket.socket) -> asyncio.AbstractServer:
        return await asyncio.get_running_loop().create_server(self._server, sock=listener)

    def _admit(self, who: Pass, open: bool) -> None:  # noqa: A002
        """Let a secret in, or no more."""
        if open:
            self._passes[who.digest] = who
        else:
            self._passes.pop(who.digest, None)
            self._sessions.discard(who.session)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, _ = request.raw_path.partition("?")
        if path == "/" and request.method in ("GET", "HEAD"):
            return web.Response(text="hotswap\n")
        route = dialects.route(unquote(path).rstrip("/"))
        if "upgrade" in request.headers.get("Connection", "").lower() and request.method == "GET":
            return _error(426, "upgrade_required", "no WebSocket here: send the same by POST")
        who = next((who for secret in _secrets(request) if (who := self._look_up(secret))), None)
        if who is None:
            return _unauthorized(route.dialect if route else None)
        self._server.know(request)
        if request.method == "GET" and path.endswith("/models"):
            upstream = who.session.request.upstream
            return _json(200, dialects.write_models(path, request.headers, upstream.model, upstream.context))
        self.reading += 1
        try:
            raw = await receive(request, self._threads)
        except Refused as error:
            return _refused(route, error)
        finally:
            self.reading -= 1
        if who.session.ended:  # while the body was read
            return _unauthorized(route.dialect if route else None)
        if route is None or not route.turn or request.method != "POST":
            return await Beside(who.session, route, self._client).run(request, path, raw)
        return await self._call(raw, who, route, request)

    def _look_up(self, secret: str) -> Pass | None:
        """The table is searched by digest, so that the time a search takes tells nothing about a secret."""
        digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
        who = self._passes.get(digest)
        return who if who is not None and hmac.compare_digest(who.digest, digest) else None

    async def _call(
        self, raw: bytes, who: Pass, route: Route, request: web.BaseRequest
    ) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        who.session.enter(task)
        try:
            return await self._answer(raw, who, route, request)
        finally:
            who.session.leave(task)

    async def _answer(
        self, raw: bytes, who: Pass, route: Route, request: web.BaseRequest
    ) -> web.StreamResponse:
        session = who.session
        body = await self._aside(len(raw), lambda: session.read(raw, route.dialect))
        call = await session.open(body, request.path, route, who)
        if isinstance(call, str):
            session.refuse(call)
            return write_error(route.dialect, 400, "limit_reached", refusal(call))
        if call.tape is not None:
            return await play_back(call.tape, request)
        return await self._exchange(session, call, route, request, raw)

    async def _exchange(
        self, session: Session, call: Call, route: Route, request: web.BaseRequest, raw: bytes
    ) -> web.StreamResponse:
        asked = ask(request, raw, route.dialect.name, call.number, call.record.agent)
        try:
            way = await self._aside(len(raw), lambda: find_way(session, call, route.tail, request))
        except NoWay as error:
            session.reject(call, str(error))
            return write_error(route.dialect, 400, "bad_request", str(error))
        return await Exchange(session, call, way, self._client, asked).run(request)

    async def _aside(self, size: int, work: Callable[[], Result]) -> Result:
        """Do the work at once, or, where there is much of it, in a thread."""
        if size < LARGE_BODY:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _secrets(request: web.BaseRequest) -> Iterator[str]:
    """Every place where a program may put its key."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    for name in KEY_HEADERS:
        if name in request.headers:
            yield request.headers[name]
    if "key=" in request.raw_path and "key" in request.query:
        yield request.query["key"]


def _refused(route: Route | None, why: Refused) -> web.Response:
    if route is None:
        return _error(why.status, why.type, why.message)
    return write_error(route.dialect, why.status, why.type, why.message)


def write_error(dialect: Dialect, status: int, type: str, message: str) -> web.Response:  # noqa: A002
    """Get an error of ours in the dialect's words."""
    return web.Response(
        status=status, headers=error_headers(), body=dialect.write_error(status, type, message)
    )


def _unauthorized(dialect: Dialect | None) -> web.Response:
    words = "this key opens no session: it is unknown, or its rollout is over"
    if dialect is not None:
        return write_error(dialect, 401, "authentication_error", words)
    return _error(401, "authentication_error", words)


def _error(status: int, type: str, message: str) -> web.Response:  # noqa: A002
    return _json(status, {"error": {"message": message, "type": type, "param": None, "code": type}})


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")

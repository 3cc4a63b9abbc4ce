"""The server that every agent program takes for its provider: one for a run, on loopback.

A request's secret says whose it is, its path says the dialect. Calls become exchanges; helper routes are
answered here and are no turn.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Iterator
from hashlib import sha256
from types import TracebackType

from aiohttp import web

from hotswap import dialects
from hotswap.contracts.runtime import Gate
from hotswap.dialects import Dialect
from hotswap.proxy.exchange import Exchange, refuse, write_error
from hotswap.proxy.session import Call, Pass, Session, SessionRequest
from hotswap.proxy.upstream import Client, Target, clean_query, headers_up, join

BODY_LIMIT = 256 * 2**20
HEADER_LIMIT = 64 * 2**10
KEEP_ALIVE_S = 3600
KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


class Proxy:
    """The server; an async context manager. `gate` says where it listens."""

    gate: Gate

    def __init__(self) -> None:
        self._passes: dict[bytes, Pass] = {}
        self._sessions: set[Session] = set()
        self.reading = 0
        """Requests whose body is on its way to us."""

    async def __aenter__(self) -> Proxy:
        self._client = Client()
        self._server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=HEADER_LIMIT,
            max_field_size=HEADER_LIMIT,
        )
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, "127.0.0.1", 0, backlog=4096)
        host, port = self._listener.sockets[0].getsockname()[:2]
        self.gate = Gate(host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for session in list(self._sessions):
            await session.close()
        await self._server.shutdown(timeout=1)
        await self._client.close()

    def open(self, request: SessionRequest) -> Session:
        """Open a session for one rollout; whoever opens it closes it."""
        session = Session(request, self._admit)
        self._sessions.add(session)
        return session

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
        found = dialects.route(path) if request.method == "POST" else None
        found = found if found and found.turn else None
        who = next((who for secret in _secrets(request) if (who := self._look_up(secret))), None)
        if who is None:
            return _unauthorized(found.dialect if found else None)
        if request.method == "GET" and path.endswith("/models"):
            return _models(who.session)
        if found is None:
            return _error(404, "not_found_error", f"no route {request.method} {path}")
        self.reading += 1
        try:
            raw = await _read(request)
        finally:
            self.reading -= 1
        if raw is None:
            return write_error(found.dialect, 413, "request_too_large", f"more than {BODY_LIMIT} bytes")
        return await self._call(raw, who, (found.dialect, found.tail), request)

    def _look_up(self, secret: str) -> Pass | None:
        """The table is searched by digest, so that the time a search takes tells nothing about a secret."""
        digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
        who = self._passes.get(digest)
        return who if who is not None and hmac.compare_digest(who.digest, digest) else None

    async def _call(
        self, raw: bytes, who: Pass, route: tuple[Dialect, str], request: web.BaseRequest
    ) -> web.StreamResponse:
        session, (dialect, _) = who.session, route
        if session.ended:  # while the body was read
            return _unauthorized(dialect)
        over = session.over()
        if over is not None:
            return refuse(session, dialect, over, request)
        call = session.open(raw, request.path, dialect, who)
        task = asyncio.current_task()
        assert task is not None
        session.enter(task)
        try:
            target = _target(session, call, route[1], request)
            return await Exchange(session, call, target, self._client).run(request)
        finally:
            session.leave(task)


def _target(session: Session, call: Call, tail: str, request: web.BaseRequest) -> Target:
    """Get the request as it goes up, and note in the call's record what of it is not the program's."""
    upstream, dialect, fields = session.request.upstream, call.dialect, call.body.fields
    sampling = {**upstream.sampling, **session.request.sampling}
    imposed = dialect.impose(fields, upstream.model, sampling) if fields else {}
    dropped = [name for name in upstream.drop if name in fields or name in imposed]
    imposed = {name: value for name, value in imposed.items() if name not in dropped}
    body = call.body.change(imposed, dropped)
    sent = {name: value for name, value in {**fields, **imposed}.items() if name not in dropped}
    call.record.sampling = dialect.read_sampling(sent)
    call.record.model = dialect.read_model(sent)
    call.record.dropped = dropped
    query = clean_query(request.raw_path.partition("?")[2])
    url = join(upstream.url, tail, dialect.version, query)
    return Target(url, headers_up(request.headers, upstream, dialect), body, request.method)


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


async def _read(request: web.BaseRequest) -> bytes | None:
    """Read the body; null where it is larger than we take."""
    if (request.content_length or 0) > BODY_LIMIT:
        return None
    first = await request.content.readany()
    if request.content.at_eof():
        return first
    parts, size = [first], len(first)
    while part := await request.content.readany():
        parts.append(part)
        size += len(part)
        if size > BODY_LIMIT:
            return None
    return b"".join(parts)


def _unauthorized(dialect: Dialect | None) -> web.Response:
    words = "this key opens no session: it is unknown, or its rollout is over"
    if dialect is not None:
        return write_error(dialect, 401, "authentication_error", words)
    return _error(401, "authentication_error", words)


def _models(session: Session) -> web.Response:
    model = {"id": session.request.upstream.model, "object": "model", "created": 0, "owned_by": "hotswap"}
    return _json(200, {"object": "list", "data": [model]})


def _error(status: int, type: str, message: str) -> web.Response:  # noqa: A002
    return _json(status, {"error": {"message": message, "type": type, "param": None, "code": type}})


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")

"""A program's place behind the proxy: a session in front of a scripted provider, and a client that calls it.

@awaited
async def test_something() -> None:
    async with behind(say("hi")) as seat:
        said = await seat.ask("hello")
        assert said.text == "hi"
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from _kit import traces
from _kit.check import check_trace
from _kit.provider import Provider, Script
from hotswap.contracts.model import Upstream
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import Session, SessionRequest
from hotswap.proxy.upstream import CallPolicy
from hotswap.trace import TaskRecord, Trace

QUICK = CallPolicy(retries=2, timeout_s=10, connect_s=2)
KEY = "sk-the-provider-key"


Test = Callable[..., Coroutine[Any, Any, None]]


def within(seconds: float) -> Callable[[Test], Callable[..., None]]:
    """Run an asynchronous test in a loop of its own, within a time."""

    def awaited(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            asyncio.run(asyncio.wait_for(test(*args, **kwargs), seconds))

        return run

    return awaited


awaited = within(60)


@dataclass(frozen=True)
class Said:
    """An answer as the program got it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return str(self.json["choices"][0]["message"]["content"])


@dataclass
class Seat:
    """Where a test sits: in the program, with a view of the session and the provider."""

    provider: Provider
    proxy: Proxy
    session: Session
    client: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://{self.proxy.gate.host}:{self.proxy.gate.port}"

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.session.secret()}"}

    def post(
        self, body: Mapping[str, Any] | bytes, *, path: str = "/v1/chat/completions", **headers: str
    ) -> Any:
        """Start a request; an async context manager of aiohttp's response."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **self.auth, **headers}
        return self.client.post(URL(self.url + path, encoded=True), data=io.BytesIO(data), headers=sent)

    async def send(self, body: Mapping[str, Any] | bytes, **rest: Any) -> Said:
        """Send a request and read its whole answer."""
        async with self.post(body, **rest) as response:
            return Said(response.status, response.headers, await response.read())

    async def ask(self, *texts: str, stream: bool = False, **fields: Any) -> Said:
        """Send what a user and the model say in turns, the user first."""
        return await self.send(
            {"model": "shown", "messages": talk(*texts), **fields, **({"stream": True} if stream else {})}
        )

    def trace(self) -> Trace:
        """The session's part of a trace."""
        trace = Trace("r", "run", traces.cell(), TaskRecord("t", traces.HASH), 0)
        trace.error = traces.fault()
        self.session.write(trace)
        check_trace(trace)
        return trace


def talk(*texts: str) -> Sequence[Mapping[str, Any]]:
    """Messages of a user and an assistant in turns, the user first."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


@asynccontextmanager
async def behind(
    *script: Script, upstream: Mapping[str, Any] | None = None, **request: Any
) -> AsyncIterator[Seat]:
    """A session in front of a scripted provider; fields of its upstream and its request by keyword."""
    with Provider(*script) as provider:
        given = {"url": provider.url, "key": KEY, "model": "shown", **(upstream or {})}
        request = {"rollout": "r", "calls": QUICK, **request}
        async with Proxy() as proxy, aiohttp.ClientSession(auto_decompress=False) as client:
            session = proxy.open(SessionRequest(upstream=Upstream(**given), **request))
            yield Seat(provider, proxy, session, client)
            await session.close()

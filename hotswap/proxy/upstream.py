"""The way to a provider: addresses, headers, and one request sent as often as repeating can help."""

from __future__ import annotations

import asyncio
import random
import re
import time
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from hotswap.contracts.model import Upstream
from hotswap.dialects import Dialect
from hotswap.messages import ProviderError
from hotswap.proxy.body import Parts

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
    }
    | {"transfer-encoding", "upgrade", "expect"}
)
REPLACED = HOP_BY_HOP | {"host", "content-length", "content-encoding", "accept-encoding"}
"""Headers of a program that are ours to write: neither the body nor the answer is compressed."""
OF_THE_HOP = HOP_BY_HOP | {"content-length"}
OF_THE_BODY = OF_THE_HOP | {"content-type", "content-encoding"}
SECRETS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key"})
VERSION = re.compile(r"/v\d+[a-z0-9.]*(/|$)")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
LARGE = 2**20
"""Bytes from which on a body is written in parts, so that it does not hold up the other calls."""
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)
"""What a connection to a provider fails with."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0


@dataclass(frozen=True)
class CallPolicy:
    """How patient we are with a provider."""

    retries: int = 4
    """How often a request that failed is sent again."""
    timeout_s: float = 600.0
    """The longest silence: before the first byte, and between two."""
    connect_s: float = 30.0
    quiet_s: float = 20.0
    """After so long without a byte for the program, a stream is kept alive by a sign of ours."""

    def waits(self, error: ProviderError, repeats: int) -> float:
        """Get the seconds to wait before repeat number `repeats`, from 0: as asked, or more each time."""
        if error.retry_after_s is not None:
            return error.retry_after_s
        longest: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**repeats)
        return longest * random.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Target:
    """A request as it goes up. What is in it but the body is the same for every try."""

    url: URL
    headers: CIMultiDict[str]
    body: Parts
    method: str = "POST"


class Pieces(aiohttp.payload.Payload):
    """A body whose pieces are written one after the other, large ones in parts: nothing is copied together, and other
    calls are not held up."""

    _value: Parts
    _autoclose = True

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._size = sum(map(len, parts))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._value:
            for start in range(0, len(piece), LARGE):
                await writer.write(piece[start : start + LARGE] if len(piece) > LARGE else piece)


class Live:
    """An answer that comes from a provider."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        return await self._response.content.readany()

    @property
    def at_end(self) -> bool:
        return self._response.content.at_eof()

    @property
    def here(self) -> bool:
        """Whether the whole body has come, read or not: there is nothing to wait for."""
        return self._response.content.is_eof()

    def close(self) -> None:
        self._response.release() if self.at_end else self._response.close()


@lru_cache(1024)
def join(base: str, tail: str, version: str, query: str) -> URL:
    """Get the address of a call: `base` may end in its version segment or not, with a slash or without."""
    base = base.rstrip("/")
    if not VERSION.search(urlsplit(base).path):
        base += version
    return URL(f"{base}{tail}{'?' if query else ''}{query}", encoded=True)


def clean_query(query: str) -> str:
    """Get a query string without the secret that some programs put there; all else stays as it is."""
    if "key=" not in query:
        return query
    return "&".join(part for part in query.split("&") if not part.startswith("key="))


def headers_up(headers: CIMultiDictProxy[str], upstream: Upstream, dialect: Dialect) -> CIMultiDict[str]:
    """Get the headers that go up: the program's without its secret, the provider's key, what is added."""
    sent: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        if _goes_up(name):
            sent.add(name, value)
    for name in _named(headers.getall("Connection", [])):
        sent.popall(name, None)
    sent["Accept-Encoding"] = "identity"
    if upstream.key:
        for name, value in dialect.authorize(upstream.key).items():
            sent.setdefault(name, value)  # a version that the program names stays as it is
    sent.update(upstream.headers)
    return sent


def headers_down(headers: Mapping[str, str], *, rewritten: bool = False) -> CIMultiDict[str]:
    """Get the headers that go on to the program; `rewritten`: its body is not the one they came with."""
    without = OF_THE_BODY if rewritten else OF_THE_HOP
    return CIMultiDict(
        (name, _clean(value)) for name, value in headers.items() if name.lower() not in without
    )


def _clean(value: str) -> str:
    """A header's value without characters that no header may have, and that nobody would pass on."""
    return value if value.isprintable() else CONTROL.sub("", value)


def open_headers(headers: CIMultiDictProxy[str]) -> tuple[tuple[str, str], ...]:
    """Get a program's headers without anything that opens a door."""
    return tuple((name, value) for name, value in headers.items() if _is_open(name))


@lru_cache(1024)
def _is_open(name: str) -> bool:
    return name.lower() not in SECRETS | {"cookie"}


@lru_cache(1024)
def _goes_up(name: str) -> bool:
    return name.lower() not in REPLACED | SECRETS


def _named(connection: Iterable[str]) -> set[str]:
    """The headers that a Connection header names: they too are for this hop alone."""
    return {token.strip() for value in connection for token in value.split(",")}


def connection_error(error: Exception, within_s: float) -> ProviderError:
    """Say what a failure below HTTP means; `within_s` is how long the provider had."""
    words = (str(error) or type(error).__name__).replace(" ssl:default", "")
    if isinstance(error, TimeoutError):
        limit = f"within {within_s:g} s (calls.timeout_s)"
        return ProviderError("timeout", f"the provider did not answer {limit}: {words}", retryable=True)
    if isinstance(error, aiohttp.ClientPayloadError):
        return ProviderError("truncated", f"the answer broke off: {words}", retryable=True)
    return ProviderError("connection", f"the provider could not be reached: {words}", retryable=True)


class Client:
    """The connections to all providers."""

    def __init__(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            read_bufsize=2**18,
        )

    async def send(self, target: Target, policy: CallPolicy) -> Live:
        """Get the answer as soon as its headers are there. Raises aiohttp's errors and TimeoutError."""
        response = await self._session.request(
            target.method,
            target.url,
            data=Pieces(target.body) if any(target.body) else None,
            headers=target.headers,
            allow_redirects=False,
            proxy=_proxy(target.url.scheme, target.url.host or ""),
            timeout=_timeout(policy),
        )
        return Live(response)

    async def close(self) -> None:
        await self._session.close()


@cache
def _timeout(policy: CallPolicy) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=policy.connect_s, sock_read=policy.timeout_s)


@cache
def _proxy(scheme: str, host: str) -> str | None:
    """The HTTP proxy that this machine's environment names for a host; loopback has none."""
    if host in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(scheme)


async def pause(seconds: float, deadline: float | None) -> bool:
    """Wait; False, at once, where the wait would go beyond the deadline (of `time.monotonic`)."""
    if deadline is not None and time.monotonic() + seconds >= deadline:
        return False
    await asyncio.sleep(seconds)
    return True


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}

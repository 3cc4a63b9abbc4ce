"""The way to a provider: addresses, headers, and one request sent as often as repeating can help."""

from __future__ import annotations

import asyncio
import io
import random
import re
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from hotswap.contracts.model import Upstream
from hotswap.dialects import Dialect
from hotswap.messages import ProviderError

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
SECRETS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key"})
VERSION = re.compile(r"/v\d+[a-z0-9.]*(/|$)")
LARGE = 2**20
"""Bytes from which on a body is written in parts, so that it does not hold up the other calls."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0


@dataclass(frozen=True)
class CallPolicy:
    """How patient we are with a provider."""

    retries: int = 4
    """How often a request that failed is sent again."""
    timeout_s: float = 600.0
    """The longest silence: before the first byte, and between two."""
    connect_s: float = 30.0

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
    body: bytes
    method: str = "POST"


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
        sent.update(dialect.authorize(upstream.key))
    sent.update(upstream.headers)
    return sent


def headers_down(
    response: aiohttp.ClientResponse, *, without: frozenset[str] = frozenset()
) -> CIMultiDict[str]:
    """Get the headers that go on to the program."""
    return CIMultiDict(_kept(response.headers.items(), HOP_BY_HOP | {"content-length"} | without))


def _kept(headers: Iterable[tuple[str, str]], without: frozenset[str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in headers if name.lower() not in without)


@lru_cache(1024)
def _goes_up(name: str) -> bool:
    return name.lower() not in REPLACED | SECRETS


def _named(connection: Iterable[str]) -> set[str]:
    """The headers that a Connection header names: they too are for this hop alone."""
    return {token.strip() for value in connection for token in value.split(",")}


def connection_error(error: Exception) -> ProviderError:
    """Say what a failure below HTTP means."""
    words = (str(error) or type(error).__name__).replace(" ssl:default", "")
    if isinstance(error, TimeoutError):
        return ProviderError("timeout", f"the provider did not answer: {words}", retryable=True)
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

    async def send(self, target: Target, policy: CallPolicy) -> aiohttp.ClientResponse:
        """Get the answer as soon as its headers are there. Raises aiohttp's errors and TimeoutError."""
        return await self._session.request(
            target.method,
            target.url,
            data=target.body if len(target.body) < LARGE else io.BytesIO(target.body),
            headers=target.headers,
            allow_redirects=False,
            proxy=_proxy(target.url.scheme, target.url.host or ""),
            timeout=_timeout(policy),
        )

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

"""Taking the ids of tokens out of one call's answer, before the rest of it goes on to the program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict
from yarl import URL

from hotswap.capture.chat import Asking, Missing, Tokens, clean, is_answer, read_tokens
from hotswap.dialects import parse
from hotswap.dialects._chat_stream import as_stream
from hotswap.messages import ProviderError
from hotswap.proxy.stream import inflate, inflater
from hotswap.proxy.tape import Incoming, Played
from hotswap.proxy.upstream import VERSION, Client, Target, headers_down, lower

if TYPE_CHECKING:
    from hotswap.capture import Keeper
    from hotswap.proxy.session import Call
    from hotswap.proxy.upstream import CallPolicy

TOKENIZE = "/tokenize"


class NoTokens(Exception):
    """An endpoint answered without what is to be captured."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.error = ProviderError("capture", f"the endpoint gives no ids of tokens: {why}", 200)


class Read:
    """An answer that has been read already."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    @property
    def at_end(self) -> bool:
        return not self._body

    def close(self) -> None:
        """There is nothing to let go of."""


class Capturing:
    """What is captured of one call. It is compared with what the conversation had come to when it was sent."""

    def __init__(self, keeper: Keeper, call: Call, conversation: int | None, asking: Asking) -> None:
        self._call = call
        self._asking = asking
        self._keep = partial(keeper.keep, call.number, conversation, keeper.before(conversation))

    async def take(self, incoming: Incoming, target: Target, client: Client, policy: CallPolicy) -> Incoming:
        """Get the answer as the program asked for it; its ids are kept once it is concluded. Raises NoTokens."""
        self._call.keep = None
        if incoming.status >= 400:
            return incoming
        try:
            async with asyncio.timeout(policy.timeout_s):
                raw = await read_all(incoming)
        except BaseException:
            incoming.close()
            raise
        incoming.close()
        headers = headers_down(incoming.headers, rewritten=True)
        if "event-stream" in lower(incoming.headers).get("content-type", ""):
            raise NoTokens("it sent a stream although none was asked for")
        value = parse(inflate(inflater(incoming.headers), raw))
        if not is_answer(value):
            headers["Content-Type"] = lower(incoming.headers).get("content-type", "application/json")
            return Read(incoming.status, headers, raw)
        try:
            tokens = await _resolved(read_tokens(value), target, client, policy)
        except Missing as error:
            raise NoTokens(str(error)) from error
        self._call.keep = partial(self._keep, tokens)
        return self._as_asked(value, incoming.status, headers)

    def _as_asked(self, value: Mapping[str, Any], status: int, headers: CIMultiDict[str]) -> Incoming:
        cleaned = clean(value, self._asking)
        if self._asking.streams:
            headers["Content-Type"] = "text/event-stream"
            return Read(status, headers, as_stream(cleaned, self._asking.usage_chunk))
        headers["Content-Type"] = "application/json"
        return Read(status, headers, json.dumps(cleaned).encode())


async def _resolved(tokens: Tokens, target: Target, client: Client, policy: CallPolicy) -> Tokens:
    """Ask the endpoint for the ids of a prompt that it gave as text: it reads its special tokens in there again."""
    if tokens.prompt is not None:
        return tokens
    asked = {"content": tokens.text, "add_special": True, "parse_special": True}
    headers = target.headers.copy()
    headers["Content-Type"] = "application/json"
    answer = await client.send(Target(beside(target.url), headers, (json.dumps(asked).encode(),)), policy)
    try:
        body = await read_all(answer)
    finally:
        answer.close()
    if answer.status >= 400:
        raise Missing(f"its route {TOKENIZE} answers with HTTP {answer.status}")
    value = parse(body)
    return tokens.resolved(value.get("tokens") if isinstance(value, dict) else None)


def beside(url: URL) -> URL:
    """Get the address of llama.cpp's route for tokens, which hangs beside the version and not below it."""
    version = VERSION.search(url.raw_path)
    root = url.raw_path[: version.start()] if version else ""
    return URL(f"{url.origin()}{root}{TOKENIZE}", encoded=True)


async def read_all(incoming: Incoming) -> bytes:
    """Get the whole body."""
    data = await incoming.read()
    if incoming.at_end:
        return data
    parts = [data]
    while data := await incoming.read():
        parts.append(data)
    return b"".join(parts)


async def read_played(played: Played) -> bytes:
    """Get the body of a recorded answer, as far as it came."""
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while data := await played.read():
            parts.append(data)
    return b"".join(parts)

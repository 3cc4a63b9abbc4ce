"""The recorded traffic of real agent programs, and small streams from public bug reports, read as they always were.

They are looked for in the folder that HOTSWAP_TEST_CAPTURES names, which has `captures/` and `cases/`. What each stream
reads as stands in golden/streams.json: texts by their hash. HOTSWAP_RENEW_GOLDEN=1 writes that file anew, to be read
in review.

Each stream is cut by hypothesis, as it was recorded and in another spelling: lines that end in CR and LF, no space
after `data:`, characters of several bytes. Where the cuts fall must not be seen.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from dataclasses import astuple, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from _kit.behind import behind
from _kit.provider import Reply
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.dialects import known, route
from hotswap.messages import Answer
from hotswap.proxy.events import EventReader

FOLDER = Path(os.environ.get("HOTSWAP_TEST_CAPTURES", "/nowhere"))
GOLDEN = Path(__file__).parent / "golden" / "streams.json"
WIDE = str.maketrans({"o": "\u00f6", "a": "\u8a9e", "n": "\u2028", "e": "\U0001f642"})
"""Letters and what stands for them in the other spelling: two, three, three and four bytes."""
RECUT = settings(deadline=None, max_examples=12, derandomize=bool(os.environ.get("HOTSWAP_CI")))
PASSED = settings(RECUT, max_examples=2)
ROUTES = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no recorded traffic: name its folder in HOTSWAP_TEST_CAPTURES"
)


def streams() -> list[str]:
    """Every recorded stream, by its path below the folder."""
    return sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("c*/*/*.sse"))


def dialect_of(name: str) -> str:
    """The dialect of a stream: by the request beside it, else by what its events look like."""
    request = FOLDER / name.replace("-response.sse", "-request.json")
    if request.suffix == ".json" and request.exists():
        found = route(json.loads(request.read_text())["path"])
        assert found is not None
        return found.dialect.name
    text = (FOLDER / name).read_text()
    marks = {"response.": "responses", "message_": "messages", "content_block": "messages"}
    return next((dialect for mark, dialect in marks.items() if f'"type": "{mark}' in text), "chat")


def respelled(data: bytes) -> bytes:
    """The same events as other providers would write them."""
    return b"".join(_respelled(line) for line in data.splitlines(keepends=True))


def _respelled(line: bytes) -> bytes:
    end = b"\r\n" if line.endswith(b"\n") else b""
    name, _, value = line.strip(b"\r\n").partition(b":")
    if name != b"data":
        return line.strip(b"\r\n") + end
    try:
        written = json.dumps(_widened(json.loads(value)), ensure_ascii=False).encode()
    except ValueError:  # the last word of chat, and what was no JSON when it was recorded
        written = value.strip()
    return b"data:" + written + end


def _widened(value: Any) -> Any:
    """A value whose prose has wide letters; a text without a space may be a name, and stays."""
    if isinstance(value, str):
        return value.translate(WIDE) if " " in value else value
    if isinstance(value, list):
        return [_widened(item) for item in value]
    return {key: _widened(item) for key, item in value.items()} if isinstance(value, dict) else value


def cut_up(*streams: bytes) -> st.SearchStrategy[tuple[bytes, ...]]:
    """One of these streams in pieces."""
    return st.one_of(*(_places(data).map(partial(pieces, data)) for data in streams))


def _places(data: bytes) -> st.SearchStrategy[list[int]]:
    """Places to cut: anywhere, and often inside a character, between CR and LF, and around the ends of lines."""
    anywhere = st.integers(1, len(data) - 1)
    wide = [place for place, byte in enumerate(data) if byte & 0xC0 == 0x80]
    ends = [place for place in range(1, len(data)) if data[place - 1] in b"\r\n" or data[place] in b"\r\n"]
    place = st.one_of(anywhere, *(st.sampled_from(some) for some in (wide, ends) if some))
    return st.lists(place, min_size=1, max_size=min(40, len(data) - 1), unique=True)


def pieces(data: bytes, places: Iterable[int]) -> tuple[bytes, ...]:
    """The same bytes, cut at these places."""
    ordered = sorted(places)
    return tuple(data[start:end] for start, end in zip([0, *ordered], [*ordered, len(data)], strict=True))


def read(dialect: str, parts: Iterable[bytes]) -> tuple[Answer, bytes]:
    """What a stream reads as, and the bytes of its pieces together."""
    reader, assembler, passed = EventReader(), known()[dialect].assembler(), b""
    for piece in (
        piece for part in (*parts, None) for piece in (reader.feed(part) if part else reader.finish())
    ):
        passed += piece.raw
        if piece.event is not None:
            assembler.feed(piece.event)
    return assembler.answer(), passed


def summary(answer: Answer) -> Any:
    """An answer in a few words that tell it from any other."""
    said = [
        {
            "text": _short(message.text),
            "reasoning": _short(message.reasoning or ""),
            "calls": [[call.id, call.name, call.arguments[:80]] for call in message.tool_calls],
            "content": _short(json.dumps([message.content, message.refusal, message.extra], sort_keys=True)),
        }
        for message in answer.messages
    ]
    usage = list(astuple(answer.usage))
    error = answer.error and [answer.error.type, answer.error.message[:80], answer.error.retryable]
    return {"messages": said, "finish": answer.finish, "usage": usage, "model": answer.model, "error": error}


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{len(text)} characters, {sha256(text.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize("name", streams())
def test_a_stream_reads_as_it_always_did_however_it_is_cut(name: str) -> None:
    data, dialect = (FOLDER / name).read_bytes(), dialect_of(name)
    whole, passed = read(dialect, [data])
    assert passed == data
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("HOTSWAP_RENEW_GOLDEN"):
        golden[name] = {"dialect": dialect, **summary(whole)}
        GOLDEN.write_text(json.dumps(dict(sorted(golden.items())), indent=1, ensure_ascii=False) + "\n")
    assert {"dialect": dialect, **summary(whole)} == golden[name]
    other = respelled(data)
    read_as = {data: (whole, data), other: read(dialect, [other])}
    assert read_as[other][1] == other
    assert read(dialect, pieces(other, range(1, len(other)))) == read_as[other]

    @RECUT
    @given(cut_up(data, other))
    def however_it_is_cut(parts: tuple[bytes, ...]) -> None:
        assert read(dialect, parts) == read_as[b"".join(parts)]

    however_it_is_cut()


@pytest.mark.parametrize("name", streams())
def test_a_stream_passes_byte_for_byte_and_leaves_the_same_trace(name: str) -> None:
    data, dialect = (FOLDER / name).read_bytes(), dialect_of(name)

    @PASSED
    @given(cut_up(data, respelled(data)))
    def however_it_is_cut(parts: tuple[bytes, ...]) -> None:
        asyncio.run(asyncio.wait_for(_passes(parts, dialect), 60))

    however_it_is_cut()


async def _passes(parts: tuple[bytes, ...], dialect: str) -> None:
    expected, sent = read(dialect, parts)
    reply = Reply(chunks=parts, headers={"content-type": "text/event-stream"})
    async with behind(reply, reply, reply, upstream={"dialects": tuple(ROUTES), "model": ""}) as seat:
        body = {"model": "m", "messages": [], "input": [], "contents": [], "stream": True}
        async with seat.post(body, path=ROUTES[dialect]) as response:
            received = b""
            try:
                async for part in response.content.iter_any():
                    received += part
            except aiohttp.ClientPayloadError:
                assert expected.error is not None
                assert expected.error.type == "truncated"
        trace = seat.trace()
    assert received == sent
    [call] = trace.calls
    assert (call.error and call.error.type) == (expected.error and expected.error.type)
    said = [replace(message, extra={}) for message in expected.messages]
    nodes = [trace.messages[node] for node in call.outputs]
    assert [(node.content, tuple(node.tool_calls)) for node in nodes] == [
        (message.content, message.tool_calls) for message in said
    ]
    assert call.usage == expected.usage


def test_the_recorded_streams_are_all_there() -> None:
    assert set(json.loads(GOLDEN.read_text())) == set(streams())

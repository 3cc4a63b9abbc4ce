"""The recorded traffic of real agent programs, and small streams from public bug reports, read as they always were.

They are looked for in the folder that HOTSWAP_TEST_CAPTURES names, which has `captures/` and `cases/`. What each stream
reads as stands in golden/streams.json: texts by their hash. HOTSWAP_RENEW_GOLDEN=1 writes that file anew, to be read
in review.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import astuple, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from _kit.behind import awaited, behind
from _kit.provider import Reply

from hotswap.dialects import known, route
from hotswap.messages import Answer
from hotswap.proxy.events import EventReader

FOLDER = Path(os.environ.get("HOTSWAP_TEST_CAPTURES", "/nowhere"))
GOLDEN = Path(__file__).parent / "golden" / "streams.json"
CUTS = 20
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


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    """The same bytes, cut at random places."""
    places = sorted(random.Random(seed).sample(range(len(data)), min(len(data) - 1, 1 + seed * 3)))
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


def read(dialect: str, parts: Iterator[bytes]) -> tuple[Answer, bytes]:
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
    whole, passed = read(dialect, iter([data]))
    assert passed == data
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("HOTSWAP_RENEW_GOLDEN"):
        golden[name] = {"dialect": dialect, **summary(whole)}
        GOLDEN.write_text(json.dumps(dict(sorted(golden.items())), indent=1, ensure_ascii=False) + "\n")
    assert {"dialect": dialect, **summary(whole)} == golden[name]
    for seed in range(CUTS):
        assert read(dialect, pieces(data, seed)) == (whole, data)


@pytest.mark.parametrize("name", streams())
@awaited
async def test_a_stream_passes_byte_for_byte_and_leaves_the_same_trace(name: str) -> None:
    data, dialect = (FOLDER / name).read_bytes(), dialect_of(name)
    expected, _ = read(dialect, iter([data]))
    parts = tuple(part for part in pieces(data, 30) if part)
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
    assert received == data
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

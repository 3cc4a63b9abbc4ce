"""The same call in every dialect: how it is asked, and how it is answered.

async with behind(SPOKEN[dialect].answer, upstream=on(dialect)) as seat:
    said = await ask(seat, dialect, "hi", stream=True)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from _kit.agents import in_messages, in_responses, message, text
from _kit.behind import Said, Seat
from _kit.provider import Reply, replace, say


@dataclass(frozen=True)
class Spoken:
    """How one dialect asks and answers."""

    path: str
    conversation: str
    answer: Reply
    """Streamed, or in one piece, as the request asks."""
    limit: tuple[str, ...]
    """Where a limit of tokens stands in a request."""
    refusal: str
    """What the body of a refusal says of its kind."""

    def body(self, words: str, stream: bool = False) -> dict[str, Any]:
        item: Mapping[str, Any] = {"role": "user", "content": words}
        if self.conversation == "contents":
            item = {"role": "user", "parts": [{"text": words}]}
        asked = {self.conversation: [item]}
        return asked if self.conversation == "contents" else {"model": "m", **asked, "stream": stream}


def _gemini() -> Reply:
    content = {"role": "model", "parts": [{"text": "hello"}]}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5}
    value = {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
    data = json.dumps(value).encode()
    return Reply(body=data, chunks=(b"data: " + data + b"\n\n",))


def with_body(reply: Reply, value: Mapping[str, Any]) -> Reply:
    return replace(reply, body=json.dumps(value).encode())


HELLO = message("hello")
RESPONSES = {
    "id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [HELLO],
    "usage": {"input_tokens": 10, "output_tokens": 5},
}  # fmt: skip
MESSAGES = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [text("hello")],
    "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 5},
}  # fmt: skip
SPOKEN = {
    "chat": Spoken("/v1/chat/completions", "messages", say("hello"), ("max_tokens",), "limit_reached"),
    "responses": Spoken(
        "/v1/responses",
        "input",
        with_body(in_responses(HELLO), RESPONSES),
        ("max_output_tokens",),
        "limit_reached",
    ),
    "messages": Spoken(
        "/v1/messages",
        "messages",
        with_body(in_messages(text("hello")), MESSAGES),
        ("max_tokens",),
        "invalid_request_error",
    ),
    "gemini": Spoken(
        "/v1beta/models/m:generateContent",
        "contents",
        _gemini(),
        ("generationConfig", "maxOutputTokens"),
        "INVALID_ARGUMENT",
    ),
}
each_dialect = pytest.mark.parametrize("dialect", sorted(SPOKEN))


def on(dialect: str, **more: Any) -> Any:
    return {"dialects": (dialect,), "model": "theirs", **more}


async def ask(seat: Seat, dialect: str, words: str = "hi", stream: bool = False, **headers: str) -> Said:
    path = SPOKEN[dialect].path
    if stream and dialect == "gemini":
        path = path.replace(":generateContent", ":streamGenerateContent") + "?alt=sse"
    said = await seat.send(SPOKEN[dialect].body(words, stream), path=path, **headers)
    assert isinstance(said, Said)
    return said


def answer_of(dialect: str, stream: bool) -> Reply:
    """Get the answer, which a program of Gemini asks to be a stream in its path alone."""
    answer = SPOKEN[dialect].answer
    return replace(answer, body=None) if stream and dialect == "gemini" else answer

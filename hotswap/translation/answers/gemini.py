"""Gemini: answers. They are written only: no endpoint is asked in it. A stream is that of `alt=sse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotswap.messages import Finish
from hotswap.translation.answers import sse
from hotswap.translation.pivot import (
    Answered,
    Asked,
    Begun,
    Call,
    Closed,
    Ended,
    Grew,
    Opened,
    Part,
    Piece,
    Refusal,
    Text,
    Thinking,
)
from hotswap.translation.reading import as_object
from hotswap.translation.usage import to_gemini

WORDS: Mapping[Finish, str] = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "other": "OTHER"}


def write(answered: Answered) -> dict[str, Any]:
    parts = [_part(part) for part in answered.parts]
    return _response(answered, parts, WORDS.get(answered.finish, "STOP"), to_gemini(answered.usage))


def _response(
    begun: Begun | Answered, parts: Sequence[Any], finish: str | None, usage: Mapping[str, Any] | None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    said = {"candidates": [candidate], "modelVersion": begun.model, "responseId": begun.id}
    return said if usage is None else {**said, "usageMetadata": usage}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Call):
        return {"functionCall": {"id": part.id, "name": part.name, "args": as_object(part.arguments)}}
    words = part.text if isinstance(part, Text | Thinking | Refusal) else ""
    return {"text": words, "thought": True} if isinstance(part, Thinking) else {"text": words}


class Writer:
    """Writes the chunks of one stream; a call comes whole."""

    content_type = "text/event-stream"

    def __init__(self, asked: Asked) -> None:  # noqa: ARG002
        self._begun = Begun()
        self._thought = False
        self._call = False

    def write(self, piece: Piece) -> bytes:
        if isinstance(piece, Begun):
            self._begun = piece
        elif isinstance(piece, Opened):
            self._thought, self._call = isinstance(piece.part, Thinking), isinstance(piece.part, Call)
        elif isinstance(piece, Grew) and not self._call:
            return self._chunk(_part(Thinking(piece.text) if self._thought else Text(piece.text)))
        elif isinstance(piece, Closed) and isinstance(piece.part, Call):
            return self._chunk(_part(piece.part))
        elif isinstance(piece, Ended):
            finish = WORDS.get(piece.finish, "STOP")
            return sse(_response(self._begun, [{"text": ""}], finish, to_gemini(piece.usage)))
        return b""

    def _chunk(self, part: Mapping[str, Any]) -> bytes:
        return sse(_response(self._begun, [part], None, None))

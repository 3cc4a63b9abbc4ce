"""Anthropic's Messages: answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hotswap.dialects import Event, parse
from hotswap.dialects._errors import find_error, to_error
from hotswap.messages import Finish, Usage
from hotswap.translation.answers import leniently, shaped, sse
from hotswap.translation.lane import Lane
from hotswap.translation.pivot import (
    Answered,
    Asked,
    Begun,
    Call,
    Closed,
    Ended,
    Failed,
    Grew,
    Opened,
    Part,
    Piece,
    Refusal,
    Text,
    Thinking,
)
from hotswap.translation.reading import note_signs, number, table, text
from hotswap.translation.requests.messages import read_content, write_call
from hotswap.translation.usage import from_anthropic, to_anthropic

FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
WORDS: Mapping[Finish, str] = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def read(body: bytes, dropped: set[str]) -> Answered | Failed:
    value = table(parse(body))
    error = find_error(value) if value.get("type") != "message" else None
    if error is not None:
        return _failed(error)
    if not isinstance(value.get("content"), list):
        return Failed("malformed", f"no message: {body[:500].decode('utf-8', 'replace')}")
    shown = tuple(leniently(read_content, value["content"], dropped))
    return Answered(
        id=text(value.get("id")),
        model=text(value.get("model")),
        parts=shown,
        finish=FINISHES.get(text(value.get("stop_reason")), "other"),
        stop_sequence=text(value.get("stop_sequence")) or None,
        usage=from_anthropic(table(value.get("usage"))),
    )


def _failed(error: Mapping[str, Any]) -> Failed:
    found = to_error(error, 200)
    return Failed(found.type, found.message)


class Reader:
    """Reads the events of one stream."""

    def __init__(self, dropped: set[str]) -> None:
        self._dropped = dropped
        self._lane = Lane()
        self._usage: dict[str, Any] = {}
        self._stop: dict[str, Any] = {}
        self._ended = False

    @property
    def usage(self) -> Usage | None:
        return from_anthropic(self._usage)

    def feed(self, event: Event) -> list[Piece]:
        value = table(parse(event.data))
        kind = text(value.get("type")) or event.name
        if self._ended:
            return []
        if kind == "error":
            self._ended = True
            return [_failed(find_error(value) or {"message": event.data})]
        if kind == "message_start":
            message = table(value.get("message"))
            self._count(message)
            return [Begun(text(message.get("id")), text(message.get("model")))]
        if kind == "message_stop":
            return self._end()
        self._take(kind, value)
        return self._lane.take()

    def finish(self) -> list[Piece]:
        """A stream that said why it stops, and not that it did, is whole."""
        return [] if self._ended or not self._stop.get("stop_reason") else self._end()

    def _take(self, kind: str, value: Mapping[str, Any]) -> None:
        index = number(value.get("index")) or 0
        if kind == "content_block_start":
            self._begin(index, table(value.get("content_block")))
        elif kind == "content_block_delta":
            self._grow(index, table(value.get("delta")))
        elif kind == "content_block_stop":
            self._lane.end(index)
        elif kind == "message_delta":
            self._stop |= {name: said for name, said in table(value.get("delta")).items() if said is not None}
            self._count(value)
        elif kind != "ping":
            self._dropped.add(f"events.{kind}")

    def _count(self, value: Mapping[str, Any]) -> None:
        self._usage |= {name: said for name, said in table(value.get("usage")).items() if said is not None}

    def _begin(self, index: Any, block: Mapping[str, Any]) -> None:
        for part in leniently(read_content, [block], self._dropped):
            if isinstance(part, Call):  # its input is an empty object until it comes
                part = Call(part.id, part.name, "" if not block.get("input") else part.arguments)
            if isinstance(part, Text | Thinking | Call):
                self._lane.begin(index, part)

    def _grow(self, index: Any, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "signature_delta":
            self._dropped.add("thinking.signature")
        if kind == "citations_delta":
            note_signs({"citations": True}, self._dropped)
        if kind == "text_delta":
            self._lane.begin(index, Text())  # some servers open no blocks
        words = delta.get(
            {"input_json_delta": "partial_json", "thinking_delta": "thinking"}.get(str(kind), "text")
        )
        self._lane.more(index, text(words))

    def _end(self) -> list[Piece]:
        self._ended = True
        self._lane.end_all()
        finish = FINISHES.get(text(self._stop.get("stop_reason")), "other")
        stop = text(self._stop.get("stop_sequence")) or None
        return [*self._lane.take(), Ended(finish, self.usage, stop)]


def write(answered: Answered) -> dict[str, Any]:
    refused = any(isinstance(part, Refusal) for part in answered.parts)
    return {
        **_head(answered),
        "content": [_block(part) for part in answered.parts],
        **_stop(answered.finish, answered.stop_sequence, refused),
        "usage": to_anthropic(answered.usage),
    }


def _head(begun: Begun | Answered) -> dict[str, Any]:
    return {"id": shaped("msg_", begun.id), "type": "message", "role": "assistant", "model": begun.model}


def _stop(finish: Finish, sequence: str | None, refused: bool) -> dict[str, Any]:
    reason = "refusal" if refused else "stop_sequence" if sequence else WORDS.get(finish, "end_turn")
    return {"stop_reason": reason, "stop_sequence": sequence}


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, Call):
        return write_call(part)
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": part.text, "signature": ""}
    return {"type": "text", "text": part.text if isinstance(part, Text | Refusal) else ""}


class Writer:
    """Writes the events of one stream."""

    content_type = "text/event-stream"

    def __init__(self, asked: Asked) -> None:  # noqa: ARG002
        self._index = -1
        self._part: Part | None = None
        self._refused = False

    def write(self, piece: Piece) -> bytes:
        if isinstance(piece, Begun):
            message = {**_head(piece), "content": [], "stop_reason": None, "stop_sequence": None}
            return _event("message_start", message={**message, "usage": to_anthropic(None)})
        if isinstance(piece, Opened):
            return self._open(piece.part)
        if isinstance(piece, Grew):
            return self._grow(piece.text)
        if isinstance(piece, Closed):
            return self._close(piece.part)
        return self._end(piece) if isinstance(piece, Ended) else b""

    def _open(self, part: Part) -> bytes:
        self._index += 1
        self._part = part
        self._refused |= isinstance(part, Refusal)
        block = {**_block(part), "input": {}} if isinstance(part, Call) else _block(part)
        return _event("content_block_start", index=self._index, content_block=block)

    def _grow(self, words: str) -> bytes:
        if isinstance(self._part, Call):
            return b""  # only when it is whole is it known to be the object that programs read bit by bit
        if isinstance(self._part, Thinking):
            return self._delta({"type": "thinking_delta", "thinking": words})
        return self._delta({"type": "text_delta", "text": words})

    def _close(self, part: Part) -> bytes:
        written = b""
        if isinstance(part, Call):
            whole = json.dumps(write_call(part)["input"], ensure_ascii=False)
            written = self._delta({"type": "input_json_delta", "partial_json": whole})
        return written + _event("content_block_stop", index=self._index)

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _end(self, ended: Ended) -> bytes:
        stop = _stop(ended.finish, ended.stop_sequence, self._refused)
        return _event("message_delta", delta=stop, usage=to_anthropic(ended.usage)) + _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)

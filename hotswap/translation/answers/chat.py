"""Chat Completions: answers."""

from __future__ import annotations

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
    Ended,
    Failed,
    Grew,
    Opened,
    Part,
    Piece,
    Refusal,
    Text,
    Thinking,
    words,
)
from hotswap.translation.reading import items, number, table, text, written
from hotswap.translation.requests.chat import read_content, read_message, write_call
from hotswap.translation.turns import of_type
from hotswap.translation.usage import from_openai, to_openai

FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def read(body: bytes, dropped: set[str]) -> Answered | Failed:
    value = parse(body)
    error = find_error(value)
    if error is not None:
        found = to_error(error, 200)
        return Failed(found.type, found.message)
    choice = next(iter(items(table(value).get("choices"))), None)
    if choice is None:
        return Failed("malformed", f"no chat completion: {body[:500].decode('utf-8', 'replace')}")
    return Answered(
        id=text(value.get("id")),
        model=text(value.get("model")),
        created=number(value.get("created")),
        parts=_read_parts(table(choice.get("message")), dropped),
        finish=FINISHES.get(text(choice.get("finish_reason")), "other"),
        stop_sequence=_stop(choice),
        usage=_usage(value),
    )


def _read_parts(message: Mapping[str, Any], dropped: set[str]) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(words(part) for part in leniently(read_content, content, dropped))
    return read_message({**message, "role": "assistant", "content": content}, dropped).parts


def _stop(choice: Mapping[str, Any]) -> str | None:
    """Some servers say which sequence it was that ended the text."""
    return text(choice.get("stop_reason")) or text(choice.get("matched_stop")) or None


def _usage(value: Mapping[str, Any]) -> Usage | None:
    places = (value, table(value.get("x_groq")), *items(value.get("choices")))
    return next(
        (usage for place in places if (usage := from_openai(place.get("usage"), "prompt", "completion"))),
        None,
    )


class Reader:
    """Reads the chunks of one stream."""

    def __init__(self, dropped: set[str]) -> None:
        self._dropped = dropped
        self._lane = Lane()
        self._begun = self._ended = False
        self._finish: str | None = None
        self._stop: str | None = None
        self.usage: Usage | None = None
        self._open: tuple[type[Part], int] | None = None
        """The text that is being written: its kind and its number."""
        self._texts = 0
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def feed(self, event: Event) -> list[Piece]:
        if self._ended:
            return []
        if event.data.strip() == "[DONE]":
            return self._end()
        chunk = parse(event.data)
        error = find_error(chunk)
        if error is not None:
            self._ended = True
            found = to_error(error, 200)
            return [Failed(found.type, found.message)]
        return self._chunk(chunk) if isinstance(chunk, dict) else []

    def finish(self) -> list[Piece]:
        return [] if self._ended or self._finish is None else self._end()

    def _chunk(self, chunk: Mapping[str, Any]) -> list[Piece]:
        begun: list[Piece] = []
        if not self._begun:
            self._begun = True
            created = number(chunk.get("created"))
            begun.append(Begun(text(chunk.get("id")), text(chunk.get("model")), created))
        self.usage = _usage(chunk) or self.usage
        for choice in items(chunk.get("choices")):
            if not choice.get("index"):
                self._choice(choice)
        return begun + self._lane.take()

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta = table(choice.get("delta") or choice.get("message"))
        self._more(Thinking, text(delta.get("reasoning_content")) or text(delta.get("reasoning")))
        content = delta.get("content")
        if isinstance(content, list):
            content = "".join(text(block.get("text")) for block in items(content))
        self._more(Text, text(content))
        self._more(Refusal, text(delta.get("refusal")))
        for call in items(delta.get("tool_calls")):
            self._call(call)
        if isinstance(delta.get("function_call"), dict):
            self._call({"index": 0, "function": delta["function_call"]})
        self._finish = text(choice.get("finish_reason")) or self._finish
        self._stop = _stop(choice) or self._stop

    def _more(self, kind: type[Text | Thinking | Refusal], said: str) -> None:
        """Words of another kind than the last end what was written before."""
        if not said:
            return
        if self._open is None or self._open[0] is not kind:
            self._end_open()
            self._texts += 1
            self._open = (kind, self._texts)
            self._lane.begin(self._open, kind())
        self._lane.more(self._open, said)

    def _end_open(self) -> None:
        """End the text, and a call whose arguments are whole: nothing but another part can follow."""
        if self._open is not None:
            self._lane.end(self._open)
            self._open = None
        for call in self._calls[-1:]:
            if isinstance(parse(self._lane.seen(call)), dict):
                self._lane.end(call)

    def _call(self, delta: Mapping[str, Any]) -> None:
        """A new id on an open index is a new call: some servers give every call the index 0."""
        index, given = number(delta.get("index")) or 0, text(delta.get("id"))
        call = self._by_index.get(index)
        if call is None or (given and call.id and given != call.id):
            call = next((known for known in self._calls if given and known.id == given), None)
            if call is None:
                self._end_open()
                call = _Call(len(self._calls))
                self._calls.append(call)
            self._by_index[index] = call
        call.id = call.id or given
        said = table(delta.get("function")) or table(delta.get("custom"))
        call.custom = call.custom or bool(delta.get("custom"))
        call.name = call.name or text(said.get("name"))
        if call.name:
            kind: Any = "custom" if call.custom else "function"
            self._lane.begin(call, Call(call.id or f"call_{call.number}", call.name, kind=kind))
        wrote = said.get("arguments", said.get("input"))
        self._lane.more(call, "" if wrote is None else written(wrote))

    def _end(self) -> list[Piece]:
        self._ended = True
        begun: list[Piece] = [] if self._begun else [Begun()]
        self._lane.end_all()
        finish = FINISHES.get(self._finish or "stop", "other")
        return [*begun, *self._lane.take(), Ended(finish, self.usage, self._stop)]


class _Call:
    """A call of a stream, as far as it is known."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.custom = False


def write(answered: Answered) -> dict[str, Any]:
    spoken = "".join(part.text for part in of_type(answered.parts, Text))
    thinking = "".join(part.text for part in of_type(answered.parts, Thinking))
    refusal = "".join(part.text for part in of_type(answered.parts, Refusal))
    calls = [write_call(call) for call in of_type(answered.parts, Call)]
    message: dict[str, Any] = {"role": "assistant", "content": spoken or None, "refusal": refusal or None}
    if not calls and not refusal:
        message["content"] = spoken
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _written(answered.finish)}
    usage = to_openai(answered.usage, "prompt", "completion")
    whole = {**_head(answered), "object": "chat.completion", "choices": [choice]}
    return whole if usage is None else {**whole, "usage": usage}


def _head(begun: Begun | Answered) -> dict[str, Any]:
    return {"id": shaped("chatcmpl-", begun.id), "created": begun.created, "model": begun.model}


def _written(finish: Finish) -> str:
    return "stop" if finish == "other" else finish


class Writer:
    """Writes the chunks of one stream."""

    content_type = "text/event-stream"

    def __init__(self, asked: Asked) -> None:
        self._usage_chunk = asked.usage_chunk
        self._head: dict[str, Any] = {}
        self._part: Part | None = None
        self._calls = -1

    def write(self, piece: Piece) -> bytes:
        if isinstance(piece, Begun):
            self._head = {**_head(piece), "object": "chat.completion.chunk"}
            return self._chunk({"role": "assistant", "content": ""})
        if isinstance(piece, Opened):
            self._part = piece.part
            return self._open(piece.part)
        if isinstance(piece, Grew):
            return self._grow(piece.text)
        return self._end(piece) if isinstance(piece, Ended) else b""

    def _open(self, part: Part) -> bytes:
        if not isinstance(part, Call):
            return b""
        self._calls += 1
        return self._chunk({"tool_calls": [{"index": self._calls, **_empty(write_call(part))}]})

    def _grow(self, more: str) -> bytes:
        part = self._part
        if isinstance(part, Call):
            said = {"custom": {"input": more}} if part.kind == "custom" else {"function": {"arguments": more}}
            return self._chunk({"tool_calls": [{"index": self._calls, **said}]})
        if isinstance(part, Thinking):
            return self._chunk({"reasoning_content": more})
        return self._chunk({"refusal" if isinstance(part, Refusal) else "content": more})

    def _end(self, ended: Ended) -> bytes:
        last = self._chunk({}, _written(ended.finish))
        usage = to_openai(ended.usage, "prompt", "completion")
        if self._usage_chunk:
            last += sse({**self._head, "choices": [], "usage": usage})
        return last + b"data: [DONE]\n\n"

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse({**self._head, "choices": [choice], **({"usage": None} if self._usage_chunk else {})})


def _empty(call: dict[str, Any]) -> dict[str, Any]:
    """A call at its beginning: its arguments follow."""
    if call["type"] == "custom":
        return {**call, "custom": {**call["custom"], "input": ""}}
    return {**call, "function": {**call["function"], "arguments": ""}}

"""Responses: answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotswap.dialects import Event, parse
from hotswap.dialects._errors import find_error, to_error
from hotswap.messages import Finish, Usage
from hotswap.translation.answers import shaped, sse
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
    words,
)
from hotswap.translation.reading import items, note_signs, number, table, text
from hotswap.translation.requests.responses import read_call, write_call
from hotswap.translation.usage import from_openai, to_openai

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
INCOMPLETE: Mapping[str, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}
REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def read(body: bytes, dropped: set[str]) -> Answered | Failed:
    value = table(parse(body))
    error = table(value.get("error")) or (find_error(value) if "output" not in value else None)
    if error:
        return _failed(error)
    if not isinstance(value.get("output"), list):
        return Failed("malformed", f"no response: {body[:500].decode('utf-8', 'replace')}")
    parts = tuple(part for item in items(value["output"]) for _, part in _read_item(item, dropped))
    begun = _begun(value)
    return Answered(begun.id, begun.model, begun.created, parts, _finish(value), None, _usage(value))


def _begun(response: Mapping[str, Any]) -> Begun:
    return Begun(text(response.get("id")), text(response.get("model")), number(response.get("created_at")))


def _failed(error: Mapping[str, Any]) -> Failed:
    found = to_error(error, 200)
    return Failed(found.type, found.message)


def _usage(response: Mapping[str, Any]) -> Usage | None:
    return from_openai(response.get("usage"), "input", "output")


def _finish(response: Mapping[str, Any]) -> Finish:
    if response.get("status") != "incomplete":
        return "stop"
    return INCOMPLETE.get(text(table(response.get("incomplete_details")).get("reason")), "other")


def _read_item(item: Mapping[str, Any], dropped: set[str]) -> list[tuple[Any, Part]]:
    """The parts of an item, each with the place of its deltas."""
    kind = text(item.get("type"))
    if kind in CALLS:
        return [(None, read_call(item))]
    if kind == "message":
        return [(place, _read_part(part, dropped)) for place, part in enumerate(items(item.get("content")))]
    if kind != "reasoning":
        dropped.add(f"output.{kind}")
        return []
    if item.get("encrypted_content"):
        dropped.add("reasoning.encrypted_content")
    thoughts = items(item.get("summary")) or items(item.get("content"))
    return [(f"s{place}", Thinking(text(part.get("text")))) for place, part in enumerate(thoughts)]


def _read_part(part: Mapping[str, Any], dropped: set[str]) -> Part:
    note_signs(part, dropped)
    if part.get("type") == "refusal":
        return Refusal(text(part.get("refusal")))
    return Text(text(part.get("text")))


class Reader:
    """Reads the events of one stream."""

    def __init__(self, dropped: set[str]) -> None:
        self._dropped = dropped
        self._lane = Lane()
        self._begun = self._ended = False
        self._items: dict[int | str, int] = {}
        """The number of each item, by its index and by its id: some servers say but one of them."""
        self._known = 0
        self.usage: Usage | None = None

    def feed(self, event: Event) -> list[Piece]:
        value = table(parse(event.data))
        kind = text(value.get("type")) or event.name
        if self._ended:
            return []
        response = table(value.get("response"))
        if kind in ("error", "response.failed"):
            self._ended = True
            return [
                _failed(table(response.get("error")) or find_error(value) or value or {"message": event.data})
            ]
        begun: list[Piece] = []
        if response and not self._begun:
            self._begun = True
            begun.append(_begun(response))
        if kind in ("response.completed", "response.incomplete"):
            return [*begun, *self._end(response)]
        self._take(kind.removeprefix("response."), value)
        return [*begun, *self._lane.take()]

    def finish(self) -> list[Piece]:
        return []  # without its last event the answer broke off

    def _take(self, kind: str, value: Mapping[str, Any]) -> None:
        item = table(value.get("item"))
        output = self._number(number(value.get("output_index")), text(value.get("item_id") or item.get("id")))
        if kind == "output_item.added":
            if text(item.get("type")) in CALLS:
                begun = text(item.get("arguments")) or text(item.get("input"))
                self._lane.begin((output, None), replace(read_call(item), arguments=begun))
        elif kind == "output_item.done":
            self._item(output, item)
        elif kind.rpartition(".")[0] in _DELTAS:
            self._delta(kind, output, value)
        elif kind not in _REPEATING:
            self._dropped.add(f"events.{kind}")

    def _number(self, index: int | None, id: str) -> int:  # noqa: A002
        names: list[int | str] = [*([id] if id else ()), *([index] if index is not None else ())]
        found = next((self._items[name] for name in names if name in self._items), None)
        if found is None:
            found = self._known
            self._known += bool(names)
        for name in names:
            self._items.setdefault(name, found)
        return found

    def _delta(self, kind: str, output: int, value: Mapping[str, Any]) -> None:
        name, _, what = kind.rpartition(".")
        field, part = _DELTAS[name]
        place: Any = number(value.get("content_index")) or 0
        if part is Thinking:
            place = f"s{number(value.get('summary_index')) or place}"
        key = (output, None if part is None else place)
        if part is not None:
            self._lane.begin(key, part())
        if what == "delta":
            self._lane.more(key, text(value.get("delta")))
        else:
            self._lane.end(key, text(value.get(field)))

    def _item(self, output: int, item: Mapping[str, Any]) -> None:
        """An item is whole: what its deltas left out is filled in."""
        for place, part in _read_item(item, self._dropped):
            key = (output, place)
            self._lane.begin(key, part)
            self._lane.end(key, words(part))

    def _end(self, response: Mapping[str, Any]) -> list[Piece]:
        """The last event has the whole answer again; some servers send nothing of it before."""
        self._ended = True
        self.usage = _usage(response)
        if not any(isinstance(name, int) for name in self._items):
            self._items |= {place: place for place in range(self._known)}
        for place, item in enumerate(items(response.get("output"))):
            self._item(self._number(place, text(item.get("id"))), item)
        self._lane.end_all()
        return [*self._lane.take(), Ended(_finish(response), self.usage)]


_DELTAS: Mapping[str, tuple[str, Any]] = {
    "output_text": ("text", Text),
    "refusal": ("refusal", Refusal),
    "reasoning_summary_text": ("text", Thinking),
    "reasoning_text": ("text", Thinking),
    "function_call_arguments": ("arguments", None),
    "custom_tool_call_input": ("input", None),
}
"""Of each kind of delta: the field of its end that has the whole, and what it is a part of; null: the call."""


_REPEATING = frozenset((
    "created", "in_progress", "queued", "content_part.added", "content_part.done", "reasoning_summary_part.added",
    "reasoning_summary_part.done",
))  # fmt: skip
"""Events that say nothing that others do not."""


def write(answered: Answered) -> dict[str, Any]:
    output = [_item(part, answered.id, place) for place, part in enumerate(answered.parts)]
    return _response(answered, output, answered.finish, answered.usage)


def _response(
    begun: Begun | Answered, output: Sequence[Any], finish: Finish | None, usage: Usage | None = None
) -> dict[str, Any]:
    """`finish` is null while the answer is being written."""
    reason = REASONS.get(finish or "")
    status = "in_progress" if finish is None else "incomplete" if reason else "completed"
    return {
        "id": shaped("resp_", begun.id),
        "object": "response",
        "created_at": begun.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": begun.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": to_openai(usage, "input", "output"),
    }


def _item(part: Part, id: str, place: int, status: str = "completed") -> dict[str, Any]:  # noqa: A002
    """Write a part as an item of its own."""
    name = f"{shaped('', id)}_{place}"
    if isinstance(part, Call):
        call = write_call(part)
        prefix = {"function_call": "fc_", "custom_tool_call": "ctc_", "tool_search_call": "tsc_"}.get(
            call["type"], "lsh_"
        )
        return {"id": prefix + name, **call, "status": status}
    if isinstance(part, Thinking):
        return {
            "type": "reasoning",
            "id": f"rs_{name}",
            "summary": [_summary(part.text)],
            "encrypted_content": None,
        }
    content = [_content(part)]
    return {"type": "message", "id": f"msg_{name}", "status": status, "role": "assistant", "content": content}


def _summary(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _content(part: Part) -> dict[str, Any]:
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": words(part), "annotations": [], "logprobs": []}


class Writer:
    """Writes the events of one stream."""

    content_type = "text/event-stream"

    def __init__(self, asked: Asked) -> None:  # noqa: ARG002
        self._begun = Begun()
        self._output: list[dict[str, Any]] = []
        self._part: Part = Text()
        self._id = ""
        self._number = -1

    def write(self, piece: Piece) -> bytes:
        if isinstance(piece, Begun):
            self._begun = piece
            response = _response(piece, [], None)
            return self._event("created", response=response) + self._event("in_progress", response=response)
        if isinstance(piece, Opened):
            self._part = piece.part
            return self._open(piece.part)
        if isinstance(piece, Grew):
            return self._grow(piece.text)
        if isinstance(piece, Closed):
            return self._close(piece.part)
        return self._end(piece) if isinstance(piece, Ended) else b""

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        kind = f"response.{kind}"
        return sse({"type": kind, "sequence_number": self._number, **fields}, kind)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": len(self._output)}

    def _open(self, part: Part) -> bytes:
        place = len(self._output)
        item = _item(part, self._begun.id, place, "in_progress")
        self._id = item["id"]
        if isinstance(part, Call):
            item |= {"arguments": ""} if part.kind == "function" else {}
            return self._event("output_item.added", output_index=place, item=item)
        item["summary" if isinstance(part, Thinking) else "content"] = []
        added = self._event("output_item.added", output_index=place, item=item)
        if isinstance(part, Thinking):
            return added + self._event("reasoning_summary_part.added", **self._inner(), part=_summary(""))
        return added + self._event("content_part.added", **self._inner(), part=_content(part))

    def _inner(self) -> dict[str, Any]:
        """Where the one part of the open item is."""
        return {**self._place(), "summary_index" if isinstance(self._part, Thinking) else "content_index": 0}

    def _grow(self, text: str) -> bytes:
        part = self._part
        if isinstance(part, Call):
            name = _CALL_DELTAS.get(part.kind)
            return self._event(f"{name}.delta", **self._place(), delta=text) if name else b""
        if isinstance(part, Thinking):
            return self._event("reasoning_summary_text.delta", **self._inner(), delta=text)
        if isinstance(part, Refusal):
            return self._event("refusal.delta", **self._inner(), delta=text)
        return self._event("output_text.delta", **self._inner(), delta=text, logprobs=[])

    def _close(self, part: Part) -> bytes:
        self._part = part
        written = self._done(part)
        place = len(self._output)
        item = _item(part, self._begun.id, place)
        self._output.append(item)
        return written + self._event("output_item.done", output_index=place, item=item)

    def _done(self, part: Part) -> bytes:
        if isinstance(part, Call):
            name = _CALL_DELTAS.get(part.kind, "")
            said = {"input": part.arguments} if part.kind == "custom" else {"arguments": part.arguments}
            return self._event(f"{name}.done", **self._place(), **said) if name else b""
        inner = self._inner()
        if isinstance(part, Thinking):
            done = self._event("reasoning_summary_text.done", **inner, text=part.text)
            return done + self._event("reasoning_summary_part.done", **inner, part=_summary(part.text))
        if isinstance(part, Refusal):
            done = self._event("refusal.done", **inner, refusal=part.text)
        else:
            done = self._event("output_text.done", **inner, text=words(part), logprobs=[])
        return done + self._event("content_part.done", **inner, part=_content(part))

    def _end(self, ended: Ended) -> bytes:
        response = _response(self._begun, self._output, ended.finish, ended.usage)
        return self._event(response["status"], response=response)


_CALL_DELTAS = {"function": "function_call_arguments", "custom": "custom_tool_call_input"}

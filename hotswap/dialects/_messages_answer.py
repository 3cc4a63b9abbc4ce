"""What a model says in Anthropic's Messages: a list of blocks, in one piece or streamed side by side.

A stream is put together into the body that would have been its twin, and read as that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotswap.dialects import Assembler, Event
from hotswap.dialects._errors import find_error, parse, to_error
from hotswap.dialects._reading import (
    count,
    hollow,
    judge,
    set_apart,
    table,
    text_or_none,
    truncated,
    unreadable,
)
from hotswap.messages import Answer, Finish, Message, ProviderError, ToolCall, Usage

FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
ADDED = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Deltas that go on with a text, and the field that it is in."""
SET = {"signature_delta": ("signature",), "compaction_delta": ("content", "encrypted_content")}
"""Deltas that replace fields of their block."""
ORPHANS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}
"""Which block a delta belongs to that came without one."""
INPUTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
PLAIN = frozenset({"role", "content"})


def read_message(item: Mapping[str, Any]) -> Message:
    """Read a message that holds no results of tools."""
    content = item.get("content")
    if item.keys() == PLAIN and isinstance(content, str):
        return Message(str(item["role"] or ""), content)
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    thoughts = (text_or_none(block.get("thinking")) for block in blocks if block.get("type") == "thinking")
    return Message(
        role=str(item.get("role") or ""),
        content=read_content(content),
        tool_calls=tuple(_read_call(block) for block in blocks if block.get("type") == "tool_use"),
        reasoning="\n\n".join(thought for thought in thoughts if thought) or None,
        extra={name: value for name, value in item.items() if name not in PLAIN and value is not None},
    )


def read_content(content: Any) -> str | Sequence[Any] | None:
    """Get a content as it was sent; what is neither text nor a list as JSON."""
    return content if content is None or isinstance(content, str | list) else json.dumps(content)


def _read_call(block: Mapping[str, Any]) -> ToolCall:
    given = block.get("input")
    written = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), written)


def read_body(
    body: Mapping[str, Any], error: ProviderError | None = None, extra: Mapping[str, Any] | None = None
) -> Answer:
    """Read an answer in one piece. With `error` it is the beginning of one; `extra` is what is kept beside it."""
    said = text_or_none(body.get("stop_reason"))
    message = read_message({"role": body.get("role") or "assistant", "content": body.get("content")})
    message = replace(message, extra=extra or {})
    finish = _read_finish(said, message)
    if finish == "content_filter":
        why = text_or_none(table(body.get("stop_details")).get("explanation"))
        message = replace(message, refusal=why)
    elif finish == "other" and not hollow(message):  # what is not known is kept as it was said
        message = replace(message, extra={**message.extra, "stop_reason": said})
    return judge(
        Answer(
            messages=() if error is not None and hollow(message) else (message,),
            finish=finish,
            usage=read_usage(table(body.get("usage"))),
            model=text_or_none(body.get("model")),
            error=error,
            id=text_or_none(body.get("id")),
        )
    )


def _read_finish(said: str | None, message: Message) -> Finish | None:
    if said is None:
        return None
    finish = FINISHES.get(said, "other")
    return "tool_calls" if finish == "stop" and message.tool_calls else finish


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Read how many tokens were used. What was read from a cache or written to one comes beside the input here,
    and what a compaction used beside all the rest."""
    total = _read_counts(usage)
    iterations = usage.get("iterations")
    for one in iterations if isinstance(iterations, list) else ():
        if isinstance(one, dict) and one.get("type") == "compaction":
            total = total + _read_counts(one)
    return total


def _read_counts(usage: Mapping[str, Any]) -> Usage:
    inputs = [count(usage.get(name)) for name in INPUTS]
    known = [number for number in inputs if number is not None]
    return Usage(
        input=sum(known) if known else None,
        output=count(usage.get("output_tokens")),
        cached=inputs[1],
        cache_write=inputs[2],
        reasoning=count(table(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


class MessagesAssembler(Assembler):
    """Reads the events of one stream."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._open: dict[int | None, _Block] = {}
        self._error: ProviderError | None = None
        self._odd: ProviderError | None = None
        self._orphaned = False
        self._stopped = False

    def feed(self, event: Event) -> None:
        value = parse(event.data)
        if value is None:
            self._odd = self._odd or unreadable(event.name, event.data)
        if not isinstance(value, dict):
            return
        kind = value.get("type") or event.name
        if kind == "error" or value.get("error"):
            self._error = to_error(find_error(value) or {"message": event.data}, 200)
        elif kind == "message_start":
            self._start(table(value.get("message")))
        elif kind == "content_block_start":
            self._begin(value.get("index"), table(value.get("content_block")))
        elif kind == "content_block_delta":
            self._go_on(value.get("index"), table(value.get("delta")))
        elif kind == "content_block_stop" and count(value.get("index")) in self._open:
            self._open[count(value.get("index"))].closed = True
        elif kind == "message_delta":
            self._body |= table(value.get("delta"))
            self._note(table(value.get("usage")))
        elif kind == "message_stop":
            self._stopped = True

    def _start(self, message: Mapping[str, Any]) -> None:
        self._body |= message
        usage = table(message.get("usage"))
        self._note({name: value for name, value in usage.items() if name != "output_tokens"})

    def _note(self, usage: Mapping[str, Any]) -> None:
        """The last value counts. Output is counted at the end alone: what the start says of it is a placeholder."""
        self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _begin(self, index: Any, block: dict[str, Any]) -> None:
        self._open[count(index)] = started = _Block(block)
        self._blocks.append(started)

    def _go_on(self, index: Any, delta: dict[str, Any]) -> None:
        if count(index) not in self._open:
            self._orphaned = True
            kind = ORPHANS.get(str(delta.get("type")))
            self._begin(index, {"type": kind} if kind else {})
        self._open[count(index)].feed(delta)

    @property
    def complete(self) -> bool:
        return self.ended or self._body.get("stop_reason") is not None

    @property
    def ended(self) -> bool:
        """An error is the last event of its stream, too."""
        return self._stopped or self._error is not None

    def answer(self, cut: str | None = None) -> Answer:
        error = self._fault(cut)
        blocks, extra = self._blocks, None
        if error is not None:
            _, extra = set_apart([block.call() for block in blocks if block.calls])
            blocks = [block for block in blocks if not block.half]
        body = {**self._body, "usage": self._usage, "content": [block.read() for block in blocks]}
        return read_body(body, error, extra)

    def _fault(self, cut: str | None) -> ProviderError | None:
        if self._error is not None:
            return self._error
        if cut is not None or not self._stopped:
            return truncated(cut)
        if self._odd is not None:
            return self._odd
        if self._orphaned:
            return ProviderError("malformed", "a part of a content block came without the block's start", 200)
        return None

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type": "ping"}\n\n'


class _Block:
    """One content block of a stream, as far as it has come."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.closed = False
        self._block = start
        self._texts: dict[str, list[str]] = {}

    def feed(self, delta: Mapping[str, Any]) -> None:
        kind = str(delta.get("type"))
        added = ADDED.get(kind)
        if added is not None and isinstance(delta.get(added), str):
            self._texts.setdefault(added, []).append(delta[added])
        elif kind in SET:
            self._block |= {name: delta[name] for name in SET[kind] if name in delta}
        elif kind == "citations_delta":
            self._append("citations", delta.get("citation"))
        else:  # of tomorrow
            self._append("deltas", dict(delta))

    def _append(self, name: str, value: Any) -> None:
        before = self._block.get(name)
        self._block[name] = [*(before if isinstance(before, list) else ()), value]

    @property
    def calls(self) -> bool:
        """Whether this is a call of a tool that the program runs."""
        return self._block.get("type") == "tool_use"

    @property
    def half(self) -> bool:
        """Whether this is a call whose arguments have not all come."""
        return self.calls and parse(self.call().arguments) is None

    def call(self) -> ToolCall:
        """Get the call with its arguments as they came."""
        call = _read_call(self._block)
        begun = "".join(self._texts.get("partial_json", ()))
        given = call.arguments if self._block.get("input") or self.closed else ""
        return ToolCall(call.id, call.name, begun or given)

    def read(self) -> dict[str, Any]:
        """Get the block as it stands in an answer in one piece. Arguments that are no JSON stay text."""
        block = dict(self._block)
        for name, pieces in self._texts.items():
            text = "".join(pieces)
            if name != "partial_json":
                before = block.get(name)
                block[name] = (before if isinstance(before, str) else "") + text
            elif text:
                value = parse(text)
                block["input"] = text if value is None else value
        return block

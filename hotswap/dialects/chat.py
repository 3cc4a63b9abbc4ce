"""OpenAI's Chat Completions, as its many implementers speak it: `POST /v1/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from hotswap.dialects import Assembler, Dialect, Event, Fields, Group
from hotswap.dialects._chat_stream import as_stream
from hotswap.dialects._errors import find_error, parse, to_error
from hotswap.dialects._reading import (
    count,
    hollow,
    judge,
    malformed,
    set_apart,
    table,
    text_or_none,
    truncated,
    unreadable,
)
from hotswap.messages import Answer, Finish, Message, ProviderError, ToolCall, Usage

SAMPLING = frozenset((
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "n", "seed", "stop",
    "presence_penalty", "frequency_penalty", "logit_bias", "reasoning_effort", "verbosity", "response_format",
    "tool_choice", "parallel_tool_calls",
))  # fmt: skip
FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
READ = frozenset(
    {
        "role",
        "content",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "reasoning_content",
        "reasoning",
        "refusal",
    }
)
"""Fields of a message that have a place of their own in ours."""
PLAIN = frozenset({"role", "content"})


class Chat(Dialect):
    """Chat Completions."""

    routes: ClassVar[tuple[str, ...]] = ("/chat/completions",)
    conversation: ClassVar[str] = "messages"

    def read_items(self, items: Sequence[Any]) -> Iterator[Group]:
        return (Group((_read_message(item),), 1) for item in items)

    def read_sampling(self, fields: Fields) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name in SAMPLING and value is not None}

    def impose(self, fields: Fields, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """The token limit takes the name that the program used, else `max_tokens`, which most know."""
        wanted = {name: value for name, value in sampling.items() if name != "extra" and value is not None}
        if "effort" in wanted:
            wanted["reasoning_effort"] = wanted.pop("effort")
        if "max_tokens" in wanted and fields.get("max_completion_tokens") is not None:
            wanted["max_completion_tokens"] = wanted["max_tokens"]
            if fields.get("max_tokens") is None:
                del wanted["max_tokens"]
        wanted |= sampling.get("extra") or {}
        if model:
            wanted["model"] = model
        missing = object()
        return {name: value for name, value in wanted.items() if fields.get(name, missing) != value}

    def authorize(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def read_answer(self, body: bytes) -> Answer:
        value = parse(body)
        error = find_error(value)
        if error is not None:
            return Answer(error=to_error(error, 200))
        choices = _choices(value)
        if not choices:
            return malformed(body, "chat completion")
        messages = tuple(_read_message(choice["message"]) for choice in choices)
        finish = _read_finish(choices[0].get("finish_reason"), messages)
        usage, model = _read_usage(_find_usage(value)), text_or_none(value.get("model"))
        return judge(Answer(messages, finish, usage, model, id=text_or_none(value.get("id"))))

    def write_stream(self, body: bytes, fields: Fields, query: str) -> bytes:  # noqa: ARG002
        options = table(fields.get("stream_options"))
        return as_stream(table(parse(body)), bool(options.get("include_usage")))

    def assembler(self) -> Assembler:
        return ChatAssembler()

    def write_error(self, status: int, type: str, message: str) -> bytes:  # noqa: A002
        kind = "invalid_request_error" if status == 400 else type
        return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": type}}).encode()

    def write_error_event(self, type: str, message: str) -> bytes:  # noqa: A002
        return b"data: " + self.write_error(500, type, message) + b"\n\ndata: [DONE]\n\n"


class ChatAssembler(Assembler):
    """Reads the chunks of one stream."""

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._id: str | None = None
        self._error: ProviderError | None = None
        self._odd: ProviderError | None = None
        self._done = False

    def feed(self, event: Event) -> None:
        if event.data.strip() == "[DONE]":
            self._done = True
            return
        chunk = parse(event.data)
        if chunk is None:
            self._odd = self._odd or unreadable(event.name, event.data)
        error = find_error(chunk)
        if error is not None:
            self._error = to_error(error, 200)
        if not isinstance(chunk, dict):
            return
        self._model = text_or_none(chunk.get("model")) or self._model
        self._id = self._id or text_or_none(chunk.get("id"))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(choice.get("index")).feed(choice)
        usage = _find_usage(chunk)
        if usage is not None:
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _choice(self, index: Any) -> _Choice:
        return self._choices.setdefault(count(index) or 0, _Choice())

    @property
    def complete(self) -> bool:
        return self._done or self._error is not None or self._finished

    @property
    def ended(self) -> bool:
        return self._done

    @property
    def _finished(self) -> bool:
        return bool(self._choices) and all(choice.finish for choice in self._choices.values())

    def answer(self, cut: str | None = None) -> Answer:
        error = self._error
        if error is None and (cut is not None or not (self._done or self._finished)):
            error = truncated(cut)
        error = error or self._odd
        choices = [choice for _, choice in sorted(self._choices.items())]
        messages = tuple(choice.message(whole=error is None) for choice in choices)
        if error is not None:
            messages = tuple(message for message in messages if not hollow(message))
        finish = _read_finish(choices[0].finish if choices else None, messages)
        usage = _read_usage(self._usage or None)
        return judge(Answer(messages, finish, usage, self._model, error, self._id))


class _Choice:
    """One choice of a stream, as far as it has come."""

    def __init__(self) -> None:
        self.role = "assistant"
        self.finish: str | None = None
        self._texts: dict[str, list[str]] = {}
        self._rest: dict[str, Any] = {}
        self._calls: list[_Call] = []
        self._open: dict[int, _Call] = {}

    def feed(self, choice: Mapping[str, Any]) -> None:
        self.finish = text_or_none(choice.get("finish_reason")) or self.finish
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return
        for name, value in delta.items():
            if value is None:
                continue
            if name == "tool_calls" and isinstance(value, list):
                for call in value:
                    self._feed_call(call)
            elif name == "function_call":
                self._feed_call({"index": 0, "function": value})
            elif name == "role":
                self.role = str(value) or self.role
            elif isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list) and isinstance(self._rest.get(name), list):
                self._rest[name] = self._rest[name] + value
            else:
                self._rest[name] = value

    def _feed_call(self, delta: Any) -> None:
        """A new id on an open index is a new call: some servers give every call the index 0."""
        if not isinstance(delta, dict):
            return
        index, id = count(delta.get("index")) or 0, str(delta.get("id") or "")  # noqa: A001
        call = self._open.get(index)
        if call is None or (id and call.id and id != call.id) or (not id and call.is_followed_by(delta)):
            call = next((known for known in self._calls if id and known.id == id), None) or _Call()
            self._open[index] = call
            if call not in self._calls:
                self._calls.append(call)
        call.feed(id, delta.get("function") or delta.get("custom") or {})

    def message(self, whole: bool) -> Message:
        """What has come; of an answer that broke off, calls that are only half there are kept apart."""
        calls = tuple(call.read() for call in self._calls)
        texts = {name: "".join(texts) for name, texts in self._texts.items()}
        message = _read_message({"role": self.role, **texts, **self._rest})
        apart: dict[str, Any] = {}
        if not whole:
            calls, apart = set_apart(calls)
        return replace(
            message,
            content=message.content if message.content or not calls else None,
            tool_calls=calls,
            extra={**message.extra, **apart},
        )


class _Call:
    """One tool call of a stream, as far as it has come."""

    def __init__(self) -> None:
        self.id = ""
        self._name = ""
        self._parts: list[str] = []

    def feed(self, id: str, function: Any) -> None:  # noqa: A002
        self.id = self.id or id
        if isinstance(function, dict):
            self._name = self._name or str(function.get("name") or "")
            self._parts.append(_read_arguments(function))

    def is_followed_by(self, delta: Mapping[str, Any]) -> bool:
        """Whether a delta without an id begins another call: it names a tool, and this one is whole."""
        function = table(delta.get("function"))
        return bool(self._name and function.get("name")) and parse("".join(self._parts)) is not None

    def read(self) -> ToolCall:
        return ToolCall(self.id, self._name, "".join(self._parts))


def _choices(value: Any) -> list[dict[str, Any]]:
    """The choices of an answer in one piece that hold a message, by their index."""
    choices = value.get("choices") if isinstance(value, dict) else None
    found = [choice for choice in (choices if isinstance(choices, list) else ()) if isinstance(choice, dict)]
    return sorted((one for one in found if isinstance(one.get("message"), dict)), key=_index)


def _index(choice: Mapping[str, Any]) -> int:
    return count(choice.get("index")) or 0


def _read_message(item: Any) -> Message:
    if not isinstance(item, dict):
        return Message("", extra={"raw": item})
    content = item.get("content")
    if item.keys() == PLAIN and isinstance(content, str):
        return Message(str(item["role"] or ""), content)  # nearly all of them: worth a short way
    reasoning = item.get("reasoning_content") or item.get("reasoning")
    return Message(
        role=str(item.get("role") or ""),
        content=content if content is None or isinstance(content, str | list) else json.dumps(content),
        tool_calls=_read_calls(item),
        tool_call_id=text_or_none(item.get("tool_call_id")),
        reasoning=text_or_none(reasoning),
        refusal=text_or_none(item.get("refusal")),
        extra={} if item.keys() <= READ else _rest(item),
    )


def _rest(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in READ and value is not None}


def _read_calls(item: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = item.get("tool_calls")
    if not isinstance(calls, list):
        legacy = item.get("function_call")
        calls = [{"function": legacy}] if isinstance(legacy, dict) else []
    return tuple(_read_call(call) for call in calls if isinstance(call, dict))


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or call.get("custom")
    function = function if isinstance(function, dict) else {}
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), _read_arguments(function))


def _read_arguments(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", function.get("input"))
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


def _read_finish(said: Any, messages: tuple[Message, ...]) -> Finish | None:
    if said is None:
        return None
    finish = FINISHES.get(str(said), "other")
    if finish == "stop" and any(message.tool_calls for message in messages):
        return "tool_calls"  # some servers say stop although they call a tool
    return finish


def _find_usage(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Get the usage from where this provider puts it: the top level, a choice, or a corner of its own."""
    places = [value, value.get("x_groq")]
    choices = value.get("choices")
    places += choices if isinstance(choices, list) else []
    found = (
        place["usage"] for place in places if isinstance(place, dict) and isinstance(place.get("usage"), dict)
    )
    return next(found, None)


def _read_usage(usage: Mapping[str, Any] | None) -> Usage:
    if usage is None:
        return Usage()
    read, written = (table(usage.get(f"{name}_tokens_details")) for name in ("prompt", "completion"))
    cached = count(read.get("cached_tokens"))
    return Usage(
        input=count(usage.get("prompt_tokens")),
        output=count(usage.get("completion_tokens")),
        cached=count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        cache_write=count(read.get("cache_write_tokens")),
        reasoning=count(written.get("reasoning_tokens")),
    )

"""OpenAI's Chat Completions, as its many implementers speak it: `POST /v1/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from hotswap.dialects import Assembler, Dialect, Event, Fields
from hotswap.dialects._errors import RETRYABLE, find_error, parse, to_error
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

    def read_item(self, item: Any) -> Message:
        return _read_message(item)

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
        if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
            words = body[:500].decode("utf-8", "replace")
            return Answer(error=ProviderError("malformed", f"no chat completion: {words}", 200))
        choices = [choice for choice in value["choices"] if isinstance(choice, dict)]
        messages = tuple(_read_message(choice.get("message") or {}) for choice in choices)
        finish = _read_finish(choices[0].get("finish_reason") if choices else None, messages)
        usage = _read_usage(_find_usage(value))
        return _judge(Answer(messages, finish, usage, _text_or_none(value.get("model"))))

    def assembler(self) -> Assembler:
        return ChatAssembler()

    def write_error(self, status: int, type: str, message: str) -> bytes:  # noqa: A002
        kind = "invalid_request_error" if status == 400 else type
        return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": type}}).encode()


class ChatAssembler(Assembler):
    """Reads the chunks of one stream."""

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._error: ProviderError | None = None
        self._done = False

    def feed(self, event: Event) -> None:
        if event.data.strip() == "[DONE]":
            self._done = True
            return
        chunk = parse(event.data)
        error = find_error(chunk)
        if error is not None:
            self._error = to_error(error, 200)
        if not isinstance(chunk, dict):
            return
        self._model = _text_or_none(chunk.get("model")) or self._model
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(choice.get("index")).feed(choice)
        usage = _find_usage(chunk)
        if usage is not None:
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _choice(self, index: Any) -> _Choice:
        return self._choices.setdefault(index if isinstance(index, int) else 0, _Choice())

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
            words = cut or "the stream ended before the answer was complete"
            error = ProviderError("truncated", words, 200, retryable=True)
        choices = [choice for _, choice in sorted(self._choices.items())]
        messages = tuple(choice.message(whole=error is None) for choice in choices)
        if error is not None:
            messages = tuple(message for message in messages if not _hollow(message))
        finish = _read_finish(choices[0].finish if choices else None, messages)
        return _judge(Answer(messages, finish, _read_usage(self._usage or None), self._model, error))


class _Choice:
    """One choice of a stream, as far as it has come."""

    def __init__(self) -> None:
        self.role = "assistant"
        self.finish: str | None = None
        self._texts: dict[str, list[str]] = {}
        self._rest: dict[str, Any] = {}
        self._calls: list[_Call] = []
        self._open: dict[Any, _Call] = {}

    def feed(self, choice: Mapping[str, Any]) -> None:
        self.finish = _text_or_none(choice.get("finish_reason")) or self.finish
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
        index, id = delta.get("index", 0), delta.get("id") or ""  # noqa: A001
        call = self._open.get(index)
        if call is None or (id and call.id and id != call.id):
            call = next((known for known in self._calls if id and known.id == id), None) or _Call()
            self._open[index] = call
            if call not in self._calls:
                self._calls.append(call)
        call.feed(id, delta.get("function") or delta.get("custom") or {})

    def message(self, whole: bool) -> Message:
        """What has come; of an answer that broke off, calls that are only half there are kept apart."""
        calls = [call.read() for call in self._calls]
        body: dict[str, Any] = {
            "role": self.role,
            **{name: "".join(texts) for name, texts in self._texts.items()},
        }
        body |= self._rest
        message = _read_message(body)
        extra = dict(message.extra)
        if not whole:
            half = [call for call in calls if parse(call.arguments) is None]
            calls = [call for call in calls if call not in half]
            extra["truncated"] = True
            if half:
                extra["unfinished_calls"] = [
                    {"id": c.id, "name": c.name, "arguments": c.arguments} for c in half
                ]
        content = message.content if message.content or not calls else None
        return Message(
            message.role,
            content,
            tuple(calls),
            reasoning=message.reasoning,
            refusal=message.refusal,
            extra=extra,
        )


class _Call:
    """One tool call of a stream, as far as it has come."""

    def __init__(self) -> None:
        self.id = ""
        self._name = ""
        self._parts: list[str] = []

    def feed(self, id: str, function: Any) -> None:  # noqa: A002
        self.id = self.id or str(id)
        if isinstance(function, dict):
            self._name = self._name or str(function.get("name") or "")
            self._parts.append(_read_arguments(function))

    def read(self) -> ToolCall:
        return ToolCall(self.id, self._name, "".join(self._parts))


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
        tool_call_id=_text_or_none(item.get("tool_call_id")),
        reasoning=_text_or_none(reasoning),
        refusal=_text_or_none(item.get("refusal")),
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
    read, written = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    read, written = read if isinstance(read, dict) else {}, written if isinstance(written, dict) else {}
    cached = _count(read.get("cached_tokens"))
    return Usage(
        input=_count(usage.get("prompt_tokens")),
        output=_count(usage.get("completion_tokens")),
        cached=_count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        cache_write=_count(read.get("cache_write_tokens")),
        reasoning=_count(written.get("reasoning_tokens")),
    )


def _judge(answer: Answer) -> Answer:
    """Flag a success that holds nothing, unless the model itself wrote tokens that say nothing."""
    silent = all(_hollow(message) for message in answer.messages)
    excused = bool(answer.usage.output) or answer.finish in ("length", "content_filter")
    if answer.error is None and silent and not excused:
        error = ProviderError("empty", "the answer holds nothing", 200, "empty" in RETRYABLE)
        return Answer(answer.messages, answer.finish, answer.usage, answer.model, error)
    return answer


def _hollow(message: Message) -> bool:
    extra = {name for name in message.extra if name != "truncated"}
    return not (message.content or message.tool_calls or message.reasoning or message.refusal or extra)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

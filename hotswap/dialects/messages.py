"""Anthropic's Messages: `POST /v1/messages`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from hotswap.dialects import Assembler, Contradiction, Dialect, Fields, Group
from hotswap.dialects._errors import find_error, parse, to_error
from hotswap.dialects._messages_answer import MessagesAssembler, read_body, read_content, read_message
from hotswap.dialects._reading import count, malformed, table, text_or_none
from hotswap.dialects._restreamed import of_messages
from hotswap.messages import Answer, Message

VERSION = "2023-06-01"
SAMPLING = frozenset((
    "temperature", "top_p", "top_k", "max_tokens", "stop_sequences", "thinking", "output_config", "tool_choice",
))  # fmt: skip
BESIDE = re.compile(r"/messages/(count_tokens|batches(/[^/]+(/(results|cancel))?)?)$")
RESULT = frozenset({"type", "tool_use_id", "content"})
"""Fields of a tool's result that have a place of their own in a message of ours."""
WORDS = {
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "auth": "authentication_error",
    "authentication_error": "authentication_error",
    "timeout": "timeout_error",
    "context_length": "invalid_request_error",
    "bad_request": "invalid_request_error",
    "limit_reached": "invalid_request_error",
    "request_too_large": "request_too_large",
}
"""What Anthropic calls our types; any other is an `api_error`."""
LEAST_THINKING = 1024
TOO_LONG = "prompt is too long"
"""Programs look for these words before they shorten their conversation."""


class Messages(Dialect):
    """Messages."""

    routes: ClassVar[tuple[str, ...]] = ("/messages",)
    helpers: ClassVar[tuple[str, ...]] = ("/messages/count_tokens", "/messages/batches")
    conversation: ClassVar[str] = "messages"
    unsaid: ClassVar[frozenset[str]] = frozenset({"seed"})

    def helps(self, path: str) -> str | None:
        """A batch has routes of its own below that of the batches."""
        found = BESIDE.search(path)
        return found[0] if found else None

    def read_preamble(self, fields: Fields) -> tuple[Message, ...]:
        system = fields.get("system")
        return (Message("system", read_content(system)),) if system else ()

    def read_items(self, items: Sequence[Any]) -> Iterator[Group]:
        return (Group(tuple(_read_item(item)), 1) for item in items)

    def read_sampling(self, fields: Fields) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name in SAMPLING and value is not None}

    def impose(self, fields: Fields, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """A seed is left out: this API has none."""
        wanted = {name: value for name, value in sampling.items() if value is not None}
        extra = wanted.pop("extra", None) or {}
        wanted.pop("seed", None)
        if "stop" in wanted:
            stop = wanted.pop("stop")
            wanted["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
        if "effort" in wanted:
            wanted["output_config"] = {**table(fields.get("output_config")), "effort": wanted.pop("effort")}
        wanted |= _thinking_within(fields, wanted.get("max_tokens")) | extra
        if model:
            wanted["model"] = model
        missing = object()
        return {name: value for name, value in wanted.items() if fields.get(name, missing) != value}

    def yields(self, fields: Fields, imposed: Mapping[str, Any]) -> tuple[str, ...]:
        lowered = _budget(fields) is not None and _budget(imposed) is not None
        return ("thinking.budget_tokens",) if lowered else ()

    def asks_models(self, path: str, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        return "anthropic-version" in headers

    def write_models(self, model: str, context: int | None) -> dict[str, Any]:
        """In the words of both APIs that hang below `/v1`: programs read one of them."""
        listed = super().write_models(model, context)
        named = {"type": "model", "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
        data = [{**one, **named} for one in listed["data"]]
        return {**listed, "data": data, "has_more": False, "first_id": model, "last_id": model}

    def authorize(self, key: str) -> dict[str, str]:
        """With the version, which the API insists on; a program's own stays as it is."""
        return {"x-api-key": key, "anthropic-version": VERSION}

    def read_answer(self, body: bytes) -> Answer:
        value = parse(body)
        known = isinstance(value, dict) and isinstance(value.get("content"), list | str)
        error = None if known and not value.get("error") else find_error(value)
        if error is not None:
            return Answer(error=to_error(error, 200))
        return read_body(value) if known else malformed(body, "message")

    def write_stream(self, body: bytes, fields: Fields, query: str) -> bytes:  # noqa: ARG002
        return b"".join(of_messages(table(parse(body))))

    def assembler(self) -> Assembler:
        return MessagesAssembler()

    def write_error(self, status: int, type: str, message: str) -> bytes:  # noqa: A002
        return _write(WORDS["bad_request"] if status == 400 else WORDS.get(type, "api_error"), type, message)

    def write_error_event(self, type: str, message: str) -> bytes:  # noqa: A002
        return b"event: error\ndata: " + _write(WORDS.get(type, "api_error"), type, message) + b"\n\n"


def _budget(fields: Fields) -> int | None:
    """How many tokens of thinking a request asks for."""
    thinking = table(fields.get("thinking"))
    return count(thinking.get("budget_tokens")) if thinking.get("type") == "enabled" else None


def _thinking_within(fields: Fields, limit: Any) -> dict[str, Any]:
    """Lower a budget of thinking that a limit of the run leaves no room for, to half of it: the API demands that it
    is below the limit, and at least 1,024."""
    budget = _budget(fields)
    if not isinstance(limit, int) or budget is None or budget < limit:
        return {}
    if limit <= LEAST_THINKING:
        raise Contradiction(
            f"the run sets sampling.max_tokens = {limit}, and the program asks to think for {budget} tokens, for which"
            f" this API takes no less than {LEAST_THINKING}: set max_tokens above that, or switch the thinking off"
        )
    return {"thinking": {**fields["thinking"], "budget_tokens": max(LEAST_THINKING, limit // 2)}}


def _write(word: str, type: str, message: str) -> bytes:  # noqa: A002
    if type == "context_length" and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"
    return json.dumps({"type": "error", "error": {"type": word, "message": message}}).encode()


def _read_item(item: Any) -> Iterator[Message]:
    """Read one message of the list: the results of tools in it, one by one, and what is left of it."""
    if not isinstance(item, dict):
        yield Message("", extra={"raw": item})
        return
    content = item.get("content")
    blocks = content if isinstance(content, list) and item.get("role") != "assistant" else []
    results = [block for block in blocks if _is_result(block)]
    for block in results:
        yield _read_result(block)
    if not results:
        yield read_message(item)
    elif len(results) < len(blocks):
        yield read_message({**item, "content": [block for block in blocks if not _is_result(block)]})


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _read_result(block: Mapping[str, Any]) -> Message:
    return Message(
        "tool",
        read_content(block.get("content")),
        tool_call_id=text_or_none(block.get("tool_use_id")),
        extra={name: value for name, value in block.items() if name not in RESULT and value is not None},
    )

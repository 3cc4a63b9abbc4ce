"""What an answer of OpenAI's Responses says: its message, its end, its usage, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hotswap.dialects._errors import TYPES, find_error, parse, to_error
from hotswap.dialects._reading import broken_off, count, hollow, judge, malformed, table, text_or_none
from hotswap.dialects._responses_items import read_call, read_written
from hotswap.messages import Answer, Finish, Message, ProviderError, ToolCall, Usage

REASONS: Mapping[Any, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}
PENDING = frozenset({"queued", "in_progress"})
"""The answer is made in the background, or has not come to its end."""
UNFINISHED = frozenset({"in_progress", "incomplete"})
"""What the status of an item says that is only half there."""
UNSAID: Mapping[str, Any] = {"code": "server_error", "message": "the response failed, and does not say why"}


class Item(NamedTuple):
    """What the model wrote, and whether it is all of it."""

    value: Any
    whole: bool


def read_body(body: bytes) -> Answer:
    """Read an answer in one piece."""
    response = parse(body)
    said = find_error(response)
    response = table(response)
    failed = response.get("status") == "failed"
    if said is None and not failed and not isinstance(response.get("output"), list):
        return malformed(body, "response")
    error = read_failure(said or UNSAID) if said or failed else None
    return conclude(response, whole_output(response), response.get("usage"), error)


def whole_output(response: Mapping[str, Any]) -> list[Item]:
    """Get the items of a response object."""
    output = response.get("output")
    items = output if isinstance(output, list) else []
    return [Item(item, text_or_none(table(item).get("status")) not in UNFINISHED) for item in items]


def conclude(
    response: Mapping[str, Any], items: Iterable[Item], usage: Any, error: ProviderError | None
) -> Answer:
    """Get the answer that a response object and its items amount to."""
    items, status = unique(items), text_or_none(response.get("status"))
    messages = _read_messages(items, error is not None) if items or status not in PENDING else ()
    answer = Answer(
        messages=messages,
        finish=_read_finish(status, response, messages) if error is None else None,
        usage=_read_usage(table(usage)),
        model=text_or_none(response.get("model")),
        error=error,
        id=text_or_none(response.get("id")),
    )
    return answer if status in PENDING else judge(answer)


def read_failure(error: Mapping[str, Any]) -> ProviderError:
    """Read an error object that came with a success. One that we wrote says its type in our own word."""
    ours = text_or_none(error.get("type"))
    return to_error({**error, "code": ours} if ours in TYPES else error, 200)


def unique(items: Iterable[Item]) -> list[Item]:
    """Get each call once, in the place of its first item: some servers give one call several items."""
    kept: dict[Any, Item] = {}
    for place, item in enumerate(items):
        value = table(item.value)
        call = text_or_none(value.get("call_id"))
        key = (str(value.get("type")), call) if call else place
        if key not in kept or (item.whole and not kept[key].whole):
            kept[key] = item
    return list(kept.values())


def _read_messages(items: Sequence[Item], broken: bool) -> tuple[Message, ...]:
    """The message; of an answer that broke off, calls that are only half there are kept apart."""
    if not broken:
        return (read_written([item.value for item in items]),)
    half = [call for item in items if (call := _half_call(item)) is not None]
    kept = [item.value for item in items if _half_call(item) is None]
    message = read_written(kept)
    message = replace(message, extra={**message.extra, **broken_off(half)})
    return () if hollow(message) else (message,)


def _half_call(item: Item) -> ToolCall | None:
    """Get the call of which only the beginning is there. Arguments that are JSON are all there."""
    call = None if item.whole else read_call(item.value)
    if call is None or (item.value.get("type") == "function_call" and parse(call.arguments) is not None):
        return None
    return call


def _read_finish(
    status: str | None, response: Mapping[str, Any], messages: Sequence[Message]
) -> Finish | None:
    if status in PENDING:
        return None
    if status == "incomplete":
        reason = table(response.get("incomplete_details")).get("reason")
        return REASONS.get(text_or_none(reason), "other")
    if status == "cancelled":
        return "other"
    return "tool_calls" if any(message.tool_calls for message in messages) else "stop"


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    read, written = (table(usage.get(f"{name}_tokens_details")) for name in ("input", "output"))
    return Usage(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cached=count(read.get("cached_tokens")),
        cache_write=count(read.get("cache_write_tokens")),
        reasoning=count(written.get("reasoning_tokens")),
    )

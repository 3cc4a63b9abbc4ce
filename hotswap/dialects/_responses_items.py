"""The items of OpenAI's Responses, and the messages that they make up.

A conversation is a flat list: what one call of the model wrote (reasoning, messages, calls) is a run of
items in it, and is read as one message. What a program gave stands alone, item by item.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hotswap.dialects import Group
from hotswap.dialects._reading import table, text_or_none
from hotswap.messages import Message, ToolCall

GIVEN: Mapping[str, str] = {"mcp_approval_response": "tool", "compaction_trigger": "user"}
"""Items without a role that come from the program, and whose they are."""
NAMED = frozenset({"function_call", "custom_tool_call"})
"""Calls that say the name of their tool; that of others is in their type: `local_shell_call`."""
ARGUMENTS = ("arguments", "input", "action", "actions", "operation")
"""Where the kinds of calls keep what the tool is called with."""
PLAIN = frozenset({"", "message", "function_call_output"})
"""Types that need not be kept beside a message: its role says as much."""


def read_items(items: Sequence[Any]) -> Iterator[Group]:
    """Read items of a conversation. The run at the end is open: more items of the same call could follow."""
    run: list[Any] = []
    for item in items:
        if _is_written(item):
            run.append(item)
            continue
        if run:
            yield Group((read_written(run),), len(run))
            run = []
        yield Group((_read_given(item),), 1)
    if run:
        yield Group((read_written(run),), len(run), open=True)


def read_written(items: Sequence[Any]) -> Message:
    """Read all that one call of the model wrote as one message."""
    parts: list[Any] = []
    leftovers = []
    for item in items:
        if _kind(item) == "message":
            parts += _as_list(item.get("content"))
            leftovers.append(_rest(item, {"type", "role", "content"}))
        else:
            parts.append(item if isinstance(item, dict) else {"raw": item})
    only = items[0].get("content") if len(items) == 1 and _kind(items[0]) == "message" else None
    return Message(
        role="assistant",
        content=only if isinstance(only, str) else parts or None,
        tool_calls=_read_calls(items),
        reasoning=_join(text for item in items if _kind(item) == "reasoning" for text in _thoughts(item)),
        refusal=_join(part.get("refusal") for part in parts if _kind(part) == "refusal"),
        extra=_read_extra(leftovers),
    )


def read_call(item: Any) -> ToolCall | None:
    """Get the call that an item is, where the program is to answer it. A namespace stays in the item."""
    kind = _kind(item)
    if kind not in NAMED and not (kind.endswith("_call") and item.get("call_id")):
        return None
    name = str(item.get("name") or "") if kind in NAMED else kind.removesuffix("_call")
    given = next((item[field] for field in ARGUMENTS if item.get(field) is not None), "")
    return ToolCall(
        str(item.get("call_id") or ""), name, given if isinstance(given, str) else json.dumps(given)
    )


def _read_calls(items: Sequence[Any]) -> tuple[ToolCall, ...]:
    """The calls in a run. What the provider has answered itself, in the same run, is none."""
    answered = {str(item.get("call_id")) for item in items if _kind(item).endswith("_output")}
    calls = (read_call(item) for item in items)
    return tuple(call for call in calls if call is not None and call.id not in answered)


def _read_extra(leftovers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The other fields of the messages in a run: of a single one as they are, of several one after the other."""
    if len(leftovers) == 1:
        return leftovers[0]
    return {"messages": list(leftovers)} if any(leftovers) else {}


def _is_written(item: Any) -> bool:
    """Whether an item is the model's: also whatever is not known to be anyone else's."""
    if not isinstance(item, dict):
        return False
    role = item.get("role")
    if role or _kind(item) == "message":
        return role == "assistant"
    return _kind(item) not in GIVEN and not _is_result(item)


def _is_result(item: Mapping[str, Any]) -> bool:
    """Whether an item is a tool's result that the program brings; some tools are run by the provider."""
    kind = _kind(item)
    return kind.endswith("_output") and kind != "program_output" and item.get("execution") != "server"


def _read_given(item: Any) -> Message:
    if not isinstance(item, dict):
        return Message("", extra={"raw": item})
    kind = _kind(item)
    if kind == "message":
        extra = _rest(item, {"type", "role", "content"})
        return Message(str(item.get("role") or ""), _as_content(item.get("content")), extra=extra)
    if not _is_result(item):
        call = text_or_none(item.get("approval_request_id"))
        return Message(str(item.get("role") or GIVEN.get(kind, "")), [item], tool_call_id=call)
    call = text_or_none(item.get("call_id"))
    if "output" not in item:
        return Message("tool", [item], tool_call_id=call)
    extra = _rest(item, {"output", "call_id", *({"type"} if kind in PLAIN else ())})
    return Message("tool", _as_content(item["output"]), tool_call_id=call, extra=extra)


def _kind(item: Any) -> str:
    """The type of an item. One with a role or a content and without a type is a message."""
    kind = table(item).get("type")
    if kind is None and ("role" in table(item) or "content" in table(item)):
        return "message"
    return str(kind or "")


def _as_content(value: Any) -> Any:
    return value if value is None or isinstance(value, str | list) else [value]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None or value == "" else [value]


def _thoughts(item: Mapping[str, Any]) -> Iterator[Any]:
    for part in (*_as_list(item.get("summary")), *_as_list(item.get("content"))):
        yield part.get("text") if isinstance(part, dict) else part


def _join(texts: Iterator[Any]) -> str | None:
    return "\n\n".join(text for text in texts if text and isinstance(text, str)) or None


def _rest(item: Mapping[str, Any], read: set[str]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in read and value is not None}

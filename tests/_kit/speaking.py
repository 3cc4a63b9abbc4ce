"""What a provider says in each dialect: one answer as its body and as its stream, written by hand, for a script.

Provider(speak("messages", text="Looking.", calls=[("toolu_1", "read", {"path": "a"})]))
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from _kit.provider import Reply

__all__ = ["DIALECTS", "speak"]

Call = tuple[str, str, Mapping[str, Any]]
Json = dict[str, Any]

DIALECTS = ("chat", "responses", "messages")


def speak(
    dialect: str,
    *,
    text: str = "",
    thinking: str = "",
    calls: Sequence[Call] = (),
    finish: str = "",
    model: str = "real-model",
) -> Reply:
    """Get an answer: 100 tokens read, of which 60 from a cache and 10 into it; 20 written, of which 5 thought."""
    return {"chat": _chat, "responses": _responses, "messages": _messages}[dialect](
        text, thinking, calls, finish, model
    )


def _halves(words: str) -> list[str]:
    middle = (len(words) + 1) // 2
    return [half for half in (words[:middle], words[middle:]) if half]


def _unnamed(values: Sequence[Json]) -> tuple[bytes, ...]:
    return tuple(f"data: {json.dumps(value)}\n\n".encode() for value in values)


def _named(values: Sequence[Json]) -> tuple[bytes, ...]:
    return tuple(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode() for value in values)


def _chat(text: str, thinking: str, calls: Sequence[Call], finish: str, model: str) -> Reply:
    reason = finish or ("tool_calls" if calls else "stop")
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    written = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in calls  # noqa: A001
    ]
    message: Json = {"role": "assistant", "content": text or None}
    message |= {"reasoning_content": thinking} if thinking else {}
    message |= {"tool_calls": written} if written else {}
    head: Json = {"id": "chatcmpl-abc", "created": 1_700_000_000, "model": model}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": half} for half in _halves(thinking)]
    deltas += [{"content": half} for half in _halves(text)]
    for place, call in enumerate(written):
        function: Json = call["function"]  # type: ignore[assignment]
        begun = {**call, "index": place, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        for half in _halves(function["arguments"]):
            deltas.append({"tool_calls": [{"index": place, "function": {"arguments": half}}]})
    head["object"] = "chat.completion.chunk"
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({**head, "choices": [], "usage": usage})
    return Reply(body=json.dumps(body).encode(), chunks=(*_unnamed(chunks), b"data: [DONE]\n\n"))


def _messages(text: str, thinking: str, calls: Sequence[Call], finish: str, model: str) -> Reply:
    reason = {"length": "max_tokens", "content_filter": "refusal"}.get(finish) or (
        "tool_use" if calls else "end_turn"
    )
    usage: Json = {
        "input_tokens": 30,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "output_tokens": 20,
    }
    usage["output_tokens_details"] = {"thinking_tokens": 5}
    content: list[Json] = (
        [{"type": "thinking", "thinking": thinking, "signature": "c2ln"}] if thinking else []
    )
    content += [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls]  # noqa: A001
    head: Json = {"id": "msg_abc", "type": "message", "role": "assistant", "model": model}
    stop = {"stop_reason": reason, "stop_sequence": None}
    body = {**head, "content": content, **stop, "usage": usage}
    begun = {
        **head,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    events: list[Json] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for place, block in enumerate(content):
        events += _block(place, block)
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20, **_details(usage)}})
    events.append({"type": "message_stop"})
    return Reply(body=json.dumps(body).encode(), chunks=_named(events))


def _details(usage: Json) -> Json:
    return {"output_tokens_details": usage["output_tokens_details"]}


def _block(place: int, block: Json) -> Iterator[Json]:
    kind = block["type"]
    empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[
        kind
    ]
    yield {"type": "content_block_start", "index": place, "content_block": {**block, **empty}}
    words = json.dumps(block["input"]) if kind == "tool_use" else block[kind]
    name, field = {
        "thinking": ("thinking_delta", "thinking"),
        "text": ("text_delta", "text"),
        "tool_use": ("input_json_delta", "partial_json"),
    }[kind]
    for half in _halves(words):
        yield {"type": "content_block_delta", "index": place, "delta": {"type": name, field: half}}
    if kind == "thinking":
        sign = {"type": "signature_delta", "signature": block["signature"]}
        yield {"type": "content_block_delta", "index": place, "delta": sign}
    yield {"type": "content_block_stop", "index": place}


def _responses(text: str, thinking: str, calls: Sequence[Call], finish: str, model: str) -> Reply:
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)
    usage = {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    output: list[Json] = []
    if thinking:
        summary = [{"type": "summary_text", "text": thinking}]
        output.append({"type": "reasoning", "id": "rs_abc", "summary": summary, "encrypted_content": "ZW5j"})
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        said = {"status": "completed", "role": "assistant", "content": [part]}
        output.append({"type": "message", "id": "msg_abc", **said})
    for place, (id, name, given) in enumerate(calls):  # noqa: A001
        call = {"call_id": id, "name": name, "arguments": json.dumps(given), "status": "completed"}
        output.append({"type": "function_call", "id": f"fc_{place}", **call})
    head: Json = {
        "id": "resp_abc",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": model,
        "error": None,
    }
    done = {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
    }
    body = {**head, **done, "output": output, "usage": usage}
    begun = {**head, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(output):
        events += _item(place, item)
    events.append({"type": f"response.{done['status']}", "response": body})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return Reply(body=json.dumps(body).encode(), chunks=_named(numbered))


def _item(place: int, item: Json) -> Iterator[Json]:
    where = {"item_id": item["id"], "output_index": place}
    empty: Json = {
        "reasoning": {"summary": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
    }[item["type"]]
    yield {
        "type": "response.output_item.added",
        "output_index": place,
        "item": {**item, **empty, "status": "in_progress"},
    }
    if item["type"] == "function_call":
        for half in _halves(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **where, "delta": half}
        yield {"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]}
    elif item["type"] == "message":
        inner = {**where, "content_index": 0}
        part = item["content"][0]
        yield {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}}
        for half in _halves(part["text"]):
            yield {"type": "response.output_text.delta", **inner, "delta": half}
        yield {"type": "response.output_text.done", **inner, "text": part["text"]}
        yield {"type": "response.content_part.done", **inner, "part": part}
    else:
        inner = {**where, "summary_index": 0}
        part = item["summary"][0]
        yield {"type": "response.reasoning_summary_part.added", **inner, "part": {**part, "text": ""}}
        for half in _halves(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **inner, "delta": half}
        yield {"type": "response.reasoning_summary_text.done", **inner, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **inner, "part": part}
    yield {"type": "response.output_item.done", "output_index": place, "item": item}

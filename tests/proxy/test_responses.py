"""Responses: what one call wrote is one message, a stream reads as its twin, and faults are what they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import aiohttp
import pytest
from _kit.behind import awaited, behind
from _kit.provider import Reply, replace, stream
from _kit.requests import read_request
from _kit.streams import read_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.dialects import known, route
from hotswap.dialects._errors import TYPES
from hotswap.messages import Answer, Message, ToolCall, Usage
from hotswap.proxy.events import EventReader

RESPONSES = known()["responses"]
read = partial(read_stream, RESPONSES)
PATCH = "*** Begin Patch\n*** Add File: note.txt\n+Grüße\u2028😀\n*** End Patch\n"
COUNTED = {
    "input_tokens": 90,
    "input_tokens_details": {"cached_tokens": 30},
    "output_tokens": 21,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 111,
}
SPENT = Usage(90, 21, 30, None, 8)


def write(*events: Mapping[str, Any]) -> bytes:
    numbered = [{"type": event["type"], "sequence_number": at, **event} for at, event in enumerate(events)]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered)


def response(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    """An answer in one piece."""
    usage = COUNTED if status in ("completed", "incomplete") else None
    made = {"id": "resp_1", "object": "response", "status": status, "model": "m-1", "output": list(output)}
    return {**made, "error": None, "incomplete_details": None, "usage": usage, **fields}


def message(*parts: Any, id: str = "msg_1", **fields: Any) -> dict[str, Any]:  # noqa: A002
    made = {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": list(parts)}
    return {**made, **fields}


def text(words: str, *annotations: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": list(annotations)}


def thought(*words: str, id: str = "rs_1", **fields: Any) -> dict[str, Any]:  # noqa: A002
    summary = [{"type": "summary_text", "text": word} for word in words]
    return {"id": id, "type": "reasoning", "summary": summary, **fields}


def call(id: str, name: str, arguments: str, **fields: Any) -> dict[str, Any]:  # noqa: A002
    made = {"id": f"fc_{id}", "type": "function_call", "status": "completed", "call_id": id, "name": name}
    return {**made, "arguments": arguments, **fields}


def freeform(id: str, name: str, given: str) -> dict[str, Any]:  # noqa: A002
    made = {"id": f"ctc_{id}", "type": "custom_tool_call", "status": "completed", "call_id": id, "name": name}
    return {**made, "input": given}


LOOK = call("call_A", "look", '{"at": "a"}', namespace="mcp__eyes")
RUN = call("call_B", "run", '{"cmd": "ls"}')
A = ToolCall("call_A", "look", '{"at": "a"}')
B = ToolCall("call_B", "run", '{"cmd": "ls"}')
FLAT = {"arguments": "function_call_arguments", "input": "custom_tool_call_input"}
GROWS = {
    "output_text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning_text", "text"),
    "summary_text": ("reasoning_summary_text", "text"),
}


def item_events(index: int, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events in which the API sends an item: begun empty, grown, done."""
    where = {"item_id": item.get("id"), "output_index": index}
    empty = {name: ([] if isinstance(value, list) else "") for name, value in item.items() if name in FIELDS}
    begun = {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for name, value in item.items():
        if name in FLAT and isinstance(value, str):
            yield from grow(FLAT[name], name, value, where)
        elif name in ("content", "summary"):
            for at, part in enumerate(value or ()):
                yield from part_events(name, part, {**where, f"{name}_index": at})
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


FIELDS = ("arguments", "input", "content", "summary")


def part_events(field: str, part: Mapping[str, Any], where: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind, name = GROWS[part["type"]]
    box = "response.content_part" if field == "content" else "response.reasoning_summary_part"
    bare = {**part, name: "", **({"annotations": []} if "annotations" in part else {})}
    yield {"type": f"{box}.added", **where, "part": bare}
    yield from grow(kind, name, part[name], where)
    for at, annotation in enumerate(part.get("annotations", ())):
        note = {**where, "annotation_index": at, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **note}
    yield {"type": f"{box}.done", **where, "part": dict(part)}


def grow(kind: str, name: str, value: str, where: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    half = len(value) // 2
    for delta in (value[:half], value[half:]):
        yield {"type": f"response.{kind}.delta", **where, "delta": delta}
    yield {"type": f"response.{kind}.done", **where, name: value}


def events(twin: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The stream that says the same as an answer in one piece."""
    begun = {**twin, "status": "in_progress", "output": [], "usage": None, "error": None}
    begun["incomplete_details"] = None
    grown = [event for at, item in enumerate(twin["output"]) for event in item_events(at, item)]
    first = [{"type": f"response.{word}", "response": begun} for word in ("created", "in_progress")]
    return [*first, *grown, {"type": f"response.{twin['status']}", "response": dict(twin)}]


TWINS = {
    "text": response(message(text("Grüße \u2028 😀"))),
    "annotations": response(message(text("See it.", {"type": "url_citation", "url": "http://x"}))),
    "a refusal": response(message({"type": "refusal", "refusal": "I will not."})),
    "reasoning": response(thought("two", "and two", encrypted_content="ZW5j"), message(text("4"))),
    "reasoning in full": response(
        thought(content=[{"type": "reasoning_text", "text": "hm"}]), message(text("4"))
    ),
    "parallel calls": response(LOOK, RUN),
    "a freeform call": response(freeform("call_P", "apply_patch", PATCH)),
    "text before calls": response(message(text("Both."), phase="commentary"), LOOK, RUN),
    "two messages": response(
        message(text("First."), phase="commentary"), RUN, message(text("Last."), id="msg_2")
    ),
    "arguments that are no JSON": response(call("c", "run", "{ls")),
    "a call that the program runs": response(
        {"id": "l1", "type": "local_shell_call", "call_id": "c", "action": {"type": "exec"}}
    ),
    "a search of the provider": response({"id": "ws_1", "type": "web_search_call"}, message(text("Found."))),
    "items from tomorrow": response({"id": "x", "type": "dream", "blob": [1]}, message(text("hi"), mood=1)),
    "cut by the token limit": response(
        message(text("and so")), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    ),
    "stopped by a filter": response(status="incomplete", incomplete_details={"reason": "content_filter"}),
    "incomplete for a reason from tomorrow": response(
        message(text("x")), status="incomplete", incomplete_details={"reason": "tide"}
    ),
    "failed half way": response(
        message(text("Par")), status="failed", error={"code": "server_error", "message": "sorry"}
    ),
    "nothing": response(usage=None),
}


def whole(twin: Mapping[str, Any]) -> Answer:
    return RESPONSES.read_answer(json.dumps(twin).encode())


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_a_stream_reads_as_its_twin_in_one_piece(twin: Mapping[str, Any]) -> None:
    assert read(write(*events(twin))) == whole(twin)


@settings(deadline=None)
@given(st.sampled_from(list(TWINS.values())), st.lists(st.integers(0, 6000), max_size=30))
def test_it_does_so_however_its_bytes_are_cut(twin: Mapping[str, Any], places: list[int]) -> None:
    assert read(write(*events(twin)), places=places) == whole(twin)


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_it_does_so_where_the_last_event_lists_no_items(twin: Mapping[str, Any]) -> None:
    *before, last = events(twin)
    last["response"] = {**last["response"], "output": []}
    assert read(write(*before, last)) == whole(twin)


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_it_does_so_where_only_the_last_event_lists_items(twin: Mapping[str, Any]) -> None:
    assert read(write(events(twin)[0], events(twin)[-1])) == whole(twin)


GROWN = ["text", "annotations", "a refusal", "reasoning in full", "parallel calls", "a freeform call"]


@pytest.mark.parametrize("name", GROWN)
@pytest.mark.parametrize("left", ["delta", "done"])
def test_deltas_alone_and_their_ends_alone_say_it_all(name: str, left: str) -> None:
    without = {"delta": "response.output_item.done", "done": ".delta"}[left]
    kept = [event for event in events(TWINS[name]) if not event["type"].endswith(without)]
    if left == "delta":
        kept = [event for event in kept if not event["type"].endswith((".done", "_part.added"))]
    kept[-1] = {**kept[-1], "response": {**kept[-1]["response"], "output": []}}
    answer, expected = read(write(*kept)), whole(TWINS[name])
    assert answer.messages[0].tool_calls == expected.messages[0].tool_calls
    assert answer.messages[0].text == expected.messages[0].text
    assert (answer.messages[0].refusal, answer.messages[0].reasoning) == (
        expected.messages[0].refusal,
        expected.messages[0].reasoning,
    )
    assert (answer.finish, answer.usage, answer.error) == (expected.finish, expected.usage, None)


def test_what_the_model_wrote_is_read_out_of_its_items() -> None:
    said = whole(TWINS["two messages"]).messages[0]
    assert said.text == "First.Last."
    assert said.tool_calls == (B,)
    assert said.content == [text("First."), RUN, text("Last.")]
    assert said.extra == {
        "messages": [
            {"id": "msg_1", "status": "completed", "phase": "commentary"},
            {"id": "msg_2", "status": "completed"},
        ]
    }
    answer = whole(TWINS["parallel calls"])
    assert answer.messages[0].tool_calls == (A, B)
    assert answer.messages[0].content == [LOOK, RUN]
    assert (answer.finish, answer.usage, answer.model, answer.id) == ("tool_calls", SPENT, "m-1", "resp_1")
    assert whole(TWINS["reasoning"]).messages[0].reasoning == "two\n\nand two"
    assert whole(TWINS["a refusal"]).messages[0].refusal == "I will not."
    assert whole(TWINS["a call that the program runs"]).messages[0].tool_calls == (
        ToolCall("c", "local_shell", '{"type": "exec"}'),
    )


def test_a_freeform_call_has_the_raw_text_and_its_result_belongs_to_it() -> None:
    said = read(write(*events(TWINS["a freeform call"]))).messages[0]
    assert said.tool_calls == (ToolCall("call_P", "apply_patch", PATCH),)
    result = {"type": "custom_tool_call_output", "call_id": "call_P", "output": "Done"}
    request = read_request(RESPONSES, {"input": [freeform("call_P", "apply_patch", PATCH), result]})
    assert request.messages[0].tool_calls == said.tool_calls
    assert request.messages[1] == Message(
        "tool", "Done", tool_call_id="call_P", extra={"type": "custom_tool_call_output"}
    )


def added(index: int | None, item: Any, step: str = "added") -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": f"response.output_item.{step}", **place, "item": item}


def arguments(index: int | None, id: str, delta: str) -> dict[str, Any]:  # noqa: A002
    place = {} if index is None else {"output_index": index}
    return {"type": "response.function_call_arguments.delta", **place, "item_id": id, "delta": delta}


def interleaved(first: int | None, second: int | None) -> list[dict[str, Any]]:
    return [
        added(first, {**LOOK, "arguments": ""}),
        added(second, {**RUN, "arguments": ""}),
        arguments(first, LOOK["id"], '{"at"'),
        arguments(second, RUN["id"], '{"cmd": '),
        arguments(first, LOOK["id"], ': "a"}'),
        arguments(second, RUN["id"], '"ls"}'),
    ]


def ended(*output: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": response(*output)}


ODD = {
    "interleaved": [*interleaved(0, 1), ended()],
    "all in place 0": [*interleaved(0, 0), ended()],
    "without a place": [*interleaved(None, None), ended()],
    "in place 0, one after the other": [
        added(0, {**LOOK, "arguments": ""}),
        added(0, LOOK, "done"),
        added(0, {**RUN, "arguments": ""}),
        added(0, RUN, "done"),
        ended(),
    ],
    "never announced": [added(0, LOOK, "done"), added(1, RUN, "done"), ended()],
    "finished out of order": [added(1, RUN, "done"), added(0, LOOK, "done"), ended()],
    "other ids in the list": [
        added(0, LOOK, "done"),
        added(1, RUN, "done"),
        ended({**LOOK, "id": "fc_x"}, {**RUN, "id": "fc_y"}),
    ],
    "another id in each event": [
        added(0, {**LOOK, "id": "a", "arguments": ""}),
        arguments(0, "b", LOOK["arguments"]),
        added(0, {**LOOK, "id": "c"}, "done"),
        added(1, RUN, "done"),
        ended(),
    ],
    "twice the same": [added(0, LOOK, "done"), added(1, {**LOOK, "id": "again"}, "done"), ended(LOOK, LOOK, RUN)],
    "one of them left out of the list": [added(0, LOOK, "done"), added(1, RUN, "done"), ended(RUN)],
    "finished without arguments": [
        *interleaved(0, 1),
        added(0, {**LOOK, "arguments": ""}, "done"),
        added(1, {**RUN, "arguments": None}, "done"),
        ended(),
    ],
    "listed without arguments": [*interleaved(0, 1), ended({**LOOK, "arguments": ""}, {**RUN, "arguments": ""})],
    "with a name only at the end": [
        added(0, LOOK, "done"),
        arguments(1, "call_B", '{"cmd": "ls"}'),
        {"type": "response.function_call_arguments.done", "output_index": 1, "name": "run"},
        ended(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("sent", ODD.values(), ids=ODD)
def test_every_way_to_stream_two_calls_gives_two_calls(sent: list[Any]) -> None:
    answer = read(write(*sent))
    assert answer.messages[0].tool_calls == (A, B)
    assert (answer.finish, answer.error) == ("tool_calls", None)


def test_a_call_that_is_listed_twice_is_one_call_also_in_one_piece() -> None:
    assert whole(response(LOOK, {**LOOK, "id": "again"})).messages[0].tool_calls == (A,)


def test_a_call_that_the_provider_answers_itself_is_none_for_the_program() -> None:
    ran = {"id": "s", "type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    answer = whole(
        response(ran, {"type": "shell_call_output", "call_id": "c", "output": []}, message(text("2")))
    )
    assert (answer.messages[0].tool_calls, answer.finish) == ((), "stop")


def half(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "arguments": "", "status": "in_progress"}


@pytest.mark.parametrize("sent", [[half(LOOK), LOOK], [LOOK, half(LOOK)]], ids=["half first", "half last"])
def test_of_two_items_of_one_call_the_finished_one_counts(sent: list[Any]) -> None:
    steps = ["added" if item["status"] == "in_progress" else "done" for item in sent]
    said = read(write(*(added(at, item, steps[at]) for at, item in enumerate(sent)))).messages[0]
    assert (said.tool_calls, said.extra) == ((A,), {"truncated": True})


def test_an_item_that_is_announced_after_its_end_stays_as_it_ended() -> None:
    said = read(write(added(0, LOOK, "done"), added(0, half(LOOK)))).messages[0]
    assert (said.tool_calls, said.extra) == ((A,), {"truncated": True})


def test_items_in_one_place_are_told_apart_by_their_kind_and_without_a_place_by_their_id() -> None:
    one, two = message(text("one")), message(text("two"), id="msg_2")
    for sent in ([added(0, one), added(0, RUN)], [added(None, one), added(None, two), added(None, RUN)]):
        said = read(write(*sent, ended())).messages[0]
        assert said.text == "onetwo"[: 3 * (len(sent) - 1)]
        assert said.tool_calls == (B,)


def test_text_and_annotations_that_came_in_pieces_alone_are_whole() -> None:
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    sent = [
        added(0, message(status="in_progress")),
        {"type": "response.output_text.done", **where, "text": "See."},
        {"type": "response.output_text.annotation.added", **where, "annotation": {"at": 1}},
        {"type": "response.output_text.annotation.added", **where, "annotation": {"at": 2}},
        ended(),
    ]
    said = read(write(*sent)).messages[0]
    assert said.content == [text("See.", {"at": 1}, {"at": 2})]
    assert said.extra == {"id": "msg_1", "status": "completed"}


def test_an_end_that_says_it_is_incomplete_is_no_completed_one() -> None:
    last = response(
        message(text("x")), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )
    assert read(write({"type": "response.completed", "response": last})).finish == "length"


def test_what_the_provider_ran_itself_belongs_to_what_the_model_wrote() -> None:
    ran = [
        {"type": "program", "call_id": "p", "code": "1"},
        {"type": "program_output", "call_id": "p", "result": "1"},
        {"type": "tool_search_call", "execution": "server"},
        {"type": "tool_search_output", "execution": "server", "tools": []},
    ]
    found = {"type": "tool_search_output", "execution": "client", "call_id": "t", "tools": []}
    first, second = RESPONSES.read_items([*ran, found])
    assert (first.items, first.messages[0].content) == (4, ran)
    assert second.messages == (Message("tool", [found], tool_call_id="t"),)


def test_a_message_that_is_plain_text_stays_plain_text() -> None:
    (group,) = RESPONSES.read_items([{"role": "assistant", "content": "hi"}])
    assert group.messages == (Message("assistant", "hi"),)


def progress(usage: Any) -> dict[str, Any]:
    return {"type": "response.in_progress", "response": {"usage": usage}}


def counted(usage: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": response(message(text("ok")), usage=usage)}


USAGES = {
    "in the last event": ([counted(COUNTED)], SPENT),
    "more with each event: the last counts": (
        [progress({"input_tokens": 90, "output_tokens": 1}), counted({"output_tokens": 2})],
        Usage(90, 2),
    ),
    "null in the end": ([progress({"input_tokens": 4}), counted(None)], Usage(4)),
    "never": ([counted(None)], Usage()),
    "in shapes that are no counts": (
        [counted({"input_tokens": "many", "output_tokens": True, "input_tokens_details": 3})],
        Usage(),
    ),
}


@pytest.mark.parametrize(("sent", "usage"), USAGES.values(), ids=USAGES)
def test_usage_is_what_was_said_last_and_absent_is_null(sent: list[Any], usage: Usage) -> None:
    assert read(write(*sent)).usage == usage


def failed(inside: Any, **outside: Any) -> list[dict[str, Any]]:
    return [{"type": "response.failed", "response": response(status="failed", error=inside), **outside}]


TOO_LONG = {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}
FAULTS = {
    "an error inside the response": (failed(TOO_LONG), ("context_length", False, "Your input")),
    "an error outside the response": (
        failed(None, error={"type": "server_error", "code": "upstream_error", "message": "No luck upstream"}),
        ("server", True, "No luck upstream"),
    ),
    "a failure without a reason": (failed(None), ("server", True, "does not say why")),
    "a limit of requests": (
        failed({"code": "rate_limit_exceeded", "message": "try again in 2s"}),
        ("rate_limit", True, "try again"),
    ),
    "an empty account": (
        failed({"code": "insufficient_quota", "message": "pay"}),
        ("rate_limit", False, "pay"),
    ),
    "a prompt that is refused": (
        failed({"code": "invalid_prompt", "message": "flagged"}),
        ("bad_request", False, "flagged"),
    ),
    "an overloaded provider": (
        failed({"code": "server_is_overloaded", "message": "later"}),
        ("overloaded", True, "later"),
    ),
    "an error event": (
        [{"type": "error", "code": "rate_limit_exceeded", "message": "slower", "param": None}],
        ("rate_limit", True, "slower"),
    ),
    "an error event with an object": (
        [{"type": "error", "error": {"type": "invalid_request_error", "message": "bad tool"}}],
        ("bad_request", False, "bad tool"),
    ),
    "an error event that says nothing": ([{"type": "error"}], ("server", True, "does not say why")),
    "an error event, then a failure without a reason": (
        [{"type": "error", "code": "invalid_prompt", "message": "flagged"}, *failed(None)],
        ("bad_request", False, "flagged"),
    ),
    "an end that is a failure after all": (
        [{"type": "response.completed", "response": response(status="failed", error=TOO_LONG)}],
        ("context_length", False, "Your input"),
    ),
    "no end": (events(TWINS["text"])[:-1], ("truncated", True, "before the answer was complete")),
    "nothing at all": ([], ("truncated", True, "before the answer was complete")),
    "an end without an answer": ([{"type": "response.completed", "response": {}}],
                                 ("empty", False, "holds nothing")),
    "a hollow message": (
        events(response(message(text("")), usage={"output_tokens": 0})),
        ("empty", False, "holds nothing"),
    ),
    "hollow thoughts": (events(response(thought(), usage=None)), ("empty", False, "holds nothing")),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_a_stream_is_a_provider_error_in_its_words(
    sent: Any, fault: tuple[str, bool, str]
) -> None:
    error = read(write(*sent)).error
    assert error is not None
    assert (error.type, error.retryable) == fault[:2]
    assert fault[2] in error.message


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'data: {"error": {"message": "queue full", "code": 503}}\n\n', "overloaded"),
        (b'event: error\ndata: {"message": "who?", "code": "invalid_api_key"}\n\n', "auth"),
        (b'data: [{"error": {"message": "x", "status": "UNAVAILABLE"}}]\n\n', "overloaded"),
        (b'event: response.output_text.delta\ndata: {"delta": "no ty', "truncated"),
        (b"data: [DONE]\n\n", "truncated"),
        (b"<html>Bad Gateway</html>", "truncated"),
    ],
)
def test_what_is_no_stream_of_this_dialect_is_a_fault_too(data: bytes, kind: str) -> None:
    error = read(data).error
    assert error is not None
    assert error.type == kind


def test_silence_that_the_model_chose_is_no_fault() -> None:
    assert whole(response(thought())).error is None
    assert whole(TWINS["stopped by a filter"]).error is None


def test_the_event_names_the_kind_where_its_data_does_not() -> None:
    sent = [{**event, "type": event["type"]} for event in events(TWINS["text"])]
    lines = []
    for event in sent:
        kind = event.pop("type")
        lines.append(f"event:{kind}\r\ndata:{json.dumps(event)}\r\n\r\n".encode())
    assert read(b": hello\r\n\r\n" + b"".join(lines)) == whole(TWINS["text"])


def test_an_answer_that_broke_off_keeps_what_came_and_no_usage() -> None:
    answer = read(write(*events(TWINS["text"])[:5]), cut="the connection broke")
    assert answer.messages[0].text == "Grüß"
    assert answer.messages[0].extra["truncated"] is True
    assert (answer.usage, answer.finish) == (Usage(), None)
    assert answer.error is not None
    assert (answer.error.type, answer.error.message) == ("truncated", "the connection broke")


def test_a_call_that_is_half_there_is_not_offered_as_a_call() -> None:
    patch = freeform("call_P", "apply_patch", PATCH)
    sent = [
        added(0, LOOK, "done"),
        added(1, patch, "done"),
        added(2, {**RUN, "arguments": "", "status": "in_progress"}),
        arguments(2, RUN["id"], '{"cmd'),
        added(3, {**patch, "call_id": "call_Q", "input": "", "status": "in_progress"}),
        {"type": "response.custom_tool_call_input.delta", "output_index": 3, "delta": "12"},
    ]
    said = read(write(*sent)).messages[0]
    assert said.tool_calls == (A, ToolCall("call_P", "apply_patch", PATCH))
    assert said.content == [LOOK, patch]
    assert said.extra["unfinished_calls"] == [
        {"id": "call_B", "name": "run", "arguments": '{"cmd'},
        {"id": "call_Q", "name": "apply_patch", "arguments": "12"},
    ]


def test_a_program_has_the_answer_with_the_event_that_ends_it_and_not_before() -> None:
    reader, assembler, seen = EventReader(), RESPONSES.assembler(), []
    for piece in reader.feed(write(*events(TWINS["parallel calls"]))):
        assert piece.event is not None
        assembler.feed(piece.event)
        seen.append((assembler.complete, assembler.ended))
    assert seen == [(False, False)] * (len(seen) - 1) + [(True, True)]
    failing = RESPONSES.assembler()
    for piece in EventReader().feed(write({"type": "error", "message": "no"})):
        assert piece.event is not None
        failing.feed(piece.event)
    assert (failing.complete, failing.ended) == (True, False)


BODIES = {
    "an error object": (
        {"error": {"code": "context_length_exceeded", "message": "too much"}},
        "context_length",
    ),
    "failed with a reason": (
        response(status="failed", error={"code": "server_error", "message": "x"}),
        "server",
    ),
    "failed without one": (response(status="failed"), "server"),
    "failed and nothing else": ({"status": "failed"}, "server"),
    "no output": ({"id": "resp_1", "status": "completed"}, "malformed"),
    "an output that is no list": (response() | {"output": "hi"}, "malformed"),
    "another dialect": ({"choices": [{"message": {"role": "assistant", "content": "hi"}}]}, "malformed"),
    "no object": ([], "malformed"),
    "empty": (response(usage=None), "empty"),
}


@pytest.mark.parametrize(("body", "kind"), BODIES.values(), ids=BODIES)
def test_a_success_that_is_none_is_a_typed_error(body: Any, kind: str) -> None:
    error = whole(body).error
    assert error is not None
    assert error.type == kind


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"nul"])
def test_a_success_that_is_no_json_is_malformed(body: bytes) -> None:
    error = RESPONSES.read_answer(body).error
    assert error is not None
    assert error.type == "malformed"


def test_an_answer_that_is_made_in_the_background_is_neither_there_nor_a_fault() -> None:
    answer = whole(response(status="queued"))
    assert (answer.messages, answer.finish, answer.error, answer.id) == ((), None, None, "resp_1")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "id", "item", "item_id", "call_id", "output", "output_index", "content", "status",
                 "summary", "arguments", "input", "delta", "part", "text", "usage", "error", "response", "name",
                 "annotation", "incomplete_details", "execution", "action"]
            ),
            inner,
        )
    ),
)  # fmt: skip
KINDS = st.sampled_from(
    [
        *(event["type"] for twin in TWINS.values() for event in events(twin)),
        "error",
        "response.done",
        "response.mcp_call_arguments.delta",
        "response.dream.delta",
        "keepalive",
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(KINDS, JUNK), max_size=6))
def test_no_answer_makes_the_reading_fail(values: list[tuple[str, Any]]) -> None:
    sent = [{**value, "type": kind} if isinstance(value, dict) else value for kind, value in values]
    data = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in sent)
    read(data)
    for kind, value in values:
        RESPONSES.read_answer(json.dumps(value).encode())
        whole(response(value, status=kind))
        list(RESPONSES.read_items([value, {"type": kind, "content": value}]))
        read_request(RESPONSES, {"input": value, "instructions": value, "tools": value})


QUESTION = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
RESULT = {
    "type": "function_call_output",
    "call_id": "call_B",
    "output": [{"type": "input_text", "text": "a.txt"}],
}


def test_a_request_is_read_as_it_was_sent() -> None:
    picture = {"type": "computer_screenshot", "image_url": "data:,"}
    offer = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    request = read_request(
        RESPONSES,
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                offer,
                {"type": "message", "role": "developer", "content": "Rules.", "id": "msg_0"},
                QUESTION,
                thought("hm"),
                {**message(text("Look:")), "phase": "commentary"},
                RUN,
                RESULT,
                {"type": "computer_call_output", "call_id": "c2", "output": picture},
                {"type": "dream", "x": 1},
                {"type": "mcp_approval_response", "approval_request_id": "r1", "approve": True},
                {"role": "oracle", "content": "?"},
                7,
            ],
            "tools": [{"type": "web_search"}],
            "previous_response_id": "resp_0",
            "max_output_tokens": 9,
            "reasoning": {"effort": "low"},
            "temperature": None,
            "store": False,
            "stream": True,
        },
    )
    roles = ["system", "developer", "developer", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [one.role for one in request.messages] == [*roles, "oracle", ""]
    assert request.messages[0] == Message("system", "Be brief.")
    assert request.messages[1].content == [offer]
    assert request.messages[2] == Message("developer", "Rules.", extra={"id": "msg_0"})
    said = request.messages[4]
    assert (said.text, said.reasoning, said.tool_calls) == ("Look:", "hm", (B,))
    assert said.content == [thought("hm"), text("Look:"), RUN]
    assert said.extra == {"id": "msg_1", "status": "completed", "phase": "commentary"}
    assert request.messages[5] == Message("tool", RESULT["output"], tool_call_id="call_B")
    assert request.messages[6].content == [picture]
    assert request.messages[7].content == [{"type": "dream", "x": 1}]
    assert request.messages[8].tool_call_id == "r1"
    assert request.messages[10].extra == {"raw": 7}
    assert (request.model, request.stream, request.tools) == ("m", True, ({"type": "web_search"},))
    assert request.sampling == {"max_output_tokens": 9, "reasoning": {"effort": "low"}}


def test_a_conversation_that_is_a_single_text_is_one_message_of_the_user() -> None:
    fields = {"input": "hello", "previous_response_id": "resp_0"}
    assert read_request(RESPONSES, fields).messages == (Message("user", "hello"),)
    assert RESPONSES.read_previous(fields) == "resp_0"
    assert RESPONSES.read_previous({"previous_response_id": None}) is None


def test_items_are_read_in_groups_and_a_run_at_the_end_is_open() -> None:
    groups = list(RESPONSES.read_items([QUESTION, thought("a"), LOOK, RUN, RESULT, message(text("x")), RUN]))
    assert [(group.items, group.open) for group in groups] == [(1, False), (3, False), (1, False), (2, True)]
    assert all(len(group.messages) == 1 for group in groups)
    assert (
        groups[1].messages
        == RESPONSES.read_answer(json.dumps(response(thought("a"), LOOK, RUN)).encode()).messages
    )


@pytest.mark.parametrize(
    ("fields", "sampling", "changes"),
    [
        ({"model": "m"}, {}, {}),
        ({"model": "other"}, {}, {"model": "m"}),
        ({"model": "m", "temperature": 0}, {"temperature": 0}, {}),
        ({"model": "m", "temperature": 1}, {"temperature": 0, "top_p": None}, {"temperature": 0}),
        ({"model": "m", "max_output_tokens": 9}, {"max_tokens": 5}, {"max_output_tokens": 5}),
        ({"model": "m"}, {"stop": ["x"], "seed": 1}, {}),
        ({"model": "m"}, {"effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"model": "m", "reasoning": {"effort": "low"}}, {"effort": "low"}, {}),
        (
            {"model": "m", "reasoning": {"summary": "auto", "effort": "high"}},
            {"effort": "low"},
            {"reasoning": {"summary": "auto", "effort": "low"}},
        ),
        ({"model": "m"}, {"extra": {"text": {"verbosity": "low"}}}, {"text": {"verbosity": "low"}}),
    ],
)
def test_only_what_the_run_sets_is_imposed(fields: Any, sampling: Any, changes: Any) -> None:
    assert RESPONSES.impose(fields, "m", sampling) == changes


def test_the_path_says_the_dialect_and_what_is_below_it_is_no_turn() -> None:
    for path in ("/v1/responses", "/responses", "/some/where/v1/responses"):
        assert route(path) == (RESPONSES, "/responses", True)
    for tail in (
        "/responses/compact",
        "/responses/input_tokens",
        "/responses/resp_1",
        "/responses/resp_1/cancel",
    ):
        assert route(f"/v1{tail}") == (RESPONSES, tail, False)
    assert route("/v1/responsesque") is None


def test_our_own_errors_are_in_the_words_of_the_api() -> None:
    error = json.loads(RESPONSES.write_error(400, "context_length", "too much"))["error"]
    assert error == {
        "message": "too much",
        "type": "invalid_request_error",
        "param": None,
        "code": "context_length_exceeded",
    }


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_an_error_of_ours_is_read_again_as_what_it_was(kind: str) -> None:
    inside = read(RESPONSES.write_error_event(kind, "so it is")).error
    assert inside is not None
    assert (inside.type, inside.message) == (kind, "so it is")
    outside = RESPONSES.read_error(502, RESPONSES.write_error(502, kind, "so it is"), {})
    assert (outside.type, outside.message) == (kind, "so it is")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("context_length", "context_length_exceeded"),
        ("rate_limit", "rate_limit_exceeded"),
        ("overloaded", "server_error"),
        ("truncated", "server_error"),
        ("auth", "invalid_prompt"),
        ("limit_reached", "invalid_prompt"),
    ],
)
def test_an_error_inside_a_stream_has_a_code_at_which_codex_goes_on_or_ends_as_it_should(
    kind: str, code: str
) -> None:
    (piece,) = EventReader().feed(RESPONSES.write_error_event(kind, "no more"))
    assert piece.event is not None
    assert piece.event.name == "response.failed"
    said = json.loads(piece.event.data)
    assert (said["type"], said["response"]["status"]) == ("response.failed", "failed")
    assert (said["response"]["error"]["code"], said["response"]["error"]["message"]) == (code, "no more")


def test_a_stream_is_kept_alive_by_an_event_that_changes_nothing() -> None:
    sent = write(*events(TWINS["reasoning"]))
    reader, assembler = EventReader(), RESPONSES.assembler()
    alive = [assembler.keep_alive()]
    for piece in reader.feed(sent)[:-1]:
        assert piece.event is not None
        assembler.feed(piece.event)
        alive.append(assembler.keep_alive())
    kept = [json.loads(EventReader().feed(one)[0].event.data) for one in alive]  # type: ignore[union-attr]
    assert {one["type"] for one in kept} == {"response.in_progress"}
    assert [one["response"]["id"] for one in kept] == ["resp_hotswap"] + ["resp_1"] * (len(kept) - 1)
    assert [one["sequence_number"] for one in kept] == [0, *range(len(kept) - 1)]
    pieces = [piece.raw for piece in EventReader().feed(sent)]
    mixed = b"".join(one + piece for one, piece in zip(alive, pieces, strict=True))
    assert read(mixed) == whole(TWINS["reasoning"])


SERVES = {"dialects": ("responses",)}


def reply(twin: Mapping[str, Any]) -> Reply:
    """An answer in both forms: the request's `stream` chooses."""
    return replace(stream([write(event) for event in events(twin)]), body=json.dumps(twin).encode())


@awaited
async def test_a_conversation_passes_the_proxy_and_is_one_path_of_the_trace() -> None:
    first, second = TWINS["text before calls"], TWINS["text"]
    asked = {"model": "shown", "stream": True, "instructions": "Be brief.", "input": [QUESTION]}
    results = [{**RESULT, "call_id": "call_A"}, RESULT]
    again = {**asked, "input": [QUESTION, *first["output"], *results]}
    async with behind(reply(first), reply(second), upstream=SERVES) as seat:
        said = await seat.send(asked, path="/v1/responses")
        assert said.body == write_each(first)
        assert (await seat.send({**again, "stream": None}, path="/v1/responses")).json == second
        assert [post.path for post in seat.provider.posts] == ["/v1/responses"] * 2
        assert seat.provider.posts[1].json == {**again, "stream": None}
        trace = seat.trace()
    roles = ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [node.role for node in trace.messages] == roles
    assert [node.parent for node in trace.messages] == [None, 0, 1, 2, 3, 4]
    assert trace.messages[2].tool_calls == [A, B]
    assert [one.finish for one in trace.calls] == ["tool_calls", "stop"]
    assert (trace.calls[0].dialect, trace.usage) == ("responses", SPENT + SPENT)


def write_each(twin: Mapping[str, Any]) -> bytes:
    return b"".join(write(event) for event in events(twin))


@awaited
async def test_a_stream_that_breaks_off_is_a_fault_of_the_provider_and_keeps_what_came() -> None:
    cut = replace(reply(TWINS["text before calls"]), cut=8, body=None)
    async with behind(cut, upstream=SERVES) as seat:
        with pytest.raises(aiohttp.ClientError):
            await seat.send({"model": "shown", "stream": True, "input": "go"}, path="/v1/responses")
        (record,) = seat.trace().calls
        assert record.error is not None
        assert (record.error.blame, record.error.type) == ("provider", "truncated")
        assert seat.trace().messages[-1].extra["truncated"] is True

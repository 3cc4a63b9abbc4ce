"""Anthropic's Messages: a stream reads as its twin in one piece, and faults are what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from _kit.behind import KEY, awaited, behind
from _kit.provider import Reply, stream
from _kit.requests import read_request
from _kit.streams import read_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.dialects import known, route
from hotswap.limits import Limits
from hotswap.messages import Message, ToolCall, Usage
from hotswap.proxy.events import EventReader

MESSAGES = known()["messages"]
read = partial(read_stream, MESSAGES)
USAGE = {
    "input_tokens": 9,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 2000,
    "output_tokens": 41,
}


def events(*values: Mapping[str, Any]) -> bytes:
    return b"".join(
        f"event: {value['type']}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
        for value in values
    )


def start(usage: Mapping[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    given = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [], **message}
    return {
        "type": "message_start",
        "message": {**given, "usage": {**USAGE, "output_tokens": 1, **(usage or {})}},
    }


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{type}_delta", **fields}}


def close(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(
    reason: str | None = "end_turn", usage: Mapping[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    counted = {"output_tokens": 41} if usage is None else usage
    return {"type": "message_delta", "delta": {"stop_reason": reason, **rest}, "usage": counted}


STOP = {"type": "message_stop"}
PING = {"type": "ping"}


def whole(*blocks: Mapping[str, Any], reason: str = "end_turn", **rest: Any) -> bytes:
    return json.dumps(
        {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": blocks,
         "stop_reason": reason, "usage": USAGE, **rest}
    ).encode()  # fmt: skip


TEXT = {"type": "text", "text": "Grüße \u2028 😀"}
THOUGHT = {"type": "thinking", "thinking": "Both, then.", "signature": "c2ln"}
LOOK = {"type": "tool_use", "id": "toolu_A", "name": "look", "input": {"at": "é"}}
NOW = {"type": "tool_use", "id": "toolu_B", "name": "now", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]}
CITED = {"type": "text", "text": "So.", "citations": [{"cited_text": "a"}, {"cited_text": "b"}]}

THINKING = (
    begin(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking", thinking="Both, "),
    delta(0, "thinking", thinking="then."),
    delta(0, "signature", signature="c2ln"),
    close(0),
)
STREAMS = {
    "text": (
        [start(), PING, begin(0, type="text", text=""), delta(0, "text", text="Grüße \u2028"),
         delta(0, "text", text=" 😀"), close(0), end(), STOP],
        whole(TEXT),
    ),
    "thinking, text, and two tools of which one takes nothing": (
        [start(), *THINKING, begin(1, type="text", text=""), delta(1, "text", text=TEXT["text"]), close(1),
         begin(2, type="tool_use", id="toolu_A", name="look", input={}), delta(2, "input_json", partial_json=""),
         delta(2, "input_json", partial_json='{"at"'), delta(2, "input_json", partial_json=': "é"}'), close(2),
         begin(3, type="tool_use", id="toolu_B", name="now", input={}), close(3), end("tool_use"), STOP],
        whole(THOUGHT, TEXT, LOOK, NOW, reason="tool_use"),
    ),
    "blocks side by side": (
        [start(), begin(0, **{**LOOK, "input": {}}), begin(1, **{**NOW, "input": {}}),
         delta(1, "input_json", partial_json="{}"), delta(0, "input_json", partial_json='{"at": '), close(1),
         delta(0, "input_json", partial_json='"é"}'), close(0), end("tool_use"), STOP],
        whole(LOOK, NOW, reason="tool_use"),
    ),
    "input in the start, as some servers send it": (
        [start(), begin(0, **LOOK), close(0), end("tool_use"), STOP],
        whole(LOOK, reason="tool_use"),
    ),
    "every block with the index 0": (
        [start(), begin(0, type="text", text=""), delta(0, "text", text=TEXT["text"]), close(0),
         begin(0, **{**NOW, "input": {}}), close(0), end("tool_use"), STOP],
        whole(TEXT, NOW, reason="tool_use"),
    ),
    "a tool that the provider runs": (
        [start(), begin(0, **{**SEARCH, "input": {}}), delta(0, "input_json", partial_json='{"query": "x"}'),
         close(0), begin(1, **FOUND), close(1), begin(2, type="text", text="", citations=[]),
         delta(2, "citations", citation={"cited_text": "a"}), delta(2, "text", text="So."),
         delta(2, "citations", citation={"cited_text": "b"}), close(2), end(), STOP],
        whole(SEARCH, FOUND, CITED),
    ),
    "a compaction": (
        [start(), begin(0, type="compaction", content=None),
         delta(0, "compaction", content="So far: hi.", encrypted_content="e"), close(0), end("compaction"), STOP],
        whole({"type": "compaction", "content": "So far: hi.", "encrypted_content": "e"}, reason="compaction"),
    ),
    "a block and a field from tomorrow": (
        [start(mood="calm"), begin(0, type="hologram", blob=1), close(0), end("paused_twice"), STOP],
        whole({"type": "hologram", "blob": 1}, reason="paused_twice", mood="calm"),
    ),
    "nothing, which the model chose": ([start(), end(), STOP], whole()),
    "a refusal": (
        [start(), end("refusal", stop_details={"type": "refusal", "explanation": "No."}), STOP],
        whole(reason="refusal", stop_details={"type": "refusal", "explanation": "No."}),
    ),
    "arguments that are no JSON": (
        [start(), begin(0, **{**LOOK, "input": {}}), delta(0, "input_json", partial_json='{"at": '), close(0),
         end("max_tokens"), STOP],
        whole({**LOOK, "input": '{"at": '}, reason="max_tokens"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "twin"), STREAMS.values(), ids=STREAMS)
def test_a_stream_reads_as_its_twin_in_one_piece(sent: list[Any], twin: bytes) -> None:
    answer = read(events(*sent))
    assert answer == MESSAGES.read_answer(twin)
    assert answer.error is None


@settings(deadline=None)
@given(st.sampled_from(list(STREAMS.values())), st.lists(st.integers(0, 2500), max_size=30))
def test_it_does_so_however_its_bytes_are_cut(case: tuple[list[Any], bytes], places: list[int]) -> None:
    data = events(*case[0])
    assert read(data, places=places) == MESSAGES.read_answer(case[1])
    assert read(data.replace(b"\n", b"\r\n").replace(b": ", b":"), places=places).error is None


def test_blocks_become_content_calls_and_reasoning() -> None:
    answer = MESSAGES.read_answer(whole(THOUGHT, TEXT, SEARCH, LOOK, NOW, reason="tool_use"))
    [message] = answer.messages
    assert message.role == "assistant"
    assert list(message.content or ()) == [THOUGHT, TEXT, SEARCH, LOOK, NOW]
    assert message.text == TEXT["text"]
    assert message.reasoning == "Both, then."
    assert message.tool_calls == (
        ToolCall("toolu_A", "look", '{"at": "é"}'),
        ToolCall("toolu_B", "now", "{}"),
    )
    assert (answer.finish, answer.model, answer.id) == ("tool_calls", "m-1", "msg_1")
    assert answer.usage == Usage(input=2109, output=41, cached=2000, cache_write=100)


def test_a_delta_of_tomorrow_is_kept_in_its_block() -> None:
    answer = read(
        events(start(), begin(0, type="text", text="hi"), delta(0, "mood", mood=1), close(0), end(), STOP)
    )
    assert list(answer.messages[0].content or ()) == [
        {"type": "text", "text": "hi", "deltas": [{"type": "mood_delta", "mood": 1}]}
    ]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "other"),
        ("paused_twice", "other"),
    ],
)
def test_why_it_stopped_is_said_in_our_words(reason: str, finish: str) -> None:
    assert MESSAGES.read_answer(whole(TEXT, reason=reason)).finish == finish


def test_a_reason_that_is_not_known_is_kept_as_it_was_said() -> None:
    [message] = MESSAGES.read_answer(whole(TEXT, reason="paused_twice")).messages
    assert message.extra == {"stop_reason": "paused_twice"}


def test_a_server_that_says_the_turn_ended_although_it_calls_a_tool_called_a_tool() -> None:
    assert MESSAGES.read_answer(whole(LOOK, reason="end_turn")).finish == "tool_calls"


ZERO = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_input_tokens": None,
    "cache_creation_input_tokens": None,
}
USAGES = {
    "counts of the start stay where the end says none": (None, {"output_tokens": 5}, Usage(2109, 5, 2000, 100)),
    "zeros of the start are overwritten": (
        ZERO,
        {"input_tokens": 120, "cache_read_input_tokens": 900, "output_tokens": 7},
        Usage(1020, 7, 900),
    ),
    "null at the end says nothing": (
        None,
        {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 7},
        Usage(2109, 7, 2000, 100),
    ),
    "thinking is a part of the output": (
        ZERO,
        {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
        Usage(0, 9, reasoning=4),
    ),
    "a compaction comes on top, the message itself does not": (
        ZERO,
        {"input_tokens": 10, "output_tokens": 2, "iterations": [
            {"type": "compaction", "input_tokens": 700, "cache_read_input_tokens": 50, "output_tokens": 30},
            {"type": "message", "input_tokens": 10, "output_tokens": 2}]},
        Usage(760, 32, 50),
    ),
    "the end says nothing: what the start says of output is a placeholder": (None, {}, Usage(2109, None, 2000, 100)),
    "in shapes that are no counts": (
        dict.fromkeys(ZERO, "many"), {"output_tokens": True, "iterations": {"type": "compaction"}}, Usage(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("first", "last", "usage"), USAGES.values(), ids=USAGES)
def test_the_last_value_counts_and_absent_is_null(first: Any, last: Any, usage: Usage) -> None:
    assert read(events(start(first), begin(0, **TEXT), close(0), end(usage=last), STOP)).usage == usage


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAULTS = {
    "an error alone": (events(OVERLOADED), ("overloaded", True, "Overloaded")),
    "an error after a beginning": (
        events(start(), begin(0, type="text", text=""), delta(0, "text", text="Par"), OVERLOADED),
        ("overloaded", True, "Overloaded"),
    ),
    "an error in the words of another API": (
        b'data: {"error": {"message": "prompt is too long: 9 tokens > 8 maximum", "code": 400}}\n\n',
        ("context_length", False, "prompt is too long"),
    ),
    "no end": (events(start(), begin(0, **TEXT), close(0), end()), ("truncated", True, "before the answer")),
    "half an event": (
        b'event: message_start\ndata: {"type": "mess',
        ("truncated", True, "before the answer"),
    ),
    "nothing at all": (b"", ("truncated", True, "before the answer was complete")),
    "a hollow success": (
        events(start(ZERO), end(usage={"output_tokens": 0}), STOP),
        ("empty", False, "holds nothing"),
    ),
    "a hollow block": (
        events(start(ZERO), begin(0, type="text", text=""), close(0), end(usage={"output_tokens": 0}), STOP),
        ("empty", False, "holds nothing"),
    ),
    "a delta without its block": (
        events(start(), delta(0, "text", text="Hi"), end(), STOP),
        ("malformed", False, "without the block's start"),
    ),
}


@pytest.mark.parametrize(("data", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_a_stream_is_a_provider_error_in_its_words(
    data: bytes, fault: tuple[str, bool, str]
) -> None:
    error = read(data).error
    assert error is not None
    assert (error.type, error.retryable) == fault[:2]
    assert fault[2] in error.message


def test_text_that_came_without_its_block_is_kept() -> None:
    answer = read(events(start(), delta(0, "text", text="H"), delta(0, "text", text="i"), end(), STOP))
    assert [message.text for message in answer.messages] == ["Hi"]


def test_a_call_that_is_half_there_is_not_offered_as_a_call() -> None:
    sent = [start(), begin(0, **{**LOOK, "input": {}}), delta(0, "input_json", partial_json='{"at": "é"}'), close(0),
            begin(1, **{**NOW, "input": {}}), delta(1, "input_json", partial_json='{"zo'),
            begin(2, **{**NOW, "id": "toolu_C", "input": {}})]  # fmt: skip
    answer = read(events(*sent), cut="the connection broke")
    [message] = answer.messages
    assert message.tool_calls == (ToolCall("toolu_A", "look", '{"at": "é"}'),)
    assert list(message.content or ()) == [LOOK]
    assert message.extra == {
        "truncated": True,
        "unfinished_calls": [
            {"id": "toolu_B", "name": "now", "arguments": '{"zo'},
            {"id": "toolu_C", "name": "now", "arguments": ""},
        ],
    }
    assert answer.usage.output is None


def test_the_answer_is_complete_with_its_reason_and_ends_with_its_last_event() -> None:
    assembler, seen = MESSAGES.assembler(), []
    for piece in EventReader().feed(events(start(), begin(0, **TEXT), close(0), end(), STOP)):
        assert piece.event is not None
        assembler.feed(piece.event)
        seen.append((assembler.complete, assembler.ended))
    assert seen == [(False, False)] * 3 + [(True, False), (True, True)]


def test_nothing_follows_an_error() -> None:
    assembler = MESSAGES.assembler()
    [piece] = EventReader().feed(events(OVERLOADED))
    assert piece.event is not None
    assembler.feed(piece.event)
    assert (assembler.complete, assembler.ended) == (True, True)


def test_a_stream_is_kept_alive_by_an_event_that_says_nothing() -> None:
    sent = MESSAGES.assembler().keep_alive()
    assert sent == b'event: ping\ndata: {"type": "ping"}\n\n'
    assert read(sent + events(*STREAMS["text"][0])).error is None


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"content": null}', b'{"choices": []}', b'"hi"']
)
def test_a_success_that_is_no_message_is_malformed(body: bytes) -> None:
    error = MESSAGES.read_answer(body).error
    assert error is not None
    assert error.type == "malformed"


def test_an_error_sent_as_a_success_is_an_error() -> None:
    error = MESSAGES.read_answer(json.dumps(OVERLOADED).encode()).error
    assert error is not None
    assert (error.type, error.status, error.message) == ("overloaded", 200, "Overloaded")
    assert MESSAGES.read_answer(whole(TEXT, error=None, message="of tomorrow")).error is None


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "content", "index", "delta", "usage", "message", "error", "input", "role"]
            ),
            inner | st.sampled_from(["tool_use", "tool_result", "thinking", "text", "text_delta"]),
        )
    ),
)
KINDS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "error",
]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), JUNK), max_size=6))
def test_no_answer_makes_the_reading_fail(values: list[tuple[str, Any]]) -> None:
    read(b"".join(f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode() for kind, value in values))
    read(events(*({**value, "type": kind} for kind, value in values if isinstance(value, dict))))
    for _, value in values:
        MESSAGES.read_answer(json.dumps(value).encode())
        assert sum(group.items for group in MESSAGES.read_items([value])) == 1
        read_request(MESSAGES, {"system": value, "messages": value, "tools": value})


RESULT = {"type": "tool_result", "tool_use_id": "toolu_A", "content": "done", "is_error": True}
BLOCKS = {"type": "tool_result", "tool_use_id": "toolu_B", "content": [{"type": "text", "text": "noon"}]}
REQUEST = {
    "model": "m",
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "Skills: none."},
        {"role": "assistant", "content": [THOUGHT, TEXT, LOOK, NOW]},
        {"role": "user", "content": [RESULT, BLOCKS, {"type": "text", "text": "Go on."}]},
        {"role": "oracle", "content": [{"type": "future_block", "payload": "x"}], "mood": 1},
    ],
    "tools": [{"name": "look"}],
    "max_tokens": 9,
    "temperature": None,
    "thinking": {"type": "adaptive"},
    "brand_new": True,
}


def test_a_request_is_read_as_it_was_sent() -> None:
    request = read_request(MESSAGES, REQUEST)
    system, user, late, said, first, second, rest, oracle = request.messages
    assert (system.role, system.content) == ("system", REQUEST["system"])
    assert user == Message("user", "hi")
    assert late == Message("system", "Skills: none.")
    assert (said.role, said.content, said.reasoning) == (
        "assistant",
        [THOUGHT, TEXT, LOOK, NOW],
        "Both, then.",
    )
    assert first == Message("tool", "done", tool_call_id="toolu_A", extra={"is_error": True})
    assert second == Message("tool", BLOCKS["content"], tool_call_id="toolu_B")
    assert rest == Message("user", [{"type": "text", "text": "Go on."}])
    assert oracle == Message("oracle", [{"type": "future_block", "payload": "x"}], extra={"mood": 1})
    assert (request.model, request.stream, request.tools) == ("m", False, ({"name": "look"},))
    assert request.sampling == {"max_tokens": 9, "thinking": {"type": "adaptive"}}


def test_a_system_prompt_is_one_message_however_it_is_written() -> None:
    assert MESSAGES.read_preamble({"system": "Be brief."}) == (Message("system", "Be brief."),)
    for nothing in (None, "", []):
        assert MESSAGES.read_preamble({"system": nothing}) == ()


def test_an_answer_that_is_sent_back_is_the_message_that_was_read() -> None:
    blocks = [THOUGHT, TEXT, LOOK, NOW]
    [answered] = MESSAGES.read_answer(whole(*blocks, reason="tool_use")).messages
    [group] = MESSAGES.read_items([{"role": "assistant", "content": blocks}])
    assert group.messages == (answered,)


@pytest.mark.parametrize(("said", "streams"), [({}, False), ({"stream": False}, False), ({"stream": None}, False),
                                               ({"stream": True}, True)])  # fmt: skip
def test_only_a_flag_that_is_true_asks_for_a_stream(said: dict[str, Any], streams: bool) -> None:
    assert MESSAGES.streams(said) is streams


@pytest.mark.parametrize(
    ("fields", "sampling", "changes"),
    [
        ({"model": "m"}, {}, {}),
        ({"model": "other"}, {}, {"model": "m"}),
        ({"model": "m", "temperature": 0}, {"temperature": 0, "top_p": None}, {}),
        ({"model": "m", "thinking": {"type": "enabled"}}, {"temperature": 0}, {"temperature": 0}),
        (
            {"model": "m", "max_tokens": 9},
            {"max_tokens": 5, "seed": 3, "top_k": 2},
            {"max_tokens": 5, "top_k": 2},
        ),
        ({"model": "m"}, {"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"model": "m", "stop_sequences": ["a"]}, {"stop": ("a", "b")}, {"stop_sequences": ["a", "b"]}),
        ({"model": "m"}, {"effort": "low"}, {"output_config": {"effort": "low"}}),
        (
            {"model": "m", "output_config": {"effort": "high", "format": {"type": "json_schema"}}},
            {"effort": "low"},
            {"output_config": {"effort": "low", "format": {"type": "json_schema"}}},
        ),
        ({"model": "m"}, {"extra": {"speed": "fast"}}, {"speed": "fast"}),
    ],
)
def test_only_what_the_run_sets_is_imposed(fields: Any, sampling: Any, changes: Any) -> None:
    assert MESSAGES.impose(fields, "m", sampling) == changes


def test_the_path_says_the_dialect_and_whether_it_is_a_turn() -> None:
    for path in ("/v1/messages", "/messages", "/some/where/v1/messages"):
        assert route(path) == (MESSAGES, "/messages", True)
    for tail in ("/messages/count_tokens", "/messages/batches", "/messages/batches/b_1/results"):
        assert route(f"/v1{tail}") == (MESSAGES, tail, False)
    assert route("/v1/messages/msg_1") is None


ERRORS = [
    (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "context_length", False),
    (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 8 > 10",
     "context_length", False),
    (400, "invalid_request_error", "max_tokens: field required", "bad_request", False),
    (401, "authentication_error", "invalid x-api-key", "auth", False),
    (403, "permission_error", "no", "auth", False),
    (404, "not_found_error", "model: m", "bad_request", False),
    (429, "rate_limit_error", "slow down", "rate_limit", True),
    (500, "api_error", "Internal server error", "server", True),
    (529, "overloaded_error", "Overloaded", "overloaded", True),
]  # fmt: skip


@pytest.mark.parametrize(("status", "word", "message", "kind", "retryable"), ERRORS)
def test_an_error_is_told_by_its_words(
    status: int, word: str, message: str, kind: str, retryable: bool
) -> None:
    body = json.dumps({"type": "error", "error": {"type": word, "message": message}}).encode()
    error = MESSAGES.read_error(status, body, {})
    assert (error.type, error.message, error.retryable) == (kind, message, retryable)


@pytest.mark.parametrize(
    ("status", "type", "word"),
    [
        (400, "limit_reached", "invalid_request_error"),
        (400, "bad_request", "invalid_request_error"),
        (400, "context_length", "invalid_request_error"),
        (400, "overloaded", "invalid_request_error"),
        (401, "auth", "authentication_error"),
        (401, "authentication_error", "authentication_error"),
        (413, "request_too_large", "request_too_large"),
        (429, "rate_limit", "rate_limit_error"),
        (504, "timeout", "timeout_error"),
        (529, "overloaded", "overloaded_error"),
        (502, "connection", "api_error"),
    ],
)
def test_our_own_errors_are_in_the_words_of_the_api(status: int, type: str, word: str) -> None:  # noqa: A002
    body = json.loads(MESSAGES.write_error(status, type, "no more"))
    assert (body["type"], body["error"]["type"]) == ("error", word)
    assert "no more" in body["error"]["message"]


@pytest.mark.parametrize(
    ("status", "type"),
    [(429, "rate_limit"), (529, "overloaded"), (401, "auth"), (400, "context_length"), (400, "bad_request"),
     (500, "server"), (504, "timeout")],
)  # fmt: skip
def test_an_error_that_we_wrote_is_read_as_what_it_was(status: int, type: str) -> None:  # noqa: A002
    assert MESSAGES.read_error(status, MESSAGES.write_error(status, type, "Sorry."), {}).type == type
    error = read(events(start()) + MESSAGES.write_error_event(type, "Sorry.")).error
    assert error is not None
    assert error.type == type


def test_a_request_that_is_too_long_is_said_to_be_so_once() -> None:
    said = json.loads(MESSAGES.write_error(400, "context_length", "Prompt is too long: 9 > 8"))["error"][
        "message"
    ]
    assert said == "Prompt is too long: 9 > 8"


UPSTREAM = {"dialects": ("messages",), "model": "real"}


@awaited
async def test_a_turn_goes_through_the_proxy_as_it_is() -> None:
    raw = json.dumps({**REQUEST, "model": "shown", "stream": True}).encode()
    sent = events(*STREAMS["thinking, text, and two tools of which one takes nothing"][0])
    async with behind(stream([sent[:700], sent[700:]]), upstream=UPSTREAM) as seat:
        secret = seat.session.secret()
        said = await seat.send(
            raw, path="/v1/messages?beta=true", **{"x-api-key": secret, "anthropic-beta": "b-1"}
        )
        [got] = seat.provider.requests
        trace = seat.trace()
    assert (got.path, got.query, got.body) == ("/v1/messages", "beta=true", raw.replace(b"shown", b"real"))
    assert (got.headers["x-api-key"], got.headers["anthropic-beta"]) == (KEY, "b-1")
    assert secret not in str(got)
    assert said.body == sent
    [call] = trace.calls
    assert (call.dialect, call.model, call.finish, call.error) == ("messages", "real", "tool_calls", None)
    assert call.usage == Usage(2109, 41, 2000, 100)
    assert trace.messages[call.outputs[0]].tool_calls == [
        ToolCall("toolu_A", "look", '{"at": "é"}'),
        ToolCall("toolu_B", "now", "{}"),
    ]


@awaited
async def test_a_program_that_sends_back_what_it_heard_stays_on_one_path() -> None:
    blocks = [THOUGHT, TEXT, LOOK]
    async with behind(
        Reply(body=whole(*blocks, reason="tool_use")), Reply(body=whole(TEXT)), upstream=UPSTREAM
    ) as seat:
        asked: list[Any] = [{"role": "user", "content": "hi"}]
        await seat.send({"model": "m", "max_tokens": 9, "messages": asked}, path="/v1/messages")
        asked += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [RESULT]}]
        await seat.send({"model": "m", "max_tokens": 9, "messages": asked}, path="/v1/messages")
        trace = seat.trace()
    assert [node.role for node in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert len(trace.branches) == 1


@pytest.mark.parametrize("said", [None, "2024-01-01"])
@awaited
async def test_the_version_is_said_where_the_program_says_none(said: str | None) -> None:
    async with behind(Reply(body=whole(TEXT)), upstream=UPSTREAM) as seat:
        headers = {} if said is None else {"Anthropic-Version": said}
        await seat.send({"model": "m", "messages": []}, path="/v1/messages", **headers)
        [got] = seat.provider.requests
    assert got.headers["anthropic-version"] == (said or "2023-06-01")


@awaited
async def test_a_program_over_its_limit_is_told_so_in_its_own_words() -> None:
    async with behind(Reply(body=whole(TEXT)), upstream=UPSTREAM, limits=Limits(turns=1)) as seat:
        await seat.send({"model": "m", "messages": []}, path="/v1/messages")
        said = await seat.send({"model": "m", "messages": []}, path="/v1/messages")
    assert said.status == 400
    assert said.json["error"]["type"] == "invalid_request_error"

"""Gemini: pieces of an answer read as their twin in one piece, and faults are what they are."""

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

GEMINI = known()["gemini"]
read = partial(read_stream, GEMINI)
USAGE = {"promptTokenCount": 100, "candidatesTokenCount": 5, "totalTokenCount": 112,
         "thoughtsTokenCount": 7, "cachedContentTokenCount": 80}  # fmt: skip
READ = Usage(input=100, output=12, cached=80, reasoning=7)
CALL = "/models/gemini-x:generateContent"
STREAM = "/models/gemini-x:streamGenerateContent"


def events(*values: Any) -> bytes:
    return b"".join(f"data: {json.dumps(value, ensure_ascii=False)}\r\n\r\n".encode() for value in values)


def piece(*parts: Any, reason: str | None = None, usage: Any = None, **candidate: Any) -> dict[str, Any]:
    """A piece of an answer, or all of it."""
    said = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **candidate}
    if reason is not None:
        said["finishReason"] = reason
    head = {
        "modelVersion": "gemini-x-001",
        "responseId": "r1",
        "usageMetadata": USAGE if usage is None else usage,
    }
    return {"candidates": [said], **head}


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}}


TEXT = {"text": "Grüße \u2028 😀"}
THOUGHT = {"text": "Both, then.", "thought": True}
LOOK, NOW = call("look", at="é"), call("now")
SIGNED = {**LOOK, "thoughtSignature": "c2ln"}
END = {"text": ""}

STREAMS = {
    "text": ([piece({"text": "Grüße "}), piece({"text": "\u2028 😀"}), piece(END, reason="STOP")],
             piece(TEXT, reason="STOP")),
    "the end comes with the last text": ([piece({"text": "Grüße "}), piece({"text": "\u2028 😀"}, reason="STOP")],
                                         piece(TEXT, reason="STOP")),
    "the end comes without parts": (
        [piece(TEXT), {"candidates": [{"finishReason": "STOP", "index": 0}], "usageMetadata": USAGE}],
        piece(TEXT, reason="STOP"),
    ),
    "thoughts, text, and two calls": (
        [piece({"text": "Both, ", "thought": True}), piece({"text": "then.", "thought": True}),
         piece({"text": "Grüße "}), piece({"text": "\u2028 😀"}, SIGNED), piece(NOW), piece(END, reason="STOP")],
        piece(THOUGHT, TEXT, SIGNED, NOW, reason="STOP"),
    ),
    "the same two calls are two": ([piece(NOW), piece(NOW, reason="STOP")], piece(NOW, NOW, reason="STOP")),
    "a signature after its text": (
        [piece(TEXT), piece({"text": "", "thoughtSignature": "c2ln"}, reason="STOP")],
        piece({**TEXT, "thoughtSignature": "c2ln"}, reason="STOP"),
    ),
    "text after a signature is another part": (
        [piece({**TEXT, "thoughtSignature": "c2ln"}), piece({"text": "More."}, reason="STOP")],
        piece({**TEXT, "thoughtSignature": "c2ln"}, {"text": "More."}, reason="STOP"),
    ),
    "parts of tomorrow": (
        [piece({"hologram": {"blob": 1}}), piece(TEXT, reason="STOP", mood="calm")],
        piece({"hologram": {"blob": 1}}, TEXT, reason="STOP"),
    ),
    "two candidates": (
        [piece({"text": "two"}, index=1), piece({"text": "o"}), piece({"text": "ne"}, reason="STOP"),
         piece(END, reason="STOP", index=1)],
        {**piece(), "candidates": [*piece({"text": "one"}, reason="STOP")["candidates"],
                                   *piece({"text": "two"}, reason="STOP", index=1)["candidates"]]},
    ),
    "a call that the model got wrong": (
        [{"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(", "index": 0}],
          **{key: value for key, value in piece().items() if key != "candidates"}}],
        piece(reason="MALFORMED_FUNCTION_CALL", finishMessage="print("),
    ),
    "a reason of tomorrow": ([piece(TEXT), piece(END, reason="PAUSED")], piece(TEXT, reason="PAUSED")),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "twin"), STREAMS.values(), ids=STREAMS)
def test_a_stream_reads_as_its_twin_in_one_piece(sent: list[Any], twin: Any) -> None:
    answer = read(events(*sent))
    assert answer == GEMINI.read_answer(json.dumps(twin).encode())
    assert answer.error is None


@pytest.mark.parametrize(("sent", "twin"), STREAMS.values(), ids=STREAMS)
def test_a_stream_that_is_one_list_reads_the_same(sent: list[Any], twin: Any) -> None:
    assert GEMINI.read_answer(json.dumps(sent).encode()) == read(events(*sent))


@settings(deadline=None)
@given(st.sampled_from(list(STREAMS.values())), st.lists(st.integers(0, 1500), max_size=30))
def test_it_does_so_however_its_bytes_are_cut(case: tuple[list[Any], Any], places: list[int]) -> None:
    twin = GEMINI.read_answer(json.dumps(case[1]).encode())
    assert read(events(*case[0]), places=places) == twin
    assert read(events(*case[0]).replace(b"\r", b"").replace(b"data: ", b"data:"), places=places) == twin


def test_parts_become_content_calls_and_reasoning() -> None:
    answer = GEMINI.read_answer(json.dumps(piece(THOUGHT, TEXT, SIGNED, NOW, reason="STOP")).encode())
    [message] = answer.messages
    assert (message.role, message.content) == ("assistant", [THOUGHT, TEXT, SIGNED, NOW])
    assert message.text == TEXT["text"]
    assert message.reasoning == "Both, then."
    assert message.tool_calls == (ToolCall("", "look", '{"at": "é"}'), ToolCall("", "now", "{}"))
    assert (answer.finish, answer.model, answer.id, answer.usage) == (
        "tool_calls",
        "gemini-x-001",
        "r1",
        READ,
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "other"),
        ("PAUSED", "other"),
        (None, None),
    ],
)
def test_why_it_finished_is_said_in_our_words(reason: str | None, finish: str | None) -> None:
    answer = GEMINI.read_answer(json.dumps(piece(TEXT, reason=reason)).encode())
    assert (answer.finish, answer.error) == (finish, None)


def test_a_reason_that_is_not_known_is_kept_as_it_was_said() -> None:
    answer = read(events(*STREAMS["a call that the model got wrong"][0]))
    assert answer.messages[0].extra == {
        "finishReason": "MALFORMED_FUNCTION_CALL",
        "finishMessage": "print(",
    }
    assert read(events(piece(TEXT, reason="PAUSED"))).messages[0].extra == {"finishReason": "PAUSED"}


@pytest.mark.parametrize(
    ("feedback", "words"),
    [
        ({"blockReason": "SAFETY"}, "SAFETY"),
        ({"blockReason": "OTHER", "blockReasonMessage": "Not this."}, "Not this."),
    ],
)
def test_a_prompt_that_is_blocked_is_a_refusal(feedback: dict[str, Any], words: str) -> None:
    body = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 4}}
    for answer in (read(events(body)), GEMINI.read_answer(json.dumps(body).encode())):
        assert answer.messages == (Message("assistant", refusal=words),)
        assert (answer.finish, answer.error, answer.usage) == ("content_filter", None, Usage(4))


def test_an_answer_that_was_filtered_says_why_where_the_provider_does() -> None:
    [message] = read(events(piece(reason="SAFETY", finishMessage="Unsafe."))).messages
    assert message.refusal == "Unsafe."


USAGES = {
    "the last value counts": (
        [
            {"promptTokenCount": 9, "candidatesTokenCount": 1},
            {"promptTokenCount": 9, "candidatesTokenCount": 4},
        ],
        Usage(9, 4),
    ),
    "null says nothing": ([USAGE, {"promptTokenCount": None}], READ),
    "thoughts alone": ([{"promptTokenCount": 9, "thoughtsTokenCount": 41}], Usage(9, 41, reasoning=41)),
    "what the provider's tools gave to the model": (
        [{"promptTokenCount": 9, "toolUsePromptTokenCount": 30, "candidatesTokenCount": 2}],
        Usage(39, 2),
    ),
    "never": ([{}], Usage()),
    "in shapes that are no counts": ([{"promptTokenCount": "many", "candidatesTokenCount": True}], Usage()),
}


@pytest.mark.parametrize(("sent", "usage"), USAGES.values(), ids=USAGES)
def test_usage_is_counted_once_and_absent_is_null(sent: list[Any], usage: Usage) -> None:
    pieces = [piece(TEXT, usage=one) for one in sent]
    assert read(events(*pieces, piece(END, reason="STOP", usage={}))).usage == usage


LATER = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
LONG = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
FAULTS = {
    "an error alone": (events(LATER), ("overloaded", True, "overloaded")),
    "an error in a list": (events([LATER]), ("overloaded", True, "overloaded")),
    "an error after a beginning": (events(piece({"text": "Par"}), LATER), ("overloaded", True, "overloaded")),
    "an error beside an answer": (
        events({**piece({"text": "Par"}), **LATER}),
        ("overloaded", True, "overloaded"),
    ),
    "too long a prompt": (
        events({"error": {"code": 400, "message": LONG, "status": "INVALID_ARGUMENT"}}),
        ("context_length", False, LONG),
    ),
    "no end": (events(piece({"text": "Half"})), ("truncated", True, "before the answer was complete")),
    "half an event": (b'data: {"candidates": [{"con', ("truncated", True, "before the answer was complete")),
    "nothing at all": (b"", ("truncated", True, "before the answer was complete")),
    "a hollow success": (
        events(piece(END, reason="STOP", usage={"promptTokenCount": 9})),
        ("empty", False, "holds nothing"),
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


def test_of_an_answer_that_broke_off_what_came_is_kept() -> None:
    answer = read(events(piece({"text": "Ha"}), piece({"text": "lf"})), cut="the connection broke")
    assert [(message.text, message.extra) for message in answer.messages] == [("Half", {"truncated": True})]
    assert read(events(piece(END)), cut="the connection broke").messages == ()


def test_a_list_without_its_end_is_an_answer_that_broke_off() -> None:
    error = GEMINI.read_answer(json.dumps([piece({"text": "Half"})]).encode()).error
    assert error is not None
    assert error.type == "truncated"


def test_the_answer_is_complete_with_its_reason_and_ends_with_its_bytes() -> None:
    assembler, seen = GEMINI.assembler(), []
    for one in EventReader().feed(events(piece({"text": "a"}), piece(END, reason="STOP"), LATER)):
        assert one.event is not None
        assembler.feed(one.event)
        seen.append((assembler.complete, assembler.ended))
    assert seen == [(False, False), (True, False), (True, True)]
    assert assembler.keep_alive() == b""


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"candidates": null}', b'{"candidates": [1]}', b'"a"']
)
def test_a_success_that_is_no_answer_is_malformed(body: bytes) -> None:
    error = GEMINI.read_answer(body).error
    assert error is not None
    assert error.type == "malformed"


@pytest.mark.parametrize("body", [LATER, [LATER]])
def test_an_error_sent_as_a_success_is_an_error(body: Any) -> None:
    error = GEMINI.read_answer(json.dumps(body).encode()).error
    assert error is not None
    assert (error.type, error.status) == ("overloaded", 200)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "candidates",
                    "content",
                    "parts",
                    "text",
                    "thought",
                    "functionCall",
                    "functionResponse",
                    "index",
                    "error",
                    "details",
                    "usageMetadata",
                    "promptFeedback",
                    "blockReason",
                    "finishReason",
                ]
            ),
            inner,
        )
    ),
)


@settings(deadline=None)
@given(st.lists(JUNK, max_size=4))
def test_no_answer_makes_the_reading_fail(values: list[Any]) -> None:
    read(events(*values))
    read(events(*({"candidates": [{"content": {"parts": value}}, value]} for value in values)))
    GEMINI.read_answer(json.dumps(values).encode())
    for value in values:
        body = json.dumps(value).encode()
        GEMINI.read_answer(body)
        GEMINI.read_error(500, body, {})
        assert sum(group.items for group in GEMINI.read_items([value])) == 1
        read_request(GEMINI, {"systemInstruction": value, "contents": value, "generationConfig": value})


GOT = {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "a"}}}
NAMELESS = {"functionResponse": {"name": "now", "response": {"output": "noon"}}}
CONFIG = {"temperature": 1, "topP": 0.95, "thinkingConfig": {"includeThoughts": True}, "seed": None}
REQUEST = {
    "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
    "contents": [
        {
            "role": "user",
            "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
        },
        {"role": "model", "parts": [THOUGHT, SIGNED, NOW]},
        {"role": "user", "parts": [GOT, NAMELESS, {"text": "Go on."}]},
        {"role": "oracle", "parts": [{"hologram": 1}], "mood": 1},
    ],
    "tools": [{"functionDeclarations": [{"name": "look"}]}],
    "generationConfig": CONFIG,
    "brand_new": True,
}


def test_a_request_is_read_as_it_was_sent() -> None:
    request = read_request(GEMINI, REQUEST, STREAM)
    system, user, said, first, second, rest, oracle = request.messages
    assert system == Message("system", [{"text": "Be brief."}])
    assert user == Message("user", REQUEST["contents"][0]["parts"])  # type: ignore[index]
    assert (said.role, said.content, said.reasoning) == ("assistant", [THOUGHT, SIGNED, NOW], "Both, then.")
    assert first == Message("tool", [GOT], tool_call_id="c1")
    assert second == Message("tool", [NAMELESS], tool_call_id="now")
    assert rest == Message("user", [{"text": "Go on."}])
    assert oracle == Message("oracle", [{"hologram": 1}], extra={"mood": 1})
    assert (request.model, request.stream) == ("gemini-x", True)
    assert request.tools == tuple(REQUEST["tools"])  # type: ignore[arg-type]
    assert request.sampling == {name: value for name, value in CONFIG.items() if name != "seed"}


def test_both_spellings_of_a_name_are_read() -> None:
    request = read_request(
        GEMINI,
        {
            "system_instruction": {"parts": {"text": "Be brief."}},
            "contents": [
                {"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]},
                {"role": "function", "parts": [{"function_response": {"name": "look"}}]},
            ],
            "generation_config": {"top_k": 3},
        },
        CALL,
    )
    assert [message.role for message in request.messages] == ["system", "assistant", "tool"]
    assert request.messages[0].text == "Be brief."
    assert request.messages[1].tool_calls == (ToolCall("", "look", "{}"),)
    assert request.messages[2].tool_call_id == "look"
    assert request.sampling == {"top_k": 3}


def test_a_content_without_parts_is_a_message_that_says_nothing() -> None:
    [group] = GEMINI.read_items([{"role": "user"}])
    assert group.messages == (Message("user", []),)


def test_a_conversation_that_is_a_single_content_is_read() -> None:
    request = read_request(GEMINI, {"contents": {"role": "user", "parts": {"text": "hi"}}}, CALL)
    assert request.messages == (Message("user", [{"text": "hi"}]),)


@pytest.mark.parametrize(
    ("path", "model", "streams"),
    [
        ("/v1beta/models/gemini-x:generateContent", "gemini-x", False),
        ("/v1/models/gemini-x:streamGenerateContent", "gemini-x", True),
        ("/models/gemini-x%3AgenerateContent", "gemini-x", False),
        ("/some/where/v1beta/models/org/name:8b:streamGenerateContent", "org/name:8b", True),
        ("/v1beta/models/org%2Fname:generateContent", "org/name", False),
        ("/v1beta/tunedModels/mine:generateContent", "mine", False),
    ],
)
def test_the_path_says_the_dialect_the_model_and_the_stream(path: str, model: str, streams: bool) -> None:
    found = route(path)
    assert found is not None
    assert (found.dialect, found.turn) == (GEMINI, True)
    assert path.endswith(found.tail)
    assert GEMINI.read_model({}, found.tail) == model
    assert GEMINI.streams({}, found.tail) is streams


def test_a_route_that_is_no_turn_is_known_as_one_of_gemini() -> None:
    for verb in ("countTokens", "embedContent", "batchEmbedContents"):
        assert route(f"/v1beta/models/gemini-x:{verb}") == (GEMINI, f"/models/gemini-x:{verb}", False)
    assert route("/v1beta/models/gemini-x:paint") is None
    assert route("/v1beta/models") is None


@pytest.mark.parametrize(
    ("tail", "model", "address"),
    [
        (CALL, "gemini-x", CALL),
        (CALL, "", CALL),
        ("/models/org/name:generateContent", "org/name", "/models/org/name:generateContent"),
        ("/tunedModels/mine:generateContent", "mine", "/tunedModels/mine:generateContent"),
        (STREAM, "gemini-y", "/models/gemini-y:streamGenerateContent"),
        (STREAM, "models/gemini-y", "/models/gemini-y:streamGenerateContent"),
        (CALL, "org/name:8b", "/models/org%2Fname%3A8b:generateContent"),
    ],
)
def test_the_model_of_the_run_goes_into_the_path(tail: str, model: str, address: str) -> None:
    assert GEMINI.address(tail, model) == address
    assert GEMINI.read_model({}, GEMINI.address(tail, model)) == model.removeprefix("models/") or not model


@pytest.mark.parametrize(
    ("fields", "sampling", "changes"),
    [
        ({}, {}, {}),
        ({}, {"effort": "low"}, {}),
        ({"generationConfig": {"topK": 3}}, {"temperature": 0, "top_p": None},
         {"generationConfig": {"topK": 3, "temperature": 0}}),
        ({"generationConfig": {"temperature": 0}}, {"temperature": 0}, {}),
        ({}, {"max_tokens": 5, "seed": 3, "top_p": 0.5, "stop": "END"},
         {"generationConfig": {"maxOutputTokens": 5, "seed": 3, "topP": 0.5, "stopSequences": ["END"]}}),
        ({"generation_config": {"max_output_tokens": 9}}, {"max_tokens": 5},
         {"generation_config": {"max_output_tokens": 5}}),
        ({}, {"extra": {"safetySettings": []}}, {"safetySettings": []}),
    ],
)  # fmt: skip
def test_only_what_the_run_sets_is_imposed(fields: Any, sampling: Any, changes: Any) -> None:
    assert GEMINI.impose(fields, "m", sampling) == changes


def failure(message: str = "x", status: str = "", **detail: Any) -> bytes:
    return json.dumps({"error": {"message": message, "status": status, "details": [detail]}}).encode()


ERRORS = [
    (400, failure(LONG, "INVALID_ARGUMENT"), "context_length", False, None),
    (400, failure("No tools for you.", "INVALID_ARGUMENT"), "bad_request", False, None),
    (400, failure("API key not valid.", "INVALID_ARGUMENT", reason="API_KEY_INVALID"), "auth", False, None),
    (403, failure("No.", "PERMISSION_DENIED"), "auth", False, None),
    (404, failure("models/m is not found", "NOT_FOUND"), "bad_request", False, None),
    (429, failure("Slow down.", "RESOURCE_EXHAUSTED", retryDelay="34.5s"), "rate_limit", True, 34.5),
    (429, failure("Enough.", "RESOURCE_EXHAUSTED", violations=[{"quotaId": "RequestsPerDay"}]),
     "rate_limit", False, None),
    (429, b'[{"error": {"code": 429, "message": "Slow down."}}]', "rate_limit", True, None),
    (500, failure("Oops.", "INTERNAL"), "server", True, None),
    (503, json.dumps(LATER).encode(), "overloaded", True, None),
    (502, b"<html>Bad Gateway</html>", "server", True, None),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "retryable", "wait_s"), ERRORS)
def test_an_error_is_told_by_its_status_and_its_details(
    status: int, body: bytes, kind: str, retryable: bool, wait_s: float | None
) -> None:
    error = GEMINI.read_error(status, body, {})
    assert (error.type, error.retryable, error.retry_after_s) == (kind, retryable, wait_s)


def test_the_time_to_wait_in_a_header_comes_first() -> None:
    assert GEMINI.read_error(429, failure(retryDelay="34s"), {"retry-after": "2"}).retry_after_s == 2.0


@pytest.mark.parametrize(
    ("status", "type", "word"),
    [
        (400, "limit_reached", "INVALID_ARGUMENT"),
        (400, "overloaded", "INVALID_ARGUMENT"),
        (401, "authentication_error", "UNAUTHENTICATED"),
        (413, "request_too_large", "INVALID_ARGUMENT"),
        (502, "connection", "INTERNAL"),
    ],
)
def test_our_own_errors_are_in_the_words_of_the_api(status: int, type: str, word: str) -> None:  # noqa: A002
    error = json.loads(GEMINI.write_error(status, type, "no more"))["error"]
    assert error == {"code": status, "message": "no more", "status": word}


@pytest.mark.parametrize(
    ("status", "type"),
    [(429, "rate_limit"), (503, "overloaded"), (401, "auth"), (400, "context_length"), (400, "bad_request"),
     (500, "server"), (504, "timeout")],
)  # fmt: skip
def test_an_error_that_we_wrote_is_read_as_what_it_was(status: int, type: str) -> None:  # noqa: A002
    assert GEMINI.read_error(status, GEMINI.write_error(status, type, "Sorry."), {}).type == type
    error = read(events(piece({"text": "Par"})) + GEMINI.write_error_event(type, "Sorry.")).error
    assert error is not None
    assert error.type == type


UPSTREAM: Mapping[str, Any] = {"dialects": ("gemini",), "model": "real/one"}


@awaited
async def test_a_turn_goes_through_the_proxy_as_it_is() -> None:
    raw, sent = json.dumps(REQUEST).encode(), events(*STREAMS["thoughts, text, and two calls"][0])
    async with behind(stream([sent[:300], sent[300:]]), upstream=UPSTREAM) as seat:
        secret = seat.session.secret()
        said = await seat.send(raw, path=f"/v1beta{STREAM}?alt=sse", **{"x-goog-api-key": secret})
        [got] = seat.provider.requests
        trace = seat.trace()
    assert (got.path, got.query, got.body) == ("/v1/models/real/one:streamGenerateContent", "alt=sse", raw)
    assert got.headers["x-goog-api-key"] == KEY
    assert secret not in str(got)
    assert said.body == sent
    [call] = trace.calls
    assert (call.dialect, call.model, call.usage) == ("gemini", "real/one", READ)
    assert (call.finish, call.error) == ("tool_calls", None)
    assert trace.messages[call.outputs[0]].text == TEXT["text"]


@awaited
async def test_a_stream_that_is_one_list_goes_through_as_it_is() -> None:
    sent = json.dumps(STREAMS["thoughts, text, and two calls"][0], indent=1).encode()
    async with behind(Reply(body=sent), upstream=UPSTREAM) as seat:
        said = await seat.send(REQUEST, path=f"/v1beta{STREAM}")
        [call] = seat.trace().calls
    assert said.body == sent
    assert (call.finish, call.error, call.usage) == ("tool_calls", None, READ)


@awaited
async def test_a_program_that_sends_back_what_it_heard_stays_on_one_path() -> None:
    replies = [
        Reply(body=json.dumps(piece(*parts, reason="STOP")).encode()) for parts in ([TEXT, LOOK], [TEXT])
    ]
    async with behind(*replies, upstream=UPSTREAM) as seat:
        asked: list[Any] = [{"role": "user", "parts": [{"text": "hi"}]}]
        await seat.send({"contents": asked}, path=f"/v1beta{CALL}")
        asked += [{"role": "model", "parts": [TEXT, LOOK]}, {"role": "user", "parts": [GOT]}]
        await seat.send({"contents": asked}, path=f"/v1beta{CALL}")
        trace = seat.trace()
    assert [node.role for node in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert len(trace.branches) == 1


@awaited
async def test_a_program_over_its_limit_is_told_so_in_its_own_words() -> None:
    answer = Reply(body=json.dumps(piece(TEXT, reason="STOP")).encode())
    async with behind(answer, upstream=UPSTREAM, limits=Limits(turns=1)) as seat:
        await seat.send(REQUEST, path=f"/v1beta{CALL}")
        said = await seat.send(REQUEST, path=f"/v1beta{CALL}")
    assert (said.status, said.json["error"]["status"]) == (400, "INVALID_ARGUMENT")

"""Chat Completions: a stream reads as its twin in one piece, and faults are what they are."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from _kit.provider import Reply, call_tools, chat, say
from _kit.requests import read_request
from _kit.streams import read_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.dialects import known, route
from hotswap.messages import Message, ToolCall, Usage

CHAT = known()["chat"]
read = partial(read_stream, CHAT)
A = ToolCall("call_A", "look", '{"at": "a"}')
B = ToolCall("call_B", "run", '{"cmd": "ls"}')


def chunks(*values: Any, done: bool = True) -> bytes:
    lines = [b"data: " + json.dumps(value).encode() + b"\n\n" for value in values]
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def part(index: int | None, id: str | None, name: str | None, arguments: str) -> dict[str, Any]:  # noqa: A002
    given = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return delta(tool_calls=[{name: value for name, value in given.items() if value is not None}])


TWINS = {
    "text": say("Grüße \u2028 😀"),
    "reasoning": say("four", reasoning_content="two and two"),
    "refusal": say("", refusal="I will not."),
    "one call": call_tools(("call_1", "bash", {"command": "ls"})),
    "parallel calls": call_tools(("c1", "a", {"x": "é"}), ("c2", "b", "{not json"), text="Both."),
    "no usage": say("hi", usage=None),
    "length": chat({"role": "assistant", "content": "and so"}, finish="length"),
    "a finish from tomorrow": chat({"role": "assistant", "content": "x"}, finish="paused"),
    "a field from tomorrow": say("x", mood="calm"),
}


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_a_stream_reads_as_its_twin_in_one_piece(twin: Reply) -> None:
    assert read(b"".join(twin.chunks or ())) == CHAT.read_answer(twin.body or b"")


@settings(deadline=None)
@given(st.sampled_from(list(TWINS.values())), st.lists(st.integers(0, 2000), max_size=30))
def test_it_does_so_however_its_bytes_are_cut(twin: Reply, places: list[int]) -> None:
    assert read(b"".join(twin.chunks or ()), places=places) == CHAT.read_answer(twin.body or b"")


CALLS = {
    "interleaved": [
        part(0, "call_A", "look", ""),
        part(1, "call_B", "run", ""),
        part(0, None, None, '{"at"'),
        part(1, None, None, '{"cmd": '),
        part(0, None, None, ': "a"}'),
        part(1, None, None, '"ls"}'),
    ],
    "all with index 0": [
        part(0, "call_A", "look", '{"at": '),
        part(0, None, None, '"a"}'),
        part(0, "call_B", "run", '{"cmd": "ls"}'),
    ],
    "without an index": [part(None, "call_A", "look", A.arguments), part(None, "call_B", "run", B.arguments)],
    "id and name in every chunk": [
        part(0, "call_A", "look", '{"at"'),
        part(0, "call_A", "look", ': "a"}'),
        part(1, "call_B", "run", B.arguments),
    ],
    "back to an earlier call": [
        part(0, "call_A", "look", '{"at"'),
        part(0, "call_B", "run", B.arguments),
        part(0, "call_A", None, ': "a"}'),
    ],
    "both in one chunk": [
        delta(
            tool_calls=[
                {"index": 0, "id": "call_A", "function": {"name": "look", "arguments": {"at": "a"}}},
                {"index": 1, "id": "call_B", "function": {"name": "run", "arguments": {"cmd": "ls"}}},
            ]
        )
    ],
}


@pytest.mark.parametrize("sent", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_every_way_to_stream_two_calls_gives_two_calls(sent: list[Any], finish: str) -> None:
    answer = read(chunks(*sent, delta(finish)))
    assert answer.messages[0].tool_calls == (A, B)
    assert (answer.finish, answer.error) == ("tool_calls", None)


def test_several_choices_are_several_messages() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "two"}, "finish_reason": "stop"}]}
    answer = read(chunks(other, delta(content="one"), delta("stop")))
    assert [message.text for message in answer.messages] == ["one", "two"]


def counted(usage: Any, **rest: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage, **rest}


FULL = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 7},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
USAGES = {
    "in a last chunk without choices": ([counted(FULL)], Usage(100, 5, 80, 7, 3)),
    "more with each chunk: the last counts": (
        [counted({"prompt_tokens": 100, "completion_tokens": n}) for n in (1, 2, 2)],
        Usage(100, 2),
    ),
    "null after it was said": ([counted(FULL), counted(None)], Usage(100, 5, 80, 7, 3)),
    "beside a choice": ([{"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 4}}]}], Usage(4)),
    "cache hits in DeepSeek's words": (
        [counted({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4})],
        Usage(9, None, 4),
    ),
    "never": ([], Usage()),
    "in shapes that are no counts": (
        [counted({"prompt_tokens": "many", "completion_tokens": True})],
        Usage(),
    ),
}


@pytest.mark.parametrize(("sent", "usage"), USAGES.values(), ids=USAGES)
def test_usage_is_found_where_it_is_and_absent_is_null(sent: list[Any], usage: Usage) -> None:
    assert read(chunks(delta(content="ok"), delta("stop"), *sent)).usage == usage


FAULTS = {
    "an error object alone": (
        chunks({"error": {"message": "Requested 9 tokens, limit 8", "type": "BadRequestError", "code": 400}}),
        ("context_length", False, "Requested 9 tokens, limit 8"),
    ),
    "an error after a beginning": (
        chunks(
            delta(content="Par"), {"error": {"message": "queue full", "type": "server_error", "code": 503}}
        ),
        ("overloaded", True, "queue full"),
    ),
    "no end": (
        chunks(delta(content="Half"), done=False),
        ("truncated", True, "before the answer was complete"),
    ),
    "half an event": (
        b'data: {"choices": [{"delta": {"con',
        ("truncated", True, "before the answer was complete"),
    ),
    "nothing at all": (b"", ("truncated", True, "before the answer was complete")),
    "an end without an answer": (chunks(), ("empty", False, "holds nothing")),
    "a hollow success": (
        chunks(delta("stop"), counted({"completion_tokens": 0})),
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


def test_silence_that_the_model_chose_is_no_fault() -> None:
    assert read(chunks(delta("stop"), counted({"completion_tokens": 1}))).error is None
    assert read(chunks(delta("content_filter"))).error is None


def test_a_call_that_is_half_there_is_not_offered_as_a_call() -> None:
    sent = [part(0, "call_A", "look", A.arguments), part(1, "call_B", "run", '{"cmd')]
    message = read(chunks(*sent, done=False), cut="the connection broke").messages[0]
    assert message.tool_calls == (A,)
    assert message.extra["truncated"] is True
    assert message.extra["unfinished_calls"] == [{"id": "call_B", "name": "run", "arguments": '{"cmd'}]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"choices": null}', b'{"choices": {}}'])
def test_a_success_that_is_no_completion_is_malformed(body: bytes) -> None:
    error = CHAT.read_answer(body).error
    assert error is not None
    assert error.type == "malformed"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "tool_calls", "function", "usage", "error", "message"]),
            inner,
        )
    ),
)


@settings(deadline=None)
@given(st.lists(JUNK, max_size=4))
def test_no_answer_makes_the_reading_fail(values: list[Any]) -> None:
    read(chunks(*values))
    for value in values:
        CHAT.read_answer(json.dumps(value).encode())
        list(CHAT.read_items([value]))


def test_a_request_is_read_as_it_was_sent() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    request = read_request(
        CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
                {"role": "oracle", "content": "?", "mood": 1},
            ],
            "tools": [{"type": "function"}],
            "max_completion_tokens": 9,
            "temperature": None,
            "brand_new": True,
            "stream": None,
        },
    )
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool", "oracle"]
    assert request.messages[1].text == "hi"
    assert request.messages[2].tool_calls == (ToolCall("c1", "bash", "{}"),)
    assert request.messages[3].tool_call_id == "c1"
    assert request.messages[4] == Message("oracle", "?", extra={"mood": 1})
    assert (request.model, request.stream) == ("m", False)
    assert request.sampling == {"max_completion_tokens": 9}


@pytest.mark.parametrize(
    ("fields", "sampling", "changes"),
    [
        ({"model": "m"}, {}, {}),
        ({"model": "other"}, {}, {"model": "m"}),
        ({"model": "m", "temperature": 0}, {"temperature": 0}, {}),
        ({"model": "m", "temperature": 1}, {"temperature": 0, "top_p": None}, {"temperature": 0}),
        ({"model": "m"}, {"max_tokens": 5}, {"max_tokens": 5}),
        ({"model": "m", "max_completion_tokens": 9}, {"max_tokens": 5}, {"max_completion_tokens": 5}),
        ({"model": "m"}, {"extra": {"reasoning_effort": "low"}}, {"reasoning_effort": "low"}),
    ],
)
def test_only_what_the_run_sets_is_imposed(fields: Any, sampling: Any, changes: Any) -> None:
    assert CHAT.impose(fields, "m", sampling) == changes


def test_the_path_says_the_dialect() -> None:
    for path in ("/v1/chat/completions", "/chat/completions", "/some/where/v1/chat/completions"):
        assert route(path) == (CHAT, "/chat/completions", True)
    assert route("/v1/completions") is None


ERRORS = [
    (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, "context_length", False),
    (400, {"error": {"message": "The maximum context length is 8"}}, "context_length", False),
    (400, {"error": {"message": "too large", "type": "exceed_context_size_error"}}, "context_length", False),
    (400, {"error": {"message": "no max_tokens", "type": "invalid_request_error"}}, "bad_request", False),
    (401, {"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}, "auth", False),
    (403, {"message": "forbidden"}, "auth", False),
    (404, {"error": "no such model"}, "bad_request", False),
    (408, {}, "timeout", True),
    (429, {"error": {"type": "tokens", "code": "rate_limit_exceeded"}}, "rate_limit", True),
    (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "rate_limit", False),
    (500, {"detail": "oops"}, "server", True),
    (503, {"error": {"message": "later", "type": "server_error"}}, "overloaded", True),
    (529, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded", True),
    (504, {}, "timeout", True),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "retryable"), ERRORS)
def test_an_error_is_told_by_its_status_and_its_code(
    status: int, body: Any, kind: str, retryable: bool
) -> None:
    error = CHAT.read_error(status, json.dumps(body).encode(), {})
    assert (error.type, error.status, error.retryable) == (kind, status, retryable)


def test_an_error_that_is_html_keeps_its_words() -> None:
    error = CHAT.read_error(502, b"<html>Bad Gateway</html>", {"retry-after": "7"})
    assert (error.type, error.message, error.retry_after_s) == ("server", "<html>Bad Gateway</html>", 7.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read_in_every_spelling(headers: dict[str, str], seconds: float | None) -> None:
    assert CHAT.read_error(429, b"", headers).retry_after_s == seconds


def test_our_own_errors_are_in_the_words_of_the_api() -> None:
    error = json.loads(CHAT.write_error(400, "limit_reached", "no more"))["error"]
    assert error == {
        "message": "no more",
        "type": "invalid_request_error",
        "param": None,
        "code": "limit_reached",
    }


def test_a_null_message_and_an_answer_without_choices_are_malformed() -> None:
    for choices in ([{"message": None}], [{"message": "hi"}], []):
        answer = CHAT.read_answer(
            json.dumps({"choices": choices, "usage": {"completion_tokens": 3}}).encode()
        )
        assert answer.error is not None
        assert answer.error.type == "malformed"


@pytest.mark.parametrize("nothing", ["", {}, None, []])
def test_an_empty_error_beside_an_answer_is_none(nothing: Any) -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "hi"}}], "error": nothing}
    answer = CHAT.read_answer(json.dumps(body).encode())
    assert answer.error is None
    assert answer.messages[0].text == "hi"


def test_numbers_that_are_none_or_absurd_do_not_stop_the_reading() -> None:
    error = CHAT.read_error(500, json.dumps({"error": {"message": "x", "code": "9" * 5_000}}).encode(), {})
    assert error.type == "server"
    late = CHAT.read_error(429, b"{}", {"retry-after": "Fri, 31 Dec 9999999 23:59:59 GMT"})
    assert late.retry_after_s is None
    call = {"index": [1], "id": "a", "function": {"name": "f", "arguments": "{}"}}
    answer = read(
        chunks({"choices": [{"index": {}, "delta": {"tool_calls": [call]}, "finish_reason": "stop"}]})
    )
    assert answer.messages[0].tool_calls[0].name == "f"
    huge = {
        "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10**400},
    }
    assert read(chunks(huge)).usage.input is None

"""The official SDKs talk through the proxy to a provider of another dialect, and understand each other."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anthropic
import openai
import pytest
from _kit.behind import QUICK, Seat, awaited, behind
from _kit.provider import replace
from _kit.sdks import Got, converse
from _kit.speaking import DIALECTS, speak

PAIRS = list(itertools.permutations(DIALECTS, 2))
WAYS = [(program, endpoint, stream) for program, endpoint in PAIRS for stream in (False, True)]
CALLS = [("call_A", "read", {"path": "a.txt"}), ("call_B", "now", {})]
USAGE: dict[str, dict[str, Any]] = {
    "chat": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
    "responses": {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens_details": {"reasoning_tokens": 5},
    },
    "messages": {
        "input_tokens": 30,
        "output_tokens": 20,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "output_tokens_details": {"thinking_tokens": 5},
    },
}
IDS = {"chat": "chatcmpl-abc", "responses": "resp_abc", "messages": "msg_abc"}


async def ask(seat: Seat, dialect: str, *turns: Any, stream: bool) -> Got:
    return await converse(dialect, seat.url, seat.session.secret(), "What is in a.txt?", turns, stream=stream)


@pytest.mark.parametrize(("program", "endpoint", "stream"), WAYS)
@awaited
async def test_a_conversation_with_two_calls_at_once_is_the_same_for_program_and_provider(
    program: str, endpoint: str, stream: bool
) -> None:
    first = speak(endpoint, text="Looking.", thinking="Two tools.", calls=CALLS)
    async with behind(first, speak(endpoint, text="It says 42."), upstream={"dialects": (endpoint,)}) as seat:
        got = await ask(seat, program, stream=stream)
        assert (got.text, got.thinking, got.calls) == ("Looking.", "Two tools.", CALLS)
        assert (got.id, got.model, got.usage) == (IDS[program], "real-model", USAGE[program])
        assert got.finish == {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"}[program]
        last = await ask(seat, program, (got, {"call_A": "42", "call_B": "noon"}), stream=stream)
        assert (last.text, last.calls) == ("It says 42.", [])
        assert last.finish == {"chat": "stop", "messages": "end_turn", "responses": "completed"}[program]
        check_history(endpoint, seat.provider.posts[1].json, stream)
        trace = seat.trace()
        assert [call.translated for call in trace.calls] == [endpoint, endpoint]
        assert trace.calls[0].usage.values() == (100, 20, 60, 10, 5)


def check_history(endpoint: str, sent: dict[str, Any], stream: bool) -> None:
    """Texts, calls and results in the endpoint's own words and order."""
    assert sent["model"] == "shown"
    assert sent["stream"] is stream
    {"chat": check_chat, "messages": check_messages, "responses": check_responses}[endpoint](sent)


def check_chat(sent: dict[str, Any]) -> None:
    system, user, assistant, *results = sent["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert user == {"role": "user", "content": "What is in a.txt?"}
    assert assistant["content"] == "Looking."
    calls = [(call["id"], call["function"]["name"]) for call in assistant["tool_calls"]]
    assert calls == [("call_A", "read"), ("call_B", "now")]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"path": "a.txt"}
    assert [(one["role"], one["tool_call_id"], one["content"]) for one in results] == [
        ("tool", "call_A", "42"),
        ("tool", "call_B", "noon"),
    ]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read", "now"]


def check_messages(sent: dict[str, Any]) -> None:
    assert sent["system"] == [{"type": "text", "text": "Be brief."}]
    assert sent["max_tokens"] == 500
    user, assistant, results = sent["messages"]
    assert user == {"role": "user", "content": [{"type": "text", "text": "What is in a.txt?"}]}
    assert assistant["role"] == "assistant"
    assert assistant["content"] == [
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "call_A", "name": "read", "input": {"path": "a.txt"}},
        {"type": "tool_use", "id": "call_B", "name": "now", "input": {}},
    ]
    assert results["role"] == "user"
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "call_A", "content": "42"},
        {"type": "tool_result", "tool_use_id": "call_B", "content": "noon"},
    ]
    assert [tool["name"] for tool in sent["tools"]] == ["read", "now"]


def check_responses(sent: dict[str, Any]) -> None:
    system, user, assistant, *rest = sent["input"]
    assert (system["role"], system["content"]) == ("system", [{"type": "input_text", "text": "Be brief."}])
    assert (user["role"], user["content"]) == ("user", [{"type": "input_text", "text": "What is in a.txt?"}])
    assert (assistant["role"], assistant["content"][0]["type"]) == ("assistant", "output_text")
    assert assistant["content"][0]["text"] == "Looking."
    assert [(item["type"], item["call_id"]) for item in rest] == [
        ("function_call", "call_A"),
        ("function_call", "call_B"),
        ("function_call_output", "call_A"),
        ("function_call_output", "call_B"),
    ]
    assert [item["output"] for item in rest[2:]] == ["42", "noon"]
    assert [(tool["name"], tool["strict"]) for tool in sent["tools"]] == [("read", False), ("now", False)]


@pytest.mark.parametrize(("program", "endpoint", "stream"), WAYS)
@awaited
async def test_an_answer_that_was_cut_at_its_limit_says_so(program: str, endpoint: str, stream: bool) -> None:
    async with behind(
        speak(endpoint, text="It", finish="length"), upstream={"dialects": (endpoint,)}
    ) as seat:
        got = await ask(seat, program, stream=stream)
        assert got.text == "It"
        assert got.finish == {"chat": "length", "messages": "max_tokens", "responses": "incomplete"}[program]


@pytest.mark.parametrize(("program", "endpoint"), PAIRS)
@awaited
async def test_a_stream_that_breaks_off_is_no_whole_answer_for_the_sdk(program: str, endpoint: str) -> None:
    whole = speak(endpoint, text="Half of it.")
    assert whole.chunks is not None
    broken = replace(whole, cut=len(whole.chunks) - 3)
    async with behind(broken, upstream={"dialects": (endpoint,)}) as seat:
        with pytest.raises(Exception) as caught:
            await ask(seat, program, stream=True)
        assert not isinstance(caught.value, AssertionError)
        [call] = seat.trace().calls
        assert call.error is not None


@pytest.mark.parametrize(("program", "endpoint"), PAIRS)
@awaited
async def test_an_error_amid_the_stream_is_an_error_of_the_programs_dialect(
    program: str, endpoint: str
) -> None:
    whole = speak(endpoint, text="Half of it.")
    assert whole.chunks is not None
    said = {"message": "too many at once", "type": "overloaded_error", "code": "overloaded_error"}
    event = {"type": "error", "error": said, **({} if endpoint != "responses" else said | {"type": "error"})}
    last = f"event: error\ndata: {json.dumps(event)}\n\n".encode()
    broken = replace(whole, chunks=(*whole.chunks[:4], last))
    async with behind(broken, upstream={"dialects": (endpoint,)}) as seat:
        with pytest.raises((openai.APIError, anthropic.APIError, RuntimeError)) as caught:
            await ask(seat, program, stream=True)
        if not isinstance(
            caught.value, RuntimeError
        ):  # openai's helper for responses says only that it got none
            assert "too many at once" in str(caught.value)
        assert seat.trace().calls[0].error.message == "too many at once"  # type: ignore[union-attr]


@awaited
async def test_the_events_of_a_message_come_in_anthropics_order() -> None:
    answer = speak("chat", text="Looking.", thinking="Hm.", calls=CALLS)
    async with behind(answer) as seat:
        got = await ask(seat, "messages", stream=True)
        raw = [kind for kind in got.kinds if kind.startswith(("message_", "content_"))]
        delta, stop = "content_block_delta", "content_block_stop"
        block = ["content_block_start", delta, stop]
        assert raw == [
            "message_start",
            *["content_block_start", delta, delta, stop] * 2,
            *block * 2,
            "message_delta",
            "message_stop",
        ]


@pytest.mark.parametrize(("program", "endpoint"), PAIRS)
@awaited
async def test_what_was_counted_is_in_the_trace_even_where_the_program_is_not_told(
    program: str, endpoint: str
) -> None:
    counted, silent = speak(endpoint, text="Yes."), speak(endpoint, text="Yes.")
    assert silent.body is not None
    body = {name: value for name, value in json.loads(silent.body).items() if name != "usage"}
    asked: dict[str, Any] = {
        "model": "shown",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi."}],
    }
    if program == "responses":
        asked = {"model": "shown", "input": "Hi."}
    script = (counted, replace(silent, body=json.dumps(body).encode(), chunks=None))
    async with behind(*script, upstream={"dialects": (endpoint,)}) as seat:
        path = {"chat": "/v1/chat/completions"}.get(program, f"/v1/{program}")
        assert (await seat.send({**asked, "stream": True}, path=path)).status == 200
        assert (await seat.send(asked, path=path)).status == 200
        first, second = (call.usage.values() for call in seat.trace().calls)
        assert first == (100, 20, 60, 10, 5)
        assert second == (None,) * 5


@awaited
async def test_what_a_translation_leaves_out_is_marked_on_the_call() -> None:
    body = {
        "model": "shown",
        "max_tokens": 100,
        "metadata": {"user_id": "u"},
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }
    async with behind(speak("chat", text="Hello.")) as seat:
        said = await seat.send(body, path="/v1/messages")
        assert said.json["content"] == [{"type": "text", "text": "Hello."}]
        assert seat.trace().calls[0].dropped == ["cache_control", "metadata"]


@pytest.mark.parametrize("stream", [False, True])
@awaited
async def test_what_of_an_answer_is_left_out_is_marked_too(stream: bool) -> None:
    body = {
        "model": "shown",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi."}],
        "stream": stream,
    }
    async with behind(speak("chat", text="Hello.", thinking="A greeting.")) as seat:
        said = await seat.send(body, path="/v1/messages")
        assert b"A greeting" not in said.body
        assert seat.trace().calls[0].dropped == ["thinking"]


@awaited
async def test_what_cannot_be_left_out_is_refused_in_a_sentence_and_asks_nobody() -> None:
    async with behind(upstream={"dialects": ("chat",)}) as seat:
        said = await seat.send(
            {"model": "shown", "input": "go on", "previous_response_id": "resp_1"}, path="/v1/responses"
        )
        assert said.status == 400
        assert "history is on the provider's server" in said.json["error"]["message"]
        assert seat.provider.posts == []


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("endpoint", DIALECTS)
@pytest.mark.parametrize("program", DIALECTS)
@awaited
async def test_an_answer_in_one_piece_is_the_stream_that_was_asked_for(
    program: str, endpoint: str, quiet: bool
) -> None:
    first = speak(endpoint, text="Looking.", thinking="Two tools.", calls=CALLS)
    # the openai SDK's helper for responses takes nothing before the first event of the answer itself
    wait = {"wait_s": 0.3} if quiet and program != "responses" else {}
    pieces = [replace(reply, chunks=None, **wait) for reply in (first, speak(endpoint, text="It says 42."))]
    calls = replace(QUICK, quiet_s=0.05 if wait else 20)
    async with behind(*pieces, upstream={"dialects": (endpoint,)}, calls=calls) as seat:
        got = await ask(seat, program, stream=True)
        assert (got.text, got.thinking, got.calls) == ("Looking.", "Two tools.", CALLS)
        assert (got.id, got.model, got.usage) == (IDS[program], "real-model", USAGE[program])
        results = {"call_A": "42", "call_B": "noon"}
        assert (await ask(seat, program, (got, results), stream=True)).text == "It says 42."
        trace = seat.trace()
    assert [call.made_stream for call in trace.calls] == [True, True]
    assert [call.error for call in trace.calls] == [None, None]
    assert trace.main[-1].text == "It says 42."

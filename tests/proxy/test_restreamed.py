"""An answer in one piece becomes the stream that was asked for, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from _kit.behind import QUICK, awaited, behind
from _kit.dialects import SPOKEN, ask, each_dialect, on
from _kit.provider import Reply, replace

from hotswap.dialects import known
from hotswap.proxy.events import EventReader

ANSWERS: dict[str, Any] = {
    "chat": {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "fp",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Looking.", "reasoning_content": "Hm.", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}},
                {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "***"}}]}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    },
    "responses": {
        "id": "resp_1", "object": "response", "status": "incomplete", "model": "m",
        "incomplete_details": {"reason": "max_output_tokens"}, "output": [
            {"type": "reasoning", "id": "r", "encrypted_content": "ZW5j",
             "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}},
            {"type": "message", "id": "t", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "Looking.", "annotations": [{"type": "url_citation", "url": "u"}]},
                {"type": "refusal", "refusal": "No."}]},
            {"type": "function_call", "id": "f", "call_id": "a", "name": "read", "arguments": "{}"},
            {"type": "custom_tool_call", "id": "p", "call_id": "b", "name": "patch", "input": "***"}],
        "usage": {"input_tokens": 10, "output_tokens": 5},
    },
    "messages": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "eA=="},
            {"type": "text", "text": "Looking.", "citations": [{"type": "char_location", "cited_text": "x"}]},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]},
            {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "ä"}},
            {"type": "tool_use", "id": "b", "name": "now", "input": {}}],
        "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 5},
    },
    "gemini": {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "Hm.", "thought": True}, {"text": "Looking.", "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "read", "args": {"path": "ä"}}}]}}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}, "modelVersion": "m", "responseId": "r",
    },
}  # fmt: skip


@each_dialect
def test_the_stream_is_read_as_what_the_answer_says_to_the_last_field(dialect: str) -> None:
    spoken, body = known()[dialect], json.dumps(ANSWERS[dialect]).encode()
    written = spoken.write_stream(body, {"stream_options": {"include_usage": True}}, "alt=sse")
    reader, assembler = EventReader(), spoken.assembler()
    for piece in reader.feed(written or b""):
        assert piece.event is not None
        assert not assembler.ended or piece.event.data == "[DONE]"
        assembler.feed(piece.event)
    assert assembler.complete
    assert assembler.answer() == spoken.read_answer(body)


@pytest.mark.parametrize("quiet", [True, False])
@each_dialect
@awaited
async def test_a_program_that_asked_for_a_stream_gets_one_and_its_call_says_so(
    dialect: str, quiet: bool
) -> None:
    body = json.dumps(ANSWERS[dialect]).encode()
    whole = Reply(body=body, wait_s=0.3 if quiet else 0)
    calls = replace(QUICK, quiet_s=0.05 if quiet else 20)
    async with behind(whole, upstream=on(dialect), calls=calls) as seat:
        said = await ask(seat, dialect, stream=True)
        trace = seat.trace()
    expected = known()[dialect].write_stream(body, {}, "alt=sse") or b""
    assert said.headers["Content-Type"] == "text/event-stream"
    assert said.body.endswith(expected)
    assert (said.body == expected) == (not quiet or dialect == "gemini")
    [call] = trace.calls
    assert (call.made_stream, call.error, call.status, trace.turns) == (True, None, 200, 1)
    assert (trace.usage.input, trace.usage.output) == (13 if dialect == "messages" else 10, 5)


@each_dialect
@awaited
async def test_who_asked_for_one_piece_gets_its_bytes(dialect: str) -> None:
    body = json.dumps(ANSWERS[dialect]).encode()
    async with behind(Reply(body=body), upstream=on(dialect)) as seat:
        assert (await ask(seat, dialect)).body == body
        assert not seat.trace().calls[0].made_stream


class TestListsOfGemini:
    """Without `alt=sse` its streams are JSON lists."""

    PATH = "/v1beta/models/m:streamGenerateContent"

    @pytest.mark.parametrize("endpoint", ["chat", "messages", "responses"])
    @awaited
    async def test_a_translated_answer_is_a_list(self, endpoint: str) -> None:
        patient = replace(QUICK, quiet_s=0.05)
        slow = replace(SPOKEN[endpoint].answer, wait_s=0.3)
        async with behind(slow, upstream=on(endpoint), calls=patient) as seat:
            said = await seat.send(SPOKEN["gemini"].body("hi"), path=self.PATH)
            trace = seat.trace()
            assert seat.provider.posts[0].json["stream"] is False
        assert said.headers["Content-Type"] == "application/json"
        [one] = said.json
        assert one["candidates"][0]["content"]["parts"][0]["text"] == "hello"
        assert (trace.main[-1].text, trace.calls[0].made_stream, trace.turns) == ("hello", False, 1)

    @awaited
    async def test_a_list_passes_as_it_came_and_a_late_error_keeps_its_status(self) -> None:
        listed = b"[" + json.dumps(ANSWERS["gemini"]).encode() + b"]\n"
        late = Reply(status=400, body=b'{"error": {"code": 400, "message": "no"}}', wait_s=0.3)
        patient = replace(QUICK, quiet_s=0.05)
        async with behind(Reply(body=listed), late, upstream=on("gemini"), calls=patient) as seat:
            assert (await seat.send(SPOKEN["gemini"].body("hi"), path=self.PATH)).body == listed
            assert (await seat.send(SPOKEN["gemini"].body("more"), path=self.PATH)).status == 400


@awaited
async def test_a_program_that_leaves_before_the_stream_is_made_ends_the_call() -> None:
    async with behind(replace(SPOKEN["chat"].answer, chunks=None, wait_s=5), upstream=on("chat")) as seat:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ask(seat, "chat", stream=True), 0.3)
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.gone == 1)

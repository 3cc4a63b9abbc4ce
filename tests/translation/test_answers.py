"""What an endpoint of another dialect answers, as a program gets it: whole, and event by event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from _kit.behind import awaited, behind
from _kit.provider import call_tool, stream
from _kit.speaking import DIALECTS, speak

from hotswap.dialects import Event, known
from hotswap.proxy.events import EventReader
from hotswap.translation import Translated, between

ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": [], "stream_options": {"include_usage": True}},
    "responses": {"input": []},
    "messages": {"messages": [], "thinking": {"type": "adaptive"}},
    "gemini": {"contents": [], "generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
}
PATCH = '*** Begin Patch\n*** Add File: "a.txt"\n+hello\n*** End Patch\n'


def open_(program: str, endpoint: str, **fields: Any) -> Translated:
    translation = between(program, endpoint)
    assert translation is not None
    return translation.open({**ASKED[program], **fields}, "real", True)


def events(data: bytes) -> list[Event]:
    reader = EventReader()
    return [piece.event for piece in (*reader.feed(data), *reader.finish()) if piece.event is not None]


def streamed(translated: Translated, values: Sequence[Any], done: bool = True) -> list[Any]:
    """The events that the program gets, read."""
    said = b"".join(translated.feed(Event("", json.dumps(value))) for value in values)
    said += (translated.feed(Event("", "[DONE]")) if done else b"") + translated.finish()
    return [json.loads(event.data) for event in events(said) if event.data != "[DONE]"]


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def calls(*given: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(given))


class TestCustomTools:
    """Codex's freeform tools: raw text for the program, an object with one string for the endpoint."""

    TOOL = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
    FIELDS = {"model": "shown", "input": "Add a.txt.", "tools": [TOOL], "stream": True}

    @awaited
    async def test_a_call_comes_back_with_raw_text_and_its_result_goes_up(self) -> None:
        answer = call_tool("apply_patch", {"input": PATCH})
        async with behind(answer, call_tool("apply_patch", {"input": PATCH})) as seat:
            said = await seat.send(self.FIELDS, path="/v1/responses")
            got = [json.loads(event.data) for event in events(said.body)]
            [delta] = [one for one in got if one["type"] == "response.custom_tool_call_input.delta"]
            [item] = got[-1]["response"]["output"]
            assert delta["delta"] == item["input"] == PATCH
            assert (item["type"], item["name"], item["call_id"]) == (
                "custom_tool_call",
                "apply_patch",
                "call_1",
            )
            result = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Success"}
            whole = await seat.send(
                {**self.FIELDS, "input": [item, result], "stream": False}, path="/v1/responses"
            )
            assert whole.json["output"][0]["input"] == PATCH
            call, tool = seat.provider.posts[1].json["messages"]
            assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"input": PATCH}
            assert (tool["tool_call_id"], tool["content"]) == ("call_1", "Success")

    @pytest.mark.parametrize(
        ("arguments", "raw"),
        [
            ('{"input": "+x"}', "+x"),
            ('{"patch": "+x"}', "+x"),
            ('"+x"', "+x"),
            ("+x", "+x"),
            ('{"input": "+', '{"input": "+'),
        ],
    )
    def test_a_model_that_wraps_the_text_in_another_way_is_understood(self, arguments: str, raw: str) -> None:
        function = {"name": "apply_patch", "arguments": arguments}
        translated = open_("responses", "chat", tools=[self.TOOL])
        got = streamed(
            translated, [calls({"index": 0, "id": "a", "function": function}), chunk("tool_calls")]
        )
        assert got[-1]["response"]["output"][0]["input"] == raw

    def test_a_tool_in_a_namespace_is_called_in_it(self) -> None:
        tool = {"type": "function", "name": "find", "parameters": {"type": "object"}}
        space = {"type": "namespace", "name": "mcp__files", "tools": [tool]}
        function = {"name": "mcp__files__find", "arguments": "{}"}
        translated = open_("responses", "chat", tools=[space])
        got = streamed(
            translated, [calls({"index": 0, "id": "a", "function": function}), chunk("tool_calls")]
        )
        [item] = got[-1]["response"]["output"]
        assert (item["type"], item["name"], item["namespace"]) == ("function_call", "find", "mcp__files")

    def test_the_shell_and_the_search_for_tools_come_back_as_their_own_items(self) -> None:
        tools = [
            {"type": "local_shell"},
            {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
        ]
        shell = {"name": "local_shell", "arguments": '{"command": ["ls"]}'}
        search = {"name": "tool_search", "arguments": '{"query": "files"}'}
        translated = open_("responses", "chat", tools=tools)
        given = calls({"index": 0, "id": "a", "function": shell}, {"index": 1, "id": "b", "function": search})
        one, two = streamed(translated, [given, chunk("tool_calls")])[-1]["response"]["output"]
        assert (one["type"], one["action"]["command"]) == ("local_shell_call", ["ls"])
        assert (two["type"], two["arguments"], two["execution"]) == (
            "tool_search_call",
            {"query": "files"},
            "client",
        )


class TestInterleaving:
    def test_calls_whose_pieces_interleave_are_blocks_one_after_the_other(self) -> None:
        first, second = ({"name": name, "arguments": '{"n":'} for name in "fg")
        got = streamed(
            open_("messages", "chat"),
            [
                chunk(content="Now."),
                calls(
                    {"index": 0, "id": "a", "function": first}, {"index": 1, "id": "b", "function": second}
                ),
                calls(
                    {"index": 1, "function": {"arguments": "2}"}},
                    {"index": 0, "function": {"arguments": "1}"}},
                ),
                chunk("tool_calls"),
            ],
        )
        order = [(one["type"].removeprefix("content_block_"), one["index"]) for one in got if "index" in one]
        assert order == [(kind, index) for index in range(3) for kind in ("start", "delta", "stop")]
        inputs = [
            json.loads(one["delta"]["partial_json"]) for one in got if "partial_json" in one.get("delta", {})
        ]
        assert inputs == [{"n": 1}, {"n": 2}]

    def test_pieces_of_a_later_call_wait_until_the_first_is_whole(self) -> None:
        first, second = ({"name": name, "arguments": '{"n":'} for name in "fg")
        got = streamed(
            open_("responses", "chat"),
            [
                calls(
                    {"index": 0, "id": "a", "function": first}, {"index": 1, "id": "b", "function": second}
                ),
                calls(
                    {"index": 1, "function": {"arguments": "2}"}},
                    {"index": 0, "function": {"arguments": "1}"}},
                ),
                chunk("tool_calls"),
            ],
        )
        deltas = [one for one in got if one["type"] == "response.function_call_arguments.delta"]
        assert [one["output_index"] for one in deltas] == [0, 0, 1, 1]
        assert [one["delta"] for one in deltas] == ['{"n":', "1}", '{"n":', "2}"]

    def test_calls_that_all_carry_index_0_are_told_apart_by_their_ids(self) -> None:
        one, two = ({"index": 0, "id": id, "function": {"name": "f", "arguments": "{}"}} for id in "ab")  # noqa: A001
        got = streamed(open_("responses", "chat"), [calls(one), calls(two), chunk("tool_calls")])
        assert [item["call_id"] for item in got[-1]["response"]["output"]] == ["a", "b"]

    def test_arguments_that_come_only_at_the_end_are_not_lost(self) -> None:
        item = {"type": "function_call", "id": "fc", "call_id": "a", "name": "f", "arguments": ""}
        done = {**item, "arguments": '{"n": 1}'}
        values = [
            {"type": "response.created", "response": {"id": "resp_1", "model": "m"}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"n": 1}'},
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            {"type": "response.completed", "response": {"status": "completed", "output": [done]}},
        ]
        for sent in (values, values[:2] + values[4:], values[:1] + values[4:]):
            got = streamed(open_("messages", "responses"), sent, done=False)
            [delta] = [one["delta"] for one in got if one["type"] == "content_block_delta"]
            assert json.loads(delta["partial_json"]) == {"n": 1}

    @pytest.mark.parametrize("named", [("id",), ("index",), ("id", "index"), ()])
    def test_items_are_told_apart_by_what_the_server_says_of_them(self, named: tuple[str, ...]) -> None:
        """llama.cpp says no index, others no id; each item comes again in the last event."""
        answer = speak(
            "responses", text="Looking.", thinking="Hm.", calls=[("a", "run", {"n": 1}), ("b", "run", {})]
        )
        translated = open_("chat", "responses")
        values = [json.loads(event.data) for event in events(b"".join(answer.chunks or ()))]
        left_out = {"id": "item_id", "index": "output_index"}
        for value in values:
            for name in set(left_out) - set(named):
                value.pop(left_out[name], None)
            if "id" not in named:
                for item in (value.get("item", {}), *value.get("response", {}).get("output", ())):
                    item.pop("id", None)
        got = streamed(translated, values if named else values[-1:], done=False)
        deltas = [choice["delta"] for one in got for choice in one["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == "Looking."
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Hm."
        assert [call["id"] for delta in deltas for call in delta.get("tool_calls", ()) if "id" in call] == [
            "a",
            "b",
        ]


class TestEnds:
    @pytest.mark.parametrize("endpoint", DIALECTS)
    def test_a_stream_that_broke_off_gets_no_made_up_end(self, endpoint: str) -> None:
        answer = speak(endpoint, text="Half of it.", calls=[("a", "f", {"n": 1})])
        for program in ("chat", "responses", "messages", "gemini"):
            if program == endpoint:
                continue
            translated = open_(program, endpoint)
            assert answer.chunks is not None
            last = {"chat": 3, "messages": 2, "responses": 1}[endpoint]
            sent = b"".join(translated.feed(event) for event in events(b"".join(answer.chunks[:-last])))
            assert translated.finish() == b""
            assembler = known()[program].assembler()
            for event in events(sent):
                assembler.feed(event)
            assert not assembler.complete

    def test_a_chat_stream_without_its_last_word_ends_when_it_is_over(self) -> None:
        got = streamed(open_("messages", "chat"), [chunk(content="Hi."), chunk("stop")], done=False)
        assert got[-1] == {"type": "message_stop"}

    def test_an_error_ends_the_stream_and_nothing_follows(self) -> None:
        translated = open_("messages", "chat")
        translated.feed(Event("", json.dumps(chunk(content="Hi."))))
        said = translated.feed(
            Event("", json.dumps({"error": {"message": "too long", "code": "context_length_exceeded"}}))
        )
        assert said == known()["messages"].write_error_event("context_length", "too long")
        assert translated.feed(Event("", json.dumps(chunk("stop")))) + translated.finish() == b""

    @pytest.mark.parametrize("endpoint", DIALECTS)
    def test_a_body_that_is_no_answer_is_an_error_in_the_programs_words(self, endpoint: str) -> None:
        for program in set(DIALECTS) - {endpoint}:
            for body, words in (
                (b"<html>oops</html>", "oops"),
                (b'{"error": {"message": "no room"}}', "no room"),
            ):
                said = open_(program, endpoint).whole(body)
                error = known()[program].read_error(500, said, {})
                assert words in error.message

    def test_a_refusal_is_one_everywhere(self) -> None:
        refused = [chunk(refusal="I "), chunk(refusal="won't."), chunk("stop")]
        got = streamed(open_("messages", "chat"), refused)
        assert got[-2]["delta"]["stop_reason"] == "refusal"
        last = streamed(open_("responses", "chat"), refused)[-1]["response"]
        assert last["output"][0]["content"] == [{"type": "refusal", "refusal": "I won't."}]
        whole = json.dumps({"type": "message", "content": [], "stop_reason": "refusal"}).encode()
        choice = json.loads(open_("chat", "messages").whole(whole))["choices"][0]
        assert choice["finish_reason"] == "content_filter"

    def test_the_sequence_that_ended_a_text_is_named_where_the_server_does(self) -> None:
        last = chunk("stop")
        last["choices"][0]["stop_reason"] = "END"
        stop = streamed(open_("messages", "chat"), [chunk(content="Hi."), last])[-2]["delta"]
        assert stop == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


def test_thoughts_are_kept_from_a_program_that_did_not_ask_and_this_is_noted() -> None:
    translated = open_("messages", "chat", thinking=None)
    got = streamed(translated, [chunk(reasoning_content="Hm."), chunk(content="Yes."), chunk("stop")])
    assert [one["content_block"]["type"] for one in got if one["type"] == "content_block_start"] == ["text"]
    assert translated.dropped == ("thinking", "usage")


def test_an_answer_without_an_id_has_the_same_one_each_time_and_the_models_name() -> None:
    starts = [streamed(open_("messages", "chat"), [{"choices": []}])[0]["message"] for _ in range(2)]
    assert starts[0]["id"] == starts[1]["id"]
    assert starts[0]["id"].startswith("msg_")
    assert starts[0]["model"] == "real"


def test_a_provider_that_runs_tools_itself_leaves_no_half_blocks() -> None:
    server = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
    values = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": server},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Found."}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    translated = open_("responses", "messages")
    [item] = streamed(translated, values, done=False)[-1]["response"]["output"]
    assert item["content"][0]["text"] == "Found."
    assert "server_tool_use" in translated.dropped


@awaited
async def test_gemini_is_answered_by_chat_in_its_own_words() -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
        "generationConfig": {"temperature": 1},
    }
    answers = [speak("chat", text="Look", calls=[("a", "run", {"cmd": "ls"})]) for _ in range(2)]
    async with behind(*answers) as seat:
        said = await seat.send(body, path="/v1beta/models/shown:streamGenerateContent?alt=sse")
        parts = [
            part
            for event in events(said.body)
            for candidate in json.loads(event.data)["candidates"]
            for part in candidate["content"]["parts"]
        ]
        assert parts == [
            {"text": "Lo"},
            {"text": "ok"},
            {"functionCall": {"id": "a", "name": "run", "args": {"cmd": "ls"}}},
            {"text": ""},
        ]
        whole = (await seat.send(body, path="/v1beta/models/shown:generateContent")).json
        assert whole["candidates"][0]["content"]["parts"] == [{"text": "Look"}, parts[2]]
        assert whole["usageMetadata"] == {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 60,
            "candidatesTokenCount": 15,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 120,
        }
        assert seat.trace().calls[0].usage.values() == (100, 20, 60, 10, 5)


@awaited
async def test_the_first_words_go_down_before_the_last_have_come() -> None:
    import threading

    more = threading.Event()
    first, last = (
        f"data: {json.dumps(value)}\n\n".encode() for value in (chunk(content="First."), chunk("stop"))
    )
    async with behind(stream([first, last + b"data: [DONE]\n\n"], pause=more)) as seat:
        asked = {
            "model": "shown",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Hi."}],
            "stream": True,
        }
        async with seat.post(asked, path="/v1/messages") as response:
            got = b""
            while b"First." not in got:
                got += await response.content.readany()
            assert not more.is_set()
            more.set()
            got += await response.read()
        assert b"message_stop" in got


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_begun_anew_has_nothing_of_the_one_before(stream: bool) -> None:
    said = speak("chat", text="Looking.", thinking="Hm.", calls=[("c1", "read", {"path": "a"})])
    translated, written = open_("messages", "chat"), list[bytes]()
    for begun in (False, True):
        translated = translated.begin() if begun else translated
        if stream:
            translated.feed(Event("", '{"choices": [{"delta": {"content": "of a try that failed"}}]}'))
            translated.begin()
            written.append(
                b"".join(translated.feed(event) for event in events(b"".join(said.chunks or ())))
                + translated.finish()
            )
        else:
            written.append(translated.whole(said.body or b""))
        assert translated.usage.input == 100
    assert written[0] == written[1]
    assert b"of a try" not in written[0]

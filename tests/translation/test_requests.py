"""What a program asks, in the words of an endpoint of another dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hotswap.translation import Untranslatable, between

PNG = "data:image/png;base64,aW1n"
SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}


def asked(program: str, endpoint: str, **fields: Any) -> dict[str, Any]:
    return opened(program, endpoint, **fields).fields


def opened(program: str, endpoint: str, **fields: Any) -> Any:
    translation = between(program, endpoint)
    assert translation is not None
    return translation.open({"model": "shown", **fields}, "real", False)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_every_pair_of_the_three_is_translated_and_gemini_is_only_asked_in() -> None:
    three = ("chat", "responses", "messages")
    assert all(between(program, endpoint) for program in three for endpoint in three if program != endpoint)
    assert between("gemini", "chat")
    assert not any(between(program, "gemini") for program in three)
    assert between("chat", "chat") is None
    assert between("chat", "unheard_of") is None


def test_the_request_names_the_model_the_route_and_how_it_is_answered() -> None:
    translation = between("messages", "chat")
    assert translation is not None
    streamed = translation.open({"messages": [user("Hi.")]}, "real", True)
    assert (streamed.tail, streamed.content_type) == ("/chat/completions", "text/event-stream")
    assert streamed.fields == {
        "model": "real",
        "messages": [user("Hi.")],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert opened("chat", "responses", messages=[user("Hi.")]).tail == "/responses"
    assert opened("chat", "messages", messages=[user("Hi.")]).tail == "/messages"


class TestInstructions:
    def test_those_at_the_beginning_are_one_system_message_in_chat(self) -> None:
        said = [
            {"role": "developer", "content": [{"type": "input_text", "text": "One."}]},
            {"role": "developer", "content": "Two."},
            user("Go."),
            {"role": "developer", "content": "Three."},
        ]
        sent = asked("responses", "chat", instructions="Zero.", input=said)
        assert sent["messages"] == [
            {"role": "system", "content": "Zero.\n\nOne.\n\nTwo."},
            user("Go."),
            {"role": "system", "content": "Three."},
        ]

    def test_those_amid_a_conversation_are_marked_in_a_users_words_for_anthropic(self) -> None:
        said = [{"role": "system", "content": "One."}, user("Go."), {"role": "developer", "content": "Two."}]
        sent = asked("chat", "messages", messages=said)
        assert sent["system"] == [{"type": "text", "text": "One."}]
        [only] = sent["messages"]
        assert [block["text"] for block in only["content"]] == [
            "Go.",
            "<system-reminder>\nTwo.\n</system-reminder>",
        ]

    def test_those_of_claude_amid_a_conversation_stay_in_their_place(self) -> None:
        said = [
            user("Go."),
            {"role": "system", "content": "Agents: none."},
            {"role": "assistant", "content": "Yes."},
        ]
        sent = asked("messages", "responses", system=[{"type": "text", "text": "Top."}], messages=said)
        assert [(item["role"], item["content"][0]["text"]) for item in sent["input"]] == [
            ("system", "Top."),
            ("user", "Go."),
            ("system", "Agents: none."),
            ("assistant", "Yes."),
        ]


class TestResults:
    CALLS = [
        {"id": "a", "type": "function", "function": {"name": "run", "arguments": '{"cmd": "ls"}'}},
        {"id": "b", "type": "function", "function": {"name": "run", "arguments": '{"cmd": "pwd"}'}},
    ]

    def test_they_stand_first_in_the_users_message_that_follows_their_calls(self) -> None:
        said = [
            user("Go."),
            {"role": "assistant", "content": None, "tool_calls": self.CALLS},
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            user("And hurry."),
            {"role": "tool", "tool_call_id": "b", "content": "y"},
        ]
        sent = asked("chat", "messages", messages=said)
        assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
        kinds = [(block["type"], block.get("tool_use_id")) for block in sent["messages"][2]["content"]]
        assert kinds == [("tool_result", "a"), ("tool_result", "b"), ("text", None)]

    def test_neighbours_with_the_same_role_are_one_message_for_anthropic(self) -> None:
        said = [
            user("One."),
            user("Two."),
            {"role": "assistant", "content": "A."},
            {"role": "assistant", "content": "B."},
        ]
        sent = asked("chat", "messages", messages=said)
        assert [(one["role"], len(one["content"])) for one in sent["messages"]] == [
            ("user", 2),
            ("assistant", 2),
        ]

    def test_a_failed_tool_says_so_in_words_where_there_is_no_flag(self) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": "a", "content": "no such file", "is_error": True},
            {"type": "tool_result", "tool_use_id": "b", "content": "fine"},
        ]
        sent = asked("messages", "chat", messages=[{"role": "user", "content": blocks}])
        assert [one["content"] for one in sent["messages"]] == ["Error: no such file", "fine"]

    def test_an_image_in_one_is_shown_right_after_it_in_chat(self) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}}
        said = [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "see", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [image]}]},
        ]
        sent = asked("messages", "chat", messages=said)["messages"]
        assert sent[1] == {"role": "tool", "tool_call_id": "a", "content": ""}
        assert sent[2]["content"][1] == {"type": "image_url", "image_url": {"url": PNG}}
        kept = asked("messages", "responses", messages=said)["input"]
        assert kept[1]["output"] == [{"type": "input_image", "image_url": PNG, "detail": "auto"}]

    def test_a_call_of_the_time_before_tools_is_answered_by_the_function_that_follows(self) -> None:
        said = [
            {"role": "assistant", "content": None, "function_call": {"name": "run", "arguments": "{}"}},
            {"role": "function", "name": "run", "content": "done"},
        ]
        sent = asked("chat", "messages", messages=said, functions=[{"name": "run", "parameters": SCHEMA}])
        [call], [result] = (message["content"] for message in sent["messages"])
        assert call["id"] == result["tool_use_id"]
        assert [tool["name"] for tool in sent["tools"]] == ["run"]

    def test_arguments_that_are_no_object_still_reach_anthropic_as_one(self) -> None:
        call = {"id": "call:1", "type": "function", "function": {"name": "run", "arguments": "ls -l"}}
        said = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        [block] = asked("chat", "messages", messages=said)["messages"][0]["content"]
        assert block["input"] == {"input": "ls -l"}
        assert ":" not in block["id"]


class TestMedia:
    @pytest.mark.parametrize("url", [PNG, "https://example.org/a.png"])
    def test_images_cross_to_every_dialect(self, url: str) -> None:
        said = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
        [block] = asked("chat", "messages", messages=said)["messages"][0]["content"]
        source = block["source"]
        assert source.get("url", PNG) == url
        assert (source["type"] == "base64") == url.startswith("data:")
        [part] = asked("chat", "responses", messages=said)["input"][0]["content"]
        assert part["image_url"] == url
        back = asked("messages", "chat", messages=[{"role": "user", "content": [block]}])
        assert back["messages"] == said

    def test_what_no_other_dialect_can_hold_is_refused_by_its_name(self) -> None:
        said = [
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}}],
            }
        ]
        with pytest.raises(Untranslatable) as caught:
            opened("chat", "messages", messages=said)
        assert caught.value.kind == "input_audio"


class TestTools:
    NAMESPACE = {
        "type": "namespace",
        "name": "mcp__files",
        "tools": [{"type": "function", "name": "run", "parameters": SCHEMA}],
    }

    def test_namespaces_become_parts_of_names(self) -> None:
        plain = {"type": "function", "name": "run", "parameters": SCHEMA}
        call = {
            "type": "function_call",
            "call_id": "a",
            "name": "run",
            "namespace": "mcp__files",
            "arguments": "{}",
        }
        sent = asked("responses", "chat", input=[call], tools=[plain, self.NAMESPACE])
        assert [tool["function"]["name"] for tool in sent["tools"]] == ["run", "mcp__files__run"]
        assert sent["messages"][0]["tool_calls"][0]["function"]["name"] == "mcp__files__run"

    def test_two_long_names_that_begin_alike_stay_two_names(self) -> None:
        long = [{"type": "function", "name": "x" * 70 + end, "parameters": SCHEMA} for end in "ab"]
        names = [
            tool["function"]["name"] for tool in asked("responses", "chat", input="Hi.", tools=long)["tools"]
        ]
        assert len(set(names)) == 2
        assert max(map(len, names)) <= 64

    def test_tools_among_the_items_are_tools(self) -> None:
        custom = {"type": "custom", "name": "exec", "description": "Runs.", "format": {"type": "text"}}
        items = [
            {
                "type": "additional_tools",
                "tools": [{"type": "namespace", "name": "functions", "tools": [custom]}],
            },
            {"type": "custom_tool_call", "call_id": "a", "name": "exec", "input": "text(1)"},
            {
                "type": "custom_tool_call_output",
                "call_id": "a",
                "output": [{"type": "input_text", "text": "1"}],
            },
        ]
        sent = asked("responses", "messages", input=items)
        assert [tool["name"] for tool in sent["tools"]] == ["exec"]
        assert sent["tools"][0]["input_schema"]["required"] == ["input"]
        assert sent["messages"][0]["content"][0]["input"] == {"input": "text(1)"}
        assert sent["messages"][1]["content"][0]["content"] == "1"

    def test_the_grammar_of_a_custom_tool_is_told_in_words(self) -> None:
        grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
        tool = {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar}
        [sent] = asked("responses", "chat", input="Hi.", tools=[tool])["tools"]
        assert "start: /.+/" in sent["function"]["description"]

    def test_a_custom_tool_of_chat_is_one_in_responses(self) -> None:
        tool = {"type": "custom", "custom": {"name": "patch", "description": "Edits."}}
        call = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "+x"}}
        said = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "ok"},
        ]
        sent = asked("chat", "responses", messages=said, tools=[tool])
        assert sent["tools"] == [{"type": "custom", "name": "patch", "description": "Edits."}]
        assert [item["type"] for item in sent["input"]] == ["custom_tool_call", "custom_tool_call_output"]
        assert sent["input"][0]["input"] == "+x"

    def test_tools_that_the_provider_runs_are_left_out_by_name(self) -> None:
        one = opened("responses", "chat", input="Hi.", tools=[{"type": "web_search"}])
        assert "tools" not in one.fields
        assert one.dropped == ("tools.web_search",)
        other = opened(
            "messages", "chat", messages=[], tools=[{"type": "web_search_20250305", "name": "web_search"}]
        )
        assert other.dropped == ("tools.web_search_20250305",)

    @pytest.mark.parametrize(
        ("chat", "responses", "messages"),
        [
            ("auto", "auto", {"type": "auto"}),
            ("none", "none", {"type": "none"}),
            ("required", "required", {"type": "any"}),
            (
                {"type": "function", "function": {"name": "run"}},
                {"type": "function", "name": "run"},
                {"type": "tool", "name": "run"},
            ),
        ],
    )
    def test_the_choice_of_a_tool_has_a_word_in_each(self, chat: Any, responses: Any, messages: Any) -> None:
        choices = {"chat": chat, "responses": responses, "messages": messages}
        for program, choice in choices.items():
            for endpoint, wanted in choices.items():
                if program != endpoint:
                    assert (
                        asked(program, endpoint, **TOOLED[program], tool_choice=choice)["tool_choice"]
                        == wanted
                    )

    def test_one_call_at_a_time_has_a_word_in_each(self) -> None:
        flag = {"type": "auto", "disable_parallel_tool_use": True}
        for program in ("chat", "responses"):
            sent = asked(program, "messages", **TOOLED[program], parallel_tool_calls=False)
            assert sent["tool_choice"] == flag
            assert (
                asked("messages", program, **TOOLED["messages"], tool_choice=flag)["parallel_tool_calls"]
                is False
            )

    def test_a_choice_of_some_tools_leaves_out_the_others(self) -> None:
        tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("run", "see")]
        allowed = {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "see"}],
        }
        sent = asked("responses", "messages", input="Hi.", tools=tools, tool_choice=allowed)
        assert [tool["name"] for tool in sent["tools"]] == ["see"]
        assert sent["tool_choice"] == {"type": "any"}


TOOLED: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [],
        "tools": [{"type": "function", "function": {"name": "run", "parameters": SCHEMA}}],
    },
    "responses": {"input": [], "tools": [{"type": "function", "name": "run", "parameters": SCHEMA}]},
    "messages": {"messages": [], "tools": [{"name": "run", "input_schema": SCHEMA}]},
}


class TestSettings:
    def test_those_that_both_know_cross(self) -> None:
        sent = asked(
            "chat", "messages", messages=[], max_completion_tokens=9, temperature=0.2, top_p=0.9, stop="END"
        )
        said = {"max_tokens": 9, "temperature": 0.2, "top_p": 0.9, "stop_sequences": ["END"]}
        assert said.items() <= sent.items()
        back = asked("messages", "chat", messages=[], **said)
        assert {"max_tokens": 9, "temperature": 0.2, "top_p": 0.9, "stop": ["END"]}.items() <= back.items()
        assert asked("messages", "responses", messages=[], max_tokens=9)["max_output_tokens"] == 9

    def test_anthropic_gets_a_limit_where_the_program_sets_none(self) -> None:
        assert asked("chat", "messages", messages=[])["max_tokens"] == 32_000

    def test_an_effort_crosses_and_a_budget_is_one(self) -> None:
        assert asked("chat", "responses", messages=[], reasoning_effort="low")["reasoning"]["effort"] == "low"
        assert asked("responses", "messages", input=[], reasoning={"effort": "high"})["output_config"] == {
            "effort": "high"
        }
        assert (
            asked("messages", "chat", messages=[], output_config={"effort": "max"})["reasoning_effort"]
            == "max"
        )
        for budget, effort in ((1_024, "low"), (4_096, "medium"), (30_000, "high")):
            thinking = {"type": "enabled", "budget_tokens": budget}
            assert asked("messages", "chat", messages=[], thinking=thinking)["reasoning_effort"] == effort

    def test_a_reasoning_models_limit_has_the_name_that_it_takes(self) -> None:
        sent = asked("messages", "chat", messages=[], max_tokens=9, output_config={"effort": "high"})
        assert sent["max_completion_tokens"] == 9
        assert "max_tokens" not in sent

    def test_a_schema_for_the_answer_crosses(self) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
        sent = asked("chat", "messages", messages=[], response_format=form)
        assert sent["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
        assert (
            asked("messages", "chat", messages=[], output_config=sent["output_config"])["response_format"]
            == form
        )
        flat = asked("chat", "responses", messages=[], response_format=form)["text"]["format"]
        assert flat == {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
        assert asked("responses", "chat", input=[], text={"format": flat})["response_format"] == form

    def test_what_has_no_place_is_named(self) -> None:
        one = opened(
            "responses", "chat", input=[], store=False, include=["reasoning.encrypted_content"],
            prompt_cache_key="k", client_metadata={"a": "b"},
        )  # fmt: skip
        assert one.dropped == ("client_metadata", "include", "prompt_cache_key")
        other = opened(
            "messages", "chat", messages=[], context_management={"edits": [1]}, metadata={"user_id": "u"}
        )
        assert other.dropped == ("context_management", "metadata")
        assert opened("chat", "messages", messages=[], seed=1).dropped == ("seed",)

    @pytest.mark.parametrize(
        ("program", "fields", "named"),
        [
            ("chat", {"messages": [{**user("Hi."), "name": "ada"}], "enable_thinking": False, "store": False},
             ("enable_thinking", "messages.name")),
            ("chat", {"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "high"}}]}]},
             ("image_url.detail",)),
            ("responses", {"input": [], "tools": [
                {"type": "namespace", "name": "mcp__a", "description": "Tools of a.", "tools": []}]},
             ("tools.namespace.description",)),
            ("responses", {"input": [{**user("Hi."), "internal_chat_message_metadata_passthrough": {"turn_id": "1"}}],
                           "truncation": "auto", "text": {"stop": "x"}},
             ("input.internal_chat_message_metadata_passthrough", "text.stop", "truncation")),
            ("messages", {"messages": [user("Hi.")], "thinking": {"type": "adaptive", "display": "summarized"},
                          "tools": [{"name": "a", "input_schema": {}, "defer_loading": True}]},
             ("thinking.display", "tools.defer_loading")),
            ("messages", {"messages": [{"role": "user", "content": [{
                "type": "document", "context": "From 1999.", "source": {"type": "content", "content": [
                    {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}}]}]},
             ("cache_control", "document.context")),
            ("gemini", {"contents": [], "toolConfig": {"retrievalConfig": {"languageCode": "de"}}, "tools": [
                {"functionDeclarations": [{"name": "a", "behavior": "NON_BLOCKING"}]}]},
             ("functionDeclarations.behavior", "toolConfig.retrievalConfig")),
        ],
    )  # fmt: skip
    def test_nothing_is_lost_in_silence(self, program: str, fields: Any, named: tuple[str, ...]) -> None:
        assert opened(program, "chat" if program != "chat" else "responses", **fields).dropped == named

    def test_null_stays_allowed_where_a_schema_of_gemini_allows_it(self) -> None:
        schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}}
        config = {"responseMimeType": "application/json", "responseSchema": schema}
        sent = asked("gemini", "chat", contents=[], generationConfig=config)["response_format"]["json_schema"]
        assert sent["schema"]["properties"] == {"a": {"type": ["string", "null"]}}

    @pytest.mark.parametrize(
        ("program", "endpoint", "fields", "kind"),
        [
            ("chat", "messages", {"messages": [], "n": 2}, "n"),
            ("chat", "responses", {"messages": [], "stop": ["END"]}, "stop"),
            ("chat", "messages", {"messages": [], "logprobs": True}, "logprobs"),
            ("chat", "messages", {"messages": [], "logit_bias": {"50256": -100}}, "logit_bias"),
            ("chat", "responses", {"messages": [], "audio": {"voice": "alloy"}}, "audio"),
            ("chat", "responses", {"messages": [], "guided_regex": "[0-9]+"}, "guided_regex"),
            (
                "chat",
                "responses",
                {"messages": [], "response_format": {"type": "grammar"}},
                "response_format.type",
            ),
            ("chat", "messages", {"messages": [], "response_format": {"type": "json_object"}}, "json_object"),
            ("chat", "messages", {"messages": [], "tool_choice": "any"}, "tool_choice"),
            ("chat", "messages", {"messages": [], "tool_choice": "required"}, "tool_choice"),
            ("responses", "chat", {"input": [], "text": {"format": {"type": "grammar"}}}, "text.format.type"),
            ("responses", "chat", {"input": [], "include": ["message.output_text.logprobs"]}, "top_logprobs"),
            ("responses", "chat", {"input": [], "tools": [{"type": "apply_patch"}]}, "tools.apply_patch"),
            ("responses", "messages", {"input": [{"type": "computer_call_output"}]}, "computer_call_output"),
            (
                "responses",
                "chat",
                {"input": [], "tools": [{"type": "web_search"}], "tool_choice": "required"},
                "tool_choice",
            ),
            (
                "messages",
                "chat",
                {"messages": [], "tools": [{"type": "bash_20250124", "name": "bash"}]},
                "tools.bash_20250124",
            ),
            (
                "messages",
                "chat",
                {
                    "messages": [],
                    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                    "tool_choice": {"type": "tool", "name": "web_search"},
                },
                "tool_choice",
            ),
            (
                "messages",
                "responses",
                {"messages": [], "output_config": {"format": {"type": "regex"}}},
                "output_config.format.type",
            ),
            (
                "gemini",
                "chat",
                {"contents": [], "generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}},
                "responseModalities",
            ),
            (
                "gemini",
                "chat",
                {"contents": [], "generationConfig": {"responseMimeType": "text/x.enum"}},
                "responseMimeType",
            ),
            (
                "gemini",
                "chat",
                {
                    "contents": [
                        {"parts": [{"fileData": {"mimeType": "image/png", "fileUri": "gs://bucket/a.png"}}]}
                    ]
                },
                "fileData",
            ),
            (
                "gemini",
                "messages",
                {
                    "contents": [],
                    "tools": [{"googleSearch": {}}],
                    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
                },
                "tool_choice",
            ),
            ("responses", "chat", {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
            ("responses", "chat", {"input": [{"type": "item_reference", "id": "i"}]}, "item_reference"),
            (
                "responses",
                "messages",
                {"input": [{"type": "compaction", "encrypted_content": "x"}]},
                "compaction",
            ),
        ],
    )
    def test_what_would_change_the_meaning_is_refused(
        self, program: str, endpoint: str, fields: dict[str, Any], kind: str
    ) -> None:
        with pytest.raises(Untranslatable) as caught:
            opened(program, endpoint, **fields)
        assert caught.value.kind == kind


class TestThinking:
    BLOCKS = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
        {"type": "text", "text": "Yes."},
    ]

    def test_words_go_to_chat_and_the_seal_stays_behind(self) -> None:
        said = opened("messages", "chat", messages=[{"role": "assistant", "content": self.BLOCKS}])
        assert said.fields["messages"] == [
            {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
        ]
        assert said.dropped == ("redacted_thinking", "thinking.signature")

    def test_they_are_not_given_to_a_provider_that_wants_its_own_seal(self) -> None:
        said = opened("messages", "responses", messages=[{"role": "assistant", "content": self.BLOCKS}])
        assert [item["type"] for item in said.fields["input"]] == ["message"]
        assert "thinking" in said.dropped
        items = [
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "x",
            }
        ]
        back = opened("responses", "messages", input=[*items, user("Go on.")])
        assert [one["role"] for one in back.fields["messages"]] == ["user"]
        assert back.dropped == ("reasoning.encrypted_content", "thinking")


def test_gemini_asks_chat() -> None:
    contents = [
        {
            "role": "user",
            "parts": [{"text": "Look."}, {"inlineData": {"mimeType": "image/png", "data": "aW1n"}}],
        },
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "run", "args": {"cmd": "ls"}}, "thoughtSignature": "x"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {"output": "a.txt"}}}]},
    ]
    sent = opened(
        "gemini",
        "chat",
        systemInstruction={"parts": [{"text": "Be brief."}]},
        contents=contents,
        tools=[{"functionDeclarations": [{"name": "run", "parameters": {"type": "OBJECT"}}]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY"}},
        generationConfig={
            "maxOutputTokens": 9,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingBudget": 1000},
        },
    )
    system, look, call, result = sent.fields["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert look["content"] == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": PNG}},
    ]
    [function] = call["tool_calls"]
    assert json.loads(function["function"]["arguments"]) == {"cmd": "ls"}
    assert result == {"role": "tool", "tool_call_id": function["id"], "content": "a.txt"}
    assert sent.fields["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert (sent.fields["tool_choice"], sent.fields["stop"]) == ("required", ["END"])
    assert (sent.fields["max_completion_tokens"], sent.fields["reasoning_effort"]) == (9, "low")
    assert sent.dropped == ("thoughtSignature",)

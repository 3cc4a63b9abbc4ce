"""Of any conversation and any answer: nothing is lost there and back, and no input breaks the translation."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

from _kit.requests import read_request
from _kit.speaking import DIALECTS, speak
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.dialects import Event, known
from hotswap.messages import Answer, Message
from hotswap.proxy.events import EventReader
from hotswap.translation import Translated, Untranslatable, between

PAIRS = list(itertools.permutations(DIALECTS, 2))
WORDS = st.text('ab1 "\\{}\n\u2028é😀', min_size=1, max_size=8).map(lambda text: text.strip()).filter(bool)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(WORDS, WORDS | st.integers(-9, 9) | st.lists(WORDS, max_size=2), max_size=3)
CALL = st.tuples(st.sampled_from(("run", "read", "now")), ARGUMENTS, WORDS)
ROUND = st.tuples(st.lists(WORDS, min_size=1, max_size=2), WORDS, st.lists(CALL, max_size=3))
Rounds = list[tuple[list[str], str, list[tuple[str, dict[str, Any], str]]]]


def open_(program: str, endpoint: str, fields: dict[str, Any], stream: bool = False) -> Translated:
    translation = between(program, endpoint)
    assert translation is not None
    return translation.open(fields, "model", stream)


def chat(system: str, rounds: Rounds) -> dict[str, Any]:
    messages: list[Any] = [{"role": "system", "content": system}]
    for place, (asked, answered, calls) in enumerate(rounds):
        messages += [{"role": "user", "content": text} for text in asked]
        made = [
            {
                "id": f"c{place}_{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for n, (name, arguments, _) in enumerate(calls)
        ]
        messages.append({"role": "assistant", "content": answered, **({"tool_calls": made} if made else {})})
        results = [(f"c{place}_{n}", result) for n, (_, _, result) in enumerate(calls)]
        messages += [
            {"role": "tool", "tool_call_id": called, "content": result} for called, result in results
        ]
    return {"messages": messages}


def responses(system: str, rounds: Rounds) -> dict[str, Any]:
    items: list[Any] = []
    for place, (asked, answered, calls) in enumerate(rounds):
        items += [{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in asked]
        items.append(
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answered}]}
        )
        for n, (name, arguments, _) in enumerate(calls):
            call = {"call_id": f"c{place}_{n}", "name": name, "arguments": json.dumps(arguments)}
            items.append({"type": "function_call", **call})
        for n, (_, _, result) in enumerate(calls):
            items.append({"type": "function_call_output", "call_id": f"c{place}_{n}", "output": result})
    return {"instructions": system, "input": items}


def messages(system: str, rounds: Rounds) -> dict[str, Any]:
    said: list[Any] = []
    results: list[Any] = []
    for place, (asked, answered, calls) in enumerate(rounds):
        said.append(
            {"role": "user", "content": [*results, *({"type": "text", "text": text} for text in asked)]}
        )
        blocks: list[Any] = [{"type": "text", "text": answered}]
        for n, (name, arguments, _) in enumerate(calls):
            blocks.append({"type": "tool_use", "id": f"c{place}_{n}", "name": name, "input": arguments})
        said.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": f"c{place}_{n}", "content": result}
            for n, (_, _, result) in enumerate(calls)
        ]
    last = [{"role": "user", "content": results}] if results else []
    return {"system": system, "messages": [*said, *last], "max_tokens": 9}


WRITE: dict[str, Callable[[str, Rounds], dict[str, Any]]] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
}


def essence(dialect: str, fields: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What was said, called and given back, in order, by the dialect's own reader; neighbours of one role as one."""
    found: list[tuple[Any, ...]] = []
    for message in read_request(known()[dialect], fields).messages:
        calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
        one = (message.role, message.tool_call_id, message.text, calls)
        if found and message.role == found[-1][0] == "user":
            one = ("user", None, found[-1][2] + message.text, [])
            found.pop()
        if message.text or calls:
            found.append(one)
    return found


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(PAIRS), WORDS, st.lists(ROUND, min_size=1, max_size=4))
def test_a_conversation_that_goes_there_and_back_is_the_same(
    pair: tuple[str, str], system: str, rounds: Rounds
) -> None:
    program, endpoint = pair
    fields = WRITE[program](system, rounds)
    there = open_(program, endpoint, fields).fields
    back = open_(endpoint, program, there).fields
    assert essence(program, back) == essence(program, fields)
    assert essence(endpoint, there) == essence(endpoint, WRITE[endpoint](system, rounds))


def plain(message: Message) -> tuple[Any, ...]:
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.role, message.text, calls, message.reasoning, message.refusal


def facts(answer: Answer) -> tuple[Any, ...]:
    said = [plain(message) for message in answer.messages]
    return said, answer.finish, answer.usage, answer.model, answer.id, answer.error


def events(data: bytes) -> list[Event]:
    reader = EventReader()
    return [piece.event for piece in (*reader.feed(data), *reader.finish()) if piece.event is not None]


ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": [], "stream_options": {"include_usage": True}},
    "responses": {"input": []},
    "messages": {"messages": [], "thinking": {"type": "adaptive"}},
    "gemini": {"contents": [], "generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
}
CALLS = st.lists(st.tuples(st.uuids().map(str), st.sampled_from(("run", "read")), ARGUMENTS), max_size=3)
ANSWERED = [*PAIRS, *(("gemini", endpoint) for endpoint in DIALECTS)]


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(ANSWERED), WORDS, st.just("") | WORDS, CALLS, st.sampled_from(("", "length")))
def test_a_stream_amounts_to_the_answer_in_one_piece(
    pair: tuple[str, str], text: str, thinking: str, calls: Any, finish: str
) -> None:
    program, endpoint = pair
    answer = speak(endpoint, text=text, thinking=thinking, calls=calls, finish=finish)
    assert answer.body is not None
    assert answer.chunks is not None
    whole = known()[program].read_answer(open_(program, endpoint, ASKED[program]).whole(answer.body))
    translated = open_(program, endpoint, ASKED[program], stream=True)
    sent = b"".join(translated.feed(event) for event in events(b"".join(answer.chunks))) + translated.finish()
    assembler = known()[program].assembler()
    for event in events(sent):
        assembler.feed(event)
    assert facts(assembler.answer()) == facts(whole)
    assert whole.error is None
    assert [message.text for message in whole.messages] == [text]
    assert [json.loads(call.arguments) for call in whole.messages[0].tool_calls] == [
        given for _, _, given in calls
    ]


def spoil(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The same JSON with something else at one place of it."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: spoil(value[name], draw)}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], spoil(value[place], draw), *value[place + 1 :]]
    return draw(VALUES)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(ANSWERED), st.data())
def test_no_stream_and_no_body_breaks_it(pair: tuple[str, str], data: st.DataObject) -> None:
    program, endpoint = pair
    answer = speak(endpoint, text="Yes.", thinking="Hm.", calls=[("a", "run", {"n": 1})])
    translated = open_(program, endpoint, ASKED[program], stream=True)
    for event in events(b"".join(answer.chunks or ())):
        value = json.loads(event.data) if event.data != "[DONE]" else event.data
        if data.draw(st.integers(0, 3)) == 0:
            value = spoil(value, data.draw)
        translated.feed(Event(event.name, value if isinstance(value, str) else json.dumps(value)))
    translated.finish()
    body = spoil(json.loads(answer.body or b""), data.draw)
    open_(program, endpoint, ASKED[program]).whole(json.dumps(body).encode())


RICH: dict[str, dict[str, Any]] = {
    "chat": {
        "tools": [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "run"}},
        "stop": ["END"],
        "max_tokens": 5,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    },
    "responses": {
        "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "run"}]}],
        "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "run"}]},
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "schema": {}}},
    },
    "messages": {
        "tools": [{"name": "run", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "run"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["END"],
    },
    "gemini": {
        "contents": [
            {"role": "model", "parts": [{"text": "Hi."}, {"functionCall": {"name": "run", "args": {}}}]}
        ],
        "tools": [{"functionDeclarations": [{"name": "run", "parameters": {"type": "OBJECT"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["run"]}},
        "generationConfig": {"stopSequences": ["END"], "thinkingConfig": {"thinkingBudget": 1}},
    },
}


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(ANSWERED), st.data())
def test_a_request_that_is_odd_is_translated_or_refused_and_stays_as_it_was(
    pair: tuple[str, str], data: st.DataObject
) -> None:
    program, endpoint = pair
    rounds: Rounds = [(["Go."], "Yes.", [("run", {"n": 1}, "done")])]
    fields = {**(WRITE[program]("Be brief.", rounds) if program in WRITE else {}), **RICH[program]}
    fields = {
        name: spoil(value, data.draw) if data.draw(st.booleans()) else value for name, value in fields.items()
    }
    before = copy.deepcopy(fields)
    with contextlib.suppress(Untranslatable):
        json.dumps(open_(program, endpoint, fields).fields)
    assert repr(fields) == repr(before)

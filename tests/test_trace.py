"""A trace is one line of JSON that says what its schema says."""

import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest
from _kit.check import check_trace, problems
from _kit.traces import failed, full, scored
from hypothesis import given
from hypothesis import strategies as st

from hotswap import errors, messages, trace
from hotswap.messages import Usage
from hotswap.trace import CellRecord, Node, TaskRecord, Trace, schema

RECORDS = {
    "cell": trace.CellRecord,
    "task": trace.TaskRecord,
    "error": errors.ErrorRecord,
    "try": trace.Try,
    "reward": trace.RewardRecord,
    "launch": trace.LaunchRecord,
    "tool_call": messages.ToolCall,
    "message": trace.Node,
    "branch": trace.Branch,
    "call_try": trace.CallTry,
    "call": trace.CallRecord,
    "helper": trace.HelperRecord,
    "usage": messages.Usage,
    "timing": trace.Timing,
    "box": trace.BoxRecord,
    "egress": trace.EgressRecord,
}


LATER = {"helpers", "box"}
"""Fields of a trace that the first version did not write."""


@pytest.mark.parametrize("record", [scored(), failed(), full()], ids=["scored", "failed", "full"])
def test_a_trace_comes_back_as_it_was_written_and_fits_the_schema(record: Trace) -> None:
    check_trace(record)
    assert Trace.from_line(record.to_line()) == record


def test_the_schema_comes_first_and_a_line_is_one_line() -> None:
    line = full().to_line()
    assert line.startswith(b'{"schema":1,"id":')
    assert line.count(b"\n") == 1


def test_keys_of_a_newer_version_are_kept_and_written_again() -> None:
    record = {**scored().to_json(), "judges": [{"model": "x"}], "unknown": {"a": 1}}
    again = Trace.from_json(record)
    assert again.unknown == {"judges": [{"model": "x"}], "unknown": {"a": 1}}
    assert again.to_json() == record


def test_a_trace_from_before_some_fields_were_there_reads_and_fits_the_schema() -> None:
    record = full().to_json()
    del record["helpers"]
    for branch in record["branches"]:
        del branch["forked"], branch["drift"]
    for call in record["calls"]:
        del call["fault"], call["replayed"]
    check_trace(record)
    assert Trace.from_json(record) == full()


def test_requests_beside_and_faults_put_in_on_purpose_are_kept() -> None:
    record = scored()
    record.helpers = [trace.HelperRecord("GET", "/v1/models", 200, 1.0, 0.1)]
    record.calls[0].fault, record.calls[0].replayed = "cut", True
    record.branches[0].forked, record.branches[0].drift = 1, True
    check_trace(record)
    assert Trace.from_line(record.to_line()) == record


@pytest.mark.parametrize(("kind", "turns"), [("main", 1), ("compacted", 1), ("subagent", 0), ("side", 0)])
def test_turns_are_the_calls_of_the_main_conversation_also_those_it_left_behind(
    kind: trace.BranchKind, turns: int
) -> None:
    record = scored()
    record.calls[0].kind = kind
    assert record.turns == turns


CONTENTS: dict[str, tuple[Any, str]] = {
    "text": ("a", "a"),
    "null": (None, ""),
    "parts of the chat dialect": ([{"type": "text", "text": "a"}, {"type": "image_url"}, "b"], "ab"),
    "blocks of the messages dialect": (
        [
            {"type": "thinking", "thinking": "hm", "text": "hm"},
            {"type": "text", "text": "a"},
            {"type": "tool_use"},
        ],
        "a",
    ),
    "parts of the responses dialect": (
        [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}],
        "ab",
    ),
    "items of the responses dialect": (
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "text": "hm"},
            {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal"}]},
            {"type": "message", "content": "b"},
            {"type": "function_call", "arguments": "{}"},
        ],
        "ab",
    ),
    "parts of the gemini dialect": (
        [{"text": "hm", "thought": True}, {"text": "a"}, {"functionCall": {}}],
        "a",
    ),
    "odd parts": ([None, 1, [{"text": "x"}], {"text": 3}, {"type": "message", "content": 1}], ""),
    "messages in messages": ([{"type": "message", "content": [{"type": "message", "content": "x"}]}], ""),
}


@pytest.mark.parametrize(("content", "text"), CONTENTS.values(), ids=CONTENTS)
def test_the_text_of_a_message_is_what_was_said_in_every_dialect(content: Any, text: str) -> None:
    assert Node(0, None, "assistant", content).text == text
    assert messages.Message("assistant", content).text == text


def test_null_where_a_field_has_a_default_reads_as_the_default() -> None:
    record = scored().to_json()
    record["usage"] = record["calls"][0]["usage"] = record["timing"] = record["metrics"] = None
    again = Trace.from_json(record)
    assert again.usage == again.calls[0].usage == Usage()
    assert again.timing.started == 0.0
    assert again.metrics == {}
    assert again.turns == 1


@given(st.text(max_size=20))
def test_any_text_survives(text: str) -> None:
    record = scored()
    record.messages[2].content = text
    line = record.to_line()
    assert line.count(b"\n") == 1
    assert Trace.from_line(line).messages[2].content == text


def test_a_lone_surrogate_is_spelled_out_and_a_pair_and_a_spelled_one_stay() -> None:
    record = scored()
    record.messages[2].content = 'math \ud835 "\udc00" \\ud835 \U0001d400'
    again = Trace.from_line(record.to_line())
    assert again.messages[2].content == 'math \\ud835 "\\udc00" \\ud835 \U0001d400'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused(number: float) -> None:
    record = scored()
    record.metrics["speed"] = number
    with pytest.raises(ValueError):
        record.to_line()


def test_a_long_trace_is_written_quickly() -> None:
    record = Trace("a", "r", CellRecord("c", "t", "h", "1", "m", "l"), TaskRecord("i", "sha256:x"), 0)
    record.messages = [Node(at, at - 1 if at else None, "user", "x" * 100) for at in range(400)]
    record.calls = [copy.copy(scored().calls[0]) for _ in range(200)]
    began = time.process_time()
    record.to_json()
    plain = time.process_time() - began
    began = time.process_time()
    copy.deepcopy(record)
    assert plain < time.process_time() - began


def test_every_record_and_the_schema_name_the_same_fields() -> None:
    described = schema()
    names = {spec.name for spec in dataclasses.fields(Trace)} - {"unknown"}
    assert set(described["properties"]) == names
    assert set(described["required"]) == names - LATER
    assert set(described["$defs"]) == set(RECORDS)
    for name, record in RECORDS.items():
        assert set(described["$defs"][name]["properties"]) == {
            spec.name for spec in dataclasses.fields(record)
        }, name


def test_the_schema_lists_the_same_words_as_the_code() -> None:
    described = schema()
    error = described["$defs"]["error"]["properties"]
    assert error["blame"]["enum"] == list(get_args(errors.Blame))
    assert error["stage"]["enum"] == list(get_args(errors.Stage))
    assert described["properties"]["outcome"]["enum"] == list(get_args(trace.Outcome))
    assert described["$defs"]["branch"]["properties"]["kind"]["enum"] == list(get_args(trace.BranchKind))
    assert described["properties"]["schema"]["const"] == trace.SCHEMA


def test_every_field_has_its_sentence() -> None:
    described = schema()
    for record in (described, *described["$defs"].values()):
        for name, spec in record["properties"].items():
            assert spec["description"].endswith((".", "...")), name


def drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.pop(key)


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], object]:
    def change(record: Any) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return change


WRONG = {
    "no outcome": drop("outcome"),
    "no cost": drop("cost_usd"),
    "scored without a reward": put(None, "reward"),
    "error with a reward": put("error", "outcome"),
    "an unknown blame": put("weather", "error", "blame"),
    "a reward as text": put("1.0", "rewards", "right", "value"),
    "a negative count of tokens": put(-1, "usage", "input"),
    "another schema": put(2, "schema"),
    "a message without a role": put({"id": 0, "parent": None}, "messages", 0),
    "an unknown branch": put("trunk", "branches", 0, "kind"),
    "a metric as text": put("fast", "metrics", "turns"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_schema_refuses(name: str) -> None:
    record = json.loads(full().to_line())
    assert not problems(record)
    WRONG[name](record)
    assert problems(record)


def test_an_error_needs_its_reason() -> None:
    record = failed().to_json()
    record["error"] = None
    assert problems(record)

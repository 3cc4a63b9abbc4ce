"""The metrics that every rollout has."""

import pytest

from hotswap.messages import ToolCall
from hotswap.trace import CallRecord, CellRecord, Node, TaskRecord, Trace
from hotswap.vitals import vitals


def traced(arguments: list[str], answer: str | None, finish: str = "stop") -> Trace:
    cell = CellRecord("t/h/m/r", "t", "h", "1", "m", "r")
    trace = Trace(id="1", run="r", cell=cell, task=TaskRecord("t", "sha256:0"), attempt=0, answer=answer)
    calls = [ToolCall(str(number), "bash", text) for number, text in enumerate(arguments)]
    trace.messages = [
        Node(0, None, "user", "hi"),
        Node(1, 0, "assistant", None, sampled=True, tool_calls=calls),
    ]
    trace.calls = [CallRecord(0, [1], "chat", "/v1/chat/completions", "m", 200, 0.0, finish=finish)]
    return trace


def test_calls_of_tools_and_those_that_cannot_be_read_are_counted_apart() -> None:
    counts = vitals(traced(['{"command": "ls"}', "{not json", "[1]", "", "null"], "done"))
    assert counts["tool_calls"] == 5
    assert counts["invalid_tool_calls"] == 3


BASH = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "limit": {"type": ["integer", "null"]},
        "more": {"enum": [1]},
    },
    "required": ["command"],
    "additionalProperties": False,
}
OFFERS = [
    {"type": "function", "function": {"name": "bash", "parameters": BASH}},
    {"type": "function", "name": "bash", "parameters": BASH},
    {"name": "bash", "input_schema": BASH},
]


def invalid(arguments: str, offer: object) -> float | None:
    """How many calls are counted as invalid of one call of a tool that was offered like this."""
    trace = traced([arguments], "done")
    trace.tools = {"offered": [offer]}
    trace.calls[0].tools, trace.messages[1].call = "offered", 0
    return vitals(trace)["invalid_tool_calls"]


@pytest.mark.parametrize("offer", OFFERS, ids=["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{}",
        '{"command": 7}',
        '{"command": null}',
        '{"command": true}',
        '{"command": "ls", "cwd": "/"}',
        '{"command"',
        '["ls"]',
        '"{}"',
        '{"command": "ls", "limit": "7"}',
        '{"command": "ls", "limit": true}',
    ],
)
def test_a_call_that_does_not_fit_its_tool_is_counted(arguments: str, offer: object) -> None:
    assert invalid(arguments, offer) == 1


@pytest.mark.parametrize("offer", OFFERS, ids=["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "arguments",
    ['{"command": "ls"}', '{"command": "", "limit": 7}', '{"command": "ls", "limit": null, "more": 1}'],
)
def test_a_call_that_fits_its_tool_is_not_counted(arguments: str, offer: object) -> None:
    assert invalid(arguments, offer) == 0


@pytest.mark.parametrize(
    ("arguments", "offer"),
    [
        ("", {"name": "bash"}),
        ('{"x": 1}', {"name": "bash", "input_schema": {"properties": {"x": {"type": "STRING"}}}}),
        ("*** Begin Patch", {"type": "custom", "name": "bash"}),
        ("*** Begin Patch", {"type": "custom", "custom": {"name": "bash"}}),
        ("{}", {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "bash"}]}),
        ("{}", {"functionDeclarations": [{"name": "bash"}]}),
    ],
)
def test_what_a_tool_does_not_say_is_left_to_the_program(arguments: str, offer: object) -> None:
    assert invalid(arguments, offer) == 0


def test_a_call_of_a_tool_where_none_was_offered_is_counted_unless_the_request_could_not_be_read() -> None:
    trace = traced(['{"command": "ls"}'], "done")
    trace.messages[1].call = 0
    assert vitals(trace)["invalid_tool_calls"] == 1
    trace.calls[0].input = None
    assert vitals(trace)["invalid_tool_calls"] == 0


@pytest.mark.parametrize(("answer", "empty"), [(None, 1), (" \n", 1), ("0", 0)])
def test_an_empty_answer_is_flagged(answer: str | None, empty: float) -> None:
    assert vitals(traced([], answer))["empty_answer"] == empty


def test_an_answer_that_was_cut_off_is_counted() -> None:
    assert vitals(traced([], "x", finish="length"))["truncated_answers"] == 1

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


@pytest.mark.parametrize(("answer", "empty"), [(None, 1), (" \n", 1), ("0", 0)])
def test_an_empty_answer_is_flagged(answer: str | None, empty: float) -> None:
    assert vitals(traced([], answer))["empty_answer"] == empty


def test_an_answer_that_was_cut_off_is_counted() -> None:
    assert vitals(traced([], "x", finish="length"))["truncated_answers"] == 1

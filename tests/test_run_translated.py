"""A program on an endpoint of another dialect: the run needs no more than the endpoint's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _kit.evals import evaluate
from _kit.provider import Provider, Received, Reply


def in_messages(received: Received) -> Reply:
    asked = received.json["messages"][-1]["content"]
    words = asked if isinstance(asked, str) else asked[-1]["text"]
    block = {"type": "text", "text": words.split()[-1][::-1]}
    usage = {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 2}
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block]}
    return Reply(body=json.dumps({**answer, "stop_reason": "end_turn", "usage": usage}).encode())


def in_responses(received: Received) -> Reply:
    item = received.json["input"][-1]["content"]
    words = item if isinstance(item, str) else item[-1]["text"]
    part = {"type": "output_text", "text": words.split()[-1][::-1], "annotations": []}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    details = {"input_tokens_details": {"cached_tokens": 3}}
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, **details}
    answer = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [said]}
    return Reply(body=json.dumps({**answer, "error": None, "usage": usage}).encode())


@pytest.mark.parametrize(
    ("dialect", "answer", "path"),
    [("messages", in_messages, "/v1/messages"), ("responses", in_responses, "/v1/responses")],
)
def test_a_harness_runs_on_an_endpoint_of_another_dialect(
    dialect: str, answer: object, path: str, tmp_path: Path
) -> None:
    with Provider(answer) as provider:  # type: ignore[arg-type]
        model = f"scripted@{provider.url}?dialect={dialect}"
        done = evaluate(tmp_path, "reverse_text", "-m", model, "-n", "2")
        assert {request.path for request in provider.posts} == {path}
    assert done.code == 0, done.stderr
    for trace in done.traces:
        [call] = trace["calls"]
        assert (call["dialect"], call["translated"]) == ("chat", dialect)
        assert (call["usage"]["input"], call["usage"]["cached"], call["usage"]["output"]) == (10, 3, 2)
        assert (trace["outcome"], trace["branches"][0]["kind"]) == ("scored", "main")
        assert trace["answer"]

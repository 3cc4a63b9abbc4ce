"""Messages become a graph: shared prefixes once, forks where requests differ, answers found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hotswap.graph import Graph, identity
from hotswap.messages import Message, ToolCall


def user(text: Any) -> Message:
    return Message("user", text)


def model(text: str | None = None, *calls: ToolCall, **rest: Any) -> Message:
    return Message("assistant", text, calls, **rest)


def play(
    graph: Graph, sent: Sequence[Message], said: Message, call: int = 0, agent: str = "main"
) -> tuple[int, int]:
    """One call: what the program sent, what came back. Gets both leaves."""
    leaf = graph.extend(None, sent)
    assert leaf is not None
    graph.use(leaf, "main", agent)
    answer = graph.answer(leaf, said, call)
    graph.use(answer, "main", agent)
    return leaf, answer


def test_a_conversation_that_grows_is_stored_once() -> None:
    graph, sent = Graph(), [Message("system", "s"), user("0")]
    for turn in range(50):
        play(graph, sent, model(f"a{turn}"), turn)
        sent += [model(f"a{turn}"), user(f"u{turn}")]
    assert len(graph.nodes) == 1 + 2 * 50
    assert [branch.leaf for branch in graph.branches()] == [100]
    assert [node.call for node in graph.nodes if node.sampled] == list(range(50))


CALL = ToolCall("c1", "run", '{"a": 1, "b": [2]}')
ECHOES: Mapping[str, tuple[Message, Message]] = {
    "without its reasoning": (model("x", reasoning="hm"), model("x")),
    "without fields from elsewhere": (model("x", extra={"annotations": []}), model("x")),
    "without a refusal field": (model("x", refusal="no"), model("x")),
    "with its space trimmed": (model(" x\n"), model("x")),
    "as a part": (model("x"), Message("assistant", [{"type": "text", "text": "x"}])),
    "empty for null": (model(None, CALL), model("", CALL)),
    "with its arguments written anew": (
        model(None, CALL),
        model(None, ToolCall("c1", "run", '{"b":[2],"a":1}')),
    ),
    "with arguments that are no JSON": (
        model(None, ToolCall("c1", "run", "{no")),
        model(None, ToolCall("c1", "run", "{no")),
    ),
}


@pytest.mark.parametrize(("said", "echo"), ECHOES.values(), ids=ECHOES)
def test_an_answer_is_found_again_however_the_program_sends_it_back(said: Message, echo: Message) -> None:
    graph = Graph()
    _, answer = play(graph, [user("q")], said)
    leaf = graph.extend(None, [user("q"), echo, user("more")])
    assert leaf is not None
    assert graph.nodes[leaf].parent == answer
    assert len(graph.nodes) == 3


OTHERS: Mapping[str, tuple[Message, Message]] = {
    "another text": (user("a"), user("b")),
    "another role": (user("a"), Message("developer", "a")),
    "another call id": (model(None, CALL), model(None, ToolCall("c2", CALL.name, CALL.arguments))),
    "other arguments": (model(None, CALL), model(None, ToolCall("c1", "run", '{"a": 2}'))),
    "an answer to another call": (
        Message("tool", "x", tool_call_id="1"),
        Message("tool", "x", tool_call_id="2"),
    ),
    "another image": (user([{"type": "image", "url": "a"}]), user([{"type": "image", "url": "b"}])),
    "parts that join to the same text": (
        user([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]),
        user([{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}]),
    ),
    "an image at another place": (
        user([{"type": "text", "text": "a"}, {"type": "image", "url": "u"}]),
        user([{"type": "image", "url": "u"}, {"type": "text", "text": "a"}]),
    ),
}


@pytest.mark.parametrize(("one", "other"), OTHERS.values(), ids=OTHERS)
def test_what_differs_forks(one: Message, other: Message) -> None:
    graph = Graph()
    assert graph.extend(None, [one]) != graph.extend(None, [other])
    assert identity(one) != identity(other)


def test_marks_of_caching_that_wander_are_no_fork() -> None:
    part = {"type": "image", "url": "u"}
    assert identity(user([part])) == identity(user([{**part, "cache_control": {"type": "ephemeral"}}]))


def test_a_shared_beginning_is_there_once() -> None:
    graph = Graph()
    play(graph, [Message("system", "s"), user("a")], model("x"))
    play(graph, [Message("system", "s"), user("b")], model("y"), 1)
    assert [node.parent for node in graph.nodes] == [None, 0, 1, 0, 3]
    assert [branch.leaf for branch in graph.branches()] == [4, 2]


def test_the_same_words_said_twice_are_two_answers() -> None:
    graph = Graph()
    _, first = play(graph, [user("q")], model("x"))
    _, second = play(graph, [user("q")], model("x"), 1)
    assert first != second
    leaf = graph.extend(None, [user("q"), model("x"), user("more")])
    assert leaf is not None
    assert graph.nodes[leaf].parent == second


def test_the_longest_conversation_comes_first_and_in_it_the_last_used_path() -> None:
    graph = Graph()
    sent = [user("work")]
    for turn in range(3):
        play(graph, sent, model(f"a{turn}"), turn)
        sent += [model(f"a{turn}"), user(f"u{turn}")]
    _, forked = play(graph, [user("work"), model("a0"), user("rewritten")], model("b"), 3)
    play(graph, [user("Make a title")], model("Title"), 4)
    assert graph.branches()[0].leaf == forked
    assert len(graph.branches()) == 3


def test_a_request_without_an_answer_is_no_branch_but_may_end_one() -> None:
    graph = Graph()
    leaf = graph.extend(None, [user("q")])
    assert leaf is not None
    graph.use(leaf, "main", "main")
    assert graph.branches() == []
    play(graph, [user("q")], model("x"))
    after = graph.extend(None, [user("q"), model("x"), user("more")])
    assert after is not None
    graph.use(after, "main", "main")
    assert [branch.leaf for branch in graph.branches()] == [after]


def test_an_answer_that_broke_off_is_no_end_of_a_branch() -> None:
    graph = Graph()
    play(graph, [user("q")], model("x", extra={"truncated": True}))
    assert graph.branches() == []
    _, whole = play(graph, [user("q")], model("xyz"))
    assert [branch.leaf for branch in graph.branches()] == [whole]

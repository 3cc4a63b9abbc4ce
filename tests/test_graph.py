"""Messages become a graph: shared prefixes once, forks where requests differ, answers found again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap.blobs import Blobs
from hotswap.graph import Graph, identity
from hotswap.messages import Message, ToolCall
from hotswap.trace import Branch, CallRecord


def user(text: Any) -> Message:
    return Message("user", text)


def system(text: Any) -> Message:
    return Message("system", text)


def model(text: Any = None, *calls: ToolCall, **rest: Any) -> Message:
    return Message("assistant", text, calls, **rest)


def result(text: Any, call: str = "c1") -> Message:
    return Message("tool", text, tool_call_id=call)


def run(command: str = "ls", call: str = "c1") -> ToolCall:
    return ToolCall(call, "run", json.dumps({"command": command}))


def spawn(prompt: str, call: str = "s1") -> ToolCall:
    return ToolCall(call, "agent", json.dumps({"prompt": prompt, "kind": "search"}))


TOOLS = frozenset({"run", "agent", "edit"})


class Play:
    """A graph as a session uses it: calls that are opened and answered, in any order."""

    def __init__(self, **given: Any) -> None:
        self.graph = Graph(**given)
        self.calls: list[CallRecord] = []

    def open(
        self,
        sent: Sequence[Message],
        kind: Any = "main",
        agent: str = "main",
        tools: bool | frozenset[str] = False,
        model: str = "m",
    ) -> CallRecord:
        leaf = self.graph.extend(None, sent)
        assert leaf is not None
        offered = tools if isinstance(tools, frozenset) else TOOLS if tools else frozenset[str]()
        self.graph.use(leaf, kind, agent, offered, model)
        self.calls.append(CallRecord(leaf, [], "chat", "/v1", model, 200, 0.0, kind=kind, agent=agent))
        return self.calls[-1]

    def close(self, call: CallRecord, *said: Message) -> CallRecord:
        number = self.calls.index(call)
        call.outputs = [self.graph.answer(call.input, message, number) for message in said]
        for node in call.outputs:
            self.graph.use(node, call.kind, call.agent)
        return call

    def call(self, sent: Sequence[Message], *said: Message, **who: Any) -> CallRecord:
        return self.close(self.open(sent, **who), *said)

    @property
    def main(self) -> list[str]:
        """The texts of the main branch."""
        return self.path(next(branch for branch in self.graph.branches() if branch.kind == "main"))

    def path(self, branch: Branch) -> list[str]:
        texts, at = [], branch.leaf
        while at is not None:
            texts.append(self.graph.nodes[at].text)
            at = self.graph.nodes[at].parent  # type: ignore[assignment]
        return texts[::-1]

    @property
    def kinds(self) -> list[str]:
        return [str(kind) for kind in self.graph.kinds(self.calls)]

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The kind and the last text of each branch."""
        return [(branch.kind, self.path(branch)[-1]) for branch in self.graph.branches()]

    def turns(self, call: CallRecord) -> int:
        """The turns so far of the conversation that a call belongs to."""
        assert call.input is not None
        number = self.graph.conversation(call.input)
        assert number is not None
        return self.graph.turns(number)


# identity


def test_a_conversation_that_grows_is_stored_once() -> None:
    play, sent = Play(), [system("s"), user("0")]
    for turn in range(50):
        play.call(sent, model(f"a{turn}"))
        sent += [model(f"a{turn}"), user(f"u{turn}")]
    assert len(play.graph.nodes) == 1 + 2 * 50
    assert [branch.leaf for branch in play.graph.branches()] == [100]
    assert [node.call for node in play.graph.nodes if node.sampled] == list(range(50))


CALL = ToolCall("c1", "run", '{"a": 1, "b": [2]}')
ECHOES: Mapping[str, tuple[Message, Message]] = {
    "without its reasoning": (model("x", reasoning="hm"), model("x")),
    "without fields from elsewhere": (model("x", extra={"annotations": []}), model("x")),
    "without a refusal field": (model("x", refusal="no"), model("x")),
    "with its space trimmed": (model(" x\n"), model("x")),
    "as a part": (model("x"), model([{"type": "text", "text": "x"}])),
    "in several parts, each trimmed": (
        model("one two\nthree"),
        model([{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]),
    ),
    "empty for null": (model(None, CALL), model("", CALL)),
    "with its arguments written anew": (
        model(None, CALL),
        model(None, ToolCall("c1", "run", '{"b":[2],"a":1}')),
    ),
    "with numbers as JavaScript writes them": (
        model(None, ToolCall("c1", "run", '{"a": 1.0, "b": 1e3}')),
        model(None, ToolCall("c1", "run", '{"a": 1, "b": 1000}')),
    ),
    "with empty arguments as an object": (
        model(None, ToolCall("c1", "f", "")),
        model(None, ToolCall("c1", "f", "{}")),
    ),
    "with arguments that are no JSON": (
        model(None, ToolCall("c1", "run", "{no")),
        model(None, ToolCall("c1", "run", "{no")),
    ),
    "with ids of calls that the program gave": (
        model(None, ToolCall("", "run", "{}")),
        model(None, ToolCall("run_1", "run", "{}")),
    ),
    "without the thought in its text": (model("<think>hm\nhm</think>\nx"), model("x")),
    "without thinking and its signature": (
        model(
            [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "x"}],
            reasoning="hm",
        ),
        model([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]),
    ),
    "without redacted thinking": (
        model(
            [{"type": "redacted_thinking", "data": "z"}, {"type": "tool_use", "id": "c1", "input": {"a": 1}}],
            CALL,
        ),
        model([{"type": "tool_use", "id": "c1", "input": {}, "cache_control": {}}], CALL),
    ),
    "as items without reasoning, ids and status": (
        model(
            [
                {"type": "reasoning", "id": "rs", "encrypted_content": "zz", "summary": []},
                {
                    "type": "message",
                    "id": "msg",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
                },
                {"type": "function_call", "id": "fc", "call_id": "c1", "arguments": "{}"},
            ],
            CALL,
        ),
        model([{"type": "message", "content": [{"type": "output_text", "text": "x"}]}], CALL),
    ),
    "with a message's text as it is": (
        model([{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]),
        model([{"type": "message", "content": "x"}]),
    ),
    "with a search that the program drops": (
        model([{"type": "web_search_call", "id": "ws"}, {"type": "output_text", "text": "x"}]),
        model([{"type": "output_text", "text": "x"}]),
    ),
    "without thought parts, with a call's parts": (
        Message(
            "model",
            [{"text": "hm", "thought": True}, {"text": "x"}, {"functionCall": {"name": "run"}}],
            (CALL,),
        ),
        Message(
            "model", [{"text": "x"}, {"functionCall": {"name": "run"}, "thoughtSignature": "s"}], (CALL,)
        ),
    ),
    "by another name of its role": (model("x"), Message("model", [{"text": "x"}])),
}


@pytest.mark.parametrize(("said", "echo"), ECHOES.values(), ids=ECHOES)
def test_an_answer_is_found_again_however_the_program_sends_it_back(said: Message, echo: Message) -> None:
    play = Play()
    [answer] = play.call([user("q")], said).outputs
    leaf = play.graph.extend(None, [user("q"), echo, user("more")])
    assert leaf is not None
    assert play.graph.nodes[leaf].parent == answer
    assert len(play.graph.nodes) == 3
    assert play.graph.nodes[answer].content == said.content


OTHERS: Mapping[str, tuple[Message, Message]] = {
    "another text": (user("a"), user("b")),
    "another space in what the user says": (user("a b"), user("ab")),
    "another role": (user("a"), Message("developer", "a")),
    "another call id": (model(None, CALL), model(None, ToolCall("c2", CALL.name, CALL.arguments))),
    "other arguments": (model(None, CALL), model(None, ToolCall("c1", "run", '{"a": 2}'))),
    "an answer to another call": (result("x", "1"), result("x", "2")),
    "another image": (user([{"type": "image", "url": "a"}]), user([{"type": "image", "url": "b"}])),
    "another picture that the model made": (
        model([{"type": "image_generation_call", "result": "a"}]),
        model([{"type": "image_generation_call", "result": "b"}]),
    ),
    "parts that join to the same text": (
        user([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]),
        user([{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}]),
    ),
    "an image at another place": (
        user([{"type": "text", "text": "a"}, {"type": "image", "url": "u"}]),
        user([{"type": "image", "url": "u"}, {"type": "text", "text": "a"}]),
    ),
    "a part that is text of the same spelling": (user('{"a": 1}'), user([{"a": 1}])),
    "an item that is only known by its id": (
        user([{"type": "item_reference", "id": "a"}]),
        user([{"type": "item_reference", "id": "b"}]),
    ),
    "an item that no dialect knows": (
        Message("", extra={"raw": {"type": "x"}}),
        Message("", extra={"raw": {"type": "y"}}),
    ),
    "values in a tool's result that only look like wandering fields": (
        result([{"functionResponse": {"response": {"id": 1}}}]),
        result([{"functionResponse": {"response": {"id": 2}}}]),
    ),
    "another line of a system prompt": (system("x-other: 1\nBe brief."), system("x-other: 2\nBe brief.")),
    "the same line where it is no system prompt": (
        user("x-anthropic-billing-header: cch=1;"),
        user("x-anthropic-billing-header: cch=2;"),
    ),
}


@pytest.mark.parametrize(("one", "other"), OTHERS.values(), ids=OTHERS)
def test_what_differs_forks(one: Message, other: Message) -> None:
    graph = Graph()
    assert graph.extend(None, [one]) != graph.extend(None, [other])
    assert identity(one) != identity(other)


SAME: Mapping[str, tuple[Message, Message]] = {
    "a mark of caching": (
        user([{"type": "image", "url": "u"}]),
        user([{"type": "image", "url": "u", "cache_control": {"type": "ephemeral"}}]),
    ),
    "an id and a status": (
        user([{"type": "input_file", "file_id": "f", "id": "1", "status": "completed"}]),
        user([{"type": "input_file", "file_id": "f"}]),
    ),
    "a volatile line that is a block": (
        system(
            [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=36ee5;"},
                {"text": "Code."},
            ]
        ),
        system(
            [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0aaa9;"},
                {"text": "Code."},
            ]
        ),
    ),
    "a volatile line among others": (
        system("Code.\nX-Anthropic-Billing-Header: cch=1;\nWell."),
        system("Code.\n  x-anthropic-billing-header: cch=2;\nWell."),
    ),
    "a volatile line that is there or not": (
        system(
            [{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "Code."}]
        ),
        system("Code."),
    ),
    "text or one part": (user("a"), user([{"type": "input_text", "text": "a"}])),
    "nothing or an empty text": (user(None), user("")),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_wanders_is_no_fork_and_the_first_form_is_kept(one: Message, other: Message) -> None:
    graph = Graph()
    leaf = graph.extend(None, [one])
    assert graph.extend(None, [other]) == leaf
    assert [node.content for node in graph.nodes] == [one.content]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(
    JSON
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "message", "tool_use", "image"]) | JSON},
        optional={"text": JSON, "content": JSON, "thought": st.booleans(), "functionCall": JSON, "id": JSON},
    ),
    max_size=4,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "model", "tool", ""])
CALLS = st.lists(
    st.builds(ToolCall, st.text(max_size=3), st.text(max_size=3), st.text(max_size=6) | JSON.map(json.dumps)),
    max_size=2,
).map(tuple)
ANY = st.builds(
    Message,
    ROLES,
    st.none() | st.text(st.characters(exclude_categories=()), max_size=8) | PARTS,
    CALLS,
    st.none() | st.text(max_size=3),
    extra=st.dictionaries(st.text(max_size=3), JSON, max_size=2),
)


@given(ANY)
def test_any_message_has_an_identity_that_json_does_not_change(message: Message) -> None:
    content = message.content
    again = json.loads(json.dumps(content)) if not isinstance(content, str) else content
    other = Message(message.role, again, message.tool_calls, message.tool_call_id, extra=message.extra)
    assert identity(other) == identity(message)
    assert isinstance(message.text, str)


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=6), min_size=1, max_size=5), st.data())
def test_an_answer_is_the_same_however_its_text_is_cut_and_spaced(
    texts: list[str], data: st.DataObject
) -> None:
    whole = "x" + "".join(texts)
    at = data.draw(st.integers(0, len(whole)))
    spaced = [whole[:at].rstrip(" \n\t"), " \n" + whole[at:]]
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in spaced]
    assert identity(model(whole)) == identity(model(parts))


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_texts_of_the_user_are_the_same_only_where_they_are_equal(one: list[str], other: list[str]) -> None:
    same = [text for text in one if text] == [text for text in other if text]
    keys = [identity(user([{"type": "text", "text": text} for text in texts])) for texts in (one, other)]
    assert (keys[0] == keys[1]) is same


@given(JSON, st.booleans())
def test_arguments_are_the_same_in_every_spelling_of_their_json(value: Any, spaced: bool) -> None:
    one = json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))
    other = json.dumps(value, indent=1, sort_keys=True)
    assert identity(model(None, ToolCall("c", "f", one))) == identity(model(None, ToolCall("c", "f", other)))


def test_a_long_text_is_not_kept_twice() -> None:
    text = "word " * 2_000_000
    part = {"type": "input_text", "text": text}
    for message in (user(text), user([part])):
        assert identity(message).content is text
    for message in (
        user([part, part]),
        model(text),
        model(None, ToolCall("c", "f", json.dumps({"a": text}))),
    ):
        assert sum(sys.getsizeof(field) for field in identity(message)) < 1_000


def test_an_image_is_kept_once_and_found_again_by_its_hash(tmp_path: Path) -> None:
    play = Play(blobs=Blobs(tmp_path / "blobs"))
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "QUJD" * 500}
    sent = [user([{"type": "input_text", "text": "see"}, image])]
    play.call(sent, model("a"))
    play.call([*sent, model("a"), user([dict(image)])], model("b"))
    kept = [node.content[-1]["image_url"] for node in play.graph.nodes if not node.sampled]
    assert kept[0] == kept[1]
    assert play.graph.blobs is not None
    assert play.graph.blobs.read(kept[0]) == b"ABC" * 500
    assert (len(play.graph.nodes), len(list((tmp_path / "blobs").iterdir()))) == (4, 1)
    assert image["image_url"].startswith("data:")


# paths


def test_a_shared_beginning_is_there_once() -> None:
    play = Play()
    play.call([system("s"), user("a")], model("x"))
    play.call([system("s"), user("b")], model("y"))
    assert [node.parent for node in play.graph.nodes] == [None, 0, 1, 0, 3]
    assert [branch.leaf for branch in play.graph.branches()] == [4, 2]


def test_the_same_words_said_twice_are_two_answers() -> None:
    play = Play()
    [first] = play.call([user("q")], model("x")).outputs
    [second] = play.call([user("q")], model("x")).outputs
    assert first != second
    leaf = play.graph.extend(None, [user("q"), model("x"), user("more")])
    assert leaf is not None
    assert play.graph.nodes[leaf].parent == second
    assert play.kinds == ["main", "main"]
    assert [branch.drift for branch in play.graph.branches()] == [False, False]


def test_a_request_without_an_answer_is_no_branch_but_may_end_one() -> None:
    play = Play()
    play.open([user("q")])
    assert play.graph.branches() == []
    play.call([user("q")], model("x"))
    after = play.open([user("q"), model("x"), user("more")])
    assert [branch.leaf for branch in play.graph.branches()] == [after.input]


def test_an_answer_that_broke_off_is_no_branch_and_takes_none_away() -> None:
    play = Play()
    cut = model("x", extra={"truncated": True})
    call = play.call([user("q")], cut)
    assert (play.graph.branches(), play.turns(call)) == ([], 0)
    play.close(call, model("xyz"))
    assert play.ends == [("main", "xyz")]
    assert play.turns(call) == 1
    after = play.call([user("q"), model("xyz"), user("more")], cut)
    assert (play.ends, play.turns(after)) == ([("main", "more")], 1)


def test_an_answer_with_an_error_is_no_turn() -> None:
    play = Play()
    call = play.open([user("q")])
    play.graph.answer(call.input, model(""), 0, complete=False)
    assert (play.graph.branches(), play.turns(call)) == ([], 0)


def test_a_program_may_go_on_from_an_answer_that_broke_off() -> None:
    play, cut = Play(), model(None, run(), extra={"truncated": True})
    play.call([user("q")], cut)
    play.call([user("q"), model(None, run()), result("ok")], model("done"))
    assert play.main == ["q", "", "ok", "done"]
    assert len(play.graph.nodes) == 4


def test_of_two_choices_the_first_counts_unless_the_program_goes_on_from_the_other() -> None:
    play = Play()
    call = play.call([user("q")], model("first"), model("second"))
    assert play.ends == [("main", "first"), ("side", "second")]
    assert (play.kinds, play.turns(call)) == (["main"], 1)
    play.call([user("q"), model("second"), user("more")], model("end"))
    assert play.ends == [("main", "end"), ("side", "first")]
    assert (play.kinds, play.turns(call)) == (["main", "main"], 2)


def test_of_two_equal_choices_the_program_goes_on_from_the_first() -> None:
    play = Play()
    [first, _] = play.call([user("q")], model("x"), model("x")).outputs
    leaf = play.graph.extend(None, [user("q"), model("x"), user("more")])
    assert leaf is not None
    assert play.graph.nodes[leaf].parent == first


# kinds


def test_side_calls_and_a_subagent_are_told_from_the_work() -> None:
    play, code = Play(), system("You write code.")
    work = [code, user("mend it")]
    play.call(work, model(None, spawn("where is the parser")))
    title = play.open([system("Write a title."), user("mend it")], model="small")
    helper = play.open([system("You search."), user("where is the parser")])
    play.close(helper, model("in parser.py"))
    play.close(title, model("Mending The Parser"))
    work += [model(None, spawn("where is the parser")), result("in parser.py", "s1")]
    play.call(work, model("done"))
    play.call(
        [system("What may the user type next?"), user("mend it"), model("done")],
        model("test it"),
        model="small",
    )
    assert play.kinds == ["main", "side", "subagent", "main", "side"]
    assert len(play.graph.branches()) == 4
    assert play.main[-1] == "done"
    assert [play.turns(call) for call in play.calls] == [2, 1, 1, 2, 1]


def test_a_title_without_tools_is_beside_the_work_before_it_after_it_and_at_its_time() -> None:
    for order in ("before", "after", "within"):
        play = Play()
        title, work = [system("Title."), user("mend")], [system("Code."), user("mend")]
        if order == "before":
            play.call(title, model("Mend"))
        call = play.open(work, tools=True)
        if order == "within":
            play.call(title, model("Mend"))
        play.close(call, model("done"))
        if order == "after":
            play.call(title, model("Mend"))
        assert play.ends == [("main", "done"), ("side", "Mend")], order


def test_a_slow_title_does_not_become_the_work() -> None:
    play = Play()
    title = play.open([system("Title."), user("mend")])
    play.call([system("Code."), user("mend")], model("done"), tools=True)
    play.close(title, model("Mend"))
    assert play.ends == [("main", "done"), ("side", "Mend")]


def test_a_last_turn_without_tools_is_still_the_work() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, run()), tools=True)
    sent += [model(None, run()), result("ok"), user("Now answer.")]
    play.call(sent, model("done"))
    assert play.ends == [("main", "done")]


def test_another_model_without_tools_on_the_same_history_is_beside_the_work() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model("done"), tools=True)
    play.call([*sent, model("done"), user("Who speaks next?")], model("the user"), model="small")
    assert play.main[-1] != "done"  # nothing yet says that the work does not go on here
    play.call([*sent, model("done"), user("more")], model("all done"), tools=True)
    assert play.main[-1] == "all done"
    assert play.kinds == ["main", "side", "main"]


def several(play: Play, prompt: str, end: str, **who: Any) -> None:
    """A conversation of two turns with a tool."""
    sent = [system(f"You help with {end}."), user(prompt)]
    play.call(sent, model(None, run()), **who)
    play.call([*sent, model(None, run()), result("ok")], model(end), **who)


def test_subagents_at_one_time_outnumber_the_work_and_are_still_subagents() -> None:
    play = Play()
    prompts = [f"look at part {number} of it" for number in range(3)]
    calls = [spawn(prompt, f"s{number}") for number, prompt in enumerate(prompts)]
    sent = [system("Code."), user("mend")]
    play.call(sent, model(None, *calls), tools=True)
    talks = [[system("You search."), user(prompt)] for prompt in prompts]
    for turn in range(4):
        opened = [play.open(talk, tools=True) for talk in talks]
        for number, call in enumerate(opened):
            said = model(f"agent {number} turn {turn}", run(call=f"{number}-{turn}"))
            play.close(call, said)
            talks[number] += [said, result("ok", f"{number}-{turn}")]
    sent += [model(None, *calls), *(result(f"found {number}", f"s{number}") for number in range(3))]
    play.call(sent, model("done"), tools=True)
    assert play.main[-1] == "done"
    assert play.kinds == ["main", *["subagent"] * 12, "main"]
    assert len(play.graph.branches()) == 4


def test_a_subagent_with_the_system_prompt_of_the_work_has_a_count_of_its_own() -> None:
    play = Play()
    sent = [system("Code."), user("environment"), user("mend the parser")]
    play.call(sent, model(None, spawn("where is the parser")), tools=True)
    other = [system("Code."), user("environment"), user("where is the parser")]
    helper = play.call(other, model("in parser.py"), tools=True)
    assert play.turns(helper) == 1
    work = play.call(
        [*sent, model(None, spawn("where is the parser")), result("it", "s1")], model("done"), tools=True
    )
    assert (play.turns(work), play.kinds) == (2, ["main", "subagent", "main"])


def test_a_subagent_is_known_by_a_prompt_that_was_wrapped() -> None:
    play = Play()
    sent = [system("Code."), user("mend")]
    play.call(sent, model(None, spawn("where is the parser")), tools=True)
    play.call([system("Search."), user("<task>\nwhere is the parser\n</task>")], model("there"))
    assert play.kinds == ["main", "subagent"]


@pytest.mark.parametrize("back", ["in parser.py, line 3", '{"output": "said:\\nin parser.py, line 3"}'])
def test_a_subagent_is_known_by_its_answer_in_a_result(back: str) -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, run()), tools=True)
    play.call([system("Search."), user("look")], model("in parser.py, line 3"))
    play.call([*sent, model(None, run()), result(back)], model("done"), tools=True)
    assert play.kinds == ["main", "subagent", "main"]


def test_several_turns_with_tools_are_a_subagent_and_one_turn_is_beside() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, run()), tools=True)
    several(play, "one", "helper", tools=True)
    play.call([system("Name it."), user("two")], model("name"))
    play.call([*sent, model(None, run()), result("ok")], model("done"), tools=True)
    assert sorted(play.ends) == [("main", "done"), ("side", "name"), ("subagent", "helper")]


def test_the_work_is_what_waits_for_a_longer_conversation_that_nothing_else_tells_apart() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, run()), tools=True)
    talk = [system("Search."), user("look")]
    for turn in range(4):
        play.call(talk, model(f"step {turn}"), tools=True)
        talk += [model(f"step {turn}"), user("on")]
    play.call([*sent, model(None, run()), result("ok")], model("done"), tools=True)
    assert play.kinds == ["main", *["subagent"] * 4, "main"]


def test_a_wrapped_subagent_with_the_system_prompt_of_the_work_is_not_what_the_work_left_behind() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, spawn("where is the parser")), tools=True)
    play.call([sent[0], user("<task>\nwhere is the parser\n</task>")], model("there"), tools=True)
    play.call(
        [*sent, model(None, spawn("where is the parser")), result("it", "s1")], model("done"), tools=True
    )
    assert play.kinds == ["main", "subagent", "main"]


def test_a_subagent_that_goes_on_from_the_history_of_the_work_is_one() -> None:
    play, said = Play(), model(None, spawn("look around here"))
    sent = [system("Code."), user("mend"), said]
    play.call(sent[:2], said, tools=True)
    play.call([*sent, user("look around here")], model("seen"), tools=True)
    play.call([*sent, result("it", "s1")], model("done"), tools=True)
    assert play.kinds == ["main", "subagent", "main"]


def test_a_prompt_that_the_program_was_asked_itself_is_still_the_work_when_it_begins_anew() -> None:
    play = Play()
    play.call(
        [system("Code."), user("at one"), user("mend the parser")], model(None, spawn("mend the parser"))
    )
    again = play.call([system("Code."), user("at two"), user("mend the parser")], model("done"))
    assert play.turns(again) == 2


def test_what_the_prompt_says_in_a_later_call_makes_no_subagent_of_a_title() -> None:
    play, sent = Play(), [system("Code."), user("mend the parser")]
    play.call([system("Title."), user("mend the parser")], model("Mending"))
    play.call(sent, model(None, spawn("mend the parser")), tools=True)
    play.call([system("Next?"), user("mend the parser"), model("ok")], model("test it"))
    assert play.kinds == ["side", "main", "side"]


def test_the_kind_of_a_secret_is_final() -> None:
    play = Play()
    several(play, "mend", "helped", kind="side", agent="namer", tools=True)
    play.call([user("mend")], model("done"))
    play.call([user("look")], model("found"), kind="subagent", agent="searcher")
    found = [(branch.kind, branch.agent) for branch in play.graph.branches()]
    assert found == [("main", "main"), ("side", "namer"), ("subagent", "searcher")]
    assert play.kinds == ["side", "side", "main", "subagent"]


def test_each_agent_has_a_conversation_that_is_its_own() -> None:
    play = Play()
    for agent in ("solver", "critic"):
        play.call([system("Title."), user(agent)], model(f"title {agent}"), agent=agent)
        several(play, f"be a {agent}", f"by {agent}", agent=agent, tools=True)
    main = [
        (branch.agent, play.path(branch)[-1]) for branch in play.graph.branches() if branch.kind == "main"
    ]
    assert main == [("solver", "by solver"), ("critic", "by critic")]
    assert play.kinds == ["side", "main", "main"] * 2


def test_agents_that_ask_the_same_have_each_their_count() -> None:
    play, sent = Play(), [system("s"), user("q")]
    first = play.open(sent, agent="a")
    second = play.open(sent, agent="b")
    play.close(first, model("one"))
    play.close(second, model("two"))
    for agent, said in (("a", "one"), ("b", "two")):
        call = play.call([*sent, model(said), user("more")], model(f"{said} more"), agent=agent)
        assert play.turns(call) == 2
    assert [branch.agent for branch in play.graph.branches() if branch.kind == "main"] == ["a", "b"]


# histories that are shortened and rewritten


def test_a_shortened_history_is_the_work_and_what_it_left_is_compacted() -> None:
    play, code = Play(), system("Code.")
    sent = [code, user("mend")]
    play.call(sent, model(None, run()), tools=True)
    sent += [model(None, run()), result("ok"), user("Sum up.")]
    play.call(sent, model("Summary:\nthe parser is mended so far"), tools=True)
    again = user("Go on from here.\n\nSummary:\nthe parser is mended so far")
    after = play.call([code, again], model("done"), tools=True)
    assert play.ends == [("main", "done"), ("compacted", "Summary:\nthe parser is mended so far")]
    assert play.kinds == ["compacted", "compacted", "main"]
    assert play.turns(after) == 3
    main, left = play.graph.branches()
    assert (main.forked, main.drift, left.forked, left.drift) == (None, False, 0, False)


def test_a_side_call_that_sums_up_is_no_part_of_the_work() -> None:
    play, code = Play(), system("Code.")
    sent = [code, user("mend")]
    several_turns = [model(None, run()), result("ok")]
    play.call(sent, several_turns[0], tools=True)
    play.call([*sent, *several_turns], model("half done"), tools=True)
    play.call([system("Sum up."), *sent[1:], *several_turns, model("half done")], model("It is half mended."))
    play.call([code, user("It is half mended.")], model("done"), tools=True)
    assert play.kinds == ["compacted", "compacted", "side", "main"]


def test_a_history_rewritten_in_the_middle_is_marked_where_it_forks() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, run()), tools=True)
    play.call([*sent, model(None, run()), result("a long result " * 9)], model("half"), tools=True)
    play.call(
        [*sent, model(None, run()), result("[cleared]"), model("half"), user("on")], model("done"), tools=True
    )
    main, left = play.graph.branches()
    assert play.main == ["Code.", "mend", "", "[cleared]", "half", "on", "done"]
    assert (left.kind, left.drift, left.forked) == ("compacted", True, 2)
    assert (main.drift, main.forked) == (False, None)
    assert (play.kinds, play.turns(play.calls[0])) == (["main", "compacted", "main"], 3)


def test_an_answer_that_the_program_changed_is_drift() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model("I will do it."))
    play.call([*sent, model("I did it."), user("on")], model("done"))
    assert [(branch.kind, branch.drift, branch.forked) for branch in play.graph.branches()] == [
        ("main", False, None),
        ("main", True, 1),
    ]


def test_a_result_that_was_written_anew_is_drift_and_no_shortening() -> None:
    play, sent = Play(), [system("Code."), user("mend"), model(None, run())]
    play.call(sent[:2], sent[2], tools=True)
    play.call([*sent, result("a result")], model("half"), tools=True)
    play.call([*sent, result("[cleared]"), model("half"), user("on")], model("done"), tools=True)
    assert [(branch.kind, branch.drift) for branch in play.graph.branches()] == [
        ("main", False),
        ("main", True),
    ]


def test_what_is_asked_again_is_the_work_and_the_later_answer_counts() -> None:
    for who in ({"kind": "main"}, {"kind": "subagent", "agent": "searcher"}):
        play, sent = Play(), [system("Code."), user("mend")]
        play.call(sent, model("first " * 99), tools=True, **who)
        again = play.call(sent, model("second"), tools=True, **who)
        assert play.ends == [(who["kind"], "second"), (who["kind"], "first " * 99)]
        assert (play.kinds, play.turns(again)) == ([who["kind"]] * 2, 2)
        assert not any(branch.drift for branch in play.graph.branches())


def test_an_answer_that_broke_off_before_is_no_choice_beside_what_was_asked_again() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    call = play.call(sent, model("fi", extra={"truncated": True}))
    play.close(call, model("first"))
    play.call(sent, model("second"))
    assert play.ends == [("main", "second"), ("main", "first")]


def test_a_program_that_goes_back_and_asks_otherwise_has_shortened_nothing() -> None:
    play, sent = Play(), [system("Code."), user("mend"), model("half done")]
    play.call(sent[:2], sent[2], tools=True)
    play.call([*sent, user("mend the parser, all of it")], model("I cannot do that " * 9), tools=True)
    play.call([*sent, user("mend a little")], model("done"), tools=True)
    assert play.ends == [("main", "done"), ("main", "I cannot do that " * 9)]


def test_what_is_asked_again_from_early_on_has_shortened_nothing_though_it_quotes_what_was_said() -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model("the parser first"), tools=True)
    play.call([*sent, model("the parser first"), user("on")], model("half"), tools=True)
    play.call(sent, model("the tests first"), tools=True)
    quoted = user("You said:\nthe parser first")
    play.call([*sent, model("the tests first"), quoted], model("done"), tools=True)
    assert play.ends == [("main", "done"), ("main", "half")]


def test_another_task_under_the_same_system_prompt_has_shortened_nothing() -> None:
    play = Play()
    for number in range(3):
        play.call([system("Code."), user(f"task {number} of three")], model(f"task {number} is done " * 9))
    assert [kind for kind, _ in play.ends] == ["main"] * 3
    assert play.main[-1] == "task 2 is done " * 9


def test_a_history_whose_middle_was_left_out_is_shortened() -> None:
    play, sent = Play(), [system("Code."), user("mend the parser")]
    for turn in range(6):
        said = model(f"step {turn}", run(call=f"c{turn}"))
        play.call(sent, said, tools=True)
        sent += [said, result(f"it says {turn}", f"c{turn}")]
    play.call([*sent[:2], user("[some messages were left out]"), *sent[-2:]], model("done"), tools=True)
    assert play.ends == [("main", "done"), ("compacted", "step 5")]
    assert play.kinds == ["compacted"] * 6 + ["main"]


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary"])
def test_a_history_that_the_provider_shortened_is_known_by_its_item(kind: str) -> None:
    play, sent = Play(), [system("Code."), user("mend")]
    play.call(sent, model(None, run()), tools=True)
    play.call([*sent, model(None, run()), result("ok")], model("half"), tools=True)
    kept = model([{"type": kind, "encrypted_content": "gAAAA"}])
    play.call([sent[0], kept, user("on")], model("done"), tools=True)
    assert play.ends == [("main", "done"), ("compacted", "half")]


def test_a_window_that_slides_over_a_history_without_a_system_prompt_is_one_conversation() -> None:
    play, history = Play(), [user("q0")]
    for turn in range(6):
        call = play.call(history[-3:], model(f"answer {turn}"))
        history += [model(f"answer {turn}"), user(f"q{turn + 1}")]
    assert play.turns(call) == 6
    assert play.main[-1] == "answer 5"
    assert set(play.kinds) == {"main", "compacted"}


def test_a_system_prompt_that_says_the_time_does_not_break_up_the_work() -> None:
    play, history = Play(), [user("mend")]
    for turn in range(5):
        call = play.call(
            [system(f"Code. It is {turn} o'clock."), *history], model(f"step {turn}"), tools=True
        )
        history += [model(f"step {turn}"), user(f"on {turn}")]
    assert play.turns(call) == 5
    assert play.main[-1] == "step 4"
    assert set(play.kinds) == {"main"}
    assert len(play.main) == 10 + 1


FEWER = (frozenset({"run", "edit"}), frozenset({"remember"}), frozenset[str]())


@pytest.mark.parametrize(("tools", "fewer"), [*((True, names) for names in FEWER), (False, frozenset())])
@pytest.mark.parametrize("named", ["m", "small"])
def test_what_is_made_of_a_history_at_its_end_is_beside_it_however_long_it_takes(
    named: str, fewer: frozenset[str], tools: bool
) -> None:
    for turns in (1, 5):
        play, sent = Play(), [system("You write code."), user("mend")]
        play.call(sent, model("done"), tools=tools)
        aside = [system("Keep what is to be remembered of it."), user("mend"), model("done"), user("Begin.")]
        for turn in range(turns):
            call = play.call(aside, model(f"kept {turn}", run(call=f"k{turn}")), tools=fewer, model=named)
            aside += [model(f"kept {turn}", run(call=f"k{turn}")), result("ok", f"k{turn}")]
        assert play.kinds == ["main", *["side"] * turns]
        assert (play.main[-1], play.turns(play.calls[0]), play.turns(call)) == ("done", 1, turns)
        play.call([*sent, model("done"), user("more")], model("all done"), tools=tools)
        assert (play.main[-1], play.turns(play.calls[0])) == ("all done", 2)


def test_another_agent_that_the_work_is_handed_to_goes_on_with_it() -> None:
    play, handed = Play(), model(None, run("hand over"))
    play.call([system("You sort questions."), user("mend")], handed, tools=True)
    call = play.call(
        [system("Mend what you are given."), user("mend"), handed, result("yours")],
        model("done"),
        tools=frozenset({"mend"}),
    )
    assert (play.main[-1], play.kinds, play.turns(call)) == ("done", ["main", "main"], 2)


def test_who_carries_out_a_plan_with_tools_does_the_work() -> None:
    play, plan = Play(), model("first the parser")
    play.call([system("You make plans."), user("mend")], plan)
    sent = [system("Do what was planned."), user("mend"), plan, user("go")]
    play.call(sent, model(None, run()), tools=True)
    play.call([*sent, model(None, run()), result("ok")], model("done"), tools=True)
    assert (play.main[-1], play.kinds) == ("done", ["side", "main", "main"])


def test_a_system_prompt_with_a_part_that_changes_is_the_same_without_tools_too() -> None:
    play, history = Play(), [user("mend")]
    for turn in range(4):
        prompt = f"It is {turn * 7} o'clock. You answer in few words, and say what you do not know."
        call = play.call([system(prompt), *history], model(f"step {turn}"))
        history += [model(f"step {turn}"), user(f"on {turn}")]
    assert (play.turns(call), set(play.kinds), play.main[-1]) == (4, {"main"}, "step 3")


def test_questions_without_a_system_prompt_are_counted_each_for_itself() -> None:
    play = Play()
    calls = [play.call([user(f"part {number}")], model(f"read {number}")) for number in range(4)]
    assert [play.turns(call) for call in calls] == [1, 1, 1, 1]
    assert play.ends[0] == ("main", "read 3")


def test_the_number_of_a_conversation_never_changes() -> None:
    play, seen = Play(), {}
    sent = [system("Code."), user("mend")]
    for turn in range(6):
        for helper in ("title", "agent"):
            call = play.call([system(helper), user(f"{helper} {turn}")], model("ok"))
            seen[call.input] = play.graph.conversation(call.input or 0)
        said = model(f"step {turn}")
        call = play.call(sent, said, tools=True)
        seen[call.input] = play.graph.conversation(call.input or 0)
        sent = [*sent, said, user("on")] if turn != 3 else [sent[0], user("summary")]
    assert all(play.graph.conversation(leaf or 0) == number for leaf, number in seen.items())
    assert play.turns(call) == 6


# work


def steps(work: Callable[[], Any]) -> int:
    """How many calls of functions it takes."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def long_talk(play: Play, turns: int, work: list[int] | None = None) -> None:
    """A conversation of which each request passes only what is new."""
    leaf = None
    new = [system("Code."), user("mend")]
    for turn in range(turns):

        def once(leaf: int | None = leaf, new: Sequence[Message] = tuple(new), turn: int = turn) -> int:
            end = play.graph.extend(leaf, new)
            assert end is not None
            play.graph.use(end, "main", "main", TOOLS, "m")
            play.graph.turns(play.graph.conversation(end) or 0)
            answer = play.graph.answer(end, model(f"{turn}" + "x" * 900, run(call=f"c{turn}")), turn)
            play.graph.use(answer, "main", "main")
            return answer

        if work is not None:
            work.append(steps(once))
            leaf = len(play.graph.nodes) - 1
        else:
            leaf = once()
        new = [result("y" * 900, f"c{turn}")]


def test_a_late_turn_takes_as_many_steps_as_an_early_one() -> None:
    play, work = Play(), list[int]()
    long_talk(play, 400, work)
    assert max(work[350:]) <= 1.1 * max(work[1:50])
    assert len(play.graph.nodes) == 1 + 2 * 400


def drifting(turns: int) -> Play:
    """A program that changes each answer before it sends it back."""
    play, leaf = Play(), None
    new: list[Message] = [system("Code."), user("mend")]
    for turn in range(turns):
        leaf = play.graph.extend(leaf, new)
        assert leaf is not None
        play.graph.use(leaf, "main", "main", TOOLS, "m")
        play.graph.use(play.graph.answer(leaf, model(f"a{turn} as said"), turn), "main", "main")
        new = [model(f"changed {turn}"), user(f"on {turn}")]
    return play


def side_calls(turns: int) -> Play:
    """A conversation with a side call at each turn."""
    play, leaf = Play(), None
    new: list[Message] = [system("Code."), user("mend")]
    for turn in range(turns):
        leaf = play.graph.extend(leaf, new)
        assert leaf is not None
        play.graph.use(leaf, "main", "main", TOOLS, "m")
        leaf = play.graph.answer(leaf, model(f"step {turn}", spawn(f"look for {turn}", f"s{turn}")), turn)
        play.graph.use(leaf, "main", "main")
        play.call([user(f"look for {turn}")], model(f"found it at {turn}"))
        new = [result(f"found it at {turn}", f"s{turn}")]
    return play


def grown(turns: int) -> Play:
    play = Play()
    long_talk(play, turns)
    return play


@pytest.mark.parametrize("make", [grown, drifting, side_calls])
def test_looking_at_the_branches_takes_time_in_proportion_to_the_messages(
    make: Callable[[int], Play],
) -> None:
    small, large = make(100), make(400)
    assert len(large.graph.nodes) <= 4.1 * len(small.graph.nodes)
    few, many = steps(small.graph.branches), steps(large.graph.branches)
    assert many <= 4.4 * few


TALKS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["on", "side", "shorten", "rewrite", "again", "two"])),
    max_size=12,
)


@given(TALKS)
def test_whatever_a_program_does_each_message_is_there_once_and_branches_are_whole(
    moves: list[tuple[int, str]],
) -> None:
    play = Play()
    talks: list[list[Message]] = [[system(f"s{number % 2}"), user(f"q{number}")] for number in range(4)]
    for number, (which, move) in enumerate(moves):
        talk = talks[which]
        if move == "side":
            play.call([system("Title."), *talk[1:]], model(f"t{number}"), model="small")
            continue
        if move == "shorten":
            talk[1:] = [user(f"summary {number}")]
        elif move == "rewrite" and len(talk) > 3:
            talk[-2] = model(f"changed {number}")
        said = [model(f"a{number}"), model(f"b{number}")][: 2 if move == "two" else 1]
        play.call(talk, *said, tools=which % 2 == 0)
        if move != "again":
            talk += [said[-1], user(f"u{number}")]
    keys = [(node.parent, identity(Message(node.role, node.content))) for node in play.graph.nodes]
    assert len(keys) == len(set(keys))
    branches = play.graph.branches()
    covered = {at for branch in branches for at in ancestors(play.graph, branch.leaf)}
    assert covered >= {node.id for node in play.graph.nodes if node.sampled}
    assert len({branch.leaf for branch in branches}) == len(branches)
    assert [branch.kind for branch in branches][:1] == ["main"][: len(moves)]
    assert (not branches) or branches[0].kind == "main"
    assert len(play.kinds) == len(play.calls)
    counted = {play.graph.conversation(call.input or 0) for call in play.calls}
    assert sum(play.graph.turns(number or 0) for number in counted) == len(play.calls)


def ancestors(graph: Graph, leaf: int) -> list[int]:
    path, at = [], leaf
    while at is not None:
        path.append(at)
        at = graph.nodes[at].parent  # type: ignore[assignment]
    return path

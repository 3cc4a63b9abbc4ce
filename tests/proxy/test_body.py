"""A body is read like any JSON, goes on from an earlier one, and is changed only where it must be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.proxy import body as bodies
from hotswap.proxy.body import Body, Parts, read_body

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["model", "tools", "stream", "é", "x"]) | st.text(), VALUES, max_size=5
)
DUMPS = st.sampled_from(
    [
        lambda value: json.dumps(value),
        lambda value: json.dumps(value, indent=1),
        lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=True),
    ]
)


def place(fields: dict[str, Any], items: list[Any], at: int) -> dict[str, Any]:
    """The fields with the conversation among them, at any place."""
    pairs = [(name, value) for name, value in fields.items() if name != "messages"]
    pairs.insert(min(at, len(pairs)), ("messages", items))
    return dict(pairs)


def marked(body: Body) -> Body:
    """The body with a mark behind each of its new items, as a session leaves it; leaves count from 1."""
    for number in range(1, len(body.items) + 1):
        body.mark(number, len(body.marks) + 1)
    return body


def joined(parts: Parts) -> bytes:
    return b"".join(parts)


@settings(deadline=None, max_examples=60)
@given(FIELDS, st.lists(VALUES, max_size=4), st.integers(0, 5), DUMPS)
def test_a_body_reads_as_what_json_reads(
    fields: dict[str, Any], items: list[Any], at: int, dumps: Any
) -> None:
    value = place(fields, items, at)
    body = read_body(dumps(value).encode(), "messages")
    assert {**body.fields, "messages": body.items} == value


@settings(deadline=None, max_examples=60)
@given(FIELDS, st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4), FIELDS, st.integers(0, 5), DUMPS)
def test_a_body_that_goes_on_reads_only_what_is_new(
    fields: dict[str, Any], items: list[Any], more: list[Any], rest: dict[str, Any], at: int, dumps: Any
) -> None:
    long = "x" * bodies.PREFIX_LEAST
    first = marked(read_body(dumps(place(fields, [long, *items], at)).encode(), "messages"))
    value = place({**fields, **rest}, [long, *items, *more], at)
    second = read_body(dumps(value).encode(), "messages", [first.forget()])
    known = [long, *items][: len(second.marks)]
    assert {**second.fields, "messages": known + second.items} == value
    assert second.leaf == (len(known) or None)
    if rest.keys() <= fields.keys() and rest.items() <= fields.items():
        assert len(known) >= 1 + len(items)


@settings(deadline=None, max_examples=60)
@given(st.lists(VALUES, max_size=5), st.lists(VALUES, max_size=5), st.lists(VALUES, max_size=5), DUMPS)
def test_a_conversation_that_changed_in_its_middle_goes_on_from_what_is_the_same(
    same: list[Any], old: list[Any], new: list[Any], dumps: Any
) -> None:
    start = ["x" * bodies.PREFIX_LEAST, *same]
    first = marked(read_body(dumps({"messages": [*start, *old]}).encode(), "messages"))
    second = read_body(dumps({"messages": [*start, *new], "more": 1}).encode(), "messages", [first])
    assert second.continues is first
    assert len(second.marks) >= len(start)
    assert [*start, *new][len(second.marks) :] == second.items
    assert second.fields == {"more": 1}


def test_an_item_that_only_begins_alike_is_another() -> None:
    long = "x" * bodies.PREFIX_LEAST
    first = marked(read_body(json.dumps({"messages": [long, 1]}).encode(), "messages"))
    second = read_body(json.dumps({"messages": [long, 12]}).encode(), "messages", [first])
    assert (second.items, second.continues) == ([long, 12], None)


def test_a_conversation_that_grew_is_recognised() -> None:
    first = marked(
        read_body(json.dumps({"model": "m", "messages": ["x" * 9000], "tools": [1]}).encode(), "messages")
    )
    second = {"model": "m", "messages": ["x" * 9000, "é"], "tools": [1]}
    body = read_body(json.dumps(second, ensure_ascii=False).encode(), "messages", [first])
    assert (body.continues, body.items) == (first, ["é"])
    assert body.fields["tools"] is first.fields["tools"]
    third = {"model": "m", "messages": ["x" * 9000, "é", "y"], "stream": True}
    last = read_body(json.dumps(third, ensure_ascii=False).encode(), "messages", [first, marked(body)])
    assert (last.continues, last.items, last.fields) == (body, ["y"], {"model": "m", "stream": True})
    assert last.leaf == 2


@settings(deadline=None, max_examples=60)
@given(
    FIELDS,
    st.lists(VALUES, max_size=3),
    st.integers(0, 5),
    DUMPS,
    FIELDS,
    st.sets(st.sampled_from(["x", "model", "é"])),
)
def test_a_change_is_what_it_says_and_no_more(
    fields: dict[str, Any], items: list[Any], at: int, dumps: Any, values: dict[str, Any], drop: set[str]
) -> None:
    value = place(fields, items, at)
    values = {name: new for name, new in values.items() if name != "messages" and name not in drop}
    changed = joined(read_body(dumps(value).encode(), "messages").change(values, drop))
    assert json.loads(changed) == {name: new for name, new in {**value, **values}.items() if name not in drop}


def test_what_is_not_changed_keeps_its_bytes() -> None:
    raw = b'{ "model" : "a",\n"n":1.50, "messages" : [ {"content":"\\u00e9"} ] , "top_p":1e-1 ,"x":{}}'
    body = read_body(raw, "messages")
    assert joined(body.change({"model": "b"})) == raw.replace(b'"a"', b'"b"')
    assert joined(body.change({}, ["x"])) == raw.replace(b',"x":{}', b"").replace(b"1e-1 ", b"1e-1")
    assert body.change({}) == (raw,)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"a":1,}', b'{"messages":[1', b'{"messages":[1,]}', b"\xff", b'{"a" 1}']
)
def test_what_is_no_json_object_is_passed_on_unread(raw: bytes) -> None:
    body = read_body(raw, "messages")
    assert (body.fields, body.items, joined(body.change({"model": "m"}))) == ({}, [], raw)


def test_what_was_read_of_a_remembered_body_is_let_go() -> None:
    body = marked(read_body(json.dumps({"messages": ["x" * 9000]}).encode(), "messages"))
    assert body.remembered
    assert (body.forget().items, body.forget().marks) == ([], body.marks)
    assert not marked(read_body(b'{"messages": ["short"]}', "messages")).remembered

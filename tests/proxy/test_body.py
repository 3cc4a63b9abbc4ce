"""A body is read like any JSON, goes on from an earlier one, and is changed only where it must be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.proxy import body as bodies
from hotswap.proxy.body import Body, read_body

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
    first = read_body(dumps(place(fields, ["x" * bodies.PREFIX_LEAST, *items], at)).encode(), "messages")
    first.leaf = 7
    value = place({**fields, **rest}, ["x" * bodies.PREFIX_LEAST, *items, *more], at)
    second = read_body(dumps(value).encode(), "messages", [first.forget()])
    known = first.items if second.continues else []
    assert {**second.fields, "messages": known + second.items} == value
    assert (second.leaf, second.items) == (7, more) if second.continues else second.leaf is None


def test_a_conversation_that_grew_is_recognised() -> None:
    first = read_body(json.dumps({"model": "m", "messages": ["x" * 9000], "tools": [1]}).encode(), "messages")
    second = {"model": "m", "messages": ["x" * 9000, "é"], "tools": [1]}
    body = read_body(json.dumps(second, ensure_ascii=False).encode(), "messages", [first])
    assert (body.continues, body.items) == (first, ["é"])
    assert body.fields["tools"] is first.fields["tools"]
    third = {"model": "m", "messages": ["x" * 9000, "é", "y"], "stream": True}
    last = read_body(json.dumps(third, ensure_ascii=False).encode(), "messages", [first, body])
    assert (last.continues, last.items, last.fields) == (body, ["y"], {"model": "m", "stream": True})


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
    changed = read_body(dumps(value).encode(), "messages").change(values, drop)
    assert json.loads(changed) == {name: new for name, new in {**value, **values}.items() if name not in drop}


def test_what_is_not_changed_keeps_its_bytes() -> None:
    raw = b'{ "model" : "a",\n"n":1.50, "messages" : [ {"content":"\\u00e9"} ] , "top_p":1e-1 ,"x":{}}'
    body = read_body(raw, "messages")
    assert body.change({"model": "b"}) == raw.replace(b'"a"', b'"b"')
    assert body.change({}, ["x"]) == raw.replace(b',"x":{}', b"").replace(b"1e-1 ", b"1e-1")
    assert body.change({}) is raw


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"a":1,}', b'{"messages":[1', b'{"messages":[1,]}', b"\xff", b'{"a" 1}']
)
def test_what_is_no_json_object_is_passed_on_unread(raw: bytes) -> None:
    body = read_body(raw, "messages")
    assert (body.fields, body.items, body.change({"model": "m"})) == ({}, [], raw)


def test_only_what_is_needed_is_remembered() -> None:
    body = read_body(json.dumps({"messages": ["x" * 9000]}).encode(), "messages").forget()
    assert isinstance(body, Body)
    assert (body.raw, body.items) == (b"", [])

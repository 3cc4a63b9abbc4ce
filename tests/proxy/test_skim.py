"""A body that is too large to be read is gone through: its short fields are read, what is set in it is set."""

from __future__ import annotations

import json
from typing import Any

import pytest
from _kit.behind import awaited, behind
from _kit.provider import fail, say
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.proxy import body as bodies
from hotswap.proxy import outline
from hotswap.proxy.outline import TooMuch, end_of, weigh
from hotswap.proxy.skim import read_or_skim, skim

TEXTS = st.text(st.sampled_from('a"\\[]{}é, \n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
FIELDS = st.dictionaries(st.sampled_from(["model", "tools", "stream", "é"]) | TEXTS, VALUES, max_size=4)
DUMPS = st.sampled_from(
    [
        lambda value: json.dumps(value),
        lambda value: json.dumps(value, indent=1, ensure_ascii=False),
        lambda value: json.dumps(value, separators=(",", ":")),
    ]
)


@pytest.fixture(params=[2, 3, 64, outline.STEP])
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Texts are gone through in slices of this size."""
    monkeypatch.setattr(outline, "STEP", request.param)
    return int(request.param)


@given(FIELDS, st.lists(VALUES, max_size=4), st.integers(0, 4), DUMPS)
@settings(deadline=None, max_examples=60)
def skims(fields: dict[str, Any], items: list[Any], at: int, dumps: Any) -> None:
    pairs = [(name, value) for name, value in fields.items() if name != "messages"]
    pairs.insert(at, ("messages", items))
    value = dict(pairs)
    raw = dumps(value).encode()
    body = skim(raw, "messages", "why")
    assert body.readable
    assert (body.unread, body.items) == ("why", [])
    assert {**body.fields, "messages": items} == value
    assert b"".join(body.change({})) == raw
    changed = json.loads(b"".join(body.change({"model": "M", "new": [1]}, ["tools"])))
    assert changed == {**{k: v for k, v in value.items() if k != "tools"}, "model": "M", "new": [1]}
    assert not skim(raw[: len(raw) * 2 // 3], "messages", "why").readable


def test_a_body_is_skimmed_as_json_would_read_it_and_changed_only_where_it_must_be(step: int) -> None:
    skims()


@given(VALUES, DUMPS)
@settings(deadline=None, max_examples=60)
def finds_ends(value: Any, dumps: Any) -> None:
    text = dumps([value]).encode()
    assert end_of(memoryview(text + b', "x": [{'), 0) == len(text)


def test_the_end_of_a_value_is_found_wherever_the_slices_are_cut(step: int) -> None:
    finds_ends()


def test_two_bodies_that_were_not_read_are_the_same_only_with_the_same_conversation() -> None:
    one, same, other = (
        skim(b'{"model": "m", "messages": [%s]}' % said, "messages", "why") for said in (b"1", b"1", b"2")
    )
    assert one.says_the_same(same)
    assert not one.says_the_same(other)


def test_what_has_too_many_bytes_values_or_escapes_is_not_worth_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in (
        b"[" + b"1," * 600_000 + b"1]",
        b'["' + rb"\n" * 4_500_000 + b'"]',
        b'"' + b"x" * 2**26 + b'"',
    ):
        with pytest.raises(TooMuch):
            weigh(memoryview(text))
    weigh(memoryview(b'["' + b"a, [b], {c} " * 500_000 + b'"]'))  # what stands in a text counts as one value


def test_a_conversation_that_grows_beyond_the_bound_is_read_as_long_as_little_of_it_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "ITEMS_LIMIT", 10)
    monkeypatch.setattr(bodies, "PREFIX_LEAST", 1)
    items = [{"role": "user", "content": str(n)} for n in range(30)]
    first = read_or_skim(json.dumps({"messages": items[:8]}).encode(), "messages")
    first.mark(8, 7)
    first.placed = True
    second = read_or_skim(json.dumps({"messages": items[:16]}).encode(), "messages", [first.forget()])
    assert (second.unread, len(second.items)) == (None, 8)
    third = read_or_skim(json.dumps({"messages": items}).encode(), "messages", [first.forget()])
    assert third.unread == "more than 10 new items"


@awaited
async def test_a_call_that_is_not_read_gets_what_the_run_sets_and_is_its_own_try_again() -> None:
    texts = [str(n) for n in range(bodies.ITEMS_LIMIT + 1)]
    async with behind(
        fail(400, "no"),
        fail(400, "no"),
        say("yes"),
        upstream={"model": "real"},
        sampling={"temperature": 0.5},
    ) as seat:
        await seat.ask(*texts)
        await seat.ask(*texts[:-1], "other")
        said = await seat.ask(*texts)
        calls = seat.trace().calls
    assert said.text == "yes"
    assert [request.json["model"] for request in seat.provider.posts] == ["real"] * 3
    assert seat.provider.posts[0].json["temperature"] == 0.5
    assert [message["content"] for message in seat.provider.posts[2].json["messages"]] == texts
    assert [(len(call.tries), call.error is None, call.input) for call in calls] == [
        (2, True, None),
        (1, False, None),
    ]
    assert [call.unread for call in calls] == [f"more than {bodies.ITEMS_LIMIT} new items"] * 2


@awaited
async def test_a_call_that_is_not_read_is_not_translated_but_refused() -> None:
    messages = [{"role": "user", "content": "x"}] * (bodies.ITEMS_LIMIT + 1)
    async with behind(say("yes"), upstream={"dialects": ("chat",)}) as seat:
        said = await seat.send({"model": "m", "max_tokens": 5, "messages": messages}, path="/v1/messages")
        [call] = seat.trace().calls
    assert (said.status, seat.provider.posts) == (400, [])
    assert "is not read: more than" in said.json["error"]["message"]
    assert call.error is not None
    assert call.error.type == "untranslatable"

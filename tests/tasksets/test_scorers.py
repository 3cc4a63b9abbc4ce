"""The named scorers: what each takes for right, what not, and what it says."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hotswap.errors import UsageError
from hotswap.tasksets._scorers import SCORERS, Options, check_options, said, score

FOLD = Options(ignore_case=True)
NUMBER = Options(pattern=r"Result: (\d+)")

RIGHT: list[tuple[str, str, Any, Options]] = [
    ("exact", "Paris", "Paris", Options()),
    ("exact", "  Paris\n", "Paris", Options()),
    ("exact", "Cafe\u0301", "Caf\u00e9", Options()),
    ("exact", "PARIS", "Paris", FOLD),
    ("exact", "42", 42, Options()),
    ("exact", "true", True, Options()),
    ("exact", "two", ["one", "two"], Options()),
    ("exact", "<think>Lyon?</think>Paris", "Paris", Options()),
    ("contains", "It is Paris.", "Paris", Options()),
    ("contains", "it is PARIS", "Paris", FOLD),
    ("contains", "The total is 7.", "7", Options()),
    ("contains", "7", 7, Options()),
    ("contains", "C++ it is", "C++", Options()),
    ("contains", "eight legs", ["8", "eight"], Options()),
    ("last_number", "3 + 15 = 18", "18", Options()),
    ("last_number", "18.00 dollars", 18, Options()),
    ("last_number", "$1,234", 1234.0, Options()),
    ("last_number", "0.1", 0.1, Options()),
    ("last_number", "5", [4, 5], Options()),
    ("choice", "B", "B", Options()),
    ("choice", "b", "B", Options()),
    ("choice", "(B)", "B", Options()),
    ("choice", "B.", "B", Options()),
    ("choice", "B. Paris", "B", Options()),
    ("choice", "B) Paris", "B", Options()),
    ("choice", "**B**", "B", Options()),
    ("choice", "The answer is B.", "B", Options()),
    ("choice", "The correct answer is (B) Paris, not (A) Lyon.", "B", Options()),
    ("choice", "Answer: B", "B", Options()),
    ("choice", "Option B", "B", Options()),
    ("choice", "I choose option B because A is wrong.", "B", Options()),
    ("choice", r"\boxed{B}", "B", Options()),
    ("choice", r"$\boxed{\text{B}}$", "B", Options()),
    ("choice", "A is too small and C is too large. The answer is B.", "B", Options()),
    ("choice", "First I thought the answer is A. No, the answer is B.", "B", Options()),
    ("choice", "It must be B", "B", Options()),
    ("choice", "A", 0, Options()),
    ("choice", "(A)", "(A)", Options()),
    ("choice", "A. I would say so", "A", Options()),
    ("regex", "Result: 12", "12", NUMBER),
    ("regex", "Result: 1\nResult: 12", 12, NUMBER),
    ("regex", "Result: 12", None, NUMBER),
    ("regex", "colour", "colou?r", Options()),
    ("regex", "COLOR", "colou?r", FOLD),
    ("regex", "a\nend", "^end$", Options()),
    ("json", '{"a": 1, "b": [1, 2]}', {"b": [1, 2], "a": 1.0}, Options()),
    ("json", '{"a": 1}', '{"a": 1}', Options()),
    ("json", 'Here it is:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}, Options()),
    ("json", 'The value is {"a": {"b": 1}}.', {"a": {"b": 1}}, Options()),
    ("json", "[1, 2]", [1, 2], Options()),
    ("json", "42", 42, Options()),
]

WRONG: list[tuple[str, str, Any, Options]] = [
    ("exact", "It is Paris", "Paris", Options()),
    ("exact", "paris", "Paris", Options()),
    ("exact", "1", True, Options()),
    ("exact", "Paris<think>", "Lyon", Options()),
    ("contains", "17", "7", Options()),
    ("contains", "7.5", "7", Options()),
    ("contains", "1,007", "007", Options()),
    ("contains", "Parisian", "Paris", Options()),
    ("contains", "PARIS", "Paris", Options()),
    ("contains", "anything", "", Options()),
    ("last_number", "18 or 19", "18", Options()),
    ("last_number", "eighteen", "18", Options()),
    ("last_number", "-18", "18", Options()),
    ("choice", "A", "B", Options()),
    ("choice", "A or B", "B", Options()),
    ("choice", "The answer is A or B", "A", Options()),
    ("choice", "A, B", "B", Options()),
    ("choice", "A or B", "A", Options()),
    ("choice", "A good question", "A", Options()),
    ("choice", "I do not know", "I", Options()),
    ("choice", "Both B and C", "B", Options()),
    ("choice", "Blue", "B", Options()),
    ("regex", "Result: none", "12", NUMBER),
    ("regex", "Result: 13", "12", NUMBER),
    ("regex", "Result: none", None, NUMBER),
    ("regex", "shape", "colou?r", Options()),
    ("json", '{"a": 1}', {"a": 2}, Options()),
    ("json", '{"a": 1}', {"a": True}, Options()),
    ("json", '{"a": 1, "b": 2}', {"a": 1}, Options()),
    ("json", "[2, 1]", [1, 2], Options()),
    ("json", '{"a": NaN}', {"a": 1}, Options()),
    ("json", "no value", {"a": 1}, Options()),
    ("json", "1", "true", Options()),
]


@pytest.mark.parametrize("case", RIGHT, ids=repr)
def test_right(case: tuple[str, str, Any, Options]) -> None:
    name, answer, expected, options = case
    found = score(name, answer, expected, options)
    assert found.value == 1.0, found
    assert found.note is None
    assert found.extracted is not None


@pytest.mark.parametrize("case", WRONG, ids=repr)
def test_wrong_with_a_note(case: tuple[str, str, Any, Options]) -> None:
    name, answer, expected, options = case
    found = score(name, answer, expected, options)
    assert found.value == 0.0, found
    assert found.note


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("answer", [None, "", " \n", "<think>thinking it ov"])
def test_no_answer_is_wrong_and_says_so(name: str, answer: str | None) -> None:
    found = score(name, answer, "1", Options(pattern=".*") if name == "regex" else None)
    assert (found.value, found.note) == (0.0, "no answer")


def test_what_was_thought_was_not_said() -> None:
    assert said("<think>a</think>b") == "b"
    assert said("a</think>b") == "b"
    assert said("<think>a</think>\n<think>b</think>\nc") == "c"
    assert said("<think>a") == ""
    assert said('["<think>"]') == '["<think>"]'
    assert said("the tags <think> and </think>") == "the tags <think> and </think>"
    assert said(None) == ""


def test_an_option_that_a_scorer_does_not_take_is_refused_and_says_for_what_it_is() -> None:
    with pytest.raises(UsageError, match="pattern has no meaning for scorer 'exact'; it is for regex"):
        check_options("exact", Options(pattern="x"), has_answer=True)
    with pytest.raises(UsageError, match="ignore_case has no meaning for scorer 'json'"):
        check_options("json", Options(ignore_case=True), has_answer=True)
    for option in ("pattern", "ignore_case"):
        assert any(option in scorer.options for scorer in SCORERS.values())


@pytest.mark.parametrize("name", SCORERS)
def test_without_a_right_answer_only_a_pattern_can_score(name: str) -> None:
    with pytest.raises(UsageError, match="needs a right answer"):
        check_options(name, Options(), has_answer=False)
    if name == "regex":
        check_options(name, Options(pattern="x"), has_answer=False)


@pytest.mark.parametrize(
    ("name", "expected", "options"),
    [
        ("last_number", "words", Options()),
        ("choice", "Paris", Options()),
        ("choice", -1, Options()),
        ("regex", "(", Options()),
        ("regex", "x", Options(pattern="(")),
        ("json", "{", Options()),
        ("json", "NaN", Options()),
    ],
)
def test_an_expected_value_that_cannot_be_scored_against_is_found_beforehand(
    name: str, expected: Any, options: Options
) -> None:
    assert SCORERS[name].check(expected, options)


@given(st.text(), st.text())
def test_no_answer_is_too_odd_to_score(answer: str, expected: str) -> None:
    for name, scorer in SCORERS.items():
        if scorer.check(expected, Options()) is None:
            assert score(name, answer, expected).value in (0.0, 1.0)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_value_equals_itself(value: Any) -> None:
    assume(not isinstance(value, str))
    assume("</think>" not in json.dumps(value))
    assert score("json", json.dumps(value), value).value == 1.0
    assert score("json", f"so:\n```json\n{json.dumps(value, indent=1)}\n```", json.dumps(value)).value == 1.0


@pytest.mark.parametrize("name", [name for name in SCORERS if name != "regex"])
@pytest.mark.parametrize(
    "answer",
    [
        "{" * 300_000,
        "[" * 300_000,
        "answer is " * 40_000,
        "answer" + " " * 100_000 + "x",
        "A" * 300_000,
        "```\n" * 80_000,
    ],
)
def test_a_model_that_cannot_stop_is_scored_in_bounded_time(name: str, answer: str) -> None:
    expected = "B" if name == "choice" else "1"
    started = time.process_time()
    score(name, answer, expected)
    assert time.process_time() - started < 5

"""Generated texts: the same for a seed everywhere, without an end, scored exactly and by likeness."""

from __future__ import annotations

import itertools
import time

import pytest
from _kit.answers import score
from hypothesis import given
from hypothesis import strategies as st

from hotswap.contracts.task import Task
from hotswap.errors import UsageError
from hotswap.tasksets.reverse_text import ReverseText


def first(count: int, **settings: int) -> list[Task]:
    return list(itertools.islice(ReverseText(**settings).load(), count))


def test_a_seed_gives_the_same_tasks_on_every_machine() -> None:
    assert [(task.id, task.answer) for task in first(3)] == [
        ("s0-0", "lissof eldeen regnig"),
        ("s0-1", "elgae ecurps nottoc"),
        ("s0-2", "elgae cirbaf eiriarp"),
    ]
    assert first(1)[0].prompt.endswith("\n\nginger needle fossil")


def test_more_tasks_begin_with_the_same_ones_and_another_seed_has_others() -> None:
    assert first(200)[:100] == first(100)
    assert len({task.id for task in first(200)}) == 200
    assert not {task.answer for task in first(20)} & {task.answer for task in first(20, seed=1)}
    assert first(1, seed=7)[0].id == "s7-0"


def test_it_is_endless_and_says_so() -> None:
    assert ReverseText.endless
    task = next(itertools.islice(ReverseText().load(), 100_000, None))
    assert task.id == "s0-100000"


def test_the_number_of_words_is_a_setting() -> None:
    assert [len(task.answer.split()) for task in first(3, words=5)] == [5, 5, 5]
    with pytest.raises(UsageError, match="at least one word"):
        first(1, words=0)


def test_only_the_reversed_text_alone_is_right() -> None:
    [task] = first(1)
    assert score(ReverseText(), task, task.answer).value == 1
    assert score(ReverseText(), task, f"  {task.answer}\n").value == 1
    assert score(ReverseText(), task, task.answer.upper()).value == 0
    assert score(ReverseText(), task, f"Here it is: {task.answer}").value == 0
    assert score(ReverseText(), task, task.answer[::-1]).note == "not the reversed text"
    assert score(ReverseText(), task, None).note == "no answer"


def test_likeness_is_1_for_the_text_0_for_nothing_and_between_for_a_slip() -> None:
    [task] = first(1)

    def like(answer: str | None) -> float:
        return score(ReverseText(), task, answer, "similarity").value

    assert like(task.answer) == 1
    assert like(None) == like("") == like("####") == 0
    assert 0.9 < like(task.answer.replace("o", "0")) < 1
    assert like(task.answer + "x" * 100_000) < 0.001


def test_a_model_that_cannot_stop_is_compared_in_bounded_time() -> None:
    [task] = first(1)
    started = time.process_time()
    assert score(ReverseText(), task, task.answer * 5_000, "similarity").value < 0.01
    assert time.process_time() - started < 5


@given(st.text(max_size=200))
def test_likeness_is_always_a_share(answer: str) -> None:
    [task] = first(1)
    assert 0 <= score(ReverseText(), task, answer, "similarity").value <= 1

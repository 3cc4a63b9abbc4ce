"""What scoring functions return becomes numbers, and no number is invented."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap import Score, Taskset, Trace, metric, reward
from hotswap.errors import ErrorRecord
from hotswap.scoring import KEPT, Scores, Sheet, apply, plain
from hotswap.trace import CellRecord, RewardRecord, TaskRecord


class Marked(Taskset):
    """Functions of every kind; what they return comes from the tests."""

    @reward
    def main(self) -> None: ...

    @reward(weight=0.25)
    def bonus(self) -> None: ...

    @reward(weight=0)
    def style(self) -> None: ...

    @metric
    def length(self) -> None: ...


def scores(**outcomes: Any) -> Scores:
    """What a sheet says when functions returned these, or raised them."""
    methods = {method.name: method for method in Marked().scoring()}
    sheet = Sheet("t2", methods.values())
    for name, outcome in outcomes.items():
        if isinstance(outcome, BaseException):
            sheet.raised(methods[name], outcome)
        else:
            sheet.enter(methods[name], outcome)
    return sheet.scores()


def trace(error: ErrorRecord | None = None) -> Trace:
    cell = CellRecord("cell", "marked", "loop", "1", "model", "local")
    return Trace("r", "run", cell, TaskRecord("t2", "sha256:0"), 0, error=error)


def applied(error: ErrorRecord | None = None, /, **outcomes: Any) -> Trace:
    after = trace(error)
    apply(scores(**outcomes), after)
    return after


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1.0, 1.0),
        (0, 0.0),
        (True, 1.0),
        (False, 0.0),
        (Decimal("0.5"), 0.5),
        (Score(0.25), 0.25),
        (Score(True), 1.0),
    ],
)
def test_numbers_of_all_kinds_are_scores(returned: object, value: float) -> None:
    found = scores(main=returned)
    assert found.rewards["main"].value == value
    assert type(found.rewards["main"].value) is float
    assert found.error is None


@pytest.mark.parametrize(
    "returned", [math.nan, math.inf, -math.inf, "1.0", b"1", object(), [1.0], 10**400, 1j, Score("x")]
)  # type: ignore[arg-type]
def test_what_is_no_finite_number_is_a_fault_that_names_task_and_function(returned: object) -> None:
    after = applied(main=returned)
    assert after.reward is None
    assert after.outcome == "error"
    assert after.rewards["main"].value is None
    assert after.error is not None
    assert (after.error.blame, after.error.stage, after.error.type) == ("scorer", "scoring", "invalid_score")
    assert "main returned" in after.error.message
    assert "'t2'" in after.error.message
    after.to_line()


def test_a_score_keeps_its_note_and_what_was_extracted_and_expected() -> None:
    found = scores(main=Score(1.0, note="last number", extracted=18, expected=("18", 18.0)))
    assert found.rewards["main"] == RewardRecord(1.0, 1.0, "last number", 18, ["18", 18.0])


def test_a_mapping_gives_its_own_names_each_with_the_functions_weight() -> None:
    after = applied(
        bonus={"brief": 1, "polite": Score(0.5, note="almost")}, length={"words": 12, "lines": None}
    )
    assert {name: (record.value, record.weight) for name, record in after.rewards.items()} == {
        "brief": (1.0, 0.25),
        "polite": (0.5, 0.25),
    }
    assert after.metrics == {"words": 12.0, "lines": None}
    assert after.reward == 0.375
    assert after.error is None


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"main": {"bonus": 1.0}}, "main names a score 'bonus', and there is one of that name already"),
        (
            {"main": {"a": 1.0}, "bonus": {"a": 1.0}},
            "bonus names a score 'a', and there is one of that name already",
        ),
        ({"main": {"a": 1.0}, "length": {"a": 1.0}}, "length names a score 'a'"),
        ({"main": {1: 1.0}}, "main names a score 1, which is not text"),
    ],
)
def test_two_scores_of_one_name_are_refused(outcomes: dict[str, Any], said: str) -> None:
    found = scores(**outcomes)
    assert found.error is not None
    assert said in found.error.message
    failed = said.split()[0]
    assert {**{name: record.value for name, record in found.rewards.items()}, **found.metrics}[failed] is None


def test_none_is_a_missing_score_and_never_a_zero() -> None:
    after = applied(main=None, bonus=1.0)
    assert (after.reward, after.outcome) == (None, "error")
    assert after.error is not None
    assert after.error.type == "missing_score"
    assert after.rewards["bonus"].value == 1.0


def test_an_empty_mapping_is_a_missing_score() -> None:
    assert applied(main={}).reward is None


def test_a_metric_without_a_score_is_null_and_no_fault() -> None:
    after = applied(main=1.0, length=None)
    assert after.metrics == {"length": None}
    assert (after.reward, after.error) == (1.0, None)


@pytest.mark.parametrize("outcome", [math.nan, ValueError("no"), "long"])
@pytest.mark.parametrize("name", ["style", "length"])
def test_what_does_not_count_can_fail_without_changing_reward_or_outcome(name: str, outcome: object) -> None:
    after = applied(main=0.5, **{name: outcome})
    assert (after.reward, after.outcome) == (0.5, "scored")
    shown = after.rewards[name].value if name == "style" else after.metrics[name]
    assert shown is None
    assert after.error is not None
    assert after.error.blame == "scorer"
    assert name in after.error.message


def test_a_function_that_raises_is_named_with_its_traceback() -> None:
    def fail() -> None:
        raise KeyError("gold")

    with pytest.raises(KeyError) as caught:
        fail()
    after = applied(main=caught.value, bonus=1.0)
    assert after.error is not None
    assert after.error.type == "KeyError"
    assert after.error.message == "main raised KeyError: 'gold', on task 't2'"
    assert "in fail" in (after.error.detail or "")
    assert after.rewards["main"].note == after.error.message
    assert after.rewards["bonus"].value == 1.0


def test_the_fault_of_a_reward_that_counts_comes_first_and_names_the_others() -> None:
    found = scores(length=math.nan, style="x", main=RuntimeError("down"))
    assert found.error is not None
    assert found.error.type == "RuntimeError"
    assert "length returned nan" in (found.error.detail or "")
    assert "style returned 'x'" in (found.error.detail or "")


def test_a_rollout_that_timed_out_is_scored_and_keeps_its_error() -> None:
    timeout = ErrorRecord("harness", "agent", "timeout", "the time limit of 60 s was reached", "tail")
    after = applied(timeout, main=1.0)
    assert (after.reward, after.outcome, after.error) == (1.0, "scored", timeout)


def test_the_first_error_stays_and_a_scorers_fault_is_noted_in_its_detail() -> None:
    timeout = ErrorRecord("harness", "agent", "timeout", "the time limit of 60 s was reached", "tail" * 2_000)
    after = applied(timeout, main=math.nan)
    assert (after.reward, after.outcome) == (None, "error")
    assert after.error is not None
    assert after.error.type == "timeout"
    assert (after.error.detail or "").startswith("tail")
    assert "main returned nan" in (after.error.detail or "")


def test_scores_without_a_reward_that_counts_leave_the_rollout_unscored() -> None:
    after = applied(style=1.0, length=3)
    assert (after.reward, after.outcome) == (None, "error")
    assert after.error is not None
    assert after.error.blame == "scorer"


def test_a_sum_that_is_no_finite_number_is_no_reward() -> None:
    after = trace()
    apply(Scores({"a": RewardRecord(1e308, 10.0)}), after)
    assert (after.reward, after.outcome) == (None, "error")
    assert after.error is not None
    assert (after.error.type, after.error.message) == (
        "invalid_score",
        "scoring gave rewards whose sum is beyond all numbers, on task 't2'",
    )


def test_metrics_that_were_there_stay() -> None:
    after = trace()
    after.metrics = {"turns": 3.0}
    apply(scores(main=1.0, length=7), after)
    assert after.metrics == {"turns": 3.0, "length": 7.0}


@given(st.lists(st.tuples(st.floats(-10, 10), st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0])), min_size=1))
def test_reading_results_back_and_summing_again_gives_the_same_number(
    rewards: list[tuple[float, float]],
) -> None:
    after = trace()
    apply(Scores({str(index): RewardRecord(*record) for index, record in enumerate(rewards)}), after)
    again = Trace.from_line(after.to_line())
    apply(Scores(again.rewards), again)
    assert again.reward == after.reward


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (("a", 1), ["a", 1]),
        ({"a": None}, {"a": None}),
        (math.nan, "nan"),
        ({1, 2}, "{1, 2}"),
        (b"x", "b'x'"),
        (CIRCULAR, "[[...]]"),
        (Unspeakable(), "<Unspeakable, whose repr raised RuntimeError>"),
        ("\ud800", "\ud800"),
    ],
)
def test_any_value_becomes_json(value: object, kept: object) -> None:
    assert plain(value) == kept
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize("value", ["x" * 3 * KEPT, ["x"] * KEPT, {KEPT * 3 * "x"}])
def test_what_is_kept_of_a_value_is_bounded(value: object) -> None:
    assert len(plain(value)) <= KEPT + len("...")

"""The numbers in the tables are those of the results in any order, and what is missing is counted."""

import csv
import io
import json
import math
import random
import statistics
from fractions import Fraction

import pytest
from _kit.traces import failed, fault, result, scored
from hypothesis import given
from hypothesis import strategies as st

from hotswap.columns import causes, columns, dollars, notes, number, seconds, tokens
from hotswap.intervals import clustered, mean_interval, pass_at, percentile, t_cdf, t_quantile, wilson
from hotswap.messages import Usage
from hotswap.metrics import CommonError, Mean, PassAt, Row, Sum, Summary, tabulate
from hotswap.result import Result


def only(summary: Summary) -> Row:
    (row,) = summary.rows
    return row


HUGE = 10**400


def said(summary: Summary) -> str:
    """All that is written and shown, which must be strict JSON where it is JSON."""
    files = summary.files()
    json.loads(files["metrics.json"], parse_constant=lambda name: pytest.fail(name))
    return "".join(
        [*files.values(), *notes(summary), *(c.show(row) for c in columns(summary) for row in summary.rows)]
    )


@pytest.mark.parametrize("rewards", [(1e308, 1e308, 1e308), (1.7e308, 0.0, 1.7e308), (-1e308, 1e308, 1e308)])
def test_rewards_whose_sum_is_beyond_all_numbers_still_have_their_mean(rewards: tuple[float, ...]) -> None:
    summary = tabulate([result(f"t{at}", 0, reward) for at, reward in enumerate(rewards)])
    row = only(summary)
    assert row.reward.mean == pytest.approx(float(sum(map(Fraction, rewards)) / 3), rel=1e-12)
    assert row.reward_errors_as_zero == row.reward
    assert "inf" not in said(summary).replace("interval", "")
    shown = [column.show(row) for column in columns(summary)]
    assert max(map(len, shown)) < 40  # nobody reads 308 zeros


def test_an_interval_that_would_end_beyond_all_numbers_is_null_and_says_so() -> None:
    wide = only(tabulate([result("a", 0, -1.7e308), result("b", 0, 1.7e308)]))
    assert wide.interval is None
    assert wide.notes == ("interval is null: it would end beyond 1.8e308, the largest number",)
    same = only(tabulate([result("a", 0, 1e308), result("b", 0, 1e308)]))
    assert (same.interval, same.notes) == (None, ())
    fits = only(tabulate([result(f"t{at}", 0, 1e307 * (at % 2)) for at in range(40)]))
    small = only(tabulate([result(f"t{at}", 0, 2.0 * (at % 2)) for at in range(40)]))
    assert fits.interval is not None
    assert small.interval is not None
    assert fits.interval.low == pytest.approx(small.interval.low * 5e306)


def test_a_sum_beyond_all_numbers_is_null_with_a_note_and_a_large_one_is_exact() -> None:
    costly = [result("a", 0, 1.0, cost_usd=1e308), result("b", 0, 1.0, cost_usd=1e308)]
    summary = tabulate(costly)
    assert only(summary).cost_usd == Sum(None, 0)
    assert only(summary).notes == ("cost_usd is null: the sum is beyond 1.8e308, the largest number",)
    assert any("cost_usd is null" in note for note in notes(summary))
    two = tabulate(
        [result("a", 0, 1.0, cell="a/b/c/d", cost_usd=1.7e308), result("a", 0, 1.0, cost_usd=1.7e308)]
    )
    assert two.cost_usd == Sum(None, 0)
    assert two.to_json()["total"]["cost_usd"] == {"total": None, "unknown": 0}
    counted = tabulate(
        [result("a", 0, 1.0, usage=Usage(HUGE, 3)), result("b", 0, 1.0, usage=Usage(1, 2**53 + 1))]
    )
    assert only(counted).input_tokens == Sum(None, 0)
    assert only(counted).output_tokens == Sum(2**53 + 4, 0)
    assert "input_tokens is null" in "".join(notes(counted))
    for each in (summary, two, counted):
        assert "inf" not in said(each).replace("interval", "")


ODD_SCORES = [
    result("t1", 0, 1.0),
    result("t1", 1, 0.0),
    result("t2", 0, None, error=fault("scorer", type="invalid_reward")),
    result("t2", 1, None, error=fault("judge")),
    result("t3", 0, None, error=fault("provider")),
    result("t3", 1, 1.0, error=fault("harness", type="timeout"), stop="seconds"),
    result("t4", 0, None, error=fault("runtime", stage="setup")),
    result("t4", 1, 1.0),
    result("t5", 0, 0.5, rewards={"right": 0.5}, metrics={"style": None}),
]


def test_missing_scores_are_missing_and_both_means_stand_beside_each_other_with_counts() -> None:
    row = only(tabulate(ODD_SCORES, {"quiz/loop/small/local": 10}))
    assert (row.scored, row.errors, row.planned, row.unplayed) == (5, 4, 10, 1)
    assert row.reward == Mean(0.7, 5)
    assert row.reward_errors_as_zero.count == 9
    assert row.reward_errors_as_zero.mean == pytest.approx(0.3889, abs=5e-5)
    assert row.errors_by_blame == {"judge": 1, "provider": 1, "runtime": 1, "scorer": 1}
    assert row.stops == {"done": 8, "seconds": 1}
    assert row.metrics == {"style": Mean(None, 0, 5)}
    assert (row.wrong, row.binary, row.pass_at, row.reward_range) == (2, False, None, (0.0, 1.0))


def test_tries_are_paid_recovered_rollouts_are_no_errors_and_attempts_are_never_merged() -> None:
    row = only(
        tabulate(
            [
                result("t1", 0, 1.0, tries=2, recovered=True, turns=3, usage=Usage(30, 3), cost_usd=0.3),
                result("t1", 1, 0.0, turns=1, usage=Usage(10, 1), cost_usd=0.1),
                result("t2", 0, 1.0, turns=2, usage=Usage(10, 1), cost_usd=0.1),
                result("t2", 1, None, tries=2, turns=9, usage=Usage(20, 2), cost_usd=0.2),
            ]
        )
    )
    assert (row.tasks, row.attempts, row.scored, row.errors, row.tries, row.recovered) == (2, 2, 3, 1, 6, 1)
    assert row.reward.mean == pytest.approx(2 / 3)
    assert row.pass_at == {"1": PassAt(0.75, 2), "2": PassAt(1.0, 1)}
    assert row.turns == Mean(2.0, 3)
    assert (row.input_tokens, row.output_tokens) == (Sum(70), Sum(7))
    assert row.cost_usd.total == pytest.approx(0.7)


def test_unknown_usage_and_cost_are_counted_and_are_not_zero() -> None:
    row = only(tabulate([result("a", cost_usd=0.5, usage=Usage(5, None)), result("b", cost_usd=None)]))
    assert row.cost_usd == Sum(0.5, 1)
    assert row.input_tokens == Sum(5, 1)
    assert row.output_tokens == Sum(None, 2)


def test_a_cell_that_has_no_result_has_a_row_and_the_plan_gives_the_order() -> None:
    summary = tabulate([result(cell="b"), result(cell="a")], {"c": 3, "b": 1})
    assert [row.cell for row in summary.rows] == ["c", "b", "a"]
    assert (summary.rows[0].unplayed, summary.rows[0].reward, summary.rows[0].finished) == (
        3,
        Mean(None, 0),
        0,
    )
    assert summary.planned is None
    assert tabulate([]).rows == ()
    json.dumps(summary.to_json(), allow_nan=False)
    assert summary.to_markdown()


def test_a_cell_of_errors_alone_has_no_mean() -> None:
    row = only(tabulate([result("a", reward=None), result("b", reward=None)]))
    assert (row.reward, row.interval, row.reward_errors_as_zero) == (Mean(None, 0), None, Mean(0.0, 2))
    assert (row.pass_at, row.seconds_p50) == (None, None)


def test_the_commonest_errors_are_named_by_their_first_line_in_an_order_of_their_own() -> None:
    refused = fault(type="auth", message="Incorrect API key provided (HTTP 401)\nmore")
    results = [result(f"t{at}", reward=None, error=refused) for at in range(3)]
    results += [result("u", reward=None, error=fault("runtime", type="b", message="x" * 900))]
    results += [result("v", reward=None, error=fault("runtime", type="a", message="full"))]
    results += [result("v", cell="other", reward=None, error=refused), result("w", error=refused)]
    summary = tabulate(results)
    assert causes(summary) == [
        "4 x provider, auth: Incorrect API key provided (HTTP 401)",
        "1 x runtime, a: full",
        f"1 x runtime, b: {'x' * 160}",
    ]
    assert tabulate(reversed(results)) == summary
    assert summary.to_json()["total"]["common_errors"][0]["count"] == 4
    assert "4 x provider, auth: Incorrect API key provided (HTTP 401)" in summary.to_markdown()
    assert "Incorrect" not in summary.to_csv()


def test_errors_that_are_all_different_are_counted_in_bounded_memory() -> None:
    errors = [fault(message=f"request {at} failed") for at in range(500)]
    row = only(tabulate(result(f"t{at}", reward=None, error=error) for at, error in enumerate(errors)))
    assert row.common_errors == (CommonError("provider", "overloaded", "request 0 failed", 500, alike=False),)


def test_errors_of_one_kind_are_one_line_whatever_ids_stand_in_their_messages() -> None:
    messages = ["request 7 failed", "request 7 failed", "request 1 failed"]
    errors = [
        *(fault(message=text) for text in messages),
        *(fault("runtime", type=kind) for kind in "abcd"),
    ]
    results = [result(f"t{at}", reward=None, error=error) for at, error in enumerate(errors)]
    results.append(result("t0", cell="other", reward=None, error=fault(message="request 9 failed")))
    assert causes(tabulate(results)) == [
        "4 x provider, overloaded, such as: request 7 failed",
        "1 x runtime, a: Overloaded (HTTP 529)",
        "1 x runtime, b: Overloaded (HTTP 529)",
        "and 2 more kinds",
    ]
    assert tabulate(reversed(results)).common_errors == tabulate(results).common_errors


def test_an_interrupted_rollout_is_an_error_and_lowers_no_mean() -> None:
    stopped = fault("user", type="interrupted", message="the run was interrupted")
    results = [result("a"), result("b", reward=None), result("c", reward=None, error=stopped)]
    summary = tabulate(results)
    row = only(summary)
    assert (row.errors, row.interrupted, row.errors_by_blame) == (2, 1, {"provider": 1, "user": 1})
    assert row.reward_errors_as_zero == Mean(0.5, 2)
    assert "1 interrupted rollout is counted under errors, and in no mean." in notes(summary)
    alone = tabulate([result("a"), result("c", reward=None, error=stopped)])
    assert "errors as 0" not in [column.title for column in columns(alone)]


REWARDS = st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(-1e6, 1e6))


@given(st.lists(REWARDS, max_size=40), st.randoms(use_true_random=False), st.sampled_from([1, 3]))
def test_the_tables_do_not_depend_on_the_order_of_the_results(
    rewards: list[float | None], shuffle: random.Random, attempts: int
) -> None:
    results = [
        result(
            f"t{at // attempts}",
            at % attempts,
            reward,
            seconds=None if at % 5 == 0 else at * 0.1,
            cost_usd=None if at % 7 == 0 else at * 0.01,
            usage=Usage(at, None),
            metrics={"m": None if at % 3 == 0 else at / 3},
        )
        for at, reward in enumerate(rewards)
    ]
    first = tabulate(results)
    shuffled = list(results)
    shuffle.shuffle(shuffled)
    again = tabulate(shuffled)
    assert json.dumps(first.to_json(), allow_nan=False) == json.dumps(again.to_json(), allow_nan=False)
    assert first.files() == again.files()
    read = [Result.from_json(json.loads(json.dumps(one.to_json()))) for one in shuffled]
    assert tabulate(read) == first


@given(st.lists(REWARDS, min_size=1, max_size=30))
def test_scored_and_errors_add_up_and_the_mean_is_inside_its_interval(rewards: list[float | None]) -> None:
    row = only(tabulate(result(f"t{at // 2}", at % 2, reward) for at, reward in enumerate(rewards)))
    assert row.scored + row.errors == len(rewards)
    assert sum(row.errors_by_blame.values()) == row.errors
    if row.interval:
        assert row.reward.mean is not None
        assert row.interval.low <= row.reward.mean <= row.interval.high


@pytest.mark.parametrize(
    ("df", "expected"),
    [
        (1, 12.7062047364),
        (2, 4.3026527297),
        (3, 3.1824463053),
        (4, 2.7764451052),
        (5, 2.5705818356),
        (9, 2.2621571628),
        (10, 2.2281388520),
        (29, 2.0452296421),
        (30, 2.0422724563),
        (60, 2.0002978220),
        (100, 1.9839715185),
        (1000, 1.9623390808),
    ],
)
def test_students_quantile_is_that_of_the_printed_tables(df: int, expected: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize(("df", "expected"), [(1, 63.6567411629), (5, 4.0321429836), (30, 2.7499956536)])
def test_students_quantile_at_99_per_cent(df: int, expected: float) -> None:
    assert t_quantile(0.995, df) == pytest.approx(expected, abs=1e-7)


def test_the_exact_and_the_expanded_quantile_meet() -> None:
    assert t_cdf(t_quantile(0.975, 61), 61) == pytest.approx(0.975, abs=1e-8)
    assert t_cdf(0.0, 7) == 0.5


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.27753),
        (1, 10, 0.01788, 0.40415),
        (5, 10, 0.23659, 0.76341),
        (10, 10, 0.72247, 1.0),
        (81, 263, 0.25529, 0.36621),
    ],
)
def test_wilson_gives_the_published_values(right: int, n: int, low: float, high: float) -> None:
    interval = wilson(right, n)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=2e-5), pytest.approx(high, abs=2e-5))


def test_one_attempt_a_task_of_0_and_1_is_wilson() -> None:
    assert mean_interval([[1.0]] * 5 + [[0.0]] * 5) == wilson(5, 10)


def test_the_clustered_interval_of_equal_groups_is_the_t_interval_of_their_means() -> None:
    groups = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    means = [statistics.fmean(group) for group in groups]
    half = 2.7764451052 * statistics.stdev(means) / math.sqrt(5)
    interval = clustered(groups)
    assert interval.low == pytest.approx(0.4 - half)
    assert interval.high == pytest.approx(0.4 + half)


def test_attempts_at_one_task_are_not_taken_for_as_many_tasks() -> None:
    few = mean_interval(
        [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    )
    many = mean_interval([[1.0]] * 8 + [[0.0]] * 8)
    assert few is not None
    assert many is not None
    assert few.high - few.low > 1.5 * (many.high - many.low)


def test_an_interval_of_rewards_of_0_and_1_is_clipped_and_others_are_not() -> None:
    clipped = mean_interval([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    assert clipped is not None
    assert clipped.high == 1.0
    assert "clipped" in clipped.method
    free = mean_interval([[0.9], [1.0], [1.0], [0.4]])
    assert free is not None
    assert free.high > 1.0
    assert free.method == "t, clustered by task"


def test_all_right_is_not_taken_for_certain() -> None:
    interval = mean_interval([[1.0, 1.0, 1.0]] * 4)
    assert interval is not None
    assert (interval.low, interval.high, interval.method) == (wilson(4, 4).low, 1.0, "Wilson over tasks")


@pytest.mark.parametrize(
    "groups", [[], [[]], [[0.5]], [[1.0, 0.0]], [[0.5], [0.5]], [[0.1, 0.3], [0.2, 0.2]]]
)
def test_where_nothing_can_be_said_there_is_no_interval(groups: list[list[float]]) -> None:
    assert mean_interval(groups) is None


@pytest.mark.parametrize(
    ("k", "n", "right", "chance"),
    [
        (1, 4, 1, 0.25),
        (2, 4, 1, 0.5),
        (4, 4, 1, 1.0),
        (2, 5, 2, 0.7),
        (3, 10, 0, 0.0),
        (2, 1, 1, None),
        (5, 5, 5, 1.0),
    ],
)
def test_pass_at_k_is_unbiased_and_undefined_with_too_few(
    k: int, n: int, right: int, chance: float | None
) -> None:
    assert pass_at(k, n, right) == (chance if chance is None else pytest.approx(chance))


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one() -> None:
    draws = random.Random(1)
    attempts = [1] * 3 + [0] * 7
    share = statistics.fmean(any(draws.sample(attempts, 4)) for _ in range(20_000))
    assert pass_at(4, 10, 3) == pytest.approx(share, abs=0.02)


def test_percentiles_are_interpolated() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert percentile(list(map(float, range(101))), 0.95) == 95.0


def test_the_csv_has_a_line_a_cell_and_names_every_number() -> None:
    summary = tabulate([*ODD_SCORES, result("t1", cell="other", metrics={"speed": 2.0})])
    rows = list(csv.DictReader(io.StringIO(summary.to_csv())))
    assert [row["cell"] for row in rows] == ["other", "quiz/loop/small/local"]
    assert rows[1]["reward.mean"] == "0.7"
    assert rows[1]["errors_by_blame.judge"] == "1"
    assert rows[1]["metrics.style.missing"] == "5"
    assert (rows[0]["metrics.speed.mean"], rows[1]["metrics.speed.mean"]) == ("2.0", "")


def test_the_markdown_is_a_table_whatever_the_names() -> None:
    summary = tabulate(
        [result(cell="a|b_c*d"), result(cell="plain"), result("t2", cell="plain", reward=None)]
    )
    head, rule, *rows = summary.to_markdown().split("\n\n")[0].splitlines()
    assert {line.replace("\\|", "").count("|") for line in (head, rule, *rows)} == {head.count("|")}
    assert "a\\|b\\_c\\*d" in rows[0]
    assert "errors as 0" in head


def test_the_files_of_a_run_are_the_tables() -> None:
    files = tabulate([Result.of(scored()), Result.of(failed())]).files()
    assert set(files) == {"metrics.json", "metrics.csv", "metrics.md"}
    written = json.loads(files["metrics.json"])
    assert written["total"]["errors_by_blame"] == {"provider": 1}
    assert written["cells"][0]["reward"] == {"mean": 1.0, "count": 1, "missing": 0}
    assert "NaN" not in "".join(files.values())


def test_many_results_are_tabulated_in_little_memory() -> None:
    import tracemalloc

    def results() -> object:
        for at in range(20_000):
            yield result(f"t{at // 4}", at % 4, float(at % 3 == 0), seconds=at * 0.1, metrics={"m": 1.0})

    tracemalloc.start()
    tabulate(results())  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * 400


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(None), "-"),
        (number(0.64), "0.64"),
        (number(1.0), "1.00"),
        (number(0.9996), "0.9996"),
        (number(0.9999996), "0.9999996"),
        (number(0.004), "0.004"),
        (number(0.0), "0.00"),
        (number(12.34), "12.3"),
        (number(-12345.6), "-12,346"),
        (tokens(812), "812"),
        (tokens(12_345), "12.3k"),
        (tokens(999_900), "1.00M"),
        (dollars(0), "$0.00"),
        (dollars(0.00042), "$0.00042"),
        (dollars(0.00006), "$0.00006"),
        (dollars(0.0000134), "$0.000013"),
        (dollars(0.05), "$0.05"),
        (dollars(0.0999), "$0.10"),
        (dollars(0.3), "$0.30"),
        (dollars(0.000004), "<$0.00001"),
        (dollars(1234.5), "$1,234.50"),
        (seconds(0.309), "0.31 s"),
        (seconds(200), "3 min 20 s"),
        (seconds(9000), "2.5 h"),
    ],
)
def test_numbers_are_rounded_for_people(shown: str, text: str) -> None:
    assert shown == text

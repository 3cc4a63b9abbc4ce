"""Limits name what is used up, a budget adds up, and a cost is known or null."""

from __future__ import annotations

import pytest

from hotswap.contracts.model import Prices
from hotswap.limits import Budget, Limits, cost
from hotswap.messages import Usage


def test_without_limits_nothing_is_used_up() -> None:
    assert Limits().over(10**9, 10**12, 1e9, 1e9) is None
    assert Budget().over() is None


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(turns=3), "turns"),
        (Limits(tokens=100), "tokens"),
        (Limits(cost_usd=0.5), "cost"),
        (Limits(seconds=9), "seconds"),
        (Limits(turns=0), "turns"),
        (Limits(turns=4, tokens=101, cost_usd=0.6, seconds=10), None),
    ],
)
def test_a_limit_is_used_up_when_it_is_reached(limits: Limits, name: str | None) -> None:
    assert limits.over(3, 100, 0.5, 9.0) == name


def test_a_budget_adds_up_what_is_known() -> None:
    budget = Budget(cost_usd=1.0, tokens=100)
    budget.spend(Usage(40, 10), 0.4)
    budget.spend(Usage(None, None), None)
    assert (budget.over(), budget.spent.total, budget.spent_usd) == (None, 50, 0.4)
    budget.spend(Usage(50), None)
    assert budget.over() == "budget"


def test_a_budget_of_time_runs_from_its_making() -> None:
    budget = Budget(seconds=100)
    assert budget.over() is None
    budget.started -= 101
    assert budget.over() == "budget"


PRICES = Prices(input=1.0, cached=0.1, cache_write=1.25, output=10.0)


@pytest.mark.parametrize(
    ("usage", "prices", "millionths"),
    [
        (Usage(100, 10), PRICES, 200),
        (Usage(100, 10, cached=40, cache_write=20), PRICES, 40 + 4 + 25 + 100),
        (Usage(100, 10, cached=40, cache_write=20), Prices(input=1.0, output=10.0), 200),
        (Usage(100, 10, cached=100), Prices(input=1.0, cached=0.0, output=10.0), 100),
        (Usage(0, 0), PRICES, 0),
    ],
)
def test_every_token_is_paid_once_at_its_own_price(usage: Usage, prices: Prices, millionths: float) -> None:
    found = cost(usage, prices)
    assert found is not None
    assert found * 1e6 == pytest.approx(millionths)


@pytest.mark.parametrize(
    ("usage", "prices"),
    [
        (Usage(1, 1), None),
        (Usage(1, 1), Prices(input=1.0)),
        (Usage(1, 1), Prices(output=1.0)),
        (Usage(1, None), PRICES),
        (Usage(None, 1), PRICES),
    ],
)
def test_what_is_not_known_costs_null_and_not_zero(usage: Usage, prices: Prices | None) -> None:
    assert cost(usage, prices) is None

"""The practical problems: textbook optima, ladders that are nested, accounts that add up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import occamrl as orl
from occamrl.errors import ParameterError
from occamrl.problems.operations import (
    DAYS,
    DEMANDS,
    KEEP,
    Entry,
    LostSales,
    MachineReplacement,
    PracticalProblem,
    Pricing,
    QueueAdmission,
    WeekdayInventory,
    negative_binomial,
    on_a_grid,
    poisson,
    two_kinds_of_day,
)

KINDS: tuple[type[PracticalProblem], ...] = (LostSales, WeekdayInventory, QueueAdmission, MachineReplacement, Pricing)


def value(problem: PracticalProblem) -> float:
    """Return the optimum of an episode in the problem's unit."""
    return problem.unit.total(problem.mdp.optimal_value, problem.horizon)


def test_demand_as_the_shelf_sees_it() -> None:
    np.testing.assert_allclose(poisson(3.0, 6)[:6], [math.exp(-3) * 3**d / math.factorial(d) for d in range(6)])
    for law, mean, variance in (
        (negative_binomial(4.0, 2.0, 400), 4.0, 4.0 + 16.0 / 2.0),
        (two_kinds_of_day(1.0, 7.0, 0.25, 400), 2.5, 2.5 + 0.25 * 0.75 * 36.0),  # mean + variance of the kind of day
    ):
        d = np.arange(401)
        assert law @ d == pytest.approx(mean)
        assert law @ (d - mean) ** 2 == pytest.approx(variance)
    for law in (poisson(9.0, 4), negative_binomial(9.0, 0.5, 4), two_kinds_of_day(1.0, 9.0, 0.5, 4)):
        assert law.size == 5
        assert law.sum() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(negative_binomial(4.0, 1e7, 12), poisson(4.0, 12), atol=1e-6)


def test_every_law_on_a_grid_is_there_once() -> None:
    laws = on_a_grid((0, 2, 3), 4, 3)
    brute = {p for p in itertools.product(range(5), repeat=3) if sum(p) == 4}
    assert {tuple(np.round(4 * law[[0, 2, 3]]).astype(int)) for law in laws} == brute
    assert len(laws) == len(brute) == math.comb(6, 2)
    assert (laws[:, 1] == 0.0).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_ladders_are_nested_and_each_class_has_a_truth_of_its_own(kind: type[PracticalProblem]) -> None:
    problems = kind.truths()
    assert len(problems) == len(kind.rung_names) == len(problems[0].sizes)
    ladder = orl.Ladder.of_problem(problems[0])
    assert ladder.sizes == problems[0].sizes
    assert [ladder.class_of(problem.mdp) for problem in problems] == list(range(1, len(problems) + 1))
    np.testing.assert_allclose(problems[-1].mdp.kernel().sum(axis=2), 1.0, atol=1e-12)


@dataclass(frozen=True, kw_only=True)
class _TwoAmounts(MachineReplacement):
    def entries(self) -> Iterable[Entry]:
        yield from super().entries()
        yield Entry(0, KEEP, 1, 0, 0.0, 5.0)


def test_a_move_has_one_amount() -> None:
    with pytest.raises(ParameterError, match="two amounts for one move"):
        _TwoAmounts().mdp  # noqa: B018  (building it is the test)


@pytest.mark.parametrize("demand", DEMANDS)
def test_without_a_cost_of_ordering_every_day_is_a_newsvendor(demand: str) -> None:
    problem = LostSales(demand=demand, fixed=0.0, holding=1.0, order_step=1)
    law, d = problem.theta, np.arange(16)
    gain = [law @ (4.0 * np.minimum(d, y) - 1.0 * np.maximum(y - d, 0)) for y in range(16)]
    best = int(np.argmax(np.cumsum(law) >= 4.0 / 5.0))  # the critical fractile
    assert gain[best] == pytest.approx(max(gain))
    assert value(problem) == pytest.approx(28 * max(gain), rel=1e-12)  # leftovers are worth their cost: myopic is best
    policy = problem.mdp.optimal_policy
    assert all(gain[min(s + policy[0, s], 15)] == pytest.approx(gain[best]) for s in range(best + 1))


@given(st.integers(0, 15), st.integers(0, 3), st.sampled_from(DEMANDS))
def test_the_shelf_sees_sales_only(stock: int, order: int, demand: str) -> None:
    problem = LostSales(demand=demand, horizon=1)
    row, filled = np.zeros(16), min(stock + 5 * order, 15)
    for d, p in enumerate(problem.theta):
        row[max(filled - d, 0)] += p
    np.testing.assert_allclose(problem.mdp.kernel()[stock, order], row, atol=1e-15)


def test_a_day_of_the_week_is_a_shelf_of_its_own() -> None:
    week = WeekdayInventory(means=(2.0, 4.0, 4.0, 4.0, 9.0, 12.0, 2.0), order_step=5, horizon=2)
    kernel, size = week.mdp.kernel(), 16
    for day, mean in enumerate(week.means):
        law = stats.poisson(mean)
        for stock, order in itertools.product(range(size), range(4)):
            filled = min(stock + 5 * order, 15)
            row = np.zeros(DAYS * size)
            after = row[(day + 1) % DAYS * size :][:size]
            after[1 : filled + 1] = law.pmf(filled - np.arange(1, filled + 1))
            after[0] = law.sf(filled - 1)
            np.testing.assert_allclose(kernel[day * size + stock, order], row, atol=1e-12)


def test_a_week_of_equal_days_is_the_shelf_without_weekdays() -> None:
    costs: dict[str, Any] = {"order_step": 5, "horizon": 9, "holding": 0.5, "fixed": 6.0, "margin": 4.0}
    assert value(WeekdayInventory(means=(6.0,) * 7, **costs)) == pytest.approx(value(LostSales(**costs)), rel=1e-12)


def test_phases_that_do_not_differ_are_one_queue() -> None:
    problem = QueueAdmission(room=5, horizon=20, arrivals=(0.4,) * 3, services=(0.2,) * 3)
    values = np.zeros(6)
    for _ in range(20):  # plain value iteration of a single queue
        n = np.arange(6)
        served = np.where(n > 0, values[np.maximum(n - 1, 0)], values)
        closed = -n + 0.2 * served + 0.8 * values
        gain = np.where(n < 5, 30.0 + values[np.minimum(n + 1, 5)], values)
        is_open = -n + 0.4 * gain + 0.2 * served + 0.4 * values
        values = np.maximum(closed, is_open)
    ours = [problem.unit.total(v, 20) for v in problem.mdp.optimal_values[0]]
    np.testing.assert_allclose(np.reshape(ours, (3, 6)), np.tile(values, (3, 1)), rtol=1e-12)


@pytest.mark.parametrize("hazard", [0.02, 0.1, 0.3])
def test_a_machine_that_does_not_age_is_never_replaced(hazard: float) -> None:
    problem = MachineReplacement(hazard=(hazard,) * 15)
    assert value(problem) == pytest.approx(-36 * hazard * 10_000.0, rel=1e-12)
    assert (problem.mdp.optimal_policy == KEEP).all()


@pytest.mark.parametrize("m", [2, 3])
def test_age_replacement_costs_what_renewal_theory_says(m: int) -> None:
    hazard = MachineReplacement.truths()[m - 1].hazard
    alive = np.concatenate([[1.0], np.cumprod(1.0 - np.array(hazard))])
    rates = []
    for age in range(1, 15):  # replace at this age: expected cost of a cycle over its expected length
        cost = 10_000.0 * (1.0 - alive[age]) + 2_000.0 * alive[age]
        rates.append(cost / alive[:age].sum())
    long = MachineReplacement(hazard=hazard, horizon=4000)
    assert -value(long) / 4000 == pytest.approx(min(rates), rel=2e-3)  # the ends of an episode weigh 1/H

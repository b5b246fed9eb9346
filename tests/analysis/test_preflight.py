"""The preflight of a ladder: what it predicts for aggregations, blind classes and grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import ParameterError
from occamrl.models.finite import CoverFamily
from occamrl.models.linear import AggregationFamily
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing
from occamrl.protocols import Floats
from tests import cases
from tests.selectors.test_arl_gen_regression import RIVER, river_ladder


def test_a_class_that_sees_nothing_is_blind() -> None:
    """Action 0 leads nowhere and pays a little; what action 1 does is not seen by a class that says it is worthless."""
    moves = np.array([[[0, -1], [0, 1]], [[0, -1], [0, 1]]])
    worthless = orl.FiniteFamily([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]]])
    ladder: Any = orl.Ladder([worthless, AggregationFamily(partition=[0, 1], moves=moves)])
    mdp = orl.FiniteMDP(
        transition=[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]], reward=[[0.1, 0.0], [0.0, 1.0]], horizon=6
    )
    report = orl.preflight(ladder, mdp.known, episodes=500)
    agent = report.selector()
    assert report.blind
    assert agent.guard
    stuck = orl.run(orl.ARLGen(ladder=ladder), mdp, episodes=500, progress=False)
    saved = orl.run(agent, mdp, episodes=500, progress=False)
    assert stuck.phases["chosen"].to_pylist()[-1] == 1  # for ever: regret is linear
    assert saved.phases["chosen"].to_pylist()[-1] == 2
    assert saved.total_regret < 0.5 * stuck.total_regret


def coin(p: Any) -> Floats:
    return np.array([[[1.0 - p, p]], [[1.0, 0.0]]])


def test_the_preflight_judges_the_grid() -> None:
    known = orl.FiniteMDP(transition=coin(0.5), reward=[[0.0], [1.0]], horizon=10).known
    for step, verdict in ((0.1, "too coarse"), (0.001, "fine enough")):
        small = CoverFamily(lambda p: coin(p[0]), low=[0.0], high=[0.2], step=step)
        large = CoverFamily(lambda p: coin(p[0]), low=[0.0], high=[0.4], step=step)
        ladder = orl.Ladder([small, large])
        assert ladder.reach[-1] == pytest.approx(step)  # half of 2 step
        report = orl.preflight(ladder, known, episodes=5000, truths=3, members=3)
        assert verdict in str(report)
        # (1/2) log(2 n/delta) for noise, against step^2/2 on each of 9 rows an episode
        assert report.grid_episodes == pytest.approx(math.log(2 * large.size / 0.05) / (9 * step**2))
    bad: list[tuple[Any, Any, int, str]] = [
        (ladder, known, 0, "episodes"),
        ("ladder", known, 10, "ladder"),
        (ladder, known.without_rewards, 10, "sizes alone"),  # of zeros it would say that nothing is at stake
    ]
    for models, about, episodes, message in bad:
        with pytest.raises(ParameterError, match=message):
            orl.preflight(models, about, episodes=episodes)


def test_a_class_is_given_no_less_time_than_its_rejection_may_take() -> None:
    """One row an episode, at distance .3^2: by M21 rejection is sure from min over c of (1/c + 1/2)/(1 - c/2) on."""
    mdp = orl.FiniteMDP(transition=coin(0.5), reward=[[0.0], [1.0]], horizon=2)
    ladder = orl.Ladder([orl.FiniteFamily([coin(0.2)]), orl.FiniteFamily([coin(0.2), coin(0.5)])])
    c = np.linspace(0.5, 1.2, 100_001)
    sure = float(((1 / c + 0.5) / (1 - c / 2)).min()) * math.log(2 / 0.05)
    report = orl.preflight(ladder, mdp.known, episodes=10, delta=0.05)
    assert report.rejection[0] * 0.3**2 == pytest.approx(sure, rel=1e-9)


def test_the_preflight_finds_blind_pairs_where_there_are_some() -> None:
    pricing = Pricing(prices=5, demand=(0.9, 0.9, 0.3, 0.3, 0.05))
    ladder = orl.Ladder.of_problem(pricing)
    report = orl.preflight(ladder, pricing.mdp.known, episodes=1000, start=pricing.stock, truths=30, members=10)
    assert report.safe
    assert "confirm itself" in str(report)
    worst = max(report.blind, key=lambda pair: pair.loss_per_episode)
    named = f"of {ladder.names[worst.rung - 1]!r} under kernel {worst.truth} of {ladder.names[worst.truth_class - 1]!r}"
    assert named in str(report)
    assert f"  {ladder.names[0]!r}, if wrong, is" in str(report)
    assert worst.episodes_to_reject > 1000
    agent = report.selector(test_growth=0.2)
    assert agent.safe
    assert agent.test_growth == 0.2
    sparse = SparseLadder()
    report = orl.preflight(orl.Ladder.of_problem(sparse), sparse.mdp.known, episodes=10_000, truths=10, members=10)
    assert not report.safe
    assert "no blind pairs" in str(report)


def corridor_ladder() -> tuple[Any, Any]:
    slips = [0.0, 0.1, 0.3, 0.5]
    alike, halves = ([cases.corridor(p, q) for p in slips for q in slips if (p == q) == same] for same in (True, False))
    return orl.Ladder([orl.FiniteFamily(alike), orl.FiniteFamily([*alike, *halves])]), alike[0]


def zones_ladder() -> tuple[Any, Any]:
    return river_ladder(1, 3), RIVER.mdp.kernel()


@pytest.mark.parametrize(("make", "horizon", "episodes"), [(corridor_ladder, 25, 20), (zones_ladder, 6, 5)])
def test_what_a_preflight_counts_as_much_does_not_depend_on_where_rewards_begin(
    make: Any, horizon: int, episodes: int
) -> None:
    """Money mapped onto [0, 1] by another origin: r/4 and r/4 + 3/4 are the same account."""
    ladder, kernel = make()
    reward = np.zeros(kernel.shape[:2])
    reward[0, 0], reward[-1] = 0.01, 1.0
    found = []
    for origin in (0.0, 0.75):
        known = orl.FiniteMDP(transition=kernel, reward=origin + 0.25 * reward, horizon=horizon).known
        report = orl.preflight(ladder, known, episodes=episodes)
        found.append([(pair.rung, pair.member, pair.truth) for pair in report.blind])
        calm = orl.preflight(ladder, known, episodes=episodes, least_loss=100.0)
        assert not calm.blind
        agent = calm.selector()
        assert not agent.safe
        assert not agent.guard
    assert found[0] == found[1]
    assert found[0]


def test_by_likelihood_a_class_is_rejected_after_its_relative_entropy() -> None:
    """After (log(1/w) + log(1/delta))/rate episodes, w = (1 - w0)/(M |F_2 less F_1|).

    The rate is KL(q, p) for the first step, and again for the second, the last, where the coin has left one in state 0.
    """
    small, large = orl.FiniteFamily([coin(0.2)]), orl.FiniteFamily([coin(0.2), coin(0.5)])
    known = orl.FiniteMDP(transition=coin(0.5), reward=[[0.0], [1.0]], horizon=2).known
    report = orl.preflight(orl.Ladder([small, large]), known, episodes=100, delta=0.1, evidence="likelihood")
    entropy = 0.5 * math.log(0.5 / 0.2) + 0.5 * math.log(0.5 / 0.8)
    assert report.rejection == pytest.approx([(math.log(3.0) + math.log(10.0)) / (1.5 * entropy)])
    assert report.selector().scope == "smallest"


def test_by_likelihood_a_blind_class_is_found_and_avoided() -> None:
    problem: Any = Pricing.examples()[0]
    ladder = orl.Ladder.of_problem(problem)
    start = int(np.flatnonzero(problem.mdp.initial_distribution)[0])
    report = orl.preflight(ladder, problem.mdp.known, episodes=800, start=start, evidence="likelihood")
    assert report.blind
    assert report.selector().scope == "all"
    assert orl.preflight(river_ladder(1, 3), RIVER.mdp.known, episodes=3).classes == ["1 blocks", "3 blocks"]
    with pytest.raises(ParameterError, match="evidence"):
        orl.preflight(river_ladder(1, 3), RIVER.mdp.known, episodes=10, evidence="likelihood")

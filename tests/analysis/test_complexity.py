"""Complexity measures against exhaustive search and hand calculation; the preflight on two ladders."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.complexity import (
    eluder_dimension,
    linear_eluder_bound,
    predictions,
    regret_bound,
    selection_epoch,
    separation,
)
from occamrl.errors import ParameterError
from occamrl.models.linear import AggregationFamily
from occamrl.problems.classic import RiverZones
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing
from tests import cases


def longest_by_permutations(functions: np.ndarray, scale: float) -> int:
    """Try every order of points and every e just below a gap."""
    pairs = list(itertools.combinations(functions, 2))
    gaps = sorted({abs(f[x] - g[x]) for f, g in pairs for x in range(functions.shape[1])} - {0.0})
    best = 0
    for e in (gap * (1 - 1e-9) for gap in gaps if gap > scale):
        for order in itertools.permutations(range(functions.shape[1])):
            for length in range(1, len(order) + 1):
                i = length - 1
                if not any(
                    abs(f[order[i]] - g[order[i]]) > e and sum((f[j] - g[j]) ** 2 for j in order[:i]) <= e * e
                    for f, g in pairs
                ):
                    break
                best = max(best, length)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_eluder_dimension_is_that_of_exhaustive_search(seed: int) -> None:
    functions = np.round(np.random.default_rng(seed).uniform(size=(4, 5)), 2)
    for scale in (0.01, 0.3):
        exact = eluder_dimension(functions, scale)
        assert exact == longest_by_permutations(functions, scale)


def test_indicators_have_the_eluder_dimension_of_their_number() -> None:
    assert eluder_dimension(np.vstack([np.zeros(6), np.eye(6)]), 0.1) == 6
    assert eluder_dimension(np.zeros((3, 4)), 0.1) == 0
    assert linear_eluder_bound(6, 0.1, 1.0, 1.0) > 6
    with pytest.raises(ParameterError):
        eluder_dimension(np.random.default_rng(0).uniform(size=(3, 30)), 0.1)


def test_covering_numbers() -> None:
    p = np.array([0.0, 0.05, 0.5, 0.55, 1.0])
    stack = np.zeros((5, 2, 1, 2))
    stack[:, 0, 0, 0], stack[:, 0, 0, 1] = 1.0 - p, p
    stack[:, 1, 0, 1] = 1.0
    family = orl.FiniteFamily(stack)
    for alpha, size in ((0.0, 5), (0.11, 3), (2.0, 1)):  # the distance is 2 |p - p'|
        assert family.log_covering_number(alpha) == pytest.approx(math.log(size))


def test_separation_by_hand() -> None:
    problem = SparseLadder(states=4, actions=2, horizon=3, dimension=3, most=1, nonzero=1)
    ladder, known = orl.Ladder.of_problem(problem), problem.mdp.known
    kernels = [ladder.family.kernel(i) for i in range(ladder.family.size)]
    values = ladder.family.optimal_values(known)[2, 1:]
    squares = [[((kernels[0] - kernels[2]) @ v) ** 2 for v in values]]
    least, mean = separation(ladder, known, 2)
    assert least == pytest.approx(np.min(squares), abs=1e-15)
    assert mean == pytest.approx(np.mean(squares))
    assert separation(ladder, known, 0) == (math.inf, math.inf)
    assert predictions(ladder.family, known).shape[0] == ladder.family.size


def test_promises_as_written() -> None:
    assert selection_epoch(horizon=1, episodes=3, delta=0.5, separation=1.0, size=100) == math.ceil(
        math.log2(4 * math.log(200))
    )
    terms = regret_bound(horizon=2, episodes=6, delta=0.1, size=3, eluder=2.0, first_epoch=2)
    beta = 8 * 4 * math.log(3 * 4 / 0.1)
    assert terms["selection"] == 4.0
    assert terms["eluder"] == 1 + 4 * 2
    assert terms["width"] == pytest.approx(4 * math.sqrt(beta * 2 * 4 * 2))
    assert terms["noise"] == pytest.approx(2 * math.sqrt(2 * 4 * 2 * math.log(40)))
    assert terms["total"] == pytest.approx(sum(v for k, v in terms.items() if k != "total"))


def test_the_preflight_finds_blind_pairs_where_there_are_some() -> None:
    pricing = Pricing(prices=5, demand=(0.9, 0.9, 0.3, 0.3, 0.05))
    ladder = orl.Ladder.of_problem(pricing)
    report = orl.preflight(ladder, pricing.mdp.known, episodes=1000, start=pricing.stock, truths=30, members=10)
    assert report.safe
    assert "confirm itself" in str(report)
    worst = max(report.blind, key=lambda pair: pair.loss_per_episode)
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


def river_ladder() -> tuple[Any, Any]:
    river = RiverZones(states=4, horizon=6, zones=2)
    rungs = [AggregationFamily(partition=river.partition(zones), moves=river.moves) for zones in (1, 2)]
    return orl.Ladder(rungs), river.mdp.kernel()


@pytest.mark.parametrize(("make", "horizon", "episodes"), [(corridor_ladder, 25, 20), (river_ladder, 6, 5)])
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


def test_a_preflight_without_rewards_is_refused() -> None:
    """Of zeros it would say that nothing is at stake."""
    sparse = SparseLadder(states=4, actions=2, horizon=3, dimension=3, most=1, nonzero=1)
    with pytest.raises(ParameterError, match="known: got sizes alone"):
        orl.preflight(orl.Ladder.of_problem(sparse), sparse.mdp.known.without_rewards, episodes=10)

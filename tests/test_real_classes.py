"""UCRL-VTR and ARL-GEN to the letter on classes with real parameters and on covers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl.arrays import Floats
from occamrl.errors import ParameterError, UnknownName
from occamrl.paper.real_classes import Point, RealClass
from occamrl.paper.ucrl_vtr import beta_infinite


def walk(place: int, right: int, *, low: float, high: float = 0.9) -> Iterator[Any]:
    """Yield a step along four places, which pays at the last; going right may fail."""
    chance = low if place < 2 else high
    pays = float(place == 3)
    if right:
        yield chance, min(place + 1, 3), pays, False
        yield 1 - chance, max(place - 1, 0), pays, False
    else:
        yield 1.0, max(place - 1, 0), pays, False


@cache
def ladder() -> orl.ParametricLadder:
    """Return one chance that is open, or two."""
    box = {"low": (0.1, 0.9), "high": (0.1, 0.9)}
    model = orl.Model(walk, start=0, actions=[0, 1], horizon=8, parameters=box)
    return model.ladder({"one": ["low"], "two": ["low", "high"]})


@cache
def truth() -> orl.FiniteMDP:
    """Return a problem that needs two."""
    mdp: orl.FiniteMDP = ladder().model.mdp(low=0.7, high=0.3)
    return mdp


def played(agent: orl.Learner, episodes: int, seed: int = 0) -> orl.Result:
    """Return a run."""
    return orl.run(agent, truth(), episodes=episodes, seed=seed, progress=False)


def kernel_at(low: float, high: float) -> Floats:
    """Return a kernel [S*A, S] by way of the model."""
    mdp: orl.FiniteMDP = ladder().model.mdp(low=low, high=high)
    return mdp.kernel().reshape(-1, truth().states)


def test_kernels_are_those_of_the_model() -> None:
    real = RealClass(ladder())
    for low, high in ((0.1, 0.9), (0.4, 0.6), (0.9, 0.1)):
        found = real.kernel_at({"low": low, "high": high})
        assert np.allclose(found, kernel_at(low, high))


def test_losses_are_sums_over_the_rows() -> None:
    agent = orl.paper.UCRLVTR(family=ladder().only(2))
    state: Any = agent.begin(truth().known)
    real = agent.real
    assert real is not None
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(5):
        plan = agent.plan(truth().known, state, draw)
        path = [0]
        for h in range(8):
            pair = 2 * path[-1] + int(plan.policy[h][path[-1]])
            path.append(int(draw.choice(truth().states, p=kernel_at(0.7, 0.3)[pair])))
            rows.append((pair, np.asarray(plan.values)[h + 1], path[-1]))
        actions = [int(plan.policy[h][path[h]]) for h in range(8)]
        flow = orl.Flow.of_episode(path, actions, np.zeros(8))
        agent.learn(truth().known, state, plan, flow)
    points: list[Point] = [(0, 0), (1000, 3000), (4096, 2048)]
    for point, loss in zip(points, real.losses(state, points), strict=True):
        kernel = real.kernel(point)
        assert loss == pytest.approx(sum((v[y] - kernel[pair] @ v) ** 2 for pair, v, y in rows))


def test_the_search_is_as_good_as_a_dense_grid() -> None:
    agent = orl.paper.UCRLVTR(family=ladder().only(2))
    state: Any = played(agent, 30).state
    real = agent.real
    assert real is not None
    grid: list[Point] = [(a, b) for a in range(0, 4097, 128) for b in range(0, 4097, 128)]
    estimate, loss = real.estimate(state)
    assert loss <= real.losses(state, grid).min() + 1e-9
    # a radius that leaves a part of the box
    center = real.predictions(state, [estimate])[0]
    gaps = (real.predictions(state, grid) - center) ** 2 @ state["count"]
    radius = float(np.quantile(gaps, 0.2))
    found = real.optimistic(truth().known, state, estimate, radius, 0)
    assert real.inside(state, center, radius, [found])[0]
    values = [
        real.solved(truth().known, point).values[0, 0]
        for point, gap in zip(grid, gaps, strict=True)
        if gap <= radius
    ]
    assert real.solved(truth().known, found).values[0, 0] >= max(values) - 1e-9


@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.02])
def test_the_covering_number_of_a_box_is_that_of_a_cover(alpha: float) -> None:
    real = RealClass(ladder(), {"low": 2.0, "high": 2.0})
    count = math.exp(real.log_covering_number(alpha))
    side = round(math.sqrt(count))
    assert side**2 == pytest.approx(count)
    # the middles of so many cells are within alpha of every kernel
    middles = [0.1 + 0.8 * (2 * i + 1) / (2 * side) for i in range(side)]
    draw = np.random.default_rng(0)
    for low, high in 0.1 + 0.8 * draw.random((40, 2)):
        near = [min(middles, key=lambda m: abs(m - x)) for x in (low, high)]
        gap = np.abs(kernel_at(low, high) - kernel_at(*near)).sum(axis=1).max()
        assert gap <= alpha + 1e-9


def test_lipschitz_constants_are_measured_where_they_are_not_given() -> None:
    assert RealClass(ladder()).lipschitz == pytest.approx({"low": 2.0, "high": 2.0})
    assert RealClass(ladder()).measured == ["low", "high"]
    assert RealClass(ladder(), {"low": 3.0}).lipschitz == pytest.approx({"low": 3.0, "high": 2.0})
    with pytest.raises(UnknownName, match="lipschitz"):
        orl.paper.UCRLVTR(family=ladder().only(1), lipschitz={"high": 1.0}).beta(8)
    with pytest.raises(ParameterError, match="one class"):
        orl.paper.UCRLVTR(family=ladder())


def test_the_radius_is_that_of_the_infinite_case_at_dyadic_scales() -> None:
    agent = orl.paper.UCRLVTR(family=ladder().only(2), delta=0.1)
    assert agent.real is not None
    for episodes in (0, 1, 7, 100):
        rows = 8 * max(1, episodes)
        j = math.ceil(math.log2(rows))
        level = 0.1 / ((j + 1) * (j + 2))
        entropy = agent.real.log_covering_number(0.5**j)
        radius = 8 * 64 * (entropy + math.log(2 / level))
        radius += 4 * 64 * (2 + math.sqrt(2 * math.log(4 * rows * (rows + 1) / level)))
        assert agent.beta(8, episodes) == pytest.approx(radius)
        assert agent.beta(8, episodes) == beta_infinite(
            agent.real, horizon=8, episodes=episodes, delta=0.1
        )


def test_the_truth_stays_in_the_set_and_leaves_one_that_is_too_small() -> None:
    """The radius keeps the truth; a 5,000th of it does not."""
    runs = 20
    lost = 0
    lost_small = 0
    point = {"low": 0.7, "high": 0.3}
    for seed in range(runs):
        agent = orl.paper.UCRLVTR(family=ladder().only(2))
        state: Any = played(agent, 14, seed).state
        real = agent.real
        assert real is not None
        estimate = real.estimate(state)[0]
        targets = state["targets"][state["target"]]
        z = np.einsum("us,us->u", real.kernel_at(point)[state["pair"]], targets)
        gap = (z - real.predictions(state, [estimate])[0]) ** 2 @ state["count"]
        lost += gap > agent.beta(8, 14)
        lost_small += gap > 2e-4 * agent.beta(8, 14)
    assert binomtest(lost, runs, 0.05, alternative="greater").pvalue > 1e-3
    assert binomtest(lost_small, runs, 0.05, alternative="greater").pvalue < 1e-3


def test_plans_are_optimistic_and_learn() -> None:
    result = played(orl.paper.UCRLVTR(family=ladder().only(2)), 20)
    assert result.pessimistic_episodes == 0
    assert set(result.next_plan.diagnostics["parameters"]) == {"low", "high"}


def test_arl_gen_leaves_a_class_with_real_parameters_that_is_wrong() -> None:
    result = played(orl.paper.ARLGen(ladder=ladder()), 70)
    epochs: dict[int, int] = {row["epoch"]: row["chosen"] for row in result.phase_rows}
    assert epochs[1] == 1
    assert max(epochs.values()) == 2
    statistics = result.verdict["statistics"]
    assert statistics[1] <= statistics[0]


def test_covers_keep_the_grid_point_that_is_nearest_to_the_truth() -> None:
    calm, storm = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))

    def mixed(p: Floats) -> Floats:
        return np.asarray((1 - p[0]) * calm + p[0] * storm)

    family = orl.CoverFamily(mixed, low=[0.0], high=[1.0], step=0.1)
    mdp = orl.FiniteMDP(transition=mixed(np.array([0.45])), reward=np.eye(3)[:, :2], horizon=4)
    agent = orl.paper.UCRLVTR(family=family)
    plain = orl.paper.UCRLVTR(family=family.take(slice(None)))
    assert agent.beta(4, 50) > plain.beta(4, 50)
    lost = 0
    for seed in range(10):
        result = orl.run(agent, mdp, episodes=25, seed=seed, progress=False)
        lost += not agent.confidence_set(mdp.known, result.state)[4]
    assert binomtest(lost, 10, 0.05, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein"])
def test_rewards_may_be_unknown_to_the_letter(bound: Any) -> None:
    kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))
    mdp = orl.FiniteMDP(transition=kernels[1], reward=np.eye(3)[:, :2], horizon=3)
    lists = orl.Ladder([orl.FiniteFamily(kernels[:2]), orl.FiniteFamily(kernels)])
    for letter in (
        orl.paper.ARLGen(ladder=lists),
        orl.paper.UCRLVTR(family=lists.family),
        orl.paper.UCRLVTRLin(features=orl.FeatureMap(list(kernels)), norm_bound=1.0),
    ):
        agent = orl.RewardsPerPair(agent=letter, bound=bound)
        result = orl.run(agent, mdp, episodes=20, progress=False)
        # the event of the letter and that of the rewards fail together with probability delta
        assert result.pessimistic_episodes == 0
    outcomes = orl.FiniteMDP(
        transition=kernels[1],
        reward=np.broadcast_to(np.arange(3) / 2, (3, 2, 3)),
        horizon=3,
    )
    with pytest.raises(ParameterError, match="RewardsPerPair"):
        orl.run(orl.paper.UCRLVTR(family=lists.family), outcomes, episodes=1)


def test_points_of_the_cloud_are_distinct_and_have_the_corners() -> None:
    cloud = RealClass(ladder()).cloud
    assert len(set(cloud)) == len(cloud)
    assert {*itertools.product((0, 4096), repeat=2)} <= set(cloud)

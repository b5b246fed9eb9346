"""The named problems: published figures, closed forms, and the structure each promises."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl.models.ladder import Ladder
from occamrl.problems.classic import DeepSea, HardLinearMixture, RandomMDP, RiverSwim, WideTree
from occamrl.problems.mixtures import ReferenceMixture, SparseLadder, SparseMixture
from occamrl.registry import make_problem


@pytest.mark.parametrize(("states", "optimum"), [(3, 5.719919), (5, 5.585129)])
def test_river_swim_has_the_published_optimum(states: int, optimum: float) -> None:
    assert RiverSwim(states=states).mdp.optimal_value == pytest.approx(optimum, abs=5e-7)


@pytest.mark.parametrize(
    ("variant", "first", "middle", "last", "left_reward", "horizon"),
    [
        ("ayoub", [0.3, 0.7, 0], [0.1, 0.6, 0.3], [0, 0.1, 0.9], 0.005, 12),
        ("osband", [0.4, 0.6, 0], [0.05, 0.6, 0.35], [0, 0.4, 0.6], 0.005, 20),
        ("statistical", [0.4, 0.6, 0], [0.05, 0.35, 0.6], [0, 0.05, 0.95], 0.1, 12),
    ],
)
def test_river_swim_variants(
    variant: str, first: list[float], middle: list[float], last: list[float], left_reward: float, horizon: int
) -> None:
    mdp = RiverSwim(states=3, variant=variant).mdp
    left = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(mdp.kernel(), np.stack([left, [first, middle, last]], axis=1))
    assert mdp.known.base_reward.tolist() == [[left_reward, 0], [0, 0], [0, 1]]
    assert (mdp.horizon, RiverSwim(horizon=7, variant=variant).mdp.horizon) == (horizon, 7)
    assert mdp.initial_distribution.tolist() == [1, 0, 0]


@pytest.mark.parametrize("leaves", [4, 20])
def test_wide_tree(leaves: int) -> None:
    mdp = WideTree(leaves=leaves).mdp
    assert (mdp.states, mdp.actions, mdp.horizon) == (leaves + 3, 2, 2)
    assert mdp.optimal_value == 1.0
    assert mdp.optimal_policy[0, 0] == 1
    wrong = np.zeros((2, mdp.states), np.int64)
    assert mdp.evaluate(wrong)[0, 0] == 0.0
    kernel = mdp.kernel()
    reached = [np.flatnonzero(kernel[parent, action]).tolist() for parent in (1, 2) for action in (0, 1)]
    assert sorted(itertools.chain(*reached)) == list(range(3, leaves + 3))  # quarters that do not meet
    assert {len(quarter) for quarter in reached} == {leaves // 4}
    np.testing.assert_array_equal(kernel[3:, 0, 3:], np.eye(leaves))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_deep_sea(size: int) -> None:
    mdp = DeepSea(size=size).mdp
    assert (mdp.states, mdp.horizon) == (size * size + 1, size)
    assert mdp.optimal_value == pytest.approx(1.0, abs=1e-15)  # 0.99 in bsuite, and 0.01 for the shift
    always = np.ones((size, size * size + 1), np.int64)
    assert mdp.evaluate(always)[0, 0] == pytest.approx(1.0, abs=1e-15)
    assert mdp.evaluate(1 - always)[0, 0] == pytest.approx(0.01)  # bsuite: 0
    for mistake in range(size - 1):  # left once on the way: the treasure is lost, 0.01/N is won
        once = always.copy()
        once[mistake] = 0
        assert mdp.evaluate(once)[0, 0] == pytest.approx(0.01 / size)


def test_deep_sea_sinks_to_the_left_or_to_the_right() -> None:
    kernel, cell = DeepSea(size=3).mdp.kernel(), np.arange(9).reshape(3, 3)
    moves = {(0, 0): (0, 1), (1, 0): (0, 1), (1, 1): (0, 2), (1, 2): (1, 2)}  # columns after left and right
    for (row, column), after in moves.items():
        for action in (0, 1):
            assert kernel[cell[row, column], action].argmax() == cell[row + 1, after[action]]
    assert (kernel[6:, :, 9] == 1.0).all()


HARD = [
    HardLinearMixture(),
    HardLinearMixture(dimension=3, horizon=4, episodes=1, seed=1),
    HardLinearMixture(dimension=5, horizon=6, episodes=3, seed=2),  # nearly the largest gap
]


@pytest.mark.parametrize("problem", HARD, ids=range(len(HARD)))
def test_hard_linear_mixture(problem: HardLinearMixture) -> None:
    mdp, d, horizon = problem.mdp, problem.dimension, problem.horizon
    assert (mdp.states, mdp.actions) == (horizon + 2, 2 ** (d - 1))
    np.testing.assert_allclose(problem.phi @ problem.theta, mdp.kernel(), rtol=0, atol=1e-15)
    gap = problem.gap
    np.testing.assert_allclose(np.abs(problem.mu), gap, rtol=1e-15)
    into = 1.0 / horizon + problem.action_vectors @ problem.mu
    for h in range(horizon):
        np.testing.assert_allclose(mdp.kernel()[h, :, -1], into, rtol=0, atol=1e-15)
        np.testing.assert_allclose(mdp.kernel()[h, :, h + 1], 1.0 - into, rtol=0, atol=1e-15)

    # The best action at every rung follows the signs; the time of the fall is then geometric.
    fall = 1.0 / horizon + (d - 1) * gap
    optimum = sum((horizon - h) * (1.0 - fall) ** (h - 1) * fall for h in range(1, horizon))
    assert mdp.optimal_value == pytest.approx(optimum, rel=1e-12)

    # The paper's bounds on features and parameter.
    assert problem.theta.size == d
    assert np.linalg.norm(problem.theta) == pytest.approx(1.0 + (d - 1) * gap, rel=1e-12)
    for values in itertools.product((0.0, 1.0), repeat=mdp.states):
        assert (np.linalg.norm(np.einsum("satj,t->saj", problem.phi, values), axis=2) <= 1.0 + 1e-12).all()


def test_random_mdp_keeps_to_its_concentration() -> None:
    peaked, flat = (RandomMDP(states=8, concentration=c).mdp.kernel().max(axis=2).mean() for c in (0.05, 50.0))
    assert peaked > 0.7
    assert flat < 0.3


MIXTURES = [
    SparseMixture(),
    SparseMixture(seed=9, persistence=0.7, contrast=1.0),
    SparseMixture(states=5, actions=3, dimension=7, nonzero=4, gamma=0.3, norm=2.0, seed=1),
    SparseMixture(states=2, dimension=1, nonzero=1),
    SparseMixture(states=3, dimension=4, nonzero=4, norm=math.sqrt(1.0 + 3 * 0.25)),
]


@pytest.mark.parametrize("problem", MIXTURES, ids=range(len(MIXTURES)))
def test_sparse_mixture(problem: SparseMixture) -> None:
    mdp, theta, phi = problem.mdp, problem.theta, problem.phi
    assert phi.shape == (problem.states, problem.actions, problem.states, problem.dimension)
    np.testing.assert_allclose(phi @ theta, mdp.kernel(), rtol=0, atol=1e-16)
    assert theta[0] == 1.0
    assert np.flatnonzero(theta).tolist() == problem.support.tolist()
    assert problem.support.size == problem.nonzero
    if problem.nonzero > 1:
        assert np.abs(theta[problem.support[1:]]).min() == problem.gamma
    if problem.norm is not None:
        assert np.linalg.norm(theta) == pytest.approx(problem.norm, rel=1e-12)
    np.testing.assert_allclose(phi[..., 1:].sum(axis=2), 0.0, atol=1e-15)
    np.testing.assert_allclose(phi[..., 0].sum(axis=2), 1.0, atol=1e-15)
    good = problem.good
    assert (mdp.known.base_reward[:good] >= 0.6).all()
    assert (mdp.known.base_reward[good:] <= 0.4).all()


@given(st.integers(2, 9), st.integers(2, 6), st.integers(0, 2**31), st.floats(0.0, 0.95))
def test_sparse_mixture_is_a_kernel_whatever_the_signs(
    states: int, dimension: int, seed: int, persistence: float
) -> None:
    problem = SparseMixture(
        states=states, dimension=dimension, nonzero=2 + seed % (dimension - 1), seed=seed, persistence=persistence
    )
    for signs in itertools.product((-1.0, 1.0), repeat=dimension - 1):
        kernel = problem.phi @ (problem.theta * np.array([1.0, *signs]))
        assert kernel.min() > 0.0
        np.testing.assert_allclose(kernel.sum(axis=2), 1.0, rtol=0, atol=1e-12)


def test_the_reference_mixture_is_a_sparse_mixture_of_the_documented_size() -> None:
    """The stored kernel is that of the stored features, and both are of the form that SparseMixture documents."""
    problem = make_problem("reference-mixture")
    assert isinstance(problem, ReferenceMixture)
    mdp, theta, phi = problem.mdp, problem.theta, problem.phi
    assert (mdp.states, mdp.actions, mdp.horizon, len(theta)) == (12, 4, 6, 16)
    assert {int(j): theta[j] for j in np.flatnonzero(theta)} == {0: 1.0, 8: -0.5, 13: -0.5}
    np.testing.assert_allclose(phi @ theta, mdp.kernel(), rtol=0, atol=1e-16)
    np.testing.assert_allclose(phi[..., 0], 1 / 12, rtol=1e-15)
    direction = np.where(np.arange(12) < 6, 1.0, -1.0)[:, None]  # of good and bad states
    np.testing.assert_array_equal(phi[..., 1:], phi[:, :, :1, 1:] * direction)
    np.testing.assert_allclose(np.abs(phi[..., 1:]), 0.9 / 12, rtol=1e-13)
    assert mdp.known.base_reward[:6].min() >= 0.6 > 0.4 >= mdp.known.base_reward[6:].max()
    with pytest.raises(ValueError, match="read-only"):
        phi[0, 0, 0, 0] = 1.0


@pytest.mark.parametrize("nonzero", range(4))
def test_the_reference_ladder_has_the_hypotheses_of_a_sparse_ladder(nonzero: int) -> None:
    problem = make_problem("reference-ladder", nonzero=nonzero)
    mdp = problem.mdp
    assert (mdp.states, mdp.actions, mdp.horizon, problem.sizes) == (12, 3, 10, [1, 17, 129, 577])
    np.testing.assert_array_equal(problem.hypotheses, SparseLadder().hypotheses)
    assert (problem.theta != 0.0).sum() == nonzero + 1
    assert Ladder.of_problem(problem).class_of(mdp) == nonzero + 1
    np.testing.assert_allclose(np.abs(problem.phi[..., 1:]), 0.96 / 12 / 1.5, rtol=1e-13)
    assert mdp.known.base_reward[:6].min() >= 0.8 > 0.2 >= mdp.known.base_reward[6:].max()

"""Three layouts of features, one algorithm: blocks of a one-hot map, sparse simulators and dense vectors agree."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from occamrl._core.features import DenseFeatures
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap, layout_of
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats
from occamrl.running.run import run
from tests.cases import mixture

FORMS: dict[str, dict[str, Any]] = {
    "sharp": {},
    "ayoub": {"radius": "ayoub", "weights": "none", "replan": 0.0, "scale": 0.3},
}


def same(mdp: FiniteMDP, one: FeatureMap, other: FeatureMap, episodes: int = 150, **options: Any) -> None:
    """Two feature maps lead to the same regret, plans, values and estimate."""
    learners = [UCRLVTRLin(features=features, norm_bound=2.0, **options) for features in (one, other)]
    left, right = (run(learner, mdp, episodes=episodes, seed=1, progress=False) for learner in learners)
    np.testing.assert_allclose(left.regret, right.regret, rtol=0, atol=1e-9)
    assert left.plans == right.plans
    np.testing.assert_allclose(left.state.values, right.state.values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(left.state.theta, right.state.theta, rtol=0, atol=1e-9)
    np.testing.assert_allclose(left.state.growth, right.state.growth, rtol=0, atol=1e-9)
    assert left.regret.any() or left.plans > 1


def one_hot(support: Any) -> Floats:
    """Return phi[s, a, s', j] with one coordinate per possible transition, in the order of (s, a, s')."""
    possible = np.asarray(support, dtype=bool)
    phi = np.zeros((*possible.shape, int(possible.sum())))
    phi[possible] = np.eye(int(possible.sum()))
    return phi


@pytest.mark.parametrize("form", FORMS)
def test_a_one_hot_map_in_blocks_equals_the_dense_one(form: str) -> None:
    states, actions = 4, 3
    case = mixture(1, states=states, actions=actions, full_support=True)
    blocks = FeatureMap.tabular(states=states, actions=actions)
    assert blocks.is_tabular
    assert blocks.blocks.matrix_start[-1] == actions * states**3  # S-by-S for every (s, a), never d-by-d
    dense = FeatureMap(one_hot(np.ones((states, actions, states))))
    same(case.mdp, blocks, dense, **FORMS[form])


@pytest.mark.parametrize("form", FORMS)
def test_a_limited_support_keeps_one_coordinate_per_possible_transition(form: str) -> None:
    case = mixture(2, states=4, actions=2)
    support = case.transition > 0.0
    assert 0 < support.sum() < support.size
    limited = FeatureMap.tabular(states=4, actions=2, support=support)
    assert limited.dimension == support.sum()
    same(case.mdp, limited, FeatureMap(one_hot(support)), **FORMS[form])


def test_knowing_the_support_is_worth_something() -> None:
    """Negative control: the comparison tells maps apart that differ in what they know."""
    case = mixture(2, states=4, actions=2)
    limited = FeatureMap.tabular(states=4, actions=2, support=case.transition > 0.0)
    with pytest.raises(AssertionError):
        same(case.mdp, limited, FeatureMap.tabular(states=4, actions=2))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("full_support", [True, False])
def test_sparse_simulators_equal_dense_ones(form: str, full_support: bool) -> None:
    case = mixture(3, full_support=full_support)
    kernels = [sp.csr_array(case.phi[..., j].reshape(8, 4)) for j in range(3)]
    table = FeatureMap(kernels)
    assert isinstance(table.layout, DenseFeatures)  # kernels with common outcomes: entry by entry would take more room
    np.testing.assert_array_equal(table.layout.phi, tuple(case.features.layout)[1])
    entries = FeatureMap._make(layout_of(table.layout.outcomes, sp.csr_array(table.layout.phi)), 4, 3)
    same(case.mdp, entries, case.features, **FORMS[form])


def test_a_chunk_of_pairs_is_planned_as_each_pair_alone() -> None:
    """130 pairs with outcomes of their own are two chunks and a rest; a map with common outcomes has none."""
    draw = np.random.default_rng(0)
    support = draw.random((65, 2, 65)) < 0.1
    support[:, :, 0] = True
    stack = draw.random((3, 65, 2, 65)) * support
    stack /= stack.sum(axis=-1, keepdims=True)
    mdp = FiniteMDP(transition=stack.mean(axis=0), reward=draw.random((65, 2)), horizon=4)
    common = FeatureMap(np.moveaxis(np.maximum(stack, 1e-300), 0, -1))  # no outcome is impossible, all else is the same
    assert isinstance(common.layout, DenseFeatures)
    chunks = FeatureMap([sp.csr_array(kernel.reshape(130, 65)) for kernel in stack])
    assert np.unique(np.diff(chunks.layout.outcomes.start)).size > 1
    same(mdp, chunks, common, weights="none", scale=0.1)


def test_signed_features_are_allowed_and_optimism_needs_only_a_true_kernel() -> None:
    """phi_1 moves probability with either sign; theta_1 < 0 makes it negative."""
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.full(4, 5.0), size=(4, 2))
    move = rng.normal(size=(4, 2, 4))
    move -= move.mean(axis=-1, keepdims=True)
    move *= 0.9 * (base / np.abs(move)).min(axis=-1, keepdims=True)
    theta = np.array([1.0, -0.8])
    phi = np.stack([base, move], axis=-1)
    mdp = FiniteMDP(transition=phi @ theta, reward=rng.random((4, 2)), horizon=5)
    learner = UCRLVTRLin(features=FeatureMap(phi), norm_bound=float(np.linalg.norm(theta)), delta=0.001)
    result = run(learner, mdp, episodes=3_000, progress=False)
    assert result.pessimistic_episodes == 0
    assert result.state.theta[1] < 0.0


def test_thousands_of_sparse_states_stay_sparse() -> None:
    """S = 2,000 with five successors: no array of the size of a dense kernel is ever made, and plans are plans."""
    states, actions, dimension, width = 2_000, 2, 4, 5
    rng = np.random.default_rng(0)
    kernels: list[Any] = []
    for _ in range(dimension):
        columns = rng.integers(0, states, size=(states * actions, width)).ravel()
        values = rng.dirichlet(np.ones(width), size=states * actions).ravel()
        start = np.arange(states * actions + 1) * width
        kernels.append(sp.csr_array((values, columns, start), shape=(states * actions, states)))
    mixed = sum(kernel / dimension for kernel in kernels)
    mdp = FiniteMDP(transition=mixed, reward=rng.random((states, actions)), horizon=4)
    warm = mixture(3)
    small = FeatureMap([sp.csr_array(warm.phi[..., 0].reshape(8, 4))])
    run(UCRLVTRLin(features=small, norm_bound=1.0), warm.mdp, episodes=1, progress=False)  # loads the compiled code
    tracemalloc.start()
    result = run(UCRLVTRLin(features=FeatureMap(kernels), norm_bound=1.0), mdp, episodes=20, progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < states * actions * states * 8 / 3
    assert result.pessimistic_episodes == 0
    assert (result.state.values.max(axis=1) <= np.arange(4, -1, -1.0)).all()

"""State aggregations: what they contain, least squares per block, and one-hot features as the finest of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import occamrl as orl
from benchmarks import oracle
from occamrl.checks import design, sample_rows
from occamrl.errors import FamilyError, InvalidInput, ShapeError
from occamrl.models.family import packed, simplex_least_squares
from occamrl.models.linear import AggregationFamily
from occamrl.problems.classic import RiverSwim, RiverZones
from occamrl.problems.mixtures import MemoryWalk
from tests.cases import environment_uniforms

RIVER = RiverZones(states=6, horizon=5, zones=3)


def river(zones: int, problem: RiverZones = RIVER) -> AggregationFamily:
    return AggregationFamily(partition=problem.partition(zones), moves=problem.moves)


def test_a_kernel_of_three_zones_is_in_the_partitions_that_refine_them() -> None:
    kernel = RIVER.mdp.kernel()
    assert [river(zones).contains(kernel) for zones in (1, 2, 3, 6)] == [False, False, True, True]
    theta = river(3).member_of(kernel)
    assert theta is not None
    np.testing.assert_allclose(river(3).kernel(theta), kernel, atol=1e-9)


@pytest.mark.parametrize(
    ("variant", "needed"),
    # At the ends, moves beyond them stay: (.05, .35, .6) is (.4, .6) at the first state and (.05, .95) at the last.
    [("statistical", [0] * 6), ("ayoub", [0, 1, 1, 1, 1, 1]), ("osband", [0, 1, 1, 1, 1, 2])],
)
def test_published_rivers_are_aggregations(variant: str, needed: list[int]) -> None:
    kernel = RiverSwim(states=6, variant=variant).mdp.kernel()
    for blocks in ([0] * 6, [0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2]):
        enough = len(set(blocks)) >= len(set(needed))
        assert AggregationFamily(partition=blocks, moves=RIVER.moves).contains(kernel) == enough


def test_absolute_moves_are_kernels_of_the_block() -> None:
    law = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3))
    family = AggregationFamily(partition=[7, 3, 3, 7], actions=3)
    assert family.contains(law[[1, 0, 0, 1]])
    assert not family.contains(law[[1, 0, 1, 1]])
    assert family.blocks == 2


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_order_of_memory_is_an_aggregation(order: int) -> None:
    walk = MemoryWalk(places=3, order=order)
    classes = [AggregationFamily(partition=walk.partition(k), moves=walk.moves) for k in range(3)]
    kernel = walk.mdp.kernel()
    assert [family.contains(kernel) for family in classes] == [k >= order for k in range(3)]
    assert orl.Ladder(classes).class_of(walk.mdp) == order + 1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 12), width=st.integers(1, 5))
def test_least_squares_on_the_simplex_meets_the_optimality_conditions(seed: int, count: int, width: int) -> None:
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(count, width)), draw.normal(size=count)
    p = simplex_least_squares(x, y)
    assert p.min() >= 0.0
    assert p.sum() == pytest.approx(1.0)
    slope = 2.0 * x.T @ (x @ p - y)  # no direction towards a vertex goes down
    assert slope.min() >= slope @ p - 1e-8 * max(1.0, float(np.abs(slope).max()))


def test_the_smallest_loss_is_that_of_a_general_optimiser() -> None:
    family, known = river(2), RIVER.mdp.known
    draw = np.random.default_rng(3)
    rows = sample_rows(family.features, known, family.members(draw, 1)[0], draw, 200)
    x, y = design(family.features, known, rows)
    best = family.smallest_loss(packed(family.features.blocks, x.T @ x), x.T @ y) + float(y @ y)
    parts = family.parts()

    def loss(free: Any) -> float:
        theta = np.concatenate([np.exp(free[part]) / np.exp(free[part]).sum() for part in parts])
        return float(((y - x @ theta) ** 2).sum())

    found = minimize(loss, np.zeros(family.features.dimension), method="L-BFGS-B", options={"maxiter": 3000})
    assert best <= found.fun + 1e-9
    assert best == pytest.approx(found.fun, rel=1e-3)


def test_one_hot_linear_features_are_the_tabular_class() -> None:
    states, actions = 3, 2
    tabular = AggregationFamily.tabular(states=states, actions=actions)
    phi = np.zeros((states, actions, states, 18))
    phi.reshape(18, 18)[:] = np.eye(18)
    linear = orl.LinearFamily(features=orl.FeatureMap(phi), norm_bound=tabular.norm_bound)
    draw = np.random.default_rng(1)
    truth = tabular.members(draw, 1)[0]
    mdp = orl.FiniteMDP(transition=tabular.kernel(truth), reward=draw.uniform(size=(3, 2)), horizon=4)
    rows = sample_rows(tabular.features, mdp.known, truth, draw, 80)
    for theta in tabular.members(draw, 3):
        assert linear.contains(tabular.kernel(theta))
    designs = [design(family.features, mdp.known, rows)[0] for family in (tabular, linear)]
    np.testing.assert_allclose(designs[0], designs[1], atol=1e-12)
    # The finest partition without moves of its own is FeatureMap.tabular.
    plain = orl.FeatureMap.tabular(states=states, actions=actions)
    np.testing.assert_allclose(design(plain, mdp.known, rows)[0], designs[0], atol=1e-12)


def test_the_learner_is_that_of_plain_numpy_on_dense_features() -> None:
    family, mdp = river(2), RIVER.mdp
    phi = np.stack([family.features.kernel(unit) for unit in np.eye(family.size)], axis=-1)
    options: dict[str, Any] = {"norm_bound": family.norm_bound, "delta": 0.05, "replan": 0.0}
    uniforms = environment_uniforms(3, 30, mdp.horizon)[:, 1:]
    problem = (mdp.known.base_reward, mdp.kernel(), mdp.horizon, 0)
    expected = oracle.ucrl_vtr_lin(phi, *problem, episodes=30, uniforms=uniforms, **options)
    learner = orl.UCRLVTRLin(features=family.features, **options)
    result = orl.run(learner, mdp, episodes=30, seed=3, progress=False)
    np.testing.assert_allclose(result.regret, expected["regret"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.state.values, expected["values"], rtol=0, atol=1e-9)


BAD: dict[str, tuple[dict[str, Any], type[InvalidInput], str]] = {
    "no states": ({"partition": []}, ShapeError, "partition"),
    "blocks that are not numbers": ({"partition": [0.5, 1.0]}, ShapeError, "partition"),
    "no actions": ({"partition": [0, 1]}, FamilyError, "actions"),
    "moves of other states": ({"partition": [0, 1], "moves": np.zeros((3, 1, 1), int)}, ShapeError, "moves"),
    "a move to nowhere": ({"partition": [0, 1], "moves": np.full((2, 1, 1), 5)}, FamilyError, "moves"),
    "no move at all": ({"partition": [0, 1], "moves": np.full((2, 1, 1), -1)}, FamilyError, "moves"),
    "blocks with different moves": ({"partition": [0, 0], "moves": [[[0, 1]], [[0, -1]]]}, FamilyError, "moves"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    arguments, kind, field = BAD[name]
    with pytest.raises(kind) as caught:
        AggregationFamily(**arguments)
    assert caught.value.field == field


def test_a_kernel_that_is_not_one_is_not_contained() -> None:
    broken = RIVER.mdp.kernel().copy()
    broken[2, 1, 2] = np.nan
    assert not river(6).contains(broken)
    with pytest.raises(ShapeError, match="kernel"):
        river(6).contains(broken[:2])

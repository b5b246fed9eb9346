"""Ladders: nested, checked, and refused where they are not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import occamrl as orl
from occamrl.errors import FamilyError, NestingError, ShapeError
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing

STACK = np.random.default_rng(0).dirichlet(np.ones(3), size=(6, 3, 2))


def test_members_are_sorted_by_the_first_class_that_holds_them() -> None:
    order = [3, 0, 5, 1, 4, 2]
    ladder = orl.Ladder(
        [orl.FiniteFamily(STACK[[1]]), orl.FiniteFamily(STACK[[4, 1]]), orl.FiniteFamily(STACK[order] + 1e-12)]
    )
    assert ladder.sizes == [1, 2, 6]
    assert ladder.level.tolist() == [0, 1, 2, 2, 2, 2]
    np.testing.assert_allclose(ladder.family.kernel(0), STACK[1], atol=1e-9)
    np.testing.assert_allclose(ladder.family.kernel(1), STACK[4], atol=1e-9)
    np.testing.assert_allclose(ladder.prior, [1 / 3, 1 / 3, *[1 / 12] * 4])
    assert ladder.rung(2).size == 2
    assert ladder.rung(2).optimal_values(PROBLEM_KNOWN).base is not None  # solved once, for F_M


PROBLEM_KNOWN = orl.FiniteMDP(transition=STACK[4], reward=np.full((3, 2), 0.5), horizon=3).known


def test_a_ladder_that_is_not_nested_is_refused_with_the_member() -> None:
    with pytest.raises(NestingError, match="member 1 of class 1 is not in class 2") as caught:
        orl.Ladder([orl.FiniteFamily(STACK[:2]), orl.FiniteFamily(STACK[[0, 2, 3]])])
    assert caught.value.rungs == (1, 2)
    assert caught.value.member == 1
    with pytest.raises(NestingError, match="two equal classes"):
        orl.Ladder([orl.FiniteFamily(STACK[:2]), orl.FiniteFamily(STACK[[1, 0]])])


def test_bad_rungs_are_refused() -> None:
    with pytest.raises(FamilyError, match="empty ladder"):
        orl.Ladder([])
    with pytest.raises(FamilyError, match="family of kernels"):
        orl.Ladder([STACK])  # type: ignore[list-item]  # wrong on purpose
    for wrong in (None, orl.FiniteFamily(STACK), "ladder"):
        with pytest.raises(FamilyError, match="a list of families"):
            orl.Ladder(wrong)  # type: ignore[arg-type]  # wrong on purpose
    other = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 4, 2))
    with pytest.raises(ShapeError):
        orl.Ladder([orl.FiniteFamily(STACK), orl.FiniteFamily(other)])
    broken = STACK.copy()
    broken[2, 1, 1, 0] = np.nan
    with pytest.raises(FamilyError, match="not a finite number"):
        orl.Ladder([orl.FiniteFamily(STACK[:1]), orl.FiniteFamily(broken)])


def test_stacks_and_parameters_can_be_mixed() -> None:
    features = orl.FeatureMap([STACK[0], STACK[1]])
    mixtures = orl.FiniteFamily(parameters=[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], features=features)
    sparse = orl.FiniteFamily([sp.csr_array(STACK[1].reshape(6, 3))])
    ladder = orl.Ladder([sparse, mixtures])
    assert ladder.sizes == [1, 3]
    np.testing.assert_allclose(ladder.family.kernel(0), STACK[1])
    with pytest.raises(NestingError):
        orl.Ladder([orl.FiniteFamily(STACK[2:3]), mixtures])


def test_a_hundred_thousand_members_are_compared() -> None:
    problem = SparseLadder(states=4, actions=2, horizon=3, dimension=22, most=4, nonzero=1)
    features = orl.FeatureMap(problem.phi)
    assert problem.sizes == [1, 43, 883, 11523, 107283]
    some = np.random.default_rng(0).permutation(problem.sizes[-1])
    rungs = [problem.hypotheses[:43], problem.hypotheses[:11523], problem.hypotheses[some]]
    ladder = orl.Ladder([orl.FiniteFamily(parameters=rung, features=features) for rung in rungs])
    assert ladder.sizes == [43, 11523, 107283]
    assert ladder.class_of(problem.mdp) == 1


@pytest.mark.parametrize(
    ("problem", "sizes", "m"),
    [
        (SparseLadder(nonzero=2), [1, 17, 129, 577], 3),
        (PatchyIce(slip=(0.1, 0.0)), [3, 9, 81, 6561], 2),
        (PatchyIce(slip=(0.0, 0.1, 0.1, 0.0)), [3, 9, 81, 6561], 3),
        (Pricing(stock=2, prices=3, horizon=4, demand=(0.3, 0.9, 0.3)), [10, 18, 20, 64], 4),
    ],
)
def test_problems_bring_their_ladders(problem: object, sizes: list[int], m: int) -> None:
    ladder = orl.Ladder.of_problem(problem)
    assert ladder.sizes == sizes
    assert ladder.class_of(problem.mdp) == m  # type: ignore[attr-defined]  # a problem of its ladder


def test_frozen_lake_is_a_case_of_patchy_ice() -> None:
    gym = pytest.importorskip("gymnasium")
    table = gym.make("FrozenLake-v1", map_name="8x8", is_slippery=True).unwrapped.P
    lake = orl.FiniteMDP(outcomes=table, horizon=60)
    ours = PatchyIce(slip=(1.0 / 3.0,)).mdp
    np.testing.assert_allclose(ours.optimal_values[:, :64], lake.optimal_values[:, :64], atol=1e-12)

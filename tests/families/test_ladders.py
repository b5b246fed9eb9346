"""Ladders of classes of one kind or several: nested where it can be verified, refused with what shows it where not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import occamrl as orl
from occamrl.checks import design, sample_rows
from occamrl.errors import InvalidInput, NestingError
from occamrl.models.family import packed
from occamrl.models.linear import AggregationFamily
from occamrl.problems.classic import RiverZones
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
    wrong: list[tuple[Any, str]] = [([], "empty ladder"), ([STACK], "family of kernels"), (None, "a list of families")]
    for rungs, message in [*wrong, ([linear(), FINITE], "FiniteFamily"), ([FINITE, river(3)], "S=3")]:
        with pytest.raises(InvalidInput, match=message):
            orl.Ladder(rungs)


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


RIVER = RiverZones(states=6, horizon=5, zones=3)
DRAW = np.random.default_rng(0)
KERNELS = DRAW.dirichlet(np.ones(3), size=(4, 3, 2))
FEATURES = orl.FeatureMap(list(KERNELS))


def river(zones: Any) -> AggregationFamily:
    blocks = RIVER.partition(zones) if isinstance(zones, int) else zones
    return AggregationFamily(partition=blocks, moves=RIVER.moves)


def linear(**options: Any) -> orl.LinearFamily:
    return orl.LinearFamily(features=FEATURES, **{"norm_bound": 2.0, **options})


TABULAR = AggregationFamily.tabular(states=3, actions=2)
FINITE = orl.FiniteFamily(KERNELS[:2])
RIVER_KERNELS = np.stack([river(1).kernel(theta) for theta in river(1).members(np.random.default_rng(1), 3)])

NESTED: dict[str, list[Any]] = {
    "finite inside linear": [FINITE, linear()],
    "finite inside coordinates inside all, inside tabular": [FINITE, linear(coordinates=[0, 1]), linear(), TABULAR],
    "coordinates inside coordinates and norm": [linear(coordinates=[0]), linear(coordinates=[0, 1], norm_bound=3.0)],
    "partitions": [river(1), river(3), river(6)],
    "finite inside aggregation": [orl.FiniteFamily(RIVER_KERNELS), river(1), river(2), river(6)],
    "aggregation inside tabular": [river(2), river(6), AggregationFamily.tabular(states=6, actions=2)],
    "absolute aggregation inside tabular": [AggregationFamily(partition=[0, 0, 1], actions=2), TABULAR],
    "aggregation inside linear": [
        AggregationFamily(partition=[0, 0, 0], actions=2),
        orl.LinearFamily(features=orl.FeatureMap(np.eye(18).reshape(3, 2, 3, 18)), norm_bound=10.0),
    ],
    "other features of the same kernels": [
        orl.LinearFamily(features=orl.FeatureMap([KERNELS[0], KERNELS[1] - KERNELS[0]]), norm_bound=0.5),
        linear(norm_bound=2.0),
    ],
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_classes_make_a_ladder_whose_losses_fall(name: str) -> None:
    ladder: Any = orl.Ladder(NESTED[name])
    assert not ladder.finite
    assert len(ladder) == len(NESTED[name])
    top, draw = ladder.rungs[-1], np.random.default_rng(2)
    states, actions = top.features.states, top.features.actions
    known = orl.FiniteMDP(
        transition=np.full((states, actions, states), 1.0 / states), reward=np.full((states, actions), 0.5), horizon=4
    ).known
    truth = top.members(draw, 1)[0]
    rows = sample_rows(top.features, known, top.parameters_of(truth), draw, 60)
    x, y = design(top.features, known, rows)
    losses = [
        ladder.smallest_loss(m, packed(top.features.blocks, x.T @ x), x.T @ y) + y @ y
        for m in range(1, ladder.classes + 1)
    ]
    assert all(one >= other - 1e-9 for one, other in itertools.pairwise(losses))
    for m, rung in enumerate(ladder.rungs, start=1):
        for member in rung.members(draw, 5):  # each is a kernel of the largest class, and loses no less than the best
            kernel = rung.kernel(member)
            assert top.contains(kernel)
            own = float(((y - x @ top.member_of(kernel)) ** 2).sum())
            assert losses[m - 1] <= own + 1e-7


NOT_NESTED: dict[str, tuple[list[Any], int | None, str]] = {
    "a member outside the linear class": ([orl.FiniteFamily(KERNELS[1:3]), linear(coordinates=[0, 1])], 1, "member 1"),
    "a member that is too long": ([orl.FiniteFamily(KERNELS[:1]), linear(norm_bound=0.9)], 0, "member 0"),
    "partitions that cross": ([river([0, 0, 1, 1, 1, 1]), river([0, 0, 0, 1, 1, 2])], 0, "states 0 and 2"),
    "a coarser partition on top": ([river(3), river(1)], 0, "share a block"),
    "a move that is lost": (
        [river(6), AggregationFamily.tabular(states=6, actions=2, support=np.eye(6, dtype=bool)[:, None].repeat(2, 1))],
        0,
        "move 2",  # at the source, down and stay lead to the same state
    ),
    "norms that fall": ([linear(coordinates=[0, 1]), linear(norm_bound=1.0)], None, "the norm bound being 1"),
    "directions that are lost": ([linear(coordinates=[0, 3]), linear(coordinates=[0, 1, 2])], 1, "direction 1"),
    "equal partitions": ([river(3), river([5, 5, 2, 2, 9, 9])], None, "two equal classes"),
    "equal linear classes": ([linear(), linear()], None, "two equal classes"),
    "what cannot be verified": ([linear(), AggregationFamily(partition=[0, 0, 1], actions=2)], None, "verified"),
    "an infinite class below a finite one": ([TABULAR, FINITE, TABULAR], None, "verified"),
}


@pytest.mark.parametrize("name", NOT_NESTED)
def test_what_is_not_nested_is_refused_with_the_pair_and_what_shows_it(name: str) -> None:
    rungs, member, message = NOT_NESTED[name]
    with pytest.raises(NestingError, match=message) as caught:
        orl.Ladder(rungs)
    assert caught.value.rungs == (1, 2)
    assert caught.value.member == member

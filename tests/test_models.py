"""Feature maps, families, ladders and simulators, against plain sums and general optimisers."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import binom

from occamrl import bellman
from occamrl.arrays import Bools
from occamrl.errors import (
    FamilyError,
    FeatureError,
    InvalidInput,
    NestingError,
    ProbabilityError,
    ShapeError,
)
from occamrl.models.families import (
    AggregationFamily,
    CoverFamily,
    FiniteFamily,
    LinearFamily,
    ball_least_squares,
    level,
    losses,
    off_grid,
    simplex_least_squares,
)
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.models.simulators import (
    Simulate,
    Simulators,
    estimate_kernel,
    grid_reach,
    variation_errors,
)
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mdp import FiniteMDP, KernelLike
from occamrl.problems.mixtures import SparseLadder
from occamrl.problems.operations import Pricing
from occamrl.protocols import Floats, Ints, Outcomes

S = 3
A = 2
STACK = np.random.default_rng(0).dirichlet(np.ones(S), size=(6, S, A))
CUT = np.where(STACK < 0.25, 0.0, STACK)
SPARSE = CUT / CUT.sum(axis=3, keepdims=True)
UNIFORM = np.full((S, A, S), 1.0 / S)
RIVER = 6  # states of a chain on which one swims left (sure) or right


def flat(kernel: Floats) -> sp.csr_array:
    return sp.csr_array(np.reshape(kernel, (-1, kernel.shape[-1])))


def problem(kernel: Floats, reward: Floats | None = None, horizon: int = 4) -> FiniteMDP:
    if reward is None:
        reward = np.random.default_rng(5).random(kernel.shape[-3:-1])
    return FiniteMDP(transition=kernel, reward=reward, horizon=horizon)


def river_moves() -> Ints:
    """Return where moves lead [S, 2, 3]: down, stay, up; swimming left has one move, down."""
    moves = np.full((RIVER, 2, 3), -1)
    for s in range(RIVER):
        below = max(s - 1, 0)
        moves[s, 0, 0] = below
        moves[s, 1] = below, s, min(s + 1, RIVER - 1)
    return moves


def river(zones: int | list[int]) -> AggregationFamily:
    """Return the class with one current for each zone; of a number, zones of equal length."""
    if isinstance(zones, int):
        zones = [s * zones // RIVER for s in range(RIVER)]
    return AggregationFamily(partition=zones, moves=river_moves())


def linear(**options: Any) -> LinearFamily:
    return LinearFamily(**{"features": FeatureMap(list(STACK[:4])), "norm_bound": 2.0, **options})


def sums_of_rows(
    features: FeatureMap, theta: Floats, count: int = 60, seed: int = 2
) -> tuple[Floats, Floats, float]:
    """Return sum x x^T, sum y x and sum y^2 of rows drawn under theta, with values at random."""
    draw = np.random.default_rng(seed)
    probability = features.probabilities(theta).clip(0.0)
    n = features.width
    gram = np.zeros((features.groups, n, n))
    xy = np.zeros((features.groups, n))
    yy = 0.0
    for _ in range(count):
        pair = int(draw.integers(features.group.size))
        values = draw.random(features.states) - 0.5
        first, last = features.outcomes.start[pair : pair + 2]
        o = first + draw.choice(last - first, p=probability[first:last])
        x = features.phi_v(values)[pair]
        y = values[features.outcomes.next_state[o]]
        gram[features.group[pair]] += np.outer(x, x)
        xy[features.group[pair]] += y * x
        yy += float(y * y)
    return gram, xy, yy


# ----------------------------------------------------------------------------------------- features
def test_every_way_to_state_features_is_the_same_linear_map() -> None:
    draw = np.random.default_rng(1)
    theta = draw.normal(size=6)
    values = draw.random(S)
    kernel = np.tensordot(theta, SPARSE, axes=1)
    mean = np.einsum("jsat,t->saj", SPARSE, values).reshape(S * A, 6)
    maps = [
        FeatureMap(np.moveaxis(SPARSE, 0, -1)),
        FeatureMap(list(SPARSE)),
        FeatureMap(list(map(flat, SPARSE))),
        FeatureMap([SPARSE[0], *map(flat, SPARSE[1:])]),
    ]
    for features in maps:
        assert (features.dimension, features.groups, features.width) == (6, 1, 6)
        np.testing.assert_allclose(features.kernel(theta), kernel, atol=1e-14)
        np.testing.assert_allclose(features.phi_v(values), mean, atol=1e-14)
        np.testing.assert_allclose(features.sums, 1.0)
        assert features.fingerprint == maps[0].fingerprint
    assert maps[0].outcomes.next_state.size == (SPARSE > 0).any(axis=0).sum()


def sparse_kernels(states: int, pattern: int) -> list[sp.csr_array]:
    """Return three kernels with two actions and four successors, each with a pattern of its own.

    The first ``pattern`` of them share one.
    """
    draw = np.random.default_rng(states)
    kernels = []
    target = draw.integers(states, size=(2 * states, 4))
    for j in range(3):
        if j >= pattern:
            target = draw.integers(states, size=(2 * states, 4))
        law = draw.dirichlet(np.ones(4), size=2 * states)
        entries = (law.ravel(), target.ravel(), np.arange(2 * states + 1) * 4)
        kernels.append(sp.csr_array(entries, shape=(2 * states, states)))
    return kernels


@pytest.mark.parametrize("pattern", [1, 2, 3])
def test_large_sparse_maps_are_sums_over_outcomes(pattern: int) -> None:
    """So large that no dense product pays; with one pattern the map is an array, else csr."""
    states = 400
    kernels = sparse_kernels(states, pattern)
    features = FeatureMap(kernels)
    values = np.random.default_rng(0).random(states)
    expected = np.stack([kernel @ values for kernel in kernels], axis=1)
    np.testing.assert_allclose(features.phi_v(values), expected, atol=1e-14)
    np.testing.assert_allclose(features.sums, 1.0)
    theta = [0.2, 0.5, 0.3]
    mixed = np.tensordot(theta, np.stack([kernel.toarray() for kernel in kernels]), axes=1)
    np.testing.assert_allclose(features.kernel(theta).ravel(), mixed.ravel(), atol=1e-15)


@pytest.mark.parametrize("bonus", [0.0, 1.0])
def test_ranges_of_pairs_with_as_many_outcomes_are_those_of_each_pair(bonus: float) -> None:
    """Above 2^14 outcomes they are taken block by block; one pair more has another number."""
    draw = np.random.default_rng(0)
    for counts in (np.full(5_000, 4), np.append(np.full(5_000, 4), 1)):
        start = np.append(0, np.cumsum(counts))
        next_state = draw.integers(50, size=int(start[-1]))
        outcomes = Outcomes(start, next_state, bonus * draw.random(next_state.size))
        values = draw.random(50)
        target = values[next_state] + outcomes.bonus
        low, high = bellman.ranges(outcomes, values)
        np.testing.assert_array_equal(low, np.minimum.reduceat(target, start[:-1]))
        np.testing.assert_array_equal(high, np.maximum.reduceat(target, start[:-1]))


@pytest.mark.parametrize("support", [None, STACK[0] > 0.2])
def test_one_hot_maps_are_kernels_themselves(support: Bools | None) -> None:
    features = FeatureMap.tabular(states=S, actions=A, support=support)
    draw = np.random.default_rng(1)
    possible = np.ones((S, A, S), bool) if support is None else support
    kernel = np.where(possible, draw.random((S, A, S)), 0.0)
    values = draw.random(S)
    theta = np.zeros((features.groups, features.width))
    theta.ravel()[features.flat_index] = kernel[possible]
    assert features.dimension == possible.sum()
    np.testing.assert_array_equal(features.kernel(theta), kernel)
    x = features.phi_v(values)
    np.testing.assert_allclose(
        (x * theta[features.group]).sum(axis=1), (kernel @ values).ravel(), atol=1e-14
    )


def test_aggregated_moves_share_their_law_and_not_their_successors() -> None:
    family = river(2)
    features = family.features
    values = np.random.default_rng(1).random(6)
    theta = family.members(np.random.default_rng(0), 1)[0]
    expected = np.zeros((6, 2, 6))
    for s, a in itertools.product(range(6), range(2)):
        law = iter(theta[features.group[s * 2 + a]])
        for target in river_moves()[s, a]:
            if target >= 0:
                expected[s, a, target] += next(law)
    np.testing.assert_allclose(features.kernel(theta), expected, atol=1e-15)
    x = features.phi_v(values)
    np.testing.assert_allclose(
        (x * theta[features.group]).sum(axis=1), (expected @ values).ravel(), atol=1e-14
    )
    assert features.groups == 4
    assert features.dimension == features.sizes.sum()


def test_restricting_takes_coordinates_in_the_order_given_and_keeps_the_outcomes() -> None:
    for features in (FeatureMap(list(SPARSE)), FeatureMap(list(map(flat, SPARSE)))):
        part = features.restrict([4, 1])
        np.testing.assert_allclose(
            part.kernel([0.3, 0.7]), 0.3 * SPARSE[4] + 0.7 * SPARSE[1], atol=1e-15
        )
        assert part.outcomes.next_state.size == features.outcomes.next_state.size


@pytest.mark.parametrize("sparse", [False, True])
def test_signed_features_that_do_describe_a_kernel_are_accepted(sparse: bool) -> None:
    """phi_0 = (2, -1) is no kernel; with phi_1 = (-1, 1) beside it theta = (1, 1) makes one."""
    columns = [np.array([[2.0, -1.0], [0.5, 0.5]]), np.array([[-1.0, 1.0], [0.0, 0.0]])]
    phi: list[KernelLike] = [column.reshape(2, 1, 2) for column in columns]
    if sparse:
        phi = [sp.csr_array(column) for column in columns]
    np.testing.assert_allclose(FeatureMap(phi).kernel([1.0, 1.0])[:, 0], [[1.0, 0.0], [0.5, 0.5]])


def test_bonuses_are_the_rewards_of_the_problem() -> None:
    reward = np.random.default_rng(3).integers(0, 9, size=(S, A, S)) / 8.0
    known = problem(STACK[0], reward).known
    for features in (FeatureMap(list(STACK)), FeatureMap.tabular(states=S, actions=A)):
        outcomes = features.attach(known)
        whole = known.base_reward.ravel()[outcomes.pair] + outcomes.bonus
        np.testing.assert_array_equal(
            whole, reward.reshape(S * A, S)[outcomes.pair, outcomes.next_state]
        )
        assert features.attach(known) is outcomes
        again = pickle.loads(pickle.dumps(features))  # noqa: S301  # our own
        assert again.fingerprint == features.fingerprint
        np.testing.assert_array_equal(copy.deepcopy(features).attach(known).bonus, outcomes.bonus)


def test_rewards_that_the_problem_does_not_know_are_asked_for() -> None:
    """Features may only lead where a table of outcomes says what it pays, and says it once."""
    known = FiniteMDP(
        outcomes=[[[(1.0, 0, 0.5)]], [[(0.5, 0, 0.0), (0.5, 0, 1.0)]]], horizon=2
    ).known
    support = [[[True, False]], [[True, False]]]
    cases = ((None, "no known", (0, 0, 1)), (support, "several", (1, 0, 0)))
    for possible, message, index in cases:
        with pytest.raises(FeatureError, match=message) as caught:
            FeatureMap.tabular(states=2, actions=1, support=possible).attach(known)
        assert caught.value.index == index


def test_outcomes_with_rewards_mix_as_tables_do() -> None:
    """(s, a, s') does not fix the reward: each simulator pays 0 or 1 for the same step."""
    tables = [[[[(1.0 - p, 0, 0.0), (p, 0, 1.0)]]] for p in (0.2, 0.6)]
    mdps = [FiniteMDP(outcomes=table, horizon=3) for table in tables]
    features = FeatureMap.of_simulators(mdps)
    family = FiniteFamily(parameters=np.eye(2), features=features)
    mixed = FiniteFamily(parameters=[[0.5, 0.5]], features=features)
    for kernels, member, worth in ((family, 0, 0.6), (family, 1, 1.8), (mixed, 0, 1.2)):
        values, _ = bellman.solve(kernels.kernels_of(member, mdps[0].known), 1, 3)
        np.testing.assert_allclose(values[0], worth)
    ladder = Ladder([family.take([0]), family])
    assert [ladder.class_of(mdp) for mdp in mdps] == [1, 2]
    assert (
        ladder.class_of(FiniteMDP(outcomes=[[[(0.5, 0, 0.0), (0.5, 0, 1.0)]]], horizon=3)) is None
    )


# -------------------------------------------------------------------------------------------- lists
def test_lists_are_the_same_dense_or_sparse() -> None:
    lists = [
        FiniteFamily(SPARSE),
        FiniteFamily(list(SPARSE)),
        FiniteFamily(list(map(flat, SPARSE))),
    ]
    for family in lists:
        assert family.fingerprint == lists[0].fingerprint
        assert list(map(family.find, SPARSE)) == list(range(6))
        assert [family.find(flat(kernel)) for kernel in SPARSE] == list(range(6))
        assert family.find(UNIFORM) is None
        for member in range(6):
            np.testing.assert_array_equal(family.kernel(member), SPARSE[member])


@pytest.mark.parametrize("reward", [None, np.random.default_rng(3).random((S, A, S))])
def test_probabilities_values_and_losses_of_members_are_those_of_each_alone(
    reward: Floats | None,
) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=5)
    features = FeatureMap(list(STACK[:4]))
    for family in (
        FiniteFamily(parameters=weights, features=features),
        FiniteFamily(STACK),
        FiniteFamily(SPARSE),
    ):
        gram, xy, yy = sums_of_rows(family.features, family.theta[1])
        known = problem(STACK[0], reward).known
        of_members = losses(family.theta, gram, xy)
        for member in range(family.size):
            alone = problem(family.kernel(member), reward)
            values, _ = bellman.solve(family.kernels_of(member, known), S, known.horizon)
            np.testing.assert_allclose(values, alone.optimal_values, atol=1e-12)
            theta = family.theta[member]
            probability = family.probability(slice(member, member + 1))[0]
            np.testing.assert_allclose(
                probability, family.features.probabilities(theta), atol=1e-15
            )
            loss = sum(t @ g @ t - 2.0 * t @ b for t, g, b in zip(theta, gram, xy, strict=True))
            assert of_members[member] == pytest.approx(loss, abs=1e-10)
            assert of_members[member] + yy > 0.0
        assert family.smallest_loss(gram, xy) == of_members.min()


def test_a_hundred_thousand_members_are_kept_as_parameters_and_found() -> None:
    draw = np.random.default_rng(0)
    features = FeatureMap(list(draw.dirichlet(np.ones(8), size=(16, 8, 2))))
    family = FiniteFamily(parameters=draw.dirichlet(np.ones(16), size=122_000), features=features)
    assert family.theta.nbytes == 122_000 * 16 * 8
    assert family.find(family.kernel(77_777)) == 77_777
    ladder = Ladder([family.take(np.array([5, 99_999])), family.take(draw.permutation(122_000))])
    assert ladder.sizes == [2, 122_000]
    assert ladder.class_of(problem(family.kernel(99_999))) == 1


# ------------------------------------------------------------------------------------------- covers
def slippery(p: Sequence[float] | Floats) -> Floats:
    slip, drift = p
    return np.array(
        [[[1 - slip, slip], [slip, 1 - slip]], [[drift, 1 - drift], [1 - drift, drift]]]
    )


def test_a_cover_has_a_grid_and_a_radius() -> None:
    family = CoverFamily(slippery, low=[0.0, 0.1], high=[0.4, 0.3], step=[0.2, 0.1])
    assert family.size == 9
    np.testing.assert_allclose(family.kernel(4), slippery([0.2, 0.2]))
    assert family.reach == pytest.approx(
        0.3
    )  # half of 2 * 0.2 and half of 2 * 0.1, one for each parameter
    draw = np.random.default_rng(0)
    for point in draw.uniform([0.0, 0.1], [0.4, 0.3], size=(50, 2)):
        gaps = [np.abs(family.kernel(i) - slippery(point)).sum(axis=2).max() for i in range(9)]
        assert min(gaps) <= family.reach


def test_covers_make_ladders_that_keep_their_reach() -> None:
    small = CoverFamily(slippery, low=[0.0, 0.2], high=[0.5, 0.2], step=0.1)
    large = CoverFamily(slippery, low=[0.0, 0.0], high=[0.5, 0.5], step=0.1)
    ladder = Ladder([small, large])
    assert ladder.sizes == [6, 36]
    assert ladder.reach == pytest.approx([0.1, 0.2])
    assert [ladder.family_of(m).reach for m in (1, 2)] == ladder.reach
    assert (small.reach, large.reach) == pytest.approx((0.1, 0.2))
    with pytest.raises(NestingError):
        Ladder([small, CoverFamily(slippery, low=[0.0, 0.0], high=[0.4, 0.5], step=0.1)])


def test_outcomes_that_no_point_of_the_grid_allows_are_listed() -> None:
    """Between its points 0 and 1 state 0 may lead to state 2, as it does at neither of them."""

    def rare(p: Floats) -> Floats:
        often = 0.08 * p[0] * (1 - p[0])
        return np.array([[[0.5, 0.5 - often, often]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])

    for reach, size in ((0.0, 4), (0.1, 5)):
        assert (
            CoverFamily(rare, low=[0.0], high=[1.0], step=1.0, reach=reach).features.dimension
            == size
        )


def test_the_term_of_a_truth_off_the_grid_is_a_supermartingale_and_a_bound() -> None:
    """With y = 1/2 or -1/2: exp(2 (L(P0) - L(P*)) - 4 d^2) has a mean <= 1, and 2 |d| bounds."""
    for mean, other in itertools.product(np.linspace(-0.5, 0.5, 21), repeat=2):
        d = other - mean
        up = mean + 0.5
        change = {y: (y - mean - d) ** 2 - (y - mean) ** 2 for y in (0.5, 0.1, -0.5)}
        mean_of = up * math.exp(2 * change[0.5] - 4 * d * d) + (1 - up) * math.exp(
            2 * change[-0.5] - 4 * d * d
        )
        assert mean_of <= 1 + 1e-9
        assert max(change.values()) <= 2 * abs(d) + 1e-12
    assert (off_grid(0.0, 1e6, 0.1), off_grid(0.1, 0.0, 0.1)) == (0.0, 0.0)
    assert off_grid(0.1, 5.0, 0.1) == pytest.approx(0.5)  # epsilon n
    assert off_grid(0.1, 1000.0, 0.1) == pytest.approx(
        5.0 + 0.5 * math.log(20.0)
    )  # epsilon^2 n/2 and the noise
    assert (level(0.0, 0.1), level(0.2, 0.1)) == (0.1, 0.05)


# ------------------------------------------------------------------ linear classes and aggregations
def test_least_squares_on_the_simplex_and_in_the_ball_meet_the_optimality_conditions() -> None:
    for seed in range(40):
        draw = np.random.default_rng(seed)
        count = int(draw.integers(1, 12))
        x = draw.normal(size=(count, 4))
        y = draw.normal(size=count)
        p = simplex_least_squares(x, y)
        assert p.min() >= 0.0
        assert p.sum() == pytest.approx(1.0)
        slope = 2.0 * x.T @ (x @ p - y)  # no direction towards a vertex goes down
        assert slope.min() >= slope @ p - 1e-8 * max(1.0, float(np.abs(slope).max()))
        radius = float(draw.uniform(0.1, 2.0))
        eta = ball_least_squares(x.T @ x, x.T @ y, radius)
        assert np.linalg.norm(eta) <= radius * (1 + 1e-9)
        slope = (
            2.0 * x.T @ (x @ eta - y)
        )  # the best point of the ball along the slope is eta itself
        assert (
            slope @ eta <= -radius * np.linalg.norm(slope) + 1e-6 or np.linalg.norm(slope) <= 1e-6
        )


FAMILIES: dict[str, Any] = {
    "list": FiniteFamily(STACK),
    "all coordinates": linear(norm_bound=1.5),
    "two coordinates": linear(norm_bound=1.0, coordinates=[0, 2]),
    "relative moves": river(2),
    "absolute moves": AggregationFamily(partition=[0, 1, 1], actions=2),
    "tabular": AggregationFamily.tabular(states=3, actions=2),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_members_are_kernels_that_the_family_finds(name: str) -> None:
    family = FAMILIES[name]
    for member in family.members(np.random.default_rng(0), 5):
        kernel = family.kernel(member)
        np.testing.assert_allclose(family.kernel(family.find(kernel)), kernel, atol=1e-8)
        assert family.contains(flat(kernel))
        broken = kernel.copy()
        broken[0, 0, 0] += 1e-3
        assert not family.contains(broken)
        broken[0, 0, 0] = np.nan
        assert not family.contains(broken)
    if name != "list":
        scales = [family.log_covering_number(alpha) for alpha in (0.01, 0.1, 0.5, 2.0, 100.0)]
        assert scales == sorted(scales, reverse=True)
        assert scales[-1] == 0.0


def least(gram: Floats, xy: Floats, start: Floats, **options: Any) -> float:
    """Return the smallest t^T gram t - 2 xy^T t that a general optimiser finds."""

    def loss(t: Floats) -> float:
        return float(t @ gram @ t - 2 * xy @ t)

    return float(minimize(loss, start, method="SLSQP", tol=1e-14, **options).fun)


@pytest.mark.parametrize("name", ["all coordinates", "two coordinates"])
def test_the_smallest_loss_of_a_linear_class_is_that_of_a_general_optimiser(name: str) -> None:
    family: LinearFamily = FAMILIES[name]
    theta = family.members(np.random.default_rng(0), 1)[0]
    gram, xy, _ = sums_of_rows(family.own_features, theta[family.coordinates], count=12)
    inside = [{"type": "ineq", "fun": lambda eta: family.norm_bound**2 - eta @ eta}]
    best = least(gram[0], xy[0], np.zeros(family.size), constraints=inside)
    assert family.smallest_loss(gram, xy) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("name", ["relative moves", "absolute moves"])
def test_the_smallest_loss_of_an_aggregation_is_that_of_a_general_optimiser(name: str) -> None:
    family: AggregationFamily = FAMILIES[name]
    gram, xy, _ = sums_of_rows(
        family.features, family.members(np.random.default_rng(3), 1)[0], count=200
    )
    sums_to_one = [{"type": "eq", "fun": lambda p: p.sum() - 1.0}]
    best = 0.0
    for g, n in enumerate(family.features.sizes):
        start = np.full(n, 1.0 / n)
        limits: Any = {"bounds": [(0.0, 1.0)] * n, "constraints": sums_to_one}
        best += least(gram[g, :n, :n], xy[g, :n], start, **limits)
    assert family.smallest_loss(gram, xy) == pytest.approx(best, abs=1e-6)


def test_a_kernel_of_three_zones_is_in_the_partitions_that_refine_them() -> None:
    kernel = np.zeros((RIVER, 2, RIVER))
    currents = np.random.default_rng(0).dirichlet(np.ones(3), size=3)
    for s in range(RIVER):
        kernel[s, 0, river_moves()[s, 0, 0]] = 1.0
        np.add.at(kernel[s, 1], river_moves()[s, 1], currents[s // 2])
    assert [river(zones).contains(kernel) for zones in (1, 2, 3, 6)] == [False, False, True, True]
    ladder = Ladder([river(zones) for zones in (1, 3, 6)])
    assert ladder.class_of(problem(kernel)) == 2


def test_absolute_moves_have_one_law_of_successors_per_block() -> None:
    law = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3))
    family = AggregationFamily(partition=[7, 3, 3, 7], actions=3)
    assert family.contains(law[[1, 0, 0, 1]])
    assert not family.contains(law[[1, 0, 1, 1]])


# ------------------------------------------------------------------------------------------- errors
MAP = FeatureMap([UNIFORM])
HEAVY = UNIFORM * np.array([1.0, 2.0])[None, :, None]  # sums that no theta makes one
OTHER = np.full((4, A, 4), 0.25)
SIMULATOR = problem(OTHER)
PER_STEP = problem(np.stack([UNIFORM] * 2), horizon=2)


def changed(
    index: tuple[int, ...], value: float | list[float], array: NDArray[Any] = UNIFORM
) -> NDArray[Any]:
    copied = np.array(array)
    copied[index] = value
    return copied


Mistake = tuple[type[InvalidInput], str, tuple[int, ...] | None, Callable[[], object]]
BAD: dict[str, Mistake] = {
    "three axes": (ShapeError, "phi", None, lambda: FeatureMap(UNIFORM)),
    "sparse of two sizes": (
        ShapeError,
        "phi",
        (1,),
        lambda: FeatureMap([flat(UNIFORM), flat(OTHER)]),
    ),
    "sparse of no size": (
        ShapeError,
        "phi",
        (0,),
        lambda: FeatureMap([sp.csr_array(np.ones((4, 3)))]),
    ),
    "no number": (
        FeatureError,
        "phi",
        (2, 1, 0, 0),
        lambda: FeatureMap([changed((2, 1, 0), np.nan)]),
    ),
    "sparse, no number": (
        FeatureError,
        "phi",
        (2, 1, 0, 0),
        lambda: FeatureMap([flat(changed((2, 1, 0), np.inf))]),
    ),
    "no way out": (FeatureError, "phi", (2,), lambda: FeatureMap([changed((1, 0), 0.0)])),
    "no sum": (FeatureError, "phi", (0, 0), lambda: FeatureMap([HEAVY])),
    "coordinates": (ShapeError, "coordinates", None, lambda: MAP.restrict([0, 0])),
    "groups": (
        FeatureError,
        "coordinates",
        None,
        lambda: FeatureMap.tabular(states=S, actions=A).restrict([0]),
    ),
    "theta": (ShapeError, "theta", None, lambda: MAP.kernel([1.0, 2.0])),
    "simulators": (
        ShapeError,
        "simulators",
        (1,),
        lambda: FeatureMap.of_simulators([problem(UNIFORM), SIMULATOR]),
    ),
    "other steps": (
        ShapeError,
        "simulators",
        (0,),
        lambda: FeatureMap.of_simulators([problem(UNIFORM, horizon=5), PER_STEP]),
    ),
    "no member": (ShapeError, "kernels", None, lambda: FiniteFamily([])),
    "one kernel": (ShapeError, "kernels", None, lambda: FiniteFamily(UNIFORM)),
    "a sum": (
        FamilyError,
        "kernels",
        (1, 2, 1),
        lambda: FiniteFamily([UNIFORM, changed((2, 1, 0), 0.2)]),
    ),
    "a sign": (
        FamilyError,
        "kernels",
        (1, 0, 1),
        lambda: FiniteFamily([UNIFORM, changed((0, 1), [1.5, -0.5, 0.0])]),
    ),
    "nan": (
        FamilyError,
        "kernels",
        (1, 1, 0),
        lambda: FiniteFamily([UNIFORM, changed((1, 0, 1), np.nan)]),
    ),
    "both": (FamilyError, "kernels", None, lambda: FiniteFamily(parameters=[[1.0]])),
    "parameters": (
        ShapeError,
        "parameters",
        None,
        lambda: FiniteFamily(parameters=np.ones((4, 2)), features=MAP),
    ),
    "weights": (
        FamilyError,
        "parameters",
        (1, 0, 0),
        lambda: FiniteFamily(parameters=[[1.0], [0.9]], features=MAP),
    ),
    "box": (
        InvalidInput,
        "low, high",
        None,
        lambda: CoverFamily(slippery, low=[0.05, 0.0], high=[0.2, 0.2], step=0.1),
    ),
    "step": (
        InvalidInput,
        "step",
        None,
        lambda: CoverFamily(slippery, low=[0.0, 0.0], high=[1.0, 1.0], step=0.0),
    ),
    "grid": (
        FamilyError,
        "step",
        None,
        lambda: CoverFamily(slippery, low=[0.0], high=[1.0], step=1e-9),
    ),
    "tabular": (
        FamilyError,
        "features",
        None,
        lambda: linear(features=FeatureMap.tabular(states=S, actions=A)),
    ),
    "actions": (FamilyError, "actions", None, lambda: AggregationFamily(partition=[0, 1])),
    "nowhere": (
        FeatureError,
        "moves",
        (0, 0, 0),
        lambda: AggregationFamily(partition=[0], moves=[[[5]]]),
    ),
    "no move": (
        FeatureError,
        "moves",
        (0, 0),
        lambda: AggregationFamily(partition=[0], moves=[[[-1]]]),
    ),
    "moves": (
        FeatureError,
        "moves",
        (1, 0),
        lambda: AggregationFamily(partition=[0, 0], moves=[[[0, 1]], [[0, -1]]]),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_place(name: str) -> None:
    error, field, index, make = BAD[name]
    with pytest.raises(error) as caught:
        make()
    assert (caught.value.field, caught.value.index) == (field, index)


# ------------------------------------------------------------------------------------------ ladders
def test_members_are_sorted_by_the_first_class_that_holds_them() -> None:
    lists = [
        FiniteFamily(STACK[[1]]),
        FiniteFamily(STACK[[4, 1]]),
        FiniteFamily(STACK[[3, 0, 5, 1, 4, 2]] + 1e-12),
    ]
    ladder = Ladder(lists, names=["one", "two", "all"])
    assert (ladder.sizes, ladder.names, ladder.classes) == ([1, 2, 6], ("one", "two", "all"), 3)
    assert ladder.level.tolist() == [0, 1, 2, 2, 2, 2]
    np.testing.assert_allclose(ladder.family.kernel(1), STACK[4], atol=1e-9)
    np.testing.assert_allclose(ladder.prior, [1 / 3, 1 / 3, *[1 / 12] * 4])


def test_the_class_of_a_problem_with_a_kernel_per_step_holds_all_of_them() -> None:
    ladder = Ladder([FiniteFamily(STACK[:2]), FiniteFamily(STACK[:4])])
    for steps, expected in (([0, 0], 1), ([0, 1], 1), ([0, 3], 2), ([0, 5], None)):
        assert ladder.class_of(problem(STACK[steps], horizon=2)) == expected
    classes = Ladder([linear(coordinates=[0]), linear(coordinates=[0, 1]), linear()])
    assert [
        classes.class_of(problem(STACK[steps], horizon=2)) for steps in ([0, 0], [1, 0], [2, 0])
    ] == [1, 2, 3]


def test_stacks_and_parameters_can_be_mixed() -> None:
    mixtures = FiniteFamily(
        parameters=[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], features=FeatureMap(list(STACK[:2]))
    )
    ladder = Ladder([FiniteFamily([flat(STACK[1])]), mixtures])
    assert ladder.sizes == [1, 3]
    np.testing.assert_allclose(ladder.family.kernel(0), STACK[1])
    with pytest.raises(NestingError):
        Ladder([FiniteFamily(STACK[2:3]), mixtures])


@pytest.mark.parametrize(
    ("given", "sizes", "m"),
    [
        (SparseLadder(nonzero=2), [1, 17, 129, 577], 3),
        (PatchyIce(slip=(0.1, 0.0)), [3, 9, 81, 6561], 2),
        (Pricing(stock=2, prices=3, horizon=4, demand=(0.3, 0.9, 0.3)), [10, 18, 20, 64], 4),
    ],
)
def test_problems_bring_their_ladders(given: Any, sizes: list[int], m: int) -> None:
    ladder = Ladder.of_problem(given)
    assert ladder.sizes == sizes
    assert ladder.class_of(given.mdp) == m


NESTED: dict[str, list[Any]] = {
    "coordinates and norms": [
        linear(coordinates=[0]),
        linear(coordinates=[0, 1], norm_bound=3),
        linear(norm_bound=3),
    ],
    "some coordinates": [linear(coordinates=[2]), linear(coordinates=[3, 2])],
    "partitions": [river(1), river(3), river(6)],
    "relative moves in tabular": [
        river(2),
        river(6),
        AggregationFamily.tabular(states=6, actions=2),
    ],
    "absolute moves in tabular": [
        AggregationFamily(partition=[0, 0, 1], actions=2),
        FAMILIES["tabular"],
    ],
}


@pytest.mark.parametrize("name", NESTED)
def test_statistics_of_the_largest_class_give_those_of_every_class(name: str) -> None:
    """A member has one loss in its own class and in the largest; the smallest falls by class."""
    ladder = Ladder(NESTED[name])
    draw = np.random.default_rng(2)
    top = ladder.family_of(ladder.classes)
    gram, xy, _ = sums_of_rows(top.features, top.features.as_theta(top.members(draw, 1)[0]))
    smallest = [ladder.smallest_loss(m, gram, xy) for m in range(1, ladder.classes + 1)]
    assert all(one >= other - 1e-9 for one, other in itertools.pairwise(smallest))
    for m, family in enumerate(ladder.families, start=1):
        sums = ladder.statistics(m, gram, xy)
        for member in family.members(draw, 5):
            theta = family.features.as_theta(member)
            if isinstance(family, LinearFamily):
                theta = theta[:, family.coordinates]
            in_top = top.features.as_theta(top.find(family.kernel(member)))
            loss = float(losses(theta[None], *sums)[0])
            assert loss == pytest.approx(float(losses(in_top[None], gram, xy)[0]), abs=1e-7)
            assert smallest[m - 1] <= loss + 1e-7


def tabular_loops() -> AggregationFamily:
    return AggregationFamily(
        partition=np.arange(6), moves=np.where(np.eye(6), np.arange(6), -1)[:, None].repeat(2, 1)
    )


NOT_NESTED: dict[str, tuple[list[Any], int | None]] = {
    "a member that is missing": ([FiniteFamily(STACK[:2]), FiniteFamily(STACK[[0, 2, 3]])], 1),
    "equal lists": ([FiniteFamily(STACK[:2]), FiniteFamily(STACK[[1, 0]])], None),
    "partitions that cross": ([river([0, 0, 1, 1, 1, 1]), river([0, 0, 0, 1, 1, 2])], 0),
    "a coarser partition on top": ([river(3), river(1)], 0),
    "a move that is lost": ([river(6), tabular_loops()], 0),
    "norms that fall": ([linear(coordinates=[0, 1]), linear(norm_bound=1.0)], None),
    "directions that are lost": ([linear(coordinates=[0, 3]), linear(coordinates=[0, 1, 2])], 1),
    "other features": ([linear(), linear(features=FeatureMap(list(STACK)))], None),
    "equal partitions": ([river(3), river([5, 5, 2, 2, 9, 9])], None),
    "equal linear classes": ([linear(), linear()], None),
    "what cannot be verified": (
        [linear(), AggregationFamily(partition=[0, 0, 1], actions=2)],
        None,
    ),
}


@pytest.mark.parametrize("name", NOT_NESTED)
def test_what_is_not_nested_is_refused_with_the_pair_and_what_shows_it(name: str) -> None:
    families, member = NOT_NESTED[name]
    with pytest.raises(NestingError) as caught:
        Ladder(families)
    shown = () if member is None else (member,)
    assert caught.value.index == (1, 2, *shown)


def test_lists_and_linear_classes_do_not_mix() -> None:
    wrong: list[Any] = [
        [FAMILIES["list"], linear()],
        [linear(), FAMILIES["list"]],
        [],
        [STACK],
        [linear(), river(2)],
    ]
    for families in wrong:
        with pytest.raises(InvalidInput):
            Ladder(families)
    with pytest.raises(FamilyError, match="names"):
        Ladder([FAMILIES["list"]], names=["a", "b"])


# --------------------------------------------------------------------------------------- simulators
def drawing(kernel: Floats) -> Simulate:
    """Return a simulator of a kernel that can only be called."""
    ends = kernel.cumsum(axis=2)
    return lambda s, a, rng: int(np.searchsorted(ends[s, a][:-1], rng.random(), side="right"))


def test_a_simulator_is_the_same_however_it_is_given() -> None:
    sims = Simulators([STACK[0], flat(STACK[1]), STACK[2]], names=["a", "b", "c"])
    assert (sims.states, sims.actions, len(sims), sims.error(0.05)) == (S, A, 3, 0.0)
    for j in range(3):
        np.testing.assert_allclose(sims.features.kernel(np.eye(3)[j]), STACK[j], atol=1e-15)
    assert sims.widen_mixture(episodes=10, horizon=3, delta=0.1)["delta"] == 0.1


def test_an_estimate_is_made_of_frequencies_at_addresses_and_its_error_shrinks() -> None:
    errors = []
    for draws in (100, 1_600):
        sims = Simulators([STACK[0], drawing(STACK[0])], draws=draws, seed=3)
        assert sims.estimated == (1,)
        distance = 0.5 * np.abs(sims.features.kernel([0.0, 1.0]) - STACK[0]).sum(axis=2).max()
        errors.append(sims.error(0.01))
        assert distance <= errors[-1]
    assert errors[1] == pytest.approx(errors[0] / 4.0, rel=0.2)  # like 1/sqrt(draws)
    every = np.ones((S, A, S), bool)
    one, again, other = (
        estimate_kernel(drawing(STACK[0]), every, draws=50, seed=k).toarray() for k in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_the_error_bound_holds_and_a_tenth_of_it_does_not() -> None:
    draws = 60
    delta = 0.2
    runs = 400
    failures = {1.0: 0, 0.1: 0}
    for run in range(runs):
        draw = np.random.default_rng([7, run])
        law = draw.dirichlet(np.full(int(draw.integers(2, 31)), 0.5))
        estimate = draw.multinomial(draws, law) / draws
        bound = variation_errors(sp.csr_array(estimate[None]), draws, delta)[0]
        for share in failures:
            failures[share] += bool(0.5 * np.abs(estimate - law).sum() > share * bound)
    limit = int(binom.isf(1e-5, runs, delta))
    assert failures[1.0] <= limit < failures[0.1]


def test_outcomes_are_what_the_support_allows_whether_drawn_or_not() -> None:
    kernel = np.zeros((4, 1, 4))
    kernel[0, 0, 1:] = (0.5, 0.5 - 1e-9, 1e-9)
    kernel[1:, 0, 0] = 1.0
    for support, count in ((None, 16), (kernel > 0, 6)):
        sims = Simulators([drawing(kernel), kernel], draws=10, support=support)
        assert sims.features.kernel([1.0, 0.0])[0, 0, 3] == 0.0  # not drawn
        assert sims.features.outcomes.next_state.size == count
    with pytest.raises(ProbabilityError, match="support"):
        Simulators(
            [drawing(kernel)],
            states=4,
            actions=1,
            draws=10,
            support=changed((0, 0, 1), False, kernel > 0),
        )


def test_the_widened_radius_is_the_formula() -> None:
    """(1/c)(1/4 (logdet + 2 log(2/delta)) + lambda b^2) + n e^2/(1 - c), c nearly the best."""
    sims = Simulators([STACK[0], drawing(STACK[1])], draws=200)
    episodes = 50
    horizon = 4
    delta = 0.1
    wide = sims.widen_mixture(
        episodes=episodes, horizon=horizon, delta=delta, norm_bound=1.5, regularization=2.0
    )
    c = wide["scale"] ** -2
    bias = episodes * horizon * sims.error(delta / 2.0) ** 2
    for logdet in (0.0, 7.0):
        exact = 0.25 * (logdet + 2.0 * math.log(2.0 / delta)) + 2.0 * 1.5**2
        ridge = wide["regularization"] * wide["norm_bound"] ** 2
        radius = 0.25 * (logdet + 2.0 * math.log(1.0 / wide["delta"])) + ridge
        assert wide["scale"] ** 2 * radius == pytest.approx(exact / c + bias / (1.0 - c))
        assert wide["scale"] ** 2 * radius <= 1.1 * (math.sqrt(exact) + math.sqrt(bias)) ** 2


def test_no_mixture_is_farther_from_the_grid_than_its_reach() -> None:
    """By a look at all points of the grid; attained halfway between two simulators."""
    features = Simulators(list(STACK[:4])).features
    for seed, m, grid in itertools.product(range(5), range(1, 5), (4, 6)):
        weights = np.random.default_rng(seed).dirichlet(np.full(m, 2.0))
        points = [
            np.array(p) / grid
            for p in itertools.product(range(grid + 1), repeat=m)
            if sum(p) == grid
        ]
        gaps = [
            np.abs(np.tensordot(weights - point, STACK[:m], 1)).sum(axis=2).max()
            for point in points
        ]
        assert min(gaps) <= grid_reach(features, m, grid) + 1e-12
    apart = [np.eye(2)[[j, j]].reshape(2, 1, 2) for j in range(2)]  # at a distance of 2
    assert Simulators(apart).ladder(grid=10).reach == pytest.approx(
        [0.0, 0.1]
    )  # .55 and .45: |.05| + |-.05|
    sims = Simulators([apart[0], drawing(apart[1])], draws=10_000)
    bias = 2 * sims.error(0.01)
    assert sims.ladder(grid=10, delta=0.01).reach == pytest.approx([bias, bias + 0.1])


def test_the_ladder_holds_mixtures_of_one_then_two_simulators() -> None:
    sims = Simulators(list(STACK[:3]))
    ladder = sims.ladder(most=3, grid=4)
    assert ladder.sizes == [
        3,
        3 + 3 * 3,
        3 + 9 + 3,
    ]  # pairs in quarters; 2 + 1 + 1 quarters in three orders
    assert {tuple(sorted(theta[0])) for theta in ladder.family.theta[12:]} == {(0.25, 0.25, 0.5)}
    assert len(np.unique(ladder.family.theta[:, 0], axis=0)) == 15
    for options in (
        {"most": 4},
        {"most": 0},
        {"most": 3, "grid": 2},
        {"most": 3, "grid": 2_000},
        {"reach": -0.1},
    ):
        with pytest.raises(InvalidInput, match=next(reversed(options))):
            sims.ladder(**options)


@pytest.mark.parametrize(
    ("candidates", "options"),
    [
        ([], {}),
        ([UNIFORM, OTHER], {}),
        ([lambda s, a, rng: 0], {}),
        ([UNIFORM, "rain"], {}),
        ([UNIFORM, UNIFORM], {"names": ["a", "a"]}),
        ([UNIFORM], {"draws": 0}),
        ([lambda s, a, rng: 0.5], {"states": 2, "actions": 1, "draws": 2}),
        ([lambda s, a, rng: 2], {"states": 2, "actions": 1, "draws": 2}),
        ([np.full((2, 2, 2), np.nan)], {}),
    ],
)
def test_bad_candidates_are_refused(candidates: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Simulators(candidates, **options)

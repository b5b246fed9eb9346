"""Problems: values against brute force, forms of input, bad input, what named ones promise."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats

from occamrl import bellman, registry
from occamrl.errors import InvalidInput, ParameterError, ProbabilityError, RewardError, ShapeError
from occamrl.models.ladder import Ladder
from occamrl.problems import operations
from occamrl.problems.classic import RiverSwim
from occamrl.problems.lakes import FrozenLake, PatchyIce, mdp_from_env, smallest_range
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import (
    ReferenceLadder,
    ReferenceMixture,
    SparseLadder,
    SparseMixture,
)
from occamrl.problems.named import make_problem
from occamrl.problems.operations import (
    LostSales,
    MachineReplacement,
    PracticalProblem,
    Pricing,
    QueueAdmission,
    WeekdayInventory,
)
from occamrl.protocols import Floats

Arguments = dict[str, Any]
Index = tuple[int, ...] | None

# --------------------------------------------------------------------------- values, by brute force
KINDS = pytest.mark.parametrize(
    ("per_step", "by_move"), list(itertools.product((False, True), repeat=2))
)


def value_by_trajectories(transition: Floats, reward: Floats, policy: Floats, first: int) -> float:
    """Sum probability times return over all trajectories.

    The kernel is [H, S, A, S], the reward [S, A, S], the policy [H, S, A].
    """
    horizon, states, actions, _ = transition.shape
    value = 0.0
    for moves in itertools.product(
        itertools.product(range(actions), range(states)), repeat=horizon
    ):
        s = first
        probability = 1.0
        total = 0.0
        for h, (a, s2) in enumerate(moves):
            probability *= policy[h, s, a] * transition[h, s, a, s2]
            total += reward[s, a, s2]
            s = s2
        value += probability * total
    return value


@KINDS
def test_values_are_those_of_all_trajectories_and_all_policies(
    per_step: bool, by_move: bool
) -> None:
    S = 2
    A = 2
    H = 3
    draw = np.random.default_rng(1)
    transition = draw.dirichlet(np.full(S, 0.7), (H, S, A) if per_step else (S, A))
    reward = draw.random((S, A, S) if by_move else (S, A))
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=H)
    every = np.broadcast_to(transition, (H, S, A, S))
    earned = reward if by_move else np.repeat(reward[..., None], S, 2)
    assert mdp.stationary is not per_step

    mixed = draw.dirichlet(np.ones(A), (H, S))
    chosen = draw.integers(0, A, (H, S))
    policies = [np.reshape(choice, (H, S)) for choice in itertools.product(range(A), repeat=H * S)]
    for s in range(S):
        assert mdp.evaluate(mixed)[0, s] == pytest.approx(
            value_by_trajectories(every, earned, mixed, s), abs=1e-12
        )
        expected = value_by_trajectories(every, earned, np.eye(A)[chosen], s)
        assert mdp.evaluate(chosen)[0, s] == pytest.approx(expected, abs=1e-12)
        best = max(
            value_by_trajectories(every, earned, np.eye(A)[policy], s) for policy in policies
        )
        assert mdp.optimal_values[0, s] == pytest.approx(best, abs=1e-12)
    np.testing.assert_allclose(
        mdp.evaluate(mdp.optimal_policy), mdp.optimal_values, rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("seed", range(3))
def test_values_keep_their_bounds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    S, A, H = (int(draw.integers(1, high)) for high in (6, 4, 7))
    transition = draw.dirichlet(np.full(S, 0.3), (S, A))
    mdp = FiniteMDP(
        transition=transition,
        reward=draw.random((S, A, S)),
        horizon=H,
        initial_state=np.full(S, 1 / S),
    )
    value = mdp.evaluate(draw.dirichlet(np.ones(A), (H, S)))
    bound = np.arange(H, -1, -1.0)[:, np.newaxis]  # H - h + 1 for the h of the formulas
    assert (value >= 0.0).all()
    assert (value <= mdp.optimal_values + 1e-12).all()
    assert (mdp.optimal_values <= bound + 1e-12).all()
    assert mdp.optimal_value == pytest.approx(mdp.optimal_values[0].mean())
    np.testing.assert_allclose(mdp.kernel(), transition, rtol=0, atol=1e-15)
    tied = FiniteMDP(transition=np.ones((1, 4, 1)), reward=[[0.2, 0.7, 0.7, 0.1]], horizon=2)
    assert tied.optimal_policy.tolist() == [[1], [1]]  # the smallest action


@pytest.mark.parametrize("states", [3, 40, 2_000])
@pytest.mark.parametrize("actions", [1, 2, 5, 40])
def test_maxima_over_long_and_short_rows_are_the_same(states: int, actions: int) -> None:
    """Ties go to the first action; minus infinity stands for what is not allowed."""
    draw = np.random.default_rng(states)
    q = draw.integers(0, 3, size=(states, actions)).astype(np.float64)
    q[draw.random(q.shape) < 0.3] = -np.inf
    best = np.zeros(states)
    first = np.zeros(states, dtype=np.int64)
    bellman.maximise(q, best, first)
    np.testing.assert_array_equal(best, q.max(axis=1))
    np.testing.assert_array_equal(first, q.argmax(axis=1))


def test_a_kernel_is_dense_if_most_of_it_is_not_zero() -> None:
    draw = np.random.default_rng(0)
    full = draw.dirichlet(np.ones(300), size=(300, 1))
    rare = np.where(full > 0.01, full, 0.0)
    rare[..., 0] += 1.0 - rare.sum(axis=-1)
    for transition, dense in ((full, True), (rare, False)):
        mdp = FiniteMDP(transition=transition, reward=draw.random((300, 1)), horizon=3)
        assert isinstance(mdp.kernels[0].matrix, np.ndarray) is dense


# -------------------------------------------------------------------------- one problem, many forms
S = 4
A = 3
H = 5


def random_kernel(seed: int, steps: int = 1) -> Floats:
    """Return transition [steps, S, A, S] with many zeros, elsewhere at different steps."""
    draw = np.random.default_rng(seed)
    weight = draw.random((steps, S, A, S)) * (draw.random((steps, S, A, S)) < 0.5)
    weight[..., 0] += 0.1
    transition: Floats = weight / weight.sum(axis=-1, keepdims=True)
    return transition


def arrays(mdp: FiniteMDP) -> list[NDArray[np.generic]]:
    """Return all that a simulator and an agent see."""
    known = [mdp.known.base_reward, *(mdp.known.transition_rewards or ())]
    return [
        *mdp.outcomes,
        mdp.probability,
        mdp.base_reward,
        mdp.initial_distribution,
        mdp.optimal_values,
        *known,
    ]


def same(one: FiniteMDP, other: FiniteMDP) -> None:
    for array, same_array in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(array, same_array)
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array"])
@KINDS
def test_sparse_and_dense_input_are_one_problem(kind: str, per_step: bool, by_move: bool) -> None:
    make = getattr(sp, kind)
    transition = random_kernel(2, steps=H if per_step else 1)
    draw = np.random.default_rng(3)
    matrices = [make(step.reshape(S * A, S)) for step in transition]
    kernel = transition if per_step else transition[0]
    reward = draw.random((S, A, S) if by_move else (S, A))
    dense = FiniteMDP(transition=kernel, reward=reward, horizon=H)
    same(
        dense, FiniteMDP(transition=matrices if per_step else matrices[0], reward=reward, horizon=H)
    )
    if by_move:
        sparse = FiniteMDP(transition=matrices, reward=make(reward.reshape(S * A, S)), horizon=H)
        same(dense, sparse)
    np.testing.assert_array_equal(dense.kernel(), kernel)


def test_a_table_is_the_same_problem_as_arrays() -> None:
    transition = random_kernel(4)[0]
    reward = np.random.default_rng(5).random((S, A, S))
    table = [
        [[(transition[s, a, t], t, reward[s, a, t]) for t in range(S)] for a in range(A)]
        for s in range(S)
    ]
    same(
        FiniteMDP(transition=transition, reward=reward, horizon=H, initial_state=2),
        FiniteMDP(outcomes=table, horizon=H, initial_state=2),
    )
    money = FiniteMDP(
        transition=transition, reward=16.0 * reward - 4.0, horizon=H, reward_range=(-4.0, 12.0)
    )
    np.testing.assert_allclose(
        money.evaluate(money.optimal_policy)[0], money.optimal_values[0], atol=1e-13
    )
    averaged = FiniteMDP(transition=transition, reward=(transition * reward).sum(axis=2), horizon=H)
    np.testing.assert_allclose(money.optimal_values, averaged.optimal_values, rtol=0, atol=1e-13)


def test_an_agent_knows_the_whole_reward_table_and_nothing_of_the_kernel() -> None:
    reward = np.random.default_rng(10).random((S, A, S))
    for seed in (11, 12):
        known = FiniteMDP(transition=random_kernel(seed)[0], reward=reward, horizon=H).known
        table = known.transition_rewards
        assert table is not None
        np.testing.assert_array_equal(table.next_state, np.tile(np.arange(S), S * A))
        np.testing.assert_array_equal(known.base_reward, reward.min(axis=2))
        np.testing.assert_allclose(
            known.base_reward.ravel()[table.pair] + table.bonus, reward.ravel(), atol=1e-15
        )


def test_sparse_rewards_list_what_is_stored_and_what_can_happen() -> None:
    transition = sp.csr_array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    stored = sp.coo_array((np.array([0.8, 0.3, 0.0]), ([0, 0, 1], [0, 2, 2])), shape=(3, 3))
    mdp = FiniteMDP(transition=transition, reward=stored, horizon=2)
    table = mdp.known.transition_rewards
    assert table is not None
    assert table.start.tolist() == [0, 3, 5, 6]
    assert table.next_state.tolist() == [0, 1, 2, 1, 2, 2]
    assert table.bonus.tolist() == [0.8, 0.0, 0.3, 0.0, 0.0, 0.0]
    assert mdp.outcomes.next_state.tolist() == [0, 1, 1, 2]


def test_repeated_outcomes_are_added_and_different_rewards_kept_apart() -> None:
    table = [
        [[(0.25, 1, 0.5), (0.25, 1, 0.5), (0.5, 1, 1.0), (0.0, 0, 0.0)]],
        {0: [(1.0, 0, 0.25)]},
    ]
    mdp = FiniteMDP(outcomes=table, horizon=2)
    assert [part.tolist() for part in mdp.outcomes] == [[0, 2, 3], [1, 1, 0], [0.5, 1.0, 0.0]]
    assert mdp.probability.tolist() == [[0.5, 0.5, 1.0]]
    assert mdp.base_reward.tolist() == [0.0, 0.25]  # the outcome that never happens is known, too
    assert mdp.known.transition_rewards is not None
    assert mdp.known.transition_rewards.next_state.tolist() == [0, 1, 1, 0]
    assert mdp.optimal_values[0].tolist() == [1.0, 1.0]


def test_an_end_is_added_only_where_the_target_would_go_on() -> None:
    # Both actions of state 0 end the episode: one in state 1, which rests, one in state 2, which
    # would pay again.
    table = [
        [[(1.0, 1, 0.5, True)], [(1.0, 2, 0.25, True)]],
        [[(1.0, 1, 0.0, True)], [(1.0, 1, 0.0, True)]],
        [[(1.0, 2, 1.0, False)], [(1.0, 2, 1.0, False)]],
    ]
    mdp = FiniteMDP(outcomes=table, horizon=3, initial_state=[0.5, 0.0, 0.5])
    assert mdp.kernel()[0].tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert mdp.optimal_values[0].tolist() == [0.5, 0.0, 3.0, 0.0]
    assert mdp.initial_distribution.tolist() == [0.5, 0.0, 0.5, 0.0]


def test_a_problem_cannot_be_changed_and_survives_pickling() -> None:
    transition = random_kernel(18)[0]
    reward = np.full((S, A, S), 0.5)
    initial = np.full(S, 0.25)
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=H, initial_state=initial)
    for array in (transition, reward, initial):
        array[...] = 0.0
    assert mdp.optimal_value == pytest.approx(H / 2)
    assert not any(array.flags.writeable for array in [*arrays(mdp), mdp.optimal_policy])
    with pytest.raises(dataclasses.FrozenInstanceError):
        mdp.horizon = 3
    same(mdp, pickle.loads(pickle.dumps(mdp)))  # noqa: S301  # our own bytes
    plain = make_problem("river-swim", states=3).mdp
    noisy = make_problem("river-swim", states=3, reward_noise="bernoulli").mdp
    assert (noisy.reward_noise, plain.reward_noise) == ("bernoulli", None)
    assert noisy.fingerprint != plain.fingerprint


def test_a_large_sparse_problem_is_never_made_dense() -> None:
    states = 5_000
    actions = 4
    successors = 5
    draw = np.random.default_rng(21)
    target = draw.integers(0, states, states * actions * successors)
    row = draw.dirichlet(np.ones(successors), states * actions).ravel()
    start = np.arange(states * actions + 1) * successors
    kernel = sp.csr_array((row, target, start), shape=(states * actions, states))
    reward = draw.random((states, actions))
    tracemalloc.start()
    mdp = FiniteMDP(transition=kernel, reward=reward, horizon=20)
    values = mdp.optimal_values
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25e6  # dense it would be 800 MB
    matrix = mdp.kernels[0].matrix  # nothing is kept twice
    assert isinstance(matrix, sp.csr_array)
    assert np.shares_memory(matrix.data, mdp.probability)
    assert np.shares_memory(matrix.indices, mdp.outcomes.next_state)
    np.testing.assert_array_equal(values[19], reward.max(axis=1))
    one_before = (reward.ravel() + kernel @ values[19]).reshape(states, actions).max(axis=1)
    np.testing.assert_allclose(values[18], one_before, rtol=1e-13)


# ---------------------------------------------------------------------------------------- bad input
UNIFORM = np.full((3, 2, 3), 1 / 3)
HALF = np.full((3, 2), 0.5)
STEPS = np.stack([UNIFORM] * 2)
BY_MOVE = np.full((3, 2, 3), 0.5)
SURE = [[[(1.0, 0, 0.0)]]]


def put(array: Floats, index: tuple[int, ...], value: float) -> Floats:
    copy = np.array(array, float)
    copy[index] = value
    return copy


def flat(array: Floats) -> sp.csr_array:
    return sp.csr_array(np.reshape(array, (6, 3)))


def broken_indices() -> sp.csr_array:
    matrix = flat(UNIFORM)
    matrix.indices[0] = 7
    return matrix


def of_table(table: object, **others: object) -> Arguments:
    return {"transition": None, "reward": None, "outcomes": table, **others}


BAD: list[tuple[Arguments, type[InvalidInput], str, Index]] = [
    ({"transition": put(STEPS, (1, 2, 1, 0), 0.5)}, ProbabilityError, "transition", (1, 2, 1)),
    ({"transition": flat(put(UNIFORM, (2, 1, 0), 0.0))}, ProbabilityError, "transition", (2, 1)),
    (
        {"transition": put(put(UNIFORM, (0, 1, 2), -1 / 3), (0, 1, 0), 1.0)},
        ProbabilityError,
        "transition",
        (0, 1, 2),
    ),
    (
        {"transition": put(STEPS, (1, 2, 0, 1), np.nan)},
        ProbabilityError,
        "transition",
        (1, 2, 0, 1),
    ),
    ({"transition": np.full((3, 2, 2), 0.5)}, ShapeError, "transition", None),
    ({"transition": np.moveaxis(UNIFORM, 1, 0)}, ShapeError, "transition", None),
    ({"transition": np.zeros((0, 2, 0))}, ShapeError, "transition", None),
    ({"transition": flat(UNIFORM.astype(complex))}, ShapeError, "transition", None),
    ({"transition": broken_indices()}, ShapeError, "transition", None),
    ({"transition": [flat(UNIFORM), UNIFORM]}, ShapeError, "transition", None),
    ({"transition": [flat(UNIFORM)] * 3}, ShapeError, "transition", None),
    ({"transition": None}, ParameterError, "transition", None),
    ({"reward": put(HALF, (2, 1), 1.0 + 1e-9)}, RewardError, "reward", (2, 1)),
    ({"reward": put(BY_MOVE, (1, 1, 2), 2.0)}, RewardError, "reward", (1, 1, 2)),
    ({"reward": np.full((2, 3), 0.5)}, ShapeError, "reward", None),
    ({"reward": sp.csr_array(np.full((3, 6), 0.5))}, ShapeError, "reward", None),
    ({"reward": None}, ParameterError, "reward", None),
    ({"horizon": 0}, ParameterError, "horizon", None),
    ({"initial_state": 3}, ParameterError, "initial_state", None),
    ({"initial_state": [0.5, -0.5, 1.0]}, ProbabilityError, "initial_state", (1,)),
    ({"reward_range": (0.6, 2.0)}, RewardError, "reward", (0, 0)),
    ({"reward_noise": "beta"}, InvalidInput, "reward_noise", None),
    ({"outcomes": SURE}, ParameterError, "outcomes", None),
    (of_table([[[(0.9, 0, 0.0)]]]), ProbabilityError, "outcomes", (0, 0)),
    (of_table([[[(1.5, 0, 0.5), (-0.5, 0, 0.5)]]]), ProbabilityError, "outcomes", (0, 0, 0)),
    (of_table([[[(0.5, 0, 0.0), (0.5, 1, 0.0)]]]), ShapeError, "outcomes", (0, 0, 1)),
    (of_table([[[(1.0, 0)]]]), ShapeError, "outcomes", (0, 0, 0)),
    (of_table([*SURE, [[(1.0, 0, 0.0)], [(1.0, 0, 0.0)]]]), ShapeError, "outcomes", (1,)),
    (of_table({0: {0: [(1.0, 0, 0.0)]}, 2: {0: [(1.0, 0, 0.0)]}}), ShapeError, "outcomes", None),
    (
        of_table([[[(1.0, 0, 2.0, True)]]], reward_range=(1.0, 3.0)),
        ParameterError,
        "reward_range",
        None,
    ),  # then 0
]


@pytest.mark.parametrize(("change", "error", "field", "index"), BAD)
def test_bad_input_is_refused_by_name_and_place(
    change: Arguments, error: type[InvalidInput], field: str, index: Index
) -> None:
    with pytest.raises(error) as caught:
        FiniteMDP(**{"transition": UNIFORM, "reward": HALF, "horizon": 2, **change})
    assert (caught.value.field, caught.value.index) == (field, index)


BAD_POLICIES: list[tuple[NDArray[np.generic], type[InvalidInput], Index]] = [
    (np.zeros((2, 3)), ShapeError, None),
    (put(np.zeros((2, 3)), (1, 2), 2).astype(int), ParameterError, (1, 2)),
    (put(np.full((2, 3, 2), 0.5), (1, 0, 0), 0.6), ProbabilityError, (1, 0)),
]


@pytest.mark.parametrize(("policy", "error", "index"), BAD_POLICIES)
def test_bad_policies_are_refused(
    policy: NDArray[np.generic], error: type[InvalidInput], index: Index
) -> None:
    mdp = FiniteMDP(transition=UNIFORM, reward=HALF, horizon=2)
    with pytest.raises(error) as caught:
        mdp.evaluate(policy)
    assert (caught.value.field, caught.value.index) == ("policy", index)


@pytest.mark.parametrize(
    ("kind", "parameters", "field"),
    [
        (SparseMixture, {"norm": 1.0}, "norm"),
        (SparseMixture, {"persistence": 1.0}, "persistence"),
        (SparseLadder, {"most": 9}, "most"),
        (PatchyIce, {"slip": (0.1, 0.1, 0.1)}, "slip"),
        (FrozenLake, {"slip": (12, 12)}, "slip"),
        (LostSales, {"empty": 0.7}, "empty"),
        (WeekdayInventory, {"order_step": 16}, "order_step"),
        (QueueAdmission, {"room": 0}, "room"),
        (MachineReplacement, {"slope": -0.1}, "slope"),
        (Pricing, {"demand": (0.5,) * 8}, "demand"),
    ],
)
def test_bad_parameters_of_problems_are_refused(
    kind: Any, parameters: Arguments, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        kind(**parameters)
    assert caught.value.field == field


# ----------------------------------------------------------------------------------- named problems
@pytest.mark.parametrize("name", registry.own("problems"))
def test_every_named_problem_is_valid_and_frozen(name: str) -> None:
    kind = registry.own("problems")[name]
    for parameters in kind.small:
        problem = kind(**parameters)
        mdp = problem.mdp
        assert mdp is problem.mdp
        assert 0.0 < mdp.initial_distribution @ mdp.optimal_values[0] <= mdp.horizon
        np.testing.assert_allclose(mdp.kernel().sum(axis=-1), 1.0, atol=1e-9)
        assert dataclasses.replace(problem).mdp.fingerprint == mdp.fingerprint
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(problem, *("mdp", None))


@pytest.mark.parametrize(
    "name", ["FrozenLake", "PatchyIce", "SparseLadder", "ReferenceLadder", "Pricing"]
)
def test_hypotheses_are_kernels_in_nested_classes(name: str) -> None:
    problem = make_problem(name)
    assert problem.sizes == sorted(problem.sizes)
    assert (
        problem.sizes[-1] == len(problem.hypotheses) == len(np.unique(problem.hypotheses, axis=0))
    )
    phi = problem.phi
    if isinstance(phi, list):
        phi = np.stack([part.toarray() for part in phi], axis=-1)
    phi = phi.reshape(-1, *phi.shape[-2:])  # [S*A, S, d]
    np.testing.assert_allclose(
        (phi @ problem.theta).ravel(), problem.mdp.kernel().ravel(), atol=1e-12
    )
    assert (np.abs(problem.hypotheses - problem.theta).max(axis=1) < 1e-12).any()
    for theta in problem.hypotheses[:: max(1, len(problem.hypotheses) // 50)]:
        kernel = phi @ theta
        assert kernel.min() > -1e-12
        np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(("states", "optimum"), [(3, 5.719919), (5, 5.585129)])
def test_river_swim_has_the_published_optimum(states: int, optimum: float) -> None:
    assert RiverSwim(states=states).mdp.optimal_value == pytest.approx(optimum, abs=5e-7)


@pytest.mark.parametrize(
    "problem",
    [
        SparseMixture(seed=9, persistence=0.7),
        SparseMixture(states=5, actions=3, dimension=7, nonzero=4, gamma=0.3, norm=2.0, seed=1),
        SparseMixture(states=3, dimension=4, nonzero=4, norm=math.sqrt(1.0 + 3 * 0.25)),
    ],
)
def test_a_sparse_mixture_is_as_sparse_and_large_as_stated_and_a_kernel_whatever_the_signs(
    problem: SparseMixture,
) -> None:
    theta = problem.theta
    phi = problem.phi
    assert theta[0] == 1.0
    assert np.flatnonzero(theta).tolist() == problem.support.tolist()
    assert problem.support.size == problem.nonzero
    if problem.nonzero > 1:
        assert np.abs(theta[problem.support[1:]]).min() == problem.gamma
    if problem.norm is not None:
        assert np.linalg.norm(theta) == pytest.approx(problem.norm, rel=1e-12)
    draw = np.random.default_rng(0)
    for _ in range(50):
        kernel = phi @ (theta * np.array([1.0, *draw.choice((-1.0, 1.0), theta.size - 1)]))
        assert kernel.min() > 0.0
        np.testing.assert_allclose(kernel.sum(axis=2), 1.0, rtol=0, atol=1e-12)


def test_the_stored_problems_are_of_the_documented_form() -> None:
    mixture = ReferenceMixture()
    direction = np.where(np.arange(12) < 6, 1.0, -1.0)[:, None]  # of good and bad states
    assert (mixture.mdp.states, mixture.mdp.actions, mixture.mdp.horizon, len(mixture.theta)) == (
        12,
        4,
        6,
        16,
    )
    np.testing.assert_allclose(
        mixture.phi @ mixture.theta, mixture.mdp.kernel(), rtol=0, atol=1e-16
    )
    np.testing.assert_array_equal(mixture.phi[..., 1:], mixture.phi[:, :, :1, 1:] * direction)
    for nonzero in range(4):
        ladder = ReferenceLadder(nonzero=nonzero)
        assert (ladder.mdp.states, ladder.mdp.actions, ladder.mdp.horizon) == (12, 3, 10)
        assert ladder.sizes == [1, 17, 129, 577]
        assert (ladder.theta != 0.0).sum() == nonzero + 1
        np.testing.assert_array_equal(ladder.hypotheses, SparseLadder().hypotheses)


def test_frozen_lake_is_the_one_of_gymnasium() -> None:
    gym = pytest.importorskip("gymnasium")
    for name, horizon in (("4x4", 30), ("8x8", 60)):
        table, rewards = mdp_from_env(gym.make("FrozenLake-v1", map_name=name), horizon=horizon)
        assert tuple(rewards) == (0.0, 1.0)
        ours = FrozenLake(map_name=name).mdp
        np.testing.assert_allclose(ours.kernel(), table.kernel(), atol=1e-15)
        np.testing.assert_allclose(ours.optimal_values, table.optimal_values, atol=1e-13)
    cliff = gym.make("CliffWalking-v1")
    assert smallest_range([cliff]) == (-100.0, 0.0)
    mdp, rewards = mdp_from_env(cliff, horizon=30)
    assert mdp.optimal_value == pytest.approx(-13.0)  # the shortest safe way
    with pytest.raises(InvalidInput, match="no table"):
        mdp_from_env(gym.make("CartPole-v1"), horizon=30)
    with pytest.raises(InvalidInput, match="TransformReward"):
        mdp_from_env(gym.wrappers.TransformReward(cliff, abs), horizon=30)


# ------------------------------------------------------------------------------- practical problems
def test_demand_as_the_shelf_sees_it() -> None:
    np.testing.assert_allclose(operations.poisson(3.0, 6)[:6], stats.poisson(3.0).pmf(np.arange(6)))
    demand = np.arange(401)
    # of a day that is not empty: mean 4, variance 4 + 16/2; a quarter of the days is empty
    law = np.array(operations.erratic(4.0, 0.25, 0.5, 400))
    assert law @ demand == pytest.approx(3.0)
    assert law @ (demand - 3.0) ** 2 == pytest.approx(0.75 * (12.0 + 16.0) - 9.0)


@pytest.mark.parametrize("kind", [LostSales, WeekdayInventory, QueueAdmission, MachineReplacement])
def test_each_class_has_a_truth_of_its_own(kind: type[PracticalProblem]) -> None:
    problems = kind.truths()
    ladder = problems[0].ladder
    assert Ladder.of_problem(problems[0]) is ladder
    needed = [ladder.class_of(problem.mdp) for problem in problems]
    assert needed == list(range(1, ladder.classes + 1))


def test_each_class_of_curves_has_a_truth_of_its_own() -> None:
    problems = Pricing.truths()
    hypotheses = problems[0].hypotheses
    needed = []
    for problem in problems:
        nearest = int(np.abs(hypotheses - problem.theta).max(axis=1).argmin())
        np.testing.assert_allclose(hypotheses[nearest], problem.theta, atol=1e-12)
        needed.append(int(np.searchsorted(problem.sizes, nearest, side="right")) + 1)
    assert needed == list(range(1, len(Pricing.class_names) + 1))


@pytest.mark.parametrize(("empty", "spread"), [(0.0, 0.0), (0.3, 1.0)])
def test_without_a_cost_of_ordering_every_day_is_a_newsvendor(empty: float, spread: float) -> None:
    problem = LostSales(empty=empty, spread=spread, fixed=0.0, holding=1.0, order_step=1)
    law = np.array(operations.erratic(problem.mean, problem.empty, problem.spread, 15))
    demand = np.arange(16)
    gain = []
    for filled in range(16):
        sold = np.minimum(demand, filled)
        gain.append(law @ (4.0 * sold - 1.0 * (filled - sold)))
    best = int(np.argmax(np.cumsum(law) >= 4.0 / 5.0))  # the critical fractile
    assert gain[best] == pytest.approx(max(gain))
    # Leftovers are worth their cost, so that what is best for a day is best for all.
    assert problem.mdp.optimal_value == pytest.approx(28 * max(gain), rel=1e-12)


def test_a_day_of_the_week_is_a_shelf_of_its_own() -> None:
    week = WeekdayInventory(mean=4.0, weekend=2.0, sunday=0.25, shelf=5, order_step=2, horizon=2)
    kernel = week.mdp.kernel()
    states = week.mdp.known.state_number
    means = (4.0, 4.0, 4.0, 4.0, 4.0, 8.0, 2.0)
    for day, mean in enumerate(means):
        law = stats.poisson(mean)
        for stock, order in itertools.product(range(6), range(3)):
            filled = min(stock + 2 * order, 5)
            row = np.zeros(week.mdp.states)
            for unsold in range(1, filled + 1):
                row[states(((day + 1) % 7, unsold))] = law.pmf(filled - unsold)
            row[states(((day + 1) % 7, 0))] = law.sf(filled - 1)
            np.testing.assert_allclose(kernel[states((day, stock)), order], row, atol=1e-12)


def test_a_week_of_equal_days_is_a_plain_shelf() -> None:
    same: Arguments = {"mean": 6.0, "shelf": 10, "order_step": 5, "horizon": 9}
    same |= {"holding": 0.5, "fixed": 6.0, "margin": 4.0}
    week = WeekdayInventory(**same)
    shelf = LostSales(**same)
    assert week.mdp.optimal_value == pytest.approx(shelf.mdp.optimal_value, rel=1e-12)


def test_phases_that_do_not_differ_are_one_queue() -> None:
    problem = QueueAdmission(room=5, horizon=20, arrival=0.24, service=0.2)
    values = np.zeros(6)
    customers = np.arange(6)
    for _ in range(20):  # plain value iteration of a single queue
        served = np.where(customers > 0, values[np.maximum(customers - 1, 0)], values)
        closed = -customers + 0.2 * served + 0.8 * values
        comes = np.where(customers < 5, 30.0 + values[np.minimum(customers + 1, 5)], values)
        opened = -customers + 0.24 * comes + 0.2 * served + 0.56 * values
        values = np.maximum(closed, opened)
    known = problem.mdp.known
    ours = known.amount(problem.mdp.optimal_values[0])
    for phase in range(3):
        states = [known.state_number((phase, count)) for count in customers.tolist()]
        np.testing.assert_allclose(ours[states], values, rtol=1e-12)


def test_machines_are_replaced_when_renewal_theory_says_so() -> None:
    young = MachineReplacement(new=0.1)  # does not age
    assert young.mdp.optimal_value == pytest.approx(-36 * 0.1 * 10_000.0, rel=1e-12)
    assert (young.mdp.optimal_policy == 0).all()
    ages = np.arange(15)
    for problem in MachineReplacement.truths()[1:]:
        hazard = problem.new + problem.slope * ages + problem.bend * ages**2
        alive = np.concatenate([[1.0], np.cumprod(1.0 - hazard)])
        # of a cycle, by the age of replacement: what it costs, over how long it lasts
        cost = 10_000.0 * (1.0 - alive[1:15]) + 2_000.0 * alive[1:15]
        rate = min(cost / np.cumsum(alive[:14]))
        long = dataclasses.replace(problem, horizon=2000)
        # The ends of an episode weigh 1/H.
        assert -long.mdp.optimal_value / 2000 == pytest.approx(rate, rel=4e-3)

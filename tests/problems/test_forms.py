"""One problem written in different ways is one problem: dense, sparse, per step, by transition, as a table."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from occamrl.problems.mdp import FiniteMDP, running_sums
from occamrl.protocols import Floats

S, A, H = 4, 3, 5


def random_kernel(seed: int, steps: int = 1) -> Floats:
    """Return transition [steps, S, A, S] with many zeros, in different places at different steps."""
    draw = np.random.default_rng(seed)
    weight = draw.random((steps, S, A, S)) * (draw.random((steps, S, A, S)) < 0.5)
    weight[..., 0] += 0.1
    transition: Floats = weight / weight.sum(axis=-1, keepdims=True)
    return transition


def same(one: FiniteMDP, other: FiniteMDP) -> None:
    """Assert that two problems are equal to the last bit, in what a simulator and in what an agent sees."""
    for left, right in zip(_arrays(one), _arrays(other), strict=True):
        np.testing.assert_array_equal(left, right)


def _arrays(mdp: FiniteMDP) -> list[NDArray[Any]]:
    truth, known = mdp.truth, mdp.known
    listed: list[NDArray[Any]] = [] if known.transition_rewards is None else list(known.transition_rewards)
    return [*truth.outcomes, *truth[1:6], known.base_reward, *listed]


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_array", "lil_array"])
def test_sparse_kernel_equals_dense(kind: str) -> None:
    transition = random_kernel(0)[0]
    reward = np.random.default_rng(1).random((S, A))
    sparse = getattr(scipy.sparse, kind)(transition.reshape(S * A, S))
    same(
        FiniteMDP(transition=transition, reward=reward, horizon=H),
        FiniteMDP(transition=sparse, reward=reward, horizon=H),
    )


def test_sparse_duplicates_add_up_and_the_given_matrix_is_left_alone() -> None:
    row, column = np.repeat(np.arange(2), 2), np.array([1, 1, 0, 0])
    split = scipy.sparse.coo_array((np.array([0.25, 0.75, 1.0, 0.0]), (row, column)), shape=(2, 2))
    csr = split.tocsr()
    mdp = FiniteMDP(transition=split, reward=[[0.0], [1.0]], horizon=2)
    assert mdp.kernel()[:, 0].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert split.nnz == 4
    unsorted = scipy.sparse.csr_array(([0.5, 0.5, 1.0], [1, 0, 0], [0, 2, 3]), shape=(2, 2))
    FiniteMDP(transition=unsorted, reward=[[0.0], [1.0]], horizon=2)
    assert unsorted.indices.tolist() == [1, 0, 0]
    same(mdp, FiniteMDP(transition=csr, reward=[[0.0], [1.0]], horizon=2))


def test_sparse_kernels_per_step_equal_dense_ones() -> None:
    transition = random_kernel(2, steps=H)
    reward = np.random.default_rng(3).random((S, A))
    matrices = [scipy.sparse.csr_array(step.reshape(S * A, S)) for step in transition]
    dense = FiniteMDP(transition=transition, reward=reward, horizon=H)
    same(dense, FiniteMDP(transition=matrices, reward=reward, horizon=H))
    assert not dense.stationary
    np.testing.assert_array_equal(dense.kernel(), transition)


@pytest.mark.parametrize("steps", [1, H])
def test_rewards_on_transitions_have_the_values_of_their_averages(steps: int) -> None:
    transition = random_kernel(7)[0]
    reward = np.random.default_rng(8).random((S, A, S))
    given_steps = np.repeat(transition[np.newaxis], steps, axis=0) if steps > 1 else transition
    average = (transition * reward).sum(axis=2)
    mdp = FiniteMDP(transition=given_steps, reward=reward, horizon=H)
    averaged = FiniteMDP(transition=given_steps, reward=average, horizon=H)
    np.testing.assert_allclose(mdp.optimal_values, averaged.optimal_values, rtol=0, atol=1e-13)
    policy = np.random.default_rng(9).integers(0, A, (H, S))
    np.testing.assert_allclose(mdp.evaluate(policy), averaged.evaluate(policy), rtol=0, atol=1e-13)


def test_an_agent_knows_the_whole_reward_table_and_nothing_of_the_kernel() -> None:
    reward = np.random.default_rng(10).random((S, A, S))
    known = [FiniteMDP(transition=random_kernel(seed)[0], reward=reward, horizon=H).known for seed in (11, 12)]
    for each in known:
        table = each.transition_rewards
        assert table is not None
        np.testing.assert_array_equal(table.next_state, np.tile(np.arange(S), S * A))
        np.testing.assert_array_equal(each.base_reward, reward.min(axis=2))
        assert (table.bonus >= 0.0).all()
        rebuilt = np.repeat(each.base_reward.ravel(), S) + table.bonus
        np.testing.assert_allclose(rebuilt, reward.ravel(), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(known[0].transition_rewards[2], known[1].transition_rewards[2])  # type: ignore[index]  # not None here


def test_sparse_rewards_list_what_is_stored_and_what_can_happen() -> None:
    transition = np.array([[[0.5, 0.5, 0.0]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
    stored = scipy.sparse.coo_array((np.array([0.8, 0.3, 0.0]), ([0, 0, 1], [0, 2, 2])), shape=(3, 3))
    mdp = FiniteMDP(transition=scipy.sparse.csr_array(transition.reshape(3, 3)), reward=stored, horizon=2)
    table = mdp.known.transition_rewards
    assert table is not None
    assert table.start.tolist() == [0, 3, 5, 6]
    assert table.next_state.tolist() == [0, 1, 2, 1, 2, 2]
    assert table.bonus.tolist() == [0.8, 0.0, 0.3, 0.0, 0.0, 0.0]
    dense = FiniteMDP(transition=transition, reward=stored.toarray()[:, np.newaxis, :], horizon=2)
    np.testing.assert_array_equal(mdp.optimal_values, dense.optimal_values)
    assert mdp.truth.outcomes.next_state.tolist() == [0, 1, 1, 2]

    zero = scipy.sparse.coo_array((np.array([0.5, 0.5, 0.0, 1.0, 1.0]), ([0, 0, 0, 1, 2], [0, 1, 2, 1, 2])))
    stored = scipy.sparse.coo_array((np.array([0.8, 0.3]), ([0, 0], [0, 1])), shape=(3, 3))
    known = FiniteMDP(transition=zero, reward=stored, horizon=2).known
    assert known.base_reward[0, 0] == 0.3  # a stored probability of zero is nothing that can happen


def test_rewards_in_a_unit_of_their_own_are_mapped_onto_the_unit_interval() -> None:
    transition, reward = random_kernel(15)[0], np.random.default_rng(16).random((S, A, S))
    plain = FiniteMDP(transition=transition, reward=reward, horizon=H)
    money = FiniteMDP(transition=transition, reward=16.0 * reward - 4.0, horizon=H, reward_range=(-4.0, 12.0))
    np.testing.assert_allclose(money.optimal_values, plain.optimal_values, rtol=0, atol=1e-13)


@pytest.mark.parametrize("on_transitions", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_absorbing_states_stay_and_earn_nothing(on_transitions: bool, sparse: bool) -> None:
    transition = random_kernel(15)[0]
    reward = np.random.default_rng(16).random((S, A, S) if on_transitions else (S, A))
    by_hand, zeroed = transition.copy(), reward.copy()
    for s in (1, 3):
        by_hand[s], zeroed[s] = 0.0, 0.0
        by_hand[s, :, s] = 1.0
    expected = FiniteMDP(transition=by_hand, reward=zeroed, horizon=H)
    transition[1] = np.nan  # what stands there does not matter
    transition[3] = 0.0
    kernel = scipy.sparse.csr_array(transition.reshape(S * A, S)) if sparse else transition
    same(expected, FiniteMDP(transition=kernel, reward=reward, horizon=H, absorbing=[3, 1]))
    assert (expected.optimal_values[:, [1, 3]] == 0.0).all()


def test_an_absorbing_state_without_outcomes_leaves_the_rewards_of_others_where_they_are() -> None:
    """Two outcomes of state 0 and none of state 1: as many as pairs, and still rewards of transitions."""
    kernel = scipy.sparse.csr_array([[0.5, 0.5], [0.0, 0.0]])
    reward = scipy.sparse.csr_array([[0.2, 0.6], [0.0, 0.0]])
    mdp = FiniteMDP(transition=kernel, reward=reward, horizon=1, absorbing=[1])
    assert mdp.optimal_value == pytest.approx(0.4, abs=1e-15)


def drawn(cumulative: Floats, u: float) -> int:
    return int(np.argmax(u < cumulative))


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_every_uniform_number_finds_an_outcome_that_can_happen(seed: int, width: int) -> None:
    draw = np.random.default_rng(seed)
    weight = draw.random((2, width)) * (draw.random((2, width)) < 0.5) * 10.0 ** draw.integers(-12, 1, (2, width))
    weight[:, draw.integers(width)] += 1e-3
    probability = weight / weight.sum(axis=1, keepdims=True) * (1.0 + 1e-10 * draw.uniform(-1, 1))
    cumulative = running_sums(np.array([0, width]), probability)
    assert (cumulative[:, -1] == 1.0).all()
    assert (np.diff(cumulative, axis=1) >= 0.0).all()
    np.testing.assert_allclose(cumulative, probability.cumsum(axis=1), rtol=0, atol=1e-9)
    for t in range(2):
        for u in (0.0, *draw.random(20), np.nextafter(1.0, 0.0), *np.nextafter(cumulative[t], 0.0), *cumulative[t]):
            if 0.0 <= u < 1.0:
                assert probability[t, drawn(cumulative[t], u)] > 0.0


def test_nothing_can_be_changed_from_outside() -> None:
    transition = random_kernel(18)[0]
    reward, initial = np.full((S, A), 0.5), np.full(S, 0.25)
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=H, initial_state=initial)
    before = mdp.optimal_value
    transition[...], reward[...], initial[...] = 0.0, 0.0, 0.0
    assert FiniteMDP.evaluate(mdp, mdp.optimal_policy) @ mdp.initial_distribution == pytest.approx(
        [before * (H - h) / H for h in range(H + 1)]
    )
    for array in [*_arrays(mdp), mdp.optimal_policy, mdp.initial_distribution]:
        assert not array.flags.writeable
    with pytest.raises(dataclasses.FrozenInstanceError):
        mdp.horizon = 3


def test_pickling_keeps_everything_and_its_protection() -> None:
    mdp = FiniteMDP(transition=random_kernel(19)[0], reward=np.full((S, A, S), 0.5), horizon=H, initial_state=2)
    again = pickle.loads(pickle.dumps(mdp))  # noqa: S301  # our own bytes
    same(mdp, again)
    assert all(not array.flags.writeable for array in [*_arrays(again), again.initial_distribution])
    assert repr(again) == repr(mdp)
    assert repr(mdp).startswith("FiniteMDP(states=4, actions=3, horizon=5, one kernel with")
    assert mdp.truth.initial_cumulative.tolist() == [[0.0, 0.0, 1.0, 1.0]]  # drawn like outcomes


def test_a_large_sparse_problem_is_never_made_dense() -> None:
    states, actions, successors = 20_000, 4, 5
    draw = np.random.default_rng(21)
    target = draw.integers(0, states, states * actions * successors)
    row = draw.dirichlet(np.ones(successors), states * actions).ravel()
    start = np.arange(states * actions + 1) * successors
    kernel = scipy.sparse.csr_array((row, target, start), shape=(states * actions, states))
    reward = draw.random((states, actions))
    FiniteMDP(transition=[[[1.0]]], reward=[[0.5]], horizon=1).evaluate([[0]])  # compile first
    tracemalloc.start()
    mdp = FiniteMDP(transition=kernel, reward=reward, horizon=20)
    values = mdp.optimal_values
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # dense it would be 12.8 GB
    # Two steps by hand at the end of the horizon.
    np.testing.assert_array_equal(values[19], reward.max(axis=1))
    one_before = (reward.ravel() + kernel @ values[19]).reshape(states, actions).max(axis=1)
    np.testing.assert_allclose(values[18], one_before, rtol=1e-13)


def test_repeated_outcomes_are_added_and_different_rewards_kept_apart() -> None:
    table = [[[(0.25, 1, 0.5), (0.25, 1, 0.5), (0.5, 1, 1.0), (0.0, 0, 0.0)]], [[(1.0, 0, 0.25)]]]
    mdp = FiniteMDP(outcomes=table, horizon=2)
    arrays: Any = [[[(p, np.array(s2), r) for p, s2, r in row] for row in rows] for rows in table]  # of no dimension
    assert (FiniteMDP(outcomes=arrays, horizon=2).kernel() == mdp.kernel()).all()
    assert mdp.truth.outcomes.start.tolist() == [0, 2, 3]
    assert mdp.truth.outcomes.next_state.tolist() == [1, 1, 0]
    assert mdp.truth.probability.tolist() == [[0.5, 0.5, 1.0]]
    assert mdp.truth.base_reward.tolist() == [0.0, 0.25]  # the outcome that never happens is known, too
    assert mdp.truth.outcomes.bonus.tolist() == [0.5, 1.0, 0.0]
    known = mdp.known.transition_rewards
    assert known is not None
    assert known.next_state.tolist() == [0, 1, 1, 0]
    assert known.bonus.tolist() == [0.0, 0.5, 1.0, 0.0]
    assert mdp.kernel().tolist() == [[[0.0, 1.0]], [[1.0, 0.0]]]
    assert mdp.optimal_values[0].tolist() == [1.0, 1.0]


def test_an_end_is_added_only_where_the_target_would_go_on() -> None:
    # Both actions of state 0 end the episode: one in state 1, which rests, one in state 2, which would pay again.
    table = [
        [[(1.0, 1, 0.5, True)], [(1.0, 2, 0.25, True)]],
        [[(1.0, 1, 0.0, True)], [(1.0, 1, 0.0, True)]],
        [[(1.0, 2, 1.0, False)], [(1.0, 2, 1.0, False)]],
    ]
    mdp = FiniteMDP(outcomes=table, horizon=3, initial_state=[0.5, 0.0, 0.5])
    assert mdp.states == 4
    assert mdp.kernel()[0].tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert mdp.optimal_values[0].tolist() == [0.5, 0.0, 3.0, 0.0]
    assert mdp.initial_distribution.tolist() == [0.5, 0.0, 0.5, 0.0]

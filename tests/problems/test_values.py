"""Exact values: against every trajectory and every policy of tiny problems, and against what must always hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamrl._core import bellman
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Ints

Reward = Callable[[int, int, int], float]


def reward_function(reward: Floats) -> Reward:
    """Return r(s, a, s') for a table r[s, a] or r[s, a, s']."""
    return lambda s, a, after: float(reward[s, a] if reward.ndim == 2 else reward[s, a, after])


def value_by_trajectories(transition: Floats, reward: Floats, policy: Floats, first: int) -> float:
    """Sum probability times return over all trajectories from ``first``; transition [H, S, A, S], policy [H, S, A]."""
    horizon, states, actions, _ = transition.shape
    r = reward_function(reward)
    value = 0.0
    for moves in itertools.product(itertools.product(range(actions), range(states)), repeat=horizon):
        s, probability, total = first, 1.0, 0.0
        for h, (a, after) in enumerate(moves):
            probability *= policy[h, s, a] * transition[h, s, a, after]
            total += r(s, a, after)
            s = after
        value += probability * total
    return value


def deterministic_policies(horizon: int, states: int, actions: int) -> Iterator[Ints]:
    """Yield every map from (h, s) to an action."""
    for choice in itertools.product(range(actions), repeat=horizon * states):
        yield np.array(choice, np.int64).reshape(horizon, states)


def one_hot(policy: Ints, actions: int) -> Floats:
    """Return a deterministic policy as probabilities."""
    return np.eye(actions)[policy]


S, A, H = 2, 2, 3


def tiny(seed: int, per_step: bool, on_transitions: bool) -> tuple[Floats, Floats]:
    """Return transition [H or 1, S, A, S] and reward of a random tiny problem."""
    draw = np.random.default_rng(seed)
    transition = draw.dirichlet(np.full(S, 0.7), (H if per_step else 1, S, A))
    return transition, draw.random((S, A, S) if on_transitions else (S, A))


def build(transition: Floats, reward: Floats, horizon: int = H) -> FiniteMDP:
    return FiniteMDP(transition=transition if len(transition) > 1 else transition[0], reward=reward, horizon=horizon)


def every_step(transition: Floats) -> Floats:
    return np.broadcast_to(transition, (H, S, A, S))


KINDS = pytest.mark.parametrize(
    ("per_step", "on_transitions"), [(False, False), (True, False), (False, True), (True, True)]
)


@KINDS
def test_optimum_is_the_best_of_all_policies(per_step: bool, on_transitions: bool) -> None:
    transition, reward = tiny(1, per_step, on_transitions)
    mdp = build(transition, reward)
    for first in range(S):
        best = max(
            value_by_trajectories(every_step(transition), reward, one_hot(policy, A), first)
            for policy in deterministic_policies(H, S, A)
        )
        assert mdp.optimal_values[0, first] == pytest.approx(best, abs=1e-12)
    np.testing.assert_allclose(mdp.evaluate(mdp.optimal_policy), mdp.optimal_values, rtol=0, atol=1e-14)


@KINDS
def test_evaluation_is_the_sum_over_trajectories(per_step: bool, on_transitions: bool) -> None:
    transition, reward = tiny(2, per_step, on_transitions)
    mdp = build(transition, reward)
    mixed = np.random.default_rng(3).dirichlet(np.ones(A), (H, S))
    chosen = np.random.default_rng(4).integers(0, A, (H, S))
    for first in range(S):
        expected = value_by_trajectories(every_step(transition), reward, mixed, first)
        assert mdp.evaluate(mixed)[0, first] == pytest.approx(expected, abs=1e-12)
        expected = value_by_trajectories(every_step(transition), reward, one_hot(chosen, A), first)
        assert mdp.evaluate(chosen)[0, first] == pytest.approx(expected, abs=1e-12)


def test_ties_go_to_the_smallest_action() -> None:
    mdp = FiniteMDP(transition=np.ones((1, 4, 1)), reward=[[0.2, 0.7, 0.7, 0.1]], horizon=2)
    assert mdp.optimal_policy.tolist() == [[1], [1]]


@pytest.mark.parametrize("horizon", [1, 2, 5, 6])
@pytest.mark.parametrize("per_step", [False, True])
def test_hot_loop_kernels_agree_with_evaluate(horizon: int, per_step: bool) -> None:
    draw = np.random.default_rng(6)
    states, actions = 5, 3
    shape = (horizon, states, actions) if per_step else (states, actions)
    transition = draw.dirichlet(np.ones(states), shape)
    mdp = FiniteMDP(transition=transition, reward=draw.random((states, actions, states)), horizon=horizon)
    outcomes, probability, _, base_reward, *_ = mdp.truth
    policy = draw.integers(0, actions, (horizon, states))

    out = np.full((2, states), np.nan)  # whatever the scratch held before must not matter
    bellman.policy_values(mdp.truth, policy, out)
    np.testing.assert_array_equal(out[0], mdp.evaluate(policy)[0])

    out[...] = np.nan
    bellman.uniform_policy_values(outcomes, probability, base_reward, horizon, actions, out)
    uniform = np.full((horizon, states, actions), 1.0 / actions)
    np.testing.assert_allclose(out[0], mdp.evaluate(uniform)[0], rtol=1e-13)


sizes = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 6))


@given(sizes, st.integers(0, 2**32 - 1), st.booleans())
def test_invariants(size: tuple[int, int, int], seed: int, on_transitions: bool) -> None:
    states, actions, horizon = size
    draw = np.random.default_rng(seed)
    transition = draw.dirichlet(np.full(states, 0.3), (states, actions))
    reward = draw.random((states, actions, states) if on_transitions else (states, actions))
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=horizon)
    optimal = mdp.optimal_values
    value = mdp.evaluate(draw.dirichlet(np.ones(actions), (horizon, states)))

    assert optimal.shape == value.shape == (horizon + 1, states)
    assert (optimal[horizon] == 0.0).all()
    assert (value <= optimal + 1e-12).all()
    left = np.arange(horizon, -1, -1.0)[:, np.newaxis]  # H - h + 1 for the h of the formulas
    assert (optimal >= 0.0).all()
    assert (optimal <= left + 1e-12).all()
    longer = FiniteMDP(transition=transition, reward=reward, horizon=horizon + 1).optimal_values
    assert (longer[0] >= optimal[0]).all()  # rewards are not negative
    np.testing.assert_array_equal(longer[1:], optimal)  # steps to go are what counts

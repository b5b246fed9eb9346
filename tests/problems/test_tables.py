"""Tables of outcomes, Gymnasium's own among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats


def optimum_of_table(table: Any, horizon: int) -> Floats:
    """Return V* [H + 1, S] of an episode that really ends where a table says so."""
    values = np.zeros((horizon + 1, len(table)))
    for h in range(horizon - 1, -1, -1):
        for s in range(len(table)):
            values[h, s] = max(
                sum(p * (r + (0.0 if done else values[h + 1, after])) for p, after, r, done in table[s][a])
                for a in range(len(table[s]))
            )
    return values


def test_frozen_lake_needs_no_state_more() -> None:
    table = FrozenLakeEnv(is_slippery=True).P
    mdp = FiniteMDP(outcomes=table, horizon=30)
    assert (mdp.states, mdp.actions) == (16, 4)
    np.testing.assert_allclose(mdp.optimal_values, optimum_of_table(table, 30), rtol=0, atol=1e-13)
    assert mdp.optimal_value > 0.1  # the comparison is not one of zeros
    assert mdp.known.transition_rewards is not None


@pytest.mark.parametrize("slippery", [False, True])
def test_cliff_walking_ends_in_a_state_of_its_own(slippery: bool) -> None:
    table, horizon = CliffWalkingEnv(is_slippery=slippery).P, 40
    mdp = FiniteMDP.from_outcomes(table, horizon=horizon, initial_state=36, reward_range=(-100.0, 0.0))
    assert (mdp.states, mdp.actions) == (49, 4)
    steps_left = np.arange(horizon, -1, -1.0)[:, np.newaxis]
    original = 100.0 * (mdp.optimal_values - steps_left)  # undo r -> (r + 100) / 100, once for every step left
    np.testing.assert_allclose(original[:, :48], optimum_of_table(table, horizon), rtol=0, atol=1e-9)
    if not slippery:
        assert original[0, 36] == pytest.approx(-13.0)  # up, eleven to the right, down
        assert mdp.known.transition_rewards is None  # a single outcome everywhere


def test_slippery_cliff_walking_has_two_rewards_for_one_next_state() -> None:
    table = CliffWalkingEnv(is_slippery=True).P
    mdp = FiniteMDP.from_outcomes(table, horizon=3, reward_range=(-100.0, 0.0))
    rewards = mdp.known.transition_rewards
    assert rewards is not None
    twice = [
        (start, end)
        for start, end in zip(rewards.start[:-1], rewards.start[1:], strict=True)
        if len(set(rewards.next_state[start:end])) < end - start
    ]
    assert twice
    start, end = twice[0]
    assert sorted(set(np.round(rewards.bonus[start:end], 12))) == [0.0, 0.99]


def test_ignoring_the_flags_goes_on_after_the_end() -> None:
    table = CliffWalkingEnv().P
    assert FiniteMDP.from_outcomes(table, horizon=3, absorb=False, reward_range=(-100.0, 0.0)).states == 48


def test_repeated_outcomes_are_added_and_different_rewards_kept_apart() -> None:
    table = [[[(0.25, 1, 0.5), (0.25, 1, 0.5), (0.5, 1, 1.0), (0.0, 0, 0.0)]], [[(1.0, 0, 0.25)]]]
    mdp = FiniteMDP(outcomes=table, horizon=2)
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


def test_mappings_and_sequences_are_the_same() -> None:
    as_lists = [[[(1.0, 1, 0.0)], [(1.0, 0, 0.5)]], [[(0.5, 0, 1.0), (0.5, 1, 0.0)], [(1.0, 1, 0.25)]]]
    as_mapping = {s: dict(reversed(list(enumerate(row)))) for s, row in reversed(list(enumerate(as_lists)))}
    one, other = (FiniteMDP(outcomes=table, horizon=4) for table in (as_lists, as_mapping))
    np.testing.assert_array_equal(one.optimal_values, other.optimal_values)
    np.testing.assert_array_equal(one.truth.cumulative, other.truth.cumulative)


def test_a_table_equals_the_arrays_it_lists() -> None:
    draw = np.random.default_rng(0)
    transition, reward = draw.dirichlet(np.ones(3), (3, 2)), draw.random((3, 2, 3))
    table = [[[(transition[s, a, t], t, reward[s, a, t]) for t in range(3)] for a in range(2)] for s in range(3)]
    arrays = FiniteMDP(transition=transition, reward=reward, horizon=4)
    np.testing.assert_array_equal(FiniteMDP(outcomes=table, horizon=4).optimal_values, arrays.optimal_values)


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

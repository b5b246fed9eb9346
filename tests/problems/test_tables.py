"""Tables of outcomes; Gymnasium's own are in tests/environments/test_tables.py."""

from __future__ import annotations

import numpy as np

from occamrl.problems.mdp import FiniteMDP


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

"""Slow and independent: values by listing every trajectory, optima by listing every policy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

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

r"""Dynamic programming over outcomes: optimal values, policy evaluation, many kernels at once, and ranges of targets.

A kernel is a matrix [S*A, S] with the expected reward of each pair beside it, so that

.. math:: Q_h(s, a) = r(s, a) + \gamma \sum_{s'} P(s'|s, a) V_{h+1}(s'), \qquad V_h(s) = \max_a Q_h(s, a)

and V_{H+1} = 0. The discount gamma is 1 unless a model says otherwise; an action that is not allowed has the reward
minus infinity.

Arrays count steps from 0: ``values[0]`` is V_1 and ``values[H]`` is V_{H+1}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl.protocols import Floats, Ints, Known, Outcomes

_DENSE = 2**16  # entries of a matrix below which a dense product is the faster one


class Kernel(NamedTuple):
    """A kernel as dynamic programming needs it."""

    matrix: Any  # [S*A, S], dense or scipy.sparse, times the discount
    reward: Floats  # [S*A] expected, outcomes' bonuses included; minus infinity where a pair is not allowed


def kernel_of(outcomes: Outcomes, probability: Floats, known: Known) -> Kernel:
    """Return the kernel with one probability per outcome, and the rewards of a problem."""
    pairs, states = outcomes.start.size - 1, known.states
    discounted = probability if known.discount == 1.0 else known.discount * probability
    matrix: Any = sp.csr_array(
        (discounted, outcomes.next_state, outcomes.start), shape=(pairs, states)
    )
    reward = known.base_reward.ravel()
    if outcomes.bonus.any():
        reward = reward + np.add.reduceat(probability * outcomes.bonus, outcomes.start[:-1])
    return Kernel(matrix.toarray() if pairs * states <= _DENSE else matrix, reward)


def lookahead(kernel: Kernel, values: Floats) -> Floats:
    """Return Q [S, A] for the values [S] of the next step."""
    return np.asarray(kernel.reward + kernel.matrix @ values).reshape(values.size, -1)


def solve(kernels: Sequence[Kernel], states: int, horizon: int) -> tuple[Floats, Ints]:
    """Return the optimal values [H + 1, S] and policy [H, S] under one kernel, or one per step; ties: first action."""
    values, policy = np.zeros((horizon + 1, states)), np.zeros((horizon, states), dtype=np.int64)
    for h in reversed(range(horizon)):
        q = lookahead(kernels[h if len(kernels) > 1 else 0], values[h + 1])
        policy[h] = q.argmax(axis=1)
        values[h] = q.max(axis=1)
    return values, policy


def evaluate(kernels: Sequence[Kernel], policy: Any) -> Floats:
    """Return V^pi [H + 1, S] of actions [H, S] or of action probabilities [H, S, A], exactly."""
    horizon, states = policy.shape[:2]
    values, every = np.zeros((horizon + 1, states)), np.arange(states)
    for h in reversed(range(horizon)):
        q = lookahead(kernels[h if len(kernels) > 1 else 0], values[h + 1])
        if policy.ndim == 2:
            values[h] = q[every, policy[h]]
        else:  # what is not allowed has no share
            values[h] = (np.where(policy[h] > 0.0, q, 0.0) * policy[h]).sum(axis=1)
    return values


def first_values(outcomes: Outcomes, probability: Floats, known: Known) -> Floats:
    """Return V*_1 [n, S] of each of n kernels, whose probabilities are [n, O]."""
    start, after, bonus = outcomes.start[:-1], outcomes.next_state, outcomes.bonus
    reward = known.base_reward.ravel() + np.add.reduceat(probability * bonus, start, axis=1)
    values = np.zeros((len(probability), known.states))
    for _ in range(known.horizon):
        expected = np.add.reduceat(probability * known.discount * values[:, after], start, axis=1)
        values = (reward + expected).reshape(*values.shape, -1).max(axis=2)
    return values


def ranges(outcomes: Outcomes, values: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest bonus + V over the outcomes of each pair [S*A]."""
    target = values[outcomes.next_state]
    if outcomes.bonus.any():
        target = target + outcomes.bonus
    return np.minimum.reduceat(target, outcomes.start[:-1]), np.maximum.reduceat(
        target, outcomes.start[:-1]
    )

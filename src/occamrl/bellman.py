r"""Dynamic programming over outcomes: optimal values, policy evaluation, many kernels at once.

A kernel is a matrix [S*A, S] with the expected reward of each pair beside it, so that

.. math:: Q_h(s, a) = r(s, a) + \gamma \sum_{s'} P(s'|s, a) V_{h+1}(s'),
          \qquad V_h(s) = \max_a Q_h(s, a)

and V_{H+1} = 0. The discount gamma is 1 unless a model says otherwise; an action that is not
allowed has the reward minus infinity.

Arrays count steps from 0: ``values[0]`` is V_1 and ``values[H]`` is V_{H+1}.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from occamrl.protocols import Floats, Ints, Known, Outcomes

Matrix = Floats | sp.csr_array

_SMALL = 2**16  # entries of a matrix below which a dense product is the faster one
_LARGE = 2**14  # outcomes from which on it pays to look whether all pairs have as many
_BLOCK = 2**13  # pairs whose outcomes stay in the cache of a processor
_LONG = 32  # maxima over all states at once pay with so many for each of at most 32 actions


class Kernel(NamedTuple):
    """A kernel as dynamic programming needs it."""

    matrix: Matrix  # [S*A, S], times the discount
    reward: Floats  # [S*A] expected, bonuses included; minus infinity: the pair is not allowed


Kernels = Sequence[Kernel]  # of a model: one that serves all steps, or one for each


def kernel_of(outcomes: Outcomes, probability: Floats, known: Known) -> Kernel:
    """Return the kernel with one probability per outcome, and the rewards of a problem."""
    discounted = probability
    if known.discount != 1.0:  # else without a copy: the matrix shares the arrays of the problem
        discounted = known.discount * probability
    shape = (outcomes.start.size - 1, known.states)
    matrix = sp.csr_array((discounted, outcomes.next_state, outcomes.start), shape=shape)
    reward = known.base_reward.ravel()
    if outcomes.bonus.any():
        reward = reward + np.add.reduceat(probability * outcomes.bonus, outcomes.start[:-1])
    return Kernel(dense_if_faster(matrix), reward)


def layers_of(outcomes: Outcomes, known: Known) -> list[slice]:
    """Return where the outcomes of each layer stand: one layer, or one for each step."""
    pairs = known.states * known.actions
    ends = outcomes.start[::pairs].tolist()
    return [slice(first, last) for first, last in itertools.pairwise(ends)]


def kernels_of(outcomes: Outcomes, probability: Floats, known: Known) -> list[Kernel]:
    """Return the kernel, or one for each step, of outcomes of one layer, or of one for each."""
    layers = layers_of(outcomes, known)
    if len(layers) == 1:
        return [kernel_of(outcomes, probability, known)]
    pairs = known.states * known.actions
    kernels = []
    for layer, part in enumerate(layers):
        start = outcomes.start[layer * pairs : (layer + 1) * pairs + 1] - part.start
        here = Outcomes(start, outcomes.next_state[part], outcomes.bonus[part])
        kernels.append(kernel_of(here, probability[part], known))
    return kernels


def dense_if_faster(matrix: sp.csr_array) -> Matrix:
    """Return a csr matrix as an array if products are faster with that."""
    if dense_pays(matrix.nnz, matrix.shape):
        return np.asarray(matrix.toarray())
    return matrix


def dense_pays(stored: int, shape: tuple[int, int]) -> bool:
    """Return whether products with a matrix of so many non-zero entries are faster dense."""
    size = shape[0] * shape[1]
    return size <= _SMALL or 3 * stored >= size


def turned(kernels: Kernels) -> Kernels:
    """Return kernels whose rewards are costs; what is not allowed stays so."""
    turned = []
    for kernel in kernels:
        cost = np.where(np.isfinite(kernel.reward), -kernel.reward, -np.inf)
        turned.append(Kernel(kernel.matrix, cost))
    return turned


def lookahead(kernel: Kernel, values: Floats) -> Floats:
    """Return Q [S, A] for the values [S] of the next step."""
    q = np.asarray(kernel.matrix @ values)
    q += kernel.reward
    return q.reshape(values.size, -1)


def maximise(q: Floats, best: Floats, first: Ints) -> None:
    """Write the maximum over actions of Q [S, A] to ``best`` [S], and the first that attains it."""
    states, actions = q.shape
    if actions > _LONG or states < _LONG * actions:
        q.argmax(axis=1, out=first)
        q.max(axis=1, out=best)
        return
    # NumPy handles a long row quickly, and many short ones slowly: one row per action.
    by_action = np.ascontiguousarray(q.T)
    by_action.max(axis=0, out=best)
    # The first maximiser is the number of actions up to which none attained the maximum.
    missed = by_action[0] != best
    count = missed.astype(np.uint8)
    for row in by_action[1:-1]:
        missed &= row != best
        count += missed
    first[:] = count


def at_step(kernels: Kernels, h: int) -> Kernel:
    """Return the kernel of a step, from 0."""
    return kernels[h % len(kernels)]


def solve(kernels: Kernels, states: int, horizon: int) -> tuple[Floats, Ints]:
    """Return the optimal values [H + 1, S] and policy [H, S] under one kernel, or one per step.

    Ties go to the first action.
    """
    values = np.zeros((horizon + 1, states))
    policy = np.zeros((horizon, states), dtype=np.int64)
    for h in reversed(range(horizon)):
        q = lookahead(at_step(kernels, h), values[h + 1])
        maximise(q, values[h], policy[h])
    return values, policy


def evaluate(kernels: Kernels, policy: NDArray[np.generic]) -> Floats:
    """Return V^pi [H + 1, S] of actions [H, S] or of action probabilities [H, S, A], exactly."""
    horizon, states = policy.shape[:2]
    values = np.zeros((horizon + 1, states))
    every = np.arange(states)
    for h in reversed(range(horizon)):
        q = lookahead(at_step(kernels, h), values[h + 1])
        if policy.ndim == 2:
            values[h] = q[every, policy[h]]
        else:
            # What is not allowed has no share, and 0 times minus infinity is no number.
            share = np.asarray(policy[h], dtype=np.float64)
            values[h] = (np.where(share > 0.0, q, 0.0) * share).sum(axis=1)
    return values


def visits(kernels: Kernels, policy: Ints, start: Floats, discount: float) -> Floats:
    """Return the chance to be in each state at each step [H, S] of a policy [H, S]."""
    states = policy.shape[1]
    visits = np.zeros(policy.shape)
    here = start
    for h, actions in enumerate(policy):
        visits[h] = here
        matrix = at_step(kernels, h).matrix
        pairs = np.arange(states) * (matrix.shape[0] // states) + actions
        # the matrix has the discount inside
        here = np.asarray(here @ matrix[pairs]) / discount
    return visits


def first_values(outcomes: Outcomes, probability: Floats, known: Known) -> Floats:
    """Return V*_1 [n, S] of each of n kernels, whose probabilities are [n, O]."""
    bonus = np.add.reduceat(probability * outcomes.bonus, outcomes.start[:-1], axis=1)
    layers = layers_of(outcomes, known)
    pairs = known.states * known.actions
    reward = known.base_reward.ravel() + bonus.reshape(-1, len(layers), pairs)
    values = np.zeros((len(probability), known.states))
    for h in reversed(range(known.horizon)):
        layer = h % len(layers)
        part = layers[layer]
        start = outcomes.start[layer * pairs : (layer + 1) * pairs] - part.start
        following = known.discount * values[:, outcomes.next_state[part]]
        q = reward[:, layer] + np.add.reduceat(probability[:, part] * following, start, axis=1)
        q = q.reshape(*values.shape, known.actions)
        # Action by action, because maxima over short rows are slow.
        values = q[..., 0]
        for a in range(1, known.actions):
            values = np.maximum(values, q[..., a])
    return values


def ranges(outcomes: Outcomes, values: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest bonus + V over the outcomes of each pair [S*A]."""
    count = outcomes.next_state.size
    width = count // (outcomes.start.size - 1)
    if count >= _LARGE and (np.diff(outcomes.start) == width).all():
        return _even_ranges(outcomes, values, width)
    target = values[outcomes.next_state]
    if outcomes.bonus.any():
        target += outcomes.bonus
    start = outcomes.start[:-1]
    return np.minimum.reduceat(target, start), np.maximum.reduceat(target, start)


def _even_ranges(outcomes: Outcomes, values: Floats, width: int) -> tuple[Floats, Floats]:
    """Return the ranges of pairs that all have ``width`` outcomes, several times as fast."""
    next_state = outcomes.next_state.reshape(-1, width)
    bonus = outcomes.bonus.reshape(-1, width)
    paid = bool(bonus.any())
    low = np.empty(len(next_state))
    high = np.empty(len(next_state))
    for first in range(0, len(next_state), _BLOCK):
        block = slice(first, first + _BLOCK)
        target = values[next_state[block]]
        if paid:
            target += bonus[block]
        low[block] = target[:, 0]
        high[block] = target[:, 0]
        for column in target.T[1:]:
            np.minimum(low[block], column, out=low[block])
            np.maximum(high[block], column, out=high[block])
    return low, high

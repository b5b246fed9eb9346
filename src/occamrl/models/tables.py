"""Tables of counts as small models: careful plans, and what policies are worth in them.

An action that was never tried in a state counts as what was done there instead, on average, so that
a policy gains nothing by it. States in which nothing was done lead to one that is *unknown*, the
last one, where every step earns what steps earn on average; plans take it for the worst there is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.bellman import Kernel

ENDED = -1  # the next state of a step that ended its episode
_TINY = 1e-12  # visits that are none


class TableRows(NamedTuple):
    """Steps, and the unit of each: what is drawn together, such as an episode."""

    unit: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    reward: Floats
    first: Ints  # the rows that count as starts
    states: int
    actions: int
    units: int

    def merge(self, states: int, group: Ints) -> TableRows:
        """Return the rows with other, fewer states; ``group`` [S] says which."""
        following = np.where(self.next_state == ENDED, ENDED, group[self.next_state])
        return self._replace(state=group[self.state], next_state=following, states=states)


class CountedTable(NamedTuple):
    """What some units have counted; states are one more than those of the rows: unknown."""

    kernel: Kernel
    visits: Floats  # [(S+1)*A]
    variance: Floats  # [(S+1)*A] of the reward
    start: Floats  # [S+1] the law of starts
    least: float  # the smallest reward


def _shares(origin: Ints, rows: TableRows, weights: Floats, origins: int) -> sp.csr_array:
    """Return how often each state comes next [origins, S+1]; ends are missing from the sums."""
    states = rows.states + 1
    total = np.bincount(origin, weights, origins)
    goes_on = rows.next_state != ENDED
    shares = weights[goes_on] / np.maximum(total[origin[goes_on]], _TINY)
    places = (origin[goes_on], rows.next_state[goes_on])
    return sp.csr_array((shares, places), shape=(origins, states))


def count_table(rows: TableRows, weight: Floats) -> CountedTable:
    """Count steps, each as often as its unit weighs."""
    states = rows.states + 1
    pairs = states * rows.actions
    pair = rows.state * rows.actions + rows.action
    weights = weight[rows.unit]
    visits = np.bincount(pair, weights, pairs).astype(np.float64)
    divisor = np.maximum(visits, _TINY)
    mean = np.bincount(pair, weights * rows.reward, pairs) / divisor
    squared = np.bincount(pair, weights * np.square(rows.reward), pairs) / divisor
    variance = np.maximum(squared - np.square(mean), 0.0)
    # untried actions: what was done in that state instead
    visited = np.maximum(np.bincount(rows.state, weights, states), _TINY)
    state_mean = np.bincount(rows.state, weights * rows.reward, states) / visited
    untried = np.flatnonzero(visits == 0.0)
    origin = untried // rows.actions
    mean[untried] = state_mean[origin]
    borrow = sp.csr_array((np.ones(untried.size), (untried, origin)), shape=(pairs, states))
    of_states = _shares(rows.state, rows, weights, states)
    matrix = _shares(pair, rows, weights, pairs) + borrow @ of_states
    # states in which nothing was done
    silent = untried[visited[origin] <= _TINY]
    mean[silent] = float(weights @ rows.reward) / max(float(weights.sum()), _TINY)
    ends = (silent, np.full(silent.size, rows.states))
    matrix = matrix + sp.csr_array((np.ones(silent.size), ends), shape=(pairs, states))
    start = np.bincount(rows.state[rows.first], weights[rows.first], states)
    kernel = Kernel(bellman.dense_if_faster(matrix), mean)
    least = min(0.0, float(rows.reward.min()))
    return CountedTable(kernel, visits, variance, start / max(float(start.sum()), _TINY), least)


def careful_plan(table: CountedTable, horizon: int) -> Ints:
    """Return the policy [H, S+1] whose lower estimate is best, with caution where few have been.

    Of an action that was tried N times a standard error and a share 1/N of the range of what may
    come are taken off. This is a rule of thumb and no bound: what it gives has to be tested.
    """
    states = table.start.size
    policy = np.zeros((horizon, states), np.int64)
    values = np.zeros(states)
    tried = table.visits.reshape(states, -1) > 0.0
    visits = np.maximum(table.visits, 1.0)
    known = tried.any(axis=1)
    matrix = table.kernel.matrix
    for h in reversed(range(horizon)):
        following = np.asarray(matrix @ values)
        variance = np.asarray(matrix @ np.square(values)) - np.square(following)
        error = np.sqrt((np.maximum(variance, 0.0) + table.variance) / visits)
        scale = np.ptp(values) + np.ptp(table.kernel.reward)
        mean = (table.kernel.reward + following).reshape(states, -1)
        lower = mean - (error + scale / visits).reshape(states, -1)
        policy[h] = np.where(tried, lower, -np.inf).argmax(axis=1)
        chosen = np.take_along_axis(mean, policy[h][:, None], axis=1)[:, 0]
        values = np.where(known, chosen, (horizon - h) * table.least)
    return policy


def states_met(table: CountedTable, policy: Ints) -> Bools:
    """Return in which states [H, S] a policy [H, S] may be at a step, by what was counted."""
    horizon, states = policy.shape
    met = np.zeros((horizon, states), bool)
    met[0] = table.start[:states] > 0.0
    actions = table.visits.size // table.start.size
    for h in range(horizon - 1):
        here = np.flatnonzero(met[h])
        following = np.asarray(table.kernel.matrix[here * actions + policy[h, here]].sum(axis=0))
        met[h + 1] = following.ravel()[:states] > 0.0
    return met

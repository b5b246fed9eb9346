"""Tables of counts as small models: careful plans, and what policies are worth in them.

An action that was never tried in a state counts as what was done there instead, on average, so that
a policy gains nothing by it. States in which nothing was done lead to one that is *unknown*, the
last one, where every step earns what steps earn on average; plans take it for the worst there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.bellman import Kernel

ENDED = -1  # the next state of a step that ended its episode
_TINY = 1e-12  # visits that are none


@dataclass(frozen=True, eq=False)
class Cells:
    """What units have done: kinds of steps, and how often each unit took them."""

    pair: Ints  # [C] s*A + a of each kind,
    next_state: Ints  # [C] and what came next
    count: sp.csr_array  # [units, C]
    reward: sp.csr_array  # [units, (S+1)*A] what was earned,
    squared: sp.csr_array  # and its square
    start: sp.csr_array  # [units, S+1]


@dataclass(frozen=True, eq=False)
class TableRows:
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
        return replace(self, state=group[self.state], next_state=following, states=states)

    @cached_property
    def cells(self) -> Cells:
        """The same, added up: there are fewer kinds of steps than steps."""
        pair = self.state * self.actions + self.action
        # ENDED is -1
        kinds, cell = np.unique(pair * (self.states + 1) + self.next_state + 1, return_inverse=True)
        pairs = (self.states + 1) * self.actions
        first = self.first
        starts = self._by_unit(first, np.ones(first.size), self.state[first], self.states + 1)
        every = np.arange(pair.size)
        return Cells(
            pair=kinds // (self.states + 1),
            next_state=kinds % (self.states + 1) - 1,
            count=self._by_unit(every, np.ones(pair.size), cell, kinds.size),
            reward=self._by_unit(every, self.reward, pair, pairs),
            squared=self._by_unit(every, np.square(self.reward), pair, pairs),
            start=starts,
        )

    def _by_unit(self, rows: Ints, amounts: Floats, place: Ints, places: int) -> sp.csr_array:
        """Add up amounts of some rows by unit and place."""
        return sp.csr_array((amounts, (self.unit[rows], place)), shape=(self.units, places))


class CountedTable(NamedTuple):
    """What some units have counted; states are one more than those of the rows: unknown."""

    kernel: Kernel
    visits: Floats  # [(S+1)*A]
    variance: Floats  # [(S+1)*A] of the reward
    start: Floats  # [S+1] the law of starts
    least: float  # the smallest reward


def _shares(origin: Ints, cells: Cells, weights: Floats, shape: tuple[int, int]) -> sp.csr_array:
    """Return how often each state comes next [origins, S+1]; ends are missing from the sums."""
    total = np.bincount(origin, weights, shape[0])
    goes_on = cells.next_state != ENDED
    shares = weights[goes_on] / np.maximum(total[origin[goes_on]], _TINY)
    return sp.csr_array((shares, (origin[goes_on], cells.next_state[goes_on])), shape=shape)


def count_table(rows: TableRows, weight: Floats) -> CountedTable:
    """Count steps, each as often as its unit weighs."""
    cells = rows.cells
    states = rows.states + 1
    pairs = states * rows.actions
    weights = weight @ cells.count
    visits = np.bincount(cells.pair, weights, pairs).astype(np.float64)
    divisor = np.maximum(visits, _TINY)
    reward = weight @ cells.reward
    mean = reward / divisor
    variance = np.maximum(weight @ cells.squared / divisor - np.square(mean), 0.0)
    # untried actions: what was done in that state instead
    visited = np.maximum(visits.reshape(states, -1).sum(axis=1), _TINY)
    state_mean = reward.reshape(states, -1).sum(axis=1) / visited
    untried = np.flatnonzero(visits == 0.0)
    origin = untried // rows.actions
    mean[untried] = state_mean[origin]
    borrow = sp.csr_array((np.ones(untried.size), (untried, origin)), shape=(pairs, states))
    of_states = _shares(cells.pair // rows.actions, cells, weights, (states, states))
    matrix = _shares(cells.pair, cells, weights, (pairs, states)) + borrow @ of_states
    # states in which nothing was done
    silent = untried[visited[origin] <= _TINY]
    mean[silent] = float(reward.sum()) / max(float(weights.sum()), _TINY)
    ends = (silent, np.full(silent.size, rows.states))
    matrix = matrix + sp.csr_array((np.ones(silent.size), ends), shape=(pairs, states))
    start = weight @ cells.start
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

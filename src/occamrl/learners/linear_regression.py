"""Value-targeted ridge regression (M8): rows into Sigma and xy, and the factors, estimates and norms that follow.

Between two plans the policy and the values are fixed, so all rows seen at the same (h, s) have the same x: only how
many there were and the sum of their targets is kept, and Sigma is touched when the next plan is due. An episode that
does not replan costs O(H), whatever d is. Targets are summed as differences from the first one of their cell: where the
range of a target function is tiny, its weight 1/R (M23) would turn the rounding of a sum of large numbers into data.

A learner may plan with some coordinates D only and still enter its rows in all of them (M17): Sigma and xy are then
those of all coordinates, while factor, theta, logdet and every plan belong to the [D, D] block.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from occamrl._core.compile import compiled, hot, hot_inline
from occamrl._core.features import contract, fill_target
from occamrl._core.regression import (
    Blocks,
    add_row,
    block_matrix,
    block_vector,
    invert_factor,
    solve,
    squared_norm,
    stacked,
    sum_of,
)
from occamrl.learners.linear_state import LOGDET, TOUCHED, TRACE, LinearModel, LinearState
from occamrl.models.features import FeatureMap
from occamrl.protocols import Floats, Ints, Known


def linear_state(
    features: FeatureMap,
    known: Known,
    regularization: float,
    active: Ints | None,
    *,
    steps: int,
    rewards: Any,
) -> LinearState:
    """Return the state before any data, for plans on all coordinates of a map or on some of them."""
    blocks = stacked(features.blocks, steps)
    states, horizon = known.states, known.horizon
    sigma = np.zeros(int(blocks.matrix_start[-1]))
    for n in np.unique(blocks.size):
        begins = blocks.matrix_start[:-1][blocks.size == n]
        sigma[begins[:, None] + np.arange(n) * (n + 1)] = regularization
    d = int(blocks.vector_start[-1]) // steps
    planned = d if active is None else active.size
    state = LinearState(
        sigma=sigma,
        xy=np.zeros(steps * d),
        factor=np.zeros(sigma.size if active is None else steps * planned * planned),
        theta=np.zeros(steps * planned),
        logdet=np.zeros(blocks.size.size),
        values=np.zeros((horizon + 1, states)),
        policy=np.zeros((horizon, states), dtype=np.int64),
        visits=np.zeros((horizon, states), dtype=np.int64),
        first_target=np.zeros((horizon, states)),
        target_sum=np.zeros((horizon, states)),
        norm=np.zeros((horizon, states)),
        touched=np.zeros(horizon * states, dtype=np.int64),
        counters=np.zeros(3, dtype=np.int64),
        growth=np.zeros((steps, 3)),
        rewards=rewards,
    )
    refactor(blocks, regularization, state, active)
    return state


def refactor(blocks: Blocks, regularization: float, state: LinearState, active: Ints | None) -> None:
    """Factorise what plans, as after the statistics were given from elsewhere; ``blocks`` of all steps."""
    if active is None:
        refactor_all(blocks, regularization, state)
    else:
        n, steps = active.size, state.growth.shape[0]
        for t in range(steps):
            refactor_active(active, regularization, state, t, np.empty(n * n + n), np.empty(n * n))
            state.growth[t, LOGDET] = state.logdet[t : t + 1].sum()


@hot
def refactor_block(blocks: Blocks, regularization: float, state: LinearState, b: int, work: Floats) -> None:
    """Factorise one block of Sigma afresh; its inverse factor, log-determinant and estimate follow (M8)."""
    n = blocks.size[b]
    factor = block_matrix(state.factor, blocks, b)
    square = work[: n * n].reshape((n, n))
    logdet = invert_factor(block_matrix(state.sigma, blocks, b), factor, square)
    state.logdet[b] = logdet - n * math.log(regularization)
    solve(factor, block_vector(state.xy, blocks, b), block_vector(state.theta, blocks, b), work)


@hot
def refactor_active(
    active: Ints, regularization: float, state: LinearState, t: int, block: Floats, work: Floats
) -> None:
    """Read the [D, D] block of Sigma and the [D] block of xy of a step, and factorise them (M17)."""
    n, d = active.size, state.xy.size // state.growth.shape[0]
    chosen, rhs = block[: n * n].reshape((n, n)), block[n * n : n * n + n]
    sigma, xy = state.sigma[t * d * d : (t + 1) * d * d], state.xy[t * d : (t + 1) * d]
    for i in range(n):
        row = active[i] * d
        rhs[i] = xy[active[i]]
        for j in range(n):
            chosen[i, j] = sigma[row + active[j]]
    factor = state.factor[t * n * n : (t + 1) * n * n].reshape((n, n))
    logdet = invert_factor(chosen, factor, work[: n * n].reshape((n, n)))
    state.logdet[t] = logdet - n * math.log(regularization)
    solve(factor, rhs, state.theta[t * n : (t + 1) * n], work)


@compiled
def refactor_all(blocks: Blocks, regularization: float, state: LinearState) -> None:
    """Factorise every block."""
    n = blocks.size.max()
    work = np.empty(n * n)
    for b in range(blocks.size.size):
        refactor_block(blocks, regularization, state, b, work)
    sum_logdets(state)


@hot
def sum_logdets(state: LinearState) -> None:
    """Take note of logdet(Sigma / lambda) of every step."""
    steps = state.growth.shape[0]
    per_step = state.logdet.size // steps
    for t in range(steps):
        state.growth[t, LOGDET] = sum_of(state.logdet[t * per_step : (t + 1) * per_step])


@hot_inline
def centre(model: LinearModel, low: float, high: float, target: Floats, count: int) -> tuple[float, float]:
    """Turn a target function W with values in [low, high] into (W - c)/R and return (c, R) (M23).

    Without weights it stays as it is, with (0, 1). R = 0 says that the target is constant: the row carries nothing.
    """
    if not model.weighted:
        return 0.0, 1.0
    spread = high - low
    if spread <= 0.0:
        return low, 0.0
    middle = 0.5 * (low + high)
    for i in range(count):
        target[i] = (target[i] - middle) / spread
    return middle, spread


@hot_inline
def row_of(
    model: LinearModel, features: Any, values: Floats, sa: int, target: Floats, x: Floats
) -> tuple[float, float]:
    """Write the row x of (s, a) for the values of the next step, unless it carries nothing; return (c, R)."""
    outcomes = features.outcomes
    low, high = fill_target(outcomes, sa, values, target)
    middle, spread = centre(model, low, high, target, outcomes.start[sa + 1] - outcomes.start[sa])
    if spread > 0.0:
        contract(features, sa, target, x)
    return middle, spread


@hot
def absorb(model: LinearModel, state: LinearState) -> None:
    """Enter the rows seen since the last refresh into Sigma and xy, and factorise what they changed."""
    blocks = model.blocks
    states = state.policy.shape[1]
    per_step = blocks.size.size // model.steps
    target, x, work, dirty = model.scratch.target, model.scratch.x, model.scratch.work, model.scratch.dirty
    restricted = model.active.size > 0
    for i in range(state.counters[TOUCHED]):
        h, s = divmod(state.touched[i], states)
        count, total = state.visits[h, s], state.target_sum[h, s]
        state.visits[h, s] = 0
        state.target_sum[h, s] = 0.0
        sa = s * model.actions + state.policy[h, s]
        middle, spread = row_of(model, model.row_features, state.values[h + 1], sa, target, x)
        if spread <= 0.0:
            continue
        t = h % model.steps
        b = t * per_step + blocks.of[sa]
        y = (total + count * (state.first_target[h, s] - middle)) / spread
        if restricted:
            d = state.xy.size // model.steps
            add_row(state.sigma[t * d * d : (t + 1) * d * d].reshape((d, d)), count, x)
            xy = state.xy[t * d : (t + 1) * d]
        else:
            add_row(block_matrix(state.sigma, blocks, b), count, x)
            xy = block_vector(state.xy, blocks, b)
        for j in range(xy.size):
            xy[j] += y * x[j]
        dirty[b] = 1
    for i in range(state.counters[TOUCHED]):
        h, s = divmod(state.touched[i], states)
        t = h % model.steps
        b = t * per_step + blocks.of[s * model.actions + state.policy[h, s]]
        if dirty[b]:
            dirty[b] = 0
            if restricted:
                refactor_active(model.active, model.regularization, state, t, model.scratch.block, work)
            else:
                refactor_block(blocks, model.regularization, state, b, work)
    state.counters[TOUCHED] = 0
    for t in range(model.steps):
        state.growth[t, TRACE] = 0.0
    sum_logdets(state)


@hot
def row_norm(model: LinearModel, state: LinearState, h: int, s: int, a: int) -> float:
    """Return ||x||^2 in the inverse of the last factorised Sigma, zero for a row that carries nothing."""
    blocks = model.blocks
    sa = s * model.actions + a
    target, x, work = model.scratch.target, model.scratch.x, model.scratch.work
    _, spread = row_of(model, model.features, state.values[h + 1], sa, target, x)
    if spread <= 0.0:
        return 0.0
    b = (h % model.steps) * (blocks.size.size // model.steps) + blocks.of[sa]
    return squared_norm(block_matrix(state.factor, blocks, b), x, work)

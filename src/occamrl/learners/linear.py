"""Optimistic value-targeted ridge regression in arrays: the machinery shared by UCRL-VTR-LIN and Greedy.

Between two plans the policy and the values are fixed, so all rows seen at the same (h, s) have the same x: only how
many there were and the sum of their targets is kept, and Sigma is touched when the next plan is due. An episode that
does not replan costs O(H), whatever d is. Targets are summed as differences from the first one of their cell: where the
range of a target function is tiny, its weight 1/R (M23) would turn the rounding of a sum of large numbers into data.

Lazy replanning (M12) waits until logdet Sigma has grown by log(1 + c). Because logdet(I + M) <= trace M, the sum of
||x||^2 in the inverse of the last factorised Sigma tells for free when that cannot have happened yet.

A learner may plan with some coordinates D only and still enter its rows in all of them (M17): Sigma and xy are then
those of all coordinates, while factor, theta, logdet and every plan belong to the [D, D] block. The lazy criterion
looks at that block too, because the argument behind M12 is about the ellipsoid that the plan in play was made with.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from occamrl.confidence.radii import ellipsoid_width
from occamrl.contracts import Floats, Ints, Known
from occamrl.families.features import FeatureMap
from occamrl.kernels.batch import (
    BLOCK_PER_PAIR,
    NONE,
    SHARED_BLOCK,
    Batch,
    predict_shared,
    predict_tabular,
    turn_blocks,
)
from occamrl.kernels.compile import compiled, hot, hot_inline, implements
from occamrl.kernels.episodes import CHANGED, PLANNED, follows_policy, observe, plan, planned_value
from occamrl.kernels.features import contract, fill_target
from occamrl.kernels.ridge import (
    Blocks,
    add_row,
    block_matrix,
    block_vector,
    dot,
    invert_factor,
    solve,
    squared_norm,
    sum_of,
)

EPISODES, TOUCHED, PLANS = range(3)  # counters
TRACE, LOGDET, LOGDET_AT_PLAN = range(3)  # growth


class Scratch(NamedTuple):
    """Memory for intermediate results; nothing in it outlives a call."""

    target: Floats  # [most outcomes of an (s, a)]
    x: Floats  # [largest block]
    work: Floats  # [largest block squared]
    block: Floats  # [|D|^2 + |D|] the [D, D] block of Sigma and the [D] block of xy; empty when all coordinates plan
    dirty: Ints  # [B]
    mean: Floats  # [S*A] <x, theta>
    norm: Floats  # [S*A] ||x||^2 in Sigma^{-1}
    middle: Floats  # [S*A] c
    spread: Floats  # [S*A] R
    q: Floats  # [S*A]


class LinearModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    features: Any  # DenseFeatures | SparseFeatures | TabularFeatures, of the coordinates that plan
    blocks: Blocks
    row_features: Any  # the same of all coordinates, in which rows are entered
    active: Ints  # [|D|] the coordinates that plan, among all; empty: every one
    base_reward: Floats  # [S*A]
    horizon: int
    rows: int  # steps that give a row: H - 1, or H when rewards come on transitions (M20)
    dimension: int
    batch: Batch  # used when all (s, a) share one target function
    radius: int
    weighted: bool
    unit: float  # U, the range of a target
    delta: float
    norm_bound: float
    regularization: float
    paper_constant: float
    scale: float
    slack: float  # what the log-determinant of the noise event exceeds that of Sigma by, at most
    estimate_weight: float  # what ||theta||^2 weighs in the radius: lambda of the noise event less that of Sigma
    replan: float
    clip_at_horizon: bool  # the paper's clip at H instead of H - h + 1
    scratch: Scratch


class LinearState(NamedTuple):
    """Statistics, the plan in play, and the rows seen under it."""

    sigma: Floats  # [blocks' matrices] lambda I + sum x x^T, rows before the last refresh; of all coordinates
    xy: Floats  # [d] sum y x, of all coordinates
    factor: Floats  # [blocks' matrices] W with Sigma^{-1} = W W^T
    theta: Floats  # [d] Sigma^{-1} xy
    logdet: Floats  # [B] logdet(Sigma_b / lambda)
    values: Floats  # [H + 1, S] V^k_h
    policy: Ints  # [H, S]
    visits: Ints  # [H, S] rows since the last refresh
    first_target: Floats  # [H, S] W(o) of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target
    norm: Floats  # [H, S] ||x||^2 in Sigma^{-1}, of the cells touched since the last refresh
    touched: Ints  # [H*S] those cells
    counters: Ints  # [3] episodes, number of touched cells, plans
    growth: Floats  # [3] sum of `norm` since the refresh; total logdet at the refresh; at the last plan


follows_policy(LinearState)


def linear_state(features: FeatureMap, known: Known, regularization: float, active: Ints | None = None) -> LinearState:
    """Return the state before any data, for plans on all coordinates of a map or on some of them."""
    blocks = features.blocks
    states, horizon = known.states, known.horizon
    sigma = np.zeros(int(blocks.matrix_start[-1]))
    for n in np.unique(blocks.size):
        begins = blocks.matrix_start[:-1][blocks.size == n]
        sigma[begins[:, None] + np.arange(n) * (n + 1)] = regularization
    d = int(blocks.vector_start[-1])
    planned = d if active is None else active.size
    state = LinearState(
        sigma=sigma,
        xy=np.zeros(d),
        factor=np.zeros(sigma.size if active is None else planned * planned),
        theta=np.zeros(planned),
        logdet=np.zeros(blocks.size.size),
        values=np.zeros((horizon + 1, states)),
        policy=np.zeros((horizon, states), dtype=np.int64),
        visits=np.zeros((horizon, states), dtype=np.int64),
        first_target=np.zeros((horizon, states)),
        target_sum=np.zeros((horizon, states)),
        norm=np.zeros((horizon, states)),
        touched=np.zeros(horizon * states, dtype=np.int64),
        counters=np.zeros(3, dtype=np.int64),
        growth=np.zeros(3),
    )
    refactor(blocks, regularization, state, active)
    return state


def refactor(blocks: Blocks, regularization: float, state: LinearState, active: Ints | None) -> None:
    """Factorise what plans, as after the statistics were given from elsewhere."""
    if active is None:
        refactor_all(blocks, regularization, state)
    else:
        n = active.size
        refactor_active(active, regularization, state, np.empty(n * n + n), np.empty(n * n))
        state.growth[LOGDET] = state.logdet.sum()


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
def refactor_active(active: Ints, regularization: float, state: LinearState, block: Floats, work: Floats) -> None:
    """Read the [D, D] block of Sigma and the [D] block of xy, and factorise them (M17)."""
    n, d = active.size, state.xy.size
    chosen, rhs = block[: n * n].reshape((n, n)), block[n * n : n * n + n]
    for i in range(n):
        row = active[i] * d
        rhs[i] = state.xy[active[i]]
        for j in range(n):
            chosen[i, j] = state.sigma[row + active[j]]
    factor = state.factor.reshape((n, n))
    logdet = invert_factor(chosen, factor, work[: n * n].reshape((n, n)))
    state.logdet[0] = logdet - n * math.log(regularization)
    solve(factor, rhs, state.theta, work)


@compiled
def refactor_all(blocks: Blocks, regularization: float, state: LinearState) -> None:
    """Factorise every block."""
    n = blocks.size.max()
    work = np.empty(n * n)
    for b in range(blocks.size.size):
        refactor_block(blocks, regularization, state, b, work)
    state.growth[LOGDET] = sum_of(state.logdet)


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
    actions = model.base_reward.size // states
    target, x, work, dirty = model.scratch.target, model.scratch.x, model.scratch.work, model.scratch.dirty
    restricted = model.active.size > 0
    for i in range(state.counters[TOUCHED]):
        h, s = divmod(state.touched[i], states)
        count, total = state.visits[h, s], state.target_sum[h, s]
        state.visits[h, s] = 0
        state.target_sum[h, s] = 0.0
        sa = s * actions + state.policy[h, s]
        middle, spread = row_of(model, model.row_features, state.values[h + 1], sa, target, x)
        if spread <= 0.0:
            continue
        b = blocks.of[sa]
        y = (total + count * (state.first_target[h, s] - middle)) / spread
        if restricted:
            add_row(state.sigma.reshape((state.xy.size, state.xy.size)), count, x)
            xy = state.xy[:]
        else:
            add_row(block_matrix(state.sigma, blocks, b), count, x)
            xy = block_vector(state.xy, blocks, b)
        for j in range(xy.size):
            xy[j] += y * x[j]
        dirty[b] = 1
    for i in range(state.counters[TOUCHED]):
        h, s = divmod(state.touched[i], states)
        b = blocks.of[s * actions + state.policy[h, s]]
        if dirty[b]:
            dirty[b] = 0
            if restricted:
                refactor_active(model.active, model.regularization, state, model.scratch.block, work)
            else:
                refactor_block(blocks, model.regularization, state, b, work)
    state.counters[TOUCHED] = 0
    state.growth[TRACE] = 0.0
    state.growth[LOGDET] = sum_of(state.logdet)


@hot
def predict(model: LinearModel, state: LinearState, values: Floats) -> None:
    """Write <x, theta>, ||x||^2 and (c, R) of every (s, a), for the values of the next step, into the scratch."""
    scratch, blocks = model.scratch, model.blocks
    target, x, work = scratch.target, scratch.x, scratch.work
    if model.batch.kind != NONE:
        low, high = fill_target(model.features.outcomes, 0, values, target)
        middle, spread = centre(model, low, high, target, target.size)
        scratch.middle[:] = middle
        scratch.spread[:] = spread
        if spread <= 0.0:
            scratch.mean[:] = 0.0
            scratch.norm[:] = 0.0
        elif model.batch.kind == SHARED_BLOCK:
            factor, theta = block_matrix(state.factor, blocks, 0), block_vector(state.theta, blocks, 0)
            predict_shared(model.batch, factor, theta, target, scratch.mean, scratch.norm)
        else:
            predict_tabular(model.batch, target, scratch.mean, scratch.norm)
        return
    block = 0
    factor, theta = block_matrix(state.factor, blocks, 0), block_vector(state.theta, blocks, 0)
    for sa in range(scratch.mean.size):
        scratch.middle[sa], scratch.spread[sa] = row_of(model, model.features, values, sa, target, x)
        scratch.mean[sa] = 0.0
        scratch.norm[sa] = 0.0
        if scratch.spread[sa] > 0.0:
            if blocks.of[sa] != block:
                block = blocks.of[sa]
                factor, theta = block_matrix(state.factor, blocks, block), block_vector(state.theta, blocks, block)
            scratch.mean[sa] = dot(x, theta, theta.size)
            scratch.norm[sa] = squared_norm(factor, x, work)


@hot
def optimistic_values(model: LinearModel, state: LinearState) -> bool:
    """Plan by M9 (or M11 with range weights); return whether any action changed."""
    horizon, states = state.policy.shape
    pairs = model.base_reward.size
    actions = pairs // states
    mean, norm, q = model.scratch.mean, model.scratch.norm, model.scratch.q
    middle, spread = model.scratch.middle, model.scratch.spread
    if model.batch.kind == BLOCK_PER_PAIR:
        turn_blocks(model.batch, state.factor, state.theta)
    changed = False
    bias = model.estimate_weight * dot(state.theta, state.theta, state.theta.size)
    for h in range(horizon - 1, -1, -1):
        width = ellipsoid_width(
            model.radius,
            model.weighted,
            model.unit,
            horizon,
            h,
            state.counters[EPISODES],
            model.dimension,
            state.growth[LOGDET] + model.slack,
            model.delta,
            model.regularization,
            model.norm_bound,
            model.paper_constant,
        )
        width = model.scale * (width if bias == 0.0 else math.sqrt(width * width + bias))
        ceiling = float(horizon) if model.clip_at_horizon else float(horizon - h)
        predict(model, state, state.values[h + 1])
        if model.weighted:
            for sa in range(pairs):
                estimate = mean[sa] + width * math.sqrt(norm[sa])
                estimate = -0.5 if estimate < -0.5 else estimate
                estimate = 0.5 if estimate > 0.5 else estimate
                q[sa] = model.base_reward[sa] + middle[sa] + spread[sa] * estimate
        else:
            for sa in range(pairs):
                q[sa] = model.base_reward[sa] + mean[sa] + width * math.sqrt(norm[sa])
        for s in range(states):
            choice = 0
            best = q[s * actions]
            for a in range(1, actions):
                if q[s * actions + a] > best:
                    best = q[s * actions + a]
                    choice = a
            state.values[h, s] = min(max(best, 0.0), ceiling)
            if state.policy[h, s] != choice:
                state.policy[h, s] = choice
                changed = True
    return changed


@implements(plan, LinearState, argument=1)
def plan_linear(model: LinearModel, state: LinearState, start: int, key: np.uint64, episode: int) -> int:
    """Replan every time, or when the log-determinant has grown enough (M12)."""
    first = state.counters[PLANS] == 0
    if not first and model.replan > 0.0:
        needed = state.growth[LOGDET_AT_PLAN] + math.log1p(model.replan)
        if state.growth[LOGDET] + state.growth[TRACE] < needed:
            state.counters[EPISODES] += 1
            return 0
        absorb(model, state)
        if state.growth[LOGDET] < needed:
            state.counters[EPISODES] += 1
            return 0
    else:
        absorb(model, state)
    changed = optimistic_values(model, state)
    state.counters[EPISODES] += 1
    state.counters[PLANS] += 1
    state.growth[LOGDET_AT_PLAN] = state.growth[LOGDET]
    return PLANNED | CHANGED if changed or first else PLANNED


@implements(observe, LinearState, argument=1, inline=True)
def observe_linear(model: LinearModel, state: LinearState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Count a row; its x is only computed once per (h, s) and plan."""
    if h >= model.rows:
        return
    target = bonus + state.values[h + 1, s2]
    if state.visits[h, s] == 0:
        state.first_target[h, s] = target
        states = state.policy.shape[1]
        state.touched[state.counters[TOUCHED]] = h * states + s
        state.counters[TOUCHED] += 1
        if model.replan > 0.0:
            state.norm[h, s] = row_norm(model, state, h, s, a)
    state.visits[h, s] += 1
    state.target_sum[h, s] += target - state.first_target[h, s]
    state.growth[TRACE] += state.norm[h, s]


@hot
def row_norm(model: LinearModel, state: LinearState, h: int, s: int, a: int) -> float:
    """Return ||x||^2 in the inverse of the last factorised Sigma, zero for a row that carries nothing."""
    blocks = model.blocks
    sa = s * (model.base_reward.size // state.policy.shape[1]) + a
    target, x, work = model.scratch.target, model.scratch.x, model.scratch.work
    _, spread = row_of(model, model.features, state.values[h + 1], sa, target, x)
    if spread <= 0.0:
        return 0.0
    b = blocks.of[sa]
    return squared_norm(block_matrix(state.factor, blocks, b), x, work)


@implements(planned_value, LinearState, argument=1, inline=True)
def planned_value_linear(model: LinearModel, state: LinearState, s: int) -> float:
    """V^k_1(s)."""
    return state.values[0, s]  # type: ignore[no-any-return]

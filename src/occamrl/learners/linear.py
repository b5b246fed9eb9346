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

One kernel per step is the same regression T = H times, with statistics of their own: block b of step t is block
``t B + b``. A stationary kernel has T = 1. Every ellipsoid has its own radius, and the first that has grown enough
brings a plan.
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
from occamrl.kernels.episodes import CHANGED, PLANNED, follows_policy, hear, observe, plan, planned_value
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
    stacked,
    sum_of,
)
from occamrl.learners.reward_rows import hear_reward, imagine, in_target, reward_of, rewards_due

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
    blocks: Blocks  # of all T steps, one after the other
    row_features: Any  # the same of all coordinates, in which rows are entered
    active: Ints  # [|D|] the coordinates that plan, among all; empty: every one
    rewards: Any  # KnownRewards | EstimatedRewards
    actions: int
    horizon: int
    rows: int  # steps that give a row: H - 1, or H when rewards come on transitions (M20)
    steps: int  # T: 1, or H with one kernel per step
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

    sigma: Floats  # [T * blocks' matrices] lambda I + sum x x^T, rows before the last refresh; of all coordinates
    xy: Floats  # [T*d] sum y x, of all coordinates
    factor: Floats  # [T * blocks' matrices] W with Sigma^{-1} = W W^T
    theta: Floats  # [T*d] Sigma^{-1} xy
    logdet: Floats  # [T*B] logdet(Sigma_b / lambda)
    values: Floats  # [H + 1, S] V^k_h
    policy: Ints  # [H, S]
    visits: Ints  # [H, S] rows since the last refresh
    first_target: Floats  # [H, S] W(o) of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target
    norm: Floats  # [H, S] ||x||^2 in Sigma^{-1}, of the cells touched since the last refresh
    touched: Ints  # [H*S] those cells
    counters: Ints  # [3] episodes, number of touched cells, plans
    growth: Floats  # [T, 3] sum of `norm` since the refresh; total logdet at the refresh; at the last plan
    rewards: Any  # NothingHeard | RewardRows


follows_policy(LinearState)


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
def predict(model: LinearModel, state: LinearState, t: int, values: Floats) -> None:
    """Write <x, theta>, ||x||^2 and (c, R) of every (s, a), for the values of the next step, into the scratch."""
    scratch, blocks = model.scratch, model.blocks
    first = t * (blocks.size.size // model.steps)
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
            factor, theta = block_matrix(state.factor, blocks, first), block_vector(state.theta, blocks, first)
            predict_shared(model.batch, factor, theta, target, scratch.mean, scratch.norm)
        else:
            predict_tabular(model.batch, target, scratch.mean, scratch.norm)
        return
    block = 0
    factor, theta = block_matrix(state.factor, blocks, first), block_vector(state.theta, blocks, first)
    for sa in range(scratch.mean.size):
        scratch.middle[sa], scratch.spread[sa] = row_of(model, model.features, values, sa, target, x)
        scratch.mean[sa] = 0.0
        scratch.norm[sa] = 0.0
        if scratch.spread[sa] > 0.0:
            if blocks.of[sa] != block:
                block = blocks.of[sa]
                factor = block_matrix(state.factor, blocks, first + block)
                theta = block_vector(state.theta, blocks, first + block)
            scratch.mean[sa] = dot(x, theta, theta.size)
            scratch.norm[sa] = squared_norm(factor, x, work)


@hot
def optimistic_values(model: LinearModel, state: LinearState) -> bool:
    """Plan by M9 (or M11 with range weights); return whether any action changed."""
    horizon, states = state.policy.shape
    actions, pairs = model.actions, states * model.actions
    mean, norm, q = model.scratch.mean, model.scratch.norm, model.scratch.q
    middle, spread = model.scratch.middle, model.scratch.spread
    imagine(model.rewards, state.rewards)
    changed = False
    of_matrices, of_vectors = state.factor.size // model.steps, state.theta.size // model.steps
    bias = 0.0
    for h in range(horizon - 1, -1, -1):
        t = h % model.steps
        if h == horizon - 1 or model.steps > 1:
            theta = state.theta[t * of_vectors : (t + 1) * of_vectors]
            bias = model.estimate_weight * dot(theta, theta, of_vectors)
            if model.batch.kind == BLOCK_PER_PAIR:
                turn_blocks(model.batch, state.factor[t * of_matrices : (t + 1) * of_matrices], theta)
        width = ellipsoid_width(
            model.radius,
            model.weighted,
            model.unit,
            horizon,
            h,
            state.counters[EPISODES],
            model.dimension,
            state.growth[t, LOGDET] + model.slack,
            model.delta,
            model.regularization,
            model.norm_bound,
            model.paper_constant,
        )
        width = model.scale * (width if bias == 0.0 else math.sqrt(width * width + bias))
        ceiling = float(horizon) if model.clip_at_horizon else float(horizon - h)
        predict(model, state, t, state.values[h + 1])
        if model.weighted:
            for sa in range(pairs):
                estimate = mean[sa] + width * math.sqrt(norm[sa])
                estimate = -0.5 if estimate < -0.5 else estimate
                estimate = 0.5 if estimate > 0.5 else estimate
                q[sa] = reward_of(model.rewards, h, sa) + middle[sa] + spread[sa] * estimate
        else:
            for sa in range(pairs):
                q[sa] = reward_of(model.rewards, h, sa) + mean[sa] + width * math.sqrt(norm[sa])
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


@hot_inline
def may_be_due(model: LinearModel, state: LinearState) -> bool:
    """Say whether logdet Sigma of some step can have grown by log(1 + c) since the last plan (M12)."""
    enough = math.log1p(model.replan)
    for t in range(model.steps):
        if not state.growth[t, LOGDET] + state.growth[t, TRACE] < state.growth[t, LOGDET_AT_PLAN] + enough:
            return True
    return False


@implements(plan, LinearState, argument=1)
def plan_linear(model: LinearModel, state: LinearState, start: int, key: np.uint64, episode: int) -> int:
    """Replan every time, or when a log-determinant (M12) or the rewards heard have grown enough."""
    first = state.counters[PLANS] == 0
    if not first and model.replan > 0.0 and not rewards_due(model.rewards, state.rewards):
        if not may_be_due(model, state):
            state.counters[EPISODES] += 1
            return 0
        absorb(model, state)  # sets the traces to zero: what was possible is now known
        if not may_be_due(model, state):
            state.counters[EPISODES] += 1
            return 0
    else:
        absorb(model, state)
    changed = optimistic_values(model, state)
    state.counters[EPISODES] += 1
    state.counters[PLANS] += 1
    for t in range(model.steps):
        state.growth[t, LOGDET_AT_PLAN] = state.growth[t, LOGDET]
    return PLANNED | CHANGED if changed or first else PLANNED


@implements(hear, LinearState, argument=1, inline=True)
def hear_linear(model: LinearModel, state: LinearState, h: int, s: int, a: int, reward: float) -> None:
    """Take note of a reward that is to be estimated."""
    hear_reward(model.rewards, state.rewards, h, s * model.actions + a, reward)


@implements(observe, LinearState, argument=1, inline=True)
def observe_linear(model: LinearModel, state: LinearState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Count a row; its x is only computed once per (h, s) and plan."""
    if h >= model.rows:
        return
    target = in_target(model.rewards, bonus) + state.values[h + 1, s2]
    if state.visits[h, s] == 0:
        state.first_target[h, s] = target
        states = state.policy.shape[1]
        state.touched[state.counters[TOUCHED]] = h * states + s
        state.counters[TOUCHED] += 1
        if model.replan > 0.0:
            state.norm[h, s] = row_norm(model, state, h, s, a)
    state.visits[h, s] += 1
    state.target_sum[h, s] += target - state.first_target[h, s]
    state.growth[h % model.steps, TRACE] += state.norm[h, s]


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


@implements(planned_value, LinearState, argument=1, inline=True)
def planned_value_linear(model: LinearModel, state: LinearState, s: int) -> float:
    """V^k_1(s)."""
    return state.values[0, s]  # type: ignore[no-any-return]

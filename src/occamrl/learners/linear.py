"""Optimistic plans over ellipsoids: the machinery shared by UCRL-VTR-LIN and Greedy.

Lazy replanning (M12) waits until logdet Sigma has grown by log(1 + c). Because logdet(I + M) <= trace M, the sum of
||x||^2 in the inverse of the last factorised Sigma tells for free when that cannot have happened yet. Where some
coordinates D plan, the criterion looks at the [D, D] block, because the argument behind M12 is about the ellipsoid that
the plan in play was made with. With one kernel per step every ellipsoid has its own radius, and the first that has
grown enough brings a plan.
"""

from __future__ import annotations

import math

import numpy as np

from occamrl._core.compile import hot, hot_inline, implements
from occamrl._core.features import fill_target
from occamrl._core.loop import CHANGED, PLANNED, follows_policy, hear, observe, plan, planned_value
from occamrl._core.regression import (
    BLOCK_PER_PAIR,
    NONE,
    SHARED_BLOCK,
    block_matrix,
    block_vector,
    dot,
    predict_shared,
    predict_tabular,
    squared_norm,
    turn_blocks,
)
from occamrl.learners.linear_regression import absorb, centre, row_norm, row_of
from occamrl.learners.linear_state import (
    EPISODES,
    LOGDET,
    LOGDET_AT_PLAN,
    PLANS,
    TOUCHED,
    TRACE,
    LinearModel,
    LinearState,
)
from occamrl.learners.radii import ellipsoid_width
from occamrl.learners.rewards import hear_reward, imagine, in_target, reward_of, rewards_due
from occamrl.protocols import Floats

follows_policy(LinearState)


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


@implements(planned_value, LinearState, argument=1, inline=True)
def planned_value_linear(model: LinearModel, state: LinearState, s: int) -> float:
    """V^k_1(s)."""
    return float(state.values[0, s])

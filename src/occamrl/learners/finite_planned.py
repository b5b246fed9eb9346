"""Optimism over a finite family whose values cannot be solved beforehand: unknown rewards, or one kernel per step.

The losses of all members are kept current, for each of T steps (T = 1: one kernel for all), and the sharp set of M24 is
read off them when a plan is due:

    B_t = {P : L_t(P) <= -(U^2/2) log sum_P w(P) exp(-2 L_t(P)/U^2) + (U^2/2) log(T/delta)}.

Of a cover the member nearest to the truth of step t stays in B_t: the bound has U^2 times the term of
:mod:`occamrl.models.finite` for the rows of that step, and T/delta is 2 T/delta.

One kernel for all steps: every member of B is solved for the rewards that the plan counts on, and the one with the
largest value at the start is played (M5). One per step: (P_1, ..., P_H) is any choice from B_1 x ... x B_H, of which
there are too many to list; the plan takes the largest expectation at every (s, a) by itself,

    Q_h(s, a) = r(s, a) + max over P in B_h of (P V_{h+1})(s, a),

which is no smaller than what any choice gives. The class of a ladder that is in play (M25) is the smallest that meets
every B_t. Rows are counted by (h, s) while a plan stays in play; V changes with the rewards, so they cannot be counted
by member afterwards, and no kernel is ever dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import compiled, hot, implements
from occamrl._core.features import contract, fill_target
from occamrl._core.loop import CHANGED, PLANNED, follows_policy, hear, observe, plan, planned_value
from occamrl.learners.rewards import hear_reward, imagine, in_target, reward_of, rewards_due
from occamrl.models.finite import off_grid
from occamrl.protocols import Floats, Ints

EPISODES, TOUCHED, AT_PLAN, MEMBER, CLASS, CLASS_SINCE, GUARDED = range(7)
COUNTERS = 7
EVERYONE = -1  # no member in play: the plan takes each (s, a) by itself


class PlannedModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    features: Any
    row_start: Ints  # [S*A] first coordinate of (s, a)
    block_size: Ints  # [S*A] number of coordinates of (s, a)
    theta: Floats  # [d, n]
    log_prior: Floats  # [n]
    level: Ints  # [n] the first class of a ladder that holds the member, from 0
    size: int  # members that play and that the sets are made of: the first ones
    restrict: bool  # play the smallest class that the data do not contradict (M25)
    guard: bool  # play the largest class when the number of the episode is a square
    rewards: Any  # KnownRewards | EstimatedRewards
    actions: int
    rows: int  # steps that give a row
    weighted: bool
    unit: float  # U, the range of a target
    slack: float  # (U^2/2) log(T/delta)
    reach: float  # how far the truth may be from the nearest member; 0: it is a member
    delta: float  # of one step
    stretch: float  # U^2, times what the slack is scaled by
    replan: float
    target: Floats  # [most outcomes of an (s, a)] scratch, as what follows
    x: Floats  # [largest block]
    z: Floats  # [n]


class PlannedState(NamedTuple):
    """Losses of all members, the plan in play, and the rows seen under it."""

    loss: Floats  # [T, n] L_t(P) less the sum of y^2
    squares: Floats  # [T] sum of y^2
    rows: Ints  # [T] how many rows these are
    inside: Ints  # [T, n] whether P was in the set when the plan was made
    solved: Floats  # [n, H + 1, S] V*_{P,h} of the members in the set; empty with one kernel per step
    greedy: Ints  # [n, H, S] the actions that go with them: the rewards they were solved for are not kept
    values: Floats  # [H + 1, S] in play
    policy: Ints  # [H, S] in play
    visits: Ints  # [H, S] rows that are not in the losses yet
    first_target: Floats  # [H, S]
    target_sum: Floats  # [H, S]
    square_sum: Floats  # [H, S]
    touched: Ints  # [H*S]
    counters: Ints  # [7]
    rewards: Any  # NothingHeard | RewardRows


follows_policy(PlannedState)


@hot
def expectations(model: PlannedModel, sa: int, n: int) -> None:
    """Write sum over o of P(o | s, a) target(o) for the first ``n`` members into ``z``."""
    contract(model.features, sa, model.target, model.x)
    for i in range(n):
        model.z[i] = 0.0
    for j in range(model.block_size[sa]):
        xj = model.x[j]
        row = model.theta[model.row_start[sa] + j]
        for i in range(n):
            model.z[i] += xj * row[i]


@hot
def absorb(model: PlannedModel, state: PlannedState) -> None:
    """Enter the rows that wait into the losses of all members: L grows by count z^2 - 2 z y, and sum y^2."""
    states, steps, n = state.policy.shape[1], state.loss.shape[0], state.loss.shape[1]
    for i in range(state.counters[TOUCHED]):
        h, s = divmod(state.touched[i], states)
        count, total, squares = state.visits[h, s], state.target_sum[h, s], state.square_sum[h, s]
        state.visits[h, s] = 0
        state.target_sum[h, s] = 0.0
        state.square_sum[h, s] = 0.0
        sa = s * model.actions + state.policy[h, s]
        low, high = fill_target(model.features.outcomes, sa, state.values[h + 1], model.target)
        middle, spread = 0.0, 1.0
        if model.weighted:
            middle, spread = 0.5 * (low + high), high - low
            if spread <= 0.0:
                continue
            for o in range(model.features.outcomes.start[sa + 1] - model.features.outcomes.start[sa]):
                model.target[o] = (model.target[o] - middle) / spread
        expectations(model, sa, n)
        t = h % steps
        shift = state.first_target[h, s] - middle
        y = (total + count * shift) / spread
        for p in range(n):
            z = model.z[p]
            state.loss[t, p] += z * (count * z - 2.0 * y)
        state.squares[t] += (squares + shift * (2.0 * total + count * shift)) / (spread * spread)
        state.rows[t] += count
    state.counters[TOUCHED] = 0


@hot
def threshold(model: PlannedModel, losses: Floats, rows: int) -> float:
    """Return the right side of M22 for the losses of one step, at least the smallest of them."""
    if model.unit <= 0.0:
        return np.inf
    rate, top, least = 2.0 / (model.unit * model.unit), -np.inf, np.inf
    for i in range(model.size):
        top = max(top, model.log_prior[i] - rate * losses[i])
        least = min(least, losses[i])
    total = 0.0
    for i in range(model.size):
        total += np.exp(model.log_prior[i] - rate * losses[i] - top)
    between = model.stretch * off_grid(model.reach, rows, model.delta)
    return max(least, float(-(top + np.log(total)) / rate + model.slack + between))


@hot
def update_sets(model: PlannedModel, state: PlannedState) -> None:
    """Find who is in the set of each step, and the smallest class that meets all of them (M25)."""
    smallest = 0
    for t in range(state.loss.shape[0]):
        bound, first = threshold(model, state.loss[t], state.rows[t]), 2**62
        for i in range(model.size):
            state.inside[t, i] = 1 if state.loss[t, i] <= bound else 0
            if state.inside[t, i]:
                first = min(first, model.level[i])
        smallest = max(smallest, first)
    if smallest != state.counters[CLASS]:
        state.counters[CLASS] = smallest
        state.counters[CLASS_SINCE] = state.counters[EPISODES]


@hot
def plays(model: PlannedModel, state: PlannedState, t: int, i: int, everybody: bool) -> bool:
    """Say whether a member of the set may be counted on: those of the class in play."""
    inside = state.inside[t, i] == 1
    return inside and (everybody or not model.restrict or model.level[i] <= state.counters[CLASS])


@hot
def solve_member(model: PlannedModel, state: PlannedState, i: int) -> None:
    """Write V*_{P,h} of a member and its greedy actions, for the rewards that the plan counts on."""
    horizon, states = state.policy.shape
    for h in range(horizon - 1, -1, -1):
        for s in range(states):
            best = -np.inf
            for a in range(model.actions):
                q = action_value(model, state, i, h, s * model.actions + a)
                if q > best:
                    best = q
                    state.greedy[i, h, s] = a
            state.solved[i, h, s] = best


@hot
def action_value(model: PlannedModel, state: PlannedState, i: int, h: int, sa: int) -> float:
    """Return Q*_{P,h}(s, a) of a member whose next values are solved."""
    fill_target(model.features.outcomes, sa, state.solved[i, h + 1], model.target)
    contract(model.features, sa, model.target, model.x)
    total = 0.0
    for j in range(model.block_size[sa]):
        total += model.x[j] * model.theta[model.row_start[sa] + j, i]
    return reward_of(model.rewards, h, sa) + total


@hot
def choose_member(model: PlannedModel, state: PlannedState, start: int, everybody: bool) -> bool:
    """Put the member with the largest value at ``start`` into play (M5), the first on ties; say whether it is new."""
    top, choice = -np.inf, 0
    for i in range(model.size):
        if plays(model, state, 0, i, everybody) and state.solved[i, 0, start] > top:
            top, choice = state.solved[i, 0, start], i
    if choice == state.counters[MEMBER]:
        return False
    absorb(model, state)
    state.counters[MEMBER] = choice
    horizon, states = state.policy.shape
    for h in range(horizon):
        for s in range(states):
            state.values[h, s] = state.solved[choice, h, s]
            state.policy[h, s] = state.greedy[choice, h, s]
    return True


@hot
def plan_each_step(model: PlannedModel, state: PlannedState, everybody: bool) -> None:
    """Plan backwards with the largest expectation over the set of each step, (s, a) by (s, a)."""
    horizon, states = state.policy.shape
    for h in range(horizon - 1, -1, -1):
        for s in range(states):
            top = -np.inf
            for a in range(model.actions):
                sa = s * model.actions + a
                fill_target(model.features.outcomes, sa, state.values[h + 1], model.target)
                expectations(model, sa, model.size)
                best = -np.inf
                for i in range(model.size):
                    if plays(model, state, h, i, everybody):
                        best = max(best, model.z[i])
                q = reward_of(model.rewards, h, sa) + best
                if q > top:
                    top = q
                    state.policy[h, s] = a
            state.values[h, s] = top


@implements(plan, PlannedState, argument=1)
def plan_planned(model: PlannedModel, state: PlannedState, start: int, key: np.uint64, episode: int) -> int:
    """Update the sets and plan when that is due; put the most optimistic member for ``start`` into play."""
    counters = state.counters
    episodes = counters[EPISODES]
    counters[EPISODES] += 1
    root = np.int64(np.round(np.sqrt(episodes + 1.0)))
    guard = model.guard and root * root == episodes + 1
    due = episodes == 0 or episodes >= (1.0 + model.replan) * counters[AT_PLAN] or counters[GUARDED] == 1
    due = due or guard or rewards_due(model.rewards, state.rewards)
    stationary = state.loss.shape[0] == 1
    if not due:
        return CHANGED if stationary and choose_member(model, state, start, False) else 0
    counters[AT_PLAN] = episodes
    counters[GUARDED] = 1 if guard else 0
    absorb(model, state)
    update_sets(model, state)
    imagine(model.rewards, state.rewards)
    if stationary:
        for i in range(model.size):
            if plays(model, state, 0, i, guard):
                solve_member(model, state, i)
        counters[MEMBER] = EVERYONE
        choose_member(model, state, start, guard)
    else:
        plan_each_step(model, state, guard)
    return PLANNED | CHANGED


@implements(hear, PlannedState, argument=1, inline=True)
def hear_planned(model: PlannedModel, state: PlannedState, h: int, s: int, a: int, reward: float) -> None:
    """Take note of a reward that is to be estimated."""
    hear_reward(model.rewards, state.rewards, h, s * model.actions + a, reward)


@implements(observe, PlannedState, argument=1, inline=True)
def observe_planned(model: PlannedModel, state: PlannedState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Count a row under the plan in play."""
    if h >= model.rows:
        return
    target = in_target(model.rewards, bonus) + state.values[h + 1, s2]
    if state.visits[h, s] == 0:
        state.first_target[h, s] = target
        state.touched[state.counters[TOUCHED]] = h * state.policy.shape[1] + s
        state.counters[TOUCHED] += 1
    gap = target - state.first_target[h, s]
    state.visits[h, s] += 1
    state.target_sum[h, s] += gap
    state.square_sum[h, s] += gap * gap


@implements(planned_value, PlannedState, argument=1, inline=True)
def planned_value_planned(model: PlannedModel, state: PlannedState, s: int) -> float:
    """V^k_1(s)."""
    return float(state.values[0, s])


@compiled
def enter_rows(model: PlannedModel, state: PlannedState) -> None:
    """Enter the rows that wait for the next plan."""
    absorb(model, state)


@compiled
def thresholds(model: PlannedModel, losses: Floats, rows: Ints) -> Floats:
    """Return the right side of M22 for the losses [T, n] and the number of rows [T] of every step."""
    found = np.empty(losses.shape[0])
    for t in range(losses.shape[0]):
        found[t] = threshold(model, losses[t], rows[t])
    return found

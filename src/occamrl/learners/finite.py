"""Optimism over a finite family in arrays: losses, confidence sets, and the member in play.

Per kernel P only its loss L(P) is kept (up to a constant common to all), per (member in play, h, s) the number of rows
and the sum of their targets. While a member stays in play, (P V)(s, a) for all P is a column computed at the first
visit, so an episode costs O(H n) for the n kernels that are left.

Sharp set (M24): B = {P : L(P) <= t},  t = -(U^2/2) log sum_P w(P) exp(-2 L(P)/U^2) + (U^2/2) log(1/delta).
Kernels that leave it are dropped from the sum as well, which only raises the threshold, so the set stays valid. At
doubling times all dropped kernels are looked at again: with m the mean target of a cell of N rows, L(P) is a sum over
cells of N (z - m)^2 plus a constant, so a kernel is put aside as soon as a partial sum passes the threshold.

Ball (M4): B = {P : L(P, Phat) <= beta}; nothing is dropped, and distances are rebuilt from the counted rows when Phat
changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.kernels.compile import hot, implements
from occamrl.kernels.episodes import CHANGED, PLANNED, follows_policy, observe, plan, planned_value
from occamrl.kernels.features import contract, fill_target
from occamrl.kernels.row_table import RowTable, add_rows

# counters
EPISODES, TOUCHED, ALIVE, MEMBER, BEST, LAST_START, EPISODES_AT_PLAN, NEXT_LOOK, COLUMNS = range(9)
FIRST_LOOK = 64  # episodes before dropped kernels are looked at again for the first time


class Scratch(NamedTuple):
    """Memory for intermediate results; nothing in it outlives a call."""

    target: Floats  # [most outcomes of an (s, a)]
    x: Floats  # [largest block]
    kernels: Ints  # [n + 1]
    sums: Floats  # [n + 1]
    z: Floats  # [n + 1]


class FiniteModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    features: Any
    row_start: Ints  # [S*A] first coordinate of (s, a)
    block_size: Ints  # [S*A] number of coordinates of (s, a)
    theta: Floats  # [d, n]
    values: Floats  # [n, H + 1, S] V*_{P,h}
    log_prior: Floats  # [n]
    base_reward: Floats  # [S*A]
    horizon: int
    rows: int  # steps that give a row
    weighted: bool
    ball: bool
    unit: float  # U, the range of a target
    slack: float  # beta of the ball, or (U^2/2) log(1/delta)
    replan: float
    scratch: Scratch


class FiniteState(NamedTuple):
    """Losses of the kernels that are left, the member in play, and the rows seen."""

    alive: Ints  # [n] members by position; the first counters[ALIVE] count
    loss: Floats  # [n] by position; infinite once dropped
    distance: Floats  # [n] L(P, Phat) by position (ball only; else empty)
    inside: Ints  # [n] whether P was in the ball when the set was last updated (ball only; else empty)
    policy: Ints  # [H, S] of the member in play
    visits: Ints  # [H, S] rows under this member that are not in the losses yet
    first_target: Floats  # [H, S] W(o) of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target, as in `occamrl.learners.linear`
    touched: Ints  # [H*S]
    slot: Ints  # [H, S] column of a cell, -1: none yet
    column: Floats  # [C, n] (P V - c)/R at a cell, by position; the last one is scratch
    table: RowTable  # all rows in the losses, by (member, h, s)
    counters: Ints  # [9]


follows_policy(FiniteState)


@hot
def expected_targets(
    model: FiniteModel, member: int, h: int, s: int, a: int, alive: Ints, n: int, out: Floats
) -> tuple[float, float]:
    """Write z = ((P V)(s, a) - c)/R for the first ``n`` kernels of ``alive``, V of ``member``; return (c, R) (M23)."""
    states = model.values.shape[2]
    sa = s * (model.base_reward.size // states) + a
    target, x = model.scratch.target, model.scratch.x
    low, high = fill_target(model.features.outcomes, sa, model.values[member, h + 1], target)
    middle, spread = 0.0, 1.0
    if model.weighted:
        middle, spread = 0.5 * (low + high), high - low
        if spread <= 0.0:
            return middle, 0.0
        start = model.features.outcomes.start
        for i in range(start[sa + 1] - start[sa]):
            target[i] = (target[i] - middle) / spread
    contract(model.features, sa, target, x)
    for i in range(n):
        out[i] = 0.0
    for j in range(model.block_size[sa]):
        xj = x[j]
        row = model.theta[model.row_start[sa] + j]
        for i in range(n):
            out[i] += xj * row[alive[i]]
    return middle, spread


@hot
def centre_and_range(model: FiniteModel, member: int, h: int, s: int, a: int) -> tuple[float, float]:
    """Return (c, R) of M23 for the target function at (h, s, a) under ``member``; (0, 1) without weights."""
    if not model.weighted:
        return 0.0, 1.0
    sa = s * (model.base_reward.size // model.values.shape[2]) + a
    low, high = fill_target(model.features.outcomes, sa, model.values[member, h + 1], model.scratch.target)
    return 0.5 * (low + high), high - low


@hot
def add_to_losses(state: FiniteState, n: int, best: int, column: Floats, count: int, y: float, distances: bool) -> None:
    """Add ``count`` rows with sum of targets ``y``: L(P) grows by count z^2 - 2 z y (and a common constant)."""
    for i in range(n):
        z = column[i]
        state.loss[i] += z * (count * z - 2.0 * y)
    if distances:
        for i in range(n):
            gap = column[i] - column[best]
            state.distance[i] += count * gap * gap


@hot
def absorb(model: FiniteModel, state: FiniteState) -> None:
    """Enter the rows that wait into the losses and into the table."""
    horizon, states = state.policy.shape
    n = state.counters[ALIVE]
    member = state.counters[MEMBER]
    for i in range(state.counters[TOUCHED]):
        cell = state.touched[i]
        h, s = divmod(cell, states)
        a = state.policy[h, s]
        count, total = state.visits[h, s], state.target_sum[h, s]
        state.visits[h, s] = 0
        state.target_sum[h, s] = 0.0
        slot = state.slot[h, s]
        if slot >= 0:
            middle, spread = centre_and_range(model, member, h, s, a)
        else:
            slot = state.column.shape[0] - 1
            if state.counters[COLUMNS] < slot:
                slot = state.counters[COLUMNS]
                state.counters[COLUMNS] += 1
                state.slot[h, s] = slot
            middle, spread = expected_targets(model, member, h, s, a, state.alive, n, state.column[slot])
        if spread <= 0.0:
            continue
        y = (total + count * (state.first_target[h, s] - middle)) / spread
        add_to_losses(state, n, state.counters[BEST], state.column[slot], count, y, model.ball)
        add_rows(state.table, (member * horizon + h) * states + s, count, y)
    state.counters[TOUCHED] = 0


@hot
def threshold(model: FiniteModel, state: FiniteState) -> float:
    """Return the right side of M22 over the kernels that are left (log-sum-exp around the best of them)."""
    rate = 2.0 / (model.unit * model.unit) if model.unit > 0.0 else 0.0
    n = state.counters[ALIVE]
    top = -np.inf
    for i in range(n):
        top = max(top, model.log_prior[state.alive[i]] - rate * state.loss[i])
    total = 0.0
    for i in range(n):
        gap = model.log_prior[state.alive[i]] - rate * state.loss[i] - top
        if gap > -40.0:  # leaving out what is smaller only raises the threshold
            total += np.exp(gap)
    if rate == 0.0:
        return np.inf
    return float(-(top + np.log(total)) / rate + model.slack)


@hot
def compact(state: FiniteState) -> None:
    """Close the gaps that dropped kernels left; columns are computed anew when next needed."""
    kept = 0
    for i in range(state.counters[ALIVE]):
        if state.loss[i] < np.inf:
            state.alive[kept] = state.alive[i]
            state.loss[kept] = state.loss[i]
            kept += 1
    state.counters[ALIVE] = kept
    forget_columns(state)


@hot
def forget_columns(state: FiniteState) -> None:
    """Mark all columns as not computed."""
    if state.counters[COLUMNS] > 0:
        state.slot[:] = -1
        state.counters[COLUMNS] = 0


@hot
def drop(model: FiniteModel, state: FiniteState) -> None:
    """Drop the kernels whose loss passes the threshold (M24)."""
    n = state.counters[ALIVE]
    best = np.inf
    for i in range(n):
        best = min(best, state.loss[i])
    bound = max(threshold(model, state), best)  # the best stays, whatever rounding says
    left = 0
    for i in range(n):
        if state.loss[i] > bound:
            state.loss[i] = np.inf
        elif state.loss[i] < np.inf:
            left += 1
    if 2 * left <= n:
        compact(state)


@hot
def cell_of(state: FiniteState, position: int) -> tuple[int, int, int]:
    """Return (member, h, s) of a position of the table of rows."""
    horizon, states = state.policy.shape
    rest, s = divmod(state.table.key[position], states)
    member, h = divmod(rest, horizon)
    return member, h, s


@hot
def sum_excess(
    model: FiniteModel, state: FiniteState, kernels: Ints, sums: Floats, size: int, limit: float, heavy: bool
) -> int:
    """Add N (z - m)^2 over the heavy or the light half of the cells; put kernels aside whose sum passes ``limit``.

    The first kernel always stays. Returns how many are left; they and their sums come first.
    """
    table = state.table
    rows = 0
    for position in range(table.used[0]):
        rows += table.visits[position]
    average = rows / max(1, table.used[0])
    z = model.scratch.z
    for position in range(table.used[0]):
        count = table.visits[position]
        if (count >= average) != heavy:
            continue
        member, h, s = cell_of(state, position)
        mean = table.target_sum[position] / count
        expected_targets(model, member, h, s, greedy_action(model, member, h, s), kernels, size, z)
        sums[0] += count * (z[0] - mean) ** 2
        kept = 1
        for i in range(1, size):
            total = sums[i] + count * (z[i] - mean) ** 2
            if total <= limit:
                kernels[kept] = kernels[i]
                sums[kept] = total
                kept += 1
        size = kept
    return size


@hot
def look_again(model: FiniteModel, state: FiniteState) -> None:
    """Let dropped kernels back in whose loss over all rows is within the threshold."""
    compact(state)
    n, survivors = model.theta.shape[1], state.counters[ALIVE]
    if survivors == n:
        return
    bound = threshold(model, state)
    # A kernel that is left goes first: it turns the threshold into the unit of the sums of N (z - m)^2.
    kernels, sums = model.scratch.kernels, model.scratch.sums
    kernels[0], sums[0] = state.alive[0], 0.0
    for heavy in (True, False):
        sum_excess(model, state, kernels, sums, 1, np.inf, heavy)
    limit = bound - state.loss[0] + sums[0]
    sums[:] = 0.0
    for i in range(survivors):
        sums[1 + state.alive[i]] = np.inf
    size = 1
    for kernel in range(n):
        if sums[1 + kernel] == 0.0:
            kernels[size] = kernel
            size += 1
    sums[:size] = 0.0
    for heavy in (True, False):
        size = sum_excess(model, state, kernels, sums, size, limit, heavy)
    for i in range(1, size):
        state.alive[survivors] = kernels[i]
        state.loss[survivors] = sums[i] - sums[0] + state.loss[0]
        survivors += 1
    state.counters[ALIVE] = survivors


@hot
def rebuild_distances(model: FiniteModel, state: FiniteState) -> None:
    """Compute L(P, Phat) of all kernels from the counted rows."""
    n, best = state.counters[ALIVE], state.counters[BEST]
    state.distance[:] = 0.0
    z = model.scratch.z
    for position in range(state.table.used[0]):
        member, h, s = cell_of(state, position)
        expected_targets(model, member, h, s, greedy_action(model, member, h, s), state.alive, n, z)
        count = state.table.visits[position]
        for i in range(n):
            gap = z[i] - z[best]
            state.distance[i] += count * gap * gap


@hot
def update_ball(model: FiniteModel, state: FiniteState) -> None:
    """Find the least-squares estimate (M3), the distances to it, and who is within the ball (M4)."""
    best = 0
    for i in range(1, state.counters[ALIVE]):
        if state.loss[i] < state.loss[best]:
            best = i
    if best != state.counters[BEST]:
        state.counters[BEST] = best
        rebuild_distances(model, state)
    for i in range(state.counters[ALIVE]):
        state.inside[i] = state.distance[i] <= model.slack


@hot
def action_value(model: FiniteModel, member: int, h: int, sa: int, target: Floats, x: Floats) -> float:
    """Return Q*_{P,h}(s, a) of a member."""
    fill_target(model.features.outcomes, sa, model.values[member, h + 1], target)
    contract(model.features, sa, target, x)
    q = model.base_reward[sa]
    for j in range(model.block_size[sa]):
        q += x[j] * model.theta[model.row_start[sa] + j, member]
    return float(q)


@hot
def greedy_action(model: FiniteModel, member: int, h: int, s: int) -> int:
    """Return the action that is optimal for a member; the smallest on ties."""
    actions = model.base_reward.size // model.values.shape[2]
    target, x = model.scratch.target, model.scratch.x
    best, choice = -np.inf, 0
    for a in range(actions):
        q = action_value(model, member, h, s * actions + a, target, x)
        if q > best:
            best, choice = q, a
    return choice


@hot
def most_optimistic(model: FiniteModel, state: FiniteState, start: int) -> int:
    """Return the member of the confidence set with the largest V*_{P,1}(start) (M5); the smallest index on ties."""
    top, choice = -np.inf, -1
    for i in range(state.counters[ALIVE]):
        inside = state.inside[i] == 1 if model.ball else state.loss[i] < np.inf
        if inside:
            member = state.alive[i]
            value = model.values[member, 0, start]
            if value > top or (value == top and member < choice):
                top, choice = value, member
    return choice


@implements(plan, FiniteState, argument=1)
def plan_finite(model: FiniteModel, state: FiniteState, start: int, key: np.uint64, episode: int) -> int:
    """Update the confidence set when it is due, then put its most optimistic member into play."""
    counters = state.counters
    episodes = counters[EPISODES]
    counters[EPISODES] += 1
    due = episodes == 0 or episodes >= (1.0 + model.replan) * counters[EPISODES_AT_PLAN]
    if due:
        counters[EPISODES_AT_PLAN] = episodes
        absorb(model, state)
        if model.ball:
            update_ball(model, state)
        else:
            drop(model, state)
            if episodes >= counters[NEXT_LOOK]:
                counters[NEXT_LOOK] = max(2 * episodes, FIRST_LOOK)
                if episodes > 0:
                    look_again(model, state)
    elif start == counters[LAST_START]:
        return 0
    counters[LAST_START] = start
    member = most_optimistic(model, state, start)
    if member == counters[MEMBER]:
        return PLANNED if due else 0
    absorb(model, state)
    counters[MEMBER] = member
    forget_columns(state)
    horizon, states = state.policy.shape
    for h in range(horizon):
        for s in range(states):
            state.policy[h, s] = greedy_action(model, member, h, s)
    return PLANNED | CHANGED if due else CHANGED


@implements(observe, FiniteState, argument=1, inline=True)
def observe_finite(model: FiniteModel, state: FiniteState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Count a row under the member in play."""
    if h >= model.rows:
        return
    target = bonus + model.values[state.counters[MEMBER], h + 1, s2]
    if state.visits[h, s] == 0:
        state.first_target[h, s] = target
        state.touched[state.counters[TOUCHED]] = h * state.policy.shape[1] + s
        state.counters[TOUCHED] += 1
    state.visits[h, s] += 1
    state.target_sum[h, s] += target - state.first_target[h, s]


@implements(planned_value, FiniteState, argument=1, inline=True)
def planned_value_finite(model: FiniteModel, state: FiniteState, s: int) -> float:
    """V*_{P_k,1}(s) of the member in play."""
    return model.values[state.counters[MEMBER], 0, s]  # type: ignore[no-any-return]

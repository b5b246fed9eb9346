"""Rows of a finite family in arrays: what is kept of the data, and the losses that follow from it.

Per kernel P only its loss L(P) is kept (up to a constant common to all), per (member in play, h, s) the number of rows
and the sum of their targets. While a member stays in play, (P V)(s, a) for all P is a column computed at the first
visit, so an episode costs O(H n) for the n kernels whose losses are kept current.

Kernels stand in a list of positions. The first CURRENT of them belong to the class in play and their losses are
current. Those after them, up to ALIVE, belong to larger classes of a ladder (M25): their losses lag behind, by the rows
in ``pending``, until :func:`catch_up` enters these all at once. An episode on a small class does not pay for a big one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import hot
from occamrl._core.features import contract, fill_target
from occamrl._core.rows import RowTable, add_rows
from occamrl.protocols import Floats, Ints

# counters
(
    EPISODES,
    TOUCHED,
    ALIVE,
    MEMBER,
    BEST,
    LAST_START,
    EPISODES_AT_PLAN,
    NEXT_LOOK,
    COLUMNS,
    CURRENT,
    CLASS,
    CLASS_SINCE,
    NEXT_TEST,
    PENDING,
    ROWS,
    IMPOSSIBLE,
) = range(16)
COUNTERS = 16
FIRST_LOOK = 64  # episodes before dropped kernels are looked at again for the first time
NEVER = 2**62


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
    level: Ints  # [n] the first class of a ladder that holds the member, from 0; all 0 without a ladder
    restrict: bool  # play the smallest class that the data do not contradict (M25)
    test: float  # a test of the classes is due when the data have grown by the factor 1 + test
    guard: bool  # play the largest class when the number of the episode is a square
    base_reward: Floats  # [S*A]
    horizon: int
    rows: int  # steps that give a row
    weighted: bool
    ball: bool
    unit: float  # U, the range of a target
    slack: float  # beta of the ball, or (U^2/2) log(1/delta)
    reach: float  # how far the truth may be from its nearest member; 0 but for covers
    delta: float
    stretch: float  # U^2 times the factor on the slack
    replan: float
    scratch: Scratch


class Pending(NamedTuple):
    """Rows that the losses of larger classes still lack; the first counters[PENDING] count."""

    cell: Ints  # [C] (member, h, s) as one number
    visits: Ints  # [C]
    target_sum: Floats  # [C]
    at: Ints  # [H, S] where the rows of the member in play are, -1: nowhere yet


class FiniteState(NamedTuple):
    """Losses of the kernels that are left, the member in play, and the rows seen."""

    alive: Ints  # [n] members by position; the first counters[ALIVE] count
    loss: Floats  # [n] by position; infinite once dropped
    distance: Floats  # [n] L(P, Phat) by position (ball only; else empty)
    inside: Ints  # [n] whether P was in the ball when the set was last updated (ball only; else empty)
    policy: Ints  # [H, S] of the member in play
    visits: Ints  # [H, S] rows under this member that are not in the losses yet
    first_target: Floats  # [H, S] W(o) of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target, as in `occamrl.learners.linear_regression`
    square_sum: Floats  # [H, S] sum of their squares
    touched: Ints  # [H*S]
    slot: Ints  # [H, S] column of a cell, -1: none yet
    column: Floats  # [C, n] (P V - c)/R at a cell, by position; the last one is scratch
    table: RowTable  # all rows in the losses, by (member, h, s)
    pending: Pending
    squares: Floats  # [1] sum of y^2 over all rows in the table: what the losses leave out
    counters: Ints  # [16]


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
    first = alive[0] if n > 0 else 0
    scattered = 0
    for i in range(n):
        scattered += alive[i] != first + i
    for j in range(model.block_size[sa]):
        xj = x[j]
        row = model.theta[model.row_start[sa] + j]
        if scattered:
            for i in range(n):
                out[i] += xj * row[np.uint64(alive[i])]
        else:  # neighbours: what a class begins as, several times faster
            row = row[first : first + n]
            for i in range(n):
                out[i] += xj * row[i]
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
    """Enter the rows that wait into the losses of the class in play and into the table."""
    horizon, states = state.policy.shape
    n = state.counters[CURRENT]
    member = state.counters[MEMBER]
    for i in range(state.counters[TOUCHED]):
        cell = state.touched[i]
        h, s = divmod(cell, states)
        a = state.policy[h, s]
        count, total, squares = state.visits[h, s], state.target_sum[h, s], state.square_sum[h, s]
        state.visits[h, s] = 0
        state.target_sum[h, s] = 0.0
        state.square_sum[h, s] = 0.0
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
        shift = state.first_target[h, s] - middle
        squares += shift * (2.0 * total + count * shift)
        # beyond the range that the kernels allow, or off the one value where they allow no other
        if model.weighted and squares > count * (0.25 * spread * spread * (1.0 + 1e-9) + 1e-12):
            state.counters[IMPOSSIBLE] += count
        if spread <= 0.0:
            continue
        y = (total + count * shift) / spread
        add_to_losses(state, n, state.counters[BEST], state.column[slot], count, y, model.ball)
        key = (member * horizon + h) * states + s
        add_rows(state.table, key, count, y)
        state.counters[ROWS] += count
        state.squares[0] += squares / (spread * spread)
        if n < state.counters[ALIVE]:
            put_off(model, state, key, h, s, count, y)
    state.counters[TOUCHED] = 0


@hot
def put_off(model: FiniteModel, state: FiniteState, key: int, h: int, s: int, count: int, y: float) -> None:
    """Keep rows for the losses of larger classes."""
    pending = state.pending
    at = pending.at[h, s]
    if at < 0:
        if state.counters[PENDING] == pending.cell.size:
            catch_up(model, state)
        at = state.counters[PENDING]
        state.counters[PENDING] += 1
        pending.cell[at] = key
        pending.visits[at] = 0
        pending.target_sum[at] = 0.0
        pending.at[h, s] = at
    pending.visits[at] += count
    pending.target_sum[at] += y


@hot
def catch_up(model: FiniteModel, state: FiniteState) -> None:
    """Bring the losses of larger classes up to date."""
    first, n = state.counters[CURRENT], state.counters[ALIVE]
    horizon, states = state.policy.shape
    pending, z = state.pending, model.scratch.z
    kernels, loss = state.alive[first:n], state.loss[first:n]
    for i in range(state.counters[PENDING]):
        rest, s = divmod(pending.cell[i], states)
        member, h = divmod(rest, horizon)
        # the cell's action: of the policy of its member, which need not be in play any more
        expected_targets(model, member, h, s, greedy_action(model, member, h, s), kernels, n - first, z)
        count, y = pending.visits[i], pending.target_sum[i]
        for j in range(n - first):
            loss[j] += z[j] * (count * z[j] - 2.0 * y)
    if state.counters[PENDING] > 0:
        pending.at[:] = -1
        state.counters[PENDING] = 0


@hot
def cell_of(state: FiniteState, position: int) -> tuple[int, int, int]:
    """Return (member, h, s) of a position of the table of rows."""
    horizon, states = state.policy.shape
    rest, s = divmod(state.table.key[position], states)
    member, h = divmod(rest, horizon)
    return member, h, s


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

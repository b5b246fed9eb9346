"""Confidence sets over a finite family, and the class in play of a ladder.

Sharp set (M24): B = {P : L(P) <= t},  t = -(U^2/2) log sum_P w(P) exp(-2 L(P)/U^2) + (U^2/2) log(1/delta).
Kernels that leave it are dropped from the sum as well, which only raises the threshold, so the set stays valid. At
doubling times all dropped kernels are looked at again: with m the mean target of a cell of N rows, L(P) is a sum over
cells of N (z - m)^2 plus a constant, so a kernel is put aside as soon as a partial sum passes the threshold.

Classes (M25): the class in play is the smallest that still meets B. Between tests the sum runs over the kernels of the
class in play alone; leaving terms out raises the threshold, so P* stays in the set - but a class whose own kernels make
up the whole sum is never left without a kernel. A test brings the losses of all kernels that are left up to date and
takes the sum over all of them; only then can a class be rejected. Tests come when the data have grown by a given
factor, so a wrong class is kept at most that much longer than with a test before every episode.

Ball (M4): B = {P : L(P, Phat) <= beta}; nothing is dropped, and distances are rebuilt from the counted rows when Phat
changes.

Covers: the truth may lie between two members. Then t has the term E of :mod:`occamrl.models.finite`, and beta is
replaced by (sqrt(beta + 2 E) + U reach sqrt(n)/2)^2: with P0 the member nearest to the truth, L(Phat) <= L(P0) <=
L(P*) + E enters M21 with c = 1 and gives L(P*, Phat) <= beta + 2 E, and P0 is within U reach/2 of P* on every row.
"""

from __future__ import annotations

import numpy as np

from occamrl._core.compile import hot
from occamrl.learners.finite_rows import (
    ALIVE,
    BEST,
    CLASS,
    CLASS_SINCE,
    COLUMNS,
    CURRENT,
    EPISODES,
    ROWS,
    FiniteModel,
    FiniteState,
    catch_up,
    cell_of,
    expected_targets,
    greedy_action,
)
from occamrl.models.finite import off_grid
from occamrl.protocols import Floats, Ints


@hot
def threshold(model: FiniteModel, state: FiniteState, n: int) -> float:
    """Return the right side of M22 over the first ``n`` positions (log-sum-exp around the best of them)."""
    rate = 2.0 / (model.unit * model.unit) if model.unit > 0.0 else 0.0
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
    return float(-(top + np.log(total)) / rate + model.slack + discretisation(model, state))


@hot
def discretisation(model: FiniteModel, state: FiniteState) -> float:
    """Return by how much the member nearest to the truth may lose more than the truth; 0 but for covers."""
    return float(model.stretch * off_grid(model.reach, float(state.counters[ROWS]), model.delta))


@hot
def compact(state: FiniteState) -> None:
    """Close the gaps that dropped kernels left; columns are computed anew when next needed."""
    kept = current = 0
    for i in range(state.counters[ALIVE]):
        if i == state.counters[CURRENT]:
            current = kept
        if state.loss[i] < np.inf:
            state.alive[kept] = state.alive[i]
            state.loss[kept] = state.loss[i]
            kept += 1
    state.counters[CURRENT] = kept if state.counters[CURRENT] == state.counters[ALIVE] else current
    state.counters[ALIVE] = kept
    forget_columns(state)


@hot
def forget_columns(state: FiniteState) -> None:
    """Mark all columns as not computed."""
    if state.counters[COLUMNS] > 0:
        state.slot[:] = -1
        state.counters[COLUMNS] = 0


@hot
def drop(model: FiniteModel, state: FiniteState, n: int) -> None:
    """Drop those of the first ``n`` positions whose loss passes the threshold (M24)."""
    bound, best = threshold(model, state, n), np.inf
    for i in range(n):
        best = min(best, state.loss[i])
    bound = max(bound, best)  # the best stays, whatever rounding says
    left = 0
    for i in range(n):
        if state.loss[i] > bound:
            state.loss[i] = np.inf
        elif state.loss[i] < np.inf:
            left += 1
    if 2 * left <= n:
        compact(state)


@hot
def choose_class(model: FiniteModel, state: FiniteState) -> None:
    """Put the smallest class into play that still has a kernel (M25); its kernels come first from now on."""
    compact(state)
    n, smallest = state.counters[ALIVE], model.level[state.alive[0]]
    for i in range(1, n):
        smallest = min(smallest, model.level[state.alive[i]])
    if smallest != state.counters[CLASS]:
        state.counters[CLASS] = smallest
        state.counters[CLASS_SINCE] = state.counters[EPISODES]
    if not model.restrict:
        state.counters[CURRENT] = n
        return
    kernels, sums = model.scratch.kernels, model.scratch.sums
    front, back = 0, 0
    for i in range(n):
        if model.level[state.alive[i]] <= smallest:
            state.alive[front] = state.alive[i]
            state.loss[front] = state.loss[i]
            front += 1
        else:
            kernels[back] = state.alive[i]
            sums[back] = state.loss[i]
            back += 1
    for i in range(back):
        state.alive[front + i] = kernels[i]
        state.loss[front + i] = sums[i]
    state.counters[CURRENT] = front


@hot
def test_all_classes(model: FiniteModel, state: FiniteState) -> None:
    """Bring all losses up to date, drop what the data contradict, and choose the class."""
    catch_up(model, state)
    drop(model, state, state.counters[ALIVE])
    choose_class(model, state)


@hot
def sum_excess(model: FiniteModel, state: FiniteState, kernels: Ints, sums: Floats, size: int, limit: float) -> int:
    """Add N (z - m)^2 over all cells, heavy ones first; put kernels aside whose sum passes ``limit``.

    The first kernel always stays. Returns how many are left; they and their sums come first.
    """
    rows = 0
    for position in range(state.table.used[0]):
        rows += state.table.visits[position]
    average = rows / max(1, state.table.used[0])
    least, most = 4.0 * average, np.inf
    for tier in range(4):
        if tier == 3:
            least = 0.0
        size = sum_excess_of(model, state, kernels, sums, size, limit, least, most)
        least, most = 0.25 * least, least
    return size


@hot
def sum_excess_of(
    model: FiniteModel,
    state: FiniteState,
    kernels: Ints,
    sums: Floats,
    size: int,
    limit: float,
    least: float,
    most: float,
) -> int:
    """Do the work of :func:`sum_excess` for the cells with a number of rows in [least, most)."""
    table, z = state.table, model.scratch.z
    for position in range(table.used[0]):
        count = table.visits[position]
        if not least <= count < most:
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
    """Let dropped kernels back in whose loss over all rows is within the threshold. All losses must be current."""
    compact(state)
    n, survivors = model.theta.shape[1], state.counters[ALIVE]
    if survivors == n:
        return
    bound = threshold(model, state, survivors)
    # A kernel that is left goes first: it turns the threshold into the unit of the sums of N (z - m)^2.
    kernels, sums = model.scratch.kernels, model.scratch.sums
    kernels[0], sums[0] = state.alive[0], 0.0
    sum_excess(model, state, kernels, sums, 1, np.inf)
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
    size = sum_excess(model, state, kernels, sums, size, limit)
    for i in range(1, size):
        state.alive[survivors] = kernels[i]
        state.loss[survivors] = sums[i] - sums[0] + state.loss[0]
        survivors += 1
    state.counters[ALIVE] = survivors
    choose_class(model, state)


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
    radius = model.slack
    if model.reach > 0.0:
        gap = 0.5 * model.reach * np.sqrt(model.stretch * state.counters[ROWS])
        radius = (np.sqrt(model.slack + 2.0 * discretisation(model, state)) + gap) ** 2
    for i in range(state.counters[ALIVE]):
        state.inside[i] = state.distance[i] <= radius


@hot
def most_optimistic(model: FiniteModel, state: FiniteState, n: int, start: int) -> int:
    """Return the kernel with the largest V*_{P,1}(start) among the first ``n`` positions that are in the set (M5).

    The smallest index on ties.
    """
    top, choice = -np.inf, -1
    for i in range(n):
        inside = state.inside[i] == 1 if model.ball else state.loss[i] < np.inf
        if inside:
            member = state.alive[i]
            value = model.values[member, 0, start]
            if value > top or (value == top and member < choice):
                top, choice = value, member
    return choice

"""Logged rows in compressed form: counted by (h, s, a) while one value function is in use, then entered at once.

The rows of a learner's own play follow its policy, so that (h, s) fixes the action; those of a log do not. Apart from
that the formulas are those of the learners: targets, their range weights and expectations come from
:mod:`occamrl.learners.finite_rows` and :mod:`occamrl.learners.linear_regression`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints, Outcomes
from occamrl.kernels.compile import compiled, hot
from occamrl.kernels.episodes import plan
from occamrl.kernels.ridge import add_row, block_matrix, block_vector
from occamrl.kernels.row_table import RowTable, add_rows
from occamrl.learners.finite_rows import FiniteModel, FiniteState, expected_targets
from occamrl.learners.finite_sets import most_optimistic, threshold
from occamrl.learners.linear_regression import row_of
from occamrl.learners.linear_state import LinearModel


class Counts(NamedTuple):
    """Rows since the last plan, by h and s*A + a."""

    visits: Ints  # [H, S*A]
    first_target: Floats  # [H, S*A] W(o) of the first of them
    target_sum: Floats  # [H, S*A] sum of W(o) - first_target, as in `linear_regression`
    square_sum: Floats  # [H, S*A] sum of their squares


def no_counts(horizon: int, pairs: int) -> Counts:
    """Return counts of nothing."""
    shape = (horizon, pairs)
    return Counts(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape))


@compiled
def count_rows(outcomes: Outcomes, values: Floats, h: Ints, pair: Ints, outcome: Ints, counts: Counts) -> None:
    """Count rows with the targets W(o) of ``values`` [H + 1, S]; ``h`` from 0."""
    for i in range(h.size):
        o = outcome[i]
        target = outcomes.bonus[o] + values[h[i] + 1, outcomes.next_state[o]]
        if counts.visits[h[i], pair[i]] == 0:
            counts.first_target[h[i], pair[i]] = target
        gap = target - counts.first_target[h[i], pair[i]]
        counts.visits[h[i], pair[i]] += 1
        counts.target_sum[h[i], pair[i]] += gap
        counts.square_sum[h[i], pair[i]] += gap * gap


@hot
def take(counts: Counts, h: int, pair: int, middle: float, spread: float) -> tuple[int, float, float]:
    """Return, of the rows of a cell, their number, sum y and sum y^2, y = (W - c)/R, and forget them.

    Where the target is constant (R = 0) they say nothing, and count as none.
    """
    count, total, squares = counts.visits[h, pair], counts.target_sum[h, pair], counts.square_sum[h, pair]
    counts.visits[h, pair] = 0
    counts.target_sum[h, pair] = 0.0
    counts.square_sum[h, pair] = 0.0
    if spread <= 0.0:
        return 0, 0.0, 0.0
    shift = counts.first_target[h, pair] - middle
    return count, (total + count * shift) / spread, (squares + shift * (2.0 * total + count * shift)) / spread**2


@compiled
def enter_finite(model: FiniteModel, member: int, counts: Counts, loss: Floats, table: RowTable) -> float:
    """Add the counted rows, whose values were those of ``member``, to the losses [n] of all kernels and to the table.

    The key of a cell is (member * H + h) * S*A + (s*A + a). Returns sum y^2, which the losses leave out.
    """
    squares = 0.0
    horizon, pairs = counts.visits.shape
    actions = pairs // model.values.shape[2]
    kernels, z = np.arange(loss.size), model.scratch.z
    for h in range(horizon):
        for pair in range(pairs):
            if counts.visits[h, pair] == 0:
                continue
            s, a = divmod(pair, actions)
            middle, spread = expected_targets(model, member, h, s, a, kernels, loss.size, z)
            count, y, y2 = take(counts, h, pair, middle, spread)
            if count > 0:
                for i in range(loss.size):
                    loss[i] += z[i] * (count * z[i] - 2.0 * y)
                add_rows(table, (member * horizon + h) * pairs + pair, count, y)
                squares += y2
    return squares


@compiled
def enter_linear(model: LinearModel, values: Floats, counts: Counts, gram: Floats, xy: Floats, pairs: Floats) -> float:
    """Add the counted rows, whose values are ``values``, to the sums of `occamrl.learners._recorded`; return sum y^2.

    These are sum x x^T in packed blocks, sum y x [d], and by (s, a) the number of rows, sum y and sum x.
    """
    squares = 0.0
    x, blocks = model.scratch.x, model.blocks
    for h in range(counts.visits.shape[0]):
        for pair in range(counts.visits.shape[1]):
            if counts.visits[h, pair] == 0:
                continue
            middle, spread = row_of(model, model.row_features, values[h + 1], pair, model.scratch.target, x)
            count, y, y2 = take(counts, h, pair, middle, spread)
            if count == 0:
                continue
            squares += y2
            own = block_vector(xy, blocks, blocks.of[pair])
            add_row(block_matrix(gram, blocks, blocks.of[pair]), count, x)
            pairs[pair, 0] += count
            pairs[pair, 1] += y
            for i in range(own.size):
                own[i] += y * x[i]
                pairs[pair, 2 + i] += count * x[i]
    return squares


@compiled
def distances(model: FiniteModel, table: RowTable, pairs: int, kernels: Ints, reference: int) -> Floats:
    """Return L(P, reference) of some kernels over the rows of a table (M2)."""
    horizon, actions = model.values.shape[1] - 1, pairs // model.values.shape[2]
    both = np.append(kernels, reference)
    z = np.empty(both.size)
    found = np.zeros(kernels.size)
    for entry in range(table.used[0]):
        cell, pair = divmod(table.key[entry], pairs)
        expected_targets(model, cell // horizon, cell % horizon, pair // actions, pair % actions, both, both.size, z)
        found += table.visits[entry] * (z[:-1] - z[-1]) ** 2
    return found


@compiled
def right_side(model: FiniteModel, state: FiniteState) -> float:
    """Return the right side of M22 over all kernels, whose losses are in the state."""
    return threshold(model, state, state.loss.size)


@compiled
def hopeful(model: FiniteModel, state: FiniteState, size: int, start: int) -> int:
    """Return, of the first kernels, the one with the largest V*_1(start) whose loss is finite (M5)."""
    return most_optimistic(model, state, size, start)


@compiled
def plan_now(model: Any, state: Any, start: int) -> None:
    """Let a learner plan for an episode that begins in ``start``."""
    plan(model, state, start, np.uint64(0), 0)

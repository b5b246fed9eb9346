"""phi_W(s, a) = sum over outcomes o of phi(s, a, o) W(o), for the three layouts of a feature map.

W(o) = bonus(o) + V(next_state(o)) is the target function (M20; with rewards on (s, a) the bonus is zero and W = V).
The range of W is taken over the outcomes that the features can produce at (s, a) (M23). Coordinates of (s, a) live in
one *block* of the parameter vector: all (s, a) share the block of a dense or sparse map, each has its own in a tabular
one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.arena import part
from occamrl._core.compile import hot, hot_inline
from occamrl.protocols import Floats, Ints, Outcomes


class DenseFeatures(NamedTuple):
    """One vector per outcome."""

    outcomes: Outcomes
    phi: Floats  # [O, d]


class SparseFeatures(NamedTuple):
    """The non-zero entries of phi, by (s, a): a mixture of simulators that stay sparse."""

    outcomes: Outcomes
    start: Ints  # [S*A + 1]
    outcome: Ints  # [E] position of the outcome inside its (s, a)
    coordinate: Ints  # [E]
    entry: Floats  # [E]


class TabularFeatures(NamedTuple):
    """One-hot: the coordinate of an outcome is the outcome itself, so phi_W(s, a) is W."""

    outcomes: Outcomes


_SAME_REWARD = 1e-6  # rewards no farther apart are the same
DENSE, SPARSE, TABULAR = range(3)

# A feature map of any layout as six fields of a model, so that learners are compiled once for all layouts
SHAPE = 0  # [2] int, the layout and the number of coordinates
START = 1  # [S*A + 1] int, where the outcomes of (s, a) begin
NEXT = 2  # [O] int, next states
INDEX = 3  # int, SPARSE: where the entries of (s, a) begin [S*A + 1], their outcomes [E], their coordinates [E]
BONUS = 4  # [O]
ENTRY = 5  # DENSE: phi [O*d]; SPARSE: the non-zero entries [E]
FEATURE_FIELDS = 6


def feature_fields(layout: DenseFeatures | SparseFeatures | TabularFeatures, dimension: int) -> list[Any]:
    """Return a layout as the fields of a model."""
    entry, index = np.zeros(0), np.zeros(0, dtype=np.int64)
    kind = TABULAR
    if isinstance(layout, DenseFeatures):
        kind, entry = DENSE, layout.phi.reshape(-1)
    elif isinstance(layout, SparseFeatures):
        kind, entry = SPARSE, layout.entry
        index = np.concatenate([layout.start, layout.outcome, layout.coordinate])
    start, next_state, bonus = layout.outcomes
    return [np.array([kind, dimension], dtype=np.int64), start, next_state, index, bonus, entry]


@hot
def feature_vector(
    kind: int, d: int, start: Ints, index: Ints, entry: Floats, sa: int, target: Floats, out: Floats
) -> None:
    """Write phi_W(s, a) = sum_o phi(s, a, o) target(o) into ``out``."""
    first, count = start[sa], start[sa + 1] - start[sa]
    if kind == DENSE:
        w = target[0]
        row = part(entry, first * d, d)
        for j in range(d):
            out[j] = row[j] * w
        for i in range(1, count - 3, 4):  # four outcomes at a time, added one after the other
            w0, w1, w2, w3 = target[i], target[i + 1], target[i + 2], target[i + 3]
            rows = part(entry, (first + i) * d, 4 * d)
            for j in range(d):
                out[j] = (((out[j] + rows[j] * w0) + rows[d + j] * w1) + rows[2 * d + j] * w2) + rows[3 * d + j] * w3
        for i in range(count - (count - 1) % 4, count):
            w = target[i]
            row = part(entry, (first + i) * d, d)
            for j in range(d):
                out[j] += row[j] * w
    elif kind == SPARSE:
        for j in range(d):
            out[j] = 0.0
        outcome, coordinate = start.size, start.size + entry.size
        for e in range(index[sa], index[sa + 1]):
            out[np.uint64(index[coordinate + e])] += entry[e] * target[np.uint64(index[outcome + e])]
    else:
        for i in range(count):
            out[i] = target[i]


@hot_inline
def fill_target(outcomes: Outcomes, sa: int, values: Floats, out: Floats) -> tuple[float, float]:
    """Write W(o) for the outcomes of (s, a) into ``out``; return its smallest and largest value."""
    first, last = outcomes.start[sa], outcomes.start[sa + 1]
    next_state, bonus = outcomes.next_state[first:last], outcomes.bonus[first:last]
    low, high = math.inf, -math.inf
    for i in range(last - first):
        w = bonus[i] + values[np.uint64(next_state[i])]  # unsigned: no test for indices that count from the end
        out[i] = w
        low = min(low, w)
        high = max(high, w)
    return low, high


@hot
def outcome_of(outcomes: Outcomes, sa: int, after: int, bonus: float, any_bonus: bool) -> int:
    """Return the first outcome of (s, a) with this next state and, unless ``any_bonus``, this reward; -1 if none."""
    for o in range(outcomes.start[sa], outcomes.start[sa + 1]):
        if outcomes.next_state[o] == after and (any_bonus or abs(outcomes.bonus[o] - bonus) <= _SAME_REWARD):
            return o
    return -1

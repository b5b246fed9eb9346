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
    places: Ints  # [S*A + 1 + E] where the entries of (s, a) begin; of each, 2^32 times its outcome plus its coordinate
    entry: Floats  # [E]

    @property
    def start(self) -> Ints:
        """Where the entries of each (s, a) begin [S*A + 1]."""
        return self.places[: self.outcomes.start.size]

    @property
    def outcome(self) -> Ints:
        """The position of each entry's outcome inside its (s, a) [E]."""
        return self.places[self.outcomes.start.size :] >> 32

    @property
    def coordinate(self) -> Ints:
        """The coordinate of each entry [E]."""
        return self.places[self.outcomes.start.size :] & 2**32 - 1


class TabularFeatures(NamedTuple):
    """One-hot: the coordinate of an outcome is the outcome itself, so phi_W(s, a) is W."""

    outcomes: Outcomes


_SHIFT, _COORDINATE = np.uint64(32), np.uint64(2**32 - 1)  # to take an index apart
_SAME_REWARD = 1e-6  # rewards no farther apart are the same
DENSE, SPARSE, TABULAR = range(3)

# A feature map of any layout as six fields of a model, so that learners are compiled once for all layouts
SHAPE = 0  # [2] int, the layout and the number of coordinates
START = 1  # [S*A + 1] int, where the outcomes of (s, a) begin
NEXT = 2  # [O] int, next states
INDEX = 3  # int, SPARSE: as in SparseFeatures
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
        kind, entry, index = SPARSE, layout.entry, layout.places
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
        for e in range(index[sa], index[sa + 1]):
            place = np.uint64(index[start.size + e])  # unsigned: no test for indices that count from the end
            out[place & _COORDINATE] += entry[e] * target[place >> _SHIFT]
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


@hot_inline
def extremes(numbers: Floats) -> tuple[float, float]:
    """Return the smallest and the largest of some numbers, four at a time: none waits for the one before."""
    a = b = c = d = math.inf
    e = f = g = h = -math.inf
    whole = numbers.size // 4 * 4
    for i in range(0, whole, 4):
        w, x, y, z = numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]
        a, b, c, d = min(a, w), min(b, x), min(c, y), min(d, z)
        e, f, g, h = max(e, w), max(f, x), max(g, y), max(h, z)
    for i in range(whole, numbers.size):
        a, e = min(a, numbers[i]), max(e, numbers[i])
    return min(min(a, b), min(c, d)), max(max(e, f), max(g, h))


@hot
def outcome_of(outcomes: Outcomes, sa: int, after: int, bonus: float, any_bonus: bool) -> int:
    """Return the first outcome of (s, a) with this next state and, unless ``any_bonus``, this reward; -1 if none."""
    for o in range(outcomes.start[sa], outcomes.start[sa + 1]):
        if outcomes.next_state[o] == after and (any_bonus or abs(outcomes.bonus[o] - bonus) <= _SAME_REWARD):
            return o
    return -1

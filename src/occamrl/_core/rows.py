"""The rows of value-targeted regression, compressed: one buffer for every learner.

A row is (s, a, V, y): at step h of an episode V = V_{h+1} is the value function that the plan in play was made with,
and y = V(s'). Between two plans values and policy are fixed, so all rows seen at the same (h, s) have the same (s, a,
V): only how many there were, and the sums of their targets, are kept, and the statistics of a learner are touched when
its next plan is due. An episode that does not replan costs O(H). Targets are summed as differences from the first one
of their cell: where the range of a target function is tiny, its weight 1/R (M23) would turn the rounding of a sum of
large numbers into data.

The state of a learner that plans (:mod:`occamrl._core.arena`) begins with the fields of :func:`plan_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.arena import Arena, field, fmat, fvec, imat, ivec, named, part, square
from occamrl._core.compile import hot, hot_inline, implements, view
from occamrl._core.features import (
    BONUS,
    ENTRY,
    FEATURE_FIELDS,
    INDEX,
    NEXT,
    SHAPE,
    START,
    feature_fields,
    feature_vector,
    fill_target,
)
from occamrl._core.loop import Path, copy_table, planned_value, write_policy
from occamrl._core.regression import add_row, stacked
from occamrl.errors import ParameterError
from occamrl.protocols import Field, Floats, Ints, Known, Outcomes

# Fields of a state: the plan in play, the rows seen under it, the rewards observed
(
    POLICY,  # [H, S] int
    VISITS,  # [H, S] int, rows since they were last entered
    CELLS,  # [H*S] int, where they are: the first counters[TOUCHED] count
    COUNTERS,  # int
    VALUES,  # [H + 1, S] V_h of the plan in play
    FIRST,  # [H, S] the target of the first row of a cell
    TOTAL,  # [H, S] sum of the targets, less FIRST each
    SQUARES,  # [H, S] sum of the squares of these differences
    HEARD,  # [R, S*A] int, number of rewards observed; R = 0 where rewards are known
    HEARD_AT_PLAN,  # [R, S*A] int, the same when the plan in play was made
    HEARD_TOTAL,  # [R, S*A] sum of the rewards
    HEARD_SQUARES,  # [R, S*A] sum of their squares
) = range(12)
PLAN_FIELDS = 12

EPISODES, TOUCHED, PLANS, REWARDS_DUE = range(4)  # counters
PLAN_COUNTERS = 4
MOST_ROWS = 2**40  # more than any run has; sums of so many are exact
MOST = 1e300  # sums of larger numbers overflow


class PlanState(Arena):
    """The state of a learner that plans; its arrays can be read by name in Python."""

    __slots__ = ()

    policy = named(POLICY)
    visits = named(VISITS)
    counters = named(COUNTERS)
    values = named(VALUES)


def follows_plan(kind: type) -> None:
    """Give states of class ``kind`` the usual ``write_policy`` and ``planned_value``: those of the plan in play."""

    def write_table(model: Any, state: Any, policy: Ints) -> None:
        copy_table(imat(state, POLICY), policy)

    def value_of_plan(model: Any, state: Any, s: int) -> float:
        return float(fmat(state, VALUES)[0, s])

    implements(write_policy, kind, argument=1)(write_table)
    implements(planned_value, kind, argument=1)(value_of_plan)


Counters = Mapping[str, tuple[int, int, int]]


def plan_fields(known: Known, reward_rows: int, counters: Counters | None = None) -> list[Field]:
    """Return the fields that every state has; ``counters`` are further ones by name: least, most, before any data."""
    table, cells = (known.horizon, known.states), known.horizon * known.states
    heard, top = (reward_rows, known.states * known.actions), known.horizon + 2.0  # no target is larger
    first = {"episodes": MOST_ROWS, "touched": cells, "plans": MOST_ROWS, "rewards_due": 1}
    every = {**{name: (0, most, 0) for name, most in first.items()}, **(counters or {})}
    low, high, fill = np.array(list(every.values()), dtype=np.int64).T
    return [
        Field("policy", table, 0, known.actions - 1),
        Field("visits", table, 0, MOST_ROWS),
        Field("cells", (cells,), 0, cells - 1),
        Field("counters", (len(every),), low, high, fill, tuple(every)),
        Field("values", (known.horizon + 1, known.states), -1.0, top),
        Field("first", table, -top, top),
        Field("total", table, -MOST_ROWS * 2.0 * top, MOST_ROWS * 2.0 * top),
        Field("squares", table, 0.0, MOST_ROWS * 4.0 * top**2),
        Field("heard", heard, 0, MOST_ROWS),
        Field("heard_at_plan", heard, 0, MOST_ROWS),
        Field("heard_total", heard, 0.0, float(MOST_ROWS)),
        Field("heard_squares", heard, 0.0, float(MOST_ROWS)),
    ]


def require_rows(state: Any) -> None:
    """Refuse rows that wait in other cells than those listed, and rewards that cannot have been observed."""
    visits, touched = field(state, VISITS).reshape(-1), int(field(state, COUNTERS)[TOUCHED])
    listed = np.sort(field(state, CELLS)[:touched])
    if not np.array_equal(listed, np.flatnonzero(visits)):
        raise ParameterError("state.cells", got="other cells", expected="those with rows, once each")
    for name, number in (("total", TOTAL), ("squares", SQUARES)):
        if field(state, number).reshape(-1)[visits == 0].any():
            raise ParameterError(f"state.{name}", got="a sum without rows", expected="zero where there are none")
    if field(state, VALUES)[-1].any():
        raise ParameterError("state.values", got="values after the last step", expected="zero there")
    heard = field(state, HEARD)
    for name, number in (
        ("heard_at_plan", HEARD_AT_PLAN),
        ("heard_total", HEARD_TOTAL),
        ("heard_squares", HEARD_SQUARES),
    ):
        if (field(state, number) > heard * (1.0 + 1e-9)).any():
            raise ParameterError(f"state.{name}", got="more than rewards in [0, 1] add up to", expected="at most heard")


def require_agreement(faults: Mapping[str, Any]) -> None:
    """Refuse a state in which a field, by name, contradicts others."""
    for name, fault in faults.items():
        if fault:
            raise ParameterError(f"state.{name}", got="what contradicts other fields", expected="what agrees")


@hot_inline
def count_rows(state: Any, path: Path, steps: int, bonus_in_target: bool, square: bool) -> None:
    """Count the rows of the first ``steps`` transitions; where rewards come on outcomes their part joins the target.

    ``square``: sum the squares of the targets as well. Rows wait by (h, s), for the action of the plan: of an episode
    that another learner played, steps with another action are left out.
    """
    visits, values, first = imat(state, VISITS), fmat(state, VALUES), fmat(state, FIRST)
    total, squares = fmat(state, TOTAL), fmat(state, SQUARES)
    cells, counters = ivec(state, CELLS), ivec(state, COUNTERS)
    policy, states, touched = imat(state, POLICY), visits.shape[1], counters[TOUCHED]
    s = np.uint64(path.states[0])  # unsigned: no test for indices that count from the end
    for h in range(steps):
        after = np.uint64(path.states[h + 1])
        if path.actions[h] != policy[h, s]:
            s = after
            continue
        target = values[h + 1, after]
        if bonus_in_target:
            target = path.bonus[h] + target
        if visits[h, s] == 0:
            first[h, s] = target
            cells[touched] = h * states + path.states[h]
            touched += 1
        gap = target - first[h, s]
        visits[h, s] += 1
        total[h, s] += gap
        if square:
            squares[h, s] += gap * gap
        s = after
    counters[TOUCHED] = touched


@hot_inline
def take_cell(visits: Ints, total: Floats, squares: Floats, cell: int) -> tuple[int, int, int, float, float]:
    """Empty a cell; return (h, s, number of rows, sum of their targets, and of the squares, less the first)."""
    h, s = divmod(cell, visits.shape[1])
    count, sum_, square = visits[h, s], total[h, s], squares[h, s]
    visits[h, s] = 0
    total[h, s] = 0.0
    squares[h, s] = 0.0
    return h, s, count, sum_, square


# Fields of a model: rewards that the plan counts on, scratch, and the class in which rows are recorded
REWARD = 0  # [R, S*A]
PSI = 1  # [S*A, p] features of rewards
REWARD_WORK = 2  # scratch of their regression
TARGET = 3  # [most outcomes of an (s, a)]
X = 4  # [largest block]
FEATURES = 5  # six fields: the features of the class that plans
RECORD = FEATURES + FEATURE_FIELDS  # six fields: those in which rows are recorded, or entered if some coordinates plan
RECORD_OF = RECORD + FEATURE_FIELDS  # [S*A] int, the block of (s, a) among those of the class of record
RECORD_VECTOR = RECORD_OF + 1  # [T*B + 1] int, where vectors begin
RECORD_MATRIX = RECORD_OF + 2  # [T*B + 1] int, where matrices begin
MODEL_FIELDS = RECORD_OF + 3

# Further fields of a state that records its rows in a larger class, for tests of that class; empty otherwise
GRAM = PLAN_FIELDS  # [T * blocks' matrices] sum x x^T
GRAM_XY = PLAN_FIELDS + 1  # [T*d] sum y x
GRAM_SQUARES = PLAN_FIELDS + 2  # [1] sum y^2
GRAM_PAIRS = PLAN_FIELDS + 3  # [T*S*A, 2 + largest block] of each (s, a): number of rows, sum y, sum x
STATE_FIELDS = PLAN_FIELDS + 4


@hot_inline
def weigh(weighted: bool, low: float, high: float, target: Floats, count: int) -> tuple[float, float]:
    """Turn a target function W with values in [low, high] into (W - c)/R and return (c, R) (M23).

    Without weights it stays as it is, with (0, 1). R = 0 says that the target is constant: the row carries nothing.
    """
    if not weighted:
        return 0.0, 1.0
    spread = high - low
    if spread <= 0.0:
        return low, 0.0
    middle = 0.5 * (low + high)
    for i in range(count):
        target[i] = (target[i] - middle) / spread
    return middle, spread


class FeatureView(NamedTuple):
    """The features of a model; taken once by a function that needs them in a loop."""

    kind: int
    dimension: int
    outcomes: Outcomes
    places: Ints
    entries: Floats


@view
def features_of(model: Any, first: int) -> FeatureView:
    """Return the features of the class that plans (``first`` is FEATURES) or of the class of record (RECORD)."""
    shape = ivec(model, first + SHAPE)
    outcomes = Outcomes(ivec(model, first + START), ivec(model, first + NEXT), fvec(model, first + BONUS))
    return FeatureView(shape[0], shape[1], outcomes, ivec(model, first + INDEX), fvec(model, first + ENTRY))


@hot
def row_of(
    features: FeatureView, weighted: bool, values: Floats, sa: int, target: Floats, x: Floats
) -> tuple[float, float]:
    """Write the row x of (s, a) for the values of the next step, unless it carries nothing; return (c, R)."""
    start = features.outcomes.start
    low, high = fill_target(features.outcomes, sa, values, target)
    middle, spread = weigh(weighted, low, high, target, start[sa + 1] - start[sa])
    if spread > 0.0:
        feature_vector(features.kind, features.dimension, start, features.places, features.entries, sa, target, x)
    return middle, spread


class NoRecord(NamedTuple):
    """Rows are not recorded in another class."""


class Record(NamedTuple):
    """Rows are recorded in a larger class, for tests of it."""

    steps: int  # T


def model_fields(planned: Any, entered: Any, record: Any, known: Known, steps: int) -> list[Any]:
    """Return the fields TARGET, X, FEATURES, RECORD and RECORD_... of a model.

    ``planned`` is the feature map of the class that plans, ``entered`` the one in which rows are entered, ``record``
    the one in which they are recorded besides; None: nowhere.
    """
    every = [planned, entered] if record is None else [planned, entered, record]
    other = entered if record is None else record
    fields = [
        np.zeros(max(int(np.diff(each.layout.outcomes.start).max()) for each in every)),
        np.zeros(max(int(each.blocks.size.max()) for each in every)),
        *feature_fields(planned.attach(known), planned.dimension),
    ]
    if record is None and other is planned:
        empty = [np.zeros(0, np.int64)] * 4 + [np.zeros(0)] * 2
        return [*fields, *empty, *([np.zeros(0, np.int64)] * 3)]
    fields += feature_fields(other.attach(known), other.dimension)
    blocks = stacked(other.blocks, steps)
    return [*fields, blocks.of, blocks.vector_start, blocks.matrix_start]


def record_fields(features: Any, steps: int, pairs: int) -> list[Field]:
    """Return the fields GRAM, GRAM_XY, GRAM_SQUARES and GRAM_PAIRS of a state; empty without features."""
    shapes: list[tuple[int, ...]] = [(0,), (0,), (0,), (0, 0)]
    if features is not None:
        blocks = features.blocks
        shapes = [(steps * int(blocks.matrix_start[-1]),), (steps * features.dimension,), (1,)]
        shapes += [(steps * pairs, 2 + int(blocks.size.max()))]
    names = ("gram", "gram_xy", "gram_squares", "gram_pairs")
    most = MOST**0.5  # products of these sums are formed
    return [Field(name, shape, -most, most) for name, shape in zip(names, shapes, strict=True)]


def record_rows(
    record: Any, model: Any, state: Any, h: int, sa: int, count: int, first: float, total: float, squares: float
) -> None:
    """Enter the rows of a cell into the sums of the class of record."""
    raise TypeError(f"no record of type {type(record).__name__}")


@implements(record_rows, NoRecord)
def record_nothing(
    record: NoRecord, model: Any, state: Any, h: int, sa: int, count: int, first: float, total: float, squares: float
) -> None:
    """``record_rows`` where there is no class of record."""


@implements(record_rows, Record, inline=False)
def record_in_class(
    record: Record, model: Any, state: Any, h: int, sa: int, count: int, first: float, total: float, squares: float
) -> None:
    """``record_rows`` in the class of record."""
    of, vectors, matrices = ivec(model, RECORD_OF), ivec(model, RECORD_VECTOR), ivec(model, RECORD_MATRIX)
    steps = record.steps
    x = fvec(model, X)
    features, values = features_of(model, RECORD), fmat(state, VALUES)[h + 1]
    middle, spread = row_of(features, model.weighted, values, sa, fvec(model, TARGET), x)
    if spread <= 0.0:
        return
    shift = first - middle
    y = (total + count * shift) / spread
    fvec(state, GRAM_SQUARES)[0] += (squares + shift * (2.0 * total + count * shift)) / (spread * spread)
    t = h % steps
    b = t * ((vectors.size - 1) // steps) + of[sa]
    n = vectors[b + 1] - vectors[b]
    add_row(square(fvec(state, GRAM), matrices[b], n), count, x)
    xy, pairs = part(fvec(state, GRAM_XY), vectors[b], n), fmat(state, GRAM_PAIRS)
    row = t * of.size + sa
    pairs[row, 0] += count
    pairs[row, 1] += y
    for i in range(n):
        xy[i] += y * x[i]
        pairs[row, 2 + i] += count * x[i]

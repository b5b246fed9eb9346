r"""The test of ARL-GEN on episodes that someone else collected.

Before each stretch of episodes a value function is planned from the episodes before it, as ARL-GEN would: that of the
most hopeful kernel of the smallest class not rejected so far. Its rows are (s, a, V, y) with the log's own s and a. So
V, s and a are fixed before y, E[y | past] = (P* V)(s, a), and M22 (M15 for linear classes) holds for all times at once,
whoever chose the actions. Stretches grow with the data, so that rows are counted, not kept (the classes are tested at
their ends).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Known
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.ladder import Ladder
from occamrl.families.linear_ladder import LinearLadder
from occamrl.kernels.row_table import RowTable, row_table, with_room
from occamrl.learners.finite_rows import ROWS, FiniteModel
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested
from occamrl.logs.matching import Matched
from occamrl.logs.rows import Counts, count_rows, enter_finite, enter_linear, hopeful, no_counts, plan_now, right_side
from occamrl.selectors._ladder_linear import LadderLinear

Tell = Callable[[int], None]  # told how many episodes are done


@dataclass(frozen=True)
class Replay:
    """What the rows of a log say about the classes of a ladder."""

    losses: Floats  # [M] the smallest loss of each class, less sum y^2
    bound: float  # the loss above which a class is rejected, likewise
    squares: float  # sum y^2
    rejected_at: tuple[int | None, ...]  # [M] the episode after which a class was rejected
    loss: Floats  # [n] of every kernel (finite classes)
    alive: Any  # [n] bool: never rejected (finite classes)
    table: RowTable | None  # rows by (member, h, s, a) (finite classes)
    model: FiniteModel | None
    outside: bool = False  # the largest linear class fits worse than noise explains


def stretches(episodes: int, growth: float) -> Iterator[tuple[int, int]]:
    """Return the stretches of episodes that share a plan: the data grow by the factor 1 + growth, or by one."""
    first = 0
    while first < episodes:
        last = min(episodes, max(first + 1, math.ceil(first * (1.0 + growth))))
        yield first, last
        first = last


def replay_finite(
    rows: Matched, ladder: Ladder, known: Known, *, delta: float, growth: float, slack: float, tell: Tell
) -> Replay:
    """Test nested finite classes (M25): class m stands while one of its kernels has never been rejected."""
    learner = UCRLVTRNested(ladder=ladder, delta=delta)
    model, state = learner.model(known), learner.begin(known)
    n, sizes = ladder.family.size, ladder.sizes
    loss, alive, table, squares, bound = np.zeros(n), np.ones(n, dtype=bool), row_table(256), 0.0, math.inf
    counts = no_counts(known.horizon, known.states * known.actions)
    rejected: list[int | None] = [None] * ladder.classes
    for first, last in stretches(rows.start.size, growth):
        if alive.any():
            state.loss[:] = np.where(alive, loss, np.inf)
            size = sizes[int(ladder.level[np.argmax(alive)])]
            member = int(hopeful(model, state, size, int(rows.start[first])))
        else:
            member = int(np.argmin(loss))
        _count(model.features.outcomes, model.values[member], rows, first, last, counts)
        table = with_room(table, int(np.count_nonzero(counts.visits)))
        squares += float(enter_finite(model, member, counts, loss, table))
        state.loss[:] = loss
        state.counters[ROWS] = table.visits.sum()
        bound, best = float(right_side(model, state)), float(loss.min())
        bound = best + slack * (bound - best)
        alive &= loss <= bound
        for m, size in enumerate(sizes):
            if rejected[m] is None and not alive[:size].any():
                rejected[m] = last
        tell(last)
    losses = np.minimum.accumulate([float(loss[:size].min()) for size in sizes])
    return Replay(losses, bound, squares, tuple(rejected), loss, alive, table, model)


def replay_linear(
    rows: Matched, ladder: LinearLadder, known: Known, *, delta: float, growth: float, slack: float, tell: Tell
) -> Replay:
    """Test nested linear classes by the linear form of M15."""
    test = LadderLinear(
        ladder=ladder,
        delta=delta,
        rule="sharp",
        data="pooled",
        anytime=True,
        test_growth=growth,
        guard=False,
        start_class=1,
        radius="sharp",
        weights="range",
        replan=0.0,
        scale=1.0,
        slack=slack,
        rewards="known",
        kernel="stationary",
    )
    memory = test.start(known)
    counts = no_counts(known.horizon, known.states * known.actions)
    rejected: list[int | None] = [None] * ladder.classes
    losses, bound, outside = np.zeros(ladder.classes), math.inf, False
    for first, last in stretches(rows.start.size, growth):
        phase = test.next_phase(known, memory)
        model = phase.learner.model(known)
        m = memory["chosen"]
        if isinstance(ladder.rung(m), FiniteFamily):  # its plan is made from all rows, as a linear one's is
            phase.state.inner.loss[:] = ladder.member_losses(m, memory["gram"], memory["xy"])
        plan_now(model, phase.state, int(rows.start[first]))
        memory["squares"] += _enter(model.full, phase.state.values, rows, first, last, counts, memory)
        memory["episodes"] = last
        losses, unit = test.losses(memory), float(model.full.unit)
        bound = test.bound(memory, losses, last * known.horizon, unit, delta)
        tests = zip(rejected, losses, bound + test.off_grid(memory, unit, delta), strict=True)
        rejected = [last if at is None and each > most else at for at, each, most in tests]
        outside = outside or (test.misfit(memory, float(losses[-1]), unit, delta) or 0.0) > 0.0
        tell(last)
    empty = np.zeros(0)
    squares = memory["squares"]
    return Replay(losses, bound, squares, tuple(rejected), empty, empty.astype(bool), None, None, outside)


def mixture_statistics(
    rows: Matched, features: FeatureMap, known: Known, *, growth: float = 0.1, norm_bound: float = 1.0
) -> tuple[LinearStatistics, Floats]:
    """Return the rows of a log over the coordinates of a feature map, and the value functions planned with last.

    For :func:`occamrl.supports`: which of the simulators matter, from a log.
    """
    learner, d = UCRLVTRLin(features=features, norm_bound=norm_bound, replan=0.0), features.dimension
    model, pairs = learner.model(known), known.states * known.actions
    size = int(features.blocks.size.max())
    memory = {
        "gram": np.zeros(int(features.blocks.matrix_start[-1])),
        "xy": np.zeros(d),
        "pairs": np.zeros((pairs, 2 + size)),
    }
    counts, state = no_counts(known.horizon, pairs), learner.begin(known)
    for first, last in stretches(rows.start.size, growth):
        so_far = LinearStatistics(memory["gram"], memory["xy"], first)
        state = learner.begin(known, so_far)
        plan_now(model, state, int(rows.start[first]))
        _enter(model, state.values, rows, first, last, counts, memory)
    return LinearStatistics(memory["gram"], memory["xy"], rows.start.size), state.values


def _count(outcomes: Any, values: Floats, rows: Matched, first: int, last: int, counts: Counts) -> None:
    part = slice(int(rows.begin[first]), int(rows.begin[last]))
    count_rows(outcomes, np.ascontiguousarray(values), rows.h[part], rows.pair[part], rows.outcome[part], counts)


def _enter(
    model: Any, values: Floats, rows: Matched, first: int, last: int, counts: Counts, memory: dict[str, Any]
) -> float:
    _count(model.row_features.outcomes, values, rows, first, last, counts)
    return float(enter_linear(model, values, counts, memory["gram"], memory["xy"], memory["pairs"]))

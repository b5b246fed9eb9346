"""``select``: how rich a model logged episodes ask for, and what would settle what they leave open.

The test of ARL-GEN is applied to episodes that someone else collected. Before each stretch of episodes a value function
is planned from the episodes before it, as ARL-GEN would: that of the most optimistic kernel of the smallest class not
rejected so far. Its rows are (s, a, V, y) with the log's own s and a. So V, s and a are fixed before y,
E[y | past] = (P* V)(s, a), and M22 (M15 for linear classes) holds for all times at once, whoever chose the actions.
Stretches grow with the data, so that rows are counted, not kept; the classes are tested at their ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.loop import open_episode
from occamrl.envs.ladder_file import LadderSpec
from occamrl.errors import ParameterError, require_kind, require_number
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.logs.log import Log, Matched, match_rows
from occamrl.models.family import sparse_rows
from occamrl.models.features import FeatureMap
from occamrl.models.finite import level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Ints, Known
from occamrl.running.run import Progress
from occamrl.selectors.arl_gen import ARLGen, RegressionEvidence, unexplained

DECIDED = "decided"  # every kernel that is left lies in the class chosen, and every smaller class is rejected
AT_LEAST = "at least"  # every smaller class is rejected; larger ones are not excluded
NOT_ENOUGH = "not enough data"  # nothing is rejected, nothing larger is excluded
OUTSIDE = "outside"  # no class explains the data

GROWTH = 0.1  # of the data, after which a new value function is planned and the classes are tested
_NOTHING = 1e-9  # a squared distance that is none
_MOST_NUMBERS = 2**22  # in memory at once, of predictions

Tell = Callable[[int], None]  # called with the number of episodes that are done


@dataclass(frozen=True)
class MoreData:
    """Episodes that would be needed on top, at the rate at which the log tells models apart; infinite: never."""

    half: float  # to exclude half of the kernels that are left outside the class chosen, if that is the right one
    all: float  # ... all of them that such a log can exclude
    never: int  # how many of them no such log can tell from the best kernel of the class chosen
    if_wrong: float  # to reject the class chosen, if the best kernel outside it is the truth


@dataclass(frozen=True)
class Rung:
    """A class of the ladder, and how it stands."""

    name: str
    size: int  # kernels; dimensions of a linear class
    statistic: float  # T_m (M13) of range-weighted rows: smallest loss over the number of rows
    rejected_after: int | None  # episodes; None: not rejected
    left: int | None  # kernels that the data have not rejected; None for a linear class


@dataclass(frozen=True)
class Selection:
    """The answer; ``print`` it, or take ``as_data()``."""

    rungs: tuple[Rung, ...]
    threshold: float  # of the statistics
    chosen: int  # the smallest class that is not rejected, from 1; M where all are
    verdict: str  # "decided" | "at least" | "not enough data" | "outside"
    why: str
    more: MoreData | None
    episodes: int
    rows: int
    unvisited: int  # pairs (s, a) that the log never met
    pairs: int
    delta: float
    source: str

    def as_data(self) -> dict[str, Any]:
        """Return plain data, as JSON takes it; infinite numbers become None."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return plain

    def __str__(self) -> str:
        covered = f"{self.pairs - self.unvisited} of {self.pairs} state-action pairs met"
        lines = [f"{self.source}: {self.episodes:,} episodes, {self.rows:,} steps, {covered}; delta {self.delta:g}"]
        width = max(len(rung.name) for rung in self.rungs)
        for m, rung in enumerate(self.rungs, start=1):
            fate = f"rejected after {rung.rejected_after:,} episodes" if rung.rejected_after else "not rejected"
            left = "" if rung.left is None else f", {rung.left:,} of {rung.size:,} kernels left"
            mark = "->" if m == self.chosen and self.verdict != OUTSIDE else "  "
            lines.append(f"{mark} {m}. {rung.name:<{width}}  T = {rung.statistic:.5f}  {fate}{left}")
        lines.append(f"   threshold {self.threshold:.5f}")
        lines.append(f"Verdict: {self.verdict}. {self.why}")
        return "\n".join(lines)


def select(
    log: Log,
    ladder: Ladder | LadderSpec,
    known: Known | None = None,
    *,
    delta: float = 0.05,
    progress: bool | None = None,
) -> Selection:
    """Apply the test of ARL-GEN to logged episodes.

    Parameters
    ----------
    log : Log
    ladder : Ladder or LadderSpec
        A spec (``read_ladder``) has names, what is known, and the unit of the log's rewards.
    known : Known, optional
        With a plain ladder: ``mdp.known`` of the problem, in the unit of the log's rewards.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta, whatever policy made
        the log, as long as it looked at the past only; over all tests together.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.
    """
    spec = ladder
    if isinstance(ladder, Ladder):
        if known is None:
            raise ParameterError("known", got=None, expected="mdp.known: sizes, horizon and rewards")
        require_kind("known", known, Known)
        spec = LadderSpec(ladder=ladder, known=known)
    if not isinstance(spec, LadderSpec):
        raise ParameterError("ladder", got=type(ladder).__name__, expected="a Ladder or LadderSpec")
    if spec.kernel != "stationary":
        raise ParameterError("kernel", got=repr(spec.kernel), expected='"stationary": a log is tested for one')
    if not spec.known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: values are planned for them")
    require_kind("log", log, Log)
    require_number("delta", delta, 1e-300, 1.0)
    ladder, known, names = spec.ladder, spec.known, spec.names
    outcomes = ladder.features.attach(known).outcomes
    rows = whole = match_rows(log, known, outcomes, spec.rewards)
    impossible = np.flatnonzero(rows.outcome < 0)  # what no model allows
    broken = int(impossible[0]) if impossible.size else None
    if broken is not None:  # the episodes before it are tested
        before = log.head(int(np.searchsorted(log.begin, broken, side="right")) - 1)
        whole = match_rows(before, known, outcomes, spec.rewards)
    bar = Progress("select", whole.start.size, progress)
    try:
        replay = (replay_finite if ladder.finite else replay_linear)(whole, ladder, known, delta, bar.update)
    finally:
        bar.close()
    standing = [m for m, at in enumerate(replay.rejected_at, start=1) if at is None]
    chosen, pairs = standing[0] if standing else ladder.classes, known.states * known.actions
    more = None
    if broken is not None:
        s, a, s2 = int(log.state[broken]), int(log.action[broken]), int(log.next_state[broken])
        verdict, why = OUTSIDE, f"Row {broken} goes from state {s} by action {a} to {s2}, which no model allows."
    elif replay.outside:
        verdict, why = OUTSIDE, "No model of the ladder explains the data: it needs a class that it does not have."
    else:
        more = more_data(replay, ladder, known, chosen, log.episodes) if ladder.finite else None
        verdict, why = judge(chosen, more, finite=ladder.finite, classes=ladder.classes, name=names[chosen - 1])
    steps = max(1, whole.pair.size)
    unvisited = int((np.bincount(rows.pair, minlength=pairs) == 0).sum())
    return Selection(
        rungs=_rungs(replay, ladder, names, steps),
        threshold=(replay.bound + replay.squares) / steps,
        chosen=chosen,
        verdict=verdict,
        why=why,
        more=more,
        episodes=log.episodes,
        rows=log.rows,
        unvisited=unvisited,
        pairs=pairs,
        delta=delta,
        source=log.source,
    )


def _rungs(replay: Replay, ladder: Ladder, names: Sequence[str], steps: int) -> tuple[Rung, ...]:
    sizes = [rung.size if rung.finite else rung.own_features.dimension for rung in ladder.rungs]
    left = [int(replay.alive[:size].sum()) if ladder.finite else None for size in sizes]
    statistics = [float(loss + replay.squares) / steps for loss in replay.losses]
    columns = zip(names, sizes, statistics, replay.rejected_at, left, strict=True)
    return tuple(Rung(*column) for column in columns)


def more_data(replay: Replay, ladder: Ladder, known: Known, chosen: int, episodes: int) -> MoreData | None:
    """Return what would settle the question between the class chosen and the kernels left outside it; None if none."""
    size = ladder.sizes[chosen - 1]
    inside, outside = np.flatnonzero(replay.alive[:size]), size + np.flatnonzero(replay.alive[size:])
    if not outside.size or not inside.size:
        return None
    best, rival = (int(kernels[np.argmin(replay.loss[kernels])]) for kernels in (inside, outside))

    def left(distance: float, reference: int) -> float:
        # If the reference is true, another kernel's loss exceeds its by the distance d on average, with a standard
        # deviation of at most sqrt(d) (M21's noise of range 1): d - sqrt(d) >= allowance.
        allowance = max(replay.bound - float(replay.loss[reference]), 0.0)
        needed = ((1.0 + math.sqrt(1.0 + 4.0 * allowance)) / 2.0) ** 2
        return max(1.0, episodes * (needed / distance - 1.0)) if distance > _NOTHING else math.inf

    gaps = distances(replay, ladder, known, outside, best)
    times = np.array([left(float(gap), best) for gap in gaps])
    seen = times[np.isfinite(times)]
    back = float(distances(replay, ladder, known, inside, rival).min())
    return MoreData(
        half=float(np.median(times)),
        all=float(seen.max()) if seen.size else math.inf,
        never=int(np.isinf(times).sum()),
        if_wrong=left(back, rival),
    )


def judge(chosen: int, more: MoreData | None, *, finite: bool, classes: int, name: str) -> tuple[str, str]:
    """Return the verdict on a ladder that holds the truth, and the reason in words."""
    if chosen == classes or (finite and more is None):
        smaller = "Every smaller class is rejected" if chosen > 1 else "It is the smallest"
        enough = ", and every kernel outside it" if chosen < classes else ""
        return DECIDED, f"The model needed is class {chosen} ({name}). {smaller}{enough}."
    if finite and more is not None:
        open_ones = _open(more)
    else:
        open_ones = (
            "A larger linear class holds this one, so data can never exclude it; they can only fail to ask for it."
        )
    if chosen > 1:
        return AT_LEAST, f"Class {chosen} ({name}) or a larger one: every smaller class is rejected. {open_ones}"
    return NOT_ENOUGH, f"Class 1 ({name}) is not contradicted, and nothing larger is excluded. {open_ones}"


def _open(more: MoreData) -> str:
    parts = []
    if math.isfinite(more.half):
        half = _rounded(more.half)
        text = f"If it is right, about {half} more such episodes exclude half of what is left outside it"
        parts.append(text + (f", {_rounded(more.all)} all that they can." if more.all > more.half else "."))
    if more.never:
        parts.append(
            f"{more.never:,} kernels outside it predict the same at every step of such a log: it needs others."
        )
    if math.isfinite(more.if_wrong):
        parts.append(f"If the best kernel outside it is the truth, about {_rounded(more.if_wrong)} more reject it.")
    return " ".join(parts)


def _rounded(episodes: float) -> str:
    return f"{float(f'{episodes:.2g}'):,.0f}"


@dataclass(frozen=True)
class Replay:
    """What the rows of a log say about the classes of a ladder."""

    losses: Floats  # [M] the smallest loss of each class, less sum y^2
    bound: float  # the loss above which a class is rejected, likewise
    squares: float  # sum y^2
    rejected_at: tuple[int | None, ...]  # [M] the episode after which a class was rejected
    outside: bool  # the data show that no class holds the truth
    loss: Floats = field(default_factory=lambda: np.zeros(0))  # [n] of every kernel (finite classes)
    alive: Any = field(default_factory=lambda: np.zeros(0, bool))  # [n] never rejected (finite classes)
    cells: list[tuple[int, Cells]] = field(default_factory=list)  # by the member whose values they have (likewise)


def stretches(episodes: int) -> Iterator[tuple[int, int]]:
    """Return the stretches of episodes that share a plan: the data grow by the factor 1 + GROWTH, or by one."""
    first = 0
    while first < episodes:
        last = min(episodes, max(first + 1, math.ceil(first * (1.0 + GROWTH))))
        yield first, last
        first = last


def replay_finite(rows: Matched, ladder: Ladder, known: Known, delta: float, tell: Tell) -> Replay:
    """Test nested finite classes (M25): class m stands while one of its kernels has never been rejected."""
    family, sizes = ladder.family, ladder.sizes
    values, reach = family.optimal_values(known), family.reach
    loss, alive, squares, bound = np.zeros(family.size), np.ones(family.size, dtype=bool), 0.0, math.inf
    entered: list[tuple[int, Cells]] = []
    rejected: list[int | None] = [None] * ladder.classes
    for first, last in stretches(rows.start.size):
        if alive.any():
            left = np.flatnonzero(alive[: sizes[int(ladder.level[np.argmax(alive)])]])
            member = int(left[np.argmax(values[left, 0, rows.start[first]])])
        else:
            member = int(np.argmin(loss))
        cells = cells_of(family.features, known, rows, first, last, values[member])
        squares += cells.squares
        entered.append((member, cells._replace(x=None)))  # which can be computed again
        for part, z in _predictions(cells.x, family.theta):
            loss += cells.visits[part] @ z**2 - 2.0 * (cells.total[part] @ z)
        count = sum(float(each.visits.sum()) for _, each in entered)
        bound = right_side(loss, ladder.prior, reach, count, delta)
        alive &= loss <= bound
        for m, size in enumerate(sizes):
            if rejected[m] is None and not alive[:size].any():
                rejected[m] = last
        tell(last)
    losses = np.minimum.accumulate([float(loss[:size].min()) for size in sizes])
    outside = all(at is not None for at in rejected) or _misfit(entered, float(losses[-1]), reach, delta) > 0.0
    return Replay(losses, bound, squares, tuple(rejected), outside, loss, alive, entered)


def right_side(loss: Floats, prior: Floats, reach: float, rows: float, delta: float) -> float:
    """Return the loss above which a kernel is rejected (M22), with a term for a truth between the points of a cover."""
    best = float(loss.min())
    mixture = best - 0.5 * math.log(float(prior @ np.exp(-2.0 * (loss - best))))
    return mixture + 0.5 * math.log(1.0 / level(reach, delta)) + off_grid(reach, rows, delta)


def _misfit(entered: list[tuple[int, Cells]], least: float, reach: float, delta: float) -> float:
    """Return by how much the best kernel's loss exceeds what noise explains; above 0: the truth is none of them.

    As for ARL-GEN, every cell (member, h, s, a) has a mean of its own in the alternative.
    """
    sums: dict[int, Floats] = {}
    for member, cells in entered:
        table = sums.setdefault(member, np.zeros((2, cells.most)))
        table[:, cells.key] += cells.visits, cells.total  # a key occurs once
    count, total = np.concatenate([np.zeros((2, 0)), *sums.values()], axis=1)  # there may be no rows
    return unexplained(count, total, least, level(reach, delta)) - off_grid(reach, float(count.sum()), delta)


def replay_linear(rows: Matched, ladder: Ladder, known: Known, delta: float, tell: Tell) -> Replay:
    """Test nested linear classes by the linear form of M15."""
    test = RegressionEvidence(ARLGen(ladder=ladder, delta=delta, replan=0.0, test_growth=GROWTH))
    memory = test.begin(known)
    rejected: list[int | None] = [None] * ladder.classes
    losses, allowed, outside = np.zeros(ladder.classes), np.full(ladder.classes, math.inf), False
    for first, last in stretches(rows.start.size):
        accepted = losses <= allowed
        m = 1 + int(np.argmax(accepted)) if accepted.any() else ladder.classes
        values = _plan(ladder, m, known, memory, delta, int(rows.start[first]))
        memory["squares"] += enter(ladder.features, known, rows, first, last, values, memory)
        memory["episodes"] = last
        losses = test.losses(memory)
        allowed = test.bound(memory, float(losses[-1]), 1.0, delta)
        tests = zip(rejected, losses, allowed, strict=True)
        rejected = [last if at is None and each > most else at for at, each, most in tests]
        outside = outside or (test.misfit(memory, float(losses[-1]), 1.0, delta) or 0.0) > 0.0
        tell(last)
    outside = outside or all(at is not None for at in rejected)
    return Replay(losses, float(allowed[-1]), memory["squares"], tuple(rejected), outside)


def _plan(ladder: Ladder, m: int, known: Known, memory: dict[str, Any], delta: float, start: int) -> Floats:
    """Return the values [H + 1, S] that class m plans with on all rows so far, optimistically at ``start``."""
    rung, gram, xy = ladder.rung(m), memory["gram"], memory["xy"]
    if not rung.finite:
        learner = UCRLVTRLin(features=rung.own_features, norm_bound=rung.norm_bound, delta=delta, replan=0.0)
        return planned_values(
            learner, known, LinearStatistics(*ladder.statistics(m, gram, xy), memory["episodes"]), start
        )
    losses, values = ladder.member_losses(m, gram, xy), rung.optimal_values(known)
    prior, rows = np.full(rung.size, 1.0 / rung.size), float(memory["pairs"][:, 0].sum())
    left = np.flatnonzero(losses <= right_side(losses, prior, rung.reach, rows, delta))
    return np.asarray(values[left[np.argmax(values[left, 0, start])]])


def mixture_statistics(rows: Matched, features: FeatureMap, known: Known) -> tuple[LinearStatistics, Floats]:
    """Return the rows of a log over the coordinates of a feature map, and the value functions planned with last.

    For :func:`occamrl.supports`: which of the simulators matter, from a log.
    """
    learner, blocks = UCRLVTRLin(features=features, norm_bound=1.0, replan=0.0), features.blocks  # on the simplex
    memory = {
        "gram": np.zeros(int(blocks.matrix_start[-1])),
        "xy": np.zeros(features.dimension),
        "pairs": np.zeros((known.states * known.actions, 2 + int(blocks.size.max()))),
    }
    values = np.zeros((known.horizon + 1, known.states))
    for first, last in stretches(rows.start.size):
        so_far = LinearStatistics(memory["gram"], memory["xy"], first)
        values = planned_values(learner, known, so_far, int(rows.start[first]))
        enter(features, known, rows, first, last, values, memory)
    return LinearStatistics(memory["gram"], memory["xy"], rows.start.size), values


def planned_values(learner: UCRLVTRLin, known: Known, statistics: LinearStatistics, start: int) -> Floats:
    """Return the values [H + 1, S] that a learner plans with, from given statistics."""
    state, policy = learner.begin(known, statistics), np.zeros((known.horizon, known.states), dtype=np.int64)
    open_episode(learner.model(known), state, start, np.uint64(0), 0, policy)
    return np.array(state.values)


class Cells(NamedTuple):
    """Rows of a stretch by (h, s, a), range-weighted (M23); those with a constant target say nothing and are left out.

    All rows of a cell have the same x: it is kept once, with their number and the sum of their targets y.
    """

    key: Ints  # [c] h*S*A + s*A + a
    x: Any  # [c, d] sparse, or None
    visits: Floats  # [c]
    total: Floats  # [c] sum y
    squares: float  # sum y^2 of all rows
    most: int  # H*S*A


def cells_of(features: FeatureMap, known: Known, rows: Matched, first: int, last: int, values: Floats) -> Cells:
    """Return the rows of some episodes with the targets W = bonus + V of ``values`` [H + 1, S]."""
    part, pairs = slice(int(rows.begin[first]), int(rows.begin[last])), known.states * known.actions
    outcomes, outcome = features.attach(known).outcomes, rows.outcome[part]
    key, at = np.unique(rows.h[part] * pairs + rows.pair[part], return_inverse=True)
    x, middle, spread = sparse_rows(features, known, key % pairs, values[key // pairs + 1])
    target = outcomes.bonus[outcome] + values[rows.h[part] + 1, outcomes.next_state[outcome]]
    carries = spread > 0.0
    y = np.where(carries[at], target - middle[at], 0.0) / np.where(carries, spread, 1.0)[at]
    visits = np.bincount(at, minlength=key.size).astype(np.float64)
    total = np.bincount(at, y, key.size).astype(np.float64)
    kept = np.flatnonzero(carries)
    return Cells(key[kept], x[kept], visits[kept], total[kept], float(y @ y), known.horizon * pairs)


def enter(
    features: FeatureMap, known: Known, rows: Matched, first: int, last: int, values: Floats, memory: dict[str, Any]
) -> float:
    """Add rows to sum x x^T in packed blocks, sum y x, and by (s, a) their number, sum y and sum x; return sum y^2."""
    cells, blocks = cells_of(features, known, rows, first, last, values), features.blocks
    pair, x = cells.key % (known.states * known.actions), cells.x
    memory["xy"] += x.T @ cells.total
    gram: Any = (x.T @ x.multiply(cells.visits[:, None])).tocoo()
    block = np.searchsorted(blocks.vector_start, gram.row, side="right") - 1
    begin = blocks.vector_start[block]
    at = blocks.matrix_start[block] + (gram.row - begin) * blocks.size[block] + (gram.col - begin)
    np.add.at(memory["gram"], at, gram.data)
    of, entries = memory["pairs"], x.tocoo()
    owner = pair[entries.row]
    local = entries.col - blocks.vector_start[blocks.of[owner]]
    np.add.at(of[:, 0], pair, cells.visits)
    np.add.at(of[:, 1], pair, cells.total)
    np.add.at(of.reshape(-1), owner * of.shape[1] + 2 + local, cells.visits[entries.row] * entries.data)
    return cells.squares


def distances(replay: Replay, ladder: Ladder, known: Known, kernels: Ints, reference: int) -> Floats:
    """Return L(P, reference) of some kernels over the rows of finite classes (M2)."""
    family, pairs = ladder.family, known.states * known.actions
    gaps = family.theta[:, kernels] - family.theta[:, [reference]]
    found = np.zeros(kernels.size)
    for member, cells in replay.cells:
        values = family.optimal_values(known)[member]
        x = sparse_rows(family.features, known, cells.key % pairs, values[cells.key // pairs + 1]).x
        for part, z in _predictions(x, gaps):
            found += cells.visits[part] @ z**2
    return found


def _predictions(x: Any, theta: Floats) -> Iterator[tuple[slice, Floats]]:
    """Return x theta, a part of the rows at a time."""
    step = max(1, _MOST_NUMBERS // theta.shape[1])
    for first in range(0, x.shape[0], step):
        part = slice(first, first + step)
        yield part, np.asarray(x[part] @ theta)

"""``select``: how rich a model logged episodes ask for, and what would settle what they leave open.

The test of ARL-GEN is applied to episodes that someone else collected. Before each stretch of episodes a value function
is planned from the episodes before it, as ARL-GEN would: that of the most optimistic kernel of the smallest class not
rejected so far. Its rows are (s, a, V, y) with the log's own s and a. So V, s and a are fixed before y,
E[y | past] = (P* V)(s, a), and M22 (M15 for linear classes) holds for all times at once, whoever chose the actions.
Stretches grow with the data, so that rows are counted, not kept; the classes are tested at their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import compiled, hot
from occamrl._core.loop import plan
from occamrl._core.regression import add_row, block_matrix, block_vector
from occamrl._core.rows import RowTable, add_rows, row_table, with_room
from occamrl.envs.ladder_file import LadderSpec
from occamrl.envs.wrapper import RewardMap
from occamrl.errors import ParameterError, require_number
from occamrl.learners.finite_report import unexplained
from occamrl.learners.finite_rows import ROWS, FiniteModel, FiniteState, expected_targets
from occamrl.learners.finite_sets import most_optimistic, threshold
from occamrl.learners.linear_regression import row_of
from occamrl.learners.linear_state import LinearModel
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested
from occamrl.logs.log import Log, Matched, match_rows
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily, level, off_grid
from occamrl.models.ladder import Ladder, LinearLadder
from occamrl.models.linear import LinearFamily
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.running.run import Progress
from occamrl.selectors._ladder_linear import LadderLinear

DECIDED = "decided"  # every kernel that is left lies in the class chosen, and every smaller class is rejected
AT_LEAST = "at least"  # every smaller class is rejected; larger ones are not excluded
NOT_ENOUGH = "not enough data"  # nothing is rejected, nothing larger is excluded
OUTSIDE = "outside"  # no class explains the data

_NOTHING = 1e-9  # a squared distance that is none

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
        plain: dict[str, Any] = _plain(asdict(self))
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
    ladder: Ladder | LinearLadder | LadderSpec,
    known: Known | None = None,
    *,
    delta: float = 0.05,
    rewards: RewardMap | None = None,
    names: tuple[str, ...] | None = None,
    growth: float = 0.1,
    slack: float = 1.0,
    check_rewards: bool = True,
    progress: bool | None = None,
) -> Selection:
    """Apply the test of ARL-GEN to logged episodes.

    Parameters
    ----------
    log : Log
    ladder : Ladder, LinearLadder or LadderSpec
        A spec (``read_ladder``) brings the rest along.
    known : Known, optional
        ``mdp.known`` of the problem: sizes, horizon and rewards.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta, whatever policy made
        the log, as long as it looked at the past only; over all tests together.
    rewards : RewardMap, optional
        How rewards of the log become those of ``known``; by default they are the same.
    names : tuple of str, optional
        Of the classes.
    growth : float
        A new value function is planned, and the classes are tested, when the data have grown by this factor.
    slack : float
        Multiplies what the test allows for noise. Below 1 the guarantee is lost.
    check_rewards : bool
        Refuse a reward that is not the known one.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.
    """
    if isinstance(ladder, LadderSpec):
        if ladder.kernel != "stationary":
            raise ParameterError("kernel", got=repr(ladder.kernel), expected='"stationary": a log is tested for one')
        known, rewards, names, ladder = ladder.known, ladder.rewards, ladder.names, ladder.ladder
    if not isinstance(ladder, (Ladder, LinearLadder)):
        raise ParameterError("ladder", got=type(ladder).__name__, expected="a Ladder, LinearLadder or LadderSpec")
    if known is None:
        raise ParameterError("known", got=None, expected="mdp.known: sizes, horizon and rewards")
    if not known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: values are planned for them")
    require_number("delta", delta, 1e-300, 1.0)
    require_number("growth", growth, 0.0, 1e6)
    require_number("slack", slack, 0.0, 1e6)
    features = ladder.family.features if isinstance(ladder, Ladder) else ladder.features
    outcomes, mapped = features.attach(known).outcomes, rewards or RewardMap()
    rows = match_rows(log, known, outcomes, mapped, check_rewards=check_rewards)
    names = names or tuple(f"F_{m}" for m in range(1, ladder.classes + 1))
    impossible = np.flatnonzero(rows.outcome < 0)  # what no model allows
    broken = int(impossible[0]) if impossible.size else None
    whole = rows if broken is None else rows.head(int(np.searchsorted(log.begin, broken, side="right")) - 1)
    bar = Progress("select", whole.start.size, progress)
    try:
        options: dict[str, Any] = {"delta": delta, "growth": growth, "slack": slack, "tell": bar.update}
        if isinstance(ladder, Ladder):
            replay = replay_finite(whole, ladder, known, **options)
        else:
            replay = replay_linear(whole, ladder, known, **options)
    finally:
        bar.close()
    standing = [m for m, at in enumerate(replay.rejected_at, start=1) if at is None]
    chosen, pairs = standing[0] if standing else ladder.classes, known.states * known.actions
    more = None
    if broken is not None:
        s, a, s2 = int(log.state[broken]), int(log.action[broken]), int(log.next_state[broken])
        verdict, why = OUTSIDE, f"Row {broken} goes from state {s} by action {a} to {s2}, which no model allows."
    elif is_outside(replay, delta):
        verdict, why = OUTSIDE, "No model of the ladder explains the data: it needs a class that it does not have."
    else:
        finite = isinstance(ladder, Ladder)
        if isinstance(ladder, Ladder):
            more = more_data(replay, ladder, chosen, log.episodes, pairs)
        verdict, why = judge(chosen, more, finite=finite, classes=ladder.classes, name=names[chosen - 1])
    steps = max(1, whole.pair.size)
    unvisited = int((np.bincount(rows.pair, minlength=pairs) == 0).sum())
    size: dict[str, Any] = {"episodes": log.episodes, "rows": log.rows, "unvisited": unvisited, "pairs": pairs}
    answer: dict[str, Any] = {"chosen": chosen, "verdict": verdict, "why": why, "more": more}
    threshold, rungs = (replay.bound + replay.squares) / steps, _rungs(replay, ladder, names, steps)
    return Selection(rungs=rungs, threshold=threshold, delta=delta, source=log.source, **answer, **size)


def _rungs(replay: Replay, ladder: Ladder | LinearLadder, names: Sequence[str], steps: int) -> tuple[Rung, ...]:
    if isinstance(ladder, Ladder):
        sizes = ladder.sizes
        left: list[int | None] = [int(replay.alive[:size].sum()) for size in sizes]
    else:
        sizes = [_size(rung) for rung in ladder.rungs]
        left = [None] * ladder.classes
    statistics = [float(loss + replay.squares) / steps for loss in replay.losses]
    columns = zip(names, sizes, statistics, replay.rejected_at, left, strict=True)
    return tuple(Rung(*column) for column in columns)


def _size(rung: Any) -> int:
    if isinstance(rung, FiniteFamily):
        return rung.size
    return rung.dimension if isinstance(rung, LinearFamily) else int(rung.features.dimension)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def distance_needed(allowance: float) -> float:
    """Return the squared distance of a wrong kernel at which it is likely to be rejected.

    Its loss exceeds the truth's by the distance d on average, with a standard deviation of at most sqrt(d) (M21's noise
    of range 1): d - sqrt(d) >= allowance.
    """
    return ((1.0 + math.sqrt(1.0 + 4.0 * max(allowance, 0.0))) / 2.0) ** 2


def more_data(replay: Replay, ladder: Ladder, chosen: int, episodes: int, pairs: int) -> MoreData | None:
    """Return what would settle the question between the class chosen and the kernels left outside it; None if none."""
    size = ladder.sizes[chosen - 1]
    inside, outside = np.flatnonzero(replay.alive[:size]), size + np.flatnonzero(replay.alive[size:])
    if not outside.size or not inside.size or replay.table is None or replay.model is None:
        return None
    best, rival = (int(kernels[np.argmin(replay.loss[kernels])]) for kernels in (inside, outside))

    def left(distance: float, reference: int) -> float:
        needed = distance_needed(replay.bound - float(replay.loss[reference]))
        return max(1.0, episodes * (needed / distance - 1.0)) if distance > _NOTHING else math.inf

    gaps = distances(replay.model, replay.table, pairs, outside, best)
    times = np.array([left(float(gap), best) for gap in gaps])
    seen = times[np.isfinite(times)]
    back = float(distances(replay.model, replay.table, pairs, inside, rival).min())
    return MoreData(
        half=float(np.median(times)),
        all=float(seen.max()) if seen.size else math.inf,
        never=int(np.isinf(times).sum()),
        if_wrong=left(back, rival),
    )


def is_outside(replay: Replay, delta: float) -> bool:
    """Say whether the data show that no class of the ladder holds the truth."""
    if replay.outside or all(at is not None for at in replay.rejected_at):
        return True
    if replay.table is None:
        return False
    reach, rows = 0.0 if replay.model is None else replay.model.reach, float(replay.table.visits.sum())
    misfit = unexplained(replay.table, float(replay.losses[-1]), level(reach, delta))
    return misfit > off_grid(reach, rows, delta)


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
            member = int(optimistic_member(model, state, size, int(rows.start[first])))
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


# Everything below depends on the learners' internals. Rows are counted by (h, s, a) while one value function is in use,
# then entered at once. The rows of a learner's own play follow its policy, so that (h, s) fixes the action; those of a
# log do not. Apart from that the formulas are those of the learners: targets, their range weights and expectations.


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
def optimistic_member(model: FiniteModel, state: FiniteState, size: int, start: int) -> int:
    """Return, of the first kernels, the one with the largest V*_1(start) whose loss is finite (M5)."""
    return most_optimistic(model, state, size, start)


@compiled
def plan_now(model: Any, state: Any, start: int) -> None:
    """Let a learner plan for an episode that begins in ``start``."""
    plan(model, state, start, np.uint64(0), 0)

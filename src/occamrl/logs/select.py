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
from scipy.special import logsumexp

from occamrl._core.loop import open_episode
from occamrl.envs.ladder_file import LadderSpec
from occamrl.envs.wrapper import RewardMap
from occamrl.errors import ParameterError, require_number
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.logs.log import Log, Matched, match_rows
from occamrl.models.features import FeatureMap
from occamrl.models.finite import level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Ints, Known, Outcomes
from occamrl.running.run import Progress
from occamrl.selectors.arl_gen import RegressionEvidence, unexplained

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
    ladder: Ladder | LadderSpec,
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
    ladder : Ladder or LadderSpec
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
    if not isinstance(ladder, Ladder):
        raise ParameterError("ladder", got=type(ladder).__name__, expected="a Ladder or LadderSpec")
    if known is None:
        raise ParameterError("known", got=None, expected="mdp.known: sizes, horizon and rewards")
    if not known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: values are planned for them")
    require_number("delta", delta, 1e-300, 1.0)
    require_number("growth", growth, 0.0, 1e6)
    require_number("slack", slack, 0.0, 1e6)
    outcomes, mapped = ladder.features.attach(known).outcomes, rewards or RewardMap()
    rows = match_rows(log, known, outcomes, mapped, check_rewards=check_rewards)
    names = names or tuple(f"F_{m}" for m in range(1, ladder.classes + 1))
    impossible = np.flatnonzero(rows.outcome < 0)  # what no model allows
    broken = int(impossible[0]) if impossible.size else None
    whole = rows if broken is None else rows.head(int(np.searchsorted(log.begin, broken, side="right")) - 1)
    bar = Progress("select", whole.start.size, progress)
    try:
        options: dict[str, Any] = {"delta": delta, "growth": growth, "slack": slack, "tell": bar.update}
        replay = (replay_finite if ladder.finite else replay_linear)(whole, ladder, known, **options)
    finally:
        bar.close()
    standing = [m for m, at in enumerate(replay.rejected_at, start=1) if at is None]
    chosen, pairs = standing[0] if standing else ladder.classes, known.states * known.actions
    more = None
    if broken is not None:
        s, a, s2 = int(log.state[broken]), int(log.action[broken]), int(log.next_state[broken])
        verdict, why = OUTSIDE, f"Row {broken} goes from state {s} by action {a} to {s2}, which no model allows."
    elif is_outside(replay, max(ladder.reach), delta):
        verdict, why = OUTSIDE, "No model of the ladder explains the data: it needs a class that it does not have."
    else:
        if ladder.finite:
            more = more_data(replay, ladder, chosen, log.episodes)
        verdict, why = judge(chosen, more, finite=ladder.finite, classes=ladder.classes, name=names[chosen - 1])
    steps = max(1, whole.pair.size)
    unvisited = int((np.bincount(rows.pair, minlength=pairs) == 0).sum())
    size: dict[str, Any] = {"episodes": log.episodes, "rows": log.rows, "unvisited": unvisited, "pairs": pairs}
    answer: dict[str, Any] = {"chosen": chosen, "verdict": verdict, "why": why, "more": more}
    threshold, rungs = (replay.bound + replay.squares) / steps, _rungs(replay, ladder, names, steps)
    return Selection(rungs=rungs, threshold=threshold, delta=delta, source=log.source, **answer, **size)


def _rungs(replay: Replay, ladder: Ladder, names: Sequence[str], steps: int) -> tuple[Rung, ...]:
    sizes = [rung.size for rung in ladder.rungs]
    left: list[int | None] = [int(replay.alive[:size].sum()) if ladder.finite else None for size in sizes]
    statistics = [float(loss + replay.squares) / steps for loss in replay.losses]
    columns = zip(names, sizes, statistics, replay.rejected_at, left, strict=True)
    return tuple(Rung(*column) for column in columns)


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


def more_data(replay: Replay, ladder: Ladder, chosen: int, episodes: int) -> MoreData | None:
    """Return what would settle the question between the class chosen and the kernels left outside it; None if none."""
    size = ladder.sizes[chosen - 1]
    inside, outside = np.flatnonzero(replay.alive[:size]), size + np.flatnonzero(replay.alive[size:])
    if not outside.size or not inside.size:
        return None
    best, rival = (int(kernels[np.argmin(replay.loss[kernels])]) for kernels in (inside, outside))

    def left(distance: float, reference: int) -> float:
        needed = distance_needed(replay.bound - float(replay.loss[reference]))
        return max(1.0, episodes * (needed / distance - 1.0)) if distance > _NOTHING else math.inf

    gaps = distances(replay, outside, best)
    times = np.array([left(float(gap), best) for gap in gaps])
    seen = times[np.isfinite(times)]
    back = float(distances(replay, inside, rival).min())
    return MoreData(
        half=float(np.median(times)),
        all=float(seen.max()) if seen.size else math.inf,
        never=int(np.isinf(times).sum()),
        if_wrong=left(back, rival),
    )


def is_outside(replay: Replay, reach: float, delta: float) -> bool:
    """Say whether the data show that no class of the ladder holds the truth."""
    if replay.outside or all(at is not None for at in replay.rejected_at):
        return True
    if replay.cells is None:
        return False
    count, total = (np.array([cell[i] for cell in replay.cells], dtype=np.float64) for i in (1, 2))
    misfit = unexplained(count, total, float(replay.losses[-1]), level(reach, delta))
    return bool(misfit > off_grid(reach, float(count.sum()), delta))


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
    cells: list[tuple[Floats, int, float]] | None = None  # (P V - c)/R of every kernel, rows, sum y, by cell (likewise)
    outside: bool = False  # the largest linear class fits worse than noise explains


def stretches(episodes: int, growth: float) -> Iterator[tuple[int, int]]:
    """Return the stretches of episodes that share a plan: the data grow by the factor 1 + growth, or by one."""
    first = 0
    while first < episodes:
        last = min(episodes, max(first + 1, math.ceil(first * (1.0 + growth))))
        yield first, last
        first = last


class Cell(NamedTuple):
    """The rows of a stretch at one (h, s, a): they share the target function, and its range weights (M23)."""

    pair: int  # s*A + a
    target: Floats  # (W - c)/R of every outcome of the pair
    rows: int
    y: float  # sum of (W(o) - c)/R over the rows
    squares: float  # sum of their squares


def cells_of(outcomes: Outcomes, values: Floats, rows: Matched, first: int, last: int) -> Iterator[Cell]:
    """Return the rows of the episodes from ``first`` to ``last``, whose values are ``values`` [H + 1, S], by cell.

    The rows of a learner's own play follow its policy, so that (h, s) fixes the action; those of a log do not. Where
    the target is constant (R = 0) rows say nothing and are left out.
    """
    part = slice(int(rows.begin[first]), int(rows.begin[last]))
    h, pair, outcome = rows.h[part], rows.pair[part], rows.outcome[part]
    pairs = outcomes.start.size - 1
    keys, cell = np.unique(h * pairs + pair, return_inverse=True)
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order], np.arange(keys.size + 1))
    for i, key in enumerate(keys):
        step, sa = divmod(int(key), pairs)
        begin, end = int(outcomes.start[sa]), int(outcomes.start[sa + 1])
        target = outcomes.bonus[begin:end] + values[step + 1, outcomes.next_state[begin:end]]
        spread = float(np.ptp(target))
        if spread > 0.0:
            target = (target - 0.5 * (target.min() + target.max())) / spread
            y = target[outcome[order[ends[i] : ends[i + 1]]] - begin]
            yield Cell(sa, target, y.size, float(y.sum()), float(y @ y))


def replay_finite(
    rows: Matched, ladder: Ladder, known: Known, *, delta: float, growth: float, slack: float, tell: Tell
) -> Replay:
    """Test nested finite classes (M25): class m stands while one of its kernels has never been rejected."""
    family, sizes = ladder.family, ladder.sizes
    outcomes, values = family.features.attach(known).outcomes, family.optimal_values(known)
    kernels, log_prior = family.probabilities(), np.log(ladder.prior)
    loss, alive, squares, bound = np.zeros(family.size), np.ones(family.size, dtype=bool), 0.0, math.inf
    cells: list[tuple[Floats, int, float]] = []
    counted: dict[tuple[int, int], int] = {}  # where the rows of a member and target stand in `cells`
    rejected: list[int | None] = [None] * ladder.classes
    for first, last in stretches(rows.start.size, growth):
        member = int(np.argmin(loss))
        if alive.any():  # the most optimistic kernel of the smallest class not rejected (M5, M25)
            size = sizes[int(ladder.level[np.argmax(alive)])]
            member = int(np.argmax(np.where(alive[:size], values[:size, 0, rows.start[first]], -np.inf)))
        for cell in cells_of(outcomes, values[member], rows, first, last):
            begin = int(outcomes.start[cell.pair])
            z = cell.target @ kernels[begin : begin + cell.target.size]
            loss += z * (cell.rows * z - 2.0 * cell.y)
            squares += cell.squares
            key = (member, hash((cell.pair, cell.target.tobytes())))
            at = counted.setdefault(key, len(cells))
            if at == len(cells):
                cells.append((z, cell.rows, cell.y))
            else:
                cells[at] = (z, cells[at][1] + cell.rows, cells[at][2] + cell.y)
        bound, best = right_side(loss, log_prior, sum(count for _, count, _ in cells), family.reach, delta), loss.min()
        bound = float(best + slack * (bound - best))
        alive &= loss <= bound
        for m, size in enumerate(sizes):
            if rejected[m] is None and not alive[:size].any():
                rejected[m] = last
        tell(last)
    losses = np.minimum.accumulate([float(loss[:size].min()) for size in sizes])
    return Replay(losses, bound, squares, tuple(rejected), loss, alive, cells)


def right_side(loss: Floats, log_prior: Floats, rows: int, reach: float, delta: float) -> float:
    """Return the right side of M22 over all kernels, for range-weighted rows."""
    fit = -0.5 * float(logsumexp(log_prior - 2.0 * loss))
    return fit + 0.5 * math.log(1.0 / level(reach, delta)) + float(off_grid(reach, float(rows), delta))


def replay_linear(
    rows: Matched, ladder: Ladder, known: Known, *, delta: float, growth: float, slack: float, tell: Tell
) -> Replay:
    """Test nested linear classes by the linear form of M15."""
    test = RegressionEvidence(
        ladder=ladder,
        delta=delta,
        test_growth=growth,
        guard=False,
        start_class=1,
        weights="range",
        replan=0.0,
        scale=slack,
        rewards="known",
        kernel="stationary",
    )
    memory, top = test.start(known), ladder.features
    rejected: list[int | None] = [None] * ladder.classes
    losses, bound, outside = np.zeros(ladder.classes), np.full(ladder.classes, math.inf), False
    for first, last in stretches(rows.start.size, growth):
        phase = test.next_phase(known, memory)
        m, state = memory["chosen"], phase.state
        if ladder.rung(m).finite:  # its plan is made from all rows, as a linear one's is
            state.loss[0] = ladder.member_losses(m, memory["gram"], memory["xy"])
        plan_now(phase.learner, known, state, int(rows.start[first]))
        memory["squares"] += enter_linear(top, known, state.values, rows, first, last, memory)
        memory["episodes"] = last
        losses = test.losses(memory)
        bound = test.bound(memory, float(losses[-1]), 1.0, delta)
        tests = zip(rejected, losses, bound, strict=True)
        rejected = [last if at is None and each > most else at for at, each, most in tests]
        outside = outside or (test.misfit(memory, float(losses[-1]), 1.0, delta) or 0.0) > 0.0
        tell(last)
    empty = np.zeros(0)
    squares = memory["squares"]
    return Replay(losses, float(bound[-1]), squares, tuple(rejected), empty, empty.astype(bool), outside=outside)


def mixture_statistics(
    rows: Matched, features: FeatureMap, known: Known, *, growth: float = 0.1, norm_bound: float = 1.0
) -> tuple[LinearStatistics, Floats]:
    """Return the rows of a log over the coordinates of a feature map, and the value functions planned with last.

    For :func:`occamrl.supports`: which of the simulators matter, from a log.
    """
    learner = UCRLVTRLin(features=features, norm_bound=norm_bound, replan=0.0)
    memory: dict[str, Any] = {
        "gram": np.zeros(int(features.blocks.matrix_start[-1])),
        "xy": np.zeros(features.dimension),
        "pairs": np.zeros((known.states * known.actions, 2 + int(features.blocks.size.max()))),
    }
    values = np.zeros((known.horizon + 1, known.states))
    for first, last in stretches(rows.start.size, growth):
        state = learner.begin(known, LinearStatistics(memory["gram"], memory["xy"], first))
        plan_now(learner, known, state, int(rows.start[first]))
        values = state.values
        enter_linear(features, known, values, rows, first, last, memory)
    return LinearStatistics(memory["gram"], memory["xy"], rows.start.size), values


def plan_now(learner: Any, known: Known, state: Any, start: int) -> None:
    """Let a learner plan for an episode that begins in ``start``."""
    actions = np.zeros((known.horizon, known.states), dtype=np.int64)
    open_episode(learner.model(known), state, start, np.uint64(0), 0, actions)


def enter_linear(
    features: FeatureMap, known: Known, values: Floats, rows: Matched, first: int, last: int, sums: dict[str, Any]
) -> float:
    """Add the rows of some episodes to sum x x^T in packed blocks, sum y x, and by (s, a) their number, sum y and sum x.

    Returns sum y^2.
    """
    blocks, matrix, squares = features.blocks, features.matrix, 0.0
    outcomes = features.attach(known).outcomes
    for cell in cells_of(outcomes, values, rows, first, last):
        begin, b = int(outcomes.start[cell.pair]), int(blocks.of[cell.pair])
        first_coordinate, n = int(blocks.vector_start[b]), int(blocks.size[b])
        x = np.asarray(matrix[begin : begin + cell.target.size].T @ cell.target).ravel()
        x = x[first_coordinate : first_coordinate + n]
        sums["gram"][blocks.matrix_start[b] : blocks.matrix_start[b + 1]] += cell.rows * np.outer(x, x).ravel()
        sums["xy"][first_coordinate : first_coordinate + n] += cell.y * x
        sums["pairs"][cell.pair, :2] += cell.rows, cell.y
        sums["pairs"][cell.pair, 2 : 2 + n] += cell.rows * x
        squares += cell.squares
    return squares


def distances(replay: Replay, kernels: Ints, reference: int) -> Floats:
    """Return L(P, reference) of some kernels over the rows of a replay (M2)."""
    found = np.zeros(kernels.size)
    for z, count, _ in replay.cells or ():
        found += count * (z[kernels] - z[reference]) ** 2
    return found

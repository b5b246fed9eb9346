"""``select``: how rich a model logged episodes ask for, and what would settle what they leave open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from occamrl.contracts import Known
from occamrl.environments.ladder_spec import LadderSpec
from occamrl.environments.tables import RewardMap
from occamrl.errors import ParameterError, require_number
from occamrl.families.finite import FiniteFamily
from occamrl.families.ladder import Ladder
from occamrl.families.linear import LinearFamily
from occamrl.families.linear_ladder import LinearLadder
from occamrl.logs.episodes import Log
from occamrl.logs.matching import Matched, match_rows
from occamrl.logs.replay import Replay, replay_finite, replay_linear
from occamrl.logs.verdict import OUTSIDE, MoreData, chosen_class, is_outside, judge, more_data
from occamrl.runs.progress import Progress


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
    broken = _impossible(log, rows)
    whole = rows if broken is None else rows.head(int(np.searchsorted(log.begin, broken, side="right")) - 1)
    bar = Progress("select", whole.start.size, progress)
    try:
        replay = _replay(whole, ladder, known, delta=delta, growth=growth, slack=slack, tell=bar.update)
    finally:
        bar.close()
    chosen, pairs = chosen_class(replay), known.states * known.actions
    more = None
    if broken is not None:
        s, a, s2 = int(log.state[broken]), int(log.action[broken]), int(log.next_state[broken])
        verdict, why = OUTSIDE, f"Row {broken} goes from state {s} by action {a} to {s2}, which no model allows."
    elif is_outside(replay, delta):
        verdict, why = OUTSIDE, "No model of the ladder explains the data: it needs a class that it does not have."
    else:
        if isinstance(ladder, Ladder):
            more = more_data(replay, ladder, chosen, log.episodes, pairs)
        finite = isinstance(ladder, Ladder)
        verdict, why = judge(chosen, more, finite=finite, classes=ladder.classes, name=names[chosen - 1])
    steps = max(1, whole.pair.size)
    unvisited = int((np.bincount(rows.pair, minlength=pairs) == 0).sum())
    size: dict[str, Any] = {"episodes": log.episodes, "rows": log.rows, "unvisited": unvisited, "pairs": pairs}
    answer: dict[str, Any] = {"chosen": chosen, "verdict": verdict, "why": why, "more": more}
    threshold, rungs = (replay.bound + replay.squares) / steps, _rungs(replay, ladder, names, steps)
    return Selection(rungs=rungs, threshold=threshold, delta=delta, source=log.source, **answer, **size)


def _replay(rows: Matched, ladder: Ladder | LinearLadder, known: Known, **about: Any) -> Replay:
    if isinstance(ladder, Ladder):
        return replay_finite(rows, ladder, known, **about)
    return replay_linear(rows, ladder, known, **about)


def _impossible(log: Log, rows: Matched) -> int | None:
    """Return the first row that no model allows."""
    bad = rows.outcome < 0
    return int(np.argmax(bad)) if bad.any() else None


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

"""``select``: how rich a model logged episodes ask for, and what would settle what they leave open.

The log is read in stretches of episodes that grow with the data, so that rows are counted, not kept, and a log may be
larger than memory. The classes are tested at the end of each stretch, by one of two kinds of evidence.

*Likelihood*, for lists of kernels one of which is the truth: the outcomes themselves. A kernel is alive while its
likelihood is not much below that of a mixture of all kernels and of competitors that notice a truth elsewhere (L2).

*Value*: the test of ARL-GEN. Before each stretch a value function is planned from the episodes before it, as ARL-GEN
would: that of the most optimistic kernel of the smallest class not rejected so far. Its rows are (s, a, V, y) with the
log's own s and a. So V, s and a are fixed before y, E[y | past] = (P* V)(s, a), and M22 (M15 for linear classes) holds
for all times at once.

Both hold whoever chose the actions, and count every step, the last of an episode too. Either is an e-process: the
*evidence against* a class is the least, over its kernels, of the logarithm of such a process at its highest so far, and
the class is rejected once that exceeds log(1/delta).
"""

from __future__ import annotations

import html
import importlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl._core.loop import open_episode
from occamrl._core.rows import MOST
from occamrl.envs.ladder_file import LadderSpec, read_ladder
from occamrl.envs.wrapper import RewardMap
from occamrl.errors import (
    CheckpointError,
    Interrupted,
    InvalidInput,
    ParameterError,
    as_path,
    require_choice,
    require_number,
    shown,
)
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.logs.log import Log, Matched, StoredLog, match_rows, read_log
from occamrl.models import likelihood
from occamrl.models.family import sparse_rows
from occamrl.models.features import FeatureMap, pair_of_outcome
from occamrl.models.finite import level, off_grid
from occamrl.models.ladder import Ladder
from occamrl.protocols import MOST_EPISODES, Field, Floats, Ints, Known, require_parts
from occamrl.running.files import FORMAT, read_document, there, write_document
from occamrl.running.result import counted, current_axes, html_curves, html_table
from occamrl.running.run import Progress, ctrl_c
from occamrl.running.storage import fingerprint, put_together, take_apart
from occamrl.selectors.arl_gen import ARLGen, RegressionEvidence, unexplained

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DECIDED = "decided"  # every kernel that is left lies in the class chosen, and every smaller class is rejected
AT_LEAST = "at least"  # every smaller class is rejected; larger ones are not excluded
NOT_ENOUGH = "not enough data"  # nothing is rejected, nothing larger is excluded
OUTSIDE = "outside"  # no class explains the data
LIKELIHOOD, VALUE = EVIDENCE = ("likelihood", "value")

GROWTH = 0.1  # of the data, after which a new value function is planned and the classes are tested
SAVE_EVERY = 30.0  # seconds
_NOTHING = 1e-9  # a squared distance that is none
_MOST_NUMBERS = 2**22  # in memory at once, of predictions
_MOST_KEPT = 2**25  # probabilities that are written out once
_MEANING = {
    LIKELIHOOD: "the logarithm of how much more likely the log is under a mixture of all models than under the best "
    "model of the class",
    VALUE: "twice the amount by which the least squared error of the class exceeds that of a mixture of all models",
}
_NO_CLASS = "No model of the ladder explains the data: it needs a class that it does not have."


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
    evidence: float  # against it, in logarithms; above the threshold it is rejected
    rejected_after: int | None  # episodes; None: not rejected
    left: int | None  # kernels that the data have not rejected; None for a linear class


@dataclass(frozen=True)
class Selection:
    """The answer; ``print`` it, ``plot()`` the evidence over time, or take ``as_data()``."""

    rungs: tuple[Rung, ...]
    threshold: float  # of the evidence against a class: log(1/delta)
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
    evidence: str  # "likelihood" | "value"
    history: tuple[tuple[float, ...], ...]  # episodes read, and the evidence against each class by then
    other: Selection | None = None  # by the other evidence, where that was asked as well and says something else
    difference: str = ""  # why the two say different things

    @property
    def answer(self) -> str:
        """The verdict with its reason, in sentences."""
        return self.why if self.verdict == AT_LEAST else f"{self.verdict}. {self.why}"

    @property
    def meaning(self) -> str:
        """What the evidence against a class is, and when it rejects the class."""
        return (
            f"The evidence against a class is {_MEANING[self.evidence]}, at its highest so far. "
            f"A class is rejected once that exceeds log(1/{self.delta:g}) = {self.threshold:.4g}."
        )

    @property
    def at_doublings(self) -> list[tuple[float, ...]]:
        """The rows of ``history`` after 1, 2, 4, ... episodes or soon after these, and the last."""
        found: list[tuple[float, ...]] = []
        for row in self.history:
            if not found or row[0] >= 2.0 * found[-1][0] or row is self.history[-1]:
                found.append(row)
        return found

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class as the log was read, on the current axes unless some are given."""
        axes = current_axes(axes)
        table = np.array(self.history).reshape(-1, 1 + len(self.rungs))
        impossible = np.isinf(table[:, 1:])
        top = 3.0 * max(float(table[:, 1:].max(initial=0.0, where=~impossible)), self.threshold)
        for m, rung in enumerate(self.rungs, start=1):
            width = 1.0 + 4.0 * (len(self.rungs) - m) / len(self.rungs)  # lines may lie on each other
            shown = np.clip(table[:, m], -self.threshold, top)
            axes.plot(table[:, 0], shown, linewidth=width, label=f"{m}. {rung.name}", clip_on=False)
        axes.axhline(self.threshold, color="black", linestyle="--", linewidth=1.0, label="rejected above")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=2.0 * self.threshold)
        ticks = [0.0, self.threshold, *(10.0**k for k in range(1, 30) if 2.0 * self.threshold < 10.0**k < top / 2.0)]
        texts = [f"{tick:,.0f}" if tick >= 10.0 else f"{tick:.2g}" for tick in ticks]
        if impossible.any():
            ticks, texts = [*ticks, top], [*texts, "impossible"]
        axes.set_yticks(ticks, texts)
        axes.set_yticks([], minor=True)
        axes.set_ylim(-self.threshold, top)
        axes.set_xlabel("episodes read")
        axes.set_ylabel("evidence against the class")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small")
        return axes

    def page(self, path: str | Path) -> Path:
        """Write an HTML page: the question, the answer, the evidence, what was assumed."""
        written: Path = importlib.import_module("occamrl.report.answer").write_answer(self, as_path("path", path))
        return written

    def as_data(self) -> dict[str, Any]:
        """Return plain data, as JSON takes it; infinite numbers become None."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return plain

    def _repr_html_(self) -> str:
        rows = [
            {
                "class": f"{m}. {rung.name}",
                "evidence against it": f"{rung.evidence:.2f}",
                "rejected": f"in episode {rung.rejected_after:,}" if rung.rejected_after else "no",
            }
            for m, rung in enumerate(self.rungs, start=1)
        ]
        table = np.array(self.history).reshape(-1, 1 + len(self.rungs))
        shown = np.clip(table[:, 1:], 0.0, 2.0 * self.threshold)
        curves = {rung.name: (table[:, 0], shown[:, m]) for m, rung in enumerate(self.rungs)}
        title = f"evidence against each class, {self.episodes:,} episodes; rejected above {self.threshold:.2f}"
        return f"<p>{html.escape(self.answer)}</p>{html_table(rows)}{html_curves(curves, title)}"

    def __str__(self) -> str:
        covered = f"{self.pairs - self.unvisited} of {self.pairs} state-action pairs met"
        size = f"{counted(self.episodes, 'episode')}, {counted(self.rows, 'step')}"
        lines = [f"{self.source}: {size}, {covered}; delta {self.delta:g}"]
        width = max(len(rung.name) for rung in self.rungs)
        for m, rung in enumerate(self.rungs, start=1):
            fate = f"rejected in episode {rung.rejected_after:,}" if rung.rejected_after else "not rejected"
            left = "" if rung.left is None else f", {rung.left:,} of {counted(rung.size, 'kernel')} left"
            mark = "->" if m == self.chosen and self.verdict != OUTSIDE else "  "
            lines.append(f"{mark} {m}. {rung.name:<{width}}  evidence against it {rung.evidence:8.2f}  {fate}{left}")
        lines.append(f"   rejected above {self.threshold:.2f}, by {self.evidence}")
        lines.append(f"Verdict: {self.answer}")
        if self.other is not None:
            lines.append(f"By {self.other.evidence}: {self.other.answer} {self.difference}")
        return "\n".join(lines)


def select(
    log: Any,
    ladder: Ladder | LadderSpec | str | Path,
    known: Known | None = None,
    *,
    delta: float = 0.05,
    evidence: str | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> Selection:
    """Find the smallest class of models that explains logged episodes.

    >>> import occamrl as orl
    >>> from occamrl.logs.log import simulate_log
    >>> problem = orl.make_problem("patchy-ice")
    >>> log = simulate_log(problem.mdp, episodes=30)  # or read_log(file)
    >>> answer = orl.select(log, orl.Ladder.of_problem(problem), known=problem.mdp.known)  # print it

    Parameters
    ----------
    log : Log, path or data frame
        What ``read_log`` takes; a path is read in blocks, so that memory does not grow with the log.
    ladder : Ladder, LadderSpec, path or name
        A spec has names, what is known, and the unit of the log's rewards; a path or name is read (``read_ladder``).
    known : Known, optional
        With a plain ladder: ``mdp.known`` of the problem, in the unit of the log's rewards.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta, whatever policy made
        the log, as long as it looked at the past only; over all tests together.
    evidence : "likelihood" | "value", optional
        What classes are tested by. By default the likelihood where the classes are lists that are to hold the truth
        itself, value rows for covers and linear classes; in the first case value rows are asked as well, and reported
        if they say something else. Each of the two holds at level delta.
    checkpoint : path, optional
        Save there every 30 seconds, and on Ctrl-C; the same call goes on from there, with the same answer to the bit.
    progress : bool, optional
        Show progress on standard error; by default only when it takes longer than a second.

    Raises
    ------
    Interrupted
        Ctrl-C, between two blocks.
    """
    spec = read_ladder(ladder) if isinstance(ladder, (str, Path)) else ladder
    if isinstance(ladder, Ladder):
        if not isinstance(known, Known):
            raise ParameterError("known", got=type(known).__name__, expected="mdp.known: sizes, horizon and rewards")
        spec = LadderSpec(ladder=ladder, known=known)
    if not isinstance(spec, LadderSpec):
        expected = "a Ladder (Ladder.of_problem), or a file with one"
        raise ParameterError("ladder", got=type(ladder).__name__, expected=expected)
    if spec.kernel != "stationary":
        raise ParameterError("kernel", got=repr(spec.kernel), expected='"stationary": a log is tested for one')
    if not spec.known.rewards_known:
        raise ParameterError("known", got="sizes alone", expected="rewards too: values are planned for them")
    require_number("delta", delta, 1e-300, 1.0)
    exact = spec.ladder.finite and max(spec.ladder.reach) == 0.0
    kinds: Sequence[str] = EVIDENCE if exact else (VALUE,)
    if evidence is not None:
        require_choice("evidence", evidence, EVIDENCE)
        if evidence not in kinds:
            expected = '"value": the truth is no member of a cover, and linear classes are no lists'
            raise ParameterError("evidence", got=repr(evidence), expected=expected)
        kinds = (evidence,)
    if not isinstance(log, (Log, str, Path)):
        log = read_log(log)
    stored: Log | StoredLog = log if isinstance(log, Log) else StoredLog(str(log))
    bar = Progress("select", max(1, stored.rows), progress, unit="steps")  # a file that is none is refused here
    replay = Replay(spec, delta, kinds)
    path = None if checkpoint is None else as_path("checkpoint", checkpoint)
    if path is not None:
        replay.identify(stored)
        if there(path):
            replay.resume(path)
    saved = time.monotonic()
    try:
        with ctrl_c(may_raise=lambda: False) as pressed:
            for block in stored.blocks(replay.rows):
                replay.take(block)
                bar.update(replay.rows)
                if path is not None and (pressed.is_set() or time.monotonic() - saved > SAVE_EVERY):
                    replay.save(path)
                    saved = time.monotonic()
                if pressed.is_set():
                    raise Interrupted(f"stopped after step {replay.rows:,}", None)
    finally:
        bar.close()
    return replay.answer(stored.source)


def _about(episodes: float) -> str:
    return f"about {float(f'{episodes:.2g}'):,.0f}"


def _more(episodes: float, verb: str) -> str:
    count = _about(episodes)
    return f"{count} more such episode {verb}s" if count == "about 1" else f"{count} more such episodes {verb}"


def verdict_of(chosen: int, more: MoreData | None, ladder: Ladder, name: str) -> tuple[str, str]:
    """Return the verdict on a ladder that holds the truth, and the reason in words."""
    if chosen == ladder.classes or (ladder.finite and more is None):
        smaller = "Every smaller class is rejected" if chosen > 1 else "It is the smallest"
        enough = ", and every kernel outside it" if chosen < ladder.classes else ""
        return DECIDED, f"The model needed is class {chosen} ({name}). {smaller}{enough}."
    sentences = []
    if more is None:
        sentences.append(
            "A larger linear class holds this one, so data can never exclude it; they can only fail to ask for it."
        )
    elif math.isfinite(more.half):
        every = f", {_about(more.all)} all that such a log can" if more.all > more.half else ""
        sentences.append(f"If it is right, {_more(more.half, 'exclude')} half of what is left outside it{every}.")
    if more is not None and more.never:
        predict = f"{counted(more.never, 'kernel')} outside it {'predicts' if more.never == 1 else 'predict'}"
        sentences.append(f"{predict} the same at every step of such a log: only other data can tell.")
    if more is not None and math.isfinite(more.if_wrong):
        sentences.append(f"If the best kernel outside it is the truth, {_more(more.if_wrong, 'reject')} it.")
    left_open = " ".join(sentences)
    if chosen > 1:
        return AT_LEAST, f"Class {chosen} ({name}) or a larger one: every smaller class is rejected. {left_open}"
    return NOT_ENOUGH, f"Class 1 ({name}) is not contradicted, and nothing larger is excluded. {left_open}"


def stretch_end(first: int) -> int:
    """Return where the stretch ends that begins after ``first`` episodes: the data grow by 1 + GROWTH, or by one."""
    return max(first + 1, math.ceil(first * (1.0 + GROWTH)))


class Stretch(NamedTuple):
    """The rows of some episodes, counted."""

    key: Ints  # [c] h*O + outcome, increasing
    times: Ints  # [c]


NO_ROWS = Stretch(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def stretch_of(rows: Matched, first: int, last: int, outcomes: int, before: Stretch = NO_ROWS) -> Stretch:
    """Return the rows of some episodes, with those of ``before``; whole numbers, so that no order matters."""
    part = slice(int(rows.begin[first]), int(rows.begin[last]))
    kept = rows.outcome[part] >= 0
    key, count = np.unique((rows.h[part] * outcomes + rows.outcome[part])[kept], return_counts=True)
    key, at = np.unique(np.concatenate([before.key, key]), return_inverse=True)
    counts = np.zeros(key.size, dtype=np.int64)
    np.add.at(counts, at, np.concatenate([before.times, count]))
    return Stretch(key, counts)


class Replay:
    """A log being read: what is counted, and the tests that take it in."""

    def __init__(self, spec: LadderSpec, delta: float, kinds: Sequence[str]) -> None:
        self.spec, self.delta, self.log = spec, delta, ""
        ladder, known = spec.ladder, spec.known
        finite: dict[str, type[ClassTest]] = {LIKELIHOOD: LikelihoodTest, VALUE: ValueTest}
        self.tests: list[Any] = [
            (finite[kind] if ladder.finite else LinearTest)(ladder, known, delta) for kind in kinds
        ]
        self.outcomes = ladder.features.attach(known).outcomes
        self.rows = self.episodes = 0
        self.tested = 0  # episodes that the tests take in
        self.start, self.open = 0, NO_ROWS  # the stretch that is not tested yet: the state in which it began, its rows
        self.visits = np.zeros(known.states * known.actions, dtype=np.int64)
        self.broken = np.zeros(0, dtype=np.int64)  # row, s, a and s' of the first transition that no model allows

    def take(self, block: Log) -> None:
        """Take in the next block."""
        rows = match_rows(block, self.spec.known, self.outcomes, self.spec.rewards)
        impossible = np.flatnonzero(rows.outcome < 0)
        whole = 0 if self.broken.size else block.episodes  # episodes before such a transition, for the tests
        if impossible.size and not self.broken.size:
            row = int(impossible[0])
            whole = int(np.searchsorted(block.begin, row, side="right")) - 1
            self.broken = np.array([block.first + row, block.state[row], block.action[row], block.next_state[row]])
        first, begun = 0, 0
        while first < whole:
            while stretch_end(begun) <= self.tested:
                begun = stretch_end(begun)
            if self.open.key.size == 0:
                self.start = int(rows.start[first])
            last = min(whole, first + stretch_end(begun) - self.tested)
            self.open = stretch_of(rows, first, last, self.outcomes.next_state.size, self.open)
            first, self.tested = last, self.tested + last - first
            if self.tested == stretch_end(begun):
                self.close()
        self.episodes += block.episodes
        self.rows += block.rows
        self.visits += np.bincount(rows.pair, minlength=self.visits.size)

    def close(self) -> None:
        """Test on the stretch that is open."""
        for test in self.tests:
            test.enter(self.open, self.start, self.tested)
        self.open = NO_ROWS

    def answer(self, source: str) -> Selection:
        """End the last stretch, and return what the tests say."""
        if self.open.key.size:
            self.close()
        found, *others = (self._answer_of(test, source) for test in self.tests)
        for other in others:
            if not self.broken.size and (other.chosen, other.verdict) != (found.chosen, found.verdict):
                return replace(found, other=other, difference=_difference(found, other, self.tests))
        return found

    def _answer_of(self, test: ClassTest, source: str) -> Selection:
        """Return the answer by one kind of evidence."""
        ladder, names, rejected = self.spec.ladder, self.spec.names, test.rejected
        chosen = rejected.index(None) + 1 if None in rejected else ladder.classes
        more, verdict, why = None, OUTSIDE, test.outside
        if self.broken.size:
            row, s, a, s2 = self.broken
            why = f"Row {row} goes from state {s} by action {a} to {s2}, which no model allows."
        elif not why:
            more = test.more_data(chosen, self.episodes)
            verdict, why = verdict_of(chosen, more, ladder, names[chosen - 1])
        history = test.evidence
        sizes = [rung.size if rung.finite else rung.own_features.dimension for rung in ladder.rungs]
        against = history[-1, 1:].tolist() if len(history) else [0.0] * ladder.classes
        return Selection(
            rungs=tuple(map(Rung, names, sizes, against, rejected, test.left)),
            threshold=math.log(1.0 / self.delta),
            chosen=chosen,
            verdict=verdict,
            why=why,
            more=more,
            episodes=self.episodes,
            rows=self.rows,
            unvisited=int((self.visits == 0).sum()),
            pairs=self.visits.size,
            delta=self.delta,
            source=source,
            evidence=test.kind,
            history=tuple(map(tuple, history.tolist())),
        )

    def identify(self, log: Log | StoredLog) -> None:
        """Say which log, ladder and level this is, for a checkpoint."""
        kinds = [test.kind for test in self.tests]
        parts = (self.spec.ladder, self.spec.known, self.spec.rewards, self.delta, kinds, GROWTH)
        self.log = f"{log.fingerprint()} {fingerprint(parts)}"

    def _tree(self) -> dict[str, Any]:
        """Return what is needed to go on."""
        names = ("rows", "episodes", "tested", "start", "open", "visits", "broken")
        return {name: getattr(self, name) for name in names} | {"tests": [test.memory for test in self.tests]}

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        arrays: dict[str, Any] = {}
        document = {"format": FORMAT, "select": self.log, "tree": take_apart(self._tree(), arrays)}
        write_document(path, document, arrays)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same log, ladder and level."""
        document, arrays = read_document(path)
        if document.get("select") != self.log:
            raise CheckpointError(str(path), got="one of another log, ladder or level", expected="one of this call")
        try:
            tree = put_together(document.get("tree"), arrays)
        except (KeyError, TypeError) as error:  # arrays that are not there, tuples of another length
            raise CheckpointError(str(path), got=f"a tree without {error}", expected="one of this version") from error
        try:
            self._require(tree)
        except InvalidInput as error:
            raise CheckpointError(f"{path}: {error.where}", got=error.got, expected=error.expected) from error
        for test, memory in zip(self.tests, tree.pop("tests"), strict=True):
            test.memory = memory
        vars(self).update(tree)

    def _require(self, tree: Any) -> None:
        """Refuse a tree that is none of this log and ladder."""
        known, whole = self.spec.known, (0, MOST_EPISODES)
        counts = {**dict.fromkeys(("rows", "episodes", "tested"), whole), "start": (0, known.states - 1)}
        visits = Field("visits", self.visits.shape, 0, MOST_EPISODES)
        arrays = {"open": Stretch, "visits": visits, "broken": np.ndarray, "tests": list}
        require_parts("replay", tree, counts | arrays)
        key, times = tree["open"]
        size, broken = np.shape(key)[:1], np.shape(tree["broken"]) or (1,)
        Field("key", size, 0, known.horizon * self.outcomes.next_state.size - 1).require(key, "replay.open")
        Field("times", size, 1, MOST_EPISODES).require(times, "replay.open")
        most = [tree["rows"], known.states - 1, known.actions - 1, known.states - 1]
        Field("broken", (4,) if any(broken) else (0,), 0, np.array(most[: 4 if any(broken) else 0])).require(
            tree["broken"], "replay"
        )
        if not tree["tested"] <= tree["episodes"] <= tree["rows"] or tree["visits"].sum() != tree["rows"]:
            raise CheckpointError("replay.rows", got=tree["rows"], expected="as many as were counted")
        if len(tree["tests"]) != len(self.tests):
            raise CheckpointError("replay.tests", got=len(tree["tests"]), expected=len(self.tests))
        for test, memory in zip(self.tests, tree["tests"], strict=True):
            test.resume(memory)


class ClassTest(ABC):
    """A test of the classes of a ladder; ``memory`` holds all that changes, plain data and arrays, for a checkpoint."""

    kind: str  # "likelihood" | "value"
    worth: float  # of a unit of loss as evidence, in logarithms

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        self.ladder, self.known, self.delta = ladder, known, delta
        # Episodes, and by then the largest excess of a loss over what is allowed: its least over each class.
        self.memory: dict[str, Any] = {"history": np.zeros((0, 1 + ladder.classes))}

    def parts(self, memory: Any) -> dict[str, Any]:
        """Return what the parts of a memory may be."""
        history: Any = memory.get("history", 0) if isinstance(memory, dict) else 0
        tests = len(history) if np.ndim(history) == 2 else 0
        return {"history": Field("history", (tests, 1 + self.ladder.classes), -math.inf, math.inf)}

    def resume(self, memory: Any) -> None:
        """Refuse a memory from a file that this test cannot have."""
        require_parts("memory", memory, self.parts(memory))

    @abstractmethod
    def enter(self, stretch: Stretch, start: int, last: int) -> None:
        """Take in the stretch that begins in ``start`` and ends with episode ``last``, and test."""

    @property
    @abstractmethod
    def outside(self) -> str:
        """Why no class holds the truth; empty if one may."""

    @property
    def left(self) -> Sequence[int | None]:
        """How many kernels of each class are not rejected; None for linear classes."""
        return [None] * self.ladder.classes

    def more_data(self, chosen: int, episodes: int) -> MoreData | None:
        """Return what would settle the question between the class chosen and what is left outside it; None if none."""
        return None

    def note(self, last: int, excess: Sequence[float]) -> None:
        """Keep how the classes stand after some episodes."""
        self.memory["history"] = np.vstack([self.memory["history"], [last, *excess]])

    @property
    def evidence(self) -> Floats:
        """The episodes read at each test, and the evidence against every class [T, 1 + M]."""
        table: Floats = self.memory["history"].copy()
        table[:, 1:] = self.worth * table[:, 1:] + math.log(1.0 / self.delta)
        return table

    @property
    def rejected(self) -> list[int | None]:
        """The number of episodes after which each class was rejected."""
        when, excess = self.memory["history"][:, 0], self.memory["history"][:, 1:] > 0.0
        return [int(when[np.argmax(above)]) if above.any() else None for above in excess.T]


class FiniteTest(ClassTest):
    """Nested lists of kernels: a class stands while one of its kernels has never been rejected."""

    noise: float  # a kernel's loss exceeds that of the truth by d on average, with a deviation of noise * sqrt(d)

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        super().__init__(ladder, known, delta)
        n = ladder.family.size
        self.memory["loss"] = np.zeros(n)  # of every kernel, less a constant
        self.memory["excess"] = np.full(n, -math.inf)  # of it over the bound, at its largest
        self.memory["bound"] = math.inf  # the loss above which a kernel is rejected

    def parts(self, memory: Any) -> dict[str, Any]:
        """Return what the parts of a memory may be; the loss of a kernel that excludes what came is infinite."""
        n = (self.ladder.family.size,)
        found = {"loss": Field("loss", n, -MOST, math.inf), "excess": Field("excess", n, -math.inf, math.inf)}
        return {**super().parts(memory), **found, "bound": (-math.inf, math.inf)}

    loss = property(lambda self: self.memory["loss"])
    bound = property(lambda self: self.memory["bound"])
    alive = property(lambda self: self.memory["excess"] <= 0.0)

    @abstractmethod
    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return by how much the losses of some kernels exceed that of the reference, on average, if that is true."""

    def reject(self, bound: float, last: int) -> None:
        """Reject kernels whose loss is above the bound."""
        excess = np.maximum(self.memory["excess"], self.loss - bound)
        self.memory |= {"bound": bound, "excess": excess}
        self.note(last, [float(excess[:size].min()) for size in self.ladder.sizes])

    @property
    def left(self) -> Sequence[int | None]:
        """How many kernels of each class are not rejected."""
        return [int(self.alive[:size].sum()) for size in self.ladder.sizes]

    def more_data(self, chosen: int, episodes: int) -> MoreData | None:
        """Return what would settle the question between the class chosen and what is left outside it; None if none."""
        size = self.ladder.sizes[chosen - 1]
        inside, outside = np.flatnonzero(self.alive[:size]), size + np.flatnonzero(self.alive[size:])
        if not outside.size or not inside.size:
            return None
        best, rival = (int(kernels[np.argmin(self.loss[kernels])]) for kernels in (inside, outside))

        def wait(distance: float, reference: int) -> float:
            # If the reference is true, another kernel's loss exceeds its by the distance d on average, with a standard
            # deviation of at most noise * sqrt(d): d - noise sqrt(d) >= allowance.
            allowance = max(self.bound - float(self.loss[reference]), 0.0)
            needed = ((self.noise + math.sqrt(self.noise**2 + 4.0 * allowance)) / 2.0) ** 2
            return max(1.0, episodes * (needed / distance - 1.0)) if distance > _NOTHING else math.inf

        times = np.array([wait(float(gap), best) for gap in self.distances(outside, best)])
        seen, back = times[np.isfinite(times)], float(self.distances(inside, rival).min())
        most = float(seen.max()) if seen.size else math.inf
        return MoreData(float(np.median(times)), most, times.size - seen.size, wait(back, rival))


class ValueTest(FiniteTest):
    """Nested finite classes by value rows (M25)."""

    kind, worth, noise = VALUE, 2.0, 1.0  # M21's noise of range 1

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        super().__init__(ladder, known, delta)
        self.memory["cells"] = {}  # by member planned with: [2, H*S*A] rows, and the sum of their targets

    def parts(self, memory: Any) -> dict[str, Any]:
        """Return what the parts of a memory may be."""
        return {**super().parts(memory), "loss": Field("loss", (self.ladder.family.size,), -MOST, MOST), "cells": dict}

    def resume(self, memory: Any) -> None:
        """Refuse a memory from a file that this test cannot have."""
        super().resume(memory)
        members = {str(member) for member in range(self.ladder.family.size)}
        cells = self.known.horizon * self.known.states * self.known.actions
        for member, table in memory["cells"].items():
            if member not in members:
                expected = f"a kernel from 0 to {len(members) - 1}"
                raise ParameterError("memory.cells", got=shown(member), expected=expected)
            Field("cells", (2, cells), np.array([[0.0], [-MOST]]), MOST).require(table, "memory")

    def enter(self, stretch: Stretch, start: int, last: int) -> None:
        """Plan with what is left, enter the rows of a stretch, and test."""
        memory, family, alive = self.memory, self.ladder.family, self.alive
        values = family.optimal_values(self.known)
        member = int(np.argmin(self.loss))
        if alive.any():
            left = np.flatnonzero(alive[: self.ladder.sizes[int(self.ladder.level[np.argmax(alive)])]])
            member = int(left[np.argmax(values[left, 0, start])])
        cells, most = cells_of(family.features, self.known, stretch, values[member]), values[0, 1:].size
        table = memory["cells"].setdefault(str(member), np.zeros((2, most * self.known.actions)))
        table[:, cells.key] += cells.visits, cells.total
        for part, z in _predictions(cells.x, family.theta):
            memory["loss"] += cells.visits[part] @ z**2 - 2.0 * (cells.total[part] @ z)
        count = sum(float(each[0].sum()) for each in memory["cells"].values())
        self.reject(right_side(self.loss, self.ladder.prior, family.reach, count, self.delta), last)

    @property
    def outside(self) -> str:
        """Why no class holds the truth; empty if one may.

        The best kernel's loss may exceed what noise explains: as for ARL-GEN, every cell (member, h, s, a) has a mean
        of its own in the alternative.
        """
        reach, sums = self.ladder.family.reach, [np.zeros((2, 0)), *self.memory["cells"].values()]
        count, total = np.concatenate(sums, axis=1)  # there may be no rows
        misfit = unexplained(count, total, float(self.loss.min()), level(reach, self.delta))
        fits = self.alive.any() and misfit <= off_grid(reach, float(count.sum()), self.delta)
        return "" if fits else _NO_CLASS

    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return L(P, reference) of some kernels over all rows (M2)."""
        family, pairs = self.ladder.family, self.known.states * self.known.actions
        gaps, found = family.theta[:, kernels] - family.theta[:, [reference]], np.zeros(kernels.size)
        for member, table in self.memory["cells"].items():
            key = np.flatnonzero(table[0])
            values = family.optimal_values(self.known)[int(member)]
            x = sparse_rows(family.features, self.known, key % pairs, values[key // pairs + 1]).x
            for part, z in _predictions(x, gaps):
                found += table[0, key[part]] @ z**2
        return found


class LikelihoodTest(FiniteTest):
    """Nested finite classes by the likelihood of the outcomes (L2, with the competitors L4 and L5).

    The loss of a kernel is - l(P), the bound log(1/delta) - Z.
    """

    kind, worth, noise = LIKELIHOOD, 1.0, math.sqrt(2.0)  # a log likelihood ratio of mean d has variance about 2 d

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        super().__init__(ladder, known, delta)
        self.outcomes = ladder.features.attach(known).outcomes
        n, count = ladder.family.size, self.outcomes.next_state.size
        self.kernels = ladder.family.probabilities() if n * count <= _MOST_KEPT else None
        self.hulls = [size for size in ladder.sizes if 2 <= size <= likelihood.LARGEST_HULL]
        self.hull = np.ascontiguousarray(ladder.family.probabilities(slice(0, max(self.hulls, default=1))))
        self.weights = likelihood.ladder_log_weights(ladder.prior, ladder.classes, 1 + len(self.hulls))
        self.memory["counts"] = np.zeros(count)
        self.memory["mixed"] = [np.full(size, 1.0 / size) for size in self.hulls]  # the weights of each hull
        self.memory["earned"] = np.zeros(len(self.hulls))  # the log of the probability of their predictions

    def parts(self, memory: Any) -> dict[str, Any]:
        """Return what the parts of a memory may be."""
        counts = Field("counts", self.memory["counts"].shape, 0.0, float(MOST_EPISODES))
        earned = Field("earned", (len(self.hulls),), -math.inf, MOST)
        return {**super().parts(memory), "counts": counts, "mixed": list, "earned": earned}

    def resume(self, memory: Any) -> None:
        """Refuse a memory from a file that this test cannot have."""
        super().resume(memory)
        if len(memory["mixed"]) != len(self.hulls):
            raise ParameterError("memory.mixed", got=len(memory["mixed"]), expected=f"weights of {self.hulls} kernels")
        for weights, size in zip(memory["mixed"], self.hulls, strict=True):
            Field("mixed", (size,), 0.0, 1.0).require(weights, "memory")

    def likelihoods(self, counts: Floats) -> Floats:
        """Return l(P) of every member."""
        if self.kernels is not None:
            return likelihood.member_likelihoods(counts, self.kernels)
        family, step = self.ladder.family, max(1, _MOST_NUMBERS // counts.size)
        parts = (family.probabilities(slice(first, first + step)) for first in range(0, family.size, step))
        return np.concatenate([likelihood.member_likelihoods(counts, part) for part in parts])

    def enter(self, stretch: Stretch, start: int, last: int) -> None:
        """Let the competitors predict the outcomes of a stretch, then learn from them; test the members."""
        memory, size = self.memory, self.outcomes.next_state.size
        new = np.bincount(stretch.key % size, stretch.times, size).astype(np.float64)
        memory["counts"] += new
        memory["loss"] -= self.likelihoods(new)
        for e, weights in enumerate(memory["mixed"]):
            scratch = np.zeros(weights.size)
            # The weights were fitted to what came before.
            memory["earned"][e] += likelihood.hull_likelihood(new, self.hull, weights, scratch)
            likelihood.hull_fit(memory["counts"], self.hull, weights, 3, 1.0 / weights.size, scratch)
        by_counting = likelihood.kt_evidence(memory["counts"], self.outcomes.start)
        mixture = likelihood.log_mixture(self.weights, np.concatenate([-self.loss, [by_counting], memory["earned"]]))
        self.reject(math.log(1.0 / self.delta) - mixture, last)

    @property
    def outside(self) -> str:
        """Why no class holds the truth; empty if one may."""
        if self.alive.any():
            return ""
        for size, weights in zip(self.hulls, self.memory["mixed"], strict=True):
            counts, mixed = self.memory["counts"], weights.copy()
            if likelihood.hull_maximum(counts, self.hull, mixed, enough=-self.bound)[1] >= -self.bound:  # L6
                m = self.ladder.sizes.index(size) + 1
                return f"No kernel of the ladder explains the data, but mixtures of class {m} do: it lies between them."
        return _NO_CLASS + (" No mixture of its kernels explains them either." if self.hulls else "")

    def distances(self, kernels: Ints, reference: int) -> Floats:
        """Return the sum over all rows of KL(reference, P) of some kernels."""
        counts, start = self.memory["counts"], self.outcomes.start
        own = np.maximum(self.ladder.family.probabilities(slice(reference, reference + 1))[:, 0], 0.0)
        expected = np.repeat(np.add.reduceat(counts, start[:-1]), np.diff(start)) * own
        found = self.likelihoods(expected)
        return np.asarray(found[reference] - found[kernels])


class LinearTest(ClassTest):
    """Nested linear classes by value rows, in the linear form of M15."""

    kind, worth = VALUE, 2.0

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        super().__init__(ladder, known, delta)
        self.test = RegressionEvidence(ARLGen(ladder=ladder, delta=delta, replan=0.0, test_growth=GROWTH))
        self.memory |= self.test.begin(known)
        self.memory["losses"], self.memory["allowed"] = np.zeros(ladder.classes), np.full(ladder.classes, math.inf)
        self.memory["misfits"] = 0  # tests by which the truth is in no class

    def parts(self, memory: Any) -> dict[str, Any]:
        """Return what the parts of a memory may be, beside those of the evidence."""
        found = {name: Field(name, (self.ladder.classes,), -MOST, math.inf) for name in ("losses", "allowed")}
        return {**super().parts(memory), **found, "misfits": (0, MOST_EPISODES)}

    def resume(self, memory: Any) -> None:
        """Refuse a memory from a file that this test cannot have."""
        own, whole = self.parts(memory), memory if isinstance(memory, dict) else {}
        require_parts("memory", {name: part for name, part in whole.items() if name in own}, own)
        self.test.resume(self.known, {name: part for name, part in whole.items() if name not in own})

    def enter(self, stretch: Stretch, start: int, last: int) -> None:
        """Plan with the smallest class that is accepted, enter the rows of a stretch, and test."""
        memory, ladder = self.memory, self.ladder
        accepted = memory["losses"] <= memory["allowed"]
        m = 1 + int(np.argmax(accepted)) if accepted.any() else ladder.classes
        enter(ladder.features, self.known, stretch, _plan(ladder, m, self.known, memory, self.delta, start), memory)
        memory["episodes"] = last
        memory["losses"] = self.test.losses(memory)
        least = float(memory["losses"][-1])
        memory["allowed"] = self.test.bound(memory, least, 1.0, self.delta)
        before = memory["history"][-1:, 1:]  # what was rejected stays so
        self.note(last, np.vstack([before, memory["losses"] - memory["allowed"]]).max(axis=0).tolist())
        memory["misfits"] += (self.test.misfit(memory, least, 1.0, self.delta) or 0.0) > 0.0

    @property
    def outside(self) -> str:
        """Why no class holds the truth; empty if one may."""
        return _NO_CLASS if self.memory["misfits"] or None not in self.rejected else ""


def _difference(found: Selection, other: Selection, tests: Sequence[Any]) -> str:
    """Return why value rows say something else than the likelihood, in words."""
    left = tests[1].alive
    if left.any() and np.isinf(tests[0].loss[left]).all():
        return (
            "Every kernel that value rows leave gives probability 0 to a transition of the log. The likelihood rejects"
            " such a kernel for ever; value rows do not. If the zero may be wrong, rely on the value rows."
        )
    if found.verdict == OUTSIDE or (other.verdict != OUTSIDE and found.chosen >= other.chosen):
        return "Value rows see outcomes only through planned values, and distinguish less with as many data."
    return "Value rows weigh what planned values depend on; the likelihood weighs all outcomes."


def right_side(loss: Floats, prior: Floats, reach: float, rows: float, delta: float) -> float:
    """Return the loss above which a kernel is rejected (M22), with a term for a truth between the points of a cover."""
    best = float(loss.min())
    mixture = best - 0.5 * math.log(float(prior @ np.exp(-2.0 * (loss - best))))
    return mixture + 0.5 * math.log(1.0 / level(reach, delta)) + off_grid(reach, rows, delta)


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


def log_statistics(log: Log, features: FeatureMap, known: Known) -> tuple[LinearStatistics, Floats]:
    """Return the rows of a log over the coordinates of a feature map, and the value functions planned with last."""
    learner, blocks = UCRLVTRLin(features=features, norm_bound=1.0, replan=0.0), features.blocks  # on the simplex
    listed = features.attach(known).outcomes
    rows, outcomes = match_rows(log, known, listed, RewardMap()), listed.next_state.size
    memory = {
        "gram": np.zeros(int(blocks.matrix_start[-1])),
        "xy": np.zeros(features.dimension),
        "pairs": np.zeros((known.states * known.actions, 2 + int(blocks.size.max()))),
    }
    values, first = np.zeros((known.horizon + 1, known.states)), 0
    while first < log.episodes:
        last, read = min(stretch_end(first), log.episodes), math.ceil(rows.begin[first] / known.horizon)
        so_far = LinearStatistics(memory["gram"], memory["xy"], read)  # episodes of the log may be longer than H
        values = planned_values(learner, known, so_far, int(rows.start[first]))
        enter(features, known, stretch_of(rows, first, last, outcomes), values, memory)
        first = last
    seen = np.bincount(np.where(rows.outcome < 0, outcomes, rows.outcome), minlength=outcomes + 1)
    return LinearStatistics(memory["gram"], memory["xy"], log.episodes, seen=seen), values


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


def cells_of(features: FeatureMap, known: Known, stretch: Stretch, values: Floats) -> Cells:
    """Return the rows of a stretch with the targets W = bonus + V of ``values`` [H + 1, S]."""
    outcomes, pairs = features.attach(known).outcomes, known.states * known.actions
    h, outcome = np.divmod(stretch.key, outcomes.next_state.size)
    key, at = np.unique(h * pairs + pair_of_outcome(outcomes)[outcome], return_inverse=True)
    x, middle, spread = sparse_rows(features, known, key % pairs, values[key // pairs + 1])
    target = outcomes.bonus[outcome] + values[h + 1, outcomes.next_state[outcome]]
    carries = spread > 0.0
    y = np.where(carries[at], target - middle[at], 0.0) / np.where(carries, spread, 1.0)[at]
    visits = np.bincount(at, stretch.times, key.size).astype(np.float64)
    total = np.bincount(at, stretch.times * y, key.size).astype(np.float64)
    kept = np.flatnonzero(carries)
    return Cells(key[kept], x[kept], visits[kept], total[kept])


def enter(features: FeatureMap, known: Known, stretch: Stretch, values: Floats, memory: dict[str, Any]) -> None:
    """Add rows to sum x x^T in packed blocks, sum y x, and by (s, a) their number, sum y and sum x."""
    cells, blocks = cells_of(features, known, stretch, values), features.blocks
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


def _predictions(x: Any, theta: Floats) -> Iterator[tuple[slice, Floats]]:
    """Return x theta, a part of the rows at a time."""
    step = max(1, _MOST_NUMBERS // theta.shape[1])
    for first in range(0, x.shape[0], step):
        part = slice(first, first + step)
        yield part, np.asarray(x[part] @ theta)

"""ARL-GEN: selection among nested families of any kind (Ghosh et al. 2022, section 3; M13-M15, M25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_choice, require_number
from occamrl.learners._planned import is_planned
from occamrl.learners.rewards import Rewards, require_rewards
from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested, example_ladder
from occamrl.models.ladder import Ladder, LinearLadder
from occamrl.protocols import Known, Phase, PhaseOutcome, Selector
from occamrl.selectors._ladder_anytime import LadderAnytime
from occamrl.selectors._ladder_epochs import LadderEpochs
from occamrl.selectors._ladder_linear import LadderLinear
from occamrl.selectors._ladder_planned import LadderPlanned

RULES = ("paper", "sharp")
DATA = ("fresh", "pooled")
TESTS = ("epoch", "anytime")


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLGen(Selector):
    r"""Play UCRL-VTR on the smallest class of a ladder that the data do not contradict.

    Parameters
    ----------
    ladder : Ladder or LinearLadder
        Nested classes F_1 < ... < F_M. Where the largest is linear or an aggregation, the sharp rule has its linear
        form (M15); linear classes and aggregations are played by UCRL-VTR-LIN, finite ones below them by UCRL-VTR on
        the rows of their own plans.
    delta : float
        With the rule "sharp", the smallest class that holds the true kernel is rejected with probability at most
        delta, over all tests together.
    rule : "sharp" | "paper"
        What makes a class acceptable. Sharp: M15 at epochs, M25 at any time. Paper: M14,
        :math:`T_m \le T_M + \sqrt{i}/2^{i/2}`, at the beginning of epoch i.
    data : "pooled" | "fresh", optional
        What the base learner of an epoch learns from: all rows so far, or the epoch's own (then with delta / 2^i). By
        default "pooled", with the rule "paper" "fresh". The test always takes all rows.
    test : "anytime" | "epoch", optional
        By default "anytime", with the rule "paper" "epoch".
    start_class : int
        The class of the first epoch, when there are no data: 1 or M.
    safe : bool
        Be optimistic over all of the confidence set, whatever the class (M25); ``chosen`` is then a report. Needs no
        separability: choose it when :func:`occamrl.analysis.preflight.preflight` finds blind pairs. Not on a
        LinearLadder, where it is what playing F_M is.
    guard : bool
        Be optimistic over all of the confidence set in the episodes 1, 4, 9, ..., about sqrt(k) of k (M25). On a
        LinearLadder: play F_M in phases of their own, about sqrt(k) of k episodes in all.
    test_growth : float
        At any time: a test is made when the data have grown by this factor (0: before every episode). On a
        LinearLadder each test begins a phase, so that it must be above 0.
    radius, weights
        Of the base learner, see :class:`UCRLVTR`; by default "sharp" and "range", with the rule "paper" "paper" and
        "none".
    replan : float, optional
        Of the base learner; by default 0, on a LinearLadder 0.2.
    scale, slack : float
        Multiply the slack of the confidence set, and that of the test at epochs. Below 1 the guarantee is lost.
    rewards, kernel
        Of the base learner: unknown rewards, and one kernel per step, the true class then being the smallest that holds
        all of them. For finite classes either needs the sharp set (``radius`` "sharp", on a Ladder also its default
        then), and on a Ladder the run begins with class 1 at any time.

    Notes
    -----
    ``result.phases`` has one row per epoch of 2^i episodes (on a LinearLadder at any time: one per test): the
    class chosen at its beginning and since when it is in play, every statistic T_m (M13), the threshold, the margin,
    the separation on the rows seen, and whether the data show that the truth is ``outside`` F_M. At any time the class
    of a Ladder may also change inside an epoch; ``since`` tells.
    """

    ladder: Ladder | LinearLadder
    delta: float = 0.05
    rule: str = "sharp"
    data: str | None = None
    test: str | None = None
    start_class: int = 1
    safe: bool = False
    guard: bool = False
    test_growth: float = 0.1
    radius: str | None = None
    weights: str | None = None
    replan: float | None = None
    scale: float = 1.0
    slack: float = 1.0
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        require_choice("rule", self.rule, RULES)
        require_rewards(self.rewards)
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        if not isinstance(self.ladder, (Ladder, LinearLadder)):
            raise ParameterError("ladder", got=type(self.ladder).__name__, expected="a Ladder or LinearLadder")
        if self.data is not None:
            require_choice("data", self.data, DATA)
        if self.test is not None:
            require_choice("test", self.test, TESTS)
        require_number("slack", self.slack, 0.0, 1e100)
        require_number("test_growth", self.test_growth, 0.0, 1e100)
        for name in ("safe", "guard"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ParameterError(name, got=getattr(self, name), expected="True or False")
        if self._data == "fresh":  # epoch i has delta / 2^i
            require_number("delta", self.delta, 1e-80, 1.0)
        self._require_sense()
        _ = self._parts  # checks the other parameters

    def _require_sense(self) -> None:
        """Refuse choices that do not go together."""
        whole = isinstance(self.start_class, Integral) and not isinstance(self.start_class, bool)
        if not whole or self.start_class not in (1, self.ladder.classes):
            raise ParameterError("start_class", got=self.start_class, expected=f"1 or M = {self.ladder.classes}")
        if self._anytime and self.rule == "paper":
            raise ParameterError("test", got="anytime", expected='"epoch" with rule "paper"')
        if self._anytime and self.data == "fresh":
            raise ParameterError("data", got="fresh", expected='"pooled" with test "anytime"')
        if isinstance(self.ladder, LinearLadder):
            self._require_sense_of_linear()
            return
        if self._anytime and self.radius not in (None, "sharp"):
            raise ParameterError("radius", got=self.radius, expected='"sharp" with test "anytime"')
        if not self._anytime and (self.safe or self.guard):
            raise ParameterError("safe or guard", got=True, expected='False with test "epoch"')
        if is_planned(self.rewards, self.kernel):
            more = "with unknown rewards or per-step kernels"
            if self.radius not in (None, "sharp"):
                raise ParameterError("radius", got=self.radius, expected=f'"sharp" {more}')
            if self._anytime and self.start_class != 1:
                raise ParameterError("start_class", got=self.start_class, expected=f"1 at any time {more}")

    def _require_sense_of_linear(self) -> None:
        if self.safe:
            raise ParameterError("safe", got=True, expected="False on a LinearLadder; play F_M, or use the guard")
        if self.test_growth == 0.0:
            raise ParameterError("test_growth", got=self.test_growth, expected="a number > 0 on a LinearLadder")

    @property
    def _data(self) -> str:
        return self.data or ("fresh" if self.rule == "paper" else "pooled")

    @property
    def _anytime(self) -> bool:
        return (self.test or ("epoch" if self.rule == "paper" else "anytime")) == "anytime"

    @cached_property
    def _parts(self) -> LadderAnytime | LadderEpochs | LadderLinear | LadderPlanned:
        ladder, paper = self.ladder, self.rule == "paper"
        lazy = 0.2 if isinstance(ladder, LinearLadder) else 0.0
        common: dict[str, Any] = {
            "delta": self.delta,
            "weights": self.weights or ("none" if paper else "range"),
            "replan": lazy if self.replan is None else self.replan,
            "scale": self.scale,
        }
        tests: dict[str, Any] = {
            "rule": self.rule,
            "data": self._data,
            "start_class": self.start_class,
            "slack": self.slack,
        }
        options: dict[str, Any] = {"rewards": self.rewards, "kernel": self.kernel}
        audits: dict[str, Any] = {"safe": self.safe, "guard": self.guard}
        radius = self.radius or ("paper" if paper else "sharp")
        if isinstance(ladder, LinearLadder):
            when: dict[str, Any] = {"anytime": self._anytime, "test_growth": self.test_growth, "guard": self.guard}
            linear = LadderLinear(ladder=ladder, radius=radius, **common, **tests, **options, **when)
            for m in range(1, ladder.classes + 1):
                linear._recorded(m, self.delta)  # checks the other parameters
            return linear
        if is_planned(self.rewards, self.kernel):
            test = "anytime" if self._anytime else "epoch"
            planned = LadderPlanned(ladder=ladder, test=test, **common, **tests, **options, **audits)
            planned._nested()  # likewise
            return planned
        if self._anytime:
            first = self.start_class
            learner = UCRLVTRNested(ladder=ladder, test=self.test_growth, start=first, **common, **audits)
            return LadderAnytime(ladder=ladder, learner=learner)
        epochs = LadderEpochs(ladder=ladder, radius=radius, **common, **tests)
        epochs._learner(1, self.delta)  # likewise
        return epochs

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return self._parts.start(known)

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes, and play the smallest that is accepted."""
        return self._parts.next_phase(known, memory)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep what the phase taught."""
        self._parts.finish_phase(known, memory, phase, outcome)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [
            cls(ladder=ladder),
            cls(ladder=ladder, safe=True),
            cls(ladder=ladder, guard=True, start_class=3, replan=0.2),
            cls(ladder=ladder, rule="paper"),
            cls(ladder=ladder, test="epoch"),
            cls(ladder=ladder, test="epoch", data="fresh", radius="unweighted", weights="none"),
        ]

"""ARL-LIN(dim): find the coordinates that matter while playing (Ghosh et al. 2022, algorithm 2; M16-M18).

    for epochs i = 0, 1, 2, ...
        D_i = the coordinates that the estimate shows                              (M16, or M18 c)
        play UCRL-VTR-LIN on the coordinates D_i for g^i k_0 episodes              exploitation
        play UCRL-VTR-LIN on all coordinates for e^i ceil(sqrt(k_0)) episodes      estimation

The paper's form (``rule="paper", data="fresh"``): g = 36, e = 6; a fresh learner at level delta/2^i exploits, one and
the same learner does all the estimation, and coordinate j is kept when its estimate is at least 0.5^i.

The default (``rule="sharp", data="pooled"``): all rows of all phases enter one regression in d dimensions, each once;
an exploiting learner plans with its [D, D] block, at a level that pays for every set of that size (the theorem below).
D has the smallest penalised loss that a search finds, which finds coordinates at a rate that no threshold schedule has
to guess, so epochs only double and estimation hardly grows. When the support has just moved, though, the regression was
not yet right about it: the next estimation phase is then ``stretch`` times as long as the last, at most about
sqrt(k_i), and falls back step by step once the support rests.

An empty set cannot be the truth (theta = 0 is no kernel): all coordinates are played instead, as in epoch 0. A true
coordinate that was dropped costs optimism, not the run: the learner goes on acting with its biased model, estimation
phases go on in full dimension, and the coordinate is back as soon as it pays for itself in the loss.

**What is promised on pooled rows.** With probability 1 - delta, at all times and for every D that holds the support T
of theta*, whichever the data chose, the ellipsoid of D holds theta*. Give the set of all coordinates, which estimates,
the level delta/2, and every other D the level delta/((d+1) C(d,|D|)). Only sets that hold T can fail. Those other than
the whole add up to

    sum_{m<d} C(d-s, m-s) delta/((d+1) C(d,m)) = delta/(s+1) - delta/(d+1) < delta/2,

with s = |T| >= 1, because C(d-s, m-s)/C(d,m) = C(m,s)/C(d,s) and sum_m C(m,s) = C(d+1, s+1); s = 0 is no kernel.
On fresh data the paper's own levels, delta for estimation and delta/2^i for the exploitation of epoch i, add up to
3 delta.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from occamrl.confidence.subset_search import log_price
from occamrl.confidence.support import detection_limits, sharp_support, thresholded
from occamrl.contracts import Floats, Known, Phase, PhaseOutcome, Selector
from occamrl.errors import ParameterError, require_choice
from occamrl.learners.ucrl_vtr_lin import SMALLEST_LEVEL, UCRLVTRLin
from occamrl.selectors._linear import (
    LinearBase,
    Regression,
    decayed_level,
    example_features,
    grown,
    nothing,
    regression,
    require_at_least,
    require_conditioned,
    require_dense,
    target_unit,
)
from occamrl.selectors._norm import require_possible

EXPLOITATION, ESTIMATION = "exploitation", "estimation"


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinDim(LinearBase, Selector):
    """Adapt to the number of non-zero coordinates of theta*.

    Parameters
    ----------
    features, norm_bound, delta, radius, weights, replan, regularization, scale, paper_constant, target_range, clip
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`.
    rewards, kernel
        Of the base algorithm too. With one kernel per step there is one support: of the coordinates that matter at
        some step.
    rule : "sharp" | "paper"
        Keep the coordinates of the smallest penalised loss (M18 c), or those of at least threshold^i (M16).
    data : "pooled" | "fresh"
        Learn from the rows of all phases (M17), or as the paper does: estimation from estimation phases, exploitation
        from the rows of its own phase.
    initial_episodes : int, optional
        k_0; 16 for the paper's rule, 4 for the sharp one.
    growth, estimation_growth : float, optional
        g and e; 36 and 6 (the root of g) for the paper's rule, 2 and 1.05 for the sharp one.
    threshold : float
        The base of the paper's thresholds, 0.5.
    level_decay : float
        An exploitation phase on fresh data has level delta / level_decay^i. Pooled ones share one event.
    stretch : float, optional
        How much longer an estimation phase is after the support moved; 1 (never) for the paper's rule, 2 for the other.

    Notes
    -----
    Facts of a phase, decided before it begins: ``active``, the coordinates that plan; ``estimate``, theta in all
    coordinates; ``threshold``, the magnitude from which on a coordinate is taken in (for the sharp rule that of the
    least explored one outside); ``norm_bound``; ``level``, the delta of the phase; ``regularization``; ``excitation``,
    lambda_min(Sigma)/(kH), with ``weakest``, the coordinate of that direction, and ``seen``, k.
    """

    rule: str = "sharp"
    data: str = "pooled"
    initial_episodes: int | None = None
    growth: float | None = None
    estimation_growth: float | None = None
    threshold: float = 0.5
    level_decay: float = 2.0
    stretch: float | None = None

    def __post_init__(self) -> None:
        require_choice("rule", self.rule, ("sharp", "paper"))
        require_choice("data", self.data, ("pooled", "fresh"))
        require_dense(self.features)
        require_conditioned(self)
        if self.initial_episodes is not None:
            require_at_least("initial_episodes", self.initial_episodes, 1, whole=True)
        for name in ("growth", "estimation_growth", "stretch"):
            if getattr(self, name) is not None:
                require_at_least(name, getattr(self, name), 1)
        require_at_least("level_decay", self.level_decay, 1)
        if not 0.0 < self.threshold < 1.0:
            raise ParameterError("threshold", got=self.threshold, expected="a number in (0, 1)")

    @property
    def support_lam(self) -> float:
        """The lambda of the regression that the support is chosen from: that of the estimating learner."""
        return self.base().lam

    # The schedule -----------------------------------------------------------------------------------------------------

    def _choose(self, given: float | None, paper: float, sharp: float) -> float:
        return given if given is not None else paper if self.rule == "paper" else sharp

    def exploitation_length(self, epoch: int) -> int:
        """Return k_i = g^i k_0."""
        k_0 = self._choose(self.initial_episodes, 16, 4)
        return math.ceil(round(grown(k_0, self._choose(self.growth, 36.0, 2.0), epoch), 6))

    def estimation_length(self, epoch: int, stretched: float = 1.0) -> int:
        """Return e^i ceil(sqrt(k_0)), stretched up to ceil(sqrt(k_i)) while the support moves."""
        g = self._choose(self.growth, 36.0, 2.0)
        e = self._choose(self.estimation_growth, math.sqrt(g), 1.05)
        first = math.isqrt(int(self._choose(self.initial_episodes, 16, 4)) - 1) + 1
        planned, longest = grown(first, e, epoch), grown(first, math.sqrt(g), epoch)
        return math.ceil(round(max(planned, min(stretched * planned, longest)), 6))

    # The algorithm ----------------------------------------------------------------------------------------------------

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: epoch 0, the first estimate theta = 1, every coordinate active."""
        d = self.features.dimension
        return {
            "least": require_possible(self.features, self.norm_bound),  # the norm that every kernel has at least
            "epoch": 0,
            "label": EXPLOITATION,
            "active": list(range(d)),
            "stretched": 1.0,
            "statistics": nothing(d, self.base().steps(known)),  # of the rows that the support is chosen from
            "estimator": None,  # the state of the one learner that estimates on fresh data
        }

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Choose the support and exploit it, or estimate in full dimension."""
        if memory["label"] == EXPLOITATION:
            self._refine(known, memory)
            learner, episodes = self.exploiting(known, memory), self.exploitation_length(memory["epoch"])
            state = learner.begin(known, memory["statistics"] if self.data == "pooled" else None)
        else:
            learner = self.estimating(known, memory)
            episodes = self.estimation_length(memory["epoch"], memory["stretched"])
            state = memory["estimator"] if self.data == "fresh" else learner.begin(known, memory["statistics"])
            state = learner.begin(known) if state is None else state
        facts = self.facts(known, memory, learner)
        return Phase(learner, state, episodes=episodes, epoch=memory["epoch"], label=memory["label"], facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take over what was learned, and go on to the other kind of phase."""
        learner = cast(UCRLVTRLin, phase.learner)  # this selector hands out no other
        if self.data == "pooled" or phase.label == ESTIMATION:
            memory["statistics"] = learner.statistics(known, outcome.state)
        if phase.label == EXPLOITATION:
            memory["label"] = ESTIMATION
        else:
            memory["label"], memory["epoch"] = EXPLOITATION, memory["epoch"] + 1
            memory["estimator"] = outcome.state if self.data == "fresh" else None

    def exploiting(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with the active coordinates."""
        active = memory["active"]
        if self.data == "fresh":
            level = decayed_level(self.delta, self.level_decay, memory["epoch"])
            return self.base(features=self.features.restrict(active), delta=level)
        return self.base(active=tuple(active), delta=union_level(self.delta, self.features.dimension, len(active)))

    def estimating(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with every coordinate."""
        d = self.features.dimension
        return self.base() if self.data == "fresh" else self.base(delta=union_level(self.delta, d, d))

    def _refine(self, known: Known, memory: dict[str, Any]) -> None:
        """Choose the active coordinates of an epoch; epoch 0 has no estimate and takes every one."""
        if memory["epoch"] == 0:
            return
        fit = regression(memory["statistics"], self.support_lam)
        if self.rule == "paper":
            active = thresholded(fit.estimate, self.threshold ** memory["epoch"])
        else:
            lam, unit = self.support_lam, target_unit(self, known)
            active = sharp_support(fit.sigma, fit.xy, regularization=lam, unit=unit, last=memory["active"])
        active = active or list(range(self.features.dimension))  # nothing passed: theta = 0 is no kernel
        if (
            self.data == "pooled"
            and 1e-3 * union_level(self.delta, self.features.dimension, len(active)) < SMALLEST_LEVEL
        ):
            active = list(range(self.features.dimension))  # one of too many sets to pay for (d of a thousand)
        factor = self._choose(self.stretch, 1.0, 2.0)
        moved = active != memory["active"]
        memory["stretched"] = memory["stretched"] * factor if moved else max(1.0, memory["stretched"] / factor)
        memory["active"] = active

    def facts(self, known: Known, memory: dict[str, Any], learner: UCRLVTRLin) -> dict[str, Any]:
        """Return what was decided for a phase, and on what grounds."""
        fit = regression(memory["statistics"], self.support_lam)
        full = memory["label"] == ESTIMATION
        return {
            "active": list(range(self.features.dimension)) if full else list(memory["active"]),
            "estimate": (np.ones_like(fit.estimate) if fit.episodes == 0 else fit.estimate).tolist(),
            "threshold": self._current_threshold(known, memory, fit),
            "norm_bound": float(learner.norm_bound),
            "level": float(learner.delta),
            "regularization": self.support_lam,
            **fit.excitation(known.horizon),
        }

    def _current_threshold(self, known: Known, memory: dict[str, Any], fit: Regression) -> float:
        if self.rule == "paper":
            return float(self.threshold ** memory["epoch"])
        unit = target_unit(self, known)
        return float(detection_limits(fit.sigma, memory["active"], regularization=self.support_lam, unit=unit).max())

    # What to read it against ------------------------------------------------------------------------------------------

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the support of theta*."""
        return self.base(features=self.features.restrict(np.flatnonzero(theta).tolist()))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return small instances on a problem, for the contract checks."""
        features = example_features(mdp)
        plain = cls(features=features, norm_bound=2.0)
        paper = cls(features=features, norm_bound=2.0, rule="paper", data="fresh", initial_episodes=4, growth=4.0)
        return [plain, paper, dataclasses.replace(plain, data="fresh"), dataclasses.replace(paper, data="pooled")]


def union_level(delta: float, d: int, m: int) -> float:
    """Return the level of a set of m coordinates that the data chose (M17): delta / ((d + 1) C(d, m)), half if m = d.

    The sets that hold a given coordinate have levels of at most delta in all; the module's text has the proof.
    """
    return max(SMALLEST_LEVEL, math.exp(math.log(delta) - log_price(d, m)))  # a number; see _refine

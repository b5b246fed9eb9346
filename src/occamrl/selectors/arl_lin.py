r"""ARL-LIN, by dimension and by norm at once, on the same pooled rows.

The epochs are those of ARL-LIN(dim). Before each phase the norm bound is refined as well: b = min(b, M19) on the
ellipsoid of *all* coordinates, and for an exploitation phase the smaller of that and M19 on the ellipsoid of the active
ones; lambda follows the bound as in ARL-LIN(norm). Levels are those of ARL-LIN(dim), each shared by its shelf.

What is proved, with probability :math:`1-\delta`, at all times: b bounds the norm of theta*, whatever was selected, and
the estimation phases are optimistic. While the active set holds the true support, the exploitation phases are too, and
their bound is valid: the ellipsoid of D holds theta*, since every set of its size and every lambda of the shelf was
paid for. A coordinate that was left out is small in the sense of M18 c.

What is only measured: that the support is found, and when; that no coordinate too many is kept; and the regret, which
has no theorem of its own here. A bound read from the ellipsoid of a wrong D may be too small. It is therefore never
carried over: the next phase computes it afresh, and the bound that is carried over does not look at D.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from occamrl.errors import ParameterError, require_choice, require_number
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width, farthest
from occamrl.learners.rewards import Rewards, seen_by
from occamrl.learners.ucrl_vtr_lin import SMALLEST_LEVEL, LinearStatistics, UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.simulators import pair_of_outcome
from occamrl.protocols import Floats, Known, Phase, PhaseOutcome, Selector
from occamrl.selectors.support_search import detection_limits, log_price, sharp_support, thresholded

# ----------------------------------------------------------------------------------------------------
# What the selectors for linear kernels share: the base learner's parameters, and pooled statistics read as arrays.


LONGEST = 1e18  # episodes: longer than any run
_SMALLEST_LAMBDA = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBase:
    """The parameters of UCRL-VTR-LIN, the algorithm that a selector sets to work; see there."""

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    radius: str = "sharp"
    weights: str = "range"
    replan: float = 0.2
    regularization: float | str | None = None
    scale: float = 1.0
    paper_constant: float = 1.0
    target_range: float | None = None
    clip: str | None = None
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def base(self, **changes: Any) -> UCRLVTRLin:
        """Return UCRL-VTR-LIN with these parameters, some of them changed."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(LinearBase)}
        return UCRLVTRLin(**{**mine, "regularization": self.lambda_rule, **changes})

    @property
    def lambda_rule(self) -> float | str:
        """What ``regularization`` stands for: itself, or this selector's own choice where it was left open."""
        return 1.0 if self.regularization is None else self.regularization

    @abstractmethod
    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told what this selector looks for."""

    def everything(self) -> UCRLVTRLin:
        """Return the learner that takes all that this selector could leave out."""
        return self.base()


class Regression(NamedTuple):
    """A full regression read from pooled statistics, for each of T steps (T = 1: one kernel for all)."""

    sigma: Floats  # [T, d, d] lambda I + sum x x^T
    xy: Floats  # [T, d]
    theta: Floats  # [T, d] the ridge estimate
    episodes: int

    @property
    def estimate(self) -> Floats:
        """The estimate [d]; with one kernel per step each coordinate's largest, in magnitude, over the steps."""
        largest = np.argmax(np.abs(self.theta), axis=0)
        return np.asarray(np.take_along_axis(self.theta, largest[np.newaxis], axis=0)[0], dtype=np.float64)

    def excitation(self, horizon: int) -> dict[str, Any]:
        """Return the facts that tell how well every direction is explored; None before any data.

        ``excitation`` is lambda_min(Sigma)/(kH), ``weakest`` the coordinate that lies most in that direction, ``seen``
        the number k of episodes behind it. With one kernel per step there are k rows instead of kH, and the step that
        is explored least counts among those that give rows.
        """
        if self.episodes == 0:
            return {"excitation": None, "weakest": None, "seen": 0}
        s, axes = np.linalg.eigh(self.sigma)
        steps = len(self.sigma)
        least = int(np.argmin(s[: max(1, steps - 1), 0]))  # the last step has targets of range zero
        weakest = int(np.argmax(np.abs(axes[least, :, 0])))
        rows = self.episodes * (horizon if steps == 1 else 1)
        return {"excitation": float(s[least, 0]) / rows, "weakest": weakest, "seen": self.episodes}


def nothing(d: int, steps: int) -> LinearStatistics:
    """Return the statistics before any data, for one dense block of d coordinates at each of T steps."""
    return LinearStatistics(np.zeros(steps * d * d), np.zeros(steps * d), 0, steps)


def regression(statistics: LinearStatistics, regularization: float) -> Regression:
    """Return the ridge regression on all rows of the statistics (M8)."""
    steps, d = statistics.steps, statistics.xy.size // statistics.steps
    sigma, xy = statistics.gram.reshape(steps, d, d) + regularization * np.eye(d), statistics.xy.reshape(steps, d)
    theta = np.asarray(np.linalg.solve(sigma, xy[:, :, np.newaxis])[:, :, 0], dtype=np.float64)
    return Regression(sigma, xy, theta, statistics.episodes)


def squared_radius(learner: UCRLVTRLin, known: Known, dimension: int, logdet: float, episodes: int) -> float:
    """Return beta of a learner's confidence ellipsoid, for its first step (the widest)."""
    width = ellipsoid_width(
        ELLIPSOIDS[learner.radius],
        learner.weights == "range",
        target_unit(learner, known),
        known.horizon,
        0,
        episodes,
        dimension,
        logdet,
        learner.level(known),
        learner.lam,
        float(learner.norm_bound),
        float(learner.paper_constant),
    )
    return float(width) ** 2


def target_unit(learner: LinearBase | UCRLVTRLin, known: Known) -> float:
    """Return the range U of a regression target: 1 with range weights (M23)."""
    if learner.weights == "range":
        return 1.0
    if learner.target_range is not None:
        return float(learner.target_range)
    at_horizon = learner.clip == "horizon" or (learner.clip is None and learner.radius == "ayoub")
    return float(known.horizon - (seen_by(learner.rewards, known).transition_rewards is None) + at_horizon)


def decayed_level(delta: float, decay: float, epoch: int) -> float:
    """Return delta / decay^epoch, or the smallest level that is a number."""
    return max(SMALLEST_LEVEL, math.exp(math.log(delta) - epoch * math.log(decay)))


def grown(first: float, growth: float, epoch: int) -> float:
    """Return first * growth^epoch, or a number of episodes that no run reaches."""
    return first * growth**epoch if epoch * math.log(growth) < math.log(LONGEST) else LONGEST * max(1.0, first)


def require_dense(features: FeatureMap) -> None:
    """Refuse one-hot features: every (s, a) has coordinates of its own there, and no statistics are shared."""
    if isinstance(features, FeatureMap) and features.is_tabular:
        raise ParameterError("features", got="a tabular map", expected="a dense or sparse one, with shared coordinates")


def require_conditioned(selector: LinearBase) -> None:
    """Refuse parameters of the base algorithm, and a lambda with which Sigma has no inverse in double precision."""
    lam, low, high = selector.base().lam, _SMALLEST_LAMBDA, 1.0 / _SMALLEST_LAMBDA
    if not low <= lam <= high:
        if isinstance(selector.lambda_rule, str):
            expected = f"lambda = d/(4 norm_bound^2) in [{low:g}, {high:g}]"
            raise ParameterError("norm_bound", got=selector.norm_bound, expected=expected)
        raise ParameterError("regularization", got=lam, expected=f"a number in [{low:g}, {high:g}]")


def require_at_least(name: str, value: float, least: float, *, whole: bool = False) -> None:
    """Refuse a number that is too small or no number (or not a whole one, where ``whole``)."""
    fits = isinstance(value, (int, np.integer)) if whole else isinstance(value, (int, float, np.number))
    if isinstance(value, bool) or not fits or not (value >= least and np.isfinite(value)):
        kind = "an integer" if whole else "a finite number"
        raise ParameterError(name, got=value, expected=f"{kind} >= {least:g}")


def example_features(mdp: Any) -> FeatureMap:
    """Return features on a problem's own outcomes: its kernel, and two that tell it from an even one."""
    truth = mdp.truth
    outcomes, pairs = truth.outcomes, mdp.states * mdp.actions
    pair = pair_of_outcome(outcomes)
    kernel, even = np.zeros((2, pairs, mdp.states))
    np.add.at(kernel, (pair, outcomes.next_state), truth.probability[0])
    np.add.at(even, (pair, outcomes.next_state), (1.0 / np.diff(outcomes.start))[pair])
    signs = np.where(np.arange(pairs) % 3 == 0, -1.0, 1.0)[:, np.newaxis]
    phi = np.stack([kernel, even - kernel, signs * (even - kernel)], axis=-1)
    return FeatureMap(phi.reshape(mdp.states, mdp.actions, mdp.states, 3))


# ----------------------------------------------------------------------------------------------------
# Refining a norm bound on pooled rows, for every lambda of a shelf at once (M11, M19).
#
# Every ellipsoid here is given along the axes of :math:`\sum x x^\top`, which are those of Sigma for any lambda.


_MOST_ROUNDS = 50  # of M19 on its own result; every round is valid, so stopping early is too
_WORTHWHILE = 1e-3  # the relative improvement that is worth another round
_ROUNDING = 1e-6  # the relative error that a norm computed from features may have


class Spectrum(NamedTuple):
    """Pooled rows along the axes of sum x x^T: one decomposition serves every lambda."""

    eigenvalues: Floats  # [d] increasing
    xy: Floats  # [d] along the axes
    episodes: int

    def center(self, lam: float) -> Floats:
        """Return the ridge estimate along the axes."""
        return self.xy / (self.eigenvalues + lam)

    def logdet(self, lam: float) -> float:
        """Return logdet(Sigma / lambda)."""
        return float(np.log1p(self.eigenvalues / lam).sum())


def spectra(statistics: LinearStatistics) -> list[Spectrum]:
    """Return the rows of each step along the axes of their matrix."""
    found = []
    for gram, xy, *_ in statistics.by_step():
        eigenvalues, axes = np.linalg.eigh(gram.reshape(xy.size, xy.size))
        found.append(Spectrum(np.maximum(eigenvalues, 0.0), axes.T @ xy, statistics.episodes))
    return found


def that_matter(every: list[Spectrum], learner: UCRLVTRLin, known: Known) -> list[Spectrum]:
    """Return the steps that give rows, or the only one there is.

    The last step gives none without rewards on transitions, and no plan looks at its parameter: no norm to bound.
    """
    return every[: max(1, learner.steps_with_rows(known))]


def refined_norm(learner: UCRLVTRLin, known: Known, statistics: LinearStatistics) -> float:
    """Return the largest norm in a learner's confidence ellipsoid with these rows (M19), or in those of all steps."""
    norms = []
    for rows in that_matter(spectra(statistics), learner, known):
        beta = squared_radius(learner, known, rows.xy.size, rows.logdet(learner.lam), rows.episodes)
        norms.append(_farthest_norm(learner.lam, rows, beta))
    return max(norms)


def _farthest_norm(lam: float, rows: Spectrum, beta: float) -> float:
    center = rows.center(lam)
    return float(np.linalg.norm(center + farthest(rows.eigenvalues + lam, center, beta)[0]))


def smallest_norm(features: FeatureMap) -> float:
    """Return the smallest ||theta|| with which the probabilities of every (s, a) sum to one: no theta* is smaller.

    Zero, which bounds nothing, where no theta does that: coordinates of which every kernel needs others beside them.
    """
    start = features.layout.outcomes.start[:-1]
    sums = np.stack([np.add.reduceat(features.probabilities(unit), start) for unit in np.eye(features.dimension)], -1)
    theta = np.linalg.lstsq(sums, np.ones(start.size), rcond=None)[0]
    return float(np.linalg.norm(theta)) if np.allclose(sums @ theta, 1.0, rtol=0.0, atol=_ROUNDING) else 0.0


def require_possible(features: FeatureMap, norm_bound: float) -> float:
    """Refuse a norm bound that no kernel of these features keeps; return the smallest norm that a kernel can have."""
    least = smallest_norm(features)
    if norm_bound < (1.0 - _ROUNDING) * least:
        expected = f"at least {least:.6g}: with these features no theta of a smaller norm is a kernel"
        raise ParameterError("norm_bound", got=norm_bound, expected=expected)
    return least


def shelf(learner: UCRLVTRLin, least: float) -> list[UCRLVTRLin]:
    """Return learners whose noise events hold all at once: one per lambda of the shelf, or one alone if it is fixed."""
    if not isinstance(learner.regularization, str) or least <= 0.0:
        return [dataclasses.replace(learner, regularization=learner.lam)]
    count = 1 + max(0, math.floor(math.log2(learner.norm_bound / least) + 1e-9))
    lams = [dataclasses.replace(learner, norm_bound=learner.norm_bound / 2.0**j).lam for j in range(count)]
    level = max(SMALLEST_LEVEL, learner.delta / count)
    return [dataclasses.replace(learner, regularization=lam, delta=level) for lam in lams]


class Refinement(NamedTuple):
    """The learner to play with, and whether the rows contradict the class that it stands for."""

    learner: UCRLVTRLin
    contradicted: bool


def refine(
    learners: Sequence[UCRLVTRLin], known: Known, statistics: LinearStatistics, bound: float, least: float
) -> Refinement:
    """Return the best learner of a shelf, with the smallest norm bound that the rows allow; ``bound`` is valid.

    A negative beta leaves no theta within the bound, and a bound under ``least`` no kernel: either the features or the
    bound that was given are wrong, or this is the run in delta^-1 in which an event failed. Nothing can be refined
    then. The learner has the bound that was given, and its own event alone, with which beta is never negative.

    With one kernel per step the bound is for all of them: the largest that any step allows.
    """
    every = spectra(statistics)
    steps = that_matter(every, learners[0], known)
    lams = np.array([learner.lam for learner in learners])
    contradicted = False
    for _ in range(_MOST_ROUNDS):
        smallest = [_radii(learners, known, rows, bound).min(axis=1) for rows in steps]
        contradicted = any(bool((each < 0.0).any()) for each in smallest) or bound < (1.0 - _ROUNDING) * least
        if contradicted:
            bound = float(learners[0].norm_bound)
            break
        smaller = max(
            min(_farthest_norm(lam, rows, beta) for lam, beta in zip(lams, each, strict=True))
            for rows, each in zip(steps, smallest, strict=True)
        )
        if smaller > (1.0 - _WORTHWHILE) * bound:
            break
        bound = smaller
    volume = np.zeros((lams.size, lams.size))
    other = lams[:, np.newaxis] != lams if contradicted else lams[:, np.newaxis] > lams
    for rows in steps:
        radii = _radii(learners, known, rows, bound, playing=True)
        radii[other] = np.inf  # while it plays, a learner can only follow the event of a larger lambda
        volume += rows.xy.size * np.log(radii)
        volume -= np.log(rows.eigenvalues + lams[:, np.newaxis]).sum(axis=1)[:, np.newaxis]
    shape, event = divmod(int(np.argmin(volume)), lams.size)
    chosen = dataclasses.replace(learners[shape], norm_bound=bound)
    if shape == event:
        return Refinement(chosen, contradicted)
    # Both log-determinants grow with the rows, and their difference shrinks: its present value bounds it from now on.
    # A learner has one slack for all steps, those without rows among them.
    slack = max(rows.logdet(float(lams[event])) - rows.logdet(float(lams[shape])) for rows in every)
    return Refinement(dataclasses.replace(chosen, event=(float(lams[event]), slack)), contradicted)


def _radii(
    learners: Sequence[UCRLVTRLin], known: Known, rows: Spectrum, bound: float, *, playing: bool = False
) -> Floats:
    """Return beta of the ellipsoid of each lambda (rows) by the noise event of each lambda' (columns).

    ``playing``: as a learner computes it that factorises Sigma for one lambda only.
    """
    if len(learners) == 1 or learners[0].radius != "sharp":
        radii = np.full((len(learners), len(learners)), np.inf)
        for i, each in enumerate(learners):
            bounded, logdet = dataclasses.replace(each, norm_bound=bound), rows.logdet(each.lam)
            radii[i, i] = squared_radius(bounded, known, rows.xy.size, logdet, rows.episodes)
        return radii
    lams = np.array([each.lam for each in learners])
    centers = np.stack([rows.center(float(lam)) for lam in lams])
    unit = target_unit(learners[0], known)
    noise = np.array([rows.logdet(each.lam) + 2.0 * math.log(1.0 / each.level(known)) for each in learners])
    # L'(theta') - L(theta) = (lambda' - lambda) <theta, theta'>: both are quadratic forms of xy on the same axes
    products = np.sum(centers**2, axis=1)[:, np.newaxis] if playing else centers @ centers.T
    losses = (lams - lams[:, np.newaxis]) * products
    return np.asarray(losses + 0.25 * unit**2 * noise + (lams * bound**2)[:, np.newaxis])


# ----------------------------------------------------------------------------------------------------
# ARL-LIN(dim): find the coordinates that matter while playing (Ghosh et al. 2022, algorithm 2; M16-M18).
#
#     for epochs i = 0, 1, 2, ...
#         D_i = the coordinates that the estimate shows                              (M16, or M18 c)
#         play UCRL-VTR-LIN on the coordinates D_i for g^i k_0 episodes              exploitation
#         play UCRL-VTR-LIN on all coordinates for e^i ceil(sqrt(k_0)) episodes      estimation
#
# The paper's form (``rule="paper", data="fresh"``): g = 36, e = 6; a fresh learner at level delta/2^i exploits, one and
# the same learner does all the estimation, and coordinate j is kept when its estimate is at least 0.5^i.
#
# The default (``rule="sharp", data="pooled"``): all rows of all phases enter one regression in d dimensions, each once;
# an exploiting learner plans with its [D, D] block, at a level that pays for every set of that size (the theorem below).
# D has the smallest penalised loss that a search finds, which finds coordinates at a rate that no threshold schedule has
# to guess, so epochs only double and estimation hardly grows. When the support has just moved, though, the regression was
# not yet right about it: the next estimation phase is then ``stretch`` times as long as the last, at most about
# sqrt(k_i), and falls back step by step once the support rests.
#
# An empty set cannot be the truth (theta = 0 is no kernel): all coordinates are played instead, as in epoch 0. A true
# coordinate that was dropped costs optimism, not the run: the learner goes on acting with its biased model, estimation
# phases go on in full dimension, and the coordinate is back as soon as it pays for itself in the loss.
#
# **What is promised on pooled rows.** With probability 1 - delta, at all times and for every D that holds the support T
# of theta*, whichever the data chose, the ellipsoid of D holds theta*. Give the set of all coordinates, which estimates,
# the level delta/2, and every other D the level delta/((d+1) C(d,|D|)). Only sets that hold T can fail. Those other than
# the whole add up to
#
#     sum_{m<d} C(d-s, m-s) delta/((d+1) C(d,m)) = delta/(s+1) - delta/(d+1) < delta/2,
#
# with s = |T| >= 1, because C(d-s, m-s)/C(d,m) = C(m,s)/C(d,s) and sum_m C(m,s) = C(d+1, s+1); s = 0 is no kernel.
# On fresh data the paper's own levels, delta for estimation and delta/2^i for the exploitation of epoch i, add up to
# 3 delta.


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


# ----------------------------------------------------------------------------------------------------
# ARL-LIN(norm): find how large theta* is while playing (Ghosh et al. 2022, algorithm 3; M19).
#
#     b_1 = b
#     for epochs i = 1, 2, 3, ...
#         play UCRL-VTR-LIN with norm bound b_i for 2^(i-1) k_1 episodes
#         b_{i+1} = max { ||theta|| : theta in its confidence ellipsoid }
#
# The paper's form (``data="fresh"``): every epoch has a learner of its own at level delta/2^(i-1), so that all bounds are
# valid with probability 1 - 2 delta. The paper has lambda = 1, which is what ``radius="paper"`` takes. With the other
# radii lambda = d/(4 b_i^2), and b_{i+1} = min(b_i, M19), which the same events prove: without the minimum the two would
# feed on each other, a larger bound making lambda smaller and the next maximum larger.
#
# The default (``data="pooled"``): rows are kept over epochs, and b_{i+1} = min(b_i, M19). The noise event does not
# involve b, so one delta serves all epochs, and M19 may be applied to its own result until nothing changes: the smaller
# bound makes the ellipsoid smaller.
#
# On pooled rows with ``regularization="scaled"``, the default, lambda follows as well, since rows are pooled without it.
# The event of M11 is for one lambda, so a shelf of them is fixed beforehand, d/(4 (b/2^j)^2) for j = 0, ..., J, each at
# level delta/(J+1); b/2^J is the last one that is not below the smallest norm any kernel can have with these features.
# All events hold at once, and any two of the shelf may be combined: the event of a large lambda' says that the loss of
# theta* is small without a word about b, and an ellipsoid of a small lambda needs b in lambda b^2 only,
#
#     beta = L_lambda'(theta') - L_lambda(theta) + (1/4)(logdet(Sigma'/lambda') + 2 log((J+1)/delta)) + lambda b^2.
#
# So lambda' can suit the norm that theta* shows and lambda the bound that is known. M19 takes the smallest answer on the
# shelf; the next epoch plays with the pair of the smallest volume.


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(LinearBase, Selector):
    """Adapt to the norm of theta*.

    Parameters
    ----------
    features, norm_bound, delta, radius, weights, replan, regularization, scale, paper_constant, target_range, clip
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound`` is b_1, and
        ``regularization`` is by default "scaled", or 1 with the paper's radius.
    rewards, kernel
        Of the base algorithm too. With one kernel per step the bound is for the largest of their norms.
    data : "pooled" | "fresh"
        Keep the rows of all epochs, or begin each epoch without any, as the paper does.
    initial_episodes : int
        k_1.
    growth : float
        How much longer an epoch is than the one before; the paper doubles.
    level_decay : float
        An epoch on fresh data has level delta / level_decay^(i-1).

    Notes
    -----
    Facts of a phase, decided before it begins: ``norm_bound``, b_i; ``estimate``, theta; ``regularization``, lambda
    and that of the noise event; ``level``, the delta of the phase; ``contradicted``, whether the rows leave no kernel
    within the bound, so that the one that was given is played; ``excitation``, lambda_min(Sigma)/(kH), ``weakest`` and
    ``seen`` as for ARLLinDim.
    """

    data: str = "pooled"
    initial_episodes: int = 16
    growth: float = 2.0
    level_decay: float = 2.0

    def __post_init__(self) -> None:
        require_choice("data", self.data, ("pooled", "fresh"))
        require_dense(self.features)
        require_conditioned(self)
        require_at_least("initial_episodes", self.initial_episodes, 1, whole=True)
        require_at_least("growth", self.growth, 1)
        require_at_least("level_decay", self.level_decay, 1)

    @property
    def lambda_rule(self) -> float | str:
        """How lambda is chosen: a number, or "scaled"."""
        chosen = 1.0 if self.radius == "paper" else "scaled"
        return chosen if self.regularization is None else self.regularization

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: epoch 1, the bound that was given."""
        d, least = self.features.dimension, require_possible(self.features, self.norm_bound)
        rows = nothing(d, self.base().steps(known))
        return {"epoch": 1, "norm_bound": float(self.norm_bound), "statistics": rows, "least": least}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Play an epoch with the present bound."""
        epoch, pooled, contradicted = memory["epoch"], self.data == "pooled", False
        if pooled:
            learners, least = shelf(self.base(), memory["least"]), memory["least"]
            learner, contradicted = refine(learners, known, memory["statistics"], memory["norm_bound"], least)
            memory["norm_bound"] = learner.norm_bound
        else:
            level = decayed_level(self.delta, self.level_decay, epoch - 1)
            learner = self.base(norm_bound=memory["norm_bound"], delta=level)
        fit = regression(memory["statistics"], learner.lam)
        event = (learner.lam, 0.0) if learner.event is None else learner.event
        facts = {
            "norm_bound": memory["norm_bound"],
            "estimate": fit.estimate.tolist(),
            "regularization": [learner.lam, event[0]],
            "level": float(learner.delta),
            "contradicted": contradicted,
            **fit.excitation(known.horizon),
        }
        state = learner.begin(known, memory["statistics"] if pooled else None)
        episodes = math.ceil(round(grown(self.initial_episodes, self.growth, epoch - 1), 6))
        return Phase(learner, state, episodes=episodes, epoch=epoch, label="epoch", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take the largest norm that is still possible as the next bound."""
        learner = cast(UCRLVTRLin, phase.learner)  # this selector hands out no other
        memory["statistics"] = learner.statistics(known, outcome.state)
        if self.data == "fresh":
            largest = refined_norm(learner, known, memory["statistics"])
            scaled = isinstance(self.lambda_rule, str)
            memory["norm_bound"] = min(memory["norm_bound"], largest) if scaled else largest
        memory["epoch"] += 1

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the norm of theta*."""
        return self.base(norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return small instances on a problem, for the contract checks."""
        plain = cls(features=example_features(mdp), norm_bound=5.0, initial_episodes=4)
        return [plain, dataclasses.replace(plain, data="fresh")]


# ----------------------------------------------------------------------------------------------------
# ARL-LIN, by dimension and by norm at once, on the same pooled rows.


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLin(ARLLinDim):
    """Adapt to the number of non-zero coordinates of theta* and to its norm.

    Parameters are those of :class:`~occamrl.selectors.arl_lin.ARLLinDim`, with ``data="pooled"``; ``norm_bound``
    may be far too large, and ``regularization`` is "scaled" by default (1 with the paper's radius).
    ``support_regularization`` is the lambda of the support rule, which does not depend on b.

    Notes
    -----
    Facts of a phase beside those of ARLLinDim: ``carried_bound``, the bound that does not look at the active
    coordinates; ``contradicted``, whether the rows leave no kernel within it, so that the one that was given is taken.
    """

    support_regularization: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("support_regularization", self.support_regularization, 1e-12, 1e12)
        if self.data != "pooled":
            raise ParameterError("data", got=self.data, expected='"pooled": both adaptations read the same rows')

    @property
    def support_lam(self) -> float:
        """The lambda of the regression that the support is chosen from."""
        return self.support_regularization

    @property
    def lambda_rule(self) -> float | str:
        """How lambda is chosen: a number, or "scaled"."""
        chosen = 1.0 if self.radius == "paper" else "scaled"
        return chosen if self.regularization is None else self.regularization

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {**super().start(known), "norm_bound": float(self.norm_bound), "contradicted": False}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Refine the norm bound on all coordinates, then go on as ARL-LIN(dim)."""
        learner, memory["contradicted"] = self._refined(known, memory, None)
        memory["norm_bound"] = learner.norm_bound
        return super().next_phase(known, memory)

    def _refined(self, known: Known, memory: dict[str, Any], active: Sequence[int] | None) -> Refinement:
        """Return the learner with the smallest norm bound that the rows prove for some coordinates, or for all."""
        d, least, rows = self.features.dimension, memory["least"], memory["statistics"]
        level = union_level(self.delta, d, d if active is None else len(active))
        learners = shelf(self.base(active=active, delta=level), least)
        rows = rows if active is None else rows.restrict(active)
        return refine(learners, known, rows, memory["norm_bound"], least)

    def estimating(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with every coordinate and the refined bound."""
        return self._refined(known, memory, None).learner

    def exploiting(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with the active coordinates and the smaller of the two bounds."""
        learner, contradicted = self._refined(known, memory, tuple(memory["active"]))
        # Rows that contradict D say that D is wrong; the bound that does not look at D stands.
        return dataclasses.replace(learner, norm_bound=memory["norm_bound"]) if contradicted else learner

    def facts(self, known: Known, memory: dict[str, Any], learner: UCRLVTRLin) -> dict[str, Any]:
        """Return what was decided for a phase; beside its own norm bound, the one that does not look at D."""
        more = {"carried_bound": memory["norm_bound"], "contradicted": memory["contradicted"]}
        return {**super().facts(known, memory, learner), **more}

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the support and the norm of theta*."""
        return dataclasses.replace(super().told(theta), norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return a small instance on a problem, for the contract checks."""
        return [cls(features=example_features(mdp), norm_bound=5.0)]

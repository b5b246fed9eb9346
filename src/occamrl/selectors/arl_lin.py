r"""ARL-LIN: adapt to the support and to the norm of theta* while playing (Ghosh et al. 2022, algorithms 2 and 3).

All rows of all phases are pooled: they enter one regression in d dimensions, each once (M17). The paper's own
algorithms, on fresh data and with decaying levels, are in :mod:`occamrl.paper`.

**ARL-LIN(dim)** finds the coordinates that matter (M16-M18)::

    for epochs i = 0, 1, 2, ...
        D_i = the set of coordinates with the smallest penalised loss (all of them for i = 0)
        play UCRL-VTR-LIN on the coordinates D_i for g^i k_0 episodes                     exploitation
        play UCRL-VTR-LIN on all coordinates for e^i ceil(sqrt(k_0)) episodes             estimation

An exploiting learner plans with the [D, D] block of the regression, at a level that pays for every set of that size.
If the support has just changed, the regression was not yet right about it: the next estimation phase is then
``stretch`` times as long as the last, at most about sqrt(k_i), and becomes shorter step by step once the support rests.
The set is never empty, since theta = 0 is no kernel. A true coordinate that was dropped costs optimism, not the run:
estimation phases go on in full dimension, and the coordinate is back as soon as it pays for itself in the loss.

*Guarantee.* With probability 1 - delta, at all times and for every D that holds the support T of theta*, whichever the
data chose, the ellipsoid of D holds theta*. Give the set of all coordinates, which estimates, the level delta/2, and
every other D the level delta/((d+1) C(d,\|D\|)). Only sets that hold T can fail. Those other than the whole add up to

    sum_{m<d} C(d-s, m-s) delta/((d+1) C(d,m)) = delta/(s+1) - delta/(d+1) < delta/2,

with s = \|T\| >= 1, because C(d-s, m-s)/C(d,m) = C(m,s)/C(d,s) and sum_m C(m,s) = C(d+1, s+1); s = 0 is no kernel.

**ARL-LIN(norm)** finds how large theta* is (M19)::

    b_1 = b
    for epochs i = 1, 2, 3, ...
        play UCRL-VTR-LIN with norm bound b_i for g^(i-1) k_1 episodes
        b_{i+1} = min(b_i, max { ||theta|| : theta in its confidence ellipsoid })

The noise event does not involve b, so one delta serves all epochs, and the maximum may be taken of its own result until
nothing changes: the smaller bound makes the ellipsoid smaller.

With ``regularization="scaled"``, the default, lambda follows the bound, since rows are pooled without it. The event of
M11 is for one lambda, so a *lambda grid* is fixed beforehand, d/(4 (b/2^j)^2) for j = 0, ..., J, each at level
delta/(J+1); b/2^J is the last one that is not below the smallest norm any kernel can have with these features. All
events hold at once, and any two of the grid may be combined: the event of a large lambda' bounds the loss of theta*
without b, and an ellipsoid of a small lambda needs b in lambda b^2 only,

    beta = L_lambda'(theta') - L_lambda(theta) + (1/4)(logdet(Sigma'/lambda') + 2 log((J+1)/delta)) + lambda b^2.

So lambda' can suit the norm that theta* shows and lambda the bound that is known. M19 takes the smallest answer on the
grid; the next epoch plays with the pair of the smallest volume.

**ARL-LIN** does both on the same rows. The epochs are those of ARL-LIN(dim). Before each phase the norm bound is
refined as well: b = min(b, M19) on the ellipsoid of *all* coordinates, and for an exploitation phase the smaller of
that and M19 on the ellipsoid of the active ones. Levels are those of ARL-LIN(dim), each shared by its lambda grid.

*Guarantee.* With probability 1 - delta, at all times, b bounds the norm of theta*, whatever was selected, and the
estimation phases are optimistic. While the active set holds the true support, the exploitation phases are optimistic
too, and their bound is valid: the ellipsoid of D holds theta*, since every set of its size and every lambda of the grid
was paid for. A coordinate that was left out is small in the sense of M18 c. That the support is found, and when, that
no coordinate too many is kept, and the regret are only measured. A bound read from the ellipsoid of a wrong D may be
too small. It is therefore never carried over: the next phase computes it afresh, and the bound that is carried over
does not look at D.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from occamrl._core.rows import MOST, MOST_ROWS
from occamrl.errors import ParameterError, as_floats, require_choice, require_integer, require_number, require_numbers
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width, farthest_step
from occamrl.learners.rewards import Rewards
from occamrl.learners.ucrl_vtr_lin import SMALLEST, SMALLEST_LEVEL, LinearStatistics, UCRLVTRLin
from occamrl.models.features import FeatureMap, pair_of_outcome
from occamrl.protocols import (
    ESTIMATION,
    Floats,
    Kernel,
    Known,
    Phase,
    PhaseOutcome,
    Radius,
    Selector,
    Weights,
    require_parts,
)
from occamrl.selectors.references import own_parameters
from occamrl.selectors.support_search import detection_limits, log_price, sharp_support

EXPLOITATION = "exploitation"

_LONGEST = 1e18  # episodes: longer than any run
_SMALLEST_LAMBDA = 1e-12  # below it, and above its inverse, Sigma has no inverse in double precision
_MOST_ROUNDS = 50  # of M19 on its own result; every round is valid, so stopping early is too
_WORTHWHILE = 1e-3  # the relative improvement that is worth another round
_ROUNDING = 1e-6  # the relative error that a norm computed from features may have


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearSelector(Selector):
    """The parameters of UCRL-VTR-LIN, which the selectors play, and the schedule of their epochs."""

    guarantee = "of its tests, not of its regret"
    given = ("a norm bound",)

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    radius: Radius = "sharp"
    weights: Weights = "range"
    replan: float = 0.2
    regularization: float | str | None = None
    scale: float = 1.0
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"
    initial_episodes: int = 4
    growth: float = 2.0
    finds_norm = False  # whether the norm of theta* is to be found out

    def __post_init__(self) -> None:
        require_choice("radius", self.radius, ELLIPSOIDS)
        if isinstance(self.features, FeatureMap) and self.features.is_tabular:  # no (s, a) shares anything with another
            expected = "coordinates that pairs (s, a) share; among one-hot ones there is nothing to select: play"
            expected += " UCRLVTRLin on them, or ARLGen on a Ladder of AggregationFamily"
            raise ParameterError("features", got="a tabular map", expected=expected)
        lam, low, high = self.base().lam, _SMALLEST_LAMBDA, 1.0 / _SMALLEST_LAMBDA  # checks the other parameters
        if not low <= lam <= high:
            if isinstance(self.lambda_rule, str):
                expected = f"lambda = d/(4 norm_bound^2) in [{low:g}, {high:g}]"
                raise ParameterError("norm_bound", got=self.norm_bound, expected=expected)
            raise ParameterError("regularization", got=lam, expected=f"a number in [{low:g}, {high:g}]")
        require_integer("initial_episodes", self.initial_episodes, 1)
        require_number("growth", self.growth, 1.0, math.inf)

    @property
    def lambda_rule(self) -> float | str:
        """How lambda is chosen: a number, or "scaled"; 1 by default, and with an unknown norm "scaled"."""
        if self.regularization is not None:
            return self.regularization
        return 1.0 if self.radius == "paper" or not self.finds_norm else "scaled"

    def base(self, **changes: Any) -> UCRLVTRLin:
        """Return UCRL-VTR-LIN with this selector's parameters, some of them changed."""
        return dataclasses.replace(self._base, **changes) if changes else self._base

    @cached_property
    def _base(self) -> UCRLVTRLin:
        return UCRLVTRLin(**{**own_parameters(self, UCRLVTRLin), "regularization": self.lambda_rule})

    @abstractmethod
    def oracle(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that knows what this selector has to find out about theta*."""

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: no rows, and the norm that every kernel has at least."""
        least = smallest_norm(self.features)
        if self.norm_bound < (1.0 - _ROUNDING) * least:
            expected = f"at least {least:.6g}: with these features no theta of a smaller norm is a kernel"
            raise ParameterError("norm_bound", got=self.norm_bound, expected=expected)
        d, steps = self.features.dimension, self.base().steps(known)
        rows = LinearStatistics(np.zeros(steps * d * d), np.zeros(steps * d), 0, steps)
        return {"epoch": 0, "least": least, "statistics": rows}

    def fields(self, known: Known) -> dict[str, Any]:
        """Return what the memory holds: of each number (low, high), of the rest what is possible."""
        highest = (1.0 + _ROUNDING) * self.norm_bound
        return {"epoch": (0, MOST_ROWS), "least": (0.0, highest), "statistics": LinearStatistics}

    def resume(self, known: Known, memory: dict[str, Any]) -> None:
        """Refuse a memory, as from a file, that no run could have left."""
        require_parts("memory", memory, self.fields(known))
        self.base().require_statistics(known, memory["statistics"])


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinDim(LinearSelector):
    """Adapt to the number of non-zero coordinates of theta*.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLinDim(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=100)
    >>> verdict = str(result.verdict)  # which features are in play, and since when

    Parameters
    ----------
    features, norm_bound, delta, radius, weights, replan, regularization, scale
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`.
    rewards, kernel
        Of the base algorithm too. With one kernel per step there is one support: of the coordinates that matter at
        some step.
    initial_episodes : int
        k_0.
    growth, estimation_growth : float
        g and e: how much longer an exploitation and an estimation phase is than the one before.
    stretch : float
        How much longer an estimation phase is after the support moved; 1: never.

    Notes
    -----
    Facts of a phase, decided before it begins: ``active``, the coordinates that plan; ``estimate``, theta in all
    coordinates; ``threshold``, the magnitude from which on the least explored coordinate outside would be taken in;
    ``norm_bound``; ``level``, the delta of the phase; ``regularization``; ``excitation``, lambda_min(Sigma)/(kH), with
    ``weakest``, the coordinate of that direction, and ``seen``, k.
    """

    estimation_growth: float = 1.05
    stretch: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, 1.0, math.inf, "estimation_growth", "stretch")

    @property
    def support_lam(self) -> float:
        """The lambda of the regression that the support is chosen from: that of the estimating learner."""
        return self.base().lam

    def exploitation_length(self, epoch: int) -> int:
        """Return k_i = g^i k_0."""
        return _whole(_grown(self.initial_episodes, self.growth, epoch))

    def estimation_length(self, epoch: int, stretched: float = 1.0) -> int:
        """Return e^i ceil(sqrt(k_0)), stretched up to ceil(sqrt(k_i)) while the support moves."""
        first = math.isqrt(self.initial_episodes - 1) + 1
        planned = _grown(first, self.estimation_growth, epoch)
        longest = _grown(first, math.sqrt(self.growth), epoch)
        return _whole(max(planned, min(stretched * planned, longest)))

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: epoch 0, every coordinate active."""
        every = list(range(self.features.dimension))
        return {**super().start(known), "label": EXPLOITATION, "active": every, "stretched": 1.0}

    def fields(self, known: Known) -> dict[str, Any]:
        """Return what the memory holds."""
        labels = {EXPLOITATION, ESTIMATION}
        return {**super().fields(known), "label": labels, "active": list, "stretched": (1.0, MOST)}

    def resume(self, known: Known, memory: dict[str, Any]) -> None:
        """Refuse a memory, as from a file, that no run could have left."""
        super().resume(known, memory)
        active, d = memory["active"], self.features.dimension
        if not active or any(type(j) is not int or not 0 <= j < d for j in active) or sorted(set(active)) != active:
            raise ParameterError("memory.active", got=active, expected=f"increasing integers in [0, {d})")

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Choose the support and exploit it, or estimate in full dimension."""
        epoch, label = memory["epoch"], memory["label"]
        fit = Regression.on(memory["statistics"], self.support_lam)
        if label == EXPLOITATION:
            self._choose_support(known, memory, fit)
            learner = self.learner(known, memory, tuple(memory["active"]))
            episodes = self.exploitation_length(epoch)
        else:
            learner, episodes = self.learner(known, memory), self.estimation_length(epoch, memory["stretched"])
        state, facts = learner.go_on(known, memory["statistics"]), self.facts(known, memory, learner, fit)
        return Phase(learner, state, episodes=episodes, epoch=epoch, label=label, facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take over the rows, and go on to the other kind of phase."""
        memory["statistics"] = cast(UCRLVTRLin, phase.learner).statistics(known, outcome.state)
        if phase.label == EXPLOITATION:
            memory["label"] = ESTIMATION
        else:
            memory["label"], memory["epoch"] = EXPLOITATION, memory["epoch"] + 1

    def learner(self, known: Known, memory: dict[str, Any], active: tuple[int, ...] | None = None) -> UCRLVTRLin:
        """Return the learner that plans with the active coordinates, or with every one."""
        if active not in self._by_active:
            d = self.features.dimension
            level = union_level(self.delta, d, d if active is None else len(active))
            self._by_active[active] = self.base(active=active, delta=level)
        return self._by_active[active]

    @cached_property
    def _by_active(self) -> dict[tuple[int, ...] | None, UCRLVTRLin]:
        """Those that have played: each keeps its features and its model."""
        return {}

    def _choose_support(self, known: Known, memory: dict[str, Any], fit: Regression) -> None:
        """Choose the active coordinates of an epoch; epoch 0 has no estimate and takes every one."""
        if memory["epoch"] == 0:
            return
        d, last, lam = self.features.dimension, memory["active"], self.support_lam
        unit = target_range(self.base(), known)
        active = sharp_support(fit.sigma, fit.xy, regularization=lam, unit=unit, last=last)
        if 1e-3 * union_level(self.delta, d, len(active)) < SMALLEST_LEVEL:
            active = list(range(d))  # one of too many sets to pay for (d of a thousand)
        if active != last:
            memory["stretched"] = memory["stretched"] * self.stretch
        else:
            memory["stretched"] = max(1.0, memory["stretched"] / self.stretch)
        memory["active"] = active

    def facts(self, known: Known, memory: dict[str, Any], learner: UCRLVTRLin, fit: Regression) -> dict[str, Any]:
        """Return what was decided for a phase, and on what grounds."""
        d, active, lam = self.features.dimension, memory["active"], self.support_lam
        limits = detection_limits(fit.sigma, active, regularization=lam, unit=target_range(self.base(), known))
        return {
            "active": list(range(d)) if memory["label"] == ESTIMATION else list(active),
            "estimate": (np.ones(d) if fit.episodes == 0 else fit.estimate).tolist(),
            "threshold": float(limits.max()),
            "norm_bound": float(learner.norm_bound),
            "level": float(learner.delta),
            "regularization": lam,
            **fit.excitation(known.horizon),
        }

    def oracle(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that knows the support of theta*."""
        return self.base(features=self.features.restrict(np.flatnonzero(as_floats("theta", theta)).tolist()))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return small instances on a problem, for the contract checks."""
        plain = cls(features=_example_features(mdp), norm_bound=5.0)
        return [plain, dataclasses.replace(plain, initial_episodes=9, growth=1.5, regularization=0.5)]


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(LinearSelector):
    """Adapt to the norm of theta*.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLinNorm(features=orl.FeatureMap(problem.phi), norm_bound=100.0)
    >>> result = orl.run(agent, problem, episodes=100)
    >>> bounds = result.phases["norm_bound"].to_pylist()

    Parameters
    ----------
    features, norm_bound, delta, radius, weights, replan, regularization, scale
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound`` is b_1, and
        ``regularization`` is by default "scaled", or 1 with the paper's radius.
    rewards, kernel
        Of the base algorithm too. With one kernel per step the bound is for the largest of their norms.
    initial_episodes : int
        k_1.
    growth : float
        g: how much longer an epoch is than the one before; the paper doubles.

    Notes
    -----
    Facts of a phase, decided before it begins: ``norm_bound``, b_i; ``estimate``, theta; ``regularization``, lambda
    and that of the noise event; ``level``, the delta of the phase; ``contradicted``, whether the rows leave no kernel
    within the bound, so that the one that was given is played; ``excitation``, lambda_min(Sigma)/(kH), ``weakest`` and
    ``seen`` as for ARLLinDim.
    """

    initial_episodes: int = 16
    finds_norm = True

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: epoch 1, the bound that was given."""
        return {**super().start(known), "epoch": 1, "norm_bound": float(self.norm_bound)}

    def fields(self, known: Known) -> dict[str, Any]:
        """Return what the memory holds."""
        more = {"epoch": (1, MOST_ROWS), "norm_bound": (SMALLEST, (1.0 + _ROUNDING) * self.norm_bound)}
        return {**super().fields(known), **more}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Take the largest norm that is still possible as the bound, and play an epoch with it."""
        epoch, least, rows = memory["epoch"], memory["least"], memory["statistics"]
        learner, contradicted = refine(lambda_grid(self.base(), least), known, rows, memory["norm_bound"], least)
        memory["norm_bound"] = learner.norm_bound
        fit = Regression.on(rows, learner.lam)
        facts = {
            "norm_bound": memory["norm_bound"],
            "estimate": fit.estimate.tolist(),
            "regularization": [learner.lam, learner.lam if learner.event is None else learner.event[0]],
            "level": float(learner.delta),
            "contradicted": contradicted,
            **fit.excitation(known.horizon),
        }
        episodes = _whole(_grown(self.initial_episodes, self.growth, epoch - 1))
        return Phase(learner, learner.go_on(known, rows), episodes=episodes, epoch=epoch, label="epoch", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take over the rows."""
        memory["statistics"] = cast(UCRLVTRLin, phase.learner).statistics(known, outcome.state)
        memory["epoch"] += 1

    def oracle(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that knows the norm of theta*."""
        return self.base(norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return small instances on a problem, for the contract checks."""
        return [cls(features=_example_features(mdp), norm_bound=5.0, initial_episodes=4)]


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLin(ARLLinDim):
    """Adapt to the number of non-zero coordinates of theta* and to its norm.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLin(features=orl.FeatureMap(problem.phi), norm_bound=100.0)
    >>> result = orl.run(agent, problem, episodes=100)
    >>> active, bound = result.phases["active"][-1], result.phases["norm_bound"][-1]

    Parameters are those of :class:`~occamrl.selectors.arl_lin.ARLLinDim`; ``norm_bound`` may be far too large, and
    ``regularization`` is "scaled" by default (1 with the paper's radius). The lambda of the support rule is 1.

    Notes
    -----
    Facts of a phase beside those of ARLLinDim: ``carried_bound``, the bound that does not look at the active
    coordinates; ``contradicted``, whether the rows leave no kernel within it, so that the one that was given is taken.
    """

    finds_norm = True

    @property
    def support_lam(self) -> float:
        """The lambda of the regression that the support is chosen from: one that does not depend on b."""
        return 1.0

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {**super().start(known), "norm_bound": float(self.norm_bound), "contradicted": False}

    def fields(self, known: Known) -> dict[str, Any]:
        """Return what the memory holds."""
        more = {"norm_bound": (SMALLEST, (1.0 + _ROUNDING) * self.norm_bound), "contradicted": {False, True}}
        return {**super().fields(known), **more}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Refine the norm bound on all coordinates, then go on as ARL-LIN(dim)."""
        learner, memory["contradicted"] = self._refined(known, memory, None)
        memory["norm_bound"] = learner.norm_bound
        return super().next_phase(known, memory)

    def _refined(self, known: Known, memory: dict[str, Any], active: tuple[int, ...] | None) -> Refinement:
        """Return the learner with the smallest norm bound that the rows prove for some coordinates, or for all."""
        least, rows = memory["least"], memory["statistics"]
        learners = lambda_grid(super().learner(known, memory, active), least)
        return refine(learners, known, rows if active is None else rows.restrict(active), memory["norm_bound"], least)

    def learner(self, known: Known, memory: dict[str, Any], active: tuple[int, ...] | None = None) -> UCRLVTRLin:
        """Return the learner that plans with the active coordinates, or with every one, and the smaller of the bounds.

        Rows that contradict the active coordinates say that these are wrong: the bound that ignores them stands.
        """
        learner, contradicted = self._refined(known, memory, active)
        return dataclasses.replace(learner, norm_bound=memory["norm_bound"]) if contradicted else learner

    def facts(self, known: Known, memory: dict[str, Any], learner: UCRLVTRLin, fit: Regression) -> dict[str, Any]:
        """Return what was decided for a phase; beside its own norm bound, the one that does not look at D."""
        more = {"carried_bound": memory["norm_bound"], "contradicted": memory["contradicted"]}
        return {**super().facts(known, memory, learner, fit), **more}

    def oracle(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that knows the support and the norm of theta*."""
        return dataclasses.replace(super().oracle(theta), norm_bound=float(np.linalg.norm(theta)))


class Regression(NamedTuple):
    """A full regression read from pooled statistics, for each of T steps (T = 1: one kernel for all)."""

    sigma: Floats  # [T, d, d] lambda I + sum x x^T
    xy: Floats  # [T, d]
    theta: Floats  # [T, d] the ridge estimate
    episodes: int

    @classmethod
    def on(cls, statistics: LinearStatistics, regularization: float) -> Regression:
        """Return the ridge regression on all rows of the statistics (M8)."""
        xy = statistics.xy.reshape(statistics.steps, -1)
        d = xy.shape[1]
        sigma = statistics.gram.reshape(-1, d, d) + regularization * np.eye(d)
        theta = np.asarray(np.linalg.solve(sigma, xy[:, :, np.newaxis])[:, :, 0], dtype=np.float64)
        return cls(sigma, xy, theta, statistics.episodes)

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


def union_level(delta: float, d: int, m: int) -> float:
    """Return the level of a set of m coordinates that the data chose (M17): delta / ((d + 1) C(d, m)), half if m = d.

    The sets that hold a given coordinate have levels of at most delta in all; the module's text has the proof.
    """
    return max(SMALLEST_LEVEL, math.exp(math.log(delta) - log_price(d, m)))


def target_range(learner: UCRLVTRLin, known: Known) -> float:
    """Return the range U of a regression target: 1 with range weights (M23)."""
    if learner.weights == "range":
        return 1.0
    return float(learner.steps_with_rows(known) + (learner.radius == "ayoub"))  # which cuts values at H


def smallest_norm(features: FeatureMap) -> float:
    """Return the smallest ||theta|| with which the probabilities of every (s, a) sum to one: no theta* is smaller.

    Zero, which bounds nothing, where no theta does that: coordinates of which every kernel needs others beside them.
    """
    sums = features.sums
    theta = np.linalg.lstsq(sums, np.ones(len(sums)), rcond=None)[0]
    return float(np.linalg.norm(theta)) if np.allclose(sums @ theta, 1.0, rtol=0.0, atol=_ROUNDING) else 0.0


def lambda_grid(learner: UCRLVTRLin, least: float) -> list[UCRLVTRLin]:
    """Return learners whose noise events hold all at once: one per lambda of the grid, or one alone if it is fixed."""
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
    """Return the best learner of a lambda grid, with the smallest norm bound that the rows allow; ``bound`` is valid.

    A negative beta leaves no theta within the bound, and a bound under ``least`` no kernel: either the features or the
    bound that was given are wrong, or this is the run in delta^-1 in which an event failed. Nothing can be refined
    then. The learner has the bound that was given, and its own event alone, with which beta is never negative.

    With one kernel per step the bound is for all of them: the largest that any step allows.
    """
    every = [_Spectrum.of(each) for each in statistics.by_step()]
    # The last step gives no rows without rewards on transitions, and no plan looks at its parameter: no norm to bound.
    steps = every[: max(1, learners[0].steps_with_rows(known))]
    lams = np.array([learner.lam for learner in learners])
    contradicted = False
    for _ in range(_MOST_ROUNDS):
        smallest = [_squared_radii(learners, known, rows, bound).min(axis=1) for rows in steps]
        contradicted = any(bool((each < 0.0).any()) for each in smallest) or bound < (1.0 - _ROUNDING) * least
        if contradicted:
            bound = float(learners[0].norm_bound)
            break
        smaller = max(
            min(rows.largest_norm(lam, beta) for lam, beta in zip(lams, each, strict=True))
            for rows, each in zip(steps, smallest, strict=True)
        )
        if smaller > (1.0 - _WORTHWHILE) * bound:
            break
        bound = smaller
    volume = np.zeros((lams.size, lams.size))
    other = lams[:, np.newaxis] != lams if contradicted else lams[:, np.newaxis] > lams
    for rows in steps:
        radii = _squared_radii(learners, known, rows, bound, playing=True)
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


class _Spectrum(NamedTuple):
    """Rows of one step along the axes of sum x x^T, which are those of Sigma for any lambda."""

    eigenvalues: Floats  # [d] increasing
    xy: Floats  # [d] along the axes
    episodes: int

    @classmethod
    def of(cls, statistics: LinearStatistics) -> _Spectrum:
        eigenvalues, axes = np.linalg.eigh(statistics.gram.reshape(statistics.xy.size, -1))
        return cls(np.maximum(eigenvalues, 0.0), axes.T @ statistics.xy, statistics.episodes)

    def center(self, lam: float) -> Floats:
        """Return the ridge estimate along the axes."""
        return self.xy / (self.eigenvalues + lam)

    def logdet(self, lam: float) -> float:
        """Return logdet(Sigma / lambda)."""
        return float(np.log1p(self.eigenvalues / lam).sum())

    def largest_norm(self, lam: float, beta: float) -> float:
        """Return the largest norm in the ellipsoid with this lambda and beta (M19)."""
        center = self.center(lam)
        return float(np.linalg.norm(center + farthest_step(self.eigenvalues + lam, center, beta)))


def _squared_radii(
    learners: Sequence[UCRLVTRLin], known: Known, rows: _Spectrum, bound: float, *, playing: bool = False
) -> Floats:
    """Return beta of the ellipsoid of each lambda (rows) by the noise event of each lambda' (columns).

    ``playing``: as a learner computes it that factorises Sigma for one lambda only.
    """
    first = learners[0]
    unit = target_range(first, known)
    if len(learners) == 1 or first.radius != "sharp":  # a learner's own event alone
        radii = np.full((len(learners), len(learners)), np.inf)
        for i, each in enumerate(learners):
            size = (known.horizon, 0, rows.episodes, rows.xy.size)  # the first step has the widest ellipsoid
            rest = (rows.logdet(each.lam), each.level(known), each.lam, float(bound), float(each.paper_constant))
            width = ellipsoid_width(ELLIPSOIDS[each.radius], each.weights == "range", unit, *size, *rest)
            radii[i, i] = float(width) ** 2
        return radii
    lams = np.array([each.lam for each in learners])
    centers = np.stack([rows.center(float(lam)) for lam in lams])
    noise = np.array([rows.logdet(each.lam) + 2.0 * math.log(1.0 / each.level(known)) for each in learners])
    # L'(theta') - L(theta) = (lambda' - lambda) <theta, theta'>: both are quadratic forms of xy on the same axes
    products = np.sum(centers**2, axis=1)[:, np.newaxis] if playing else centers @ centers.T
    losses = (lams - lams[:, np.newaxis]) * products
    return np.asarray(losses + 0.25 * unit**2 * noise + (lams * bound**2)[:, np.newaxis])


def _grown(first: float, growth: float, epoch: int) -> float:
    """Return first * growth^epoch, or a number of episodes that no run reaches."""
    return first * growth**epoch if epoch * math.log(growth) < math.log(_LONGEST) else _LONGEST * max(1.0, first)


def _whole(episodes: float) -> int:
    """Return a number of episodes rounded up, errors of rounding aside."""
    return math.ceil(round(episodes, 6))


def _example_features(mdp: Any) -> FeatureMap:
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

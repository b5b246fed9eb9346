"""What the selectors for linear kernels share: the base learner's parameters, and pooled statistics read as arrays."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl.confidence.radii import ELLIPSOIDS, ellipsoid_width
from occamrl.contracts import Floats, Known
from occamrl.errors import ParameterError
from occamrl.families.features import FeatureMap
from occamrl.families.simulators import pair_of_outcome
from occamrl.learners.rewards import Rewards, seen_by
from occamrl.learners.ucrl_vtr_lin import SMALLEST_LEVEL, LinearStatistics, UCRLVTRLin

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

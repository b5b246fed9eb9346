r"""Unknown rewards: estimated beside the kernel, with a confidence term of their own, added to the optimistic plan.

A learner has ``rewards="known"``, ``rewards=RewardsPerPair()`` or ``rewards=RewardsLinear(features=..., ...)``. With
an estimate the plan takes, for the unknown mean r(s, a),

.. math:: \tilde r(s,a) = \min\{1,\; \hat r(s,a) + \text{width}(s,a)\} \ge r(s,a),

and the regression of the kernel keeps the targets V_{h+1} alone: a reward never joins them, whatever it depends on, so
values and targets stay in [0, H - h + 1] and [0, H - h]. Of the level delta of the learner the share ``share`` goes to
the rewards and the rest to the kernel.

What is computed is in :mod:`occamrl.learners.reward_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Known
from occamrl.errors import ParameterError, ShapeError, require_choice, require_number
from occamrl.learners.reward_rows import (
    BERNSTEIN,
    HOEFFDING,
    LINEAR,
    EstimatedRewards,
    KnownRewards,
    NothingHeard,
    RewardRows,
)

_LARGEST_FEATURE = 1e50  # its square times that of a norm bound is a number
_LEAST_LEVEL = 1e-300  # delta enters by its logarithm
BOUNDS = {"hoeffding": HOEFFDING, "bernstein": BERNSTEIN}


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsPerPair:
    """Estimate the mean reward of every (s, a) by itself.

    Parameters
    ----------
    bound : "bernstein" | "hoeffding"
        The width of the estimate; see :mod:`occamrl.confidence.radii`. Bernstein is the smaller of both, each at half
        of the level: its part for rewards that do not vary falls like log(n)/n.
    share : float
        The part of delta that pays for the rewards, divided evenly among the (s, a).
    per_step : bool
        Estimate r_h(s, a) for every step. Needed where the reward depends on the next state and the kernel on the step.
    scale : float
        Multiplies the width. Below 1 the guarantee is lost.
    """

    bound: str = "bernstein"
    share: float = 0.5
    per_step: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_choice("bound", self.bound, BOUNDS)
        _require_common(self)

    def model(self, known: Known, delta: float, growth: float) -> EstimatedRewards:
        """Return the constants of the compiled functions, for a learner at level ``delta``."""
        pairs = known.states * known.actions
        level = self.share * delta / (pairs * _copies(self, known))
        return _estimated(self, known, BOUNDS[self.bound], np.zeros((pairs, 1)), level, growth, 1.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsLinear:
    """Estimate rewards that are linear in given features, r(s, a) = <psi(s, a), omega>, by ridge regression.

    Parameters
    ----------
    features : array [S, A, p]
        psi.
    norm_bound : float
        A bound on ||omega||.
    regularization : float
        lambda of the ridge regression.
    share, per_step, scale
        As in :class:`RewardsPerPair`; ``scale`` multiplies sqrt(beta) of the sharp ellipsoid (M11).
    """

    features: ArrayLike
    norm_bound: float
    regularization: float = 1.0
    share: float = 0.5
    per_step: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        psi = np.array(self.features, dtype=np.float64)
        if psi.ndim != 3 or psi.size == 0:
            raise ShapeError("features", got=psi.shape, expected="[S, A, p]")
        bad = ~(np.abs(psi) <= _LARGEST_FEATURE)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ParameterError(
                "features", index=at, got=psi[at], expected=f"a number of at most {_LARGEST_FEATURE:g}"
            )
        psi.flags.writeable = False
        object.__setattr__(self, "features", psi)
        require_number("norm_bound", self.norm_bound, 1e-100, 1e100)
        require_number("regularization", self.regularization, 1e-100, 1e100)
        _require_common(self)

    def model(self, known: Known, delta: float, growth: float) -> EstimatedRewards:
        """Return the constants of the compiled functions, for a learner at level ``delta``."""
        psi = np.asarray(self.features)
        if psi.shape[:2] != (known.states, known.actions):
            raise ShapeError("features", got=psi.shape, expected=f"[S, A, p] with S={known.states}, A={known.actions}")
        level = self.share * delta / _copies(self, known)
        flat = np.ascontiguousarray(psi.reshape(known.states * known.actions, -1)).copy()
        return _estimated(self, known, LINEAR, flat, level, growth, self.regularization, self.norm_bound)


Rewards = str | RewardsPerPair | RewardsLinear  # the string is "known"


def require_rewards(rewards: object) -> None:
    """Refuse what is no way to know rewards."""
    if not isinstance(rewards, (RewardsPerPair, RewardsLinear)):
        require_choice("rewards", rewards, ("known",))


def kernel_share(rewards: Rewards) -> float:
    """Return the part of delta that pays for the kernel: all of it when the rewards are known."""
    return 1.0 if isinstance(rewards, str) else 1.0 - rewards.share


def seen_by(rewards: Rewards, known: Known) -> Known:
    """Return what a learner looks at: a problem without rewards where it estimates them."""
    if not isinstance(rewards, str):
        return known.without_rewards
    if not known.rewards_known:
        raise ParameterError("rewards", got='"known"', expected="an estimate: this problem does not tell its rewards")
    return known


def rewards_model(rewards: Rewards, known: Known, delta: float, replan: float) -> KnownRewards | EstimatedRewards:
    """Return the rewards as the compiled functions read them; ``delta`` is the level of the whole learner."""
    if isinstance(rewards, str):
        return KnownRewards(known.base_reward.flatten())
    return rewards.model(known, delta, 1.0 + replan)


def rewards_state(rewards: Rewards, known: Known) -> NothingHeard | RewardRows:
    """Return what is kept of rewards, before any."""
    if isinstance(rewards, str):
        return NothingHeard()
    shape = (_copies(rewards, known), known.states * known.actions)
    return RewardRows(
        visits=np.zeros(shape, dtype=np.int64),
        total=np.zeros(shape),
        squares=np.zeros(shape),
        at_plan=np.zeros(shape, dtype=np.int64),
        due=np.zeros(1, dtype=np.int64),
    )


def copy_rewards(source: RewardRows, into: RewardRows) -> None:
    """Go on from rewards that were heard elsewhere."""
    if source.visits.shape != into.visits.shape:
        raise ShapeError("statistics", got=f"rewards {source.visits.shape}", expected=into.visits.shape)
    for name in ("visits", "total", "squares"):
        getattr(into, name)[:] = getattr(source, name)


def _copies(rewards: RewardsPerPair | RewardsLinear, known: Known) -> int:
    return known.horizon if rewards.per_step else 1


def _require_common(rewards: Any) -> None:
    if not (isinstance(rewards.share, float) and 0.0 < rewards.share < 1.0):
        raise ParameterError("share", got=repr(rewards.share), expected="a number in (0, 1)")
    require_number("scale", rewards.scale, 0.0, 1e100)
    if not isinstance(rewards.per_step, bool):
        raise ParameterError("per_step", got=repr(rewards.per_step), expected="True or False")


def _estimated(
    rewards: RewardsPerPair | RewardsLinear,
    known: Known,
    kind: int,
    features: Floats,
    level: float,
    growth: float,
    regularization: float,
    norm_bound: float,
) -> EstimatedRewards:
    p = features.shape[1]
    return EstimatedRewards(
        kind=kind,
        features=features,
        delta=max(_LEAST_LEVEL, level),
        scale=float(rewards.scale),
        regularization=float(regularization),
        norm_bound=float(norm_bound),
        growth=growth,
        reward=np.zeros((_copies(rewards, known), features.shape[0])),
        sigma=np.zeros((p, p)),
        factor=np.zeros((p, p)),
        work=np.zeros(p * p),
        xy=np.zeros(p),
        theta=np.zeros(p),
    )

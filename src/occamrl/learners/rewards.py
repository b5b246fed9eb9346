r"""Unknown rewards: estimated beside the kernel, with a confidence term of their own, added to the optimistic plan.

A learner has ``rewards="known"``, ``rewards=RewardsPerPair()`` or ``rewards=RewardsLinear(features=..., ...)``. With
an estimate the plan takes, for the unknown mean r(s, a),

.. math:: \tilde r(s,a) = \min\{1,\; \hat r(s,a) + \text{width}(s,a)\} \ge r(s,a),

and the regression of the kernel keeps the targets V_{h+1} alone: a reward never joins them, whatever it depends on, so
values and targets stay in [0, H - h + 1] and [0, H - h]. Of the level delta of the learner the share ``share`` goes to
the rewards and the rest to the kernel.

What is computed is in :mod:`occamrl.learners.rewards`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from occamrl._core.compile import hot, implements
from occamrl._core.regression import add_row, dot, invert_factor, solve, squared_norm
from occamrl.errors import InvalidInput, ParameterError, ShapeError, UnknownName, require_choice, require_number
from occamrl.learners.radii import SHARP, bernstein_width, ellipsoid_width, hoeffding_width
from occamrl.protocols import Floats, Ints, Known

# ----------------------------------------------------------------------------------------------------
# Rewards in arrays: what is kept of those heard, and the largest ones that they allow.
#
# Known rewards and estimated ones are two types of NamedTuple with the same functions; which of them a learner has is
# decided when it is compiled, so that known rewards cost nothing. Estimates per (s, a) and estimates on features keep the
# same of the data: per (s, a) the number of rewards, their sum and the sum of their squares. The regression on features
# is put together from these when a plan is due, so that no rounding travels from one plan to the next.


HOEFFDING, BERNSTEIN, LINEAR = range(3)
_LOST = 2.0**-40  # of the largest diagonal entry: four thousand times what a sum next to it is rounded by
_CARE = 1.0 + 2.0**-8  # more than that rounding then does to a norm


class KnownRewards(NamedTuple):
    """Rewards that need no estimate."""

    reward: Floats  # [S*A]


class NothingHeard(NamedTuple):
    """What is kept of rewards that are known."""


class EstimatedRewards(NamedTuple):
    """How rewards are estimated; ``reward`` and what follows it are filled at every plan."""

    kind: int
    features: Floats  # [S*A, p] psi; p = 1 and not read for estimates per pair
    delta: float  # of one pair, or of one regression
    scale: float
    regularization: float
    norm_bound: float
    growth: float  # a plan is due when the number of rewards of a pair, plus one, has grown by this factor
    reward: Floats  # [R, S*A] the optimistic rewards
    sigma: Floats  # [p, p]
    factor: Floats  # [p, p]
    work: Floats  # [p*p]
    xy: Floats  # [p]
    theta: Floats  # [p]


class RewardRows(NamedTuple):
    """The rewards heard so far, by (s, a); R = 1, or H where every step has rewards of its own."""

    visits: Ints  # [R, S*A]
    total: Floats  # [R, S*A]
    squares: Floats  # [R, S*A]
    at_plan: Ints  # [R, S*A] visits when the plan in play was made
    due: Ints  # [1] whether some pair has many more


# What a learner's compiled functions call; the type of the first argument decides at compile time


def hear_reward(rewards: Any, rows: Any, h: int, sa: int, reward: float) -> None:
    """Take note of a reward of (s, a) at step ``h``."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def in_target(rewards: Any, bonus: float) -> float:
    """Return the part of a reward that joins the target of its row (M20)."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def reward_of(rewards: Any, h: int, sa: int) -> float:
    """Return the reward that the plan counts on, at step ``h``."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def rewards_due(rewards: Any, rows: Any) -> bool:
    """Say whether the estimates have changed enough for a new plan."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def imagine(rewards: Any, rows: Any) -> None:
    """Compute the optimistic rewards from what was heard, for the plan that is being made."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


@implements(hear_reward, KnownRewards)
def hear_known(rewards: KnownRewards, rows: NothingHeard, h: int, sa: int, reward: float) -> None:
    """``hear_reward`` of known rewards."""


@implements(in_target, KnownRewards)
def in_target_known(rewards: KnownRewards, bonus: float) -> float:
    """``in_target`` of known rewards: what depends on the outcome."""
    return bonus


@implements(reward_of, KnownRewards)
def reward_known(rewards: KnownRewards, h: int, sa: int) -> float:
    """``reward_of`` known rewards."""
    return float(rewards.reward[sa])


@implements(rewards_due, KnownRewards)
def never_due(rewards: KnownRewards, rows: NothingHeard) -> bool:
    """``rewards_due`` of known rewards."""
    return False


@implements(imagine, KnownRewards)
def imagine_nothing(rewards: KnownRewards, rows: NothingHeard) -> None:
    """``imagine`` known rewards: they are there."""


@implements(hear_reward, EstimatedRewards)
def hear_estimated(rewards: EstimatedRewards, rows: RewardRows, h: int, sa: int, reward: float) -> None:
    """``hear_reward`` of rewards to be estimated."""
    t = h % rows.visits.shape[0]
    rows.visits[t, sa] += 1
    rows.total[t, sa] += reward
    rows.squares[t, sa] += reward * reward
    if rows.visits[t, sa] + 1 >= rewards.growth * (rows.at_plan[t, sa] + 1):
        rows.due[0] = 1


@implements(in_target, EstimatedRewards)
def in_target_estimated(rewards: EstimatedRewards, bonus: float) -> float:
    """``in_target`` of rewards to be estimated: nothing."""
    return 0.0


@implements(reward_of, EstimatedRewards)
def reward_estimated(rewards: EstimatedRewards, h: int, sa: int) -> float:
    """``reward_of`` rewards to be estimated: what was imagined."""
    return float(rewards.reward[h % rewards.reward.shape[0], sa])


@implements(rewards_due, EstimatedRewards)
def due_by_visits(rewards: EstimatedRewards, rows: RewardRows) -> bool:
    """``rewards_due`` of rewards to be estimated."""
    return bool(rows.due[0] == 1)


@implements(imagine, EstimatedRewards)
def imagine_estimated(rewards: EstimatedRewards, rows: RewardRows) -> None:
    """``imagine`` the largest rewards that the data allow."""
    for t in range(rows.visits.shape[0]):
        if rewards.kind == LINEAR:
            imagine_linear(rewards, rows, t)
        else:
            imagine_pairs(rewards, rows, t)
        for sa in range(rows.visits.shape[1]):
            rows.at_plan[t, sa] = rows.visits[t, sa]
    rows.due[0] = 0


@hot
def imagine_pairs(rewards: EstimatedRewards, rows: RewardRows, t: int) -> None:
    """Write mean + width of every (s, a), at most 1; 1/2 +- 1/2 before the first reward."""
    level = math.log(1.0 / rewards.delta)
    for sa in range(rows.visits.shape[1]):
        n = rows.visits[t, sa]
        mean, width = 0.5, 0.5
        if n > 0:
            mean = rows.total[t, sa] / n
            if rewards.kind == HOEFFDING:
                width = hoeffding_width(n, level)
            else:
                variance = max(0.0, rows.squares[t, sa] - n * mean * mean) / max(1, n - 1)
                half = level + math.log(2.0)
                width = min(hoeffding_width(n, half), bernstein_width(n, variance, half))
        rewards.reward[t, sa] = min(1.0, mean + rewards.scale * width)


@hot
def imagine_linear(rewards: EstimatedRewards, rows: RewardRows, t: int) -> None:
    """Write <psi, omega> + sqrt(beta) ||psi|| of every (s, a), cut to [0, 1] (M8, M11 for targets of range 1).

    Beside features of very different sizes lambda would be lost to rounding, and with it what is not known of their
    difference. Then it is raised to what numbers can hold: by any amount, chosen after the data, since the noise event
    bounds L(omega*) by min { L(omega) + lambda ||omega||^2 }, which only grows, and the amount times b^2 joins beta.
    """
    psi, sigma, xy = rewards.features, rewards.sigma, rewards.xy
    p = psi.shape[1]
    for i in range(p):
        xy[i] = 0.0
        for j in range(p):
            sigma[i, j] = rewards.regularization if i == j else 0.0
    for sa in range(psi.shape[0]):
        if rows.visits[t, sa] > 0:
            add_row(sigma, rows.visits[t, sa], psi[sa])
            for j in range(p):
                xy[j] += rows.total[t, sa] * psi[sa, j]
    lost = 0.0
    for i in range(p):
        lost = max(lost, p * _LOST * sigma[i, i] - rewards.regularization)
    for i in range(p):
        sigma[i, i] += lost
    work = rewards.work
    logdet = invert_factor(sigma, rewards.factor, work.reshape((p, p))) - p * math.log(rewards.regularization)
    solve(rewards.factor, xy, rewards.theta, work)
    held = rewards.regularization + lost
    width = rewards.scale * ellipsoid_width(
        SHARP, True, 1.0, 1, 0, 0, p, logdet, rewards.delta, held, rewards.norm_bound, 1.0
    )
    width = width * _CARE if lost > 0.0 else width
    for sa in range(psi.shape[0]):
        mean = dot(psi[sa], rewards.theta, p)
        bound = mean + width * math.sqrt(squared_norm(rewards.factor, psi[sa], work))
        rewards.reward[t, sa] = min(1.0, max(0.0, bound))


# ----------------------------------------------------------------------------------------------------
# Unknown rewards: estimated beside the kernel, with a confidence term of their own, added to the optimistic plan.


_LARGEST_FEATURE = 1e50  # its square times that of a norm bound is a number
_LEAST_LEVEL = 1e-300  # delta enters by its logarithm
BOUNDS = {"hoeffding": HOEFFDING, "bernstein": BERNSTEIN}


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsPerPair:
    """Estimate the mean reward of every (s, a) by itself.

    Parameters
    ----------
    bound : "bernstein" | "hoeffding"
        The width of the estimate; see :mod:`occamrl.learners.radii`. Bernstein is the smaller of both, each at half
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


# ----------------------------------------------------------------------------------------------------
# Ways to know rewards as words and tables of a TOML file.
#
# ======================================  ================================================================================
# ``rewards =``                           means
# ======================================  ================================================================================
# ``"known"``                             they are
# ``{ per_pair = "bernstein" }``          :class:`RewardsPerPair` with this bound, or ``"hoeffding"``
# ``{ linear = psi, norm_bound = 1.0 }``  :class:`RewardsLinear`; psi is an array [S, A, p] of nested lists or, where
#                                         files can be named, the name of one
# ======================================  ================================================================================
#
# Beside ``per_pair`` or ``linear`` the other parameters of the class can be given: ``share``, ``per_step``, ``scale``,
# ``regularization``.


_KINDS: dict[str, tuple[type[Any], str]] = {
    "per_pair": (RewardsPerPair, "bound"),
    "linear": (RewardsLinear, "features"),
}


def rewards_of(value: Any, field: str = "rewards", read: Callable[[str, str], Floats] | None = None) -> Rewards:
    """Return what a word or a table stands for; errors name ``field`` and the key below it.

    ``read(file, field)`` returns the array of a file, where files can be named.
    """
    if not isinstance(value, dict):
        try:
            require_rewards(value)
        except UnknownName as error:
            expected = '"known", { per_pair = "bernstein" } or { linear = psi, norm_bound = b }'
            raise ParameterError(field, got=error.got, expected=expected) from error
        made: Rewards = value
        return made
    chosen = [kind for kind in _KINDS if kind in value]
    if len(chosen) != 1:
        known = {*_KINDS, *(name for kind in _KINDS for name in _parameters(kind))}
        for key in value:
            if key not in known:
                raise UnknownName(f"{field}.{key}", got=key, known=_KINDS)
        raise ParameterError(field, got=repr(value)[:80], expected="one of the keys " + " and ".join(_KINDS))
    kind, main = _KINDS[chosen[0]]
    rest = {key: part for key, part in value.items() if key != chosen[0]}
    for key in rest:
        if key not in _parameters(chosen[0]):
            raise UnknownName(f"{field}.{key}", got=key, known=[chosen[0], *_parameters(chosen[0])])
    first = value[chosen[0]]
    if chosen[0] == "linear":
        first = _features(first, f"{field}.linear", read)
    try:
        return kind(**{main: first}, **rest)  # type: ignore[no-any-return]  # of the two classes above
    except InvalidInput as error:
        name = chosen[0] if error.field == main else error.field
        raise ParameterError(f"{field}.{name}", index=error.index, got=error.got, expected=error.expected) from error
    except TypeError as error:
        raise ParameterError(f"{field}.norm_bound", got="nothing", expected="a bound on the norm of omega") from error


def _parameters(kind: str) -> list[str]:
    """Return the parameters of a class that have their own name in a table."""
    cls, main = _KINDS[kind]
    return [each.name for each in dataclasses.fields(cls) if each.name != main]


def _features(value: Any, field: str, read: Callable[[str, str], Floats] | None) -> Floats:
    if isinstance(value, str):
        if read is None:
            raise ParameterError(field, got=repr(value), expected="an array [S, A, p] of nested lists")
        return read(value, field)
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(field, got=repr(value)[:60], expected="an array [S, A, p] of nested lists") from None

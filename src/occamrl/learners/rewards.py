r"""Unknown rewards: estimated beside the kernel, with a confidence term of their own, added to the optimistic plan.

A learner has ``rewards="known"``, ``rewards=RewardsPerPair()`` or ``rewards=RewardsLinear(features=..., ...)``. With
an estimate the plan takes, for the unknown mean r(s, a),

.. math:: \tilde r(s,a) = \min\{1,\; \hat r(s,a) + \text{width}(s,a)\} \ge r(s,a),

and the regression of the kernel keeps the targets V_{h+1} alone: a reward never joins them, whatever it depends on, so
values and targets stay in [0, H - h + 1] and [0, H - h]. Of the level delta of the learner the share ``share`` goes to
the rewards and the rest to the kernel.

Both kinds of estimate keep the same of the data, the fields HEARD... of :mod:`occamrl._core.rows`: per (s, a) the
number of rewards, their sum and the sum of their squares. The regression on features is put together from these when a
plan is due, so that no rounding travels from one plan to the next.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from occamrl._core.arena import field, fmat, fvec, imat, ivec, part, square
from occamrl._core.compile import hot, implements
from occamrl._core.loop import Path
from occamrl._core.regression import CARE, add_row, dot, refactor, squared_norm
from occamrl._core.rows import (
    COUNTERS,
    HEARD,
    HEARD_AT_PLAN,
    HEARD_SQUARES,
    HEARD_TOTAL,
    MOST_ROWS,
    PSI,
    REWARD,
    REWARD_WORK,
    REWARDS_DUE,
)
from occamrl.errors import (
    InvalidInput,
    ParameterError,
    ShapeError,
    UnknownName,
    as_floats,
    require_choice,
    require_kind,
    require_number,
)
from occamrl.learners.radii import SHARP, bernstein_width, ellipsoid_width, hoeffding_width
from occamrl.protocols import Field, Floats, Ints, Known

HOEFFDING, BERNSTEIN, LINEAR = range(3)
BOUNDS = {"hoeffding": HOEFFDING, "bernstein": BERNSTEIN}
_LARGEST_FEATURE = 1e50  # its square times that of a norm bound is a number
_LEAST_LEVEL = 1e-300  # delta enters by its logarithm


# Compiled -------------------------------------------------------------------------------------------------------------


class KnownRewards(NamedTuple):
    """Rewards are known: the model's field REWARD has them."""


class RewardModel(NamedTuple):
    """How rewards are estimated, at every plan, into the model's field REWARD; one type for all kinds of estimates."""

    kind: int
    delta: float  # of one pair, or of one regression
    scale: float
    regularization: float
    norm_bound: float


def observe_rewards(rewards: Any, state: Any, path: Path, steps: int, actions: int, growth: float) -> None:
    """Count the rewards of an episode; a plan is due when those of a pair, plus one, have grown by ``growth``."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def optimistic_rewards(rewards: Any, model: Any, state: Any) -> None:
    """Write the largest rewards that the data allow into the model, for the plan that is being made."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


@implements(observe_rewards, KnownRewards)
def observe_nothing(rewards: KnownRewards, state: Any, path: Path, steps: int, actions: int, growth: float) -> None:
    """``observe_rewards`` where there is nothing to learn."""


@implements(optimistic_rewards, KnownRewards)
def keep_rewards(rewards: KnownRewards, model: Any, state: Any) -> None:
    """``optimistic_rewards`` where they are known."""


@implements(observe_rewards, RewardModel, inline=False)
def count_rewards(rewards: RewardModel, state: Any, path: Path, steps: int, actions: int, growth: float) -> None:
    """``observe_rewards`` of an estimate."""
    heard, before = imat(state, HEARD), imat(state, HEARD_AT_PLAN)
    total, squares = fmat(state, HEARD_TOTAL), fmat(state, HEARD_SQUARES)
    for h in range(steps):
        t, sa, reward = h % heard.shape[0], path.states[h] * actions + path.actions[h], path.reward[h]
        heard[t, sa] += 1
        total[t, sa] += reward
        squares[t, sa] += reward * reward
        if heard[t, sa] + 1 >= growth * (before[t, sa] + 1):
            ivec(state, COUNTERS)[REWARDS_DUE] = 1


@implements(optimistic_rewards, RewardModel, inline=False)
def estimate_rewards(rewards: RewardModel, model: Any, state: Any) -> None:
    """``optimistic_rewards`` of an estimate."""
    heard, before, reward = imat(state, HEARD), imat(state, HEARD_AT_PLAN), fmat(model, REWARD)
    total, squares = fmat(state, HEARD_TOTAL), fmat(state, HEARD_SQUARES)
    for t in range(heard.shape[0]):
        if rewards.kind == LINEAR:
            linear_rewards(rewards, fmat(model, PSI), heard[t], total[t], reward[t], fvec(model, REWARD_WORK))
        else:
            pair_rewards(rewards, heard[t], total[t], squares[t], reward[t])
        for sa in range(heard.shape[1]):
            before[t, sa] = heard[t, sa]
    ivec(state, COUNTERS)[REWARDS_DUE] = 0


@hot
def pair_rewards(rewards: RewardModel, heard: Ints, total: Floats, squares: Floats, out: Floats) -> None:
    """Write mean + width of every (s, a), at most 1; 1/2 +- 1/2 before the first reward."""
    level = math.log(1.0 / rewards.delta)
    for sa in range(heard.size):
        n = heard[sa]
        mean, width = 0.5, 0.5
        if n > 0:
            mean = total[sa] / n
            if rewards.kind == HOEFFDING:
                width = hoeffding_width(n, level)
            else:
                variance = max(0.0, squares[sa] - n * mean * mean) / max(1, n - 1)
                half = level + math.log(2.0)
                width = min(hoeffding_width(n, half), bernstein_width(n, variance, half))
        out[sa] = min(1.0, mean + rewards.scale * width)


@hot
def linear_rewards(rewards: RewardModel, psi: Floats, heard: Ints, total: Floats, out: Floats, work: Floats) -> None:
    """Write <psi, omega> + sqrt(beta) ||psi|| of every (s, a), cut to [0, 1] (M8, M11 for targets of range 1)."""
    p = psi.shape[1]
    sigma, factor = square(work, 0, p), square(work, p * p, p)
    xy, theta, rest = part(work, 2 * p * p, p), part(work, 2 * p * p + p, p), part(work, 2 * p * p + 2 * p, p * p)
    for i in range(p):
        xy[i] = 0.0
        for j in range(p):
            sigma[i, j] = rewards.regularization if i == j else 0.0
    for sa in range(psi.shape[0]):
        if heard[sa] > 0:
            add_row(sigma, heard[sa], psi[sa])
            for j in range(p):
                xy[j] += total[sa] * psi[sa, j]
    lam = rewards.regularization
    logdet, raised = refactor(sigma, xy, factor, theta, rest, lam, psi.shape[0])
    width = rewards.scale * ellipsoid_width(
        SHARP, True, 1.0, 1, 0, 0, p, logdet, rewards.delta, lam + raised, rewards.norm_bound, 1.0
    )
    width = width * CARE if raised > 0.0 else width
    for sa in range(psi.shape[0]):
        mean = dot(psi[sa], theta, p)
        bound = mean + width * math.sqrt(squared_norm(factor, psi[sa], rest))
        out[sa] = min(1.0, max(0.0, bound))


# Parameters -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Estimate:
    """What both estimates are told."""

    share: float = 0.5
    per_step: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.share, float) and 0.0 < self.share < 1.0):
            raise ParameterError("share", got=repr(self.share), expected="a number in (0, 1)")
        require_number("scale", self.scale, 0.0, 1e100)
        if not isinstance(self.per_step, bool):
            raise ParameterError("per_step", got=repr(self.per_step), expected="True or False")

    def tables(self, known: Known) -> int:
        """Return R, how many tables of rewards are estimated: one, or one per step."""
        return known.horizon if self.per_step else 1

    def level(self, known: Known, delta: float, parts: int) -> float:
        """Return the level of one of ``parts`` estimates of a table, for a learner at level ``delta``."""
        return max(_LEAST_LEVEL, self.share * delta / (parts * self.tables(known)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsPerPair(_Estimate):
    """Estimate the mean reward of every (s, a) by itself.

    >>> import occamrl as orl
    >>> rewards = orl.RewardsPerPair(bound="hoeffding")
    >>> agent = orl.UCRLVTRLin(features=orl.FeatureMap.tabular(states=3, actions=2), norm_bound=2.5, rewards=rewards)
    >>> result = orl.run(agent, orl.make_problem("river-swim", states=3), episodes=20)

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

    def __post_init__(self) -> None:
        require_choice("bound", self.bound, BOUNDS)
        super().__post_init__()

    def model(self, known: Known, delta: float) -> tuple[RewardModel, Floats]:
        """Return the constants of the compiled functions, for a learner at level ``delta``, and psi (not read)."""
        pairs = known.states * known.actions
        level = self.level(known, delta, pairs)
        return RewardModel(BOUNDS[self.bound], level, float(self.scale), 1.0, 1.0), np.zeros((pairs, 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsLinear(_Estimate):
    """Estimate rewards that are linear in given features, r(s, a) = <psi(s, a), omega>, by ridge regression.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> rewards = orl.RewardsLinear(features=np.eye(6).reshape(3, 2, 6), norm_bound=2.5)  # psi[s, a]
    >>> agent = orl.UCRLVTRLin(features=orl.FeatureMap.tabular(states=3, actions=2), norm_bound=2.5, rewards=rewards)
    >>> result = orl.run(agent, orl.make_problem("river-swim", states=3), episodes=20)

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

    def __post_init__(self) -> None:
        psi = as_floats("features", self.features, "an array [S, A, p], or nested lists")
        if psi.ndim != 3 or psi.size == 0:
            raise ShapeError("features", got=psi.shape, expected="[S, A, p]")
        if (bad := ~(np.abs(psi) <= _LARGEST_FEATURE)).any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            expected = f"a number of at most {_LARGEST_FEATURE:g}"
            raise ParameterError("features", index=at, got=psi[at], expected=expected)
        psi.flags.writeable = False
        object.__setattr__(self, "features", psi)
        require_number("norm_bound", self.norm_bound, 1e-100, 1e100)
        require_number("regularization", self.regularization, 1e-100, 1e100)
        super().__post_init__()

    def model(self, known: Known, delta: float) -> tuple[RewardModel, Floats]:
        """Return the constants of the compiled functions, for a learner at level ``delta``, and psi [S*A, p]."""
        psi = np.asarray(self.features)
        if psi.shape[:2] != (known.states, known.actions):
            raise ShapeError("features", got=psi.shape, expected=f"[S, A, p] with S={known.states}, A={known.actions}")
        level = self.level(known, delta, 1)
        linear = RewardModel(LINEAR, level, float(self.scale), float(self.regularization), float(self.norm_bound))
        return linear, np.ascontiguousarray(psi.reshape(known.states * known.actions, -1))


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
        raise ParameterError("rewards", got='"known"', expected="an estimate: these rewards are not known")
    return known


def reward_rows(rewards: Rewards, known: Known) -> int:
    """Return R, how many tables of rewards are estimated: none, one, or one per step."""
    return 0 if isinstance(rewards, str) else rewards.tables(known)


def rewards_model(rewards: Rewards, known: Known, delta: float) -> tuple[Any, list[Any]]:
    """Return the rewards as the compiled functions read them, and the fields REWARD, PSI and REWARD_WORK of a model.

    ``delta`` is the level of the whole learner.
    """
    if isinstance(rewards, str):
        return KnownRewards(), [known.base_reward.reshape(1, -1), np.zeros((0, 1)), np.zeros(0)]
    estimated, psi = rewards.model(known, delta)
    p = psi.shape[1]
    return estimated, [np.zeros((rewards.tables(known), psi.shape[0])), psi, np.zeros(3 * p * p + 2 * p)]


class RewardStatistics(NamedTuple):
    """The rewards observed so far, by (s, a); R = 1, or H where every step has rewards of its own."""

    visits: Ints  # [R, S*A]
    total: Floats  # [R, S*A]
    squares: Floats  # [R, S*A]


def reward_statistics(state: Any) -> RewardStatistics | None:
    """Return what a state has observed of rewards; None where they are known."""
    if not field(state, HEARD).size:
        return None
    return RewardStatistics(*(field(state, number).copy() for number in (HEARD, HEARD_TOTAL, HEARD_SQUARES)))


def require_observed(observed: Any, shape: tuple[int, ...]) -> None:
    """Refuse rewards that cannot have been observed [R, S*A]."""
    require_kind("statistics.rewards", observed, RewardStatistics)
    Field("visits", shape, 0, MOST_ROWS).require(observed.visits, "statistics.rewards")
    for name in ("total", "squares"):
        most = observed.visits * (1.0 + 1e-9)  # rewards are in [0, 1]
        Field(name, shape, 0.0, most).require(getattr(observed, name), "statistics.rewards")


def continue_rewards(state: Any, observed: RewardStatistics | None, *, due: bool = False) -> None:
    """Go on from rewards that were observed elsewhere; ``due``: the next episode begins with a plan."""
    if observed is None or not field(state, HEARD).size:
        return
    require_observed(observed, field(state, HEARD).shape)
    for number, array in zip((HEARD, HEARD_TOTAL, HEARD_SQUARES), observed, strict=True):
        field(state, number)[:] = array
    if due:
        field(state, COUNTERS)[REWARDS_DUE] = 1


_KINDS: dict[str, tuple[type[Any], str]] = {
    "per_pair": (RewardsPerPair, "bound"),
    "linear": (RewardsLinear, "features"),
}


def rewards_of(value: Any, field: str = "rewards", read: Callable[[str, str], Floats] | None = None) -> Rewards:
    """Return what a word or a table stands for; errors name ``field`` and the key below it.

    ``read(file, field)`` returns the array of a file, where files can be named.
    """
    if isinstance(value, (RewardsPerPair, RewardsLinear)) or (isinstance(value, str) and value == "known"):
        made: Rewards = value
        return made
    chosen = [name for name in _KINDS if name in value] if isinstance(value, dict) else []
    if isinstance(value, dict) and value and not chosen:
        raise UnknownName(f"{field}.{next(iter(value))}", got=next(iter(value)), known=_KINDS)
    if len(chosen) != 1:
        expected = '"known", or one of the keys in { per_pair = "bernstein" } or { linear = psi, norm_bound = b }'
        raise ParameterError(field, got=repr(value)[:80], expected=expected)
    (name,) = chosen
    kind, main = _KINDS[name]
    own = [name, *(each.name for each in dataclasses.fields(kind) if each.name != main)]
    if unknown := [key for key in value if key not in own]:
        raise UnknownName(f"{field}.{unknown[0]}", got=unknown[0], known=own)
    arguments = {main if key == name else key: part for key, part in value.items()}
    if name == "linear":
        if "norm_bound" not in value:
            raise ParameterError(f"{field}.norm_bound", got="nothing", expected="a bound on the norm of omega")
        if isinstance(value[name], str) and read is not None:
            arguments[main] = read(value[name], f"{field}.{name}")
    try:
        estimated: Rewards = kind(**arguments)
        return estimated
    except InvalidInput as error:
        key = name if error.field == main else error.field
        raise ParameterError(f"{field}.{key}", index=error.index, got=error.got, expected=error.expected) from error

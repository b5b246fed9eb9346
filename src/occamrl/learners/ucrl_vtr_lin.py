r"""UCRL-VTR-LIN: optimism over an ellipsoid (Jia et al. 2020; Ghosh et al. 2022, section 4).

P(o | s, a) = <phi(s, a, o), theta*> with ||theta*|| <= b; features may be signed. The rows seen so
far, range-weighted, give theta, Sigma and the sharp radius beta (:mod:`occamrl.evidence.value`). A
plan takes, backwards from V_{H+1} = 0,

.. math:: Q_h(s, a) = r(s, a) + c + R\,\Big[\langle x, \theta\rangle + \sqrt\beta\,
    \|x\|_{\Sigma^{-1}}\Big]_{[-\frac12, \frac12]}, \qquad
    V_h(s) = \Big[\max_a Q_h(s, a)\Big]_{[0, H-h+1]},

with (x, c, R) the row of (s, a) for V_{h+1}. While the ellipsoid contains theta*, which it does at
all times with probability 1 - delta, V_h is at least the optimal value.

**Lazy planning** (M12). A plan is kept until det Sigma has grown by a factor 1 + c, which costs at
most sqrt(1 + c) in the bonus part of the regret bound and needs about
logdet(Sigma/lambda)/log(1 + c) plans in all. How long that takes is settled before the plan is
played. Since logdet(I + M) <= tr M, n episodes add at most n L, with L the largest sum of ||x||^2
in Sigma^-1 along a path that is possible: n = log(1 + c)/L holds surely. Worst paths are rare: L is
scaled by the share of it that the last block added, but is no less than the mean over paths of the
estimate, which knows of a policy that was not played before; then the factor holds on average.
Confidence sets are valid in any case.

**One kernel per step** is the same regression H times, each with an ellipsoid of its own at level
delta/H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from occamrl import bellman
from occamrl.arrays import Floats, Ints
from occamrl.errors import (
    require_choice,
    require_delta,
    require_kind,
    require_number,
    require_rewards,
)
from occamrl.evidence import value
from occamrl.models.features import FeatureMap
from occamrl.protocols import MOST_EPISODES, Flow, Known, Learner, Plan

LARGEST = 1e100  # parameters below it, and above its inverse, keep every formula finite


class LinearState(value.SumState):
    """The sums over rows, and the pace at which they grow."""

    pace: Pace


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRLin(Learner):
    """Act greedily on values planned optimistically over the confidence ellipsoid of theta*.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.UCRLVTRLin(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=50)

    Parameters
    ----------
    features : FeatureMap
    norm_bound : float
        A bound b on ||theta*||.
    delta : float
        The ellipsoid contains theta* at all times with probability 1 - delta.
    regularization : float or "scaled"
        lambda; "scaled" is d/(4 b^2), which lets b enter through a logarithm only.
    scale : float
        Multiplies sqrt(beta). Below 1 the guarantee is lost.
    replan : float
        c > 0: a plan lasts until det Sigma has grown by a factor of about 1 + c. 0: plan before
        every episode.
    kernel : "stationary" | "per_step"
        One parameter for all steps, or one for each with an ellipsoid of its own; ``norm_bound``
        bounds each of them.
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    regularization: float | str = 1.0
    scale: float = 1.0
    replan: float = 0.2
    kernel: Literal["stationary", "per_step"] = "stationary"

    @property
    def guarantee(self) -> str:
        """What is proved about its regret."""
        return "valid" if self.scale >= 1.0 else "none"

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        require_number("norm_bound", self.norm_bound, 1.0 / LARGEST, LARGEST)
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, LARGEST)
        require_number("replan", self.replan, 0.0, LARGEST)
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        if isinstance(self.regularization, str):
            require_choice("regularization", self.regularization, ("scaled",))
        else:
            require_number("regularization", self.regularization, 1.0 / LARGEST, LARGEST)

    @property
    def lam(self) -> float:
        """The regularisation lambda as a number."""
        if self.regularization == "scaled":
            return self.features.dimension / (4.0 * self.norm_bound**2)
        return float(self.regularization)

    def begin(self, known: Known) -> LinearState:
        """Return the state before any data."""
        require_rewards(known, self.features)
        steps = known.horizon if self.kernel == "per_step" else 1
        return {**value.begin(self.features, steps), "pace": Pace(np.zeros(steps))}

    def plan(self, known: Known, state: LinearState, draw: np.random.Generator) -> Plan:
        """Plan optimistically over the ellipsoid of the rows seen so far."""
        ellipsoid = value.ridge(state["gram"], state["xy"], self.lam)
        logdet = ellipsoid.logdet.sum(axis=1)
        # a union bound over the regressions: one, or one for each step
        level = self.delta / len(state["gram"])
        beta = value.squared_radius(logdet, level, self.lam, self.norm_bound)
        width = self.scale * np.sqrt(beta)
        optimism = optimistic_values(self.features, known, ellipsoid, width)
        pace = state["pace"].next(logdet, optimism, self.replan)
        return Plan(
            policy=optimism.policy, episodes=pace.episodes, values=optimism.values, carry=pace
        )

    def learn(self, known: Known, state: LinearState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the block."""
        value.add(state, self.features, known, plan.values, flow)
        state["pace"] = plan.carry._replace(episodes=flow.episodes)


# Optimistic planning ------------------------------------------------------------------------------


class Optimism(NamedTuple):
    """The outcome of optimistic planning; norms are squared, in Sigma^-1."""

    policy: Ints  # [H, S]
    values: Floats  # [H + 1, S]
    longest: float  # the most that an episode can add to the sum of norms of one regression
    expected: float  # what it adds on average if the estimate is the truth; 0 with kernels per step


def optimistic_values(
    features: FeatureMap,
    known: Known,
    ellipsoid: value.Ellipsoid,
    width: Floats,
    coordinates: list[int] | None = None,
) -> Optimism:
    """Plan optimistically over ellipsoids [T, G, n] of radius ``width`` [T].

    With some ``coordinates`` D alone, where G = 1, the ellipsoid is that of the [D, D] block of the
    sums. Rows enter the sums in all coordinates, so D may change at any time.
    """
    H = known.horizon
    S = known.states
    A = known.actions
    steps = len(ellipsoid.theta)
    chosen = slice(None) if coordinates is None else coordinates
    values = np.zeros((H + 1, S))
    policy = np.zeros((H, S), dtype=np.int64)
    norms = np.zeros((H, S))
    for h in reversed(range(H)):
        t = h if steps > 1 else 0
        x, middle, spread = value.rows(features, known, values[h + 1])
        x = x[:, chosen]
        mean = predicted(features, x, ellipsoid.theta[t])
        norm = (value.turned(x, ellipsoid.root[t], features.group) ** 2).sum(axis=1)
        # M11: the mean of targets in [-1/2, 1/2] lies there, whatever the ellipsoid says
        target = np.clip(mean + width[t] * np.sqrt(norm), -0.5, 0.5)
        q = (known.base_reward.ravel() + middle + spread * target).reshape(S, A)
        policy[h] = q.argmax(axis=1)
        values[h] = np.clip(q.max(axis=1), 0.0, H - h)
        norms[h] = norm[np.arange(S) * A + policy[h]]
    if steps > 1:
        # each step has a regression of its own, to which an episode adds one norm
        longest = worst_path(features, known, policy, norms, np.maximum)
        return Optimism(policy, values, longest, 0.0)
    theta = np.zeros((features.groups, features.width))
    theta[:, chosen] = ellipsoid.theta[0]
    longest, expected = path_sums(features, known, theta, policy, norms)
    return Optimism(policy, values, longest, expected)


def predicted(features: FeatureMap, x: Floats, theta: Floats) -> Floats:
    """Return <x, theta> of rows [S*A, n] for parameters [G, n]."""
    if len(theta) == 1:
        return np.asarray(x @ theta[0])
    return np.asarray((x * theta[features.group]).sum(axis=1))


def worst_path(
    features: FeatureMap, known: Known, policy: Ints, norms: Floats, join: np.ufunc
) -> float:
    """Return the largest sum of ``norms`` [H, S] along a path of the policy.

    Joined by ``np.maximum`` instead of ``np.add`` it is the largest term.
    """
    worst = np.zeros(known.states)
    pairs = np.arange(known.states) * known.actions + policy
    for h in reversed(range(known.horizon)):
        _, following = bellman.ranges(features.outcomes, worst)
        worst = join(norms[h], following[pairs[h]])
    return float(worst[known.may_start].max())


def path_sums(
    features: FeatureMap, known: Known, theta: Floats, policy: Ints, norms: Floats
) -> tuple[float, float]:
    """Return the largest sum of ``norms`` [H, S] along a path, and the mean if theta is the truth.

    What the estimate says is cut at 0 and normalised; outcomes of pairs that it knows nothing of
    are equally likely.
    """
    outcomes = features.outcomes
    size = np.diff(outcomes.start)
    weight = np.maximum(features.probabilities(theta), 0.0)
    total = np.add.reduceat(weight, outcomes.start[:-1])
    known_of = total > 0.0
    weight = np.where(np.repeat(known_of, size), weight, 1.0)
    probability = weight / np.repeat(np.where(known_of, total, size), size)
    matrix = bellman.kernel_of(outcomes, probability, known).matrix
    pairs = np.arange(known.states) * known.actions + policy
    mean = np.zeros(known.states)
    for h in reversed(range(known.horizon)):
        mean = norms[h] + (matrix @ mean)[pairs[h]]
    longest = worst_path(features, known, policy, norms, np.add)
    return longest, float(mean[known.may_start].max())


# Lazy planning ------------------------------------------------------------------------------------


class Pace(NamedTuple):
    """How fast log-determinants have grown under the last plan, and how long the next one lasts."""

    logdet: Floats  # [T] before it
    longest: float = 0.0  # the most that one of its episodes could add
    share: float = 1.0  # of that which was counted on
    episodes: int = 0  # that were played

    def next(self, logdet: Floats, optimism: Optimism, replan: float) -> Pace:
        """Return the pace of a plan in which logdet Sigma grows by about log(1 + replan)."""
        share = self.share
        counted_on = self.longest * self.episodes
        if counted_on > 0.0:
            # the share of the last block, but no less than half of the share before
            growth = (logdet - self.logdet).max() / counted_on
            share = float(np.clip(growth, 0.5 * share, 1.0))
        if replan == 0.0:
            return Pace(logdet, optimism.longest, share, 1)
        limit = math.log1p(replan)
        # where nothing can be added any more, the plan is as long as a plan may be
        added = max(share * optimism.longest, optimism.expected, limit / MOST_EPISODES)
        episodes = int(max(1.0, min(limit / added, MOST_EPISODES)))
        return Pace(logdet, optimism.longest, share, episodes)

r"""Unknown rewards: a wrapper that estimates them and lets any learner plan with upper bounds.

The wrapped learner sees a problem whose rewards are known to be

.. math:: \tilde r(s,a) = \min\{1,\; \hat r(s,a) + \text{width}(s,a)\} \ge r(s,a) .

Its regressions keep the targets V_{h+1} alone: a reward never joins them, even if it depends on s',
so every confidence set stays valid with V planned from estimated rewards, which were fixed before
the block. Of delta, the share goes to the rewards, and the wrapped learner gets what remains if it
has a larger delta of its own. On both events every plan is optimistic.

**Widths**, each at level d = share delta/(S A). With n rewards of mean m and sample variance v at
(s, a),

.. math:: \frac1n\sqrt{\frac{n+1}{4}\Big(\log(n+1) + 2\log\frac1d\Big)} \ \text{(Hoeffding)}, \qquad
    \sqrt{\frac{2 v l}{n}} + \frac{7 l}{3(n-1)}, \ l = \log\frac{2n(n-1)}{d} \ \text{(Bernstein)},

the second being the smaller of both, each at d/2 (Maurer and Pontil, COLT 2009, theorem 4, at
d/(n(n-1)) for each n); both hold for all n at once.

A plan lasts at most until the data have grown by 2 %. Means are those of pairs: where the reward
depends on s' and the kernel on the step, they are not one number, and nothing is guaranteed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Literal, TypedDict

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.errors import (
    SMALLEST_DELTA,
    ParameterError,
    require_choice,
    require_delta,
    require_number,
)
from occamrl.protocols import Flow, Known, Learner, Plan, State

GROWTH = 0.02  # of the data, after which bounds are made anew


class RewardSums(TypedDict):
    """What is kept of the rewards of every pair [S*A]."""

    count: Ints
    total: Floats
    squares: Floats


class RewardsState(RewardSums):
    """The rewards seen, and the state of the wrapped learner."""

    agent: State


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsPerPair(Learner):
    """Let a learner plan without known rewards: estimate the mean reward of each (s, a) separately.

    >>> import occamrl as orl
    >>> features = orl.FeatureMap.tabular(states=3, actions=2)
    >>> linear = orl.UCRLVTRLin(features=features, norm_bound=2.5, delta=0.025)
    >>> agent = orl.RewardsPerPair(agent=linear, bound="hoeffding")
    >>> result = orl.run(agent, orl.make_problem("river-swim", states=3), episodes=20)

    Parameters
    ----------
    agent : Learner
        The one that plans; its delta is at most ``(1 - share) * delta``, and lowered to that.
    bound : "bernstein" | "hoeffding"
        The width of the estimate. Bernstein's is meant for rewards that vary little and small gaps.
    delta, share : float
        ``share * delta`` pays for the rewards: all that fails does so with probability delta.
    scale : float
        Multiplies the width. Below 1 the guarantee is lost.
    """

    agent: Learner
    delta: float = 0.05
    share: float = 0.5
    scale: float = 1.0
    bound: Literal["bernstein", "hoeffding"] = "bernstein"

    def __post_init__(self) -> None:
        if isinstance(self.agent, type) or not isinstance(self.agent, Learner):
            expected = "a learner, with begin, plan and learn"
            raise ParameterError("agent", got=f"{self.agent!r:.80}", expected=expected)
        require_delta(self.delta)
        require_number("share", self.share, 0.0, 1.0, open_low=True)
        require_number("scale", self.scale, 0.0, 1e100)
        require_choice("bound", self.bound, ("bernstein", "hoeffding"))
        object.__setattr__(self, "agent", within_delta(self.agent, (1.0 - self.share) * self.delta))

    def begin(self, known: Known) -> RewardsState:
        """Return a fresh state: no rewards yet, and that of the learner with every reward 1."""
        pairs = known.states * known.actions
        sums = RewardSums(
            count=np.zeros(pairs, np.int64), total=np.zeros(pairs), squares=np.zeros(pairs)
        )
        return {**sums, "agent": self.agent.begin(self.with_upper_bounds(known, sums))}

    def plan(self, known: Known, state: RewardsState, draw: np.random.Generator) -> Plan:
        """Plan with upper bounds, for at most as long as it takes the data to grow by 2 %."""
        plan = self.agent.plan(self.with_upper_bounds(known, state), state["agent"], draw)
        # bounds fall as rewards come in, so a plan made with old ones must not last
        growth = max(1, int(GROWTH * state["count"].sum() / known.horizon))
        return replace(plan, episodes=min(plan.episodes, growth))

    def learn(self, known: Known, state: RewardsState, plan: Plan, flow: Flow) -> None:
        """Count rewards, and let the wrapped learner learn from the flow."""
        # the learner is told first: its regressions need the rewards that the plan was made with
        self.agent.learn(self.with_upper_bounds(known, state), state["agent"], plan, flow)
        pair = flow.state * known.actions + flow.action
        np.add.at(state["count"], pair, flow.count)
        np.add.at(state["total"], pair, flow.count * flow.reward)
        np.add.at(state["squares"], pair, flow.count * flow.reward**2)

    def with_upper_bounds(self, known: Known, sums: RewardSums) -> Known:
        """Return the problem as the wrapped learner sees it."""
        upper = np.clip(self.upper_bounds(sums), 0.0, 1.0)
        return known.with_rewards(upper.reshape(known.states, known.actions))

    def upper_bounds(self, sums: RewardSums) -> Floats:
        """Return mean + width of every pair [S*A]; 1 before its first reward."""
        n = np.maximum(sums["count"], 1)
        mean = sums["total"] / n
        # a union bound over the pairs
        level = self.share * self.delta / n.size
        if self.bound == "hoeffding":
            width = hoeffding(n, level)
        else:
            variance = np.maximum(sums["squares"] - n * mean**2, 0.0) / np.maximum(n - 1, 1)
            width = np.minimum(hoeffding(n, level / 2.0), bernstein(n, variance, level / 2.0))
        upper = np.minimum(mean + self.scale * width, 1.0)
        # with scale 0 nothing is added to the middle, 1/2, of what a reward can be
        unseen = min(1.0, 0.5 + 0.5 * self.scale)
        return np.asarray(np.where(sums["count"] > 0, upper, unseen))


def within_delta(agent: Learner, delta: float) -> Learner:
    """Return the learner with a delta of at most this; as it is where it has none."""
    if not is_dataclass(agent) or "delta" not in {field.name for field in fields(agent)}:
        return agent
    # no learner takes a delta below the smallest
    allowed = max(delta, SMALLEST_DELTA)
    if vars(agent)["delta"] <= allowed:
        return agent
    lowered: Learner = replace(agent, delta=allowed)
    return lowered


def hoeffding(n: Ints, level: float) -> Floats:
    """Return the width of a mean of n numbers in [0, 1] that holds for all n at once."""
    return np.asarray(np.sqrt((n + 1) / 4.0 * (np.log(n + 1.0) - 2.0 * np.log(level))) / n)


def bernstein(n: Ints, variance: Floats, level: float) -> Floats:
    """Return the same by the sample variance; infinite for one number, which has none."""
    others = np.maximum(n - 1, 1)
    log = np.log(2.0 * n * others / level)
    width = np.sqrt(2.0 * variance * log / n) + 7.0 * log / (3.0 * others)
    return np.asarray(np.where(n > 1, width, np.inf))

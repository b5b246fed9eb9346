r"""Unknown rewards: a wrapper that estimates them and lets any learner plan with upper bounds.

The wrapped learner sees a problem whose rewards are known to be

.. math:: \tilde r(s,a) = \min\{1,\; \hat r(s,a) + \text{width}(s,a)\} \ge r(s,a) .

Its regressions keep the targets V_{h+1} alone: a reward never joins them, even if it depends on s', so every confidence
set stays valid with V planned from estimated rewards, which were fixed before the block. Of delta, the share goes to
the rewards: give the wrapped learner ``delta=(1 - share) * delta``. On both events every plan is optimistic.

**Per pair**, each at level d = share delta/(S A). With n rewards of mean m and sample variance v at
(s, a),

.. math:: \frac1n\sqrt{\frac{n+1}{4}\Big(\log(n+1) + 2\log\frac1d\Big)} \ \text{(Hoeffding)}, \qquad
    \sqrt{\frac{2 v l}{n}} + \frac{7 l}{3(n-1)}, \ l = \log\frac{2n(n-1)}{d} \ \text{(Bernstein)},

the second being the smaller of both, each at d/2 (Maurer and Pontil, COLT 2009, theorem 4, at
d/(n(n-1)) for each n); both hold for all n at once. **Linear**, r(s, a) = <psi(s, a), omega>,
|omega| <= b: ridge regression with the sharp ellipsoid for targets of range one, cut to [0, 1],

.. math:: \langle\psi, \hat\omega\rangle + \sqrt\beta\,\|\psi\|_{\Sigma^{-1}}, \quad
    \beta = \tfrac14\Big(\log\det\frac{\Sigma}{\lambda} + 2\log\frac{1}{share\,\delta}\Big) + \lambda b^2 .

A plan lasts at most until the data have grown by 2 %. Means are those of pairs: where the reward
depends on s' and the kernel on the step, they are not one number, and nothing is guaranteed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from occamrl.errors import (
    ParameterError,
    ShapeError,
    as_floats,
    require_choice,
    require_delta,
    require_number,
)
from occamrl.protocols import Floats, Flow, Known, Learner, Plan

GROWTH = 0.02  # of the data, after which bounds are made anew


@dataclass(frozen=True, kw_only=True, eq=False)
class _WithRewards(Learner):
    """A learner that is given upper bounds instead of rewards."""

    agent: Learner
    delta: float = 0.05
    share: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.agent, type) or not isinstance(self.agent, Learner):
            raise ParameterError(
                "agent", got=f"{self.agent!r:.80}", expected="a learner, with begin, plan and learn"
            )
        require_delta(self.delta)
        require_number("share", self.share, 0.0, 1.0, open_low=True)
        require_number("scale", self.scale, 0.0, 1e100)

    @abstractmethod
    def upper_bounds(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return the largest mean rewards that the data allow [S*A]."""

    def seen(self, known: Known, state: dict[str, Any]) -> Known:
        """Return the problem as the wrapped learner sees it."""
        upper = np.clip(self.upper_bounds(known, state), 0.0, 1.0)
        return known.with_rewards(upper.reshape(known.states, known.actions))

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state: of each pair the number of rewards, their sum and the sum of their squares."""
        pairs = known.states * known.actions
        state = {
            "count": np.zeros(pairs, np.int64),
            "total": np.zeros(pairs),
            "squares": np.zeros(pairs),
        }
        return {**state, "agent": self.agent.begin(self.seen(known, state))}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Plan with upper bounds, for at most as long as it takes the data to grow by 2 %."""
        plan = self.agent.plan(self.seen(known, state), state["agent"], draw)
        most = max(1, int(GROWTH * state["count"].sum() / known.horizon))
        return replace(plan, episodes=min(plan.episodes, most))

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count rewards, and let the wrapped learner learn from the flow."""
        self.agent.learn(self.seen(known, state), state["agent"], plan, flow)
        pair = flow.state * known.actions + flow.action
        np.add.at(state["count"], pair, flow.count)
        np.add.at(state["total"], pair, flow.count * flow.reward)
        np.add.at(state["squares"], pair, flow.count * flow.reward**2)


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsPerPair(_WithRewards):
    """Let a learner plan without known rewards: estimate the mean reward of every (s, a) by itself.

    >>> import occamrl as orl
    >>> linear = orl.UCRLVTRLin(features=orl.FeatureMap.tabular(states=3, actions=2), norm_bound=2.5, delta=0.025)
    >>> agent = orl.RewardsPerPair(agent=linear, bound="hoeffding")
    >>> result = orl.run(agent, orl.make_problem("river-swim", states=3), episodes=20)

    Parameters
    ----------
    agent : Learner
        The one that plans; give it the rest of delta.
    bound : "bernstein" | "hoeffding"
        The width of the estimate. Bernstein's is meant for rewards that vary little and small gaps.
    delta, share : float
        ``share * delta`` pays for the rewards.
    scale : float
        Multiplies the width. Below 1 the guarantee is lost.
    """

    bound: Literal["bernstein", "hoeffding"] = "bernstein"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("bound", self.bound, ("bernstein", "hoeffding"))

    def upper_bounds(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return mean + width of every pair; 1 before its first reward."""
        n = np.maximum(state["count"], 1)
        mean, level = state["total"] / n, self.share * self.delta / n.size
        if self.bound == "hoeffding":
            width = hoeffding(n, level)
        else:
            variance = np.maximum(state["squares"] - n * mean**2, 0.0) / np.maximum(n - 1, 1)
            log = np.log(4.0 * n * np.maximum(n - 1, 1) / level)
            bernstein = np.sqrt(2.0 * variance * log / n) + 7.0 * log / (3.0 * np.maximum(n - 1, 1))
            width = np.minimum(hoeffding(n, level / 2.0), np.where(n > 1, bernstein, np.inf))
        upper = np.minimum(mean + self.scale * width, 1.0)
        return np.asarray(np.where(state["count"] > 0, upper, min(1.0, 0.5 + 0.5 * self.scale)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardsLinear(_WithRewards):
    """Let a learner plan without known rewards: estimate rewards that are linear in given features.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> linear = orl.UCRLVTRLin(features=orl.FeatureMap.tabular(states=3, actions=2), norm_bound=2.5, delta=0.025)
    >>> agent = orl.RewardsLinear(agent=linear, features=np.eye(6).reshape(3, 2, 6), norm_bound=2.5)  # psi[s, a]
    >>> result = orl.run(agent, orl.make_problem("river-swim", states=3), episodes=20)

    Parameters
    ----------
    agent : Learner
        The one that plans; give it the rest of delta.
    features : array [S, A, p]
        psi.
    norm_bound, regularization : float
        A bound on the norm of omega, and lambda.
    delta, share, scale
        As in :class:`RewardsPerPair`.
    """

    features: Any
    norm_bound: float
    regularization: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        psi = as_floats("features", self.features, "an array [S, A, p], or nested lists")
        if psi.ndim != 3 or psi.size == 0 or not np.isfinite(psi).all():
            raise ShapeError(
                "features", got=f"shape {psi.shape}", expected="finite numbers [S, A, p]"
            )
        object.__setattr__(self, "features", psi)
        require_number("norm_bound", self.norm_bound, 1e-100, 1e100)
        require_number("regularization", self.regularization, 1e-100, 1e100)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state."""
        if self.features.shape[:2] != (known.states, known.actions):
            expected = f"[S, A, p] with S={known.states}, A={known.actions}"
            raise ShapeError("features", got=f"shape {self.features.shape}", expected=expected)
        return super().begin(known)

    def upper_bounds(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return <psi, omega> + sqrt(beta) |psi| in the inverse of Sigma."""
        psi, lam = self.features.reshape(known.states * known.actions, -1), self.regularization
        sigma = lam * np.eye(psi.shape[1]) + (psi * state["count"][:, None]).T @ psi
        omega = np.linalg.solve(sigma, psi.T @ state["total"])
        logdet = np.linalg.slogdet(sigma / lam)[1]
        beta = 0.25 * (logdet - 2.0 * np.log(self.share * self.delta)) + lam * self.norm_bound**2
        norm = np.sqrt(np.einsum("ij,ij->i", psi, np.linalg.solve(sigma, psi.T).T))
        return np.asarray(psi @ omega + self.scale * np.sqrt(beta) * norm)


def hoeffding(n: Any, level: float) -> Floats:
    """Return the width of a mean of n numbers in [0, 1] that holds for all n at once."""
    return np.asarray(np.sqrt((n + 1) / 4.0 * (np.log(n + 1.0) - 2.0 * np.log(level))) / n)

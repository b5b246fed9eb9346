r"""UCRL-VTR+: regression weighted by variances (Zhou, Gu and Szepesvari, COLT 2021, 2012.08507).

P(o | s, a) = <phi(s, a, o), theta> with ||theta|| <= B, W(o) = bonus(o) + V_{h+1}(next state of o),
x = phi_W(s, a) and z = phi_{W^2}(s, a). Before episode k, for h = H, ..., 1,

.. math:: Q_h(s, a) = [r(s, a) + \langle x, \hat\theta\rangle
    + \hat\beta\,\|x\|_{\hat\Sigma^{-1}}]_{[0, H]}, \quad V_h(s) = \max_a Q_h(s, a),

and after it, for each of its steps, with the estimates from before it,

.. math:: \bar\sigma^2 = \max\Big\{\frac{H^2}{d},\;
    [\langle z, \tilde\theta\rangle]_{[0, H^2]} - [\langle x, \hat\theta\rangle]^2_{[0, H]} +
    \min\{H^2, 2H\check\beta\|x\|_{\hat\Sigma^{-1}}\} +
    \min\{H^2, \tilde\beta\|z\|_{\tilde\Sigma^{-1}}\}\Big\},

.. math:: \hat\Sigma \mathrel{+}= \bar\sigma^{-2} x x^T, \quad
    \hat b \mathrel{+}= \bar\sigma^{-2} W x, \quad
    \tilde\Sigma \mathrel{+}= z z^T, \quad \tilde b \mathrel{+}= W^2 z, \qquad
    \hat\theta = \hat\Sigma^{-1}\hat b, \quad \tilde\theta = \tilde\Sigma^{-1}\tilde b,

both Sigma beginning with lambda I, lambda = 1/B^2. With :math:`l = \ln(4k^2H/\delta)`,

.. math:: \hat\beta = 8\sqrt{d\ln(1 + k/\lambda)\,l} + 4\sqrt d\,l + \sqrt\lambda B, \quad
    \check\beta = 8 d\sqrt{\ln(1 + k/\lambda)\,l} + 4\sqrt d\,l + \sqrt\lambda B, \\
    \tilde\beta = 8\sqrt{d H^4\ln(1 + kH^4/(d\lambda))\,l} + 4H^2 l + \sqrt\lambda B.

The paper has one theta, and so one regression, per step; k is the number of its rows, and H in l
that of regressions. Here one theta serves all steps: its regression has kH rows, and l =
ln(4(kH)^2/delta).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_delta, require_kind, require_number, require_rewards
from occamrl.evidence import value
from occamrl.learners.tabular import best_actions
from occamrl.models.features import FeatureMap
from occamrl.protocols import Flow, Known, Learner, Plan

VALUES = 0  # the regression of W on x: theta-hat
SQUARES = 1  # that of W^2 on z: theta-tilde


class PlusState(TypedDict):
    """The sums of both regressions, without lambda I."""

    episodes: int
    sigma: Floats  # [2, G, n, n]
    xy: Floats  # [2, G, n] the right-hand sides


class Radii(NamedTuple):
    """The radii before an episode."""

    hat: float  # of theta-hat
    check: float  # of theta-hat in the variance
    tilde: float  # of theta-tilde


class Prediction(NamedTuple):
    """What a regression says of every (s, a)."""

    mean: Floats  # [S*A] <x, theta>
    norm: Floats  # [S*A] ||x|| in Sigma^-1


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRPlus(Learner):
    r"""UCRL-VTR+ for linear kernels.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.UCRLVTRPlus(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=20)

    The paper proves, for a theta per step, regret :math:`\tilde O(\sqrt{d^2H^2 + dH^3}\sqrt{KH} +
    d^2H^3)` with probability 1 - delta, if ||phi_V(s, a)|| <= 1 for every V with values in [0, 1]:
    scale the features, and ``norm_bound`` with them, where that does not hold. Rewards that depend
    on the outcome are beyond the paper. Actions whose values are equal, as they are where cut at H,
    are drawn at random.

    Parameters
    ----------
    features : FeatureMap
    norm_bound, delta, scale : float
        B, the level, and a factor of the three radii.
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        require_number("norm_bound", self.norm_bound, 0.0, math.inf, open_low=True)
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, math.inf)

    def begin(self, known: Known) -> PlusState:
        """Return the sums before any data."""
        require_rewards(known, self.features)
        shape = (2, self.features.groups, self.features.width)
        return {
            "episodes": 0,
            "sigma": np.zeros((*shape, self.features.width)),
            "xy": np.zeros(shape),
        }

    def plan(self, known: Known, state: PlusState, draw: np.random.Generator) -> Plan:
        """Return the greedy policy of the optimistic values, for one episode."""
        H = known.horizon
        values = np.zeros((H + 1, known.states))
        policy = np.zeros((H, known.states), dtype=np.int64)
        fit = self.fit(state, VALUES)
        radius = self.radii(H, state["episodes"] + 1).hat
        for h in reversed(range(H)):
            mean, norm = self.predict(self.moment(known, values[h + 1], 1), fit)
            bound = (mean + radius * norm).reshape(known.base_reward.shape)
            q = np.clip(known.base_reward + bound, 0.0, H)
            # cutting at 0 would make actions playable that are not allowed
            q[~known.allowed] = -np.inf
            policy[h] = best_actions(q, draw)
            values[h] = q.max(axis=1)
        return Plan(policy=policy, values=values)

    def learn(self, known: Known, state: PlusState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the episode, with weights from the estimates before it."""
        values = np.asarray(plan.values)
        # weights must not depend on the episode that they weigh: the estimates are fixed before it
        fits = (self.fit(state, VALUES), self.fit(state, SQUARES))
        radii = self.radii(known.horizon, state["episodes"] + 1)
        pair = flow.state * known.actions + flow.action
        bonus = flow.bonus(known, self.features.attach(known))
        target = values[flow.step + 1, flow.next_state] + bonus
        for h in np.unique(flow.step):
            x = self.moment(known, values[h + 1], 1)
            z = self.moment(known, values[h + 1], 2)
            predicted = self.predict(x, fits[VALUES])
            squares = self.predict(z, fits[SQUARES])
            precision = 1.0 / self.variance(known.horizon, radii, predicted, squares)
            for row in np.flatnonzero(flow.step == h):
                sa = pair[row]
                y = target[row]
                n = flow.count[row]
                self.add_row(state, VALUES, sa, x[sa], y, n * precision[sa])
                self.add_row(state, SQUARES, sa, z[sa], y**2, n * 1.0)
        state["episodes"] += flow.episodes

    def add_row(
        self, state: PlusState, regression: int, pair: int, x: Floats, y: float, weight: float
    ) -> None:
        """Add a weighted row of a pair to one of the regressions."""
        group = self.features.group[pair]
        state["sigma"][regression, group] += weight * np.outer(x, x)
        state["xy"][regression, group] += weight * y * x

    def fit(self, state: PlusState, regression: int) -> value.Ellipsoid:
        """Return the estimate of one of the regressions."""
        return value.ridge(state["sigma"][regression], state["xy"][regression], self.norm_bound**-2)

    def radii(self, horizon: int, k: int) -> Radii:
        """Return the radii before episode k >= 1."""
        d = self.features.dimension
        lam = self.norm_bound**-2
        rows = k * horizon
        squared = float(horizon) ** 4
        log = math.log(4.0 * rows**2 / self.delta)
        first = math.log(1.0 + rows / lam) * log
        # sqrt(lambda) B = 1
        last = 4.0 * math.sqrt(d) * log + 1.0
        hat = 8.0 * math.sqrt(d * first) + last
        check = 8.0 * d * math.sqrt(first) + last
        root = math.sqrt(d * squared * math.log(1.0 + rows * squared / (d * lam)) * log)
        tilde = 8.0 * root + 4.0 * float(horizon) ** 2 * log + 1.0
        return Radii(self.scale * hat, self.scale * check, self.scale * tilde)

    def moment(self, known: Known, values: Floats, power: int) -> Floats:
        """Return phi_{W^power}(s, a) [S*A, n] for the values [S] of the next step."""
        outcomes = self.features.attach(known)
        return self.features.moments((outcomes.bonus + values[outcomes.next_state]) ** power)

    def predict(self, x: Floats, fit: value.Ellipsoid) -> Prediction:
        """Return what a regression says of the rows of all pairs."""
        group = self.features.group
        norm = np.sqrt((value.turned(x, fit.root, group) ** 2).sum(axis=1))
        return Prediction((x * fit.theta[group]).sum(axis=1), norm)

    def variance(
        self, horizon: int, radii: Radii, predicted: Prediction, squares: Prediction
    ) -> Floats:
        """Return the upper bound on the variance of W at every pair [S*A]."""
        H = float(horizon)
        variance = np.clip(squares.mean, 0.0, H**2) - np.clip(predicted.mean, 0.0, H) ** 2
        error = np.minimum(H**2, 2.0 * H * radii.check * predicted.norm)
        error += np.minimum(H**2, radii.tilde * squares.norm)
        return np.asarray(np.maximum(H**2 / self.features.dimension, variance + error))

r"""Baselines for linear kernels: regression weighted by variances, and certainty equivalence.

P(o | s, a) = <phi(s, a, o), theta>. Both regress W(o) = bonus(o) + V_{h+1}(next state of o) on
features.

**UCRL-VTR+** (Zhou, Gu and Szepesvari, COLT 2021, arXiv 2012.08507). With ||theta|| <= B, x =
phi_W(s, a) and z = phi_{W^2}(s, a), before episode k for h = H, ..., 1

.. math:: Q_h(s, a) = [r(s, a) + \langle x, \hat\theta\rangle + \hat\beta\,\|x\|_{\hat\Sigma^{-1}}]_{[0, H]}, \quad
    V_h(s) = \max_a Q_h(s, a),

and after it, for each of its steps, with the estimates from before it,

.. math:: \bar\sigma^2 = \max\Big\{\frac{H^2}{d},\;
    [\langle z, \tilde\theta\rangle]_{[0, H^2]} - [\langle x, \hat\theta\rangle]^2_{[0, H]} +
    \min\{H^2, 2H\check\beta\|x\|_{\hat\Sigma^{-1}}\} + \min\{H^2, \tilde\beta\|z\|_{\tilde\Sigma^{-1}}\}\Big\},

.. math:: \hat\Sigma \mathrel{+}= \bar\sigma^{-2} x x^T, \quad \hat b \mathrel{+}= \bar\sigma^{-2} W x, \quad
    \tilde\Sigma \mathrel{+}= z z^T, \quad \tilde b \mathrel{+}= W^2 z, \qquad
    \hat\theta = \hat\Sigma^{-1}\hat b, \quad \tilde\theta = \tilde\Sigma^{-1}\tilde b,

both Sigma beginning with lambda I, lambda = 1/B^2. With :math:`l = \ln(4k^2H/\delta)`,

.. math:: \hat\beta = 8\sqrt{d\ln(1 + k/\lambda)\,l} + 4\sqrt d\,l + \sqrt\lambda B, \quad
    \check\beta = 8 d\sqrt{\ln(1 + k/\lambda)\,l} + 4\sqrt d\,l + \sqrt\lambda B, \\
    \tilde\beta = 8\sqrt{d H^4\ln(1 + kH^4/(d\lambda))\,l} + 4H^2 l + \sqrt\lambda B.

The paper has one theta, and so one regression, per step; k is the number of its rows, and H in l
that of regressions. Here one theta serves all steps: its regression has kH rows, and l =
ln(4(kH)^2/delta).

**Greedy** is UCRL-VTR-LIN without its bonus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from occamrl.errors import require_delta, require_kind, require_number, require_rewards
from occamrl.evidence import value
from occamrl.learners.tabular import best_actions
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.protocols import Floats, Flow, Known, Learner, Plan


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

    def radii(self, horizon: int, k: int) -> tuple[float, float, float]:
        """Return the radii of theta-hat, of theta-hat in the variance, and of theta-tilde, before episode k >= 1."""
        d, h, lam, rows = self.features.dimension, float(horizon), self.norm_bound**-2, k * horizon
        log = math.log(4.0 * rows**2 / self.delta)
        first, last = (
            math.log(1.0 + rows / lam) * log,
            4.0 * math.sqrt(d) * log + 1.0,
        )  # sqrt(lambda) B = 1
        squares = (
            8.0 * math.sqrt(d * h**4 * math.log(1.0 + rows * h**4 / (d * lam)) * log)
            + 4.0 * h**2 * log
            + 1.0
        )
        hat, check = 8.0 * math.sqrt(d * first) + last, 8.0 * d * math.sqrt(first) + last
        return self.scale * hat, self.scale * check, self.scale * squares

    def moment(self, known: Known, values: Floats, power: int) -> Floats:
        """Return phi_{W^power}(s, a) [S*A, n] for the values [S] of the next step."""
        _, after, bonus = self.features.attach(known)
        return self.features.moments((bonus + values[after]) ** power)

    def predict(self, x: Floats, found: value.Ellipsoid) -> tuple[Floats, Floats]:
        """Return <x, theta> and ||x|| in Sigma^-1 for the rows of all pairs."""
        group = self.features.group
        norm = np.sqrt((value.turned(x, found.root, group) ** 2).sum(axis=1))
        return (x * found.theta[group]).sum(axis=1), norm

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the sums before any data, of x and of z, without lambda I."""
        require_rewards(known, self.features)
        shape = (2, self.features.groups, self.features.width)
        return {"episodes": 0, "sigma": np.zeros((*shape, shape[-1])), "xy": np.zeros(shape)}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Return the greedy policy of the optimistic values, for one episode."""
        H = known.horizon
        values, policy = (
            np.zeros((H + 1, known.states)),
            np.zeros((H, known.states), dtype=np.int64),
        )
        found = value.ridge(state["sigma"][0], state["xy"][0], self.norm_bound**-2)
        width = self.radii(H, state["episodes"] + 1)[0]
        for h in reversed(range(H)):
            mean, norm = self.predict(self.moment(known, values[h + 1], 1), found)
            q = np.clip(
                known.base_reward + (mean + width * norm).reshape(known.base_reward.shape), 0.0, H
            )
            q[~known.allowed] = -np.inf
            policy[h], values[h] = best_actions(q, draw), q.max(axis=1)
        return Plan(policy=policy, values=values)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Add the rows of the episode, with weights from the estimates before it."""
        H, group, pair = (
            float(known.horizon),
            self.features.group,
            flow.state * known.actions + flow.action,
        )
        both = [value.ridge(state["sigma"][m], state["xy"][m], self.norm_bound**-2) for m in (0, 1)]
        _, check, squares = self.radii(known.horizon, state["episodes"] + 1)
        values: Any = plan.values
        target = values[flow.step + 1, flow.next_state] + flow.bonus(
            known, self.features.attach(known)
        )
        for h in np.unique(flow.step):
            x, z = (self.moment(known, values[h + 1], power) for power in (1, 2))
            (mean, norm), (mean_square, norm_square) = (
                self.predict(x, both[0]),
                self.predict(z, both[1]),
            )
            variance = np.clip(mean_square, 0.0, H**2) - np.clip(mean, 0.0, H) ** 2
            error = np.minimum(H**2, 2.0 * H * check * norm) + np.minimum(
                H**2, squares * norm_square
            )
            weight = 1.0 / np.maximum(H**2 / self.features.dimension, variance + error)
            for row in np.flatnonzero(flow.step == h):
                sa, y = pair[row], target[row]
                for m, (each, goal, by) in enumerate(((x[sa], y, weight[sa]), (z[sa], y**2, 1.0))):
                    state["sigma"][m, group[sa]] += flow.count[row] * by * np.outer(each, each)
                    state["xy"][m, group[sa]] += flow.count[row] * by * goal * each
        state["episodes"] += flow.episodes


@dataclass(frozen=True, kw_only=True, eq=False)
class Greedy(UCRLVTRLin):
    """Certainty equivalence, UCRL-VTR-LIN without its bonus: the optimal policy of the ridge estimate.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), problem, episodes=50)

    A reference point without a guarantee. Parameters are those of
    :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin` but for the bound on the norm and the scale
    of the radius, which is 0.
    """

    norm_bound: float = field(default=1.0, init=False, repr=False)
    scale: float = field(default=0.0, init=False, repr=False)

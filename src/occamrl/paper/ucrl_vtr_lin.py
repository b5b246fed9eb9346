r"""UCRL-VTR-LIN for linear kernel MDPs, to the letter (section 3; Jia et al. 2020).

P*(s'|s,a) = <phi(s,a,s'), theta*> with ||theta*|| <= b. Write phi_V(s,a) = sum over s' of
phi(s,a,s') V(s').

    Sigma_0 = I
    for episodes k = 1, 2, ...
        for h = H, ..., 1, with V_{H+1} = 0 and x = phi_{V_{h+1}}(s, a):
            Q_h(s, a) = r(s, a) + <x, theta_{k-1}>
                      + sqrt(beta_{k-1}(delta)) ||Sigma_{k-1}^{-1/2} x||
            V_h(s) = min { max_a Q_h(s, a), H }
        play a_h = argmax_a Q_h(s_h, a), observe s_1, a_1, ..., s_{H+1}
        for h = 1, ..., H, with x = phi_{V_{h+1}}(s_h, a_h):
            Sigma_k = Sigma_k + x x^T,  the right-hand side gains V_{h+1}(s_{h+1}) x
        theta_k = Sigma_k^{-1} (right-hand side), the minimiser of the squared loss plus ||theta||^2

with the radius, in which the paper leaves the constant c open,

.. math:: \beta_k(\delta) = c\,\big(b^2 + H^2 d \log(kH) \log^2(k^2 H/\delta)\big) .

:class:`UCRLVTRLinAyoub` has that of the published code of Ayoub et al. (2020), which belongs to a
step and is none of the letter:

.. math:: \sqrt{\beta_{k,h}(\delta)} = \tfrac{H-h+1}2 \sqrt{2\log(1/\delta) + \log\det\Sigma_k}
    + b .

Deviation from the paper: beta_0, of which log 0 would be a part, takes k = 1. Any beta_0 >= b^2 is
right, as Sigma_0 = I and theta_0 = 0. Values need no cut at 0: while the ellipsoid contains theta*,
V_h >= V*_h >= 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypedDict

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_delta, require_kind, require_number
from occamrl.models.features import FeatureMap
from occamrl.paper.ucrl_vtr import require_setting
from occamrl.protocols import Flow, Known, Learner, Plan


class UCRLVTRLinState(TypedDict):
    """The regression."""

    episodes: int  # k
    sigma: Floats  # [d, d] Sigma_k
    xy: Floats  # [d] the right-hand side


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRLin(Learner):
    """Act greedily on values planned optimistically over the confidence ellipsoid of theta*.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.paper.UCRLVTRLin(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=10)

    Parameters
    ----------
    features : FeatureMap
        phi, of dimension d.
    norm_bound : float
        b, a bound on ||theta*||.
    delta : float
        The confidence level is 1 - delta.
    paper_constant : float
        c, which the paper hides in O(.).
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    paper_constant: float = 1.0

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        require_number("norm_bound", self.norm_bound, 0.0, math.inf, open_low=True)
        require_delta(self.delta)
        require_number("paper_constant", self.paper_constant, 0.0, math.inf, open_low=True)

    def begin(self, known: Known) -> UCRLVTRLinState:
        """Return the state before any data: Sigma_0 = I."""
        require_setting(known, self.features)
        d = self.features.dimension
        return {"episodes": 0, "sigma": np.eye(d), "xy": np.zeros(d)}

    def plan(self, known: Known, state: UCRLVTRLinState, draw: np.random.Generator) -> Plan:
        """Return the greedy policy of the optimistic values, for one episode."""
        H = known.horizon
        theta = self.estimate(state)
        inverse = np.linalg.inv(state["sigma"])
        values = np.zeros((H + 1, known.states))
        policy = np.zeros((H, known.states), dtype=np.int64)
        for h in reversed(range(H)):
            x = dense_features(self.features) @ values[h + 1]
            # rounding may leave a square below 0
            norm = np.sqrt(np.maximum(((x @ inverse) * x).sum(axis=2), 0.0))
            q = known.base_reward + x @ theta + self.width(H, h + 1, state) * norm
            policy[h] = q.argmax(axis=1)
            values[h] = np.minimum(q.max(axis=1), H)
        return Plan(policy=policy, values=values)

    def estimate(self, state: UCRLVTRLinState) -> Floats:
        """Return theta_k."""
        return np.asarray(np.linalg.solve(state["sigma"], state["xy"]))

    def width(self, horizon: int, h: int, state: UCRLVTRLinState) -> float:
        """Return sqrt(beta_k(delta)), at step h = 1, ..., H."""
        H = horizon
        d = self.features.dimension
        k = max(1, state["episodes"])
        b = self.norm_bound
        beta = b**2 + H**2 * d * math.log(k * H) * math.log(k**2 * H / self.delta) ** 2
        return math.sqrt(self.paper_constant * beta)

    def learn(self, known: Known, state: UCRLVTRLinState, plan: Plan, flow: Flow) -> None:
        """Enter the rows of the episode into the regression."""
        phi = dense_features(self.features)
        values = np.asarray(plan.values)
        rows = zip(flow.step, flow.state, flow.action, flow.next_state, flow.count, strict=True)
        for h, s, a, following, n in rows:
            x = phi[s, a] @ values[h + 1]
            state["sigma"] += n * np.outer(x, x)
            state["xy"] += n * values[h + 1, following] * x
        state["episodes"] += flow.episodes


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRLinAyoub(UCRLVTRLin):
    """UCRL-VTR-LIN with the radius of the published code of Ayoub et al.; not the letter's.

    It is proved for targets of range H - h + 1, and ``paper_constant`` plays no part.
    """

    def width(self, horizon: int, h: int, state: UCRLVTRLinState) -> float:
        """Return sqrt(beta_{k,h}(delta)), at step h = 1, ..., H."""
        logdet = float(np.linalg.slogdet(state["sigma"])[1])
        noise = math.sqrt(2 * math.log(1 / self.delta) + logdet)
        return (horizon - h + 1) / 2 * noise + self.norm_bound


@lru_cache(maxsize=16)
def dense_features(features: FeatureMap) -> Floats:
    """Return the features as phi[s, a, j, s'], so that ``phi @ V`` is phi_V(s, a) [S, A, d]."""
    require_kind("features", features, FeatureMap)
    coordinates = []
    for group, size in enumerate(features.sizes):
        for j in range(size):
            unit = np.zeros((features.groups, features.width))
            unit[group, j] = 1.0
            coordinates.append(features.kernel(unit))
    return np.stack(coordinates, axis=2)

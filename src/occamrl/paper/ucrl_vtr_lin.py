r"""UCRL-VTR-LIN for linear kernel MDPs, to the letter (section 3, "The Base Algorithm"; Jia et al. 2020).

P*(s'|s,a) = <phi(s,a,s'), theta*> with ||theta*|| <= b. Write phi_V(s,a) = sum over s' of phi(s,a,s') V(s').

    Sigma_0 = I
    for episodes k = 1, 2, ...
        for h = H, ..., 1, with V_{H+1} = 0 and x = phi_{V_{h+1}}(s, a):                                  (M9)
            Q_h(s, a) = r(s, a) + <x, theta_{k-1}> + sqrt(beta_{k-1}(delta)) ||Sigma_{k-1}^{-1/2} x||
            V_h(s) = min { max_a Q_h(s, a), H }
        play a_h = argmax_a Q_h(s_h, a), observe s_1, a_1, ..., s_{H+1}
        for h = 1, ..., H, with x = phi_{V_{h+1}}(s_h, a_h):                                              (M8)
            Sigma_k = Sigma_k + x x^T,  the right-hand side gains V_{h+1}(s_{h+1}) x
        theta_k = Sigma_k^{-1} (right-hand side), the minimiser of the squared loss plus ||theta||^2

with the radius M10, in which the paper leaves the constant c open,

.. math:: \beta_k(\delta) = c\,\big(b^2 + H^2 d \log(kH) \log^2(k^2 H/\delta)\big).

Deviation from the paper: beta_0, of which log 0 would be a part, takes k = 1. Any beta_0 >= b^2 is right, as
Sigma_0 = I and theta_0 = 0. Values need no cut at 0: while the ellipsoid holds theta*, V_h >= V*_h >= 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from occamrl.errors import require_kind, require_number, require_numbers
from occamrl.models.features import FeatureMap
from occamrl.paper.ucrl_vtr import require_setting
from occamrl.protocols import Episode, EpisodeLearner, Floats, Ints, Known


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRLin(EpisodeLearner):
    """Act greedily on values planned optimistically over the confidence ellipsoid of theta*.

    Parameters
    ----------
    features : FeatureMap
        phi, of dimension d.
    norm_bound : float
        b, a bound on ||theta*||.
    delta : float
        The confidence level is 1 - delta.
    paper_constant : float
        c in M10, which the paper hides in O(.).

    Notes
    -----
    State: ``episodes`` k; ``sigma`` Sigma_k [d, d]; ``xy``, the right-hand side [d]; ``values``, V_h of the plan in
    play [H + 1, S].
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    paper_constant: float = 1.0

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        require_numbers(self, 0.0, math.inf, "norm_bound", "paper_constant", open_low=True)
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)

    @property
    def phi(self) -> Floats:
        """The features as one array phi[s, a, j, s'], so that ``phi @ V`` is phi_V(s, a) [S, A, d]."""
        return dense_features(self.features)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: Sigma_0 = I."""
        require_setting(known, self.features.states, self.features.actions)
        d, values = self.features.dimension, np.zeros((known.horizon + 1, known.states))
        return {"episodes": 0, "sigma": np.eye(d), "xy": np.zeros(d), "values": values}

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Return the greedy policy of the optimistic values, and V_1(start) (M9)."""
        H, theta, inverse = known.horizon, self.estimate(state), np.linalg.inv(state["sigma"])
        width = math.sqrt(self.beta(H, state["episodes"]))
        values, policy = state["values"], np.zeros((H, known.states), dtype=np.int64)
        for h in reversed(range(H)):
            x = self.phi @ values[h + 1]
            norm = np.sqrt(np.maximum(((x @ inverse) * x).sum(axis=2), 0.0))
            q = known.base_reward + x @ theta + width * norm
            policy[h] = q.argmax(axis=1)
            values[h] = np.minimum(q.max(axis=1), H)
        return policy, float(values[0, start])

    def estimate(self, state: dict[str, Any]) -> Floats:
        """Return theta_k (M8)."""
        return np.asarray(np.linalg.solve(state["sigma"], state["xy"]), dtype=np.float64)

    def beta(self, horizon: int, k: int) -> float:
        """Return the radius beta_k(delta) of M10."""
        d, b = self.features.dimension, self.norm_bound
        return self.paper_constant * beta_linear(
            horizon=horizon, episodes=k, delta=self.delta, dimension=d, norm_bound=b
        )

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter the rows of the episode into the regression (M8)."""
        values = state["values"]
        for h in range(len(episode.actions)):
            s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
            x = self.phi[s, a] @ values[h + 1]
            state["sigma"] += np.outer(x, x)
            state["xy"] += values[h + 1, following] * x
        state["episodes"] += 1


@lru_cache(maxsize=16)
def dense_features(features: FeatureMap) -> Floats:
    """Return the features as one array."""
    return np.stack([features.kernel(unit) for unit in np.eye(features.dimension)], axis=2)


def beta_linear(*, horizon: int, episodes: int, delta: float, dimension: int, norm_bound: float) -> float:
    """Return beta_k(delta) of M10 with c = 1 after k ``episodes``; k = 0 counts as 1."""
    k = max(1, episodes)
    return norm_bound**2 + horizon**2 * dimension * math.log(k * horizon) * math.log(k**2 * horizon / delta) ** 2

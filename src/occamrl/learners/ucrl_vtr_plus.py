r"""UCRL-VTR+: value-targeted regression weighted by estimated variances, in plain NumPy.

Zhou, Gu and Szepesvari, "Nearly minimax optimal reinforcement learning for linear mixture Markov decision processes",
COLT 2021 (arXiv 2012.08507). P(o | s, a) = <phi(s, a, o), theta> with ||theta|| <= B. With W(o) = bonus(o) +
V_{h+1}(next state of o), x = phi_W(s, a) and z = phi_{W^2}(s, a), before episode k for h = H, ..., 1

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

The paper has one theta, and so one regression, per step; k is the number of its rows, and H in l that of regressions.
Where one theta serves all steps, its regression has all rows, kH of them, and l = ln(4(kH)^2/delta).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import require_choice, require_number, require_numbers
from occamrl.learners.lin_psrl import (
    LARGEST_SUM,
    LinearRival,
    best_actions,
    require_precision,
    transitions,
    values_field,
)
from occamrl.models.features import FeatureMap
from occamrl.protocols import MOST_EPISODES, Episode, EpisodeLearner, Field, Floats, Ints, Kernel, Known


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRPlus(LinearRival, EpisodeLearner):
    r"""UCRL-VTR+ for linear kernels; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.UCRLVTRPlus(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=20)

    Proved, with a theta per step and ``scale`` 1: with probability 1 - delta, regret
    :math:`\tilde O(\sqrt{d^2H^2 + dH^3}\sqrt{KH} + d^2H^3)`, if ||phi_V(s, a)|| <= 1 for every V with values in
    [0, 1]: scale the features, and ``norm_bound`` with them, where that does not hold. Rewards are known; those that
    depend on the outcome are beyond the paper. It is given no number of episodes. Actions whose values are equal, as
    they are where cut at H, are drawn at random.

    Parameters
    ----------
    features : FeatureMap
    norm_bound : float
        B.
    delta : float
    scale : float
        Factor of the three radii.
    kernel : "stationary" | "per_step"
        "per_step" is the paper's.

    Notes
    -----
    State: ``episodes``; ``precision`` [T, 2, d, d], Sigma of x and of z, T = 1 or H; ``targets`` [T, 2, d], their
    right-hand sides; ``values``, V of the plan in play [H + 1, S]. A plan takes O(H S A d^2) operations.
    """

    guarantee = "valid for a theta per step"
    given = ("a norm bound",)

    norm_bound: float
    delta: float = 0.05
    scale: float = 1.0
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, 0.0, math.inf, "norm_bound", open_low=True)
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)
        require_numbers(self, 0.0, math.inf, "scale")
        require_choice("kernel", self.kernel, ("stationary", "per_step"))

    @property
    def plain(self) -> dict[str, Any]:
        """What the counts and flags of a state may be."""
        return {"episodes": (0, MOST_EPISODES)}

    def fields(self, known: Known) -> list[Field]:
        """Return what the arrays of a state hold."""
        d, steps = self.features.dimension, known.horizon if self.kernel == "per_step" else 1
        return [
            Field("precision", (steps, 2, d, d), -LARGEST_SUM, LARGEST_SUM, np.eye(d) / self.norm_bound**2),
            Field("targets", (steps, 2, d), -LARGEST_SUM, LARGEST_SUM),
            values_field(known),
        ]

    def resume(self, known: Known, state: Any) -> None:
        """Refuse a state from a file that this learner cannot have."""
        super().resume(known, state)
        require_precision("precision", state["precision"], self.norm_bound**-2)

    def radii(self, horizon: int, steps: int, k: int) -> tuple[float, float, float]:
        """Return the radii of theta-hat, of theta-hat in the variance, and of theta-tilde, before episode k >= 1."""
        d, h, lam, rows = self.features.dimension, float(horizon), self.norm_bound**-2, k * horizon / steps
        log = math.log(4.0 * rows**2 * steps / self.delta)
        first, last = math.log(1.0 + rows / lam) * log, 4.0 * math.sqrt(d) * log + 1.0  # sqrt(lambda) B = 1
        squares = 8.0 * math.sqrt(d * h**4 * math.log(1.0 + rows * h**4 / (d * lam)) * log) + 4.0 * h**2 * log + 1.0
        both = 8.0 * math.sqrt(d * first) + last, 8.0 * d * math.sqrt(first) + last
        return self.scale * both[0], self.scale * both[1], self.scale * squares

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Return the greedy policy of the optimistic values, and V_1(start)."""
        H, values, policy = known.horizon, state["values"], np.zeros((known.horizon, known.states), dtype=np.int64)
        begins, after, bonus = self.outcomes(known)
        precision = state["precision"][:, 0]
        inverse = np.linalg.inv(precision)
        theta = np.einsum("tij,tj->ti", inverse, state["targets"][:, 0])
        width = self.radii(H, len(precision), state["episodes"] + 1)[0]
        for h in reversed(range(H)):
            t = h % len(precision)
            x = np.add.reduceat((bonus + values[h + 1][after])[:, None] * self.phi, begins[:-1])
            norm = np.sqrt(np.maximum(((x @ inverse[t]) * x).sum(axis=1), 0.0))
            q = known.base_reward + (x @ theta[t] + width * norm).reshape(known.base_reward.shape)
            q = np.clip(q, 0.0, H)
            policy[h], values[h] = best_actions(q, draw), q.max(axis=1)
        return policy, float(values[0, start])

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter the rows of the episode, with weights from the estimates before it."""
        outcomes = self.outcomes(known)
        values, precision, targets = state["values"], state["precision"], state["targets"]
        inverse = np.linalg.inv(precision)
        theta = np.einsum("tmij,tmj->tmi", inverse, targets)
        _, check, squares = self.radii(known.horizon, len(precision), state["episodes"] + 1)
        for h, first, last, o in transitions(outcomes, known, episode):
            t, H = h % len(precision), float(known.horizon)
            w = outcomes.bonus[first:last] + values[h + 1][outcomes.next_state[first:last]]
            x, z = w @ self.phi[first:last], w**2 @ self.phi[first:last]
            variance = min(max(z @ theta[t, 1], 0.0), H**2) - min(max(x @ theta[t, 0], 0.0), H) ** 2
            error = min(H**2, 2.0 * H * check * _norm(x, inverse[t, 0])) + min(H**2, squares * _norm(z, inverse[t, 1]))
            weight = 1.0 / max(H**2 / x.size, variance + error)
            for m, (row, target, by) in enumerate(((x, w[o - first], weight), (z, w[o - first] ** 2, 1.0))):
                precision[t, m] += by * np.outer(row, row)
                targets[t, m] += by * target * row
        state["episodes"] += 1

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[EpisodeLearner]:
        """Small instances on a problem, for the contract checks."""
        features = FeatureMap.tabular(states=mdp.states, actions=mdp.actions)
        return [
            cls(features=features, norm_bound=2.0, scale=0.01),
            cls(features=features, norm_bound=2.0, kernel="per_step"),
        ]


def _norm(x: Floats, inverse: Floats) -> float:
    """Return ||x|| in an inverse of Sigma."""
    return math.sqrt(max(float(x @ inverse @ x), 0.0))

r"""ARL-LIN(norm), to the letter (algorithm 3), with the exact maximum.

    b_1 = b,  delta_1 = delta
    for epochs i = 1, 2, ...
        play UCRL-VTR-LIN, from nothing, with norm bound b_i for k_i episodes at level delta_i
        b_{i+1} = max { ||theta|| : theta in B_{k_i} },
            B_k the ellipsoid of radius sqrt(beta_k(delta_i))
        k_{i+1} = 2 k_i,  delta_{i+1} = delta_i/2

The bound is not forced to fall: b_{i+1} may exceed b_i, and the paper's algorithm plays with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_choice, require_integer
from occamrl.models.features import FeatureMap
from occamrl.paper.ucrl_vtr_lin import UCRLVTRLin, UCRLVTRLinState
from occamrl.protocols import Flow, Known, Learner, Plan


class ARLLinNormState(TypedDict, total=False):
    """Where in its epochs the algorithm is; the beginning of an epoch fills it in."""

    epoch: int  # i
    norm_bound: float  # b_i
    left: int  # episodes of the epoch that are still to be played
    learner: UCRLVTRLinState


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(Learner):
    """Adapt to the norm of theta*.

    Parameters
    ----------
    features, delta, paper_constant
        Of :class:`~occamrl.paper.ucrl_vtr_lin.UCRLVTRLin`.
    norm_bound : float
        b, the first bound.
    initial_episodes : int
        k_1.
    norm_estimate : "maximum" | "sum"
        Erratum. The algorithm asks for the largest norm in the ellipsoid ("maximum"); the proof
        writes ||theta|| + sqrt(beta / lambda_min(Sigma)), an upper bound, as an equality ("sum").
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    paper_constant: float = 1.0
    initial_episodes: int = 16
    norm_estimate: str = "maximum"

    def __post_init__(self) -> None:
        require_choice("norm_estimate", self.norm_estimate, ("maximum", "sum"))
        require_integer("initial_episodes", self.initial_episodes, 1)
        self._base({"norm_bound": self.norm_bound, "epoch": 1})  # checks the other parameters

    def on_features(self, theta: Floats | None) -> UCRLVTRLin:
        """Return the base algorithm with the norm of theta, or with the bound that was given."""
        bound = self.norm_bound
        if theta is not None:
            bound = float(np.linalg.norm(theta))
        return self._base({"norm_bound": bound, "epoch": 1})

    def begin(self, known: Known) -> ARLLinNormState:
        """Return the state at the beginning of epoch 1, with the bound that was given."""
        state: ARLLinNormState = {"epoch": 0, "norm_bound": float(self.norm_bound)}
        self._begin_epoch(known, state)
        return state

    def _begin_epoch(self, known: Known, state: ARLLinNormState) -> None:
        state["epoch"] += 1
        state["left"] = 2 ** (state["epoch"] - 1) * self.initial_episodes
        state["learner"] = self._base(state).begin(known)

    def _base(self, state: ARLLinNormState) -> UCRLVTRLin:
        """Return UCRL-VTR-LIN with norm bound b_i at level delta/2^(i-1)."""
        return UCRLVTRLin(
            features=self.features,
            norm_bound=state["norm_bound"],
            delta=self.delta / 2 ** (state["epoch"] - 1),
            paper_constant=self.paper_constant,
        )

    def plan(self, known: Known, state: ARLLinNormState, draw: np.random.Generator) -> Plan:
        """Plan as UCRL-VTR-LIN with the bound of this epoch."""
        base = self._base(state)
        plan = base.plan(known, state["learner"], draw)
        facts = {"epoch": state["epoch"], "norm_bound": state["norm_bound"]}
        estimate = base.estimate(state["learner"]).tolist()
        diagnostics = {"statistics": estimate, "because": self._because(state)}
        return Plan(policy=plan.policy, values=plan.values, facts=facts, diagnostics=diagnostics)

    def _because(self, state: ARLLinNormState) -> str:
        """Return where the bound that can be relied on comes from."""
        ellipsoid = f"the ellipsoid of epoch {state['epoch'] - 1}"
        if state["norm_bound"] > self.norm_bound:
            return f"as was given: {ellipsoid} says {state['norm_bound']:.4g}."
        if state["epoch"] > 1:
            return f"by {ellipsoid}."
        return "as was given."

    def learn(self, known: Known, state: ARLLinNormState, plan: Plan, flow: Flow) -> None:
        """Enter the rows; when the epoch is over, read the next bound off its ellipsoid."""
        base = self._base(state)
        base.learn(known, state["learner"], plan, flow)
        state["left"] -= flow.episodes
        if state["left"] > 0:
            return
        theta = base.estimate(state["learner"])
        sigma = state["learner"]["sigma"]
        width = base.width(known.horizon, 1, state["learner"])
        if self.norm_estimate == "maximum":
            state["norm_bound"] = largest_norm(theta, sigma, width**2)
        else:
            smallest = math.sqrt(np.linalg.eigvalsh(sigma)[0])
            state["norm_bound"] = float(np.linalg.norm(theta) + width / smallest)
        self._begin_epoch(known, state)


def largest_norm(theta: Floats, sigma: Floats, beta: float) -> float:
    r"""Return max ||theta'|| over (theta' - theta)^T Sigma (theta' - theta) <= beta, exactly.

    By strong duality, with the eigenvalues :math:`s_1 \le s_2 \le \dots` of Sigma and
    :math:`g = U^\top\theta`, the square is
    :math:`\min_{\mu \ge 1/s_1} \mu\beta + \sum_j \mu s_j g_j^2/(\mu s_j - 1)`, convex in mu with
    derivative :math:`\beta - \sum_j s_j g_j^2/(\mu s_j - 1)^2`. The search is over
    o = mu s_1 - 1 on a logarithmic scale.
    """
    s, axes = np.linalg.eigh(sigma)
    weight = s * (axes.T @ theta) ** 2  # s_j g_j^2
    s_kept = s[weight > 0.0]
    weight = weight[weight > 0.0]
    # the centre is 0: the farthest point lies along the longest axis
    if not weight.size:
        return math.sqrt(beta / s[0])
    # the derivative is not negative here, as mu s_j - 1 >= o
    high = math.sqrt(weight.sum() / beta)
    low = 1e-32 * high
    for _ in range(200):
        middle = math.sqrt(low * high)
        excess = (s_kept - s[0] + middle * s_kept) / s[0]  # mu s_j - 1
        if (weight / excess**2).sum() > beta:
            low = middle
        else:
            high = middle
    mu = (1 + high) / s[0]
    excess = (s_kept - s[0] + high * s_kept) / s[0]
    return math.sqrt(mu * beta + (mu * weight / excess).sum())

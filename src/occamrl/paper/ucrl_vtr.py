r"""UCRL-VTR over a finite family of kernels, to the letter (section 2 and appendix A.1).

    for episodes k = 1, 2, ...
        P_k = argmax { V*_{P,1}(s_1) : P in B_{k-1} }
        play the greedy policy of V*_{P_k,h}, observe s_1, a_1, ..., s_{H+1}
        L_k(P) = sum over rows of (V_{h+1}(s_{h+1}) - (P V_{h+1})(s_h, a_h))^2
        L_k(P, P') = sum over rows of ((P V_{h+1})(s_h, a_h) - (P' V_{h+1})(s_h, a_h))^2
        Phat_k = argmin { L_k(P) : P in F }
        B_k = { P in F : L_k(P, Phat_k) <= beta_k(delta) }

with the radius

.. math:: \beta_k(\delta) = 8 H^2 \log(|F|/\delta) \quad\text{(finite F)}, \qquad
   8 H^2 \log\frac{2 N(F, \alpha)}{\delta}
   + 4 H^2 \Big(2 + \sqrt{2 \log\tfrac{4 kH (kH + 1)}{\delta}}\Big) \quad\text{(infinite F)}.

With z the vector of (P V)(s, a) over all P, both sums follow from sum z z', sum y z and sum y^2.

The learner is that of finite F; :func:`beta_infinite` is the other radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypedDict

import numpy as np

from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError, require_delta, require_kind, require_undiscounted
from occamrl.models.families import AggregationFamily, FiniteFamily, LinearFamily
from occamrl.models.features import FeatureMap
from occamrl.protocols import Flow, Known, Learner, Plan


class UCRLVTRState(TypedDict):
    """Sums over rows; z is the vector of (P V)(s, a) over all n members P."""

    episodes: int  # k
    zz: Floats  # [n, n]
    yz: Floats  # [n]
    yy: float


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(Learner):
    """Play the most optimistic kernel within beta of the least-squares estimate.

    Parameters
    ----------
    family : FiniteFamily
        F.
    delta : float
        P* is in B_k in all episodes with probability 1 - delta.
    """

    family: FiniteFamily
    delta: float = 0.05

    def __post_init__(self) -> None:
        require_kind("family", self.family, FiniteFamily)
        require_delta(self.delta)

    def begin(self, known: Known) -> UCRLVTRState:
        """Return the state before any data: every loss and distance is zero, so that B_0 = F."""
        require_setting(known, self.family.features)
        n = self.family.size
        return {"episodes": 0, "zz": np.zeros((n, n)), "yz": np.zeros(n), "yy": 0.0}

    def plan(self, known: Known, state: UCRLVTRState, draw: np.random.Generator) -> Plan:
        """Plan one episode: from each start s_1, for the most optimistic member of B_{k-1}."""
        values, policies = optimal_values(self.family, known)
        inside = self.confidence_set(known, state)
        member = np.where(inside[:, None], values[:, 0], -np.inf).argmax(axis=0)  # [S]
        plans = {m: Plan(policy=policies[m], values=values[m]) for m in member.tolist()}
        starts = {s: plans[m] for s, m in enumerate(member.tolist())}
        # the plan itself is for a start that is not told beforehand: the likeliest
        likely = 0 if known.initial is None else int(known.initial.argmax())
        return replace(starts[likely], starts=starts)

    def losses(self, state: UCRLVTRState) -> Floats:
        """Return L_k(P) of every member."""
        return np.asarray(state["yy"] - 2.0 * state["yz"] + np.diag(state["zz"]))

    def confidence_set(self, known: Known, state: UCRLVTRState) -> Bools:
        """Return which members are in B_k."""
        # L_k(P, P'), the sum of (z_P - z_P')^2, has three entries of the sum of z z'
        zz = state["zz"]
        estimate = int(self.losses(state).argmin())
        distances = np.diag(zz) - 2.0 * zz[estimate] + zz[estimate, estimate]
        return np.asarray(distances <= self.beta(known.horizon))

    def beta(self, horizon: int) -> float:
        """Return the radius beta_k(delta), the same for all k."""
        return 8 * horizon**2 * math.log(self.family.size / self.delta)

    def learn(self, known: Known, state: UCRLVTRState, plan: Plan, flow: Flow) -> None:
        """Enter the rows; their value functions are those of the plan."""
        following = np.asarray(plan.values)[flow.step + 1]  # V_{h+1} [rows, S]
        kernels = dense_kernels(self.family)[:, flow.state, flow.action]  # [n, rows, S]
        z = np.einsum("nrs,rs->nr", kernels, following)
        y = following[np.arange(flow.step.size), flow.next_state]
        state["zz"] += (z * flow.count) @ z.T
        state["yz"] += z @ (flow.count * y)
        state["yy"] += float(flow.count @ y**2)
        state["episodes"] += flow.episodes


def beta_infinite(
    family: LinearFamily | AggregationFamily,
    *,
    horizon: int,
    episodes: int,
    delta: float,
    cover_scales: str = "dyadic",
) -> float:
    """Return beta_k(delta) for an infinite class after k ``episodes``; k = 0 counts as 1.

    Erratum: the paper covers F at scale 1/(kH) for every k ("per_episode"), but its union bound
    pays for one cover. "dyadic" takes the largest 2^-j <= 1/(kH) at level delta/((j+1)(j+2)); these
    levels add up to delta.
    """
    rows = max(1, episodes) * horizon  # kH
    scale = 1 / rows
    level = delta
    if cover_scales == "dyadic":
        j = (rows - 1).bit_length()  # 2^-j is the largest power that does not exceed 1/(kH)
        scale = 0.5**j
        level = delta / ((j + 1) * (j + 2))
    discretisation = 2 + math.sqrt(2 * math.log(4 * rows * (rows + 1) / level))
    entropy = family.log_covering_number(scale)
    return 8 * horizon**2 * (entropy + math.log(2 / level)) + 4 * horizon**2 * discretisation


@lru_cache(maxsize=16)
def dense_kernels(family: FiniteFamily) -> Floats:
    """Return the members of a family as one array P[n, s, a, s']."""
    return np.stack([family.kernel(member) for member in range(family.size)])


@lru_cache(maxsize=16)
def optimal_values(family: FiniteFamily, known: Known) -> tuple[Floats, Ints]:
    """Return V*_{P,h}(s) [n, H + 1, S] of every member P and its greedy policy [n, H, S].

    By backward induction. Steps count from 0 here: ``values[:, h]`` is V_{h+1} of the formulas, and
    ``values[:, H]`` is zero.
    """
    n = family.size
    H = known.horizon
    kernels = dense_kernels(family)
    values = np.zeros((n, H + 1, known.states))
    policies = np.zeros((n, H, known.states), dtype=np.int64)
    for h in reversed(range(H)):
        q = known.base_reward + (kernels @ values[:, h + 1, None, :, None])[..., 0]  # r + P V_{h+1}
        values[:, h] = q.max(axis=2)
        policies[:, h] = q.argmax(axis=2)
    return values, policies


def require_setting(known: Known, features: FeatureMap) -> None:
    """Refuse what is outside the paper's setting: known rewards r(s, a) that are not discounted."""
    features.attach(known)  # refuses a problem of other sizes
    require_undiscounted(known)
    if not known.rewards_known or known.transition_rewards is not None:
        got = "rewards on transitions" if known.rewards_known else "unknown rewards"
        expected = "known rewards r(s, a), as the paper assumes"
        raise ParameterError("rewards", got=got, expected=expected)

r"""UCRL-VTR over a family of kernels, to the letter (section 2 and appendix A.1).

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

Of lists, with z the vector of (P V)(s, a) over all P, both sums follow from sum z z', sum y z and
sum y^2. Of classes with real parameters the minimum and the maximum are searched
(:mod:`occamrl.paper.real_classes`).

**Covers.** The truth may lie between the grid points, its nearest one P_0 within the cover radius r
of it. The grid is played as a list, with the radius that keeps P_0 in B_k (M6):

.. math:: \beta_k = \Big(\sqrt{8 H^2 \log(2|F|/\delta) + 3 k H^3 r^2 + 2 H^2 \log(2/\delta)}
    + r H \sqrt{kH}\Big)^2 .
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypedDict

import numpy as np

from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError, require_delta, require_kind, require_undiscounted
from occamrl.models.families import FiniteFamily
from occamrl.models.features import FeatureMap
from occamrl.models.model import ParametricLadder
from occamrl.paper.real_classes import RealClass, RealState, add_rows
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
    family : FiniteFamily, or ladder of one class with real parameters
        F: a list, a cover, or ``model.ladder(...).only(m)``.
    delta : float
        P* is in B_k in all episodes with probability 1 - delta.
    lipschitz : mapping, optional
        Of real parameters: how far the kernel moves by each, in sup over (s, a) of sum over s'.
        Measured where it is not given.
    """

    family: FiniteFamily | ParametricLadder
    delta: float = 0.05
    lipschitz: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.family, ParametricLadder):
            require_kind("family", self.family, FiniteFamily)
        elif self.family.classes > 1:
            expected = "one class, such as ladder.only(1); ARLGen takes several"
            raise ParameterError("family", got=f"{self.family.classes} classes", expected=expected)
        require_delta(self.delta)

    @cached_property
    def real(self) -> RealClass | None:
        """The class, where parameters are real."""
        if isinstance(self.family, ParametricLadder):
            return RealClass(self.family, self.lipschitz)
        return None

    @property
    def members(self) -> FiniteFamily:
        """The list, where the class is one."""
        if isinstance(self.family, ParametricLadder):
            raise ParameterError("family", got="real parameters", expected="a list of kernels")
        return self.family

    def begin(self, known: Known) -> UCRLVTRState | RealState:
        """Return the state before any data: every loss and distance is zero, so that B_0 = F."""
        if self.real is not None:
            require_rewards_of_pairs(known)
            return self.real.begin(known)
        require_setting(known, self.members.features)
        n = self.members.size
        return {"episodes": 0, "zz": np.zeros((n, n)), "yz": np.zeros(n), "yy": 0.0}

    def plan(self, known: Known, state: Any, draw: np.random.Generator) -> Plan:
        """Plan one episode: from each start s_1, for the most optimistic member of B_{k-1}."""
        if self.real is not None:
            return self._plan_real(self.real, known, state)
        values, policies = optimal_values(self.members, known)
        inside = self.confidence_set(known, state)
        member = np.where(inside[:, None], values[:, 0], -np.inf).argmax(axis=0)  # [S]
        plans = {m: Plan(policy=policies[m], values=values[m]) for m in member.tolist()}
        starts = {s: plans[m] for s, m in enumerate(member.tolist())}
        # the plan itself is for a start that is not told beforehand: the likeliest
        likely = 0 if known.initial is None else int(known.initial.argmax())
        return replace(starts[likely], starts=starts)

    def _plan_real(self, real: RealClass, known: Known, state: RealState) -> Plan:
        """Plan one episode over a class with real parameters, as far as the search finds."""
        estimate = real.estimate(state)[0]
        radius = self.beta(known.horizon, state["episodes"])
        possible = np.flatnonzero(known.may_start).tolist()
        starts = {}
        for s in possible:
            point = real.optimistic(known, state, estimate, radius, s)
            member = real.solved(known, point)
            diagnostics = {"parameters": real.parameters(point)}
            starts[s] = Plan(policy=member.policy, values=member.values, diagnostics=diagnostics)
        likely = possible[0] if known.initial is None else int(known.initial.argmax())
        return replace(starts[likely], starts=starts)

    def losses(self, state: UCRLVTRState) -> Floats:
        """Return L_k(P) of every member."""
        return np.asarray(state["yy"] - 2.0 * state["yz"] + np.diag(state["zz"]))

    def confidence_set(self, known: Known, state: Any) -> Bools:
        """Return which members are in B_k."""
        # L_k(P, P'), the sum of (z_P - z_P')^2, has three entries of the sum of z z'
        zz = state["zz"]
        estimate = int(self.losses(state).argmin())
        distances = np.diag(zz) - 2.0 * zz[estimate] + zz[estimate, estimate]
        return np.asarray(distances <= self.beta(known.horizon, state["episodes"]))

    def beta(self, horizon: int, episodes: int = 0) -> float:
        """Return the radius beta_k(delta), for lists the same for all k."""
        H = horizon
        if self.real is not None:
            return beta_infinite(self.real, horizon=H, episodes=episodes, delta=self.delta)
        if self.members.reach > 0.0:
            bias = self.members.reach * H
            rows = episodes * H
            list_of_points = 8 * H**2 * math.log(2 * self.members.size / self.delta)
            between = 3 * rows * bias**2 + 2 * H**2 * math.log(2 / self.delta)
            return (math.sqrt(list_of_points + between) + bias * math.sqrt(rows)) ** 2
        return 8 * horizon**2 * math.log(self.members.size / self.delta)

    def learn(self, known: Known, state: Any, plan: Plan, flow: Flow) -> None:
        """Enter the rows; their value functions are those of the plan."""
        if self.real is not None:
            add_rows(state, np.asarray(plan.values), known, flow)
            return
        following = np.asarray(plan.values)[flow.step + 1]  # V_{h+1} [rows, S]
        kernels = dense_kernels(self.members)[:, flow.state, flow.action]  # [n, rows, S]
        z = np.einsum("nrs,rs->nr", kernels, following)
        y = following[np.arange(flow.step.size), flow.next_state]
        state["zz"] += (z * flow.count) @ z.T
        state["yz"] += z @ (flow.count * y)
        state["yy"] += float(flow.count @ y**2)
        state["episodes"] += flow.episodes


class HasCoveringNumbers(Protocol):
    """An infinite class of kernels."""

    def log_covering_number(self, alpha: float) -> float:
        """Return a bound on log N(F, alpha)."""


def beta_infinite(
    family: HasCoveringNumbers,
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
    require_kind("family", family, FiniteFamily)
    require_kind("known", known, Known)
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
    require_rewards_of_pairs(known)


def require_rewards_of_pairs(known: Known) -> None:
    """Refuse rewards that are not known, not r(s, a), or discounted."""
    require_undiscounted(known)
    if not known.rewards_known or known.transition_rewards is not None:
        got = "rewards on transitions" if known.rewards_known else "unknown rewards"
        expected = "known rewards r(s, a), as the paper assumes; or RewardsPerPair around it"
        raise ParameterError("rewards", got=got, expected=expected)

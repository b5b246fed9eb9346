r"""UCRL-VTR over a finite family of kernels, to the letter (section 2, "The Base Algorithm", and appendix A.1).

    for episodes k = 1, 2, ...
        P_k = argmax { V*_{P,1}(s_1^k) : P in B_{k-1} }                               (M5)
        play the greedy policy of V*_{P_k,h}, observe s_1, a_1, ..., s_{H+1}
        L_k(P) = sum over rows of (V_{h+1}(s_{h+1}) - (P V_{h+1})(s_h, a_h))^2         (M1)
        Phat_k = argmin { L_k(P) : P in F }                                            (M3)
        B_k = { P in F : L_k(P, Phat_k) <= beta_k(delta) }                             (M2, M4)

with the radius M6,

.. math:: \beta_k(\delta) = 8 H^2 \log(|F|/\delta) \quad\text{(finite F)}, \qquad
   8 H^2 \log\frac{2 N(F, \alpha)}{\delta} + 4 H^2 \Big(2 + \sqrt{2 \log\tfrac{4 kH (kH + 1)}{\delta}}\Big)
   \quad\text{(infinite F)}.

A row depends on the member in play, the step and the state alone, so rows are kept by (member, h, s), and distances are
summed anew only when the estimate changes.

Deviation from the paper: minimum and maximum over an infinite family run over the finite list of members that is
given. The logarithms of the infinite form take k = 1 for k = 0, which changes nothing: without rows B_0 = F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import ParameterError, ShapeError, require_choice, require_kind, require_number
from occamrl.models.family import Family
from occamrl.models.finite import FiniteFamily
from occamrl.protocols import Episode, EpisodeLearner, Floats, Ints, Known


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTR(EpisodeLearner):
    """Play the most optimistic kernel within beta of the least-squares estimate.

    Parameters
    ----------
    family : FiniteFamily
        F, or the members that stand for ``infinite_class``.
    delta : float
        P* is in B_k in all episodes with probability 1 - delta.
    infinite_class : Family, optional
        The infinite class that the members of ``family`` are taken from; its covering numbers enter M6. By default the
        family is all of F, and the finite form of M6 is used.
    cover_scales : "dyadic" | "per_episode"
        Erratum. The paper covers F at scale 1/(kH) for every k ("per_episode"), but its union bound pays for one cover.
        "dyadic" takes the largest 2^-j <= 1/(kH) at level delta/((j+1)(j+2)); these levels add up to delta.

    Notes
    -----
    State: ``episodes`` k; ``member`` in play; ``losses`` L_k(P) [n]; ``estimate``, the number of Phat_k; ``distances``
    L_k(P, Phat_k) [n]; and the rows, ``cell`` [n, H, S] being the place of (member, h, s) in ``visits`` [C] and
    ``predictions`` [C, n], -1 for none.
    """

    family: FiniteFamily
    delta: float = 0.05
    infinite_class: Family | None = None
    cover_scales: str = "dyadic"

    def __post_init__(self) -> None:
        require_kind("family", self.family, FiniteFamily)
        if self.infinite_class is not None and not isinstance(self.infinite_class, Family):
            raise ParameterError("infinite_class", got=type(self.infinite_class).__name__, expected="a family")
        require_choice("cover_scales", self.cover_scales, ("dyadic", "per_episode"))
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: every loss and distance is zero, so that B_0 = F."""
        require_setting(known, self.family.features.states, self.family.features.actions)
        n = self.family.size
        return {
            "episodes": 0,
            "member": -1,
            "estimate": 0,
            "losses": np.zeros(n),
            "distances": np.zeros(n),
            "cell": np.full((n, known.horizon, known.states), -1),
            "visits": np.zeros(0),
            "predictions": np.zeros((0, n)),
        }

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Return the optimal policy of the most optimistic member of B_{k-1}, and its value at ``start`` (M5)."""
        values, policies = optimal_values(self.family, known)
        inside = self.confidence_set(known, state)
        state["member"] = int(np.where(inside, values[:, 0, start], -np.inf).argmax())
        return policies[state["member"]], float(values[state["member"], 0, start])

    def confidence_set(self, known: Known, state: dict[str, Any]) -> NDArray[np.bool_]:
        """Return which members are in B_k (M4)."""
        estimate = int(state["losses"].argmin())  # M3
        if estimate != state["estimate"]:
            gaps = state["predictions"] - state["predictions"][:, [estimate]]
            state["estimate"], state["distances"] = estimate, state["visits"] @ gaps**2  # M2
        inside: NDArray[np.bool_] = state["distances"] <= self.beta(known.horizon, state["episodes"])
        return inside

    def beta(self, horizon: int, k: int) -> float:
        """Return the radius beta_k(delta) of M6."""
        if self.infinite_class is None:
            return 8 * horizon**2 * math.log(self.family.size / self.delta)
        return beta_infinite(
            self.infinite_class, horizon=horizon, episodes=k, delta=self.delta, cover_scales=self.cover_scales
        )

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter the rows of the episode; their value functions are those of the member in play."""
        member, kernels = state["member"], dense_kernels(self.family)
        values = optimal_values(self.family, known)[0][member]
        for h in range(len(episode.actions)):
            s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
            cell = state["cell"][member, h, s]
            if cell < 0:
                cell = state["cell"][member, h, s] = len(state["visits"])
                predicted = kernels[:, s, a] @ values[h + 1]  # (P V_{h+1})(s_h, a_h) of every member
                state["visits"] = np.append(state["visits"], 0.0)
                state["predictions"] = np.vstack([state["predictions"], predicted])
            z = state["predictions"][cell]
            state["visits"][cell] += 1
            state["losses"] += (values[h + 1, following] - z) ** 2  # M1
            state["distances"] += (z - z[state["estimate"]]) ** 2
        state["episodes"] += 1


def beta_infinite(family: Family, *, horizon: int, episodes: int, delta: float, cover_scales: str = "dyadic") -> float:
    """Return beta_k(delta) of M6 for an infinite class after k ``episodes``; k = 0 counts as 1."""
    rows = max(1, episodes) * horizon  # kH
    scale, level = 1 / rows, delta
    if cover_scales == "dyadic":
        j = (rows - 1).bit_length()  # 2^-j is the largest power that does not exceed 1/(kH)
        scale, level = 0.5**j, delta / ((j + 1) * (j + 2))
    discretisation = 2 + math.sqrt(2 * math.log(4 * rows * (rows + 1) / level))
    entropy = family.log_covering_number(scale)
    return 8 * horizon**2 * (entropy + math.log(2 / level)) + 4 * horizon**2 * discretisation


@lru_cache(maxsize=16)
def dense_kernels(family: FiniteFamily) -> Floats:
    """Return the members of a family as one array P[n, s, a, s']."""
    return np.stack([family.kernel(member) for member in range(family.size)])


@lru_cache(maxsize=16)
def optimal_values(family: FiniteFamily, known: Known) -> tuple[Floats, Ints]:
    """Return V*_{P,h}(s) [n, H + 1, S] of every member P and its greedy policy [n, H, S], by backward induction.

    Steps count from 0 here: ``values[:, h]`` is V_{h+1} of the formulas, and ``values[:, H]`` is zero.
    """
    kernels, (n, H, S) = dense_kernels(family), (family.size, known.horizon, known.states)
    values, policies = np.zeros((n, H + 1, S)), np.zeros((n, H, S), dtype=np.int64)
    for h in reversed(range(H)):
        q = known.base_reward + (kernels @ values[:, h + 1, None, :, None])[..., 0]  # r + P V_{h+1}
        values[:, h], policies[:, h] = q.max(axis=2), q.argmax(axis=2)
    return values, policies


def require_setting(known: Known, states: int, actions: int) -> None:
    """Refuse what is outside the paper's setting: rewards are known and depend on (s, a) alone."""
    if (known.states, known.actions) != (states, actions):
        got, expected = f"S={states}, A={actions}", f"the problem's S={known.states}, A={known.actions}"
        raise ShapeError("family or features", got=got, expected=expected)
    if not known.rewards_known or known.transition_rewards is not None:
        got = "rewards on transitions" if known.rewards_known else "unknown rewards"
        raise ParameterError("rewards", got=got, expected="known rewards r(s, a), as the paper assumes")

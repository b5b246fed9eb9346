r"""RLSVI for tabular problems: value iteration on counts with Gaussian noise (Russo, NeurIPS 2019, arXiv 1906.02870v3).

Before episode k, for h = H, ..., 1 with V_{H+1} = 0 and W(o) = bonus(o) + V_{h+1}(next state of o),

.. math:: Q_h(s, a) = r(s, a) + \frac{1}{n + 1}\sum_o c_o W(o) + \xi_h(s, a), \quad
    \xi_h(s, a) \sim N\Big(0, \frac{\beta_k}{n + 1}\Big), \quad \beta_k = \tfrac 12 S H^3 \ln(2 H S A k),

where c_o counts outcomes and n visits of (s, a). Least squares with a prior at zero is where n + 1 comes from: what is
rare is believed to be worth nothing, apart from its noise. Values are not cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import implements
from occamrl._core.features import outcome_of
from occamrl._core.loop import CHANGED, PLANNED, Path, learn, plan
from occamrl._core.rng import next_normal
from occamrl.errors import require_choice, require_numbers
from occamrl.learners.ucbvi import MOST_EPISODES, begin_stream, plays_table, table_fields, tabular_outcomes
from occamrl.protocols import Field, Floats, Ints, Kernel, Known, Learner, Outcomes


class RLSVIModel(NamedTuple):
    """Outcomes, rewards and the scale of the noise."""

    outcomes: Outcomes
    base_reward: Floats  # [S*A]
    scale: float


class RLSVIState(NamedTuple):
    """Counts, and the plan in play."""

    counts: Ints  # [T, O] how often each outcome was seen, T = 1 or H
    episodes: Ints  # [1]
    values: Floats  # [H + 1, S] V
    policy: Ints  # [H, S]
    stream: Ints  # [3]


plays_table(RLSVIState)


@dataclass(frozen=True, kw_only=True, eq=False)
class RLSVI(Learner):
    r"""Randomised least-squares value iteration; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.RLSVI(scale=0.01), problem, episodes=50)

    Proved, with one kernel and one set of counts per step (``kernel="per_step"``) and ``scale`` 1: expected regret
    :math:`\tilde O(H^3 S^{3/2}\sqrt{AK})` in the worst case. The paper estimates rewards by the same regression; here
    they are known. By default one kernel serves all steps and its counts are pooled. It is given nothing.

    Parameters
    ----------
    scale : float
        Factor of the standard deviation of the noise.
    kernel : "stationary" | "per_step"
    """

    guarantee = "valid for counts per step"
    given = ()

    scale: float = 1.0
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_numbers(self, 0.0, 1e6, "scale")
        require_choice("kernel", self.kernel, ("stationary", "per_step"))

    def model(self, known: Known) -> RLSVIModel:
        """Return the constants of the compiled functions."""
        reward = np.require(known.base_reward.ravel(), requirements="W")
        return RLSVIModel(tabular_outcomes(known), reward, float(self.scale))

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        steps = known.horizon if self.kernel == "per_step" else 1
        size = tabular_outcomes(known).next_state.size
        return [
            Field("counts", (steps, size), 0, MOST_EPISODES * known.horizon),
            Field("episodes", (1,), 0, MOST_EPISODES),
            Field("values", (known.horizon + 1, known.states), -np.inf, np.inf),
            *table_fields(known),
        ]

    def begin(self, known: Known) -> RLSVIState:
        """Return a fresh state."""
        return RLSVIState(*(each.make() for each in self.fields(known)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(scale=0.1), cls(kernel="per_step")]


@implements(plan, RLSVIState, argument=1)
def plan_rlsvi(model: RLSVIModel, state: RLSVIState, start: int, key: np.uint64, episode: int) -> int:
    """Draw values before every episode."""
    outcomes, pairs = model.outcomes, model.base_reward.size
    horizon, states = state.policy.shape
    actions, k = pairs // states, float(state.episodes[0] + 1)
    beta = 0.5 * states * float(horizon) ** 3 * math.log(2.0 * horizon * pairs * k)
    begin_stream(state.stream, key, episode)
    for s in range(states):
        state.values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        counts, after = state.counts[h % state.counts.shape[0]], state.values[h + 1]
        for sa in range(pairs):
            total, seen = 0.0, 1
            for o in range(outcomes.start[sa], outcomes.start[sa + 1]):
                seen += counts[o]
                total += counts[o] * (outcomes.bonus[o] + after[outcomes.next_state[o]])
            noise = model.scale * math.sqrt(beta / seen) * next_normal(state.stream)
            q = model.base_reward[sa] + total / seen + noise
            s, a = sa // actions, sa % actions
            if a == 0 or q > state.values[h, s]:
                state.values[h, s] = q
                state.policy[h, s] = a
    return PLANNED | CHANGED


@implements(learn, RLSVIState, argument=1)
def learn_rlsvi(model: RLSVIModel, state: RLSVIState, path: Path, steps: int) -> None:
    """Count."""
    actions = model.base_reward.size // state.policy.shape[1]
    for h in range(steps):
        sa = path.states[h] * actions + path.actions[h]
        o = outcome_of(model.outcomes, sa, path.states[h + 1], path.bonus[h], False)
        if o >= 0:
            state.counts[h % state.counts.shape[0], o] += 1
    state.episodes[0] += 1

r"""RLSVI: randomised least-squares value iteration (Russo, NeurIPS 2019, arXiv 1906.02870v3).

With the counts and targets W of :mod:`occamrl.learners.tabular` and
:math:`\beta_k = \frac12 S H^3 \ln(2 H S A k)`, before episode k for h = H, ..., 1

.. math:: Q_h(s, a) = r(s, a) + \frac{1}{n + 1}\sum_o c_o W(o) + \xi_h(s, a), \quad
    \xi_h(s, a) \sim N(0, \beta_k/(n+1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.errors import require_number, require_undiscounted
from occamrl.evidence.counts import CountState, begin_counts
from occamrl.learners.tabular import count_flow, tabular_outcomes
from occamrl.protocols import Flow, Known, Learner, Plan


class RLSVIState(CountState):
    """Counts of outcomes, and how many episodes were played."""

    episodes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RLSVI(Learner):
    r"""Randomised least-squares value iteration; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.RLSVI(scale=0.01), problem, episodes=50)

    Proved, with counts of each step by itself and ``scale`` 1: expected regret
    :math:`\tilde O(H^3 S^{3/2}\sqrt{AK})` in the worst case. Here one kernel serves all steps, its
    counts are pooled, and rewards are known. It is given nothing. ``scale`` is a factor of the
    standard deviation of the noise.
    """

    guarantee = "valid for counts per step"
    given = ()

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_number("scale", self.scale, 0.0, 1e6)

    def begin(self, known: Known) -> RLSVIState:
        """Return a fresh state."""
        require_undiscounted(known)
        return {**begin_counts(tabular_outcomes(known)), "episodes": 0}

    def plan(self, known: Known, state: RLSVIState, draw: np.random.Generator) -> Plan:
        """Plan one episode on values that are drawn."""
        H = known.horizon
        S = known.states
        A = known.actions
        outcomes = tabular_outcomes(known)
        start = outcomes.start[:-1]
        # the prior counts as one more visit, whose target is 0
        n = np.add.reduceat(state["count"], start) + 1.0
        beta = 0.5 * S * H**3 * math.log(2.0 * H * S * A * (state["episodes"] + 1))
        deviation = self.scale * np.sqrt(beta / n)
        policy = np.zeros((H, S), dtype=np.int64)
        values = np.zeros((H + 1, S))
        for h in reversed(range(H)):
            target = outcomes.bonus + values[h + 1, outcomes.next_state]
            mean = np.add.reduceat(state["count"] * target, start) / n
            noise = deviation * draw.standard_normal(S * A)
            q = (known.base_reward.ravel() + mean + noise).reshape(S, A)
            policy[h] = q.argmax(axis=1)
            values[h] = q.max(axis=1)
        return Plan(policy=policy, values=values)

    def learn(self, known: Known, state: RLSVIState, plan: Plan, flow: Flow) -> None:
        """Count the outcomes of the block."""
        count_flow(state, tabular_outcomes(known), known, flow)
        state["episodes"] += flow.episodes

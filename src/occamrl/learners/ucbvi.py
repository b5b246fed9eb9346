r"""UCBVI: upper confidence bound value iteration.

Azar, Osband and Munos, "Minimax regret bounds for reinforcement learning", ICML 2017 (arXiv
1703.05449). With the counts and targets W of :mod:`occamrl.learners.tabular`, L = ln(5 S A T/delta)
and T = K H, before every episode for h = H, ..., 1

.. math:: Q_h(s, a) \leftarrow \min\{Q_h(s, a), H, r(s, a) + \hat P W(s, a) + b_h(s, a)\},
    \quad Q = H \text{ if } n = 0,

.. math:: b = 7 H L/\sqrt n \ \text{(Hoeffding)}, \qquad
    b = \sqrt{\frac{8 L\,\mathrm{Var}_{\hat P}(W)}{n}} + \frac{14 H L}{3 n} + \sqrt{\frac 8n
    \sum_o \hat P(o) \min\Big\{\frac{100^2 H^3 S^2 A L^2}{N'_{h+1}(s')}, H^2\Big\}}
    \ \text{(Bernstein)},

N'_h(s) counting how often s was the state at step h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.errors import (
    require_choice,
    require_delta,
    require_integer,
    require_number,
    require_undiscounted,
)
from occamrl.evidence.counts import CountState, begin_counts
from occamrl.learners.tabular import best_actions, count_flow, largest_values, tabular_outcomes
from occamrl.protocols import Flow, Known, Learner, Plan


class UCBVIState(CountState):
    """Counts of outcomes, N', and the smallest upper bounds so far."""

    visits: Ints  # [H + 1, S] N'
    upper: Floats  # [H, S, A] Q


@dataclass(frozen=True, kw_only=True, eq=False)
class UCBVI(Learner):
    r"""Upper confidence bound value iteration; see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UCBVI(episodes=50, scale=0.1), problem, episodes=50)

    Proved: with probability 1 - delta, regret :math:`\tilde O(H\sqrt{SAT})` with the Hoeffding
    bonus and :math:`\tilde O(\sqrt{HSAT})` with that of Bernstein, for T large enough, if ``scale``
    is 1, rewards are known and one kernel serves all steps. It is given K.

    Parameters
    ----------
    episodes : int
        K, of which the bonus needs the logarithm.
    bonus : "bernstein" | "hoeffding"
    delta, scale : float
        ``scale`` is a factor of the bonus; below one there is no guarantee.
    """

    guarantee = "valid"
    given = ("K",)

    episodes: int
    bonus: Literal["bernstein", "hoeffding"] = "bernstein"
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integer("episodes", self.episodes, 1)
        require_choice("bonus", self.bonus, ("bernstein", "hoeffding"))
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)

    def begin(self, known: Known) -> UCBVIState:
        """Return a fresh state: nothing was counted, and every upper bound is H."""
        require_undiscounted(known)
        return {
            **begin_counts(tabular_outcomes(known)),
            "visits": np.zeros((known.horizon + 1, known.states), np.int64),
            "upper": largest_values(known),
        }

    def plan(self, known: Known, state: UCBVIState, draw: np.random.Generator) -> Plan:
        """Plan one episode, greedily on the upper bounds."""
        H = known.horizon
        outcomes = tabular_outcomes(known)
        n = np.add.reduceat(state["count"], outcomes.start[:-1])
        law = state["count"] / np.maximum(n, 1)[outcomes.pair]
        upper = state["upper"].copy()
        values = np.zeros((H + 1, known.states))
        for h in reversed(range(H)):
            target = outcomes.bonus + values[h + 1, outcomes.next_state]
            mean = np.add.reduceat(law * target, outcomes.start[:-1])
            if self.bonus == "hoeffding":
                bonus = 7.0 * H * self.log_term(known) / np.sqrt(np.maximum(n, 1))
            else:
                bonus = self.bernstein(known, n, law, target, state["visits"][h + 1])
            bound = known.base_reward.ravel() + mean + self.scale * bonus
            # of what was never tried nothing is known but that it is worth at most H
            bound = np.where(n > 0, bound, float(H))
            upper[h] = np.minimum(upper[h], bound.reshape(known.states, known.actions))
            values[h] = upper[h].max(axis=1)
        return Plan(policy=best_actions(upper, draw), values=values, carry=upper)

    def learn(self, known: Known, state: UCBVIState, plan: Plan, flow: Flow) -> None:
        """Count, and keep the upper bounds that the plan was made with: they never rise."""
        state["upper"][:] = plan.carry
        count_flow(state, tabular_outcomes(known), known, flow)
        np.add.at(state["visits"], (flow.step + 1, flow.next_state), flow.count)

    def log_term(self, known: Known) -> float:
        """Return L."""
        pairs = known.states * known.actions
        return math.log(5.0 * pairs * self.episodes * known.horizon / self.delta)

    def bernstein(
        self, known: Known, n: Ints, law: Floats, target: Floats, next_visits: Ints
    ) -> Floats:
        """Return Bernstein's bonus of every pair [S*A].

        ``n`` [S*A] are visits, ``law`` [O] and ``target`` [O] are P-hat and W, ``next_visits`` [S]
        is N' of the next step.
        """
        H = known.horizon
        L = self.log_term(known)
        outcomes = tabular_outcomes(known)
        start = outcomes.start[:-1]
        mean = np.add.reduceat(law * target, start)
        variance = np.add.reduceat(law * (target - mean[outcomes.pair]) ** 2, start)
        # bounds the squared error of V at next states that were rarely seen, which is at most H^2
        large = 1e4 * H**3 * known.states**2 * known.actions * L**2
        rare = np.minimum(large / np.maximum(next_visits[outcomes.next_state], 1e-9), H**2)
        third = np.sqrt(8.0 * np.add.reduceat(law * rare, start))
        root = np.sqrt(np.maximum(n, 1))
        return np.asarray(
            np.sqrt(8.0 * L * variance) / root + 14.0 * H * L / (3.0 * root**2) + third / root
        )

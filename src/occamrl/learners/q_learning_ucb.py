r"""Q-learning with upper confidence bounds.

Jin, Allen-Zhu, Bubeck and Jordan, "Is Q-learning provably efficient?", NeurIPS 2018 (arXiv
1807.03765v1; its algorithm 1, UCB-Hoeffding, as recalled). At the t-th visit of (s, a) at step h,
with iota = ln(S A T/delta) and T = K H,

.. math:: Q_h(s, a) \leftarrow (1 - \alpha_t) Q_h(s, a)
    + \alpha_t(r + V_{h+1}(s') + c\sqrt{H^3\iota/t}), \quad
    \alpha_t = \frac{H + 1}{H + t}, \quad V_h(s) = \min\{H, \max_a Q_h(s, a)\}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.errors import require_delta, require_integer, require_number, require_undiscounted
from occamrl.learners.tabular import best_actions, largest_values
from occamrl.protocols import Flow, Known, Learner, Plan


class QLearningState(TypedDict):
    """The table, and how often each of its entries was visited."""

    upper: Floats  # [H, S, A] Q
    visits: Ints  # [H, S, A]


@dataclass(frozen=True, kw_only=True, eq=False)
class QLearningUCB(Learner):
    r"""Optimistic Q-learning with the Hoeffding bonus (UCB-H); see the module for its formulas.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.QLearningUCB(episodes=50, scale=0.01), problem, episodes=50)

    Proved: with probability 1 - delta, regret :math:`O(\sqrt{H^4 SAT\iota})` for an absolute
    constant c that the paper leaves open, also where every step has a kernel of its own. It keeps
    no model and takes rewards as they come, so that they need not be known. It is given K as
    ``episodes``; ``scale`` is c.
    """

    guarantee = "valid, c left open"
    given = ("K",)

    episodes: int
    delta: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_integer("episodes", self.episodes, 1)
        require_delta(self.delta)
        require_number("scale", self.scale, 0.0, 1e6)

    def begin(self, known: Known) -> QLearningState:
        """Return a fresh state: every entry is H."""
        require_undiscounted(known)
        upper = largest_values(known)
        return {"upper": upper, "visits": np.zeros(upper.shape, np.int64)}

    def plan(self, known: Known, state: QLearningState, draw: np.random.Generator) -> Plan:
        """Plan one episode, greedily on the table."""
        # the table may exceed H, its bonus being added again and again; values may not
        values = np.zeros((known.horizon + 1, known.states))
        values[:-1] = np.minimum(state["upper"].max(axis=2), known.horizon)
        return Plan(policy=best_actions(state["upper"], draw), values=values)

    def learn(self, known: Known, state: QLearningState, plan: Plan, flow: Flow) -> None:
        """Move the entries visited; V of the next step is the one from before this block."""
        H = known.horizon
        iota = math.log(known.states * known.actions * H * self.episodes / self.delta)
        values = np.asarray(plan.values)
        # a row may stand for several visits: one update for each
        for row in np.repeat(np.arange(flow.count.size), flow.count).tolist():
            h = int(flow.step[row])
            entry = (h, int(flow.state[row]), int(flow.action[row]))
            state["visits"][entry] += 1
            t = int(state["visits"][entry])
            target = float(flow.reward[row]) + values[h + 1, flow.next_state[row]]
            target += self.scale * math.sqrt(H**3 * iota / t)
            state["upper"][entry] += (H + 1.0) / (H + t) * (target - state["upper"][entry])

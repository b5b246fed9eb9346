"""Reference points that learn nothing: the optimal policy, and random actions.

Both play one policy forever, so they share a file. The regret of the optimal policy is 0, and that
of random actions is what an episode loses that nobody plans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occamrl.errors import ShapeError
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import MOST_EPISODES, Flow, Known, Learner, Plan, State


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformRandom(Learner):
    """Draw every allowed action uniformly; regret is that of the random policy, exactly.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UniformRandom(), problem, episodes=50)
    """

    def begin(self, known: Known) -> State:
        """Return the empty state."""
        return {}

    def plan(self, known: Known, state: State, draw: np.random.Generator) -> Plan:
        """Return the uniform policy, forever."""
        law = known.allowed / known.allowed.sum(axis=1, keepdims=True)
        return Plan(policy=np.tile(law, (known.horizon, 1, 1)), episodes=MOST_EPISODES)

    def learn(self, known: Known, state: State, plan: Plan, flow: Flow) -> None:
        """Learn nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimal(Learner):
    """Follow the optimal policy of ``mdp``, with zero regret.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Optimal(mdp=problem.mdp), problem, episodes=50)
    >>> result.total_regret
    0.0
    """

    mdp: FiniteMDP

    def begin(self, known: Known) -> State:
        """Return the empty state."""
        sizes = (self.mdp.horizon, self.mdp.states, self.mdp.actions)
        asked = (known.horizon, known.states, known.actions)
        if sizes != asked:
            raise ShapeError("mdp", got=f"H, S, A = {sizes}", expected=f"the problem's {asked}")
        return {}

    def plan(self, known: Known, state: State, draw: np.random.Generator) -> Plan:
        """Return the optimal policy, forever."""
        policy = self.mdp.optimal_policy
        return Plan(policy=policy, episodes=MOST_EPISODES, values=self.mdp.optimal_values)

    def learn(self, known: Known, state: State, plan: Plan, flow: Flow) -> None:
        """Learn nothing."""

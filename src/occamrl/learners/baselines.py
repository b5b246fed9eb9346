"""Baselines that learn nothing: the optimal policy, and uniformly random actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import ShapeError
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import MOST_EPISODES, Flow, Known, Learner, Plan


class _Constant(Learner):
    """A learner with one plan."""

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the empty state."""
        return {}

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Learn nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformRandom(_Constant):
    """Draw every action uniformly; regret is that of the random policy, exactly.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UniformRandom(), problem, episodes=50)
    """

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Return the uniform policy, for ever."""
        sizes = known.horizon, known.states, known.actions
        return Plan(policy=np.full(sizes, 1.0 / known.actions), episodes=MOST_EPISODES)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimal(_Constant):
    """Follow the optimal policy of ``mdp``; its regret is zero.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Optimal(mdp=problem.mdp), problem, episodes=50)
    >>> result.total_regret
    0.0
    """

    mdp: FiniteMDP

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the empty state."""
        sizes = [(each.horizon, each.states, each.actions) for each in (self.mdp, known)]
        if sizes[0] != sizes[1]:
            got, expected = ("H={}, S={}, A={}".format(*each) for each in sizes)
            raise ShapeError("mdp", got=got, expected=f"the problem's {expected}")
        return {}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Return the optimal policy, for ever."""
        return Plan(policy=self.mdp.optimal_policy, episodes=MOST_EPISODES, values=self.mdp.optimal_values)

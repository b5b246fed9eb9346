"""Optimal: a reference point that was told the truth. Its regret is zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints, Known, Learner
from occamrl.errors import ShapeError
from occamrl.kernels.compile import implements
from occamrl.kernels.episodes import CHANGED, PLANNED, follows_policy, observe, plan, planned_value
from occamrl.problems.finite_mdp import FiniteMDP


class OptimalModel(NamedTuple):
    """The optimal values."""

    values: Floats  # [H + 1, S]


class OptimalState(NamedTuple):
    """The optimal policy, and whether it has been announced."""

    policy: Ints  # [H, S]
    counters: Ints  # [1] plans


follows_policy(OptimalState)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimal(Learner):
    """Follow the optimal policy of ``mdp``."""

    mdp: FiniteMDP

    def model(self, known: Known) -> OptimalModel:
        """Return the optimal values."""
        if (known.horizon, known.states, known.actions) != (self.mdp.horizon, self.mdp.states, self.mdp.actions):
            raise ShapeError(
                "mdp",
                got=f"H={self.mdp.horizon}, S={self.mdp.states}, A={self.mdp.actions}",
                expected=f"the problem's H={known.horizon}, S={known.states}, A={known.actions}",
            )
        return OptimalModel(np.array(self.mdp.optimal_values))

    def begin(self, known: Known) -> OptimalState:
        """Return the policy as a state."""
        return OptimalState(np.array(self.mdp.optimal_policy), np.zeros(1, dtype=np.int64))

    def reserve(self, state: OptimalState, episodes: int) -> OptimalState:
        """Return the state as it is."""
        return state

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Return the one instance there is, for the contract checks."""
        return [cls(mdp=mdp)]


@implements(plan, OptimalState, argument=1)
def plan_optimal(model: OptimalModel, state: OptimalState, start: int, key: np.uint64, episode: int) -> int:
    """Plan once."""
    if state.counters[0] > 0:
        return 0
    state.counters[0] = 1
    return PLANNED | CHANGED


@implements(observe, OptimalState, argument=1, inline=True)
def observe_optimal(model: OptimalModel, state: OptimalState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Learn nothing."""


@implements(planned_value, OptimalState, argument=1, inline=True)
def planned_value_optimal(model: OptimalModel, state: OptimalState, s: int) -> float:
    """V*_1(s)."""
    return float(model.values[0, s])

"""UniformRandom: a reference point that learns nothing and draws every action with the same probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints, Known, Learner, Truth
from occamrl.kernels.bellman import uniform_policy_values
from occamrl.kernels.compile import implements
from occamrl.kernels.episodes import CHANGED, PLANNED, act, evaluate, observe, plan, planned_value
from occamrl.kernels.philox import fill_uniforms


class UniformModel(NamedTuple):
    """Sizes."""

    horizon: int
    actions: int


class UniformState(NamedTuple):
    """The numbers this episode's actions are drawn with."""

    uniforms: Floats  # [H, rounded up to an even number]
    counters: Ints  # [1] plans


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformRandom(Learner):
    """Draw every action uniformly; regret is that of the stochastic policy, exactly."""

    def model(self, known: Known) -> UniformModel:
        """Return the sizes."""
        return UniformModel(known.horizon, known.actions)

    def begin(self, known: Known) -> UniformState:
        """Return room for the numbers of an episode."""
        return UniformState(np.zeros(known.horizon + known.horizon % 2), np.zeros(1, dtype=np.int64))

    def reserve(self, state: UniformState, episodes: int) -> UniformState:
        """Return the state as it is."""
        return state

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Return the one instance there is, for the contract checks."""
        return [cls()]


@implements(plan, UniformState, argument=1)
def plan_uniform(model: UniformModel, state: UniformState, start: int, key: np.uint64, episode: int) -> int:
    """Draw this episode's numbers from the agent's own stream."""
    fill_uniforms(key, episode, state.uniforms)
    if state.counters[0] > 0:
        return 0
    state.counters[0] = 1
    return PLANNED | CHANGED


@implements(act, UniformState, argument=1, inline=True)
def act_uniform(model: UniformModel, state: UniformState, h: int, s: int) -> int:
    """Return an action."""
    return int(state.uniforms[h] * model.actions)


@implements(observe, UniformState, argument=1, inline=True)
def observe_uniform(model: UniformModel, state: UniformState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Learn nothing."""


@implements(planned_value, UniformState, argument=1, inline=True)
def planned_value_uniform(model: UniformModel, state: UniformState, s: int) -> float:
    """There is none."""
    return np.nan


@implements(evaluate, UniformState, argument=1)
def evaluate_uniform(model: UniformModel, state: UniformState, truth: Truth, out: Floats) -> None:
    """Evaluate the stochastic policy."""
    uniform_policy_values(truth.outcomes, truth.probability, truth.base_reward, model.horizon, model.actions, out)

"""The best action at a true state of a box, by its own optimistic value, and the row that it gives (M11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from occamrl.contracts import Floats
from occamrl.learners.linear_state import LinearState
from occamrl.runs.box_system import BoxSystem
from occamrl.runs.inexact import InexactLearner


class Choice(NamedTuple):
    """An action at the current state, and the row that it gives."""

    action: int
    reward: float
    x: Floats  # [d]
    middle: float  # of the range of V
    spread: float


def choose(
    system: BoxSystem,
    learner: InexactLearner,
    state: LinearState,
    values: Floats,
    width: float,
    at: Floats,
    stream: Callable[[int], np.random.Generator | None],
) -> Choice:
    """Return the first of the best actions.

    Parameters
    ----------
    state : LinearState
        The regression that plans.
    values : array [S]
        V_{h+1} at the anchors.
    width : float
        sqrt(beta).
    at : array [1, n]
        The true state.
    stream : callable
        For an action, what its integrals are drawn with; None where a rule takes them.
    """
    middle, spread = 0.5 * float(values.max() + values.min()), float(np.ptp(values))
    factor = state.factor.reshape(state.theta.size, state.theta.size)  # W with Sigma^-1 = W W^T

    def valued(a: int) -> tuple[float, Choice]:
        reward = float(system.rewards(at, system.action_grid[a])[0])
        if spread == 0.0:
            return reward + middle, Choice(a, reward, np.zeros(system.dimension), middle, spread)
        x = (system.integrals(values, at, a, stream(a)) - middle) / spread
        own = learner.own(x)
        expected = float(own @ state.theta) + width * float(np.linalg.norm(own @ factor))
        return reward + middle + spread * min(0.5, max(-0.5, expected)), Choice(a, reward, x, middle, spread)

    return max((valued(a) for a in range(len(system.action_grid))), key=lambda pair: pair[0])[1]

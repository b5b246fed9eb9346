"""RiverSwim: a chain on which one swims up or down. Episodes start in state 0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from occamrl.errors import require_integers, require_room
from occamrl.problems.mdp import FiniteMDP, Small

LEFT = 0
RIGHT = 1

# The probabilities of drifting down, staying and getting up for one who swims right.
_FIRST = (0.0, 0.3, 0.7)
_INNER = (0.1, 0.6, 0.3)
_LAST = (0.1, 0.9, 0.0)


@dataclass(frozen=True, kw_only=True)
class RiverSwim:
    """A chain of states; swimming left (action 0) is sure, swimming right (action 1) is not.

    The first state pays a little for swimming left, the last state 1 for swimming right, and
    nothing else pays. The currents are those of Ayoub, Jia, Szepesvari, Wang and Yang (ICML 2020),
    of their experiments with UCRL-VTR.
    """

    states: int = 6  # S >= 2
    horizon: int | None = None  # H; by default 4S

    small: ClassVar[Small] = ({"states": 3}, {"states": 4, "horizon": 5})

    def __post_init__(self) -> None:
        require_integers(self, states=2)
        require_room("states", self.states, 2, self.states)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        last = self.states - 1
        transition = np.zeros((self.states, 2, self.states))
        for s in range(self.states):
            below = max(s - 1, 0)
            above = min(s + 1, last)
            transition[s, LEFT, below] = 1.0
            current = _INNER
            if s == 0:
                current = _FIRST
            elif s == last:
                current = _LAST
            # At the ends two of the moves lead to the same state, where their shares add up.
            np.add.at(transition[s, RIGHT], [below, s, above], current)
        reward = np.zeros((self.states, 2))
        reward[0, LEFT] = 0.005
        reward[last, RIGHT] = 1.0
        horizon = 4 * self.states if self.horizon is None else self.horizon
        return FiniteMDP(transition=transition, reward=reward, horizon=horizon)

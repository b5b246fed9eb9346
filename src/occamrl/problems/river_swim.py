"""RiverSwim: a chain in which the large reward lies against the current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from occamrl.errors import HorizonError, require_choice
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP

LEFT, RIGHT = 0, 1


class _Current(NamedTuple):
    """Swimming right: (down, stay, up) at the first, the middle and the last state; and the reward for staying home."""

    first: tuple[float, float, float]
    middle: tuple[float, float, float]
    last: tuple[float, float, float]
    left_reward: float


_CURRENTS = {
    "ayoub": _Current((0.0, 0.3, 0.7), (0.1, 0.6, 0.3), (0.1, 0.9, 0.0), 0.005),
    "osband": _Current((0.0, 0.4, 0.6), (0.05, 0.6, 0.35), (0.4, 0.6, 0.0), 0.005),
    "statistical": _Current((0.0, 0.4, 0.6), (0.05, 0.35, 0.6), (0.05, 0.95, 0.0), 0.1),
}


@dataclass(frozen=True, kw_only=True)
class RiverSwim:
    """A chain of states; swimming left (action 0) is sure, swimming right (action 1) is not.

    The first state pays a little for swimming left, the last state 1 for swimming right, and nothing else pays.

    Parameters
    ----------
    states
        S >= 2.
    horizon
        H; by default 20 for ``"osband"`` and 4S for the others.
    variant
        ``"ayoub"``: Ayoub, Jia, Szepesvari, Wang and Yang (ICML 2020), of their experiments with UCRL-VTR.
        ``"osband"``: Osband, Russo and Van Roy (NeurIPS 2013), with six states and 20 steps.
        ``"statistical"``: the collection StatisticalRL, where it has no horizon.
    """

    states: int = 6
    horizon: int | None = None
    variant: str = "ayoub"

    def __post_init__(self) -> None:
        require_choice("variant", self.variant, _CURRENTS)
        require_integer("states", self.states, 2)
        if self.horizon is not None:
            require_integer("horizon", self.horizon, 1, HorizonError)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in state 0."""
        current, last = _CURRENTS[self.variant], self.states - 1
        transition = np.zeros((self.states, 2, self.states))
        reward = np.zeros((self.states, 2))
        for s in range(self.states):
            transition[s, LEFT, max(s - 1, 0)] = 1.0
            law = current.first if s == 0 else current.last if s == last else current.middle
            for step, probability in zip((-1, 0, 1), law, strict=True):
                if probability > 0.0:
                    transition[s, RIGHT, s + step] = probability
        reward[0, LEFT] = current.left_reward
        reward[last, RIGHT] = 1.0
        default = 20 if self.variant == "osband" else 4 * self.states
        horizon = default if self.horizon is None else self.horizon
        return FiniteMDP(transition=transition, reward=reward, horizon=horizon)

    @classmethod
    def examples(cls) -> Sequence[RiverSwim]:
        """Small instances, for the contract checks."""
        return [cls(states=3), cls(variant="osband"), cls(states=4, horizon=5, variant="statistical")]

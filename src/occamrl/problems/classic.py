"""Rivers: chains on which one swims up or down. Episodes start in state 0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from occamrl.addresses import stream
from occamrl.errors import ParameterError, require_integers
from occamrl.problems.mdp import FiniteMDP, Small, read_only
from occamrl.protocols import Ints

LEFT, RIGHT = 0, 1  # the actions of rivers


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

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        last, horizon = self.states - 1, 4 * self.states if self.horizon is None else self.horizon
        transition, reward = np.zeros((self.states, 2, self.states)), np.zeros((self.states, 2))
        for s in range(self.states):
            transition[s, LEFT, max(s - 1, 0)] = 1.0
            current = (
                (0.0, 0.3, 0.7) if s == 0 else (0.1, 0.9, 0.0) if s == last else (0.1, 0.6, 0.3)
            )  # down, stay, up
            np.add.at(transition[s, RIGHT], [max(s - 1, 0), s, min(s + 1, last)], current)
        reward[0, LEFT], reward[last, RIGHT] = 0.005, 1.0
        return FiniteMDP(transition=transition, reward=reward, horizon=horizon)


@dataclass(frozen=True, kw_only=True)
class RiverZones:
    """A chain; swimming left is sure, swimming right goes up or down with probabilities that depend on the zone alone.

    The first state pays a little for swimming left, the last one 1 for swimming right. With a
    ``left_reward`` of 0.005 swimming up is nearly optimal whatever the currents are; with 0.03 it
    is not.
    """

    states: int = 24
    horizon: int = 48
    zones: int = 8  # of equal length, with a current of their own; divides S
    left_reward: float = 0.005  # for swimming left in the first state
    seed: int = 0  # draws the currents

    small: ClassVar[Small] = ({"states": 4, "horizon": 6, "zones": 2},)

    def __post_init__(self) -> None:
        require_integers(self, states=2, zones=1)
        if self.states % self.zones:
            raise ParameterError(
                "zones", got=self.zones, expected=f"a divisor of states = {self.states}"
            )

    @cached_property
    def moves(self) -> Ints:
        """Where a move leads [S, 2, 3]: down, stay, up; swimming left has one move, down. At the ends one stays."""
        s = np.arange(self.states)
        down, up, none = (
            np.maximum(s - 1, 0),
            np.minimum(s + 1, self.states - 1),
            np.full(self.states, -1),
        )
        return read_only(
            np.stack(
                [np.stack([down, none, none], axis=1), np.stack([down, s, up], axis=1)], axis=1
            )
        )

    def partition(self, zones: int) -> Ints:
        """Return the zone of each state [S], for zones of equal length."""
        return np.arange(self.states) // (self.states // zones)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem."""
        draw, length = stream(self.seed, "river_zones"), self.states // self.zones
        up, down = (
            np.repeat(draw.uniform(*ends, self.zones), length)
            for ends in ((0.3, 0.75), (0.02, 0.2))
        )
        transition, reward = np.zeros((self.states, 2, self.states)), np.zeros((self.states, 2))
        for s in range(self.states):
            transition[s, LEFT, self.moves[s, LEFT, 0]] = 1.0
            np.add.at(
                transition[s, RIGHT], self.moves[s, RIGHT], [down[s], 1.0 - up[s] - down[s], up[s]]
            )
        reward[0, LEFT], reward[-1, RIGHT] = self.left_reward, 1.0
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)

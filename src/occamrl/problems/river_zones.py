"""RiverSwim whose current differs from zone to zone: a ladder of coarser and finer partitions of the states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.listing import read_only
from occamrl.problems.river_swim import LEFT, RIGHT
from occamrl.seeding import stream


@dataclass(frozen=True, kw_only=True)
class RiverZones:
    """A chain; swimming left is sure, swimming right goes up or down with probabilities that depend on the zone alone.

    The first state pays a little for swimming left, the last one 1 for swimming right.

    Parameters
    ----------
    states, horizon
        S and H.
    zones : int
        Number of zones of equal length with a current of their own; divides S.
    partitions : tuple of int
        Numbers of zones of the classes of hypotheses; each divides the next, and the last S.
    left_reward
        What swimming left in the first state pays. With 0.005 swimming up is nearly optimal whatever the currents are;
        with 0.03 it is not, and it takes knowledge of the currents to turn home in time.
    seed
        Draws the currents.
    """

    states: int = 24
    horizon: int = 48
    zones: int = 8
    partitions: tuple[int, ...] = (2, 4, 8, 24)
    left_reward: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("states", self.states, 2)
        require_integer("horizon", self.horizon, 1, HorizonError)
        if require_integer("zones", self.zones, 1) and self.states % self.zones:
            raise ParameterError("zones", got=self.zones, expected=f"a divisor of states = {self.states}")
        require_number("left_reward", self.left_reward, 0.0, 1.0)
        require_integer("seed", self.seed, 0)
        parts = [require_integer("partitions", zones, 1) for zones in self.partitions]
        if any(b % a for a, b in zip(parts, (*parts[1:], self.states), strict=True)):
            raise ParameterError("partitions", got=self.partitions, expected="numbers that divide the next, up to S")

    @cached_property
    def phi(self) -> Floats:
        """Features [S, 2, S, 1 + 2S]: staying put (or swimming left), and what going up and down in a state changes."""
        phi = np.zeros((self.states, 2, self.states, 1 + 2 * self.states))
        for s in range(self.states):
            phi[s, LEFT, max(s - 1, 0), 0] = phi[s, RIGHT, s, 0] = 1.0
            for j, s2 in ((1 + s, min(s + 1, self.states - 1)), (1 + self.states + s, max(s - 1, 0))):
                phi[s, RIGHT, s2, j] += 1.0
                phi[s, RIGHT, s, j] -= 1.0
        return read_only(phi)

    def basis(self, zones: int) -> Floats:
        """Return A [1 + 2S, 1 + 2 zones]: theta = A eta has equal currents inside each zone (a state aggregation)."""
        zone = np.kron(np.eye(zones), np.ones((self.states // zones, 1)))
        basis = np.zeros((1 + 2 * self.states, 1 + 2 * zones))
        basis[0, 0] = 1.0
        basis[1 : 1 + self.states, 1 : 1 + zones] = zone
        basis[1 + self.states :, 1 + zones :] = zone
        return basis

    @cached_property
    def moves(self) -> Ints:
        """Where a move leads [S, 2, 3]: down, stay, up; swimming left has one move, down. At the ends one stays."""
        s = np.arange(self.states)
        down, up = np.maximum(s - 1, 0), np.minimum(s + 1, self.states - 1)
        none = np.full(self.states, -1)
        return read_only(np.stack([np.stack([down, none, none], axis=1), np.stack([down, s, up], axis=1)], axis=1))

    def partition(self, zones: int) -> Ints:
        """Return the zone of each state [S], for zones of equal length."""
        return np.arange(self.states) // (self.states // zones)

    @cached_property
    def theta(self) -> Floats:
        """theta* [1 + 2S]."""
        draw = stream(self.seed, "river_zones")
        up, down = draw.uniform(0.3, 0.75, self.zones), draw.uniform(0.02, 0.2, self.zones)
        return read_only(self.basis(self.zones) @ np.concatenate([[1.0], up, down]))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in state 0."""
        reward = np.zeros((self.states, 2))
        reward[0, LEFT], reward[-1, RIGHT] = self.left_reward, 1.0
        return FiniteMDP(transition=self.phi @ self.theta, reward=reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[RiverZones]:
        """Small instances, for the contract checks."""
        return [cls(states=4, horizon=6, zones=2, partitions=(1, 2, 4))]

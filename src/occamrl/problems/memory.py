"""A walk whose next place depends on none, one or two of the places before: the order of memory as a ladder.

States are pairs (place before, place now). Whatever is true, the kernel is an aggregation of these states: by nothing
(order 0), by the place now (order 1: the place before is ignored) or by both (order 2).
"""

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
from occamrl.seeding import stream


@dataclass(frozen=True, kw_only=True)
class MemoryWalk:
    """Go from place to place; an action changes the odds of the next one, and being in a place pays.

    Parameters
    ----------
    places, actions, horizon
        S = places^2, A, H.
    order : 0, 1 or 2
        How many of the last places the law of the next one depends on.
    spread : float
        Concentration of the laws drawn; small ones are far from each other.
    seed
        Draws the laws and the rewards.
    """

    places: int = 4
    actions: int = 3
    horizon: int = 12
    order: int = 1
    spread: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("places", self.places, 2)
        require_integer("actions", self.actions, 1)
        require_integer("horizon", self.horizon, 1, HorizonError)
        require_number("spread", self.spread, 0.0, 1e6, open_low=True)
        require_integer("seed", self.seed, 0)
        if self.order not in (0, 1, 2):
            raise ParameterError("order", got=self.order, expected="0, 1 or 2")

    @property
    def states(self) -> int:
        """S."""
        return self.places**2

    @cached_property
    def moves(self) -> Ints:
        """Where a move leads [S, A, places]: move l from (before, now) to (now, l)."""
        now = np.arange(self.states) % self.places
        after = now[:, None] * self.places + np.arange(self.places)
        return read_only(np.repeat(after[:, None], self.actions, axis=1))

    def partition(self, order: int) -> Ints:
        """Return the block of each state [S] if the last ``order`` places matter."""
        return np.asarray(np.arange(self.states) % self.places**order, dtype=np.int64)

    @cached_property
    def laws(self) -> Floats:
        """The distribution of the next place [S, A, places]."""
        draw = stream(self.seed, "memory_walk", self.order)
        each = draw.dirichlet(np.full(self.places, self.spread), size=(self.places**self.order, self.actions))
        return read_only(each[self.partition(self.order)])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in place 0, as if one had been there before."""
        transition = np.zeros((self.states, self.actions, self.states))
        np.put_along_axis(transition, self.moves, self.laws, axis=2)
        pay = stream(self.seed, "memory_walk", "reward").uniform(size=self.places)
        reward = np.repeat(pay[np.arange(self.states) % self.places][:, None], self.actions, axis=1)
        return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[MemoryWalk]:
        """Small instances, for the contract checks."""
        return [cls(places=2, actions=2, horizon=3, order=order) for order in (0, 1, 2)]

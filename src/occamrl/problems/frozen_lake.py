"""FrozenLake, with the question which way and how often the ice makes one slip.

Gymnasium's FrozenLake-v1: walk from S to G, where 1 is paid; a hole H ends the episode, as G does. A step goes where it
was meant to, or turned to the left with probability l/30, to the right with r/30. Gymnasium's slippery lake has slips
(10, 10), and its ``success_rate`` p is l = r = 15 (1 - p).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError, require_choice
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.ice import MAPS, STEPS, walk
from occamrl.problems.listing import read_only

PARTS = 30  # slips are multiples of 1/30
MOST = 20  # l + r, so that one step in three goes where it was meant to, at the least
_HORIZONS = {"4x4": 30, "8x8": 60}


@dataclass(frozen=True, kw_only=True)
class FrozenLake:
    """FrozenLake with a ladder of slips: none < the same to both sides < any (l, r)/30 with l + r <= 20.

    Parameters
    ----------
    map_name : "4x4" | "8x8"
    slip : pair of integers
        (l, r): a step turns to the left with probability l/30 and to the right with r/30, as seen by the walker.
    horizon
        H; by default 30 and 60.
    """

    rung_names: ClassVar[tuple[str, ...]] = ("no slip", "the same to both sides", "any slip")

    map_name: str = "4x4"
    slip: tuple[int, int] = (10, 10)
    horizon: int | None = None

    def __post_init__(self) -> None:
        require_choice("map_name", self.map_name, MAPS)
        if self.horizon is not None:
            require_integer("horizon", self.horizon, 1, HorizonError)
        if len(self.slip) != 2:
            raise ParameterError("slip", got=self.slip, expected="two integers (l, r)")
        if sum(require_integer("slip", part, 0) for part in self.slip) > MOST:
            raise ParameterError("slip", got=self.slip, expected=f"l + r <= {MOST}")

    @property
    def lake(self) -> tuple[str, ...]:
        """The map, row by row."""
        return MAPS[self.map_name]

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """Three sparse kernels (S*A, S): the walk without slipping, and what a slip to each side changes."""
        ahead, left, right = (walk(self.lake, turn) for turn in (0, 1, -1))
        return [sp.csr_array(part.reshape(-1, len(ahead))) for part in (ahead, left - ahead, right - ahead)]

    @cached_property
    def hypotheses(self) -> Floats:
        """All parameters [231, 3], theta = (1, l/30, r/30), by the first class that holds them."""
        slips = [(a, b) for a, b in itertools.product(range(MOST + 1), repeat=2) if a + b <= MOST]
        slips.sort(key=lambda slip: (slip != (0, 0), slip[0] != slip[1]))
        return read_only(np.array([(1.0, a / PARTS, b / PARTS) for a, b in slips]))

    @property
    def sizes(self) -> list[int]:
        """|F_1|, |F_2|, |F_3| = 1, 11, 231."""
        return [1, MOST // 2 + 1, (MOST + 1) * (MOST + 2) // 2]

    @property
    def theta(self) -> Floats:
        """theta* [3]."""
        return np.array([1.0, self.slip[0] / PARTS, self.slip[1] / PARTS])

    @cached_property
    def reward(self) -> Floats:
        """r[s, a, s']: 1 for reaching the goal from elsewhere."""
        tiles = "".join(self.lake)
        reward = np.zeros((len(tiles), len(STEPS), len(tiles)))
        reward[:, :, tiles.index("G")] = 1.0
        reward[[s for s, tile in enumerate(tiles) if tile in "HG"]] = 0.0
        return read_only(reward)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start at S."""
        states = len(self.reward)
        dense = sum(weight * kernel.toarray() for weight, kernel in zip(self.theta, self.phi, strict=True))
        transition = np.maximum(dense, 0.0).reshape(states, len(STEPS), states)
        horizon = self.horizon or _HORIZONS[self.map_name]
        start = "".join(self.lake).index("S")
        return FiniteMDP(transition=transition, reward=self.reward, horizon=horizon, initial_state=start)

    @classmethod
    def examples(cls) -> Sequence[FrozenLake]:
        """Small instances, for the contract checks."""
        return [cls(horizon=12), cls(slip=(3, 9), horizon=8)]

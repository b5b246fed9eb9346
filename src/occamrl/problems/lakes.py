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

from occamrl.errors import HorizonError, ParameterError, require_choice, require_integer, require_number
from occamrl.problems.mdp import FiniteMDP, read_only
from occamrl.protocols import Floats

# ----------------------------------------------------------------------------------------------------
# Walking on ice: FrozenLake's maps, and the step that was meant to go one way and goes another.


MAPS = {  # Gymnasium's
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
}
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up, as Gymnasium has them; each to the left of the last


def walk(lake: Sequence[str], turn: int) -> Floats:
    """Return the kernel [S, A, S] of steps that are all turned by ``turn`` quarters; holes and the goal are not left.

    Quarters count to the left, as the walker sees it.
    """
    rows, columns = len(lake), len(lake[0])
    kernel = np.zeros((rows * columns, len(STEPS), rows * columns))
    for s, a in itertools.product(range(rows * columns), range(len(STEPS))):
        row, column = divmod(s, columns)
        down, right = (0, 0) if lake[row][column] in "HG" else STEPS[(a + turn) % len(STEPS)]
        ahead = min(max(row + down, 0), rows - 1) * columns + min(max(column + right, 0), columns - 1)
        kernel[s, a, ahead] = 1.0
    return kernel


# ----------------------------------------------------------------------------------------------------
# Patchy ice: FrozenLake 8x8 whose slipperiness is the same everywhere, or differs from part to part.


SIDE = 8
_PARTS = (1, 2, 4, 8)  # everywhere, halves, four strips, columns


@dataclass(frozen=True, kw_only=True)
class PatchyIce:
    """Walk from the upper left to the lower right corner; reaching it pays 1 and ends the episode, as a hole does.

    A step goes to each side of where it was meant to with probability q, the slip of the part one stands in. The lake
    has 1, 2, 4 or 8 parts of neighbouring columns.

    Parameters
    ----------
    slip : tuple of 1, 2, 4 or 8 numbers
        q of each part, from left to right.
    levels : tuple of numbers
        The slips that hypotheses may have.
    horizon
        H.
    rows : int
        How many rows of the lake, from below; 8 are FrozenLake's.
    """

    slip: tuple[float, ...] = (0.1,)
    levels: tuple[float, ...] = (0.0, 0.1, 1.0 / 3.0)
    horizon: int = 60
    rows: int = SIDE

    def __post_init__(self) -> None:
        require_integer("horizon", self.horizon, 1, HorizonError)
        if require_integer("rows", self.rows, 2) > SIDE:
            raise ParameterError("rows", got=self.rows, expected=f"at most {SIDE}")
        if len(self.slip) not in _PARTS:
            raise ParameterError("slip", got=f"{len(self.slip)} numbers", expected="1, 2, 4 or 8")
        for q in (*self.slip, *self.levels):
            require_number("slip", q, 0.0, 0.5)
        if len(set(self.levels)) != len(self.levels) or not self.levels:
            raise ParameterError("levels", got=self.levels, expected="different numbers")

    @property
    def states(self) -> int:
        """S."""
        return self.rows * SIDE

    @property
    def lake(self) -> tuple[str, ...]:
        """The map, row by row."""
        return MAPS["8x8"][SIDE - self.rows :]

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """Nine sparse kernels (S*A, S): the walk without slipping, and what a slip in each column changes per q."""
        ahead, left, right = (walk(self.lake, turn) for turn in (0, 1, -1))
        slip, column = left + right - 2.0 * ahead, np.arange(self.states) % SIDE
        parts = [ahead, *(np.where((column == c)[:, None, None], slip, 0.0) for c in range(SIDE))]
        return [sp.csr_array(part.reshape(-1, self.states)) for part in parts]

    @cached_property
    def reward(self) -> Floats:
        """r[s, a, s']: 1 for reaching the goal."""
        reward = np.zeros((self.states, len(STEPS), self.states))
        reward[:-1, :, -1] = 1.0
        return read_only(reward)

    @cached_property
    def hypotheses(self) -> Floats:
        """All parameters [n, 9], theta = (1, q of each column); by the number of parts they need."""
        columns = np.array(list(itertools.product(self.levels, repeat=SIDE)))
        needs = np.full(len(columns), len(_PARTS) - 1)
        for m in range(len(_PARTS) - 2, -1, -1):
            parts = columns.reshape(len(columns), _PARTS[m], -1)
            needs[(parts == parts[:, :, :1]).all(axis=(1, 2))] = m
        order = np.argsort(needs, kind="stable")
        return read_only(np.concatenate([np.ones((len(columns), 1)), columns[order]], axis=1))

    @cached_property
    def sizes(self) -> list[int]:
        """|F_1|, ..., |F_4|; with three levels 3, 9, 81 and 6,561."""
        return [len(self.levels) ** parts for parts in _PARTS]

    @property
    def theta(self) -> Floats:
        """theta* [9]."""
        return np.concatenate([[1.0], np.repeat(self.slip, SIDE // len(self.slip))])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in the upper left corner."""
        dense = np.stack([kernel.toarray() for kernel in self.phi], axis=-1) @ self.theta
        transition = np.maximum(dense, 0.0).reshape(self.states, len(STEPS), self.states)
        return FiniteMDP(transition=transition, reward=self.reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[PatchyIce]:
        """Small instances, for the contract checks."""
        return [cls(horizon=24, rows=4), cls(slip=(0.0, 1.0 / 3.0), horizon=30, rows=4)]


# ----------------------------------------------------------------------------------------------------
# FrozenLake, with the question which way and how often the ice makes one slip.


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

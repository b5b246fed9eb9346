"""Patchy ice: FrozenLake 8x8 whose slipperiness is the same everywhere, or differs from part to part."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.ice import MAPS, STEPS, walk
from occamrl.problems.listing import read_only

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

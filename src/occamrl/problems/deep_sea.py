"""DeepSea: one path in 2^N is worth taking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.contracts import Ints
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.seeding import stream

MOVE_COST = 0.01


@dataclass(frozen=True, kw_only=True)
class DeepSea:
    """The deterministic DeepSea of bsuite (Osband et al., "Behaviour Suite for Reinforcement Learning", ICLR 2020).

    A diver starts at the top left of an N x N grid and sinks by one row a step, moving left or right as well. Moving
    right costs 0.01/N; moving right from the bottom-right corner pays 1. Only the policy that always moves right earns
    it: 0.99 in bsuite.

    Rewards must lie in [0, 1], so 0.01/N is added to all of them: left pays 0.01/N, right 0, the treasure 1. Each of
    the N steps pays 0.01/N more than in bsuite, so that the value of every policy grows by 0.01 and regret is the same;
    V*_1 = 1.

    Parameters
    ----------
    size
        N, the number of rows, of columns and of steps.
    randomize_actions
        A seed: which of the two actions moves right is then drawn anew in every cell, as bsuite does. By default
        action 1 moves right everywhere.
    """

    size: int = 10
    randomize_actions: int | None = None

    def __post_init__(self) -> None:
        require_integer("size", self.size, 1)
        if self.randomize_actions is not None:
            require_integer("randomize_actions", self.randomize_actions, 0)

    @cached_property
    def right(self) -> Ints:
        """The action that moves right, by cell [N, N]."""
        if self.randomize_actions is None:
            return np.ones((self.size, self.size), np.int64)
        return stream(self.randomize_actions, "deep_sea", self.size).integers(0, 2, (self.size, self.size))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem: state N*row + column, and N*N for the end of the episode; it starts in state 0."""
        size = self.size
        table = []
        for row in range(size):
            for column in range(size):
                below = size * (row + 1)
                end = row == size - 1
                treasure = 1.0 if column == size - 1 else 0.0
                go_left = (1.0, size * size if end else below + max(column - 1, 0), MOVE_COST / size)
                go_right = (1.0, size * size if end else below + min(column + 1, size - 1), treasure)
                table.append([[go_left], [go_right]] if self.right[row, column] == 1 else [[go_right], [go_left]])
        table.append([[(1.0, size * size, 0.0)], [(1.0, size * size, 0.0)]])
        return FiniteMDP(outcomes=table, horizon=size)

    @classmethod
    def examples(cls) -> Sequence[DeepSea]:
        """Small instances, for the contract checks."""
        return [cls(size=4), cls(size=5, randomize_actions=1)]

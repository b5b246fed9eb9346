"""WideTree: many states that do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.errors import ParameterError
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP


@dataclass(frozen=True, kw_only=True)
class WideTree:
    """Two steps, and only the first choice counts (Ayoub, Jia, Szepesvari, Wang and Yang, ICML 2020).

    State 0 leads to state 1 (action 0) or 2 (action 1). There, each of the two actions leads to one of the leaves of
    its own quarter, drawn uniformly. Leaves absorb. Being in state 2 pays 1, whatever the action; nothing else pays. So
    V*_1(0) = 1, and a learner that cares for values rather than for kernels need not learn where the leaves are.

    Parameters
    ----------
    leaves
        Number of leaves, a multiple of 4.
    """

    leaves: int = 4

    def __post_init__(self) -> None:
        if require_integer("leaves", self.leaves, 4) % 4:
            raise ParameterError("leaves", got=self.leaves, expected="a multiple of 4")

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem: states 0, 1, 2 and then the leaves; episodes start in state 0."""
        states, quarter = 3 + self.leaves, self.leaves // 4
        transition = np.zeros((states, 2, states))
        reward = np.zeros((states, 2))
        for action in range(2):
            transition[0, action, 1 + action] = 1.0
            for parent in (1, 2):
                first = 3 + (2 * (parent - 1) + action) * quarter
                transition[parent, action, first : first + quarter] = 1.0 / quarter
        reward[2] = 1.0
        return FiniteMDP(transition=transition, reward=reward, horizon=2, absorbing=range(3, states))

    @classmethod
    def examples(cls) -> Sequence[WideTree]:
        """Small instances, for the contract checks."""
        return [cls(), cls(leaves=12)]

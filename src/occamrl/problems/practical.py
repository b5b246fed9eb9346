"""The common form of the practical problems: events that move a known system, and classes of laws of these events.

At (s, a) something happens - so many customers want the product, the machine fails - and what it does to the state and
the account is known. Unknown are the probabilities: sums of parameters theta_j, each times a known weight. So the
kernel is linear in theta; a class of models is a list of parameters, and the classes are nested.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats
from occamrl.errors import ParameterError
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.nested import NestedClasses
from occamrl.problems.units import Unit


class Entry(NamedTuple):
    """P(next_state | state, action) has the term weight * theta[coordinate]; the move earns ``amount``."""

    state: int
    action: int
    next_state: int
    coordinate: int
    weight: float
    amount: float  # in the unit of the problem; a function of (state, action, next_state)


@dataclass(frozen=True, kw_only=True)
class PracticalProblem(NestedClasses):
    """A problem from practice with its ladder of plausible models.

    A subclass says what can happen (:meth:`entries`), which laws each class holds (:meth:`classes`), and which one is
    true (:attr:`theta`). ``Ladder.of_problem`` makes the ladder.
    """

    horizon: int

    unit_name: ClassVar[str] = "EUR"
    rung_names: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def states(self) -> int:
        """S."""

    @property
    @abstractmethod
    def actions(self) -> int:
        """A."""

    @property
    def initial_state(self) -> int:
        """Where episodes start."""
        return 0

    @property
    @abstractmethod
    def theta(self) -> Floats:
        """theta* [d]."""

    @abstractmethod
    def entries(self) -> Iterable[Entry]:
        """Return everything that can happen."""

    @classmethod
    @abstractmethod
    def truths(cls) -> Sequence[Self]:
        """Return one problem per class whose truth needs that class and none below."""

    @cached_property
    def _columns(self) -> tuple[Any, ...]:
        return tuple(np.array(column) for column in zip(*self.entries(), strict=True))

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """One sparse matrix (S*A, S) per coordinate of theta."""
        s, a, s2, j, weight, _ = self._columns
        shape = (self.states * self.actions, self.states)
        made = []
        for each in range(self.theta.size):
            mine = j == each
            made.append(sp.csr_array((weight[mine], (s[mine] * self.actions + a[mine], s2[mine])), shape=shape))
        return made

    @cached_property
    def unit(self) -> Unit:
        """What rewards of 0 and 1 are worth."""
        return Unit.spanning(self.unit_name, self._columns[-1])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; a reward is what the move earns, mapped onto [0, 1]."""
        s, a, s2, j, weight, amount = self._columns
        shape, pair = self.phi[0].shape, s * self.actions + a
        kernel: Any = sp.csr_array((weight * self.theta[j], (pair, s2)), shape=shape)  # adds up what comes twice
        kernel.data = np.maximum(kernel.data, 0.0)  # 1 - 0.9 - 0.1
        cell, first, inverse = np.unique(pair * self.states + s2, return_index=True, return_inverse=True)
        if (amount != amount[first][inverse]).any():
            raise ParameterError("entries", got="two amounts for one move", expected="one per (s, a, s')")
        place = (cell // self.states, cell % self.states)
        reward = sp.csr_array((self.unit.reward(amount[first]), place), shape=shape)
        return FiniteMDP(transition=kernel, reward=reward, horizon=self.horizon, initial_state=self.initial_state)

"""The common form of problems on a box: candidate models of one system, a mixture of them being the truth.

A subclass says what the box, the actions, the rewards and the candidate models are. On a grid each candidate is a
sparse kernel, their mixture is the true one, and regret is exact for the grid's problem; how far that is from the
problem on the box is what :meth:`ContinuousProblem.discretisation_error` estimates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from occamrl.continuous.discretise import as_actions, discretise, quadrature_error
from occamrl.continuous.grid import Grid
from occamrl.continuous.refinement import Refinement, Solution, refinement
from occamrl.continuous.transitions import Transition
from occamrl.contracts import Floats
from occamrl.errors import HorizonError, ParameterError
from occamrl.problems.checks import as_floats, require_integer
from occamrl.problems.finite_mdp import FiniteMDP


@dataclass(frozen=True, kw_only=True)
class ContinuousProblem(ABC):
    """A problem on a box.

    Parameters
    ----------
    resolution : int
        How fine the grid is; what it counts, the subclass says. Twice the number halves every cell.
    horizon
        H.
    mixture : tuple of (int, number)
        The candidates that the truth mixes, counted from 1, and their shares. At every step one is drawn.
    nodes : int
        Points of the rule for the noise.
    """

    resolution: int
    horizon: int
    mixture: tuple[tuple[int, float], ...]
    nodes: int = 5

    def __post_init__(self) -> None:
        require_integer("resolution", self.resolution, 2)
        require_integer("horizon", self.horizon, 1, HorizonError)
        require_integer("nodes", self.nodes, 1)
        members = [require_integer("mixture", j, 1) for j, _ in self.mixture]
        shares = as_floats("mixture", [share for _, share in self.mixture])
        if len(set(members)) != len(members) or max(members, default=0) > len(self.names):
            raise ParameterError("mixture", got=members, expected=f"different candidates of 1..{len(self.names)}")
        if not (shares >= 0.0).all() or abs(shares.sum() - 1.0) > 1e-9:
            raise ParameterError("mixture", got=shares.tolist(), expected="shares >= 0 that sum to 1")

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The candidates' names."""

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid at this resolution."""

    @property
    @abstractmethod
    def action_grid(self) -> Sequence[float]:
        """The actions, a finite grid of a Box."""

    @property
    @abstractmethod
    def start(self) -> Sequence[float]:
        """Where episodes begin."""

    @abstractmethod
    def models(self) -> Sequence[Transition]:
        """Return the candidates."""

    @abstractmethod
    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return r(s, a) in [0, 1] of states [N, n] under one action [m]."""

    @property
    def theta(self) -> Floats:
        """The true shares [d]."""
        shares = np.zeros(len(self.names))
        for j, share in self.mixture:
            shares[j - 1] = share
        return shares

    @cached_property
    def _made(self) -> dict[int, Any]:
        return {}

    def kernel_of(self, j: int) -> Any:
        """Return the sparse kernel (S*A, S) of candidate j, from 0; made when first asked for."""
        if j not in self._made:
            self._made[j] = discretise(self.models()[j], self.grid, self.action_grid, start=[self.start])
        return self._made[j]

    @property
    def phi(self) -> list[Any]:
        """One sparse kernel (S*A, S) per candidate."""
        return [self.kernel_of(j) for j in range(len(self.names))]

    @property
    def kernel(self) -> Any:
        """The sparse kernel (S*A, S) of the mixture."""
        return sum(share * self.kernel_of(j - 1) for j, share in self.mixture)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The grid's problem; an episode that starts between vertices starts at one of the corners."""
        vertices, acts = self.grid.vertices, as_actions(self.action_grid)
        reward = np.stack([self.reward(vertices, action) for action in acts], axis=1)
        corner, weight = self.grid.corners([self.start])
        initial = np.bincount(corner[0], weights=weight[0], minlength=self.grid.size)
        return FiniteMDP(transition=self.kernel, reward=reward, horizon=self.horizon, initial_state=initial)

    def refined(self, times: int = 2) -> Self:
        """Return the problem on a grid with cells ``times`` narrower."""
        return replace(self, resolution=self.resolution * times)

    def discretisation_error(self) -> Refinement:
        """Solve this grid and those two and four times as fine, and estimate how far V*_1 is from that on the box."""
        solved = [self, self.refined(2), self.refined(4)]
        states = np.concatenate([[self.start], self.grid.vertices])
        return refinement([Solution(each.grid, each.mdp.optimal_values[0]) for each in solved], states)

    def quadrature_error(self) -> float:
        """Return the largest total variation error of a candidate's rows, against twice the nodes."""
        return max(quadrature_error(model, self.grid, self.action_grid) for model in self.models())

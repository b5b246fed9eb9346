r"""A system on a box as an agent knows it: candidates, anchors, actions, rewards; and how far its integrals may be off.

Let e_t bound the error of every coordinate of row t, known before its target.

- *Quadrature*: e_t = ``error``, a bound on the total variation error of a candidate's law over the anchors.
- *Draws*: M fresh draws per candidate and action at every state met, independent of V, which was fixed before. By
  Hoeffding's inequality :math:`e_t^2 = \log(2 d A\, \pi^2 t^2/(6\,\delta'))/(2M)` serves all coordinates and actions of
  all rows t = 1, 2, ... with probability :math:`1 - \delta'`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from occamrl.continuous.arguments import numbers_of
from occamrl.continuous.discretise import as_actions, discretise
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.integrals import integrals
from occamrl.continuous.transitions import Sampled, Transition
from occamrl.contracts import Floats, Known
from occamrl.errors import ParameterError, RewardError, require_number
from occamrl.families.features import FeatureMap
from occamrl.problems.checks import require_integer

_DENSE = 2**20  # entries of a feature map that is kept dense


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxSystem:
    """Candidates on a box; the parameters are those of :class:`~occamrl.runs.anchored.Anchored`."""

    models: Sequence[Transition]
    grid: Grid
    actions: ArrayLike
    reward: Callable[[Floats, Floats], Floats]
    horizon: int
    error: float = 0.0
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.models, Sequence) or not self.models:
            got = "none" if not self.models else type(self.models).__name__
            raise ParameterError("models", got=got, expected="a list of at least one candidate")
        for j, model in enumerate(self.models):
            if not callable(getattr(model, "atoms", None)):
                expected = "Driven, Sampled, Density, or another Transition"
                raise ParameterError("models", index=(j,), got=type(model).__name__, expected=expected)
        if not isinstance(self.grid, Grid):
            raise ParameterError("grid", got=type(self.grid).__name__, expected="a Grid")
        if not callable(self.reward):
            raise ParameterError(
                "reward", got=type(self.reward).__name__, expected="a function of states and an action"
            )
        if self.names is not None and len(self.names) != self.dimension:
            expected = f"one for each of {self.dimension} candidates"
            raise ParameterError("names", got=f"{len(self.names)} names", expected=expected)
        require_integer("horizon", self.horizon, 1)
        require_number("error", self.error, 0.0, 1.0)
        if self.drawn and self.error:
            raise ParameterError("error", got=self.error, expected="0 with sampled models: draws have their own")
        _ = self.action_grid  # checks it

    @property
    def dimension(self) -> int:
        """The number d of candidates."""
        return len(self.models)

    @cached_property
    def action_grid(self) -> Floats:
        """The actions [A, m]."""
        return as_actions(self.actions)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the candidates; "1", "2", ... if they were given none."""
        return tuple(str(j + 1) for j in range(self.dimension)) if self.names is None else tuple(self.names)

    @cached_property
    def draws(self) -> int:
        """The number M of fresh draws; 0 where integrals are taken by rules."""
        found = [model.draws for model in self.models if isinstance(model, Sampled)]
        return min(found) if len(found) == self.dimension else 0

    @property
    def drawn(self) -> bool:
        """Whether integrals are taken by fresh draws."""
        return self.draws > 0

    @cached_property
    def features(self) -> FeatureMap:
        """The candidates' kernels over the anchors."""
        kernels = [discretise(model, self.grid, self.action_grid) for model in self.models]
        shape = (self.grid.size, len(self.action_grid), self.grid.size)
        dense = math.prod(shape) * len(kernels) <= _DENSE
        return FeatureMap([kernel.toarray().reshape(shape) for kernel in kernels] if dense else kernels)

    @cached_property
    def known(self) -> Known:
        """The problem at the anchors, as a learner knows it."""
        rewards = np.stack([self.rewards(self.grid.vertices, action) for action in self.action_grid], axis=1)
        states, actions = rewards.shape
        return Known(states=states, actions=actions, horizon=self.horizon, base_reward=rewards)

    def rewards(self, states: Floats, action: Floats) -> Floats:
        """Return r(s, a) of states [N, n] under one action, checked."""
        found = numbers_of("reward", self.reward(states, action), (len(states),))
        bad = ~((found >= 0.0) & (found <= 1.0))
        if found.shape != (len(states),) or bad.any():
            s = int(bad.argmax()) if bad.ndim == 1 else 0
            got = f"{found[s] if bad.ndim == 1 else found.shape} in state {states[s].tolist()}"
            raise RewardError("reward", index=(s,), got=got, expected="a number in [0, 1] for each state")
        return found

    def integrals(self, values: Floats, state: Floats, a: int, rng: np.random.Generator | None) -> Floats:
        """Return phi_V(s, a) at a state [1, n], one integral per candidate [d]."""
        return integrals(self.models, self.grid, values, state, self.action_grid[a], rng)

    def inside(self, state: ArrayLike, field: str) -> Floats:
        """Return one state as an array [1, n], or refuse it."""
        expected = f"{self.grid.dimensions} numbers"
        point = self.grid.as_points(numbers_of(field, state, expected)[None], field)
        if self.grid.outside(point).any():
            raise StateError(field, got=point[0].tolist(), expected=self.grid.described, state=point[0].tolist())
        return point

    def row_error(self, t: int, level: float) -> float:
        """Return e_t of row t, from 1; that of draws holds for all rows with probability 1 - ``level``."""
        if not self.drawn:
            return float(self.error)
        cases = 2.0 * self.dimension * len(self.action_grid) * math.pi**2 * t**2 / 6.0
        return min(1.0, math.sqrt(math.log(cases / level) / (2.0 * self.draws)))

    def temperature(self, rows: int, level: float) -> float:
        """Return c: 1 with exact integrals, else sqrt(B)/(sqrt(B) + sqrt(E)) for typical B and the E of all rows."""
        total = rows * self.row_error(rows, level) ** 2
        if total == 0.0:
            return 1.0
        noise = self.dimension * math.log1p(rows / (4.0 * self.dimension)) + 2.0 * math.log(1.0 / level)
        typical = math.sqrt(0.25 * noise)
        return typical / (typical + math.sqrt(total))

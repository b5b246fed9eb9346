"""A tank that is refilled once a day: real stock, real orders, and a law of the demand that mixes ten candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from occamrl.continuous.grid import Grid
from occamrl.continuous.transitions import Driven, Transition, quantile_rule
from occamrl.contracts import Floats
from occamrl.errors import require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.continuous import ContinuousProblem
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.problems.units import Unit

CAPACITY = 10.0


def _quantile(name: str, *parameters: float, **more: float) -> Callable[[Floats], Any]:
    def quantile(u: Floats) -> Any:
        from scipy import stats  # slow to import

        return getattr(stats, name).ppf(u, *parameters, **more)

    return quantile


DEMANDS: dict[str, Callable[[Floats], Any]] = {  # litres a day
    "uniform 0-4": _quantile("uniform", 0.0, 4.0),
    "uniform 2-6": _quantile("uniform", 2.0, 4.0),
    "uniform 4-8": _quantile("uniform", 4.0, 4.0),
    "exponential 2": _quantile("expon", 0.0, 2.0),
    "exponential 4": _quantile("expon", 0.0, 4.0),
    "gamma 3, 1": _quantile("gamma", 3.0, scale=1.0),
    "gamma 8, .5": _quantile("gamma", 8.0, scale=0.5),
    "lognormal 2, .8": _quantile("lognorm", 0.8, scale=2.0),
    "lognormal 4, .3": _quantile("lognorm", 0.3, scale=4.0),
    "Pareto 1.5": _quantile("pareto", 1.5),
}


def sell(states: Floats, action: Floats, demand: Floats) -> Floats:
    """Return the stock in the evening: what is not sold of what was there in the morning, the order included."""
    return np.asarray(np.maximum(np.minimum(states + action[0], CAPACITY) - demand, 0.0))


@dataclass(frozen=True, kw_only=True)
class ContinuousInventory(ContinuousProblem):
    """Order in the evening, delivered in the morning; demand that meets an empty tank is lost, and unseen.

    The account of a day is margin times sales, less holding for what is left, less the fixed cost if something was
    ordered. Sales are morning stock less evening stock: a reward on the transition, linear in the next state, so that
    interpolation keeps it exactly (M20).

    Parameters
    ----------
    resolution : int
        Cells of the stock, 0 to 10 litres.
    horizon, mixture, nodes
        As in :class:`ContinuousProblem`. The mixture is of :data:`DEMANDS`, in their order. The law of a demand is cut
        into ``nodes`` equal shares.
    orders : int
        Orders of 0 to 8 litres, so many, evenly spaced.
    margin, holding, fixed : numbers
        Euro per litre sold, per litre and night, per order.
    """

    resolution: int = 20
    horizon: int = 14
    mixture: tuple[tuple[int, float], ...] = ((3, 0.6), (4, 0.4))
    nodes: int = 100
    orders: int = 5
    margin: float = 4.0
    holding: float = 0.5
    fixed: float = 3.0

    names: ClassVar[tuple[str, ...]] = tuple(DEMANDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("orders", self.orders, 2)
        for name in ("margin", "holding", "fixed"):
            require_number(name, getattr(self, name), 0.0, np.inf)

    @property
    def grid(self) -> Grid:
        """The grid of stocks."""
        return Grid(low=(0.0,), high=(CAPACITY,), points=(self.resolution + 1,))

    @property
    def action_grid(self) -> Sequence[float]:
        """The orders."""
        return tuple(np.linspace(0.0, 8.0, self.orders).tolist())

    @property
    def start(self) -> Sequence[float]:
        """An empty tank."""
        return (0.0,)

    def models(self) -> Sequence[Transition]:
        """Return one model for each law of the demand."""
        return [Driven(step=sell, rule=partial(quantile_rule, law), nodes=self.nodes) for law in DEMANDS.values()]

    @property
    def unit(self) -> Unit:
        """What rewards of 0 and 1 are worth: the worst and the best that a day can bring."""
        return Unit(name="EUR", low=-self.holding * CAPACITY - self.fixed, high=self.margin * CAPACITY)

    def reward(self, states: Floats, action: Floats) -> Floats:
        """Return the part of the reward that (s, a) fixes: that of selling nothing."""
        return np.asarray(self._account(states[:, 0], float(action[0]), np.minimum(states[:, 0] + action[0], CAPACITY)))

    def _account(self, stock: Floats, order: float, left: Floats) -> Floats:
        sold = np.minimum(stock + order, CAPACITY) - left
        return self.unit.reward(self.margin * sold - self.holding * left - self.fixed * (order > 0.0))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The grid's problem, with rewards on transitions; the entries of moves that cannot be are cut to [0, 1]."""
        stock, states = self.grid.vertices[:, 0], self.grid.size
        reward = np.zeros((states, self.orders, states))
        for a, order in enumerate(self.action_grid):
            reward[:, a] = np.clip(self._account(stock[:, None], order, stock[None]), 0.0, 1.0)
        return FiniteMDP(transition=self.kernel, reward=reward, horizon=self.horizon, initial_state=0)

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small instances, for the contract checks."""
        return [cls(resolution=4, horizon=4, nodes=20), cls(resolution=5, horizon=3, mixture=((10, 1.0),), nodes=9)]

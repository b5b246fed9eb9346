"""A ladder of classes of dynamics whose parameters are fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occamrl.control.planners import CEM
from occamrl.control.system import Actions, Box, Choices
from occamrl.errors import ParameterError, ShapeError, as_floats, require_integer, require_number
from occamrl.evidence.regression import RegressionEvidence
from occamrl.evidence.simulator_contract import call_checked
from occamrl.models.dynamics import DynamicsClass, GreyBox, Polynomial, Regressor, Rival, Terms
from occamrl.protocols import Floats, Planner, RewardFunction, System

_ENDLESS = 10**9  # steps of an episode of a log
_FAR = 1e150  # beyond any action


def unchanged(exogenous: Floats) -> Floats:
    """Return exogenous coordinates as they are: the forecast by default."""
    return exogenous


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Classes of dynamics, simplest first: polynomials, terms, grey boxes with parameters, rivals.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> def cart(states, actions, *, mass=1.0, friction=0.0):
    ...     push = actions[:, 0] - friction * states[:, 1]
    ...     speed = states[:, 1] + 0.05 * push / mass
    ...     return np.stack([states[:, 0] + 0.05 * speed, speed], axis=1)
    >>> dynamics = orl.Dynamics(
    ...     {"free": orl.GreyBox(cart, mass=(0.5, 3)),
    ...      "friction": orl.GreyBox(cart, mass=(0.5, 3), friction=(0, 2))},
    ...     state=["x", "v"], action=["u"], tolerance={"x": 0.005, "v": 0.05})
    >>> dynamics.sizes
    [1, 2]

    ``orl.select(log, dynamics)`` says which class is enough; ``dynamics.system(...)`` adds a task,
    in which :class:`~occamrl.OccamControl` acts.

    Parameters
    ----------
    classes : dict
        By name, :class:`~occamrl.Polynomial`, :class:`~occamrl.Terms`, :class:`~occamrl.GreyBox` or
        :class:`~occamrl.Rival`.
    state, action : sequences of str
        Names of the coordinates.
    tolerance : dict, optional
        By coordinate, the error of a prediction one step ahead, and 20 steps ahead, that would be
        good enough; it is said beside the errors, and changes no test.
    exogenous : sequence of str
        Coordinates that come after those of the state in every observation: inputs that are not
        predicted, such as the weather.
    forecast : callable
        ``forecast(exogenous [N, e]) -> [N, e]``, a step ahead, for planning; unchanged by default.
    """

    classes_by_name: Mapping[str, DynamicsClass]
    state: Sequence[str] = field(kw_only=True)
    action: Sequence[str] = field(kw_only=True)
    tolerance: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    exogenous: Sequence[str] = field(default=(), kw_only=True)
    forecast: Callable[[Floats], Floats] = field(default=unchanged, kw_only=True)
    task: System | None = field(default=None, kw_only=True)
    fitted: dict[tuple[int, str], Regressor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    kind = "dynamics"
    draws = 0
    nested = False  # in general nobody knows
    by_step = False

    def __post_init__(self) -> None:
        if not isinstance(self.classes_by_name, Mapping) or not self.classes_by_name:
            expected = "a dict: names, and Polynomial, Terms, GreyBox or Rival"
            raise ParameterError("classes", got=f"{self.classes_by_name!r:.80}", expected=expected)
        for name, kind in self.classes_by_name.items():
            if not isinstance(kind, (Polynomial, Terms, GreyBox, Rival)):
                expected = "orl.Polynomial, orl.Terms, orl.GreyBox or orl.Rival"
                got = f"{kind!r:.80}"
                raise ParameterError(f"classes[{name!r}]", got=got, expected=expected)
        for column in ("state", "action", "exogenous"):
            names = getattr(self, column)  # one of the fields above
            if isinstance(names, str):
                raise ParameterError(column, got=repr(names), expected=f"a list: [{names!r}]")
            object.__setattr__(self, column, tuple(names))
        inputs = (*self.state, *self.exogenous, *self.action)
        if not self.state or len(set(inputs)) < len(inputs):
            raise ParameterError(
                "state", got=list(inputs), expected="different names, at least one"
            )
        for name, size in self.tolerance.items():
            if name not in self.state:
                expected = f"one of {', '.join(self.state)}"
                raise ParameterError("tolerance", got=repr(name), expected=expected)
            require_number(f"tolerance[{name!r}]", size, 0.0, np.inf, open_low=True)
        for kind in self.classes:
            if isinstance(kind, Polynomial):
                kind.exponents(inputs)

    def __repr__(self) -> str:
        return f"Dynamics({' < '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return tuple(self.classes_by_name)

    @property
    def classes(self) -> tuple[DynamicsClass, ...]:
        """The classes, simplest first."""
        return tuple(self.classes_by_name.values())

    @property
    def angles(self) -> tuple[str, ...]:
        """Coordinates that some class treats as angles."""
        names: list[str] = []
        for kind in self.classes:
            if isinstance(kind, Polynomial):
                names.extend(kind.trig)
        return tuple(names)

    @property
    def sizes(self) -> list[int | None]:
        """How many parameters each class has; None for rivals."""
        sizes: list[int | None] = []
        inputs = (*self.state, *self.exogenous, *self.action)
        for kind in self.classes:
            if isinstance(kind, Polynomial):
                sizes.append(len(kind.exponents(inputs)) * len(self.state))
            elif isinstance(kind, Terms):
                sizes.append(len(kind.names) * len(self.state))
            elif isinstance(kind, GreyBox):
                sizes.append(len(kind.box))
            else:
                sizes.append(None)
        return sizes

    @property
    def box(self) -> Mapping[str, tuple[float, float]]:
        """The bounds of the parameters of grey boxes, by name; the widest where they differ."""
        box: dict[str, tuple[float, float]] = {}
        for kind in self.classes:
            if isinstance(kind, GreyBox):
                for name, (low, high) in kind.box.items():
                    before = box.get(name, (low, high))
                    box[name] = min(low, before[0]), max(high, before[1])
        return box

    def system(
        self, *, reward: RewardFunction, horizon: int, actions: Any, start: Any, unit_name: str = ""
    ) -> Dynamics:
        """Return the same ladder with a task, so that a controller can act in it.

        ``reward(states, actions, next_states) -> [N]`` is earned at every one of ``horizon`` steps;
        ``actions`` is a Box or a list; ``start`` a first state, exogenous coordinates last, or a
        function of a generator that returns one.
        """
        space: Actions = actions if isinstance(actions, Box) else Choices(actions)
        if space.dimension != len(self.action):
            got = f"{space.dimension} numbers"
            raise ShapeError("actions", got=got, expected=f"{len(self.action)}: {self.action}")
        size = len(self.state) + len(self.exogenous)

        def first_state(rng: np.random.Generator) -> Floats:
            state = np.atleast_1d(as_floats("start", start(rng) if callable(start) else start))
            if state.shape != (size,):
                expected = f"{size} numbers: {', '.join((*self.state, *self.exogenous))}"
                raise ShapeError("start", got=state.shape, expected=expected)
            return state

        rng = np.random.default_rng(0)
        states = np.stack([first_state(rng), first_state(rng)])
        call_checked("reward", reward, (states, space.draw(2, rng), states), (2,))
        task = System(
            dimension=size,
            horizon=require_integer("horizon", horizon, 1),
            actions=space,
            reward=reward,
            first_state=first_state,
            coordinates=(*self.state, *self.exogenous),
            unit_name=unit_name,
        )
        return replace(self, task=task)

    @property
    def known(self) -> System:
        """The task; without one, a system of the right sizes that earns nothing."""
        if self.task is not None:
            return self.task
        size = len(self.state) + len(self.exogenous)
        count = len(self.action)
        return System(
            dimension=size,
            horizon=_ENDLESS,
            actions=Box([-_FAR] * count, [_FAR] * count),
            reward=lambda states, actions, next_states: np.zeros(len(states)),
            first_state=lambda rng: np.zeros(size),
            coordinates=(*self.state, *self.exogenous),
        )

    def evidence(
        self, known: System | None, delta: float, planner: Planner | None = None
    ) -> RegressionEvidence:
        """Return what weighs the classes; ``planner`` finds the policies that are compared."""
        return RegressionEvidence(
            ladder=self,
            system=known or self.known,
            delta=delta,
            planner=planner or CEM(),
            valued=self.task is not None,
        )

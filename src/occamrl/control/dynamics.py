"""A ladder of classes of dynamics whose parameters are fitted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occamrl.control.planners import CEM
from occamrl.control.system import Actions, Box, Choices
from occamrl.errors import ShapeError, as_floats, require_integer, require_range
from occamrl.evidence.regression import RegressionEvidence
from occamrl.evidence.simulator_contract import call_checked
from occamrl.models.dynamics import DynamicsClasses
from occamrl.protocols import Floats, Planner, RewardFunction, System

_ENDLESS = 10**9  # steps of an episode of a log
_FAR = 1e150  # beyond any action


@dataclass(frozen=True, eq=False, repr=False)
class Dynamics(DynamicsClasses):
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

    task: System | None = field(default=None, kw_only=True)

    kind = "dynamics"
    draws = 0
    by_step = False

    def system(
        self,
        *,
        reward: RewardFunction,
        horizon: int,
        actions: Any,
        start: Any,
        unit_name: str = "",
        returns: tuple[float, float] | None = None,
    ) -> Dynamics:
        """Return the same ladder with a task, so that a controller can act in it.

        ``reward(states, actions, next_states) -> [N]`` is earned at every one of ``horizon`` steps;
        ``actions`` is a Box or a list; ``start`` a first state, exogenous coordinates last, or a
        function of a generator that returns one; ``returns`` between which an episode earns, if you
        know: see :class:`~occamrl.SimulatorLadder`.
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
            returns=None if returns is None else require_range("returns", returns),
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

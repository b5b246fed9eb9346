"""A user's simulators, of increasing richness, and the task that they are for.

A simulator is a function ``step(states [N, n], actions [N, m], rng) -> next_states [N, n]``: row i
is a draw of the state that follows row i, independent of the other rows. No density, no grid and no
derivative is asked for. Classes are nested: class m consists of the members that classes 1, ..., m
list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.addresses import generator
from occamrl.control.planners import CEM
from occamrl.control.system import Actions, Box, Choices
from occamrl.errors import ParameterError, ShapeError, as_floats, require_integer, require_range
from occamrl.evidence.simulated import SimulatedEvidence, label_of
from occamrl.evidence.simulator_contract import call_checked, check_simulator, step_checked
from occamrl.evidence.simulator_errors import ErrorFeatures
from occamrl.protocols import Floats, Ints, Planner, RewardFunction, Simulator, System

if TYPE_CHECKING:
    from occamrl.control.grid import OnGrid
    from occamrl.control.vertices import Grid

_WALK = 8  # walks that explore a member, and their steps
_EXPLORED = 4  # members
_NORMAL = 1.4826  # standard deviations of a normal law over its median distance from the median


class SimulatorLadder:
    """Nested classes of simulators, simplest first, with what a planner needs to know of the task.

    >>> from functools import partial
    >>> import numpy as np
    >>> import occamrl as orl
    >>> def walk(states, actions, rng, *, wind=0.0):
    ...     return states + 0.1 * actions + wind + 0.05 * rng.normal(size=states.shape)
    >>> ladder = orl.SimulatorLadder(
    ...     {"calm": [walk], "wind": [partial(walk, wind=w) for w in (-0.1, 0.1)]},
    ...     reward=lambda states, actions, next_states: -np.abs(next_states[:, 0]),
    ...     horizon=20, actions=orl.Box(-1, 1), start=[0.0])
    >>> ladder.sizes
    [1, 3]

    Parameters
    ----------
    classes : dict
        For each class, by name, the simulators that it adds to those before it.
    reward : callable
        ``reward(states, actions, next_states) -> [N]``.
    horizon : int
        Steps of an episode.
    actions : Box or list
    start : array, or callable of a generator
        A first state; for the contract check, for scales, and for what a policy is worth.
    view : callable, optional
        Coordinates in which laws are fitted, ``view(states [N, n]) -> [N, d]``: sine and cosine of
        an angle, say.
    resolution : array, optional
        Noise added to each coordinate of the view, so that deterministic simulators have a law:
        differences far below it are not seen. By default a thousandth of the typical change in a
        step.
    draws : int
        How many draws a real step is ranked among. One step multiplies the evidence by ``draws +
        1`` at most.
    coordinates : list of str, optional
        Names of the coordinates of the state, for sentences and pictures; ``state[0]``, ... by
        default.
    returns : (float, float), optional
        Between which an episode earns, if you know: what policies are worth is then said with
        ranges that hold for every law of returns, rare crashes included.
    check : bool
        Run :func:`check_simulator` on every member.
    """

    kind = "simulators"
    nested = True
    by_step = False
    box: Mapping[str, tuple[float, float]] = {}  # of real parameters: there are none

    def __init__(
        self,
        classes: Mapping[str, Sequence[Simulator]],
        *,
        reward: RewardFunction,
        horizon: int,
        actions: Any,
        start: Any,
        view: Callable[[Floats], Floats] | None = None,
        resolution: Any = None,
        draws: int = 39,
        coordinates: Sequence[str] = (),
        returns: tuple[float, float] | None = None,
        check: bool = True,
    ) -> None:
        _require_classes(classes)
        self.names = tuple(str(name) for name in classes)
        if len(set(self.names)) < len(self.names):
            raise ParameterError("classes", got=list(classes), expected="different names")
        self.members: list[Simulator] = []
        for simulators in classes.values():
            self.members.extend(simulators)
        counts = [len(simulators) for simulators in classes.values()]
        self.level: Ints = np.repeat(np.arange(len(counts)), counts)
        self.reward = reward
        self.view = view or _as_it_is
        self.start = start
        self.horizon = require_integer("horizon", horizon, 1)
        self.returns = None if returns is None else require_range("returns", returns)
        self.draws = require_integer("draws", draws, 4)
        self.actions: Actions = actions if isinstance(actions, Box) else Choices(actions)

        states, chosen, next_states = self._explore(generator(0, "explore"))
        if check:
            for member, level in zip(self.members, self.level, strict=True):
                name = f"{self.names[level]}: {label_of(member)}"
                check_simulator(member, states, chosen, name=name)
        call_checked("reward", reward, (states, chosen, next_states), (len(states),))
        views = call_checked("view", self.view, (states,), (len(states), None))
        next_views = call_checked("view", self.view, (next_states,), (len(states), None))
        self.coordinates = _names("coordinates", coordinates, "state", states.shape[1])
        view_names = self.coordinates
        if view is not None:
            view_names = _names("view", (), "view", views.shape[1])
        self.error_features = self._error_features(views, view_names)
        self.resolution = _resolution(resolution, next_views - views)

    def __repr__(self) -> str:
        sized = [f"{name} ({size})" for name, size in zip(self.names, self.sizes, strict=True)]
        return f"SimulatorLadder({' < '.join(sized)})"

    @property
    def sizes(self) -> list[int]:
        """How many members each class has, those of smaller classes included."""
        return [int((self.level <= m).sum()) for m in range(len(self.names))]

    @cached_property
    def known(self) -> System:
        """The task: what a controller may know of the real system."""
        return System(
            dimension=len(self.coordinates),
            horizon=self.horizon,
            actions=self.actions,
            reward=self.reward,
            first_state=self.first_state,
            coordinates=self.coordinates,
            returns=self.returns,
        )

    def evidence(
        self, known: System | None, delta: float, planner: Planner | None = None
    ) -> SimulatedEvidence:
        """Return what weighs the simulators on a system, by default their own.

        ``planner`` is for what policies are worth; CEM by default.
        """
        return SimulatedEvidence(
            ladder=self, system=known or self.known, delta=delta, planner=planner or CEM()
        )

    def first_state(self, rng: np.random.Generator) -> Floats:
        """Return a first state [n]."""
        try:
            state = self.start(rng) if callable(self.start) else self.start
            return np.atleast_1d(as_floats("start", state))
        except TypeError as error:
            expected = "a state, or a function start(rng) that returns one"
            raise ParameterError("start", got=f"TypeError: {error}", expected=expected) from error

    def on_grid(self, grid: Grid, actions: Any, draws: int = 200, seed: int = 0) -> OnGrid:
        """Return the simulators as a finite ladder on a grid (:mod:`occamrl.control.grid`).

        ``grid`` is an :class:`occamrl.control.vertices.Grid`, ``actions`` a list; ``draws`` are
        made at every vertex and action. Kernels are estimated: see there what that does to
        guarantees.
        """
        from occamrl.control.grid import OnGrid  # which needs this module

        return OnGrid(self, grid, actions, draws, seed)

    def _explore(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Walk at random in a few members; return states, actions and next states."""
        before = []
        chosen = []
        following = []
        spread = np.linspace(0, len(self.members) - 1, _EXPLORED).astype(int)
        for index in np.unique(spread):
            member = self.members[index]
            states = np.stack([self.first_state(rng) for _ in range(_WALK)])
            for _ in range(_WALK):
                actions = self.actions.draw(_WALK, rng)
                next_states = step_checked(member, states, actions, rng, label_of(member))
                before.append(states)
                chosen.append(actions)
                following.append(next_states)
                states = next_states
        return np.concatenate(before), np.concatenate(chosen), np.concatenate(following)

    def _error_features(self, views: Floats, view_names: tuple[str, ...]) -> ErrorFeatures:
        """Return the features of errors, standardised by the views that were explored."""
        low = self.actions.low
        high = self.actions.high
        half = np.maximum((high - low) / 2, 1e-12)
        return ErrorFeatures(
            names=(*view_names, *_names("actions", (), "action", low.size)),
            middle=np.concatenate([np.median(views, axis=0), (low + high) / 2]),
            width=np.concatenate([_spread(views), half]),
            views=views.shape[1],
        )


def _require_classes(classes: object) -> None:
    """Refuse what is no dict of lists of functions."""
    if not isinstance(classes, Mapping) or not classes:
        expected = "a dict: names, and lists of simulators"
        raise ParameterError("classes", got=f"{classes!r:.80}", expected=expected)
    for name, simulators in classes.items():
        listed = isinstance(simulators, Sequence) and len(simulators) > 0
        if not listed or not all(map(callable, simulators)):
            expected = "a list of functions: [step]"
            raise ParameterError(f"classes[{name!r}]", got=f"{simulators!r:.80}", expected=expected)


def _as_it_is(states: Floats) -> Floats:
    """Return states as they are: the view by default."""
    return states


def _names(field: str, names: Sequence[str], kind: str, count: int) -> tuple[str, ...]:
    """Return names of the numbers of a state, view or action; ``kind[0]``, ... by default."""
    if not names:
        return tuple(f"{kind}[{index}]" for index in range(count))
    if len(names) != count:
        raise ShapeError(field, got=list(names), expected=f"{count} names")
    return tuple(names)


def _resolution(resolution: Any, changes: Floats) -> Floats:
    """Return the noise that is added to each of d coordinates, by default by the changes [N, d]."""
    if resolution is None:
        return 1e-3 * _spread(changes)
    numbers = as_floats("resolution", resolution)
    size = changes.shape[1]
    positive = (numbers > 0) & (numbers < np.inf)
    if numbers.shape not in ((), (size,)) or not positive.all():
        expected = f"{size} numbers > 0, or one"
        raise ParameterError("resolution", got=resolution, expected=expected)
    return np.broadcast_to(numbers, (size,)).copy()


def _spread(values: Floats) -> Floats:
    """Return a robust scale of each column: of distances from the median; never zero."""
    distance = np.abs(values - np.median(values, axis=0))
    scale = _NORMAL * np.median(distance, axis=0)
    scale = np.where(scale > 0, scale, distance.mean(axis=0))
    return np.where(scale > 0, scale, np.maximum(1.0, np.abs(values).max(axis=0)))

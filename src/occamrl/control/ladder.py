"""A user's simulators, of increasing richness, and the contract that they keep.

A simulator is a function ``step(states [N, n], actions [N, m], rng) -> next_states [N, n]``: row i
is a draw of the state that follows row i, independent of the other rows. No density, no grid and no
derivative is asked for. Classes are nested: class m consists of the members that classes 1, ..., m
list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from occamrl.addresses import generator
from occamrl.errors import InvalidInput, ParameterError, ShapeError, as_floats, require_integer
from occamrl.protocols import Floats, Ints
from occamrl.running.identity import code_of, identity, name_of

Simulator = Callable[[Floats, Floats, np.random.Generator], Floats]
Reward = Callable[[Floats, Floats, Floats], Floats]
FAR = 1e12  # beyond which a number is as good as infinite
_ROWS, _CALLS, _WALK = (
    64,
    16,
    8,
)  # of the contract check: rows of a call, calls, steps away from the start


class SimulatorError(InvalidInput):
    """A simulator breaks its contract; the message says what to change."""


class Box:
    """Actions between two bounds, numbers or arrays.

    >>> import occamrl as orl
    >>> orl.Box(-2, 2).dimension
    1
    """

    def __init__(self, low: Any, high: Any) -> None:
        ends = [np.atleast_1d(as_floats(name, end)) for name, end in (("low", low), ("high", high))]
        try:
            self.low, self.high = np.broadcast_arrays(*ends)
        except ValueError as error:
            raise ParameterError(
                "Box", got=f"({low!r}, {high!r})", expected="bounds of one shape"
            ) from error
        if self.low.ndim != 1 or not np.all(
            np.isfinite(self.high - self.low) & (self.low < self.high)
        ):
            raise ParameterError(
                "Box", got=f"({low!r}, {high!r})", expected="finite bounds, low < high"
            )
        self.dimension = self.low.size  # how many numbers an action has

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return actions drawn uniformly [rows, m]."""
        return rng.uniform(self.low, self.high, (rows, self.low.size))

    def __repr__(self) -> str:
        return f"Box({self.low.tolist()}, {self.high.tolist()})"


class Choices:
    """A list of actions [K, m]; the k-th is the k-th action of a Discrete space."""

    def __init__(self, values: Any) -> None:
        self.values = np.atleast_2d(as_floats("actions", values).T).T
        if not self.values.size:
            raise ParameterError(
                "actions", got=values, expected="a Box, or a list of at least one action"
            )
        self.low, self.high = self.values.min(axis=0), self.values.max(axis=0)
        self.dimension = self.low.size

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return actions drawn uniformly [rows, m]."""
        return self.values[rng.integers(len(self.values), size=rows)]

    def __repr__(self) -> str:
        return repr(self.values.tolist())


Actions = Box | Choices


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
    check : bool
        Run :func:`check_simulator` on every member.
    """

    def __init__(
        self,
        classes: Mapping[str, Sequence[Simulator]],
        *,
        reward: Reward,
        horizon: int,
        actions: Any,
        start: Any,
        view: Callable[[Floats], Floats] | None = None,
        resolution: Any = None,
        draws: int = 39,
        coordinates: Sequence[str] = (),
        check: bool = True,
    ) -> None:
        if not isinstance(classes, Mapping) or not classes:
            raise ParameterError(
                "classes", got=f"{classes!r:.80}", expected="a dict: names, and lists of simulators"
            )
        for name, each in classes.items():
            if not isinstance(each, Sequence) or not each or not all(map(callable, each)):
                expected = "a list of functions: [step]"
                raise ParameterError(f"classes[{name!r}]", got=f"{each!r:.80}", expected=expected)
        self.names = tuple(str(name) for name in classes)
        if len(set(self.names)) < len(self.names):
            raise ParameterError("classes", got=list(classes), expected="different names")
        self.members: list[Simulator] = [member for each in classes.values() for member in each]
        self.level: Ints = np.repeat(
            np.arange(len(classes)), [len(each) for each in classes.values()]
        )
        self.reward, self.view, self.start = reward, view or (lambda states: states), start
        self.horizon, self.draws = (
            require_integer("horizon", horizon, 1),
            require_integer("draws", draws, 4),
        )
        self.actions: Actions = actions if isinstance(actions, Box) else Choices(actions)
        states, chosen, after = self._explore(generator(0, "explore"))
        for member, level in zip(self.members if check else (), self.level, strict=False):
            check_simulator(member, states, chosen, name=f"{self.names[level]}: {label_of(member)}")
        checked("reward", reward, (states, chosen, after), (len(states),))
        seen, then = (
            checked("view", self.view, (each,), (len(states), None)) for each in (states, after)
        )
        self.centre, self.spread = np.median(seen, axis=0), _spread(seen)
        self.coordinates = tuple(coordinates) or tuple(
            f"state[{i}]" for i in range(states.shape[1])
        )
        if len(self.coordinates) != states.shape[1]:
            raise ShapeError(
                "coordinates", got=list(coordinates), expected=f"{states.shape[1]} names"
            )
        viewed = self.coordinates if view is None else [f"view[{i}]" for i in range(seen.shape[1])]
        self.features = (
            *viewed,
            *(f"action[{i}]" for i in range(self.actions.dimension)),
        )  # that errors depend on
        resolution = (
            1e-3 * _spread(then - seen)
            if resolution is None
            else as_floats("resolution", resolution)
        )
        if np.shape(resolution) not in ((), seen.shape[1:]) or not np.all(
            (resolution > 0) & (resolution < np.inf)
        ):
            raise ParameterError(
                "resolution", got=resolution, expected=f"{seen.shape[1]} numbers > 0, or one"
            )
        self.resolution = np.broadcast_to(resolution, seen.shape[1:]).copy()

    def __repr__(self) -> str:
        classes = " < ".join(
            f"{name} ({size})" for name, size in zip(self.names, self.sizes, strict=True)
        )
        return f"SimulatorLadder({classes})"

    @property
    def sizes(self) -> list[int]:
        """How many members each class has, those of smaller classes included."""
        return [int((self.level <= m).sum()) for m in range(len(self.names))]

    @property
    def fingerprint(self) -> str:
        """A digest of names, sizes, parameters and code: agents with equal ones may go on from each other's files."""
        about: list[Any] = [
            self.names,
            self.sizes,
            self.horizon,
            self.draws,
            self.resolution.tolist(),
            self.actions,
        ]
        for function in (*self.members, self.reward, self.view):
            inner: Any = function.func if isinstance(function, partial) else function
            thing = inner if hasattr(inner, "__qualname__") else type(inner)
            owner = inner if thing is not inner else getattr(inner, "__self__", None)
            held = None if owner is None or isinstance(owner, ModuleType) else identity(owner)
            about.append(
                (
                    name_of(thing),
                    code_of(thing),
                    held,
                    label_of(function) if function is not inner else "",
                )
            )
        return hashlib.sha256(repr(about).encode()).hexdigest()

    def first_state(self, rng: np.random.Generator) -> Floats:
        """Return a first state [n]."""
        try:
            return np.atleast_1d(
                as_floats("start", self.start(rng) if callable(self.start) else self.start)
            )
        except TypeError as error:
            expected = "a state, or a function start(rng) that returns one"
            raise ParameterError("start", got=f"TypeError: {error}", expected=expected) from error

    def on_grid(self, grid: Any, actions: Any, draws: int = 200, seed: int = 0) -> Any:
        """Return the simulators as a finite ladder on a grid (:class:`occamrl.control.grid.OnGrid`).

        ``grid`` is an :class:`occamrl.control.vertices.Grid`, ``actions`` a list; ``draws`` are made
        at every vertex and action. Kernels are estimated: see there what that does to guarantees.
        """
        from occamrl.control.grid import OnGrid  # which needs this module

        return OnGrid(self, grid, actions, draws, seed)

    def _explore(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Walk at random in a few members; return states, actions and next states."""
        found = []
        for i in np.unique(np.linspace(0, len(self.members) - 1, 4).astype(int)):
            states = np.stack([self.first_state(rng) for _ in range(_WALK)])
            for _ in range(_WALK):
                actions = self.actions.draw(_WALK, rng)
                after = called(self.members[i], states, actions, rng, label_of(self.members[i]))
                found.append((states, actions, after))
                states = after
        states, actions, after = (np.concatenate(each) for each in zip(*found, strict=True))
        return states, actions, after


def label_of(member: Any) -> str:
    """Return a simulator in words: its name, and the arguments that a partial fixes."""
    if isinstance(member, partial):
        fixed = [*map(repr, member.args), *(f"{k}={v!r}" for k, v in member.keywords.items())]
        return f"{label_of(member.func)}({', '.join(fixed)})"
    return str(getattr(member, "__name__", type(member).__name__))


def _spread(values: Floats) -> Floats:
    """Return a robust scale of each column: the median distance from the median, or what is not zero."""
    around = np.abs(values - np.median(values, axis=0))
    found = 1.4826 * np.median(around, axis=0)
    found = np.where(found > 0, found, around.mean(axis=0))
    return np.where(found > 0, found, np.maximum(1.0, np.abs(values).max(axis=0)))


CALLS = {
    "step": "step(states [N, n], actions [N, m], rng) -> next_states [N, n]",
    "reward": "reward(states [N, n], actions [N, m], next_states [N, n]) -> [N]",
    "view": "view(states [N, n]) -> [N, d]",
    "policy": "policy(states [N, n], step) -> actions [N, m]",
}


def checked(
    kind: str, function: Any, given: tuple[Any, ...], shape: tuple[int | None, ...], name: str = ""
) -> Floats:
    """Return what a function of the user's returns; refuse an error, another shape and what is not finite."""
    name, expected = name or kind, f"{CALLS[kind]}, for every N"
    try:
        found = np.asarray(function(*given))
    except Exception as error:  # of someone else's function, which may raise anything
        raise SimulatorError(
            name, got=f"{type(error).__name__}: {error}", expected=expected
        ) from error
    fits = found.ndim == len(shape) and all(
        want in (None, got) for want, got in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype.kind not in "fiu":
        got = f"{found.dtype}{list(found.shape)} for {len(given[0])} rows"
        raise SimulatorError(name, got=got, expected=f"{expected}: one row for each row given")
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found.reshape(len(found), -1)).all(axis=1))[0])
        got = (
            f"{found[row]} for {', '.join(str(each[row]) for each in given if np.ndim(each) == 2)}"
        )
        raise SimulatorError(name, got=got, expected="finite numbers: clip what may overflow")
    return found.astype(np.float64)


def called(
    member: Simulator, states: Floats, actions: Floats, rng: np.random.Generator, name: str
) -> Floats:
    """Run a simulator once; refuse what breaks its form, or writes to what it was given."""
    given = states.copy(), actions.copy()
    after = checked("step", member, (states, actions, rng), states.shape, name)
    if not (np.array_equal(states, given[0]) and np.array_equal(actions, given[1])):
        raise SimulatorError(
            name,
            got="its arguments changed",
            expected="a new array: copy the states before writing",
        )
    return after


def check_simulator(
    member: Simulator, states: Floats, actions: Floats, *, name: str = "simulator"
) -> None:
    """Check the contract of a simulator on some states and actions; raise a SimulatorError that says what to change."""

    def run(states: Floats, actions: Floats, call: int) -> Floats:
        return called(member, states, actions, generator(call, "contract"), name)

    first = run(states, actions, 0)
    run(states[:1], actions[:1], 0)
    if not np.array_equal(first, run(states, actions, 0)):
        expected = "the same: draw from rng alone (not np.random), and keep nothing between calls"
        raise SimulatorError(
            name, got="other numbers from the same generator state", expected=expected
        )
    for i in (0, len(states) // 2, len(states) - 1):  # near the start, and where the walk came to
        _check_rows(run, states, actions, i, name)


def _check_rows(run: Any, states: Floats, actions: Floats, i: int, name: str) -> None:
    """Check that the rows of a call are independent draws of one law: at state i, alone and beside others."""
    one = np.repeat(states[[i]], _ROWS, axis=0), np.repeat(actions[[i]], _ROWS, axis=0)
    calls = np.stack([run(*one, call) for call in range(1, _CALLS + 1)])  # [calls, rows, n]
    alone = np.concatenate(
        [run(states[[i]], actions[[i]], call) for call in range(_CALLS + 1, _CALLS + 1 + _ROWS)]
    )
    size = 1e-9 * (1.0 + np.abs(calls).max(axis=(0, 1)))
    within, between = calls.var(axis=1, ddof=1).mean(axis=0), calls.mean(axis=1).var(axis=0, ddof=1)
    random = np.sqrt(within + between) > size
    ratio = np.where(
        random, between * _ROWS / np.maximum(within, size**2), 1.0
    )  # near 1 for independent rows
    mixed = np.tile([i, (i + len(states) // 2) % len(states)], _ROWS)
    beside = run(states[mixed], actions[mixed], 0)[::2]  # state i among others
    moved, single = (np.abs(each - calls[0]).max(axis=0) > 1e3 * size for each in (beside, alone))
    for k in np.flatnonzero(random):  # p < 1e-6 for one law
        moved[k], single[k] = (_apart(calls[..., k], each[:, k]) for each in (beside, alone))
    for bad, got, expected in (
        (
            ratio > 8.0,
            "rows that share a draw",
            "fresh draws a row: rng.normal(size=len(states)), not rng.normal()",
        ),
        (
            ratio < 0.05,
            "rows that balance each other",
            "independent rows: no antithetic or stratified draws",
        ),
        (
            moved,
            "a row that depends on the other rows",
            "every row treated alone (axis=1, not the mean of all rows)",
        ),
        (
            single,
            "another law for one row",
            "the same law whether rows come one by one or together",
        ),
    ):
        if bad.any():
            raise SimulatorError(
                name, got=f"{got} of a call (coordinate {int(bad.argmax())})", expected=expected
            )


def _apart(several: Floats, others: Floats) -> bool:
    return bool(ks_2samp(several.ravel(), others, method="asymp").statistic > 0.36)

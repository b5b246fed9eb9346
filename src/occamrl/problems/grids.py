r"""Problems on a box: a kernel on a box turned into a kernel on the vertices of a grid, and how large the error is.

Values at the vertices are continued to (I f)(x) = sum_v lambda_v(x) f(v), the weights being products of hats: at least
zero, with sum one. A rule for the noise has nodes, which move s to y_i, and weights w_i, such that
:math:`\int f(y)\, P(dy \mid s, a) \approx \sum_i w_i f(y_i)`. From vertex s the grid's problem goes to y_i with weight
w_i, and from there to the corners of the cell of y_i with the weights of interpolation. Three grids, each twice as fine
as the one before, give an estimate of the error (Richardson). ``docs/continuous-states.md`` has the proofs.

In the problems ten candidate models of one system are mixed. On a grid each is a sparse kernel, and
regret is exact.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, ndtri

from occamrl.errors import ParameterError, ShapeError, as_floats, require_integer, require_integers
from occamrl.problems.mdp import FiniteMDP, RewardMap, Small
from occamrl.protocols import Floats

SLOWEST, FASTEST = (
    0.2,
    2.0,
)  # orders of convergence: below is none; multilinear interpolation has no higher one
_ROUNDING = 1e-9  # of the width of the box


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Evenly spaced vertices over a box, numbered with the last dimension running fastest.

    >>> grid = Grid(low=[0.0], high=[1.0], points=[3])
    >>> grid.interpolate(np.array([0.0, 1.0, 4.0]), [[0.25], [0.75]]).tolist()
    [0.5, 2.5]
    """

    low: Sequence[float]  # the box
    high: Sequence[float]
    points: Sequence[
        int
    ]  # vertices per dimension, both ends included; on a circle, high is low again: not counted
    periodic: Sequence[bool] = ()  # dimensions that close to a circle (angles); none by default

    def __post_init__(self) -> None:
        low, high = as_floats("low", self.low), as_floats("high", self.high)
        if (
            low.shape != (len(self.points),)
            or high.shape != low.shape
            or len(self.periodic) not in (0, low.size)
        ):
            raise ShapeError(
                "low, high", got=(low.shape, high.shape), expected="as many numbers as points"
            )
        if not (np.isfinite(high - low) & (low < high)).all():
            raise ParameterError(
                "low, high", got=(self.low, self.high), expected="finite numbers, low < high"
            )
        for i, m in enumerate(self.points):
            require_integer("points", m, 2, index=(i,))

    @cached_property
    def circle(self) -> NDArray[np.bool_]:
        """Which dimensions close to a circle [n]."""
        return (
            np.array(self.periodic, bool) if len(self.periodic) else np.zeros(len(self.low), bool)
        )

    @property
    def size(self) -> int:
        """S, the number of vertices."""
        return math.prod(self.points)

    @cached_property
    def spacing(self) -> Floats:
        """The distance D_i of neighbouring vertices [n]."""
        return np.asarray(
            (np.asarray(self.high, float) - self.low) / (np.asarray(self.points) - ~self.circle)
        )

    @cached_property
    def vertices(self) -> Floats:
        """Every vertex [S, n]."""
        axes = [
            low + step * np.arange(m)
            for low, step, m in zip(self.low, self.spacing, self.points, strict=True)
        ]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)

    def outside(self, states: Floats) -> NDArray[np.bool_]:
        """Return which states are not finite or lie outside the box, up to rounding; circles have no outside [N]."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        margin = _ROUNDING * (high - low)
        inside = np.isfinite(states) & (
            self.circle | ((states >= low - margin) & (states <= high + margin))
        )
        return np.asarray(~inside.all(axis=1))

    def corners(self, states: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
        """Return the 2^n corners of the cell of each state [N, n] and their weights lambda, both [N, 2^n]."""
        found, n = as_floats("states", states), len(self.low)
        if found.ndim != 2 or found.shape[1] != n:
            raise ShapeError("states", got=found.shape, expected=f"[N, {n}]")
        for i in np.flatnonzero(self.outside(found))[:1].tolist():
            raise ParameterError(
                "states", index=(i,), got=found[i].tolist(), expected=self.described
            )
        points = np.asarray(self.points)
        position = (found - self.low) / self.spacing
        position = np.where(
            self.circle, np.mod(position, points), np.clip(position, 0.0, points - 1)
        )
        cell = np.minimum(np.floor(position), points - 1 - ~self.circle).astype(np.int64)
        share, vertex, weight = position - cell, [], []
        for up in itertools.product((0, 1), repeat=n):
            vertex.append(np.ravel_multi_index(tuple(((cell + up) % points).T), tuple(self.points)))
            weight.append(np.where(up, share, 1.0 - share).prod(axis=1))
        return np.stack(vertex, axis=1), np.stack(weight, axis=1)

    def interpolate(self, values: ArrayLike, states: ArrayLike) -> Floats:
        """Return (I f)(x) for values f(v) [S] at the vertices and states x [N, n]."""
        known = as_floats("values", values, (self.size,))
        vertex, weight = self.corners(states)
        return np.asarray((known[vertex] * weight).sum(axis=1))

    @property
    def described(self) -> str:
        """The box in words."""
        ends = zip(self.low, self.high, self.circle, strict=True)
        return "a state in " + " x ".join(
            "any angle" if turns else f"[{low:g}, {high:g}]" for low, high, turns in ends
        )


Rule = tuple[Floats, Floats]  # nodes [Q, q] and weights [Q], which sum to one, for a law of noise


def normal_rule(scale: Sequence[float], nodes: int) -> Rule:
    """Return Gauss-Hermite's rule for independent normal noise: exact for polynomials of degree 2 nodes - 1.

    >>> nodes, weights = normal_rule([2.0], 3)
    >>> round(float(weights @ nodes[:, 0] ** 4), 9)  # 3 sigma^4
    48.0
    """
    x, w = np.polynomial.hermite_e.hermegauss(require_integer("nodes", nodes, 1))
    points = np.array(list(itertools.product(*(sigma * x for sigma in scale))))
    return points, np.array(
        [np.prod(each) for each in itertools.product(w / w.sum(), repeat=len(scale))]
    )


def quantile_rule(quantile: Callable[[Floats], ArrayLike], nodes: int) -> Rule:
    """Return the quantiles at the middles of equal shares, for noise of one dimension and any law.

    Whatever is integrated errs by at most its total variation along the noise over 2 nodes
    (Koksma's inequality).

    >>> quantile_rule(lambda u: 10.0 * u, 2)[0].ravel().tolist()
    [2.5, 7.5]
    """
    middles = (np.arange(require_integer("nodes", nodes, 1)) + 0.5) / nodes
    return as_floats("quantile", quantile(middles), (nodes,))[:, None], np.full(nodes, 1.0 / nodes)


Step = Callable[
    [Floats, Floats, Floats], ArrayLike
]  # of states [N, n], action [m] and noise [N, q], to [N, n]


def discretise(
    step: Step, rule: Rule, grid: Grid, actions: ArrayLike, *, start: ArrayLike | None = None
) -> sp.csr_array[np.float64]:
    """Return the kernel of s' = step(s, a, noise) over the vertices, a sparse matrix (S*A, S) with row ``s*A + a``.

    Actions are [A, m] or [A]. Episodes begin in one of the states ``start`` [N, n], by default at
    any vertex. A vertex in reach of these with a next state outside the box is refused; the next
    states of others are put on its edge.
    """
    states, acts = grid.vertices, as_floats("actions", actions)
    acts = acts[:, None] if acts.ndim == 1 else acts
    rows, vertices, weights = [], [], []
    left: dict[
        int, tuple[int, Floats]
    ] = {}  # by vertex, an action and a next state outside the box
    for (a, action), (node, weight) in itertools.product(
        enumerate(acts), list(zip(*rule, strict=True))
    ):
        noise = np.tile(node, (grid.size, 1))
        points = as_floats("next states", step(states.copy(), action, noise), states.shape)
        for s in np.flatnonzero(grid.outside(points)).tolist():
            left.setdefault(s, (a, points[s]))
        inside = np.where(grid.circle, points, np.clip(points, grid.low, grid.high))
        vertex, share = grid.corners(np.where(np.isfinite(inside), inside, grid.low))
        rows.append(np.repeat(np.arange(grid.size) * len(acts) + a, vertex.shape[1]))
        vertices.append(vertex.ravel())
        weights.append((share * weight).ravel())
    entries = np.concatenate(weights), (np.concatenate(rows), np.concatenate(vertices))
    kernel: Any = sp.csr_array(entries, shape=(grid.size * len(acts), grid.size))
    kernel.eliminate_zeros()
    reached = np.full(grid.size, start is None)
    if start is not None:
        vertex, share = grid.corners(start)
        reached[vertex[share > 0.0]] = True
    while (
        wider := reached | (kernel.T @ np.repeat(reached, len(acts)) > 0.0)
    ).sum() > reached.sum():
        reached = wider
    for s, (a, point) in sorted(left.items()):
        if reached[s] or not np.isfinite(point).all():
            got = (
                f"{point.tolist()} from state {states[s].tolist()} under action {acts[a].tolist()}"
            )
            expected = f"{grid.described}: a grid that covers the reachable states"
            raise ParameterError("next state", index=(s,), got=got, expected=expected)
    return sp.csr_array(kernel)


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """What refining showed, from the coarsest grid to the finest; ``print`` it."""

    points: tuple[tuple[int, ...], ...]
    order: float  # p, seen on the last three
    errors: tuple[
        float, ...
    ]  # estimated, the largest over the states compared; NaN: no convergence seen
    at_start: tuple[
        float, ...
    ]  # estimated at the first of the states compared, with its sign: grid minus limit
    states: int

    def __str__(self) -> str:
        lines = [
            f"values compared at {self.states:,} states; order of convergence seen: {self.order:.2f}"
        ]
        for points, error, start in zip(self.points, self.errors, self.at_start, strict=True):
            told = f"error about {error:.3g} at most, {start:+.3g} at the first state"
            told = "not converging yet, no estimate" if np.isnan(error) else told
            lines.append(f"  {' x '.join(str(m) for m in points):>12} vertices: {told}")
        return "\n".join(lines)


def refinement(solutions: Sequence[tuple[Grid, Floats]], states: ArrayLike) -> Refinement:
    """Estimate the error of each of three solutions (grid, values [S]), each on a grid twice as fine as the one before.

    Values are compared at ``states`` [N, n]; the first may be that in which episodes begin.
    """
    found = np.stack([grid.interpolate(values, states) for grid, values in solutions])
    steps = np.diff(found, axis=0)
    gaps, first = np.abs(steps).max(axis=1), steps[:, 0]
    order, factor = _order(gaps)
    left = factor * gaps[1]  # beyond the finest grid
    own = _order(np.abs(first))[1] if np.sign(first[0]) == np.sign(first[1]) else factor
    limit = found[2, 0] + (factor if np.isnan(own) else own) * first[1]
    return Refinement(
        points=tuple(tuple(int(m) for m in grid.points) for grid, _ in solutions),
        order=order,
        errors=(float(left + gaps.sum()), float(left + gaps[1]), float(left)),
        at_start=tuple((found[:, 0] - limit).tolist()),
        states=found.shape[1],
    )


def _order(gaps: Floats) -> tuple[float, float]:
    """Return p and 1/(2^p - 1), from two differences."""
    if gaps[1] == 0.0:
        return FASTEST, 0.0
    order = float(np.log2(gaps[0] / gaps[1])) if gaps[0] > 0.0 else 0.0
    used = min(order, FASTEST)
    return order, 1.0 / (2.0**used - 1.0) if used >= SLOWEST else float("nan")


# Problems -----------------------------------------------------------------------------------------

Mixture = tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class ContinuousProblem(ABC):
    """A problem on a box; at every step one of the candidates of the mixture is drawn."""

    resolution: int  # how fine the grid is: cells per dimension
    horizon: int
    mixture: Mixture  # the candidates that the truth mixes, counted from 1, and their shares
    nodes: int = 5  # of the rule for the noise

    candidates: ClassVar[
        Mapping[str, Any]
    ]  # by name, what tells one model from the others: a law, a friction
    low: ClassVar[Sequence[float]]  # the box
    high: ClassVar[Sequence[float]]
    periodic: ClassVar[Sequence[bool]]
    start: ClassVar[Sequence[float]]  # where episodes begin
    action_grid: ClassVar[Sequence[float]]  # the actions, a finite grid of a Box

    def __post_init__(self) -> None:
        require_integers(self, resolution=2, nodes=1)
        shares, most = dict(self.mixture), len(self.candidates)
        inside = (
            set(shares) <= set(range(1, most + 1)) and min(shares.values(), default=-1.0) >= 0.0
        )
        if not inside or len(shares) < len(self.mixture) or abs(sum(shares.values()) - 1.0) > 1e-9:
            expected = f"pairs of a candidate, 1 ... {most}, and its share; shares sum to 1"
            raise ParameterError("mixture", got=self.mixture, expected=expected)

    @abstractmethod
    def model(self, candidate: Any) -> tuple[Step, Rule]:
        """Return the step and the law of its noise for one of the candidates."""

    @abstractmethod
    def reward(self, states: Floats, action: float) -> Floats:
        """Return r(s, a) [N] in [0, 1] of states [N, n] under one action, or [N, S] by next vertex."""

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates' names."""
        return tuple(self.candidates)

    @property
    def theta(self) -> Floats:
        """The true shares [d]."""
        shares = dict(self.mixture)
        return np.array([shares.get(j, 0.0) for j in range(1, len(self.candidates) + 1)])

    @cached_property
    def grid(self) -> Grid:
        """The grid at this resolution."""
        points = [self.resolution + (not circle) for circle in self.periodic]
        return Grid(low=self.low, high=self.high, points=points, periodic=self.periodic)

    def kernel_of(self, name: str) -> Any:
        """Return the sparse kernel (S*A, S) of a candidate."""
        return discretise(
            *self.model(self.candidates[name]), self.grid, self.action_grid, start=[self.start]
        )

    @cached_property
    def phi(self) -> list[Any]:
        """One sparse kernel (S*A, S) per candidate."""
        return [self.kernel_of(name) for name in self.names]

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The grid's problem; an episode that starts between vertices starts at one of the corners."""
        reward = np.stack(
            [self.reward(self.grid.vertices, action) for action in self.action_grid], axis=1
        )
        corner, weight = self.grid.corners([self.start])
        initial = np.bincount(corner[0], weights=weight[0], minlength=self.grid.size)
        kernel = sum(share * self.kernel_of(self.names[j - 1]) for j, share in self.mixture)
        return FiniteMDP(
            transition=kernel, reward=reward, horizon=self.horizon, initial_state=initial
        )

    def discretisation_error(self) -> Refinement:
        """Solve this grid and those two and four times as fine, and estimate how far V*_1 is from that on the box."""
        solved = [replace(self, resolution=self.resolution * times) for times in (1, 2, 4)]
        states = np.concatenate([[self.start], self.grid.vertices])
        return refinement([(each.grid, each.mdp.optimal_values[0]) for each in solved], states)

    def quadrature_error(self) -> float:
        """Return the largest total variation distance of a candidate's rows to those of twice the nodes.

        A value function of range R is integrated to within R times this, as far as the finer rule
        can be trusted.
        """
        finer = replace(self, nodes=2 * self.nodes)
        gaps = (abs(one - two) for one, two in zip(self.phi, finer.phi, strict=True))
        return 0.5 * max(float(gap.sum(axis=1).max()) for gap in gaps)


CAPACITY = 10.0  # of the tank, in litres
MARGIN, HOLDING, FIXED = 4.0, 0.5, 3.0  # euro per litre sold, per litre and night, per order
DEMANDS: dict[str, Callable[[Floats], Any]] = {  # quantiles, litres a day
    "uniform 0-4": lambda u: 4.0 * u,
    "uniform 2-6": lambda u: 2.0 + 4.0 * u,
    "uniform 4-8": lambda u: 4.0 + 4.0 * u,
    "exponential 2": lambda u: -2.0 * np.log1p(-u),
    "exponential 4": lambda u: -4.0 * np.log1p(-u),
    "gamma 3, 1": lambda u: gammaincinv(3.0, u),
    "gamma 8, .5": lambda u: 0.5 * gammaincinv(8.0, u),
    "lognormal 2, .8": lambda u: 2.0 * np.exp(0.8 * ndtri(u)),
    "lognormal 4, .3": lambda u: 4.0 * np.exp(0.3 * ndtri(u)),
    "Pareto 1.5": lambda u: (1.0 - u) ** (-1.0 / 1.5),
}


def sell(states: Floats, action: Floats, demand: Floats) -> Floats:
    """Return the stock in the evening: what is not sold of what was there in the morning, the order included."""
    return np.asarray(np.maximum(np.minimum(states + action[0], CAPACITY) - demand, 0.0))


@dataclass(frozen=True, kw_only=True)
class ContinuousInventory(ContinuousProblem):
    """A tank that is refilled once a day: real stock, real orders, and a law of the demand that mixes ten candidates.

    Order in the evening, delivered in the morning; demand that meets an empty tank is lost, and
    unseen. The account of a day is margin times sales, less holding for what is left, less the
    fixed cost if something was ordered: linear in the next state, so that interpolation keeps it
    exactly. The mixture is of :data:`DEMANDS`.
    """

    resolution: int = 20
    horizon: int = 14
    mixture: Mixture = ((3, 0.6), (4, 0.4))
    nodes: int = 100

    candidates: ClassVar[Mapping[str, Any]] = DEMANDS
    low, high, periodic = (0.0,), (CAPACITY,), (False,)
    start: ClassVar[Sequence[float]] = (0.0,)  # an empty tank
    action_grid: ClassVar[Sequence[float]] = (0.0, 2.0, 4.0, 6.0, 8.0)  # litres ordered
    unit: ClassVar[RewardMap] = RewardMap(
        low=-HOLDING * CAPACITY - FIXED, high=MARGIN * CAPACITY
    )  # a day's account
    small: ClassVar[Small] = (
        {"resolution": 4, "horizon": 4, "nodes": 20},
        {"resolution": 5, "horizon": 3, "mixture": ((10, 1.0),), "nodes": 9},
    )

    def model(self, candidate: Any) -> tuple[Step, Rule]:
        """Return the model with one law of the demand."""
        return sell, quantile_rule(candidate, self.nodes)

    def reward(self, states: Floats, action: float) -> Floats:
        """Return the account of a day by the stock left; impossible moves are cut to [0, 1]."""
        left, filled = self.grid.vertices[:, 0], np.minimum(states + action, CAPACITY)
        account = MARGIN * (filled - left) - HOLDING * left - FIXED * (action > 0.0)
        return np.asarray(np.clip(self.unit.to_unit(account), 0.0, 1.0))


TORQUE, TOP_SPEED = 2.0, 8.0  # Pendulum-v1; mass and length are 1, gravity is 10, a time step .05
STICK = 0.2  # rad/s: dry friction turns over about this speed, smoothly
FRICTIONS: dict[
    str, Callable[[Floats, Floats], Floats]
] = {  # (angle, speed) -> deceleration, in rad/s^2
    "none": lambda angle, speed: 0.0 * speed,
    "viscous .3": lambda angle, speed: 0.3 * speed,
    "viscous .6": lambda angle, speed: 0.6 * speed,
    "viscous 1.2": lambda angle, speed: 1.2 * speed,
    "dry .8": lambda angle, speed: (
        0.8 * np.tanh(speed / STICK)
    ),  # Coulomb: of one size, against the motion
    "dry 2.4": lambda angle, speed: 2.4 * np.tanh(speed / STICK),
    "drag .15": lambda angle, speed: 0.15 * speed * np.abs(speed),
    "Stribeck .8": lambda angle, speed: (0.8 + 1.2 * np.exp(-(speed**2))) * np.tanh(speed / STICK),
    "below 1.5": lambda angle, speed: (
        0.75 * (1.0 - np.cos(angle)) * speed
    ),  # viscous, where the pendulum hangs
    "one way 1.2": lambda angle, speed: 1.2 * np.maximum(speed, 0.0),
}


def swing(friction: Any, states: Floats, action: Floats, noise: Floats) -> Floats:
    """Return the states after 4 time steps under one torque and one disturbance of it."""
    angle, speed = states[:, 0], states[:, 1]
    for _ in range(4):
        push = 15.0 * np.sin(angle) + 3.0 * (action[0] + noise[:, 0])
        speed = np.clip(speed + 0.05 * (push - friction(angle, speed)), -TOP_SPEED, TOP_SPEED)
        angle = angle + 0.05 * speed
    return np.stack([np.mod(angle + np.pi, 2.0 * np.pi) - np.pi, speed], axis=1)


@dataclass(frozen=True, kw_only=True)
class Pendulum(ContinuousProblem):
    """A noisy pendulum to be swung up, whose friction is an unknown mixture of ten models.

    Swing up from rest below, and stay; states are (angle, speed), the angle 0 being upright. Mass,
    length, gravity, torque, speed limit, time step and cost are those of Gymnasium's
    ``Pendulum-v1``; a torque is held for 4 time steps (0.2 s) and disturbed by 0.5, and there is
    friction. The mixture is of :data:`FRICTIONS`.
    """

    resolution: int = 24
    horizon: int = 24
    mixture: Mixture = ((6, 0.6), (9, 0.4))

    candidates: ClassVar[Mapping[str, Any]] = FRICTIONS
    low, high, periodic = (-np.pi, -TOP_SPEED), (np.pi, TOP_SPEED), (True, False)
    start: ClassVar[Sequence[float]] = (-np.pi, 0.0)  # hanging, at rest
    action_grid: ClassVar[Sequence[float]] = (-TORQUE, 0.0, TORQUE)
    small: ClassVar[Small] = (
        {"resolution": 4, "horizon": 4},
        {"resolution": 5, "horizon": 3, "mixture": ((1, 1.0),)},
    )

    def model(self, candidate: Any) -> tuple[Step, Rule]:
        """Return the model with one friction."""
        return partial(swing, candidate), normal_rule((0.5,), self.nodes)

    def reward(self, states: Floats, action: float) -> Floats:
        """Return 1 minus the cost of Pendulum-v1 over its largest value."""
        cost = states[:, 0] ** 2 + 0.1 * states[:, 1] ** 2 + 0.001 * action**2
        return np.asarray(1.0 - cost / (np.pi**2 + 0.1 * TOP_SPEED**2 + 0.001 * TORQUE**2))

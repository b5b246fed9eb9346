r"""Transitions on a box as weighted points: what an integral over the next state is taken with.

Every form a model may come in answers :meth:`Transition.atoms`: it gives points y_i and weights w_i such that

.. math:: \int f(y)\, P(dy \mid s, a) \approx \sum_i w_i f(y_i).

- :class:`Driven`, s' = step(s, a, noise) with noise of a known law: by a rule for that law (Gauss-Hermite for normal
  noise, quantiles for any law of one dimension, or a fixed set of draws);
- :class:`Sampled`, a simulator that can only be called: by the same number of draws at every state;
- :class:`Density`, p(s' | s, a): by Gauss-Legendre's rule in every cell of a box.

``finer()`` gives the same model with twice the points per dimension: the difference is an estimate of the error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from occamrl.continuous.grid import StateError, require_box
from occamrl.errors import ParameterError, ProbabilityError, ShapeError, as_floats, require_integer
from occamrl.protocols import Floats
from occamrl.seeding import stream

MOST_NODES = 100  # of Gauss-Hermite, per dimension: beyond, its weights underflow
_AT_ONCE = 2**16  # states that a step is called with
_SUM = 1e-9
_MASS = 1e-3  # how far the integral of a density over its box may be from one


class Atom(NamedTuple):
    """One point of the rule for each of N states."""

    points: Floats  # [N, n]
    weight: Floats  # [N]


class Transition(Protocol):
    """A model of what follows a state and an action."""

    def atoms(self, states: Floats, action: Floats) -> Iterator[Atom]:
        """Return the rule at states [N, n] under one action [m]; the weights of each state sum to one."""

    def finer(self) -> Self:
        """Return the same model with twice the points per dimension."""


class Rule(NamedTuple):
    """Nodes and weights for a law of noise."""

    nodes: Floats  # [Q, q]
    weights: Floats  # [Q], sum 1


def require_rule(rule: Any) -> Rule:
    """Return the nodes and weights of a rule, or refuse what is no law of noise."""
    if not isinstance(rule, tuple) or len(rule) != 2:
        raise ShapeError("rule", got=type(rule).__name__, expected="nodes [Q, q] and weights [Q]")
    nodes, weights = (as_floats("rule", part, "nodes [Q, q] and weights [Q]") for part in rule)
    if nodes.ndim != 2 or weights.shape != (len(nodes),) or not len(nodes):
        got = f"nodes {nodes.shape} and weights {weights.shape}"
        raise ShapeError("rule", got=got, expected="nodes [Q, q] and weights [Q]")
    if not np.isfinite(nodes).all():
        raise ParameterError("rule", got="nodes that are not finite", expected="finite numbers")
    if not ((weights >= 0.0).all() and abs(weights.sum() - 1.0) <= _SUM):
        got = f"weights of at least {weights.min():g} that sum to {weights.sum():g}"
        raise ProbabilityError("rule", got=got, expected="weights >= 0 that sum to 1")
    return Rule(nodes, weights)


def normal_rule(scale: ArrayLike, nodes: int) -> Rule:
    """Return Gauss-Hermite's rule for independent normal noise: exact for polynomials of degree 2 nodes - 1.

    Examples
    --------
    >>> rule = normal_rule([2.0], 3)
    >>> round(float(rule.weights @ rule.nodes[:, 0] ** 4), 9)  # 3 sigma^4
    48.0
    """
    scales = np.atleast_1d(np.asarray(scale, dtype=np.float64))
    if require_integer("nodes", nodes, 1) > MOST_NODES or not (np.isfinite(scales) & (scales >= 0.0)).all():
        got, expected = (scales.tolist(), nodes), f"scales >= 0, and 1 to {MOST_NODES} nodes"
        raise ParameterError("scale, nodes", got=got, expected=expected)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    kept = [(sigma * x, w / w.sum()) if sigma > 0.0 else (np.zeros(1), np.ones(1)) for sigma in scales]
    points = np.array(list(itertools.product(*(axis for axis, _ in kept))))
    weights = np.array([np.prod(each) for each in itertools.product(*(part for _, part in kept))])
    return Rule(points, weights)


def quantile_rule(quantile: Callable[[Floats], ArrayLike], nodes: int) -> Rule:
    """Return the quantiles at the middles of equal shares, for noise of one dimension and any law.

    Whatever is integrated errs by at most its total variation along the noise over 2 nodes (Koksma's inequality; the
    discrepancy of midpoints is 1/(2 nodes)): for a monotone function by its range over 2 nodes.

    Examples
    --------
    >>> quantile_rule(lambda u: 10.0 * u, 2).nodes.ravel().tolist()
    [2.5, 7.5]
    """
    middles = (np.arange(require_integer("nodes", nodes, 1)) + 0.5) / nodes
    found = as_floats("quantile", quantile(middles), f"{nodes} finite numbers")
    if found.shape != (nodes,) or not np.isfinite(found).all():
        raise ShapeError("quantile", got=f"an array {found.shape}", expected=f"{nodes} finite numbers")
    return Rule(found[:, None], np.full(nodes, 1.0 / nodes))


def drawn_rule(law: Callable[[np.random.Generator, int], ArrayLike], draws: int, seed: int = 0) -> Rule:
    """Return a fixed set of draws with equal weights; ``law(rng, draws)`` gives them [Q, q]."""
    nodes = as_floats("law", law(stream(seed, "rule", require_integer("draws", draws, 1)), draws), "finite draws")
    nodes = nodes[:, None] if nodes.ndim == 1 else nodes
    if nodes.ndim != 2 or len(nodes) != draws or not np.isfinite(nodes).all():
        raise ShapeError("law", got=f"an array {nodes.shape}", expected=f"{draws} finite draws")
    return Rule(nodes, np.full(draws, 1.0 / draws))


@dataclass(frozen=True, kw_only=True, eq=False)
class Driven:
    """s' = step(s, a, noise).

    Parameters
    ----------
    step : callable
        ``step(states [N, n], action [m], noise [N, q]) -> [N, n]``.
    rule : callable
        ``rule(nodes) -> Rule`` for the law of the noise, such as ``lambda n: normal_rule([0.5], n)``.
    nodes : int
    """

    step: Callable[[Floats, Floats, Floats], ArrayLike]
    rule: Callable[[int], Rule]
    nodes: int = 5

    def __post_init__(self) -> None:
        require_integer("nodes", self.nodes, 1)

    @cached_property
    def _rule(self) -> Rule:
        return require_rule(self.rule(self.nodes))

    def atoms(self, states: Floats, action: Floats) -> Iterator[Atom]:
        """Move all states with each noise of the rule."""
        nodes, weights = self._rule
        count = len(states)
        together = max(1, _AT_ONCE // count)  # nodes of one call
        for first in range(0, len(nodes), together):
            some = nodes[first : first + together]
            many = np.tile(states, (len(some), 1))
            after = moved(self.step(many, action, np.repeat(some, count, axis=0)), many)
            for i, points in enumerate(after.reshape(len(some), count, -1)):
                yield Atom(points, np.full(count, weights[first + i]))

    def finer(self) -> Self:
        """Return the model with twice the nodes."""
        return replace(self, nodes=2 * self.nodes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """A simulator that can only be called.

    Parameters
    ----------
    sample : callable
        ``sample(states [N, n], action [m], rng) -> [N, n]``, one draw for each state.
    draws : int
        Calls for each action.
    seed : int
        Of the draws: they are fixed, and found by their address.
    """

    sample: Callable[[Floats, Floats, np.random.Generator], ArrayLike]
    draws: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("draws", self.draws, 1)

    def atoms(self, states: Floats, action: Floats) -> Iterator[Atom]:
        """Draw once and again."""
        weight = np.full(len(states), 1.0 / self.draws)
        where = [format(x, ".17g") for x in np.ravel(action)]
        for i in range(self.draws):
            yield Atom(moved(self.sample(states, action, stream(self.seed, "sampled", *where, i)), states), weight)

    def finer(self) -> Self:
        """Return the model with twice the draws, the first half being the old ones."""
        return replace(self, draws=2 * self.draws)


@dataclass(frozen=True, kw_only=True, eq=False)
class Density:
    """p(s' | s, a) on a box.

    Parameters
    ----------
    density : callable
        ``density(states [N, n], action [m], next_state [n]) -> [N]``.
    low, high : sequences of n numbers
        The box that next states lie in.
    cells : sequence of n integers
        The integral is taken cell by cell; cells narrower than the density is wide.
    order : int
        Gauss-Legendre points per cell and dimension.
    """

    density: Callable[[Floats, Floats, Floats], ArrayLike]
    low: Sequence[float]
    high: Sequence[float]
    cells: Sequence[int]
    order: int = 3

    def __post_init__(self) -> None:
        low, _ = require_box(self.low, self.high)
        if np.shape(self.cells) != low.shape:
            raise ShapeError("cells", got=np.shape(self.cells), expected=f"{low.size} integers, as many as low")
        for i, count in enumerate(self.cells):
            require_integer("cells", count, 1, index=(i,))
        require_integer("order", self.order, 1)

    def atoms(self, states: Floats, action: Floats) -> Iterator[Atom]:
        """Weight the points of the rule by the density; each row is divided by its sum, which has to be nearly one."""
        if states.shape[1] != len(self.low):
            raise ShapeError("low", got=f"a box of {len(self.low)} dimensions", expected=f"{states.shape[1]}")
        axes = [_legendre(*side, self.order) for side in zip(self.low, self.high, self.cells, strict=True)]
        points = np.array(list(itertools.product(*(x for x, _ in axes))))
        volumes = np.array([np.prod(each) for each in itertools.product(*(w for _, w in axes))])
        rows = np.stack([self._at(states, action, y) for y in points], axis=1) * volumes
        mass = rows.sum(axis=1)
        bad = np.abs(mass - 1.0) > _MASS
        if bad.any():
            s = int(bad.argmax())
            got = f"mass {mass[s]:.6g} in the box, from state {states[s].tolist()} under action {action.tolist()}"
            raise ProbabilityError("density", index=(s,), got=got, expected="1: a wider box, or more cells")
        for y, weight in zip(points, (rows / mass[:, None]).T, strict=True):
            yield Atom(np.broadcast_to(y, states.shape), weight)

    def _at(self, states: Floats, action: Floats, y: Floats) -> Floats:
        found = as_floats("density", self.density(states, action, y), (len(states),))
        if found.shape not in ((), (len(states),)):
            raise ShapeError("density", got=found.shape, expected=(len(states),))
        found = np.broadcast_to(found, len(states))
        bad = ~(np.isfinite(found) & (found >= 0.0))
        if bad.any():
            s = int(bad.argmax())
            got = f"{found[s]} at {y.tolist()}, from state {states[s].tolist()} under action {action.tolist()}"
            raise ProbabilityError("density", index=(s,), got=got, expected="a finite number >= 0")
        return found

    def finer(self) -> Self:
        """Return the model with twice the cells per dimension."""
        return replace(self, cells=[2 * count for count in self.cells])


def _legendre(low: float, high: float, cells: int, order: int) -> tuple[Floats, Floats]:
    x, w = np.polynomial.legendre.leggauss(order)
    width = (high - low) / cells
    starts = low + width * np.arange(cells)
    return (starts[:, None] + 0.5 * width * (x + 1.0)).ravel(), np.tile(0.5 * width * w, cells)


def moved(found: Any, states: Floats) -> Floats:
    """Return what a step or a simulator gave for some states, one next state for each."""
    points = as_floats("next states", found, states.shape)
    if points.shape != states.shape:
        raise ShapeError("next states", got=points.shape, expected=states.shape)
    return points


def require_inside(points: Floats, bad: Any, states: Floats, action: Floats, expected: str) -> None:
    """Refuse next states flagged as bad, naming the state and the action that they followed."""
    if np.any(bad):
        s = int(np.argmax(bad))
        start, act = states[s].tolist(), np.ravel(action).tolist()
        got = f"{points[s].tolist()} from state {start} under action {act}"
        raise StateError("next state", index=(s,), got=got, expected=expected, state=start, action=act)

r"""Transitions on a box as weighted points: what an integral over the next state is taken with.

A model answers :meth:`Transition.atoms`: it gives points y_i and weights w_i such that

.. math:: \int f(y)\, P(dy \mid s, a) \approx \sum_i w_i f(y_i).

:class:`Driven` is s' = step(s, a, noise) with noise of a known law, by a rule for that law: Gauss-Hermite for normal
noise, quantiles for any law of one dimension. A model of another form - a density, a simulator - is a class with these
two methods: ``finer()`` gives the same model with twice the points per dimension, and the difference is an estimate of
the error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from occamrl.continuous.grid import StateError
from occamrl.errors import ParameterError, ProbabilityError, ShapeError, as_floats, require_integer
from occamrl.protocols import Floats

MOST_NODES = 100  # of Gauss-Hermite, per dimension: beyond, its weights underflow
_SUM = 1e-9


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
    expected = "nodes [Q, q] and weights [Q]"
    if not isinstance(rule, tuple) or len(rule) != 2:
        raise ShapeError("rule", got=type(rule).__name__, expected=expected)
    nodes, weights = (as_floats("rule", part, expected) for part in rule)
    if nodes.ndim != 2 or weights.shape != (len(nodes),) or not len(nodes):
        raise ShapeError("rule", got=f"nodes {nodes.shape} and weights {weights.shape}", expected=expected)
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
        for node, weight in zip(*self._rule, strict=True):
            noise = np.tile(node, (len(states), 1))
            points = as_floats("next states", self.step(states.copy(), action, noise), states.shape)
            yield Atom(points, np.full(len(states), weight))

    def finer(self) -> Self:
        """Return the model with twice the nodes."""
        return replace(self, nodes=2 * self.nodes)


def require_inside(points: Floats, bad: Any, states: Floats, action: Floats, expected: str) -> None:
    """Refuse next states flagged as bad, naming the state and the action that they followed."""
    if np.any(bad):
        s = int(np.argmax(bad))
        got = f"{points[s].tolist()} from state {states[s].tolist()} under action {np.ravel(action).tolist()}"
        raise StateError("next state", index=(s,), got=got, expected=expected)

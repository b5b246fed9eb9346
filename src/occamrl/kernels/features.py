"""phi_W(s, a) = sum over outcomes o of phi(s, a, o) W(o), for the three layouts of a feature map.

W(o) = bonus(o) + V(next_state(o)) is the target function (M20; with rewards on (s, a) the bonus is zero and W = V).
The range of W is taken over the outcomes that the features can produce at (s, a) (M23). Coordinates of (s, a) live in
one *block* of the parameter vector: all (s, a) share the block of a dense or sparse map, each has its own in a tabular
one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints, Outcomes
from occamrl.kernels.compile import compiled, hot, implements


class DenseFeatures(NamedTuple):
    """One vector per outcome."""

    outcomes: Outcomes
    phi: Floats  # [O, d]


class SparseFeatures(NamedTuple):
    """The non-zero entries of phi, by (s, a): a mixture of simulators that stay sparse."""

    outcomes: Outcomes
    start: Ints  # [S*A + 1]
    outcome: Ints  # [E] position of the outcome inside its (s, a)
    coordinate: Ints  # [E]
    entry: Floats  # [E]


class TabularFeatures(NamedTuple):
    """One-hot: the coordinate of an outcome is the outcome itself, so phi_W(s, a) is W."""

    outcomes: Outcomes


@hot
def fill_target(outcomes: Outcomes, sa: int, values: Floats, out: Floats) -> tuple[float, float]:
    """Write W(o) for the outcomes of (s, a) into ``out``; return its smallest and largest value."""
    first = outcomes.start[sa]
    low = outcomes.bonus[first] + values[outcomes.next_state[first]]
    high = low
    for i in range(outcomes.start[sa + 1] - first):
        w = outcomes.bonus[first + i] + values[outcomes.next_state[first + i]]
        out[i] = w
        low = min(low, w)
        high = max(high, w)
    return low, high


def contract(features: Any, sa: int, target: Floats, out: Floats) -> None:
    """Write sum_o phi(s, a, o) target(o) into ``out``."""
    raise TypeError(f"no features of type {type(features).__name__}")


@implements(contract, DenseFeatures)
def contract_dense(features: DenseFeatures, sa: int, target: Floats, out: Floats) -> None:
    """``contract`` for one vector per outcome."""
    first = features.outcomes.start[sa]
    d = features.phi.shape[1]
    w = target[0]
    for j in range(d):
        out[j] = features.phi[first, j] * w
    for i in range(1, features.outcomes.start[sa + 1] - first):
        w = target[i]
        for j in range(d):
            out[j] += features.phi[first + i, j] * w


@implements(contract, SparseFeatures)
def contract_sparse(features: SparseFeatures, sa: int, target: Floats, out: Floats) -> None:
    """``contract`` for entries that are mostly zero."""
    out[:] = 0.0
    for e in range(features.start[sa], features.start[sa + 1]):
        out[features.coordinate[e]] += features.entry[e] * target[features.outcome[e]]


@implements(contract, TabularFeatures)
def contract_tabular(features: TabularFeatures, sa: int, target: Floats, out: Floats) -> None:
    """``contract`` for one-hot features."""
    for i in range(features.outcomes.start[sa + 1] - features.outcomes.start[sa]):
        out[i] = target[i]


def fill_probabilities(features: Any, sa: int, theta: Floats, out: Floats) -> None:
    """Write P_theta(o | s, a) = <phi(s, a, o), theta> for the outcomes of (s, a) into ``out``."""
    raise TypeError(f"no features of type {type(features).__name__}")


@implements(fill_probabilities, DenseFeatures)
def fill_probabilities_dense(features: DenseFeatures, sa: int, theta: Floats, out: Floats) -> None:
    """``fill_probabilities`` for one vector per outcome."""
    first = features.outcomes.start[sa]
    for i in range(features.outcomes.start[sa + 1] - first):
        total = 0.0
        for j in range(theta.size):
            total += features.phi[first + i, j] * theta[j]
        out[i] = total


@implements(fill_probabilities, SparseFeatures)
def fill_probabilities_sparse(features: SparseFeatures, sa: int, theta: Floats, out: Floats) -> None:
    """``fill_probabilities`` for entries that are mostly zero."""
    for i in range(features.outcomes.start[sa + 1] - features.outcomes.start[sa]):
        out[i] = 0.0
    for e in range(features.start[sa], features.start[sa + 1]):
        out[features.outcome[e]] += features.entry[e] * theta[features.coordinate[e]]


@implements(fill_probabilities, TabularFeatures)
def fill_probabilities_tabular(features: TabularFeatures, sa: int, theta: Floats, out: Floats) -> None:
    """``fill_probabilities`` for one-hot features: theta is the kernel."""
    first = features.outcomes.start[sa]
    for i in range(features.outcomes.start[sa + 1] - first):
        out[i] = theta[first + i]


@compiled
def kernel_of(features: Any, theta: Floats) -> Floats:
    """Return P_theta on all outcomes [O]."""
    start = features.outcomes.start
    out = np.empty(start[-1])
    for sa in range(start.size - 1):
        fill_probabilities(features, sa, theta, out[start[sa] : start[sa + 1]])
    return out

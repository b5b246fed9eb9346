"""What rows can tell about a mixture of simulators, and why they cannot tell the rest.

Weights that sum to one leave d - 1 directions. A direction is lost, in this order, when the kernels depend on each
other exactly (no data can tell), when they differ but not in the mean of any target that plans ask for (blind by
value), or when they differ only at state-action pairs that the data never met (never excited). What is left is weak
while a unit step along it costs less loss than the allowance of the confidence set, and resolved after that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.linalg

from occamrl.models.family import weighted
from occamrl.models.features import FeatureMap
from occamrl.protocols import Floats, Known

_SAME = 1e-9  # kernels that differ by less are the same
_FLAT = 1e-10  # of the largest eigenvalue: directions that are none

SAME_KERNEL = "the same kernel: no data can tell them apart"
BLIND = "different kernels, but the same mean of every value that is planned with"
UNSEEN = "different only where the data never went"
WEAK = "not told apart yet, each from some other of them"


class Directions(NamedTuple):
    """How many of the d - 1 directions are of each kind."""

    resolved: int
    weak: int
    never_excited: int
    blind: int
    dependent: int


class Dependence(NamedTuple):
    """A simulator that is a combination of others, to 9 digits."""

    simulator: int
    others: tuple[int, ...]
    weights: tuple[float, ...]


def plane(m: int) -> Floats:
    """Return an orthonormal basis [m, m - 1] of the vectors that sum to zero."""
    basis = np.zeros((m, m - 1))
    for k in range(1, m):
        basis[:k, k - 1] = 1.0 / math.sqrt(k * (k + 1))
        basis[k, k - 1] = -k / math.sqrt(k * (k + 1))
    return basis


def stack_of(features: FeatureMap) -> Floats:
    """Return the kernels of all simulators as columns [O, d]."""
    return np.asarray(features.matrix.todense())


def dependences(stack: Floats) -> tuple[int, list[Dependence]]:
    """Return the rank of the kernels, and every kernel beyond it as a combination of independent ones."""
    _, triangle, order = scipy.linalg.qr(stack, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    rank = int((size > _SAME * max(1.0, float(size[0]))).sum())
    basis = np.sort(order[:rank])
    found = []
    for j in sorted(order[rank:].tolist()):
        weights = np.linalg.lstsq(stack[:, basis], stack[:, j], rcond=None)[0]
        used = np.abs(weights) > 1e-7
        found.append(Dependence(j, tuple(basis[used].tolist()), tuple(weights[used].tolist())))
    return rank, found


def possible_rows(features: FeatureMap, known: Known, values: Floats) -> Floats:
    """Return the range-weighted rows [n, d] of every (h, s, a) for given values [H + 1, S] (M23)."""
    pairs = np.arange(known.states * known.actions)
    found = [weighted(features, known, pairs, values[h + 1]) for h in range(known.horizon)]
    return np.concatenate([x[spread > 0.0] for x, _, spread in found])


def directions(gram: Floats, rank: int, possible: Floats, allowance: float) -> Directions:
    """Sort the directions by what becomes of them; ``possible`` are the rows that could be met."""
    d = gram.shape[0]
    basis = plane(d)
    eigen = np.linalg.eigvalsh(basis.T @ gram @ basis)
    seen = eigen > _FLAT * max(1.0, float(eigen[-1])) if d > 1 else np.zeros(0, bool)
    reachable = np.linalg.matrix_rank(possible @ basis, tol=1e-7) if d > 1 and len(possible) else 0
    reachable = min(max(int(reachable), int(seen.sum())), rank - 1)
    excited = min(int(seen.sum()), reachable)
    resolved = min(int((eigen >= allowance).sum()), excited)
    return Directions(resolved, excited - resolved, reachable - excited, rank - 1 - reachable, d - rank)


def alike(gram: Floats, stack: Floats, possible: Floats, allowance: float) -> list[tuple[tuple[int, ...], str]]:
    """Return the groups of simulators that are not told apart as such, with the reason."""
    d = gram.shape[0]
    reasons: dict[str, list[tuple[int, int]]] = {SAME_KERNEL: [], BLIND: [], UNSEEN: [], WEAK: []}
    for j in range(d):
        for k in range(j + 1, d):
            evidence = float(gram[j, j] + gram[k, k] - 2.0 * gram[j, k])
            if np.abs(stack[:, j] - stack[:, k]).max() <= _SAME:
                reasons[SAME_KERNEL].append((j, k))
            elif not len(possible) or np.abs(possible[:, j] - possible[:, k]).max() <= _SAME:
                reasons[BLIND].append((j, k))
            elif evidence <= _FLAT * max(1.0, float(gram[j, j])):
                reasons[UNSEEN].append((j, k))
            elif evidence < allowance:
                reasons[WEAK].append((j, k))
    return [(group, reason) for reason, pairs in reasons.items() for group in _joined(pairs)]


def _joined(pairs: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the groups that pairs connect."""
    groups: list[set[int]] = []
    for pair in pairs:
        touching = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in touching] + [set(pair).union(*touching)]
    return sorted(tuple(sorted(group)) for group in groups)

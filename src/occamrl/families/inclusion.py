"""Whether one class of kernels lies in another, and how: the matrix that takes the parameters of one to the other's.

For classes F and G with features phi_F and phi_G, an embedding E has P_theta in F equal to P_(E theta) in G. Rows of a
run give x = phi_G,V(s, a) once, in the largest class; x_F = E^T x follows, and so do the statistics of every class.
What cannot be verified is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats
from occamrl.errors import NestingError, ShapeError
from occamrl.families.aggregation import AggregationFamily
from occamrl.families.family import TOLERANCE, Family
from occamrl.families.finite import FiniteFamily
from occamrl.families.linear import LinearFamily
from occamrl.families.nesting import nest, same_features
from occamrl.families.regression import kernel_matrix

_NESTED = "every class to hold the one before it"


def own_parameters(family: Any) -> Any:
    """Return the matrix that takes a class's own parameters (eta, or a member) to theta over its features."""
    if isinstance(family, LinearFamily):
        return family.basis
    return family.theta if isinstance(family, FiniteFamily) else sp.identity(family.features.dimension, format="csr")


def embed(small: Family, large: Family, rungs: tuple[int, int]) -> Any:
    """Return E [d of ``large``, own parameters of ``small``]; of a finite class, one column per member.

    Parameters
    ----------
    small, large : Family
        Two finite classes are compared, and the smaller one's own parameters returned.
    rungs : pair of int
        Their places in the ladder, for the error.

    Raises
    ------
    ShapeError
        Classes over different states or actions.
    NestingError
        A kernel of the smaller class that the larger one lacks; or nesting that cannot be verified.
    """
    one, other = small.features, large.features
    if (one.states, one.actions) != (other.states, other.actions):
        got, expected = (f"S={features.states}, A={features.actions}" for features in (one, other))
        raise ShapeError("rungs", index=rungs[:1], got=got, expected=f"{expected}, as in class {rungs[1]}")
    if isinstance(small, FiniteFamily) and isinstance(large, FiniteFamily):
        nest([small, large])
        return small.theta
    if isinstance(small, FiniteFamily) and isinstance(large, (LinearFamily, AggregationFamily)):
        return _members(small, large, rungs)
    if isinstance(small, LinearFamily) and isinstance(large, LinearFamily):
        return _linear(small, large, rungs)
    if isinstance(small, AggregationFamily) and isinstance(large, AggregationFamily):
        return _aggregation(small, large, rungs)
    if isinstance(large, AggregationFamily) and isinstance(small, LinearFamily) and large.blocks == other.states:
        return _into_tabular(small, large, rungs)
    if isinstance(large, LinearFamily) and isinstance(small, AggregationFamily):
        return _aggregation_in_linear(small, large, rungs)
    raise _unknown(small, large, rungs)


def _unknown(small: Family, large: Family, rungs: tuple[int, int]) -> NestingError:
    got = f"{small!r} and {large!r}, of which it cannot be verified that one holds the other"
    return NestingError(rungs=rungs, member=None, got=got, expected=_NESTED)


def _members(small: FiniteFamily, large: LinearFamily | AggregationFamily, rungs: tuple[int, int]) -> Floats:
    columns = []
    for member in range(small.size):
        theta = _short_enough(large, small.theta[:, member]) if same_features(small.features, large.features) else None
        theta = large.member_of(small.kernel(member)) if theta is None else theta
        if theta is None:
            got = f"member {member} of class {rungs[0]} is not in class {rungs[1]}"
            raise NestingError(rungs=rungs, member=member, got=got, expected=_NESTED)
        columns.append(theta)
    return np.array(columns).T


def _short_enough(large: LinearFamily | AggregationFamily, theta: Floats) -> Floats | None:
    """Return theta over the features of ``large`` if it belongs to it as it stands."""
    if not isinstance(large, LinearFamily):
        return None
    inside = large.basis @ np.linalg.lstsq(large.basis, theta, rcond=None)[0]
    fits = np.abs(inside - theta).max() <= TOLERANCE and np.linalg.norm(theta) <= large.norm_bound * (1.0 + 1e-9)
    return theta if fits else None


def _written_in(matrix: Floats, target: Floats) -> tuple[Floats, Any]:
    """Return the columns of ``target`` as combinations of those of ``matrix``, and which of them are none."""
    own = np.asarray(np.linalg.lstsq(matrix, target, rcond=None)[0], dtype=np.float64)
    return own, np.abs(matrix @ own - target).max(axis=0) > TOLERANCE


def _linear(small: LinearFamily, large: LinearFamily, rungs: tuple[int, int]) -> Floats:
    if same_features(small.features, large.features):
        target, matrix = small.basis, large.basis
    else:
        target = np.asarray(kernel_matrix(small.features) @ small.basis)
        matrix = np.asarray(kernel_matrix(large.features) @ large.basis)
    own, outside = _written_in(matrix, target)
    if outside.any():
        direction = int(np.argmax(outside))
        got = f"direction {direction} of class {rungs[0]} is not in class {rungs[1]}"
        raise NestingError(rungs=rungs, member=direction, got=got, expected=_NESTED)
    stretch = float(np.linalg.norm(own, 2))
    if small.norm_bound * stretch > large.norm_bound * (1.0 + 1e-9):
        factor = "" if abs(stretch - 1.0) < 1e-9 else f" (times {stretch:g} in its parameters)"
        got = f"norm bounds {small.norm_bound:g}{factor} and {large.norm_bound:g}"
        raise NestingError(rungs=rungs, member=None, got=got, expected="bounds that do not fall")
    return np.asarray(large.basis @ own)


def _aggregation(small: AggregationFamily, large: AggregationFamily, rungs: tuple[int, int]) -> Any:
    """Match moves: in every block of the finer partition, each move of the coarser class is one of its own."""
    if not large.refines(small):
        s, t = _split(small, large)
        got = f"states {s} and {t} may differ in class {rungs[0]}, but share a block of class {rungs[1]}"
        raise NestingError(rungs=rungs, member=s, got=got, expected="a finer partition in every class")
    ours, theirs = small.features.blocks, large.features.blocks
    row, column = [], []
    for block in range(large.blocks):
        states = np.flatnonzero(large.partition == block)
        for a in range(large.features.actions):
            pair = states[0] * large.features.actions + a
            moves = [table[states, a][:, table[states[0], a] >= 0] for table in (small.moves, large.moves)]
            for move in range(moves[0].shape[1]):
                same = (moves[1] == moves[0][:, move : move + 1]).all(axis=0)
                if not same.any():
                    got = f"move {move} of action {a} in the states {states.tolist()} is not one of class {rungs[1]}"
                    raise NestingError(rungs=rungs, member=int(states[0]), got=got, expected=_NESTED)
                row.append(int(theirs.vector_start[theirs.of[pair]]) + int(np.argmax(same)))
                column.append(int(ours.vector_start[ours.of[pair]]) + move)
    shape = (large.features.dimension, small.features.dimension)
    return sp.csr_array((np.ones(len(row)), (row, column)), shape=shape)


def _split(small: AggregationFamily, large: AggregationFamily) -> tuple[int, int]:
    """Return two states of one block of ``large`` that lie in two blocks of ``small``."""
    for block in range(large.blocks):
        states = np.flatnonzero(large.partition == block)
        differs = small.partition[states] != small.partition[states[0]]
        if differs.any():
            return int(states[0]), int(states[np.argmax(differs)])
    raise AssertionError("a refinement")


def _into_tabular(small: LinearFamily, large: AggregationFamily, rungs: tuple[int, int]) -> Any:
    """Write the features of a linear class as the probabilities of the moves of single states."""
    matrix: Any = kernel_matrix(large.features)
    target: Any = sp.csr_array(kernel_matrix(small.features) @ small.basis)
    reach = np.asarray(matrix.sum(axis=1)).ravel() > 0
    lost = np.flatnonzero(~reach & (np.abs(target).max(axis=1).toarray().ravel() > TOLERANCE))
    if lost.size:
        pair, s2 = divmod(int(lost[0]), small.features.states)
        s, a = divmod(pair, small.features.actions)
        got = f"class {rungs[0]} can go from state {s} by action {a} to {s2}, class {rungs[1]} cannot"
        raise NestingError(rungs=rungs, member=s, got=got, expected=_NESTED)
    first = sp.csr_array(matrix)  # of moves that lead to the same state, the first takes all
    keep = first.indptr[:-1][np.diff(first.indptr) > 0]
    cells = np.flatnonzero(np.diff(first.indptr) > 0)
    pick = sp.csr_array((np.ones(cells.size), (first.indices[keep], cells)), shape=matrix.shape[::-1])
    return pick @ target


def _aggregation_in_linear(small: AggregationFamily, large: LinearFamily, rungs: tuple[int, int]) -> Floats:
    target = np.asarray(kernel_matrix(small.features).todense())
    matrix = np.asarray(kernel_matrix(large.features) @ large.basis)
    own, outside = _written_in(matrix, target)
    if outside.any():
        raise _unknown(small, large, rungs)
    # Longest image of a member: at most the sum over blocks of the longest image of one of their moves.
    longest = sum(float(np.linalg.norm(own[:, part], axis=0).max()) for part in small.parts())
    if longest > large.norm_bound * (1.0 + 1e-9):
        got = f"parameters as long as {longest:.6g} may be needed, the norm bound being {large.norm_bound:g}"
        raise NestingError(rungs=rungs, member=None, got=got, expected=_NESTED)
    return np.asarray(large.basis @ own)

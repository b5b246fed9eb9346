"""Ladders whose largest class is linear or an aggregation; the classes below may be of any kind.

One regression serves all classes: rows are kept in the parameters of the largest one, and an embedding E (see
:mod:`occamrl.families.inclusion`) gives class m its statistics E^T G E and E^T g.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from occamrl.contracts import Floats
from occamrl.errors import FamilyError, NestingError, ParameterError
from occamrl.families.aggregation import AggregationFamily
from occamrl.families.family import Family
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.inclusion import embed, own_parameters
from occamrl.families.linear import LinearFamily
from occamrl.problems.finite_mdp import FiniteMDP


class LinearLadder:
    """Nested classes, checked pair by pair: finite lists, linear classes, aggregations; the largest is not finite.

    Linear classes are compared by subspace and norm, partitions by refinement, members of a list one by one. A ladder
    that is not nested, or of which that cannot be verified, is refused with the pair and what shows it.

    Parameters
    ----------
    rungs : sequence of LinearFamily, AggregationFamily or FiniteFamily
        From the smallest to the largest.

    Attributes
    ----------
    embeddings : list
        Of every class into the features of the largest.
    reach : list of M numbers
        How far the truth may be from the nearest member of each class; 0 but for covers.
    """

    def __init__(self, rungs: Sequence[Family]) -> None:
        self.rungs: list[Any] = require_list(rungs)
        if not self.rungs:
            raise FamilyError("rungs", got="an empty ladder", expected="at least one class")
        for m, rung in enumerate(self.rungs, start=1):
            if not isinstance(rung, Family):
                raise FamilyError("rungs", index=(m,), got=type(rung).__name__, expected="a family of kernels")
        if isinstance(self.rungs[-1], FiniteFamily):
            raise FamilyError("rungs", index=(self.classes,), got="a finite list", expected="a linear class on top")
        for m, (one, other) in enumerate(zip(self.rungs[:-1], self.rungs[1:], strict=True), start=1):
            embed(one, other, (m, m + 1))
            if _equal(one, other):
                got = "two equal classes"
                raise NestingError(rungs=(m, m + 1), member=None, got=got, expected="each class to add a kernel")
        top = self.rungs[-1]
        self.embeddings = [embed(rung, top, (m, self.classes)) for m, rung in enumerate(self.rungs[:-1], start=1)]
        self.embeddings.append(own_parameters(top))
        finite = [rung.reach if isinstance(rung, FiniteFamily) else 0.0 for rung in self.rungs]
        most = np.maximum.accumulate(finite)
        self.reach = [
            float(r) if isinstance(rung, FiniteFamily) else 0.0 for r, rung in zip(most, self.rungs, strict=True)
        ]

    @property
    def classes(self) -> int:
        """The number M of classes."""
        return len(self.rungs)

    @property
    def features(self) -> FeatureMap:
        """The features of the largest class, in which rows are kept."""
        features: FeatureMap = self.rungs[-1].features
        return features

    def rung(self, m: int) -> Any:
        """Return F_m, m = 1 ... M."""
        if not 1 <= m <= self.classes:
            raise ParameterError("m", got=m, expected=f"a class in 1 ... {self.classes}")
        return self.rungs[m - 1]

    def class_of(self, mdp: FiniteMDP) -> int | None:
        """Return m*, the first class that holds a problem's kernel; None if none does. For studies: an agent cannot."""
        if not mdp.stationary:
            return None
        kernel = mdp.kernel()
        return next((m for m, rung in enumerate(self.rungs, start=1) if rung.contains(kernel)), None)

    def unpacked(self, gram: Floats) -> Any:
        """Return sum x x^T [d, d] from its packed blocks; sparse where there are several."""
        blocks = self.features.blocks
        parts = [
            gram[blocks.matrix_start[b] : blocks.matrix_start[b + 1]].reshape(n, n) for b, n in enumerate(blocks.size)
        ]
        return parts[0] if len(parts) == 1 else sp.csr_array(sp.block_diag(parts))

    def statistics(self, m: int, gram: Floats, xy: Floats) -> tuple[Floats, Floats]:
        """Return the packed sum x x^T and sum y x in the own parameters of a linear class or aggregation."""
        rung, matrix = self.rung(m), self.embeddings[m - 1]
        own = dense(matrix.T @ (self.unpacked(gram) @ matrix))
        right = np.asarray(matrix.T @ xy).ravel()
        return np.concatenate([own[part, part].ravel() for part in rung.parts()]), right

    def member_losses(self, m: int, gram: Floats, xy: Floats) -> Floats:
        """Return L, less sum y^2, of every kernel of a finite class."""
        theta = self.embeddings[m - 1]
        return np.asarray((theta * (self.unpacked(gram) @ theta) - 2.0 * xy[:, None] * theta).sum(axis=0))

    def smallest_loss(self, m: int, gram: Floats, xy: Floats) -> float:
        """Return min over F_m of L, less sum y^2, from the packed statistics of all rows (M15)."""
        rung = self.rung(m)
        if isinstance(rung, FiniteFamily):
            return float(self.member_losses(m, gram, xy).min())
        return float(rung.smallest_loss(*self.statistics(m, gram, xy)))

    def __len__(self) -> int:
        return self.classes

    def __repr__(self) -> str:
        return f"LinearLadder({' < '.join(describe(rung) for rung in self.rungs)}, {self.features!r})"


def require_list(rungs: Any) -> list[Any]:
    """Return the classes of a ladder as a list."""
    if not isinstance(rungs, Sequence) or isinstance(rungs, str):
        raise FamilyError("rungs", got=type(rungs).__name__, expected="a list of families")
    return list(rungs)


def dense(matrix: Any) -> Floats:
    """Return a matrix, sparse or not, as an array."""
    return np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix)


def describe(rung: Any) -> str:
    """Return the size of a class in words."""
    if isinstance(rung, FiniteFamily):
        return f"{rung.size} kernels"
    return f"{rung.blocks} blocks" if isinstance(rung, AggregationFamily) else f"{rung.dimension} dimensions"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, AggregationFamily) and isinstance(other, AggregationFamily):
        return one.blocks == other.blocks and one.features.dimension == other.features.dimension
    linear = isinstance(one, LinearFamily) and isinstance(other, LinearFamily)
    return linear and one.dimension == other.dimension and one.norm_bound == other.norm_bound

r"""ARL-LIN, by dimension and by norm at once, on the same pooled rows.

The epochs are those of ARL-LIN(dim). Before each phase the norm bound is refined as well: b = min(b, M19) on the
ellipsoid of *all* coordinates, and for an exploitation phase the smaller of that and M19 on the ellipsoid of the active
ones; lambda follows the bound as in ARL-LIN(norm). delta is halved between the two ellipsoids.

What is proved, with probability :math:`1-\delta`, at all times: b bounds the norm of theta*, whatever was selected, and
the estimation phases are optimistic. While the active set holds the true support, the exploitation phases are too, and
their bound is valid: the ellipsoid of D holds theta*, since every set of its size and every lambda of the grid was paid
for. A coordinate that was left out is small in the sense of M18 c.

What is only measured: that the support is found, and when; that no coordinate too many is kept; and the regret, which
has no theorem of its own here. A bound read from the ellipsoid of a wrong D may be too small. It is therefore never
carried over: the next phase computes it afresh, and the bound that is carried over does not look at D.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Known, Phase, Selector
from occamrl.errors import ParameterError
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.selectors._linear import example_features
from occamrl.selectors._norm import refine, shelf, smallest_norm
from occamrl.selectors.arl_lin_dim import ARLLinDim, union_level


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLin(ARLLinDim):
    """Adapt to the number of non-zero coordinates of theta* and to its norm.

    Parameters are those of :class:`~occamrl.selectors.arl_lin_dim.ARLLinDim`, with ``data="pooled"``; ``norm_bound``
    may be far too large. ``support_regularization`` is the lambda of the support rule, which does not depend on b.
    """

    regularization: float | str = "scaled"
    support_regularization: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data != "pooled":
            raise ParameterError("data", got=self.data, expected='"pooled": both adaptations read the same rows')

    @property
    def support_lam(self) -> float:
        """The lambda of the regression that the support is chosen from."""
        return self.support_regularization

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        least = smallest_norm(self.features)
        return {**super().start(known), "norm_bound": float(self.norm_bound), "least": least}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Refine the norm bound on all coordinates, then go on as ARL-LIN(dim)."""
        memory["norm_bound"] = self.estimating(known, memory).norm_bound
        return super().next_phase(known, memory)

    def estimating(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with every coordinate and the refined bound."""
        learners = shelf(self.base(delta=0.5 * self.delta), memory["least"])
        return refine(learners, known, memory["statistics"], memory["norm_bound"])

    def exploiting(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with the active coordinates and the smaller of the two bounds."""
        active = memory["active"]
        level = union_level(0.5 * self.delta, self.features.dimension, len(active))
        learners = shelf(self.base(active=tuple(active), delta=level), memory["least"])
        learner = refine(learners, known, memory["statistics"].restrict(active), memory["norm_bound"])
        # A bound below what any kernel needs says that D is wrong; it is no reason to trust D more.
        return dataclasses.replace(learner, norm_bound=max(learner.norm_bound, memory["least"]))

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the support and the norm of theta*."""
        return dataclasses.replace(super().told(theta), norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return a small instance on a problem, for the contract checks."""
        return [cls(features=example_features(mdp), norm_bound=5.0)]

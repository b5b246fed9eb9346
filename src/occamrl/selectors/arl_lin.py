r"""ARL-LIN, by dimension and by norm at once, on the same pooled rows.

The epochs are those of ARL-LIN(dim). Before each phase the norm bound is refined as well: b = min(b, M19) on the
ellipsoid of *all* coordinates, and for an exploitation phase the smaller of that and M19 on the ellipsoid of the active
ones; lambda follows the bound as in ARL-LIN(norm). Levels are those of ARL-LIN(dim), each shared by its shelf.

What is proved, with probability :math:`1-\delta`, at all times: b bounds the norm of theta*, whatever was selected, and
the estimation phases are optimistic. While the active set holds the true support, the exploitation phases are too, and
their bound is valid: the ellipsoid of D holds theta*, since every set of its size and every lambda of the shelf was
paid for. A coordinate that was left out is small in the sense of M18 c.

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
from occamrl.errors import ParameterError, require_number
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.selectors._linear import example_features
from occamrl.selectors._norm import Refinement, refine, shelf
from occamrl.selectors.arl_lin_dim import ARLLinDim, union_level


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLin(ARLLinDim):
    """Adapt to the number of non-zero coordinates of theta* and to its norm.

    Parameters are those of :class:`~occamrl.selectors.arl_lin_dim.ARLLinDim`, with ``data="pooled"``; ``norm_bound``
    may be far too large, and ``regularization`` is "scaled" by default (1 with the paper's radius).
    ``support_regularization`` is the lambda of the support rule, which does not depend on b.

    Notes
    -----
    Facts of a phase beside those of ARLLinDim: ``carried_bound``, the bound that does not look at the active
    coordinates; ``contradicted``, whether the rows leave no kernel within it, so that the one that was given is taken.
    """

    support_regularization: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("support_regularization", self.support_regularization, 1e-12, 1e12)
        if self.data != "pooled":
            raise ParameterError("data", got=self.data, expected='"pooled": both adaptations read the same rows')

    @property
    def support_lam(self) -> float:
        """The lambda of the regression that the support is chosen from."""
        return self.support_regularization

    @property
    def lambda_rule(self) -> float | str:
        """How lambda is chosen: a number, or "scaled"."""
        chosen = 1.0 if self.radius == "paper" else "scaled"
        return chosen if self.regularization is None else self.regularization

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {**super().start(known), "norm_bound": float(self.norm_bound), "contradicted": False}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Refine the norm bound on all coordinates, then go on as ARL-LIN(dim)."""
        learner, memory["contradicted"] = self._refined(known, memory, None)
        memory["norm_bound"] = learner.norm_bound
        return super().next_phase(known, memory)

    def _refined(self, known: Known, memory: dict[str, Any], active: Sequence[int] | None) -> Refinement:
        """Return the learner with the smallest norm bound that the rows prove for some coordinates, or for all."""
        d, least, rows = self.features.dimension, memory["least"], memory["statistics"]
        level = union_level(self.delta, d, d if active is None else len(active))
        learners = shelf(self.base(active=active, delta=level), least)
        rows = rows if active is None else rows.restrict(active)
        return refine(learners, known, rows, memory["norm_bound"], least)

    def estimating(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with every coordinate and the refined bound."""
        return self._refined(known, memory, None).learner

    def exploiting(self, known: Known, memory: dict[str, Any]) -> UCRLVTRLin:
        """Return the learner that plans with the active coordinates and the smaller of the two bounds."""
        learner, contradicted = self._refined(known, memory, tuple(memory["active"]))
        # Rows that contradict D say that D is wrong; the bound that does not look at D stands.
        return dataclasses.replace(learner, norm_bound=memory["norm_bound"]) if contradicted else learner

    def facts(self, known: Known, memory: dict[str, Any], learner: UCRLVTRLin) -> dict[str, Any]:
        """Return what was decided for a phase; beside its own norm bound, the one that does not look at D."""
        more = {"carried_bound": memory["norm_bound"], "contradicted": memory["contradicted"]}
        return {**super().facts(known, memory, learner), **more}

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the support and the norm of theta*."""
        return dataclasses.replace(super().told(theta), norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return a small instance on a problem, for the contract checks."""
        return [cls(features=example_features(mdp), norm_bound=5.0)]

"""ARL-LIN(norm): find how large theta* is while playing (Ghosh et al. 2022, algorithm 3; M19).

    b_1 = b
    for epochs i = 1, 2, 3, ...
        play UCRL-VTR-LIN with norm bound b_i for 2^(i-1) k_1 episodes
        b_{i+1} = max { ||theta|| : theta in its confidence ellipsoid }

The paper's form (``data="fresh"``): every epoch has a learner of its own at level delta/2^(i-1), so that all bounds are
valid with probability 1 - 2 delta. The paper has lambda = 1, which is what ``radius="paper"`` takes. With the other
radii lambda = d/(4 b_i^2), and b_{i+1} = min(b_i, M19), which the same events prove: without the minimum the two would
feed on each other, a larger bound making lambda smaller and the next maximum larger.

The default (``data="pooled"``): rows are kept over epochs, and b_{i+1} = min(b_i, M19). The noise event does not
involve b, so one delta serves all epochs, and M19 may be applied to its own result until nothing changes: the smaller
bound makes the ellipsoid smaller.

On pooled rows with ``regularization="scaled"``, the default, lambda follows as well, since rows are pooled without it.
The event of M11 is for one lambda, so a shelf of them is fixed beforehand, d/(4 (b/2^j)^2) for j = 0, ..., J, each at
level delta/(J+1); b/2^J is the last one that is not below the smallest norm any kernel can have with these features.
All events hold at once, and any two of the shelf may be combined: the event of a large lambda' says that the loss of
theta* is small without a word about b, and an ellipsoid of a small lambda needs b in lambda b^2 only,

    beta = L_lambda'(theta') - L_lambda(theta) + (1/4)(logdet(Sigma'/lambda') + 2 log((J+1)/delta)) + lambda b^2.

So lambda' can suit the norm that theta* shows and lambda the bound that is known. M19 takes the smallest answer on the
shelf; the next epoch plays with the pair of the smallest volume.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from occamrl.contracts import Floats, Known, Phase, PhaseOutcome, Selector
from occamrl.errors import require_choice
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.selectors._linear import (
    LinearBase,
    decayed_level,
    example_features,
    grown,
    nothing,
    regression,
    require_at_least,
    require_conditioned,
    require_dense,
)
from occamrl.selectors._norm import refine, refined_norm, require_possible, shelf


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(LinearBase, Selector):
    """Adapt to the norm of theta*.

    Parameters
    ----------
    features, norm_bound, delta, radius, weights, replan, regularization, scale, paper_constant, target_range, clip
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound`` is b_1, and
        ``regularization`` is by default "scaled", or 1 with the paper's radius.
    rewards, kernel
        Of the base algorithm too. With one kernel per step the bound is for the largest of their norms.
    data : "pooled" | "fresh"
        Keep the rows of all epochs, or begin each epoch without any, as the paper does.
    initial_episodes : int
        k_1.
    growth : float
        How much longer an epoch is than the one before; the paper doubles.
    level_decay : float
        An epoch on fresh data has level delta / level_decay^(i-1).

    Notes
    -----
    Facts of a phase, decided before it begins: ``norm_bound``, b_i; ``estimate``, theta; ``regularization``, lambda
    and that of the noise event; ``level``, the delta of the phase; ``contradicted``, whether the rows leave no kernel
    within the bound, so that the one that was given is played; ``excitation``, lambda_min(Sigma)/(kH), ``weakest`` and
    ``seen`` as for ARLLinDim.
    """

    data: str = "pooled"
    initial_episodes: int = 16
    growth: float = 2.0
    level_decay: float = 2.0

    def __post_init__(self) -> None:
        require_choice("data", self.data, ("pooled", "fresh"))
        require_dense(self.features)
        require_conditioned(self)
        require_at_least("initial_episodes", self.initial_episodes, 1, whole=True)
        require_at_least("growth", self.growth, 1)
        require_at_least("level_decay", self.level_decay, 1)

    @property
    def lambda_rule(self) -> float | str:
        """How lambda is chosen: a number, or "scaled"."""
        chosen = 1.0 if self.radius == "paper" else "scaled"
        return chosen if self.regularization is None else self.regularization

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: epoch 1, the bound that was given."""
        d, least = self.features.dimension, require_possible(self.features, self.norm_bound)
        rows = nothing(d, self.base().steps(known))
        return {"epoch": 1, "norm_bound": float(self.norm_bound), "statistics": rows, "least": least}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Play an epoch with the present bound."""
        epoch, pooled, contradicted = memory["epoch"], self.data == "pooled", False
        if pooled:
            learners, least = shelf(self.base(), memory["least"]), memory["least"]
            learner, contradicted = refine(learners, known, memory["statistics"], memory["norm_bound"], least)
            memory["norm_bound"] = learner.norm_bound
        else:
            level = decayed_level(self.delta, self.level_decay, epoch - 1)
            learner = self.base(norm_bound=memory["norm_bound"], delta=level)
        fit = regression(memory["statistics"], learner.lam)
        event = (learner.lam, 0.0) if learner.event is None else learner.event
        facts = {
            "norm_bound": memory["norm_bound"],
            "estimate": fit.estimate.tolist(),
            "regularization": [learner.lam, event[0]],
            "level": float(learner.delta),
            "contradicted": contradicted,
            **fit.excitation(known.horizon),
        }
        state = learner.begin(known, memory["statistics"] if pooled else None)
        episodes = math.ceil(round(grown(self.initial_episodes, self.growth, epoch - 1), 6))
        return Phase(learner, state, episodes=episodes, epoch=epoch, label="epoch", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take the largest norm that is still possible as the next bound."""
        learner = cast(UCRLVTRLin, phase.learner)  # this selector hands out no other
        memory["statistics"] = learner.statistics(known, outcome.state)
        if self.data == "fresh":
            largest = refined_norm(learner, known, memory["statistics"])
            scaled = isinstance(self.lambda_rule, str)
            memory["norm_bound"] = min(memory["norm_bound"], largest) if scaled else largest
        memory["epoch"] += 1

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the norm of theta*."""
        return self.base(norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return small instances on a problem, for the contract checks."""
        plain = cls(features=example_features(mdp), norm_bound=5.0, initial_episodes=4)
        return [plain, dataclasses.replace(plain, data="fresh")]

"""ARL-LIN(norm): find how large theta* is while playing (Ghosh et al. 2022, algorithm 3; M19).

    b_1 = b
    for epochs i = 1, 2, 3, ...
        play UCRL-VTR-LIN with norm bound b_i for 2^(i-1) k_1 episodes
        b_{i+1} = max { ||theta|| : theta in its confidence ellipsoid }

The paper's form (``data="fresh"``): every epoch has a learner of its own at level delta/2^(i-1).

The default (``data="pooled"``): rows are kept over epochs, and b_{i+1} = min(b_i, M19). The noise event does not involve
b, so one delta serves all epochs. With ``regularization="scaled"`` lambda follows the bound, d/(4 b^2), because rows are
pooled without it: the event of M11 is for one lambda, so they are taken from the grid b/2^j, j = 0, 1, ..., and the one
for j has level delta/((j+1)(j+2)); the levels add up to delta.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.confidence.ellipsoid import largest_norm
from occamrl.contracts import Floats, Known, Phase, PhaseOutcome, Selector
from occamrl.errors import require_choice
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.selectors._linear import (
    LinearBase,
    example_features,
    nothing,
    regression,
    require_at_least,
    require_dense,
    squared_radius,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(LinearBase, Selector):
    """Adapt to the norm of theta*.

    Parameters
    ----------
    features, norm_bound, delta, radius, weights, replan, regularization, scale, paper_constant, target_range, clip
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound`` is b_1, and
        ``regularization`` is "scaled" by default.
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
    Facts of a phase, decided before it begins: ``norm_bound``, b_i; ``estimate``, theta; ``regularization``; ``level``,
    the delta of the phase; ``excitation``, lambda_min(Sigma)/(kH).
    """

    regularization: float | str = "scaled"
    data: str = "pooled"
    initial_episodes: int = 16
    growth: float = 2.0
    level_decay: float = 2.0

    def __post_init__(self) -> None:
        require_choice("data", self.data, ("pooled", "fresh"))
        require_dense(self.features)
        self.base()
        require_at_least("initial_episodes", self.initial_episodes, 1, whole=True)
        require_at_least("growth", self.growth, 1)
        require_at_least("level_decay", self.level_decay, 1)

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: epoch 1, the bound that was given."""
        d = self.features.dimension
        return {"epoch": 1, "norm_bound": float(self.norm_bound), "statistics": nothing(d)}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Play an epoch with the present bound."""
        epoch = memory["epoch"]
        pooled = self.data == "pooled"
        if pooled:
            learner = learner_of_bound(self.base(), memory["norm_bound"])
        else:
            level = self.delta / self.level_decay ** (epoch - 1)
            learner = self.base(norm_bound=memory["norm_bound"], delta=level)
        fit = regression(memory["statistics"], learner.lam)
        facts = {
            "norm_bound": memory["norm_bound"],
            "estimate": fit.theta.tolist(),
            "regularization": learner.lam,
            "level": float(learner.delta),
            "excitation": fit.excitation(known.horizon),
        }
        state = learner.begin(known, memory["statistics"] if pooled else None)
        episodes = math.ceil(round(self.initial_episodes * self.growth ** (epoch - 1), 6))
        return Phase(learner, state, episodes=episodes, epoch=epoch, label="epoch", facts=facts)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Take the largest norm that is still possible as the next bound."""
        learner = phase.learner
        assert isinstance(learner, UCRLVTRLin)  # noqa: S101  (this selector hands out no other)
        memory["statistics"] = learner.statistics(known, outcome.state)
        refined = refined_norm(learner, known, memory["statistics"])
        memory["norm_bound"] = min(memory["norm_bound"], refined) if self.data == "pooled" else refined
        memory["epoch"] += 1

    def told(self, theta: Sequence[float] | Floats) -> UCRLVTRLin:
        """Return the learner that was told the norm of theta*."""
        return self.base(norm_bound=float(np.linalg.norm(theta)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Return small instances on a problem, for the contract checks."""
        plain = cls(features=example_features(mdp), norm_bound=5.0, initial_episodes=4)
        return [plain, dataclasses.replace(plain, data="fresh", regularization=1.0)]


def refined_norm(learner: UCRLVTRLin, known: Known, statistics: LinearStatistics) -> float:
    """Return the largest norm in a learner's confidence ellipsoid with these rows (M19)."""
    fit = regression(statistics, learner.lam)
    return largest_norm(fit.theta, fit.sigma, squared_radius(learner, known, fit)).norm


def learner_of_bound(learner: UCRLVTRLin, bound: float) -> UCRLVTRLin:
    """Return a learner with a smaller norm bound that the data chose, on pooled rows.

    A fixed lambda needs nothing else. A scaled one is taken from the grid d/(4 (b/2^j)^2) at level delta/((j+1)(j+2)).
    """
    if not isinstance(learner.regularization, str):
        return dataclasses.replace(learner, norm_bound=bound)
    j = max(0, math.floor(math.log2(learner.norm_bound / bound) + 1e-12))
    lam = dataclasses.replace(learner, norm_bound=learner.norm_bound / 2.0**j).lam
    return dataclasses.replace(
        learner, norm_bound=bound, regularization=lam, delta=learner.delta / ((j + 1.0) * (j + 2.0))
    )

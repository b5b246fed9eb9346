"""ARL-LIN: find the coordinates that matter and how large theta* is, on the same rows.

It plays the phases of ARL-LIN(dim) (:mod:`occamrl.selectors.arl_lin_dim`) with the regularisations
and norm bounds of ARL-LIN(norm) (:mod:`occamrl.selectors.arl_lin_norm`). After every phase::

    carried = min(carried, max { ||theta|| : theta in the ellipsoid of all coordinates })
    b       = the smaller bound that the ellipsoid of D proves, to exploit; carried, to estimate

The bound that is carried over looks at all coordinates, so it is valid whatever D is. That of D is
never carried over. Every ellipsoid has the level that ARL-LIN(dim) gives its set, divided among the
regularisations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_number
from occamrl.evidence import value
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.protocols import Flow, Known, Learner, Plan
from occamrl.selectors.arl_lin_dim import EXPLOITATION, ARLLinDim, SupportState
from occamrl.selectors.arl_lin_norm import Grid, grid_of, refine, smallest_region
from occamrl.selectors.linear_selector import LinearSelector, block


class BothState(SupportState):
    """The state of ARL-LIN(dim), and the norm bounds."""

    carried: float  # valid for all coordinates
    norm_bound: float  # of the phase
    contradicted: bool  # whether the rows left no kernel within the bound


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLin(LinearSelector, Learner):
    """Adapt to the number of non-zero coordinates of theta* and to its norm.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLin(features=orl.FeatureMap(problem.phi), norm_bound=100.0)
    >>> result = orl.run(agent, problem, episodes=100)

    :class:`ARLLinDim` finds the support alone, :class:`ARLLinNorm` the norm alone.

    Parameters
    ----------
    features, norm_bound, delta, scale, replan
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound``
        may be far too large.
    initial_episodes : int
        k_0.
    growth, estimation_growth : float
        g and e: how much longer an exploitation and an estimation phase is than the one before.

    Notes
    -----
    Facts of a plan: ``epoch``; ``label``; ``chosen``, the coordinates selected; ``norm_bound``.
    Diagnostics: ``estimate``, theta of the coordinates that plan, and its ``regularization``;
    ``carried_bound``; ``contradicted``, whether the rows leave no kernel within the bound.
    """

    estimation_growth: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("estimation_growth", self.estimation_growth, 1.0, 1e100)

    @cached_property
    def _supports(self) -> ARLLinDim:
        """The selector whose phases and supports these are."""
        return ARLLinDim(
            features=self.features,
            norm_bound=self.norm_bound,
            delta=self.delta,
            initial_episodes=self.initial_episodes,
            growth=self.growth,
            estimation_growth=self.estimation_growth,
        )

    def on_features(self, theta: Floats | None) -> UCRLVTRLin:
        """Return its base algorithm with the support and norm of theta, or with neither."""
        bound = self.norm_bound if theta is None else float(np.linalg.norm(theta))
        return self.base(theta, bound, "scaled")

    def begin(self, known: Known) -> BothState:
        """Return the state before any data."""
        bound = float(self.norm_bound)
        return {
            **self._supports.begin(known),
            "carried": bound,
            "norm_bound": bound,
            "contradicted": False,
        }

    def plan(self, known: Known, state: BothState, draw: np.random.Generator) -> Plan:
        """Plan with the active coordinates, or with all of them to estimate."""
        coordinates = self._supports.coordinates_in_play(state)
        grid = self.grid(len(coordinates))
        region = smallest_region(state, coordinates, grid, state["norm_bound"])
        facts = {**self._supports.facts(state), "norm_bound": state["norm_bound"]}
        diagnostics = {"carried_bound": state["carried"], "contradicted": state["contradicted"]}
        return self.plan_in(known, state, region, facts, diagnostics)

    def learn(self, known: Known, state: BothState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the block; after the phase, choose the support and bound the norm."""
        if self.add_rows(known, state, plan, flow):
            self._supports.next_phase(state)
            self.bound_norm(state)

    def grid(self, m: int) -> Grid:
        """Return the grid of regularisations for m coordinates that the data chose."""
        level = self._supports.log_level(m)
        return grid_of(m, self.norm_bound, self.smallest_norm, level)

    def proved_bound(self, state: BothState, coordinates: list[int]) -> float | None:
        """Return the norm bound that the ellipsoids of some coordinates prove."""
        spectrum = value.Spectrum.of(*block(state, coordinates))
        grid = self.grid(len(coordinates))
        return refine(spectrum, grid, state["carried"], self.smallest_norm)

    def bound_norm(self, state: BothState) -> None:
        """Choose the norm bounds of a phase that begins."""
        carried = self.proved_bound(state, self.all_coordinates)
        state["contradicted"] = carried is None
        state["carried"] = float(self.norm_bound) if carried is None else carried
        state["norm_bound"] = state["carried"]
        # valid only if D contains the support, so it is not carried over
        if state["label"] == EXPLOITATION:
            bound = self.proved_bound(state, state["active"])
            if bound is not None:
                state["norm_bound"] = bound

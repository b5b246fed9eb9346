"""What selectors of linear kernels share: parameters, pooled rows, and plans with a block of them.

They play in phases. The rows of all phases are *pooled* (M17): they enter one regression in d
dimensions (:mod:`occamrl.evidence.value`). A phase takes the [D, D] and [D] blocks of its sums, for
some coordinates D, and plans with them as UCRL-VTR-LIN does, lazily
(:mod:`occamrl.learners.ucrl_vtr_lin`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import ParameterError, require_integer, require_number, require_rewards
from occamrl.evidence import value
from occamrl.learners.ucrl_vtr_lin import Pace, UCRLVTRLin, optimistic_values
from occamrl.models.features import FeatureMap
from occamrl.protocols import MOST_EPISODES, Flow, Known, Plan

ROUNDING = 1e-6  # the relative error that a norm computed from features may have


class PhaseState(value.SumState):
    """The pooled sums, and where in its phases a selector is."""

    epoch: int
    left: int  # episodes of the phase that are still to be played
    pace: Pace


class Region(NamedTuple):
    """Where theta* is, on some coordinates: the ellipsoid of one lambda."""

    coordinates: list[int]
    spectrum: value.Spectrum  # of the sums of these coordinates
    regularization: float
    squared_radius: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearSelector:
    """Parameters of a selector, and what it does whatever it looks for; not a learner by itself."""

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    scale: float = 1.0
    replan: float = 0.2
    initial_episodes: int = 4
    growth: float = 2.0

    def __post_init__(self) -> None:
        # the learner checks the parameters that are its own
        UCRLVTRLin(
            features=self.features,
            norm_bound=self.norm_bound,
            delta=self.delta,
            scale=self.scale,
            replan=self.replan,
        )
        if self.features.groups > 1:
            got = "a map with groups of coordinates"
            expected = "coordinates that pairs (s, a) share; on one-hot ones play UCRLVTRLin, or "
            raise ParameterError("features", got=got, expected=expected + "ARLGen on a Ladder")
        if self.norm_bound < (1.0 - ROUNDING) * self.smallest_norm:
            least = f"at least {self.smallest_norm:.6g}"
            expected = f"{least}: with these features no theta of a smaller norm is a kernel"
            raise ParameterError("norm_bound", got=self.norm_bound, expected=expected)
        require_integer("initial_episodes", self.initial_episodes, 1)
        require_number("growth", self.growth, 1.0, 1e100)

    @cached_property
    def smallest_norm(self) -> float:
        """The smallest ||theta|| with which every (s, a) sums to one; 0 if no theta does that."""
        sums = self.features.sums
        theta = np.linalg.lstsq(sums, np.ones(len(sums)), rcond=None)[0]
        if not np.allclose(sums @ theta, 1.0, rtol=0.0, atol=ROUNDING):
            return 0.0
        return float(np.linalg.norm(theta))

    def base(
        self, theta: Floats | None, norm_bound: float, regularization: float | str
    ) -> UCRLVTRLin:
        """Return UCRL-VTR-LIN as it plays, on the support of theta or on all coordinates."""
        features = self.features
        if theta is not None:
            features = features.restrict(np.flatnonzero(theta).tolist())
        return UCRLVTRLin(
            features=features,
            norm_bound=norm_bound,
            delta=self.delta,
            regularization=regularization,
            scale=self.scale,
            replan=self.replan,
        )

    @property
    def all_coordinates(self) -> list[int]:
        """0, ..., d - 1."""
        return list(range(self.features.dimension))

    def begin_rows(self, known: Known) -> PhaseState:
        """Return the state before any data, at the beginning of epoch 0."""
        require_rewards(known, self.features)
        first = self.initial_episodes
        return {**value.begin(self.features), "epoch": 0, "left": first, "pace": Pace(np.zeros(1))}

    def plan_in(
        self,
        known: Known,
        state: PhaseState,
        region: Region,
        facts: dict[str, Any],
        diagnostics: dict[str, Any],
    ) -> Plan:
        """Plan optimistically over a region, for as long as lazy planning and the phase allow."""
        theta, root, logdet = region.spectrum.ellipsoid(region.regularization)
        # one regression for all steps, and one group of coordinates
        ellipsoid = value.Ellipsoid(
            theta[None, None], root[None, None], np.asarray(logdet)[None, None]
        )
        width = self.scale * np.sqrt([region.squared_radius])
        optimism = optimistic_values(self.features, known, ellipsoid, width, region.coordinates)
        pace = state["pace"].next(ellipsoid.logdet[0], optimism, self.replan)
        estimate = {"estimate": theta.tolist(), "regularization": region.regularization}
        return Plan(
            policy=optimism.policy,
            values=optimism.values,
            episodes=min(state["left"], pace.episodes),
            facts=facts,
            diagnostics={**estimate, **diagnostics},
            carry=pace,
        )

    def add_rows(self, known: Known, state: PhaseState, plan: Plan, flow: Flow) -> bool:
        """Add the rows of a block to the pooled sums, and say whether the phase is over."""
        value.add(state, self.features, known, plan.values, flow)
        state["pace"] = plan.carry._replace(episodes=flow.episodes)
        state["left"] -= flow.episodes
        return state["left"] <= 0


def begin_phase(state: PhaseState, episodes: float) -> None:
    """Begin a phase that is planned for so many episodes, which need not be a whole number."""
    # products of growth factors are a little off: 4.000000000001 episodes are 4
    state["left"] = math.ceil(round(min(episodes, MOST_EPISODES), 6))
    state["pace"] = Pace(np.zeros(1))


def block(state: value.SumState, coordinates: list[int]) -> tuple[Floats, Floats]:
    """Return the [D, D] and [D] blocks of the pooled sums."""
    gram = state["gram"][0, 0][np.ix_(coordinates, coordinates)]
    return gram, state["xy"][0, 0][coordinates]

r"""ARL-LIN(dim): find the coordinates that matter while playing (Ghosh et al. 2022, algorithm 2).

::

    for epochs i = 0, 1, 2, ...
        D_i = the set of coordinates with the smallest penalised loss (all of them for i = 0)
        play UCRL-VTR-LIN on the coordinates D_i for g^i k_0 episodes             exploitation
        play UCRL-VTR-LIN on all coordinates for e^i ceil(sqrt(k_0)) episodes     estimation

The rows of all phases are pooled (:mod:`occamrl.selectors.linear_selector`). The paper's own
algorithm, on fresh data and with decaying levels, is :class:`occamrl.paper.ARLLinDim`.

**The support** minimises :math:`J(D) = L_\lambda(\theta_D) + pen(D)`, lambda = 1
(:mod:`occamrl.selectors.support_search`). Having met the set of all coordinates, the search leaves
out no j with :math:`\hat\theta_j^2 > (pen([d]) - pen(D))(\Sigma^{-1})_{jj}` (M18). Where a
direction was not excited this says nothing, which is why estimation phases exist. After D has
changed, the next one is twice as long as planned, at most about sqrt(k_i), and returns to the plan
step by step once D rests. A true coordinate that is missed costs optimism, not the run: estimation
goes on in all coordinates and brings it back as soon as it pays for itself.

**Guarantee.** With probability 1 - delta, at all times, for every D that contains the support of
theta*, its ellipsoid at level delta e^{-price} contains theta*: of the sets that contain it, the
levels add up to less than delta (M17). That the support is found, when, that no coordinate too many
is kept, and the regret are measured, not proved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import require_number
from occamrl.evidence import value
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.protocols import Flow, Known, Learner, Plan
from occamrl.selectors.linear_selector import (
    LinearSelector,
    PhaseState,
    Region,
    begin_phase,
    block,
)
from occamrl.selectors.support_search import log_price, sharp_support

EXPLOITATION = "exploitation"
ESTIMATION = "estimation"

_LAMBDA = 1.0
_STRETCH = 2.0  # how much longer an estimation phase is after the support has changed


class SupportState(PhaseState):
    """The pooled rows, the phase, and the support in play."""

    label: str  # of the phase: exploitation or estimation
    active: list[int]  # D
    stretched: float  # how many times as long as planned an estimation phase is


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinDim(LinearSelector, Learner):
    """Adapt to the number of non-zero coordinates of theta*.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLinDim(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=100)

    Parameters
    ----------
    features, norm_bound, delta, scale, replan
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`.
    initial_episodes : int
        k_0.
    growth, estimation_growth : float
        g and e: how much longer an exploitation and an estimation phase is than the one before.

    Notes
    -----
    Facts of a plan: ``epoch``; ``label``; ``chosen``, the coordinates selected. Diagnostics:
    ``estimate``, theta of the coordinates that plan, and its ``regularization``.
    """

    estimation_growth: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("estimation_growth", self.estimation_growth, 1.0, 1e100)

    def on_features(self, theta: Floats | None) -> UCRLVTRLin:
        """Return its base algorithm on the support of theta, or on all coordinates."""
        return self.base(theta, self.norm_bound, _LAMBDA)

    def begin(self, known: Known) -> SupportState:
        """Return the state before any data: the first phase exploits all coordinates."""
        return {
            **self.begin_rows(known),
            "label": EXPLOITATION,
            "active": self.all_coordinates,
            "stretched": 1.0,
        }

    def plan(self, known: Known, state: SupportState, draw: np.random.Generator) -> Plan:
        """Plan with the active coordinates, or with all of them to estimate."""
        coordinates = self.coordinates_in_play(state)
        spectrum = value.Spectrum.of(*block(state, coordinates))
        level = self.log_level(len(coordinates))
        # M17: the ellipsoid of M11, at the level of a set that the data chose
        beta = 0.25 * (spectrum.logdet(_LAMBDA) + 2.0 * level) + _LAMBDA * self.norm_bound**2
        region = Region(coordinates, spectrum, _LAMBDA, beta)
        return self.plan_in(known, state, region, self.facts(state), {})

    def learn(self, known: Known, state: SupportState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the block; begin the next phase if this one is over."""
        if self.add_rows(known, state, plan, flow):
            self.next_phase(state)

    def coordinates_in_play(self, state: SupportState) -> list[int]:
        """Return the coordinates that a phase plans with."""
        if state["label"] == EXPLOITATION:
            return state["active"]
        return self.all_coordinates

    def log_level(self, m: int) -> float:
        """Return log(1/level) of the ellipsoid of m coordinates that the data chose."""
        return math.log(1.0 / self.delta) + log_price(self.features.dimension, m)

    def facts(self, state: SupportState) -> dict[str, object]:
        """Return what was decided."""
        chosen = list(state["active"])
        return {"epoch": state["epoch"], "label": state["label"], "chosen": chosen}

    def next_phase(self, state: SupportState) -> None:
        """Estimate after an exploitation phase; after an estimation phase begin the next epoch."""
        if state["label"] == EXPLOITATION:
            state["label"] = ESTIMATION
            begin_phase(state, self.estimation_episodes(state))
        else:
            state["label"] = EXPLOITATION
            state["epoch"] += 1
            self.choose_support(state)
            begin_phase(state, self.initial_episodes * self.growth ** state["epoch"])

    def choose_support(self, state: SupportState) -> None:
        """Search for the support; estimation phases become longer while it changes."""
        sigma = state["gram"][0, 0] + _LAMBDA * np.eye(self.features.dimension)
        active = sharp_support(sigma, state["xy"][0, 0], _LAMBDA, state["active"])
        # a support that still changes is a sign that too little is known of all coordinates
        if active == state["active"]:
            state["stretched"] = max(1.0, state["stretched"] / _STRETCH)
        else:
            state["stretched"] *= _STRETCH
        state["active"] = active

    def estimation_episodes(self, state: SupportState) -> float:
        """Return how long an estimation phase is: as planned, or stretched to about sqrt(k_i)."""
        root = math.isqrt(self.initial_episodes - 1) + 1  # ceil(sqrt(k_0))
        planned = root * self.estimation_growth ** state["epoch"]
        # the paper's ratio: 6^i sqrt(k_0) episodes of estimation to 36^i k_0 of exploitation
        longest = root * math.sqrt(self.growth) ** state["epoch"]
        return max(planned, min(state["stretched"] * planned, longest))

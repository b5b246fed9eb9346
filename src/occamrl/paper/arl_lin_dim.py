r"""ARL-LIN(dim), to the letter (algorithm 2).

    theta^(0) = (1, ..., 1)
    for epochs i = 0, 1, 2, ...
        D_i = { j : |theta^(i)_j| >= 0.5^i }
        play a fresh UCRL-VTR-LIN on the coordinates D_i for 36^i k_0 episodes,
            norm bound b, level delta/2^i
        play UCRL-VTR-LIN on all d coordinates for 6^i ceil(sqrt(k_0)) episodes,
            from where epoch i-1 left it, norm bound b, level delta
        theta^(i+1) = the estimate of the latter
            after tau_i = sum over j <= i of 6^j ceil(sqrt(k_0)) episodes

Deviation from the paper: an empty D_i, on which no kernel exists, is replaced by all coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypedDict

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import ParameterError, require_choice, require_integer, require_number
from occamrl.models.features import FeatureMap
from occamrl.paper.ucrl_vtr_lin import UCRLVTRLin, UCRLVTRLinState
from occamrl.protocols import Flow, Known, Learner, Plan

EXPLOITATION = "exploitation"
ESTIMATION = "estimation"


class ARLLinDimState(TypedDict, total=False):
    """Where in its epochs the algorithm is; the beginning of an epoch fills it in."""

    epoch: int  # i
    estimate: Floats  # theta^(i)
    full: UCRLVTRLinState  # of the learner on all coordinates
    active: list[int]  # D_i
    phase: str
    left: int  # episodes of the phase that are still to be played
    restricted: UCRLVTRLinState  # of the learner on D_i


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinDim(Learner):
    """Adapt to the number of non-zero coordinates of theta*.

    Parameters
    ----------
    features : FeatureMap
        Its coordinates are those of theta*.
    norm_bound, delta, paper_constant
        Of :class:`~occamrl.paper.ucrl_vtr_lin.UCRLVTRLin`.
    initial_episodes : int
        k_0.
    growth, estimation_growth : float
        36 and 6; the paper's remark keeps them and ``threshold`` as tuning parameters and names 4,
        2 and 0.9.
    threshold : float
        The base of the thresholds, 0.5.
    threshold_epoch : "text" | "box"
        Erratum. The text has 0.5^i for D_i, the algorithm box 0.5^(i+1). With the error 0.5^i of
        the paper's lemma 5 only the text's rule leaves out every zero coordinate.
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    paper_constant: float = 1.0
    initial_episodes: int = 16
    growth: float = 36
    estimation_growth: float = 6
    threshold: float = 0.5
    threshold_epoch: str = "text"

    def __post_init__(self) -> None:
        base_learner(self, None, 0)  # checks its parameters
        if self.features.groups > 1:
            got = "a map with groups of coordinates"
            raise ParameterError("features", got=got, expected="one without")
        require_choice("threshold_epoch", self.threshold_epoch, ("text", "box"))
        require_integer("initial_episodes", self.initial_episodes, 1)
        require_number("growth", self.growth, 1.0, math.inf)
        require_number("estimation_growth", self.estimation_growth, 1.0, math.inf)
        require_number("threshold", self.threshold, 0.0, 1.0, open_low=True)

    def begin(self, known: Known) -> ARLLinDimState:
        """Return the state at the beginning of epoch 0, with theta^(0) = 1."""
        state: ARLLinDimState = {
            "epoch": 0,
            "estimate": np.ones(self.features.dimension),
            "full": base_learner(self, None, 0).begin(known),
        }
        self._begin_epoch(known, state)
        return state

    def on_features(self, theta: Floats | None) -> UCRLVTRLin:
        """Return the base algorithm on the support of theta, or on all coordinates."""
        support = None
        if theta is not None:
            support = tuple(np.flatnonzero(theta).tolist())
        return base_learner(self, support, 0)

    def level(self, epoch: int) -> float:
        """Return the magnitude from which on a coordinate is active."""
        exponent = epoch if self.threshold_epoch == "text" else epoch + 1
        return float(self.threshold**exponent)

    def _begin_epoch(self, known: Known, state: ARLLinDimState) -> None:
        """Choose the active coordinates, and start a learner on them afresh."""
        active = np.flatnonzero(np.abs(state["estimate"]) >= self.level(state["epoch"])).tolist()
        # no kernel has theta = 0, so an empty set is no set to play on
        state["active"] = active or list(range(self.features.dimension))
        state["phase"] = EXPLOITATION
        state["left"] = math.ceil(self.growth ** state["epoch"] * self.initial_episodes)
        state["restricted"] = self._learner(state)[0].begin(known)

    def _learner(self, state: ARLLinDimState) -> tuple[UCRLVTRLin, Literal["restricted", "full"]]:
        """Return the learner of the phase, and the name of its state."""
        if state["phase"] == EXPLOITATION:
            return base_learner(self, tuple(state["active"]), state["epoch"]), "restricted"
        return base_learner(self, None, 0), "full"

    def plan(self, known: Known, state: ARLLinDimState, draw: np.random.Generator) -> Plan:
        """Plan as the learner of the phase."""
        learner, name = self._learner(state)
        plan = learner.plan(known, state[name], draw)
        epoch = state["epoch"]
        level = self.level(epoch)
        facts = {"epoch": epoch, "label": state["phase"], "chosen": state["active"]}
        threshold = f"the threshold {level:.4g} of epoch {epoch}"
        diagnostics = {
            "statistics": np.abs(state["estimate"]).tolist(),
            "threshold": level,
            "because": f"The estimates of the others are below {threshold}.",
        }
        return Plan(policy=plan.policy, values=plan.values, facts=facts, diagnostics=diagnostics)

    def learn(self, known: Known, state: ARLLinDimState, plan: Plan, flow: Flow) -> None:
        """Enter the rows into the learner of the phase; go on to the next phase when it is over."""
        learner, name = self._learner(state)
        learner.learn(known, state[name], plan, flow)
        state["left"] -= flow.episodes
        if state["left"] > 0:
            return
        i = state["epoch"]
        if state["phase"] == EXPLOITATION:
            root = math.isqrt(self.initial_episodes - 1) + 1  # ceil(sqrt(k_0))
            state["phase"] = ESTIMATION
            state["left"] = math.ceil(self.estimation_growth**i * root)
        else:
            state["epoch"] = i + 1
            state["estimate"] = learner.estimate(state["full"])  # theta^(i+1)
            self._begin_epoch(known, state)


@lru_cache(maxsize=16)
def base_learner(selector: ARLLinDim, active: tuple[int, ...] | None, epoch: int) -> UCRLVTRLin:
    """Return UCRL-VTR-LIN on some coordinates, or on all for None, at level delta/2^i."""
    return UCRLVTRLin(
        features=selector.features if active is None else selector.features.restrict(active),
        norm_bound=selector.norm_bound,
        delta=selector.delta / 2**epoch,
        paper_constant=selector.paper_constant,
    )

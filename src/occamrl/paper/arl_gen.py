r"""ARL-GEN, to the letter (algorithm 1 and lemma 1).

    for epochs i = 1, 2, ...
        tau_{i-1} = k_1 + ... + k_{i-1}
        for classes m = 1, ..., M
            Phat_m = argmin { L(P) : P in F_m } over the rows of all earlier epochs
            T_m = L(Phat_m) / (tau_{i-1} H)
        m_i = min { m : T_m <= gamma_i },  k_i = 2^i,  delta_i = delta/2^i
        run UCRL-VTR, from nothing, on F_{m_i} for k_i episodes with confidence level delta_i

with the thresholds of lemma 1,

.. math:: \gamma_i = T_M + \frac{\sqrt i}{2^{i/2}} .

Lemma 1 writes T^(M)_m for the first term; only T_M of the same epoch gives the lemma a meaning. In
epoch 1 there are no rows, every T_m is 0, and m = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from occamrl.arrays import Floats
from occamrl.errors import ParameterError, require_delta
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder
from occamrl.paper.real_classes import RealClass, RealState
from occamrl.paper.thresholds import rejecting_epoch
from occamrl.paper.ucrl_vtr import UCRLVTR, UCRLVTRState
from occamrl.protocols import Flow, Known, Learner, Plan

_LATE = 60  # an epoch that no run reaches


class ARLGenState(TypedDict, total=False):
    """Where in its epochs the algorithm is; the beginning of an epoch fills it in."""

    epoch: int  # i
    all: UCRLVTRState | RealState  # of UCRL-VTR on F_M, with the rows of all epochs
    statistics: list[float]  # T_m
    threshold: float  # gamma_i
    chosen: int  # m_i
    left: int  # episodes of the epoch that are still to be played
    learner: UCRLVTRState | RealState  # of UCRL-VTR on F_{m_i}


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLGen(Learner):
    """Play UCRL-VTR on the smallest class whose average loss is within the threshold.

    Parameters
    ----------
    ladder : Ladder or ParametricLadder
        Nested lists or covers F_1 < ... < F_M; or ``model.ladder(...)``, classes with real
        parameters.
    delta : float
        Epoch i runs UCRL-VTR at level delta/2^i.
    lipschitz : mapping, optional
        Of :class:`~occamrl.paper.ucrl_vtr.UCRLVTR`.
    """

    ladder: Ladder | ParametricLadder
    delta: float = 0.05
    lipschitz: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        real = isinstance(self.ladder, ParametricLadder)
        if not real and not (isinstance(self.ladder, Ladder) and self.ladder.finite):
            expected = "a Ladder of finite families, or model.ladder(...)"
            raise ParameterError("ladder", got=repr(self.ladder), expected=expected)
        require_delta(self.delta)
        if isinstance(self.ladder, ParametricLadder):
            RealClass(self.ladder, self.lipschitz)  # checks the names of the constants

    @cached_property
    def _classes(self) -> list[UCRLVTR]:
        """UCRL-VTR on each class."""
        return [self.on_class(m) for m in range(1, self.ladder.classes + 1)]

    @property
    def _largest(self) -> UCRLVTR:
        return self._classes[-1]

    def on_class(self, m: int) -> UCRLVTR:
        """Return the base algorithm on class m, in one epoch."""
        if isinstance(self.ladder, ParametricLadder):
            alone = self.ladder.only(m)
            constants = self.lipschitz
            if constants is not None:
                constants = {name: constants[name] for name in alone.free[0] if name in constants}
            return UCRLVTR(family=alone, delta=self.delta, lipschitz=constants)
        return UCRLVTR(family=self.ladder.family_of(m), delta=self.delta)

    def least_losses(self, state: Any) -> Floats:
        """Return min L(P) over each class [M], over the rows of a state on F_M."""
        if isinstance(self.ladder, ParametricLadder):
            found = [one.real.estimate(state)[1] for one in self._classes if one.real is not None]
            # what is found in a class belongs to the larger ones as well
            return np.minimum.accumulate(found)
        # classes are nested: the members of F_m are the first ones of F_M
        least = np.minimum.accumulate(self._largest.losses(state))
        return np.asarray(least[np.array(self.ladder.sizes) - 1])

    def _base(self, state: ARLGenState) -> UCRLVTR:
        """Return UCRL-VTR on F_m at level delta/2^i."""
        base = self._classes[state["chosen"] - 1]
        return self._at_level(base, self.delta / 2 ** state["epoch"])

    @cached_property
    def _levels(self) -> dict[tuple[UCRLVTR, float], UCRLVTR]:
        return {}

    def _at_level(self, base: UCRLVTR, level: float) -> UCRLVTR:
        """Return a base at another level, which keeps what was searched for the first one."""
        if (base, level) not in self._levels:
            lowered = replace(base, delta=level)
            if base.real is not None:
                vars(lowered)["real"] = base.real
            self._levels[base, level] = lowered
        return self._levels[base, level]

    def begin(self, known: Known) -> ARLGenState:
        """Return the state at the beginning of epoch 1."""
        state: ARLGenState = {"epoch": 0, "all": self._largest.begin(known)}
        self._begin_epoch(known, state)
        return state

    def _begin_epoch(self, known: Known, state: ARLGenState) -> None:
        """Choose the class and start UCRL-VTR on it afresh."""
        state["epoch"] += 1
        i = state["epoch"]
        steps = max(1, state["all"]["episodes"] * known.horizon)  # tau_{i-1} H
        least = self.least_losses(state["all"])
        state["statistics"] = (least / steps).tolist()
        state["threshold"] = state["statistics"][-1] + math.sqrt(i) / 2 ** (i / 2)
        state["chosen"] = 1 + int(np.argmax(np.array(state["statistics"]) <= state["threshold"]))
        state["left"] = 2**i
        state["learner"] = self._base(state).begin(known)

    def plan(self, known: Known, state: ARLGenState, draw: np.random.Generator) -> Plan:
        """Plan as UCRL-VTR on the class of this epoch."""
        plan = self._base(state).plan(known, state["learner"], draw)
        names = list(self.ladder.names)
        chosen = state["chosen"]
        facts = {"epoch": state["epoch"], "chosen": chosen, "playing": names[chosen - 1]}
        mean = state["statistics"][chosen - 1]
        limits = self._limits(state)
        within = f"is within the threshold {state['threshold']:.4g} of the paper's lemma 1"
        others = ", which smaller classes exceed." if chosen > 1 else "."
        diagnostics = {
            "names": names,
            "statistics": state["statistics"],
            "threshold": state["threshold"],
            "because": f"Its mean loss, {mean:.4g}, {within}{others}{limits}",
        }
        return replace(plan, facts=facts, diagnostics=diagnostics)

    def _limits(self, state: ARLGenState) -> str:
        """Say when the test would reject the class in use, at the difference that it sees now."""
        chosen = state["chosen"]
        if chosen == self.ladder.classes or state["epoch"] == 1:
            return ""
        i = state["epoch"]
        excess = state["statistics"][chosen - 1] - state["statistics"][-1]
        allowed = math.sqrt(i) / 2 ** (i / 2)
        name = self.ladder.names[chosen - 1]
        text = f" In epoch {i} it rejects differences above {allowed:.4g} from the largest class"
        later = rejecting_epoch(excess)
        if later is None or later > _LATE:
            return f"{text}; that of {name!r} is {excess:.2g}."
        begin = f"epoch {later} (episode {2**later - 1:,})"
        return f"{text}; one of {excess:.2g}, that of {name!r} now, only from {begin} on."

    def learn(self, known: Known, state: ARLGenState, plan: Plan, flow: Flow) -> None:
        """Enter the rows into the learner of the epoch and into the losses of all epochs."""
        # UCRL-VTR sees the rows of this epoch alone, the test those of all epochs
        self._base(state).learn(known, state["learner"], plan, flow)
        self._largest.learn(known, state["all"], plan, flow)
        state["left"] -= flow.episodes
        if state["left"] <= 0:
            self._begin_epoch(known, state)

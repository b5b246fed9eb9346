r"""ARL-GEN, to the letter (algorithm 1 and lemma 1).

    for epochs i = 1, 2, ...
        tau_{i-1} = k_1 + ... + k_{i-1}
        for classes m = 1, ..., M
            Phat_m = argmin { L(P) : P in F_m } over the rows of all earlier epochs
            T_m = L(Phat_m) / (tau_{i-1} H)                                                       (M13)
        m_i = min { m : T_m <= gamma_i },  k_i = 2^i,  delta_i = delta/2^i
        run UCRL-VTR, from nothing, on F_{m_i} for k_i episodes with confidence level delta_i

with the thresholds M14 of lemma 1,

.. math:: \gamma_i = T_M + \frac{\sqrt i}{2^{i/2}} .

Lemma 1 writes T^(M)_m for the first term; only T_M of the same epoch gives the lemma a meaning. In epoch 1 there are no
rows, every T_m is 0, and m = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_number
from occamrl.models.ladder import Ladder
from occamrl.paper.ucrl_vtr import UCRLVTR, dense_kernels, optimal_values
from occamrl.protocols import Episode, EpisodeLearner, Ints, Known


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLGen(EpisodeLearner):
    """Play UCRL-VTR on the smallest class whose average loss is within the threshold, epoch by epoch.

    Parameters
    ----------
    ladder : Ladder
        Nested finite families F_1 < ... < F_M.
    delta : float
        Epoch i runs UCRL-VTR at level delta/2^i.

    Notes
    -----
    State: ``epoch`` i; ``chosen`` m_i; ``left``, episodes that remain of the epoch; ``episodes`` played in all;
    ``statistics``, T_1, ..., T_M at the beginning of the epoch, and its ``threshold`` gamma_i; ``losses``, the list of
    L(P) [|F_m|] for every class over all rows so far; ``learner``, the state of UCRL-VTR in this epoch.
    """

    ladder: Ladder
    delta: float = 0.05

    def __post_init__(self) -> None:
        if not (isinstance(self.ladder, Ladder) and self.ladder.finite):
            raise ParameterError("ladder", got=repr(self.ladder), expected="a Ladder of finite families")
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state at the beginning of epoch 1."""
        losses = [np.zeros(self.ladder.rung(m).size) for m in range(1, self.ladder.classes + 1)]
        state: dict[str, Any] = {"epoch": 0, "episodes": 0, "losses": losses}
        self._begin_epoch(known, state)
        return state

    def _begin_epoch(self, known: Known, state: dict[str, Any]) -> None:
        """Choose the class and start UCRL-VTR on it afresh."""
        state["epoch"] += 1
        i, steps = state["epoch"], state["episodes"] * known.horizon  # tau_{i-1} H
        state["statistics"] = [float(loss.min() / steps) if steps else 0.0 for loss in state["losses"]]  # M13
        state["threshold"] = state["statistics"][-1] + math.sqrt(i) / 2 ** (i / 2)  # M14
        state["chosen"] = 1 + int(np.argmax(np.array(state["statistics"]) <= state["threshold"]))
        state["left"] = 2**i
        state["learner"] = self._base(state).begin(known)

    def _base(self, state: dict[str, Any]) -> UCRLVTR:
        """Return UCRL-VTR on F_m at level delta/2^i."""
        return UCRLVTR(family=self.ladder.rung(state["chosen"]), delta=self.delta / 2 ** state["epoch"])

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Plan as UCRL-VTR on the class of this epoch."""
        return self._base(state).plan(known, state["learner"], start, draw)

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter the rows into the epoch's own learner and into the losses of all classes; close the epoch when due."""
        base = self._base(state)
        values = optimal_values(base.family, known)[0][state["learner"]["member"]]
        base.learn(known, state["learner"], episode)
        for m, loss in enumerate(state["losses"], start=1):
            kernels = dense_kernels(self.ladder.rung(m))
            for h in range(len(episode.actions)):
                s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
                loss += (values[h + 1, following] - kernels[:, s, a] @ values[h + 1]) ** 2  # M1
        state["episodes"] += 1
        state["left"] -= 1
        if state["left"] == 0:
            self._begin_epoch(known, state)

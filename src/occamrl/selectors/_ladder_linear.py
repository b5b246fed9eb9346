"""ARL-GEN on a ladder whose largest class is linear or an aggregation (the linear form of M15)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from occamrl.learners._recorded import Recorded, record_now
from occamrl.learners.rewards import RewardRows, Rewards, copy_rewards
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.models import finite as off_grid
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import LinearLadder, dense
from occamrl.models.linear import LinearFamily
from occamrl.protocols import Floats, Known, Phase, PhaseOutcome

_LAMBDA = 1.0  # of all regressions
_MOST_COORDINATES = 2000  # of the test for a truth outside F_M


@dataclass(frozen=True, kw_only=True, eq=False)
class LadderLinear:
    """Phases on the smallest class accepted at their beginning: 2^i episodes, or ``test_growth`` times those so far.

    The bound of M15 holds at all times at once, so that testing often costs no confidence. With one kernel per step the
    rows of each step are tested by themselves, each at its part of delta, and a class has to be accepted at all steps.
    """

    ladder: LinearLadder
    delta: float
    data: str
    start_class: int
    rule: str
    slack: float
    anytime: bool
    test_growth: float
    guard: bool
    replan: float
    scale: float
    radius: str
    weights: str
    rewards: Rewards
    kernel: str

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: the rows of all phases in the largest class, step after step."""
        features, steps = self.ladder.features, self._full.steps(known)
        rows = {
            "gram": np.zeros(steps * int(features.blocks.matrix_start[-1])),
            "xy": np.zeros(steps * features.dimension),
            "rewards": None,
            "pairs": np.zeros((steps * known.states * known.actions, 2 + int(features.blocks.size.max()))),
        }
        return {"epoch": 1, "episodes": 0, "chosen": 0, "since": 1, "audits": 0, "squares": 0.0, **rows}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes on all rows so far, and play the smallest that is accepted."""
        i, tau = memory["epoch"], memory["episodes"]
        chosen, facts = self._test(known, memory)
        if chosen != memory["chosen"]:
            memory["chosen"], memory["since"] = chosen, tau + 1
        episodes = max(1, math.ceil(self.test_growth * tau)) if self.anytime else 2**i
        audit = self.guard and chosen < self.ladder.classes and math.isqrt(tau) > memory["audits"]
        m = self.ladder.classes if audit else chosen
        if audit:
            episodes = math.isqrt(tau) - memory["audits"]
            memory["audits"] += episodes
        learner = self._recorded(m, self.delta / 2**i if self.data == "fresh" else self.delta)
        found = {"chosen": chosen, **facts, "since": memory["since"]}
        label = f"F_{m}, audit" if audit else f"F_{m}"
        return Phase(learner, self._state(known, memory, m, learner), episodes, epoch=i, label=label, facts=found)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the rows of the phase."""
        state, learner = outcome.state, phase.learner
        record_now(learner.model(known), state)
        memory["gram"] = memory["gram"] + state.gram
        memory["xy"] = memory["xy"] + state.xy
        memory["squares"] += float(state.squares[0])
        memory["pairs"] = memory["pairs"] + state.pairs
        heard = getattr(state.inner, "rewards", None)  # a finite class that knows the rewards keeps none
        memory["rewards"] = heard if isinstance(heard, RewardRows) else None
        memory["episodes"] += outcome.episodes
        memory["epoch"] += 1
        if self.data == "pooled" and isinstance(learner, Recorded) and isinstance(learner.learner, UCRLVTR):
            memory[f"state {memory['chosen']}"] = state.inner  # audits are played by a linear class

    def _state(self, known: Known, memory: dict[str, Any], m: int, learner: Recorded) -> Any:
        """Return the state to play from: all rows for a linear class, those of its own plans for a finite one."""
        inner = learner.learner
        if isinstance(inner, UCRLVTR):
            kept = memory.pop(f"state {m}", None) if self.data == "pooled" else None
            state = inner.begin(known) if kept is None else kept
            if self.data == "pooled" and memory["rewards"] is not None:
                copy_rewards(memory["rewards"], state.rewards)  # rewards are those of all phases
                state.rewards.due[0] = 1
            return learner.around(known, state)
        own = None
        if self.data == "pooled" and memory["episodes"]:
            rows = self._by_step(known, memory)
            each = (self.ladder.statistics(m, row["gram"], row["xy"]) for row in rows)
            gram, xy = (np.concatenate(parts) for parts in zip(*each, strict=True))
            own = LinearStatistics(gram, xy, memory["episodes"], len(rows), memory["rewards"])
        return learner.around(known, inner.begin(known, own))

    def _test(self, known: Known, memory: dict[str, Any]) -> tuple[int, dict[str, object]]:
        """Return the class to play and what was found: T_m (M13), threshold, margin, separation, misfit, beta."""
        if not memory["episodes"]:
            names = ("threshold", "margin", "separation", "misfit", "beta")
            nothing: dict[str, object] = dict.fromkeys(names)
            return self.start_class, {"statistics": [0.0] * self.ladder.classes, **nothing, "outside": False}
        total, unit, level = memory["episodes"] * known.horizon, self._unit(known), self._full.level(known)
        rows = self._by_step(known, memory)
        steps = total // len(rows)
        losses = np.array([self.losses(row) for row in rows])  # [T, M]
        bounds = np.array([self.bound(row, loss, steps, unit, level) for row, loss in zip(rows, losses, strict=True)])
        allowed = bounds[:, np.newaxis] + np.array([self.off_grid(row, unit, level) for row in rows])  # [T, M]
        accepted = (losses <= allowed).all(axis=0)
        chosen = 1 + int(np.argmax(accepted)) if accepted.any() else self.ladder.classes
        misfit = _largest(
            self.misfit(row, float(loss[-1]), unit, level) for row, loss in zip(rows, losses, strict=True)
        )
        separation = (losses[:, chosen - 2] - losses[:, -1]).sum() / total if chosen > 1 else None
        return chosen, {
            "statistics": [float((loss + memory["squares"]) / total) for loss in losses.sum(axis=0)],
            "threshold": float((allowed[:, chosen - 1].sum() + memory["squares"]) / total),
            "margin": float((allowed - losses)[:, chosen - 1].min()),
            "separation": None if separation is None else float(separation),
            "misfit": misfit,
            "beta": _largest(self._beta(row, chosen, unit, level) for row in rows),
            "outside": misfit is not None and misfit > 0.0,
        }

    def _by_step(self, known: Known, memory: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the memory with the rows of each step alone; as it is for a stationary kernel."""
        steps, names = self._full.steps(known), ("gram", "xy", "pairs")
        each = zip(*(np.split(memory[name], steps) for name in names), strict=True)
        return [{**memory, **dict(zip(names, rows, strict=True))} for rows in each]

    def losses(self, memory: dict[str, Any]) -> Floats:
        """Return min over F_m of L, less sum y^2, for every m."""
        every = range(1, self.ladder.classes + 1)
        return np.array([self.ladder.smallest_loss(m, memory["gram"], memory["xy"]) for m in every])

    def bound(self, memory: dict[str, Any], losses: Floats, steps: int, unit: float, level: float) -> float:
        """Return the largest loss, less sum y^2, of a class that is accepted.

        Sharp: L_lambda(theta_M) + (R^2/4)(logdet(Sigma_M/lambda) + 2 log(1/delta)) (M15). Paper: M14 times tau H.
        ``slack`` multiplies what either allows above the best loss of F_M.
        """
        if self.rule == "paper":
            epoch = memory["epoch"]
            return float(losses[-1] + self.slack * steps * math.sqrt(epoch) / 2 ** (epoch / 2))
        theta, logdet = self._ridge(memory)
        fit = -float(memory["xy"] @ theta)  # L_lambda(theta_M) less sum y^2
        noise = 2.0 * math.log(1.0 / off_grid.level(max(self.ladder.reach), level))
        sharp = fit + 0.25 * unit**2 * (logdet + noise)
        return float(losses[-1] + self.slack * (sharp - losses[-1]))

    def off_grid(self, memory: dict[str, Any], unit: float, level: float) -> Floats:
        """Return what every class is allowed on top for a truth between the points of a cover; 0 for other classes."""
        if self.rule == "paper":
            return np.zeros(self.ladder.classes)
        rows = float(memory["pairs"][:, 0].sum())
        terms = [off_grid.off_grid(reach, rows, level) for reach in self.ladder.reach]
        return self.slack * unit**2 * np.array(terms)

    def misfit(self, memory: dict[str, Any], least: float, unit: float, level: float) -> float | None:
        """Return by how much the best loss of F_M exceeds what noise explains; above 0: the truth is outside F_M.

        F_M is tested like any class below it (M15), against itself with a mean added for every (s, a). With probability
        1 - delta at all times, L(P*) is at most the right side for that larger class, whatever the true kernel P* is.
        """
        features, (pairs, width) = self.ladder.features, memory["pairs"].shape
        d, of = features.dimension, features.blocks.of
        if d + pairs > _MOST_COORDINATES or unit <= 0.0:  # without any range there are no rows
            return None
        cross = np.zeros((d, pairs))
        for sa in range(pairs):
            first, n = int(features.blocks.vector_start[of[sa]]), int(features.blocks.size[of[sa]])
            cross[first : first + n, sa] = memory["pairs"][sa, 2 : 2 + min(n, width - 2)]
        gram = np.block(
            [[dense(self.ladder.unpacked(memory["gram"])), cross], [cross.T, np.diag(memory["pairs"][:, 0])]]
        )
        xy = np.concatenate([memory["xy"], memory["pairs"][:, 1]])
        sigma = gram / _LAMBDA + np.eye(d + pairs)
        fit = -float(xy @ np.linalg.solve(sigma, xy)) / _LAMBDA
        logdet = float(np.linalg.slogdet(sigma)[1])
        return (least - fit) / unit**2 - 0.25 * (logdet + 2.0 * math.log(1.0 / level))

    def _ridge(self, memory: dict[str, Any]) -> tuple[Floats, float]:
        """Return theta_M, over the features of the largest class, and logdet(Sigma_M/lambda) of all rows (M8)."""
        m = self.ladder.classes
        own, logdet = self._solve(m, *self.ladder.statistics(m, memory["gram"], memory["xy"]))
        return np.asarray(self.ladder.embeddings[-1] @ own), logdet

    def _solve(self, m: int, gram: Floats, xy: Floats) -> tuple[Floats, float]:
        """Return Sigma^-1 xy and logdet(Sigma/lambda) of a class, block by block."""
        theta, logdet, begin = np.zeros(xy.size), 0.0, 0
        for part in self.ladder.rung(m).parts():
            n = part.stop - part.start
            sigma = gram[begin : begin + n * n].reshape(n, n) / _LAMBDA + np.eye(n)
            theta[part] = np.linalg.solve(sigma, xy[part]) / _LAMBDA
            logdet += float(np.linalg.slogdet(sigma)[1])
            begin += n * n
        return theta, logdet

    def _beta(self, memory: dict[str, Any], m: int, unit: float, level: float) -> float | None:
        """Return the squared width of a linear class's ellipsoid (M11) at the beginning of the phase."""
        rung = self.ladder.rung(m)
        if isinstance(rung, FiniteFamily) or self.data == "fresh" or self.rule == "paper":
            return None
        logdet = self._solve(m, *self.ladder.statistics(m, memory["gram"], memory["xy"]))[1]
        noise = 0.25 * unit**2 * (logdet + 2.0 * math.log(1.0 / level))
        return float(self.scale**2 * (noise + _LAMBDA * rung.norm_bound**2))

    def _unit(self, known: Known) -> float:
        return float(self._full.model(known).unit)

    @cached_property
    def _full(self) -> UCRLVTRLin:
        """The learner of the largest class, of which there are rows in every phase."""
        return self._recorded(self.ladder.classes, self.delta).full

    def _recorded(self, m: int, delta: float) -> Recorded:
        common: dict[str, Any] = {"delta": delta, "replan": self.replan, "scale": self.scale, "weights": self.weights}
        options: dict[str, Any] = {"rewards": self.rewards, "kernel": self.kernel}
        linear: dict[str, Any] = {**common, **options, "radius": self.radius, "regularization": _LAMBDA}
        rung, full = self.ladder.rung(m), self.ladder.rungs[-1]
        if isinstance(rung, FiniteFamily):
            learner: UCRLVTR | UCRLVTRLin = UCRLVTR(family=rung, radius=self.radius, **common, **options)
        else:
            own = rung.own_features if isinstance(rung, LinearFamily) else rung.features
            learner = UCRLVTRLin(features=own, norm_bound=rung.norm_bound, **linear)
        return Recorded(learner=learner, full=UCRLVTRLin(features=full.features, norm_bound=full.norm_bound, **linear))


def _largest(numbers: Iterable[float | None]) -> float | None:
    """Return the largest number; None if one is missing."""
    every = list(numbers)
    some = [number for number in every if number is not None]
    return max(some) if len(some) == len(every) else None

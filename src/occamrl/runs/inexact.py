r"""Rows whose means are known up to an error, for learners and selectors that know nothing of it.

Let :math:`|\langle x_t, \theta^*\rangle - E[y_t]| \le e_t`, e_t known before y_t, targets of range 1. For any fixed c
in (0, 1), :mod:`occamrl.confidence.compatible_sets` shows that

.. math:: \exp\big(2c\,(L(\theta^*) - L(\theta)) - 2\varepsilon\big), \qquad
          \varepsilon = \frac{c}{1-c} \sum_t e_t^2,

is a supermartingale for every theta. That is the one of exact rows, for rows that are multiplied by :math:`\sqrt c`,
but for epsilon; and what follows from exact rows with probability 1 - delta holds for L(theta*) as a bound to which
:math:`\tfrac12\log\tfrac1\delta` is added (M11, M15, M19, M22). So **rows times** :math:`\sqrt c` **at the level**
:math:`\delta e^{-2\varepsilon}` **are as good as exact ones**: the same learners, the same decisions, no formula of
their own. The ellipsoid is that of :math:`\Sigma = \lambda I + c \sum x x^\top` with

.. math:: \beta = \tfrac14\big(\log\det(\Sigma/\lambda) + 2\log\tfrac1\delta\big) + \varepsilon + \lambda b^2 .

A selector decides at the level of its moment; what epsilon grows by afterwards is added to the radius in play, through
the slack that a noise event may have. c = 1 and no errors change no bit.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl.confidence.radii import ellipsoid_width
from occamrl.contracts import Agent, Floats, Known, Learner, Phase, PhaseOutcome, Selector
from occamrl.errors import OccamRLError, ParameterError, ShapeError
from occamrl.families.linear import LinearFamily
from occamrl.families.linear_ladder import LinearLadder
from occamrl.learners._recorded import Recorded, RecordedState
from occamrl.learners.linear_regression import refactor
from occamrl.learners.linear_state import EPISODES, LOGDET, LinearModel, LinearState
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.runs.phases import as_selector

LEAST_LEVEL = 1e-250  # of a decision: selectors divide it further
ROWS, ERRORS, AT_BEGIN = range(3)


class Seen(NamedTuple):
    """All rows of all phases, as they came."""

    gram: Floats  # [d, d] sum x x^T
    xy: Floats  # [d] sum y x
    sums: Floats  # [3] number of rows; sum e_t^2; the same when the episode under way began

    @classmethod
    def nothing(cls, d: int) -> Seen:
        """Return what has been seen before any row."""
        return cls(np.zeros((d, d)), np.zeros(d), np.zeros(3))

    def copy(self) -> Seen:
        """Return an independent copy."""
        return Seen(*(array.copy() for array in self))


class InexactState(NamedTuple):
    """The state of the learner in play, whose rows are multiplied by sqrt(c), and all rows."""

    inner: Any  # LinearState, or RecordedState around one
    seen: Seen

    @property
    def planning(self) -> LinearState:
        """The regression that plans."""
        found: LinearState = self.inner.inner if isinstance(self.inner, RecordedState) else self.inner
        return found


def spent(temperature: float, squared_errors: float) -> float:
    """Return epsilon."""
    return temperature * squared_errors / (1.0 - temperature) if temperature < 1.0 else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class InexactLearner(Learner):
    """UCRL-VTR-LIN, alone or recorded for a ladder, on rows that are entered one by one.

    Parameters
    ----------
    learner : UCRLVTRLin or Recorded
    temperature : float
        c.
    paid : float
        The epsilon that its level pays for.
    basis : array [d, r], optional
        Of the coordinates in play among all, where the learner has features of its own.
    """

    learner: Any
    temperature: float
    paid: float
    basis: Floats | None = None

    @property
    def planning(self) -> UCRLVTRLin:
        """The learner that plans."""
        learner = self.learner.learner if isinstance(self.learner, Recorded) else self.learner
        return require_sharp(learner)

    def model(self, known: Known) -> LinearModel:
        """Return the constants of the compiled functions of the learner that plans."""
        return self.planning.model(known)

    def begin(self, known: Known) -> InexactState:
        """Return a fresh state."""
        full = self.learner.full if isinstance(self.learner, Recorded) else self.learner
        return InexactState(self.learner.begin(known), Seen.nothing(full.features.dimension))

    def reserve(self, state: InexactState, episodes: int) -> InexactState:
        """Return the state as it is: it never grows."""
        return state

    def own(self, x: Floats) -> Floats:
        """Return a row in the coordinates that plan."""
        if self.basis is not None:
            return np.asarray(self.basis.T @ x)
        active = self.planning.active
        return x if active is None else x[list(active)]

    def enter(self, state: InexactState, x: Floats, y: float, error: float) -> None:
        """Enter a row; it counts from the next :meth:`refresh` on."""
        seen, inner, root = state.seen, state.inner, math.sqrt(self.temperature)
        seen.sums[ROWS] += 1.0
        seen.sums[ERRORS] += error**2
        _add(seen.gram, seen.xy, x, y)
        if isinstance(inner, RecordedState):
            _add(inner.gram, inner.xy, root * x, root * y)
            inner.squares[0] += self.temperature * y**2
        mine = x if self.basis is None else self.own(x)  # a learner with active coordinates keeps rows in all of them
        _add(state.planning.sigma, state.planning.xy, root * mine, root * y)

    def refresh(self, state: InexactState) -> None:
        """Factorise what plans, before an episode."""
        learner, active = self.planning, self.planning.active
        chosen = None if active is None else np.asarray(active, dtype=np.int64)
        refactor(learner.features.blocks, learner.lam, state.planning, chosen)
        state.seen.sums[AT_BEGIN] = state.seen.sums[ERRORS]

    def armed(self, model: LinearModel, state: InexactState) -> LinearModel:
        """Return the constants for an episode, the radius including epsilon."""
        more = spent(self.temperature, float(state.seen.sums[AT_BEGIN])) - self.paid
        return model._replace(slack=model.slack + 4.0 * more)


def _add(gram: Floats, xy: Floats, x: Floats, y: float) -> None:
    gram.reshape(x.size, x.size)[...] += np.outer(x, x)
    xy += y * x


def width(model: LinearModel, state: LinearState) -> float:
    """Return sqrt(beta) of the ellipsoid that plans (M11)."""
    found = ellipsoid_width(
        model.radius,
        model.weighted,
        model.unit,
        model.horizon,
        0,
        int(state.counters[EPISODES]),
        model.dimension,
        float(state.growth[0, LOGDET]) + model.slack,
        model.delta,
        model.regularization,
        model.norm_bound,
        model.paper_constant,
    )
    return model.scale * math.sqrt(found**2 + model.estimate_weight * float(state.theta @ state.theta))


class Inexact(Selector):
    """A learner or a selector at work on inexact rows.

    Parameters
    ----------
    agent : UCRLVTRLin, ARLLin, ARLLinDim, ARLLinNorm, or ARLGen on a LinearLadder of linear classes
        With sharp radius, range weights, known rewards and a stationary kernel.
    dimension : int
        d.
    temperature : float
        c.
    """

    def __init__(self, agent: Agent, dimension: int, temperature: float) -> None:
        if not dataclasses.is_dataclass(agent) or isinstance(agent, type) or not hasattr(agent, "delta"):
            raise ParameterError("agent", got=repr(agent)[:80], expected="a learner or selector with a delta")
        self.agent: Any = agent
        self.dimension: int = dimension
        self.temperature: float = temperature

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {"inner": as_selector(self.agent).start(known), "seen": Seen.nothing(self.dimension)}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Let the selector decide, at a level that pays for the errors so far."""
        seen = self._require_seen(memory["seen"])
        paid = spent(self.temperature, float(seen.sums[ERRORS]))
        phase = as_selector(self._at(paid)).next_phase(known, memory["inner"])
        basis = self._basis(phase)
        learner = InexactLearner(learner=phase.learner, temperature=self.temperature, paid=paid, basis=basis)
        _ = learner.planning  # checks it
        return dataclasses.replace(phase, learner=learner, state=InexactState(phase.state, seen.copy()))

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Hand on what a phase taught."""
        memory["seen"] = outcome.state.seen
        learner: Any = phase.learner  # an InexactLearner: this selector hands out no other
        inner = dataclasses.replace(phase, learner=learner.learner, state=phase.state.inner)
        told = dataclasses.replace(outcome, state=outcome.state.inner)
        as_selector(self._at(learner.paid)).finish_phase(known, memory["inner"], inner, told)

    def _require_seen(self, seen: Seen) -> Seen:
        """Refuse rows of other sizes, as a file could hold."""
        d = self.dimension
        for name, array, shape in zip(seen._fields, seen, ((d, d), (d,), (3,)), strict=True):
            if array.shape != shape or not np.isfinite(array).all():
                raise ShapeError(name, got=array.shape, expected=f"finite numbers {shape}")
        return seen

    def _at(self, paid: float) -> Agent:
        """Return the agent at the level delta exp(-2 epsilon)."""
        if paid == 0.0:
            return self.agent  # type: ignore[no-any-return]  # declared as Any for its delta
        level = self.agent.delta * math.exp(-2.0 * paid)
        if level < LEAST_LEVEL:
            got = f"integrals whose errors leave the level {self.agent.delta:g} exp(-{2.0 * paid:.0f}) to decide at"
            raise OccamRLError(f"{got}; a selector needs {LEAST_LEVEL:g}: finer rules, more draws or fewer episodes")
        changed: Agent = dataclasses.replace(self.agent, delta=level)
        return changed

    def _basis(self, phase: Phase) -> Floats | None:
        """Return the basis of the coordinates in play, for a learner that has features of its own."""
        learner, ladder = phase.learner, getattr(self.agent, "ladder", None)
        if isinstance(learner, UCRLVTRLin) and learner.features.dimension < self.dimension:
            active: Any = phase.facts["active"]
            return np.eye(self.dimension)[:, active]
        if not isinstance(learner, Recorded) or not isinstance(ladder, LinearLadder):
            return None
        mine = learner.learner
        for rung in ladder.rungs:
            if isinstance(rung, LinearFamily) and isinstance(mine, UCRLVTRLin):
                same = rung.own_features.fingerprint == mine.features.fingerprint
                if same and rung.norm_bound == mine.norm_bound:
                    return rung.basis
        raise ParameterError("ladder", got=repr(ladder)[:80], expected="linear classes over the candidates' features")


def require_sharp(learner: Any) -> UCRLVTRLin:
    """Return a learner that M11 and M23 are about; refuse one of another kind, radius, weights or rewards."""
    if not isinstance(learner, UCRLVTRLin):
        expected = "UCRLVTRLin, or a selector that plays it (of ARLGen: on a LinearLadder of linear classes)"
        raise ParameterError("agent", got=type(learner).__name__, expected=expected)
    needed = {"radius": "sharp", "weights": "range", "kernel": "stationary", "rewards": "known"}
    for name, value in needed.items():
        if getattr(learner, name) != value:
            raise ParameterError(name, got=repr(getattr(learner, name)), expected=f'"{value}" on a box')
    return learner

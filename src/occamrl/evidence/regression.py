r"""Evidence for classes of dynamics whose parameters are fitted (B9).

Class m says :math:`y = s' - s = f_\theta(s, a) + \varepsilon` with :math:`\varepsilon \sim N(0,
\mathrm{diag}\,\sigma^2)` of constant, unknown scale.

**Prediction.** Every class predicts the next change by its fit to the past
(:mod:`occamrl.evidence.regression_fits`): Student around least squares, for three ridges. So do
rivals, and a *memory* that regresses the errors of the richest class on state, action, the last two
errors and the last action. :math:`Q_e` sums the log densities of predictor e, and

.. math:: Z(t_0, T) = \log \sum_e w_e\, e^{Q_e(T) - Q_e(t_0)}.

**The test.** What is fixed before an outcome may depend on everything before, so by Ville's
inequality :math:`Z(t_0, T) \le \ell_{t_0, T}(\theta^*, \sigma^*) + \log(1/\alpha)` for all T at
once with probability :math:`1 - \alpha`, whoever chose the actions. Class m is ruled out when its
largest likelihood :math:`\max_\theta -\frac{T - t_0}2\sum_j\big(\log\frac{2\pi\,RSS_j}{T - t_0} +
1\big)` is below :math:`Z - \log(1/\alpha)`.

**Restarts** at the steps :math:`t_0 = 0, 16, 32, 64, \dots`, the j-th at the level :math:`\alpha_j
= \delta/((j+1)(j+2))`, which add up to :math:`\delta`: what all classes have to learn first is then
not paid for. Half of each level is for the coordinates together, half for them one by one. Classes
are tested at times that grow by a twentieth.

**The search.** The likelihood of a grey box has to be searched for its maximum. It is climbed from
the last fit, and whenever the data have grown by half also from the best of a cloud. Before a class
is ruled out it is climbed from more of them, for the steps and coordinates that speak against it.
A narrow peak that nothing leads to may be missed: a class that is out is searched again as the data
grow, and a witness, parameters that explain them, brings it back.

**Scales** of states, actions and changes are those of the first steps (at least 16), which are not
scored. Changes get a normal dither of 1e-4 of their spread there, so that deterministic systems
have a law: misfits far below it are not seen. It is no tolerance.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

import numpy as np
from scipy.special import logsumexp

from occamrl.addresses import Address
from occamrl.errors import InvalidInput, NotAvailable, ParameterError
from occamrl.evidence.regression_fits import (
    RIDGES,
    Climb,
    Fit,
    Predictor,
    climb,
    finite,
    least_squares,
    least_squares_from,
    log_likelihood,
    slopes_of,
    sums_from,
)
from occamrl.evidence.simulator_worlds import SimulatedWorld, SimulatorWorlds
from occamrl.models.dynamics import (
    DynamicsClasses,
    GreyBox,
    Polynomial,
    Regressor,
    Rival,
    Scaling,
    Terms,
)
from occamrl.models.model import spread_points
from occamrl.protocols import (
    Floats,
    Ints,
    Judgement,
    Misfit,
    ParameterRange,
    Planner,
    Search,
    Simulator,
    System,
    Transition,
)

BURN_IN = 16  # steps that set scales, at least
_LATEST = 64  # steps after which scales are set even if a coordinate has not moved
DITHER = 1e-4  # of the spread of changes
_FIRST_RESTART = 16
_GROWTH = 1.05  # of the time between tests
_GROWN = 1.5  # of the data, after which boxes are searched anew
_FIRST_RIVAL = 32  # steps that rivals are fitted to first
_FORGET = 0.25  # of what is known of a rival's errors, kept when it is fitted again
_LARGEST_INPUT = 1e3  # in standard units
_ERRORS = 2  # that the memory has
_CLOUD = 64  # points of the box of a grey box
_STARTS = 8  # of them, that are climbed from
_CLIMB = 30  # steps of a climb
_STEPS = 3  # by which a fit follows new data
_WITNESSES = 5  # kept, beside the fit
_DRAWS = 3  # of parameters of each class, in worlds
_LARGEST_CHANGE = 3.0  # of those seen, to which predictions are cut
_MOST_FITTED = 12  # rivals that are remembered
_HALVINGS = 16  # of an interval that holds the end of a range


class Steps(NamedTuple):
    """N real steps in the user's units."""

    states: Floats  # [N, n + e], exogenous coordinates last
    actions: Floats  # [N, m]
    changes: Floats  # [N, n]
    begins: Floats  # [N] 1 where no step before it is known

    @property
    def size(self) -> int:
        """N."""
        return len(self.begins)

    def part(self, first: int, last: int | None = None) -> Steps:
        """Return some of the steps."""
        return Steps(*[column[first:last] for column in self])


class Scales(NamedTuple):
    """What the first steps have set; empty before."""

    center: Floats  # [d] of states and actions
    spread: Floats  # [d]
    change: Floats  # [n] of changes


class RegressionState(TypedDict):
    """What the evidence has learned."""

    steps: int
    history: list[list[float]]  # steps, and the evidence against each class by then
    reward_gap: float  # the sum over steps of the distance of the reward from the system's
    table: Floats  # [capacity, n + e + m + n + n + 1] Steps and their dithers; rows beyond: spare
    scales: Scales
    burned: int  # steps that set the scales; 0 before
    predictors: list[Predictor]  # of the classes, then of the memory
    memory: Floats  # [2 n + m] the last errors and the last action
    scores: Floats  # [E, n] sums of log densities, by predictor and ridge
    restarts: list[tuple[int, Floats]]  # scored steps, and the scores then
    points: list[Floats]  # of each grey box [W, p] shares of its box: the fit, then witnesses
    next_check: int
    explored: int  # scored steps when the boxes of grey boxes were last searched anew
    fitted: tuple[int, str]  # steps that rivals were fitted to, and a digest of these
    peak: Floats  # [M] the largest evidence against each class so far
    rejected: Ints  # [M] after how many steps; -1 if it is not
    searched: Search


@dataclass(kw_only=True, eq=False)
class RegressionEvidence:
    """Weighs classes of dynamics on real steps; see the module for the mathematics."""

    ladder: DynamicsClasses
    system: System
    delta: float
    planner: Planner | None = None  # for what policies are worth
    valued: bool = False  # whether the system has a reward and a start
    kind: str = "regression"

    # What is known beforehand ---------------------------------------------------------------------

    @property
    def n(self) -> int:
        """How many coordinates are predicted."""
        return len(self.ladder.state)

    @cached_property
    def _angles(self) -> Floats:
        """Which coordinates that are predicted are angles [n]."""
        return np.array([name in self.ladder.angles for name in self.ladder.state])

    @cached_property
    def _richest(self) -> int:
        """The last class that is no rival, from 0; -1 if there is none."""
        for m in range(len(self.ladder.classes) - 1, -1, -1):
            if not isinstance(self.ladder.classes[m], Rival):
                return m
        return -1

    @cached_property
    def _parts(self) -> list[tuple[int, int]]:
        """The rows of the scores that belong to each predictor, the memory last."""
        parts = []
        first = 0
        for kind in (*self.ladder.classes, None):
            rows = RIDGES.size if isinstance(kind, (Polynomial, Terms)) or kind is None else 1
            parts.append((first, first + rows))
            first += rows
        return parts

    @cached_property
    def _log_prior(self) -> Floats:
        """The log weights of the rows of the scores [E]."""
        weights = []
        for first, last in self._parts:
            weights += [1.0 / (len(self._parts) * (last - first))] * (last - first)
        logs: Floats = np.log(np.array(weights))
        return logs

    def begin(self) -> RegressionState:
        """Return the state before any data."""
        classes = len(self.ladder.names)
        points = []
        for kind in self.ladder.classes:
            sides = len(kind.box) if isinstance(kind, GreyBox) else 0
            points.append(np.full((1, sides), 0.5))
        return {
            "steps": 0,
            "history": [],
            "reward_gap": 0.0,
            "table": np.zeros((0, len(self.ladder.inputs) + 2 * self.n + 1)),
            "scales": Scales(np.zeros(0), np.zeros(0), np.zeros(0)),
            "burned": 0,
            "predictors": [],
            "memory": np.zeros(_ERRORS * self.n + len(self.ladder.action)),
            "scores": np.zeros((self._log_prior.size, self.n)),
            "restarts": [],
            "points": points,
            "next_check": 1,
            "explored": 0,
            "fitted": (0, ""),
            "peak": np.full(classes, -np.inf),
            "rejected": np.full(classes, -1),
            "searched": Search(0, 0, 0),
        }

    # Weighing -------------------------------------------------------------------------------------

    def add(self, state: RegressionState, data: Transition, /) -> None:
        """Weigh the classes on a real step."""
        self.add_steps(state, [data])

    def add_steps(self, state: RegressionState, data: Sequence[Transition]) -> None:
        """Weigh the classes on real steps, one after the other."""
        if not data:
            return
        # A function of the user's that fails leaves no trace: nothing is written before the end.
        draft: Any = dict(state)
        draft["history"] = list(state["history"])
        table = self._table_of(data, draft)
        done = 0
        while done < len(table):
            room = self._room(draft)
            part = table[done : done + room]
            if draft["burned"]:
                self._predict(draft, part, scored=True)
            self._append(draft, part)
            self._follow(draft)
            done += len(part)
        state.update(draft)

    def _table_of(self, data: Sequence[Transition], draft: RegressionState) -> Floats:
        """Return steps as rows of the table, and count how far rewards are from the system's."""
        rows = []
        gap = 0.0
        n = self.n
        for step in data:
            change = self.wrapped(step.next_state[:n] - step.state[:n])
            dither = step.address.generator("dither").normal(size=n)
            begins = np.array([float(step.step == 0)])
            rows.append(np.concatenate([step.state, step.action, change, dither, begins]))
            if step.reward is not None and self.valued:
                one = step.state[None], step.action[None], step.next_state[None]
                gap += abs(step.reward - float(self.system.reward(*one)[0]))
        draft["reward_gap"] += gap
        return np.array(rows)

    def wrapped(self, changes: Floats) -> Floats:
        """Return changes [..., n], those of angles the short way round."""
        turn = np.round(changes / (2 * math.pi)) * (2 * math.pi)
        short: Floats = changes - np.where(self._angles, turn, 0.0)
        return short

    def _room(self, draft: RegressionState) -> int:
        """Return how many steps come before anything but prediction happens."""
        if not draft["burned"]:
            return max(1, BURN_IN - draft["steps"])
        scored = draft["steps"] - draft["burned"]
        ends = [draft["next_check"] - scored, _next_restart(scored) - scored]
        ends.append(self._next_fit(draft) - draft["steps"])
        return max(1, min(ends))

    def _append(self, draft: RegressionState, rows: Floats) -> None:
        """Keep steps; rows of the table beyond them are spare."""
        size = draft["steps"]
        table = draft["table"]
        if len(table) < size + len(rows):
            capacity = max(64, 2 * len(table), size + len(rows))
            wider = np.zeros((capacity, table.shape[1]))
            wider[:size] = table[:size]
            table = wider
        table[size : size + len(rows)] = rows
        draft["table"] = table
        draft["steps"] = size + len(rows)

    def steps_of(self, rows: Floats) -> Steps:
        """Return rows of the table as steps, dithers not added."""
        ends = np.cumsum([self.system.dimension, len(self.ladder.action), self.n, self.n])
        states, actions, changes, _, begins = np.split(rows, ends, axis=1)
        return Steps(states, actions, changes, begins[:, 0])

    def _targets(self, rows: Floats, scales: Scales) -> Floats:
        """Return changes in standard units [N, n], the dither added."""
        changes = rows[:, -2 * self.n - 1 : -self.n - 1]
        dithers = rows[:, -self.n - 1 : -1]
        return changes / scales.change + DITHER * dithers

    def seen(self, state: RegressionState, scored: bool = False) -> Steps:
        """Return the steps so far, or those that were scored."""
        first = state["burned"] if scored else 0
        return self.steps_of(state["table"][first : state["steps"]])

    def targets(self, state: RegressionState, scored: bool = False) -> Floats:
        """Return their changes in standard units."""
        first = state["burned"] if scored else 0
        return self._targets(state["table"][first : state["steps"]], state["scales"])

    def _follow(self, draft: RegressionState) -> None:
        """Do what is due after a step: set scales, begin again, fit, test."""
        steps = draft["steps"]
        if not draft["burned"]:
            self._set_scales(draft)
            return
        scored = steps - draft["burned"]
        if steps == self._next_fit(draft):
            self._fit_rivals(draft)
        if scored == draft["next_check"]:
            anew = scored >= _GROWN * draft["explored"]
            if anew:
                draft["explored"] = scored
            self._fit_boxes(draft, anew)
            self._test(draft, anew)
            draft["next_check"] = max(scored + 1, math.ceil(_GROWTH * scored))
        if scored == _next_restart(scored - 1):
            draft["restarts"] = [*draft["restarts"], (scored, draft["scores"].copy())]

    def _set_scales(self, draft: RegressionState) -> None:
        """Set scales by the first steps, once every coordinate has moved; learn from them."""
        rows = draft["table"][: draft["steps"]]
        steps = self.steps_of(rows)
        change = steps.changes.std(axis=0)
        if len(rows) < BURN_IN or (not change.all() and len(rows) < _LATEST):
            return
        raw = np.concatenate([steps.states, steps.actions], axis=1)
        spread = raw.std(axis=0)
        size = np.where(spread > 0.0, spread, np.maximum(1.0, np.abs(raw).max(axis=0)))
        # What has not moved is taken to move as far as it is spread.
        change = np.where(change > 0.0, change, size[: self.n])
        draft["scales"] = Scales(raw.mean(axis=0), size, change)
        draft["burned"] = len(rows)
        memory = draft["memory"].size + 1 + len(self.ladder.inputs)
        predictors = []
        for kind, features in zip(self.ladder.classes, self._features(draft, steps), strict=True):
            ridges = RIDGES if isinstance(kind, (Polynomial, Terms)) else RIDGES[:1]
            predictors.append(Predictor.begin(features.shape[1], self.n, ridges))
        predictors.append(Predictor.begin(memory, self.n, RIDGES))
        draft["predictors"] = predictors
        self._fit_boxes(draft, anew=True)
        self._predict(draft, rows, scored=False)
        draft["restarts"] = [(0, draft["scores"].copy())]

    def _features(self, draft: RegressionState, steps: Steps) -> list[Floats]:
        """Return the features [N, k] of every class; grey boxes and rivals have none."""
        return [self.features(m, draft["scales"], steps) for m in range(len(self.ladder.classes))]

    def features(self, m: int, scales: Scales, steps: Steps) -> Floats:
        """Return the features [N, k] of class m; grey boxes and rivals have none."""
        kind = self.ladder.classes[m]
        if isinstance(kind, (GreyBox, Rival)):
            return np.zeros((steps.size, 0))
        scaling = Scaling(scales.center, scales.spread)
        with np.errstate(all="ignore"):
            return finite(kind.features(steps.states, steps.actions, self.ladder.inputs, scaling))

    def _offsets(self, draft: RegressionState, m: int, steps: Steps) -> Floats:
        """Return what class m predicts beside its features, in standard units [N, n]."""
        kind = self.ladder.classes[m]
        if isinstance(kind, GreyBox):
            return -self.residuals(m, draft["points"][m][0], draft["scales"], steps, None)
        if isinstance(kind, Rival) and draft["fitted"][0]:
            return finite(self.rival(draft, m, draft["fitted"])(steps))
        return np.zeros((steps.size, self.n))

    def residuals(
        self, m: int, share: Floats, scales: Scales, steps: Steps, targets: Floats | None
    ) -> Floats:
        """Return targets less what grey box m predicts at a share of its box [N, n]."""
        kind = self.ladder.classes[m]
        assert isinstance(kind, GreyBox)  # noqa: S101  # asked for its parameters
        values = values_of(kind, share)
        following = kind.next_states(steps.states, steps.actions, values, self.n)
        change = self.wrapped(finite(following) - steps.states[:, : self.n]) / scales.change
        return finite((0.0 if targets is None else targets) - change)

    def _predict(self, draft: RegressionState, rows: Floats, scored: bool) -> None:
        """Let every predictor predict changes, one after the other, and learn from them."""
        steps = self.steps_of(rows)
        targets = self._targets(rows, draft["scales"])
        features = self._features(draft, steps)
        offsets = []
        for m in range(len(self.ladder.classes)):
            offsets.append(self._offsets(draft, m, steps))
        scales = draft["scales"]
        inputs = self.standard(scales, steps)
        predictors = list(draft["predictors"])
        memory = draft["memory"].copy()
        densities = np.zeros((len(rows), *draft["scores"].shape))
        for row in range(len(rows)):
            if steps.begins[row]:
                memory[:] = 0.0
            base = np.zeros(self.n)
            for m, (first, last) in enumerate(self._parts[:-1]):
                density, location, predictors[m] = predictors[m].step(
                    features[m][row], offsets[m][row], targets[row]
                )
                densities[row, first:last] = density
                if m == self._richest:
                    base = location[len(location) // 2]
            first, last = self._parts[-1]
            phi = np.concatenate([[1.0], inputs[row], memory])
            density, _, predictors[-1] = predictors[-1].step(phi, base, targets[row])
            densities[row, first:last] = density
            error = np.clip(targets[row] - base, -_LARGEST_INPUT, _LARGEST_INPUT)
            action = inputs[row, self.system.dimension :]
            memory = np.concatenate([error, memory[: (_ERRORS - 1) * self.n], action])
        draft["predictors"] = predictors
        draft["memory"] = memory
        if scored:
            draft["scores"] = draft["scores"] + densities.sum(axis=0)

    def standard(self, scales: Scales, steps: Steps) -> Floats:
        """Return states and actions in standard units [N, d]."""
        inputs = Scaling(scales.center, scales.spread).of(steps.states, steps.actions)
        return np.clip(inputs, -_LARGEST_INPUT, _LARGEST_INPUT)

    # Rivals ---------------------------------------------------------------------------------------

    def _next_fit(self, draft: RegressionState) -> int:
        """Return after how many steps rivals are fitted next."""
        return max(_FIRST_RIVAL, draft["burned"] + 1, 2 * draft["fitted"][0])

    def _fit_rivals(self, draft: RegressionState) -> None:
        """Fit the rivals to all steps; what is known of their errors is partly forgotten."""
        draft["fitted"] = (draft["steps"], digest_of(draft["table"][: draft["steps"]]))
        predictors = list(draft["predictors"])
        for m, kind in enumerate(self.ladder.classes):
            if isinstance(kind, Rival):
                self.rival(draft, m, draft["fitted"])
                before = predictors[m]
                count = max(1.0, _FORGET * before.freedom)
                squares = before.squares[0] * count / before.freedom
                predictors[m] = before.rescaled(squares, count)
        draft["predictors"] = predictors

    def rival(
        self, state: RegressionState, m: int, fitted: tuple[int, str]
    ) -> Callable[[Steps], Floats]:
        """Return what a rival that was fitted to some steps predicts, in standard units."""
        size, digest = fitted
        scales = state["scales"]
        if (m, digest) not in self.ladder.fitted:
            while len(self.ladder.fitted) >= _MOST_FITTED:
                self.ladder.fitted.pop(next(iter(self.ladder.fitted)))
            self.ladder.fitted[m, digest] = self._fit_rival(state, m, size)
        regressor = self.ladder.fitted[m, digest]

        def predict(steps: Steps) -> Floats:
            predicted = np.asarray(regressor.predict(self.standard(scales, steps)), float)
            if predicted.size != steps.size * self.n:
                got = f"{list(predicted.shape)} for {steps.size} rows"
                name = self.ladder.names[m]
                raise ParameterError(name, got=got, expected=f"predictions [N, {self.n}]")
            return predicted.reshape(steps.size, self.n)

        return predict

    def _fit_rival(self, state: RegressionState, m: int, size: int) -> Regressor:
        """Return a rival fitted to the first steps; what it raises names it."""
        kind = self.ladder.classes[m]
        assert isinstance(kind, Rival)  # noqa: S101  # asked for a rival
        rows = state["table"][:size]
        targets = self._targets(rows, state["scales"])
        try:
            regressor = kind.factory()
            inputs = self.standard(state["scales"], self.steps_of(rows))
            regressor.fit(inputs, targets[:, 0] if self.n == 1 else targets)
        except InvalidInput:
            raise
        except Exception as error:  # of someone else's regressor, which may raise anything
            got = f"{type(error).__name__}: {error}"
            expected = "fit(inputs [N, d], targets [N, n]) without error"
            raise ParameterError(self.ladder.names[m], got=got, expected=expected) from error
        return regressor

    # Grey boxes -----------------------------------------------------------------------------------

    def _fit_boxes(self, draft: RegressionState, anew: bool) -> None:
        """Let the fits of grey boxes follow the data, or search for them anew in the cloud."""
        points = list(draft["points"])
        predictors = list(draft["predictors"])
        for m, kind in enumerate(self.ladder.classes):
            if not isinstance(kind, GreyBox) or (draft["rejected"][m] >= 0 and not anew):
                continue
            unexplained = self.unexplained_by(draft, m)
            best = climb(unexplained, points[m][0], _STEPS)
            if anew:
                for start in self._cloud(m, unexplained, draft)[:2]:
                    other = climb(unexplained, start, _CLIMB)
                    if other.loss < best.loss:
                        best = other
            points[m] = np.concatenate([best.share[None], points[m][1:]])
            errors = unexplained(best.share)
            squares = (errors * errors).sum(axis=0)
            predictors[m] = predictors[m].rescaled(squares, max(1.0, len(errors) - best.share.size))
        draft["points"] = points
        draft["predictors"] = predictors

    def unexplained_by(
        self, state: RegressionState, m: int, first: int = 0, column: int | None = None
    ) -> Callable[[Floats], Floats]:
        """Return what grey box m leaves of all steps from one on, as a function of its share."""
        steps = self.seen(state).part(first)
        targets = self.targets(state)[first:]
        scales = state["scales"]

        def unexplained(share: Floats) -> Floats:
            residuals = self.residuals(m, share, scales, steps, targets)
            return residuals if column is None else residuals[:, column : column + 1]

        return unexplained

    def _cloud(
        self, m: int, unexplained: Callable[[Floats], Floats], draft: RegressionState
    ) -> list[Floats]:
        """Return the best points of a cloud in the box of class m."""
        shares = cloud(draft["points"][m].shape[1])
        squares = np.array([(unexplained(share) ** 2).sum(axis=0) for share in shares])
        losses = np.log(np.maximum(squares, 1e-280)).sum(axis=1)
        searched = draft["searched"]
        draft["searched"] = searched._replace(
            points=searched.points + len(shares), local_searches=searched.local_searches + _STARTS
        )
        return [shares[i] for i in np.argsort(losses, kind="stable")[:_STARTS]]

    # The test -------------------------------------------------------------------------------------

    def _mixtures(self, state: RegressionState) -> tuple[Floats, Floats]:
        """Return Z since each restart: of all coordinates [R], and of each [R, n]."""
        before = np.stack([scores for _, scores in state["restarts"]])
        gained = state["scores"] - before  # [R, E, n]
        single = logsumexp(gained + self._log_prior[:, None], axis=1)
        joint = logsumexp(gained.sum(axis=2) + self._log_prior, axis=1)
        # Half of the weight is for one predictor of all, half for one of each coordinate.
        return np.logaddexp(joint, single.sum(axis=1)) - math.log(2.0), single

    def _allowance(self, restarts: int) -> Floats:
        """Return by what the levels of the tests are less than delta, in nats [R, 1 + n]."""
        j = np.arange(restarts)
        shares = np.ones(1 + self.n)
        if self.n > 1:
            shares[0] = 2.0
            shares[1:] = 2.0 * self.n
        return np.log((j + 1.0) * (j + 2.0))[:, None] + np.log(shares)

    def _likelihoods(self, state: RegressionState, m: int) -> Floats:
        """Return log-likelihoods of the scored steps since each restart [W, R, n].

        They are the largest ones of a library, those at the points of a grey box.
        """
        steps = self.seen(state, scored=True)
        targets = self.targets(state, scored=True)
        starts = np.array([first for first, _ in state["restarts"]])
        counts = steps.size - starts
        if isinstance(self.ladder.classes[m], GreyBox):
            squares = []
            for share in state["points"][m]:
                unexplained = self.residuals(m, share, state["scales"], steps, targets)
                squares.append(sums_from(unexplained * unexplained, starts))
            return log_likelihood(np.array(squares), counts)
        phi = self.features(m, state["scales"], steps)
        return log_likelihood(least_squares_from(phi, targets, starts)[None], counts)

    def _excess(self, state: RegressionState, m: int) -> Floats:
        """Return the evidence against class m by every test, less its allowance [R, 1 + n]."""
        joint, single = self._mixtures(state)
        likelihoods = self._likelihoods(state, m)
        best_joint = likelihoods.sum(axis=2).max(axis=0)
        best_single = likelihoods.max(axis=0)
        evidence = np.column_stack([joint - best_joint, single - best_single])
        return evidence - self._allowance(len(evidence))

    def _test(self, draft: RegressionState, anew: bool) -> None:
        """Test every class that is left, and take note of what is ruled out.

        A grey box that is ruled out is tested again, ``anew``: a search may have missed what
        explains the data, and one witness is enough to have it back.
        """
        limit = math.log(1.0 / self.delta)
        peak = draft["peak"].copy()
        rejected = draft["rejected"].copy()
        for m, kind in enumerate(self.ladder.classes):
            out = rejected[m] >= 0
            if isinstance(kind, Rival) or (out and not (anew and isinstance(kind, GreyBox))):
                continue
            excess = self._excess(draft, m)
            if isinstance(kind, GreyBox):
                excess = self._searched_excess(draft, m, excess, limit)
            evidence = float(excess.max())
            if evidence > limit and not out:
                rejected[m] = draft["steps"]
            elif evidence <= limit and out:
                rejected[m] = -1
                peak[m] = evidence  # what was found before was not the largest likelihood
            peak[m] = max(peak[m], evidence)
        draft["peak"] = peak
        changed = bool((rejected != draft["rejected"]).any())
        draft["rejected"] = rejected
        steps = draft["steps"]
        if changed or not draft["history"] or steps >= 1.02 * draft["history"][-1][0]:
            draft["history"].append([float(steps), *np.maximum(peak, -1e6).tolist()])

    def _searched_excess(
        self, draft: RegressionState, m: int, excess: Floats, limit: float
    ) -> Floats:
        """Search for parameters that explain what a grey box's fit does not, test by test."""
        tried: set[tuple[int, int]] = set()
        while excess.max() > limit:
            r, test = np.unravel_index(int(excess.argmax()), excess.shape)
            if (int(r), int(test)) in tried:
                break
            tried.add((int(r), int(test)))
            first = draft["burned"] + draft["restarts"][r][0]
            unexplained = self.unexplained_by(draft, m, first, None if test == 0 else int(test) - 1)
            starts = [*draft["points"][m], *self._cloud(m, unexplained, draft)]
            best = lowest(climb(unexplained, start, _CLIMB) for start in starts)[0]
            points = list(draft["points"])
            witnesses = points[m][1:][-(_WITNESSES - 1) :]
            points[m] = np.concatenate([points[m][:1], witnesses, best.share[None]])
            draft["points"] = points
            excess = self._excess(draft, m)
        return excess

    # What it says ---------------------------------------------------------------------------------

    def judge(self, state: RegressionState) -> Judgement:
        """Return what was ruled out at the last test."""
        alive = state["rejected"] < 0
        dates = [None if when < 0 else int(when) for when in state["rejected"]]
        mixture = 0.0
        if state["restarts"]:
            joint, _ = self._mixtures(state)
            mixture = float(joint[0])
        return Judgement(
            against=np.maximum(state["peak"], -1e6),
            alive=tuple(int(a) for a in alive),
            rejected_after=tuple(dates),
            log_mixture=mixture,
            search=state["searched"] if state["searched"].points else None,
        )

    def fit_of(self, state: RegressionState, m: int) -> Fit:
        """Return the least-squares fit of a library to all steps."""
        phi = self.features(m, state["scales"], self.seen(state))
        return least_squares(phi, self.targets(state))

    def slack(self, state: RegressionState, largest: Floats) -> tuple[int, float]:
        """Return the restart whose region is narrowest, and by what it lies below the maximum.

        ``largest`` are the largest joint log-likelihoods since each restart [R].
        """
        joint, _ = self._mixtures(state)
        allowance = self._allowance(joint.size)[:, 0] + math.log(1.0 / self.delta)
        room = np.maximum(largest - joint + allowance, 0.0)
        size = state["steps"] - state["burned"]
        counts = np.array([size - first for first, _ in state["restarts"]], float)
        narrowest = int(np.argmin(np.where(counts > 0, room / np.maximum(counts, 1), np.inf)))
        return narrowest, float(room[narrowest])

    def parameters(self, state: RegressionState, m: int) -> dict[str, ParameterRange]:
        """Return the parameters of grey boxes and of terms, with ranges if the class is right."""
        kind = self.ladder.classes[m]
        if not state["burned"] or state["steps"] == state["burned"]:
            return {}
        if isinstance(kind, Terms):
            return self._weights(state, m, kind)
        if isinstance(kind, GreyBox) and kind.box:
            return self._profiles(state, m, kind)
        return {}

    def _weights(self, state: RegressionState, m: int, kind: Terms) -> dict[str, ParameterRange]:
        """Return the weights of terms, by coordinate and name."""
        largest = self._likelihoods(state, m)[0].sum(axis=1)
        restart, room = self.slack(state, largest)
        first = state["restarts"][restart][0]
        steps = self.seen(state, scored=True).part(first)
        targets = self.targets(state, scored=True)[first:]
        fit = least_squares(self.features(m, state["scales"], steps), targets)
        change = state["scales"].change
        ranges = {}
        for j, coordinate in enumerate(self.ladder.state):
            # RSS(w) = RSS + (w - w^)^2 / [A^-1]_kk, the other weights at their best.
            wider = math.expm1(min(2.0 * room / max(1, steps.size), 50.0))
            for k, name in enumerate(kind.names):
                value = float(fit.weights[k, j] * change[j])
                squares = fit.squares[j] * wider * fit.inverse[k, k]
                half = float(math.sqrt(squares) * change[j])
                ranges[f"{coordinate}: {name}"] = ParameterRange(
                    value, ((value - half, value + half),)
                )
        return ranges

    def _profiles(self, state: RegressionState, m: int, kind: GreyBox) -> dict[str, ParameterRange]:
        """Return ranges by profile likelihoods, over all modes that the cloud leads to."""
        largest = self._likelihoods(state, m).sum(axis=2).max(axis=0)
        restart, _ = self.slack(state, largest)
        first = state["burned"] + state["restarts"][restart][0]
        unexplained = self.unexplained_by(state, m, first)
        starts = [*state["points"][m], *self._cloud(m, unexplained, dict(state))]  # type: ignore[arg-type]  # a copy, whose count of points is thrown away
        modes = lowest(climb(unexplained, start, _CLIMB) for start in starts)
        best = modes[0]
        size = state["steps"] - first
        top = -best.loss - 0.5 * size * self.n * (math.log(2 * math.pi / max(size, 1)) + 1.0)
        largest[restart] = max(largest[restart], top)
        joint, _ = self._mixtures(state)
        allowance = self._allowance(joint.size)[restart, 0] + math.log(1.0 / self.delta)
        limit = best.loss + max(float(largest[restart] - joint[restart] + allowance), 0.0)
        inside = [best, *(mode for mode in modes[1:] if mode.loss <= limit)]
        fit = climb(self.unexplained_by(state, m), best.share, _CLIMB)
        ranges = {}
        for p, (name, (low, high)) in enumerate(kind.box.items()):
            shares = [mode.share[p] for mode in inside]
            least = self._end(unexplained, inside[int(np.argmin(shares))], p, limit, 0.0)
            most = self._end(unexplained, inside[int(np.argmax(shares))], p, limit, 1.0)
            value = low + (high - low) * float(fit.share[p])
            ends = min(value, low + (high - low) * least), max(value, low + (high - low) * most)
            ranges[name] = ParameterRange(value, (ends,))
        return ranges

    def _end(
        self,
        unexplained: Callable[[Floats], Floats],
        mode: Climb,
        p: int,
        limit: float,
        toward: float,
    ) -> float:
        """Return how far parameter p goes while others, at their best, stay within the limit."""

        def profile(at: float, start: Floats) -> Climb:
            moved = start.copy()
            moved[p] = at
            return climb(unexplained, moved, _CLIMB, fixed=p)

        if profile(toward, mode.share).loss <= limit:
            return toward
        inside = float(mode.share[p])
        outside = toward
        share = mode.share
        for _ in range(_HALVINGS):
            middle = 0.5 * (inside + outside)
            trial = profile(middle, share)
            if trial.loss <= limit:
                inside = middle
                share = trial.share
            else:
                outside = middle
        return outside

    def flat(self, state: RegressionState, m: int) -> list[tuple[tuple[str, ...], str]]:
        """Return groups of parameters of a grey box that are not identified one by one.

        With each comes what is: a ratio or a product, where all parameters are positive; else "".
        Along its direction the region is wider than half a unit: of logs, or of the box.
        """
        kind = self.ladder.classes[m]
        if not isinstance(kind, GreyBox) or len(kind.box) < 2 or not state["burned"]:
            return []
        values = values_of(kind, state["points"][m][0])
        box = np.array(list(kind.box.values()))
        scale = values
        if (values <= 0.0).any() or (box < 0.0).any():
            scale = box[:, 1] - box[:, 0]
        unexplained = self.unexplained_by(state, m)
        share = state["points"][m][0]
        errors = unexplained(share)
        slopes = (
            slopes_of(unexplained, share, errors) * (scale / (box[:, 1] - box[:, 0]))[:, None, None]
        )
        precision = len(errors) / np.maximum((errors * errors).sum(axis=0), 1e-280)
        curvature = np.einsum("ptn,qtn,n->pq", slopes, slopes, precision)
        eigenvalues, vectors = np.linalg.eigh(curvature)
        largest = self._likelihoods(state, m).sum(axis=2).max(axis=0)
        _, room = self.slack(state, largest)
        positive = bool((values > 0.0).all() and (box >= 0.0).all())
        groups = []
        names = list(kind.box)
        for eigenvalue, vector in zip(eigenvalues, vectors.T, strict=True):
            half = math.sqrt(2.0 * room / max(float(eigenvalue), 1e-30))
            joined = np.flatnonzero(np.abs(vector) > 0.2)
            if half > 0.5 and joined.size:
                chosen = tuple(names[p] for p in joined)
                groups.append((chosen, _identified(chosen, vector[joined]) if positive else ""))
        return groups

    def describe(self, state: RegressionState, m: int) -> str:
        """Return a grey box with its fitted parameters; nothing for others."""
        kind = self.ladder.classes[m]
        if not isinstance(kind, GreyBox):
            return ""
        values = values_of(kind, state["points"][m][0])
        fitted = [f"{name}={value:.4g}" for name, value in zip(kind.box, values, strict=True)]
        return f"{self.ladder.names[m]}({', '.join(fitted)})"

    def misfits(self, state: RegressionState, m: int) -> list[Misfit]:
        """Return nothing: hints from residuals are in the answer."""
        return []

    # Acting ---------------------------------------------------------------------------------------

    def predictor(
        self, state: RegressionState, m: int, draw: np.random.Generator | None = None
    ) -> Callable[[Steps], Floats]:
        """Return what class m, fitted to all steps, predicts in standard units.

        With ``draw`` its parameters are drawn around the fit, as a normal law would have them.
        """
        kind = self.ladder.classes[m]
        scales = state["scales"]
        if isinstance(kind, Rival):
            if not state["fitted"][0]:
                return lambda steps: np.zeros((steps.size, self.n))
            return self.rival(state, m, state["fitted"])
        if isinstance(kind, GreyBox):
            share = state["points"][m][0]
            if draw is not None and share.size:
                share = self._drawn_share(state, m, share, draw)
            return lambda steps: -self.residuals(m, share, scales, steps, None)
        fitted = state["predictors"][m]
        ridge = self._ridge(state, m)
        weights = fitted.mean[ridge]
        if draw is not None:
            noise = draw.normal(size=weights.shape) * self.noise(state, m)
            weights = weights + fitted.root[ridge] @ noise
        return lambda steps: self.features(m, scales, steps) @ weights

    def _ridge(self, state: RegressionState, m: int) -> int:
        """Return the ridge with which class m has predicted best."""
        first, last = self._parts[m]
        return int(state["scores"][first:last].sum(axis=1).argmax())

    def _drawn_share(
        self, state: RegressionState, m: int, share: Floats, draw: np.random.Generator
    ) -> Floats:
        """Return a share of the box of a grey box, drawn around its fit."""
        curvature = climb(self.unexplained_by(state, m), share, 1).curvature
        values, vectors = np.linalg.eigh(curvature)
        # What is not identified is drawn within half of the box.
        width = 1.0 / np.sqrt(np.maximum(values, 4.0))
        drawn: Floats = share + vectors @ (width * draw.normal(size=share.size))
        return np.clip(drawn, 0.0, 1.0)

    def noise(self, state: RegressionState, m: int) -> Floats:
        """Return the scale of the noise of class m, in standard units [n]."""
        predictor = state["predictors"][m]
        squares = predictor.squares[self._ridge(state, m)]
        return np.asarray(np.sqrt(squares / predictor.freedom))

    def simulator(
        self, state: RegressionState, m: int, draw: np.random.Generator | None = None
    ) -> Simulator:
        """Return class m as a simulator: its fit or a draw, noise, and forecasts of inputs.

        Changes are cut at three times the largest that were seen.
        """
        if not state["burned"]:
            # Nothing is known: what is expected is that all stays as it is.
            return lambda states, actions, rng: states.copy()
        predict = self.predictor(state, m, draw)
        scale = state["scales"].change
        sigma = self.noise(state, m) * scale
        seen = self.seen(state)
        largest = _LARGEST_CHANGE * np.abs(seen.changes).max(axis=0) + 1e-12
        forecast = self.ladder.forecast
        n = self.n

        def simulate(states: Floats, actions: Floats, rng: np.random.Generator) -> Floats:
            steps = Steps(states, actions, np.zeros((len(states), n)), np.zeros(len(states)))
            change = np.clip(predict(steps) * scale, -largest, largest)
            change = change + sigma * rng.normal(size=change.shape)
            return np.concatenate([states[:, :n] + change, forecast(states[:, n:])], axis=1)

        return simulate

    def smallest_class(self, state: RegressionState, threshold: float) -> int:
        """Return the smallest class, from 0, against which there is less evidence than that."""
        for m in range(len(self.ladder.names)):
            if state["peak"][m] <= threshold:
                return m
        return self._richest if self._richest >= 0 else 0

    def worlds(self, state: RegressionState) -> SimulatorWorlds:
        """Return the fits of the classes that are left, and some draws of their parameters."""
        if not self.valued or self.planner is None:
            raise NotAvailable(
                "no worth and no policy: there is no task; "
                "give one, dynamics.system(reward=..., horizon=..., actions=..., start=...)"
            )
        alive = np.flatnonzero(state["rejected"] < 0).tolist()
        if not alive:
            alive = [self.smallest_class(state, math.inf)]
        heaviest = {}
        for m, name in enumerate(self.ladder.names):
            heaviest[name] = SimulatedWorld(name, 0.0, self.simulator(state, m))
        share = 1.0 / (len(alive) * (1 + _DRAWS))
        possible = []
        for m in alive:
            possible.append(heaviest[self.ladder.names[m]]._replace(weight=share))
            if isinstance(self.ladder.classes[m], Rival) or not state["burned"]:
                continue
            for number in range(_DRAWS):
                draw = Address(number, m).generator("world")
                label = f"{self.ladder.names[m]}, draw {number + 1}"
                simulate = self.simulator(state, m, draw)
                possible.append(SimulatedWorld(label, share, simulate))
        return SimulatorWorlds(self.system, self.planner, possible, heaviest)


def digest_of(rows: Floats) -> str:
    """Return a name of some rows of the table."""
    return hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=16).hexdigest()


def values_of(kind: GreyBox, share: Floats) -> Floats:
    """Return the values of the parameters at a share of their box [p]."""
    box = np.array(list(kind.box.values())).reshape(-1, 2)
    values: Floats = box[:, 0] + share * (box[:, 1] - box[:, 0])
    return values


def cloud(sides: int) -> Floats:
    """Return a fixed cloud in the unit box [64, p].

    Coordinates take turns: twice evenly, once towards either edge.
    """
    spread = np.array(spread_points(sides, _CLOUD)).reshape(_CLOUD, sides)
    edge = 10.0 ** (-3.0 * spread)
    turn = (np.arange(_CLOUD)[:, None] // 2 ** np.arange(sides)) % 4
    shares: Floats = np.select([turn < 2, turn == 2], [spread, edge], 1.0 - edge)
    return shares


def _identified(names: tuple[str, ...], direction: Floats) -> str:
    """Return which combination of positive parameters does not change along a direction of logs."""
    size = np.abs(direction)
    if size.min() < 0.8 * size.max():
        return ""
    if (direction > 0.0).all() or (direction < 0.0).all():
        return "/".join(names) if len(names) == 2 else "their ratios"
    return "*".join(names) if len(names) == 2 else ""


def lowest(climbs: Iterable[Climb]) -> list[Climb]:
    """Return where climbs came to, the best first."""
    return sorted(climbs, key=lambda climbed: climbed.loss)


def _next_restart(scored: int) -> int:
    """Return the first restart after that many scored steps."""
    restart = _FIRST_RESTART
    while restart <= scored:
        restart *= 2
    return restart

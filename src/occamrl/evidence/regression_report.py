r"""How well fitted dynamics predict later data, and what their residuals hint at.

**Later errors.** Classes are fitted to the first two thirds of the steps and predict the rest: one
step ahead, and 20 steps ahead with the actions and exogenous inputs that came.

**Hints** are no tests. Errors of measurement make successive residuals alternate (a lag correlation
of about -1/2), a slow disturbance makes them alike, a delay makes them depend on the last action,
and a limit shows as a coordinate that stays exactly at its extreme. A grey box that is taken for
the change of the state, and then errs much less, seems to return that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from occamrl.evidence.regression import RegressionEvidence, RegressionState, Steps, digest_of
from occamrl.evidence.regression_fits import climb
from occamrl.models.dynamics import GreyBox, Rival
from occamrl.protocols import Floats, Ints

FITTED = 2.0 / 3.0  # of the steps
AHEAD = 20  # steps
_LEAST = 30  # steps to predict
_MOST_STARTS = 200  # of predictions 20 steps ahead
_BLOCKS = 10  # by which differences of errors are compared
_CLIMB = 30
_SURE = 4.0  # standard errors of a correlation without any
_ALTERNATING = -0.25
_ALIKE = 0.3
_DELAYED = 0.15  # of the variance of residuals
_STUCK = 0.01  # of the steps
_CHANGE = 0.01  # of the squares of residuals, left where what is returned is taken for a change
_TIMES = 8  # that a limit is hit at least


class LaterErrors(NamedTuple):
    """Root mean square errors of a class on later data, in the user's units."""

    name: str
    one: Floats  # [n] one step ahead
    far: Floats  # [n] ``ahead`` steps ahead; infinite where predictions run away
    gain: float  # by which its squared errors are less than those of the class chosen; a share
    surely: bool  # whether that is more than two standard errors from none


class Quality(NamedTuple):
    """How well classes predict later data."""

    fitted: int  # steps
    predicted: int
    ahead: int  # steps; 0: no stretch is as long as two
    classes: list[LaterErrors]


class Hint(NamedTuple):
    """What residuals look like, of which coordinate."""

    of: Literal["sensor noise", "slow disturbance", "delay", "limit", "change"]
    coordinate: str  # of "change" the name of the class
    size: float  # a correlation, a share of variance, or a share of the steps
    at: float = 0.0  # the limit


def quality_of(evidence: RegressionEvidence, state: RegressionState, chosen: int) -> Quality | None:
    """Return errors on the last third of the steps; None where there are too few."""
    cut = int(FITTED * state["steps"])
    if not state["burned"] or cut <= state["burned"] or state["steps"] - cut < _LEAST:
        return None
    draft: RegressionState = {**state, "steps": cut}
    later = evidence.seen(state).part(cut)
    later.begins[0] = 1.0
    starts, ahead = _stretches(later)
    predictions = []
    for m in range(len(evidence.ladder.names)):
        predictions.append(_fitted_before(evidence, draft, m))
    change = state["scales"].change
    squares = []
    for predict in predictions:
        error = evidence.wrapped(predict(later) * change - later.changes)
        squares.append((error / change) ** 2)
    rows = []
    for m, name in enumerate(evidence.ladder.names):
        one = np.sqrt(squares[m].mean(axis=0)) * change
        far = _far_errors(evidence, predictions[m], change, later, starts, ahead)
        difference = (squares[chosen] - squares[m]).mean(axis=1)
        blocks = np.array([part.mean() for part in np.array_split(difference, _BLOCKS)])
        standard_error = float(blocks.std(ddof=1) / np.sqrt(_BLOCKS))
        mean = float(blocks.mean())
        gain = mean / max(float(squares[chosen].mean()), 1e-300)
        rows.append(LaterErrors(name, one, far, gain, abs(mean) > 2.0 * standard_error))
    return Quality(cut, later.size, ahead, rows)


def _fitted_before(
    evidence: RegressionEvidence, draft: RegressionState, m: int
) -> Callable[[Steps], Floats]:
    """Return what class m predicts, fitted to the steps of a draft."""
    kind = evidence.ladder.classes[m]
    scales = draft["scales"]
    if isinstance(kind, Rival):
        digest = digest_of(draft["table"][: draft["steps"]])
        return evidence.rival(draft, m, (draft["steps"], digest))
    if isinstance(kind, GreyBox):
        share = climb(evidence.unexplained_by(draft, m), draft["points"][m][0], _CLIMB).share
        return lambda steps: -evidence.residuals(m, share, scales, steps, None)
    weights = evidence.fit_of(draft, m).weights
    return lambda steps: evidence.features(m, scales, steps) @ weights


def _stretches(steps: Steps) -> tuple[Ints, int]:
    """Return where stretches of steps without a beginning inside start, and their length."""
    begins = np.flatnonzero(steps.begins)
    ends = np.append(begins[1:], steps.size)
    longest = int((ends - begins).max())
    ahead = min(AHEAD, longest)
    if ahead < 2:
        return np.zeros(0, int), 0
    starts: list[int] = []
    for begin, end in zip(begins, ends, strict=True):
        starts.extend(range(begin, end - ahead + 1))
    every = max(1, len(starts) // _MOST_STARTS)
    return np.array(starts[::every]), ahead


def _far_errors(
    evidence: RegressionEvidence,
    predict: Callable[[Steps], Floats],
    change: Floats,
    steps: Steps,
    starts: Ints,
    ahead: int,
) -> Floats:
    """Return errors [n] of predictions that go on from predictions."""
    n = evidence.n
    if not ahead:
        return np.full(n, np.nan)
    predicted = steps.states[starts]
    actual = steps.states[starts, :n]
    for step in range(ahead):
        rows = starts + step
        known = np.concatenate([predicted[:, :n], steps.states[rows, n:]], axis=1)
        part = Steps(known, steps.actions[rows], steps.changes[rows], steps.begins[rows])
        with np.errstate(all="ignore"):
            following = known[:, :n] + predict(part) * change
        predicted = np.clip(np.nan_to_num(following, nan=1e150), -1e150, 1e150)
        actual = steps.states[rows, :n] + steps.changes[rows]
    with np.errstate(over="ignore"):
        error = evidence.wrapped(predicted - actual)
        squares: Floats = np.sqrt((error**2).mean(axis=0))
    return np.where(squares > 1e12 * change, np.inf, squares)


def hints_of(evidence: RegressionEvidence, state: RegressionState, m: int) -> list[Hint]:
    """Return what the residuals of class m look like."""
    if not state["burned"]:
        return []
    steps = evidence.seen(state)
    residuals = evidence.targets(state) - evidence.predictor(state, m)(steps)
    if isinstance(evidence.ladder.classes[m], GreyBox):
        # What it returned is y less residuals, plus the state.
        taken_for_change = residuals - steps.states[:, : evidence.n] / state["scales"].change
        share = float((taken_for_change**2).sum() / max((residuals**2).sum(), 1e-300))
        if share < _CHANGE:
            return [Hint("change", evidence.ladder.names[m], share)]
    inside = np.flatnonzero(steps.begins == 0.0)
    inside = inside[inside > 0]
    if inside.size < _LEAST:
        return []
    hints = []
    least = _SURE / np.sqrt(inside.size)
    actions = np.column_stack([np.ones(inside.size), steps.actions[inside - 1]])
    for j, name in enumerate(evidence.ladder.state):
        now = residuals[inside, j]
        before = residuals[inside - 1, j]
        spread = float(now.std() * before.std())
        lag = 0.0
        if spread > 0.0:
            lag = float(((now - now.mean()) * (before - before.mean())).mean()) / spread
        delayed = 0.0
        if now.std() > 0.0:
            unexplained = now - actions @ np.linalg.lstsq(actions, now, rcond=None)[0]
            delayed = 1.0 - float(unexplained.var() / now.var())
        if lag < min(_ALTERNATING, -least):
            hints.append(Hint("sensor noise", name, lag))
        if delayed > max(_DELAYED, least**2):
            hints.append(Hint("delay", name, delayed))
        elif lag > max(_ALIKE, least):
            hints.append(Hint("slow disturbance", name, lag))
        values = steps.states[:, j]
        places, times = np.unique(values, return_counts=True)
        for end in (0, -1):
            # Of rounded numbers those inside come again, too.
            often = times[end] > 2 * np.max(times[1:-1], initial=0)
            share = float(times[end]) / steps.size
            if places.size > 2 and often and times[end] >= _TIMES and share > _STUCK:
                hints.append(Hint("limit", name, share, float(places[end])))
    return hints

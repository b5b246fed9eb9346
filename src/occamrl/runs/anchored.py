r"""Learning on the box itself: UCRL-VTR-LIN with values at anchor states, acting and regressing where the system is.

The truth is :math:`P^* = \sum_j \theta^*_j P_j` on a box. Values are kept at the vertices of a grid, the anchors, and
continued by interpolation, so every V in play is one fixed function on the box and

.. math:: \phi_V(s,a)_j = \int V(y)\, P_j(dy \mid s, a)

is an integral at the *true* state s, wherever it is. With y = V(s'), rows obey :math:`E[y] = \langle\phi_V(s,a),
\theta^*\rangle` without any error of discretisation: the grid enters the plans, not the confidence set.

**Integrals that are not exact.** Rows are range-weighted by the range of V over all anchors, so targets have range 1.
Let e_t bound the error of every coordinate of row t, known before its target. Because theta* is on the simplex the mean
is off by at most e_t, and :mod:`occamrl.confidence.compatible_sets` shows, for any fixed c in (0, 1),

.. math:: \beta = \tfrac1{4c}\big(\log\det(\Sigma/\lambda) + 2\log\tfrac1\delta\big) + \frac{\sum_t e_t^2}{1-c}
          + \lambda b^2 .

- *Quadrature*: e_t = ``error``, a bound on the total variation error of a candidate's law over the anchors.
- *Draws*: M fresh draws per candidate and action at every state met, independent of V, which was fixed before. By
  Hoeffding's inequality :math:`e_t^2 = \log(2 d A\, \pi^2 t^2/(6\,\delta/2))/(2M)` serves all coordinates and actions
  of all rows t = 1, 2, ... with probability 1 - delta/2; the ellipsoid takes the other half.

**Plans** are those of :class:`UCRLVTRLin` on the candidates' kernels over the anchors. They are optimistic up to the
errors of interpolation, :math:`\sum_h \|(1 - I) V^*_h\|`, and of the integrals at the anchors, at most their total
variation times the range of V at each step. Both vanish as the grid and the rule get finer; neither is in the radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from occamrl import seeding
from occamrl.continuous.discretise import as_actions, discretise, expectations
from occamrl.continuous.grid import Grid, StateError
from occamrl.continuous.transitions import Sampled, Transition, require_inside
from occamrl.contracts import Floats, Known
from occamrl.errors import OccamRLError, ParameterError, RewardError, require_number
from occamrl.families.features import FeatureMap
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.problems.checks import require_integer
from occamrl.runs.stepping import open_episode

_DENSE = 2**20  # entries of a feature map that is kept dense


class Anchored:
    """A learner on a box that someone else steps: ``begin(state)``, then ``act()`` and ``record(next_state)`` H times.

    Parameters
    ----------
    models : sequence of Transition
        The d candidates. All :class:`Sampled`: integrals are taken by fresh draws at every state met. Otherwise by
        their rules, whose error is ``error``.
    grid : Grid
        The anchors.
    actions : array [A, m] or [A]
    reward : callable
        ``reward(states [N, n], action [m]) -> [N]`` in [0, 1], known.
    horizon
        H.
    episodes : int
        How many are planned; with inexact integrals c is chosen for them. Fewer or more are as valid.
    delta, norm_bound, regularization, replan
        As in :class:`UCRLVTRLin`.
    error : float
        Of the rules, in total variation over the anchors (``quadrature_error`` estimates it).
    seed : int
        Of the draws.
    """

    def __init__(
        self,
        *,
        models: Sequence[Transition],
        grid: Grid,
        actions: ArrayLike,
        reward: Callable[[Floats, Floats], Floats],
        horizon: int,
        episodes: int,
        delta: float = 0.05,
        norm_bound: float = 1.0,
        regularization: float = 1.0,
        replan: float = 0.2,
        error: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not models:
            raise ParameterError("models", got="none", expected="at least one candidate")
        require_number("delta", delta, 0.0, 1.0, open_low=True)
        require_number("error", error, 0.0, 1.0)
        self.models, self.grid, self.actions, self.seed = list(models), grid, as_actions(actions), seed
        self.horizon, self._reward = require_integer("horizon", horizon, 1), reward
        self.drawn = all(isinstance(model, Sampled) for model in models)
        if self.drawn and error:
            raise ParameterError("error", got=error, expected="0 with sampled models: draws have their own")
        self._error, self._delta = float(error), delta / 2.0 if self.drawn else delta
        self.learner = UCRLVTRLin(
            features=self._features(),
            norm_bound=norm_bound,
            delta=self._delta,
            regularization=regularization,
            replan=replan,
        )
        self.temperature = self._temperature(require_integer("episodes", episodes, 1) * self.horizon)
        d = len(models)
        self.gram, self.xy, self.squared_errors = np.zeros((d, d)), np.zeros(d), 0.0
        self.rows, self.episode, self.plans = 0, 0, 0
        self._planned_at = -math.inf
        self._step: int | None = None

    # The confidence set -----------------------------------------------------------------------------------------------

    @property
    def sigma(self) -> Floats:
        """The regression matrix of all rows so far."""
        return np.asarray(self.gram + self.learner.lam * np.eye(len(self.models)))

    @property
    def theta(self) -> Floats:
        """The ridge estimate of all rows so far (M8)."""
        return np.asarray(np.linalg.solve(self.sigma, self.xy))

    @property
    def squared_radius(self) -> float:
        """The radius beta after all rows so far."""
        c, b = self.temperature, self.learner.norm_bound
        logdet = float(np.linalg.slogdet(self.sigma / self.learner.lam)[1])
        noise = 0.25 / c * (logdet + 2.0 * math.log(1.0 / self._delta))
        return noise + (self.squared_errors / (1.0 - c) if c < 1.0 else 0.0) + self.learner.lam * b**2

    def row_error(self, t: int) -> float:
        """Return e_t of row t, from 1."""
        if not self.drawn:
            return self._error
        draws = min(model.draws for model in self.models if isinstance(model, Sampled))
        cases = 2.0 * len(self.models) * len(self.actions) * math.pi**2 * t**2 / 6.0
        return min(1.0, math.sqrt(math.log(cases / self._delta) / (2.0 * draws)))

    def _temperature(self, rows: int) -> float:
        """Return c: 1 with exact integrals, else sqrt(B)/(sqrt(B) + sqrt(E)) for typical B and the E of all rows."""
        total = rows * self.row_error(rows) ** 2
        if total == 0.0:
            return 1.0
        d = len(self.models)
        typical = math.sqrt(0.25 * (d * math.log1p(rows / (4.0 * d)) + 2.0 * math.log(1.0 / self._delta)))
        return typical / (typical + math.sqrt(total))

    # Planning ---------------------------------------------------------------------------------------------------------

    def _features(self) -> FeatureMap:
        kernels = [discretise(model, self.grid, self.actions) for model in self.models]
        shape = (self.grid.size, len(self.actions), self.grid.size)
        dense = math.prod(shape) * len(kernels) <= _DENSE
        return FeatureMap([kernel.toarray().reshape(shape) for kernel in kernels] if dense else kernels)

    @cached_property
    def known(self) -> Known:
        """The problem at the anchors, as a learner knows it."""
        rewards = np.stack([self._rewards(self.grid.vertices, action) for action in self.actions], axis=1)
        return Known(states=self.grid.size, actions=len(self.actions), horizon=self.horizon, base_reward=rewards)

    def _rewards(self, states: Floats, action: Floats) -> Floats:
        found = np.asarray(self._reward(states, action), dtype=np.float64)
        bad = ~((found >= 0.0) & (found <= 1.0))
        if found.shape != (len(states),) or bad.any():
            s = int(bad.argmax()) if bad.ndim == 1 else 0
            got = f"{found[s] if bad.ndim == 1 else found.shape} in state {states[s].tolist()}"
            raise RewardError("reward", index=(s,), got=got, expected="a number in [0, 1] for each state")
        return found

    def _plan(self) -> None:
        c, b, lam = self.temperature, self.learner.norm_bound, self.learner.lam
        # what turns the learner's radius, times its scale, into beta
        slack = 4.0 * c * self.squared_errors / (1.0 - c) - 4.0 * (1.0 - c) * lam * b**2 if c < 1.0 else 0.0
        learner = replace(self.learner, scale=1.0 / math.sqrt(c), event=(lam, slack))
        state = learner.begin(self.known, LinearStatistics(self.gram.ravel(), self.xy, self.episode))
        policy = np.zeros((self.horizon, self.grid.size), dtype=np.int64)
        open_episode(learner.model(self.known), state, 0, seeding.key(self.seed, "agent"), self.episode, policy)
        self.values = state.values.copy()  # [H + 1, S]
        self._inverse, self._estimate = np.linalg.inv(self.sigma), self.theta
        self._width = math.sqrt(self.squared_radius)
        self.plans += 1

    # An episode -------------------------------------------------------------------------------------------------------

    def begin(self, state: ArrayLike) -> None:
        """Begin an episode; replan when the log-determinant has grown enough (M12)."""
        first = self._inside(state, "state")
        logdet = float(np.linalg.slogdet(self.sigma)[1])
        if (
            self.plans == 0
            or self.learner.replan == 0.0
            or logdet >= self._planned_at + math.log1p(self.learner.replan)
        ):
            self._plan()
            self._planned_at = logdet
        if self._step is not None:
            self.episode += 1
        self._state, self._step, self._chosen = first, 0, None

    def planned_value(self, state: ArrayLike) -> float:
        """Return V_1 of the plan in play, interpolated."""
        return float(self.grid.interpolate(self.values[0], self._inside(state, "state"))[0])

    def act(self) -> int:
        """Return the number of the best action at the true state, by its own optimistic value (M11)."""
        step = self._begun()
        if self._chosen is None:
            values = self.values[step + 1]
            middle, spread = 0.5 * float(values.max() + values.min()), float(np.ptp(values))
            best, kept = -math.inf, (0, np.zeros(len(self.models)))
            for a, action in enumerate(self.actions):
                q, x = float(self._rewards(self._state, action)[0]) + middle, np.zeros(len(self.models))
                if spread > 0.0:
                    x = (self._integrals(values, a) - middle) / spread
                    bonus = self._width * math.sqrt(max(0.0, float(x @ self._inverse @ x)))
                    q += spread * min(0.5, max(-0.5, float(x @ self._estimate) + bonus))
                if q > best:
                    best, kept = q, (a, x)
            self._chosen = (*kept, middle, spread)
        return int(self._chosen[0])

    def _begun(self) -> int:
        """Return the step of the episode under way."""
        if self._step is None:
            raise OccamRLError("no episode is under way; call begin(state) first")
        return int(self._step)

    def _integrals(self, values: Floats, a: int) -> Floats:
        """Return phi_V(s, a) at the true state, one integral per candidate [d]."""
        found = []
        rng = seeding.stream(self.seed, "anchored", self.episode, int(self._step or 0), a)
        for model in self.models:
            if self.drawn and isinstance(model, Sampled):
                many = np.repeat(self._state, model.draws, axis=0)
                fresh = self.grid.as_points(model.sample(many, self.actions[a], rng), "next states")
                require_inside(fresh, self.grid.outside(fresh), many, self.actions[a], self.grid.described)
                found.append(float(self.grid.interpolate(values, fresh).mean()))
            else:
                found.append(float(expectations(model, self.grid, values, self._state, self.actions[a])[0]))
        return np.array(found)

    def record(self, next_state: ArrayLike) -> None:
        """Learn from the state that followed the action."""
        self.act()
        after = self._inside(next_state, "next_state")
        step = self._begun()
        _, x, middle, spread = self._chosen
        if spread > 0.0:
            target = (float(self.grid.interpolate(self.values[step + 1], after)[0]) - middle) / spread
            self.rows += 1
            self.gram += np.outer(x, x)
            self.xy += target * x
            self.squared_errors += self.row_error(self.rows) ** 2
        self._state, self._step, self._chosen = after, step + 1, None
        if self._step == self.horizon:
            self._step, self.episode = None, self.episode + 1

    _chosen: Any = None  # (action, its row, the middle and the range of V) at the current state

    def _inside(self, state: ArrayLike, field: str) -> Floats:
        point = self.grid.as_points(np.asarray(state, dtype=np.float64)[None], field)
        if self.grid.outside(point).any():
            raise StateError(field, got=point[0].tolist(), expected=self.grid.described, state=point[0].tolist())
        return point

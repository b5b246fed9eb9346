"""A linear learner whose rows are also kept in the full dimension, so that every class of a ladder can be tested.

The learner in play sees features of its own class; its values and policy define the rows (s, a, V, y), and these give
x = phi_V(s, a) in all d coordinates as well (M17). Rows are counted by (h, s) while a plan stays in play.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from occamrl.contracts import Floats, Ints, Known, Learner
from occamrl.kernels.compile import compiled, hot, implements
from occamrl.kernels.episodes import PLANNED, follows_policy, hear, observe, plan, planned_value
from occamrl.learners.linear import LinearModel, LinearState, row_of
from occamrl.learners.reward_rows import in_target
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin


class RecordedModel(NamedTuple):
    """The models of the class in play and of the full dimension."""

    inner: LinearModel
    full: LinearModel


class RecordedState(NamedTuple):
    """The inner learner's state, and the rows in the full dimension."""

    inner: LinearState
    gram: Floats  # [T, d, d] sum x x^T
    xy: Floats  # [T, d] sum y x
    squares: Floats  # [1] sum y^2
    values: Floats  # [H + 1, S] in play
    policy: Ints  # [H, S] in play
    visits: Ints  # [H, S] rows under this plan
    first_target: Floats  # [H, S] of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target, as in `occamrl.learners.linear`
    square_sum: Floats  # [H, S] sum of their squares


follows_policy(RecordedState)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded(Learner):
    """Plays ``learner`` and records rows for ``full``, the same learner in the full dimension."""

    learner: UCRLVTRLin
    full: UCRLVTRLin

    def model(self, known: Known) -> RecordedModel:
        """Return the constants of the compiled functions."""
        return RecordedModel(self.learner.model(known), self.full.model(known))

    def begin(self, known: Known, statistics: LinearStatistics | None = None) -> RecordedState:
        """Return a fresh state."""
        d, shape, steps = self.full.features.dimension, (known.horizon, known.states), self.full.steps(known)
        return RecordedState(
            inner=self.learner.begin(known, statistics),
            gram=np.zeros((steps, d, d)),
            xy=np.zeros((steps, d)),
            squares=np.zeros(1),
            values=np.zeros((known.horizon + 1, known.states)),
            policy=np.zeros(shape, dtype=np.int64),
            visits=np.zeros(shape, dtype=np.int64),
            first_target=np.zeros(shape),
            target_sum=np.zeros(shape),
            square_sum=np.zeros(shape),
        )

    def reserve(self, state: RecordedState, episodes: int) -> RecordedState:
        """Return the state as it is: it never grows."""
        return state


@hot
def record(model: RecordedModel, state: RecordedState) -> None:
    """Enter the rows of the plan that is in play."""
    horizon, states = state.policy.shape
    actions, steps = model.full.actions, state.gram.shape[0]
    target, x = model.full.scratch.target, model.full.scratch.x
    d = state.xy.shape[1]
    for h in range(horizon):
        for s in range(states):
            count = state.visits[h, s]
            if count == 0:
                continue
            total, squares = state.target_sum[h, s], state.square_sum[h, s]
            state.visits[h, s] = 0
            state.target_sum[h, s] = 0.0
            state.square_sum[h, s] = 0.0
            sa = s * actions + state.policy[h, s]
            middle, spread = row_of(model.full, model.full.features, state.values[h + 1], sa, target, x)
            if spread <= 0.0:
                continue
            shift = state.first_target[h, s] - middle
            y = (total + count * shift) / spread
            state.squares[0] += (squares + shift * (2.0 * total + count * shift)) / (spread * spread)
            gram, xy = state.gram[h % steps], state.xy[h % steps]
            for i in range(d):
                xy[i] += y * x[i]
                for j in range(d):
                    gram[i, j] += count * x[i] * x[j]


@compiled
def record_now(model: RecordedModel, state: RecordedState) -> None:
    """Enter the rows that wait, at the end of a phase."""
    record(model, state)


@implements(plan, RecordedState, argument=1)
def plan_recorded(model: RecordedModel, state: RecordedState, start: int, key: np.uint64, episode: int) -> int:
    """Let the inner learner plan; when it does, enter the rows of the plan before."""
    news = plan(model.inner, state.inner, start, key, episode)
    if news & PLANNED:
        record(model, state)
        horizon, states = state.policy.shape
        for h in range(horizon):
            for s in range(states):
                state.values[h, s] = state.inner.values[h, s]
                state.policy[h, s] = state.inner.policy[h, s]
    return news


@implements(hear, RecordedState, argument=1, inline=True)
def hear_recorded(model: RecordedModel, state: RecordedState, h: int, s: int, a: int, reward: float) -> None:
    """Let the inner learner hear a reward."""
    hear(model.inner, state.inner, h, s, a, reward)


@implements(observe, RecordedState, argument=1, inline=True)
def observe_recorded(model: RecordedModel, state: RecordedState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Count a row, here and in the inner learner."""
    if h < model.full.rows:
        target = in_target(model.inner.rewards, bonus) + state.values[h + 1, s2]
        if state.visits[h, s] == 0:
            state.first_target[h, s] = target
        gap = target - state.first_target[h, s]
        state.visits[h, s] += 1
        state.target_sum[h, s] += gap
        state.square_sum[h, s] += gap * gap
    observe(model.inner, state.inner, h, s, a, bonus, s2)


@implements(planned_value, RecordedState, argument=1, inline=True)
def planned_value_recorded(model: RecordedModel, state: RecordedState, s: int) -> float:
    """V^k_1(s)."""
    return state.inner.values[0, s]  # type: ignore[no-any-return]

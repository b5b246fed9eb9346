"""A learner whose rows are also kept in the largest class of a ladder, so that every class can be tested.

The learner in play sees features of its own class; its values and policy define the rows (s, a, V, y), and these give
x = phi_V(s, a) in all d coordinates as well (M17). Rows are counted by (h, s) while a plan stays in play. With one
kernel per step every step has sums of its own, T = H of them one after the other; otherwise T = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.compile import compiled, hot, implements
from occamrl._core.loop import follows_policy, hear, observe, plan, planned_value
from occamrl._core.regression import add_row, block_matrix, block_vector
from occamrl.learners.finite_planned import PlannedModel, PlannedState
from occamrl.learners.finite_rows import MEMBER, FiniteModel, FiniteState
from occamrl.learners.linear_regression import row_of
from occamrl.learners.linear_state import LinearModel, LinearState
from occamrl.learners.rewards import in_target
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.protocols import Floats, Ints, Known, Learner


class RecordedModel(NamedTuple):
    """The models of the class in play and of the largest."""

    inner: Any  # LinearModel, FiniteModel or PlannedModel
    full: LinearModel


class RecordedState(NamedTuple):
    """The inner learner's state, and the rows in the largest class."""

    inner: Any  # LinearState, FiniteState or PlannedState
    gram: Floats  # [T * blocks' matrices] sum x x^T
    xy: Floats  # [T*d] sum y x
    squares: Floats  # [1] sum y^2
    pairs: Floats  # [T*S*A, 2 + largest block] of each (s, a): number of rows, sum y, sum x
    values: Floats  # [H + 1, S] in play
    policy: Ints  # [H, S] in play
    visits: Ints  # [H, S] rows under this plan
    first_target: Floats  # [H, S] of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target, as in `occamrl.learners.linear_regression`
    square_sum: Floats  # [H, S] sum of their squares


follows_policy(RecordedState)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded(Learner):
    """Plays ``learner`` and records rows for ``full``, the learner of the largest class."""

    learner: UCRLVTRLin | UCRLVTR
    full: UCRLVTRLin

    def model(self, known: Known) -> RecordedModel:
        """Return the constants of the compiled functions."""
        return RecordedModel(self.learner.model(known), self.full.model(known))

    def begin(self, known: Known) -> RecordedState:
        """Return a fresh state."""
        return self.around(known, self.learner.begin(known))

    def around(self, known: Known, inner: Any) -> RecordedState:
        """Return a state without rows around one of the learner."""
        features, shape, steps = self.full.features, (known.horizon, known.states), self.full.steps(known)
        return RecordedState(
            inner=inner,
            gram=np.zeros(steps * int(features.blocks.matrix_start[-1])),
            xy=np.zeros(steps * features.dimension),
            squares=np.zeros(1),
            pairs=np.zeros((steps * known.states * known.actions, 2 + int(features.blocks.size.max()))),
            values=np.zeros((known.horizon + 1, known.states)),
            policy=np.zeros(shape, dtype=np.int64),
            visits=np.zeros(shape, dtype=np.int64),
            first_target=np.zeros(shape),
            target_sum=np.zeros(shape),
            square_sum=np.zeros(shape),
        )

    def reserve(self, state: RecordedState, episodes: int) -> RecordedState:
        """Return a state whose learner has room for ``episodes`` more episodes."""
        inner: Any = self.learner.reserve(state.inner, episodes)
        return state if inner is state.inner else state._replace(inner=inner)


def value_in_play(model: Any, state: Any, h: int, s: int) -> float:
    """Return V_h(s) of the plan in play, h from 0."""
    raise TypeError(f"no values of type {type(state).__name__}")


@implements(value_in_play, LinearState, argument=1)
def value_in_play_linear(model: LinearModel, state: LinearState, h: int, s: int) -> float:
    """``value_in_play`` for plans over an ellipsoid."""
    return float(state.values[h, s])


@implements(value_in_play, FiniteState, argument=1)
def value_in_play_finite(model: FiniteModel, state: FiniteState, h: int, s: int) -> float:
    """``value_in_play`` for a member in play."""
    return float(model.values[state.counters[MEMBER], h, s])


@implements(value_in_play, PlannedState, argument=1)
def value_in_play_planned(model: PlannedModel, state: PlannedState, h: int, s: int) -> float:
    """``value_in_play`` for plans over a family with unknown rewards or one kernel per step."""
    return float(state.values[h, s])


@hot
def record(model: RecordedModel, state: RecordedState) -> None:
    """Enter the rows of the plan that is in play."""
    horizon, states = state.policy.shape
    actions, steps = model.full.actions, model.full.steps
    target, x = model.full.scratch.target, model.full.scratch.x
    blocks = model.full.blocks
    per_step = blocks.size.size // steps
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
            t = h % steps
            b = t * per_step + blocks.of[sa]
            row = t * states * actions + sa
            add_row(block_matrix(state.gram, blocks, b), count, x)
            xy = block_vector(state.xy, blocks, b)
            state.pairs[row, 0] += count
            state.pairs[row, 1] += y
            for i in range(xy.size):
                xy[i] += y * x[i]
                state.pairs[row, 2 + i] += count * x[i]


@compiled
def record_now(model: RecordedModel, state: RecordedState) -> None:
    """Enter the rows that wait, at the end of a phase."""
    record(model, state)


@implements(plan, RecordedState, argument=1)
def plan_recorded(model: RecordedModel, state: RecordedState, start: int, key: np.uint64, episode: int) -> int:
    """Let the inner learner plan; when something may have changed, enter the rows of the plan before."""
    news = plan(model.inner, state.inner, start, key, episode)
    if news != 0:
        record(model, state)
        horizon, states = state.policy.shape
        for h in range(horizon):
            for s in range(states):
                state.values[h, s] = value_in_play(model.inner, state.inner, h, s)
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
        target = in_target(model.full.rewards, bonus) + state.values[h + 1, s2]
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
    return planned_value(model.inner, state.inner, s)

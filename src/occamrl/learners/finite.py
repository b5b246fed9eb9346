"""Optimism over a finite family, compiled: which member plays, and when that is decided anew."""

from __future__ import annotations

import numpy as np

from occamrl._core.compile import hot, implements
from occamrl._core.loop import CHANGED, PLANNED, follows_policy, observe, plan, planned_value
from occamrl.learners.finite_rows import (
    ALIVE,
    CURRENT,
    EPISODES,
    EPISODES_AT_PLAN,
    FIRST_LOOK,
    LAST_START,
    MEMBER,
    NEXT_LOOK,
    NEXT_TEST,
    TOUCHED,
    FiniteModel,
    FiniteState,
    absorb,
    greedy_action,
)
from occamrl.learners.finite_sets import (
    drop,
    forget_columns,
    look_again,
    most_optimistic,
    test_all_classes,
    update_ball,
)

follows_policy(FiniteState)


@hot
def update_sharp_set(model: FiniteModel, state: FiniteState, episodes: int) -> None:
    """Drop what the data contradict; test the classes and look again at dropped kernels when it is time to."""
    counters = state.counters
    look = episodes >= counters[NEXT_LOOK]
    if not (look or episodes >= counters[NEXT_TEST]):
        drop(model, state, counters[CURRENT])
        return
    if model.test < np.inf:
        counters[NEXT_TEST] = max(episodes + 1, int(np.ceil(episodes * (1.0 + model.test))))
    test_all_classes(model, state)
    if look:
        counters[NEXT_LOOK] = max(2 * episodes, FIRST_LOOK)
        look_again(model, state)


@implements(plan, FiniteState, argument=1)
def plan_finite(model: FiniteModel, state: FiniteState, start: int, key: np.uint64, episode: int) -> int:
    """Update the confidence set when it is due, then put its most optimistic member into play."""
    counters = state.counters
    episodes = counters[EPISODES]
    counters[EPISODES] += 1
    due = episodes == 0 or episodes >= (1.0 + model.replan) * counters[EPISODES_AT_PLAN]
    root = np.int64(np.round(np.sqrt(episodes + 1.0)))
    guard = model.guard and root * root == episodes + 1
    if due:
        counters[EPISODES_AT_PLAN] = episodes
        absorb(model, state)
        if model.ball:
            update_ball(model, state)
        else:
            update_sharp_set(model, state, episodes)
    elif start == counters[LAST_START] and not guard:
        return 0
    counters[LAST_START] = -1 if guard else start
    member = most_optimistic(model, state, counters[ALIVE] if guard else counters[CURRENT], start)
    if member == counters[MEMBER]:
        return PLANNED if due else 0
    absorb(model, state)
    counters[MEMBER] = member
    forget_columns(state)
    state.pending.at[:] = -1
    horizon, states = state.policy.shape
    for h in range(horizon):
        for s in range(states):
            state.policy[h, s] = greedy_action(model, member, h, s)
    return PLANNED | CHANGED if due else CHANGED


@implements(observe, FiniteState, argument=1, inline=True)
def observe_finite(model: FiniteModel, state: FiniteState, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Count a row under the member in play."""
    if h >= model.rows:
        return
    target = bonus + model.values[state.counters[MEMBER], h + 1, s2]
    if state.visits[h, s] == 0:
        state.first_target[h, s] = target
        state.touched[state.counters[TOUCHED]] = h * state.policy.shape[1] + s
        state.counters[TOUCHED] += 1
    state.visits[h, s] += 1
    gap = target - state.first_target[h, s]
    state.target_sum[h, s] += gap
    state.square_sum[h, s] += gap * gap


@implements(planned_value, FiniteState, argument=1, inline=True)
def planned_value_finite(model: FiniteModel, state: FiniteState, s: int) -> float:
    """V*_{P_k,1}(s) of the member in play."""
    return float(model.values[state.counters[MEMBER], 0, s])

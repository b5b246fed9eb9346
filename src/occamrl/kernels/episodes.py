"""THE episode loop: one, for every learner.

The functions below are what an algorithm consists of. A learner's file gives its own version of each for the type
of its state (``occamrl.kernels.compile.implements``), and ``play`` is compiled once per type. The same functions are
driven step by step from Python by ``occamrl.runs.interaction``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl.contracts import Floats, Truth
from occamrl.kernels.bellman import policy_values
from occamrl.kernels.compile import hot, hot_inline, implements, otherwise
from occamrl.kernels.noise import realised
from occamrl.kernels.philox import fill_uniforms

PLANNED = 1  # a plan was made
CHANGED = 2  # ... and the policy is no longer the one before


def plan(model: Any, state: Any, start: int, key: np.uint64, episode: int) -> int:
    """Take note that an episode begins in ``start``, replan if it is time to; return PLANNED | CHANGED bits."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def act(model: Any, state: Any, h: int, s: int) -> int:
    """Return the action for state ``s`` at step ``h`` (from 0)."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def observe(model: Any, state: Any, h: int, s: int, a: int, bonus: float, s2: int) -> None:
    """Learn from one transition; ``bonus`` is the reward less base_reward[s, a] (zero when that is all of it)."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def hear(model: Any, state: Any, h: int, s: int, a: int, reward: float) -> None:
    """Learn from the reward of a step, before its transition is observed; for learners that estimate rewards."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


@otherwise(hear, argument=1)
def hear_nothing(model: Any, state: Any, h: int, s: int, a: int, reward: float) -> None:
    """``hear`` of learners that know the rewards."""


def planned_value(model: Any, state: Any, s: int) -> float:
    """Return V^k_1(s), the value the learner planned for; NaN when it has none."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def evaluate(model: Any, state: Any, truth: Truth, out: Floats) -> None:
    """Write the exact value V^{pi_k}_1 of the policy in play under the true kernel to ``out[0]``; ``out`` is [2, S]."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def follows_policy(kind: type) -> None:
    """Give states of class ``kind`` the usual ``act`` and ``evaluate``: follow the table ``state.policy`` [H, S]."""

    def act_on_policy(model: Any, state: Any, h: int, s: int) -> int:
        return int(state.policy[h, s])

    def evaluate_policy(model: Any, state: Any, truth: Truth, out: Floats) -> None:
        policy_values(truth.outcomes, truth.probability, truth.base_reward, state.policy, out)

    implements(act, kind, argument=1, inline=True)(act_on_policy)
    implements(evaluate, kind, argument=1)(evaluate_policy)


@hot_inline
def draw(cumulative: Floats, row: int, first: int, last: int, u: float) -> int:
    """Return the first index in [first, last) with u < cumulative[row, index]."""
    while last - first > 16:
        middle = (first + last - 1) // 2
        if u < cumulative[row, middle]:
            last = middle + 1
        else:
            first = middle + 1
    window = cumulative[row, first:last]
    passed = 0
    for i in range(window.size - 1):  # counting has no branch to mispredict: which way u falls is a coin toss
        passed += u >= window[i]
    return first + passed


@hot
def draw_start(truth: Truth, u: float) -> int:
    """Return the initial state of an episode."""
    return draw(truth.initial_cumulative, 0, 0, truth.initial_cumulative.shape[1], u)


@hot
def draw_outcome(truth: Truth, h: int, sa: int, u: float) -> int:
    """Return the index of the outcome that follows (s, a) at step ``h``."""
    start = truth.outcomes.start
    return draw(truth.cumulative, h % truth.cumulative.shape[0], start[sa], start[sa + 1], u)


@hot
def play(
    model: Any,
    state: Any,
    truth: Truth,
    environment_key: np.uint64,
    agent_key: np.uint64,
    first_episode: int,
    regret: Floats,
    returns: Floats,
    uniforms: Floats,
    achieved: Floats,
) -> tuple[int, int]:
    """Play ``regret.size`` episodes from number ``first_episode`` on.

    Writes the exact pseudo-regret and the realised return of each episode. Returns the number of plans, and the number
    of episodes whose planned value was below V*_1(s_1) by more than rounding (plans that were not optimistic).
    ``uniforms`` [H + 1, rounded up to an even number] and ``achieved`` [2, S] are scratch.
    """
    outcomes = truth.outcomes
    horizon = truth.optimal_values.shape[0] - 1
    states = truth.optimal_values.shape[1]
    actions = truth.base_reward.size // states
    tolerance = 1e-9 * horizon
    kernels = truth.cumulative.shape[0]
    plans = 0
    pessimistic = 0
    for k in range(regret.size):
        fill_uniforms(environment_key, first_episode + k, uniforms)
        s = draw_start(truth, uniforms[0])
        news = plan(model, state, s, agent_key, first_episode + k)
        if news & PLANNED:
            plans += 1
        if k == 0 or news & CHANGED:
            evaluate(model, state, truth, achieved)
        best = truth.optimal_values[0, s]
        if planned_value(model, state, s) < best - tolerance:
            pessimistic += 1
        regret[k] = best - achieved[0, s]
        total = 0.0
        for h in range(horizon):
            a = act(model, state, h, s)
            sa = s * actions + a
            o = draw(truth.cumulative, h % kernels, outcomes.start[sa], outcomes.start[sa + 1], uniforms[h + 1])
            bonus = outcomes.bonus[o]
            s2 = outcomes.next_state[o]
            mean = truth.base_reward[sa] + bonus
            reward = realised(truth.noise, o, mean, environment_key, first_episode + k, h)
            hear(model, state, h, s, a, reward)
            observe(model, state, h, s, a, bonus, s2)
            total += reward
            s = s2
        returns[k] = total
    return plans, pessimistic

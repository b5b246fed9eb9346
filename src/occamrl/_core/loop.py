"""THE episode loop: one, for every learner.

The functions below are what an algorithm consists of. A learner's file gives its own version of each for the type
of its state (``occamrl._core.compile.implements``), and ``play`` is compiled once per type. The same functions are
driven step by step from Python by ``occamrl.running.environments``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from occamrl._core.bellman import policy_values
from occamrl._core.compile import hot, hot_inline, implements, otherwise
from occamrl._core.rng import fill_uniforms, realised
from occamrl.protocols import Floats, Ints, Truth

# ----------------------------------------------------------------------------------------------------
# THE episode loop: one, for every learner.


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


# ----------------------------------------------------------------------------------------------------
# An episode of a real environment in two compiled calls, whatever its length.
#
# A learner's policy is fixed before the episode (its value V^{pi_k} is evaluated then), and rows enter the statistics in
# the order of the steps. So the actions of all (h, s) are written out when the episode begins, and all transitions are
# observed when it is over: the same functions as in the fused loop, in the same order, without passing a learner's
# arrays from Python to compiled code and back at every step.


@hot
def open_episode(model: Any, state: Any, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
    """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
    news = plan(model, state, start, key, episode)
    for h in range(actions.shape[0]):
        for s in range(actions.shape[1]):
            actions[h, s] = act(model, state, h, s)
    return news


@hot
def close_episode(
    model: Any,
    state: Any,
    at_rest: Floats,
    path: Ints,
    bonus: Floats,
    reward: Floats,
    actions: Ints,
    steps: int,
    ended: bool,
) -> float:
    """Learn from the first ``steps`` transitions path[h] -> path[h + 1]; return the sum of rewards in [0, 1].

    After an episode that ``ended`` the end state is kept for the rest of the horizon, as the model has it, and earns
    ``at_rest`` [S*A].
    """
    total = 0.0
    s = path[0]
    for h in range(actions.shape[0] if ended else steps):
        a = actions[h, s]
        if h < steps:
            s2, extra, came = path[h + 1], bonus[h], reward[h]
        else:
            s2, extra, came = s, 0.0, at_rest[s * (at_rest.size // actions.shape[1]) + a]
        hear(model, state, h, s, a, came)
        observe(model, state, h, s, a, extra, s2)
        total += came
        s = s2
    return total


@hot
def value_of_policy(model: Any, state: Any, truth: Truth, out: Floats) -> None:
    """Write V^{pi_k}_1 of the policy in play to ``out[0]``; ``out`` is [2, S]."""
    evaluate(model, state, truth, out)


# ----------------------------------------------------------------------------------------------------
# Episodes of a learner in plain Python, which has planned its actions [H, S] itself.


@hot
def draw_first_state(initial_cumulative: Floats, environment_key: np.uint64, episode: int, uniforms: Floats) -> int:
    """Return the state in which an episode begins, and leave the numbers that :func:`play` uses in ``uniforms``."""
    fill_uniforms(environment_key, episode, uniforms)
    return draw(initial_cumulative, 0, 0, initial_cumulative.shape[1], uniforms[0])


@hot
def draw_episode(
    truth: Truth,
    environment_key: np.uint64,
    episode: int,
    uniforms: Floats,
    policy: Ints,
    path: Ints,
    actions: Ints,
    bonus: Floats,
    rewards: Floats,
) -> float:
    """Follow ``policy`` [H, S] from ``path[0]`` as :func:`play` would; return the sum of rewards.

    Writes the states to ``path`` [H + 1], and ``actions``, ``bonus`` and ``rewards`` [H].
    """
    outcomes = truth.outcomes
    horizon, states = policy.shape
    per_state = truth.base_reward.size // states
    total = 0.0
    for h in range(horizon):
        a = policy[h, path[h]]
        sa = path[h] * per_state + a
        o = draw_outcome(truth, h, sa, uniforms[h + 1])
        mean = truth.base_reward[sa] + outcomes.bonus[o]
        actions[h] = a
        bonus[h] = outcomes.bonus[o]
        rewards[h] = realised(truth.noise, o, mean, environment_key, episode, h)
        path[h + 1] = outcomes.next_state[o]
        total += rewards[h]
    return total


@hot
def holds_actions(policy: Ints, actions: int) -> bool:
    """Say whether every entry of ``policy`` [H, S] is one of ``actions`` actions."""
    for h in range(policy.shape[0]):
        for s in range(policy.shape[1]):
            if policy[h, s] < 0 or policy[h, s] >= actions:
                return False
    return True

"""The episode loop: one, for every compiled learner.

In episodic problems an algorithm plays a table of actions that is fixed before the episode, so it consists of a few
functions: ``plan`` before the episode, ``write_policy`` when the table has changed, ``learn`` from the whole episode.
A learner's file gives its own version of each for the type of its state (``occamrl._core.compile.implements``), and
the loop is compiled once per type. The same functions serve an environment outside compiled code: the policy is
written by :func:`open_episode` and the transitions are learned by :func:`close_episode`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl._core.bellman import policy_values
from occamrl._core.compile import entry, hot_inline, implements, otherwise
from occamrl._core.rng import fill_uniforms, realised
from occamrl.protocols import Floats, Ints, Truth

PLANNED = 1  # a plan was made
CHANGED = 2  # the policy is no longer the one before
_ONE = np.uint64(1)
REDRAWN = 4  # the table of actions is a new draw of the same random policy


class Path(NamedTuple):
    """An episode as a learner sees it: (s_h, a_h, r_h, s_{h+1}) for h = 0, ..., H - 1."""

    states: Ints  # [H + 1]
    actions: Ints  # [H]
    bonus: Floats  # [H] the reward less base_reward[s, a]: what depends on the outcome
    reward: Floats  # [H]


def empty_path(horizon: int) -> Path:
    """Return room for an episode."""
    whole = np.zeros((2, horizon + 1), dtype=np.int64)
    return Path(whole[0], whole[1, :horizon], np.zeros(horizon), np.zeros(horizon))


def plan(model: Any, state: Any, start: int, key: np.uint64, episode: int) -> int:
    """Take note that an episode begins in ``start``, replan if it is time to; return PLANNED | CHANGED | REDRAWN."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def write_policy(model: Any, state: Any, policy: Ints) -> None:
    """Write the actions of the policy in play to ``policy`` [H, S]."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def learn(model: Any, state: Any, path: Path, steps: int) -> None:
    """Learn from the first ``steps`` transitions of an episode."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def planned_value(model: Any, state: Any, s: int) -> float:
    """Return V^k_1(s), the value the learner planned for; NaN when it has none."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


def evaluate(model: Any, state: Any, truth: Truth, policy: Ints, out: Floats) -> None:
    """Write the exact value V^{pi_k}_1 of the policy in play under the true kernel to ``out[0]``; ``out`` is [2, S]."""
    raise TypeError(f"no learner with states of type {type(state).__name__}")


@otherwise(evaluate, argument=1)
def evaluate_table(model: Any, state: Any, truth: Truth, policy: Ints, out: Floats) -> None:
    """``evaluate`` of learners that follow their table."""
    policy_values(truth, policy, out)


@hot_inline
def copy_table(table: Any, out: Any) -> None:
    """Copy one table [n, m] into another."""
    for h in range(table.shape[0]):
        for s in range(table.shape[1]):
            out[h, s] = table[h, s]


def follows_policy(kind: type) -> None:
    """Give states of class ``kind`` the usual ``write_policy``: their table ``state.policy`` [H, S]."""

    def write_table(model: Any, state: Any, policy: Ints) -> None:
        copy_table(state.policy, policy)

    implements(write_policy, kind, argument=1)(write_table)


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


@hot_inline
def draw_path(
    truth: Truth, key: np.uint64, episode: int, uniforms: Floats, policy: Ints, start: int, path: Path
) -> float:
    """Play an episode by the table ``policy`` from ``start``, write it to ``path`` and return its sum of rewards."""
    outcomes, stationary = truth.outcomes, truth.cumulative.shape[0] == 1
    horizon, states = policy.shape
    actions = truth.base_reward.size // states
    total, s = 0.0, start
    path.states[0] = s
    for h in range(horizon):
        a = policy[h, np.uint64(s)]  # unsigned: no test for indices that count from the end
        sa = np.uint64(s * actions + a)
        first, last = outcomes.start[sa], outcomes.start[sa + _ONE]
        o = np.uint64(draw(truth.cumulative, 0 if stationary else h, first, last, uniforms[h + 1]))
        path.actions[h] = a
        path.bonus[h] = outcomes.bonus[o]
        reward = realised(truth.noise, int(o), truth.base_reward[sa] + outcomes.bonus[o], key, episode, h)
        path.reward[h] = reward
        s = outcomes.next_state[o]
        path.states[h + 1] = s
        total += reward
    return total


@entry
def play_episodes(
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
    policy: Ints,
    path: Path,
    fresh: bool,
) -> tuple[int, int, int, float]:
    """Play ``regret.size`` episodes from number ``first_episode`` on.

    Writes the exact pseudo-regret and the realised return of each episode. Returns the number of plans; the number of
    episodes whose planned value was below V*_1(s_1) by more than rounding (plans that were not optimistic); the bits
    PLANNED | CHANGED | REDRAWN and the planned value of the last episode. ``uniforms`` [H + 1, rounded up to an even
    number] is scratch, ``path`` is left with the last episode; ``policy`` [H, S] and ``achieved`` [2, S] with the last
    policy and its value, from which the next call goes on unless it says that they are not: ``fresh``.
    """
    horizon = policy.shape[0]
    tolerance = 1e-9 * horizon
    plans = 0
    pessimistic = 0
    news = 0
    planned = np.nan
    for k in range(regret.size):
        fill_uniforms(environment_key, first_episode + k, uniforms)
        s = draw(truth.initial_cumulative, 0, 0, truth.initial_cumulative.shape[1], uniforms[0])
        news = plan(model, state, s, agent_key, first_episode + k)
        plans += news & PLANNED
        if fresh or news & (CHANGED | REDRAWN):
            write_policy(model, state, policy)
        if fresh or news & CHANGED:
            evaluate(model, state, truth, policy, achieved)
        fresh = False
        best = truth.optimal_values[0, s]
        planned = planned_value(model, state, s)
        if planned < best - tolerance:
            pessimistic += 1
        regret[k] = best - achieved[0, s]
        returns[k] = draw_path(truth, environment_key, first_episode + k, uniforms, policy, s, path)
        learn(model, state, path, horizon)
    return plans, pessimistic, news, planned


@entry
def open_episode(model: Any, state: Any, start: int, key: np.uint64, episode: int, actions: Ints) -> tuple[int, float]:
    """Begin an episode in ``start`` and write its policy to ``actions`` [H, S].

    Returns the bits PLANNED | CHANGED | REDRAWN, and the planned value of ``start``.
    """
    news = plan(model, state, start, key, episode)
    write_policy(model, state, actions)
    return news, planned_value(model, state, start)


@entry
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
    seen: Path,
) -> float:
    """Learn from the first ``steps`` transitions path[h] -> path[h + 1]; return the sum of rewards in [0, 1].

    After an episode that ``ended`` the end state is kept for the rest of the horizon, as the model has it, and earns
    ``at_rest`` [S*A]. ``seen`` is scratch.
    """
    total, s = 0.0, path[0]
    length = actions.shape[0] if ended else steps
    seen.states[0] = s
    for h in range(length):
        a = actions[h, s]
        seen.actions[h] = a
        if h < steps:
            seen.bonus[h], seen.reward[h] = bonus[h], reward[h]
            s = path[h + 1]
        else:
            seen.bonus[h], seen.reward[h] = 0.0, at_rest[s * (at_rest.size // actions.shape[1]) + a]
        seen.states[h + 1] = s
        total += seen.reward[h]
    learn(model, state, seen, length)
    return total


@entry
def value_of_policy(model: Any, state: Any, truth: Truth, actions: Ints, out: Floats) -> None:
    """Write V^{pi_k}_1 of the policy in play, whose table is ``actions``, to ``out[0]``; ``out`` is [2, S]."""
    evaluate(model, state, truth, actions, out)


@entry
def draw_first_state(initial_cumulative: Floats, environment_key: np.uint64, episode: int, uniforms: Floats) -> int:
    """Return the state in which an episode begins, and leave its numbers in ``uniforms``, as they are simulated."""
    fill_uniforms(environment_key, episode, uniforms)
    return draw(initial_cumulative, 0, 0, initial_cumulative.shape[1], uniforms[0])


@entry
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
    """Follow ``policy`` [H, S] from ``path[0]`` as :func:`play_episodes` would; return the sum of rewards.

    For learners in plain Python. Writes the states to ``path`` [H + 1], and ``actions``, ``bonus``, ``rewards`` [H].
    """
    return draw_path(truth, environment_key, episode, uniforms, policy, path[0], Path(path, actions, bonus, rewards))


@entry
def holds_actions(policy: Ints, actions: int) -> bool:
    """Say whether every entry of ``policy`` [H, S] is one of ``actions`` actions."""
    for h in range(policy.shape[0]):
        for s in range(policy.shape[1]):
            if policy[h, s] < 0 or policy[h, s] >= actions:
                return False
    return True

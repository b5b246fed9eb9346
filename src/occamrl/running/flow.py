"""The simulator: what a block of episodes under a fixed policy counts, drawn exactly.

Given that N visitors are in s at step h, their outcomes are Multinomial(N, P(.|s, pi_h(s))), independently over s, for
episodes are independent chains. A block of n episodes is one multinomial draw per visited (step, state): it costs the
same for ten episodes and for a trillion. Its exact regret is the sum over its starts of V*_1 - V^pi_1.

A block of one episode is walked: the same law, drawn by inversion, with less to set up.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Flow, Ints


def divide(visitors: Ints, probability: Floats, draw: np.random.Generator) -> Ints:
    """Divide visitors [v] among the columns of probabilities [v, n]; what cannot happen never does.

    NumPy's last column takes what rounding leaves, which may be someone at large numbers, so the likeliest goes there.
    """
    every, last = np.arange(len(probability)), probability.argmax(axis=1)
    ordered = probability.copy()
    ordered[every, last], ordered[:, -1] = probability[:, -1], probability[every, last]
    counts = draw.multinomial(visitors, ordered)
    counts[every, last], counts[:, -1] = counts[:, -1].copy(), counts[every, last].copy()
    return counts


def outcomes_of(
    start: Ints, probability: Floats, pair: Ints, visitors: Ints, draw: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Draw the outcomes of visitors to some pairs: for each that happened, its visitor row, its index, its count."""
    sizes = start[pair + 1] - start[pair]
    found = []
    for bits in np.unique(np.frexp(sizes)[1]):  # rows of about one length together: padding at most doubles the work
        rows = np.flatnonzero(np.frexp(sizes)[1] == bits)
        column = np.arange(sizes[rows].max())
        inside = column < sizes[rows, None]
        index = np.where(inside, start[pair[rows], None] + column, 0)
        counts = divide(visitors[rows], np.where(inside, probability[index], 0.0), draw)
        at = np.nonzero(counts)
        found.append((rows[at[0]], index[at], counts[at]))
    rows, index, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, index, counts


def simulate(mdp: FiniteMDP, policy: Any, episodes: int, draw: np.random.Generator) -> Flow:
    """Play episodes under a policy [H, S] or [H, S, A] and return what was counted."""
    if episodes == 1:
        return walk(mdp, policy, draw)
    outcomes, actions = mdp.outcomes, mdp.actions
    here = divide(np.array([episodes]), mdp.initial_distribution[None], draw)[0]
    parts = []
    for h in range(mdp.horizon):
        state = np.flatnonzero(here)
        visitors = here[state]
        if policy.ndim == 2:
            action = policy[h, state]
        else:  # random policies split visitors among actions first
            split = divide(visitors, policy[h, state], draw)
            row, action = np.nonzero(split)
            state, visitors = state[row], split[row, action]
        pair = state * actions + action
        probability = mdp.probability[0 if mdp.stationary else h]
        row, index, count = outcomes_of(outcomes.start, probability, pair, visitors, draw)
        after = outcomes.next_state[index]
        parts.append((np.full(row.size, h), state[row], action[row], after, _rewards(mdp, pair[row], index), count))
        here = np.zeros_like(here)
        np.add.at(here, after, count)
    step, state, action, after, reward, count = (np.concatenate(column) for column in zip(*parts, strict=True))
    flow = Flow(step, state, action, after, reward, count, episodes)
    return _with_noise(flow, draw) if mdp.reward_noise else flow


def walk(mdp: FiniteMDP, policy: Any, draw: np.random.Generator) -> Flow:
    """Play one episode."""
    start, next_state, _ = mdp.outcomes
    uniform, steps = draw.random((mdp.horizon + 1, 2)), np.arange(mdp.horizon)

    def drawn(probability: Floats, u: float) -> int:
        cumulative = probability.cumsum()
        return min(bisect_right(cumulative, u * cumulative[-1]), probability.size - 1)

    s = drawn(mdp.initial_distribution, uniform[-1, 0])
    states, actions, found = [s], [], []
    for h in range(mdp.horizon):
        a = int(policy[h, s]) if policy.ndim == 2 else drawn(policy[h, s], uniform[h, 1])
        first, last = start[s * mdp.actions + a], start[s * mdp.actions + a + 1]
        o = first + drawn(mdp.probability[0 if mdp.stationary else h, first:last], uniform[h, 0])
        s = int(next_state[o])
        states.append(s)
        actions.append(a)
        found.append(o)
    visited, chosen = np.array(states), np.array(actions)
    rewards = _rewards(mdp, visited[:-1] * mdp.actions + chosen, np.array(found))
    flow = Flow(steps, visited[:-1], chosen, visited[1:], rewards, np.ones(steps.size, np.int64), 1)
    return _with_noise(flow, draw) if mdp.reward_noise else flow


def _rewards(mdp: FiniteMDP, pair: Ints, index: Ints) -> Floats:
    """Return the mean rewards of some outcomes."""
    return np.asarray(mdp.base_reward[pair] + mdp.outcomes.bonus[index])


def _with_noise(flow: Flow, draw: np.random.Generator) -> Flow:
    """Return a flow whose rewards are coins, 0 or 1, with the means as they were."""
    ones = draw.binomial(flow.count, np.clip(flow.reward, 0.0, 1.0))
    both = np.concatenate([ones, flow.count - ones])
    reward = np.repeat([1.0, 0.0], ones.size)
    row = np.tile(np.arange(ones.size), 2)[both > 0]
    same = flow.step[row], flow.state[row], flow.action[row], flow.next_state[row]
    return Flow(*same, reward[both > 0], both[both > 0], flow.episodes)

"""The simulator: what a block of episodes under a fixed policy counts, drawn exactly.

Given that N visitors are in s at step h, their outcomes are Multinomial(N, P(.|s, pi_h(s))),
independently over s, for episodes are independent chains. A block of n episodes is one multinomial
draw per visited (step, state): it costs the same for ten episodes and for a trillion. Its exact
regret is the sum over its starts of V*_1 - V^pi_1.

A block of one episode is walked: the same law, drawn by inversion, with less to set up. So are the
episodes of a continuing problem, one after the other, each from where the last one ended: they are
no independent chains.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Flow, Ints

PolicyArray = NDArray[np.generic]  # actions [H, S], or probabilities of actions [H, S, A]


def simulate(mdp: FiniteMDP, policy: PolicyArray, episodes: int, draw: np.random.Generator) -> Flow:
    """Play episodes under a policy [H, S] or [H, S, A] and return what was counted."""
    flows, _ = play(mdp, [policy], np.zeros(mdp.states, np.int64), episodes, draw)
    return flows[0]


def play(
    mdp: FiniteMDP,
    policies: Sequence[PolicyArray],
    which: Ints,
    episodes: int,
    draw: np.random.Generator,
    at: int | None = None,
) -> tuple[dict[int, Flow], int | None]:
    """Play episodes, from each first state [S] under ``which`` of some policies.

    Returns what was counted under each policy that was played. In a continuing problem the first
    episode begins where the last one ended, ``at``, and the end is returned too.
    """
    if episodes == 1 or mdp.known.continuing:
        return play_in_turn(mdp, policies, which, episodes, draw, at)
    starts = divide(np.array([episodes]), mdp.initial_distribution[None], draw)[0]
    flows = {}
    for number in np.unique(which[starts > 0]).tolist():
        own_starts = np.where(which == number, starts, 0)
        flows[number] = play_together(mdp, policies[number], own_starts, draw)
    return flows, None


# All episodes at once -----------------------------------------------------------------------------


def divide(visitors: Ints, probability: Floats, draw: np.random.Generator) -> Ints:
    """Divide visitors [v] among the columns of probabilities [v, n]; what cannot happen never does.

    NumPy's last column takes what rounding leaves, which may be someone at large numbers, so the
    likeliest goes there.
    """
    rows = np.arange(len(probability))
    likeliest = probability.argmax(axis=1)
    swapped = probability.copy()
    swapped[rows, likeliest] = probability[:, -1]
    swapped[:, -1] = probability[rows, likeliest]
    drawn_counts = draw.multinomial(visitors, swapped)
    counts = drawn_counts.copy()
    counts[rows, likeliest] = drawn_counts[:, -1]
    counts[:, -1] = drawn_counts[rows, likeliest]
    return counts


def draw_outcomes(
    start: Ints, probability: Floats, pair: Ints, visitors: Ints, draw: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Draw the outcomes of visitors to some pairs.

    Returns, for each outcome that happened, its row among the visitors, its index and its count.
    """
    sizes = start[pair + 1] - start[pair]
    bits = np.frexp(sizes)[1]
    rows = []
    indices = []
    counts = []
    # Pairs with about as many outcomes are drawn together: padding at most doubles the work.
    for size_class in np.unique(bits):
        members = np.flatnonzero(bits == size_class)
        column = np.arange(sizes[members].max())
        inside = column < sizes[members, None]
        index = np.where(inside, start[pair[members], None] + column, 0)
        law = np.where(inside, probability[index], 0.0)
        count = divide(visitors[members], law, draw)
        row, outcome = np.nonzero(count)
        rows.append(members[row])
        indices.append(index[row, outcome])
        counts.append(count[row, outcome])
    return np.concatenate(rows), np.concatenate(indices), np.concatenate(counts)


def play_together(
    mdp: FiniteMDP, policy: PolicyArray, starts: Ints, draw: np.random.Generator
) -> Flow:
    """Play all episodes with these numbers of first states [S] at once."""
    present = starts  # how many are in each state
    steps = []
    for h in range(mdp.horizon):
        state = np.flatnonzero(present)
        visitors = present[state]
        if policy.ndim == 2:
            action = policy[h, state]
        else:  # random policies split visitors among actions first
            split = divide(visitors, policy[h, state], draw)
            row, action = np.nonzero(split)
            state = state[row]
            visitors = split[row, action]
        pair = state * mdp.actions + action
        row, outcome, count = draw_outcomes(mdp.outcomes.start, mdp.law(h), pair, visitors, draw)
        next_state = mdp.outcomes.next_state[outcome]
        reward = mean_rewards(mdp, pair[row], outcome)
        step = np.full(row.size, h)
        steps.append((step, state[row], action[row], next_state, reward, count))
        present = np.zeros_like(present)
        np.add.at(present, next_state, count)
    columns = [np.concatenate(parts) for parts in zip(*steps, strict=True)]
    step, state, action, next_state, reward, count = columns
    flow = Flow(step, state, action, next_state, reward, count, int(starts.sum()))
    return with_noise(flow, draw) if mdp.reward_noise else flow


# One episode after the other ----------------------------------------------------------------------


def drawn(cumulative: Floats, uniform: float) -> int:
    """Return what a uniform number draws from cumulated probabilities."""
    return min(bisect_right(cumulative, uniform * cumulative[-1]), cumulative.size - 1)


def play_in_turn(
    mdp: FiniteMDP,
    policies: Sequence[PolicyArray],
    which: Ints,
    episodes: int,
    draw: np.random.Generator,
    at: int | None,
) -> tuple[dict[int, Flow], int | None]:
    """Play episodes one after the other, each from where the last one ended.

    The first one begins ``at`` a state, or anywhere.
    """
    first = mdp.outcomes.start.tolist()
    following = mdp.outcomes.next_state
    laws: dict[tuple[int, int], Floats] = {}  # cumulated, of the pairs that were visited

    def next_outcome(step: int, pair: int, uniform: float) -> int:
        time = step % len(mdp.probability)
        if (time, pair) not in laws:
            laws[time, pair] = mdp.law(step)[first[pair] : first[pair + 1]].cumsum()
        return int(first[pair]) + drawn(laws[time, pair], uniform)

    visits: dict[int, Counter[tuple[int, int]]] = {}  # of each policy: of (step, outcome)
    played = Counter[int]()
    state = at
    for _ in range(episodes):
        uniforms = draw.random((mdp.horizon + 1, 2)).tolist()
        if state is None:
            state = drawn(mdp.initial_distribution.cumsum(), uniforms[-1][0])
        number = int(which[state])
        policy = policies[number]
        path = []
        for step, (for_outcome, for_action) in enumerate(uniforms[:-1]):
            if policy.ndim == 2:
                action = int(policy[step, state])
            else:
                action = drawn(policy[step, state].cumsum(), for_action)
            outcome = next_outcome(step, state * mdp.actions + action, for_outcome)
            state = int(following[outcome])
            path.append((step, outcome))
        visits.setdefault(number, Counter()).update(path)
        played[number] += 1
    flows = {}
    for number, counted in sorted(visits.items()):
        flow = flow_of_visits(mdp, counted, played[number])
        flows[number] = with_noise(flow, draw) if mdp.reward_noise else flow
    return flows, state


def flow_of_visits(mdp: FiniteMDP, visits: Counter[tuple[int, int]], episodes: int) -> Flow:
    """Return visits of (step, outcome) as a flow."""
    visited = sorted(visits)
    step, outcome = np.array(visited).T
    pair = np.searchsorted(mdp.outcomes.start, outcome, side="right") - 1
    state, action = np.divmod(pair, mdp.actions)
    next_state = mdp.outcomes.next_state[outcome]
    reward = mean_rewards(mdp, pair, outcome)
    count = np.array([visits[step_outcome] for step_outcome in visited])
    return Flow(step, state, action, next_state, reward, count, episodes)


# Rewards ------------------------------------------------------------------------------------------


def mean_rewards(mdp: FiniteMDP, pair: Ints, outcome: Ints) -> Floats:
    """Return the mean rewards of some outcomes."""
    return np.asarray(mdp.base_reward[pair] + mdp.outcomes.bonus[outcome])


def with_noise(flow: Flow, draw: np.random.Generator) -> Flow:
    """Return a flow whose rewards are coins, 0 or 1, with the means as they were."""
    ones = draw.binomial(flow.count, np.clip(flow.reward, 0.0, 1.0))
    count = np.concatenate([ones, flow.count - ones])
    reward = np.repeat([1.0, 0.0], ones.size)
    happened = count > 0
    row = np.tile(np.arange(ones.size), 2)[happened]
    return Flow(
        flow.step[row],
        flow.state[row],
        flow.action[row],
        flow.next_state[row],
        reward[happened],
        count[happened],
        flow.episodes,
    )

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
from typing import Any

import numpy as np

from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Flow, Ints


def divide(visitors: Ints, probability: Floats, draw: np.random.Generator) -> Ints:
    """Divide visitors [v] among the columns of probabilities [v, n]; what cannot happen never does.

    NumPy's last column takes what rounding leaves, which may be someone at large numbers, so the
    likeliest goes there.
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
    for bits in np.unique(
        np.frexp(sizes)[1]
    ):  # rows of about one length together: padding at most doubles the work
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
    return play(mdp, [policy], np.zeros(mdp.states, np.int64), episodes, draw)[0][0]


def drawn(cumulative: Floats, u: float) -> int:
    """Return what a uniform number draws from cumulated probabilities."""
    return min(bisect_right(cumulative, u * cumulative[-1]), cumulative.size - 1)


def play(
    mdp: FiniteMDP,
    policies: Sequence[Any],
    which: Ints,
    episodes: int,
    draw: np.random.Generator,
    at: int | None = None,
) -> tuple[dict[int, Flow], int | None]:
    """Play episodes, from each first state [S] under ``which`` of some policies; return what was counted under each.

    In a continuing problem the first episode begins where the last one ended, ``at``, and the end
    is returned too.
    """
    if episodes == 1 or mdp.known.continuing:
        return in_turn(mdp, policies, which, episodes, draw, at)
    starts = divide(np.array([episodes]), mdp.initial_distribution[None], draw)[0]
    used = np.unique(which[starts > 0]).tolist()
    return {
        i: together(mdp, policies[i], np.where(which == i, starts, 0), draw) for i in used
    }, None


def together(mdp: FiniteMDP, policy: Any, starts: Ints, draw: np.random.Generator) -> Flow:
    """Play all episodes with these numbers of first states [S] at once."""
    outcomes, actions, here = mdp.outcomes, mdp.actions, starts
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
        parts.append(
            (
                np.full(row.size, h),
                state[row],
                action[row],
                after,
                _rewards(mdp, pair[row], index),
                count,
            )
        )
        here = np.zeros_like(here)
        np.add.at(here, after, count)
    step, state, action, after, reward, count = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    flow = Flow(step, state, action, after, reward, count, int(starts.sum()))
    return _with_noise(flow, draw) if mdp.reward_noise else flow


def in_turn(
    mdp: FiniteMDP,
    policies: Sequence[Any],
    which: Ints,
    episodes: int,
    draw: np.random.Generator,
    at: int | None,
) -> tuple[dict[int, Flow], int]:
    """Play episodes one after the other, each from where the last one ended; the first one from ``at``, or anywhere."""
    first, following, stationary = (
        mdp.outcomes.start.tolist(),
        mdp.outcomes.next_state,
        mdp.stationary,
    )
    size, laws = following.size, dict[tuple[int, int], Floats]()

    counts: dict[int, Counter[int]] = {}  # of each policy: of each step * O + outcome
    played = Counter[int]()
    for _ in range(episodes):
        uniform = draw.random((mdp.horizon + 1, 2)).tolist()
        s = drawn(mdp.initial_distribution.cumsum(), uniform[-1][0]) if at is None else at
        i, path = int(which[s]), []
        policy = policies[i]
        for h, (u, v) in enumerate(uniform[:-1]):
            a = int(policy[h, s]) if policy.ndim == 2 else drawn(policy[h, s].cumsum(), v)
            pair, t = s * mdp.actions + a, 0 if stationary else h
            if (t, pair) not in laws:
                laws[t, pair] = mdp.probability[t, first[pair] : first[pair + 1]].cumsum()
            o = first[pair] + drawn(laws[t, pair], u)
            s = int(following[o])
            path.append(h * size + o)
        counts.setdefault(i, Counter()).update(path)
        played[i] += 1
        at = s
    flows = {}
    for i, found in sorted(counts.items()):
        keys = np.array(sorted(found))
        step, index = np.divmod(keys, size)
        at_pair = np.searchsorted(mdp.outcomes.start, index, side="right") - 1
        count = np.array([found[key] for key in keys.tolist()])
        about = (
            *np.divmod(at_pair, mdp.actions),
            following[index],
            _rewards(mdp, at_pair, index),
            count,
        )
        flows[i] = Flow(step, *about, played[i])
        flows[i] = _with_noise(flows[i], draw) if mdp.reward_noise else flows[i]
    return flows, s


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

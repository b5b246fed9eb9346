"""Exact backups on the outcome layout: optimal values, greedy policies, and the value of any policy.

Everything here is one line of mathematics, the Bellman backup of a pair (s, a) under a known kernel (M20),

    Q_h(s, a) = base_reward[s, a] + sum over outcomes o of (s, a):  p_h(o) * ( bonus(o) + V_{h+1}(next_state(o)) ),

which :func:`backup` computes; the other functions differ only in how they put the Q_h(s, .) together. Sums run in the
order of the layout, so results are the same bits on every call, and by any number of threads. Rows count from 0:
``values[h]`` is V_{h+1} of the formulas, and the last row, ``values[H]``, is zero.

Shared arguments: ``outcomes`` (:class:`occamrl.protocols.Outcomes`), ``probability`` [T, O] with T = 1 or T = H,
``base_reward`` [S*A].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from occamrl._core.compile import (
    PIECES,
    OneThread,
    Threads,
    compiled,
    entry,
    hot,
    hot_inline,
    implements,
    threaded,
    threads_for,
)
from occamrl.protocols import Floats, Ints, Outcomes, Truth

_ONE = np.uint64(1)


@hot
def backup(outcomes: Outcomes, probability: Floats, base_reward: Floats, pair: int, values: Floats) -> float:
    """Return Q(s, a), with ``pair`` = s*A + a, ``probability`` [O] of this step and ``values`` [S] of the next."""
    # Unsigned indices: a signed one may be negative, and the code for that case makes this loop up to six times slower.
    q = np.uint64(pair)
    total = 0.0
    for o in range(np.uint64(outcomes.start[q]), np.uint64(outcomes.start[q + _ONE])):
        total += probability[o] * (outcomes.bonus[o] + values[np.uint64(outcomes.next_state[o])])
    return float(base_reward[q] + total)


class StepKernel(NamedTuple):
    """The kernel of a step, with its rewards."""

    outcomes: Outcomes
    probability: Floats  # [O]
    base_reward: Floats  # [S*A]


@hot_inline
def sweep_piece(kernel: StepKernel, chosen: Ints, after: Floats, values: Floats, first: int, last: int) -> None:
    """Write V(s) of the states from ``first`` to ``last``: of the action chosen[s]; where none is, of the best one."""
    outcomes, probability, base_reward = kernel
    actions = base_reward.size // values.size
    for s in range(first, last):
        if chosen.size > 0:
            values[s] = backup(outcomes, probability, base_reward, s * actions + chosen[s], after)
        else:
            best = backup(outcomes, probability, base_reward, s * actions, after)
            for a in range(1, actions):
                best = max(best, backup(outcomes, probability, base_reward, s * actions + a, after))
            values[s] = best


def sweep(threads: Any, kernel: StepKernel, chosen: Ints, after: Floats, values: Floats) -> None:
    """Write V of all states, as :func:`sweep_piece` does."""
    raise TypeError(f"no sweep of type {type(threads).__name__}")


@implements(sweep, OneThread)
def sweep_alone(threads: OneThread, kernel: StepKernel, chosen: Ints, after: Floats, values: Floats) -> None:
    """``sweep`` by one thread."""
    sweep_piece(kernel, chosen, after, values, 0, values.size)


@threaded
def sweep_pieces(
    start: Ints, to: Ints, bonus: Floats, p: Floats, reward: Floats, chosen: Ints, after: Floats, values: Floats
) -> None:
    """``sweep`` by several threads, which take arrays one by one."""
    for piece in prange(PIECES):
        kernel, states = StepKernel(Outcomes(start, to, bonus), p, reward), values.size
        sweep_piece(kernel, chosen, after, values, states * piece // PIECES, states * (piece + 1) // PIECES)


@implements(sweep, Threads)
def sweep_in_threads(threads: Threads, kernel: StepKernel, chosen: Ints, after: Floats, values: Floats) -> None:
    """``sweep`` of very many outcomes."""
    (start, to, bonus), p, reward = kernel
    sweep_pieces(start, to, bonus, p, reward, chosen, after, values)


@entry
def solve_optimal(threads: Any, outcomes: Outcomes, probability: Floats, base_reward: Floats, out: Floats) -> None:
    """Write V* of n kernels, ``probability`` [n*T, O], into ``out`` [n, H + 1, S], whose rows H are zero.

    V*_h(s) = max_a Q*_h(s, a),  V*_{H+1} = 0.
    """
    horizon, steps, nothing = out.shape[1] - 1, probability.shape[0] // out.shape[0], outcomes.start[:0]
    for i in range(out.shape[0]):
        for h in range(horizon - 1, -1, -1):
            p = probability[i * steps + h % steps]
            sweep(threads, StepKernel(outcomes, p, base_reward), nothing, out[i, h + 1], out[i, h])


def optimal_values(outcomes: Outcomes, probability: Floats, base_reward: Floats, states: int, horizon: int) -> Floats:
    """Return V* [H + 1, S]."""
    values = np.zeros((1, horizon + 1, states))
    parts: list[Any] = [np.require(part, requirements=["C", "W"]) for part in (*outcomes, probability, base_reward)]
    solve_optimal(threads_for(outcomes.next_state.size), Outcomes(*parts[:3]), parts[3], parts[4], values)
    return values.reshape(horizon + 1, states)


@compiled
def optimal_policy(outcomes: Outcomes, probability: Floats, base_reward: Floats, values: Floats) -> Ints:
    """Return the policy [H, S] that is greedy on ``values`` [H + 1, S]; ties go to the smallest action."""
    horizon, states = values.shape[0] - 1, values.shape[1]
    actions = base_reward.size // states
    policy = np.zeros((horizon, states), np.int64)
    for h in range(horizon):
        p = probability[h % probability.shape[0]]
        for s in range(states):
            best = backup(outcomes, p, base_reward, s * actions, values[h + 1])
            for a in range(1, actions):
                q = backup(outcomes, p, base_reward, s * actions + a, values[h + 1])
                if q > best:
                    best = q
                    policy[h, s] = a
    return policy


@entry
def policy_values(truth: Truth, policy: Ints, out: Floats) -> None:
    """Compute V^pi_1 of a deterministic policy [H, S] into ``out[0]``.

    For the hot loop: nothing is allocated, ``out`` [2, S] is scratch whose rows take turns (step h writes row h mod 2).
    """
    horizon, probability = policy.shape[0], truth.probability
    out[horizon % 2] = 0.0
    for h in range(horizon - 1, -1, -1):
        p = probability[h % probability.shape[0]]
        kernel = StepKernel(truth.outcomes, p, truth.base_reward)
        sweep(truth.threads, kernel, policy[h], out[(h + 1) % 2], out[h % 2])


@hot
def uniform_policy_values(
    outcomes: Outcomes, probability: Floats, base_reward: Floats, horizon: int, actions: int, out: Floats
) -> None:
    """Compute V_1 of the policy that draws actions uniformly into ``out[0]``; scratch as in :func:`policy_values`."""
    states = base_reward.size // actions
    out[horizon % 2] = 0.0
    for h in range(horizon - 1, -1, -1):
        p = probability[h % probability.shape[0]]
        values, after = out[h % 2], out[(h + 1) % 2]
        for s in range(states):
            total = 0.0
            for a in range(actions):
                total += backup(outcomes, p, base_reward, s * actions + a, after)
            values[s] = total / actions


@compiled
def all_policy_values(outcomes: Outcomes, probability: Floats, base_reward: Floats, policy: Floats) -> Floats:
    """Return V^pi [H + 1, S] of a policy given as action probabilities [H, S, A]."""
    horizon, states, actions = policy.shape
    values = np.zeros((horizon + 1, states))
    for h in range(horizon - 1, -1, -1):
        p = probability[h % probability.shape[0]]
        for s in range(states):
            for a in range(actions):
                if policy[h, s, a] != 0.0:
                    values[h, s] += policy[h, s, a] * backup(outcomes, p, base_reward, s * actions + a, values[h + 1])
    return values

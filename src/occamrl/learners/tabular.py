"""What tabular learners share: lists of outcomes, their counts, and ties that are broken at random.

With c_o the count of outcome o at (s, a), n = N(s, a) visits, and W(o) = bonus(o) + V_{h+1}(s'),
where the bonus is the part of a known reward that depends on the outcome.

Actions whose values are equal are drawn at random: where values are cut at H nearly all are equal
at first, and the smallest action would be played again and again.
"""

from __future__ import annotations

import numpy as np

from occamrl.arrays import Floats, Ints
from occamrl.errors import require_rewards
from occamrl.evidence.counts import CountState, count_outcomes
from occamrl.protocols import Flow, Known, Outcomes


def tabular_outcomes(known: Known) -> Outcomes:
    """Return what may follow every (s, a): what the known rewards list, or every state."""
    require_rewards(known)
    if known.transition_rewards is not None:
        return known.transition_rewards
    pairs = known.states * known.actions
    start = np.arange(pairs + 1) * known.states
    next_state = np.tile(np.arange(known.states), pairs)
    return Outcomes(start, next_state, np.zeros(next_state.size))


def count_flow(state: CountState, outcomes: Outcomes, known: Known, flow: Flow) -> None:
    """Count the outcomes of a block."""
    pair = known.pair_in(outcomes, flow.step, flow.state, flow.action)
    bonus = flow.bonus(known, outcomes)
    count_outcomes(state, outcomes, pair, flow, bonus, known)


def largest_values(known: Known) -> Floats:
    """Return the largest value H of every allowed action [H, S, A]; -inf of the others."""
    values = np.where(known.allowed, float(known.horizon), -np.inf)
    return np.tile(values, (known.horizon, 1, 1))


def best_actions(q: Floats, draw: np.random.Generator) -> Ints:
    """Return the best actions over the last axis, ties at random."""
    # of independent uniform numbers, each tied action has the largest with the same chance
    best = q == q.max(axis=-1, keepdims=True)
    return np.asarray((draw.random(q.shape) * best).argmax(axis=-1))

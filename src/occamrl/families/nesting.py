"""Which members of one finite family are members of another, within rounding.

Two members agree when their kernels differ by at most TOLERANCE everywhere. Candidates are found by sorting a random
projection, so that 100,000 members take a fraction of a second, and then compared entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.errors import FamilyError, NestingError, ShapeError
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.simulators import pair_of_outcome

TOLERANCE = 1e-9


def nest(rungs: Sequence[FiniteFamily]) -> tuple[FiniteFamily, Ints]:
    """Return the largest family, sorted by the first rung that holds a member, and that rung (from 0) per member.

    Raises
    ------
    ShapeError
        Rungs over different states or actions.
    NestingError
        A member of a rung that the next one lacks, or a rung that adds no member.
    """
    first = rungs[0].features
    for m, rung in enumerate(rungs):
        if (rung.features.states, rung.features.actions) != (first.states, first.actions):
            raise ShapeError(
                "rungs",
                index=(m + 1,),
                got=f"S={rung.features.states}, A={rung.features.actions}",
                expected=f"S={first.states}, A={first.actions}, as in the first",
            )
    columns = comparable(rungs)
    level = np.full(rungs[-1].size, len(rungs) - 1, dtype=np.int64)
    place = np.arange(rungs[-1].size)  # where a member of rung m stands in the largest family
    for m in range(len(rungs) - 2, -1, -1):
        found = match(columns[m], columns[m + 1])
        if (found < 0).any():
            member = int(np.argmax(found < 0))
            raise NestingError(
                rungs=(m + 1, m + 2),
                member=member,
                got=f"member {member} of class {m + 1} is not in class {m + 2}",
                expected="every class to hold the one before it",
            )
        place = place[found]
        level[place] = m
        if not (level == m + 1).any():
            raise NestingError(
                rungs=(m + 1, m + 2), member=None, got="two equal classes", expected="each class to add a member"
            )
    order = np.argsort(level, kind="stable")
    return rungs[-1].take(order), level[order]


def match(members: Floats, among: Floats) -> Ints:
    """Return, for each column of ``members`` [d, n], the first column of ``among`` that equals it; -1 if none."""
    weights = np.random.default_rng(0).uniform(0.5, 1.0, size=members.shape[0])  # any numbers in general position
    left, right = weights @ members, weights @ among
    order = np.argsort(right, kind="stable")
    window = TOLERANCE * float(np.sum(weights))
    low = np.searchsorted(right[order], left - window)
    high = np.searchsorted(right[order], left + window, side="right")
    found = np.full(members.shape[1], -1, dtype=np.int64)
    for offset in range(int((high - low).max(initial=0))):
        open_ones = np.flatnonzero(low + offset < high)
        candidates = order[low[open_ones] + offset]
        near = np.abs(members[:, open_ones] - among[:, candidates]).max(axis=0) <= TOLERANCE
        hits, values = open_ones[near], candidates[near]
        unset = (found[hits] < 0) | (values < found[hits])
        found[hits[unset]] = values[unset]
    return found


def _outcome_keys(features: FeatureMap) -> Any:
    """Return (s*A + a, s', reward) of every outcome, [O, 3]; the reward is 0 where the problem fixes it."""
    outcomes = features.layout.outcomes
    rewards = np.zeros(outcomes.next_state.size) if features.rewards is None else np.round(features.rewards, 12)
    return np.stack([pair_of_outcome(outcomes), outcomes.next_state, rewards], axis=1)


def same_features(one: FeatureMap, other: FeatureMap) -> bool:
    """Say whether two maps are the same, entry by entry."""
    if one is other:
        return True
    if type(one.layout) is not type(other.layout) or one.dimension != other.dimension:
        return False
    left, right = _arrays(one), _arrays(other)
    return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def _arrays(features: FeatureMap) -> list[Any]:
    layout = features.layout
    rewards = np.zeros(0) if features.rewards is None else features.rewards
    return [*layout.outcomes[:2], *layout[1:], rewards, features.blocks.of]


def comparable(rungs: Sequence[FiniteFamily]) -> list[Floats]:
    """Return each family as columns that can be compared: parameters over one feature map, or probabilities."""
    if all(same_features(rung.features, rungs[0].features) for rung in rungs):
        return [rung.theta for rung in rungs]
    fixed = {rung.features.rewards is None for rung in rungs}
    if len(fixed) > 1:
        raise FamilyError("rungs", got="rewards fixed by some classes only", expected="by all of them, or by none")
    keys = [_outcome_keys(rung.features) for rung in rungs]
    union, place = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    columns, begin = [], 0
    for rung, own in zip(rungs, keys, strict=True):
        column = np.zeros((len(union), rung.size))
        np.add.at(column, place.ravel()[begin : begin + len(own)], rung.probabilities())
        begin += len(own)
        columns.append(column)
    return columns

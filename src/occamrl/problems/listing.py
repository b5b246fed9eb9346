"""The common form of every way to state an MDP: a list of outcomes with their probabilities and rewards.

A dense kernel, a sparse one and a Gymnasium table all become a :class:`Listing`. Absorbing states, validation and the
outcome layout of :mod:`occamrl.contracts` are then written once (M20).
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from occamrl.contracts import Floats, Ints, Outcomes
from occamrl.errors import ProbabilityError, RewardError
from occamrl.kernels.compile import compiled

TOLERANCE = 1e-9  # how far a row of probabilities may be from summing to one

Array = TypeVar("Array", bound=NDArray[np.generic])


class Listing(NamedTuple):
    """The N outcomes that the statement of a problem mentions, sorted by pair, next state and reward.

    An outcome of probability zero is one whose reward is known although it never happens.
    """

    pair: Ints  # [N] s*A + a
    next_state: Ints  # [N]
    probability: Floats  # [T, N]
    reward: Floats  # [N]


def read_only(array: Array) -> Array:
    """Return ``array``, contiguous, after taking away the right to write to it."""
    array = np.ascontiguousarray(array)  # type: ignore[assignment]  # same element type
    array.flags.writeable = False
    return array


def freeze(listing: Listing) -> Listing:
    """Return the listing with read-only arrays."""
    pair, next_state, probability, reward = listing
    return Listing(read_only(pair), read_only(next_state), read_only(probability), read_only(reward))


def merge(listing: Listing) -> Listing:
    """Sort the outcomes and add up the probabilities of those that have the same pair, next state and reward."""
    order = np.lexsort((listing.reward, listing.next_state, listing.pair))
    pair, next_state, reward = listing.pair[order], listing.next_state[order], listing.reward[order]
    new = np.ones(order.size, bool)
    new[1:] = (np.diff(pair) != 0) | (np.diff(next_state) != 0) | (reward[1:] != reward[:-1])
    first = np.flatnonzero(new)
    probability = np.add.reduceat(listing.probability[:, order], first, axis=1)
    return Listing(pair[first], next_state[first], probability, reward[first])


def absorb(listing: Listing, absorbing: Ints, states: int, actions: int) -> Listing:
    """Make states absorbing: under every action they stay where they are, with reward 0."""
    if absorbing.size == 0:
        return listing
    rests = np.zeros(states, bool)
    rests[absorbing] = True
    here = rests[listing.pair // actions]
    stay = np.repeat(np.flatnonzero(rests), actions)
    pair = stay * actions + np.tile(np.arange(actions), stay.size // actions)
    steps = listing.probability.shape[0]
    return merge(
        Listing(
            np.concatenate([listing.pair, pair]),
            np.concatenate([listing.next_state, stay]),
            np.concatenate([np.where(here, 0.0, listing.probability), np.ones((steps, stay.size))], axis=1),
            np.concatenate([np.where(here, 0.0, listing.reward), np.zeros(stay.size)]),
        )
    )


def validate(listing: Listing, states: int, actions: int, fields: tuple[str, str], reward_of_pair: bool) -> None:
    """Refuse probabilities that are negative, not finite or do not sum to one, and rewards outside [0, 1].

    ``fields`` names the arguments that hold the probabilities and the rewards; ``reward_of_pair`` says that the latter
    is indexed by (s, a) rather than (s, a, s').
    """
    probability, reward = listing.probability, listing.reward

    def where(t: int, o: int) -> tuple[int, ...]:
        step = (t,) if probability.shape[0] > 1 else ()
        return (*step, *divmod(int(listing.pair[o]), actions), int(listing.next_state[o]))

    for bad, expected in ((~np.isfinite(probability), "a finite number"), (probability < 0.0, "a number >= 0")):
        if bad.any():
            t, o = (int(i) for i in np.argwhere(bad)[0])
            raise ProbabilityError(fields[0], got=float(probability[t, o]), expected=expected, index=where(t, o))
    for t, row in enumerate(probability):
        total = np.bincount(listing.pair, weights=row, minlength=states * actions)
        bad = np.abs(total - 1.0) > TOLERANCE
        if bad.any():
            index = divmod(int(bad.argmax()), actions)
            raise ProbabilityError(
                fields[0],
                got=f"a row that sums to {total[bad.argmax()]:.12g}",
                expected="probabilities that sum to 1",
                index=(t, *index) if probability.shape[0] > 1 else index,
            )
    bad = ~((reward >= 0.0) & (reward <= 1.0))  # NaN is bad too
    if bad.any():
        o = int(bad.argmax())
        at = (*divmod(int(listing.pair[o]), actions), int(listing.next_state[o]))
        raise RewardError(
            fields[1], got=float(reward[o]), expected="a reward in [0, 1]", index=at[:2] if reward_of_pair else at
        )


def starts(pair: Ints, pairs: int) -> Ints:
    """Return where the outcomes of each pair begin in a sorted list, and where the last ends."""
    return np.searchsorted(pair, np.arange(pairs + 1)).astype(np.int64)


def base_rewards(listing: Listing, pairs: int) -> Floats:
    """Return, by pair, the part of the reward that no outcome changes: the least one (M20)."""
    return np.minimum.reduceat(listing.reward, starts(listing.pair, pairs)[:-1])


def layout(listing: Listing, base_reward: Floats) -> Outcomes:
    """Return the outcomes of a listing in the layout of the compiled kernels; ``base_reward`` [S*A] is taken out."""
    return Outcomes(
        start=read_only(starts(listing.pair, base_reward.size)),
        next_state=read_only(listing.next_state),
        bonus=read_only(listing.reward - base_reward[listing.pair]),
    )


def possible(listing: Listing) -> Listing:
    """Return the outcomes that happen with positive probability at some step."""
    keep = (listing.probability > 0.0).any(axis=0)
    return Listing(listing.pair[keep], listing.next_state[keep], listing.probability[:, keep], listing.reward[keep])


@compiled
def running_sums(start: Ints, probability: Floats) -> Floats:
    """Return the running sums of each row's probabilities, for drawing by inversion.

    The outcome drawn by a uniform number u in [0, 1) is the first with u < its running sum. The sums are 1 from the
    last outcome of positive probability on, whatever rounding did, so that one is found and it can happen.
    """
    cumulative = np.empty_like(probability)
    for t in range(probability.shape[0]):
        for row in range(start.size - 1):
            total = 0.0
            for o in range(start[row], start[row + 1]):
                total += probability[t, o]
                cumulative[t, o] = min(total, 1.0)
            for o in range(start[row + 1] - 1, start[row] - 1, -1):
                cumulative[t, o] = 1.0
                if probability[t, o] > 0.0:
                    break
    return cumulative

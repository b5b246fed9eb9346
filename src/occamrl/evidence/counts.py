r"""Counts of outcomes: what was seen, which of it is listed, and how well plain counts predict.

**Counts.** :math:`c_o` of the outcomes (s, a, s', reward) seen, N their sum,
:math:`\ell(P) = \sum_o c_o \log P(o)`. All likelihoods are relative to the frequencies
:math:`f_o = c_o/N_{sa}`, the best law there is:
:math:`\ell(P) - \ell(f) = -\sum_{sa} N_{sa}\, KL(f \| P) \le 0`, which keeps its digits when
:math:`\ell` itself no longer does.

**Krichevsky and Trofimov's counts** predict :math:`(c_o + 1/2)/(N_{sa} + k_{sa}/2)` among the k
outcomes that some model lists at (s, a). An outcome that none lists is *novel*. The counts reserve
a little probability for such outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypedDict

import numpy as np
from scipy.special import betaln, gammaln, xlogy

from occamrl.arrays import Floats, Ints, distinct_rows
from occamrl.models.features import FeatureMap
from occamrl.protocols import SAME_REWARD, Flow, Known, Misfit, OutcomeMisfit, Outcomes

JEFFREYS = 0.5  # for each outcome, the prior behind Krichevsky and Trofimov's counts
NOVEL_PAIR, NOVEL_NEXT, NOVEL_COUNT, NOVEL_BONUS = range(4)  # columns of ``novel``
_RESERVED = 0.01  # the same for all novel outcomes together: reserving costs a factor N^-.01
_LARGE = 1e6  # counts from which on Stirling's series is exact
_LISTED = 10  # pairs whose misfit is listed


class CountState(TypedDict):
    """What was counted."""

    count: Ints  # [O] of the outcomes that models list
    novel: Floats  # [n, 4] rows of pair, next state, count and bonus of the others


class Place(NamedTuple):
    """Where a row of outcomes is."""

    step: int | None  # from 1; None: it serves all steps
    state: int
    action: int


def pairs_of(places: Iterable[Place], known: Known) -> list[tuple[Hashable, Hashable]]:
    """Return the states and actions of some places by name, each pair once."""
    pairs = [(known.state_name(s), known.action_name(a)) for _, s, a in places]
    return list(dict.fromkeys(pairs))


def begin_counts(outcomes: Outcomes) -> CountState:
    """Return the counts before any data."""
    return {"count": np.zeros(outcomes.next_state.size, np.int64), "novel": np.zeros((0, 4))}


def novel_count(state: CountState) -> int:
    """Return how many of the outcomes seen no model lists."""
    return int(state["novel"][:, NOVEL_COUNT].sum())


class Symbols(NamedTuple):
    """The outcomes that can be told apart: of equal next state and reward one at each (s, a)."""

    outcomes: Outcomes
    order: Ints  # [O] the outcomes of the features, sorted
    first: Ints  # [symbols] where each symbol begins in that order

    def join(self, probability: Floats) -> Floats:
        """Return the probabilities of the symbols from those of the features' outcomes [m, O]."""
        return np.add.reduceat(probability[:, self.order], self.first, axis=1)


def symbols_of(features: FeatureMap, known: Known) -> Symbols:
    """Return what can be told apart of the outcomes of a feature map.

    They are sorted by (s, a), next state and bonus.
    """
    attached = features.attach(known)
    pair = attached.pair
    order, first = distinct_rows(pair, attached.next_state, np.round(attached.bonus, 9))
    kept = order[first]
    start = np.searchsorted(pair[kept], np.arange(attached.start.size))
    outcomes = Outcomes(start, attached.next_state[kept], attached.bonus[kept])
    return Symbols(outcomes, order, first)


def count_outcomes(
    state: CountState, outcomes: Outcomes, pair: Ints, flow: Flow, bonus: Floats, known: Known
) -> Ints:
    """Count what happened at some pairs; return how often each listed outcome did [O]."""
    within = known.reward_tolerance
    symbol = outcomes.index_of(pair, flow.next_state, bonus, known.states, within)
    listed = symbol >= 0
    block = np.zeros(outcomes.next_state.size, np.int64)
    np.add.at(block, symbol[listed], flow.count[listed])
    state["count"] = state["count"] + block
    for row in np.flatnonzero(~listed):
        key = (pair[row], flow.next_state[row])
        same = (state["novel"][:, : NOVEL_NEXT + 1] == key).all(axis=1)
        if not same.any():
            state["novel"] = np.vstack([state["novel"], [*key, 0.0, bonus[row]]])
            same = np.append(same, True)
        state["novel"][same, NOVEL_COUNT] += flow.count[row]
    return block


def symbol_at(outcomes: Outcomes, pair: int, next_state: int, bonus: float) -> int:
    """Return the number of one outcome of a pair, -1 if it is not listed.

    Of several with one next state it is the one with the nearest bonus, if that is near.
    """
    first = int(outcomes.start[pair])
    last = int(outcomes.start[pair + 1])
    candidates = first + np.flatnonzero(outcomes.next_state[first:last] == next_state)
    if not candidates.size:
        return -1
    distance = np.abs(outcomes.bonus[candidates] - bonus)
    nearest = int(distance.argmin())
    return int(candidates[nearest]) if distance[nearest] <= SAME_REWARD else -1


def log_frequencies(count: Ints | Floats, outcomes: Outcomes) -> Floats:
    """Return log(c_o/N_sa) of every outcome [O]; 0 where none was seen."""
    visits = np.add.reduceat(count, outcomes.start[:-1])[outcomes.pair]
    logs = np.zeros(count.size)
    np.log(count / np.maximum(visits, 1), out=logs, where=count > 0)
    return logs


def counted_evidence(count: Ints, outcomes: Outcomes, novel: float = 0.0) -> float:
    r"""Return how well the counts have predicted, minus the likelihood of the frequencies.

    The order of the outcomes does not matter: :math:`\prod_o \Gamma(c_o + 1/2)/\Gamma(1/2)` over
    :math:`\Gamma(N_{sa} + k/2)/\Gamma(k/2)`, so that a block is predicted as its outcomes one after
    the other are. That the next outcome is novel has the probability (n + e)/(N + n + 1 + e) after
    n novel ones, e = .01.
    """
    visits = np.add.reduceat(count, outcomes.start[:-1])
    visited = visits > 0
    half = JEFFREYS * np.diff(outcomes.start)[visited]
    of_outcomes = log_gamma_excess(count[count > 0], JEFFREYS) - gammaln(JEFFREYS)
    of_pairs = gammaln(half) - log_gamma_excess(visits[visited], half)
    reserved = betaln(novel + _RESERVED, count.sum() + 1.0) - betaln(_RESERVED, 1.0)
    return float(of_outcomes.sum() + of_pairs.sum() + reserved)


def log_gamma_excess(count: Ints | Floats, shift: float | Floats) -> Floats:
    """Return log Gamma(c + a) - c log c + c; for large c, where digits are lost, by its series."""
    c = np.asarray(count, dtype=np.float64)
    direct = gammaln(c + shift) - xlogy(c, c) + c
    stirling = (np.square(shift) - shift + 1.0 / 6.0) / (2.0 * c)
    series = (shift - 0.5) * np.log(c) + 0.5 * math.log(2.0 * math.pi) + stirling
    return np.asarray(np.where(c < _LARGE, direct, series))


def outcome_misfits(
    state: CountState,
    outcomes: Outcomes,
    probability: Floats,
    place_of: Callable[[int], Place],
    known: Known,
) -> list[Misfit]:
    """Return where a law of the outcomes [O] misfits, row by row, novel outcomes first.

    The nats of a row are the sum of c_o log(c_o/(N P(o))) over its outcomes.
    """
    count = state["count"]
    visits = np.add.reduceat(count, outcomes.start[:-1])
    expected = visits[outcomes.pair] * probability
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(count / np.maximum(expected, 1e-300))
        nats = np.where(count > 0, count * ratio, 0.0)
    nats_of_pair = np.add.reduceat(nats, outcomes.start[:-1])
    novel = state["novel"]
    novel_pair = novel[:, NOVEL_PAIR].astype(np.int64)
    taken = visits + np.bincount(novel_pair, novel[:, NOVEL_COUNT], visits.size)

    def misfit(
        pair: int, next_state: int, seen: float, predicted: float, nats: float
    ) -> OutcomeMisfit:
        step, s, a = place_of(pair)
        return OutcomeMisfit(
            state=known.state_name(s),
            action=known.action_name(a),
            next_state=known.state_name(next_state),
            seen=int(seen),
            of=int(taken[pair]),
            predicted=float(predicted),
            nats=float(nats),
            step=step,
        )

    misfits: list[Misfit] = []
    for row in novel[np.argsort(-novel[:, NOVEL_COUNT])]:
        pair = int(row[NOVEL_PAIR])
        misfits.append(misfit(pair, int(row[NOVEL_NEXT]), row[NOVEL_COUNT], 0.0, math.inf))
    for pair in np.argsort(-nats_of_pair)[:_LISTED].tolist():
        if nats_of_pair[pair] <= 0.0:
            break
        listed = slice(outcomes.start[pair], outcomes.start[pair + 1])
        worst = listed.start + int(np.abs(count[listed] - expected[listed]).argmax())
        next_state = int(outcomes.next_state[worst])
        misfits.append(misfit(pair, next_state, count[worst], expected[worst], nats_of_pair[pair]))
    return misfits[:_LISTED]

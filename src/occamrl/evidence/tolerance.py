r"""Evidence that forgives: models that are off by at most a tolerance at every step.

Around a law p of the outcomes at (s, a) lies the ball B of all laws within total variation
:math:`\varepsilon` of it. For a law q that is fixed before the outcome o, let p' be the law of B
with the largest :math:`\sum_o q(o) \log p'(o)`. B is convex, so
:math:`\sum_o q(o) (P(o) - p'(o))/p'(o) \le 0` for every P in B, which says

.. math:: E_P\Big[\frac{q(o)}{p'(o)}\Big] \le 1 \quad \text{for every } P \in B:

:math:`e = q(o)/p'(o)` is an e-value against all of B at once (Huber 1965), and so is a product of
them over steps, each q fixed before its step. It stays one for truths that change with time or
depend on the past, as long as each step's law is within :math:`\varepsilon`.

**Closed form.** With r = q/p, upper prefixes T by falling r and lower ones by rising r,

.. math:: \alpha = \max_T \frac{q(T)}{p(T) + \varepsilon}, \qquad
    \beta = \min_{T:\, p(T) > \varepsilon} \frac{q(T)}{p(T) - \varepsilon}, \qquad
    \frac{q}{p'} = \min(\max(r, \beta), \alpha),

and q/p' = 1 if :math:`\alpha \le \beta`, where q is in B itself. At :math:`\varepsilon = 0` it is
q/p.

**The test.** A member has the evidence :math:`L = \log \frac13 \sum_\lambda \prod (1 - \lambda +
\lambda q/p')` against it, :math:`\lambda` in {.15, .4, 1}: bets of a share of the stake. It is
ruled out while :math:`L > \log(1/\delta)`, by Ville's inequality with probability at most
:math:`\delta` at any time if the truth is in its ball; a class when all its members are.

**Predictions.** At each pair q mixes Krichevsky and Trofimov's counts with what the members
predict, weighed by how well they did with 5 % of an even law; the weights of the two follow their
record at the pair. q is fixed when a block opens, at 1.25 times the data. Blocks are kept as counts
and predictions, so that any tolerance can be asked for afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
from scipy.special import expit, logsumexp

from occamrl.arrays import Bools, Floats, Ints
from occamrl.evidence.counts import JEFFREYS, NOVEL_COUNT, NOVEL_PAIR, CountState
from occamrl.protocols import Outcomes

SHARES = np.array([0.15, 0.4, 1.0])  # of the stake that are bet
# Tolerances that are looked at one after another, from below.
GRID = (
    0.001,
    0.002,
    0.003,
    0.005,
    0.0075,
    0.01,
    0.015,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
)
_GROWTH = 1.25  # of the data from one block to the next
_FLAT = 0.05  # the even share of what members predict
_RESERVED = 0.01  # counts that an outcome that is not listed begins with
_DOUBT = math.log(0.1)  # log-odds of the counts against the members before any data
_CROWD = 64  # members that predict, the best ones
_TOGETHER = 2**22  # probabilities that are worked on at once
_NEAREST = 0.005  # by which a member is off at least where none is right
_TINY = 1e-300


class Roster(Protocol):
    """Evidence with members: those of a list, or points of classes with real parameters."""

    delta: float

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes that can be told apart, by row: a pair, or one of those of a model."""

    def roster(self, state: Any) -> Any:
        """Return the members: numbers [n], or parameters [n, p]."""

    def membership(self, state: Any) -> Bools:
        """Return which members are in each class [M, n]."""

    def log_prior(self, state: Any) -> Floats:
        """Return the logarithms of the members' weights before any data [n]."""

    def laws(self, members: Any, symbols: Ints) -> Floats:
        """Return probabilities of outcomes [n, R, K], some outcomes [R, K] of R rows, -1: none."""


class BetState(TypedDict):
    """Blocks as counts and predictions: a bet for every row of a block that was visited."""

    bet_row: Ints  # [N]
    bet_count: Floats  # of the outcomes of the row, then of all that are not listed; flat
    bet_law: Floats  # q of the same, flat
    closed: int  # bets of blocks that are closed
    opened_at: int  # outcomes that were seen when the open block began
    opened_count: Ints  # [O] those
    opened_novel: Floats  # [rows] those that are not listed
    opened_members: Any  # that predict,
    opened_weights: Floats  # and how much each weighs
    odds: Floats  # [rows] log-odds of the counts against the members, by their record


def begin_bets(outcomes: Outcomes, members: Any) -> BetState:
    """Return no bets; ``members`` are those of the evidence before any data."""
    rows = outcomes.start.size - 1
    return {
        "bet_row": np.zeros(0, np.int64),
        "bet_count": np.zeros(0),
        "bet_law": np.zeros(0),
        "closed": 0,
        "opened_at": -1,
        "opened_count": np.zeros(outcomes.next_state.size, np.int64),
        "opened_novel": np.zeros(rows),
        "opened_members": members[:0],
        "opened_weights": np.zeros(0),
        "odds": np.full(rows, _DOUBT),
    }


# Huber's ratio ------------------------------------------------------------------------------------


def huber_ratio(q: Floats, p: Floats, tolerance: float) -> Floats:
    """Return q/p' for the law p' within a total variation of p that q speaks for most.

    ``q`` [..., K] and ``p`` [..., K] are laws of the same outcomes; those with probability 0 in
    both count for nothing.

    >>> import numpy as np
    >>> from occamrl.evidence.tolerance import huber_ratio
    >>> q, p = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> huber_ratio(q, p, 0.1).round(3).tolist()  # p' is .8, .2
    [0.625, 2.5]
    >>> huber_ratio(q, p, 0.4).tolist()  # q is within the tolerance
    [1.0, 1.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0.0, q / p, 0.0)
        if tolerance == 0.0:
            return ratio
        order = np.argsort(-ratio, axis=-1)
        q, p = np.broadcast_arrays(q, p)
        upper_q = np.take_along_axis(q, order, axis=-1).cumsum(axis=-1)
        upper_p = np.take_along_axis(p, order, axis=-1).cumsum(axis=-1)
        alpha = (upper_q / (upper_p + tolerance)).max(axis=-1, keepdims=True)
        # what an upper prefix leaves is a lower one
        total_q = upper_q[..., -1:]
        total_p = upper_p[..., -1:]
        lower_q = np.concatenate([total_q, total_q - upper_q], axis=-1)
        lower_p = np.concatenate([total_p, total_p - upper_p], axis=-1)
        excess = lower_p - tolerance
        beta = np.where(excess > 0.0, np.maximum(lower_q, 0.0) / excess, np.inf)
        beta = beta.min(axis=-1, keepdims=True)
    inside = alpha <= beta
    return np.where(inside, 1.0, np.minimum(np.maximum(ratio, beta), alpha))


def evidence_rates(
    outcomes: Outcomes, visits: Ints | Floats, law: Floats, members: Floats, tolerance: float
) -> Floats:
    r"""Return by how much the evidence against members [n, O] grows if the truth is a law [O].

    A row that is visited so often adds its visits times :math:`\sum_o q(o) \log(q(o)/p'(o))`, the
    relative entropy to the nearest law within the tolerance.
    """
    rows = np.flatnonzero(visits)
    symbols = padded_symbols(outcomes, rows)
    q = with_remainder(taken(law, symbols))
    nothing = np.zeros((len(members), 1))
    p = with_remainder(np.append(members, nothing, axis=1)[:, symbols])
    logs = np.log(np.where(q > 0.0, huber_ratio(q, p, tolerance), 1.0))
    return np.asarray((q * logs).sum(axis=2) @ visits[rows])


# Bets ---------------------------------------------------------------------------------------------


class Bets(NamedTuple):
    """Some bets, one for each row, padded."""

    symbols: Ints  # [R, K] outcomes of each row, -1: none
    seen: Floats  # [R, K + 1] how often; the last is of all that are not listed
    law: Floats  # [R, K + 1] q


def padded_symbols(outcomes: Outcomes, rows: Ints) -> Ints:
    """Return the outcomes of some rows [R, K], -1 where a row has fewer than others."""
    sizes = np.diff(outcomes.start)[rows]
    offset = np.arange(int(sizes.max(initial=0)))
    return np.where(offset < sizes[:, None], outcomes.start[rows][:, None] + offset, -1)


def taken(values: Floats | Ints, symbols: Ints) -> Floats:
    """Return values [O] of some outcomes, 0 where there is none."""
    return np.append(values, 0.0)[symbols]


def novel_by_row(state: CountState, rows: int) -> Floats:
    """Return how often something happened in each row that is not listed [rows]."""
    row = state["novel"][:, NOVEL_PAIR].astype(np.int64)
    return np.bincount(row, state["novel"][:, NOVEL_COUNT], rows).astype(np.float64)


def record(evidence: Roster, state: Any, before: Ints, novel_before: Floats) -> None:
    """Take note of a block that was counted, with what was predicted before it."""
    outcomes = evidence.outcomes
    block = state["count"] - before
    novel = novel_by_row(state, novel_before.size) - novel_before
    visits = np.add.reduceat(block, outcomes.start[:-1]) + novel
    rows = np.flatnonzero(visits)
    if not rows.size:
        return
    _place(evidence, state, rows[~np.isin(rows, state["bet_row"][state["closed"] :])])
    # of the open block, which bet is on each row, and where it begins in the flat arrays
    open_rows = state["bet_row"][state["closed"] :]
    order = np.argsort(open_rows)
    bet = state["closed"] + order[np.searchsorted(open_rows[order], rows)]
    place = _first_places(outcomes, state["bet_row"])[bet]
    symbols = padded_symbols(outcomes, rows)
    listed = symbols >= 0
    count = state["bet_count"].copy()
    count[(place[:, None] + np.arange(symbols.shape[1]))[listed]] += block[symbols[listed]]
    count[place + listed.sum(axis=1)] += novel[rows]
    state["bet_count"] = count


def _first_places(outcomes: Outcomes, rows: Ints) -> Ints:
    """Return where the bet of each row begins in the flat arrays [N], and where the last ends."""
    sizes = np.diff(outcomes.start)[rows] + 1
    return np.append(0, np.cumsum(sizes))


def _place(evidence: Roster, state: Any, rows: Ints) -> None:
    """Add bets on rows that the open block has not visited yet."""
    if not rows.size:
        return
    symbols = padded_symbols(evidence.outcomes, rows)
    counted, predicted = _predictors(evidence, state, rows, symbols)
    trust = expit(state["odds"][rows])[:, None]
    law = trust * counted + (1.0 - trust) * predicted
    listed = np.append(symbols >= 0, np.ones((rows.size, 1), bool), axis=1)
    state["bet_row"] = np.append(state["bet_row"], rows)
    state["bet_law"] = np.append(state["bet_law"], law[listed])
    state["bet_count"] = np.append(state["bet_count"], np.zeros(int(listed.sum())))


def _predictors(evidence: Roster, state: Any, rows: Ints, symbols: Ints) -> tuple[Floats, Floats]:
    """Return what counts and members predict [R, K + 1], as known when the block opened."""
    listed = symbols >= 0
    sizes = listed.sum(axis=1, keepdims=True)
    count = taken(state["opened_count"], symbols)
    novel = state["opened_novel"][rows][:, None]
    total = count.sum(axis=1, keepdims=True) + novel + JEFFREYS * sizes + _RESERVED
    counted = np.append(np.where(listed, count + JEFFREYS, 0.0), novel + _RESERVED, axis=1) / total
    even = np.append(listed, np.ones((rows.size, 1), bool), axis=1) / (sizes + 1.0)
    predicted = even
    if state["opened_weights"].size:
        laws = with_remainder(evidence.laws(state["opened_members"], symbols))
        mixed = np.tensordot(state["opened_weights"], laws, axes=1)
        predicted = (1.0 - _FLAT) * mixed + _FLAT * even
    return counted, predicted


def with_remainder(laws: Floats) -> Floats:
    """Return laws [..., K] with what they leave to outcomes that are not listed [..., K + 1]."""
    remainder = np.maximum(1.0 - laws.sum(axis=-1, keepdims=True), 0.0)
    return np.append(laws, np.where(remainder > 1e-9, remainder, 0.0), axis=-1)


def open_block(evidence: Roster, state: Any) -> None:
    """Close the open block and open another one, if the data have grown enough."""
    total = int(state["count"].sum() + state["novel"][:, NOVEL_COUNT].sum())
    if state["opened_at"] >= 0 and total < max(1.0, _GROWTH * state["opened_at"]):
        return
    rows = state["bet_row"][state["closed"] :]
    if rows.size:
        symbols = padded_symbols(evidence.outcomes, rows)
        counted, predicted = _predictors(evidence, state, rows, symbols)
        first = _first_places(evidence.outcomes, state["bet_row"])[state["closed"]]
        listed = np.append(symbols >= 0, np.ones((rows.size, 1), bool), axis=1)
        count = np.zeros(listed.shape)
        count[listed] = state["bet_count"][first:]
        advantage = np.log(np.maximum(counted, _TINY)) - np.log(np.maximum(predicted, _TINY))
        odds = state["odds"].copy()
        odds[rows] += (count * np.where(listed, advantage, 0.0)).sum(axis=1)
        state["odds"] = odds
    state["closed"] = state["bet_row"].size
    state["opened_at"] = total
    state["opened_count"] = state["count"]
    state["opened_novel"] = novel_by_row(state, state["odds"].size)
    members, weights = _best_members(evidence, state)
    state["opened_members"] = members
    state["opened_weights"] = weights


def _best_members(evidence: Roster, state: Any) -> tuple[Any, Floats]:
    """Return the members that predict best, and their weights: a posterior, a little flattened."""
    members = evidence.roster(state)
    visited = np.add.reduceat(state["opened_count"], evidence.outcomes.start[:-1])
    rows = np.flatnonzero(visited + state["opened_novel"])
    scores = evidence.log_prior(state).copy()
    for part, symbols in _pieces(evidence, rows, len(members)):
        count = np.append(
            taken(state["opened_count"], symbols),
            state["opened_novel"][rows[part]][:, None],
            axis=1,
        )
        sizes = (symbols >= 0).sum(axis=1, keepdims=True) + 1.0
        laws = with_remainder(evidence.laws(members, symbols))
        logs = np.log((1.0 - _FLAT) * laws + _FLAT / sizes)
        scores += np.tensordot(logs, count, axes=2)
    best = np.argsort(-scores, kind="stable")[:_CROWD]
    weights = np.exp(scores[best] - scores[best[0]])
    kept = weights > 1e-6
    return members[best[kept]], weights[kept] / weights[kept].sum()


def _pieces(evidence: Roster, rows: Ints, members: int) -> Iterator[tuple[slice, Ints]]:
    """Yield rows in pieces that are worked on at once, with their outcomes."""
    largest = int(np.diff(evidence.outcomes.start)[rows].max(initial=1)) + 1
    together = max(1, _TOGETHER // (largest * max(members, 1)))
    for first in range(0, rows.size, together):
        part = slice(first, first + together)
        yield part, padded_symbols(evidence.outcomes, rows[part])


class Stakes(NamedTuple):
    """What bets against some members have come to, of blocks that are closed."""

    members: Any
    bets: int
    logs: Floats  # [shares, n]


def evidence_against(
    evidence: Roster, state: Any, members: Any, tolerance: float, before: Stakes | None = None
) -> tuple[Floats, Stakes]:
    """Return L [n]: the evidence against some members within a tolerance, of all bets so far.

    Goes on from the stakes ``before`` of the same members; returns those of now as well.
    """
    first = 0
    logs = np.zeros((SHARES.size, len(members)))
    if before is not None:
        first = before.bets
        logs = before.logs
    closed = logs + _won(evidence, state, members, tolerance, first, state["closed"])
    opened = _won(evidence, state, members, tolerance, state["closed"], state["bet_row"].size)
    against = logsumexp(closed + opened, axis=0) - math.log(SHARES.size)
    return np.asarray(against), Stakes(members, state["closed"], closed)


def _won(
    evidence: Roster, state: Any, members: Any, tolerance: float, first: int, last: int
) -> Floats:
    """Return the logarithms of what some of the bets have won [shares, n]."""
    logs = np.zeros((SHARES.size, len(members)))
    rows = state["bet_row"][first:last]
    place = _first_places(evidence.outcomes, state["bet_row"])[first:]
    for part, symbols in _pieces(evidence, rows, len(members)):
        bets = _bets(state, symbols, place[part.start : part.stop + 1])
        laws = with_remainder(evidence.laws(members, symbols))
        seen = bets.seen > 0.0
        ratio = huber_ratio(bets.law, laws, tolerance)[:, seen]
        for i, share in enumerate(SHARES):
            logs[i] += np.log1p(share * (ratio - 1.0)) @ bets.seen[seen]
    return logs


def _bets(state: Any, symbols: Ints, first: Ints) -> Bets:
    """Return the bets that begin at some places of the flat arrays."""
    flat = slice(int(first[0]), int(first[0]) + int((symbols >= 0).sum()) + len(symbols))
    listed = np.append(symbols >= 0, np.ones((len(symbols), 1), bool), axis=1)
    count = np.zeros(listed.shape)
    law = np.zeros(listed.shape)
    count[listed] = state["bet_count"][flat]
    law[listed] = state["bet_law"][flat]
    return Bets(symbols, count, law)


class Distances(NamedTuple):
    """How far members seem to be off, by row."""

    visits: Floats  # [rows] their shares
    excess: Floats  # [n, rows] beyond what chance alone would bring
    deviation: Floats  # [n, rows] of that by chance


def estimated_distances(evidence: Roster, state: Any, members: Any) -> Distances:
    r"""Return how far members seem to be off in each row: estimates, no bounds.

    The total variation between the frequencies f of a row and p, less what chance alone would bring
    to it, :math:`\frac12 \sum_o \sigma_o \sqrt{2/\pi}` with :math:`\sigma_o^2 = p_o (1 - p_o)/N`;
    its variance by chance is about :math:`\frac14 \sum_o \sigma_o^2 (1 - 2/\pi)`.
    """
    novel = novel_by_row(state, evidence.outcomes.start.size - 1)
    visits = np.add.reduceat(state["count"], evidence.outcomes.start[:-1]) + novel
    rows = np.flatnonzero(visits)
    excess = np.zeros((len(members), visits.size))
    deviation = np.zeros_like(excess)
    for part, symbols in _pieces(evidence, rows, len(members)):
        here = rows[part]
        count = np.append(taken(state["count"], symbols), novel[here][:, None], axis=1)
        laws = with_remainder(evidence.laws(members, symbols))
        total = visits[here][:, None]
        distance = 0.5 * np.abs(count / total - laws).sum(axis=2)
        variance = laws * (1.0 - laws) / total
        excess[:, here] = distance - 0.5 * np.sqrt(2.0 / math.pi * variance).sum(axis=2)
        deviation[:, here] = 0.5 * np.sqrt((1.0 - 2.0 / math.pi) * variance.sum(axis=2))
    return Distances(visits / visits.sum(), excess, deviation)


def prior_counts(evidence: Roster, state: Any) -> Floats:
    r"""Return counts [O] of the member that comes nearest on average, to begin a table with.

    If it seems to be off by :math:`\varepsilon`, each row has :math:`1/(4 \varepsilon^2)` of them,
    so that draws of the table are about as far from it: for acting, where no member is right.
    """
    members = evidence.roster(state)
    distances = estimated_distances(evidence, state, members)
    averages = distances.excess @ distances.visits
    best = int(np.argmin(averages))
    every = padded_symbols(evidence.outcomes, np.arange(evidence.outcomes.start.size - 1))
    law = np.zeros(evidence.outcomes.next_state.size)
    law[every[every >= 0]] = evidence.laws(members[best : best + 1], every)[0][every >= 0]
    return law / (4.0 * max(float(averages[best]), _NEAREST) ** 2)


# What a policy earns ------------------------------------------------------------------------------


class Table(NamedTuple):
    """Members as robust backward induction needs them: the outcomes of all pairs s*A + a, padded.

    T is 1 where one layer serves all steps. Where members are alike, arrays go without the axis of
    members, but for the laws.
    """

    laws: Floats  # [n, T, S*A, K]
    next_state: Ints  # [T, S*A, K] or [n, T, S*A, K], as the next two
    bonus: Floats
    listed: Bools
    reward: Floats  # [S*A] or [n, S*A] minus infinity where an action is not allowed
    discount: float

    @property
    def members(self) -> int:
        """How many members there are."""
        return len(self.laws)

    @property
    def every(self) -> Ints:
        """All pairs."""
        return np.arange(self.laws.shape[2])

    def at_step(self, h: int) -> Table:
        """Return the layer of a step, from 0, without the axis of layers."""
        layer = h % self.laws.shape[1]
        return self._replace(
            laws=self.laws[:, layer],
            next_state=self.next_state[..., layer, :, :],
            bonus=self.bonus[..., layer, :, :],
            listed=self.listed[..., layer, :, :],
        )


def table_of(outcomes: Outcomes, laws: Floats, reward: Floats, discount: float) -> Table:
    """Return members with laws of all outcomes [n, T, O].

    Outcomes of several layers have one law [n, 1, O]; those of one may have a law for each step,
    which lists what it makes possible.
    """
    symbols = padded_symbols(outcomes, np.arange(outcomes.start.size - 1))
    nothing = np.zeros((*laws.shape[:2], 1))
    padded = np.append(laws, nothing, axis=2)[:, :, symbols]
    listed = np.broadcast_to(symbols >= 0, padded.shape[1:])
    if laws.shape[1] > 1:
        listed = listed & (padded > 0.0)
    padded = padded.reshape(len(laws), -1, reward.size, symbols.shape[1])
    next_state = np.append(outcomes.next_state, 0)[symbols]
    # outcomes of one layer serve all
    return Table(
        padded,
        np.resize(next_state, padded.shape[1:]),
        np.resize(taken(outcomes.bonus, symbols), padded.shape[1:]),
        listed.reshape(*listed.shape[:-3], *padded.shape[1:]),
        reward,
        discount,
    )


def stacked(tables: Sequence[Table]) -> Table:
    """Return tables of one member each as one."""
    largest = max((table.laws.shape[1:] for table in tables), key=lambda shape: shape[2])
    laws = np.zeros((len(tables), *largest))
    listed = np.zeros(laws.shape, bool)
    next_state = np.zeros(laws.shape, np.int64)
    bonus = np.zeros(laws.shape)
    for number, table in enumerate(tables):
        size = table.laws.shape[3]
        laws[number, ..., :size] = table.laws[0]
        listed[number, ..., :size] = table.listed
        next_state[number, ..., :size] = table.next_state
        bonus[number, ..., :size] = table.bonus
    reward = np.stack([table.reward for table in tables])
    return Table(laws, next_state, bonus, listed, reward, tables[0].discount)


def least_mean(law: Floats, target: Floats, listed: Bools, tolerance: float) -> Floats:
    """Return the least mean [R] of targets [R, K] over laws within a tolerance of a law [R, K].

    Mass moves from the largest targets to the least that is listed.
    """
    lowest = np.where(listed, target, np.inf).min(axis=-1, keepdims=True)
    lowest = np.where(np.isfinite(lowest), lowest, 0.0)
    target = np.where(listed, target, lowest)
    order = np.argsort(-target, axis=-1)
    mass = np.take_along_axis(law, order, axis=-1)
    before = mass.cumsum(axis=-1) - mass
    moved = np.clip(tolerance - before, 0.0, mass)
    values = np.take_along_axis(target, order, axis=-1)
    mean = ((mass - moved) * values).sum(axis=-1)
    return np.asarray(mean + moved.sum(axis=-1) * lowest[..., 0])


def least_values(table: Table, policy: Ints | Floats, tolerance: float, sign: float) -> Floats:
    """Return the least values [H + 1, n, S] of a policy if every step is off by some tolerance.

    With ``sign`` -1 they are the largest values, negated.
    """
    horizon, states = policy.shape[:2]
    values = np.zeros((horizon + 1, table.members, states))
    for h in reversed(range(horizon)):
        rows = _rows_of(table, policy[h])
        q = _least_q(table, h, rows, values[h + 1], tolerance, sign)
        values[h] = _averaged(q, policy[h])
    return values


def _rows_of(table: Table, policy: Ints | Floats) -> Ints:
    """Return the pairs that a policy takes at a step: actions [S], or shares of actions [S, A]."""
    if policy.ndim == 2:
        return table.every
    actions = table.every.size // len(policy)
    return np.asarray(np.arange(len(policy)) * actions + policy)


def _least_q(
    table: Table, h: int, rows: Ints, values: Floats, tolerance: float, sign: float
) -> Floats:
    """Return the least Q [n, R] of pairs at a step, from 0, for the values [n, S] of the next."""
    bonus = table.at_step(h).bonus[..., rows, :]
    target = sign * bonus + table.discount * _following(table, h, rows, values)
    mean = _mean_at(table, h, rows, target, tolerance)
    reward = table.reward[..., rows]
    allowed = np.isfinite(reward)
    return np.where(allowed, sign * np.where(allowed, reward, 0.0) + mean, -np.inf)


def _following(table: Table, h: int, rows: Ints, values: Floats) -> Floats:
    """Return the values [n, R, K] of what follows some pairs at a step, from 0."""
    next_state = table.at_step(h).next_state[..., rows, :]
    if next_state.ndim == 2:
        return np.asarray(values[:, next_state])
    return np.take_along_axis(values[:, None], next_state, axis=2)


def _mean_at(table: Table, h: int, rows: Ints, target: Floats, tolerance: float) -> Floats:
    """Return the least mean [n, R] of targets [n, R, K] of pairs at a step, from 0."""
    layer = table.at_step(h)
    return least_mean(layer.laws[:, rows], target, layer.listed[..., rows, :], tolerance)


def _averaged(q: Floats, policy: Ints | Floats) -> Floats:
    """Return the mean of Q [n, R] over the actions of a policy at a step [n, S]."""
    if policy.ndim == 1:
        return q
    share = np.asarray(policy, dtype=np.float64)
    q = q.reshape(len(q), *share.shape)
    return np.asarray((np.where(share > 0.0, q, 0.0) * share).sum(axis=2))


def robust_policy(table: Table, states: int, horizon: int, tolerance: float) -> Ints:
    """Return the policy [H, S] with the largest least value within a tolerance of one member."""
    values = np.zeros((1, states))
    policy = np.zeros((horizon, states), np.int64)
    for h in reversed(range(horizon)):
        q = _least_q(table, h, table.every, values, tolerance, 1.0).reshape(1, states, -1)
        policy[h] = q[0].argmax(axis=1)
        values = q.max(axis=2)
    return policy


def largest_worths(table: Table, states: int, horizon: int, tolerance: float) -> Floats:
    """Return the most that any policy earns within a tolerance, by first state [n, S]."""
    negated = np.zeros((table.members, states))
    for h in reversed(range(horizon)):
        q = _least_q(table, h, table.every, negated, tolerance, -1.0)
        q = np.where(np.isfinite(table.reward), q, np.inf)
        negated = q.reshape(len(q), states, -1).min(axis=2)
    return -negated


def least_gains(
    table: Table, policy: Ints, today: Ints | Floats, tolerance: float, sign: float
) -> Floats:
    """Return the least of what a policy earns more than today's, by first state [n, S].

    With ``sign`` -1 it is the largest, negated. Both policies meet one world: as long as they take
    the same actions, what happens to them is the same, and nothing is gained or lost; once they
    part, the one may meet the worst and the other the best within the tolerance.
    """
    horizon, states = policy.shape
    ours = least_values(table, policy, tolerance, sign)
    theirs = least_values(table, today, tolerance, -sign)
    gains = np.zeros((table.members, states))
    for h in reversed(range(horizon)):
        chosen = _rows_of(table, policy[h])
        rows = _rows_of(table, today[h])
        own = _least_q(table, h, chosen, ours[h + 1], tolerance, sign)
        other = _least_q(table, h, rows, theirs[h + 1], tolerance, -sign)
        target = table.discount * _following(table, h, rows, gains)
        mean = _mean_at(table, h, rows, target, tolerance)
        # apart: what each gets from here on; together: what parting later brings
        state = np.repeat(np.arange(states), rows.size // states)
        parted = own[:, state] + other
        gains = _averaged(np.where(rows == chosen[state], mean, parted), today[h])
    return gains

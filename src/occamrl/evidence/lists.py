r"""Evidence for nested lists of kernels: the likelihood of the outcomes themselves.

**Any predictor.** Let q_t be a law of outcomes that is fixed before o_t, and :math:`Q = \sum_t \log
q_t(o_t)`. Then :math:`\prod_t q_t/P^*` is a non-negative supermartingale that begins at 1, so by
Ville's inequality :math:`Q \le \ell(P^*) + \log(1/\delta)` at all times at once with probability 1
- delta.

**One mixture** of the members of a ladder, with its prior w, and of E *competitors* that need no
model,

.. math:: Z = \log\Big[(1 - w_0) \sum_P w(P) e^{\ell(P)} + \frac{w_0}{E} \sum_e e^{Q_e}\Big],
    \quad w_0 = \frac1{M + 1},

is such a predictor. A kernel is alive while :math:`\ell(P) \ge Z - \log(1/\delta)`: the truth is so
at all times with probability 1 - delta. If none is, the truth is no member, and the ladder is
*misspecified*.

**Competitors** are plain counts (:mod:`occamrl.evidence.counts`), and the hull of each class of 2
to 200 members with weights that EM fitted to the past (:mod:`occamrl.evidence.hulls`). A hull is
ruled out when the bound on all its mixtures is below :math:`Z - \log(1/\delta)`: the same event.

An outcome that no member lists is *novel*: impossible for members and hulls for ever. Kept apart,
it has a place in the tabular class.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import logsumexp

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.evidence.counts import (
    Place,
    begin_counts,
    count_outcomes,
    counted_evidence,
    log_frequencies,
    novel_count,
    outcome_misfits,
    pairs_of,
    symbol_at,
    symbols_of,
)
from occamrl.evidence.hulls import (
    HullState,
    begin_hulls,
    draw_hull,
    draw_table,
    open_hulls,
    score_hulls,
)
from occamrl.evidence.region import Region
from occamrl.evidence.starts import (
    DatedState,
    acting_level,
    begin_starts,
    count_starts,
    date_rejections,
    law_of_starts,
    rejected_after,
)
from occamrl.evidence.tolerance import Table, prior_counts, table_of
from occamrl.evidence.worlds import Acting, Choice, FiniteWorlds
from occamrl.models.families import FiniteFamily
from occamrl.protocols import Flow, Judgement, Known, Misfit, Outcomes, ParameterRange

if TYPE_CHECKING:
    from occamrl.models.ladder import Ladder

LARGEST_HULL = 200  # members of a class whose mixtures compete
_UNLIKELY = -14.0  # the logarithm of what stands for 0 where every member rules out what was seen
_NEVER = -1e290  # of 0: no sum of other logarithms is so small, and its product with 0 is 0
_TABLED = 2**26  # logarithms of probabilities that are kept
_TOGETHER = 2**23  # numbers that are worked on at once
_KERNELS_KEPT = 500  # while an answer is found


class Members:
    """The members of a list of kernels as likelihood sees them; made once for its rewards."""

    _made: ClassVar[weakref.WeakKeyDictionary[FiniteFamily, Members]] = weakref.WeakKeyDictionary()

    def __init__(self, family: FiniteFamily, known: Known) -> None:
        self.symbols = symbols_of(family.features, known)
        self.outcomes: Outcomes = self.symbols.outcomes
        self.bonus = family.features.attach(known).bonus
        self.size = family.size
        self._family = weakref.ref(family)
        # of the first members, those of the small classes
        self.hull = self.probability(slice(0, LARGEST_HULL))
        symbols = self.outcomes.next_state.size
        self._together = max(1, _TOGETHER // symbols)
        self._logs: Floats | None = None
        if self.size * symbols <= _TABLED:
            self._logs = np.empty((self.size, symbols))
            for part in self._parts():
                self._logs[part] = self._log_probability(part)

    @classmethod
    def of(cls, family: FiniteFamily, known: Known) -> Members:
        """Return the members as last made, if that was for the same rewards on outcomes."""
        members = cls._made.get(family)
        if members is None or not np.array_equal(
            members.bonus, family.features.attach(known).bonus
        ):
            members = cls(family, known)
            cls._made[family] = members
        return members

    def probability(self, members: Any) -> Floats:
        """Return the probabilities of the symbols under some members [m, symbols]."""
        family = self._family()
        assert family is not None  # noqa: S101  # these go when the family does
        return np.maximum(self.symbols.join(family.probability(members)), 0.0)

    def _parts(self) -> list[slice]:
        """Return the members in pieces that are worked on at once."""
        firsts = range(0, self.size, self._together)
        return [slice(first, first + self._together) for first in firsts]

    def _log_probability(self, part: slice) -> Floats:
        probability = self.probability(part)
        logs = np.full(probability.shape, _NEVER)
        return np.log(probability, out=logs, where=probability > 0.0)

    def likelihoods(self, count: Ints | Floats, impossible: float = -math.inf) -> Floats:
        """Return the likelihood of every member [m], minus that of the frequencies.

        What a member makes impossible has a probability of 0, or one whose logarithm is
        ``impossible``.
        """
        counts = count.astype(np.float64)
        frequency = log_frequencies(count, self.outcomes)
        likelihoods = np.zeros(self.size)
        for part in self._parts():
            logs = self._log_probability(part) if self._logs is None else self._logs[part]
            if impossible > _NEVER:
                logs = np.maximum(logs, impossible)
            rough = logs @ counts - frequency @ counts
            # differences are taken before sums, so that the digits of the best members are not
            # lost at large counts
            limit = rough.max(initial=-np.inf) - 100.0 - 1e-12 * counts.sum()
            near = np.flatnonzero(rough >= limit)
            rough[near] = (logs[near] - frequency) @ counts
            likelihoods[part] = np.where(rough > 0.5 * _NEVER, rough, -np.inf)
        return likelihoods


class Scored(NamedTuple):
    """How well everything in Z explains some counts."""

    counts: Ints  # [O] a block makes a new array of them
    scores: Floats  # [members + hulls + 1] log-likelihoods, and what competitors predicted
    mixture: float  # Z


class ListState(HullState, DatedState):
    """What the evidence for lists keeps."""


def hull_sizes(ladder: Ladder) -> dict[int, int]:
    """Return the classes, from 1, whose hulls compete, and how many members they have."""
    return {m: n for m, n in enumerate(ladder.sizes, start=1) if 2 <= n <= LARGEST_HULL}


def log_weights(ladder: Ladder) -> Floats:
    """Return the logarithms of the weights in Z: of the members, of the hulls, of the counts."""
    share = 1.0 / (ladder.classes + 1.0)
    competitors = len(hull_sizes(ladder)) + 1
    weights = np.append((1.0 - share) * ladder.prior, np.full(competitors, share / competitors))
    return np.asarray(np.log(weights))


class ListEvidence:
    """The evidence for nested lists of kernels on one problem, by likelihood."""

    kind = "likelihood"

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        self.ladder = ladder
        self.known = known
        self.delta = delta
        self.hulls = hull_sizes(ladder)
        self.log_weights = log_weights(ladder)
        self._scored: Scored | None = None  # the last

    @property
    def members(self) -> Members:
        """The members as likelihood sees them."""
        return Members.of(self.ladder.family, self.known)

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes that can be told apart, by pair s*A + a."""
        return self.members.outcomes

    # The contract ---------------------------------------------------------------------------------

    def begin(self) -> ListState:
        """Return the state before any data."""
        weights, score, fitted = begin_hulls(list(self.hulls.values()))
        return {
            **begin_counts(self.outcomes),
            **begin_starts(self.known),
            "weights": weights,
            "score": score,
            "fitted": fitted,
            "rejected": np.zeros(self.ladder.classes, np.int64),
        }

    def add(self, state: ListState, flow: Flow) -> None:
        """Count the outcomes of a flow; hulls are scored first, with their fits to the past."""
        date_rejections(state, self.ladder.count(self.alive(state)))
        before = state["count"]
        pair = self.known.pair_in(self.outcomes, flow.step, flow.state, flow.action)
        bonus = flow.bonus(self.known, self.outcomes)
        block = count_outcomes(state, self.outcomes, pair, flow, bonus, self.known)
        if block.any():
            score_hulls(state, self.outcomes, self.members.hull, before, block)
        count_starts(state, flow)

    def scored(self, state: ListState) -> Scored:
        """Return the scores and Z, which are computed once for each array of counts."""
        if self._scored is not None and self._scored.counts is state["count"]:
            return self._scored
        members = self.members
        novel = float(novel_count(state))
        counted = counted_evidence(state["count"], members.outcomes, novel)
        if novel:
            impossible = np.full(members.size + len(state["weights"]), -np.inf)
            scores = np.append(impossible, counted)
        else:
            likelihoods = members.likelihoods(state["count"])
            scores = np.concatenate([likelihoods, state["score"], [counted]])
        self._scored = Scored(state["count"], scores, float(logsumexp(self.log_weights + scores)))
        return self._scored

    def scores(self, state: ListState) -> Floats:
        """Return the likelihoods of the members, and how well hulls and counts have predicted."""
        return self.scored(state).scores

    def member_scores(self, state: ListState) -> tuple[Floats, float]:
        """Return the likelihoods of all members [m], and the least that a member alive has."""
        return self.scores(state)[: self.members.size], self.least(state)

    def distances(self, state: ListState, kernels: Ints, reference: int) -> Floats:
        """Return the relative entropies of a member's outcomes to those of others, where data are.

        They are summed over what was seen: how much evidence such data bring if it is the truth.
        """
        members = self.members
        visits = np.add.reduceat(state["count"], members.outcomes.start[:-1])
        law = members.probability(slice(reference, reference + 1))[0]
        likelihoods = members.likelihoods(visits[members.outcomes.pair] * law)
        return np.asarray(likelihoods[reference] - likelihoods[kernels])

    def log_mixture(self, state: ListState) -> float:
        """Return Z."""
        return self.scored(state).mixture

    def least(self, state: ListState, level: float | None = None) -> float:
        """Return the likelihood below which a member is ruled out, at delta or another level."""
        return self.log_mixture(state) - math.log(1.0 / (level or self.delta))

    def alive(self, state: ListState, level: float | None = None) -> Bools:
        """Return which members are not ruled out [m], at delta or another level."""
        likelihoods = self.scores(state)[: self.ladder.level.size]
        return np.asarray(likelihoods >= self.least(state, level))

    def judge(self, state: ListState) -> Judgement:
        """Weigh members, hulls and counts."""
        likelihoods = self.scores(state)[: self.members.size]
        still_open = open_hulls(state, self.outcomes, self.members.hull, self.least(state))
        blends = [m for m, fits in zip(self.hulls, still_open, strict=True) if fits]
        alive = tuple(self.ladder.count(self.alive(state)))
        return Judgement(
            against=self.log_mixture(state) - self.ladder.largest(likelihoods),
            alive=alive,
            rejected_after=rejected_after(state, alive),
            log_mixture=self.log_mixture(state),
            blends=tuple(blends),
            novel=novel_count(state),
        )

    def parameters(self, state: ListState, m: int) -> dict[str, ParameterRange]:
        """Return nothing: members of a list have no parameters."""
        return {}

    def describe(self, state: ListState, m: int) -> str:
        """Return nothing: members have no names."""
        return ""

    def misfits(self, state: ListState, m: int) -> list[Misfit]:
        """Return where the best member of class m, from 0, misfits, pair by pair."""
        probability = self.fitted(state, m)
        return outcome_misfits(state, self.outcomes, probability, self.place, self.known)

    def worlds(self, state: ListState) -> FiniteWorlds:
        """Return the members that are not ruled out."""
        alive = np.flatnonzero(self.alive(state))
        return member_worlds(
            self.ladder,
            self.known,
            law_of_starts(self.known, state["starts"]),
            self.judge(state),
            alive,
            self.members.likelihoods(state["count"])[alive],
            lambda m: self.best_kernels(state, m),
        )

    # As members of a roster -----------------------------------------------------------------------

    def roster(self, state: ListState) -> Ints:
        """Return the numbers of all members."""
        return np.arange(self.ladder.level.size)

    def membership(self, state: ListState) -> Bools:
        """Return which members are in each class [M, n]."""
        return np.asarray(self.ladder.level <= np.arange(self.ladder.classes)[:, None])

    def log_prior(self, state: ListState) -> Floats:
        """Return the logarithms of the members' weights before any data [n]."""
        return np.log(self.ladder.prior)

    def laws(self, members: Ints, symbols: Ints) -> Floats:
        """Return probabilities of outcomes [n, R, K], some outcomes [R, K] of R rows, -1: none."""
        probability = self.members.probability(members)
        nothing = np.zeros((len(members), 1))
        return np.append(probability, nothing, axis=1)[:, symbols]

    def keep_point(self, state: ListState, m: int, theta: Floats) -> None:
        """Do nothing: no search adds to a list."""

    def log_likelihoods(self, state: ListState) -> Floats:
        """Return the likelihoods of all members [n]; minus infinity where they are impossible."""
        return self.scores(state)[: self.ladder.level.size]

    def log_likelihood_of(self, state: ListState, member: int) -> float:
        """Return the likelihood of a member."""
        return float(self.scores(state)[member])

    def freedom(self, m: int) -> Sequence[int]:
        """Return nothing: members of a list have no coordinates."""
        return ()

    def ranges(self, region: Region) -> dict[str, ParameterRange]:
        """Return nothing: members of a list have no parameters."""
        return {}

    def table(self, members: Ints) -> Table:
        """Return members as robust backward induction needs them."""
        laws = self.members.probability(members)
        reward = self.known.base_reward.ravel()
        return table_of(self.outcomes, laws[:, None], reward, self.known.discount)

    def best_kernels(self, state: ListState, m: int) -> bellman.Kernels:
        """Return the likeliest member of class m, from 0, for dynamic programming."""
        return self.kernels(self.likeliest(state, m))

    def kernels(self, member: int) -> bellman.Kernels:
        """Return a member as dynamic programming needs it."""
        return self.ladder.family.kernels_of(int(member), self.known)

    def pair_names(self, rows: Ints) -> list[tuple[Hashable, Hashable]]:
        """Return the states and actions of some rows."""
        return pairs_of([self.place(int(row)) for row in rows], self.known)

    def place(self, row: int) -> Place:
        """Return where a row is."""
        layer, pair = divmod(row, self.known.states * self.known.actions)
        step = layer + 1 if self.ladder.by_step else None
        return Place(step, *divmod(pair, self.known.actions))

    # Acting ---------------------------------------------------------------------------------------

    def choose(
        self,
        state: ListState,
        judgement: Judgement,
        classes: int,
        acting: Acting,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose among the members alive of the first classes; without any, draw from a hull.

        Sources are numbered: the members, then the hulls, then the counts.
        """
        source = self._choose_source(state, judgement, classes, acting, law, draw)
        members = self.members.size
        if source == members + len(self.hulls):
            if judgement.misspecified:
                table = draw_table(state, self.outcomes, draw, prior=prior_counts(self, state))
            else:
                table = draw_table(state, self.outcomes, draw)
            kernels = bellman.kernels_of(table.outcomes, table.probability, self.known)
            return Choice(kernels, source, "draw" if judgement.misspecified else "episode")
        if source >= members:
            mixed = draw_hull(state, self.outcomes, self.members.hull, source - members, draw)
            kernels = bellman.kernels_of(self.outcomes, mixed, self.known)
            return Choice(kernels, source, "draw")
        lasts: Literal["member", "draw"] = "member"
        if acting == "sampling":
            lasts = "draw"
        return Choice(self.kernels(source), source, lasts)

    def _choose_source(
        self,
        state: ListState,
        judgement: Judgement,
        classes: int,
        acting: Acting,
        law: Floats,
        draw: np.random.Generator,
    ) -> int:
        scores = self.scores(state)
        members = self.members.size
        # B13: what acting excludes comes back as the level falls
        level = acting_level(self.delta, state["episodes"])
        inside = self.alive(state, level) & (self.ladder.level < classes)
        playable = np.flatnonzero(inside)
        if acting == "sampling":
            # by Gumbel's trick a draw by weight in Z, members that may not be played left out
            weights = self.log_weights + scores
            weights[:members][~inside] = -np.inf
            return int((weights + draw.gumbel(size=weights.size)).argmax())
        if not playable.size:
            hulls = list(self.hulls)
            if judgement.blends:
                return members + hulls.index(judgement.blends[0])
            return members + len(hulls)
        if acting == "fit":
            return int(playable[scores[playable].argmax()])
        # of equal values the likeliest plays: rounded values are compared, the likeliest first
        ordered = playable[np.argsort(-scores[playable], kind="stable")]
        values = self.ladder.family.first_values(self.known, ordered) @ law
        return int(ordered[np.round(values, 9).argmax()])

    # Single outcomes ------------------------------------------------------------------------------

    def likeliest(self, state: ListState, m: int) -> int:
        """Return the likeliest member of class m, from 0.

        If all of them rule out what was seen, it is the nearest.
        """
        inside = self.ladder.level <= m
        likelihoods = self.members.likelihoods(state["count"])
        if not np.isfinite(likelihoods[inside]).any():
            likelihoods = self.members.likelihoods(state["count"], _UNLIKELY)
        return int(np.where(inside, likelihoods, -np.inf).argmax())

    def fit_number(self, state: ListState, m: int) -> int:
        """Return the number of the likeliest member of class m, from 0."""
        return self.likeliest(state, m)

    def fitted(self, state: ListState, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the likeliest member of class m."""
        member = self.likeliest(state, m)
        return np.asarray(self.members.probability(slice(member, member + 1))[0])

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities [O] under the member of class m that fits some counts best."""
        likelihoods = self.members.likelihoods(count)
        member = int(np.where(self.ladder.level <= m, likelihoods, -np.inf).argmax())
        return np.asarray(self.members.probability(slice(member, member + 1))[0])

    def outcome_of(
        self, step: int, s: int, a: int, next_state: int, reward: float
    ) -> tuple[int, int]:
        """Return the pair and the outcome of a step; -1 for one that is not listed."""
        pair = int(self.known.pair_in(self.outcomes, step, s, a))
        bonus = reward - float(self.known.base_reward[s, a])
        return pair, symbol_at(self.outcomes, pair, next_state, bonus)


def member_worlds(
    ladder: Ladder,
    known: Known,
    law: Floats,
    judgement: Judgement,
    members: Ints,
    likelihoods: Floats,
    best_kernels: Callable[[int], bellman.Kernels],
) -> FiniteWorlds:
    """Return some members of a ladder of lists as what is possible."""
    family = ladder.family
    kept: dict[int, bellman.Kernels] = {}

    def kernels(index: int) -> bellman.Kernels:
        if index in kept:
            return kept[index]
        made = family.kernels_of(int(members[index]), known)
        if members.size <= _KERNELS_KEPT:
            kept[index] = made
        return made

    return FiniteWorlds(
        known, law, judgement, ladder.level[members], likelihoods, kernels, best_kernels
    )

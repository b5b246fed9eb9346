r"""Evidence by likelihood: what the outcomes themselves say of kernels, of their mixtures, and of none of them.

**Counts.** :math:`c_o` of the outcomes (s, a, s', reward) seen, N their sum, :math:`\ell(P) = \sum_o c_o \log P(o)`.
All that follows is relative to the frequencies :math:`f_o = c_o/N_{sa}`, the best law there is: what is called the
likelihood of P here is :math:`\ell(P) - \ell(f) = -\sum_{sa} N_{sa}\, KL(f \| P) \le 0`, which keeps its digits when
:math:`\ell` itself no longer does.

**Any predictor.** Let q_t be a law of outcomes that is fixed before o_t, and :math:`Q = \sum_t \log q_t(o_t)`. Then
:math:`\prod_t q_t/P^*` is a non-negative supermartingale that begins at 1, so by Ville's inequality
:math:`Q \le \ell(P^*) + \log(1/\delta)` at all times at once with probability 1 - delta.

**One mixture** of the members of a ladder, with its prior w, and of E *competitors* that need no
model,

.. math:: Z = \log\Big[(1 - w_0) \sum_P w(P) e^{\ell(P)} + \frac{w_0}{E} \sum_e e^{Q_e}\Big], \quad w_0 = \frac1{M + 1},

is such a predictor. A kernel is alive while :math:`\ell(P) \ge Z - \log(1/\delta)`: the truth is so at all times with
probability 1 - delta. If none is, the truth is no member, and the ladder is *misspecified*.

**Competitors.** Krichevsky and Trofimov's counts predict :math:`(c_o + 1/2)/(N_{sa} + k_{sa}/2)` among the k outcomes
that some member lists at (s, a). And the *hull* of each class of 2 to 200 members predicts
:math:`\langle w, P(o)\rangle`, with weights that EM fitted to the past,
:math:`w_i \leftarrow (w_i g_i + 1/n)/(N + 1)`, :math:`g_i = \partial\ell/\partial w_i = \sum_o c_o P_i(o)/\langle w,
P(o)\rangle`.

**Ruling out a hull.** :math:`\ell` is concave in w and :math:`\langle g, w\rangle = N`, so no mixture exceeds
:math:`\ell(w) + \max_i g_i - N`. The hull is ruled out when that is below :math:`Z - \log(1/\delta)`: the same event.

**A draw from a hull.** EM on counts that are replaced by Gamma(c_o, 1), from .9 w + .1/n. On the
tabular class, with Gamma(c_o + 1/2, 1), it is the Dirichlet posterior; elsewhere a Bayesian
bootstrap, which is measured and not proved.

An outcome that no member lists is *novel*: impossible for members and hulls forever. Kept apart, it
has a place in the tabular class, for which the counts reserve a little probability.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, logsumexp, xlogy

from occamrl import bellman
from occamrl.arrays import distinct_rows
from occamrl.models.families import FiniteFamily, simplex_least_squares
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats, Flow, Ints, Known, Outcomes

LARGEST_HULL = 200  # members of a class whose mixtures compete
JEFFREYS = 0.5  # for each outcome, the prior behind Krichevsky and Trofimov's counts
_NOVEL = 0.01  # the same for all novel outcomes together: reserving for them costs a factor N^-.01
_GROWTH, _FIT_STEPS, _MOST_STEPS = 1.02, 3, 15  # EM: 3 steps for every 2 % that the data have grown
_DRAW_STEPS = 20
_TINY = 1e-300  # a prediction is never smaller, so that evidence stays finite
_UNLIKELY = (
    -14.0
)  # the logarithm of what stands for 0 where every member makes something impossible
_NEVER = (
    -1e290
)  # the logarithm of 0: no sum of other logarithms is so small, and its product with 0 is 0
_TABLED = 2**26  # logarithms of probabilities that are kept
_TOGETHER = 2**23  # numbers that are worked on at once
_KEPT = 500  # kernels that are kept while an answer is found
_LARGE = 1e6  # counts from which on Stirling's series is exact


Worth = Callable[[bellman.Kernel], float]  # what a policy, or a change of policy, is worth

# Outcomes -----------------------------------------------------------------------------------------


class Symbols(NamedTuple):
    """The outcomes that can be told apart: of equal next state and reward there is one at each (s, a)."""

    outcomes: Outcomes
    order: Ints  # [O] the outcomes of the features, sorted
    first: Ints  # where each symbol begins in that order

    def join(self, probability: Floats) -> Floats:
        """Return the probabilities of the symbols, given those of the features' outcomes [m, O]."""
        return np.add.reduceat(probability[:, self.order], self.first, axis=1)


def symbols_of(features: FeatureMap, known: Known) -> Symbols:
    """Return what can be told apart of the outcomes of a feature map, sorted by (s, a), next state and bonus."""
    given = features.attach(known)
    pair, bonus = given.pair, np.round(given.bonus, 9)
    order, first = distinct_rows(pair, given.next_state, bonus)
    kept = order[first]
    start = np.searchsorted(pair[kept], np.arange(given.start.size))
    return Symbols(Outcomes(start, given.next_state[kept], given.bonus[kept]), order, first)


class Members:
    """The members of a list of kernels as likelihood sees them; made once for a family and its rewards."""

    _made: ClassVar[weakref.WeakKeyDictionary[FiniteFamily, Members]] = weakref.WeakKeyDictionary()

    def __init__(self, family: FiniteFamily, known: Known) -> None:
        self.symbols, self.bonus = (
            symbols_of(family.features, known),
            family.features.attach(known).bonus,
        )
        self.outcomes, self.size, self._family = (
            self.symbols.outcomes,
            family.size,
            weakref.ref(family),
        )
        self.hull = self.probability(
            slice(0, LARGEST_HULL)
        )  # of the first members, those of the small classes
        symbols = self.outcomes.next_state.size
        self._together = max(1, _TOGETHER // symbols)
        self._logs = np.empty((self.size, symbols)) if self.size * symbols <= _TABLED else None
        if self._logs is not None:
            for part in self._parts():
                self._logs[part] = self._log(part)

    @classmethod
    def of(cls, family: FiniteFamily, known: Known) -> Members:
        """Return the members as last made, if that was for the same rewards on outcomes."""
        made = cls._made.get(family)
        if made is None or not np.array_equal(made.bonus, family.features.attach(known).bonus):
            made = cls._made[family] = cls(family, known)
        return made

    def probability(self, members: Any) -> Floats:
        """Return the probabilities of the symbols under some members [m, symbols]."""
        family = self._family()
        assert family is not None  # noqa: S101  # these go when the family does
        return np.maximum(self.symbols.join(family.probability(members)), 0.0)

    def _parts(self) -> list[slice]:
        return [
            slice(first, first + self._together) for first in range(0, self.size, self._together)
        ]

    def _log(self, members: Any) -> Floats:
        probability = self.probability(members)
        return np.log(probability, out=np.full(probability.shape, _NEVER), where=probability > 0.0)

    def likelihoods(self, count: Ints | Floats, impossible: float = -math.inf) -> Floats:
        """Return the likelihood of every member, minus that of the frequencies.

        What a member makes impossible has a probability of 0, or one whose logarithm is
        ``impossible``.
        """
        counts, frequency = count.astype(np.float64), log_frequencies(count, self.outcomes)
        found = np.zeros(self.size)
        for part in self._parts():
            logs = np.maximum(
                self._log(part) if self._logs is None else self._logs[part], max(impossible, _NEVER)
            )
            rough = logs @ counts - frequency @ counts
            # differences are taken before sums, so that the digits of the best members are not lost at large counts
            near = np.flatnonzero(
                rough >= rough.max(initial=-np.inf) - 100.0 - 1e-12 * counts.sum()
            )
            rough[near] = (logs[near] - frequency) @ counts
            found[part] = np.where(rough > 0.5 * _NEVER, rough, -np.inf)
        return found


# Counting -----------------------------------------------------------------------------------------


def begin(outcomes: Outcomes, hulls: list[int] | None = None) -> dict[str, Any]:
    """Return the evidence before any data, for hulls of the first ``hulls[c]`` members.

    ``count`` [symbols]; ``novel``, a row (pair, next state, count, bonus) for each; of every hull
    its ``weights``, how well it has predicted (``score``), and how many outcomes it is ``fitted``
    to.
    """
    sizes = hulls or []
    return {
        "count": np.zeros(outcomes.next_state.size, np.int64),
        "novel": np.zeros((0, 4)),
        "weights": [np.full(n, 1.0 / n) for n in sizes],
        "score": np.zeros(len(sizes)),
        "fitted": np.zeros(len(sizes), np.int64),
    }


def count_outcomes(
    state: dict[str, Any], outcomes: Outcomes, pair: Ints, flow: Flow, bonus: Floats, states: int
) -> Ints:
    """Count what happened at some pairs, listed outcomes and novel ones; return how often the listed ones did."""
    symbol = outcomes.index_of(pair, flow.next_state, bonus, states)
    listed, block = symbol >= 0, np.zeros(outcomes.next_state.size, np.int64)
    np.add.at(block, symbol[listed], flow.count[listed])
    state["count"] = state["count"] + block
    for row in np.flatnonzero(~listed):
        place = (pair[row], flow.next_state[row])
        same = (state["novel"][:, :2] == place).all(axis=1)
        if not same.any():
            state["novel"] = np.vstack([state["novel"], [*place, 0.0, bonus[row]]])
            same = np.append(same, True)
        state["novel"][same, 2] += flow.count[row]
    return block


def symbol_at(outcomes: Outcomes, row: int, next_state: int, bonus: float) -> int:
    """Return the number of one outcome of a pair, -1 if it is not listed; of equal next states the nearest bonus."""
    first, last = outcomes.start[row : row + 2].tolist()
    found = first + np.flatnonzero(outcomes.next_state[first:last] == next_state)
    return int(found[np.abs(outcomes.bonus[found] - bonus).argmin()]) if found.size else -1


def add(
    state: dict[str, Any], outcomes: Outcomes, known: Known, flow: Flow, hull: Floats | None = None
) -> None:
    """Count the outcomes of a flow; ``hull`` are the probabilities of the members of the largest hull [n, symbols].

    Hulls are scored with the weights that they had before the block, then fitted anew when it is
    time.
    """
    pair, before = flow.state * known.actions + flow.action, state["count"]
    block = count_outcomes(state, outcomes, pair, flow, flow.bonus(known, outcomes), known.states)
    if hull is None or not block.any():
        return
    old, new = log_frequencies(before, outcomes), log_frequencies(state["count"], outcomes)
    total = int(state["count"].sum())
    for c, weights in enumerate(state["weights"]):
        kernels, came = hull[: weights.size], block > 0
        predicted = np.log(np.maximum(weights @ kernels[:, came], _TINY))
        # log q(block), minus the rise of the likelihood of the frequencies
        state["score"][c] += block[came] @ (predicted - new[came]) + before @ (old - new)
        growth = total / max(1, int(state["fitted"][c]))
        if growth >= _GROWTH:
            steps = min(_MOST_STEPS, math.ceil(_FIT_STEPS * math.log(growth) / math.log(_GROWTH)))
            data = data_of(state["count"], outcomes, kernels)
            state["weights"][c] = hull_fit(data, weights, steps, 1.0 / weights.size)
            state["fitted"][c] = total


def log_frequencies(count: Ints | Floats, outcomes: Outcomes) -> Floats:
    """Return log(c_o/N_sa) of every symbol; 0 where there are none."""
    totals = np.add.reduceat(count, outcomes.start[:-1])[outcomes.pair]
    found = np.zeros(count.size)
    np.log(count / np.maximum(totals, 1), out=found, where=count > 0)
    return found


def counted_evidence(count: Ints, outcomes: Outcomes, novel: float = 0.0) -> float:
    r"""Return how well Krichevsky and Trofimov's counts have predicted, minus the likelihood of the frequencies.

    The order of the outcomes does not matter: :math:`\prod_o \Gamma(c_o + 1/2)/\Gamma(1/2)` over
    :math:`\Gamma(N_{sa} + k/2)/\Gamma(k/2)`, so that a block is predicted as its outcomes one after the other are. That
    the next outcome is novel has the probability (n + e)/(N + n + 1 + e) after n novel ones, e = .01.
    """
    totals, half = np.add.reduceat(count, outcomes.start[:-1]), JEFFREYS * np.diff(outcomes.start)
    own = _log_gamma(count[count > 0], JEFFREYS) - gammaln(JEFFREYS)
    pairs = gammaln(half[totals > 0]) - _log_gamma(totals[totals > 0], half[totals > 0])
    reserved = betaln(novel + _NOVEL, count.sum() + 1.0) - betaln(_NOVEL, 1.0)
    return float(own.sum() + pairs.sum() + reserved)


def _log_gamma(count: Any, more: Any) -> Floats:
    """Return log Gamma(c + a) - c log c + c, for large c by Stirling's series."""
    c = np.asarray(count, dtype=np.float64)
    direct = gammaln(c + more) - xlogy(c, c) + c
    series = (
        (more - 0.5) * np.log(c)
        + 0.5 * math.log(2.0 * math.pi)
        + (more**2 - more + 1.0 / 6.0) / (2.0 * c)
    )
    return np.asarray(np.where(c < _LARGE, direct, series))


# Mixtures of members ------------------------------------------------------------------------------


class Data(NamedTuple):
    """What was seen, and how probable some members make it."""

    count: Floats  # type: ignore[assignment]  # [o]; the method of tuples is not needed
    frequency: Floats  # [o] logarithms
    kernels: Floats  # [n, o]


def data_of(count: Ints, outcomes: Outcomes, kernels: Floats) -> Data:
    """Return the outcomes seen, of kernels [n, symbols]."""
    seen = np.flatnonzero(count)
    return Data(
        count[seen].astype(np.float64), log_frequencies(count, outcomes)[seen], kernels[:, seen]
    )


def hull_likelihood(data: Data, weights: Floats) -> tuple[float, Floats]:
    """Return the likelihood of a mixture, minus that of the frequencies, and g - N [n].

    Outcomes that the mixture makes impossible are left out of g; the likelihood is then minus
    infinity.
    """
    mixed = weights @ data.kernels
    possible = mixed > 0.0
    ratio = data.kernels[:, possible] / mixed[possible] - 1.0
    if not possible.all():
        return -math.inf, ratio @ data.count[possible]
    return float(data.count @ (np.log(mixed) - data.frequency)), ratio @ data.count


def hull_fit(data: Data, weights: Floats, steps: int, pseudo: float) -> Floats:
    """Return the weights after some steps of EM; no step lowers the likelihood where ``pseudo`` is 0."""
    total = data.count.sum()
    for _ in range(steps):
        weights = np.maximum(weights * (hull_likelihood(data, weights)[1] + total) + pseudo, 0.0)
        weights = (
            weights / weights.sum()
            if weights.sum() > 0.0
            else np.full(weights.size, 1.0 / weights.size)
        )
    return weights


def hull_bound(data: Data, weights: Floats) -> float:
    """Return what no mixture of the members exceeds, minus the likelihood of the frequencies."""
    likelihood, rise = hull_likelihood(data, weights)
    if likelihood == -math.inf:  # no member allows something seen, or only members with weight 0 do
        return -math.inf if (data.kernels.max(axis=0) <= 0.0).any() else math.inf
    return likelihood + float(rise.max())


def hull_maximum(
    data: Data, weights: Floats, enough: float = math.nan, tolerance: float = 1e-3
) -> tuple[float, float, Floats]:
    r"""Return the best likelihood found of a mixture, a bound on all of them, and the weights; starts from given ones.

    The search ends when the two are within ``tolerance``, or on one side of ``enough``. Each step
    maximises the expansion :math:`-\frac12 \sum_o c_o (\langle q, P(o)\rangle/\langle w,
    P(o)\rangle - 2)^2` of second order over the simplex: least squares over distributions. EM alone
    is slow where some weights are to become 0.
    """
    likelihood, bound = hull_likelihood(data, weights)[0], hull_bound(data, weights)
    root = np.sqrt(data.count)
    for _ in range(100):
        if (
            bound - likelihood <= tolerance
            or likelihood >= enough
            or bound < enough
            or not math.isfinite(likelihood)
        ):
            break
        best = simplex_least_squares((root * data.kernels / (weights @ data.kernels)).T, 2.0 * root)
        step, improved = 0.999999, False
        while (
            step > 1e-9 and not improved
        ):  # concave: some part of the way leads up, unless only rounding is left
            candidate = weights + step * (best - weights)
            after, limit = hull_likelihood(data, candidate)[0], hull_bound(data, candidate)
            improved = after > likelihood or (after >= likelihood - 1e-9 and limit < bound)
            step *= 0.5
        if not improved:
            break
        weights, likelihood, bound = candidate, after, min(bound, limit)
    return likelihood, bound, weights


def hull_evidence(data: Data, weights: Floats) -> float:
    r"""Return a lower bound on :math:`\log\int e^{\ell(\theta)} d\theta`, theta uniform on the simplex.

    For any w and e it is :math:`(n - 1)\log e + \frac1n \sum_i \ell((1 - e) w + e\, e_i)`, here
    with the e that is best up to second order; about :math:`\frac{n-1}2 \log N` below the best
    likelihood.
    """
    likelihood, rise = hull_likelihood(data, weights)
    n = weights.size
    if n == 1 or likelihood == -math.inf:
        return likelihood
    mixed = weights @ data.kernels
    linear = max(0.0, -float(rise.mean()))
    square = max(_TINY, float((((data.kernels / mixed - 1.0) ** 2) @ data.count).mean()))
    # (n - 1) log e - linear e - square e^2/2 is largest where (n - 1)/e = linear + square e
    away = min(0.5, 2.0 * (n - 1) / (linear + math.sqrt(linear**2 + 4.0 * square * (n - 1))))
    moved = np.log((1.0 - away) * mixed + away * data.kernels) - data.frequency
    return (n - 1) * math.log(away) + float((moved @ data.count).mean())


# Members, hulls and counts together ---------------------------------------------------------------


def hull_sizes(ladder: Ladder) -> dict[int, int]:
    """Return the classes, from 1, whose hulls compete, and how many members they have."""
    return {m: size for m, size in enumerate(ladder.sizes, start=1) if 2 <= size <= LARGEST_HULL}


def log_weights(ladder: Ladder) -> Floats:
    """Return the logarithms of the weights in Z: of the members, of the hulls, of the counts."""
    share, competitors = 1.0 / (ladder.classes + 1.0), len(hull_sizes(ladder)) + 1
    return np.asarray(
        np.log(np.append((1.0 - share) * ladder.prior, np.full(competitors, share / competitors)))
    )


def scores(state: dict[str, Any], members: Members) -> Floats:
    """Return the likelihoods of the members and how well the hulls and the counts have predicted, in that order."""
    novel = float(state["novel"][:, 2].sum())
    counted = counted_evidence(state["count"], members.outcomes, novel)
    if novel:
        return np.append(np.full(members.size + len(state["weights"]), -np.inf), counted)
    return np.concatenate([members.likelihoods(state["count"]), state["score"], [counted]])


def open_hulls(state: dict[str, Any], members: Members, least: float) -> NDArray[np.bool_]:
    """Return which hulls are not ruled out: some mixture may have a likelihood of ``least``."""
    if len(state["novel"]):
        return np.zeros(len(state["weights"]), bool)
    data = data_of(state["count"], members.outcomes, members.hull)
    bounds = [
        hull_bound(data._replace(kernels=data.kernels[: own.size]), own) for own in state["weights"]
    ]
    return np.array(bounds, dtype=np.float64) >= least


def draw_hull(state: dict[str, Any], members: Members, c: int, draw: np.random.Generator) -> Floats:
    """Return the probabilities of the symbols under a mixture drawn from hull c."""
    own = state["weights"][c]
    kernels = members.hull[: own.size]
    data = data_of(state["count"], members.outcomes, kernels)
    drawn = data._replace(count=draw.standard_gamma(data.count))
    return hull_fit(drawn, 0.9 * own + 0.1 / own.size, _DRAW_STEPS, 0.0) @ kernels


def draw_table(
    state: dict[str, Any],
    outcomes: Outcomes,
    draw: np.random.Generator,
    concentration: float = JEFFREYS,
) -> tuple[Outcomes, Floats]:
    """Return a draw from the tabular class, Dirichlet rows, over the outcomes listed and the novel ones."""
    count, novel = state["count"], state["novel"]
    if len(novel):
        pair = np.append(outcomes.pair, novel[:, 0].astype(np.int64))
        order = np.argsort(pair, kind="stable")
        next_state = np.append(outcomes.next_state, novel[:, 1].astype(np.int64))[order]
        start = np.searchsorted(pair[order], np.arange(outcomes.start.size))
        outcomes = Outcomes(start, next_state, np.append(outcomes.bonus, novel[:, 3])[order])
        count = np.append(count, novel[:, 2])[order]
    drawn = draw.standard_gamma(count + concentration)
    return outcomes, drawn / np.add.reduceat(drawn, outcomes.start[:-1])[outcomes.pair]


# A ladder of lists --------------------------------------------------------------------------------


class Judgement(NamedTuple):
    """What the evidence says of the classes of a ladder."""

    against: Floats  # [M] nats of evidence against the best member of each class
    left: list[int]  # [M] how many members of each are not ruled out
    blends: list[int]  # classes, from 1, mixtures of whose members still fit
    novel: int  # outcomes that are impossible under every member
    scores: Floats  # of members, hulls and counts; or of the fits
    least: float  # the likelihood below which a member is ruled out


class Choice(NamedTuple):
    """What is played next."""

    kernel: bellman.Kernel
    source: int  # a member, then the hulls, then the counts; or a class with real parameters
    played: float  # episodes, a share of which the plan lasts; 0: it lasts one
    about: dict[str, Any]


class Possible(NamedTuple):
    """The models that are not ruled out: with probability 1 - delta the truth is one of them, at all times."""

    level: Ints  # the first class, from 0, that contains each
    likelihood: Floats
    kernel: Callable[[int], bellman.Kernel]
    extremes: Callable[
        [Worth], list[bellman.Kernel]
    ]  # further ones, at which a function of the kernel may be extreme

    def range(self, worth: Worth) -> tuple[float, float]:
        """Return the least and the largest of a function of the kernel."""
        found = [worth(self.kernel(i)) for i in range(self.level.size)] + [
            worth(each) for each in self.extremes(worth)
        ]
        return min(found), max(found)


def possible_members(ladder: Ladder, known: Known, members: Ints, found: Floats) -> Possible:
    """Return some members of a ladder as what is possible."""
    kernels = (
        [ladder.family.kernel_of(int(i), known) for i in members] if members.size <= _KEPT else []
    )

    def kernel(i: int) -> bellman.Kernel:
        return kernels[i] if kernels else ladder.family.kernel_of(int(members[i]), known)

    return Possible(ladder.level[members], found, kernel, lambda worth: [])


class Lists:
    """The evidence for nested lists of kernels on one problem; its state is that of :func:`begin`, and ``plays``."""

    def __init__(self, ladder: Ladder, known: Known, delta: float) -> None:
        self.ladder, self.known, self.delta = ladder, known, delta
        self.hulls, self.log_weights = hull_sizes(ladder), log_weights(ladder)

    @property
    def members(self) -> Members:
        """The members as likelihood sees them."""
        return Members.of(self.ladder.family, self.known)

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes that can be told apart, by pair s*A + a."""
        return self.members.outcomes

    def begin(self) -> dict[str, Any]:
        """Return the evidence before any data."""
        members = self.members
        return {
            **begin(members.outcomes, list(self.hulls.values())),
            "plays": np.zeros(members.size, np.int64),
        }

    def add(self, state: dict[str, Any], flow: Flow, source: int) -> None:
        """Count the outcomes of a flow, which was played by a source."""
        members = self.members
        add(state, members.outcomes, self.known, flow, members.hull)
        if 0 <= source < members.size:
            state["plays"][source] += flow.episodes

    def alive(self, state: dict[str, Any]) -> NDArray[np.bool_]:
        """Return which members are not ruled out [m]."""
        found = self.judge(state)
        return np.asarray(found.scores[: self.ladder.level.size] >= found.least)

    def judge(self, state: dict[str, Any]) -> Judgement:
        """Weigh members, hulls and counts."""
        members, ladder = self.members, self.ladder
        found = scores(state, members)
        z, own = float(logsumexp(self.log_weights + found)), found[: members.size]
        least = z - math.log(1.0 / self.delta)
        still, novel = open_hulls(state, members, least), int(state["novel"][:, 2].sum())
        blends = [m for m, fits in zip(self.hulls, still, strict=True) if fits]
        return Judgement(
            z - ladder.largest(own), ladder.count(own >= least), blends, novel, found, least
        )

    def choose(
        self,
        state: dict[str, Any],
        found: Judgement,
        most: int,
        acting: str,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose among the members alive of the first ``most`` classes, or draw; if there are none, from a hull."""
        members, level = self.members, self.ladder.level
        size, classes = members.size, list(self.hulls)
        may_play = np.flatnonzero((found.scores[:size] >= found.least) & (level < most))
        if acting == "sampling":
            weight = self.log_weights + found.scores
            weight[np.setdiff1d(np.arange(size), may_play)] = -np.inf
            source = int((weight + draw.gumbel(size=weight.size)).argmax())
        elif not may_play.size:
            source = size + (classes.index(found.blends[0]) if found.blends else len(classes))
        elif acting == "fit":
            source = int(may_play[found.scores[may_play].argmax()])
        else:
            order = np.argsort(
                -found.scores[may_play], kind="stable"
            )  # of equal values the likeliest plays
            ordered = may_play[order]
            values = self.ladder.family.first_values(self.known, ordered) @ law
            source = int(ordered[np.round(values, 9).argmax()])
        if source < size:
            kernel = self.ladder.family.kernel_of(source, self.known)
        elif source < size + len(classes):
            mixed = draw_hull(state, members, source - size, draw)
            kernel = bellman.kernel_of(members.outcomes, mixed, self.known)
        else:
            return Choice(
                bellman.kernel_of(*draw_table(state, members.outcomes, draw), self.known),
                source,
                0.0,
                {},
            )
        drawn = acting == "sampling" or source >= size
        return Choice(
            kernel, source, 0.2 * state["episodes"] if drawn else float(state["plays"][source]), {}
        )

    def possible(self, state: dict[str, Any]) -> Possible:
        """Return the members that are not ruled out."""
        alive = np.flatnonzero(self.alive(state))
        return possible_members(
            self.ladder, self.known, alive, self.members.likelihoods(state["count"])[alive]
        )

    def pair_of(self, pair: int) -> tuple[int, int]:
        """Return the state and action of a pair."""
        return divmod(pair, self.known.actions)

    def likeliest(self, state: dict[str, Any], m: int) -> int:
        """Return the likeliest member of class m, from 0; if all of them rule out what was seen, the nearest."""
        inside, found = self.ladder.level <= m, self.members.likelihoods(state["count"])
        if not np.isfinite(found[inside]).any():
            found = self.members.likelihoods(state["count"], _UNLIKELY)
        return int(np.where(inside, found, -np.inf).argmax())

    def best(
        self, state: dict[str, Any], m: int
    ) -> tuple[bellman.Kernel, dict[str, tuple[float, float, float]]]:
        """Return the likeliest member of class m, from 0, and no parameters: a list has none."""
        return self.ladder.family.kernel_of(self.likeliest(state, m), self.known), {}

    def fitted(self, state: dict[str, Any], m: int) -> tuple[Outcomes, Ints, Floats]:
        """Return outcomes, how often each was seen, and its probability under the likeliest member of class m."""
        member = self.likeliest(state, m)
        return (
            self.members.outcomes,
            state["count"],
            self.members.probability(slice(member, member + 1))[0],
        )

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities of the outcomes under the member of class m that fits some counts best."""
        found = np.where(self.ladder.level <= m, self.members.likelihoods(count), -np.inf)
        member = int(found.argmax())
        return np.asarray(self.members.probability(slice(member, member + 1))[0])

    def place(self, s: int, a: int, next_state: int, reward: float) -> tuple[int, int]:
        """Return the pair and the outcome of a step; -1 for what is not listed."""
        pair, outcomes = s * self.known.actions + a, self.members.outcomes
        return pair, symbol_at(
            outcomes, pair, next_state, reward - float(self.known.base_reward[s, a])
        )

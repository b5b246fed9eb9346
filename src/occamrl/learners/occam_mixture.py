r"""OccamMixture: which few of many simulators the truth is a mixture of, by likelihood.

P = sum_j theta_j P_j with theta on the simplex. Outcomes (s, a, s', reward) are counted, and
likelihoods are relative to the frequencies (:mod:`occamrl.evidence.counts`). Every set D of at
most three simulators, and the set of all, predicts with weights that EM has fitted to the past,

.. math:: w_j \leftarrow (w_j g_j + 1/2)/\sum, \qquad
    g_j = \sum_o c_o P_j(o)/\langle w, P(o)\rangle .

With Q_D the logarithm of what D gave to all outcomes and Q_KT that of Krichevsky and Trofimov's
counts,

.. math:: Z = \log\big[(1 - w_0)\sum_D w(D) e^{Q_D} + w_0 e^{Q_{KT}}\big],

w being even over the sizes, then over the sets of a size, and w_0 = 1/(sizes + 1). A set is
*compatible* unless an upper bound on its likelihood is below Z - log 1/delta: with probability
1 - delta all sets that contain the truth are, at all times (L8).

**Acting.** For a plan a set is drawn by its weight in Z, and a mixture of it by EM on counts that
are replaced by Gamma(c_o, 1). Its optimal policy is played until the data have grown by 2 %. When
the set of all is ruled out, the truth is no mixture, and tables of probabilities are drawn.

Sets that are e^-40 below the threshold are left out of Z from then on, which only lowers it; that
of all stays.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import (
    FeatureError,
    require_delta,
    require_integer,
    require_kind,
    require_rewards,
)
from occamrl.evidence import counts, hulls
from occamrl.evidence.counts import CountState, begin_counts
from occamrl.learners.tabular import count_flow
from occamrl.models.features import FeatureMap, PerProblem, as_dense
from occamrl.protocols import Flow, Known, Learner, Outcomes, Plan

_GROWTH = 0.02  # of the data until a fit is renewed and another kernel drawn
_FIT_STEPS = 3  # of EM, to fit the weights of a set
_DRAW_STEPS = 20  # of EM, to draw a mixture
_MOST_SIMULATORS = {3: 40, 2: 94}  # among which sets of three, and of two, are listed one by one
_HOPELESS = 40.0  # nats behind the threshold from which on a set is left out
_ROUNDING = 1e-8


class MixtureState(CountState):
    """What was counted, and of every set its fit and how well it has predicted."""

    fitted: int  # how many outcomes the weights are fitted to
    weights: Floats  # [sets, d]
    score: Floats  # [sets] Q_D; minus infinity for sets that are left out


class Setting(NamedTuple):
    """A problem as likelihood sees it."""

    outcomes: Outcomes  # that can be told apart
    kernels: Floats  # [d, outcomes]


@dataclass(frozen=True, kw_only=True, eq=False)
class OccamMixture(Learner):
    """Learn which few of many simulators make up the truth, and with which weights.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> draw = np.random.default_rng(0)
    >>> kernels = draw.dirichlet(np.ones(4), size=(5, 4, 2))  # [simulator, s, a, s']
    >>> truth = 0.6 * kernels[1] + 0.4 * kernels[3]
    >>> mdp = orl.FiniteMDP(transition=truth, reward=np.eye(4)[:, :2], horizon=10)
    >>> agent = orl.OccamMixture(features=orl.FeatureMap(list(kernels)))
    >>> result = orl.run(agent, mdp, episodes=200)
    >>> orl.supports(result).necessary
    ('2', '4')

    The compatible sets (:func:`occamrl.supports`) are proved; acting by draws is measured.

    Parameters
    ----------
    features : FeatureMap
        One kernel per coordinate, for instance ``Simulators(...).features``. Sets of up to three
        simulators are weighed one by one, and the set of all; beyond d = 40 sets of up to two,
        beyond d = 94 single ones.
    delta : float
    largest_set : int
        Sets of up to so many simulators are weighed, 3 at most. 0: nothing is selected, and
        mixtures of all of them are fitted.
    """

    features: FeatureMap
    delta: float = 0.05
    largest_set: int = 3

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        if self.features.groups > 1:
            expected = "a dense or sparse one; see PSRL for tables"
            raise FeatureError("features", got="a one-hot map", expected=expected)
        require_delta(self.delta)
        require_integer("largest_set", self.largest_set, 0, maximum=max(_MOST_SIMULATORS))
        sums = self.features.sums
        least = self.features.matrix.min()
        if least < -_ROUNDING or np.abs(sums - 1.0).max() > _ROUNDING:
            got = f"entries from {least:.3g}, sums from {sums.min():.3g} to {sums.max():.3g}"
            expected = "a kernel in every coordinate; see ARLLin for others"
            raise FeatureError("features", got=got, expected=expected)

    def on_features(self, theta: Floats | None) -> OccamMixture:
        """Return the same learner on the simulators that theta mixes, or on all, as one set."""
        features = self.features
        if theta is not None:
            features = features.restrict(np.flatnonzero(theta).tolist())
        return replace(self, features=features, largest_set=0)

    @cached_property
    def sets(self) -> Bools:
        """The sets of simulators that are weighed [n, d], by size; the last has all of them."""
        d = self.features.dimension
        largest = 1
        for size, most in _MOST_SIMULATORS.items():
            if d <= most:
                largest = size
                break
        largest = min(largest, d, self.largest_set)
        sets = []
        for size in range(1, largest + 1):
            for chosen in itertools.combinations(range(d), size):
                members = np.zeros(d, dtype=bool)
                members[list(chosen)] = True
                sets.append(members)
        if largest < d:
            sets.append(np.ones(d, dtype=bool))
        return np.array(sets)

    @cached_property
    def log_weights(self) -> Floats:
        """Log of (1 - w_0) w(D) of every set, and of w_0 of the counts [n + 1]."""
        # the counts are one more term, with the weight of a size
        _, size, count = np.unique(self.sets.sum(axis=1), return_inverse=True, return_counts=True)
        return -np.log(np.append(count[size], 1.0) * (count.size + 1.0))

    @cached_property
    def _settings(self) -> PerProblem:
        return PerProblem()

    def setting(self, known: Known) -> Setting:
        """Return the outcomes that can be told apart, and the simulators' probabilities."""
        if known not in self._settings:
            require_rewards(known)
            symbols = counts.symbols_of(self.features, known)
            kernels = symbols.join(as_dense(self.features.matrix).T)
            self._settings[known] = Setting(symbols.outcomes, kernels)
        setting: Setting = self._settings[known]
        return setting

    def begin(self, known: Known) -> MixtureState:
        """Return the state before any data, with even weights."""
        weights = self.sets / self.sets.sum(axis=1, keepdims=True)
        return {
            **begin_counts(self.setting(known).outcomes),
            "fitted": 0,
            "weights": weights,
            "score": np.zeros(len(weights)),
        }

    def plan(self, known: Known, state: MixtureState, draw: np.random.Generator) -> Plan:
        """Draw a set, then a mixture of it, and return its optimal policy."""
        outcomes, kernels = self.setting(known)
        terms = self.terms(known, state)
        of_sets = terms[:-1]
        data = hulls.seen_by(state["count"], outcomes, kernels)
        # the set of all is the last: no mixture at all exceeds its bound
        bound = hulls.hull_bound(data, state["weights"][-1])
        # what no simulator can produce rules them all out at once
        if len(state["novel"]) or bound < self.least(terms):
            outcomes, law = hulls.draw_table(state, outcomes, draw)
            chosen = []
            misspecified = True
        else:
            members, weights = self.draw_mixture(state, of_sets, data, draw)
            law = weights @ kernels[members]
            # reported is the heaviest set, whichever was drawn to be played
            chosen = np.flatnonzero(self.sets[of_sets.argmax()]).tolist()
            misspecified = False
        kernels_played = bellman.kernels_of(outcomes, law, known)
        values, policy = bellman.solve(kernels_played, known.states, known.horizon)
        return Plan(
            policy=policy,
            values=values,
            episodes=max(1, int(_GROWTH * int(state["count"].sum()) / known.horizon)),
            facts={"chosen": chosen, "misspecified": misspecified},
        )

    def learn(self, known: Known, state: MixtureState, plan: Plan, flow: Flow) -> None:
        """Score the sets on the block with the weights from before it; fit when it is time."""
        before = state["count"]
        count_flow(state, self.setting(known).outcomes, known, flow)
        self.score_sets(known, state, before)
        terms = self.terms(known, state)
        # the last two terms are those of the set of all, which stays, and of the counts
        hopeless = terms[:-2] <= self.least(terms) - _HOPELESS
        state["score"][:-1][hopeless] = -np.inf
        total = int(state["count"].sum())
        if total > state["fitted"] and total >= (1.0 + _GROWTH) * state["fitted"]:
            self.fit_sets(known, state)
            state["fitted"] = total

    def terms(self, known: Known, state: MixtureState) -> Floats:
        """Return the logarithms of the terms of Z: of the sets, then of the counts [n + 1]."""
        outcomes = self.setting(known).outcomes
        counted = counts.counted_evidence(state["count"], outcomes, counts.novel_count(state))
        return np.asarray(self.log_weights + np.append(state["score"], counted))

    def least(self, terms: Floats) -> float:
        """Return Z - log 1/delta, the least likelihood of a compatible mixture."""
        return float(np.logaddexp.reduce(terms)) + math.log(self.delta)

    def draw_mixture(
        self, state: MixtureState, terms: Floats, data: hulls.Seen, draw: np.random.Generator
    ) -> tuple[Ints, Floats]:
        """Draw a set by its weight in Z, and a mixture of it; return its members and weights."""
        weight = np.exp(terms - terms.max())
        index = int(draw.choice(terms.size, p=weight / weight.sum()))
        members = np.flatnonzero(self.sets[index])
        # a start inside the simplex, because EM cannot leave a weight of 0
        weights = 0.9 * state["weights"][index, members] + 0.1 / members.size
        if members.size > 1 and data.count.size:
            drawn = data._replace(
                count=draw.standard_gamma(data.count), kernels=data.kernels[members]
            )
            weights = hulls.hull_fit(drawn, weights, _DRAW_STEPS, 0.0)
        return members, weights

    def score_sets(self, known: Known, state: MixtureState, before: Ints) -> None:
        """Add what every set gave to a block, given the counts before it."""
        if len(state["novel"]):
            state["score"][:] = -np.inf
        outcomes, kernels = self.setting(known)
        block = state["count"] - before
        came = np.flatnonzero(block)
        old = counts.log_frequencies(before, outcomes)
        new = counts.log_frequencies(state["count"], outcomes)
        kept = np.flatnonzero(np.isfinite(state["score"]))
        # a set that makes something impossible gets the logarithm of 0, for good
        with np.errstate(divide="ignore"):
            predicted = np.log(state["weights"][kept] @ kernels[:, came])
        # log q(block), minus the rise of the likelihood of the frequencies
        state["score"][kept] += (predicted - new[came]) @ block[came] + before @ (old - new)

    def fit_sets(self, known: Known, state: MixtureState) -> None:
        """Fit the weights of the sets that are left by some steps of EM."""
        outcomes, kernels = self.setting(known)
        data = hulls.seen_by(state["count"], outcomes, kernels)
        kept = np.isfinite(state["score"])
        kept[-1] = True
        weights = state["weights"][kept]
        for _ in range(_FIT_STEPS):
            mixed = weights @ data.kernels
            share = np.divide(data.count, mixed, out=np.zeros_like(mixed), where=mixed > 0.0)
            weights = weights * (share @ data.kernels.T) + 0.5 * self.sets[kept]
            weights /= weights.sum(axis=1, keepdims=True)
        state["weights"][kept] = weights

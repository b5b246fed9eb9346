r"""Learn which few of many simulators the truth is a mixture of, by the likelihood of the outcomes.

P = sum_j theta_j P_j with theta on the simplex. Outcomes (s, a, s', reward) are counted, and
likelihoods are relative to the frequencies (:mod:`occamrl.evidence.likelihood`). Every set D of at
most three simulators, and the set of all, predicts with weights that EM has fitted to the past,
:math:`w_j \leftarrow (w_j g_j + 1/2)/\sum` with :math:`g_j = \sum_o c_o P_j(o)/\langle w,
P(o)\rangle`. With Q_D the logarithm of what D gave to all outcomes and Q_KT that of Krichevsky and
Trofimov's counts,

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
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamrl import bellman
from occamrl.errors import (
    FeatureError,
    require_delta,
    require_kind,
    require_rewards,
)
from occamrl.evidence import likelihood
from occamrl.models.features import FeatureMap, PerProblem, as_dense
from occamrl.protocols import Floats, Flow, Known, Learner, Outcomes, Plan

_GROWTH = 0.02  # of the data until a fit is renewed and another kernel drawn
_FIT_STEPS, _DRAW_STEPS = 3, 20  # of EM
_MOST_SIMULATORS = {3: 40, 2: 94}  # among which sets of three, and of two, are listed one by one
_HOPELESS = 40.0  # nats behind Z from which on a set is left out
_ROUNDING = 1e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class _Counting(Learner):
    """Counts outcomes, and plays the optimal policy of a kernel that is drawn when the data have grown."""

    features: FeatureMap

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)
        if self.features.groups > 1:
            raise FeatureError(
                "features",
                got="a one-hot map",
                expected="a dense or sparse one; see PSRL for tables",
            )

    @cached_property
    def _settings(self) -> PerProblem:
        return PerProblem()

    def setting(self, known: Known) -> tuple[Outcomes, Floats]:
        """Return the outcomes that can be told apart, and the features of each [d, outcomes]."""
        if known not in self._settings:
            require_rewards(known)
            symbols = likelihood.symbols_of(self.features, known)
            self._settings[known] = symbols.outcomes, symbols.join(as_dense(self.features.matrix).T)
        found: tuple[Outcomes, Floats] = self._settings[known]
        return found

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the counts before any data, and how many of them were fitted."""
        counts = likelihood.begin(self.setting(known)[0])
        return {"count": counts["count"], "novel": counts["novel"], "fitted": 0}

    def plan_for(
        self, known: Known, state: dict[str, Any], outcomes: Outcomes, p: Floats, **more: Any
    ) -> Plan:
        """Return the optimal policy for probabilities [O] as a plan that lasts until the data have grown by 2 %."""
        kernel = bellman.kernel_of(outcomes, p, known)
        values, policy = bellman.solve([kernel], known.states, known.horizon)
        episodes = max(1, int(_GROWTH * int(state["count"].sum()) / known.horizon))
        return Plan(policy=policy, episodes=episodes, values=values, **more)

    def due(self, state: dict[str, Any]) -> bool:
        """Return whether the data have grown by 2 % since the last fit."""
        now = int(state["count"].sum())
        return bool(now > state["fitted"] and now >= (1.0 + _GROWTH) * state["fitted"])


@dataclass(frozen=True, kw_only=True, eq=False)
class OccamMixture(_Counting):
    """Learn which few of many simulators the truth is a mixture of, and with which weights, by likelihood.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(4), size=(5, 4, 2))  # [simulator, s, a, s']
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
    """

    delta: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_delta(self.delta)
        sums, least = self.features.sums, self.features.matrix.min()
        if least < -_ROUNDING or np.abs(sums - 1.0).max() > _ROUNDING:
            got = f"entries from {least:.3g}, sums from {sums.min():.3g} to {sums.max():.3g}"
            raise FeatureError(
                "features",
                got=got,
                expected="a kernel in every coordinate; see ARLLin for others",
            )

    @cached_property
    def sets(self) -> NDArray[np.bool_]:
        """The sets of simulators that are weighed [n, d], by size; the last is that of all."""
        d = self.features.dimension
        sizes = range(
            1, min(next((k for k, most in _MOST_SIMULATORS.items() if d <= most), 1), d) + 1
        )
        unit, whole = np.eye(d, dtype=bool), [np.ones(d, dtype=bool)] * (sizes[-1] < d)
        each = [
            unit[list(D)].any(axis=0) for k in sizes for D in itertools.combinations(range(d), k)
        ]
        return np.array(each + whole)

    @cached_property
    def log_weights(self) -> Floats:
        """Log of (1 - w0) w(D) of every set, and of w0 of Krichevsky and Trofimov's counts [n + 1]."""
        _, size, count = np.unique(self.sets.sum(axis=1), return_inverse=True, return_counts=True)
        return -np.log(np.append(count[size], 1.0) * (count.size + 1.0))

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the counts, even weights [sets, d] and Q_D [sets], which becomes minus infinity for sets left out."""
        even = self.sets / self.sets.sum(axis=1, keepdims=True)
        return super().begin(known) | {"weights": even, "score": np.zeros(len(even))}

    def terms(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return the logarithms of the terms of Z: those of the sets, then that of the counts [n + 1]."""
        novel = float(state["novel"][:, 2].sum())
        counted = likelihood.counted_evidence(state["count"], self.setting(known)[0], novel)
        return np.asarray(self.log_weights + np.append(state["score"], counted))

    def least(self, terms: Floats) -> float:
        """Return Z - log 1/delta, the least likelihood of a compatible mixture."""
        return float(np.logaddexp.reduce(terms)) + math.log(self.delta)

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Draw a set, then a mixture of it, and return its optimal policy."""
        outcomes, kernels = self.setting(known)
        every = self.terms(known, state)
        terms, data = every[:-1], likelihood.data_of(state["count"], outcomes, kernels)
        bound = likelihood.hull_bound(data, state["weights"][-1])
        misspecified = bool(len(state["novel"])) or bound < self.least(every)
        facts = {
            "chosen": np.flatnonzero(self.sets[terms.argmax()]).tolist(),
            "misspecified": misspecified,
        }
        if misspecified:
            outcomes, p = likelihood.draw_table(state, outcomes, draw)
            return self.plan_for(known, state, outcomes, p, facts=facts | {"chosen": []})
        weight = np.exp(terms - terms.max())
        chosen = int(draw.choice(terms.size, p=weight / weight.sum()))
        members = np.flatnonzero(self.sets[chosen])
        weights = 0.9 * state["weights"][chosen, members] + 0.1 / members.size
        if members.size > 1 and data.count.size:
            drawn = data._replace(
                count=draw.standard_gamma(data.count), kernels=data.kernels[members]
            )
            weights = likelihood.hull_fit(drawn, weights, _DRAW_STEPS, 0.0)
        return self.plan_for(known, state, outcomes, weights @ kernels[members], facts=facts)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Score the sets on the block, with the weights from before it; then fit these anew when it is time."""
        outcomes, kernels = self.setting(known)
        before = state["count"]
        likelihood.add(state, outcomes, known, flow)
        state["score"][:] = -np.inf if len(state["novel"]) else state["score"]
        block = state["count"] - before
        came = np.flatnonzero(block)
        old, new = (
            likelihood.log_frequencies(count, outcomes) for count in (before, state["count"])
        )
        kept = np.flatnonzero(np.isfinite(state["score"]))
        with np.errstate(divide="ignore"):
            predicted = np.log(state["weights"][kept] @ kernels[:, came])
        # log q(block), minus the rise of the likelihood of the frequencies
        state["score"][kept] += (predicted - new[came]) @ block[came] + before @ (old - new)
        terms = self.terms(known, state)
        state["score"][:-1][
            terms[:-2] <= self.least(terms) - _HOPELESS
        ] = -np.inf  # the set of all stays
        if self.due(state):
            alive = np.append(
                np.flatnonzero(np.isfinite(state["score"][:-1])), len(state["score"]) - 1
            )
            left, data = (
                state["weights"][alive],
                likelihood.data_of(state["count"], outcomes, kernels),
            )
            for _ in range(_FIT_STEPS):
                mixed = left @ data.kernels
                share = np.divide(data.count, mixed, out=np.zeros_like(mixed), where=mixed > 0.0)
                left = left * (share @ data.kernels.T) + 0.5 * self.sets[alive]
                left /= left.sum(axis=1, keepdims=True)
            state["weights"][alive], state["fitted"] = left, int(state["count"].sum())

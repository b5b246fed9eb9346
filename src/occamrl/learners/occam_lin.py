r"""Learning linear kernels by likelihood: mixtures of simulators, and signed features of which few matter.

Both count outcomes (s, a, s', reward), draw a kernel that the counts make plausible, and play its
optimal policy until the data have grown by 2 %. Likelihoods are relative to the frequencies
(:mod:`occamrl.evidence.likelihood`).

**Mixtures** (:class:`OccamMixture`). P = sum_j theta_j P_j with theta on the simplex. Every set D
of at most three simulators, and the set of all, predicts with weights that EM has fitted to the
past, :math:`w_j \leftarrow (w_j g_j + 1/2)/\sum` with :math:`g_j = \sum_o c_o P_j(o)/\langle w,
P(o)\rangle`. With Q_D the logarithm of what D gave to all outcomes and Q_KT that of Krichevsky and
Trofimov's counts,

.. math:: Z = \log\big[(1 - w_0)\sum_D w(D) e^{Q_D} + w_0 e^{Q_{KT}}\big],

w being even over the sizes, then over the sets of a size, and w_0 = 1/(sizes + 1). A set is *compatible* unless an
upper bound on its likelihood is below Z - log 1/delta: with probability 1 - delta all sets that contain the truth are,
at all times. For a plan a set is drawn by its weight in Z, and a mixture of it by EM on counts replaced by
Gamma(c_o, 1). When the set of all is ruled out, the truth is no mixture, and tables of probabilities are drawn. Other
sets that are e^-40 below the threshold are left out of Z from then on, which only lowers it.

**Signed features** (:class:`OccamLin`). P = p_0 + X eta, eta ~ N(0, I) on an unknown set D of its coordinates and 0
elsewhere. With :math:`\bar c = c + p_0/2` and :math:`p = p_0 + X\eta` at the eta that maximises
:math:`\sum_o \bar c_o \log p(o) - |\eta|^2/2`, found by Newton's method, let
:math:`J = \sum_o \bar c_o x_o x_o^T/p(o)^2` and :math:`b = J\eta + X^T(\bar c/p)`: the likelihood of another
eta is about :math:`e^{b^T\eta - \eta^T J\eta/2}`. Hence

.. math:: w(D \mid data) \propto w(D)\, e^{b_D^T (J_D + I)^{-1} b_D/2} \det(I + J_D)^{-1/2}, \quad
    \eta_D \sim N\big((J_D + I)^{-1} b_D, (J_D + I)^{-1}\big).

D is drawn by a walk with this law, which redraws each coordinate given the others at rate 1 and
goes on from plan to plan.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from occamrl import bellman
from occamrl.errors import (
    FeatureError,
    require_delta,
    require_kind,
    require_number,
    require_rewards,
)
from occamrl.evidence import likelihood
from occamrl.models.features import FeatureMap, PerProblem, as_dense
from occamrl.protocols import Floats, Flow, Ints, Known, Learner, Outcomes, Plan

_GROWTH = 0.02  # of the data until a fit is renewed and another kernel drawn
_FIT_STEPS, _DRAW_STEPS = 3, 20  # of EM
_MOST_SIMULATORS = {3: 40, 2: 94}  # among which sets of three, and of two, are listed one by one
_HOPELESS = 40.0  # nats behind Z from which on a set is left out
_NEWTON_STEPS, _CLOSE = 50, 1e-8
_SMALLEST = 1e-12  # probability of an outcome that the base law allows
_SWEEPS = 2.0  # how often the walk redraws each coordinate between two plans
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
                expected="a kernel in every coordinate; see OccamLin for others",
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
        terms, data = every[:-1], likelihood.seen_by(state["count"], outcomes, kernels)
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
                likelihood.seen_by(state["count"], outcomes, kernels),
            )
            for _ in range(_FIT_STEPS):
                mixed = left @ data.kernels
                share = np.divide(data.count, mixed, out=np.zeros_like(mixed), where=mixed > 0.0)
                left = left * (share @ data.kernels.T) + 0.5 * self.sets[alive]
                left /= left.sum(axis=1, keepdims=True)
            state["weights"][alive], state["fitted"] = left, int(state["count"].sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class OccamLin(_Counting):
    """Learn a linear kernel of which few coordinates matter, by likelihood and draws. Measured, not proved.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.OccamLin(features=orl.FeatureMap(problem.phi))
    >>> result = orl.run(agent, problem, episodes=20)

    Parameters
    ----------
    features : FeatureMap
        Coordinates whose entries sum to zero at every (s, a) are directions: their weights are
        free. The others must sum to one when weighted by theta, and of these theta the smallest
        gives the base law p_0, which must be positive wherever a direction is not zero; the ways to
        change it are directions too. For mixtures of simulators, of which p_0 is the mean and no
        direction is sparse, see :class:`OccamMixture`.
    scale : float
        The weights of directions that matter are about this large: eta/scale has the prior N(0, I).
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("scale", self.scale, 0.0, math.inf, open_low=True)
        base, directions = self.features.matrix @ self.base, self.features.matrix @ self.directions
        if (
            base[np.abs(directions).max(axis=1, initial=0.0) > 0.0] <= 0.0
        ).any() or base.min() < -_ROUNDING:
            got = f"a base law with an entry of {base.min():.3g}"
            raise FeatureError(
                "features",
                got=got,
                expected="one that is positive wherever a direction is not zero",
            )

    @cached_property
    def base(self) -> Floats:
        """Theta of the base law p_0 [d]: the smallest that sums to one, without the coordinates that sum to zero."""
        sums = np.unique(np.round(self.features.sums, 9), axis=0)
        return np.asarray(np.linalg.lstsq(sums, np.ones(len(sums)), rcond=None)[0])

    @cached_property
    def directions(self) -> Floats:
        """Theta of the directions X, times ``scale`` [d, n]: of single coordinates first, by number."""
        sums = np.unique(np.round(self.features.sums, 9), axis=0)
        free, bound = (np.flatnonzero(sums.any(axis=0) == which) for which in (False, True))
        _, values, rows = np.linalg.svd(sums[:, bound])
        between = rows[(values > _ROUNDING * values.max()).sum() :]
        found = np.zeros((self.features.dimension, free.size + len(between)))
        found[free, np.arange(free.size)] = 1.0
        found[bound, free.size :] = between.T
        return self.scale * found

    @cached_property
    def log_weights(self) -> Floats:
        """Log w(D) of a set of 0, ..., n directions [n + 1], even over sizes, then over the sets of a size."""
        n = self.directions.shape[1]
        k = np.arange(n + 1.0)
        return np.asarray(gammaln(k + 1.0) + gammaln(n - k + 1.0) - gammaln(n + 1.0))

    def law(self, known: Known) -> tuple[Floats, Floats]:
        """Return p_0 [outcomes] and X [outcomes, n]."""
        _, columns = self.setting(known)
        return np.maximum(columns.T @ self.base, 0.0), columns.T @ self.directions

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the counts, the last fit (eta, J and b), and where the walk over sets is: no direction is active."""
        n = self.directions.shape[1]
        fit = {"eta": np.zeros(n), "information": np.zeros((n, n)), "linear": np.zeros(n)}
        return super().begin(known) | fit | {"active": np.zeros(n, dtype=bool)}

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Draw a set of directions, then their weights, and return the optimal policy of the kernel."""
        (outcomes, _), (base, directions) = self.setting(known), self.law(known)
        inside = self.walk(state, draw)
        active = np.flatnonzero(inside)
        mean, root = posterior(state["information"], state["linear"], active)
        eta = mean + root @ draw.standard_normal(active.size)
        p = np.maximum(base + directions[:, active] @ eta, _SMALLEST * (base > 0.0))
        p /= np.add.reduceat(p, outcomes.start[:-1])[outcomes.pair]
        changed = np.flatnonzero(self.directions[:, active].any(axis=1)).tolist()
        theta = (self.base + self.directions[:, active] @ mean).tolist()
        diagnostics = {"active": inside.tolist(), "drawn": changed, "estimate": theta}
        return self.plan_for(known, state, outcomes, p, diagnostics=diagnostics)

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Count; when it is time, fit eta by Newton's method from where the last fit ended."""
        likelihood.add(state, self.setting(known)[0], known, flow)
        state["active"] = np.array(plan.diagnostics["active"], dtype=bool)
        if self.due(state):
            base, directions = self.law(known)
            fit = expand(state["count"] + 0.5 * base, base, directions, state["eta"])
            state["eta"], state["information"], state["linear"] = fit
            state["fitted"] = int(state["count"].sum())

    def flip_odds(self, state: dict[str, Any], inside: NDArray[np.bool_]) -> Floats:
        """Return log w(D') - log w(D) given the data for each direction [n], D' being D with it flipped."""
        information, linear, active = state["information"], state["linear"], np.flatnonzero(inside)
        mean, root = posterior(information, linear, active)
        across = information[:, active] @ root
        schur = np.maximum(1.0 + information.diagonal() - (across * across).sum(axis=1), 1.0)
        gain = 0.5 * (linear - information[:, active] @ mean) ** 2 / schur - 0.5 * np.log(schur)
        k, weight = active.size, self.log_weights
        gain += weight[min(k + 1, inside.size)] - weight[k]
        variance = (root * root).sum(axis=1)
        gain[active] = (
            weight[max(k - 1, 0)] - weight[k] - 0.5 * mean**2 / variance - 0.5 * np.log(variance)
        )
        return np.asarray(gain)

    def walk(self, state: dict[str, Any], draw: np.random.Generator) -> NDArray[np.bool_]:
        """Redraw each direction given the others, at rate 1 for a time of two; return which are active then.

        Flips alone are simulated: D' follows D at rate w(D')/(w(D) + w(D')), so the next flip is
        after an exponential time with the sum of these rates.
        """
        inside, clock = state["active"].copy(), 0.0
        while inside.size:
            rates = expit(self.flip_odds(state, inside)).cumsum()
            clock += draw.exponential() / max(float(rates[-1]), _SMALLEST)
            if clock > _SWEEPS:
                break
            inside[
                min(
                    int(np.searchsorted(rates, draw.random() * rates[-1], side="right")),
                    rates.size - 1,
                )
            ] ^= True
        return np.asarray(inside)


def expand(
    counts: Floats, base: Floats, directions: Floats, eta: Floats
) -> tuple[Floats, Floats, Floats]:
    r"""Return the best eta by Newton's method with backtracking inside p > 0, and J and b there.

    It maximises :math:`\sum_o c_o \log p(o) - |\eta|^2/2` with p = p_0 + X eta, from a given eta
    inside.
    """
    kept = counts > 0.0
    counts, base, directions = counts[kept], base[kept], directions[kept]
    p = base + directions @ eta
    value = counts @ np.log(p) - 0.5 * eta @ eta
    for _ in range(_NEWTON_STEPS):
        scaled = directions * (np.sqrt(counts) / p)[:, None]
        information, slope = scaled.T @ scaled, directions.T @ (counts / p)
        step = np.linalg.solve(information + np.eye(eta.size), slope - eta)
        rise = float((slope - eta) @ step)
        if rise <= _CLOSE:
            break
        for length in 0.5 ** np.arange(30.0):
            ahead = base + directions @ (eta + length * step)
            if ahead.min() > 0.0:
                after = counts @ np.log(ahead) - 0.5 * ((eta + length * step) ** 2).sum()
                if after >= value + 0.1 * length * rise:
                    break
        else:
            break
        eta, p, value = eta + length * step, ahead, after
    return eta, information, information @ eta + slope


def posterior(information: Floats, linear: Floats, active: Ints) -> tuple[Floats, Floats]:
    """Return the mean (J_D + I)^-1 b_D of eta_D, and a root R of its covariance: R R^T = (J_D + I)^-1."""
    lower = np.linalg.cholesky(information[np.ix_(active, active)] + np.eye(active.size))
    root = np.linalg.inv(lower).T
    return root @ (root.T @ linear[active]), root

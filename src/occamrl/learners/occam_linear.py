r"""Learning linear kernels by likelihood: mixtures of simulators, and signed features of which few matter (L7 to L9).

**Statistic.** Counts c of the outcomes (s, a, s', reward) seen, N in all.

**Mixtures** (:class:`OccamMixture`). P = sum_j theta_j P_j with theta on the simplex. Every set D of at most three
simulators, and the set of all, predicts with weights that EM has fitted to the past, :math:`w_j \leftarrow (w_j g_j +
1/2)/\sum` with :math:`g_j = \sum_o c_o P_j(o)/\langle w, P(o)\rangle`; they are kept until N has grown by 2 %. With
Q_D the logarithm of what D gave to all outcomes and Q_KT that of Krichevsky and Trofimov's counts (L4),

.. math:: Z = \log\big[(1 - w_0)\sum_D w(D) e^{Q_D} + w_0 e^{Q_{KT}}\big],

w being even over the sizes, then over the sets of a size, and w_0 = 1/(sizes + 1). A set is *compatible* unless an
upper bound on its likelihood is below Z - log 1/delta (L6): all sets that hold the truth are, at all times, with
probability 1 - delta. Before an episode a set is drawn by its weight in Z, and a mixture of it by EM on counts replaced
by Gamma(c_o, 1) (L7). When the set of all is refused the truth is *outside*; then tables of probabilities are drawn, by
Gamma(c_o + 1/2, 1). Terms that are e^-40 below the threshold are left out of Z from then on, which only lowers it.

**Signed features** (:class:`OccamLin`). P = p_0 + X eta, eta ~ N(0, I) on an unknown set D of its coordinates and 0
elsewhere. With :math:`\bar c = c + p_0/2` and :math:`p = p_0 + X\eta` at the eta that maximises
:math:`\sum_o \bar c_o \log p(o) - |\eta|^2/2`, found by Newton's method, let
:math:`J = \sum_o \bar c_o x_o x_o^T/p(o)^2` and :math:`b = J\eta + X^T(\bar c/p)`: the likelihood of another
eta is about :math:`e^{b^T\eta - \eta^T J\eta/2}`. Hence (L9)

.. math:: w(D \mid data) \propto w(D)\, e^{b_D^T (J_D + I)^{-1} b_D/2} \det(I + J_D)^{-1/2}, \quad
    \eta_D \sim N\big((J_D + I)^{-1} b_D, (J_D + I)^{-1}\big).

D is drawn by a walk that redraws every coordinate given the others, at rate 1, and goes on from episode to episode. Its
stationary law is that of D.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, logsumexp

from occamrl._core.bellman import optimal_policy, optimal_values
from occamrl.errors import FeatureError, ParameterError, require_number
from occamrl.learners.lin_psrl import LARGEST_SUM, LinearRival, require_precision, transitions
from occamrl.learners.posterior import distinct_outcomes
from occamrl.models.features import FeatureMap, PerProblem, pair_of_outcome
from occamrl.models.likelihood import hull_bound, hull_fit, hull_maximum, kt_evidence
from occamrl.protocols import MOST_EPISODES, Episode, EpisodeLearner, Field, Floats, Ints, Known, Outcomes

_GROWTH = 1.02  # of the data until fits are renewed
_FIT_STEPS, _DRAW_STEPS = 3, 20  # of EM
_LARGEST_SETS = 3  # of simulators that are listed one by one
_MOST_WEIGHTS = 430_000  # of all sets: those of three simulators up to d = 40, of two up to d = 94, of one beyond
_HOPELESS = 40.0  # nats behind Z from which on a set is left out
_NEWTON_STEPS, _CLOSE, _SHORTEST = 50, 1e-8, 1e-9
_SMALLEST = 1e-12  # probability of an outcome that the base law allows
_SWEEPS = 2.0  # how often the walk redraws each coordinate between two episodes
_ROUNDING = 1e-8


class _Setting(NamedTuple):
    """A problem as these learners see it."""

    outcomes: Outcomes
    columns: Floats  # [O, m] what kernels are made of


@dataclass(frozen=True, kw_only=True, eq=False)
class _Counting(LinearRival, EpisodeLearner):
    """Counts outcomes, and plays the optimal policy of a kernel that is drawn before every episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features.is_tabular:
            raise FeatureError("features", got="a one-hot map", expected="a dense or sparse one; see PSRL for tables")

    @cached_property
    def _settings(self) -> PerProblem:
        return PerProblem()

    def _setting(self, known: Known) -> _Setting:
        if known not in self._settings:
            self.outcomes(known)  # checks that rewards are known
            outcomes, matrix = distinct_outcomes(self.features, known)
            parts: list[Any] = [np.require(part, requirements=["C", "W"]) for part in outcomes]
            self._settings[known] = _Setting(Outcomes(*parts), self._columns(matrix))
        found: _Setting = self._settings[known]
        return found

    def _columns(self, matrix: Any) -> Floats:
        """Return what kernels are made of, one column each, from the features as a CSR matrix [O, d]."""
        return np.asarray(matrix.toarray())

    def fields(self, known: Known) -> list[Field]:
        """Return what the arrays of a state hold: counts, those of the last fit, and what was fitted."""
        count = len(self._setting(known).columns)
        counts = [Field(name, (count,), 0.0, float(MOST_EPISODES)) for name in ("counts", "fitted")]
        return [*counts, *self.fits(known)]

    @abstractmethod
    def fits(self, known: Known) -> list[Field]:
        """Return the fields that are fitted to the counts."""

    def resume(self, known: Known, state: Any) -> None:
        """Refuse a state from a file that this learner cannot have."""
        super().resume(known, state)
        counts, fitted = state["counts"], state["fitted"]
        if (counts != np.floor(counts)).any() or (fitted != np.floor(fitted)).any() or (fitted > counts).any():
            raise ParameterError("state.fitted", got="other numbers", expected="whole ones, none above the counts")

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Count the outcomes of the episode; those that the features do not list are counted apart."""
        came = [o for *_, o in transitions(self._setting(known).outcomes, known, episode)]
        np.add.at(state["counts"], came, 1.0)
        state["unlisted"] += episode.actions.size - len(came)

    def _policy_of(self, known: Known, p: Floats, start: int) -> tuple[Ints, float]:
        """Return the optimal policy of the kernel with these probabilities [O], and its value at ``start``."""
        outcomes, reward = self._setting(known).outcomes, np.require(known.base_reward.ravel(), requirements="W")
        values = optimal_values(outcomes, p[None], reward, known.states, known.horizon)
        return optimal_policy(outcomes, p[None], reward, values), float(values[0, start])


def _normalised(p: Floats, outcomes: Outcomes) -> Floats:
    """Return probabilities [O] that sum to one at every (s, a)."""
    return np.asarray(p / np.repeat(np.add.reduceat(p, outcomes.start[:-1]), np.diff(outcomes.start)))


# Mixtures of simulators -----------------------------------------------------------------------------------------------


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
    >>> agent.facts(mdp.known, result.state)["smallest"]
    [[1, 3]]

    The compatible sets (:meth:`facts`) are proved to hold the truth with probability 1 - delta. Acting by draws is
    measured, not proved.

    Parameters
    ----------
    features : FeatureMap
        One kernel per coordinate, for instance ``Simulators(...).features``. The truth is a mixture of them. Sets of up
        to three simulators are weighed one by one, and the set of all; beyond d = 40 sets of up to two, beyond d = 94
        single ones.
    delta : float
        Level of the compatible sets.

    Notes
    -----
    State: ``counts`` [O]; ``unlisted``, how many outcomes no simulator allows; ``fitted``, the counts at the last fit;
    ``weights`` [sets, d] and ``evidence`` Q_D [sets], minus infinity for sets that were left out; ``outside``.
    """

    delta: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("delta", self.delta, 0.0, 1.0, open_low=True)
        sums, least = self.features.sums, self.features.matrix.min()
        if least < -_ROUNDING or np.abs(sums - 1.0).max() > _ROUNDING:
            got = f"entries from {least:.3g}, sums from {sums.min():.3g} to {sums.max():.3g}"
            raise FeatureError("features", got=got, expected="a kernel in every coordinate; see OccamLin for others")

    @cached_property
    def sets(self) -> NDArray[np.bool_]:
        """The sets of simulators that are weighed [n, d], by size; the last is that of all."""
        d, sizes = self.features.dimension, range(1, min(_LARGEST_SETS, self.features.dimension) + 1)
        kept = [k for k in sizes if d * sum(math.comb(d, i) for i in range(1, k + 1)) <= _MOST_WEIGHTS] or [1]
        members = [each for k in kept for each in itertools.combinations(range(d), k)]
        listed = np.zeros((len(members) + (kept[-1] < d), d), dtype=bool)
        for row, each in zip(listed, members, strict=False):
            row[list(each)] = True
        listed[-1] = True if kept[-1] < d else listed[-1]
        return listed

    @cached_property
    def log_weights(self) -> Floats:
        """Log of (1 - w0) w(D) of every set, and of w0 of Krichevsky and Trofimov's counts [n + 1]."""
        _, size, count = np.unique(self.sets.sum(axis=1), return_inverse=True, return_counts=True)
        return -np.log(np.append(count[size], 1.0) * (count.size + 1.0))

    @property
    def plain(self) -> dict[str, Any]:
        """What the counts and flags of a state may be."""
        return {"unlisted": (0, MOST_EPISODES), "outside": {False, True}}

    def fits(self, known: Known) -> list[Field]:
        """Return the weights, at first even, and the evidence."""
        even = self.sets / self.sets.sum(axis=1, keepdims=True)
        return [
            Field("weights", self.sets.shape, 0.0, 1.0 * self.sets, even),
            Field("evidence", (len(self.sets),), -np.inf, float(MOST_EPISODES)),
        ]

    def resume(self, known: Known, state: Any) -> None:
        """Refuse a state from a file that this learner cannot have."""
        super().resume(known, state)
        if np.abs(state["weights"].sum(axis=1) - 1.0).max() > _ROUNDING:
            raise ParameterError("state.weights", got="other numbers", expected="rows that sum to 1")

    def update(self, known: Known, state: dict[str, Any]) -> None:
        """Enter the counts that wait into the evidence (L1), then fit the weights to all of them."""
        columns, weights, evidence = self._setting(known).columns, state["weights"], state["evidence"]
        alive = np.flatnonzero(self.terms(known, state)[:-1] > self.least(known, state) - _HOPELESS)
        left, sets = weights[alive], self.sets[alive]
        new = state["counts"] - state["fitted"]
        came, seen = np.flatnonzero(new), np.flatnonzero(state["counts"])
        with np.errstate(divide="ignore"):
            gained = new[came] @ np.log(columns[came] @ left.T)
        evidence[:] = np.where(np.isin(np.arange(evidence.size), alive), evidence, -np.inf)
        evidence[alive] += gained
        counts, columns = state["counts"][seen], columns[seen]
        for _ in range(_FIT_STEPS):
            mixed = columns @ left.T
            share = np.divide(counts[:, None], mixed, out=np.zeros_like(mixed), where=mixed > 0.0)
            left = left * (share.T @ columns) + 0.5 * sets
            left /= left.sum(axis=1, keepdims=True)
        weights[alive] = left
        state["fitted"] = state["counts"].copy()
        bound = hull_bound(counts, columns, weights[-1].copy(), np.zeros(weights.shape[1]))
        state["outside"] = bool(state["unlisted"]) or bound < self.least(known, state)

    def terms(self, known: Known, state: dict[str, Any]) -> Floats:
        """Return the logarithms of the terms of Z: those of the sets, then that of KT [n + 1]."""
        counted = kt_evidence(state["fitted"], self._setting(known).outcomes.start)
        return np.asarray(self.log_weights + np.append(state["evidence"], counted))

    def least(self, known: Known, state: dict[str, Any]) -> float:
        """Return Z - log 1/delta, the least log-likelihood of a compatible mixture."""
        return float(logsumexp(self.terms(known, state))) + math.log(self.delta)

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Draw a set, then a mixture of it (L7); return its optimal policy and value."""
        outcomes, columns = self._setting(known)
        if _due(state):
            self.update(known, state)
        if state["outside"]:
            return self._policy_of(known, _normalised(draw.gamma(state["counts"] + 0.5), outcomes), start)
        chosen = _drawn(self.terms(known, state)[:-1], draw)
        members, seen = np.flatnonzero(self.sets[chosen]), np.flatnonzero(state["counts"])
        weights = 0.9 * state["weights"][chosen, members] + 0.1 / members.size
        if members.size > 1 and seen.size:
            numbers, kernels = draw.gamma(state["counts"][seen]), np.ascontiguousarray(columns[np.ix_(seen, members)])
            hull_fit(numbers, kernels, weights, _DRAW_STEPS, 0.0, np.zeros(members.size))
        return self._policy_of(known, columns[:, members] @ weights, start)

    def facts(self, known: Known, state: dict[str, Any]) -> dict[str, Any]:
        """Return what was found.

        Returns
        -------
        dict
            ``smallest``: the smallest compatible sets, of those that are weighed; ``outside``: whether none is, so that
            the truth is no mixture, and ``unlisted``, how many outcomes no simulator allows; ``likely``: the set with
            the largest weight; ``guarantee``, in words.
        """
        state = copy.deepcopy(state)
        if state["counts"].sum() > state["fitted"].sum():
            self.update(known, state)
        columns, counts = self._setting(known).columns, state["counts"]
        least, sizes, smallest = self.least(known, state), self.sets.sum(axis=1), []
        for size in [] if state["unlisted"] else np.unique(sizes):
            for at in np.flatnonzero(sizes == size):
                members = np.flatnonzero(self.sets[at])
                kernels = np.ascontiguousarray(columns[:, members])
                weights = np.ascontiguousarray(state["weights"][at, members])
                if hull_maximum(counts, kernels, weights, enough=least)[1] >= least:
                    smallest.append(members.tolist())
            if smallest:
                break
        return {
            "smallest": smallest,
            "outside": not smallest,
            "unlisted": state["unlisted"],
            "likely": np.flatnonzero(self.sets[self.terms(known, state)[:-1].argmax()]).tolist(),
            "guarantee": f"a mixture is one of a compatible set with probability {1.0 - self.delta:g} (L8, proved); "
            "the likely set and acting by draws: measured, not proved",
        }

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[EpisodeLearner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(features=FeatureMap(list(_example_kernels(mdp))))]


# Signed features ------------------------------------------------------------------------------------------------------


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
        Coordinates whose entries sum to zero at every (s, a) are directions: their weights are free. The others must
        sum to one when weighted by theta, and of these theta the smallest gives the base law p_0, which must be
        positive wherever a direction is not zero; the ways to change it are directions too. In :class:`SparseMixture`
        p_0 is phi_0, and the directions are the other features. For mixtures of simulators, of which p_0 is the mean
        and no direction is sparse, see :class:`OccamMixture`.
    scale : float
        The weights of directions that matter are about this large: eta/scale has the prior N(0, I).

    Notes
    -----
    State: ``counts`` [O]; ``unlisted``; ``fitted``, the counts at the last fit; ``eta`` [n], ``information`` J [n, n]
    and ``linear`` b [n] of that fit; ``active`` [n], where the walk over sets is. The prior is even over the sizes 0 to
    n of a set, then over the sets of a size.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("scale", self.scale, 0.0, math.inf, open_low=True)
        base, directions = self.features.matrix @ self.base, self.features.matrix @ self.directions
        if (base[np.abs(directions).max(axis=1, initial=0.0) > 0.0] <= 0.0).any() or base.min() < -_ROUNDING:
            got = f"a base law with an entry of {base.min():.3g}"
            raise FeatureError("features", got=got, expected="one that is positive wherever a direction is not zero")

    @cached_property
    def base(self) -> Floats:
        """Theta of the base law p_0 [d]: the smallest that sums to one, without the coordinates that sum to zero."""
        return np.asarray(np.linalg.lstsq(self._sums, np.ones(len(self._sums)), rcond=None)[0])

    @cached_property
    def directions(self) -> Floats:
        """Theta of the directions X, times ``scale`` [d, n]: of single coordinates first, by number."""
        free = np.flatnonzero(~self._sums.any(axis=0))
        bound = np.flatnonzero(self._sums.any(axis=0))
        _, values, rows = np.linalg.svd(self._sums[:, bound])
        between = rows[(values > _ROUNDING * values.max()).sum() :]
        found = np.zeros((self.features.dimension, free.size + len(between)))
        found[free, np.arange(free.size)] = 1.0
        found[bound, free.size :] = between.T
        return self.scale * found

    @cached_property
    def _sums(self) -> Floats:
        """phi_1(s, a), different rows only, without rounding errors."""
        return np.unique(np.round(self.features.sums, 9), axis=0)

    @cached_property
    def log_weights(self) -> Floats:
        """Log w(D) of a set of 0, ..., n directions [n + 1], up to a constant."""
        n = self.directions.shape[1]
        k = np.arange(n + 1.0)
        return np.asarray(gammaln(k + 1.0) + gammaln(n - k + 1.0) - gammaln(n + 1.0))

    def _columns(self, matrix: Any) -> Floats:
        """Return p_0, then X [O, 1 + n]."""
        return np.asarray(matrix @ np.column_stack([self.base, self.directions]))

    @property
    def plain(self) -> dict[str, Any]:
        """What the counts and flags of a state may be."""
        return {"unlisted": (0, MOST_EPISODES)}

    def fits(self, known: Known) -> list[Field]:
        """Return the expansion of the likelihood, and the directions that are active: at first none."""
        n = self.directions.shape[1]
        shapes: dict[str, tuple[int, ...]] = {"eta": (n,), "information": (n, n), "linear": (n,)}
        return [
            *(Field(name, shape, -LARGEST_SUM, LARGEST_SUM) for name, shape in shapes.items()),
            Field("active", (n,), 0, 1),
        ]

    def resume(self, known: Known, state: Any) -> None:
        """Refuse a state from a file that this learner cannot have."""
        super().resume(known, state)
        columns, eta = self._setting(known).columns, state["eta"]
        p = columns[:, 0] + columns[:, 1:] @ eta
        if (p[(state["fitted"] > 0.0) | (columns[:, 0] > 0.0)] <= 0.0).any():
            raise ParameterError("state.eta", got="other numbers", expected="weights of probabilities above 0")
        require_precision("information", state["information"] + np.eye(eta.size), 1.0)

    def update(self, known: Known, state: dict[str, Any]) -> None:
        """Fit eta to the counts by Newton's method, from where the last fit ended; expand the likelihood there (L9)."""
        columns = self._setting(known).columns
        base, directions = np.maximum(columns[:, 0], 0.0), columns[:, 1:]
        counts = state["counts"] + 0.5 * base
        state["eta"], state["information"], state["linear"] = expand(counts, base, directions, state["eta"])
        state["fitted"] = state["counts"].copy()

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Draw a set of directions, then their weights; return the optimal policy and value of the kernel."""
        if _due(state):
            self.update(known, state)
        outcomes, columns = self._setting(known)
        self.walk(state, draw)
        active = np.flatnonzero(state["active"])
        mean, root = _posterior(state["information"], state["linear"], active)
        eta = mean + root @ draw.standard_normal(active.size)
        p = np.maximum(columns[:, 0] + columns[:, 1 + active] @ eta, _SMALLEST * (columns[:, 0] > 0.0))
        return self._policy_of(known, _normalised(p, outcomes), start)

    def flip_odds(self, state: dict[str, Any]) -> Floats:
        """Return log w(D') - log w(D) given the data for each direction [n], D' being D with it flipped."""
        information, linear, inside = state["information"], state["linear"], state["active"] > 0
        active = np.flatnonzero(inside)
        mean, root = _posterior(information, linear, active)
        across = information[:, active] @ root
        schur = np.maximum(1.0 + information.diagonal() - (across * across).sum(axis=1), 1.0)
        gain = 0.5 * (linear - information[:, active] @ mean) ** 2 / schur - 0.5 * np.log(schur)
        k, weight = active.size, self.log_weights
        gain += weight[min(k + 1, inside.size)] - weight[k]
        variance = (root * root).sum(axis=1)
        gain[active] = weight[max(k - 1, 0)] - weight[k] - 0.5 * mean**2 / variance - 0.5 * np.log(variance)
        return np.asarray(gain)

    def walk(self, state: dict[str, Any], draw: np.random.Generator) -> None:
        """Redraw each direction given the others, at rate 1 for a time of two.

        Flips alone are simulated: D' follows D at rate w(D')/(w(D) + w(D')), so the next flip is after an exponential
        time with the sum of these rates.
        """
        clock = 0.0
        while state["active"].size:
            rates = expit(self.flip_odds(state)).cumsum()
            clock += draw.exponential() / max(float(rates[-1]), _SMALLEST)
            if clock > _SWEEPS:
                return
            flipped = min(int(np.searchsorted(rates, draw.random() * rates[-1], side="right")), rates.size - 1)
            state["active"][flipped] ^= 1

    def facts(self, known: Known, state: dict[str, Any]) -> dict[str, Any]:
        """Return what the last draw found.

        Returns
        -------
        dict
            ``coordinates``: those that its directions change; ``probability``: of each direction, given which others
            were drawn; ``theta``: the mean of the parameter, given the directions; ``unlisted``: how many outcomes the
            features do not list; ``guarantee``, in words.
        """
        active = np.flatnonzero(state["active"])
        mean, _ = _posterior(state["information"], state["linear"], active)
        flips = expit(self.flip_odds(state))
        return {
            "coordinates": np.flatnonzero(self.directions[:, active].any(axis=1)).tolist(),
            "probability": np.where(state["active"] > 0, 1.0 - flips, flips).tolist(),
            "theta": (self.base + self.directions[:, active] @ mean).tolist(),
            "unlisted": state["unlisted"],
            "guarantee": "measured, not proved",
        }

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[EpisodeLearner]:
        """Small instances on a problem, for the contract checks."""
        even, *others = _example_kernels(mdp)
        return [cls(features=FeatureMap([even, *(each - even for each in others)]))]


def expand(counts: Floats, base: Floats, directions: Floats, eta: Floats) -> tuple[Floats, Floats, Floats]:
    r"""Return the best eta by Newton's method with backtracking inside p > 0, and J and b there (L9).

    It maximises :math:`\sum_o c_o \log p(o) - |\eta|^2/2` with p = p_0 + X eta, from a given eta inside.
    """
    kept = counts > 0.0
    counts, base, directions = counts[kept], base[kept], directions[kept]
    p = base + directions @ eta
    value = counts @ np.log(p) - 0.5 * eta @ eta
    for _ in range(_NEWTON_STEPS):
        scaled = directions * (np.sqrt(counts) / p)[:, None]
        information, slope = scaled.T @ scaled, directions.T @ (counts / p)
        step = np.linalg.solve(information + np.eye(eta.size), slope - eta)
        rise, length = float((slope - eta) @ step), 1.0
        if rise <= _CLOSE:
            break
        while length > _SHORTEST:
            ahead = base + directions @ (eta + length * step)
            if ahead.min() > 0.0:
                after = counts @ np.log(ahead) - 0.5 * ((eta + length * step) ** 2).sum()
                if after >= value + 0.1 * length * rise:
                    break
            length *= 0.5
        else:
            break
        eta, p, value = eta + length * step, ahead, after
    return eta, information, information @ eta + slope


def _posterior(information: Floats, linear: Floats, active: Ints) -> tuple[Floats, Floats]:
    """Return the mean (J_D + I)^-1 b_D of eta_D, and a root R of its covariance: R R^T = (J_D + I)^-1."""
    lower = np.linalg.cholesky(information[np.ix_(active, active)] + np.eye(active.size))
    root = np.linalg.inv(lower).T
    return root @ (root.T @ linear[active]), root


def _due(state: dict[str, Any]) -> bool:
    """Say whether the data have grown by 2 % since the last fit."""
    before, now = state["fitted"].sum(), state["counts"].sum()
    return bool(now > before and now >= _GROWTH * before)


def _drawn(terms: Floats, draw: np.random.Generator) -> int:
    """Return an index drawn with the probabilities e^terms/sum."""
    sums = np.exp(terms - terms.max()).cumsum()
    return min(int(np.searchsorted(sums, draw.random() * sums[-1], side="right")), terms.size - 1)


def _example_kernels(mdp: Any) -> list[Floats]:
    """Return three kernels on a problem's own outcomes: even ones, and two that are tilted."""
    outcomes = mdp.truth.outcomes
    pair, place = pair_of_outcome(outcomes), np.arange(outcomes.next_state.size)
    found = []
    for tilt in (0.0, 1.0, 2.0):
        law = _normalised(1.0 + 0.8 * np.sin(tilt * place), outcomes)
        kernel = np.zeros((mdp.states * mdp.actions, mdp.states))
        np.add.at(kernel, (pair, outcomes.next_state), law)
        found.append(kernel.reshape(mdp.states, mdp.actions, mdp.states))
    return found

r"""Evidence for classes with real parameters: predictable fits compete, and the best fit of a class is tested.

Class m is :math:`\{P_\theta : \theta \in \Theta_m\}`, a box. With the counts c of the outcomes seen,
:math:`\ell(\theta) = \sum_o c_o \log P_\theta(o)`; as in :mod:`occamrl.evidence.likelihood`, it is given relative to
the frequencies.

**Predictors.** Before a block, class m predicts it by the fit to all blocks before,

.. math:: q_m(o) = (1 - e)\, P_{\hat\theta_m}(o) + e\, \frac{c_o + 1/2}{N_{sa} + k_{sa}/2}, \qquad e = \frac1{N + 2},

so that no outcome costs everything; N is the number of outcomes before the block. :math:`Q_m` is the sum of
:math:`\log q_m` over all that was seen, Q_KT that of the counts alone, and
:math:`Z = \log \frac1{M + 1}\big(e^{Q_{KT}} + \sum_m e^{Q_m}\big)`. What is fixed before an outcome may depend on
everything before: by Ville's inequality :math:`Z \le \ell(P^*) + \log(1/\delta)` at all times at once with probability
:math:`1 - \delta`.

**The test.** Class m is ruled out, for good, when :math:`\max_{\Theta_m} \ell < Z - \log(1/\delta)`; and
:math:`\{\theta : \ell(\theta) \ge Z - \log(1/\delta)\}` is a confidence region at all times, whose projections are
intervals for the parameters. No grid, no cover, no sum over members. The maximum has to be found: by L-BFGS-B from
several starts, then by Fisher scoring; what a last scoring step still promises, half of
:math:`g^\top I^{-1} g`, is added.

**Acting.** By the best *fit*; by *optimism*, the largest value over draws from the boundary of the
region; by *sampling*, a fit to counts that are replaced by Gamma(c, 1) (a Bayesian bootstrap:
measured, not proved).
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

from occamrl import bellman
from occamrl.errors import ParameterError
from occamrl.evidence import likelihood
from occamrl.evidence.likelihood import (
    JEFFREYS,
    Choice,
    Judgement,
    Possible,
    Worth,
    counted_evidence,
    log_frequencies,
)
from occamrl.models.model import ParametricLadder, spread_points
from occamrl.problems.mdp import TOLERANCE
from occamrl.protocols import Floats, Flow, Ints, Known, Outcomes

_GROWTH = 1.02  # a class is fitted anew when the data have grown by 2 %
_REJECTED_GROWTH = 1.5  # the same for a class that is ruled out
_TINY, _SMALL = (
    1e-300,
    1e-12,
)  # probabilities are not taken to be smaller, in logarithms and in derivatives
_STEP = 1e-5  # of differences, as a share of the box
_INSIDE = 3  # further starts of a thorough search
_FLAT = 1e-2  # information, in shares of the box, that is always there
_MANY = 40  # points of a region that answers look at
_SLOPE = 1e-3  # of differences of a worth
_TURNS, _HALVINGS = 2, 8  # of the search for an end of the region
_DRAWS = 12  # points of the region that optimism looks at
_KEPT, _KEPT_LEAST = 2**22, 8  # probabilities that are kept, and of how many points at least
_SCORING, _ENOUGH = 6, 1e-4  # most steps, and the promise of one that is not worth it


class Fit(NamedTuple):
    """The best parameters found of a class."""

    theta: Floats  # [p] as shares of the box, those that are not free at their defaults
    likelihood: float  # minus that of the frequencies
    slack: float  # what another scoring step promises


class Counts(NamedTuple):
    """What was seen, reduced to the pairs that were visited."""

    rows: Any  # pairs of the model that were visited
    seen: Ints  # symbols
    count: Floats  # type: ignore[assignment]  # the method of tuples is not needed
    frequency: Floats  # logarithms
    novel: Floats  # [pairs] how often something happened there that is not listed


class Parametric:
    """The evidence for the classes of a ladder with real parameters on one problem.

    State: ``count`` and ``novel`` as in :func:`occamrl.evidence.likelihood.begin`; of every class
    the parameters ``theta`` [M, p] of its last fit, as shares of the box, the number of outcomes
    that it was ``fitted`` to, its ``score`` Q and its best ``likelihood``, both minus the
    likelihood of the frequencies, and after how many of the episodes ``seen`` it was ``rejected``
    (0: it is not).
    """

    def __init__(self, ladder: ParametricLadder, known: Known, delta: float) -> None:
        self.ladder, self.model, self.known, self.delta = ladder, ladder.model, known, delta
        self.classes = ladder.classes
        sizes = [
            (each.states, each.actions, each.names or ladder.model.names)
            for each in (known, ladder.model.known)
        ]
        if sizes[0] != sizes[1]:
            got = f"{known.states} states and {known.actions} actions, with other names or in another order"
            raise ParameterError(
                "problem", got=got, expected="model.mdp(...) of the ladder's model"
            )
        if known.rewards_known and not np.array_equal(
            known.base_reward, ladder.model.known.base_reward
        ):
            expected = (
                "those of the model, which knows them: use the agent itself, without RewardsPerPair"
            )
            raise ParameterError("rewards", got="other rewards than the model's", expected=expected)
        model, self.parameters = self.model, list(self.model.box)
        self.low, high = (np.array([ends[side] for ends in model.box.values()]) for side in (0, 1))
        self.width = high - self.low
        default = [model.defaults.get(name, 0.5 * sum(model.box[name])) for name in self.parameters]
        self.default = (np.array(default) - self.low) / self.width
        self.free = [[self.parameters.index(name) for name in free] for free in ladder.free]
        told_apart = (
            model.unit.to_unit(model.reward) if known.rewards_known else np.zeros(model.reward.size)
        )
        keys = np.stack([model.row, model.next_state, told_apart])
        first, self.symbol = np.unique(keys, axis=1, return_index=True, return_inverse=True)[1:]
        self.row = model.row[first]  # of each symbol, which pair
        start = np.searchsorted(self.row, np.arange(len(model.pairs) + 1))
        self.outcomes = Outcomes(start, model.next_state[first], told_apart[first])
        self._kept: dict[
            bytes, tuple[NDArray[np.bool_], Floats]
        ] = {}  # probabilities by theta, and of which pairs

    def begin(self) -> dict[str, Any]:
        """Return the evidence before any data."""
        theta = np.tile(self.default, (self.classes, 1))
        for own, free in zip(theta, self.free, strict=True):
            own[free] = 0.5
        return {
            "count": np.zeros(self.row.size, np.int64),
            "novel": np.zeros((0, 4)),
            "theta": theta,
            "fitted": np.zeros(self.classes, np.int64),
            "score": np.zeros(self.classes),
            "likelihood": np.zeros(self.classes),
            "rejected": np.zeros(self.classes, np.int64),
            "seen": 0,
        }

    # The likelihood -------------------------------------------------------------------------------

    def point(self, theta: Floats) -> dict[str, float]:
        """Return parameters in the user's unit."""
        values = self.low + theta * self.width
        return {**self.model.defaults, **dict(zip(self.parameters, values.tolist(), strict=True))}

    def probability(self, theta: Floats, rows: Any = None) -> Floats:
        """Return the probabilities of the symbols, of some pairs at least or of all."""
        key, pairs = theta.tobytes(), len(self.model.pairs)
        done, found = self._kept.pop(key, (np.zeros(pairs, bool), np.zeros(self.row.size)))
        wanted = np.arange(pairs) if rows is None else np.asarray(rows, dtype=np.int64)
        missing = wanted[~done[wanted]]
        if missing.size:  # others stay as they were found: models are slow
            more = self.model.probability(self.point(theta), missing.tolist())
            done, found = done.copy(), found + np.bincount(self.symbol, more, self.row.size)
            done[missing] = True
        self._kept[key] = done, found
        if len(self._kept) > max(_KEPT_LEAST, _KEPT // self.row.size):
            del self._kept[next(iter(self._kept))]  # the one that was not asked for longest
        return found

    def counts_of(self, state: dict[str, Any]) -> Counts:
        """Return what was seen."""
        count, novel = state["count"], self._novel(state)
        seen = np.flatnonzero(count)
        rows = np.union1d(self.row[seen], np.flatnonzero(novel))
        frequency = log_frequencies(count, self.outcomes)[seen]
        return Counts(rows.tolist(), seen, count[seen].astype(np.float64), frequency, novel)

    def log_likelihood(self, data: Counts, theta: Floats) -> float:
        """Return l, minus that of the frequencies; outcomes that are not listed have the rest of the probability.

        What is impossible has a tiny probability here, so that a search can leave such parameters.
        """
        P = self.probability(theta, data.rows)
        found = float(data.count @ (np.log(np.maximum(P[data.seen], _TINY)) - data.frequency))
        strange = data.novel > 0.0
        return found + float(data.novel[strange] @ np.log(self._rest(P)[strange]))

    def _rest(self, P: Floats) -> Floats:
        """Return the probability, at each pair, of what is not listed; tiny where that is rounding."""
        rest = 1.0 - np.bincount(self.row, P, len(self.model.pairs))
        return np.where(rest > TOLERANCE, rest, _TINY)

    def allows(self, data: Counts, theta: Floats) -> bool:
        """Return whether everything that was seen is possible with these parameters."""
        P = self.probability(theta, data.rows)
        return bool((P[data.seen] > 0.0).all() and (self._rest(P)[data.novel > 0.0] > _TINY).all())

    def derivatives(
        self, data: Counts, theta: Floats, free: list[int]
    ) -> tuple[float, Floats, Floats]:
        """Return l, its gradient and Fisher's information in the free parameters, by central differences."""
        value, P = self.log_likelihood(data, theta), self.probability(theta, data.rows)
        change = np.zeros((len(free), self.row.size))
        for i, j in enumerate(free):
            up, down = theta.copy(), theta.copy()
            up[j], down[j] = min(theta[j] + _STEP, 1.0), max(theta[j] - _STEP, 0.0)
            change[i] = (self.probability(up, data.rows) - self.probability(down, data.rows)) / (
                up[j] - down[j]
            )
        safe = np.maximum(P, _SMALL)
        visits = np.bincount(self.row[data.seen], data.count, len(self.model.pairs))
        gradient = change[:, data.seen] @ (data.count / safe[data.seen])
        return value, gradient, (change * visits[self.row] / safe) @ change.T

    def fit(self, data: Counts, free: list[int], starts: list[Floats]) -> Fit:
        """Maximise the likelihood over some parameters, the others being those of the first start."""
        total = max(1.0, float(data.count.sum()))

        def whole(share: Floats) -> Floats:
            theta = starts[0].copy()
            theta[free] = np.clip(share, 0.0, 1.0)
            return theta

        def objective(share: Floats) -> tuple[float, Floats]:
            found, gradient, _ = self.derivatives(data, whole(share), free)
            return -found / total, -gradient / total

        def search(share: Floats) -> Floats:
            return np.clip(
                minimize(objective, share, jac=True, bounds=[(0.0, 1.0)] * len(free)).x, 0.0, 1.0
            )

        def climb(share: Floats) -> Fit:
            for _ in range(_SCORING):
                value, gradient, information = self.derivatives(data, whole(share), free)
                inner = ~(((share <= 0.0) & (gradient < 0.0)) | ((share >= 1.0) & (gradient > 0.0)))
                step = np.zeros(len(free))
                if inner.any():
                    step[inner] = np.linalg.lstsq(
                        information[np.ix_(inner, inner)], gradient[inner], rcond=None
                    )[0]
                slack, moved = 0.5 * float(gradient @ step), np.clip(share + step, 0.0, 1.0)
                if slack < _ENOUGH:
                    break
                if self.log_likelihood(data, whole(moved)) < value + 0.1 * slack:
                    moved = search(share)  # the quadratic model is wrong here
                share = moved
            else:
                value = self.log_likelihood(data, whole(share))
            return Fit(whole(share), value, max(slack, 0.0))

        return max((climb(each[free]) for each in starts), key=lambda found: found.likelihood)

    def starts(self, theta: Floats, thorough: bool) -> list[Floats]:
        """Return where a search begins: at the last fit; to be thorough, also all over the box."""
        return [theta, *spread_points(theta.size, _INSIDE)] if thorough else [theta]

    # Learning -------------------------------------------------------------------------------------

    def add(self, state: dict[str, Any], flow: Flow, source: int = -1) -> None:
        """Score the predictions of a block, count it, fit anew when it is time, and test the classes."""
        row = self.model.row_of(flow.state, flow.action)
        told = row >= 0  # at rest nothing is learned
        moved = flow.take(told)
        before, novel = state["count"], self._novel(state)
        bonus = moved.reward if self.known.rewards_known else np.zeros(moved.reward.size)
        block = likelihood.count_outcomes(
            state, self.outcomes, row[told], moved, bonus, self.known.states
        )
        self._score(state, before, block, self._novel(state) - novel)
        state["seen"] += flow.episodes
        self._test(state)

    def _novel(self, state: dict[str, Any]) -> Floats:
        """Return how often something happened at each pair that is not listed."""
        rows, count = state["novel"][:, 0].astype(np.int64), state["novel"][:, 2]
        return np.bincount(rows, count, len(self.model.pairs)).astype(np.float64)

    def _score(self, state: dict[str, Any], before: Ints, block: Ints, novel: Floats) -> None:
        """Add how well every class predicted a block, with the parameters and counts from before it."""
        came, strange = np.flatnonzero(block), np.flatnonzero(novel)
        old, new = (log_frequencies(each, self.outcomes) for each in (before, before + block))
        visits = np.add.reduceat(before, self.outcomes.start[:-1])
        counted = (before + JEFFREYS) / (visits + JEFFREYS * np.diff(self.outcomes.start))[self.row]
        e = 1.0 / (before.sum() + 2.0)
        rows = np.union1d(self.row[came], strange).tolist()
        for m, theta in enumerate(state["theta"]):
            P = self.probability(theta, rows)
            q = (1.0 - e) * P[came] + e * counted[came]
            state["score"][m] += block[came] @ (np.log(q) - new[came]) + before @ (old - new)
            state["score"][m] += novel[strange] @ np.log((1.0 - e) * self._rest(P)[strange])

    def z(self, state: dict[str, Any]) -> float:
        """Return Z, minus the likelihood of the frequencies."""
        counted = counted_evidence(state["count"], self.outcomes, float(state["novel"][:, 2].sum()))
        return float(logsumexp([counted, *state["score"]])) - math.log(self.classes + 1.0)

    def least(self, state: dict[str, Any]) -> float:
        """Return the likelihood below which parameters are ruled out."""
        return self.z(state) - math.log(1.0 / self.delta)

    def _test(self, state: dict[str, Any]) -> None:
        """Fit the classes that are left, and rule out those whose best parameters are not likely enough."""
        data, least, total = self.counts_of(state), self.least(state), int(state["count"].sum())
        best = -math.inf  # of the classes so far, which are nested
        for m, (theta, fitted) in enumerate(
            zip(state["theta"], state["fitted"].tolist(), strict=True)
        ):
            now = self.log_likelihood(data, theta)
            state["likelihood"][m] = now
            if (
                state["rejected"][m] and total >= _REJECTED_GROWTH * fitted
            ):  # to say how badly it fits at its best
                found = self.fit(data, self.free[m], [theta])
                state["theta"][m], state["fitted"][m], state["likelihood"][m] = (
                    found.theta,
                    total,
                    found.likelihood,
                )
            elif not state["rejected"][m]:
                if total >= _GROWTH * fitted or now < least:
                    thorough = (
                        total.bit_length() // 4 > fitted.bit_length() // 4
                    )  # now and then, predictably
                    found = self.fit(data, self.free[m], self.starts(theta, thorough))
                    if found.likelihood + found.slack < least:
                        found = self.fit(data, self.free[m], self.starts(found.theta, True))
                    state["theta"][m], state["fitted"][m], state["likelihood"][m] = (
                        found.theta,
                        total,
                        found.likelihood,
                    )
                    now = (
                        found.likelihood + found.slack
                        if self.allows(data, found.theta)
                        else -math.inf
                    )
                best = max(best, now)
                if best < least:
                    state["rejected"][m] = max(
                        state["seen"], 1
                    )  # 0: not; the first episode may be open

    # Acting and answers ---------------------------------------------------------------------------

    def judge(self, state: dict[str, Any]) -> Judgement:
        """Return what was found when the last block was counted."""
        z, novel = self.z(state), int(state["novel"][:, 2].sum())
        left = [int(rejected == 0) for rejected in state["rejected"]]
        against = z - np.maximum.accumulate(state["likelihood"])
        return Judgement(against, left, [], novel, state["score"], z - math.log(1.0 / self.delta))

    def kernel(self, theta: Floats) -> bellman.Kernel:
        """Return a member as dynamic programming needs it."""
        return self.model.mdp_at(self.model.probability(self.point(theta))).kernels[0]

    def choose(
        self,
        state: dict[str, Any],
        found: Judgement,
        most: int,
        acting: str,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose parameters in the first ``most`` classes that are left; without any, draw a table of the counts."""
        left = [m for m in range(most) if found.left[m]]
        if not left:
            outcomes, drawn = likelihood.draw_table(state, self.outcomes, draw)
            earned = self.model.unit.low + self.model.unit.scale * outcomes.bonus
            table = self.model.mdp_at(drawn, outcomes.pair, outcomes.next_state, earned)
            return Choice(table.kernels[0], self.classes, 0.0, {})
        m = left[-1]
        if acting == "sampling":
            m = left[int((state["score"][left] + draw.gumbel(size=len(left))).argmax())]
            data = self.counts_of(state)
            data = data._replace(count=draw.standard_gamma(data.count))
            theta = self.fit(data, self.free[m], [state["theta"][m]]).theta
        elif acting == "fit":
            m = left[0]
            theta = state["theta"][m]
        else:
            points, sizes = (
                self.draws(state, m, draw, _DRAWS),
                (self.known.states, self.known.horizon),
            )
            values = [law @ bellman.solve([self.kernel(each)], *sizes)[0][0] for each in points]
            theta = points[int(np.argmax(values))]
        free = self.ladder.free[m]
        about = {
            "parameters": {name: value for name, value in self.point(theta).items() if name in free}
        }
        return Choice(self.kernel(theta), m, 0.2 * state["episodes"], about)

    def region(self, state: dict[str, Any], m: int) -> tuple[Counts, float, Floats]:
        """Return the data, the least likelihood, and a root of the ellipsoid that is close to the region of class m."""
        data, least = self.counts_of(state), self.least(state)
        likelihood, _, information = self.derivatives(data, state["theta"][m], self.free[m])
        shape = np.linalg.inv(
            information + _FLAT * np.eye(len(self.free[m]))
        )  # as wide as the box if nothing is known
        return (
            data,
            least,
            np.linalg.cholesky(shape) * math.sqrt(2.0 * max(likelihood - least, 0.0)),
        )

    def moved(self, theta: Floats, m: int, step: Floats) -> Floats:
        """Return parameters after a step of those that are free in class m, cut to the box."""
        found = theta.copy()
        found[self.free[m]] = np.clip(theta[self.free[m]] + step, 0.0, 1.0)
        return found

    def edge(
        self, state: dict[str, Any], m: int, step: Floats, data: Counts, least: float
    ) -> Floats:
        """Return the point of the region that is farthest from the best fit of class m along a step, by bisection."""
        best: Floats = state["theta"][m]
        theta, inside, outside, share = best, 0.0, math.inf, 1.0
        for _ in range(_HALVINGS):
            moved = self.moved(best, m, share * step)
            if self.log_likelihood(data, moved) >= least:
                inside, theta = share, moved
            else:
                outside = share
            share = 0.5 * (inside + outside) if outside < math.inf else 1.3 * inside
        return theta

    def draws(
        self, state: dict[str, Any], m: int, draw: np.random.Generator, count: int
    ) -> list[Floats]:
        """Return points near the boundary of the confidence region of class m, and its best fit first."""
        (data, least, root), best = self.region(state, m), state["theta"][m]
        found = [best]
        for way in draw.standard_normal((count, len(self.free[m]))):
            for share in (1.0, 0.85, 0.7, 0.5, 0.25):  # shortened until it is in the region
                theta = self.moved(best, m, share * (root @ way / np.linalg.norm(way)))
                if self.log_likelihood(data, theta) >= least:
                    found.append(theta)
                    break
        return found

    def possible(self, state: dict[str, Any]) -> Possible:
        """Return points of the regions of the smallest and of the largest class that is left; a search, not a list."""
        left, draw = np.flatnonzero(state["rejected"] == 0), np.random.default_rng(0)
        ends = dict.fromkeys(left[[0, -1]].tolist())
        points = [(m, theta) for m in ends for theta in self.draws(state, m, draw, _MANY)]
        kernels, data = [self.kernel(theta) for _, theta in points], self.counts_of(state)
        found = [self.log_likelihood(data, theta) for _, theta in points]

        @lru_cache(maxsize=_MANY)
        def kernel_at(theta: bytes) -> bellman.Kernel:
            return self.kernel(np.frombuffer(theta))

        def slope(worth: Worth, theta: Floats, m: int) -> Floats:
            slopes = []
            for j in self.free[m]:
                down, up = theta.copy(), theta.copy()
                down[j], up[j] = max(theta[j] - _SLOPE, 0.0), min(theta[j] + _SLOPE, 1.0)
                rise = worth(kernel_at(up.tobytes())) - worth(kernel_at(down.tobytes()))
                slopes.append(rise / (up[j] - down[j]))
            return np.array(slopes)

        def extremes(worth: Worth) -> list[bellman.Kernel]:
            """Return ends of the region along the gradient of the worth, in the metric of the information."""
            further = []
            for m, sign in itertools.product(ends, (1.0, -1.0)):
                (data, least, root), theta = self.region(state, m), state["theta"][m]
                for _ in range(_TURNS):
                    along = sign * root.T @ slope(worth, theta, m)
                    if not np.linalg.norm(along) > 0.0:
                        break
                    theta = self.edge(state, m, root @ along / np.linalg.norm(along), data, least)
                further.append(self.kernel(theta))
            return further

        return Possible(
            np.array([m for m, _ in points]), np.array(found), kernels.__getitem__, extremes
        )

    def best(
        self, state: dict[str, Any], m: int
    ) -> tuple[bellman.Kernel, dict[str, tuple[float, float, float]]]:
        """Return the best fit of class m, from 0, and its parameters with intervals that hold at all times."""
        if not state["rejected"][m]:
            return self.kernel(state["theta"][m]), self.intervals(state, m)
        found = self.fit(self.counts_of(state), self.free[m], self.starts(state["theta"][m], True))
        return self.kernel(found.theta), {}

    def pair_of(self, pair: int) -> tuple[int, int]:
        """Return the state and action of a pair."""
        return self.model.pairs[pair]

    def fitted(self, state: dict[str, Any], m: int) -> tuple[Outcomes, Ints, Floats]:
        """Return outcomes, how often each was seen, and its probability under the best fit of class m."""
        return self.outcomes, state["count"], self.probability(state["theta"][m])

    def likeliest(self, state: dict[str, Any], m: int) -> int:
        """Return a number for the best fit of class m: another one when the data have doubled."""
        return int(state["count"].sum()).bit_length()

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities of the outcomes under the fit of class m to some counts."""
        fresh = self.begin()
        data = self.counts_of({**fresh, "count": count})
        return self.probability(self.fit(data, self.free[m], [fresh["theta"][m]]).theta)

    def place(self, s: int, a: int, next_state: int, reward: float) -> tuple[int, int]:
        """Return the pair of the model and the outcome of a step; -1 at rest, and for what is not listed."""
        row = int(self.model.row_of(np.array(s), np.array(a)))
        bonus = reward if self.known.rewards_known else 0.0
        return row, -1 if row < 0 else likelihood.symbol_at(self.outcomes, row, next_state, bonus)

    def intervals(self, state: dict[str, Any], m: int) -> dict[str, tuple[float, float, float]]:
        """Return (best, low, high) of each free parameter: the projections of the confidence region.

        An end is where the largest likelihood with the parameter held there meets the threshold.
        """
        data, least, best = self.counts_of(state), self.least(state), state["theta"][m]
        found = {}
        for j in self.free[m]:
            others = [i for i in self.free[m] if i != j]

            def above(share: float, j: int = j, others: list[int] = others) -> float:
                theta = best.copy()
                theta[j] = share
                fit = self.fit(data, others, [theta])
                return fit.likelihood + fit.slack - least

            inside = above(best[j]) > 0.0
            ends = [
                edge
                if above(edge) >= 0.0
                else brentq(above, best[j], edge, xtol=1e-4)
                if inside
                else best[j]
                for edge in (0.0, 1.0)
            ]
            value, low, high = (
                float(self.low[j] + share * self.width[j]) for share in (best[j], *ends)
            )
            found[self.parameters[j]] = (value, low, high)
        return found

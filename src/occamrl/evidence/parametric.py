r"""Evidence for classes with real parameters: fits to the past predict, best fits are tested.

Class m is :math:`\{P_\theta : \theta \in \Theta_m\}`, a box. With the counts c of the outcomes
seen, :math:`\ell(\theta) = \sum_o c_o \log P_\theta(o)`; as in :mod:`occamrl.evidence.counts`, it
is given relative to the frequencies.

**Predictors.** Before a block, class m predicts it by the fit to all blocks before,

.. math:: q_m(o) = (1 - e)\, P_{\hat\theta_m}(o) + e\, \frac{c_o + 1/2}{N_{sa} + k_{sa}/2},
    \qquad e = \frac1{N + 2},

so that no outcome costs everything; N is the number of outcomes before the block. :math:`Q_m` is
the sum of :math:`\log q_m` over all that was seen, Q_KT that of the counts alone, and :math:`Z =
\log \frac1{M + 1}\big(e^{Q_{KT}} + \sum_m e^{Q_m}\big)`. What is fixed before an outcome may depend
on everything before: by Ville's inequality :math:`Z \le \ell(P^*) + \log(1/\delta)` at all times at
once with probability :math:`1 - \delta`.

**The test.** Class m is ruled out while :math:`\max_{\Theta_m} \ell < Z - \log(1/\delta)`; and
:math:`\{\theta : \ell(\theta) \ge Z - \log(1/\delta)\}` is a confidence region at all times, whose
projections are intervals for the parameters. No grid, no cover, no sum over members.

**The search.** One point of the region keeps its class: a witness suffices. Before a class is ruled
out, the likelihood is evaluated at a fixed cloud of 256 points (half of the coordinates spread
evenly over the box, the others ever closer to one of its edges), and climbed from the best of
these, by Fisher scoring and L-BFGS-B, and by Nelder and Mead's simplex where the likelihood has
steps. What a last scoring step still promises, half of :math:`g^\top I^{-1} g`, is added. The
search is made again when the data have grown by half, and a class for which it then finds a witness
is alive again. A narrow peak that no point of the cloud leads to is missed all the same.

**Several modes.** Intervals and worths begin at every mode that climbs from the cloud lead to, not
at the best fit alone. A worth is also looked at inside the region, where it may be extreme.

**Acting.** By the best *fit*; by *optimism*, the largest value over draws from the boundary of the
region; by *sampling*, a fit to counts that are replaced by Gamma(c, 1) (a Bayesian bootstrap:
measured, not proved).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError
from occamrl.evidence.counts import (
    JEFFREYS,
    NOVEL_COUNT,
    NOVEL_PAIR,
    CountState,
    begin_counts,
    count_outcomes,
    counted_evidence,
    log_frequencies,
    novel_count,
    outcome_misfits,
    symbol_at,
)
from occamrl.evidence.hulls import draw_table
from occamrl.evidence.starts import DatedState, begin_starts, count_starts, law_of_starts
from occamrl.evidence.worlds import Acting, Choice, FiniteWorlds
from occamrl.models.model import spread_points
from occamrl.problems.mdp import TOLERANCE
from occamrl.protocols import Flow, Judgement, Known, Misfit, Outcomes, ParameterRange, Search

if TYPE_CHECKING:
    from occamrl.models.model import ParametricLadder

_GROWTH = 1.02  # a class is fitted anew when the data have grown by 2 %
_REJECTED_GROWTH = 1.5  # the same for a class that is ruled out
_TINY = 1e-300  # probabilities are not taken to be smaller in logarithms
_SMALL = 1e-12  # nor in derivatives
_STEP = 1e-5  # of differences, as a share of the box
_CLOUD = 256  # points of the box at which a thorough search looks
_CLIMBED = 3  # of them, the best, from which it climbs
_MODES = 8  # the same for intervals and worths
_CLOSEST = 4.0  # decades by which points of the cloud come close to an edge
_SIMPLEX = 200  # evaluations of a simplex search, at most
_FLAT = 1e-2  # information, in shares of the box, that is always there
_MANY = 40  # points of a region that answers look at
_SLOPE = 1e-3  # of differences of a worth
_TURNS = 2  # of the search for an end of the region
_OUTSIDE = 1e18  # larger than any worth; infinity would make differences undefined
_POLISHED = 80  # evaluations of the search for an extreme worth, at most
_HALVINGS = 8
_DRAWS = 12  # points of the region that optimism looks at
_SHORTENED = (1.0, 0.85, 0.7, 0.5, 0.25)  # a step until it is in the region
_KEPT = 2**22  # probabilities that are kept
_KEPT_LEAST = 8  # and of how many points at least
_SCORING = 6  # steps of Fisher scoring at most
_ENOUGH = 1e-4  # the promise of a step that is not worth it


class ParametricState(CountState, DatedState):
    """What the evidence for real parameters keeps."""

    theta: Floats  # [M, p] the last fit of every class, as shares of the box
    fitted: Ints  # [M] the number of outcomes that it was fitted to
    score: Floats  # [M] Q, minus the likelihood of the frequencies
    likelihood: Floats  # [M] of the best fit, minus that of the frequencies
    searched: Ints  # [2] points of clouds that were looked at, and climbs from the best of them


class Fit(NamedTuple):
    """The best parameters found of a class."""

    theta: Floats  # [p] as shares of the box, those that are not free at their defaults
    likelihood: float  # minus that of the frequencies
    slack: float  # what another scoring step promises


class Counts(NamedTuple):
    """What was seen, reduced to the pairs that were visited."""

    rows: list[int]  # pairs of the model that were visited
    seen: Ints  # symbols
    count: Floats  # type: ignore[assignment]  # the method of tuples is not needed
    frequency: Floats  # logarithms
    novel: Floats  # [pairs] how often something happened there that is not listed


class Region(NamedTuple):
    """The confidence region of a class, nearly an ellipsoid."""

    data: Counts
    least: float  # the likelihood at its boundary
    root: Floats  # [k, k] of the ellipsoid, in shares of the box


class ParametricEvidence:
    """The evidence for the classes of a ladder with real parameters on one problem."""

    kind = "likelihood"

    def __init__(self, ladder: ParametricLadder, known: Known, delta: float) -> None:
        self.ladder = ladder
        self.model = ladder.model
        self.known = known
        self.delta = delta
        self.classes = ladder.classes
        self._require_model_of(known)
        self._read_box()
        self._read_outcomes()
        # probabilities by theta, and of which pairs
        self._kept: dict[bytes, tuple[Bools, Floats]] = {}

    def _require_model_of(self, known: Known) -> None:
        """Refuse a problem whose states, actions or rewards are not the model's."""
        model = self.model.known
        names = known.names or self.model.names
        if (known.states, known.actions) != (model.states, model.actions) or names != model.names:
            got = f"{known.states} states and {known.actions} actions"
            raise ParameterError(
                "problem",
                got=f"{got}, with other names or in another order",
                expected="model.mdp(...) of the ladder's model",
            )
        if known.rewards_known and not np.array_equal(known.base_reward, model.base_reward):
            expected = (
                "those of the model, which knows them: use the agent itself, without RewardsPerPair"
            )
            raise ParameterError("rewards", got="other rewards than the model's", expected=expected)

    def _read_box(self) -> None:
        box = self.model.box
        self.names = list(box)
        self.low = np.array([low for low, _ in box.values()])
        self.width = np.array([high for _, high in box.values()]) - self.low
        defaults = []
        for name in self.names:
            defaults.append(self.model.defaults.get(name, 0.5 * sum(box[name])))
        self.default = (np.array(defaults) - self.low) / self.width
        self.free = [[self.names.index(name) for name in free] for free in self.ladder.free]

    def _read_outcomes(self) -> None:
        """Join the outcomes of the model that cannot be told apart."""
        model = self.model
        reward = np.zeros(model.reward.size)
        if self.known.rewards_known:
            reward = model.unit.to_unit(model.reward)
        keys = np.stack([model.row, model.next_state, reward])
        _, first, self.symbol = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        self.row = model.row[first]  # of each symbol, which pair
        start = np.searchsorted(self.row, np.arange(len(model.pairs) + 1))
        self.outcomes = Outcomes(start, model.next_state[first], reward[first])

    def begin(self) -> ParametricState:
        """Return the state before any data."""
        theta = np.tile(self.default, (self.classes, 1))
        for parameters, free in zip(theta, self.free, strict=True):
            parameters[free] = 0.5
        return {
            **begin_counts(self.outcomes),
            **begin_starts(self.known),
            "rejected": np.zeros(self.classes, np.int64),
            "theta": theta,
            "fitted": np.zeros(self.classes, np.int64),
            "score": np.zeros(self.classes),
            "likelihood": np.zeros(self.classes),
            "searched": np.zeros(2, np.int64),
        }

    # The likelihood -------------------------------------------------------------------------------

    def point(self, theta: Floats) -> dict[str, float]:
        """Return parameters in the user's unit."""
        values = self.low + theta * self.width
        return {**self.model.defaults, **dict(zip(self.names, values.tolist(), strict=True))}

    def probability(self, theta: Floats, rows: Sequence[int] | None = None) -> Floats:
        """Return the probabilities of the symbols, of some pairs at least or of all."""
        key = theta.tobytes()
        pairs = len(self.model.pairs)
        if key in self._kept:
            done, probability = self._kept.pop(key)
        else:
            done = np.zeros(pairs, bool)
            probability = np.zeros(self.row.size)
        wanted = np.arange(pairs) if rows is None else np.asarray(rows, dtype=np.int64)
        missing = wanted[~done[wanted]]
        # models are slow: what was evaluated stays
        if missing.size:
            evaluated = self.model.probability(self.point(theta), missing.tolist())
            probability = probability + np.bincount(self.symbol, evaluated, self.row.size)
            done = done.copy()
            done[missing] = True
        self._kept[key] = done, probability
        if len(self._kept) > max(_KEPT_LEAST, _KEPT // self.row.size):
            longest_unused = next(iter(self._kept))
            del self._kept[longest_unused]
        return probability

    def counts_of(self, state: CountState) -> Counts:
        """Return what was seen."""
        count = state["count"]
        novel = self._novel(state)
        seen = np.flatnonzero(count)
        rows = np.union1d(self.row[seen], np.flatnonzero(novel))
        frequency = log_frequencies(count, self.outcomes)[seen]
        return Counts(rows.tolist(), seen, count[seen].astype(np.float64), frequency, novel)

    def log_likelihood(self, data: Counts, theta: Floats) -> float:
        """Return l, minus that of the frequencies.

        Outcomes that are not listed have the rest of the probability. What is impossible has a tiny
        probability here, so that a search can leave such parameters.
        """
        P = self.probability(theta, data.rows)
        listed = float(data.count @ (np.log(np.maximum(P[data.seen], _TINY)) - data.frequency))
        strange = data.novel > 0.0
        return listed + float(data.novel[strange] @ np.log(self._remainder(P)[strange]))

    def _remainder(self, P: Floats) -> Floats:
        """Return the probability of what is not listed, by pair; tiny where it is rounding."""
        remainder = 1.0 - np.bincount(self.row, P, len(self.model.pairs))
        return np.where(remainder > TOLERANCE, remainder, _TINY)

    def allows(self, data: Counts, theta: Floats) -> bool:
        """Return whether everything that was seen is possible with these parameters."""
        P = self.probability(theta, data.rows)
        listed = (P[data.seen] > 0.0).all()
        return bool(listed and (self._remainder(P)[data.novel > 0.0] > _TINY).all())

    def derivatives(
        self, data: Counts, theta: Floats, free: list[int]
    ) -> tuple[float, Floats, Floats]:
        """Return l, its gradient and Fisher's information in the free parameters."""
        value = self.log_likelihood(data, theta)
        P = self.probability(theta, data.rows)
        change = np.zeros((len(free), self.row.size))
        for i, j in enumerate(free):
            # central differences, one-sided at the ends of the box
            up = theta.copy()
            down = theta.copy()
            up[j] = min(theta[j] + _STEP, 1.0)
            down[j] = max(theta[j] - _STEP, 0.0)
            rise = self.probability(up, data.rows) - self.probability(down, data.rows)
            change[i] = rise / (up[j] - down[j])
        safe = np.maximum(P, _SMALL)
        visits = np.bincount(self.row[data.seen], data.count, len(self.model.pairs))
        gradient = change[:, data.seen] @ (data.count / safe[data.seen])
        return value, gradient, (change * visits[self.row] / safe) @ change.T

    # The search -----------------------------------------------------------------------------------

    def fit(self, data: Counts, free: list[int], starts: list[Floats]) -> Fit:
        """Maximise the likelihood over some parameters, the others as in the first start."""
        total = max(1.0, float(data.count.sum()))

        def whole(share: Floats) -> Floats:
            theta = starts[0].copy()
            theta[free] = np.clip(share, 0.0, 1.0)
            return theta

        def objective(share: Floats) -> tuple[float, Floats]:
            likelihood, gradient, _ = self.derivatives(data, whole(share), free)
            return -likelihood / total, -gradient / total

        def search(share: Floats) -> Floats:
            bounds = [(0.0, 1.0)] * len(free)
            return np.clip(minimize(objective, share, jac=True, bounds=bounds).x, 0.0, 1.0)

        def climb(share: Floats) -> Fit:
            for _ in range(_SCORING):
                value, gradient, information = self.derivatives(data, whole(share), free)
                step = _scoring_step(share, gradient, information)
                slack = 0.5 * float(gradient @ step)
                if slack < _ENOUGH:
                    return Fit(whole(share), value, max(slack, 0.0))
                moved = np.clip(share + step, 0.0, 1.0)
                if self.log_likelihood(data, whole(moved)) < value + 0.1 * slack:
                    moved = search(share)  # the quadratic model is wrong here
                share = moved
            return Fit(whole(share), self.log_likelihood(data, whole(share)), max(slack, 0.0))

        fits = [climb(start[free]) for start in starts]
        return max(fits, key=lambda fit: fit.likelihood)

    def starts(self, data: Counts, theta: Floats, free: list[int], count: int) -> list[Floats]:
        """Return where a thorough search begins: at a fit, and at the best points of the cloud."""
        points = self.cloud(theta, free)
        likelihoods = np.array([self.log_likelihood(data, point) for point in points])
        best = np.argsort(-likelihoods, kind="stable")[:count]
        return [theta, *points[best]]

    def cloud(self, theta: Floats, free: list[int]) -> Floats:
        """Return a fixed cloud of points [256, p], the parameters that are not free as in theta."""
        spread = np.array(spread_points(len(free), _CLOUD)).reshape(_CLOUD, len(free))
        edge = 10.0 ** (-_CLOSEST * spread)
        # Coordinates take turns: twice evenly, once towards either edge.
        turn = (np.arange(_CLOUD)[:, None] // 2 ** np.arange(len(free))) % 4
        shares = np.select([turn < 2, turn == 2], [spread, edge], 1.0 - edge)
        points = np.tile(theta, (_CLOUD, 1))
        points[:, free] = shares
        return points

    def search(self, data: Counts, theta: Floats, free: list[int]) -> Fit:
        """Maximise the likelihood thoroughly: from the cloud, then by a simplex."""
        starts = self.starts(data, theta, free, _CLIMBED)
        fit = self.fit(data, free, starts)

        def objective(share: Floats) -> float:
            point = fit.theta.copy()
            point[free] = np.clip(share, 0.0, 1.0)
            return -self.log_likelihood(data, point)

        best = fit.theta.copy()
        best[free] = _simplex(objective, fit.theta[free], _SIMPLEX)
        likelihood = self.log_likelihood(data, best)
        if likelihood <= fit.likelihood:
            return fit
        return Fit(best, likelihood, 0.0)

    def modes(self, state: ParametricState, m: int) -> list[Floats]:
        """Return points of the region of class m: the best fit, climbs, points of the cloud."""
        data = self.counts_of(state)
        least = self.least(state)
        free = self.free[m]
        best = state["theta"][m]
        starts = self.starts(data, best, free, _MODES)
        points = [*starts[1:], *self.cloud(best, free)]
        points += [self.fit(data, free, [start]).theta for start in starts[1:]]
        inside = [best]
        for point in points:
            if self.log_likelihood(data, point) >= least:
                inside.append(point)
        return inside

    # Learning -------------------------------------------------------------------------------------

    def add(self, state: ParametricState, flow: Flow) -> None:
        """Score the predictions of a block, count it, fit anew when it is time, and test."""
        row = self.model.row_of(flow.state, flow.action)
        moving = row >= 0  # in absorbing states nothing is learned
        moved = flow.take(moving)
        before = state["count"]
        novel = self._novel(state)
        bonus = np.zeros(moved.reward.size)
        if self.known.rewards_known:
            bonus = moved.reward
        block = count_outcomes(state, self.outcomes, row[moving], moved, bonus, self.known)
        self._score(state, before, block, self._novel(state) - novel)
        count_starts(state, flow)
        self._test(state)

    def _novel(self, state: CountState) -> Floats:
        """Return how often something happened at each pair that is not listed."""
        rows = state["novel"][:, NOVEL_PAIR].astype(np.int64)
        count = np.bincount(rows, state["novel"][:, NOVEL_COUNT], len(self.model.pairs))
        return count.astype(np.float64)

    def _score(self, state: ParametricState, before: Ints, block: Ints, novel: Floats) -> None:
        """Add how well every class predicted a block, with its fit and counts from before it."""
        came = np.flatnonzero(block)
        strange = np.flatnonzero(novel)
        old_frequency = log_frequencies(before, self.outcomes)
        frequency = log_frequencies(before + block, self.outcomes)
        visits = np.add.reduceat(before, self.outcomes.start[:-1])
        outcomes_of_pair = np.diff(self.outcomes.start)
        counted = (before + JEFFREYS) / (visits + JEFFREYS * outcomes_of_pair)[self.row]
        e = 1.0 / (before.sum() + 2.0)
        rows = np.union1d(self.row[came], strange).tolist()
        for m, theta in enumerate(state["theta"]):
            P = self.probability(theta, rows)
            q = (1.0 - e) * P[came] + e * counted[came]
            gain = block[came] @ (np.log(q) - frequency[came])
            state["score"][m] += gain + before @ (old_frequency - frequency)
            state["score"][m] += novel[strange] @ np.log((1.0 - e) * self._remainder(P)[strange])

    def log_mixture(self, state: ParametricState) -> float:
        """Return Z, minus the likelihood of the frequencies."""
        counted = counted_evidence(state["count"], self.outcomes, float(novel_count(state)))
        return float(logsumexp([counted, *state["score"]])) - math.log(self.classes + 1.0)

    def least(self, state: ParametricState) -> float:
        """Return the likelihood below which parameters are ruled out."""
        return self.log_mixture(state) - math.log(1.0 / self.delta)

    def _test(self, state: ParametricState) -> None:
        """Fit the classes; rule out those for which a search finds no parameters likely enough."""
        data = self.counts_of(state)
        least = self.least(state)
        best = -math.inf  # of the classes so far, which are nested
        for m in range(self.classes):
            best = max(best, self._likelihood_bound(state, m, data, least))
            if best >= least:
                state["rejected"][m] = 0
            elif not state["rejected"][m]:
                # 0 would mean that it is not ruled out; the first episode may be open
                state["rejected"][m] = max(state["episodes"], 1)

    def _likelihood_bound(
        self, state: ParametricState, m: int, data: Counts, least: float
    ) -> float:
        """Return what the likelihood of class m is at most, after a fit if it is time for one."""
        theta = state["theta"][m]
        fitted = int(state["fitted"][m])
        total = int(state["count"].sum())
        likelihood = self.log_likelihood(data, theta)
        state["likelihood"][m] = likelihood
        rejected = bool(state["rejected"][m])
        growth = _REJECTED_GROWTH if rejected else _GROWTH
        if total < growth * fitted and (rejected or likelihood >= least):
            return likelihood if self.allows(data, theta) else -math.inf
        free = self.free[m]
        fit = self.fit(data, free, [theta])
        thorough = total.bit_length() // 4 > fitted.bit_length() // 4  # now and then, predictably
        if thorough or fit.likelihood + fit.slack < least:
            fit = max(fit, self.search(data, fit.theta, free), key=lambda one: one.likelihood)
            state["searched"] = state["searched"] + np.array([_CLOUD, _CLIMBED + 2])
        self._keep_fit(state, m, fit, total)
        if not self.allows(data, fit.theta):
            return -math.inf
        return fit.likelihood + fit.slack

    def _keep_fit(self, state: ParametricState, m: int, fit: Fit, total: int) -> None:
        state["theta"][m] = fit.theta
        state["fitted"][m] = total
        state["likelihood"][m] = fit.likelihood

    # Judging --------------------------------------------------------------------------------------

    def judge(self, state: ParametricState) -> Judgement:
        """Return what was found when the last block was counted."""
        mixture = self.log_mixture(state)
        return Judgement(
            against=mixture - np.maximum.accumulate(state["likelihood"]),
            alive=tuple(int(after == 0) for after in state["rejected"]),
            rejected_after=tuple(int(after) or None for after in state["rejected"]),
            log_mixture=mixture,
            novel=novel_count(state),
            search=Search(int(state["searched"][0]), 0, int(state["searched"][1])),
        )

    def parameters(self, state: ParametricState, m: int) -> dict[str, ParameterRange]:
        """Return the projections of the confidence region of class m; nothing if it is ruled out.

        An end is where the largest likelihood with the parameter held there meets the threshold,
        beyond the outermost point of the region that was found in any mode.
        """
        if state["rejected"][m]:
            return {}
        intervals = {}
        inside = self.modes(state, m)
        for j in self.free[m]:
            best = float(state["theta"][m][j])
            lowest = min(inside, key=lambda point: float(point[j]))
            highest = max(inside, key=lambda point: float(point[j]))
            low = self._interval_end(state, m, j, lowest, 0.0)
            high = self._interval_end(state, m, j, highest, 1.0)
            ends = [float(self.low[j] + share * self.width[j]) for share in (best, low, high)]
            intervals[self.names[j]] = ParameterRange(ends[0], ((ends[1], ends[2]),))
        return intervals

    def _interval_end(
        self, state: ParametricState, m: int, j: int, start: Floats, edge: float
    ) -> float:
        """Return how far parameter j may go from a point towards an edge, as a share of the box."""
        data = self.counts_of(state)
        least = self.least(state)
        others = [i for i in self.free[m] if i != j]

        def excess(share: float) -> float:
            theta = start.copy()
            theta[j] = share
            fit = self.fit(data, others, [theta])
            return fit.likelihood + fit.slack - least

        if excess(edge) >= 0.0:
            return edge
        if excess(float(start[j])) <= 0.0:
            return float(start[j])
        return float(brentq(excess, float(start[j]), edge, xtol=1e-4))

    def describe(self, state: ParametricState, m: int) -> str:
        """Return nothing: members have no names."""
        return ""

    def misfits(self, state: ParametricState, m: int) -> list[Misfit]:
        """Return where the best fit of class m, from 0, misfits, pair by pair."""
        probability = self.fitted(state, m)
        return [*outcome_misfits(state, self.outcomes, probability, self.model.pairs, self.known)]

    # Acting ---------------------------------------------------------------------------------------

    def kernel(self, theta: Floats) -> bellman.Kernel:
        """Return a member as dynamic programming needs it."""
        return self.model.mdp_at(self.model.probability(self.point(theta))).kernels[0]

    def choose(
        self,
        state: ParametricState,
        judgement: Judgement,
        classes: int,
        acting: Acting,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose parameters in the first classes that are alive; without any, draw a table.

        The source is the class, from 0, and M for a table.
        """
        alive = [m for m in range(classes) if judgement.alive[m]]
        if not alive:
            return Choice(self._draw_table(state, draw), self.classes, "episode")
        if acting == "sampling":
            scores = state["score"][alive] + draw.gumbel(size=len(alive))
            m = alive[int(scores.argmax())]
            data = self.counts_of(state)
            data = data._replace(count=draw.standard_gamma(data.count))
            theta = self.fit(data, self.free[m], [state["theta"][m]]).theta
        elif acting == "fit":
            m = alive[0]
            theta = state["theta"][m]
        else:
            m = alive[-1]
            theta = self._optimistic(state, m, law, draw)
        free = self.ladder.free[m]
        parameters = {name: x for name, x in self.point(theta).items() if name in free}
        return Choice(self.kernel(theta), m, "draw", parameters)

    def _draw_table(self, state: ParametricState, draw: np.random.Generator) -> bellman.Kernel:
        table = draw_table(state, self.outcomes, draw)
        outcomes = table.outcomes
        reward = self.model.unit.low + self.model.unit.scale * outcomes.bonus
        mdp = self.model.mdp_at(table.probability, outcomes.pair, outcomes.next_state, reward)
        return mdp.kernels[0]

    def _optimistic(
        self, state: ParametricState, m: int, law: Floats, draw: np.random.Generator
    ) -> Floats:
        """Return the point with the largest value among some near the boundary of the region."""
        points = self.draws(state, m, draw, _DRAWS)
        values = []
        for theta in points:
            solved, _ = bellman.solve([self.kernel(theta)], self.known.states, self.known.horizon)
            values.append(law @ solved[0])
        best: Floats = points[int(np.argmax(values))]
        return best

    # The region -----------------------------------------------------------------------------------

    def region(self, state: ParametricState, m: int) -> Region:
        """Return the confidence region of class m."""
        data = self.counts_of(state)
        least = self.least(state)
        likelihood, _, information = self.derivatives(data, state["theta"][m], self.free[m])
        # at a bound of the box rounding may leave directions without information
        finite = np.nan_to_num(information, posinf=1.0 / _SMALL, neginf=0.0)
        sizes, directions = np.linalg.eigh(0.5 * (finite + finite.T))
        # as wide as the box if nothing is known
        lengths = 1.0 / np.sqrt(np.maximum(sizes, 0.0) + _FLAT)
        scale = math.sqrt(2.0 * max(likelihood - least, 0.0))
        return Region(data, least, directions * lengths * scale)

    def moved(self, theta: Floats, m: int, step: Floats) -> Floats:
        """Return parameters after a step of those that are free in class m, cut to the box."""
        moved = theta.copy()
        moved[self.free[m]] = np.clip(theta[self.free[m]] + step, 0.0, 1.0)
        return moved

    def edge(self, state: ParametricState, m: int, step: Floats, region: Region) -> Floats:
        """Return the point of the region farthest from the best fit along a step, by bisection."""
        best = state["theta"][m]
        theta = best
        inside = 0.0
        outside = math.inf
        share = 1.0
        for _ in range(_HALVINGS):
            moved = self.moved(best, m, share * step)
            if self.log_likelihood(region.data, moved) >= region.least:
                inside = share
                theta = moved
            else:
                outside = share
            share = 0.5 * (inside + outside) if outside < math.inf else 1.3 * inside
        return np.asarray(theta)

    def draws(
        self, state: ParametricState, m: int, draw: np.random.Generator, count: int
    ) -> list[Floats]:
        """Return points of the region of class m: of its modes, of its boundary and between."""
        region = self.region(state, m)
        modes = self.modes(state, m)
        points = [*modes]
        ways = draw.standard_normal((count, len(self.free[m])))
        for way, depth in zip(ways, draw.random(count), strict=True):
            mode = modes[len(points) % len(modes)]
            step = region.root @ way / max(float(np.linalg.norm(way)), _SMALL)
            for share in _SHORTENED:
                theta = self.moved(mode, m, share * step)
                if self.log_likelihood(region.data, theta) >= region.least:
                    points.append(theta)
                    break
            inner = self.moved(mode, m, depth * step)
            if self.log_likelihood(region.data, inner) >= region.least:
                points.append(inner)
        return points

    def worlds(self, state: ParametricState) -> FiniteWorlds:
        """Return points of the regions of the smallest and the largest class alive: a search."""
        alive = np.flatnonzero(state["rejected"] == 0)
        ends: list[int] = []
        if alive.size:
            ends = sorted({int(alive[0]), int(alive[-1])})
        draw = np.random.default_rng(0)
        points: list[Floats] = []
        levels: list[int] = []
        for m in ends:
            drawn = self.draws(state, m, draw, _MANY)
            points += drawn
            levels += [m] * len(drawn)
        kernels = [self.kernel(theta) for theta in points]
        data = self.counts_of(state)
        likelihoods = [self.log_likelihood(data, theta) for theta in points]

        def extreme_kernels(worth: Callable[[bellman.Kernel], float]) -> list[bellman.Kernel]:
            worths = np.array([worth(kernel) for kernel in kernels])
            extreme = []
            for m, sign in itertools.product(ends, (1.0, -1.0)):
                of_class = np.flatnonzero(np.array(levels) == m)
                best = of_class[int(np.argmax(sign * worths[of_class]))]
                for start in (self._extreme(state, m, sign, worth), points[best]):
                    polished = self._polished(state, m, start, sign, worth)
                    extreme.append(self.kernel(polished))
            return extreme

        return FiniteWorlds(
            self.known,
            law_of_starts(self.known, state["starts"]),
            self.judge(state),
            np.array(levels, np.int64),
            np.array(likelihoods),
            kernels.__getitem__,
            lambda m: self._best_kernel(state, m),
            extreme_kernels,
        )

    def _extreme(
        self,
        state: ParametricState,
        m: int,
        sign: float,
        worth: Callable[[bellman.Kernel], float],
    ) -> Floats:
        """Return an end of the region along the gradient of a worth, by the information."""
        region = self.region(state, m)
        theta = state["theta"][m]

        @lru_cache(maxsize=_MANY)
        def worth_at(key: bytes) -> float:
            return worth(self.kernel(np.frombuffer(key)))

        for _ in range(_TURNS):
            slopes = []
            for j in self.free[m]:
                down = theta.copy()
                up = theta.copy()
                down[j] = max(theta[j] - _SLOPE, 0.0)
                up[j] = min(theta[j] + _SLOPE, 1.0)
                rise = worth_at(up.tobytes()) - worth_at(down.tobytes())
                slopes.append(rise / (up[j] - down[j]))
            along = sign * region.root.T @ np.array(slopes)
            norm = np.linalg.norm(along)
            if not norm > 0.0:
                break
            theta = self.edge(state, m, region.root @ along / norm, region)
        return np.asarray(theta)

    def _polished(
        self,
        state: ParametricState,
        m: int,
        start: Floats,
        sign: float,
        worth: Callable[[bellman.Kernel], float],
    ) -> Floats:
        """Return where a worth is extreme in the region near a point, by a simplex: a search."""
        data = self.counts_of(state)
        least = self.least(state)
        free = self.free[m]

        def point(share: Floats) -> Floats:
            theta = start.copy()
            theta[free] = np.clip(share, 0.0, 1.0)
            return theta

        def objective(share: Floats) -> float:
            theta = point(share)
            if self.log_likelihood(data, theta) < least:
                return _OUTSIDE
            return -sign * worth(self.kernel(theta))

        return point(_simplex(objective, start[free], _POLISHED))

    def _best_kernel(self, state: ParametricState, m: int) -> bellman.Kernel:
        """Return the best fit of class m; one that is ruled out is searched for thoroughly."""
        theta = state["theta"][m]
        if state["rejected"][m]:
            theta = self.search(self.counts_of(state), theta, self.free[m]).theta
        return self.kernel(theta)

    # Single outcomes ------------------------------------------------------------------------------

    def fitted(self, state: ParametricState, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the best fit of class m."""
        return self.probability(state["theta"][m])

    def fit_number(self, state: ParametricState, m: int) -> int:
        """Return a number for the best fit of class m: another one when the data have doubled."""
        return int(state["count"].sum()).bit_length()

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the fit of class m to some counts."""
        start = self.begin()["theta"][m]
        counted: CountState = {"count": count, "novel": np.zeros((0, 4))}  # type: ignore[typeddict-item]  # shares of counts
        return self.probability(self.fit(self.counts_of(counted), self.free[m], [start]).theta)

    def outcome_of(self, s: int, a: int, next_state: int, reward: float) -> tuple[int, int]:
        """Return the pair of the model and the outcome of a step; -1 for what is not listed."""
        row = int(self.model.row_of(np.array(s), np.array(a)))
        if row < 0:
            return row, -1
        bonus = reward if self.known.rewards_known else 0.0
        return row, symbol_at(self.outcomes, row, next_state, bonus)


def _simplex(objective: Callable[[Floats], float], start: Floats, evaluations: int) -> Floats:
    """Return where Nelder and Mead's simplex finds an objective smallest in the unit box."""
    if not start.size:
        return start
    lowest = minimize(
        objective,
        start,
        method="Nelder-Mead",
        bounds=[(0.0, 1.0)] * start.size,
        options={"maxfev": evaluations, "xatol": 1e-6, "fatol": 1e-9},
    )
    return np.clip(lowest.x, 0.0, 1.0)


def _scoring_step(share: Floats, gradient: Floats, information: Floats) -> Floats:
    """Return a step of Fisher scoring in the parameters that the box does not hold back."""
    held_low = (share <= 0.0) & (gradient < 0.0)
    held_high = (share >= 1.0) & (gradient > 0.0)
    inner = ~(held_low | held_high)
    step = np.zeros(share.size)
    if inner.any():
        block = information[np.ix_(inner, inner)]
        step[inner] = np.linalg.lstsq(block, gradient[inner], rcond=None)[0]
    return step

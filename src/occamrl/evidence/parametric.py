r"""Evidence for classes with real parameters: mixtures of points predict, points are tested.

Class m is :math:`\{P_\theta : \theta \in \Theta_m\}`, a box. With the counts c of the outcomes
seen, :math:`\ell(\theta) = \sum_o c_o \log P_\theta(o)`; as in :mod:`occamrl.evidence.counts`, it
is given relative to the frequencies.

**Predictors.** Every class has a fixed cloud of points and, at doublings of the data, a generation
of points near what is likely (:mod:`occamrl.evidence.cloud`). Point i, made when the likelihoods
were :math:`\ell^0`, has a mass :math:`e^{b_i}` in

.. math:: Z = \log\Big(e^{b_0 + Q_{KT}} + \sum_i e^{b_i + \ell(\theta_i)}\Big),
    \qquad b_i = \log \mu_i - \ell^0(\theta_i),

Q_KT being the evidence of the counts alone. At first the counts and each class have 1/(M + 1),
spread evenly over the cloud. At generation j = 0, 1, ... a share a = 1/(j + 2) of the evidence
:math:`e^{Z_m}` of each class goes from its points to new ones, so that classes keep the weights
that a posterior would give them, and a share a^2 of all evidence to the classes alive in equal
parts, so that none is for ever without a weight. Z stays as it is: what is made after a block
predicts the next ones only. What is fixed before an outcome may depend on everything before, and to
leave out points lowers Z. So by Ville's inequality :math:`Z \le \ell(P^*) +
\log(1/\delta)` at all times at once with probability :math:`1 - \delta`.

**The test.** Class m is ruled out while :math:`\max_{\Theta_m} \ell < Z - \log(1/\delta)`; and
:math:`\{\theta : \ell(\theta) \ge Z - \log(1/\delta)\}` is a confidence region at all times, whose
projections are intervals for the parameters (:mod:`occamrl.evidence.region`). One point of the
region keeps its class: a witness suffices. What is in a class is in every class that frees its
parameters. Before a class is ruled out, a search looks for a witness. A class that is ruled out has
generations, too: they go on searching, and where one finds a witness the class is alive again.

**Acting.** By *sampling*: a point by its weight in Z, which is what a posterior would give it; by
*optimism*, the largest value among points inside; by the best *fit*. What is inside for acting is
so at the level delta/sqrt(k) after k episodes (B13).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from occamrl import bellman
from occamrl.addresses import generator
from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError
from occamrl.evidence.cloud import (
    CountedLikelihood,
    Counts,
    Fit,
    PointTable,
    climb,
    cloud,
    log_sum,
    next_generation,
    possible,
    search,
)
from occamrl.evidence.counts import (
    NOVEL_COUNT,
    NOVEL_PAIR,
    CountState,
    Place,
    begin_counts,
    count_outcomes,
    counted_evidence,
    log_frequencies,
    novel_count,
    outcome_misfits,
    pairs_of,
    symbol_at,
)
from occamrl.evidence.hulls import draw_table
from occamrl.evidence.region import Region
from occamrl.evidence.starts import (
    DatedState,
    acting_level,
    begin_starts,
    count_starts,
    law_of_starts,
)
from occamrl.evidence.tolerance import Table, prior_counts, stacked, table_of
from occamrl.evidence.worlds import Acting, Choice, FiniteWorlds
from occamrl.protocols import Flow, Judgement, Known, Misfit, Outcomes, ParameterRange, Search

if TYPE_CHECKING:
    from occamrl.models.model import ParametricLadder

_FIRST = 16  # outcomes from which on there is a generation at every doubling
_WEIGHTLESS = 20.0  # nats below Z at which a point is left out of it
_NEARLY = 6.0  # nats below the region at which it is kept for acting
_FEWEST = 16  # points of a class that are always kept, so that generations go on
_WORTHWHILE = 0.8  # points are left out when no more than this share stays
_OPTIMISTIC = 48  # points of the region that optimism looks at
_SOLVED = 4096  # points whose values are kept
_REMEMBERED = 2**21  # probabilities of points that are kept: searches come back to points
_TABLED = 2**22  # probabilities of points that are kept as tables


class ParametricState(CountState, DatedState):
    """What the evidence for real parameters keeps."""

    points: Floats  # [n, p] of the mixture, and witnesses, as shares of the box
    level: Ints  # [n] the class of each, from 0
    log_mass: Floats  # [n] b; minus infinity of witnesses
    counted_mass: float  # b of the counts
    generations: int
    renewed: int  # the number of outcomes when the last generation was made
    searched: Ints  # [3] points that were looked at, generations, climbs


class Weighed(NamedTuple):
    """The likelihoods of the points of a state."""

    counts: Ints  # of which state: adding a block makes another array
    points: Floats
    data: Counts
    likelihoods: Floats  # [n]
    mixture: float  # Z


class RenewedMasses(NamedTuple):
    """Logarithms of what a generation does to the masses of a mixture."""

    points: float  # by which those of all points are multiplied
    counts: float  # by which that of the counts is multiplied
    classes: Floats  # [M] the evidence with which the generation of each class enters


class Evaluated(NamedTuple):
    """The probabilities of a point that was evaluated."""

    done: Bools  # [pairs]
    probability: Floats  # of the model's outcomes


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
        self.points = PointTable(self.probability, self.outcomes.start)
        self._weighed: Weighed | None = None  # the last
        self._fits: dict[int, Floats] = {}  # of its counts, by class
        self._values: dict[bytes, Floats] = {}  # of the first step, by point
        self._evaluated: dict[bytes, Evaluated] = {}  # by point, the last at the end
        self._tables: dict[bytes, Table] = {}  # by point

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
        self.contains = self.ladder.contains

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
        clouds = [cloud(self.default, free) for free in self.free]
        sizes = np.array([len(points) for points in clouds])
        level = np.repeat(np.arange(self.classes), sizes)
        return {
            **begin_counts(self.outcomes),
            **begin_starts(self.known),
            "rejected": np.zeros(self.classes, np.int64),
            "points": np.concatenate(clouds),
            "level": level,
            "log_mass": -np.log(sizes * (self.classes + 1.0))[level],
            "counted_mass": -math.log(self.classes + 1.0),
            "generations": 0,
            "renewed": 0,
            "searched": np.array([int(sizes.sum()), 0, 0]),
        }

    # The likelihood -------------------------------------------------------------------------------

    def point(self, theta: Floats) -> dict[str, float]:
        """Return parameters in the user's unit."""
        values = self.low + theta * self.width
        return {**self.model.defaults, **dict(zip(self.names, values.tolist(), strict=True))}

    def probability(self, theta: Floats, rows: Sequence[int] | None = None) -> Floats:
        """Return the probabilities of the symbols, of some pairs at least or of all."""
        evaluated = self._evaluate(theta, rows)
        return np.bincount(self.symbol, evaluated, self.row.size).astype(np.float64)

    def _evaluate(self, theta: Floats, rows: Sequence[int] | None) -> Floats:
        """Return the probabilities of the model's outcomes, of some pairs at least or of all.

        A point is asked for its visited pairs, then for the others: models are slow.
        """
        key = theta.tobytes()
        pairs = len(self.model.pairs)
        point = self._evaluated.pop(key, None)
        if point is None:
            point = Evaluated(np.zeros(pairs, bool), np.zeros(self.model.reward.size))
        wanted = np.arange(pairs) if rows is None else np.asarray(rows, dtype=np.int64)
        missing = wanted[~point.done[wanted]]
        if missing.size:
            added = self.model.probability(self.point(theta), missing.tolist())
            done = point.done.copy()
            done[missing] = True
            point = Evaluated(done, point.probability + added)
        self._evaluated[key] = point
        if len(self._evaluated) * self.model.reward.size > _REMEMBERED and len(self._evaluated) > 1:
            del self._evaluated[next(iter(self._evaluated))]
        return point.probability

    def counts_of(self, state: CountState) -> Counts:
        """Return what was seen."""
        count = state["count"]
        rows = state["novel"][:, NOVEL_PAIR].astype(np.int64)
        novel = np.bincount(rows, state["novel"][:, NOVEL_COUNT], len(self.model.pairs))
        seen = np.flatnonzero(count)
        visited = np.union1d(self.row[seen], np.flatnonzero(novel))
        frequency = log_frequencies(count, self.outcomes)[seen]
        return Counts(
            visited.tolist(),
            seen,
            count[seen].astype(np.float64),
            frequency,
            novel.astype(np.float64),
        )

    def log_likelihood(self, data: Counts, theta: Floats) -> float:
        """Return l, minus that of the frequencies.

        Outcomes that are not listed have the rest of the probability. What is impossible has a
        likelihood below all others, and still a number.
        """
        return self.points.likelihood(theta, data)

    def weigh(self, state: ParametricState) -> Weighed:
        """Return the likelihoods of all points and Z, which are computed once for a state."""
        last = self._weighed
        if last is not None and last.counts is state["count"] and last.points is state["points"]:
            return last
        data = self.counts_of(state)
        likelihoods = self.points.likelihoods(state["points"], data)
        counted = counted_evidence(state["count"], self.outcomes, float(novel_count(state)))
        terms = np.append(state["log_mass"] + likelihoods, state["counted_mass"] + counted)
        self._weighed = Weighed(state["count"], state["points"], data, likelihoods, log_sum(terms))
        self._fits = {}
        return self._weighed

    def log_mixture(self, state: ParametricState) -> float:
        """Return Z, minus the likelihood of the frequencies."""
        return self.weigh(state).mixture

    def least(self, state: ParametricState, level: float | None = None) -> float:
        """Return the likelihood below which parameters are ruled out, at delta or another level."""
        return self.log_mixture(state) - math.log(1.0 / (level or self.delta))

    # Learning -------------------------------------------------------------------------------------

    def add(self, state: ParametricState, flow: Flow) -> None:
        """Count a block, test the classes, and make a generation when the data have doubled."""
        row = self.model.row_of(flow.step, flow.state, flow.action)
        moving = row >= 0  # nothing is learned at rest, or where no model comes
        moved = flow.take(moving)
        bonus = np.zeros(moved.reward.size)
        if self.known.rewards_known:
            bonus = moved.reward
        count_outcomes(state, self.outcomes, row[moving], moved, bonus, self.known)
        count_starts(state, flow)
        self._test(state)
        self._leave_out(state)
        if state["count"].sum() >= max(_FIRST, 2 * state["renewed"]):
            self._renew(state)

    def _test(self, state: ParametricState) -> None:
        """Rule out the classes for which a search finds no parameters likely enough."""
        largest = self._largest(state)
        # what is found in a class counts for those that contain it
        for m in np.argsort(self.ladder.sizes, kind="stable").tolist():
            if largest[m] < self.least(state) and not state["rejected"][m]:
                fit = self._search_class(state, m)
                state["searched"] = state["searched"] + np.array([fit.points, 0, fit.climbs])
                self._add_points(state, m, fit.theta[None], np.array([-np.inf]))
                largest = self._largest(state)
            if largest[m] >= self.least(state):
                state["rejected"][m] = 0
            elif not state["rejected"][m]:
                # 0 would mean that it is not ruled out; the first episode may be open
                state["rejected"][m] = max(state["episodes"], 1)

    def _largest(self, state: ParametricState) -> Floats:
        """Return the largest likelihood of a point in each class [M]."""
        largest = np.full(self.classes, -np.inf)
        np.maximum.at(largest, state["level"], possible(self.weigh(state).likelihoods))
        of_class: Floats = np.where(self.contains, largest, -np.inf).max(axis=1)
        return of_class

    def _search_class(self, state: ParametricState, m: int) -> Fit:
        """Search class m, from 0, for a point of the region."""
        near = state["points"][self._of_class(state, m)]
        points = np.concatenate([cloud(self.default, self.free[m]), near])
        likelihood = CountedLikelihood(self.points, self.weigh(state).data)
        return search(likelihood, points, self.default, self.free[m], self.least(state))

    def _of_class(self, state: ParametricState, m: int) -> Bools:
        """Return which points are in class m [n]."""
        return np.asarray(self.contains[m][state["level"]])

    def _add_points(self, state: ParametricState, m: int, points: Floats, log_mass: Floats) -> None:
        state["points"] = np.concatenate([state["points"], points])
        state["level"] = np.append(state["level"], np.full(len(points), m))
        state["log_mass"] = np.append(state["log_mass"], log_mass)

    def _leave_out(self, state: ParametricState) -> None:
        """Leave points out that weigh nothing, but for the most likely of every class."""
        weighed = self.weigh(state)
        kept = state["log_mass"] + weighed.likelihoods > weighed.mixture - _WEIGHTLESS
        kept |= weighed.likelihoods > self.least(state) - _NEARLY
        for m in range(self.classes):
            own = np.flatnonzero(state["level"] == m)
            order = np.argsort(-weighed.likelihoods[own], kind="stable")
            kept[own[order[:_FEWEST]]] = True
        if kept.mean() > _WORTHWHILE:
            return
        state["points"] = state["points"][kept]
        state["level"] = state["level"][kept]
        state["log_mass"] = state["log_mass"][kept]
        self.points.keep(state["points"])

    def _renew(self, state: ParametricState) -> None:
        """Make a generation in every class; in those that are ruled out it goes on searching."""
        weighed = self.weigh(state)
        number = state["generations"]
        state["generations"] = number + 1
        state["renewed"] = int(state["count"].sum())
        masses = self._renewed_masses(state, 1.0 / (number + 2.0))
        made = []
        for m in range(self.classes):
            inside = self._of_class(state, m)
            log_mass = state["log_mass"][inside]
            if np.isfinite(log_mass).any():
                inside &= np.isfinite(state["log_mass"])
                log_mass = state["log_mass"][inside]
            else:
                log_mass = np.zeros(log_mass.size)
            generation = next_generation(
                state["points"][inside],
                log_mass,
                weighed.likelihoods[inside],
                self.free[m],
                lambda steps: self.points.likelihoods(steps, weighed.data),
                generator(m, "generation", number),
            )
            made.append(generation)
            state["searched"] = state["searched"] + np.array([generation.evaluated, 0, 0])
        state["log_mass"] = state["log_mass"] + masses.points
        state["counted_mass"] += masses.counts
        for m, generation in enumerate(made):
            # what its points would have predicted before they were made does not count
            entering = masses.classes[m] + generation.log_weights - generation.likelihoods
            self._add_points(state, m, generation.points, entering)
        state["searched"] = state["searched"] + np.array([0, 1, 0])
        self.points.keep(state["points"])

    def _renewed_masses(self, state: ParametricState, share: float) -> RenewedMasses:
        """Return what a generation does to the masses; Z stays as it is.

        A share of the evidence of each class goes to its own generation, so that classes keep their
        weights; the square of that share of all evidence goes to the classes alive in equal parts,
        so that none is for ever without a weight.
        """
        weighed = self.weigh(state)
        alive = state["rejected"] == 0
        between = share**2 if alive.any() else 0.0
        totals = np.empty(self.classes)
        for m in range(self.classes):
            own = state["level"] == m
            evidence = log_sum(state["log_mass"][own] + weighed.likelihoods[own])
            totals[m] = math.log(share - between) + evidence
        if between:
            equal = math.log(between / alive.sum()) + weighed.mixture
            totals[alive] = np.logaddexp(totals[alive], equal)
        return RenewedMasses(math.log1p(-share), math.log1p(-between), totals)

    # Judging --------------------------------------------------------------------------------------

    def judge(self, state: ParametricState) -> Judgement:
        """Return what was found when the last block was counted."""
        mixture = self.log_mixture(state)
        points, generations, climbs = state["searched"].tolist()
        return Judgement(
            against=mixture - self._largest(state),
            alive=tuple(int(after == 0) for after in state["rejected"]),
            rejected_after=tuple(int(after) or None for after in state["rejected"]),
            log_mixture=mixture,
            novel=novel_count(state),
            search=Search(points, generations, climbs),
        )

    def best(self, state: ParametricState, m: int) -> Floats:
        """Return the most likely point of class m that a climb from the best point comes to."""
        weighed = self.weigh(state)
        if m not in self._fits:
            inside = np.flatnonzero(self._of_class(state, m))
            start = state["points"][inside[weighed.likelihoods[inside].argmax()]]
            self._fits[m] = climb(
                lambda theta: self.log_likelihood(weighed.data, theta), start, self.free[m]
            )
        return self._fits[m]

    def region(self, state: ParametricState, m: int) -> Region:
        """Return the confidence region of class m; no points if it is ruled out."""
        weighed = self.weigh(state)
        least = self.least(state)
        inside = np.flatnonzero(self._of_class(state, m) & (weighed.likelihoods >= least))
        if state["rejected"][m]:
            inside = inside[:0]
        points = state["points"][inside]
        likelihoods = weighed.likelihoods[inside]
        if not state["rejected"][m]:
            best = self.best(state, m)
            points = np.concatenate([best[None], points])
            likelihoods = np.append(self.log_likelihood(weighed.data, best), likelihoods)
        order = np.argsort(-likelihoods, kind="stable")
        return Region(
            points[order],
            likelihoods[order],
            least,
            self.free[m],
            lambda theta: self.log_likelihood(weighed.data, theta),
        )

    def parameters(self, state: ParametricState, m: int) -> dict[str, ParameterRange]:
        """Return the projections of the confidence region of class m; nothing if it is ruled out.

        They are in pieces where modes are apart. What lies between points that were found, and
        beyond the ends of rays, is not proved to be outside.
        """
        return self.ranges(self.region(state, m))

    def ranges(self, region: Region) -> dict[str, ParameterRange]:
        """Return the projections of a region, whose first point is the best guess."""
        ranges: dict[str, ParameterRange] = {}
        if not len(region.points):
            return ranges
        best = region.points[0]
        for j in region.free:
            pieces = []
            for low, high in region.pieces(j):
                ends = self.low[j] + self.width[j] * np.array([low, high])
                pieces.append((float(ends[0]), float(ends[1])))
            value = float(self.low[j] + self.width[j] * best[j])
            ranges[self.names[j]] = ParameterRange(value, tuple(pieces))
        return ranges

    def describe(self, state: ParametricState, m: int) -> str:
        """Return nothing: members have no names."""
        return ""

    def misfits(self, state: ParametricState, m: int) -> list[Misfit]:
        """Return where the best fit of class m, from 0, misfits, pair by pair."""
        probability = self.fitted(state, m)
        return outcome_misfits(state, self.outcomes, probability, self.place, self.known)

    # As members of a roster -----------------------------------------------------------------------

    def roster(self, state: ParametricState) -> Floats:
        """Return all points [n, p]."""
        return state["points"]

    def membership(self, state: ParametricState) -> Bools:
        """Return which points are in each class [M, n]."""
        return np.asarray(self.contains[:, state["level"]])

    def log_prior(self, state: ParametricState) -> Floats:
        """Return the logarithms of the points' masses; those without any are far behind."""
        return np.maximum(state["log_mass"], -1e3)

    def laws(self, members: Floats, symbols: Ints) -> Floats:
        """Return probabilities of outcomes [n, R, K], some outcomes [R, K] of R rows, -1: none."""
        return self.points.laws(members, symbols)

    def keep_point(self, state: ParametricState, m: int, theta: Floats) -> None:
        """Keep a point of class m, from 0, that predicts nothing."""
        self._add_points(state, m, theta[None], np.array([-np.inf]))

    def log_likelihoods(self, state: ParametricState) -> Floats:
        """Return the likelihoods of all points [n]; minus infinity where they are impossible."""
        return possible(self.weigh(state).likelihoods)

    def log_likelihood_of(self, state: ParametricState, member: Floats) -> float:
        """Return the likelihood of a point."""
        return float(possible(np.array(self.log_likelihood(self.counts_of(state), member))))

    def freedom(self, m: int) -> Sequence[int]:
        """Return which coordinates are free in class m, from 0."""
        return self.free[m]

    def table(self, members: Floats) -> Table:
        """Return points as robust backward induction needs them."""
        tables = []
        for theta in members:
            key = theta.tobytes()
            if key not in self._tables:
                if len(self._tables) * self.row.size >= _TABLED:
                    self._tables = {}
                mdp = self.model.mdp_at(self._evaluate(theta, None))
                reward = mdp.known.base_reward.ravel()
                laws = mdp.probability[None]
                table = table_of(mdp.outcomes, laws, reward, self.known.discount)
                self._tables[key] = table
            tables.append(self._tables[key])
        return stacked(tables)

    def best_kernels(self, state: ParametricState, m: int) -> bellman.Kernels:
        """Return the likeliest point of class m, from 0, for dynamic programming."""
        return self.kernels(self.best(state, m))

    def pair_names(self, rows: Ints) -> list[tuple[Hashable, Hashable]]:
        """Return the states and actions of some rows."""
        return pairs_of([self.place(int(row)) for row in rows], self.known)

    def place(self, row: int) -> Place:
        """Return where a row is."""
        step = int(self.model.layer[row]) + 1 if self.model.by_step else None
        return Place(step, *self.model.pairs[row])

    # Acting ---------------------------------------------------------------------------------------

    def kernels(self, theta: Floats) -> bellman.Kernels:
        """Return a member as dynamic programming needs it."""
        return self.model.mdp_at(self._evaluate(theta, None)).kernels

    def choose(
        self,
        state: ParametricState,
        judgement: Judgement,
        classes: int,
        acting: Acting,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose a point in the first classes that is inside; without any, draw a table.

        The source is the class, from 0, and M for a table.
        """
        weighed = self.weigh(state)
        level = acting_level(self.delta, state["episodes"])
        inside = weighed.likelihoods >= self.least(state, level)
        # where none is alive at delta, the truth is outside all classes
        inside &= not judgement.misspecified
        playable = np.flatnonzero(inside & (state["level"] < classes))
        if not playable.size:
            return Choice(self._draw_table(state, draw), self.classes, "draw")
        if acting == "fit":
            index = self._likeliest(state, judgement.chosen - 1, playable)
        elif acting == "sampling":
            weights = np.maximum(state["log_mass"][playable], -1e3)
            weights = weights + weighed.likelihoods[playable]
            index = int(playable[(weights + draw.gumbel(size=playable.size)).argmax()])
        else:
            index = self._most_valuable(state, playable, law)
        theta = state["points"][index]
        m = int(state["level"][index])
        free = self.ladder.free[m]
        parameters = {name: x for name, x in self.point(theta).items() if name in free}
        return Choice(self.kernels(theta), m, "draw", parameters)

    def _likeliest(self, state: ParametricState, m: int, playable: Ints) -> int:
        """Return the likeliest point of class m among some, or of all if it has none there."""
        own = playable[self._of_class(state, m)[playable]]
        candidates = own if own.size else playable
        return int(candidates[self.weigh(state).likelihoods[candidates].argmax()])

    def _draw_table(self, state: ParametricState, draw: np.random.Generator) -> bellman.Kernels:
        table = draw_table(state, self.outcomes, draw, prior=prior_counts(self, state))
        outcomes = table.outcomes
        reward = self.model.unit.low + self.model.unit.scale * outcomes.bonus
        mdp = self.model.mdp_at(table.probability, outcomes.pair, outcomes.next_state, reward)
        return mdp.kernels

    def _most_valuable(self, state: ParametricState, playable: Ints, law: Floats) -> int:
        """Return the point with the largest value among some that spread by likelihood."""
        order = playable[np.argsort(-self.weigh(state).likelihoods[playable], kind="stable")]
        ranks = np.linspace(0, order.size - 1, min(order.size, _OPTIMISTIC)).astype(np.int64)
        candidates = order[np.unique(ranks)]
        values = [law @ self._first_values(state["points"][index]) for index in candidates]
        return int(candidates[int(np.argmax(values))])

    def _first_values(self, theta: Floats) -> Floats:
        """Return the optimal values of the first step under a point [S], which are kept."""
        key = theta.tobytes()
        if key not in self._values:
            if len(self._values) >= _SOLVED:
                self._values = {}
            kernels = self.kernels(theta)
            solved, _ = bellman.solve(kernels, self.known.states, self.known.horizon)
            self._values[key] = solved[0]
        return self._values[key]

    # What is possible -----------------------------------------------------------------------------

    def worlds(self, state: ParametricState) -> FiniteWorlds:
        """Return points of the regions of all classes alive, and a search for extreme worths."""
        regions = [self.region(state, int(m)) for m in np.flatnonzero(state["rejected"] == 0)]
        alive = [m for m in range(self.classes) if not state["rejected"][m]]
        points: list[Floats] = []
        levels: list[int] = []
        for m, region in zip(alive, regions, strict=True):
            some = region.some()
            points += [*some]
            levels += [m] * len(some)
        kernels = [self.kernels(theta) for theta in points]
        data = self.weigh(state).data
        likelihoods = [self.log_likelihood(data, theta) for theta in points]
        keys = [theta.tobytes() for theta in points]
        known_kernels = dict(zip(keys, kernels, strict=True))

        def extreme_kernels(worth: Callable[[bellman.Kernels], float]) -> list[bellman.Kernels]:
            worths: dict[bytes, float] = {}

            def worths_at(thetas: Floats) -> Floats:
                for theta in thetas:
                    key = theta.tobytes()
                    if key not in worths:
                        found = known_kernels.get(key)
                        worths[key] = worth(self.kernels(theta) if found is None else found)
                return np.array([worths[theta.tobytes()] for theta in thetas])

            extreme = []
            for region in regions:
                extreme.append(self.kernels(region.lowest(worths_at)))
                extreme.append(self.kernels(region.lowest(lambda thetas: -worths_at(thetas))))
            return extreme

        return FiniteWorlds(
            self.known,
            law_of_starts(self.known, state["starts"]),
            self.judge(state),
            np.array(levels, np.int64),
            np.array(likelihoods),
            kernels.__getitem__,
            lambda m: self.best_kernels(state, m),
            extreme_kernels,
        )

    # Single outcomes ------------------------------------------------------------------------------

    def fitted(self, state: ParametricState, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the best fit of class m."""
        return self.probability(self.best(state, m))

    def fit_number(self, state: ParametricState, m: int) -> int:
        """Return a number for the best fit of class m: another one when the data have doubled."""
        return int(state["count"].sum()).bit_length()

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the fit of class m to some counts."""
        counted: CountState = {"count": count, "novel": np.zeros((0, 4))}  # type: ignore[typeddict-item]  # shares of counts
        data = self.counts_of(counted)
        return self.probability(self.search(data, self.free[m]).theta)

    def search(self, data: Counts, free: Sequence[int], target: float = -math.inf) -> Fit:
        """Return the most likely point that a search finds with some parameters free.

        It goes on among fresh points if it has not come to a likelihood that would be enough.
        """
        points = cloud(self.default, free)
        likelihood = CountedLikelihood(self.points, data)
        return search(likelihood, points, self.default, free, target)

    def outcome_of(
        self, step: int, s: int, a: int, next_state: int, reward: float
    ) -> tuple[int, int]:
        """Return the row of the model and the outcome of a step; -1 for what is not listed."""
        row = int(self.model.row_of(np.array(step), np.array(s), np.array(a)))
        if row < 0:
            return row, -1
        bonus = reward if self.known.rewards_known else 0.0
        return row, symbol_at(self.outcomes, row, next_state, bonus)

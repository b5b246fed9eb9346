"""The exact evidence with a tolerance: in force from the beginning, or asked for afterwards.

Beside the exact evidence, which counts and acts, the bets of :mod:`occamrl.evidence.tolerance` are
kept. They tell which members are left within any tolerance, by how much all of them are off at
least, and what a policy earns if every step is off by at most so much.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.evidence.cloud import WITNESS, climb
from occamrl.evidence.counts import novel_count
from occamrl.evidence.region import Region
from occamrl.evidence.starts import law_of_starts
from occamrl.evidence.tolerance import (
    GRID,
    Roster,
    Stakes,
    Table,
    begin_bets,
    estimated_distances,
    evidence_against,
    largest_worths,
    least_gains,
    least_values,
    novel_by_row,
    open_block,
    record,
    robust_policy,
)
from occamrl.evidence.worlds import Acting, Choice, CountedEvidence, FiniteWorlds
from occamrl.models.ladder import Ladder
from occamrl.protocols import (
    Flow,
    Judgement,
    Known,
    Misfit,
    OffBy,
    ParameterRange,
    State,
)

LARGEST = 0.5  # tolerance that may be asked for
_WITNESSES = 3  # points from which a search for one that is left climbs
_SOUGHT_AGAIN = 1.5  # growth of the data after which a class that is out is searched again
_VALUED = 40  # members in which policies are valued
_TOGETHER = 2**22  # probabilities of members that are worked on at once
_PLANNED = 4  # members for which a robust policy is planned
_WHERE = 3  # pairs that are named


class Exact(Roster, CountedEvidence, Protocol):
    """Evidence by likelihood over lists or real parameters, whose members can be forgiven."""

    known: Known

    def table(self, members: Any) -> Table:
        """Return members as robust backward induction needs them."""

    def kernels(self, member: Any) -> bellman.Kernels:
        """Return a member as dynamic programming needs it."""

    def best_kernels(self, state: Any, m: int) -> bellman.Kernels:
        """Return the likeliest member of class m, from 0, for dynamic programming."""

    def freedom(self, m: int) -> Sequence[int]:
        """Return which coordinates of members vary in class m, from 0; none in lists."""

    def ranges(self, region: Region) -> dict[str, ParameterRange]:
        """Return the real parameters of a region; none of lists."""

    def pair_names(self, rows: Ints) -> list[tuple[Any, Any]]:
        """Return the states and actions of some rows."""

    def keep_point(self, state: Any, m: int, theta: Floats) -> None:
        """Keep a point of class m, from 0, among the members."""

    def log_mixture(self, state: Any) -> float:
        """Return Z."""

    def log_likelihoods(self, state: Any) -> Floats:
        """Return the likelihoods of all members [n]; minus infinity where they are impossible."""

    def log_likelihood_of(self, state: Any, member: Any) -> float:
        """Return the likelihood of one member, listed or not."""


class Weighed(NamedTuple):
    """All members within reach of the data, and the evidence against them."""

    members: Any
    inside: Bools  # [M, n] which are in each class
    against: Floats  # [n] L


class Nearest(NamedTuple):
    """The member that comes nearest on average."""

    estimate: float  # of how far it is off, over the visits
    rows: Ints  # the pairs in which it misfits most
    estimate_there: float


class TolerantEvidence:
    """The exact evidence with a tolerance in force; any other may be asked for."""

    kind = "likelihood"

    def __init__(self, exact: Exact, tolerance: float) -> None:
        self.exact = exact
        self.tolerance = tolerance
        self.delta = exact.delta
        self.known = exact.known
        self.outcomes = exact.outcomes
        self._weighed: dict[float, Weighed] = {}  # of one array of counts, by tolerance
        self._balls: dict[float, BallWorlds] = {}  # the same
        self._counts: Ints | None = None
        self._stakes: dict[float, Stakes] = {}  # of closed blocks, by tolerance
        self._closed: Ints = np.zeros(0, np.int64)  # the rows of their bets

    @property
    def threshold(self) -> float:
        """The evidence above which a member is ruled out."""
        return math.log(1.0 / self.delta)

    # The contract ---------------------------------------------------------------------------------

    def begin(self) -> State:
        """Return the state before any data."""
        state = self.exact.begin()
        bets = begin_bets(self.exact.outcomes, self.exact.roster(state))
        classes = len(self.exact.membership(state))
        fallen = np.zeros(classes, np.int64)
        return {**state, **bets, "fallen": fallen, "sought": np.zeros(classes, np.int64)}

    def add(self, state: State, flow: Flow) -> None:
        """Count a flow; the bets on it are fixed by what came before."""
        open_block(self.exact, state)
        before = state["count"]
        novel = novel_by_row(state, state["odds"].size)
        self.exact.add(state, flow)
        record(self.exact, state, before, novel)
        self._seek(state)
        alive = np.array(self._alive(state, self.tolerance))
        since = np.where(state["fallen"] > 0, state["fallen"], max(state["episodes"], 1))
        state["fallen"] = np.where(alive > 0, 0, since)

    def judge(self, state: State) -> Judgement:
        """Weigh the classes within the tolerance in force; without one, by both kinds of evidence.

        What predicts pair by pair notices sooner that all members are wrong at one.
        """
        exact = self.exact.judge(state)
        if not self.tolerance:
            return exact._replace(
                against=self._least_against(state, 0.0),
                alive=self._alive(state, 0.0),
                rejected_after=tuple(int(episodes) or None for episodes in state["fallen"]),
            )
        return exact._replace(
            against=self._least_against(state, self.tolerance),
            alive=self._alive(state, self.tolerance),
            rejected_after=tuple(int(episodes) or None for episodes in state["fallen"]),
            blends=(),
            novel=novel_count(state),
        )

    def parameters(self, state: State, m: int) -> dict[str, ParameterRange]:
        """Return the real parameters of class m, from 0, within the tolerance in force."""
        ranges = {} if self.tolerance else self.exact.parameters(state, m)
        if ranges:
            return ranges
        region = self._region(state, m, self.tolerance)
        return {} if region is None else self.exact.ranges(region)

    def describe(self, state: State, m: int) -> str:
        """Return the best member of class m, from 0, in words; empty if it has no name."""
        return self.exact.describe(state, m)

    def misfits(self, state: State, m: int) -> list[Misfit]:
        """Return where the likeliest member of class m, from 0, misfits, tolerance or not."""
        return self.exact.misfits(state, m)

    def worlds(self, state: State) -> FiniteWorlds:
        """Return what the data leave possible within the tolerance in force."""
        if not self.tolerance and any(self.exact.judge(state).alive):
            return cast(FiniteWorlds, self.exact.worlds(state))
        return self.worlds_within(state, self.tolerance)

    # Members within a tolerance -------------------------------------------------------------------

    def weigh(self, state: State, tolerance: float) -> Weighed:
        """Return the evidence against all members within a tolerance, computed once for a state.

        For tolerances that are not in force a search climbs from the best points only where no
        member of any class is left, in the first class that has the best one.
        """
        if self._counts is not state["count"]:
            self._counts = state["count"]
            self._weighed = {}
            self._balls = {}
        if tolerance in self._weighed:
            return self._weighed[tolerance]
        members = self.exact.roster(state)
        inside = self.exact.membership(state)
        against = self._roster_against(state, members, tolerance)
        if tolerance != self.tolerance and against.min() > self.threshold:
            m = int(np.argmax(inside[:, against.argmin()]))  # the first class with the best member
            free = self.exact.freedom(m)
            if len(free):
                points = members[inside[m]]
                witness = self._climbed(state, points, against[inside[m]], free, tolerance)
                members = np.concatenate([members, witness[None]])
                against = np.append(against, self._against(state, witness, tolerance))
                # it counts for all classes that contain class m
                level = np.asarray(inside[:, inside[m]].all(axis=1))
                inside = np.append(inside, level[:, None], axis=1)
        self._weighed[tolerance] = Weighed(members, inside, against)
        return self._weighed[tolerance]

    def _lost(self, inside: Bools, against: Floats, m: int) -> bool:
        """Return whether class m, from 0, has real parameters and none of its points is left."""
        least = against[inside].min(initial=math.inf)
        return bool(len(self.exact.freedom(m))) and bool(least > self.threshold)

    def _seek(self, state: State) -> None:
        """Search classes of which no point is left; what is found is kept.

        A class for which nothing was found is searched again when the data have grown by half.
        """
        total = int(state["count"].sum())
        for m in range(state["sought"].size):
            weighed = self.weigh(state, self.tolerance)
            inside = weighed.inside[m]
            lost = self._lost(inside, weighed.against, m)
            if not lost or total < _SOUGHT_AGAIN * state["sought"][m]:
                continue
            points = weighed.members[inside]
            free = self.exact.freedom(m)
            against = weighed.against[inside]
            witness = self._climbed(state, points, against, free, self.tolerance)
            if self._against(state, witness, self.tolerance) <= self.threshold:
                self.exact.keep_point(state, m, witness)
                self._weighed = {}
                self._balls = {}
            else:
                sought = state["sought"].copy()
                sought[m] = total
                state["sought"] = sought

    def _roster_against(self, state: State, members: Any, tolerance: float) -> Floats:
        """Return the evidence against all members; that of closed blocks is added up once."""
        rows = state["bet_row"][: state["closed"]]
        if not np.array_equal(self._closed, rows[: self._closed.size]):
            self._stakes = {}  # another state
        before = self._stakes.get(tolerance)
        if before is not None and not np.array_equal(before.members, members):
            before = None
        against, stakes = evidence_against(self.exact, state, members, tolerance, before)
        if tolerance == self.tolerance:
            self._stakes[tolerance] = stakes
            self._closed = rows
        if tolerance == 0.0:
            return self._with_exact(state, against, self.exact.log_likelihoods(state))
        return against

    def _with_exact(self, state: State, against: Floats, likelihoods: Floats) -> Floats:
        """Return the mean of the bets and the exact evidence, which is an e-value as both are."""
        exact = self.exact.log_mixture(state) - likelihoods
        return np.asarray(np.logaddexp(against, exact) - math.log(2.0))

    def _against(self, state: State, member: Any, tolerance: float) -> float:
        """Return the evidence against one member."""
        against = evidence_against(self.exact, state, member[None], tolerance)[0]
        if tolerance == 0.0:
            likelihood = self.exact.log_likelihood_of(state, member)
            against = self._with_exact(state, against, np.array([likelihood]))
        return float(against[0])

    def _climbed(
        self,
        state: State,
        points: Floats,
        against: Floats,
        free: Sequence[int],
        tolerance: float,
    ) -> Floats:
        """Return the point with the least evidence against it that climbs from some points find.

        Where what was seen is impossible at all of them, no slope leads anywhere.
        """
        if not np.isfinite(against.min()):
            return np.asarray(points[int(against.argmin())])

        def height(theta: Floats) -> float:
            # below what a climb can tell apart, where something is impossible
            return -min(self._against(state, theta, tolerance), 1e12)

        ends = []
        for index in np.argsort(against, kind="stable")[:_WITNESSES]:
            ends.append(climb(height, points[index], free, tolerance=WITNESS))
            if height(ends[-1]) >= -self.threshold:
                break
        return max(ends, key=height)

    def _alive(self, state: State, tolerance: float) -> tuple[int, ...]:
        """Return how many members of each class are left [M]; of real parameters 1 or 0."""
        weighed = self.weigh(state, tolerance)
        count = (weighed.inside & (weighed.against <= self.threshold)).sum(axis=1)
        alive = []
        for m, members in enumerate(count.tolist()):
            alive.append(min(members, 1) if len(self.exact.freedom(m)) else members)
        return tuple(alive)

    def _least_against(self, state: State, tolerance: float) -> Floats:
        weighed = self.weigh(state, tolerance)
        against = np.where(weighed.inside, weighed.against, np.inf)
        return np.asarray(against.min(axis=1))

    def _region(self, state: State, m: int, tolerance: float) -> Region | None:
        """Return the region of class m, from 0, within a tolerance; None if nothing is left."""
        weighed = self.weigh(state, tolerance)
        left = np.flatnonzero(weighed.inside[m] & (weighed.against <= self.threshold))
        free = self.exact.freedom(m)
        if not left.size or not len(free):
            return None
        order = left[np.argsort(weighed.against[left], kind="stable")]
        return Region(
            weighed.members[order],
            -weighed.against[order],
            -self.threshold,
            free,
            lambda theta: -self._against(state, theta, tolerance),
        )

    # How wrong the models are ---------------------------------------------------------------------

    def off_by(self, state: State) -> OffBy:
        """Return by how much all models are off: a proved lower bound, and an estimate."""
        weighed = self.weigh(state, 0.0)
        more_than = 0.0
        if weighed.against.min() > self.threshold:
            # the first survivor ends the walk: larger tolerances say nothing about smaller ones
            for tolerance in GRID:
                against = self.weigh(state, tolerance).against
                if against.min() <= self.threshold:
                    break
                more_than = tolerance
        nearest = self._nearest(state)
        return OffBy(more_than, nearest.estimate, tuple(self.exact.pair_names(nearest.rows)))

    def off_where_worst(self, state: State) -> float:
        """Return by how much the nearest model seems to be off in the pairs that are named."""
        return self._nearest(state).estimate_there

    def _nearest(self, state: State) -> Nearest:
        """Return the member that comes nearest on average, and where it misfits most."""
        distances = estimated_distances(self.exact, state, self.weigh(state, 0.0).members)
        averages = distances.excess @ distances.visits
        best = int(np.argmin(averages))
        excess = distances.excess[best]
        rows = np.argsort(-distances.visits * excess, kind="stable")[:_WHERE]
        rows = rows[excess[rows] > 0.0]
        # rows that were picked for their excess owe some of it to chance: of so many, so much
        looked = max(int((distances.visits > 0.0).sum()), _WHERE)
        luck = float(ndtri(1.0 - 0.5 * _WHERE / looked)) * distances.deviation[best][rows]
        weight = distances.visits[rows]
        there = float(weight @ (excess[rows] - luck) / max(weight.sum(), 1e-300))
        return Nearest(max(float(averages[best]), 0.0), rows, max(there, 0.0))

    def worlds_within(self, state: State, tolerance: float) -> BallWorlds:
        """Return the members left within a tolerance; the nearest if none is left."""
        weighed = self.weigh(state, tolerance)
        if tolerance not in self._balls:
            self._balls[tolerance] = self._ball(state, weighed, tolerance)
        return self._balls[tolerance]

    def _ball(self, state: State, weighed: Weighed, tolerance: float) -> BallWorlds:
        left = np.flatnonzero(weighed.against <= self.threshold)
        if not left.size:
            left = np.array([int(weighed.against.argmin())])
        order = left[np.argsort(weighed.against[left], kind="stable")]
        ranks = np.arange(order.size)
        regions = self._largest_regions(state, tolerance)
        if regions:
            # of real parameters some, and what a search finds beyond them
            spread = np.linspace(0, order.size - 1, min(order.size, _VALUED))
            ranks = np.unique(spread.astype(int))
        chosen = order[ranks]
        judgement = self.judge(state)._replace(
            alive=self._alive(state, tolerance), against=self._least_against(state, tolerance)
        )
        levels = np.argmax(weighed.inside[:, chosen], axis=0)
        members = weighed.members[chosen]
        worlds = FiniteWorlds(
            self.known,
            law_of_starts(self.known, state["starts"]),
            judgement,
            levels,
            -weighed.against[chosen],
            lambda index: self.exact.kernels(members[index]),
            # the best guess is the likeliest, as without a tolerance
            lambda m: self.exact.best_kernels(state, m),
        )
        return BallWorlds(self.exact, tolerance, members, worlds, regions)

    def _largest_regions(self, state: State, tolerance: float) -> list[Region]:
        """Return the regions of classes with real parameters that are in no larger one."""
        inside = self.weigh(state, tolerance).inside
        regions = []
        for m in range(len(inside)):
            larger = (inside[m] <= inside).all(axis=1) & (inside[m] != inside).any(axis=1)
            region = self._region(state, m, tolerance)
            if region is not None and not larger.any():
                regions.append(region)
        return regions

    def _best_of(self, weighed: Weighed, m: int) -> Any:
        """Return the member of class m, from 0, with the least evidence against it."""
        own = np.flatnonzero(weighed.inside[m])
        return weighed.members[own[weighed.against[own].argmin()]]

    # Acting, by the exact evidence while it has a member left -------------------------------------

    def choose(
        self,
        state: State,
        judgement: Judgement,
        classes: int,
        acting: Acting,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose what to play: as without a tolerance, or the best member within it."""
        exact = self.exact.judge(state)
        if not exact.misspecified or judgement.misspecified:
            return self.exact.choose(state, exact, classes, acting, law, draw)
        weighed = self.weigh(state, self.tolerance)
        best = self._best_of(weighed, judgement.chosen - 1)
        return Choice(self.exact.kernels(best), judgement.chosen - 1, "draw")

    # Single outcomes, as the exact evidence has them ----------------------------------------------

    def fitted(self, state: State, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the best member of class m, from 0."""
        return self.exact.fitted(state, m)

    def fit_number(self, state: State, m: int) -> int:
        """Return a number for that member: another one when another takes its place."""
        return self.exact.fit_number(state, m)

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities [O] under the member of class m that fits some counts best."""
        return self.exact.refitted(count, m)

    def outcome_of(
        self, step: int, s: int, a: int, next_state: int, reward: float
    ) -> tuple[int, int]:
        """Return pair and outcome of a step; -1 for what is not listed, or where nothing moves."""
        return self.exact.outcome_of(step, s, a, next_state, reward)


def tolerant_evidence(
    ladder: Any, known: Known, delta: float, tolerance: float
) -> TolerantEvidence:
    """Return the evidence of a ladder of lists, covers or real parameters, with a tolerance."""
    if isinstance(ladder, Ladder):
        return TolerantEvidence(ladder.list_evidence(known, delta), tolerance)
    return TolerantEvidence(ladder.evidence(known, delta), tolerance)


class BallWorlds(FiniteWorlds):
    """All worlds within a tolerance of the members that are left.

    Each step of each episode may be off by as much, in whatever way; outcomes that no model lists
    stay out of it.
    """

    def __init__(
        self,
        exact: Exact,
        tolerance: float,
        members: Any,
        worlds: FiniteWorlds,
        regions: Sequence[Region],
    ) -> None:
        super().__init__(
            worlds.known,
            worlds.law,
            worlds.judgement,
            worlds.levels,
            worlds.likelihoods,
            worlds.kernels,
            worlds.best_kernels,
        )
        self.tolerance = tolerance
        self._exact = exact
        self._members = members
        self._regions = regions

    def around(self, tolerance: float) -> BallWorlds:
        """Return the worlds within another tolerance of the same members."""
        worlds = copy.copy(self)
        worlds.tolerance = tolerance
        return worlds

    def with_members(self, members: Any) -> BallWorlds:
        """Return the worlds within the tolerance of these members as well."""
        worlds = copy.copy(self)
        worlds._members = np.concatenate([self._members, members])
        return worlds

    def _tables(self, members: Any) -> Iterator[Table]:
        """Yield members in pieces that are worked on at once."""
        outcomes = self._exact.outcomes.next_state.size
        together = max(1, _TOGETHER // outcomes)
        for first in range(0, len(members), together):
            yield self._exact.table(members[first : first + together])

    def _least(
        self, members: Any, policy: NDArray[Any], against: NDArray[Any] | None, sign: float
    ) -> Floats:
        """Return the least worth of a policy, or of a gain, around each of some members [n].

        With sign -1 it is minus the largest.
        """
        least = []
        for table in self._tables(members):
            if against is None:
                values = least_values(table, policy, self.tolerance, sign)[0]
            else:
                values = least_gains(table, policy, against, self.tolerance, sign)
            least.append(values @ self.law)
        return np.concatenate(least)

    def worst_members(
        self, policy: NDArray[Any], against: NDArray[Any] | None = None, sign: float = 1.0
    ) -> Any:
        """Return members that are left and have the least worth, as far as a search finds them.

        Of a list all members are looked at, and none is searched for.
        """
        worst = []
        for region in self._regions:
            worst.append(region.lowest(lambda members: self._least(members, policy, against, sign)))
        return np.array(worst) if worst else self._members[:0]

    def range_of(
        self, policy: NDArray[Any], against: NDArray[Any] | None = None
    ) -> tuple[float, float]:
        """Return the least and the largest worth of a policy, or of its difference to another."""
        ends = []
        for sign in (1.0, -1.0):
            searched = self.worst_members(policy, against, sign)
            members = np.concatenate([self._members, searched])
            ends.append(sign * float(self._least(members, policy, against, sign).min()))
        low, high = ends
        if against is not None:
            scale = self.known.unit.scale
            return scale * low, scale * high
        return float(self.known.amount(low)), float(self.known.amount(high))

    def least_worth(self, policy: NDArray[Any]) -> float:
        """Return the least worth of a policy over the members that are listed."""
        return float(self.known.amount(self._least(self._members, policy, None, 1.0).min()))

    def largest_worth(self) -> float:
        """Return the most that any policy earns, over the members that are listed."""
        known = self.known
        worths = []
        for table in self._tables(self._members):
            by_start = largest_worths(table, known.states, known.horizon, self.tolerance)
            worths.append(float((by_start @ self.law).max()))
        return float(known.amount(max(worths)))

    def recommend(self, today: NDArray[Any] | None) -> Ints:
        """Return the policy with the best worst case, among those that are best for some members.

        Those are robust policies, optimal ones, and what is done most often today.
        """
        candidates = [self.policy(self.best(self.judgement.chosen - 1))]
        spread = np.linspace(0, len(self._members) - 1, min(len(self._members), _PLANNED))
        for index in np.unique(spread.astype(int)):
            table = self._exact.table(self._members[index : index + 1])
            known = self.known
            candidates.append(robust_policy(table, known.states, known.horizon, self.tolerance))
        if today is not None:
            candidates.append(today.argmax(axis=2))
        different = list({policy.tobytes(): policy for policy in candidates}.values())
        return max(different, key=self.least_worth)

    @property
    def some_left(self) -> bool:
        """Whether members are left: else the nearest one stands for them."""
        return any(self.judgement.alive)

r"""Preflight of a ladder, before any data: whether its classes can be told apart by playing them.

An *unidentifiable pair* is a kernel P of a class and a kernel Q outside it such that P's policy
earns much less under Q than Q's own, while what it sees there does not reject P within the run. A
small class that is wrong can then confirm itself for ever: its policy never goes where it is wrong.
The remedy is optimism over all kernels that are left.

Members P of each class are tried against kernels Q outside it. If Q is true and P's policy is
played, the evidence against a kernel grows by its *rate* d per episode; M26 of the mathematics has
the rates, and what n d - sqrt(2 n d) has to exceed. A class is rejected with the last of its
kernels.

Of classes with real parameters, truths are points inside the boxes of richer classes. The class
plays the best policy of its fit and fits what that policy shows: both are found in turns. What is
left of the relative entropy is the rate, and it has to exceed log((M + 1)/delta) + (p/2) log(1 +
steps), for the fits of the p parameters of the truth's class have to be learned, too.

With a tolerance a kernel's rate is the relative entropy to the nearest law within the tolerance of
it: what that forgives is not evidence.

There is one kind of :class:`Rates` for each kind of ladder; :func:`rates_of` chooses it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from occamrl import bellman
from occamrl.addresses import stream
from occamrl.answers.wording import count_of, listed, points
from occamrl.arrays import Floats, Ints
from occamrl.errors import (
    ParameterError,
    require_choice,
    require_delta,
    require_integer,
    require_kind,
    require_number,
)
from occamrl.evidence import value
from occamrl.evidence.cloud import Counts, climb
from occamrl.evidence.lists import ListEvidence
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.evidence.starts import law_of_starts
from occamrl.evidence.tolerance import SHARES, evidence_rates
from occamrl.evidence.tolerant import LARGEST
from occamrl.learners.occam import Occam
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.logs.log import Log
from occamrl.models.families import level
from occamrl.models.ladder import Ladder
from occamrl.models.model import ParametricLadder, spread_points
from occamrl.naming import quoted
from occamrl.protocols import MOST_EPISODES, Flow, Known, Learner
from occamrl.running.flow import simulate
from occamrl.selectors.arl_gen import ARLGen

_SHARE = 0.01  # of what is at stake: losing less is not much
_DECISIVE = 1e100  # a rate that one step decides by
_INSTANT = 1e-6  # episodes: what is decided sooner is decided at once
_NOTHING = 1e-12  # a rate that is rounding
_TURNS = 3  # of the policy and the fit of a class with real parameters
_REMEDIES = {
    "all": "optimism over all kernels that are left",
    "largest": "play the largest class",
}


@dataclass(frozen=True)
class UnidentifiablePair:
    """A kernel that would confirm itself although another is the truth."""

    wrong_class: int  # of the first kernel, from 1
    member: int  # P: a member of the ladder's list, or counted among those drawn from its class
    truth_class: int
    truth: int  # Q, likewise
    loss_per_episode: float  # of P's policy under Q against Q's own, in the unit of the rewards
    episodes_to_reject: float  # until what P's policy sees rejects every kernel of the class
    parameters: str = ""  # of Q, where these are real; P is then the best fit


class SearchTest(NamedTuple):
    """How often the search of parameters lost the true ones."""

    runs: int
    missed: tuple[str, ...]  # the classes that were ruled out although the truth was possible

    def __str__(self) -> str:
        trials = count_of(self.runs, "trial")
        text = f"The search lost the true parameters in {len(self.missed)} of {trials}"
        classes = [repr(name) for name in dict.fromkeys(self.missed)]
        if not classes:
            return f"{text}."
        return f"{text}, of {listed(classes)}: a verdict against such a class may be wrong."


@dataclass(frozen=True, kw_only=True, eq=False)
class Preflight:
    """What was found; print it before a run, then play ``selector()``."""

    ladder: Ladder | ParametricLadder
    episodes: int
    delta: float
    evidence: str
    pairs_tried: int
    unidentifiable: list[UnidentifiablePair]
    rejection: list[float]  # of each class but the largest: median episodes until it is, if wrong
    tolerance: float = 0.0
    grid_episodes: float = math.inf  # after which the cover radius, not noise, hides differences

    @property
    def remedy(self) -> str:
        """What ``selector()`` does about such pairs: "none", "all" or "largest".

        That is nothing, optimism over all kernels that are left, or to play the largest class.
        """
        if not self.unidentifiable:
            return "none"
        if self.ladder.kind == "linear":
            return "largest"
        return "all"

    def selector(self, **parameters: Any) -> Learner:
        """Return the agent to play: Occam or ARL-GEN by the evidence, or UCRL-VTR-LIN.

        Other ``parameters`` are handed on to it.
        """
        options: dict[str, Any] = {"delta": self.delta, **parameters}
        if self.remedy == "largest" and isinstance(self.ladder, Ladder):
            largest = self.ladder.families[-1]
            bounds = {"features": largest.own_features, "norm_bound": largest.norm_bound}
            return UCRLVTRLin(**{**bounds, **options})
        options = {"ladder": self.ladder, **options}
        if self.evidence == "likelihood":
            return Occam(**{"tolerance": self.tolerance, **options})
        return ARLGen(**options)

    def search_test(self, runs: int = 50, log: Log | None = None) -> SearchTest:
        """Draw parameters, then data from them, and count how often the search loses them.

        Before a class with real parameters is ruled out, a search looks for parameters that are
        likely enough. Here they are there: the true ones. The data are those of ``episodes`` under
        random actions, or as many outcomes of every pair as a log has.

        >>> import occamrl as orl
        >>> problem = orl.make_problem("queue-admission")
        >>> report = orl.preflight(problem.ladder, episodes=20, truths=1)
        >>> print(report.search_test(runs=4))
        The search lost the true parameters in 0 of 4 trials.
        """
        if not isinstance(self.ladder, ParametricLadder):
            raise ParameterError(
                "ladder",
                got=f"a ladder of kind {self.ladder.kind!r}",
                expected="real parameters: the others are not searched",
            )
        require_integer("runs", runs, 1)
        if log is not None:
            require_kind("log", log, Log)
        missed = []
        for run in range(runs):
            m = run % self.ladder.classes
            if _search_loses(self.ladder, m, self.delta, run, self.episodes, log):
                missed.append(self.ladder.names[m])
        return SearchTest(runs, tuple(missed))

    def __str__(self) -> str:
        noun = "model" if self.ladder.finite else "parameter"
        sizes = zip(self.ladder.names, self.ladder.sizes, strict=True)
        classes = listed([f"{quoted(name)} ({count_of(size, noun)})" for name, size in sizes])
        run = f"{_rounded(self.episodes)}, judged by {self.evidence}, delta {self.delta:g}"
        if self.tolerance:
            run += f", if every step may be off by {points(self.tolerance)}"
        lines = [f"{classes}: {run}"]
        for name, episodes in zip(self.ladder.names, self.rejection, strict=False):
            when = "is never rejected"
            if math.isfinite(episodes):
                when = f"is rejected after about {_rounded(episodes)}"
            lines.append(f"  {quoted(name)}, if wrong, {when} by playing it")
        lines += self._lines_of_pairs()
        if math.isfinite(self.grid_episodes):
            when = f"after about {_rounded(self.grid_episodes)}"
            fine = "fine enough"
            if self.grid_episodes <= self.episodes:
                fine = "too coarse for this run"
            lines.append(f"  grid: limits what can be told apart {when}: {fine}")
        return "\n".join(lines)

    def _lines_of_pairs(self) -> list[str]:
        tried = f"among {self.pairs_tried:,} tried"
        if not self.unidentifiable:
            return [f"  no unidentifiable pairs {tried}: plain selection is enough"]
        worst = max(self.unidentifiable, key=lambda pair: pair.loss_per_episode)
        wrong = repr(self.ladder.names[worst.wrong_class - 1])
        right = repr(self.ladder.names[worst.truth_class - 1])
        kernels = f"kernel {worst.member} of {wrong} under kernel {worst.truth} of {right}"
        if worst.parameters:
            kernels = f"the fit of {wrong} under {worst.parameters} of {right}"
        noticed = "and is never noticed"
        if math.isfinite(worst.episodes_to_reject):
            noticed = f"unnoticed for {_rounded(worst.episodes_to_reject)}"
        found = count_of(len(self.unidentifiable), "unidentifiable pair")
        return [
            f"  {found} {tried}: a wrong class can confirm itself",
            f"  worst: {kernels} loses {worst.loss_per_episode:.3g} per episode, {noticed}",
            f"  remedy, in selector(): {_REMEDIES[self.remedy]}",
        ]


def _rounded(episodes: float) -> str:
    return count_of(round(episodes), "episode")


# What a policy meets and earns --------------------------------------------------------------------


def at_stake(kernels: bellman.Kernels, known: Known, start: Floats) -> float:
    """Return how much more the best policy earns than the worst."""
    best, _ = bellman.solve(kernels, known.states, known.horizon)
    worst, _ = bellman.solve(bellman.turned(kernels), known.states, known.horizon)
    return float(start @ best[0] + start @ worst[0])


def episodes_until(rate: float, limit: Callable[[float], float]) -> float:
    """Return from how many episodes on n d - sqrt(2 n d) exceeds ``limit(n)``.

    Infinity where it does not within the longest run. The limit grows more slowly than n d, so that
    there is one crossing, which is found by bisection.
    """

    def rejected(n: float) -> bool:
        return n * rate - math.sqrt(2.0 * n * rate) > limit(n)

    if rate > _DECISIVE:
        return 1.0
    if rate <= _NOTHING or not rejected(MOST_EPISODES):
        return math.inf
    low = 0.0
    high = float(MOST_EPISODES)
    while high - low > 1e-6 * high and high > 2.0 * _INSTANT:
        middle = 0.5 * (low + high)
        # the answer may be 1 or 10^15: its logarithm is halved first
        if high > 4.0 * low:
            middle = math.sqrt(max(low, _INSTANT) * high)
        if rejected(middle):
            high = middle
        else:
            low = middle
    return high


# Rates of rejection -------------------------------------------------------------------------------


class Trial(NamedTuple):
    """A class that plays alone while a kernel outside it is the truth."""

    pair: UnidentifiablePair  # what it is if too much is lost for too long
    member_rejected: float  # after how many episodes the member that plays is
    stake: float  # of which a share counts as much, in the learner's unit


class Rates(Protocol):
    """How soon evidence rejects the classes of a ladder that play alone."""

    grid_episodes: float  # see Preflight

    def trials(self, m: int) -> Iterator[Trial]:
        """Try class m, from 1, against truths outside it."""


class Candidate(NamedTuple):
    """A kernel that is tried, solved."""

    number: int
    first: int  # the first class that holds it, from 1
    theta: Floats  # [G, n] over the features of the largest class
    probability: Floats  # [O]
    kernels: bellman.Kernels
    values: Floats  # [H + 1, S]
    policy: Ints  # [H, S]


Sides = tuple[list[Candidate], list[Candidate]]  # inside a class, and outside
Times = tuple[float, float]  # until a class is rejected, and until its member that plays is


class KernelRates(ABC):
    """Of kernels inside each class, which play, and kernels outside it, which are true."""

    _plan: Candidate | None = None  # whose rows are kept: they are slow to find
    _rows: Floats  # [H, S, n]

    def __init__(
        self, ladder: Ladder, known: Known, delta: float, members: int, truths: int
    ) -> None:
        self.ladder = ladder
        self.known = known
        self.delta = delta
        self.start = law_of_starts(known, np.zeros(known.states, np.int64))
        self.sides = self._candidates(members, truths)
        self.stake = 0.0
        for _, outside in self.sides:
            for truth in outside:
                self.stake = max(self.stake, at_stake(truth.kernels, known, self.start))
        self.grid_episodes = math.inf
        self.radius = ladder.reach[-1]
        if self.radius:  # until the cover radius outweighs the noise
            noise = math.log(ladder.family.size / delta)
            self.grid_episodes = noise / (known.horizon * self.radius**2)

    @abstractmethod
    def _candidates(self, members: int, truths: int) -> list[Sides]:
        """Return at most so many kernels inside and outside of each class but the largest."""

    @abstractmethod
    def _times(self, m: int, plan: Candidate, truth: Candidate, visited: Floats) -> Times:
        """Return when class m and the member that plays are rejected.

        ``visited`` [H, S] is how probable states are then.
        """

    def trials(self, m: int) -> Iterator[Trial]:
        """Try class m, from 1, against truths outside it."""
        inside, outside = self.sides[m - 1]
        for plan in inside:
            for truth in outside:
                visited = bellman.visits(
                    truth.kernels, plan.policy, self.start, self.known.discount
                )
                of_class, of_member = self._times(m, plan, truth, visited)
                earned = bellman.evaluate(truth.kernels, plan.policy)
                loss = self.known.unit.scale * float(self.start @ (truth.values[0] - earned[0]))
                pair = UnidentifiablePair(m, plan.number, truth.first, truth.number, loss, of_class)
                yield Trial(pair, of_member, self.stake)

    def _solved(self, number: int, first: int, theta: Floats) -> Candidate:
        features = self.ladder.features
        probability = np.maximum(features.probabilities(theta), 0.0)
        kernels = bellman.kernels_of(features.attach(self.known), probability, self.known)
        values, policy = bellman.solve(kernels, self.known.states, self.known.horizon)
        return Candidate(number, first, theta, probability, kernels, values, policy)

    def _pairs(self, plan: Candidate) -> Ints:
        return np.arange(self.known.states) * self.known.actions + plan.policy  # [H, S]

    def _gram(self, plan: Candidate, visited: Floats) -> Floats:
        """Return the expected sum of x x' of value rows in an episode [G, n, n]."""
        features = self.ladder.features
        pairs = self._pairs(plan)
        if plan is not self._plan:
            steps = zip(plan.values[1:], pairs, strict=True)
            rows = [value.rows(features, self.known, V).x[pair] for V, pair in steps]
            self._rows = np.array(rows)
            self._plan = plan
        gram = np.zeros((features.groups, features.width, features.width))
        group = features.group[pairs]
        for g in np.unique(group):
            x = self._rows[group == g]
            gram[g] = (x * visited[group == g][:, None]).T @ x
        return gram


class ListRates(KernelRates):
    """Of lists of kernels: a class is rejected with the last of its members."""

    log_prior: Floats  # [m]

    def _candidates(self, members: int, truths: int) -> list[Sides]:
        ladder = self.ladder
        draw = stream(0, "preflight")

        def some(first: int, last: int, maximum: int) -> list[Candidate]:
            numbers = np.arange(first, last)
            if numbers.size > maximum:
                numbers = np.sort(draw.choice(numbers, maximum, replace=False))
            return [
                self._solved(int(i), int(ladder.level[i]) + 1, ladder.family.theta[i])
                for i in numbers
            ]

        total = ladder.sizes[-1]
        return [(some(0, n, members), some(n, total, truths)) for n in ladder.sizes[:-1]]

    @abstractmethod
    def _rates(self, size: int, plan: Candidate, truth: Candidate, visited: Floats) -> Floats:
        """Return the rates of the first members [size]."""

    def _times(self, m: int, plan: Candidate, truth: Candidate, visited: Floats) -> Times:
        radius = self.radius
        price = math.log(1.0 / level(radius, self.delta)) - float(self.log_prior[truth.number])
        if radius:
            price += math.log(2.0 / self.delta)

        def limit(n: float) -> float:
            return price + n * self.known.horizon * radius**2

        rates = self._rates(self.ladder.sizes[m - 1], plan, truth, visited)
        of_class = episodes_until(float(rates.min()), limit)
        return of_class, episodes_until(float(rates[plan.number]), limit)


class LikelihoodRates(ListRates):
    """Of lists by likelihood: relative entropies."""

    def __init__(
        self,
        ladder: Ladder,
        known: Known,
        delta: float,
        members: int,
        truths: int,
        tolerance: float,
    ) -> None:
        super().__init__(ladder, known, delta, members, truths)
        evidence = ListEvidence(ladder, known, delta)
        self.log_prior = evidence.log_weights - _price_of_bets(tolerance)
        self.members = evidence.members
        self.tolerance = tolerance
        # the tolerance covers what lies between the members of a cover
        self.radius = 0.0
        self.grid_episodes = math.inf

    @cached_property
    def _laws(self) -> Floats:
        # of the classes that are tried: all but the largest
        return self.members.probability(slice(0, self.ladder.sizes[-2]))

    def _rates(self, size: int, plan: Candidate, truth: Candidate, visited: Floats) -> Floats:
        outcomes = self.members.outcomes
        steps = np.arange(self.known.horizon)[:, None]
        pairs = self.known.pair_in(outcomes, steps, np.arange(self.known.states), plan.policy)
        count = np.bincount(pairs.ravel(), visited.ravel(), outcomes.start.size - 1)
        law = self.members.symbols.join(truth.probability[None])[0]
        return evidence_rates(self.members.outcomes, count, law, self._laws[:size], self.tolerance)


class ListValueRates(ListRates):
    """Of lists by value rows: twice the squared distances of rows."""

    def __init__(
        self, ladder: Ladder, known: Known, delta: float, members: int, truths: int
    ) -> None:
        super().__init__(ladder, known, delta, members, truths)
        self.log_prior = np.log(ladder.prior)

    def _rates(self, size: int, plan: Candidate, truth: Candidate, visited: Floats) -> Floats:
        gram = self._gram(plan, visited)
        gaps = self.ladder.family.theta[:size] - truth.theta
        return 2.0 * value.losses(gaps, gram, np.zeros(gram.shape[:2]))


class LinearRates(KernelRates):
    """Of linear classes and aggregations, by value rows."""

    def _candidates(self, members: int, truths: int) -> list[Sides]:
        ladder = self.ladder
        draw = stream(0, "preflight")
        drawn: list[list[Candidate]] = []
        for m, family in enumerate(ladder.families, start=1):
            drawn.append([])
            for member in family.members(draw, max(members, truths)):
                theta = ladder.families[-1].find(family.kernel(member))
                if theta is not None:
                    theta = ladder.features.as_theta(theta)
                    drawn[-1].append(self._solved(len(drawn[-1]), m, theta))
        sides: list[Sides] = []
        for m in range(1, ladder.classes):
            # as many of every larger class
            maximum = math.ceil(truths / (ladder.classes - m))
            outside = [truth for larger in drawn[m:] for truth in larger[:maximum]]
            sides.append((drawn[m - 1][:members], outside))
        return sides

    def _times(self, m: int, plan: Candidate, truth: Candidate, visited: Floats) -> Times:
        gram = self._gram(plan, visited)
        eigenvalues = np.maximum(np.linalg.eigvalsh(gram), 0.0)
        xy = (gram @ truth.theta[:, :, None])[:, :, 0]
        least = self.ladder.smallest_loss(m, gram, xy) + float((truth.theta * xy).sum())
        gap = (plan.theta - truth.theta)[None]
        loss = float(value.losses(gap, gram, np.zeros_like(xy))[0])

        def limit(n: float) -> float:
            return 0.5 * float(np.log1p(n * eigenvalues).sum()) + math.log(1.0 / self.delta)

        return episodes_until(2.0 * least, limit), episodes_until(2.0 * loss, limit)


class ParametricRates:
    """Of classes with real parameters: points of richer classes are true."""

    grid_episodes = math.inf

    def __init__(
        self,
        ladder: ParametricLadder,
        known: Known,
        delta: float,
        truths: int,
        tolerance: float = 0.0,
    ) -> None:
        self.evidence = ParametricEvidence(ladder, known, delta)
        self.tolerance = tolerance
        self.start = law_of_starts(known, np.zeros(known.states, np.int64))
        self.truths = truths

    def trials(self, m: int) -> Iterator[Trial]:
        """Try class m, from 1, against points in the boxes of richer classes."""
        evidence = self.evidence
        known = evidence.known
        for richer in range(m + 1, evidence.classes + 1):
            free = evidence.free[richer - 1]
            for number, shares in enumerate(spread_points(len(free), self.truths)):
                truth = evidence.default.copy()
                truth[free] = shares
                rejected, loss = self.play_alone(m, truth, len(free))
                loss *= known.unit.scale
                point = evidence.point(truth)
                names = evidence.ladder.free[richer - 1]
                values = ", ".join(f"{name} = {point[name]:.3g}" for name in names)
                pair = UnidentifiablePair(m, -1, richer, number, loss, rejected, values)
                yield Trial(pair, rejected, at_stake(evidence.kernels(truth), known, self.start))

    def play_alone(self, m: int, truth: Floats, parameters: int) -> tuple[float, float]:
        """Return when class m, from 1, is rejected if it plays alone, and its loss per episode.

        It plays the best policy of its fit to what it sees. ``truth`` is a point, as shares of the
        box, of a class with so many free ``parameters``.
        """
        evidence = self.evidence
        known = evidence.known
        free = evidence.free[m - 1]
        theta = evidence.default.copy()
        theta[free] = truth[free]
        law = evidence.probability(truth)
        kernels = evidence.kernels(truth)
        # in turns: a fit decides what is played, and what is played decides the fit
        for _ in range(_TURNS):
            _, policy = bellman.solve(evidence.kernels(theta), known.states, known.horizon)
            visited = bellman.visits(kernels, policy, self.start, known.discount)
            steps_of_episode = np.arange(known.horizon)[:, None]
            row = evidence.model.row_of(steps_of_episode, np.arange(known.states), policy)  # [H, S]
            moving = row >= 0
            steps = np.bincount(row[moving], visited[moving], len(evidence.model.pairs))
            count = steps[evidence.row] * law
            seen = np.flatnonzero(count > 0.0)
            rows = np.flatnonzero(steps).tolist()
            data = Counts(rows, seen, count[seen], np.log(law[seen]), np.zeros(steps.size))
            likelihood = partial(evidence.log_likelihood, data)
            nearest = max(theta, evidence.search(data, free).theta, key=likelihood)
            theta = climb(likelihood, nearest, free)

        price = math.log((evidence.classes + 1) / evidence.delta) + _price_of_bets(self.tolerance)

        def limit(n: float) -> float:
            return price + 0.5 * parameters * math.log1p(n * float(steps.sum()))

        rate = max(-max(likelihood(theta), likelihood(nearest)), 0.0)
        if self.tolerance:

            def forgiven(point: Floats) -> float:
                members = evidence.probability(point)[None]
                return -float(
                    evidence_rates(evidence.outcomes, steps, law, members, self.tolerance)[0]
                )

            rate = -forgiven(climb(forgiven, theta, free))
        best, _ = bellman.solve(kernels, known.states, known.horizon)
        loss = self.start @ (best[0] - bellman.evaluate(kernels, policy)[0])
        return max(1.0, episodes_until(rate, limit)), float(loss)


def _price_of_bets(tolerance: float) -> float:
    """Return the nats that bets of several shares of the stake cost, where they are made."""
    return math.log(SHARES.size) if tolerance else 0.0


def rates_of(
    ladder: Ladder | ParametricLadder,
    known: Known,
    delta: float,
    evidence: str,
    members: int,
    truths: int,
    tolerance: float,
) -> Rates:
    """Return the rates for a kind of ladder and of evidence; refuse what no selector plays."""
    if isinstance(ladder, ParametricLadder):
        if evidence == "value":
            raise ParameterError(
                "evidence",
                got='"value"',
                expected='"likelihood", or a list of models for value rows',
            )
        return ParametricRates(ladder, known, delta, truths, tolerance)
    if evidence == "likelihood":
        Occam(ladder=ladder, tolerance=tolerance)  # refuses what it cannot play
        return LikelihoodRates(ladder, known, delta, members, truths, tolerance)
    if ladder.finite:
        return ListValueRates(ladder, known, delta, members, truths)
    return LinearRates(ladder, known, delta, members, truths)


# The test of the search ---------------------------------------------------------------------------


def _search_loses(
    ladder: ParametricLadder, m: int, delta: float, run: int, episodes: int, log: Log | None
) -> bool:
    """Say whether class m, from 0, is ruled out although its true parameters are possible."""
    draw = stream(run, "search test")
    evidence = ParametricEvidence(ladder, ladder.model.known, delta)
    truth = evidence.default.copy()
    free = evidence.free[m]
    truth[free] = draw.random(len(free))
    state = evidence.begin()
    blocks = _played(evidence, truth, episodes, draw)
    if log is not None:
        blocks = _redrawn(evidence, truth, log, draw)
    for flow in blocks:
        evidence.add(state, flow)
    possible = evidence.log_likelihood(evidence.counts_of(state), truth) >= evidence.least(state)
    return possible and bool(state["rejected"][m])


def _played(
    evidence: ParametricEvidence, truth: Floats, episodes: int, draw: np.random.Generator
) -> Iterator[Flow]:
    """Yield blocks of random actions, each as long as all before it."""
    mdp = evidence.model.mdp_at(evidence.model.probability(evidence.point(truth)))
    allowed = mdp.known.allowed.astype(np.float64)
    policy = np.broadcast_to(
        allowed / allowed.sum(axis=1, keepdims=True), (mdp.horizon, *allowed.shape)
    )
    played = 0
    while played < episodes:
        size = min(max(played, 1), episodes - played)
        yield simulate(mdp, policy, size, draw)
        played += size


def _redrawn(
    evidence: ParametricEvidence, truth: Floats, log: Log, draw: np.random.Generator
) -> Iterator[Flow]:
    """Yield, for each part of a log, other outcomes of what was done there."""
    model = evidence.model
    law = evidence.probability(truth)
    outcomes = evidence.outcomes
    states = np.array([s for s, _ in model.pairs])
    actions = np.array([a for _, a in model.pairs])
    for flow in log.flows(evidence.known, model.layout):
        row = model.row_of(flow.step, flow.state, flow.action)
        visits = np.bincount(row[row >= 0], flow.count[row >= 0], len(model.pairs))
        symbols = []
        counts = []
        for pair in np.flatnonzero(visits):
            listed_outcomes = np.arange(outcomes.start[pair], outcomes.start[pair + 1])
            chances = law[listed_outcomes] / law[listed_outcomes].sum()
            symbols.append(listed_outcomes)
            counts.append(draw.multinomial(int(visits[pair]), chances))
        symbol = np.concatenate(symbols)
        count = np.concatenate(counts)
        pair = evidence.row[symbol]
        # that rows count as first steps does not matter here
        yield Flow(
            step=model.layer[pair],
            state=states[pair],
            action=actions[pair],
            next_state=outcomes.next_state[symbol],
            reward=outcomes.bonus[symbol],
            count=count,
            episodes=flow.episodes,
        )


# The door -----------------------------------------------------------------------------------------


def preflight(
    ladder: Ladder | ParametricLadder,
    known: Known | None = None,
    *,
    episodes: int,
    delta: float = 0.05,
    tolerance: float = 0.0,
    evidence: Literal["value", "likelihood"] | None = None,
    truths: int | None = None,
    members: int | None = None,
    least_loss: float | None = None,
) -> Preflight:
    """Look for unidentifiable pairs, and predict when each class is rejected if it is wrong.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> ladder, known = orl.Ladder.of_problem(problem), problem.mdp.known
    >>> report = orl.preflight(ladder, known, episodes=500, truths=8, members=8)  # print it
    >>> agent = report.selector()

    Parameters
    ----------
    ladder : Ladder or ParametricLadder
    known : Known
        ``mdp.known`` of the problem; episodes start anywhere where it does not say. Models with
        real parameters know it themselves.
    episodes : int
    delta : float
    tolerance : float
        By how much reality may differ from a model at every step, as of :class:`Occam`, which then
        judges.
    evidence : "value" | "likelihood", optional
        By what classes are to be rejected, as :class:`ARLGen` (the default) or as :class:`Occam`
        does, which alone judges real parameters.
    truths, members : int, optional
        The most kernels outside and inside each class to try; 64 of a list, 6 of a linear class. Of
        real parameters 6 truths in each richer class, and the best fit inside.
    least_loss : float, optional
        What counts as much, per episode, in the unit of the rewards; by default 1 % of the most
        that the best policy earns above the worst.
    """
    require_kind("ladder", ladder, (Ladder, ParametricLadder))
    if evidence is not None:
        require_choice("evidence", evidence, ("likelihood", "value"))
    require_number("tolerance", tolerance, 0.0, LARGEST)
    judged_by = evidence or ("likelihood" if tolerance else "value")
    if isinstance(ladder, ParametricLadder):
        judged_by = evidence or "likelihood"
        known = ladder.model.known if known is None else known
    require_kind("known", known, Known)
    assert known is not None  # noqa: S101  # require_kind refuses it
    require_integer("episodes", episodes, 1)
    require_delta(delta)
    require_choice("evidence", judged_by, ("value", "likelihood"))
    if tolerance and judged_by == "value":
        raise ParameterError("tolerance", got=tolerance, expected='0, or evidence="likelihood"')
    default = 64 if ladder.finite else 6
    truths = require_integer("truths", default if truths is None else truths, 1)
    members = require_integer("members", default if members is None else members, 1)
    if least_loss is not None:
        require_number("least_loss", least_loss, 0.0, math.inf)
    if not known.rewards_known:
        raise ParameterError(
            "known", got="sizes alone", expected="rewards, too: they are needed to compare policies"
        )
    rates = rates_of(ladder, known, delta, judged_by, members, truths, tolerance)
    unidentifiable = []
    rejection = []
    pairs_tried = 0
    for m in range(1, ladder.classes):
        times = []
        for trial in rates.trials(m):
            times.append(trial.pair.episodes_to_reject)
            much = known.unit.scale * _SHARE * trial.stake if least_loss is None else least_loss
            if trial.pair.loss_per_episode > much and trial.member_rejected > episodes:
                unidentifiable.append(trial.pair)
        rejection.append(float(np.median(times)) if times else math.inf)
        pairs_tried += len(times)
    return Preflight(
        ladder=ladder,
        episodes=episodes,
        delta=delta,
        evidence=judged_by,
        pairs_tried=pairs_tried,
        unidentifiable=unidentifiable,
        rejection=rejection,
        tolerance=tolerance,
        grid_episodes=rates.grid_episodes,
    )

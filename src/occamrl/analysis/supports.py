r"""Which of the simulators matter: every minimal set of them that can still explain the data.

The truth is a mixture :math:`P^* = \sum_j \theta^*_j P_j` of d known kernels. As features they are
nearly collinear, so single weights mean little. Sets do: D is *compatible* unless the data reject
every mixture of D. With probability 1 - delta, for reports at all times together, the true set is
compatible, and so contains one of the *minimal* ones.

A set, of any size, is rejected when even a bound on the log likelihood of its mixtures is below

.. math:: Z - \log\tfrac1\delta, \qquad
    Z = \log\Big[(1 - w_0) \sum_D w(D) I(D) + w_0 e^{Q}\Big]

(L8 of the mathematics): I(D) is the mean likelihood of the mixtures of D, for sets D of up to
three simulators and the set of all; Q is how well plain counts predict, which notice a truth that
is no mixture. The kernels are exact: likelihood does not forgive the errors of estimates.

**What is not told apart.** Weights that sum to one leave d - 1 directions. One is lost when the
kernels depend on each other exactly, or when the data never met a pair where they differ. What is
left has too few data while a unit step along it costs less than the allowance, and is resolved
after that.

**Real parameters** are asked likewise: a set of them is compatible, the others at their defaults,
unless its best likelihood is below the threshold of the ladder's evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, overload

import numpy as np
from scipy.linalg import helmert, qr
from scipy.special import logsumexp

from occamrl.answers.tables import table_of_rows
from occamrl.answers.wording import count_of
from occamrl.errors import ParameterError, require_delta, require_kind
from occamrl.evidence.cloud import Fit
from occamrl.evidence.counts import CountState, begin_counts, counted_evidence, novel_count
from occamrl.evidence.hulls import HullMaximum, hull_evidence, hull_fit, hull_maximum, seen_by
from occamrl.evidence.parametric import ParametricEvidence, ParametricState
from occamrl.learners.occam_mixture import OccamMixture, Setting
from occamrl.learners.tabular import count_flow
from occamrl.logs.log import Log
from occamrl.models.features import FeatureMap, as_dense
from occamrl.models.model import ParametricLadder
from occamrl.models.simulators import Simulators
from occamrl.protocols import Known, Selector
from occamrl.running.result import Result

if TYPE_CHECKING:
    import pyarrow as pa

Subset = tuple[int, ...]  # of simulators or parameters, increasing, from 0

MOST_CANDIDATES = 20
_MOST_SETS = 20_000  # that are looked at
_WEIGHED_SIZE = 3  # sets of up to so many simulators have a term of Z each
_SHOWN = 12
_SAME = 1e-9  # kernels that differ by less are the same
_EXACT = 1e-3  # nats up to which a best likelihood is known
_FIRST_STEPS = 3  # of EM, before a set is judged
_NOISE = 0.5  # what a free direction lowers minus the log likelihood by, on average


@dataclass(frozen=True)
class SupportSet:
    """A set of simulators that can still explain the data, and none of whose subsets can."""

    members: tuple[str, ...]
    weights: tuple[float, ...]  # of the mixture that fits best
    excess: float  # of its minus log likelihood over that of the best mixture of all
    episodes_left: float  # until it is excluded at the present rate; infinite: no growth to be seen


@dataclass(frozen=True)
class Supports:
    """The report; ``print`` it, or take the ``table``."""

    evidence: ClassVar[str] = "likelihood"

    names: tuple[str, ...]
    episodes: int
    delta: float
    sets: tuple[SupportSet, ...]  # every minimal one, smallest first; the truth contains one
    allowance: float  # the excess at which a set is excluded
    largest: int  # sets of up to so many simulators were looked at
    rank: int  # of the kernels, to 9 digits
    directions: dict[str, int]  # how many of the d - 1 are resolved, and why others are not

    @property
    def necessary(self) -> tuple[str, ...]:
        """The simulators that are in every compatible set."""
        if not self.sets:
            return ()
        common = set(self.names).intersection(*[support.members for support in self.sets])
        return tuple(name for name in self.names if name in common)

    @property
    def smallest(self) -> tuple[SupportSet, ...]:
        """The sets with the fewest simulators."""
        return tuple(one for one in self.sets if len(one.members) == len(self.sets[0].members))

    @property
    def table(self) -> pa.Table:
        """One row per set."""
        return table_of_rows([{"size": len(one.members), **asdict(one)} for one in self.sets])

    def __str__(self) -> str:
        after = count_of(self.episodes, "episode")
        data = f"after {after}, by {self.evidence}, delta {self.delta:g}"
        lines = [f"{len(self.names)} simulators {data}:"]
        for label, text in self._findings():
            lines.append(f"  {label:<14}{text}")
        return "\n".join(lines)

    def _findings(self) -> Iterator[tuple[str, str]]:
        """Yield what is the case, in words, each with a label."""
        if not self.sets:
            yield "compatible", self._why_none()
            return
        everywhere = "in every set that explains the data"
        if self.necessary:
            yield "needed", f"{', '.join(self.necessary)} ({everywhere})"
        else:
            yield "needed", f"no simulator is {everywhere}"
        size = len(self.sets[0].members)
        number = f"{len(self.smallest)} of the {math.comb(len(self.names), size)} sets of {size}"
        larger = len(self.sets) - len(self.smallest)
        if larger:
            number += f", and {larger} larger that contain none of these"
        yield "compatible", number
        for support in self.sets[:_SHOWN]:
            weighed = zip(support.weights, support.members, strict=True)
            mixture = " + ".join(f"{weight:.2f} of {name}" for weight, name in weighed)
            behind = f"{support.excess:.2f} behind the best fit, {self.allowance:.2f} allowed"
            yield "", f"{mixture}: {behind}"
        if len(self.sets) > _SHOWN:
            yield "", f"... and {len(self.sets) - _SHOWN} more (see table)"
        if self.largest < len(self.names):
            yield "", f"only sets of up to {self.largest} simulators were looked at"
        numbers = [f"{n} {why}" for why, n in self.directions.items() if n or why == "resolved"]
        yield "differences", ", ".join(numbers)
        yield "next", self._next()

    def _why_none(self) -> str:
        if self.largest == len(self.names):
            return "no mixture of these simulators explains the data: the truth is none of them"
        return (
            f"no set of up to {self.largest} simulators explains the data; "
            "larger ones were not looked at"
        )

    def _next(self) -> str:
        first = min(self.sets, key=lambda support: support.episodes_left)
        if math.isfinite(first.episodes_left):
            when = f"after about {first.episodes_left:,.0f} more episodes at the present rate"
            return f"{{{', '.join(first.members)}}} goes {when}; larger sets may take its place"
        if len(self.sets) == 1:
            return "one set remains"
        return "no set is seen to go at the present rate"


@dataclass(frozen=True)
class ParameterSets:
    """Which real parameters matter: every minimal set that can explain the data.

    Parameters outside a set have their defaults.
    """

    sets: tuple[dict[str, float], ...]  # the best values of each, smallest first
    excess: tuple[float, ...]  # nats of likelihood below the best fit of all
    allowance: float  # the excess at which a set is excluded
    episodes: int
    delta: float

    def __str__(self) -> str:
        after = count_of(self.episodes, "episode")
        lines = [f"parameters after {after}, delta {self.delta:g}:"]
        for values, excess in zip(self.sets, self.excess, strict=True):
            settings = ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
            text = settings or "all at their defaults"
            lines.append(f"  {text} (excess {excess:.2f} of {self.allowance:.2f})")
        if not self.sets:
            lines.append("  no values of these parameters explain the data")
        return "\n".join(lines)


# The search ---------------------------------------------------------------------------------------


def minimal_sets(
    needed: Sequence[int],
    optional: Sequence[int],
    explains: Callable[[Subset], bool],
    most_sets: float = math.inf,
) -> tuple[list[Subset], int]:
    """Return the sets that explain the data although none of their subsets does, by size.

    What is ``needed`` is in every set; others are added as long as the sets are not too many. The
    second result is the largest size of which all sets were looked at.
    """
    minimal: list[Subset] = []
    looked_at = 0
    for size in range(len(optional) + 1):
        looked_at += math.comb(len(optional), size)
        if looked_at > most_sets:
            return minimal, len(needed) + size - 1
        for added in combinations(optional, size):
            subset = tuple(sorted({*needed, *added}))
            # a set that explains the data makes its supersets explain them: these are not asked
            contains_one = any(set(smaller) <= set(subset) for smaller in minimal)
            if not contains_one and explains(subset):
                minimal.append(subset)
    return minimal, len(needed) + len(optional)


# Simulators ---------------------------------------------------------------------------------------


class MixtureFits:
    """The best mixture of each set of simulators, as far as it was asked for."""

    def __init__(self, setting: Setting, state: CountState, delta: float) -> None:
        """Take the simulators as :class:`OccamMixture` sees them, and counts of the outcomes."""
        self.size = len(setting.kernels)
        self.delta = delta
        self.novel = novel_count(state)
        self.counted = counted_evidence(state["count"], setting.outcomes, float(self.novel))
        kernels = np.maximum(setting.kernels, 0.0)  # rounding
        self.data = seen_by(state["count"], setting.outcomes, kernels)
        self._fits: dict[Subset, HullMaximum] = {}

    def fit(self, subset: Subset, enough: float = math.nan) -> HullMaximum:
        """Return the best mixture of a set, or a likelihood and a bound on one side of ``enough``.

        What no simulator lists is impossible under every mixture.
        """
        data = self.data.of(list(subset))
        if subset not in self._fits:
            even = np.full(len(subset), 1.0 / len(subset))
            weights = hull_fit(data, even, _FIRST_STEPS, 0.0)
            self._fits[subset] = HullMaximum(-math.inf, math.inf, weights)
        fit = self._fits[subset]
        if self.novel:
            return HullMaximum(-math.inf, -math.inf, fit.weights)
        decided = fit.likelihood >= enough or fit.bound < enough
        if fit.bound - fit.likelihood > _EXACT and not decided:
            self._fits[subset] = hull_maximum(data, fit.weights, enough)
        return self._fits[subset]

    @cached_property
    def least(self) -> float:
        """Z - log(1/delta), below which a mixture is rejected."""
        sizes = sorted({*range(1, min(_WEIGHED_SIZE, self.size) + 1), self.size})
        share = 1.0 / (len(sizes) + 1.0)  # of every size, and of the counts
        prior = []
        scores = []
        for size in sizes:
            for subset in combinations(range(self.size), size):
                prior.append((1.0 - share) / (len(sizes) * math.comb(self.size, size)))
                data = self.data.of(list(subset))
                scores.append(hull_evidence(data, self.fit(subset).weights))
        terms = np.log([*prior, share]) + np.array([*scores, self.counted])
        return float(logsumexp(terms)) - math.log(1.0 / self.delta)

    def explains(self, subset: Subset) -> bool:
        """Say whether some mixture of a set may be likely enough; there is none of no simulator."""
        return bool(subset) and self.fit(subset, self.least).bound >= self.least

    def compatible(self) -> tuple[dict[Subset, float], float, int]:
        """Return every minimal set that explains the data, the allowance, and the largest size.

        With each set, by size, then fit, comes how far it is behind the best mixture of all, and
        the allowance is how far it may be. Sets of up to the largest size were looked at.
        """
        every = tuple(range(self.size))
        minimal: list[Subset] = []
        largest = self.size
        if self.explains(every):
            # without these not even all others explain the data, so they are in every set
            needed = [j for j in every if not self.explains((*every[:j], *every[j + 1 :]))]
            optional = [j for j in every if j not in needed]
            minimal, largest = minimal_sets(needed, optional, self.explains, _MOST_SETS)
        scores = {subset: self.fit(subset).likelihood for subset in minimal}
        best = max([self.fit(every).likelihood, *scores.values()])
        minimal.sort(key=lambda subset: (len(subset), -scores[subset]))
        excess = {subset: best - scores[subset] for subset in minimal}
        return excess, max(best - self.least, 0.0), largest

    def directions(self, allowance: float, rank: int) -> dict[str, int]:
        """Return how many of the d - 1 directions are resolved, and why the others are not."""
        mixed = self.fit(tuple(range(self.size))).weights @ self.data.kernels
        possible = mixed > 0.0
        rows = self.data.kernels[:, possible] / mixed[possible]
        # half the Fisher information of the weights, along those that sum to one
        information = 0.5 * (rows * self.data.count[possible]) @ rows.T
        basis = helmert(self.size).T
        eigenvalues = np.linalg.eigvalsh(basis.T @ information @ basis)
        rounding = 1e-10 * max(1.0, float(eigenvalues.max(initial=0.0)))
        excited = min(int((eigenvalues > rounding).sum()), rank - 1)
        resolved = min(int((eigenvalues >= allowance).sum()), excited)
        return {
            "resolved": resolved,
            "with too few data": excited - resolved,
            "never excited": rank - 1 - excited,
            "that no data can resolve": self.size - rank,
        }


def kernel_rank(features: FeatureMap) -> int:
    """Return how many of the simulators are independent of each other."""
    matrix = as_dense(features.matrix)
    scale = np.abs(np.diag(qr(matrix[matrix.any(axis=1)], mode="r", pivoting=True)[0]))
    return int((scale > _SAME * max(1.0, float(scale[0]))).sum())


# The door -----------------------------------------------------------------------------------------


@overload
def supports(
    source: Result | Log, simulators: ParametricLadder, *, delta: float = ...
) -> ParameterSets: ...


@overload
def supports(
    source: Result | Log,
    simulators: Simulators | None = ...,
    *,
    delta: float = ...,
    evidence: str | None = ...,
    known: Known | None = ...,
) -> Supports: ...


def supports(
    source: Result | Log,
    simulators: Simulators | ParametricLadder | None = None,
    *,
    delta: float = 0.05,
    evidence: str | None = None,
    known: Known | None = None,
) -> Supports | ParameterSets:
    """Report which simulators matter: every minimal set of which some mixture explains the data.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> draw = np.random.default_rng(0)
    >>> kernels = draw.dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> truth = kernels[:2].mean(axis=0)
    >>> mdp = orl.FiniteMDP(transition=truth, reward=np.eye(3)[:, 1:], horizon=5)
    >>> simulators = orl.Simulators(list(kernels))
    >>> result = orl.run(orl.OccamMixture(features=simulators.features), mdp, episodes=200)
    >>> report = orl.supports(result, simulators)  # print it

    Parameters
    ----------
    source : Result or Log
        A run of OccamMixture on the features of the simulators, or a log, with ``simulators`` and
        ``known``.
    simulators : Simulators or ParametricLadder, optional
        A ladder with real parameters asks which of these matter, others at their defaults
        (:class:`ParameterSets`); the run is then one of Occam. Simulators are exact, and give the
        names; by default coordinates are called "1", "2", ...
    delta : float
        With probability 1 - delta, at all times together, the true set contains one of the sets
        reported.
    evidence : "likelihood", optional
        There is no other: value rows, which could be chosen here once, are refused.
    known : Known, optional
        With a log: ``mdp.known`` of the problem, in the unit of the log's rewards.
    """
    require_delta(delta)
    if evidence is not None and not (isinstance(evidence, str) and evidence == "likelihood"):
        raise ParameterError(
            "evidence",
            got=repr(evidence),
            expected='"likelihood": sets are not judged by value rows; play OccamMixture, '
            "or take a log",
        )
    if isinstance(simulators, ParametricLadder):
        return _parameter_sets(source, simulators, delta)
    agent, setting, state, episodes = _read(source, simulators, known)
    names = tuple(str(j + 1) for j in range(agent.features.dimension))
    if simulators is not None:
        names = simulators.names
    if len(names) > MOST_CANDIDATES:
        raise ParameterError(
            "simulators",
            got=len(names),
            expected=f"1 to {MOST_CANDIDATES}: more have too many sets",
        )
    fits = MixtureFits(setting, state, delta)
    excess_of, allowance, largest = fits.compatible()
    rank = kernel_rank(agent.features)
    sets = []
    for subset, excess in excess_of.items():
        # noise alone puts a set behind, for every direction that it lacks
        growing = excess - _NOISE * max(0, rank - len(subset))
        episodes_left = math.inf
        if growing > 0.1 * _NOISE:
            episodes_left = max(episodes * (allowance - excess) / growing, 1.0)
        members = tuple(names[j] for j in subset)
        weights = tuple(fits.fit(subset).weights.tolist())
        sets.append(SupportSet(members, weights, excess, episodes_left))
    directions = fits.directions(allowance, rank)
    return Supports(names, episodes, delta, tuple(sets), allowance, largest, rank, directions)


def _read(
    source: Result | Log, simulators: Simulators | None, known: Known | None
) -> tuple[OccamMixture, Setting, CountState, int]:
    """Return who counts, or would, what is counted, the counts, and how many episodes."""
    if simulators is not None:
        require_kind("simulators", simulators, Simulators)
        # what was never drawn has probability 0: one such step would reject an estimate
        if simulators.estimated:
            raise ParameterError(
                "simulators",
                got=f"{len(simulators.estimated)} estimated from {simulators.draws:,} draws",
                expected="exact kernels; ARLGen(ladder=simulators.ladder()) allows for estimates",
            )
    if isinstance(source, Result):
        agent = source.agent
        if not isinstance(agent, OccamMixture):
            raise ParameterError(
                "source",
                got=f"a run of {source.label}",
                expected="one of OccamMixture, which counts outcomes; or a log",
            )
        fingerprint = agent.features.fingerprint
        if simulators is not None and simulators.features.fingerprint != fingerprint:
            raise ParameterError(
                "simulators",
                got="other kernels",
                expected="those whose features the run learned with",
            )
        return agent, agent.setting(source.finite), source.state, source.total_episodes
    require_kind("source", source, Log)
    if simulators is None or known is None:
        raise ParameterError(
            "source", got="a log alone", expected="simulators and known (mdp.known) as well"
        )
    agent = OccamMixture(features=simulators.features)
    setting = agent.setting(known)
    state = begin_counts(setting.outcomes)
    for flow in source.flows(known, simulators.features.attach(known)):
        count_flow(state, setting.outcomes, known, flow)
    return agent, setting, state, source.episodes


# Real parameters ----------------------------------------------------------------------------------


def _parameter_sets(source: Result | Log, ladder: ParametricLadder, delta: float) -> ParameterSets:
    """Return the sets of parameters that the confidence region of all of them meets."""
    evidence = ParametricEvidence(ladder, ladder.model.known, delta)
    state, episodes = _weighed(source, evidence)
    data = evidence.counts_of(state)
    least = evidence.least(state)
    every = list(range(len(evidence.names)))
    best = evidence.search(data, every, least).likelihood
    fits: dict[Subset, Fit] = {}

    def explains(subset: Subset) -> bool:
        fits[subset] = evidence.search(data, subset, least)
        return fits[subset].likelihood >= least

    # a parameter without a default has to have some value
    needed = [j for j in every if evidence.names[j] not in ladder.model.defaults]
    optional = [j for j in every if j not in needed]
    minimal, _ = minimal_sets(needed, optional, explains)
    sets = []
    excess = []
    for subset in minimal:
        point = evidence.point(fits[subset].theta)
        sets.append({evidence.names[j]: point[evidence.names[j]] for j in subset})
        excess.append(max(0.0, best - fits[subset].likelihood))
    return ParameterSets(tuple(sets), tuple(excess), max(0.0, best - least), episodes, delta)


def _weighed(source: Result | Log, evidence: ParametricEvidence) -> tuple[ParametricState, int]:
    """Return the state of the evidence after a run or a log, and the number of episodes."""
    if isinstance(source, Result):
        agent = source.agent
        if not isinstance(agent, Selector) or agent.ladder is not evidence.ladder:
            raise ParameterError(
                "source", got=f"a run of {source.label}", expected="one of Occam on this ladder"
            )
        return source.state["evidence"], source.total_episodes
    require_kind("source", source, Log)
    state = evidence.begin()
    for flow in source.flows(evidence.known, evidence.model.layout):
        evidence.add(state, flow)
    return state, source.episodes

r"""Which of the simulators matter: every minimal set of them that can still explain the data.

The truth is a mixture :math:`P^* = \sum_j \theta^*_j P_j` of d known kernels. As features they are
nearly collinear, so single weights mean little. Sets do: D is *compatible* unless the data reject
every mixture of D. With probability 1 - delta, for reports at all times together, the true set is
compatible, and so contains one of the *minimal* ones.

The score of a mixture is its log likelihood (exact kernels; L8 of the mathematics), or minus its
loss. A prior w draws a size evenly, then a set D of this size. A set, of any size, is rejected when
the best score of its mixtures is too small. By value rows (:mod:`occamrl.evidence.value`) that is
below -t, the sharp set with a prior that draws D by w, then theta from a Gaussian around the
barycentre theta_D inside the plane of weights that sum to one (B_D: an orthonormal basis of its
directions),

.. math:: L(\theta) \le t = -\tfrac12 \log \sum_D w(D) e^{-2 A_D} + \tfrac12 \log\tfrac1\delta, \qquad
    A_D = \min_\eta \{ L(\theta_D + B_D\eta) + |\eta|^2 \} + \tfrac14 \log\det(I + B_D^\top G B_D) .

**Estimated simulators.** Rows are then biased by at most e (:mod:`occamrl.models.simulators`), and
for c in (0, 1)

.. math:: t_c = -\tfrac1{2c} \log\sum_D w(D) e^{-2c A_D^{(c)}} + \tfrac1{2c}\log\tfrac1\delta + \frac{n e^2}{1-c},

A^(c) with 1/(4c) before its log-determinant. The least over three c is taken, each at its share of delta.

**What is not told apart.** Weights that sum to one leave d - 1 directions. One is lost when the
kernels depend on each other exactly, when no planned value depends on it (by value), or when the
data never met a pair where they differ. What is left has too few data while a unit step along it
costs less than the allowance, and is resolved after that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import helmert, qr

from occamrl.addresses import generator
from occamrl.answers.tables import table_of_rows
from occamrl.errors import ParameterError, require_delta, require_kind
from occamrl.evidence import likelihood, value
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.logs.log import Log
from occamrl.models.families import simplex_minimum
from occamrl.models.features import FeatureMap
from occamrl.models.model import ParametricLadder
from occamrl.models.simulators import Simulators
from occamrl.protocols import Floats, Known
from occamrl.running.result import Result

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CANDIDATES = 20
_TEMPERATURES = (0.5, 0.75, 0.9)  # c of t_c
_SHOWN = 12
_SAME = 1e-9  # kernels that differ by less are the same


@dataclass(frozen=True)
class SupportSet:
    """A set of simulators that can still explain the data, and none of whose subsets can."""

    members: tuple[str, ...]
    weights: tuple[float, ...]  # of the mixture that fits best
    excess: float  # of its loss (minus log likelihood, by likelihood) over that of the best mixture of all
    episodes_left: float  # until it is excluded at the present rate; infinite: no growth to be seen


@dataclass(frozen=True)
class Supports:
    """The report; ``print`` it, or take the ``table``."""

    names: tuple[str, ...]
    episodes: int
    delta: float
    evidence: str  # "likelihood" | "value"
    sets: tuple[
        SupportSet, ...
    ]  # every minimal one, smallest first; the true set contains one of them
    allowance: float  # the excess at which a set is excluded
    largest: int  # sets of up to so many simulators were looked at
    rank: int  # of the kernels, to 9 digits
    directions: dict[
        str, int
    ]  # how many of the d - 1 differences are resolved, and why others are not
    error: float  # of estimated simulators, in total variation, at most

    @property
    def necessary(self) -> tuple[str, ...]:
        """The simulators that are in every compatible set."""
        return tuple(
            name
            for name in self.names
            if self.sets and all(name in each.members for each in self.sets)
        )

    @property
    def smallest(self) -> tuple[SupportSet, ...]:
        """The sets with the fewest simulators."""
        return tuple(each for each in self.sets if len(each.members) == len(self.sets[0].members))

    @property
    def table(self) -> pa.Table:
        """One row per set."""
        return table_of_rows([{"size": len(each.members), **asdict(each)} for each in self.sets])

    def __str__(self) -> str:
        about = f"after {self.episodes:,} episodes, by {self.evidence}, delta {self.delta:g}:"
        lines = [f"  {label:<14}{text}" for label, text in self._findings()]
        return "\n".join([f"{len(self.names)} simulators {about}", *lines])

    def _findings(self) -> Iterator[tuple[str, str]]:
        """Yield what was found, in words."""
        if self.error:
            yield "estimated", f"rows are within {self.error:.3g} of the simulators' own"
        if not self.sets:
            none = "no mixture of these simulators explains the data: the truth is none of them"
            few = f"no set of up to {self.largest} simulators explains the data; larger ones were not looked at"
            yield "compatible", none if self.largest == len(self.names) else few
            return
        every = "in every set that explains the data"
        yield (
            "needed",
            f"{', '.join(self.necessary)} ({every})"
            if self.necessary
            else f"no simulator is {every}",
        )
        size, more = len(self.sets[0].members), len(self.sets) - len(self.smallest)
        larger = f", and {more} larger that contain none of these" if more else ""
        yield (
            "compatible",
            f"{len(self.smallest)} of the {math.comb(len(self.names), size)} sets of {size}{larger}",
        )
        for each in self.sets[:_SHOWN]:
            mixture = " + ".join(
                f"{w:.2f} of {name}" for w, name in zip(each.weights, each.members, strict=True)
            )
            yield (
                "",
                f"{mixture}: {each.excess:.2f} behind the best fit, {self.allowance:.2f} allowed",
            )
        if len(self.sets) > _SHOWN:
            yield "", f"... and {len(self.sets) - _SHOWN} more (see table)"
        if self.largest < len(self.names):
            yield "", f"only sets of up to {self.largest} simulators were looked at"
        yield (
            "differences",
            ", ".join(
                f"{n} {kind}" for kind, n in self.directions.items() if n or kind == "resolved"
            ),
        )
        going = min(self.sets, key=lambda each: each.episodes_left)
        if math.isfinite(going.episodes_left):
            when = f"after about {going.episodes_left:,.0f} more episodes at the present rate"
            yield (
                "next",
                f"{{{', '.join(going.members)}}} goes {when}; larger sets may take its place",
            )
        else:
            yield (
                "next",
                "one set remains"
                if len(self.sets) == 1
                else "no set is seen to go at the present rate",
            )


class Fit(NamedTuple):
    """The mixtures of a set."""

    score: float  # of the best that was found
    bound: float  # on all of them
    weights: Floats


class ValueRows:
    """Range-weighted rows over d simulators, summed up."""

    kind, noise = (
        "value",
        0.25,
    )  # what a free direction lowers the loss by: the variance of a target, at most
    most_sets = 70_000  # every set of 16 simulators, those of up to 6 out of 20

    def __init__(self, gram: Floats, xy: Floats, bias: float = 0.0) -> None:
        """Take sum x x^T [d, d], sum y x [d] and a bound on the sum of squared biases."""
        self.gram, self.xy, self.bias, self.information, self.size = gram, xy, bias, gram, xy.size
        self._fits: dict[tuple[int, ...], Fit] = {}

    def fit(self, members: tuple[int, ...], enough: float = math.nan) -> Fit:
        """Return the best mixture of a set."""
        if members not in self._fits:
            gram, xy = self.gram[np.ix_(members, members)], self.xy[list(members)]
            weights = simplex_minimum(gram, xy)
            score = float(2.0 * xy @ weights - weights @ gram @ weights)
            self._fits[members] = Fit(score, score, weights)
        return self._fits[members]

    def least(self, delta: float) -> float:
        """Return -t."""
        d, solved, prior = self.size, list[tuple[Floats, Floats]](), list[Floats]()
        for m in range(1, d + 1):
            if sum(map(len, prior)) + math.comb(d, m) > self.most_sets:
                break
            sets, middle, basis = (
                np.array(list(combinations(range(d), m))),
                np.full(m, 1.0 / m),
                helmert(m).T,
            )
            gram, xy = self.gram[sets[:, :, None], sets[:, None, :]], self.xy[sets]
            eigen, axes = np.linalg.eigh(basis.T @ gram @ basis)
            eigen, along = (
                np.maximum(eigen, 0.0),
                np.einsum("nij,ni->nj", axes, (xy - gram @ middle) @ basis),
            )
            ridge = (
                gram @ middle @ middle - 2.0 * xy @ middle - (along**2 / (eigen + 1.0)).sum(axis=1)
            )
            solved.append((ridge, np.log1p(eigen).sum(axis=1)))
            prior.append(np.full(len(sets), -math.log(math.comb(d, m))))
        ridge, logdet = (np.concatenate(parts) for parts in zip(*solved, strict=True))
        log_prior = np.concatenate(prior) - math.log(len(prior))

        def most(c: float, level: float) -> float:
            return value.threshold(2.0 * c * ridge + 0.5 * logdet, log_prior, level) / (2.0 * c)

        if not self.bias:
            return -most(1.0, delta)
        return -min(
            most(c, delta / len(_TEMPERATURES)) + self.bias / (1.0 - c) for c in _TEMPERATURES
        )


class Counts:
    """Outcomes seen, counted, and the simulators' probabilities of them; the best mixture of each set is kept."""

    kind, noise = "likelihood", 0.5  # what a free direction lowers minus the log likelihood by
    most_sets = 20_000

    def __init__(self, state: dict[str, Any], outcomes: Any, kernels: Floats) -> None:
        """Take the counts of :mod:`occamrl.evidence.likelihood` over ``outcomes``, and kernels [d, symbols]."""
        self.novel = float(state["novel"][:, 2].sum())
        self.counted = likelihood.counted_evidence(state["count"], outcomes, self.novel)
        self.data, self.size = (
            likelihood.seen_by(state["count"], outcomes, np.maximum(kernels, 0.0)),
            len(kernels),
        )
        self._fits: dict[tuple[int, ...], Fit] = {}

    def _of(self, members: tuple[int, ...]) -> likelihood.Seen:
        return self.data._replace(kernels=self.data.kernels[list(members)])

    def fit(self, members: tuple[int, ...], enough: float = math.nan) -> Fit:
        """Return the best mixture of a set, or a score and a bound that are on one side of ``enough``."""
        if members not in self._fits:
            even = np.full(len(members), 1.0 / len(members))
            self._fits[members] = Fit(
                -math.inf, math.inf, likelihood.hull_fit(self._of(members), even, 3, 0.0)
            )
        score, bound, weights = self._fits[members]
        if self.novel:
            return Fit(-math.inf, -math.inf, weights)
        if bound - score > 1e-3 and not (score >= enough or bound < enough):
            self._fits[members] = Fit(*likelihood.hull_maximum(self._of(members), weights, enough))
        return self._fits[members]

    @cached_property
    def information(self) -> Floats:
        """Half the Fisher information of the weights, at the best mixture of all simulators [d, d]."""
        mixed = self.fit(tuple(range(self.size))).weights @ self.data.kernels
        rows = self.data.kernels[:, mixed > 0.0] / mixed[mixed > 0.0]
        return np.asarray(0.5 * (rows * self.data.count[mixed > 0.0]) @ rows.T)

    def least(self, delta: float) -> float:
        """Return Z - log(1/delta); counting notices a truth that is no mixture."""
        sizes = sorted({*range(1, min(3, self.size) + 1), self.size})
        sets = [members for m in sizes for members in combinations(range(self.size), m)]
        share = 1.0 / (len(sizes) + 1.0)
        prior = [
            (1.0 - share) / (len(sizes) * math.comb(self.size, len(members))) for members in sets
        ]
        scores = [
            likelihood.hull_evidence(self._of(members), self.fit(members).weights)
            for members in sets
        ]
        weights = np.log([*prior, share])
        return -value.threshold(-np.array([*scores, self.counted]), weights, delta)


def compatible(
    by: ValueRows | Counts, delta: float
) -> tuple[dict[tuple[int, ...], float], float, int]:
    """Return every minimal set with a mixture whose score is large enough, by size, then fit; allowance; largest size.

    With each set comes how far its best score is behind that of all, and the allowance is how far
    it may be. A compatible set makes its supersets compatible. Simulators without which not even
    all others will do are in every compatible set, so that only what is added to these is searched,
    by size, as long as the sets are not too many.
    """
    every, d, least = tuple(range(by.size)), by.size, by.least(delta)

    def fits(members: tuple[int, ...]) -> bool:
        return by.fit(members, least).bound >= least

    minimal, largest, looked = list[tuple[int, ...]](), d, 0
    if fits(every):
        needed = {j for j in every if d > 1 and not fits(tuple(i for i in every if i != j))}
        optional = [j for j in every if j not in needed]
        for m in range(0 if needed else 1, len(optional) + 1):
            looked += math.comb(len(optional), m)
            if looked > by.most_sets:
                break
            largest = len(needed) + m if m < len(optional) else d
            for members in (
                tuple(sorted({*needed, *added})) for added in combinations(optional, m)
            ):
                if not any(set(each) <= set(members) for each in minimal) and fits(members):
                    minimal.append(members)
    scores = {members: by.fit(members).score for members in minimal}
    best = max([by.fit(every).score, *scores.values()])
    ordered = sorted(minimal, key=lambda members: (len(members), -scores[members]))
    return {members: best - scores[members] for members in ordered}, max(best - least, 0.0), largest


@dataclass(frozen=True)
class ParameterSets:
    """Which real parameters matter: every minimal set that can explain the data, the others having their defaults."""

    sets: tuple[
        dict[str, float], ...
    ]  # the best values of each, smallest sets first; the truth needs one of them
    excess: tuple[float, ...]  # nats of likelihood below the best fit of all
    allowance: float  # the excess at which a set is excluded
    episodes: int
    delta: float

    def __str__(self) -> str:
        lines = [f"parameters after {self.episodes:,} episodes, delta {self.delta:g}:"]
        for values, excess in zip(self.sets, self.excess, strict=True):
            named = (
                ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
                or "all at their defaults"
            )
            lines.append(f"  {named} (excess {excess:.2f} of {self.allowance:.2f})")
        return "\n".join(
            lines if self.sets else [*lines, "  no values of these parameters explain the data"]
        )


def _parameters(source: Any, ladder: ParametricLadder, delta: float) -> ParameterSets:
    """Return the sets of parameters that the confidence region of all of them meets."""
    model, by = ladder.model, ParametricEvidence(ladder, ladder.model.known, delta)
    if isinstance(source, Result):
        if getattr(source.agent, "ladder", None) is not ladder or not isinstance(
            source.state, dict
        ):
            raise ParameterError(
                "source", got=f"a run of {source.label}", expected="one of Occam on this ladder"
            )
        state, episodes = source.state["evidence"], source.total_episodes
    else:
        require_kind("source", source, Log)
        state, episodes = by.begin(), source.episodes
        for flow in source.flows(model.known, model.layout):
            by.add(state, flow)
    data, least, found = by.counts_of(state), by.least(state), dict[tuple[str, ...], Any]()
    needed = [name for name in model.box if name not in model.defaults]
    whole = by.fit(data, list(range(len(model.box))), by.starts(state["theta"][-1], True))
    for size in range(len(model.box) - len(needed) + 1):
        for more in combinations([name for name in model.box if name in model.defaults], size):
            free = tuple(name for name in model.box if name in (*needed, *more))
            if not any(set(smaller) <= set(free) for smaller in found):
                fit = by.fit(
                    data, [by.names.index(name) for name in free], by.starts(by.default, True)
                )
                if fit.likelihood + fit.slack >= least:
                    found[free] = fit
    values = tuple(
        {name: by.point(fit.theta)[name] for name in free} for free, fit in found.items()
    )
    excess = tuple(max(0.0, whole.likelihood - fit.likelihood) for fit in found.values())
    return ParameterSets(values, excess, max(0.0, whole.likelihood - least), episodes, delta)


def supports(
    source: Result | Log,
    simulators: Simulators | ParametricLadder | None = None,
    *,
    delta: float = 0.05,
    evidence: str | None = None,
    known: Known | None = None,
) -> Any:
    """Report which simulators matter: every minimal set of which some mixture is compatible with the data.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> mdp = orl.FiniteMDP(transition=kernels[:2].mean(axis=0), reward=np.eye(3)[:, 1:], horizon=5)
    >>> simulators = orl.Simulators(list(kernels))
    >>> result = orl.run(orl.UCRLVTRLin(features=simulators.features, norm_bound=1.0), mdp, episodes=200)
    >>> report = orl.supports(result, simulators)  # print it

    Parameters
    ----------
    source : Result or Log
        A run on the features of the simulators (UCRLVTRLin and selectors built on it: value rows;
        OccamMixture: likelihood), or a log, with ``simulators`` and ``known``, for both.
    simulators : Simulators or ParametricLadder, optional
        A ladder with real parameters asks which of these matter, others at their defaults
        (:class:`ParameterSets`). Simulators are for names and errors of estimates. By default
        coordinates are exact kernels, called "1", "2", ...
    delta : float
        With probability 1 - delta, at all times together, the true set contains one of the sets
        reported.
    evidence : "likelihood" | "value", optional
        By default the likelihood where simulators are exact and outcomes were counted.
    known : Known, optional
        With a log: ``mdp.known`` of the problem, in the unit of the log's rewards.
    """
    require_delta(delta)
    if isinstance(simulators, ParametricLadder):
        return _parameters(source, simulators, delta)
    if simulators is not None:
        require_kind("simulators", simulators, Simulators)
    features, known, state, values, episodes = _read(source, simulators, known)
    d, level, error = features.dimension, delta, 0.0
    if not 1 <= d <= MOST_CANDIDATES or features.groups > 1:
        raise ParameterError(
            "simulators", got=d, expected=f"1 to {MOST_CANDIDATES}: the sets of more are too many"
        )
    if simulators is not None and simulators.estimated:
        level, error = 0.5 * delta, simulators.error(0.5 * delta)
    matrix = sp.csr_array(features.matrix).toarray()
    kinds = ["likelihood"] * ("count" in state and not error) + ["value"] * ("gram" in state)
    kind = (evidence or kinds[0]) if kinds else None
    if kind not in kinds:
        expected = (
            "value rows of UCRLVTRLin, or outcomes that OccamMixture counted and exact simulators"
        )
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    if kind == "likelihood":
        symbols = likelihood.symbols_of(features, known)
        by: ValueRows | Counts = Counts(state, symbols.outcomes, symbols.join(matrix.T))
    else:
        by = ValueRows(state["gram"][0, 0], state["xy"][0, 0], episodes * known.horizon * error**2)
    (minimal, allowance, largest), sets = compatible(by, level), list[SupportSet]()
    scale = np.abs(np.diag(qr(matrix[matrix.any(axis=1)], mode="r", pivoting=True)[0]))
    rank = int((scale > _SAME * max(1.0, float(scale[0]))).sum())
    names = tuple(str(j + 1) for j in range(d)) if simulators is None else simulators.names
    for members, excess in minimal.items():
        growing = excess - by.noise * max(0, rank - len(members))  # beyond what noise explains
        left = episodes * (allowance - excess) / growing if growing > 0.1 * by.noise else math.inf
        named, weights = tuple(names[j] for j in members), tuple(by.fit(members).weights.tolist())
        sets.append(SupportSet(named, weights, excess, max(left, 1.0)))
    basis = helmert(d).T
    eigen = np.linalg.eigvalsh(basis.T @ by.information @ basis)
    seen, told = int((eigen > 1e-10 * max(1.0, float(eigen.max(initial=0.0)))).sum()), rank - 1
    if kind == "value" and d > 1:
        possible = np.concatenate(
            [value.rows(features, known, following).x for following in values[1:]]
        )
        told = int(np.linalg.matrix_rank(possible @ basis, tol=1e-7))
    reachable = min(max(told, seen), rank - 1)
    resolved = min(int((eigen >= allowance).sum()), seen, reachable)
    directions = {
        "resolved": resolved,
        "with too few data": min(seen, reachable) - resolved,
        "never excited": reachable - min(seen, reachable),
        "that no planned value depends on": rank - 1 - reachable,
        "that no data can resolve": d - rank,
    }
    return Supports(
        names, episodes, delta, by.kind, tuple(sets), allowance, largest, rank, directions, error
    )


def _read(
    source: Any, simulators: Simulators | None, known: Known | None
) -> tuple[FeatureMap, Known, Any, Any, int]:
    """Return the features, the problem, the sums over rows and the counts, values that were planned with, episodes."""
    if isinstance(source, Result):
        features = getattr(source.agent, "features", None)
        if not isinstance(features, FeatureMap) or not isinstance(source.state, dict):
            expected = "one of UCRLVTRLin or OccamMixture, or built on them"
            raise ParameterError("source", got=f"a run of {source.label}", expected=expected)
        if simulators is not None and simulators.features.fingerprint != features.fingerprint:
            expected = "those whose features the run learned with"
            raise ParameterError("simulators", got="other kernels", expected=expected)
        return features, source.known, source.state, source.next_plan.values, source.total_episodes
    require_kind("source", source, Log)
    if simulators is None or known is None:
        raise ParameterError(
            "source", got="a log alone", expected="simulators and known (mdp.known) as well"
        )
    agent = UCRLVTRLin(features=simulators.features, norm_bound=1.0)
    state, symbols = agent.begin(known), likelihood.symbols_of(agent.features, known).outcomes
    counts = likelihood.begin(symbols)
    for flow in source.flows(known, agent.features.attach(known)):
        agent.learn(known, state, agent.plan(known, state, generator(0, "supports")), flow)
        likelihood.add(counts, symbols, known, flow)
    plan = agent.plan(known, state, generator(0, "supports"))
    return agent.features, known, state | counts, plan.values, source.episodes

r"""Which of the simulators matter: every minimal set of them that can still explain the data.

The truth is a mixture :math:`P^* = \sum_j \theta^*_j P_j` of d known kernels. As features they are nearly collinear, so
single weights mean little. Sets do: D is *compatible* unless the data reject every mixture of D. With probability
1 - delta, for reports at all times together, the true set is compatible, and so contains one of the *minimal* ones.

**Likelihood** (exact kernels). D is rejected when the bound on the likelihood of its mixtures is below
:math:`Z - \log(1/\delta)` (:mod:`occamrl.evidence.likelihood`), Z being the mixture of the evidence of the sets of up
to three simulators, of the set of all, and of counting, even over sizes, then over sets.

**Value rows** (:mod:`occamrl.evidence.value`). D is compatible when some theta on D has

.. math:: L(\theta) \le t = -\tfrac12 \log \sum_D w(D) e^{-2 A_D} + \tfrac12 \log\tfrac1\delta, \qquad
    A_D = \min_\eta \{ L(\theta_D + B_D\eta) + |\eta|^2 \} + \tfrac14 \log\det(I + B_D^\top G B_D),

the sharp set with a prior that draws the size of D evenly, then D, then theta from a Gaussian around the barycentre
theta_D inside the plane of weights that sum to one (B_D: an orthonormal basis of its directions). The least loss over
mixtures of D is attained inside the simplex of a subset, where it is the least loss over a plane: solving every set
once, and passing the least loss up to supersets, solves all of them.

**Estimated simulators.** Rows are then biased by at most e (:mod:`occamrl.models.simulators`), and for c in (0, 1)

.. math:: t_c = -\tfrac1{2c} \log\sum_D w(D) e^{-2c A_D^{(c)}} + \tfrac1{2c}\log\tfrac1\delta + \frac{n e^2}{1-c},

A^(c) with 1/(4c) before its log-determinant. The least over three c is taken, each at its share of delta.

**What is not told apart.** Weights that sum to one leave d - 1 directions. One is lost when the kernels depend on each
other exactly, when no planned value depends on it (by value), or when the data never met a pair where they differ.
What is left has too few data while a unit step along it costs less than the allowance, and is resolved after that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import helmert, qr
from scipy.special import comb, logsumexp

from occamrl.errors import ParameterError, require_choice, require_kind, require_number
from occamrl.evidence import likelihood, value
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.logs.log import Log
from occamrl.models.features import FeatureMap
from occamrl.models.simulators import Simulators
from occamrl.protocols import Floats, Ints, Known
from occamrl.running.result import Result, table_of_rows
from occamrl.running.run import generator

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CANDIDATES = 20
MOST_SETS = 70_000  # solved by value: every set of 16 candidates, those of up to 6 out of 20
MOST_LIKELY = 20_000  # looked at by likelihood, beside the simulators that are needed anyway
_TEMPERATURES = (0.5, 0.75, 0.9)  # c of t_c
_MIXED = 3  # simulators of the sets that predict by likelihood, but the set of all
_SHOWN = 12
_SAME = 1e-9  # kernels that differ by less are the same; mixtures, whose weights are estimates, at 1e-6


class Compatible(NamedTuple):
    """The minimal sets that the data do not contradict, by size, then fit."""

    minimal: list[tuple[int, ...]]
    excess: list[float]  # of the least loss of each over that of all
    allowance: float  # the excess from which on a set is not compatible
    largest: int  # the size up to which sets were looked at


@dataclass(frozen=True)
class SupportSet:
    """A set of simulators that can still explain the data, and none of whose subsets can."""

    members: tuple[str, ...]
    weights: tuple[float, ...]  # of the mixture that fits best
    excess: float  # of its loss (minus log likelihood, by likelihood) over that of the best mixture of all
    kernel: int  # sets with the same number fit with the very same kernel
    episodes_left: float  # until it is excluded at the present rate; infinite: no growth to be seen


@dataclass(frozen=True)
class Supports:
    """The report; ``print`` it, or take ``table()``."""

    names: tuple[str, ...]
    episodes: int
    delta: float
    evidence: str  # "likelihood" | "value"
    sets: tuple[SupportSet, ...]  # every minimal one, smallest first; the true set contains one of them
    allowance: float  # the excess at which a set is excluded
    largest: int  # sets of up to so many simulators were looked at
    rank: int  # of the kernels, to 9 digits
    directions: dict[str, int]  # how many of the d - 1 differences are resolved, and why others are not
    error: float  # of estimated simulators, in total variation, at most
    other: Supports | None = None  # by value rows, where these were asked as well and leave other sets

    @property
    def necessary(self) -> tuple[str, ...]:
        """The simulators that are in every compatible set."""
        return tuple(name for name in self.names if self.sets and all(name in each.members for each in self.sets))

    @property
    def smallest(self) -> tuple[SupportSet, ...]:
        """The sets with the fewest simulators."""
        return tuple(each for each in self.sets if len(each.members) == len(self.sets[0].members))

    @property
    def next_exclusion(self) -> SupportSet | None:
        """The set that goes next at the present rate, larger ones in its place; None where none is seen to go."""
        going = [each for each in self.sets if math.isfinite(each.episodes_left)]
        return min(going, key=lambda each: each.episodes_left, default=None)

    def table(self) -> pa.Table:
        """Return one row per set."""
        return table_of_rows([{"size": len(each.members), **asdict(each)} for each in self.sets])

    def __str__(self) -> str:
        about = f"after {self.episodes:,} episodes, by {self.evidence}, delta {self.delta:g}:"
        found = [f"{len(self.names)} simulators {about}"]
        return "\n".join([*found, *(f"  {label:<14}{text}" for label, text in self._findings())])

    def _findings(self) -> Iterator[tuple[str, str]]:
        """Yield what was found, in words."""
        if self.error:
            yield "estimated", f"rows are within {self.error:.3g} of the simulators' own"
        if not self.sets:
            yield "compatible", "no mixture of these simulators explains the data: the truth is none of them"
            return
        every = "in every set that explains the data"
        yield "needed", f"{', '.join(self.necessary)} ({every})" if self.necessary else f"no simulator is {every}"
        size, more = len(self.sets[0].members), len(self.sets) - len(self.smallest)
        larger = f", and {more} larger that contain none of these" if more else ""
        yield "compatible", f"{len(self.smallest)} of the {math.comb(len(self.names), size)} sets of {size}{larger}"
        for each in self.sets[:_SHOWN]:
            mixture = " + ".join(f"{w:.2f} of {name}" for w, name in zip(each.weights, each.members, strict=True))
            yield "", f"{mixture}: {each.excess:.2f} behind the best fit, {self.allowance:.2f} allowed"
        if len(self.sets) > _SHOWN:
            yield "", f"... and {len(self.sets) - _SHOWN} more (see table())"
        if self.largest < len(self.names):
            yield "", f"only sets of up to {self.largest} simulators were looked at"
        if self.rank < len(self.names):
            yield "rank", f"{self.rank}: only {self.rank - 1} of {len(self.names) - 1} differences can be learned"
        yield "differences", ", ".join(f"{n} {kind}" for kind, n in self.directions.items() if n or kind == "resolved")
        going = self.next_exclusion
        if going is not None:
            when = f"after about {going.episodes_left:,.0f} more episodes at the present rate"
            yield "next", f"{{{', '.join(going.members)}}} goes {when}; larger sets may take its place"
        else:
            yield "next", "one set remains" if len(self.sets) == 1 else "no set is seen to go at the present rate"
        if self.other is not None:
            left = f"{len(self.other.smallest)} of {len(self.other.sets[0].members)}" if self.other.sets else "none"
            yield "value rows", f"leave other sets ({left}): they see outcomes only through planned values"


class ValueRows:
    """Range-weighted rows over d simulators, summed up."""

    kind, noise = "value", 0.25  # what a free direction lowers the loss by: the variance of a target, at most

    def __init__(self, gram: Floats, xy: Floats, bias: float = 0.0) -> None:
        """Take sum x x^T [d, d], sum y x [d] and a bound on the sum of squared biases."""
        self.gram, self.xy, self.bias, self.information = gram, xy, bias, gram

    def fit(self, sets: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Return, for sets [N, m] of one size: least loss, ridge loss, log-determinant, weights [N, m].

        The least loss is that of the plane of weights that sum to one; infinite if it lies outside the simplex.
        """
        m = sets.shape[1]
        gram, xy = self.gram[sets[:, :, None], sets[:, None, :]], self.xy[sets]
        middle, basis = np.full(m, 1.0 / m), helmert(m).T
        right = (xy - gram @ middle) @ basis
        eigen, axes = np.linalg.eigh(basis.T @ gram @ basis)
        eigen, along = np.maximum(eigen, 0.0), np.einsum("nij,ni->nj", axes, right)
        ridge = gram @ middle @ middle - 2.0 * xy @ middle - (along**2 / (eigen + 1.0)).sum(axis=1)
        steep = eigen > 1e-13 * np.trace(gram, axis1=1, axis2=2)[:, None]
        eta = np.einsum("nij,nj->ni", axes, np.where(steep, along / np.where(steep, eigen, 1.0), 0.0))
        theta = middle + eta @ basis.T
        outside = theta.min(axis=1) < -1e-9
        theta = np.maximum(theta, 0.0)
        theta /= theta.sum(axis=1, keepdims=True)
        loss = np.einsum("ni,nij,nj->n", theta, gram, theta) - 2.0 * (xy * theta).sum(axis=1)  # whatever rounding did
        return np.where(outside, np.inf, loss), ridge, np.log1p(eigen).sum(axis=1), theta

    def weights(self, members: tuple[int, ...]) -> Floats:
        """Return the weights of the best mixture of a set."""
        return self.fit(np.array([members]))[3].ravel()

    def compatible(self, delta: float) -> Compatible:
        """Return the minimal sets that meet the sharp set; sets are numbers whose bits are their members."""
        d, solved, count = self.xy.size, list[tuple[Floats, Floats, Floats]](), 0
        least = np.full(2**d, np.inf)
        for m in range(1, d + 1):
            count += math.comb(d, m)
            if count > MOST_SETS:
                break
            sets = np.array(list(combinations(range(d), m)), dtype=np.int64)
            loss, ridge, logdet, _ = self.fit(sets)
            mask = (1 << sets).sum(axis=1)
            for j in range(m):  # a set does at least as well as its subsets
                loss = np.minimum(loss, least[mask - (1 << sets[:, j])])
            least[mask] = loss
            solved.append((ridge, logdet, np.full(len(sets), -math.log(math.comb(d, m)))))
        ridge, logdet, log_prior = (np.concatenate(parts) for parts in zip(*solved, strict=True))
        log_prior -= math.log(len(solved))

        def most(c: float, level: float) -> float:
            mixture = float(logsumexp(log_prior - 2.0 * c * (ridge + logdet / (4.0 * c))))
            return (math.log(1.0 / level) - mixture) / (2.0 * c)

        share = delta / len(_TEMPERATURES)
        bound = min(most(c, share) + self.bias / (1.0 - c) for c in _TEMPERATURES) if self.bias else most(1.0, delta)
        inside, best = least <= bound, float(least.min())
        left = {mask: tuple(j for j in range(d) if mask >> j & 1) for mask in np.flatnonzero(inside).tolist()}
        minimal = [mask for mask, members in left.items() if not any(inside[mask ^ (1 << j)] for j in members)]
        minimal.sort(key=lambda mask: (len(left[mask]), least[mask]))
        excess = [float(least[mask]) - best for mask in minimal]
        return Compatible([left[mask] for mask in minimal], excess, bound - best, len(solved))


class Counts:
    """Outcomes seen, counted, and the simulators' probabilities of them; the best mixture of each set is kept."""

    kind, noise = "likelihood", 0.5  # what a free direction lowers minus the log likelihood by

    def __init__(self, state: dict[str, Any], outcomes: Any, kernels: Floats) -> None:
        """Take the counts of :mod:`occamrl.evidence.likelihood` over ``outcomes``, and kernels [d, symbols]."""
        self.novel = float(state["novel"][:, 2].sum())
        self.counted = likelihood.counted_evidence(state["count"], outcomes, self.novel)
        self.data = likelihood.data_of(state["count"], outcomes, np.maximum(kernels, 0.0))
        self._fits: dict[tuple[int, ...], tuple[float, float, Floats]] = {}

    def _of(self, members: tuple[int, ...]) -> likelihood.Data:
        return self.data._replace(kernels=self.data.kernels[list(members)])

    def fit(self, members: tuple[int, ...], enough: float = math.nan) -> tuple[float, float]:
        """Return the best likelihood found of mixtures of a set, and a bound on all, on one side of ``enough``."""
        if members not in self._fits:
            even = np.full(len(members), 1.0 / len(members))
            self._fits[members] = (-math.inf, math.inf, likelihood.hull_fit(self._of(members), even, 3, 0.0))
        least, most, weights = self._fits[members]
        if most - least > 1e-3 and not (least >= enough or most < enough):
            self._fits[members] = likelihood.hull_maximum(self._of(members), weights, enough)
        return self._fits[members][:2]

    def weights(self, members: tuple[int, ...]) -> Floats:
        """Return the weights of the best mixture of a set."""
        self.fit(members)
        return self._fits[members][2]

    @cached_property
    def information(self) -> Floats:
        """Half the Fisher information of the weights, at the best mixture of all simulators [d, d]."""
        mixed = self.weights(tuple(range(len(self.data.kernels)))) @ self.data.kernels
        rows = self.data.kernels[:, mixed > 0.0] / mixed[mixed > 0.0]
        return np.asarray(0.5 * (rows * self.data.count[mixed > 0.0]) @ rows.T)

    def compatible(self, delta: float) -> Compatible:
        """Return every minimal set that some mixture makes likely enough.

        A compatible set makes its supersets compatible. Simulators without which not even all others will do are in
        every compatible set, so that only what is added to these is searched, by size.
        """
        d = len(self.data.kernels)
        every = tuple(range(d))
        if self.novel:
            return Compatible([], [], 0.0, d)
        sizes = sorted({*range(1, min(_MIXED, d) + 1), d})
        mixed = [members for m in sizes for members in combinations(every, m)]
        share = 1.0 / (len(sizes) + 1.0)  # of counting, which notices a truth that is no mixture
        weights = [(1.0 - share) / (len(sizes) * float(comb(d, len(members)))) for members in mixed]
        scores = [likelihood.hull_evidence(self._of(members), self.weights(members)) for members in mixed]
        z = likelihood.mixture(np.log([*weights, share]), np.array([*scores, self.counted]))
        least = z - math.log(1.0 / delta)

        def compatible(members: tuple[int, ...]) -> bool:
            return self.fit(members, least)[1] >= least

        minimal, largest, looked = list[tuple[int, ...]](), d, 0
        if compatible(every):
            needed = {j for j in every if d > 1 and not compatible(tuple(i for i in every if i != j))}
            optional = [j for j in every if j not in needed]
            for m in range(0 if needed else 1, len(optional) + 1):
                looked += math.comb(len(optional), m)
                if looked > MOST_LIKELY:
                    break
                largest = len(needed) + m if m < len(optional) else d
                for members in (tuple(sorted({*needed, *added})) for added in combinations(optional, m)):
                    if not any(set(each) <= set(members) for each in minimal) and compatible(members):
                        minimal.append(members)
        fitted = {members: self.fit(members)[0] for members in minimal}
        minimal.sort(key=lambda members: (len(members), -fitted[members]))
        best = max([self.fit(every)[0], *fitted.values()])
        return Compatible(minimal, [best - fitted[members] for members in minimal], best - least, largest)


def supports(
    source: Result | Log,
    simulators: Simulators | None = None,
    *,
    delta: float = 0.05,
    evidence: str | None = None,
    known: Known | None = None,
) -> Supports:
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
        A run on the features of the simulators, of UCRLVTRLin or a selector built on it (value rows), or of
        OccamMixture (likelihood); or a log (:func:`occamrl.read_log`), with ``simulators`` and ``known``, for both.
    simulators : Simulators, optional
        For names, and for the error of those that are estimated: half of delta then goes to their estimation. By
        default coordinates are called "1", "2", ... and taken as exact kernels.
    delta : float
        With probability 1 - delta, for reports at all times together, the true set contains one of the sets reported.
    evidence : "likelihood" | "value", optional
        By default the likelihood where simulators are exact and outcomes were counted, value rows otherwise; where
        both are there, value rows are asked as well, and reported if they leave other sets.
    known : Known, optional
        With a log: ``mdp.known`` of the problem, in the unit of the log's rewards.
    """
    require_number("delta", delta, 1e-300, 1.0)
    if simulators is not None:
        require_kind("simulators", simulators, Simulators)
    features, known, state, values, episodes = _read(source, simulators, known)
    d, level, error = features.dimension, delta, 0.0
    if not 1 <= d <= MOST_CANDIDATES or features.groups > 1:
        raise ParameterError("simulators", got=d, expected=f"1 to {MOST_CANDIDATES}: the sets of more are too many")
    if simulators is not None and simulators.estimated:
        level, error = 0.5 * delta, simulators.error(0.5 * delta)
    matrix = sp.csr_array(features.matrix).toarray()
    by: list[ValueRows | Counts] = []
    if "count" in state and not error:
        symbols = likelihood.symbols_of(features, known)
        by.append(Counts(state, symbols.outcomes, symbols.join(matrix.T)))
    if "gram" in state:
        by.append(ValueRows(state["gram"][0, 0], state["xy"][0, 0], episodes * known.horizon * error**2))
    if evidence is not None:
        require_choice("evidence", evidence, ("likelihood", "value"))
        by = [each for each in by if each.kind == evidence]
    if not by:
        expected = "value rows of UCRLVTRLin, or outcomes that OccamMixture counted and exact simulators"
        raise ParameterError("evidence", got=repr(evidence), expected=expected)
    stack = matrix[matrix.any(axis=1)]
    names = tuple(str(j + 1) for j in range(d)) if simulators is None else simulators.names
    possible = np.concatenate([each.x for each in (value.rows(features, known, v) for v in values[1:])])
    found = [_report(each, names, stack, possible, episodes, level, error) for each in by]
    if len(found) > 1 and {each.members for each in found[0].sets} != {each.members for each in found[1].sets}:
        return replace(found[0], delta=delta, other=replace(found[1], delta=delta))
    return replace(found[0], delta=delta)


def _read(source: Any, simulators: Simulators | None, known: Known | None) -> tuple[FeatureMap, Known, Any, Any, int]:
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
        raise ParameterError("source", got="a log alone", expected="simulators and known (mdp.known) as well")
    agent = UCRLVTRLin(features=simulators.features, norm_bound=1.0)
    state, symbols = agent.begin(known), likelihood.symbols_of(agent.features, known).outcomes
    counts = likelihood.begin(symbols)
    for flow in source.flows(known, agent.features.attach(known)):
        agent.learn(known, state, agent.plan(known, state, generator(0, "supports")), flow)
        likelihood.add(counts, symbols, known, flow)
    plan = agent.plan(known, state, generator(0, "supports"))
    return agent.features, known, state | counts, plan.values, source.episodes


def _report(
    by: Any, names: tuple[str, ...], stack: Floats, possible: Floats, episodes: int, delta: float, error: float
) -> Supports:
    """Return the report by one kind of evidence, ValueRows or Counts."""
    found, kernels, sets = by.compatible(delta), list[Floats](), list[SupportSet]()
    size = np.abs(np.diag(qr(stack, mode="r", pivoting=True)[0]))
    rank = int((size > _SAME * max(1.0, float(size[0]))).sum())
    for members, excess in zip(found.minimal, found.excess, strict=True):
        weights = by.weights(members)
        kernel = stack[:, list(members)] @ weights
        same = (i for i, other in enumerate(kernels) if np.abs(other - kernel).max() <= 1e-6)
        number = next(same, len(kernels))
        kernels += [kernel] if number == len(kernels) else []
        growing = excess - by.noise * max(0, rank - len(members))  # beyond what noise explains
        left = episodes * (found.allowance - excess) / growing if growing > 0.1 * by.noise else math.inf
        named = tuple(names[j] for j in members)
        sets.append(SupportSet(named, tuple(weights.tolist()), excess, number + 1, max(left, 1.0)))
    d, basis = len(names), helmert(len(names)).T
    eigen = np.linalg.eigvalsh(basis.T @ by.information @ basis)
    seen = int((eigen > 1e-10 * max(1.0, float(eigen.max(initial=0.0)))).sum())
    told = int(np.linalg.matrix_rank(possible @ basis, tol=1e-7)) if by.kind == "value" and d > 1 else rank - 1
    reachable = min(max(told, seen), rank - 1)
    resolved = min(int((eigen >= found.allowance).sum()), seen, reachable)
    kinds = {
        "resolved": resolved,
        "with too few data": min(seen, reachable) - resolved,
        "never excited": reachable - min(seen, reachable),
        "that no planned value depends on": rank - 1 - reachable,
        "that no data can resolve": d - rank,
    }
    bounds = found.allowance, found.largest, rank
    return Supports(names, episodes, delta, by.kind, tuple(sets), *bounds, kinds, error)

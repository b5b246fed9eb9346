r"""Which of the simulators matter: every minimal set of them that can still explain the data (M18, last paragraph).

The truth is a mixture :math:`P^* = \sum_j \theta^*_j P_j` of d known kernels, so on range-weighted rows (M23)
:math:`E[y_t] = \langle x_t, \theta^*\rangle` with :math:`\sum_j \theta^*_j = 1`. As features the kernels are nearly
collinear (M18), so single coordinates mean little. Supports do: a set D is *compatible* when some theta on D lies in

.. math:: \{\theta : L(\theta) \le t\}, \qquad
    t = -\tfrac12 \log \sum_D w(D) e^{-2 A_D} + \tfrac12 \log\tfrac1\delta, \qquad
    A_D = \min_\eta \{ L(\theta_D + B_D\eta) + \lambda |\eta|^2 \} + \tfrac14 \log\det(I + B_D^\top G B_D/\lambda).

This is M22 with a prior that first draws the size m of D evenly, then D among the sets of that size, then theta from a
Gaussian around the barycentre theta_D of D inside the plane of weights that sum to one (B_D: an orthonormal basis of
its directions; differences of simulators, never the simulators themselves). The truth's own D has m - 1 directions, so
the price of a pair is one logarithm, not d of them. With probability 1 - delta, at all times together, L(theta*) <= t,
so the true set is compatible, and contains one of the *minimal* compatible sets.

Estimated simulators. The rows are then biased, :math:`|\langle x_t, \theta^*\rangle - E[y_t]| \le e` for weights >= 0
(:mod:`occamrl.models.simulators`), and for any c in (0, 1), n rows and A^(c) with 1/(4c) before its log-determinant

.. math:: t_c = -\tfrac1{2c} \log\sum_D w(D) e^{-2c A_D^{(c)}} + \tfrac1{2c}\log\tfrac1\delta + \frac{n e^2}{1-c}

holds (section 3 of the mathematics, estimated kernels), by value rows only. The bias costs n e^2, not n e. Without it
c = 1; with it the least t_c over a few c is taken, each at its share of delta.

Two kinds of evidence. The above is by *value* rows. By *likelihood*, D is compatible unless an upper bound on the best
likelihood of its mixtures (L6) is below :math:`Z - \log 1/\delta`, Z a mixture over the sets of up to three
simulators, the set of all, and counting (L8). It sees every outcome, not only what planned values depend on, and needs
exact kernels.

Exactness. By value, the least loss over mixtures of D is attained on a subset E of D whose simulators are affinely
independent (Caratheodory), inside its simplex, where it is the least loss over the plane of E. So solving every E once,
in closed form, and passing the least one up from sets to supersets solves every D.

What is not told apart, and why. Weights that sum to one leave d - 1 directions. A direction is lost, in this order,
when the kernels depend on each other exactly (no data can tell), when they differ but not in the mean of any target
that plans ask for (blind by value), or when they differ only at state-action pairs that the data never met (never
excited). What is left is weak while a unit step along it costs less loss than the allowance of the confidence set, and
resolved after that. By likelihood nothing is blind, and half the Fisher information takes the place of the losses.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import helmert, qr
from scipy.special import comb, logsumexp

from occamrl._core.arena import field
from occamrl._core.rows import VALUES
from occamrl.errors import ParameterError, ShapeError, require_choice, require_kind, require_number
from occamrl.learners.ucrl_vtr_lin import MOST_CANDIDATES, LinearStatistics, UCRLVTRLin
from occamrl.logs.log import Log
from occamrl.logs.select import EVIDENCE, LIKELIHOOD, VALUE, log_statistics
from occamrl.models.family import weighted
from occamrl.models.features import FeatureMap
from occamrl.models.likelihood import hull_evidence, hull_fit, hull_maximum, kt_evidence, log_mixture
from occamrl.models.simulators import Simulators
from occamrl.protocols import Floats, Ints, Known
from occamrl.running.result import Result, counted, data_frame, html_table

if TYPE_CHECKING:
    import pyarrow as pa

MOST_SETS = 70_000  # solved at most: every set of 16 candidates, those of up to 6 out of 20
MOST_LIKELY = 20_000  # looked at by likelihood, beside the simulators that are needed anyway
_PRECISION = 1e-3  # of a log likelihood
REGULARIZATION = 1.0  # lambda: the prior's standard deviation is 1/2, weights on a simplex lie within 1 of its middle
TEMPERATURES = (0.5, 0.75, 0.9)  # c of t_c, where there is bias
_FLAT = 1e-13  # of the largest eigenvalue: directions that are none
_NEGATIVE = 1e-9  # a weight that is zero up to rounding
_MOST_MIXED = 3  # simulators of the sets that predict, but the set of all (L8)
_VISIBLE = 0.1  # of the noise: growth of the excess beyond it that is not mere noise
_SHOWN = 12
_SAME = 1e-9  # kernels that differ by less are the same
_SAME_FIT = 1e-6  # mixtures, likewise: their weights are estimates
_UNSEEN = 1e-10  # of the largest eigenvalue: directions that no row has


class Directions(NamedTuple):
    """How many of the d - 1 directions are of each kind."""

    resolved: int
    weak: int
    never_excited: int
    blind: int
    dependent: int


class Dependence(NamedTuple):
    """A simulator that is a combination of others, to 9 digits."""

    simulator: int
    others: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class SupportSet:
    """A set of simulators that can still explain the data, and none of whose subsets can."""

    members: tuple[str, ...]
    weights: tuple[float, ...]  # of the mixture with the least loss
    excess: float  # of its loss (- log likelihood, by likelihood) over that of the best mixture of all
    kernel: int  # sets with the same number fit with the very same kernel
    episodes_left: float  # until it is excluded at the present rate; infinite: no growth to be seen


@dataclass(frozen=True)
class Supports:
    """The report; ``print`` it, or take ``table()``."""

    names: tuple[str, ...]
    episodes: int
    delta: float
    sets: tuple[SupportSet, ...]  # every minimal one, smallest first; the true set contains one of them
    allowance: float  # the excess at which a set is excluded
    largest: int  # sets of up to so many simulators were looked at
    rank: int  # of the kernels
    dependences: tuple[Dependence, ...]
    directions: Directions
    error: float  # of estimated simulators, in total variation, at most
    evidence: str  # "likelihood" | "value"
    other: Supports | None = None  # by value rows, where these were asked as well and leave other sets
    difference: str = ""  # why

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
        import pyarrow as pa

        return pa.Table.from_pylist([{"size": len(each.members), **asdict(each)} for each in self.sets])

    def to_pandas(self) -> Any:
        """Return one row per set, as a data frame of pandas."""
        return data_frame(self.table())

    def __str__(self) -> str:
        return "\n".join([self._about(), *(f"  {label:<14}{text}" for label, text in self._findings())])

    def _repr_html_(self) -> str:
        rows = [{"": label, "finding": text} for label, text in self._findings()]
        return f"<p>{html.escape(self._about())}</p>{html_table(rows)}"

    def _about(self) -> str:
        played = f"after {counted(self.episodes, 'episode')}, confidence {1.0 - self.delta:.3g}:"
        return f"{counted(len(self.names), 'simulator')} {played}"

    def _findings(self) -> list[tuple[str, str]]:
        return [*self._sets(), *self._untold(), *self._next()]

    def _sets(self) -> Iterator[tuple[str, str]]:
        """Yield the sets that explain the data, in words."""
        if self.error:
            yield "estimated", f"rows are within {self.error:.3g} of the simulators' own"
        if not self.sets:
            yield "compatible", "no mixture of these simulators explains the data: the truth is none of them"
            return
        every = "in every set that explains the data"
        yield "needed", f"{', '.join(self.necessary)} ({every})" if self.necessary else f"no simulator is {every}"
        least, larger = len(self.sets[0].members), len(self.sets) - len(self.smallest)
        more = f", and {counted(larger, 'larger one')} that contain none of these" if larger else ""
        possible = counted(math.comb(len(self.names), least), "set")
        yield "compatible", f"{len(self.smallest)} of the {possible} of {least}{more}"
        how = "loss {:.2f} above the least" if self.evidence == VALUE else "log likelihood {:.2f} below the best"
        for each in self.sets[:_SHOWN]:
            mixture = " + ".join(f"{w:.2f} of {name}" for w, name in zip(each.weights, each.members, strict=True))
            yield "", f"{mixture}: {how.format(each.excess)}, {self.allowance:.2f} allowed"
        if len(self.sets) > _SHOWN:
            yield "", f"... and {len(self.sets) - _SHOWN} more (see table())"
        if self.largest < len(self.names):
            yield "", f"only sets of up to {self.largest} simulators were looked at"

    def _untold(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be told apart, and why, in words."""
        d, rank = len(self.names), self.rank
        if rank < d:
            learned = f"of {counted(d - 1, 'difference')} only {rank - 1} can be learned, from any data"
            yield "rank", f"the {d} kernels have rank {rank} (to 9 digits): {learned}"
            for each in self.dependences[:3]:
                parts = [f"{w:+.3g} of {self.names[j]}" for w, j in zip(each.weights, each.others, strict=True)]
                others = " ".join(parts) if len(parts) <= 4 else f"a combination of {len(parts)} others"
                yield "", f"{self.names[each.simulator]} = {others}"
            if len(self.dependences) > 3:
                yield "", f"... and {len(self.dependences) - 3} more"
        kinds = self.directions
        said = [f"{kinds.resolved} resolved", f"{kinds.weak} with too few data"]
        said += [f"{kinds.never_excited} never excited by what was played"] if kinds.never_excited else []
        said += [f"{kinds.blind} that no planned value depends on"] if kinds.blind else []
        said += [f"{kinds.dependent} that no data can resolve"] if kinds.dependent else []
        yield "differences", ", ".join(said)
        numbers = [each.kernel for each in self.sets]
        for kernel in sorted({k for k in numbers if numbers.count(k) > 1})[:3]:
            twins = ["{" + ", ".join(each.members) + "}" for each in self.sets if each.kernel == kernel]
            shown = ", ".join(twins[:_SHOWN]) + (", ..." if len(twins) > _SHOWN else "")
            yield "the same", f"{len(twins)} sets give the same kernel, so no data can separate them: {shown}"

    def _next(self) -> Iterator[tuple[str, str]]:
        """Yield when the next set goes, and what value rows say, where it is something else, in words."""
        each = self.next_exclusion
        if each is not None:
            when = counted(round(each.episodes_left), "more episode")
            stay = sum(math.isinf(other.episodes_left) for other in self.sets)
            text = f"{{{', '.join(each.members)}}} after about {when} at the present rate"
            text += " (larger ones that contain it may take its place)"
            yield "next", f"{text}; {stay} of {counted(len(self.sets), 'set')} show no such growth"
        elif self.sets:
            none = "no set is seen to go: their losses do not grow apart at the present rate"
            yield "next", "nothing left to exclude: one set remains" if len(self.sets) == 1 else none
        if self.other is not None:
            sets, least = self.other.sets, self.other.smallest
            left = f"{counted(len(least), 'set')} of {len(sets[0].members)}" if sets else "no set"
            more = f" and {counted(len(sets) - len(least), 'larger one')}" if len(sets) > len(least) else ""
            yield "value rows", f"leave {left}{more}: {self.difference}"


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
        A run of :class:`UCRLVTRLin`, or of a selector built on it, on the features of the simulators, with range
        weights; or a log (:func:`occamrl.read_log`), with ``simulators`` and ``known``.
    simulators : Simulators, optional
        For names, and for the error of those that are estimated: half of delta then goes to their estimation. By
        default coordinates are called "1", "2", ... and taken as exact kernels.
    delta : float
        With probability 1 - delta, for reports at all times together, the true set contains one of the sets reported.
    evidence : "likelihood" | "value", optional
        What sets are judged by. By default the likelihood where simulators are exact, and value rows otherwise; in the
        first case value rows are asked as well, and reported if they leave other sets. Each of the two holds at level
        delta.
    known : Known, optional
        With a log: ``mdp.known`` of the problem, in the unit of the log's rewards.
    """
    statistics, features, known, values = _rows_of(source, simulators, known)
    d, matrix = statistics.xy.size, features.matrix
    names = tuple(str(j + 1) for j in range(d)) if simulators is None else simulators.names
    if len(names) != d or statistics.gram.size != d * d:
        raise ParameterError("source", got=f"rows of {d} features", expected=f"one for each of {len(names)} simulators")
    level, error, seen = delta, 0.0, statistics.seen
    if simulators is not None and simulators.estimated:
        level = delta / 2.0
        error = simulators.error(level)
    kinds = (VALUE,) if error or seen is None else EVIDENCE
    if evidence is not None:
        require_choice("evidence", evidence, EVIDENCE)
        if evidence not in kinds:
            expected = '"value": the likelihood needs exact simulators, and outcomes that were counted'
            raise ParameterError("evidence", got=repr(evidence), expected=expected)
        kinds = (evidence,)
    stack = matrix[np.diff(matrix.indptr) > 0].toarray()  # without outcomes that were never drawn
    rank, dependent = dependences(stack)
    about = {"names": names, "episodes": statistics.episodes, "delta": delta, "error": error, "rank": rank}
    about["dependences"] = tuple(dependent)
    found = []
    for kind in kinds:
        if kind == LIKELIHOOD:
            counts = Counts(np.asarray(seen, np.float64), features.layout.outcomes.start, matrix.toarray())
            found.append(_report(counts, level, stack, None, about))
        else:
            rows = statistics.episodes * known.horizon if seen is None else int(seen.sum())
            sums = ValueRows(statistics.gram.reshape(d, d), statistics.xy, rows * error**2)
            found.append(_report(sums, level, stack, possible_rows(features, known, values), about))
    left = [{each.members for each in report.sets} for report in found]
    if len(found) == 1 or left[0] == left[1]:
        return found[0]
    return replace(found[0], other=found[1], difference=_difference(*found))


def _report(
    by: ValueRows | Counts, delta: float, stack: Floats, possible: Floats | None, about: dict[str, Any]
) -> Supports:
    """Return the report by one kind of evidence."""
    found = by.compatible_sets(delta=delta)
    sets: list[SupportSet] = []
    kernels: list[Floats] = []
    for members, excess in zip(found.minimal, found.excess, strict=True):
        weights = by.weights(members)
        kernel = stack[:, list(members)] @ weights
        same = (i for i, other in enumerate(kernels) if np.abs(other - kernel).max() <= _SAME_FIT)
        number = next(same, len(kernels))
        if number == len(kernels):
            kernels.append(kernel)
        growing = excess - by.noise * max(0, about["rank"] - len(members))
        visible = growing > _VISIBLE * by.noise
        left = about["episodes"] * (found.allowance - excess) / growing if visible else math.inf
        named = tuple(about["names"][j] for j in members)
        sets.append(SupportSet(named, tuple(weights.tolist()), excess, number + 1, max(left, 1.0)))
    kinds = directions(by.information(), about["rank"], possible, found.allowance)
    told: dict[str, Any] = {
        "allowance": found.allowance,
        "largest": found.largest,
        "directions": kinds,
        "evidence": by.kind,
    }
    return Supports(sets=tuple(sets), **told, **about)


def _difference(likely: Supports, valued: Supports) -> str:
    """Return why value rows leave other sets than the likelihood."""
    if not likely.sets and valued.sets:
        return "they forgive a transition that mixtures make impossible or unlikely, as a wrong zero would"
    if likely.sets and valued.sets:
        sizes = [(len(report.sets[0].members), -len(report.smallest)) for report in (likely, valued)]
        if sizes[0] < sizes[1]:
            return "they weigh what planned values depend on; the likelihood spreads over all outcomes"
    return "they see outcomes only through planned values, and tell less apart with as many data"


def _rows_of(
    source: Any, simulators: Simulators | None, known: Known | None
) -> tuple[LinearStatistics, FeatureMap, Known, Floats]:
    """Return the rows over all candidates, their features, and the problem and values they belong to."""
    if simulators is not None:
        require_kind("simulators", simulators, Simulators)
    if isinstance(source, Log):
        if simulators is None or known is None:
            raise ParameterError("source", got="a log alone", expected="simulators and known (mdp.known) as well")
        statistics, values = log_statistics(source, simulators.features, known)
        return statistics, simulators.features, known, values
    if not isinstance(source, Result):
        raise ParameterError("source", got=type(source).__name__, expected="a Result or a Log")
    learner, known = source.walk.phase.learner, source.walk.known
    if not isinstance(learner, UCRLVTRLin) or learner.weights != "range":
        got = f"a run of {source.label}"
        raise ParameterError("source", got=got, expected="one of UCRLVTRLin, or built on it, with range weights")
    if simulators is not None and learner.features is not simulators.features:
        mine, theirs = learner.features.matrix.toarray(), simulators.features.matrix.toarray()
        if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=0.0, atol=1e-9):
            expected = "those whose features the run learned with"
            raise ParameterError("simulators", got="other kernels", expected=expected)
    return learner.statistics(known, source.state), learner.features, known, np.array(field(source.state, VALUES))


class CompatibleSets(NamedTuple):
    """The minimal sets that the data do not contradict, by size, then loss."""

    minimal: list[tuple[int, ...]]  # compatible, and no subset of theirs is
    excess: list[float]  # by how much the least loss of each exceeds the least loss of all
    allowance: float  # the excess from which on a set is not compatible: t less the least loss of all
    largest: int  # the size up to which sets were looked at


def _require_sets(d: int, delta: float) -> None:
    require_number("delta", delta, 1e-300, 1.0)
    if not 1 <= d <= MOST_CANDIDATES:
        raise ParameterError("simulators", got=d, expected=f"1 to {MOST_CANDIDATES}: the sets of more are too many")


class Fits(NamedTuple):
    """Least losses (less sum y^2) by set, a set being the number whose bits are its members."""

    least: Floats  # [2^d] over the mixtures of a set; infinite for sets that are too large to be solved
    ridge: Floats  # [N] min {L + lambda |eta|^2}, of the sets solved
    logdet: Floats  # [N] log det (I + B^T G B / lambda)
    size: Ints  # [N]
    largest: int  # the size up to which sets are solved


@dataclass(frozen=True, eq=False)
class ValueRows:
    """Range-weighted rows over d simulators, summed up."""

    gram: Floats  # [d, d] sum x x^T
    xy: Floats  # [d] sum y x
    bias: float = 0.0  # at least sum e_t^2, for estimated simulators

    kind: ClassVar[str] = VALUE
    noise: ClassVar[float] = 0.25  # what a free direction lowers the loss by: the variance of a target, at most

    def compatible_sets(self, *, delta: float = 0.05) -> CompatibleSets:
        """Return every minimal set of simulators that the data do not contradict, exactly; see :func:`supports`."""
        d = self.xy.size
        _require_sets(d, delta)
        if self.gram.shape != (d, d):
            raise ShapeError("gram", got=self.gram.shape, expected=(d, d))
        fits = self.solve()
        bound, best = self.threshold(fits, delta), float(fits.least.min())
        inside = fits.least <= bound
        # Compatibility passes from sets to supersets: a set is minimal if no set with one member less is compatible.
        minimal = (
            mask
            for mask in np.flatnonzero(inside).tolist()
            if not any(mask >> j & 1 and inside[mask ^ (1 << j)] for j in range(d))
        )
        found = sorted(minimal, key=lambda mask: (mask.bit_count(), fits.least[mask]))
        sets = [tuple(j for j in range(d) if mask >> j & 1) for mask in found]
        return CompatibleSets(sets, [float(fits.least[mask]) - best for mask in found], bound - best, fits.largest)

    def information(self) -> Floats:
        """Return what a unit step of the weights along each direction costs [d, d]."""
        return self.gram

    def weights(self, members: tuple[int, ...]) -> Floats:
        """Return the weights of the best mixture of a set."""
        return self.fit(np.array([members]))[3].ravel()

    def solve(self) -> Fits:
        """Solve every set, by size, as long as there are not too many."""
        d = self.xy.size
        least = np.full(2**d, np.inf)
        solved: list[tuple[Floats, Floats, Ints]] = []
        count = 0
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
            solved.append((ridge, logdet, np.full(len(sets), m)))
        ridges, logdets, sizes = (np.concatenate(parts) for parts in zip(*solved, strict=True))
        return Fits(least, ridges, logdets, sizes, len(solved))

    def fit(self, sets: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Return, for sets [N, m] of one size: the least loss, the ridge loss, the log-determinant, the weights [N, m].

        The least loss is that of the plane of weights that sum to one; infinite if it lies outside the simplex.
        """
        m = sets.shape[1]
        gram, xy = self.gram[sets[:, :, None], sets[:, None, :]], self.xy[sets]
        middle, basis = np.full(m, 1.0 / m), helmert(m).T
        own = basis.T @ gram @ basis  # [N, m - 1, m - 1]
        right = (xy - gram @ middle) @ basis
        start = gram @ middle @ middle - 2.0 * xy @ middle
        eigen, axes = np.linalg.eigh(own)
        eigen = np.maximum(eigen, 0.0)
        along = np.einsum("nij,ni->nj", axes, right)
        ridge = start - (along**2 / (eigen + REGULARIZATION)).sum(axis=1)
        logdet = np.log1p(eigen / REGULARIZATION).sum(axis=1)
        steep = eigen > _FLAT * np.trace(gram, axis1=1, axis2=2)[:, None]
        eta = np.einsum("nij,nj->ni", axes, np.where(steep, along / np.where(steep, eigen, 1.0), 0.0))
        theta = middle + eta @ basis.T
        outside = theta.min(axis=1) < -_NEGATIVE
        theta = np.maximum(theta, 0.0)
        theta /= theta.sum(axis=1, keepdims=True)
        # the loss at these very weights: whatever rounding did to them, some mixture has it
        loss = np.einsum("ni,nij,nj->n", theta, gram, theta) - 2.0 * (xy * theta).sum(axis=1)
        return np.where(outside, np.inf, loss), ridge, logdet, theta

    def threshold(self, fits: Fits, delta: float) -> float:
        """Return t, or the least t_c where there is bias."""
        log_prior = -np.log(fits.largest * comb(self.xy.size, fits.size))

        def at(c: float, level: float) -> float:
            mixture = logsumexp(log_prior - 2.0 * c * (fits.ridge + fits.logdet / (4.0 * c)))
            return (math.log(1.0 / level) - float(mixture)) / (2.0 * c)

        if self.bias == 0.0:
            return at(1.0, delta)
        return min(at(c, delta / len(TEMPERATURES)) + self.bias / (1.0 - c) for c in TEMPERATURES)


class Counts:
    """Outcomes seen, counted, and the d simulators' probabilities of them; the best mixture of each set is kept."""

    kind = LIKELIHOOD
    noise = 0.5  # what a free direction lowers - log likelihood by

    def __init__(self, seen: Floats, start: Ints, kernels: Floats) -> None:
        """Take counts [O + 1], the last of them of what no simulator allows, ``start`` [S*A + 1] and kernels [O, d]."""
        self.counted = kt_evidence(seen[:-1].copy(), start)
        self.outside = bool(seen[-1] > 0.0)
        kept = np.flatnonzero(seen[:-1])
        self.counts, self.kernels = seen[kept], np.maximum(kernels[kept], 0.0)
        self._fits: dict[tuple[int, ...], tuple[float, float, Floats]] = {}

    def fit(self, members: tuple[int, ...], enough: float = math.nan) -> tuple[float, float]:
        """Return the best likelihood found of mixtures of a set, and a bound on all (L6), on one side of ``enough``."""
        least, most, weights = self._fits.get(members, (-math.inf, math.inf, np.full(len(members), 1.0 / len(members))))
        if most - least > _PRECISION and not (least >= enough or most < enough):
            own, weights = np.ascontiguousarray(self.kernels[:, members]), weights.copy()
            if members not in self._fits:
                hull_fit(self.counts, own, weights, 3, 0.0, np.zeros(weights.size))
            least, most = hull_maximum(self.counts, own, weights, tolerance=_PRECISION, enough=enough)
            self._fits[members] = least, most, weights
        return least, most

    def weights(self, members: tuple[int, ...]) -> Floats:
        """Return the weights of the best mixture of a set."""
        self.fit(members)
        return self._fits[members][2]

    def evidence(self, members: tuple[int, ...]) -> float:
        """Return at most the log of the mean likelihood of the mixtures of a set, all weights being as likely (L8)."""
        own, weights = np.ascontiguousarray(self.kernels[:, members]), self.weights(members)
        return hull_evidence(self.counts, own, weights, np.zeros(weights.size))

    def information(self) -> Floats:
        """Return half the Fisher information of the weights, at the best mixture of all simulators [d, d]."""
        mixed = self.kernels @ self.weights(tuple(range(self.kernels.shape[1])))
        rows = self.kernels[mixed > 0.0] / mixed[mixed > 0.0, None]
        found: Floats = 0.5 * rows.T @ (self.counts[mixed > 0.0, None] * rows)
        return found

    def compatible_sets(self, *, delta: float = 0.05) -> CompatibleSets:
        """Return every minimal set that some mixture makes likely enough (L6, L8); see :func:`supports`.

        A set that is compatible makes its supersets so, and one that is not its subsets. Simulators without which not
        even all others will do are in every compatible set, so that only what is added to these is searched, by size.
        """
        d = self.kernels.shape[1]
        _require_sets(d, delta)
        every = tuple(range(d))
        if self.outside:
            return CompatibleSets([], [], 0.0, d)
        sizes = sorted({*range(1, min(_MOST_MIXED, d) + 1), d})
        mixed = [(members, len(sizes) * math.comb(d, m)) for m in sizes for members in combinations(every, m)]
        share = 1.0 / (len(sizes) + 1.0)  # of counting, which notices a truth that is no mixture (L4)
        log_weights = np.log(np.array([*((1.0 - share) / price for _, price in mixed), share]))
        evidence = np.array([*(self.evidence(members) for members, _ in mixed), self.counted])
        least = log_mixture(log_weights, evidence) - math.log(1.0 / delta)

        def compatible(members: tuple[int, ...]) -> bool:
            return self.fit(members, least)[1] >= least

        minimal: list[tuple[int, ...]] = []
        largest, solved = d, 0  # if the set of all is not compatible, none is
        if compatible(every):
            without = (tuple(i for i in every if i != j) for j in every)
            needed = {j for j, others in enumerate(without) if d > 1 and not compatible(others)}
            optional = [j for j in every if j not in needed]
            for m in range(0 if needed else 1, len(optional) + 1):
                solved += math.comb(len(optional), m)
                if solved > MOST_LIKELY:
                    break
                largest = len(needed) + m if m < len(optional) else d
                for added in combinations(optional, m):
                    members = tuple(sorted({*needed, *added}))
                    if not any(set(each) <= set(members) for each in minimal) and compatible(members):
                        minimal.append(members)
        fitted = {members: self.fit(members)[0] for members in minimal}
        minimal.sort(key=lambda members: (len(members), -fitted[members]))
        best = max([self.fit(every)[0], *fitted.values()])
        return CompatibleSets(minimal, [best - fitted[members] for members in minimal], best - least, largest)


def dependences(stack: Floats) -> tuple[int, list[Dependence]]:
    """Return the rank of the kernels, and every kernel beyond it as a combination of independent ones."""
    _, triangle, order = qr(stack, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    rank = int((size > _SAME * max(1.0, float(size[0]))).sum())
    basis = np.sort(order[:rank])
    found = []
    for j in sorted(order[rank:].tolist()):
        weights = np.linalg.lstsq(stack[:, basis], stack[:, j], rcond=None)[0]
        used = np.abs(weights) > 1e-7
        found.append(Dependence(j, tuple(basis[used].tolist()), tuple(weights[used].tolist())))
    return rank, found


def possible_rows(features: FeatureMap, known: Known, values: Floats) -> Floats:
    """Return the range-weighted rows [n, d] of every (h, s, a) for given values [H + 1, S] (M23)."""
    pairs = np.arange(known.states * known.actions)
    found = [weighted(features, known, pairs, values[h + 1]) for h in range(known.horizon)]
    return np.concatenate([x[spread > 0.0] for x, _, spread in found])


def directions(gram: Floats, rank: int, possible: Floats | None, allowance: float) -> Directions:
    """Sort the directions by what becomes of them; ``possible`` are the rows that could be met, None: any outcome."""
    d = gram.shape[0]
    basis = helmert(d).T
    eigen = np.linalg.eigvalsh(basis.T @ gram @ basis)
    seen = int((eigen > _UNSEEN * max(1.0, float(eigen.max(initial=0.0)))).sum())
    told = rank - 1
    if possible is not None:
        told = int(np.linalg.matrix_rank(possible @ basis, tol=1e-7)) if d > 1 and len(possible) else 0
    reachable = min(max(told, seen), rank - 1)
    excited = min(seen, reachable)
    resolved = min(int((eigen >= allowance).sum()), excited)
    return Directions(resolved, excited - resolved, reachable - excited, rank - 1 - reachable, d - rank)

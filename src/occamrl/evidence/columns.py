r"""Which columns a target needs: predictions from counts, and frequencies that cannot keep up.

A target y with K values is the next value of a column, the reward, or whether an episode ends.
Of c candidate columns a *parent set* D has at most k. That D is all that matters means: given
everything before, y depends on the columns of D alone, by a law that stays the same.

**Predictors.** A path is an order in which columns are added, :math:`D_1 \subset \dots \subset
D_l`. Its *back-off chain* with strength a predicts

.. math:: p_l = \frac{c_l(y) + a\,p_{l-1}(y)}{N_l + a},

:math:`c_l(y), N_l` counting earlier rows that agree on :math:`D_l`; :math:`p_0` is (c + 1/2)/(N +
K/2). The last level of a short path is repeated until there are k, because another level alone
may sharpen predictions. Beside chains with six strengths there are Dirichlet counts on D alone,
:math:`(c + \alpha)/(N + K\alpha)`, for five :math:`\alpha`. :math:`Q_D` is the logarithm of what
they have predicted on average, and Z that of a mixture over all paths: a size has the weight 1/(k +
1), its paths share that evenly. Paths that a search leaves out count as 0, so that Z is never too
large (B12).

**Exclusion.** D is excluded when its greatest likelihood, that of the table of frequencies, is
below Z - log(targets/delta). A column is *needed* if every set of at most k columns without it is
excluded, and if it is not *timed* (below), which only takes claims away. Adding columns never makes
the frequencies worse, so that sets of k columns are enough.

**Likely.** The Bayes factor of a column compares the mixture over paths that have it with that over
paths that have not, for which a search of its own is made. It is likely to be needed if the factor
exceeds c/delta, and if the best path is as much better than the same path with either of two
placebos: a shuffled copy of the column, and even parts of the log in its place. A column that only
the second can replace is *timed*: like a date, it tells when something changed. All this is a hint
of known strength and no test.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from occamrl.arrays import Floats, Ints

STRENGTHS = np.array([0.02, 0.2, 1.0, 4.0, 16.0, 64.0])  # a, in rows
_STARTS = (0.05, 0.5, 4.0, 64.0)  # alpha of Dirichlet counts, beside 1/K
_RADIX = 2**16  # codes that NumPy sorts in linear time
_PARTS = (4, 16)  # of the log, with which a column is compared
_MOST_PARTS = 256
_IDLE = 1.0  # nats by which a column at least predicts better than a shuffled copy of it
_WIDEST = 8  # paths that a search keeps
_KEPT_ROWS = 2 * 10**6  # rows times paths that are kept
_CHECKED_ROWS = 5 * 10**8  # rows times sets whose frequencies are taken

Path = tuple[int, ...]  # columns, in the order in which they are added


class Coded(NamedTuple):
    """A column in codes from 0."""

    codes: Ints
    size: int  # how many values there are


class Chain(NamedTuple):
    """A path on the data: the values of its columns together, and what its chains predicted."""

    context: Coded
    predicted: Floats  # [strengths, n] the probability of what came
    agreeing: Ints  # [n] earlier rows with these values
    same: Ints  # [n] those of them with what came
    length: int


class Weighed(NamedTuple):
    """What the rows say of one target."""

    mixture: float  # Z, as far as paths were searched
    best: Path  # the set with the largest weight after the data, of columns that beat shuffled ones
    compatible: list[Path]  # the sets of at most ``checked`` columns that are not excluded
    checked: int  # "if at most so many columns matter"
    needed: Path
    likely: Path
    timed: Path  # columns of ``best`` that would be likely, if parts of the log were not as good
    unlikely: Path  # columns that the Bayes factor speaks against as clearly
    factors: Floats  # the logarithm of the Bayes factor of each column
    paths: int  # how many were searched


def join_columns(context: Coded, column: Coded) -> Coded:
    """Return two columns as one; codes are made small again where there are too many."""
    codes = context.codes * column.size + column.codes
    size = context.size * column.size
    if size > _RADIX:
        values, codes = np.unique(codes, return_inverse=True)
        size = values.size
    return Coded(codes, size)


def count_earlier(column: Coded) -> Ints:
    """Return how many earlier rows have the value of each row."""
    codes = column.codes
    if column.size <= _RADIX:
        codes = codes.astype(np.uint16)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])
    first = np.flatnonzero(begins)
    within = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    earlier = np.empty_like(within)
    earlier[order] = within
    return earlier


def count_values(column: Coded) -> Ints:
    """Return how often values occur; those that never do may be missing."""
    if column.size <= max(_RADIX, 4 * column.codes.size):
        return np.bincount(column.codes, minlength=column.size)
    return np.unique(column.codes, return_counts=True)[1]


def even_parts(column: Coded) -> list[Coded]:
    """Return even parts of the log: few, many, as many as a column has values, or stretches."""
    rows = column.codes.size
    stretches = 1 + int(np.count_nonzero(np.diff(column.codes)))
    parts: list[Coded] = []
    for number in {*_PARTS, column.size, min(stretches, _MOST_PARTS)}:
        parts.append(Coded(np.arange(rows) * number // max(1, rows), number))
    return parts


class ColumnSearch:
    """A search for what one target needs: which paths were tried, and what they predicted."""

    def __init__(self, target: Coded, columns: Sequence[Coded], maximum: int) -> None:
        self.target = target
        self.columns = columns
        self.maximum = min(maximum, len(columns))
        self.rows = target.codes.size
        self.predicted: dict[Path, float] = {}  # Q of each path that was tried
        self.width = max(1, min(_WIDEST, _KEPT_ROWS // max(1, self.rows)))

    # Predictors -----------------------------------------------------------------------------------

    def root(self) -> Chain:
        """Return the path without columns."""
        K = self.target.size
        context = Coded(np.zeros(self.rows, np.int64), 1)
        same = count_earlier(self.target)
        agreeing = np.arange(self.rows)
        marginal = (same + 0.5) / (agreeing + 0.5 * K)
        predicted = np.broadcast_to(marginal, (STRENGTHS.size, self.rows))
        return Chain(context, predicted, agreeing, same, 0)

    def extend(self, chain: Chain, column: Coded) -> Chain:
        """Return a path with one more column."""
        context = join_columns(chain.context, column)
        agreeing = count_earlier(context)
        same = count_earlier(join_columns(context, self.target))
        a = STRENGTHS[:, None]
        predicted = (same + a * chain.predicted) / (agreeing + a)
        return Chain(context, predicted, agreeing, same, chain.length + 1)

    def quality(self, chain: Chain) -> float:
        """Return Q of a path: the logarithm of what its predictors predicted on average."""
        predicted = chain.predicted
        a = STRENGTHS[:, None]
        for _ in range(chain.length, self.maximum):
            predicted = (chain.same + a * predicted) / (chain.agreeing + a)
        chains = np.log(predicted).sum(axis=1)
        K = self.target.size
        agreeing = count_values(chain.context)
        agreeing = agreeing[agreeing > 0]
        same = count_values(join_columns(chain.context, self.target))
        same = same[same > 0]
        counts = []
        for alpha in (1.0 / K, *_STARTS):
            of_contexts = gammaln(K * alpha) - gammaln(agreeing + K * alpha)
            of_values = gammaln(same + alpha) - gammaln(alpha)
            counts.append(of_contexts.sum() + of_values.sum())
        every = np.append(chains, counts)
        return float(logsumexp(every) - math.log(every.size))

    def log_weight(self, path: Path) -> float:
        """Return the logarithm of the weight of a path before the data."""
        orders = math.perm(len(self.columns), len(path))
        return -math.log((self.maximum + 1) * orders)

    # Search ---------------------------------------------------------------------------------------

    def run(self, barred: Collection[int] = ()) -> None:
        """Grow paths without some columns: from the best of one length those of the next."""
        root = self.root()
        beam: dict[Path, Chain] = {(): root}
        self._try((), root)
        for length in range(1, self.maximum + 1):
            grown: list[Path] = []
            for path, chain in beam.items():
                for i in range(len(self.columns)):
                    if i in path or i in barred:
                        continue
                    longer = (*path, i)
                    if longer not in self.predicted:
                        self._try(longer, self.extend(chain, self.columns[i]))
                    grown.append(longer)
            if length == self.maximum:
                return
            kept: dict[frozenset[int], Path] = {}
            for path in sorted(grown, key=lambda path: -self.predicted[path]):
                kept.setdefault(frozenset(path), path)
            following: dict[Path, Chain] = {}
            for path in itertools.islice(kept.values(), self.width):
                following[path] = self.extend(beam[path[:-1]], self.columns[path[-1]])
            beam = following

    def _try(self, path: Path, chain: Chain) -> None:
        self.predicted[path] = self.quality(chain)

    def weight(self, path: Path) -> float:
        """Return the logarithm of the weight of a path after the data."""
        return self.predicted[path] + self.log_weight(path)

    def mixture(self, column: int | None = None, *, has: bool = True) -> float:
        """Return the logarithm of the weights of paths together: all, or those with a column."""
        weights = []
        for path in self.predicted:
            if column is None or (column in path) == has:
                weights.append(self.weight(path))
        return float(logsumexp(weights)) if weights else -math.inf

    def best_set(self, barred: Collection[int] = ()) -> Path:
        """Return the set, without some columns, whose paths have the largest weight together."""
        weights: dict[Path, list[float]] = {}
        for path in self.predicted:
            if not any(i in barred for i in path):
                weights.setdefault(tuple(sorted(path)), []).append(self.weight(path))
        return max(weights, key=lambda chosen: float(logsumexp(weights[chosen])))

    def gain_over(self, column: int, placebo: Coded) -> float:
        """Return by how much the best path with a column predicts better than with a placebo.

        In nats.
        """
        paths = [path for path in self.predicted if column in path]
        path = max(paths, key=self.weight)
        chain = self.root()
        for i in path:
            chain = self.extend(chain, placebo if i == column else self.columns[i])
        return self.predicted[path] - self.quality(chain)

    # Exclusion ------------------------------------------------------------------------------------

    def likelihood(self, chosen: Sequence[int]) -> float:
        """Return the greatest log-likelihood of a set: that of its table of frequencies."""
        context = Coded(np.zeros(self.rows, np.int64), 1)
        for i in chosen:
            context = join_columns(context, self.columns[i])
        agreeing = count_values(context)
        same = count_values(join_columns(context, self.target))
        return float(xlogy(same, same).sum() - xlogy(agreeing, agreeing).sum())

    def most_checked(self) -> int:
        """Return the largest size of which all sets can be checked."""
        size = self.maximum
        while size > 1 and math.comb(len(self.columns), size) * self.rows > _CHECKED_ROWS:
            size -= 1
        return size

    def compatible(self, size: int, least: float) -> list[Path]:
        """Return the sets of at most ``size`` columns whose likelihood is not below ``least``."""
        number = len(self.columns)
        kept: list[Path] = []
        larger: set[Path] = set()
        for length in range(size, -1, -1):
            same: set[Path] = set()
            for chosen in itertools.combinations(range(number), length):
                # what is not excluded is not excluded with one column more either
                if length < size:
                    others = (i for i in range(number) if i not in chosen)
                    if any(tuple(sorted((*chosen, i))) not in larger for i in others):
                        continue
                if self.likelihood(chosen) >= least:
                    same.add(chosen)
            kept += sorted(same)
            larger = same
        return kept[::-1]


def weigh_columns(
    target: Coded,
    columns: Sequence[Coded],
    *,
    maximum: int,
    delta: float,
    targets: int,
    draw: np.random.Generator,
    clocks: Collection[int] = (),
) -> Weighed:
    """Find out which columns a target needs, of all that are there; rows are in order of time.

    ``clocks`` are the columns that are parts of the log themselves.

    >>> import numpy as np
    >>> from occamrl.evidence.columns import Coded, weigh_columns
    >>> draw = np.random.default_rng(0)
    >>> columns = [Coded(draw.integers(3, size=400), 3) for _ in range(4)]
    >>> target = Coded((columns[2].codes + (draw.random(400) < 0.1)) % 3, 3)
    >>> weigh_columns(target, columns, maximum=2, delta=0.05, targets=1, draw=draw).needed
    (2,)
    """
    search = ColumnSearch(target, columns, maximum)
    search.run()
    for column in search.best_set():
        search.run(barred=(column,))
    shuffled: dict[int, float] = {}
    for column, (codes, size) in enumerate(columns):
        if any(column in path for path in search.predicted):
            shuffled[column] = search.gain_over(column, Coded(draw.permutation(codes), size))
    # one more level of a chain may predict better whatever its column says
    idle = [column for column, gain in shuffled.items() if gain <= _IDLE]
    best = search.best_set(idle)
    limit = math.log(max(1, len(columns)) / delta)
    factors = np.zeros(len(columns))
    for column in range(len(columns)):
        factors[column] = search.mixture(column) - search.mixture(column, has=False)
    likely: list[int] = []
    timed: list[int] = []
    for column in best:
        if factors[column] <= limit or shuffled[column] <= limit:
            continue
        gains = [search.gain_over(column, parts) for parts in even_parts(columns[column])]
        if column in clocks or min(gains) > limit:
            likely.append(column)
        else:
            timed.append(column)
    mixture = search.mixture()
    checked = search.most_checked()
    compatible = search.compatible(checked, mixture - math.log(targets / delta))
    needed: list[int] = []
    if compatible:
        # if all sets are excluded, something else matters, and nothing is said of columns
        needed = [i for i in range(len(columns)) if all(i in chosen for chosen in compatible)]
    # where the law changes, what tells the time looks needed: it is not called that
    needed = [i for i in needed if i not in timed]
    return Weighed(
        mixture=mixture,
        best=best,
        compatible=compatible,
        checked=checked,
        needed=tuple(needed),
        likely=tuple(likely),
        timed=tuple(timed),
        unlikely=tuple(np.flatnonzero(factors < -limit).tolist()),
        factors=factors,
        paths=len(search.predicted),
    )

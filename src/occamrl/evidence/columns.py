r"""Which columns a target needs: predictions from counts, and frequencies that cannot keep up.

A target y is the next value of a column, the reward, or whether an episode ends. Of c candidate
columns a *parent set* D has at most k. That D is all that matters means: given everything before, y
depends on the columns of D alone, by a law that stays the same.

**Predictors.** A path is a sequence of columns that are added one after the other, :math:`D_1
\subseteq \dots \subseteq D_l`; one may come again, because another level alone may sharpen
predictions. Its *back-off chain* with strength a predicts

.. math:: p_l = \frac{c_l(y) + a\,p_{l-1}(y)}{N_l + a},
    \quad p_0 = \frac{c_0(y) + 1/2}{N_0 + (m + 1)/2},

:math:`c_l(y), N_l` counting earlier rows that agree on :math:`D_l`, m the values of y met so far. A
value that was not met is predicted as such, *new*, with c = 0: which values there are need not be
known. Beside chains with six strengths there are counts on D alone, :math:`(c + \alpha)/(N + (m +
1)\alpha)`, for four :math:`\alpha`. :math:`Q_D` is the logarithm of what they have predicted on
average, and Z that of a mixture over all paths: a length up to k + 1 has the weight 1/(k + 2), its
paths share that evenly. Paths that a search leaves out count as 0, so that Z is never too large
(B12).

**Exclusion.** D is excluded when its greatest likelihood, that of the table of frequencies, is
below Z - log(targets/delta); of rows with new values it is 1. A column is *needed* if every set of
at most k columns without it is excluded. Adding columns never makes the frequencies worse, so that
sets of k columns are enough. Where it is likely that more than k columns matter, or that the law
changed in the course of the log, this says nothing, and no column is called needed.

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
from scipy.special import logsumexp, xlogy

from occamrl.arrays import Floats, Ints

STRENGTHS = np.array([0.02, 0.2, 1.0, 4.0, 16.0, 64.0])  # a, in rows
ALPHAS = (0.05, 0.5, 4.0, 64.0)
_RADIX = 2**16  # codes that NumPy sorts in linear time
_FACTORS = 8  # probabilities, each at least 1e-38, whose product is a normal number
_PARTS = (4, 16)  # of the log, with which a column is compared
_MOST_PARTS = 256
_WIDEST = 8  # paths that a search keeps
_KEPT_ROWS = 2 * 10**6  # rows times paths that are kept
_CHECKED_ROWS = 5 * 10**8  # rows times sets whose frequencies are taken

Path = tuple[int, ...]  # columns, in the order in which they are added, or a set of them


class Coded(NamedTuple):
    """A column in codes from 0."""

    codes: Ints
    size: int  # how many values there may be

    def take(self, rows: slice | Ints) -> Coded:
        """Return some rows of it."""
        return Coded(self.codes[rows], self.size)


class Chain(NamedTuple):
    """A path on the data: the values of its columns together, and what its chains predicted."""

    context: Coded
    predicted: Floats  # [strengths, n] the probability of what came
    agreeing: Ints  # [n] earlier rows with these values
    same: Ints  # [n] those of them with what came


class Weighed(NamedTuple):
    """What the rows say of one target."""

    mixture: float  # Z, as far as paths were searched
    best: Path  # the set with the largest weight after the data
    compatible: list[Path]  # the sets of at most ``checked`` columns that are not excluded
    needed: Path
    likely: Path  # those that are needed included
    timed: Path  # columns of ``best`` that would be likely, if parts of the log were not as good
    unlikely: Path  # columns that the Bayes factor speaks against as clearly
    told: bool  # whether columns that are likely tell the target in every row


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


def join_all(columns: Sequence[Coded], rows: int) -> Coded:
    """Return any number of columns as one."""
    context = Coded(np.zeros(rows, np.int64), 1)
    for column in columns:
        context = join_columns(context, column)
    return context


def tells(column: Coded, target: Coded) -> bool:
    """Return whether a column tells a target in every row."""
    both = count_values(join_columns(column, target))
    return int(np.count_nonzero(both)) == int(np.count_nonzero(count_values(column)))


def sum_of_logs(probabilities: Floats) -> float:
    """Return the sum of logarithms: few of them, of products that cannot vanish."""
    whole = probabilities.size - probabilities.size % _FACTORS
    products = probabilities[:whole].reshape(_FACTORS, -1).prod(axis=0)
    return float(np.log(products).sum() + np.log(probabilities[whole:]).sum())


def sets_checked(columns: int, rows: int, maximum: int) -> int:
    """Return up to which size, at most ``maximum``, all sets of columns can be checked."""
    size = min(maximum, columns)
    while size > 1 and math.comb(columns, size) * rows > _CHECKED_ROWS:
        size -= 1
    return size


class ColumnSearch:
    """A search for what one target needs: which paths were tried, and what they predicted."""

    def __init__(self, target: Coded, columns: Sequence[Coded], longest: int) -> None:
        self.target = target
        self.columns = columns
        self.longest = min(longest, len(columns))
        self.rows = target.codes.size
        self.predicted: dict[Path, float] = {}  # Q of each path that was tried
        self.width = max(1, min(_WIDEST, _KEPT_ROWS // max(1, self.rows)))
        self._earlier = count_earlier(target)
        new = self._earlier == 0
        self._met = np.cumsum(new) - new  # [n] values of the target before each row
        self._values = int(np.count_nonzero(new))
        # the first row before which all values were met
        self._settled = int(np.flatnonzero(new).max(initial=-1)) + 1
        known = np.flatnonzero(~new)
        self._known_target = target.take(known)  # where its value was met before
        self._known_columns = [column.take(known) for column in columns]

    # Predictors -----------------------------------------------------------------------------------

    def root(self) -> Chain:
        """Return the path without columns."""
        context = Coded(np.zeros(self.rows, np.int64), 1)
        agreeing = np.arange(self.rows)
        marginal = (self._earlier + 0.5) / (agreeing + 0.5 * (self._met + 1))
        predicted = np.broadcast_to(marginal, (STRENGTHS.size, self.rows))
        return Chain(context, predicted, agreeing, self._earlier)

    def extend(self, chain: Chain, column: Coded) -> Chain:
        """Return a path with one more column."""
        context = join_columns(chain.context, column)
        agreeing = count_earlier(context)
        same = count_earlier(join_columns(context, self.target))
        predicted = np.empty((STRENGTHS.size, self.rows))
        with_same = same.astype(np.float64)
        among = agreeing.astype(np.float64)
        for i, a in enumerate(STRENGTHS):
            np.multiply(chain.predicted[i], a, out=predicted[i])
            predicted[i] += with_same
            predicted[i] /= among + a
        return Chain(context, predicted, agreeing, same)

    def quality(self, chain: Chain) -> float:
        """Return Q of a path: the logarithm of what its predictors predicted on average."""
        logs = [sum_of_logs(predicted) for predicted in chain.predicted]
        # most rows have one of a few counts, and all values of the target were met before them
        early = slice(0, self._settled)
        same = np.bincount(chain.same)
        agreeing = np.bincount(chain.agreeing[self._settled :], minlength=1)
        for alpha in ALPHAS:
            counted = same @ np.log(np.arange(same.size) + alpha)
            counted -= np.log(chain.agreeing[early] + alpha * (self._met[early] + 1)).sum()
            counted -= agreeing @ np.log(np.arange(agreeing.size) + alpha * (self._values + 1))
            logs.append(float(counted))
        return float(logsumexp(logs) - math.log(len(logs)))

    def log_weight(self, path: Path) -> float:
        """Return the logarithm of the weight of a path before the data."""
        return -math.log((self.longest + 1) * len(self.columns) ** len(path))

    # Search ---------------------------------------------------------------------------------------

    def run(self, barred: Collection[int] = ()) -> None:
        """Grow paths without some columns: from the best of one length those of the next."""
        root = self.root()
        beam: dict[Path, Chain] = {(): root}
        self.predicted[()] = self.quality(root)
        for length in range(1, self.longest + 1):
            grown: list[Path] = []
            for path, chain in beam.items():
                for i in range(len(self.columns)):
                    longer = (*path, i)
                    if i in barred:
                        continue
                    if longer not in self.predicted:
                        self.predicted[longer] = self.quality(self.extend(chain, self.columns[i]))
                    grown.append(longer)
            if length == self.longest:
                return
            kept: dict[Path, Path] = {}
            for path in sorted(grown, key=lambda path: -self.predicted[path]):
                kept.setdefault(tuple(sorted(path)), path)
            following: dict[Path, Chain] = {}
            for path in itertools.islice(kept.values(), self.width):
                following[path] = self.extend(beam[path[:-1]], self.columns[path[-1]])
            beam = following

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

    def best_set(self) -> Path:
        """Return the set whose paths have the largest weight together."""
        weights: dict[Path, list[float]] = {}
        for path in self.predicted:
            weights.setdefault(tuple(sorted(set(path))), []).append(self.weight(path))
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
        """Return the greatest log-likelihood of a set: that of its table of frequencies.

        Of rows whose value was met before: a law may give all of its weight to what is new.
        """
        rows = self._known_target.codes.size
        context = join_all([self._known_columns[i] for i in chosen], rows)
        agreeing = count_values(context)
        same = count_values(join_columns(context, self._known_target))
        return float(xlogy(same, same).sum() - xlogy(agreeing, agreeing).sum())

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
    checked: int,
    delta: float,
    targets: int,
    draw: np.random.Generator,
    clocks: Collection[int] = (),
) -> Weighed:
    """Find out which columns a target needs, of all that are there; rows are in order of time.

    Sets of at most ``checked`` columns are excluded or not; ``clocks`` are the columns that are
    parts of the log themselves.

    >>> import numpy as np
    >>> from occamrl.evidence.columns import Coded, weigh_columns
    >>> draw = np.random.default_rng(0)
    >>> columns = [Coded(draw.integers(3, size=400), 3) for _ in range(4)]
    >>> target = Coded((columns[2].codes + (draw.random(400) < 0.1)) % 3, 3)
    >>> weigh_columns(target, columns, checked=2, delta=0.05, targets=1, draw=draw).needed
    (2,)
    """
    search = ColumnSearch(target, columns, checked + 1)
    search.run()
    for column in search.best_set():
        search.run(barred=(column,))
    best = search.best_set()
    every = range(len(columns))
    factors = [search.mixture(i) - search.mixture(i, has=False) for i in every]
    limit = math.log(max(1, len(columns)) / delta)
    likely: list[int] = []
    timed: list[int] = []
    for column in best:
        codes, values = columns[column]
        shuffled = Coded(draw.permutation(codes), values)
        if factors[column] <= limit or search.gain_over(column, shuffled) <= limit:
            continue
        gains = [search.gain_over(column, parts) for parts in even_parts(columns[column])]
        if column in clocks or min(gains) > limit:
            likely.append(column)
        else:
            timed.append(column)
    told = bool(likely) and tells(join_all([columns[i] for i in likely], search.rows), target)
    mixture = search.mixture()
    compatible = search.compatible(checked, mixture - math.log(targets / delta))
    # where more may matter than a path has room for, columns stand in for each other
    crowded = len(likely) > checked or not compatible
    unlikely: list[int] = []
    for column in every:
        # where others leave no error nothing can speak against it
        needless = told and column not in likely
        if needless or (not crowded and factors[column] < -limit):
            unlikely.append(column)
    changes = bool(timed) or any(column in clocks for column in likely)
    needed: list[int] = []
    # If all sets are excluded something else matters, and nothing is said of columns. Nor where
    # what a proof takes for granted is unlikely.
    if compatible and not changes and len(likely) <= checked:
        needed = [i for i in every if all(i in chosen for chosen in compatible)]
    return Weighed(
        mixture=mixture,
        best=best,
        compatible=compatible,
        needed=tuple(needed),
        likely=tuple({*likely, *needed}),
        timed=tuple(timed),
        unlikely=tuple(unlikely),
        told=told,
    )

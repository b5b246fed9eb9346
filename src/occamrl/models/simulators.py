r"""Candidate simulators of one system: read in any form, used as a mixture or as a ladder.

A simulator is a kernel (dense or sparse), a problem, a Gymnasium environment with a table, or a function
``simulate(s, a, rng) -> s'`` whose kernel is estimated by Monte Carlo.

**Estimates** (section 3 of the mathematics). With N draws at (s, a) and the frequencies :math:`\hat p`, the total
variation distance to the true law is, with probability 1 - delta,

.. math:: \sup_B |\hat p(B) - p(B)| \le e = \sum_{s'} \sqrt{\hat p(s')/N} + 3\sqrt{\log(2/\delta)/(2N)}

(Cohen, Kontorovich and Wolfer, "Learning discrete distributions with infinite support", NeurIPS 2020). It holds for all
events at once, which is what is needed: value functions are planned with the estimate, so they are not independent of
it. A target (W - c)/R lies in [-1/2, 1/2] *if its range R is taken over every state that may follow*, drawn or not; its
mean under the estimate is then wrong by at most e. So the outcomes of the features are all that ``support`` allows.
With B the slack of the exact case and E = n e^2 over the n rows to come, the slack becomes
:math:`(\sqrt B + \sqrt E)^2` (``widen_mixture``), and plans are optimistic up to e times the range of the value at each
step, at most e H (H + 1)/2 an episode: the price of planning with an estimate, whoever plans.

**Ladders** have a grid of weights besides, and the truth may lie between its points. Both errors are the reach of a
cover (:mod:`occamrl.models.finite`): the nearest member is within :func:`grid_reach` + 2e of the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from occamrl.errors import (
    FamilyError,
    ParameterError,
    ProbabilityError,
    ShapeError,
    as_flags,
    require_integer,
    require_number,
    sum_to_one,
)
from occamrl.models.features import FeatureMap, layout_of, pair_of_outcome, read_kernels
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.problems.tables import has_table, smallest_range, table_of
from occamrl.protocols import Floats
from occamrl.seeding import Step, stream

Simulate = Callable[[int, int, np.random.Generator], int]  # simulate(s, a, rng) -> s'

_MOST_DRAWS = 10**9
_MOST_MIXTURES = 200_000
_MOST_TRANSITIONS = 2 * 10**7  # that may happen, unless told which
_ROUNDING = 1e-6  # of probabilities


def estimate_kernel(
    simulate: Simulate, *, states: int, actions: int, draws: int, seed: int, path: tuple[Step, ...] = ()
) -> Any:
    """Return the frequencies of ``draws`` calls at every (s, a), as a sparse matrix (S*A, S).

    Each (s, a) has a generator of its own, found by its address: the estimate does not depend on any order.
    """
    pairs = states * actions
    if draws * pairs > _MOST_DRAWS:
        raise ParameterError("draws", got=draws, expected=f"at most {_MOST_DRAWS // pairs:,} for {pairs:,} pairs")
    counts = sp.lil_array((pairs, states))
    for pair in range(pairs):
        s, a = divmod(pair, actions)
        rng = stream(seed, "simulator", *path, s, a)
        try:
            drawn = [simulate(s, a, rng) for _ in range(draws)]
        except Exception as error:  # of the user's function, which may raise anything
            got = f"{type(error).__name__}: {error}"
            raise ProbabilityError("simulate", index=(s, a), got=got, expected="a next state") from error
        found = np.bincount([_next(each, s, a, states) for each in drawn], minlength=states)
        counts[pair, found > 0] = found[found > 0] / draws
    return sp.csr_array(counts)


def _next(value: Any, s: int, a: int, states: int) -> int:
    try:
        s2 = require_integer("next state", value, 0)
    except ParameterError:
        s2 = states
    if s2 >= states:
        expected = f"a next state in 0..{states - 1}"
        raise ProbabilityError("simulate", index=(s, a), got=repr(value), expected=expected)
    return s2


def variation_errors(estimate: Any, draws: int, delta: float) -> Floats:
    """Return a bound on the total variation error of every row of an estimate; each holds with probability 1 - delta.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> round(float(variation_errors(sp.csr_array([[0.5, 0.5]]), 10_000, 0.1)[0]), 4)  # sqrt(2/N) + 3 sqrt(log 20/2N)
    0.0509
    """
    roots = np.asarray(np.sqrt(estimate).sum(axis=1), dtype=np.float64).ravel()
    bound: Floats = roots / math.sqrt(draws) + 3.0 * math.sqrt(math.log(2.0 / delta) / (2.0 * draws))
    return np.minimum(bound, 1.0)


def grid_reach(features: FeatureMap, most: int, grid: int) -> float:
    r"""Return how far a mixture of up to m = ``most`` kernels may be from one with weights in multiples of 1/``grid``.

    Scale weights w to w grid, keep the whole parts, and round the r largest of the m fractions up, r being their sum.
    What is rounded up and what is rounded down is the same, at most (m - r) r/m, since those rounded down have a mean
    fraction of at most r/m. Weight moved from one kernel to another changes P by at most the distance D of the two
    farthest kernels, in sup over (s, a) of the sum over s' of abs(P_i - P_j). So the reach is
    :math:`D \max_r r (m - r)/(m\, grid)`.
    """
    kernels, start = features.matrix.toarray(), features.layout.outcomes.start[:-1]
    apart = (np.add.reduceat(np.abs(kernels[:, j + 1 :] - kernels[:, [j]]), start) for j in range(kernels.shape[1] - 1))
    return (most // 2) * (most - most // 2) / (most * grid) * max((float(gaps.max()) for gaps in apart), default=0.0)


class Simulators:
    """Candidate models of the same system, with names.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
    >>> simulators = orl.Simulators(list(kernels), names=["calm", "rain", "wind", "storm"])
    >>> agent = orl.UCRLVTRLin(features=simulators.features, norm_bound=1.0)

    Parameters
    ----------
    candidates : sequence
        Each a kernel [S, A, S] or scipy.sparse (S*A, S), a FiniteMDP or a problem, a Gymnasium environment with a table
        ``env.unwrapped.P``, or a function ``simulate(s, a, rng) -> s'``.
    names : sequence of str, optional
        By default "1", "2", ...
    states, actions : int, optional
        Needed when all candidates are functions.
    draws : int
        Calls of a function per (s, a).
    seed : int
        Of these calls.
    support : array [S, A, S] of bool, optional
        The transitions that such functions may make; by default every one. What is not drawn may still happen, and
        targets are weighed by their range over all of them (M23): the fewer, the sharper.

    Attributes
    ----------
    features : FeatureMap
        One coordinate per simulator: P_theta is their mixture.
    """

    def __init__(
        self,
        candidates: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        states: int | None = None,
        actions: int | None = None,
        draws: int = 10_000,
        seed: int = 0,
        support: ArrayLike | None = None,
    ) -> None:
        given = list(candidates) if isinstance(candidates, Iterable) and getattr(candidates, "ndim", 1) != 0 else []
        if not given:
            raise FamilyError("candidates", got=repr(candidates), expected="a list of at least one simulator")
        if names is not None and not isinstance(names, (list, tuple)):
            raise FamilyError("names", got=f"{names!r:.100}", expected=f"a list of {len(given)} names")
        self.names = tuple(str(j + 1) for j in range(len(given))) if names is None else tuple(map(str, names))
        if len(self.names) != len(given) or len(set(self.names)) != len(given):
            raise FamilyError("names", got=list(self.names), expected=f"{len(given)} different names")
        self.draws = require_integer("draws", draws, 1)
        shared = smallest_range([each for each in given if has_table(each)])
        read = [_read(j, candidate, shared) for j, candidate in enumerate(given)]
        sizes = {_size(kernel) for kernel in read if kernel is not None}
        if states is not None and actions is not None:
            sizes |= {(require_integer("states", states, 1), require_integer("actions", actions, 1))}
        if len(sizes) != 1:
            got = "functions only" if not sizes else " and ".join(f"S={s}, A={a}" for s, a in sorted(sizes))
            raise ShapeError("candidates", got=got, expected="one S and A, given by a kernel or by states and actions")
        self.states, self.actions = next(iter(sizes))
        self.estimated = tuple(j for j, kernel in enumerate(read) if kernel is None)
        self._support = self._possible(support) if self.estimated else np.zeros((0, 0), dtype=bool)
        for j in self.estimated:
            size = {"states": self.states, "actions": self.actions}
            read[j] = estimate_kernel(given[j], **size, draws=self.draws, seed=seed, path=(j,))
            pair, after = read[j].nonzero()
            beyond = np.flatnonzero(~self._support[pair, after])
            if beyond.size:
                at, expected = divmod(int(pair[beyond[0]]), self.actions), "one that the support allows"
                raise ProbabilityError("simulate", index=at, got=f"next state {after[beyond[0]]}", expected=expected)
        self._kernels = read

    def _possible(self, support: ArrayLike | None) -> NDArray[np.bool_]:
        """Return which transitions (S*A, S) may happen."""
        shape = (self.states, self.actions, self.states)
        if support is None and math.prod(shape) > _MOST_TRANSITIONS:
            got = f"{math.prod(shape):,} transitions of functions"
            raise ParameterError("support", got=got, expected=f"the possible ones, where above {_MOST_TRANSITIONS:,}")
        possible = np.ones(shape, dtype=bool) if support is None else as_flags("support", support, shape)
        return possible.reshape(-1, self.states)

    @cached_property
    def features(self) -> FeatureMap:
        """The mixture: coordinate j is simulator j."""
        problems = [kernel for kernel in self._kernels if isinstance(kernel, FiniteMDP)]
        if len(problems) == len(self) and any(mdp.known.transition_rewards is not None for mdp in problems):
            return FeatureMap.of_simulators(problems)
        outcomes, matrix, _ = read_kernels("candidates", [_flat(kernel) for kernel in self._kernels], self._support)
        dense = self.states * self.actions * self.states * len(self) <= 2**20
        matrix = matrix.toarray() if dense and not isinstance(matrix, np.ndarray) else matrix
        return FeatureMap._make(layout_of(outcomes, matrix), self.states, len(self))

    def __len__(self) -> int:
        return len(self.names)

    def error(self, delta: float) -> float:
        """Return e: with probability 1 - delta no row of any estimate is farther than this from the truth (in TV)."""
        require_number("delta", delta, 0.0, 1.0, open_low=True)
        if not self.estimated:
            return 0.0
        share = delta / (len(self.estimated) * self.states * self.actions)
        return max(float(variation_errors(self._kernels[j], self.draws, share).max()) for j in self.estimated)

    def widen_mixture(
        self, *, episodes: int, horizon: int, delta: float = 0.05, norm_bound: float = 1.0, regularization: float = 1.0
    ) -> dict[str, Any]:
        """Return arguments for :class:`UCRLVTRLin` that carry the estimates' error over that many episodes.

        The sharp radius becomes (1/c)((1/4)(logdet(Sigma/lambda) + 2 log(2/delta)) + lambda b^2) + n e^2/(1 - c), the
        other half of delta paying for e. For a truth that is a mixture: with weights below 0, errors add up to more.

        Examples
        --------
        ``UCRLVTRLin(features=sims.features, **sims.widen_mixture(episodes=1000, horizon=20))``
        """
        require_number("delta", delta, 0.0, 1.0, open_low=True)
        require_number("norm_bound", norm_bound, 1e-100, 1e100)
        require_number("regularization", regularization, 1e-100, 1e100)
        common = {"norm_bound": norm_bound, "regularization": regularization}
        rows = require_integer("episodes", episodes, 1) * require_integer("horizon", horizon, 1)
        error = self.error(delta / 2.0)
        if error == 0.0:
            return {**common, "delta": delta}
        d = len(self)
        typical = 0.25 * (d * math.log1p(rows / (4.0 * d * regularization)) + 2.0 * math.log(2.0 / delta))
        typical += regularization * norm_bound**2
        c = math.sqrt(typical) / (math.sqrt(typical) + error * math.sqrt(rows))
        slack = 4.0 * c * rows * error**2 / (1.0 - c)
        return {**common, "delta": delta / 2.0, "scale": 1.0 / math.sqrt(c), "event": (regularization, slack)}

    def ladder(self, *, most: int = 2, grid: int = 10, delta: float = 0.025, reach: float | None = None) -> Ladder:
        """Return the ladder whose class m holds the mixtures of at most m simulators, with weights that are multiples.

        The truth may be any such mixture: how far it may be from the nearest member is the reach of each class, which
        learners and tests take into account. The price is that kernels nearer to each other than that are not told
        apart; for any weights without a price, learn the mixture itself (:class:`UCRLVTRLin`, :func:`supports`).

        Parameters
        ----------
        most : int
            The number of classes: the most simulators in a mixture.
        grid : int
            Weights are multiples of 1/grid.
        delta : float
            Of estimated simulators: the reach holds with probability 1 - delta, beside the level of the learner.
        reach : float, optional
            Of all classes, instead. 0: the truth is a member, its weights on the grid and no simulator an estimate.
        """
        d = len(self)
        require_integer("most", most, 1)
        require_integer("grid", grid, most)
        if most > d:
            raise ParameterError("most", got=most, expected=f"at most {d}, the number of simulators")
        added = [math.comb(d, m) * math.comb(grid - 1, m - 1) for m in range(1, most + 1)]
        if sum(added) > _MOST_MIXTURES or grid > _MOST_MIXTURES:
            raise ParameterError("grid", got=f"{sum(added):,} mixtures", expected=f"at most {_MOST_MIXTURES:,}")
        rows = [row for m in range(1, most + 1) for row in _mixtures(d, m, grid)]
        bound = 2.0 * self.error(delta)
        reaches = [bound + grid_reach(self.features, m, grid) for m in range(1, most + 1)]
        if reach is not None:
            reaches = [require_number("reach", reach, 0.0, 2.0)] * most
        return Ladder.of_prefixes(np.array(rows), self.features, np.cumsum(added).tolist(), reaches)

    def __repr__(self) -> str:
        about = f", {len(self.estimated)} estimated from {self.draws:,} draws" if self.estimated else ""
        return f"Simulators({len(self)}, S={self.states}, A={self.actions}{about})"


def _mixtures(d: int, m: int, grid: int) -> list[Floats]:
    """Return the weights with exactly m of d non-zero, multiples of 1/grid."""
    found = []
    for members in combinations(range(d), m):
        for cuts in combinations(range(1, grid), m - 1):
            weights = np.zeros(d)
            weights[list(members)] = np.diff([0, *cuts, grid]) / grid
            found.append(weights)
    return found


def _read(j: int, candidate: Any, reward_range: tuple[float, float]) -> Any:
    """Return a FiniteMDP or a sparse kernel; None for a function."""
    if hasattr(candidate, "unwrapped"):  # a Gymnasium environment
        return table_of(candidate, horizon=1, reward_range=reward_range).mdp
    if isinstance(candidate, FiniteMDP) or hasattr(candidate, "mdp"):
        return as_mdp(candidate)
    if hasattr(candidate, "tocsr"):
        return _require_kernel(j, sp.csr_array(candidate.tocsr()))
    if callable(candidate):
        return None
    try:
        dense = np.asarray(candidate, dtype=np.float64)
    except (TypeError, ValueError):
        dense = np.zeros(0)
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2]:
        expected = "a kernel [S, A, S], a problem, an environment with a table, or simulate(s, a, rng)"
        raise ShapeError("candidates", index=(j,), got=type(candidate).__name__, expected=expected)
    return _require_kernel(j, sp.csr_array(dense.reshape(-1, dense.shape[2])))


def _require_kernel(j: int, kernel: Any) -> Any:
    """Refuse what is no kernel (S*A, S): an estimate or a mixture of it would be none either."""
    rows, states = kernel.shape if kernel.ndim == 2 else (0, 0)
    if states == 0 or rows == 0 or rows % states:
        raise ShapeError("candidates", index=(j,), got=f"shape {kernel.shape}", expected="(S*A, S)")
    sums, least = np.asarray(kernel.sum(axis=1)).ravel(), kernel.min(axis=1).toarray().ravel()
    fine = (np.abs(sums - 1.0) <= _ROUNDING) & (least >= -_ROUNDING)  # false where not a number
    if not fine.all():
        pair = int(np.argmin(fine))
        got = f"a probability of {least[pair]:g}" if least[pair] < -_ROUNDING else f"a sum of {sums[pair]:g}"
        at = (j, *divmod(pair, rows // states))
        raise ProbabilityError("candidates", index=at, got=got, expected=sum_to_one(sums[pair]))
    return kernel


def _size(kernel: Any) -> tuple[int, int]:
    if isinstance(kernel, FiniteMDP):
        return kernel.states, kernel.actions
    return int(kernel.shape[1]), int(kernel.shape[0] // kernel.shape[1])


def _flat(kernel: Any) -> Any:
    """Return a kernel as a sparse matrix (S*A, S)."""
    if not isinstance(kernel, FiniteMDP):
        return kernel
    outcomes, shape = kernel.truth.outcomes, (kernel.states * kernel.actions, kernel.states)
    cells = (pair_of_outcome(outcomes), outcomes.next_state)
    return sp.csr_array((kernel.truth.probability[0], cells), shape=shape)

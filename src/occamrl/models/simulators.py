r"""Candidate simulators of one system: read in any form, used as a mixture or as a ladder.

A simulator is a kernel (dense or sparse), or a function ``simulate(s, a, rng) -> s'`` whose kernel
is estimated by Monte Carlo.

**Estimates.** With N draws at (s, a) and the frequencies :math:`\hat p`, the total variation
distance to the true law is, with probability 1 - delta,

.. math:: \sup_B |\hat p(B) - p(B)| \le e
          = \sum_{s'} \sqrt{\hat p(s')/N} + 3\sqrt{\log(2/\delta)/(2N)}

(Cohen, Kontorovich and Wolfer, "Learning discrete distributions with infinite support", NeurIPS
2020). It holds for all events at once, which is what is needed: value functions are planned with
the estimate, so they are not independent of it. Rows are then biased by at most e *if their range
is taken over every state that may follow*, drawn or not: so the outcomes of the features are all
that ``support`` allows. With beta the squared radius of the exact case and n rows to come, it
becomes :math:`\beta/c + n e^2/(1 - c)` for any c in (0, 1): the price is n e^2, not n e. Plans are
optimistic up to e times the range of the value at each step.

**Ladders** also have a grid of weights, and the truth may lie between its points. The cover radius
allows for both errors (:mod:`occamrl.models.families`): the nearest member is within
:func:`grid_reach` + 2e of the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from occamrl.arrays import Bools
from occamrl.errors import (
    FamilyError,
    ParameterError,
    ProbabilityError,
    ShapeError,
    as_flags,
    require_delta,
    require_integer,
    require_number,
)
from occamrl.models.families import FiniteFamily, require_kernels
from occamrl.models.features import FeatureMap, as_dense, as_kernel, read_kernels
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import KernelLike, first_true
from occamrl.protocols import Floats

Simulate = Callable[[int, int, np.random.Generator], int]  # simulate(s, a, rng) -> s'

_MOST_MIXTURES = 200_000


def estimate_kernel(
    simulate: Simulate, support: Bools, *, draws: int, seed: int, which: int = 0
) -> sp.csr_array:
    """Return the frequencies of ``draws`` calls at every (s, a), as a sparse matrix (S*A, S).

    Each (s, a) has a generator of its own, found by its address: the estimate does not depend on
    any order. A draw that the ``support`` [S, A, S] excludes is refused.
    """
    states, actions, _ = support.shape
    frequencies = sp.lil_array((states * actions, states))
    for pair in range(states * actions):
        s, a = divmod(pair, actions)
        rng = np.random.default_rng([seed, which, pair])
        counts = np.zeros(states)
        for _ in range(draws):
            next_state = simulate(s, a, rng)
            require_integer(
                "simulate", next_state, 0, ProbabilityError, index=(s, a), maximum=states - 1
            )
            counts[next_state] += 1.0
        wrong = first_true((counts > 0) & ~support[s, a])
        if wrong is not None:
            raise ProbabilityError(
                "simulate",
                index=(s, a),
                got=f"next state {wrong}",
                expected="one that the support allows",
            )
        frequencies[pair, counts > 0] = counts[counts > 0] / draws
    return sp.csr_array(frequencies)


def variation_errors(estimate: sp.csr_array, draws: int, delta: float) -> Floats:
    """Return a bound on the total variation error of every row of an estimate.

    Each holds with probability 1 - delta.

    >>> import scipy.sparse as sp
    >>> estimate = sp.csr_array([[0.5, 0.5]])
    >>> round(float(variation_errors(estimate, 10_000, 0.1)[0]), 4)  # sqrt(2/N) + 3 sqrt(log 20/2N)
    0.0509
    """
    roots = np.asarray(estimate.sqrt().sum(axis=1), dtype=np.float64).ravel()
    noise = 3.0 * math.sqrt(math.log(2.0 / delta) / (2.0 * draws))
    return np.minimum(roots / math.sqrt(draws) + noise, 1.0)


def mixtures(field: str, d: int, grid: int, most: int) -> Floats:
    """Return all weights [n, d] of at most ``most`` of d kernels in multiples of 1/``grid``.

    They are sorted by how many they mix.
    """
    count = sum(math.comb(d, m) * math.comb(grid - 1, m - 1) for m in range(1, most + 1))
    if not 0 < count <= _MOST_MIXTURES:
        raise ParameterError(field, got=f"{count:,} mixtures", expected=f"1 to {_MOST_MIXTURES:,}")
    weights = np.zeros((count, d))
    row = 0
    for m in range(1, most + 1):
        for members in combinations(range(d), m):
            for cuts in combinations(range(1, grid), m - 1):
                weights[row, list(members)] = np.diff([0, *cuts, grid]) / grid
                row += 1
    return weights


def grid_reach(features: FeatureMap, most: int, grid: int) -> float:
    r"""Return how far a mixture of up to m = ``most`` kernels may be from one on the grid.

    Of the weights times ``grid`` keep the whole parts, and round the r largest of the m fractions
    up, r their sum. What is rounded up and down is at most (m - r) r/m, since the fractions rounded
    down have a mean of at most r/m. Weight moved from one kernel to another changes P by at most
    the distance D of the two farthest kernels, so that the cover radius is :math:`D \max_r r (m -
    r)/(m\, grid)`.
    """
    kernels = as_dense(features.matrix)
    start = features.outcomes.start[:-1]
    farthest = 0.0
    for j in range(kernels.shape[1] - 1):
        distance = np.add.reduceat(np.abs(kernels[:, j + 1 :] - kernels[:, [j]]), start)
        farthest = max(farthest, float(distance.max()))
    half = most // 2
    return half * (most - half) / (most * grid) * farthest


class Simulators:
    """Candidate simulators of one system, with names.

    >>> import numpy as np
    >>> import occamrl as orl
    >>> kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four P[s, a, s']
    >>> simulators = orl.Simulators(list(kernels), names=["calm", "rain", "wind", "storm"])
    >>> agent = orl.UCRLVTRLin(features=simulators.features, norm_bound=1.0)

    Parameters
    ----------
    candidates : sequence
        Each a kernel [S, A, S] or scipy.sparse (S*A, S), or a function ``simulate(s, a, rng) ->
        s'``.
    names : sequence of str, optional
        By default "1", "2", ...
    states, actions : int, optional
        Needed when all candidates are functions.
    draws, seed : int
        Calls of a function per (s, a), and their seed.
    support : array [S, A, S] of bool, optional
        The transitions that such functions may make; by default every one. The fewer, the sharper.
    """

    features: FeatureMap  # the mixture: coordinate j is simulator j
    estimated: tuple[int, ...]  # which candidates are functions

    def __init__(
        self,
        candidates: Sequence[KernelLike | Simulate],
        *,
        names: Sequence[str] | None = None,
        states: int | None = None,
        actions: int | None = None,
        draws: int = 10_000,
        seed: int = 0,
        support: ArrayLike | None = None,
    ) -> None:
        given = list(candidates)
        if not given:
            raise FamilyError(
                "candidates", got=repr(candidates), expected="a list of at least one simulator"
            )
        self.names = _names_of(len(given), names)
        self.draws = require_integer("draws", draws, 1)
        require_integer("seed", seed, 0)
        kernels: dict[int, sp.csr_array] = {}
        functions: dict[int, Simulate] = {}
        sizes = set()
        for j, candidate in enumerate(given):
            if hasattr(candidate, "step"):
                raise FamilyError(
                    "candidates",
                    index=(j,),
                    got=f"an object with step, {candidate!r:.60}",
                    expected="a kernel [S, A, S'], or a function (s, a, rng) -> s'; "
                    "of other states, orl.SimulatorLadder",
                )
            if callable(candidate):
                functions[j] = candidate
            else:
                kernels[j] = as_kernel("candidates", candidate, (j,))
                pairs, count = kernels[j].shape
                sizes.add((count, pairs // count))
        if states is not None and actions is not None:
            require_integer("states", states, 1)
            require_integer("actions", actions, 1)
            sizes.add((states, actions))
        if len(sizes) != 1:
            raise ShapeError(
                "candidates",
                got=" and ".join(f"S={s}, A={a}" for s, a in sorted(sizes)) or "functions only",
                expected="one S and A: give a kernel, or states and actions",
            )
        self.states, self.actions = sizes.pop()
        self.estimated = tuple(functions)
        possible = None
        if self.estimated:
            shape = (self.states, self.actions, self.states)
            # What was never drawn may still be possible: see "Estimates" above.
            possible = np.ones(shape, dtype=bool)
            if support is not None:
                possible = as_flags("support", support, shape)
            for j, simulate in functions.items():
                kernels[j] = estimate_kernel(simulate, possible, draws=draws, seed=seed, which=j)
        self._estimates = [kernels[j] for j in self.estimated]
        listed = [kernels[j] for j in range(len(given))]
        self.features = FeatureMap.of_matrix(*read_kernels("candidates", listed, possible))
        require_kernels("candidates", self.features, np.eye(len(given))[:, None])

    def __len__(self) -> int:
        return len(self.names)

    def error(self, delta: float) -> float:
        """Return e: with probability 1 - delta no row of any estimate is farther from the truth."""
        require_delta(delta)
        # A union bound over the rows of all estimates.
        share = delta / max(1, len(self.estimated) * self.states * self.actions)
        error = 0.0
        for kernel in self._estimates:
            error = max(error, float(variation_errors(kernel, self.draws, share).max()))
        return error

    def widen_mixture(
        self,
        *,
        episodes: int,
        horizon: int,
        delta: float = 0.05,
        norm_bound: float = 1.0,
        regularization: float = 1.0,
    ) -> dict[str, float]:
        """Return arguments for :class:`UCRLVTRLin` that carry the estimates' error.

        With delta/2 (the other half pays for e) the squared radius becomes 1/c of it plus n e^2/(1
        - c), the latter carried by a larger norm bound, over that many episodes. For a truth that
        is a mixture: with weights below 0, errors add up to more.
        """
        rows = require_integer("episodes", episodes, 1) * require_integer("horizon", horizon, 1)
        error = self.error(delta / 2.0)
        if error == 0.0:
            return {"norm_bound": norm_bound, "regularization": regularization, "delta": delta}
        logdet = len(self) * math.log1p(rows / (4.0 * len(self) * regularization))  # at most
        typical = 0.25 * (logdet + 2.0 * math.log(2.0 / delta)) + regularization * norm_bound**2
        # the c that makes a radius of typical size smallest
        c = math.sqrt(typical) / (math.sqrt(typical) + error * math.sqrt(rows))
        carried = c * rows * error**2 / ((1.0 - c) * regularization)
        return {
            "norm_bound": math.sqrt(norm_bound**2 + carried),
            "regularization": regularization,
            "delta": delta / 2.0,
            "scale": c**-0.5,
        }

    def ladder(
        self, *, most: int = 2, grid: int = 10, delta: float = 0.025, reach: float | None = None
    ) -> Ladder:
        """Return the ladder whose class m contains the mixtures of at most m simulators.

        Weights are on a grid. The truth may be any such mixture: how far it may be from the nearest
        member is the cover radius of each class, and kernels nearer to each other than that are not
        told apart. For any weights, learn the mixture itself.

        Parameters
        ----------
        most, grid : int
            The number of classes, which is the most simulators in a mixture; weights are multiples
            of 1/grid.
        delta : float
            Of estimated simulators: the cover radius holds with probability 1 - delta, beside the
            level of the learner.
        reach : float, optional
            The cover radius of all classes, instead. 0: the truth is a member, its weights on the
            grid and no simulator an estimate.
        """
        require_integer("most", most, 1, maximum=len(self))
        weights = mixtures("grid", len(self), require_integer("grid", grid, most), most)
        if reach is None:
            error = 2.0 * self.error(delta)
            reaches = [error + grid_reach(self.features, m, grid) for m in range(1, most + 1)]
        else:
            reaches = [require_number("reach", reach, 0.0, 2.0)] * most
        family = FiniteFamily(parameters=weights, features=self.features)
        return Ladder.of_levels(family, np.count_nonzero(weights, axis=1) - 1, reaches)

    def __repr__(self) -> str:
        sizes = f"{len(self)}, S={self.states}, A={self.actions}"
        if self.estimated:
            sizes += f", {len(self.estimated)} estimated from {self.draws:,} draws"
        return f"Simulators({sizes})"


def _names_of(count: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the candidates; refuse those that do not tell them apart."""
    if names is None:
        return tuple(str(j + 1) for j in range(count))
    labels = tuple(map(str, names))
    if isinstance(names, str) or not len(set(labels)) == len(labels) == count:
        raise FamilyError("names", got=f"{names!r:.100}", expected=f"{count} different names")
    return labels

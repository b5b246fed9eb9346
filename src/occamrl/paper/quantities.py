r"""The quantities that the theorems ask of a problem, computed.

===================================  ===========================================================
:func:`separation`                   Delta of assumption 1, and what is left of it on rows
:func:`feature_bound`                max of ||phi_V(s, a)|| over V in [0, H]
:func:`excitation`                   rho of assumption 2, as lemma 3 needs it
:func:`eluder`                       the eluder dimension of (P V)(s, a): exact, or from both sides
:func:`first_rejecting_epoch`        before which the threshold of lemma 1 cannot reject a class
===================================  ===========================================================

Covering numbers are the families' own, ``family.log_covering_number(alpha)``; tau_min and i* are in
:mod:`occamrl.paper.theorems`. A quantity that cannot be had exactly comes as :class:`Bounds`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from occamrl.arrays import Bools, Floats, Ints
from occamrl.errors import ParameterError, as_floats, require_kind, require_number
from occamrl.models.families import FiniteFamily
from occamrl.models.features import FeatureMap
from occamrl.models.ladder import Ladder
from occamrl.paper.theorems import (
    MOST_POINTS,
    eluder_dimension,
    linear_eluder_bound,
    points_of,
    predictions,
)
from occamrl.paper.thresholds import LAST_EPOCH
from occamrl.paper.thresholds import rejecting_epoch as rejecting_epoch
from occamrl.paper.thresholds import threshold as threshold
from occamrl.paper.ucrl_vtr import UCRLVTRState, dense_kernels, optimal_values
from occamrl.paper.ucrl_vtr_lin import UCRLVTRLinState, dense_features
from occamrl.policies import as_policy
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Known

_VERTICES = 2**14  # of a box that are looked at one by one
_ROUNDING = 1e-10
_RESTARTS = 8  # of the search among more
_LEVELS = 12  # values of e that are tried
_PAIRS = 2_000  # of members, from which a long sequence of points is built
_WORK = 2**31  # products beyond which a quantity is refused
_SOME = 8  # members of a class that the truth is compared with
_FEW = 64  # members up to which eluder sequences are searched for exactly


class Bounds(NamedTuple):
    """A number from below and from above."""

    lower: float
    upper: float

    @property
    def exact(self) -> bool:
        """Whether it is known."""
        return self.lower == self.upper

    def __str__(self) -> str:
        if self.exact:
            return f"{self.lower:.6g}"
        return f"{self.lower:.6g} to {self.upper:.6g}"


# Separation ---------------------------------------------------------------------------------------


class Separation(NamedTuple):
    """How far the classes without the truth are from it: of each, from the smallest on.

    ``everywhere`` is assumption 1 as the paper uses it: the least ((P - P*) V)^2(s, a) over members
    P of the class, all (s, a), and V the optimal values of members at steps 2, ..., H. One pair
    where the class is right makes it 0.

    ``played`` is what an epoch on the class shows: the least expected mean of ((P - P*) V)^2 over
    the rows of an episode, that of step H included, over members P and over the members that may be
    played. It bounds L(P*, P)/(tau H) from below in expectation. 0: the class can confirm itself.
    """

    everywhere: tuple[float, ...]
    played: tuple[float, ...]


def separation(ladder: Ladder, problem: Any) -> Separation:
    """Return Delta of every class of a ladder of lists that lacks the truth.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-ladder", states=4, actions=2, horizon=4)
    >>> found = orl.paper.separation(orl.Ladder.of_problem(problem), problem)
    >>> len(found.played)  # the third class has the truth
    2
    """
    mdp = as_mdp(problem)
    m, truth = _truth_of(ladder, mdp)
    known = mdp.known
    kernels = dense_kernels(ladder.family).reshape(ladder.family.size, -1, known.states)
    values, policies = optimal_values(ladder.family, known)
    targets = np.unique(np.round(values[:, 1:-1].reshape(-1, known.states), 12), axis=0)
    lacking = ladder.sizes[m - 2] if m > 1 else 0
    _require_work(lacking * kernels[0].size * max(1, len(targets), lacking * known.horizon))
    gaps = kernels[:lacking] - kernels[truth]  # [n, S*A, S]
    least = np.array([float(((gap @ targets.T) ** 2).min(initial=np.inf)) for gap in gaps])
    law = np.full(known.states, 1.0 / known.states) if known.initial is None else known.initial
    everywhere = []
    played = []
    for size in ladder.sizes[: m - 1]:
        everywhere.append(float(least[:size].min()) if len(targets) else 0.0)
        total = 0.0
        # a plan is for its start, so that each start may have another member
        for start in np.flatnonzero(law).tolist():
            mean = [
                _played_gap(gaps[:size], kernels[truth], values[q], policies[q], start)
                for q in range(size)
            ]
            total += float(law[start]) * min(mean)
        played.append(total)
    return Separation(tuple(everywhere), tuple(played))


def _played_gap(gaps: Floats, truth: Floats, values: Floats, policy: Ints, start: int) -> float:
    """Return the least expected mean squared gap [n, S*A, S] over the rows of an episode."""
    H, S = policy.shape
    visits = occupancy(truth, policy, np.eye(S)[start])  # [H, S*A]
    squared = (gaps @ values[1:].T) ** 2  # [n, S*A, H]
    return float(np.einsum("nph,hp->n", squared, visits).min() / H)


def occupancy(kernel: Floats, policy: Floats | Ints, initial: Floats) -> Floats:
    """Return the probability of each pair at each step [H, S*A] under actions or probabilities."""
    H, S = policy.shape[:2]
    actions = kernel.shape[0] // S
    visits = np.zeros((H, S * actions))
    law = initial
    for h in range(H):
        chances = np.eye(actions)[policy[h]] if policy.ndim == 2 else policy[h]
        visits[h] = (law[:, None] * chances).ravel()
        law = visits[h] @ kernel
    return visits


def separation_on_rows(ladder: Ladder, problem: Any, state: UCRLVTRState, horizon: int) -> Floats:
    """Return the least L(P*, P)/(tau H) of each class without the truth, on the rows of a run.

    ``state`` is that of UCRL-VTR on F_M: ``result.state["all"]`` of :class:`occamrl.paper.ARLGen`.
    """
    m, truth = _truth_of(ladder, as_mdp(problem))
    zz = state["zz"]
    distances = np.diag(zz) - 2.0 * zz[truth] + zz[truth, truth]
    least = np.minimum.accumulate(distances)
    sizes = np.array(ladder.sizes[: m - 1], dtype=np.int64)
    return np.asarray(least[sizes - 1] / max(1, state["episodes"] * horizon))


def _truth_of(ladder: Ladder, mdp: Any) -> tuple[int, int]:
    """Return the class that has a problem's kernel, from 1, and the number of the member."""
    require_kind("ladder", ladder, Ladder)
    if not ladder.finite:
        raise ParameterError("ladder", got="classes that are no lists", expected="lists of kernels")
    m = ladder.class_of(mdp)
    member = None
    if m is not None:
        member = ladder.family.find(mdp.kernel())
    if m is None or member is None:
        got = f"no member that is the kernel of {mdp!r}"
        raise ParameterError("ladder", got=got[:80], expected="one kernel for all steps, a member")
    return m, int(member)


def _require_work(products: int) -> None:
    if products > _WORK:
        expected = f"at most {_WORK:.2g}: fewer members"
        raise ParameterError("ladder", got=f"{products:.2g} products", expected=expected)


# Features -----------------------------------------------------------------------------------------


def feature_bound(features: FeatureMap, horizon: int) -> Bounds:
    """Return max ||phi_V(s, a)|| over all (s, a) and all V with values in [0, H].

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0, states=5)
    >>> orl.paper.feature_bound(orl.FeatureMap(problem.phi), problem.mdp.horizon).exact
    True

    ||phi_V|| is convex in V, so that the maximum is at a vertex of the box: exact where a pair has
    at most 14 next states. Beyond that it is searched from below, and bounded from above by the
    norm of the vector of max_V |phi_V|_j, and by H times the largest singular value times sqrt(S).
    """
    require_number("horizon", horizon, 0.0, math.inf)
    phi = dense_features(features)  # [S, A, d, S]
    pairs = phi.reshape(-1, *phi.shape[2:])
    lower = 0.0
    upper = 0.0
    for pair in np.unique(np.round(pairs, 12), axis=0):
        low, high = _largest_image(pair[:, pair.any(axis=0)])
        lower = max(lower, low)
        upper = max(upper, high)
    return Bounds(horizon * lower, horizon * upper)


def _largest_image(phi: Floats) -> tuple[float, float]:
    """Return bounds on max ||phi v|| over v in [0, 1]^S, for phi [d, S]."""
    states = phi.shape[1]
    if 2**states <= _VERTICES:
        vertices = (np.arange(2**states)[:, None] >> np.arange(states)) & 1
        largest = float(np.linalg.norm(vertices @ phi.T, axis=1).max())
        return largest, largest
    positive = np.maximum(phi, 0.0).sum(axis=1)
    negative = np.maximum(-phi, 0.0).sum(axis=1)
    by_coordinate = float(np.linalg.norm(np.maximum(positive, negative)))
    by_spectrum = float(np.linalg.norm(phi, 2)) * math.sqrt(states)
    gram = phi.T @ phi
    draw = np.random.default_rng(0)
    best = 0.0
    for restart in range(_RESTARTS):
        v: Floats = np.asarray(draw.integers(0, 2, states), dtype=np.float64)
        if restart == 0:
            v = np.ones(states)
        best = max(best, _climb(gram, v))
    return best, max(best, min(by_coordinate, by_spectrum))


def _climb(gram: Floats, v: Floats) -> float:
    """Flip entries of v as long as that lengthens phi v; return the length."""
    while True:
        flip = 1.0 - 2.0 * v
        # of v' G v when one entry is flipped
        gain = 2.0 * flip * (gram @ v) + np.diag(gram)
        j = int(gain.argmax())
        if gain[j] <= 1e-12:
            return math.sqrt(max(0.0, float(v @ gram @ v)))
        v[j] += flip[j]


def excitation(
    features: FeatureMap, problem: Any, policy: Any = None, values: Floats | None = None
) -> float:
    """Return rho: the smallest eigenvalue of E[sum over h of x_h x_h'] of an episode, over H.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)
    >>> rho = orl.paper.excitation(orl.FeatureMap(problem.phi), problem)

    ``policy`` is actions [H, S] or probabilities [H, S, A], uniform by default; ``values`` [H + 1,
    S] are those that targets are made of, the optimal ones by default. A deterministic policy sees
    at most S (H - 1) directions, and often fewer than d: rho is then 0.
    """
    require_kind("features", features, FeatureMap)
    mdp = as_mdp(problem)
    known = mdp.known
    H = known.horizon
    if policy is None:
        policy = np.full((H, known.states, known.actions), 1.0 / known.actions)
    policy = as_policy(policy, known)
    if values is None:
        values = mdp.optimal_values
    values = as_floats("values", values, (H + 1, known.states))
    if not np.isfinite(values).all():
        raise ParameterError("values", got="NaN or infinity", expected="finite numbers")
    initial = np.full(known.states, 1.0 / known.states) if known.initial is None else known.initial
    kernel = mdp.kernel().reshape(-1, known.states)
    visits = occupancy(kernel, np.asarray(policy), initial)
    total = np.zeros((features.dimension, features.dimension))
    for h in range(H):
        x = (dense_features(features) @ values[h + 1]).reshape(-1, features.dimension)
        total += (x * visits[h][:, None]).T @ x
    return max(0.0, float(np.linalg.eigvalsh(total)[0])) / H


def excitation_of_run(state: UCRLVTRLinState, horizon: int) -> float:
    """Return the smallest eigenvalue of Sigma_k - I over k H, after a run.

    ``state`` is that of :class:`occamrl.paper.UCRLVTRLin`, or of the full learner of ARLLinDim.
    """
    rows = max(1, state["episodes"] * horizon)
    return max(0.0, float(np.linalg.eigvalsh(state["sigma"])[0]) - 1.0) / rows


# Eluder dimension ---------------------------------------------------------------------------------


def eluder(family: FiniteFamily, known: Known, scale: float) -> Bounds:
    """Return the eluder dimension of (s, a, V) -> (P V)(s, a), V the members' optimal values.

    By search where at most 20 points differ. Else it is at least the length of a sequence that a
    greedy search finds, and at most :func:`eluder_from_above`.
    """
    require_number("scale", scale, 0.0, math.inf)
    functions = predictions(family, known)
    if family.size <= _FEW and points_of(functions).shape[1] <= MOST_POINTS:
        length = eluder_dimension(functions, scale)
        return Bounds(length, length)
    return Bounds(longest_found(functions, scale), eluder_from_above(functions, scale))


def eluder_from_above(functions: Floats, scale: float) -> float:
    """Return the smallest of three bounds on the eluder dimension, for functions [n, points].

    The number of points, as none comes twice; the number of pairs of members, as every point drives
    one apart for good (the number of members does not bound it: three functions can have a sequence
    of three); and the linear bound in as many dimensions as the functions span.
    """
    n = len(functions)
    centred = functions - functions[0]
    differing = int((np.ptp(functions, axis=0) > _ROUNDING).sum())
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    rank = int((singular > _ROUNDING * max(1.0, float(singular[0]))).sum())
    bounds = [float(differing), 0.5 * n * (n - 1)]
    if rank and scale > 0.0:
        parameters = left[:, :rank] * singular[:rank]
        norm = float(np.linalg.norm(parameters, axis=1).max())
        length = float(np.linalg.norm(right[:rank], axis=0).max())
        bounds.append(linear_eluder_bound(rank, scale, norm, length))
    return min(bounds)


def eluder_of_features(
    features: FeatureMap, horizon: int, norm_bound: float, scale: float
) -> Bounds:
    """Return bounds on the eluder dimension of a linear class: at least 1, at most about d log."""
    largest = feature_bound(features, horizon).upper
    return Bounds(1.0, linear_eluder_bound(features.dimension, scale, norm_bound, largest))


def longest_found(functions: Floats, scale: float) -> int:
    """Return the length of an eluder sequence that is found greedily, a bound from below.

    For each of several e, points are taken one after the other, always the one that leaves the most
    pairs of members close.
    """
    first, second = np.triu_indices(len(functions), 1)
    if first.size > _PAIRS:
        # sequences for some pairs of members are sequences for all
        kept = np.unique(np.linspace(0, first.size - 1, _PAIRS).astype(np.int64))
        first = first[kept]
        second = second[kept]
    gaps = np.unique(np.round(np.abs(functions[first] - functions[second]), 12), axis=1)
    levels = np.unique(gaps[gaps > scale])
    if not levels.size:
        return 0
    best = 0
    some = np.unique(np.linspace(0, levels.size - 1, _LEVELS).astype(np.int64))
    for e in levels[some].tolist():
        best = max(best, _greedy_length(gaps, e))
    return best


def _greedy_length(gaps: Any, e: float) -> int:
    """Return how many points are taken, for e just below the given number."""
    total = np.zeros(len(gaps))
    length = 0
    while True:
        close = total < e * e
        apart = gaps[close] >= e
        possible = apart.any(axis=0)
        if not possible.any():
            return length
        points = np.flatnonzero(possible)
        lost = ((total[close, None] + gaps[close][:, points] ** 2) >= e * e).sum(axis=0)
        total += gaps[:, points[int(lost.argmin())]] ** 2
        length += 1


# The threshold of lemma 1 -------------------------------------------------------------------------


class RowBounds(NamedTuple):
    """What a row of an episode can say against a class, by the mean over its H rows at most."""

    gap: float  # of ((P - P*) V)^2: the largest over P* of the least over P in F_m
    excess: float  # of the loss of some P in F_m, less that of the best member of F_M
    squared_range: float  # R^2, of a target over the outcomes that some member lists


@lru_cache(maxsize=64)
def first_rejecting_epoch(
    ladder: Ladder, known: Known, m: int = 1, delta: float = 0.05
) -> int | None:
    r"""Return the first epoch in which the threshold of lemma 1 may reject class m at all.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-ladder", states=4, actions=2, dimension=4)
    >>> ladder = orl.Ladder.of_problem(problem)
    >>> orl.paper.quantities.first_rejecting_epoch(ladder, problem.mdp.known)
    10

    In every epoch before it the class is accepted, except with probability ``delta``, whichever
    member of F_M is true and whatever is played. None: it is never rejected. In epoch i, with
    tau = 2^i - 2 episodes of data, T_m - T_M is at most E for sure, and except with probability
    delta at most

    .. math:: D + \sqrt{\frac{2 D R^2 \ell_i}{\tau H}} + \frac{R^2 \ell_F}{2 \tau H}, \qquad
        \ell_i = \log\frac{2^{i+1}}\delta, \quad \ell_F = \log\frac{2|F_M|}\delta,

    with D, E and R^2 of :func:`row_bounds` (M27 in docs/mathematics.md).
    """
    rows = row_bounds(ladder, known, m)
    log_size = math.log(2.0 * ladder.sizes[-1] / delta)
    for epoch in range(2, LAST_EPOCH):
        # powers of 2 leave the range of floats late, where they no longer matter
        steps = (2.0 ** min(epoch, 1_000) - 2.0) * known.horizon
        log_level = math.log(2.0 / delta) + epoch * math.log(2.0)
        noise = math.sqrt(2.0 * rows.gap * rows.squared_range * log_level / steps)
        excess = rows.gap + noise + 0.5 * rows.squared_range * log_size / steps
        if threshold(epoch) < min(rows.excess, excess):
            return epoch
    return None


def row_bounds(ladder: Ladder, known: Known, m: int) -> RowBounds:
    """Return what rows can say against class m, over the optimal values of all members."""
    kernels = dense_kernels(ladder.family).reshape(ladder.family.size, -1, known.states)
    values = optimal_values(ladder.family, known)[0]
    possible: Bools = np.asarray((kernels > 0.0).any(axis=0))  # [S*A, S]
    size = ladder.sizes[m - 1]
    # any members of F_m will do: with few of them the bounds are larger
    kept = np.unique(np.linspace(0, size - 1, min(size, _SOME)).astype(np.int64))
    gaps = np.zeros((kept.size, len(kernels)))
    excess = np.zeros(kept.size)
    squared_range = 0.0
    for h in range(1, known.horizon):
        targets = np.unique(np.round(values[:, h], 12), axis=0)
        worst_gap = np.zeros(gaps.shape)
        worst_excess = np.zeros(kept.size)
        for target in targets:
            z = kernels @ target  # [n, S*A]
            worst_gap = np.maximum(worst_gap, np.abs(z[kept][:, None] - z).max(axis=2))
            worst_excess = np.maximum(worst_excess, _row_excess(z, kept, target, possible))
            squared_range = max(squared_range, _squared_range(target, possible))
        gaps += worst_gap**2
        excess += worst_excess
    H = known.horizon
    return RowBounds(float(gaps.min(axis=0).max()) / H, float(excess.min()) / H, squared_range)


def _row_excess(z: Floats, kept: Ints, target: Floats, possible: Bools) -> Floats:
    """Return the largest excess of a row with a target V [S], for each of some members."""
    low = z.min(axis=0)[:, None]
    high = z.max(axis=0)[:, None]
    nearest = np.maximum(np.maximum(low - target, target - high), 0.0) ** 2  # [S*A, S]
    squared = (target - z[kept][:, :, None]) ** 2 - nearest
    return np.asarray(np.where(possible, squared, 0.0).max(axis=(1, 2)))


def _squared_range(target: Floats, possible: Bools) -> float:
    """Return the square of the largest range of V [S] over the outcomes of a pair."""
    high = np.where(possible, target, -np.inf).max(axis=1)
    low = np.where(possible, target, np.inf).min(axis=1)
    return float((high - low).max()) ** 2

r"""Refining a norm bound on pooled rows, for every lambda of a shelf at once (M11, M19).

Every ellipsoid here is given along the axes of :math:`\sum x x^\top`, which are those of Sigma for any lambda.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from occamrl.confidence.ellipsoid import farthest
from occamrl.contracts import Floats, Known
from occamrl.errors import ParameterError
from occamrl.families.features import FeatureMap
from occamrl.learners.ucrl_vtr_lin import SMALLEST_LEVEL, LinearStatistics, UCRLVTRLin
from occamrl.selectors._linear import squared_radius, target_unit

_MOST_ROUNDS = 50  # of M19 on its own result; every round is valid, so stopping early is too
_WORTHWHILE = 1e-3  # the relative improvement that is worth another round
_ROUNDING = 1e-6  # the relative error that a norm computed from features may have


class Spectrum(NamedTuple):
    """Pooled rows along the axes of sum x x^T: one decomposition serves every lambda."""

    eigenvalues: Floats  # [d] increasing
    xy: Floats  # [d] along the axes
    episodes: int

    def center(self, lam: float) -> Floats:
        """Return the ridge estimate along the axes."""
        return self.xy / (self.eigenvalues + lam)

    def logdet(self, lam: float) -> float:
        """Return logdet(Sigma / lambda)."""
        return float(np.log1p(self.eigenvalues / lam).sum())


def spectra(statistics: LinearStatistics) -> list[Spectrum]:
    """Return the rows of each step along the axes of their matrix."""
    found = []
    for gram, xy, *_ in statistics.by_step():
        eigenvalues, axes = np.linalg.eigh(gram.reshape(xy.size, xy.size))
        found.append(Spectrum(np.maximum(eigenvalues, 0.0), axes.T @ xy, statistics.episodes))
    return found


def that_matter(every: list[Spectrum], learner: UCRLVTRLin, known: Known) -> list[Spectrum]:
    """Return the steps that give rows, or the only one there is.

    The last step gives none without rewards on transitions, and no plan looks at its parameter: no norm to bound.
    """
    return every[: max(1, learner.steps_with_rows(known))]


def refined_norm(learner: UCRLVTRLin, known: Known, statistics: LinearStatistics) -> float:
    """Return the largest norm in a learner's confidence ellipsoid with these rows (M19), or in those of all steps."""
    norms = []
    for rows in that_matter(spectra(statistics), learner, known):
        beta = squared_radius(learner, known, rows.xy.size, rows.logdet(learner.lam), rows.episodes)
        norms.append(_farthest_norm(learner.lam, rows, beta))
    return max(norms)


def _farthest_norm(lam: float, rows: Spectrum, beta: float) -> float:
    center = rows.center(lam)
    return float(np.linalg.norm(center + farthest(rows.eigenvalues + lam, center, beta)[0]))


def smallest_norm(features: FeatureMap) -> float:
    """Return the smallest ||theta|| with which the probabilities of every (s, a) sum to one: no theta* is smaller.

    Zero, which bounds nothing, where no theta does that: coordinates of which every kernel needs others beside them.
    """
    start = features.layout.outcomes.start[:-1]
    sums = np.stack([np.add.reduceat(features.probabilities(unit), start) for unit in np.eye(features.dimension)], -1)
    theta = np.linalg.lstsq(sums, np.ones(start.size), rcond=None)[0]
    return float(np.linalg.norm(theta)) if np.allclose(sums @ theta, 1.0, rtol=0.0, atol=_ROUNDING) else 0.0


def require_possible(features: FeatureMap, norm_bound: float) -> float:
    """Refuse a norm bound that no kernel of these features keeps; return the smallest norm that a kernel can have."""
    least = smallest_norm(features)
    if norm_bound < (1.0 - _ROUNDING) * least:
        expected = f"at least {least:.6g}: with these features no theta of a smaller norm is a kernel"
        raise ParameterError("norm_bound", got=norm_bound, expected=expected)
    return least


def shelf(learner: UCRLVTRLin, least: float) -> list[UCRLVTRLin]:
    """Return learners whose noise events hold all at once: one per lambda of the shelf, or one alone if it is fixed."""
    if not isinstance(learner.regularization, str) or least <= 0.0:
        return [dataclasses.replace(learner, regularization=learner.lam)]
    count = 1 + max(0, math.floor(math.log2(learner.norm_bound / least) + 1e-9))
    lams = [dataclasses.replace(learner, norm_bound=learner.norm_bound / 2.0**j).lam for j in range(count)]
    level = max(SMALLEST_LEVEL, learner.delta / count)
    return [dataclasses.replace(learner, regularization=lam, delta=level) for lam in lams]


class Refinement(NamedTuple):
    """The learner to play with, and whether the rows contradict the class that it stands for."""

    learner: UCRLVTRLin
    contradicted: bool


def refine(
    learners: Sequence[UCRLVTRLin], known: Known, statistics: LinearStatistics, bound: float, least: float
) -> Refinement:
    """Return the best learner of a shelf, with the smallest norm bound that the rows allow; ``bound`` is valid.

    A negative beta leaves no theta within the bound, and a bound under ``least`` no kernel: either the features or the
    bound that was given are wrong, or this is the run in delta^-1 in which an event failed. Nothing can be refined
    then. The learner has the bound that was given, and its own event alone, with which beta is never negative.

    With one kernel per step the bound is for all of them: the largest that any step allows.
    """
    every = spectra(statistics)
    steps = that_matter(every, learners[0], known)
    lams = np.array([learner.lam for learner in learners])
    contradicted = False
    for _ in range(_MOST_ROUNDS):
        smallest = [_radii(learners, known, rows, bound).min(axis=1) for rows in steps]
        contradicted = any(bool((each < 0.0).any()) for each in smallest) or bound < (1.0 - _ROUNDING) * least
        if contradicted:
            bound = float(learners[0].norm_bound)
            break
        smaller = max(
            min(_farthest_norm(lam, rows, beta) for lam, beta in zip(lams, each, strict=True))
            for rows, each in zip(steps, smallest, strict=True)
        )
        if smaller > (1.0 - _WORTHWHILE) * bound:
            break
        bound = smaller
    volume = np.zeros((lams.size, lams.size))
    other = lams[:, np.newaxis] != lams if contradicted else lams[:, np.newaxis] > lams
    for rows in steps:
        radii = _radii(learners, known, rows, bound, playing=True)
        radii[other] = np.inf  # while it plays, a learner can only follow the event of a larger lambda
        volume += rows.xy.size * np.log(radii)
        volume -= np.log(rows.eigenvalues + lams[:, np.newaxis]).sum(axis=1)[:, np.newaxis]
    shape, event = divmod(int(np.argmin(volume)), lams.size)
    chosen = dataclasses.replace(learners[shape], norm_bound=bound)
    if shape == event:
        return Refinement(chosen, contradicted)
    # Both log-determinants grow with the rows, and their difference shrinks: its present value bounds it from now on.
    # A learner has one slack for all steps, those without rows among them.
    slack = max(rows.logdet(float(lams[event])) - rows.logdet(float(lams[shape])) for rows in every)
    return Refinement(dataclasses.replace(chosen, event=(float(lams[event]), slack)), contradicted)


def _radii(
    learners: Sequence[UCRLVTRLin], known: Known, rows: Spectrum, bound: float, *, playing: bool = False
) -> Floats:
    """Return beta of the ellipsoid of each lambda (rows) by the noise event of each lambda' (columns).

    ``playing``: as a learner computes it that factorises Sigma for one lambda only.
    """
    if len(learners) == 1 or learners[0].radius != "sharp":
        radii = np.full((len(learners), len(learners)), np.inf)
        for i, each in enumerate(learners):
            bounded, logdet = dataclasses.replace(each, norm_bound=bound), rows.logdet(each.lam)
            radii[i, i] = squared_radius(bounded, known, rows.xy.size, logdet, rows.episodes)
        return radii
    lams = np.array([each.lam for each in learners])
    centers = np.stack([rows.center(float(lam)) for lam in lams])
    unit = target_unit(learners[0], known)
    noise = np.array([rows.logdet(each.lam) + 2.0 * math.log(1.0 / each.level(known)) for each in learners])
    # L'(theta') - L(theta) = (lambda' - lambda) <theta, theta'>: both are quadratic forms of xy on the same axes
    products = np.sum(centers**2, axis=1)[:, np.newaxis] if playing else centers @ centers.T
    losses = (lams - lams[:, np.newaxis]) * products
    return np.asarray(losses + 0.25 * unit**2 * noise + (lams * bound**2)[:, np.newaxis])

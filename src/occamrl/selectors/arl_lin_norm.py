r"""ARL-LIN(norm): find how large theta* is while playing (Ghosh et al. 2022, algorithm 3).

::

    b_0 = b
    for epochs i = 0, 1, 2, ...
        play UCRL-VTR-LIN with norm bound b_i for g^i k_0 episodes
        b_{i+1} = min(b_i, max { ||theta|| : theta in its confidence ellipsoid })

The rows of all epochs are pooled (:mod:`occamrl.selectors.linear_selector`). The paper's own
algorithm, on fresh data and with decaying levels, is :class:`occamrl.paper.ARLLinNorm`.

**The bound** (M19). The noise event does not involve b, so one delta serves all epochs, and the
maximum is taken of its own result until nothing changes. lambda follows the bound: a *grid*
d/(4 (b/2^j)^2), j = 0, ..., J, each at level delta/(J+1), b/2^J not below the smallest norm of any
kernel. All events hold at once, and any two may be combined,

.. math:: \beta = L_{\lambda'}(\theta') - L_\lambda(\theta) + \tfrac14\big(
    \log\det(\Sigma'/\lambda') + 2\log\tfrac{J+1}\delta\big) + \lambda b^2, \qquad
    L_{\lambda'}(\theta') - L_\lambda(\theta) = (\lambda' - \lambda)\langle\theta, \theta'\rangle,

so that lambda' suits the norm that theta* shows and lambda the bound that is known. A plan takes
the pair with the smallest volume. If no theta is left within the bound, the rows contradict it: the
bound that was given is played.

With probability 1 - delta no bound is below ||theta*||. How fast bounds fall, and the regret, are
measured, not proved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from occamrl.arrays import Floats
from occamrl.evidence import value
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.protocols import Flow, Known, Learner, Plan
from occamrl.selectors.linear_selector import (
    ROUNDING,
    LinearSelector,
    PhaseState,
    Region,
    begin_phase,
    block,
)

_MOST_ROUNDS = 50  # of refining a norm bound
_WORTHWHILE = 1e-3  # the relative improvement that is worth another round


class NormState(PhaseState):
    """The pooled rows, the phase, and the norm bound in play."""

    norm_bound: float
    contradicted: bool  # whether the rows left no kernel within the bound


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(LinearSelector, Learner):
    """Adapt to the norm of theta*.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLinNorm(features=orl.FeatureMap(problem.phi), norm_bound=100.0)
    >>> result = orl.run(agent, problem, episodes=100)

    Parameters
    ----------
    features, norm_bound, delta, scale, replan
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound``
        may be far too large.
    initial_episodes : int
        k_0.
    growth : float
        g: how much longer a phase is than the one before.

    Notes
    -----
    Facts of a plan: ``epoch`` and ``norm_bound``. Diagnostics: ``estimate``, theta, and its
    ``regularization``; ``contradicted``, whether the rows leave no kernel within the bound.
    """

    initial_episodes: int = 16

    def on_features(self, theta: Floats | None) -> UCRLVTRLin:
        """Return its base algorithm with the norm of theta, or with the bound that was given."""
        bound = self.norm_bound if theta is None else float(np.linalg.norm(theta))
        return self.base(None, bound, "scaled")

    def begin(self, known: Known) -> NormState:
        """Return the state before any data, with the bound that was given."""
        bound = float(self.norm_bound)
        return {**self.begin_rows(known), "norm_bound": bound, "contradicted": False}

    def plan(self, known: Known, state: NormState, draw: np.random.Generator) -> Plan:
        """Plan with the bound of this epoch."""
        region = smallest_region(state, self.all_coordinates, self.grid(), state["norm_bound"])
        facts = {"epoch": state["epoch"], "norm_bound": state["norm_bound"]}
        diagnostics = {
            "carried_bound": state["norm_bound"],
            "contradicted": state["contradicted"],
        }
        return self.plan_in(known, state, region, facts, diagnostics)

    def learn(self, known: Known, state: NormState, plan: Plan, flow: Flow) -> None:
        """Add the rows of the block; after the epoch, bound the norm by its ellipsoids."""
        if not self.add_rows(known, state, plan, flow):
            return
        state["epoch"] += 1
        begin_phase(state, self.initial_episodes * self.growth ** state["epoch"])
        spectrum = value.Spectrum.of(*block(state, self.all_coordinates))
        bound = refine(spectrum, self.grid(), state["norm_bound"], self.smallest_norm)
        state["contradicted"] = bound is None
        state["norm_bound"] = float(self.norm_bound) if bound is None else bound

    def grid(self) -> Grid:
        """Return the grid of regularisations."""
        d = self.features.dimension
        return grid_of(d, self.norm_bound, self.smallest_norm, math.log(1.0 / self.delta))


class Grid(NamedTuple):
    """Regularisations, of which each has a noise event of its own."""

    lams: Floats  # [J + 1]
    log_level: float  # log(1/level) of each event


def grid_of(m: int, norm_bound: float, smallest_norm: float, log_level: float) -> Grid:
    """Return the grid for m coordinates, whose events have levels that add up to e^-``log_level``.

    Where no kernel has a smallest norm, lambda suits the bound that was given.
    """
    # each halving of the bound makes a lambda; below the smallest norm there is no kernel
    count = 1
    if smallest_norm > 0.0:
        count += max(0, math.floor(math.log2(norm_bound / smallest_norm) + 1e-9))
    bounds = norm_bound / 2.0 ** np.arange(count)
    return Grid(m / (4.0 * bounds**2), log_level + math.log(count))


def squared_radii(spectrum: value.Spectrum, grid: Grid, bound: float) -> Floats:
    """Return beta of the ellipsoid of each lambda (rows) by the event of each lambda' (columns)."""
    lams = grid.lams
    centers = spectrum.center(lams[:, None])
    logdets = spectrum.logdet(lams[:, None])
    # L'(theta') - L(theta), the difference of regularised losses, in closed form
    gaps = (lams - lams[:, None]) * (centers @ centers.T)
    noise = 0.25 * (logdets + 2.0 * grid.log_level)
    return np.asarray(gaps + noise + (lams * bound**2)[:, None])


def refine(
    spectrum: value.Spectrum, grid: Grid, bound: float, smallest_norm: float
) -> float | None:
    """Return the smallest norm bound that the rows prove, given one; None if they contradict it.

    A negative beta leaves no theta within the bound, and a bound under the smallest norm no
    kernel.
    """
    for _ in range(_MOST_ROUNDS):
        # all events hold at once: of each ellipsoid the smallest radius that one of them gives
        betas = squared_radii(spectrum, grid, bound).min(axis=1)
        if (betas < 0.0).any() or bound < (1.0 - ROUNDING) * smallest_norm:
            return None
        smaller = min(
            value.largest_norm(spectrum.eigenvalues + lam, spectrum.center(lam), beta)
            for lam, beta in zip(grid.lams, betas.tolist(), strict=True)
        )
        if smaller > (1.0 - _WORTHWHILE) * bound:
            break
        # the bound is part of the radii, so a smaller one may prove a still smaller one
        bound = smaller
    return bound


def smallest_region(
    state: value.SumState, coordinates: list[int], grid: Grid, bound: float
) -> Region:
    """Return the ellipsoid with the smallest volume; where rows contradict, by its own event."""
    spectrum = value.Spectrum.of(*block(state, coordinates))
    betas = squared_radii(spectrum, grid, bound)
    best = betas.diagonal()
    if (betas > 0.0).all():
        best = betas.min(axis=1)
    sigma = spectrum.eigenvalues + grid.lams[:, None]
    # the logarithm of the squared volume, up to a constant
    volume = len(coordinates) * np.log(best) - np.log(sigma).sum(axis=1)
    smallest = int(volume.argmin())
    return Region(coordinates, spectrum, float(grid.lams[smallest]), float(best[smallest]))

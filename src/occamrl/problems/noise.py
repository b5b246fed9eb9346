"""How rewards scatter around their means: for problems whose rewards have to be estimated.

Exact values and regret are those of the means; only what an agent sees, and the realised returns, are random. Every
reward stays in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincinv

from occamrl.contracts import Floats
from occamrl.errors import ParameterError, require_number
from occamrl.kernels.noise import Atoms, CoinFlips
from occamrl.problems.checks import require_integer

_LEAST_MEAN = 1e-200  # of a distribution whose quantiles are numbers
_MOST_ATOMS = 2**16


@dataclass(frozen=True, kw_only=True)
class BernoulliRewards:
    """A reward is 1 with its mean as probability, else 0: as much noise as rewards in [0, 1] can have."""

    def compiled(self, means: Floats) -> CoinFlips:
        """Return what the simulator draws with, for outcomes with these mean rewards."""
        return CoinFlips()

    def drawn(self, noise: CoinFlips, outcome: int, mean: float, uniform: float) -> float:
        """Return the reward that a number in [0, 1) decides."""
        return 1.0 if uniform < mean else 0.0


@dataclass(frozen=True, kw_only=True)
class BetaRewards:
    """A reward follows a Beta distribution around its mean, Beta(c m, c (1 - m)), of variance m (1 - m)/(1 + c).

    It is drawn from ``atoms`` equally likely values, the means of the distribution over slices of equal probability, so
    that its mean is the one stated.

    Parameters
    ----------
    concentration : float
        c: the larger, the less noise.
    atoms : int
    """

    concentration: float = 10.0
    atoms: int = 64

    def __post_init__(self) -> None:
        require_number("concentration", self.concentration, 1e-2, 1e6)
        if require_integer("atoms", self.atoms, 1) > _MOST_ATOMS:
            raise ParameterError("atoms", got=self.atoms, expected=f"at most {_MOST_ATOMS:,}")

    def compiled(self, means: Floats) -> Atoms:
        """Return what the simulator draws with, for outcomes with these mean rewards."""
        values = np.repeat(means[:, np.newaxis], self.atoms, axis=1)
        inside = (means > _LEAST_MEAN) & (means < 1.0)  # elsewhere the mean itself
        one, other = self.concentration * means[inside], self.concentration * (1.0 - means[inside])
        cuts = betaincinv(one[:, np.newaxis], other[:, np.newaxis], np.linspace(0.0, 1.0, self.atoms + 1))
        # The mean over a slice is m times the share of Beta(c m + 1, c (1 - m)) in it, over that of Beta(c m, ...).
        slices = np.diff(betainc(one[:, np.newaxis] + 1.0, other[:, np.newaxis], cuts), axis=1)
        values[inside] = _with_mean(np.clip(means[inside, np.newaxis] * slices * self.atoms, 0.0, 1.0), means[inside])
        return Atoms(values)

    def drawn(self, noise: Atoms, outcome: int, mean: float, uniform: float) -> float:
        """Return the reward that a number in [0, 1) decides."""
        return float(noise.values[outcome, int(uniform * self.atoms)])


def _with_mean(values: Floats, means: Floats) -> Floats:
    """Return the rows, sorted, in [0, 1], with these means: quantiles near an end of [0, 1] have lost digits."""
    values = np.sort(values, axis=1)
    now, then = values.mean(axis=1, keepdims=True), means[:, np.newaxis]
    up = values + (then - now) * (1.0 - values) / np.maximum(1.0 - now, 1e-300)
    down = values * (then / np.maximum(now, 1e-300))
    return np.asarray(np.clip(np.where(then >= now, up, down), 0.0, 1.0))


RewardNoise = BernoulliRewards | BetaRewards

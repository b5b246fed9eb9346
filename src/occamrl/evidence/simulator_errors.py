r"""What is learned of the errors of a simulator: what comes may be shifted, wider or heavier.

Let $z = L^{-1}(y - \mu)$, with $\mu$ and $LL^\top$ the mean and covariance of the law that is
fitted to its draws. With features $\phi = (1, \text{view}, a)$, standardised, and $G = I +
\sum\phi\phi^\top$, $B = \sum\phi z^\top$ over the past, the shift is $\hat z = B^\top G^{-1}\phi$,
and $u = (z - \hat z)/\sqrt{1 + \phi^\top G^{-1}\phi}$ is what remains, clipped at four scales,
since jumps are no shift.

Three laws of the next error are offered, coordinate by coordinate: *shift*, Student around $\hat z$
with scale and degrees of freedom by the past $u$; *scale*, around 0 with the scale of the past $z$;
*heavy*, with three degrees of freedom around $\hat z$ and the scale of the past $|u|$. The same $G$
serves for errors in coordinates of the state, $r = y - \mu$: they say where a member misfits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from occamrl.protocols import Floats, Ints

LAWS = 3  # of the next error: shift, scale, heavy
PRIOR = 4.0  # observations that the prior is worth
_HEAVY = 3.0  # degrees of freedom of the heavy law
_JUMP = 4.0  # scales from which on an error is taken for a jump
_MEAN_ABSOLUTE = 2 * math.sqrt(3) / math.pi  # of Student's law with three degrees of freedom
_LARGEST_FEATURE = 1e3


class ErrorFeatures(NamedTuple):
    """What errors may depend on: the k features (1, view, action), standardised."""

    names: tuple[str, ...]  # [k - 1] of the coordinates of view and action
    middle: Floats  # [k - 1]
    width: Floats  # [k - 1]
    views: int  # how many of them are of the view

    def of(self, view: Floats, action: Floats) -> Floats:
        """Return the features [..., k] of a view [..., d] and an action [..., m], of order 1."""
        raw = np.concatenate([view, action], axis=-1)
        scaled = np.clip((raw - self.middle) / self.width, -_LARGEST_FEATURE, _LARGEST_FEATURE)
        return np.concatenate([np.ones((*raw.shape[:-1], 1)), scaled], axis=-1)

    def in_units(self, features: Floats) -> Floats:
        """Return view and action [..., k - 1] of features, in the units of the user."""
        return self.middle + features[..., 1:] * self.width


class ErrorRows(NamedTuple):
    """What was learned of the errors of M members; the arrays are written to."""

    awake: Floats  # [M] steps at which each was run
    gram: Floats  # [M, k, k] G
    cross: Floats  # [M, k, d + n] sums of features times z, and times r
    squares: Floats  # [M, 2, d] of u and of z
    absolute: Floats  # [M, d] of u
    noise: Floats  # [M, n] squares of r minus its shift

    @classmethod
    def begin(cls, members: int, features: int, views: int, dimension: int) -> ErrorRows:
        """Return the rows of members before any data."""
        return cls(
            awake=np.zeros(members),
            gram=np.tile(np.eye(features), (members, 1, 1)),
            cross=np.zeros((members, features, views + dimension)),
            squares=np.full((members, 2, views), PRIOR),
            absolute=np.full((members, views), PRIOR * _MEAN_ABSOLUTE),
            noise=np.zeros((members, dimension)),
        )


def student(z: Floats, dof: Floats | float) -> Floats:
    """Return the log density of Student's law."""
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * math.pi)
    density: Floats = constant - (dof + 1) / 2 * np.log1p(z * z / dof)
    return density


class ErrorForecast:
    """What the past says of the next error of the m members that are run, at features phi [k]."""

    def __init__(self, rows: ErrorRows, members: Ints, phi: Floats) -> None:
        self.rows = rows
        self.members = members
        self.phi = phi
        views = rows.absolute.shape[1]
        columns = np.broadcast_to(phi[:, None], (members.size, phi.size, 1))
        solved = np.linalg.solve(rows.gram[members], columns)[..., 0]  # gram^-1 phi
        shift = np.einsum("mk,mkd->md", solved, rows.cross[members])
        self.shift = shift[:, :views]  # of z
        self.drift = shift[:, views:]  # of r
        self.width = np.sqrt(1.0 + solved @ phi)
        self.dof = PRIOR + rows.awake[members]
        self.scale = np.sqrt(rows.squares[members] / self.dof[:, None, None])
        self.heavy = rows.absolute[members] / (_MEAN_ABSOLUTE * self.dof[:, None])

    def log_density(self, z: Floats) -> Floats:
        """Return the log densities of errors z [m, points, d] by each law [LAWS, m, points]."""
        u = (z - self.shift[:, None]) / self.width[:, None, None]
        dof = self.dof[:, None, None]
        log_width = z.shape[2] * np.log(self.width)[:, None]
        shifted = _scaled(u, self.scale[:, 0], dof) - log_width
        scaled = _scaled(z, self.scale[:, 1], dof)
        heavy = _scaled(u, self.heavy, _HEAVY) - log_width
        return np.stack([shifted, scaled, heavy])

    def learn(self, z: Floats, r: Floats) -> None:
        """Write the errors z [m, d] and r [m, n] that came to the rows."""
        rows = self.rows
        members = self.members
        u = (z - self.shift) / self.width[:, None]
        limit = _JUMP * self.heavy
        clipped = np.clip(u, -limit, limit)
        # A jump moves the shift no further than the largest error that is none.
        z_without_jumps = self.shift + self.width[:, None] * clipped
        errors = np.concatenate([z_without_jumps, r], axis=1)
        rows.gram[members] += np.outer(self.phi, self.phi)
        rows.cross[members] += self.phi[:, None] * errors[:, None]
        rows.squares[members] += np.minimum(np.stack([clipped**2, z * z], axis=1), 1e12)
        rows.absolute[members] += np.minimum(np.abs(u), 1e6)
        rows.noise[members] += ((r - self.drift) / self.width[:, None]) ** 2


def _scaled(values: Floats, scale: Floats, dof: Floats | float) -> Floats:
    """Return the log density [m, points] of independent Student laws of some scales [m, d]."""
    densities = student(values / scale[:, None], dof) - np.log(scale[:, None])
    total: Floats = densities.sum(axis=2)
    return total


class Shift(NamedTuple):
    """The mean of a member's errors r as a linear function of the features."""

    effects: Floats  # [k, n]
    standard_errors: Floats  # [k, n]
    noise: Floats  # [n] the scale of what remains

    @property
    def strength(self) -> Floats:
        """The effects in standard errors [k, n]."""
        return np.abs(self.effects) / self.standard_errors

    @property
    def clearest(self) -> int:
        """The feature with the clearest effect; 0: the mean."""
        return int(self.strength.max(axis=1).argmax())


def shift_of(rows: ErrorRows, member: int) -> Shift:
    """Return what was learned of the mean of a member's errors, in coordinates of the state."""
    views = rows.absolute.shape[1]
    inverse = np.linalg.inv(rows.gram[member])
    effects = inverse @ rows.cross[member][:, views:]
    scale = np.sqrt(rows.noise[member] / max(1.0, rows.awake[member])) + 1e-300
    return Shift(effects, np.sqrt(np.diag(inverse))[:, None] * scale, scale)

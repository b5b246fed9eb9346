r"""What is learned of the errors of a simulator: whatever it says, what comes may be shifted, wider or heavier.

Let $z = L^{-1}(y - \mu)$, with $\mu$ and $LL^\top$ the mean and covariance of the law that is
fitted to its draws. With features $\phi = (1, \text{view}, a)$, standardised, and $G = I +
\sum\phi\phi^\top$, $B = \sum\phi z^\top$ over the past, the shift is $\hat z = B^\top G^{-1}\phi$,
and $u = (z - \hat z)/\sqrt{1 + \phi^\top G^{-1}\phi}$ is what is left, clipped at four scales,
since jumps are no shift.

Three laws of the next error are offered, coordinate by coordinate: *shift*, Student around $\hat z$
with scale and degrees of freedom by the past $u$; *scale*, around 0 with the scale of the past $z$;
*heavy*, with three degrees of freedom around $\hat z$ and the scale of the past $|u|$. The same $G$
serves for errors in coordinates of the state, $r = y - \mu$: they say where a member misfits, and
correct it when nothing else is left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from occamrl.control.ladder import SimulatorLadder
from occamrl.protocols import Floats, Ints

LAWS = 3  # of the next error: shift, scale, heavy
PRIOR = 4.0  # observations that the prior is worth
_HEAVY = 3.0  # degrees of freedom
_JUMP = 4.0  # scales from which on an error is taken for a jump
_MEAN_ABS = 2 * math.sqrt(3) / math.pi  # of Student's law with three


def student(z: Floats, dof: Any) -> Floats:
    """Return the log density of Student's law."""
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * math.pi)
    found: Floats = constant - (dof + 1) / 2 * np.log1p(z * z / dof)
    return found


def begin(members: int, features: int, seen: int, states: int) -> dict[str, Any]:
    """Return what is kept of members before any data: ``seen`` coordinates of the view, ``states`` of the state."""
    return {
        "awake": np.zeros(members),  # steps at which they were run
        "gram": np.tile(np.eye(features), (members, 1, 1)),
        "cross": np.zeros((members, features, seen + states)),  # with z and r
        "squares": np.full((members, 2, seen), PRIOR),  # of u and z
        "absolute": np.full((members, seen), PRIOR * _MEAN_ABS),  # of u
        "noise": np.zeros((members, states)),  # squares of r minus its shift
    }


class Predicted:
    """What the past says of the next error of some members at features phi [k]."""

    def __init__(self, state: dict[str, Any], members: Ints, phi: Floats) -> None:
        self.state, self.members, self.phi = state, members, phi
        self.seen = state["absolute"].shape[1]
        leverage = np.linalg.solve(
            state["gram"][members], np.broadcast_to(phi[:, None], (members.size, phi.size, 1))
        )
        shift = np.einsum("mk,mkd->md", leverage[..., 0], state["cross"][members])
        self.shift, self.drift = shift[:, : self.seen], shift[:, self.seen :]  # of z, and of r
        self.width = np.sqrt(1.0 + leverage[..., 0] @ phi)
        self.dof = PRIOR + state["awake"][members]
        self.scale = np.sqrt(state["squares"][members] / self.dof[:, None, None])
        self.heavy = state["absolute"][members] / (_MEAN_ABS * self.dof[:, None])

    def log_density(self, z: Floats) -> Floats:
        """Return the log densities of errors z [m, points, d] by each law [laws, m, points]."""
        u, dof = (z - self.shift[:, None]) / self.width[:, None, None], self.dof[:, None, None]
        log_width = z.shape[2] * np.log(self.width)[:, None]

        def of(values: Floats, scale: Floats, dof: Any) -> Floats:
            found: Floats = (student(values / scale[:, None], dof) - np.log(scale[:, None])).sum(
                axis=2
            )
            return found

        plain = of(u, self.scale[:, 0], dof) - log_width
        return np.stack(
            [plain, of(z, self.scale[:, 1], dof), of(u, self.heavy, _HEAVY) - log_width]
        )

    def learn(self, z: Floats, r: Floats) -> None:
        """Take note of the errors z [m, d] and r [m, n] that came."""
        state, members, phi = self.state, self.members, self.phi
        u, limit = (z - self.shift) / self.width[:, None], _JUMP * self.heavy
        clipped = np.clip(u, -limit, limit)  # jumps are no shift
        z_used = self.shift + self.width[:, None] * clipped
        state["gram"][members] += np.outer(phi, phi)
        state["cross"][members] += phi[:, None] * np.concatenate([z_used, r], axis=1)[:, None]
        state["squares"][members] += np.minimum(np.stack([clipped**2, z * z], axis=1), 1e12)
        state["absolute"][members] += np.minimum(np.abs(u), 1e6)
        state["noise"][members] += ((r - self.drift) / self.width[:, None]) ** 2


def coefficients(state: dict[str, Any], member: int) -> tuple[Floats, Floats, Floats]:
    """Return the shift of r by the features [k, n], its standard errors [k, n], and the scale of the rest [n]."""
    seen, inverse = state["absolute"].shape[1], np.linalg.inv(state["gram"][member])
    beta = inverse @ state["cross"][member][:, seen:]
    scale = np.sqrt(state["noise"][member] / max(1.0, state["awake"][member])) + 1e-300
    return beta, np.sqrt(np.diag(inverse))[:, None] * scale, scale


def features(ladder: SimulatorLadder, view: Floats, action: Floats) -> Floats:
    """Return the features (1, view, action) of errors, of order 1."""
    low, high = ladder.actions.low, ladder.actions.high
    half = np.maximum((high - low) / 2, 1e-12)
    parts = (
        np.clip((view - ladder.centre) / ladder.spread, -1e3, 1e3),
        (action - (low + high) / 2) / half,
    )
    return np.concatenate([np.ones((*view.shape[:-1], 1)), *parts], axis=-1)


def in_units(ladder: SimulatorLadder, phi: Floats) -> Floats:
    """Return view and action of features, in the units of the user."""
    low, high, seen = ladder.actions.low, ladder.actions.high, ladder.spread.size
    view, action = phi[:, 1 : 1 + seen], phi[:, 1 + seen :]
    return np.concatenate(
        [ladder.centre + view * ladder.spread, (low + high) / 2 + action * (high - low) / 2], axis=1
    )

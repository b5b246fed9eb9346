"""What an agent on a box has learned: its rows, and the ellipsoid of all candidates."""

from __future__ import annotations

import math

import numpy as np

from occamrl.contracts import Floats
from occamrl.runs.box_system import BoxSystem
from occamrl.runs.inexact import ERRORS, ROWS, InexactState, Seen, spent
from occamrl.runs.phases import PhaseWalk


class BoxStatistics:
    """The statistics of an agent that has these attributes."""

    system: BoxSystem
    walk: PhaseWalk
    temperature: float  # c
    level: float  # of the agent
    norm_bound: float
    lam: float | str

    @property
    def seen(self) -> Seen:
        """All rows so far."""
        state: InexactState = self.walk.state
        return state.seen

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.seen.sums[ROWS])

    @property
    def squared_errors(self) -> float:
        """The sum of e_t^2."""
        return float(self.seen.sums[ERRORS])

    @property
    def regularization(self) -> float:
        """The lambda of the ellipsoid of all candidates."""
        return self.system.dimension / (4.0 * self.norm_bound**2) if isinstance(self.lam, str) else float(self.lam)

    @property
    def sigma(self) -> Floats:
        """The regression matrix of all rows so far, weighted by c."""
        return np.asarray(self.temperature * self.seen.gram + self.regularization * np.eye(self.system.dimension))

    @property
    def theta(self) -> Floats:
        """The ridge estimate of all rows so far (M8)."""
        return np.asarray(np.linalg.solve(self.sigma, self.temperature * self.seen.xy))

    @property
    def squared_radius(self) -> float:
        """The radius beta after all rows so far, of the ellipsoid of all candidates."""
        logdet = float(np.linalg.slogdet(self.sigma / self.regularization)[1])
        noise = 0.25 * (logdet + 2.0 * math.log(1.0 / self.level))
        return noise + spent(self.temperature, self.squared_errors) + self.regularization * self.norm_bound**2

    def row_error(self, t: int) -> float:
        """Return e_t of row t, from 1."""
        return self.system.row_error(t, self.level)

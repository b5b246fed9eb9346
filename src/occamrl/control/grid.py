r"""Simulators on a grid: draws at every vertex, spread onto the corners of the cell that they fall into.

With draws :math:`y_1, \dots, y_D` of a simulator at vertex s under a, and the weights lambda of
interpolation, the member's kernel is :math:`\hat P(v|s,a) = \frac1D\sum_i\lambda_v(y_i)`, mixed
with 1/(D + 1) of the uniform law over the vertices that any member reached: one more draw, which
may fall wherever one of them goes. Draws that leave the box are put on its edge. All members use
the same random numbers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from occamrl.addresses import generator
from occamrl.control.ladder import Choices, SimulatorLadder, called, checked, label_of
from occamrl.control.vertices import Grid
from occamrl.envs.wrapper import Discretiser
from occamrl.errors import ParameterError, ShapeError, require_integer
from occamrl.models.families import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Known

_STARTS = 1000  # first states that are drawn


class GridError(NamedTuple):
    """How V*_1 of the first member changes, at most over the vertices and in the unit of the rewards."""

    grid: float  # against a grid twice as coarse: an error of order p is this over 2^p - 1, so p = 1 gives the number
    draws: float  # against other draws of the same number, which the first difference contains, too
    outside: float  # the share of all draws that left the box


class OnGrid:
    """What :meth:`SimulatorLadder.on_grid` returns: a finite ladder and problem on the vertices of a grid.

    ``ladder`` is for any learner of lists; ``mdp(member)`` and ``known`` have rewards that are
    averaged over the draws of all members, for each step from s to v; ``discretiser`` is for a Box
    environment; ``error`` is measured.

    **Kernels are estimated**, so that Occam's guarantee does not hold exactly: its likelihood takes
    them for exact, the right member errs by up to about (successors)/(2 draws) nats a step, and is
    refused at last. Make more draws than a pair (s, a) will have visits. A vertex that a member's
    draws missed is no wrong zero where those of another reached it; where none did, it is
    impossible for all. And a Box environment seen at vertices is not Markov. Where proofs are
    wanted, take :func:`occamrl.control.vertices.discretise` with a rule for the noise, or
    OccamControl, which tests the simulators themselves; for ARLGen, which judges by value rows,
    only the error of the mean of V counts.
    """

    def __init__(
        self, simulators: SimulatorLadder, grid: Grid, actions: Any, draws: int, seed: int
    ) -> None:
        self.grid, self.actions, self._simulators = grid, Choices(actions).values, simulators
        self._draws, self._seed = (
            require_integer("draws", draws, 2),
            require_integer("seed", seed, 0),
        )
        if self.actions.shape[1] != simulators.actions.dimension:
            got, expected = (
                f"{self.actions.shape[1]} numbers each",
                f"{simulators.actions.dimension}, as the ladder's",
            )
            raise ShapeError("actions", got=got, expected=expected)
        drawn = [self._draw(member) for member in simulators.members]
        reached: Any = sum(law for law, _, _ in drawn)
        earned: Any = sum(money for _, money, _ in drawn)
        where = reached.astype(bool).astype(float)
        floor = sp.diags_array(1.0 / (where.sum(axis=1) * (draws + 1.0))) @ where
        self.kernels = [
            sp.csr_array(draws / (draws + 1.0) * law + floor) for law, *_ in drawn
        ]  # each (S*A, S)
        ends = np.array([each[2] for each in drawn])
        low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
        self.reward_range = (low, high if high > low else low + 1.0)
        self.outside = float(ends[:, 2].mean())
        self.reward = sp.csr_array(
            earned.multiply(reached.power(-1.0))
        )  # of a step from s to v, the mean of the draws
        self.reward.data = np.clip(self.reward.data, low, high)
        about: dict[str, Any] = {"names": simulators.names, "draws": self._draws}
        self.ladder = Ladder.of_levels(FiniteFamily(self.kernels), simulators.level, **about)

    def _draw(self, member: Any) -> tuple[Any, Any, tuple[float, float, float]]:
        """Return a member's kernel, the same times rewards, and of all draws the least and largest reward and share."""
        grid, rng, rows, found = self.grid, generator(self._seed, "grid"), [], []
        states = np.repeat(grid.vertices, self._draws, axis=0)
        for a, action in enumerate(self.actions):
            chosen = np.tile(action, (len(states), 1))
            after = called(member, states, chosen, rng, label_of(member))
            money = checked(
                "reward", self._simulators.reward, (states, chosen, after), (len(states),)
            )
            inside = np.where(grid.circle, after, np.clip(after, grid.low, grid.high))
            vertex, weight = grid.corners(inside)
            pair = np.repeat(np.arange(grid.size) * len(self.actions) + a, self._draws)
            pair = np.repeat(pair, vertex.shape[1])
            rows.append((pair, vertex.ravel(), weight.ravel(), (weight * money[:, None]).ravel()))
            found.append((money.min(), money.max(), grid.outside(after).mean()))
        pair, vertex, weight, money = (np.concatenate(each) for each in zip(*rows, strict=True))
        cells, shape = (
            (pair[weight > 0.0], vertex[weight > 0.0]),
            (grid.size * len(self.actions), grid.size),
        )
        law, earned = (
            sp.csr_array((each[weight > 0.0] / self._draws, cells), shape=shape)
            for each in (weight, money)
        )
        least, most, left = np.array(found).T
        return law, earned, (float(least.min()), float(most.max()), float(left.mean()))

    def mdp(self, member: int = 0) -> FiniteMDP:
        """Return the problem whose truth is a member; episodes begin at the corners of the cells of first states."""
        rng, simulators = generator(self._seed, "start"), self._simulators
        starts = [
            simulators.first_state(rng) for _ in range(_STARTS if callable(simulators.start) else 1)
        ]
        vertex, weight = self.grid.corners(starts)
        initial = np.bincount(vertex.ravel(), weight.ravel(), self.grid.size) / len(starts)
        kernel = self.kernels[require_integer("member", member, 0, maximum=len(self.kernels) - 1)]
        about: dict[str, Any] = {"horizon": simulators.horizon, "reward_range": self.reward_range}
        return FiniteMDP(transition=kernel, reward=self.reward, initial_state=initial, **about)

    @cached_property
    def known(self) -> Known:
        """What a learner knows, whoever is true; ``known.without_rewards`` where rewards vary within a cell."""
        return self.mdp().known

    @property
    def discretiser(self) -> Discretiser:
        """For ``learn(..., discretiser=...)``: a Box environment is seen at the nearest vertex, outside on the edge.

        Let observations on a circle come between half a cell below ``low`` and half a cell below
        ``high``.
        """
        edges = []
        for low, step, m, circle in zip(*self._axes, strict=True):
            edges.append((low + step * (np.arange(m + 1) - 0.5)).tolist())
            edges[-1][:: int(m)] = edges[-1][:: int(m)] if circle else [-np.inf, np.inf]
        return Discretiser(edges)

    @cached_property
    def error(self) -> GridError:
        """The measured error, from a grid twice as coarse and from other draws."""
        points = [
            int(m) // 2 if circle else (int(m) + 1) // 2
            for _, _, m, circle in zip(*self._axes, strict=True)
        ]
        if min(points) < 2:
            raise ParameterError(
                "points", got=self.grid.points, expected="3 or more, 4 on a circle, to be halved"
            )
        coarse = OnGrid(
            self._simulators,
            replace(self.grid, points=points),
            self.actions,
            self._draws,
            self._seed,
        )
        other = OnGrid(self._simulators, self.grid, self.actions, self._draws, self._seed + 1)
        found = []
        for each in (self, coarse, other):
            values = each.known.unit.total(each.mdp().optimal_values[0], each.known.horizon)
            found.append(each.grid.interpolate(values, self.grid.vertices))
        gaps = [float(np.abs(values - found[0]).max()) for values in found[1:]]
        return GridError(grid=gaps[0], draws=gaps[1], outside=self.outside)

    @property
    def _axes(self) -> tuple[Any, ...]:
        return self.grid.low, self.grid.spacing, self.grid.points, self.grid.circle

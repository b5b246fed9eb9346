r"""Simulators on a grid: draws at every vertex, spread onto the corners of the cell of each.

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
from occamrl.control.ladder import SimulatorLadder
from occamrl.control.system import Choices
from occamrl.control.vertices import Grid
from occamrl.envs.wrapper import Discretiser
from occamrl.errors import ParameterError, ShapeError, require_integer
from occamrl.evidence.simulated import label_of
from occamrl.evidence.simulator_contract import call_checked, step_checked
from occamrl.models.families import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Known, Simulator

_STARTS = 1000  # first states that are drawn


class GridError(NamedTuple):
    """How V*_1 of the first member changes, at most over the vertices, in the rewards' unit.

    An error of order p is the difference of grids over 2^p - 1, so p = 1 gives the number itself.
    """

    grid: float  # against a grid twice as coarse
    draws: float  # against other draws of the same number, which the first one contains, too
    outside: float  # the share of all draws that left the box


class Drawn(NamedTuple):
    """What the draws of a member at every vertex and action say."""

    law: sp.csr_array[np.float64]  # (S*A, S) shares of draws by vertex
    earned: sp.csr_array[np.float64]  # the same times rewards
    least: float  # reward
    largest: float  # reward
    outside: float  # the share of draws that left the box


class OnGrid:
    """What :meth:`SimulatorLadder.on_grid` returns: a finite ladder and problem on the vertices.

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
        self.grid = grid
        self.actions = Choices(actions).values
        self._simulators = simulators
        self._draws = require_integer("draws", draws, 2)
        self._seed = require_integer("seed", seed, 0)
        if self.actions.shape[1] != simulators.actions.dimension:
            raise ShapeError(
                "actions",
                got=f"{self.actions.shape[1]} numbers each",
                expected=f"{simulators.actions.dimension}, as the ladder's",
            )
        drawn = [self._draw(member) for member in simulators.members]
        # Stubs of sparse arrays know no sums along an axis, nor powers below zero.
        reached: Any = sum(member.law for member in drawn)
        earned: Any = sum(member.earned for member in drawn)
        possible = reached.astype(bool).astype(float)
        floor = sp.diags_array(1.0 / (possible.sum(axis=1) * (draws + 1.0))) @ possible
        self.kernels = []  # each (S*A, S)
        for member in drawn:
            self.kernels.append(sp.csr_array(draws / (draws + 1.0) * member.law + floor))
        low = min(member.least for member in drawn)
        high = max(member.largest for member in drawn)
        self.reward_range = (low, high if high > low else low + 1.0)
        self.outside = float(np.mean([member.outside for member in drawn]))
        # The reward of a step from s to v is the mean of the draws.
        self.reward = sp.csr_array(earned.multiply(reached.power(-1.0)))
        self.reward.data = np.clip(self.reward.data, low, high)
        self.ladder = Ladder.of_levels(
            FiniteFamily(self.kernels),
            simulators.level,
            names=simulators.names,
            draws=self._draws,
        )

    def _draw(self, member: Simulator) -> Drawn:
        """Draw from a member at every vertex and action."""
        grid = self.grid
        rng = generator(self._seed, "grid")
        states = np.repeat(grid.vertices, self._draws, axis=0)
        rows = []
        rewards = []
        outside = []
        for a, action in enumerate(self.actions):
            chosen = np.tile(action, (len(states), 1))
            following = step_checked(member, states, chosen, rng, label_of(member))
            arguments = (states, chosen, following)
            reward = call_checked("reward", self._simulators.reward, arguments, (len(states),))
            inside = np.where(grid.circle, following, np.clip(following, grid.low, grid.high))
            vertex, weight = grid.corners(inside)
            pairs = np.repeat(np.arange(grid.size) * len(self.actions) + a, self._draws)
            pair = np.repeat(pairs, vertex.shape[1])
            earned = weight * reward[:, None]
            rows.append(np.stack([pair, vertex.ravel(), weight.ravel(), earned.ravel()]))
            rewards.append(reward)
            outside.append(grid.outside(following).mean())
        pair, vertex, weight, earned = np.concatenate(rows, axis=1)
        kept = weight > 0.0
        return Drawn(
            law=self._matrix(pair[kept], vertex[kept], weight[kept]),
            earned=self._matrix(pair[kept], vertex[kept], earned[kept]),
            least=float(np.min(rewards)),
            largest=float(np.max(rewards)),
            outside=float(np.mean(outside)),
        )

    def _matrix(self, pair: Floats, vertex: Floats, amount: Floats) -> sp.csr_array[np.float64]:
        """Return the means of amounts over the draws by pair and vertex (S*A, S)."""
        cells = pair.astype(np.int64), vertex.astype(np.int64)
        shape = self.grid.size * len(self.actions), self.grid.size
        return sp.csr_array((amount / self._draws, cells), shape=shape)

    def mdp(self, member: int = 0) -> FiniteMDP:
        """Return the problem whose truth is a member.

        Episodes begin at the corners of the cells of first states.
        """
        require_integer("member", member, 0, maximum=len(self.kernels) - 1)
        simulators = self._simulators
        rng = generator(self._seed, "start")
        count = _STARTS if callable(simulators.start) else 1
        starts = [simulators.first_state(rng) for _ in range(count)]
        vertex, weight = self.grid.corners(starts)
        return FiniteMDP(
            transition=self.kernels[member],
            reward=self.reward,
            initial_state=np.bincount(vertex.ravel(), weight.ravel(), self.grid.size) / count,
            horizon=simulators.horizon,
            reward_range=self.reward_range,
        )

    @cached_property
    def known(self) -> Known:
        """What a learner knows, whoever is true.

        ``known.without_rewards`` where rewards vary within a cell.
        """
        return self.mdp().known

    @property
    def discretiser(self) -> Discretiser:
        """For ``learn(..., discretiser=...)``: a Box environment is seen at the nearest vertex.

        Outside it is seen on the edge. Let observations on a circle come between half a cell below
        ``low`` and half a cell below ``high``.
        """
        grid = self.grid
        edges = []
        for low, distance, count, turns in zip(
            grid.low, grid.spacing, grid.points, grid.circle, strict=True
        ):
            middles = (low + distance * (np.arange(count + 1) - 0.5)).tolist()
            if not turns:
                middles[0] = -np.inf
                middles[-1] = np.inf
            edges.append(middles)
        return Discretiser(edges)

    @cached_property
    def error(self) -> GridError:
        """The measured error, from a grid twice as coarse and from other draws."""
        points = []
        for count, turns in zip(self.grid.points, self.grid.circle, strict=True):
            points.append(count // 2 if turns else (count + 1) // 2)
        if min(points) < 2:
            raise ParameterError(
                "points", got=self.grid.points, expected="3 or more, 4 on a circle, to be halved"
            )
        rough = replace(self.grid, points=points)
        coarse = OnGrid(self._simulators, rough, self.actions, self._draws, self._seed)
        other = OnGrid(self._simulators, self.grid, self.actions, self._draws, self._seed + 1)
        values = self._values(self)
        return GridError(
            grid=float(np.abs(self._values(coarse) - values).max()),
            draws=float(np.abs(self._values(other) - values).max()),
            outside=self.outside,
        )

    def _values(self, other: OnGrid) -> Floats:
        """Return V*_1 on another grid at the vertices of this one, in the rewards' unit."""
        known = other.known
        values = known.unit.total(other.mdp().optimal_values[0], known.horizon)
        return other.grid.interpolate(values, self.grid.vertices)

r"""Plans from a log alone, and what they would have earned: an estimate, cross-fitted.

One half of the units (episodes, or pieces of a log that has few) makes a plan, the other half a
table of counts (``models/tables.py``) in which it is compared with what was done, and then the
other way round. With V and Q the values of the plan in that table, what it earns more than an
episode that did :math:`a_t` in :math:`s_t` is

.. math:: \sum_t \big(V_t(s_t) - Q_t(s_t, a_t)\big),

the performance difference lemma: no rule has to be guessed by which actions were chosen. The spread
is that of draws of the units that compare, with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from occamrl.addresses import generator
from occamrl.arrays import Bools, Floats, Ints
from occamrl.bellman import Kernel, lookahead
from occamrl.logs.repairs import Steps
from occamrl.models.tables import TableRows, careful_plan, count_table

_DRAWS = 200  # of the units that compare
_PIECES = 20  # of a log that has fewer episodes
_MOST_UNITS = 400
_LONGEST = 100  # steps that a plan looks ahead
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Plans:
    """The steps of a log on states in which plans are compared."""

    rows: TableRows
    horizon: int  # steps that a plan looks ahead
    forever: bool  # whether episodes are longer, and a plan does the same at every step
    in_pieces: bool  # whether units are pieces of a log that has few episodes
    length: float  # rows of an episode on average; of a log in pieces the horizon

    @classmethod
    def of(
        cls, steps: Steps, paid: Bools, state: Ints, following: Ints, states: int, actions: int
    ) -> Plans:
        """Return the steps of a log that have a reward, by their states and next ones."""
        longest = int(steps.step.max()) + 1
        horizon = min(longest, _LONGEST)
        whole = np.unique(steps.episode, return_inverse=True)[1]
        units = int(whole[-1]) + 1
        in_pieces = units < _PIECES
        length = state.size / units
        most = _MOST_UNITS
        if in_pieces:
            whole = np.arange(state.size)
            units = state.size
            length = float(horizon)
            most = _PIECES
        rows = TableRows(
            unit=(whole * min(units, most) // units)[paid],
            step=steps.step[paid],
            state=state[paid],
            action=steps.action[paid],
            next_state=following[paid],
            reward=steps.reward[paid],
            first=np.flatnonzero(np.diff(whole[paid], prepend=-1)),
            states=states,
            actions=actions,
            units=min(units, most),
        )
        return cls(rows, horizon, longest > _LONGEST, in_pieces, length)

    @cached_property
    def _sizes(self) -> Floats:
        """How many episodes the rows of each unit stand for [units]."""
        return np.bincount(self.rows.unit, minlength=self.rows.units) / self.length

    @cached_property
    def _earned(self) -> Floats:
        """What each unit earned [units]."""
        rows = self.rows
        return np.bincount(rows.unit, rows.reward, rows.units).astype(np.float64)

    @cached_property
    def _done(self) -> sp.csr_array:
        """How often what was done at a step in a state [units, H*(S+1)*A]."""
        rows = self.rows
        pairs = (rows.states + 1) * rows.actions
        step = np.zeros_like(rows.step) if self.forever else rows.step
        place = step * pairs + rows.state * rows.actions + rows.action
        shape = (rows.units, self.horizon * pairs)
        return sp.csr_array((np.ones(place.size), (rows.unit, place)), shape=shape)

    @property
    def earned(self) -> float:
        """What the log earned per episode, or, if it has few, in as many steps as a plan has."""
        return float(self._earned.sum() / self._sizes.sum())

    def plan(self, rows: TableRows, weight: Floats) -> Ints:
        """Return a careful plan [H, S+1] from some units of rows on states of any kind."""
        policy = careful_plan(count_table(rows, weight), self.horizon)
        if self.forever:
            return np.repeat(policy[:1], self.horizon, axis=0)
        return policy

    def gains(self, group: Ints) -> Floats:
        """Return what plans that look at groups of states earn more per episode than was earned.

        First as it was, then by draws of the units that compare.
        """
        rows = self.rows
        groups = int(group.max()) + 1
        coarse = rows.merge(groups, group)
        draw = generator(0, "columns")
        gains = np.zeros(_DRAWS + 1)
        for fold in (0, 1):
            makes = np.arange(rows.units) % 2 == fold
            compares = np.flatnonzero(~makes)
            policy = self.plan(coarse, makes.astype(np.float64))[:, np.append(group, groups)]
            for b in range(_DRAWS + 1):
                drawn = draw.choice(compares, compares.size) if b else compares
                weight = np.bincount(drawn, minlength=rows.units).astype(np.float64)
                lost = self._done @ _losses(count_table(rows, weight).kernel, policy)
                gains[b] += 0.5 * float(weight @ lost) / max(float(weight @ self._sizes), _TINY)
        # what is no gain may differ from 0 in its last digits
        gains[np.abs(gains) <= _TINY * np.abs(self._earned).max()] = 0.0
        return gains


def _losses(kernel: Kernel, policy: Ints) -> Floats:
    """Return V - Q of a policy [H*S*A]: what each action loses at a step, followed by it."""
    horizon, states = policy.shape
    losses = np.zeros((horizon, states, kernel.reward.size // states))
    values = np.zeros(states)
    for h in reversed(range(horizon)):
        q = lookahead(kernel, values)
        values = q[np.arange(states), policy[h]]
        losses[h] = values[:, None] - q
    return losses.ravel()

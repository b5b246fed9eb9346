"""Random MDPs: nothing to exploit but the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from occamrl.errors import HorizonError, ParameterError, require_number
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.seeding import stream


@dataclass(frozen=True, kw_only=True)
class RandomMDP:
    """Rows of the kernel drawn from a Dirichlet distribution, rewards r(s, a) uniform in [0, 1].

    Parameters
    ----------
    states, actions, horizon
        S, A, H.
    concentration
        The parameter of the symmetric Dirichlet distribution: small for nearly deterministic rows, large for nearly
        uniform ones.
    successors
        If given, only that many next states, drawn without replacement, are possible at each (s, a), and the kernel is
        kept sparse.
    seed
        Instances with equal parameters are equal.
    """

    states: int = 6
    actions: int = 3
    horizon: int = 8
    concentration: float = 1.0
    successors: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("states", self.states, 1)
        require_integer("actions", self.actions, 1)
        require_integer("horizon", self.horizon, 1, HorizonError)
        require_number("concentration", self.concentration, 0.0, np.inf, open_low=True)
        require_integer("seed", self.seed, 0)
        if self.successors is not None and require_integer("successors", self.successors, 1) > self.states:
            raise ParameterError("successors", got=self.successors, expected=f"at most states = {self.states}")

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in state 0."""
        reward = stream(self.seed, "random_mdp", "reward").random((self.states, self.actions))
        width = self.states if self.successors is None else self.successors
        pairs = self.states * self.actions
        rows = stream(self.seed, "random_mdp", "transition").dirichlet(np.full(width, self.concentration), pairs)
        if self.successors is None:
            transition = rows.reshape(self.states, self.actions, self.states)
            return FiniteMDP(transition=transition, reward=reward, horizon=self.horizon)
        from scipy.sparse import csr_array  # here, for SciPy takes long to import and the dense case has no need of it

        draw = stream(self.seed, "random_mdp", "successors")
        targets = np.array([draw.choice(self.states, width, replace=False, shuffle=False) for _ in range(pairs)])
        start = np.arange(pairs + 1) * width
        sparse = csr_array((rows.ravel(), targets.ravel(), start), shape=(pairs, self.states))
        return FiniteMDP(transition=sparse, reward=reward, horizon=self.horizon)

    @classmethod
    def examples(cls) -> Sequence[RandomMDP]:
        """Small instances, for the contract checks."""
        return [cls(), cls(states=9, actions=2, horizon=4, concentration=0.2, successors=3, seed=1)]

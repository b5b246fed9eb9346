"""UCRL-VTR on the smallest class of a ladder that the data do not contradict (M25): selection at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occamrl.errors import ParameterError
from occamrl.learners._planned import is_planned
from occamrl.learners.finite_rows import CLASS, CURRENT, NEXT_TEST
from occamrl.learners.rewards import Rewards
from occamrl.learners.ucrl_vtr import UCRLVTR, pending_rows
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.protocols import Known, Learner


@dataclass(frozen=True, kw_only=True, eq=False)
class UCRLVTRNested(Learner):
    """Play F_m with m = min {m : F_m meets B}, B the sharp set over F_M with the prior of M25.

    Parameters
    ----------
    ladder : Ladder
    delta : float
        The true kernel stays in B at all times, hence its class is never rejected, with probability 1 - delta.
    weights, replan, scale, rewards, kernel
        As in :class:`UCRLVTR`. With unknown rewards or one kernel per step the classes are tested with every plan, and
        the first class is 1.
    test : float
        The classes are tested when the data have grown by the factor 1 + test; 0: before every episode.
    start : int
        The class to play before the first test, 1 or M; the first test comes after 1 episode, or 2 for M.
    safe : bool
        Be optimistic over all of B; the class is reported, not imposed. Needs no separability.
    guard : bool
        Be optimistic over all of B in the episodes 1, 4, 9, 16, ..., so that no class escapes the test for ever.
    """

    ladder: Ladder
    delta: float = 0.05
    weights: str = "range"
    replan: float = 0.0
    scale: float = 1.0
    test: float = 0.1
    start: int = 1
    safe: bool = False
    guard: bool = False
    rewards: Rewards = "known"
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        if not isinstance(self.ladder, Ladder):
            raise ParameterError("ladder", got=type(self.ladder).__name__, expected="a Ladder")
        if not (self.test >= 0.0 and np.isfinite(self.test)):
            raise ParameterError("test", got=self.test, expected="a finite number >= 0")
        if self.start not in (1, self.ladder.classes):
            raise ParameterError("start", got=self.start, expected=f"1 or M = {self.ladder.classes}")
        _ = self.base  # checks the other parameters
        if self._planned and self.start != 1:
            raise ParameterError("start", got=self.start, expected="1 with unknown rewards or one kernel per step")

    @property
    def _planned(self) -> bool:
        return is_planned(self.rewards, self.kernel)

    @property
    def base(self) -> UCRLVTR:
        """The same learner without classes."""
        return UCRLVTR(
            family=self.ladder.family,
            delta=self.delta,
            weights=self.weights,
            replan=self.replan,
            scale=self.scale,
            prior=self.ladder.prior,
            rewards=self.rewards,
            kernel=self.kernel,
        )

    def model(self, known: Known) -> Any:
        """Return the constants of the compiled functions: a FiniteModel, or a PlannedModel."""
        if self._planned:
            return self.base.model(known)._replace(
                level=self.ladder.level, restrict=not self.safe, guard=bool(self.guard)
            )
        return self.base.model(known)._replace(
            level=self.ladder.level, restrict=not self.safe, test=float(self.test), guard=bool(self.guard)
        )

    def begin(self, known: Known) -> Any:
        """Return a fresh state: a FiniteState, or a PlannedState."""
        state = self.base.begin(known)
        if self._planned:
            return state
        cells = known.horizon * known.states
        state.counters[[CLASS, NEXT_TEST]] = self.start - 1, 1 if self.start == 1 else 2
        if not self.safe:
            state.counters[CURRENT] = self.ladder.sizes[self.start - 1]
        return state._replace(pending=pending_rows(2 * cells, known.horizon, known.states))

    def reserve(self, state: Any, episodes: int) -> Any:
        """Return a state whose table of rows has room for ``episodes`` more episodes."""
        return self.base.reserve(state, episodes)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [cls(ladder=ladder), cls(ladder=ladder, start=3, test=0.0, guard=True, replan=0.1)]


def example_ladder(mdp: Any) -> Ladder:
    """Return a ladder of three classes, the problem's kernel in the second."""
    kernel = mdp.kernel() if mdp.stationary else mdp.kernel()[0]
    others = np.random.default_rng(3).dirichlet(np.ones(mdp.states), size=(7, mdp.states, mdp.actions))
    stack = np.concatenate([others[:1], kernel[None], others[1:]])
    return Ladder([FiniteFamily(stack[:1]), FiniteFamily(stack[:3]), FiniteFamily(stack)])

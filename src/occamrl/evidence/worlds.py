r"""Finite models that the data leave possible: to act in, to plan in, and to value policies in.

With probability :math:`1 - \delta` the truth is among the worlds, at all times. So for every policy
at once :math:`[\min, \max]` of :math:`V_P^\pi` over the worlds P holds what the policy is worth,
and two policies are compared world by world, which is sharper than subtracting intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from occamrl import bellman
from occamrl.arrays import Bools, Floats, Ints
from occamrl.policies import as_policy
from occamrl.protocols import (
    DoubtfulPair,
    Evidence,
    Judgement,
    Known,
    Outcomes,
    State,
    Worth,
)

Acting = Literal["optimism", "sampling", "fit"]

_CANDIDATES = 12  # policies among which one is recommended
_COMPARED = 64  # worlds in which they are compared
_DOUBTFUL = 3  # pairs that are named
_GAINED = 1e-6  # the share of a worth that a better action has to promise at least


class FiniteWorld(NamedTuple):
    """A finite model that is possible."""

    kernels: bellman.Kernels
    level: int  # the first class, from 0, that contains it
    likelihood: float


class Choice(NamedTuple):
    """What an agent plays next."""

    kernels: bellman.Kernels
    source: int  # a member of a list, or what else competes; see the evidence
    lasts: Literal["member", "draw", "episode"]  # by what the length of a plan grows
    parameters: Mapping[str, float] = {}  # of the kernels, if real


class FiniteEvidence(Evidence, Protocol):
    """Evidence about finite models: it also chooses what to play."""

    def choose(
        self,
        state: State,
        judgement: Judgement,
        classes: int,
        acting: Acting,
        law: Floats,
        draw: np.random.Generator,
    ) -> Choice:
        """Choose among what is alive of the first classes; if nothing is, by what still fits.

        ``law`` [S] is that of the first state, under which values are compared.
        """


class CountedEvidence(FiniteEvidence, Protocol):
    """Evidence by counts of outcomes, which alone gives single outcomes a probability."""

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes that can be told apart, by pairs of the model."""

    def fitted(self, state: State, m: int) -> Floats:
        """Return the probabilities of the outcomes [O] under the best member of class m, from 0."""

    def fit_number(self, state: State, m: int) -> int:
        """Return a number for that member: another one when another takes its place."""

    def refitted(self, count: Floats, m: int) -> Floats:
        """Return the probabilities [O] under the member of class m that fits some counts best."""

    def outcome_of(
        self, step: int, s: int, a: int, next_state: int, reward: float
    ) -> tuple[int, int]:
        """Return pair and outcome of a step; -1 for what is not listed, or where nothing moves."""


def _positive(kernel: bellman.Kernel) -> Any:  # a matrix of bool, dense or sparse
    """Return which entries of a kernel are positive."""
    # SciPy adds up entries of one place where they are, and a kernel's cannot be written
    return kernel.matrix.copy() > 0.0


@dataclass(eq=False)
class FiniteWorlds:
    """The finite models that are possible, most of them given by number, others by a search."""

    known: Known
    law: Floats  # [S] of the first state
    judgement: Judgement
    levels: Ints  # [n] of the worlds that are listed
    likelihoods: Floats  # [n]
    kernels: Callable[[int], bellman.Kernels]  # of a world that is listed, by its number
    best_kernels: Callable[[int], bellman.Kernels]  # of the best of a class, from 0, alive or not
    # Those of further worlds, found by a search, in which a worth may be extreme.
    extreme_kernels: (
        Callable[[Callable[[bellman.Kernels], float]], list[bellman.Kernels]] | None
    ) = None
    _best: dict[int, FiniteWorld] = field(default_factory=dict, init=False, repr=False)

    exact = True

    def sized(self, runs: int, maximum: int | None) -> FiniteWorlds:
        """Return these worlds as they are: returns are exact."""
        return self

    def rule(self, policy: object) -> NDArray[Any]:
        """Return a policy in any form as actions [H, S] or probabilities [H, S, A]."""
        return as_policy(policy, self.known)

    def world(self, index: int) -> FiniteWorld:
        """Return a world that is listed."""
        likelihood = float(self.likelihoods[index])
        return FiniteWorld(self.kernels(index), int(self.levels[index]), likelihood)

    def best(self, m: int) -> FiniteWorld:
        """Return the most plausible world of class m, from 0, alive or not."""
        if m not in self._best:
            self._best[m] = FiniteWorld(self.best_kernels(m), m, np.nan)
        return self._best[m]

    def some(self, count: int) -> list[FiniteWorld]:
        """Return the best world of the class chosen, and others spread by likelihood."""
        order = np.argsort(-self.likelihoods)
        ranks = np.unique(np.linspace(0, order.size - 1, min(order.size, count)).astype(int))
        worlds = [self.best(self.judgement.chosen - 1)]
        if not self.judgement.misspecified:
            worlds += [self.world(int(index)) for index in order[ranks]]
        return worlds

    def policy(self, world: FiniteWorld) -> Ints:
        """Return the optimal policy of a world, actions [H, S]."""
        return bellman.solve(world.kernels, self.known.states, self.known.horizon)[1]

    def returns(self, policy: NDArray[Any], world: FiniteWorld) -> Floats:
        """Return the mean return of an episode, exactly, in the user's unit [1]."""
        return np.array([self.known.amount(self._value(policy, world.kernels))])

    def _value(self, policy: NDArray[Any], kernels: bellman.Kernels) -> float:
        return float(self.law @ bellman.evaluate(kernels, policy)[0])

    def recommend(self, today: NDArray[Any] | None) -> Ints:
        """Return the policy with the largest guaranteed worth.

        Candidates are the optimal policies of a few worlds, and what is done most often today.
        """
        worlds = self.some(_COMPARED)
        if self.judgement.misspecified:
            return self.policy(worlds[0])
        every = max(1, len(worlds) // _CANDIDATES)
        candidates = [self.policy(world) for world in worlds[::every]]
        if today is not None:
            candidates.append(today.argmax(axis=2))
        # the first of equal policies
        different = list({policy.tobytes(): policy for policy in candidates}.values())
        floors = []
        for policy in different:
            floors.append(min(self._value(policy, world.kernels) for world in worlds))
        return different[int(np.argmax(floors))]

    def range_of(
        self, policy: NDArray[Any], against: NDArray[Any] | None = None
    ) -> tuple[float, float]:
        """Return the least and the largest worth of a policy, or of its difference to another."""

        def worth(world: FiniteWorld) -> Floats:
            returns = self.returns(policy, world)
            if against is None:
                return returns
            return returns - self.returns(against, world)

        return self.extremes(worth)

    def extremes(self, worth: Worth, *, differences: bool = False) -> tuple[float, float]:
        """Return the least and the largest mean of a worth over the worlds."""

        def mean(kernels: bellman.Kernels) -> float:
            return float(worth(FiniteWorld(kernels, 0, np.nan)).mean())

        means = [mean(self.kernels(index)) for index in range(self.levels.size)]
        if self.extreme_kernels is not None:
            means += [mean(kernels) for kernels in self.extreme_kernels(mean)]
        return min(means), max(means)

    @cached_property
    def _chosen(self) -> FiniteWorld:
        return self.best(self.judgement.chosen - 1)

    @cached_property
    def _support(self) -> list[Any]:  # matrices of bool, dense or sparse
        """Which states [S*A, S] may follow a pair in some possible world: once, or by step."""
        support = [_positive(kernel) for kernel in self._chosen.kernels]
        if not self.judgement.misspecified:
            for index in range(self.levels.size):
                for t, kernel in enumerate(self.kernels(index)):
                    support[t] = support[t] + _positive(kernel)
        return support

    def reached(self, policy: Ints | None = None) -> Bools:
        """Return which states [H, S] a policy can come to at a step in some possible world.

        Without a policy, any can come there.
        """
        known = self.known
        reached = np.zeros((known.horizon, known.states), bool)
        visited = self.law > 0.0
        for h in range(known.horizon):
            reached[h] = visited
            if policy is None:
                taken = (visited[:, None] & known.allowed).ravel()
            else:
                taken = np.zeros(known.states * known.actions, bool)
                states = np.flatnonzero(visited)
                taken[states * known.actions + policy[h, states]] = True
            following = self._support[h % len(self._support)][np.flatnonzero(taken)]
            visited = np.asarray(following.sum(axis=0)).ravel() > 0
        return reached & ~known.absorbing

    def doubtful(self, policy: Ints) -> list[DoubtfulPair]:
        """Return pairs that a policy does not take and that may be better in some world.

        What a pair may gain in a world is the sum over steps of the chance to be in its state times
        the advantage of its action, discounted; the world counts in which that is largest.
        """
        if self.judgement.misspecified:
            return []
        states = self.known.states
        number = min(self.levels.size, _COMPARED)
        gained = np.zeros((states, self.known.actions))
        scale = 0.0
        for index in range(number):
            kernels = self.kernels(index)
            values = bellman.evaluate(kernels, policy)
            scale = max(scale, abs(float(self.law @ values[0])))
            here = np.zeros_like(gained)
            for h, visits in enumerate(self.visits(policy, FiniteWorld(kernels, 0, np.nan))):
                q = bellman.lookahead(bellman.at_step(kernels, h), values[h + 1])
                advantage = q - values[h][:, None]
                weight = self.known.discount**h * visits
                here += weight[:, None] * np.maximum(advantage, 0.0)
            gained = np.maximum(gained, here)
        # what the policy takes in the same state, at another step, is tried anyhow
        for actions in policy:
            gained[np.arange(states), actions] = 0.0
        pairs = []
        for pair in np.argsort(-gained, axis=None)[:_DOUBTFUL].tolist():
            s, a = divmod(pair, self.known.actions)
            if gained[s, a] > _GAINED * scale:
                share = float(gained[s, a] / gained.sum())
                state = self.known.state_name(s)
                pairs.append(DoubtfulPair(state, self.known.action_name(a), share))
        return pairs

    def visits(self, policy: Ints, world: FiniteWorld) -> Floats:
        """Return the chance to be in each state at each step [H, S] of a policy in a world."""
        return bellman.visits(world.kernels, policy, self.law, self.known.discount)

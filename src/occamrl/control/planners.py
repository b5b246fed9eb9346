r"""Planning by trying: the cross-entropy method, and model-predictive path integrals.

A planner has one method, ``plan(simulate, reward, state, horizon_left, actions, rng, warm) ->
(action, warm)``:

- ``simulate(states [N, n], actions [N, m], rng) -> next_states`` and ``reward(states, actions, next_states) -> [N]``;
- ``state`` [n], ``horizon_left`` the steps until the end, ``actions`` a :class:`~occamrl.Box` or a list ``.values``;
- ``rng``, the only source of randomness; ``warm``, what the last call of this episode returned, None at its beginning:
  arrays, plain data and NamedTuples, so that a file can hold it. ``acting="optimism"`` reads
  ``warm.value``, the return that the planner counts on.

Where an average over several simulators is planned for, row i of a call is run in simulator i mod
``particles``.

Both planners here keep a law of plans, independent over steps: Gaussian for a Box, probabilities
for a list. They draw candidates from it, run each ``particles`` times, and fit the law to the good
ones, several times over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from occamrl.control.ladder import Actions, Box, Choices, Reward, Simulator
from occamrl.errors import require_integers, require_number
from occamrl.protocols import Floats


class Planner(Protocol):
    """What plans: yours, too."""

    @property
    def plan(
        self,
    ) -> Callable[
        [Simulator, Reward, Floats, int, Actions, np.random.Generator, Any], tuple[Floats, Any]
    ]:
        """The method that returns an action [m] and what to begin with at the next step."""


class Warm(NamedTuple):
    """A law of plans: where the next search begins."""

    law: Floats  # the mean actions [h, m], or the probabilities of the listed actions [h, K]
    value: float  # the return that is counted on


def returns(
    simulate: Simulator,
    reward: Reward,
    state: Floats,
    plans: Floats,
    particles: int,
    rng: np.random.Generator,
) -> Floats:
    """Return the mean return of plans [C, h, m] from a state; plans that lead to no finite return are worth -inf."""
    candidates, steps, _ = plans.shape
    states, total = np.tile(state, (candidates * particles, 1)), np.zeros(candidates * particles)
    for t in range(steps):
        chosen = np.repeat(plans[:, t], particles, axis=0)
        after = simulate(states, chosen, rng)
        total, states = total + reward(states, chosen, after), after
    found = total.reshape(candidates, particles).mean(axis=1)
    return np.where(np.isfinite(found), found, -np.inf)


def drawn(
    actions: Actions, law: Floats, width: Floats, candidates: int, rng: np.random.Generator
) -> Floats:
    """Return candidates, the first of them the middle of the law: actions [C, h, m], or indicators [C, h, K]."""
    if isinstance(actions, Box):
        plans = law + width * rng.normal(size=(candidates, *law.shape))
        plans[0] = law
        return np.clip(plans, actions.low, actions.high)
    steps, kinds = law.shape
    law = 0.9 * law + 0.1 / kinds  # so that none dies out
    below = rng.random((candidates, steps, 1)) > np.cumsum(law, axis=1)
    chosen = np.minimum(below.sum(axis=2), kinds - 1)
    chosen[0] = law.argmax(axis=1)
    return np.asarray(np.eye(kinds)[chosen])


def actions_of(actions: Actions, plans: Floats) -> Floats:
    """Return the actions [..., m] of plans, of which there may be indicators or probabilities [..., K]."""
    if isinstance(actions, Box):
        return np.asarray(np.clip(plans, actions.low, actions.high))
    return np.asarray(actions.values[plans.argmax(axis=-1)])


@dataclass(frozen=True, kw_only=True)
class Trying(ABC):
    """What CEM and MPPI share: draw candidates, run them, weigh them, fit the law, several times over."""

    candidates: int = 64
    iterations: int = 3
    horizon: int = 20  # steps ahead
    particles: int = 4  # runs of each candidate
    width: float = 0.5  # of the first law, in half widths of the Box
    narrow = True  # fit the width, too

    def __post_init__(self) -> None:
        require_integers(self, candidates=2, iterations=1, horizon=1, particles=1)
        require_number("width", self.width, 0.0, np.inf, open_low=True)

    @abstractmethod
    def weigh(self, found: Floats) -> Floats:
        """Return weights of candidates by their returns; they sum to one."""

    def plan(
        self,
        simulate: Simulator,
        reward: Reward,
        state: Floats,
        horizon_left: int,
        actions: Actions,
        rng: np.random.Generator,
        warm: Warm | None,
    ) -> tuple[Floats, Warm]:
        """Return an action and the law of plans."""
        half, value = (actions.high - actions.low) / 2, 0.0
        rest = (actions.low + actions.high) / 2
        if isinstance(actions, Choices):
            rest = np.full(len(actions.values), 1 / len(actions.values))
        law, width = np.tile(rest, (min(self.horizon, horizon_left), 1)), self.width * half
        if warm is not None:  # one step later
            kept = warm.law[1 : len(law) + 1]
            law[: len(kept)] = kept
        for _ in range(self.iterations):
            plans = drawn(actions, law, width, self.candidates, rng)
            found = returns(
                simulate, reward, state, actions_of(actions, plans), self.particles, rng
            )
            weights = self.weigh(found)
            value = float(weights @ np.nan_to_num(found, neginf=-1e300))
            law = np.einsum("c,chk->hk", weights, plans)
            if self.narrow and isinstance(actions, Box):
                width = np.maximum(
                    np.sqrt(np.einsum("c,chk->hk", weights, (plans - law) ** 2)), 0.05 * half
                )
        return actions_of(actions, law[0]), Warm(law, value)


@dataclass(frozen=True, kw_only=True)
class CEM(Trying):
    """The cross-entropy method: fit the law of plans to the best of the candidates (Rubinstein 1999).

    >>> import occamrl as orl
    >>> orl.CEM(candidates=32).elites
    8
    """

    elites: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integers(self, elites=1)

    def weigh(self, found: Floats) -> Floats:
        """Return even weights of the elites."""
        weights, kept = np.zeros(found.size), min(self.elites, found.size)
        weights[np.argsort(-found, kind="stable")[:kept]] = 1 / kept
        return weights


@dataclass(frozen=True, kw_only=True)
class MPPI(Trying):
    """Model-predictive path integrals: weigh candidates by the exponential of their return (Williams et al. 2017).

    >>> import occamrl as orl
    >>> orl.MPPI(temperature=0.1).candidates
    128
    """

    candidates: int = 128
    iterations: int = 1
    temperature: float = 0.2  # in standard deviations of the candidates' returns
    narrow = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("temperature", self.temperature, 0.0, np.inf, open_low=True)

    def weigh(self, found: Floats) -> Floats:
        """Return weights proportional to the exponential of returns."""
        finite = found[np.isfinite(found)]
        if not finite.size:
            return np.full(found.size, 1 / found.size)
        weights = np.exp((found - finite.max()) / (self.temperature * (finite.std() + 1e-12)))
        normed: Floats = weights / weights.sum()
        return normed

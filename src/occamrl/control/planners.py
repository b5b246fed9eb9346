r"""Planning by trying: the cross-entropy method, and model-predictive path integrals.

A planner has one method, ``plan(simulate, reward, state, horizon_left, actions, rng, warm) ->
(action, warm)`` (:class:`occamrl.protocols.Planner`):

- ``simulate(states [N, n], actions [N, m], rng) -> next_states``, a simulator;
- ``reward(states, actions, next_states) -> [N]``;
- ``state`` [n], ``horizon_left`` the steps until the end, ``actions`` a :class:`~occamrl.Box` or a
  list ``.values``;
- ``rng``, the only source of randomness; ``warm``, what the last call of this episode returned,
  None at its beginning: arrays, plain data and NamedTuples, so that a file can hold it.
  ``acting="optimism"`` reads ``warm.value``, the return that the planner counts on.

Where an average over several simulators is planned for, row i of a call is run in simulator i mod
``particles``.

**Common random numbers.** Candidates are compared under the same noise: what a simulator draws for
the rows of a call (a first size of ``len(states)``) is drawn once for each particle and repeated
for all candidates, so that a plan wins by what it does and not by luck. Laws whose parameters are
arrays, other than normal and uniform ones, are drawn row by row.

Both planners here keep a law of plans, independent over steps: Gaussian for a Box, probabilities
for a list. They draw candidates from it, run each ``particles`` times, and fit the law to the good
ones, several times over.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from occamrl.control.system import Actions, Box, Choices
from occamrl.errors import require_integers, require_number
from occamrl.protocols import Floats, RewardFunction, Simulator
from occamrl.protocols import Planner as Planner

_NARROWEST = 0.05  # width of a law of plans, in half widths of the Box
_NO_RETURN = -1e300  # what a plan without a finite return counts for


class CommonNumbers(np.random.Generator):
    """Draws for the rows of a call, candidate after candidate, that are the same for all of them.

    >>> import numpy as np
    >>> rng = CommonNumbers(np.random.default_rng(0), candidates=3, particles=2)
    >>> noise = rng.normal(size=6)
    >>> bool((noise[:2] == noise[2:4]).all() and (noise[:2] == noise[4:]).all())
    True
    """

    def __init__(self, rng: np.random.Generator, candidates: int, particles: int) -> None:
        super().__init__(rng.bit_generator)
        self._candidates = candidates
        self._particles = particles

    def _repeated(self, draw: Callable[..., Any], size: Any, **options: Any) -> Any:
        shape = () if size is None else tuple(np.atleast_1d(size).tolist())
        by_row = any(isinstance(option, (list, np.ndarray)) for option in options.values())
        if by_row or not shape or shape[0] != self._candidates * self._particles:
            return draw(size=size, **options)
        drawn = draw(size=(self._particles, *shape[1:]), **options)
        return np.tile(drawn, (self._candidates, *[1] * (len(shape) - 1)))

    def _standard(self, draw: Callable[..., Any], size: Any, *arrays: Any) -> Any:
        """Draw standard numbers in the shape that parameters have, where no size is asked for."""
        if size is None:
            size = np.broadcast_shapes(*[np.shape(array) for array in arrays]) or None
        return self._repeated(draw, size)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw uniform numbers in [0, 1)."""
        if out is not None:
            return super().random(size, dtype, out)
        return self._repeated(super().random, size, dtype=dtype)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw standard normal numbers."""
        if out is not None:
            return super().standard_normal(size, dtype, out)
        return self._repeated(super().standard_normal, size, dtype=dtype)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw normal numbers."""
        return loc + scale * self._standard(super().standard_normal, size, loc, scale)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Draw uniform numbers in [low, high)."""
        width = np.subtract(high, low)
        return low + width * self._standard(super().random, size, low, high)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw exponential numbers."""
        return scale * self._standard(super().standard_exponential, size, scale)

    def standard_t(self, df: Any, size: Any = None) -> Any:
        """Draw numbers of Student's law."""
        return self._repeated(super().standard_t, size, df=df)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        """Draw Poisson numbers."""
        return self._repeated(super().poisson, size, lam=lam)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Draw binomial numbers."""
        return self._repeated(super().binomial, size, n=n, p=p)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """Draw whole numbers."""
        options = {"low": low, "high": high, "dtype": dtype, "endpoint": endpoint}
        return self._repeated(super().integers, size, **options)


class Warm(NamedTuple):
    """A law of plans: where the next search begins."""

    law: Floats  # the mean actions [h, m], or the probabilities of the listed actions [h, K]
    value: float  # the return that is counted on


@dataclass(frozen=True, kw_only=True)
class SamplingPlanner(ABC):
    """What CEM and MPPI share: draw candidates, run them, weigh them, fit the law, and again."""

    candidates: int = 64
    iterations: int = 3
    horizon: int = 20  # steps ahead
    particles: int = 4  # runs of each candidate
    width: float = 0.5  # of the first law, in half widths of the Box
    seconds: float | None = None  # after which no iteration begins; one is always made
    narrow = True  # fit the width, too

    def __post_init__(self) -> None:
        require_integers(self, candidates=2, iterations=1, horizon=1, particles=1)
        require_number("width", self.width, 0.0, np.inf, open_low=True)
        if self.seconds is not None:
            require_number("seconds", self.seconds, 0.0, np.inf, open_low=True)

    @abstractmethod
    def weigh(self, returns: Floats) -> Floats:
        """Return weights of candidates by their returns; they sum to one."""

    def plan(
        self,
        simulate: Simulator,
        reward: RewardFunction,
        state: Floats,
        horizon_left: int,
        actions: Actions,
        rng: np.random.Generator,
        warm: Warm | None,
    ) -> tuple[Floats, Warm]:
        """Return an action and the law of plans."""
        law = first_law(actions, min(self.horizon, horizon_left), warm)
        half = (actions.high - actions.low) / 2
        width = self.width * half
        value = 0.0
        began = time.perf_counter()
        for iteration in range(self.iterations):
            late = self.seconds is not None and time.perf_counter() - began >= self.seconds
            if iteration and late:
                break
            plans = draw_plans(actions, law, width, self.candidates, rng)
            tried = actions_of(actions, plans)
            returns = mean_returns(simulate, reward, state, tried, self.particles, rng)
            weights = self.weigh(returns)
            value = float(weights @ np.nan_to_num(returns, neginf=_NO_RETURN))
            law = np.einsum("c,chk->hk", weights, plans)
            if self.narrow and isinstance(actions, Box):
                variance = np.einsum("c,chk->hk", weights, (plans - law) ** 2)
                width = np.maximum(np.sqrt(variance), _NARROWEST * half)
        return actions_of(actions, law[0]), Warm(law, value)


@dataclass(frozen=True, kw_only=True)
class CEM(SamplingPlanner):
    """The cross-entropy method: fit the law of plans to the best candidates (Rubinstein 1999).

    >>> import occamrl as orl
    >>> orl.CEM(candidates=32).elites
    8
    """

    elites: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integers(self, elites=1)

    def weigh(self, returns: Floats) -> Floats:
        """Return even weights of the elites."""
        weights = np.zeros(returns.size)
        elites = np.argsort(-returns, kind="stable")[: self.elites]
        weights[elites] = 1 / elites.size
        return weights


@dataclass(frozen=True, kw_only=True)
class MPPI(SamplingPlanner):
    """Model-predictive path integrals: weigh candidates by the exponential of their return.

    Williams et al. 2017.

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

    def weigh(self, returns: Floats) -> Floats:
        """Return weights proportional to the exponential of returns."""
        finite = returns[np.isfinite(returns)]
        if not finite.size:
            return np.full(returns.size, 1 / returns.size)
        scale = self.temperature * (finite.std() + 1e-12)
        weights = np.exp((returns - finite.max()) / scale)
        normed: Floats = weights / weights.sum()
        return normed


def first_law(actions: Actions, steps: int, warm: Warm | None) -> Floats:
    """Return where a search begins: the last law, one step later, and nothing known after it."""
    unknown = (actions.low + actions.high) / 2
    if isinstance(actions, Choices):
        unknown = np.full(len(actions.values), 1 / len(actions.values))
    law = np.tile(unknown, (steps, 1))
    if warm is not None:
        kept = warm.law[1 : steps + 1]
        law[: len(kept)] = kept
    return law


def draw_plans(
    actions: Actions, law: Floats, width: Floats, candidates: int, rng: np.random.Generator
) -> Floats:
    """Return candidates, the first of them the middle of the law.

    They are actions [C, h, m], or indicators of listed actions [C, h, K].
    """
    if isinstance(actions, Box):
        plans = law + width * rng.normal(size=(candidates, *law.shape))
        plans[0] = law
        return np.clip(plans, actions.low, actions.high)
    steps, kinds = law.shape
    # Every action keeps some probability, so that none dies out.
    law = 0.9 * law + 0.1 / kinds
    below = rng.random((candidates, steps, 1)) > np.cumsum(law, axis=1)
    chosen = np.minimum(below.sum(axis=2), kinds - 1)
    chosen[0] = law.argmax(axis=1)
    return np.asarray(np.eye(kinds)[chosen])


def actions_of(actions: Actions, plans: Floats) -> Floats:
    """Return the actions [..., m] of plans, or of the likeliest listed ones [..., K]."""
    if isinstance(actions, Box):
        return np.asarray(np.clip(plans, actions.low, actions.high))
    return np.asarray(actions.values[plans.argmax(axis=-1)])


def mean_returns(
    simulate: Simulator,
    reward: RewardFunction,
    state: Floats,
    plans: Floats,
    particles: int,
    rng: np.random.Generator,
) -> Floats:
    """Return the mean return of plans [C, h, m] from a state, under the same noise.

    It is -inf where it is not finite.
    """
    candidates, steps, _ = plans.shape
    common = CommonNumbers(rng, candidates, particles)
    states = np.tile(state, (candidates * particles, 1))
    total = np.zeros(candidates * particles)
    for step in range(steps):
        chosen = np.repeat(plans[:, step], particles, axis=0)
        next_states = simulate(states, chosen, common)
        total = total + reward(states, chosen, next_states)
        states = next_states
    mean = total.reshape(candidates, particles).mean(axis=1)
    return np.where(np.isfinite(mean), mean, -np.inf)

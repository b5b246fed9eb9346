"""Small problems that several tests share, the numbers that the simulator draws, and the states of learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

from benchmarks import oracle
from occamrl import seeding
from occamrl._core import rng
from occamrl.learners.ucrl_vtr import MEMBER
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Agent, Floats, Known
from occamrl.running.phases import PhaseWalk, Seen
from occamrl.running.result import Result
from occamrl.running.run import run
from occamrl.running.storage import take_apart


def from_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the compiled core, most of which only compiled code can call, as one for Python."""

    @numba.njit
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    made: Callable[..., Any] = call
    return made


fill_uniforms = from_python(rng.fill_uniforms)
reward_uniform = from_python(rng.reward_uniform)


def environment_uniforms(seed: int, episodes: int, horizon: int) -> Floats:
    """Return the numbers [K, H + 1] that decide the initial state (first column) and the transitions of a run."""
    numbers = np.zeros((episodes, horizon + 1 + (horizon + 1) % 2))
    for k in range(episodes):
        fill_uniforms(seeding.key(seed, "environment"), k, numbers[k])
    return numbers[:, : horizon + 1]


def drawn(mdp: FiniteMDP, s: int, a: int, u: float, h: int = 0) -> tuple[int, float]:
    """Return the next state and the mean reward that the simulator draws at step h with the number u."""
    truth, sa = mdp.truth, s * mdp.actions + a
    first, last = truth.outcomes.start[sa : sa + 2]
    law = truth.cumulative[h % truth.cumulative.shape[0], first:last]
    o = first + int(np.searchsorted(law, u, side="right"))
    return int(truth.outcomes.next_state[o]), float(truth.base_reward[sa] + truth.outcomes.bonus[o])


class Mixture(NamedTuple):
    """A linear mixture of d kernels."""

    phi: Floats  # [S, A, S, d]
    theta: Floats  # [d] on the simplex
    transition: Floats  # [S, A, S]
    reward: Floats  # [S, A]
    mdp: FiniteMDP

    @property
    def features(self) -> FeatureMap:
        return FeatureMap(self.phi)

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.theta))

    def oracle(self, episodes: int, seed: int, **options: Any) -> dict[str, Any]:
        """Run UCRL-VTR-LIN in plain NumPy with the numbers of the simulator."""
        problem = (self.phi, self.reward, self.transition, self.mdp.horizon, 0)
        uniforms = environment_uniforms(seed, episodes, self.mdp.horizon)[:, 1:]
        return oracle.ucrl_vtr_lin(*problem, episodes=episodes, uniforms=uniforms, **options)


def mixture(
    seed: int,
    *,
    states: int = 4,
    actions: int = 2,
    dimension: int = 3,
    horizon: int = 4,
    full_support: bool = False,
    initial_state: Any = 0,
) -> Mixture:
    """Return a random mixture of kernels; without ``full_support`` some transitions are impossible and one is sure."""
    draw = np.random.default_rng([seed, 7])
    kernels = draw.dirichlet(np.ones(states), size=(dimension, states, actions))
    if not full_support:
        kernels[:, 1, 0] = np.eye(states)[2]  # one next state: a row of range 0
        kernels[:, 2, 1, 0] = 0.0
        kernels /= kernels.sum(axis=-1, keepdims=True)
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    theta = draw.dirichlet(np.ones(dimension))
    transition, reward = phi @ theta, draw.random((states, actions))
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=horizon, initial_state=initial_state)
    return Mixture(phi, theta, transition, reward, mdp)


class Stack(NamedTuple):
    """A finite family of kernels, the first of which is the truth."""

    kernels: Floats  # [n, S, A, S]
    reward: Floats  # [S, A]
    mdp: FiniteMDP

    @property
    def family(self) -> FiniteFamily:
        return FiniteFamily(self.kernels)


def stack(
    seed: int, *, members: int = 6, states: int = 3, actions: int = 2, horizon: int = 4, initial_state: Any = 0
) -> Stack:
    """Return random kernels."""
    draw = np.random.default_rng([seed, 8])
    kernels = draw.dirichlet(np.ones(states), size=(members, states, actions))
    reward = draw.random((states, actions))
    mdp = FiniteMDP(transition=kernels[0], reward=reward, horizon=horizon, initial_state=initial_state)
    return Stack(kernels, reward, mdp)


def one_by_one(agent: Agent, mdp: FiniteMDP, episodes: int, seed: int) -> list[Result]:
    """Return the results after 1, 2, ... episodes, each continued from the one before."""
    results = [run(agent, mdp, episodes=1, seed=seed, progress=False)]
    while len(results) < episodes:
        results.append(run(agent, mdp, episodes=1, progress=False, continue_from=results[-1]))
    return results


def corridor(first: float, second: float) -> Floats:
    """The kernel of the tutorial's corridor: a brisk step slips back with these probabilities, by halves."""
    P = np.zeros((8, 2, 8))
    for s in range(8):
        for a, luck in enumerate((0.6, 1 - (first if s < 4 else second))):
            P[s, a, min(s + 1, 7)] += luck
            P[s, a, max(s - 2 * a, 0)] += 1 - luck
    return P


def bits(state: Any) -> dict[str, bytes]:
    """Return every array of a state, the nested ones too, as bytes, and how they hang together.

    Of a table of rows only the entries in use: how much room it has depends on how a run was cut into pieces.
    """
    arrays: dict[str, Any] = {}
    skeleton = take_apart(state, arrays)
    return {"skeleton": repr(skeleton).encode(), **{name: array.tobytes() for name, array in arrays.items()}}


def member_in_play(state: Any) -> int:
    """Return the member that the plan in play is the optimum of."""
    return int(state.counters[MEMBER])


class Steps:
    """An agent, one transition at a time; it learns when its episode is over, or when the next one begins."""

    def __init__(self, agent: Agent, known: Known, *, seed: int = 0) -> None:
        self.known, self.walk, self.key = known, PhaseWalk(agent, known), seeding.key(seed, "agent")
        self.episode, self.h, self.plans = 0, 0, 0
        self.path = np.zeros(known.horizon + 1, dtype=np.int64)
        self.actions = np.zeros((known.horizon, known.states), dtype=np.int64)
        self.bonus, self.reward = np.zeros(known.horizon), np.zeros(known.horizon)
        self.taken = np.zeros(known.horizon, dtype=np.int64)

    def begin(self, state: int) -> None:
        if self.h:
            self.end()
        self.walk.player.reserve(1)
        self.plans = int(self.walk.player.open(state, self.key, self.episode, self.actions))
        self.path[0] = state

    def act(self) -> int:
        return int(self.actions[self.h, self.path[self.h]])

    def record(self, next_state: int, *, bonus: float = 0.0, reward: float | None = None) -> None:
        self.taken[self.h] = self.act()
        base = float(self.known.base_reward[self.path[self.h], self.taken[self.h]])
        self.bonus[self.h], self.reward[self.h] = bonus, base + bonus if reward is None else reward
        self.h += 1
        self.path[self.h] = next_state
        if self.h == self.known.horizon:
            self.end()

    def end(self) -> None:
        at_rest = np.zeros(self.known.states * self.known.actions)
        seen = Seen(at_rest, self.path, self.bonus, self.reward, self.actions, self.h, False, self.taken)
        total = self.walk.player.close(seen)
        self.episode, self.h = self.episode + 1, 0
        self.walk.advance(self.plans, np.array([total]), np.array([np.nan]))

"""Twelve simulators of which two are mixed in truth; logged data; ladders on environments.

For docs/logged-data.md and docs/environments.md (:mod:`studies.figures`); :mod:`studies.occam`
plays the simulators. Two of their four cases can be resolved, two cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import occamrl as orl
from occamrl.envs.ladder_file import LadderSpec, ladder_of_problem
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.logs.log import simulate_log
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mixtures import SparseLadder
from occamrl.protocols import Floats
from studies.figures import Size, each, interval, table
from studies.ladders import agents, class_at_end

PAIR = (3, 8)
WEIGHTS = (0.6, 0.4)
LEFT = 0
RIGHT = 1


class Case(NamedTuple):
    """The simulators, and the problem that is a mixture of two of them."""

    kernels: list[Floats]
    mdp: orl.FiniteMDP


def mixed(kernels: list[Floats], reward: Floats, horizon: int) -> Case:
    """Return a case from its simulators."""
    truth = np.zeros_like(kernels[0])
    for weight, j in zip(WEIGHTS, PAIR, strict=True):
        truth += weight * kernels[j]
    return Case(kernels, orl.FiniteMDP(transition=truth, reward=reward, horizon=horizon))


def river(up: Floats, down: Floats) -> Floats:
    """Return RiverSwim with a current of its own in every state."""
    states = len(up)
    kernel = np.zeros((states, 2, states))
    for s in range(states):
        below = max(s - 1, 0)
        above = min(s + 1, states - 1)
        kernel[s, LEFT, below] = 1.0
        law = [up[s], down[s], 1.0 - up[s] - down[s]]
        np.add.at(kernel[s, RIGHT], [above, below, s], law)
    return kernel


def rivers(kernels: list[Floats]) -> Case:
    """Return RiverSwim, 8 states, 32 steps."""
    reward = np.zeros((8, 2))
    reward[0, LEFT] = 0.05
    reward[-1, RIGHT] = 1.0
    return mixed(kernels, reward, 32)


def currents(seed: int = 0) -> Case:
    """Return rivers; each simulator draws the current of every state anew."""
    rng = np.random.default_rng([seed, 1])
    kernels = []
    for _ in range(12):
        up = rng.uniform(0.1, 0.6, 8)
        down = rng.uniform(0.05, 0.35, 8)
        kernels.append(river(up, down))
    return rivers(kernels)


def uniform_currents() -> Case:
    """Return rivers with one current in all states, from weak to strong: kernels of rank 2."""
    kernels = []
    for u in np.linspace(0.0, 1.0, 12):
        kernels.append(river(np.full(8, 0.15 + 0.5 * u), np.full(8, 0.35 - 0.3 * u)))
    return rivers(kernels)


def batch_queue(seed: int = 0) -> Case:
    """Return a queue with a service of 1, 3 or 6 a step; each simulator has its law of batches.

    Places for 24 customers; a customer who waits costs 1/24 of .8 a step, faster service .1 and .2.
    Batches of 0 to 9.
    """
    rng = np.random.default_rng([seed, 2])
    places = 24
    served = (1, 3, 6)
    cost = (0.0, 0.1, 0.2)
    kernels = []
    for _ in range(12):
        law = rng.dirichlet(np.full(10, 0.5))
        kernel = np.zeros((places + 1, len(served), places + 1))
        for queue in range(places + 1):
            for a, service in enumerate(served):
                for batch, p in enumerate(law):
                    kernel[queue, a, min(max(queue - service, 0) + batch, places)] += p
        kernels.append(kernel)
    waiting = 0.8 * np.arange(places + 1) / places
    return mixed(kernels, np.clip(1.0 - waiting[:, None] - np.array(cost), 0.0, 1.0), 20)


def narrow_demand() -> Case:
    """Return lost sales: demand is Poisson, and the simulators' means differ by hundredths.

    Sales are all that is seen. Stock up to 10, orders of 0, 3 or 6 that arrive at once; a unit of
    stock costs .03 a step. What counts as sold is part of the next state, so the reward is that of
    the expected sales under the middle mean.
    """
    largest = 10
    orders = (0, 3, 6)
    kernels = []
    for mean in np.linspace(3.0, 3.3, 12):
        law = np.array([math.exp(-mean) * mean**k / math.factorial(k) for k in range(60)])
        kernel = np.zeros((largest + 1, len(orders), largest + 1))
        for stock in range(largest + 1):
            for a, order in enumerate(orders):
                full = min(stock + order, largest)
                np.add.at(kernel[stock, a], np.maximum(full - np.arange(60), 0), law)
        kernels.append(kernel / kernel.sum(axis=2, keepdims=True))
    filled = np.minimum(np.arange(largest + 1)[:, None] + np.array(orders), largest)
    reward = np.minimum(filled, 3.15) / 3.15 * 0.7 - 0.03 * filled + 0.3
    return mixed(kernels, np.clip(reward, 0.0, 1.0), 20)


CASES: dict[str, Callable[[], Case]] = {
    "river, a current per state": currents,
    "batch queue": batch_queue,
    "river, uniform currents": uniform_currents,
    "lost sales, narrow demand": narrow_demand,
}


# Logs ---------------------------------------------------------------------------------------------


class Decided(NamedTuple):
    """When a log decided for the right class."""

    since: float  # the episode since which it does; infinite: not at the end
    rejected: bool  # whether the right class is rejected at the end


def decide(
    log: Mapping[str, Any], spec: LadderSpec, kind: str, right: int, marks: list[int], horizon: int
) -> Decided:
    """Ask for the class after some episodes of a log."""
    since = math.inf
    for mark in marks:
        head = {column: values[: mark * horizon] for column, values in log.items()}
        answer = orl.select(head, spec, evidence=kind, progress=False)
        if (answer.chosen, answer.status) == (right, "decided"):
            since = min(since, mark)
        else:
            since = math.inf
    return Decided(since, answer.rejected_after(right) is not None)


def logs(size: Size) -> str:
    """Return after how many episodes of a random policy the right class is decided for good."""
    marks = [2**i for i in range(2, 13) if 2**i <= size.episodes(4_096)]
    problems: dict[str, FrozenLake | SparseLadder] = {}
    for slip in ((0, 0), (10, 10), (3, 9)):
        problems[f"FrozenLake 4x4, slips {slip} of 30"] = FrozenLake(slip=slip)
    for nonzero in (1, 2):
        problems[f"sparse ladder, m* = {nonzero + 1}"] = SparseLadder(nonzero=nonzero)
    kinds = ("likelihood", "value")
    rows = []
    for name, problem in size.some(problems.items()):
        spec = ladder_of_problem(problem)
        right = spec.ladder.class_of(problem.mdp) or 0

        def job(
            seed: int,
            mdp: orl.FiniteMDP = problem.mdp,
            spec: LadderSpec = spec,
            right: int = right,
        ) -> list[Decided]:
            log = simulate_log(mdp, episodes=marks[-1], seed=seed).columns()
            log |= {"episode": np.repeat(np.arange(marks[-1]), mdp.horizon)}
            return [decide(log, spec, kind, right, marks, mdp.horizon) for kind in kinds]

        runs = np.array(each(size, size.seeds(10), job, name))  # [seeds, kinds, 2]
        cells = []
        for since in runs[:, :, 0].T:
            text = f"{np.median(since):,.0f} ({since.min():,.0f} to {since.max():,.0f})"
            cells.append(text.replace("inf", f"above {marks[-1]:,}"))
        rejected = ", ".join(f"{count:.0f} of {len(runs)}" for count in runs[:, :, 1].sum(axis=0))
        rows.append((name, *cells, rejected))
    head = ("log", *(f"by {kind}, median (range)" for kind in kinds), "right class rejected")
    return table(head, rows)


# Environments -------------------------------------------------------------------------------------


class Learned(NamedTuple):
    """What is kept of a run in an environment."""

    regret: float
    phases: list[dict[str, Any]]


def gymnasium(size: Size) -> str:
    """Measure ARL-GEN and its reference points on FrozenLake, exactly, in its own unit."""
    names = ("ARL-GEN", "oracle", "largest class", "smallest class")
    seeds = size.seeds(5)
    rows = []
    for name in size.some(("4x4", "8x8")):
        spec = orl.read_ladder(f"frozen-lake-{name}")
        env = FiniteEnvironment(
            gym.make("FrozenLake-v1", map_name=name),
            known=spec.known,
            reward_range=tuple(spec.rewards),
        )
        right = 0
        if env.mdp is not None:
            right = spec.ladder.class_of(env.mdp) or 0
        cast = agents(spec.ladder, right, *names)

        def job(
            i: int, cast: Mapping[str, orl.Learner] = cast, env: FiniteEnvironment = env
        ) -> Learned:
            agent = cast[names[i // seeds]]
            episodes = size.episodes(1_022)
            result = orl.learn(agent, env, episodes=episodes, seed=i % seeds, progress=False)
            return Learned(result.total_regret, result.phase_rows)

        runs = each(size, len(cast) * seeds, job, name)
        regret = []
        for first in range(0, len(runs), seeds):
            regret.append(interval([one.regret for one in runs[first : first + seeds]]))
        models = " < ".join(map(str, spec.ladder.sizes))
        at_end = class_at_end(runs[:seeds], right)
        rows.append((f"FrozenLake {name}; {models}", f"{right}; {at_end}", *regret))
    head = (
        "environment; models by class; 1,022 episodes, 5 seeds",
        "class needed; found, since (median, latest)",
    )
    return table((*head, *names), rows)

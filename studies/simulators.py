"""Twelve simulators of which two are mixed in truth; logged data; ladders on Gymnasium's environments.

For docs/logged-data.md and docs/environments.md (:mod:`studies.figures`); :mod:`studies.occam`
plays the simulators. Two of their four cases can be resolved, two cannot.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import occamrl as orl
from occamrl.envs.ladder_file import ladder_of_problem
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.logs.log import simulate_log
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mixtures import SparseLadder
from occamrl.protocols import Floats
from studies.figures import Size, each, interval, table
from studies.ladders import agents, found

PAIR, WEIGHTS = (3, 8), (0.6, 0.4)
LEFT, RIGHT = 0, 1


class Case(NamedTuple):
    """The simulators, and the problem that is a mixture of two of them."""

    kernels: list[Floats]
    mdp: orl.FiniteMDP


def mixed(kernels: list[Floats], reward: Floats, horizon: int) -> Case:
    """Return a case from its simulators."""
    truth = sum(
        (w * kernels[j] for w, j in zip(WEIGHTS, PAIR, strict=True)), np.zeros_like(kernels[0])
    )
    return Case(kernels, orl.FiniteMDP(transition=truth, reward=reward, horizon=horizon))


def river(up: Floats, down: Floats) -> Floats:
    """Return RiverSwim with a current of its own in every state."""
    states = len(up)
    kernel = np.zeros((states, 2, states))
    for s in range(states):
        below, above = max(s - 1, 0), min(s + 1, states - 1)
        kernel[s, LEFT, below] = 1.0
        for s2, p in ((above, up[s]), (below, down[s]), (s, 1.0 - up[s] - down[s])):
            kernel[s, RIGHT, s2] += p
    return kernel


def rivers(kernels: list[Floats]) -> Case:
    """Return RiverSwim, 8 states, 32 steps."""
    reward = np.zeros((8, 2))
    reward[0, LEFT], reward[-1, RIGHT] = 0.05, 1.0
    return mixed(kernels, reward, 32)


def currents(seed: int = 0) -> Case:
    """Return rivers; each simulator draws the current of every state anew."""
    rng = np.random.default_rng([seed, 1])
    return rivers([river(rng.uniform(0.1, 0.6, 8), rng.uniform(0.05, 0.35, 8)) for _ in range(12)])


def uniform_currents() -> Case:
    """Return rivers whose current is the same in all states, from weak to strong: the kernels have rank 2."""
    return rivers(
        [
            river(np.full(8, 0.15 + 0.5 * u), np.full(8, 0.35 - 0.3 * u))
            for u in np.linspace(0.0, 1.0, 12)
        ]
    )


def batch_queue(seed: int = 0) -> Case:
    """Return a queue with batch arrivals and a service of 1, 3 or 6 a step; each simulator has its law of batches.

    Places for 24 customers; a customer who waits costs 1/24 of .8 a step, faster service .1 and .2.
    Batches of 0 to 9.
    """
    rng, places = np.random.default_rng([seed, 2]), 24
    served, cost = (1, 3, 6), (0.0, 0.1, 0.2)
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
    """Return lost sales: demand is Poisson, and the simulators' means differ by hundredths; sales are all that is seen.

    Stock up to 10, orders of 0, 3 or 6 that arrive at once; a unit of stock costs .03 a step. What
    counts as sold is part of the next state, so the reward is that of the expected sales under the
    middle mean.
    """
    most, orders = 10, (0, 3, 6)
    kernels = []
    for mean in np.linspace(3.0, 3.3, 12):
        law = np.array([math.exp(-mean) * mean**k / math.factorial(k) for k in range(60)])
        kernel = np.zeros((most + 1, len(orders), most + 1))
        for stock in range(most + 1):
            for a, order in enumerate(orders):
                full = min(stock + order, most)
                np.add.at(kernel[stock, a], np.maximum(full - np.arange(60), 0), law)
        kernels.append(kernel / kernel.sum(axis=2, keepdims=True))
    filled = np.minimum(np.arange(most + 1)[:, None] + np.array(orders), most)
    reward = np.minimum(filled, 3.15) / 3.15 * 0.7 - 0.03 * filled + 0.3
    return mixed(kernels, np.clip(reward, 0.0, 1.0), 20)


CASES = {
    "river, a current per state": currents,
    "batch queue": batch_queue,
    "river, uniform currents": uniform_currents,
    "lost sales, narrow demand": narrow_demand,
}


def logs(size: Size) -> str:
    """Return after how many episodes of a log of a random policy the right class is decided, and stays so."""
    marks, rows = [2**i for i in range(2, 13) if 2**i <= size.episodes(4_096)], []
    lakes = {
        f"FrozenLake 4x4, slips {slip} of 30": FrozenLake(slip=slip)
        for slip in ((0, 0), (10, 10), (3, 9))
    }
    sparse = {f"sparse ladder, m* = {n + 1}": SparseLadder(nonzero=n) for n in (1, 2)}
    for name, problem in size.some({**lakes, **sparse}.items()):
        spec = ladder_of_problem(problem)
        right = spec.ladder.class_of(problem.mdp) or 0

        def job(
            seed: int, problem: Any = problem, spec: Any = spec, right: int = right
        ) -> list[tuple[float, bool]]:
            columns = simulate_log(problem.mdp, episodes=marks[-1], seed=seed).columns()
            episode = np.repeat(np.arange(marks[-1]), problem.mdp.horizon)
            whole, told = columns | {"episode": episode}, []
            for kind in ("likelihood", "value"):
                first, rejected = math.inf, False
                for k in marks:
                    head = {
                        column: values[: k * problem.mdp.horizon]
                        for column, values in whole.items()
                    }
                    answer = orl.select(head, spec, evidence=kind, progress=False)
                    first = (
                        min(first, k)
                        if (answer.chosen, answer.status) == (right, "decided")
                        else math.inf
                    )
                    rejected = answer.rejected_after(right) is not None
                told.append((first, rejected))
            return told

        runs = np.array(each(size, size.seeds(10), job, name))  # [seeds, kinds, 2]
        cells = []
        for since in runs[:, :, 0].T:
            shown = [f"{np.median(since):,.0f}", f"{since.min():,.0f}", f"{since.max():,.0f}"]
            median, least, most = (text.replace("inf", f"above {marks[-1]:,}") for text in shown)
            cells.append(f"{median} ({least} to {most})")
        rows.append(
            (name, *cells, ", ".join(f"{n:.0f} of {len(runs)}" for n in runs[:, :, 1].sum(axis=0)))
        )
    header = ("log", *(f"by {kind}, median (range)" for kind in ("likelihood", "value")))
    return table((*header, "right class rejected"), rows)


def gymnasium(size: Size) -> str:
    """Measure ARL-GEN and its reference points on FrozenLake, exact regret in the environment's unit."""
    rows = []
    for name in size.some(("4x4", "8x8")):
        spec = orl.read_ladder(f"frozen-lake-{name}")
        env = FiniteEnvironment(
            gym.make("FrozenLake-v1", map_name=name),
            known=spec.known,
            reward_range=tuple(spec.rewards),
        )
        right = 0 if env.mdp is None else spec.ladder.class_of(env.mdp) or 0
        cast = agents(spec.ladder, right, "ARL-GEN", "oracle", "largest class", "smallest class")

        def job(i: int, cast: Any = cast, env: Any = env) -> Any:
            agent, count = list(cast.values())[i // size.seeds(5)], size.seeds(5)
            result = orl.learn(
                agent, env, episodes=size.episodes(1_022), seed=i % count, progress=False
            )
            return Answer(result.total_regret, result.phase_rows)

        runs, count = each(size, len(cast) * size.seeds(5), job, name), size.seeds(5)
        regret = [
            interval([one.regret for one in runs[n * count : (n + 1) * count]])
            for n in range(len(cast))
        ]
        models = " < ".join(map(str, spec.ladder.sizes))
        rows.append(
            (f"FrozenLake {name}; {models}", f"{right}; {found(runs[:count], right)}", *regret)
        )
    header = (
        "environment; models by class; 1,022 episodes, 5 seeds",
        "class needed; found, since (median, latest)",
    )
    return table((*header, "ARL-GEN", "oracle", "largest class", "smallest class"), rows)


class Answer(NamedTuple):
    """What is kept of a run in an environment."""

    regret: float
    phases: list[dict[str, Any]]

"""Twelve simulators of one system, the truth .6 of one and .4 of another: two cases that can be resolved, two not."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from occamrl.problems.classic import LEFT, RIGHT
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats

PAIR, WEIGHTS = (3, 8), (0.6, 0.4)


class Case(NamedTuple):
    """The simulators, and the problem that is a mixture of two of them."""

    kernels: list[Floats]
    mdp: FiniteMDP


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


def _river_case(kernels: list[Floats], horizon: int) -> Case:
    states = len(kernels[0])
    reward = np.zeros((states, 2))
    reward[0, LEFT], reward[-1, RIGHT] = 0.05, 1.0
    return _case(kernels, reward, horizon)


def _case(kernels: list[Floats], reward: Floats, horizon: int, start: int = 0) -> Case:
    truth = sum((w * kernels[j] for w, j in zip(WEIGHTS, PAIR, strict=True)), np.zeros_like(kernels[0]))
    return Case(kernels, FiniteMDP(transition=truth, reward=reward, horizon=horizon, initial_state=start))


def currents(seed: int = 0) -> Case:
    """RiverSwim, 8 states, 32 steps; each simulator draws the current of every state anew."""
    rng = np.random.default_rng([seed, 1])
    return _river_case([river(rng.uniform(0.1, 0.6, 8), rng.uniform(0.05, 0.35, 8)) for _ in range(12)], 32)


def uniform_currents() -> Case:
    """RiverSwim whose current is the same in all states, from weak to strong: the kernels have rank 2."""
    strength = np.linspace(0.0, 1.0, 12)
    return _river_case([river(np.full(8, 0.15 + 0.5 * u), np.full(8, 0.35 - 0.3 * u)) for u in strength], 32)


def batch_queue(seed: int = 0) -> Case:
    """Return a queue with batch arrivals and a service of 1, 3 or 6 a step; each simulator has its law of batches.

    Places for 24 customers; a customer who waits costs 1/24 of .8 a step, faster service .1 and .2. Batches of 0 to 9.
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
    return _case(kernels, np.clip(1.0 - waiting[:, None] - np.array(cost), 0.0, 1.0), 20)


def narrow_demand() -> Case:
    """Lost sales: demand is Poisson, and the simulators' means differ by hundredths; sales are all that is seen.

    Stock up to 10, orders of 0, 3 or 6 that arrive at once; a unit of stock costs .03 a step. What counts as sold is
    part of the next state, so the reward is that of the expected sales under the middle mean.
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
    stock = np.minimum(np.arange(most + 1)[:, None] + np.array(orders), most)
    reward = np.minimum(stock, 3.15) / 3.15 * 0.7 - 0.03 * stock + 0.3
    return _case(kernels, np.clip(reward, 0.0, 1.0), 20)


CASES = {
    "river, a current per state": currents,
    "batch queue": batch_queue,
    "river, uniform currents": uniform_currents,
    "lost sales, narrow demand": narrow_demand,
}

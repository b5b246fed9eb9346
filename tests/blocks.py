"""Agents played block by block with their three methods alone, and what random actions count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from occamrl.arrays import Floats
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Flow, Learner, Plan, State
from occamrl.running.flow import simulate


class Block(NamedTuple):
    """A block of episodes before it is learned from."""

    state: State
    plan: Plan
    flow: Flow

    @property
    def values(self) -> Floats:
        """The values [H + 1, S] that the plan counts on."""
        return np.asarray(self.plan.values)


class Played(NamedTuple):
    """What is left of a run."""

    regret: float
    state: State


def blocks(agent: Learner, mdp: FiniteMDP, episodes: int, seed: int = 0) -> Iterator[Block]:
    """Play, and yield every block; the agent learns from it when the next one is asked for."""
    state = agent.begin(mdp.known)
    done = 0
    while done < episodes:
        plan = agent.plan(mdp.known, state, np.random.default_rng([seed, done, 0]))
        count = min(plan.episodes, episodes - done)
        flow = simulate(mdp, plan.policy, count, np.random.default_rng([seed, done, 1]))
        yield Block(state, plan, flow)
        agent.learn(mdp.known, state, plan, flow)
        done += count


def play(agent: Learner, mdp: FiniteMDP, episodes: int, seed: int = 0) -> Played:
    """Play, and return the exact regret and the last state."""
    regret = 0.0
    state = None
    for block in blocks(agent, mdp, episodes, seed):
        state = block.state
        begins = block.flow.step == 0
        starts = np.bincount(block.flow.state[begins], block.flow.count[begins], mdp.states)
        loss = mdp.optimal_values[0] - mdp.evaluate(block.plan.policy)[0]
        regret += float(starts @ loss)
    return Played(regret, state)


def random_flow(mdp: FiniteMDP, episodes: int = 40, seed: int = 0) -> Flow:
    """Return what uniformly random actions count."""
    policy = np.full((mdp.horizon, mdp.states, mdp.actions), 1.0 / mdp.actions)
    return simulate(mdp, policy, episodes, np.random.default_rng(seed))

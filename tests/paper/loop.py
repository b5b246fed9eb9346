"""Play an EpisodeLearner on a FiniteMDP with the draws of ``orl.run``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks import oracle
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import EpisodeLearner, Floats
from occamrl.running.run import run


class PaperRun(NamedTuple):
    """What a run reports, episode by episode, and the state that it ended with."""

    regret: Floats  # [K]
    planned: Floats  # [K] V^k_1(s_1)
    state: dict[str, Any]
    history: list[dict[str, Any]]  # of each episode: the plain entries of the state that it was played with


def compare(paper: EpisodeLearner, compiled: Any, mdp: FiniteMDP, episodes: int, seed: int) -> PaperRun:
    """Play both with the same draws; regret must agree episode by episode, and plans that are not optimistic."""
    expected, found = run(compiled, mdp, episodes=episodes, seed=seed, progress=False), play(paper, mdp, episodes, seed)
    np.testing.assert_allclose(found.regret, expected.regret, rtol=0, atol=1e-9)
    pessimistic = int((found.planned < mdp.optimal_values[0].min() - 1e-9 * mdp.horizon).sum())
    assert pessimistic <= expected.pessimistic_episodes <= episodes
    return found


def play(learner: EpisodeLearner, mdp: FiniteMDP, episodes: int, seed: int) -> PaperRun:
    """Play whole episodes and evaluate every policy exactly."""
    uniforms = oracle.environment_uniforms(seed, episodes, mdp.horizon)
    regret, planned, history = np.zeros(episodes), np.zeros(episodes), []
    for k, moment in enumerate(oracle.play(learner, mdp.known, mdp.kernel(), mdp.initial_distribution, uniforms)):
        state, regret[k], planned[k] = moment.state, moment.regret, moment.planned_value
        history.append({name: value for name, value in state.items() if isinstance(value, (int, float, str))})
    return PaperRun(regret, planned, state, history)

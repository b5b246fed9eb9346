"""Play an EpisodeLearner on a FiniteMDP with the draws of ``orl.run``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks import oracle
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import EpisodeLearner, Floats


class PaperRun(NamedTuple):
    """What a run reports, episode by episode, and the state that it ended with."""

    regret: Floats  # [K]
    planned: Floats  # [K] V^k_1(s_1)
    state: dict[str, Any]
    history: list[dict[str, Any]]  # of each episode: the plain entries of the state that it was played with


def play(learner: EpisodeLearner, mdp: FiniteMDP, episodes: int, seed: int) -> PaperRun:
    """Play whole episodes and evaluate every policy exactly."""
    uniforms = oracle.environment_uniforms(seed, episodes, mdp.horizon)
    regret, planned, history = np.zeros(episodes), np.zeros(episodes), []
    for k, moment in enumerate(oracle.play(learner, mdp.known, mdp.kernel(), mdp.initial_distribution, uniforms)):
        state, regret[k], planned[k] = moment.state, moment.regret, moment.planned_value
        history.append({name: value for name, value in state.items() if isinstance(value, (int, float, str))})
    return PaperRun(regret, planned, state, history)

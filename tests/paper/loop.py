"""Play an EpisodeLearner on a FiniteMDP with the draws of ``orl.run``, and evaluate every policy exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Episode, EpisodeLearner, Floats
from tests.cases import environment_uniforms


class PaperRun(NamedTuple):
    """What a run reports, episode by episode, and the state that it ended with."""

    regret: Floats  # [K]
    planned: Floats  # [K] V^k_1(s_1)
    state: dict[str, Any]
    history: list[dict[str, Any]]  # of each episode: the plain entries of the state that it was played with


def running_sums(probabilities: Floats) -> Floats:
    """Return running sums that are exactly 1 from the last state of positive probability on."""
    sums = np.cumsum(probabilities, axis=-1)
    later = np.flip(np.cumsum(np.flip(probabilities, axis=-1), axis=-1), axis=-1) - probabilities
    return np.where(later > 0.0, sums, 1.0)


def play(learner: EpisodeLearner, mdp: FiniteMDP, episodes: int, seed: int) -> PaperRun:
    """Play whole episodes; the next state for a uniform number u is the first whose running sum exceeds u."""
    H, S = mdp.horizon, mdp.states
    kernel, reward, everywhere = mdp.kernel(), mdp.known.base_reward, np.arange(mdp.states)
    starts, following = running_sums(mdp.initial_distribution), running_sums(kernel)
    uniforms, draw = environment_uniforms(seed, episodes, H), np.random.default_rng(seed)
    state, history = learner.begin(mdp.known), []
    regret, planned = np.zeros(episodes), np.zeros(episodes)
    for k, u in enumerate(uniforms):
        states, actions = [int(np.searchsorted(starts, u[0], side="right"))], []
        history.append({name: value for name, value in state.items() if isinstance(value, (int, float, str))})
        policy, planned[k] = learner.plan(mdp.known, state, states[0], draw)
        values = np.zeros(S)
        for h in reversed(range(H)):
            values = reward[everywhere, policy[h]] + kernel[everywhere, policy[h]] @ values
        regret[k] = mdp.optimal_values[0, states[0]] - values[states[0]]
        for h in range(H):
            actions.append(int(policy[h, states[-1]]))
            states.append(int(np.searchsorted(following[states[-1], actions[-1]], u[h + 1], side="right")))
        episode = Episode(np.array(states), np.array(actions), reward[states[:-1], actions])
        learner.learn(mdp.known, state, episode)
    return PaperRun(regret, planned, state, history)

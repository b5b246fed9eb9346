"""Rival learners alone, for docs/rivals.md (:mod:`benchmarks.figures`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, interval, table
from occamrl.protocols import Agent, Episode, EpisodeLearner, Known


def compare(agents: dict[str, tuple[str, Agent]], episodes: int, size: Size) -> str:
    """Return the regret of agents on RiverSwim with five states."""
    problem, rows = orl.make_problem("river-swim", states=5), []
    played, seeds = size.episodes(episodes), range(size.seeds(3))
    for name, (guarantee, agent) in agents.items():
        results = [orl.run(agent, problem, episodes=played, seed=seed, progress=False) for seed in seeds]
        late = sum(result.pessimistic_episodes for result in results) / (played * len(results))
        rows.append((name, guarantee, interval([result.total_regret for result in results]), f"{100.0 * late:.0f} %"))
    return table((f"K = {episodes:,}, 3 seeds", "guarantee", "regret", "pessimistic plans"), rows)


def river_swim(size: Size) -> str:
    """Measure tabular learners: published constants, and round factors of them."""
    K, features = 10_000, orl.FeatureMap.tabular(states=5, actions=2)
    linear: dict[str, Any] = {"features": features, "norm_bound": math.sqrt(10.0)}
    agents: dict[str, tuple[str, Agent]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCBVI, Hoeffding": ("valid", orl.UCBVI(episodes=K, bonus="hoeffding")),
        "UCBVI, Hoeffding, scale 0.01": ("scaled", orl.UCBVI(episodes=K, bonus="hoeffding", scale=0.01)),
        "UCBVI, Bernstein": ("valid", orl.UCBVI(episodes=K)),
        "UCBVI, Bernstein, scale 0.1": ("scaled", orl.UCBVI(episodes=K, scale=0.1)),
        "QLearningUCB": ("valid, c left open", orl.QLearningUCB(episodes=K)),
        "QLearningUCB, scale 0.01": ("scaled", orl.QLearningUCB(episodes=K, scale=0.01)),
        "RLSVI": ("of its form per step", orl.RLSVI()),
        "RLSVI, scale 0.01": ("scaled", orl.RLSVI(scale=0.01)),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(**linear)),
        "UCRLVTRLin, scale 0.1": ("scaled", orl.UCRLVTRLin(**linear, scale=0.1)),
        "PSRL": ("on average over its prior", orl.PSRL()),
        "Greedy": ("none", orl.Greedy(features=features)),
    }
    return compare(agents, K, size)


def linear_river_swim(size: Size) -> str:
    """Measure learners of linear kernels in plain NumPy, on one-hot features."""
    features = orl.FeatureMap.tabular(states=5, actions=2)
    agents: dict[str, tuple[str, Agent]] = {
        "UniformRandom": ("none", orl.UniformRandom()),
        "UCRLVTRPlus": ("of its form per step", orl.UCRLVTRPlus(features=features, norm_bound=math.sqrt(10.0))),
        "UCRLVTRLin": ("valid", orl.UCRLVTRLin(features=features, norm_bound=math.sqrt(10.0))),
        "LinPSRL": ("none", orl.LinPSRL(features=features)),
    }
    return compare(agents, 1_000, size)


@dataclass(frozen=True, kw_only=True, eq=False)
class SimplifiedUCBVI(EpisodeLearner):
    """UCBVI with the bonus of rlberry-scool 0.7.3: sqrt(1/n) + (H - h)/n, h from 0, cut at H - h.

    Rewards are the means of those seen. That package renews the bonus of a pair at the step where it was visited alone,
    though n counts the visits of all steps: ``stale``.
    """

    stale: bool = False

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the counts of transitions, the sums of rewards and the bonuses."""
        H, S, A = known.horizon, known.states, known.actions
        bonus = np.broadcast_to(np.arange(H, 0.0, -1.0)[:, None, None], (H, S, A)).copy()
        return {"moves": np.zeros((S, A, S)), "rewards": np.zeros((S, A)), "bonus": bonus}

    def plan(self, known: Known, state: Any, start: int, draw: np.random.Generator) -> Any:
        """Plan on the means with the bonuses; the first of equal actions is taken, as there."""
        visits = state["moves"].sum(axis=2)
        n = np.maximum(visits, 1.0)
        kernel = np.where(visits[:, :, None] > 0, state["moves"] / n[:, :, None], 1.0 / known.states)
        policy, values = np.zeros((known.horizon, known.states), dtype=np.int64), np.zeros(known.states)
        for h in reversed(range(known.horizon)):
            q = state["rewards"] / n + state["bonus"][h] + kernel @ values
            policy[h], values = q.argmax(axis=1), np.minimum(q.max(axis=1), known.horizon)
        return policy, values[start]

    def learn(self, known: Known, state: Any, episode: Episode) -> None:
        """Count, and renew bonuses: all of them, or those of the steps at which a pair was visited."""
        H, moves, bonus = known.horizon, state["moves"], state["bonus"]
        for h, (s, a, after, reward) in enumerate(
            zip(episode.states, episode.actions, episode.states[1:], episode.rewards, strict=False)
        ):
            moves[s, a, after] += 1.0
            state["rewards"][s, a] += reward
            steps = np.arange(h, h + 1) if self.stale else np.arange(H)
            n, most = moves[s, a].sum(), H - steps
            bonus[steps, s, a] = np.minimum(math.sqrt(1.0 / n) + most / n, most)


def simplified_bonus(size: Size) -> str:
    """Measure UCBVI with the bonus of rlberry-scool, renewed at every step or at the visited one."""
    agents: dict[str, tuple[str, Agent]] = {
        "its bonus, renewed at every step": ("none", SimplifiedUCBVI()),
        "its bonus, renewed where visited": ("none", SimplifiedUCBVI(stale=True)),
        "UCBVI, Bernstein, scale 0.1": ("scaled", orl.UCBVI(episodes=10_000, scale=0.1)),
    }
    return compare(agents, 10_000, size)

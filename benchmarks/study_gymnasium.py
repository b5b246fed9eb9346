"""Ladders of models on Gymnasium's own environments: the class found, exact regret in the environment's unit.

For docs/environments.md (:mod:`benchmarks.figures`).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from benchmarks.figures import Size, interval, table
from benchmarks.study_ladders import agents, found
from occamrl.envs.ladder_file import read_ladder
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.running.run import learn

CASES: tuple[tuple[str, str, dict[str, Any], str, int, int], ...] = (
    ("FrozenLake 4x4", "FrozenLake-v1", {}, "frozen-lake-4x4", 1_022, 5),
    ("FrozenLake 8x8", "FrozenLake-v1", {"map_name": "8x8"}, "frozen-lake-8x8", 1_022, 5),
    ("CliffWalking, slippery", "CliffWalking-v1", {"is_slippery": True}, "cliff-walking", 1_022, 5),
    ("Taxi, no rain", "Taxi-v4", {}, "taxi", 200, 2),
    ("Taxi, rain", "Taxi-v4", {"is_rainy": True}, "taxi", 200, 2),
)


def ladders(size: Size) -> str:
    """Measure ARL-GEN and its reference points, which Taxi is played without."""
    rows = []
    for name, environment, options, file, episodes, seeds in CASES[: 1 if size.tiny else None]:
        spec = read_ladder(file)
        env = FiniteEnvironment(gym.make(environment, **options), known=spec.known, reward_range=tuple(spec.rewards))
        right = 0 if env.mdp is None else spec.ladder.class_of(env.mdp) or 0
        cast = agents(spec.ladder, right, *("ARL-GEN", "oracle", "F_M", "F_1")[: 1 if "Taxi" in name else None])
        played = {
            label: [
                learn(agent, env, episodes=size.episodes(episodes), seed=seed, progress=False)
                for seed in range(size.seeds(seeds))
            ]
            for label, agent in cast.items()
        }
        regret = [interval([float(each.total_regret or 0.0) for each in results]) for results in played.values()]
        models = " < ".join(map(str, spec.ladder.sizes))
        row = (f"{name}; {models}; {episodes:,}, {seeds}", f"{right}; {found(played['ARL-GEN'], right)}")
        rows.append((*row, *regret, *[""] * (4 - len(regret))))
    header = ("environment; models by class; episodes, seeds", "m*; found in, since episode (median, latest)")
    return table((*header, "ARL-GEN", "oracle", "F_M", "F_1"), rows)

"""Ladders of models on Gymnasium's own environments: the class found, and exact regret in the environment's unit.

For docs/environments.md (:mod:`benchmarks.figures`). Each case is also one command of the command line:
``occamrl learn CliffWalking-v1 --with is_slippery=true --ladder cliff-walking --episodes 4094 --compare``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

import occamrl as orl
from benchmarks.figures import Size, table
from benchmarks.study_ladders import SINCE, agents, found, mean
from occamrl.envs.wrapper import FiniteEnvironment

CASES: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("FrozenLake-v1", "frozen-lake-4x4", 16_382, {}),
    ("FrozenLake-v1", "frozen-lake-8x8", 4_094, {"map_name": "8x8"}),
    ("CliffWalking-v1", "cliff-walking", 4_094, {"is_slippery": True}),
    ("Taxi-v4", "taxi", 200, {}),
    ("Taxi-v4", "taxi", 200, {"is_rainy": True}),
)
NAMES = ("ARL-GEN", "oracle", "F_M", "F_1")


def cases(size: Size) -> str:
    """Measure every case; of the taxi only which class is found."""
    rows = []
    for name, ladder_name, episodes, options in CASES[: 1 if size.tiny else None]:
        spec = orl.read_ladder(ladder_name)
        environment = FiniteEnvironment(gym.make(name, **options), known=spec.known, reward_range=tuple(spec.rewards))
        if environment.mdp is None:
            raise SystemExit(f"{name}: {environment.why_not}")
        m = spec.ladder.class_of(environment.mdp) or 0
        runs = {
            each: [
                orl.learn(agent, environment, episodes=size.episodes(episodes), seed=seed, progress=False)
                for seed in range(size.seeds(2))
            ]
            for each, agent in agents(spec.ladder, m, *(NAMES[:1] if name == "Taxi-v4" else NAMES)).items()
        }
        first, *others = (mean(results) for results in runs.values())
        given = "".join(f", {key} {value}" for key, value in options.items())
        classes = " < ".join(map(str, spec.ladder.sizes))
        others += [""] * (len(NAMES) - len(runs))
        rows.append(
            (
                f"{name}{given}",
                spec.known.horizon,
                f"{episodes:,}",
                classes,
                m,
                first,
                found(runs[NAMES[0]], m),
                *others,
            )
        )
    header = ("environment; 2 seeds", "H", "episodes", "models", "m*", "ARL-GEN", SINCE, *NAMES[1:])
    return table(header, rows)

"""Ladders of models on Gymnasium's own environments: the rung found, exact regret in the environment's unit, speed.

    python -m benchmarks.study_gymnasium                     # everything
    python -m benchmarks.study_gymnasium --only cliff --seeds 1
    python -m benchmarks.study_gymnasium --speed             # steps per second, next to the environment's own

Each case is also one command of the command line, printed beside its name.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from occamrl.cli import agents, as_data
from occamrl.envs.ladder_file import read_ladder
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.running.run import learn
from occamrl.selectors.arl_gen import ARLGen


@dataclass(frozen=True, kw_only=True)
class Case:
    """An environment, a ladder and how long to play; ``regret`` False: identification only."""

    name: str
    environment: str
    ladder: str
    episodes: int
    options: dict[str, Any] = field(default_factory=dict)
    regret: bool = True

    @property
    def command(self) -> str:
        """The same from the command line."""
        given = "".join(f" --with {key}={str(value).lower()}" for key, value in self.options.items())
        compare = " --compare" if self.regret else ""
        return f"occamrl learn {self.environment}{given} --ladder {self.ladder} --episodes {self.episodes}{compare}"


CASES = [
    Case(name="lake 4x4", environment="FrozenLake-v1", ladder="frozen-lake-4x4", episodes=16_382),
    Case(
        name="lake 8x8",
        environment="FrozenLake-v1",
        ladder="frozen-lake-8x8",
        episodes=4_094,
        options={"map_name": "8x8"},
    ),
    Case(
        name="cliff slippery",
        environment="CliffWalking-v1",
        ladder="cliff-walking",
        episodes=4_094,
        options={"is_slippery": True},
    ),
    Case(name="taxi, no rain", environment="Taxi-v4", ladder="taxi", episodes=200, regret=False),
    Case(
        name="taxi, rain", environment="Taxi-v4", ladder="taxi", episodes=200, options={"is_rainy": True}, regret=False
    ),
]


def study(case: Case, seeds: int, episodes: int | None) -> None:
    """Play a case and print what came of it."""
    spec = read_ladder(case.ladder)
    env = gym.make(case.environment, **case.options)
    environment = FiniteEnvironment(env, known=spec.known, reward_range=tuple(spec.rewards))
    if environment.mdp is None:
        raise SystemExit(f"{case.name}: {environment.why_not}")
    right = spec.ladder.class_of(environment.mdp)
    print(f"\n{case.name}: classes of {spec.ladder.sizes} models, the right one is {right}\n  {case.command}")
    for name, agent in agents(spec, environment, delta=0.05, safe=False, compare=case.regret).items():
        played = [
            as_data(learn(agent, environment, episodes=episodes or case.episodes, seed=seed), spec)
            for seed in range(seeds)
        ]
        regret = [each["regret"] for each in played]
        line = f"  {name:42s} regret {statistics.median(regret):14,.2f}  [{min(regret):,.2f}, {max(regret):,.2f}]"
        if "chosen" in played[0]:
            chosen = [each["chosen"] for each in played]
            since = [each["since_episode"] for each in played]
            line += f"  class {chosen} since episode {since}"
        print(line, flush=True)


def speed(steps: int) -> None:
    """Print steps per second through Gymnasium with an agent, and of the environment alone with random actions."""
    spec = read_ladder("frozen-lake-4x4")
    env = gym.make("FrozenLake-v1")
    environment = FiniteEnvironment(env, known=spec.known)
    agent = ARLGen(ladder=spec.ladder)
    begun = learn(agent, environment, episodes=300, progress=False)  # compiled, and the class is found
    alone = _alone(env, steps)
    clock = time.perf_counter()
    result = learn(agent, environment, episodes=steps // 24, continue_from=begun, progress=False, replay=False)
    taken = result.steps - begun.steps
    both = (time.perf_counter() - clock) / taken
    alone = min(alone, _alone(env, steps))
    print(f"\nFrozenLake-v1, random actions alone: {1 / alone:,.0f} steps/s ({1e6 * alone:.1f} us a step)")
    print(f"with ARL-GEN on 231 models, exact regret included: {1 / both:,.0f} steps/s ({1e6 * both:.1f} us a step)")
    print(f"the agent costs {(both - alone) / alone:.2f} of the environment's own step")


def _alone(env: gym.Env[Any, Any], steps: int) -> float:
    """Return the seconds a step of the environment takes, seeded resets of its episodes included."""
    env.action_space.seed(0)
    actions = [int(env.action_space.sample()) for _ in range(steps)]
    episode = 0
    env.reset(seed=episode)
    clock = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            episode += 1
            env.reset(seed=episode)
    return (time.perf_counter() - clock) / steps


def main() -> None:
    """Read the options, and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=None)
    parser.add_argument("--speed", action="store_true", help="only the speed")
    given = parser.parse_args()
    for case in [] if given.speed else CASES:
        if given.only in case.name:
            study(case, given.seeds, given.episodes)
    if given.speed or not given.only:
        speed(100_000)


if __name__ == "__main__":
    main()

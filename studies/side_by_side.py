"""Episodes side by side in vector environments: episodes a second, and whether verdicts are equal.

    python -m studies.side_by_side --episodes 500

"slow lake" waits two thousandths of a second at every step, as a simulator in another process does.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import occamrl as orl

LANES = 16
WAIT = 0.002  # seconds of a step
LADDERS = {
    "FrozenLake-v1": "frozen-lake-4x4",
    "CliffWalking-v1": "cliff-walking",
    "slow lake": "frozen-lake-4x4",
}
KINDS = {"one": "1", "sync": f"{LANES}, in turn", "async": f"{LANES} processes"}


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that takes its time."""

    def step(self, action: Any) -> Any:
        """Wait, and act."""
        time.sleep(WAIT)
        return self.env.step(action)


def slow_lake() -> gym.Env[Any, Any]:
    """Return a lake that takes its time."""
    return Slow(gym.make("FrozenLake-v1"))


def environment(name: str, kind: str) -> Any:
    """Return an environment, or several equal ones."""
    slow = name == "slow lake"
    if kind == "one":
        return slow_lake() if slow else gym.make(name)
    if not slow:
        return gym.make_vec(name, num_envs=LANES, vectorization_mode=kind)
    if kind == "sync":
        return SyncVectorEnv([slow_lake] * LANES)
    return AsyncVectorEnv([slow_lake] * LANES)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=500)
    episodes = parser.parse_args().episodes
    print(f"| {episodes} episodes | lanes | episodes a second | the same class and policy |")
    print("| --- | --- | --- | --- |")
    for name, file in LADDERS.items():
        spec = orl.read_ladder(file)
        first: orl.Result | None = None
        for kind, lanes in KINDS.items():
            env = environment(name, kind)
            agent = orl.ARLGen(ladder=spec.ladder)
            begin = time.perf_counter()
            result = orl.learn(agent, env, episodes=episodes, known=spec.known, replay=False)
            seconds = time.perf_counter() - begin
            env.close()
            first = first or result
            same = result.verdict["chosen"] == first.verdict["chosen"]
            same &= result.next_plan.policy.tobytes() == first.next_plan.policy.tobytes()
            equal = {True: "yes", False: "no"}[same]
            print(f"| {name} | {lanes} | {episodes / seconds:,.0f} | {equal} |", flush=True)


if __name__ == "__main__":
    main()

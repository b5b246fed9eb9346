"""Where episodes are played: in one environment, or in several side by side, each a lane.

A plan is fixed for its block, and every episode is reset with a seed of its own, so that episodes
of a block are the same whether they are played one after the other or side by side. In every mode
of autoreset a lane is begun anew by ``reset`` with a mask and a seed; what Gymnasium resets by
itself at the end of an episode is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from occamrl.errors import ParameterError

Point: TypeAlias = Any  # of a space: whatever a user's environment takes and gives
Environment: TypeAlias = gym.Env[Any, Any]


class Response(NamedTuple):
    """What an environment answers to an action."""

    observation: Point
    reward: float
    terminated: bool
    truncated: bool


class Lanes(Protocol):
    """Environments of one kind that play episodes side by side."""

    env: Environment  # one of the kind: its spaces are read, and episodes are played again in it
    count: int

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Point]:
        """Begin an episode in some lanes, and return their observations."""

    def step(self, actions: Mapping[int, Point]) -> dict[int, Response]:
        """Act in every lane."""


class OneLane:
    """A Gymnasium environment."""

    count = 1

    def __init__(self, env: Environment) -> None:
        self.env = env

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Point]:
        """Begin an episode, and return its observation."""
        observation, _ = self.env.reset(seed=seeds[0])
        return {0: observation}

    def step(self, actions: Mapping[int, Point]) -> dict[int, Response]:
        """Act."""
        return {0: act(self.env, actions[0])}


class VectorLanes:
    """A vector environment of Gymnasium, made of equal environments."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        # a wrapper around all of them may change what is seen, and native ones take no seeds
        if not isinstance(envs, (SyncVectorEnv, AsyncVectorEnv)):
            raise ParameterError(
                "env",
                got=type(envs).__name__,
                expected='gymnasium.make_vec(name, num_envs=..., vectorization_mode="sync"), or '
                '"async"; with wrappers=[...] around each environment',
            )
        self._envs = envs
        self.count = int(envs.num_envs)
        self.env = envs.env_fns[0]()
        # what resets itself in the step that ends an episode keeps the last observation aside
        self._aside = envs.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP

    def reset(self, seeds: Mapping[int, int]) -> dict[int, Point]:
        """Begin an episode in some lanes, and return their observations."""
        mask = np.zeros(self.count, bool)
        mask[list(seeds)] = True
        every = [seeds.get(lane) for lane in range(self.count)]
        batch, _ = self._envs.reset(seed=every, options={"reset_mask": mask})
        observations = list(iterate(self._envs.observation_space, batch))
        return {lane: observations[lane] for lane in seeds}

    def step(self, actions: Mapping[int, Point]) -> dict[int, Response]:
        """Act in every lane."""
        space = self._envs.single_action_space
        ordered = [actions[lane] for lane in range(self.count)]
        empty: Point = create_empty_array(space, n=self.count)
        batch = concatenate(space, ordered, empty)
        observed, rewards, terminated, truncated, infos = self._envs.step(batch)
        observations = list(iterate(self._envs.observation_space, observed))
        responses = {}
        for lane in range(self.count):
            observation = observations[lane]
            if self._aside and (terminated[lane] or truncated[lane]):
                observation = infos["final_obs"][lane]
            responses[lane] = Response(
                observation, float(rewards[lane]), bool(terminated[lane]), bool(truncated[lane])
            )
        return responses


def act(env: Environment, action: Point) -> Response:
    """Do one step in an environment."""
    observation, reward, terminated, truncated, _ = env.step(action)
    return Response(observation, float(reward), bool(terminated), bool(truncated))


def lanes_of(env: object) -> Lanes:
    """Return the lanes of an environment or a vector environment; refuse anything else."""
    if isinstance(env, VectorEnv):
        return VectorLanes(env)
    if isinstance(env, gym.Env):
        return OneLane(env)
    raise ParameterError(
        "env",
        got=type(env).__name__,
        expected="a Gymnasium environment, gymnasium.make(...), or several, "
        "gymnasium.make_vec(...); for a problem or FiniteMDP, call occamrl.run",
    )

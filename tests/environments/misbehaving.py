"""Small environments: one that behaves, and one for every way in which an environment can misbehave."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from occamrl import seeding
from occamrl._core.rng import draw_reward
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.models.finite import FiniteFamily
from occamrl.protocols import Floats
from tests.cases import environment_uniforms, stack

CASE = stack(3, states=4, actions=2, members=5, horizon=6)
MDP = CASE.mdp


def learner() -> UCRLVTR:
    return UCRLVTR(family=FiniteFamily(CASE.kernels))


class Plant(gym.Env[Any, Any]):
    """CASE's problem, without a table; ``fault`` says what goes wrong in episode ``when`` at its second step."""

    def __init__(self, fault: str = "", when: int = 3) -> None:
        self.observation_space = spaces.Discrete(4)
        self.action_space = spaces.Discrete(2)
        self.fault, self.when = fault, when
        self.episode, self.h, self.s = -1, 0, 0
        self.unseeded = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode += 1
        self.h, self.s = 0, 0
        if self.fault == "reset" and self.episode == self.when:
            raise RuntimeError("the pump is stuck")
        return self.s, {}

    def step(self, action: Any) -> Any:
        generator = self.unseeded if self.fault == "seed" else self.np_random
        reward: Any = CASE.reward[self.s, action]
        self.s = int(generator.choice(4, p=CASE.kernels[0, self.s, action]))
        self.h += 1
        observation: Any = self.s
        if self.episode == self.when and self.h == 2:
            match self.fault:
                case "nan":
                    reward = float("nan")
                case "range":
                    reward = 1.5
                case "other":
                    reward = 1.0 - reward
                case "text":
                    reward = "much"
                case "observation":
                    observation = 4
                case "kind":
                    observation = 0.5
                case "exception":
                    raise RuntimeError("the pump is stuck")
                case "truncation":
                    return observation, reward, False, True, {}
                case "shape":
                    return observation, reward
        return observation, reward, False, False, {}


class Scripted(gym.Env[Any, Any]):
    """A problem driven by the very numbers that the fused loop draws, with its truth in view or not."""

    def __init__(self, seed: int, episodes: int, mdp: Any = MDP, *, shown: bool = True) -> None:
        self.observation_space, self.action_space = spaces.Discrete(mdp.states), spaces.Discrete(mdp.actions)
        self.truth, self.actions, self.key = mdp.truth, mdp.actions, seeding.key(seed, "environment")
        if shown:
            self.mdp = mdp
        self.uniforms: Floats = environment_uniforms(seed, episodes, mdp.horizon)
        self.episode, self.h, self.s = -1, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.h = self.episode + 1, 0
        self.s = int(np.argmax(self.uniforms[self.episode, 0] < self.truth.initial_cumulative[0]))
        return self.s, {}

    def step(self, action: Any) -> Any:
        truth, pair, h = self.truth, self.s * self.actions + action, self.h
        first, last = truth.outcomes.start[pair], truth.outcomes.start[pair + 1]
        row = truth.cumulative[h % truth.cumulative.shape[0], first:last]
        o = first + int(np.argmax(self.uniforms[self.episode, h + 1] < row))
        mean = truth.base_reward[pair] + truth.outcomes.bonus[o]
        self.s, self.h = int(truth.outcomes.next_state[o]), h + 1
        return self.s, float(draw_reward(truth.noise, o, mean, self.key, self.episode, h)), False, False, {}

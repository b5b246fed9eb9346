"""Gymnasium environments: spaces as integers, tables as problems, ladders of models in files.

Importing this package registers every problem under Gymnasium's names,
``gymnasium.make("occamrl/RiverSwim-v0", states=5)``; so does the name itself, written with its
module: ``gymnasium.make("occamrl.envs:occamrl/RiverSwim-v0")``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from occamrl.errors import OccamRLError, ParameterError, require_integer
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.problems.named import make_problem
from occamrl.protocols import Problem
from occamrl.registry import own


class ProblemEnv(gym.Env[np.int64, np.int64]):
    """A problem with a known optimum, stepped one transition at a time.

    An episode has H steps and is then truncated, as Gymnasium calls an end that lies outside the
    problem; absorbing states are ordinary states. Rewards are in the problem's own unit where it
    has one (money, minutes), otherwise in [0, 1]. ``problem`` is a name, with ``parameters``, or a
    problem or FiniteMDP as it is.
    """

    def __init__(self, problem: str | Problem | FiniteMDP, **parameters: Any) -> None:
        self.problem = problem
        if isinstance(problem, str):
            self.problem = make_problem(problem, **parameters)
        self.mdp = as_mdp(self.problem)
        self.observation_space = spaces.Discrete(self.mdp.states)
        self.action_space = spaces.Discrete(self.mdp.actions)
        self._state: int | None = None
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Draw the first state."""
        super().reset(seed=seed)
        state = self.np_random.choice(self.mdp.states, p=self.mdp.initial_distribution)
        self._state = int(state)
        self._step = 0
        return np.int64(state), {}

    def step(self, action: object) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Draw what follows an action; after H steps the episode is truncated."""
        mdp = self.mdp
        if self._state is None or self._step >= mdp.horizon:
            raise OccamRLError("no episode is under way; call reset() first")
        chosen = require_integer("action", action, 0, maximum=mdp.actions - 1)
        allowed = mdp.known.allowed[self._state]
        if not allowed[chosen]:
            got = f"{chosen} in state {self._state}"
            expected = f"one that is allowed: {np.flatnonzero(allowed).tolist()}"
            raise ParameterError("action", got=got, expected=expected)

        pair = self._state * mdp.actions + chosen
        outcomes = np.arange(mdp.outcomes.start[pair], mdp.outcomes.start[pair + 1])
        law = mdp.law(self._step)[outcomes]
        outcome = self.np_random.choice(outcomes, p=law / law.sum())
        reward = float(mdp.base_reward[pair] + mdp.outcomes.bonus[outcome])
        if mdp.reward_noise is not None:
            reward = float(self.np_random.random() < reward)
        self._state = int(mdp.outcomes.next_state[outcome])
        self._step += 1
        paid = float(mdp.known.unit.total(reward, 1))
        return np.int64(self._state), paid, False, self._step >= mdp.horizon, {}


def register_problems() -> list[str]:
    """Register all problems that are not registered yet; return the names of all."""
    identifiers = []
    for name in own("problems"):
        identifier = f"occamrl/{name}-v0"
        identifiers.append(identifier)
        if identifier not in gym.registry:
            entry_point = "occamrl.envs:ProblemEnv"
            gym.register(identifier, entry_point=entry_point, kwargs={"problem": name})
    return identifiers


register_problems()

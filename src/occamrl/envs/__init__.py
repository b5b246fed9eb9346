"""Gymnasium environments: finite spaces as integers, tables as problems, ladders of models in files.

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
from occamrl.problems.mdp import RewardMap, as_mdp
from occamrl.problems.named import make_problem
from occamrl.registry import own


class ProblemEnv(gym.Env[np.int64, np.int64]):
    """A problem with a known optimum, stepped one transition at a time.

    An episode has H steps and is then truncated, as Gymnasium calls an end that lies outside the
    problem; absorbing states are ordinary states. Rewards are in the problem's own unit where it
    has one (money, minutes), otherwise in [0, 1]. ``problem`` is a name, with ``parameters``, or a
    problem or FiniteMDP as it is.
    """

    def __init__(self, problem: Any, **parameters: Any) -> None:
        self.problem = make_problem(problem, **parameters) if isinstance(problem, str) else problem
        self.mdp = as_mdp(self.problem)
        self.rewards: RewardMap = getattr(self.problem, "unit", self.mdp.known.unit)
        self.observation_space = spaces.Discrete(self.mdp.states)
        self.action_space = spaces.Discrete(self.mdp.actions)
        self._state: int | None = None
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draw the first state."""
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(self.mdp.states, p=self.mdp.initial_distribution))
        self._step = 0
        return np.int64(self._state), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Draw what follows an action; after H steps the episode is truncated."""
        mdp, outcomes = self.mdp, self.mdp.outcomes
        if self._state is None or self._step >= mdp.horizon:
            raise OccamRLError("no episode is under way; call reset() first")
        require_integer("action", action, 0, maximum=mdp.actions - 1)
        if not mdp.known.allowed[self._state, int(action)]:
            expected = (
                f"one that is allowed: {np.flatnonzero(mdp.known.allowed[self._state]).tolist()}"
            )
            raise ParameterError(
                "action", got=f"{int(action)} in state {self._state}", expected=expected
            )
        pair = self._state * mdp.actions + int(action)
        listed = np.arange(outcomes.start[pair], outcomes.start[pair + 1])
        law = mdp.probability[0 if mdp.stationary else self._step, listed]
        outcome = self.np_random.choice(listed, p=law / law.sum())
        reward = float(mdp.base_reward[pair] + outcomes.bonus[outcome])
        if mdp.reward_noise is not None:
            reward = float(self.np_random.random() < reward)
        self._state, self._step = int(outcomes.next_state[outcome]), self._step + 1
        return (
            np.int64(self._state),
            self.rewards.total(reward, 1),
            False,
            self._step >= mdp.horizon,
            {},
        )


def register_problems() -> list[str]:
    """Register what is not registered yet, a problem being found because its file is there; return all names."""
    names = {f"occamrl/{name}-v0": name for name in own("problems")}
    for identifier, name in names.items():
        if identifier not in gym.registry:
            gym.register(
                identifier, entry_point="occamrl.envs:ProblemEnv", kwargs={"problem": name}
            )
    return list(names)


register_problems()

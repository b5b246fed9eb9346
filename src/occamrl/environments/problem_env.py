"""A problem with a known optimum as a Gymnasium environment, drawn from the environment's own stream.

An episode has H steps and is then truncated, as Gymnasium calls an end that lies outside the problem; a problem's own
absorbing states are ordinary states. Rewards scatter where the problem says so (``reward_noise``). They are in the
problem's own unit where it has one (money, minutes), otherwise in [0, 1]. The problem itself is ``env.unwrapped.mdp``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from occamrl.environments import drawing
from occamrl.environments.tables import rewards_of_problem
from occamrl.errors import OccamRLError, require_choice
from occamrl.problems.finite_mdp import as_mdp
from occamrl.registry import make_problem


class ProblemEnv(gym.Env[np.int64, np.int64]):
    """A problem, stepped one transition at a time.

    Parameters
    ----------
    problem : str or problem
        Its name, with ``parameters``; or a problem or FiniteMDP as it is.
    render_mode : "ansi" | "rgb_array", optional
    """

    # A mutable default of the class is what Gymnasium reads; its base declares it without ClassVar.
    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012  # Gymnasium's

    def __init__(self, problem: Any, render_mode: str | None = None, **parameters: Any) -> None:
        if render_mode is not None:
            require_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.problem = make_problem(problem, **parameters) if isinstance(problem, str) else problem
        self.mdp = as_mdp(self.problem)
        self.observation_space = spaces.Discrete(self.mdp.states)
        self.action_space = spaces.Discrete(self.mdp.actions)
        self.render_mode = render_mode
        self._rewards = rewards_of_problem(self.problem)
        self._state: int | None = None
        self._step = 0
        self._last: tuple[int, float] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw the first state."""
        super().reset(seed=seed)
        cumulative = self.mdp.truth.initial_cumulative[0]
        self._state = int(np.searchsorted(cumulative, self.np_random.random(), side="right"))
        self._step, self._last = 0, None
        return np.int64(self._state), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Draw what follows an action; after H steps the episode is truncated."""
        if self._state is None or self._step >= self.mdp.horizon:
            raise OccamRLError("no episode is under way; call reset() first")
        if not self.action_space.contains(action):
            raise OccamRLError(f"action: got {action!r}, expected an integer in [0, {self.mdp.actions})")
        truth, pair = self.mdp.truth, self._state * self.mdp.actions + int(action)
        first, last = truth.outcomes.start[pair], truth.outcomes.start[pair + 1]
        row = truth.cumulative[self._step % truth.cumulative.shape[0], first:last]
        outcome = first + int(np.searchsorted(row[:-1], self.np_random.random(), side="right"))
        reward = float(truth.base_reward[pair] + truth.outcomes.bonus[outcome])
        if self.mdp.reward_noise is not None:
            reward = self.mdp.reward_noise.drawn(truth.noise, outcome, reward, self.np_random.random())
        reward = self._rewards.total(reward, 1)
        self._state = int(truth.outcomes.next_state[outcome])
        self._step += 1
        self._last = (int(action), reward)
        return np.int64(self._state), reward, False, self._step >= self.mdp.horizon, {}

    def render(self) -> Any:
        """Return a line of text, or a picture [height, width, 3]."""
        if self.render_mode is None or self._state is None:
            return None
        scene = drawing.scene_of(self.problem, self._state, self._step, self.mdp, self._last)
        return drawing.text(scene) if self.render_mode == "ansi" else drawing.picture(scene)

"""Every problem of this package under Gymnasium's names: ``gymnasium.make("occamrl/RiverSwim-v0", states=5)``.

``import occamrl.envs`` registers them; so does the name itself, written with its module:
``gymnasium.make("occamrl.envs:occamrl/RiverSwim-v0")``. States are drawn as tiles, in the rows of the problem's map
(``lake``) or in rows of 30: as text, or as a picture in which the state that one is in is red.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from occamrl._core.rng import reward_at
from occamrl.envs.wrapper import rewards_of_problem
from occamrl.errors import OccamRLError, require_choice
from occamrl.problems.mdp import as_mdp
from occamrl.registry import make_problem, problems

_SIDE = 16  # of a tile, in pixels
_HERE, _PLAIN = (214, 69, 48), (236, 238, 240)
_COLOURS = {"S": (222, 238, 222), "F": (224, 236, 246), "H": (62, 78, 98), "G": (248, 208, 92)}


class ProblemEnv(gym.Env[np.int64, np.int64]):
    """A problem with a known optimum, stepped one transition at a time and drawn from the environment's own stream.

    An episode has H steps and is then truncated, as Gymnasium calls an end that lies outside the problem; a problem's
    own absorbing states are ordinary states. Rewards scatter where the problem says so (``reward_noise``). They are in
    the problem's own unit where it has one (money, minutes), otherwise in [0, 1]. The problem itself is
    ``env.unwrapped.mdp``.

    Parameters
    ----------
    problem : str or problem
        Its name, with ``parameters``; or a problem or FiniteMDP as it is.
    render_mode : "ansi" | "rgb_array", optional
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # gymnasium.Env declares it without ClassVar
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }

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
            reward = reward_at(truth.noise, outcome, reward, self.np_random.random())
        reward = self._rewards.total(reward, 1)
        self._state = int(truth.outcomes.next_state[outcome])
        self._step += 1
        self._last = (int(action), reward)
        return np.int64(self._state), reward, False, self._step >= self.mdp.horizon, {}

    def render(self) -> Any:
        """Return lines of text, or a picture [height, width, 3]."""
        if self.render_mode is None or self._state is None:
            return None
        rows = getattr(self.problem, "lake", ("." * min(30, self.mdp.states),))
        columns = len(rows[0])
        tiles = "".join(rows).ljust(self.mdp.states, ".")[: self.mdp.states]
        if self.render_mode == "rgb_array":
            colours = np.full((-(-len(tiles) // columns) * columns, 3), 255, np.uint8)
            colours[: len(tiles)] = [_COLOURS.get(tile, _PLAIN) for tile in tiles]
            colours[self._state] = _HERE
            return colours.reshape(-1, columns, 3).repeat(_SIDE, axis=0).repeat(_SIDE, axis=1)
        cells = [f"[{tile}]" if s == self._state else f" {tile} " for s, tile in enumerate(tiles)]
        lines = ["".join(cells[first : first + columns]) for first in range(0, len(cells), columns)]
        caption = f"{type(self.problem).__name__}  step {self._step} of {self.mdp.horizon}  state {self._state}"
        if self._last is not None:
            caption += f"  after action {self._last[0]}, reward {self._last[1]:.4g}"
        return "\n".join([*lines, caption])


def register_problems() -> list[str]:
    """Register what is not registered yet, a problem being found because its file is there; return all names."""
    names = []
    for name in problems():
        identifier = f"occamrl/{name}-v0"
        names.append(identifier)
        if identifier not in gym.registry:
            gym.register(identifier, entry_point="occamrl.envs.registered:ProblemEnv", kwargs={"problem": name})
    return names

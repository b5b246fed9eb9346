"""Every problem of this package under Gymnasium's names: ``gymnasium.make("occamrl/RiverSwim-v0", states=5)``.

``import occamrl.envs`` registers them; so does the name itself, written with its module:
``gymnasium.make("occamrl.envs:occamrl/RiverSwim-v0")``. An environment can be drawn: states are tiles, on the grid that
a problem has (``lake``, rows of letters; ``grid``, rows and columns), on a line for up to 30 states, and as a compact
block of tiles otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from occamrl._core.rng import reward_at
from occamrl.envs.wrapper import rewards_of_problem
from occamrl.errors import OccamRLError, require_choice
from occamrl.problems.mdp import as_mdp
from occamrl.registry import make_problem, problems

_WIDEST, _LARGEST_TILE, _SMALLEST_TILE, _MARGIN, _FOOT = 640, 64, 6, 12, 44
_PAPER, _INK, _FAINT = (250, 250, 247), (32, 36, 42), (205, 209, 214)
_HERE = (214, 69, 48)
_TILES = {"S": (222, 238, 222), "F": (224, 236, 246), "H": (62, 78, 98), "G": (248, 208, 92), " ": (236, 238, 240)}


def tiles_of(problem: Any, states: int) -> tuple[str, ...]:
    """Return the rows of tiles on which the states of a problem are drawn."""
    lake, grid = getattr(problem, "lake", None), getattr(problem, "grid", None)
    if lake is not None and sum(len(row) for row in lake) == states:
        return tuple(lake)
    if isinstance(grid, tuple) and len(grid) == 2 and math.prod(grid) >= states:
        rows, columns = int(grid[0]), int(grid[1])
    else:
        columns = states if states <= 30 else math.ceil(math.sqrt(2 * states))
        rows = math.ceil(states / columns)
    return (" " * columns,) * rows


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
        tiles = tiles_of(self.problem, self.mdp.states)
        caption = f"{type(self.problem).__name__}  step {self._step} of {self.mdp.horizon}  state {self._state}"
        if self._last is not None:
            caption += f"  after action {self._last[0]}, reward {self._last[1]:.4g}"
        if self.render_mode == "ansi":
            return _text(tiles, caption, self._state, self.mdp.states)
        return _picture(tiles, caption, self._state, self.mdp.states)


def _text(tiles: tuple[str, ...], caption: str, here: int, states: int) -> str:
    """Return the tiles with the current one in brackets, and a line below."""
    cells = [f" {'.' if letter == ' ' else letter} " for letter in "".join(tiles)][:states]
    cells[here] = f"[{cells[here][1]}]"
    columns = len(tiles[0])
    return "\n".join(["".join(cells[first : first + columns]) for first in range(0, states, columns)] + [caption])


def _picture(tiles: tuple[str, ...], caption: str, here: int, states: int) -> NDArray[np.uint8]:
    """Return an image [height, width, 3]."""
    rows, columns = len(tiles), len(tiles[0])
    side = max(_SMALLEST_TILE, min(_LARGEST_TILE, (_WIDEST - 2 * _MARGIN) // columns, (_WIDEST - _FOOT) // rows))
    font, small = ImageFont.load_default(14), ImageFont.load_default(max(8, side // 3))
    width = max(columns * side, math.ceil(font.getlength(caption))) + 2 * _MARGIN
    image = Image.new("RGB", (width, rows * side + _MARGIN + _FOOT), _PAPER)
    pen = ImageDraw.Draw(image)
    for state, letter in enumerate("".join(tiles)[:states]):
        x, y = _MARGIN + state % columns * side, _MARGIN + state // columns * side
        pen.rectangle((x, y, x + side - 1, y + side - 1), fill=_TILES.get(letter, _TILES[" "]), outline=_FAINT)
        m, n, reach = x + side / 2, y + side / 2, 0.34 * side
        if state == here:
            pen.ellipse((m - reach, n - reach, m + reach, n + reach), fill=_HERE)
        elif side >= 18 and (letter != " " or side >= 24):
            colour = _PAPER if letter == "H" else _INK if letter != " " else (150, 156, 163)
            pen.text((m, n), letter if letter != " " else str(state), fill=colour, font=small, anchor="mm")
    pen.text((_MARGIN, rows * side + _MARGIN + 10), caption, fill=_INK, font=font)
    return np.asarray(image, dtype=np.uint8).copy()


def register_problems() -> list[str]:
    """Register what is not registered yet, a problem being found because its file is there; return all names."""
    names = []
    for name in problems():
        identifier = f"occamrl/{name}-v0"
        names.append(identifier)
        if identifier not in gym.registry:
            gym.register(identifier, entry_point="occamrl.envs.registered:ProblemEnv", kwargs={"problem": name})
    return names

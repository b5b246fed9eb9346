"""Pictures of a problem in play: where one is, what was done last, what it paid.

States are drawn as tiles: on the grid that a problem has (``lake``, rows of letters; ``grid``, rows and columns), as a
line for rivers and the like up to 30 states, and as a compact block of tiles otherwise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from occamrl.problems.finite_mdp import FiniteMDP

_WIDEST, _LARGEST_TILE, _SMALLEST_TILE, _MARGIN, _FOOT = 640, 64, 6, 12, 44
_PAPER, _INK, _FAINT = (250, 250, 247), (32, 36, 42), (205, 209, 214)
_HERE = (214, 69, 48)
_TILES = {"S": (222, 238, 222), "F": (224, 236, 246), "H": (62, 78, 98), "G": (248, 208, 92), " ": (236, 238, 240)}


class Scene(NamedTuple):
    """What is to be drawn."""

    tiles: tuple[str, ...]  # rows of letters; tile i is state i
    states: int
    state: int
    step: int
    horizon: int
    last: tuple[int, float] | None  # action and reward
    name: str


def scene_of(problem: Any, state: int, step: int, mdp: FiniteMDP, last: tuple[int, float] | None) -> Scene:
    """Return the scene of a problem in a state."""
    name = type(problem).__name__
    lake = getattr(problem, "lake", None)
    if lake is not None and sum(len(row) for row in lake) == mdp.states:
        tiles = tuple(lake)
    else:
        rows, columns = _shape(problem, mdp.states)
        tiles = tuple(" " * columns for _ in range(rows))
    return Scene(tiles, mdp.states, state, step, mdp.horizon, last, name)


def _shape(problem: Any, states: int) -> tuple[int, int]:
    grid = getattr(problem, "grid", None)
    if isinstance(grid, tuple) and len(grid) == 2 and math.prod(grid) >= states:
        return int(grid[0]), int(grid[1])
    if states <= 30:
        return 1, states
    columns = math.ceil(math.sqrt(2 * states))
    return math.ceil(states / columns), columns


def text(scene: Scene) -> str:
    """Return the scene as text: the tiles with the current one in brackets, and a line below."""
    columns, lines = len(scene.tiles[0]), []
    for r, row in enumerate(scene.tiles):
        cells = []
        for c, letter in enumerate(row):
            tile = "." if letter == " " else letter
            if r * columns + c < scene.states:
                cells.append(f"[{tile}]" if r * columns + c == scene.state else f" {tile} ")
        lines.append("".join(cells))
    return "\n".join([*lines, _told(scene)])


def _told(scene: Scene) -> str:
    line = f"{scene.name}  step {scene.step} of {scene.horizon}  state {scene.state}"
    if scene.last is not None:
        line += f"  after action {scene.last[0]}, reward {scene.last[1]:.4g}"
    return line


def picture(scene: Scene) -> NDArray[np.uint8]:
    """Return the scene as an image [height, width, 3]."""
    rows, columns = len(scene.tiles), len(scene.tiles[0])
    side = max(_SMALLEST_TILE, min(_LARGEST_TILE, (_WIDEST - 2 * _MARGIN) // columns, (_WIDEST - _FOOT) // rows))
    font, small = ImageFont.load_default(14), ImageFont.load_default(max(8, side // 3))
    words = _told(scene)
    width = max(columns * side, math.ceil(font.getlength(words))) + 2 * _MARGIN
    image = Image.new("RGB", (width, rows * side + _MARGIN + _FOOT), _PAPER)
    pen = ImageDraw.Draw(image)
    for state in range(min(scene.states, rows * columns)):
        r, c = divmod(state, columns)
        x, y, letter = _MARGIN + c * side, _MARGIN + r * side, scene.tiles[r][c]
        pen.rectangle((x, y, x + side - 1, y + side - 1), fill=_TILES.get(letter, _TILES[" "]), outline=_FAINT)
        middle = (x + side / 2, y + side / 2)
        if state == scene.state:
            reach = 0.34 * side
            (m, n) = middle
            pen.ellipse((m - reach, n - reach, m + reach, n + reach), fill=_HERE)
        elif side >= 18 and (letter != " " or side >= 24):
            colour = _PAPER if letter == "H" else _INK if letter != " " else (150, 156, 163)
            pen.text(middle, letter if letter != " " else str(state), fill=colour, font=small, anchor="mm")
    pen.text((_MARGIN, rows * side + _MARGIN + 10), words, fill=_INK, font=font)
    return np.asarray(image, dtype=np.uint8).copy()

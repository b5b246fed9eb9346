"""Policies as arrows on a map: where states are cells of a grid and actions are directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from occamrl.answers.figures import COLOURS, Style, axes_or_new, text_of
from occamrl.errors import ParameterError, require_number
from occamrl.policies import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from occamrl.running.result import Result

Cell = tuple[int, int]  # row from the top, column from the left

DIRECTIONS: dict[str, Cell] = {  # rows down, columns right
    "left": (0, -1),
    "right": (0, 1),
    "up": (-1, 0),
    "down": (1, 0),
    "west": (0, -1),
    "east": (0, 1),
    "north": (-1, 0),
    "south": (1, 0),
}
SHADES = {  # of holes, cliffs, goals and starts
    "H": "#c6d3df",
    "C": "#c6d3df",
    "G": "#d5ecd9",
    "S": "#fdf1dc",
}
_WALL = "#e4e4e4"  # of cells in which the system never is
_ENDS = ("H", "G", "C")  # cells in which nothing is done
_MOST_CELLS = 900  # that are drawn


# A map of letters ---------------------------------------------------------------------------------


def draw_map(
    result: Result,
    cells: Sequence[Sequence[object]],
    axes: Axes | None = None,
    *,
    actions: Sequence[str] | None = None,
    step: int = 1,
) -> Axes:
    """Draw the policy of one step on a map, whose cells are the first states, row by row."""
    axes = axes_or_new(axes)
    letters = rows_of_map(cells)
    policy, _, names = result.named_policy(None, actions)
    height = len(letters)
    width = len(letters[0])
    if height * width > policy.shape[1]:
        got = f"{height} x {width} cells"
        raise ParameterError("map", got=got, expected=f"at most {policy.shape[1]} cells")
    require_number("step", step, 1, len(policy))
    if not DIRECTIONS.keys() & {name.casefold() for name in names}:
        expected = f"names of actions, such as {list(DIRECTIONS)[:4]}"
        raise ParameterError("actions", got=names, expected=expected)
    done = {}
    marks = {}
    for s in range(height * width):
        cell = divmod(s, width)
        letter = letters[cell[0]][cell[1]]
        marks[cell] = letter
        if not result.finite.absorbing[s] and letter not in _ENDS:
            done[cell] = names[int(policy[step - 1, s])]
    draw_cells(axes, (height, width), marks, done)
    axes.set_title(f"what to do at step {step}", loc="left", fontsize="medium")
    return axes


def rows_of_map(cells: Sequence[Sequence[object]]) -> list[list[str]]:
    """Return the letters of a map, which may be strings, or bytes as in Gymnasium."""
    rows = []
    for row in cells:
        letters = []
        for cell in row:
            letters.append(cell.decode() if isinstance(cell, bytes) else str(cell))
        rows.append(letters)
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or 0 in lengths:
        raise ParameterError("map", got=f"rows of {sorted(lengths)}", expected="rows of one length")
    return rows


# States that are cells ----------------------------------------------------------------------------


def cells_of(policy: Policy) -> dict[int, Cell] | None:
    """Return the cell of each state in which something is done; None where that is no map.

    It is one if those states are pairs of whole numbers, row and column from 0, and all actions
    are directions.
    """
    known = policy.known
    for a in range(known.actions):
        if str(known.action_name(a)).casefold() not in DIRECTIONS:
            return None
    cells = {}
    for s in range(known.states):
        name = known.state_name(s)
        whole = isinstance(name, tuple) and all(type(part) is int and part >= 0 for part in name)
        if isinstance(name, tuple) and whole and len(name) == 2:
            cells[s] = name
        elif not known.absorbing[s]:
            return None
    if not cells:
        return None
    height = 1 + max(row for row, _ in cells.values())
    width = 1 + max(column for _, column in cells.values())
    if height * width > _MOST_CELLS or min(height, width) < 2:
        return None
    return cells


def draw_policy_map(policy: Policy, cells: Mapping[int, Cell], axes: Axes) -> None:
    """Draw a policy in its longest stretch: no arrow where it never comes to, walls in grey."""
    stretch = policy.longest
    height = 1 + max(row for row, _ in cells.values())
    width = 1 + max(column for _, column in cells.values())
    done = {}
    marks = {}
    for s, cell in cells.items():
        marks[cell] = ""
        a = int(stretch.action[s])
        if a >= 0 and not policy.known.absorbing[s]:
            done[cell] = str(policy.known.action_name(a))
    draw_cells(axes, (height, width), marks, done)
    axes.set_title(stretch.called(policy.labels.step), loc="left", fontsize="medium")


# Drawing ------------------------------------------------------------------------------------------


def draw_cells(
    axes: Axes,
    size: tuple[int, int],
    marks: Mapping[Cell, str],
    done: Mapping[Cell, str],
) -> None:
    """Draw cells with their letters, and what is done in some: an arrow, or the action's name.

    ``size`` counts rows and columns; a cell without a mark is a wall.
    """
    from matplotlib.patches import Rectangle

    height, width = size
    for row in range(height):
        for column in range(width):
            mark = marks.get((row, column))
            shade = _WALL
            if mark is not None:
                shade = SHADES.get(mark, "white")
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=shade, edgecolor="silver"))
            if mark in SHADES:
                small: Style = {"ha": "left", "va": "top", "fontsize": "x-small"}
                axes.text(column - 0.45, row - 0.45, mark, color="dimgrey", **small)
    for (row, column), name in done.items():
        _draw_action(axes, row, column, name)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    axes.set(xticks=[], yticks=[])


def _draw_action(axes: Axes, row: int, column: int, name: str) -> None:
    """Draw an action in the middle of a cell."""
    if name.casefold() not in DIRECTIONS:
        axes.text(column, row, text_of(name), ha="center", va="center", fontsize="small")
        return
    down, right = DIRECTIONS[name.casefold()]
    arrow: Style = {"arrowstyle": "->", "color": COLOURS[0], "lw": 1.8, "mutation_scale": 9}
    arrow |= {"shrinkA": 0.0, "shrinkB": 0.0}
    begin = (column - 0.3 * right, row - 0.3 * down)
    axes.annotate("", (column + 0.3 * right, row + 0.3 * down), begin, arrowprops=arrow)

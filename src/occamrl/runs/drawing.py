"""Drawing the regret curve of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.contracts import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS = 2_000


def thin(episodes: Ints) -> Ints:
    """Return indices of at most a few thousand points, spread evenly and in the logarithm."""
    if episodes.size <= _MOST_POINTS:
        return np.arange(episodes.size)
    even = np.linspace(0, episodes.size - 1, _MOST_POINTS // 2)
    early = np.geomspace(1, episodes.size, _MOST_POINTS // 2) - 1
    return np.unique(np.concatenate([even, early]).astype(np.int64))


def new_axes() -> Axes:
    """Return the axes of a new figure, drawn without any window system."""
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.0), layout="constrained").subplots()


def dress(axes: Axes, title: str = "") -> None:
    """Label the axes of a regret curve."""
    axes.set_xlabel("episode")
    axes.set_ylabel("cumulative regret")
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    if title:
        axes.set_title(title, loc="left", fontsize="medium")


def plot_regret(episodes: Ints, cumulative_regret: Floats, axes: Axes | None = None, **style: Any) -> Axes:
    """Draw cumulative regret over episodes, on new axes unless some are given."""
    if axes is None:
        axes = new_axes()
        dress(axes)
    at = thin(episodes)
    axes.plot(episodes[at], cumulative_regret[at], **style)
    return axes

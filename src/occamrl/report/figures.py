"""Figures of regret, readable in print and by colour-blind people (colours of Okabe and Ito, plus line styles)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.runs.drawing import dress, thin
from occamrl.runs.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 1)))


def mean_curve(results: Sequence[Result]) -> tuple[Ints, Floats, Floats, Floats]:
    """Return episodes, and the mean, smallest and largest cumulative regret over runs of the same length."""
    at = thin(results[0].episodes)
    curves = np.stack([result.cumulative_regret[at] for result in results])
    return results[0].episodes[at], curves.mean(axis=0), curves.min(axis=0), curves.max(axis=0)


def compare(panels: Mapping[str, Mapping[str, Sequence[Result]]], *, logarithmic: bool = False) -> Figure:
    """Draw one panel per problem, with a mean curve per agent and a band from the smallest to the largest seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6 * len(panels), 4.2), layout="constrained")
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, agents) in zip(row, panels.items(), strict=True):
        dress(axes, title)
        for i, (label, results) in enumerate(agents.items()):
            episodes, mean, low, high = mean_curve(results)
            colour, style = COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)]
            axes.plot(episodes, mean, color=colour, linestyle=style, label=label)
            axes.fill_between(episodes, low, high, color=colour, alpha=0.15, linewidth=0)
        if logarithmic:
            axes.set_xscale("log")
            axes.set_yscale("symlog", linthresh=1.0)
        axes.legend(frameon=False, fontsize="small")
    return figure

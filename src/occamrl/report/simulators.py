"""Pictures and the page of what the data say of simulators that can only be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from occamrl.answers.wording import times
from occamrl.control import errors
from occamrl.control.answer import MOST, Answer
from occamrl.errors import as_path
from occamrl.files import make_folder, write_whole
from occamrl.protocols import Floats
from occamrl.report import figures
from occamrl.report.html import paragraphs, picture, render_page, table
from occamrl.report.page import questions

_MOST_COORDINATES = 6  # of the state that are drawn


def draw_evidence(answer: Answer, axes: Axes | None = None) -> Axes:
    """Draw the evidence against each class over time."""
    axes = figures.draw_evidence(answer, axes)
    axes.set_xlabel("real steps")
    return axes


def last_episode(answer: Answer) -> tuple[Floats, Floats]:
    """Return the features of every step, and what came, what was predicted and its scale [T, 3, n]."""
    rows, n = np.array(answer.agent.state["path"]), answer.agent.dimension
    return rows[:, : -3 * n], rows[:, -3 * n :].reshape(-1, 3, n)


def draw_predictions(answer: Answer, axes: Axes | None = None) -> Axes:
    """Draw the last episode, a strip for each coordinate, and what was predicted a step before, ± two deviations."""
    axes, path = plt.gca() if axes is None else axes, last_episode(answer)[1]
    names = answer.ladder.coordinates[:_MOST_COORDINATES]
    for i in range(len(names)):
        came, mean, scale = path[:, :, i].T
        low, high = mean - 2 * scale, mean + 2 * scale
        bottom, height = min(low.min(), came.min()), max(np.ptp([low, high, came]), 1e-300)
        at = [len(names) - 1 - i + 0.85 * (each - bottom) / height for each in (low, high, came)]
        band = axes.fill_between(
            np.arange(1, 1 + len(path)), at[0], at[1], alpha=0.35, color=f"C{i}", linewidth=0.0
        )
        points = axes.plot(np.arange(1, 1 + len(path)), at[2], ".", markersize=3, color=f"C{i}")
        axes.annotate(f"{bottom:.3g} to {bottom + height:.3g}", (1.01, (len(names) - 0.55 - i) / (len(names) + 0.55)),
                      xycoords="axes fraction", fontsize="x-small", va="center")  # fmt: skip
    axes.legend(
        [points[0], band], ["observed", "predicted"], fontsize="small", loc="upper right", ncols=2
    )
    axes.set_yticks(np.arange(len(names)) + 0.4, [*reversed(names)])
    axes.set(xlabel="step of the last episode", ylim=(-0.05, len(names) + 0.5))
    return axes


def draw_misfit(answer: Answer, axes: Axes | None = None) -> Axes:
    """Draw the errors of the last episode against the feature that they depend on most, with what was learned."""
    axes = plt.gca() if axes is None else axes
    (k, beta, strength, _), (phi, path) = answer.strongest(), last_episode(answer)
    i = int(strength[k].argmax())
    where = errors.in_units(answer.ladder, phi)[:, k - 1] if k else np.arange(1.0, 1.0 + len(phi))
    order, parts = np.argsort(where), [0, k] if k else [0]  # other features are at their middle
    learned = phi[order][:, parts] @ beta[parts, i]
    error = 2 * np.sqrt((phi[order][:, parts] ** 2) @ (beta[parts, i] / strength[parts, i]) ** 2)
    axes.axhline(0.0, color="grey", linewidth=1.0)
    axes.plot(where, path[:, 0, i] - path[:, 1, i], ".", label="last episode")
    line = axes.plot(where[order], learned, label="learned so far, ± two standard errors")[0]
    axes.fill_between(
        where[order], learned - error, learned + error, alpha=0.3, color=line.get_color()
    )
    axes.set(
        xlabel=answer.ladder.features[k - 1] if k else "step of the last episode",
        ylabel=f"{answer.ladder.coordinates[i]}: observed - predicted",
    )
    axes.legend(fontsize="small")
    return axes


def draw_returns(answer: Answer, axes: Axes) -> None:
    """Draw the return of every episode."""
    axes.plot(
        np.arange(1, answer.agent.total_episodes + 1),
        answer.agent.returns,
        marker="o",
        markersize=3,
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="episode", ylabel="return")


def write_page(answer: Answer, path: str | Path, runs: int) -> Path:
    """Write the page, whole or not at all; return its path."""
    shown = [
        {
            "class": row["name"],
            "simulators": row["size"],
            "left": row["left"],
            "evidence against it": times(row["evidence_against"]),
            "ruled out after steps": row["rejected_after"],
        }
        for row in answer.rows
    ]
    sections: dict[str, str] = {"Evidence over time": table(shown)}
    asked = {}
    if answer.evidence["steps"]:
        asked = answer.questions(runs)
        sections["Evidence over time"] += picture(answer.plot, "the evidence against each class")
        sections["Where it misfits" if answer.misspecified else "Does it fit?"] = (
            paragraphs(f"{answer.member}: {answer.misfit}")
            + picture(answer.plot_misfit, "errors of the last episode")
            + picture(answer.plot_predictions, "the last episode, predicted and observed")
        )
        if runs:
            rows = answer.worth_of(runs=runs, most=MOST).rows
            sections["What it is worth"] = table(
                [{k.replace("_", " "): v for k, v in row.items()} for row in rows]
            )
    if answer.agent.returns.any():
        sections["Returns"] = picture(
            lambda axes: draw_returns(answer, axes), "the return of every episode"
        )
    sections["What is guaranteed"] = paragraphs(
        f"With probability {1 - answer.delta:g} the smallest class that contains the true simulator is never ruled "
        "out, at any time, however the actions are chosen. This holds for exactly the simulators that were listed.",
        "If the true simulator is listed, the range of a worth over all simulators that are left contains it with the "
        "same probability, up to the errors of the Monte Carlo means.",
        "Returns, the weights of simulators and the time until a wrong class is ruled out are not guaranteed.",
    )
    place: Any = as_path("path", path)
    make_folder(place.parent)
    write_whole(
        place, render_page(answer.headline, sections, questions(asked) if asked else "").encode()
    )
    return Path(place)

"""Pictures, and sections of a page, of what the data say of simulators that can only be run."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from occamrl.answers.answer import Answer
from occamrl.answers.figures import axes_or_new, text_of
from occamrl.answers.html import paragraphs, picture, table
from occamrl.answers.wording import misfit_sentence, times
from occamrl.errors import NotAvailable
from occamrl.evidence.simulated import SimulatedEvidence
from occamrl.evidence.simulator_errors import shift_of
from occamrl.evidence.simulator_worlds import SimulatorWorlds, mean_and_error

_MOST_COORDINATES = 6  # of the state that are drawn
_STRIP = 0.85  # the share of a strip that its curve fills


def _weigher(answer: Answer) -> SimulatedEvidence:
    """Return the evidence about simulators; other answers have no predictions to draw."""
    if not isinstance(answer.weigher, SimulatedEvidence):
        raise NotAvailable(f"no predictions step by step: this is evidence by {answer.evidence}")
    if not answer.steps:
        raise NotAvailable("there is nothing to draw: no step has been observed yet")
    return answer.weigher


def draw_predictions(answer: Answer, axes: Axes | None = None) -> Axes:
    """Draw the last episode, a strip for each coordinate, and what was predicted a step before.

    That is a mean and two deviations either way.
    """
    weigher = _weigher(answer)
    axes = axes_or_new(axes)
    path = weigher.predictions(answer.state)
    names = weigher.system.coordinates[:_MOST_COORDINATES]
    steps = np.arange(1, 1 + len(path.observed))
    for i in range(len(names)):
        observed = path.observed[:, i]
        low = path.mean[:, i] - 2 * path.deviation[:, i]
        high = path.mean[:, i] + 2 * path.deviation[:, i]
        bottom = min(low.min(), observed.min())
        height = max(np.ptp([low, high, observed]), 1e-300)
        # Strips are stacked from the top, each scaled to its own range.
        strip = len(names) - 1 - i
        scale = _STRIP / height
        color = f"C{i}"
        band = axes.fill_between(
            steps,
            strip + scale * (low - bottom),
            strip + scale * (high - bottom),
            alpha=0.35,
            color=color,
            linewidth=0.0,
        )
        points = axes.plot(
            steps, strip + scale * (observed - bottom), ".", markersize=3, color=color
        )
        axes.annotate(
            f"{bottom:.3g} to {bottom + height:.3g}",
            (1.01, (len(names) - 0.55 - i) / (len(names) + 0.55)),
            xycoords="axes fraction",
            fontsize="x-small",
            va="center",
        )
    labels = ["observed", "predicted"]
    axes.legend([points[0], band], labels, fontsize="small", loc="upper right", ncols=2)
    axes.set_yticks(np.arange(len(names)) + 0.4, [text_of(name) for name in reversed(names)])
    axes.set(xlabel="step of the last episode", ylim=(-0.05, len(names) + 0.5))
    return axes


def draw_misfit(answer: Answer, axes: Axes | None = None) -> Axes:
    """Draw the errors of the last episode against the feature that they depend on most.

    With them, what was learned of the errors, with other features at their middle.
    """
    weigher = _weigher(answer)
    axes = axes_or_new(axes)
    member = answer.state["members"].heaviest(answer.chosen - 1)
    shift = shift_of(answer.state["errors"], member)
    path = weigher.predictions(answer.state)
    clearest = shift.clearest
    coordinate = int(shift.strength[clearest].argmax())
    if clearest == 0:
        effects = [0]
        label = "step of the last episode"
        feature = np.arange(1.0, 1.0 + len(path.features))
    else:
        effects = [0, clearest]
        label = weigher.ladder.error_features.names[clearest - 1]
        feature = weigher.ladder.error_features.in_units(path.features)[:, clearest - 1]
    order = np.argsort(feature)
    rows = path.features[order][:, effects]
    learned = rows @ shift.effects[effects, coordinate]
    error = 2 * np.sqrt(rows**2 @ shift.standard_errors[effects, coordinate] ** 2)
    errors = path.observed[:, coordinate] - path.mean[:, coordinate]
    axes.axhline(0.0, color="grey", linewidth=1.0)
    axes.plot(feature, errors, ".", label="last episode")
    line = axes.plot(feature[order], learned, label="learned so far, ± two standard errors")[0]
    axes.fill_between(
        feature[order], learned - error, learned + error, alpha=0.3, color=line.get_color()
    )
    name = weigher.system.coordinates[coordinate]
    axes.set(xlabel=text_of(label), ylabel=f"{text_of(name)}: observed - predicted")
    axes.legend(fontsize="small")
    return axes


def draw_returns(answer: Answer, axes: Axes) -> None:
    """Draw the return of every episode."""
    episodes = np.arange(1, len(answer.returns) + 1)
    axes.plot(episodes, answer.returns, marker="o", markersize=3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="episode", ylabel="return")


def simulator_sections(answer: Answer) -> dict[str, str]:
    """Return the sections of a page about simulators, by title."""
    classes = []
    for row in answer.rows:
        classes.append(
            {
                "class": row["name"],
                "simulators": row["size"],
                "left": row["left"],
                "evidence against it": times(row["evidence_against"]),
                "ruled out after steps": row["rejected_after"],
            }
        )
    sections: dict[str, str] = {"Evidence over time": table(classes)}
    if answer.steps:
        sections["Evidence over time"] += picture(answer.plot, "the evidence against each class")
        title = "Where it misfits" if answer.misspecified else "Does it fit?"
        sections[title] = _fit_section(answer)
        if answer.runs:
            sections["What it is worth"] = _worth_section(answer)
    if any(answer.returns):
        sections["Returns"] = picture(
            lambda axes: draw_returns(answer, axes), "the return of every episode"
        )
    sections["What is guaranteed"] = paragraphs(
        f"With probability {1 - answer.delta:g} the smallest class that contains the true "
        "simulator is never ruled out, at any time, however the actions are chosen. This holds "
        "for exactly the simulators that were listed.",
        "If the true simulator is listed, the range of a worth over all simulators that are left "
        "contains it with the same probability, up to the errors of the Monte Carlo means.",
        "Returns, the weights of simulators and the time until a wrong class is ruled out are not "
        "guaranteed.",
    )
    return sections


def _fit_section(answer: Answer) -> str:
    misfit = "No linear misfit of its mean is visible."
    if answer.raw_misfits:
        misfit = misfit_sentence(answer.raw_misfits[0])
    return (
        paragraphs(f"{answer.most_plausible}: {misfit}")
        + picture(answer.plot_misfit, "errors of the last episode")
        + picture(answer.plot_predictions, "the last episode, predicted and observed")
    )


def _worth_section(answer: Answer) -> str:
    """Return what the planner earns in each simulator that is possible."""
    worlds = answer.worlds
    assert isinstance(worlds, SimulatorWorlds)  # noqa: S101  # of simulators
    rows = []
    for world in worlds.worlds:
        mean, error = mean_and_error(worlds.returns(answer.policy, world))
        row = {"simulator": world.label, "weight": world.weight, "worth": mean}
        rows.append({**row, "standard error": error})
    return table(rows)

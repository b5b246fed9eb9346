"""The page about one answer, or one run: one HTML file that asks nothing of a network.

Written by ``result.page(...)``, ``occamrl learn --page`` and ``occamrl select --page``. Its first
screen are the sentences of the answer, by the question that they answer; below are tables and
pictures. A run without an answer has the sentences of its verdict instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.answers.answer import Answer
from occamrl.answers.figures import ROW, class_rows, draw_classes, draw_outlook, draw_worth
from occamrl.answers.html import Markup, element, join, paragraphs, picture, render_page, table
from occamrl.answers.maps import cells_of, draw_policy_map
from occamrl.answers.tolerance import outlook
from occamrl.answers.wording import (
    QUESTIONS,
    count_of,
    format_number,
    places_of,
    points,
    times,
    unit_of,
)
from occamrl.errors import OccamRLError, as_path
from occamrl.files import make_folder, write_whole
from occamrl.models.model import ELSEWHERE
from occamrl.naming import quoted, spoken
from occamrl.protocols import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from occamrl.running.result import Result

MOST_WORLDS = 8  # simulators in which policies are run
_MOST_STATES = 200  # whose actions are listed
_MOST_STRETCHES = 6  # of steps that the table of a policy shows
_MOST_PHASES = 40  # that are listed
_MOST_LETTERS = 400  # of an agent's parameters

Sections = dict[str, str]  # HTML by title


# A run --------------------------------------------------------------------------------------------


def render_result(result: Result) -> str:
    """Return the page of a result: the answer, where there is one, and the run."""
    verdict = result.verdict
    answer = _answer_in(result)
    where = "the simulator"
    if result.environment is not None:
        where = result.environment.name
    note = element("p", where, class_="note")
    sections: Sections = {}
    if answer is None:
        title = verdict.sentences[0]
        head = note
        sections["Answer"] = paragraphs(*verdict.sentences[1:])
    else:
        title = answer.headline
        head = join([note, questions(answer.questions)])
        sections |= answer_sections(answer)
    if result.total_episodes:
        sections["The run"] = _run_section(result)
        if answer is None:
            rows = result.policy_table().slice(0, _MOST_STATES).to_pylist()
            sections[QUESTIONS["what to do"]] = table(rows)
    sections["What was run"] = _facts_section(result)
    return render_page(title, sections, head)


def _answer_in(result: Result) -> Answer | None:
    """Return the answer of a run; None where its agent selects nothing, or by other evidence."""
    if not result.total_episodes or not isinstance(result.verdict.get("chosen"), int):
        return None
    try:
        answer: Answer = result.answer
    except OccamRLError:
        return None
    return answer


def _run_section(result: Result) -> str:
    """Return what was earned, the classes in play, and every decision."""
    label = "returns of the episodes, and the class in play"
    if result.exact:
        label = "cumulative regret"
    parts = [paragraphs(result.verdict.sentences[-1]), picture(result.plot, label)]
    classes = class_rows(result)
    if result.exact and classes:
        height = 0.4 + 1.4 * ROW * len(classes)

        def draw(axes: Axes) -> None:
            draw_classes(result, axes)

        parts.append(picture(draw, "the class in play", height))
    phases = result.phase_rows[:_MOST_PHASES]
    names = []
    for name in phases[0]:
        if all(isinstance(row.get(name), (int, float, str)) for row in phases):
            names.append(name)
    listed = table([{name: row[name] for name in names} for row in phases])
    parts.append(element("details", element("summary", "Decision by decision"), listed))
    return join(parts)


def _facts_section(result: Result) -> str:
    """Return the sizes of a problem, the agent and its seed."""
    known = result.finite
    states = known.states
    if known.names is not None and ELSEWHERE in known.names.states:
        states -= 1
    rewards = "estimated from what came"
    if known.rewards_known:
        rewards = "known beforehand"
    sizes = f"{count_of(states, 'state')}, {count_of(known.actions, 'action')}"
    agent = repr(result.agent)[:_MOST_LETTERS]
    episodes = count_of(result.total_episodes, "episode")
    return paragraphs(
        f"{sizes}, episodes of {count_of(known.horizon, 'step')}; rewards {rewards}.",
        f"Agent: {agent}",
        f"Seed {result.seed}, {episodes}, {count_of(result.plans, 'plan')}.",
    )


# An answer ----------------------------------------------------------------------------------------


def amounts(kind: str, intervals: Mapping[str, Interval], unit: str = "") -> list[dict[str, Any]]:
    """Return best guesses and ranges as rows; a range that is not known has no numbers."""
    guess = f"best guess, {unit}" if unit else "best guess"
    rows = []
    for name, interval in intervals.items():
        row = {kind: name}
        places = places_of(interval)
        for column, number in zip((guess, "from", "to"), interval, strict=True):
            row[column] = format_number(number, places) if math.isfinite(number) else ""
        rows.append(row)
    return rows


def questions(asked: Mapping[str, Sequence[str]]) -> Markup:
    """Return the answer to each question, as the first screen shows it."""
    rows = []
    for question, lines in asked.items():
        rows += [element("dt", question), element("dd", paragraphs(*lines))]
    return element("div", element("dl", *rows), class_="headline")


def answer_sections(answer: Answer) -> Sections:
    """Return the sections of a page about an answer, by title."""
    if answer.ladder.kind == "simulators":
        from occamrl.answers.simulators import simulator_sections  # which needs this module

        return simulator_sections(answer)
    if answer.ladder.kind == "dynamics":
        from occamrl.answers.dynamics import dynamics_sections  # which needs this module

        return dict(dynamics_sections(answer))
    sections: Sections = {}
    if answer.valued and not answer.misspecified:
        sections["What each policy is worth"] = _worth_section(answer)
        sections["The policy"] = _policy_section(answer)
    if answer.forgives and answer.valued and (answer.misspecified or answer.tolerance):
        sections["How wrong the models may be"] = _tolerance_section(answer)
    sections["The classes"] = _class_section(answer)
    if answer.misspecified and answer.misfits:
        sections["Where it misfits"] = _misfit_section(answer)
    sections["Small print"] = _small_print(answer)
    return sections


def _worth_section(answer: Answer) -> str:
    """Return what policies are worth: the one recommended, today's, those of simpler classes."""
    worth = {"recommended": answer.worth}
    if answer.today_worth is not None:
        worth["today's"] = answer.today_worth
    for name, policy in answer.simple_policies.items():
        worth[f"best of {quoted(name)}"] = answer.worth_of(policy)
    unit = unit_of(answer)

    def draw(axes: Axes) -> None:
        draw_worth(worth, unit, axes, answer.labels.episode)

    drawn = picture(draw, "what each policy earns", 0.9 + 0.5 * len(worth))
    return join([table(amounts("policy", worth, unit)), drawn])


def _tolerance_section(answer: Answer) -> str:
    """Return what the policy earns against the tolerance, with the break-even."""
    if answer.misspecified and answer.surviving is None:
        return paragraphs("No model is left at any tolerance.")
    shown = outlook(answer)
    worths = {}
    for tolerance, worth in zip(shown.tolerances, shown.worths, strict=True):
        worths[points(tolerance)] = worth
    unit = unit_of(answer)

    def draw(axes: Axes) -> None:
        draw_outlook(shown, unit, axes, answer.labels.episode)

    proved = f"Each range holds with probability {1.0 - answer.delta:g} if no step is off by more."
    estimated = "How far off models seem to be is an estimate, not a bound."
    drawn = picture(draw, "what the policy earns against the tolerance")
    rows = amounts("off by at most", worths, unit)
    return join([paragraphs(f"{proved} {estimated}"), drawn, table(rows)])


def _policy_section(answer: Answer) -> str:
    """Return a policy as arrows, where it is one of moves on a map, and as a table, cut."""
    parts = []
    cells = cells_of(answer.policy)
    if cells is not None:
        height = 1 + max(row for row, _ in cells.values())
        where = cells

        def draw(axes: Axes) -> None:
            draw_policy_map(answer.policy, where, axes)

        parts.append(picture(draw, "where the policy goes from each cell", 0.6 + 0.45 * height))
        parts.append(paragraphs("No arrow: the policy never comes there, or nothing is done."))
    rows = answer.policy.rows
    stretches = len(answer.policy.stretches)
    short = []
    for row in rows[:_MOST_STATES]:
        columns = list(row)[: 1 + _MOST_STRETCHES]
        short.append({column: row[column] for column in columns})
    parts.append(table(short))
    if len(rows) > _MOST_STATES or stretches > _MOST_STRETCHES:
        whole = f"The table has {len(rows):,} rows and {stretches:,} stretches of steps"
        parts.append(paragraphs(f"{whole}; all are in policy.to_csv(...)."))
    return join(parts)


def _class_section(answer: Answer) -> str:
    """Return parameters, the verdict on each class, and the evidence as it grew."""
    models = []
    for row in answer.rows:
        out = not row["left"] if answer.left is not None else row["class"] < answer.chosen
        model = {"class": row["name"], "verdict": "ruled out" if out else "possible"}
        if answer.evidence == "likelihood":
            model["times worse than the best"] = times(row["evidence_against"])
        if answer.ruled_out:
            model[f"after {answer.counted_in}s"] = row["rejected_after"]
        models.append(model)
    parts = [table(models)]
    if answer.parameters and not answer.misspecified:
        hulls = amounts("parameter, whichever class is right", answer.parameters)
        parts.append(table(hulls))
    parts.append(picture(answer.plot, "the evidence against each class as the data grew"))
    return join(parts)


def _misfit_section(answer: Answer) -> str:
    """Return where the best model misfits, pair by pair."""
    rows = []
    for misfit in answer.misfits:
        row = {}
        for name, value in misfit.items():
            if name != "nats":
                row[name] = spoken(value) if isinstance(value, (tuple, str)) else value
        rows.append(row)
    return table(rows)


def _small_print(answer: Answer) -> str:
    """Return how much was seen, and what is guaranteed."""
    labels = answer.labels
    seen = f"{count_of(answer.episodes, labels.episode)}, {count_of(answer.steps, labels.step)}"
    right = "the truth"
    if answer.tolerance:
        right = f"off by at most {points(answer.tolerance)} at every step"
    lines = [
        f"{seen}; evidence by {answer.evidence}.",
        f"If one of these models is {right}, then with probability {1.0 - answer.delta:g} the "
        "smallest class that holds it is never ruled out, however often you look, and every range "
        "of a worth or a parameter on this page contains the true value. If none of them is, "
        "nothing is guaranteed.",
    ]
    if answer.log is not None:
        lines.append(
            "What is said of today's policy holds up to chance among the episodes of the log too, "
            "by Student's t, with about the same probability again."
        )
    if answer.ladder.box:
        lines.append("Ranges over real parameters are found by a search.")
    return paragraphs(*lines)


def render_answer(answer: Answer) -> str:
    """Return the page of an answer."""
    if answer.ladder.kind == "simulators":  # each takes a plan for every step
        answer = answer.simulated(answer.runs, answer.maximum or MOST_WORLDS)
    labels = answer.labels
    seen = f"{count_of(answer.episodes, labels.episode)}, {count_of(answer.steps, labels.step)}"
    note = element("p", f"{answer.source}: {seen}", class_="note")
    head = join([note, questions(answer.questions)])
    return render_page(answer.headline, answer_sections(answer), head)


def write_page(answer: Result | Answer, path: str | Path) -> Path:
    """Write the page of a result or of an answer, whole or not at all; return its path."""
    file = as_path("path", path)
    if isinstance(answer, Answer):
        text = render_answer(answer)
    else:
        text = render_result(answer)
    make_folder(file.parent)
    write_whole(file, text.encode())
    return file

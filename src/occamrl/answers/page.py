"""The page about one answer, or one run: one HTML file that asks nothing of a network.

Written by ``result.page(...)``, ``occamrl learn --page`` and ``occamrl select --page``, it has the
verdict, the evidence over time, the policy and the assumptions.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.answers.answer import Answer
from occamrl.answers.figures import ROW, class_rows, draw_classes, draw_worth
from occamrl.answers.html import paragraphs, picture, render_page, table
from occamrl.answers.wording import count_of, format_number, times
from occamrl.errors import OccamRLError, as_path
from occamrl.files import make_folder, write_whole
from occamrl.models.model import ELSEWHERE
from occamrl.naming import spoken

if TYPE_CHECKING:
    from occamrl.running.result import Result

MOST_WORLDS = 8  # simulators in which policies are run
_MOST_STATES = 200  # whose actions are listed
_MOST_STRETCHES = 6  # of steps that the table of a policy shows
_MOST_PHASES = 40  # that are listed


def render_result(result: Result) -> str:
    """Return the page of a result: the answer, where there is one, and the run."""
    verdict, known = result.verdict, result.finite
    where = "the simulator" if result.environment is None else result.environment.name
    try:
        answered = (
            bool(result.total_episodes)
            and isinstance(verdict.get("chosen"), int)
            and bool(result.answer)
        )
    except OccamRLError:  # a selector of the user's, which has evidence of its own
        answered = False
    title = result.answer.headline if answered else verdict.sentences[0]
    sections: dict[str, str] = (
        answer_sections(result.answer)
        if answered
        else {"Answer": paragraphs(*verdict.sentences[1:])}
    )
    if result.total_episodes:
        label = (
            "cumulative regret"
            if result.exact
            else "returns of the episodes, and the class in play"
        )
        run = paragraphs(verdict.sentences[-1]) + picture(result.plot, label)
        if result.exact and (rows := class_rows(result)):
            height = 0.4 + 1.4 * ROW * len(rows)
            run += picture(lambda axes: draw_classes(result, axes), "the class in play", height)
        phases = result.phase_rows[:_MOST_PHASES]
        names = [
            name
            for name in phases[0]
            if all(isinstance(row.get(name), (int, float, str)) for row in phases)
        ]
        listed = table([{name: row[name] for name in names} for row in phases])
        sections["The run"] = (
            run + f"<details><summary>Decision by decision</summary>{listed}</details>"
        )
        if not answered:
            sections["What to do"] = table(result.policy_table().slice(0, _MOST_STATES).to_pylist())
    states = known.states - (known.names is not None and ELSEWHERE in known.names.states)
    rewards = "known beforehand" if known.rewards_known else "estimated from what came"
    sections["What was assumed"] = paragraphs(
        f"{states:,} states, {known.actions:,} actions, episodes of {known.horizon:,} steps; "
        f"rewards {rewards}.",
        "The next state depends on the state and the action alone.",
        f"Agent: {result.agent!r:.400}",
        f"Seed {result.seed}, {count_of(result.total_episodes, 'episode')}, "
        f"{count_of(result.plans, 'plan')}.",
    )
    head = f'<p class="note">{html.escape(where)}</p>' + (
        questions(result.answer.questions) if answered else ""
    )
    return render_page(title, sections, head)


def amounts(kind: str, found: Mapping[str, Any], unit: str = "") -> list[dict[str, Any]]:
    """Return best guesses and ranges as rows; a range that is not known has no numbers."""
    names = (kind, f"best guess{unit and ', '}{unit}", "from", "to")
    numbers = (
        [format_number(number) if math.isfinite(number) else "" for number in each]
        for each in found.values()
    )
    return [
        dict(zip(names, (name, *each), strict=True))
        for name, each in zip(found, numbers, strict=True)
    ]


def questions(asked: Mapping[str, Sequence[str]]) -> str:
    """Return the answer to each question, as the first screen shows it."""
    rows = "".join(
        f"<dt>{html.escape(each)}</dt><dd>{paragraphs(*lines)}</dd>"
        for each, lines in asked.items()
    )
    return f'<div class="headline"><dl>{rows}</dl></div>'


def answer_sections(answer: Answer) -> dict[str, str]:
    """Return the sections of a page about an answer, by title."""
    if answer.ladder.kind == "simulators":
        from occamrl.answers.simulators import simulator_sections  # which needs this module

        return simulator_sections(answer)
    if answer.ladder.kind == "dynamics":
        from occamrl.answers.dynamics import dynamics_sections  # which needs this module

        return dynamics_sections(answer)
    sections = {}
    if answer.valued:
        worth = {"recommended": answer.worth}
        if answer.today is not None:
            worth["today, by the log"] = answer.worth_of(answer.today)
        for name, policy in answer.simple_policies.items():
            worth[f"best of {name!r}"] = answer.worth_of(policy)
        unit = answer.known.unit_name
        drawn = picture(
            lambda axes: draw_worth(worth, unit, axes),
            "what each policy earns",
            0.9 + 0.5 * len(worth),
        )
        sections["What it is worth"] = table(amounts("policy", worth, unit)) + drawn
        rows, steps = answer.policy.rows, len(answer.policy.stretches)
        short = [
            dict(itertools.islice(row.items(), 1 + _MOST_STRETCHES)) for row in rows[:_MOST_STATES]
        ]
        cut = len(rows) > _MOST_STATES or steps > _MOST_STRETCHES
        more = (
            f"The table has {len(rows):,} rows and {steps:,} stretches of steps; "
            "all are in policy.to_csv(...)." * cut
        )
        sections["What to do"] = table(short) + paragraphs(more)
    models = []
    for row in answer.rows:
        out = answer.misspecified or row["class"] < answer.chosen
        models.append({"model": row["name"], "verdict": "ruled out" if out else "possible"})
        if answer.evidence == "likelihood":
            models[-1]["times worse than the best"] = times(row["evidence_against"])
        if answer.ruled_out:
            models[-1]["after episodes"] = row["rejected_after"]
    fitted = table(amounts("parameter", answer.parameters)) if answer.parameters else ""
    sections["Which model"] = fitted + table(models)
    sections["Which model"] += picture(
        answer.plot, "the evidence against each model as the data grew"
    )
    if answer.misspecified and answer.misfits:
        rows = [
            {
                name: spoken(each) if isinstance(each, tuple) else each
                for name, each in row.items()
                if name != "nats"
            }
            for row in answer.misfits
        ]
        sections["Where it misfits"] = table(rows)
    sections["Small print"] = paragraphs(
        f"{count_of(answer.episodes, 'episode')}, {count_of(answer.steps, 'step')}; "
        f"evidence by {answer.evidence}.",
        f"If one of these models is the truth, then with probability {1.0 - answer.delta:g} its "
        "class is never ruled out, however often you look, and every range on this page contains "
        "the true value. If none of them is the "
        "truth, nothing is guaranteed.",
        "Ranges over real parameters are found by a search." if answer.parameters else "",
    )
    return sections


def render_answer(answer: Answer) -> str:
    """Return the page of an answer."""
    if answer.ladder.kind == "simulators":  # each takes a plan for every step
        answer = answer.simulated(answer.runs, answer.maximum or MOST_WORLDS)
    about = (
        f"{answer.source}: {count_of(answer.episodes, 'episode')}, {count_of(answer.steps, 'step')}"
    )
    head = f'<p class="note">{html.escape(about)}</p>{questions(answer.questions)}'
    return render_page(answer.headline, answer_sections(answer), head)


def write_page(answer: Result | Answer, path: str | Path) -> Path:
    """Write the page of a result or of an answer, whole or not at all; return its path."""
    place = as_path("path", path)
    text = render_answer(answer) if isinstance(answer, Answer) else render_result(answer)
    make_folder(place.parent)
    write_whole(place, text.encode())
    return place

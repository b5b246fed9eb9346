"""Pages in one HTML file that ask nothing of a network: the report of an experiment, and the page about one answer.

A report has its data, style and script inside. Names come from specs and records, which may come
from strangers. They enter the page as JSON in a block that is not a script, and the script turns
them into text nodes; the content security policy admits the page's own style and script, by their
hashes, and nothing else.

The page about an answer, written by ``result.page(...)``, ``occamrl learn --page`` and ``occamrl
select --page``, has the verdict, the evidence over time, the policy and the assumptions, pictures
inside, and no script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from occamrl.answers.answer import Answer
from occamrl.answers.wording import count_of, format_number, times
from occamrl.errors import OccamRLError, as_path
from occamrl.experiments.records import Records, load, shown
from occamrl.files import make_folder, write_whole
from occamrl.models.model import ELSEWHERE
from occamrl.naming import spoken
from occamrl.report.data import build
from occamrl.report.figures import ROW, class_rows, draw_classes, draw_worth, write_figures
from occamrl.running.result import Result

SCRIPTS = ("dom.js", "chart.js", "regret.js", "decisions.js", "main.js")
MOST_WORLDS = 8  # simulators in which policies are run
_MOST_STATES = 200  # whose actions are listed
_MOST_STRETCHES = 6  # of steps that the table of a policy shows
_MOST_PHASES = 40  # that are listed

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header><div id="head"><h1>{title}</h1>{head}</div></header>
<nav aria-label="Contents"><ul id="contents">{contents}</ul></nav>
<main id="main" tabindex="-1">{main}</main>
<footer>Written by occamrl. Everything on this page is inside this file.</footer>
{scripts}</body>
</html>
"""
_NO_SCRIPT = "<noscript><p>This page draws its figures with a script, and scripts are switched off.</p></noscript>"


def asset(name: str) -> str:
    """Return a file of the page."""
    return resources.files("occamrl.report").joinpath("assets", name).read_text(encoding="utf-8")


def fill(title: str, script: str = "", data: str = "", **parts: str) -> str:
    """Return a page, whose parts are HTML; the policy admits its style and its script alone."""
    style = "\n" + asset("page.css")

    def admitted(text: str) -> str:
        return (
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            if text
            else "'none'"
        )

    policy = (
        f"default-src 'none'; style-src {admitted(style)}; script-src {admitted(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    scripts = (
        f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
        * bool(script)
    )
    parts = {
        "head": "",
        "contents": "",
        **parts,
        "title": html.escape(title),
        "style": style,
        "scripts": scripts,
    }
    return _PAGE.format(policy=html.escape(policy, quote=False), **parts)


def render(model: Mapping[str, Any]) -> str:
    """Return the page of what :func:`occamrl.report.data.build` gives."""
    text = json.dumps(
        model, separators=(",", ":"), allow_nan=False
    )  # ASCII only, so U+2028 is escaped as well
    for sign in "&<>":  # so that it can stand inside a script element
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    lines = "\n".join(asset(name) for name in SCRIPTS)
    return fill(
        str(model["name"]), f'\n(() => {{\n"use strict";\n{lines}}})();\n', text, main=_NO_SCRIPT
    )


def write_report(
    source: str | Path | Records, out: Path | None = None, figures: Path | None = None
) -> Path:
    """Write the report of an experiment (its folder, or what was loaded from it), whole or not at all; return its path.

    ``out`` is ``report.html`` in the folder by default; ``figures``, a folder for every plot as
    PDF, SVG and PNG.
    """
    records = source if isinstance(source, Records) else load(as_path("folder", source))
    model, page = build(records), out or records.folder / "report.html"
    make_folder(page.parent)
    write_whole(page, render(model).encode())
    if figures is not None:
        write_figures(model, figures)
    return page


# The page about one answer ------------------------------------------------------------------------


def picture(draw: Callable[[Any], object], label: str, height: float = 3.4) -> str:
    """Return what ``draw`` draws on axes as an image inside the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, height))  # small, so that its letters can be read on a phone
    draw(figure.subplots())
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=150, bbox_inches="tight")
    data = base64.b64encode(written.getvalue()).decode()
    return f'<figure><img alt="{html.escape(label)}" src="data:image/png;base64,{data}"></figure>'


def paragraphs(*lines: str) -> str:
    """Return lines as paragraphs."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in rows[0])
    lines = (
        "".join(f"<td>{html.escape(shown(value))}</td>" for value in row.values()) for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll fit"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def render_static(title: str, sections: Mapping[str, str], head: str = "") -> str:
    """Return a page without a script: sections by title, their content as HTML."""
    named = [
        (f"s{i}", html.escape(name), content) for i, (name, content) in enumerate(sections.items())
    ]
    contents = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in named)
    main = "".join(
        f'<section id="{key}"><h2>{name}</h2>{content}</section>' for key, name, content in named
    )
    return fill(title, head=head, contents=contents, main=main)


def render_result(result: Result) -> str:
    """Return the page of a result of ``run`` or ``learn``: the answer, where there is one, and the run."""
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
    sections = (
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
        f"{states:,} states, {known.actions:,} actions, episodes of {known.horizon:,} steps; rewards {rewards}.",
        "The next state depends on the state and the action alone.",
        f"Agent: {result.agent!r:.400}",
        f"Seed {result.seed}, {count_of(result.total_episodes, 'episode')}, {count_of(result.plans, 'plan')}.",
    )
    head = f'<p class="note">{html.escape(where)}</p>' + (
        questions(result.answer.questions) if answered else ""
    )
    return render_static(title, sections, head)


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
        from occamrl.report.simulators import simulator_sections  # which needs this module

        return simulator_sections(answer)
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
            f"The table has {len(rows):,} rows and {steps:,} stretches of steps; all are in policy.to_csv(...)."
            * cut
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
        f"{count_of(answer.episodes, 'episode')}, {count_of(answer.steps, 'step')}; evidence by {answer.evidence}.",
        f"If one of these models is the truth, then with probability {1.0 - answer.delta:g} its class is never ruled "
        "out, however often you look, and every range on this page contains the true value. If none of them is the "
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
    return render_static(answer.headline, answer_sections(answer), head)


def write_page(answer: Result | Answer, path: str | Path) -> Path:
    """Write the page of a result or of an answer, whole or not at all; return its path."""
    place = as_path("path", path)
    text = render_answer(answer) if isinstance(answer, Answer) else render_result(answer)
    make_folder(place.parent)
    write_whole(place, text.encode())
    return place

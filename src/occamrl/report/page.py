"""Pages in one HTML file that ask nothing of a network: the report of an experiment, and the page about one answer.

A report has its data, style and script inside. Names come from specs and records, which may come from strangers. They
enter the page as JSON in a block that is not a script, and the script turns them into text nodes; the content security
policy admits the page's own style and script, by their hashes, and nothing else.

The page about an answer, written by ``result.page(...)``, ``occamrl learn --page`` and ``occamrl select --page``, has
the verdict, the evidence over time, the policy and the assumptions, pictures inside, and no script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from occamrl.errors import as_path
from occamrl.experiments.records import Records, load, shown
from occamrl.logs.select import Selection
from occamrl.report.data import build
from occamrl.report.figures import ROW, class_rows, draw_classes, draw_policy, write_figures
from occamrl.running.result import Result
from occamrl.running.storage import make_folder, write_whole

SCRIPTS = ("dom.js", "chart.js", "regret.js", "decisions.js", "main.js")
_MOST_STATES = 200  # whose actions are listed
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
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" if text else "'none'"

    policy = (
        f"default-src 'none'; style-src {admitted(style)}; script-src {admitted(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    scripts = f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n' * bool(script)
    parts = {"head": "", "contents": "", **parts, "title": html.escape(title), "style": style, "scripts": scripts}
    return _PAGE.format(policy=html.escape(policy, quote=False), **parts)


def render(model: Mapping[str, Any]) -> str:
    """Return the page of what :func:`occamrl.report.data.build` gives."""
    text = json.dumps(model, separators=(",", ":"), allow_nan=False)  # ASCII only, so U+2028 is escaped as well
    for sign in "&<>":  # so that it can stand inside a script element
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    lines = "\n".join(asset(name) for name in SCRIPTS)
    return fill(str(model["name"]), f'\n(() => {{\n"use strict";\n{lines}}})();\n', text, main=_NO_SCRIPT)


def write_report(source: str | Path | Records, out: Path | None = None, figures: Path | None = None) -> Path:
    """Write the report of an experiment (its folder, or what was loaded from it), whole or not at all; return its path.

    ``out`` is ``report.html`` in the folder by default; ``figures``, a folder for every plot as PDF, SVG and PNG.
    """
    records = source if isinstance(source, Records) else load(as_path("folder", source))
    model, page = build(records), out or records.folder / "report.html"
    make_folder(page.parent)
    write_whole(page, render(model).encode())
    if figures is not None:
        write_figures(model, figures)
    return page


# The page about one answer --------------------------------------------------------------------------------------------


def picture(draw: Callable[[Any], object], label: str, height: float = 3.4) -> str:
    """Return what ``draw`` draws on axes as an image inside the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height))  # small, so that its letters can be read on a phone
    draw(figure.subplots())
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=150, bbox_inches="tight")
    data = base64.b64encode(written.getvalue()).decode()
    return f'<figure><img alt="{html.escape(label)}" src="data:image/png;base64,{data}"></figure>'


def paragraphs(*lines: str) -> str:
    """Return lines as paragraphs."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in rows[0])
    lines = ("".join(f"<td>{html.escape(shown(value))}</td>" for value in row.values()) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll fit"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def classes_table(verdict: Mapping[str, Any]) -> str:
    """Return the evidence against each class, which of them is in play, and what they are held against."""
    alive, out = verdict.get("alive") or [None] * len(verdict["names"]), bool(verdict.get("misspecified"))
    rows: list[dict[str, Any]] = []
    for name, against, left in zip(verdict["names"], verdict["statistics"], alive, strict=True):
        row: dict[str, Any] = {"class": name, "evidence against it": "impossible" if against is None else against}
        row |= {} if left is None else {"models not ruled out": int(left)}
        rows.append(row | {"": "needed" if len(rows) + 1 == verdict["chosen"] and not out else ""})
    limit = verdict.get("threshold")
    about = [] if limit is None else [f"A class is ruled out when the evidence against it exceeds {limit:.4g}."]
    return table(rows) + paragraphs(*about)


def render_static(title: str, sections: Mapping[str, str], head: str = "") -> str:
    """Return a page without a script: sections by title, their content as HTML."""
    named = [(f"s{i}", html.escape(name), content) for i, (name, content) in enumerate(sections.items())]
    contents = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in named)
    main = "".join(f'<section id="{key}"><h2>{name}</h2>{content}</section>' for key, name, content in named)
    return fill(title, head=head, contents=contents, main=main)


def render_result(result: Result) -> str:
    """Return the page of a result of ``run`` or ``learn``."""
    verdict, known = result.verdict, result.known
    where = "the simulator" if result.environment is None else result.environment.name
    question = f"Which model does {where} need?" if "chosen" in verdict else f"How should one act in {where}?"
    sections = {"Answer": paragraphs(*verdict.sentences[1:])}
    if result.total_episodes:
        label = "cumulative regret" if result.exact else "returns of the episodes, and the class in play"
        evidence = picture(result.plot, label)
        if result.exact and (rows := class_rows(result)):
            height = 0.4 + 1.4 * ROW * len(rows)
            evidence += picture(lambda axes: draw_classes(result, axes), "the class in play", height)
        if isinstance(verdict.get("chosen"), int) and "statistics" in verdict:
            evidence += classes_table(verdict)
        phases = result.phase_rows[:_MOST_PHASES]
        names = [name for name in phases[0] if all(isinstance(row.get(name), (int, float, str)) for row in phases)]
        listed = table([{name: row[name] for name in names} for row in phases])
        evidence += f"<details><summary>Decision by decision</summary>{listed}</details>"
        sections["Evidence over time"] = evidence
        listed = table(result.policy_table().slice(0, _MOST_STATES).to_pylist())
        sections["Policy"] = picture(lambda axes: draw_policy(result, axes), "the action of every state and step")
        sections["Policy"] += f"<details><summary>As a table</summary>{listed}</details>"
    rewards = "known beforehand" if known.rewards_known else "estimated from what came"
    sections["What was assumed"] = paragraphs(
        f"{known.states:,} states, {known.actions:,} actions, episodes of {known.horizon:,} steps; rewards {rewards}.",
        "The next state depends on the state and the action alone.",
        f"Agent: {result.agent!r:.400}",
        f"Seed {result.seed}, {result.total_episodes:,} episodes, {result.plans:,} plans.",
    )
    return render_static(verdict.sentences[0], sections, f'<p class="note">{html.escape(question)}</p>')


def render_selection(found: Selection) -> str:
    """Return the page of an answer of ``select``."""
    rows = [{name.replace("_", " "): value for name, value in row.items()} for row in found.rows]
    names = ["episodes read", *found.names]
    steps = [dict(zip(names, [int(row[0]), *row[1:]], strict=True)) for row in found.history[-_MOST_PHASES:]]
    sections = {
        "Answer": paragraphs(*found.sentences[1:]),
        "Evidence over time": picture(found.plot, "the evidence against each class as the log was read")
        + paragraphs(f"A class is rejected while the evidence against it exceeds {found.threshold:.4g}.")
        + table(rows)
        + f"<details><summary>As the log was read</summary>{table(steps)}</details>",
        "What was assumed": paragraphs(
            f"{found.source}: {found.episodes:,} episodes, {found.steps:,} steps; evidence by {found.evidence}.",
            f"{found.pairs_met:,} of {found.pairs:,} state-action pairs were met.",
            f"The smallest class that holds the truth is rejected with probability {found.delta:g} at most, "
            "whatever policy made the log, as long as it did not look ahead.",
        ),
    }
    return render_static(found.sentences[0], sections, '<p class="note">Which model do the data require?</p>')


def write_page(answer: Result | Selection, path: str | Path) -> Path:
    """Write the page of a result or of a selection, whole or not at all; return its path."""
    place = as_path("path", path)
    text = render_selection(answer) if isinstance(answer, Selection) else render_result(answer)
    make_folder(place.parent)
    write_whole(place, text.encode())
    return place

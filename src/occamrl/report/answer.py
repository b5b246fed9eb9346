"""The page that a practitioner shows a colleague: the verdict, the evidence over time, the policy, the assumptions.

Written by ``result.page(...)``, ``occamrl learn --page`` and ``occamrl select --page``. It has the style of the report,
pictures inside, and no script.
"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from occamrl.errors import as_path
from occamrl.logs.select import Selection
from occamrl.report.figures import ROW, class_rows, draw_classes, draw_policy
from occamrl.report.page import render_static
from occamrl.running.result import Result
from occamrl.running.storage import make_folder, write_whole

_MOST_STATES = 200  # whose actions are listed
_MOST_PHASES = 40  # that are listed


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
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(v))}</td>" for v in row.values()) + "</tr>" for row in rows
    )
    return f'<div class="scroll fit"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def shown(value: Any) -> str:
    """Return a value of a table as text."""
    if isinstance(value, float):
        return f"{value:,.4g}" if math.isfinite(value) else "impossible"
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)


def folded(summary: str, content: str) -> str:
    """Return content that is shown when it is asked for."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def classes_table(verdict: Mapping[str, Any]) -> str:
    """Return the evidence against each class, which of them is in play, and what they are held against."""
    alive, out = verdict.get("alive") or [None] * len(verdict["names"]), bool(verdict.get("misspecified"))
    rows = []
    for m, (name, against, left) in enumerate(
        zip(verdict["names"], verdict["statistics"], alive, strict=True), start=1
    ):
        row = {"class": name, "evidence against it": math.inf if against is None else float(against)}
        row |= {} if left is None else {"models not ruled out": int(left)}
        rows.append(row | {"": "needed" if m == verdict["chosen"] and not out else ""})
    limit = verdict.get("threshold")
    about = [] if limit is None else [f"A class is ruled out when the evidence against it exceeds {limit:.4g}."]
    return table(rows) + paragraphs(*about)


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
            evidence += picture(
                lambda axes: draw_classes(result, axes), "the class in play", 0.4 + 1.4 * ROW * len(rows)
            )
        if isinstance(verdict.get("chosen"), int) and "statistics" in verdict:
            evidence += classes_table(verdict)
        plain = [
            {name: value for name, value in row.items() if isinstance(value, (int, float, str))}
            for row in result.phase_rows[:_MOST_PHASES]
        ]
        names = [name for name in plain[0] if all(name in row for row in plain)]
        evidence += folded("Decision by decision", table([{name: row[name] for name in names} for row in plain]))
        sections["Evidence over time"] = evidence
        listed: list[dict[str, Any]] = result.policy_table().slice(0, _MOST_STATES).to_pylist()
        sections["Policy"] = picture(lambda axes: draw_policy(result, axes), "the action of every state and step")
        sections["Policy"] += folded("As a table", table(listed))
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
        + folded("As the log was read", table(steps)),
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

"""The page that a practitioner shows a colleague: the question, the answer, the evidence, the policy, the assumptions.

Written by ``occamrl learn --page`` and ``occamrl select --page``. It has the style of the report, pictures inside, and
no script.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from occamrl.logs.select import Selection
from occamrl.report.page import render_static
from occamrl.running.files import make_folder, write_whole
from occamrl.running.result import Result, class_names, counted, draw_returns, html_table, policy_rows

_MOST_STATES = 200  # whose actions are listed


def _picture(draw: Callable[[Any], object], label: str) -> str:
    """Return what ``draw`` draws on axes as an image inside the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6))  # small, so that its letters can be read on a phone
    draw(figure.subplots())
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=150, bbox_inches="tight")
    data = base64.b64encode(written.getvalue()).decode()
    return f'<figure><img alt="{html.escape(label)}" src="data:image/png;base64,{data}"></figure>'


def _paragraphs(*lines: str) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _table(rows: Sequence[Mapping[str, str]], chosen: int | None = None, mark: str = "") -> str:
    """Return a table, in which the row ``chosen``, from 1, has a mark."""
    marked = rows if not mark else [{**row, "": mark * (i == chosen)} for i, row in enumerate(rows, start=1)]
    return f'<div class="scroll fit">{html_table(marked)}</div>'


def _statistic(value: float | None) -> str:
    return "impossible" if value is None or value == float("inf") else f"{value:.4g}"


def render_learned(result: Result, *, states: Sequence[str] | None = None, actions: Sequence[str] | None = None) -> str:
    """Return the page of a result of ``learn`` or ``run``."""
    verdict, where = result.verdict, "the simulator" if result.environment is None else result.environment.name
    selected = bool(verdict)  # a single learner decides nothing
    question = f"How rich a model does {where} need, and how should one act there meanwhile?"
    sections = {
        "Question": _paragraphs(question if selected else f"How should one act in {where}?"),
        "Answer": _paragraphs(*verdict.sentences),
    }
    evidence = _picture(lambda axes: draw_returns(result, axes), "returns of the episodes, and the class in play")
    if "chosen" in verdict:
        both = zip(class_names(result), verdict["statistics"], strict=True)
        rows = [{"class": name, "evidence against it": _statistic(each)} for name, each in both]
        evidence += _table(rows, verdict["chosen"], "in play")
        limit = verdict["threshold"]
        if limit is not None:
            evidence += _paragraphs(f"A class is rejected when the evidence against it exceeds {limit:.4g}.")
    sections["Evidence"] = evidence
    picture = _picture(
        lambda axes: result.plot_policy(axes, states=states, actions=actions), "the action of every state and step"
    )
    listed = policy_rows(result, None, states, actions)[:_MOST_STATES]
    sections["Policy"] = f"{picture}<details><summary>As a table</summary>{_table(listed)}</details>"
    known = result.known
    sections["What was assumed"] = _paragraphs(
        f"{known.states:,} states, {known.actions:,} actions, episodes of {known.horizon:,} steps; "
        f"rewards {'known beforehand' if known.rewards_known else 'estimated from what came'}.",
        f"Agent: {result.agent!r:.400}",
        f"Seed {result.seed}, {result.total_episodes:,} episodes.",
        "The next state depends on the state and the action alone.",
    )
    return render_static(f"Which model does {where} need?" if selected else f"How to act in {where}", sections)


def render_selected(found: Selection) -> str:
    """Return the page of an answer of ``select``."""
    rows = [
        {
            "class": rung.name,
            "kernels": f"{rung.size:,}" if rung.size is not None else "",
            "evidence against it": _statistic(rung.evidence),
            "rejected": f"in episode {rung.rejected_after:,}" if rung.rejected_after else "no",
        }
        for rung in found.rungs
    ]
    about = [found.answer[:1].upper() + found.answer[1:]]
    if found.other is not None:
        about.append(f"By {found.other.evidence}: {found.other.answer} {found.difference}")
    names = ["episodes read", *(rung.name for rung in found.rungs)]
    read = [
        dict(zip(names, [f"{episodes:,.0f}", *map(_statistic, against)], strict=True))
        for episodes, *against in found.at_doublings
    ]
    covered = f"{found.pairs - found.unvisited} of {found.pairs} state-action pairs were met"
    sections = {
        "Question": _paragraphs(f"How rich a model do the logged episodes require ({found.source})?"),
        "Answer": _paragraphs(*about),
        "Evidence": _picture(found.plot, "the evidence against each class as the log was read")
        + _paragraphs(found.meaning)
        + _table(rows, found.chosen, "the answer")
        + f"<details><summary>As the log was read</summary>{_table(read)}</details>",
        "What was assumed": _paragraphs(
            f"{counted(found.episodes, 'episode')}, {counted(found.rows, 'step')}; {covered}. "
            "Every step counts, the last of an episode too.",
            f"The smallest class that holds the truth is rejected with probability {found.delta:g} at most, "
            "whatever policy made the log, as long as it looked at the past only.",
        ),
    }
    return render_static("Which model do the data require?", sections)


def write_answer(answer: Result | Selection, path: Path, **names: Sequence[str] | None) -> Path:
    """Write the page of a result or of a selection, whole or not at all; return its path."""
    text = render_selected(answer) if isinstance(answer, Selection) else render_learned(answer, **names)
    make_folder(path.parent)
    write_whole(path, text.encode())
    return path

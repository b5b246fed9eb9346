"""The page: one HTML file with its data, style and script inside, that asks nothing of a network.

Names come from specs and records, which may come from strangers. They enter the page as JSON in a block that is not a
script, and the script turns them into text nodes; the content security policy admits the page's own style and script,
by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.experiments.records import Records, load
from occamrl.report.data import build
from occamrl.running.files import make_folder, write_whole

if TYPE_CHECKING:
    from occamrl.analysis.certificates import Finding, Record

SCRIPTS = ("dom.js", "chart.js", "regret.js", "decisions.js", "league.js", "main.js")

_PAGE = """<!doctype html>
<html lang="en"{live}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="occamrl">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<div id="head"><h1>{title}</h1>{head}</div>
{live_note}</header>
<nav aria-label="Contents"><ul id="contents">{contents}</ul></nav>
<main id="main" tabindex="-1">{main}</main>
<footer>Written by occamrl. Everything on this page is inside this file.</footer>
{scripts}</body>
</html>
"""
_DRAWN = """<p id="live" class="note" role="status"></p>
<noscript><p>This page draws its figures with a script that is inside it; scripts are switched off here.</p></noscript>
"""


def _asset(name: str) -> str:
    return resources.files("occamrl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _style_and_script() -> tuple[str, str]:
    script = "\n".join(_asset(name) for name in SCRIPTS)
    return "\n" + _asset("page.css"), f'\n(() => {{\n"use strict";\n{script}}})();\n'


def policy(live: bool = False, *, drawn: bool = True) -> str:
    """Return the content security policy of the page; a live page may ask its own server for data."""
    style, script = _style_and_script()
    asks, runs = "'self'" if live else "'none'", f"'{_hash(script)}'" if drawn else "'none'"
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {runs}; img-src data:; "
        f"connect-src {asks}; base-uri 'none'; form-action 'none'"
    )


def as_json(model: Mapping[str, Any]) -> str:
    """Return the data as JSON that can stand inside a ``script`` element: without ``<``, ``>`` and ``&``."""
    text = json.dumps(model, separators=(",", ":"), allow_nan=False)  # ASCII only, so U+2028 is escaped as well
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def render(model: Mapping[str, Any], *, refresh: float | None = None, tag: str = "") -> str:
    """Return the page.

    Parameters
    ----------
    model : dict
        What :func:`occamrl.report.data.build` gives.
    refresh : float, optional
        For a page that is served: ask for new data every so many seconds.
    tag : str
        With ``refresh``: the tag of this data, sent along so that the same data is not sent again.
    """
    style, script = _style_and_script()
    live = "" if refresh is None else f' data-live="{round(1000 * refresh)}" data-tag="{html.escape(tag)}"'
    scripts = f'<script type="application/json" id="data">{as_json(model)}</script>\n<script>{script}</script>\n'
    return _PAGE.format(
        live=live,
        policy=html.escape(policy(refresh is not None), quote=False),
        title=html.escape(str(model["name"]).encode("utf-8", "replace").decode()),  # half a surrogate pair has no code
        style=style,
        live_note=_DRAWN,
        scripts=scripts,
        **dict.fromkeys(("head", "contents", "main"), ""),
    )


def write_report(source: Path | Records, out: Path | None = None, figures: Path | None = None) -> Path:
    """Write the page of an experiment, whole or not at all; return its path.

    Parameters
    ----------
    source : Path or Records
        The experiment's folder, or what was loaded from it.
    out : Path, optional
        The file to write; ``report.html`` in the folder otherwise.
    figures : Path, optional
        A folder for every plot as PDF, SVG and PNG.
    """
    records = source if isinstance(source, Records) else load(source)
    out = out or records.folder / "report.html"
    model = build(records)
    make_folder(out.parent)
    write_whole(out, render(model).encode())
    if figures is not None:
        from occamrl.report.figures import write_figures

        write_figures(model, figures)
    return out


def render_static(title: str, sections: Mapping[str, str], head: str = "") -> str:
    """Return a page without a script: sections by title, their content as HTML."""
    titles = [html.escape(name) for name in sections]
    return _PAGE.format(
        live="",
        policy=html.escape(policy(drawn=False), quote=False),
        title=html.escape(title),
        style=_style_and_script()[0],
        head=head,
        contents="".join(f'<li><a href="#s{i}">{name}</a></li>' for i, name in enumerate(titles)),
        main="".join(
            f'<section id="s{i}"><h2>{name}</h2>{content}</section>'
            for i, (name, content) in enumerate(zip(titles, sections.values(), strict=True))
        ),
        live_note="",
        scripts="",
    )


def render_certificates(records: Sequence[Record]) -> str:
    """Return the page of certificates: tables that need no script."""
    sections = {}
    for section in dict.fromkeys(record.certificate.section for record in records):
        rows = [_row(record) for record in records if record.certificate.section == section]
        sections[section] = (
            '<div class="scroll"><table>'
            "<caption>Above what was measured, below its control; the marks are the bounds.</caption><thead><tr>"
            + "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in _COLUMNS)
            + f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )
    good, minutes = sum(record.good for record in records), sum(record.seconds for record in records) / 60.0
    plain, bad = "", ' class="warn"'
    head = (
        f"<p{plain if good == len(records) else bad}>{good} of {len(records)} promises hold, and their controls are "
        f'refuted.</p><p class="note">Measured in {minutes:.1f} minutes of processor time. Every promise stands beside '
        "a version that is broken on purpose and must be refuted by the same test. Intervals have the level 99.8 %: a "
        "promise that is kept is refuted by chance once in a thousand times at most.</p>"
    )
    return render_static("Certificates", sections, head)


_TEXT, _PICTURE = ' class="text"', ' class="picture"'
_COLUMNS = (
    ("Promise", _TEXT), ("Source", _TEXT), ("Measured", ""), ("Bound", ""), ("Interval and bound", _PICTURE),
    ("Verdict", _TEXT), ("Control", _TEXT),
)  # fmt: skip


def _row(record: Record) -> str:
    """Return the row of a certificate; the picture has its interval above that of the control."""
    from occamrl.analysis.certificates import number  # it measures, and brings all that is measured

    about, found, broken = record.certificate, record.finding, record.control
    text = [html.escape(part) for part in (about.statement, about.source, found.text, record.verdict, about.control)]
    warn = "" if record.good else " warn"
    refuted = "refuted" if not broken.holds else '<span class="warn">not refuted</span>'
    return (
        f'<tr><th scope="row">{text[0]}</th><td class="text">{text[1]}</td>'
        f'<td>{number(found.value)}<span class="ends">[{number(found.low)}, {number(found.high)}]</span>'
        f'<span class="ends">{text[2]}</span></td><td>{number(found.bound)}</td>'
        f'<td class="picture">{_picture(found, broken)}</td><td class="text{warn}">{text[3]}</td>'
        f'<td class="text">{text[4]}: {refuted}<span class="ends">{number(broken.value)} '
        f"[{number(broken.low)}, {number(broken.high)}]</span></td></tr>"
    )


def _picture(found: Finding, broken: Finding) -> str:
    """Return the intervals of a promise and of its control, each with a mark at the bound."""
    from occamrl.analysis.certificates import number

    ends = [part for each in (found, broken) for part in (each.low, each.high, each.value, each.bound)]
    finite = [end for end in ends if math.isfinite(end)]
    low, high = min(finite), max(finite)
    scale = 130.0 / (high - low) if high > low else 0.0

    def at(value: float) -> float:
        return round(7.0 + scale * (min(max(value, low), high) - low), 1)

    marks = []
    for y, kind, each in ((7, "k0", found), (18, "k1", broken)):
        marks.append(
            f'<g class="{kind}"><path class="line" d="M{at(each.low)} {y}H{at(each.high)}"/>'
            f'<circle class="mark" cx="{at(each.value)}" cy="{y}" r="4"/>'
            f'<g class="grey"><path class="line" d="M{at(each.bound)} {y - 5}V{y + 5}"/></g></g>'
        )
    label = f"{number(found.value)} against {number(found.bound)}; control {number(broken.value)}"
    return f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 144 25">{"".join(marks)}</svg>'


def write_certificates(records: Sequence[Record], out: Path) -> Path:
    """Write the page of certificates, whole or not at all; return its path."""
    make_folder(out.parent)
    write_whole(out, render_certificates(records).encode())
    return out

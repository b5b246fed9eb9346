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
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.experiments.records import Records, load
from occamrl.report.data import build
from occamrl.running.files import make_folder, write_whole

if TYPE_CHECKING:
    from occamrl.analysis.certificates import Record

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
    """Return the page of what :func:`occamrl.report.data.build` gives.

    A page that is served asks for new data every ``refresh`` seconds, and names the ``tag`` of the data that it has.
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
    """Write the page of an experiment (its folder, or what was loaded from it), whole or not at all; return its path.

    It is ``report.html`` in the folder unless ``out`` names a file; ``figures`` is a folder for every plot as PDF, SVG
    and PNG.
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
    from occamrl.analysis.certificates import rows_of  # it measures, and brings all that is measured

    names = ("Promise", "Source", "Measured", "Value, interval", "Bound", "Verdict", "Control")
    head = "".join(f'<th scope="col" class="text">{name}</th>' for name in names)
    rows: dict[str, list[str]] = {}
    for record, (_, promise, *rest) in zip(records, rows_of(records), strict=True):
        kinds = ["text"] * 4 + ["text" if record.good else "text warn", "text"]
        cells = (f'<td class="{kind}">{html.escape(text)}</td>' for kind, text in zip(kinds, rest, strict=True))
        row = f'<tr><th scope="row">{html.escape(promise)}</th>{"".join(cells)}</tr>'
        rows.setdefault(record.certificate.section, []).append(row)
    table = '<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    sections = {section: table.format(head, "".join(each)) for section, each in rows.items()}
    good, minutes = sum(record.good for record in records), sum(record.seconds for record in records) / 60.0
    warn = "" if good == len(records) else ' class="warn"'
    return render_static(
        "Certificates",
        sections,
        f"<p{warn}>{good} of {len(records)} promises hold, and their controls are refuted.</p>"
        f'<p class="note">Measured in {minutes:.1f} minutes of processor time. Every promise stands beside a version '
        "that is broken on purpose and must be refuted by the same test. Intervals have the level 99.8 %: a promise "
        "that is kept is refuted by chance once in a thousand times at most.</p>",
    )


def write_certificates(records: Sequence[Record], out: Path) -> Path:
    """Write the page of certificates, whole or not at all; return its path."""
    make_folder(out.parent)
    write_whole(out, render_certificates(records).encode())
    return out

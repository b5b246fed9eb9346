"""The report of an experiment: one HTML file with its data, style and script inside, that asks nothing of a network.

Names come from specs and records, which may come from strangers. They enter the page as JSON in a block that is not a
script, and the script turns them into text nodes; the content security policy admits the page's own style and script,
by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from occamrl.errors import as_path
from occamrl.experiments.records import Records, load
from occamrl.report.data import build
from occamrl.running.storage import make_folder, write_whole

SCRIPTS = ("dom.js", "chart.js", "regret.js", "decisions.js", "main.js")

_PAGE = """<!doctype html>
<html lang="en">
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
<header><div id="head"><h1>{title}</h1>{head}</div></header>
<nav aria-label="Contents"><ul id="contents">{contents}</ul></nav>
<main id="main" tabindex="-1">{main}</main>
<footer>Written by occamrl. Everything on this page is inside this file.</footer>
{scripts}</body>
</html>
"""
_NO_SCRIPT = (
    "<noscript><p>This page draws its figures with a script inside it; scripts are switched off.</p></noscript>"
)


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
    scripts = (
        f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n' if script else ""
    )
    shown = html.escape(title.encode("utf-8", "replace").decode())  # half a surrogate pair has no code
    parts = {"head": "", "contents": "", "main": "", **parts}
    return _PAGE.format(policy=html.escape(policy, quote=False), title=shown, style=style, scripts=scripts, **parts)


def render(model: Mapping[str, Any]) -> str:
    """Return the page of what :func:`occamrl.report.data.build` gives."""
    text = json.dumps(model, separators=(",", ":"), allow_nan=False)  # ASCII only, so U+2028 is escaped as well
    for sign in "&<>":  # so that it can stand inside a script element
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    lines = "\n".join(asset(name) for name in SCRIPTS)
    return fill(str(model["name"]), f'\n(() => {{\n"use strict";\n{lines}}})();\n', text, main=_NO_SCRIPT)


def render_static(title: str, sections: Mapping[str, str], head: str = "") -> str:
    """Return a page without a script: sections by title, their content as HTML."""
    named = [(f"s{i}", html.escape(name), content) for i, (name, content) in enumerate(sections.items())]
    contents = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in named)
    main = "".join(f'<section id="{key}"><h2>{name}</h2>{content}</section>' for key, name, content in named)
    return fill(title, head=head, contents=contents, main=main)


def write_report(source: str | Path | Records, out: Path | None = None, figures: Path | None = None) -> Path:
    """Write the report of an experiment (its folder, or what was loaded from it), whole or not at all.

    Parameters
    ----------
    source : path or Records
    out : path, optional
        The page; by default ``report.html`` in the folder.
    figures : path, optional
        A folder for every plot as PDF, SVG and PNG.

    Returns
    -------
    Path
        Of the page.
    """
    records = source if isinstance(source, Records) else load(as_path("folder", source))
    model, page = build(records), out or records.folder / "report.html"
    make_folder(page.parent)
    write_whole(page, render(model).encode())
    if figures is not None:
        from occamrl.report.figures import write_figures

        write_figures(model, figures)
    return page

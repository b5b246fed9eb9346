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
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from occamrl.experiments.records import Records, load
from occamrl.report.data import build
from occamrl.running.storage import make_folder, write_whole

SCRIPTS = ("dom.js", "chart.js", "heat.js", "regret.js", "decisions.js", "evidence.js", "main.js")

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
<div id="head"><h1>{title}</h1></div>
<nav aria-label="Contents"><ul id="contents"></ul></nav>
<p id="live" class="note" role="status"></p>
<noscript><p>This page draws its figures with a script that is inside it; scripts are switched off here.</p></noscript>
</header>
<main id="main" tabindex="-1"></main>
<footer>Written by occamrl. Everything on this page is inside this file.</footer>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return resources.files("occamrl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _style_and_script() -> tuple[str, str]:
    script = "\n".join(_asset(name) for name in SCRIPTS)
    return "\n" + _asset("page.css"), f'\n(() => {{\n"use strict";\n{script}}})();\n'


def policy(live: bool = False) -> str:
    """Return the content security policy of the page; a live page may ask its own server for data."""
    style, script = _style_and_script()
    asks = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
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
    return _PAGE.format(
        live=live,
        policy=html.escape(policy(refresh is not None), quote=False),
        title=html.escape(str(model["name"]).encode("utf-8", "replace").decode()),  # half a surrogate pair has no code
        style=style,
        data=as_json(model),
        script=script,
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

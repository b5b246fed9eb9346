"""The site: ``make docs`` builds it from the pages, the docstrings of the public names and the notebooks."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from sphinx.directives.code import CodeBlock

import occamrl

project = "occamrl"
author = copyright = "the occamrl developers"
version = release = occamrl.__version__

# Executed when the site is built. make docs installs what does it; the tests only show their code.
notebooks = (
    importlib.util.find_spec("myst_nb") is not None
    and "OCCAMRL_WITHOUT_NOTEBOOKS" not in os.environ
)
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_nb" if notebooks else "myst_parser",
]
exclude_patterns = ["_build", ".jupyter_cache", "jupyter_execute"]
html_theme = "furo"
html_title = "occamrl"
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_double_inline = True  # displayed formulas within a paragraph
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing"
]  # links to files beside the pages are checked by the tests
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_output_stderr = "remove"  # progress
numpydoc_show_class_members = False
autodoc_typehints = "none"  # docstrings say what a parameter is
autodoc_member_order = "bysource"
nitpicky = False


TITLES = {
    "problems": "Problems",
    "protocols": "Protocols",
    "models": "Models: features, families and ladders",
    "learners": "Learners",
    "selectors": "Selectors, and rules over learners",
    "running": "Running and results",
    "experiments": "Comparisons and experiments",
    "envs": "Environments and ladder files",
    "logs": "Logged data",
    "analysis": "Analysis",
    "errors": "Errors",
}


INTERNAL = {"learners", "selectors"}  # their methods are called by ``run``, not by users


def write_reference(app: Any) -> None:
    """Write a page with every public name, by the part of the package that it is from."""
    groups: dict[str, list[str]] = {}
    listing = Path(occamrl.__file__).read_text("utf-8")
    for module, name in re.findall(
        r"^    from occamrl\.(\S+) import (\w+) as", listing, re.MULTILINE
    ):
        groups.setdefault(module.split(".")[0], []).append(name)
    lines = ["# Reference", "", "All public names are in `occamrl`.", ""]
    for group in [*TITLES, *(group for group in groups if group not in TITLES)]:
        lines += [f"## {TITLES.get(group, group)}", ""]
        for name in sorted(groups[group]):
            kind = "autoclass" if isinstance(getattr(occamrl, name), type) else "autofunction"
            options = ["   :members:"] if kind == "autoclass" and group not in INTERNAL else []
            lines += ["```{eval-rst}", f".. {kind}:: occamrl.{name}", *options, "```", ""]
    path = Path(app.srcdir) / "site" / "reference.md"
    path.parent.mkdir(exist_ok=True)
    text = "\n".join(lines)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def escape_bars(app: Any, what: str, name: str, about: Any, options: Any, lines: list[str]) -> None:
    """Let |x| in a docstring stand for what it does in mathematics; reStructuredText takes it for a substitution."""
    for i, line in enumerate(lines):
        if ">>>" not in line:
            parts = line.split("``")
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[i] = "``".join(parts)


def setup(app: Any) -> None:
    """Write the reference before the pages are read."""
    app.connect("builder-inited", write_reference)
    if not notebooks:
        app.add_directive("code-cell", CodeBlock)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)

"""The site: ``make docs`` builds it from the pages, the docstrings of the public names and the notebooks."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import occamrl

project = "occamrl"
author = copyright = "the occamrl developers"
version = release = occamrl.__version__

notebooks = importlib.util.find_spec("myst_nb") is not None  # executed when the site is built; make docs installs it
extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc", "myst_nb" if notebooks else "myst_parser"]
exclude_patterns = ["_build", "decisions/README.md"] + ([] if notebooks else ["notebooks/*"])
html_theme = "furo"
html_title = "occamrl"
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
html_static_path: list[str] = []

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files beside the pages are checked by the tests
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
numpydoc_show_class_members = False
autodoc_typehints = "none"  # docstrings say what a parameter is
autodoc_member_order = "bysource"
nitpicky = False


def write_reference(app: Any) -> None:
    """Write a page with every public name, in the order of the package's own list."""
    groups: dict[str, list[str]] = {}
    listing = Path(occamrl.__file__).read_text("utf-8")
    for module, name in re.findall(r"^    from occamrl\.(\S+) import (\w+) as", listing, re.MULTILINE):
        groups.setdefault(module.split(".")[0], []).append(name)
    lines = [
        "# Reference",
        "",
        "Every public name; each has an example in its docstring or on the page of its topic.",
        "",
    ]
    for group, names in sorted(groups.items()):
        lines += [f"## {group}", ""]
        for name in sorted(names):
            kind = "autoclass" if isinstance(getattr(occamrl, name), type) else "autofunction"
            options = [":members:"] if kind == "autoclass" else []
            lines += [
                "```{eval-rst}",
                f".. {kind}:: occamrl.{name}",
                *(f"   {option}" for option in options),
                "```",
                "",
            ]
    path = Path(app.srcdir) / "site" / "reference.md"
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
    app.connect("autodoc-process-docstring", escape_bars, priority=900)

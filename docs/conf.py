"""The site: ``make docs`` builds it from pages, docstrings of public names and notebooks."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.directives.code import CodeBlock
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

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
    "numpydoc",
    "myst_nb" if notebooks else "myst_parser",
]
exclude_patterns = ["_build", ".jupyter_cache", "jupyter_execute"]
html_theme = "furo"
html_math_renderer = "mathml"
html_title = "occamrl"
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_double_inline = True  # displayed formulas within a paragraph
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # the tests check links to files beside the pages
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


def write_reference(app: Sphinx) -> None:
    """Write a page with every public name, by the part of the package that it is from."""
    groups: dict[str, list[str]] = {}
    listing = Path(occamrl.__file__).read_text("utf-8")
    pattern = r"^    from occamrl\.(\S+) import (\w+) as"
    for module, name in re.findall(pattern, listing, re.MULTILINE):
        groups.setdefault(module.split(".")[0], []).append(name)
    lines = ["# Reference", "", "All public names are in `occamrl`.", ""]
    for group in dict.fromkeys([*TITLES, *groups]):
        lines += [f"## {TITLES.get(group, group)}", ""]
        for name in sorted(groups[group]):
            lines += ["```{eval-rst}", *directive(name, group), "```", ""]
    path = Path(app.srcdir) / "site" / "reference.md"
    path.parent.mkdir(exist_ok=True)
    text = "\n".join(lines)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def directive(name: str, group: str) -> list[str]:
    """Return what documents a public name."""
    if not isinstance(getattr(occamrl, name), type):
        return [f".. autofunction:: occamrl.{name}"]
    if group in INTERNAL:
        return [f".. autoclass:: occamrl.{name}"]
    return [f".. autoclass:: occamrl.{name}", "   :members:"]


def escape_bars(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Let |x| in a docstring be what it is in mathematics, instead of a substitution."""
    for i, line in enumerate(lines):
        if ">>>" not in line:
            parts = line.split("``")
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[i] = "``".join(parts)


def mathml(formula: str, display: str = "inline") -> str:
    """Return a formula as MathML."""
    drawn = convert(formula.replace(r"\arg", r"\operatorname{arg}"), display=display)
    drawn = drawn.replace(r"\{", "{").replace(r"\}", "}")  # large braces are left as they are
    if "\\" in drawn:  # a command that is not known would be shown as it is
        raise ExtensionError(f"no MathML for {formula}")
    return drawn


def write_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line as MathML, which browsers draw with nothing loaded."""
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def write_displayed(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own as MathML, in a box that scrolls where it is too wide."""
    formula = node.astext()
    if "\\\\" in formula and "\\begin" not in formula:
        formula = rf"\begin{{aligned}}{formula}\end{{aligned}}"
    writer.body.append(f'<div class="math">{mathml(formula, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Write the reference before the pages are read."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_displayed, None))
    app.connect("builder-inited", write_reference)
    if not notebooks:
        app.add_directive("code-cell", CodeBlock)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)

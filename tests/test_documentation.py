"""The documentation and the code: examples run, links lead somewhere, named statements exist."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import occamrl
from studies.figures import PAGES as MEASURED

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "occamrl"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
MATHEMATICS = (ROOT / "docs" / "mathematics.md").read_text("utf-8")

_BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\s*<!-- output -->\s*^```(?:text)?\n(.*?)^```)?", re.M | re.S
)
_CELL = re.compile(r"^```{code-cell}\n(.*?)^```", re.M | re.S)
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)


def name_of(page: Path) -> str:
    """Return the name of a page below the folder of the project."""
    return page.relative_to(ROOT).as_posix()


# Examples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _BLOCK.search(page.read_text("utf-8"))], ids=name_of
)
def test_examples_of_a_page_run_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a page share a namespace; what is marked <!-- output --> is what one prints."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "data").symlink_to(ROOT / "docs" / "data")  # which examples read
    monkeypatch.chdir(tmp_path)  # examples may write files
    monkeypatch.setenv("MPLBACKEND", "Agg")
    scope: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text("utf-8")
    for match in _BLOCK.finditer(text):
        block, shown = match.groups()
        line = text[: match.start(1)].count("\n")
        code = compile("\n" * line + block, str(page), "exec", dont_inherit=True)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, scope)  # noqa: S102  # our pages
        if shown is None:
            continue
        printed = output.getvalue()
        if shown.endswith("\n...\n"):  # dots stand for what follows
            shown = shown.removesuffix("...\n")
            printed = printed[: len(shown)]
        assert printed == shown, f"{name_of(page)}, line {line}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "notebooks").glob("*.md")), ids=name_of)
def test_cells_of_a_notebook_run_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they print is part of the site, which runs them too."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "data").symlink_to(ROOT / "docs" / "data")
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    scope: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text("utf-8")
    cells = list(_CELL.finditer(text))
    assert cells
    for cell in cells:
        line = text[: cell.start(1)].count("\n")
        exec(compile("\n" * line + cell[1], str(page), "exec", dont_inherit=True), scope)  # noqa: S102  # our pages


def docstring_examples() -> list[doctest.DocTest]:
    """Return the examples of every docstring of the package; each has a namespace of its own."""
    names = ["occamrl"]
    for info in pkgutil.walk_packages(occamrl.__path__, "occamrl."):
        if info.name != "occamrl.__main__":
            names.append(info.name)
    finder = doctest.DocTestFinder()
    docstrings = []
    for name in names:
        docstrings += finder.find(importlib.import_module(name))
    return [docstring for docstring in docstrings if docstring.examples]


@pytest.mark.parametrize("example", docstring_examples(), ids=lambda example: example.name)
def test_examples_of_a_docstring_run_as_written(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    monkeypatch.setenv("MPLBACKEND", "Agg")
    report = io.StringIO()
    doctest.DocTestRunner().run(example, out=report.write)
    assert not report.getvalue(), report.getvalue()


def test_every_public_name_has_an_example() -> None:
    named = {f"occamrl.{name}" for name in occamrl.__all__}
    finder = doctest.DocTestFinder()
    shown = set()
    for name in occamrl.__all__:
        if any(docstring.examples for docstring in finder.find(getattr(occamrl, name), name)):
            shown.add(f"occamrl.{name}")
    assert named - {"occamrl.paper"} == shown - {"occamrl.paper"}


def test_what_a_page_includes_of_another_is_there() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        for target, options in re.findall(r"```{include} (\S+)\n(.*?)```", text, re.S):
            included = (page.parent / target).read_text("utf-8")
            for mark in re.findall(r'^:(?:start-after|end-before): "(.+)"$', options, re.M):
                assert included.count(mark) == 1, f"{name_of(page)}: {mark}"


def test_output_is_compared_only_where_it_is_marked() -> None:
    """A mark anywhere else than between a block of code and its output would compare nothing."""
    for page in PAGES:
        text = page.read_text("utf-8")
        compared = [match for match in _BLOCK.finditer(text) if match[2] is not None]
        assert text.count("<!-- output -->") == len(compared), name_of(page)


def test_no_output_is_shown_that_is_not_compared() -> None:
    """A text block that follows code on a page is its output, and marked as such."""
    for page in PAGES:
        text = page.read_text("utf-8")
        unmarked = re.findall(r"^```python\n(?:(?!^```).*\n)*```\n\s*^```text\n(.*)", text, re.M)
        assert not unmarked, f"{name_of(page)}: {unmarked}"
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count("```text") == readme.count("<!-- output -->") > 0


# Links --------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", page.read_text("utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page
        if path:
            target = (page.parent / path).resolve()
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


# Guarantees ---------------------------------------------------------------------------------------


def test_the_page_of_guarantees_quotes_what_every_public_agent_says() -> None:
    """Agents whose guarantee depends on how they are used are tested with the agents."""
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    said = dict(re.findall(r'^\| "([a-z, ]+)" \| [^|]+ \| ([^|]+) \|$', page, re.M))
    quoted = set()
    for name in occamrl.__all__:
        guarantee = vars(getattr(occamrl, name)).get("guarantee") if name[0].isupper() else None
        if isinstance(guarantee, str):
            assert f"`{name}`" in said[guarantee], name
            quoted.add(name)
    assert len(quoted) > 5


# Tables that are measured -------------------------------------------------------------------------


@pytest.mark.parametrize("page", sorted(MEASURED))
def test_a_page_has_a_place_for_each_of_its_measurements_and_names_the_command(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    for part in MEASURED[page]:
        assert len(re.findall(rf"<!-- {part} -->\n.*?<!-- end -->", text, re.S)) == 1, part
    assert f"`python -m studies.figures {page}`" in text


def test_no_page_has_a_place_that_nothing_fills() -> None:
    for page in PAGES:
        parts = set(re.findall(r"<!-- (\w+:\w+) -->", page.read_text("utf-8")))
        name = name_of(page).removeprefix("docs/").removesuffix(".md")
        assert parts <= set(MEASURED.get(name, ())), name_of(page)


# The mathematics ----------------------------------------------------------------------------------

NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py): ([\w.]+)`", MATHEMATICS)))
STATEMENTS = re.findall(r"\| `(paper/\w+\.py): ([\w.]+)` \| `(.+)` \|$", MATHEMATICS, re.M)


@cache
def definitions(path: str) -> dict[str, str]:
    """Return the source of every function and class of a file, methods as Class.method."""
    text = (SOURCE / path).read_text("utf-8")
    lines = text.splitlines()
    sources: dict[str, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                sources[prefix + child.name] = "\n".join(lines[child.lineno - 1 : child.end_lineno])
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(text), "")
    return sources


def test_what_the_mathematics_names_exists() -> None:
    assert len(NAMED) > 50
    for path, name in NAMED:
        assert (SOURCE / path).exists(), path
        assert name in definitions(path), f"{path}: {name}"


def test_the_lines_of_the_paper_stand_where_the_mathematics_says() -> None:
    assert len(STATEMENTS) > 20
    for path, name, statement in STATEMENTS:
        assert statement in definitions(path)[name], f"{path}: {name}: {statement}"


def test_every_statement_is_defined_once_and_every_citation_is_defined() -> None:
    defined = re.findall(r"\*\*([MLB]\d+)\b", MATHEMATICS)
    assert len(defined) == len(set(defined))
    numbered = []
    for letter, count in (("M", 27), ("L", 8), ("B", 10)):
        numbered += [f"{letter}{n}" for n in range(1, count + 1)]
    numbered += ["B12", "B13"]  # the number between is kept for what is to come
    assert set(defined) == set(numbered)
    for path in (*PAGES, *SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        groups = re.findall(r"\(([MLB]\d+(?:(?:, | and | to )[MLB]\d+)*)\)", text)
        cited = set(re.findall(r"[MLB]\d+", " ".join(groups)))
        assert cited <= set(defined), f"{name_of(path)}: {cited - set(defined)}"


def test_formulas_are_delimited() -> None:
    """Dollar signs come in pairs in every line, or in pairs of pairs around displayed formulas."""
    for page in (ROOT / "docs").glob("*.md"):
        text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text("utf-8")))
        text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)
        for line in text.splitlines():
            assert line.count("$") % 2 == 0, f"{page.name}: {line[:100]}"

"""The documentation and the code: examples run as written, figures come from commands, every citation is defined."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import occamrl as orl
from benchmarks.figures import DOCS, Size, main, measure, place
from benchmarks.figures import PAGES as MEASURED

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_of_a_page_run_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in _BLOCK.findall(page.read_text()):
        exec(compile(block, page.name, "exec", dont_inherit=True), scope)  # noqa: S102  # our own pages


NEAR_THE_BEGINNING = 12  # lines of a docstring


@pytest.mark.parametrize("name", orl.__all__)
def test_help_on_a_public_name_begins_with_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    text = inspect.cleandoc(getattr(orl, name).__doc__)  # its own: not that of a base class, as getdoc has it
    assert any(line.startswith(">>> ") for line in text.splitlines()[:NEAR_THE_BEGINNING])
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert not doctest.DocTestRunner().run(example).failed


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


# Parts that take seconds, of the studies whose last part does not.
QUICK = ("study_extensions:changing", "study_occam:coverage", "study_practical:machine_replacement")
PARTS = {part.split(":")[0]: part for part in (*(part for parts in MEASURED.values() for part in parts), *QUICK)}
_PLACE = re.compile(r"<!-- study_.*?<!-- end -->", re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_FIGURE = re.compile(r"\| \**[+-]?[\d,.]+(?= |\*)")


def header(text: str) -> str:
    """Return the first line of the first table."""
    return next(line for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize("part", PARTS.values())  # one of each study
def test_a_page_shows_what_its_command_prints(part: str) -> None:
    """Played for a few episodes, a part prints the table of its pages, with other figures."""
    printed = header(measure(part, Size(tiny=True)))
    for page in (page for page, parts in MEASURED.items() if part in parts):
        (shown,) = place(part).findall((DOCS / f"{page}.md").read_text())
        assert printed == header(shown)


def test_pages_have_a_place_for_every_measurement_and_name_their_command() -> None:
    for page in DOCS.rglob("*.md"):
        name, text = page.relative_to(DOCS).with_suffix("").as_posix(), page.read_text()
        assert set(re.findall(r"<!-- (study_\w+:\w+) -->", text)) == set(MEASURED.get(name, ()))
        assert (name in MEASURED) == (f"`python -m benchmarks.figures {name}`" in text), name


def tables_of_figures(text: str) -> list[str]:
    """Return the tables with several numbers in a row; those that say how many models a class has are no figures."""
    tables = [each for each in _TABLE.findall(text) if not each.partition("\n")[0].endswith("| models |")]
    return [each for each in tables if any(len(_FIGURE.findall(row)) > 1 for row in each.splitlines()[2:])]


def test_tables_of_figures_come_from_a_command_that_exists() -> None:
    """They stand where the command puts them, or on the page that the certificates write."""
    for page in PAGES:
        text = page.read_text()
        assert not tables_of_figures(_PLACE.sub("", text)) or page.stem == "certificates", page.name
        for name in re.findall(r"benchmarks[./](\w+)", text):
            assert (ROOT / "benchmarks" / f"{name}.py").exists(), f"{page.name}: {name}"
    assert sum(bool(tables_of_figures(page.read_text())) for page in PAGES) > 15  # so they are known when seen


def test_the_command_lists_its_pages_and_prints_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main([])
    listed = capsys.readouterr().out
    assert all(page in listed for page in MEASURED)
    main(["learners", "--tiny"])
    assert "| 0.2 (default) |" in capsys.readouterr().out
    page = tmp_path / "learners.md"
    page.write_text("before\n<!-- study_linear:lazy -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr("benchmarks.figures.DOCS", tmp_path)
    monkeypatch.setattr("benchmarks.figures.measure", lambda part, size: "| new |")
    main(["learners", "--write"])
    assert page.read_text() == "before\n<!-- study_linear:lazy -->\n| new |\n<!-- end -->\nafter\n"
    page.write_text("no place\n")
    with pytest.raises(SystemExit, match="0 places for study_linear:lazy"):
        main(["learners", "--write"])
    for arguments in (["no-page"], ["learners", "--part", "study_linear:none"], ["learners", "--tiny", "--write"]):
        with pytest.raises(SystemExit):
            main(arguments)


SOURCE = ROOT / "src" / "occamrl"
MATHEMATICS = (ROOT / "docs" / "mathematics.md").read_text()
CITED = {each for path in SOURCE.rglob("*.py") for each in re.findall(r"\b(?:M\d{1,2}|L[1-9])\b", path.read_text())}
DEFINED = re.findall(r"\*\*([ML]\d+)\b", MATHEMATICS)
NAMED = set(re.findall(r"`([a-z_/]+\.py): ([\w.]+)`", MATHEMATICS))
STATEMENTS = re.findall(r"\| `(paper/\w+\.py): ([\w.]+)` \| `(.+)` \|$", MATHEMATICS, re.MULTILINE)


@cache
def definitions(path: str) -> dict[str, str]:
    """Return the source of every function and class of a file, methods as Class.method."""
    text = (SOURCE / path).read_text()
    lines, found = text.splitlines(), {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                found[prefix + child.name] = "\n".join(lines[child.lineno - 1 : child.end_lineno])
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(text), "")
    return found


def test_every_statement_is_defined_once_and_every_citation_in_the_code_is_defined() -> None:
    assert len(DEFINED) == len(set(DEFINED))
    assert {f"M{number}" for number in range(1, 27)} | {f"L{number}" for number in range(1, 10)} <= set(DEFINED)
    assert CITED
    assert set(DEFINED) >= CITED


def test_what_the_page_names_exists() -> None:
    assert NAMED
    for path, name in NAMED:
        assert name in definitions(path), f"{path}: {name}"


def test_the_lines_of_the_paper_stand_where_the_page_says() -> None:
    listed = {path for path, _, _ in STATEMENTS}
    assert listed == {f"paper/{path.name}" for path in (SOURCE / "paper").glob("*.py")} - {"paper/__init__.py"}
    for path, name, statement in STATEMENTS:
        assert statement in definitions(path)[name]

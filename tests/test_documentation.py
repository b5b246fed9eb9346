"""The documentation and the code: examples run as written, figures come from commands, every citation is defined."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


QUICK = (  # parts that take seconds, of the studies whose last part does not
    "study_extensions:changing",
    "study_occam:coverage",
    "study_practical:machine_replacement",
)
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


@pytest.mark.parametrize("page", MEASURED)
def test_a_page_names_its_command(page: str) -> None:
    assert f"`python -m benchmarks.figures {page}`" in (DOCS / f"{page}.md").read_text()


def test_places_in_the_pages_are_those_of_the_table() -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert set(re.findall(r"<!-- (study_\w+:\w+) -->", page.read_text())) == set(MEASURED.get(name, ()))


def tables_of_figures(text: str) -> list[str]:
    """Return the tables with several numbers in a row; those that say how many models a class has are no figures."""
    tables = [each for each in _TABLE.findall(text) if not each.partition("\n")[0].endswith("| models |")]
    return [each for each in tables if any(len(_FIGURE.findall(row)) > 1 for row in each.splitlines()[2:])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tables_of_figures_come_from_a_command_that_exists(page: Path) -> None:
    """They stand where the command puts them, or on the page that the certificates write."""
    text = page.read_text()
    assert not tables_of_figures(_PLACE.sub("", text)) or page.stem == "certificates"
    for name in re.findall(r"benchmarks[./](\w+)", text):
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), f"{page.name}: {name}"
    for name in re.findall(r"`python -m benchmarks\.figures ([\w/-]+)", text):
        assert name in MEASURED


def test_a_table_of_figures_is_known_as_one() -> None:
    named = "| class | models |\n| --- | --- |\n| 1 | 3 |\n"
    measured = "| agent | regret | plans |\n| --- | --- | --- |\n| ARL-GEN | 6.7 [5.2, 7.0] | 1,024 |\n"
    assert tables_of_figures(f"{named}\n{measured}") == [measured]


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


@pytest.mark.parametrize(
    "arguments", [["no-page"], ["learners", "--part", "study_linear:none"], ["learners", "--tiny", "--write"]]
)
def test_the_command_refuses_what_it_does_not_have(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)


SOURCE = ROOT / "src" / "occamrl"
MATHEMATICS = (ROOT / "docs" / "mathematics.md").read_text()
CITED = sorted(
    {
        (statement, path.relative_to(SOURCE).as_posix())
        for path in SOURCE.rglob("*.py")
        for statement in re.findall(r"\b(?:M\d{1,2}|L[1-9])\b", path.read_text())
    }
)
DEFINED = re.findall(r"\*\*([ML]\d+)\b", MATHEMATICS)
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py): ([\w.]+)`", MATHEMATICS)))
STATEMENTS = re.findall(r"\| `(paper/\w+\.py): ([\w.]+)` \| `(.+)` \|$", MATHEMATICS, re.MULTILINE)


@cache
def definitions(path: str) -> dict[str, str]:
    """Return the source of every function and class of a file, methods as Class.method."""
    text = (SOURCE / path).read_text()
    found: dict[str, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                found[prefix + child.name] = ast.get_source_segment(text, child) or ""
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(text), "")
    return found


def test_every_statement_is_defined_once_and_in_bold() -> None:
    assert len(DEFINED) == len(set(DEFINED))
    assert {f"M{number}" for number in range(1, 27)} <= set(DEFINED)


def test_every_citation_in_the_code_is_defined_on_the_page() -> None:
    assert CITED
    assert {statement for statement, _ in CITED} <= set(DEFINED)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_the_page_names_exists(path: str, name: str) -> None:
    assert name in definitions(path)


def test_every_file_of_the_letter_has_its_lines_on_the_page() -> None:
    listed = {path for path, _, _ in STATEMENTS}
    assert listed == {f"paper/{path.name}" for path in (SOURCE / "paper").glob("*.py")} - {"paper/__init__.py"}


@pytest.mark.parametrize(("path", "name", "statement"), STATEMENTS)
def test_the_lines_of_the_letter_stand_where_the_page_says(path: str, name: str, statement: str) -> None:
    assert statement in definitions(path)[name]

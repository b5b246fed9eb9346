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


PARTS = [(page, next(iter(parts))) for page, parts in MEASURED.items()]  # the first of each page: they take seconds


def header(text: str) -> str:
    """Return the first line of the first table."""
    return next(line for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize(("page", "part"), PARTS)
def test_a_page_shows_what_its_command_prints(page: str, part: str) -> None:
    """Played for a few episodes, a part prints the table of the page, with other figures."""
    (shown,) = place(part).findall((DOCS / f"{page}.md").read_text())
    assert header(measure(part, Size(tiny=True))) == header(shown)


@pytest.mark.parametrize("page", MEASURED)
def test_a_page_names_its_command(page: str) -> None:
    assert f"`python -m benchmarks.figures {page}`" in (DOCS / f"{page}.md").read_text()


def test_places_in_the_pages_are_those_of_the_table() -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert set(re.findall(r"<!-- (study_\w+:\w+) -->", page.read_text())) == set(MEASURED.get(name, ()))


def test_commands_that_pages_name_exist() -> None:
    """A page whose figures come from a study of its own names a file that is there."""
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"benchmarks[./](study_\w+)", page.read_text()):
            assert (DOCS.parent / "benchmarks" / f"{name}.py").exists(), f"{page.name}: {name}"


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
        (int(number), path.relative_to(SOURCE).as_posix())
        for path in SOURCE.rglob("*.py")
        for number in re.findall(r"\bM(\d{1,2})\b", path.read_text())
    }
)
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
    defined = [int(number) for number in re.findall(r"\*\*M(\d+)\b", MATHEMATICS)]
    assert sorted(defined) == list(range(1, 27))


def test_every_citation_in_the_code_is_defined_on_the_page() -> None:
    assert CITED
    assert {number for number, _ in CITED} <= set(range(1, 27))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_the_page_names_exists(path: str, name: str) -> None:
    assert name in definitions(path)


def test_every_file_of_the_letter_has_its_lines_on_the_page() -> None:
    listed = {path for path, _, _ in STATEMENTS}
    assert listed == {f"paper/{path.name}" for path in (SOURCE / "paper").glob("*.py")} - {"paper/__init__.py"}


@pytest.mark.parametrize(("path", "name", "statement"), STATEMENTS)
def test_the_lines_of_the_letter_stand_where_the_page_says(path: str, name: str, statement: str) -> None:
    assert statement in definitions(path)[name]

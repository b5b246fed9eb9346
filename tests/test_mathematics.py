"""``docs/mathematics.md`` and the code: every citation is defined there, every function that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "occamrl"
PAGE = (ROOT / "docs" / "mathematics.md").read_text()
CITED = sorted(
    {
        (statement, path.relative_to(SOURCE).as_posix())
        for path in SOURCE.rglob("*.py")
        for statement in re.findall(r"\b(?:M\d{1,2}|L[1-9])\b", path.read_text())
    }
)
DEFINED = re.findall(r"\*\*([ML]\d+)\b", PAGE)
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py): ([\w.]+)`", PAGE)))
STATEMENTS = re.findall(r"\| `(paper/\w+\.py): ([\w.]+)` \| `(.+)` \|$", PAGE, re.MULTILINE)


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

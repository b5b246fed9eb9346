"""Every measured figure of the documentation comes from a command that exists, runs, and prints what the page shows."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import DOCS, PAGES, Size, main, measure, place

PARTS = [(page, next(iter(parts))) for page, parts in PAGES.items()]  # the first of each page: they take seconds


def header(text: str) -> str:
    """Return the first line of the first table."""
    return next(line for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize(("page", "part"), PARTS)
def test_a_page_shows_what_its_command_prints(page: str, part: str) -> None:
    """Played for a few episodes, a part prints the table of the page, with other figures."""
    (shown,) = place(part).findall((DOCS / f"{page}.md").read_text())
    assert header(measure(part, Size(tiny=True))) == header(shown)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_its_command(page: str) -> None:
    assert f"`python -m benchmarks.figures {page}`" in (DOCS / f"{page}.md").read_text()


def test_places_in_the_pages_are_those_of_the_table() -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert set(re.findall(r"<!-- (study_\w+:\w+) -->", page.read_text())) == set(PAGES.get(name, ()))


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
    assert all(page in listed for page in PAGES)
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

"""The command line, as far as it needs no experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import occamrl
from occamrl import demo, registry
from occamrl.cli import app


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_version() -> None:
    assert invoke("version").strip() == occamrl.__version__


def test_list_names_everything_that_is_found() -> None:
    output = invoke("list")
    for kind in ("problems", "families", "learners", "selectors"):
        (line,) = (line for line in output.splitlines() if line.startswith(f"{kind}:"))
        for name in getattr(registry, kind)():
            assert name in line


def test_without_a_command_there_is_help() -> None:
    output = CliRunner().invoke(app, []).output
    for command in ("demo", "list", "version"):
        assert command in output


def test_an_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(app, ["demmo"])
    assert result.exit_code == 2
    assert "demmo" in result.output


def opened_in(urls: list[str]) -> Callable[[str], bool]:
    """Return a browser that only takes notes."""

    def browse(url: str) -> bool:
        urls.append(url)
        return True

    return browse


def test_the_demonstration_prints_tables_and_draws_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EPISODES", 600)
    monkeypatch.setattr(demo, "SEEDS", 1)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened_in(opened))
    monkeypatch.setenv("DISPLAY", ":0")
    folder = tmp_path / "deep" / "out"
    output = invoke("demo", "--out", str(folder), "--no-show")
    assert opened == []
    for label in ("ARL-LIN(dim)", "Greedy", "regret"):
        assert label in output
    figures = list(folder.glob("*.png"))
    assert figures
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert str(figures[0]) in output


def test_a_figure_is_opened_only_where_there_is_a_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened_in(opened))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not demo.open_file(tmp_path / "x.png")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert demo.open_file(tmp_path / "x.png")
    assert opened == [(tmp_path / "x.png").resolve().as_uri()]

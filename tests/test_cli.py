"""The command line, as far as it needs no experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import occamrl
from occamrl import demo, registry
from occamrl.cli import app
from occamrl.envs.ladder_file import shipped_ladders


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
    assert all(name in output for name in shipped_ladders())


def test_the_demonstration_prints_tables_and_draws_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EPISODES", 600)
    monkeypatch.setattr(demo, "SEEDS", 1)
    folder = tmp_path / "deep" / "out"
    output = invoke("demo", "--out", str(folder))
    for label in ("ARL-LIN(dim)", "Greedy", "regret"):
        assert label in output
    figures = list(folder.glob("*.png"))
    assert figures
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert str(figures[0]) in output

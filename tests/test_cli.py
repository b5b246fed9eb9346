"""The command line, as far as it needs no experiment."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

import occamrl
from occamrl import checks, demo, registry
from occamrl.cli import app
from occamrl.envs.ladder_file import shipped_ladders


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_version() -> None:
    assert invoke("--version").strip() == occamrl.__version__
    assert "--install-completion" in invoke("--help")


@pytest.mark.parametrize("kind", ["learner", "problem", "rule"])
def test_a_new_class_passes_its_check_and_nothing_is_overwritten(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "rule" and not hasattr(checks, "check_rule"):
        pytest.skip("there are no rules")
    monkeypatch.chdir(tmp_path)
    assert "python mine.py" in invoke("new", kind, "Mine")
    module = runpy.run_path("mine.py", run_name="__main__")  # checks itself
    assert module["Mine"].__name__ == "Mine"
    assert 'name = "mine:Mine"' in (tmp_path / "mine.py").read_text()
    again = CliRunner().invoke(app, ["new", kind, "Mine"])
    assert again.exit_code == 2
    assert "mine.py, which exists" in again.output
    for words in ((kind, "class"), (kind, "a b"), ("lerner", "Mine"), (kind, "Mine", "--out", "my-own.py")):
        assert CliRunner().invoke(app, ["new", *words]).exit_code == 2


def test_list_names_everything_that_is_found() -> None:
    output = invoke("list")
    for kind in ("problems", "families", "learners", "selectors"):
        (line,) = (line for line in output.splitlines() if line.startswith(f"{kind}:"))
        for name in getattr(registry, kind)():
            assert name in line
    assert all(name in output for name in shipped_ladders())


def test_the_demonstration_prints_tables_and_draws_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EPISODES", {"lake": 100, "mixture": 600})
    monkeypatch.setattr(demo, "SEEDS", 1)
    folder = tmp_path / "deep" / "out"
    output = invoke("demo", "--out", str(folder))
    for label in ("Occam", "is in play, class", "ARL-LIN(dim)", "of 16 features", "regret"):
        assert label in output
    figures = list(folder.glob("*.png"))
    assert figures
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert str(figures[0]) in output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "MemoryError: there is too little memory"),
        (ImportError("failed to map segment from shared object"), "ImportError: failed to map segment"),
        (OSError("Could not find/load shared object file 'libllvmlite.so'"), "Could not find/load shared object"),
    ],
)
def test_what_does_not_fit_into_memory_is_one_line(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(kind: str) -> None:
        raise error

    monkeypatch.setattr(registry, "installed", failing)
    told = CliRunner().invoke(app, ["list"])
    assert told.exit_code == 1
    assert told.output.startswith(message)
    assert len(told.output.splitlines()) == 1

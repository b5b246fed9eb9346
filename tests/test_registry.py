"""A file in the right folder is all it takes to be found."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from occamrl import registry
from occamrl.checks import check_problem
from occamrl.errors import UnknownName
from occamrl.problems.classic import RiverSwim
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Learner, Problem


@pytest.mark.parametrize("name", registry.problems())
def test_every_problem_keeps_the_contract(name: str) -> None:
    kind = registry.problems()[name]
    assert isinstance(kind().mdp, FiniteMDP)  # every parameter has a default
    for problem in kind.examples():
        assert registry.satisfies(type(problem), Problem)
        check_problem(problem)
        assert problem.mdp is problem.mdp
        assert problem.mdp.optimal_value > 0.0
        assert problem.mdp.states <= 50
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(problem, *("mdp", None))
        assert dataclasses.replace(problem) == problem


PLUG_IN = """
from dataclasses import dataclass
from typing import Protocol
from occamrl.protocols import Problem
from occamrl.problems.classic import RiverSwim          # imported, not defined here

class Found:
    mdp = None
    @classmethod
    def examples(cls): return []

class Explicit(Problem):
    @property
    def mdp(self): return None
    @classmethod
    def examples(cls): return []

class _Private(Found): ...
class Incomplete:
    mdp = None
class Wanted(Protocol):
    mdp: None
    def examples(self): ...
"""


def test_discovery_takes_the_classes_of_a_folder_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plug_ins_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(PLUG_IN)
    (package / "_hidden.py").write_text("raise RuntimeError('not to be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert list(registry.discover("plug_ins_for_a_test", Problem)) == ["Explicit", "Found"]
        assert registry.discover("plug_ins_for_a_test", Learner) == {}
    finally:
        for name in [name for name in sys.modules if name.startswith("plug_ins_for_a_test")]:
            del sys.modules[name]


SUGGESTED: list[tuple[str, dict[str, Any], str | None]] = [
    ("river_swin", {}, "RiverSwim"),
    ("RiverSwim", {"state": 4}, "states"),
    ("zzz", {}, None),
]


@pytest.mark.parametrize(("name", "parameters", "near"), SUGGESTED)
def test_names_are_matched_generously_and_the_nearest_one_is_suggested(name: str, parameters: Any, near: Any) -> None:
    assert registry.make_problem("RIVER-swim", states=4) == RiverSwim(states=4)
    with pytest.raises(UnknownName) as caught:
        registry.make_problem(name, **parameters)
    assert caught.value.suggestion == near


def test_installed_packages_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def entry_points(group: str) -> list[Any]:
        calls.append(group)
        return []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    monkeypatch.syspath_prepend("elsewhere")  # other folders may hold other packages
    for _ in range(3):
        assert "UCB1" in registry.named("rules")
    assert calls == ["occamrl.rules"]

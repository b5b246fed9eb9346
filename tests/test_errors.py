"""The checks of single arguments: what passes, what is refused, and how errors travel; names that are looked up."""

from __future__ import annotations

import math
import pickle
import re
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl import errors, registry
from occamrl.errors import FamilyError, InvalidInput, ParameterError, ShapeError, UnknownName
from occamrl.problems.classic import RiverSwim
from occamrl.problems.mdp import as_mdp
from occamrl.protocols import Learner, Problem
from tests import cases

GOOD = [
    (errors.require_integer("n", np.int64(3), 3), 3),
    (errors.require_number("x", np.float32(0.5), 0.0, 1.0), 0.5),
    (errors.require_number("x", 1, 0.0, math.inf), 1.0),
    (errors.require_range("ends", [0, np.float64(2.0)]), (0.0, 2.0)),
    (errors.as_floats("x", [[True], [2]]).tolist(), [[1.0], [2.0]]),
    (errors.as_indices("x", (2, 0), 3).tolist(), [2, 0]),
    (errors.as_path("x", "here"), Path("here")),
]

BAD: list[tuple[Any, type[InvalidInput], str]] = [
    *[
        (
            lambda bad=bad: errors.require_integer("n", bad, 1, index=(2,)),
            ParameterError,
            r"n\[2\]: .* integer >= 1",
        )
        for bad in (0, 1.0, True, np.True_, None, "1", np.float64(1.0))
    ],
    (lambda: errors.require_integer("n", 0, 1, FamilyError), FamilyError, "n: got 0"),
    (lambda: errors.require_integer("n", 4, 1, maximum=3), ParameterError, r"in \[1, 3\]"),
    *[
        (
            lambda bad=bad: errors.require_number("x", bad, 0.0, 1.0),
            ParameterError,
            r"x: got .* a number in \[0, 1\]",
        )
        for bad in (-0.1, 1.1, math.nan, math.inf, True, "0.5", None)
    ],
    (
        lambda: errors.require_number("x", 0.0, 0.0, math.inf, open_low=True),
        ParameterError,
        r"\(0, inf\)",
    ),
    (
        lambda: errors.require_choice("x", "cofee", ("coffee", "tea")),
        UnknownName,
        r"did you mean 'coffee'\?$",
    ),
    (
        lambda: errors.require_choice("x", 7, ("coffee", "tea")),
        UnknownName,
        "one of 'coffee', 'tea'",
    ),
    (lambda: errors.require_kind("x", 3, Path), ParameterError, "x: got int 3"),
    (lambda: as_mdp(3), ParameterError, "mdp: got int"),
    *[
        (lambda bad=bad: errors.require_range("ends", bad), ParameterError, "ends: .*low < high")
        for bad in ((1.0, 1.0), (1.0, 0.0), (0.0, math.nan), (0.0, math.inf), (0.0,), "ab", None, 3)
    ],
    *[
        (
            lambda bad=bad: errors.as_floats("x", bad),
            ShapeError,
            "x: got .* an array of real numbers",
        )
        for bad in ([[1.0], [1.0, 2.0]], "text", [1j], [None], object())
    ],
    *[
        (lambda bad=bad: errors.as_indices("x", bad, 3), ShapeError, "x: ")
        for bad in ([], [0, 0], [3], [-1], [[0]])
    ],
    (lambda: errors.as_path("x", 3), ParameterError, "x: .* a path"),
]


@pytest.mark.parametrize(("found", "expected"), GOOD)
def test_what_passes_is_converted(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_is_refused_is_named(call: Any, error: type[InvalidInput], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "error",
    [
        ParameterError("n", got=0, expected="more", index=(2,)),
        UnknownName("x", got="cofee", known=["coffee"]),
        errors.EnvironmentFault("step", got="nothing", expected="something", index=(3, 4)),
        errors.SpecError(
            "spec.toml", [errors.Fault("agent", "none", "one"), errors.Fault("seeds", "-1", "0")]
        ),
        errors.RecordError("manifest.json", got="none", expected="one"),
        errors.StorageError("file", OSError(28, "no space")),
        errors.ContractError("broken"),
    ],
)
def test_errors_pass_between_processes_as_they_are(error: errors.OccamRLError) -> None:
    passed = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert (type(passed), str(passed), vars(passed)) == (type(error), str(error), vars(error))


def test_a_negative_probability_is_not_divided_by_a_sum() -> None:
    kernel = np.full((2, 1, 2), 0.5)
    for row, advice in (([-0.5, 1.5], False), ([-0.5, 1.0], False), ([0.5, 1.0], True)):
        kernel[0, 0] = row
        with pytest.raises(InvalidInput) as caught:
            orl.FiniteFamily(kernel[None])
        assert ("divide each row" in str(caught.value)) is advice
        with pytest.raises(InvalidInput) as caught:
            orl.FiniteMDP(transition=kernel, reward=np.zeros((2, 1)), horizon=2)
        assert ("divide each row" in str(caught.value)) is advice


def test_the_smallest_delta_is_the_same_everywhere() -> None:
    case = cases.CASES["stationary"]
    levels = {name: make(case) for name, make in (cases.LEARNERS | cases.PAPER).items()}
    levels |= cases.RULES
    found = {name: each for name, each in levels.items() if hasattr(each, "delta")}
    assert len(found) > 15
    for name, each in found.items():
        assert replace(each, delta=1e-300).delta == 1e-300, name
        for wrong in (0.0, 1e-301, 1.1):
            with pytest.raises(ParameterError, match=r"delta.*1e-300"):
                replace(each, delta=wrong)


# -------------------------------------------------------------------------------------- the package


def test_nothing_private_is_offered() -> None:
    for module in (orl, orl.checks, orl.errors, orl.paper):
        names = [name for name in dir(module) if name != "__version__"]
        assert names
        assert not [
            name
            for name in names
            if name.startswith("_") or name in ("Any", "np", "annotations", "math")
        ]
        assert all(hasattr(module, name) for name in names)
    for kind in registry.KINDS:
        assert not [name for name in registry.named(kind) if name.startswith("_")]


def test_the_names_that_help_begins_with_exist() -> None:
    names = re.findall(r"^    (\w+)  ", str(orl.__doc__), re.M)
    assert 8 <= len(names) <= 12
    assert all(hasattr(orl, name) for name in names)


@pytest.mark.parametrize(
    ("wrong", "near"), [("ArlGen", "ARLGen"), ("occam", "Occam"), ("arl_lin_dim", "ARLLinDim")]
)
def test_the_nearest_public_name_is_suggested(wrong: str, near: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{near}'"):
        getattr(orl, wrong)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("n_jobs", "workers"), ("processes", "workers"), ("out", "folder"), ("sedes", "seeds")],
)
def test_options_of_other_packages_are_answered_with_ours(wrong: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"{wrong}.*'{meant}'"):
        orl.compare({"a": orl.PSRL()}, RiverSwim(), episodes=5, **{wrong: 2})  # type: ignore[arg-type]  # wrong on purpose


# ----------------------------------------------------------------------------------------- registry
PLUG_IN = """
from occamrl.problems.classic import RiverSwim          # imported, not defined here

class Found:
    mdp = None

class _Private(Found): ...
class Incomplete:
    states = 3
"""


def test_classes_of_other_people_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plug_ins_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(PLUG_IN)
    (package / "_hidden.py").write_text("raise RuntimeError('not to be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_imported", set())
    try:
        assert list(registry.discover("plug_ins_for_a_test", Problem)) == ["Found"]
        assert registry.discover("plug_ins_for_a_test", Learner) == {}

        name = "plug_ins_for_a_test.one:Found"
        with pytest.raises(ParameterError, match="--import"):  # text alone imports nothing
            registry.find("problem", name, "problems")
        registry.import_modules(["plug_ins_for_a_test.one"])
        assert registry.find("problem", name, "problems").__name__ == "Found"
        with pytest.raises(ParameterError, match="begin, learn, plan"):
            registry.find("agent", name, "learners")
        with pytest.raises(UnknownName):  # RiverSwim is not the module's own
            registry.find("problem", "plug_ins_for_a_test.one:RiverSwim", "problems")
        with pytest.raises(ParameterError, match="RuntimeError"):
            registry.import_modules(["plug_ins_for_a_test._hidden"])
    finally:
        for name in [name for name in sys.modules if name.startswith("plug_ins_for_a_test")]:
            del sys.modules[name]


def entry_point(name: str, value: str) -> EntryPoint:
    """Return an entry point of an installed package."""
    point = EntryPoint(name, value, "occamrl.problems")
    vars(point)["dist"] = SimpleNamespace(name="somebody's", version="1.0")
    return point


def test_installed_packages_bring_classes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        entry_point("Theirs", "occamrl.problems.classic:RiverSwim"),
        entry_point("Broken", "no_such_package:Gone"),
        entry_point("Wrong", "builtins:int"),
        entry_point("RiverSwim", "builtins:int"),
    ]
    installed = {"occamrl.problems": points}
    monkeypatch.setattr(registry, "entry_points", lambda group: installed.get(group, []))
    assert orl.make_problem("theirs", states=3) == RiverSwim(states=3)
    # a class of this package keeps its name
    assert registry.find("problem", "river-swim", "problems") is RiverSwim
    for name in ("Broken", "Wrong"):
        with pytest.raises(ParameterError, match=r"somebody's 1\.0"):
            orl.make_problem(name)


@pytest.mark.parametrize(
    ("name", "parameters", "near"),
    [("river_swin", {}, "RiverSwim"), ("RiverSwim", {"state": 4}, "states"), ("zzz", {}, None)],
)
def test_names_are_matched_generously_and_the_nearest_one_is_suggested(
    name: str, parameters: Any, near: Any
) -> None:
    assert orl.make_problem("RIVER-swim", states=4) == RiverSwim(states=4)
    with pytest.raises(UnknownName) as caught:
        orl.make_problem(name, **parameters)
    assert caught.value.suggestion == near

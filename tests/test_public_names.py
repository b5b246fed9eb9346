"""The public face of the package: names resolve, and importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import occamrl


def test_every_public_name_resolves_and_lives_in_the_package() -> None:
    for name in occamrl.__all__:
        found = getattr(occamrl, name)
        assert found.__module__.startswith("occamrl."), name
        assert name in dir(occamrl)
    assert len(occamrl.__all__) > 30
    for name in ("problems", "paper", "errors", "registry"):
        assert isinstance(getattr(occamrl, name), ModuleType)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'UCRL'; did you mean 'UCRLVTR'"):
        occamrl.UCRL  # noqa: B018  # reading the name is the test
    assert not hasattr(occamrl, "numpy")


TABLES = {"matplotlib", "pyarrow", "pydantic", "rich"}
PLAYED = """import occamrl as orl
mdp = orl.make_problem('river-swim', states=3).mdp
orl.run(orl.Optimal(mdp=mdp), mdp, episodes=2)"""


@pytest.mark.parametrize(
    ("code", "needed", "absent"),
    [
        ("import occamrl", "occamrl", {"numba", "numpy", "scipy", "gymnasium", *TABLES}),
        (PLAYED, "numba", TABLES),
        ("from occamrl.experiments import display, records", "occamrl", {"numba", "pyarrow"}),
        ("import occamrl.report.page", "pyarrow", {"numba", "gymnasium", "matplotlib", "rich"}),
    ],
)
def test_imports_are_no_heavier_than_what_is_done(code: str, needed: str, absent: set[str]) -> None:
    code += "\nimport sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert needed in loaded
    assert not loaded & absent


def test_the_command_hears_ctrl_c_before_it_imports_much() -> None:
    """What Python itself has not loaded by then is loaded later, so that Ctrl-C is one line."""
    code = "import gc, signal, sys; there = set(sys.modules); import occamrl, occamrl.__main__"
    code += "\nprint(*sorted(set(sys.modules) - there))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"ast", "difflib", "pathlib", "typing"} & set(loaded)
    assert len(loaded) <= 3  # occamrl, occamrl.__main__ and __future__

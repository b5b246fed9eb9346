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


@pytest.mark.parametrize("name", ["problems", "paper", "errors", "registry"])
def test_modules_can_be_reached_by_attribute(name: str) -> None:
    assert isinstance(getattr(occamrl, name), ModuleType)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'UCRL'; did you mean 'UCRLVTR'"):
        occamrl.UCRL  # noqa: B018  # reading the name is the test
    assert not hasattr(occamrl, "numpy")


def loaded_after(code: str) -> set[str]:
    """Return the packages that a new process has imported after ``code``."""
    code += "\nimport sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_imports_are_no_heavier_than_what_is_done() -> None:
    tables = {"matplotlib", "pyarrow", "plotly", "pydantic", "rich"}
    loaded = loaded_after("import occamrl")
    assert "occamrl" in loaded
    assert not loaded & {"numba", "numpy", "scipy", "gymnasium", *tables}
    played = loaded_after(
        "import occamrl as orl\n"
        "mdp = orl.make_problem('river-swim', states=3).mdp\n"
        "orl.run(orl.Optimal(mdp=mdp), mdp, episodes=2)"
    )
    assert "numba" in played
    assert not played & tables


def test_folders_are_read_without_the_compiler() -> None:
    loaded = loaded_after("from occamrl.experiments import display, records\nimport occamrl.report.page")
    assert "pyarrow" in loaded
    assert not loaded & {"numba", "gymnasium", "matplotlib", "rich"}
    assert "pyarrow" not in loaded_after("from occamrl.experiments import display, records")

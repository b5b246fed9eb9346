"""The public face of the package: names resolve, and importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import occamrl


@pytest.mark.parametrize("name", occamrl.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(occamrl, name) is not None
    assert name in dir(occamrl)


def test_the_list_of_names_is_the_table_of_homes() -> None:
    homes: dict[str, str] = occamrl._HOMES
    assert set(occamrl.__all__) == {*homes, "__version__"}
    for name, home in homes.items():
        found: Any = getattr(occamrl, name)
        assert found.__module__ == home, f"{name} lives in {found.__module__}"


@pytest.mark.parametrize("name", ["problems", "families", "learners", "selectors", "errors", "registry"])
def test_modules_can_be_reached_by_attribute(name: str) -> None:
    assert isinstance(getattr(occamrl, name), ModuleType)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'UCRL'"):
        occamrl.UCRL  # noqa: B018  # reading the name is the test
    assert not hasattr(occamrl, "numpy")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, occamrl; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.split())
    assert "occamrl" in loaded
    assert not loaded & {"numba", "numpy", "scipy", "matplotlib", "pyarrow", "plotly", "pydantic", "rich", "gymnasium"}


def test_stating_a_problem_imports_no_figure_or_table() -> None:
    code = (
        "import sys, occamrl as orl\n"
        "mdp = orl.make_problem('river-swim', states=3).mdp\n"
        "orl.run(orl.Optimal(mdp=mdp), mdp, episodes=2)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(answer.stdout.split()) & {"matplotlib", "pyarrow", "plotly", "pydantic", "rich"}

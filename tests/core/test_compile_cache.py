"""Machine code on disk is never stale: its folder changes with every source that reaches it, and a learner's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import occamrl
from occamrl._core import compile as compiling

PACKAGE = Path(occamrl.__file__).parent


def python(code: str, **environment: str) -> str:
    """Run code in a new process and return what it prints."""
    answer = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    copy = tmp_path / "sources" / "occamrl"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_any_change_of_a_source_that_compiled_code_can_reach_changes_the_hash(package: Path) -> None:
    assert compiling.sources_hash(package) == compiling.sources_hash(PACKAGE) == compiling.sources_hash()
    seen = {compiling.sources_hash(package)}
    # compiles; compiles; imported by one that compiles; imported by that
    for path in ("_core/regression.py", "learners/ucrl_vtr_lin.py", "models/features.py", "errors.py"):
        append(package / path, "# a comment\n")
        seen.add(compiling.sources_hash(package))
    new = package / "_core" / "new.py"
    new.write_text("from occamrl._core.compile import hot\n")
    seen.add(compiling.sources_hash(package))
    new.rename(package / "_core" / "renamed.py")
    seen.add(compiling.sources_hash(package))
    assert len(seen) == 7
    (package / "_core" / "renamed.py").unlink()
    assert compiling.sources_hash(package) in seen  # back to what it was


@pytest.mark.parametrize(
    "line",
    [
        "from occamrl.constants import LARGE",
        "from occamrl import (\n    constants,\n)",
        "import occamrl.constants as c",
        "def late():\n    from occamrl.constants import LARGE",
    ],
)
def test_however_a_source_is_imported_its_change_is_seen(package: Path, line: str) -> None:
    (package / "constants.py").write_text("LARGE = 1.0\n")
    before = compiling.sources_hash(package)
    append(package / "_core" / "regression.py", line + "\n")
    imported = compiling.sources_hash(package)
    append(package / "constants.py", "LARGE = 2.0\n")
    assert len({before, imported, compiling.sources_hash(package)}) == 3


def test_a_source_that_no_compiled_code_can_reach_leaves_it_as_it_is(package: Path) -> None:
    before = compiling.sources_hash(package)
    for path in ("cli.py", "report/page.py", "selectors/arl_lin.py", "__init__.py"):
        append(package / path, "# a comment\n")
    (package / "notes.txt").write_text("no source")
    assert compiling.sources_hash(package) == before


def test_a_changed_copy_of_the_package_compiles_into_another_folder(package: Path, tmp_path: Path) -> None:
    code = "from occamrl._core.compile import cache_folder; print(cache_folder())"
    environment = {"PYTHONPATH": str(package.parent), "OCCAMRL_CACHE_DIR": str(tmp_path / "cache")}
    before = python(code, **environment)
    assert python(code, **environment) == before
    with (package / "_core" / "rng.py").open("a") as file:
        file.write("\n")
    after = python(code, **environment)
    assert after != before
    assert Path(after).parent == Path(before).parent == tmp_path / "cache"


def test_code_is_kept_there_and_numbas_own_setting_stays_as_it_was(tmp_path: Path) -> None:
    code = (
        "import numba; before = numba.config.CACHE_DIR\n"
        "import numpy as np; from occamrl._core.loop import draw_first_state\n"
        "draw_first_state(np.ones((1, 1)), np.uint64(0), 0, np.zeros(2))\n"
        "assert numba.config.CACHE_DIR == before; print(before)"
    )
    own = str(tmp_path / "own")
    assert python(code, OCCAMRL_CACHE_DIR=str(tmp_path / "cache"), NUMBA_CACHE_DIR=own) == own
    assert not (tmp_path / "own").exists()
    (folder,) = (tmp_path / "cache").iterdir()
    assert folder.name == f"numba-{numba.__version__}-{compiling.sources_hash()}"
    assert list(folder.rglob("loop.draw_first_state-*.nbc"))


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be: nobody, root included, can make one below it")
    code = (
        "import numpy as np, occamrl._core.compile as c; from occamrl._core.loop import draw_first_state\n"
        "out = np.zeros(2); draw_first_state(np.ones((1, 1)), np.uint64(0), 0, out); assert out.any(); print(c._CACHE)"
    )
    used = Path(python(code, OCCAMRL_CACHE_DIR=str(blocked / "below"), TMPDIR=str(tmp_path)))
    assert tmp_path in used.parents
    assert list(used.rglob("*.nbc"))
    assert blocked.is_file()


LEARNER = '''
from typing import Any, NamedTuple
import numpy as np
from occamrl._core.compile import implements
from occamrl._core.loop import CHANGED, PLANNED, follows_policy, learn, plan, planned_value
from occamrl.protocols import Field

class Model(NamedTuple):
    number: int

class State(NamedTuple):
    policy: Any

follows_policy(State)

class Constant:
    """Always the same action."""
    def model(self, known): return Model(0)
    def fields(self, known, state=None): return [Field("policy", (known.horizon, known.states), 0, known.actions - 1)]
    def begin(self, known): return State(*(each.make() for each in self.fields(known)))
    def reserve(self, state, episodes): return state

@implements(plan, State, argument=1)
def plan_constant(model, state, start, key, episode):
    state.policy[:] = ACTION
    return PLANNED | CHANGED

@implements(learn, State, argument=1)
def learn_nothing(model, state, path, steps):
    pass

@implements(planned_value, State, argument=1)
def planned_value_constant(model, state, s):
    return np.nan
'''


def test_a_learner_from_elsewhere_runs_and_its_changes_are_seen(tmp_path: Path) -> None:
    """One file outside the package is enough. After an edit the old machine code must not run; nor must the compiled
    loop of everybody else depend on a file that only one process can import.
    """
    module = tmp_path / "modules" / "constant_learner.py"
    module.parent.mkdir()
    path = os.pathsep.join([str(module.parent), str(PACKAGE.parent)])
    environment = {"PYTHONPATH": path, "OCCAMRL_CACHE_DIR": str(tmp_path / "cache")}
    shutil.copytree(compiling._CACHE, tmp_path / "cache" / Path(compiling._CACHE).name)  # compiles less
    play = (
        "import occamrl as orl; from constant_learner import Constant\n"
        "mdp = orl.FiniteMDP(transition=[[[1.0], [1.0]]], reward=[[0.25, 1.0]], horizon=2)\n"
        "result = orl.run(Constant(), mdp, episodes=3); print(result.total_regret)"
    )
    module.write_text(LEARNER.replace("ACTION", "0"))
    assert float(python(play, **environment)) == 4.5
    assert float(python(play, **environment)) == 4.5
    module.write_text(LEARNER.replace("ACTION", "1"))
    assert float(python(play, **environment)) == 0.0
    without = (
        "import occamrl as orl\n"
        "mdp = orl.FiniteMDP(transition=[[[1.0], [1.0]]], reward=[[0.25, 1.0]], horizon=2)\n"
        "print(orl.run(orl.Optimal(mdp=mdp), mdp, episodes=3).total_regret)"
    )
    module.unlink()
    assert float(python(without, **environment)) == 0.0
    folders = sorted(folder.name for folder in (tmp_path / "cache").iterdir())
    assert len(folders) == 3  # the package's own, and one for each version of the learner
    assert all(name.startswith(folders[0]) for name in folders)

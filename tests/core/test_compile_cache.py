"""Machine code on disk is never stale, and what is wrong with the disk is never an error.

Its folder changes with every source that reaches it, and its name with a learner's own file. A damaged file is compiled
anew; a folder that others can write is not used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

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
    assert list(folder.glob("draw_first_state-*.code"))


def test_without_a_folder_code_is_compiled_for_the_process_alone_and_nothing_is_left_behind(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be: nobody, root included, can make one below it")
    code = (
        "import numpy as np, occamrl._core.compile as c; from occamrl._core.loop import draw_first_state\n"
        "out = np.zeros(2); draw_first_state(np.ones((1, 1)), np.uint64(0), 0, out); assert out.any(); print(c._CACHE)"
    )
    assert python(code, OCCAMRL_CACHE_DIR=str(blocked / "below"), TMPDIR=str(tmp_path)) == "None"
    assert list(tmp_path.iterdir()) == [blocked]


def add_one(x: float) -> float:
    return x + 1.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiling, "_CACHE", tmp_path)
    return tmp_path


def hits_of_a_new_process() -> int:
    """Call a function as if for the first time; return how often its code came from the disk."""
    function: Any = compiling.compiled(add_one)
    assert function(2.0) == 3.0
    return sum(function.stats.cache_hits.values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda content, seal: b"",  # a power cut
        lambda content, seal: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content, seal: content[:2000] + bytes([content[2000] ^ 4]) + content[2001:],  # inside the machine code
        lambda content, seal: seal(b"no pickle") + b"no pickle",
        lambda content, seal: seal(b"N.") + b"N.",  # None
        lambda content, seal: hashlib.sha256(content[32:]).digest() + content[32:],  # a digest without the name
    ],
)
def test_a_damaged_file_is_compiled_anew_and_replaced(folder: Path, damage: Any) -> None:
    assert (hits_of_a_new_process(), hits_of_a_new_process()) == (0, 1)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes(), partial(compiling._digest, path)))
    assert (hits_of_a_new_process(), hits_of_a_new_process()) == (0, 1)
    assert list(folder.iterdir()) == [path]


def test_the_code_of_another_function_is_none_of_this_one(folder: Path) -> None:
    def add_two(x: float) -> float:
        return x + 2.0

    assert hits_of_a_new_process() == 0
    (path,) = folder.iterdir()
    other: Any = compiling.compiled(add_two)
    assert other(2.0) == 4.0
    (theirs,) = set(folder.iterdir()) - {path}
    theirs.replace(path)  # whole, with a digest of its own
    assert (hits_of_a_new_process(), hits_of_a_new_process()) == (0, 1)


@pytest.mark.skipif(os.name != "posix", reason="a pipe of POSIX")
def test_a_pipe_in_place_of_a_file_is_a_miss(folder: Path) -> None:
    assert hits_of_a_new_process() == 0
    (path,) = folder.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert (hits_of_a_new_process(), hits_of_a_new_process()) == (0, 1)  # it is replaced


def test_a_full_disk_and_a_file_that_cannot_be_read_are_misses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert (hits_of_a_new_process(), hits_of_a_new_process()) == (0, 0)
    assert not list(folder.iterdir())
    assert hits_of_a_new_process() == 0
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    assert (hits_of_a_new_process(), hits_of_a_new_process()) == (0, 0)


def with_a_constant(x: float) -> bool:
    return x in (0.125, 8.5, 77.25)


def test_code_is_found_again_whatever_else_refers_to_its_constants(folder: Path) -> None:
    """As compiling does: their number of references was in the name of the file, which was then never found."""
    target = compiling.numba.core.registry.cpu_target.target_context.codegen()  # type: ignore[attr-defined]  # no types
    cache = compiling._Cache(with_a_constant, {})
    before = cache._path((), target)
    references = [*with_a_constant.__code__.co_consts]
    assert cache._path((), target) == before
    assert references


def test_two_classes_of_one_name_and_shape_have_code_of_their_own(folder: Path) -> None:
    def first(pair: Any) -> float:
        return float(pair[0])

    kinds: list[Any] = [namedtuple("Pair", "x y"), namedtuple("Pair", "x y")]
    for number, kind in enumerate(kinds):
        kind.__module__ = f"module_{number}"
        function: Any = compiling.compiled(first)
        assert function(kind(1.5, 2.5)) == 1.5
        assert not function.stats.cache_hits
    assert len(list(folder.iterdir())) == 2


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("which", ["folder", "parent", "grandparent", "owner"])
def test_a_folder_that_others_can_write_is_not_used(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pickle: whoever can write there could run code in this process."""
    monkeypatch.setenv("OCCAMRL_CACHE_DIR", str(tmp_path / "cache" / "below"))
    folder = compiling.cache_folder()
    assert folder is not None
    assert compiling.cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    folder.parent.chmod(0o1777)  # as /tmp: others can add to it, and not replace what is ours
    assert compiling.cache_folder() == folder
    folder.parent.chmod(0o755)
    if which == "owner":
        if os.geteuid() == 0:
            os.chown(folder, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        path, mode = {
            "folder": (folder, 0o770),
            "parent": (folder.parent, 0o775),
            "grandparent": (folder.parent.parent, 0o777),
        }[which]
        path.chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users can write to it"):
        assert compiling.cache_folder() is None


def test_folders_of_sources_long_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCCAMRL_CACHE_DIR", str(tmp_path))
    folder = compiling.cache_folder()
    assert folder is not None
    for age in range(12):
        old = tmp_path / f"numba-0.60.0-{age:016x}"
        old.mkdir()
        (old / "f.code").touch()
        os.utime(old, (1e9 - age, 1e9 - age))
    others = [tmp_path / name for name in ("numba-mine", "notes", "numba-0.60.0-0123.txt")]
    for other in others:
        other.mkdir()
    left, fresh = folder / "f.0.partial", folder / "g.1.partial"
    left.touch()
    fresh.touch()
    os.utime(left, (1e9, 1e9))
    assert compiling.cache_folder() == folder
    kept = [tmp_path / f"numba-0.60.0-{age:016x}" for age in range(8)]
    assert sorted(tmp_path.iterdir()) == sorted([folder, *kept, *others])
    assert list(folder.iterdir()) == [fresh]


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


UNTIL_A_MISS = """
import sys
from occamrl._core.compile import _Cache
load = _Cache.load_overload
def load_or_leave(cache, signature, context):
    found = load(cache, signature, context)
    if found is None:
        print("would compile", cache._function.__name__)
        sys.exit()
    return found
_Cache.load_overload = load_or_leave
"""


def test_a_learner_from_elsewhere_runs_and_its_changes_are_seen(tmp_path: Path) -> None:
    """One file outside the package is enough. After an edit the old machine code must not run; nor must the compiled
    loop of everybody else depend on a file that only one process can import.
    """
    module = tmp_path / "modules" / "constant_learner.py"
    module.parent.mkdir()
    path = os.pathsep.join([str(module.parent), str(PACKAGE.parent)])
    environment = {"PYTHONPATH": path, "OCCAMRL_CACHE_DIR": str(tmp_path / "cache")}
    assert compiling._CACHE is not None
    copy = tmp_path / "cache" / compiling._CACHE.name
    shutil.copytree(compiling._CACHE, copy)  # compiles less
    play = (
        "import occamrl as orl; from constant_learner import Constant\n"
        "mdp = orl.FiniteMDP(transition=[[[1.0], [1.0]]], reward=[[0.25, 1.0]], horizon=2)\n"
        "result = orl.run(Constant(), mdp, episodes=3); print(result.total_regret)"
    )
    module.write_text(LEARNER.replace("ACTION", "0"))
    assert float(python(play, **environment)) == 4.5
    assert float(python(UNTIL_A_MISS + play, **environment)) == 4.5
    module.write_text(LEARNER.replace("ACTION", "1"))
    assert python(UNTIL_A_MISS + play, **environment).startswith("would compile ")
    without = (
        "import occamrl as orl\n"
        "mdp = orl.FiniteMDP(transition=[[[1.0], [1.0]]], reward=[[0.25, 1.0]], horizon=2)\n"
        "print(orl.run(orl.Optimal(mdp=mdp), mdp, episodes=3).total_regret)"
    )
    module.unlink()
    assert float(python(without, **environment)) == 0.0
    assert list((tmp_path / "cache").iterdir()) == [copy]

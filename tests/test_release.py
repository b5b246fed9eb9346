"""The wheel and the source archive hold all that the package needs, and work without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import occamrl

ROOT = Path(__file__).parent.parent
WITHOUT = """
import sys
sys.path.insert(0, {place!r})
import occamrl as orl
assert orl.__file__.startswith({place!r}), orl.__file__
assert orl.read_ladder("frozen-lake-4x4").ladder.classes == 3
assert len(orl.Experiment.from_toml("demo").cells) > 0
assert orl.make_problem("reference-mixture").mdp.states == 12
from occamrl.report.page import policy
assert "script-src" in policy()
print(orl.__version__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(place), str(ROOT)], check=True, capture_output=True)
    return place


def test_the_wheel_works_without_the_repository(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    order = [sys.executable, "-P", "-c", WITHOUT.format(place=str(tmp_path / "site"))]
    assert subprocess.check_output(order, text=True, cwd=tmp_path, env=kept).strip() == occamrl.__version__


def test_the_archive_holds_the_sources_and_the_tests(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.split("/", 1)[1] for name in files.getnames() if "/" in name}
    expected = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests/test_release.py"}
    assert expected | {"docs/mathematics.md", "src/occamrl/py.typed"} <= names

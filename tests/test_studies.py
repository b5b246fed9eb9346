"""Every study runs at a tiny scale; the tests behind the certificates can fail."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from occamrl.errors import Stopped
from studies import bench, certificates, density, figures, robustness, scenarios
from studies.figures import DOCS, PAGES, Size, measure
from studies.transcript import normal

PARTS = (  # of every study one or two; `python -m studies.figures all --tiny` runs them all
    "answers:logs",
    "comparing:errors",
    "comparing:power",
    "control:baselines",
    "control:power",
    "control:real_log",
    "control:returns",
    "control:validity",
    "control:views",
    "defaults:lists",
    "dynamics:cost",
    "dynamics:network",
    "first_episodes:returns",
    "ladders:classes",
    "ladders:paper",
    "letter:coverage",
    "letter:epochs",
    "linear:changing",
    "linear:dimension",
    "linear:paper",
    "occam:coverage",
    "occam:mixtures",
    "rivals:ladder",
    "selection:evidence",
    "selection:linear",
    "rivals:linear_river_swim",
    "simulators:logs",
)


@pytest.mark.parametrize("part", PARTS)
def test_part_gives_a_table(part: str) -> None:
    lines = measure(part, tiny=True).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) >= 3
    assert rows[1].startswith("| ---")
    assert len({line.count(" | ") for line in rows[:1] + rows[2:]}) == 1


def test_every_part_has_a_place_in_its_page() -> None:
    for page, parts in PAGES.items():
        text = (DOCS / f"{page}.md").read_text()
        for part in parts:
            assert text.count(f"<!-- {part} -->\n") == 1, (page, part)


def test_tables_are_written_between_their_markers_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- a:b -->\nold\ntext\n<!-- end -->\nafter\n<!-- a:c -->\nother\n<!-- end -->\n"
    )
    figures.write(page, "a:b", "new")
    assert (
        page.read_text()
        == "before\n<!-- a:b -->\nnew\n<!-- end -->\nafter\n<!-- a:c -->\nother\n<!-- end -->\n"
    )
    with pytest.raises(SystemExit):
        figures.write(page, "a:d", "new")


def test_a_study_can_be_stopped() -> None:
    with pytest.raises(Stopped):
        figures.each(Size(stop=lambda: True), 3, lambda i: i, "runs")


@pytest.mark.parametrize(
    "name", ["coverage-finite-sharp", "coverage-likelihood", "optimism-ellipsoid-sharp"]
)
def test_certificates_hold(name: str) -> None:
    about = certificates.PROMISES[name]
    assert certificates.judged(about, certificates.measure(name, False, 3))[1]


@pytest.mark.parametrize("name", ["coverage-ellipsoid-sharp", "coverage-rewards-bernstein"])
def test_controls_are_refuted(name: str) -> None:
    about = certificates.PROMISES[name]
    assert not certificates.judged(about, certificates.measure(name, True, 12))[1]


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_kills_leave_no_trace(tmp_path: Path) -> None:
    assert robustness.kill(tmp_path, 2, episodes=100)["kills"] >= 2


def test_damage_is_noticed(tmp_path: Path) -> None:
    robustness.damage(tmp_path, 50)


def test_faults_of_the_disk_are_reported(tmp_path: Path) -> None:
    robustness.storage(tmp_path, 2)


def test_bench_measures() -> None:
    assert bench.growth("ARLLinDim", 100)["plans"] <= 100
    assert bench.sparse("", 50)["plan"] > 0.0
    assert bench.first_result("learn on FrozenLake", 10)["episodes"] == 10
    assert set(bench.every_episode("PSRL", 10)) == {"us", "plans"}


def test_a_scenario_that_is_played_again_differs_from_its_record_only_if_that_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for record in (tmp_path / "texts", tmp_path / "texts.json"):
        assert scenarios.main(["--write", str(record), "--only", "theorems"]) == 0
        assert scenarios.main(["--compare", str(record), "--only", "theorems"]) == 0
        changed = scenarios.read_record(record)
        changed["theorems"] = changed["theorems"].replace("total", "sum", 1)
        scenarios.write_record(record, changed)
        assert scenarios.main(["--compare", str(record), "--only", "theorems"]) == 1
    assert "1 scenarios, 0 equal, 1 differ: theorems" in capsys.readouterr().out


def test_a_record_has_neither_times_nor_paths_and_six_digits() -> None:
    text = "/x/y: 3.25 s, 0.123456789, -1e-17, 12 seeds, 2024-05-06, 0123456789abcdef"
    assert normal(text, "/x") == "FOLDER/y: TIME, 0.123457, 0, 12 seeds, DATE, DIGEST\n"


def test_what_makes_code_hard_to_read_is_counted() -> None:
    text = "def f(x):\n    # why\n    a, found = 1, 2 if x else 3\n    return getattr(x, 'a')\n"
    source = density.Source("f.py", text, ast.parse(text))
    counts = density.count([source])
    kinds = ("statements", "tuples", "conditional", "probes", "coy names", "comments", "Any")
    assert [counts[kind] for kind in kinds] == [3, 1, 1, 1, 1, 1, 0]
    assert density.longest_functions([source]) == ["2 f.py:1 f"]
    assert density.shared_names([source, source._replace(path="g.py")]) == ["f: f.py, g.py"]
    assert density.probes([source]) == ["f.py:4 return getattr(x, 'a')"]

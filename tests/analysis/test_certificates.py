"""``occamrl certify``: verdicts by hand, a few runs end to end, resuming, controls and bad input."""

from __future__ import annotations

import json
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from occamrl.analysis import certificates
from occamrl.analysis.certificates import CERTIFICATES, Claim, Runs, Samples, certify, mean, most, near, never, rate
from occamrl.cli import app
from occamrl.errors import OccamRLError, UnknownName
from occamrl.report.page import render_certificates
from occamrl.running.files import read_sealed, seal

SLICE = {"coverage-finite-sharp": 12, "no-separability": 3}  # and how often they are measured


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure with few runs."""
    for name, few in SLICE.items():
        monkeypatch.setitem(CERTIFICATES, name, CERTIFICATES[name]._replace(few=few))


@pytest.mark.parametrize(
    ("claim", "good", "bad"),
    [
        (rate, [(0.0, 0.05)] * 95 + [(1.0, 0.05)] * 5, [(0.0, 0.05)] * 80 + [(1.0, 0.05)] * 20),
        (never, [(0.0, 40.0)] * 3, [(0.0, 40.0), (1.0, 40.0)]),
        (most, [(1.0, 2.0), (2.0, 2.0)], [(1.0, 2.0), (2.1, 2.0)]),
        (mean, [(0.4, 0.5), (0.5, 0.5), (0.45, 0.5)], [(1.0, 0.5), (1.001, 0.5), (0.999, 0.5)]),
        (near, [(1.0, 1.3), (1.2, 1.3), (1.1, 1.3), (1.3, 1.3)], [(1.0, 9.0), (1.2, 9.0), (1.1, 9.0), (1.3, 9.0)]),
    ],
)
def test_claims_tell_good_from_bad(claim: Claim, good: Samples, bad: Samples) -> None:
    assert claim(good).holds
    assert not claim(bad).holds


def test_every_certificate_has_all_that_the_table_shows() -> None:
    assert len(CERTIFICATES) == 54
    for name, about in CERTIFICATES.items():
        assert name == about.name
        assert about.statement
        assert "{}" not in about.statement
        assert about.runs >= about.few >= 2


@pytest.mark.usefixtures("few")
def test_the_command_measures_resumes_and_writes(tmp_path: Path) -> None:
    out, table = tmp_path / "kept", tmp_path / "table.md"
    arguments = ["certify", *SLICE, "--quick", "--workers", "1", "--out", str(out), "--write", str(table)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "2 of 2 promises hold" in first.output
    kept = {name: (out / f"{name}.json").read_bytes() for name in SLICE}
    assert f"| {CERTIFICATES['coverage-finite-sharp'].statement} |" in table.read_text().replace("\\*", "*")
    assert "2 of 2 promises" in (out / "certificates.html").read_text()

    (out / "no-separability.json").unlink()  # as if it had been stopped here
    again = CliRunner().invoke(app, [*arguments, "--json"])
    assert "measured before" in again.output
    data = json.loads(next(line for line in again.output.splitlines() if line.startswith("{")))
    assert set(data) == set(SLICE)
    for name in SLICE:
        here = json.loads((out / f"{name}.json").read_text())
        before = json.loads(kept[name])
        assert {**here, "seconds": 0, "digest": 0} == {**before, "seconds": 0, "digest": 0}


@pytest.mark.usefixtures("few")
def test_other_runs_sources_or_damage_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def measured_before() -> bool:
        said.clear()
        certify(tmp_path, ["no-separability"], quick=True, workers=1, say=said.append)
        return "measured before" in said[0]

    assert not measured_before()
    assert measured_before()
    monkeypatch.setitem(CERTIFICATES, "no-separability", CERTIFICATES["no-separability"]._replace(few=4))
    assert not measured_before()
    monkeypatch.setattr("occamrl._core.compile.sources_hash", lambda **_: "others")
    assert not measured_before()
    path = tmp_path / "no-separability.json"
    path.write_bytes(path.read_bytes().replace(b"0.0", b"1.0", 1))
    assert not measured_before()
    changes: list[dict[str, Any]] = [{"claim": 3}, {"claim": []}, {"control": [[1.0]]}, {"seconds": None}]
    for change in (*changes, {"claim": [["a", 1.0]]}):
        path.write_bytes(seal({**read_sealed(path), **change}))  # with a valid digest
        assert not measured_before()


def test_a_process_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> Any:
        raise BrokenProcessPool

    monkeypatch.setattr("occamrl.analysis.certificates.as_completed", killed)
    with pytest.raises(OccamRLError, match="a process was killed"):
        certify(tmp_path, list(CERTIFICATES)[:2], quick=True, workers=2)


def test_refuted_promises_and_idle_controls_are_said_and_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = CERTIFICATES["no-separability"]._replace(few=3, measure=lambda broken, seeds: ((1.0, 1.0) for _ in seeds))
    idle = broken._replace(
        name="idle", statement="<b>idle</b>", measure=lambda broken, seeds: ((0.0, 1.0) for _ in seeds)
    )
    monkeypatch.setattr(certificates, "CERTIFICATES", {"no-separability": broken, "idle": idle})
    result = CliRunner().invoke(app, ["certify", "--quick", "--workers", "1", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "REFUTED" in result.output
    assert "NOT SHOWN" in result.output
    page = render_certificates(certify(tmp_path, quick=True))
    assert "<b>" not in page
    assert page.count('<td class="text warn">') == 2


def test_an_unknown_name_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'coverage-"):
        certify(tmp_path / "x", ["coverage"])
    assert CliRunner().invoke(app, ["certify", "coverage", "--out", str(tmp_path / "x")]).exit_code == 2
    assert not (tmp_path / "x").exists()


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(broken: bool, seeds: range) -> Runs:
        raise KeyboardInterrupt

    done = CERTIFICATES["no-separability"]._replace(few=3, measure=lambda broken, seeds: ((broken, 1.0) for _ in seeds))
    monkeypatch.setattr(
        certificates, "CERTIFICATES", {"no-separability": done, "b": done._replace(name="b", measure=stop)}
    )
    arguments = ["certify", "--quick", "--workers", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 130
    assert "run the same command again" in result.output
    monkeypatch.setitem(certificates.CERTIFICATES, "b", done._replace(name="b"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "no-separability: holds" in result.output
    assert "measured before" in result.output


@pytest.mark.usefixtures("few")
def test_processes_measure_the_same(tmp_path: Path) -> None:
    """Worker processes have the list of certificates as it is imported: the number of runs is passed on."""
    alone = certify(tmp_path / "a", list(SLICE), quick=True, workers=1)
    together = certify(tmp_path / "b", list(SLICE), quick=True, workers=2)
    assert [each.finding for each in alone] == [each.finding for each in together]

"""Kills, damage and storage that fails: the studies of benchmarks/study_robustness.py on a smaller scale."""

from __future__ import annotations

from pathlib import Path

from benchmarks import study_robustness as study


def test_killed_runs_end_in_the_same_bytes(tmp_path: Path) -> None:
    facts = study.kill_study(tmp_path, 4, episodes=40_000, seeds=1)
    assert facts["kills"] >= 4


def test_every_damaged_byte_is_noticed_by_the_name_of_its_file(tmp_path: Path) -> None:
    assert study.damage_study(tmp_path, 180)["noticed"] == 180


def test_storage_that_fails_is_reported_and_fixed(tmp_path: Path) -> None:
    assert study.storage_study(tmp_path, points=("write", "rename"))["cases"] == 36

"""Checkpoints: whole or not at all, for the right problem and agent, and nothing in them that could run."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamrl.errors import CheckpointError, ParameterError
from occamrl.learners.baselines import Optimal, UniformRandom
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.classic import RiverSwim
from occamrl.running.run import run
from occamrl.running.storage import load, put_together, save, take_apart
from tests.cases import bits

PROBLEM = RiverSwim(states=3)


def learner() -> UCRLVTRLin:
    return UCRLVTRLin(features=FeatureMap.tabular(states=3, actions=2), norm_bound=2.0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "run.npz"
    save(run(learner(), PROBLEM, episodes=30, seed=2, progress=False), path)
    return path


def test_it_is_arrays_and_json_and_no_pickle(checkpoint: Path) -> None:
    with zipfile.ZipFile(checkpoint) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
    with np.load(checkpoint, allow_pickle=False) as arrays:
        document = json.loads(arrays["document"].tobytes())
    loaded = load(checkpoint, learner(), PROBLEM)
    assert (document["seed"], loaded.seed, loaded.total_episodes, loaded.label) == (2, 2, 30, "UCRLVTRLin")
    assert [path.name for path in checkpoint.parent.iterdir()] == ["run.npz"]


def test_any_flipped_or_missing_byte_is_noticed(checkpoint: Path) -> None:
    content = checkpoint.read_bytes()
    for at in [*range(0, len(content), 301), *range(len(content) - 70, len(content))]:
        damaged = bytearray(content)
        damaged[at] ^= 0x01
        for content_now in (bytes(damaged), content[:at]):
            checkpoint.write_bytes(content_now)
            with pytest.raises(CheckpointError, match=r"run\.npz"):
                load(checkpoint, learner(), PROBLEM)


def test_it_belongs_to_one_problem_and_one_kind_of_agent(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="problem"):
        load(checkpoint, learner(), RiverSwim(states=3, variant="osband"))
    for other in (UniformRandom(), dataclasses.replace(learner(), delta=0.01)):
        with pytest.raises(CheckpointError, match="agent"):
            load(checkpoint, other, PROBLEM)
    with pytest.raises(CheckpointError, match="tag"):
        load(checkpoint, learner(), PROBLEM, tag="another experiment")
    with pytest.raises(FileNotFoundError):
        load(checkpoint.with_name("none.npz"), learner(), PROBLEM)
    with pytest.raises(ParameterError):
        load(checkpoint, learner(), 3)  # type: ignore[arg-type]  # wrong on purpose


def test_other_npz_files_are_no_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, x=np.zeros(3))
    with pytest.raises(CheckpointError, match="expected a whole checkpoint"):
        load(path, learner(), PROBLEM)


def test_a_write_that_fails_leaves_the_old_checkpoint(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checkpoint.read_bytes()
    result = run(Optimal(mdp=PROBLEM.mdp), PROBLEM, episodes=5, progress=False)

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        save(result, checkpoint)
    assert checkpoint.read_bytes() == before
    assert [path.name for path in checkpoint.parent.iterdir()] == ["run.npz"]


@pytest.mark.parametrize("thing", [object(), {1: 2}, {"set": {1}}, [complex(1)]])
def test_a_memory_that_is_no_plain_data_cannot_be_written(thing: Any) -> None:
    with pytest.raises(CheckpointError, match="memory"):
        take_apart({"thing": thing}, {})


def test_trees_come_back_as_they_were() -> None:
    state = learner().begin(PROBLEM.mdp.known)
    tree = {
        "state": state,
        "list": [1, 2.5, None, True, "text", (3, 4)],
        "numbers": [np.float64(0.1), np.int64(7), np.zeros((0, 3))],
        "extremes": [float("inf"), -0.0, 10**30],
    }
    arrays: dict[str, Any] = {}
    skeleton = json.loads(json.dumps(take_apart(tree, arrays)))
    back = put_together(skeleton, arrays)
    assert type(back["state"]) is type(state)
    assert bits(back["state"]) == bits(state)
    assert back["list"] == tree["list"]
    assert back["extremes"] == tree["extremes"]
    assert [type(part) for part in back["numbers"]] == [np.float64, np.int64, np.ndarray]


@pytest.mark.parametrize(
    "skeleton", [{"named": "os:system", "parts": []}, {"named": "shelve:Shelf", "parts": []}, {"other": 1}, 3]
)
def test_a_tree_can_name_nothing_but_states(skeleton: Any) -> None:
    with pytest.raises(CheckpointError):
        put_together(skeleton, {})

"""Agents on a box in files: what is resumed is what was not interrupted, and no other file changes an agent."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamrl.errors import CheckpointError
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.learners.uniform_random import UniformRandom
from occamrl.problems.river_swim import RiverSwim
from occamrl.runs.anchored import Anchored
from occamrl.runs.checkpoint import read_document, save_checkpoint, write_document
from occamrl.runs.loop import run
from occamrl.runs.trees import put_together, take_apart
from occamrl.selectors.arl_lin import ARLLin
from occamrl.selectors.arl_lin_dim import ARLLinDim
from occamrl.selectors.arl_lin_norm import ARLLinNorm
from tests.continuous.circle import TURNS, advance, driven, episode, grid, learner, sampled, start
from tests.continuous.test_anchored_selection import ladder
from tests.states import bits

AGENTS: dict[str, Any] = {
    "base": UCRLVTRLin,
    "dim": ARLLinDim,
    "dim, fresh": partial(ARLLinDim, data="fresh"),
    "norm": partial(ARLLinNorm, initial_episodes=4),
    "both": ARLLin,
    "ladder": partial(ladder, sizes=(1, 3)),
}


def make(name: str = "dim", **changes: Any) -> Anchored:
    return learner([sampled(turn, 20) for turn in TURNS], agent=AGENTS[name], actions=[1.0, -1.0], **changes)


def everything(agent: Anchored) -> Any:
    where = agent.position()
    arrays = [where.pop(name).tobytes() for name in ("state", "returns")]
    return bits(agent.walk.state), repr(agent.walk.rows), arrays, where


@pytest.mark.parametrize("name", AGENTS)
def test_a_resumed_agent_is_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    first, path = make(name), tmp_path / "agent.npz"
    rng = np.random.default_rng(1)
    for _ in range(12):
        episode(first, rng)
    state = start(first, rng)
    state = advance(first, state, rng)
    first.save(path)  # in the middle of an episode
    second, again = make(name), np.random.default_rng()
    second.load(path)
    again.bit_generator.state = rng.bit_generator.state
    assert everything(second) == everything(first)
    for agent, draw in ((first, rng), (second, again)):
        after = state
        for _ in range(2):
            after = advance(agent, after, draw)
        for _ in range(12):
            episode(agent, draw)
    assert everything(second) == everything(first)
    assert second.phases.equals(first.phases)
    assert [each.name for each in tmp_path.iterdir()] == ["agent.npz"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    agent, rng = make(), np.random.default_rng(0)
    for _ in range(9):
        episode(agent, rng)
    agent.save(tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


def refused(agent: Anchored, path: Path, told: str = "") -> None:
    before = everything(agent)
    with pytest.raises(CheckpointError, match=rf"agent\.npz.*{told}"):
        agent.load(path)
    assert everything(agent) == before


def test_damage_is_named_and_changes_nothing(saved: Path) -> None:
    agent, rng = make(), np.random.default_rng(5)
    episode(agent, rng)
    content = saved.read_bytes()
    for share in (0.0, 0.5, 0.99):
        saved.write_bytes(content[: int(share * len(content))])
        refused(agent, saved)
    for at in range(0, len(content), 997):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        saved.write_bytes(bytes(damaged))
        refused(agent, saved)
    with pytest.raises(FileNotFoundError):
        agent.load(saved.with_name("none.npz"))
    episode(agent, rng)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "seed"),
        ({"delta": 0.1}, "agent"),
        ({"name": "norm"}, "agent"),
        ({"horizon": 4}, "known"),
        ({"reward": lambda s, a: 0.5 + 0.0 * s[:, 0]}, "known"),
        ({"models": [sampled(turn + 0.1, 20) for turn in TURNS]}, "agent"),
        ({"models": [sampled(turn, 30) for turn in TURNS]}, "agent"),
        ({"episodes": 7}, "integrals"),
        ({"grid": grid(9)}, "agent"),
        ({"actions": [1.0, -1.0001]}, "agent"),
    ],
)
def test_a_file_of_another_agent_is_refused(saved: Path, changes: dict[str, Any], told: str) -> None:
    name = changes.pop("name", "dim")
    options: dict[str, Any] = {"models": [sampled(turn, 20) for turn in TURNS], "actions": [1.0, -1.0], **changes}
    refused(learner(agent=AGENTS[name], **options), saved, told)


def test_a_file_of_another_kind_is_refused(saved: Path) -> None:
    save_checkpoint(run(UniformRandom(), RiverSwim(states=3), episodes=3, progress=False), saved)
    refused(make(), saved, "another kind")


def rewrite(saved: Path, part: str, field: str, value: Any) -> None:
    """Put another value into a file, with a digest to match."""
    document, arrays = read_document(saved)
    tree = put_together(document["tree"], arrays)
    tree[part][field] = value
    kept: Any = {}
    document["tree"] = take_apart(tree, kept)
    write_document(saved, document, kept)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", 3),
        ("step", -1),
        ("episode", "x"),
        ("plans", 1.5),
        ("state", np.zeros((2, 1))),
        ("state", np.array([[math.nan]])),
        ("state", np.array([["here"]])),
        ("returned", "much"),
        ("returns", np.zeros(2)),
    ],
)
def test_a_document_that_was_rewritten_is_refused(saved: Path, field: str, value: Any) -> None:
    rewrite(saved, "episode", field, value)
    refused(make(), saved)


@pytest.mark.parametrize(("field", "value"), [("played", 99), ("played", -1), ("played", "x"), ("plans", 1.5)])
def test_counts_that_were_rewritten_are_refused(saved: Path, field: str, value: Any) -> None:
    rewrite(saved, "walk", field, value)
    refused(make(), saved, field)


def test_a_state_of_other_sizes_is_refused(saved: Path) -> None:
    document, arrays = read_document(saved)
    for name in arrays:
        if arrays[name].shape == (3, 3):
            arrays[name] = np.zeros((4, 4))
    write_document(saved, document, arrays)
    refused(make(), saved)


def test_a_write_that_fails_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        make().save(saved)
    assert saved.read_bytes() == before


def test_rules_resume_as_well(tmp_path: Path) -> None:
    agent = learner([driven(turn, 5) for turn in TURNS], error=0.1)
    episode(agent, np.random.default_rng(0))
    agent.save(tmp_path / "a.npz")
    other = learner([driven(turn, 5) for turn in TURNS], error=0.1)
    other.load(tmp_path / "a.npz")
    assert everything(other) == everything(agent)

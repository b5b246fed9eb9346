"""Saved agents: any algorithm of the package, no pickle, damage found by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.checks import extensions
from occamrl.errors import CheckpointError
from occamrl.models.linear import AggregationFamily
from occamrl.protocols import Agent
from occamrl.registry import learners, selectors
from occamrl.running.files import read_document, write_document
from occamrl.running.storage import fingerprint, put_together, take_apart
from tests.environments.misbehaving import CASE, MDP, Plant, learner


def every_algorithm() -> list[Agent]:
    found = [each for kind in (*learners().values(), *selectors().values()) for each in kind.examples(MDP)]
    linear = orl.FeatureMap(np.moveaxis(CASE.kernels, 0, -1))
    rungs = [
        orl.LinearFamily(features=linear, norm_bound=1.0, basis=np.random.default_rng(0).random((5, r))) for r in (5,)
    ]
    sparse = orl.FeatureMap.of_simulators([MDP])
    family = orl.FiniteFamily(parameters=[[1.0]], features=sparse)
    portable = [each for each in found if not isinstance(each, orl.Optimal)]  # which is told the problem itself
    portable += [other for each in portable for other in extensions(each)]
    psi = orl.RewardsLinear(features=np.ones((4, 2, 1)), norm_bound=1.0, per_step=True)
    portable.append(orl.UCRLVTRLin(features=linear, norm_bound=1.0, rewards=psi, kernel="per_step"))
    return [*portable, orl.ARLGen(ladder=orl.Ladder(rungs)), orl.UCRLVTR(family=family), *aggregating()]


def aggregating() -> list[Agent]:
    """A finite class below an aggregation below the table, and a learner on the features of an aggregation."""
    s, a = MDP.states, MDP.actions
    whole = AggregationFamily(partition=np.arange(s) // 2, actions=a)
    alike = [np.broadcast_to(row, (s, a, s)) for row in np.random.default_rng(0).dirichlet(np.ones(s), size=2)]
    ladder = orl.Ladder([orl.FiniteFamily(alike), whole, AggregationFamily.tabular(states=s, actions=a)])
    return [orl.ARLGen(ladder=ladder), orl.UCRLVTRLin(features=whole.features, norm_bound=whole.norm_bound)]


@pytest.mark.parametrize("algorithm", every_algorithm(), ids=lambda algorithm: type(algorithm).__name__)
def test_every_algorithm_can_be_written_and_is_read_as_it_was(algorithm: Agent) -> None:
    arrays: dict[str, Any] = {}
    tree = json.loads(json.dumps(take_apart(algorithm, arrays)))
    assert fingerprint(put_together(tree, arrays)) == fingerprint(algorithm)


def test_a_file_tells_whether_rewards_were_known() -> None:
    for known in (MDP.known, MDP.known.without_rewards):
        arrays: dict[str, Any] = {}
        tree = take_apart(known, arrays)
        assert put_together(tree, arrays).rewards_known is known.rewards_known
        tree = take_apart(known, arrays)
        tree["fields"]["rewards_known"] = {"value": 1}
        with pytest.raises(orl.InvalidInput, match="rewards_known: got 1"):
            put_together(tree, arrays)
    assert fingerprint(MDP.known) != fingerprint(MDP.known.without_rewards)


def test_an_algorithm_that_no_file_can_hold_has_to_be_given_again(tmp_path: Path) -> None:
    told = orl.Optimal(mdp=MDP)
    orl.Agent(told, Plant(), known=MDP.known).learn(3).save(tmp_path / "a.npz")
    with pytest.raises(CheckpointError, match="the same algorithm, given to load"):
        orl.Agent.load(tmp_path / "a.npz")
    with pytest.raises(CheckpointError, match="agent"):
        orl.Agent.load(tmp_path / "a.npz", algorithm=learner())
    loaded = orl.Agent.load(tmp_path / "a.npz", algorithm=told)
    assert loaded.result is not None
    assert loaded.result.total_episodes == 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "agent.npz"
    orl.Agent(learner(), Plant(), known=MDP.known).learn(3).save(path)
    return path.read_bytes()


def forged(change: Callable[[dict[str, Any], dict[str, Any]], Any], saved: bytes, path: Path) -> None:
    """Write a file whose digest is right and whose content is not."""
    path.write_bytes(saved)
    document, arrays = read_document(path)
    change(document, arrays)
    write_document(path, document, arrays)


FORGERIES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "another format": lambda document, _: document.update(format=1),
    "a function instead of a class": lambda document, _: document["algorithm"].update(object="os:system"),
    "a class that is no agent": lambda document, _: document["algorithm"].update(object="fractions:Fraction"),
    "a module not imported": lambda document, _: document["algorithm"].update(object="antigravity:X"),
    "counts that are no numbers": lambda document, _: document["tree"]["dict"]["walk"]["dict"].update(
        played={"value": "x"}
    ),
    "sizes of another problem": lambda document, _: document["known"]["fields"].update(states={"value": 9}),
    "another horizon": lambda document, _: document["known"]["fields"].update(horizon={"value": 7}),
    "nonsense spaces": lambda document, _: document["environment"].update(
        observation={"kind": "range", "size": -1, "start": 0}
    ),
    "next states beyond the last": lambda _, arrays: [
        array.__iadd__(1000) for array in arrays.values() if array.dtype == np.int64 and array.size > 10
    ],
    "regret that may be exact": lambda document, _: document["environment"].update(exact="perhaps"),
    "no seed": lambda document, _: document.pop("seed"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused_by_name(name: str, saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "forged.npz"
    forged(FORGERIES[name], saved, path)
    with pytest.raises(CheckpointError, match=r"forged\.npz"):
        orl.Agent.load(path)


def test_an_agent_without_environment_says_so(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    path.write_bytes(saved)
    agent = orl.Agent.load(path)
    assert agent.predict(0)[0] in (0, 1)  # predicting needs none
    with pytest.raises(orl.OccamRLError, match="no environment"):
        agent.learn(1)
    agent.set_env(Plant())
    agent.learn(1)
    with pytest.raises(orl.OccamRLError, match="nothing learned"):
        orl.Agent(learner()).predict(0)

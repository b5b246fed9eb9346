"""Whatever an environment does: a typed error, nothing false learned, what was learned saved, and the run can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import (
    EnvironmentFailure,
    EnvironmentFault,
    EnvironmentReward,
    EpisodeCutShort,
    SeedIgnored,
    SpaceError,
)
from tests.environments.misbehaving import MDP, Plant, learner
from tests.environments.test_learning import bits

FAULTS: list[tuple[str, type[EnvironmentFault], str]] = [
    ("nan", EnvironmentReward, r"reward\[3, 1\]: got nan, expected a number in \[0, 1\]"),
    ("range", EnvironmentReward, r"got 1\.5, expected a number in \[0, 1\]"),
    ("other", EnvironmentReward, "the known reward of"),
    ("text", EnvironmentFailure, "could not convert string"),
    ("observation", SpaceError, r"observation\[3, 1\]: got 4, expected an integer in 0 \.\.\. 3"),
    ("kind", SpaceError, r"got 0\.5, expected an integer"),
    ("exception", EnvironmentFailure, "the pump is stuck"),
    ("shape", EnvironmentFailure, "unpack"),
    ("truncation", EpisodeCutShort, "truncated after 2 steps"),
]


@pytest.mark.parametrize(("fault", "kind", "message"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_a_fault_in_the_middle_of_an_episode(
    fault: str, kind: type[EnvironmentFault], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "saved.npz"
    options: dict[str, Any] = {"known": MDP.known, "replay": False}
    with pytest.raises(kind, match=message) as caught:
        orl.learn(learner(), Plant(fault), episodes=9, checkpoint=path, **options)
    assert caught.value.index == (3, 1)
    result = caught.value.result
    seen = 2 if fault == "truncation" else 1  # a truncated step was a step; the others' second step is not to be had
    assert result.total_episodes == 4
    assert result.cut_short == (4,)
    assert result.steps == 3 * MDP.horizon + seen
    # What was learned is what a plant without fault would have taught in these steps, and no more.
    before = orl.learn(learner(), Plant(), episodes=3, **options)
    rows = [int(np.sum(each.state.table_visits) + np.sum(each.state.visits)) for each in (before, result)]
    assert rows[1] - rows[0] == seen
    assert np.isfinite(result.state.loss).all()
    # It was saved, and goes on from either.
    loaded = orl.Agent.load(path)
    assert loaded.result is not None
    assert bits(loaded.result.walk) == bits(result.walk)
    rest = [
        orl.learn(learner(), Plant(), episodes=5, continue_from=each, **options) for each in (result, loaded.result)
    ]
    assert bits(rest[0].walk) == bits(rest[1].walk)
    assert rest[0].total_episodes == 9


def test_the_exception_of_an_environment_is_the_cause() -> None:
    with pytest.raises(EnvironmentFailure) as caught:
        orl.learn(learner(), Plant("exception"), episodes=9, known=MDP.known, replay=False)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_reset_that_fails_begins_no_episode() -> None:
    with pytest.raises(EnvironmentFailure, match=r"Plant\[3\]") as caught:
        orl.learn(learner(), Plant("reset"), episodes=9, known=MDP.known, replay=False)
    whole = orl.learn(learner(), Plant(), episodes=9, known=MDP.known)
    assert caught.value.result.total_episodes == 3
    rest = orl.learn(learner(), Plant(), episodes=6, known=MDP.known, continue_from=caught.value.result)
    assert bits(rest.walk) == bits(whole.walk)


def test_truncation_is_learned_from_when_that_is_wanted_and_is_no_termination() -> None:
    result = orl.learn(learner(), Plant("truncation"), episodes=9, known=MDP.known, replay=False, allow_truncation=True)
    assert result.total_episodes == 9
    assert result.cut_short == (4,)
    assert result.steps == 8 * MDP.horizon + 2


def test_an_environment_that_ignores_its_seed_is_found_by_replay() -> None:
    with pytest.raises(SeedIgnored, match="the same episode") as caught:
        orl.learn(learner(), Plant("seed"), episodes=9, known=MDP.known)
    assert caught.value.result.total_episodes >= 1
    assert orl.learn(learner(), Plant("seed"), episodes=9, known=MDP.known, replay=False).total_episodes == 9
    orl.learn(learner(), Plant(), episodes=9, known=MDP.known)  # one that follows it is not accused


def test_replaying_changes_nothing_that_is_learned() -> None:
    with_replay, without = (
        orl.learn(learner(), Plant(), episodes=20, known=MDP.known, replay=replay) for replay in (True, False)
    )
    assert bits(with_replay.walk) == bits(without.walk)
    assert with_replay.steps == without.steps


def test_an_agent_keeps_what_it_learned_before_a_fault() -> None:
    agent = orl.Agent(learner(), Plant("nan"), known=MDP.known)
    with pytest.raises(EnvironmentReward):
        agent.learn(9, replay=False)
    assert agent.result is not None
    assert agent.result.total_episodes == 4
    agent.set_env(Plant())
    agent.learn(5)
    assert agent.result.total_episodes == 9

"""Whatever an environment or its user does: a typed error, nothing false learned, and the run can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import occamrl as orl
from occamrl._core.arena import field
from occamrl.errors import (
    EnvironmentFailure,
    EnvironmentFault,
    EnvironmentReward,
    EpisodeCutShort,
    ParameterError,
    SeedIgnored,
    SpaceError,
    TableError,
)
from occamrl.learners.ucrl_vtr import ROWS
from tests.environments.misbehaving import MDP, Plant, learner
from tests.environments.test_learning import bits

FAULTS: list[tuple[str, type[EnvironmentFault], str]] = [
    ("nan", EnvironmentReward, r"reward in episode 3, step 1 \(from 0\): got nan, expected a number in \[0, 1\]"),
    ("range", EnvironmentReward, r"got 1\.5, expected a number in \[0, 1\]"),
    ("other", EnvironmentReward, r"the known reward of .*; for random rewards, .* rewards=RewardsPerPair\(\)"),
    ("text", EnvironmentFailure, "could not convert string"),
    ("observation", SpaceError, r"observation in episode 3, step 1 .*: got 4, expected an integer in 0 \.\.\. 3"),
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
    assert isinstance(caught.value.__cause__, RuntimeError) == (fault == "exception")
    result = caught.value.result
    seen = 2 if fault == "truncation" else 1  # a truncated step was a step; the others' second step is not to be had
    assert result.total_episodes == 4
    assert result.cut_short == (4,)
    assert result.steps == 3 * MDP.horizon + seen
    # What was learned is what a plant without fault would have taught in these steps, and no more.
    before = orl.learn(learner(), Plant(), episodes=3, **options)
    rows = [int(field(each.state, ROWS).sum() + each.state.visits.sum()) for each in (before, result)]
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


def test_a_reset_that_fails_begins_no_episode() -> None:
    with pytest.raises(EnvironmentFailure, match=r"Plant in episode 3 \(from 0\)") as caught:
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
    found = [orl.learn(learner(), Plant(), episodes=9, known=MDP.known, replay=flag) for flag in (True, False)]
    assert bits(found[0].walk) == bits(found[1].walk)  # one that follows it is not accused, and nothing else is learned


class Ending(Plant):
    """Stays where it is, earns nothing, and terminates after its first step."""

    def step(self, action: Any) -> Any:
        return self.s, 0.0, True, False, {}


def quiet(states: int) -> tuple[Any, Any]:
    """A learner, and what it knows, of a problem of which only state 3 pays."""
    kernel = np.full((states, 2, states), 1.0 / states)
    reward = np.zeros((states, 2))
    reward[3] = 1.0
    return orl.UCRLVTR(family=orl.FiniteFamily([kernel])), orl.FiniteMDP(transition=kernel, reward=reward, horizon=6)


def test_an_end_in_a_state_from_which_others_went_on_is_no_end() -> None:
    agent, mdp = quiet(4)
    with pytest.raises(TableError, match="one state more") as caught:
        orl.learn(agent, Ending(), episodes=50, known=mdp.known)
    assert "an episode ended and another one went on" in str(caught.value)
    agent, mdp = quiet(5)  # the last state is the end
    result = orl.learn(agent, Ending(), episodes=50, known=mdp.known)
    assert (result.total_episodes, result.steps) == (50, 50)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"known": MDP}, "known"), ({"known": MDP.known, "seed": "a"}, "seed"), ({"known": np.zeros((4, 2))}, "known")],
)
def test_a_wrong_argument_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        orl.learn(learner(), Plant(), episodes=2, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("state", ["x", 3, (1, 2, 3), (None, 0), (-1, 0), (6, 0)])
def test_a_state_that_predict_did_not_return_is_refused(state: Any) -> None:
    with pytest.raises(ParameterError, match="what predict returned"):
        orl.Agent(learner(), Plant(), known=MDP.known).predict(0, state)


def test_a_vector_environment_is_refused() -> None:
    with pytest.raises(ParameterError, match="SyncVectorEnv"):
        orl.learn(learner(), gym.make_vec("FrozenLake-v1", 2), episodes=2)  # type: ignore[arg-type]  # wrong on purpose

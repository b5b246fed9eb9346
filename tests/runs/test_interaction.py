"""Step by step: what is allowed, what is not, and episodes that end early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from occamrl.errors import OccamRLError, ParameterError, RewardError
from occamrl.learners.baselines import UniformRandom
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.environments import Interaction
from tests.cases import stack

CASE = stack(1, states=3)
MDP = CASE.mdp
ONE_HOT = FeatureMap.tabular(states=3, actions=2)


def learner(**options: Any) -> UCRLVTRLin:
    return UCRLVTRLin(features=ONE_HOT, norm_bound=2.0, **options)


def step(interaction: Interaction, next_state: Any) -> None:
    """Record a transition with the reward that is known."""
    interaction.record(float(CASE.reward[interaction._state, interaction.act()]), next_state)


def test_nothing_can_be_done_before_an_episode_begins_or_after_it_ends() -> None:
    interaction = Interaction(UniformRandom(), MDP.known)
    for call in (interaction.act, lambda: interaction.record(0.5, 0), lambda: interaction.record_bonus(0.0, 0)):
        with pytest.raises(OccamRLError, match="call begin"):
            call()
    interaction.begin(0)
    for _ in range(MDP.horizon):
        step(interaction, 1)
    assert interaction.episode == 1
    with pytest.raises(OccamRLError, match="call begin"):
        interaction.act()
    interaction.end()  # nothing is open: nothing happens
    assert interaction.episode == 1


@pytest.mark.parametrize("bad", [-1, 3, 0.5, 1.0, True, "0", None, np.nan])
def test_states_are_integers_in_range(bad: Any) -> None:
    interaction = Interaction(UniformRandom(), MDP.known)
    with pytest.raises(ParameterError, match=r"an integer in \[0, 3\)") as caught:
        interaction.begin(bad)
    assert caught.value.field == "state"
    interaction.begin(np.int64(2))  # type: ignore[arg-type]  # NumPy's integers too
    with pytest.raises(ParameterError):
        step(interaction, bad)
    step(interaction, 2)  # the refused transition left the step open
    assert interaction.episode == 0


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan, np.inf])
def test_rewards_are_in_the_unit_interval(bad: float) -> None:
    interaction = Interaction(UniformRandom(), MDP.known)
    interaction.begin(0)
    step(interaction, 1)
    with pytest.raises(RewardError, match=r"reward\[0, 1\]: got .*, expected a number in \[0, 1\]") as caught:
        interaction.record(bad, 1)
    assert caught.value.index == (0, 1)  # episode and step


@pytest.mark.parametrize("bad", [np.nan, np.inf, -2.0, 2.0])
def test_a_bonus_leaves_rewards_in_the_unit_interval(bad: float) -> None:
    interaction = Interaction(learner(), MDP.known)
    interaction.begin(0)
    with pytest.raises(RewardError, match=r"bonus\[0, 0\]"):
        interaction.record_bonus(bad, 1)
    with pytest.raises(RewardError, match=r"bonus\[0, 0\]"):
        interaction.record_bonus(0.0, 1, reward=bad)
    interaction.record_bonus(0.0, 1)  # the step is still open


def test_a_reward_that_contradicts_the_known_one_is_refused() -> None:
    interaction = Interaction(UniformRandom(), MDP.known)
    interaction.begin(0)
    known = float(CASE.reward[0, interaction.act()])
    with pytest.raises(RewardError, match="the known reward") as caught:
        interaction.record(1.0 - known, 1)
    assert caught.value.index == (0, 0)


def test_who_is_no_agent_cannot_interact() -> None:
    for wrong in ("x", 3, UniformRandom, None):
        with pytest.raises(ParameterError) as caught:
            Interaction(wrong, MDP.known)  # type: ignore[arg-type]  # wrong on purpose
        assert caught.value.field == "agent"


def test_an_episode_that_ends_early_gives_the_rows_of_its_steps() -> None:
    """Two steps of the first episode, all of the second: as many rows, with the values of the plan in play."""
    agent = learner(replan=0.0)
    interaction = Interaction(agent, MDP.known)
    interaction.begin(0)
    rows = []
    for next_state in (1, 2):
        rows.append((interaction._state, interaction.act(), interaction._step, next_state))
        step(interaction, next_state)
    values = interaction.walk.state.values.copy()
    interaction.begin(1)  # closes the first
    assert interaction.episode == 1
    statistics = agent.statistics(MDP.known, interaction.walk.state)
    gram = np.zeros((6, 3, 3))
    for s, a, h, _ in rows:
        assert h is not None
        target = values[h + 1]
        x = (target - (target.max() + target.min()) / 2) / np.ptp(target) if np.ptp(target) > 0 else np.zeros(3)
        gram[2 * s + a] += np.outer(x, x)
    np.testing.assert_allclose(statistics.gram, gram.ravel(), rtol=0, atol=1e-12)
    assert interaction.walk.rows[-1]["episodes"] == 1


def test_a_known_reward_is_taken_from_the_problem_and_one_on_transitions_from_the_environment() -> None:
    """With r(s, a) known, rounding in the environment's own sum must not become a target."""
    first, second = (Interaction(learner(), MDP.known) for _ in range(2))
    for interaction, noise in ((first, 0.0), (second, 1e-16)):
        interaction.begin(0)
        for s, after in ((0, 1), (1, 2), (2, 0), (0, 0)):
            interaction.record(float(CASE.reward[s, interaction.act()]) + noise, after)
    for one, other in zip(first.walk.state, second.walk.state, strict=True):
        np.testing.assert_array_equal(one, other)

    reward = np.random.default_rng(0).random((3, 2, 3))
    mdp = FiniteMDP(transition=CASE.kernels[0], reward=reward, horizon=2)
    given, split = (Interaction(learner(), mdp.known) for _ in range(2))
    s = 0
    given.begin(0)
    split.begin(0)
    for after in (1, 2):
        a = given.act()
        given.record(float(reward[s, a, after]), after)
        split.record_bonus(float(reward[s, a, after] - mdp.known.base_reward[s, a]), after)
        s = after
    statistics = [learner().statistics(mdp.known, each.walk.state) for each in (given, split)]
    np.testing.assert_allclose(statistics[0].xy, statistics[1].xy, rtol=0, atol=1e-12)
    assert statistics[0].xy.any()


def test_the_planned_value_is_that_of_the_plan() -> None:
    agent = UCRLVTR(family=CASE.family)
    interaction = Interaction(agent, MDP.known)
    interaction.begin(0)
    best = max(range(6), key=lambda member: agent.family.optimal_values(MDP.known)[member, 0, 0])
    for state in range(3):
        assert interaction.planned_value(state) == agent.family.optimal_values(MDP.known)[best, 0, state]
    with pytest.raises(ParameterError):
        interaction.planned_value(3)
    uniform = Interaction(UniformRandom(), MDP.known)
    uniform.begin(0)
    assert np.isnan(uniform.planned_value(0))


def test_seeds_of_an_interaction_are_the_agents_own() -> None:
    actions = []
    for seed in (0, 0, 1):
        interaction = Interaction(UniformRandom(), MDP.known, seed=seed)
        taken = []
        for _ in range(20):
            interaction.begin(0)
            for _ in range(MDP.horizon):
                taken.append(interaction.act())
                step(interaction, 0)
        actions.append(taken)
    assert actions[0] == actions[1] != actions[2]
    assert set(actions[0]) == {0, 1}

"""Learners in plain NumPy run wherever compiled ones do: same draws, exact regret, phases, environments, files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import occamrl as orl
from occamrl.checks import check_learner, check_selector
from occamrl.errors import ContractError
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.protocols import Episode, EpisodeLearner, Floats, Ints, Known
from occamrl.running.run import run
from tests.cases import mixture
from tests.environments.misbehaving import MDP as PLANT
from tests.environments.misbehaving import Plant
from tests.runs.test_selectors import Leader

CASE = mixture(5, initial_state=[0.4, 0.0, 0.35, 0.25])
NOISY = FiniteMDP(transition=CASE.transition, reward=CASE.reward, horizon=4, reward_noise=BernoulliRewards())
UNIFORM = np.full((4, 4, 2), 0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Follow(EpisodeLearner):
    """Follow one policy and keep all that was seen."""

    policy: Any
    value: Any = None

    def begin(self, known: Known) -> dict[str, Any]:
        return {"episodes": [], "numbers": np.zeros(0)}

    def plan(self, known: Known, state: Any, start: int, draw: np.random.Generator) -> Any:
        state["numbers"] = np.append(state["numbers"], draw.random())
        return self.policy if self.value is None else (self.policy, self.value)

    def learn(self, known: Known, state: Any, episode: Episode) -> None:
        state["episodes"].append(episode)


class Counts(NamedTuple):
    visits: Ints  # [S, A]
    reward: Floats  # [S, A]
    moves: Ints  # [S, A, S]
    episodes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Bold(EpisodeLearner):
    """Plan on empirical means with a bonus, now and then at random: mutates arrays and returns a new state."""

    bonus: float = 1.0

    def begin(self, known: Known) -> Counts:
        s, a = known.states, known.actions
        return Counts(np.zeros((s, a), dtype=np.int64), np.zeros((s, a)), np.zeros((s, a, s), dtype=np.int64), 0)

    def plan(self, known: Known, state: Counts, start: int, draw: np.random.Generator) -> Any:
        n = np.maximum(state.visits, 1)
        kernel = (state.moves + 1.0 / known.states) / (state.visits[..., None] + 1.0)
        values, policy = np.zeros(known.states), np.zeros((known.horizon, known.states), dtype=np.int64)
        for h in reversed(range(known.horizon)):
            q = state.reward / n + self.bonus / np.sqrt(n) + kernel @ values
            policy[h], values = q.argmax(axis=1), np.minimum(q.max(axis=1), known.horizon - h)
        if draw.random() < 0.1:
            policy = draw.integers(known.actions, size=policy.shape)
        return policy, values[start]

    def learn(self, known: Known, state: Counts, episode: Episode) -> Counts:
        np.add.at(state.visits, (episode.states[:-1], episode.actions), 1)
        np.add.at(state.reward, (episode.states[:-1], episode.actions), episode.rewards)
        np.add.at(state.moves, (episode.states[:-1], episode.actions, episode.states[1:]), 1)
        return state._replace(episodes=state.episodes + 1)


@pytest.mark.parametrize("mdp", [CASE.mdp, NOISY], ids=["means", "coin flips"])
def test_it_meets_the_numbers_that_a_compiled_learner_meets(mdp: FiniteMDP) -> None:
    compiled = run(orl.Optimal(mdp=mdp), mdp, episodes=60, seed=3, progress=False)
    plain = run(Follow(policy=mdp.optimal_policy), mdp, episodes=60, seed=3, progress=False)
    assert plain.returns.tobytes() == compiled.returns.tobytes()
    assert plain.regret.tobytes() == compiled.regret.tobytes()
    episodes = plain.state["episodes"]
    assert [float(np.cumsum(each.rewards)[-1]) for each in episodes] == plain.returns.tolist()
    for each in episodes:
        assert (each.states.shape, each.actions.shape, each.rewards.shape) == ((5,), (4,), (4,))
        assert (each.actions == mdp.optimal_policy[np.arange(4), each.states[:-1]]).all()
        assert (CASE.transition[each.states[:-1], each.actions, each.states[1:]] > 0).all()


def test_a_policy_of_probabilities_is_drawn_from_and_evaluated_exactly() -> None:
    result = run(Follow(policy=UNIFORM), CASE.mdp, episodes=4_000, seed=1, progress=False)
    compiled = run(orl.UniformRandom(), CASE.mdp, episodes=4_000, seed=1, progress=False)
    np.testing.assert_allclose(result.regret, compiled.regret, rtol=0, atol=1e-12)
    actions = np.stack([each.actions for each in result.state["episodes"]])
    # Hoeffding: each share is within 0.04 of one half but with probability 2 exp(-2 * 4000 * 0.04^2) < 6e-6.
    np.testing.assert_allclose(actions.mean(axis=0), 0.5, rtol=0, atol=0.04)


def test_planned_values_below_the_optimum_are_counted_where_there_are_any() -> None:
    policy = CASE.mdp.optimal_policy
    counted = [
        run(Follow(policy=policy, value=value), CASE.mdp, episodes=9, progress=False).pessimistic_episodes
        for value in (None, 0.0, 4.0)
    ]
    assert counted == [0, 9, 0]


def test_what_is_drawn_depends_on_seed_and_episode_alone() -> None:
    whole = run(Follow(policy=UNIFORM), CASE.mdp, episodes=30, seed=2, progress=False).state["numbers"]
    other = run(Follow(policy=UNIFORM), CASE.mdp, episodes=30, seed=3, progress=False).state["numbers"]
    table = run(Follow(policy=CASE.mdp.optimal_policy), CASE.mdp, episodes=30, seed=2, progress=False).state["numbers"]
    assert np.unique(np.concatenate([whole, other])).size == 60
    np.testing.assert_array_equal(whole, table)  # however much is drawn for the actions of an episode


def test_it_keeps_the_contract_alone_and_in_the_phases_of_a_selector_beside_a_compiled_one() -> None:
    check_learner(Bold(), CASE.mdp, episodes=50)
    compiled = orl.UCRLVTRLin(features=CASE.features, norm_bound=1.0)
    check_selector(Leader(bases=(Bold(), compiled, Bold(bonus=0.1))), CASE.mdp, episodes=50)


def test_an_episode_that_was_cut_short_is_as_long_as_what_was_seen() -> None:
    agent = Follow(policy=np.zeros((PLANT.horizon, PLANT.states), dtype=np.int64))
    options: dict[str, Any] = {"known": PLANT.known, "replay": False, "allow_truncation": True}
    result = orl.learn(agent, Plant("truncation"), episodes=6, **options)
    assert [each.actions.size for each in result.state["episodes"]] == [PLANT.horizon] * 3 + [2] + [PLANT.horizon] * 2
    assert [each.states.size for each in result.state["episodes"]][3] == 3
    assert orl.Agent(Bold(), Plant(), known=PLANT.known).learn(3).predict(0)[0] in (0, 1)


@pytest.mark.parametrize(
    "policy",
    [
        np.zeros((4, 3), dtype=np.int64),
        np.zeros((4, 4)),
        np.full((4, 4), 2),
        np.full((4, 4), -1),
        np.full((4, 4, 2), 0.6),
        np.full((4, 4, 2), np.nan),
        None,
    ],
    ids=["shape", "floats", "no such action", "negative", "sums", "nan", "none"],
)
def test_a_policy_that_cannot_be_followed_is_refused(policy: Any) -> None:
    with pytest.raises(ContractError, match=r"Follow\.plan returned"):
        run(Follow(policy=policy), CASE.mdp, episodes=3, progress=False)

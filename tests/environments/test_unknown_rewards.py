"""Rewards that nobody told, random ones too, and one kernel per step, learned in Gymnasium environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl._core.arena import field
from occamrl._core.rows import HEARD, HEARD_TOTAL
from occamrl.envs.registered import ProblemEnv
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.errors import EnvironmentReward, ParameterError, TableError
from occamrl.problems.mdp import BernoulliRewards, BetaRewards
from occamrl.protocols import Agent, Known
from tests.cases import bits, mixture
from tests.environments.misbehaving import Scripted

CASE = mixture(4)
THETAS = np.random.default_rng(1).dirichlet(np.ones(3), size=4)
PSI = np.random.default_rng(5).normal(size=(4, 2, 3))
SIZES = {"states": 4, "actions": 2, "horizon": 4}
EPISODES, SEED = 120, 3


def problem(per_step: bool = False, noise: Any = None) -> orl.FiniteMDP:
    """Return a problem with random rewards; with one kernel per step if so."""
    transition = np.stack([CASE.phi @ theta for theta in THETAS]) if per_step else CASE.transition
    chosen = BernoulliRewards() if noise is None else noise
    return orl.FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=chosen)


def linear(rewards: Any = None, kernel: Any = "stationary") -> orl.UCRLVTRLin:
    estimate = orl.RewardsPerPair() if rewards is None else rewards
    return orl.UCRLVTRLin(features=CASE.features, norm_bound=1.2, rewards=estimate, kernel=kernel)


def ladder() -> orl.ARLGen:
    kernels = np.stack([CASE.phi @ theta for theta in (*THETAS, CASE.theta)])
    classes = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    return orl.ARLGen(ladder=classes, rewards=orl.RewardsPerPair(bound="hoeffding"))


class Casino(Scripted):
    """A problem with random rewards, whose truth is not in view.

    ``low`` and ``high`` are its rewards 0 and 1. In episode ``when`` the reward of the second step is ``bad``, or the
    episode is truncated before it.
    """

    def __init__(
        self, mdp: orl.FiniteMDP, *, low: float = 0.0, high: float = 1.0, when: int = -1, bad: Any = None
    ) -> None:
        super().__init__(SEED, EPISODES + 1, mdp, shown=False)
        self.low, self.scale, self.when, self.bad = low, high - low, when, bad

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        reward = self.low + self.scale * reward
        if self.episode == self.when and self.h == 2 and self.bad is not None:
            reward = self.bad
        return observation, reward, False, self.episode == self.when and self.h == 1 and self.bad is None, {}


AGENTS: dict[str, tuple[Agent, bool]] = {
    "per pair": (linear(), False),
    "linear in features": (linear(orl.RewardsLinear(features=PSI, norm_bound=1.5)), False),
    "both options": (linear(kernel="per_step"), True),
    "ladder": (ladder(), False),
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_environment_with_the_numbers_of_the_fused_loop_gives_its_state_to_the_bit(name: str) -> None:
    """With the truth in view there is exact regret; with the sizes alone the same is learned, and no regret is told."""
    agent, per_step = AGENTS[name]
    mdp = problem(per_step)
    fused = orl.run(agent, mdp, episodes=EPISODES, seed=SEED, progress=False)
    seen = orl.learn(agent, Scripted(SEED, EPISODES, mdp), episodes=EPISODES, seed=SEED, replay=False)
    blind = orl.learn(agent, Casino(mdp), episodes=EPISODES, seed=SEED, replay=False, known=Known.of_sizes(**SIZES))
    for result in (seen, blind):
        assert bits(result.state) == bits(fused.state)
        np.testing.assert_array_equal(result.returns, fused.returns)
        assert result.plans == fused.plans
    np.testing.assert_array_equal(seen.regret, fused.regret)
    assert blind.regret is None
    assert "no table" in blind.environment.why_not  # type: ignore[union-attr]  # there is one
    other = orl.run(agent, mdp, episodes=EPISODES, seed=SEED + 1, progress=False)
    assert bits(other.state) != bits(fused.state)  # the comparison can fail


def test_rewards_come_in_the_unit_of_the_environment() -> None:
    """A range of 16 maps coins without rounding: the state is that of rewards 0 and 1, the returns are money."""
    known, agent = Known.of_sizes(**SIZES), linear()
    options: Any = {"episodes": EPISODES, "seed": SEED, "known": known, "replay": False}
    plain = orl.learn(agent, Casino(problem()), **options)
    money = orl.learn(agent, Casino(problem(), low=-4.0, high=12.0), reward_range=(-4.0, 12.0), **options)
    assert bits(money.state) == bits(plain.state)
    np.testing.assert_array_equal(money.returns, 16.0 * plain.returns - 4 * 4.0)
    with pytest.raises(EnvironmentReward, match=r"got -4.0, expected a number in \[0, 1\]"):
        orl.learn(agent, Casino(problem(), low=-4.0, high=12.0), **options)


class Coarse(Casino):
    """The same with rewards in 32 bits: 0.3 is then a little more than 0.3."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, np.float32(reward), *rest


def test_rewards_may_come_in_32_bits() -> None:
    known, agent = Known.of_sizes(**SIZES), linear()
    options: Any = {"episodes": EPISODES, "seed": SEED, "replay": False}
    plain = orl.learn(agent, Casino(problem()), known=known, **options)
    coarse = orl.learn(agent, Coarse(problem(), high=0.3), known=known, reward_range=(0.0, 0.3), **options)
    assert float(np.float32(0.3)) > 0.3 * (1.0 + 1e-9)
    assert bits(coarse.state) == bits(plain.state)
    told = orl.FiniteMDP(transition=CASE.transition, reward=CASE.reward, horizon=4)
    orl.learn(orl.UniformRandom(), Coarse(told), known=told.known, **options)  # known ones may as well


@pytest.mark.parametrize(("name", "bad"), [("both options", -0.25), ("ladder", float("nan"))])
def test_a_reward_out_of_range_on_the_hundredth_episode(name: str, bad: float, tmp_path: Path) -> None:
    """What was learned is what an episode cut before that step teaches; it is saved, loaded, and goes on."""
    agent, per_step = AGENTS[name]
    mdp, known, path = problem(per_step), Known.of_sizes(**SIZES), tmp_path / "a.npz"
    options: Any = {"seed": SEED, "known": known, "replay": False}
    with pytest.raises(
        EnvironmentReward, match=r"reward in episode 99, step 1 .*: got .*, expected a number in \[0, 1\]"
    ) as caught:
        orl.learn(agent, Casino(mdp, when=99, bad=bad), episodes=EPISODES, checkpoint=path, **options)
    result: Any = caught.value.result
    cut = orl.learn(agent, Casino(mdp, when=99), episodes=100, allow_truncation=True, **options)
    assert result.total_episodes == 100
    assert result.cut_short == cut.cut_short == (100,)
    assert bits(result.state) == bits(cut.state)
    assert field(result.state, HEARD).sum() == 99 * 4 + 1
    assert bits(orl.Agent.load(path).result.walk.to_tree()) == bits(result.walk.to_tree())  # type: ignore[union-attr]  # there is one
    rest, again = Casino(mdp), Casino(mdp)
    rest.episode = again.episode = 99
    on = orl.learn(agent, rest, episodes=20, continue_from=result, known=known, replay=False)
    loaded = orl.learn(agent, again, episodes=EPISODES, checkpoint=path, known=known, replay=False)
    assert on.total_episodes == loaded.total_episodes == EPISODES
    assert bits(on.state) == bits(loaded.state)
    assert field(on.state, HEARD).sum() == 119 * 4 + 1


class Ending(Casino):
    """Episodes end in state 3."""

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, observation == 3, truncated, info


def test_an_episode_that_ends_earns_nothing_more() -> None:
    """The end is a state of its own, where the reward 0 of the environment's unit is heard to the horizon's end."""
    whole = np.zeros((5, 2, 5, 3))
    whole[:4, :, :4] = CASE.phi
    whole[:4, :, 4], whole[:4, :, 3] = CASE.phi[:, :, 3], 0.0
    whole[4, :, 4] = 1.0
    agent = orl.UCRLVTRLin(features=orl.FeatureMap(whole), norm_bound=1.2, rewards=orl.RewardsPerPair())
    env = Ending(problem(), low=-4.0, high=12.0)
    options: Any = {"episodes": 60, "replay": False, "reward_range": (-4.0, 12.0)}
    result = orl.learn(agent, env, known=Known.of_sizes(states=5, actions=2, horizon=4), **options)
    visits, total = field(result.state, HEARD), field(result.state, HEARD_TOTAL)
    assert result.steps < 240
    assert visits.sum() == 240
    assert visits[0, 8:].sum() == 240 - result.steps
    np.testing.assert_array_equal(total[0, 8:], 0.25 * visits[0, 8:])  # 0 is a quarter of [-4, 12]
    with pytest.raises(
        TableError, match=r"ended in state 3, and no rewards are known, expected `known` with one state"
    ):
        orl.learn(linear(), Ending(problem()), episodes=9, replay=False, known=Known.of_sizes(**SIZES))
    sizes = Known.of_sizes(states=5, actions=2, horizon=4)
    with pytest.raises(ParameterError, match=r"reward_range: got \(1.0, 2.0\), expected 0 in it"):
        FiniteEnvironment(Ending(problem()), known=sizes, reward_range=(1.0, 2.0))


def test_who_counts_on_known_rewards_is_refused_where_there_are_none() -> None:
    with pytest.raises(ParameterError, match="these rewards are not known"):
        orl.learn(linear("known"), Casino(problem()), episodes=1, known=Known.of_sizes(**SIZES))
    with pytest.raises(TableError, match=r"no table .*Known.of_sizes"):
        orl.learn(linear(), Casino(problem()), episodes=1, horizon=4)


@pytest.mark.parametrize("noise", [BernoulliRewards(), BetaRewards(concentration=5.0)])
def test_a_problem_with_noise_is_an_environment_with_noise(noise: Any) -> None:
    """The mean of n rewards of one (s, a) is within 5 standard errors of the stated one (fails once in 10^6)."""
    env = ProblemEnv(problem(noise=noise))
    drawn = []
    for seed in range(2_000):
        env.reset(seed=seed)
        drawn.append(env.step(1)[1])
    assert abs(np.mean(drawn) - CASE.reward[0, 1]) <= 5 * np.std(drawn) / np.sqrt(2_000)
    assert np.std(drawn) > 0.05
    assert 0.0 <= min(drawn) <= max(drawn) <= 1.0


def test_noise_around_one_of_two_means_is_for_those_who_estimate() -> None:
    """Two outcomes lead to the same state with other rewards: a random reward does not tell which it was."""
    table = [[[(0.5, 1, 0.2), (0.5, 1, 0.8)]], [[(1.0, 0, 0.0)]]]
    mdp = orl.FiniteMDP(outcomes=table, horizon=2, reward_noise=BernoulliRewards())
    features = orl.FeatureMap(np.eye(2)[::-1].reshape(2, 1, 2, 1))
    agent = orl.UCRLVTRLin(features=features, norm_bound=2.0, rewards=orl.RewardsPerPair())
    with pytest.raises(TableError, match=r"means \[0.2, 0.8\] of \(0, 0, 1\)"):
        orl.learn(agent, ProblemEnv(mdp), episodes=3)
    result = orl.learn(agent, ProblemEnv(mdp), episodes=30, known=mdp.known.without_rewards)
    assert result.total_regret == 0.0  # one action: the truth in view gives exact regret all the same


def test_what_the_table_excludes_is_refused_also_where_the_agent_estimates() -> None:
    class Liar(Scripted):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, 0.5 * reward, *rest

    plain = CASE.mdp
    sizes = plain.known.without_rewards
    assert (
        orl.learn(linear(), Scripted(SEED, EPISODES, plain), episodes=9, replay=False, known=sizes).total_regret
        is not None
    )
    with pytest.raises(TableError, match="an outcome of the environment's own table"):
        orl.learn(linear(), Liar(SEED, EPISODES, plain), episodes=9, replay=False, known=sizes)

"""Gymnasium environments: what is read, learned and refused, and that nothing is lost."""

from __future__ import annotations

import itertools
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from scipy import stats

import occamrl as orl
from occamrl import errors, registry
from occamrl.checks import leaves
from occamrl.envs import ProblemEnv, register_problems
from occamrl.envs.ladder_file import LadderSpec, shipped_ladders
from occamrl.envs.wrapper import Discretiser, FiniteEnvironment, codec_of
from occamrl.problems.lakes import mdp_from_env
from occamrl.problems.mdp import NoisyProblem
from occamrl.running.learn import Callback, EpisodeReport

Options = dict[str, Any]
Began = tuple[Any, Options]  # what reset and step return
Stepped = tuple[Any, float, bool, bool, Options]
KERNELS = np.random.default_rng(3).dirichlet(np.ones(4), size=(5, 4, 2))
REWARD = np.random.default_rng(4).random((4, 2))
MDP = orl.FiniteMDP(transition=KERNELS[0], reward=REWARD, horizon=6)
SIZES = orl.Known.of_sizes(states=4, actions=2, horizon=6)


def same(one: object, other: object) -> bool:
    """Whether two states are equal, to the bit."""
    return leaves(one, "state") == leaves(other, "state")


def record_of(result: orl.Result) -> list[object]:
    """What is recorded of a run."""
    blocks = result.blocks
    counts = [blocks.episodes, blocks.returns, blocks.plans, blocks.phase, blocks.phases]
    return [*counts, result.state, result.regret]


def alike(one: orl.Result, other: orl.Result) -> bool:
    """Whether two runs are the same, to the bit."""
    return same(record_of(one), record_of(other))


@dataclass(frozen=True, kw_only=True, eq=False)
class Counting(orl.Learner):
    """Plays random policies for a few episodes each; a plan depends on all that was counted."""

    episodes: int = 7

    def begin(self, known: orl.Known) -> Any:
        pairs = (known.states, known.actions)
        counts = np.zeros((known.horizon, *pairs, known.states))
        return {"counts": counts, "rewards": np.zeros(pairs), "blocks": 0}

    def plan(self, known: orl.Known, state: Any, draw: np.random.Generator) -> orl.Plan:
        law = draw.dirichlet(np.ones(known.actions), size=(known.horizon, known.states))
        seen = state["counts"].sum(axis=3)
        law = (law + seen) / (1.0 + seen.sum(axis=2, keepdims=True))
        return orl.Plan(policy=law, episodes=self.episodes, facts={"block": state["blocks"]})

    def learn(self, known: orl.Known, state: Any, plan: orl.Plan, flow: orl.Flow) -> None:
        np.add.at(
            state["counts"], (flow.step, flow.state, flow.action, flow.next_state), flow.count
        )
        np.add.at(state["rewards"], (flow.state, flow.action), flow.count * flow.reward)
        state["blocks"] += 1


class Plant(gym.Env[Any, Any]):
    """MDP, without a table; ``fault`` says what goes wrong in episode 3 at its second step."""

    def __init__(self, fault: str = "") -> None:
        self.observation_space = spaces.Discrete(4)
        self.action_space = spaces.Discrete(2)
        self.fault = fault
        self.episode = -1
        self.h = 0
        self.s = 0
        self.unseeded = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Began:
        super().reset(seed=seed)
        self.episode += 1
        self.h = 0
        self.s = 0
        if self.fault == "reset" and self.episode == 3:
            raise RuntimeError("the pump is stuck")
        return self.s, {}

    def step(self, action: int) -> Stepped:
        generator = self.unseeded if self.fault == "seed" else self.np_random
        reward = float(REWARD[self.s, action])
        self.s = int(generator.choice(4, p=KERNELS[0, self.s, action]))
        self.h += 1
        observation = self.s
        truncated = False
        if self.episode == 3 and self.h == 2:
            match self.fault:
                case "exception":
                    raise RuntimeError("the pump is stuck")
                case "Ctrl-C":
                    signal.raise_signal(signal.SIGINT)
                case "Ctrl-C twice":
                    signal.raise_signal(signal.SIGINT)
                    signal.raise_signal(signal.SIGINT)
                case "nan":
                    reward = float("nan")
                case "other":
                    reward = 1.0 - reward
                case "observation":
                    observation = 4
                case "truncation":
                    truncated = True
        return observation, reward, False, truncated, {}


def learner() -> orl.UCRLVTR:
    return orl.UCRLVTR(family=orl.FiniteFamily(KERNELS))


LAKE = orl.read_ladder("frozen-lake-4x4", horizon=12)


ONE = spaces.Discrete(3, start=-2)
MANY = spaces.MultiDiscrete([2, 1, 3], start=[1, 0, -1])
FINITE = [ONE, MANY, spaces.MultiBinary(3), spaces.MultiBinary((2, 2)), spaces.Tuple([ONE, MANY])]


@pytest.mark.parametrize(
    "space", [*FINITE, spaces.Dict({"x": MANY, "y": ONE}), spaces.Dict({"z": FINITE[-1]})]
)
def test_every_point_has_one_number_and_every_number_one_point(space: Any) -> None:
    codec = codec_of(space)
    points = [codec.decode(i) for i in range(codec.size)]
    assert [codec.encode(point) for point in points] == list(range(codec.size))
    assert all(space.contains(point) for point in points)
    space.seed(0)
    for _ in range(5):
        sample = space.sample()
        np.testing.assert_equal(codec.decode(codec.encode(sample)), sample)


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (spaces.Discrete(3, start=5), [4, 8, 5.0, "5", True, None, [[5], [5, 6]]]),
        (spaces.MultiDiscrete([2, 3]), [[0, 3], [0], [[0, 1]], [-1, 0], [0.0, 1.0], 1]),
        (spaces.MultiBinary(2), [[0, 2], [0, 1, 1]]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), [(0,), (0, 3), (0, 1, 2), 0]),
        (spaces.Dict({"x": spaces.Discrete(2)}), [{"y": 0}, {"x": 2}, {"x": 0, "y": 0}, 0]),
    ],
)
def test_what_is_outside_a_space_is_refused(space: Any, bad: list[Any]) -> None:
    codec = codec_of(space)
    for value in bad:
        with pytest.raises(errors.SpaceError):
            codec.encode(value)


def test_spaces_that_are_not_finite_and_cells_that_are_none_are_refused() -> None:
    infinite: list[Any] = [
        spaces.Box(0.0, 1.0),
        spaces.Text(3),
        spaces.Tuple([spaces.Text(1)]),
        spaces.MultiBinary(40),
    ]
    for space in infinite:
        with pytest.raises(errors.SpaceError):
            codec_of(space)
    for other in (spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,))):
        with pytest.raises(errors.SpaceError, match="discretiser"):
            codec_of(cast(Any, other), Discretiser([[0.0, 1.0]]))
    wrong: list[Any] = [
        [["a", "b"]],
        [3],
        [],
        [[0.0]],
        [[0.0, 0.0]],
        [[1.0, 0.0]],
        [[0.0, np.nan, 1.0]],
    ]
    for edges in wrong:
        with pytest.raises(errors.ParameterError, match="edges"):
            Discretiser(edges)
    with pytest.raises(errors.SpaceError, match="without bounds"):
        Discretiser.uniform(spaces.Box(-np.inf, np.inf, (1,)), 3)


def test_a_point_lies_in_its_cell() -> None:
    cells = Discretiser.uniform(spaces.Box(0.0, 1.0, (2,), dtype=np.float64), [4, 5])
    for point in [*np.random.default_rng(0).random((20, 2)), (0.25, 0.2), (1.0, 0.0)]:
        row, column = divmod(cells.encode(point), 5)
        assert row == min(int(4 * point[0]), 3)
        assert column == min(int(5 * point[1]), 4)
        assert cells.encode(cells.decode(5 * row + column)) == 5 * row + column
    open_ended = Discretiser([[-np.inf, 0.0, np.inf], [0.0, 1.0, 3.0]])
    for cell, point in enumerate(([-9.0, 0.5], [-9.0, 1.0], [0.0, 0.5], [7.0, 3.0])):
        assert open_ended.encode(point) == cell
    for bad in ([0.0, 3.1], [0.0, np.nan], [0.0]):
        with pytest.raises(errors.SpaceError):
            open_ended.encode(bad)


def value_by_hand(env: gym.Env[Any, Any], horizon: int) -> float:
    """The optimum of a Gymnasium table in its own unit, by backward induction over its entries."""
    lake: Any = env.unwrapped
    table = lake.P
    values = np.zeros(len(table))
    for _ in range(horizon):
        later = values
        values = np.full(len(table), -np.inf)
        for s, a in itertools.product(range(len(table)), range(len(table[0]))):
            worth = 0.0
            for probability, s2, reward, done in table[s][a]:
                worth += probability * (reward + (not done) * later[s2])
            values[s] = max(values[s], worth)
    return float(values @ lake.initial_state_distrib)


@pytest.mark.parametrize(
    ("name", "options", "horizon"),
    [
        ("FrozenLake-v1", {}, 12),
        ("CliffWalking-v1", {"is_slippery": True}, 15),
    ],
)
def test_a_table_is_the_problem(name: str, options: Options, horizon: int) -> None:
    env = gym.make(name, **options)
    mdp = mdp_from_env(env, horizon=horizon)[0]
    assert mdp.optimal_value == pytest.approx(value_by_hand(env, horizon), abs=1e-9)
    finite = FiniteEnvironment(env, horizon=horizon)
    assert finite.mdp is not None
    assert finite.mdp.fingerprint == mdp.fingerprint
    assert finite.info.exact


def test_regret_is_that_of_the_simulator_in_the_environments_own_unit() -> None:
    """Dry cliff: the way along the edge is 13 steps; the random policy loses what is simulated."""
    env = gym.make("CliffWalking-v1")
    mdp = mdp_from_env(env, horizon=20)[0]
    best = orl.learn(orl.Optimal(mdp=mdp), env, episodes=4, horizon=20)
    np.testing.assert_array_equal(best.returns, -13.0)
    assert best.total_regret == pytest.approx(0.0, abs=1e-9)
    random = orl.learn(orl.UniformRandom(), env, episodes=60, horizon=20)
    simulated = orl.run(orl.UniformRandom(), mdp, episodes=60)
    np.testing.assert_allclose(random.regret, simulated.regret[0], rtol=1e-9)
    expected = -13.0 - random.regret[0]
    assert abs(random.returns.mean() - expected) < 5.0 * random.returns.std() / np.sqrt(60)
    assert random.returns.min() >= -100.0 * 20


def test_an_environment_and_its_table_teach_the_same_in_expectation() -> None:
    """Visits of real episodes have the law of the simulator's flow, also after the end."""
    n = 500
    env = gym.make("FrozenLake-v1")
    mdp = mdp_from_env(env, horizon=12)[0]
    agent = Counting(episodes=n)
    learned = orl.learn(agent, env, episodes=n, horizon=12, seed=1, progress=False)
    seen = learned.state["counts"]
    # the same plan, for it has the same address
    drawn = orl.run(agent, mdp, episodes=n, seed=1).state["counts"]
    assert (seen.sum(axis=(1, 2, 3)) == n).all()
    assert (drawn.sum(axis=(1, 2, 3)) == n).all()
    for h in (1, 5, 11):
        both = np.stack([seen[h].ravel(), drawn[h].ravel()])
        both = both[:, both.sum(axis=0) >= 10]
        assert stats.chi2_contingency(both).pvalue > 1e-4
        reversed_ = np.stack([both[0], both[1][::-1]])
        assert stats.chi2_contingency(reversed_).pvalue < 1e-6  # it can fail


def test_what_the_table_does_not_tell() -> None:
    fickle = gym.make("Taxi-v4", fickle_passenger=True)
    with pytest.raises(errors.TableError, match="fickle_passenger"):
        FiniteEnvironment(fickle, horizon=30)
    known = mdp_from_env(gym.make("Taxi-v4"), horizon=30)[0].known
    finite = FiniteEnvironment(fickle, known=known, reward_range=(-10, 20))
    assert finite.mdp is None
    assert "fickle" in finite.info.why_not
    doubled = gym.wrappers.TransformReward(
        gym.make("FrozenLake-v1"), lambda reward: 2.0 * float(reward)
    )
    ours = gym.wrappers.TransformReward(
        gym.make("occamrl.envs:occamrl/RiverSwim-v0"), lambda reward: float(reward)
    )
    for env, horizon in ((doubled, 10), (ours, None), (gym.make("Blackjack-v1"), 10)):
        with pytest.raises((errors.TableError, errors.ParameterError)):
            FiniteEnvironment(env, horizon=horizon)


def test_what_contradicts_the_table_is_found_while_learning() -> None:
    env: Any = gym.make("FrozenLake-v1", is_slippery=False)
    finite = FiniteEnvironment(env, horizon=10)
    # the lake is changed behind our back
    env.unwrapped.P[0] = {a: [(1.0, 5, 0, False)] for a in range(4)}
    with pytest.raises(errors.TableError, match=r"state 5 with reward 0 after \(0, ") as caught:
        orl.learn(orl.UniformRandom(), finite, episodes=50)
    assert (caught.value.index, caught.value.result.total_episodes) == ((0, 0), 1)


@pytest.mark.parametrize("name", register_problems())
def test_every_problem_is_an_environment(name: str) -> None:
    kind = registry.own("problems")[name.removeprefix("occamrl/").removesuffix("-v0")]
    problem = kind(**kind.small[0])
    check_env(ProblemEnv(problem), skip_render_check=True)


def test_registered_problems_pay_in_their_unit_and_last_h_steps() -> None:
    env: Any = gym.make("occamrl.envs:occamrl/LostSales-v0")
    mdp = env.unwrapped.mdp
    unit = mdp.known.unit
    result = orl.learn(orl.Optimal(mdp=mdp), env, episodes=3)
    assert tuple(result.environment.rewards) == (unit.low, unit.high)
    assert result.total_regret == pytest.approx(0.0, abs=1e-9)
    assert result.total_return == pytest.approx(sum(result.returns))
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(mdp.horizon)] == [False] * (mdp.horizon - 1) + [True]
    with pytest.raises(errors.OccamRLError, match="reset"):
        env.unwrapped.step(0)


AGENTS: dict[str, Callable[[], orl.Learner]] = {
    "counting": lambda: Counting(),
    "selector": lambda: orl.ARLGen(ladder=LAKE.ladder),
}


@pytest.mark.parametrize("name", AGENTS)
def test_twice_n_is_once_2n_to_the_bit_and_so_is_a_file_between(name: str, tmp_path: Path) -> None:
    def play(episodes: int, **options: Any) -> orl.Result:
        agent = AGENTS[name]()
        return orl.learn(
            agent, gym.make("FrozenLake-v1"), episodes=episodes, known=LAKE.known, **options
        )

    whole = play(24, seed=4)
    half = play(10, seed=4)
    assert alike(play(14, continue_from=half), whole)
    assert half.total_episodes == 10  # what was continued is as it was
    for episodes in (3, 24, 24):  # in the middle of blocks; the last finds everything done
        resumed = play(episodes, seed=4, checkpoint=tmp_path / "a.npz")
    assert alike(resumed, whole)


def test_pauses_for_checkpoints_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = orl.learn(Counting(), Plant(), episodes=30, known=MDP.known)
    monkeypatch.setattr("occamrl.running.learn.AT_A_TIME", 0.0)
    often: Options = {"checkpoint": tmp_path / "a.npz", "checkpoint_seconds": 0.0}
    assert alike(orl.learn(Counting(), Plant(), episodes=30, known=MDP.known, **often), whole)
    assert alike(orl.Result.load(tmp_path / "a.npz"), whole)
    assert not alike(orl.learn(Counting(), Plant(), episodes=30, known=MDP.known, seed=1), whole)


def test_replaying_is_not_learning_and_finds_who_ignores_the_seed() -> None:
    options: Options = {"episodes": 9, "known": MDP.known}
    quiet = orl.learn(learner(), Plant("seed"), replay=False, **options)
    assert quiet.total_episodes == 9
    replayed = orl.learn(learner(), Plant(), replay=True, **options)
    assert alike(replayed, orl.learn(learner(), Plant(), replay=False, **options))
    with pytest.raises(errors.EnvironmentFault) as caught:
        orl.learn(learner(), Plant("seed"), **options)
    assert caught.value.result.total_episodes == 1
    assert caught.value.index == (0,)


def test_callbacks_are_told_every_episode_and_can_stop() -> None:
    class Watch(Callback):
        def __init__(self) -> None:
            self.reports: list[EpisodeReport] = []
            self.started: Any = None
            self.ended: Any = None

        def on_start(self, about: Any) -> None:
            self.started = dict(about)

        def on_episode(self, report: EpisodeReport) -> bool:
            self.reports.append(report)
            return report.episode < 10

        def on_end(self, result: Any) -> None:
            self.ended = result

    watch = Watch()
    seen: list[EpisodeReport] = []
    env = gym.make("FrozenLake-v1")
    callbacks = [watch, seen.append]
    result = orl.learn(Counting(), env, episodes=50, known=LAKE.known, callbacks=callbacks)
    assert [report.episode for report in watch.reports] == list(range(1, 11))
    assert [report.episode for report in seen] == list(range(1, 11))
    np.testing.assert_array_equal([report.realised_return for report in seen], result.returns)
    np.testing.assert_array_equal([report.regret for report in seen], result.regret)
    assert [report.facts["block"] for report in seen] == [0] * 7 + [1] * 3
    assert watch.started["environment"] == "FrozenLake-v1"
    assert watch.ended.total_episodes == result.total_episodes == 10

    def broken(report: EpisodeReport) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        orl.learn(Counting(), env, episodes=50, known=LAKE.known, callbacks=[broken, watch])
    assert watch.ended.total_episodes == 1
    with pytest.raises(errors.ParameterError, match="callbacks"):
        orl.learn(Counting(), env, episodes=5, known=LAKE.known, callbacks=[3])


def test_ctrl_c_is_taken_at_an_episode_boundary_and_the_run_goes_on_to_the_bit() -> None:
    agent = Counting()
    options: Options = {"known": MDP.known, "replay": False}
    with pytest.raises(orl.Interrupted) as caught:
        orl.learn(agent, Plant("Ctrl-C"), episodes=20, **options)
    result = cast(orl.Result, caught.value.result)
    assert result.total_episodes == 4
    continued = orl.learn(agent, Plant(), episodes=16, continue_from=result, **options)
    assert alike(continued, orl.learn(agent, Plant(), episodes=20, **options))


def test_a_second_ctrl_c_does_not_wait_for_the_environment(tmp_path: Path) -> None:
    options: Options = {"known": MDP.known, "replay": False, "checkpoint": tmp_path / "a.npz"}
    with pytest.raises(orl.Interrupted) as caught:
        orl.learn(Counting(), Plant("Ctrl-C twice"), episodes=20, **options)
    result = cast(orl.Result, caught.value.result)
    assert result.total_episodes == 4
    assert result.state["counts"].sum() == 3 * MDP.horizon + 1
    assert orl.learn(Counting(), Plant(), episodes=20, **options).total_episodes == 20


FAULTS: list[tuple[str, type[errors.EnvironmentFault], str]] = [
    ("nan", errors.EnvironmentFault, "got nan"),
    ("other", errors.EnvironmentFault, "known reward"),
    ("observation", errors.SpaceError, "got 4"),
    ("exception", errors.EnvironmentFault, "the pump is stuck"),
    ("truncation", errors.EnvironmentFault, "after 2 steps"),
    ("reset", errors.EnvironmentFault, "the pump is stuck"),
]


@pytest.mark.parametrize(
    ("fault", "kind", "message"), FAULTS, ids=[fault for fault, _, _ in FAULTS]
)
def test_a_fault_is_told_with_its_place_and_nothing_is_lost(
    fault: str, kind: type[errors.EnvironmentFault], message: str, tmp_path: Path
) -> None:
    options: Options = {"known": MDP.known, "replay": False}
    with pytest.raises(kind, match=message) as caught:
        orl.learn(Counting(), Plant(fault), episodes=9, checkpoint=tmp_path / "a.npz", **options)
    result = caught.value.result
    if fault == "reset":
        assert (caught.value.index, result.total_episodes) == ((3,), 3)
    else:
        assert (caught.value.index, result.total_episodes) == ((3, 1), 4)
    if fault == "truncation":
        wanted = orl.learn(Counting(), Plant(fault), episodes=9, allow_truncation=True, **options)
        assert wanted.state["counts"].sum() == 8 * MDP.horizon + 2
    # What was learned is what a plant without fault would have taught in these steps, and no more.
    steps = {"truncation": 2, "reset": 0}.get(fault, 1)
    before = orl.learn(Counting(), Plant(), episodes=3, **options).state["counts"]
    whole = orl.learn(Counting(), Plant(), episodes=4, **options).state["counts"]
    gained = result.state["counts"] - before
    assert gained.sum() == steps
    np.testing.assert_array_equal(gained[:steps], (whole - before)[:steps])
    # It was saved, and goes on from either.
    loaded = orl.Result.load(tmp_path / "a.npz")
    assert alike(loaded, result)
    one = orl.learn(Counting(), Plant(), episodes=5, continue_from=result, **options)
    other = orl.learn(Counting(), Plant(), episodes=5, continue_from=loaded, **options)
    assert alike(one, other)
    assert one.total_episodes == result.total_episodes + 5


class Ending(Plant):
    """Stays where it is, earns nothing, and terminates after its first step."""

    def step(self, action: int) -> Stepped:
        return self.s, 0.0, True, False, {}


def test_an_end_in_a_state_from_which_others_went_on_is_no_end() -> None:
    def known(states: int) -> orl.Known:
        reward = np.zeros((states, 2))
        reward[3] = 1.0
        kernel = np.full((states, 2, states), 1.0 / states)
        return orl.FiniteMDP(transition=kernel, reward=reward, horizon=6).known

    with pytest.raises(errors.TableError, match="one state more"):
        orl.learn(Counting(), Ending(), episodes=50, known=known(4))
    # the last state is the end, and the rest of the horizon is spent there
    result = orl.learn(Counting(), Ending(), episodes=50, known=known(5))
    counts = result.state["counts"]
    assert counts[0, 0, :, 4].sum() == 50
    assert (counts[1:, 4, :, 4].sum(axis=1) == 50).all()
    assert counts.sum() == 300


class Casino(Plant):
    """Pays ``low`` or ``high`` at random, with the means of MDP."""

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__()
        self.low = low
        self.scale = high - low

    def step(self, action: int) -> Stepped:
        lucky = self.np_random.random() < REWARD[self.s, action]
        observation, _, ended, truncated, info = super().step(action)
        return observation, self.low + self.scale * float(lucky), ended, truncated, info


def test_unknown_random_rewards_are_estimated_in_the_unit_of_the_environment() -> None:
    inner = orl.UCRLVTRLin(features=orl.FeatureMap.tabular(states=4, actions=2), norm_bound=2.0)
    agent = orl.RewardsPerPair(agent=inner)
    plain = orl.learn(agent, Casino(), episodes=40, known=SIZES)
    money_range = (-4.0, 12.0)
    money = orl.learn(
        agent, Casino(*money_range), episodes=40, known=SIZES, reward_range=money_range
    )
    assert same(money.state, plain.state)
    np.testing.assert_allclose(money.returns, 16.0 * plain.returns - 4.0 * 6, atol=1e-9)
    assert plain.regret is None
    assert "no table" in plain.environment.why_not
    assert plain.state["count"].sum() == 40 * 6
    means = plain.state["total"] / np.maximum(plain.state["count"], 1)
    often = plain.state["count"] >= 20
    spread = 0.5 / np.sqrt(plain.state["count"][often])
    assert (np.abs(means - REWARD.ravel())[often] < 4.0 * spread).all()
    with pytest.raises(errors.EnvironmentFault, match="reward_range"):
        orl.learn(agent, Casino(-4.0, 12.0), episodes=40, known=SIZES)
    # known rewards are no random ones, and a learner that needs them is not left to guess
    with pytest.raises(errors.EnvironmentFault, match="RewardsPerPair"):
        orl.learn(learner(), Casino(), episodes=60, known=MDP.known)
    with pytest.raises(errors.ParameterError):
        orl.learn(inner, Casino(), episodes=40, known=SIZES)


def test_noisy_problems_have_exact_regret_of_the_means() -> None:
    env = ProblemEnv(NoisyProblem(MDP, "bernoulli"))
    result = orl.learn(orl.UniformRandom(), env, episodes=20)
    exact = orl.run(orl.UniformRandom(), MDP, episodes=20)
    np.testing.assert_allclose(result.regret, exact.regret[0], rtol=1e-12)
    assert set(np.unique(result.returns)) <= set(range(7))


def test_the_agents_own_verbs(tmp_path: Path) -> None:
    agent = orl.Agent(Counting(), gym.make("FrozenLake-v1"), seed=4, known=LAKE.known)
    assert agent.predict(0)[1] == 1  # nothing learned yet
    agent.learn(11).learn(12)
    whole = orl.learn(Counting(), gym.make("FrozenLake-v1"), episodes=23, seed=4, known=LAKE.known)
    assert alike(agent.result, whole)
    policy = agent.policy()
    state = None
    for h, observation in enumerate([0, 4, 8, 9]):
        action, state = agent.predict(observation, state)
        assert (action, state) == (policy[h, observation], h + 1)
    assert agent.predict(4, state, episode_start=True) == (policy[0, 4], 1)
    for bad in (12, -1, "x", (1, 2), 0.5):
        with pytest.raises(errors.ParameterError, match="state"):
            agent.predict(0, cast(Any, bad))
    agent.save(tmp_path / "a.npz")
    loaded = orl.Agent.load(tmp_path / "a.npz")
    assert loaded.predict(4, 2) == agent.predict(4, 2)
    continued = loaded.learn(9, env=gym.make("FrozenLake-v1")).result
    assert alike(continued, agent.learn(9).result)


class Slide(Plant):
    """Plant, seen as a number in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Began:
        s, info = super().reset(seed=seed)
        return np.array([(s + 0.5) / 4]), info

    def step(self, action: int) -> Stepped:
        s, reward, ended, truncated, info = super().step(action)
        return np.array([(s + 0.5) / 4]), reward, ended, truncated, info


def test_learning_in_cells_is_learning_in_states_and_a_loaded_agent_brings_them_along(
    tmp_path: Path,
) -> None:
    cells = orl.Discretiser.uniform(Slide().observation_space, 4)
    agent = orl.Agent(learner(), Slide(), known=MDP.known, discretiser=cells)
    agent.learn(8).save(tmp_path / "a.npz")
    again = orl.Agent.load(tmp_path / "a.npz").learn(12, env=Slide())
    plain = orl.learn(learner(), Plant(), episodes=20, known=MDP.known)
    assert alike(again.result, plain)
    with pytest.raises(errors.SpaceError, match="discretiser"):
        orl.learn(learner(), Slide(), episodes=5, known=MDP.known)


class Stairs(gym.Env[Any, Any]):
    """A way up four steps and out, seen as (side, step); a model lists states in another order."""

    observation_space = spaces.MultiDiscrete([2, 5])
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Began:
        super().reset(seed=seed)
        self.side = 1
        self.height = 2
        return np.array([self.side, self.height]), {}

    def step(self, action: int) -> Stepped:
        lucky = self.np_random.random() < 0.4
        reward = -0.5 * int(action) - 0.1 * self.side
        ended = lucky and self.height == 3
        if ended:
            reward += 5.0
        self.height = min(self.height + 1, 4) if lucky else max(self.height - 1, 0)
        if action:
            self.side = 1 - self.side
        return np.array([self.side, self.height]), reward, ended, False, {}


def stairs(state: Any, action: int, *, luck: float, drift: float = 0.0) -> Any:
    side, height = state
    up = luck + drift * side
    next_side = 1 - side if action else side
    cost = -0.5 * action - 0.1 * side
    ended = height >= 3
    yield up, (next_side, min(height + 1, 4)), 5.0 * ended + cost, ended
    yield 1 - up, (next_side, max(height - 1, 0)), cost, False


def test_an_environment_is_read_in_the_names_of_a_model(tmp_path: Path) -> None:
    bounds = {"luck": (0.1, 0.6), "drift": (0.0, 0.3)}
    model = orl.Model(stairs, start=(1, 2), actions=[1, 0], horizon=12, parameters=bounds)
    assert sorted(model.states[:-1]) != model.states[:-1]
    ladder = model.ladder({"level": ["luck"], "tilted": ["luck", "drift"]})
    agent = orl.Agent(orl.Occam(ladder=ladder), Stairs())
    answer = agent.learn(60).answer
    assert answer.model == "level"
    assert not answer.judgement.novel
    assert answer.parameters["luck"].low < 0.4 < answer.parameters["luck"].high
    assert answer.interval[0] < answer.worth_of(lambda state: state[0]).value
    for s, state in enumerate(model.states[:3]):
        assert agent.predict(np.array(state))[0] == model.actions[agent.policy()[0, s]]
    agent.save(tmp_path / "stairs.npz")
    agent = orl.Agent.load(tmp_path / "stairs.npz", agent.algorithm, env=Stairs()).learn(5)

    estimating = orl.RewardsPerPair(agent=agent.algorithm)
    options: Options = {"known": model.known.without_rewards, "reward_range": (-1, 5)}
    with pytest.raises(errors.ParameterError, match="without RewardsPerPair"):
        orl.learn(estimating, Stairs(), episodes=5, **options)

    class Tabled(Stairs):
        def __init__(self) -> None:
            # in numbers of its own
            self.P = {s: {a: [(1.0, s, 0.0, False)] for a in range(3)} for s in range(10)}

    assert orl.learn(agent.algorithm, Tabled(), episodes=2).environment.why_not

    class Higher(Stairs):
        def step(self, action: int) -> Stepped:
            _, reward, ended, truncated, info = super().step(action)
            return np.array([0, 5]), reward, ended, truncated, info

    Higher.observation_space = spaces.MultiDiscrete([2, 6])
    with pytest.raises(errors.SpaceError, match="your models list") as caught:
        orl.learn(agent.algorithm, Higher(), episodes=5)
    assert caught.value.index == (0, 0)


def test_what_does_not_fit_is_named() -> None:
    result = orl.learn(learner(), Plant(), episodes=5, known=MDP.known)
    simulated = orl.run(learner(), MDP, episodes=5)
    other = orl.FiniteMDP(transition=KERNELS[0], reward=0.5 * REWARD, horizon=6).known
    shorter = orl.FiniteMDP(
        transition=KERNELS[0, :3, :, :3] * 0 + 1 / 3, reward=REWARD[:3], horizon=6
    ).known
    cases: list[tuple[str, Options]] = [
        ("known", {"known": MDP}),
        ("known", {"known": shorter}),
        ("seed", {"known": MDP.known, "seed": "a"}),
        ("episodes", {"known": MDP.known, "episodes": 0}),
        ("horizon", {"known": MDP.known, "horizon": 5}),
        ("horizon", {}),
        ("reward_range", {"known": MDP.known, "reward_range": (1.0, 0.0)}),
        ("seed", {"known": MDP.known, "seed": 1, "continue_from": result}),
        ("continue_from", {"known": other, "continue_from": result}),
        ("continue_from", {"known": MDP.known, "continue_from": simulated}),
    ]
    for name, options in cases:
        with pytest.raises(errors.InvalidInput) as caught:
            orl.learn(learner(), options.pop("env", Plant()), **{"episodes": 2, **options})
        assert caught.value.field == name
    with pytest.raises(errors.ParameterError, match="time limit"):
        FiniteEnvironment(gym.make("FrozenLake-v1"), horizon=101)


CLASSES = """
horizon = 6
reward = "reward.npz"
[[classes]]
name = "one"
kernels = "one.npz"
[[classes]]
name = "more"
kernels = ["more.npz", "last.npz"]
"""
MIXED = "horizon = 2\n[[classes]]\nenvironments = ['FrozenLake-v1']\n[[classes]]\nmixtures = 4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code.npz").write_bytes(pickle.dumps([1]))
    np.savez(tmp_path / "reward.npz", r=REWARD)
    np.savez(tmp_path / "one.npz", KERNELS[0])
    np.savez(tmp_path / "three.npz", np.full((3, 2, 3), 1.0 / 3.0))
    np.savez(tmp_path / "more.npz", KERNELS[1:4])
    np.savez(tmp_path / "last.npz", KERNELS[4])
    np.savez(tmp_path / "two.npz", a=KERNELS[1:4], b=KERNELS[4])
    return tmp_path


def read(folder: Path, text: str, **options: Any) -> LadderSpec:
    (folder / "ladder.toml").write_text(text)
    return orl.read_ladder(folder / "ladder.toml", **options)


def test_classes_of_kernels_add_up(folder: Path) -> None:
    spec = read(folder, CLASSES)
    assert spec.names == ("one", "more")
    assert spec.ladder.sizes == [1, 5]
    np.testing.assert_array_equal(spec.known.base_reward, REWARD)
    truths = [orl.FiniteMDP(transition=kernel, reward=REWARD, horizon=6) for kernel in KERNELS]
    assert [spec.ladder.class_of(mdp) for mdp in truths] == [1, 2, 2, 2, 2]
    assert read(folder, CLASSES, horizon=3).known.horizon == 3
    np.savez(folder / "reward.npz", r=10.0 * REWARD - 4.0)
    money = read(folder, "reward_range = [-4.0, 6.0]\n" + CLASSES)
    np.testing.assert_allclose(money.known.base_reward, REWARD, rtol=0, atol=1e-12)
    assert not read(folder, CLASSES.replace('reward = "reward.npz"', "")).known.rewards_known


@pytest.mark.parametrize("name", shipped_ladders())
def test_shipped_ladders_hold_gymnasiums_environments_in_the_right_class(name: str) -> None:
    spec = orl.read_ladder(name, horizon=5)
    truths: dict[str, list[tuple[str, Options, int]]] = {
        "frozen-lake-4x4": [("FrozenLake-v1", {}, 2), ("FrozenLake-v1", {"is_slippery": False}, 1)],
        "frozen-lake-8x8": [("FrozenLake-v1", {"map_name": "8x8", "success_rate": 0.8}, 2)],
        "cliff-walking": [
            ("CliffWalking-v1", {}, 1),
            ("CliffWalking-v1", {"is_slippery": True}, 2),
        ],
        "taxi": [("Taxi-v4", {}, 1), ("Taxi-v4", {"is_rainy": True}, 2)],
    }
    for environment, options, m in truths[name]:
        env = gym.make(environment, **options)
        finite = FiniteEnvironment(env, known=spec.known, reward_range=spec.rewards)
        assert finite.mdp is not None
        assert spec.ladder.class_of(finite.mdp) == m


@pytest.mark.parametrize(
    "text",
    [
        "",
        CLASSES + 'problem = "frozen-lake"',
        'problem = "frozen-lake"\nparameters = 3',
        'problem = "frozen-lake"\nparameters = { slip = [40, 3] }',
        CLASSES.replace("horizon = 6", ""),
        CLASSES.replace("one.npz", "none.npz"),
        CLASSES.replace("one.npz", "../one.npz"),
        CLASSES.replace("one.npz", "code.npz"),
        CLASSES.replace("one.npz", "three.npz"),
        CLASSES.replace("one.npz", "two.npz"),
        CLASSES + '[[classes]]\nenvironments = "FrozenLake-v1"',
        "horizon = 3\nclasses = 3",
        "horizon = 3\n[[classes]]\nmixtures = 3",
        MIXED.replace("mixtures = 4", "mixtures = 100000"),
        MIXED.replace("FrozenLake-v1", "os:FrozenLake-v1"),
        MIXED.replace("'FrozenLake-v1'", "{ id = 'FrozenLake-v1', depth = 3 }"),
        MIXED.replace("FrozenLake-v1", "Blackjack-v1"),
        "reward_range = [0.0, 0.5]\n" + MIXED,
        "reward = 'reward.npz'\n" + MIXED,
    ],
)
def test_a_bad_ladder_file_is_refused(text: str, folder: Path) -> None:
    with pytest.raises(errors.InvalidInput):
        read(folder, text)


def test_a_file_that_is_not_there_is_told_with_the_nearest_name() -> None:
    with pytest.raises(errors.InvalidInput, match="did you mean 'frozen-lake-4x4'"):
        orl.read_ladder("frozenlake-4x4")

"""Flows are the law of episodes; cuts and continuations change nothing; results are exact."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import occamrl as orl
from occamrl.addresses import generator
from occamrl.checks import leaves
from occamrl.envs import ProblemEnv
from occamrl.evidence.starts import law_of_starts
from occamrl.models.model import Model
from occamrl.progress import Progress, time_left
from occamrl.protocols import Ints, State
from occamrl.running.flow import PolicyArray, divide, play, simulate

Options = dict[str, Any]


def tiny(**changes: object) -> orl.FiniteMDP:
    """Two states, two actions, three steps; rewards on transitions, a random start."""
    P = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.0, 1.0]]])
    r = np.array([[[0.1, 0.9], [0.3, 0.3]], [[0.0, 1.0], [0.5, 0.2]]])
    options: Options = {"horizon": 3, "initial_state": [0.6, 0.4], **changes}
    return orl.FiniteMDP(transition=P, reward=r, **options)


def path_law(mdp: orl.FiniteMDP, policy: Ints) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of states, by enumeration; of a stationary kernel."""
    P = mdp.kernel()
    law = {}
    for states in itertools.product(range(mdp.states), repeat=mdp.horizon + 1):
        p = mdp.initial_distribution[states[0]]
        for h in range(mdp.horizon):
            p *= P[states[h], policy[h, states[h]], states[h + 1]]
        law[states] = p
    return law


@pytest.mark.parametrize("episodes", [1, 7])
def test_visits_have_the_law_of_independent_episodes(episodes: int) -> None:
    mdp = tiny()
    policy = np.array([[0, 1], [1, 0], [0, 0]])
    n = 6_000 // episodes
    draw = np.random.default_rng(0)
    last = Counter[int]()
    totals = np.zeros((3, 2, 2))
    for _ in range(n):
        flow = simulate(mdp, policy, episodes, draw)
        assert flow.episodes == episodes
        np.add.at(totals, (flow.step, flow.state, flow.next_state), flow.count)
        final = flow.step == 2
        last[int(flow.count[final & (flow.next_state == 1)].sum())] += 1
    expected = np.zeros_like(totals)
    for states, p in path_law(mdp, policy).items():
        for h in range(3):
            expected[h, states[h], states[h + 1]] += p
    for h in range(3):
        cells = expected[h] > 0
        observed = totals[h][cells]
        assert stats.chisquare(observed, n * episodes * expected[h][cells]).pvalue > 1e-4
    # Episodes are independent: not only the means agree.
    p_end = sum(p for states, p in path_law(mdp, policy).items() if states[-1] == 1)
    binomial = n * stats.binom.pmf(np.arange(episodes + 1), episodes, p_end)
    seen = np.array([last[k] for k in range(episodes + 1)])
    assert stats.chisquare(seen, binomial).pvalue > 1e-4


def test_random_policies_and_coins_keep_their_means() -> None:
    mdp = tiny(reward_noise="bernoulli")
    policy = np.random.default_rng(1).dirichlet(np.ones(2), size=(3, 2))
    n = 10**10
    flow = simulate(mdp, policy, n, np.random.default_rng(2))
    assert set(np.unique(flow.reward)) == {0.0, 1.0}
    value = float(mdp.initial_distribution @ mdp.evaluate(policy)[0])
    assert abs(flow.reward @ flow.count / n - value) < 6 * 3 / np.sqrt(n)


def test_what_cannot_happen_never_does() -> None:
    rows = np.array([[0.1, 0.2, 0.7, 0.0], [1.0 / 3, 1.0 / 3, 1.0 / 3, 0.0], [0.0, 1.0, 0.0, 0.0]])
    for k in range(200):
        counts = divide(np.full(3, 10**15), rows, np.random.default_rng(k))
        assert (counts.sum(axis=1) == 10**15).all()
        assert not counts[rows == 0.0].any()


def test_regret_of_a_block_is_the_gap_of_its_starts() -> None:
    mdp = tiny()

    class Fixed(orl.Learner):
        def begin(self, known: orl.Known) -> State:
            return {"starts": np.zeros(2)}

        def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
            return orl.Plan(policy=np.zeros((3, 2), dtype=np.int64), episodes=50)

        def learn(self, known: orl.Known, state: State, plan: orl.Plan, flow: orl.Flow) -> None:
            np.add.at(state["starts"], flow.state[flow.step == 0], flow.count[flow.step == 0])

    result = orl.run(Fixed(), mdp, episodes=120, seed=4)
    gap = mdp.optimal_values[0] - mdp.evaluate(np.zeros((3, 2), dtype=np.int64))[0]
    assert result.total_regret == pytest.approx(float(result.state["starts"] @ gap))
    assert result.plans == 3
    assert result.state["starts"].sum() == 120


@pytest.mark.parametrize("ends", [[1, 2, 3, 17, 40], [39], [10, 11, 12, 13]])
def test_pieces_equal_the_whole(ends: list[int]) -> None:
    agent = Pacing()
    mdp = tiny()
    whole = orl.run(agent, mdp, episodes=64, seed=3)
    part = None
    done = 0
    for end in [*ends, 64]:
        part = orl.run(agent, mdp, episodes=end - done, seed=3, continue_from=part)
        done = part.total_episodes
        assert done == end
    assert part is not None
    assert part.blocks.episodes == whole.blocks.episodes
    assert part.blocks.regret == whole.blocks.regret
    assert part.blocks.returns == whole.blocks.returns
    assert np.array_equal(part.state["visits"], whole.state["visits"])
    assert part.phase_rows == whole.phase_rows


class Pacing(orl.Learner):
    """Blocks of growing length under policies that are drawn."""

    def begin(self, known: orl.Known) -> State:
        return {"visits": np.zeros((known.horizon, known.states), np.int64)}

    def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
        played = int(state["visits"][0].sum())
        policy = draw.integers(known.actions, size=(known.horizon, known.states))
        return orl.Plan(policy=policy, episodes=1 + played // 2, facts={"half": played >= 32})

    def learn(self, known: orl.Known, state: State, plan: orl.Plan, flow: orl.Flow) -> None:
        np.add.at(state["visits"], (flow.step, flow.state), flow.count)


def test_results_are_read_off_blocks() -> None:
    result = orl.run(Pacing(), tiny(), episodes=64, seed=5)
    assert result.episodes.tolist() == list(range(1, 65))
    assert np.allclose(np.cumsum(result.regret), result.cumulative_regret)
    assert result.regret_at(64) == result.total_regret == result.cumulative_regret[-1]
    assert np.array_equal(result.regret_at(np.arange(1, 65)), result.cumulative_regret)
    assert result.regret_at(0) == 0.0
    assert result.return_at(64) == pytest.approx(result.total_return)
    assert f"The last 6 episodes earned {result.returns[-6:].mean():.4g} each" in str(
        result.verdict
    )
    phases = result.phases.to_pylist()
    assert [row["half"] for row in phases] == [False, True]
    assert phases[0]["first"] == 1
    assert phases[1]["first"] == 1 + phases[0]["episodes"]
    assert sum(row["regret"] for row in phases) == pytest.approx(result.total_regret)
    with pytest.raises(orl.InvalidInput):
        result.regret_at(65)


def test_a_quadrillion_episodes() -> None:
    result = orl.run(orl.UniformRandom(), tiny(initial_state=0), episodes=10**15)
    gap = result.regret_at(1)
    assert result.regret_at(10**14) == pytest.approx(10**14 * gap, rel=1e-12)
    assert result.cumulative_regret.size == result.episodes.size < 20_000
    assert np.all(np.diff(result.cumulative_regret) > 0.0)
    assert f"The last {10**14:,} episodes" in str(result.verdict)


class Choosing(Pacing):
    """Says what it chose."""

    def __init__(self, facts: Options) -> None:
        self.facts = facts

    def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
        return replace(super().plan(known, state, draw), facts=self.facts)


@pytest.mark.parametrize(
    ("facts", "claim"),
    [
        ({"chosen": 3}, "class 3, since episode 1 of 20"),
        ({"chosen": 2, "names": ["a", "b", "c"]}, "'b' (second of three models), since"),
        ({"chosen": 2, "names": ["a", "b"], "because": "It costs less."}, "It costs less."),
        ({"chosen": [0, 2]}, "[0, 2], since episode 1 of 20"),
        ({"plays": [1, 2]}, "Choosing reports no choice"),
        ({"mine": 1}, "Choosing reports no choice"),
        ({"norm_bound": 2.0}, "at most 2,"),
    ],
)
def test_a_verdict_claims_no_more_than_the_facts(facts: Options, claim: str) -> None:
    text = str(orl.run(Choosing(facts), tiny(), episodes=20).verdict)
    assert claim in text
    assert "ruled out" not in text
    assert "You need" not in text


def test_only_a_test_rules_classes_out() -> None:
    agent = Choosing({"chosen": 2, "names": ["a", "b"], "statistics": [3.0, 1.0], "threshold": 2.0})
    assert "'a' was ruled out" in str(orl.run(agent, tiny(), episodes=20).verdict)


@pytest.mark.parametrize("power", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("total", [10**6, 10**12])
def test_the_time_left_of_work_that_grows_as_a_power_of_time_is_right(
    power: float, total: int
) -> None:
    """A job of 100 seconds; one whose work doubles every second is done sooner than is said."""
    past = [(second, round(total * (second / 100.0) ** power)) for second in range(1, 51)]
    known = [(float(second), done) for second, done in past if done]
    left = time_left(known, total)
    assert left == pytest.approx(50.0, rel=0.1)
    doubling = [(float(n), 2**n) for n in range(1, 21)]
    left = time_left(doubling, 2**40)
    assert left is not None
    assert 20.0 < left < 80.0
    assert time_left([(3.0, 0)], total) is None


def test_progress_never_exceeds_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progress("job", 30, True)
    for done in (10, 94):
        bar._due = 0.0
        bar.update(done)
    bar.close()
    printed = capsys.readouterr().err
    assert "(33%)" in printed
    assert "313" not in printed
    assert "94 episodes" in printed


def test_addresses_do_not_depend_on_history() -> None:
    first = generator(1, "agent", 10).random(3)
    generator(1, "agent", 9).random(100)
    assert np.array_equal(first, generator(1, "agent", 10).random(3))
    others = [
        generator(*address).random()
        for address in ((1, "agent", 11), (2, "agent", 10), (1, "environment", 10))
    ]
    assert len({first[0], *others}) == 4


class Broken(Pacing):
    def __init__(self, plan: Any) -> None:
        self.broken = plan

    def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
        plan: orl.Plan = self.broken
        return plan


BAD_PLANS: Options = {
    "no plan": np.zeros((3, 2), int),
    "shape": orl.Plan(policy=np.zeros((2, 3), int)),
    "action": orl.Plan(policy=np.full((3, 2), 2)),
    "floats": orl.Plan(policy=np.zeros((3, 2))),
    "sums": orl.Plan(policy=np.full((3, 2, 2), 0.6)),
    "negative": orl.Plan(policy=np.tile([1.5, -0.5], (3, 2, 1))),
    "length": orl.Plan(policy=np.zeros((3, 2), int), episodes=0),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_bad_plans_are_refused(name: str) -> None:
    with pytest.raises(orl.InvalidInput, match="plan"):
        orl.run(Broken(BAD_PLANS[name]), tiny(), episodes=5)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"agent": orl.UniformRandom}, "agent"),
        ({"agent": 3}, "agent"),
        ({"episodes": 0}, "episodes"),
        ({"episodes": 10**16}, "episodes"),
        ({"episodes": 1.5}, "episodes"),
        ({"seed": -1}, "seed"),
        ({"mdp": "river"}, "mdp"),
    ],
)
def test_bad_calls_are_refused(arguments: Options, field: str) -> None:
    call = {"agent": orl.UniformRandom(), "mdp": tiny(), "episodes": 5, **arguments}
    with pytest.raises(orl.InvalidInput) as caught:
        orl.run(call.pop("agent"), call.pop("mdp"), **call)
    assert caught.value.field == field


def test_another_problem_or_seed_is_no_continuation() -> None:
    half = orl.run(orl.UniformRandom(), tiny(), episodes=5)
    with pytest.raises(orl.InvalidInput, match="continue_from"):
        orl.run(orl.UniformRandom(), tiny(horizon=4), episodes=5, continue_from=half)
    with pytest.raises(orl.InvalidInput, match="seed"):
        orl.run(orl.UniformRandom(), tiny(), episodes=5, seed=9, continue_from=half)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    episodes=st.integers(1, 10**12),
    states=st.integers(1, 5),
    random=st.booleans(),
)
def test_visitors_are_conserved_and_flows_join(
    seed: int, episodes: int, states: int, random: bool
) -> None:
    draw = np.random.default_rng(seed)
    P = draw.dirichlet(np.full(states, 0.3), size=(states, 2))
    mdp = orl.FiniteMDP(
        transition=P, reward=draw.random((states, 2, states)), horizon=4, initial_state=P[0, 0]
    )
    policy: PolicyArray = draw.integers(2, size=(4, states))
    if random:
        policy = draw.dirichlet(np.ones(2), size=(4, states))
    flow = simulate(mdp, policy, episodes, draw)
    enters = np.zeros((5, states), dtype=np.int64)
    np.add.at(enters, (flow.step + 1, flow.next_state), flow.count)
    leaves = np.zeros((4, states), dtype=np.int64)
    np.add.at(leaves, (flow.step, flow.state), flow.count)
    assert (leaves.sum(axis=1) == episodes).all()  # everybody takes every step,
    assert np.array_equal(leaves[1:], enters[1:4])  # from where the last one led
    assert (mdp.evaluate(policy)[0] <= mdp.optimal_values[0] + 1e-9).all()
    both = orl.Flow.joined([flow, flow])
    assert both.episodes == 2 * episodes
    assert both.count.sum() == 2 * flow.count.sum()
    assert len(both.step) <= len(flow.step)
    assert both.reward @ both.count == pytest.approx(2 * (flow.reward @ flow.count))
    pair = flow.state * 2 + flow.action
    bonus = flow.reward - mdp.base_reward[pair]
    outcome = mdp.outcomes.index_of(pair, flow.next_state, bonus, states)
    assert (outcome >= 0).all()
    assert np.array_equal(mdp.outcomes.next_state[outcome], flow.next_state)


# Units, discounts and names -----------------------------------------------------------------------


def shop(
    stock: int, order: int, *, chance: float = 0.5
) -> Iterator[tuple[float, int, float, bool]]:
    """A shelf of at most two; a sale pays 7, a unit on the shelf costs 1.5 a night."""
    filled = stock + order
    cost = 1.5 * filled + 2.0 * order
    yield 1.0 - chance, filled, -cost, False
    if filled:
        yield chance, filled - 1, 7.0 - cost, False
    else:
        yield chance, 0, -cost, False


def orders(stock: int) -> list[int]:
    return list(range(3 - stock))


def small_model(**changes: object) -> Model:
    options: Options = {"start": {0: 0.3, 1: 0.7}, "actions": orders, "horizon": 3, **changes}
    return Model(shop, parameters={"chance": (0.1, 0.9)}, **options)


def expected_return(model: Model, policy: Ints, stock: int, chance: float) -> float:
    """What a policy earns from a stock, in the user's unit, as the sum over all paths."""
    names = model.names
    mdp = model.mdp(chance=chance)
    paths = [(1.0, stock, 0.0)]
    for h in range(mdp.horizon):
        longer = []
        for p, s, earned in paths:
            a = names.actions[policy[h, names.states.index(s)]]
            for q, next_stock, reward, _ in shop(s, a, chance=chance):
                longer.append((p * q, next_stock, earned + mdp.known.discount**h * reward))
        paths = longer
    return float(sum(p * earned for p, _, earned in paths))


def every_policy(mdp: orl.FiniteMDP) -> Iterator[Ints]:
    """All policies of allowed actions that do the same at every step."""
    choices = [np.flatnonzero(row) for row in mdp.known.allowed]
    for actions in itertools.product(*choices):
        yield np.tile(actions, (mdp.horizon, 1))


@pytest.mark.parametrize("discount", [1.0, 0.6])
def test_a_run_speaks_the_users_unit(discount: float) -> None:
    model = small_model(discount=discount)
    mdp = model.mdp(chance=0.4)
    names = model.names
    law = {0: 0.3, 1: 0.7}
    policies = list(every_policy(mdp))
    for policy in policies:
        values = {s: expected_return(model, policy, s, 0.4) for s in law}
        assert mdp.value(policy) == pytest.approx(sum(p * values[s] for s, p in law.items()))
    policy = policies[0]
    result = orl.run(Always(policy), mdp, episodes=20_000, seed=1)
    earned = (
        expected_return(model, policy, 0, 0.4) * 0.3 + expected_return(model, policy, 1, 0.4) * 0.7
    )
    assert result.returns.mean() == pytest.approx(earned, abs=0.2)
    lost = 0.0
    for s in law:
        gap = best(mdp, model, s) - expected_return(model, policy, s, 0.4)
        lost += result.state["starts"][names.states.index(s)] * gap
    assert result.total_regret == pytest.approx(lost)
    assert f"{result.total_regret:,.4g}" in str(result.verdict)
    truth = orl.FiniteFamily(parameters=np.eye(1), features=orl.FeatureMap.of_simulators([mdp]))
    informed = orl.run(orl.PSRL(ladder=orl.Ladder([truth])), mdp, episodes=10)
    assert informed.total_regret == pytest.approx(0.0, abs=1e-9)
    promised = mdp.known.amount(informed.next_plan.values)[0]
    assert [promised[names.states.index(s)] for s in law] == pytest.approx(
        [best(mdp, model, s) for s in law]
    )
    assert result.policy_table().column("state").to_pylist()[:2] == [
        str(s) for s in names.states[:2]
    ]


class Shop(gym.Env[np.int64, np.int64]):
    """The same shop, which shows no table: rewards are in the user's unit."""

    def __init__(self, mdp: orl.FiniteMDP) -> None:
        self.inner = ProblemEnv(mdp)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(
        self, *, seed: int | None = None, options: Options | None = None
    ) -> tuple[np.int64, Options]:
        return self.inner.reset(seed=seed)

    def step(self, action: np.int64) -> tuple[np.int64, SupportsFloat, bool, bool, Options]:
        return self.inner.step(action)


@pytest.mark.parametrize("discount", [1.0, 0.6])
def test_an_environment_speaks_the_users_unit_too(discount: float) -> None:
    """With its table or without, returns are the same; a system that goes on may begin anywhere."""
    model = small_model(discount=discount)
    mdp = model.mdp(chance=0.4)
    shown = orl.learn(orl.PSRL(), ProblemEnv(mdp), episodes=60, progress=False)
    hidden = orl.learn(orl.PSRL(), Shop(mdp), episodes=60, known=mdp.known, progress=False)
    assert np.array_equal(shown.returns, hidden.returns)
    assert shown.total_regret is not None
    assert hidden.total_regret is None
    assert shown.returns.mean() + shown.total_regret / 60 == pytest.approx(
        mdp.optimal_value, abs=2.0
    )
    assert shown.policy_table().column("state").to_pylist() == [
        str(name) for name in model.names.states
    ]
    env = ProblemEnv(small_model(start=2).mdp(chance=0.4))
    env.reset(seed=0)
    with pytest.raises(orl.InvalidInput, match="allowed"):
        env.step(2)
    assert mdp.known.may_start.tolist() == (mdp.initial_distribution > 0.0).tolist()
    assert replace(mdp.known, continuing=True).may_start.all()


def best(mdp: orl.FiniteMDP, model: Model, stock: int) -> float:
    """The largest return from a stock over all policies, of each step by itself."""
    listed = [s for s, name in enumerate(model.names.states) if isinstance(name, int)]
    choices = [np.flatnonzero(mdp.known.allowed[s]) for s in listed]
    of_a_step = list(itertools.product(*choices))
    largest = -np.inf
    for actions in itertools.product(of_a_step, repeat=mdp.horizon):
        policy = np.zeros((mdp.horizon, mdp.states), int)
        policy[:, listed] = actions
        largest = max(largest, expected_return(model, policy, stock, 0.4))
    return largest


class Always(orl.Learner):
    """Plays one policy and counts starts."""

    def __init__(self, policy: Ints, episodes: int = 1_000) -> None:
        self.policy = policy
        self.episodes = episodes

    def begin(self, known: orl.Known) -> State:
        return {"starts": np.zeros(known.states, np.int64)}

    def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
        return orl.Plan(policy=self.policy, episodes=self.episodes)

    def learn(self, known: orl.Known, state: State, plan: orl.Plan, flow: orl.Flow) -> None:
        np.add.at(state["starts"], flow.state[flow.step == 0], flow.count[flow.step == 0])


# Episodes that go on from each other --------------------------------------------------------------


def going_on(**changes: object) -> orl.FiniteMDP:
    """The tiny problem, whose next episode begins where the last one ended."""
    mdp = tiny(**changes)
    vars(mdp)["known"] = replace(mdp.known, continuing=True)
    return mdp


@pytest.mark.parametrize("random", [False, True])
def test_continuing_episodes_have_the_law_of_one_chain(random: bool) -> None:
    """The starts of three episodes, in blocks of one and two, by enumeration of all paths."""
    mdp = going_on()
    draw = np.random.default_rng(0)
    actions = np.array([[0, 1], [1, 0], [0, 0]])
    policy: PolicyArray = actions
    law = np.eye(2)[actions]
    if random:
        law = draw.dirichlet(np.ones(2), size=(3, 2))
        policy = law
    steps = np.einsum("hsa,sat->hst", law, mdp.kernel())
    whole = steps[0] @ steps[1] @ steps[2]
    seen = Counter[tuple[int, ...]]()
    n = 4_000
    for _ in range(n):
        flows, first = play(mdp, [policy], np.zeros(2, int), 1, draw)
        assert first is not None
        assert first == flows[0].next_state[-1]
        later, last = play(mdp, [policy], np.zeros(2, int), 2, draw, first)
        assert last is not None
        flow = later[0]
        starts = np.bincount(flow.state[flow.step == 0], flow.count[flow.step == 0], 2)
        ends = np.bincount(flow.next_state[flow.step == 2], flow.count[flow.step == 2], 2)
        assert starts[first]
        starts[first] -= 1
        second = int(np.flatnonzero(starts)[0])  # the other start of the block
        assert np.array_equal(ends, np.bincount([second, last], minlength=2))
        seen[int(flows[0].state[0]), first, second, last] += 1
    paths = list(itertools.product(range(2), repeat=4))
    expected = []
    for a, b, c, d in paths:
        expected.append(mdp.initial_distribution[a] * whole[a, b] * whole[b, c] * whole[c, d])
    assert stats.chisquare([seen[path] for path in paths], n * np.array(expected)).pvalue > 1e-4


@pytest.mark.parametrize("ends", [[1, 2, 3, 17, 40], list(range(1, 64)), [39]])
def test_continuing_pieces_equal_the_whole(ends: list[int], tmp_path: Path) -> None:
    """Also from a file, and where the cut falls inside of a block, which is played anew."""
    agent = Pacing()
    mdp = going_on()
    whole = orl.run(agent, mdp, episodes=64, seed=3)
    part = None
    done = 0
    for end in [*ends, 64]:
        part = orl.run(agent, mdp, episodes=end - done, seed=3, continue_from=part)
        part.save(tmp_path / "part")
        part = orl.Result.load(tmp_path / "part", agent, mdp)
        done = end
    assert part is not None
    assert part.at == whole.at
    assert (part.blocks.regret, part.blocks.returns) == (whole.blocks.regret, whole.blocks.returns)
    assert np.array_equal(part.state["visits"], whole.state["visits"])


def test_the_regret_of_continuing_episodes_is_that_of_their_starts() -> None:
    mdp = going_on(initial_state=0)
    policy = np.zeros((3, 2), int)
    result = orl.run(Always(policy, episodes=7), mdp, episodes=100)
    starts = result.state["starts"]
    gap = mdp.optimal_values[0] - mdp.evaluate(policy)[0]
    assert result.total_regret == pytest.approx(float(starts @ gap))
    assert starts[1] > 0  # although the law of the first start says 0
    assert law_of_starts(mdp.known, starts).tolist() == (starts / 100).tolist()
    assert law_of_starts(mdp.known, np.zeros(2, int)).tolist() == [1.0, 0.0]


# Plans that depend on the start -------------------------------------------------------------------


class ByStart(orl.Learner):
    """Another policy from state 1; keeps which part of a plan starts and actions belonged to."""

    def begin(self, known: orl.Known) -> State:
        return {
            "starts": np.zeros((2, known.states), np.int64),
            "actions": np.zeros((2, known.actions), np.int64),
        }

    def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
        zeros = np.zeros((known.horizon, known.states), np.int64)
        other = orl.Plan(policy=zeros + 1, carry=1)
        return orl.Plan(
            policy=zeros, episodes=1 + int(state["starts"].sum()) // 2, carry=0, starts={1: other}
        )

    def learn(self, known: orl.Known, state: State, plan: orl.Plan, flow: orl.Flow) -> None:
        begins = flow.step == 0
        np.add.at(state["starts"][plan.carry], flow.state[begins], flow.count[begins])
        np.add.at(state["actions"][plan.carry], flow.action, flow.count)
        assert flow.episodes == flow.count[begins].sum()


def play_more(
    kind: str,
    agent: orl.Learner,
    mdp: orl.FiniteMDP,
    episodes: int,
    earlier: orl.Result | None = None,
) -> orl.Result:
    """Play in the simulator or, in the same problem, step by step."""
    if kind == "run":
        return orl.run(agent, mdp, episodes=episodes, continue_from=earlier)
    return orl.learn(
        agent, ProblemEnv(mdp), episodes=episodes, continue_from=earlier, progress=False
    )


@pytest.mark.parametrize("kind", ["run", "learn"])
def test_each_start_has_its_part_of_the_plan(kind: str) -> None:
    mdp = tiny()
    result = play_more(kind, ByStart(), mdp, 60)
    starts = result.state["starts"]
    assert starts.sum() == 60
    assert starts[0, 0] > 0 < starts[1, 1]
    assert not starts[0, 1] + starts[1, 0]
    assert result.state["actions"].tolist() == [[3 * starts[0, 0], 0], [0, 3 * starts[1, 1]]]
    values = [mdp.evaluate(np.full((3, 2), a))[0, a] for a in (0, 1)]  # of action a from state a
    lost = sum(starts[s, s] * (mdp.optimal_values[0, s] - values[s]) for s in (0, 1))
    assert result.total_regret == pytest.approx(float(lost))


@pytest.mark.parametrize("kind", ["run", "learn"])
@pytest.mark.parametrize("name", ["by start", "UCRLVTR", "ARLGen", "unknown rewards", "Arena"])
def test_pieces_of_plans_by_start_equal_the_whole(kind: str, name: str, tmp_path: Path) -> None:
    kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(12, 3, 2))
    reward = np.random.default_rng(1).random((3, 2))
    starts = np.full(3, 1 / 3)
    mdp = orl.FiniteMDP(transition=kernels[7], reward=reward, horizon=4, initial_state=starts)
    family = orl.FiniteFamily(kernels)
    listed = orl.UCRLVTR(family=family, replan=0.5)
    agents: dict[str, orl.Learner] = {
        "by start": ByStart(),
        "UCRLVTR": listed,
        "ARLGen": orl.ARLGen(ladder=orl.Ladder([family.take(range(4)), family]), replan=0.5),
        "unknown rewards": orl.RewardsPerPair(agent=listed),
        "Arena": orl.Arena(bases=[listed, orl.UniformRandom()], rule=orl.UCB1()),
    }
    agent = agents[name]
    part = None
    done = 0
    assert agent.plan(mdp.known, agent.begin(mdp.known), generator(0, "agent")).starts
    whole = play_more(kind, agent, mdp, 50)
    for end in (1, 2, 5, 6, 7, 20, 33, 50):
        part = play_more(kind, agent, mdp, end - done, part)
        part.save(tmp_path / "part")
        part = orl.Result.load(tmp_path / "part", agent)
        done = end
    assert part is not None
    assert (part.blocks.regret, part.blocks.returns) == (whole.blocks.regret, whole.blocks.returns)
    assert part.blocks.plans == whole.blocks.plans or kind == "learn"
    one = leaves(part.state, "state")
    two = leaves(whole.state, "state")
    assert [key for key in one if one[key] != two[key]] == []


def test_optimism_is_that_of_each_start_and_rare_starts_cost_no_plans() -> None:
    kernels = np.random.default_rng(3).dirichlet(np.ones(4), size=(40, 4, 2))
    law = np.array([0.6, 0.0, 0.4 - 1e-9, 1e-9])
    reward = np.random.default_rng(4).random((4, 2))
    mdp = orl.FiniteMDP(transition=kernels[5], reward=reward, horizon=4, initial_state=law)
    agent = orl.UCRLVTR(family=orl.FiniteFamily(kernels))
    best = [
        orl.FiniteMDP(transition=P, reward=reward, horizon=4).optimal_values[0] for P in kernels
    ]
    for episodes in (1, 20, 300):
        result = orl.run(agent, mdp, episodes=episodes, seed=episodes)
        plan = result.next_plan
        inside = agent.confidence_set(result.state)[0]
        assert set(plan.starts) == {0, 2, 3}
        for start, part in plan.starts.items():
            assert part.values is not None
            assert part.values[0, start] == pytest.approx(np.array(best)[inside][:, start].max())
        assert result.pessimistic_episodes == 0
    assert orl.run(agent, mdp, episodes=10**6).plans < 400
    every = orl.run(replace(agent, replan=0.0), mdp, episodes=30)
    assert every.plans == 30


def test_a_bad_part_of_a_plan_is_refused() -> None:
    sound = orl.Plan(policy=np.zeros((3, 2), int))
    bad: list[dict[int, object]] = [
        {0: orl.Plan(policy=np.full((3, 2), 2))},
        {2: sound},
        {0: "nothing"},
    ]
    for starts in bad:
        agent = Broken(replace(sound, starts=starts))  # type: ignore[arg-type]  # on purpose
        with pytest.raises(orl.InvalidInput, match="plan"):
            orl.run(agent, tiny(), episodes=5)

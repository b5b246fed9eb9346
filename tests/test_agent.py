"""An agent that is told what happened: names, restarts, actions of others, warm starts, changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl import errors
from occamrl.addresses import generator
from occamrl.envs import ProblemEnv
from occamrl.logs.log import simulate_log
from occamrl.protocols import Flow, State
from occamrl.running.alarm import Reference, Watch
from tests.cases import CASES, SOME_ALLOWED, bases

LAKE = orl.read_ladder("frozen-lake-4x4")
CASE = CASES["stationary"]
KNOWN = CASE.mdp.known
H = CASE.mdp.horizon
EITHER = pytest.mark.parametrize("kind", [orl.Occam, orl.ARLGen])

Outcome = tuple[float, int, float, bool]  # of a day: probability, next stock, reward, end


def shop(stock: int, order: str, *, rate: float, rush: float = 0.0) -> Iterator[Outcome]:
    """Sell one thing at most; a second one of a customer's breaks the shop."""
    chance = rate + rush * (stock > 2)
    filled = min(stock + (order == "some"), 4)
    yield 0.98 - chance, filled, -0.1 * stock, False
    yield chance, max(filled - 1, 0), 1.0 * (filled > 0) - 0.1 * stock, False
    yield 0.02, 0, -1.0, True


MODEL = orl.Model(
    shop,
    start=2,
    actions=lambda stock: ["none"] if stock == 4 else ["none", "some"],
    horizon=8,
    parameters={"rate": (0.1, 0.6), "rush": (0.0, 0.3)},
)
CLASSES = {"steady": ["rate"], "rushes": ["rate", "rush"]}


def occam() -> orl.Occam:
    """Return the algorithm anew, as after a restart."""
    return orl.Occam(ladder=MODEL.ladder(CLASSES), acting="fit")


def sell(agent: orl.Agent, draw: np.random.Generator, stock: int, order: str, rate: float) -> int:
    """Let the shop work for a day, and tell the agent; return the stock of the next day."""
    law = list(shop(stock, order, rate=rate))
    chances = [outcome[0] for outcome in law]
    _, following, reward, ended = law[draw.choice(len(law), p=chances)]
    agent.observe(stock, order, reward, following, ended)
    return following if agent.step else 2


def plain(tree: Any) -> Any:
    """Return a state in a form that can be compared."""
    if isinstance(tree, dict):
        return {key: plain(part) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(part) for part in tree]
    if isinstance(tree, Flow):
        return plain(tree.columns)
    if isinstance(tree, np.ndarray):
        return tree.tolist()
    return tree


# Driving ------------------------------------------------------------------------------------------


def work(
    agent: orl.Agent, days: int, seed: int, *, path: Path | None = None
) -> tuple[orl.Agent, list[str]]:
    """Drive an agent, every third day by other actions than its own.

    With a path, restart between any two calls.
    """
    draw = np.random.default_rng(seed)
    stock = 2
    acts: list[str] = []
    for call in range(2 * days):
        if call % 2 == 0:
            acts.append(agent.act(stock))
        else:
            order = acts[-1]
            if call % 3 == 0:
                order = "none"
            stock = sell(agent, draw, stock, order, 0.4)
        if path is not None:
            agent.save(path)
            agent = orl.Agent.load(path, occam())
    return agent, acts


def test_thirty_restarts_give_the_same_as_one_long_day(tmp_path: Path) -> None:
    path = tmp_path / "shop.npz"
    one, acts = work(orl.Agent(occam(), seed=3, alarm=1e-3), 33, 5)
    two, again = work(orl.Agent(occam(), seed=3, alarm=1e-3), 33, 5, path=path)
    assert acts == again
    assert plain(one.result.state) == plain(two.result.state)
    assert plain(one.result.drive) == plain(two.result.drive)
    assert one.result.blocks.episodes == two.result.blocks.episodes
    assert str(one.answer) == str(two.answer)
    other = orl.Occam(ladder=MODEL.ladder({"steady": ["rate"]}))
    with pytest.raises(errors.CheckpointError, match="another one"):
        orl.Agent.load(path, other)
    with pytest.raises(errors.CheckpointError, match="no file can hold"):
        orl.Agent.load(path)


def test_what_is_accused_is_what_is_in_use_whether_or_not_one_asks(tmp_path: Path) -> None:
    """Nobody asks these agents what to do; one is restarted every day, and a block ends often."""
    agents = [orl.Agent(occam(), alarm=1e-3), orl.Agent(occam(), alarm=1e-3)]
    for index, agent in enumerate(agents):
        draw = np.random.default_rng(1)
        stock = 2
        for _ in range(300):
            stock = sell(agent, draw, stock, "some" if stock < 3 else "none", 0.4)
            if index == 1:
                agent.save(tmp_path / "shop.npz")
                agent = orl.Agent.load(tmp_path / "shop.npz", occam())
        agents[index] = agent
    assert plain(agents[0].result.drive) == plain(agents[1].result.drive)


@pytest.mark.parametrize(
    "algorithm",
    [
        orl.Occam(ladder=CASE.ladder),
        orl.UniformRandom(),
        orl.PSRL(),
        orl.ARLGen(ladder=CASE.ladder),
    ],
)
def test_driving_an_environment_is_learning_in_it(algorithm: orl.Learner) -> None:
    env = ProblemEnv(CASE.mdp)
    whole = orl.learn(algorithm, ProblemEnv(CASE.mdp), episodes=20, seed=2)
    for agent in (orl.Agent(algorithm, env, seed=2), orl.Agent(algorithm, known=KNOWN, seed=2)):
        for episode in range(20):
            seed = int(generator(2, "reset", episode).integers(2**31))
            state, _ = env.reset(seed=seed)
            for _ in range(H):
                action = agent.act(state)
                following, reward, *_ = env.step(action)
                agent.observe(state, action, float(reward), following)
                state = following
        assert plain(agent.result.state) == plain(whole.state)
        assert agent.result.total_return == pytest.approx(whole.total_return)


def test_episodes_end_when_they_ended_after_h_steps_or_when_another_begins() -> None:
    agent = orl.Agent(occam())
    for _ in range(8):
        agent.observe(2, "none", -0.2, 2)
    assert agent.result.total_episodes == 1
    agent.observe(2, "none", None, 0, ended=True)  # 0 is a state of its own at the end
    assert agent.result.total_episodes == 2
    agent.observe(2, "none", -0.2, 2)
    agent.begin_episode()  # cut off
    agent.begin_episode()  # nothing to end
    assert agent.result.total_episodes == 3
    assert int(agent.result.state["evidence"]["count"].sum()) == 10
    before = agent.answer.state["count"].sum()
    agent.observe(2, "some", -0.2, 3)
    assert agent.answer.state["count"].sum() == before + 1  # the open episode too
    assert agent.result.total_episodes == 3


def test_what_is_not_possible_is_refused_and_leaves_no_trace() -> None:
    agent = orl.Agent(occam())
    agent.observe(2, "none", -0.2, 2)
    before = plain(agent.result.drive)
    psrl = orl.PSRL()
    estimating = orl.Agent(orl.RewardsPerPair(agent=psrl), known=KNOWN.without_rewards)
    named = orl.Agent(psrl, known=SOME_ALLOWED.mdp.known)
    good = {"episode": "A", "state": 2, "action": "none", "next_state": 2}
    bad = orl.read_log([good, {**good, "episode": "B", "next_state": 17}])
    arena = orl.Agent(orl.Arena(bases=bases(CASE), rule=orl.UCB1()), known=KNOWN)
    arena.observe(0, arena.act(0), None, 1)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: agent.observe(7, "none", 0.0, 2), "state: got 7"),
        (lambda: agent.observe(3, "none", 0.0, 2), "begin_episode"),
        (lambda: agent.observe(2, "sone", 0.0, 2), "did you mean"),
        (lambda: agent.observe(2, "none", -0.2, 9), "next_state: got 9.* tell it as"),
        (lambda: agent.observe(2, "none", 0.5, 2), "reward: got 0.5, expected -0.2"),
        (lambda: agent.observe(2, "none", "much", 2), "reward"),
        (lambda: agent.observe(2, "none", -0.2, 2, cast(bool, "yes")), "ended"),
        (lambda: agent.act(4), "where the last step led"),
        (
            lambda: orl.Agent(occam()).observe(4, "some", -0.4, 4),
            r"'some' in state 4, expected one of \['none'\]",
        ),
        (lambda: agent.act([2]), r"state: got \[2\]"),
        (lambda: orl.Agent(occam(), alarm=0.1).forget(since=2), "since: got 2"),
        (lambda: named.act("hihg"), "one of 'low', 'middle', 'high'; did you mean high"),
        (lambda: estimating.observe(0, 0, None, 1), "reward"),
        (lambda: arena.observe(1, 1 - arena.act(1), None, 1), "of somebody else"),
        (lambda: arena.learn_from(bad), "a rule judges"),
        (lambda: orl.Agent(psrl).act(0), "no environment"),
        (lambda: orl.Agent(psrl, known=cast(orl.Known, 3)), "known"),
        (lambda: orl.Agent(psrl, known=KNOWN, alarm=0.1), "Occam"),
        (lambda: orl.Agent(occam(), alarm=2.0), "alarm"),
        (lambda: orl.Agent(occam()).forget(), "alarm=1e-3"),
        (lambda: orl.Agent(occam(), alarm=0.1).forget(), "there is no alarm"),
        (lambda: agent.learn_from("log.csv"), "read_log"),
        (lambda: agent.learn_from(bad), "next_state.* got 17"),
        (lambda: agent.learn_from(orl.Agent(psrl, known=MODEL.known)), "another algorithm"),
    ]
    for attempt, message in wrong:
        with pytest.raises(errors.InvalidInput, match=message):
            attempt()
    assert plain(agent.result.drive) == before


def test_what_the_first_episode_rules_out_is_out_before_it_ends() -> None:
    agent = orl.Agent(occam())
    agent.observe(2, "none", None, "(not listed)", impossible="count")
    assert agent.step == 1
    assert agent.answer.misspecified


def truth_is_alive(agent: orl.Agent) -> bool:
    """Say whether the third kernel, which is the truth, is not ruled out."""
    answer = agent.answer
    scores, least = answer.weigher.member_scores(answer.state)
    return bool(scores[2] >= least)


@EITHER
def test_the_truth_stays_possible_whoever_acts(kind: Callable[..., orl.Learner]) -> None:
    """Half of the actions are somebody else's; a control enters them under the plan's actions."""
    runs = 60
    lost = 0
    lost_control = 0
    algorithm = kind(ladder=CASE.ladder, delta=0.2)
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        honest = orl.Agent(algorithm, known=KNOWN, seed=seed)
        control = orl.Agent(algorithm, known=KNOWN, seed=seed)
        for _ in range(80):
            state = 0
            for _ in range(H):
                planned = honest.act(state)
                action = planned
                if draw.random() < 0.5:
                    action = int(draw.integers(2))
                following = int(draw.choice(3, p=CASE.kernels[2][state, action]))
                honest.observe(state, action, None, following)
                control.observe(state, planned, None, following)
                state = following
        lost += not truth_is_alive(honest)
        lost_control += not truth_is_alive(control)
    assert binomtest(lost, runs, 0.2, alternative="greater").pvalue > 1e-3
    assert binomtest(lost_control, runs, 0.2, alternative="greater").pvalue < 1e-3


# Warm starts --------------------------------------------------------------------------------------


@EITHER
def test_a_log_is_learned_as_its_flows_are(kind: Callable[..., orl.Learner]) -> None:
    log = simulate_log(CASE.mdp, episodes=50)
    algorithm = kind(ladder=CASE.ladder)
    agent = orl.Agent(algorithm, known=KNOWN).learn_from(log)
    state = algorithm.begin(KNOWN)
    read = 0
    for flow in log.flows(KNOWN, CASE.ladder.features.attach(KNOWN)):
        plan = algorithm.plan(KNOWN, state, generator(0, "agent", read))
        diagnostics = dict(plan.diagnostics)
        diagnostics.pop("source", None)  # nobody's own play
        algorithm.learn(KNOWN, state, replace(plan, diagnostics=diagnostics), flow)
        read += flow.episodes
    assert plain(agent.result.state) == plain(state)
    plan = algorithm.plan(KNOWN, state, generator(0, "agent", 50))
    for s in range(3):
        assert agent.act(s) == plan.part(s).policy[0, s]
    assert agent.answer.episodes == 50
    if kind is orl.Occam:
        assert agent.answer.model == orl.select(log, CASE.ladder, KNOWN).model


def test_a_run_or_another_agent_is_where_to_begin() -> None:
    run = orl.run(orl.Occam(ladder=CASE.ladder), CASE.mdp, episodes=40, seed=1)
    agent = orl.Agent(orl.Occam(ladder=CASE.ladder, acting="fit"), known=KNOWN)
    agent.learn_from(run)
    assert plain(agent.result.state) == plain(run.state)
    second = orl.Agent(orl.Occam(ladder=CASE.ladder), known=KNOWN).learn_from(agent)
    assert second.act(0) in (0, 1)
    assert second.result.total_episodes == 40
    with pytest.raises(errors.ParameterError, match="after 40 episodes of its own"):
        second.learn_from(run)
    lake = orl.Agent(orl.ARLGen(ladder=LAKE.ladder), known=LAKE.known)
    lake.observe(0, 1, 0.0, 4)
    lake.learn(5, gym.make("FrozenLake-v1"))
    assert lake.result.total_episodes == 6  # the episode told was cut off


# Change -------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """From a step on customers come at another rate."""

    step: int
    rate: float


def watched(seed: int, alpha: float, steps: int, change: Change) -> tuple[orl.Agent, int | None]:
    """Drive an agent until an alarm after the change; return it and the step of that alarm."""
    agent = orl.Agent(occam(), seed=seed, alarm=alpha)
    draw = np.random.default_rng(seed)
    stock = 2
    for step in range(steps):
        rate = 0.4 if step < change.step else change.rate
        stock = sell(agent, draw, stock, "some" if stock < 2 else "none", rate)
        if agent.alarm is not None:
            if step >= change.step:
                return agent, step + 1
            agent.dismiss()
    return agent, None


def test_false_alarms_are_as_rare_as_promised() -> None:
    """The statistic exceeds 1/alpha within n steps with probability n alpha at most."""
    runs = 40
    steps = 200  # of which 100 count
    alpha = 5e-4
    early = 0
    for seed in range(runs):
        _, raised = watched(seed, alpha, steps, Change(0, 0.4))
        early += raised is not None
    assert binomtest(early, runs, (steps - 100) * alpha, alternative="greater").pvalue > 1e-3


def demand(last: int, action: int, *, mean: float, spread: float = 0.1) -> Iterator[Outcome]:
    """Sell nothing, one thing, or two of them."""
    yield 1.0 - mean, 0, 0.0, False
    yield mean * (1.0 - spread), 1, 1.0, False
    yield mean * spread, 2, 2.0, False


def demand_alarms() -> int:
    """Return in how many of twelve runs an alarm is raised, although nothing changes."""
    bounds = {"mean": (0.1, 0.9), "spread": (0.0, 0.5)}
    model = orl.Model(demand, start=0, actions=[0], horizon=5, parameters=bounds)
    ladder = model.ladder({"one": ["mean"], "two": ["mean", "spread"]})
    law = [outcome[0] for outcome in demand(0, 0, mean=0.5, spread=0.2)]
    raised = 0
    for seed in range(12):
        agent = orl.Agent(orl.Occam(ladder=ladder, acting="fit"), alarm=1e-3)
        state = 0
        for following in np.random.default_rng(seed).choice(3, 600, p=law).tolist():
            agent.observe(state, 0, None, following)
            state = following if agent.step else 0
        raised += agent.alarm is not None
    return raised


def test_a_class_that_is_too_simple_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth is in the second class, near the first; a control fits the class in play alone."""
    assert demand_alarms() <= 2
    whole = Watch.reference

    def alone(watch: Watch, state: State, plan: orl.Plan) -> Reference:
        reference = whole(watch, state, plan)
        return reference._replace(laws=reference.laws[:1])

    monkeypatch.setattr(Watch, "reference", alone)
    assert demand_alarms() >= 5


@pytest.mark.parametrize(("rate", "late"), [(0.12, 120), (0.58, 250), (0.25, 400)])
def test_a_change_is_noticed_dated_and_forgotten(rate: float, late: int) -> None:
    alarmed: list[orl.Agent] = []
    delays = []
    for seed in range(3):
        agent, raised = watched(seed, 1e-3, 400 + 500, Change(400, rate))
        delays.append(500 if raised is None else raised - 400)
        if raised is not None:
            alarmed.append(agent)
    assert np.median(delays) <= late
    agent = alarmed[0]
    alarm = agent.alarm
    assert alarm is not None
    assert "forget" in str(alarm)
    before = agent.result.total_episodes
    agent.forget()
    assert agent.alarm is None
    assert agent.result.total_episodes <= before - alarm.since + 1
    agent.begin_episode()
    assert agent.act(2) in ("none", "some")

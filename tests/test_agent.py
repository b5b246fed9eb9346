"""An agent that is told what happened: names, restarts, actions of others, warm starts, changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl import errors
from occamrl.addresses import generator
from occamrl.envs import ProblemEnv
from occamrl.logs.log import simulate_log
from occamrl.running.alarm import Watch
from tests.cases import CASES, SOME_ALLOWED, bases

LAKE = orl.read_ladder("frozen-lake-4x4")
CASE, H = CASES["stationary"], CASES["stationary"].mdp.horizon


def shop(stock: int, order: str, *, rate: float, rush: float = 0.0) -> Any:
    """Sell one thing at most; a second one of a customer's breaks the shop."""
    chance, filled = rate + rush * (stock > 2), min(stock + (order == "some"), 4)
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


def sell(draw: Any, stock: int, order: str, rate: float) -> tuple[float, int, bool]:
    """Let the shop work for a day."""
    law = list(shop(stock, order, rate=rate))
    _, after, reward, ended = law[draw.choice(len(law), p=[each[0] for each in law])]
    return reward, after, ended


def work(
    agent: orl.Agent, days: int, seed: int, *, path: Path | None = None
) -> tuple[orl.Agent, list[str]]:
    """Drive an agent, every third day by other actions than its own; with a path, restart between any two calls."""
    draw, stock, acts = np.random.default_rng(seed), 2, list[str]()
    for call in range(2 * days):
        if call % 2 == 0:
            acts.append(agent.act(stock))
        else:
            done = "none" if call % 3 == 0 else acts[-1]
            reward, after, ended = sell(draw, stock, done, 0.4)
            agent.observe(stock, done, None if ended else reward, after, ended)
            stock = after if agent.step else 2
        if path is not None:
            agent.save(path)
            agent = orl.Agent.load(path, occam())
    return agent, acts


def plain(tree: Any) -> Any:
    """Return a state in a form that can be compared."""
    if isinstance(tree, dict):
        return {key: plain(each) for key, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(each) for each in tree]
    if hasattr(tree, "columns"):  # a flow
        return plain(tree.columns)
    return tree.tolist() if isinstance(tree, np.ndarray) else tree


# Driving ------------------------------------------------------------------------------------------


def test_thirty_restarts_give_the_same_as_one_long_day(tmp_path: Path) -> None:
    one, acts = work(orl.Agent(occam(), seed=3, alarm=1e-3), 33, 5)
    two, again = work(orl.Agent(occam(), seed=3, alarm=1e-3), 33, 5, path=tmp_path / "shop.npz")
    assert acts == again
    assert plain(one.result.state) == plain(two.result.state)
    assert plain(one.result.drive) == plain(two.result.drive)
    assert one.result.blocks.episodes == two.result.blocks.episodes
    assert str(one.answer) == str(two.answer)
    other = orl.Occam(ladder=MODEL.ladder({"steady": ["rate"]}))
    with pytest.raises(errors.CheckpointError, match="another one"):
        orl.Agent.load(tmp_path / "shop.npz", other)
    with pytest.raises(errors.CheckpointError, match="no file can hold"):
        orl.Agent.load(tmp_path / "shop.npz")


def test_driving_an_environment_is_learning_in_it() -> None:
    for algorithm in (
        orl.Occam(ladder=CASE.ladder),
        orl.UniformRandom(),
        orl.PSRL(),
        orl.ARLGen(ladder=CASE.ladder),
    ):
        env, whole = (
            ProblemEnv(CASE.mdp),
            orl.learn(algorithm, ProblemEnv(CASE.mdp), episodes=20, seed=2),
        )
        for agent in (
            orl.Agent(algorithm, env, seed=2),
            orl.Agent(algorithm, known=CASE.mdp.known, seed=2),
        ):
            for k in range(20):
                s: Any = env.reset(seed=int(generator(2, "reset", k).integers(2**31)))[0]
                for _ in range(H):
                    action = agent.act(s)
                    after, reward, *_ = env.step(action)
                    agent.observe(s, action, float(reward), after)
                    s = after
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
    agent, known, psrl = orl.Agent(occam()), CASE.mdp.known, orl.PSRL()
    agent.observe(2, "none", -0.2, 2)
    before = plain(agent.result.drive)
    estimating = orl.Agent(orl.RewardsPerPair(agent=psrl), known=known.without_rewards)
    named = orl.Agent(psrl, known=SOME_ALLOWED.mdp.known)
    good = {"episode": "A", "state": 2, "action": "none", "next_state": 2}
    bad = orl.read_log([good, {**good, "episode": "B", "next_state": 17}])
    arena = orl.Agent(orl.Arena(bases=bases(CASE), rule=orl.UCB1()), known=known)
    arena.observe(0, arena.act(0), None, 1)
    wrong: list[tuple[Any, str]] = [
        (lambda: agent.observe(7, "none", 0.0, 2), "state: got 7"),
        (lambda: agent.observe(3, "none", 0.0, 2), "begin_episode"),
        (lambda: agent.observe(2, "sone", 0.0, 2), "did you mean"),
        (lambda: agent.observe(2, "none", -0.2, 9), "next_state: got 9.* tell it as"),
        (lambda: agent.observe(2, "none", 0.5, 2), "reward: got 0.5, expected -0.2"),
        (lambda: agent.observe(2, "none", "much", 2), "reward"),
        (lambda: agent.observe(2, "none", -0.2, 2, cast(Any, "yes")), "ended"),
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
        (lambda: orl.Agent(psrl).act(0), "no environment"),
        (lambda: orl.Agent(psrl, known=cast(Any, 3)), "known"),
        (lambda: orl.Agent(psrl, known=known, alarm=0.1), "Occam"),
        (lambda: orl.Agent(occam(), alarm=2.0), "alarm"),
        (lambda: orl.Agent(occam()).forget(), "alarm=1e-3"),
        (lambda: orl.Agent(occam(), alarm=0.1).forget(), "there is no alarm"),
        (lambda: agent.learn_from("log.csv"), "read_log"),
        (lambda: agent.learn_from(bad), "next_state.* got 17"),
        (lambda: agent.learn_from(orl.Agent(psrl, known=MODEL.known)), "another algorithm"),
    ]
    for made, message in wrong:
        with pytest.raises(errors.InvalidInput, match=message):
            made()
    assert plain(agent.result.drive) == before


def test_what_the_first_episode_rules_out_is_out_before_it_ends() -> None:
    agent = orl.Agent(occam())
    agent.observe(2, "none", None, "(not listed)")
    assert agent.step == 1
    assert agent.answer.misspecified


@pytest.mark.parametrize("kind", ["Occam", "ARLGen"])
def test_the_truth_stays_possible_whoever_acts(kind: str) -> None:
    """Half of the actions are somebody else's; with a control: the same steps entered under the plan's actions."""
    runs, lost, control = 60, 0, 0
    algorithm = getattr(orl, kind)(ladder=CASE.ladder, delta=0.2)
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        agents = [orl.Agent(algorithm, known=CASE.mdp.known, seed=seed) for _ in range(2)]
        for _ in range(40):
            s = 0
            for _ in range(H):
                action = planned = agents[0].act(s)
                if draw.random() < 0.5:
                    action = int(draw.integers(2))
                after = int(draw.choice(3, p=CASE.kernels[2][s, action]))
                agents[0].observe(s, action, None, after)
                agents[1].observe(s, planned, None, after)
                s = after
        answers = [agent.answer for agent in agents]
        held = []
        for found in answers:
            scores, least = found.weigher.member_scores(found.state)
            held.append(scores[2] >= least)
        lost, control = lost + (not held[0]), control + (not held[1])
    assert binomtest(lost, runs, 0.2, alternative="greater").pvalue > 1e-3
    assert binomtest(control, runs, 0.2, alternative="greater").pvalue < 1e-3


# Warm starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Occam", "ARLGen"])
def test_a_log_is_learned_as_its_flows_are(kind: str) -> None:
    log, known, algorithm = (
        simulate_log(CASE.mdp, episodes=50),
        CASE.mdp.known,
        getattr(orl, kind)(ladder=CASE.ladder),
    )
    agent = orl.Agent(algorithm, known=known).learn_from(log)
    state, read = algorithm.begin(known), 0
    for flow in log.flows(known, CASE.ladder.features.attach(known)):
        plan = algorithm.plan(known, state, generator(0, "agent", read))
        diagnostics = {
            name: each for name, each in plan.diagnostics.items() if name != "source"
        }  # nobody's own play
        algorithm.learn(known, state, replace(plan, diagnostics=diagnostics), flow)
        read += flow.episodes
    assert plain(agent.result.state) == plain(state)
    plan = algorithm.plan(known, state, generator(0, "agent", 50))
    assert [agent.act(s) for s in range(3)] == [plan.part(s).policy[0, s] for s in range(3)]
    assert agent.answer.episodes == 50
    if kind == "Occam":
        assert agent.answer.model == orl.select(log, CASE.ladder, known).model


def test_a_run_or_another_agent_is_where_to_begin() -> None:
    run = orl.run(orl.Occam(ladder=CASE.ladder), CASE.mdp, episodes=40, seed=1)
    agent = orl.Agent(orl.Occam(ladder=CASE.ladder, acting="fit"), known=CASE.mdp.known).learn_from(
        run
    )
    assert plain(agent.result.state) == plain(run.state)
    second = orl.Agent(orl.Occam(ladder=CASE.ladder), known=CASE.mdp.known).learn_from(agent)
    assert second.act(0) in (0, 1)
    assert second.result.total_episodes == 40
    with pytest.raises(errors.ParameterError, match="after 40 episodes of its own"):
        second.learn_from(run)
    lake = orl.Agent(orl.ARLGen(ladder=LAKE.ladder), known=LAKE.known)
    lake.observe(0, 1, 0.0, 4)
    assert (
        lake.learn(5, gym.make("FrozenLake-v1")).result.total_episodes == 6
    )  # the episode told was cut off


# Change -------------------------------------------------------------------------------------------


def watched(
    seed: int, alpha: float, steps: int, change: tuple[int, float]
) -> tuple[orl.Agent, int | None]:
    """Drive an agent until an alarm; from a step on the rate is another one."""
    agent, draw = orl.Agent(occam(), seed=seed, alarm=alpha), np.random.default_rng(seed)
    stock = 2
    for t in range(steps):
        action = "some" if stock < 2 else "none"
        reward, after, ended = sell(draw, stock, action, 0.4 if t < change[0] else change[1])
        agent.observe(stock, action, None if ended else reward, after, ended)
        stock = after if agent.step else 2
        if agent.alarm is not None:
            if t >= change[0]:
                return agent, t + 1
            agent.dismiss()
    return agent, None


def test_false_alarms_are_as_rare_as_promised() -> None:
    """The statistic, against the model in play, exceeds 1/alpha within n steps with probability n alpha at most."""
    runs, steps, alpha = 40, 200, 5e-4  # of which 100 count
    early = sum(watched(seed, alpha, steps, (0, 0.4))[1] is not None for seed in range(runs))
    assert binomtest(early, runs, (steps - 100) * alpha, alternative="greater").pvalue > 1e-3


def test_a_class_that_is_too_simple_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A truth in the second class that is near the first; with a control: the fit of the class in play alone."""

    def demand(last: int, action: int, *, mean: float, spread: float = 0.1) -> Any:
        yield 1.0 - mean, 0, 0.0, False
        yield mean * (1.0 - spread), 1, 1.0, False
        yield mean * spread, 2, 2.0, False

    bounds, law = (
        {"mean": (0.1, 0.9), "spread": (0.0, 0.5)},
        [each[0] for each in demand(0, 0, mean=0.5, spread=0.2)],
    )
    model = orl.Model(demand, start=0, actions=[0], horizon=5, parameters=bounds)
    ladder = model.ladder({"one": ["mean"], "two": ["mean", "spread"]})

    def alarms() -> int:
        raised = 0
        for seed in range(12):
            agent, state = orl.Agent(orl.Occam(ladder=ladder, acting="fit"), alarm=1e-3), 0
            for after in np.random.default_rng(seed).choice(3, 600, p=law).tolist():
                agent.observe(state, 0, None, after)
                state = after if agent.step else 0
            raised += agent.alarm is not None
        return raised

    assert alarms() <= 2
    whole = Watch.reference

    def alone(watch: Watch, state: Any, plan: orl.Plan) -> Any:
        reference = whole(watch, state, plan)
        return reference._replace(laws=reference.laws[:1])

    monkeypatch.setattr(Watch, "reference", alone)
    assert alarms() >= 5


@pytest.mark.parametrize(("rate", "late"), [(0.12, 120), (0.58, 250), (0.25, 400)])
def test_a_change_is_noticed_dated_and_forgotten(rate: float, late: int) -> None:
    found = [watched(seed, 1e-3, 400 + 500, (400, rate)) for seed in range(3)]
    delays = [500 if when is None else when - 400 for _, when in found]
    assert np.median(delays) <= late
    agent = next(agent for agent, when in found if when is not None)
    alarm = agent.alarm
    assert alarm is not None
    assert "forget" in str(alarm)
    before = agent.result.total_episodes
    agent.forget()
    assert agent.alarm is None
    assert agent.result.total_episodes <= before - alarm.since + 1
    agent.begin_episode()
    assert agent.act(2) in ("none", "some")

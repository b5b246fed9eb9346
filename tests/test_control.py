"""Simulators that can only be run: the test by exchangeability, the contract, acting, files, refinement."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binom

import occamrl as orl
from occamrl.addresses import generator
from occamrl.control import errors, evidence
from occamrl.control.ladder import SimulatorError, check_simulator
from occamrl.control.vertices import Grid
from occamrl.errors import (
    CheckpointError,
    EnvironmentFault,
    Interrupted,
    ParameterError,
    ShapeError,
    SpaceError,
)
from occamrl.logs.continuous import episodes_of
from occamrl.protocols import Floats
from studies.control import peeking, reusing, shared
from studies.systems import System, World

Rng = np.random.Generator
QUICK = orl.CEM(candidates=8, elites=2, iterations=1, horizon=5, particles=2)


def cart(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    wind: float = 0.0,
    drag: float = 0.0,
    sd: float = 0.05,
) -> Floats:
    """A cart on a line: place and speed."""
    speed = (
        states[:, 1]
        + 0.2 * actions[:, 0]
        + wind
        - drag * states[:, 1]
        + sd * rng.normal(size=len(states))
    )
    return np.stack([states[:, 0] + 0.1 * speed, speed], axis=1)


def reward(states: Floats, actions: Floats, after: Floats) -> Floats:
    """Stay where you are."""
    found: Floats = -(after**2).sum(axis=1)
    return found


CLASSES: dict[str, list[Any]] = {
    "calm": [cart],
    "wind": [partial(cart, wind=w) for w in (-0.1, 0.1)],
}


def ladder_of(classes: Any = CLASSES, **options: Any) -> orl.SimulatorLadder:
    """Return a ladder of carts."""
    about: dict[str, Any] = {
        "reward": reward,
        "horizon": 30,
        "actions": orl.Box(-1, 1),
        "start": [0.5, 0.0],
    }
    return orl.SimulatorLadder(classes, **(about | options))


def walk(
    agent: orl.OccamControl, truth: Any, steps: int, seed: int = 0, actions: Any = None
) -> orl.OccamControl:
    """Let an agent watch random actions."""
    rng, state = np.random.default_rng(seed), np.array([0.5, 0.0])
    for t in range(steps):
        action = agent.ladder.actions.draw(1, rng) if actions is None else actions(t)
        after = truth(state[None], action, rng)[0]
        agent.observe(state, action[0], float(reward(state[None], action, after[None])[0]), after)
        state = after if agent.state["step"] else np.array([0.5, 0.0])
    return agent


class Cart(World):
    """A cart as an environment; ``fail`` is raised at step ``at`` of all."""

    def __init__(
        self, step: Any, fail: BaseException | None = None, at: int = -1, actions: Any = None
    ) -> None:
        task = System(
            cart, {}, {}, {}, reward, lambda rng: np.array([0.5, 0.0]), actions or orl.Box(-1, 1)
        )
        super().__init__(task, step)
        self.fail, self.left = fail, at

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.fail is not None:
            raise self.fail
        return super().step(action)


# The test -----------------------------------------------------------------------------------------


def test_the_bets_of_exchanged_outcomes_have_mean_one() -> None:
    """Whatever the scores are, the N + 1 values of e that arise when each plays the part of y add up to N + 1."""
    rng = np.random.default_rng(0)
    scores = [
        rng.normal(size=8),
        50 * rng.normal(size=8),
        rng.standard_cauchy(8),
        np.full(8, -np.inf),
        np.zeros(8),
    ]
    scores += [np.where(rng.random(8) < 0.5, -np.inf, 0.0), np.array([900.0, *np.full(7, -900.0)])]
    for log_w in scores:
        bets = [np.exp(evidence.bet(np.roll(log_w, k))) for k in range(8)]
        assert np.isclose(np.mean(bets), 1.0, atol=1e-12)


def test_the_score_does_not_look_at_the_outcome() -> None:
    """Brute force: with laws and history fixed, each of the N + 1 points is put in the place of the outcome."""
    ladder = ladder_of(draws=6)
    agent = walk(orl.OccamControl(ladder=ladder), partial(cart, wind=0.05), 20)
    rng, state = np.random.default_rng(1), agent.state["evidence"]
    state["rejected"][:] = -1
    active, top = evidence.awake(state)
    phi = errors.features(ladder, np.array([0.3, -0.2]), np.array([0.5]))
    laws = evidence.fit(state, active, rng.normal(size=(3, 6, 2)), ladder.resolution)
    points, before = rng.normal(size=(3, 7, 2)), state["laws"].copy()
    total = np.zeros((3, 2))
    for k in range(7):
        state["laws"] = before.copy()
        total += np.exp(
            evidence.score(state, active, top, laws, np.roll(points, k, axis=1), phi)[0]
        )
    assert np.allclose(total, 7.0)


def rejections(
    runs: int, steps: int, wrap: Callable[[Any], Any] = lambda step: step, **options: Any
) -> Floats:
    """Return the largest log capital against the true simulator of every run, acting by what came before."""
    classes = {name: [wrap(each) for each in members] for name, members in CLASSES.items()}
    ladder, peaks = ladder_of(classes, check=False, **options), []
    for i in range(runs):
        agent = orl.OccamControl(ladder=ladder, seed=i)
        walk(
            agent,
            partial(cart, wind=0.1),
            steps,
            100 + i,
            lambda t: np.array([[-1.0 + 2 * (t % 3 == 0)]]),
        )
        peaks.append(agent.state["evidence"]["peak"][2])
    return np.array(peaks)


def test_the_true_simulator_is_rejected_as_rarely_as_promised() -> None:
    peaks = rejections(50, 40)
    for delta in (0.05, 0.5):
        assert binom.sf(int((peaks >= -np.log(delta)).sum()) - 1, peaks.size, delta) > 1e-3


def test_no_law_is_fitted_to_numbers_behind_ranked_draws() -> None:
    """Members may use up random numbers differently, so ranked draws and fits need generators of their own."""
    called: dict[str, list[str]] = {"one": [], "two": []}

    def member(name: str, used: int, states: Floats, actions: Floats, rng: Rng) -> Floats:
        called[name].append(str(rng.bit_generator.state))
        found: Floats = states + rng.normal(size=(len(states), used)).mean(axis=1, keepdims=True)
        return found

    classes = {name: [partial(member, name, used)] for used, name in enumerate(called, start=1)}
    agent = orl.OccamControl(ladder=ladder_of(classes, start=[0.0], check=False))
    for each in called.values():
        each.clear()
    agent.observe([0.0], [0.0], None, [0.3])
    assert called["one"] == called["two"]  # common random numbers
    assert len(set(called["one"])) == 2


@pytest.mark.parametrize(("broken", "steps"), [(nullcontext, 90), (reusing, 90), (peeking, 90)])
def test_broken_tests_reject_the_truth(broken: Any, steps: int) -> None:
    """Rows that share a draw, fits on the ranked draws, and a score that looks at the outcome."""
    with broken():
        peaks = rejections(15, steps, *([shared] if broken is nullcontext else []), draws=5)
    assert binom.sf(int((peaks >= -np.log(0.05)).sum()) - 1, peaks.size, 0.05) < 1e-6


def test_wrong_classes_are_rejected_and_the_right_one_is_named() -> None:
    agent = walk(orl.OccamControl(ladder=ladder_of()), partial(cart, wind=0.1), 60)
    verdict = agent.verdict
    assert verdict["chosen"] == 2
    assert verdict["rejected_after"][0] < 30
    assert agent.answer.parameters == {"wind": 0.1}
    assert "'wind'" in str(verdict)


def test_deterministic_simulators_have_a_law() -> None:
    exact = {
        "calm": [partial(cart, sd=0.0)],
        "wind": [partial(cart, sd=0.0, wind=w) for w in (0.01, 0.02)],
    }
    agent = walk(orl.OccamControl(ladder=ladder_of(exact)), partial(cart, sd=0.0, wind=0.02), 40)
    assert agent.state["evidence"]["rejected"].tolist()[2] == -1
    assert max(agent.state["evidence"]["rejected"].tolist()[:2]) <= 4
    assert min(agent.state["evidence"]["rejected"].tolist()[:2]) >= 1


def test_a_truth_outside_is_noticed_named_and_corrected_for() -> None:
    truth = partial(cart, wind=0.1, drag=0.4)
    agent = walk(orl.OccamControl(ladder=ladder_of(coordinates=["place", "speed"])), truth, 150)
    assert agent.verdict["misspecified"]
    assert "Where speed is" in agent.answer.misfit
    assert (
        "higher" in agent.answer.misfit.rpartition("one below")[2]
    )  # drag is wind where the speed is low
    best, rng = int(evidence.ranking(agent.state["evidence"])[0]), np.random.default_rng(0)
    states, actions = rng.normal(size=(200, 2)) * [1.0, 0.3], rng.uniform(-1, 1, (200, 1))
    wrong = [np.abs(each(states, actions, generator(0, "a")) - truth(states, actions, generator(0, "a"))).mean()
             for each in (agent.members[best], agent.corrected(best))]  # fmt: skip
    assert wrong[1] < 0.4 * wrong[0]
    agent.act([0.5, 0.0])


def test_many_simulators_take_turns() -> None:
    """At most 32 are awake at a step, all get their turn, and nobody looks at outcomes that are still to come."""
    winds = {"winds": [partial(cart, wind=w) for w in np.linspace(-0.01, 0.01, 100)]}
    agent = orl.OccamControl(ladder=ladder_of(winds, check=False))
    walk(agent, cart, 12)
    state = agent.state["evidence"]
    assert len(evidence.awake(state)[0]) == evidence.AWAKE
    assert state["awake"].min() >= 1
    assert state["awake"].sum() == 12 * evidence.AWAKE


def test_no_two_steps_are_ranked_among_the_same_draws() -> None:
    """Not even where episodes are longer than the horizon, in a log, or begun anew."""
    met: set[bytes] = set()

    def watched(states: Floats, actions: Floats, rng: Rng) -> Floats:
        met.add(str(rng.bit_generator.state).encode())
        return cart(states, actions, rng)

    ladder = ladder_of({"calm": [watched]}, horizon=3, check=False)
    met.clear()
    rng = np.random.default_rng(0)
    log = {
        "episode": np.repeat([0, 1, 2], 8),
        "states": rng.normal(size=(24, 2)),
        "actions": np.zeros((24, 1)),
    }
    orl.select(log, ladder)
    assert len(met) == 2 * 21  # those that are ranked, and those that laws are fitted to


# The contract -------------------------------------------------------------------------------------


TICK = itertools.count()

BAD: list[tuple[Any, str]] = [
    (lambda s, a, rng: s + rng.normal(), "share a draw"),
    (lambda s, a, rng: s + rng.normal(size=2), "share a draw"),
    (
        lambda s, a, rng: (
            s + np.stack([np.full(len(s), rng.normal()), rng.normal(size=len(s))], axis=1)
        ),
        "coordinate 0",
    ),
    (
        lambda s, a, rng: s + np.resize([[1.0], [-1.0]], (len(s), 1)) * rng.normal(size=2),
        "balance each other",
    ),
    (lambda s, a, rng: s + np.random.normal(size=s.shape), "same generator state"),  # noqa: NPY002  # what is refused
    (lambda s, a, rng: s + next(TICK), "same generator state"),
    (lambda s, a, rng: np.where(a > -2, np.nan, s), "finite"),
    (lambda s, a, rng: s[0], "one row for each row given"),
    (lambda s, a, rng: s[:, :1], "one row for each row given"),
    (lambda s, a: s, "step"),
    (lambda s, a, rng: np.add(s, 1.0, out=s), "copy"),
    (
        lambda s, a, rng: s - s.mean(axis=0) + 0.01 * rng.normal(size=s.shape),
        "depends on the other rows",
    ),
    (lambda s, a, rng: s - s.mean(axis=0), "depends on the other rows"),
    (lambda s, a, rng: s + rng.normal() * (np.abs(s) > 0.5), "share a draw"),
    (lambda s, a, rng: s + (len(s) == 1) + rng.normal(size=s.shape), "one by one"),
    (lambda s, a, rng: dict[str, Floats]()["key"], "KeyError"),
]


@pytest.mark.parametrize(("step", "message"), BAD)
def test_a_bad_simulator_is_told_what_to_change(step: Any, message: str) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(SimulatorError, match=message.replace("[", r"\[")):
        check_simulator(step, rng.normal(size=(20, 2)), rng.normal(size=(20, 1)))


def test_arguments_are_checked_at_the_door() -> None:
    with pytest.raises(SimulatorError, match="calm"):
        ladder_of({"calm": [lambda s, a, rng: s + rng.normal()]})
    bad: list[dict[str, Any]] = [{"classes": {}}, {"draws": 2}, {"horizon": 0}, {"resolution": 0.0}]
    bad += [{"classes": {"calm": cart}}, {"classes": {"calm": []}}, {"classes": [cart]}]
    bad += [
        {"reward": 1.0},
        {"reward": lambda s, a, after: -after},
        {"reward": lambda s: 0.0},
        {"start": "here"},
    ]
    bad += [
        {"start": lambda: 0.0},
        {"actions": []},
        {"resolution": [1.0] * 3},
        {"classes": {1: [cart], "1": [cart]}},
    ]
    bad += [
        {"reward": lambda s, a, after: np.full(len(s), np.nan)},
        {"view": lambda s: s[:, 0]},
        {"coordinates": ["place"]},
    ]
    for options in bad:
        with pytest.raises(orl.InvalidInput):
            ladder_of(**options)
    ladder = ladder_of()
    for refused in (
        lambda: orl.Box([0, 0], [1, 1, 1]),
        lambda: orl.CEM(elites=0),
        lambda: orl.MPPI(temperature=0.0),
    ):
        with pytest.raises(orl.InvalidInput):
            refused()
    bad = [
        {"delta": 0.0},
        {"acting": "wildly"},
        {"planner": None},
        {"planner": orl.CEM},
        {"ladder": None},
    ]
    for options in bad:
        with pytest.raises(orl.InvalidInput):
            orl.OccamControl(**({"ladder": ladder} | options))
    agent = orl.OccamControl(ladder=ladder)
    with pytest.raises(ShapeError):
        agent.act([0.0])
    bad_steps: list[Any] = [
        ([0.0, np.nan], [0.0], 0.0),
        ([0.0, 0.0], [0.0], np.nan),
        ([0.0, 0.0], [0.0], "much"),
    ]
    for state, action, paid in bad_steps:
        with pytest.raises(orl.InvalidInput):
            agent.observe(state, action, paid, [0.0, 0.0])
    assert agent.state["evidence"]["steps"] == 0  # a step that is refused leaves no trace
    with pytest.raises(SpaceError):
        orl.learn(agent, Cart(cart, actions=[[-1.0], [1.0]]), episodes=1)
    with pytest.raises(ParameterError):
        orl.learn(agent, Cart(cart), episodes=1, horizon=3)
    narrow = Cart(cart)
    narrow.action_space = gym.spaces.Box(-0.5, 0.5, (1,))
    environments: list[Any] = [None, narrow]
    for env in environments:
        with pytest.raises(SpaceError):
            orl.learn(agent, env, episodes=1)
    agent.planner = SimpleNamespace(plan=lambda *given: None)
    with pytest.raises(ParameterError):
        agent.act([0.5, 0.0])


def test_what_was_played_is_what_is_judged() -> None:
    """A planner that leaves the box is clipped, and the step is judged as it was played."""
    wild = SimpleNamespace(plan=lambda *given: (given[5].normal(size=1) * 5, None))
    agent = orl.OccamControl(ladder=ladder_of({"calm": [cart]}), planner=wild)
    assert not orl.learn(agent, Cart(cart), episodes=3).verdict["misspecified"]
    log = {"episode": [0, 0, 0], "states": np.zeros((3, 2)), "actions": [[0], [2], [1]]}
    with pytest.raises(orl.InvalidInput, match="not its number"):
        orl.select(log, ladder_of(actions=[[-1.0], [0.0], [1.0]]))


def test_refinement_belongs_to_the_richer_class() -> None:
    listed = {
        "calm": [partial(cart, wind=0.0, sd=0.02)],
        "wind": [partial(cart, wind=0.4, sd=0.02)],
    }
    agent = walk(
        orl.OccamControl(ladder=ladder_of(listed), refine=True),
        partial(cart, wind=0.13, sd=0.02),
        150,
    )
    assert agent.verdict["chosen"] == 2
    assert abs(agent.answer.parameters["wind"] - 0.13) < 0.03


# Planners -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", [orl.CEM(), orl.MPPI(iterations=3)])
def test_planners_find_the_best_action(planner: Any) -> None:
    """One step ahead, -(x + a - 0.3)^2 is largest at a = 0.3 - x; of listed actions the nearest to that is."""

    def step(states: Floats, actions: Floats, rng: Rng) -> Floats:
        return states + actions

    def aim(states: Floats, actions: Floats, after: Floats) -> Floats:
        found: Floats = -((after[:, 0] - 0.3) ** 2)
        return found

    at = np.array([0.1])
    action, warm = planner.plan(step, aim, at, 1, orl.Box(-1, 1), np.random.default_rng(0), None)
    assert abs(action[0] - 0.2) < 0.05
    assert -0.05 < warm.value <= 0.0
    listed = ladder_of(actions=[[-1.0], [0.0], [0.25], [1.0]]).actions
    action, warm = planner.plan(step, aim, at, 1, listed, np.random.default_rng(0), None)
    assert action.tolist() == [0.25]


@pytest.mark.parametrize("acting", ["plausible", "sampling", "average", "optimism"])
def test_every_way_of_acting_acts_on_boxes_and_lists(acting: str) -> None:
    agent = orl.OccamControl(ladder=ladder_of(horizon=5), acting=acting, planner=QUICK)
    result = orl.learn(agent, Cart(partial(cart, wind=0.1)), episodes=2)
    assert result.returns.shape == (2,)
    agent = orl.OccamControl(
        ladder=ladder_of(horizon=5, actions=[[-1.0], [1.0]]), acting=acting, planner=QUICK
    )
    assert orl.learn(agent, Cart(cart, actions=[[-1.0], [1.0]]), episodes=1).total_episodes == 1


# Files, resuming, logs ----------------------------------------------------------------------------


def same(one: orl.OccamControl, other: orl.OccamControl) -> bool:
    """Say whether two agents are the same, to the bit."""
    from occamrl.checks import leaves

    return leaves(one.state | {"warm": None}, "") == leaves(other.state | {"warm": None}, "")


def test_a_run_that_goes_on_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    agent = orl.OccamControl(
        ladder=ladder_of(horizon=10), planner=QUICK, acting="sampling", refine=True
    )
    truth, options = partial(cart, wind=0.05), {"seed": 3, "progress": False}
    whole = orl.learn(agent, Cart(truth), episodes=6, **options)
    assert agent.total_episodes == 0  # what was given stays as it is
    half = orl.learn(agent, Cart(truth), episodes=3, **options)
    assert same(orl.learn(agent, Cart(truth), episodes=3, continue_from=half), whole)
    orl.learn(agent, Cart(truth), episodes=2, checkpoint=tmp_path / "c", **options)
    assert same(
        orl.learn(agent, Cart(truth), episodes=6, checkpoint=tmp_path / "c", **options), whole
    )
    for fail, kind in (
        (ZeroDivisionError("!"), EnvironmentFault),
        (KeyboardInterrupt(), Interrupted),
    ):
        with pytest.raises(kind) as stopped:
            orl.learn(agent, Cart(truth, fail, at=25), episodes=6, **options)
        so_far: Any = stopped.value.result  # type: ignore[attr-defined]  # both have one
        assert so_far.total_episodes == 2
        assert same(orl.learn(agent, Cart(truth), episodes=4, continue_from=so_far), whole)
    other = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK, delta=0.1)
    with pytest.raises(ParameterError, match="delta"):
        orl.learn(other, Cart(truth), episodes=1, continue_from=half)


def test_an_agent_goes_on_from_its_file_in_mid_episode(tmp_path: Path) -> None:
    agent = orl.OccamControl(ladder=ladder_of(), planner=QUICK)
    walk(agent, partial(cart, wind=0.1), 7)
    agent.act([0.2, 0.1])
    agent.save(tmp_path / "agent")
    again = orl.OccamControl(ladder=ladder_of(), planner=QUICK).load(tmp_path / "agent")
    assert same(agent, again)
    assert np.array_equal(agent.act([0.2, 0.1]), again.act([0.2, 0.1]))  # warm start included
    with pytest.raises(CheckpointError, match="another agent"):
        orl.OccamControl(ladder=ladder_of({"calm": [cart]}), planner=QUICK).load(tmp_path / "agent")
    (tmp_path / "agent").write_bytes((tmp_path / "agent").read_bytes()[:-100])
    with pytest.raises(CheckpointError):
        again.load(tmp_path / "agent")


def test_a_log_is_judged_as_by_an_agent_that_watches(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa_csv: Any = importlib.import_module("pyarrow.csv")
    ladder, rng, episodes = ladder_of(horizon=1_000), np.random.default_rng(0), []
    watching = orl.OccamControl(ladder=ladder)
    for _ in range(3):
        path, moves = [np.array([0.5, 0.0])], rng.uniform(-1, 1, (15, 1))
        for action in moves:
            path.append(cart(path[-1][None], action[None], rng, wind=0.1)[0])
            watching.observe(path[-2], action, 0.0, path[-1])
        watching.begin_episode()
        episodes.append(SimpleNamespace(observations=np.array(path), actions=moves))
    longer = [
        np.concatenate([each.actions, [[0.0]]]) for each in episodes
    ]  # a row more, for where it ended
    states, actions = (
        np.concatenate([each.observations for each in episodes]),
        np.concatenate(longer),
    )
    log: dict[str, Any] = {
        "episode": np.repeat([0, 1, 2], 16),
        "states": states,
        "actions": actions,
    }
    frame = pa.table(
        {
            "episode": log["episode"],
            "state_0": states[:, 0],
            "state_1": states[:, 1],
            "action_0": actions[:, 0],
        }
    )
    minari = SimpleNamespace(iterate_episodes=lambda: iter(episodes))
    own = {
        "run": log["episode"],
        "x": states[:, 0],
        "v": states[:, 1],
        "u": actions[:, 0],
        "t": np.arange(48),
    }
    order, roles = (
        np.random.default_rng(0).permutation(48),
        {"episode": "run", "state": ["x", "v"], "action": "u"},
    )
    mixed = orl.read_log({name: column[order] for name, column in own.items()}, roles, order_by="t")
    pa_csv.write_csv(frame, tmp_path / "log.csv")
    pq.write_table(frame, tmp_path / "log.parquet")
    for given in (log, frame, mixed, minari, tmp_path / "log.csv", str(tmp_path / "log.parquet")):
        answer = orl.select(given, ladder)
        assert np.array_equal(answer.evidence["capital"], watching.state["evidence"]["capital"])
        assert answer.chosen == 2
    assert [len(each[1]) for each in episodes_of(log)] == [15, 15, 15]
    bad: list[Any] = [
        {"episode": [0], "actions": [[0.0]]},
        3,
        "nowhere.csv",
        [3],
        log | {"episode": [0]},
    ]
    bad += [log | {"states": np.full_like(states, np.nan)}, log | {"states": states[:, :1]}]
    for given in bad:
        with pytest.raises(orl.InvalidInput):
            orl.select(given, ladder)


# Refinement, worth, pages -------------------------------------------------------------------------


def test_refinement_lists_a_truth_between_listed_values() -> None:
    listed = {"wind": [partial(cart, wind=w) for w in (0.0, 0.1, 0.2)]}
    truth = partial(cart, wind=0.16, sd=0.02)
    listed = {"wind": [partial(each, sd=0.02) for each in listed["wind"]]}
    coarse, fine = (
        walk(orl.OccamControl(ladder=ladder_of(listed), refine=r), truth, 200)
        for r in (False, True)
    )
    assert coarse.verdict["misspecified"]
    assert not fine.verdict["misspecified"]
    assert abs(fine.answer.parameters["wind"] - 0.16) < 0.02
    assert "the guarantee is for those listed" in str(fine.verdict)


def test_worth_is_the_expected_return() -> None:
    """Without action and noise of the place, -sum over t of E x_t^2: x_t = 0.5 + sum of 0.1 v, v a random walk."""
    agent = orl.OccamControl(ladder=ladder_of({"calm": [cart]}, horizon=10))
    rows = agent.answer.worth_of(lambda states, t: np.zeros((len(states), 1)), runs=400).rows
    v, x = (
        np.arange(1, 11) * 0.05**2,
        [0.01 * 0.05**2 * sum(k * k for k in range(1, t + 1)) for t in range(1, 11)],
    )
    exact = -(10 * 0.25 + v.sum() + sum(x))
    assert abs(rows[0]["worth"] - exact) < 4 * rows[0]["standard_error"]


def test_policies_are_compared_in_what_may_be_true() -> None:
    """The range covers every simulator that is left; what an always wrong policy loses has the right sign."""
    agent = walk(
        orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK), partial(cart, wind=0.1), 60
    )
    answer = agent.answer

    def push(states: Floats, step: int) -> Floats:
        return np.ones((len(states), 1))

    assert answer.compared_with(push, runs=4).low > 0.0
    assert set(answer.price_of_simplicity(runs=2)) == {"calm"}
    agent.state["evidence"]["rejected"][:] = -1
    wide = agent.answer.worth_of(push, runs=4)
    assert len(wide.rows) == 3
    assert wide.low <= min(row["worth"] for row in wide.rows) <= wide.value <= wide.high
    assert len(agent.answer.worth_of(push, runs=4, most=1).rows) == 1
    refused: list[Any] = ["storm", 3, lambda states, step: states]
    for bad in refused:
        with pytest.raises(orl.InvalidInput):
            answer.worth_of(bad)
    agent.state["evidence"]["rejected"][:] = 5
    assert len(agent.answer.worth_of(push, runs=2).rows) == 1  # the best one, corrected


def test_rewards_are_those_of_the_ladder_or_told() -> None:
    agent = orl.OccamControl(ladder=ladder_of(horizon=1))
    agent.observe([0.5, 0.0], [0.0], None, [0.5, 0.1])
    assert agent.returns == pytest.approx([-0.26])
    assert "differ" not in str(agent.verdict)
    agent.observe([0.5, 0.0], [0.0], 3.0, [0.5, 0.1])
    assert "differ" in str(agent.verdict)


def test_answers_are_drawn_and_written(tmp_path: Path) -> None:
    agent = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK)
    assert "Nothing" in agent.answer.page(tmp_path / "empty.html").read_text("utf-8")
    for truth in (cart, partial(cart, wind=0.1, drag=0.4)):
        result = orl.learn(agent, Cart(truth), episodes=12)
        text = result.answer.page(tmp_path / "page.html", runs=2).read_text("utf-8")
        for part in ("Does it matter?", "Evidence over time", "Returns", "What is guaranteed"):
            assert part in text
        assert [row["name"] for row in result.answer.rows] == ["calm", "wind"]
        assert "What is it worth?" not in result.answer.page(
            tmp_path / "page.html", runs=0
        ).read_text("utf-8")
    assert result.answer.misspecified
    assert "'wind'" in str(result.answer)


def line(states: Floats, actions: Floats, rng: Rng, *, wind: float = 0.0) -> Floats:
    """A linear system of one dimension."""
    found: Floats = 0.8 * states + 0.3 * actions + wind + 0.15 * rng.normal(size=states.shape)
    return found


def test_simulators_on_a_grid() -> None:
    listed: dict[str, list[Any]] = {
        "calm": [line],
        "wind": [partial(line, wind=w) for w in (-0.2, 0.2)],
    }
    ladder = ladder_of(listed, horizon=10, start=[0.4])
    coarse, made = (
        ladder.on_grid(Grid(low=[-2.0], high=[2.0], points=[m]), [-1, 0, 1], draws=400)
        for m in (9, 17)
    )
    place = made.grid.vertices[:, 0]
    for kernel, wind in zip(made.kernels, (0.0, -0.2, 0.2), strict=True):
        np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-12)
        assert kernel.data.min() > 0.0
        assert kernel.nnz == made.kernels[0].nnz  # nobody has a zero where another has none
        expected = (0.8 * place[:, None] + 0.3 * np.array([-1, 0, 1]) + wind).ravel()
        inner = np.abs(expected) < 1.4  # draws stay in the box
        assert np.abs(kernel @ place - expected)[inner].max() < 4.5 * 0.15 / 400**0.5 + 2.0 / 401
    mdp = made.mdp(2)
    assert mdp.initial_distribution @ place == pytest.approx(0.4)
    assert np.count_nonzero(mdp.initial_distribution) == 2
    assert made.error.grid < 0.6 * coarse.error.grid
    assert 0.0 < made.error.draws < coarse.error.grid
    assert made.ladder.names == ("calm", "wind")
    assert made.discretiser.encode([5.0]) == 16
    assert made.discretiser.encode([0.13]) == 9  # -2 + 9/4 = .25 is nearer than 0
    for truth, chosen in ((0, 1), (2, 2)):
        verdict = orl.run(orl.Occam(ladder=made.ladder), made.mdp(truth), episodes=50).verdict
        assert (verdict["chosen"], verdict["misspecified"]) == (chosen, False)
    with pytest.raises(ShapeError, match="1, as the ladder's"):
        ladder.on_grid(made.grid, [[0.0, 1.0]])


def test_a_circle_has_the_cells_of_its_vertices() -> None:
    made = ladder_of({"calm": [line]}, start=[0.0]).on_grid(
        Grid(low=[0], high=[4], points=[4], periodic=[True]), [0.0]
    )
    assert [made.discretiser.encode([x]) for x in (-0.4, 0.4, 0.6, 3.4)] == [0, 0, 1, 3]
    assert made.error.outside == 0.0

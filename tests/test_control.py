"""Simulators that can only be run: the test by exchangeability, the contract, acting, files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom, multinomial

import occamrl as orl
from occamrl.addresses import Address
from occamrl.checks import leaves
from occamrl.control import planners
from occamrl.control.vertices import Grid
from occamrl.errors import (
    CheckpointError,
    EnvironmentFault,
    Interrupted,
    NotAvailable,
    ParameterError,
    ShapeError,
    SpaceError,
)
from occamrl.evidence import simulated
from occamrl.evidence.simulator_contract import SimulatorError, check_simulator
from occamrl.evidence.simulator_laws import fit_laws
from occamrl.evidence.simulator_worlds import mean_interval
from occamrl.logs.continuous import episodes_of
from occamrl.protocols import Controller, Floats, Simulator, System, Transition
from studies.control import peeking, reusing, shared
from studies.systems import Task, World

Rng = np.random.Generator
QUICK = orl.CEM(candidates=8, elites=2, iterations=1, horizon=5, particles=2)
START = np.array([0.5, 0.0])


def cart(
    states: Floats,
    actions: Floats,
    rng: Rng,
    *,
    wind: float = 0.0,
    drag: float = 0.0,
    sd: float = 0.05,
) -> Floats:
    """Run a cart on a line: place and speed."""
    noise = sd * rng.normal(size=len(states))
    speed = states[:, 1] + 0.2 * actions[:, 0] + wind - drag * states[:, 1] + noise
    return np.stack([states[:, 0] + 0.1 * speed, speed], axis=1)


def reward(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Stay where you are."""
    squares: Floats = (next_states**2).sum(axis=1)
    return -squares


CLASSES: dict[str, list[Simulator]] = {
    "calm": [cart],
    "wind": [partial(cart, wind=-0.1), partial(cart, wind=0.1)],
}
WINDY = partial(cart, wind=0.1)
OUTSIDE = partial(cart, wind=0.1, drag=0.4)


def ladder_of(classes: Any = CLASSES, **options: Any) -> orl.SimulatorLadder:
    """Return a ladder of carts."""
    defaults: dict[str, Any] = {
        "reward": reward,
        "horizon": 30,
        "actions": orl.Box(-1, 1),
        "start": START,
    }
    return orl.SimulatorLadder(classes, **(defaults | options))


def random_steps(
    truth: Simulator, steps: int, seed: int, horizon: int = 30
) -> Iterator[Transition]:
    """Yield real steps under random actions."""
    rng = np.random.default_rng(seed)
    state = START
    for number in range(steps):
        step = number % horizon
        action = rng.uniform(-1, 1, (1, 1))
        following = truth(state[None], action, rng)[0]
        ended = step == horizon - 1
        yield Transition(
            state, action[0], None, following, ended, Address(seed=0, place=number), step
        )
        state = START if ended else following


def watching(controller: orl.OccamControl, truth: Simulator, steps: int) -> orl.Agent:
    """Return an agent that has watched random actions."""
    agent = orl.Agent(controller)
    ladder: Any = controller.ladder
    for step in random_steps(truth, steps, seed=0, horizon=ladder.horizon):
        agent.observe(step.state, step.action, None, step.next_state)
    return agent


class Cart(World):
    """A cart as an environment; ``fault`` is raised at some step of all."""

    def __init__(
        self,
        step: Simulator,
        fault: BaseException | None = None,
        at_step: int = -1,
        actions: Any = None,
    ) -> None:
        task = Task(
            step=cart,
            classes={},
            truths={},
            outside={},
            reward=reward,
            start=lambda rng: START,
            actions=actions or orl.Box(-1, 1),
        )
        super().__init__(task, step)
        self.fault = fault
        self.steps_left = at_step

    def step(self, action: Any) -> Any:
        self.steps_left -= 1
        if self.steps_left == 0 and self.fault is not None:
            raise self.fault
        return super().step(action)


# The test -----------------------------------------------------------------------------------------


def test_the_bets_of_exchanged_outcomes_have_mean_one() -> None:
    """Whatever the scores are, the N + 1 values of e, when each plays y, add up to N + 1."""
    rng = np.random.default_rng(0)
    scores = [
        rng.normal(size=8),
        50 * rng.normal(size=8),
        rng.standard_cauchy(8),
        np.full(8, -np.inf),
        np.zeros(8),
        np.where(rng.random(8) < 0.5, -np.inf, 0.0),
        np.array([900.0, *np.full(7, -900.0)]),
    ]
    for log_w in scores:
        bets = [np.exp(simulated.bet(np.roll(log_w, k))) for k in range(8)]
        assert np.isclose(np.mean(bets), 1.0, atol=1e-12)


def test_the_score_does_not_look_at_the_outcome() -> None:
    """Brute force: with laws and history fixed, each of the N + 1 points plays the outcome."""
    ladder = ladder_of(draws=6)
    agent = watching(orl.OccamControl(ladder=ladder), partial(cart, wind=0.05), 20)
    state = agent.result.state["evidence"]
    state["members"].rejected[:] = -1
    rng = np.random.default_rng(1)
    active = np.arange(3)
    phi = ladder.error_features.of(np.array([0.3, -0.2]), np.array([0.5]))
    draws = rng.normal(size=(3, 6, 2))
    before = state["members"].far, state["errors"].awake
    (laws,), _ = fit_laws(draws[None], ladder.resolution, *before)
    points = rng.normal(size=(3, 7, 2))
    total = np.zeros((3, 2))
    for k in range(7):
        exchanged = np.roll(points, k, axis=1)
        scores = simulated.score(state, active, active.size, laws, exchanged, phi)
        total += np.exp(scores.log_bets)
    assert np.allclose(total, 7.0)


def test_laws_of_a_block_are_those_of_its_steps_one_after_the_other() -> None:
    rng = np.random.default_rng(2)
    draws = rng.standard_t(1.5, size=(4, 3, 9, 2))  # members 3, draws 9: some lie far away
    far = np.zeros((3, 5))
    runs = np.array([0.0, 2.0, 7.0])
    resolution = np.array([0.01, 0.01])
    laws, after = fit_laws(draws, resolution, far, runs)
    for step in range(4):
        (alone,), far = fit_laws(draws[step : step + 1], resolution, far, runs + step)
        for name, fitted in alone._asdict().items():
            assert np.allclose(fitted, laws[step]._asdict()[name], rtol=1e-12)
    assert np.allclose(far, after)


def peaks_against_the_truth(
    runs: int,
    steps: int,
    wrap: Callable[[Simulator], Simulator] = lambda step: step,
    **options: Any,
) -> Floats:
    """Return the largest log capital against the true simulator, of every run."""
    classes = {}
    for name, members in CLASSES.items():
        classes[name] = [wrap(member) for member in members]
    ladder = ladder_of(classes, check=False, **options)
    evidence = ladder.evidence(None, 0.05)
    peaks = []
    for seed in range(runs):
        state = evidence.begin()
        rng = np.random.default_rng(100 + seed)
        here = START
        run = []
        for number in range(steps):
            action = np.array([1.0 if number % 3 == 0 else -1.0])
            following = WINDY(here[None], action[None], rng)[0]
            step = number % 30
            address = Address(seed, number)
            run.append(Transition(here, action, None, following, step == 29, address, step))
            here = START if step == 29 else following
        evidence.add_steps(state, run)
        peaks.append(state["members"].peak[2])
    return np.array(peaks)


def p_value(peaks: Floats, delta: float) -> float:
    """Return the chance of so many rejections if each has probability delta."""
    rejected = int((peaks >= -np.log(delta)).sum())
    return float(binom.sf(rejected - 1, peaks.size, delta))


@pytest.mark.parametrize("longest", [simulated.LONGEST, 3])
def test_the_true_simulator_is_rejected_as_rarely_as_promised(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, as so short a log is weighed, and in blocks."""
    monkeypatch.setattr(simulated, "LONGEST", longest)
    peaks = peaks_against_the_truth(50, 40)
    assert p_value(peaks, 0.05) > 1e-3
    assert p_value(peaks, 0.5) > 1e-3


def test_no_law_is_fitted_to_numbers_behind_ranked_draws() -> None:
    """Members may use up random numbers differently: draws and fits have generators apart."""
    called: dict[str, list[str]] = {"one": [], "two": []}

    def member(name: str, used: int, states: Floats, actions: Floats, rng: Rng) -> Floats:
        called[name].append(str(rng.bit_generator.state))
        noise: Floats = rng.normal(size=(len(states), used)).mean(axis=1, keepdims=True)
        return states + noise

    classes = {"one": [partial(member, "one", 1)], "two": [partial(member, "two", 2)]}
    agent = orl.Agent(orl.OccamControl(ladder=ladder_of(classes, start=[0.0], check=False)))
    for generators in called.values():
        generators.clear()
    agent.observe([0.0], [0.0], None, [0.3])
    assert called["one"] == called["two"]  # common random numbers
    assert len(set(called["one"])) == 2


@pytest.mark.parametrize("broken", [nullcontext, reusing, peeking])
def test_broken_tests_reject_the_truth(broken: Callable[[], AbstractContextManager[None]]) -> None:
    """Rows that share a draw, fits on the ranked draws, and a score that looks at the outcome."""
    options: dict[str, Any] = {"draws": 5}
    if broken is nullcontext:
        options["wrap"] = shared
    with broken():
        peaks = peaks_against_the_truth(15, 90, **options)
    assert p_value(peaks, 0.05) < 1e-6


def test_wrong_classes_are_rejected_and_the_right_one_is_named() -> None:
    agent = watching(orl.OccamControl(ladder=ladder_of()), WINDY, 60)
    verdict = agent.result.verdict
    assert verdict["chosen"] == 2
    assert verdict["rejected_after"][0] < 30
    assert agent.answer.parameters == {"wind": (0.1, 0.1, 0.1)}
    assert "'wind'" in str(verdict)


def test_deterministic_simulators_have_a_law() -> None:
    truth = partial(cart, sd=0.0, wind=0.02)
    exact = {"calm": [partial(cart, sd=0.0)], "wind": [partial(cart, sd=0.0, wind=0.01), truth]}
    agent = watching(orl.OccamControl(ladder=ladder_of(exact)), truth, 40)
    calm, other, right = agent.result.state["evidence"]["members"].rejected.tolist()
    assert right == -1
    assert 1 <= calm <= 4
    assert 1 <= other <= 4


def test_a_truth_outside_is_noticed_and_named() -> None:
    controller = orl.OccamControl(ladder=ladder_of(coordinates=["place", "speed"]))
    agent = watching(controller, OUTSIDE, 150)
    assert agent.result.verdict["misspecified"]
    misfit = agent.answer.misfits[0]
    assert misfit["feature"] == "speed"
    # Drag is wind where the speed is low.
    assert min(misfit["at_low"]) > 0.0
    assert misfit["at_high"] < misfit["at_low"]
    agent.act([0.5, 0.0])


def test_many_simulators_take_turns() -> None:
    """At most 32 are awake at a step, and all get their turn."""
    winds = {"winds": [partial(cart, wind=wind) for wind in np.linspace(-0.01, 0.01, 100)]}
    controller = orl.OccamControl(ladder=ladder_of(winds, check=False))
    awake = watching(controller, cart, 12).result.state["evidence"]["errors"].awake
    assert awake.min() >= 1
    assert awake.sum() == 12 * simulated.AWAKE


def test_no_two_steps_are_ranked_among_the_same_draws() -> None:
    """Not even where episodes are longer than the horizon, in a log, or begun anew."""
    met: set[str] = set()

    def watched(states: Floats, actions: Floats, rng: Rng) -> Floats:
        met.add(str(rng.bit_generator.state))
        return cart(states, actions, rng)

    ladder = ladder_of({"calm": [watched]}, horizon=3, check=False)
    met.clear()
    states = np.random.default_rng(0).normal(size=(24, 2))
    log = {"episode": np.repeat([0, 1, 2], 8), "states": states, "actions": np.zeros((24, 1))}
    orl.select(log, ladder)
    assert len(met) == 2 * 21  # those that are ranked, and those that laws are fitted to


# The contract -------------------------------------------------------------------------------------


TICK = itertools.count()


def half_shared(states: Floats, actions: Floats, rng: Rng) -> Floats:
    """Draw the first coordinate once for all rows."""
    noise = [np.full(len(states), rng.normal()), rng.normal(size=len(states))]
    together: Floats = np.stack(noise, axis=1)
    return states + together


BAD: list[tuple[Any, str]] = [
    (lambda s, a, rng: s + rng.normal(), "share a draw"),
    (lambda s, a, rng: s + rng.normal(size=2), "share a draw"),
    (half_shared, "coordinate 0"),
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


BAD_LADDERS: list[dict[str, Any]] = [
    {"classes": {}},
    {"classes": {"calm": cart}},
    {"classes": {"calm": []}},
    {"classes": [cart]},
    {"classes": {1: [cart], "1": [cart]}},
    {"draws": 2},
    {"horizon": 0},
    {"resolution": 0.0},
    {"resolution": [1.0] * 3},
    {"reward": 1.0},
    {"reward": lambda s, a, after: -after},
    {"reward": lambda s: 0.0},
    {"reward": lambda s, a, after: np.full(len(s), np.nan)},
    {"start": "here"},
    {"start": lambda: 0.0},
    {"actions": []},
    {"actions": (-1, 1)},
    {"view": lambda s: s[:, 0]},
    {"coordinates": ["place"]},
    {"returns": (0.0, 0.0)},
]


@pytest.mark.parametrize("options", BAD_LADDERS)
def test_a_ladder_is_checked_at_the_door(options: dict[str, Any]) -> None:
    with pytest.raises(orl.InvalidInput):
        ladder_of(**options)


def test_an_error_names_the_simulator_and_its_class() -> None:
    with pytest.raises(SimulatorError, match="calm"):
        ladder_of({"calm": [lambda s, a, rng: s + rng.normal()]})


def test_parameters_are_checked_at_the_door() -> None:
    ladder = ladder_of()
    attempts: list[Callable[[], object]] = [
        lambda: orl.Box([0, 0], [1, 1, 1]),
        lambda: orl.CEM(elites=0),
        lambda: orl.MPPI(temperature=0.0),
    ]
    bad: list[dict[str, Any]] = [
        {"delta": 0.0},
        {"acting": "wildly"},
        {"planner": None},
        {"planner": orl.CEM},
        {"ladder": None},
    ]
    for options in bad:
        arguments: dict[str, Any] = {"ladder": ladder, **options}
        attempts.append(partial(orl.OccamControl, **arguments))
    for attempt in attempts:
        with pytest.raises(orl.InvalidInput):
            attempt()


def test_a_step_that_is_refused_leaves_no_trace() -> None:
    agent = orl.Agent(orl.OccamControl(ladder=ladder_of()))
    with pytest.raises(ShapeError):
        agent.act([0.0])
    bad_steps: list[Any] = [
        ([0.0, np.nan], [0.0], 0.0),
        ([0.0, 0.0], [0.0], np.nan),
        ([0.0, 0.0], [0.0], "much"),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
    ]
    for state, action, paid in bad_steps:
        with pytest.raises(orl.InvalidInput):
            agent.observe(state, action, paid, [0.0, 0.0])
    assert agent.step == 0
    assert agent.result.state["evidence"]["steps"] == 0


class Dropout(Cart):
    """A cart whose second observation is not a number."""

    def step(self, action: Any) -> Any:
        observation, *others = super().step(action)
        return (observation * np.nan, *others) if self.steps_left == -3 else (observation, *others)


def test_errors_of_others_name_episode_and_step_and_carry_the_result() -> None:
    armed = False

    def fragile(states: Floats, actions: Floats, rng: Rng) -> Floats:
        if armed:
            raise ZeroDivisionError("no length")
        return cart(states, actions, rng)

    controller = orl.OccamControl(ladder=ladder_of({"calm": [fragile]}, horizon=4), planner=QUICK)
    with pytest.raises(EnvironmentFault, match="episode 0, step 2") as fault:
        orl.learn(controller, Dropout(cart, at_step=0), episodes=2)
    assert fault.value.result.total_episodes == 0
    driver = orl.Agent(controller)
    armed = True
    with pytest.raises(EnvironmentFault, match="no length"):
        driver.act([0.0, 0.0])
    with pytest.raises(EnvironmentFault, match="episode 0, step 0"):
        orl.learn(controller, Cart(cart), episodes=1)
    with pytest.raises(ParameterError, match="widen its Box"):
        driver.observe([0.0, 0.0], [3.0], None, [0.0, 0.0])


def test_spaces_have_to_fit_the_simulators() -> None:
    controller = orl.OccamControl(ladder=ladder_of())
    narrow = Cart(cart)
    narrow.action_space = gym.spaces.Box(-0.5, 0.5, (1,))
    environments: list[Any] = [Cart(cart, actions=[[-1.0], [1.0]]), narrow]
    for environment in environments:
        with pytest.raises(SpaceError):
            orl.learn(controller, environment, episodes=1)
        with pytest.raises(SpaceError):
            orl.Agent(controller, environment)
    nothing: Any = None
    with pytest.raises(ParameterError):
        orl.learn(controller, nothing, episodes=1)
    with pytest.raises(ParameterError, match="horizon"):
        orl.learn(controller, Cart(cart), episodes=1, horizon=3)


def test_a_planner_that_returns_no_plan_is_told_so() -> None:
    planner = SimpleNamespace(plan=lambda *arguments: None)
    agent = orl.Agent(orl.OccamControl(ladder=ladder_of(), planner=planner))
    with pytest.raises(ParameterError, match="planner"):
        agent.act([0.5, 0.0])


def test_what_was_played_is_what_is_judged() -> None:
    """A planner that leaves the box is clipped, and the step is judged as it was played."""
    wild = SimpleNamespace(plan=lambda *arguments: (arguments[5].normal(size=1) * 5, None))
    controller = orl.OccamControl(ladder=ladder_of({"calm": [cart]}), planner=wild)
    assert not orl.learn(controller, Cart(cart), episodes=3).verdict["misspecified"]
    log = {"episode": [0, 0, 0], "states": np.zeros((3, 2)), "actions": [[0], [2], [1]]}
    with pytest.raises(orl.InvalidInput, match="not its number"):
        orl.select(log, ladder_of(actions=[[-1.0], [0.0], [1.0]]))


# Planners -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", [orl.CEM(), orl.MPPI(iterations=3)])
def test_planners_find_the_best_action(planner: Any) -> None:
    """One step ahead, -(x + a - 0.3)^2 is largest at a = 0.3 - x; of a list, at the nearest."""

    def step(states: Floats, actions: Floats, rng: Rng) -> Floats:
        return states + actions

    def aim(states: Floats, actions: Floats, next_states: Floats) -> Floats:
        distance: Floats = next_states[:, 0] - 0.3
        return -(distance**2)

    state = np.array([0.1])
    rng = np.random.default_rng(0)
    action, warm = planner.plan(step, aim, state, 1, orl.Box(-1, 1), rng, None)
    assert abs(action[0] - 0.2) < 0.05
    assert -0.05 < warm.value <= 0.0
    choices = ladder_of(actions=[[-1.0], [0.0], [0.25], [1.0]]).actions
    rng = np.random.default_rng(0)
    action, warm = planner.plan(step, aim, state, 1, choices, rng, None)
    assert action.tolist() == [0.25]


def test_candidates_are_compared_under_the_same_noise() -> None:
    """Without an effect of actions all candidates earn the same."""

    def still(states: Floats, actions: Floats, rng: Rng) -> Floats:
        drawn: Floats = states + rng.normal(0.0, 1.0, size=states.shape)
        return (
            drawn
            + rng.uniform(-np.ones(len(states)), 1.0)[:, None]
            + rng.random(len(states))[:, None]
        )

    def place(states: Floats, actions: Floats, next_states: Floats) -> Floats:
        return next_states[:, 0]

    plans = np.random.default_rng(0).uniform(-1, 1, (16, 5, 1))
    rng = np.random.default_rng(1)
    returns = planners.mean_returns(still, place, np.zeros(2), plans, 3, rng)
    assert np.ptp(returns) < 1e-12
    # and each is a draw of the law that it is without: five sums of one to five steps
    many = []
    for _ in range(400):
        many.append(planners.mean_returns(still, place, np.zeros(2), plans, 1, rng)[0])
    mean = 15 * 0.5  # of 1 + ... + 5 steps, each of mean one half
    assert abs(np.mean(many) - mean) < 4 * np.std(many) / 20


def test_a_plan_stops_when_its_time_is_out() -> None:
    calls = 0

    def counted(states: Floats, actions: Floats, rng: Rng) -> Floats:
        nonlocal calls
        calls += 1
        return states

    planner = orl.CEM(iterations=1000, horizon=1, seconds=1e-9)
    planner.plan(counted, reward, np.zeros(2), 1, orl.Box(-1, 1), np.random.default_rng(0), None)
    assert calls == 1
    with pytest.raises(ParameterError, match="seconds"):
        orl.MPPI(seconds=0.0)


@pytest.mark.parametrize("acting", ["plausible", "sampling", "average", "optimism"])
def test_every_way_of_acting_acts_on_boxes_and_lists(acting: str) -> None:
    controller = orl.OccamControl(ladder=ladder_of(horizon=5), acting=acting, planner=QUICK)
    result = orl.learn(controller, Cart(WINDY), episodes=2)
    assert result.returns.shape == (2,)
    actions = [[-1.0], [1.0]]
    ladder = ladder_of(horizon=5, actions=actions)
    controller = orl.OccamControl(ladder=ladder, acting=acting, planner=QUICK)
    assert orl.learn(controller, Cart(cart, actions=actions), episodes=1).total_episodes == 1


class Brake:
    """A controller of a user's: it counts steps, and pushes against the speed."""

    def begin(self, system: System) -> dict[str, int]:
        return {"steps": 0, "last": -1}

    def act(
        self,
        system: System,
        state: dict[str, int],
        observation: Floats,
        step: int,
        address: Address,
    ) -> Floats:
        return np.clip(-3.0 * observation[1:], system.actions.low, system.actions.high)

    def learn(self, system: System, state: dict[str, int], transition: Transition) -> None:
        assert transition.step == (state["last"] + 1) % system.horizon
        state["steps"] += 1
        state["last"] = transition.step


def test_a_controller_of_others_is_driven_and_learns_too(tmp_path: Path) -> None:
    brake = Brake()
    assert isinstance(brake, Controller)
    system = ladder_of(horizon=10).known
    result = orl.learn(brake, Cart(cart), episodes=3, known=system, checkpoint=tmp_path / "c")
    assert result.state["steps"] == 30
    more = orl.learn(brake, Cart(cart), episodes=4, known=system, checkpoint=tmp_path / "c")
    assert more.state["steps"] == 40
    agent = orl.Agent(brake, Cart(cart), known=system).learn(2)
    assert agent.act([0.0, 0.1]) == pytest.approx([-0.3])
    assert agent.result.state["steps"] == 20
    assert agent.result.returns.size == 2
    with pytest.raises(ParameterError, match="known"):
        orl.learn(brake, Cart(cart), episodes=1)


# Files, resuming, logs ----------------------------------------------------------------------------


def same(one: orl.Result, other: orl.Result) -> bool:
    """Say whether two results are the same, to the bit."""
    states = [dict(result.state, warm=None) for result in (one, other)]
    equal = leaves(states[0], "") == leaves(states[1], "")
    return equal and one.blocks.returns == other.blocks.returns and one.drive == other.drive


def test_a_run_that_goes_on_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    controller = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK, acting="sampling")
    truth = partial(cart, wind=0.05)
    options: dict[str, Any] = {"seed": 3, "progress": False}
    whole = orl.learn(controller, Cart(truth), episodes=6, **options)
    half = orl.learn(controller, Cart(truth), episodes=3, **options)
    assert same(orl.learn(controller, Cart(truth), episodes=3, continue_from=half), whole)
    assert half.total_episodes == 3  # what was continued is as it was
    options["checkpoint"] = tmp_path / "c"
    orl.learn(controller, Cart(truth), episodes=2, **options)
    assert same(orl.learn(controller, Cart(truth), episodes=6, **options), whole)
    agent = orl.Agent(controller, Cart(truth), seed=3)
    assert same(agent.learn(2).learn(4).result, whole)


@pytest.mark.parametrize("fault", [ZeroDivisionError("!"), KeyboardInterrupt()])
def test_an_episode_that_fails_leaves_no_trace(fault: BaseException) -> None:
    controller = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK)
    truth = partial(cart, wind=0.05)
    whole = orl.learn(controller, Cart(truth), episodes=6)
    with pytest.raises((EnvironmentFault, Interrupted)) as stopped:
        orl.learn(controller, Cart(truth, fault, at_step=25), episodes=6)
    error = stopped.value
    assert isinstance(error, (EnvironmentFault, Interrupted))
    result = error.result
    assert isinstance(result, orl.Result)
    assert result.total_episodes == 2
    assert same(orl.learn(controller, Cart(truth), episodes=4, continue_from=result), whole)


def test_another_controller_does_not_go_on() -> None:
    first = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK)
    other = replace(first, delta=0.1)
    result = orl.learn(first, Cart(cart), episodes=1)
    with pytest.raises(ParameterError, match="delta"):
        orl.learn(other, Cart(cart), episodes=1, continue_from=result)


def test_an_agent_goes_on_from_its_file_in_mid_episode(tmp_path: Path) -> None:
    controller = orl.OccamControl(ladder=ladder_of(), planner=QUICK)
    agent = watching(controller, WINDY, 7)
    agent.act([0.2, 0.1])
    agent.save(tmp_path / "agent")
    again = orl.Agent.load(tmp_path / "agent", orl.OccamControl(ladder=ladder_of(), planner=QUICK))
    assert again.step == 7
    assert same(agent.result, again.result)
    # Where the search begins is part of the file.
    assert np.array_equal(agent.act([0.2, 0.1]), again.act([0.2, 0.1]))
    other = orl.OccamControl(ladder=ladder_of({"calm": [cart]}), planner=QUICK)
    with pytest.raises(CheckpointError, match="another one"):
        orl.Agent.load(tmp_path / "agent", other)
    with pytest.raises(CheckpointError, match="no file can hold"):
        orl.Agent.load(tmp_path / "agent")
    damaged = (tmp_path / "agent").read_bytes()[:-100]
    (tmp_path / "agent").write_bytes(damaged)
    with pytest.raises(CheckpointError):
        orl.Agent.load(tmp_path / "agent", controller)


def test_an_agent_of_a_controller_has_no_verbs_of_finite_problems() -> None:
    agent = orl.Agent(orl.OccamControl(ladder=ladder_of()))
    attempts: list[Callable[[], object]] = [
        agent.policy,
        agent.forget,
        agent.dismiss,
        lambda: agent.predict([0.0, 0.0]),
        lambda: agent.result.policy(),
        lambda: orl.Agent(agent.algorithm, alarm=1e-3),
    ]
    for attempt in attempts:
        with pytest.raises(NotAvailable, match="controller"):
            attempt()
    assert agent.alarm is None


def test_another_agent_or_a_log_is_where_to_begin() -> None:
    ladder = ladder_of()
    first = watching(orl.OccamControl(ladder=ladder), WINDY, 40)
    second = orl.Agent(orl.OccamControl(ladder=ladder, acting="sampling"), seed=5)
    second.learn_from(first)
    assert same(replace(second.result, seed=0), first.result)
    with pytest.raises(ParameterError, match="of its own"):
        second.learn_from(first)
    rows: dict[str, list[float]] = {"run": [], "x": [], "v": [], "u": []}
    for step in random_steps(WINDY, 40, seed=0):
        rows["run"].append(0)
        rows["x"].append(step.state[0])
        rows["v"].append(step.state[1])
        rows["u"].append(step.action[0])
    columns = {"episode": "run", "state": ["x", "v"], "action": "u"}
    third = orl.Agent(orl.OccamControl(ladder=ladder)).learn_from(orl.read_log(rows, columns))
    assert third.result.state["evidence"]["steps"] == 39
    assert third.answer.chosen == 2


EPISODES = 3
STEPS = 15


def recorded_episodes() -> list[Any]:
    """Return episodes as Minari has them: a state more than actions."""
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(EPISODES):
        actions = rng.uniform(-1, 1, (STEPS, 1))
        path = [START]
        for action in actions:
            path.append(WINDY(path[-1][None], action[None], rng)[0])
        episodes.append(SimpleNamespace(observations=np.array(path), actions=actions))
    return episodes


def arrays_of(episodes: list[Any]) -> dict[str, Any]:
    """Return them as arrays, with a row more for where each ended."""
    longer = [np.concatenate([episode.actions, [[0.0]]]) for episode in episodes]
    return {
        "episode": np.repeat(np.arange(EPISODES), STEPS + 1),
        "states": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate(longer),
    }


def csv_of(table: pa.Table) -> str:
    """Return a table as the text of a CSV file."""
    lines = [",".join(table.column_names)]
    for row in table.to_pylist():
        lines.append(",".join(repr(value) for value in row.values()))
    return "\n".join(lines)


def test_a_log_is_judged_as_by_an_agent_that_watches(tmp_path: Path) -> None:
    ladder = ladder_of(horizon=1_000)
    episodes = recorded_episodes()
    agent = orl.Agent(orl.OccamControl(ladder=ladder))
    for episode in episodes:
        for step, action in enumerate(episode.actions):
            before = episode.observations[step]
            agent.observe(before, action, 0.0, episode.observations[step + 1])
        agent.begin_episode()

    log = arrays_of(episodes)
    table = pa.table(
        {
            "episode": log["episode"],
            "state_0": log["states"][:, 0],
            "state_1": log["states"][:, 1],
            "action_0": log["actions"][:, 0],
        }
    )
    (tmp_path / "log.csv").write_text(csv_of(table))
    pq.write_table(table, tmp_path / "log.parquet")
    order = np.random.default_rng(0).permutation(len(log["states"]))
    named = {
        "run": log["episode"][order],
        "x": log["states"][order, 0],
        "v": log["states"][order, 1],
        "u": log["actions"][order, 0],
        "t": order,
    }
    columns = {"episode": "run", "state": ["x", "v"], "action": "u"}
    sources: list[Any] = [
        log,
        table,
        orl.read_log(named, columns, order_by="t"),
        SimpleNamespace(iterate_episodes=lambda: iter(episodes)),
        tmp_path / "log.csv",
        str(tmp_path / "log.parquet"),
    ]
    for source in sources:
        answer = orl.select(source, ladder)
        capital = answer.state["members"].capital
        assert np.array_equal(capital, agent.result.state["evidence"]["members"].capital)
        assert answer.chosen == 2
    assert [len(episode.actions) for episode in episodes_of(log)] == [STEPS] * EPISODES


def test_a_log_of_another_system_is_refused() -> None:
    log = arrays_of(recorded_episodes())
    bad: list[Any] = [
        {"episode": [0], "actions": [[0.0]]},
        3,
        "nowhere.csv",
        [3],
        log | {"episode": [0]},
        log | {"states": np.full_like(log["states"], np.nan)},
        log | {"states": log["states"][:, :1]},
    ]
    for source in bad:
        with pytest.raises(orl.InvalidInput):
            orl.select(source, ladder_of())


# Worth, pages -------------------------------------------------------------------------


def test_worth_is_the_expected_return() -> None:
    """Without action, -sum over t of E v_t^2 + E x_t^2: v is a random walk, x = 0.5 + .1 sum v."""
    agent = orl.Agent(orl.OccamControl(ladder=ladder_of({"calm": [cart]}, horizon=10)))
    worth = agent.answer.worth_of(lambda states, step: np.zeros((len(states), 1)), runs=400)
    variance = 0.05**2
    expected = 0.0
    for t in range(1, 11):
        squares = sum(k * k for k in range(1, t + 1))
        expected -= 0.25 + t * variance + 0.01 * variance * squares
    # The range is Student's interval, two standard errors either way.
    assert abs(worth.value - expected) < worth.high - worth.low


def coverage(law: dict[float, float], runs: int, bounds: tuple[float, float] | None) -> float:
    """Return, over all samples from a law of returns, how often the interval holds the mean."""
    mean = sum(value * chance for value, chance in law.items())
    held = 0.0
    for counts in itertools.product(range(runs + 1), repeat=len(law)):
        if sum(counts) == runs:
            low, high = mean_interval(np.repeat(list(law), counts), bounds)
            if low - 1e-12 <= mean <= high + 1e-12:
                held += float(multinomial.pmf(counts, runs, list(law.values())))
    return held


CRASHES = [{-1.0: chance, 0.0: 1 - chance} for chance in (0.004, 0.05, 0.3, 0.5, 0.9, 0.99)]
LAWS_OF_RETURNS = [*CRASHES, {-1.0: 0.02, -0.4: 0.5, 0.0: 0.48}, {-1.0: 0.3, -0.1: 0.1, 0.0: 0.6}]


def test_the_interval_of_a_mean_holds_for_every_law_between_bounds() -> None:
    """Exactly, by all samples; Student's, the control, misses crashes that were not drawn."""
    for law in LAWS_OF_RETURNS:
        assert coverage(law, 8, (-1.0, 0.0)) >= 0.95
    for law in CRASHES:
        assert coverage(law, 40, (-1.0, 0.0)) >= 0.95
    assert min(coverage(law, 8, None) for law in CRASHES) < 0.1
    assert min(coverage(law, 40, None) for law in CRASHES) < 0.2


def test_returns_outside_their_bounds_are_refused() -> None:
    def still(states: Floats, step: int) -> Floats:
        return np.zeros((len(states), 1))

    def answer_of(low: float) -> orl.Answer:
        ladder = ladder_of({"calm": [cart]}, horizon=10, returns=(low, 0.0))
        return orl.Agent(orl.OccamControl(ladder=ladder, planner=QUICK)).answer

    answer = answer_of(-30.0)
    worth = answer.worth_of(still)
    assert -30.0 < worth.low < worth.value < worth.high <= 0.0
    twice = answer.compared_with(still)
    assert -30.0 <= twice.low <= twice.value <= twice.high <= 30.0
    with pytest.raises(ParameterError, match="returns"):
        answer_of(-0.1).worth_of(still)


def push(states: Floats, step: int) -> Floats:
    """Push all the time: a bad policy."""
    return np.ones((len(states), 1))


def test_policies_are_compared_in_what_may_be_true() -> None:
    """The range covers every simulator that is alive; a bad policy loses."""
    controller = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK)
    result = watching(controller, WINDY, 60).result
    answer = result.answer
    assert answer.compared_with(push, runs=4).low > 0.0
    assert set(answer.simulated(runs=2).price_of_simplicity) == {"calm"}
    refused: list[Any] = ["storm", 3, lambda states, step: states]
    for policy in refused:
        with pytest.raises(orl.InvalidInput):
            answer.worth_of(policy)
    result.state["evidence"]["members"].rejected[:] = -1
    undecided = replace(result).answer.simulated(runs=4)
    wide = undecided.worth_of(push)
    rule = undecided.worlds.rule(push)
    worlds = undecided.worlds.some(9)
    assert len(worlds) == 3
    means = [undecided.worlds.returns(rule, world).mean() for world in worlds]
    assert wide.low <= min(means) <= wide.value <= max(means) <= wide.high
    narrow = undecided.worth_of(push, maximum=1)
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    result.state["evidence"]["members"].rejected[:] = 5
    outside = replace(result).answer.simulated(runs=2)
    assert [world.label for world in outside.worlds.some(9)] == ["cart(wind=0.1)"]
    assert np.isnan(outside.worth_of(push).low)  # nothing is guaranteed


def test_rewards_are_those_of_the_ladder_or_told() -> None:
    agent = orl.Agent(orl.OccamControl(ladder=ladder_of(horizon=1)))
    agent.observe([0.5, 0.0], [0.0], None, [0.5, 0.1])
    assert agent.result.returns == pytest.approx([-0.26])
    assert "differ" not in str(agent.answer)
    agent.observe([0.5, 0.0], [0.0], 3.0, [0.5, 0.1])
    assert "differ" in str(agent.answer)


def test_answers_are_drawn_and_written(tmp_path: Path) -> None:
    controller = orl.OccamControl(ladder=ladder_of(horizon=10), planner=QUICK)
    page = tmp_path / "page.html"
    orl.Agent(controller).answer.page(page)
    assert "Nothing" in page.read_text("utf-8")
    for truth in (cart, OUTSIDE):
        result = orl.learn(controller, Cart(truth), episodes=12)
        result.answer.page(page, runs=2)
        text = page.read_text("utf-8")
        for part in ("Does it matter?", "Evidence over time", "Returns", "What is guaranteed"):
            assert part in text
        assert [row["name"] for row in result.answer.rows] == ["calm", "wind"]
        result.answer.page(page, runs=0)
        assert "What is it worth?" not in page.read_text("utf-8")
    assert result.answer.misspecified
    assert "'wind'" in str(result.answer)


# Grids --------------------------------------------------------------------------------------------


def line(states: Floats, actions: Floats, rng: Rng, *, wind: float = 0.0) -> Floats:
    """Run a linear system of one dimension."""
    noise: Floats = 0.15 * rng.normal(size=states.shape)
    return 0.8 * states + 0.3 * actions + wind + noise


WINDS = (0.0, -0.2, 0.2)


def line_ladder() -> orl.SimulatorLadder:
    """Return a ladder of lines."""
    listed = {"calm": [line], "wind": [partial(line, wind=wind) for wind in WINDS[1:]]}
    return ladder_of(listed, horizon=10, start=[0.4])


def test_simulators_on_a_grid() -> None:
    ladder = line_ladder()
    actions = [-1, 0, 1]
    coarse = ladder.on_grid(Grid(low=[-2.0], high=[2.0], points=[9]), actions, draws=400)
    fine = ladder.on_grid(Grid(low=[-2.0], high=[2.0], points=[17]), actions, draws=400)
    vertex = fine.grid.vertices[:, 0]
    for kernel, wind in zip(fine.kernels, WINDS, strict=True):
        np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-12)
        assert kernel.data.min() > 0.0
        assert kernel.nnz == fine.kernels[0].nnz  # nobody has a zero where another has none
        expected = (0.8 * vertex[:, None] + 0.3 * np.array(actions) + wind).ravel()
        inner = np.abs(expected) < 1.4  # draws stay in the box
        error = np.abs(kernel @ vertex - expected)[inner].max()
        assert error < 4.5 * 0.15 / 400**0.5 + 2.0 / 401
    mdp = fine.mdp(2)
    assert mdp.initial_distribution @ vertex == pytest.approx(0.4)
    assert np.count_nonzero(mdp.initial_distribution) == 2
    assert fine.error.grid < 0.6 * coarse.error.grid
    assert 0.0 < fine.error.draws < coarse.error.grid
    assert fine.ladder.names == ("calm", "wind")
    assert fine.discretiser.encode([5.0]) == 16
    assert fine.discretiser.encode([0.13]) == 9  # -2 + 9/4 = .25 is nearer than 0
    for truth, chosen in ((0, 1), (2, 2)):
        verdict = orl.run(orl.Occam(ladder=fine.ladder), fine.mdp(truth), episodes=50).verdict
        assert verdict["chosen"] == chosen
        assert not verdict["misspecified"]
    with pytest.raises(ShapeError, match="1, as the ladder's"):
        ladder.on_grid(fine.grid, [[0.0, 1.0]])


def test_a_circle_has_the_cells_of_its_vertices() -> None:
    grid = Grid(low=[0], high=[4], points=[4], periodic=[True])
    made = ladder_of({"calm": [line]}, start=[0.0]).on_grid(grid, [0.0])
    assert [made.discretiser.encode([x]) for x in (-0.4, 0.4, 0.6, 3.4)] == [0, 0, 1, 3]
    assert made.error.outside == 0.0

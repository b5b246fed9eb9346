"""Simulators that can only be run: validity, power, returns and cost on four systems, and a log.

The true simulator is a member of every ladder unless a table says otherwise, and the agent acts
adaptively.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.addresses import Address
from occamrl.control.controller import averaged
from occamrl.control.grid import OnGrid
from occamrl.control.vertices import Grid
from occamrl.evidence import simulated
from occamrl.evidence.simulator_worlds import plan_in
from occamrl.protocols import Floats, Judgement, Planner, Simulator, System, Transition
from studies.figures import Size, each, table
from studies.systems import CREEK, PENDULUM_V1, SYSTEMS, Rng, Task, World, creek

# A planner that is adaptive, where returns do not matter.
QUICK = orl.CEM(candidates=16, elites=4, iterations=1, horizon=8, particles=2)
TASKS = {**SYSTEMS, "Pendulum-v1": PENDULUM_V1}


def of_size(size: Size, tiny: int, full: int) -> int:
    """Return how much a study plays."""
    return tiny if size.tiny else full


@cache
def ladder_of(name: str, **options: Any) -> orl.SimulatorLadder:
    """Return the ladder of a system; it is checked once."""
    return SYSTEMS[name].ladder(**options)


def world_of(name: str, truth: str, **noise: float) -> Any:
    """Return a system as an environment; Pendulum-v1 is Gymnasium's, of another mass and length."""
    task = TASKS[name]
    if name in SYSTEMS:
        return World(task, partial(task.step, **task.truth(truth), **noise))
    env: Any = gym.make(name)
    env.unwrapped.m = task.truth(truth).get("mass", 1.0)
    env.unwrapped.l = task.truth(truth).get("length", 1.0)
    return env


def played(
    name: str, truth: str, seed: int, episodes: int, options: dict[str, Any] | None = None
) -> orl.Result:
    """Return the result of learning in a system; ``options`` are those of the ladder."""
    options = options or {}
    noise = {name: value for name, value in options.items() if name == "sd"}
    controller = orl.OccamControl(ladder=ladder_of(name, **options), planner=QUICK)
    world = world_of(name, truth, **noise)
    return orl.learn(controller, world, episodes=episodes, seed=seed, progress=False)


def judgement_of(result: orl.Result) -> Judgement:
    """Return what a controller has found out of its simulators."""
    judgement: Judgement = result.answer.judgement
    return judgement


# Validity -----------------------------------------------------------------------------------------


def peaks(
    size: Size,
    name: str,
    truth: str,
    runs: int,
    episodes: int,
    options: dict[str, Any] | None = None,
) -> Floats:
    """Return the largest log capital against the true member, of every run."""
    member = SYSTEMS[name].member(truth)

    def job(i: int) -> float:
        state = played(name, truth, 1_000 + i, episodes, options).state
        return float(state["evidence"]["members"].peak[member])

    return np.array(each(size, runs, job, f"{name}, {truth}"))


HEADER = ("rejected at .05", "p", "rejected at .5", "p")


def verdicts(capital: Floats) -> list[str]:
    """Return how often the truth was rejected at .05 and .5, and p of the test of at most that."""
    cells = []
    for delta in (0.05, 0.5):
        rejected = int((capital >= -np.log(delta)).sum())
        p = binomtest(rejected, len(capital), delta, alternative="greater").pvalue
        cells += [f"{rejected} of {len(capital)}", f"{p:.2g}"]
    return cells


def validity(size: Size) -> str:
    """Count how often the true simulator is rejected, acting adaptively."""
    rows = []
    for name in size.some(SYSTEMS):
        truth = list(SYSTEMS[name].truths)[1]
        rows.append((name, truth, *verdicts(peaks(size, name, truth, size.seeds(400), 2))))
    return table(("system", "truth", *HEADER), rows)


def shared(step: Simulator) -> Simulator:
    """Break a simulator: the rows of a call share one draw."""

    def run(states: Floats, actions: Floats, rng: Rng) -> Floats:
        return step(states[:1], actions[:1], rng).repeat(len(states), axis=0)

    return run


@contextmanager
def reusing() -> Iterator[None]:
    """Break the draws: those that are ranked are those that the laws are fitted to."""
    honest = Address.generator

    def generator(address: Address, purpose: str) -> Rng:
        return honest(address, purpose.replace("ranked", "fits"))

    with mock.patch.object(Address, "generator", generator):
        yield


@contextmanager
def peeking() -> Iterator[None]:
    """Break the score: it knows what came, and prefers what is near it by a little."""
    honest = simulated.bet

    def bet(log_w: Floats) -> Floats:
        log_w = log_w.copy()
        log_w[..., 0] += 0.1
        return honest(log_w)

    with mock.patch.object(simulated, "bet", bet):
        yield


def controls(size: Size) -> str:
    """Count the same for three tests that are broken on purpose."""
    few = {"draws": 5, "check": False}
    sharing = {**few, "wrap": shared}
    cases: list[tuple[str, Callable[[], AbstractContextManager[None]], dict[str, Any]]] = [
        ("none", nullcontext, few),
        ("shared draws", nullcontext, sharing),
        ("fits on the ranked draws", reusing, few),
        ("a score that looks at y", peeking, few),
    ]
    rows = []
    for label, broken, options in cases:
        with broken():
            capital = peaks(size, "pendulum, 2-d", "wind", size.seeds(100), 4, options)
        rows.append((label, *verdicts(capital)))
    return table(("broken", *HEADER), rows)


# Power --------------------------------------------------------------------------------------------


def steps_to_reject(judgement: Judgement, wrong: int) -> list[float]:
    """Return after how many steps each of the first classes was rejected; infinite if never."""
    steps = []
    for rejected in judgement.rejected_after[:wrong]:
        steps.append(np.inf if rejected is None else float(rejected))
    return steps


def spread(values: Floats) -> str:
    """Return a median and the range."""
    ordered = np.sort(values)
    cells = []
    for value in (ordered[len(ordered) // 2], ordered[0], ordered[-1]):
        cells.append(f"{value:,.0f}" if np.isfinite(value) else "never")
    return f"{cells[0]} ({cells[1]} to {cells[2]})"


def power(size: Size) -> str:
    """Measure real steps until each wrong class is rejected, and a truth outside is noticed."""
    rows = []
    episodes = of_size(size, 2, 10)
    for name in size.some(SYSTEMS):
        classes = list(SYSTEMS[name].classes)
        for truth in [*classes[1:], "outside"]:
            wrong = [*classes, "outside"].index(truth)  # classes

            def job(
                i: int, name: str = name, truth: str = truth, wrong: int = wrong
            ) -> list[float]:
                return steps_to_reject(judgement_of(played(name, truth, i, episodes)), wrong)

            steps = np.array(each(size, size.seeds(10), job, f"{name}, {truth}"))
            cells = [spread(steps[:, m]) for m in range(wrong)]
            rows.append((name, truth, *cells, *["-"] * (3 - wrong)))
    return table(("system", "truth", "first class", "second class", "all"), rows)


def sensitivity(size: Size) -> str:
    """Measure the same for other numbers of draws, a tenth of the noise, and none."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("9 draws", {"draws": 9}),
        ("19 draws", {"draws": 19}),
        ("39 draws", {"draws": 39}),
        ("99 draws", {"draws": 99}),
        ("a tenth of the noise", {"sd": 0.1}),
        ("deterministic", {"sd": 0.0}),
    ]
    rows = []
    episodes = of_size(size, 1, 5)
    for name in size.some(("pendulum, 2-d", "quadrotor, 6-d")):
        truth = list(SYSTEMS[name].truths)[-1]
        member = SYSTEMS[name].member(truth)
        for label, options in size.some(cases):

            def job(
                i: int,
                name: str = name,
                truth: str = truth,
                member: int = member,
                options: dict[str, Any] = options,
            ) -> list[float]:
                result = played(name, truth, i, episodes, options)
                rejected = float(result.state["evidence"]["members"].rejected[member])
                return [*steps_to_reject(judgement_of(result), 2), rejected]

            first, second, rejected = np.array(
                each(size, size.seeds(10), job, f"{name}, {label}")
            ).T
            falsely = f"{(rejected >= 0).sum()} of {len(rejected)}"
            rows.append((name, label, spread(first), spread(second), falsely))
    return table(("system", "", "first class", "second class", "truth rejected"), rows)


# Other ways to see the same steps -----------------------------------------------------------------


def value_of(name: str, truth: str) -> Callable[[Floats], Floats]:
    """Return a value of states [N, 1], fitted to returns of the planner that knows the truth.

    It is quadratic.
    """
    task = SYSTEMS[name]
    world = world_of(name, truth)
    ladder = replace(task, classes={"one": [task.truth(truth)]}).ladder(draws=4)
    orl.learn(Stubborn(ladder=ladder, planner=QUICK), world, episodes=5, seed=99, progress=False)
    states, actions, following = world.columns
    reward = task.reward(states, actions, following).reshape(-1, task.horizon)
    # What is earned from each step on, a step on average.
    ahead = np.cumsum(reward[:, ::-1], axis=1)[:, ::-1] / np.arange(task.horizon, 0, -1)

    def features(states: Floats) -> Floats:
        rows = np.concatenate([np.ones((len(states), 1)), states], axis=1)
        products = np.einsum("ni,nj->nij", rows, rows)
        return np.asarray(products[:, *np.triu_indices(rows.shape[1])])

    weights = np.linalg.lstsq(features(states), ahead.ravel(), rcond=None)[0]
    return lambda states: features(states) @ weights[:, None]


CIRCLE = Grid(low=[-np.pi, -8], high=[np.pi, 8], points=[42, 41], periodic=[True, False])
GRIDS: dict[str, tuple[Grid, list[float]]] = {  # a grid, and the actions on it
    "pendulum, 2-d": (CIRCLE, [-4, -2, 0, 2, 4]),
    "machine with jumps, 2-d": (
        Grid(low=[-0.2, -0.2], high=[5.0, 1.2], points=[27, 15]),
        [0, 0.5, 1],
    ),
}


def nearest_vertex(grid: Grid, states: Floats) -> Floats:
    """Return the numbers of the vertices that are nearest to states."""
    inside = np.where(grid.circle, states, np.clip(states, grid.low, grid.high))
    vertex, weight = grid.corners(inside)
    nearest = weight.argmax(axis=1)[:, None]
    return np.asarray(np.take_along_axis(vertex, nearest, axis=1)[:, 0])


def on_a_grid(on_grid: OnGrid, columns: tuple[Floats, Floats, Floats]) -> list[float]:
    """Return after how many steps Occam on a grid rejects each class, seeing nearest vertices."""
    states, actions, following = columns
    log = {
        "episode": np.arange(len(states)),
        "state": nearest_vertex(on_grid.grid, states),
        "action": np.abs(on_grid.actions[:, 0] - actions).argmin(axis=1),
        "next_state": nearest_vertex(on_grid.grid, following),
    }
    history = np.array(orl.select(log, on_grid.ladder, progress=False).history)
    steps = []
    for m in range(3):
        rejected = history[history[:, 1 + m] > np.log(20), 0]
        steps.append(float(rejected.min(initial=np.inf)))
    return steps


@dataclass(frozen=True)
class Seen:
    """A system whose steps are judged by states, by a value of them, and perhaps on a grid."""

    task: Task
    truth: str
    by_states: orl.SimulatorLadder
    by_value: orl.SimulatorLadder
    on_grid: OnGrid | None

    def steps(self, seed: int, episodes: int) -> list[list[float]]:
        """Return after how many steps each test rejects each class."""
        world = World(self.task, partial(self.task.step, **self.task.truth(self.truth)))
        controller = orl.OccamControl(ladder=self.by_states, planner=QUICK)
        result = orl.learn(controller, world, episodes=episodes, seed=seed, progress=False)
        states, actions, following = world.columns
        log = {
            "episode": np.arange(len(states)),
            "states": states,
            "actions": actions,
            "next_states": following,
        }
        answer = orl.select(log, self.by_value, progress=False)
        steps = [
            steps_to_reject(judgement_of(result), 3),
            steps_to_reject(answer.judgement, 3),
        ]
        if self.on_grid is not None:
            steps.append(on_a_grid(self.on_grid, world.columns))
        return steps


def seen(name: str, truth: str, draws: int) -> Seen:
    """Return a system with ladders for each way to see it."""
    task = SYSTEMS[name]
    on_grid = None
    if name in GRIDS:
        grid, actions = GRIDS[name]
        task = replace(task, actions=np.atleast_2d(actions).T)
        on_grid = task.ladder().on_grid(grid, actions, draws=draws)
    return Seen(task, truth, task.ladder(), task.ladder(view=value_of(name, truth)), on_grid)


def views(size: Size) -> str:
    """Measure steps to reject on the same steps: by states, by a value of them, and on a grid."""
    cases = []
    for name, task in SYSTEMS.items():
        cases += [(name, list(task.truths)[-1]), (name, "outside")]
    episodes = of_size(size, 1, 5)
    rows: list[tuple[str, ...]] = []
    for name, truth in size.some(cases):
        system = seen(name, truth, draws=of_size(size, 20, 200))

        def job(i: int, system: Seen = system) -> list[list[float]]:
            return system.steps(i, episodes)

        # [seeds, tests, classes]
        steps = np.array(each(size, size.seeds(10), job, f"{name}, {truth}"))
        tests = range(steps.shape[1])
        unused = ["-"] * (3 - len(tests))
        if truth == "outside":
            rows.append((name, truth, "all", *(spread(steps[:, i, 2]) for i in tests), *unused))
            continue
        for m, label in enumerate(("first", "second")):
            rows.append((name, truth, label, *(spread(steps[:, i, m]) for i in tests), *unused))
        falsely = [f"{np.isfinite(steps[:, i, 2]).sum()} of {len(steps)}" for i in tests]
        rows.append((name, truth, "all, falsely", *falsely, *unused))
    return table(("system", "truth", "class", "states", "a value alone", "grid with Occam"), rows)


# Returns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Stubborn:
    """A rival that plans with the same simulators for ever, averaged, whatever happens."""

    ladder: orl.SimulatorLadder
    planner: Planner = field(default_factory=orl.CEM)

    def begin(self, system: System) -> dict[str, Any]:
        """Return where a search begins."""
        return {"warm": None}

    def act(
        self,
        system: System,
        state: dict[str, Any],
        observation: Floats,
        step: int,
        address: Address,
    ) -> Floats:
        """Plan in all members at once."""
        if step == 0:
            state["warm"] = None
        members = self.ladder.members
        simulate = averaged(members, np.ones(len(members)), len(members))
        rng = address.generator("plan")
        action, state["warm"] = plan_in(
            self.planner, simulate, system, observation, step, rng, state["warm"]
        )
        return action

    def learn(self, system: System, state: dict[str, Any], transition: Transition) -> None:
        """Learn nothing."""


def mean_and_error(values: Floats, differences: Floats) -> str:
    """Return a mean, and the standard error of that of other values, as of differences."""
    error = np.nan
    if len(differences) > 1:
        error = differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{values.mean():.4g} ± {error:.2g}"


def rivals(name: str) -> dict[str, orl.OccamControl | Stubborn]:
    """Return who plays in a system, the planner that knows the truth first."""
    task = TASKS[name]
    planner = orl.CEM(candidates=48, horizon=15, particles=4 if name in SYSTEMS else 1)
    classes = list(task.classes.values())
    truth = list(task.truths)[-1]
    alone = {
        "knows the truth": [task.truth(truth)],
        "first simulator alone": classes[0],
        "richest class, averaged": classes[-1],
    }
    agents: dict[str, orl.OccamControl | Stubborn] = {}
    for label, members in alone.items():
        ladder = replace(task, classes={"one": members}).ladder(draws=4)
        many = replace(planner, particles=max(planner.particles, len(members)))
        agents[label] = Stubborn(ladder=ladder, planner=many)
    agents["OccamControl"] = orl.OccamControl(ladder=task.ladder(), planner=planner)
    return agents


def returns(size: Size) -> str:
    """Compare returns of ten episodes with those of the planner that knows the truth."""
    rows = []
    episodes = of_size(size, 1, 10)
    labels: list[str] = []
    for name in size.some(TASKS):
        truth = list(TASKS[name].truths)[-1]
        agents = rivals(name)
        labels = list(agents)
        earned: list[Floats] = []
        for label, agent in agents.items():

            def job(i: int, agent: Any = agent, name: str = name, truth: str = truth) -> float:
                world = world_of(name, truth)
                result = orl.learn(agent, world, episodes=episodes, seed=i, progress=False)
                return float(result.returns.mean())

            earned.append(np.array(each(size, size.seeds(10), job, f"{name}, {label}")))
        cells = [mean_and_error(earned[0], earned[0])]
        cells += [mean_and_error(other, other - earned[0]) for other in earned[1:]]
        rows.append((name, truth, *cells))
    return table(("system", "truth", *labels), rows)


def baselines(size: Size) -> str:
    """Measure SAC, or PPO where actions are listed: ten episodes, and 20 after 50,000 steps.

    It needs ``pip install stable-baselines3``, and minutes a run.
    """
    if importlib.util.find_spec("stable_baselines3") is None:
        row = ("SAC, PPO", "not measured: pip install stable-baselines3 brings them")
        return table(("learner", "result"), [row])
    learners: Any = importlib.import_module("stable_baselines3")
    evaluation: Any = importlib.import_module("stable_baselines3.common.evaluation")
    options = {"device": "cpu", "policy_kwargs": {"net_arch": [64, 64]}}
    steps = of_size(size, 200, 50_000)
    rows = []
    for name in size.some(TASKS):
        task = TASKS[name]
        truth = list(task.truths)[-1]
        kind = "SAC" if isinstance(task.actions, orl.Box) else "PPO"
        learner = vars(learners)[kind]

        def job(
            i: int, name: str = name, truth: str = truth, learner: Any = learner
        ) -> tuple[Any, Any]:
            env = gym.wrappers.TimeLimit(world_of(name, truth), TASKS[name].horizon)
            model = learner("MlpPolicy", env, seed=i, **options).learn(steps)
            first = model.get_env().envs[0].get_episode_rewards()[:10]
            returns, _ = evaluation.evaluate_policy(
                model, model.get_env(), 20, return_episode_rewards=True
            )
            return first, returns

        cells = []
        for part in zip(*each(size, size.seeds(2), job, name), strict=True):
            runs = [np.array(values) for values in part]
            cells.append("; ".join(mean_and_error(values, values) for values in runs))
        rows.append((name, truth, kind, *cells))
    return table(("system", "truth", "learner", "first ten episodes", "after 50,000 steps"), rows)


# A log from elsewhere, and cost -------------------------------------------------------------------


def creek_days() -> Floats | None:
    """Return rain, evaporation and discharge of a creek, day by day from 2015 on.

    Houska et al. 2015, doi:10.1371/journal.pone.0145180: mm and l/s; spotpy brings the record.
    """
    package = importlib.util.find_spec("spotpy")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "examples" / "hymod_python" / "hymod_input.csv"
    days = np.genfromtxt(path, delimiter=";", skip_header=1, usecols=(1, 2, 3))
    return np.asarray(days[1096:])


def creek_member(keywords: dict[str, Any]) -> Simulator:
    """Return a simulator of a creek."""
    return partial(creek, **keywords)


def creek_ladder(classes: int, log: dict[str, Floats]) -> orl.SimulatorLadder:
    """Return the first classes of simulators of a creek."""
    members = {}
    for name, several in list(CREEK.items())[:classes]:
        members[name] = [creek_member(keywords) for keywords in several]
    return orl.SimulatorLadder(
        members,
        reward=lambda states, actions, following: 0 * states[:, 0],
        horizon=len(log["states"]),
        actions=orl.Box([0, 0], [45, 7]),
        start=log["states"][0],
    )


def real_log(size: Size) -> str:
    """Test simulators on the discharge of a creek in Hesse, 2015 and 2016.

    ``pip install spotpy`` brings the record.
    """
    days = creek_days()
    if days is None:
        row = ("creek", "needs the record that pip install spotpy brings")
        return table(("log", "result"), [row])
    if size.tiny:
        days = days[:60]
    log = {
        "episode": np.zeros(len(days)),
        "states": np.log(days[:, 2:]),
        "actions": np.roll(days[:, :2], -1, axis=0),
    }
    rows = []
    for classes in (3, 4):
        ladder = creek_ladder(classes, log)
        began = time.process_time()
        answer = orl.select(log, ladder, progress=False)
        seconds = time.process_time() - began
        judgement = answer.judgement
        cells = [str(steps or "-") for steps in judgement.rejected_after]
        cells += ["not offered"] * (4 - classes)
        left = f"{judgement.alive[-1]} of {len(ladder.members)}"
        rows.append(("measured", *cells, left, answer.most_plausible))
    member = answer.worlds.best(judgement.chosen - 1).step

    def job(i: int) -> list[float]:
        rng = np.random.default_rng(i)
        path = [log["states"][0]]
        for weather in log["actions"][:-1]:
            path.append(member(path[-1][None], weather[None], rng)[0])
        drawn = {**log, "states": np.array(path)}
        return steps_to_reject(orl.select(drawn, ladder, progress=False).judgement, 4)

    steps = np.array(each(size, size.seeds(20), job, "creek"))
    cells = [spread(steps[:, m]) for m in range(3)]
    cells.append(f"{np.isfinite(steps[:, 3]).sum()} of {len(steps)}")
    rows.append(("drawn from this simulator", *cells, "-", "-"))
    text = table(("log", *CREEK, "left", "nearest"), rows)
    return f"{text}\n\n{len(days) - 1} days in {seconds:.1f} s"


def cost(size: Size) -> str:
    """Measure CPU time a real step for 10, 50 and 200 simulators, the test alone."""
    rows = []
    steps = of_size(size, 10, 200)
    for name in ("pendulum, 2-d", "quadrotor, 6-d"):
        task = SYSTEMS[name]
        rng = np.random.default_rng(0)
        cells = []
        for count in size.some((10, 50, 200)):
            winds = [{"wind": float(wind)} for wind in np.linspace(-1, 1, count)]
            began = time.process_time()
            ladder = replace(task, classes={"winds": winds}).ladder()
            agent = orl.Agent(orl.OccamControl(ladder=ladder))
            checking = time.process_time() - began
            state = task.start(rng)
            began = time.process_time()
            for _ in range(steps):
                action = task.actions.draw(1, rng)
                following = task.step(state[None], action, rng, wind=0.105)[0]
                agent.observe(state, action[0], 0.0, following)
                state = following
                if np.abs(following).max() >= 20:
                    state = task.start(rng)
            taken = 1e3 * (time.process_time() - began) / steps
            cells.append(f"{taken:.1f} ms ({checking:.1f} s to check)")
        rows.append((name, *cells))
    return table(("simulators", "10", "50", "200")[: len(rows[0])], rows)

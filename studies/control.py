"""Simulators that can only be run: validity, power, returns and cost on four systems, and a log from elsewhere.

The true simulator is a member of every ladder unless a table says otherwise, and the agent acts
adaptively.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.control import evidence
from occamrl.control.agent import averaged
from occamrl.control.ladder import Simulator
from occamrl.control.vertices import Grid
from occamrl.protocols import Floats
from studies.figures import Size, each, table
from studies.systems import CREEK, PENDULUM_V1, SYSTEMS, Rng, World, creek

QUICK = orl.CEM(
    candidates=16, elites=4, iterations=1, horizon=8, particles=2
)  # adaptive, where returns do not matter


ladder_of = cache(lambda name, **options: SYSTEMS[name].ladder(**options))


def played(
    name: str, truth: str, seed: int, episodes: int, options: Any = None, **agent: Any
) -> Any:
    """Return the result of learning in a system; ``options`` are those of the ladder."""
    options = options or {}
    world = world_of(name, truth, **{k: v for k, v in options.items() if k == "sd"})
    chosen: dict[str, Any] = {"ladder": ladder_of(name, **options), "planner": QUICK} | agent
    return orl.learn(
        orl.OccamControl(**chosen), world, episodes=episodes, seed=seed, progress=False
    )


def peaks(
    size: Size, name: str, truth: str, runs: int, episodes: int, options: Any = None
) -> Floats:
    """Return the largest log capital against the true member, of every run."""
    member = SYSTEMS[name].member(truth)

    def job(i: int) -> float:
        return float(
            played(name, truth, 1_000 + i, episodes, options).state["evidence"]["peak"][member]
        )

    return np.array(each(size, runs, job, f"{name}, {truth}"))


def verdicts(found: Floats) -> list[str]:
    """Return how often the truth was rejected at .05 and at .5, with the exact test of at most that."""
    shown = []
    for delta in (0.05, 0.5):
        rejected = int((found >= -np.log(delta)).sum())
        p = binomtest(rejected, len(found), delta, alternative="greater").pvalue
        shown += [f"{rejected} of {len(found)}", f"{p:.2g}"]
    return shown


HEADER = ("rejected at .05", "p", "rejected at .5", "p")


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
    honest = orl.OccamControl._address

    def address(self: orl.OccamControl, purpose: str) -> Rng:
        return honest(self, "fits" if purpose == "ranked" else purpose)

    setattr(orl.OccamControl, "_address", address)  # noqa: B010  # mypy takes no assignment to a method
    try:
        yield
    finally:
        setattr(orl.OccamControl, "_address", honest)  # noqa: B010  # as above


@contextmanager
def peeking() -> Iterator[None]:
    """Break the score: it knows what came, and prefers what is near it by a little."""
    honest = evidence.bet

    def bet(log_w: Floats) -> Floats:
        log_w = log_w.copy()
        log_w[..., 0] += 0.1
        return honest(log_w)

    evidence.bet = bet
    try:
        yield
    finally:
        evidence.bet = honest


def controls(size: Size) -> str:
    """Count the same for three tests that are broken on purpose."""
    name, rows = "pendulum, 2-d", []
    few = {"draws": 5, "check": False}
    cases: dict[str, tuple[Any, dict[str, Any]]] = {"none": (nullcontext, few)}
    cases |= {
        "shared draws": (nullcontext, few | {"wrap": shared}),
        "fits on the ranked draws": (reusing, few),
    }
    cases |= {"a score that looks at y": (peeking, few)}
    for label, (broken, options) in cases.items():
        with broken():
            rows.append((label, *verdicts(peaks(size, name, "wind", size.seeds(100), 4, options))))
    return table(("broken", *HEADER), rows)


def steps_to_reject(result: Any, wrong: int) -> list[float]:
    """Return after how many steps each of the first classes was rejected; infinite if never."""
    return [np.inf if n is None else float(n) for n in result.facts()["rejected_after"][:wrong]]


def spread(values: Any) -> str:
    """Return a median and the range."""
    found = np.sort(np.array(values))
    shown = [
        f"{v:,.0f}" if np.isfinite(v) else "never"
        for v in (found[len(found) // 2], found[0], found[-1])
    ]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def power(size: Size) -> str:
    """Measure real steps until each wrong class is rejected, and until a truth outside is noticed."""
    rows = []
    for name in size.some(SYSTEMS):
        classes = list(SYSTEMS[name].classes)
        for truth in [*classes[1:], "outside"]:
            wrong = len(classes) if truth == "outside" else classes.index(truth)

            def job(
                i: int, name: str = name, truth: str = truth, wrong: int = wrong
            ) -> list[float]:
                return steps_to_reject(played(name, truth, i, 2 if size.tiny else 10), wrong)

            found = np.array(each(size, size.seeds(10), job, f"{name}, {truth}"))
            cells = [spread(found[:, m]) for m in range(wrong)]
            rows.append((name, truth, *cells, *["-"] * (3 - wrong)))
    return table(("system", "truth", "first class", "second class", "all"), rows)


def value_of(name: str, truth: str) -> Callable[[Floats], Floats]:
    """Return a value of states [N, 1], quadratic, fitted to returns of the planner that knows the truth."""
    system, world = SYSTEMS[name], world_of(name, truth)
    agent = Stubborn(
        ladder=replace(system, classes={"one": [system.truth(truth)]}).ladder(draws=4),
        planner=QUICK,
    )
    orl.learn(agent, world, episodes=5, seed=99, progress=False)
    before, chosen, after = (np.array(part) for part in zip(*world.log, strict=True))
    reward = system.reward(before, chosen, after).reshape(-1, system.horizon)
    ahead = np.cumsum(reward[:, ::-1], axis=1)[:, ::-1] / np.arange(
        system.horizon, 0, -1
    )  # a step, on average

    def features(states: Floats) -> Floats:
        rows = np.concatenate([np.ones((len(states), 1)), states], axis=1)
        return np.asarray(np.einsum("ni,nj->nij", rows, rows)[:, *np.triu_indices(rows.shape[1])])

    weights = np.linalg.lstsq(features(before), ahead.ravel(), rcond=None)[0]
    return lambda states: features(states) @ weights[:, None]


CIRCLE = Grid(low=[-np.pi, -8], high=[np.pi, 8], points=[42, 41], periodic=[True, False])
GRIDS: dict[str, Any] = {  # a grid, and the actions on it
    "pendulum, 2-d": (CIRCLE, [-4, -2, 0, 2, 4]),
    "machine with jumps, 2-d": (
        Grid(low=[-0.2, -0.2], high=[5.0, 1.2], points=[27, 15]),
        [0, 0.5, 1],
    ),
}


def on_a_grid(made: Any, before: Floats, chosen: Floats, after: Floats) -> list[float]:
    """Return after how many steps Occam on a grid rejects each class, seeing the nearest vertices."""
    grid, log = made.grid, {"episode": np.arange(len(before))}
    for name, states in (("state", before), ("next_state", after)):
        vertex, weight = grid.corners(
            np.where(grid.circle, states, np.clip(states, grid.low, grid.high))
        )
        log[name] = np.take_along_axis(vertex, weight.argmax(axis=1)[:, None], axis=1)[:, 0]
    log["action"] = np.abs(made.actions[:, 0] - chosen).argmin(axis=1)
    history = np.array(orl.select(log, made.ladder, progress=False).history)
    over = history[:, 1:] > np.log(20)
    return [
        float(history[over[:, m].argmax(), 0]) if over[:, m].any() else np.inf for m in range(3)
    ]


def views(size: Size) -> str:
    """Measure steps to reject on the same steps: by states, by a value of them alone, and on a grid with Occam."""
    rows = []
    for name, truth in size.some(
        (key, t) for key in SYSTEMS for t in (list(SYSTEMS[key].truths)[-1], "outside")
    ):
        system, made = SYSTEMS[name], None
        if name in GRIDS:
            where, actions = GRIDS[name]
            system = replace(system, actions=np.atleast_2d(actions).T)
            made = system.ladder().on_grid(where, actions, draws=20 if size.tiny else 200)
        ladder, seen = system.ladder(), system.ladder(view=value_of(name, truth))

        def job(
            i: int,
            system: Any = system,
            truth: str = truth,
            made: Any = made,
            of: Any = (ladder, seen),
        ) -> Any:
            world = World(system, partial(system.step, **system.truth(truth)))
            agent = orl.OccamControl(ladder=of[0], planner=QUICK)
            by_states = orl.learn(
                agent, world, episodes=1 if size.tiny else 5, seed=i, progress=False
            )
            columns = [np.array(part) for part in zip(*world.log, strict=True)]
            log = dict(zip(("states", "actions", "next_states"), columns, strict=True))
            log["episode"] = np.arange(len(columns[0]))
            by_value = orl.select(log, of[1], progress=False).agent
            found = [steps_to_reject(by_states, 3), steps_to_reject(by_value, 3)]
            return found if made is None else [*found, on_a_grid(made, *columns)]

        steps = np.array(
            each(size, size.seeds(10), job, f"{name}, {truth}")
        )  # [seeds, tests, classes]
        for m, kind in enumerate(("first", "second", "all")):
            cells = [spread(steps[:, test, m]) for test in range(steps.shape[1])]
            if m == 2 and truth != "outside":
                kind = "all, falsely"
                cells = [
                    f"{np.isfinite(steps[:, test, m]).sum()} of {len(steps)}"
                    for test in range(steps.shape[1])
                ]
            if m == 2 or truth != "outside":
                rows.append((name, truth, kind, *cells, *["-"] * (3 - len(cells))))
    return table(("system", "truth", "class", "states", "a value alone", "grid with Occam"), rows)


def sensitivity(size: Size) -> str:
    """Measure the same for other numbers of draws, a tenth of the noise, and none."""
    rows = []
    cases: list[tuple[str, dict[str, Any]]] = [
        (f"{n} draws", {"draws": n}) for n in (9, 19, 39, 99)
    ]
    cases += [("a tenth of the noise", {"sd": 0.1}), ("deterministic", {"sd": 0.0})]
    for name in size.some(("pendulum, 2-d", "quadrotor, 6-d")):
        truth = list(SYSTEMS[name].truths)[-1]
        for label, options in size.some(cases):

            def job(
                i: int, name: str = name, truth: str = truth, options: Any = options
            ) -> list[float]:
                result = played(name, truth, i, 1 if size.tiny else 5, options)
                rejected = result.state["evidence"]["rejected"][SYSTEMS[name].member(truth)]
                return [*steps_to_reject(result, 2), float(rejected)]

            found = np.array(each(size, size.seeds(10), job, f"{name}, {label}"))
            cells = [
                spread(found[:, 0]),
                spread(found[:, 1]),
                f"{(found[:, 2] >= 0).sum()} of {len(found)}",
            ]
            rows.append((name, label, *cells))
    return table(("system", "", "first class", "second class", "truth rejected"), rows)


class Stubborn(orl.OccamControl):
    """A rival that plans with the same simulator for ever, whatever the evidence says."""

    def _model(self, at: Floats, left: int) -> Simulator:
        return averaged(self.members, np.ones(len(self.members)), len(self.members))


def world_of(name: str, truth: str, **noise: float) -> Any:
    """Return a system as an environment; Pendulum-v1 is Gymnasium's own, with another mass and length."""
    system = SYSTEMS.get(name, PENDULUM_V1)
    if name in SYSTEMS:
        return World(system, partial(system.step, **system.truth(truth), **noise))
    env: Any = gym.make(name)
    env.unwrapped.m, env.unwrapped.l = (system.truth(truth).get(k, 1.0) for k in ("mass", "length"))
    return env


def told(values: Floats, apart: Floats) -> str:
    """Return a mean, and the standard error of that of other values, as of differences."""
    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
    return f"{values.mean():.4g} ± {error:.2g}"


TASKS = {**SYSTEMS, "Pendulum-v1": PENDULUM_V1}


def returns(size: Size) -> str:
    """Compare returns of the first ten episodes with those of the planner that knows the truth."""
    rows, episodes, cast = [], 1 if size.tiny else 10, dict[str, orl.OccamControl]()
    for name in size.some(TASKS):
        system, truth, kinds = (
            TASKS[name],
            list(TASKS[name].truths)[-1],
            list(TASKS[name].classes.values()),
        )
        planner = orl.CEM(candidates=48, horizon=15, particles=4 if name in SYSTEMS else 1)
        alone = {"knows the truth": [system.truth(truth)], "first simulator alone": kinds[0]}
        for label, members in (alone | {"richest class, averaged": kinds[-1]}).items():
            many = replace(planner, particles=max(planner.particles, len(members)))
            cast[label] = Stubborn(
                ladder=replace(system, classes={"one": members}).ladder(draws=4), planner=many
            )
        cast["OccamControl"] = orl.OccamControl(ladder=system.ladder(), planner=planner)
        earned: list[Floats] = []
        for label, agent in cast.items():

            def job(i: int, agent: Any = agent, name: str = name, truth: str = truth) -> float:
                played = orl.learn(
                    agent, world_of(name, truth), episodes=episodes, seed=i, progress=False
                )
                return float(played.returns.mean())

            earned.append(np.array(each(size, size.seeds(10), job, f"{name}, {label}")))
        rows.append(
            (
                name,
                truth,
                told(earned[0], earned[0]),
                *(told(one, one - earned[0]) for one in earned[1:]),
            )
        )
    return table(("system", "truth", *cast), rows)


def baselines(size: Size) -> str:
    """Measure SAC, or PPO where actions are listed: its first ten episodes, and 20 more after 50,000 steps.

    It needs ``pip install stable-baselines3``, and minutes a run.
    """
    if importlib.util.find_spec("stable_baselines3") is None:
        return table(
            ("learner", "result"),
            [("SAC, PPO", "not measured: pip install stable-baselines3 brings them")],
        )
    learners: Any = importlib.import_module("stable_baselines3")
    judge: Any = importlib.import_module("stable_baselines3.common.evaluation")
    rows, about = [], {"device": "cpu", "policy_kwargs": {"net_arch": [64, 64]}}
    for name in size.some(TASKS):
        truth, kind = (
            list(TASKS[name].truths)[-1],
            "SAC" if isinstance(TASKS[name].actions, orl.Box) else "PPO",
        )

        def job(i: int, name: str = name, truth: str = truth, kind: str = kind) -> tuple[Any, Any]:
            env = gym.wrappers.TimeLimit(world_of(name, truth), TASKS[name].horizon)
            model = getattr(learners, kind)("MlpPolicy", env, seed=i, **about).learn(
                200 if size.tiny else 50_000
            )
            first = model.get_env().envs[0].get_episode_rewards()[:10]
            return first, judge.evaluate_policy(
                model, model.get_env(), 20, return_episode_rewards=True
            )[0]

        found = zip(*each(size, size.seeds(2), job, name), strict=True)
        cells = ["; ".join(told(np.array(one), np.array(one)) for one in part) for part in found]
        rows.append((name, truth, kind, *cells))
    return table(("system", "truth", "learner", "first ten episodes", "after 50,000 steps"), rows)


def real_log(size: Size) -> str:
    """Test simulators on the discharge of a creek in Hesse, 2015 and 2016; ``pip install spotpy`` brings the record.

    Houska et al. 2015, doi:10.1371/journal.pone.0145180: daily rain and evaporation (mm), discharge
    (l/s) from 2013 on.
    """
    package = importlib.util.find_spec("spotpy")
    if package is None or package.origin is None:
        return table(
            ("log", "result"), [("creek", "needs the record that pip install spotpy brings")]
        )
    path = Path(package.origin).parent / "examples" / "hymod_python" / "hymod_input.csv"
    days = np.genfromtxt(path, delimiter=";", skip_header=1, usecols=(1, 2, 3))[
        1096:
    ]  # from 2015 on
    days = days[:60] if size.tiny else days
    log = {
        "episode": np.zeros(len(days)),
        "states": np.log(days[:, 2:]),
        "actions": np.roll(days[:, :2], -1, axis=0),
    }
    about: dict[str, Any] = {
        "horizon": len(days),
        "actions": orl.Box([0, 0], [45, 7]),
        "start": log["states"][0],
    }
    members = {name: [partial(creek, **k) for k in each] for name, each in CREEK.items()}
    rows = []
    for count in (3, 4):
        some = dict(list(members.items())[:count])
        ladder = orl.SimulatorLadder(some, reward=lambda s, a, after: 0 * s[:, 0], **about)
        began = time.process_time()
        answer = orl.select(log, ladder, progress=False)
        seconds, member = time.process_time() - began, answer.agent.members[answer.index]
        cells = ["-" if n is None else f"{n:.0f}" for n in answer.facts["rejected_after"]]
        cells += [
            *["not offered"] * (4 - count),
            f"{answer.facts['alive'][-1]} of {len(ladder.members)}",
        ]
        rows.append(("measured", *cells, answer.member))

    def job(i: int) -> list[float]:
        rng, path = np.random.default_rng(i), [log["states"][0]]
        for weather in log["actions"][:-1]:
            path.append(member(path[-1][None], weather[None], rng)[0])
        return steps_to_reject(
            orl.select(log | {"states": np.array(path)}, ladder, progress=False).agent, 4
        )

    found = np.array(each(size, size.seeds(20), job, "creek"))
    cells = [spread(found[:, m]) for m in range(3)] + [
        f"{np.isfinite(found[:, 3]).sum()} of {len(found)}"
    ]
    rows.append(("drawn from this simulator", *cells, "-", "-"))
    return (
        table(("log", *CREEK, "left", "nearest"), rows)
        + f"\n\n{len(days) - 1} days in {seconds:.1f} s"
    )


def cost(size: Size) -> str:
    """Measure CPU time a real step for 10, 50 and 200 simulators, the test alone."""
    rows = []
    for name in ("pendulum, 2-d", "quadrotor, 6-d"):
        system, rng, cells = SYSTEMS[name], np.random.default_rng(0), []
        for count in size.some((10, 50, 200)):
            classes = {"winds": [partial(system.step, wind=w) for w in np.linspace(-1, 1, count)]}
            about = {
                "reward": system.reward,
                "horizon": 60,
                "actions": system.actions,
                "start": system.start,
            }
            began = time.process_time()
            agent = orl.OccamControl(ladder=orl.SimulatorLadder(classes, **about))
            made, steps = time.process_time() - began, 10 if size.tiny else 200
            state, began = system.start(rng), time.process_time()
            for _ in range(steps):
                action = system.actions.draw(1, rng)
                after = system.step(state[None], action, rng, wind=0.105)[0]
                agent.observe(state, action[0], 0.0, after)
                state = after if np.abs(after).max() < 20 else system.start(rng)
            taken = 1e3 * (time.process_time() - began) / steps
            cells.append(f"{taken:.1f} ms ({made:.1f} s to check)")
        rows.append((name, *cells))
    return table(("simulators", "10", "50", "200")[: len(rows[0])], rows)

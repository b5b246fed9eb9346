"""Simulators that can only be run: validity, power, returns and cost on four systems.

    python -m studies.control validity --seeds 400     one table; validity controls power returns sensitivity cost
    python -m studies.figures simulators-that-run      all tables, as the page shows them

The true simulator is a member of every ladder unless a table says otherwise, and the agent acts adaptively.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.control import evidence
from occamrl.control.agent import averaged
from occamrl.control.ladder import Simulator
from occamrl.protocols import Floats
from studies.figures import Size, each, table

Rng = np.random.Generator
QUICK = orl.CEM(candidates=16, elites=4, iterations=1, horizon=8, particles=2)  # adaptive, where returns do not matter


def pendulum(states: Floats, actions: Floats, rng: Rng, *, wind: float = 0, drag: float = 0, sd: float = 1) -> Floats:
    """Run a pendulum (angle from the top, speed) in the wind, 0.05 s a step."""
    angle, speed = states.T
    push = 15 * np.sin(angle) + 3 * actions[:, 0] + wind - drag * speed
    speed = np.clip(speed + 0.05 * push + 0.05 * sd * rng.normal(size=len(states)), -8, 8)
    return np.stack([angle + 0.05 * speed, speed], axis=1)


def cart_pole(
    states: Floats, actions: Floats, rng: Rng, *, track: float = 0, joint: float = 0, mass: float = 0.1, sd: float = 1
) -> Floats:
    """Run a pole on a cart (place, speed, angle, turn) with friction on the track and in the joint, 0.02 s a step."""
    place, speed, angle, turn = states.T
    sine, cosine, total = np.sin(angle), np.cos(angle), 1.0 + mass
    force = 10 * actions[:, 0] - track * np.tanh(10 * speed)
    push = (force + 0.5 * mass * turn**2 * sine) / total
    bend: Floats = 9.8 * sine - cosine * push - joint * turn / (0.5 * mass)
    bend = bend / (0.5 * (4 / 3 - mass * cosine**2 / total))
    speed = speed + 0.02 * (push - 0.5 * mass * bend * cosine / total) + 0.01 * sd * rng.normal(size=len(states))
    turn = turn + 0.02 * bend + 0.02 * sd * rng.normal(size=len(states))
    return np.asarray(np.clip(np.stack([place + 0.02 * speed, speed, angle + 0.02 * turn, turn], axis=1), -50, 50))


def machine(
    states: Floats, actions: Floats, rng: Rng, *, rate: float = 0, jump: float = 1, heat: float = 0, sd: float = 1
) -> Floats:
    """Run a machine (wear, temperature) under a load, 0 for maintenance. Wear jumps at times, and grows with heat."""
    wear, warm, load = states[:, 0], states[:, 1], actions[:, 0]
    warm = warm + 0.3 * (load - warm) + 0.03 * sd * rng.normal(size=len(states))
    wear = np.where(load > 0, wear + 0.1 * load * (1 + heat * warm), 0.5 * wear) + 0.02 * sd * rng.normal(
        size=len(wear)
    )
    jumps = rng.random(len(states)) < rate
    return np.stack([wear + jumps * jump * rng.exponential(size=len(states)), warm], axis=1)


def quadrotor(
    states: Floats, actions: Floats, rng: Rng, *, mass: float = 1, wind: float = 0, drag: float = 0, sd: float = 1
) -> Floats:
    """Run a quadrotor in a plane (x, z, tilt and their speeds), two rotors, 0.05 s a step."""
    (left, right), tilt, vx, vz = actions.T * 9.8, states[:, 2], states[:, 3], states[:, 4]
    lift = (left + right) / mass
    push = [-lift * np.sin(tilt) + wind - drag * vx, lift * np.cos(tilt) - 9.8 - drag * vz, 4 * (right - left)]
    speeds = states[:, 3:] + 0.05 * np.stack(push, axis=1) + 0.03 * sd * rng.normal(size=(len(states), 3))
    return np.asarray(np.clip(np.concatenate([states[:, :3] + 0.05 * speeds, speeds], axis=1), -100, 100))


@dataclass(frozen=True)
class System:
    """A simulator, the classes of a ladder by the keywords of their members, truths, and a task."""

    step: Any
    classes: dict[str, list[dict[str, float]]]
    truths: dict[str, dict[str, float]]  # by the class that they need
    outside: dict[str, float]  # a truth that no class holds
    reward: Callable[[Floats, Floats, Floats], Floats]
    start: Callable[[Rng], Floats]
    actions: Any
    horizon: int = 60

    def ladder(self, **options: Any) -> orl.SimulatorLadder:
        """Return the ladder; ``options`` as ``draws`` replace its own, ``sd`` scales the noise of all members."""
        noise = {"sd": options.pop("sd")} if "sd" in options else {}
        wrap = options.pop("wrap", lambda step: step)
        classes = {name: [wrap(partial(self.step, **k, **noise)) for k in each] for name, each in self.classes.items()}
        about = {"reward": self.reward, "start": self.start, "actions": self.actions, "horizon": self.horizon}
        return orl.SimulatorLadder(classes, **(about | options))

    def truth(self, name: str) -> dict[str, float]:
        """Return the keywords of a truth; "outside" is one that no class holds."""
        return self.outside if name == "outside" else self.truths[name]

    def member(self, name: str) -> int:
        """Return the number of the true member."""
        listed = [k for each in self.classes.values() for k in each]
        return listed.index(self.truths[name])


def grid(**values: Any) -> list[dict[str, float]]:
    """Return all combinations of values, as keywords."""
    found: list[dict[str, float]] = [{}]
    for name, several in values.items():
        found = [{**each, name: value} for each in found for value in several]
    return found


SYSTEMS = {
    "pendulum, 2-d": System(
        pendulum,
        {
            "calm": [{}],
            "wind": grid(wind=(-2, -1, 1, 2)),
            "wind and drag": grid(wind=(-2, -1, 1, 2), drag=(0.2, 0.5)),
        },
        {"calm": {}, "wind": {"wind": 1}, "wind and drag": {"wind": 1, "drag": 0.5}},
        {"wind": 1.5, "drag": -0.5},
        lambda s, a, after: -((np.cos(after[:, 0]) - 1) ** 2) - 0.01 * after[:, 1] ** 2 - 0.001 * a[:, 0] ** 2,
        lambda rng: np.array([0.5, 0.0]) + 0.1 * rng.normal(size=2),
        orl.Box(-4, 4),
    ),
    "cart-pole, 4-d": System(
        cart_pole,
        {
            "smooth": [{}],
            "track": grid(track=(1.0, 3.0)),
            "track and joint": grid(track=(1.0, 3.0), joint=(0.02, 0.1)),
        },
        {"smooth": {}, "track": {"track": 3.0}, "track and joint": {"track": 3.0, "joint": 0.1}},
        {"track": 2.0, "mass": 0.4},
        lambda s, a, after: -(after[:, 2] ** 2) - 0.05 * after[:, 0] ** 2 - 0.01 * after[:, 3] ** 2,
        lambda rng: np.array([0.3, 0.0, 0.15, 0.0]) + 0.05 * rng.normal(size=4),
        orl.Box(-1, 1),
    ),
    "machine with jumps, 2-d": System(
        machine,
        {
            "steady": [{}],
            "jumps": grid(rate=(0.03, 0.1), jump=(0.5, 1.5)),
            "jumps and heat": grid(rate=(0.03, 0.1), jump=(0.5, 1.5), heat=(0.3, 0.8)),
        },
        {"steady": {}, "jumps": {"rate": 0.1, "jump": 0.5}, "jumps and heat": {"rate": 0.1, "jump": 0.5, "heat": 0.8}},
        {"rate": 0.05, "heat": -0.5},
        lambda s, a, after: a[:, 0] - 0.5 * after[:, 0] ** 2,
        lambda rng: np.abs(0.1 * rng.normal(size=2)),
        [[0.0], [0.5], [1.0]],
    ),
    "quadrotor, 6-d": System(
        quadrotor,
        {
            "nominal": [{}],
            "mass": grid(mass=(0.8, 1.25)),
            "mass and wind": grid(mass=(0.8, 1.0, 1.25), wind=(-1, 1), drag=(0, 0.4)),
        },
        {"nominal": {}, "mass": {"mass": 1.25}, "mass and wind": {"mass": 1.25, "wind": 1, "drag": 0.4}},
        {"mass": 1.1, "wind": 0.5, "drag": 1.0},
        lambda s, a, after: 1 - 0.3 * (after[:, :2] ** 2).sum(axis=1) - 0.05 * (after[:, 2:] ** 2).sum(axis=1),
        lambda rng: np.array([1.0, -1.0, 0, 0, 0, 0]) + 0.1 * rng.normal(size=6),
        orl.Box([0, 0], [1, 1]),
    ),
}


class World(gym.Env[Floats, Any]):
    """A simulator as an environment."""

    def __init__(self, system: System, step: Simulator) -> None:
        self.system, self.run, self.listed = system, step, not isinstance(system.actions, orl.Box)
        self.now = system.start(np.random.default_rng(0))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, self.now.shape, np.float64)
        size = (1,) if self.listed else system.actions.low.shape
        self.action_space: Any = gym.spaces.Box(-np.inf, np.inf, size, np.float64)
        if self.listed:
            self.action_space = gym.spaces.Discrete(len(system.actions))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.now = self.system.start(self.np_random)
        return self.now, {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        chosen = np.atleast_2d(self.system.actions[action] if self.listed else action)
        after = self.run(self.now[None], chosen, self.np_random)
        reward = float(self.system.reward(self.now[None], chosen, after)[0])
        self.now = after[0]
        return self.now, reward, False, False, {}


ladder_of = cache(lambda name, **options: SYSTEMS[name].ladder(**options))


def played(name: str, truth: str, seed: int, episodes: int, options: Any = None, **agent: Any) -> Any:
    """Return the result of learning in a system; ``options`` are those of the ladder."""
    system, options = SYSTEMS[name], options or {}
    noise = {k: v for k, v in options.items() if k == "sd"}
    world = World(system, partial(system.step, **system.truth(truth), **noise))
    chosen: dict[str, Any] = {"ladder": ladder_of(name, **options), "planner": QUICK} | agent
    return orl.learn(orl.OccamControl(**chosen), world, episodes=episodes, seed=seed, progress=False)


def peaks(size: Size, name: str, truth: str, runs: int, episodes: int, options: Any = None) -> Floats:
    """Return the largest log capital against the true member, of every run."""
    member = SYSTEMS[name].member(truth)

    def job(i: int) -> float:
        return float(played(name, truth, 1_000 + i, episodes, options).agent.state["evidence"]["peak"][member])

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
        return (
            step(states[:1], actions[:1], rng).repeat(len(states), axis=0)
            if len(states) > 1
            else step(states, actions, rng)
        )

    return run


def reused(step: Simulator) -> Simulator:
    """Break a simulator: the draws that are ranked are drawn once more for the fits."""

    def run(states: Floats, actions: Floats, rng: Rng) -> Floats:
        half = len(states) // 2
        first = step(states[: len(states) - half], actions[: len(states) - half], rng)
        return np.concatenate([first, first[:half]])

    return run


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
    cases: dict[str, dict[str, Any]] = {"none": few, "shared draws": few | {"wrap": shared}}
    cases |= {"fits on the ranked draws": few | {"wrap": reused}, "a score that looks at y": few}
    for label, options in cases.items():
        if label.startswith("a score"):
            with peeking():
                found = peaks(size, name, "wind", size.seeds(100), 4, options)
        else:
            found = peaks(size, name, "wind", size.seeds(100), 4, options)
        rows.append((label, *verdicts(found)))
    return table(("broken", *HEADER), rows)


def steps_to_reject(result: Any, wrong: int) -> list[float]:
    """Return after how many steps each of the first classes was rejected; infinite if never."""
    return [np.inf if n is None else float(n) for n in result.agent.facts()["rejected_after"][:wrong]]


def spread(values: Any) -> str:
    """Return a median and the range."""
    found = np.sort(np.array(values))
    shown = [f"{v:,.0f}" if np.isfinite(v) else "never" for v in (found[len(found) // 2], found[0], found[-1])]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def power(size: Size) -> str:
    """Measure real steps until each wrong class is rejected, and until a truth outside is noticed."""
    rows = []
    for name in size.some(SYSTEMS):
        classes = list(SYSTEMS[name].classes)
        for truth in [*classes[1:], "outside"]:
            wrong = len(classes) if truth == "outside" else classes.index(truth)

            def job(i: int, name: str = name, truth: str = truth, wrong: int = wrong) -> list[float]:
                return steps_to_reject(played(name, truth, i, 2 if size.tiny else 10), wrong)

            found = np.array(each(size, size.seeds(10), job, f"{name}, {truth}"))
            told = [spread(found[:, m]) for m in range(wrong)]
            rows.append((name, truth, *told, *["-"] * (3 - wrong)))
    return table(("system", "truth", "first class", "second class", "all"), rows)


def sensitivity(size: Size) -> str:
    """Measure the same for other numbers of draws, a tenth of the noise, and none."""
    rows = []
    cases: list[tuple[str, dict[str, Any]]] = [(f"N = {n}", {"draws": n}) for n in (9, 19, 39, 99)]
    cases += [("a tenth of the noise", {"sd": 0.1}), ("deterministic", {"sd": 0.0})]
    for label, options in size.some(cases):
        cells = []
        for name in ("pendulum, 2-d", "quadrotor, 6-d"):
            truth = list(SYSTEMS[name].truths)[-1]

            def job(i: int, name: str = name, truth: str = truth, options: Any = options) -> tuple[list[float], float]:
                result = played(name, truth, i, 1 if size.tiny else 4, options)
                return steps_to_reject(result, 2), float(
                    result.agent.state["evidence"]["rejected"][SYSTEMS[name].member(truth)]
                )

            found = each(size, size.seeds(10), job, label)
            told = np.array([steps for steps, _ in found])
            cells += [spread(told[:, 0]), spread(told[:, 1]), f"{sum(r >= 0 for _, r in found)} of {len(found)}"]
        rows.append((label, *cells))
    parts = [
        f"{name}: {what}" for name in ("pendulum", "quadrotor") for what in ("first class", "second", "truth rejected")
    ]
    return table(("", *parts), rows)


class Stubborn(orl.OccamControl):
    """A rival that plans with the same simulator for ever, whatever the evidence says."""

    def _model(self, at: Floats, left: int) -> Simulator:
        return averaged(self.members, np.ones(len(self.members)), len(self.members))


def returns(size: Size) -> str:
    """Compare returns of the first ten episodes with those of the planner that knows the truth."""
    rows, episodes = [], 1 if size.tiny else 10
    planner = orl.CEM(candidates=48, horizon=15, particles=4)
    for name, truth in size.some((key, t) for key in SYSTEMS for t in (list(SYSTEMS[key].truths)[-1], "outside")):
        system = SYSTEMS[name]
        kinds = list(system.classes.values())
        alone = {"knows the truth": [system.truth(truth)], "first simulator alone": kinds[0]}
        alone["richest class, averaged evenly"] = kinds[-1]
        cast: dict[str, orl.OccamControl] = {}
        for label, members in alone.items():
            ladder = replace(system, classes={"one": members}).ladder()
            cast[label] = Stubborn(ladder=ladder, planner=replace(planner, particles=max(4, len(members))))
        for acting in ("plausible", "sampling", "average", "optimism"):
            cast[acting] = orl.OccamControl(ladder=ladder_of(name), planner=planner, acting=acting)
        mppi = orl.MPPI(horizon=15, particles=4)
        cast["plausible, MPPI"] = orl.OccamControl(ladder=ladder_of(name), planner=mppi)
        world = World(system, partial(system.step, **system.truth(truth)))
        for label, agent in cast.items():

            def job(i: int, world: World = world, agent: orl.OccamControl = agent) -> Floats:
                return orl.learn(agent, world, episodes=episodes, seed=i, progress=False).returns

            found = np.array(each(size, size.seeds(5), job, f"{name}, {truth}, {label}"))
            error = found.mean(axis=1).std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
            cells = [f"{part.mean():.2f}" for part in (found[:, 0], found[:, 1:] if episodes > 1 else found)]
            rows.append((name, truth, label, *cells, f"{error:.2f}"))
    return table(("system", "truth", "agent", "first episode", "episodes 2 to 10", "standard error of all"), rows)


def cost(size: Size) -> str:
    """Measure CPU time a real step for 10, 50 and 200 simulators, the test alone."""
    rows = []
    for name in ("pendulum, 2-d", "quadrotor, 6-d"):
        system, rng, cells = SYSTEMS[name], np.random.default_rng(0), []
        for count in size.some((10, 50, 200)):
            classes = {"winds": [partial(system.step, wind=w) for w in np.linspace(-1, 1, count)]}
            about = {"reward": system.reward, "horizon": 60, "actions": system.actions, "start": system.start}
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("validity", "controls", "power", "returns", "sensitivity", "cost"))
    parser.add_argument("--seeds", type=int, default=10**9)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    print(globals()[given.part](Size(tiny=given.tiny, most_seeds=given.seeds)))

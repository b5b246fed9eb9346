"""Simulators that can only be run: validity, power, returns and cost on four systems.

    python -m studies.control validity --seeds 400     one table; validity controls power returns sensitivity cost
    python -m studies.figures continuous-states      all tables, as the page shows them

The true simulator is a member of every ladder unless a table says otherwise, and the agent acts adaptively.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.control import evidence
from occamrl.control.agent import averaged
from occamrl.control.ladder import Simulator
from occamrl.protocols import Floats
from studies.figures import Size, each, table
from studies.systems import SYSTEMS, Rng, World

QUICK = orl.CEM(candidates=16, elites=4, iterations=1, horizon=8, particles=2)  # adaptive, where returns do not matter


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
        return float(played(name, truth, 1_000 + i, episodes, options).state["evidence"]["peak"][member])

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
    return [np.inf if n is None else float(n) for n in result.facts()["rejected_after"][:wrong]]


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
                rejected = result.state["evidence"]["rejected"][SYSTEMS[name].member(truth)]
                return steps_to_reject(result, 2), float(rejected)

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

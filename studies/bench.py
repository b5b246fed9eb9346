"""Speed: how time grows with episodes, what an episode costs, a start takes, large problems need.

    make bench                          all sections, some minutes
    make bench ARGS="--section 1"       one of them
    make bench ARGS="--quick"           smaller numbers everywhere
    make bench ARGS="--section 4 --states 1000000"

1  seconds of the processor and plans at K = 10^4, 10^6, 10^9 and 10^12
2  microseconds an episode of algorithms that plan before every episode, beside rlberry-scool's
   UCBVI if it is installed
3  seconds from the start of a process to the first result
4  eight sparse simulators: build, plan, play, peak memory
5  ladders of 6,561 and 122,027 kernels: 10,000 episodes and peak memory

Each item is measured in a process of its own, on one thread. Times are those of the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import occamrl as orl
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import ReferenceLadder, ReferenceMixture, SparseLadder
from occamrl.protocols import Learner, Problem

Facts = dict[str, Any]  # what was measured: numbers, or why not


def linear(kind: Callable[..., Learner], **options: float) -> tuple[Learner, Problem]:
    """Return an agent for the reference mixture, and that."""
    problem = ReferenceMixture()
    norm = {"norm_bound": float(np.linalg.norm(problem.theta)), **options}
    return kind(features=orl.FeatureMap(problem.phi), **norm), problem


def on_ladder(kind: Callable[..., Learner], **options: str) -> tuple[Learner, Problem]:
    """Return an agent for the reference ladder, and its problem."""
    problem = ReferenceLadder(nonzero=1)
    return kind(ladder=orl.Ladder.of_problem(problem), **options), problem


SELECTORS: dict[str, Callable[[], tuple[Learner, Problem]]] = {
    "UCRLVTRLin": lambda: linear(orl.UCRLVTRLin),
    "ARLLinDim": lambda: linear(orl.ARLLinDim),
    "ARLLinNorm": lambda: linear(orl.ARLLinNorm, norm_bound=10.0),
    "ARLGen": lambda: on_ladder(orl.ARLGen),
    "Occam, optimism": lambda: on_ladder(orl.Occam),
    "Occam, sampling": lambda: on_ladder(orl.Occam, acting="sampling"),
}


# Measures ----------------------------------------------------------------------------------------


def growth(name: str, episodes: int) -> Facts:
    """Measure a run, all included."""
    agent, problem = SELECTORS[name]()
    _ = problem.mdp.optimal_values
    began = time.process_time()
    result = orl.run(agent, problem, episodes=episodes, progress=False)
    seconds = time.process_time() - began
    return {"seconds": seconds, "plans": result.plans, "regret": result.total_regret}


def every_episode(name: str, episodes: int) -> Facts:
    """Measure microseconds an episode on RiverSwim with five states, without what is done once."""
    if name == "rlberry-scool UCBVI":
        return rlberry(episodes)
    problem = orl.make_problem("river-swim", states=5)
    features = orl.FeatureMap.tabular(states=5, actions=2)
    agents: dict[str, Learner] = {
        "PSRL": orl.PSRL(replan=0.0),
        "UCBVI": orl.UCBVI(episodes=10_000),
        "paper.UCRLVTRLin": orl.paper.UCRLVTRLin(features=features, norm_bound=3.2),
    }
    first = orl.run(agents[name], problem, episodes=100, progress=False)
    began = time.process_time()
    result = orl.run(first.agent, problem, episodes=episodes, progress=False, continue_from=first)
    return {"us": 1e6 * (time.process_time() - began) / episodes, "plans": result.plans}


def rlberry(episodes: int) -> Facts:
    """Measure the same for rlberry-scool's UCBVI, on the same problem, if it is installed."""
    if importlib.util.find_spec("rlberry_scool") is None:
        return {"skipped": "rlberry-scool is not installed: pip install rlberry-scool rlberry"}
    agents = importlib.import_module("rlberry_scool.agents")
    models = importlib.import_module("rlberry.envs.finite_mdp")
    mdp = orl.make_problem("river-swim", states=5).mdp
    reward = np.array(mdp.known.base_reward)
    env = models.FiniteMDP(reward, mdp.kernel(), initial_state_distribution=0)
    agent = agents.UCBVIAgent(env, gamma=1.0, horizon=mdp.horizon)
    agent.fit(budget=100)
    began = time.process_time()
    agent.fit(budget=episodes)
    return {"us": 1e6 * (time.process_time() - began) / episodes, "plans": episodes}


def first_result(name: str, episodes: int) -> Facts:
    """Play a few episodes; the parent measures from the start of this process."""
    if name == "learn on FrozenLake":
        import gymnasium as gym

        spec = orl.read_ladder("frozen-lake-4x4")
        env = gym.make("FrozenLake-v1")
        learner = orl.Occam(ladder=spec.ladder)
        result = orl.learn(learner, env, episodes=episodes, known=spec.known, progress=False)
    else:
        agent, problem = SELECTORS[name]()
        result = orl.run(agent, problem, episodes=episodes, progress=False)
    return {"episodes": result.total_episodes}


def sparse(name: str, states: int) -> Facts:
    """Measure eight sparse simulators with five successors and four actions, H = 20.

    A mixture of them is the truth.
    """
    actions = 4
    successors = 5
    count = 8
    pairs = states * actions
    draw = np.random.default_rng(states)
    marks = [time.perf_counter()]
    steps = draw.integers(1, states // successors + 1, size=(pairs, successors))
    offsets = draw.integers(states, size=(pairs, 1))
    common = np.sort((offsets + np.cumsum(steps, axis=1)) % states, axis=1)
    del steps  # what is not needed any more would count as memory of the package
    indptr = np.arange(0, pairs * successors + 1, successors)
    kernels = []
    for _ in range(count):
        law = draw.dirichlet(np.ones(successors), size=pairs)
        kernels.append(sp.csr_array((law.ravel(), common.ravel(), indptr), shape=(pairs, states)))
    theta = draw.dirichlet(np.ones(count))
    truth = kernels[0].copy()
    truth.data = sum(w * kernel.data for w, kernel in zip(theta, kernels, strict=True))
    marks.append(time.perf_counter())

    mdp = orl.FiniteMDP(transition=truth, reward=draw.random((states, actions)), horizon=20)
    features = orl.FeatureMap(kernels)
    del truth, kernels
    agent = orl.UCRLVTRLin(features=features, norm_bound=1.0)
    state = agent.begin(mdp.known)
    marks.append(time.perf_counter())
    _ = mdp.optimal_values
    marks.append(time.perf_counter())
    agent.plan(mdp.known, state, draw)
    marks.append(time.perf_counter())
    agent.plan(mdp.known, state, draw)
    marks.append(time.perf_counter())
    orl.run(agent, mdp, episodes=3, progress=False)
    marks.append(time.perf_counter())

    names = ("draw kernels", "build", "solve the truth", "first plan", "plan", "3 episodes")
    seconds = dict(zip(names, np.diff(marks).tolist(), strict=True))
    return {**seconds, "peak MiB": peak_memory()}


def large_ladder(name: str, episodes: int) -> Facts:
    """Measure ARL-GEN or Occam on a large ladder."""
    kind, members = name.split(", ")
    problem: Problem = PatchyIce(slip=(0.1, 0.0, 1 / 3, 0.1))
    if members == "122,027":
        problem = SparseLadder(nonzero=2, dimension=16, most=5, seed=300)
    began = time.perf_counter()
    ladder = orl.Ladder.of_problem(problem)
    agent: Learner = orl.Occam(ladder=ladder)
    if kind == "ARLGen":
        agent = orl.ARLGen(ladder=ladder)
    built = time.perf_counter()
    result = orl.run(agent, problem, episodes=episodes, progress=False)
    return {
        "kernels": ladder.family.size,
        "build": built - began,
        "run": time.perf_counter() - built,
        "plans": result.plans,
        "regret": result.total_regret,
        "peak MiB": peak_memory(),
    }


def peak_memory() -> float:
    """Return this process's largest resident size so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux carries ``ru_maxrss`` over from the parent
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if "VmHWM" in line)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


# Sections ----------------------------------------------------------------------------------------


class Section(NamedTuple):
    """What is measured together."""

    title: str
    measure: Callable[[str, int], Facts]
    items: list[tuple[str, int]]  # names, and episodes or states


def sections(quick: bool, states: int) -> dict[int, Section]:
    """Return the sections by their numbers."""
    lengths = [10**4, 10**6]
    episodes = 300
    ladders = ["ARLGen, 6,561", "Occam, 6,561"]
    ladder_episodes = 200
    if not quick:
        lengths += [10**9, 10**12]
        episodes = 3_000
        ladders += ["ARLGen, 122,027", "Occam, 122,027"]
        ladder_episodes = 10_000
    growing = []
    for name in SELECTORS:
        growing += [(name, length) for length in lengths]
    rivals = ("PSRL", "UCBVI", "paper.UCRLVTRLin", "rlberry-scool UCBVI")
    starts = ("UCRLVTRLin", "ARLGen", "Occam, optimism", "learn on FrozenLake")
    return {
        1: Section("How time grows with K", growth, growing),
        2: Section(
            "An episode with a plan of its own, RiverSwim, S = 5",
            every_episode,
            [(name, episodes) for name in rivals],
        ),
        3: Section(
            "From the start of a process to the first result",
            first_result,
            [(name, 10) for name in starts],
        ),
        4: Section(
            f"Eight sparse simulators, S = {states:,}, A = 4, H = 20",
            sparse,
            [("5 successors", states)],
        ),
        5: Section("Large ladders", large_ladder, [(name, ladder_episodes) for name in ladders]),
    }


def measure_apart(section: int, name: str, size: int) -> tuple[Facts | None, float, str]:
    """Measure an item in a process of its own.

    Returns the facts, or None; seconds by the clock; why it failed.
    """
    command = [sys.executable, "-m", "studies.bench", "--section", str(section)]
    home = Path(__file__).parent.parent
    paths = os.pathsep.join([str(home), str(home / "src"), os.environ.get("PYTHONPATH", "")])
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603  # this very file
        [*command, "--item", name, str(size)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return None, seconds, lines[-1]
    return json.loads(done.stdout.splitlines()[-1]), seconds, ""


def run_section(number: int, section: Section) -> int:
    """Measure a section and print it; return how many items failed."""
    print(f"\n{number}. {section.title}\n", flush=True)
    failed = 0
    spent: dict[str, list[tuple[int, float]]] = {}
    for name, size in section.items:
        facts, seconds, reason = measure_apart(number, name, size)
        if facts is None:
            failed += 1
            print(f"   {name:<24} failed: {reason}", flush=True)
            continue
        if section.measure is first_result:
            facts = {"seconds": seconds}
        if section.measure is growth:
            spent.setdefault(name, []).append((size, facts["seconds"]))
        length = f"K = {size:,}"
        if section.measure is sparse:
            length = ""
        words = [f"{key} {fact_text(value)}" for key, value in facts.items()]
        print(f"   {name:<24} {length:<24} {', '.join(words)}", flush=True)
    for name, rows in spent.items():
        slope = math.nan
        if len(rows) > 1:
            lengths, times = np.log10(np.array(rows)).T
            slope = np.polyfit(lengths, times, 1)[0]
        print(f"   {name:<24} seconds grow like K^{slope:.2f}", flush=True)
    return failed


def fact_text(value: object) -> str:
    """Return a fact as it is printed."""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that are asked for; return how many items failed."""
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    parser.add_argument("--section", type=int, choices=range(1, 6), help="only this one")
    parser.add_argument("--states", type=int, help="S of section 4; 1,000,000 needs some GiB")
    parser.add_argument("--item", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    usual_states = 2_000 if options.quick else 20_000
    every = sections(options.quick, options.states or usual_states)
    if options.item:
        name, size = options.item
        print(json.dumps(every[options.section].measure(name, int(size))))
        return 0
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    machine = f"{platform.system()} {platform.machine()}"
    print(f"Python {platform.python_version()}, {libraries}; {machine}", flush=True)
    failed = 0
    for number, section in every.items():
        if options.section in (None, number):
            failed += run_section(number, section)
    return failed


if __name__ == "__main__":
    sys.exit(main())

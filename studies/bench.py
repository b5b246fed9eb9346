"""Speed: how time grows with the number of episodes, what an episode costs, how long a start takes, and large problems.

    make bench                          all sections, some minutes
    make bench ARGS="--section 1"       one of them
    make bench ARGS="--quick"           smaller numbers everywhere
    make bench ARGS="--section 4 --states 1000000"

1  seconds of the processor and plans at K = 10^4, 10^6, 10^9 and 10^12 2  microseconds an episode
of algorithms that plan before every episode, beside rlberry-scool's UCBVI if it is installed 3
seconds from the start of a process to the first result 4  eight sparse simulators: build, plan,
play, peak memory 5  ladders of 6,561 and 122,027 kernels: 10,000 episodes and peak memory

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
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamrl as orl
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import ReferenceLadder, ReferenceMixture, SparseLadder


def selectors() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Return the agents of section 1 with their reference instances."""

    def linear(kind: Any, **more: Any) -> tuple[Any, Any]:
        problem = ReferenceMixture()
        norm = {"norm_bound": float(np.linalg.norm(problem.theta)), **more}
        return kind(features=orl.FeatureMap(problem.phi), **norm), problem

    def ladder(kind: Any, **more: Any) -> tuple[Any, Any]:
        problem = ReferenceLadder(nonzero=1)
        return kind(ladder=orl.Ladder.of_problem(problem), **more), problem

    return {
        "UCRLVTRLin": lambda: linear(orl.UCRLVTRLin),
        "ARLLinDim": lambda: linear(orl.ARLLinDim),
        "ARLLinNorm": lambda: linear(orl.ARLLinNorm, norm_bound=10.0),
        "ARLGen": lambda: ladder(orl.ARLGen),
        "Occam, optimism": lambda: ladder(orl.Occam),
        "Occam, sampling": lambda: ladder(orl.Occam, acting="sampling"),
    }


def growth(name: str, episodes: int) -> dict[str, Any]:
    """Measure a run, all included."""
    agent, problem = selectors()[name]()
    _ = problem.mdp.optimal_values
    began = time.process_time()
    result = orl.run(agent, problem, episodes=episodes, progress=False)
    return {
        "seconds": time.process_time() - began,
        "plans": result.plans,
        "regret": result.total_regret,
    }


def every_episode(name: str, episodes: int) -> dict[str, Any]:
    """Measure microseconds an episode on RiverSwim with five states, without what is done once."""
    if name == "rlberry-scool UCBVI":
        return rlberry(episodes)
    features = orl.FeatureMap.tabular(states=5, actions=2)
    problem = orl.make_problem("river-swim", states=5)
    agents: dict[str, Callable[[], Any]] = {
        "PSRL": lambda: orl.PSRL(replan=0.0),
        "UCBVI": lambda: orl.UCBVI(episodes=10_000),
        "paper.UCRLVTRLin": lambda: orl.paper.UCRLVTRLin(features=features, norm_bound=3.2),
    }
    result = orl.run(agents[name](), problem, episodes=100, progress=False)
    began = time.process_time()
    result = orl.run(result.agent, problem, episodes=episodes, progress=False, continue_from=result)
    return {"us": 1e6 * (time.process_time() - began) / episodes, "plans": result.plans}


def rlberry(episodes: int) -> dict[str, Any]:
    """Measure the same for rlberry-scool's UCBVI, on the same problem, if that package is installed."""
    if importlib.util.find_spec("rlberry_scool") is None:
        return {"skipped": "rlberry-scool is not installed: pip install rlberry-scool rlberry"}
    agents = importlib.import_module("rlberry_scool.agents")
    models = importlib.import_module("rlberry.envs.finite_mdp")
    mdp = orl.make_problem("river-swim", states=5).mdp
    env = models.FiniteMDP(
        np.array(mdp.known.base_reward), mdp.kernel(), initial_state_distribution=0
    )
    agent = agents.UCBVIAgent(env, gamma=1.0, horizon=mdp.horizon)
    agent.fit(budget=100)
    began = time.process_time()
    agent.fit(budget=episodes)
    return {"us": 1e6 * (time.process_time() - began) / episodes, "plans": episodes}


def first_result(name: str, episodes: int) -> dict[str, Any]:
    """Play a few episodes; the parent measures from the start of this process."""
    if name == "learn on FrozenLake":
        import gymnasium as gym

        spec = orl.read_ladder("frozen-lake-4x4")
        env = gym.make("FrozenLake-v1")
        result = orl.learn(
            orl.Occam(ladder=spec.ladder), env, episodes=10, known=spec.known, progress=False
        )
    else:
        agent, problem = selectors()[name]()
        result = orl.run(agent, problem, episodes=10, progress=False)
    return {"episodes": result.total_episodes}


def sparse(name: str, states: int) -> dict[str, Any]:
    """Measure eight sparse simulators with five successors and four actions, H = 20: a mixture of them is the truth."""
    actions = 4
    successors = 5
    count = 8
    draw = np.random.default_rng(states)
    pairs = states * actions
    indptr = np.arange(0, pairs * successors + 1, successors)
    began = time.perf_counter()
    steps = draw.integers(1, states // successors + 1, size=(pairs, successors))
    common = np.sort(
        (draw.integers(states, size=(pairs, 1)) + np.cumsum(steps, axis=1)) % states, axis=1
    )
    del steps
    kernels = []
    for _ in range(count):
        law = draw.dirichlet(np.ones(successors), size=pairs)
        kernels.append(sp.csr_array((law.ravel(), common.ravel(), indptr), shape=(pairs, states)))
    theta = draw.dirichlet(np.ones(count))
    truth = kernels[0].copy()
    truth.data = sum(w * kernel.data for w, kernel in zip(theta, kernels, strict=True))
    drawn = time.perf_counter()
    mdp = orl.FiniteMDP(transition=truth, reward=draw.random((states, actions)), horizon=20)
    features = orl.FeatureMap(kernels)
    del truth, kernels
    agent = orl.UCRLVTRLin(features=features, norm_bound=1.0)
    state = agent.begin(mdp.known)
    built = time.perf_counter()
    _ = mdp.optimal_values
    solved = time.perf_counter()
    agent.plan(mdp.known, state, draw)
    first = time.perf_counter()
    agent.plan(mdp.known, state, draw)
    planned = time.perf_counter()
    orl.run(agent, mdp, episodes=3, progress=False)
    played = time.perf_counter()
    times = np.diff([began, drawn, built, solved, first, planned, played])
    names = ("draw kernels", "build", "solve the truth", "first plan", "plan", "3 episodes")
    return dict(zip(names, times.tolist(), strict=True)) | {"peak MiB": peak_memory()}


def large_ladder(name: str, episodes: int) -> dict[str, Any]:
    """Measure ARL-GEN or Occam on a large ladder."""
    kind, members = name.split(", ")
    problem: Any = PatchyIce(slip=(0.1, 0.0, 1 / 3, 0.1))
    if members == "122,027":
        problem = SparseLadder(nonzero=2, dimension=16, most=5, seed=300)
    began = time.perf_counter()
    ladder = orl.Ladder.of_problem(problem)
    agent: Any = orl.ARLGen(ladder=ladder) if kind == "ARLGen" else orl.Occam(ladder=ladder)
    built = time.perf_counter()
    result = orl.run(agent, problem, episodes=episodes, progress=False)
    facts = {
        "kernels": ladder.family.size,
        "build": built - began,
        "run": time.perf_counter() - built,
    }
    return facts | {"plans": result.plans, "regret": result.total_regret, "peak MiB": peak_memory()}


def peak_memory() -> float:
    """Return this process's largest resident size so far, in MiB; Linux carries ``ru_maxrss`` over from the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(
            int(line.split()[1]) / 1024
            for line in status.read_text().splitlines()
            if "VmHWM" in line
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


Item = tuple[str, int]


def sections(
    quick: bool, states: int
) -> dict[int, tuple[str, Callable[[str, int], dict[str, Any]], list[Item]]]:
    """Return title, measure and items of each section."""
    lengths = (10**4, 10**6) if quick else (10**4, 10**6, 10**9, 10**12)
    episodes = 300 if quick else 3_000
    rivals = ("PSRL", "UCBVI", "paper.UCRLVTRLin", "rlberry-scool UCBVI")
    starts = ("UCRLVTRLin", "ARLGen", "Occam, optimism", "learn on FrozenLake")
    ladders = [f"{kind}, {size}" for size in ("6,561", "122,027") for kind in ("ARLGen", "Occam")]
    return {
        1: ("How time grows with K", growth, [(name, K) for name in selectors() for K in lengths]),
        2: (
            "An episode with a plan of its own, RiverSwim, S = 5",
            every_episode,
            [(n, episodes) for n in rivals],
        ),
        3: (
            "From the start of a process to the first result",
            first_result,
            [(name, 10) for name in starts],
        ),
        4: (
            f"Eight sparse simulators, S = {states:,}, A = 4, H = 20",
            sparse,
            [("5 successors", states)],
        ),
        5: (
            "Large ladders",
            large_ladder,
            [(n, 200 if quick else 10_000) for n in ladders[: 2 if quick else None]],
        ),
    }


def child(section: int, name: str, size: int) -> tuple[dict[str, Any] | None, float, str]:
    """Measure an item in a process of its own; return the facts, seconds by the clock, or why it failed."""
    command = [
        sys.executable,
        "-m",
        "studies.bench",
        "--section",
        str(section),
        "--item",
        name,
        str(size),
    ]
    home = Path(__file__).parent.parent
    paths = os.pathsep.join([str(home), str(home / "src"), os.environ.get("PYTHONPATH", "")])
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603  # this very file
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    spent = time.perf_counter() - began
    if done.returncode:
        return (
            None,
            spent,
            (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1],
        )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts, spent, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that are asked for; return how many items failed."""
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    parser.add_argument("--section", type=int, choices=range(1, 6), help="only this one")
    parser.add_argument(
        "--states",
        type=int,
        default=20_000,
        help="S of section 4; 1,000,000 needs some GiB of memory",
    )
    parser.add_argument("--item", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    states = 2_000 if given.quick and given.states == 20_000 else given.states
    every = sections(given.quick, states)
    failed = 0
    if given.item:
        print(json.dumps(every[given.section][1](given.item[0], int(given.item[1]))))
        return 0
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    print(
        f"Python {platform.python_version()}, {libraries}; {platform.system()} {platform.machine()}",
        flush=True,
    )
    for number, (title, _, items) in every.items():
        if given.section not in (None, number):
            continue
        print(f"\n{number}. {title}\n", flush=True)
        spent: dict[str, list[tuple[int, float]]] = {}
        for name, size in items:
            facts, seconds, why = child(number, name, size)
            if facts is None:
                failed += 1
                print(f"   {name:<24} failed: {why}", flush=True)
                continue
            if number == 3:
                facts = {"seconds": seconds}
            if number == 1:
                spent.setdefault(name, []).append((size, facts["seconds"]))
            said = ", ".join(
                f"{key} {v:,.4g}" if isinstance(v, float) else f"{key} {v}"
                for key, v in facts.items()
            )
            print(f"   {name:<24} {f'K = {size:,}' if number != 4 else '':<24} {said}", flush=True)
        for name, rows in spent.items():
            lengths, times = np.log10(np.array(rows)).T
            slope = np.polyfit(lengths, times, 1)[0] if len(rows) > 1 else math.nan
            print(f"   {name:<24} seconds grow like K^{slope:.2f}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

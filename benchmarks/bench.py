"""Speed of the package: against plain NumPy, as problems grow, at sizes where memory matters, and at a cold start.

    make bench                  everything, a few minutes
    make bench ARGS=--quick     the same sections with fewer episodes and smaller sizes

Times are medians over repeated runs after a first one that compiles, exact regret included, on one thread (the largest
problems of section 3: on as many as there are processors). Lazy planning plans often in the first episodes and rarely
later, so its time per episode depends on K: a ratio is always taken at the same K for both. Planning before every
episode costs the same in each, and K may differ.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is loaded, so that both sides run on one thread
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import json
import math
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import occamrl as orl
from benchmarks import oracle
from benchmarks.simulator_cases import river
from occamrl._core.arena import model_of
from occamrl._core.loop import open_episode
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.problems.classic import RiverSwim
from occamrl.problems.mixtures import SparseLadder, SparseMixture

Floats = NDArray[np.float64]
DELTA = 0.05
LAZY = 0.2


# ------------------------------------------------------------------------------------------------------ what is timed


@dataclass(frozen=True)
class Case:
    """A problem and its learner, as the package takes them and as dense arrays for NumPy."""

    mdp: Any
    learner: Any
    numpy: Callable[..., object]  # of benchmarks.oracle
    model: Floats  # phi [S, A, S, d] or kernels [n, S, A, S]

    def lazy(self) -> Case:
        """Return the case with lazy planning."""
        return replace(self, learner=replace(self.learner, replan=LAZY))

    def run_numpy(self, episodes: int) -> object:
        """Run the same algorithm in plain NumPy."""
        mdp, learner = self.mdp, self.learner
        options: dict[str, Any] = {"norm_bound": learner.norm_bound} if isinstance(learner, orl.UCRLVTRLin) else {}
        problem = (np.array(mdp.known.base_reward), mdp.kernel(), mdp.horizon, int(np.argmax(mdp.initial_distribution)))
        uniforms = np.random.default_rng(0).random((episodes, mdp.horizon))
        options |= {"episodes": episodes, "uniforms": uniforms, "delta": DELTA, "replan": learner.replan}
        return self.numpy(self.model, *problem, **options)


def linear_case(mdp: Any, features: Any, phi: Floats, theta: Floats) -> Case:
    """Return UCRL-VTR-LIN, planning before every episode."""
    learner = orl.UCRLVTRLin(features=features, norm_bound=float(np.linalg.norm(theta)), delta=DELTA, replan=0.0)
    return Case(mdp, learner, oracle.ucrl_vtr_lin, phi)


def mixture_problem(*, states: int, horizon: int, dimension: int) -> Case:
    """Return the sparse linear mixture of the package, 4 actions, 3 non-zero coordinates."""
    problem = SparseMixture(
        states=states, actions=4, horizon=horizon, dimension=dimension, nonzero=3, gamma=0.5, seed=0
    )
    phi = np.array(problem.phi, dtype=np.float64)
    return linear_case(problem.mdp, orl.FeatureMap(phi), phi, np.array(problem.theta, dtype=np.float64))


def river_swim_problem(states: int) -> Case:
    """Return RiverSwim with one-hot features, d = 2 S^2, kept as blocks by the package and dense for NumPy."""
    mdp = RiverSwim(states=states, variant="ayoub").mdp
    kernel = mdp.kernel()
    phi = np.eye(kernel.size).reshape(*kernel.shape, -1)
    return linear_case(mdp, orl.FeatureMap.tabular(states=states, actions=mdp.actions), phi, kernel)


def simulators_problem(*, states: int, horizon: int, dimension: int, actions: int = 4) -> Case:
    """Return a mixture of random dense kernels, with equal weights."""
    rng = np.random.default_rng([states, horizon, dimension])
    phi = np.moveaxis(rng.dirichlet(np.ones(states), size=(dimension, states, actions)), 0, -1).copy()
    theta = np.full(dimension, 1.0 / dimension)
    mdp = orl.FiniteMDP(transition=phi @ theta, reward=rng.random((states, actions)), horizon=horizon)
    return linear_case(mdp, orl.FeatureMap(phi), phi, theta)


def family_problem(*, members: int, states: int, horizon: int, actions: int = 4) -> Case:
    """Return a family of random kernels, of which the first is the truth."""
    rng = np.random.default_rng([members, states, horizon])
    kernels, reward = rng.dirichlet(np.ones(states), size=(members, states, actions)), rng.random((states, actions))
    mdp = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=horizon)
    return Case(mdp, orl.UCRLVTR(family=orl.FiniteFamily(kernels), delta=DELTA), oracle.ucrl_vtr, kernels)


def seconds(action: Callable[[], object], repeats: int) -> float:
    """Return the median time of ``action`` over ``repeats`` calls."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def package_time(case: Case, episodes: int, repeats: int = 3) -> float:
    """Return seconds for ``episodes`` episodes of the package, compiled beforehand."""
    orl.run(case.learner, case.mdp, episodes=10, seed=1, progress=False)
    return seconds(lambda: orl.run(case.learner, case.mdp, episodes=episodes, seed=0, progress=False), repeats)


def numpy_time(case: Case, episodes: int, repeats: int = 3) -> float:
    """Return seconds for ``episodes`` episodes of plain NumPy."""
    case.run_numpy(5)
    return seconds(lambda: case.run_numpy(episodes), repeats)


def say(text: str = "") -> None:
    """Print a line at once."""
    print(text, flush=True)


# ------------------------------------------------------------------------------------------------ 1. against NumPy


def compare(quick: bool) -> None:
    """Print microseconds per episode of the package and of plain NumPy, and their ratio."""
    short = 10 if quick else 1
    mixture = mixture_problem(states=6, horizon=20, dimension=8)
    wide = mixture_problem(states=12, horizon=6, dimension=16)
    river = river_swim_problem(5)
    family = family_problem(members=577, states=6, horizon=20)
    rows: list[tuple[str, Case, int, int]] = [  # name, case, K of the package, K of NumPy
        ("mixture S=6 A=4 H=20 d=8", mixture, 2_000 // short, 300 // short),
        ("mixture S=6 A=4 H=20 d=8", mixture.lazy(), 20_000 // short, 20_000 // short),
        ("RiverSwim, one-hot, S=5 A=2 H=20 d=50", river, 2_000 // short, 200 // short),
        ("RiverSwim, one-hot, S=5 A=2 H=20 d=50", river.lazy(), 5_000 // short, 5_000 // short),
        ("mixture S=12 A=4 H=6 d=16", wide, 2_000 // short, 300 // short),
        ("mixture S=12 A=4 H=6 d=16", wide.lazy(), 20_000 // short, 20_000 // short),
        ("577 kernels S=6 A=4 H=20", family, 1_000 // short, 1_000 // short),
        ("577 kernels S=6 A=4 H=20", family.lazy(), 1_000 // short, 1_000 // short),
    ]
    say("1. Against plain NumPy (benchmarks/oracle.py): microseconds per episode")
    say("   every: plans before each episode; lazy: replan=0.2, at the same K for both;")
    say("   'to every' compares the package with NumPy planning before each episode")
    say()
    say(f"   {'problem':<38} {'plan':<6} {'K':>7} {'package':>9} {'K':>7} {'NumPy':>9} {'ratio':>7} {'to every':>9}")
    numpy_every = 0.0
    for name, case, package_episodes, numpy_episodes in rows:
        ours = 1e6 * package_time(case, package_episodes) / package_episodes
        theirs = 1e6 * numpy_time(case, numpy_episodes, 1 if numpy_episodes > 5_000 else 3) / numpy_episodes
        if case.learner.replan == 0.0:
            numpy_every = theirs
        say(
            f"   {name:<38} {'lazy' if case.learner.replan else 'every':<6} {package_episodes:>7,} {ours:>9.2f}"
            f" {numpy_episodes:>7,} {theirs:>9.1f} {theirs / ours:>6.0f}x {numpy_every / ours:>8.0f}x"
        )
    say()
    say("   Lazily over a long run, the package alone")
    for name, long_case in (("mixture S=6 A=4 H=20 d=8", mixture), ("mixture S=12 A=4 H=6 d=16", wide)):
        episodes = 200_000 // short
        ours = 1e6 * package_time(long_case.lazy(), episodes) / episodes
        say(f"   {name:<38} {'lazy':<6} {episodes:>7,} {ours:>9.2f}")
    say()


# ------------------------------------------------------------------------------------------------ 2. how cost grows


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Return the least-squares slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def growth(quick: bool) -> None:
    """Print how time grows with S, d, H (per episode) and K (in all), and the exponents."""
    centre = {"states": 8, "dimension": 8, "horizon": 10}
    sweeps = {
        "states": ("S", [4, 8, 16, 32, 64]),
        "dimension": ("d", [4, 8, 16, 32, 64]),
        "horizon": ("H", [5, 10, 20, 40, 80]),
    }
    say("2. How cost grows: dense mixtures of d random kernels around S=8, A=4, H=10, d=8; the package alone")
    for plan, episodes in (("every", 200 if quick else 1_000), ("lazy", 2_000 if quick else 20_000)):
        say()
        say(f"   plan: {plan}; microseconds per episode, K={episodes:,}")
        for field, (symbol, sizes) in sweeps.items():
            if quick:
                sizes = sizes[:3]
            times = []
            for size in sizes:
                case = simulators_problem(**(centre | {field: size}))
                case = case.lazy() if plan == "lazy" else case
                times.append(package_time(case, episodes) / episodes)
            points = "  ".join(f"{size}: {1e6 * t:.2f}" for size, t in zip(sizes, times, strict=True))
            say(f"   {symbol}^{exponent(sizes, times):<6.2f} {points}")
        counts = [episodes * factor for factor in ((1, 4, 16, 64) if plan == "lazy" else (1, 2, 4, 8))]
        case = simulators_problem(**centre)
        case = case.lazy() if plan == "lazy" else case
        times = [package_time(case, count) for count in counts]
        points = "  ".join(f"{count:,}: {1e3 * t:.2f}" for count, t in zip(counts, times, strict=True))
        say(f"   K^{exponent(counts, times):<6.2f} {points}   (milliseconds in all)")
    say()


# ------------------------------------------------------------------------------------ 3. large: time and peak memory


def peak_memory() -> float:
    """Return this process's largest resident size so far, in MiB.

    Linux carries ``ru_maxrss`` over from the parent of a new process, so its own high-water mark is read where there
    is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def sparse_simulators(states: int, *, shared: bool) -> tuple[list[Any], Any, Floats, Floats]:
    """Return 8 sparse kernels [(S*A), S] with 5 successors each, a convex mixture of them, its weights and rewards.

    ``shared``: the simulators agree on the successors of (s, a) and differ in probabilities; otherwise each has its
    own, and the mixture has up to 40.
    """
    actions, successors, dimension = 4, 5, 8
    rng = np.random.default_rng([states, shared])
    pairs = states * actions
    indptr = np.arange(0, pairs * successors + 1, successors)

    def draw_successors() -> NDArray[np.int64]:
        """Return distinct next states of every (s, a): a random start and random steps of at most S/5 forward."""
        steps = rng.integers(1, states // successors + 1, size=(pairs, successors))
        return (rng.integers(states, size=(pairs, 1)) + np.cumsum(steps, axis=1)) % states

    common = draw_successors()
    kernels = []
    for _ in range(dimension):
        indices = common if shared else draw_successors()
        probabilities = rng.dirichlet(np.ones(successors), size=pairs)
        kernel = scipy.sparse.csr_array((probabilities.ravel(), indices.ravel(), indptr), shape=(pairs, states))
        kernel.sort_indices()
        kernels.append(kernel)
    theta = rng.dirichlet(np.ones(dimension))
    truth = sum((weight * kernel for weight, kernel in zip(theta[1:], kernels[1:], strict=True)), theta[0] * kernels[0])
    return kernels, truth.tocsr(), theta, rng.random((states, actions))


def sparse_case(states: int, *, shared: bool) -> tuple[Any, Any]:
    """Return UCRL-VTR-LIN, planning before every episode, and a sparse mixture of simulators."""
    kernels, truth, theta, reward = sparse_simulators(states, shared=shared)
    mdp = orl.FiniteMDP(transition=truth, reward=reward, horizon=20)
    del truth  # as large as all kernels together
    return linear_case(mdp, orl.FeatureMap(kernels), np.zeros(0), theta).learner, mdp


def parameters_case(members: int) -> tuple[Any, Any]:
    """Return UCRL-VTR, planning before every episode, on kernels given by parameters over a feature map."""
    case = simulators_problem(states=6, horizon=20, dimension=8)
    thetas = np.random.default_rng(members).dirichlet(np.ones(8), size=members)
    mdp = orl.FiniteMDP(transition=case.model @ thetas[0], reward=case.mdp.known.base_reward, horizon=20)
    family = orl.FiniteFamily(parameters=thetas, features=orl.FeatureMap(case.model))
    return orl.UCRLVTR(family=family, delta=DELTA), mdp


def grid_case(members: int) -> tuple[Any, Any]:
    """Return UCRL-VTR, planning before every episode, on a grid over the two currents of a river: two parameters."""
    states, step, low = 6, 0.001, (0.2, 0.05)
    high = [round(each + step * (math.isqrt(members) - 1), 3) for each in low]
    family = orl.CoverFamily(
        lambda p: river(np.full(states, p[0]), np.full(states, p[1])), low=low, high=high, step=step
    )
    reward = np.zeros((states, 2))
    reward[0, 0], reward[-1, 1] = 0.05, 1.0
    truth = family.kernel(family.size // 2 + 7)
    return orl.UCRLVTR(family=family, delta=DELTA), orl.FiniteMDP(transition=truth, reward=reward, horizon=20)


def ladder_case(most: int) -> tuple[Any, Any]:
    """Return ARL-GEN on sparse hypotheses over 16 features, of which up to ``most`` matter (5: 122,027 kernels)."""
    problem = SparseLadder(nonzero=2, dimension=16, most=most, seed=300)
    return orl.ARLGen(ladder=orl.Ladder.of_problem(problem), delta=DELTA), problem


FAMILIES: dict[str, tuple[Callable[[int], tuple[Any, Any]], int, int]] = {  # builder, a small size, episodes
    "family": (parameters_case, 10, 2_000),
    "early": (parameters_case, 10, 50),
    "grid": (grid_case, 16, 50),
    "ladder": (ladder_case, 2, 100),
}


def probe(name: str, size: int) -> dict[str, float]:
    """Measure one of the large problems in this process: seconds to build, for a first run of one episode, and each.

    What a learner does once is in the first run; what every run does once is taken out by a second run of one episode.
    Of sparse simulators, the second plan of another state is measured alone as well.
    """
    finite = name in FAMILIES
    build, least, more = FAMILIES[name] if finite else (partial(sparse_case, shared=name == "shared"), 50, 4)
    small, few = build(least)
    orl.run(small, few, episodes=1 + more, seed=0, progress=False)  # compiles
    before, begin = peak_memory(), time.perf_counter()
    learner, mdp = build(size)
    built = time.perf_counter() - begin

    def run(count: int) -> float:
        return seconds(lambda: orl.run(learner, mdp, episodes=count, seed=0, progress=False), 1)

    first, again = run(1), run(1)
    each = max(0.0, run(1 + more) - again) / more
    measured = {"build": built, "first": first, "each": each, "before": before, "peak": peak_memory()}
    if not finite:
        model, state, actions = model_of(learner, mdp.known), learner.begin(mdp.known), np.zeros((20, size), np.int64)
        for _ in range(2):
            measured["plan"] = seconds(lambda: open_episode(model, state, 0, np.uint64(0), 0, actions), 1)
    return measured


def child(*arguments: str, **environment: str) -> tuple[str, str]:
    """Run this file in a process of its own; return what it printed, or why it failed."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603 (this very file)
    if done.returncode == 0:
        return done.stdout, ""
    return "", (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def large(quick: bool, states: int | None = None) -> bool:
    """Print build time, first run, time per episode and peak memory of large problems; False if one failed."""
    usual, families = (2_000, (4_096,)) if quick else (20_000, (65_536, 100_000))
    states, grid = states or usual, 4_096 if quick else 121_801
    rows = [
        (f"8 sparse simulators, S={states:,}, 5 successors in common", "shared", states),
        (f"8 sparse simulators, S={states:,}, 5 successors each", "own", states),
        *((f"{n:,} kernels by parameters, S=6, d=8, 2,000 episodes", "family", n) for n in families),
        *((f"{n:,} kernels by parameters, S=6, d=8, 50 episodes", "early", n) for n in families),
        (f"{grid:,} kernels on a grid, S=6, 50 episodes", "grid", grid),
        (f"ARL-GEN on a ladder of {'451' if quick else '122,027'} kernels, 100 episodes", "ladder", 2 if quick else 5),
    ]
    say("3. Large problems, A=4, H=20, each in a process of its own, planning before every episode")
    say("   first: a run of one episode, with all that is done once; episode: each further one (plan, play, evaluate);")
    say("   plan: of one episode, alone")
    say("   before, peak: largest resident size after compiling and at the end")
    say()
    say(f"   {'problem':<54} {'build':>8} {'first':>8} {'episode':>12} {'plan':>9} {'before':>9} {'peak':>9}")
    complete = True
    for label, name, size in rows:
        printed, reason = child("--probe", name, "--size", str(size))
        if reason:
            complete = False
            say(f"   {label:<54} failed: {reason}")
            continue
        found = json.loads(printed.splitlines()[-1])
        episode = f"{found['each']:.3f} s" if found["each"] >= 0.01 else f"{1e6 * found['each']:.1f} us"
        plan = f"{found['plan']:.3f} s" if "plan" in found else ""
        say(
            f"   {label:<54} {found['build']:>6.2f} s {found['first']:>6.2f} s {episode:>12} {plan:>9}"
            f" {found['before']:>5.0f} MiB {found['peak']:>5.0f} MiB"
        )
    say()
    return complete


# ------------------------------------------------------------------------------------------- 4. the first call of all


def start_lake() -> object:
    """Learn in Gymnasium's FrozenLake with ARL-GEN."""
    spec = orl.read_ladder("frozen-lake-4x4", horizon=12)
    env = FiniteEnvironment(gym.make("FrozenLake-v1"), known=spec.known)
    return orl.learn(orl.ARLGen(ladder=spec.ladder), env, episodes=10, seed=0)


def start_linear(kind: str) -> object:
    """Run UCRL-VTR-LIN or ARL-LIN(dim) on a small problem."""
    case = river_swim_problem(5) if kind == "tabular" else mixture_problem(states=6, horizon=20, dimension=8)
    learner = case.learner
    if kind == "dimension":
        learner = orl.ARLLinDim(features=learner.features, norm_bound=learner.norm_bound)
    return orl.run(learner, case.mdp, episodes=10, progress=False)


def start_ladder(kind: Any) -> object:
    """Run a selector on a finite ladder."""
    problem = SparseLadder(nonzero=1, most=1)
    return orl.run(kind(ladder=orl.Ladder.of_problem(problem)), problem, episodes=10, progress=False)


STARTS: dict[str, tuple[str, Callable[[], object]]] = {
    "dense": ("UCRLVTRLin, dense features", partial(start_linear, "dense")),
    "tabular": ("UCRLVTRLin, tabular features", partial(start_linear, "tabular")),
    "dimension": ("ARLLinDim", partial(start_linear, "dimension")),
    "ladder": ("ARLGen on a finite ladder", partial(start_ladder, orl.ARLGen)),
    "occam": ("Occam on a finite ladder", partial(start_ladder, orl.Occam)),
    "lake": ("learn, ARLGen on FrozenLake", start_lake),
}


def cold_start() -> bool:
    """Print what a first call compiles, and how long it takes with an empty cache and with a full one."""
    say("4. Cold start: a process of its own with an empty cache, then one that finds the cache")
    say("   functions: those in the cache that Python calls; versions: their specialisations by type")
    say()
    say(f"   {'first call':<32} {'functions':>10} {'versions':>9} {'empty':>9} {'full':>9}")
    complete = True
    for name, (label, _) in STARTS.items():
        with tempfile.TemporaryDirectory(prefix="occamrl-bench-") as folder:
            times, reasons = [], []
            for _ in range(2):
                begin = time.perf_counter()
                reasons.append(child("--start", name, OCCAMRL_CACHE_DIR=folder)[1])
                times.append(time.perf_counter() - begin)
            kept = [path.name.rpartition("-")[0] for path in Path(folder).rglob("*.code")]
        if any(reasons):
            complete = False
            say(f"   {label:<32} failed: {max(reasons)}")
        else:
            say(f"   {label:<32} {len(set(kept)):>10} {len(kept):>9} {times[0]:>7.1f} s {times[1]:>7.1f} s")
    say()
    return complete


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench", description="Speed of occamrl against plain NumPy, and its growth.")
    parser.add_argument("--quick", action="store_true", help="fewer episodes and smaller sizes")
    parser.add_argument("--section", type=int, choices=(1, 2, 3, 4), help="only this section")
    parser.add_argument("--states", type=int, help="S of section 3 (up to 1,000,000, with 16 GiB of memory)")
    parser.add_argument("--probe", choices=("shared", "own", *FAMILIES), help=argparse.SUPPRESS)
    parser.add_argument("--start", choices=STARTS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.probe:
        say(json.dumps(probe(options.probe, options.size)))
        return 0
    if options.start:
        STARTS[options.start][1]()
        return 0
    begin = time.perf_counter()
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "scipy"))
    say(f"Python {platform.python_version()}, {libraries}; {platform.system()} {platform.machine()}")
    say()
    complete = True
    if options.section in (None, 1):
        compare(options.quick)
    if options.section in (None, 2):
        growth(options.quick)
    if options.section in (None, 3):
        complete = large(options.quick, options.states)
    if options.section in (None, 4):
        complete = cold_start() and complete
    say(f"{time.perf_counter() - begin:.0f} s in all")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())

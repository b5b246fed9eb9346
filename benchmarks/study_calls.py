"""Random calls of constructors and public functions: each is refused by name, or accepted.

A call that is known to be good has one or two of its arguments replaced by values that a user may pass by mistake:
numbers out of range, of other types, enormous ones, arrays of other shapes, strings, nothing. Each runs in a process of
its own, forked from a warm one, with a limit of time and memory::

    python -m benchmarks.study_calls --calls 5000 --seed 0

*Refused*: an error of this package, which names an argument. *Raw*: any other error. *Long*: no answer in time, but
one to Ctrl-C. *Hung*: none to that either.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import pickle
import random
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamrl as orl
from occamrl import registry
from occamrl.continuous.grid import Grid
from occamrl.learners.baselines import Optimal
from occamrl.logs.log import Log
from occamrl.problems.mdp import BetaRewards
from occamrl.selectors import references

SECONDS = 10.0  # of a call
MEMORY = 4 * 2**30  # more than what the warm process has

Call = tuple[Callable[..., Any], dict[str, Any]]

NUMBERS = [0, 1, 2, 3, -1, 7, 10**6, 10**9, 10**12, 2**63, 10**30, 0.0, 0.5, 1.0, 1.5, -0.5, 1e-300, 1e300, True, False]
ODD = [
    float("nan"),
    float("inf"),
    -float("inf"),
    1j,
    "",
    "x",
    "sharp",
    "0.5",
    b"x",
    None,
    object(),
    len,
    int,
    "\x00",
    "é",
]
SEQUENCES: list[Any] = [
    [], (), {}, set(), [1], (1,), [0, 0], [0, 1], [1, 0], (0.5, 0.5), [-1], [10**9], ["a"], [None], [[]], [[1.0]],
    [0.5], [1, [2]], range(3), {"a": 1}, {0: 0.5}, {"bernoulli": 1.0}, [float("nan")], [1j], [True], [1e300, 1e300],
]  # fmt: skip
ARRAYS: list[Any] = [
    np.zeros(0), np.zeros((0, 0)), np.zeros(3), np.ones((2, 2)), np.full((2, 2, 2), 0.5), np.ones((1, 1, 1)),
    np.array(1.0), np.array("x"), np.array([object()], dtype=object), np.array([1, 2]), np.array([-1, 5]),
    np.full((2, 2, 2), np.nan), np.ones((2, 2, 2), dtype=complex), np.eye(3)[None], np.float32(0.5), np.int8(1),
    np.array([True, False]), np.zeros((3, 3), order="F"), np.array(["2020"], dtype="datetime64[Y]"), np.ones(3)[::-1],
    np.broadcast_to(np.float64(0.5), (10**4, 10**4, 10**4)), sp.csr_array(np.eye(4)), sp.csr_array((0, 0)),
]  # fmt: skip


def calls(scratch: Path) -> dict[str, Call]:
    """Return good calls by name; no argument is changed by a call."""
    problem = registry.make_problem("SparseMixture", states=3, actions=2, horizon=3, dimension=4, nonzero=2)
    mdp, features = problem.mdp, orl.FeatureMap(problem.phi)
    draw = np.random.default_rng(0)
    kernels = draw.dirichlet(np.ones(3), size=(4, 3, 2))
    kernels[0] = mdp.kernel()
    reward = draw.uniform(size=(3, 2))
    family, known = orl.FiniteFamily(kernels), mdp.known
    ladder = orl.Ladder([family.prefix(1), family.prefix(2), family])
    linear = orl.LinearFamily(features=features, norm_bound=2.0)
    simulators = orl.Simulators(list(kernels))
    learner = orl.UCRLVTRLin(features=features, norm_bound=2.0)
    result = orl.run(orl.ARLLinDim(features=features, norm_bound=2.0), mdp, episodes=60, progress=False)
    mixed = orl.run(orl.UCRLVTRLin(features=simulators.features, norm_bound=1.0), mdp, episodes=60, progress=False)
    rows = {
        "episode": np.repeat(np.arange(5), 3),
        "step": np.tile(np.arange(3), 5),
        "state": np.zeros(15, dtype=int),
        "action": np.zeros(15, dtype=int),
        "reward": np.full(15, reward[0, 0]),
        "next_state": np.zeros(15, dtype=int),
        "terminated": np.zeros(15, dtype=bool),
        "truncated": np.zeros(15, dtype=bool),
    }
    theta = np.stack([problem.theta, problem.theta])
    result.save(scratch / "good.npz")
    plain = orl.Known(states=3, actions=2, horizon=3, base_reward=reward)
    toml = scratch / "spec.toml"
    toml.write_text(
        'name = "a"\nepisodes = 5\nseeds = 1\n[[problem]]\nname = "RiverSwim"\n[[agent]]\nname = "Optimal"\n'
    )
    found: dict[str, Call] = {
        "FiniteMDP": (
            orl.FiniteMDP,
            {"transition": kernels[0], "reward": reward, "horizon": 3, "initial_state": 0, "absorbing": ()},
        ),
        "FiniteMDP noise": (
            orl.FiniteMDP,
            {"transition": kernels[0], "reward": reward, "horizon": 3, "reward_noise": None},
        ),
        "FiniteMDP outcomes": (
            orl.FiniteMDP,
            {"outcomes": {0: {0: [(1.0, 0, 0.5, False)]}}, "horizon": 3, "reward_range": (0, 1)},
        ),
        "FiniteMDP.evaluate": (mdp.evaluate, {"policy": np.zeros((3, 3), dtype=np.int64)}),
        "FiniteMDP.with_reward_noise": (mdp.with_reward_noise, {"reward_noise": "bernoulli"}),
        "FeatureMap": (orl.FeatureMap, {"phi": problem.phi}),
        "FeatureMap.tabular": (orl.FeatureMap.tabular, {"states": 3, "actions": 2, "support": None}),
        "FeatureMap.aggregated": (
            orl.FeatureMap.aggregated,
            {"partition": [0, 0, 1], "moves": np.zeros((3, 2, 2), dtype=int)},
        ),
        "FeatureMap.of_simulators": (orl.FeatureMap.of_simulators, {"simulators": [mdp, mdp]}),
        "FeatureMap.restrict": (features.restrict, {"coordinates": [0, 1]}),
        "FeatureMap.probabilities": (features.probabilities, {"theta": problem.theta}),
        "FeatureMap.kernel": (features.kernel, {"theta": problem.theta}),
        "FiniteFamily": (orl.FiniteFamily, {"kernels": kernels}),
        "FiniteFamily parameters": (orl.FiniteFamily, {"parameters": problem.theta[None], "features": features}),
        "FiniteFamily.take": (family.take, {"members": np.array([0, 2])}),
        "FiniteFamily.prefix": (family.prefix, {"size": 2}),
        "FiniteFamily.parameters_of": (family.parameters_of, {"member": 1}),
        "FiniteFamily.find": (family.find, {"kernel": kernels[1]}),
        "FiniteFamily.optimal_values": (family.optimal_values, {"known": known}),
        "FiniteFamily.log_covering_number": (family.log_covering_number, {"alpha": 0.1}),
        "CoverFamily": (orl.CoverFamily, {"kernel": cover, "low": [0.2], "high": [0.8], "step": 0.2, "reach": None}),
        "LinearFamily": (
            orl.LinearFamily,
            {"features": features, "norm_bound": 2.0, "coordinates": None, "basis": None},
        ),
        "LinearFamily.find": (linear.find, {"kernel": kernels[0]}),
        "LinearFamily.log_covering_number": (linear.log_covering_number, {"alpha": 0.1}),
        "AggregationFamily": (orl.AggregationFamily, {"partition": [0, 0, 1], "moves": None, "actions": 2}),
        "AggregationFamily.tabular": (orl.AggregationFamily.tabular, {"states": 3, "actions": 2, "support": None}),
        "Ladder": (orl.Ladder, {"rungs": [family.prefix(1), family]}),
        "Ladder.of_levels": (orl.Ladder.of_levels, {"family": family, "level": np.array([0, 0, 1, 2]), "reach": None}),
        "Ladder.of_prefixes": (orl.Ladder.of_prefixes, {"parameters": theta, "features": features, "sizes": [1, 2]}),
        "Ladder.of_problem": (orl.Ladder.of_problem, {"problem": registry.make_problem("SparseLadder")}),
        "Ladder.rung": (ladder.rung, {"m": 1}),
        "Ladder.class_of": (ladder.class_of, {"mdp": mdp}),
        "Known": (orl.Known, {"states": 3, "actions": 2, "horizon": 3, "base_reward": reward, "rewards_known": True}),
        "Known.of_sizes": (orl.Known.of_sizes, {"states": 3, "actions": 2, "horizon": 3}),
        "Simulators": (orl.Simulators, {"candidates": list(kernels), "names": None, "seed": 0}),
        "Simulators functions": (orl.Simulators, {"candidates": [simulate], "states": 3, "actions": 2, "draws": 20}),
        "Simulators.error": (simulators.error, {"delta": 0.1}),
        "Simulators.ladder": (simulators.ladder, {"most": 2, "grid": 4, "delta": 0.05, "reach": None}),
        "Simulators.widen_mixture": (
            simulators.widen_mixture,
            {"episodes": 100, "horizon": 3, "delta": 0.05, "norm_bound": 1.0, "regularization": 1.0},
        ),
        "RewardsPerPair": (orl.RewardsPerPair, {"bound": "bernstein", "share": 0.5, "per_step": False, "scale": 1.0}),
        "RewardsLinear": (
            orl.RewardsLinear,
            {"features": np.ones((3, 2, 1)), "norm_bound": 1.0, "regularization": 1.0},
        ),
        "BetaRewards": (BetaRewards, parameters(BetaRewards, {})),
        "Grid": (Grid, {"low": [0.0], "high": [1.0], "points": [3], "periodic": [False]}),
        "Log": (Log.of_columns, {"columns": rows}),
        "select": (
            orl.select,
            {"log": Log.of_columns(rows), "ladder": ladder, "known": plain, "delta": 0.05, "progress": False},
        ),
        "Discretiser": (orl.Discretiser, {"edges": [[0.0, 0.5, 1.0]], "shape": None}),
        "Discretiser.encode": (orl.Discretiser([[0.0, 0.5, 1.0]]).encode, {"value": [0.3]}),
        "Discretiser.decode": (orl.Discretiser([[0.0, 0.5, 1.0]]).decode, {"index": 1}),
        "run": (
            orl.run,
            {"agent": learner, "mdp": mdp, "episodes": 20, "seed": 0, "progress": False, "continue_from": None},
        ),
        "run ARLGen": (orl.run, {"agent": orl.ARLGen(ladder=ladder), "mdp": mdp, "episodes": 20, "progress": False}),
        "Optimal run": (orl.run, {"agent": Optimal(mdp=mdp), "mdp": mdp, "episodes": 20, "progress": False}),
        "Agent": (orl.Agent, {"algorithm": learner, "env": None, "seed": 0}),
        "make_problem": (orl.make_problem, {"name": "RiverSwim"}),
        "make_problem states": (orl.make_problem, {"name": "RiverSwim", "states": 4}),
        "preflight": (
            orl.preflight,
            {"ladder": ladder, "known": known, "episodes": 100, "delta": 0.05, "start": 0, "truths": 2, "members": 2},
        ),
        "diagnose": (orl.diagnose, {"result": result}),
        "supports": (orl.supports, {"source": mixed, "simulators": simulators, "delta": 0.05, "evidence": "value"}),
        "load": (orl.load, {"folder": scratch}),
        "read_log": (orl.read_log, {"source": scratch / "none.parquet"}),
        "read_ladder": (orl.read_ladder, {"path": "frozen-lake-4x4", "horizon": None, "rewards": None, "kernel": None}),
        "Experiment.from_toml": (orl.Experiment.from_toml, {"spec": toml}),
        "Result.load": (orl.Result.load, {"path": scratch / "good.npz", "agent": None, "mdp": None}),
        "oracle": (references.oracle, {"selector": orl.ARLGen(ladder=ladder), "truth": 1}),
        "ARLLin.oracle": (orl.ARLLinDim(features=features, norm_bound=2.0).oracle, {"theta": problem.theta}),
    }
    needs = {"features": features, "ladder": ladder, "family": family, "mdp": mdp, "norm_bound": 2.0}
    for kind in [*registry.learners().values(), *registry.selectors().values()]:
        found[kind.__name__] = kind, parameters(kind, needs)
    for kind in registry.problems().values():
        found[kind.__name__] = made, {"kind": kind, **parameters(kind, {})}
    return {name: call for name, call in found.items() if call[1]}


def parameters(kind: Any, needs: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a class with what they are by default."""
    known = inspect.signature(kind).parameters.values()
    return {each.name: needs.get(each.name, None if each.default is each.empty else each.default) for each in known}


def made(kind: Any, **about: Any) -> Any:
    """Return a problem as a user meets it, with its table."""
    return kind(**about).mdp


def cover(theta: Any) -> Any:
    """Return the kernel of a parameter: the state stays with that probability."""
    p = float(theta[0])
    return np.array([[[p, 1.0 - p]], [[1.0 - p, p]]])


def simulate(s: int, a: int, rng: np.random.Generator) -> int:
    """Draw any state."""
    return int(rng.integers(3))


def random_call(known: dict[str, Call], seed: int) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Return the name of a good call, its arguments with one or two replaced, and which."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    name = draw.choice(sorted(known))
    arguments = dict(known[name][1])
    others = [value for _, about in known.values() for value in about.values()]
    names = [each for each in arguments if each not in ("kind", "progress")]
    chosen = draw.sample(names, min(len(names), draw.choice((1, 1, 2))))
    for each in chosen:
        arguments[each] = draw.choice(draw.choice((NUMBERS, NUMBERS, ODD, SEQUENCES, ARRAYS, others)))
    return name, arguments, tuple(chosen)


def outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[str, str]:
    """Return what became of a call, and the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**arguments)
    except orl.OccamRLError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        return "long", "stopped by Ctrl-C"
    except BaseException as error:
        import traceback

        at = traceback.extract_tb(error.__traceback__)[-1]
        inside = [each for each in traceback.extract_tb(error.__traceback__) if "occamrl" in each.filename]
        place = f"{Path(inside[-1].filename).name}:{inside[-1].lineno}" if inside else f"{Path(at.filename).name}"
        return "raw", f"{type(error).__name__} in {place}: {str(error)[:200]}"
    return "accepted", ""


def answered(child: int, reading: int, seconds: float) -> bool:
    """Wait for an answer until a child has used so much processor time in all, or has slept 20 times as long."""
    deadline = time.monotonic() + 20.0 * seconds
    while time.monotonic() < deadline:
        if select.select([reading], [], [], 0.2)[0]:
            return True
        used = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
        if sum(map(int, used)) / os.sysconf("SC_CLK_TCK") > seconds:
            return False
    return False


def apart(function: Callable[..., Any], arguments: dict[str, Any], seconds: float) -> tuple[str, str]:
    """Return the outcome of a call in a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 2)
        answer: tuple[str, str] = ("raw", "no answer")
        with contextlib.suppress(BaseException):
            answer = outcome(function, arguments)
        os.write(writing, pickle.dumps((answer[0], answer[1][:2000])))
        os._exit(0)
    os.close(writing)
    ready = answered(child, reading, seconds)
    if not ready:  # a long run that stops when it is asked to is not hung
        os.kill(child, signal.SIGINT)
        ready = answered(child, reading, 2.0 * seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    content = os.read(reading, 65536) if ready else b""
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if not ready:
        return "hung", f"no answer in {seconds:.0f} s"
    if not content:
        return "raw", f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended without an answer"
    found: tuple[str, str] = pickle.loads(content)  # noqa: S301  # of our own child
    return found


def main() -> None:
    """Make the calls and print the counts, and every one that is raw or hung."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        known = calls(Path(scratch))
        for name, (function, arguments) in known.items():
            good = apart(function, arguments, 6 * options.seconds)
            if good[0] != "accepted":
                sys.stdout.write(f"good call {name}: {good}\n")
        began = time.perf_counter()
        for number in range(options.calls):
            name, arguments, changed = random_call(known, 10**6 * options.seed + number)
            what, error = apart(known[name][0], arguments, options.seconds)
            counts[what] += 1
            if what in ("long", "raw", "hung"):
                shown = ", ".join(f"{each}={arguments[each]!r:.60}".replace("\n", " ") for each in changed)
                sys.stdout.write(f"{what}\t{name}({shown})\t{error}\n")
                sys.stdout.flush()
    words = ", ".join(f"{counts[each]} {each}" for each in ("refused", "accepted", "long", "raw", "hung"))
    sys.stdout.write(f"{options.calls} calls (seed {options.seed}): {words}; {time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()

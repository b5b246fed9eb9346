"""What version 0.3 missed on the models of :mod:`studies.truth`.

    python -m studies.before FOLDER --runs 40

FOLDER is a checkout of version 0.3, which is imported from there by a process of its own; logs are
of random actions, as in the first rows of ``--part truth:kept``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from studies.truth_models import CASES, Case, behaviour

ROOT = Path(__file__).parent.parent


def missed(case: Case, delta: float, seed: int) -> tuple[int, int, int]:
    """Return whether version 0.3 loses the class, a parameter, or a worth, of one log."""
    # names of version 0.3, which are not those of this one
    parametric: Any = importlib.import_module("occamrl.evidence.parametric")
    bellman: Any = importlib.import_module("occamrl.bellman")
    flow: Any = importlib.import_module("occamrl.running.flow")
    model: Any = case.model()
    truth: Any = model.mdp(**case.point)
    known = truth.known
    policy = behaviour("random", known.allowed.astype(float), truth.horizon, case.never)
    evidence = parametric.Parametric(model.ladder(case.classes), known, delta)
    state = evidence.begin()
    draw = np.random.default_rng([35, seed])
    played = 0
    while played < case.episodes:
        size = min(max(1, played // 10), case.episodes - played)
        evidence.add(state, flow.simulate(truth, policy, size, draw))
        played += size
    m = evidence.classes - 1
    if state["rejected"][m]:
        return 1, 1, 1
    lost = False
    try:
        for name, (_, low, high) in evidence.intervals(state, m).items():
            lost |= not low - 1e-9 <= case.point[name] <= high + 1e-9
        possible = evidence.possible(state)
        best = evidence.kernel(state["theta"][m])
    except np.linalg.LinAlgError:
        return 0, 1, 1
    chosen = bellman.solve([best], known.states, known.horizon)[1]

    def worth(kernel: Any) -> float:
        return float(known.initial @ bellman.evaluate([kernel], chosen)[0])

    worths = [worth(possible.kernel(i)) for i in range(len(possible.level))]
    worths += [worth(kernel) for kernel in possible.extremes(worth)]
    true = worth(truth.kernels[0])
    slack = 1e-6 * max(1.0, abs(true))
    outside = not min(worths) - slack <= true <= max(worths) + slack
    return 0, int(lost), int(outside)


def measure(name: str, delta: float, runs: int) -> dict[str, Any]:
    """Return counts of what is missed, and the time of a log."""
    began = time.process_time()
    rows = [missed(CASES[name], delta, seed) for seed in range(runs)]
    spent = time.process_time() - began
    return {"missed": np.array(rows).sum(axis=0).tolist(), "seconds": spent / runs}


def ask(folder: Path, name: str, delta: float, runs: int) -> dict[str, Any]:
    """Let version 0.3 measure."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "studies.before", str(folder), "--inside", name]
    command += ["--delta", str(delta), "--runs", str(runs)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603  # ourselves
    measured: dict[str, Any] = json.loads(answer.stdout)
    return measured


def main() -> None:
    """Print the table, or measure a model where version 0.3 is what is imported."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--delta", type=float, default=0.05, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.inside, options.delta, options.runs)))
        return
    head = "class out, .05 | parameter | worth | class out, .5 | parameter | worth | seconds a log"
    print(f"| version 0.3, {options.runs} logs | {head} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, case in CASES.items():
        cells = [f"{name} ({len(case.point)})"]
        seconds = 0.0
        for delta in (0.05, 0.5):
            measured = ask(options.folder, name, delta, options.runs)
            cells += [str(count) for count in measured["missed"]]
            seconds = measured["seconds"]
        print(f"| {' | '.join([*cells, f'{seconds:.2f}'])} |", flush=True)


if __name__ == "__main__":
    main()

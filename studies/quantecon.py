"""Backward induction beside QuantEcon's ``DiscreteDP``: the same kernels, the same horizon, one run.

    python -m studies.quantecon                 # about a minute
    python -m studies.quantecon --quick         # the smaller kernels, fewer repetitions

QuantEcon is not needed by this package: ``pip install quantecon``. Both are timed in turn, after a
first call that is not counted, and the smallest time of each is taken: what else the machine does
makes calls longer, never shorter. Values and policies are compared. Dense kernels are handed over
as P[s, a, s'], sparse ones as csr matrices of pairs.
"""

from __future__ import annotations

import argparse
import importlib.util
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import occamrl as orl
from occamrl import bellman
from studies.figures import table

SUCCESSORS = 5  # of a pair in a sparse kernel
HORIZON = 20


class Case(NamedTuple):
    """A kernel to be drawn."""

    dense: bool
    states: int
    actions: int


CASES: tuple[Case, ...] = (
    Case(True, 200, 4),
    Case(True, 400, 4),
    Case(True, 1_000, 4),
    Case(True, 400, 16),
    Case(False, 2_000, 4),
    Case(False, 20_000, 4),
    Case(False, 2_000, 16),
    Case(False, 200_000, 4),
)


def draw(case: Case) -> tuple[orl.FiniteMDP, Any]:
    """Return a problem, and QuantEcon's form of it."""
    rng = np.random.default_rng(case.states)
    states = case.states
    reward = rng.random((states, case.actions))
    kernel: Any
    if case.dense:
        kernel = rng.dirichlet(np.ones(states), size=(states, case.actions))
        form = [reward, kernel, 1.0]
    else:
        pairs = states * case.actions
        law = rng.dirichlet(np.ones(SUCCESSORS), size=pairs)
        steps = rng.integers(1, states // SUCCESSORS, size=(pairs, SUCCESSORS))
        target = np.sort((rng.integers(states, size=(pairs, 1)) + steps.cumsum(axis=1)) % states)
        start = np.arange(0, pairs * SUCCESSORS + 1, SUCCESSORS)
        kernel = sp.csr_matrix((law.ravel(), target.ravel(), start), shape=(pairs, states))
        state, action = np.divmod(np.arange(pairs), case.actions)
        form = [reward.ravel(), kernel, 1.0, state, action]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a discount there is no infinite horizon
        theirs = pkgutil.resolve_name("quantecon.markov:DiscreteDP")(*form)
    return orl.FiniteMDP(transition=kernel, reward=reward, horizon=HORIZON), theirs


def fastest(calls: Sequence[Callable[[], Any]], repetitions: int) -> list[float]:
    """Return the smallest time of each call, in seconds; calls take turns."""
    seconds = [float("inf")] * len(calls)
    for _ in range(repetitions):
        for i, call in enumerate(calls):
            began = time.perf_counter()
            call()
            seconds[i] = min(seconds[i], time.perf_counter() - began)
    return seconds


def measure(case: Case, repetitions: int) -> list[str]:
    """Return the row of a kernel: both times and their ratio."""
    backward_induction = pkgutil.resolve_name("quantecon.markov:backward_induction")
    mdp, theirs = draw(case)
    kernels = mdp.kernels

    def ours() -> Any:
        return bellman.solve(kernels, mdp.states, HORIZON)

    def quantecon() -> Any:
        return backward_induction(theirs, HORIZON)

    np.testing.assert_allclose(ours()[0], quantecon()[0], atol=1e-12)
    us, them = fastest([ours, quantecon], repetitions)
    form = "dense" if case.dense else f"sparse, {SUCCESSORS} successors"
    times = [f"{1e3 * us:.2f}", f"{1e3 * them:.2f}", f"{us / them:.2f}"]
    return [form, f"{case.states:,}", str(case.actions), *times]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller kernels, fewer repetitions")
    parser.add_argument("--repetitions", type=int, default=25)
    chosen = parser.parse_args(arguments)
    if importlib.util.find_spec("quantecon") is None:
        print("QuantEcon is not installed: pip install quantecon")
        return 1
    cases = CASES
    repetitions = chosen.repetitions
    if chosen.quick:
        cases = tuple(case for case in CASES if case.states <= 2_000)
        repetitions = 5
    rows = [measure(case, repetitions) for case in cases]
    head = ["kernel", "S", "A", "occamrl, ms", "DiscreteDP, ms", "ratio"]
    print(f"backward induction over {HORIZON} steps, smallest of {repetitions} times\n")
    print(table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

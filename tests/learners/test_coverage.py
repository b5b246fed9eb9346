"""Confidence sets hold what they promise: the truth is inside at all episodes with probability 1 - delta.

Each case plays 200 short runs and counts those in which the truth was outside before some episode. If the promise
holds, the count is at most binomial(200, delta), and the exact test at level 0.001 rejects with a probability of at
most 0.1 %; a set that fails in 15 % of runs in the place of 5 %, or in 50 % in the place of 30 %, it rejects with a
probability of 95 %. The broken versions must be rejected, in 60 runs. ``OCCAMRL_TEST_SEEDS`` repeats everything with
other seeds. The cases are those of ``occamrl certify``, and some whose sets are made by code of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from occamrl.analysis.certificates import PER_STEP, SETS, Case, finite_case, linear_case, set_case
from occamrl.learners.rewards import RewardsPerPair

RUNS, CONTROLS, LEVEL = 200, 60, 1e-3


def tally(case: Case, seed: int, runs: int = RUNS) -> tuple[float, int, int]:
    """Return the probability of so many failures, or more; pessimistic episodes when covered, and in all."""
    counts = np.array([case.play(RUNS * seed + number) for number in range(runs)], dtype=np.int64)
    left, broken, pessimistic = (int(total) for total in counts.sum(axis=0))
    return float(binom.sf(left - 1, runs, case.learner.delta)), broken, pessimistic


OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sharp ellipsoid, one-hot": (linear_case, {"kind": "one-hot"}),
    "rewards on transitions, no weights": (linear_case, {"kind": "transition rewards", "weights": "none"}),
    "one ellipsoid per step, unknown rewards": (linear_case, {"kind": "per step", "rewards": RewardsPerPair()}),
    "one sharp set per step, unknown rewards": (finite_case, {"members": PER_STEP, "rewards": RewardsPerPair()}),
}


@pytest.mark.parametrize("name", [*SETS, *OTHERS])
def test_the_set_covers_the_truth_and_optimism_follows(name: str, test_seed: int) -> None:
    case = set_case(name, False) if name in SETS else OTHERS[name][0](**OTHERS[name][1])
    chance, broken, _ = tally(case, test_seed)
    assert chance >= LEVEL
    assert broken == 0


@pytest.mark.parametrize("name", SETS)
def test_a_set_that_is_too_small_does_not_cover(name: str, test_seed: int) -> None:
    """Negative control: the same test rejects; optimism still follows from coverage, whatever the radius."""
    case = set_case(name, True)
    chance, broken, pessimistic = tally(case, test_seed, CONTROLS)
    assert chance < LEVEL
    assert broken == 0
    assert pessimistic > 0 or "finite" in name or "set" in name

"""No compiled function reads or writes outside an array, under any combination of options.

Machine code checks no index, so one that is out of bounds reads a neighbour's number or destroys it. Everything is
played once more in a process in which Numba checks every index: a matrix of options on tiny problems. ``make bounds``
plays the whole of it, every kind of features and the contract checks of everything registered included, which takes
minutes of compilation; the test plays what shares most of its code. It is cached apart from other tests.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import occamrl as orl
from occamrl import registry
from occamrl._core.arena import Arena, fmat, fvec, ivec, lay_out, part, square
from occamrl._core.compile import compiled, entry, hot, hot_inline
from occamrl.analysis.certificates import Player
from occamrl.checks import check_learner, check_selector
from occamrl.errors import ParameterError
from occamrl.learners.radii import ELLIPSOIDS, FINITE_SETS
from occamrl.learners.ucrl_vtr import NestedUCRLVTR
from occamrl.problems.mdp import BernoulliRewards
from tests.cases import mixture

EPISODES = 12
CASE = mixture(0, states=3, dimension=3, horizon=3, full_support=True, initial_state=[0.5, 0.0, 0.5])
KERNELS = np.moveaxis(CASE.phi, -1, 0)
NOISY = CASE.mdp.with_reward_noise(BernoulliRewards())
ON_TRANSITIONS = orl.FiniteMDP(transition=CASE.transition, reward=CASE.phi[..., 0], horizon=3)
TABULAR = orl.FeatureMap.tabular(states=3, actions=2)
SPARSE = orl.FeatureMap([sp.csr_array(kernel.reshape(6, 3)) for kernel in KERNELS])
LINEAR_REWARDS = orl.RewardsLinear(features=CASE.reward[..., None], norm_bound=1.0, per_step=True)
WHOLE = "--whole" in sys.argv
REWARDS: list[Any] = ["known", LINEAR_REWARDS, *([orl.RewardsPerPair()] if WHOLE else [])]
STEPS: dict[str, list[Any]] = {"rewards": REWARDS, "kernel": ["stationary", "per_step"]}


def cover(most: float) -> orl.CoverFamily:
    """Return the mixtures of two kernels, up to a weight, on a grid."""
    return orl.CoverFamily(lambda p: (1 - p[0]) * KERNELS[0] + p[0] * KERNELS[1], low=[0.0], high=[most], step=0.25)


def every(kind: Any, **choices: list[Any]) -> Iterator[Any]:
    """Yield ``kind`` with every combination of choices that it does not refuse."""
    for values in itertools.product(*choices.values()):
        try:
            yield kind(**dict(zip(choices, values, strict=True)))
        except ParameterError:
            continue


def agents() -> Iterator[Any]:
    """Yield every agent of the matrix."""
    common: dict[str, list[Any]] = {"weights": ["range", "none"], "replan": [0.0, 0.2], **STEPS}
    for features in (CASE.features, SPARSE, TABULAR) if WHOLE else (CASE.features,):
        one: dict[str, list[Any]] = {"features": [features], "norm_bound": [2.0]}
        yield from every(orl.UCRLVTRLin, **one, radius=list(ELLIPSOIDS), **common)
        yield from every(orl.UCRLVTRLin, **one, record=[TABULAR] if WHOLE else [None], **STEPS)
        yield from every(orl.Greedy, features=[features], **common)
        if features is not TABULAR:
            yield from every(orl.UCRLVTRLin, **one, active=[(0, 2), (1,)], **STEPS)
            for kind in (orl.ARLLin, orl.ARLLinDim, orl.ARLLinNorm):
                yield from every(kind, **one, **STEPS)
    families = [orl.FiniteFamily(KERNELS), cover(1.0)]
    yield from every(orl.UCRLVTR, family=families, radius=list(FINITE_SETS), replan=[0.0, 0.2], **STEPS)
    yield from every(orl.UCRLVTR, family=families, record=[TABULAR] if WHOLE else [None], **STEPS)
    finite: Any = orl.Ladder([orl.FiniteFamily(KERNELS[:1]), orl.FiniteFamily(KERNELS)])
    yield from every(NestedUCRLVTR, ladder=[finite], test_growth=[0.0, 0.1], guard=[False, True])
    acting: dict[str, list[Any]] = {"acting": ["optimism", "sampling"], "scope": ["smallest", "all"], "replan": [0.0]}
    solved = STEPS if WHOLE else {}  # with each plan, by code of its own
    yield from every(orl.Occam, ladder=[finite, orl.Ladder([cover(0.5), cover(1.0)])], **acting, **solved)
    linear = [orl.LinearFamily(features=CASE.features, norm_bound=2.0, coordinates=range(n)) for n in (1, 3)]
    coarse, tabular = (
        orl.AggregationFamily(partition=[0, 0, 1], actions=2),
        orl.AggregationFamily.tabular(states=3, actions=2),
    )
    ladders = [
        finite,
        orl.Ladder([cover(0.5), cover(1.0)]),
        orl.Ladder(linear),
        orl.Ladder([coarse, tabular]),
        orl.Ladder([orl.FiniteFamily(KERNELS[1:]), *linear[1:]]),
        orl.Ladder([cover(1.0), tabular]),
    ]
    ladders = ladders if WHOLE else ladders[:2]  # others compile recorders
    switches: dict[str, list[Any]] = {"safe": [False, True], "guard": [False, True]}
    for scale in (1.0, 0.01):  # classes are left
        yield from every(orl.ARLGen, ladder=ladders, scale=[scale], **switches, **STEPS)


def read_outside() -> Iterator[Callable[[], object]]:
    """Yield calls that read outside an array in every way in which compiled code looks at one."""
    arena = lay_out(Arena, [np.zeros(1, dtype=np.int64), np.zeros(2)])
    after = lay_out(Arena, [np.zeros(1, dtype=np.int64), np.zeros((2, 2))])._replace(floats=np.zeros(3))

    @hot
    def read(numbers: Any, i: int) -> float:
        return float(numbers[i])

    @hot_inline
    def read_inline(numbers: Any, i: int) -> float:
        return float(numbers[i])

    @hot
    def read_deeper(numbers: Any, i: int) -> float:
        return read(numbers, i) + 1.0

    for reader in (read, read_inline, read_deeper):
        for link in (entry, compiled):
            yield partial(link(lambda numbers, i, reader=reader: reader(numbers, i)), np.zeros(3), 3)
    yield partial(entry(lambda a, i: read(fvec(a, 1), i)), arena, 2)
    yield partial(entry(lambda a, i: fmat(a, i)[0, 0]), after, 1)
    yield partial(entry(lambda a, i: ivec(a, i)[0]), arena, 1)  # a field of numbers
    yield partial(entry(lambda a, i: part(a, i, 2)[0]), np.zeros(3), 2)
    yield partial(entry(lambda a, i: part(a, i, 2)[1]), np.zeros(3), -1)
    yield partial(entry(lambda a, i: square(a, 0, i)[0, 0]), np.zeros(3), 2)


def play_everything() -> int:
    """Play the matrix and the contract checks; return how many configurations there were."""
    count = 0
    for agent in agents():
        # linear plans are made in batches where rewards are on pairs, and one by one otherwise, by code of their own
        mdp = (NOISY, ON_TRANSITIONS)[count % 2 if WHOLE else not hasattr(agent, "features")]
        if hasattr(agent, "start"):
            orl.run(agent, mdp, episodes=EPISODES, progress=False)
        else:
            Player(agent, mdp, seed=count).play(EPISODES)
        count += 1
    if not WHOLE:
        return count
    for kind in registry.learners().values():
        for learner in kind.examples(NOISY):
            check_learner(learner, NOISY, episodes=EPISODES)
            count += 1
    for kind in registry.selectors().values():
        for selector in kind.examples(NOISY):
            check_selector(selector, NOISY, episodes=EPISODES)
            count += 1
    return count


def test_no_index_is_out_of_bounds() -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    answer = subprocess.run(
        [sys.executable, "-m", "tests.test_bounds"], capture_output=True, text=True, env=environment
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    print(answer.stdout)
    assert int(answer.stdout.split()[0]) > 100


if __name__ == "__main__":
    for look in read_outside():
        with pytest.raises(IndexError):
            look()
    print(play_everything(), "configurations")

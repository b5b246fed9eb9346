"""Arrays of a model in two pieces of memory, large ones outside; pieces of a plan in several threads."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from occamrl._core import arena
from occamrl._core import compile as compiling
from occamrl._core.arena import Arena, field, fmat, ivec, lay_out
from occamrl._core.compile import OneThread, Threads, entry
from occamrl.learners.baselines import UniformRandom
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.run import run


@entry
def read(model: Any) -> float:
    """Return a number that depends on every place of both fields."""
    matrix, whole, total = fmat(model, 1), ivec(model, 0), 0.0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * whole[i * matrix.shape[1] + j]
    return total


@pytest.mark.parametrize("large", [1, 10**9])
def test_a_large_array_stays_where_it_is_as_long_as_the_model_lives(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "_LARGE", large)
    whole, matrix = np.arange(12), np.random.default_rng(0).random((3, 4))
    made = lay_out(Arena, [whole, matrix])
    np.testing.assert_array_equal(field(made, 0), whole)
    np.testing.assert_array_equal(field(made, 1), matrix)
    assert np.shares_memory(field(made, 1), matrix) == (large == 1)
    expected, alive = float(whole @ matrix.ravel()), weakref.ref(matrix)
    del whole, matrix
    gc.collect()
    assert (alive() is not None) == (large == 1)
    assert read(made) == pytest.approx(expected, rel=1e-12)
    del made
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])  # noqa: S301
@pytest.mark.parametrize("large", [1, 10**9])
def test_a_copy_of_a_model_has_its_large_arrays(
    large: int, copied: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances to arrays outside of an arena are those of one model alone."""
    monkeypatch.setattr(arena, "_LARGE", large)
    others = set(arena._OUTSIDE)
    whole, matrix = np.arange(12), np.random.default_rng(0).random((3, 4))
    expected, made = float(whole @ matrix.ravel()), lay_out(Arena, [whole, matrix])
    other = copied(copied(made))
    del made, whole, matrix
    gc.collect()
    room = [np.full((3, 4), np.nan) for _ in range(100)]  # where the arrays of the first were
    assert read(other) == pytest.approx(expected, rel=1e-12)
    kept = field(other, 1)
    del other, room
    gc.collect()
    assert np.isfinite(kept).all()  # a view outlives its model
    assert set(arena._OUTSIDE) <= others


def sparse_kernels(rng: np.random.Generator) -> list[Any]:
    """Return kernels of 300 states and two actions, with three next states of each (s, a)."""
    kernels = []
    for _ in range(6):
        after = np.sort(np.argpartition(rng.random((600, 300)), 3)[:, :3], axis=1)
        probability = rng.dirichlet(np.ones(3), size=600)
        kernels.append(sp.csr_array((probability.ravel(), after.ravel(), np.arange(0, 1801, 3)), shape=(600, 300)))
    return kernels


def test_threads_plan_solve_and_evaluate_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    kernels, rewards = sparse_kernels(rng), rng.random((300, 2))
    features, found = FeatureMap(kernels), []
    for many, threads in ((10**9, 1), (1, 1), (1, numba.config.NUMBA_NUM_THREADS)):  # type: ignore[attr-defined]
        monkeypatch.setattr(compiling, "_MANY_OUTCOMES", many)
        numba.set_num_threads(threads)
        mdp = FiniteMDP(transition=kernels[0], reward=rewards, horizon=4)
        assert isinstance(mdp.truth.threads, Threads) == (many == 1)
        learner = UCRLVTRLin(features=features, norm_bound=1.0, replan=0.0)
        result = run(learner, mdp, episodes=20, progress=False)
        found.append([each.tobytes() for each in (result.regret, result.state.values, mdp.optimal_values)])
    assert found[0] == found[1] == found[2]


def test_a_fork_uses_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries of threads end a process that is a fork of one in which they ran."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("nothing can be forked here")
    monkeypatch.setattr(compiling, "_MANY_OUTCOMES", 1)
    mdp = FiniteMDP(transition=sparse_kernels(np.random.default_rng(0))[0], reward=np.ones((300, 2)), horizon=4)
    assert isinstance(mdp.truth.threads, Threads)

    def play(queue: Any) -> None:
        queue.put((mdp.truth.threads, run(UniformRandom(), mdp, episodes=1, progress=False).total_regret))

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=play, args=(queue,))
    child.start()
    threads, regret = queue.get(timeout=120)
    child.join()
    assert child.exitcode == 0
    assert isinstance(threads, OneThread)
    assert regret == pytest.approx(0.0, abs=1e-12)

"""What a finite family's rows say, asked between phases: losses from compressed rows, and tests that are due now."""

from __future__ import annotations

import numpy as np

from occamrl._core.compile import compiled
from occamrl._core.rows import RowTable
from occamrl.learners.finite_rows import (
    ALIVE,
    BEST,
    CLASS,
    CLASS_SINCE,
    EPISODES,
    NEXT_TEST,
    ROWS,
    FiniteModel,
    FiniteState,
    absorb,
    expected_targets,
    greedy_action,
)
from occamrl.learners.finite_sets import test_all_classes, threshold
from occamrl.protocols import Floats


@compiled
def test_now(model: FiniteModel, state: FiniteState) -> float:
    """Enter the rows that wait, test the classes for the next episode, and return the threshold (M22)."""
    before, episodes = state.counters[CLASS], state.counters[EPISODES]
    absorb(model, state)
    test_all_classes(model, state)
    if state.counters[CLASS] != before:
        state.counters[CLASS_SINCE] = episodes + 1
    state.counters[NEXT_TEST] = max(episodes + 1, int(np.ceil(episodes * (1.0 + model.test))))
    return threshold(model, state, state.counters[ALIVE])


@compiled
def enter_rows(model: FiniteModel, state: FiniteState) -> None:
    """Enter the rows that wait for the next plan."""
    absorb(model, state)


@compiled
def losses_of(model: FiniteModel, table: RowTable, n: int, reference: int) -> tuple[Floats, Floats]:
    """Return L(P) less sum y^2, and L(P, reference), of the first ``n`` members over the rows of a table (M1, M2)."""
    horizon, states = model.values.shape[1] - 1, model.values.shape[2]
    kernels = np.arange(n)
    one = np.array([reference])
    z, own = np.empty(n), np.empty(1)
    loss, distance = np.zeros(n), np.zeros(n)
    for position in range(table.used[0]):
        rest, s = divmod(table.key[position], states)
        member, h = divmod(rest, horizon)
        a = greedy_action(model, member, h, s)
        expected_targets(model, member, h, s, a, one, 1, own)
        expected_targets(model, member, h, s, a, kernels, n, z)
        count, y = table.visits[position], table.target_sum[position]
        for i in range(n):
            loss[i] += z[i] * (count * z[i] - 2.0 * y)
            distance[i] += count * (z[i] - own[0]) ** 2
    return loss, distance


def smallest_losses(state: FiniteState, level: np.ndarray, classes: int) -> tuple[Floats, int]:
    """Return, per class, the smallest loss (less sum y^2) among the kernels that are left, and the best of all."""
    n = int(state.counters[ALIVE])
    members, losses = state.alive[:n], state.loss[:n]
    least = np.full(classes, np.inf)
    np.minimum.at(least, level[members], losses)
    return np.minimum.accumulate(least), int(members[np.argmin(losses)])


def start_from_rows(model: FiniteModel, state: FiniteState, table: RowTable, squares: float, episodes: int) -> None:
    """Let a fresh state go on from rows that were gathered before."""
    n = int(state.counters[ALIVE])
    state.loss[:n] = losses_of(model, table, n, 0)[0]
    state.squares[0] = squares
    state.counters[EPISODES] = episodes
    state.counters[ROWS] = table.visits.sum()
    state.counters[BEST] = -1  # the first plan finds it


def unexplained(table: RowTable, least: float, delta: float) -> float:
    """Return by how much the best kernel's loss exceeds what noise explains; above 0: the truth is none of them.

    The alternative gives every cell (member in play, h, s) a mean of its own: theta in R^cells, one-hot rows. By the
    Gaussian mixture behind M11 (lambda = 1), with probability 1 - delta at all times
    L(P*) <= min_theta {L(theta) + |theta|^2} + (1/4) sum_c log(1 + N_c) + (1/2) log(1/delta). For losses less sum y^2
    the minimum is - sum_c Y_c^2/(N_c + 1), Y_c the sum of a cell's targets. Targets must have range 1 (M23).
    """
    used = table.visits > 0
    count, total = table.visits[used].astype(np.float64), table.target_sum[used]
    bound = -(total**2 / (count + 1.0)).sum() + 0.25 * np.log1p(count).sum() + 0.5 * np.log(1.0 / delta)
    return float(least - bound)

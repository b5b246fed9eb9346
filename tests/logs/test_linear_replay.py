"""The test of linear ladders on logs against plain least squares, row by row, from the definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

import occamrl as orl
from occamrl.envs.ladder_file import LadderSpec
from occamrl.logs import select
from occamrl.logs.log import simulate_log
from occamrl.models.linear import AggregationFamily
from occamrl.problems.classic import RiverZones
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats

DELTA = 0.05
RIVER = RiverZones(states=6, horizon=8, zones=3, left_reward=0.03, seed=4)
ZONES = {m: AggregationFamily(partition=RIVER.partition(m), moves=RIVER.moves) for m in (1, 3)}
LAWS = ((0.1, 0.4, 0.5), (0.0, 0.2, 0.8), (0.2, 0.4, 0.4))  # down, stay, up; the same along the river
LADDER = orl.Ladder([orl.FiniteFamily([ZONES[1].kernel(np.array([1.0, *law])) for law in LAWS]), *ZONES.values()])


def rapids() -> FiniteMDP:
    """No zones: a strong current in every other state."""
    each = AggregationFamily(partition=RIVER.partition(6), moves=RIVER.moves)
    laws = [1.0, 0.1, 0.0, 0.9, 1.0, 0.4, 0.4, 0.2] * 3  # left; right: down, stay, up
    return FiniteMDP(transition=each.kernel(np.array(laws)), reward=RIVER.mdp.known.base_reward, horizon=8)


def right_row(s: int, target: Floats, zones: int) -> tuple[Floats, float, float]:
    """Swimming right in s: the regressor over (zone, move) [3 zones], the middle and the range of the targets."""
    moves = target[RIVER.moves[s, 1]]
    middle, spread = 0.5 * (moves.max() + moves.min()), float(np.ptp(moves))
    x = np.zeros(3 * zones)
    first = 3 * int(RIVER.partition(zones)[s])
    x[first : first + 3] = (moves - middle) / spread if spread else 0.0
    return x, middle, spread


def on_simplices(x: Floats, y: Floats) -> float:
    """The least sum of squares, less sum y^2, over one distribution of moves per zone: by a heavy penalty."""
    zones = x.shape[1] // 3
    heavy = 1e5 * np.kron(np.eye(zones), np.ones(3))
    theta, _ = nnls(np.concatenate([x, heavy]), np.concatenate([y, np.full(zones, 1e5)]), maxiter=10_000)
    return float(((y - x @ theta) ** 2).sum() - (y**2).sum())


def allowed(x: Floats, y: Floats) -> float:
    """M15: ridge loss, less sum y^2, plus (1/4)(logdet(I + X^T X) + 2 log(1/delta))."""
    sigma = np.eye(x.shape[1]) + x.T @ x
    fit = -float((x.T @ y) @ np.linalg.solve(sigma, x.T @ y))
    return fit + 0.25 * (float(np.linalg.slogdet(sigma)[1]) + 2.0 * math.log(1.0 / DELTA))


def replayed(truth: FiniteMDP, episodes: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The log, the replay of it, and the value functions of its stretches."""
    log = simulate_log(truth, episodes=episodes, seed=1)
    monkeypatch.setattr(select, "GROWTH", 0.3)
    replay, seen = select.Replay(LadderSpec(ladder=LADDER, known=truth.known), DELTA, [select.VALUE]), []
    enter, ends = select.enter, [0]

    def spy(features: Any, known: Any, stretch: Any, values: Floats, memory: Any) -> float:
        ends.append(replay.told)
        seen.append((ends[-2], ends[-1], values.copy()))
        return enter(features, known, stretch, values, memory)

    monkeypatch.setattr(select, "enter", spy)
    replay.take(log)
    replay.answer("log")
    return log, replay.tests[0], seen


@pytest.mark.parametrize(("truth", "episodes", "outside"), [(RIVER.mdp, 1_500, False), (rapids(), 1_500, True)])
def test_statistics_bound_and_misfit_are_those_of_the_definitions(
    truth: FiniteMDP, episodes: int, outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, found, seen = replayed(truth, episodes, monkeypatch)
    kernels = np.array([LADDER.rungs[0].kernel(i) for i in range(3)])
    optimal = LADDER.rungs[0].optimal_values(truth.known)
    columns: dict[str, list[Any]] = {"one": [], "three": [], "pair": [], "z": [], "y": []}
    rejected: list[int | None] = [None] * 3
    losses, bound, misfit = np.zeros(3), math.inf, False
    optimism = 0
    member_losses = np.zeros(3)
    for first, last, values in seen:
        in_play = next((m for m in range(3) if losses[m] <= bound), 2)
        if in_play == 0:  # the most optimistic kernel that is left by M22 plans
            limit = -0.5 * math.log(np.exp(-2.0 * member_losses).mean()) + 0.5 * math.log(1.0 / DELTA)
            left = [i for i in range(3) if member_losses[i] <= limit]
            best = max(left, key=lambda i: optimal[i, 0, 0])
            assert values == pytest.approx(optimal[best], abs=1e-12)
            optimism += best != max(range(3), key=lambda i: optimal[i, 0, 0])
        for row in range(log.begin[first], log.begin[last]):
            h, s, a = int(log.step[row]), int(log.state[row]), int(log.action[row])
            x, middle, spread = right_row(s, values[h + 1], 3)
            if a == 0 or spread == 0.0:
                continue
            columns["y"].append((values[h + 1][log.next_state[row]] - middle) / spread)
            columns["three"].append(x)
            columns["one"].append(right_row(s, values[h + 1], 1)[0])
            columns["pair"].append(np.eye(6)[s])
            columns["z"].append((kernels[:, s, a] @ values[h + 1] - middle) / spread)
        y, one, three, pair, z = (np.array(columns[name]) for name in ("y", "one", "three", "pair", "z"))
        if not y.size:
            continue
        member_losses = ((y[:, None] - z) ** 2).sum(axis=0) - (y**2).sum()
        losses = np.array([member_losses.min(), on_simplices(one, y), on_simplices(three, y)])
        bound = allowed(three, y)
        rejected = [last if at is None and loss > bound else at for at, loss in zip(rejected, losses, strict=True)]
        misfit = misfit or losses[2] > allowed(np.concatenate([three, pair], axis=1), y)
    assert found.squares == pytest.approx((y**2).sum(), rel=1e-9)
    assert found.losses == pytest.approx(losses, rel=1e-6, abs=1e-6)
    assert found.bound == pytest.approx(bound, rel=1e-9)
    assert [None if at < 0 else at for at in found.rejected] == rejected
    assert rejected[0] is not None
    assert rejected[1] is not None
    assert bool(found.outside) == misfit == outside
    assert optimism > 0 or outside  # the data, not optimism alone, had a say in the plans

"""The sharp confidence sets of a finite family, rebuilt row by row from their definition (M1, M22, M24).

Kernels that leave the sharp set are dropped and looked at again after 64, 128, 256, ... episodes: a truth that was lost
by chance, or by a hand that forged its loss, comes back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks import oracle
from occamrl.analysis.certificates import losses_inside
from occamrl.learners.ucrl_vtr import FIRST_LOOK, UCRLVTR, USED
from occamrl.protocols import Floats
from occamrl.running.result import Result
from occamrl.running.run import run
from tests.cases import Stack, environment_uniforms, one_by_one, stack
from tests.states import member_in_play

DELTA = 0.3


class Step(NamedTuple):
    """The confidence set before an episode, and the rows before it."""

    alive: list[int]
    member: int
    back: list[int]  # dropped earlier, let back in now
    predictions: Floats  # [rows, n]
    responses: Floats  # [rows]


def right_side(losses: Floats, members: int) -> float:
    """Return the right side of M22 over the kernels that are left, under a uniform prior on all."""
    evidence = sum(math.exp(-2 * (loss - losses.min())) / members for loss in losses)
    return float(losses.min() + (math.log(1 / DELTA) - math.log(evidence)) / 2)


def sharp_by_hand(case: Stack, episodes: int, seed: int) -> Iterator[Step]:
    """Play UCRL-VTR with range weights, dropping and looking again; yield what was known before each episode."""
    members, horizon = len(case.kernels), case.mdp.horizon
    values = np.array([oracle.optimal_values(kernel, case.reward, horizon) for kernel in case.kernels])
    uniforms = environment_uniforms(seed, episodes, horizon)
    cumulative = oracle.cumulative_kernel(case.kernels[0])
    alive = np.ones(members, dtype=bool)
    predictions: list[Floats] = []
    responses: list[float] = []
    for k in range(episodes):
        z, y = np.array(predictions).reshape(-1, members), np.array(responses)
        losses = ((y[:, None] - z) ** 2).sum(axis=0)
        alive &= losses <= right_side(losses[alive], members)
        back: list[int] = []
        if k >= FIRST_LOOK and (k & (k - 1)) == 0:  # 64, 128, 256, ...
            returning = ~alive & (losses <= right_side(losses[alive], members))
            back = list(np.flatnonzero(returning))
            alive |= returning
        member = int(np.where(alive, values[:, 0, 0], -np.inf).argmax())
        yield Step(list(np.flatnonzero(alive)), member, back, z, y)
        s = 0
        for h in range(horizon - 1):
            target = values[member, h + 1]
            action = int((case.reward[s] + case.kernels[member, s] @ target).argmax())
            after = int(np.searchsorted(cumulative[s, action], uniforms[k, 1 + h], side="right"))
            target = (target - (target.max() + target.min()) / 2) / np.ptp(target)
            predictions.append(case.kernels[:, s, action] @ target)
            responses.append(float(target[after]))
            s = after


def check_losses(result: Result, step: Step) -> None:
    """Differences of losses are those over all rows before the episode (M1)."""
    losses = ((step.responses[:, None] - step.predictions) ** 2).sum(axis=0)
    found, first = losses_inside(result.state), step.alive[0]
    for member in step.alive:
        assert found[member] - found[first] == pytest.approx(losses[member] - losses[first], abs=1e-9)


def near_truth(seed: int, members: int = 8) -> Stack:
    """Return a family whose members are hard to tell apart, so that chance drops some that belong back."""
    case = stack(seed, members=members)
    kernels = 0.8 * case.kernels[0] + 0.2 * case.kernels
    return Stack(kernels, case.reward, case.mdp)  # the first member is still the truth


def test_sets_with_dropping_and_looking_again_are_those_of_the_definition() -> None:
    came_back = 0
    for seed in range(6):
        case = near_truth(seed)
        results = one_by_one(UCRLVTR(family=case.family, delta=DELTA), case.mdp, 140, seed)
        for result, step in zip(results, sharp_by_hand(case, 140, seed), strict=True):
            assert sorted(losses_inside(result.state)) == step.alive
            assert member_in_play(result.state) == step.member
            check_losses(result, step)
            came_back += len(step.back)
    assert came_back > 0


def test_a_truth_that_was_lost_comes_back_at_the_next_look_with_the_loss_of_all_rows() -> None:
    case = stack(3)
    learner = UCRLVTR(family=case.family)
    honest = one_by_one(learner, case.mdp, FIRST_LOOK + 3, 0)
    forged = run(learner, case.mdp, episodes=30, progress=False)
    state = forged.state
    position = int(np.flatnonzero(state.members == 0)[0])
    assert 0 in losses_inside(state)
    state.loss[0, position] = np.inf  # a dropped kernel, as if the data had been against it
    played = []
    while forged.total_episodes < FIRST_LOOK + 1:
        forged = run(learner, case.mdp, episodes=1, progress=False, continue_from=forged)
        played.append(0 in losses_inside(forged.state))
    assert played == [False] * (FIRST_LOOK - 30) + [True]
    # The honest run met other rows; the loss of the returned truth is that of the forged run's own rows.
    state, values = forged.state, case.family.optimal_values(case.mdp.known)
    used = int(state.counters[USED])
    rows = zip(state.table_key[:used], state.table_visits[:used], state.table_sum[:used], strict=True)
    losses = np.zeros(len(case.kernels))
    horizon, states = case.mdp.horizon, case.mdp.states
    for key, visits, total in rows:
        rest, s = divmod(int(key), states)
        member, h = divmod(rest, horizon)
        target = values[member, h + 1]
        action = int((case.reward[s] + case.kernels[member, s] @ target).argmax())
        target = (target - (target.max() + target.min()) / 2) / np.ptp(target)
        z = case.kernels[:, s, action] @ target
        losses += visits * z**2 - 2 * z * total
    found = losses_inside(forged.state)
    other = next(member for member in found if member != 0)
    assert found[0] - found[other] == pytest.approx(losses[0] - losses[other], abs=1e-9)
    assert 0 in losses_inside(honest[-1].state)

"""The confidence sets of a finite family, rebuilt row by row from their definitions (M1 to M4, M22, M24).

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
from occamrl.learners import ucrl_vtr
from occamrl.learners.ucrl_vtr import BEST, CURRENT, FIRST_LOOK, NEXT_TEST, UCRLVTR, USED, NestedUCRLVTR
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats
from occamrl.running.players import CompiledPlayer
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


@pytest.mark.parametrize("forms", [True, False], ids=["quadratic forms", "row by row"])
def test_sets_with_dropping_and_looking_again_are_those_of_the_definition(
    forms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ucrl_vtr, "_FORM_COST", 32 if forms else 0)
    came_back = 0
    for seed in range(6):
        case = near_truth(seed)
        learner = UCRLVTR(family=case.family, delta=DELTA)
        assert learner.forms(case.mdp.known) == forms
        results = one_by_one(learner, case.mdp, 140, seed)
        for result, step in zip(results, sharp_by_hand(case, 140, seed), strict=True):
            assert sorted(losses_inside(result.state)) == step.alive
            assert member_in_play(result.state) == step.member
            check_losses(result, step)
            came_back += len(step.back)
    assert came_back > 0


@pytest.mark.parametrize("weights", ["range", "none"])
def test_a_large_ladder_is_played_alike_with_quadratic_forms_and_row_by_row(
    weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """700 mixtures of three kernels in one block, 600 kernels in blocks of their own: chunks, gaps, larger classes."""
    draw = np.random.default_rng(1)
    stack = draw.dirichlet(np.ones(3), size=(600, 3, 2))
    shares = np.vstack([np.eye(3), draw.dirichlet(np.ones(3), size=697)])
    features = FeatureMap(np.moveaxis(stack[:3], 0, -1))
    mixtures = [FiniteFamily(parameters=shares[:n], features=features) for n in (3, 50, 700)]
    mdp = FiniteMDP(transition=np.tensordot(shares[40], stack[:3], 1), reward=draw.random((3, 2)), horizon=6)
    for families in (mixtures, [FiniteFamily(stack[:n]) for n in (20, 600)]):
        learner = NestedUCRLVTR(ladder=Ladder(families), weights=weights, scale=0.2)
        runs = []
        for cost in (32, 0):
            monkeypatch.setattr(ucrl_vtr, "_FORM_COST", cost)
            assert learner.base.forms(mdp.known) == (cost > 0)
            runs.append(run(learner, mdp, episodes=300, seed=2, progress=False))
        one, other = runs
        np.testing.assert_array_equal(one.regret, other.regret)
        found, expected = losses_inside(one.state), losses_inside(other.state)
        assert found.keys() == expected.keys()
        assert len(found) < families[-1].size
        np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=0, atol=1e-9)


@pytest.mark.parametrize("cost", [32, 0], ids=["quadratic forms", "row by row"])
def test_room_for_a_single_row_that_larger_classes_lack_is_enough(cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ucrl_vtr, "_FORM_COST", cost)
    case = near_truth(2)
    ladder = Ladder([FiniteFamily(case.kernels[5:6]), FiniteFamily(case.kernels[[5, *range(5), 6, 7]])])
    learner, known, found = NestedUCRLVTR(ladder=ladder, test_growth=0.5), case.mdp.known, []
    for small in (False, True):
        state = learner.base.begin(known) if small else learner.begin(known)
        state.counters[[CURRENT, NEXT_TEST]] = 1, 1
        player = CompiledPlayer(learner, known, state)
        player.simulate(case.mdp.truth, (np.uint64(1), np.uint64(2)), 0, np.zeros(40), np.zeros(40))
        ucrl_vtr.test_now(player.model, player.state)  # brings all losses up to date
        found.append(losses_inside(player.state))
    one, other = found
    assert one.keys() == other.keys()
    assert len(one) > 1
    np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=0, atol=1e-9)


def test_the_sum_of_exponentials_is_that_of_the_library() -> None:
    """In lanes of four with a rest, to 10^-14; what is 40 below the largest is left out."""
    exponents = np.concatenate([np.linspace(0.0, 39.9, 1001), [np.inf, 60.0]])
    for n in (1, 2, 5, 1000, exponents.size):
        total = ucrl_vtr.sum_of_exponentials(3.0 + exponents[:n], n, 3.0)
        assert total == pytest.approx(np.exp(-exponents[: min(n, 1001)]).sum(), rel=1e-14)
        assert ucrl_vtr.least_of(exponents[:n][::-1].copy(), n) == 0.0


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


@pytest.mark.parametrize("weights", ["range", "none"])
def test_distances_of_the_ball_are_those_over_all_rows(weights: str) -> None:
    """M2 and M3: the estimate minimises the loss and distances to it are sums over rows, however often it changes."""
    case = near_truth(1)
    members, horizon = len(case.kernels), case.mdp.horizon
    learner = UCRLVTR(family=case.family, radius="paper", weights=weights)
    results = one_by_one(learner, case.mdp, 80, 4)
    values = case.family.optimal_values(case.mdp.known)
    uniforms = environment_uniforms(4, 80, horizon)
    cumulative = oracle.cumulative_kernel(case.kernels[0])
    predictions: list[Floats] = []
    responses: list[float] = []
    estimates = set()
    for k, result in enumerate(results):
        z, y = np.array(predictions).reshape(-1, members), np.array(responses)
        losses = ((y[:, None] - z) ** 2).sum(axis=0)
        best = int(losses.argmin())
        assert result.state.counters[BEST] == best  # nobody is dropped, so positions are members
        np.testing.assert_allclose(result.state.distance, ((z - z[:, [best]]) ** 2).sum(axis=0), rtol=0, atol=1e-9)
        estimates.add(best)
        member, s = member_in_play(result.state), 0
        for h in range(horizon - 1):
            target = values[member, h + 1]
            action = int(result.state.policy[h, s])
            after = int(np.searchsorted(cumulative[s, action], uniforms[k, 1 + h], side="right"))
            if weights == "range":
                target = (target - (target.max() + target.min()) / 2) / np.ptp(target)
            predictions.append(case.kernels[:, s, action] @ target)
            responses.append(float(target[after]))
            s = after
    assert len(estimates) > 2

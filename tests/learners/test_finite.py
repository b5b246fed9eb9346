"""UCRL-VTR over finite families: against the NumPy oracle, and its sharp sets row by row from their definition."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import oracle
from occamrl.analysis.certificates import losses_inside
from occamrl.learners import ucrl_vtr
from occamrl.learners.ucrl_vtr import FIRST_LOOK, UCRLVTR, NestedUCRLVTR
from occamrl.models.features import FeatureMap
from occamrl.models.finite import CoverFamily, FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats
from occamrl.running.result import Result
from occamrl.running.run import run
from tests.cases import Stack, environment_uniforms, from_python, member_in_play, one_by_one, stack

EPISODES, SEED = 60, 2


def confidence_set(result: Result, members: int) -> list[bool]:
    """Return who is in the confidence set of the plan in play."""
    inside = losses_inside(result.state)
    return [member in inside for member in range(members)]


def compare(case: Stack, *, plain: dict[str, Any], prior: Floats | None = None, **options: Any) -> list[Result]:
    """Play episode by episode; compare who plays, the set, regret, planned values, updates, and the losses."""
    members, horizon = len(case.kernels), case.mdp.horizon
    learner = UCRLVTR(family=case.family, delta=0.1, prior=prior, **options)
    expected = oracle.ucrl_vtr(
        case.kernels,
        case.reward,
        case.kernels[0],
        horizon,
        0,
        episodes=EPISODES,
        uniforms=environment_uniforms(SEED, EPISODES, horizon)[:, 1:],
        delta=0.1,
        **plain,
    )
    results = one_by_one(learner, case.mdp, EPISODES, SEED)
    assert [member_in_play(result.state) for result in results] == list(expected["played"])
    assert [confidence_set(result, members) for result in results] == expected["confident"].tolist()
    assert [result.plans for result in results] == list(np.cumsum(expected["planned"]))
    last = results[-1]
    np.testing.assert_allclose(last.regret, expected["regret"], rtol=0, atol=1e-9)
    planned = [result.state.values[0, 0] for result in results]
    np.testing.assert_allclose(planned, expected["planned_value"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(last.state.policy, expected["policy"])
    return results


# Sixty episodes throw somebody out of a ball only if it is small. Sharp sets are compared where they only shrink: whom
# the package has dropped it looks at again at doubling times, from episode 64 on; the reference always does.
SCALE = {"sharp": 1.0, "unweighted": 0.05, "paper": 0.005}
CASES = {"sharp": (2, 4, 7), "unweighted": (0, 1, 2), "paper": (0, 1, 2)}


@pytest.mark.parametrize("replan", [0.0, 0.2])
@pytest.mark.parametrize("radius", CASES)
def test_every_form_agrees_with_the_oracle(radius: str, replan: float) -> None:
    options: dict[str, Any] = {"radius": radius, "replan": replan, "scale": SCALE[radius]}
    thrown_out = 0
    for seed in CASES[radius]:
        plain = {**options, "weights": "range" if radius == "sharp" else "none"}
        results = compare(stack(seed), plain=plain, **options)
        thrown_out += confidence_set(results[-1], 6).count(False)
    assert thrown_out > 0


def test_a_prior_weighs_the_members() -> None:
    case = stack(10)
    prior = np.array([1e-6, 0.2, 0.3, 0.1, 0.1, 0.2])
    doubtful = compare(case, plain={"log_prior": np.log(prior)}, prior=prior)
    with pytest.raises(AssertionError):
        compare(case, plain={"log_prior": np.log(np.full(6, 1 / 6))}, prior=prior)
    # Little faith in the truth costs a wider set: the others stay for longer.
    sizes = [sum(sum(confidence_set(r, 6)) for r in results) for results in (doubtful, compare(case, plain={}))]
    assert sizes[0] > sizes[1]


def test_the_comparison_can_fail() -> None:
    case = stack(CASES["sharp"][0])
    base: dict[str, Any] = {"radius": "sharp", "replan": 0.0}
    compare(case, plain={**base, "weights": "range"}, **base)
    for change in ({"radius": "paper"}, {"weights": "none"}, {"replan": 0.2}, {"scale": 0.2}):
        with pytest.raises(AssertionError):
            compare(case, plain=base | change, **base)


Choice = Callable[[int, Floats, Floats, Floats], int]


def by_hand(case: Stack, episodes: int, seed: int, choose: Choice, *, weighted: bool) -> list[int]:
    """Play by loops and return who plays: ``choose`` is asked with k, all predictions, responses and V_1(s_1)."""
    members, horizon = len(case.kernels), case.mdp.horizon
    values = np.array([oracle.optimal_values(kernel, case.reward, horizon) for kernel in case.kernels])
    uniforms = environment_uniforms(seed, episodes, horizon)
    cumulative, start = (oracle.cumulative_kernel(law) for law in (case.kernels[0], case.mdp.initial_distribution))
    predictions: list[Floats] = []
    responses: list[float] = []
    played = []
    for k in range(episodes):
        s = int(np.searchsorted(start, uniforms[k, 0], side="right"))
        member = choose(k, np.array(predictions).reshape(-1, members), np.array(responses), values[:, 0, s])
        played.append(member)
        for h in range(horizon - 1):
            target = values[member, h + 1]
            action = int((case.reward[s] + case.kernels[member, s] @ target).argmax())
            after = int(np.searchsorted(cumulative[s, action], uniforms[k, 1 + h], side="right"))
            if weighted:
                target = (target - (target.max() + target.min()) / 2) / np.ptp(target)
            predictions.append(case.kernels[:, s, action] @ target)
            responses.append(float(target[after]))
            s = after
    return played


class LazyBall:
    """Between two updates the ball stays as it is, though episodes start in different states."""

    def __init__(self, beta: float, replan: float) -> None:
        self.beta, self.replan, self.updated = beta, replan, 0

    def __call__(self, k: int, z: Floats, y: Floats, values: Floats) -> int:
        if k == 0 or k >= (1 + self.replan) * self.updated:
            best = ((y[:, None] - z) ** 2).sum(axis=0).argmin()
            self.inside, self.updated = ((z - z[:, [best]]) ** 2).sum(axis=0) <= self.beta, k
        return int(np.where(self.inside, values, -np.inf).argmax())


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_lazy_ball_stays_as_it_is_between_updates_whatever_state_an_episode_starts_in(seed: int) -> None:
    case = stack(seed, states=4, initial_state=np.full(4, 0.25))
    learner = UCRLVTR(family=case.family, radius="unweighted", replan=1.0, scale=0.2)
    results = one_by_one(learner, case.mdp, EPISODES, SEED)
    ball = LazyBall(learner.model(case.mdp.known).slack, replan=1.0)
    expected = by_hand(case, EPISODES, SEED, ball, weighted=False)
    assert [member_in_play(result.state) for result in results] == expected
    assert len(set(expected)) > 1


def test_a_family_of_parameters_equals_the_stack_of_its_kernels() -> None:
    case = stack(6, members=3)
    weights = np.random.default_rng(0).dirichlet(np.ones(3), size=7)
    weights[0] = (1.0, 0.0, 0.0)  # the truth
    features = FeatureMap([sp.csr_array(kernel.reshape(6, 3)) for kernel in case.kernels])
    by_parameters = FiniteFamily(parameters=weights, features=features)
    by_kernels = FiniteFamily(np.einsum("ij,jsat->isat", weights, case.kernels))
    one, other = (
        one_by_one(UCRLVTR(family=family), case.mdp, EPISODES, SEED) for family in (by_parameters, by_kernels)
    )
    for left, right in zip(one, other, strict=True):
        assert confidence_set(left, 7) == confidence_set(right, 7)
        assert member_in_play(left.state) == member_in_play(right.state)
    np.testing.assert_allclose(one[-1].regret, other[-1].regret, rtol=0, atol=1e-12)
    assert losses_inside(one[-1].state) == pytest.approx(losses_inside(other[-1].state), abs=1e-9)
    np.testing.assert_allclose(
        by_parameters.optimal_values(case.mdp.known), by_kernels.optimal_values(case.mdp.known), rtol=0, atol=1e-12
    )


DELTA = 0.3


class Step(NamedTuple):
    """The confidence set before an episode, and the rows before it."""

    alive: list[int]
    member: int
    back: list[int]  # dropped earlier, let back in now
    losses: Floats  # [n]


def right_side(losses: Floats, members: int) -> float:
    """Return the right side of M22 over the kernels that are left, under a uniform prior on all."""
    evidence = sum(math.exp(-2 * (loss - losses.min())) / members for loss in losses)
    return float(losses.min() + (math.log(1 / DELTA) - math.log(evidence)) / 2)


class Sharp:
    """Range weights, dropping and looking again; keeps what was known before each episode."""

    def __init__(self, members: int) -> None:
        self.alive, self.steps = np.ones(members, dtype=bool), list[Step]()

    def __call__(self, k: int, z: Floats, y: Floats, values: Floats) -> int:
        losses, members = ((y[:, None] - z) ** 2).sum(axis=0), len(values)
        self.alive &= losses <= right_side(losses[self.alive], members)
        back: list[int] = []
        if k >= FIRST_LOOK and (k & (k - 1)) == 0:  # 64, 128, 256, ...
            returning = ~self.alive & (losses <= right_side(losses[self.alive], members))
            back = list(np.flatnonzero(returning))
            self.alive |= returning
        member = int(np.where(self.alive, values, -np.inf).argmax())
        self.steps.append(Step(list(np.flatnonzero(self.alive)), member, back, losses))
        return member


def check_losses(result: Result, step: Step) -> None:
    """Differences of losses are those over all rows before the episode (M1)."""
    found, first = losses_inside(result.state), step.alive[0]
    for member in step.alive:
        assert found[member] - found[first] == pytest.approx(step.losses[member] - step.losses[first], abs=1e-9)


def near_truth(seed: int, states: int) -> Stack:
    """Return a family whose members are hard to tell apart, so that chance drops some that belong back."""
    case = stack(seed, members=8, states=states)
    kernels = 0.8 * case.kernels[0] + 0.2 * case.kernels
    return Stack(kernels, case.reward, case.mdp)  # the first member is still the truth


@pytest.mark.parametrize(("forms", "states"), [(True, 3), (False, 3), (False, 9)], ids=["forms", "rows", "by member"])
def test_sets_with_dropping_and_looking_again_are_those_of_the_definition(
    forms: bool, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are computed as forms of the parameters, row by row, and with fewer members than parameters."""
    monkeypatch.setattr(ucrl_vtr, "_FORM_MEMBERS", 1)
    monkeypatch.setattr(ucrl_vtr, "_FORM_COST", 32 if forms else 0)
    came_back = 0
    for seed in range(6):
        case = near_truth(seed, states)
        learner = UCRLVTR(family=case.family, delta=DELTA)
        assert learner.forms(case.mdp.known) == forms
        results = one_by_one(learner, case.mdp, 140, seed)
        sharp = Sharp(len(case.kernels))
        by_hand(case, 140, seed, sharp, weighted=True)
        for result, step in zip(results, sharp.steps, strict=True):
            assert sorted(losses_inside(result.state)) == step.alive
            assert member_in_play(result.state) == step.member
            check_losses(result, step)
            came_back += len(step.back)
    assert came_back > 0


def test_a_large_ladder_is_played_alike_with_quadratic_forms_and_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, gaps, larger classes; one block of parameters and several, some of which chunks have in common.

    700 mixtures of three kernels, 600 kernels, and 41 x 41 kernels that two parameters move: one form of three rows.
    """
    draw = np.random.default_rng(1)
    stack = draw.dirichlet(np.ones(3), size=(600, 3, 2))
    shares = np.vstack([np.eye(3), draw.dirichlet(np.ones(3), size=697)])
    features = FeatureMap(np.moveaxis(stack[:3], 0, -1))
    mixtures = [FiniteFamily(parameters=shares[:n], features=features) for n in (3, 50, 700)]
    mdp = FiniteMDP(transition=np.tensordot(shares[40], stack[:3], 1), reward=draw.random((3, 2)), horizon=6)

    def moved(p: Floats) -> Floats:
        return np.asarray(stack[0] + p[0] * (stack[1] - stack[0]) + p[1] * (stack[2] - stack[0]))

    grids: list[FiniteFamily] = [
        CoverFamily(moved, low=[0.0, 0.0], high=[high, 0.4], step=0.01, reach=0.0) for high in (0.04, 0.4)
    ]
    few = Ladder(grids).family.few_coordinates
    assert few is not None
    assert few[0].size == 3
    np.testing.assert_allclose(few[1] @ grids[1].theta[few[0]], grids[1].theta, rtol=0, atol=1e-13)
    for families in (mixtures, [FiniteFamily(stack[:n]) for n in (20, 600)], grids):
        learner = NestedUCRLVTR(ladder=Ladder(families), scale=0.2)
        runs = []
        for cost in (32, 0):
            monkeypatch.setattr(ucrl_vtr, "_FORM_MEMBERS", 1)
            monkeypatch.setattr(ucrl_vtr, "_FORM_COST", cost)
            assert learner.forms(mdp.known) == (cost > 0)
            runs.append(run(learner, mdp, episodes=300, seed=2, progress=False))
        one, other = runs
        np.testing.assert_array_equal(one.regret, other.regret)
        found, expected = losses_inside(one.state), losses_inside(other.state)
        assert found.keys() == expected.keys()
        assert len(found) < families[-1].size
        np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=0, atol=1e-9)


def all_losses(family: FiniteFamily, mdp: FiniteMDP, reference: int) -> tuple[Floats, Floats, bool]:
    """Return L(P) and L(P, reference) of all members after some episodes, and whether rows have other coordinates."""
    learner = UCRLVTR(family=family)
    model, state = learner.model(mdp.known), run(learner, mdp, episodes=60, seed=3, progress=False).state
    ucrl_vtr.enter_rows(model, state)
    loss, distance = np.zeros(family.size), np.zeros(family.size)
    ucrl_vtr.losses_of(model, state, np.arange(family.size), reference, loss, distance)
    return loss, distance, model.turned


def test_losses_and_distances_in_few_coordinates_are_those_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters as well whose features are so large that they are tiny themselves, and move kernels all the same."""
    monkeypatch.setattr(ucrl_vtr, "_FORM_MEMBERS", 1)
    draw = np.random.default_rng(5)
    kernels, shares = draw.dirichlet(np.ones(4), size=(5, 4, 2)), draw.dirichlet(np.ones(5), size=400)
    mdp = FiniteMDP(transition=kernels[0], reward=draw.random((4, 2)), horizon=6)
    families = [FiniteFamily(np.tensordot(shares, kernels, 1)) for _ in range(2)]
    families[0].few_coordinates = None
    for scales in ((1.0, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1e14, 1e14), (1e30, 1.0, 1.0, 1.0, 1e-30)):
        mixed = [scale * kernel for scale, kernel in zip(scales, kernels, strict=True)]
        features = FeatureMap(np.stack([*mixed, 0.0 * kernels[0]], axis=-1))  # the last one is none
        theta = np.column_stack([shares / scales, np.ones(400)])
        families.append(FiniteFamily(parameters=theta, features=features))
    expected, turned = dict[str, Any](), set[bool]()
    for family in families:
        loss, distance, in_few = all_losses(family, mdp, reference=70)
        turned.add(in_few)
        np.testing.assert_allclose(loss, expected.setdefault("loss", loss), rtol=0, atol=1e-9)
        np.testing.assert_allclose(distance, expected.setdefault("distance", distance), rtol=0, atol=1e-9)
    assert turned == {False, True}


def test_the_sum_of_exponentials_is_that_of_the_library() -> None:
    """In lanes of four with a rest, to 10^-14; what is 40 below the largest is left out."""
    exponents = np.concatenate([np.linspace(0.0, 39.9, 1001), [np.inf, 60.0]])
    for n in (1, 2, 5, 1000, exponents.size):
        total = from_python(ucrl_vtr.sum_of_exponentials)(3.0 + exponents[:n], n, 3.0)
        assert total == pytest.approx(np.exp(-exponents[: min(n, 1001)]).sum(), rel=1e-14)
        assert ucrl_vtr.least_of(exponents[:n][::-1].copy(), n) == 0.0


def test_a_truth_that_was_lost_comes_back_at_the_next_look() -> None:
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
    assert 0 in losses_inside(honest[-1].state)

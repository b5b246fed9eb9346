"""Selectors with unknown rewards and one kernel per step: what they find, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import ParameterError
from tests.cases import mixture

CASE = mixture(4)
WEIGHTS = np.array([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.2, 0.8, 0.0], [0.8, 0.2, 0.0]])


def changing(weights: Any) -> orl.FiniteMDP:
    """Return a problem with another mixture of the kernels at every step."""
    transition = np.stack([CASE.phi @ w for w in np.asarray(weights)])
    return orl.FiniteMDP(transition=transition, reward=CASE.reward, horizon=4, reward_noise=orl.BernoulliRewards())


def ladder() -> Any:
    rungs = [orl.LinearFamily(features=CASE.features, norm_bound=1.2, coordinates=range(n)) for n in (1, 2, 3)]
    return orl.Ladder(rungs)


@pytest.mark.parametrize("rewards", ["known", orl.RewardsPerPair()])
def test_a_linear_ladder_finds_the_class_that_holds_the_kernels_of_all_steps(rewards: Any) -> None:
    agent = orl.ARLGen(ladder=ladder(), kernel="per_step", rewards=rewards)
    for weights, expected in ((WEIGHTS, 2), ([[1.0, 0.0, 0.0]] * 4, 1)):
        phases = orl.run(agent, changing(weights), episodes=20_000, progress=False).phases.to_pylist()
        assert phases[0]["chosen"] == 1
        assert phases[-1]["chosen"] == expected
        assert not any(row["outside"] for row in phases)


def test_on_a_linear_ladder_with_two_steps_one_kernel_per_step_is_one_kernel_bit_for_bit() -> None:
    """Only the first step of two gives rows."""
    case = mixture(7, horizon=2)
    rungs = [orl.LinearFamily(features=case.features, norm_bound=1.5, coordinates=range(n)) for n in (1, 3)]
    plain, each, other = (
        orl.run(orl.ARLGen(ladder=orl.Ladder(rungs), **options), case.mdp, episodes=500, progress=False)
        for options in ({}, {"kernel": "per_step"}, {"kernel": "per_step", "delta": 0.01})
    )
    assert plain.regret.tobytes() == each.regret.tobytes()
    assert plain.phases["chosen"].to_pylist() == each.phases["chosen"].to_pylist()
    assert plain.phases["beta"].to_pylist() == each.phases["beta"].to_pylist()
    assert plain.phases["beta"].to_pylist() != other.phases["beta"].to_pylist()


def test_a_linear_ladder_with_a_finite_class_refuses_both_options() -> None:
    kernels = [CASE.phi @ w for w in np.eye(3)[:2]]
    mixed = orl.Ladder([orl.FiniteFamily(kernels), orl.LinearFamily(features=CASE.features, norm_bound=1.2)])
    assert orl.ARLGen(ladder=mixed).kernel == "stationary"
    with pytest.raises(ParameterError, match=r"kernel: got .*per_step.*, expected .*finite class \(F_1\)"):
        orl.ARLGen(ladder=mixed, kernel="per_step")
    with pytest.raises(ParameterError, match=r"rewards: got .*RewardsPerPair.*, expected .*finite class \(F_1\)"):
        orl.ARLGen(ladder=mixed, rewards=orl.RewardsPerPair())


def test_the_support_is_that_of_all_steps() -> None:
    agent = orl.ARLLinDim(features=CASE.features, norm_bound=1.2, kernel="per_step")
    alone = [[1.0, 0.0, 0.0]] * 4
    for weights, expected in ((WEIGHTS, [0, 1]), (alone, [0])):
        phases = orl.run(agent, changing(weights), episodes=20_000, progress=False).phases.to_pylist()
        assert phases[-1]["active"] == expected


@pytest.mark.parametrize("data", ["pooled", "fresh"])
def test_the_norm_bound_shrinks_to_one_that_holds_at_every_step(data: str) -> None:
    """The last step gives no rows; its parameter, which no plan looks at, must not keep the bound where it was.

    From one initial state the first step sees two pairs (s, a) only, which say little about three coordinates.
    """
    mdp = changing(WEIGHTS)
    spread = orl.FiniteMDP(transition=mdp.kernel(), reward=CASE.reward, horizon=4, initial_state=np.full(4, 0.25))
    agent = orl.ARLLinNorm(features=CASE.features, norm_bound=50.0, kernel="per_step", data=data)
    spread_out, from_one = (orl.run(agent, each, episodes=20_000, progress=False) for each in (spread, mdp))
    assert np.isfinite(spread_out.state.values).all()
    moved, slow = (result.phases["norm_bound"].to_pylist() for result in (spread_out, from_one))
    assert moved[0] == slow[0] == 50.0
    assert np.linalg.norm(WEIGHTS, axis=1).max() <= moved[-1] < 10.0
    assert slow[-1] > 2.0 * moved[-1]

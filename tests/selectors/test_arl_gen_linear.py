"""ARL-GEN on linear ladders: classes by coordinates, by zones and by norm."""

from __future__ import annotations

import numpy as np
import pytest

import occamrl as orl
from occamrl.checks import check_selector
from occamrl.errors import FamilyError, InvalidInput, NestingError, ShapeError
from occamrl.problems.mixtures import SparseMixture

PROBLEM = SparseMixture(states=4, actions=2, horizon=4, dimension=4, nonzero=2, seed=0)


def coordinate_ladder() -> orl.LinearLadder:
    order = [*PROBLEM.support, *(j for j in range(4) if j not in PROBLEM.support)]
    features = orl.FeatureMap(PROBLEM.phi)
    return orl.LinearLadder(
        [orl.LinearFamily(features=features, norm_bound=1.2, coordinates=order[:r]) for r in (1, 2, 4)]
    )


def test_the_right_coordinates_are_found() -> None:
    result = orl.run(orl.ARLGen(ladder=coordinate_ladder()), PROBLEM, episodes=8190, progress=False)
    chosen = result.phases["chosen"].to_pylist()
    assert chosen[0] == 1
    assert chosen[-1] == 2
    last = result.phases.to_pylist()[-1]
    assert last["statistics"][0] > last["threshold"] >= last["statistics"][1] >= last["statistics"][2]


def test_the_contract_is_kept() -> None:
    check_selector(orl.ARLGen(ladder=coordinate_ladder(), replan=0.0), PROBLEM.mdp, episodes=40)
    fresh = orl.ARLGen(ladder=coordinate_ladder(), test="epoch", data="fresh", start_class=3)
    check_selector(fresh, PROBLEM.mdp, episodes=40)


@pytest.mark.parametrize("guard", [False, True])
def test_continuing_after_any_episode_gives_the_same_bits(guard: bool) -> None:
    agent = orl.ARLGen(ladder=coordinate_ladder(), guard=guard)
    whole = orl.run(agent, PROBLEM, episodes=24, seed=5, progress=False)
    for k in (1, 2, 9, 10, 17, 23):
        first = orl.run(agent, PROBLEM, episodes=k, seed=5, progress=False)
        rest = orl.run(agent, PROBLEM, episodes=24 - k, progress=False, continue_from=first)
        assert whole.regret.tobytes() == rest.regret.tobytes()
        for fact in ("chosen", "statistics", "threshold", "episodes"):
            assert whole.phases[fact].to_pylist() == rest.phases[fact].to_pylist()


def test_one_step_leaves_nothing_to_learn() -> None:
    truth = PROBLEM.mdp.kernel()
    mdp = orl.FiniteMDP(transition=truth, reward=np.arange(8.0).reshape(4, 2) / 8, horizon=1)
    ladder = coordinate_ladder()
    for agent in (orl.ARLGen(ladder=ladder, rule="paper"), orl.ARLGen(ladder=ladder, weights="none")):
        result = orl.run(agent, mdp, episodes=14, progress=False)
        assert set(result.phases["chosen"].to_pylist()) == {1}


def test_losses_are_those_of_least_squares() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(50, 4)), draw.normal(size=50)
    features = orl.FeatureMap(PROBLEM.phi)
    gram, xy = x.T @ x, x.T @ y
    basis = draw.normal(size=(4, 2))
    packed = gram.ravel()  # one block
    free = orl.LinearLadder([orl.LinearFamily(features=features, norm_bound=100.0, basis=basis)])
    residual = np.linalg.lstsq(x @ basis, y, rcond=None)[1][0]
    assert free.smallest_loss(1, packed, xy) + y @ y == pytest.approx(residual)
    short = orl.LinearLadder([orl.LinearFamily(features=features, norm_bound=0.05)])
    angles = draw.normal(size=(200_000, 4))
    ball = 0.05 * angles / np.linalg.norm(angles, axis=1, keepdims=True)
    brute = (np.einsum("ni,ij,nj->n", ball, gram, ball) - 2 * ball @ xy).min()
    assert short.smallest_loss(1, packed, xy) <= brute + 1e-12
    assert short.smallest_loss(1, packed, xy) == pytest.approx(brute, rel=1e-2)


def test_bad_linear_ladders_are_refused() -> None:
    features = orl.FeatureMap(PROBLEM.phi)
    one = orl.LinearFamily(features=features, norm_bound=1.0, coordinates=[0, 1])
    other = orl.LinearFamily(features=features, norm_bound=1.0, coordinates=[0, 2, 3])
    with pytest.raises(NestingError, match="direction 1 of class 1") as caught:
        orl.LinearLadder([one, other])
    assert caught.value.rungs == (1, 2)
    with pytest.raises(NestingError, match="norm bounds"):
        orl.LinearLadder([one, orl.LinearFamily(features=features, norm_bound=0.5)])
    with pytest.raises(FamilyError):
        orl.LinearLadder([])
    with pytest.raises(ShapeError):
        orl.LinearFamily(features=features, norm_bound=1.0, basis=np.eye(3))
    with pytest.raises(FamilyError):
        orl.LinearFamily(features=orl.FeatureMap.tabular(states=4, actions=2), norm_bound=1.0)
    for wrong in ({"safe": True}, {"test_growth": 0.0}, {"data": "fresh"}, {"rule": "paper", "test": "anytime"}):
        with pytest.raises(InvalidInput):
            orl.ARLGen(ladder=coordinate_ladder(), **wrong)

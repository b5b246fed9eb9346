"""The same bits however a run is cut into pieces and whatever ran before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from occamrl.learners.baselines import Optimal, UniformRandom
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Agent
from occamrl.running.result import Result
from occamrl.running.run import Run, Simulator, run
from tests import cases
from tests.cases import environment_uniforms, mixture

CASE = mixture(5, initial_state=[0.4, 0.0, 0.35, 0.25])
PIECES = (1, 2, 13, 50, 3, 131)
EPISODES = sum(PIECES)


ONE_HOT = FeatureMap.tabular(states=4, actions=2)


@cache
def family() -> FiniteFamily:
    others = np.random.default_rng(2).dirichlet(np.ones(4), size=(9, 4, 2))
    return FiniteFamily(np.concatenate([CASE.transition[None], 0.7 * CASE.transition + 0.3 * others]))


# Every learner that is registered plays two halves under check_learner; here are pieces of all sizes.
AGENTS: dict[str, Callable[[], Agent]] = {
    "dense, every episode": lambda: UCRLVTRLin(features=CASE.features, norm_bound=1.0, replan=0.0),
    "one-hot, lazy": lambda: UCRLVTRLin(features=ONE_HOT, norm_bound=2.0, scale=0.2),
    "finite, ball": lambda: UCRLVTR(family=family(), radius="unweighted", scale=0.1),
    "uniform": lambda: UniformRandom(),
}


def bits(result: Result) -> tuple[Any, ...]:
    """Return everything that a result says, but the time it took."""
    curves = (result.episodes, result.regret, result.cumulative_regret, result.returns)
    counted = (result.total_episodes, result.plans, result.pessimistic_episodes)
    totals = (*counted, result.total_regret, result.total_return)
    return *(curve.tobytes() for curve in curves), *totals, result.phases.to_pylist(), cases.bits(result.state)


@pytest.mark.parametrize("name", AGENTS)
def test_uneven_pieces_are_one_run_and_leave_earlier_results_alone(name: str) -> None:
    agent = AGENTS[name]()
    whole = run(agent, CASE.mdp, episodes=EPISODES, seed=4, progress=False)
    result, kept = None, []
    for piece in PIECES:
        result = run(agent, CASE.mdp, episodes=piece, seed=4, progress=False, continue_from=result)
        kept.append((result, bits(result)))
    assert kept[-1][1] == bits(whole)
    assert [result.total_episodes for result, _ in kept] == list(np.cumsum(PIECES))
    for result, before in kept:
        assert bits(result) == before
    fork = run(agent, CASE.mdp, episodes=EPISODES - PIECES[0], progress=False, continue_from=kept[0][0])
    assert bits(fork) == bits(whole)


@pytest.mark.parametrize("name", ["finite, ball", "one-hot, lazy"])
def test_the_clock_decides_nothing(name: str) -> None:
    """Chunks grow while they are quick; if they never did, the bits would be the same."""
    quick = run(AGENTS[name](), CASE.mdp, episodes=600, progress=False)
    slow = Run(AGENTS[name](), Simulator(CASE.mdp))
    slow.play(600, progress=False, seconds=-1.0)
    assert bits(slow.result()) == bits(quick)


def test_the_environment_draws_alike_for_every_learner() -> None:
    """Where actions change nothing, learners with one seed live through the same episodes, first state included."""
    rng = np.random.default_rng(0)
    law, pay = rng.dirichlet(np.ones(4), size=4), rng.random(4)
    transition, reward = np.repeat(law[:, None], 2, axis=1), np.repeat(pay[:, None], 2, axis=1)
    initial = np.array([0.1, 0.2, 0.3, 0.4])
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=4, initial_state=initial)
    players: list[Agent] = [
        UniformRandom(),
        Optimal(mdp=mdp),
        UCRLVTRLin(features=FeatureMap.tabular(states=4, actions=2), norm_bound=2.0),
        UCRLVTR(family=FiniteFamily(transition[None])),
    ]
    expected = []
    for u in environment_uniforms(6, 50, 4):
        s, total = int(np.searchsorted(np.cumsum(initial), u[0], side="right")), 0.0
        for h in range(4):
            total += pay[s]
            s = int(np.searchsorted(np.cumsum(law[s]), u[1 + h], side="right"))
        expected.append(total)
    for player in players:
        returns = run(player, mdp, episodes=50, seed=6, progress=False).returns
        np.testing.assert_allclose(returns, expected, rtol=0, atol=1e-12)
        assert not np.allclose(run(player, mdp, episodes=50, seed=7, progress=False).returns, expected)


def test_initial_states_follow_their_law_and_regret_is_that_of_the_state_begun_in() -> None:
    """The regret of a random player is V*_1(s) - V^uniform_1(s) at each episode's own first state."""
    result = run(UniformRandom(), CASE.mdp, episodes=2_000, seed=0, progress=False)
    uniform = CASE.mdp.evaluate(np.full((4, 4, 2), 0.5))[0]
    gaps = CASE.mdp.optimal_values[0] - uniform
    first = environment_uniforms(0, 2_000, 4)[:, 0]
    begun = np.searchsorted(np.cumsum(CASE.mdp.initial_distribution), first, side="right")
    np.testing.assert_allclose(result.regret, gaps[begun], rtol=0, atol=1e-12)
    counts = np.bincount(begun, minlength=4)
    assert counts[1] == 0
    # Hoeffding: each share is within 0.055 of its law but with probability 2 exp(-2 * 2000 * 0.055^2) < 2e-5.
    np.testing.assert_allclose(counts / 2_000, CASE.mdp.initial_distribution, rtol=0, atol=0.055)

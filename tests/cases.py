"""Small problems, and a table of every learner and selector on them, for the contract tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import occamrl as orl
from occamrl import paper
from occamrl.naming import Names
from occamrl.problems.mdp import read_arrays
from occamrl.protocols import UNIT, Floats

STATES = 3
ACTIONS = 2
HORIZON = 4


@dataclass(frozen=True, eq=False)
class Case:
    """A mixture of simulators that is one of a list of kernels, and what agents may know."""

    mdp: orl.FiniteMDP
    kernels: Floats  # [m, S, A, S], of which the third is the truth
    phi: Floats  # [S, A, S, d]: the corners of the mixture

    @cached_property
    def features(self) -> orl.FeatureMap:
        return orl.FeatureMap(self.phi)

    @cached_property
    def ladder(self) -> orl.Ladder:
        return orl.Ladder(
            [orl.FiniteFamily(self.kernels[:2]), orl.FiniteFamily(self.kernels)],
            names=["two", "six"],
        )


def case(seed: int = 0, **changes: Any) -> Case:
    """Return a random case; ``changes`` are parameters of the problem."""
    draw = np.random.default_rng([seed, 3])
    corners = draw.dirichlet(np.full(STATES, 0.6), size=(3, STATES, ACTIONS))
    weights = np.array(
        [[1.0, 0, 0], [0, 1.0, 0], [0.2, 0, 0.8], [0, 0.4, 0.6], [0.3, 0.3, 0.4], [0, 0, 1.0]]
    )
    kernels = np.einsum("mk,ksat->msat", weights, corners)
    parameters = {"reward": draw.random((STATES, ACTIONS)), "horizon": HORIZON, **changes}
    mdp = orl.FiniteMDP(transition=kernels[2], **parameters)
    return Case(mdp, kernels, phi=np.moveaxis(corners, 0, -1).copy())


RANDOM_STARTS = np.array([0.2, 0.5, 0.3])
ON_TRANSITIONS = np.random.default_rng(1).random((STATES, ACTIONS, STATES))
CASES: dict[str, Case] = {
    "stationary": case(),
    "random starts": case(1, initial_state=RANDOM_STARTS),
    # and random starts
    "rewards on transitions": case(2, reward=ON_TRANSITIONS, initial_state=RANDOM_STARTS),
}
COINS = case(3, reward_noise="bernoulli")


def _per_step() -> Case:
    """Return a case with another member of the list at every step."""
    plain = case(4)
    reward = plain.mdp.known.base_reward
    mdp = orl.FiniteMDP(transition=plain.kernels[2:], reward=reward, horizon=HORIZON)
    return replace(plain, mdp=mdp)


PER_STEP = _per_step()


def _some_allowed(**changes: Any) -> Case:
    """Return a case with one action in state 1 and the other in state 2, and random starts."""
    plain = case(5, initial_state=RANDOM_STARTS)
    listing = read_arrays(plain.kernels[2], plain.mdp.known.base_reward, HORIZON)
    allowed = ~np.isin(listing.pair, [1 * ACTIONS + 0, 2 * ACTIONS + 1])
    mdp = orl.FiniteMDP.of_listing(
        listing.take(allowed),
        horizon=HORIZON,
        initial=RANDOM_STARTS,
        unit=UNIT,
        names=Names(("low", "middle", "high"), ("wait", "go")),
        **changes,
    )
    return replace(plain, mdp=mdp)


SOME_ALLOWED = _some_allowed()
DISCOUNTED = _some_allowed(discount=0.8)
CONTINUING = _some_allowed(continuing=True)


def linear(case: Case, **options: Any) -> dict[str, Any]:
    """Return the parameters of a linear learner."""
    return {"features": case.features, "norm_bound": 1.0, **options}


def nested(case: Case) -> orl.Ladder:
    """Return a ladder of linear classes."""
    return orl.Ladder(
        [orl.LinearFamily(**linear(case, coordinates=[0, 2])), orl.LinearFamily(**linear(case))]
    )


def bases(case: Case) -> list[Any]:
    """Return three learners that are quick."""
    return [orl.UniformRandom(), orl.PSRL(), orl.UCRLVTR(family=case.ladder.family)]


TABULAR = orl.FeatureMap.tabular(states=STATES, actions=ACTIONS)
Make = Callable[[Case], Any]
K = 40  # episodes, where an algorithm wants to know

LEARNERS: dict[str, Make] = {
    "Optimal": lambda case: orl.Optimal(mdp=case.mdp),
    "UniformRandom": lambda case: orl.UniformRandom(),
    "UCRLVTR": lambda case: orl.UCRLVTR(family=case.ladder.family),
    "UCRLVTRLin": lambda case: orl.UCRLVTRLin(**linear(case)),
    "UCRLVTRLin, tabular": lambda case: orl.UCRLVTRLin(features=TABULAR, norm_bound=2.5, scale=0.2),
    "UCRLVTRPlus": lambda case: orl.UCRLVTRPlus(**linear(case)),
    "Greedy": lambda case: orl.Greedy(features=case.features),
    "PSRL": lambda case: orl.PSRL(),
    "PSRL, list": lambda case: orl.PSRL(ladder=orl.Ladder([case.ladder.family])),
    "PSRL, ladder": lambda case: orl.PSRL(ladder=case.ladder),
    "UCBVI": lambda case: orl.UCBVI(episodes=K, scale=0.1),
    "RLSVI": lambda case: orl.RLSVI(scale=0.1),
    "QLearningUCB": lambda case: orl.QLearningUCB(episodes=K, scale=0.1),
    "Occam": lambda case: orl.Occam(ladder=case.ladder),
    "Occam, sampling": lambda case: orl.Occam(ladder=case.ladder, acting="sampling", scope="all"),
    "OccamMixture": lambda case: orl.OccamMixture(features=case.features),
    "ARLGen": lambda case: orl.ARLGen(ladder=case.ladder),
    "ARLGen, all": lambda case: orl.ARLGen(ladder=case.ladder, scope="all"),
    "ARLGen, linear": lambda case: orl.ARLGen(ladder=nested(case)),
    "ARLLin": lambda case: orl.ARLLin(**linear(case)),
    "ARLLinDim": lambda case: orl.ARLLinDim(**linear(case)),
    "ARLLinNorm": lambda case: orl.ARLLinNorm(**linear(case)),
    "RewardsPerPair": lambda case: orl.RewardsPerPair(agent=orl.UCRLVTR(family=case.ladder.family)),
    "Arena": lambda case: orl.Arena(bases=bases(case), rule=orl.UCB1()),
    "Arena, shared": lambda case: orl.Arena(bases=bases(case), rule=orl.D3RB(), share=True),
    "Arena, replays": lambda case: orl.Arena(
        bases=bases(case), rule=orl.StochasticCORRAL(episodes=K)
    ),
}
PAPER: dict[str, Make] = {  # known rewards of (s, a) alone: the paper's setting
    "paper.UCRLVTR": lambda case: paper.UCRLVTR(family=case.ladder.family),
    "paper.UCRLVTRLin": lambda case: paper.UCRLVTRLin(**linear(case)),
    "paper.UCRLVTRLinAyoub": lambda case: paper.UCRLVTRLinAyoub(**linear(case)),
    "paper.ARLGen": lambda case: paper.ARLGen(ladder=case.ladder),
    "paper.ARLLinDim": lambda case: paper.ARLLinDim(
        **linear(case), initial_episodes=4, growth=4, estimation_growth=2
    ),
    "paper.ARLLinNorm": lambda case: paper.ARLLinNorm(**linear(case)),
}
EACH_STEP: dict[str, Make] = {
    "UCRLVTR": lambda case: orl.UCRLVTR(family=case.ladder.family, kernel="per_step"),
    "UCRLVTRLin": lambda case: orl.UCRLVTRLin(**linear(case, kernel="per_step")),
    "QLearningUCB": LEARNERS["QLearningUCB"],
}
RULES: dict[str, Any] = {
    "D3RB": orl.D3RB(),
    "ED2RB": orl.ED2RB(),
    "ECE": orl.ECE(promised=(1.0, 2.0, 4.0)),
    "UCB1": orl.UCB1(),
    "RegretBalancing": orl.RegretBalancing(),
    "RegretBalancing, promised": orl.RegretBalancing(promised=(1.0, 2.0, 4.0)),
    "StochasticCORRAL": orl.StochasticCORRAL(episodes=K),
}


def contract_cases() -> list[tuple[str, str]]:
    """Return every learner with one problem, and those that can do so with harder ones."""
    pairs = [(name, "rewards on transitions") for name in LEARNERS] + [
        (name, "random starts") for name in PAPER
    ]
    unknown = ("RewardsPerPair", "UniformRandom", "QLearningUCB")
    pairs += [(name, kind) for name in LEARNERS | PAPER for kind in ("some allowed", "continuing")]
    return (
        pairs + [(name, "coins") for name in unknown] + [(name, "per step") for name in EACH_STEP]
    )


def made(name: str, problem: str) -> tuple[Any, orl.FiniteMDP]:
    """Return a learner of the table and its problem."""
    # These are not in CASES, which learners without the capability go through too.
    harder = {
        "coins": COINS,
        "per step": PER_STEP,
        "some allowed": SOME_ALLOWED,
        "continuing": CONTINUING,
    }
    chosen = {**CASES, **harder}[problem]
    learners = LEARNERS | PAPER
    if problem == "per step":
        learners = EACH_STEP
    return learners[name](chosen), chosen.mdp

"""Parameters of learners and arguments of ``run``: what is refused, by which name, with which suggestion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl import paper
from occamrl.errors import InvalidInput, ParameterError, ShapeError, UnknownName
from occamrl.learners.baselines import Greedy, Optimal, UniformRandom
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.running.run import run

UNIFORM = np.full((3, 2, 3), 1.0 / 3.0)
FEATURES, FAMILY = FeatureMap([UNIFORM]), FiniteFamily([UNIFORM])
MDP = FiniteMDP(transition=UNIFORM, reward=np.full((3, 2), 0.5), horizon=3)
LARGER = FiniteMDP(transition=np.full((4, 2, 4), 0.25), reward=np.full((4, 2), 0.5), horizon=3)

TABULAR = FeatureMap.tabular(states=3, actions=2)
LADDER = orl.Ladder([FAMILY])
LINEAR: dict[str, Any] = {"features": FEATURES, "norm_bound": 2.0}
RIGHT: dict[Any, dict[str, Any]] = {
    UCRLVTRLin: {**LINEAR, "weights": "none"},
    UCRLVTR: {"family": FAMILY},
    Greedy: {"features": FEATURES},
    orl.RewardsPerPair: {},
    orl.RewardsLinear: {"features": np.ones((3, 2, 1)), "norm_bound": 1.0},
    orl.ARLGen: {"ladder": LADDER},
    orl.Occam: {"ladder": LADDER},
    orl.PSRL: {},
    orl.ARLLinDim: LINEAR,
    orl.ARLLinNorm: LINEAR,
    orl.ARLLin: LINEAR,
    paper.UCRLVTR: {"family": FAMILY},
    paper.UCRLVTRLin: LINEAR,
    paper.ARLGen: {"ladder": LADDER},
    paper.ARLLinDim: LINEAR,
    paper.ARLLinNorm: LINEAR,
}
WRONG: dict[Any, dict[str, list[Any]]] = {  # what the validators of errors.py let through is tested with them
    UCRLVTRLin: {
        "features": [UNIFORM, FAMILY],
        "delta": [0.0, 1.5, None],
        "norm_bound": [0.0, np.inf],
        "replan": [-0.1, np.inf, "every"],
        "scale": [-0.5, np.inf],
        "regularization": [0.0, np.inf, None],
        "paper_constant": [0.0],
        "kernel": ["weekly"],
        "rewards": ["unknown", None],
        "event": [(0.5, 0.0)],  # of a smaller regularization
    },
    UCRLVTR: {
        "family": [UNIFORM, FEATURES],
        "delta": [0.0],
        "replan": [-0.1],
        "scale": [np.nan],
        "radius": ["ayoub"],  # of ellipsoids
        "prior": [np.array([0.5, 0.5]), np.array([0.0]), np.array([1.1]), np.array([np.nan])],
    },
    Greedy: {"features": [None]},
    orl.RewardsPerPair: {"bound": ["chernoff"], "share": [0.0, 1.0], "scale": [-1.0], "per_step": ["no"]},
    orl.RewardsLinear: {"features": [np.ones((3, 2)), np.full((3, 2, 1), np.nan), np.full((3, 2, 1), -1e60)]},
    orl.ARLGen: {
        "ladder": ["ladder"],
        "safe": ["yes"],
        "guard": [1],
        "delta": [0.0],
        "test_growth": [-1.0, "often"],
        "kernel": ["weekly"],
        "rewards": [None],
    },
    orl.Occam: {"acting": ["boldly"], "scope": ["some"], "delta": [2.0], "replan": [-1.0], "ladder": [3]},
    orl.PSRL: {"family": [3], "concentration": [0.0, np.nan, "one"], "delta": [0.0], "rewards": [None]},
    orl.ARLLinDim: {
        "features": [TABULAR],
        "initial_episodes": [0, 2.5],
        "growth": [0.5],
        "estimation_growth": [0.5],
        "delta": [0.0],
        "norm_bound": [-1.0],
        "regularization": [1e-60],
        "stretch": [np.nan],
    },
    orl.ARLLinNorm: {"norm_bound": [0.0, 1e60], "regularization": [1e-60]},  # lambda = d/(4 b^2) would vanish
    orl.ARLLin: {"norm_bound": [0.0, 1e60], "regularization": [1e-60]},
    paper.UCRLVTR: {"family": [[UNIFORM]], "delta": [0.0], "infinite_class": [3], "cover_scales": ["dyadik"]},
    paper.UCRLVTRLin: {"features": [UNIFORM], "norm_bound": [-1.0], "paper_constant": [0.0]},
    paper.ARLGen: {"ladder": [[], orl.Ladder([orl.LinearFamily(**LINEAR)])], "delta": [2.0]},
    paper.ARLLinDim: {
        "features": [TABULAR],
        "threshold_epoch": ["both"],
        "initial_episodes": [0],
        "growth": [0.5],
        "threshold": [0.0],
        "delta": [0.0],
    },
    paper.ARLLinNorm: {"norm_estimate": ["max"], "norm_bound": [0.0]},
}
PAIRS = [(kind, name) for kind, names in WRONG.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), PAIRS, ids=[f"{kind.__name__}.{name}" for kind, name in PAIRS])
def test_every_class_checks_its_parameters(kind: Any, name: str) -> None:
    kind(**RIGHT[kind])
    for value in WRONG[kind][name]:
        with pytest.raises(InvalidInput) as caught:
            kind(**RIGHT[kind] | {name: value})
        assert caught.value.field == name


NAMES = [
    ("radius", "Ayoub", "ayoub"),
    ("radius", None, None),
    ("regularization", "scale", "scaled"),
]


@pytest.mark.parametrize(("name", "value", "suggestion"), NAMES)
def test_unknown_names_get_the_nearest_one_suggested(name: str, value: Any, suggestion: str | None) -> None:
    with pytest.raises(UnknownName) as caught:
        UCRLVTRLin(**{"features": FEATURES, "norm_bound": 1.0, name: value})
    assert (caught.value.field, caught.value.suggestion) == (name, suggestion)
    assert repr(value) in str(caught.value)
    if suggestion:
        assert f"did you mean {suggestion!r}?" in str(caught.value)


def test_a_run_needs_an_agent_a_problem_episodes_and_a_seed() -> None:
    wrong: dict[str, list[Any]] = {
        "agent": ["UniformRandom", 3, None, UniformRandom, FEATURES],
        "mdp": [3, None, UNIFORM, "river-swim"],
        "episodes": [0, 2.0, None],
        "seed": [-1, 1.5],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ParameterError) as caught:
                run(**{"agent": UniformRandom(), "mdp": MDP, "episodes": 1, name: value})
            assert caught.value.field == name


def test_learners_and_problems_of_different_sizes_are_refused() -> None:
    for learner, field in (
        (UCRLVTRLin(features=FEATURES, norm_bound=1.0), "features"),
        (UCRLVTRLin(features=FeatureMap.tabular(states=3, actions=2), norm_bound=1.0), "features"),
        (UCRLVTR(family=FAMILY), "features"),
        (Greedy(features=FEATURES), "features"),
        (Optimal(mdp=MDP), "mdp"),
    ):
        with pytest.raises(ShapeError, match="the problem's") as caught:
            run(learner, LARGER, episodes=1)
        assert caught.value.field == field


def test_a_run_is_continued_by_its_own_agent_on_its_own_problem_with_its_own_seed() -> None:
    earlier = run(UniformRandom(), MDP, episodes=3, seed=4, progress=False)
    assert run(UniformRandom(), MDP, episodes=1, continue_from=earlier, progress=False).seed == 4
    wrong: list[tuple[Any, Any, dict[str, Any]]] = [
        (Optimal(mdp=MDP), MDP, {}),
        (UniformRandom(), LARGER, {}),
        (UniformRandom(), FiniteMDP(transition=UNIFORM, reward=np.full((3, 2), 0.25), horizon=3), {}),
        (UniformRandom(), MDP, {"seed": 5}),
    ]
    for agent, mdp, options in wrong:
        with pytest.raises(ParameterError):
            run(agent, mdp, episodes=1, progress=False, continue_from=earlier, **options)
    with pytest.raises(ParameterError):
        run(UniformRandom(), MDP, episodes=1, continue_from=3)  # type: ignore[arg-type]  # wrong on purpose
    lin = UCRLVTRLin(features=FEATURES, norm_bound=1.0)
    played = run(lin, MDP, episodes=2, progress=False)
    with pytest.raises(ParameterError):  # the same class with another parameter is another agent
        run(UCRLVTRLin(features=FEATURES, norm_bound=2.0), MDP, episodes=1, continue_from=played)
    same = UCRLVTRLin(features=FeatureMap([UNIFORM]), norm_bound=1.0)
    assert run(same, MDP, episodes=1, continue_from=played, progress=False).total_episodes == 3

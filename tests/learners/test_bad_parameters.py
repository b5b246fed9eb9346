"""Parameters of learners and arguments of ``run``: what is refused, by which name, with which suggestion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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

NUMBERS: dict[str, list[Any]] = {
    "delta": [0.0, -0.1, 1.5, np.nan, np.inf, "0.05", None, True],
    "norm_bound": [0.0, -1.0, np.nan, np.inf, "1", None],
    "replan": [-0.1, np.nan, np.inf, "every"],
    "scale": [-0.5, np.nan, np.inf],
    "regularization": [0.0, -1.0, np.nan, np.inf, None],
    "paper_constant": [0.0, -1.0, np.nan],
    "target_range": [0.0, -1.0, np.nan],
}
PAIRS = [(name, value) for name, values in NUMBERS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), PAIRS, ids=[f"{name}={value!r}" for name, value in PAIRS])
def test_numbers_of_ucrl_vtr_lin(name: str, value: Any) -> None:
    options: dict[str, Any] = {"features": FEATURES, "norm_bound": 1.0, "weights": "none"}
    UCRLVTRLin(**options)
    with pytest.raises(ParameterError, match=name) as caught:
        UCRLVTRLin(**options | {name: value})
    assert (type(caught.value), caught.value.field) == (ParameterError, name)


@pytest.mark.parametrize("delta", [1.0, 1e-12])
def test_the_ends_of_delta_are_allowed(delta: float) -> None:
    assert UCRLVTRLin(features=FEATURES, norm_bound=1.0, delta=delta).delta == delta
    assert UCRLVTR(family=FAMILY, delta=delta).delta == delta


NAMES = [
    ("radius", "shrap", "sharp"),
    ("radius", "Ayoub", "ayoub"),
    ("radius", "papers", "paper"),
    ("radius", "unweigthed", "unweighted"),
    ("radius", "zzz", None),
    ("radius", None, None),
    ("weights", "ranges", "range"),
    ("weights", "non", "none"),
    ("clip", "steps", "step"),
    ("clip", "horizons", "horizon"),
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


def test_every_class_checks_its_parameters() -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (UCRLVTR, {"family": FAMILY, "delta": 0.0}, "delta"),
        (UCRLVTR, {"family": FAMILY, "replan": -0.1}, "replan"),
        (UCRLVTR, {"family": FAMILY, "scale": np.nan}, "scale"),
        (UCRLVTR, {"family": FAMILY, "weights": "ranges"}, "weights"),
        (UCRLVTR, {"family": FAMILY, "radius": "ayoub"}, "radius"),  # of ellipsoids
        (UCRLVTRLin, {"features": UNIFORM, "norm_bound": 1.0}, "features"),
        (UCRLVTRLin, {"features": FAMILY, "norm_bound": 1.0}, "features"),
        (UCRLVTR, {"family": UNIFORM}, "family"),
        (UCRLVTR, {"family": FEATURES}, "family"),
        (Greedy, {"features": None}, "features"),
    ]
    for kind, options, field in wrong:
        with pytest.raises(InvalidInput) as caught:
            kind(**options)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("prior", "error"),
    [([0.5, 0.5], ShapeError), ([0.0], ParameterError), ([1.1], ParameterError), ([np.nan], ParameterError)],
)
def test_priors_are_positive_and_sum_to_one_at_most(prior: Any, error: type[InvalidInput]) -> None:
    with pytest.raises(error) as caught:
        UCRLVTR(family=FAMILY, prior=np.array(prior))
    assert caught.value.field == "prior"
    UCRLVTR(family=FAMILY, prior=np.array([0.3]))  # what is missing to one is held back for others


@pytest.mark.parametrize("episodes", [0, -1, 2.0, "10", None, True])
def test_a_run_needs_episodes(episodes: Any) -> None:
    with pytest.raises(ParameterError, match="an integer >= 1") as caught:
        run(UniformRandom(), MDP, episodes=episodes)
    assert caught.value.field == "episodes"


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True])
def test_a_run_needs_a_seed(seed: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        run(UniformRandom(), MDP, episodes=1, seed=seed)
    assert caught.value.field == "seed"


@pytest.mark.parametrize("agent", ["UniformRandom", 3, None, UniformRandom, FEATURES])
def test_a_run_needs_an_agent(agent: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        run(agent, MDP, episodes=1)
    assert caught.value.field == "agent"


@pytest.mark.parametrize("mdp", [3, None, UNIFORM, "river-swim"])
def test_a_run_needs_a_problem(mdp: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        run(UniformRandom(), mdp, episodes=1)
    assert caught.value.field == "mdp"


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


def test_learners_are_frozen() -> None:
    learner: Any = UCRLVTRLin(features=FEATURES, norm_bound=1.0)
    with pytest.raises(AttributeError):
        learner.delta = 0.5

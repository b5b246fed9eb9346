"""The public contract checks: everything that is registered passes, and what is broken on purpose does not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from occamrl import registry
from occamrl.checks import check_family, check_learner, check_problem, check_selector, extensions
from occamrl.errors import CheckpointError, ContractError
from occamrl.learners.baselines import Greedy, Optimal, UniformRandom
from occamrl.learners.rewards import RewardsPerPair
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.models.linear import AggregationFamily, LinearFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Floats, Known, Phase, PhaseOutcome, Selector
from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm
from occamrl.selectors.references import largest, oracle
from tests.cases import stack
from tests.turning_learner import Turning

RANDOM_START = stack(0, initial_state=[0.2, 0.5, 0.3]).mdp
ON_TRANSITIONS = FiniteMDP(transition=stack(1).kernels[0], reward=np.random.default_rng(1).random((3, 2, 3)), horizon=4)
SMALL = SparseMixture(states=5, actions=2, horizon=4, dimension=6, nonzero=3, gamma=0.5, seed=1)
PROBLEMS = {"random initial state": RANDOM_START, "rewards on transitions": ON_TRANSITIONS}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", registry.learners())
def test_every_learner_keeps_the_contract(name: str, problem: str) -> None:
    mdp = PROBLEMS[problem]
    examples = registry.learners()[name].examples(mdp)
    assert examples
    for learner in examples:
        check_learner(learner, mdp, episodes=40)


@pytest.mark.parametrize("kind", [ARLLin, ARLLinDim, ARLLinNorm])
def test_linear_selectors_keep_the_contract_and_their_references_are_learners(kind: Any) -> None:
    for selector in kind.examples(SMALL.mdp):
        check_selector(selector, SMALL.mdp, episodes=120)
    selector = kind(features=FeatureMap(SMALL.phi), norm_bound=2.0)
    check_learner(oracle(selector, SMALL.theta), SMALL.mdp)
    check_learner(largest(selector), SMALL.mdp)


def test_learners_and_selectors_with_both_options_are_checked_with_them() -> None:
    """One kernel per step, unknown rewards, and both: without an example that offers them they would not be."""
    offering = set()
    for name, kind in {**registry.learners(), **registry.selectors()}.items():
        for variants in [list(extensions(one)) for one in kind.examples(RANDOM_START)]:
            kernels = [each.kernel for each in variants]
            unknown = [isinstance(each.rewards, RewardsPerPair) for each in variants]
            if (kernels, unknown) == (["per_step", "stationary", "per_step"], [False, True, True]):
                offering.add(name)
    named = {"ARLGen", "ARLLin", "ARLLinDim", "ARLLinNorm", "Greedy", "LikelihoodLearner", "NestedUCRLVTR", "Occam"}
    assert offering == {*named, "PSRL", "UCRLVTR", "UCRLVTRLin"}


@pytest.mark.parametrize("name", registry.families())
def test_every_family_keeps_the_contract(name: str) -> None:
    for family in registry.families()[name].examples():
        check_family(family)
    check_family(stack(0).family, ON_TRANSITIONS)


# ------------------------------------------------------------------------------------------------- negative controls


def lin(**options: Any) -> dict[str, Any]:
    return {"features": FeatureMap.tabular(states=3, actions=2), "norm_bound": 2.0, **options}


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared(UCRLVTRLin):
    """``begin`` hands out the same arrays every time."""

    kept: dict[str, Any] = field(default_factory=dict)

    def begin(self, known: Known, statistics: Any = None) -> Any:
        return self.kept.setdefault("state", super().begin(known))


@dataclass(frozen=True, kw_only=True, eq=False)
class Dice(UCRLVTRLin):
    """``begin`` draws from a generator with a memory of its own."""

    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def begin(self, known: Known, statistics: Any = None) -> Any:
        state = super().begin(known)
        state.xy[:] = self.generator.random(state.xy.size)
        return state


@dataclass(frozen=True, kw_only=True, eq=False)
class Forgetful(Greedy):
    """``reserve`` loses what was learned, so that it matters where a run is cut."""

    def reserve(self, state: Any, episodes: int) -> Any:
        forgotten = copy.deepcopy(state)
        forgotten.xy[:] = 0.0
        return forgotten


@dataclass(frozen=True, kw_only=True, eq=False)
class Counting(UCRLVTRLin):
    """``model`` is another one each time it is asked for."""

    calls: list[int] = field(default_factory=list)

    def model(self, known: Known) -> Any:
        self.calls.append(1)
        return super().model(known)._replace(norm_bound=2.0 + len(self.calls))


class ListState(NamedTuple):
    policy: list[int]


class Listing(Optimal):
    def begin(self, known: Known) -> Any:
        return ListState([0])


class Bare(Optimal):
    def begin(self, known: Known) -> Any:
        return np.zeros(3), np.zeros(3)


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "shared arrays": (lambda: Shared(**lin()), "same seed"),
    "random beginning": (lambda: Dice(**lin()), "same seed"),
    "forgetful": (  # where a run is cut into chunks depends on the clock, so that the first clause may fail as well
        lambda: Forgetful(features=FeatureMap.tabular(states=3, actions=2), replan=0.0),
        "two halves|same seed",
    ),
    "memory in the model": (lambda: Turning(hidden=True), "two halves"),
    "changing model": (lambda: Counting(**lin(scale=0.05, replan=0.0)), "same seed"),
    "a list in the state": (lambda: Listing(mdp=RANDOM_START), r"state\.policy is list"),
    "a bare tuple": (lambda: Bare(mdp=RANDOM_START), "state is tuple"),
    "no learner": (lambda: object(), "a learner has"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_learner_is_caught(name: str) -> None:
    make, clause = BROKEN[name]
    with pytest.raises(ContractError, match=clause):
        check_learner(make(), RANDOM_START)


def test_a_sound_learner_outside_the_package_passes() -> None:
    check_learner(Turning(), RANDOM_START)


def with_values(mdp: FiniteMDP, change: Callable[[Floats], Floats]) -> FiniteMDP:
    """Return a problem that lies about its optimum."""
    liar = copy.copy(mdp)
    values = change(np.array(mdp.optimal_values))
    liar.__dict__["_solved"] = mdp.truth._replace(optimal_values=values)
    return liar


def test_negative_regret_is_caught() -> None:
    liar = with_values(RANDOM_START, lambda values: values - 0.1)
    with pytest.raises(ContractError, match="regret is never negative"):
        check_learner(Optimal(mdp=RANDOM_START), liar)


class Given(NamedTuple):
    """A problem in a box."""

    mdp: Any


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (lambda values: np.concatenate([values[:1] - 0.01, values[1:]]), "optimal policy attains"),
        (lambda values: values[:-1], r"\[H \+ 1, S\]"),
        (lambda values: values + 10.0, "lies in"),
    ],
)
def test_a_problem_that_lies_about_its_optimum_is_caught(change: Callable[[Floats], Floats], clause: str) -> None:
    check_problem(Given(RANDOM_START))  # type: ignore[arg-type]  # not a Problem by type: it gives what it was given
    with pytest.raises(ContractError, match=clause):
        check_problem(Given(with_values(RANDOM_START, change)))  # type: ignore[arg-type]  # the same
    with pytest.raises(ContractError, match="has an mdp"):
        check_problem(Given(None))  # type: ignore[arg-type]  # the same


SOLVED, KERNEL = FiniteFamily.optimal_values, FiniteFamily.kernel
BROKEN_METHODS: dict[str, tuple[type[Any], str, Callable[..., Any], str]] = {
    "values of others": (FiniteFamily, "optimal_values", lambda self, known: SOLVED(self, known) + 0.01, "solved once"),
    "values solved anew": (FiniteFamily, "optimal_values", lambda self, known: SOLVED(self, known).copy(), "solved"),
    "sums above one": (FiniteFamily, "kernel", lambda self, member: 1.01 * KERNEL(self, member), "is a kernel"),
    "a loss that is too large": (AggregationFamily, "smallest_loss", lambda self, gram, xy: 1e3, "smaller loss"),
    "a loss that is too small": (LinearFamily, "smallest_loss", lambda self, gram, xy: -1e3, "least squares"),
    "a growing covering number": (AggregationFamily, "log_covering_number", lambda self, alpha: alpha, "covering"),
    "members elsewhere": (AggregationFamily, "contains", lambda self, kernel: False, "is contained"),
    "members that are no kernels": (LinearFamily, "members", lambda self, draw, n: [np.full(3, 5.0)], "is a kernel"),
    "no members": (LinearFamily, "members", lambda self, draw, n: [], "is a kernel"),
}


@pytest.mark.parametrize("name", BROKEN_METHODS)
def test_a_family_with_a_broken_method_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method, wrong, clause = BROKEN_METHODS[name]
    monkeypatch.setattr(kind, method, wrong)
    with pytest.raises(ContractError, match=clause):
        check_family(kind.examples()[0])


class Phases(Selector):
    """Phases of seven episodes; sound, and broken by those below."""

    def start(self, known: Known) -> dict[str, Any]:
        return {"epoch": 0}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        learner = UCRLVTRLin(**lin(scale=0.1 * (1 + memory["epoch"])))
        if "state" not in memory:
            memory["state"] = learner.begin(known)
        return Phase(learner, memory["state"], episodes=7, epoch=memory["epoch"])

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        memory["epoch"] += 1
        memory["state"] = outcome.state


class Elsewhere(Phases):
    """Remembers outside its memory, so that what is done next depends on what was asked before."""

    def __init__(self) -> None:
        self.asked = 0

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        self.asked += 1
        phase = super().next_phase(known, memory)
        return Phase(UCRLVTRLin(**lin(scale=0.01 * self.asked)), phase.state, episodes=7)


class Objects(Phases):
    """Keeps an object in its memory, which no checkpoint can hold."""

    def start(self, known: Known) -> dict[str, Any]:
        return {"epoch": 0, "generator": np.random.default_rng(0)}


def test_broken_selectors_are_caught() -> None:
    check_selector(Phases(), RANDOM_START)
    with pytest.raises(ContractError, match=r"(same seed|two halves|checkpoint|teach the same)"):
        check_selector(Elsewhere(), RANDOM_START)
    with pytest.raises(CheckpointError, match="Generator"):
        check_selector(Objects(), RANDOM_START)
    with pytest.raises(ContractError, match="a selector has"):
        check_selector(UniformRandom(), RANDOM_START)  # type: ignore[arg-type]  # wrong on purpose

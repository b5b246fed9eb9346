"""Reference points: the optimal policy, uniformly random actions, and certainty equivalence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.bellman import uniform_policy_values
from occamrl._core.compile import implements
from occamrl._core.loop import (
    CHANGED,
    PLANNED,
    REDRAWN,
    Path,
    evaluate,
    follows_policy,
    learn,
    plan,
    planned_value,
    write_policy,
)
from occamrl._core.rng import fill_uniforms
from occamrl.errors import ShapeError
from occamrl.learners.rewards import Rewards, require_rewards
from occamrl.learners.ucrl_vtr_lin import LinearModel, LinearState, UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Field, Floats, Ints, Kernel, Known, Learner, Truth, Weights


class UniformModel(NamedTuple):
    """Sizes."""

    horizon: int
    actions: int


class UniformState(NamedTuple):
    """The numbers this episode's actions are drawn with."""

    uniforms: Floats  # [H, rounded up to an even number]
    counters: Ints  # [1] plans


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformRandom(Learner):
    """Draw every action uniformly; regret is that of the stochastic policy, exactly.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.UniformRandom(), problem, episodes=50)
    """

    def model(self, known: Known) -> UniformModel:
        """Return the sizes."""
        return UniformModel(known.horizon, known.actions)

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        below_one = float(np.nextafter(1.0, 0.0))
        return [Field("uniforms", (known.horizon + known.horizon % 2,), 0.0, below_one), Field("counters", (1,), 0, 1)]

    def begin(self, known: Known) -> UniformState:
        """Return room for the numbers of an episode."""
        return UniformState(*(each.make() for each in self.fields(known)))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Return the one instance there is, for the contract checks."""
        return [cls()]


@implements(plan, UniformState, argument=1)
def plan_uniform(model: UniformModel, state: UniformState, start: int, key: np.uint64, episode: int) -> int:
    """Draw this episode's numbers from the agent's own stream."""
    fill_uniforms(key, episode, state.uniforms)
    if state.counters[0] > 0:
        return REDRAWN
    state.counters[0] = 1
    return PLANNED | CHANGED


@implements(write_policy, UniformState, argument=1)
def write_policy_uniform(model: UniformModel, state: UniformState, policy: Ints) -> None:
    """Write this episode's actions, the same for all states of a step."""
    for h in range(policy.shape[0]):
        policy[h] = int(state.uniforms[h] * model.actions)


@implements(learn, UniformState, argument=1)
def learn_nothing(model: UniformModel, state: UniformState, path: Path, steps: int) -> None:
    """Learn nothing."""


@implements(planned_value, UniformState, argument=1)
def planned_value_uniform(model: UniformModel, state: UniformState, s: int) -> float:
    """There is none."""
    return np.nan


@implements(evaluate, UniformState, argument=1)
def evaluate_uniform(model: UniformModel, state: UniformState, truth: Truth, policy: Ints, out: Floats) -> None:
    """Evaluate the stochastic policy."""
    uniform_policy_values(truth.outcomes, truth.probability, truth.base_reward, model.horizon, model.actions, out)


class OptimalModel(NamedTuple):
    """The optimal values."""

    values: Floats  # [H + 1, S]


class OptimalState(NamedTuple):
    """The optimal policy, and whether it has been announced."""

    policy: Ints  # [H, S]
    counters: Ints  # [1] plans


follows_policy(OptimalState)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimal(Learner):
    """Follow the optimal policy of ``mdp``; its regret is zero.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Optimal(mdp=problem.mdp), problem, episodes=50)
    >>> result.total_regret
    0.0
    """

    mdp: FiniteMDP

    def model(self, known: Known) -> OptimalModel:
        """Return the optimal values."""
        if (known.horizon, known.states, known.actions) != (self.mdp.horizon, self.mdp.states, self.mdp.actions):
            raise ShapeError(
                "mdp",
                got=f"H={self.mdp.horizon}, S={self.mdp.states}, A={self.mdp.actions}",
                expected=f"the problem's H={known.horizon}, S={known.states}, A={known.actions}",
            )
        return OptimalModel(np.array(self.mdp.optimal_values))

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        best = self.mdp.optimal_policy
        return [Field("policy", (known.horizon, known.states), best, best), Field("counters", (1,), 0, 1)]

    def begin(self, known: Known) -> OptimalState:
        """Return the policy as a state."""
        return OptimalState(np.array(self.mdp.optimal_policy), np.zeros(1, dtype=np.int64))

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Return the one instance there is, for the contract checks."""
        return [cls(mdp=mdp)]


@implements(plan, OptimalState, argument=1)
def plan_optimal(model: OptimalModel, state: OptimalState, start: int, key: np.uint64, episode: int) -> int:
    """Plan once."""
    if state.counters[0] > 0:
        return 0
    state.counters[0] = 1
    return PLANNED | CHANGED


@implements(learn, OptimalState, argument=1)
def learn_nothing_more(model: OptimalModel, state: OptimalState, path: Path, steps: int) -> None:
    """Learn nothing."""


@implements(planned_value, OptimalState, argument=1)
def planned_value_optimal(model: OptimalModel, state: OptimalState, s: int) -> float:
    """V*_1(s)."""
    return float(model.values[0, s])


@dataclass(frozen=True, kw_only=True, eq=False)
class Greedy(Learner):
    """Certainty equivalence, UCRL-VTR-LIN without its bonus: Q_h(s, a) = r(s, a) + <phi_V(s, a), theta_k>.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), problem, episodes=50)

    A reference point without a guarantee.
    """

    guarantee = "none"
    given = ()

    features: FeatureMap
    weights: Weights = "range"
    replan: float = 0.2
    regularization: float = 1.0
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.rewards)
        self._without_bonus()

    def _without_bonus(self) -> UCRLVTRLin:
        rewards = self.rewards if isinstance(self.rewards, str) else replace(self.rewards, scale=0.0)
        return UCRLVTRLin(
            features=self.features,
            norm_bound=1.0,
            scale=0.0,
            weights=self.weights,
            replan=self.replan,
            regularization=self.regularization,
            rewards=rewards,
            kernel=self.kernel,
        )

    def model(self, known: Known) -> LinearModel:
        """Return the constants of the compiled functions."""
        return self._without_bonus().model(known)

    def fields(self, known: Known, state: Any = None) -> list[Field]:
        """Return what the arrays of a state hold."""
        return self._without_bonus().fields(known)

    def resume(self, model: LinearModel, fresh: LinearState, state: LinearState) -> None:
        """Refuse a state whose fields contradict each other; factors and estimates follow from the statistics."""
        self._without_bonus().resume(model, fresh, state)

    def begin(self, known: Known) -> LinearState:
        """Return a fresh state."""
        return self._without_bonus().begin(known)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Return a small instance on a problem, for the contract checks."""
        return [cls(features=FeatureMap.tabular(states=mdp.states, actions=mdp.actions))]

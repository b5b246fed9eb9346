"""Greedy: certainty equivalence, UCRL-VTR-LIN without its bonus. A reference point with no guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from occamrl.contracts import Known, Learner
from occamrl.families.features import FeatureMap
from occamrl.learners.linear_state import LinearModel, LinearState
from occamrl.learners.rewards import Rewards, require_rewards
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin


@dataclass(frozen=True, kw_only=True, eq=False)
class Greedy(Learner):
    """Plan with the ridge estimate alone: Q_h(s, a) = r(s, a) + <phi_V(s, a), theta_k>."""

    features: FeatureMap
    weights: str = "range"
    replan: float = 0.2
    regularization: float = 1.0
    rewards: Rewards = "known"
    kernel: str = "stationary"

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

    def begin(self, known: Known) -> LinearState:
        """Return a fresh state."""
        return self._without_bonus().begin(known)

    def reserve(self, state: LinearState, episodes: int) -> LinearState:
        """Return the state as it is: it never grows."""
        return state

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Learner]:
        """Return a small instance on a problem, for the contract checks."""
        return [cls(features=FeatureMap.tabular(states=mdp.states, actions=mdp.actions))]

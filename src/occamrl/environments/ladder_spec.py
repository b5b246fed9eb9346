"""A ladder of models with what is needed to play or test it: of a problem, of kernels, of Gymnasium environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from occamrl.contracts import Floats, Known
from occamrl.environments.tables import (
    RewardMap,
    known_of_several,
    require_whole_truth,
    reward_map,
    rewards_of_problem,
    smallest_range,
    table_of,
)
from occamrl.errors import ParameterError, require_choice
from occamrl.families.features import FeatureMap
from occamrl.families.finite import FiniteFamily
from occamrl.families.ladder import Ladder
from occamrl.learners.rewards import Rewards, require_rewards
from occamrl.learners.ucrl_vtr_lin import KERNELS
from occamrl.problems.finite_mdp import as_mdp


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LadderSpec:
    """A ladder with what is needed to play or test it."""

    ladder: Ladder
    names: tuple[str, ...]  # of the rungs
    known: Known  # sizes, horizon and rewards
    rewards: RewardMap  # the known rewards are the environment's own mapped by this
    estimate: Rewards = "known"  # how an agent comes to know the rewards
    kernel: str = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.estimate)
        require_choice("kernel", self.kernel, KERNELS)
        if not isinstance(self.estimate, str):
            object.__setattr__(self, "known", self.known.without_rewards)

    @property
    def options(self) -> dict[str, Any]:
        """What an agent on the ladder is told beside it: ``rewards`` and ``kernel``."""
        return {"rewards": self.estimate, "kernel": self.kernel}

    @property
    def horizon(self) -> int:
        """H."""
        return self.known.horizon

    @property
    def reward(self) -> Floats:
        """r[s, a], in [0, 1]; where rewards depend on the outcome, the part that does not; 0 if unknown."""
        return self.known.base_reward


def ladder_of_problem(problem: Any) -> LadderSpec:
    """Return the ladder that a problem brings along: ``ladder``, or ``phi``, ``hypotheses`` and ``sizes``."""
    if not all(hasattr(problem, name) for name in ("phi", "hypotheses", "sizes")):
        raise ParameterError("problem", got=type(problem).__name__, expected="one that brings a ladder along")
    ladder = Ladder.of_problem(problem)
    names = getattr(problem, "rung_names", None) or [f"F_{m}" for m in range(1, ladder.classes + 1)]
    known = as_mdp(problem).known
    return LadderSpec(ladder=ladder, names=tuple(names), known=known, rewards=rewards_of_problem(problem))


def ladder_of_additions(stacks: Sequence[Floats]) -> Ladder:
    """Return the ladder whose class m consists of the kernels of the first m stacks [n, S, A, S']."""
    whole = FiniteFamily(np.concatenate(stacks))
    return Ladder.of_prefixes(whole.theta.T, whole.features, np.cumsum([len(stack) for stack in stacks]).tolist())


def ladder_of_environments(
    environments: Sequence[gym.Env[Any, Any]],
    sizes: Sequence[int],
    *,
    horizon: int,
    names: Sequence[str] = (),
    reward_range: Sequence[float] | None = None,
    weights: Sequence[Sequence[float]] | None = None,
) -> LadderSpec:
    """Return the ladder whose class m consists of the tables of the first ``sizes[m - 1]`` environments.

    With ``weights``, a list of vectors over the environments, of the first ``sizes[m - 1]`` of these mixtures. Rewards
    may depend on more than (s, a, s'): members are compared over outcomes (s', reward) (M20).
    """
    for env in environments:
        require_whole_truth(env)
    chosen = smallest_range(environments) if reward_range is None else reward_range
    tables = [table_of(env, horizon=horizon, reward_range=chosen) for env in environments]
    features = FeatureMap.of_simulators([table.mdp for table in tables])
    vectors = np.eye(len(tables))
    if weights is not None:
        vectors = np.array([[*weight, *[0.0] * (len(tables) - len(weight))] for weight in weights])
    ladder = Ladder.of_prefixes(vectors, features, sizes)
    return LadderSpec(
        ladder=ladder,
        names=tuple(names) or tuple(f"F_{m}" for m in range(1, ladder.classes + 1)),
        known=known_of_several([table.mdp for table in tables]),
        rewards=reward_map(chosen),
    )

"""A problem whose rewards scatter around their means: ``make_problem("river-swim", reward_noise="bernoulli")``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from occamrl.errors import InvalidInput, ParameterError, UnknownName
from occamrl.problems.finite_mdp import FiniteMDP, as_mdp
from occamrl.problems.noise import BernoulliRewards, BetaRewards, RewardNoise

_WORDS = ("bernoulli", "beta")


class NoisyProblem:
    """A problem with reward noise; whatever else is asked of it is the problem's own.

    Parameters
    ----------
    problem
        A problem.
    reward_noise
        BernoulliRewards or BetaRewards; or, as in a TOML file, ``"bernoulli"``, ``"beta"``, ``{"beta": 50.0}`` with the
        concentration.
    """

    def __init__(self, problem: Any, reward_noise: RewardNoise | str | dict[str, Any]) -> None:
        self.problem = problem
        self.reward_noise = noise_of(reward_noise)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem as a FiniteMDP, with its noise."""
        return as_mdp(self.problem).with_reward_noise(self.reward_noise)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "problem" not in vars(self):  # a copy in the making has nothing yet
            raise AttributeError(name)
        return getattr(self.problem, name)

    def __repr__(self) -> str:
        return f"NoisyProblem({self.problem!r}, reward_noise={self.reward_noise!r})"


def noise_of(value: Any) -> RewardNoise:
    """Return the noise that a word or a table stands for."""
    if isinstance(value, (BernoulliRewards, BetaRewards)):
        return value
    if isinstance(value, dict):
        for key in value:
            if key not in ("beta", "atoms"):
                raise UnknownName(f"reward_noise.{key}", got=key, known=("beta", "atoms"))
        if "beta" not in value:
            raise ParameterError("reward_noise", got=repr(value), expected="{ beta = concentration }")
        atoms = {"atoms": value["atoms"]} if "atoms" in value else {}
        try:
            return BetaRewards(concentration=value["beta"], **atoms)
        except InvalidInput as error:
            name = "beta" if error.field == "concentration" else error.field
            raise ParameterError(f"reward_noise.{name}", got=error.got, expected=error.expected) from error
    if value not in _WORDS:
        raise UnknownName("reward_noise", got=value, known=_WORDS)
    return BernoulliRewards() if value == "bernoulli" else BetaRewards()

"""Problems by name."""

from __future__ import annotations

import inspect
from typing import Any

from occamrl.errors import UnknownName
from occamrl.problems.mdp import NoisyProblem
from occamrl.registry import find


def make_problem(name: str, **parameters: Any) -> Any:
    """Return the problem called ``name``.

    With ``reward_noise="bernoulli"`` rewards are random with these means.

    >>> import occamrl as orl
    >>> orl.make_problem("river-swim", states=5).mdp.horizon
    20
    """
    kind = find("name", name, "problems")
    known = [*inspect.signature(kind).parameters, "reward_noise"]
    for parameter in parameters:
        if parameter not in known:
            raise UnknownName(f"parameters.{parameter}", got=parameter, known=known)
    noise = parameters.pop("reward_noise", None)
    problem = kind(**parameters)
    if noise is None:
        return problem
    return NoisyProblem(problem, noise)

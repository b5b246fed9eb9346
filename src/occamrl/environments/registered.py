"""Every problem of this package under Gymnasium's names: ``gymnasium.make("occamrl/RiverSwim-v0", states=5)``.

``import occamrl.environments`` registers them; so does the name itself, written with its module:
``gymnasium.make("occamrl.environments:occamrl/RiverSwim-v0")``.
"""

from __future__ import annotations

import gymnasium as gym

from occamrl.registry import problems

NAMESPACE = "occamrl"


def register_problems() -> list[str]:
    """Register what is not registered yet, a problem being found because its file is there; return all names."""
    names = []
    for name in problems():
        identifier = f"{NAMESPACE}/{name}-v0"
        names.append(identifier)
        if identifier not in gym.registry:
            gym.register(
                identifier, entry_point="occamrl.environments.problem_env:ProblemEnv", kwargs={"problem": name}
            )
    return names

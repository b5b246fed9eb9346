"""Typed errors about environments: what they did, in which episode and step, and what was expected.

An error raised in the middle of learning carries the ``result`` up to there, learned state included; go on with
``learn(agent, env, episodes=..., continue_from=error.result)``.
"""

from __future__ import annotations

from typing import Any

from occamrl.errors import InvalidInput


class EnvironmentFault(InvalidInput):
    """An environment cannot be used, or did what it may not; ``index`` is (episode, step), both from 0."""

    result: Any = None  # what was learned before, if the error came in the middle of learning


class SpaceError(EnvironmentFault):
    """A space that is not finite, or an observation outside its space."""


class TableError(EnvironmentFault):
    """A table of outcomes that is missing, not the whole truth, or contradicted by what the environment did."""


class EnvironmentReward(EnvironmentFault):
    """A reward that is not a number, is outside the stated range, or is not the known one."""


class EpisodeCutShort(EnvironmentFault):
    """An episode was truncated before the horizon: no termination, so what would have followed is unknown."""


class EnvironmentFailure(EnvironmentFault):
    """The environment raised an exception; it is the cause of this one."""


class SeedIgnored(EnvironmentFault):
    """The same seed and actions gave two different episodes."""

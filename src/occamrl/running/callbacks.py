"""Callbacks: code of the user's that follows an agent while it learns.

A callback has any of the methods of :class:`Callback`. ``on_episode`` may return False to stop there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from occamrl.running.result import Result


class EpisodeReport(NamedTuple):
    """One episode, in the environment's own unit."""

    episode: int  # from 1
    realised_return: float
    regret: float | None  # exact; None where the truth is not known
    steps: int
    label: str  # of the phase
    facts: Mapping[str, Any]  # what was decided for the phase


class Callback:
    """What a callback may do; by default nothing."""

    def on_start(self, about: Mapping[str, Any]) -> None:
        """Learning begins; ``about`` names the agent, the environment, the seed and the horizon."""

    def on_episode(self, report: EpisodeReport) -> bool | None:
        """Take note of an episode; return False to stop."""

    def on_end(self, result: Result) -> None:
        """Learning is over, finished or stopped."""


def notify(callbacks: Sequence[Any], event: str, about: Any) -> bool:
    """Tell all callbacks of an event (start, episode, end); return whether to go on.

    Plain functions of an EpisodeReport are callbacks too.
    """
    answers = []
    for each in callbacks:
        method = getattr(each, f"on_{event}", None)
        if method is None and event == "episode":
            method = each
        if method is not None:
            answers.append(method(about))
    return not any(answer is False for answer in answers)

"""Code of the user's that follows an agent while it learns in an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from occamrl.errors import ParameterError
from occamrl.running.result import Result


class EpisodeReport(NamedTuple):
    """One episode, in the environment's own unit."""

    episode: int  # from 1
    realised_return: float
    regret: float | None  # exact; None where the truth is not known
    steps: int  # until the end
    facts: Mapping[str, Any]  # what was decided for the plan in force


class Callback:
    """Code of the user's that follows an agent while it learns; by default it does nothing."""

    def on_start(self, about: Mapping[str, Any]) -> None:
        """Learning begins; ``about`` names the agent, the environment, the seed and the horizon."""

    def on_episode(self, report: EpisodeReport) -> bool | None:
        """Take note of an episode; return False to stop."""

    def on_end(self, result: Result) -> None:
        """Learning is over, finished or stopped."""


class _OfEpisodes(Callback):
    """A function of episodes alone, as a callback."""

    def __init__(self, function: Callable[[EpisodeReport], bool | None]) -> None:
        self.function = function

    def on_episode(self, report: EpisodeReport) -> bool | None:
        """Call the function."""
        return self.function(report)


class Callbacks:
    """All that follow a run: a callback, a function of an EpisodeReport, or several of these."""

    def __init__(self, callbacks: Any) -> None:
        several = []
        if isinstance(callbacks, Iterable):
            several = list(callbacks)
        elif callbacks is not None:
            several = [callbacks]
        self.callbacks = [_as_callback(callback) for callback in several]
        self.go_on = True  # until one of them says False

    def start(self, about: Mapping[str, Any]) -> None:
        """Say that learning begins."""
        for callback in self.callbacks:
            callback.on_start(about)

    def episode(self, report: EpisodeReport) -> None:
        """Tell of an episode."""
        answers = [callback.on_episode(report) for callback in self.callbacks]
        self.go_on = not any(answer is False for answer in answers)

    def end(self, result: Result) -> None:
        """Say that learning is over."""
        for callback in self.callbacks:
            callback.on_end(result)


def _as_callback(callback: Any) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if not callable(callback):
        expected = "a Callback or a function"
        raise ParameterError("callbacks", got=repr(callback), expected=expected)
    return _OfEpisodes(callback)

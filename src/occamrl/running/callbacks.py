"""Being told, while an agent learns, how every episode and phase went; with adapters for what people log to.

A callback has any of the methods of :class:`Callback`. ``on_episode`` may return False to stop there.
Adapters import the package they write to when they are made; each comes with an extra: ``pip install
occamrl[tensorboard]``, ``[mlflow]``, ``[wandb]``.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from occamrl.errors import OccamRLError, require_integer

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


def told(callbacks: Sequence[Any], event: str, about: Any) -> bool:
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


class _Scalars(Callback):
    """Writes averages over every ``every`` episodes, and running sums, under fixed names."""

    def __init__(self, every: int) -> None:
        self.every = require_integer("every", every, 1)
        self._returns: list[float] = []
        self._total_regret = 0.0
        self._steps = 0

    @abstractmethod
    def write(self, scalars: Mapping[str, float], episode: int) -> None:
        """Write some numbers at an episode."""

    def on_episode(self, report: EpisodeReport) -> None:
        """Collect, and write when it is time to."""
        self._returns.append(report.realised_return)
        self._steps += report.steps
        if report.regret is not None:
            self._total_regret += report.regret
        if report.episode % self.every:
            return
        scalars = {"realised_return": sum(self._returns) / len(self._returns), "steps": float(self._steps)}
        if report.regret is not None:
            scalars["cumulative_regret"] = self._total_regret
        if isinstance(report.facts.get("chosen"), int):
            scalars["chosen"] = float(report.facts["chosen"])
        self._returns.clear()
        self.write(scalars, report.episode)


class TensorBoard(_Scalars):
    """Writes event files for TensorBoard, by tensorboardX."""

    def __init__(self, folder: str | Path, *, every: int = 10) -> None:
        super().__init__(every)
        self.writer = _needed("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def write(self, scalars: Mapping[str, float], episode: int) -> None:
        """Add scalars."""
        for name, value in scalars.items():
            self.writer.add_scalar(f"occamrl/{name}", value, episode)

    def on_end(self, result: Result) -> None:
        """Close the event file."""
        self.writer.add_text("occamrl/result", repr(result))
        self.writer.close()


class MLflow(_Scalars):
    """Logs metrics and parameters to MLflow: into the active run, or one that is begun and ended here."""

    def __init__(self, *, every: int = 10, **run: Any) -> None:
        super().__init__(every)
        self.mlflow = _needed("mlflow", "mlflow")
        self._own = self.mlflow.active_run() is None
        if self._own:
            self.mlflow.start_run(**run)

    def on_start(self, about: Mapping[str, Any]) -> None:
        """Log what is known beforehand."""
        self.mlflow.log_params(dict(about))

    def write(self, scalars: Mapping[str, float], episode: int) -> None:
        """Log metrics."""
        self.mlflow.log_metrics(dict(scalars), step=episode)

    def on_end(self, result: Result) -> None:
        """End the run, if it was begun here."""
        if self._own:
            self.mlflow.end_run()


class WeightsAndBiases(_Scalars):
    """Logs to Weights & Biases; offline unless ``mode`` says otherwise (``wandb sync`` uploads it later)."""

    def __init__(self, *, every: int = 10, mode: str = "offline", **run: Any) -> None:
        super().__init__(every)
        self.run = _needed("wandb", "wandb").init(mode=mode, **run)

    def on_start(self, about: Mapping[str, Any]) -> None:
        """Log what is known beforehand."""
        self.run.config.update(dict(about), allow_val_change=True)

    def write(self, scalars: Mapping[str, float], episode: int) -> None:
        """Log a step."""
        self.run.log(dict(scalars), step=episode)

    def on_end(self, result: Result) -> None:
        """Finish the run."""
        self.run.finish()


def _needed(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise OccamRLError(f"this callback needs {error.name}: pip install 'occamrl[{extra}]'") from error

"""Learning in a Gymnasium environment with Box or Discrete spaces, episode by episode.

Every reset is given a seed found at the address (seed, episode). A run stops at the end of an episode only, so that two
calls of n episodes equal one of 2n, to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from occamrl.control.agent import OccamControl
from occamrl.control.answer import Answer, draw_returns
from occamrl.control.ladder import Box
from occamrl.errors import EnvironmentFault, Interrupted, ParameterError, SpaceError, as_path, require_integer
from occamrl.protocols import Floats
from occamrl.running.identity import changes, identity
from occamrl.running.learn import EpisodeReport, notify
from occamrl.running.run import Progress, ctrl_c, generator
from occamrl.running.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class ControlResult:
    """What came of learning with simulators; ``agent`` is the one that has learned."""

    agent: OccamControl
    environment: str

    @property
    def total_episodes(self) -> int:
        """How many episodes were played."""
        return int(self.agent.state["episode"])

    @property
    def returns(self) -> Floats:
        """The return of every episode."""
        return np.array(self.agent.state["returns"])

    @property
    def answer(self) -> Answer:
        """The class, the member, what it is worth, where it misfits."""
        return self.agent.answer

    @property
    def verdict(self) -> Verdict:
        """Facts by name, and sentences."""
        return self.agent.verdict

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the return of every episode, on the current axes unless some are given."""
        import matplotlib.pyplot as plt

        return draw_returns(self.returns, plt.gca() if axes is None else axes)

    def page(self, path: str | Path) -> Path:
        """Write the answer as one HTML page."""
        return self.answer.page(path)

    def save(self, path: str | Path) -> None:
        """Write everything needed to go on to one file."""
        self.agent.save(path)

    def __repr__(self) -> str:
        return f"ControlResult({self.environment}, episodes={self.total_episodes:,}, seed={self.agent.seed})"


def learn_in(
    agent: OccamControl,
    env: Any,
    *,
    episodes: int,
    seed: int | None = None,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    continue_from: ControlResult | None = None,
    **others: Any,
) -> ControlResult:
    """Learn for some episodes; the arguments are those of :func:`occamrl.learn`. The agent given stays as it is."""
    for name in others:
        raise ParameterError(
            name, got=others[name], expected="nothing: simulators are learned with on the spaces as they are"
        )
    require_spaces(agent, env)
    name = str(getattr(getattr(env, "spec", None), "id", None) or type(getattr(env, "unwrapped", env)).__name__)
    path = None if checkpoint is None else as_path("checkpoint", checkpoint)
    target = require_integer("episodes", episodes, 1)
    if path is not None and path.exists():
        learned = agent.fresh(seed).load(path)
        target -= learned.state["episode"]
    elif continue_from is not None:
        learned = continue_from.agent.copy()
        if changed := changes(identity(learned), identity(agent.fresh(learned.seed if seed is None else seed))):
            raise ParameterError("continue_from", got=f"a run of another agent: {changed}", expected="the same agent")
    else:
        learned = agent.fresh(seed)
    listeners = list(callbacks) if isinstance(callbacks, Iterable) else [] if callbacks is None else [callbacks]
    result, first, saved = ControlResult(learned, name), learned.state["episode"], time.monotonic()
    bar = Progress("OccamControl", max(1, target), progress)
    notify(listeners, "start", {"agent": "OccamControl", "environment": name, "seed": learned.seed})
    try:
        with ctrl_c() as pressed:
            for number in range(first, first + target):
                learned = result.agent.copy()  # an episode that fails leaves no trace
                try:
                    report = play(learned, env, bar, number - first)
                except Exception as error:  # of someone else's environment, which may raise anything
                    at = (number, learned.state["step"])
                    fault = EnvironmentFault(
                        name, index=at, got=f"{type(error).__name__}: {error}", expected="a step without error"
                    )
                    fault.result = result
                    raise fault from error
                result = ControlResult(learned, name)
                if not notify(listeners, "episode", report):
                    break
                if pressed.is_set():
                    raise Interrupted(f"stopped after episode {number + 1:,} of {first + target:,}", result)
                if path is not None and time.monotonic() > saved + checkpoint_seconds:
                    result.save(path)
                    saved = time.monotonic()
    except KeyboardInterrupt as error:
        if isinstance(error, Interrupted):
            raise
        raise Interrupted(f"stopped after episode {result.total_episodes:,} of {first + target:,}", result) from error
    finally:
        bar.close()
        if path is not None:
            result.save(path)
        notify(listeners, "end", result)
    return result


def play(agent: OccamControl, env: Any, bar: Progress, done: int) -> EpisodeReport:
    """Play one episode."""
    number, total, step, ended = agent.state["episode"], 0.0, 0, False
    observation, _ = env.reset(seed=int(generator(agent.seed, "reset", number).integers(2**31)))
    while not ended:
        action = agent.act(observation)
        after, reward, terminated, truncated, _ = env.step(as_action(agent, env.action_space, action))
        step, total = step + 1, total + float(reward)
        ended = bool(terminated or truncated or step >= agent.ladder.horizon)
        agent.observe(observation, action, float(reward), after, ended)
        observation = after
        bar.label = f"OccamControl, {agent.state['evidence']['steps']:,} steps"
        bar.update(done + ended)
    return EpisodeReport(number + 1, total, None, step, agent.facts())


def as_action(agent: OccamControl, space: Any, action: Floats) -> Any:
    """Return an action as the environment wants it."""
    actions = agent.ladder.actions
    if isinstance(actions, Box):
        return np.clip(action, actions.low, actions.high).reshape(space.shape).astype(space.dtype)
    return int(np.abs(actions.values - action).sum(axis=1).argmin() + space.start)


def require_spaces(agent: OccamControl, env: Any) -> None:
    """Refuse spaces that do not fit the simulators."""
    seen, chosen, actions = env.observation_space, env.action_space, agent.ladder.actions
    if not isinstance(seen, spaces.Box) or int(np.prod(seen.shape)) != agent.dimension:
        expected = f"a Box of {agent.dimension} numbers, the states of the simulators"
        raise SpaceError("observation_space", got=seen, expected=expected)
    if isinstance(actions, Box):
        fits, size = isinstance(chosen, spaces.Box), actions.dimension
        if not fits or int(np.prod(chosen.shape)) != size:
            raise SpaceError("action_space", got=chosen, expected=f"a Box of {size} numbers, as actions of the ladder")
    elif not isinstance(chosen, spaces.Discrete) or int(chosen.n) != len(actions.values):
        expected = f"Discrete({len(actions.values)}), as the list of actions of the ladder"
        raise SpaceError("action_space", got=chosen, expected=expected)

"""Learning in a Gymnasium environment with Box or Discrete spaces, episode by episode.

Every reset is given a seed found at the address (seed, episode). A run stops at the end of an
episode only, so that two calls of n episodes equal one of 2n, to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from occamrl.addresses import generator
from occamrl.control.agent import OccamControl
from occamrl.control.ladder import Box
from occamrl.errors import (
    EnvironmentFault,
    Interrupted,
    ParameterError,
    SpaceError,
    as_path,
    require_integer,
    require_kind,
)
from occamrl.running.identity import changes, identity
from occamrl.running.learn import EpisodeReport, notify
from occamrl.running.progress import Progress, ctrl_c


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
    continue_from: OccamControl | None = None,
    **others: Any,
) -> OccamControl:
    """Return an agent that has learned; the arguments are those of :func:`occamrl.learn`. The one given stays as it is.

    ``continue_from`` is what an earlier call returned.
    """
    for name, value in others.items():
        raise ParameterError(name, got=value, expected="nothing: spaces are taken as they are")
    require_spaces(agent, env)
    name = str(
        getattr(getattr(env, "spec", None), "id", None)
        or type(getattr(env, "unwrapped", env)).__name__
    )
    path = None if checkpoint is None else as_path("checkpoint", checkpoint)
    end, result = require_integer("episodes", episodes, 1), agent.fresh(seed)
    if path is not None and path.exists():
        if continue_from is not None:
            raise ParameterError(
                "checkpoint", got=f"{path}, which exists", expected="no continue_from beside it"
            )
        result = result.load(path)
    elif continue_from is not None:
        require_kind("continue_from", continue_from, OccamControl)
        result = agent.fresh(continue_from.seed if seed is None else seed)
        if changed := changes(identity(continue_from), identity(result)):
            raise ParameterError(
                "continue_from", got=f"another agent: {changed}", expected="the same agent"
            )
        result = continue_from.fresh(state=continue_from.state)
        result.begin_episode()
        end += result.total_episodes
    listeners = (
        list(callbacks)
        if isinstance(callbacks, Iterable)
        else []
        if callbacks is None
        else [callbacks]
    )
    for each in listeners:
        if not callable(getattr(each, "on_episode", each)):
            raise ParameterError("callbacks", got=repr(each), expected="a Callback or a function")
    first, saved = result.total_episodes, time.monotonic()
    bar = Progress("OccamControl", max(1, end - first), progress)
    notify(listeners, "start", {"agent": "OccamControl", "environment": name, "seed": result.seed})
    try:
        with ctrl_c() as pressed:
            while result.total_episodes < end:
                learned = result.fresh(state=result.state)  # an episode that fails leaves no trace
                try:
                    report = play(learned, env, name, bar, first)
                except EnvironmentFault as fault:
                    fault.result = result
                    raise
                result = learned
                if not notify(listeners, "episode", report):
                    break
                if pressed.is_set():
                    raise KeyboardInterrupt
                if path is not None and time.monotonic() > saved + checkpoint_seconds:
                    result.save(path)
                    saved = time.monotonic()
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped after episode {result.total_episodes:,} of {end:,}", result
        ) from error
    finally:
        bar.close()
        if path is not None:
            result.save(path)
        notify(listeners, "end", result)
    return result


def play(agent: OccamControl, env: Any, name: str, bar: Progress, first: int) -> EpisodeReport:
    """Play one episode of those that began with ``first``."""
    actions, space = agent.ladder.actions, env.action_space
    number, total, step, ended = agent.total_episodes, 0.0, 0, False

    def asked(method: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(*given, **named)
        except Exception as error:  # of someone else's environment, which may raise anything
            got, expected = f"{type(error).__name__}: {error}", "a step without error"
            raise EnvironmentFault(
                name, index=(number, step), got=got, expected=expected
            ) from error

    observation, _ = asked(
        env.reset, seed=int(generator(agent.seed, "reset", number).integers(2**31))
    )
    while not ended:
        action = agent.act(observation)
        if isinstance(actions, Box):
            action = np.clip(
                action, actions.low, actions.high
            )  # a planner of others may leave the box
            chosen: Any = action.reshape(space.shape).astype(space.dtype)
        else:
            nearest = int(np.abs(actions.values - action).sum(axis=1).argmin())
            action, chosen = actions.values[nearest], nearest + int(space.start)
        after, reward, terminated, truncated, _ = asked(env.step, chosen)
        step, total = step + 1, total + float(reward)
        ended = bool(terminated or truncated or step >= agent.ladder.horizon)
        agent.observe(observation, action, float(reward), after, ended)
        observation = after
        bar.label = f"OccamControl, {agent.state['evidence']['steps']:,} steps"
        bar.update(number + ended - first)
    return EpisodeReport(number + 1, total, None, step, agent.facts())


def require_spaces(agent: OccamControl, env: Any) -> None:
    """Refuse spaces that do not fit the simulators."""
    actions = agent.ladder.actions
    chosen = (
        (spaces.Box, actions.dimension)
        if isinstance(actions, Box)
        else (spaces.Discrete, len(actions.values))
    )
    for name, (kind, size) in {
        "observation_space": (spaces.Box, agent.dimension),
        "action_space": chosen,
    }.items():
        space: Any = getattr(env, name, None)
        if (
            not isinstance(space, kind)
            or int(getattr(space, "n", np.prod(space.shape or ()))) != size
        ):
            raise SpaceError(
                name, got=space, expected=f"a {kind.__name__} of {size}, as the simulators have"
            )
    if isinstance(actions, Box):
        space = env.action_space
        inside = np.all(space.low.ravel() <= actions.low + 1e-6) and np.all(
            actions.high - 1e-6 <= space.high.ravel()
        )
        if not inside:
            raise SpaceError(
                "action_space", got=space, expected=f"one that contains the simulators' {actions!r}"
            )

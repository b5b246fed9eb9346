"""``learn``: an agent in a real environment, with the functions of the fused loop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from occamrl.contracts import Agent, Known
from occamrl.environments.discretiser import Discretiser
from occamrl.environments.finite import FiniteEnvironment, require_finite
from occamrl.environments.misbehaviour import EnvironmentFault
from occamrl.errors import Interrupted, ParameterError
from occamrl.problems.checks import require_integer
from occamrl.runs.callbacks import Callbacks, EpisodeReport
from occamrl.runs.identity import fingerprint
from occamrl.runs.interrupts import ctrl_c
from occamrl.runs.learned import Learned
from occamrl.runs.learned_files import load_learned, require_continues, save_learned
from occamrl.runs.progress import Progress
from occamrl.runs.session import Episode, Session

_PIECE, _PIECE_SECONDS = 256, 0.2  # episodes, or seconds, between two times that notes are taken


def learn(
    agent: Agent,
    env: gym.Env[Any, Any] | FiniteEnvironment,
    *,
    episodes: int,
    seed: int | None = None,
    known: Known | None = None,
    horizon: int | None = None,
    reward_range: Sequence[float] | None = None,
    discretiser: Discretiser | None = None,
    allow_truncation: bool = False,
    replay: bool = True,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 30.0,
    progress: bool | None = None,
    continue_from: Learned | None = None,
) -> Learned:
    """Let an agent learn in a Gymnasium environment.

    Parameters
    ----------
    agent : learner or selector
    env : gymnasium.Env or FiniteEnvironment
        With finite spaces, or a ``discretiser`` for its Box.
    episodes : int
        How many to play, in addition to those of ``continue_from``. With a ``checkpoint`` that exists: until there are
        this many in all, so that a command that was stopped is simply given again.
    seed : int, optional
        Every reset is given a seed found at the address (seed, episode); 0 by default.
    known, horizon, reward_range, discretiser
        See :class:`FiniteEnvironment`.
    allow_truncation : bool
        Learn from episodes that are truncated before the horizon (the steps seen) instead of raising EpisodeCutShort.
    replay : bool
        Play a few episodes twice, without learning, to see whether the environment follows its seed. Say False for what
        cannot be repeated, such as a plant.
    callbacks : Callback, function of an EpisodeReport, or several
    checkpoint : path, optional
        Save there every ``checkpoint_every`` seconds, at the end, and when something goes wrong; go on from there.
    progress : bool, optional
        Show progress; by default when it takes longer than a second.
    continue_from : Learned, optional
        Go on from an earlier result; both together equal one uninterrupted call, to the bit.

    Raises
    ------
    EnvironmentFault
        The environment misbehaved; the error's ``result`` holds what was learned before, and so does ``checkpoint``.
    Interrupted
        Ctrl-C, at an episode boundary (a second one does not wait for it), with the ``result`` so far.
    """
    about = {"known": known, "horizon": horizon, "reward_range": reward_range, "discretiser": discretiser}
    environment = require_finite(env, **about)
    require_integer("episodes", episodes, 1)
    path = None if checkpoint is None else Path(checkpoint)
    earlier, target = continue_from, episodes
    if path is not None and path.exists():
        if continue_from is not None:
            raise ParameterError("checkpoint", got=f"{path}, which exists", expected="no continue_from beside it")
        earlier = load_learned(path, agent)
        target = episodes - earlier.total_episodes
    if earlier is not None:
        require_continues(earlier, agent, environment, seed)
        seed = earlier.seed
    session = Session(agent, environment, 0 if seed is None else seed, earlier)
    if target <= 0:
        return session.result()
    save = _Saver(session, path, checkpoint_every)
    told = Callbacks(callbacks)
    told.start({"agent": type(agent).__name__, "agent_fingerprint": fingerprint(agent), **_described(session)})
    try:
        _play(session, target, allow_truncation, replay, told, save, progress)
    except EnvironmentFault as error:
        error.result = session.result()
        raise
    finally:
        save(at_once=True)
        told.end(session.result())
    return session.result()


def _play(
    session: Session,
    episodes: int,
    allow_truncation: bool,
    replay: bool,
    told: Callbacks,
    save: _Saver,
    progress: bool | None,
) -> None:
    first, end = session.episode, session.episode + episodes
    environment = session.environment
    bar = Progress(type(session.agent).__name__, episodes, progress, measure="realised return")
    with ctrl_c(may_raise=lambda: session.waiting) as pressed:
        while session.episode < end:
            size = min(1 if told else _PIECE, end - session.episode, session.walk.remaining or _PIECE)
            label, facts = session.walk.phase.label, session.walk.phase.facts
            played: list[Episode] = []
            fault: BaseException | None = None
            due = time.monotonic() + _PIECE_SECONDS
            try:
                while len(played) < size and fault is None and not pressed.is_set() and time.monotonic() < due:
                    played.append(session.play(allow_truncation=allow_truncation))
                    fault = played[-1].fault
                    if replay and fault is None and session.wants_replay(first):
                        session.replay(played[-1].steps, played[-1].realised)
            except KeyboardInterrupt as error:
                fault = error
            finally:
                session.advance(played)
            go_on = True
            for number, each in enumerate(played, start=session.episode - len(played) + 1):
                regret = each.regret * environment.rewards.scale if environment.mdp is not None else None
                if told:
                    go_on = told.episode(EpisodeReport(number, each.realised, regret, each.steps, label, facts))
            if isinstance(fault, EnvironmentFault):
                raise fault
            if pressed.is_set() or fault is not None:
                bar.close()
                raise Interrupted(f"stopped after episode {session.episode:,} of {end:,}", session.result())
            save()
            bar.update(session.episode - first, session.recorder.total_return)
            if not go_on:
                break
    bar.close()


class _Saver:
    """Saves what was learned, now and then."""

    def __init__(self, session: Session, path: Path | None, every: float) -> None:
        self.session, self.path, self.every = session, path, every
        self.last = time.monotonic()

    def __call__(self, *, at_once: bool = False) -> None:
        if self.path is not None and (at_once or time.monotonic() - self.last >= self.every):
            save_learned(self.session.result(), self.path)
            self.last = time.monotonic()


def _described(session: Session) -> dict[str, Any]:
    environment = session.environment
    return {"environment": environment.name, "seed": session.seed, "horizon": environment.known.horizon}

"""``run``: play an agent on a problem and account for every episode.

The compiled loop plays chunks of episodes; between chunks there is time for progress, for Ctrl-C, and for selectors to
change the phase. Chunks change nothing: random numbers belong to episodes, sums run in order.
"""

from __future__ import annotations

import time

import numpy as np

from occamrl import seeding
from occamrl.contracts import Agent, Problem
from occamrl.errors import Interrupted, ParameterError
from occamrl.kernels.episodes import play
from occamrl.problems.finite_mdp import FiniteMDP, as_mdp
from occamrl.runs.identity import fingerprint
from occamrl.runs.interrupts import ctrl_c
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.progress import Progress
from occamrl.runs.recording import KEEP_ALL_UNTIL, Recorder
from occamrl.runs.result import Result

_CHUNK_SECONDS = 0.1
_LARGEST_CHUNK = 2**16


def run(
    agent: Agent,
    mdp: FiniteMDP | Problem,
    *,
    episodes: int,
    seed: int | None = None,
    progress: bool | None = None,
    keep_all_until: int = KEEP_ALL_UNTIL,
    continue_from: Result | None = None,
) -> Result:
    """Play ``agent`` on ``mdp`` for a number of episodes.

    Parameters
    ----------
    agent : learner or selector
    mdp : FiniteMDP, or a problem that has one
    episodes : int
        How many episodes to play (in addition to those of ``continue_from``).
    seed : int, optional
        The address of the environment's draws, 0 by default. Two agents with the same seed meet the same numbers.
    progress : bool, optional
        Show progress on standard error; by default only when the run takes longer than a second.
    keep_all_until : int
        Every episode's regret is kept up to this one, log-spaced ones after it.
    continue_from : Result, optional
        Go on where an earlier run ended; the result covers both, and equals that of one uninterrupted run. The agent
        must have the same parameters, the mdp must be the same; the seed is taken from the earlier run.

    Returns
    -------
    Result

    Raises
    ------
    Interrupted
        On Ctrl-C, at an episode boundary, with everything so far in its ``result``.
    """
    problem = as_mdp(mdp)
    if isinstance(episodes, bool) or not isinstance(episodes, (int, np.integer)) or episodes < 1:
        raise ParameterError("episodes", got=episodes, expected="an integer >= 1")
    if isinstance(keep_all_until, bool) or not isinstance(keep_all_until, (int, np.integer)) or keep_all_until < 0:
        raise ParameterError("keep_all_until", got=keep_all_until, expected="an integer >= 0")
    if continue_from is None:
        root = 0 if seed is None else seed
        environment_key, agent_key = seeding.key(root, "environment"), seeding.key(root, "agent")
        walk, recorder = PhaseWalk(agent, problem.known), Recorder(int(keep_all_until))
        plans, pessimistic, before = 0, 0, 0.0
    else:
        _require_same(continue_from, agent, problem, seed)
        root = continue_from.seed
        environment_key, agent_key = seeding.key(root, "environment"), seeding.key(root, "agent")
        walk, recorder = continue_from.walk.fork(), continue_from.recorder.fork()
        plans, pessimistic = continue_from.plans, continue_from.pessimistic_episodes
        before = continue_from.wall_time
    label = type(agent).__name__
    began = time.perf_counter()

    def result() -> Result:
        spent = before + time.perf_counter() - began
        about = {"wall_time": spent, "seed": int(root), "label": label, "agent": agent, "mdp": problem}
        return Result.of(recorder, walk, plans=plans, pessimistic_episodes=pessimistic, **about)

    truth = problem.truth
    end = recorder.episodes + int(episodes)
    uniforms, achieved = np.zeros(problem.horizon + 1 + (problem.horizon + 1) % 2), np.zeros((2, problem.states))
    bar = Progress(label, int(episodes), progress)
    chunk = 16
    with ctrl_c() as pressed:
        while recorder.episodes < end:
            size = min(chunk, end - recorder.episodes, walk.remaining or chunk)
            walk.reserve(size)
            regret, returns = np.empty(size), np.empty(size)
            tick = time.perf_counter()
            made, short = play(
                walk.model,
                walk.state,
                truth,
                environment_key,
                agent_key,
                recorder.episodes,
                regret,
                returns,
                uniforms,
                achieved,
            )
            spent = time.perf_counter() - tick
            if size == chunk and spent < _CHUNK_SECONDS:
                chunk = min(2 * chunk, _LARGEST_CHUNK)
            plans += made
            pessimistic += short
            recorder.add(regret, returns)
            walk.advance(made, returns, regret)
            bar.update(recorder.episodes - (end - int(episodes)), recorder.total_regret)
            if pressed.is_set():  # even after the last episode: somebody wants to stop what calls us
                bar.close()
                raise Interrupted(f"stopped after episode {recorder.episodes:,} of {end:,}", result())
    bar.close()
    return result()


def _require_same(earlier: Result, agent: Agent, problem: FiniteMDP, seed: int | None) -> None:
    """Refuse to continue a run with another agent, problem or seed: the result would be of neither."""
    if not isinstance(earlier, Result):
        raise ParameterError("continue_from", got=type(earlier).__name__, expected="the Result of an earlier run")
    if agent is not earlier.agent and fingerprint(agent) != fingerprint(earlier.agent):
        raise ParameterError("continue_from", got=f"a run of another {earlier.label}", expected=f"one of {agent!r}")
    if problem is not earlier.mdp and problem.fingerprint != earlier.mdp.fingerprint:
        raise ParameterError("continue_from", got=f"a run on {earlier.mdp!r}", expected=f"one on {problem!r}")
    if seed is not None and seed != earlier.seed:
        raise ParameterError("seed", got=seed, expected=f"{earlier.seed}, that of the earlier run")

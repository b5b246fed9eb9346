"""Runs that survive their process: they go on from a checkpoint, and write new ones on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from occamrl.errors import CheckpointError, Interrupted, Stopped
from occamrl.experiments.pool import Listener
from occamrl.files import Entry
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Learner
from occamrl.running.result import Result
from occamrl.running.run import Run, Simulator
from occamrl.running.storage import load_from, save_to

CHECKPOINT_SECONDS = 30.0  # between two checkpoints


def earlier_result(
    file: Entry, agent: Learner, mdp: FiniteMDP, seed: int, episodes: int
) -> Result | None:
    """Return what a file holds of a run; None without a file.

    One of another run is refused and left in place.
    """
    if not file.exists():
        return None
    result = load_from(file, agent, mdp)
    if result.seed != seed or result.total_episodes > episodes:
        raise CheckpointError(
            str(file),
            got=f"seed {result.seed}, {result.total_episodes:,} episodes",
            expected=f"seed {seed}, at most {episodes:,}; or another folder",
        )
    return result


def play_from_checkpoint(
    agent: Learner,
    mdp: FiniteMDP,
    seed: int,
    episodes: int,
    file: Entry,
    *,
    seconds: float,
    say: Listener,
    stop: Callable[[], bool],
) -> Result:
    """Play a run from its checkpoint in a file, if there is one, to its end.

    A checkpoint is written every ``seconds`` seconds. When ``stop()`` says so, or on Ctrl-C, it
    ends with :class:`Stopped` at the next block boundary, after a checkpoint.
    """
    run = Run(agent, Simulator(mdp), seed, earlier_result(file, agent, mdp, seed, episodes))
    written = time.monotonic()

    def after_block(result: Result) -> bool:
        nonlocal written
        # A run that has ended is written by the caller, in the caller's format.
        if time.monotonic() - written >= seconds and result.total_episodes < episodes:
            save_to(file, result)
            written = time.monotonic()
        say({"event": "progress", "episodes": result.total_episodes, "total": episodes})
        return not stop()

    missing = episodes - run.result.total_episodes
    if missing and not stop():
        with suppress(Interrupted):
            run.play(missing, progress=False, after=after_block)
    if run.result.total_episodes < episodes:
        if run.result.total_episodes:
            save_to(file, run.result)
        raise Stopped(f"stopped after episode {run.result.total_episodes:,}")
    return run.result

"""Ctrl-C stops a run at an episode boundary; what is left to do gives the same bits as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from occamrl.errors import Interrupted
from occamrl.learners.baselines import UniformRandom
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.problems.classic import RiverSwim
from occamrl.running.run import run
from tests.cases import bits

PROBLEM = RiverSwim(states=3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Called(UCRLVTRLin):
    """UCRL-VTR-LIN that calls somebody whenever it is asked to make room, that is between chunks."""

    call: Callable[[], None] = lambda: None

    def reserve(self, state: Any, episodes: int) -> Any:
        self.call()
        return super().reserve(state, episodes)


def learner(call: Callable[[], None] = lambda: None) -> Called:
    return Called(features=FeatureMap.tabular(states=3, actions=2), norm_bound=2.0, call=call)


def test_what_was_interrupted_goes_on_to_the_same_bits() -> None:
    whole = run(learner(), PROBLEM, episodes=2_000, seed=1, progress=False)
    pending = [False, False, True]  # the third chunk is being prepared when Ctrl-C is pressed

    def press() -> None:
        if pending and pending.pop(0):
            signal.raise_signal(signal.SIGINT)

    agent = learner(press)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as caught:
        run(agent, PROBLEM, episodes=2_000, seed=1, progress=False)
    assert signal.getsignal(signal.SIGINT) is before
    assert not isinstance(caught.value, Exception)  # no handler of errors swallows it
    result: Any = caught.value.result
    assert 0 < result.total_episodes < 2_000
    assert f"stopped after episode {result.total_episodes:,} of 2,000" in str(caught.value)
    assert result.regret.size == result.total_episodes
    np.testing.assert_array_equal(result.regret, whole.regret[: result.total_episodes])
    rest = run(agent, PROBLEM, episodes=2_000 - result.total_episodes, progress=False, continue_from=result)
    assert rest.regret.tobytes() == whole.regret.tobytes()
    assert rest.total_return == whole.total_return
    assert bits(rest.state) == bits(whole.state)


def test_ctrl_c_in_the_last_chunk_is_not_lost_and_neither_is_the_result() -> None:
    """Whoever presses it wants to stop what calls ``run``, too."""
    agent = learner(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted) as caught:
        run(agent, PROBLEM, episodes=1, progress=False)
    result: Any = caught.value.result
    assert result.total_episodes == 1


def test_the_handler_of_the_caller_is_back_after_a_mistake() -> None:
    before = signal.getsignal(signal.SIGINT)

    def fail() -> None:
        raise RuntimeError("a bug in a learner")

    with pytest.raises(RuntimeError):
        run(learner(fail), PROBLEM, episodes=5, progress=False)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_outside_the_main_thread_leaves_signals_alone() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(UniformRandom(), PROBLEM, episodes=20, progress=False)))
    thread.start()
    thread.join()
    assert results[0].regret.tobytes() == run(UniformRandom(), PROBLEM, episodes=20, progress=False).regret.tobytes()


SCRIPT = """
import occamrl as orl

class Telling(orl.UniformRandom):
    def reserve(self, state, episodes):
        print("playing", flush=True)
        return state

try:
    orl.run(Telling(), orl.make_problem("river-swim", states=3), episodes=10**12, progress=False)
except orl.Interrupted as stop:
    print("stopped", stop.result.total_episodes, stop.result.recorder.episodes, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_a_signal_from_outside_stops_a_run() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "playing\n"
        process.send_signal(signal.SIGINT)
        last = process.stdout.read().splitlines()[-1].split()
    assert process.returncode == 0
    assert last[0] == "stopped"
    assert int(last[1]) == int(last[2]) > 0

"""Wrong arguments and huge sizes: errors with a type, before memory is taken."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import ParameterError
from occamrl.progress import AGAIN_AFTER, insistent_ctrl_c
from studies.calls import calls

HUGE = 10**9
UNIFORM = np.full((3, 2, 3), 1.0 / 3.0)


def endless(state: int, action: int, *, chance: float = 0.5) -> Iterator[tuple[float, int, float]]:
    yield chance, state, 0.0
    yield 1.0 - chance, 1 - state, float(action)


def model(**changes: object) -> orl.Model:
    options = {"start": 0, "actions": [0, 1], "horizon": 4, "parameters": {"chance": (0.1, 0.9)}}
    return orl.Model(endless, **{**options, **changes})  # type: ignore[arg-type]  # of all kinds


SIZES: dict[str, Callable[[], object]] = {
    "chain": lambda: orl.make_problem("river-swim", states=HUGE),
    "mixture": lambda: orl.make_problem("sparse-mixture", states=HUGE),
    "shelf": lambda: orl.make_problem("LostSales", shelf=HUGE).mdp,
    "tabular": lambda: orl.FeatureMap.tabular(states=HUGE, actions=2),
    "tabular of many": lambda: orl.FeatureMap.tabular(states=10**5, actions=10),
    "sizes": lambda: orl.Known.of_sizes(states=HUGE, actions=2, horizon=4),
    "horizon": lambda: orl.FiniteMDP(transition=UNIFORM, reward=np.zeros((3, 2)), horizon=HUGE),
    "actions": lambda: model(actions=range(HUGE)),
    "horizon of a model": lambda: model(horizon=HUGE).mdp(chance=0.5),
}


@pytest.mark.parametrize("make", SIZES.values(), ids=SIZES.keys())
def test_huge_sizes_are_refused_before_memory_is_taken(make: Callable[[], object]) -> None:
    with pytest.raises(ParameterError, match=r"1,?000,?000,?00|100,000"):
        make()


def test_what_random_calls_raise_has_a_type(tmp_path: Path) -> None:
    counts = calls(tmp_path, 200, seed=1)
    assert sum(counts.values()) == 200
    assert "raw" not in counts


def test_wrong_arguments_are_refused_by_name(tmp_path: Path) -> None:
    result = orl.run(orl.UniformRandom(), model().mdp(chance=0.5), episodes=3)
    with pytest.raises(orl.InvalidInput, match="colour"):
        result.plot(colour="red")
    with pytest.raises(orl.InvalidInput, match="axes"):
        result.plot_policy(axes=3)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(orl.InvalidInput, match="path"):
        result.page(tmp_path / ("n" * 5_000))
    with pytest.raises(orl.InvalidInput, match="log"):
        orl.read_log("n" * 5_000)
    with pytest.raises(orl.InvalidInput, match="episodes"):
        orl.checks.check_learner(orl.PSRL(), model().mdp(chance=0.5), episodes=0)
    for table in (np.full((2, 2), np.nan), np.array(np.nan)):
        with pytest.raises(orl.InvalidInput, match="log"):
            orl.read_log(table)
    with pytest.raises(orl.InvalidInput, match="continuing"):
        model(continuing=np.full(2, np.nan))
    with pytest.raises(orl.InvalidInput, match="progress"):
        orl.run(orl.PSRL(), model().mdp(chance=0.5), episodes=3, progress=np.zeros(0))  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(orl.InvalidInput, match="shape"):
        orl.Discretiser(edges=[[0.0, 1.0]], shape="one")  # type: ignore[arg-type]  # what is tested
    mixture = orl.make_problem("sparse-mixture", seed=0)
    with pytest.raises(orl.InvalidInput, match="values"):
        orl.paper.excitation(orl.FeatureMap(mixture.phi), mixture, values=np.full(3, np.nan))


class Deaf:
    """Whose end is a callback of C, in which an exception is lost."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_is_lost_in_a_callback_is_pressed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def wait() -> None:
        Deaf()
        time.sleep(60.0)

    with pytest.raises(KeyboardInterrupt), insistent_ctrl_c():
        wait()
    assert len(lost) == 1
    time.sleep(1.2 * AGAIN_AFTER)  # nothing is pressed any more

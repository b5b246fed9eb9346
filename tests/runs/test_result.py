"""Which episodes are kept, and what a result can do: totals, tables, files, figures, progress."""

from __future__ import annotations

import gc
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from numba.core import event

from occamrl._core.compile import GETTING_CODE, compiled
from occamrl.learners.baselines import UniformRandom
from occamrl.problems.classic import RiverSwim
from occamrl.running import run as progress_module
from occamrl.running.phases import PhaseWalk
from occamrl.running.result import KEEP_ALL_UNTIL, POINTS_PER_DECADE, Recorder, Result, kept_episodes, thin
from occamrl.running.run import Progress, Run, Simulator, run

cuts = st.lists(st.integers(1, 4_000), min_size=1, max_size=8)


@given(pieces=cuts, start=st.integers(0, 10**9), keep=st.one_of(st.integers(0, 3_000), st.integers(10**8, 10**10)))
def test_the_kept_episodes_do_not_depend_on_the_chunks(pieces: list[int], start: int, keep: int) -> None:
    whole = kept_episodes(start + 1, start + sum(pieces), keep)
    first, parts = start + 1, []
    for piece in pieces:
        parts.append(kept_episodes(first, first + piece - 1, keep))
        first += piece
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (np.diff(whole) > 0).all()
    assert ((whole > start) & (whole <= start + sum(pieces))).all()
    early = min(keep, start + sum(pieces))
    np.testing.assert_array_equal(whole[whole <= keep], np.arange(start + 1, early + 1))


def test_marks_are_dense_in_the_logarithm_and_few() -> None:
    """A thousand a decade: neighbours are within 0.24 % of each other, give or take one episode."""
    kept = kept_episodes(1, 10**10, 10**4)
    assert kept[0] == 1
    assert kept.size <= 10**4 + 6 * POINTS_PER_DECADE + 2
    late = kept[kept >= 10**4]
    assert (late[1:] <= np.ceil(late[:-1] * 10 ** (1.0 / POINTS_PER_DECADE)) + 1).all()
    assert set(10 ** np.arange(4, 11)) <= set(kept.tolist())


values = st.lists(st.floats(0, 50), min_size=1, max_size=200)


@given(regret=values, cuts=st.lists(st.integers(0, 200), max_size=6), keep=st.integers(0, 100))
def test_a_recorder_is_the_same_to_the_bit_however_it_is_fed(regret: list[float], cuts: list[int], keep: int) -> None:
    data, returns = np.array(regret), np.array(regret)[::-1] / 3
    whole, pieces = Recorder(keep), Recorder(keep)
    whole.add(data, returns)
    edges = [0, *sorted(min(cut, data.size) for cut in cuts), data.size]
    for a, b in itertools.pairwise(edges):
        pieces.add(data[a:b], returns[a:b])
        pieces = Recorder.from_tree(pieces.to_tree())
    for one, other in zip(whole.curves(), pieces.curves(), strict=True):
        assert one.tobytes() == other.tobytes()
    assert (whole.episodes, *whole.totals) == (pieces.episodes, *pieces.totals)
    _, kept, cumulative, _ = whole.curves()
    numbers = whole.curves()[0].astype(int)
    np.testing.assert_array_equal(kept, data[numbers - 1])
    np.testing.assert_array_equal(cumulative, np.cumsum(data)[numbers - 1])
    assert numbers[-1] == data.size
    assert whole.totals[0] == np.cumsum(data)[-1]


def test_a_long_run_keeps_all_of_its_first_episodes_and_few_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = RiverSwim(states=2, horizon=1)
    every = run(UniformRandom(), problem, episodes=5_000, progress=False)
    monkeypatch.setattr(Simulator, "keep_all_until", 100)
    whole = run(UniformRandom(), problem, episodes=5_000, progress=False)
    half = run(UniformRandom(), problem, episodes=1_234, progress=False)
    rest = run(UniformRandom(), problem, episodes=5_000 - 1_234, progress=False, continue_from=half)
    assert every.episodes.size == 5_000 <= KEEP_ALL_UNTIL
    assert half.episodes[-1] == 1_234
    np.testing.assert_array_equal(rest.episodes, whole.episodes)
    np.testing.assert_array_equal(whole.cumulative_regret, every.cumulative_regret[whole.episodes - 1])
    assert whole.episodes.size < 2_000
    assert whole.total_regret == every.total_regret == every.regret.cumsum()[-1]


PROBLEM = RiverSwim(states=3)


def uniform(episodes: int = 40, **options: Any) -> Result:
    return run(UniformRandom(), PROBLEM, episodes=episodes, seed=3, **{"progress": False, **options})


def test_the_regret_of_a_result_is_exact() -> None:
    result = uniform()
    gap = PROBLEM.mdp.optimal_value - PROBLEM.mdp.evaluate(np.full((12, 3, 2), 0.5))[0, 0]
    np.testing.assert_allclose(result.regret, np.full(40, gap), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(result.cumulative_regret, np.cumsum(result.regret))
    assert result.total_regret == result.cumulative_regret[-1]
    assert result.total_episodes == 40
    assert result.total_return == pytest.approx(result.returns.sum())
    assert (result.seed, result.label, result.plans, result.pessimistic_episodes) == (3, "UniformRandom", 1, 0)
    assert result.wall_time > 0.0
    assert repr(result).startswith("Result(UniformRandom, 40 episodes, regret")
    assert result.phases.to_pylist() == [
        {
            "epoch": 0,
            "label": "UniformRandom",
            "episodes": 40,
            "regret": result.total_regret,
            "plans": 1,
            "realised_return": result.total_return,
            "first_episode": 1,
        }
    ]


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    result, path = uniform(), tmp_path / "curve.parquet"
    result.to_parquet(path)
    table = pq.read_table(path)
    assert table.column_names == ["episode", "regret", "cumulative_regret", "realised_return"]
    np.testing.assert_array_equal(table["episode"].to_numpy(), np.arange(1, 41))
    np.testing.assert_array_equal(table["cumulative_regret"].to_numpy(), result.cumulative_regret)
    metadata = table.schema.metadata
    assert metadata is not None
    about = json.loads(metadata[b"occamrl"])
    assert about == {"label": "UniformRandom", "seed": 3, "plans": 1, "total_regret": result.total_regret}
    assert [file.name for file in tmp_path.iterdir()] == ["curve.parquet"]
    assert uniform(10, continue_from=result).wall_time > result.wall_time


def test_a_plot_shows_the_cumulative_regret() -> None:
    result, figure = uniform(), pyplot.figure()
    axes = result.plot()
    assert axes.figure is figure
    pyplot.close(figure)
    (line,) = axes.get_lines()
    np.testing.assert_array_equal(np.asarray(line.get_xdata()), result.episodes)
    np.testing.assert_array_equal(np.asarray(line.get_ydata()), result.cumulative_regret)
    assert line.get_label() == "UniformRandom"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("episode", "cumulative regret")
    assert result.plot(axes, label="again", color="black") is axes
    assert [each.get_label() for each in axes.get_lines()] == ["UniformRandom", "again"]


def test_a_long_curve_is_thinned_with_its_ends() -> None:
    numbers = np.arange(1, 1_000_001)
    at = thin(numbers)
    assert at.size <= 2_000
    assert (at[0], at[-1]) == (0, numbers.size - 1)
    assert (np.diff(at) > 0).all()
    assert set(range(10)) <= set(at.tolist())  # early episodes, in the logarithm
    np.testing.assert_array_equal(thin(numbers[:500]), np.arange(500))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_that_renews_itself_on_a_terminal_and_plain_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_module, "PLAIN_EVERY", 0.0)
    monkeypatch.setattr(progress_module, "TERMINAL_EVERY", 0.0)
    streams = io.StringIO(), Terminal()
    for stream in streams:
        bar = Progress("agent", 200, True, stream)
        for done in (50, 100, 200):
            bar.update(done, 12.5)
        bar.close()
    plain, renewed = (stream.getvalue() for stream in streams)
    assert "\r" not in plain
    assert "\x1b" not in plain
    assert plain.splitlines()[1].startswith("agent: 200 of 200 episodes (100%), regret 12.5, ")
    assert renewed.count("\r\x1b[K") == 2
    assert renewed.index("\n") == len(renewed) - 1


def test_compiling_is_told_as_such_and_counts_in_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(perf_counter=lambda: now))
    stream, silent = io.StringIO(), io.StringIO()
    bars = [Progress("agent", 200, show, each) for show, each in ((True, stream), (False, silent))]
    begun, ended = (SimpleNamespace(kind="numba:compile", is_start=start) for start in (True, False))
    for bar in bars:
        bar.update(1)
        bar.notify(begun)
        bar.notify(begun)  # a function that is compiled for the first one
    now = 30.0
    for bar in bars:
        bar.notify(ended)
        bar.notify(ended)
    now = 31.0
    for bar in bars:
        bar.update(101)
        bar.close()
        assert bar.rate == 100.0
    first, second = stream.getvalue().splitlines()
    assert first == "agent: compiling, once on this machine (0 s)"
    assert "100 episodes/s, 1 s left" in second
    assert silent.getvalue() == ""


def test_numba_says_when_it_compiles() -> None:
    stream = io.StringIO()
    bar = Progress("agent", 200, True, stream)
    try:
        double: Any = numba.njit(lambda x: 2 * x)
        assert [double(3), double(4)] == [6, 8]
    finally:
        bar.close()
    assert stream.getvalue().count("compiling, once on this machine") == 1


class Clock(SimpleNamespace):
    """A clock that goes on when it is told to."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_writing_and_loading_compiled_code_count_in_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba's own event ends before the code is kept, and is not there at all where it is loaded."""
    clock, stream = Clock(), io.StringIO()
    monkeypatch.setattr(progress_module, "time", clock)

    def slowly(found: Any) -> Callable[..., Any]:
        def wait(*_: Any) -> Any:
            clock.now += 30.0
            return found

        return wait

    bar = Progress("agent", 200, True, stream)
    try:
        bar.update(1)
        double: Any = compiled(lambda x: 2 * x)
        double._cache = SimpleNamespace(load_overload=slowly(None), save_overload=slowly(None))
        assert double(3) == 6
        assert bar.compiled == 60.0
        (code,) = double.overloads.values()
        again: Any = compiled(lambda x: 2 * x)
        again._cache = SimpleNamespace(load_overload=slowly(code._replace(metadata=None)))  # as from disk
        assert again(3) == 6
        assert bar.compiled == 90.0
        clock.now += 1.0
        bar.update(101)
    finally:
        bar.close()
    assert bar.rate == 100.0
    assert "100 episodes/s, 1 s left" in stream.getvalue().splitlines()[-1]


class Notes(list[str], event.Listener):
    """What happens while code is made, in order."""

    def on_start(self, about: Any) -> None:
        self.append("begun")

    def on_end(self, about: Any) -> None:
        self.append("ended")

    def collect(self, when: str, about: dict[str, int]) -> None:
        self.append(f"collection: {when}")


def test_the_compilers_garbage_is_collected_as_part_of_compiling() -> None:
    notes = Notes()
    double: Any = compiled(lambda x: 2 * x)
    gc.callbacks.append(notes.collect)
    try:
        with event.install_listener(GETTING_CODE, notes):
            assert double(3) == 6
    finally:
        gc.callbacks.remove(notes.collect)
    begun = notes.index("begun")
    assert notes[begun : begun + 4] == ["begun", "collection: start", "collection: stop", "ended"]


def test_compiling_between_two_phases_counts_in_no_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, advance = Clock(monotonic=lambda: 0.0), PhaseWalk.advance

    def advance_and_compile(walk: PhaseWalk, *played: Any) -> None:
        advance(walk, *played)
        clock.now += 1.0
        with event.trigger_event("numba:compile"):
            clock.now += 30.0

    monkeypatch.setattr(progress_module, "time", clock)
    monkeypatch.setattr(PhaseWalk, "advance", advance_and_compile)
    under_way = Run(UniformRandom(), Simulator(RiverSwim(states=3).mdp))
    under_way.play(3, progress=False, largest=1)
    assert under_way.result().wall_time == 3.0
    assert under_way.rate == 1.0


def test_short_jobs_and_silenced_ones_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    for show in (None, False):
        bar = Progress("agent", 10, show, stream)
        bar.update(5, 0.0)
        bar.update(10, 0.0)
        bar.close()
    assert stream.getvalue() == ""
    uniform(40, progress=False)
    assert capsys.readouterr() == ("", "")
    uniform(500, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "of 500 episodes" in shown.err

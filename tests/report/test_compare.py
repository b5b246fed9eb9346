from __future__ import annotations

import io
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import CheckpointError
from occamrl.report import compare as module
from occamrl.report.data import Cell, Group, decisions

PROBLEM = orl.make_problem("river-swim", states=3)
AGENTS: dict[str, Any] = {"uniform": orl.UniformRandom(), "optimal": orl.Optimal(mdp=PROBLEM.mdp)}


def test_every_result_is_that_of_run() -> None:
    found = orl.compare(AGENTS, PROBLEM, episodes=30, seeds=[4, 1, 2], progress=False)
    for name, agent in AGENTS.items():
        for result, seed in zip(found.results[name], (4, 1, 2), strict=True):
            alone = orl.run(agent, PROBLEM, episodes=30, seed=seed)
            np.testing.assert_array_equal(result.cumulative_regret, alone.cumulative_regret)
    totals = [result.total_regret for result in found.results["uniform"]]
    row = found.rows[0]
    assert row["regret"] == pytest.approx(np.mean(totals), rel=1e-5)
    assert row["low"] <= row["regret"] <= row["high"] <= row["worst"] == pytest.approx(max(totals), rel=1e-5)


def test_differences_are_paired_by_seed() -> None:
    found = orl.compare(AGENTS, PROBLEM, episodes=30, seeds=4, processes=1, progress=False)
    (row,) = found.differences("optimal")
    each = [result.total_regret for result in found.results["uniform"]]
    assert (row["agent"], row["pairs"], row["more"]) == ("uniform", 4, 4)
    assert row["mean"] == pytest.approx(np.mean(each), rel=1e-5)
    with pytest.raises(orl.InvalidInput, match="baseline"):
        found.differences("nobody")


def test_the_table_and_the_figure_name_every_agent() -> None:
    name = r"_<b> $\frac{$"
    found = orl.compare({name: orl.UniformRandom()}, PROBLEM, episodes=5, seeds=2, processes=1, progress=False)
    assert "&lt;b&gt;" in found._repr_html_()
    assert name in str(found)
    from matplotlib.figure import Figure

    figure = Figure()
    axes = found.plot(figure.subplots(), logarithmic=True)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [name]
    figure.savefig(io.BytesIO())  # a name is no formula
    assert found.plot(axes).get_yscale() == "log"  # drawn again, on axes that have a scale


def test_a_folder_keeps_what_was_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Any] = {"seeds": 2, "processes": 1, "folder": tmp_path, "progress": False}
    orl.compare(AGENTS, PROBLEM, episodes=20, **parts)
    found = orl.compare(AGENTS, PROBLEM, episodes=50, **parts)
    assert found.rows[0] == pytest.approx(
        orl.compare(AGENTS, PROBLEM, episodes=50, seeds=2, progress=False).rows[0] | {"us": found.rows[0]["us"]}
    )

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("played again")

    monkeypatch.setattr("occamrl.running.run.Run.play", refuse)
    monkeypatch.setattr(module, "run", lambda *_, **__: None)
    assert orl.compare(AGENTS, PROBLEM, episodes=50, **parts).rows[0]["regret"] == found.rows[0]["regret"]
    for processes in (1, 2):  # the error of a process arrives as it is
        with pytest.raises(CheckpointError, match="50 episodes"):
            orl.compare(AGENTS, PROBLEM, episodes=20, **parts | {"processes": processes})


@dataclass(frozen=True, kw_only=True, eq=False)
class Failing(orl.EpisodeLearner):
    """Learn from its returns, and fail in the middle while ``failures`` is set."""

    failures: ClassVar[bool] = True

    def begin(self, known: Any) -> dict[str, Any]:
        return {"episodes": 0, "total": 0.0}

    def plan(self, known: Any, state: Any, start: int, draw: Any) -> Any:
        if self.failures and state["episodes"] == 57:
            raise OSError("out of order")
        return np.full((known.horizon, known.states), round(100.0 * state["total"]) % 2)

    def learn(self, known: Any, state: Any, episode: Any) -> None:
        state["episodes"] += 1
        state["total"] += float(episode.rewards.sum())


@pytest.mark.parametrize("processes", [1, 2])
def test_after_an_error_of_an_agent_a_folder_goes_on_from_what_is_whole(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = {"failing": Failing()}
    parts: dict[str, Any] = {"episodes": 90, "seeds": 1, "processes": processes, "progress": False}
    with pytest.raises(OSError, match="out of order"):
        orl.compare(agents, PROBLEM, folder=tmp_path, **parts)
    monkeypatch.setattr(Failing, "failures", False)
    (found,) = orl.compare(agents, PROBLEM, folder=tmp_path, **parts).results["failing"]
    (whole,) = orl.compare(agents, PROBLEM, **parts).results["failing"]
    assert found.state["episodes"] == 90
    assert found.regret.tobytes() == whole.regret.tobytes()


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_keeps_every_run(tmp_path: Path, processes: int) -> None:
    long: dict[str, Any] = {"episodes": 20_000_000, "seeds": 2, "folder": tmp_path, "progress": False}

    def press() -> None:  # once the runs have begun
        while not module._jobs:
            time.sleep(0.01)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(orl.Interrupted, match="0 of 2 seeds"):
        orl.compare({"uniform": orl.UniformRandom()}, PROBLEM, processes=processes, **long)
    kept = [orl.Result.load(path) for path in tmp_path.iterdir()]
    assert kept
    assert all(0 < result.total_episodes < 20_000_000 for result in kept)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"agents": {}}, "agents"),
        ({"agents": {1: orl.UniformRandom()}}, "agents: got the key 1"),
        ({"agents": {"class": orl.UCBVI}}, "the class UCBVI"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": 10**12}, r"seeds: got 1000000000000, expected an integer in \[1, 100000\]"),
        ({"problem": 3}, "mdp"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], name: str) -> None:
    given: dict[str, Any] = {"agents": AGENTS, "problem": PROBLEM, "episodes": 5, **change}
    with pytest.raises(orl.InvalidInput, match=name):
        orl.compare(given.pop("agents"), given.pop("problem"), **given)


@pytest.mark.parametrize("results", [{}, {"nobody": []}, 3])
def test_a_comparison_has_results(results: Any) -> None:
    with pytest.raises(orl.InvalidInput, match="results"):
        orl.Comparison("problem", results)


def test_a_process_that_is_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Job, "play", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(orl.OccamRLError, match="a process was killed"):
        orl.compare({"uniform": orl.UniformRandom()}, PROBLEM, episodes=5, seeds=3, processes=2, progress=False)


def test_decisions_are_those_of_exploitation() -> None:
    problem = orl.make_problem("sparse-mixture", seed=0)
    selector = orl.ARLLinDim(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    found = orl.compare({"ARL-LIN(dim)": selector}, problem, episodes=3_000, seeds=1, processes=1, progress=False)
    shown = found._model["problems"][0]["agents"][0]["decisions"]
    rows = [row for row in found.results["ARL-LIN(dim)"][0].phases.to_pylist() if row["label"] == "exploitation"]
    assert shown["choices"][0] == [row["active"] for row in rows]
    settled = next(i for i, row in enumerate(rows) if row["active"] == sorted(problem.support))
    assert all(row["active"] == sorted(problem.support) for row in rows[settled:])  # the answer is known, and found
    assert shown["settled"]["epoch"] == [rows[settled]["epoch"]] * 3
    last = dict(zip(shown["rows"], (line[-1] for line in shown["share"]), strict=True))
    assert {j for j, share in last.items() if share == 1} == set(problem.support)


def test_classes_have_names_and_the_true_one_a_star() -> None:
    steps = [{"epoch": 1, "label": "F_1", "episodes": 9, "facts": {"chosen": 1, "statistics": [0, 0], "threshold": 1}}]
    manifest = {"resolved": {"classes": ["flat", "steep"], "true_class": 2}, "episodes": 9}
    cell = Cell(0, manifest, np.array([9]), np.array([1.0]), steps)
    assert (decisions(Group("p", "a", [cell])) or {})["labels"] == ["1 flat", "2 steep *"]

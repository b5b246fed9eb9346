"""Experiments and comparisons: the same records however they came about, and of the same code."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import occamrl as orl
from occamrl import registry
from occamrl.errors import CheckpointError, FolderInUse, ParameterError, RecordError, SpecError
from occamrl.experiments import checkpoints
from occamrl.experiments import records as records_module
from occamrl.experiments.execution import machine
from occamrl.experiments.league import league
from occamrl.experiments.records import Folder, Records, locked, status
from occamrl.intervals import interval
from occamrl.progress import Progress
from occamrl.protocols import Floats, State

LINEAR = {"name": "UCRLVTRLin", "parameters": {"features": "tabular", "norm_bound": "sqrt(SA)"}}
Options = dict[str, Any]  # of a spec
SPEC: Options = {
    "name": "river",
    "episodes": 12,
    "seeds": 2,
    "thinning": 8,
    "agent": ["UniformRandom", LINEAR],
    "problem": [{"name": "RiverSwim", "label": "S = {states}", "sweep": {"states": [2, 3]}}],
}
SMALL: Options = SPEC | {"agent": ["UniformRandom"], "seeds": 1}


def timeless(records: Records) -> list[object]:
    """Return all that does not depend on the clock."""
    kept: list[object] = []
    for record in records.cells:
        kept.append({key: value for key, value in record.items() if key != "wall_time"})
    return kept


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return orl.Experiment(**SPEC).run(
        tmp_path_factory.mktemp("experiment") / "river", workers=1, progress=False
    )


def test_workers_and_their_deaths_change_nothing(finished: Records, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []

    def listen(event: dict[str, Any]) -> None:
        if not events:
            os.kill(event["pid"], signal.SIGKILL)  # the first worker, at its first cell
        events.append(event)

    two = orl.Experiment(**SPEC).run(tmp_path, workers=2, progress=False, listen=listen)
    assert [event["event"] for event in events].count("retry") == 1
    assert len(two.cells) == 8
    assert timeless(two) == timeless(finished)
    assert two.curves.equals(finished.curves)
    done = {event["cell"] for event in events if event["event"] == "done"}
    assert done == {record["cell"] for record in two.cells}
    assert two.phases.num_rows >= 8
    assert len(str(two).splitlines()) <= 25


def test_records_are_those_of_run(finished: Records) -> None:
    problem = orl.make_problem("river-swim", states=3)
    features = orl.FeatureMap.tabular(states=3, actions=2)
    agent = orl.UCRLVTRLin(features=features, norm_bound=np.sqrt(6.0))
    result = orl.run(agent, problem, episodes=12, seed=1)
    by_names = {tuple(cell.names.values()): cell.id for cell in orl.Experiment(**SPEC).cells}
    by_id = {record["cell"]: record for record in finished.cells}
    record = by_id[by_names["S = 3", "UCRLVTRLin", 1]]
    assert record["total_regret"] == result.total_regret
    curve = record["curve"]
    index = np.array(curve["episode"]) - 1
    assert index[-1] == 11
    assert np.array_equal(curve["cumulative_regret"], result.cumulative_regret[index])
    assert np.allclose(curve["regret"], result.regret[index])
    assert np.allclose(curve["realised_return"], result.returns[index])


def test_regret_after_k_episodes_is_exact_at_any_k(finished: Records) -> None:
    problem = orl.make_problem("river-swim", states=3)
    agent = orl.UCRLVTRLin(
        features=orl.FeatureMap.tabular(states=3, actions=2), norm_bound=np.sqrt(6.0)
    )
    comparison = orl.compare({"UCRLVTRLin": agent}, problem, episodes=12, seeds=2, workers=1)
    results = [orl.run(agent, problem, episodes=12, seed=seed) for seed in range(2)]
    for k in range(13):
        exact = [result.regret_at(k) for result in results]
        assert comparison.regret_at(k)["UCRLVTRLin"].tolist() == exact
        assert finished.regret_at(k)["S = 3"]["UCRLVTRLin"] == pytest.approx(exact, rel=1e-12)
    with pytest.raises(ParameterError, match="from 0 to 12"):
        finished.regret_at(13)


def test_tables_for_papers(finished: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finished.table.num_rows == len(finished.cells) == 8
    totals = [record["total_regret"] for record in finished.cells]
    assert finished.table["regret"].to_pylist() == totals
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(ParameterError, match="pip install pandas"):
        finished.to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=dict))
    assert finished.to_pandas() == finished.table.to_pydict()
    names = {r"50 % of $x_1 & \#~^{}": orl.UniformRandom()}
    comparison = orl.compare(names, PROBLEM, episodes=20, seeds=3, workers=1)
    assert comparison.to_pandas()["seed"] == [0, 1, 2]
    assert orl.run(orl.PSRL(), PROBLEM, episodes=20).to_pandas()["episode"] == list(range(1, 21))
    latex = comparison.to_latex()
    escaped = r"50 \% of \$x\_1 \& \textbackslash{}\#\textasciitilde{}\textasciicircum{}\{\} & "
    assert escaped in latex
    assert latex.count(r"\toprule") == latex.count(r"\midrule") == latex.count(r"\bottomrule") == 1
    lines = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert [line.replace(r"\&", "").count("&") for line in lines] == [3, 3]  # columns, less one
    assert finished.to_latex().count(r"\midrule") == 2  # a group per problem
    assert finished.to_latex().count("S = 3") == 1


PSRL = {"name": "PSRL", "parameters": {"replan": 0.0}}
LONG = SPEC | {
    "episodes": 150,
    "problem": [{"name": "RiverSwim", "parameters": {"states": 3}}],
    "agent": [PSRL],
    "seeds": 3,
}


def run_long(folder: Path, workers: int) -> None:
    try:
        checkpoints.CHECKPOINT_SECONDS = 0.01  # of this process, which was forked
        orl.Experiment(**LONG).run(folder, workers=workers, progress=False)
    except KeyboardInterrupt as stopped:
        (folder / "said").write_text(str(stopped))


def begin_long(folder: Path, workers: int = 1) -> ForkProcess:
    """Start the long experiment in another process; return when it has written a checkpoint."""
    process = multiprocessing.get_context("fork").Process(target=run_long, args=(folder, workers))
    process.start()
    deadline = time.monotonic() + 60.0
    while not any(folder.glob("cells/*.npz")):
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return orl.Experiment(**LONG).run(tmp_path_factory.mktemp("long"), workers=1, progress=False)


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_the_middle_and_resumed_is_as_if_nothing_had_happened(
    workers: int, uninterrupted: Records, tmp_path: Path
) -> None:
    """The workers of a process that was killed hold its lock, which is free when they are gone."""
    process = begin_long(tmp_path, workers)
    process.kill()
    process.join()
    standing = status(tmp_path)
    assert len(standing.cells) < standing.total == 3
    resumed = orl.Experiment.resume(tmp_path, workers=1, progress=False)
    assert timeless(resumed) == timeless(uninterrupted)
    assert orl.Experiment.verify(tmp_path) == []
    assert not [*tmp_path.glob("cells/*.npz"), *tmp_path.glob("cells/.*")]
    assert (tmp_path / "lock").read_text() == ""


def test_ctrl_c_stops_at_a_block_and_says_how_to_go_on(
    uninterrupted: Records, tmp_path: Path
) -> None:
    process = begin_long(tmp_path)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert f"occamrl resume {tmp_path}" in (tmp_path / "said").read_text()
    assert status(tmp_path).begun
    assert timeless(orl.Experiment.resume(tmp_path, workers=1, progress=False)) == timeless(
        uninterrupted
    )


def test_a_folder_is_for_one_process(finished: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "_WORKERS_SECONDS", 0.1)
    with locked(finished.folder), pytest.raises(FolderInUse, match=f"process {os.getpid()}"):
        orl.Experiment(**SPEC).run(finished.folder, workers=1)


def test_a_finished_folder_is_left_as_it_is_and_a_larger_spec_adds_cells(tmp_path: Path) -> None:
    orl.Experiment(**SMALL).run(tmp_path, workers=1, progress=False)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*")}
    larger = orl.Experiment(**(SMALL | {"seeds": 2})).run(tmp_path, workers=1, progress=False)
    assert len(larger.cells) == 2 * len(before)
    now = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*")}
    assert before.items() <= now.items()
    with pytest.raises(RecordError, match="that the spec does not have"):
        orl.Experiment(**SMALL).run(tmp_path, workers=1)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "a byte": lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
    "empty": lambda content: b"",
    "foreign": lambda content: b"{}",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return orl.Experiment(**SMALL).run(tmp_path_factory.mktemp("small"), workers=1, progress=False)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_records_are_named_and_never_deleted(
    damage: Callable[[bytes], bytes], small: Records, tmp_path: Path
) -> None:
    shutil.copytree(small.folder, tmp_path, dirs_exist_ok=True)
    path = next(tmp_path.glob("cells/*.json"))
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    stranger = tmp_path / "cells" / "notes.txt"
    stranger.write_text("mine")
    with pytest.raises(RecordError, match=path.name):
        orl.load(tmp_path)
    with pytest.raises(RecordError, match=path.name):
        orl.Experiment.resume(tmp_path, workers=1)
    assert list(status(tmp_path).damaged) == [path.stem]
    named = {Path(damage.path) for damage in orl.Experiment.verify(tmp_path)}
    assert named == {path, stranger}
    assert path.read_bytes() == damaged
    moved = [damage.moved_to for damage in orl.Experiment.verify(tmp_path, quarantine=True)]
    assert [Path(target).read_bytes() for target in moved if target] == [damaged]
    assert timeless(orl.Experiment.resume(tmp_path, workers=1, progress=False)) == timeless(small)
    assert stranger.read_text() == "mine"


def test_a_damaged_checkpoint_fails_its_cell_and_stays(tmp_path: Path) -> None:
    experiment = orl.Experiment(**SMALL)
    first = experiment.cells[0]
    (tmp_path / "cells").mkdir()
    checkpoint = tmp_path / "cells" / f"{first.id}.npz"
    checkpoint.write_bytes(b"not a checkpoint")
    records = experiment.run(tmp_path, workers=1, progress=False)
    assert [record["cell"] for record in records.failed] == [first.id]
    assert checkpoint.name in str(records.failed[0]["reason"])
    assert checkpoint.read_bytes() == b"not a checkpoint"
    checkpoint.unlink()
    assert len(orl.Experiment.resume(tmp_path, workers=1, progress=False).cells) == 2


def test_a_checkpoint_that_outlived_its_writer_is_removed_by_the_next_run(tmp_path: Path) -> None:
    experiment = orl.Experiment(**SMALL)
    experiment.run(tmp_path, workers=1, progress=False)
    checkpoint = tmp_path / "cells" / f"{experiment.cells[0].id}.npz"
    checkpoint.write_bytes(b"killed after the record, before this was removed")
    experiment.run(tmp_path, workers=1, progress=False)
    assert not checkpoint.exists()


AGENT = """
import numpy as np
import occamrl as orl
class Mine(orl.Learner):
    def begin(self, known):
        return {}
    def plan(self, known, state, draw):
        return orl.Plan(policy=np.full((known.horizon, known.states), ACTION), episodes=10)
    def learn(self, known, state, plan, flow):
        pass
"""


def test_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    spec = SPEC | {
        "agent": ["agent_of_a_user:Mine"],
        "import": ["agent_of_a_user"],
        "problem": ["RiverSwim"],
    }

    def experiment(action: int) -> orl.Experiment:
        sys.modules.pop("agent_of_a_user", None)
        for cached in tmp_path.glob("__pycache__/*"):
            cached.unlink()
        (tmp_path / "agent_of_a_user.py").write_text(AGENT.replace("ACTION", str(action)))
        return orl.Experiment(imports=["agent_of_a_user"], **spec)

    with pytest.raises(SpecError, match="a file alone imports nothing"):
        orl.Experiment(**spec)
    records = experiment(0).run(tmp_path / "out", workers=1, progress=False)
    assert not records.failed
    with pytest.raises(
        RecordError, match=r"agent_of_a_user:Mine \(agent_of_a_user\.py\) has changed.*new folder"
    ):
        experiment(1).run(tmp_path / "out", workers=1)
    assert timeless(orl.load(tmp_path / "out")) == timeless(records)
    assert timeless(experiment(0).run(tmp_path / "out", workers=1)) == timeless(records)


def test_all_faults_of_a_spec_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(
        'name = "x"\nepisodes = 0\nseeds = []\ncolour = 1\n'
        '[[problem]]\nlabel = "y"\n[[agent]]\nname = 3\n'
    )
    with pytest.raises(SpecError) as form:
        orl.Experiment.from_toml(path)
    assert {fault.key for fault in form.value.faults} == {
        "episodes", "seeds", "colour", "problem[0].name", "agent[0].name"
    }  # fmt: skip
    with pytest.raises(SpecError) as both:  # the form, a problem and agents
        orl.Experiment(
            name="x",
            episodes=0,
            seeds=[1, 1],
            problem=["RiverSwam", {"label": "y"}],
            agent=["PSRLL", {"name": "PSRL", "parameters": {"concentraton": 1}}, {"name": 3}],
        )
    assert {fault.key for fault in both.value.faults} == {
        "episodes", "seeds", "problem[0].name", "problem[1].name",
        "agent[0].name", "agent[1].parameters.concentraton", "agent[2].name"
    }  # fmt: skip
    agents = [
        {
            "name": "UCRLVTRLin",
            "parameters": {"features": "tabular", "norm_bound": "large", "deltta": 0.1},
        },
        {"name": "UCRLVTR", "label": "a"},
        {"name": "UCRLVTRLing", "label": "b"},
        {
            "name": "Arena",
            "bases": ["UniformRandom", {"name": "PSRL", "parameters": {"replan": -1}}],
            "rule": "UCB",
        },
        {"name": "UniformRandom", "only": ["river"]},
    ]
    with pytest.raises(SpecError) as values:
        orl.Experiment(
            name="x", episodes=5, seeds=[1, 1], baseline="z", problem=["RiverSwim"], agent=agents
        )
    keys = {fault.key for fault in values.value.faults}
    wanted = {
        "seeds",
        "baseline",
        "agent[4].only[0]",
        "agent[2].name",
        "agent[1].parameters.family",
    }
    wanted |= {"agent[0].parameters.norm_bound", "agent[0].parameters.deltta"}
    assert wanted <= keys
    assert any(key.startswith("agent[3].parameters.bases[1]") for key in keys)
    assert any(key.startswith("agent[3].parameters.rule") for key in keys)
    assert "'delta'" in str(values.value)
    assert "'UCRLVTRLin'" in str(values.value)


def test_symbolic_values_and_references() -> None:
    parameters = {"selector": "ARLLinDim", "norm_bound": "true"}
    agents = [
        {"name": "oracle", "parameters": parameters},
        {"name": "largest", "parameters": parameters},
        {"name": "UCRLVTR", "parameters": {"family": "problem", "delta": "1/K"}},
        {"name": "ARLGen"},
        {"name": "class", "parameters": {"selector": "ARLGen", "m": 1}},
    ]
    experiment = orl.Experiment(
        name="x", episodes=20, seeds=1, problem=["SparseLadder"], agent=agents
    )
    code = dict(
        zip(
            ("oracle", "largest", "UCRLVTR", "ARLGen", "class"),
            experiment.code.values(),
            strict=True,
        )
    )
    problem = orl.make_problem("sparse-ladder")
    features = orl.FeatureMap(problem.phi)
    supported = features.restrict(np.flatnonzero(problem.theta).tolist())
    assert code["oracle"]["agent.features"] == f"FeatureMap {supported.fingerprint[:16]}"
    assert code["largest"]["agent.features"] == f"FeatureMap {features.fingerprint[:16]}"
    norm = float(np.linalg.norm(problem.theta))
    assert float(code["oracle"]["agent.norm_bound"]) == pytest.approx(norm)
    assert float(code["UCRLVTR"]["agent.delta"]) == pytest.approx(1 / 20)
    assert code["class"]["agent"].endswith(":ARLGen")


PROBLEM = orl.make_problem("river-swim", states=2)
AGENTS = {
    "uniform": orl.UniformRandom(),
    "PSRL": orl.PSRL(),
    "optimal": orl.Optimal(mdp=PROBLEM.mdp),
}


def test_classes_and_objects_are_what_they_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_too.py").write_text(
        "from occamrl import PSRL\n\n\nclass Mine(PSRL):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    theirs = importlib.import_module("mine_too").Mine
    arena = orl.Arena(bases=[orl.PSRL(replan=0.5), orl.UniformRandom()], rule=orl.UCB1(scale=0.5))
    options: Options = {"name": "river", "episodes": 5, "seeds": 1}
    by_objects = orl.Experiment(
        problem=[orl.make_problem("river-swim", states=3)],
        agent=[
            orl.UniformRandom,
            arena,
            theirs(),
            {"name": orl.PSRL(concentration=2.0), "label": "two"},
        ],
        **options,
    )
    by_names = orl.Experiment(
        problem=[{"name": "RiverSwim", "parameters": {"states": 3}}],
        agent=[
            "UniformRandom",
            {
                "name": "Arena",
                "bases": [{"name": "PSRL", "parameters": {"replan": 0.5}}, "UniformRandom"],
                "rule": {"name": "UCB1", "parameters": {"scale": 0.5}},
            },
            "mine_too:Mine",
            {"name": "PSRL", "label": "two", "parameters": {"concentration": 2.0}},
        ],
        imports=["mine_too"],
        **options,
    )
    assert [cell.id for cell in by_objects.cells] == [cell.id for cell in by_names.cells]
    assert by_objects.run(tmp_path / "out", workers=2, progress=False).total == 4
    for wrong in (orl.Optimal(mdp=orl.make_problem("river-swim").mdp), object(), len):
        with pytest.raises(SpecError, match=r"orl\.compare"):
            orl.Experiment(problem=["RiverSwim"], agent=[wrong], **options)


def test_comparisons_are_runs_and_do_not_depend_on_workers(tmp_path: Path) -> None:
    one = orl.compare(AGENTS, PROBLEM, episodes=20, seeds=[5, 2], workers=1)
    two = orl.compare(AGENTS, PROBLEM, episodes=20, seeds=[5, 2], workers=2, folder=tmp_path)
    for name, agent in AGENTS.items():
        totals = [result.total_regret for result in one.results[name]]
        assert totals == [result.total_regret for result in two.results[name]]
        assert totals == [
            orl.run(agent, PROBLEM, episodes=20, seed=seed).total_regret for seed in (5, 2)
        ]
    longer = orl.compare(AGENTS, PROBLEM, episodes=30, seeds=[5], workers=1, folder=tmp_path)
    assert (
        longer.results["PSRL"][0].total_regret
        == orl.run(orl.PSRL(), PROBLEM, episodes=30, seed=5).total_regret
    )
    with pytest.raises(
        CheckpointError, match=r"concentration: 0\.5 before, 1\.0 now.*another file or folder"
    ):
        orl.compare(
            {"PSRL": orl.PSRL(concentration=1.0)}, PROBLEM, episodes=30, seeds=[5], folder=tmp_path
        )
    with pytest.raises(CheckpointError, match="another folder"):
        orl.compare(AGENTS, PROBLEM, episodes=10, seeds=[5], folder=tmp_path)


def other_problem(what: str) -> orl.FiniteMDP:
    """Return a problem of two states in which one thing is not as usual."""
    transition = np.full((2, 2, 2), 0.5)
    transition[0, 0] = [0.8, 0.2]
    reward = np.array([[0.2, 0.0], [0.0, 1.0]])
    horizon = 5
    if what == "transition":
        transition[0, 0] = [0.9, 0.1]
    elif what == "reward":
        reward[0, 0] = 0.3
    elif what == "horizon":
        horizon = 6
    return orl.FiniteMDP(transition=transition, reward=reward, horizon=horizon)


class Constant(orl.Learner):
    """Plays one action; its code is changed below."""

    def begin(self, known: orl.Known) -> State:
        return {}

    def plan(self, known: orl.Known, state: State, draw: np.random.Generator) -> orl.Plan:
        return orl.Plan(policy=np.full((known.horizon, known.states), self.action()), episodes=5)

    def action(self) -> int:
        return 0

    def learn(self, known: orl.Known, state: State, plan: orl.Plan, flow: orl.Flow) -> None:
        pass


@pytest.mark.parametrize("what", ["transition", "reward", "horizon"])
def test_a_folder_keeps_results_of_one_problem(what: str, tmp_path: Path) -> None:
    def play(mdp: orl.FiniteMDP) -> float:
        comparison = orl.compare(
            {"a": Constant()}, mdp, episodes=10, seeds=1, workers=1, folder=tmp_path
        )
        return float(comparison.results["a"][0].total_regret)

    before = play(other_problem(""))
    with pytest.raises(CheckpointError, match=rf"problem\.{what}.*another file or folder"):
        play(other_problem(what))
    assert play(other_problem("")) == before


def test_a_folder_keeps_results_of_one_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play() -> orl.Comparison:
        return orl.compare(
            {"a": Constant()}, other_problem(""), episodes=10, seeds=1, workers=1, folder=tmp_path
        )

    before = play()
    monkeypatch.setattr(Constant, "action", lambda self: 1)
    with pytest.raises(
        CheckpointError,
        match=r"the code of .*Constant \(test_experiments\.py\) has changed.*folder",
    ):
        play()
    monkeypatch.undo()
    assert play().rows[0]["regret"] == before.rows[0]["regret"]


def test_a_changed_parameter_is_named_with_the_remedy(tmp_path: Path) -> None:
    def experiment(concentration: float, **options: object) -> orl.Experiment:
        agent = {"name": "PSRL", "parameters": {"concentration": concentration}}
        return orl.Experiment(**{**SMALL, "agent": [agent], **options})

    experiment(0.5).run(tmp_path, workers=1, progress=False)
    with pytest.raises(
        RecordError,
        match=r"PSRL: agent\.concentration: 0\.5 before, 1\.0 now.*second \[\[agent\]\].*label",
    ):
        experiment(1.0).run(tmp_path, workers=1)
    problem = [{"name": "RiverSwim", "label": "S = 2", "parameters": {"states": 2, "horizon": 9}}]
    with pytest.raises(RecordError, match=r"S = 2 / PSRL: problem\.horizon: 8 before, 9 now"):
        experiment(0.5, problem=problem).run(tmp_path, workers=1)
    with pytest.raises(RecordError, match=r"'agent': 'PSRL'.*episodes: 12 before, 13 now"):
        experiment(0.5, episodes=13).run(tmp_path, workers=1)


def test_tables_of_a_comparison() -> None:
    comparison = orl.compare(AGENTS, PROBLEM, episodes=20, seeds=4, workers=1)
    totals = np.array([comparison.regret_at(20)[name] for name in comparison.results])
    assert np.allclose([row["regret"] for row in comparison.rows], totals.mean(axis=1))
    assert comparison.rows[2]["regret"] == 0.0
    gaps = {row["agent"]: row for row in comparison.differences("PSRL")}
    assert gaps["uniform"]["mean"] == pytest.approx((totals[0] - totals[1]).mean())
    assert gaps["uniform"]["low"] <= gaps["uniform"]["mean"] <= gaps["uniform"]["high"]
    assert "uniform" in str(comparison)
    mpl.use("agg")
    labels = " ".join(comparison.plot(scale="loglog").get_legend_handles_labels()[1])
    assert all(name in labels for name in comparison.results)
    plt.close("all")
    with pytest.raises(ParameterError, match="baseline"):
        comparison.differences("nobody")


def test_progress_ends_with_how_far_a_job_came(capsys: pytest.CaptureFixture[str]) -> None:
    for show, last in ((True, 4), (True, 2), (None, 4), (False, 4)):
        bar = Progress("job", 4, show, "runs")
        bar.update(1)
        bar.update(last)
        bar.close()
        lines = capsys.readouterr().err.splitlines()
        if show:
            assert f"{last} of 4 runs" in lines[-1]
        else:
            assert lines == []


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        low, high = interval(draw.normal(1.0, 2.0, size=30)) or (np.nan, np.nan)
        held += low <= 1.0 <= high
    assert 0.88 <= held / 300 <= 0.99
    assert interval([1.0]) is None


def test_constants_of_a_league_table_are_chosen_on_other_seeds(tmp_path: Path) -> None:
    swept = {"name": "PSRL", "sweep": {"concentration": [5.0, 0.5]}}
    spec = SPEC | {
        "seeds": [0, 1],
        "tuning_seeds": [7],
        "agent": ["UniformRandom", swept],
        "problem": ["RiverSwim"],
    }
    records = orl.Experiment(**spec).run(tmp_path, workers=1, progress=False)
    rows = {row["agent"]: row for row in league(records)}
    regret: dict[tuple[float | None, int], float] = {}
    for record in records.cells:
        concentration = record["agent"]["parameters"].get("concentration")
        regret[concentration, record["seed"]] = record["total_regret"]
    best = min((5.0, 0.5), key=lambda c: regret[c, 7])
    assert rows["PSRL"]["regret"] == pytest.approx((regret[5.0, 0] + regret[5.0, 1]) / 2)
    assert rows["PSRL"]["tuned regret"] == pytest.approx((regret[best, 0] + regret[best, 1]) / 2)
    assert rows["UniformRandom"]["tuned regret"] is None


@dataclass(frozen=True, kw_only=True)
class WithLadder:
    """A problem of a user that brings a ladder along, the second class of which holds the truth."""

    sharpness: float = 0.3

    @cached_property
    def kernels(self) -> Floats:
        return np.random.default_rng(0).dirichlet(np.full(3, self.sharpness), size=(4, 3, 2))

    @cached_property
    def mdp(self) -> orl.FiniteMDP:
        return orl.FiniteMDP(transition=self.kernels[2], reward=np.eye(3)[:, :2], horizon=5)

    @cached_property
    def ladder(self) -> orl.Ladder:
        return orl.Ladder([orl.FiniteFamily(self.kernels[:n]) for n in (2, 4)])


def test_a_ladder_of_a_problem_is_enough_for_references_and_for_the_right_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_own = registry.own
    theirs = {"problems": {"WithLadder": WithLadder}}
    monkeypatch.setattr(registry, "own", lambda kind: {**package_own(kind), **theirs.get(kind, {})})
    selector = {"selector": "arl-gen"}
    agents: list[object] = [
        {"name": "occam", "label": "Occam", "parameters": {"scope": "smallest"}},
        {"name": "ARLGen", "parameters": {"scope": "smallest"}},
        {"name": "Occam", "label": "all"},
    ]
    agents += [{"name": name, "parameters": selector} for name in ("oracle", "largest", "smallest")]
    bases = [{"name": "class", "parameters": {**selector, "m": m}} for m in (1, 2)]
    agents.append({"name": "Arena", "bases": bases, "rule": "ucb1"})
    experiment = orl.Experiment(
        name="x", episodes=60, seeds=2, problem=["with-ladder"], agent=agents
    )
    assert [cell.agent["name"] for cell in experiment.cells[:1]] == ["Occam"]
    records = experiment.run(tmp_path, workers=1, progress=False)
    rows = {row["agent"]: row["right class"] for row in league(records)}
    assert {name for name, share in rows.items() if not share} == {
        "all",
        "oracle",
        "largest",
        "smallest",
    }
    for name in ("Occam", "ARLGen"):
        right = 0
        for record in records.cells:
            if record["agent"]["label"] == name:
                right += sum(row["episodes"] for row in record["phases"] if row["chosen"] == 2)
        assert rows[name] == f"{100 * right / 120:.0f} %"
    with pytest.raises(SpecError, match="'PSRL' twice"):
        orl.Experiment(
            name="x", episodes=60, seeds=2, problem=["RiverSwim"], agent=["PSRL", "psrl"]
        )


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no experiment\.json"):
        Folder(tmp_path).experiment()


def test_labels_keep_the_order_of_the_spec_when_it_is_resumed(tmp_path: Path) -> None:
    rules = [
        {"name": "D3RB", "parameters": {"scale": scale, "coefficient": 1.0}} for scale in (1.0, 0.1)
    ]
    arena = {
        "name": "Arena",
        "label": "{rule}",
        "bases": ["UniformRandom", "PSRL"],
        "sweep": {"rule": rules},
    }
    experiment = orl.Experiment(**(SPEC | {"agent": [arena]}))
    Folder(tmp_path).create(
        experiment.name, experiment.data, experiment.cells, experiment.code, machine()
    )
    resumed = orl.Experiment.resume(tmp_path, workers=1, progress=False)
    assert [record["cell"] for record in resumed.cells] == [cell.id for cell in experiment.cells]
    assert resumed.cells[0]["agent"]["label"] == "D3RB(scale=1.0, coefficient=1.0)"

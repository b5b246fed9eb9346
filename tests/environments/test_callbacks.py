"""Adapters for what people log to: against small stand-ins with the same interface, and the real thing if installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.envs.registered import ProblemEnv
from occamrl.running import callbacks
from occamrl.running.callbacks import Callback, MLflow, TensorBoard, WeightsAndBiases
from tests.environments.misbehaving import MDP, Plant, learner


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def played(callback: Callback) -> orl.Result:
    return orl.learn(learner(), Plant(), episodes=20, known=MDP.known, callbacks=callback)


def averages(result: orl.Result, every: int) -> list[float]:
    return [float(np.mean(result.returns[i : i + every])) for i in range(0, 20 // every * every, every)]


def test_tensorboard_gets_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []
    closed: list[bool] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == "here"

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            written.append((tag, value, step))

        def add_text(self, tag: str, text: str) -> None:
            assert "20 episodes" in text

        def close(self) -> None:
            closed.append(True)

    stand_in(monkeypatch, "tensorboardX", SummaryWriter=SummaryWriter)
    result = played(TensorBoard("here", every=8))
    assert [step for tag, _, step in written if tag == "occamrl/steps"] == [8, 16]
    assert [value for tag, value, _ in written if tag == "occamrl/realised_return"] == pytest.approx(
        averages(result, 8)
    )
    assert closed == [True]


def test_tensorboard_itself_writes_an_event_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is an extra")
    played(TensorBoard(tmp_path, every=5))
    files = list(tmp_path.glob("events*"))
    assert len(files) == 1
    assert b"occamrl/realised_return" in files[0].read_bytes()


@pytest.mark.parametrize("active", [None, "one"])
def test_mlflow_gets_metrics_and_only_its_own_run_is_ended(active: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any]] = []
    stand_in(
        monkeypatch,
        "mlflow",
        active_run=lambda: active,
        start_run=lambda **run: calls.append(("start", run)),
        log_params=lambda parameters: calls.append(("params", parameters)),
        log_metrics=lambda metrics, step: calls.append(("metrics", (step, metrics))),
        end_run=lambda: calls.append(("end", None)),
    )
    result = played(MLflow(every=10, run_name="x") if active is None else MLflow(every=10))
    kinds = [kind for kind, _ in calls]
    assert kinds == (["start"] * (active is None)) + ["params", "metrics", "metrics"] + ["end"] * (active is None)
    metrics = [value for kind, value in calls if kind == "metrics"]
    assert [step for step, _ in metrics] == [10, 20]
    assert [each["realised_return"] for _, each in metrics] == pytest.approx(averages(result, 10))
    assert "cumulative_regret" not in metrics[0][1]  # there is no table


def test_weights_and_biases_is_offline_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[int, dict[str, float]]] = []
    about: dict[str, Any] = {}
    run = SimpleNamespace(
        config=SimpleNamespace(update=lambda values, allow_val_change: about.update(values)),
        log=lambda scalars, step: logged.append((step, scalars)),
        finish=lambda: about.update(finished=True),
    )

    def init(**options: Any) -> Any:
        about.update(options)
        return run

    stand_in(monkeypatch, "wandb", init=init)
    result = played(WeightsAndBiases(every=10, project="p"))
    assert about["mode"] == "offline"
    assert about["project"] == "p"
    assert about["agent"] == "UCRLVTR"
    assert about["finished"]
    assert [scalars["realised_return"] for _, scalars in logged] == pytest.approx(averages(result, 10))
    logged.clear()
    ladder = orl.Ladder([orl.FiniteFamily(MDP.kernel()[None])])
    orl.learn(orl.ARLGen(ladder=ladder), ProblemEnv(MDP), episodes=10, callbacks=WeightsAndBiases())
    assert logged[0][1]["chosen"] == 1.0
    assert logged[0][1]["cumulative_regret"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["TensorBoard", "MLflow", "WeightsAndBiases"])
def test_a_missing_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tensorboardX", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(orl.OccamRLError, match=r"pip install 'occamrl\["):
        getattr(callbacks, name)(*["folder"][: name == "TensorBoard"])

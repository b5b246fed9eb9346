"""What answers look like in a notebook: a small table, a curve where there is one, and names as they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import occamrl as orl
from occamrl.analysis.certificates import CERTIFICATES, Certificates, Finding, Record
from occamrl.experiments.records import Records
from occamrl.logs.log import simulate_log
from occamrl.running.result import html_curves

NAME = "<b>"  # of a class, simulator, agent or certificate: a name, not an element
KERNELS = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))
MDP = orl.FiniteMDP(transition=KERNELS[2], reward=np.eye(3)[:, 1:], horizon=5)


def selection() -> Any:
    ladder = orl.Ladder([orl.FiniteFamily(KERNELS[:1]), orl.FiniteFamily(KERNELS)], names=[NAME, "any"])
    return orl.select(simulate_log(MDP, episodes=50), ladder, known=MDP.known)


def supports() -> Any:
    simulators = orl.Simulators(list(KERNELS), names=["calm", "rain", NAME, "storm"])
    return orl.supports(simulate_log(MDP, episodes=50), simulators, known=MDP.known)


def records() -> Any:
    rows = [
        {"problem": "p", "agent": agent, "seed": seed, "episode": k, "cumulative_regret": float(k + seed)}
        for agent in (NAME, "other")
        for seed in (1, 3)
        for k in (1, 10, 100)
    ]
    state: dict[str, Any] = {"cells": [{}] * 4, "failed": [{}]}
    curves = pa.Table.from_pylist(rows)
    return Records(folder=Path(), name="two agents", spec={}, curves=curves, phases=pa.table({}), **state)


def certificates() -> Any:
    about, finding = next(iter(CERTIFICATES.values())), Finding("1 of 2 runs", 0.5, 0.1, 0.9, 1.0, holds=True)
    return Certificates([Record(about._replace(name=NAME), finding, finding._replace(holds=False), 2, 0.1)])


@pytest.mark.parametrize(
    ("make", "shown", "curves"),
    [
        (selection, ["evidence against it", "rejected above 3.00"], 2),
        (supports, ["4 simulators after 50 episodes", "compatible"], 0),
        (records, ["4 of 5 cells are finished", "<td>102</td>", "mean cumulative regret, up to 102"], 2),
        (certificates, ["1 of 2 runs", "0.5 [0.1, 0.9]", "holds"], 0),
    ],
)
def test_an_answer_is_a_small_table_and_a_curve(make: Callable[[], Any], shown: list[str], curves: int) -> None:
    text = make()._repr_html_()
    assert "<table>" in text
    assert all(each in text for each in shown), text
    assert text.count("<polyline") == curves
    assert "&lt;b&gt;" in text
    assert NAME not in text


def test_a_curve_goes_through_its_points() -> None:
    x, y = np.array([0.0, 5.0, 10.0]), np.array([0.0, 4.0, 2.0])
    assert 'points="0.0,90.0 150.0,10.0 300.0,50.0"' in html_curves({"one": (x, y)}, "values")
    assert html_curves({"one": (x[:1], y[:1])}, "values") == ""

"""Records made up for the tests, with curves and decisions known in advance, some under hostile names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from occamrl.experiments.records import Records
from occamrl.seeding import stream


@dataclass(frozen=True)
class Kind:
    """An agent that is made up: regret scale * k^power times a factor per seed, and facts per epoch."""

    label: str
    power: float
    scale: float = 1.0
    facts: str = "none"  # none, chosen, active, norm_bound


KINDS = (
    Kind("UCRL-VTR-LIN", 0.6, 3.0),
    Kind("ARL-GEN", 0.5, 3.0, "chosen"),
    Kind("ARL-LIN-DIM", 0.55, 2.0, "active"),
    Kind("ARL-LIN-NORM", 0.52, 2.5, "norm_bound"),
    Kind("UniformRandom", 1.0, 0.4),
    Kind("Optimal", 1.0, 0.0),
)


def facts_of(kind: str, epoch: int, noise: float) -> dict[str, Any]:
    """Return the facts of an epoch (from 1): class 2 of 3 is found at epoch 4 (5 in noisy seeds)."""
    late = epoch >= (5 if noise > 0.8 else 4)
    if kind == "chosen":
        fit = 0.25 + 0.5 * 0.5**epoch
        statistics = [0.30 + 0.02 * noise, 0.25 + 0.01 * noise / epoch, 0.25 + 0.005 * noise / epoch]
        first = {"statistics": [0.0] * 3, "threshold": None}
        return {"chosen": 2 if late else 1, **({"statistics": statistics, "threshold": fit} if epoch > 1 else first)}
    if kind == "active":
        estimate = [0.5, 0.3, 0.2, *(0.6 * 0.5**epoch * (j + noise) / 4 for j in range(3))]
        threshold = 0.5**epoch
        return {
            "active": [0, 1, 2] if late else [0, 1, 2, 3, 4, 5][: 7 - epoch],
            "estimate": estimate,
            "threshold": threshold,
        }
    if kind == "norm_bound":
        return {"norm_bound": 1.0 + (1.0 + noise) * 0.6**epoch}
    return {}


def records(
    problems: Sequence[str] = ("Sparse mixture", "RiverSwim"),
    kinds: Sequence[Kind] = KINDS,
    seeds: int = 8,
    episodes: int = 20_000,
    spread: float = 0.2,
    **about: Any,
) -> Records:
    manifests: list[dict[str, Any]] = []
    curves, phases = [], []
    at = np.unique(np.geomspace(1, episodes, 400).astype(np.int64))
    for problem in problems:
        for kind in kinds:
            for seed in range(seeds):
                noise = stream(seed, "synthetic", kind.label).uniform()
                cumulative = kind.scale * np.exp(spread * (noise - 0.5)) * at**kind.power
                cell = f"{len(manifests):012x}"
                who = {"cell": cell, "problem": {"label": problem}, "agent": {"label": kind.label}, "seed": seed}
                curve = {"cell": [cell] * len(at), "episode": at, "cumulative_regret": cumulative}
                curves.append(pa.table(curve))
                phases.append(pa.table(_phases(cell, kind, episodes, noise)))
                manifests.append(_manifest(who, episodes, float(cumulative[-1])))
    spec = {
        "name": "made-up",
        "episodes": episodes,
        "seeds": seeds,
        "problem": [{"name": "sparse-mixture", "label": problem} for problem in problems],
        "agent": [{"name": kind.label.lower(), "label": kind.label} for kind in kinds],
    }
    usual = {"folder": Path("made-up"), "name": "made-up", "spec": spec, "cells": manifests}
    tables = {"curves": pa.concat_tables(curves), "phases": pa.concat_tables(phases)}
    return Records(**{**usual, **tables, "running": {}, "missing": [], "failed": [], **about})


def _phases(cell: str, kind: Kind, episodes: int, noise: float) -> dict[str, list[Any]]:
    lengths: list[int] = []
    left = episodes
    while left > 0 and kind.facts != "none":
        lengths.append(min(left, 16 * 2 ** len(lengths)))
        left -= lengths[-1]
    lengths = lengths or [episodes]
    rows = len(lengths)
    return {
        "cell": [cell] * rows,
        "phase": list(range(rows)),
        "epoch": list(range(1, rows + 1)),
        "label": ["epoch"] * rows,
        "episodes": lengths,
        "facts": [json.dumps(facts_of(kind.facts, epoch, noise)) for epoch in range(1, rows + 1)],
    }


def _manifest(who: dict[str, Any], episodes: int, total: float) -> dict[str, Any]:
    return {
        **who,
        "episodes": episodes,
        "total_regret": total,
        "plans": 100,
        "pessimistic_episodes": 0,
        "wall_time": 0.5,
        "versions": {"occamrl": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
        "machine": {"cpu": "a processor", "blas": "openblas"},
    }


MARKUP = "</script><script>window.owned=1</script><img src=x onerror='window.owned=1'>"
FORMULA = '=HYPERLINK("http://example.invalid","x")'
NAMES = (
    MARKUP,
    FORMULA,
    "${window.owned=1}`;window.owned=1;//",
    '"><svg onload=window.owned=1>',
    "<!--<script>",
    "$\\frac{1}{0}$ & $ _^",
    "\u202egnidaer siht\u2028\u2029",
    "x" * 300,
)


def hostile(seeds: int = 3) -> Records:
    kinds = [Kind(name, 0.5, facts=("chosen", "active", "norm_bound", "none")[i % 4]) for i, name in enumerate(NAMES)]
    made = records(problems=[MARKUP, FORMULA], kinds=kinds, seeds=seeds, name=MARKUP)
    for manifest in made.cells:
        manifest["versions"] = {MARKUP: MARKUP}
        manifest["machine"] = {MARKUP: MARKUP}
    made.spec["description"] = MARKUP
    made.spec[MARKUP] = {MARKUP: MARKUP}
    who = {"problem": {"label": MARKUP}, "agent": {"label": MARKUP}, "seed": MARKUP}
    made.failed.append({"cell": MARKUP, "reason": MARKUP, **who})
    return made

"""What a report reads: the records of an experiment, sorted into groups of cells that differ only in their seed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from occamrl.contracts import Floats, Ints
from occamrl.runs.files import parse_json

if TYPE_CHECKING:
    import pyarrow as pa


class Unfinished(Protocol):
    """What is left of an experiment: of its records and of its status."""

    @property
    def running(self) -> Collection[Any]:
        """Cells at work: ids, or a mapping from ids to their progress."""

    @property
    def missing(self) -> Collection[Any]:
        """Cells that have not begun."""

    @property
    def failed(self) -> Sequence[Any]:
        """Cells that were given up: manifests with a reason, or ids."""


class StatusLike(Unfinished, Protocol):
    """How far an experiment has come. ``occamrl.runs.records.status`` gives this."""

    @property
    def done(self) -> Sequence[Any]:
        """Finished cells."""


class RecordsLike(Unfinished, Protocol):
    """The records of an experiment, as far as a report needs them. ``occamrl.runs.records.load`` gives these."""

    @property
    def name(self) -> str:
        """The experiment's name."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec as it was parsed."""

    @property
    def cells(self) -> Sequence[Mapping[str, Any]]:
        """The manifests of finished cells."""

    @property
    def curves(self) -> pa.Table:
        """cell, problem, agent, seed, episode, regret, cumulative_regret, realised_return."""

    @property
    def phases(self) -> pa.Table:
        """cell, problem, agent, seed, phase, epoch, label, episodes, regret, plans, realised_return, facts."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Cumulative regret of one cell at the episodes that were recorded (from 1, increasing)."""

    episodes: Ints
    regret: Floats


@dataclass(frozen=True, eq=False)
class Cell:
    """One finished run."""

    seed: int
    manifest: Mapping[str, Any]
    curve: Curve
    phases: Sequence[Mapping[str, Any]]  # rows in order, facts parsed


@dataclass(frozen=True, eq=False)
class Group:
    """The cells of one agent on one problem, one per seed, by increasing seed."""

    problem: str
    agent: str
    cells: Sequence[Cell]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the cells."""
        return [cell.seed for cell in self.cells]

    def numbers(self, name: str) -> dict[int, float]:
        """Return a number of the manifests by seed."""
        return {cell.seed: float(cell.manifest[name]) for cell in self.cells}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _names(parts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a distinct name for each distinct (label, parameters): the label, and what differs if two share it."""
    distinct = {_canonical([part["label"], part["parameters"]]): part for part in parts}
    by_label: dict[str, list[str]] = {}
    for key, part in distinct.items():
        by_label.setdefault(str(part["label"]), []).append(key)
    names = {}
    for label, keys in by_label.items():
        settings = [dict(distinct[key]["parameters"]) for key in keys]
        every = sorted({name for setting in settings for name in setting})
        differing = [name for name in every if len({_canonical(setting.get(name)) for setting in settings}) > 1]
        for key, setting in zip(keys, settings, strict=True):
            told = ", ".join(f"{name}={setting[name]}" for name in differing if name in setting)
            names[key] = f"{label} ({told})" if told else label
    return names


def _rows_by_cell(table: pa.Table) -> dict[str, Ints]:
    """Return the rows of each cell, in the order of the table."""
    encoded = table.column("cell").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ids = encoded.dictionary.to_pylist()
    cuts = np.searchsorted(codes[order], np.arange(len(ids) + 1))
    return {name: order[cuts[i] : cuts[i + 1]] for i, name in enumerate(ids)}


def _curves(table: pa.Table) -> dict[str, Curve]:
    episodes = table.column("episode").to_numpy()
    regret = table.column("cumulative_regret").to_numpy()
    return {name: Curve(episodes[rows], regret[rows]) for name, rows in _rows_by_cell(table).items()}


def _phases(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    kept = table.select(["cell", "phase", "epoch", "label", "episodes", "facts"])
    found: dict[str, list[dict[str, Any]]] = {}
    for row in kept.to_pylist():
        where = f"phases.parquet of cell {row['cell']}: facts of phase {row['phase']}"
        facts = parse_json((row["facts"] or "{}").encode(), where)
        found.setdefault(row["cell"], []).append({**row, "facts": facts if isinstance(facts, dict) else {}})
    for rows in found.values():
        rows.sort(key=lambda row: int(row["phase"]))
    return found


def groups(records: RecordsLike) -> list[Group]:
    """Return the groups of an experiment, in the order in which its cells name problems and agents.

    Cells with one label but different parameters are different problems (or agents) and told apart by what differs;
    so are cells of one problem with different numbers of episodes.
    """
    manifests = list(records.cells)
    problems = _names([manifest["problem"] for manifest in manifests])
    agents = _names([manifest["agent"] for manifest in manifests])
    lengths: dict[str, set[int]] = {}
    for manifest in manifests:
        key = _canonical([manifest["problem"]["label"], manifest["problem"]["parameters"]])
        lengths.setdefault(key, set()).add(int(manifest["episodes"]))
    curves, phases = _curves(records.curves), _phases(records.phases)
    nothing = Curve(np.empty(0, np.int64), np.empty(0))
    members: dict[tuple[str, str], list[Cell]] = {}
    for manifest in manifests:
        problem, agent = manifest["problem"], manifest["agent"]
        key = _canonical([problem["label"], problem["parameters"]])
        name = problems[key]
        if len(lengths[key]) > 1:
            name += f", {int(manifest['episodes']):,} episodes"
        where = (name, agents[_canonical([agent["label"], agent["parameters"]])])
        cell = str(manifest["cell"])
        found = Cell(int(manifest["seed"]), manifest, curves.get(cell, nothing), phases.get(cell, []))
        members.setdefault(where, []).append(found)
    return [
        Group(problem, agent, sorted(cells, key=lambda cell: cell.seed)) for (problem, agent), cells in members.items()
    ]

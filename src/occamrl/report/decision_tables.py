"""The decisions of a group as tables over epochs: shares of seeds, single seeds, and statistics against thresholds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from occamrl.report.decisions import Step, choice_of, lock_in, plain_choice, steps
from occamrl.report.inputs import Group
from occamrl.report.numbers import is_number, plain, plains

MOST_EPOCHS = 120
MOST_ROWS = 64
MOST_SEEDS = 50  # listed one by one
MOST_LINES = 64

_EVIDENCE = {"chosen": "statistics", "active": "estimate"}  # the list that is held against the threshold


def _kept_epochs(walks: Sequence[dict[int, Step]]) -> tuple[list[int], int]:
    """Return the epochs that are shown, and how many there are."""
    epochs = sorted({epoch for walk in walks for epoch in walk})
    if len(epochs) <= MOST_EPOCHS:
        return epochs, len(epochs)
    at = np.unique(np.linspace(0, len(epochs) - 1, MOST_EPOCHS).round().astype(int))
    return [epochs[i] for i in at], len(epochs)


def _members(decision: Any) -> tuple[int, ...]:
    return decision if isinstance(decision, tuple) else (decision,)


def _shares(table: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return, for each class or coordinate and epoch, the share of seeds in which it was chosen or active."""
    columns = [[decision for decision in column if decision is not None] for column in zip(*table, strict=True)]
    counts = [Counter(row for decision in column for row in _members(decision)) for column in columns]
    rows: Counter[int] = sum(counts, Counter())
    kept = sorted(row for row, _ in rows.most_common(MOST_ROWS))
    reached = [len(column) for column in columns]
    share = [[plain(count[row] / of) for count, of in zip(counts, reached, strict=True)] for row in kept]
    return {"rows": kept, "hidden": len(rows) - len(kept), "share": share, "reached": reached}


def _spread(columns: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return median, smallest and largest over seeds, epoch by epoch."""
    ends: dict[str, Any] = {"median": np.median, "low": np.min, "high": np.max}
    return {name: [plain(f(column)) if column else None for column in columns] for name, f in ends.items()}


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list) or not all(is_number(part) for part in value):
        return []
    return [float(part) for part in value]


def _evidence(kind: str, walks: Sequence[dict[int, Step]], epochs: Sequence[int]) -> dict[str, Any] | None:
    """Return what was held against the threshold: T_m of each class, or the size of each coordinate's estimate."""
    name = _EVIDENCE.get(kind)
    if name is None:
        return None
    columns: list[list[list[float]]] = []  # [epoch][seed][line]
    thresholds: list[list[float]] = []
    for epoch in epochs:
        found = [walk[epoch].facts for walk in walks if epoch in walk]
        usable = [facts for facts in found if is_number(facts.get("threshold")) and facts.get(name)]
        columns.append([_numbers(facts[name]) for facts in usable])
        thresholds.append([float(facts["threshold"]) for facts in usable])
    width = max((len(line) for column in columns for line in column), default=0)
    if width == 0:
        return None
    size = np.abs if kind == "active" else np.asarray
    lines = [
        _spread([[float(size(line[m])) for line in column if m < len(line)] for column in columns])
        for m in range(min(width, MOST_LINES))
    ]
    first = 1 if kind == "chosen" else 0  # classes are counted from 1, coordinates from 0
    names = list(range(first, first + len(lines)))
    return {"of": name, "names": names, "hidden": width - len(lines), "lines": lines, "threshold": _spread(thresholds)}


def _settled(group: Group, kind: str) -> dict[str, Any] | None:
    """Return when the seeds settled, and on what; None for norm bounds, which are estimated anew each time."""
    locks = [lock for cell in group.cells if (lock := lock_in(cell, kind)) is not None]
    if kind == "norm_bound" or not locks:
        return None
    final = Counter(_shown(lock.decision) for lock in locks)
    epochs = np.array([lock.epoch for lock in locks])
    return {
        "seeds": len(locks),
        "epoch": plains([np.median(epochs), epochs.min(), epochs.max()]),
        "episode": plain(np.median([lock.episode for lock in locks])),
        "unsettled": sum(lock.changed_last for lock in locks),
        "final": [[decision, count] for decision, count in final.most_common(5)],
    }


def _shown(decision: Any) -> str:
    if not isinstance(decision, tuple):
        return str(decision)
    return "{" + ", ".join(map(str, decision[:12])) + (", ..." if len(decision) > 12 else "") + "}"


def decisions(group: Group) -> dict[str, Any] | None:
    """Return the decisions of a group as plain data; None for agents that make none."""
    kind = choice_of(group.cells)
    if kind is None:
        return None
    walks = [steps(cell, kind) for cell in group.cells]
    epochs, in_all = _kept_epochs(walks)
    table = [
        [plain_choice(kind, walk[epoch].facts[kind]) if epoch in walk else None for epoch in epochs] for walk in walks
    ]
    starts = [[walk[epoch].episode for walk in walks if epoch in walk] for epoch in epochs]
    found: dict[str, Any] = {
        "kind": kind,
        "epochs": epochs,
        "epochs_in_all": in_all,
        "episode": [plain(np.median(column)) for column in starts],
        "seeds": group.seeds[:MOST_SEEDS],
        "choices": [[list(c) if isinstance(c, tuple) else c for c in line] for line in table[:MOST_SEEDS]],
        "settled": _settled(group, kind),
        "evidence": _evidence(kind, walks, epochs),
    }
    if kind == "norm_bound":
        found["choices"] = [plains(line) for line in found["choices"]]
        return found | _spread([[c for c in column if c is not None] for column in zip(*table, strict=True)])
    return found | _shares(table)

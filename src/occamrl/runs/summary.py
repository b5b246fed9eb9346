"""What `status` and `verify` print: lines for people, data for programs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from occamrl.runs.display import duration
from occamrl.runs.locks import describe, is_gone
from occamrl.runs.records import Damage, Status
from occamrl.runs.tables import jsonable

_MOST = 20


def lines(now: Status, holder: dict[str, Any] | None) -> list[str]:
    """Return where an experiment stands, in words."""
    counts = (("finished", now.done), ("running", now.running), ("failed", now.failed), ("to run", now.missing))
    text = [f"{now.name}: {len(now.order)} cells; " + ", ".join(f"{len(each)} {name}" for name, each in counts)]
    if holder is not None:
        gone = ", which is gone; the next run recovers it" if is_gone(holder) else ""
        text.append(f"lock: {describe(holder)}{gone}")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for manifest in now.done:
        groups[manifest["problem"]["label"], manifest["agent"]["label"]].append(manifest)
    for (problem, agent), cells in groups.items():
        mean = sum(cell["total_regret"] for cell in cells) / len(cells)
        spent = sum(cell["wall_time"] for cell in cells) / len(cells)
        text.append(f"  {problem} / {agent}: {len(cells)} seeds, mean regret {mean:,.1f}, {spent:.2f} s a cell")
    for cell, progress in now.running.items():
        left = duration((progress["total"] - progress["episodes"]) / max(progress["rate"], 1e-9))
        done = f"{progress['episodes']:,} of {progress['total']:,} episodes, regret {progress['regret']:,.1f}"
        text.append(f"  running {cell}: {done}, {progress['rate']:,.0f} episodes/s, {left} left")
    for manifest in now.failed[:_MOST]:
        who = f"{manifest['problem']['label']} / {manifest['agent']['label']} / seed {manifest['seed']}"
        reason = str(manifest.get("reason") or "").strip().splitlines()
        text.append(f"  failed {manifest['cell']} {who}: {reason[-1] if reason else '?'}")
    text += [f"  damaged: {wrong}" for wrong in list(now.damaged.values())[:_MOST]]
    return text


def as_data(now: Status, holder: dict[str, Any] | None) -> dict[str, Any]:
    """Return where an experiment stands, as plain data."""
    data: dict[str, Any] = jsonable(
        {
            "name": now.name,
            "cells": len(now.order),
            "lock": None if holder is None else {key: holder.get(key) for key in ("pid", "host", "since")},
            "finished": [manifest["cell"] for manifest in now.done],
            "failed": {manifest["cell"]: manifest.get("reason") for manifest in now.failed},
            "running": now.running,
            "missing": now.missing,
            "damaged": {cell: str(wrong) for cell, wrong in now.damaged.items()},
        }
    )
    return data


def damage_lines(found: list[Damage], folder: Path) -> list[str]:
    """Return what `verify` found, and what to do about it."""
    if not found:
        return [f"{folder}: every record and checkpoint is as it was written"]
    text = []
    for damage in found:
        text.append(f"damaged: {damage.problem}")
        if damage.moved_to is not None:
            text.append(f"  cell {damage.cell} put aside: {damage.moved_to}")
    if any(damage.cell for damage in found):
        text.append(f"Run the cells that were put aside again with: occamrl resume {folder}")
    if any(damage.cell is None for damage in found):
        text.append("The copy of the spec is damaged; results do not depend on it, and `occamrl run` renews it.")
    return text


def damage_data(found: list[Damage]) -> dict[str, Any]:
    """Return what `verify` found, as plain data."""
    keys = ("path", "problem", "cell", "moved_to")
    return {"damaged": [{key: getattr(damage, key) for key in keys} for damage in found]}

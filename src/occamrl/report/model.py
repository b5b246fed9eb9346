"""Everything a page or a figure shows, as plain data: computed once here, drawn elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from occamrl.errors import UnknownName
from occamrl.report import toml
from occamrl.report.curves import mean_curve
from occamrl.report.decision_tables import decisions
from occamrl.report.inputs import Group, RecordsLike, Unfinished, groups
from occamrl.report.numbers import plain, plains
from occamrl.report.statistics import (
    CONFIDENCE,
    FEWEST,
    Difference,
    Interval,
    intervals,
    paired,
    reverse,
    slope,
    summarise,
)


class Memory:
    """What was computed for the last report: a cell never changes, so a group of the same cells gives the same."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], Any] = {}
        self._now: dict[tuple[Any, ...], Any] = {}

    def of(self, what: str, members: Sequence[Group], make: Callable[[], Any]) -> Any:
        """Return what ``make`` gives, or gave for the same cells in this report or the last."""
        cells = tuple(
            (group.agent, group.problem, *(str(cell.manifest["cell"]) for cell in group.cells)) for group in members
        )
        key = (what, cells)
        if key not in self._now:
            self._now[key] = self._last[key] if key in self._last else make()
        return self._now[key]

    def turn(self) -> None:
        """Forget what the report that ends here did not use."""
        self._last, self._now = self._now, {}


MOST_BASELINES = 12  # with more agents, differences are against one baseline only
MOST_PROGRESS = 64  # running cells that are listed


def _ends(ends: Interval | None) -> list[float | int | None] | None:
    return None if ends is None else plains(ends)


def _curve(group: Group) -> dict[str, Any] | None:
    curve = mean_curve(group)
    if curve is None:
        return None
    return {
        "episode": curve.episodes.tolist(),
        "mean": plains(curve.mean),
        "low": None if curve.band is None else plains(curve.band[0]),
        "high": None if curve.band is None else plains(curve.band[1]),
        "smallest": plains(curve.smallest),
        "largest": plains(curve.largest),
    }


def _of_cells(group: Group) -> dict[str, Any]:
    """Return what concerns one agent on one problem alone."""
    episodes = sum(group.numbers("episodes").values())
    return {
        "seeds": group.seeds,
        "episodes": int(group.cells[0].manifest["episodes"]),
        "curve": _curve(group),
        "totals": plains(group.numbers("total_regret").values()),
        "plans": plain(np.mean(list(group.numbers("plans").values()))),
        "pessimistic": plain(sum(group.numbers("pessimistic_episodes").values()) / max(episodes, 1)),
        "wall_time": plain(np.mean(list(group.numbers("wall_time").values()))),
        "decisions": decisions(group),
    }


def _of_seeds(members: Sequence[Group]) -> list[dict[str, Any]]:
    """Return total regret and log-log slope of every agent on one problem, with intervals over seeds."""
    problem = members[0].problem
    regrets = summarise([np.array(list(group.numbers("total_regret").values())) for group in members], problem)
    slopes = [np.array([slope(cell.curve.episodes, cell.curve.regret) for cell in group.cells]) for group in members]
    slopes = [row[np.isfinite(row)] for row in slopes]  # seeds without a slope are left out, and counted out
    return [
        {
            "regret": {
                "mean": plain(regret.mean),
                "interval": _ends(regret.mean_interval),
                "median": plain(regret.median),
                "iqm": plain(regret.iqm),
                "iqm_interval": _ends(regret.iqm_interval),
            },
            "slope": {"seeds": row.size, "mean": plain(row.mean()), "interval": _ends(ends)} if row.size else None,
        }
        for regret, row, ends in zip(regrets, slopes, intervals(slopes, np.mean, problem, "slope"), strict=True)
    ]


def _row(agent: int, baseline: int, found: Difference) -> dict[str, Any]:
    return {
        "agent": agent,
        "baseline": baseline,
        "pairs": found.pairs,
        "mean": plain(found.mean),
        "interval": _ends(found.interval),
        "median": plain(found.median),
        "less": found.less,
        "more": found.more,
        "unpaired": list(found.unpaired),
    }


def _differences(members: Mapping[int, Group], baseline: int) -> list[dict[str, Any]]:
    """Return paired differences of total regret: every pair both ways, or against one baseline if there are many."""
    totals = {agent: group.numbers("total_regret") for agent, group in members.items()}
    pairs = list(combinations(members, 2))
    if len(members) > MOST_BASELINES:
        pairs = [pair for pair in pairs if baseline in pair]
    problem = next(iter(members.values())).problem
    rows = []
    for (a, b), found in zip(pairs, paired([(totals[a], totals[b]) for a, b in pairs], problem), strict=True):
        if found is not None:
            rows += [_row(a, b, found), _row(b, a, reverse(found))]
    return rows


def _problem(name: str, members: Mapping[int, Group], baseline: int, memory: Memory) -> dict[str, Any]:
    every = list(members.values())
    over_seeds = memory.of("seeds", every, partial(_of_seeds, every))
    return {
        "name": name,
        "agents": [
            {"agent": index, **memory.of("cells", (group,), partial(_of_cells, group)), **numbers}
            for (index, group), numbers in zip(members.items(), over_seeds, strict=True)
        ],
        "differences": memory.of(
            f"differences {[*members]} {baseline}", every, partial(_differences, members, baseline)
        ),
    }


def _cell_id(cell: Any) -> str:
    return str(cell.get("cell", "")) if isinstance(cell, Mapping) else str(cell)


def _failure(cell: Any) -> dict[str, str]:
    about: Mapping[str, Any] = cell if isinstance(cell, Mapping) else {}
    parts = [str(about[part]["label"]) for part in ("problem", "agent") if isinstance(about.get(part), Mapping)]
    parts += [f"seed {about['seed']}"] if "seed" in about else []
    return {"cell": _cell_id(cell), "who": ", ".join(parts), "reason": str(about.get("reason") or "not stated")}


def _variants(manifests: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return every fact of the manifests' ``name`` with the values it took and in how many cells."""
    counts: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for key, value in dict(manifest.get(name) or {}).items():
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            values = counts.setdefault(str(key), {})
            values[text] = values.get(text, 0) + 1
    return [{"name": key, "values": [[text, n] for text, n in values.items()]} for key, values in counts.items()]


_PROGRESS = ("episodes", "total", "regret", "rate")


def standing(done: int, now: Unfinished) -> dict[str, Any]:
    """Return how far an experiment has come, with the progress of running cells and the reasons of failed ones."""
    counts = {name: len(getattr(now, name)) for name in ("running", "missing", "failed")}
    running = now.running if isinstance(now.running, Mapping) else {}
    return {
        "done": done,
        **counts,
        "total": done + sum(counts.values()),
        "failures": [_failure(cell) for cell in now.failed],
        "progress": [
            {"cell": str(cell), **{name: plain(about.get(name)) for name in _PROGRESS}}
            for cell, about in running.items()
        ][:MOST_PROGRESS],
    }


def build(records: RecordsLike, baseline: str | None = None, memory: Memory | None = None) -> dict[str, Any]:
    """Return the data of a report.

    Parameters
    ----------
    records : Records
        What ``occamrl.runs.records.load`` gives.
    baseline : str, optional
        The agent that the table of differences opens with; otherwise the spec's ``baseline``, or the first agent.
    memory : Memory, optional
        Carried from one report of a folder to the next, it saves what has not changed.
    """
    memory = memory or Memory()
    found = groups(records)
    agents = list(dict.fromkeys(group.agent for group in found))
    wanted = baseline if baseline is not None else records.spec.get("baseline")
    if baseline is not None and baseline not in agents:
        raise UnknownName("baseline", got=baseline, known=agents)
    against = agents.index(wanted) if wanted in agents else 0
    problems: dict[str, dict[int, Group]] = {}
    for group in found:
        problems.setdefault(group.problem, {})[agents.index(group.agent)] = group
    shown = [_problem(name, dict(sorted(members.items())), against, memory) for name, members in problems.items()]
    memory.turn()
    return {
        "format": 1,
        "name": records.name,
        "description": str(records.spec.get("description") or ""),
        "confidence": CONFIDENCE,
        "fewest": FEWEST,
        "status": standing(len(records.cells), records),
        "agents": agents,
        "baseline": against,
        "problems": shown,
        "spec": toml.dumps(records.spec),
        "versions": _variants(records.cells, "versions"),
        "machine": _variants(records.cells, "machine"),
    }

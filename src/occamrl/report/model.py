"""Everything a page or a figure shows, as plain data: computed once here, drawn elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from occamrl.errors import UnknownName
from occamrl.report import toml
from occamrl.report.curves import mean_curve
from occamrl.report.decision_tables import decisions
from occamrl.report.inputs import Group, RecordsLike, groups
from occamrl.report.numbers import plain, plains
from occamrl.report.statistics import (
    CONFIDENCE,
    FEWEST,
    Difference,
    Interval,
    interval,
    paired,
    reverse,
    slope,
    summarise,
)

MOST_BASELINES = 12  # with more agents, differences are against one baseline only


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


def _slope(group: Group) -> dict[str, Any] | None:
    """Return the mean log-log slope over the seeds that have one, with its interval."""
    slopes = np.array([slope(cell.curve.episodes, cell.curve.regret) for cell in group.cells])
    slopes = slopes[np.isfinite(slopes)]
    if slopes.size == 0:
        return None
    ends = interval(slopes, np.mean, group.problem, group.agent, "slope")
    return {"seeds": slopes.size, "mean": plain(slopes.mean()), "interval": _ends(ends)}


def _agent(group: Group, index: int) -> dict[str, Any]:
    regret = summarise(np.array(list(group.numbers("total_regret").values())), group.problem, group.agent)
    episodes = sum(group.numbers("episodes").values())
    return {
        "agent": index,
        "seeds": group.seeds,
        "episodes": int(group.cells[0].manifest["episodes"]),
        "curve": _curve(group),
        "regret": {
            "mean": plain(regret.mean),
            "interval": _ends(regret.mean_interval),
            "median": plain(regret.median),
            "iqm": plain(regret.iqm),
            "iqm_interval": _ends(regret.iqm_interval),
        },
        "totals": plains(group.numbers("total_regret").values()),
        "slope": _slope(group),
        "plans": plain(np.mean(list(group.numbers("plans").values()))),
        "pessimistic": plain(sum(group.numbers("pessimistic_episodes").values()) / max(episodes, 1)),
        "wall_time": plain(np.mean(list(group.numbers("wall_time").values()))),
        "decisions": decisions(group),
    }


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
    rows = []
    pairs = list(combinations(members, 2))
    if len(members) > MOST_BASELINES:
        pairs = [pair for pair in pairs if baseline in pair]
    for agent, other in pairs:
        a, b = members[agent], members[other]
        found = paired(a.numbers("total_regret"), b.numbers("total_regret"), a.problem, a.agent, b.agent)
        if found is not None:
            rows += [_row(agent, other, found), _row(other, agent, reverse(found))]
    return rows


def _problem(name: str, members: Mapping[int, Group], baseline: int) -> dict[str, Any]:
    return {
        "name": name,
        "agents": [_agent(group, index) for index, group in members.items()],
        "differences": _differences(members, baseline),
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


def build(records: RecordsLike, baseline: str | None = None) -> dict[str, Any]:
    """Return the data of a report.

    Parameters
    ----------
    records : Records
        What ``occamrl.runs.records.load`` gives.
    baseline : str, optional
        The agent that the table of differences opens with; otherwise the spec's ``baseline``, or the first agent.
    """
    found = groups(records)
    agents = list(dict.fromkeys(group.agent for group in found))
    wanted = baseline if baseline is not None else records.spec.get("baseline")
    if baseline is not None and baseline not in agents:
        raise UnknownName("baseline", got=baseline, known=agents)
    against = agents.index(wanted) if wanted in agents else 0
    problems: dict[str, dict[int, Group]] = {}
    for group in found:
        problems.setdefault(group.problem, {})[agents.index(group.agent)] = group
    counts = {name: len(getattr(records, name)) for name in ("running", "missing", "failed")}
    return {
        "format": 1,
        "name": records.name,
        "confidence": CONFIDENCE,
        "fewest": FEWEST,
        "status": {
            "done": len(records.cells),
            **counts,
            "total": len(records.cells) + sum(counts.values()),
            "failures": [_failure(cell) for cell in records.failed],
        },
        "agents": agents,
        "baseline": against,
        "problems": [_problem(name, dict(sorted(members.items())), against) for name, members in problems.items()],
        "spec": toml.dumps(records.spec),
        "versions": _variants(records.cells, "versions"),
        "machine": _variants(records.cells, "machine"),
    }

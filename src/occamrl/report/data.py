"""What a report shows, as plain data: computed once from the records of an experiment, drawn elsewhere.

Records that differ only in their seed are a group. Each seed is one observation: nothing inside a
run counts as a repetition. Intervals are bootstrap intervals of a mean over seeds, as
:func:`occamrl.compare` has them; their draws are fixed, so a report that is written again is the
same. With ten seeds a nominal 95 % interval covers about 90 %.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import tomli_w
from scipy import stats

from occamrl.answers.answer import stretch_begin
from occamrl.experiments.league import league
from occamrl.experiments.records import Records, kept_of
from occamrl.experiments.tables import FEWEST, interval
from occamrl.protocols import Floats, Ints
from occamrl.report.figures import curve_of, episodes_of

COLUMNS = 48  # of a picture of decisions
MOST_ROWS, MOST_SEEDS = 64, 50  # coordinates, and single seeds, that it shows
MOST_BASELINES = 12  # with more agents, differences are against one baseline only
REFERENCES = ("oracle", "largest", "smallest")
DECISIONS = {  # the fact of a phase that holds them, and its types
    "features": ("chosen", (list,)),
    "class": ("chosen", (int,)),
    "norm": ("norm_bound", (int, float)),
    "base": ("base", (int,)),
}


@dataclass(frozen=True, eq=False)
class Group:
    """The records of one agent on one problem, by increasing seed."""

    problem: str
    agent: str
    records: Sequence[Mapping[str, Any]]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the records."""
        return [record["seed"] for record in self.records]

    @property
    def curves(self) -> tuple[Ints, Floats]:
        """Episodes, up to the last one that all have, and the cumulative regret of each record at these."""
        runs = [kept_of(record) for record in self.records]
        at = episodes_of(min(run.total_episodes for run in runs))
        return at, np.array([run.regret_at(at) for run in runs])

    def numbers(self, name: str) -> dict[int, float]:
        """Return a number of the records by seed."""
        return {record["seed"]: float(record[name]) for record in self.records}

    def values(self, name: str) -> Floats:
        """Return a number of the records as an array."""
        return np.array(list(self.numbers(name).values()))


def groups_of(records: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Return the groups, in the order in which the records name problems and agents."""
    members: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        members.setdefault((record["problem"]["label"], record["agent"]["label"]), []).append(
            record
        )
    return [
        Group(*names, sorted(each, key=lambda record: record["seed"]))
        for names, each in members.items()
    ]


def ends_of(values: Any) -> list[Any] | None:
    """Return the bootstrap interval of a mean over seeds; None with too few."""
    return None if (found := interval(values)) is None else rounded_or_none(found)


def summarise(values: Floats) -> dict[str, Any]:
    """Return mean with its interval, median and mean of the middle half (``iqm``) of one number per seed."""
    found = {
        "mean": round_or_none(values.mean()),
        "interval": ends_of(values),
        "median": round_or_none(np.median(values)),
    }
    return found | {"iqm": round_or_none(stats.trim_mean(values, 0.25))}


def paired(agent: Mapping[int, float], baseline: Mapping[int, float]) -> dict[str, Any] | None:
    """Return the differences of two agents' numbers over the seeds that both have; None without any.

    Agent minus baseline: negative differences of regret favour the agent. ``less`` and ``more``
    count the seeds in which the agent's number is smaller and larger; ``unpaired`` seeds are left
    out.
    """
    row = np.array(
        [agent[seed] - baseline[seed] for seed in sorted(agent.keys() & baseline.keys())]
    )
    if not row.size:
        return None
    found = {"pairs": row.size, "mean": round_or_none(row.mean()), "interval": ends_of(row)}
    found |= {
        "median": round_or_none(np.median(row)),
        "less": int((row < 0).sum()),
        "more": int((row > 0).sum()),
    }
    return found | {"unpaired": sorted(agent.keys() ^ baseline.keys())}


def slope(episodes: Ints, cumulative_regret: Floats) -> float:
    """Return the slope of log regret against log episode over the last tenfold of a run; nan if it has none.

    Least squares on log-spaced points, read off the curve by interpolation in logarithms. A curve
    that is zero somewhere in that part, or shorter than a doubling, has no slope.
    """
    inside = episodes >= max(episodes[-1] / 10.0, 1.0)
    if inside.sum() < 2 or not (cumulative_regret[inside] > 0.0).all():
        return math.nan
    log_k, log_r = np.log(episodes[inside]), np.log(cumulative_regret[inside])
    if log_k[-1] - log_k[0] < math.log(2.0):
        return math.nan
    x = np.linspace(log_k[0], log_k[-1], 33)
    return round(float(np.polyfit(x, np.interp(x, log_k, log_r), 1)[0]), 9) + 0.0


def round_or_none(value: Any) -> float | int | None:
    """Return a number with six significant digits, a whole one as an int; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{float(value):.6g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def rounded_or_none(values: Iterable[Any]) -> list[Any]:
    """Return numbers with six significant digits."""
    return [round_or_none(value) for value in values]


def mean_curve(group: Group) -> dict[str, Any]:
    """Return the mean cumulative regret over seeds, its pointwise interval, and the range of all seeds."""
    at, lines = group.curves
    found = curve_of(at, lines) | {"smallest": lines.min(axis=0), "largest": lines.max(axis=0)}
    return {name: None if line is None else rounded_or_none(line) for name, line in found.items()}


def decisions(group: Group) -> dict[str, Any] | None:
    """Return the decisions of a group over episodes; None for agents that make none."""
    runs = [
        [row for row in record["phases"] if row.get("label") != "estimation"]
        for record in group.records
    ]
    phases = [row for rows in runs for row in rows]
    kinds = [
        kind
        for kind, (name, form) in DECISIONS.items()
        if any(type(row.get(name)) in form for row in phases)
    ]
    if not kinds or not all(runs):
        return None
    kind, resolved = kinds[0], group.records[0].get("resolved") or {}
    name = DECISIONS[kind][0]
    at = np.unique(np.geomspace(1, min(group.values("episodes")), COLUMNS).round().astype(np.int64))
    table = []  # [seed][column]
    for rows in runs:
        places = np.searchsorted([row["first"] for row in rows], at, side="right") - 1
        table.append([rows[i].get(name) if i >= 0 else None for i in places])
    found: dict[str, Any] = {
        "kind": kind,
        "episode": at.tolist(),
        "seeds": group.seeds[:MOST_SEEDS],
    }
    found["choices"] = table[:MOST_SEEDS]
    columns = [
        [choice for choice in column if choice is not None] for column in zip(*table, strict=True)
    ]
    if kind == "norm":
        ends = np.array([np.quantile(c or [np.nan], [0.5, 0.0, 1.0]) for c in columns]).T
        return found | {
            key: rounded_or_none(line)
            for key, line in zip(("median", "low", "high"), ends, strict=True)
        }
    if kind != "base":
        locks = [stretch_begin(rows, "chosen", rows[-1]["chosen"], 0) for rows in runs]
        (final, agree), *_ = Counter(json.dumps(rows[-1]["chosen"]) for rows in runs).most_common(1)
        settled = {"final": json.loads(final), "agree": agree, "seeds": len(runs)}
        found["settled"] = {"episode": round_or_none(np.median(locks)), **settled}
    counts = [
        Counter(row for c in column for row in (c if isinstance(c, list) else [c]))
        for column in columns
    ]
    totals: Counter[int] = sum(counts, Counter())
    names = resolved.get("classes") or []
    totals.update(dict.fromkeys(range(1, len(names) + 1) if kind == "class" else (), 0))
    kept = sorted(row for row, _ in totals.most_common(MOST_ROWS))
    true = [resolved.get("true_class")] if kind == "class" else resolved.get("true_support") or []
    named = dict(enumerate(names, start=1)) if kind == "class" else {}
    labels = [
        named[row] if named.get(row) == f"F_{row}" else f"{row} {named.get(row, '')}".rstrip()
        for row in kept
    ]
    found["rows"], found["hidden"], found["reached"] = (
        kept,
        len(totals) - len(kept),
        [len(c) for c in columns],
    )
    found["labels"] = [
        label[:28] + (" *" if row in true else "") for row, label in zip(kept, labels, strict=True)
    ]
    shares = [(count, max(len(column), 1)) for count, column in zip(counts, columns, strict=True)]
    found["share"] = [[round_or_none(count[row] / of) for count, of in shares] for row in kept]
    return found | {"features": max(map(len, columns[0])) if kind == "features" else 0}


def describe(groups: Sequence[Group], baseline: str | None = None) -> dict[str, Any]:
    """Return agents and problems as a page shows them; differences open with ``baseline``, or with the first agent."""
    agents = list(dict.fromkeys(group.agent for group in groups))
    against = agents.index(baseline) if baseline in agents else 0
    problems = []
    for name in dict.fromkeys(group.problem for group in groups):
        members = {agents.index(group.agent): group for group in groups if group.problem == name}
        shown = [{"agent": i, **about_group(group)} for i, group in sorted(members.items())]
        regrets = {i: group.numbers("total_regret") for i, group in members.items()}
        pairs = [
            pair
            for pair in permutations(members, 2)
            if len(members) <= MOST_BASELINES or against in pair
        ]
        differences = [(a, b, paired(regrets[a], regrets[b])) for a, b in pairs]
        rows = [
            {"agent": a, "baseline": b, **found} for a, b, found in differences if found is not None
        ]
        names = {i: group.records[0]["agent"]["name"] for i, group in members.items()}
        told = headline([(agents[one["agent"]], names[one["agent"]], one) for one in shown])
        problems.append({"name": name, "headline": told, "agents": shown, "differences": rows})
    return {"agents": agents, "baseline": against, "problems": problems, "sweeps": sweeps(groups)}


def about_group(group: Group) -> dict[str, Any]:
    """Return what is shown of one agent on one problem."""
    episodes = group.values("episodes")
    at, lines = group.curves
    slopes = np.array([slope(at, line) for line in lines])
    slopes = slopes[np.isfinite(slopes)]  # seeds without a slope are left out
    return {
        "seeds": group.seeds,
        "episodes": int(episodes[0]),
        "curve": mean_curve(group),
        "totals": rounded_or_none(group.values("total_regret")),
        "regret": summarise(group.values("total_regret")),
        "slope": {"mean": round_or_none(slopes.mean()), "interval": ends_of(slopes)}
        if slopes.size
        else None,
        "plans": round_or_none(group.values("plans").mean()),
        "pessimistic": round_or_none(
            group.values("pessimistic_episodes").sum() / max(episodes.sum(), 1.0)
        ),
        "wall_time": round_or_none(group.values("wall_time").mean()),
        "decisions": decisions(group),
    }


def headline(shown: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    """Return what came out on a problem: a sentence for each selector, or else who had the least regret."""
    regret = {label: float(one["regret"]["mean"]) for label, _, one in shown}
    roles = {"largest": "largest class", "oracle": "oracle"}
    compared = [(label, roles[name]) for label, name, _ in shown if name in roles]
    sentences = []
    for label, name, one in shown:
        found = (one["decisions"] or {}).get("settled")
        if found is None or name in REFERENCES:
            continue
        final, kind = found["final"], one["decisions"]
        if kind["kind"] == "class":
            told = f"settles on class {dict(zip(kind['rows'], kind['labels'], strict=True)).get(final, final)}"
        else:
            told = f"keeps {len(final)} of {max(kind['features'], len(final))} features"
        share = (
            ""
            if found["agree"] == found["seeds"]
            else f" in {found['agree']} of {found['seeds']} seeds"
        )
        parts = [
            f"{label} {told.removesuffix(' *')}{share} by episode {found['episode']:,} (median)"
        ]
        parts[0] += f"; its regret is {regret[label]:,.4g}"
        parts += [f"that of the {role} {regret[each]:,.4g}" for each, role in compared]
        sentences.append(", ".join(parts) + ".")
    order = sorted(regret, key=lambda label: regret[label])
    text = f"{order[0]} has the least regret, {regret[order[0]]:,.4g} on average"
    next_one = f"; next comes {order[1]} with {regret[order[1]]:,.4g}." if len(order) > 1 else "."
    return sentences or [text + next_one]


def rule_of(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return name and parameters of the rule among the parameters of an agent; None without one."""
    rule = parameters.get("rule")
    return {"name": rule} if isinstance(rule, str) else rule


def sweeps(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return mean regret against every number that a spec sweeps over; lines differ in that parameter only."""
    lines: dict[tuple[str, ...], dict[float, Group]] = {}
    for group in groups:
        about = {kind: group.records[0][kind] for kind in ("problem", "agent")}
        for kind in ("problem", "agent"):
            parameters = dict(about[kind]["parameters"])
            if (rule := rule_of(parameters)) is not None:
                parameters |= {**rule.get("parameters", {}), "rule": rule["name"]}
            for name, value in parameters.items():
                if type(value) in (int, float) and math.isfinite(value):
                    rest = json.dumps(
                        {key: each for key, each in parameters.items() if key != name},
                        sort_keys=True,
                    )
                    who, where = about["agent"]["label"], about["problem"]["name"]
                    if kind == "agent":
                        who, where = (
                            parameters.get("rule", about["agent"]["name"]),
                            about["problem"]["label"],
                        )
                    lines.setdefault((name, where, str(who), kind, rest), {})[float(value)] = group
    charts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (name, where, who, _, _), points in lines.items():
        if len(points) > 1:
            rows = [points[x].values("total_regret") for x in sorted(points)]
            low, high = zip(*(ends_of(row) or (None, None) for row in rows), strict=True)
            line: dict[str, Any] = {
                "name": who,
                "x": sorted(points),
                "mean": rounded_or_none(row.mean() for row in rows),
            }
            line |= {"low": None, "high": None} if None in low else {"low": low, "high": high}
            charts.setdefault((name, where), []).append(line)
    return [
        {"parameter": name, "where": where, "lines": drawn}
        for (name, where), drawn in charts.items()
    ]


def status(records: Records) -> dict[str, Any]:
    """Return how far an experiment has come, and why cells failed."""
    counts = {name: len(getattr(records, name)) for name in ("begun", "missing", "failed")}
    return {
        "done": len(records.cells),
        **counts,
        "total": records.total,
        "failures": records.failures,
    }


def build(records: Records) -> dict[str, Any]:
    """Return the data of a report; its differences open with the spec's ``baseline``, or with the first agent."""
    tunes = set(
        records.spec.get("tuning_seeds", ())
    )  # on which constants are chosen: nothing is shown of them
    groups = groups_of(record for record in records.cells if record["seed"] not in tunes)
    competing = tunes or any(rule_of(group.records[0]["agent"]["parameters"]) for group in groups)
    ran: dict[str, Counter[str]] = {}
    for record in records.cells:
        for name, text in {**record["versions"], "platform": record["platform"]}.items():
            ran.setdefault(name, Counter())[str(text)] += 1
    return {
        "name": records.name,
        "description": str(records.spec.get("description", "")),
        "fewest": FEWEST,
        "status": status(records),
        **describe(groups, records.spec.get("baseline")),
        "league": league(records) if competing and groups else [],
        "spec": tomli_w.dumps(records.spec),
        "versions": [
            {"name": name, "values": [list(each) for each in found.items()]}
            for name, found in ran.items()
        ],
    }

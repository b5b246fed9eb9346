"""Everything a page or a figure shows, as plain data: computed once here, drawn elsewhere.

Records are sorted into groups of cells that differ only in their seed. Each seed is one observation: nothing inside a
run counts as a repetition. Intervals are bootstrap intervals of SciPy: BCa, or the percentile method where BCa is
degenerate (for instance when all seeds agree). Below :data:`FEWEST` seeds there is no interval: two numbers do not tell
how a third would fall. With ten seeds a nominal 95 % interval of a mean covers about 90 %; that is a property of the
bootstrap, not of this code.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import tomli_w
from scipy import stats

from occamrl.experiments.records import Records, Status
from occamrl.protocols import ESTIMATION, Floats, Ints
from occamrl.running.files import LARGEST_NUMBER, parse_json
from occamrl.seeding import Step as Address
from occamrl.seeding import stream

FEWEST = 3  # seeds for an interval
CONFIDENCE = 0.95
POINTS = 200  # of a curve on the page
CHOICES = ("chosen", "active", "norm_bound")  # in this order the first one a phase has is its decision
MOST_EPOCHS = 120
MOST_ROWS = 64
MOST_SEEDS = 50  # listed one by one
MOST_LINES = 64
MOST_BASELINES = 12  # with more agents, differences are against one baseline only
MOST_PROGRESS = 64  # running cells that are listed
_RESAMPLES = 999
_AT_ONCE = 4_000_000  # numbers held while resampling

Statistic = Callable[..., Any]
Ends = tuple[float, float]  # of a confidence interval


@dataclass(frozen=True, eq=False)
class Cell:
    """One finished run, with its cumulative regret at the episodes that were recorded (from 1, increasing)."""

    seed: int
    manifest: Mapping[str, Any]
    episodes: Ints
    regret: Floats
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

    @property
    def about(self) -> dict[str, Any]:
        """Name and parameters of the agent, as far as the manifests tell."""
        return {"name": "", "parameters": {}, **self.cells[0].manifest.get("agent", {})}

    def numbers(self, name: str) -> dict[int, float]:
        """Return a number of the manifests by seed."""
        return {cell.seed: float(cell.manifest[name]) for cell in self.cells}


def groups(records: Records) -> list[Group]:
    """Return the groups of an experiment, in the order in which its cells name problems and agents."""
    episodes, regret = (records.curves.column(name).to_numpy() for name in ("episode", "cumulative_regret"))
    runs: Any = pc.run_end_encode(records.curves.column("cell").combine_chunks())  # the rows of a cell stand together
    ends = runs.run_ends.to_pylist()
    rows = {cell: slice(*ends) for cell, *ends in zip(runs.values.to_pylist(), [0, *ends], ends, strict=False)}
    phases: dict[str, list[dict[str, Any]]] = {}
    for row in records.phases.select(["cell", "phase", "epoch", "label", "episodes", "facts"]).to_pylist():
        where = f"phases.parquet of cell {row['cell']}: facts of phase {row['phase']}"
        facts = parse_json((row["facts"] or "{}").encode(), where)
        phases.setdefault(row["cell"], []).append({**row, "facts": facts if isinstance(facts, dict) else {}})
    members: dict[tuple[str, str], list[Cell]] = {}
    for manifest in sorted(records.cells, key=lambda manifest: int(manifest["seed"])):
        at = rows[manifest["cell"]]
        cell = Cell(int(manifest["seed"]), manifest, episodes[at], regret[at], phases[manifest["cell"]])
        members.setdefault(_names(manifest), []).append(cell)
    return [Group(*names, members[names]) for names in dict.fromkeys(map(_names, records.cells))]


def _names(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return manifest["problem"]["label"], manifest["agent"]["label"]


def interquartile_mean(values: Floats, axis: int = -1) -> Any:
    """Return the mean of the middle half of the values."""
    return stats.trim_mean(values, 0.25, axis=axis)


def bands(values: Floats, statistic: Statistic, *address: Address, confidence: float = CONFIDENCE) -> Floats | None:
    """Return the bootstrap interval [2, points] of a statistic for every row of ``values`` [points, seeds].

    The same seeds are drawn for every row, by the random numbers at ``address`` (:func:`occamrl.seeding.stream`).
    ``statistic`` takes an ``axis``, as ``numpy.mean`` does. None with too few seeds.
    """
    points, seeds = values.shape
    if seeds < FEWEST or points == 0:
        return None
    batch = max(1, min(_RESAMPLES, _AT_ONCE // (points * seeds)))

    def resampled(method: Any, rows: Floats) -> Floats:
        def of_seeds(drawn: Ints, axis: int) -> Any:
            """Return the statistic over the seeds drawn, [points, ...]; a mean by how often each was drawn."""
            if statistic is not np.mean:
                return statistic(rows[:, drawn], axis=-1)
            if drawn.shape[-1] < seeds:  # the jackknife, without one seed: (sum_j x_j - x_i) / (n - 1)
                left_out = seeds * (seeds - 1) // 2 - drawn.sum(axis=-1)
                return (rows.sum(axis=1).reshape(-1, *[1] * left_out.ndim) - rows[:, left_out]) / (seeds - 1)
            lists = drawn.reshape(-1, drawn.shape[-1])
            places = lists + seeds * np.arange(len(lists))[:, None]
            often = np.bincount(places.ravel(), minlength=seeds * len(lists)).reshape(len(lists), seeds)
            means = np.einsum("ps,bs->pb", rows, often.astype(np.float64)) / drawn.shape[-1]
            return means.reshape(len(rows), *drawn.shape[:-1])

        with warnings.catch_warnings():  # degenerate rows are found below, by their nan
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            found = stats.bootstrap(
                (np.arange(seeds),),
                of_seeds,
                axis=-1,
                confidence_level=confidence,
                n_resamples=_RESAMPLES,
                batch=batch,
                vectorized=True,
                method=method,
                rng=stream(0, "bootstrap", *address),
            )
        return np.stack([found.confidence_interval.low, found.confidence_interval.high])

    ends = resampled("BCa", values)
    degenerate = ~np.isfinite(ends).all(axis=0)
    if degenerate.any():
        ends[:, degenerate] = resampled("percentile", values[degenerate])
    return ends


def intervals(rows: Sequence[Floats], statistic: Statistic, *address: Address) -> list[Ends | None]:
    """Return the bootstrap interval of each row, one number per seed; None for rows with too few seeds.

    Rows of one length are resampled together, which is much faster than one by one; each interval is valid by itself.
    """
    found: list[Ends | None] = [None] * len(rows)
    for size in sorted({row.size for row in rows}):
        at = [i for i, row in enumerate(rows) if row.size == size]
        ends = bands(np.stack([rows[i] for i in at]), statistic, *address, size)
        if ends is not None:
            for i, low, high in zip(at, *ends, strict=True):
                found[i] = float(low), float(high)
    return found


def summarise(rows: Sequence[Floats], *address: Address) -> list[dict[str, Any]]:
    """Return mean, median and mean of the middle half (``iqm``) of each row, one number per seed, with intervals."""
    means = intervals(rows, np.mean, *address, "mean")
    iqms = intervals(rows, interquartile_mean, *address, "iqm")
    return [
        {
            "mean": plain(values.mean()),
            "interval": plains(mean),
            "median": plain(np.median(values)),
            "iqm": plain(interquartile_mean(values)),
            "iqm_interval": plains(iqm),
        }
        for values, mean, iqm in zip(rows, means, iqms, strict=True)
    ]


def paired(
    pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]], *address: Address
) -> list[dict[str, Any] | None]:
    """Return, for each (agent, baseline) by seed, the differences over the seeds that both have; None without any.

    Agent minus baseline, under common random numbers: negative differences of regret favour the agent. ``less`` and
    ``more`` count the seeds in which the agent's number is smaller and larger; ``unpaired`` seeds are left out.
    """
    common = [sorted(agent.keys() & baseline.keys()) for agent, baseline in pairs]
    rows = [
        np.array([agent[seed] - baseline[seed] for seed in seeds])
        for (agent, baseline), seeds in zip(pairs, common, strict=True)
    ]
    return [
        {
            "pairs": row.size,
            "mean": plain(row.mean()),
            "interval": plains(ends),
            "median": plain(np.median(row)),
            "less": int((row < 0).sum()),
            "more": int((row > 0).sum()),
            "unpaired": sorted(agent.keys() ^ baseline.keys()),
        }
        if row.size
        else None
        for (agent, baseline), row, ends in zip(pairs, rows, intervals(rows, np.mean, *address, "paired"), strict=True)
    ]


def slope(episodes: Ints, cumulative_regret: Floats) -> float:
    """Return the slope of log regret against log episode over the last tenfold of a run; nan if it has none.

    Least squares on log-spaced points, read off the curve by interpolation in logarithms, so that the way a curve was
    thinned does not weigh. A curve that is zero somewhere in that part has no slope: it is ``nan``.
    """
    positive = (episodes > 0) & (cumulative_regret > 0)
    if positive.sum() < 2:
        return math.nan
    end = float(episodes[-1])
    begin = max(end / 10.0, 1.0)
    inside = episodes >= begin
    if not positive[inside].all() or inside.sum() < 2:
        return math.nan
    x = np.linspace(math.log(max(begin, float(episodes[positive][0]))), math.log(end), 33)
    if x[-1] - x[0] < math.log(2.0):
        return math.nan
    y = np.interp(x, np.log(episodes[positive]), np.log(cumulative_regret[positive]))
    centred = x - x.mean()
    fitted = float(centred @ (y - y.mean()) / (centred @ centred))
    return round(fitted, 9) + 0.0  # a flat curve has slope 0, not a rounding error


def is_number(value: Any) -> bool:
    """Say whether a fact from a record is a number that can be drawn: finite, and no integer beyond all floats."""
    return type(value) in (int, float) and abs(value) <= LARGEST_NUMBER


def plain(value: Any) -> float | int | None:
    """Return a number with six significant digits, a whole one as an int; None for nan, infinities and None."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{float(value):.6g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def plains(values: Iterable[Any] | None) -> list[float | int | None] | None:
    """Return numbers with six significant digits; None for None."""
    return None if values is None else [plain(value) for value in values]


class Step(NamedTuple):
    """One decision of one run: a phase that has it."""

    epoch: int
    episode: int  # the first episode (from 1) of that phase
    episodes: int
    decision: Any
    facts: Mapping[str, Any]


def _decision(name: str, value: Any) -> Any:
    """Return a decision as it is compared and shown: an int, a sorted tuple of ints, or a float; None if it is none."""
    if name == "active":
        if not isinstance(value, list) or not all(type(j) is int and 0 <= j < 2**53 for j in value):
            return None
        return tuple(sorted(value))
    if not is_number(value):
        return None
    return int(value) if name == "chosen" else float(value)


def walk(cell: Cell, name: str) -> list[Step]:
    """Return every phase that plays by a decision; in estimation phases all coordinates play."""
    begin, found = 1, []
    for phase in cell.phases:
        decision = _decision(name, phase["facts"].get(name))
        if decision is not None and phase["label"] != ESTIMATION:
            found.append(Step(int(phase["epoch"]), begin, int(phase["episodes"]), decision, phase["facts"]))
        begin += int(phase["episodes"])
    return found


def lock_in(steps: Sequence[Step]) -> Step:
    """Return the first step from which the decision no longer changes."""
    first = len(steps) - 1
    while first > 0 and steps[first - 1].decision == steps[-1].decision:
        first -= 1
    return steps[first]


def _shares(table: Sequence[Sequence[Any]], every: Iterable[int]) -> dict[str, Any]:
    """Return, for each class or coordinate and epoch, the share of seeds in which it was chosen or active.

    Rows of ``every`` are there even if they never were.
    """
    columns = [[decision for decision in column if decision is not None] for column in zip(*table, strict=True)]
    counts = [
        Counter(row for decision in column for row in (decision if isinstance(decision, tuple) else (decision,)))
        for column in columns
    ]
    rows: Counter[int] = sum(counts, Counter())
    rows.update(dict.fromkeys(every, 0))
    kept = sorted(row for row, _ in rows.most_common(MOST_ROWS))
    reached = [len(column) for column in columns]
    share = [[plain(count[row] / of) for count, of in zip(counts, reached, strict=True)] for row in kept]
    return {"rows": kept, "hidden": len(rows) - len(kept), "share": share, "reached": reached}


def _spread(columns: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return median, smallest and largest over seeds, epoch by epoch."""
    ends: dict[str, Any] = {"median": np.median, "low": np.min, "high": np.max}
    return {name: [plain(f(column)) if column else None for column in columns] for name, f in ends.items()}


def _evidence(kind: str, walks: Sequence[dict[int, Step]], epochs: Sequence[int]) -> dict[str, Any] | None:
    """Return what was held against the threshold: T_m of each class, or the size of each coordinate's estimate."""
    if kind == "norm_bound":
        return None
    name = "statistics" if kind == "chosen" else "estimate"
    columns: list[list[list[float]]] = []  # [epoch][seed][line]
    thresholds: list[list[float]] = []
    for epoch in epochs:
        found = [steps[epoch].facts for steps in walks if epoch in steps]
        usable = [facts for facts in found if is_number(facts.get("threshold")) and facts.get(name)]
        lists = [facts[name] if isinstance(facts[name], list) else [] for facts in usable]
        columns.append([[float(part) if is_number(part) else np.nan for part in each] for each in lists])
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


def _settled(walks: Sequence[Sequence[Step]], kind: str) -> dict[str, Any] | None:
    """Return when the seeds settled, and on what; None for norm bounds, which are estimated anew each time."""
    if kind == "norm_bound":
        return None
    locks = [lock_in(steps) for steps in walks]
    final = Counter(_shown(lock.decision) for lock in locks)
    epochs = np.array([lock.epoch for lock in locks])
    unsettled = [lock is steps[-1] and len(steps) > 1 for lock, steps in zip(locks, walks, strict=True)]
    return {
        "seeds": len(locks),
        "epoch": plains([np.median(epochs), epochs.min(), epochs.max()]),
        "episode": plain(np.median([lock.episode for lock in locks])),
        "unsettled": sum(unsettled),  # seeds whose last decision differs from the one before
        "final": [[decision, count] for decision, count in final.most_common(5)],
    }


def _shown(decision: Any) -> str:
    if not isinstance(decision, tuple):
        return str(decision)
    return "{" + ", ".join(map(str, decision[:12])) + (", ..." if len(decision) > 12 else "") + "}"


def decisions(group: Group) -> dict[str, Any] | None:
    """Return the decisions of a group as plain data; None for agents that make none."""
    every = ((name, [walk(cell, name) for cell in group.cells]) for name in CHOICES)
    kind, runs = next(((name, runs) for name, runs in every if any(runs)), ("", []))
    if not kind:
        return None
    walks = [{step.epoch: step for step in steps} for steps in runs]  # the last of each epoch
    all_epochs = sorted({epoch for steps in walks for epoch in steps})
    shown = np.unique(np.linspace(0, len(all_epochs) - 1, min(MOST_EPOCHS, len(all_epochs))).round().astype(int))
    epochs = [all_epochs[i] for i in shown]
    table = [[steps[epoch].decision if epoch in steps else None for epoch in epochs] for steps in walks]
    starts = [[steps[epoch].episode for steps in walks if epoch in steps] for epoch in epochs]
    found: dict[str, Any] = {
        "kind": kind,
        "epochs": epochs,
        "epochs_in_all": len(all_epochs),
        "episode": [plain(np.median(column)) for column in starts],
        "seeds": group.seeds[:MOST_SEEDS],
        "choices": [[list(c) if isinstance(c, tuple) else c for c in line] for line in table[:MOST_SEEDS]],
        "settled": _settled([steps for steps in runs if steps], kind),
        "evidence": _evidence(kind, walks, epochs),
    }
    if kind == "norm_bound":
        found["choices"] = [plains(line) for line in found["choices"]]
        return found | _spread([[c for c in column if c is not None] for column in zip(*table, strict=True)])
    evidence = found["evidence"]
    shares = _shares(table, evidence["names"] if evidence is not None and kind == "chosen" else ())
    return found | shares | {"labels": _row_labels(group, kind, shares["rows"])}


def _row_labels(group: Group, kind: str, rows: Sequence[int]) -> list[str]:
    """Return classes by their names, or coordinates by their numbers; what is true is marked, where that is known."""
    resolved = group.cells[0].manifest.get("resolved", {})
    resolved = resolved if isinstance(resolved, dict) else {}
    names = resolved.get("classes") if kind == "chosen" else None
    true = {resolved.get("true_class")} if kind == "chosen" else set(resolved.get("true_support") or ())
    labels = []
    for row in rows:
        name = str(row)
        if isinstance(names, list) and 0 < row <= len(names) and str(names[row - 1]) != f"F_{row}":
            name = f"{row} {str(names[row - 1])[:24]}"
        labels.append(f"{name} *" if row in true else name)
    return labels


def grid(last: int) -> Ints:
    """Return about ``POINTS`` episodes from 1 to ``last``, half of them spread evenly, half in the logarithm."""
    even, early = (spread(1, last, POINTS // 2) for spread in (np.linspace, np.geomspace))
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))


def mean_curve(group: Group) -> dict[str, Any] | None:
    """Return the mean cumulative regret over seeds, with the pointwise interval of the mean (None with too few seeds).

    Curves are linear between the episodes recorded and from zero before the first. Runs of unequal length are cut at
    the shortest; None without data.
    """
    curves = [cell for cell in group.cells if cell.episodes.size]
    if not curves:
        return None
    episodes = grid(min(int(cell.episodes[-1]) for cell in curves))
    lines = [np.interp(episodes, np.append(0, cell.episodes), np.append(0.0, cell.regret)) for cell in curves]
    values = np.stack(lines, axis=1)  # [points, seeds]
    band = bands(values, np.mean, group.problem, group.agent, "curve")
    low, high = (None, None) if band is None else map(plains, band)
    return {
        "episode": episodes.tolist(),
        "mean": plains(values.mean(axis=1)),
        "low": low,
        "high": high,
        "smallest": plains(values.min(axis=1)),
        "largest": plains(values.max(axis=1)),
    }


def _differences(members: Mapping[int, Group], baseline: int) -> list[dict[str, Any]]:
    """Return paired differences of total regret: every pair both ways, or against one baseline if there are many."""
    totals = {agent: group.numbers("total_regret") for agent, group in members.items()}
    pairs = [pair for pair in permutations(members, 2) if len(members) <= MOST_BASELINES or baseline in pair]
    problem = next(iter(members.values())).problem
    rows = zip(pairs, paired([(totals[a], totals[b]) for a, b in pairs], problem), strict=True)
    return [{"agent": a, "baseline": b, **found} for (a, b), found in rows if found is not None]


def _problem(name: str, members: Mapping[int, Group], baseline: int) -> dict[str, Any]:
    """Return all agents on one problem: total regret and log-log slope with intervals over seeds, curves, decisions."""
    each = list(members.values())
    regrets = summarise([np.array(list(group.numbers("total_regret").values())) for group in each], name)
    slopes = [np.array([slope(cell.episodes, cell.regret) for cell in group.cells]) for group in each]
    slopes = [row[np.isfinite(row)] for row in slopes]  # seeds without a slope are left out, and counted out
    ends = intervals(slopes, np.mean, name, "slope")
    shown = []
    for (index, group), regret, row, end in zip(members.items(), regrets, slopes, ends, strict=True):
        numbers = {key: list(group.numbers(key).values()) for key in ("episodes", "pessimistic_episodes")}
        shown.append(
            {
                "agent": index,
                "seeds": group.seeds,
                "episodes": int(numbers["episodes"][0]),
                "curve": mean_curve(group),
                "totals": plains(group.numbers("total_regret").values()),
                "plans": plain(np.mean(list(group.numbers("plans").values()))),
                "pessimistic": plain(sum(numbers["pessimistic_episodes"]) / max(sum(numbers["episodes"]), 1)),
                "wall_time": plain(np.mean(list(group.numbers("wall_time").values()))),
                "decisions": decisions(group),
                "regret": regret,
                "slope": {"seeds": row.size, "mean": plain(row.mean()), "interval": plains(end)} if row.size else None,
            }
        )
    differences = _differences(members, baseline)
    return {"name": name, "headline": headline(each, shown), "agents": shown, "differences": differences}


def headline(members: Sequence[Group], shown: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what came out on a problem in a sentence for each selector, or else who had the least regret."""
    regret = {group.agent: float(one["regret"]["mean"]) for group, one in zip(members, shown, strict=True)}
    role = {group.agent: str(group.cells[0].manifest.get("agent", {}).get("name", "")) for group in members}
    sentences = []
    for group, one in zip(members, shown, strict=True):
        found = one["decisions"]
        if found is None or found["settled"] is None or role[group.agent] in ("oracle", "largest", "smallest"):
            continue
        parts = [f"{group.agent} {_finding(found)} and pays {_figure(regret[group.agent])}"]
        for name, against in (("largest", "the largest model"), ("oracle", "the oracle")):
            label = next((agent for agent, kind in role.items() if kind == name), None)
            if label is not None:
                parts.append(f"{_times(regret[group.agent], regret[label])} {against}")
        sentences.append(", ".join(parts) + ".")
    if sentences:
        return sentences
    order = sorted(regret, key=lambda agent: regret[agent])
    text = f"{order[0]} has the least regret, {_figure(regret[order[0]])} on average"
    return [text + (f"; next comes {order[1]} with {_figure(regret[order[1]])}." if len(order) > 1 else ".")]


def _finding(found: Mapping[str, Any]) -> str:
    """Return what a selector settled on, and when."""
    settled, kind = found["settled"], found["kind"]
    final, seeds = settled["final"][0]
    when = f"by episode {settled['episode']:,} (median)"
    share = "" if seeds == settled["seeds"] else f" in {seeds} of {settled['seeds']} seeds"
    if kind == "chosen":
        labels = dict(zip(map(str, found["rows"]), found["labels"], strict=True))
        name = labels.get(final, final).removesuffix(" *").removeprefix(final).strip()
        return f"settles on class {final}{f' ({name})' if name else ''}{share} {when}"
    count = 0 if final == "{}" else final.count(",") + 1
    of = 0 if found["evidence"] is None else len(found["evidence"]["names"]) + found["evidence"]["hidden"]
    return f"keeps {count} of {max(of, count)} features{share} {when}"


def _times(mine: float, other: float) -> str:
    """Return how one regret compares with another: "11 times less than", "1.2 times that of"."""
    if other <= 0.0 or mine <= 0.0:
        return f"against {_figure(other)} of"
    if mine < 0.95 * other:
        return f"{_figure(other / mine, 2)} times less than"
    return f"{_figure(mine / other, 2)} times that of"


def _figure(value: float, digits: int = 3) -> str:
    """Return a number for a sentence."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:,.{digits}g}"


def rule_of(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return name and parameters of the rule among the parameters of an agent; None without one."""
    rule = parameters.get("rule")
    return {"name": rule} if isinstance(rule, str) else rule if isinstance(rule, dict) else None


def sweeps(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Return mean regret against every number that a spec sweeps over, of problems or of agents.

    Groups belong to one line when they differ in that one parameter only.
    """
    lines: dict[tuple[str, ...], dict[float, Group]] = {}
    for group in found:
        about = {kind: dict(group.cells[0].manifest.get(kind, {})) for kind in ("problem", "agent")}
        for kind, other in (("problem", "agent"), ("agent", "problem")):
            parameters = dict(about[kind].get("parameters", {}))
            rule = rule_of(parameters)
            if rule is not None:  # its constants, and what it is called
                parameters = {**parameters, **rule.get("parameters", {}), "rule": rule.get("name", "")}
            for name, value in parameters.items():
                if is_number(value):
                    rest = sorted((key, repr(part)) for key, part in parameters.items() if key != name)
                    role = str(about["agent"].get("name", "") if rule is None else parameters["rule"])
                    who = str(about[other].get("label", "")) if kind == "problem" else role
                    where = str(about["problem"].get("name" if kind == "problem" else "label", ""))
                    lines.setdefault((kind, name, where, who, repr(rest)), {})[float(value)] = group
    charts: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for (kind, name, where, who, _), points in lines.items():
        if len(points) < 2:
            continue
        at = sorted(points)
        rows = [np.array(list(points[x].numbers("total_regret").values())) for x in at]
        ends = [end for end in intervals(rows, np.mean, where, who, name) if end is not None]
        low, high = (plains(side) for side in zip(*ends, strict=True)) if len(ends) == len(at) else (None, None)
        line = {"name": who, "x": at, "mean": plains([row.mean() for row in rows]), "low": low, "high": high}
        charts.setdefault((kind, name, where), []).append(line)
    return [
        {"of": kind, "parameter": name, "where": where, "lines": drawn} for (kind, name, where), drawn in charts.items()
    ]


def _variants(manifests: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return every fact of the manifests' ``name`` with the values it took and in how many cells."""
    counts: dict[str, Counter[str]] = {}
    for manifest in manifests:
        for key, value in manifest[name].items():
            counts.setdefault(key, Counter())[str(value)] += 1
    return [{"name": key, "values": [[text, n] for text, n in values.items()]} for key, values in counts.items()]


def _without_none(value: Any) -> Any:
    """Return a table without what is None, which TOML cannot say."""
    if isinstance(value, Mapping):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return [_without_none(part) for part in value if part is not None] if isinstance(value, list) else value


def standing(now: Status) -> dict[str, Any]:
    """Return how far an experiment has come, with the progress of running cells and the reasons of failed ones."""
    counts = {"running": len(now.running), "missing": len(now.missing), "failed": len(now.failed)}
    failures = [
        {
            "cell": each["cell"],
            "who": f"{each['problem']['label']}, {each['agent']['label']}, seed {each['seed']}",
            "reason": str(each.get("reason") or "not stated"),
        }
        for each in now.failed
    ]
    shown = ("episodes", "total", "regret", "rate")
    progress = [
        {"cell": cell, **{name: plain(about[name]) for name in shown}}
        for cell, about in list(now.running.items())[:MOST_PROGRESS]
    ]
    return {"done": len(now.cells), **counts, "total": now.total, "failures": failures, "progress": progress}


def describe(found: Sequence[Group], baseline: str | None = None) -> dict[str, Any]:
    """Return agents and problems as a page shows them; differences open with ``baseline``, or with the first agent."""
    agents = list(dict.fromkeys(group.agent for group in found))
    against = agents.index(baseline) if baseline in agents else 0
    problems: dict[str, dict[int, Group]] = {}
    for group in found:
        problems.setdefault(group.problem, {})[agents.index(group.agent)] = group
    shown = [_problem(name, dict(sorted(members.items())), against) for name, members in problems.items()]
    return {"agents": agents, "baseline": against, "problems": shown, "sweeps": sweeps(found)}


def split(found: Sequence[Group], seeds: Any) -> tuple[list[Group], list[Group]]:
    """Return the cells of other seeds, which are shown, and those of ``seeds``, on which constants are chosen."""
    apart = set(seeds if isinstance(seeds, list) else ())
    parts: tuple[list[Group], list[Group]] = [], []
    for each in found:
        for tunes in (False, True):
            if cells := [cell for cell in each.cells if (cell.seed in apart) == tunes]:
                parts[tunes].append(Group(each.problem, each.agent, cells))
    return parts


def build(records: Records) -> dict[str, Any]:
    """Return the data of a report; its table of differences opens with the spec's ``baseline``, or the first agent."""
    from occamrl.report.league import league  # which is made of what stands above

    shown, tuning = split(groups(records), records.spec.get("tuning_seeds"))
    described = describe(shown, records.spec.get("baseline"))
    return {
        "format": 1,
        "name": records.name,
        "description": str(records.spec.get("description") or ""),
        "confidence": CONFIDENCE,
        "fewest": FEWEST,
        "status": standing(records),
        **described,
        "league": league(described, shown, tuning),
        "spec": tomli_w.dumps(_without_none(records.spec)),
        "versions": _variants(records.cells, "versions"),
        "machine": _variants(records.cells, "machine"),
    }

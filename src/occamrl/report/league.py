"""The league table of an arena: how much regret everybody has, with which guarantee, and what they are given.

A rival whose constants are swept is one row with two sets of figures: those of its published constants, which come
first in the sweep, and those of the constants that had the least mean regret on the spec's ``tuning_seeds``. Both are
figures of the other seeds: nothing is shown on seeds that a constant was chosen on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from occamrl.experiments.spec import Entry
from occamrl.protocols import Floats
from occamrl.report.data import Group, is_number, plain, plains, rule_of, walk

REFERENCES = ("oracle", "largest", "smallest")
BINS = 32  # of plays over time


def league(model: Mapping[str, Any], found: Sequence[Group], tuning: Sequence[Group]) -> list[dict[str, Any]]:
    """Return one table per problem on which a rule plays.

    ``model`` is what :func:`occamrl.report.data.describe` says of ``found``, the cells of the seeds that are shown;
    ``tuning`` has those of the seeds that constants are chosen on.
    """
    tables = []
    tuned_on = {(group.problem, group.agent): group for group in tuning}
    for problem in model["problems"]:
        groups = {group.agent: group for group in found if group.problem == problem["name"]}
        if not any(rule_of(group.about["parameters"]) for group in groups.values()):
            continue
        known = (group.cells[0].manifest.get("resolved", {}).get("right") for group in groups.values())
        right = next((answer for answer in known if answer is not None), None)  # a class, or coordinates: an oracle's
        shown = {
            model["agents"][one["agent"]]: _figures(one, groups[model["agents"][one["agent"]]], right)
            for one in problem["agents"]
        }
        rows: list[dict[str, Any]] = []
        for members in _rivals(list(groups.values()), tuned_on):
            first = members[0]
            best = min(members, key=lambda member: _mean_regret(tuned_on.get((member.problem, member.agent))))
            rows.append(
                {
                    "name": first.agent if len(members) == 1 else _name(first.about),
                    "reference": _reference(first),
                    "given": _given(first),
                    "published": shown[first.agent],
                    "tuned": {**shown[best.agent], "constants": _constants(best.about)} if len(members) > 1 else None,
                    "variants": len(members),
                }
            )
        rows.sort(key=lambda row: (row["reference"] is None, row["published"]["regret"]["mean"]))
        seeds = sorted({seed for group in tuning if group.problem == problem["name"] for seed in group.seeds})
        on = sorted({seed for group in groups.values() for seed in group.seeds})
        episodes = max(one["episodes"] for one in problem["agents"])
        tables.append(
            {"problem": problem["name"], "episodes": episodes, "seeds": on, "tuned_on": seeds, "rows": rows}
        )  # fmt: skip
    return tables


def _reference(group: Group) -> str | None:
    """Return what an agent is beside which others are judged: the oracle, the largest or the smallest class."""
    if group.about["name"] in REFERENCES:
        return str(group.about["name"])
    return next((name for name in REFERENCES if group.agent == f"{name} class"), None)


def _name(about: Mapping[str, Any]) -> str:
    rule = rule_of(about["parameters"])
    return str(rule["name"] if rule else about["name"])


def _split(about: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the constants of an agent or of its rule, which are numbers, and its other parameters."""
    own, rule = dict(about["parameters"]), rule_of(about["parameters"])
    if rule:
        own = {**{key: value for key, value in own.items() if key != "rule"}, **rule.get("parameters", {})}
    constants = {key: value for key, value in own.items() if is_number(value)}
    return constants, {key: value for key, value in own.items() if key not in constants}


def _constants(about: Mapping[str, Any]) -> str:
    """Return the constants in play, without the number of episodes and the scale of returns, which are none."""
    found = _split(about)[0]
    return ", ".join(f"{key} {value:g}" for key, value in found.items() if key not in ("episodes", "largest_return"))


def _rivals(groups: Sequence[Group], tuned_on: Mapping[tuple[str, str], Group]) -> Iterator[list[Group]]:
    """Yield the variants of each rival: agents that differ in their constants only, if these were compared."""
    rivals: dict[str, list[Group]] = {}
    for group in groups:
        key = repr((group.about["name"], _name(group.about), _split(group.about)[1]))
        compared = (group.problem, group.agent) in tuned_on
        rivals.setdefault(key if compared else group.agent, []).append(group)
    yield from rivals.values()


def _mean_regret(group: Group | None) -> float:
    return float("inf") if group is None else float(np.mean(list(group.numbers("total_regret").values())))


def _given(group: Group) -> str:
    """Return what an agent is given beforehand."""
    resolved = group.cells[0].manifest.get("resolved", {})
    if _reference(group):
        return str(resolved.get("knows", "the class"))
    given = resolved.get("given")
    return (", ".join(map(str, given)) or "nothing") if isinstance(given, list) else "not stated"


def _figures(one: Mapping[str, Any], group: Group, right: Any) -> dict[str, Any]:
    """Return the figures of one agent on one problem."""
    stated = group.cells[0].manifest.get("resolved", {}).get("guarantee", "not stated")
    names, plays = _plays(group)
    return {
        "agent": one["agent"],
        "guarantee": str(stated),
        "regret": {name: one["regret"][name] for name in ("mean", "interval")},
        "worst": max(one["totals"]),
        "tail": plain(np.mean([_tail(cell.episodes, cell.regret) for cell in group.cells])),
        "right": plain(_on_right(group, right)),
        "pessimistic": one["pessimistic"],
        "us": plain(1e6 * one["wall_time"] / max(one["episodes"], 1)),
        "bases": names,
        "plays": plays,
    }


def _tail(episodes: Any, regret: Floats) -> float:
    """Return the mean regret of an episode in the last tenth of a run."""
    last = float(episodes[-1])
    begin = min(0.9 * last, last - 1.0)
    before = float(np.interp(begin, np.append(0, episodes), np.append(0.0, regret)))
    return (float(regret[-1]) - before) / (last - begin)


def _on_right(group: Group, right: Any) -> float:
    """Return the share of episodes that the right class played; nan where nobody knows, or no class is imposed."""
    parameters = group.about["parameters"]
    if right is None or parameters.get("safe") or parameters.get("scope") == "all" or _reference(group):
        return float("nan")
    shares = []
    for cell in group.cells:
        if rule_of(parameters):
            at = _right_base(_bases(parameters), right)
            if at is None:
                return float("nan")
            shares.append(sum(plays[at] for _, plays in _turns(cell, at + 1)) / cell.manifest["episodes"])
            continue
        kind = "active" if isinstance(right, list) else "chosen"
        steps = walk(cell, kind)
        if not steps:
            return float("nan")
        answer = tuple(right) if isinstance(right, list) else right
        shares.append(sum(step.episodes for step in steps if step.decision == answer) / cell.manifest["episodes"])
    return float(np.mean(shares))


def _bases(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name and parameters of every base, sweeps expanded."""
    entries = [Entry.model_validate(base) for base in parameters["bases"]]
    return [{**options, "name": entry.name, "label": label} for entry in entries for label, options in entry.variants()]


def _coordinates(base: Mapping[str, Any]) -> Any:
    """Return the coordinates that a base is restricted to; None for all."""
    features = base.get("features")
    return features.get("restrict") if isinstance(features, dict) else None


def _right_base(bases: Sequence[Mapping[str, Any]], right: Any) -> int | None:
    """Return the position of the base on the right class, or on the fewest coordinates that hold the right ones."""
    if not isinstance(right, list):
        return next((i for i, base in enumerate(bases) if base["name"] == "rung" and base.get("m") == right), None)
    sizes = {}
    for i, base in enumerate(bases):
        kept = _coordinates(base)
        if kept is None or set(right) <= set(kept):
            sizes[i] = float("inf") if kept is None else len(kept)
    return min(sizes, key=lambda i: sizes[i]) if sizes else None


def _base_name(base: Mapping[str, Any]) -> str:
    if base["name"] == "rung":
        return f"class {base.get('m')}"
    kept = _coordinates(base)
    if kept is not None:
        return f"{len(kept)} feature{'s' * (len(kept) > 1)}"
    return "all features" if base.get("features") == "problem" else str(base["label"])


def _turns(cell: Any, bases: int) -> list[tuple[int, list[int]]]:
    """Return (episodes, plays of each base) of every phase that tells at least so many."""
    found = []
    for phase in cell.phases:
        plays = phase["facts"].get("plays")
        if isinstance(plays, list) and len(plays) >= bases and all(type(n) is int and n >= 0 for n in plays):
            found.append((int(phase["episodes"]), plays))
    return found


def _plays(group: Group) -> tuple[list[str], dict[str, Any] | None]:
    """Return the names of the bases of an arena, and the share of each over time, means over seeds."""
    parameters = group.about["parameters"]
    if not rule_of(parameters):
        return [], None
    names = [_base_name(base) for base in _bases(parameters)]
    last = min(int(cell.manifest["episodes"]) for cell in group.cells)
    edges = np.unique(np.geomspace(1, last + 1, BINS + 1).round())
    shares = np.zeros((len(names), edges.size - 1))
    for cell in group.cells:
        turns = _turns(cell, len(names))
        if not turns:
            return names, None
        ends = np.cumsum([0, *(episodes for episodes, _ in turns)])
        counts = np.cumsum([[0] * len(names), *(plays[: len(names)] for _, plays in turns)], axis=0)
        at = np.stack([np.interp(edges - 1, ends, counts[:, i]) for i in range(len(names))])
        shares += np.diff(at, axis=1) / np.diff(edges) / len(group.cells)
    return names, {"edges": edges.astype(int).tolist(), "shares": [plains(line) for line in shares]}


def lines(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the tables as lines for a terminal."""
    from occamrl.running.result import text_table  # and with it the compiler, which a page does without

    found: list[str] = []
    for table in tables:
        seeds = f"{len(table['seeds'])} seeds ({listed(table['seeds'])})"
        found += [f"{table['problem']}: K = {table['episodes']:,}, {seeds}", *text_table(cells(table)).splitlines(), ""]
    return found


def cells(table: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a table as they are shown in print."""
    tuned = f"tuned on seeds {listed(table['tuned_on'])}"
    found = []
    for row in table["rows"]:
        first, best = row["published"], row["tuned"]
        found.append(
            {
                "": row["name"],
                "guarantee": first["guarantee"],
                "given": row["given"],
                "regret": _with_ends(first["regret"]),
                "worst seed": _number(first["worst"]),
                "last tenth, an episode": _small(first["tail"]),
                "right class": _share(first["right"]),
                "pessimistic": _share(first["pessimistic"]),
                "us": _number(first["us"]),
                **({tuned: "" if best is None else f"{_with_ends(best['regret'])}; {best['constants']}"}
                   if table["tuned_on"] else {}),
            }
        )  # fmt: skip
    return found


def listed(seeds: Sequence[int]) -> str:
    """Return seeds in words: those that follow one another as a range."""
    run = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if run else ", ".join(map(str, seeds))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if abs(value) < 100.0 else f"{value:,.0f}"


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}" if abs(value) >= 1e-4 else "0"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100.0 * value:.0f} %"


def _with_ends(regret: Mapping[str, Any]) -> str:
    ends = regret["interval"]
    return _number(regret["mean"]) + (f" [{_number(ends[0])}, {_number(ends[1])}]" if ends else "")

"""League tables of an experiment: per problem, who has how much regret with which guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from occamrl.answers.tables import Row
from occamrl.experiments.records import Record, Records
from occamrl.experiments.tables import interval_text
from occamrl.intervals import interval


def right_class(record: Record) -> float | None:
    """Return the share of a run's episodes with the right class, features or base.

    None where there is none.
    """
    resolved = record["resolved"]
    phases = record["phases"]
    # With the scope "all" every class that is left is played, not a chosen one.
    if resolved.get("scope") == "all" or not phases:
        return None
    base = resolved.get("true_base")
    if base is not None and "plays" in phases[-1]:
        plays = phases[-1]["plays"]
        return float(plays[base] / max(1, sum(plays)))
    truth = resolved.get("true_class", resolved.get("true_support"))
    # Episodes of estimation play whatever shows the most, by design.
    choices = [row for row in phases if row.get("label") != "estimation" and "chosen" in row]
    if truth is None or not choices:
        return None
    right = sum(row["episodes"] for row in choices if row["chosen"] == truth)
    return float(right / sum(row["episodes"] for row in choices))


def league(records: Records) -> list[Row]:
    """Return the league tables of an experiment, the rows of a problem by their regret.

    An agent that is swept is one row with two figures: those of its first values (the published
    ones), and those of the values that had the least mean regret on the spec's ``tuning_seeds``.
    Both are of the other seeds: nothing is shown on seeds that a value was chosen on. ``right
    class`` is the share of episodes in which the right class was played, or the right features: of
    selectors that play what they choose, where the truth is in the ladder.
    """
    tuning = set(records.spec.get("tuning_seeds", []))
    # Only swept agents play the tuning seeds.
    swept = {record["agent"]["label"] for record in records.cells if record["seed"] in tuning}
    entrants: dict[tuple[str, str], dict[str, Entrant]] = {}  # by problem and name, by label
    for record in records.cells:
        label = record["agent"]["label"]
        name = rule_name(record) if label in swept else label
        variants = entrants.setdefault((record["problem"]["label"], name), {})
        entrant = variants.setdefault(label, Entrant(label, record["resolved"]))
        if record["seed"] in tuning:
            entrant.tuning_regret.append(record["total_regret"])
        else:
            entrant.regret.append(record["total_regret"])
            share = right_class(record)
            if share is not None:
                entrant.right_shares.append(share)
    rows = []
    for (problem, name), variants in entrants.items():
        rows.append({"problem": problem, "agent": name, **league_row(list(variants.values()))})
    return sorted(rows, key=lambda row: (row["problem"], none_last(row["regret"])))


@dataclass(eq=False)
class Entrant:
    """An agent with one choice of its constants, on one problem."""

    label: str
    resolved: dict[str, Any]  # with what is proved of it
    tuning_regret: list[float] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)  # on the other seeds
    right_shares: list[float] = field(default_factory=list)


def league_row(variants: list[Entrant]) -> Row:
    """Return the row of an agent, of which the first variant is the published one."""
    first = variants[0]
    low, high = interval(first.regret) or (None, None)
    row: Row = {
        "guarantee": first.resolved.get("guarantee", ""),
        "given beforehand": ", ".join(map(str, first.resolved.get("given", []))) or "nothing",
        "regret": mean(first.regret),
        "tuned regret": None,
        "95% interval": interval_text(low, high),
        "right class": "",
        "worst": max(first.regret, default=None),
        "tuned": "",
    }
    if first.right_shares:
        row["right class"] = f"{100.0 * float(np.mean(first.right_shares)):.0f} %"
    if len(variants) > 1:
        best = min(variants, key=lambda entrant: none_last(mean(entrant.tuning_regret)))
        row["tuned"] = best.label
        row["tuned regret"] = mean(best.regret)
    return row


def rule_name(record: Record) -> str:
    """Return what a swept agent is called: by its rule, if it has one."""
    rule = record["agent"]["parameters"].get("rule")
    if rule is None:
        return record["agent"]["name"]
    return str(rule["name"] if isinstance(rule, dict) else rule)


def mean(values: list[float]) -> float | None:
    """Return the mean; None of nothing."""
    return float(np.mean(values)) if values else None


def none_last(value: float | None) -> float:
    """Return a key that sorts None behind all numbers."""
    return math.inf if value is None else value

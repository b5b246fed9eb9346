"""The league table of an arena: rivals, constants tuned on other seeds than those shown, plays of each base."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from occamrl import registry
from occamrl.errors import SpecError
from occamrl.experiments.records import Records
from occamrl.experiments.resolution import claims
from occamrl.experiments.spec import read_spec
from occamrl.report.data import build
from occamrl.report.league import cells, lines
from occamrl.report.page import render
from tests.report.synthetic import Kind, records

EPISODES = 1_000
BASES = [{"name": "rung", "parameters": {"selector": "ARLGen"}, "sweep": {"m": [1, 2, 3]}}]
TUNING = [0, 1]


def rule(name: str, **parameters: Any) -> dict[str, Any]:
    """Return an arena as a manifest tells it."""
    return {"name": "Arena", "parameters": {"bases": BASES, "rule": {"name": name, "parameters": parameters}}}


AGENTS: dict[str, dict[str, Any]] = {
    "oracle": {"name": "oracle", "parameters": {"selector": "ARLGen"}},
    "D3RB(scale=1.0)": rule("D3RB", scale=1.0),
    "D3RB(scale=0.1)": rule("D3RB", scale=0.1),
    "D3RB(scale=0.3)": rule("D3RB", scale=0.3),
    "ECE": rule("ECE", promised=[1.0, 2.0, 3.0]),
}
REGRET = {  # of each agent on the tuning seeds, and on the others: the least on the former is not the least there
    "oracle": (1.0, 1.0),
    "D3RB(scale=1.0)": (40.0, 50.0),
    "D3RB(scale=0.1)": (10.0, 30.0),
    "D3RB(scale=0.3)": (20.0, 20.0),
    "ECE": (60.0, 60.0),
}


def arena() -> Records:
    """Return made-up records: regret grows evenly, and bases 1, 2, 3 play for 100, 300 and 600 episodes."""
    kinds = [Kind(label, 1.0, 1.0) for label in AGENTS]
    made = records(("Ice",), kinds, seeds=5, episodes=EPISODES, spread=0.0)
    curves: list[dict[str, Any]] = []
    phases: list[dict[str, Any]] = []
    manifests = []
    for manifest in made.cells:
        label, cell = manifest["agent"]["label"], manifest["cell"]
        total = REGRET[label][manifest["seed"] not in TUNING]
        resolved = {"guarantee": "valid", "given": ["order"], **({"right": 3} if label == "oracle" else {})}
        about = {"agent": {"label": label, **AGENTS[label]}, "resolved": resolved, "total_regret": total}
        manifests.append({**manifest, **about})
        for at in (1, EPISODES // 2, EPISODES):
            curves.append({"cell": cell, "episode": at, "cumulative_regret": total * at / EPISODES})
        turns = [(EPISODES, [])] if label == "oracle" else [(100, [100, 0, 0]), (300, [0, 300, 0]), (600, [0, 0, 600])]
        for phase, (episodes, plays) in enumerate(turns):
            about = {"cell": cell, "phase": phase, "epoch": 0, "label": "Arena", "episodes": episodes}
            phases.append({**about, "facts": json.dumps({"plays": plays})})
    spec, tables = {**made.spec, "tuning_seeds": TUNING}, [pa.Table.from_pylist(rows) for rows in (curves, phases)]
    return replace(made, cells=manifests, spec=spec, curves=tables[0], phases=tables[1])


def test_constants_are_chosen_on_the_tuning_seeds_and_shown_on_the_others() -> None:
    model = build(arena())
    (table,) = model["league"]
    rows = {row["name"]: row for row in table["rows"]}
    assert table["tuned_on"] == TUNING
    assert table["seeds"] == [2, 3, 4]
    assert list(rows) == ["oracle", "D3RB", "ECE"]  # the reference first, then by regret
    assert rows["D3RB"]["published"]["regret"]["mean"] == 50
    assert rows["D3RB"]["tuned"]["constants"] == "scale 0.1"
    assert rows["D3RB"]["tuned"]["regret"]["mean"] == 30  # not 10, nor the 20 of the best on these seeds
    for problem in model["problems"]:  # no other part of the page shows them, either
        assert all(one["seeds"] == [2, 3, 4] for one in problem["agents"])


def test_without_tuning_seeds_every_variant_is_a_rival() -> None:
    made = arena()
    (table,) = build(replace(made, spec={**made.spec, "tuning_seeds": []}))["league"]
    assert [row["tuned"] for row in table["rows"]] == [None] * len(AGENTS)
    assert len(cells(table)[0]) == 9


def test_a_row_has_the_tail_the_worst_seed_and_the_plays_of_the_right_class() -> None:
    (table,) = build(arena())["league"]
    oracle, first, _ = (row["published"] for row in table["rows"])
    assert first["tail"] == pytest.approx(50.0 / EPISODES)
    assert first["worst"] == 50
    assert first["right"] == pytest.approx(0.6)
    assert oracle["right"] is None
    assert oracle["plays"] is None
    assert first["bases"] == ["class 1", "class 2", "class 3"]
    shares, edges = np.array(first["plays"]["shares"]), np.array(first["plays"]["edges"])
    assert np.allclose(shares.sum(axis=0), 1.0, atol=1e-5)
    assert np.allclose(shares @ np.diff(edges), [100, 300, 600], atol=0.1)


def test_the_table_is_told_in_print_and_on_the_page() -> None:
    model = build(arena())
    told = "\n".join(lines(model["league"]))
    assert "Ice: K = 1,000, 3 seeds (2 to 4)" in told
    assert "30.0 [30.0, 30.0]; scale 0.1" in told
    assert '"league":[{"problem":"Ice"' in render(model)
    assert [line["name"] for sweep in model["sweeps"] for line in sweep["lines"]] == ["D3RB"]  # regret against scale


@pytest.mark.parametrize("name", sorted(registry.rules()))
def test_a_rule_states_its_guarantee_and_what_it_is_told(name: str) -> None:
    for made in registry.rules()[name].examples(3):
        stated = claims(made)
        assert stated["guarantee"] != "not stated"
        assert ("K" in stated["given"]) == hasattr(made, "episodes")
        assert ("promised bounds" in stated["given"]) == (getattr(made, "promised", None) is not None)


def test_a_guarantee_ends_where_constants_are_scaled() -> None:
    rules = registry.rules()
    assert claims(rules["D3RB"]())["guarantee"] == "valid, c left open"
    assert claims(rules["D3RB"](scale=0.5))["guarantee"] == "constants scaled"
    assert claims(rules["UCB1"](scale=0.5))["guarantee"] == "none"
    assert claims(object()) == {"guarantee": "not stated", "given": []}


SPEC = b"""
name = "small"
episodes = 10
seeds = [5, 6]
tuning_seeds = [0, 1]
[[problem]]
name = "SparseLadder"
parameters = { states = 4, actions = 2, horizon = 3, dimension = 4, most = 2, nonzero = 1 }
[[agent]]
name = "oracle"
parameters = { selector = "ARLGen" }
[[agent]]
name = "Arena"
bases = [{ name = "rung", parameters = { selector = "ARLGen" }, sweep = { m = [1, 2, 3] } }]
sweep = { rule = ["D3RB", "UCB1"] }
"""


def test_only_swept_agents_play_the_tuning_seeds_and_bases_are_the_classes() -> None:
    _, _, made, _ = read_spec(SPEC, "small.toml")
    assert [cell.seed for cell in made if cell.agent.name == "oracle"] == [5, 6]
    arenas = [cell for cell in made if cell.agent.name == "Arena"]
    assert [cell.seed for cell in arenas] == [5, 6, 0, 1] * 2
    _, made_agent, words = arenas[0].make()
    agent: Any = made_agent
    assert [base.family.size for base in agent.bases] == [1, 7, 19]
    assert [base["m"] for base in words["bases"]] == [1, 2, 3]
    assert made[0].make()[2]["right"] == 2


@pytest.mark.parametrize(("change", "key"), [(b"[5, 0]", "tuning_seeds"), (b"[5, 5]", "tuning_seeds")])
def test_a_seed_is_shown_or_tuned_on(change: bytes, key: str) -> None:
    with pytest.raises(SpecError, match=key):
        read_spec(SPEC.replace(b"[0, 1]", change), "small.toml")


def test_a_rung_beyond_the_ladder_is_refused() -> None:
    with pytest.raises(SpecError, match=r"agent\[1\].bases\[0\]"):
        read_spec(SPEC.replace(b"[1, 2, 3]", b"[1, 4]"), "small.toml")

"""Which columns matter, on logs of systems that others made, beside tests that others made.

    python -m studies.columns_of_others sysadmin elevators        need pyRDDLGym, rddlrepository
    python -m studies.columns_of_others double_well               needs deeptime
    python -m studies.columns_of_others taxi blackjack truths

Every case is judged by ``orl.relevant``, by AIC, BIC and G-tests of ``studies.columns``, and, where
causal-learn is installed, by its PC algorithm (Spirtes and Glymour, 1991; G-tests at .05): columns
that are next to the target in its skeleton. ``blackjack`` and ``truths`` ask after how many rows.
Cells are needs that were found, and in brackets columns that were named and are no need; of
``elevators`` needs are the columns of the formula, some of which may not matter in the instance.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any

import gymnasium
import numpy as np

import occamrl as orl
from studies.columns import CLASSICAL, TRUTHS, Case, truth_case, weigh
from studies.figures import table

SEED = 3_950
METHODS = ("likely", "proved", *CLASSICAL, "PC")
Needs = dict[str, Collection[str]]  # by target, the columns that it needs

# Judges -------------------------------------------------------------------------------------------


def by_pc(case: Case) -> tuple[int, ...]:
    """Return the columns next to the target in the skeleton of the PC algorithm."""
    constraint = importlib.import_module("causallearn.search.ConstraintBased.PC")
    columns = [column.codes for column in case.columns]
    varies = [i for i, codes in enumerate(columns) if np.ptp(codes)]
    rows = np.column_stack([*(columns[i] for i in varies), case.target.codes])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = constraint.pc(rows, 0.05, "gsq", show_progress=False).G.graph
    return tuple(i for place, i in enumerate(varies) if graph[place, -1] or graph[-1, place])


def judges() -> dict[str, Callable[[Case], tuple[int, ...]]]:
    """Return the tests of others that are there."""
    others = dict(CLASSICAL)
    if importlib.util.find_spec("causallearn") is not None:
        others["PC"] = by_pc
    return others


def judge_log(log: orl.Log, needs: Needs, lags: int = 0) -> dict[str, tuple[int, int]]:
    """Return, by method, how many needs are found, and how many columns are named that are none."""
    answer = orl.relevant(log, lags=lags, targets=list(needs))
    names = [candidate.name for candidate in answer.columns.candidates]
    found: dict[str, tuple[int, int]] = {}

    def count(method: str, target: str, named: Collection[str]) -> None:
        right, wrong = found.get(method, (0, 0))
        hits = len(set(named) & set(needs[target]))
        found[method] = (right + hits, wrong + len(set(named)) - hits)

    for name in needs:
        target = answer.columns.targets[name]
        rows = np.flatnonzero(target.rows)
        rows = rows[rows >= answer.columns.first]
        columns = [candidate.column.take(rows) for candidate in answer.columns.candidates]
        case = Case(target.column.take(rows), columns, ())
        count("likely", name, (*answer.likely[name], *answer.needed[name]))
        count("proved", name, answer.needed[name])
        for method, select in judges().items():
            count(method, name, [names[i] for i in select(case)])
    return found


def cells(found: dict[str, tuple[int, int]]) -> list[str]:
    """Return the cells of a line."""
    texts: list[str] = []
    for method in METHODS:
        right, wrong = found.get(method, (0, 0))
        text = f"{right} ({wrong})" if wrong else f"{right}"
        texts.append(text if method in found else "-")
    return texts


# Logs of others -----------------------------------------------------------------------------------


def rddl_log(domain: str, steps: int) -> tuple[orl.Log, Any]:
    """Return a log of a domain of the planning competitions, played at random, and its domain."""
    rddl = importlib.import_module("pyRDDLGym")
    env = rddl.make(domain, "1")
    draw = np.random.default_rng(SEED)
    actions = list(env.action_space.spaces)
    rows: dict[str, list[Any]] = {"episode": [], "action": []}
    states = list(env.observation_space.spaces)
    for name in states:
        rows[name] = []
    episode = -1
    done = True
    for _ in range(steps):
        if done:
            episode += 1
            state, _ = env.reset(seed=SEED + episode)
        # nothing is done half of the time
        chosen = str(draw.choice(actions)) if draw.random() < 0.5 else "none"
        rows["episode"].append(episode)
        rows["action"].append(chosen)
        for name in states:
            rows[name].append(bool(state[name]))
        state, _, terminated, truncated, _ = env.step({chosen: 1} if chosen != "none" else {})
        done = terminated or truncated
    return orl.read_log(rows, {"state": states}), env


def sysadmin(steps: int) -> tuple[orl.Log, Needs]:
    """Return ten computers, each of which needs itself, those connected to it, and the action."""
    log, env = rddl_log("SysAdmin_MDP_ippc2011", steps)
    links = env.model.ground_vars_with_values(env.model.non_fluents)
    needs: Needs = {}
    for name in map(str, log.roles["state"]):
        computer = name.removeprefix("running___")
        sources = [
            f"running___c{i}" for i in range(1, 11) if links[f"CONNECTED___c{i}__{computer}"]
        ]
        needs[name] = (name, *sources, "action")
    return log, needs


def elevators(steps: int) -> tuple[orl.Log, Needs]:
    """Return an elevator with three floors; needs are the columns that formulas mention."""
    log, env = rddl_log("Elevators_MDP_ippc2011", steps)
    grounder = importlib.import_module("pyRDDLGym.core.grounder")
    levels = importlib.import_module("pyRDDLGym.core.compiler.levels")
    graph = levels.RDDLLevelAnalysis(
        grounder.RDDLGrounder(env.model.ast).ground()
    ).build_call_graph()
    needs: Needs = {}
    for name in map(str, log.roles["state"]):
        mentioned = graph[f"{name}'"]
        acts = any(action in mentioned for action in env.action_space.spaces)
        needs[name] = [column for column in mentioned if column in log.roles["state"]]
        needs[name] = [*needs[name], *(["action"] if acts else [])]
    return log, needs


def double_well(steps: int) -> tuple[orl.Log, Needs]:
    """Return a particle between two wells: x needs x, y needs y; a third column is noise."""
    data = importlib.import_module("deeptime.data")
    path = data.double_well_2d(n_steps=100).trajectory([[-1.0, 0.0]], steps, seed=SEED)
    draw = np.random.default_rng(SEED)
    rows = {"x": path[:, 0], "y": path[:, 1], "noise": draw.normal(size=len(path))}
    rows["action"] = draw.integers(2, size=len(path))  # which does nothing
    columns = {"episode": None, "state": ["x", "y", "noise"], "action": "action"}
    return orl.read_log(rows, columns), {"x": ["x"], "y": ["y"]}


def play(name: str, steps: int, parts: Callable[[Any], tuple[int, ...]], columns: list[str]) -> Any:
    """Return the rows of an environment of Gymnasium, played at random."""
    env = gymnasium.make(name)
    draw = np.random.default_rng(SEED)
    rows: dict[str, list[Any]] = {"episode": [], "action": [], "reward": [], "terminated": []}
    for column in columns:
        rows[column] = []
    episode = -1
    done = True
    state: Any = None
    for _ in range(steps):
        if done:
            episode += 1
            state, _ = env.reset(seed=SEED + episode)
        action = int(draw.integers(env.action_space.n))  # type: ignore[attr-defined]  # Discrete
        for column, value in zip(columns, parts(state), strict=True):
            rows[column].append(value)
        state, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        rows["episode"].append(episode)
        rows["action"].append(action)
        rows["reward"].append(float(reward))
        rows["terminated"].append(terminated)
    return rows


def taxi(steps: int) -> tuple[orl.Log, Needs]:
    """Return the Taxi of Gymnasium, whose goal stays within an episode."""
    columns = ["row", "column", "passenger", "goal"]
    taxi_env: Any = gymnasium.make("Taxi-v3" if "Taxi-v3" in gymnasium.registry else "Taxi-v4")
    decode = taxi_env.unwrapped.decode
    rows = play(taxi_env.spec.id, steps, lambda state: tuple(decode(state)), columns)
    needs: Needs = {
        "row": ("row", "action"),
        "column": ("row", "column", "action"),  # walls
        "passenger": ("row", "column", "passenger", "action"),
        "goal": ("goal",),
        "reward": (*columns, "action"),
    }
    return orl.read_log(rows, {"state": columns}), needs


CASES: dict[str, tuple[Callable[[int], tuple[orl.Log, Needs]], tuple[int, ...]]] = {
    "sysadmin": (sysadmin, (1_000, 4_000, 16_000)),
    "elevators": (elevators, (1_000, 4_000, 16_000)),
    "double_well": (double_well, (1_000, 4_000, 16_000)),
    "taxi": (taxi, (4_000, 16_000)),
}


# After how many rows ------------------------------------------------------------------------------


def blackjack() -> Iterator[tuple[Any, ...]]:
    """Yield, for more and more hands, by whom the dealer's card is named for the reward."""
    columns = ["sum", "dealer", "ace"]
    rows = play("Blackjack-v1", 400_000, lambda state: tuple(map(int, state)), columns)
    episodes = np.array(rows["episode"])
    for hands in (3_000, 10_000, 30_000, 100_000):
        some = {name: np.array(values)[episodes < hands] for name, values in rows.items()}
        log = orl.read_log(some, {"state": columns})
        found = judge_log(log, {"reward": ("dealer",)})
        # others than the dealer's card matter as well: a hit or a miss of it alone is shown
        line = {method: (right, 0) for method, (right, _) in found.items()}
        yield (f"Blackjack, the dealer's card, {hands:,} hands", "1", *cells(line))


def truths() -> Iterator[tuple[Any, ...]]:
    """Yield who names the right set of the six truths of ``studies.columns``, of five logs each."""
    for truth, needed in TRUTHS.items():
        for length in (300, 1_000, 3_000, 10_000):
            right = dict.fromkeys(METHODS, 0)
            wrong = dict.fromkeys(METHODS, 0)
            for seed in range(5):
                case = truth_case(truth, length, seed)
                weighed = weigh(case, clocks=(len(case.columns) - 1,))
                named: dict[str, Collection[int]] = {}
                named["likely"] = weighed.likely
                named["proved"] = weighed.needed
                for method, select in judges().items():
                    named[method] = select(case)
                for method, chosen in named.items():
                    right[method] += set(chosen) == set(needed)
                    wrong[method] += len(set(chosen) - set(needed))
            line = {method: (right[method], wrong[method]) for method in named}
            yield (f"{truth}, {length:,}", "5", *cells(line))


def main() -> None:
    """Print the table of some cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=[*CASES, "blackjack", "truths"])
    parser.add_argument("--most", type=int, default=10**9, help="rows")
    options = parser.parse_args()
    lines: list[tuple[Any, ...]] = []
    for name in options.cases:
        if name == "blackjack":
            lines += blackjack()
        elif name == "truths":
            lines += truths()
        else:
            make, sizes = CASES[name]
            for steps in sizes:
                if steps <= options.most:
                    log, needs = make(steps)
                    total = sum(len(columns) for columns in needs.values())
                    lines.append((f"{name}, {steps:,} rows", total, *cells(judge_log(log, needs))))
    print(table(("log", "needs", *METHODS), lines))


if __name__ == "__main__":
    main()

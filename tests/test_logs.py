"""Logs are read from every format alike and refused by row and column; select judges as the agents do, and is valid."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import occamrl as orl
from occamrl.errors import ParameterError
from occamrl.logs import log as logs
from occamrl.logs.log import LogError, simulate_log
from occamrl.protocols import Flow, Outcomes
from occamrl.running.flow import walk
from occamrl.running.run import generator
from tests import cases

CASE = cases.CASES["random starts"]
COLUMNS = simulate_log(CASE.mdp, episodes=30, seed=1).columns()


def rows_of(log: Any) -> list[list[float]]:
    return np.column_stack([column.astype(float) for column in log.columns().values()]).tolist()  # type: ignore[no-any-return]


class Frame:
    """What pandas and Polars have in common."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns, self._columns = [*columns, "note"], columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def as_csv(path: Path, columns: dict[str, Any]) -> Path:
    lines = [",".join(columns)]
    lines += [",".join(str(value) for value in row) for row in zip(*(list(c) for c in columns.values()), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(dict(columns)), path, row_group_size=17)
    return path


def as_minari(columns: dict[str, Any]) -> Any:
    """A dataset whose spaces begin at 2 and 1."""
    episodes = []
    for k in np.unique(columns["episode"]):
        at = columns["episode"] == k
        states = np.append(columns["state"][at], columns["next_state"][at][-1:])
        about = {"rewards": columns["reward"][at], "terminations": columns["terminated"][at]}
        episodes.append(SimpleNamespace(observations=states + 2, actions=columns["action"][at] + 1, **about))
    spaces = {"observation_space": SimpleNamespace(n=3, start=2), "action_space": SimpleNamespace(n=2, start=1)}
    return SimpleNamespace(iterate_episodes=lambda: iter(episodes), **spaces)


FORMATS: dict[str, Callable[[Path], Any]] = {
    "mapping": lambda folder: COLUMNS,
    "lists": lambda folder: {name: column.tolist() for name, column in COLUMNS.items()},
    "frame": lambda folder: Frame(COLUMNS),
    "objects": lambda folder: {name: column.astype(object) for name, column in COLUMNS.items()},
    "Arrow": lambda folder: pa.table(dict(COLUMNS)),
    "Parquet": lambda folder: as_parquet(folder / "log.parquet", COLUMNS),
    "CSV": lambda folder: str(as_csv(folder / "log.csv", COLUMNS)),
    "Minari": lambda folder: as_minari(COLUMNS),
    "without step": lambda folder: {name: column for name, column in COLUMNS.items() if name != "step"},
    "without ends": lambda folder: {name: column for name, column in COLUMNS.items() if name != "terminated"},
}


@pytest.mark.parametrize("block", [1, 7, 2**17])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_log(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BLOCK", block)
    log = orl.read_log(FORMATS[name](tmp_path))
    assert (log.rows, log.episodes) == (30 * CASE.mdp.horizon, 30)
    assert np.allclose(rows_of(log), rows_of(orl.read_log(COLUMNS)), atol=0 if name != "CSV" else 1e-12)


def test_flows_are_the_log_counted_and_grow_with_it() -> None:
    log, known = orl.read_log(COLUMNS), CASE.mdp.known
    outcomes = CASE.ladder.features.attach(known)
    flows = list(log.flows(known, outcomes))
    sizes = [flow.episodes for flow in flows]
    for i, size in enumerate(sizes[:-1]):
        assert size == max(1, math.ceil(logs.GROWTH * sum(sizes[:i])))
    whole, other = Flow.joined([block.flow() for block in log.blocks()]), Flow.joined(flows)
    assert other.episodes == whole.episodes == 30
    for name in ("step", "state", "action", "next_state", "count"):
        assert (getattr(whole, name) == getattr(other, name)).all()
    assert np.allclose(whole.reward, other.reward)
    counts = np.zeros((3, 2, 3), int)
    np.add.at(counts, (COLUMNS["state"], COLUMNS["action"], COLUMNS["next_state"]), 1)
    found = np.zeros_like(counts)
    np.add.at(found, (whole.state, whole.action, whole.next_state), whole.count)
    assert (counts == found).all()


def changed(name: str, row: int, value: Any) -> dict[str, Any]:
    """The columns with one value replaced."""
    column = COLUMNS[name].astype(object) if isinstance(value, (str, type(None))) else COLUMNS[name].astype(float)
    column = column.copy()
    column[row] = value
    return {**COLUMNS, name: column}


BAD: list[tuple[str, int | None, dict[str, Any]]] = [
    ("state", 5, changed("state", 5, -1)),
    ("state", 5, changed("state", 5, 0.5)),
    ("action", 7, changed("action", 7, math.nan)),
    ("action", 7, changed("action", 7, "left")),
    ("next_state", 119, changed("next_state", 119, None)),
    ("reward", 3, changed("reward", 3, math.inf)),
    ("reward", 3, changed("reward", 3, "much")),
    ("terminated", 2, changed("terminated", 2, 2)),
    ("terminated", 2, changed("terminated", 2, 1)),
    ("step", 9, changed("step", 9, 3)),
    ("episode", 40, changed("episode", 40, 2)),
    ("episode", 119, changed("episode", 119, 0)),
    ("state", 5, {**COLUMNS, "state": np.where(np.arange(120) == 5, (COLUMNS["state"] + 1) % 3, COLUMNS["state"])}),
    ("state", None, {name: column for name, column in COLUMNS.items() if name != "state"}),
    ("rows", None, {name: column[:0] for name, column in COLUMNS.items()}),
    ("rows", None, {**COLUMNS, "reward": COLUMNS["reward"][:-1]}),
]


@pytest.mark.parametrize("block", [7, 2**17])
@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_bad_log_is_refused_with_row_and_column(number: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BLOCK", block)
    field, row, columns = BAD[number]
    with pytest.raises(LogError) as caught:
        orl.read_log(columns)
    assert (caught.value.field, caught.value.index) == (field, None if row is None else (row,))


@pytest.mark.parametrize(
    ("field", "row", "text"),
    [
        ("state", 1, "episode,state,action,next_state\n0,0,0,1\n0,x,0,1\n"),
        ("values", 1, "episode,state,action,next_state\n0,0,0,1\n0,1,0\n"),
        ("next_state", None, "episode,state,action\n0,0,0\n"),
        ("action", 0, "episode,state,action,next_state\n0,0,,1\n"),
    ],
)
def test_a_bad_csv_file_is_refused_with_row_and_column(field: str, row: int | None, text: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(LogError) as caught:
        orl.read_log(tmp_path / "log.csv")
    assert (caught.value.field, caught.value.index) == (field, None if row is None else (row,))


@pytest.mark.parametrize("source", ["nowhere.parquet", 3, None])
def test_what_is_no_log_is_refused(source: Any, tmp_path: Path) -> None:
    with pytest.raises((LogError, ParameterError)):
        orl.read_log(source)
    (tmp_path / "log.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(LogError, match="Parquet"):
        orl.read_log(tmp_path / "log.parquet")


@pytest.mark.parametrize(("field", "size"), [("state", 2), ("action", 1)])
def test_states_and_actions_that_the_models_lack_are_refused_with_row_and_column(field: str, size: int) -> None:
    draw = np.random.default_rng(0)
    sizes = (2, 2, 2) if field == "state" else (3, 1, 3)
    kernels = draw.dirichlet(np.ones(sizes[2]), size=(2, *sizes[:2]))
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    with pytest.raises(LogError) as caught:
        orl.select(COLUMNS, ladder)
    column = COLUMNS[field]
    assert caught.value.field in (field, "next_state")
    assert caught.value.index is not None
    assert field == "state" or caught.value.index[0] == int(np.argmax(column >= size))


# Selection ------------------------------------------------------------------------------------------------------------


def played(agent: Any, mdp: orl.FiniteMDP, episodes: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Play an agent one episode a plan at most; return the plan that it would make next, and the log."""
    state, known, flows = agent.begin(mdp.known), mdp.known, []
    for k in range(episodes):
        plan = agent.plan(known, state, generator(seed, "agent", k))
        flows.append(walk(mdp, plan.policy, generator(seed, "environment", k)))
        agent.learn(known, state, plan, flows[-1])
    names = ("state", "action", "next_state", "reward")
    columns = {name: np.concatenate([getattr(flow, name) for flow in flows]) for name in names}
    columns["episode"] = np.repeat(np.arange(episodes), mdp.horizon)
    return agent.plan(known, state, generator(seed, "agent", episodes)), columns


@pytest.mark.parametrize("problem", cases.CASES)
def test_the_verdict_on_the_log_of_a_run_is_that_of_the_agent(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a flow per episode, select sees exactly what the agent saw, and says exactly what the agent says."""
    monkeypatch.setattr(logs, "GROWTH", 1e-9)
    case = cases.CASES[problem]
    agents = {"likelihood": orl.Occam(ladder=case.ladder), "value": orl.ARLGen(ladder=case.ladder)}
    for evidence, agent in agents.items():
        plan, columns = played(agent, case.mdp, 25, 2)
        answer = orl.select(columns, case.ladder, case.mdp.known, evidence=evidence)
        facts = {**plan.facts, **plan.grounds}
        assert answer.chosen == facts["chosen"]
        assert answer.left == facts["alive"]
        assert (answer.status == "misspecified") == facts["misspecified"]
        assert answer.verdict["chosen"] == facts["chosen"]
        if evidence == "likelihood":
            assert np.allclose(answer.history[-1][1:], facts["statistics"], rtol=1e-9)
        else:
            rejected = np.array(facts["statistics"]) > facts["threshold"]
            assert [answer.rejected_after(m) is not None for m in (1, 2)] == rejected.tolist()


def rejections(trials: int, delta: float) -> int:
    """In how many logs the class of the truth, a fair coin, is rejected at some time; the policy looks at the past."""
    kernels = np.tile([[0.5, 0.5], [0.6, 0.4]], (2, 2, 1, 1)).transpose(2, 0, 1, 3)
    ladder, count = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)]), 0
    for seed in range(trials):
        draw, state, action = np.random.default_rng(seed), [0], []
        for _ in range(20):  # stop playing action 1 after a run of zeros
            action.append(int(sum(state[-3:]) > 0))
            state.append(int(draw.random() < 0.5))
        columns = {"episode": np.arange(20), "state": state[:-1], "action": action, "next_state": state[1:]}
        history = np.array(orl.select(columns, ladder, delta=delta).history)
        count += bool((history[:, 1] > math.log(1.0 / delta)).any())
    return count


def test_the_right_class_is_rejected_no_more_often_than_delta_allows() -> None:
    """An exact binomial test; without its slack (delta = 1) it must fail."""
    trials, delta = 20, 0.05
    valid = stats.binomtest(rejections(trials, delta), trials, delta, alternative="greater").pvalue
    assert valid > 1e-3
    control = stats.binomtest(rejections(trials, 1.0), trials, delta, alternative="greater").pvalue
    assert control < 1e-4


def test_likelihood_needs_no_rewards() -> None:
    """Missing, rounded or wrong rewards change nothing where the evidence does not use them."""
    case = cases.CASES["rewards on transitions"]
    columns = simulate_log(case.mdp, episodes=20).columns()
    whole = orl.select(columns, case.ladder, case.mdp.known)
    without = {name: column for name, column in columns.items() if name != "reward"}
    rounded = {**columns, "reward": np.round(columns["reward"], 1)}
    for other in (without, rounded, {**columns, "reward": 7.0 + columns["reward"]}):
        for known in (case.mdp.known, None):
            assert orl.select(other, case.ladder, known).history == whole.history
        by_value = orl.select(other, case.ladder, case.mdp.known, evidence="value")
        expected = orl.select(columns, case.ladder, case.mdp.known, evidence="value")
        assert np.allclose(by_value.history, expected.history)
    with pytest.raises(ParameterError, match="known"):
        orl.select(columns, case.ladder, evidence="value")


def test_a_reward_decides_where_one_next_state_comes_with_several() -> None:
    known, block = CASE.mdp.known, next(orl.read_log(COLUMNS).blocks())
    pairs, outcomes = 6, Outcomes(np.arange(0, 37, 6), np.tile(np.arange(3), 12), np.tile([0.0] * 3 + [0.2] * 3, 6))
    assert outcomes.start.size == pairs + 1
    base = known.base_reward.ravel()[block.state * 2 + block.action]
    paid = base + 0.2 * (np.arange(base.size) % 2)
    flow = next(orl.read_log({**COLUMNS, "reward": paid}).flows(known, outcomes))
    assert np.allclose(np.sort(flow.reward - known.base_reward[flow.state, flow.action]), [0.0, 0.0, 0.2, 0.2])
    with pytest.raises(LogError) as caught:
        next(orl.read_log({**COLUMNS, "reward": np.where(np.arange(120) == 9, math.nan, paid)}).flows(known, outcomes))
    assert (caught.value.field, caught.value.index) == ("reward", (9,))


def test_linear_ladders_and_covers_are_judged_by_value_rows() -> None:
    case, columns = CASE, simulate_log(CASE.mdp, episodes=300).columns()
    linear = orl.select(columns, cases.nested(case), case.mdp.known)
    assert (linear.evidence, linear.chosen, linear.left) == ("value", 1, None)
    corners = case.kernels[[0, 1, 5]]

    def kernel(p: Any) -> Any:
        return p[0] * corners[1] + (1.0 - p[0]) * (0.2 * corners[0] + 0.8 * corners[2])

    covers = [orl.CoverFamily(kernel, low=[low], high=[1.0], step=0.25) for low in (0.75, 0.0)]
    ladder = orl.Ladder(covers)
    with pytest.raises(ParameterError, match="cover"):
        orl.select(columns, ladder, case.mdp.known, evidence="likelihood")
    answer = orl.select(columns, ladder, case.mdp.known)
    assert (answer.evidence, answer.chosen, answer.status) == ("value", 2, "decided")


def test_a_truth_outside_is_noticed_and_answers_can_be_read() -> None:
    draw = np.random.default_rng(5)
    elsewhere = orl.FiniteMDP(transition=draw.dirichlet(np.ones(3), size=(3, 2)), reward=np.zeros((3, 2)), horizon=4)
    answer = orl.select(simulate_log(elsewhere, episodes=400), CASE.ladder)
    assert answer.status == "misspecified"
    assert answer.verdict["misspecified"]
    table = answer.table.to_pylist()
    assert [row["name"] for row in table] == list(CASE.ladder.names)
    assert all(row["rejected_after"] for row in table)
    assert answer.as_data()["status"] == "misspecified"
    assert all(sentence in str(answer) for sentence in answer.verdict.sentences)


def test_more_data_is_what_it_takes() -> None:
    """What a log leaves open is excluded once many more episodes are read."""
    columns = simulate_log(CASE.mdp, episodes=600, seed=3).columns()
    part = {name: column[: 15 * CASE.mdp.horizon] for name, column in columns.items()}
    open_, whole = orl.select(part, CASE.ladder), orl.select(columns, CASE.ladder)
    assert open_.more is not None or open_.status == "decided"
    assert (whole.chosen, whole.status) == (2, "decided")

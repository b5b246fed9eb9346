"""Logs are read from every format alike, refused by row and column, and judged as agents judge."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import occamrl as orl
from occamrl.addresses import generator
from occamrl.errors import InvalidInput, ParameterError
from occamrl.logs import log as logs
from occamrl.logs import table as cells
from occamrl.logs.log import Log, simulate_log
from occamrl.logs.table import LogError
from occamrl.naming import Names
from occamrl.problems.mdp import RewardMap
from occamrl.protocols import Flow, Known, Outcomes
from occamrl.running.flow import simulate
from tests import cases

Columns = dict[str, Any]  # of a table, as a user has them
Row = dict[str, Any]
CASE = cases.CASES["random starts"]
COLUMNS = simulate_log(CASE.mdp, episodes=30, seed=1).columns()


def rows_of(log: Log) -> list[list[float]]:
    columns = [column.astype(float) for column in log.columns().values()]
    return [list(row) for row in zip(*columns, strict=True)]


class Frame:
    """What pandas and Polars have in common."""

    def __init__(self, columns: Columns) -> None:
        self.columns = [*columns, "note"]
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def as_csv(path: Path, columns: Columns) -> Path:
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join(map(str, row)))
    path.write_text("\n".join(lines) + "\n")
    return path


def as_parquet(path: Path, columns: Columns) -> Path:
    pq.write_table(pa.table(dict(columns)), path, row_group_size=17)
    return path


def as_minari(columns: Columns) -> Any:
    """A dataset whose spaces begin at 2 and 1."""
    episodes = []
    for k in np.unique(columns["episode"]):
        rows = columns["episode"] == k
        states = np.append(columns["state"][rows], columns["next_state"][rows][-1:])
        episode = SimpleNamespace(
            observations=states + 2,
            actions=columns["action"][rows] + 1,
            rewards=columns["reward"][rows],
            terminations=columns["terminated"][rows],
        )
        episodes.append(episode)
    return SimpleNamespace(
        iterate_episodes=lambda: iter(episodes),
        observation_space=SimpleNamespace(n=3, start=2),
        action_space=SimpleNamespace(n=2, start=1),
    )


def without(name: str, columns: Columns) -> Columns:
    """The columns but one."""
    return {other: column for other, column in columns.items() if other != name}


FORMATS: dict[str, Callable[[Path], Any]] = {
    "mapping": lambda folder: COLUMNS,
    "lists": lambda folder: {name: column.tolist() for name, column in COLUMNS.items()},
    "frame": lambda folder: Frame(COLUMNS),
    "objects": lambda folder: {name: column.astype(object) for name, column in COLUMNS.items()},
    "Arrow": lambda folder: pa.table(dict(COLUMNS)),
    "Parquet": lambda folder: as_parquet(folder / "log.parquet", COLUMNS),
    "CSV": lambda folder: str(as_csv(folder / "log.csv", COLUMNS)),
    "Minari": lambda folder: as_minari(COLUMNS),
    "without step": lambda folder: without("step", COLUMNS),
    "without ends": lambda folder: without("terminated", COLUMNS),
}


@pytest.mark.parametrize("block", [1, 7, 2**17])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_log(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "BLOCK", block)
    log = orl.read_log(FORMATS[name](tmp_path))
    assert (log.rows, log.episodes) == (30 * CASE.mdp.horizon, 30)
    # a CSV file has the digits of a number, not its bits
    assert np.allclose(rows_of(log), rows_of(orl.read_log(COLUMNS)), rtol=0, atol=1e-12)


def test_flows_are_the_log_counted_and_grow_with_it() -> None:
    log = orl.read_log(COLUMNS)
    known = CASE.mdp.known
    outcomes = CASE.ladder.features.attach(known)
    flows = list(log.flows(known, outcomes))
    sizes = [flow.episodes for flow in flows]
    for i, size in enumerate(sizes[:-1]):
        assert size == max(1, math.ceil(logs.GROWTH * sum(sizes[:i])))
    whole = Flow.joined(flows)
    assert whole.episodes == 30
    assert np.isclose(whole.reward @ whole.count, COLUMNS["reward"].sum())
    expected = np.zeros((3, 2, 3), int)
    np.add.at(expected, (COLUMNS["state"], COLUMNS["action"], COLUMNS["next_state"]), 1)
    counts = np.zeros_like(expected)
    np.add.at(counts, (whole.state, whole.action, whole.next_state), whole.count)
    assert (counts == expected).all()


def changed(name: str, row: int, value: object) -> Columns:
    """The columns with one value replaced."""
    column = COLUMNS[name].astype(object if isinstance(value, str) else float)
    column[row] = value
    return {**COLUMNS, name: column}


def index_of(row: int | None) -> tuple[int] | None:
    """The index that an error has about a row, or about none."""
    return None if row is None else (row,)


BAD: list[tuple[str, int | None, Columns]] = [
    ("state", 5, changed("state", 5, -1)),
    ("state", 5, changed("state", 5, 0.5)),
    ("action", 7, changed("action", 7, math.nan)),
    ("reward", 3, changed("reward", 3, math.inf)),
    ("reward", 3, changed("reward", 3, "much")),
    ("terminated", 2, changed("terminated", 2, 2)),
    ("terminated", 2, changed("terminated", 2, 1)),
    ("step", 11, changed("step", 9, 3)),  # twice 3
    ("step", 119, changed("step", 119, 2)),  # twice 2
    ("step", 40, changed("episode", 40, 2)),  # twice 0
    ("episode", 119, without("step", changed("episode", 119, 0))),
    ("state", 5, changed("state", 5, (COLUMNS["state"][5] + 1) % 3)),
    ("state", None, without("state", COLUMNS)),
    ("rows", None, {name: column[:0] for name, column in COLUMNS.items()}),
    ("rows", None, {**COLUMNS, "reward": COLUMNS["reward"][:-1]}),
]


@pytest.mark.parametrize("block", [7, 2**17])
@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_bad_log_is_refused_with_row_and_column(
    number: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "BLOCK", block)
    field, row, columns = BAD[number]
    with pytest.raises(LogError) as caught:
        orl.read_log(columns)
    assert (caught.value.field, caught.value.index) == (field, index_of(row))


# A shop in its own words --------------------------------------------------------------------------

SHOP = {
    "episode": ["store", "month"],
    "state": ["stock", "weekday"],
    "action": "ordered",
    "reward": "euro",
}
DAYS = ("Mon", "Tue", "Wed")
ORDERS = ("none", "some", "much")


def shop_known(horizon: int = 4, stocks: int = 3) -> Known:
    """What a problem with names knows: stocks times weekdays, 3 orders; stock + order euros."""
    states = tuple(itertools.product(range(stocks), DAYS))
    euros = np.array([[stock + order for order in range(3)] for stock, _ in states], float)
    names = Names(states, ORDERS)
    return Known(len(states), 3, horizon, euros / 4.0, unit=RewardMap(0.0, 4.0), names=names)


def shop_rows(stores: int, length: int, seed: int = 0) -> list[Row]:
    """Rows by store, month and date; the state of the row after is the next state."""
    draw = np.random.default_rng(seed)
    rows = []
    for store, day in itertools.product(range(stores), range(length + 1)):
        stock, order = (int(number) for number in draw.integers(3, size=2))
        row = {
            "store": f"store {store}",
            "month": 7,
            "date": f"2026-07-{day + 1:02d}",
            "stock": stock,
            "weekday": DAYS[day % 3],
            "ordered": ORDERS[order],
            "euro": float(stock + order),
        }
        rows.append(row)
    return rows


def as_lists(flows: Iterable[Flow]) -> list[Any]:
    return [[*(column.tolist() for column in flow.columns), flow.episodes] for flow in flows]


def read_shop(source: Any, **options: Any) -> Log:
    return orl.read_log(source, **({"columns": SHOP, "order_by": "date"} | options))


def test_names_tuples_and_next_rows_become_flows() -> None:
    rows = shop_rows(3, 4)
    log = read_shop(rows)
    known = shop_known()
    flow = Flow.joined(list(log.flows(known)))
    expected = np.zeros((4, 9, 3, 9), int)
    for row, later in itertools.pairwise(rows):
        if row["store"] == later["store"]:
            step = int(row["date"][-2:]) - 1
            state = known.state_number((row["stock"], row["weekday"]))
            next_state = known.state_number((later["stock"], later["weekday"]))
            expected[step, state, ORDERS.index(row["ordered"]), next_state] += 1
    counts = np.zeros_like(expected)
    np.add.at(counts, (flow.step, flow.state, flow.action, flow.next_state), flow.count)
    assert (counts == expected).all()
    assert np.allclose(flow.reward, known.base_reward[flow.state, flow.action])
    assert (log.rows, log.episodes, log.longest) == (12, 3, 4)
    assert log.report == {"no_next_state": 3, "next_state_filled": 12}
    assert all(f"{count} " in str(log) for count in log.report.values())


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 6), st.sampled_from([1, 5, 2**17]))
def test_rows_in_any_order_give_the_same_flows(
    data: st.DataObject, stores: int, length: int, block: int
) -> None:
    rows = shop_rows(stores, length, seed=stores)
    known = shop_known(horizon=length)
    shuffled = data.draw(st.permutations(rows))
    stepped = [row | {"step": int(row["date"][-2:]) - 1} for row in shuffled]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "BLOCK", block)
        expected = as_lists(read_shop(rows).flows(known))
        assert as_lists(read_shop(rows, order_by=None).flows(known)) == expected
        assert as_lists(read_shop(shuffled).flows(known)) == expected
        # with a column of steps, episodes stay in the order in which they come
        unsorted = Flow.joined(list(read_shop(stepped, order_by=None).flows(known)))
        assert as_lists([unsorted]) == as_lists([Flow.joined(list(read_shop(rows).flows(known)))])


def test_files_tables_frames_and_rows_agree(tmp_path: Path) -> None:
    rows = shop_rows(4, 4)[::-1]
    known = shop_known()
    columns: Columns = {name: [row[name] for row in rows] for name in rows[0]}
    dates = pa.array(columns["date"]).cast(pa.timestamp("us"))
    ordered = pa.array(columns["ordered"]).dictionary_encode()
    coarse = {
        **columns,
        "stock": np.array(columns["stock"], float),
        "euro": np.array(columns["euro"], object),
    }
    as_text = as_csv(tmp_path / "shop.csv", columns)
    sources = [
        columns,
        pa.table(columns),
        pa.table({**columns, "date": dates, "ordered": ordered}),
        Frame(coarse),
        as_text,
        as_parquet(tmp_path / "shop.parquet", columns),
    ]
    expected = as_lists(read_shop(rows).flows(known))
    for source in sources:
        assert as_lists(read_shop(source).flows(known)) == expected
    tuples = {**columns, "pair": [(row["stock"], row["weekday"]) for row in rows]}
    assert as_lists(read_shop(tuples, columns={**SHOP, "state": "pair"}).flows(known)) == expected
    # a text that is written as a number is that number
    states = tuple((str(stock), day) for stock, day in itertools.product(range(3), DAYS))
    renamed = replace(known, names=Names(states, ORDERS))
    assert as_lists(read_shop(as_text).flows(renamed)) == expected


def test_rewards_may_be_missing_or_rounded() -> None:
    """Of outcomes with one next state, rounded rewards tell which only within the tolerance."""
    known = Known(2, 1, 2, np.zeros((2, 1)))
    outcomes = Outcomes(np.array([0, 2, 4]), np.ones(4, int), np.array([1 / 3, 2 / 3] * 2))
    rows = {
        "episode": [0, 0],
        "state": [1, 1],
        "action": [0, 0],
        "next_state": [1, 1],
        "reward": [33.0, 67.0],
    }
    unit = RewardMap(0.0, 100.0)
    (flow,) = orl.read_log(rows, tolerance=0.5).flows(known, outcomes, unit)
    assert np.allclose(flow.reward, [1 / 3, 2 / 3])
    with pytest.raises(LogError) as caught:
        list(orl.read_log(rows).flows(known, outcomes, unit))
    assert (caught.value.field, caught.value.index, caught.value.got) == ("reward", (0,), "33.0")
    log = orl.read_log(rows, unlisted="drop")
    assert not list(log.flows(known, outcomes, unit))
    assert log.report["unlisted_next"] == 2
    del rows["reward"]
    sizes = Known.of_sizes(states=2, actions=1, horizon=2)
    (flow,) = orl.read_log(rows).flows(sizes)
    assert np.isnan(flow.reward).all()
    dear = [row | {"euro": 0.4 + row["euro"]} for row in shop_rows(2, 4)]
    cheap = read_shop(dear, rewards="model")
    assert as_lists(cheap.flows(shop_known())) == as_lists(
        read_shop(shop_rows(2, 4)).flows(shop_known())
    )
    assert cheap.report["rewards_models"] == 8


def test_long_episodes_are_cut_on_request_and_short_ones_counted() -> None:
    log = read_shop(shop_rows(2, 10), split=True)
    known = shop_known(horizon=4)
    flows = list(log.flows(known))
    assert sum(flow.episodes for flow in flows) == 6
    assert np.bincount(Flow.joined(flows).step, Flow.joined(flows).count).tolist() == [6, 6, 4, 4]
    assert (log.report["split"], log.report["truncated"]) == (4, 2)
    assert sum(flow.count.sum() for flow in log.flows(known)) == 20
    assert log.report["split"] == 4  # not twice


def test_ends_cut_a_sequence_and_lead_to_the_end() -> None:
    """Without a column of episodes; a row that ended leads to the last state, where models end."""
    rows = {
        "state": ["a", "b", "a", "a"],
        "action": [0] * 4,
        "ended": [0, 1, 0, 0],
        "truncated": ["no"] * 4,
    }
    sizes = Known.of_sizes(states=3, actions=1, horizon=2)
    known = replace(sizes, names=Names(("a", "b", "over"), (0,)))
    log = orl.read_log({**rows, "truncated": ["false"] * 4}, {"episode": None})
    (first, second) = log.flows(known)
    assert (first.state.tolist(), first.next_state.tolist()) == ([0, 1], [1, 2])
    assert (second.state.tolist(), second.next_state.tolist()) == ([0], [0])
    assert (log.report["ended"], log.report["truncated"], log.report["no_next_state"]) == (1, 1, 1)


def test_unlisted_rows_can_be_dropped_and_are_counted() -> None:
    rows = shop_rows(3, 4)
    rows[1]["ordered"] = "loads"
    rows[7]["ordered"] = None
    log = read_shop(rows, unlisted="drop")
    assert sum(flow.count.sum() for flow in log.flows(shop_known())) == 10
    assert log.report["unlisted"] == 2


@pytest.mark.parametrize("hole", ["stock", "weekday", "month"])
def test_a_state_of_three_columns_may_have_an_empty_cell(hole: str) -> None:
    rows = shop_rows(2, 4)
    whole = read_shop(rows, columns={**SHOP, "state": ["stock", "weekday", "month"]})
    labels = [(row["stock"], row["weekday"], row["month"]) for row in rows]
    states = whole.columns()["state"].tolist()
    assert states == labels[:4] + labels[5:9]  # an episode's last row has no next state

    rows[6] = {**rows[6], hole: None}
    columns = {**SHOP, "episode": "store", "state": ["stock", "weekday", "month"]}
    with pytest.raises(LogError) as caught:
        read_shop(rows, columns=columns)
    assert (caught.value.field, caught.value.index) == ("stock, weekday, month", (6,))
    dropped = read_shop(rows, columns=columns, unlisted="drop")
    # neither what follows row 5 is known, nor where row 6 was made
    assert dropped.columns()["state"].tolist() == [*states[:4], None, *states[6:]]


def test_episodes_named_by_two_columns_may_come_in_any_order() -> None:
    days = {
        "store": ["A", "A", "B", "B", "A", "A"],
        "month": [1, 1, 1, 1, 2, 2],
        "state": [0, 1] * 3,
        "action": [0] * 6,
        "next_state": [1, 0] * 3,
    }
    log = orl.read_log(days, {"episode": ["store", "month"]})
    assert log.columns()["episode"].tolist() == [0, 0, 1, 1, 2, 2]


def spoilt(row: int, name: str, value: object) -> list[Row]:
    rows = shop_rows(3, 4)
    rows[row][name] = value
    return rows


ROWS = shop_rows(3, 4)
MISTAKES: dict[str, tuple[Any, Columns, tuple[str, ...]]] = {
    "unknown action": (
        spoilt(6, "ordered", "mcuh"),
        {},
        ("ordered", "row 6", "'mcuh'", "'much'", "unlisted"),
    ),
    "unknown state": (
        spoilt(6, "stock", 9),
        {},
        ("stock, weekday", "row 6", "(9, 'Tue')", "(2, 'Tue')", "unlisted"),
    ),
    "no action": (spoilt(2, "ordered", None), {}, ("ordered", "row 2", "None", "drop")),
    "a state with a hole": (
        spoilt(5, "weekday", None),
        {},
        ("stock, weekday", "row 5", "None", "drop"),
    ),
    "no unit": (spoilt(5, "store", None), {}, ("store, month", "row 5", "None")),
    "no date": (spoilt(5, "date", None), {}, ("date", "row 5", "None")),
    "another form of date": (
        spoilt(5, "date", "1.7.26"),
        {},
        ("date", "row 5", "'1.7.26'", "2026-01-31"),
    ),
    "twice a date": (spoilt(6, "date", "2026-07-01"), {}, ("date", "row 6", "finer")),
    "text for money": (spoilt(4, "euro", "3,50"), {}, ("euro", "row 4", "'3,50'", "number")),
    "infinite money": (spoilt(4, "euro", math.inf), {}, ("euro", "row 4", "inf", "number")),
    "dates as states": (
        [row | {"day": datetime.date(2026, 7, 1)} for row in ROWS],
        {"columns": {**SHOP, "state": ["stock", "day"]}},
        ("day", "row 0", "2026-07-01", "order_by"),
    ),
    "a list as action": (
        spoilt(3, "ordered", {"x": [1]}),
        {},
        ("ordered", "row 3", "{'x'", "tuples"),
    ),
    "interleaved without order": (
        ROWS[::5] + ROWS[1::5],
        {"order_by": None},
        ("store, month", "row 3", "order_by"),
    ),
    "too long": (shop_rows(1, 9), {}, ("step", "row 4", "got 4", "horizon=9", "split=True")),
    "no such role": (
        ROWS,
        {"columns": {**SHOP, "stat": "stock"}},
        ("columns", "'stat'", "'state'"),
    ),
    "no such column": (
        ROWS,
        {"columns": {**SHOP, "action": "order"}},
        ("columns['action']", "'order'", "'ordered'"),
    ),
    "no such order": (ROWS, {"order_by": "dat"}, ("order_by", "'dat'", "'date'")),
    "role not given": (
        ROWS,
        {"columns": {"state": "stock", "action": "ordered"}},
        ("episode", "columns", "store"),
    ),
    "tuple and single": (
        ROWS,
        {"columns": {**SHOP, "next_state": "stock"}},
        ("columns['next_state']", "stock", "2"),
    ),
    "two rewards": (
        ROWS,
        {"columns": {**SHOP, "reward": ["euro", "month"]}},
        ("columns['reward']", "euro", "one column"),
    ),
    "a flag that is none": (
        [row | {"over": "maybe"} for row in ROWS],
        {"columns": {**SHOP, "ended": "over"}},
        ("over", "row 0", "'maybe'", "true or false"),
    ),
    "an end too soon": (
        [row | {"over": row is ROWS[6]} for row in ROWS],
        {"columns": {**SHOP, "ended": "over"}},
        ("over", "row 6", "True", "last row"),
    ),
    "negative tolerance": (ROWS, {"tolerance": -1.0}, ("tolerance", "-1.0")),
    "unlisted how": (ROWS, {"unlisted": "ignore"}, ("unlisted", "'ignore'", "'drop'")),
    "rows that are none": ([1, 2], {}, ("log", "[1, 2]", "mapping")),
    "only last rows": (ROWS[::5], {}, ("rows", "no step", "next state")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_place_and_what_to_do(name: str) -> None:
    source, options, parts = MISTAKES[name]
    with pytest.raises(InvalidInput) as caught:
        list(read_shop(source, **options).flows(shop_known()))
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize(
    ("field", "row", "text"),
    [
        ("state", 1, "episode,state,action,next_state\n0,0,0,1\n0,x,0,1\n"),
        ("values", 1, "episode,state,action,next_state\n0,0,0,1\n0,1,0\n"),
        ("action", None, "episode,state,next_state\n0,0,0\n"),
        ("action", 0, "episode,state,action,next_state\n0,0,,1\n"),
        ("step", 1, "episode,step,state,action,next_state\n0,0,0,1,1\n0,one,1,1,1\n"),
    ],
)
def test_a_bad_csv_file_is_refused_with_row_and_column(
    field: str, row: int | None, text: str, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(LogError) as caught:
        list(orl.read_log(tmp_path / "log.csv").flows(CASE.mdp.known))
    assert (caught.value.field, caught.value.index) == (field, index_of(row))


@pytest.mark.parametrize("source", ["nowhere.parquet", 3, None])
def test_what_is_no_log_is_refused(source: object, tmp_path: Path) -> None:
    with pytest.raises((LogError, ParameterError)):
        orl.read_log(source)
    (tmp_path / "log.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(LogError, match="Parquet"):
        orl.read_log(tmp_path / "log.parquet")


@pytest.mark.parametrize(("field", "size"), [("state", 2), ("action", 1)])
def test_states_and_actions_that_the_models_lack_are_refused_with_row_and_column(
    field: str, size: int
) -> None:
    draw = np.random.default_rng(0)
    states, actions = {"state": (2, 2), "action": (3, 1)}[field]
    kernels = draw.dirichlet(np.ones(states), size=(2, states, actions))
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    with pytest.raises(LogError) as caught:
        orl.select(COLUMNS, ladder)
    column = COLUMNS[field]
    assert caught.value.field in (field, "next_state")
    assert caught.value.index is not None
    assert field == "state" or caught.value.index[0] == int(np.argmax(column >= size))


# Selection ----------------------------------------------------------------------------------------


def play(
    agent: orl.Learner, mdp: orl.FiniteMDP, episodes: int, seed: int
) -> tuple[orl.Plan, Columns]:
    """Play an agent, one episode a plan at most; return what it would plan next, and the log."""
    known = mdp.known
    state = agent.begin(known)
    flows = []
    for k in range(episodes):
        plan = agent.plan(known, state, generator(seed, "agent", k))
        flows.append(simulate(mdp, plan.policy, 1, generator(seed, "environment", k)))
        agent.learn(known, state, plan, flows[-1])
    columns = {
        "episode": np.repeat(np.arange(episodes), mdp.horizon),
        "state": np.concatenate([flow.state for flow in flows]),
        "action": np.concatenate([flow.action for flow in flows]),
        "next_state": np.concatenate([flow.next_state for flow in flows]),
        "reward": np.concatenate([flow.reward for flow in flows]),
    }
    return agent.plan(known, state, generator(seed, "agent", episodes)), columns


@pytest.mark.parametrize("problem", cases.CASES)
def test_the_verdict_on_the_log_of_a_run_is_that_of_the_agent(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a flow per episode, select sees exactly what the agent saw, and says what it says."""
    monkeypatch.setattr(logs, "GROWTH", 1e-9)
    case = cases.CASES[problem]
    agents = {"likelihood": orl.Occam(ladder=case.ladder), "value": orl.ARLGen(ladder=case.ladder)}
    for evidence, agent in agents.items():
        plan, columns = play(agent, case.mdp, 25, 2)
        answer = orl.select(columns, case.ladder, case.mdp.known, evidence=evidence)
        facts = {**plan.facts, **plan.diagnostics}
        weigher: Any = answer.weigher
        if evidence == "likelihood":
            # beside which a log is weighed pair by pair
            judgement = weigher.exact.judge(answer.state)
            assert judgement.chosen == facts["chosen"]
            assert list(judgement.alive) == facts["alive"]
            assert judgement.misspecified == facts["misspecified"]
            assert np.allclose(judgement.against, facts["statistics"], rtol=1e-9)
        else:
            assert answer.chosen == facts["chosen"]
            assert answer.left == facts["alive"]
            assert (answer.status == "misspecified") == facts["misspecified"]
            rejected = np.array(facts["statistics"]) > facts["threshold"]
            assert [answer.rejected_after(m) is not None for m in (1, 2)] == rejected.tolist()


def rejections(trials: int, delta: float) -> int:
    """In how many logs the class of the truth, a fair coin, is rejected at some time.

    The policy looks at the past: it stops playing action 1 after a run of zeros.
    """
    kernels = np.tile([[0.5, 0.5], [0.6, 0.4]], (2, 2, 1, 1)).transpose(2, 0, 1, 3)
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)])
    count = 0
    for seed in range(trials):
        draw = np.random.default_rng(seed)
        states = [0]
        actions = []
        for _ in range(20):
            actions.append(int(sum(states[-3:]) > 0))
            states.append(int(draw.random() < 0.5))
        columns = {
            "episode": np.arange(20),
            "state": states[:-1],
            "action": actions,
            "next_state": states[1:],
        }
        history = np.array(orl.select(columns, ladder, delta=delta).history)
        if (history[:, 1] > math.log(1.0 / delta)).any():
            count += 1
    return count


def test_the_right_class_is_rejected_no_more_often_than_delta_allows() -> None:
    """An exact binomial test; without its slack (delta = 1) it must fail."""
    valid = stats.binomtest(rejections(20, 0.05), 20, 0.05, alternative="greater").pvalue
    assert valid > 1e-3
    control = stats.binomtest(rejections(20, 1.0), 20, 0.05, alternative="greater").pvalue
    assert control < 1e-4


def test_likelihood_needs_no_rewards() -> None:
    """Missing, rounded or wrong rewards change nothing where the models' are taken."""
    case = cases.CASES["rewards on transitions"]
    columns = simulate_log(case.mdp, episodes=20).columns()
    whole = orl.select(columns, case.ladder, case.mdp.known)
    rounded = {**columns, "reward": np.round(columns["reward"], 1)}
    shifted = {**columns, "reward": 7.0 + columns["reward"]}
    for table in (without("reward", columns), rounded, shifted):
        other = orl.read_log(table, rewards="model")
        for known in (case.mdp.known, None):
            assert orl.select(other, case.ladder, known).history == whole.history
        by_value = orl.select(other, case.ladder, case.mdp.known, evidence="value")
        expected = orl.select(columns, case.ladder, case.mdp.known, evidence="value")
        assert np.allclose(by_value.history, expected.history)
    with pytest.raises(ParameterError, match="known"):
        orl.select(columns, case.ladder, evidence="value")


def test_a_reward_decides_where_one_next_state_comes_with_several() -> None:
    known = CASE.mdp.known
    bonus = np.tile([0.0] * 3 + [0.2] * 3, 6)  # of each pair, twice every state
    outcomes = Outcomes(np.arange(0, 37, 6), np.tile(np.arange(3), 12), bonus)
    base = known.base_reward[COLUMNS["state"], COLUMNS["action"]]
    paid = base + 0.2 * (np.arange(base.size) % 2)
    flow = next(orl.read_log({**COLUMNS, "reward": paid}).flows(known, outcomes))
    above = flow.reward - known.base_reward[flow.state, flow.action]
    assert np.allclose(np.sort(above), [0.0, 0.0, 0.2, 0.2])
    paid[9] = math.nan
    with pytest.raises(LogError) as caught:
        next(orl.read_log({**COLUMNS, "reward": paid}).flows(known, outcomes))
    assert (caught.value.field, caught.value.index) == ("reward", (9,))


def test_linear_ladders_and_covers_are_judged_by_value_rows() -> None:
    case = CASE
    columns = simulate_log(case.mdp, episodes=300).columns()
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
    elsewhere = orl.FiniteMDP(
        transition=draw.dirichlet(np.ones(3), size=(3, 2)), reward=np.zeros((3, 2)), horizon=4
    )
    answer = orl.select(simulate_log(elsewhere, episodes=400), CASE.ladder)
    assert answer.status == "misspecified"
    table = answer.table.to_pylist()
    assert [row["name"] for row in table] == list(CASE.ladder.names)
    assert all(row["rejected_after"] for row in table)
    assert answer.as_data()["status"] == "misspecified"
    assert all(sentence in str(answer) for sentence in answer.sentences)


def test_more_data_is_what_it_takes() -> None:
    """What a log leaves open is excluded once many more episodes are read."""
    columns = simulate_log(CASE.mdp, episodes=600, seed=3).columns()
    part = {name: column[: 15 * CASE.mdp.horizon] for name, column in columns.items()}
    early = orl.select(part, CASE.ladder)
    whole = orl.select(columns, CASE.ladder)
    assert early.more is not None or early.status == "decided"
    assert (whole.chosen, whole.status) == (2, "decided")

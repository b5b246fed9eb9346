"""What comes in is taken as it is, mended and told, or refused with its row; nothing is guessed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamrl as orl
from occamrl.answers.assumed import data_sentences
from occamrl.errors import InvalidInput
from occamrl.logs.table import LogError
from studies import spoiled as spoiled_logs

Row = dict[str, Any]
HORIZON = 10


def shop(
    stock: int, order: int, *, rate: float, rush: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    filled = min(stock + order, 4)
    chance = rate + rush * (filled == 4)
    cost = 2.0 * (filled - stock) + 0.1 * filled
    yield 1 - chance, filled, -cost, False
    yield chance, max(filled - 1, 0), 5.0 * (filled > 0) - cost, False


MODEL = orl.Model(
    shop,
    start=2,
    actions=[0, 1, 2],
    horizon=HORIZON,
    parameters={"rate": (0.1, 0.6), "rush": (0.0, 0.4)},
)
LADDER = MODEL.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})


def shop_rows(months: int, days: int = HORIZON, seed: int = 0, **truth: float) -> list[Row]:
    """A log of the shop, with the next state in each row."""
    draw = np.random.default_rng(seed)
    rows = []
    for month in range(months):
        stock = 2
        for day in range(days):
            order = int(draw.integers(3))
            law = list(shop(stock, order, **(truth or {"rate": 0.3})))
            _, after, euro, _ = law[draw.choice(2, p=[entry[0] for entry in law])]
            row = {"month": month, "day": day, "state": stock, "action": order}
            rows.append(row | {"reward": euro, "next_state": after})
            stock = after
    return rows


COLUMNS = {"episode": "month"}


def kinds(notes: Any) -> dict[str, int]:
    return {note.kind: note.affected for note in notes}


def test_what_was_done_to_a_log_is_noted_and_said_by_select_and_by_agents(tmp_path: Path) -> None:
    rows = shop_rows(30)
    for row in rows:
        del row["next_state"]
    del rows[-3:]
    log = orl.read_log(rows, COLUMNS)
    simple = LADDER.only(1)
    answer = orl.select(log, simple)
    assert kinds(answer.notes) == {
        "no_next_state": 30,
        "next_state_filled": 30 * (HORIZON - 1) - 3,
        "truncated": 30,
    }
    agent = orl.Agent(orl.Occam(ladder=simple)).learn_from(log)
    assert agent.answer.notes == answer.notes
    agent.save(tmp_path / "shop.npz")
    again = orl.Agent.load(tmp_path / "shop.npz", orl.Occam(ladder=simple))
    assert again.answer.notes == answer.notes
    for said in (answer.sentences, again.answer.sentences):
        text = "\n".join(said)
        assert f"30 of {len(rows)} rows without a next state" in text
        assert "no row in between is missing or there twice" in text


def test_nothing_is_noted_of_a_log_to_which_nothing_was_done() -> None:
    answer = orl.select(orl.read_log(shop_rows(5), COLUMNS), LADDER)
    assert answer.notes == ()
    assert not data_sentences(answer)


def machine(wins: float, pays: tuple[float, ...]) -> orl.FiniteMDP:
    """Two arms: action 1 pays one of some amounts with a chance, action 0 a tenth."""

    def play(state: int, arm: int) -> Iterator[tuple[float, int, float, bool]]:
        if arm == 0:
            yield 1.0, 0, 0.1, False
            return
        yield 1.0 - wins, 0, 0.0, False
        for amount in pays:
            yield wins / len(pays), 1, amount, False

    return orl.Model(play, start=0, actions=[0, 1], horizon=4, reward_range=(0.0, 1.0)).mdp()


def test_a_reward_that_no_member_pays_is_a_new_outcome() -> None:
    """Members pay 0 or 1; a truth that pays .55 is none of them, however near the nearest is."""
    ladder = orl.Ladder([orl.FiniteFamily([machine(0.5, (0.0, 1.0))])])
    for amount, fits in ((0.55, False), (1.0, True), (1.0 - 5e-4, True), (1.0 - 2e-3, False)):
        truth = machine(0.5, (0.0, amount))
        answer = orl.run(orl.Occam(ladder=ladder), truth, episodes=60).answer
        assert (answer.model is not None) is fits, amount
        assert (answer.judgement.novel == 0) is fits
        assert answer.misspecified is not fits


def test_random_rewards_are_held_against_no_list() -> None:
    """Coins with the known means are near none of them, and no outcome is new for that."""
    problem = orl.make_problem("river-swim", states=3, reward_noise="bernoulli")
    ladder = orl.Ladder([orl.FiniteFamily([orl.make_problem("river-swim", states=3).mdp])])
    answer = orl.run(orl.Occam(ladder=ladder), problem, episodes=60).answer
    assert answer.judgement.novel == 0


# Gaps ---------------------------------------------------------------------------------------------

CLOCKS: dict[str, Any] = {
    "step": lambda row: row["day"],
    "step from 1": lambda row: row["day"] + 1,
    "seconds": lambda row: 0.05 * row["day"] + 0.004 * (row["month"] % 3),
    "date": lambda row: f"2026-{1 + row['month'] % 12:02d}-{1 + row['day']:02d}",
    "zoned": lambda row: f"2026-03-{25 + row['day'] // 2}T{row['day'] % 2 * 12:02d}:00:00+01:00",
    "months": lambda row: f"2026-{1 + row['day']:02d}-15",
}
EVERY: dict[str, Any] = {"seconds": 0.05, "date": "1D", "zoned": "12h", "months": "1M"}


def transitions(log: Any) -> list[tuple[int, ...]]:
    """What a learner takes from a log: step, state, action, next state."""
    found = []
    for flow in log.flows(MODEL.known, MODEL.layout):
        columns = flow.step, flow.state, flow.action, flow.next_state, flow.count
        for *row, count in zip(*(column.tolist() for column in columns), strict=True):
            found += [tuple(row)] * count
    return sorted(found)


def pieces_of(rows: list[Row], lost: set[int]) -> list[tuple[int, ...]]:
    """The transitions of which both ends were written down."""
    kept = []
    for i, (row, following) in enumerate(itertools.pairwise(rows)):
        if {i, i + 1} & lost or row["month"] != following["month"]:
            continue
        states = MODEL.known.state_number(row["state"]), row["action"]
        kept.append((row["day"], *states, MODEL.known.state_number(following["state"])))
    return sorted(kept)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("how", ["time", "found", "order_by"])
def test_nothing_is_glued_where_rows_are_missing(clock: str, how: str) -> None:
    rows = shop_rows(40, seed=3)
    draw = np.random.default_rng(5)
    lost = set(np.flatnonzero(draw.random(len(rows)) < 0.1).tolist())
    lost -= {i for i, row in enumerate(rows) if row["day"] == 0 and "step" not in clock}
    there = []
    for i, row in enumerate(rows):
        if i not in lost:
            names = ("month", "state", "action", "reward")
            there.append({**{name: row[name] for name in names}, "when": CLOCKS[clock](row)})
    if "step" in clock:
        log = orl.read_log(there, {"episode": "month", "step": "when"})
    elif how == "order_by":
        log = orl.read_log(there, COLUMNS, order_by="when")
    else:
        every = EVERY[clock] if how == "time" else None
        log = orl.read_log(there, {"episode": "month", "time": "when"}, every=every)
    assert transitions(log) == pieces_of(rows, lost)
    gaps = sum(i in lost and i + 1 not in lost and i % HORIZON < HORIZON - 1 for i in lost)
    assert log.report["gaps_cut"] == gaps
    guarantees = {note.kind: note.guarantee for note in log.notes}
    assert guarantees["gaps_cut"] == "conditional"
    assert guarantees["next_state_filled"] == "kept"  # as the clock has shown


def test_gaps_are_refused_or_joined_if_asked() -> None:
    rows = [{**row, "next_state": None} for row in shop_rows(2)]
    for row in rows:
        del row["next_state"]
    there = rows[:4] + rows[6:]
    columns = {"episode": "month", "time": "day"}
    with pytest.raises(LogError) as caught:
        orl.read_log(there, columns, gaps="error")
    assert (caught.value.field, caught.value.index) == ("day", (4,))
    assert "3 steps after row 3" in str(caught.value)
    joined = orl.read_log(there, columns, gaps="join", rewards="model")
    assert joined.report["gaps_joined"] == 1
    assert "1 of 18 rows comes after a gap" in str(orl.select(joined, LADDER.only(1)))
    assert transitions(joined) == pieces_of(
        [{**row, "day": i % 8 if i < 8 else i - 8} for i, row in enumerate(there)], set()
    )
    (note,) = [note for note in joined.notes if note.kind == "gaps_joined"]
    assert note.guarantee == "conditional"


def test_a_missing_next_state_is_unknown() -> None:
    rows = shop_rows(3)
    rows[4]["next_state"] = None
    log = orl.read_log(rows, COLUMNS)
    assert log.rows == len(rows) - 1
    assert log.report == {"no_next_state": 1}


def test_times_that_follow_no_clock_are_refused_as_one_and_order_rows() -> None:
    rows = shop_rows(3)
    draw = np.random.default_rng(0)
    for row, time in zip(rows, np.cumsum(draw.exponential(size=len(rows))), strict=True):
        row["when"] = float(time)
        del row["next_state"]
    with pytest.raises(LogError, match="every="):
        orl.read_log(rows, {"episode": "month", "time": "when"})
    log = orl.read_log(rows, COLUMNS, order_by="when")
    assert "gaps_cut" not in log.report
    (note,) = [note for note in log.notes if note.kind == "next_state_filled"]
    assert note.guarantee == "conditional"


def test_numbers_of_rows_of_units_that_alternate_show_no_gaps() -> None:
    rows = shop_rows(4)
    draw = np.random.default_rng(0)
    order = draw.permutation(np.repeat(np.arange(4), HORIZON))
    position = {month: iter(range(HORIZON)) for month in range(4)}
    table = []
    for number, month in enumerate(order.tolist()):
        row = dict(rows[month * HORIZON + next(position[month])])
        del row["next_state"]
        table.append(row | {"number": number})
    log = orl.read_log(table, COLUMNS, order_by="number")
    assert "gaps_cut" not in log.report
    assert log.rows == 4 * (HORIZON - 1)


@pytest.mark.parametrize(
    ("every", "match"),
    [("1 fortnight", "ms, s, min"), ("0D", "number"), (0.0, "number"), (-1, "number"), (2.0, "1D")],
)
def test_a_length_of_steps_that_is_none_is_refused(every: Any, match: str) -> None:
    rows = [{**row, "when": CLOCKS["date"](row)} for row in shop_rows(2)]
    with pytest.raises(InvalidInput, match=match):
        orl.read_log(rows, COLUMNS, order_by="when", every=every)


def test_rows_that_are_there_twice_are_told_from_units_that_run_in_parallel() -> None:
    rows = shop_rows(2)
    with pytest.raises(LogError, match="row 3 says the same") as caught:
        orl.read_log([*rows[:4], rows[3], *rows[4:]], COLUMNS, order_by="day")
    assert caught.value.index == (4,)
    other = [{**row, "month": 0, "state": 4} for row in rows]
    with pytest.raises(LogError, match="more columns that name the episode"):
        orl.read_log([*rows, *other], COLUMNS, order_by="day")


# Rewards and rows that contradict the models ------------------------------------------------------


def spoiled(column: str, rows: list[Row], change: Any, every: int = 1) -> list[Row]:
    return [
        {**row, column: change(row[column])} if i % every == 0 else row
        for i, row in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda euro: -euro, "the opposite sign"),
        (lambda euro: 100.0 * euro, "100 times as large"),
        (lambda euro: -0.01 * euro, "0.01 times as large, with the opposite sign"),
        (lambda euro: euro + 3.5, "3.5 larger everywhere"),
        (lambda euro: 2.0 * euro - 1.0, "2 times as large plus -1"),
        (lambda euro: np.sin(1e3 * euro), "no one factor or offset"),
        (lambda euro: float(round(euro)), "rounded: tolerance=0.5"),
    ],
)
def test_rewards_that_contradict_the_model_are_refused_with_the_likely_reason(
    change: Any, reason: str
) -> None:
    rows = spoiled("reward", shop_rows(30), change)
    with pytest.raises(LogError) as caught:
        orl.select(orl.read_log(rows, COLUMNS), LADDER)
    assert caught.value.field == "reward"
    assert reason in str(caught.value)
    first = next(i for i, row in enumerate(shop_rows(30)) if row["reward"] != rows[i]["reward"])
    assert caught.value.index == (first,)
    assert f"{shop_rows(30)[first]['reward']:g}" in str(caught.value)


def test_few_such_rewards_are_told_and_the_models_are_taken_if_asked() -> None:
    rows = shop_rows(30)
    simple = LADDER.only(1)
    told = orl.select(
        orl.read_log(spoiled("reward", rows, lambda euro: euro + 1.0, 150), COLUMNS), simple
    )
    assert kinds(told.notes) == {"rewards_replaced": 2}
    assert "2 of 300 rows have rewards that contradict" in str(told)
    flipped = spoiled("reward", rows, lambda euro: -euro)
    answer = orl.select(orl.read_log(flipped, COLUMNS, rewards="model"), simple)
    plain = orl.select(orl.read_log(rows, COLUMNS), simple)
    assert answer.interval == plain.interval
    assert kinds(answer.notes).keys() == {"rewards_models"}
    assert "as you asked" in str(answer)
    silent = orl.read_log([{**row, "reward": None} for row in rows], COLUMNS)
    assert "300 of 300 rows have no reward" in str(orl.select(silent, simple))


def test_an_agent_that_refuses_the_rewards_of_a_log_has_learned_nothing_of_it() -> None:
    rows = spoiled("reward", shop_rows(30), lambda euro: -euro)
    agent = orl.Agent(orl.Occam(ladder=LADDER))
    with pytest.raises(LogError):
        agent.learn_from(orl.read_log(rows, COLUMNS))
    assert agent.result.total_episodes == 0


def test_an_impossible_row_is_named_and_left_out_only_if_asked() -> None:
    rows = shop_rows(30)
    rows[137] |= {"state": 4, "action": 0, "next_state": 0, "reward": None}
    rows[136] |= {"next_state": None}
    rows[138]["state"] = 0
    rows[138]["reward"] = rows[138]["next_state"] = None
    simple = LADDER.only(1)
    answer = orl.select(orl.read_log(rows, COLUMNS), simple)
    assert answer.misspecified
    assert "row 137: state 4, action 0, next state 0" in str(answer)
    dropped = orl.select(orl.read_log(rows, COLUMNS, unlisted="drop"), simple)
    assert dropped.model == "steady"
    assert "row 137: state 4, action 0, next state 0" in str(dropped)
    assert "nothing is guaranteed" in str(dropped)
    assert "with probability at most" not in str(dropped)


def test_rows_whose_state_is_not_listed_may_be_left_out_and_next_states_cost_the_guarantee() -> (
    None
):
    rows = shop_rows(30)
    rows[100]["state"] = 9
    rows[99]["next_state"] = None
    log = orl.read_log(rows, COLUMNS, unlisted="drop")
    notes = {note.kind: note for note in orl.select(log, LADDER).notes}
    assert notes["unlisted"].guarantee == "kept"  # it was dropped for what was known before
    rows[99]["next_state"] = 9
    log = orl.read_log(rows, COLUMNS, unlisted="drop")
    notes = {note.kind: note for note in orl.select(log, LADDER).notes}
    assert notes["unlisted_next"].guarantee == "void"
    assert notes["unlisted_next"].example == "row 99"


def test_an_action_that_is_not_allowed_is_refused_with_its_row() -> None:
    model = orl.Model(
        shop,
        start=2,
        actions=lambda stock: [0] if stock == 4 else [0, 1, 2],
        horizon=HORIZON,
        parameters={"rate": (0.1, 0.6)},
    )
    rows = shop_rows(30)
    first = next(i for i, row in enumerate(rows) if row["state"] == 4 and row["action"])
    with pytest.raises(LogError, match="allowed in state 4") as caught:
        orl.select(orl.read_log(rows, COLUMNS), model.ladder({"steady": ["rate"]}))
    assert (caught.value.field, caught.value.index) == ("action", (first,))


def test_cells_of_the_wrong_kind_are_refused_with_their_row_and_a_remedy(tmp_path: Path) -> None:
    rows = spoiled("action", shop_rows(3), lambda order: f"{order} pcs", 7)
    with pytest.raises(LogError, match="leave the numbers alone in their cells") as caught:
        orl.select(orl.read_log(rows, COLUMNS), LADDER)
    assert (caught.value.field, caught.value.index) == ("action", (0,))
    sheet = tmp_path / "shop.xlsx"
    sheet.write_bytes(b"PK\x03\x04")
    with pytest.raises(LogError, match="read_excel"):
        orl.read_log(sheet, COLUMNS)


def test_a_horizon_that_no_episode_reaches_is_told() -> None:
    model = orl.Model(shop, start=2, actions=[0, 1, 2], horizon=30, parameters={"rate": (0.1, 0.6)})
    log = orl.read_log(shop_rows(20), COLUMNS)
    text = str(orl.select(log, model.ladder({"steady": ["rate"]})))
    assert "20 of 20 episodes ended before the horizon" in text
    assert "the longest has 10 of 30 steps" in text


# Driving ------------------------------------------------------------------------------------------


def tell(agent: orl.Agent, row: Row) -> None:
    agent.observe(row["state"], row["action"], row["reward"], row["next_state"])


def learned(agent: orl.Agent) -> list[Any]:
    """What an agent has learned and will do, but for what is noted of it."""
    result = agent.result
    counts = result.state["evidence"]["count"].tolist()
    history = [result.blocks.episodes, result.blocks.returns, result.total_episodes]
    watch = result.drive.watch
    watched = [watch["statistic"], watch["steps"], watch["recent"].tolist()]
    return [counts, history, agent.step, agent.policy().tolist(), watched]


def test_a_step_that_is_taken_back_leaves_no_trace_but_a_note() -> None:
    """In the middle of episodes and at their ends, with an alarm that watches."""
    rows = shop_rows(4, seed=8)
    wrong = {3, HORIZON - 1, HORIZON, 3 * HORIZON - 1}
    honest, agent = (orl.Agent(orl.Occam(ladder=LADDER), alarm=1e-3) for _ in range(2))
    for i, row in enumerate(rows[:-3]):
        if i in wrong:
            agent.observe(row["state"], 0, None, row["state"])
            assert learned(agent) != learned(honest)
            agent.undo()
            assert learned(agent) == learned(honest)
        tell(agent, row)
        tell(honest, row)
    assert learned(agent) == learned(honest)
    (note,) = agent.answer.notes
    assert (note.kind, note.affected, note.guarantee) == ("undone", len(wrong), "conditional")
    agent.undo()
    for once in (agent, orl.Agent(orl.Occam(ladder=LADDER))):
        with pytest.raises(InvalidInput, match="no step to take back"):
            once.undo()


def test_a_step_that_is_skipped_counts_for_the_clock_and_teaches_nothing() -> None:
    """As if a log had lost its row."""
    rows = shop_rows(4, seed=8)
    lost = {0, 4, 5, HORIZON - 1, 2 * HORIZON + 3}
    agent = orl.Agent(orl.Occam(ladder=LADDER), alarm=1e-3)
    for i, row in enumerate(rows):
        assert agent.step == i % HORIZON
        if i in lost:
            agent.skip(row["next_state"] if i % 2 else None)
            continue
        agent.act(row["state"])
        tell(agent, row)
    there = [{**row, "step": row["day"]} for i, row in enumerate(rows) if i not in lost]
    log = orl.read_log(there, COLUMNS)
    reader = orl.Agent(orl.Occam(ladder=LADDER)).learn_from(log)
    counts = [each.result.state["evidence"]["count"].tolist() for each in (agent, reader)]
    assert counts[0] == counts[1]
    assert agent.result.total_episodes == 4
    (note,) = agent.answer.notes
    assert (note.kind, note.affected) == ("skipped", len(lost))
    assert "5 steps passed unseen" in str(agent.answer)


def test_an_episode_that_nobody_saw_is_none() -> None:
    agent = orl.Agent(orl.Occam(ladder=LADDER))
    for _ in range(HORIZON):
        agent.skip()
    assert (agent.step, agent.result.total_episodes) == (0, 0)
    assert agent.act(2) in (0, 1, 2)


def test_an_impossible_step_is_refused_or_counted_and_named() -> None:
    agent = orl.Agent(orl.Occam(ladder=LADDER))
    tell(agent, shop_rows(1)[0])
    before = learned_plainly(agent)
    stock = shop_rows(1)[0]["next_state"]
    with pytest.raises(InvalidInput, match="every model calls impossible"):
        agent.observe(stock, 2, None, 0 if stock < 4 else 2)
    assert learned_plainly(agent) == before
    agent.observe(stock, 2, None, 0 if stock < 4 else 2, impossible="count")
    assert agent.answer.misspecified
    assert "episode 1, step 2: state" in str(agent.answer)
    agent.undo()
    assert not agent.answer.misspecified
    with pytest.raises(InvalidInput, match="impossible"):
        agent.observe(stock, 2, None, 0, impossible="maybe")  # type: ignore[arg-type]  # a user may


def learned_plainly(agent: orl.Agent) -> list[Any]:
    return [agent.result.state["evidence"]["count"].tolist(), agent.step, agent.answer.notes]


def test_forgetting_says_what_is_guaranteed_after_it() -> None:
    agent = orl.Agent(orl.Occam(ladder=LADDER), alarm=1e-3)
    agent.learn_from(orl.read_log(shop_rows(3), COLUMNS))
    for row in shop_rows(2):
        tell(agent, row)
    agent.forget(agent.result.total_episodes + 1)
    (note,) = agent.answer.notes
    assert (note.kind, note.guarantee) == ("forgotten", "kept")
    for row in shop_rows(2):
        tell(agent, row)
    agent.forget(2)
    (note,) = agent.answer.notes
    assert (note.kind, note.affected, note.guarantee) == ("forgotten", 2, "conditional")
    assert "forgotten 2 times" in str(agent.answer)
    assert "each start has a delta of its own" in str(agent.answer)


# Models, and everything at once -------------------------------------------------------------------


def test_a_probability_that_is_none_names_the_parameter_and_the_corner() -> None:
    def queue(
        size: int, serve: int, *, arrival: float, rush: float
    ) -> Iterator[tuple[float, int, float]]:
        chance = arrival + rush * serve
        yield chance, min(size + 1, 2), 0.0
        yield 1.0 - chance, max(size - 1, 0), 1.0

    bounds = {"arrival": (0.1, 0.7), "rush": (0.0, 0.4)}
    with pytest.raises(orl.errors.ProbabilityError) as caught:
        orl.Model(queue, start=0, actions=[0, 1], horizon=5, parameters=bounds)
    text = str(caught.value)
    assert "state 0, action 1, arrival=0.7, rush=0.4" in text
    assert "arrival needs a high end of 0.6 or rush needs a high end of 0.3" in text
    narrow = {"arrival": (0.1, 0.6), "rush": (0.0, 0.4)}
    orl.Model(queue, start=0, actions=[0, 1], horizon=5, parameters=narrow)


def test_no_spoiled_log_is_answered_falsely_without_a_word() -> None:
    rows = spoiled_logs.clean_rows(25)
    outcomes = {}
    for case in spoiled_logs.CASES:
        outcome, said, false = spoiled_logs.said_of(case, rows)
        assert not false, case.name
        assert said, case.name
        outcomes[case.name] = outcome
    assert outcomes["nothing"] == "the truth"
    assert outcomes["rewards with flipped signs"] == "refused"

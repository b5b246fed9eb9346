"""Which columns a log needs: the mixture by brute force, its level, placebos, answers, policies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

import occamrl as orl
from occamrl import bellman
from occamrl.arrays import Ints
from occamrl.errors import InvalidInput, NotAvailable
from occamrl.evidence.columns import (
    ALPHAS,
    STRENGTHS,
    Coded,
    ColumnSearch,
    Weighed,
    count_earlier,
    join_columns,
    weigh_columns,
)
from occamrl.logs.relevance import Relevance
from occamrl.models.tables import CountedTable, TableRows, careful_plan, count_table


def coded(values: Ints) -> Coded:
    return Coded(np.asarray(values, np.int64), int(np.max(values)) + 1)


def random_table(seed: int, rows: int, sizes: tuple[int, ...]) -> list[Coded]:
    draw = np.random.default_rng(seed)
    return [Coded(draw.integers(size, size=rows), size) for size in sizes]


# The mixture --------------------------------------------------------------------------------------


def frequency(
    y: int, key: tuple[int, ...], earlier: list[tuple[tuple[int, ...], int]]
) -> tuple[int, int]:
    """Count earlier rows that agree on a key, and how many of them had the value y."""
    agreeing = [value for other, value in earlier if other == key]
    return len(agreeing), agreeing.count(y)


def brute_force_quality(target: Coded, columns: list[Coded], path: tuple[int, ...]) -> float:
    """Predict row by row, as the formulas say: a value that was not met as such."""
    logs = np.zeros(len(STRENGTHS) + len(ALPHAS))
    for t in range(target.codes.size):
        y = int(target.codes[t])
        met = len(set(target.codes[:t].tolist()))
        tables = []
        for length in range(len(path) + 1):
            keys = []
            for s in range(t + 1):
                keys.append(tuple(int(columns[i].codes[s]) for i in path[:length]))
            earlier = [(keys[s], int(target.codes[s])) for s in range(t)]
            tables.append(frequency(y, keys[t], earlier))
        predicted = []
        for a in STRENGTHS:
            p = (tables[0][1] + 0.5) / (tables[0][0] + 0.5 * (met + 1))
            for agreeing, same in tables[1:]:
                p = (same + a * p) / (agreeing + a)
            predicted.append(p)
        agreeing, same = tables[-1]
        for alpha in ALPHAS:
            predicted.append((same + alpha) / (agreeing + alpha * (met + 1)))
        logs += np.log(predicted)
    return float(np.logaddexp.reduce(logs) - math.log(logs.size))


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 25), size=st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_the_mixture_is_that_of_predictions_row_by_row(seed: int, rows: int, size: int) -> None:
    target, *columns = random_table(seed, rows, (size, 2, 3, 2))
    search = ColumnSearch(target, columns, 2)
    search.width = 10  # so that no path is left out
    search.run()
    total = []
    for length in range(3):
        for path in itertools.product(range(3), repeat=length):
            quality = brute_force_quality(target, columns, path)
            assert search.predicted[path] == pytest.approx(quality, abs=1e-9)
            total.append(quality - math.log(3 * 3**length))
    assert search.mixture() == pytest.approx(float(np.logaddexp.reduce(total)), abs=1e-9)


def test_the_mixture_is_a_law_of_what_comes() -> None:
    """Over all sequences, values named in the order in which they come, it adds up to one."""
    columns = random_table(3, 5, (2, 3))
    total = 0.0
    for values in itertools.product(range(5), repeat=5):
        if any(values[t] > max(values[:t], default=-1) + 1 for t in range(5)):
            continue
        search = ColumnSearch(Coded(np.array(values), 5), columns, 2)
        search.width = 10
        search.run()
        total += math.exp(search.mixture())
    assert total == pytest.approx(1.0, abs=1e-9)


def test_a_narrow_search_never_says_more_than_all_paths() -> None:
    target, *columns = random_table(4, 60, (3, 2, 3, 2, 4))
    mixtures = []
    for width in (1, 2, 20):
        search = ColumnSearch(target, columns, 3)
        search.width = width
        search.run()
        mixtures.append(search.mixture())
    assert mixtures[0] <= mixtures[1] <= mixtures[2]


@given(values=st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_earlier_rows_are_counted(values: list[int]) -> None:
    expected = [values[:t].count(value) for t, value in enumerate(values)]
    assert count_earlier(coded(np.array(values))).tolist() == expected
    wide = Coded(np.array(values) * 20_000, 100_001)
    assert count_earlier(wide).tolist() == expected


def test_joined_columns_tell_the_same_rows_apart() -> None:
    columns = random_table(5, 300, (300, 300, 300))
    context = Coded(np.zeros(300, np.int64), 1)
    for column in columns:
        context = join_columns(context, column)
    tuples = list(zip(*(column.codes.tolist() for column in columns), strict=True))
    assert len(set(context.codes.tolist())) == len(set(tuples))
    assert context.codes.max() < context.size


def test_the_likelihood_is_that_of_frequencies_where_values_were_met_before() -> None:
    target, *columns = random_table(6, 80, (3, 2, 4))
    keys = list(zip(columns[0].codes.tolist(), columns[1].codes.tolist(), strict=True))
    rows = list(zip(keys, target.codes.tolist(), strict=True))
    met = [t for t in range(80) if rows[t][1] in [y for _, y in rows[:t]]]
    assert len(met) == 77
    expected = 0.0
    for t in met:
        values = [rows[s][1] for s in met if rows[s][0] == rows[t][0]]
        expected += math.log(values.count(rows[t][1]) / len(values))
    assert ColumnSearch(target, columns, 2).likelihood((0, 1)) == pytest.approx(expected)


def test_compatible_sets_are_those_that_brute_force_keeps() -> None:
    target, *columns = random_table(7, 200, (2, 2, 3, 2, 2))
    sometimes = target.codes & (np.arange(200) % 3 == 0)
    target = Coded(columns[1].codes ^ sometimes, 2)
    search = ColumnSearch(target, columns, 3)
    least = search.likelihood((1,)) - 1.0
    expected = set()
    for length in range(4):
        for chosen in itertools.combinations(range(4), length):
            if search.likelihood(chosen) >= least:
                expected.add(chosen)
    assert set(search.compatible(3, least)) == expected
    assert 0 < len(expected) < 15


# Invariance ---------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_other_names_of_values_change_nothing(seed: int) -> None:
    draw = np.random.default_rng(seed)
    target, *columns = random_table(seed, 120, (3, 3, 4, 2))
    target = Coded((columns[0].codes + (draw.random(120) < 0.2)) % 3, 3)

    def renamed(column: Coded) -> Coded:
        return Coded(draw.permutation(column.size)[column.codes], column.size)

    def weigh(target: Coded, columns: list[Coded]) -> Weighed:
        return weigh_columns(
            target,
            columns,
            checked=2,
            delta=0.05,
            targets=2,
            draw=np.random.default_rng(0),
        )

    one = weigh(target, columns)
    two = weigh(renamed(target), [renamed(column) for column in columns])
    assert two.mixture == pytest.approx(one.mixture)
    assert (two.best, two.needed, two.likely) == (one.best, one.needed, one.likely)


def test_a_shuffled_copy_of_a_needed_column_is_worse_and_one_of_a_useless_column_is_not() -> None:
    draw = np.random.default_rng(8)
    columns = random_table(8, 500, (3, 3))
    target = Coded((columns[0].codes + (draw.random(500) < 0.1)) % 3, 3)
    search = ColumnSearch(target, columns, 2)
    search.run()
    for i, worth in enumerate((True, False)):
        shuffled = Coded(draw.permutation(columns[i].codes), columns[i].size)
        assert (search.gain_over(i, shuffled) > 20.0) == worth


def test_a_date_stands_for_time_alone() -> None:
    draw = np.random.default_rng(14)
    late = (np.arange(1_000) > 550).astype(np.int64)
    target = Coded(late ^ (draw.random(1_000) < 0.1), 2)
    month = Coded(np.arange(1_000) // 50, 20)
    columns = [month, *random_table(14, 1_000, (3,))]
    weighed = weigh_columns(target, columns, checked=2, delta=0.05, targets=1, draw=draw)
    assert weighed.timed == (0,)
    assert weighed.likely == weighed.needed == ()


def test_of_two_equal_columns_none_is_said_to_be_needed() -> None:
    draw = np.random.default_rng(9)
    (column,) = random_table(9, 600, (3,))
    target = Coded((column.codes + (draw.random(600) < 0.1)) % 3, 3)
    columns = [column, column, *random_table(10, 600, (2,))]
    weighed = weigh_columns(target, columns, checked=2, delta=0.05, targets=1, draw=draw)
    assert weighed.needed == weighed.likely == ()
    assert {0, 1} & set(weighed.best)


def test_where_no_set_is_compatible_nothing_is_needed() -> None:
    """Three columns matter, and only one may."""
    columns = random_table(11, 2_000, (2, 2, 2))
    target = Coded(sum((column.codes for column in columns), np.zeros(2_000, np.int64)) % 2, 2)
    draw = np.random.default_rng(11)
    weighed = weigh_columns(target, columns, checked=3, delta=0.05, targets=1, draw=draw)
    assert weighed.needed == (0, 1, 2)
    search = ColumnSearch(target, columns, 1)
    assert search.compatible(1, -1.0) == []


# The level ----------------------------------------------------------------------------------------


def excluded_ever(delta: float, runs: int, *, endless: bool, spoiled: bool) -> int:
    """Count runs in which the true set is excluded at one of several times.

    An endless target has values without end, most of which are met once or never. The control
    compares the likelihood of frequencies with one that has seen the data.
    """
    failures = 0
    for seed in range(runs):
        draw = np.random.default_rng([12, seed])
        law = draw.dirichlet(np.full(3, 0.5), size=4)
        x = draw.integers(4, size=150)
        other = np.zeros(150, np.int64)
        y = np.zeros(150, np.int64)
        for t in range(150):
            # the other column looks at what came, as an action would
            other[t] = y[t - 1] % 3 if draw.random() < 0.8 else draw.integers(3)
            y[t] = draw.choice(3, p=law[x[t]])
            if endless:
                y[t] += 3 * draw.zipf(1.5 + 0.2 * x[t]) % 10**6
        y = np.unique(y, return_inverse=True)[1]
        for rows in (20, 60, 150):
            target = Coded(y[:rows], int(y.max()) + 1)
            search = ColumnSearch(target, [Coded(x[:rows], 4), Coded(other[:rows], 3)], 2)
            search.run()
            mixture = search.mixture()
            if spoiled:
                mixture = search.likelihood((0, 1))
            if search.likelihood((0,)) < mixture - math.log(1.0 / delta):
                failures += 1
                break
    return failures


@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_true_set_is_excluded_with_probability_at_most_delta(
    delta: float, endless: bool
) -> None:
    runs = 60
    failures = excluded_ever(delta, runs, endless=endless, spoiled=False)
    assert binomtest(failures, runs, delta, alternative="greater").pvalue > 1e-4


def test_the_level_test_sees_a_mixture_that_has_looked_at_the_data() -> None:
    failures = excluded_ever(0.05, 60, endless=False, spoiled=True)
    assert binomtest(failures, 60, 0.05, alternative="greater").pvalue < 1e-6


# The answer ---------------------------------------------------------------------------------------

ROLES: dict[str, str | Sequence[str] | None] = {
    "episode": "week",
    "state": ["stock", "moon"],
    "action": "order",
    "reward": "profit",
}


def shop(weeks: int, seed: int = 0, change: int | None = None) -> dict[str, list[Any]]:
    """Return a shop: at most one customer a day, who comes more often to a full shelf."""
    draw = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {}
    for week in range(weeks):
        stock = 1
        for day in range(8):
            order = int(draw.integers(2))
            full = min(stock + order, 3)
            chance = 0.9 if full >= 2 else 0.2
            if change is not None and week >= change:
                chance = 1.0 - chance
            sold = int(draw.random() < chance and full > 0)
            row = {"week": week, "day": day, "stock": stock, "moon": int(draw.integers(4))}
            row |= {"order": order, "profit": 3 * sold - (full - stock)}
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
            stock = full - sold
    return columns


def shop_answer(weeks: int = 150, **options: Any) -> Relevance:
    log = orl.read_log(shop(weeks), ROLES, order_by="day")
    return orl.relevant(log, **options)


def test_what_a_shop_needs_is_said_and_nothing_else() -> None:
    answer = shop_answer()
    assert answer.needed["reward"] == ("stock", "order")
    assert answer.needed["stock"] == ("stock", "order")
    assert answer.likely["reward"] == ()
    assert answer.minimal["stock"] == [("stock", "order")]
    assert answer.state == ("stock",)
    assert "moon" not in answer.weighed
    text = str(answer)
    assert "The reward needs 'stock' and 'order': proved" in text
    assert "No sign that the reward needs 'moon'; small effects cannot be excluded." in text
    assert "was not asked" in text


def test_little_data_are_called_no_sign() -> None:
    answer = shop_answer(weeks=2)
    assert not answer.needed["reward"]
    assert not answer.recommended
    assert "keep today's policy" in str(answer)


def test_a_reward_of_the_day_before_makes_earlier_rows_matter() -> None:
    table = shop(150)
    previous = [0, *table["order"][:-1]]
    table["profit"] = [5 * order for order in previous]
    # first days have no row before them
    log = orl.read_log(table, ROLES, order_by="day")
    assert "Earlier rows help" not in str(orl.relevant(log))
    answer = orl.relevant(log, lags=1)
    assert answer.needed["reward"] == ("order, 1 row before",)
    assert "order, 1 row before" in answer.state
    assert "Earlier rows help to predict the reward" in str(answer)
    assert answer.log.rows == log.rows


def test_a_change_in_the_course_of_a_log_is_seen_and_no_policy_recommended() -> None:
    log = orl.read_log(shop(150, change=64), ROLES, order_by="day")
    answer = orl.relevant(log)
    assert "reward" in answer.changed
    assert not answer.recommended
    assert "something changed in its course" in str(answer)
    assert shop_answer().changed == ()


def test_columns_that_nobody_acts_on_are_recognised() -> None:
    table = shop(150)
    table["profit"] = [a + b for a, b in zip(table["profit"], table["moon"], strict=True)]
    answer = orl.relevant(orl.read_log(table, ROLES, order_by="day"))
    assert set(answer.state) == {"stock", "moon"}
    assert answer.exogenous == ("moon",)


def test_numbers_are_cut_at_quantiles_of_rows_that_are_not_weighed() -> None:
    table = shop(150)
    draw = np.random.default_rng(1)
    table["moon"] = draw.normal(size=len(table["stock"])).tolist()
    table["profit"] = [float(moon > 0) for moon in table["moon"]]
    log = orl.read_log(table, ROLES, order_by="day")
    answer = orl.relevant(log, bins=4)
    assert answer.needed["reward"] == ("moon",)
    assert "'moon' is cut into bins, about 4, at quantiles of the first 80 rows" in str(answer)
    # other rows later leave the bins what they are
    later = {**table, "moon": [*table["moon"][:600], *[9.0 + t for t in range(600)]]}
    others = orl.relevant(orl.read_log(later, ROLES, order_by="day"), bins=4)
    assert others.columns.candidates[1].values == answer.columns.candidates[1].values


def test_a_policy_is_recommended_only_where_it_beats_todays() -> None:
    answer = shop_answer()
    assert answer.recommended
    assert answer.gain.low > 0.0
    # in the truth a full shelf sells: order whenever there is room, but on the last days
    assert [answer.policy(stock, 0) for stock in (0, 1)] == [1, 1]
    assert answer.without("stock").value > 0.0
    assert answer.without("moon").value == 0.0


def test_where_nothing_is_to_be_gained_a_policy_is_seldom_recommended() -> None:
    """No level is claimed; one that looked at itself would nearly always be recommended."""
    runs = 25
    recommended = 0
    for seed in range(runs):
        table = shop(24, seed)
        draw = np.random.default_rng([2, seed])
        table["profit"] = draw.integers(3, size=len(table["stock"])).tolist()
        answer = orl.relevant(orl.read_log(table, ROLES, order_by="day"))
        recommended += answer.recommended
    assert binomtest(recommended, runs, 0.1, alternative="greater").pvalue > 1e-4


def test_what_was_chosen_goes_on_as_a_log_and_a_ladder() -> None:
    answer = shop_answer(60)
    assert answer.log.rows == answer.source.rows
    assert set(answer.log.columns()["state"].tolist()) <= {0, 1, 2, 3}
    assert answer.ladder.names == ("no column", "stock")
    selected = orl.select(answer.log, answer.ladder, answer.known)
    assert selected.model == "stock"
    agent = orl.Agent(orl.Occam(ladder=answer.ladder), known=answer.known)
    assert agent.act(1) in (0, 1)


def test_the_end_of_episodes_is_a_target() -> None:
    draw = np.random.default_rng(3)
    rows = []
    for episode in range(300):
        for _ in range(20):
            state = int(draw.integers(4))
            ended = bool(state == 3 and draw.random() < 0.7)
            row = {"episode": episode, "state": state, "action": int(draw.integers(2))}
            rows.append({**row, "reward": 1.0, "ended": ended})
            if ended:
                break
    answer = orl.relevant(orl.read_log(rows))
    assert answer.needed["end"] == ("state",)
    assert answer.needed["reward"] == ()
    assert answer.known.state_name(answer.known.states - 1) == "(ended)"


def test_a_log_without_rewards_has_columns_and_no_policy(tmp_path: Path) -> None:
    roles = {name: columns for name, columns in ROLES.items() if name != "reward"}
    answer = orl.relevant(orl.read_log(shop(60), roles, order_by="day"))
    assert answer.needed["stock"] == ("stock", "order")
    assert not answer.recommended
    with pytest.raises(NotAvailable, match="no rewards"):
        _ = answer.gain
    assert "no script" not in answer.page(tmp_path / "columns.html").read_text("utf-8")


def test_the_page_has_a_table_of_what_is_said_of_each_column(tmp_path: Path) -> None:
    text = shop_answer(60).page(tmp_path / "deep" / "columns.html").read_text("utf-8")
    for words in ("Which columns?", "What to do?", "proved", "no sign", "moon"):
        assert words in text


def test_rewards_that_are_missing_are_said_and_do_not_lower_what_was_earned() -> None:
    table = shop(100)
    table["profit"] = [2.0] * len(table["stock"])
    table["profit"][::4] = [math.nan] * len(table["profit"][::4])
    answer = orl.relevant(orl.read_log(table, ROLES, order_by="day"))
    # seven of eight days have a next state, and those without a reward count as the others
    assert answer.plans.earned == pytest.approx(14.0)
    assert "have no reward" in str(answer)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"targets": ["profits"]}, "targets"),
        ({"lags": -1}, "lags"),
        ({"bins": 1}, "bins"),
        ({"delta": 0.0}, "delta"),
        ({"maximum": 0}, "maximum"),
        ({"targets": "reward"}, "targets"),
    ],
)
def test_what_cannot_be_asked_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        shop_answer(10, **options)


def test_names_that_answers_use_are_refused_as_columns() -> None:
    table = shop(10)
    table["end"] = table.pop("moon")
    log = orl.read_log(table, {**ROLES, "state": ["stock", "end"], "terminated": None})
    with pytest.raises(InvalidInput, match="another name"):
        orl.relevant(log)
    with pytest.raises(InvalidInput, match="stocks"):
        shop_answer(30).without("stocks")


# Tables -------------------------------------------------------------------------------------------


def random_rows(seed: int, rows: int = 400) -> TableRows:
    draw = np.random.default_rng(seed)
    return TableRows(
        unit=np.arange(rows) % 10,
        step=np.zeros(rows, np.int64),
        state=draw.integers(3, size=rows),
        action=draw.integers(2, size=rows),
        next_state=draw.integers(-1, 3, size=rows),
        reward=draw.normal(size=rows),
        first=np.arange(0, rows, 7),
        states=3,
        actions=2,
        units=10,
    )


def worth_of(table: CountedTable, policy: Ints) -> float:
    return float(table.start @ bellman.evaluate([table.kernel], policy)[0])


def test_worth_in_a_table_is_that_of_its_frequencies() -> None:
    rows = random_rows(1)
    weight = np.arange(10.0)
    table = count_table(rows, weight)
    policy = np.array([[0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]])
    values = np.zeros(3)
    for h in (2, 1, 0):
        new = np.zeros(3)
        for s in range(3):
            at = (rows.state == s) & (rows.action == policy[h, s])
            w = weight[rows.unit[at]]
            following = np.append(values, 0.0)[rows.next_state[at]]
            new[s] = (w @ (rows.reward[at] + following)) / w.sum()
        values = new
    starts = np.bincount(rows.state[rows.first], weight[rows.unit[rows.first]], 3)
    assert worth_of(table, policy) == pytest.approx(starts @ values / starts.sum())


def test_an_action_that_was_not_tried_counts_as_what_was_done() -> None:
    rows = random_rows(2)
    never = (rows.state == 1) & (rows.action == 0)
    rows = replace(rows, action=np.where(never, 1, rows.action))
    table = count_table(rows, np.ones(10))
    untried = np.zeros((5, 4), np.int64)
    instead = untried.copy()
    instead[:, 1] = 1
    assert worth_of(table, untried) == pytest.approx(worth_of(table, instead))
    assert (careful_plan(table, 5)[:, 1] == 1).all()


def test_a_plan_from_many_rows_is_the_best_policy() -> None:
    rows = random_rows(3, 40_000)
    rows = replace(rows, reward=rows.reward * 0.1 + rows.state * rows.action)
    table = count_table(rows, np.ones(10))
    _, best = bellman.solve([table.kernel], 4, 4)
    assert worth_of(table, careful_plan(table, 4)) == pytest.approx(worth_of(table, best), abs=0.02)


def test_nothing_is_urged_by_models_that_were_made_of_the_same_log() -> None:
    draw = np.random.default_rng(5)
    rows = 600
    state = draw.integers(3, size=rows)
    action = draw.integers(2, size=rows)
    reward = 1.0 * (action == state % 2)
    table = {"episode": np.arange(rows) // 10, "state": state, "action": action, "reward": reward}
    relevant = orl.relevant(table)
    answer = orl.select(relevant.log, relevant.ladder, relevant.known)
    assert any(note.guarantee == "void" for note in answer.notes)
    assert not any(step.startswith("Next: use it") for step in answer.next_steps)


# What plans would have earned ---------------------------------------------------------------------


def played(episodes: int, seed: int) -> dict[str, Any]:
    """Return episodes of a shelf: what was ordered depends on the day and on a coin."""
    draw = np.random.default_rng(seed)
    stock = draw.integers(2, size=episodes)
    columns: dict[str, list[Any]] = {}
    for day in range(4):
        order = (draw.random(episodes) < (0.9, 0.7, 0.4, 0.1)[day]).astype(np.int64)
        sold = (draw.random(episodes) < 0.4 + 0.4 * stock).astype(np.int64)
        after = np.where(draw.random(episodes) < 0.8, order, 1 - order)
        row = {"episode": np.arange(episodes), "day": np.full(episodes, day), "stock": stock}
        row |= {"order": order, "profit": 3.0 * sold - order, "after": after}
        for name, values in row.items():
            columns.setdefault(name, []).append(values)
        stock = after
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def exact_gain() -> float:
    """Return what the best policy earns more than what was done, by recursion over both."""
    kernel = np.array([[0.8, 0.2], [0.2, 0.8]])  # of the next stock, by what is ordered
    reward = 3.0 * (0.4 + 0.4 * np.arange(2))[:, None] - np.arange(2)
    best = np.zeros(2)
    done = np.zeros(2)
    for day in (3, 2, 1, 0):
        share = (0.9, 0.7, 0.4, 0.1)[day]
        best = (reward + kernel @ best).max(axis=1)
        done = (reward + kernel @ done) @ np.array([1.0 - share, share])
    return float((best - done).mean())


def test_what_a_plan_gains_needs_no_guess_of_what_was_done() -> None:
    """Orders that depend on the day are compared as they were; their pooled shares are not."""
    columns = {"state": "stock", "action": "order", "reward": "profit", "next_state": "after"}
    table = played(5_000, 15)
    answer = orl.relevant(orl.read_log(table, columns, order_by="day"))
    slack = 4.0 * answer.gain.spread
    assert answer.gain.value == pytest.approx(exact_gain(), abs=slack)
    # the control: a table in which each day has the same share of orders
    rows = answer.plans.rows
    counts = count_table(rows, np.ones(rows.units))
    shares = counts.visits.reshape(3, 2) + 1e-9
    shares = shares / shares.sum(axis=1, keepdims=True)
    pooled = bellman.evaluate([counts.kernel], np.broadcast_to(shares, (4, 3, 2)))[0]
    best = bellman.solve([counts.kernel], 3, 4)[0][0]
    assert abs(float(counts.start @ (best - pooled)) - exact_gain()) > slack


def test_a_plan_gains_nothing_over_itself() -> None:
    table = shop(100)
    table["order"] = [1] * len(table["stock"])
    answer = orl.relevant(orl.read_log(table, ROLES, order_by="day"))
    assert answer.gain == (0.0, 0.0, 0.0, 0.0)
    assert not answer.recommended


# Columns that are not what they seem --------------------------------------------------------------


def test_rows_with_an_empty_cell_are_left_out_and_said() -> None:
    table = shop(150)
    draw = np.random.default_rng(16)
    for row in np.flatnonzero(draw.random(len(table["moon"])) < 0.2):
        table["moon"][row] = None
    answer = orl.relevant(orl.read_log(table, ROLES, order_by="day", unlisted="drop"))
    assert answer.needed["stock"] == ("stock", "order")
    assert "moon" not in answer.weighed
    assert answer.columns.steps.state.min() >= 0
    assert any(note.kind == "unlisted" and note.affected > 100 for note in answer.notes)


def test_a_column_that_tells_the_next_value_of_another_is_named() -> None:
    table = shop(150)
    days = len(table["stock"])
    table["evening"] = [*table["stock"][1:], 0]
    columns = {**ROLES, "state": ["stock", "evening"]}
    answer = orl.relevant(orl.read_log(table, columns, order_by="day"), targets=["stock"])
    assert answer.foretold == {"stock": "evening"}
    assert "leave it out if it is known only afterwards" in str(answer)
    assert answer.exogenous == ()
    assert days == answer.source.rows + 150


def test_a_column_with_a_value_for_every_row_is_named_and_stops_proofs() -> None:
    table = shop(150)
    table["moon"] = [f"receipt {i}" for i in range(len(table["stock"]))]
    answer = orl.relevant(orl.read_log(table, ROLES, order_by="day"))
    assert answer.needed["stock"] == ()
    assert answer.likely["stock"] == ("stock", "order")
    assert "'moon' has 1,050 values in 1,050 rows" in str(answer)
    assert answer.compared == ("stock",)


def test_where_more_columns_matter_than_a_proof_allows_nothing_is_proved() -> None:
    draw = np.random.default_rng(17)
    columns = random_table(17, 3_000, (2, 2, 2, 3))
    both = sum((column.codes for column in columns[:3]), np.zeros(3_000, np.int64)) >= 2
    target = Coded((both ^ (draw.random(3_000) < 0.05)).astype(np.int64), 2)
    two = weigh_columns(target, columns, checked=2, delta=0.05, targets=1, draw=draw)
    assert two.likely == (0, 1, 2)
    assert two.needed == ()
    three = weigh_columns(target, columns, checked=3, delta=0.05, targets=1, draw=draw)
    assert three.needed == (0, 1, 2)


def test_where_more_columns_matter_than_are_looked_for_nothing_is_said_against_others() -> None:
    draw = np.random.default_rng(11)
    columns = [coded(draw.integers(2, size=4_000)) for _ in range(7)]
    votes = np.sum([column.codes for column in columns[:5]], axis=0)
    target = coded((votes >= 3) ^ (draw.random(4_000) < 0.05))
    four = weigh_columns(target, columns, checked=3, delta=0.05, targets=1, draw=draw)
    assert len(four.best) == 4
    assert not four.unlikely  # one of the five has no place in a set of four
    every = weigh_columns(target, columns, checked=5, delta=0.05, targets=1, draw=draw)
    assert set(every.likely) == {0, 1, 2, 3, 4}
    assert set(every.unlikely) == {5, 6}


def test_columns_that_tell_each_other_are_named() -> None:
    rows = shop(150)
    rows["shelf"] = [f"{stock} left" for stock in rows["stock"]]
    log = orl.read_log(rows, {**ROLES, "state": ["stock", "shelf"]}, order_by="day")
    assert orl.relevant(log).twins == [("stock", "shelf")]
    assert shop_answer().twins == []


def test_where_the_law_changed_nothing_is_proved() -> None:
    log = orl.read_log(shop(150, change=64), ROLES, order_by="day")
    answer = orl.relevant(log)
    for name in answer.changed:
        assert answer.needed[name] == ()
    assert "so that nothing is called proved of that" in str(answer)


def test_a_log_that_closes_on_sundays_recommends_nothing_until_its_gaps_are_joined() -> None:
    draw = np.random.default_rng(0)
    rows = []
    for week in range(120):
        for day in range(6):  # on the seventh it is closed
            rows.append(
                {
                    "day": 7 * week + day,
                    "weekday": day,
                    "order": int(draw.integers(2)),
                    "profit": float(day == 5) * 20.0 + draw.integers(3),
                }
            )
    columns = {"episode": None, "state": "weekday", "action": "order", "reward": "profit"}
    cut = orl.relevant(orl.read_log(rows, columns, order_by="day"))
    assert cut.riddled
    assert not cut.recommended
    joined = orl.relevant(orl.read_log(rows, columns, order_by="day", gaps="join"))
    assert not joined.riddled
    assert "weekday" in (*joined.needed["reward"], *joined.likely["reward"])

"""The answer: ranges by brute force, what is recommended, coverage, policy tables."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import occamrl as orl
from occamrl.answers.answer import Answer
from occamrl.answers.wording import format_number, format_range
from occamrl.errors import InvalidInput, OccamRLError, ParameterError
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.evidence.worlds import FiniteWorld
from occamrl.logs.log import simulate_log
from occamrl.models.model import ParametricLadder
from occamrl.naming import Names, describe_states
from occamrl.policies import Policy
from occamrl.protocols import Floats, Interval
from occamrl.running.flow import simulate
from tests import cases

RUNS, DELTA = 40, 0.1
Rows = Iterable[tuple[Any, ...]]
CASE, TRUTH = cases.CASES["random starts"], {"rate": 0.37, "rush": 0.21}


def log_of(mdp: orl.FiniteMDP, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Return a log of random actions that are allowed, in the user's names."""
    draw, known = np.random.default_rng([seed, 27]), mdp.known
    share = np.tile(known.allowed / known.allowed.sum(axis=1, keepdims=True), (mdp.horizon, 1, 1))
    flows = [simulate(mdp, share, 1, draw) for _ in range(episodes)]
    found: dict[str, Any] = {"episode": [k for k, flow in enumerate(flows) for _ in flow.state]}
    for role in ("state", "action", "next_state"):
        name = known.action_name if role == "action" else known.state_name
        found[role] = [name(int(each)) for flow in flows for each in getattr(flow, role)]
    return {
        **found,
        "reward": known.unit.low
        + known.unit.scale * np.concatenate([flow.reward for flow in flows]),
    }


def value(kernel: Floats, policy: Any) -> float:
    """Return what a policy [H, S] earns, forward in time."""
    total, here = 0.0, cases.RANDOM_STARTS
    for chosen in policy:
        rows = np.arange(here.size), chosen
        total, here = total + float(here @ CASE.mdp.known.base_reward[rows]), here @ kernel[rows]
    return total


@pytest.mark.parametrize("evidence", ["likelihood", "value"])
@pytest.mark.parametrize("episodes", [1, 10, 60, 1000])
def test_ranges_are_extremes_over_what_is_alive_and_the_best_guarantee_is_recommended(
    episodes: int, evidence: str
) -> None:
    mdp, kernels = CASE.mdp, CASE.kernels
    answer = orl.select(
        simulate_log(mdp, episodes=episodes), CASE.ladder, mdp.known, evidence=evidence
    )
    weigher = answer.weigher.exact if evidence == "likelihood" else answer.weigher
    scores, least = weigher.member_scores(answer.state)
    alive = np.flatnonzero(scores >= least)
    optimal = [
        orl.FiniteMDP(transition=P, reward=mdp.known.base_reward, horizon=4).optimal_policy
        for P in kernels
    ]

    def over(policy: Any) -> Floats:
        return np.array([value(kernels[i], policy) for i in alive])

    worth, other = over(answer.policy.actions), np.ones((4, 3), int)
    assert answer.interval == pytest.approx((worth.min(), worth.max()))
    guess = int(np.where(CASE.ladder.level < answer.chosen, scores, -np.inf).argmax())
    assert answer.value == pytest.approx(value(kernels[guess], answer.policy.actions))
    change, gap = answer.compared_with(other), worth - over(other)
    assert change[1:] == pytest.approx((gap.min(), gap.max()))
    assert (
        change.low >= worth.min() - over(other).max() - 1e-12
    )  # sharper than a difference of ranges
    assert answer.today is not None
    candidates = [*(optimal[i] for i in alive), answer.today.argmax(axis=2)]
    assert answer.interval[0] == pytest.approx(max(over(each).min() for each in candidates))
    lost = worth - over(optimal[int(scores[:2].argmax())])
    expected = {"two": pytest.approx((lost.min(), lost.max()))} if answer.chosen == 2 else {}
    assert {name: each[1:] for name, each in answer.price_of_simplicity.items()} == expected


def shop(stock: int, order: int, *, rate: float, rush: float = 0.0) -> Rows:
    """At most one customer a day, more often when the stock is odd; a sale earns 3."""
    chance, filled = rate + rush * (stock % 2), min(stock + order, 4)
    yield 1 - chance, filled, -0.1 * stock - order, False
    yield chance, max(filled - 1, 0), 3.0 * (filled > 0) - 0.1 * stock - order, False


@cache
def ladder() -> ParametricLadder:
    bounds = {"rate": (0.1, 0.6), "rush": (0.0, 0.3)}
    model = orl.Model(shop, start=2, actions=[0, 1], horizon=6, unit="EUR", parameters=bounds)
    return model.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})


@cache
def answered(episodes: int, seed: int = 0, delta: float = 0.05) -> Answer:
    found: Answer = orl.select(
        log_of(ladder().model.mdp(**TRUTH), episodes, seed), ladder(), delta=delta
    )
    return found


def worth_in(answer: Any, policy: Any, kernels: Any) -> float:
    """Return what a policy earns in an episode of a world."""
    return float(answer.worlds.returns(policy, FiniteWorld(kernels, 0, 0.0)).mean())


@pytest.mark.parametrize(("episodes", "points"), [(5, 41), (300, 161)])
def test_a_range_holds_that_of_a_fine_grid_of_the_region(episodes: int, points: int) -> None:
    """Up to 2 % of its width, since the extremes are searched for; and it is not much wider."""
    answer = answered(episodes)
    weigher: Any = answer.weigher
    by = weigher.exact
    data = by.counts_of(answer.state)
    grid = [np.array(each) for each in itertools.product(np.linspace(0.0, 1.0, points), repeat=2)]
    likely = [by.log_likelihood(data, each) for each in grid]
    inside = [
        each for each, found in zip(grid, likely, strict=True) if found >= by.least(answer.state)
    ]
    worlds = [by.kernels(each) for each in inside[:: max(1, len(inside) // 1500)]]
    for actions in (
        answer.policy.actions,
        np.zeros((6, by.known.states), int),
        np.ones((6, by.known.states), int),
    ):
        worth = [worth_in(answer, actions, kernels) for kernels in worlds]
        found, slack = answer.worth_of(actions), 0.02 * (max(worth) - min(worth))
        assert min(worth) - 3 * slack <= found.low <= min(worth) + slack
        assert max(worth) - slack <= found.high <= max(worth) + 3 * slack


class Narrow(ParametricEvidence):
    """The control: a region that is far too small."""

    def least(self, state: Any, level: float | None = None) -> float:
        return float(self.weigh(state).likelihoods.max()) - 0.02


@pytest.mark.parametrize("control", [False, True])
def test_ranges_cover_the_truth_and_the_control_does_not(control: bool) -> None:
    """Exact tests on what is recommended, its gain and the parameters, after 30 episodes."""
    missed, kernels = (
        {"worth": 0, "change": 0, "rate": 0, "rush": 0},
        ladder().model.mdp(**TRUTH).kernels,
    )
    for seed in range(RUNS):
        answer = answered(30, seed, DELTA)
        if control:
            answer = replace(answer, weigher=Narrow(ladder(), ladder().model.known, DELTA))
        own = worth_in(answer, answer.policy.actions, kernels)
        today = worth_in(answer, answer.today, kernels)
        found = {
            "worth": (own, answer.worth),
            "change": (own - today, answer.compared_with(answer.today)),
        }
        found |= {
            name: (TRUTH[name], parameter.interval)
            for name, parameter in answer.weigher.parameters(answer.state, 1).items()
        }
        for name, (true, each) in found.items():
            missed[name] += not each[1] <= true <= each[2]
    for name, misses in missed.items():
        p = binomtest(misses, RUNS, DELTA, alternative="greater").pvalue
        assert (p < 1e-6) if control else (p > 0.01), (name, misses)


def lists(*rates: float) -> orl.Ladder:
    return orl.Ladder([ladder().model.family({"rate": rates})], names=["steady"])


def test_a_richer_class_is_asked_for_only_where_finer_values_do_not_fit() -> None:
    mdp = ladder().model.mdp(rate=0.37)
    log, known = log_of(mdp, 2000), mdp.known
    blend, alone = (orl.select(log, lists(*rates), known) for rates in ((0.2, 0.3, 0.5), (0.5,)))
    assert (blend.misspecified, alone.misspecified) == (True, True)
    assert not orl.select(log, ladder().only(1)).misspecified
    assert "Blends of the 'steady' models fit" in str(blend)
    for answer in (blend, alone):
        assert "richer class" not in str(answer)
        assert "finer values" in str(answer)
        assert (math.isnan(answer.interval[0]), math.isfinite(answer.value)) == (True, True)
    poor = orl.select(log_of(ladder().model.mdp(rate=0.2, rush=0.3), 500), ladder().only(1))
    assert poor.misspecified
    assert "add a richer class" in str(poor)


@pytest.mark.parametrize("strange", [False, True])
def test_the_pair_that_misfits_comes_first(strange: bool) -> None:
    """A planted pair, where sales are rarer; or where all is stolen, which no model allows."""

    def planted(stock: int, order: int, *, rate: float) -> Rows:
        if (stock, order) == (3, 1) and strange:
            return [(1.0, 0, -1.3, False)]
        return shop(stock, order, rate=rate - 0.3 * ((stock, order) == (3, 1)))

    mdp = orl.Model(
        planted, start=2, actions=[0, 1], horizon=6, parameters={"rate": (0.3, 0.6)}
    ).mdp(rate=0.4)
    log = log_of(mdp, 1500)
    for answer in (
        orl.select(log, ladder().only(1)),
        orl.select(log, lists(0.1, 0.4), ladder().model.known),
    ):
        first = answer.misfits[0]
        assert answer.misspecified
        assert (first["state"], first["action"]) == (3, 1)
        assert strange == (first["predicted"] == 0.0) == ("allow what happened" in str(answer))
        assert "It misfits in state 3, action 1" in str(answer)
        (kernel,) = answer._best.kernels
        assert 0.55 < kernel.matrix[0].max() < 0.65  # rate .4: the nearest, whatever is impossible


def test_a_policy_table_joins_equal_rows_and_leaves_out_what_is_not_reached(tmp_path: Path) -> None:
    policy, known = answered(300).policy, ladder().model.known
    shown = [tuple(row.values())[1:] for row in policy.rows]
    assert len(shown) == len(set(shown))
    here, reached = {2}, set[int]()
    for h in range(6):
        reached |= here
        here = {row[1] for stock in here for row in shop(stock, policy(stock, h), rate=0.3)}
    comes_to = set(np.flatnonzero(policy.reached.any(axis=0)))
    assert comes_to == {known.state_number(stock) for stock in reached}
    policy.to_csv(tmp_path / "policy.csv")
    policy.to_json(tmp_path / "policy.json")
    rows = json.loads((tmp_path / "policy.json").read_text())
    spread = {}
    for row in rows:
        assert row["order"] == policy(row["stock"], row["first_step"] - 1)
        for step in range(row["first_step"], row["last_step"] + 1):
            spread[row["stock"], step] = row["order"]
    assert len(rows) < len(spread)
    possible = np.argwhere(policy.possible)
    assert {(h + 1, known.state_name(s)) for h, s in possible} <= {(h, s) for s, h in spread}
    for h, s in possible:
        assert spread[known.state_name(s), h + 1] == policy(known.state_name(s), h)
    for step in (-1, 6):
        with pytest.raises(ParameterError, match="step"):
            policy(2, step)
    with (tmp_path / "policy.csv").open() as file:
        written = [{name: int(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    assert written == rows
    mdp = ladder().model.mdp(**TRUTH)
    assert mdp.value(policy) == mdp.value(policy.actions)
    still = Policy(
        np.zeros((6, known.states), int), known, np.tile(np.arange(known.states) < 3, (6, 1))
    )
    assert still.rows == [
        {"state": describe_states([known.state_name(s) for s in (0, 1, 2)]), "action": "0"}
    ]


def test_states_of_policies_are_in_order_and_parts_have_columns(tmp_path: Path) -> None:
    names = Names(((4, 0), (3, 1), (2, 1), (4, 1)), ("wait",))
    known = replace(orl.Known.of_sizes(states=4, actions=1, horizon=2), names=names)
    policy = Policy(np.zeros((2, 4), int), known)
    assert policy.rows == [{"state": "(2 to 3, 1); (4, 0 to 1)", "action": "wait"}]
    policy.to_csv(tmp_path / "policy.csv")
    lines = (tmp_path / "policy.csv").read_text().splitlines()
    assert lines[0] == "first_step,last_step,state_0,state_1,action"
    assert lines[1:3] == ["1,2,2,1,wait", "1,2,3,1,wait"]


@cache
def timed() -> Answer:
    """Return the answer about a model with the time in its state, and a rule that never changes."""

    def clock(place: tuple[int, int], push: int, *, luck: float) -> Rows:
        time, at = place
        yield luck, (time + 1, min(at + push, 2)), float(at == 2), time == 3
        yield 1.0 - luck, (time + 1, at), float(at == 2), time == 3

    model = orl.Model(
        clock, start=(0, 0), actions=[0, 1], horizon=4, parameters={"luck": (0.2, 0.9)}
    )
    found: Answer = orl.select(log_of(model.mdp(luck=0.6), 100), model.ladder({"any": ["luck"]}))
    return found


def test_time_in_the_state_is_no_stretch_and_impossible_pairs_never_appear() -> None:
    policy = timed().policy
    assert len(policy.stretches) == 1
    rows = policy.to_rows()
    assert all(row["first_step"] == row["last_step"] == row["state_0"] + 1 for row in rows)
    assert len(rows) == len({(row["state_0"], row["state_1"]) for row in rows})


def test_policies_are_said_by_the_names_that_are_known() -> None:
    """Of the arguments of a model; else of the columns of a log; else of neither."""
    by_arguments = answered(300).policy
    assert by_arguments.brief.startswith("order 1 when stock is")
    assert "otherwise order 0" in by_arguments.brief
    columns = {"state": "pieces", "action": "ordered"}
    rows = log_of(ladder().model.mdp(**TRUTH), 300)
    renamed = {columns.get(name, name): cells for name, cells in rows.items()}
    del renamed["next_state"]
    known = ladder().model.known
    chances = lists(0.3, 0.4)
    answer = orl.select(orl.read_log(rows), chances, known)
    assert "action 1 in state" in answer.policy.brief or "action 0" in answer.policy.brief
    answer = orl.select(orl.read_log(renamed, columns), chances, known)
    assert "ordered 1 when pieces is" in answer.policy.brief or "always" in answer.policy.brief


def test_policies_of_any_form_are_compared_and_refused_by_name() -> None:
    mdp, table, chosen = (
        cases.SOME_ALLOWED.mdp,
        {"low": "wait", "middle": "go", "high": "wait"},
        np.array([0, 1, 0]),
    )
    answer = orl.select(log_of(mdp, 50), orl.Ladder([orl.FiniteFamily([mdp])]), mdp.known)
    for same in (
        table.__getitem__,
        chosen,
        np.tile(chosen, (4, 1)),
        np.tile(np.eye(2)[chosen], (4, 1, 1)),
    ):
        assert answer.compared_with(same) == pytest.approx(answer.compared_with(table))
    assert answer.compared_with(answer.policy) == Interval(0.0, 0.0, 0.0)
    wrong: dict[str, Any] = {
        "'wait' in state 'middle'": {**table, "middle": "wait"},
        "'go' in state 'high', step 0": np.tile([0, 1, 1], (4, 1)),
        "'wait' in state 'middle', step 0": np.full((4, 3, 2), 0.5),
        "no action in state 'middle'": {"low": "wait"},
        "'hihg'": {**table, "hihg": "go"},
        "'run'": lambda state: "run",
        "int64 from 2 to 2": np.full((4, 3), 2),
        r"shape \(3, 4\)": np.zeros((3, 4), int),
        "sum to 1": np.zeros((4, 3, 2)),
    }
    for message, policy in wrong.items():
        with pytest.raises(InvalidInput, match=message):
            answer.compared_with(policy)


def test_without_rewards_or_a_list_there_is_a_model_and_no_worth(tmp_path: Path) -> None:
    log = simulate_log(CASE.mdp, episodes=300)
    for answer in (
        orl.select(log, CASE.ladder),
        orl.select(log, cases.nested(CASE), CASE.mdp.known),
    ):
        assert answer.model == answer.ladder.names[answer.chosen - 1]
        assert "earns" not in str(answer)
        assert "value" not in answer.as_data()
        assert "What it is worth" not in answer.page(tmp_path / "page.html").read_text()
        for ask in ("value", "interval", "policy"):
            with pytest.raises(OccamRLError, match="no worth and no policy"):
                getattr(answer, ask)


def test_runs_of_arl_gen_and_occam_answer(tmp_path: Path) -> None:
    for agent in (
        orl.Occam(ladder=CASE.ladder),
        orl.ARLGen(ladder=CASE.ladder),
        orl.ARLGen(ladder=cases.nested(CASE)),
    ):
        result = orl.run(agent, CASE.mdp, episodes=400)
        answer = result.answer
        assert (answer.chosen, answer.today) == (result.verdict["chosen"], None)
        assert answer.sentences[0] == result.verdict.sentences[0]
        if answer.valued:
            true = value(CASE.kernels[2], answer.policy.actions)
            assert answer.interval[0] - 1e-9 <= true <= answer.interval[1] + 1e-9
        assert answer.page(tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("pieces", [[300], [7, 50, 100, 143]])
@pytest.mark.parametrize("real", [False, True])
def test_the_evidence_of_a_run_crosses_the_threshold_when_a_class_is_ruled_out(
    pieces: list[int], real: bool
) -> None:
    agent, mdp = orl.Occam(ladder=CASE.ladder), CASE.mdp
    if real:
        agent, mdp = orl.Occam(ladder=ladder(), acting="fit"), ladder().model.mdp(**TRUTH)
    result = None
    for piece in pieces:
        result = orl.run(agent, mdp, episodes=piece, continue_from=result)
    assert result is not None
    answer = result.answer
    episodes, against = np.array(answer.history)[:, 0], np.array(answer.history)[:, 1:]
    assert answer.chosen > 1
    assert np.allclose(against[-1], answer.judgement.against)
    assert (np.diff(episodes) > 0).all()
    assert episodes[-1] == 300
    for m in range(1, answer.chosen):
        when = answer.rejected_after(m)
        assert when in episodes
        # it may have been alive again before, not since
        assert (against[episodes >= when, m - 1] > answer.threshold).all()
    assert len(pieces) == 1 or answer.history == orl.run(agent, mdp, episodes=300).answer.history


def test_a_parameter_at_its_bound_is_told_and_one_model_is_the_only_one() -> None:
    def coin(state: int, action: int, *, p: float) -> Rows:
        yield p, 1 - state, 1.0
        yield 1.0 - p, state, 0.0

    wide, narrow = (
        orl.Model(coin, start=0, actions=[0, 1], horizon=4, parameters={"p": ends})
        for ends in ((0.1, 0.9), (0.1, 0.6))
    )
    log = log_of(wide.mdp(p=0.65), 30)
    found = orl.select(log, narrow.ladder({"any": ["p"]}))
    assert found.at_bounds == ["p"]
    assert "The best p is at the bound that you gave it, 0.6." in found.sentences
    assert "the only model" in str(found)
    assert "needed" not in str(found)
    assert not orl.select(log, wide.ladder({"any": ["p"]})).at_bounds


def test_what_is_said_of_a_class_depends_on_what_the_data_rule_out() -> None:
    """Nothing seen, little, a steady shop seen often enough, and one that is not steady."""
    nothing = orl.Agent(orl.Occam(ladder=ladder())).answer
    steady = orl.select(log_of(ladder().model.mdp(rate=0.3), 400), ladder())
    assert [each.status for each in (nothing, answered(1), steady)] == [
        "not enough data",
        "not enough data",
        "enough so far",
    ]
    assert steady.looked is not None
    assert steady.looked >= 0.5
    larger = {**ladder_of_three().model.box}
    assert set(larger) == {"rate", "rush", "theft"}
    found = orl.select(log_of(ladder().model.mdp(**TRUTH), 300), ladder_of_three())
    assert found.status == "at least"
    assert "At least 'rushes' is needed" in str(found)
    for answer in (nothing, answered(1)):
        assert "needed" not in str(answer)
        assert "use it" not in str(answer)


def ladder_of_three() -> ParametricLadder:
    """Return a ladder whose third class is not needed."""

    def stolen(
        stock: int, order: int, *, rate: float, rush: float = 0.0, theft: float = 0.0
    ) -> Rows:
        for chance, after, reward, over in shop(stock, order, rate=rate, rush=rush):
            yield (1 - theft) * chance, after, reward, over
            yield theft * chance, max(after - 1, 0), reward, over

    bounds = {"rate": (0.1, 0.6), "rush": (0.0, 0.3), "theft": (0.0, 0.5)}
    model = orl.Model(stolen, start=2, actions=[0, 1], horizon=6, unit="EUR", parameters=bounds)
    free = list(bounds)
    return model.ladder({"steady": free[:1], "rushes": free[:2], "thefts": free})


def test_a_policy_is_urged_only_where_its_gain_is_sure() -> None:
    for answer in (answered(1), answered(5), answered(300)):
        assert answer.gain is not None
        assert ("use it" in str(answer)) == (answer.gain.low > 0.0)
    assert "use it" in str(answered(300))
    again = orl.select(log_of(ladder().model.mdp(**TRUTH), 300), ladder())
    assert again.gain == answered(300).gain


def test_that_no_model_fits_is_doubted_where_models_are_estimates(tmp_path: Path) -> None:
    alone = CASE.ladder.families[0]  # without the truth
    for draws in (0, 1_000):
        agent = orl.Occam(
            ladder=orl.Ladder.of_levels(alone, np.zeros(alone.size, int), draws=draws)
        )
        orl.run(agent, CASE.mdp, episodes=2_000).save(tmp_path / "run.npz")
        result = orl.Result.load(tmp_path / "run.npz")
        assert result.verdict["misspecified"]
        for told in (result.verdict, result.answer):
            assert ("1,000 draws" in str(told)) == bool(draws)


def test_amounts_have_three_digits_that_count_and_no_exponent() -> None:
    numbers = (0.0, 3.14159, -0.00012, 999.96, 1234.5, 98765.4, -1e7 / 3)
    assert [format_number(each) for each in numbers] == [
        "0",
        "3.14",
        "-0.00012",
        "1,000",
        "1,230",
        "98,800",
        "-3,330,000",
    ]


@given(st.floats(-1e9, 1e9), st.floats(1e-4, 1e9), st.floats(0.0, 1.0))
def test_ranges_are_shown_to_a_hundredth_of_their_width(
    low: float, width: float, at: float
) -> None:
    interval = Interval(low + at * width, low, low + width)
    text = format_range(interval)
    if interval.high - interval.low <= 1e-9 * max(abs(interval.low), abs(interval.high)):
        return
    assert "e" not in text
    shown = [
        float(number)
        for number in text.replace(",", "").strip(")").replace("(", "to ").split("to ")
    ]
    for number, true in zip(shown, interval, strict=True):
        assert abs(number - true) <= 0.01 * width + 1e-9 * abs(true)

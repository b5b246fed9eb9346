"""Models whose chances depend on the step: each is the model with the step in its state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

import occamrl as orl
from occamrl.errors import ParameterError, ProbabilityError
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.logs.log import simulate_log
from occamrl.logs.table import LogError

HORIZON = 4
LONGEST = 2  # queue
BOUNDS = {"base": (0.1, 0.5), "morning": (-0.1, 0.3)}
CLASSES = {"steady": ["base"], "daily": ["base", "morning"]}
Outcome = tuple[float, Any, float, bool]


def centre(queue: int, staff: int, *, step: int, base: float, morning: float = 0.0) -> Any:
    """A call centre that is busier in the first half of a day."""
    arrival = base + morning * (step <= HORIZON // 2)
    left = max(queue - staff, 0)
    yield 1.0 - arrival, left, -1.5 * staff - queue, False
    yield arrival, min(left + 1, LONGEST), -1.5 * staff - queue, False


def centre_with_clock(
    place: tuple[int, int], staff: int, *, base: float, morning: float = 0.0
) -> Iterator[Outcome]:
    """The same, the step in the state; an episode ends after the last one."""
    queue, step = place
    for chance, following, reward, _ in centre(queue, staff, step=step, base=base, morning=morning):
        yield chance, (following, step + 1), reward, step == HORIZON


def by_step(**options: Any) -> orl.Model:
    settings: dict[str, Any] = {"start": {0: 0.5, 2: 0.5}, "actions": [0, 1], "parameters": BOUNDS}
    return orl.Model(centre, **{"horizon": HORIZON, **settings, **options})


def in_state() -> orl.Model:
    return orl.Model(
        centre_with_clock,
        start={(0, 1): 0.5, (2, 1): 0.5},
        actions=[0, 1],
        horizon=HORIZON,
        parameters=BOUNDS,
    )


def table(episodes: int, seed: int, *, clock: bool, **parameters: float) -> dict[str, list[Any]]:
    """Return a log of random actions in the system, with the step in its states or without."""
    truth = by_step().mdp(**parameters)
    log = simulate_log(truth, episodes=episodes, seed=seed).columns()
    names = truth.known.names
    assert names is not None
    step = np.tile(np.arange(1, HORIZON + 1), episodes)
    columns: dict[str, list[Any]] = {"episode": log["episode"].tolist(), "action": []}
    columns["action"] = [names.actions[a] for a in log["action"]]
    for role, later in (("state", 0), ("next_state", 1)):
        queue = [names.states[s] for s in log[role]]
        columns[role] = queue
        if clock:
            columns[role] = list(zip(queue, (step + later).tolist(), strict=True))
    return columns


CLOCKED = {
    "state": ["state queue", "state step"],
    "next_state": ["next_state queue", "next_state step"],
    "terminated": "over",
}


def with_clock(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return a table whose states are in two columns, and with the ends of episodes."""
    for role in ("state", "next_state"):
        queue, step = zip(*rows.pop(role), strict=True)
        rows[f"{role} queue"] = list(queue)
        rows[f"{role} step"] = list(step)
    rows["over"] = [step == HORIZON + 1 for step in rows["next_state step"]]
    return rows


def answers(episodes: int, seed: int, **parameters: float) -> tuple[Any, Any]:
    """Return what a log says of the model by steps, and of the one with the step in its state."""
    one = orl.select(
        orl.read_log(table(episodes, seed, clock=False, **parameters)), by_step().ladder(CLASSES)
    )
    rows = with_clock(table(episodes, seed, clock=True, **parameters))
    two = orl.select(orl.read_log(rows, CLOCKED), in_state().ladder(CLASSES))
    return one, two


def test_a_row_of_the_model_is_a_pair_of_the_model_with_the_step_in_its_state() -> None:
    one = by_step()
    two = in_state()
    places: list[Any] = [
        (one.states[s], int(h) + 1) for (s, _), h in zip(one.pairs, one.layer, strict=True)
    ]
    theirs = [two.states[s] for s, _ in two.pairs]
    assert sorted(places) == sorted(theirs)
    assert one.reward.size == two.reward.size
    point = {"base": 0.31, "morning": 0.17}
    assert sorted(one.probability(point)) == pytest.approx(sorted(two.probability(point)))


@pytest.mark.parametrize("morning", [0.0, 0.25])
def test_value_and_policy_are_those_of_the_model_with_the_step_in_its_state(morning: float) -> None:
    one = by_step().mdp(base=0.3, morning=morning)
    two = in_state().mdp(base=0.3, morning=morning)
    assert one.optimal_value == pytest.approx(two.optimal_value, abs=1e-12)
    ours, theirs = one.known.names, two.known.names
    assert ours is not None
    assert theirs is not None
    for s, place in enumerate(theirs.states[:-1]):
        if theirs.absorbing[s]:
            continue
        queue, step = cast(tuple[int, int], place)
        action = one.optimal_policy[step - 1, ours.states.index(queue)]
        assert action == two.optimal_policy[step - 1, s]


@pytest.mark.parametrize(("episodes", "morning"), [(40, 0.3)])
def test_a_log_says_of_both_models_the_same(episodes: int, morning: float) -> None:
    one, two = answers(episodes, seed=episodes, base=0.2, morning=morning)
    assert one.model == two.model
    assert one.status == two.status
    assert one.judgement.against == pytest.approx(two.judgement.against, abs=1e-9)
    assert one.value == pytest.approx(two.value, abs=1e-9)
    assert one.interval == pytest.approx(two.interval, abs=1e-6)
    for name, value in one.parameters.items():
        assert tuple(value) == pytest.approx(tuple(two.parameters[name]), abs=1e-6)


def test_the_likelihood_is_the_sum_over_steps_by_hand() -> None:
    model = by_step()
    evidence = ParametricEvidence(model.ladder(CLASSES), model.known, 0.05)
    state = evidence.begin()
    log = orl.read_log(table(7, 3, clock=False, base=0.3, morning=0.2))
    counts: dict[tuple[int, int, int, int], int] = {}
    for flow in log.flows(model.known, model.layout):
        evidence.add(state, flow)
        for h, s, a, following, _, count in zip(*flow.columns, strict=True):
            key = (int(h), int(s), int(a), int(following))
            counts[key] = counts.get(key, 0) + int(count)

    def likelihood(base: float, morning: float) -> float:
        total = 0.0
        for (h, s, a, following), count in counts.items():
            chance = 0.0
            law = centre(model.states[s], model.actions[a], step=h + 1, base=base, morning=morning)
            for share, state_after, *_ in law:
                chance += share * (state_after == model.states[following])
            total += count * math.log(chance)
        return total

    data = evidence.counts_of(state)
    box = np.array([[0.2, 0.1], [0.45, -0.05]])
    low, high = np.array(list(BOUNDS.values())).T
    ours = [evidence.log_likelihood(data, (point - low) / (high - low)) for point in box]
    theirs = [likelihood(*point) for point in box.tolist()]
    assert ours[0] - ours[1] == pytest.approx(theirs[0] - theirs[1], abs=1e-9)


def test_probabilities_in_an_array_get_the_step_of_each_pair() -> None:
    def at_once(
        pairs: list[tuple[int, int]], *, step: Any, base: float, morning: float = 0.0
    ) -> Any:
        assert len(step) == len(pairs)
        arrival = base + morning * (np.asarray(step) <= HORIZON // 2)
        return np.stack([1.0 - arrival, arrival], axis=1).ravel()

    point = {"base": 0.31, "morning": 0.17}
    quick = by_step(probabilities=at_once)
    assert quick.probability(point) == pytest.approx(by_step().probability(point))
    with pytest.raises(ProbabilityError, match="step"):
        by_step(probabilities=lambda pairs, *, step, base, morning=0.0: [0.5] * 2 * len(pairs))
    with pytest.raises(ParameterError, match="step"):
        by_step(probabilities=lambda pairs, base, morning: [0.5] * 2 * len(pairs))


def test_a_default_for_the_step_is_refused_as_it_may_be_meant_as_a_constant() -> None:
    def walk(state: int, action: int, *, step: float = 0.5) -> Any:
        yield step, state, 0.0, False
        yield 1 - step, 1 - state, 0.0, False

    with pytest.raises(ParameterError, match="step without a default"):
        orl.Model(walk, start=0, actions=[0], horizon=2)
    model = orl.Model(walk, start=0, actions=[0], horizon=2, parameters={"step": (0.1, 0.9)})
    assert not model.by_step


def test_states_grow_with_the_step_without_a_bound() -> None:
    def count(total: int, action: int, *, step: int) -> Any:
        yield 0.5, total + 1, float(step), False
        yield 0.5, total, 0.0, False

    model = orl.Model(count, start=0, actions=["on"], horizon=30)
    assert len(model.states) == 30 + 2  # 0 to 30, and elsewhere
    expected = 0.5 * sum(range(1, 31))
    assert model.mdp().optimal_value == pytest.approx(expected)


def test_days_that_follow_each_other_begin_where_the_last_one_ended() -> None:
    model = by_step(start=0, continuing=True)
    first = {model.states[s] for (s, _), h in zip(model.pairs, model.layer, strict=True) if h == 0}
    assert first == set(range(LONGEST + 1))
    agent = orl.Occam(ladder=model.ladder(CLASSES))
    result = orl.run(agent, model.mdp(base=0.2, morning=0.3), episodes=12)
    assert result.answer.model in CLASSES


def test_an_agent_learns_what_depends_on_the_step() -> None:
    model = by_step()
    ladder = model.ladder(CLASSES)
    truth = model.mdp(base=0.1, morning=0.3)
    assert ladder.class_of(truth) == 2
    assert ladder.class_of(model.mdp(base=0.3)) == 1
    alike = model.mdp(base=0.1).optimal_policy
    lost = truth.optimal_value - truth.value(alike)
    assert lost > 0.05
    result = orl.run(orl.Occam(ladder=ladder), truth, episodes=500)
    assert result.answer.model == "daily"
    assert result.total_regret < 0.5 * 500 * lost


# Logs: of which step each row is ------------------------------------------------------------------


def counts_of(rows: Any, **reading: Any) -> dict[tuple[int, int, int], int]:
    """Return how often a log has been at each step, from 1, and state, and done what."""
    model = by_step()
    counts: dict[tuple[int, int, int], int] = {}
    for flow in orl.read_log(rows, **reading).flows(model.known, model.layout):
        for h, s, a, _, _, count in zip(*flow.columns, strict=True):
            key = (int(h) + 1, cast(int, model.states[s]), cast(int, model.actions[a]))
            counts[key] = counts.get(key, 0) + int(count)
    return counts


def with_steps(rows: dict[str, list[Any]], first: int = 1) -> dict[str, list[Any]]:
    episodes = len(rows["action"]) // HORIZON
    return {**rows, "step": list(range(first, first + HORIZON)) * episodes}


def without(rows: dict[str, list[Any]], lost: set[int]) -> dict[str, list[Any]]:
    """Return a table without some rows."""
    kept = [i for i in range(len(rows["action"])) if i not in lost]
    return {name: [column[i] for i in kept] for name, column in rows.items()}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("filled", [False, True])
def test_rows_after_a_gap_keep_their_step(first: int, filled: bool) -> None:
    whole = with_steps(table(30, 0, clock=False, base=0.3, morning=0.2), first)
    draw = np.random.default_rng(first)
    lost = set(map(int, draw.choice(30 * HORIZON, 25, replace=False)))
    rows = without(whole, lost)
    expected: dict[tuple[int, int, int], int] = {}
    last = len(whole["action"]) - 1
    for i in range(last + 1):
        # without a column for it, the next state is that of the next row, if this is there
        followed = i < last and i + 1 not in lost and (i + 1) % HORIZON > 0
        if i in lost or (filled and not followed):
            continue
        key = (whole["step"][i] - first + 1, whole["state"][i], whole["action"][i])
        expected[key] = expected.get(key, 0) + 1
    if filled:
        del rows["next_state"]
    assert counts_of(rows) == expected


def test_without_a_column_step_the_answer_says_what_was_taken_for_it() -> None:
    rows = table(30, 0, clock=False, base=0.3, morning=0.2)
    ladder = by_step().ladder(CLASSES)
    times = {**rows, "hour": list(range(8, 8 + HORIZON)) * 30}
    kinds = {}
    for name, log in (
        ("rows", orl.read_log(rows)),
        ("clock", orl.read_log(times, {"time": "hour"})),
        ("steps", orl.read_log(with_steps(rows))),
    ):
        kinds[name] = {
            note.kind: note.guarantee
            for note in orl.select(log, ladder).notes
            if note.kind in ("steps_counted", "first_step")
        }
    assert kinds == {
        "rows": {"steps_counted": "conditional"},
        "clock": {"first_step": "conditional"},
        "steps": {},
    }
    steady = orl.Model(
        lambda state, action, *, base: centre(state, action, step=1, base=base),
        start={0: 0.5, 2: 0.5},
        actions=[0, 1],
        horizon=HORIZON,
        parameters={"base": (0.1, 0.5)},
    )
    notes = orl.select(orl.read_log(rows), steady.ladder({"one": ["base"]})).notes
    assert "steps_counted" not in {note.kind for note in notes}


def test_a_clock_that_does_not_tell_the_step_is_refused() -> None:
    ladder = by_step().ladder(CLASSES)
    rows = table(30, 0, clock=False, base=0.3, morning=0.2)
    rows["hour"] = list(range(8, 8 + HORIZON)) * 30
    # the first row of one day is lost: its second one is not step 1
    late = without(rows, {4 * HORIZON})
    with pytest.raises(LogError, match="begin at the same step"):
        orl.select(orl.read_log(late, {"time": "hour"}), ladder)
    late["step"] = [hour - 7 for hour in late["hour"]]
    assert orl.select(orl.read_log(late), ladder).notes is not None
    # gaps that are taken for no time number the rows
    del rows["next_state"]
    gap = without(rows, {4 * HORIZON + 1})
    with pytest.raises(LogError, match="gaps"):
        orl.select(orl.read_log(gap, {"time": "hour"}, gaps="join"), ladder)


def endless(sites: dict[str, int], days: int) -> dict[str, list[Any]]:
    """Return the rows of sites that go on, each from an hour on, without calls."""
    rows: dict[str, list[Any]] = {"site": [], "hour": [], "state": [], "action": []}
    for site, first in sites.items():
        for hour in range(first, first + days * HORIZON):
            rows["site"].append(site)
            rows["hour"].append(hour)
            rows["state"].append(0)
            rows["action"].append(0)
    rows["next_state"] = rows["state"]
    return rows


def test_pieces_of_a_day_are_cut_from_sites_that_begin_at_one_hour_of_it_only() -> None:
    ladder = by_step(start=0, continuing=True).ladder(CLASSES)
    columns = {"episode": "site", "time": "hour"}
    alike = orl.read_log(endless({"A": 0, "B": 2 * HORIZON}, 5), columns, split=True)
    assert orl.select(alike, ladder).log is not None
    apart = orl.read_log(endless({"A": 0, "B": HORIZON + 1}, 5), columns, split=True)
    with pytest.raises(LogError, match="1 step apart"):
        orl.select(apart, ladder)


def test_a_state_at_a_step_at_which_no_model_comes_there_is_refused_or_left_out() -> None:
    ladder = by_step(start=0).ladder(CLASSES)
    rows = with_steps(table(30, 0, clock=False, base=0.3, morning=0.2))
    with pytest.raises(LogError, match=r"at step 1: one of \[0\]"):
        orl.select(orl.read_log(rows), ladder)
    answer = orl.select(orl.read_log(rows, unlisted="drop"), ladder)
    (note,) = (note for note in answer.notes if note.kind == "unlisted")
    impossible = 0
    for episode in range(30):
        reachable = {0}
        for i in range(HORIZON * episode, HORIZON * (episode + 1)):
            impossible += rows["state"][i] not in reachable
            reachable |= {min(queue + 1, LONGEST) for queue in reachable}
    assert note.affected == impossible


# Agents -------------------------------------------------------------------------------------------


def test_an_agent_that_is_driven_acts_and_learns_by_step() -> None:
    model = by_step(start=0)
    agent = orl.Agent(orl.Occam(ladder=model.ladder(CLASSES)), seed=0)
    with pytest.raises(ParameterError, match="at step 1"):
        agent.act(2)
    agent.skip()
    with pytest.raises(ParameterError, match="at step 2"):
        agent.act(2)
    action = agent.act(1)
    with pytest.raises(ParameterError, match="next_state"):
        agent.observe(1, action, None, 2 * action)
    agent.observe(1, action, None, 1 - action)
    counted = agent.answer.state["count"]
    evidence = ParametricEvidence(model.ladder(CLASSES), model.known, 0.05)
    (seen,) = np.flatnonzero(counted)
    row = evidence.row[seen]
    assert (int(model.layer[row]) + 1, model.states[model.pairs[row][0]]) == (2, 1)


# Lists --------------------------------------------------------------------------------------------

LISTED = [(0.2, 0.0), (0.3, 0.0), (0.2, 0.2), (0.3, -0.1), (0.2, 0.3)]


def lists(model: orl.Model) -> orl.Ladder:
    """Return two classes: the step makes no difference, or it does."""
    members = [model.mdp(base=base, morning=morning) for base, morning in LISTED]
    return orl.Ladder([orl.FiniteFamily(members[:2]), orl.FiniteFamily(members)])


@pytest.mark.parametrize(("episodes", "morning"), [(3, 0.0), (60, 0.2)])
def test_a_log_says_of_lists_what_it_says_with_the_step_in_the_state(
    episodes: int, morning: float
) -> None:
    one, two = by_step(), in_state()
    rows = table(episodes, 1, clock=False, base=0.2, morning=morning)
    ours = orl.select(orl.read_log(rows), lists(one), one.known)
    rows = with_clock(table(episodes, 1, clock=True, base=0.2, morning=morning))
    theirs = orl.select(orl.read_log(rows, CLOCKED), lists(two), two.known)
    assert ours.model == theirs.model
    assert ours.judgement.alive == theirs.judgement.alive
    assert ours.judgement.against == pytest.approx(theirs.judgement.against, abs=1e-9)
    assert ours.value == pytest.approx(theirs.value, abs=1e-9)
    assert ours.interval == pytest.approx(theirs.interval, abs=1e-9)
    assert tuple(ours.gain) == pytest.approx(tuple(theirs.gain), abs=1e-9)


def test_worths_within_a_tolerance_are_those_with_the_step_in_the_state() -> None:
    one, two = by_step(), in_state()
    rows = table(60, 1, clock=False, base=0.2, morning=0.2)
    clocked = with_clock(table(60, 1, clock=True, base=0.2, morning=0.2))
    for of in (lists, lambda model: model.ladder(CLASSES)):
        ours = orl.select(orl.read_log(rows), of(one), one.known)
        theirs = orl.select(orl.read_log(clocked, CLOCKED), of(two), two.known)
        low, high = tuple(ours.range_at(0.02))[-2:]
        assert (low, high) == pytest.approx(tuple(theirs.range_at(0.02))[-2:], abs=2e-3)
        assert low < ours.interval[0] < ours.interval[1] < high


def test_a_list_without_the_step_stands_below_one_with_it() -> None:
    model = by_step()
    steady = orl.Model(
        lambda state, action, *, base: centre(state, action, step=1, base=base),
        start={0: 0.5, 2: 0.5},
        actions=[0, 1],
        horizon=HORIZON,
        parameters={"base": (0.1, 0.5)},
    )
    members = [steady.mdp(base=base) for base in (0.2, 0.3)]
    ladder = orl.Ladder(
        [
            orl.FiniteFamily(members),
            orl.FiniteFamily([*members, model.mdp(base=0.2, morning=0.2)]),
        ]
    )
    assert ladder.sizes == [2, 3]
    assert ladder.class_of(steady.mdp(base=0.3)) == 1
    truth = model.mdp(base=0.2, morning=0.2)
    assert ladder.class_of(truth) == 2
    assert ladder.class_of(model.mdp(base=0.2, morning=0.1)) is None
    result = orl.run(orl.Occam(ladder=ladder), truth, episodes=500)
    assert result.answer.status == "decided"
    assert result.answer.model == "F_2"
    with pytest.raises(orl.errors.FeatureError, match="depend on the step"):
        orl.run(orl.ARLGen(ladder=ladder), truth, episodes=2)


def test_values_of_many_members_are_those_of_each() -> None:
    family = lists(by_step()).family
    known = by_step().known
    values = family.first_values(known, np.arange(family.size))
    for member, (base, morning) in enumerate(LISTED):
        single = by_step().mdp(base=base, morning=morning).optimal_values[0]
        assert known.initial is not None
        reached = known.initial > 0.0
        nearest = np.abs(values[:, reached] - single[reached]).max(axis=1)
        assert nearest.min() < 1e-12, member


# Rewards ------------------------------------------------------------------------------------------


def test_rewards_may_depend_on_the_step_and_are_held_against_those_of_it() -> None:
    def paid(queue: int, staff: int, *, step: int) -> Any:
        for chance, following, reward, ended in centre(queue, staff, step=step, base=0.3):
            yield chance, following, reward * step, ended

    def paid_with_clock(place: tuple[int, int], staff: int) -> Any:
        queue, step = place
        for chance, following, reward, _ in paid(queue, staff, step=step):
            yield chance, (following, step + 1), reward, step == HORIZON

    one = orl.Model(paid, start=0, actions=[0, 1], horizon=HORIZON)
    two = orl.Model(paid_with_clock, start=(0, 1), actions=[0, 1], horizon=HORIZON)
    assert one.mdp().optimal_value == pytest.approx(two.mdp().optimal_value, abs=1e-12)
    rows: dict[str, list[Any]] = {"episode": [], "step": [], "state": [], "action": []}
    rows |= {"next_state": [], "reward": []}
    draw = np.random.default_rng(0)
    for episode in range(20):
        queue = 0
        for step in range(1, HORIZON + 1):
            staff = int(draw.integers(2))
            law = list(paid(queue, staff, step=step))
            chosen = law[int(draw.random() > law[0][0])]
            row = (episode, step, queue, staff, chosen[1], chosen[2])
            for name, cell in zip(rows, row, strict=True):
                rows[name].append(cell)
            queue = chosen[1]
    ladder = one.ladder({"one": []})
    answer = orl.select(orl.read_log(rows), ladder)
    assert {note.kind for note in answer.notes} <= {"next_state_filled"}
    assert "steps are told apart" in str(answer)
    of_the_first_step = [pay / step for pay, step in zip(rows["reward"], rows["step"], strict=True)]
    with pytest.raises(LogError, match="contradict"):
        orl.select(orl.read_log({**rows, "reward": of_the_first_step}), ladder)

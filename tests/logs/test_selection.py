"""Selecting from a log: verdicts on made-up logs, and every test of a class row by row from the definitions."""

from __future__ import annotations

import html
import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.optimize import nnls
from scipy.stats import binom
from typer.testing import CliRunner

import occamrl as orl
from occamrl.analysis.supports import supports
from occamrl.cli import app
from occamrl.envs.ladder_file import LadderSpec, ladder_of_problem
from occamrl.logs import select as selecting
from occamrl.logs.log import COLUMNS, Log, LogError, match_rows, simulate_log, write_parquet
from occamrl.logs.select import (
    AT_LEAST,
    DECIDED,
    EVIDENCE,
    NOT_ENOUGH,
    OUTSIDE,
    VALUE,
    MoreData,
    Replay,
    select,
    stretch_end,
    verdict_of,
)
from occamrl.models.finite import FiniteFamily
from occamrl.models.ladder import Ladder
from occamrl.models.linear import AggregationFamily
from occamrl.models.simulators import Simulators
from occamrl.problems.classic import RiverZones
from occamrl.problems.lakes import FrozenLake
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats, Ints

DELTA = 0.2


def small(seed: int = 0) -> tuple[Ladder, FiniteMDP]:
    """A ladder of 1 < 3 < 6 kernels that are not far apart; the truth is the third."""
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(3), size=(3, 2))
    stack = np.array([0.7 * base + 0.3 * rng.dirichlet(np.ones(3), size=(3, 2)) for _ in range(6)])
    mdp = FiniteMDP(transition=stack[2], reward=rng.random((3, 2)), horizon=5, initial_state=[0.5, 0.5, 0.0])
    return Ladder([FiniteFamily(stack[:size]) for size in (1, 3, 6)]), mdp


class Arrays(NamedTuple):
    """A ladder in plain arrays, for compiled loops."""

    values: Floats  # [n, H + 1, S] optimal
    kernels: Floats  # [n, S, A, S]; the truth is the third
    level: Ints  # [n] the first class that holds each, from 0
    prior: Floats  # [n]
    ends: Ints  # of the stretches of episodes


def arrays_of(ladder: Ladder, mdp: FiniteMDP, episodes: int) -> Arrays:
    family = ladder.family
    kernels = np.array([family.kernel(i) for i in range(family.size)])
    ends = [0]
    while ends[-1] < episodes:
        ends.append(min(stretch_end(ends[-1]), episodes))
    return Arrays(family.optimal_values(mdp.known), kernels, ladder.level, ladder.prior, np.array(ends[1:]))


@numba.njit
def plain_replay(path: Any, taken: Any, case: Any, slack: float) -> Any:
    """The replay row by row: losses, the right side of M22 (a share of it), and which kernels were never above it."""
    n = case.prior.size
    loss, alive, bound, first = np.zeros(n), np.ones(n, dtype=np.bool_), np.inf, 0
    for last in case.ends:
        member = -1
        for i in range(n):  # the most optimistic of the smallest class that is not rejected
            left, value = alive[i] and case.level[i] <= case.level[np.argmax(alive)], case.values[:, 0, path[first, 0]]
            if left and (member < 0 or value[i] > value[member]):
                member = i
        if member < 0:
            member = int(np.argmin(loss))
        for k in range(first, last):
            for h in range(taken.shape[1]):
                target = case.values[member, 1 + h % (taken.shape[1] - 1)]  # the last step is seen through V_2
                middle, spread = 0.5 * (target.min() + target.max()), np.ptp(target)  # every state can follow
                if spread > 0.0:
                    y = (target[path[k, h + 1]] - middle) / spread
                    for i in range(n):
                        mean = (case.kernels[i, path[k, h], taken[k, h]] * target).sum()
                        loss[i] += (y - (mean - middle) / spread) ** 2 - y**2
        mixture = -0.5 * np.log((case.prior * np.exp(-2.0 * loss)).sum())
        bound = loss.min() + slack * (mixture + 0.5 * np.log(1.0 / DELTA) - loss.min())
        alive &= loss <= bound
        first = last
    return loss, bound, alive


@numba.njit
def learning_episodes(case: Any, numbers: Any) -> Any:
    """Episodes, drawn with numbers [K, 2 H + 1], of a policy that learns: the sum of next states says what it likes."""
    episodes, horizon = numbers.shape[0], case.values.shape[1] - 1
    path, taken = np.zeros((episodes, horizon + 1), dtype=np.int64), np.zeros((episodes, horizon), dtype=np.int64)
    liking = np.zeros((3, 2))
    for k in range(episodes):
        path[k, 0] = int(numbers[k, -1] < 0.5)
        for h in range(horizon):
            s = path[k, h]
            a = np.argmax(liking[s]) if numbers[k, 2 * h] < 0.8 else np.argmin(liking[s])
            law = np.cumsum(case.kernels[2, s, a])
            taken[k, h], path[k, h + 1] = a, min(np.searchsorted(law, numbers[k, 2 * h + 1], side="right"), 2)
            liking[s, a] += path[k, h + 1] - 1.0
    return path, taken


@numba.njit
def false_rejections(case: Any, numbers: Any, slack: float) -> int:
    """Logs by a policy that learns as it goes on which the class of the truth is rejected."""
    count = 0
    for each in numbers:
        path, taken = learning_episodes(case, each)
        count += not plain_replay(path, taken, case, slack)[2][:3].any()
    return count


def log_of(path: Ints, taken: Ints, mdp: FiniteMDP) -> Log:
    (episodes, horizon), state, action = taken.shape, path[:, :-1].ravel(), taken.ravel()
    columns = {"episode": np.repeat(np.arange(episodes), horizon), "step": np.tile(np.arange(horizon), episodes)}
    columns |= {"state": state, "action": action, "next_state": path[:, 1:].ravel()}
    columns |= dict.fromkeys(("terminated", "truncated"), np.zeros(state.size, dtype=bool))
    return Log.of_columns(columns | {"reward": mdp.known.base_reward[state, action]})


@pytest.mark.parametrize("case", range(3))
def test_losses_are_those_of_a_loop_over_rows(case: int, test_seed: int) -> None:
    ladder, mdp = small(3 * test_seed + case)
    plain = arrays_of(ladder, mdp, 40)
    path, taken = learning_episodes(plain, np.random.default_rng([test_seed, case]).random((40, 11)))
    replay = Replay(LadderSpec(ladder=ladder, known=mdp.known), DELTA, [VALUE])
    replay.take(log_of(path, taken, mdp))
    replay.answer("log")
    found = replay.tests[0]
    loss, bound, alive = plain_replay(path, taken, plain, 1.0)
    assert found.loss == pytest.approx(loss, abs=1e-9)
    assert found.bound == pytest.approx(bound, abs=1e-9)
    assert (found.alive == alive).all()


def test_the_right_class_is_rejected_no_more_often_than_delta(test_seed: int) -> None:
    """Counted with the loop that the test above compares ``select`` with."""
    most = int(binom.isf(1e-5, 400, DELTA))  # right tests pass this but once in 100,000
    ladder, mdp = small(1)
    plain = arrays_of(ladder, mdp, 30)
    numbers = np.random.default_rng(test_seed).random((400, 30, 11))
    assert false_rejections(plain, numbers, 1.0) <= most
    assert false_rejections(plain, numbers, 0.02) > most


@pytest.mark.parametrize(("slip", "rung"), [((0, 0), 1), ((10, 10), 2), ((3, 9), 3)])
def test_a_random_policy_finds_the_rung_and_a_few_episodes_do_not(
    slip: tuple[int, int], rung: int, test_seed: int
) -> None:
    problem = FrozenLake(slip=slip)
    spec = ladder_of_problem(problem)
    log = simulate_log(problem.mdp, episodes=3_000, seed=test_seed)
    late, early = select(log, spec, progress=False), select(log.head(1), spec, progress=False)
    assert (late.chosen, late.verdict) == (rung, DECIDED)
    assert early.verdict in (NOT_ENOUGH, AT_LEAST)
    assert early.more is not None
    assert early.more.half >= 1.0
    if rung == 1:
        assert early.verdict == NOT_ENOUGH
        both = select(log.head(300), spec, progress=False)
        assert (both.evidence, both.verdict) == ("likelihood", DECIDED)
        middle = both.other
        assert middle is not None
        assert middle == select(log.head(300), spec, evidence="value", progress=False)
        assert middle.verdict == NOT_ENOUGH
        assert f"By value: not enough data. {middle.why} Value rows see" in str(both)
        assert middle.more is not None
        assert 300 <= middle.more.all <= 10_000  # 3,000 were enough
    assert f"-> {rung}. {spec.names[rung - 1]}" in str(late)


def test_the_page_has_the_evidence_over_time_against_its_threshold(tmp_path: Path) -> None:
    ladder, mdp = small(1)
    log = simulate_log(mdp, episodes=600, seed=1)
    for kind in EVIDENCE:
        found = select(log, ladder, mdp.known, evidence=kind, progress=False)
        table = np.array(found.history)
        assert found.threshold == pytest.approx(math.log(20.0))
        assert table[-1].tolist() == [600, *(rung.evidence for rung in found.rungs)]
        assert (np.diff(table, axis=0) >= 0.0).all()  # at its highest so far
        for m, rung in enumerate(found.rungs, start=1):
            above = table[:, 0][table[:, m] > found.threshold]
            assert rung.rejected_after == (above[0] if above.size else None)
        read = [row[0] for row in found.at_doublings]
        assert read[0] == 1
        assert read[-1] == 600
        assert all(2 * first <= second for first, second in itertools.pairwise(read[:-1]))
        lines = found.plot(Figure().subplots()).get_lines()
        assert [line.get_label() for line in lines] == ["1. F_1", "2. F_2", "3. F_3", "rejected above"]
        page = found.page(tmp_path / "page.html").read_text()
        assert "data:image/png;base64" in page
        assert html.escape(found.meaning) in page
        assert f"<td>{read[-1]:.0f}</td>" in page


def test_what_more_data_would_settle_is_said_in_the_singular_and_the_plural() -> None:
    one, many = (verdict_of(2, MoreData(n, n, round(n), n), small()[0], "F_2")[1] for n in (1.2, 63.0))
    assert "about 1 more such episode rejects it" in one
    assert "about 63 more such episodes reject it" in many
    assert "1 kernel outside it predicts" in one
    assert "63 kernels outside it predict " in many


def test_transitions_that_no_model_allows_are_a_verdict() -> None:
    ladder, mdp = small()
    stack = np.array([ladder.family.kernel(i) for i in range(6)])
    stack[:, 1, 0, :] = [0.5, 0.5, 0.0]  # from state 1 by action 0 nobody gets to state 2
    narrow = Ladder([FiniteFamily(stack[:3]), FiniteFamily(stack)])
    log = simulate_log(mdp, episodes=50, seed=1)
    bad = np.flatnonzero((log.state == 1) & (log.action == 0) & (log.next_state == 2))[0]
    found = select(log, narrow, mdp.known, progress=False)
    assert found.verdict == OUTSIDE
    assert f"Row {bad} goes from state 1 by action 0 to 2" in found.why


def test_an_end_in_a_state_that_goes_on_is_the_end_of_the_models() -> None:
    gym = pytest.importorskip("gymnasium")
    spec = orl.read_ladder("cliff-walking", horizon=20)
    assert spec.known.states == 49  # the goal is no self-loop in the table: an end was added
    env = gym.make("CliffWalking-v1")
    rows: list[tuple[Any, ...]] = []
    for k, actions in enumerate(([0, *[1] * 11, 2], [0, 1, 2, 1])):  # along the cliff to the goal; over the cliff
        state = env.reset(seed=0)[0]
        for h, action in enumerate(actions):
            after, reward, terminated, truncated, _ = env.step(action)
            rows.append((k, h, state, action, reward, after, terminated, truncated))
            state = after
    log = Log.of_columns(
        {name: np.array(column) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)}
    )
    assert log.terminated[12]
    outcomes = spec.ladder.family.features.attach(spec.known).outcomes
    matched = match_rows(log, spec.known, outcomes, spec.rewards)
    assert (matched.outcome >= 0).all()
    assert outcomes.next_state[matched.outcome[12]] == 48
    assert select(log, spec, progress=False).verdict != OUTSIDE


@pytest.mark.parametrize(("column", "row", "value"), [("action", 2, 7), ("reward", 3, 0.123), ("terminated", 4, True)])
def test_rows_that_contradict_what_is_known_are_named(column: str, row: int, value: Any) -> None:
    ladder, mdp = small()
    columns = simulate_log(mdp, episodes=3, seed=1).columns()
    columns[column][row] = value
    with pytest.raises(LogError) as caught:
        select(Log.of_columns(columns), ladder, mdp.known)
    assert (caught.value.field, caught.value.index) == (column, (row,))


def test_supports_are_read_off_a_log(test_seed: int) -> None:
    rng = np.random.default_rng(6)
    kernels = list(rng.dirichlet(np.full(5, 0.5), size=(4, 5, 2)))
    sims = Simulators(kernels)
    mdp = FiniteMDP(transition=0.6 * kernels[1] + 0.4 * kernels[3], reward=rng.random((5, 2)), horizon=10)
    log = simulate_log(mdp, episodes=2_000, seed=test_seed)
    report = supports(log, sims, known=mdp.known)
    assert [each.members for each in report.sets] == [("2", "4")]


def test_the_command_prints_and_exits_by_verdict(tmp_path: Path) -> None:
    spec = tmp_path / "ladder.toml"
    spec.write_text('problem = "frozen-lake"\n')
    for name, slip, episodes in (("long", (10, 10), 400), ("short", (0, 0), 2)):
        log = simulate_log(FrozenLake(slip=slip).mdp, episodes=episodes, seed=2)
        write_parquet(log, tmp_path / f"{name}.parquet")

    def call(name: str, *options: str) -> Any:
        return CliRunner().invoke(app, ["select", str(tmp_path / name), "--ladder", str(spec), *options])

    found = call("long.parquet", "--json")
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["chosen"] == 2
    assert [rung["size"] for rung in data["rungs"]] == [1, 11, 231]
    short = call("short.parquet")
    assert short.exit_code == 3
    assert "not enough data" in short.stdout
    assert call("no.parquet").exit_code == 2


LEVEL = 0.05
RIVER = RiverZones(states=6, horizon=8, zones=3, left_reward=0.03, seed=4)
ZONES = {m: AggregationFamily(partition=RIVER.partition(m), moves=RIVER.moves) for m in (1, 3)}
LAWS = ((0.1, 0.4, 0.5), (0.0, 0.2, 0.8), (0.2, 0.4, 0.4))  # down, stay, up; the same along the river
LADDER = orl.Ladder([orl.FiniteFamily([ZONES[1].kernel(np.array([1.0, *law])) for law in LAWS]), *ZONES.values()])


def rapids() -> FiniteMDP:
    """No zones: a strong current in every other state."""
    each = AggregationFamily(partition=RIVER.partition(6), moves=RIVER.moves)
    laws = [1.0, 0.1, 0.0, 0.9, 1.0, 0.4, 0.4, 0.2] * 3  # left; right: down, stay, up
    return FiniteMDP(transition=each.kernel(np.array(laws)), reward=RIVER.mdp.known.base_reward, horizon=8)


def right_row(s: int, target: Floats, zones: int) -> tuple[Floats, float, float]:
    """Swimming right in s: the regressor over (zone, move) [3 zones], the middle and the range of the targets."""
    moves = target[RIVER.moves[s, 1]]
    middle, spread = 0.5 * (moves.max() + moves.min()), float(np.ptp(moves))
    x = np.zeros(3 * zones)
    first = 3 * int(RIVER.partition(zones)[s])
    x[first : first + 3] = (moves - middle) / spread if spread else 0.0
    return x, middle, spread


def on_simplices(x: Floats, y: Floats) -> float:
    """The least sum of squares, less sum y^2, over one distribution of moves per zone: by a heavy penalty."""
    zones = x.shape[1] // 3
    heavy = 1e5 * np.kron(np.eye(zones), np.ones(3))
    theta, _ = nnls(np.concatenate([x, heavy]), np.concatenate([y, np.full(zones, 1e5)]), maxiter=10_000)
    return float(((y - x @ theta) ** 2).sum() - (y**2).sum())


def allowed(x: Floats, y: Floats) -> float:
    """M15: ridge loss, less sum y^2, plus (1/4)(logdet(I + X^T X) + 2 log(1/delta))."""
    sigma = np.eye(x.shape[1]) + x.T @ x
    fit = -float((x.T @ y) @ np.linalg.solve(sigma, x.T @ y))
    return fit + 0.25 * (float(np.linalg.slogdet(sigma)[1]) + 2.0 * math.log(1.0 / LEVEL))


def replayed(truth: FiniteMDP, episodes: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The log, the replay of it, and the value functions of its stretches."""
    log = simulate_log(truth, episodes=episodes, seed=1)
    monkeypatch.setattr(selecting, "GROWTH", 0.3)
    replay, seen = Replay(LadderSpec(ladder=LADDER, known=truth.known), LEVEL, [VALUE]), []
    enter, ends = selecting.enter, [0]

    def spy(features: Any, known: Any, stretch: Any, values: Floats, memory: Any) -> None:
        ends.append(replay.tested)
        seen.append((ends[-2], ends[-1], values.copy()))
        enter(features, known, stretch, values, memory)

    monkeypatch.setattr(selecting, "enter", spy)
    replay.take(log)
    replay.answer("log")
    return log, replay.tests[0], seen


@pytest.mark.parametrize(("truth", "episodes", "outside"), [(RIVER.mdp, 1_500, False), (rapids(), 1_500, True)])
def test_statistics_bound_and_misfit_are_those_of_the_definitions(
    truth: FiniteMDP, episodes: int, outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, found, seen = replayed(truth, episodes, monkeypatch)
    kernels = np.array([LADDER.rungs[0].kernel(i) for i in range(3)])
    optimal = LADDER.rungs[0].optimal_values(truth.known)
    columns: dict[str, list[Any]] = {"one": [], "three": [], "pair": [], "z": [], "y": []}
    rejected: list[int | None] = [None] * 3
    losses, bound, misfit = np.zeros(3), math.inf, False
    optimism = 0
    member_losses = np.zeros(3)
    for first, last, values in seen:
        in_play = next((m for m in range(3) if losses[m] <= bound), 2)
        if in_play == 0:  # the most optimistic kernel that is left by M22 plans
            limit = -0.5 * math.log(np.exp(-2.0 * member_losses).mean()) + 0.5 * math.log(1.0 / LEVEL)
            left = [i for i in range(3) if member_losses[i] <= limit]
            best = max(left, key=lambda i: optimal[i, 0, 0])
            assert values == pytest.approx(optimal[best], abs=1e-12)
            optimism += best != max(range(3), key=lambda i: optimal[i, 0, 0])
        for row in range(log.begin[first], log.begin[last]):
            h, s, a = int(log.step[row]) % 7, int(log.state[row]), int(log.action[row])
            x, middle, spread = right_row(s, values[h + 1], 3)
            if a == 0 or spread == 0.0:
                continue
            columns["y"].append((values[h + 1][log.next_state[row]] - middle) / spread)
            columns["three"].append(x)
            columns["one"].append(right_row(s, values[h + 1], 1)[0])
            columns["pair"].append(np.eye(6)[s])
            columns["z"].append((kernels[:, s, a] @ values[h + 1] - middle) / spread)
        y, one, three, pair, z = (np.array(columns[name]) for name in ("y", "one", "three", "pair", "z"))
        if not y.size:
            continue
        member_losses = ((y[:, None] - z) ** 2).sum(axis=0) - (y**2).sum()
        losses = np.array([member_losses.min(), on_simplices(one, y), on_simplices(three, y)])
        bound = allowed(three, y)
        rejected = [last if at is None and loss > bound else at for at, loss in zip(rejected, losses, strict=True)]
        misfit = misfit or losses[2] > allowed(np.concatenate([three, pair], axis=1), y)
    assert found.memory["losses"] == pytest.approx(losses, rel=1e-6, abs=1e-6)
    assert found.memory["allowed"] == pytest.approx([bound] * 3, rel=1e-9)
    assert found.rejected == rejected
    assert rejected[0] is not None
    assert rejected[1] is not None
    assert bool(found.outside) == misfit == outside
    assert optimism > 0 or outside  # the data, not optimism alone, had a say in the plans

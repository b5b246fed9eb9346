"""Preflight agrees with brute force on tiny ladders, and with what the selectors then do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.preflight import ParametricRates, Preflight, episodes_until
from occamrl.arrays import Floats
from occamrl.errors import ParameterError
from occamrl.evidence.cloud import Fit
from occamrl.evidence.parametric import ParametricEvidence, ParametricState
from occamrl.logs.log import simulate_log

Evidence = Literal["value", "likelihood"]
Outcome = tuple[float, int, float]  # of a model: probability, next state, reward
HORIZON = 3


def kernel(left: float, right: float) -> Floats:
    """From 0, each action reaches 1 with a chance of its own, and 2 otherwise; both are kept."""
    P = np.zeros((3, 2, 3))
    P[0, 0] = (0, left, 1 - left)
    P[0, 1] = (0, right, 1 - right)
    P[1, :, 1] = 1.0
    P[2, :, 2] = 1.0
    return P


REWARD = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def problem(truth: Floats) -> orl.FiniteMDP:
    return orl.FiniteMDP(transition=truth, reward=REWARD, horizon=HORIZON)


KNOWN = problem(kernel(0.5, 0.1)).known


def ladder_of(*kernels: Floats) -> orl.Ladder:
    stacked = np.stack(kernels)
    return orl.Ladder(
        [orl.FiniteFamily(stacked[:1]), orl.FiniteFamily(stacked)], names=["one", "all"]
    )


# the first plays left for ever, where the two agree
BLIND = ladder_of(kernel(0.5, 0.1), kernel(0.5, 0.9))
SEEN = ladder_of(kernel(0.5, 0.1), kernel(0.1, 0.9))


class Enumerated(NamedTuple):
    """What happens if P's policy is played under Q."""

    rate: float  # of the evidence against P, per episode
    loss: float  # per episode


def enumerate_paths(P: Floats, Q: Floats, evidence: Evidence) -> Enumerated:
    """Find rate and loss without dynamic programming: by a sum over all paths."""
    policy = problem(P).optimal_policy
    values = problem(P).optimal_values
    rate = 0.0
    for path in itertools.product(range(3), repeat=HORIZON):
        chance = float(path[0] == 0)
        for h in range(HORIZON - 1):
            chance *= Q[path[h], policy[h, path[h]], path[h + 1]]
        for h, s in enumerate(path):
            p = P[s, policy[h, s]]
            q = Q[s, policy[h, s]]
            if evidence == "likelihood":
                possible = q > 0.0
                rate += chance * float(q[possible] @ np.log(q[possible] / p[possible]))
                continue
            # from 1 and 2 there is one way: rows without range say nothing
            spread = float(np.ptp(values[h + 1][1:]))
            if s == 0 and spread > 0.0:
                rate += chance * 2.0 * float((p - q) @ values[h + 1] / spread) ** 2
    truth = problem(Q)
    return Enumerated(rate, float(truth.optimal_value - truth.evaluate(policy)[0, 0]))


@pytest.mark.parametrize("evidence", ["value", "likelihood"])
@pytest.mark.parametrize("ladder", [BLIND, SEEN])
def test_losses_and_times_are_those_of_brute_force(ladder: orl.Ladder, evidence: Evidence) -> None:
    P = ladder.family.kernel(0)
    Q = ladder.family.kernel(1)
    enumerated = enumerate_paths(P, Q, evidence)
    report = orl.preflight(ladder, KNOWN, episodes=10, evidence=evidence, least_loss=0.0)
    weight = 0.5
    if evidence == "likelihood":
        weight *= 2.0 / 3.0  # what competitors leave
    missing = math.log(1.0 / (0.05 * weight))
    needed = ((math.sqrt(2.0) + math.sqrt(2.0 + 4.0 * missing)) / 2.0) ** 2
    expected = math.inf
    if enumerated.rate > 0.0:
        expected = needed / enumerated.rate
    assert report.rejection == [pytest.approx(expected, rel=1e-4)]
    assert report.pairs_tried == 1
    if expected <= 10:
        assert report.unidentifiable == []
        return
    [pair] = report.unidentifiable
    assert (pair.member, pair.truth) == (0, 1)
    assert pair.loss_per_episode == pytest.approx(enumerated.loss)
    assert pair.episodes_to_reject == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("evidence", ["value", "likelihood"])
def test_a_blind_class_confirms_itself_and_the_remedy_helps(evidence: Evidence) -> None:
    truth = problem(BLIND.family.kernel(1))
    report = orl.preflight(BLIND, truth.known, episodes=300, evidence=evidence)
    assert report.rejection == [math.inf]
    assert report.remedy == "all"
    stuck = orl.run(report.selector(scope="smallest"), truth, episodes=300, progress=False)
    assert stuck.verdict["chosen"] == 1
    assert stuck.total_regret == pytest.approx(300 * report.unidentifiable[0].loss_per_episode)
    helped = orl.run(report.selector(), truth, episodes=300, progress=False)
    assert helped.total_regret < 0.2 * stuck.total_regret


@pytest.mark.parametrize("evidence", ["value", "likelihood"])
def test_predicted_times_are_those_of_the_selectors(evidence: Evidence) -> None:
    near = ladder_of(kernel(0.5, 0.1), kernel(0.2, 0.9))
    truth = problem(near.family.kernel(1))
    report = orl.preflight(near, truth.known, episodes=2_000, evidence=evidence)
    assert report.remedy == "none"
    agent = report.selector(scope="smallest", replan=0.0)  # times are those of a class alone
    times = []
    for seed in range(5):
        result = orl.run(agent, truth, episodes=50, seed=seed, progress=False)
        assert result.verdict["chosen"] == 2
        times.append(result.phase_rows[-1]["first"] - 1)
    assert report.rejection[0] / 3.0 < np.median(times) < 3.0 * report.rejection[0]


def test_linear_ladders_and_their_remedy() -> None:
    kernels = [kernel(0.5, 0.1), kernel(0.5, 0.9), kernel(0.2, 0.5)]
    features = orl.FeatureMap(np.stack(kernels, axis=-1))
    classes = []
    for size in (1, 2, 3):
        family = orl.LinearFamily(features=features, norm_bound=1.0, coordinates=range(size))
        classes.append(family)
    report = orl.preflight(orl.Ladder(classes[::2]), KNOWN, episodes=5_000)
    assert len(report.rejection) == 1
    assert np.isfinite(report.rejection[0])
    ladder = orl.Ladder(classes[:2])
    blind = orl.preflight(ladder, KNOWN, episodes=5_000)
    assert blind.rejection == [math.inf]
    assert blind.remedy == "largest"
    assert isinstance(blind.selector(), orl.UCRLVTRLin)
    truth = problem(kernel(0.5, 0.9))
    stuck = orl.run(orl.ARLGen(ladder=ladder), truth, episodes=300, progress=False)
    assert stuck.verdict["chosen"] == 1


def cover(reach: float | None) -> orl.Ladder:
    def kernel_at(point: Floats) -> Floats:
        return kernel(0.5 - 0.4 * point[0], 0.1 + 0.8 * point[0])

    small = orl.CoverFamily(kernel_at, low=[0.0], high=[0.2], step=0.1, reach=reach)
    large = orl.CoverFamily(kernel_at, low=[0.0], high=[1.0], step=0.1, reach=reach)
    return orl.Ladder([small, large])


def test_nothing_is_promised_that_the_selector_does_not_do() -> None:
    """Covers are refused by likelihood, in the words of Occam; value rows judge their grid."""
    with pytest.raises(ParameterError, match="cover") as ours:
        orl.preflight(cover(None), KNOWN, episodes=100, evidence="likelihood")
    with pytest.raises(ParameterError) as theirs:
        orl.Occam(ladder=cover(None))
    assert str(ours.value) == str(theirs.value)
    report = orl.preflight(cover(None), KNOWN, episodes=100)
    assert np.isfinite(report.grid_episodes)
    assert isinstance(report.selector(), orl.ARLGen)
    exact = orl.preflight(cover(0.0), KNOWN, episodes=100)
    assert math.isinf(exact.grid_episodes)
    assert exact.rejection[0] < report.rejection[0]
    with pytest.raises(ParameterError, match="rewards"):
        orl.preflight(BLIND, orl.Known.of_sizes(states=3, actions=2, horizon=3), episodes=10)


@pytest.mark.parametrize("evidence", ["value", "likelihood"])
def test_a_single_class_has_nothing_to_be_told_apart_from(evidence: Evidence) -> None:
    alone = orl.Ladder([orl.FiniteFamily(kernel(0.5, 0.1)[None])])
    report = orl.preflight(alone, KNOWN, episodes=10, evidence=evidence)
    assert (report.rejection, report.pairs_tried, report.remedy) == ([], 0, "none")


def test_reports_name_the_classes_and_the_remedy() -> None:
    report: Preflight = orl.preflight(BLIND, KNOWN, episodes=300)
    assert "'one'" in str(report)
    assert "1 unidentifiable pair among 1 tried" in str(report)


@pytest.mark.parametrize("rate", [1e-6, 0.3, 40.0])
def test_the_time_until_rejection_solves_its_equation(rate: float) -> None:
    n = episodes_until(rate, lambda n: 3.0 + math.log1p(n))
    assert n * rate - math.sqrt(2.0 * n * rate) == pytest.approx(3.0 + math.log1p(n), rel=1e-3)
    assert episodes_until(rate, lambda n: n * rate) == math.inf
    assert episodes_until(0.0, lambda n: 3.0) == math.inf


# Real parameters ----------------------------------------------------------------------------------


def counter(
    waiting: int, door: str, *, arrival: float, service: float = 0.3, tired: float = 0.0
) -> Iterator[Outcome]:
    """Yield what may happen in a queue: one comes, or one goes, less often the more are waiting.

    A guest is worth 4, a minute of waiting costs 1.
    """
    comes = 0.0
    if door == "open" and waiting < 5:
        comes = arrival
    goes = 0.0
    if waiting:
        goes = max(service - tired * waiting, 0.0)
    yield 1.0 - comes - goes, waiting, -1.0 * waiting
    if waiting < 5:
        yield comes, waiting + 1, 4.0 - waiting
    if waiting:
        yield goes, waiting - 1, -1.0 * waiting


DESK = orl.Model(
    counter,
    start=0,
    actions=["open", "closed"],
    horizon=30,
    parameters={"arrival": (0.1, 0.4), "service": (0.2, 0.5), "tired": (0.0, 0.06)},
)
CLASSES = DESK.ladder(
    {"arrivals": ["arrival"], "services": ["arrival", "service"], "tired": list(DESK.box)}
)


@pytest.mark.parametrize(
    ("m", "point"),
    [
        (1, {"arrival": 0.23, "service": 0.37}),
        (1, {"arrival": 0.31, "service": 0.22}),
        (2, {"arrival": 0.27, "service": 0.43, "tired": 0.05}),
    ],
)
def test_real_parameters_are_rejected_when_predicted(m: int, point: dict[str, float]) -> None:
    rates = ParametricRates(CLASSES, DESK.known, 0.05, truths=1)
    truth = rates.evidence.default.copy()
    for name, number in point.items():
        low, high = DESK.box[name]
        truth[rates.evidence.names.index(name)] = (number - low) / (high - low)
    predicted, _ = rates.play_alone(m, truth, len(point))
    longest = int(10 * predicted)
    times = []
    for seed in range(11):
        agent = orl.Occam(ladder=CLASSES, acting="fit")
        mdp = DESK.mdp(**point)
        result = orl.run(agent, mdp, episodes=longest, seed=seed, progress=False)
        times.append(int(result.state["evidence"]["rejected"][m - 1]) or longest)
    assert predicted / 3.0 < np.median(times) < 3.0 * predicted


def levers(_: int, lever: str, *, left: float = 0.5, right: float = 0.1) -> Iterator[Outcome]:
    """Yield whether a lever wins; whoever thinks little of the right one never pulls it."""
    win = {"left": left, "right": right}[lever]
    yield win, 0, 1.0
    yield 1 - win, 0, 0.0


def test_a_class_that_never_looks_is_found_among_real_parameters() -> None:
    model = orl.Model(
        levers,
        start=0,
        actions=["left", "right"],
        horizon=3,
        parameters={"left": (0.3, 0.7), "right": (0.0, 1.0)},
        unit="EUR",
    )
    ladder = model.ladder({"left": ["left"], "both": ["left", "right"]})
    report = orl.preflight(ladder, episodes=1_000)
    assert report.unidentifiable
    assert report.remedy == "all"
    assert "right = " in str(report)
    for pair in report.unidentifiable:
        assert pair.episodes_to_reject == math.inf
    truth = model.mdp(left=0.5, right=0.9)
    smallest = orl.Occam(ladder=ladder, acting="optimism", scope="smallest")
    stuck = orl.run(smallest, truth, episodes=300)
    assert stuck.total_regret == pytest.approx(300 * 3 * 0.4)
    helped = orl.run(report.selector(), truth, episodes=300)
    assert helped.total_regret < 0.2 * stuck.total_regret
    with pytest.raises(ParameterError, match="likelihood"):
        orl.preflight(ladder, episodes=10, evidence="value")


def test_a_truth_on_the_grid_of_a_queue_is_found_when_promised() -> None:
    """Forgiving a share of each probability, as for covers, would keep the wrong class for ever."""
    arrivals = [0.1, 0.2, 0.3, 0.4]
    small = DESK.family({"arrival": arrivals})
    large = DESK.family({"arrival": arrivals, "service": [0.2, 0.3, 0.4, 0.5]})
    ladder = orl.Ladder([small, large], names=["arrivals", "services"])
    report = orl.preflight(ladder, DESK.known, episodes=500, evidence="likelihood")
    assert report.remedy == "none"
    times = []
    for seed, (arrival, service) in enumerate(itertools.product(arrivals, (0.2, 0.4, 0.5))):
        truth = DESK.mdp(arrival=arrival, service=service)
        result = orl.run(report.selector(), truth, episodes=500, seed=seed, progress=False)
        assert (result.verdict["chosen"], result.verdict["misspecified"]) == (2, False)
        times.append(result.verdict["since"] - 1)
    assert report.rejection[0] / 3.0 < np.median(times) < 3.0 * report.rejection[0]
    assert result.total_regret < 0.01 * 500 * 30  # with covers 125 in 2,000 episodes


def test_a_rate_so_large_that_one_episode_decides_ends_the_search() -> None:
    for rate in (1e7, 1e90, 1e300):
        assert episodes_until(rate, lambda n: 5.0) <= 1.0


def threshold(age: int, action: str, *, tau: float) -> Iterator[Any]:
    wears = 0.02 if age < tau else 0.5
    yield wears, 0, 1.0, False
    yield 1.0 - wears, min(age + 1, 40), 1.0, False


class Thrown(ParametricEvidence):
    """A control: three points, and no search."""

    def begin(self) -> ParametricState:
        state = super().begin()
        state["points"] = state["points"][:3]
        state["level"] = state["level"][:3]
        state["log_mass"] = state["log_mass"][:3]
        return state

    def _search_class(self, state: ParametricState, m: int) -> Fit:
        return Fit(state["points"][0], -math.inf, 0, 0)

    def _renew(self, state: ParametricState) -> None:
        """Make no points."""


def test_the_search_is_tested_before_there_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    model = orl.Model(
        threshold, start=0, actions=["run"], horizon=40, parameters={"tau": (1.0, 40.0)}
    )
    ladder = model.ladder({"worn from an age on": ["tau"]})
    report = orl.preflight(ladder, episodes=20)
    log = simulate_log(model.mdp(tau=30.0), episodes=20)
    assert not report.search_test(runs=8).missed
    assert not report.search_test(runs=8, log=log).missed
    monkeypatch.setattr("occamrl.analysis.preflight.ParametricEvidence", Thrown)
    for lost in (report.search_test(runs=8), report.search_test(runs=8, log=log)):
        assert len(lost.missed) >= 3
        assert "'worn from an age on'" in str(lost)
    lists = orl.Ladder([model.family({"tau": [3.0, 9.0]})])
    with pytest.raises(ParameterError, match="real parameters"):
        orl.preflight(lists, model.known, episodes=20).search_test()

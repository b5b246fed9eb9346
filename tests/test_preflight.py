"""Preflight agrees with brute force on tiny ladders, and with what the selectors then do."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import numpy as np
import pytest

import occamrl as orl
from occamrl.analysis.preflight import Preflight, episodes_until, played_alone
from occamrl.errors import ParameterError
from occamrl.evidence.parametric import ParametricEvidence
from occamrl.protocols import Floats

Evidence = Literal["value", "likelihood"]
HORIZON = 3


def kernel(left: float, right: float) -> Floats:
    """From 0, each action reaches 1 with a chance of its own and comes to rest in 2 otherwise; 1 and 2 are kept."""
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1] = (0, left, 1 - left), (0, right, 1 - right)
    P[1, :, 1] = P[2, :, 2] = 1.0
    return P


REWARD = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def problem(truth: Floats) -> orl.FiniteMDP:
    return orl.FiniteMDP(transition=truth, reward=REWARD, horizon=HORIZON)


def ladder_of(*kernels: Floats) -> orl.Ladder:
    stacked = np.stack(kernels)
    return orl.Ladder(
        [orl.FiniteFamily(stacked[:1]), orl.FiniteFamily(stacked)], names=["one", "all"]
    )


BLIND = ladder_of(
    kernel(0.5, 0.1), kernel(0.5, 0.9)
)  # the first plays left for ever, where the two agree
SEEN = ladder_of(kernel(0.5, 0.1), kernel(0.1, 0.9))


def rates(P: Floats, Q: Floats, evidence: Evidence) -> tuple[float, float]:
    """By enumeration of paths: how fast evidence against P grows under Q, and what P's policy loses there."""
    mdp, truth = problem(P), problem(Q)
    policy, values = mdp.optimal_policy, mdp.optimal_values
    rate = 0.0
    for path in itertools.product(range(3), repeat=HORIZON):
        chance = float(path[0] == 0)
        for h in range(HORIZON - 1):
            chance *= Q[path[h], policy[h, path[h]], path[h + 1]]
        for h, s in enumerate(path):
            p, q = P[s, policy[h, s]], Q[s, policy[h, s]]
            if evidence == "likelihood":
                rate += chance * sum(
                    b * math.log(b / a) for a, b in zip(p, q, strict=True) if b > 0.0
                )
            elif chance and s == 0 and (spread := float(np.ptp(values[h + 1][1:]))):
                rate += chance * 2.0 * float(((p - q) @ values[h + 1]) / spread) ** 2
    return rate, float(truth.optimal_value - truth.evaluate(policy)[0, 0])


@pytest.mark.parametrize("evidence", ["value", "likelihood"])
@pytest.mark.parametrize("ladder", [BLIND, SEEN])
def test_losses_and_times_are_those_of_brute_force(ladder: orl.Ladder, evidence: Evidence) -> None:
    P, Q = (ladder.family.kernel(member) for member in (0, 1))
    rate, loss = rates(P, Q, evidence)
    report = orl.preflight(ladder, problem(P).known, episodes=10, evidence=evidence, least_loss=0.0)
    weight = 0.5 if evidence == "value" else 0.5 * 2.0 / 3.0
    missing = math.log(1.0 / (0.05 * weight))
    needed = ((math.sqrt(2.0) + math.sqrt(2.0 + 4.0 * missing)) / 2.0) ** 2
    expected = needed / rate if rate > 0.0 else math.inf
    assert report.rejection == [pytest.approx(expected, rel=1e-4)]
    assert report.pairs_tried == 1
    if expected > 10:
        assert [(pair.member, pair.truth) for pair in report.unidentifiable] == [(0, 1)]
        assert report.unidentifiable[0].loss_per_episode == pytest.approx(loss)
        assert report.unidentifiable[0].episodes_to_reject == pytest.approx(expected, rel=1e-4)
    else:
        assert report.unidentifiable == []


@pytest.mark.parametrize("evidence", ["value", "likelihood"])
def test_a_blind_class_confirms_itself_and_the_remedy_helps(evidence: Evidence) -> None:
    truth = problem(BLIND.family.kernel(1))
    report = orl.preflight(BLIND, truth.known, episodes=300, evidence=evidence)
    assert report.rejection == [math.inf]
    assert report.remedy == "all"
    plain = report.selector(scope="smallest")
    stuck = orl.run(plain, truth, episodes=300, progress=False)
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
    agent, times = report.selector(replan=0.0), []
    for seed in range(5):
        result = orl.run(agent, truth, episodes=50, seed=seed, progress=False)
        assert result.verdict["chosen"] == 2
        times.append(result.phase_rows[-1]["first"] - 1)
    assert report.rejection[0] / 3.0 < np.median(times) < 3.0 * report.rejection[0]


def test_linear_ladders_and_their_remedy() -> None:
    features = orl.FeatureMap(
        np.stack([kernel(0.5, 0.1), kernel(0.5, 0.9), kernel(0.2, 0.5)], axis=-1)
    )
    classes = [
        orl.LinearFamily(features=features, norm_bound=1.0, coordinates=c)
        for c in ([0], [0, 1], [0, 1, 2])
    ]
    known = problem(kernel(0.5, 0.1)).known
    report = orl.preflight(orl.Ladder(classes[::2]), known, episodes=5_000)
    assert len(report.rejection) == 1
    assert np.isfinite(report.rejection[0])
    blind = orl.preflight(orl.Ladder(classes[:2]), known, episodes=5_000)
    assert blind.rejection == [math.inf]
    assert blind.remedy == "largest"
    assert isinstance(blind.selector(), orl.UCRLVTRLin)
    truth = problem(kernel(0.5, 0.9))
    stuck = orl.run(orl.ARLGen(ladder=orl.Ladder(classes[:2])), truth, episodes=300, progress=False)
    assert stuck.verdict["chosen"] == 1


def cover(reach: float | None) -> orl.Ladder:
    def at(p: Any) -> Floats:
        return kernel(0.5 - 0.4 * p[0], 0.1 + 0.8 * p[0])

    options = {} if reach is None else {"reach": reach}
    covers = [
        orl.CoverFamily(at, low=[0.0], high=[high], step=0.1, **options) for high in (0.2, 1.0)
    ]
    return orl.Ladder(covers)


def test_nothing_is_promised_that_the_selector_does_not_do() -> None:
    """Covers are refused by likelihood, in the words of Occam; value rows judge their grid."""
    known = problem(kernel(0.5, 0.1)).known
    with pytest.raises(ParameterError, match="cover") as ours:
        orl.preflight(cover(None), known, episodes=100, evidence="likelihood")
    with pytest.raises(ParameterError) as theirs:
        orl.Occam(ladder=cover(None))
    assert str(ours.value) == str(theirs.value)
    report = orl.preflight(cover(None), known, episodes=100)
    assert np.isfinite(report.grid_episodes)
    assert isinstance(report.selector(), orl.ARLGen)
    exact = orl.preflight(cover(0.0), known, episodes=100)
    assert math.isinf(exact.grid_episodes)
    assert exact.rejection[0] < report.rejection[0]
    with pytest.raises(ParameterError, match="rewards"):
        orl.preflight(BLIND, orl.Known.of_sizes(states=3, actions=2, horizon=3), episodes=10)


def test_reports_name_the_classes_and_the_remedy() -> None:
    report: Preflight = orl.preflight(BLIND, problem(kernel(0.5, 0.1)).known, episodes=300)
    assert "'one'" in str(report)
    assert "1 unidentifiable pairs among 1 tried" in str(report)


@pytest.mark.parametrize("rate", [1e-6, 0.3, 40.0])
def test_the_time_until_rejection_solves_its_equation(rate: float) -> None:
    n = episodes_until(rate, lambda n: 3.0 + math.log1p(n))
    assert n * rate - math.sqrt(2.0 * n * rate) == pytest.approx(3.0 + math.log1p(n), rel=1e-3)
    assert episodes_until(rate, lambda n: n * rate) == math.inf
    assert episodes_until(0.0, lambda n: 3.0) == math.inf


# Real parameters ----------------------------------------------------------------------------------


def counter(
    waiting: int, door: str, *, arrival: float, service: float = 0.3, tired: float = 0.0
) -> Any:
    """A queue: one comes, or one goes, less often the more are waiting; a guest is worth 4, a minute of waiting 1."""
    comes = arrival if door == "open" and waiting < 5 else 0.0
    goes = max(service - tired * waiting, 0.0) if waiting else 0.0
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
    by = ParametricEvidence(CLASSES, DESK.known, 0.05)
    truth = by.default.copy()
    for name, share in point.items():
        truth[by.names.index(name)] = (share - DESK.box[name][0]) / np.ptp(DESK.box[name])
    assert DESK.known.initial is not None
    rate, steps, _ = played_alone(by, m, truth, DESK.known.initial)
    predicted = episodes_until(
        rate, lambda n: math.log(4 / 0.05) + 0.5 * len(point) * math.log1p(n * steps)
    )
    seen = []
    for seed in range(11):
        agent = orl.Occam(ladder=CLASSES, acting="fit")
        result = orl.run(
            agent, DESK.mdp(**point), episodes=int(10 * predicted), seed=seed, progress=False
        )
        seen.append(int(result.state["evidence"]["rejected"][m - 1]) or 10 * predicted)
    assert predicted / 3.0 < np.median(seen) < 3.0 * predicted


def test_a_class_that_never_looks_is_found_among_real_parameters() -> None:
    """Whoever thinks that the right lever is worth little never pulls it."""

    def levers(_: int, lever: str, *, left: float = 0.5, right: float = 0.1) -> Any:
        win = left if lever == "left" else right
        yield win, 0, 1.0
        yield 1 - win, 0, 0.0

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
    lost = [
        orl.run(agent, truth, episodes=300).total_regret
        for agent in (orl.Occam(ladder=ladder), report.selector())
    ]
    assert lost[0] == pytest.approx(300 * 3 * 0.4)
    assert lost[1] < 0.2 * lost[0]
    with pytest.raises(ParameterError, match="likelihood"):
        orl.preflight(ladder, episodes=10, evidence="value")


def test_a_truth_on_the_grid_of_a_queue_is_found_when_promised() -> None:
    """Arrivals x services, reach 0: forgiving a share of each probability would keep the wrong class for ever."""
    small = DESK.family({"arrival": [0.1, 0.2, 0.3, 0.4]})
    large = DESK.family({"arrival": [0.1, 0.2, 0.3, 0.4], "service": [0.2, 0.3, 0.4, 0.5]})
    ladder = orl.Ladder([small, large], names=["arrivals", "services"])
    report = orl.preflight(ladder, DESK.known, episodes=500, evidence="likelihood")
    assert report.remedy == "none"
    times = []
    for seed, (arrival, service) in enumerate(
        itertools.product((0.1, 0.2, 0.3, 0.4), (0.2, 0.4, 0.5))
    ):
        truth = DESK.mdp(arrival=arrival, service=service)
        result = orl.run(report.selector(), truth, episodes=500, seed=seed, progress=False)
        assert (result.verdict["chosen"], result.verdict["misspecified"]) == (2, False)
        times.append(result.verdict["since"] - 1)
    assert report.rejection[0] / 3.0 < np.median(times) < 3.0 * report.rejection[0]
    assert result.total_regret < 0.01 * 500 * 30  # with covers 125 in 2,000 episodes

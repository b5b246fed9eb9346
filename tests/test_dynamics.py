"""Classes of dynamics with fitted parameters: prediction, the test, ranges, words, acting."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binomtest, t

import occamrl as orl
from occamrl.addresses import Address
from occamrl.errors import EnvironmentFault, NotAvailable, ParameterError, ShapeError
from occamrl.evidence import regression, regression_fits
from occamrl.evidence.regression import RegressionEvidence, RegressionState
from occamrl.evidence.regression_fits import (
    RIDGES,
    Predictor,
    climb,
    least_squares,
    least_squares_from,
    log_likelihood,
    loss_of,
    sums_from,
)
from occamrl.evidence.regression_report import hints_of
from occamrl.models.dynamics import holds
from occamrl.protocols import Floats, Transition

Rng = np.random.Generator
QUICK = orl.CEM(candidates=16, elites=4, iterations=2, horizon=6, particles=1)


def cart(
    states: Floats, actions: Floats, *, mass: float = 1.0, viscous: float = 0.0, force: float = 1.0
) -> Floats:
    """Push a cart for a twentieth of a second."""
    push = force * actions[:, 0] - viscous * states[:, 1]
    speed = states[:, 1] + 0.05 * push / mass
    return np.stack([states[:, 0] + 0.05 * speed, speed], axis=1)


def boxes(**options: Any) -> orl.Dynamics:
    classes = {
        "free": orl.GreyBox(cart, mass=(0.5, 3)),
        "friction": orl.GreyBox(cart, mass=(0.5, 3), viscous=(0, 2)),
    }
    return orl.Dynamics(classes, state=["x", "v"], action=["u"], **options)


def rolled(
    truth: Callable[[Floats, Floats], Floats], seed: int, steps: int, noise: float = 0.01
) -> list[Transition]:
    """Return a run under actions that are held for four steps."""
    rng = np.random.default_rng(seed)
    state = np.zeros(2)
    run = []
    action = np.zeros(1)
    for step in range(steps):
        if step % 4 == 0:
            action = rng.uniform(-3, 3, 1)
        after = truth(state[None], action[None])[0] + noise * rng.normal(size=2)
        run.append(Transition(state, action, None, after, False, Address(seed, step), step))
        state = after
    return run


def rubbed(states: Floats, actions: Floats) -> Floats:
    """Push a cart with friction."""
    return cart(states, actions, mass=1.37, viscous=0.6)


def weighed(
    dynamics: orl.Dynamics, run: list[Transition], delta: float = 0.05
) -> tuple[RegressionEvidence, RegressionState]:
    evidence = dynamics.evidence(None, delta)
    state = evidence.begin()
    evidence.add_steps(state, run)
    return evidence, state


def table_of(run: list[Transition]) -> dict[str, Any]:
    """Return a run as a log."""
    return {
        "states": np.array([step.state for step in run]),
        "actions": np.array([step.action for step in run]),
        "next_states": np.array([step.next_state for step in run]),
    }


# Prediction and fits ------------------------------------------------------------------------------


def test_predictions_are_those_of_the_closed_form() -> None:
    """Against the posterior of the normal inverse-gamma model, recomputed at every step."""
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(12, 3))
    y = rng.normal(size=(12, 2)) + phi[:, :2]
    predictor = Predictor.begin(3, 2, RIDGES)
    for step in range(12):
        past = phi[:step]
        density, location, following = predictor.step(phi[step], np.zeros(2), y[step])
        for row, ridge in enumerate(RIDGES):
            precision = past.T @ past + ridge * np.eye(3)
            weights = np.linalg.solve(precision, past.T @ y[:step])
            # y'y - w'(precision)w is what the squares of the posterior grow by
            rest = (y[:step] ** 2).sum(axis=0) - (weights * (precision @ weights)).sum(axis=0)
            squares = 1e-4 + rest
            freedom = 1.0 + step
            spread = 1.0 + phi[step] @ np.linalg.solve(precision, phi[step])
            scale = np.sqrt(squares / freedom * spread)
            assert location[row] == pytest.approx(phi[step] @ weights, rel=1e-5, abs=1e-7)
            expected = t.logpdf(y[step], freedom, phi[step] @ weights, scale)
            assert density[row] == pytest.approx(expected, rel=1e-3, abs=1e-3)
        predictor = following


def test_least_squares_are_those_of_numpy_from_every_start() -> None:
    rng = np.random.default_rng(1)
    phi = np.column_stack([rng.normal(size=(40, 3)), np.zeros(40)])
    phi = np.column_stack([phi, phi[:, 0] + phi[:, 1]])  # rank 3 of 5
    y = rng.normal(size=(40, 2))
    starts = np.array([0, 7, 16, 38])
    squares = least_squares_from(phi, y, starts)
    for row, first in enumerate(starts[:3]):
        weights = np.linalg.lstsq(phi[first:], y[first:], rcond=None)[0]
        rest = y[first:] - phi[first:] @ weights
        assert squares[row] == pytest.approx((rest**2).sum(axis=0))
    assert squares[3].tolist() == [0.0, 0.0]  # no more rows than features
    sums = sums_from(y, starts)
    for row, first in enumerate(starts):
        assert sums[row] == pytest.approx(y[first:].sum(axis=0))


def test_the_largest_likelihood_is_that_of_the_normal_law() -> None:
    rng = np.random.default_rng(2)
    rest = rng.normal(size=(30, 1))
    squares = (rest**2).sum(axis=0)[None]
    scale = math.sqrt(float(squares[0, 0]) / 30)
    normal = -0.5 * (rest / scale) ** 2 - math.log(scale * math.sqrt(2 * math.pi))
    assert log_likelihood(squares, np.array([30]))[0, 0] == pytest.approx(normal.sum())


def test_a_climb_of_a_linear_grey_box_comes_to_least_squares_and_stays_in_its_box() -> None:
    rng = np.random.default_rng(3)
    phi = rng.normal(size=(50, 2))
    y = phi @ np.array([[0.3], [0.8]]) + 0.1 * rng.normal(size=(50, 1))
    fit = least_squares(phi, y)

    def rest(share: Floats) -> Floats:
        return np.asarray(y - phi @ share[:, None])

    reached = climb(rest, np.array([0.9, 0.1]), 30)
    assert reached.share == pytest.approx(fit.weights[:, 0], abs=1e-4)
    assert reached.loss == pytest.approx(loss_of(y - phi @ fit.weights), abs=1e-6)
    held = climb(rest, np.array([0.9, 0.1]), 30, fixed=0)
    assert held.share[0] == 0.9

    def outside(share: Floats) -> Floats:
        return np.asarray(y - phi @ (share[:, None] - 0.6))

    assert climb(outside, np.array([0.5, 0.5]), 30).share[1] == 1.0


def test_polynomials_have_every_monomial_and_angles_their_sine_and_cosine() -> None:
    library = orl.Polynomial(2, trig=["angle"])
    assert len(library.exponents(["angle", "speed"])) == 10  # of sine, cosine and speed
    dynamics = orl.Dynamics({"swing": library}, state=["angle", "speed"], action=["u"])
    evidence = dynamics.evidence(None, 0.05)
    turned = evidence.wrapped(np.array([[2 * math.pi - 0.1, 2 * math.pi - 0.1]]))
    assert turned[0] == pytest.approx([-0.1, 2 * math.pi - 0.1])
    with pytest.raises(ParameterError, match="trig"):
        orl.Dynamics({"swing": library}, state=["x"], action=["u"])


# The test -----------------------------------------------------------------------------------------


def test_steps_one_by_one_and_at_once_say_the_same() -> None:
    dynamics = boxes()
    run = rolled(rubbed, 0, 120)
    evidence, state = weighed(dynamics, run)
    alone = evidence.begin()
    for step in run:
        evidence.add(alone, step)
    assert alone["rejected"].tolist() == state["rejected"].tolist()
    assert alone["peak"] == pytest.approx(state["peak"], abs=1e-6)
    assert alone["steps"] == 120


LINEAR = orl.Dynamics({"linear": orl.Polynomial(1)}, state=["x"], action=["u"])


def lines(seed: int, steps: int = 100) -> Iterator[Transition]:
    """A linear system, with actions that depend on what was seen."""
    rng = np.random.default_rng(seed)
    state = np.zeros(1)
    for step in range(steps):
        action = np.clip(rng.normal(size=1) - state, -1, 1)
        after = 0.8 * state + 0.3 * action + 0.1 * rng.normal(size=1)
        yield Transition(state, action, None, after, False, Address(seed, step), step)
        state = after


def lost_at_one_half(runs: int) -> int:
    lost = 0
    for seed in range(runs):
        _, state = weighed(LINEAR, list(lines(seed)), 0.5)
        lost += bool(state["rejected"][0] >= 0)
    return lost


def test_the_right_class_is_ruled_out_as_rarely_as_promised() -> None:
    assert binomtest(lost_at_one_half(40), 40, 0.5, alternative="greater").pvalue > 1e-3


def test_predictions_that_have_seen_the_outcome_rule_out_the_right_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Predictor.step

    def peeking(
        self: Predictor, phi: Floats, offset: Floats, y: Floats
    ) -> tuple[Floats, Floats, Predictor]:
        location = honest(self, phi, offset, y)[1].mean(axis=0)
        return honest(self, phi, offset + 0.5 * (y - location), y)

    monkeypatch.setattr(regression_fits.Predictor, "step", peeking)
    assert binomtest(lost_at_one_half(20), 20, 0.5, alternative="greater").pvalue < 1e-4


def test_the_wrong_class_falls_and_ranges_hold_the_truth() -> None:
    answer = orl.select(table_of(rolled(rubbed, 5, 400)), boxes())
    assert answer.model == "friction"
    assert answer.rejected_after(1) is not None
    truth = {"mass": 1.37, "viscous": 0.6}
    for name, interval in answer.parameters.items():
        assert interval.low <= truth[name] <= interval.high
        assert interval.high - interval.low < 0.5
    assert answer.status == "decided"
    assert "'free' was ruled out after" in str(answer)
    assert answer.as_data()["model"] == "friction"


def test_a_class_that_a_search_has_missed_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blind climbs rule the right class out; a witness that is found later brings it back."""
    run = rolled(lambda s, a: cart(s, a, mass=1.37, viscous=1.8), 5, 200)
    evidence = boxes().evidence(None, 0.05)
    state = evidence.begin()
    with monkeypatch.context() as blind:
        blind.setattr(
            regression, "climb", lambda residuals, share, *_: climb(residuals, share * 0.0, 0)
        )
        evidence.add_steps(state, run[:80])
    assert (state["rejected"] >= 0).all()
    evidence.add_steps(state, run[80:])
    assert state["rejected"][0] >= 0  # the wrong one stays out
    assert state["rejected"][1] == -1
    assert state["peak"][1] < math.log(20.0)


def test_what_holds_what_shows_in_forms() -> None:
    def sine(states: Floats, actions: Floats) -> Floats:
        return np.sin(states[:, 0])

    def other(states: Floats, actions: Floats) -> Floats:
        return states[:, 0]

    box = orl.GreyBox(cart, mass=(0.5, 3))
    both = orl.GreyBox(cart, mass=(0.5, 3), viscous=(0, 2))
    assert holds(orl.Polynomial(2), orl.Polynomial(1))
    assert not holds(orl.Polynomial(2, trig=["x"]), orl.Polynomial(1))
    assert holds(orl.Terms([sine, other]), orl.Terms([sine]))
    assert not holds(orl.Terms([sine]), orl.Terms([other]))
    assert holds(both, box)
    assert not holds(box, both)
    assert not holds(orl.GreyBox(cart, mass=(1, 3), viscous=(0, 2)), box)
    assert not holds(
        orl.GreyBox(cart, mass=(0.5, 3), viscous=(0.1, 2)), box
    )  # not without friction
    assert not holds(box, orl.Polynomial(1))
    assert boxes().nested
    mixed = orl.Dynamics({"line": orl.Polynomial(1), "box": box}, state=["x", "v"], action=["u"])
    assert mixed.apart == ("line", "box")


def test_ranges_of_weights_are_those_of_the_profile_likelihood() -> None:
    """At each end the best that the other weights can do is exactly as likely as the limit."""
    terms = {"v": lambda s, a: s[:, 1], "u": lambda s, a: a[:, 0]}
    dynamics = orl.Dynamics({"terms": orl.Terms(terms)}, state=["x", "v"], action=["u"])
    evidence, state = weighed(dynamics, rolled(rubbed, 1, 200))
    ranges = evidence.parameters(state, 0)
    assert ranges["v: u"].low < 0.05 / 1.37 < ranges["v: u"].high
    assert ranges["v: v"].low < -0.03 / 1.37 < ranges["v: v"].high
    steps = evidence.seen(state, scored=True)
    targets = evidence.targets(state, scored=True)
    restart, room = evidence.slack(state, evidence._likelihoods(state, 0)[0].sum(axis=1))
    first = state["restarts"][restart][0]
    phi = evidence.features(0, state["scales"], steps)[first:]
    y = targets[first:, 1]
    best = float(((y - phi @ np.linalg.lstsq(phi, y, rcond=None)[0]) ** 2).sum())
    at_end = ranges["v: u"].high / state["scales"].change[1]
    held = y - phi[:, 1] * at_end
    worse = float(((held - phi[:, 0] * (phi[:, 0] @ held) / (phi[:, 0] @ phi[:, 0])) ** 2).sum())
    assert 0.5 * len(y) * math.log(worse / best) == pytest.approx(room, rel=1e-6)


def test_what_is_not_identified_is_named() -> None:
    dynamics = orl.Dynamics(
        {"pushed": orl.GreyBox(cart, mass=(0.5, 3), force=(0.5, 3))},
        state=["x", "v"],
        action=["u"],
    )
    evidence, state = weighed(dynamics, rolled(cart, 2, 200))
    assert evidence.flat(state, 0) == [(("mass", "force"), "mass/force")]
    ranges = evidence.parameters(state, 0)
    assert ranges["mass"].low < 0.6
    assert ranges["mass"].high > 2.8
    other, alone = weighed(boxes(), rolled(cart, 2, 200))
    assert other.flat(alone, 0) == []


class Waves:
    """Ridge regression on sixty random hyperbolic tangents."""

    def hidden(self, inputs: Floats) -> Floats:
        rng = np.random.default_rng(0)
        waves = np.tanh(inputs @ (2.0 * rng.normal(size=(inputs.shape[1], 60))))
        return np.column_stack([np.ones(len(inputs)), inputs, waves])

    def fit(self, inputs: Floats, targets: Floats) -> None:
        hidden = self.hidden(inputs)
        ridge = 0.1 * np.eye(hidden.shape[1])
        self.weights = np.linalg.solve(hidden.T @ hidden + ridge, hidden.T @ targets)

    def predict(self, inputs: Floats) -> Floats:
        return np.asarray(self.hidden(inputs) @ self.weights)


def bumpy(steps: int) -> list[Transition]:
    """Return a run of a line with a bend that no line follows."""
    rng = np.random.default_rng(3)
    state = np.zeros(1)
    run = []
    for step in range(steps):
        action = rng.uniform(-1, 1, 1)
        after = 0.5 * np.sin(4.0 * state) + 0.8 * action + 0.02 * rng.normal(size=1)
        run.append(Transition(state, action, None, after, False, Address(3, step), step))
        state = after
    return run


def test_a_rival_may_win_and_is_never_ruled_out() -> None:
    classes: Any = {"linear": orl.Polynomial(1), "network": orl.Rival(Waves)}
    dynamics = orl.Dynamics(classes, state=["x"], action=["u"])
    answer = orl.select(table_of(bumpy(300)), dynamics)
    assert answer.model == "network"
    assert not answer.misspecified
    outside = orl.select(spoiled("slow disturbance"), LINEAR)
    assert outside.misspecified


def test_a_fitted_rival_is_found_again_from_its_data() -> None:
    """What is fitted is no part of a state: the same data give the same rival."""
    classes: Any = {"linear": orl.Polynomial(1), "network": orl.Rival(Waves)}
    run = bumpy(120)

    def ladder() -> orl.Dynamics:
        return orl.Dynamics(classes, state=["x"], action=["u"])

    _, whole = weighed(ladder(), run)
    _, half = weighed(ladder(), run[:80])
    evidence = ladder().evidence(None, 0.05)
    again = copy.deepcopy(half)
    evidence.add_steps(again, run[80:])
    assert again["scores"] == pytest.approx(whole["scores"])


def test_a_function_that_fails_leaves_no_trace() -> None:
    armed = False

    def fragile(states: Floats, actions: Floats, *, mass: float) -> Floats:
        if armed:
            raise ZeroDivisionError("no mass")
        return cart(states, actions, mass=mass)

    dynamics = orl.Dynamics(
        {"cart": orl.GreyBox(fragile, mass=(0.5, 3))}, state=["x", "v"], action=["u"]
    )
    run = rolled(cart, 0, 41)
    evidence, state = weighed(dynamics, run[:40])
    before = copy.deepcopy(state)
    armed = True
    with pytest.raises(ZeroDivisionError):
        evidence.add(state, run[40])
    assert state["steps"] == before["steps"] == 40
    assert np.array_equal(state["scores"], before["scores"])


# Words and errors ---------------------------------------------------------------------------------


def test_errors_on_later_data_are_those_of_a_fit_to_the_first() -> None:
    """A linear class, one step ahead, by numpy; 20 steps ahead of a system without noise: none."""
    dynamics = orl.Dynamics(
        {"linear": orl.Polynomial(1)},
        state=["x", "v"],
        action=["u"],
        tolerance={"x": 0.05, "v": 1e-4},
    )
    run = rolled(rubbed, 4, 300)
    answer = orl.select(table_of(run), dynamics)
    quality = answer.later_errors
    assert (quality.fitted, quality.predicted, quality.ahead) == (200, 100, 20)
    log = table_of(run)
    phi = np.column_stack([np.ones(300), log["states"], log["actions"]])
    change = log["next_states"] - log["states"]
    weights = np.linalg.lstsq(phi[:200], change[:200], rcond=None)[0]
    expected = np.sqrt(((change[200:] - phi[200:] @ weights) ** 2).mean(axis=0))
    assert quality.classes[0].one == pytest.approx(expected, rel=1e-2)
    assert "not good enough one step ahead in v (tolerance 0.0001)" in str(answer)
    exact = orl.select(table_of(rolled(rubbed, 4, 300, noise=0.0)), dynamics)
    assert (exact.later_errors.classes[0].far < 1e-3).all()
    assert "That is good enough one step ahead" in str(exact)


def spoiled(kind: str) -> dict[str, Any]:
    """Return a log of a line with errors of measurement, a drift, a delay or a limit."""
    rng = np.random.default_rng(0)
    steps = 600
    state = np.zeros(1)
    states = []
    actions = rng.uniform(-1, 1, (steps, 1))
    drift = 0.0
    for step in range(steps):
        states.append(state)
        drift = 0.98 * drift + 0.03 * rng.normal()
        push = actions[max(step - 1, 0)] if kind == "delay" else actions[step]
        pushed = drift if kind == "slow disturbance" else 0.0
        state = 0.9 * state + 0.3 * push + pushed + 0.02 * rng.normal(size=1)
        if kind == "limit":
            state = np.clip(state, -0.4, 0.4)
    observed = np.array(states)
    if kind == "sensor noise":
        observed = observed + 0.3 * rng.normal(size=observed.shape)
    return {"states": observed, "actions": actions}


@pytest.mark.parametrize("kind", ["sensor noise", "slow disturbance", "delay", "limit"])
def test_residuals_hint_at_what_spoils_a_log(kind: str) -> None:
    words = {
        "sensor noise": "measured with error",
        "slow disturbance": "slow disturbance",
        "delay": "a delay",
        "limit": "a limit",
    }
    said = str(orl.select(spoiled(kind), LINEAR))
    assert words[kind] in said
    clean = str(orl.select(spoiled("nothing"), LINEAR))
    assert "Hint" not in clean


def test_a_page_has_the_errors(tmp_path: Path) -> None:
    answer = orl.select(table_of(rolled(rubbed, 5, 200)), boxes())
    text = answer.page(tmp_path / "page.html").read_text("utf-8")
    for part in ("Errors on later data", "Evidence over time", "What was assumed"):
        assert part in text
    problem = orl.make_problem("patchy-ice")
    other = orl.run(orl.Occam(ladder=orl.Ladder.of_problem(problem)), problem, episodes=2).answer
    with pytest.raises(NotAvailable):
        _ = other.later_errors


# Doors --------------------------------------------------------------------------------------------


def test_a_function_that_returns_the_change_is_hinted_at() -> None:
    def change(states: Floats, actions: Floats, *, mass: float = 1.0) -> Floats:
        return cart(states, actions, mass=mass) - states

    run = rolled(lambda s, a: cart(s, a, mass=1.37), 3, 120)
    for function, hinted in ((cart, set()), (change, {"change"})):
        box = orl.GreyBox(function, mass=(0.5, 3))
        dynamics = orl.Dynamics({"box": box}, state=["x", "v"], action=["u"])
        evidence, state = weighed(dynamics, run)
        assert {hint.of for hint in hints_of(evidence, state, 0)} == hinted


def test_names_that_are_those_of_other_columns_are_refused() -> None:
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=40) for name in ("x", "v", "u")}
    log = orl.read_log(table, {"episode": None, "state": ["x", "v"], "action": "u"})
    line = {"line": orl.Polynomial(1)}
    assert orl.select(log, orl.Dynamics(line, state=["place", "speed"], action=["u"])).steps
    with pytest.raises(ParameterError, match="order of the log's columns, x, v"):
        orl.select(log, orl.Dynamics(line, state=["v", "x"], action=["u"]))


def test_ladders_are_checked_at_the_door() -> None:
    line: Any = orl.Polynomial(1)
    nothing: Any = None
    names: Any = {"state": ["x"], "action": ["u"]}
    attempts: list[Callable[[], object]] = [
        lambda: orl.Polynomial(-1),
        lambda: orl.Terms([]),
        lambda: orl.Terms(nothing),
        lambda: orl.GreyBox(cart, mass=(3, 1)),
        lambda: orl.GreyBox(nothing),
        lambda: orl.GreyBox(cart, weight=(1, 3)),
        lambda: orl.Rival(nothing),
        lambda: orl.Dynamics({}, **names),
        lambda: orl.Dynamics({"line": cart}, **names),  # type: ignore[dict-item]  # refused
        lambda: orl.Dynamics({"line": line}, state="x", action=["u"]),
        lambda: orl.Dynamics({"line": line}, state=["x"], action=["x"]),
        lambda: orl.Dynamics({"line": line}, tolerance={"y": 1.0}, **names),
        lambda: orl.Dynamics({"line": orl.Polynomial(30)}, state=["x"] * 1, action=["u", "w"]),
        lambda: orl.OccamControl(ladder=LINEAR),
    ]
    for attempt in attempts:
        with pytest.raises(orl.InvalidInput):
            attempt()


def test_what_functions_return_is_checked() -> None:
    def wrong(states: Floats, actions: Floats) -> Floats:
        return states[:1]

    run = table_of(rolled(cart, 0, 60))
    for kind in (orl.GreyBox(wrong), orl.Terms([wrong])):
        dynamics = orl.Dynamics({"wrong": kind}, state=["x", "v"], action=["u"])
        with pytest.raises(ParameterError, match="rows"):
            orl.select(run, dynamics)

    class Broken(Waves):
        def fit(self, inputs: Floats, targets: Floats) -> None:
            raise MemoryError("too many")

    dynamics = orl.Dynamics({"net": orl.Rival(Broken)}, state=["x", "v"], action=["u"])
    with pytest.raises(ParameterError, match=r"net.*too many"):
        orl.select(run, dynamics)
    with pytest.raises(ShapeError):
        orl.select({"states": np.zeros((9, 3)), "actions": np.zeros((9, 1))}, boxes())


# Acting -------------------------------------------------------------------------------------------


def reward(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    return -(next_states[:, 0] ** 2) - 0.1 * next_states[:, 1] ** 2


def task(**options: Any) -> orl.Dynamics:
    return boxes(**options).system(
        reward=reward, horizon=25, actions=orl.Box(-3, 3), start=[0.5, 0.0]
    )


class Rubbed(gym.Env[Any, Any]):
    """A cart with friction; its step fails once asked for."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-3.0, 3.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = np.array([0.5, 0.0])
        return self.state, {}

    def step(self, action: Any) -> Any:
        mean = rubbed(self.state[None], np.array(action, float)[None])[0]
        after = mean + 0.01 * self.np_random.normal(size=2)
        earned = reward(self.state[None], action, after[None])[0]
        self.state = after
        return after, float(earned), False, False, {}


@pytest.mark.parametrize("acting", ["plausible", "sampling"])
def test_a_controller_learns_to_plan_and_goes_on_from_a_file(acting: str, tmp_path: Path) -> None:
    controller = orl.OccamControl(ladder=task(), acting=acting, planner=QUICK)
    whole = orl.learn(controller, Rubbed(), episodes=4, seed=1)
    assert whole.returns[-1] > whole.returns[0]
    half = orl.learn(controller, Rubbed(), episodes=2, seed=1)
    half.save(tmp_path / "half.npz")
    stored = orl.Result.load(tmp_path / "half.npz", controller)
    on = orl.learn(controller, Rubbed(), episodes=2, continue_from=stored)
    assert on.returns.tolist() == whole.returns.tolist()
    assert whole.answer.steps == 100


def test_what_policies_are_worth_is_told_in_what_is_left() -> None:
    controller = orl.OccamControl(ladder=task(), planner=QUICK)
    answer = orl.learn(controller, Rubbed(), episodes=3).answer
    still = answer.worth_of(lambda states, step: np.zeros((len(states), 1)), runs=16)
    assert still.low <= still.value <= still.high
    # at rest it stays where it is, and pays a quarter a step
    assert still.low < -0.25 * 25 < still.high + 1.0
    assert answer.simulated(runs=2, maximum=1).worth.value > still.value
    with pytest.raises(NotAvailable, match=r"dynamics\.system"):
        _ = orl.select(table_of(rolled(rubbed, 5, 60)), boxes()).worth


def test_exogenous_inputs_are_no_prediction() -> None:
    """A room that is warmed by the weather, which a forecast tells for planning."""
    rng = np.random.default_rng(0)
    steps = 300
    outdoor = 10 * np.sin(np.arange(steps + 1) / 20)
    room = [20.0]
    heat = rng.uniform(0, 1, steps)
    for step in range(steps):
        after = room[-1] + 0.1 * (outdoor[step] - room[-1]) + 2 * heat[step] + 0.05 * rng.normal()
        room.append(after)
    columns = np.column_stack([room, outdoor])
    log = {"states": columns[:-1], "actions": heat[:, None], "next_states": columns[1:]}
    dynamics = orl.Dynamics(
        {"linear": orl.Polynomial(1)},
        state=["room"],
        action=["heat"],
        exogenous=["outdoor"],
        forecast=lambda weather: weather - 1.0,
    )
    answer = orl.select(log, dynamics)
    assert answer.model == "linear"
    assert answer.later_errors.classes[0].one == pytest.approx([0.05], rel=0.3)
    simulate = answer.weigher.simulator(answer.state, 0)
    after = simulate(np.array([[20.0, 5.0]] * 50), np.zeros((50, 1)), rng)
    assert after[:, 0].mean() == pytest.approx(18.5, abs=0.1)
    assert (after[:, 1] == 4.0).all()


def test_a_reward_or_an_observation_that_fails_names_its_place() -> None:
    class Blind(Rubbed):
        def step(self, action: Any) -> Any:
            after, *others = super().step(action)
            return (after * np.nan, *others)

    controller = orl.OccamControl(ladder=task(), planner=QUICK)
    with pytest.raises(EnvironmentFault, match="episode 0, step 0"):
        orl.learn(controller, Blind(), episodes=1)

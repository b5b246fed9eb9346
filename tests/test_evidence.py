"""The contract of Evidence, kept by every kind of ladder: one list of kinds, the same tests."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binomtest

import occamrl as orl
from occamrl.addresses import Address
from occamrl.errors import NotAvailable
from occamrl.logs.log import simulate_log
from occamrl.protocols import Evidence, Flow, Judgement, Ladder, ParameterRange, Transition, Worlds
from occamrl.running.storage import Reader, Writer


class Kind(NamedTuple):
    """A kind of ladder, the truth being in its second class."""

    ladder: Any
    evidence: Callable[[float], Any]  # at a level
    data: Callable[[int], Iterator[Any]]  # by seed, one block or step after another


STATES, ACTIONS, HORIZON = 3, 2, 4


@cache
def kernels() -> Any:
    return np.random.default_rng(7).dirichlet(np.full(STATES, 0.4), size=(5, STATES, ACTIONS))


@cache
def finite_mdp() -> orl.FiniteMDP:
    reward = np.linspace(0.0, 1.0, STATES * ACTIONS).reshape(STATES, ACTIONS)
    return orl.FiniteMDP(transition=kernels()[3], reward=reward, horizon=HORIZON)


def flows(seed: int, mdp: orl.FiniteMDP, blocks: int = 12) -> Iterator[Flow]:
    """Yield what a uniform policy shows, block by block, with targets that were fixed before."""
    values = np.linspace(1.0, 0.0, HORIZON + 1)[:, None] * np.arange(mdp.states)
    for block in range(blocks):
        log = simulate_log(mdp, episodes=10, seed=1_000 * seed + block)
        for flow in log.flows(mdp.known, mdp.outcomes):
            yield replace(flow, values=values)


def lists() -> Kind:
    families = [orl.FiniteFamily(kernels()[:2]), orl.FiniteFamily(kernels())]
    ladder = orl.Ladder(families, names=["two", "five"])
    known = finite_mdp().known
    return Kind(
        ladder, lambda delta: ladder.evidence(known, delta), lambda seed: flows(seed, finite_mdp())
    )


def value_rows() -> Kind:
    ladder = lists().ladder
    known = finite_mdp().known
    return Kind(
        ladder,
        lambda delta: ladder.value_evidence(known, delta),
        lambda seed: flows(seed, finite_mdp()),
    )


def linear_classes() -> Kind:
    features = orl.FeatureMap(list(kernels()))
    families = []
    for coordinates in (range(2), range(5)):
        families.append(
            orl.LinearFamily(features=features, norm_bound=1.0, coordinates=coordinates)
        )
    ladder = orl.Ladder(families, names=["two", "five"])
    known = finite_mdp().known
    return Kind(
        ladder, lambda delta: ladder.evidence(known, delta), lambda seed: flows(seed, finite_mdp())
    )


def walk(place: int, way: str, *, rate: float, drift: float = 0.0) -> Iterator[Any]:
    """A walk on four places; it moves with a rate, more often on odd places with a drift."""
    moves = rate + drift * (place % 2)
    ahead = min(place + 1, 3) if way == "up" else max(place - 1, 0)
    yield moves, ahead, 1.0 * (place == 3), False
    yield 1 - moves, place, 1.0 * (place == 3), False


@cache
def model() -> orl.Model:
    bounds = {"rate": (0.1, 0.6), "drift": (0.0, 0.35)}
    return orl.Model(walk, start=0, actions=["up", "down"], horizon=6, parameters=bounds)


def real_parameters() -> Kind:
    ladder = model().ladder({"steady": ["rate"], "with drift": ["rate", "drift"]})
    truth = model().mdp(rate=0.25, drift=0.3)

    def data(seed: int) -> Iterator[Flow]:
        for block in range(12):
            log = simulate_log(truth, episodes=10, seed=1_000 * seed + block)
            yield from log.flows(truth.known, ladder.model.layout)

    return Kind(ladder, lambda delta: ladder.evidence(model().known, delta), data)


def push(states: Any, actions: Any, rng: np.random.Generator, *, wind: float = 0.0) -> Any:
    return states + 0.1 * actions + wind + 0.05 * rng.normal(size=states.shape)


def simulators() -> Kind:
    windy = [partial(push, wind=wind) for wind in (-0.1, 0.1)]
    ladder = orl.SimulatorLadder(
        {"calm": [push], "windy": windy},
        reward=lambda states, actions, after: -np.abs(after[:, 0]),
        horizon=20,
        actions=orl.Box(-1, 1),
        start=[0.0],
        draws=9,
    )

    def data(seed: int) -> Iterator[Transition]:
        draw = np.random.default_rng(seed)
        state = np.zeros(1)
        for step in range(40):
            action = draw.uniform(-1.0, 1.0, 1)
            after = windy[1](state[None], action[None], draw)[0]
            yield Transition(state, action, None, after, False, Address(seed, step))
            state = after

    return Kind(ladder, lambda delta: ladder.evidence(ladder.known, delta), data)


def pushed(states: Any, actions: Any, *, gain: float = 0.1, drag: float = 0.0) -> Any:
    return states + gain * actions - drag * states * np.abs(states)


def fitted_dynamics() -> Kind:
    boxes = {
        "free": orl.GreyBox(pushed, gain=(0.0, 1.0)),
        "drag": orl.GreyBox(pushed, gain=(0.0, 1.0), drag=(0.0, 1.0)),
    }
    dynamics = orl.Dynamics(boxes, state=["x"], action=["u"]).system(
        reward=lambda states, actions, after: -np.abs(after[:, 0]),
        horizon=20,
        actions=orl.Box(-1, 1),
        start=[0.0],
    )

    def data(seed: int) -> Iterator[Transition]:
        draw = np.random.default_rng(seed)
        state = np.zeros(1)
        for step in range(60):
            action = draw.uniform(-1.0, 1.0, 1)
            after = pushed(state, action, gain=0.7, drag=0.4) + 0.01 * draw.normal(size=1)
            yield Transition(state, action, None, after, False, Address(seed, step), step)
            state = after

    return Kind(dynamics, lambda delta: dynamics.evidence(None, delta), data)


KINDS = {
    "fitted dynamics": fitted_dynamics,
    "lists": lists,
    "real parameters": real_parameters,
    "value rows": value_rows,
    "linear classes": linear_classes,
    "simulators": simulators,
}
NO_WORLDS = ("linear classes",)  # which say why
EVERY_KIND = pytest.mark.parametrize("name", KINDS)


def weighed(kind: Kind, seed: int = 0, delta: float = 0.05) -> tuple[Any, Any]:
    evidence = kind.evidence(delta)
    state = evidence.begin()
    for data in kind.data(seed):
        evidence.add(state, data)
    return evidence, state


def same(one: Any, other: Any) -> bool:
    """Say whether two states hold the same numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        pairs = zip(one, other, strict=True)
        return len(one) == len(other) and all(same(a, b) for a, b in pairs)
    return bool(np.array_equal(one, other, equal_nan=isinstance(one, np.ndarray)))


@EVERY_KIND
def test_a_ladder_says_what_its_classes_are(name: str) -> None:
    ladder = KINDS[name]().ladder
    assert isinstance(ladder, Ladder)
    assert len(ladder.names) == len(ladder.sizes) == 2
    assert ladder.kind


@EVERY_KIND
def test_nothing_is_ruled_out_before_any_data(name: str) -> None:
    evidence: Evidence = KINDS[name]().evidence(0.05)
    judgement = evidence.judge(evidence.begin())
    assert isinstance(judgement, Judgement)
    assert judgement.against.shape == (2,)
    assert all(judgement.alive)
    assert judgement.rejected_after == (None, None)
    assert judgement.chosen == 1
    assert not judgement.misspecified


@EVERY_KIND
def test_the_wrong_class_is_ruled_out_and_dated_and_the_right_one_is_left(name: str) -> None:
    evidence, state = weighed(KINDS[name]())
    judgement = evidence.judge(state)
    assert judgement.against[0] > math.log(1.0 / 0.05)
    assert judgement.alive[0] == 0
    assert judgement.rejected_after[0] is not None
    assert judgement.chosen == 2
    assert not judgement.misspecified


@EVERY_KIND
def test_asking_writes_nothing_and_adding_writes_to_the_state_alone(name: str) -> None:
    evidence, state = weighed(KINDS[name]())
    before = copy.deepcopy(state)
    evidence.judge(state)
    evidence.parameters(state, 1)
    evidence.misfits(state, 1)
    evidence.describe(state, 1)
    if name not in NO_WORLDS:
        evidence.worlds(state)
    assert same(before, state)
    # another state of the same evidence is weighed as if it were alone
    again, fresh = weighed(KINDS[name]())
    assert same(fresh, state)
    assert again.judge(fresh).alive == evidence.judge(state).alive


@EVERY_KIND
def test_a_state_that_was_stored_goes_on_as_if_it_had_not_been(name: str) -> None:
    kind = KINDS[name]()
    evidence = kind.evidence(0.05)
    data = list(kind.data(3))
    whole = evidence.begin()
    for block in data:
        evidence.add(whole, block)
    part = evidence.begin()
    for block in data[: len(data) // 2]:
        evidence.add(part, block)
    writer = Writer()
    document = writer.put(part)
    stored = Reader(dict(writer.arrays), writer.objects).get(document)
    for block in data[len(data) // 2 :]:
        evidence.add(stored, block)
    assert same(whole, stored)


@EVERY_KIND
def test_parameters_are_intervals_around_their_best_guess(name: str) -> None:
    evidence, state = weighed(KINDS[name]())
    for interval in evidence.parameters(state, 1).values():
        assert isinstance(interval, ParameterRange)
        assert interval.low <= interval.value <= interval.high


@EVERY_KIND
def test_worlds_value_policies_or_say_why_they_cannot(name: str) -> None:
    evidence, state = weighed(KINDS[name]())
    if name in NO_WORLDS:
        with pytest.raises(NotAvailable, match=name):
            evidence.worlds(state)
        return
    worlds: Worlds = evidence.worlds(state).sized(3, 2)
    policy = worlds.policy(worlds.best(1))
    returns = worlds.returns(policy, worlds.best(1))
    assert returns.ndim == 1
    assert np.array_equal(returns, worlds.returns(policy, worlds.best(1)))  # common random numbers
    low, high = worlds.extremes(lambda world: worlds.returns(policy, world))
    assert low <= high
    assert worlds.recommend(None) is not None


@pytest.mark.parametrize("name", ["lists", "value rows"])
def test_the_right_class_is_ruled_out_as_rarely_as_promised(name: str) -> None:
    """At level one half, by an exact test; each kind's own tests have more runs and controls."""
    runs = 60
    lost = 0
    for seed in range(runs):
        evidence, state = weighed(KINDS[name](), seed, 0.5)
        lost += not evidence.judge(state).alive[1]
    assert binomtest(lost, runs, 0.5, alternative="greater").pvalue > 1e-3

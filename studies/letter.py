"""The letter on classes with real parameters: its radius, its regret, its epochs.

For docs/selection-ladders.md (:mod:`studies.figures`). A walk over four places, of which the last
pays; going right costs something and may fail, with a chance that is the same everywhere (class 1)
or not (class 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.paper import quantities
from occamrl.paper.quantities import occupancy
from occamrl.paper.real_classes import RealClass
from studies.figures import Size, each, interval, play, regrets, table

CHANCES = {"low": 0.7, "high": 0.3}  # of the truth
EFFORT = 0.15
FIRST_SEED = 9_500


def walk(place: int, right: int, *, low: float, high: float = 0.9) -> Iterator[Any]:
    """Yield what a step leads to."""
    chance = low if place < 2 else high
    pays = float(place == 3) - EFFORT * right
    if right:
        yield chance, min(place + 1, 3), pays, False
        yield 1 - chance, max(place - 1, 0), pays, False
    else:
        yield 1.0, max(place - 1, 0), pays, False


@cache
def ladder() -> orl.ParametricLadder:
    """Return two classes with real parameters."""
    box = {"low": (0.1, 0.9), "high": (0.1, 0.9)}
    model = orl.Model(walk, start=0, actions=[0, 1], horizon=8, parameters=box)
    return model.ladder({"one chance": ["low"], "two chances": ["low", "high"]})


def gap_of(real: RealClass, state: Any, chances: dict[str, float]) -> float:
    """Return L(P*, P) for the estimate of a class."""
    z = real.predictions(state, [real.estimate(state)[0]])[0]
    targets = state["targets"][state["target"]]
    truth = np.einsum("us,us->u", real.kernel_at(chances)[state["pair"]], targets)
    return float((z - truth) ** 2 @ state["count"])


def coverage(size: Size) -> str:
    """Measure how often the truth leaves the set, at any of 4, 8, ..., 64 episodes."""
    mdp = ladder().model.mdp(**CHANCES)
    agent = orl.paper.UCRLVTR(family=ladder().only(2))
    real = agent.real
    if real is None:
        raise TypeError("the class has real parameters")
    lengths = [4, 8, 16, 32, 64]

    def job(i: int) -> list[float]:
        shares = []
        result = None
        for before, length in zip([0, *lengths], lengths, strict=False):
            episodes = size.episodes(length - before)
            seed = FIRST_SEED + i
            result = orl.run(
                agent, mdp, episodes=episodes, seed=seed, progress=False, continue_from=result
            )
            gap = gap_of(real, result.state, CHANCES)
            shares.append(gap / agent.beta(mdp.horizon, result.total_episodes))
        return shares

    shares = np.array(each(size, size.seeds(200), job, "coverage"))
    rows = []
    for factor in (1.0, 1e-2, 1e-3, 1e-4):
        lost = int((shares > factor).any(axis=1).sum())
        upper = binomtest(lost, len(shares)).proportion_ci(0.95).high
        rows.append((f"{factor:g}", f"{lost} of {len(shares)}", f"{upper:.3f}"))
    largest = f"the largest share of the radius was {shares.max():.2g}"
    head = (
        f"part of the radius; {largest}",
        "runs that lose the truth",
        "upper end of the 95% interval",
    )
    return table(head, rows)


def regret(size: Size) -> str:
    """Measure regret beside lists and the sharp forms."""
    mdp = ladder().model.mdp(**CHANCES)
    values = np.linspace(0.1, 0.9, 9).tolist()
    listed = ladder().model.family({"low": values, "high": values})
    cast: dict[str, orl.Learner] = {
        "letter, real parameters": orl.paper.UCRLVTR(family=ladder().only(2)),
        "letter, list of 81": orl.paper.UCRLVTR(family=listed),
        "sharp, list of 81": orl.UCRLVTR(family=listed),
        "Occam, real parameters": orl.Occam(ladder=ladder().only(2)),
    }
    rows = []
    for name, runs in play(size, cast, mdp, 500, 10, FIRST_SEED, "regret").items():
        rows.append((name, interval(regrets(runs)), f"{np.mean([one.tail for one in runs]):.2g}"))
    return table(("walk, K = 500, 10 seeds", "regret", "per episode at the end"), rows)


class Forecast(NamedTuple):
    """What an epoch on class 1 is expected to show."""

    gap: float  # T_1 - T_2
    epoch: int | None  # in which class 1 is rejected


def forecast(mdp: orl.FiniteMDP) -> Forecast:
    """Return the expected T_1 - T_2 where all of class 1 is left, and the epoch it implies."""
    real = RealClass(ladder().only(1))
    start = int(mdp.known.may_start.argmax())

    def worth(points: list[tuple[int, ...]]) -> Any:
        return np.array([real.solved(mdp.known, point).values[0, start] for point in points])

    member = real.solved(mdp.known, real.search(worth, real.cloud)[0])
    truth = mdp.kernel().reshape(-1, mdp.states)
    visits = occupancy(truth, member.policy, mdp.initial_distribution)

    def nearness(points: list[tuple[int, ...]]) -> Any:
        gaps = [((real.kernel(point) - truth) @ member.values[1:].T) ** 2 for point in points]
        return -np.array([np.einsum("ph,hp->", gap, visits) for gap in gaps])

    gap = -real.search(nearness, real.cloud)[1] / mdp.horizon
    # the lattice of the search is not fine enough for less
    epoch = quantities.rejecting_epoch(gap) if gap > 1e-9 else None
    return Forecast(gap, epoch)


def epochs(size: Size) -> str:
    """Measure which class ARL-GEN plays in each epoch, and in which it was expected to leave."""
    rows = []
    for high in size.some((0.2, 0.3, 0.5, 0.9)):
        mdp = ladder().model.mdp(low=0.7, high=high)
        expected = forecast(mdp)
        agent = orl.paper.ARLGen(ladder=ladder())
        runs = play(size, {"letter": agent}, mdp, 510, 3, FIRST_SEED, f"high = {high}")["letter"]
        seen = []
        for one in runs:
            chosen = {row["epoch"]: row["chosen"] for row in one.phases}
            seen.append("".join(str(chosen[i]) for i in sorted(chosen)))
        rows.append(
            (
                f"{high:g}",
                str(ladder().class_of(mdp)),
                f"{expected.gap:.3f}",
                expected.epoch or "never",
                ", ".join(dict.fromkeys(seen)),
            )
        )
    head = ("chance in the upper half", "class needed", "expected T_1 - T_2")
    return table(
        (*head, "first epoch of class 2, predicted", "class by epoch, seen (3 seeds)"), rows
    )

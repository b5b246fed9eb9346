"""Defaults: what scope and acting cost, like for like.

    python -m studies.figures --part defaults:lists
    python -m studies.figures --part defaults:large
    python -m studies.figures --part defaults:real
    python -m studies.figures --part defaults:week

For docs/occam.md (:mod:`studies.figures`). In a row all runs are of Occam on one truth. The first
four columns act alike, as is the default for the ladder, so that they differ only in the classes
they play: the smallest that is left, all that are left (the default), the class of the truth alone,
the largest alone. The last column plays all and acts the other way. Seeds from 20,000 on, which
nothing was tuned on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.evidence.worlds import Acting
from occamrl.problems.lakes import FrozenLake, PatchyIce
from occamrl.problems.mixtures import ReferenceLadder, SparseLadder
from occamrl.problems.operations import (
    LostSales,
    MachineReplacement,
    PracticalProblem,
    Pricing,
    QueueAdmission,
    WeekdayInventory,
)
from occamrl.protocols import Floats
from studies.figures import Size, each, number, ratio, table

FIRST_SEED = 20_000
SEEDS = 10
EPISODES = 10_000
EARLY = 1_000  # episodes after which regret is shown, too
_LOST = 0.1  # of the optimal value, in each episode of the second half


class Fooling(NamedTuple):
    """A ladder of two classes of levers; the truth is the first member that the second adds."""

    small: list[list[float]]  # chances of the actions, by member
    added: list[list[float]]
    prices: list[float]
    steps: int = 1


FOOLING = {
    "untried action": Fooling([[0.5, 0.1]], [[0.5, 0.9]], [1.0, 1.0]),
    "route": Fooling([[0.5, 0.6], [0.6, 0.6]], [[0.5, 0.95], [0.6, 0.95]], [1.0, 1.0], 3),
    "prices": Fooling([[0.8, 0.3, 0.1]], [[0.8, 0.7, 0.2], [0.8, 0.3, 0.8]], [0.4, 0.6, 1.0]),
    "bridge": Fooling([[0.4, 0.05], [0.6, 0.05]], [[0.5, 0.9], [0.4, 0.9], [0.6, 0.9]], [1.0, 1.0]),
}


def levers(chances: list[float], prices: list[float], steps: int) -> orl.FiniteMDP:
    """Return a choice of actions: the first pays at once, the others after several successes."""
    end = steps + 1
    transition = np.zeros((steps + 2, len(chances), steps + 2))
    reward = np.zeros_like(transition)
    for action, chance in enumerate(chances):
        for state in range(steps):
            pays = action == 0 or state == steps - 1
            following = steps if pays else state + 1
            transition[state, action, following] = chance
            transition[state, action, end] = 1.0 - chance
            if pays:
                reward[state, action, following] = prices[action]
    transition[steps:, :, end] = 1.0
    return orl.FiniteMDP(transition=transition, reward=reward, horizon=steps + 1)


class Instance(NamedTuple):
    """A truth and its ladder."""

    name: str
    mdp: orl.FiniteMDP
    ladder: Any


def fooling(name: str) -> Instance:
    """Return a ladder of two lists in which a wrong class confirms itself."""
    ladder = FOOLING[name]
    kernels = []
    for chances in [*ladder.small, *ladder.added]:
        kernels.append(levers(chances, ladder.prices, ladder.steps).kernel())
    small = orl.FiniteFamily(np.array(kernels[: len(ladder.small)]))
    truth = levers(ladder.added[0], ladder.prices, ladder.steps)
    return Instance(name, truth, orl.Ladder([small, orl.FiniteFamily(np.array(kernels))]))


def named(problems: Mapping[str, Any]) -> Iterator[Instance]:
    """Yield the ladders of problems."""
    for name, problem in problems.items():
        yield Instance(name, problem.mdp, orl.Ladder.of_problem(problem))


def list_instances() -> Iterator[Instance]:
    """Yield the ladders that fool, and small ladders of lists that come with the package."""
    for name in FOOLING:
        yield fooling(name)
    yield from named(
        {
            "sparse ladder": SparseLadder(),
            "reference ladder": ReferenceLadder(nonzero=1),
            "lake 4x4": FrozenLake(slip=(6, 6)),
            "pricing, 3 prices": Pricing(**Pricing.small[0]),
        }
    )


def large_instances() -> Iterator[Instance]:
    """Yield the ladders with thousands of members."""
    yield from named(
        {
            "patchy ice": PatchyIce(),
            "patchy ice, slippery": PatchyIce(slip=(0.1, 0.0)),
            "pricing": Pricing(),
        }
    )


def real_instances(kinds: Mapping[str, type[PracticalProblem]]) -> Iterator[Instance]:
    """Yield, for each practical problem with real parameters, a truth that needs each class."""
    for name, kind in kinds.items():
        for problem in kind.truths():
            yield Instance(f"{name}, {problem.mdp.known.unit_name}", problem.mdp, problem.ladder)


def alone(ladder: Any, m: int) -> Any:
    """Return a ladder of one class."""
    if isinstance(ladder, orl.Ladder):
        return orl.Ladder([ladder.family_of(m)])
    return ladder.only(m)


class Runs(NamedTuple):
    """What runs of an agent lost."""

    early: Floats  # the regret after EARLY episodes
    regrets: Floats  # after all
    lost: int  # runs that lost everything

    def cell(self) -> str:
        """Return the mean regrets, the largest, and how many runs lost everything."""
        early = number(float(self.early.mean()))
        mean = float(self.regrets.mean())
        largest = number(float(self.regrets.max()), mean)
        lost = f"; {self.lost} lost" if self.lost else ""
        return f"{early}, {number(mean)} ({largest}{lost})"


def played(size: Size, agent: orl.Learner, mdp: orl.FiniteMDP, label: str) -> Runs:
    """Play an agent; a run that loses much in every late episode has lost everything."""
    assert mdp.known.initial is not None  # noqa: S101  # of problems with a known start
    optimal = abs(mdp.known.unit.scale * float(mdp.known.initial @ mdp.optimal_values[0]))
    length = size.episodes(EPISODES)
    half = length // 2

    def job(i: int) -> tuple[float, float, float]:
        result = orl.run(agent, mdp, episodes=length, seed=FIRST_SEED + i, progress=False)
        early, middle = result.regret_at([min(EARLY, length), half]).tolist()
        return early, middle, result.total_regret

    early, middle, total = np.array(each(size, size.seeds(SEEDS), job, label)).T
    lost = int((total - middle > _LOST * optimal * (length - half)).sum())
    return Runs(early, total, lost)


HEAD = (
    "class of the truth",
    "acting",
    "the smallest left",
    "all left, the default",
    "told the class",
    "the largest",
    "default / told",
    "all left, acting otherwise",
)
_OTHER: dict[str, Acting] = {"optimism": "sampling", "sampling": "optimism"}


def line(size: Size, instance: Instance) -> list[str]:
    """Return the regret of one truth by scope and acting."""
    name, mdp, ladder = instance
    m = ladder.class_of(mdp) or ladder.classes
    default = orl.Occam(ladder=ladder)
    agents = {
        "smallest": orl.Occam(ladder=ladder, scope="smallest"),
        "default": default,
        "told": orl.Occam(ladder=alone(ladder, m)),
        "largest": orl.Occam(ladder=alone(ladder, ladder.classes)),
        "otherwise": orl.Occam(ladder=ladder, acting=_OTHER[default.acts]),
    }
    runs: dict[str, Runs] = {}
    for label, agent in agents.items():
        runs[label] = played(size, agent, mdp, f"{name} {m}, {label}")
    price = ""
    if runs["told"].regrets.any():
        price = ratio(runs["default"].regrets, runs["told"].regrets)
    cells = [runs[label].cell() for label in ("smallest", "default", "told", "largest")]
    other = runs["otherwise"].cell()
    return [name, f"{m} of {ladder.classes}", default.acts, *cells, price, other]


def measured(size: Size, instances: Iterable[Instance]) -> str:
    """Return the table of some instances."""
    rows = [line(size, instance) for instance in size.some(instances)]
    count = size.seeds(SEEDS)
    title = f"regret after {EARLY:,} and {EPISODES:,} episodes, mean (largest) of {count} seeds"
    return table([title, *HEAD], rows)


def lists(size: Size) -> str:
    """Measure small ladders of lists, and those that fool."""
    return measured(size, list_instances())


def large(size: Size) -> str:
    """Measure ladders of thousands of members."""
    return measured(size, large_instances())


def real(size: Size) -> str:
    """Measure classes with real parameters."""
    kinds: dict[str, type[PracticalProblem]] = {
        "lost sales": LostSales,
        "queue admission": QueueAdmission,
        "machine replacement": MachineReplacement,
    }
    return measured(size, real_instances(kinds))


def week(size: Size) -> str:
    """Measure the slowest of them."""
    return measured(size, real_instances({"weekday inventory": WeekdayInventory}))

"""Defaults: regret of selectors by scope, beside the same algorithm told the class.

    python -m studies.defaults --seeds 8 --episodes 300

"smallest" is the paper's scope with optimism; "told" and "largest" are the same algorithm, with its
defaults, on one class alone. All of them act at the falling level (B13).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl

LISTS = ("patchy-ice", "sparse-ladder", "reference-ladder", "pricing")
REAL = ("lost-sales", "weekday-inventory", "queue-admission", "machine-replacement")
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


def fooling(ladder: Fooling) -> tuple[orl.FiniteMDP, orl.Ladder]:
    """Return the truth and the ladder."""
    kernels = []
    for chances in [*ladder.small, *ladder.added]:
        kernels.append(levers(chances, ladder.prices, ladder.steps).kernel())
    small = orl.FiniteFamily(np.array(kernels[: len(ladder.small)]))
    truth = levers(ladder.added[0], ladder.prices, ladder.steps)
    return truth, orl.Ladder([small, orl.FiniteFamily(np.array(kernels))])


def instances(names: list[str]) -> Iterator[tuple[str, orl.FiniteMDP, Any]]:
    """Yield a name, a truth and its ladder."""
    for name in names:
        if name in FOOLING:
            yield (name, *fooling(FOOLING[name]))
        else:
            problem: Any = orl.make_problem(name)
            yield name, problem.mdp, orl.Ladder.of_problem(problem)


def alone(ladder: Any, m: int) -> Any:
    """Return a ladder of one class."""
    if isinstance(ladder, orl.Ladder):
        return orl.Ladder([ladder.family_of(m)])
    return ladder.only(m)


class Regret(NamedTuple):
    """What runs of an agent lost."""

    mean: float
    worst: float
    lost: int  # runs that lost everything


def measured(agent: orl.Learner, mdp: orl.FiniteMDP, episodes: int, seeds: int) -> Regret:
    """Play."""
    assert mdp.known.initial is not None  # noqa: S101  # of problems with a known start
    optimal = float(mdp.known.initial @ mdp.optimal_values[0])
    half = episodes // 2
    regrets = []
    lost = 0
    for seed in range(seeds):
        result = orl.run(agent, mdp, episodes=episodes, seed=seed, progress=False)
        late = result.total_regret - float(result.regret_at(half))
        late /= mdp.known.unit.scale  # regret is in the user's unit, values are not
        lost += late > _LOST * optimal * (episodes - half)
        regrets.append(result.total_regret)
    return Regret(float(np.mean(regrets)), max(regrets), lost)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--only", nargs="*", default=[*FOOLING, *LISTS, *REAL])
    options = parser.parse_args()
    print("| mean regret (worst, lost) | smallest | default | told | largest | default / told |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, mdp, ladder in instances(options.only):
        m = ladder.class_of(mdp) or ladder.classes
        agents = {
            "smallest": orl.Occam(ladder=ladder, acting="optimism", scope="smallest"),
            "default": orl.Occam(ladder=ladder),
            "told": orl.Occam(ladder=alone(ladder, m)),
            "largest": orl.Occam(ladder=alone(ladder, ladder.classes)),
        }
        cells = [f"{name}, class {m} of {ladder.classes}"]
        means = {}
        for label, agent in agents.items():
            regret = measured(agent, mdp, options.episodes, options.seeds)
            means[label] = regret.mean
            cells.append(f"{regret.mean:.3g} ({regret.worst:.3g}, {regret.lost})")
        price = "-"
        if means["told"] > 0.0:
            price = f"{means['default'] / means['told']:.2f}"
        print(f"| {' | '.join([*cells, price])} |", flush=True)


if __name__ == "__main__":
    main()

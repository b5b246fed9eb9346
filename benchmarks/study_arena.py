"""What the open protocols cost: a learner in plain NumPy, and rules that choose a base before every episode."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import occamrl as orl
from benchmarks.figures import Size, number, table
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import SparseMixture
from occamrl.protocols import Episode, EpisodeLearner, Ints, Known, Played, Replay, Rule
from occamrl.selectors.references import oracle


@dataclass(frozen=True, kw_only=True, eq=False)
class Fixed(EpisodeLearner):
    """Follow a table and learn nothing: what is left is the cost of the protocol."""

    table: Ints

    def begin(self, known: Known) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def plan(self, known: Known, state: Any, start: int, draw: np.random.Generator) -> Ints:
        """Return the table."""
        return self.table

    def learn(self, known: Known, state: Any, episode: Episode) -> None:
        """Learn nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AtRandom(Rule):
    """Play any base, all being equally likely; with ``twice``, replay one of its past policies afterwards."""

    twice: bool = False

    @property
    def replays(self) -> bool:
        """Whether past policies are kept."""
        return self.twice

    def start(self, bases: int) -> dict[str, Any]:
        """Return the number of bases, and the base whose replay is due."""
        return {"bases": bases, "due": -1}

    def choose(self, memory: dict[str, Any], draw: np.random.Generator) -> int | Replay:
        """Draw a base, or replay."""
        return Replay(memory["due"]) if memory["due"] >= 0 else int(draw.integers(memory["bases"]))

    def update(self, memory: dict[str, Any], base: int, played: Played) -> None:
        """Ask for a replay."""
        memory["due"] = base if self.twice and not played.replay else -1


def processor_time(agent: Any, problem: Any, episodes: int) -> float:
    """Return the seconds of processor time that an episode takes, the smallest of five runs on from the first."""
    result = orl.run(agent, problem, episodes=episodes, seed=1, progress=False)
    times = []
    for _ in range(5):
        began = time.process_time()
        result = orl.run(agent, problem, episodes=episodes, progress=False, continue_from=result)
        times.append(time.process_time() - began)
    return min(times) / episodes


def speed(size: Size) -> str:
    """Measure microseconds of processor time an episode."""
    mixture = SparseMixture(dimension=16)
    lines: dict[str, Callable[[], tuple[Any, Any]]] = {
        "a plain learner that does nothing": lambda: (Fixed(table=np.array(mixture.mdp.optimal_policy)), mixture),
        "one of five linear bases, at random": lambda: (linear_arena(mixture, AtRandom()), mixture),
        "the same, each play followed by a replay": lambda: (linear_arena(mixture, AtRandom(twice=True)), mixture),
        "one of them by Stochastic CORRAL": lambda: (
            linear_arena(mixture, orl.StochasticCORRAL(episodes=size.episodes(120_000))),
            mixture,
        ),
        "one of four classes of patchy ice, 6,561 kernels in the largest": ice_arena,
    }
    rows, episodes = [], size.episodes(20_000)
    for name, make in list(lines.items())[: 1 if size.tiny else None]:
        rows.append((name, number(1e6 * processor_time(*make(), episodes))))
    return table(("an episode of", "us"), rows)


def linear_arena(problem: SparseMixture, rule: Rule) -> orl.Arena:
    """Return UCRL-VTR-LIN with five different radii."""
    features = orl.FeatureMap(problem.phi)
    bases = [orl.UCRLVTRLin(features=features, norm_bound=1.0, scale=0.1 * 2**i) for i in range(5)]
    return orl.Arena(bases=bases, rule=rule)


def ice_arena() -> tuple[orl.Arena, PatchyIce]:
    """Return UCRL-VTR on each class of patchy ice."""
    problem = PatchyIce(slip=(0.0, 0.1, 0.1, 1 / 3))
    ladder = orl.Ladder.of_problem(problem)
    return orl.Arena(bases=[oracle(ladder, m) for m in range(1, 5)], rule=AtRandom()), problem

"""Selection on ladders: what ARL-GEN finds, when, and whether that pays.

For docs/selection-ladders.md and docs/problems (:mod:`studies.figures`): mean regret, and the
episode since which the class at the end has been in play (median, latest). All agents meet the same
seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.addresses import stream
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mixtures import ReferenceLadder, SparseMixture
from occamrl.problems.operations import Pricing
from occamrl.protocols import Ints, Problem
from studies.figures import Panel, Played, Runs, Size, curves, number, picture, play, regrets, table


def on_class(ladder: orl.Ladder, m: int) -> orl.Learner:
    """Return ARL-GEN on class m of a ladder alone, from 1, right or wrong."""
    return orl.ARLGen(ladder=ladder.only(m))


AGENTS: dict[str, Callable[[orl.Ladder, int], orl.Learner]] = {
    "ARL-GEN": lambda ladder, m: orl.ARLGen(ladder=ladder),
    'scope="smallest"': lambda ladder, m: orl.ARLGen(ladder=ladder, scope="smallest"),
    "oracle": on_class,
    "largest class": lambda ladder, m: on_class(ladder, ladder.classes),
    "smallest class": lambda ladder, m: on_class(ladder, 1),
}
REFERENCE = 2**14 - 2  # episodes on the reference ladder: whole epochs of the paper's ARL-GEN
SINCE = "right class at the end, since episode (median, latest)"


def agents(ladder: orl.Ladder, m: int, *names: str) -> dict[str, orl.Learner]:
    """Return ARL-GEN and its reference points, those that are named or all."""
    return {name: AGENTS[name](ladder, m) for name in names or AGENTS}


def mean(results: Sequence[Played], scale: float = 1.0) -> str:
    """Return the mean regret, times ``scale``."""
    return number(scale * float(regrets(results).mean()))


class HasPhases(Protocol):
    """A run, or what is kept of one."""

    @property
    def phases(self) -> list[dict[str, Any]]:
        """A row for each stretch of equal decisions."""


def class_at_end(results: Sequence[HasPhases], m: int) -> str:
    """Return in how many runs class m was in play at the end, and since when (median, latest)."""
    last = [one.phases[-1] for one in results]
    since = [phase["since"] for phase in last if phase["chosen"] == m]
    text = f"{len(since)}/{len(last)}"
    if since:
        text += f": {np.median(since):.0f}, {max(since)}"
    return text


def preflight(ladder: orl.Ladder, problem: Problem, episodes: int, **options: Any) -> str:
    """Return what the preflight says before any data, as an indented block."""
    report = orl.preflight(ladder, problem.mdp.known, episodes=episodes, **options)
    return "\n".join(f"    {line}" for line in str(report).splitlines())


def line(played: Runs, m: int, scale: float = 1.0) -> list[str]:
    """Return what the tables show of the runs on one problem; regret times ``scale``."""
    first, *others = played.values()
    regrets_of_others = [mean(results, scale) for results in others]
    return [mean(first, scale), class_at_end(first, m), *regrets_of_others]


def header(played: Runs) -> list[str]:
    """Return the heads of the columns of :func:`line`."""
    first, *others = played
    return [first, SINCE, *others]


def classes(size: Size) -> str:
    """Measure the reference ladder of 1, 17, 129 and 577 kernels, for every m*."""
    rows = []
    panels = []
    for m in size.some(range(1, 5)):
        problem = ReferenceLadder(nonzero=m - 1)
        cast = agents(orl.Ladder.of_problem(problem), m)
        played = play(size, cast, problem, REFERENCE, 10, label=f"m* = {m}")
        rows.append([m, *line(played, m)])
        lines = curves(played, size.episodes(REFERENCE))
        panels.append(Panel(f"reference ladder, m* = {m}", lines, beyond="smallest class"))
    picture(size, "selection-ladders.png", panels)
    return table(["class needed; 16,382 episodes, 10 seeds", *header(played)], rows)


def paper(size: Size) -> str:
    """Measure which classes the paper's ARL-GEN plays, epoch by epoch."""
    rows = []
    for m in size.some((2, 3, 4)):
        problem = ReferenceLadder(nonzero=m - 1)
        selector = orl.paper.ARLGen(ladder=orl.Ladder.of_problem(problem))
        one = play(size, {"paper": selector}, problem, REFERENCE, 1)["paper"][0]
        # of a class that changes within an epoch, the last
        epochs = {row["epoch"]: row["chosen"] for row in one.phases}
        chosen = ", ".join(str(epochs[i]) for i in sorted(epochs))
        rows.append((m, number(one.regret), chosen))
    head = ("class needed; 16,382 episodes, one seed", "regret", "class in play, epoch by epoch")
    return table(head, rows)


def false_rejection(size: Size) -> str:
    """Measure how often the true class is rejected, with the test and without its slack."""
    problem = ReferenceLadder(nonzero=1)
    ladder = orl.Ladder.of_problem(problem)
    rows = []
    for name, delta in (("the test", 0.05), ("without its slack log(1/delta)", 0.999)):
        cast = {name: orl.ARLGen(ladder=ladder, delta=delta)}
        played = play(size, cast, problem, 1022, 400, label=name)[name]
        rejected = sum(max(row["chosen"] for row in one.phases) > 2 for one in played)
        upper = binomtest(rejected, len(played)).proportion_ci(0.95).high
        rows.append((name, f"{rejected} of {len(played)}", f"{upper:.3f}"))
    return table(
        (
            "class 2 needed, 1,022 episodes, delta = 0.05",
            "runs that rejected F_2",
            "upper end of the 95% interval",
        ),
        rows,
    )


def ice(size: Size) -> str:
    """Measure patchy ice, where selection pays."""
    rows = []
    for name, slip in size.some(
        (
            (".1 everywhere", (0.1,)),
            (".1 left, 0 right", (0.1, 0.0)),
            ("0, .1, .1, 1/3 in four strips", (0.0, 0.1, 0.1, 1 / 3)),
            ("a slip for every column", (0.0, 0.1, 0.1, 0.0, 1 / 3, 0.1, 0.1, 0.0)),
        )
    ):
        problem = PatchyIce(slip=slip)
        ladder = orl.Ladder.of_problem(problem)
        m = ladder.class_of(problem.mdp) or 0
        played = play(size, agents(ladder, m), problem, 2**13 - 2, 5, label=name)
        rows.append([name, m, *line(played, m)])
    return table(["slip; 8,190 episodes, 5 seeds", "class needed", *header(played)], rows)


def pricing(size: Size) -> str:
    """Measure the pricing ladder, where a wrong small class confirms itself."""
    problem = Pricing(**Pricing.small[0]) if size.tiny else Pricing()  # else 65,536 kernels
    ladder = orl.Ladder.of_problem(problem)
    m = ladder.class_of(problem.mdp) or 0
    # Before any data: that a wrong class can confirm itself.
    said = preflight(ladder, problem, 2**12 - 2)
    played = play(size, agents(ladder, m), problem, 2**12 - 2, 5)
    return (
        said
        + "\n\n"
        + table(["class needed; 4,094 episodes, 5 seeds", *header(played)], [[m, *line(played, m)]])
    )


Linear = tuple[orl.Ladder, orl.FiniteMDP, int]  # a ladder, its truth, and episodes


def coordinates() -> Linear:
    """Return the ladder of the first 1 ... 9 coordinates of a sparse mixture, the truth at 3."""
    mixture = SparseMixture(
        states=12, actions=3, horizon=10, dimension=9, nonzero=3, gamma=0.5, seed=0
    )
    features = orl.FeatureMap(mixture.phi)
    bound = float(np.linalg.norm(mixture.theta))
    # The coordinates that matter come first.
    others = np.setdiff1d(np.arange(9), mixture.support)
    order = np.append(mixture.support, others).tolist()
    parts = []
    for size in range(1, 10):
        parts.append(
            orl.LinearFamily(features=features, norm_bound=bound, coordinates=order[:size])
        )
    return orl.Ladder(parts), mixture.mdp, 2**14 - 2


def swim(states: int, horizon: int, zones: int, left_reward: float = 0.005) -> orl.FiniteMDP:
    """Return a river whose current is the same along each of some zones of equal length.

    Swimming left is sure, and pays a little in the first state; swimming right goes up or down with
    the probabilities of the zone, and pays 1 in the last state.
    """
    # The address that these currents were first drawn at: recorded regrets refer to them.
    draw = stream(0, "river_zones")
    up = np.repeat(draw.uniform(0.3, 0.75, zones), states // zones)
    down = np.repeat(draw.uniform(0.02, 0.2, zones), states // zones)
    transition = np.zeros((states, 2, states))
    for s in range(states):
        transition[s, 0, river_moves(states)[s, 0, 0]] = 1.0
        law = [down[s], 1.0 - up[s] - down[s], up[s]]
        np.add.at(transition[s, 1], river_moves(states)[s, 1], law)
    reward = np.zeros((states, 2))
    reward[0, 0] = left_reward
    reward[-1, 1] = 1.0
    return orl.FiniteMDP(transition=transition, reward=reward, horizon=horizon)


def river_moves(states: int) -> Ints:
    """Return where moves lead [S, 2, 3]: down, stay, up; swimming left has one move, down."""
    moves = np.full((states, 2, 3), -1)
    for s in range(states):
        below = max(s - 1, 0)
        moves[s, 0, 0] = below
        moves[s, 1] = below, s, min(s + 1, states - 1)
    return moves


def river_ladder(states: int, zones: Sequence[int]) -> orl.Ladder:
    """Return the river seen through partitions into so many zones."""
    classes = []
    for count in zones:
        partition = np.arange(states) // (states // count)
        classes.append(orl.AggregationFamily(partition=partition, moves=river_moves(states)))
    return orl.Ladder(classes)


def river(left_reward: float) -> Linear:
    """Return the river of 24 states seen through 2, 4, 8 and 24 blocks, the truth at 8."""
    mdp = swim(24, 48, 8, left_reward)
    return river_ladder(24, (2, 4, 8, 24)), mdp, 2**12 - 2


def linear(size: Size) -> str:
    """Measure linear ladders: coordinates, and aggregations of a river."""
    rows = []
    panels = []
    cases = (
        ("coordinates 1 ... 9", coordinates(), 10),
        ("river, home pays .005", river(0.005), 5),
        ("river, home pays .03", river(0.03), 2),
    )
    for title, (ladder, mdp, episodes), seeds in size.some(cases):
        m = ladder.class_of(mdp) or 0
        cast = agents(ladder, m, "ARL-GEN", "oracle", "largest class", "smallest class")
        played = play(size, cast, mdp, episodes, seeds, label=title)
        rows.append([title, f"{episodes:,}", seeds, m, *line(played, m)])
        lines = curves(played, size.episodes(episodes))
        panels.append(Panel(f"{title}, m* = {m}", lines, beyond="smallest class"))
    picture(size, "selection-ladders-linear.png", panels)
    return table(["ladder", "episodes", "seeds", "class needed", *header(played)], rows)

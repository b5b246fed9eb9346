"""Problems that others made: grids of Gymnasium, textbook inventories, and drifts.

    python -m studies.external grids            Gymnasium's grids, which come with the package
    python -m studies.external inventory        needs stockpyl
    python -m studies.external drift            needs river

``grids``: what selection costs on Gymnasium's own tables, with the ladders that come with the
package, and what learners and rules of others lose on the same episodes.

``inventory``: stockpyl solves order-up-to problems with Poisson demand exactly (Snyder and Shen,
Fundamentals of Supply Chain Theory: a newsvendor in every period, and (s, S) policies by the
algorithm of Zheng and Federgruen, 1991). Is our optimum the same a period, in the long run? And
what does the policy lose that a log of 30 seasons recommends, whose demand nobody told?

``drift``: river's STAGGER stream changes its rule. After how many items is it noticed, by the alarm
of an agent that guesses, and by river's detectors on its errors?
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from scipy.stats import nbinom, poisson

import occamrl as orl
from occamrl.envs.wrapper import FiniteEnvironment
from occamrl.protocols import Floats
from occamrl.running.flow import simulate

HORIZON = 20  # periods of a season
LONG = 80  # after which one more period costs what it costs in the long run
SEASONS = 30  # of a log
MOST = 26  # demand in a period
DEEPEST = -40  # backorders
LARGEST = 24  # order
DELTA = 0.05


# Grids --------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """An environment of Gymnasium, and the ladder that comes with the package."""

    name: str
    ladder: str
    environment: str
    options: dict[str, Any]


GRIDS = (
    Grid("FrozenLake-v1", "frozen-lake-4x4", "FrozenLake-v1", {}),
    Grid("FrozenLake-v1, 8x8", "frozen-lake-8x8", "FrozenLake-v1", {"map_name": "8x8"}),
    Grid("CliffWalking-v1", "cliff-walking", "CliffWalking-v1", {}),
    Grid("CliffWalking-v1, slippery", "cliff-walking", "CliffWalking-v1", {"is_slippery": True}),
    Grid("Taxi-v4", "taxi", "Taxi-v4", {}),
    Grid("Taxi-v4, rainy", "taxi", "Taxi-v4", {"is_rainy": True}),
)
EPISODES = 200


def grid_agents(ladder: orl.Ladder, right: int) -> dict[str, orl.Learner]:
    """Return the selector with its references, and what others would use."""
    forgiven = ladder.reach[-1]  # between the mixtures that are listed
    occam = orl.Occam(ladder=ladder, tolerance=forgiven)
    classes = range(1, len(ladder.sizes) + 1)
    bases = [orl.Occam(ladder=ladder.only(m), tolerance=forgiven) for m in classes]
    known = {"told": orl.oracle(occam, None, class_=right), "selecting": occam}
    known["selecting, smallest"] = orl.Occam(ladder=ladder, tolerance=forgiven, scope="smallest")
    known["largest"] = orl.largest(occam)
    known["selecting, by draws"] = orl.Occam(ladder=ladder, tolerance=forgiven, acting="sampling")
    return known | {
        "PSRL on the largest": orl.PSRL(ladder=ladder),
        "D3RB over classes": orl.Arena(bases=bases, rule=orl.D3RB()),
        "PSRL on tables": orl.PSRL(),
        "UCBVI, bonus / 10": orl.UCBVI(episodes=EPISODES, scale=0.1),
    }


def grids(runs: int) -> None:
    """Print exact regret in the environment's unit, and when the right class was found."""
    head = ""
    for grid in GRIDS:
        spec = orl.read_ladder(grid.ladder)
        env = FiniteEnvironment(
            gym.make(grid.environment, **grid.options),
            known=spec.known,
            reward_range=tuple(spec.rewards),
        )
        if env.mdp is None:
            raise RuntimeError(f"{grid.name} has another table than Gymnasium's")
        right = spec.ladder.class_of(env.mdp) or 0
        cast = grid_agents(spec.ladder, right)
        if not head:
            head = f"| {EPISODES} episodes, {runs} seeds | class | {' | '.join(cast)} |"
            print(head)
            print("| --- " * head.count(" | ") + "| --- |")
        cells = []
        found = 0
        for name, agent in cast.items():
            regrets = []
            for seed in range(runs):
                result = orl.learn(agent, env, episodes=EPISODES, seed=seed, progress=False)
                regrets.append(result.total_regret)
                found += name == "selecting" and result.verdict["chosen"] == right
            rounded = float(f"{np.mean(regrets):.3g}")
            cells.append(f"{rounded:,.6g}")
        models = " < ".join(f"{size:,}" for size in spec.ladder.sizes)
        print(
            f"| {grid.name}; {models} | {right}, {found} of {runs} | {' | '.join(cells)} |",
            flush=True,
        )


# Inventories --------------------------------------------------------------------------------------


class Inventory(NamedTuple):
    """A problem of the textbook: what a season costs in holding, shortage and orders."""

    mean: float
    shortage: float  # for each unit and period
    order: float  # fixed


INVENTORIES = (
    Inventory(6.0, 4.0, 5.0),
    Inventory(6.0, 4.0, 0.0),
    Inventory(6.0, 9.0, 20.0),
    Inventory(3.0, 9.0, 5.0),
    Inventory(9.0, 4.0, 5.0),
)


def demand_law(mean: float, spread: float) -> Floats:
    """Return the law of the demand, Poisson if ``spread`` is 0; the last takes what is beyond."""
    number = np.arange(MOST)
    if spread > 0.0:
        size = 1.0 / spread
        law = nbinom.pmf(number, size, size / (size + mean))
    else:
        law = poisson.pmf(number, mean)
    return np.append(law, max(0.0, 1.0 - law.sum()))


def inventory_model(problem: Inventory, horizon: int = HORIZON) -> orl.Model:
    """Return the problem as a user would write it, its demand left open."""

    def season(
        stock: int, level: int, *, mean: float, spread: float = 0.0
    ) -> Iterator[tuple[float, int, float]]:
        ordered = level > stock
        for demand, chance in enumerate(demand_law(mean, spread)):
            after = max(max(level, stock) - demand, DEEPEST)
            cost = max(after, 0) + problem.shortage * max(-after, 0) + problem.order * ordered
            yield float(chance), after, -cost

    def levels(stock: int) -> list[int]:
        return [stock, *range(max(stock + 1, 0), LARGEST + 1)]

    bounds = {"mean": (1.0, 15.0), "spread": (0.0, 1.0)}
    return orl.Model(season, start=0, actions=levels, horizon=horizon, parameters=bounds)


def textbook_cost(problem: Inventory) -> float:
    """Return what stockpyl says a period costs at least, in the long run."""
    if problem.order == 0.0:
        newsvendor = importlib.import_module("stockpyl.newsvendor")
        _, cost = newsvendor.newsvendor_poisson(1, problem.shortage, problem.mean)
        return float(cost)
    policies = importlib.import_module("stockpyl.ss")
    _, _, cost = policies.s_s_discrete_exact(1, problem.shortage, problem.order, True, problem.mean)
    return float(cost)


def period_cost(problem: Inventory) -> float:
    """Return what one more period costs after many, at the best."""
    costs = []
    for horizon in (LONG, LONG + 1):
        mdp = inventory_model(problem, horizon).mdp(mean=problem.mean)
        costs.append(-mdp.value(mdp.optimal_policy))
    return costs[1] - costs[0]


def season_log(model: orl.Model, mdp: orl.FiniteMDP, level: int, seasons: int, seed: int) -> Any:
    """Return a log of a shop that fills up to a level every period."""
    policy = np.zeros((HORIZON, mdp.states), np.int64)
    for s, stock in enumerate(model.states[:-1]):
        policy[:, s] = model.actions.index(max(level, stock))
    rows = []
    for season in range(seasons):
        flow = simulate(mdp, policy, 1, np.random.default_rng((seed, season)))
        for step, s, a, following, reward, _ in zip(*flow.columns, strict=True):
            rows.append(
                {
                    "season": season,
                    "period": int(step) + 1,
                    "stock": model.states[s],
                    "level": model.actions[a],
                    "cost": float(model.unit.total(reward, 1)),
                    "after": model.states[following],
                }
            )
    columns = {"episode": "season", "step": "period", "state": "stock", "action": "level"}
    return orl.read_log(rows, {**columns, "reward": "cost", "next_state": "after"})


def inventory(runs: int) -> None:
    """Print what stockpyl's optimum costs, ours, and the policies that logs recommend."""
    learned = f"policy from {SEASONS} seasons costs more by | its class | its range |"
    print(f"| mean, shortage, order | stockpyl, a period | ours | {learned}")
    print("| --- | --- | --- | --- | --- | --- |")
    for problem in INVENTORIES[:runs]:
        model = inventory_model(problem)
        mdp = model.mdp(mean=problem.mean)
        optimum = -mdp.value(mdp.optimal_policy)
        log = season_log(model, mdp, round(problem.mean), SEASONS, 1)
        ladder = model.ladder({"Poisson": ["mean"], "overdispersed": ["mean", "spread"]})
        answer = orl.select(log, ladder, delta=DELTA, progress=False)
        cost = -mdp.value(answer.policy)
        low, high = answer.interval
        holds = "holds" if low <= -cost <= high else "misses"
        names = f"{problem.mean:g}, {problem.shortage:g}, {problem.order:g}"
        print(
            f"| {names} | {textbook_cost(problem):.4f} | {period_cost(problem):.4f} | "
            f"{100.0 * (cost / optimum - 1.0):.1f} % | {answer.model} | {holds} |",
            flush=True,
        )


# Drifts -------------------------------------------------------------------------------------------

SIZES = ("small", "medium", "large")
COLOURS = ("red", "green", "blue")
SHAPES = ("square", "circle", "triangle")
ITEMS = [(size, colour, shape) for size in SIZES for colour in COLOURS for shape in SHAPES]
EPISODE = 20
WRONG = (0.05, 0.1, 0.2, 0.3)  # shares of labels that may be wrong in the models
NOISE = 0.1  # and are
CHANGE = 1_000  # items, after which the rule is another one
LAST = 2_000
ALARMS = (1e-3, 1e-4)  # false ones, for each item, at most


def label(rule: int, item: tuple[str, str, str]) -> bool:
    """Return what one of the three rules of STAGGER (Schlimmer and Granger, 1986) says of one."""
    size, colour, shape = item
    if rule == 0:
        return size == "small" and colour == "red"
    if rule == 1:
        return colour == "green" or shape == "circle"
    return size in ("medium", "large")


def guesses() -> tuple[orl.Ladder, orl.Known]:
    """Return models of the labels: one rule, or any of three, with some shares of wrong labels.

    And what is known of them all.
    """

    def guess(
        item: tuple[str, str, str], says: int, *, rule: float = 0.0, wrong: float = NOISE
    ) -> Iterator[tuple[float, tuple[str, str, str], float]]:
        right = (1.0 - wrong) if label(round(rule), item) == bool(says) else wrong
        for following in ITEMS:
            yield right / len(ITEMS), following, 1.0
            yield (1.0 - right) / len(ITEMS), following, 0.0

    start = dict.fromkeys(ITEMS, 1.0 / len(ITEMS))
    bounds = {"rule": (0.0, 2.0), "wrong": (0.0, 0.5)}
    model = orl.Model(guess, start=start, actions=[0, 1], horizon=EPISODE, parameters=bounds)
    one = model.family({"rule": [0.0], "wrong": WRONG})
    three = model.family({"rule": [0.0, 1.0, 2.0], "wrong": WRONG})
    return orl.Ladder([one, three], names=["the first rule", "any rule"]), model.known


class Noticed(NamedTuple):
    """When a change was noticed."""

    false: int  # alarms before it
    delay: int | None  # items from it to the first alarm after it; None: never


def first_alarms(items: list[int]) -> Noticed:
    """Return what the items say at which alarms were raised."""
    after = [item for item in items if item >= CHANGE]
    delay = after[0] - CHANGE if after else None
    return Noticed(len(items) - len(after), delay)


def follow_stream(seed: int, ladder: orl.Ladder, known: orl.Known) -> dict[str, Noticed]:
    """Guess the labels of a stream whose rule changes, and hear of alarms."""
    synth = importlib.import_module("river.datasets.synth")
    drift = importlib.import_module("river.drift")
    detectors: dict[str, Any] = {
        "ADWIN": drift.ADWIN(),
        "KSWIN": drift.KSWIN(seed=seed),
        "Page-Hinkley": drift.PageHinkley(),
    }
    agents = {}
    for rate in ALARMS:
        name = f"occamrl, alarm {rate:g}"
        agents[name] = orl.Agent(orl.Occam(ladder=ladder), known=known, seed=seed, alarm=rate)
    alarms: dict[str, list[int]] = {name: [] for name in (*agents, *detectors)}
    draw = np.random.default_rng(seed)
    stream = []
    for rule in (0, 1):
        source = synth.STAGGER(classification_function=rule, seed=2 * seed + rule)
        for features, truth in source.take(CHANGE):
            item = (
                SIZES[features["size"]],
                COLOURS[features["color"]],
                SHAPES[features["shape"]],
            )
            stream.append((item, bool(truth) != (draw.random() < NOISE)))
    for number in range(LAST - 1):
        item, truth = stream[number]
        for name, agent in agents.items():
            says = agent.act(item)
            agent.observe(item, says, float(bool(says) == truth), stream[number + 1][0])
            if agent.alarm is not None:
                alarms[name].append(number)
                agent.forget(since="the change")
        for name, detector in detectors.items():  # on the errors of the last agent
            detector.update(float(bool(says) != truth))
            if detector.drift_detected:
                alarms[name].append(number)
    return {name: first_alarms(items) for name, items in alarms.items()}


def drifts(runs: int) -> None:
    """Print how soon a change of rule is noticed."""
    ladder, known = guesses()
    noticed: dict[str, list[Noticed]] = {}
    for seed in range(runs):
        for name, result in follow_stream(seed, ladder, known).items():
            noticed.setdefault(name, []).append(result)
    print(f"| {runs} streams | false alarms | items until noticed: median, worst | never |")
    print("| --- | --- | --- | --- |")
    for name, results in noticed.items():
        delays = [result.delay for result in results if result.delay is not None]
        false = sum(result.false for result in results)
        median = float(np.median(delays)) if delays else math.nan
        worst = max(delays, default=0)
        print(f"| {name} | {false} | {median:g}, {worst} | {len(results) - len(delays)} |")


PARTS: dict[str, Callable[[int], None]] = {
    "grids": grids,
    "inventory": inventory,
    "drift": drifts,
}


def main() -> None:
    """Print one part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    PARTS[options.part](options.runs)


if __name__ == "__main__":
    main()

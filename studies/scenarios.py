"""What some forty scenarios print, draw and write: a record, so that a difference is a decision.

    python -m studies.scenarios --write texts                    # one text file a scenario
    python -m studies.scenarios --compare texts                  # run again, print a diff
    python -m studies.scenarios --compare studies/data/scenarios-0.3.json --only agent

A record is a folder of text files, or one JSON file; ``--only`` takes scenarios with this in their
name. Scenarios use public names only, so that this file runs against any version of the package;
``PYTHONPATH`` says which. Times, paths, dates, versions and digests are left out, and numbers have
six significant digits.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import itertools
import json
import math
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import occamrl as orl
from studies.transcript import (
    ROOT,
    Command,
    Play,
    Things,
    answer,
    drawn,
    lines_of,
    normal,
    output_of,
)

Floats = NDArray[np.float64]
Row = dict[str, object]
Parameters = dict[str, Any]
Environment = gym.Env[Any, Any]

# ---- systems -------------------------------------------------------------------------------------

COLUMNS = {
    "episode": "month",
    "state": "stock",
    "action": "ordered",
    "reward": "profit",
    "next_state": "stock_after",
}
OUTSIDE = (0.9, 0.1)  # no class of the rivers has these currents


def demand_law(mean: float, empty: float) -> list[float]:
    law = [(1 - empty) * math.exp(-mean) * mean**n / math.factorial(n) for n in range(12)]
    law[0] += empty
    return [*law, 1 - sum(law)]


def shop(stock: int, order: int, *, mean: float, empty: float = 0.0) -> Iterator[tuple[Any, ...]]:
    # The shop of the README.
    full = min(stock + order, 12)
    for demand, chance in enumerate(demand_law(mean, empty)):
        sold = min(full, demand)
        yield chance, full - sold, 4 * sold - 0.5 * (full - sold) - 6 * (order > 0), False


@cache
def shop_model() -> orl.Model:
    return orl.Model(
        shop,
        start=4,
        actions=[0, 2, 4, 6],
        horizon=28,
        parameters={"mean": (0.5, 8.0), "empty": (0.0, 0.6)},
        unit="EUR",
    )


@cache
def shop_ladder() -> Any:
    return shop_model().ladder({"steady": ["mean"], "with empty days": ["mean", "empty"]})


def shop_answer(*classes: int) -> Any:
    # The answer of the README, or with some of its classes only.
    log = orl.read_log(ROOT / "docs/data/shop.csv", COLUMNS, order_by="day")
    return orl.select(log, shop_ladder().only(*classes) if classes else shop_ladder())


def run_shop(agent: orl.Agent, days: int, mean: float, empty: float) -> int:
    """Let an agent run the shop until its alarm or the last day; return the day."""
    draw = np.random.default_rng(11)
    for day in range(days):
        if day % 28 == 0:
            agent.begin_episode()
            stock = 4
        order = agent.act(stock)
        outcomes = list(shop(stock, order, mean=mean, empty=empty))
        _, stock_after, reward, _ = outcomes[draw.choice(13, p=demand_law(mean, empty))]
        agent.observe(stock, order, reward, stock_after)
        stock = stock_after
        if agent.alarm is not None:
            break
    return day + 1


def river(first: float, second: float) -> Floats:
    """Return P[s, a, s']: action 0 drifts down, action 1 swims up, with a chance for each half."""
    kernel = np.zeros((6, 2, 6))
    for state in range(6):
        chance = (first, second)[state // 3]
        kernel[state, 0, max(state - 1, 0)] = 1.0
        kernel[state, 1, min(state + 1, 5)] += chance
        kernel[state, 1, max(state - 1, 0)] += 1.0 - chance
    return kernel


def river_mdp(first: float = 0.5, second: float = 0.7, **options: Any) -> orl.FiniteMDP:
    reward = np.zeros((6, 2))
    reward[0, 0] = 0.05
    reward[5, 1] = 1.0
    return orl.FiniteMDP(transition=river(first, second), reward=reward, horizon=20, **options)


@cache
def river_ladder() -> orl.Ladder:
    chances = (0.3, 0.5, 0.7)
    same = orl.FiniteFamily([river(p, p) for p in chances])
    halves = orl.FiniteFamily([river(p, q) for p, q in itertools.product(chances, chances)])
    return orl.Ladder([same, halves], names=["one current", "a current per half"])


@cache
def kernels() -> Floats:
    return np.random.default_rng(0).dirichlet(np.ones(4), size=(5, 4, 2))


def mixture(*weights: float) -> Floats:
    return np.tensordot(weights, kernels()[: len(weights)], axes=1)


def mixture_mdp(*weights: float) -> orl.FiniteMDP:
    return orl.FiniteMDP(transition=mixture(*weights), reward=np.eye(4)[:, :2], horizon=6)


@cache
def linear_ladder() -> orl.Ladder:
    family = partial(orl.LinearFamily, features=orl.FeatureMap(list(kernels()[:4])), norm_bound=1.0)
    return orl.Ladder([family(coordinates=range(count)) for count in (1, 2, 4)])


def line(states: Floats, actions: Floats, rng: np.random.Generator, *, wind: float = 0.0) -> Floats:
    # A simulator: a point that is pulled to zero, pushed, and moved by the wind.
    return 0.8 * states + 0.3 * actions + wind + 0.15 * rng.normal(size=states.shape)


class System(Environment):
    """An environment from a function of state, action and generator; zero is the best state."""

    def __init__(self, step: Callable[..., Any], start: Any, actions: gym.Space[Any]) -> None:
        self.function = step
        self.start = start
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, np.shape(start), dtype=np.float64)
        self.action_space = actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Row]:
        super().reset(seed=seed)
        self.state = self.start
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Row]:
        self.state = self.function(self.state, action, self.np_random)
        return self.state, -float(np.abs(self.state).sum()), False, False, {}


def chain(kernel: Floats) -> System:
    states, actions, _ = kernel.shape
    return System(
        lambda state, action, rng: int(rng.choice(states, p=kernel[state, action])),
        start=0,
        actions=gym.spaces.Discrete(actions),
    )


def line_in_wind(wind: float) -> System:
    return System(
        lambda state, action, rng: line(state[None], action[None], rng, wind=wind)[0],
        start=np.array([0.5]),
        actions=gym.spaces.Box(-1.0, 1.0, (1,), dtype=np.float64),
    )


def line_ladder(calm: Any = line) -> orl.SimulatorLadder:
    return orl.SimulatorLadder(
        {"calm": [calm], "wind": [partial(line, wind=-0.2), partial(line, wind=0.2)]},
        reward=lambda states, actions, next_states: -np.abs(next_states[:, 0]),
        horizon=10,
        actions=orl.Box(-1, 1),
        start=[0.5],
        coordinates=["place"],
    )


def log_of(environment: Environment, horizon: int, episodes: int) -> Any:
    environment.action_space.seed(5)
    rows: list[Row] = []
    for episode in range(episodes):
        state, _ = environment.reset(seed=episode)
        for step in range(horizon):
            action = environment.action_space.sample()
            next_state, *_ = environment.step(action)
            row = {"state": state, "action": action, "next_state": next_state}
            numbers = {name: np.asarray(entry).item() for name, entry in row.items()}
            rows.append({"episode": episode, "step": step, **numbers})
            state = next_state
    return orl.read_log(rows)


def river_answer(first: float, second: float, episodes: int, **options: Any) -> Things:
    log = log_of(chain(river(first, second)), 20, episodes)
    return answer(orl.select(log, river_ladder(), river_mdp().known, **options))


def linear_answer(*weights: float) -> Things:
    log = log_of(chain(mixture(*weights)), 6, 1_000)
    return answer(orl.select(log, linear_ladder(), mixture_mdp(*weights).known))


def line_answer(wind: float) -> Things:
    outcome = orl.select(log_of(line_in_wind(wind), 10, 12), line_ladder())
    return {**answer(outcome), "page": outcome.page("line.html", runs=4)}


# ---- scenarios -----------------------------------------------------------------------------------


def linear_runs(*agents: tuple[Any, Row, int]) -> Things:
    problem = orl.make_problem("sparse-mixture", seed=0)
    features = orl.FeatureMap(problem.phi)
    return {
        kind.__name__: Play(kind(features=features, **options), problem, episodes)
        for kind, options, episodes in agents
    }


def tabular_runs() -> Things:
    problem = orl.make_problem("river-swim", states=4, horizon=8)
    agents = [orl.PSRL(), orl.UCBVI(episodes=200, scale=0.1), orl.RLSVI(scale=0.01)]
    agents += [orl.QLearningUCB(episodes=200, scale=0.01), orl.Optimal(mdp=problem.mdp)]
    return {repr(agent): Play(agent, problem, 200) for agent in (*agents, orl.UniformRandom())}


def arena_runs() -> Things:
    problem = orl.make_problem("river-swim", states=5)
    bases = [orl.PSRL(), orl.UniformRandom()]
    rules = [orl.D3RB(scale=0.1), orl.ED2RB(scale=0.1), orl.RegretBalancing(), orl.UCB1()]
    rules += [orl.StochasticCORRAL(episodes=60), orl.ECE(promised=(0.1, 1.0))]
    return {repr(rule): Play(orl.Arena(bases=bases, rule=rule), problem, 60) for rule in rules}


def occam_runs() -> Things:
    ice = orl.make_problem("patchy-ice", slip=(0.0, 0.1), levels=(0.0, 0.1))
    sampling = orl.Occam(ladder=river_ladder(), acting="sampling", scope="all")
    return {
        "ice": Play(orl.Occam(ladder=orl.Ladder.of_problem(ice)), ice, 100),
        "sampling": Play(sampling, river_mdp(), 200),
        "outside": Play(orl.Occam(ladder=river_ladder()), river_mdp(*OUTSIDE), 200),
    }


def gen_runs() -> Things:
    sparse = orl.make_problem("sparse-ladder")
    gen = orl.ARLGen(ladder=river_ladder())
    return {
        "sparse": Play(orl.ARLGen(ladder=orl.Ladder.of_problem(sparse)), sparse, 500),
        "all": Play(orl.ARLGen(ladder=river_ladder(), scope="all"), river_mdp(), 300),
        "outside": Play(gen, river_mdp(*OUTSIDE), 2_000),
        "linear": Play(orl.ARLGen(ladder=linear_ladder()), mixture_mdp(0.4, 0.6), 300),
        "oracle": Play(orl.oracle(gen, river_mdp()), river_mdp(), 100),
        "largest": Play(orl.largest(gen), river_mdp(), 100),
        "smallest": Play(orl.smallest(gen), river_mdp(), 100),
    }


def model_runs() -> Things:
    truth = shop_model().mdp(mean=2.1, empty=0.28)
    fit = orl.run(orl.Occam(ladder=shop_ladder(), acting="fit"), truth, episodes=30, progress=False)
    outside = orl.Occam(ladder=shop_ladder().only(1), acting="fit")
    return {
        "fit": fit,
        "supports": str(orl.supports(fit, shop_ladder())),
        "answer": answer(fit.answer),
        "outside": Play(outside, truth, 30),
    }


def simulator_runs() -> Things:
    simulators = orl.Simulators(list(kernels()))
    truth = mixture_mdp(0, 0.6, 0, 0.4, 0)
    agent = orl.OccamMixture(features=simulators.features)
    played = orl.run(agent, truth, episodes=300, progress=False)
    report = orl.supports(played, simulators)
    ladder = simulators.ladder(most=2, grid=5, reach=0)
    return {
        "run": played,
        "supports": {"text": str(report), "necessary": report.necessary, "sets": report.sets},
        "Occam": Play(orl.Occam(ladder=ladder), truth, 100),
    }


def continued_run() -> Things:
    agent = orl.Occam(ladder=river_ladder())
    half = orl.run(agent, river_mdp(), episodes=100, progress=False)
    half.save("half.npz")
    again = orl.Result.load("half.npz")
    whole = orl.run(again.agent, river_mdp(), episodes=10**9, continue_from=again, progress=False)
    table = half.policy_table(actions=["drift", "swim"])
    return {"again": again, "whole": whole, "table": half.table, "policy": table}


def comparison() -> Things:
    problem = orl.make_problem("sparse-ladder")
    ladder = orl.Ladder.of_problem(problem)
    agents = {"Occam": orl.Occam(ladder=ladder), "GEN": orl.ARLGen(ladder=ladder)}
    played = orl.compare(agents, problem, episodes=100, seeds=3, workers=1, progress=False)
    return {
        "text": str(played),
        "latex": played.to_latex(),
        "rows": played.rows,
        "table": played.table,
        "differences": played.differences("Occam"),
        "regret": played.regret_at(50),
        "linear": drawn(played.plot()),
        "loglog": drawn(played.plot(scale="loglog", band="seeds")),
    }


def model_answer() -> Things:
    outcome = shop_answer()
    never = outcome.compared_with(lambda stock: 0)
    outcome.policy.to_csv("policy.csv")
    outcome.policy.to_json("policy.json")
    return {
        **answer(outcome),
        "policy": str(outcome.policy),
        "never": never,
        "words": [outcome.span(never), outcome.money(outcome.value)],
        "gain": outcome.gain,
        "to try": outcome.to_try,
        "table": outcome.table,
        "plot": outcome.plot(),
        "csv": Path("policy.csv").read_text().splitlines(),
        "json": json.loads(Path("policy.json").read_text()),
        "page": outcome.page("shop.html"),
    }


def faulty_log() -> Things:
    states = [[0, 1, 2, 1, 0], [0, 1, 9, 1, 2]]
    rows = [{"episode": e, "state": s, "action": 1} for e in (0, 1) for s in states[e]]
    log = orl.read_log(rows, unlisted="drop")
    outcome = orl.select(log, river_ladder(), river_mdp().known)
    return {"text": str(outcome), "log": str(log)}


def lake_learned() -> Things:
    spec = orl.read_ladder("frozen-lake-4x4", horizon=15)
    lake = gym.make("FrozenLake-v1")
    learn = partial(orl.learn, env=lake, episodes=60, known=spec.known, progress=False)
    reports: list[Any] = []
    by_value = learn(orl.ARLGen(ladder=spec.ladder), callbacks=reports.append)
    likely = learn(orl.Occam(ladder=spec.ladder))
    return {
        "value": by_value,
        "reports": [report.regret for report in reports],
        "page": by_value.page("lake.html"),
        "likelihood": likely,
        "answer": answer(likely.answer),
    }


def lake_agent() -> Things:
    features = orl.FeatureMap.tabular(states=16, actions=4)
    learner = orl.RewardsPerPair(agent=orl.UCRLVTRLin(features=features, norm_bound=8.0))
    lake = gym.make("FrozenLake-v1")
    sizes = orl.Known.of_sizes(states=16, actions=4, horizon=8)
    driver = orl.Agent(learner, lake, known=sizes, reward_range=(0.0, 1.0))
    driver.learn(40).save("lake.npz")
    driver = orl.Agent.load("lake.npz")
    action, memory = driver.predict(0)
    learned = driver.learn(20, env=lake).result
    actions = [int(action), int(driver.predict(4, memory)[0])]
    return {"actions": actions, "result": learned, "plot": learned.plot()}


def control_learned(wind: float, **options: Any) -> Things:
    planner = options.pop("planner", orl.CEM)(candidates=16, horizon=5, particles=2)
    agent = orl.OccamControl(ladder=line_ladder(), planner=planner, **options)
    learned = orl.learn(agent, line_in_wind(wind), episodes=4, progress=False)
    return {
        "verdict": str(learned.verdict),
        "returns": learned.returns,
        "answer": answer(learned.answer),
        "page": learned.answer.page("line.html", runs=4),
        "plot": learned.answer.plot(),
    }


def driven_agent() -> Things:
    algorithm = orl.Occam(ladder=shop_ladder())
    agent = orl.Agent(algorithm)
    first = agent.act(4)
    agent.observe(4, 6, reward=None, next_state=7)
    run_shop(agent, 100, 1.8, 0.25)
    agent.save("agent.npz")
    agent = orl.Agent.load("agent.npz", algorithm)
    run_shop(agent, 50, 1.8, 0.25)
    agent.begin_episode()
    actions = [first, *(agent.act(stock) for stock in range(13))]
    pupil = orl.Agent(algorithm).learn_from(agent)
    pupil.learn_from(orl.read_log(ROOT / "docs/data/shop.csv", COLUMNS, order_by="day"))
    return {
        "actions": actions,
        "result": agent.result,
        "answer": answer(agent.answer),
        "pupil": answer(pupil.answer),
    }


def alarmed_agent() -> Things:
    agent = orl.Agent(orl.Occam(ladder=shop_ladder()), alarm=1e-2)
    days = [run_shop(agent, 150, 1.8, 0.25), run_shop(agent, 200, 5.0, 0.0)]
    alarm = str(agent.alarm)
    agent.begin_episode()
    forgetful = agent.forget(since="the change")
    return {"days": days, "alarm": alarm, "answer": answer(forgetful.answer)}


def experiment() -> Things:
    described = orl.Experiment(
        name="river",
        episodes=60,
        seeds=2,
        baseline="PSRL",
        problem=[{"name": "RiverSwim", "label": "S = {states}", "sweep": {"states": [3, 4]}}],
        agent=[
            {"name": orl.PSRL(), "label": "PSRL"},
            {"name": orl.UCRLVTRLin, "parameters": {"norm_bound": "sqrt(SA)"}},
            {"name": "Arena", "rule": "D3RB", "bases": ["PSRL", "UniformRandom"]},
        ],
    )
    records = described.run("river", workers=1)
    return {
        "text": str(records),
        "latex": records.to_latex(),
        "rows": records.rows,
        "curves": records.curves,
        "phases": records.phases,
        "plot": records.plot(problem="S = 3", scale="loglog"),
        "same": orl.load("river").curves.equals(records.curves),
        "command": occamrl("report", "river"),
        "page": Path("river/report.html"),
    }


def plots() -> Things:
    ice = orl.make_problem("patchy-ice", slip=(0.0, 0.1), levels=(0.0, 0.1))
    agent = orl.Occam(ladder=orl.Ladder.of_problem(ice))
    played = orl.run(agent, ice, episodes=60, progress=False)
    return {
        "regret": drawn(played.plot(scale="loglog", label="Occam")),
        "policy": drawn(played.plot_policy()),
        "evidence": drawn(played.answer.plot()),
        "page": played.page("ice.html"),
    }


def preflights() -> Things:
    known = river_mdp().known
    by_value = orl.preflight(river_ladder(), known, episodes=200, evidence="value")
    likely = orl.preflight(river_ladder(), known, episodes=200, evidence="likelihood")
    mixed = partial(orl.preflight, linear_ladder(), mixture_mdp(0.4, 0.6).known)
    return {
        "value": [str(by_value), repr(by_value.selector())],
        "likelihood": [str(likely), repr(likely.selector())],
        "pairs": likely.unidentifiable,
        "model": str(orl.preflight(shop_ladder(), episodes=100, truths=2)),
        "linear": str(mixed(episodes=1_000, truths=4, members=4)),
    }


def theorems() -> Things:
    bounds = orl.paper.theorems
    given: Any = {"dimension": 8, "norm_bound": 4.0, "feature_bound": 1.0, "excitation": 1.0}
    setting = bounds.Setting(horizon=3, episodes=10**6, delta=0.05, **given)
    epoch = partial(bounds.selection_epoch_generic, horizon=3, delta=0.05, entropy=2.0)
    return {
        "vtr": bounds.regret_bound_vtr(setting, radius=20.0, eluder=2),
        "linear": bounds.regret_bound_linear(setting),
        "dimension": bounds.regret_bound_dimension(setting, sparsity=2, first_epoch=3),
        "norm": bounds.regret_bound_norm(setting, true_norm=1.5),
        "tau": bounds.tau_min(setting),
        "eluder": bounds.linear_eluder_bound(8, 0.01, 1.0, 2.0),
        "searched": bounds.eluder_dimension(np.eye(4)[:, :3], 0.5),
        "epochs": [epoch(separation=gap) for gap in (0.5, 0.1, 0.02)],
    }


def problem(name: str) -> Things:
    built = orl.make_problem(name)
    first_action = np.zeros_like(built.mdp.optimal_policy)
    return {
        "problem": repr(built),
        "mdp": repr(built.mdp),
        "optimal": built.mdp.optimal_value,
        "first action": built.mdp.evaluate(first_action),
    }


def errors() -> Things:
    kernel = river(0.5, 0.5)
    mdp = partial(orl.FiniteMDP, transition=kernel, reward=np.zeros((6, 2)))
    families = [orl.FiniteFamily([river(p, p)]) for p in (0.5, 1.0)]
    spec: Parameters = {"episodes": 1, "seeds": 1, "problem": ["Rivr"], "agent": ["PSRL"]}
    rows = {"episode": [1, 1], "state": [0, "x"], "action": [0, 0]}
    wrong: Any = "wrong"
    return {
        "rows": lambda: mdp(transition=kernel * 0.9, horizon=3),
        "shape": lambda: mdp(reward=np.zeros((5, 2)), horizon=3),
        "horizon": lambda: mdp(horizon=0),
        "problem": lambda: orl.make_problem("river-swimm"),
        "parameter": lambda: orl.make_problem("river-swim", state=3),
        "name": lambda: orl.Ocam,
        "episodes": lambda: orl.run(orl.PSRL(), river_mdp(), episodes=-1),
        "delta": lambda: orl.Occam(ladder=river_ladder(), delta=2.0),
        "acting": lambda: orl.Occam(ladder=river_ladder(), acting=wrong),
        "ladder": lambda: orl.ARLGen(ladder=wrong),
        "nested": lambda: orl.Ladder(families),
        "free": lambda: shop_model().ladder({"steady": ["men"]}),
        "column": lambda: orl.read_log(ROOT / "docs/data/shop.csv", {"episode": "mnth"}),
        "no file": lambda: orl.read_log("nothing.csv"),
        "unlisted": lambda: orl.select(rows, river_ladder()),
        "action": lambda: orl.Agent(orl.Occam(ladder=shop_ladder())).observe(4, 1, None, 4),
        "reward": lambda: orl.Agent(orl.Occam(ladder=shop_ladder())).observe(4, 0, 99.0, 4),
        "result": lambda: orl.Result.load("nothing.npz"),
        "file": lambda: orl.read_ladder("nothing"),
        "spec": lambda: orl.Experiment(name="a", **spec),
        "simulator": lambda: line_ladder(lambda states, actions, rng: states[:, 0]),
    }


def occamrl(*words: str) -> Command:
    return Command(("-m", "occamrl", *words))


def new_files() -> Things:
    # The template of a learner checks itself when it is run.
    parts = {f"new {kind}": output_of(occamrl("new", kind, kind).words) for kind in TEMPLATES}
    toml = {kind: tomllib.loads(Path(f"{kind}.toml").read_text()) for kind in TEMPLATES[1:]}
    return {"list": occamrl("list"), **parts, "checked": Command(("learner.py",)), **toml}


TEMPLATES = ("learner", "ladder", "spec")
TINY = """
name = "tiny"
episodes = 40
seeds = 2
problem = [{ name = "RiverSwim", parameters = { states = 3 } }]
agent = [{ name = "UniformRandom" }, { name = "Optimal" }]
"""


def commands_of_an_experiment() -> Things:
    Path("tiny.toml").write_text(TINY)
    return {
        "run": occamrl("run", "tiny.toml", "--folder", "out", "--workers", "1"),
        "status": occamrl("status", "out"),
        "verify": occamrl("verify", "out"),
        "no spec": occamrl("run", "nothing.toml", "--folder", "other"),
    }


def commands_of_a_shop() -> Things:
    Path("shop.py").write_text(
        "from studies.scenarios import shop_ladder\nladder = shop_ladder()\n"
    )
    model = ("--model", "shop.py:ladder")
    log = str(ROOT / "docs/data/shop.csv")
    columns = ",".join(f"{role}={column}" for role, column in COLUMNS.items())
    select = partial(occamrl, "select", log, *model, "--columns", columns, "--order-by", "day")
    step = ("--state", "0", "--action", "6", "--next-state", "4")
    return {
        "select": select("--agent", "shop.npz", "--page", "shop.html"),
        "page": Path("shop.html"),
        "observe": occamrl("observe", "shop.npz", *model, *step),
        "act": occamrl("act", "shop.npz", *model, "--state", "4"),
        "no columns": occamrl("select", log, *model, "--json"),
    }


LAKE = ("learn", "FrozenLake-v1", "--ladder", "frozen-lake-4x4", "--episodes", "40")
NORM: Parameters = {"norm_bound": 1.3}
WIDE: Parameters = {"norm_bound": 100.0}
SCENARIOS: dict[str, Callable[[], Things]] = {
    "run_listed": lambda: {
        kernel: Play(
            orl.UCRLVTR(family=river_ladder().family_of(2), kernel=kernel), river_mdp(), 99
        )
        for kernel in ("stationary", "per_step")
    },
    "run_linear": lambda: linear_runs(
        (orl.UCRLVTRLin, NORM, 500),
        (orl.UCRLVTRPlus, {**NORM, "scale": 0.003}, 60),
        (orl.Greedy, {}, 200),
    ),
    "run_selecting_features": lambda: linear_runs(
        (orl.ARLLinDim, NORM, 2_000), (orl.ARLLinNorm, WIDE, 1_000), (orl.ARLLin, WIDE, 1_000)
    ),
    "run_paper_linear": lambda: linear_runs(
        (orl.paper.UCRLVTRLin, NORM, 60),
        (orl.paper.ARLLinDim, NORM, 60),
        (orl.paper.ARLLinNorm, NORM, 60),
    ),
    "run_paper_lists": lambda: {
        "VTR": Play(orl.paper.UCRLVTR(family=river_ladder().family_of(2)), river_mdp(), 60),
        "GEN": Play(orl.paper.ARLGen(ladder=river_ladder()), river_mdp(), 60),
    },
    "run_unknown_rewards": lambda: {
        repr(agent): Play(orl.RewardsPerPair(agent=agent), river_mdp(reward_noise="bernoulli"), 99)
        for agent in (orl.Occam(ladder=river_ladder()), orl.PSRL())
    },
    "run_tabular": tabular_runs,
    "run_arena": arena_runs,
    "run_arl_gen": gen_runs,
    "run_occam": occam_runs,
    "run_occam_on_a_model": model_runs,
    "run_occam_on_simulators": simulator_runs,
    "run_continued": continued_run,
    "compare": comparison,
    "select_list": lambda: river_answer(0.5, 0.7, 40),
    "select_list_with_few_data": lambda: river_answer(0.5, 0.7, 1),
    "select_list_outside": lambda: river_answer(*OUTSIDE, 40),
    "select_by_value": lambda: river_answer(0.5, 0.7, 300, evidence="value"),
    "select_by_value_outside": lambda: river_answer(*OUTSIDE, 300, evidence="value"),
    "select_linear": lambda: linear_answer(0.4, 0.6),
    "select_linear_outside": lambda: linear_answer(0, 0, 0, 0, 1),
    "select_model": model_answer,
    "select_model_outside": lambda: {
        **answer(shop_answer(1)),
        "page": shop_answer(1).page("shop.html"),
    },
    "select_simulators": lambda: line_answer(0.2),
    "select_simulators_smallest": lambda: line_answer(0.0),
    "select_simulators_outside": lambda: line_answer(0.5),
    "select_faulty_log": faulty_log,
    "learn_lake": lake_learned,
    "learn_control": lambda: control_learned(0.2),
    "learn_control_outside": lambda: control_learned(0.5),
    "learn_control_sampling": lambda: control_learned(0.2, acting="sampling", planner=orl.MPPI),
    "learn_control_optimism": lambda: control_learned(0.2, acting="optimism"),
    "agent_in_an_environment": lake_agent,
    "agent_driven": driven_agent,
    "agent_alarmed": alarmed_agent,
    "experiment": experiment,
    "plots": plots,
    "preflight": preflights,
    "theorems": theorems,
    "problems": lambda: {name: problem(name) for name in ("RiverSwim", "FrozenLake", "PatchyIce")},
    "errors": errors,
    "command_help": lambda: {"all": occamrl("--help"), "wrong": occamrl("selct")},
    "command_new": new_files,
    "command_experiment": commands_of_an_experiment,
    "command_shop": commands_of_a_shop,
    "command_learn": lambda: {"learn": occamrl(*LAKE, "--horizon", "15", "--compare")},
    "command_demo": lambda: {"demo": occamrl("demo"), "page": Path("demo/answer.html")},
}

# ---- records -------------------------------------------------------------------------------------


def shown_by(name: str) -> str:
    """Return what a scenario shows, or shows until it raises, in a folder of its own."""
    lines: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(record=True),
        plt.rc_context({"backend": "Agg"}),
    ):
        try:
            for title, thing in SCENARIOS[name]().items():
                lines += lines_of(title, thing)
        except Exception as error:
            lines.append(f"raised {type(error).__name__}: {error}")
        return normal("\n".join(lines), folder)


def write_record(path: Path, texts: Mapping[str, str]) -> None:
    """Write texts to one JSON file, as lists of lines, or to a folder."""
    if path.suffix == ".json":
        lines = {name: text.splitlines() for name, text in texts.items()}
        path.write_text(json.dumps(lines, indent=0, ensure_ascii=False) + "\n", "utf-8")
        return
    path.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (path / f"{name}.txt").write_text(text, "utf-8")


def read_record(path: Path) -> dict[str, str]:
    if path.suffix == ".json":
        lines = json.loads(path.read_text("utf-8"))
        return {name: "\n".join(text) + "\n" for name, text in lines.items()}
    return {file.stem: file.read_text("utf-8") for file in sorted(path.glob("*.txt"))}


def differing(recorded: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Print a unified diff of every scenario that differs; return their names."""
    names = []
    for name, text in texts.items():
        before = recorded.get(name, "").splitlines()
        lines = difflib.unified_diff(
            before, text.splitlines(), f"{name} (recorded)", f"{name} (now)", n=1, lineterm=""
        )
        diff = "\n".join(lines)
        if diff:
            names.append(name)
            print(diff)
    return names


def main(words: Sequence[str] | None = None) -> int:
    """Run the scenarios, and write or compare what they show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="a folder or a JSON file to write to")
    parser.add_argument("--compare", type=Path, help="a folder or a JSON file to compare with")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    options = parser.parse_args(words)
    texts = {name: shown_by(name) for name in SCENARIOS if options.only in name}
    if options.write:
        write_record(options.write, texts)
    if not options.compare:
        return 0
    names = differing(read_record(options.compare), texts)
    equal = len(texts) - len(names)
    print(f"{len(texts)} scenarios, {equal} equal, {len(names)} differ: {', '.join(names)}")
    return min(len(names), 1)


if __name__ == "__main__":
    sys.exit(main())

# ruff: noqa: D101, D102  # classes in a few lines
"""A short example of every public name, which the reference shows below it.

A line ``# Name`` begins the example of a name; the lines before the first of these come first in all of them.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np

import occamrl as orl
from occamrl.logs.log import simulate_log

river = orl.make_problem("river-swim", states=3)
tabular = orl.FeatureMap.tabular(states=3, actions=2)  # one coordinate for every (s, a, s')
mixture = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
features = orl.FeatureMap(mixture.phi)
kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3, 2))  # four kernels P[s, a, s']
ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), orl.FiniteFamily(kernels)], names=["first", "any"])
mdp = orl.FiniteMDP(transition=kernels[2], reward=np.eye(3)[:, 1:], horizon=5)  # r[s, a]

# ARLLin
result = orl.run(orl.ARLLin(features=features, norm_bound=100.0), mixture, episodes=500)
print(result.phases["active"][-1], result.phases["norm_bound"][-1])

# ARLLinDim
result = orl.run(orl.ARLLinDim(features=features, norm_bound=1.3), mixture, episodes=500)
print(result.verdict)

# ARLLinNorm
result = orl.run(orl.ARLLinNorm(features=features, norm_bound=100.0), mixture, episodes=500)
print(result.phases["norm_bound"].to_pylist())

# Agent
spec = orl.read_ladder("frozen-lake-4x4")
agent = orl.Agent(orl.ARLGen(ladder=spec.ladder), gym.make("FrozenLake-v1"), known=spec.known)
agent.learn(100).save("agent.npz")
action, state = orl.Agent.load("agent.npz").predict(0)

# AggregationFamily
halves = orl.AggregationFamily(partition=[0, 0, 1, 1], actions=2)  # states 0 and 1 share a law, and 2 and 3
print(halves.blocks, "blocks,", halves.size, "parameters")

# Arena
bases = [orl.Greedy(features=tabular), orl.UniformRandom()]
result = orl.run(orl.Arena(bases=bases, rule=orl.UCB1()), river, episodes=200)
print(result.state["plays"])  # episodes of each base

# Comparison
comparison = orl.compare({"greedy": orl.Greedy(features=tabular)}, river, episodes=50, seeds=3)
print(comparison, comparison.rows[0]["regret"], comparison.results["greedy"][0])

# CoverFamily
slips = orl.CoverFamily(lambda p: (1 - p[0]) * kernels[0] + p[0] * kernels[1], low=[0.0], high=[1.0], step=0.1)
print(slips.size, "kernels, at most", slips.reach, "from those between them")

# D3RB
arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=orl.D3RB())
print(orl.run(arena, river, episodes=200).verdict)

# Discretiser
cells = orl.Discretiser.uniform(gym.spaces.Box(-1.0, 1.0, shape=(2,)), [10, 10])
print(cells.encode([0.05, -0.3]), "of", cells.size)

# ECE
rule = orl.ECE(promised=[1.0, 2.0])  # bounds on the regret coefficients, the simplest base first
result = orl.run(orl.Arena(bases=[orl.UniformRandom(), orl.Greedy(features=tabular)], rule=rule), river, episodes=200)

# ED2RB
arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=orl.ED2RB(scale=0.1))
print(orl.run(arena, river, episodes=200).verdict)

# EXP3P
arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=orl.EXP3P(episodes=200))
print(orl.run(arena, river, episodes=200).verdict)


# EpisodeLearner
class Constant(orl.EpisodeLearner):
    def begin(self, known):
        return {"episodes": np.zeros(1)}

    def plan(self, known, state, start, draw):
        return np.ones((known.horizon, known.states), dtype=int)  # action 1 everywhere

    def learn(self, known, state, episode):
        state["episodes"] += 1


print(orl.run(Constant(), river, episodes=20).total_regret)

# FeatureMap
print(orl.FeatureMap(mixture.phi))  # phi[s, a, s', j]
print(orl.FeatureMap(list(kernels)))  # one kernel per coordinate: a mixture of simulators
print(orl.FeatureMap.tabular(states=3, actions=2))

# FiniteFamily
family = orl.FiniteFamily(kernels)
print(family.size, family.find(kernels[2]))

# Greedy
print(orl.run(orl.Greedy(features=tabular), river, episodes=200).total_regret)

# Interrupted
try:
    result = orl.run(orl.UniformRandom(), river, episodes=1_000)
except orl.Interrupted as stopped:  # Ctrl-C
    result = orl.run(orl.UniformRandom(), river, episodes=1_000, continue_from=stopped.result)

# InvalidInput
try:
    orl.FiniteMDP(transition=2.0 * kernels[0], reward=np.zeros((3, 2)), horizon=5)
except orl.InvalidInput as error:
    print(error)  # the field, the index, what was got and what was expected

# Known
print(mdp.known.states, mdp.known.actions, mdp.known.horizon, mdp.known.base_reward)
sizes = orl.Known.of_sizes(states=3, actions=2, horizon=5)  # where rewards are not known

# Ladder
small, large = orl.FiniteFamily(kernels[:2]), orl.FiniteFamily(kernels)
print(orl.Ladder([small, large], names=["two", "four"]))

# LinPSRL
print(orl.run(orl.LinPSRL(features=features), mixture, episodes=20).total_regret)

# LinearFamily
first = orl.LinearFamily(features=features, norm_bound=1.3, coordinates=range(4))
print(orl.Ladder([first, orl.LinearFamily(features=features, norm_bound=1.3)]))

# OccamLin
print(orl.run(orl.OccamLin(features=features), mixture, episodes=20).total_regret)

# OccamRLError
try:
    orl.load("no such folder")
except orl.OccamRLError as error:  # every error of this package
    print(error)

# Optimal
print(orl.run(orl.Optimal(mdp=river.mdp), river, episodes=20).total_regret)

# QLearningUCB
print(orl.run(orl.QLearningUCB(episodes=200, scale=0.01), river, episodes=200).total_regret)

# RLSVI
print(orl.run(orl.RLSVI(scale=0.01), river, episodes=200).total_regret)

# RegretBalancing
arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=orl.RegretBalancing())
print(orl.run(arena, river, episodes=200).verdict)

# Result
result = orl.run(orl.Greedy(features=tabular), river, episodes=200)
print(result.total_regret, result.regret[:3], result.policy()[0])
result.save("result.npz")

# RewardsLinear
rewards = orl.RewardsLinear(features=np.eye(6).reshape(3, 2, 6), norm_bound=2.5)  # psi[s, a]
agent = orl.UCRLVTRLin(features=tabular, norm_bound=2.5, rewards=rewards)

# RewardsPerPair
agent = orl.UCRLVTRLin(features=tabular, norm_bound=2.5, rewards=orl.RewardsPerPair(bound="hoeffding"))
print(orl.run(agent, river, episodes=50).total_regret)


# Rule
class Alternate(orl.Rule):
    def start(self, bases):
        return {"bases": bases, "played": 0}

    def choose(self, memory, draw):
        return memory["played"] % memory["bases"]

    def update(self, memory, base, played):
        memory["played"] += 1


arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=Alternate())
print(orl.run(arena, river, episodes=20).state["plays"])

# Simulators
simulators = orl.Simulators(list(kernels), names=["calm", "rain", "wind", "storm"])
agent = orl.UCRLVTRLin(features=simulators.features, norm_bound=1.0)
print(orl.supports(orl.run(agent, mdp, episodes=500), simulators))

# StochasticCORRAL
arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=orl.StochasticCORRAL(episodes=200))
print(orl.run(arena, river, episodes=200).verdict)

# UCB1
arena = orl.Arena(bases=[orl.Greedy(features=tabular), orl.UniformRandom()], rule=orl.UCB1(scale=0.1))
print(orl.run(arena, river, episodes=200).verdict)

# UCBVI
print(orl.run(orl.UCBVI(episodes=200, scale=0.1), river, episodes=200).total_regret)

# UCRLVTR
result = orl.run(orl.UCRLVTR(family=orl.FiniteFamily(kernels)), mdp, episodes=200)
print(result.total_regret, result.pessimistic_episodes)

# UCRLVTRLin
result = orl.run(orl.UCRLVTRLin(features=features, norm_bound=1.3), mixture, episodes=500)
print(result.total_regret, result.plans)

# UCRLVTRPlus
print(orl.run(orl.UCRLVTRPlus(features=features, norm_bound=1.3), mixture, episodes=20).total_regret)

# UniformRandom
print(orl.run(orl.UniformRandom(), river, episodes=20).total_regret)

# diagnose
result = orl.run(orl.ARLLinDim(features=features, norm_bound=1.3), mixture, episodes=500)
print(orl.diagnose(result))

# learn
spec = orl.read_ladder("frozen-lake-4x4")
result = orl.learn(orl.ARLGen(ladder=spec.ladder), gym.make("FrozenLake-v1"), episodes=100, known=spec.known)
print(result.verdict)

# load
spec = """
name = "tiny"
episodes = 20
seeds = 1
problem = [{ name = "RiverSwim" }]
agent = [{ name = "UniformRandom" }]
"""
Path("tiny.toml").write_text(spec)
orl.Experiment.from_toml("tiny.toml").run("tiny", workers=1)
print(orl.load("tiny").curves.column_names)

# preflight
report = orl.preflight(ladder, mdp.known, episodes=500)
print(report)
agent = report.selector()

# read_ladder
spec = orl.read_ladder("cliff-walking")  # a shipped ladder, or a TOML file
print(spec.ladder, spec.names)

# read_log
columns = {"episode": [0, 0], "step": [0, 1], "state": [0, 1], "action": [1, 0], "reward": [0.0, 1.0]}
log = orl.read_log({**columns, "next_state": [1, 2], "terminated": [0, 0], "truncated": [0, 1]})
print(log)

# run
result = orl.run(orl.Greedy(features=tabular), river, episodes=200, seed=0)
more = orl.run(orl.Greedy(features=tabular), river, episodes=200, continue_from=result)
print(more.total_regret)

# select
print(orl.select(simulate_log(mdp, episodes=100), ladder, known=mdp.known))

# supports
simulators = orl.Simulators(list(kernels))
agent = orl.UCRLVTRLin(features=simulators.features, norm_bound=1.0)
report = orl.supports(orl.run(agent, mdp, episodes=500), simulators)
print(report.necessary, [each.members for each in report.sets])

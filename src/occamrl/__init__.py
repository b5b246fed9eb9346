"""occamrl: Occam's razor for reinforcement learning.

Public names are loaded when first used, so that ``import occamrl`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "FiniteMDP": "occamrl.problems.mdp",
    "FeatureMap": "occamrl.models.features",
    "FiniteFamily": "occamrl.models.finite",
    "CoverFamily": "occamrl.models.finite",
    "Ladder": "occamrl.models.ladder",
    "LinearFamily": "occamrl.models.linear",
    "LinearLadder": "occamrl.models.ladder",
    "AggregationFamily": "occamrl.models.linear",
    "Family": "occamrl.models.family",
    "Rows": "occamrl.models.family",
    "Grid": "occamrl.continuous.grid",
    "Driven": "occamrl.continuous.transitions",
    "Sampled": "occamrl.continuous.transitions",
    "Density": "occamrl.continuous.transitions",
    "discretise": "occamrl.continuous.discretise",
    "UCRLVTR": "occamrl.learners.ucrl_vtr",
    "UCRLVTRNested": "occamrl.learners.ucrl_vtr_nested",
    "ARLGen": "occamrl.selectors.arl_gen",
    "preflight": "occamrl.analysis.preflight",
    "UCRLVTRLin": "occamrl.learners.ucrl_vtr_lin",
    "LinearStatistics": "occamrl.learners.ucrl_vtr_lin",
    "RewardsPerPair": "occamrl.learners.rewards",
    "RewardsLinear": "occamrl.learners.rewards",
    "BernoulliRewards": "occamrl.problems.mdp",
    "BetaRewards": "occamrl.problems.mdp",
    "Optimal": "occamrl.learners.baselines",
    "UniformRandom": "occamrl.learners.baselines",
    "Greedy": "occamrl.learners.baselines",
    "ARLLin": "occamrl.selectors.arl_lin",
    "ARLLinDim": "occamrl.selectors.arl_lin",
    "ARLLinNorm": "occamrl.selectors.arl_lin",
    "Diagnosis": "occamrl.analysis.diagnosis",
    "diagnose": "occamrl.analysis.diagnosis",
    "Simulators": "occamrl.models.simulators",
    "Supports": "occamrl.analysis.supports",
    "supports": "occamrl.analysis.supports",
    "Log": "occamrl.logs.log",
    "Selection": "occamrl.logs.select",
    "read_log": "occamrl.logs.log",
    "select": "occamrl.logs.select",
    "run": "occamrl.running.run",
    "Result": "occamrl.running.result",
    "Experiment": "occamrl.experiments.execution",
    "load": "occamrl.experiments.records",
    "learn": "occamrl.running.run",
    "Agent": "occamrl.running.agent",
    "FiniteEnvironment": "occamrl.envs.wrapper",
    "Discretiser": "occamrl.envs.spaces",
    "inconsistency": "occamrl.envs.spaces",
    "read_ladder": "occamrl.envs.ladder_file",
    "LadderSpec": "occamrl.envs.ladder_file",
    "EnvironmentFault": "occamrl.errors",
    "Callback": "occamrl.running.callbacks",
    "TensorBoard": "occamrl.running.callbacks",
    "MLflow": "occamrl.running.callbacks",
    "WeightsAndBiases": "occamrl.running.callbacks",
    "make_problem": "occamrl.registry",
    "stream": "occamrl.seeding",
    "check_learner": "occamrl.checks",
    "check_problem": "occamrl.checks",
    "check_family": "occamrl.checks",
    "check_selector": "occamrl.checks",
    "Phase": "occamrl.protocols",
    "PhaseOutcome": "occamrl.protocols",
    "Learner": "occamrl.protocols",
    "Selector": "occamrl.protocols",
    "Known": "occamrl.protocols",
    "Interrupted": "occamrl.errors",
    "InvalidInput": "occamrl.errors",
    "OccamRLError": "occamrl.errors",
}
_MODULES = ("problems", "envs", "models", "learners", "selectors", "paper", "errors", "registry")

__all__ = [  # spelled out, so that tools can read it
    "UCRLVTR",
    "ARLGen",
    "ARLLin",
    "ARLLinDim",
    "ARLLinNorm",
    "Agent",
    "AggregationFamily",
    "BernoulliRewards",
    "BetaRewards",
    "Callback",
    "CoverFamily",
    "Density",
    "Diagnosis",
    "Discretiser",
    "Driven",
    "EnvironmentFault",
    "Experiment",
    "Family",
    "FeatureMap",
    "FiniteEnvironment",
    "FiniteFamily",
    "FiniteMDP",
    "Greedy",
    "Grid",
    "Interrupted",
    "InvalidInput",
    "Known",
    "Ladder",
    "LadderSpec",
    "Learner",
    "LinearFamily",
    "LinearLadder",
    "LinearStatistics",
    "Log",
    "MLflow",
    "OccamRLError",
    "Optimal",
    "Phase",
    "PhaseOutcome",
    "Result",
    "RewardsLinear",
    "RewardsPerPair",
    "Rows",
    "Sampled",
    "Selection",
    "Selector",
    "Simulators",
    "Supports",
    "TensorBoard",
    "UCRLVTRLin",
    "UCRLVTRNested",
    "UniformRandom",
    "WeightsAndBiases",
    "__version__",
    "check_family",
    "check_learner",
    "check_problem",
    "check_selector",
    "diagnose",
    "discretise",
    "inconsistency",
    "learn",
    "load",
    "make_problem",
    "preflight",
    "read_ladder",
    "read_log",
    "run",
    "select",
    "stream",
    "supports",
]

if TYPE_CHECKING:
    from occamrl.analysis.diagnosis import Diagnosis, diagnose
    from occamrl.analysis.preflight import preflight
    from occamrl.analysis.supports import Supports, supports
    from occamrl.checks import check_family, check_learner, check_problem, check_selector
    from occamrl.continuous.discretise import discretise
    from occamrl.continuous.grid import Grid
    from occamrl.continuous.transitions import Density, Driven, Sampled
    from occamrl.envs.ladder_file import LadderSpec, read_ladder
    from occamrl.envs.spaces import Discretiser, inconsistency
    from occamrl.envs.wrapper import FiniteEnvironment
    from occamrl.errors import EnvironmentFault, Interrupted, InvalidInput, OccamRLError
    from occamrl.experiments.execution import Experiment
    from occamrl.experiments.records import load
    from occamrl.learners.baselines import Greedy, Optimal, UniformRandom
    from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
    from occamrl.learners.ucrl_vtr import UCRLVTR
    from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
    from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested
    from occamrl.logs.log import Log, read_log
    from occamrl.logs.select import Selection, select
    from occamrl.models.family import Family, Rows
    from occamrl.models.features import FeatureMap
    from occamrl.models.finite import CoverFamily, FiniteFamily
    from occamrl.models.ladder import Ladder, LinearLadder
    from occamrl.models.linear import AggregationFamily, LinearFamily
    from occamrl.models.simulators import Simulators
    from occamrl.problems.mdp import BernoulliRewards, BetaRewards, FiniteMDP
    from occamrl.protocols import Known, Learner, Phase, PhaseOutcome, Selector
    from occamrl.registry import make_problem
    from occamrl.running.agent import Agent
    from occamrl.running.callbacks import Callback, MLflow, TensorBoard, WeightsAndBiases
    from occamrl.running.result import Result
    from occamrl.running.run import learn, run
    from occamrl.seeding import stream
    from occamrl.selectors.arl_gen import ARLGen
    from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"occamrl.{name}")
    raise AttributeError(f"module 'occamrl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])

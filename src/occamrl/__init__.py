"""occamrl: Occam's razor for reinforcement learning.

Public names are loaded when first used, so that ``import occamrl`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "FiniteMDP": "occamrl.problems.finite_mdp",
    "FeatureMap": "occamrl.families.features",
    "FiniteFamily": "occamrl.families.finite",
    "CoverFamily": "occamrl.families.cover",
    "Ladder": "occamrl.families.ladder",
    "LinearFamily": "occamrl.families.linear",
    "LinearLadder": "occamrl.families.linear_ladder",
    "AggregationFamily": "occamrl.families.aggregation",
    "Family": "occamrl.families.family",
    "Rows": "occamrl.families.regression",
    "Grid": "occamrl.continuous.grid",
    "Driven": "occamrl.continuous.transitions",
    "Sampled": "occamrl.continuous.transitions",
    "Density": "occamrl.continuous.transitions",
    "discretise": "occamrl.continuous.discretise",
    "UCRLVTR": "occamrl.learners.ucrl_vtr",
    "UCRLVTRNested": "occamrl.learners.ucrl_vtr_nested",
    "LadderOracle": "occamrl.learners.ladder_references",
    "LadderNonAdaptive": "occamrl.learners.ladder_references",
    "LadderSmallest": "occamrl.learners.ladder_references",
    "ARLGen": "occamrl.selectors.arl_gen",
    "preflight": "occamrl.confidence.preflight",
    "UCRLVTRLin": "occamrl.learners.ucrl_vtr_lin",
    "LinearStatistics": "occamrl.learners.ucrl_vtr_lin",
    "RewardsPerPair": "occamrl.learners.rewards",
    "RewardsLinear": "occamrl.learners.rewards",
    "BernoulliRewards": "occamrl.problems.noise",
    "BetaRewards": "occamrl.problems.noise",
    "Optimal": "occamrl.learners.optimal",
    "UniformRandom": "occamrl.learners.uniform_random",
    "Greedy": "occamrl.learners.greedy",
    "ARLLin": "occamrl.selectors.arl_lin",
    "ARLLinDim": "occamrl.selectors.arl_lin_dim",
    "ARLLinNorm": "occamrl.selectors.arl_lin_norm",
    "Oracle": "occamrl.selectors.counterparts",
    "NonAdaptive": "occamrl.selectors.counterparts",
    "Diagnosis": "occamrl.report.diagnosis",
    "diagnose": "occamrl.report.diagnosis",
    "Simulators": "occamrl.environments.simulators",
    "Supports": "occamrl.report.supports",
    "supports": "occamrl.report.supports",
    "Log": "occamrl.logs.episodes",
    "Selection": "occamrl.logs.selection",
    "read_log": "occamrl.logs.reading",
    "select": "occamrl.logs.selection",
    "run": "occamrl.runs.loop",
    "Result": "occamrl.runs.result",
    "Experiment": "occamrl.runs.experiment",
    "load": "occamrl.runs.records",
    "Interaction": "occamrl.runs.interaction",
    "save_checkpoint": "occamrl.runs.checkpoint",
    "load_checkpoint": "occamrl.runs.checkpoint",
    "Anchored": "occamrl.runs.anchored",
    "learn": "occamrl.runs.learning",
    "learn_on_box": "occamrl.runs.box_learning",
    "Agent": "occamrl.runs.agent",
    "Learned": "occamrl.runs.learned",
    "FiniteEnvironment": "occamrl.environments.finite",
    "Discretiser": "occamrl.environments.discretiser",
    "inconsistency": "occamrl.environments.discretiser",
    "read_ladder": "occamrl.environments.ladder_file",
    "LadderSpec": "occamrl.environments.ladder_spec",
    "EnvironmentFault": "occamrl.environments.misbehaviour",
    "Callback": "occamrl.runs.callbacks",
    "TensorBoard": "occamrl.runs.callbacks",
    "MLflow": "occamrl.runs.callbacks",
    "WeightsAndBiases": "occamrl.runs.callbacks",
    "make_problem": "occamrl.registry",
    "stream": "occamrl.seeding",
    "check_learner": "occamrl.checks",
    "check_problem": "occamrl.checks",
    "check_family": "occamrl.checks",
    "check_selector": "occamrl.checks",
    "Phase": "occamrl.contracts",
    "PhaseOutcome": "occamrl.contracts",
    "Learner": "occamrl.contracts",
    "Selector": "occamrl.contracts",
    "Known": "occamrl.contracts",
    "Interrupted": "occamrl.errors",
    "InvalidInput": "occamrl.errors",
    "OccamRLError": "occamrl.errors",
}
_MODULES = ("problems", "environments", "families", "learners", "selectors", "errors", "registry")

__all__ = [  # spelled out, so that tools can read it
    "UCRLVTR",
    "ARLGen",
    "ARLLin",
    "ARLLinDim",
    "ARLLinNorm",
    "Agent",
    "AggregationFamily",
    "Anchored",
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
    "Interaction",
    "Interrupted",
    "InvalidInput",
    "Known",
    "Ladder",
    "LadderNonAdaptive",
    "LadderOracle",
    "LadderSmallest",
    "LadderSpec",
    "Learned",
    "Learner",
    "LinearFamily",
    "LinearLadder",
    "LinearStatistics",
    "Log",
    "MLflow",
    "NonAdaptive",
    "OccamRLError",
    "Optimal",
    "Oracle",
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
    "learn_on_box",
    "load",
    "load_checkpoint",
    "make_problem",
    "preflight",
    "read_ladder",
    "read_log",
    "run",
    "save_checkpoint",
    "select",
    "stream",
    "supports",
]

if TYPE_CHECKING:
    from occamrl.checks import check_family, check_learner, check_problem, check_selector
    from occamrl.confidence.preflight import preflight
    from occamrl.continuous.discretise import discretise
    from occamrl.continuous.grid import Grid
    from occamrl.continuous.transitions import Density, Driven, Sampled
    from occamrl.contracts import Known, Learner, Phase, PhaseOutcome, Selector
    from occamrl.environments.discretiser import Discretiser, inconsistency
    from occamrl.environments.finite import FiniteEnvironment
    from occamrl.environments.ladder_file import read_ladder
    from occamrl.environments.ladder_spec import LadderSpec
    from occamrl.environments.misbehaviour import EnvironmentFault
    from occamrl.environments.simulators import Simulators
    from occamrl.errors import Interrupted, InvalidInput, OccamRLError
    from occamrl.families.aggregation import AggregationFamily
    from occamrl.families.cover import CoverFamily
    from occamrl.families.family import Family
    from occamrl.families.features import FeatureMap
    from occamrl.families.finite import FiniteFamily
    from occamrl.families.ladder import Ladder
    from occamrl.families.linear import LinearFamily
    from occamrl.families.linear_ladder import LinearLadder
    from occamrl.families.regression import Rows
    from occamrl.learners.greedy import Greedy
    from occamrl.learners.ladder_references import LadderNonAdaptive, LadderOracle, LadderSmallest
    from occamrl.learners.optimal import Optimal
    from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
    from occamrl.learners.ucrl_vtr import UCRLVTR
    from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
    from occamrl.learners.ucrl_vtr_nested import UCRLVTRNested
    from occamrl.learners.uniform_random import UniformRandom
    from occamrl.logs.episodes import Log
    from occamrl.logs.reading import read_log
    from occamrl.logs.selection import Selection, select
    from occamrl.problems.finite_mdp import FiniteMDP
    from occamrl.problems.noise import BernoulliRewards, BetaRewards
    from occamrl.registry import make_problem
    from occamrl.report.diagnosis import Diagnosis, diagnose
    from occamrl.report.supports import Supports, supports
    from occamrl.runs.agent import Agent
    from occamrl.runs.anchored import Anchored
    from occamrl.runs.box_learning import learn_on_box
    from occamrl.runs.callbacks import Callback, MLflow, TensorBoard, WeightsAndBiases
    from occamrl.runs.checkpoint import load_checkpoint, save_checkpoint
    from occamrl.runs.experiment import Experiment
    from occamrl.runs.interaction import Interaction
    from occamrl.runs.learned import Learned
    from occamrl.runs.learning import learn
    from occamrl.runs.loop import run
    from occamrl.runs.records import load
    from occamrl.runs.result import Result
    from occamrl.seeding import stream
    from occamrl.selectors.arl_gen import ARLGen
    from occamrl.selectors.arl_lin import ARLLin
    from occamrl.selectors.arl_lin_dim import ARLLinDim
    from occamrl.selectors.arl_lin_norm import ARLLinNorm
    from occamrl.selectors.counterparts import NonAdaptive, Oracle


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

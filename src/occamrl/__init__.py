"""occamrl: Occam's razor for reinforcement learning.

Public names are loaded when first used, so that ``import occamrl`` costs nothing. Everything else lives in its module:
``occamrl.paper`` (the paper's algorithms to the letter), ``occamrl.checks``, ``occamrl.protocols``,
``occamrl.running.run``, ``occamrl.problems``, ``occamrl.continuous``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing: nothing is imported here, so that the command hears Ctrl-C from the first moment

__version__ = "0.2.0"

if TYPE_CHECKING:  # the one list of public names, for type checkers and for __getattr__ alike
    from typing import Any

    from occamrl.analysis.diagnosis import diagnose as diagnose
    from occamrl.analysis.preflight import preflight as preflight
    from occamrl.analysis.supports import supports as supports
    from occamrl.envs.ladder_file import read_ladder as read_ladder
    from occamrl.envs.spaces import Discretiser as Discretiser
    from occamrl.errors import Interrupted as Interrupted
    from occamrl.errors import InvalidInput as InvalidInput
    from occamrl.errors import OccamRLError as OccamRLError
    from occamrl.experiments.execution import Experiment as Experiment
    from occamrl.experiments.records import load as load
    from occamrl.learners.baselines import Greedy as Greedy
    from occamrl.learners.baselines import Optimal as Optimal
    from occamrl.learners.baselines import UniformRandom as UniformRandom
    from occamrl.learners.lin_psrl import LinPSRL as LinPSRL
    from occamrl.learners.occam_linear import OccamLin as OccamLin
    from occamrl.learners.occam_linear import OccamMixture as OccamMixture
    from occamrl.learners.posterior import PSRL as PSRL
    from occamrl.learners.q_learning import QLearningUCB as QLearningUCB
    from occamrl.learners.rewards import RewardsLinear as RewardsLinear
    from occamrl.learners.rewards import RewardsPerPair as RewardsPerPair
    from occamrl.learners.rlsvi import RLSVI as RLSVI
    from occamrl.learners.ucbvi import UCBVI as UCBVI
    from occamrl.learners.ucrl_vtr import UCRLVTR as UCRLVTR
    from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin as UCRLVTRLin
    from occamrl.learners.ucrl_vtr_plus import UCRLVTRPlus as UCRLVTRPlus
    from occamrl.logs.log import read_log as read_log
    from occamrl.logs.select import select as select
    from occamrl.models.features import FeatureMap as FeatureMap
    from occamrl.models.finite import CoverFamily as CoverFamily
    from occamrl.models.finite import FiniteFamily as FiniteFamily
    from occamrl.models.ladder import Ladder as Ladder
    from occamrl.models.linear import AggregationFamily as AggregationFamily
    from occamrl.models.linear import LinearFamily as LinearFamily
    from occamrl.models.simulators import Simulators as Simulators
    from occamrl.problems.mdp import FiniteMDP as FiniteMDP
    from occamrl.protocols import EpisodeLearner as EpisodeLearner
    from occamrl.protocols import Known as Known
    from occamrl.protocols import Rule as Rule
    from occamrl.registry import make_problem as make_problem
    from occamrl.report.compare import Comparison as Comparison
    from occamrl.report.compare import compare as compare
    from occamrl.rules.balancing import D3RB as D3RB
    from occamrl.rules.balancing import ECE as ECE
    from occamrl.rules.balancing import ED2RB as ED2RB
    from occamrl.rules.balancing import RegretBalancing as RegretBalancing
    from occamrl.rules.bandits import EXP3P as EXP3P
    from occamrl.rules.bandits import UCB1 as UCB1
    from occamrl.rules.corral import StochasticCORRAL as StochasticCORRAL
    from occamrl.running.agent import Agent as Agent
    from occamrl.running.result import Result as Result
    from occamrl.running.run import learn as learn
    from occamrl.running.run import run as run
    from occamrl.selectors.arena import Arena as Arena
    from occamrl.selectors.arl_gen import ARLGen as ARLGen
    from occamrl.selectors.arl_lin import ARLLin as ARLLin
    from occamrl.selectors.arl_lin import ARLLinDim as ARLLinDim
    from occamrl.selectors.arl_lin import ARLLinNorm as ARLLinNorm
    from occamrl.selectors.occam import Occam as Occam


_MODULES = ("errors", "paper", "problems", "registry")


def _homes() -> dict[str, str]:
    """Return the module of every public name, from the list above."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).read_text("utf-8"))
    listed = next(node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in listed.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports if node.module != "typing" for alias in node.names}


def __getattr__(name: str) -> Any:
    import difflib
    import importlib

    if name == "__all__":
        return sorted(_homes())
    if name in _MODULES:
        return importlib.import_module(f"occamrl.{name}")
    homes = {} if name.startswith("_") else _homes()
    home = homes.get(name)
    if home is None:
        near = difflib.get_close_matches(name, homes, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'occamrl' has no attribute {name!r}{hint}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    if isinstance(value, type) and "__init__" in vars(value):
        from occamrl.errors import explains_calls

        type.__setattr__(value, "__init__", explains_calls(vars(value)["__init__"]))
    return value


def __dir__() -> list[str]:
    return sorted([*_homes(), *_MODULES, "__version__"])

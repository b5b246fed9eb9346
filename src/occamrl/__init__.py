"""occamrl: Occam's razor for reinforcement learning.

Public names are loaded when first used, so that ``import occamrl`` costs nothing. Everything else lives in its module:
``occamrl.paper`` (the paper's algorithms to the letter), ``occamrl.checks``, ``occamrl.protocols``,
``occamrl.running.callbacks``, ``occamrl.problems``, ``occamrl.continuous``.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:  # the one list of public names, for type checkers and for __getattr__ alike
    from occamrl.analysis.diagnosis import diagnose
    from occamrl.analysis.preflight import preflight
    from occamrl.analysis.supports import supports
    from occamrl.envs.ladder_file import read_ladder
    from occamrl.envs.spaces import Discretiser
    from occamrl.errors import Interrupted, InvalidInput, OccamRLError
    from occamrl.experiments.execution import Experiment
    from occamrl.experiments.records import load
    from occamrl.learners.baselines import Greedy, Optimal, UniformRandom
    from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
    from occamrl.learners.ucrl_vtr import UCRLVTR
    from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
    from occamrl.logs.log import read_log
    from occamrl.logs.select import select
    from occamrl.models.features import FeatureMap
    from occamrl.models.finite import CoverFamily, FiniteFamily
    from occamrl.models.ladder import Ladder
    from occamrl.models.linear import AggregationFamily, LinearFamily
    from occamrl.models.simulators import Simulators
    from occamrl.problems.mdp import FiniteMDP
    from occamrl.protocols import EpisodeLearner, Known
    from occamrl.registry import make_problem
    from occamrl.running.agent import Agent
    from occamrl.running.result import Result
    from occamrl.running.run import learn, run
    from occamrl.selectors.arl_gen import ARLGen
    from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm


_MODULES = ("errors", "paper", "problems", "registry")


def _homes() -> dict[str, str]:
    """Return the module of every public name, from the list above."""
    tree = ast.parse(Path(__file__).read_text("utf-8"))
    listed = next(node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in listed.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_homes())
    if name in _MODULES:
        return importlib.import_module(f"occamrl.{name}")
    home = None if name.startswith("_") else _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'occamrl' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*_homes(), *_MODULES, "__version__"])

"""occamrl: Occam's razor for reinforcement learning.

Ten names to begin with::

    FiniteMDP      a problem from arrays P[s, a, s'] and r[s, a]; make_problem has built-in ones
    Model          a problem from a function of yours, with parameters that are fitted
    Ladder         candidate models, from simple to rich
    Occam          an agent that finds out which of them is needed; ARLGen, ARLLin and others do too
    run            play an agent on a problem, with its exact regret
    learn          play an agent in a Gymnasium environment
    select         find out which model a log of episodes requires
    compare        play several agents over the same seeds: tables, figures, LaTeX
    Experiment     many agents on many problems, resumed where they stopped; load reads the results
    preflight      will selection pay, and what can it not find out?

Classes of a ladder count from 1; states, actions and all other indices from 0. ``occamrl.paper``
has the paper's algorithms to the letter, ``occamrl.checks`` tests what you add.

Public names are loaded when they are first used, so that ``import occamrl`` costs nothing.
"""

from __future__ import annotations

# As in typing: nothing is imported here, so that the command hears Ctrl-C from the first moment.
TYPE_CHECKING = False

__version__ = "0.3.0"

if TYPE_CHECKING:  # the one list of public names, for type checkers and for __getattr__ alike
    from typing import Any

    from occamrl import checks as checks
    from occamrl import errors as errors
    from occamrl import paper as paper
    from occamrl import problems as problems
    from occamrl.analysis.preflight import preflight as preflight
    from occamrl.analysis.supports import supports as supports
    from occamrl.control.controller import OccamControl as OccamControl
    from occamrl.control.dynamics import Dynamics as Dynamics
    from occamrl.control.ladder import SimulatorLadder as SimulatorLadder
    from occamrl.control.planners import CEM as CEM
    from occamrl.control.planners import MPPI as MPPI
    from occamrl.control.system import Box as Box
    from occamrl.envs.ladder_file import read_ladder as read_ladder
    from occamrl.envs.wrapper import Discretiser as Discretiser
    from occamrl.errors import Interrupted as Interrupted
    from occamrl.errors import InvalidInput as InvalidInput
    from occamrl.errors import OccamRLError as OccamRLError
    from occamrl.experiments.comparison import Comparison as Comparison
    from occamrl.experiments.comparison import compare as compare
    from occamrl.experiments.execution import Experiment as Experiment
    from occamrl.experiments.records import load as load
    from occamrl.learners.fixed_policies import Optimal as Optimal
    from occamrl.learners.fixed_policies import UniformRandom as UniformRandom
    from occamrl.learners.greedy import Greedy as Greedy
    from occamrl.learners.occam import Occam as Occam
    from occamrl.learners.occam_mixture import OccamMixture as OccamMixture
    from occamrl.learners.psrl import PSRL as PSRL
    from occamrl.learners.q_learning_ucb import QLearningUCB as QLearningUCB
    from occamrl.learners.rewards import RewardsPerPair as RewardsPerPair
    from occamrl.learners.rlsvi import RLSVI as RLSVI
    from occamrl.learners.ucbvi import UCBVI as UCBVI
    from occamrl.learners.ucrl_vtr import UCRLVTR as UCRLVTR
    from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin as UCRLVTRLin
    from occamrl.learners.ucrl_vtr_plus import UCRLVTRPlus as UCRLVTRPlus
    from occamrl.logs.log import read_log as read_log
    from occamrl.logs.relevance import relevant as relevant
    from occamrl.logs.select import select as select
    from occamrl.models.dynamics import GreyBox as GreyBox
    from occamrl.models.dynamics import Polynomial as Polynomial
    from occamrl.models.dynamics import Rival as Rival
    from occamrl.models.dynamics import Terms as Terms
    from occamrl.models.families import AggregationFamily as AggregationFamily
    from occamrl.models.families import CoverFamily as CoverFamily
    from occamrl.models.families import FiniteFamily as FiniteFamily
    from occamrl.models.families import LinearFamily as LinearFamily
    from occamrl.models.features import FeatureMap as FeatureMap
    from occamrl.models.ladder import Ladder as Ladder
    from occamrl.models.model import Model as Model
    from occamrl.models.simulators import Simulators as Simulators
    from occamrl.problems.mdp import FiniteMDP as FiniteMDP
    from occamrl.problems.named import make_problem as make_problem
    from occamrl.protocols import Flow as Flow
    from occamrl.protocols import Known as Known
    from occamrl.protocols import Learner as Learner
    from occamrl.protocols import Plan as Plan
    from occamrl.protocols import Rule as Rule
    from occamrl.running.agent import Agent as Agent
    from occamrl.running.learn import learn as learn
    from occamrl.running.result import Result as Result
    from occamrl.running.run import run as run
    from occamrl.selectors.arena import Arena as Arena
    from occamrl.selectors.arl_gen import ARLGen as ARLGen
    from occamrl.selectors.arl_lin import ARLLin as ARLLin
    from occamrl.selectors.arl_lin_dim import ARLLinDim as ARLLinDim
    from occamrl.selectors.arl_lin_norm import ARLLinNorm as ARLLinNorm
    from occamrl.selectors.d3rb import D3RB as D3RB
    from occamrl.selectors.d3rb import ED2RB as ED2RB
    from occamrl.selectors.ece import ECE as ECE
    from occamrl.selectors.references import largest as largest
    from occamrl.selectors.references import oracle as oracle
    from occamrl.selectors.references import smallest as smallest
    from occamrl.selectors.regret_balancing import RegretBalancing as RegretBalancing
    from occamrl.selectors.stochastic_corral import StochasticCORRAL as StochasticCORRAL
    from occamrl.selectors.ucb1 import UCB1 as UCB1


_MODULES = ("checks", "errors", "paper", "problems")


def _homes() -> dict[str, str]:
    """Return the module of every public name, from the list above."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).read_text("utf-8"))
    listed = next(node for node in tree.body if isinstance(node, ast.If))
    homes: dict[str, str] = {}
    for node in listed.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("occamrl."):
            homes |= {alias.name: str(node.module) for alias in node.names}
    return homes


def __getattr__(name: str) -> Any:
    import difflib
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"occamrl.{name}")
    homes = _homes()
    if name == "__all__":
        return sorted(homes)
    if name in homes:
        # By name, so that whoever needs one class does not wait for SciPy, Arrow and Gymnasium.
        value = globals()[name] = getattr(importlib.import_module(homes[name]), name)
        return value
    message = f"module 'occamrl' has no attribute {name!r}"
    folded = {public.casefold(): public for public in homes}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    if near and not name.startswith("_"):
        message += f"; did you mean {folded[near[0]]!r}?"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted([*_homes(), *_MODULES, "__version__"])

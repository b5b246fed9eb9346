"""The five algorithms of the paper to the letter: pseudo-code that runs.

Ghosh, Ray Chowdhury and Ramchandran, "Model Selection for Generic Reinforcement Learning", L4DC
2022. Each file holds one algorithm, with the paper's constants, its clip of values at H, a plan
before every episode, lambda = 1 and, for the selectors, fresh data and a smaller level in every
epoch. Where the paper contradicts itself a parameter chooses, and the default is the reading that
can be proved. :mod:`occamrl.paper.theorems` has the right-hand sides of its theorems.

They share no code with :mod:`occamrl.learners` and :mod:`occamrl.selectors`, which are tested
against them. Rewards are known and a function of (s, a), and one kernel serves all steps, as in the
paper.
"""

from __future__ import annotations

from occamrl.paper import quantities, real_classes, theorems
from occamrl.paper.arl_gen import ARLGen
from occamrl.paper.arl_lin_dim import ARLLinDim
from occamrl.paper.arl_lin_norm import ARLLinNorm
from occamrl.paper.quantities import eluder, excitation, feature_bound, separation
from occamrl.paper.report import report
from occamrl.paper.ucrl_vtr import UCRLVTR
from occamrl.paper.ucrl_vtr_lin import UCRLVTRLin, UCRLVTRLinAyoub

__all__ = [
    "UCRLVTR",
    "ARLGen",
    "ARLLinDim",
    "ARLLinNorm",
    "UCRLVTRLin",
    "UCRLVTRLinAyoub",
    "eluder",
    "excitation",
    "feature_bound",
    "quantities",
    "real_classes",
    "report",
    "separation",
    "theorems",
]


def __dir__() -> list[str]:
    return list(__all__)

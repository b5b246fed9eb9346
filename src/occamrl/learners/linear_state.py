"""The arrays of value-targeted ridge regression: constants, statistics, the plan in play and the rows seen under it.

One kernel per step is the same regression T = H times, with statistics of their own: block b of step t is block
``t B + b``. A stationary kernel has T = 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from occamrl._core.regression import (
    Batch,
    Blocks,
)
from occamrl.protocols import Floats, Ints

EPISODES, TOUCHED, PLANS = range(3)  # counters
TRACE, LOGDET, LOGDET_AT_PLAN = range(3)  # growth


class Scratch(NamedTuple):
    """Memory for intermediate results; nothing in it outlives a call."""

    target: Floats  # [most outcomes of an (s, a)]
    x: Floats  # [largest block]
    work: Floats  # [largest block squared]
    block: Floats  # [|D|^2 + |D|] the [D, D] block of Sigma and the [D] block of xy; empty when all coordinates plan
    dirty: Ints  # [B]
    mean: Floats  # [S*A] <x, theta>
    norm: Floats  # [S*A] ||x||^2 in Sigma^{-1}
    middle: Floats  # [S*A] c
    spread: Floats  # [S*A] R
    q: Floats  # [S*A]


class LinearModel(NamedTuple):
    """What the compiled functions read, and their scratch memory."""

    features: Any  # DenseFeatures | SparseFeatures | TabularFeatures, of the coordinates that plan
    blocks: Blocks  # of all T steps, one after the other
    row_features: Any  # the same of all coordinates, in which rows are entered
    active: Ints  # [|D|] the coordinates that plan, among all; empty: every one
    rewards: Any  # KnownRewards | EstimatedRewards
    actions: int
    horizon: int
    rows: int  # steps that give a row: H - 1, or H when rewards come on transitions (M20)
    steps: int  # T: 1, or H with one kernel per step
    dimension: int
    batch: Batch  # used when all (s, a) share one target function
    radius: int
    weighted: bool
    unit: float  # U, the range of a target
    delta: float
    norm_bound: float
    regularization: float
    paper_constant: float
    scale: float
    slack: float  # what the log-determinant of the noise event exceeds that of Sigma by, at most
    estimate_weight: float  # what ||theta||^2 weighs in the radius: lambda of the noise event less that of Sigma
    replan: float
    clip_at_horizon: bool  # the paper's clip at H instead of H - h + 1
    scratch: Scratch


class LinearState(NamedTuple):
    """Statistics, the plan in play, and the rows seen under it."""

    sigma: Floats  # [T * blocks' matrices] lambda I + sum x x^T, rows before the last refresh; of all coordinates
    xy: Floats  # [T*d] sum y x, of all coordinates
    factor: Floats  # [T * blocks' matrices] W with Sigma^{-1} = W W^T
    theta: Floats  # [T*d] Sigma^{-1} xy
    logdet: Floats  # [T*B] logdet(Sigma_b / lambda)
    values: Floats  # [H + 1, S] V^k_h
    policy: Ints  # [H, S]
    visits: Ints  # [H, S] rows since the last refresh
    first_target: Floats  # [H, S] W(o) of the first of them
    target_sum: Floats  # [H, S] sum of W(o) - first_target
    norm: Floats  # [H, S] ||x||^2 in Sigma^{-1}, of the cells touched since the last refresh
    touched: Ints  # [H*S] those cells
    counters: Ints  # [3] episodes, number of touched cells, plans
    growth: Floats  # [T, 3] sum of `norm` since the refresh; total logdet at the refresh; at the last plan
    rewards: Any  # NothingHeard | RewardRows

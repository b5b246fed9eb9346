"""Rewards in arrays: what is kept of those heard, and the largest ones that they allow.

Known rewards and estimated ones are two types of NamedTuple with the same functions; which of them a learner has is
decided when it is compiled, so that known rewards cost nothing. Estimates per (s, a) and estimates on features keep the
same of the data: per (s, a) the number of rewards, their sum and the sum of their squares. The regression on features
is put together from these when a plan is due, so that no rounding travels from one plan to the next.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from occamrl.confidence.radii import SHARP, bernstein_width, ellipsoid_width, hoeffding_width
from occamrl.contracts import Floats, Ints
from occamrl.kernels.compile import hot, implements
from occamrl.kernels.ridge import add_row, dot, invert_factor, solve, squared_norm

HOEFFDING, BERNSTEIN, LINEAR = range(3)
_LOST = 2.0**-40  # of the largest diagonal entry: four thousand times what a sum next to it is rounded by
_CARE = 1.0 + 2.0**-8  # more than that rounding then does to a norm


class KnownRewards(NamedTuple):
    """Rewards that need no estimate."""

    reward: Floats  # [S*A]


class NothingHeard(NamedTuple):
    """What is kept of rewards that are known."""


class EstimatedRewards(NamedTuple):
    """How rewards are estimated; ``reward`` and what follows it are filled at every plan."""

    kind: int
    features: Floats  # [S*A, p] psi; p = 1 and not read for estimates per pair
    delta: float  # of one pair, or of one regression
    scale: float
    regularization: float
    norm_bound: float
    growth: float  # a plan is due when the number of rewards of a pair, plus one, has grown by this factor
    reward: Floats  # [R, S*A] the optimistic rewards
    sigma: Floats  # [p, p]
    factor: Floats  # [p, p]
    work: Floats  # [p*p]
    xy: Floats  # [p]
    theta: Floats  # [p]


class RewardRows(NamedTuple):
    """The rewards heard so far, by (s, a); R = 1, or H where every step has rewards of its own."""

    visits: Ints  # [R, S*A]
    total: Floats  # [R, S*A]
    squares: Floats  # [R, S*A]
    at_plan: Ints  # [R, S*A] visits when the plan in play was made
    due: Ints  # [1] whether some pair has many more


# What a learner's compiled functions call; the type of the first argument decides at compile time


def hear_reward(rewards: Any, rows: Any, h: int, sa: int, reward: float) -> None:
    """Take note of a reward of (s, a) at step ``h``."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def in_target(rewards: Any, bonus: float) -> float:
    """Return the part of a reward that joins the target of its row (M20)."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def reward_of(rewards: Any, h: int, sa: int) -> float:
    """Return the reward that the plan counts on, at step ``h``."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def rewards_due(rewards: Any, rows: Any) -> bool:
    """Say whether the estimates have changed enough for a new plan."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


def imagine(rewards: Any, rows: Any) -> None:
    """Compute the optimistic rewards from what was heard, for the plan that is being made."""
    raise TypeError(f"no rewards of type {type(rewards).__name__}")


@implements(hear_reward, KnownRewards)
def hear_known(rewards: KnownRewards, rows: NothingHeard, h: int, sa: int, reward: float) -> None:
    """``hear_reward`` of known rewards."""


@implements(in_target, KnownRewards)
def in_target_known(rewards: KnownRewards, bonus: float) -> float:
    """``in_target`` of known rewards: what depends on the outcome."""
    return bonus


@implements(reward_of, KnownRewards)
def reward_known(rewards: KnownRewards, h: int, sa: int) -> float:
    """``reward_of`` known rewards."""
    return float(rewards.reward[sa])


@implements(rewards_due, KnownRewards)
def never_due(rewards: KnownRewards, rows: NothingHeard) -> bool:
    """``rewards_due`` of known rewards."""
    return False


@implements(imagine, KnownRewards)
def imagine_nothing(rewards: KnownRewards, rows: NothingHeard) -> None:
    """``imagine`` known rewards: they are there."""


@implements(hear_reward, EstimatedRewards)
def hear_estimated(rewards: EstimatedRewards, rows: RewardRows, h: int, sa: int, reward: float) -> None:
    """``hear_reward`` of rewards to be estimated."""
    t = h % rows.visits.shape[0]
    rows.visits[t, sa] += 1
    rows.total[t, sa] += reward
    rows.squares[t, sa] += reward * reward
    if rows.visits[t, sa] + 1 >= rewards.growth * (rows.at_plan[t, sa] + 1):
        rows.due[0] = 1


@implements(in_target, EstimatedRewards)
def in_target_estimated(rewards: EstimatedRewards, bonus: float) -> float:
    """``in_target`` of rewards to be estimated: nothing."""
    return 0.0


@implements(reward_of, EstimatedRewards)
def reward_estimated(rewards: EstimatedRewards, h: int, sa: int) -> float:
    """``reward_of`` rewards to be estimated: what was imagined."""
    return float(rewards.reward[h % rewards.reward.shape[0], sa])


@implements(rewards_due, EstimatedRewards)
def due_by_visits(rewards: EstimatedRewards, rows: RewardRows) -> bool:
    """``rewards_due`` of rewards to be estimated."""
    return bool(rows.due[0] == 1)


@implements(imagine, EstimatedRewards)
def imagine_estimated(rewards: EstimatedRewards, rows: RewardRows) -> None:
    """``imagine`` the largest rewards that the data allow."""
    for t in range(rows.visits.shape[0]):
        if rewards.kind == LINEAR:
            imagine_linear(rewards, rows, t)
        else:
            imagine_pairs(rewards, rows, t)
        for sa in range(rows.visits.shape[1]):
            rows.at_plan[t, sa] = rows.visits[t, sa]
    rows.due[0] = 0


@hot
def imagine_pairs(rewards: EstimatedRewards, rows: RewardRows, t: int) -> None:
    """Write mean + width of every (s, a), at most 1; 1/2 +- 1/2 before the first reward."""
    level = math.log(1.0 / rewards.delta)
    for sa in range(rows.visits.shape[1]):
        n = rows.visits[t, sa]
        mean, width = 0.5, 0.5
        if n > 0:
            mean = rows.total[t, sa] / n
            if rewards.kind == HOEFFDING:
                width = hoeffding_width(n, level)
            else:
                variance = max(0.0, rows.squares[t, sa] - n * mean * mean) / max(1, n - 1)
                half = level + math.log(2.0)
                width = min(hoeffding_width(n, half), bernstein_width(n, variance, half))
        rewards.reward[t, sa] = min(1.0, mean + rewards.scale * width)


@hot
def imagine_linear(rewards: EstimatedRewards, rows: RewardRows, t: int) -> None:
    """Write <psi, omega> + sqrt(beta) ||psi|| of every (s, a), cut to [0, 1] (M8, M11 for targets of range 1).

    Beside features of very different sizes lambda would be lost to rounding, and with it what is not known of their
    difference. Then it is raised to what numbers can hold: by any amount, chosen after the data, since the noise event
    bounds L(omega*) by min { L(omega) + lambda ||omega||^2 }, which only grows, and the amount times b^2 joins beta.
    """
    psi, sigma, xy = rewards.features, rewards.sigma, rewards.xy
    p = psi.shape[1]
    for i in range(p):
        xy[i] = 0.0
        for j in range(p):
            sigma[i, j] = rewards.regularization if i == j else 0.0
    for sa in range(psi.shape[0]):
        if rows.visits[t, sa] > 0:
            add_row(sigma, rows.visits[t, sa], psi[sa])
            for j in range(p):
                xy[j] += rows.total[t, sa] * psi[sa, j]
    lost = 0.0
    for i in range(p):
        lost = max(lost, p * _LOST * sigma[i, i] - rewards.regularization)
    for i in range(p):
        sigma[i, i] += lost
    work = rewards.work
    logdet = invert_factor(sigma, rewards.factor, work.reshape((p, p))) - p * math.log(rewards.regularization)
    solve(rewards.factor, xy, rewards.theta, work)
    held = rewards.regularization + lost
    width = rewards.scale * ellipsoid_width(
        SHARP, True, 1.0, 1, 0, 0, p, logdet, rewards.delta, held, rewards.norm_bound, 1.0
    )
    width = width * _CARE if lost > 0.0 else width
    for sa in range(psi.shape[0]):
        mean = dot(psi[sa], rewards.theta, p)
        bound = mean + width * math.sqrt(squared_norm(rewards.factor, psi[sa], work))
        rewards.reward[t, sa] = min(1.0, max(0.0, bound))

"""A diagnosis of a linear selector's run that a person can read.

Selection by dimension rests on two things: every direction is explored (the paper's assumption that lambda_min(Sigma_k)
grows like k H rho_min), and the smallest non-zero coordinate gamma stands out from what can be told apart by now. Both
are visible in the facts of the phases; so is the time at which the second will hold at the present rate. Growth is that
of the rows alone, lambda_min(Sigma) - lambda: lambda may differ from phase to phase, and says nothing about what was
explored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_kind
from occamrl.running.result import Result
from occamrl.selectors.arl_lin import EXPLOITATION, LinearSelector, target_range

_ROUNDING = 1e-9  # an eigenvalue of this size is zero
_FLAT = 0.1  # an eigenvalue that grows slower than k^0.1 does not grow for the purposes of a run


@dataclass(frozen=True)
class Diagnosis:
    """What a run shows about the assumptions behind it; ``str`` of it is the text."""

    episodes: int
    excitation: float | None  # lambda_min(Sigma)/(kH), before the last phase
    growth: float | None  # the power of k with which lambda_min(sum x x^T) grows; 1 is what the paper assumes
    weakest: int | None  # the coordinate that lies most in the least explored direction
    active: tuple[int, ...] | None  # the coordinates in play last, for a selection by dimension
    settled_at: int | None  # the episode since which they have not changed
    gamma: float | None  # the smallest magnitude among their estimates
    threshold: float | None  # the magnitude from which on a coordinate is taken in
    locks_in_at: float | None  # the episode at which threshold <= gamma / 2, at the present rate; inf: never
    norm_bounds: tuple[float, ...]  # b of the phases, in order; never one that holds for the active coordinates only
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"After {self.episodes:,} episodes:"]
        if self.excitation is not None:
            pace = "" if self.growth is None else f"; lambda_min(Sigma) ~ k^{self.growth:.2f} (the paper assumes k^1)"
            lines.append(f"  exploration   lambda_min(Sigma)/(kH) = {self.excitation:.3g}{pace}")
        if self.active is not None:
            lines.append(f"  support       {list(self.active)}, unchanged since episode {self.settled_at:,}")
        if self.gamma is not None:
            text = f"smallest estimate {self.gamma:.3g}: every coordinate is active, none left out"
            if self.locks_in_at is not None:
                text = f"smallest active estimate {self.gamma:.3g}, threshold now {self.threshold:.3g}: {self._when}"
            lines.append(f"  resolution    {text}")
        if len(set(self.norm_bounds)) > 1:
            lines.append(f"  norm bound    {self.norm_bounds[0]:.3g} at first, {self.norm_bounds[-1]:.3g} now")
        lines += [f"  warning       {text}" for text in self.warnings] or ["  no warnings"]
        return "\n".join(lines)

    @property
    def _when(self) -> str:
        if self.locks_in_at is None or math.isinf(self.locks_in_at):
            return "no lock-in in sight"
        if self.locks_in_at <= self.episodes:
            return f"locked in from episode {self.locks_in_at:,.0f} on"
        return f"locks in at about episode {self.locks_in_at:,.0f} at the present rate"


def diagnose(result: Result) -> Diagnosis:
    """Return a diagnosis of a run of ARL-LIN(dim), ARL-LIN(norm) or both.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> result = orl.run(orl.ARLLinDim(features=orl.FeatureMap(problem.phi), norm_bound=1.3), problem, episodes=100)
    >>> report = orl.diagnose(result)  # print it
    """
    require_kind("result", result, Result)
    rows = result.phases.to_pylist()
    known, selector = result.walk.known, result.walk.selector
    if not rows or "excitation" not in rows[0] or not isinstance(selector, LinearSelector):
        raise ParameterError("result", got=result.label, expected="a run of ARLLinDim, ARLLinNorm or ARLLin")
    seen = [row for row in rows if row["excitation"] is not None]
    lams = [float(np.ravel(row["regularization"])[0]) for row in seen]
    sigma = [row["excitation"] * row["seen"] * known.horizon for row in seen]
    explored = [(row["seen"], least - lam) for row, least, lam in zip(seen, sigma, lams, strict=True)]
    growth = _power(explored)
    bounds = tuple(float(row.get("carried_bound", row["norm_bound"])) for row in rows)
    support: dict[str, Any] = dict.fromkeys(("active", "settled_at", "gamma", "threshold", "locks_in_at"))
    if "active" in rows[0]:
        support = _support(rows)
    warnings = []
    # What a theta of the norm that is still possible would show in this direction, against the noise of one target.
    least = selector.features.dimension * (0.5 * target_range(selector.base(), known) / bounds[-1]) ** 2
    where = f"coordinate {seen[-1]['weakest']} lies most in it" if seen else ""
    if not seen:
        warnings.append("no phase has ended yet: nothing can be said about exploration")
    elif explored[-1][1] < least:
        warnings.append(
            f"a direction is never excited: its rows add up to {max(0.0, explored[-1][1]):.2g}, where {least:.2g} "
            "would show a theta of the norm bound, so the paper's assumption fails and what lies in that direction "
            f"cannot be told from zero ({where})"
        )
    elif growth is not None and growth < _FLAT:
        warnings.append(f"the least explored direction has stopped growing (like k^{growth:.2f}); {where}")
    if any(row.get("contradicted", False) for row in rows):
        warnings.append(
            "the data contradict every kernel of these features within the norm bound: the features, or the bound that "
            "was given, are wrong (or an event of probability delta has happened)"
        )
    if support["locks_in_at"] == math.inf:
        warnings.append("at the present rate the support does not lock in: longer estimation phases would help")
    return Diagnosis(
        episodes=result.total_episodes,
        excitation=seen[-1]["excitation"] if seen else None,
        growth=growth,
        weakest=seen[-1]["weakest"] if seen else None,
        norm_bounds=bounds,
        warnings=tuple(warnings),
        **support,
    )


def _power(points: Sequence[tuple[int, float]]) -> float | None:
    """Return the slope of log y over log k on the later half of the points; None with fewer than two above zero."""
    later = np.array([point for point in points[len(points) // 2 :] if min(point) > _ROUNDING], dtype=np.float64)
    if len(later) < 2 or later[0, 0] == later[-1, 0]:
        return None
    return float(np.polyfit(np.log(later[:, 0]), np.log(later[:, 1]), 1)[0])


def _support(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is known about the support: the coordinates, gamma, the threshold, and when it locks in."""
    begins = np.concatenate([[0], np.cumsum([row["episodes"] for row in rows])])
    plays = [(int(begin), row) for begin, row in zip(begins, rows, strict=False) if row["label"] == EXPLOITATION]
    active, last = plays[-1][1]["active"], rows[-1]
    same = takewhile(lambda play: play[1]["active"] == active, reversed(plays))
    gamma = threshold = locks = None
    if last["seen"]:
        estimate = np.abs(np.asarray(last["estimate"]))
        gamma, threshold = float(estimate[active].min()), float(last["threshold"])
        if len(active) < estimate.size:  # otherwise nothing is left out that a limit could be for
            locks = _lock_in(rows, gamma, threshold)
    support = {"active": tuple(active), "settled_at": min(begin for begin, _ in same)}
    return {**support, "gamma": gamma, "threshold": threshold, "locks_in_at": locks}


def _lock_in(rows: Sequence[dict[str, Any]], gamma: float, threshold: float) -> float:
    """Return the episode at which the detection limit reaches gamma / 2 if it keeps falling as it did."""
    points = [(row["seen"], row["threshold"]) for row in rows if row["seen"] and row["threshold"] > 0.0]
    for k, limit in points:
        if limit <= gamma / 2.0 and threshold <= gamma / 2.0:
            return float(k)
    slope = _power(points)
    if slope is None or slope > -0.02 or gamma <= 0.0 or threshold <= 0.0:
        return math.inf if threshold > gamma / 2.0 else float(points[-1][0] if points else 0)
    return float(points[-1][0] * (2.0 * threshold / gamma) ** (-1.0 / slope))

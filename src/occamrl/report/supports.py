"""Which of the simulators matter: the answer in supports, with what cannot be told and why (M18, last paragraph)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from occamrl.confidence.compatible_sets import Evidence, compatible_sets, set_weights
from occamrl.confidence.resolution import (
    Dependence,
    Directions,
    alike,
    dependences,
    directions,
    possible_rows,
    stack_of,
)
from occamrl.contracts import Floats, Known
from occamrl.environments.simulators import Simulators
from occamrl.errors import ParameterError
from occamrl.learners.ucrl_vtr_lin import LinearStatistics
from occamrl.report.support_rows import rows_of
from occamrl.runs.anchored import Anchored
from occamrl.runs.result import Result

if TYPE_CHECKING:
    import pyarrow as pa

_NOISE = 0.25  # at most, what a free direction lowers the loss of range-weighted rows by: the variance of a target
_VISIBLE = 0.1 * _NOISE  # growth of the excess that is not mere noise
_SHOWN = 12


@dataclass(frozen=True)
class SupportSet:
    """A set of simulators that can still explain the data, and none of whose subsets can."""

    members: tuple[str, ...]
    weights: tuple[float, ...]  # of the mixture with the least loss
    excess: float  # of its loss over that of the best mixture of all
    kernel: int  # sets with the same number fit with the very same kernel
    episodes_left: float  # until it is excluded at the present rate; infinite: no growth to be seen


@dataclass(frozen=True)
class Supports:
    """The report; ``print`` it, or take ``table()``."""

    names: tuple[str, ...]
    episodes: int
    delta: float
    weights: str
    sets: tuple[SupportSet, ...]  # every minimal one, smallest first; the true set contains one of them
    allowance: float  # the excess at which a set is excluded
    necessary: tuple[str, ...]  # in every compatible set
    complete: bool  # every set was looked at
    largest: int  # ... else those of up to so many simulators
    rank: int  # of the kernels
    dependences: tuple[Dependence, ...]
    directions: Directions
    alike: tuple[tuple[tuple[str, ...], str], ...]
    error: float  # of the rows, at most: of estimated simulators in total variation, or of integrals on a box

    @property
    def smallest(self) -> tuple[SupportSet, ...]:
        """The sets with the fewest simulators."""
        return tuple(each for each in self.sets if len(each.members) == len(self.sets[0].members))

    @property
    def next_exclusion(self) -> SupportSet | None:
        """The set that goes next at the present rate, larger ones in its place; None where none is seen to go."""
        going = [each for each in self.sets if math.isfinite(each.episodes_left)]
        return min(going, key=lambda each: each.episodes_left, default=None)

    def table(self) -> pa.Table:
        """Return one row per set."""
        import pyarrow as pa

        rows = [
            {"size": len(s.members), "members": list(s.members), "weights": list(s.weights), "excess": s.excess}
            | {"kernel": s.kernel, "episodes_left": s.episodes_left}
            for s in self.sets
        ]
        return pa.Table.from_pylist(rows)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def supports(
    source: Result | LinearStatistics | Anchored,
    simulators: Simulators | None = None,
    *,
    delta: float = 0.05,
    weights: str = "simplex",
    known: Known | None = None,
    values: Floats | None = None,
) -> Supports:
    """Say which simulators matter, in sets: every minimal set that some mixture still makes compatible with the data.

    Parameters
    ----------
    source : Result, Anchored or LinearStatistics
        A run of :class:`UCRLVTRLin` (or of a selector built on it, with pooled data) on the features of the simulators,
        with range weights; an agent on a box, the errors of its integrals included; or the statistics of such rows,
        with ``known`` and ``values``.
    simulators : Simulators, optional
        For names, and for the error of those that are estimated: half of delta then goes to their estimation. By
        default coordinates are called "1", "2", ... and taken as exact kernels.
    delta : float
        With probability 1 - delta, for reports at all times together, the true set contains one of the sets reported.
    weights : "simplex" | "free"
        Mixtures proper, or any weights that sum to one.
    known : Known, optional
    values : array [H + 1, S], optional
        With ``source`` as statistics: the problem, and value functions for which to say what could be told.

    Examples
    --------
    ``print(supports(run(UCRLVTRLin(features=sims.features, norm_bound=1.0), mdp, episodes=2_000), sims))``
    """
    rows = rows_of(source, simulators, known, values, delta)
    statistics, features, names = rows.statistics, rows.features, rows.names
    d = statistics.xy.size
    if len(names) != d or statistics.gram.size != d * d:
        raise ParameterError("source", got=f"rows of {d} features", expected=f"one for each of {len(names)} simulators")
    evidence = Evidence(statistics.gram.reshape(d, d), statistics.xy, rows.bias)
    found = compatible_sets(evidence, delta=rows.level, weights=weights)
    stack, possible = stack_of(features), possible_rows(features, rows.known, rows.values)
    rank, dependent = dependences(stack)
    fits = [set_weights(evidence, members, positive=weights == "simplex") for members in found.minimal]
    predicted = [stack[:, list(members)] @ fit for members, fit in zip(found.minimal, fits, strict=True)]
    kernels = _same(predicted)
    sets = []
    for members, fit, excess, kernel in zip(found.minimal, fits, found.excess, kernels, strict=True):
        growing = excess - _NOISE * max(0, rank - len(members))
        left = statistics.episodes * (found.allowance - excess) / growing if growing > _VISIBLE else math.inf
        named = tuple(names[j] for j in members)
        sets.append(SupportSet(named, tuple(fit.tolist()), excess, kernel, max(left, 1.0)))
    groups = alike(evidence.gram, stack, possible, found.allowance)
    return Supports(
        names=names,
        episodes=statistics.episodes,
        delta=delta,
        weights=weights,
        sets=tuple(sets),
        allowance=found.allowance,
        necessary=tuple(names[j] for j in found.necessary),
        complete=found.complete,
        largest=found.largest,
        rank=rank,
        dependences=tuple(dependent),
        directions=directions(evidence.gram, rank, possible, found.allowance),
        alike=tuple((tuple(names[j] for j in group), reason) for group, reason in groups),
        error=rows.error,
    )


def _same(kernels: Sequence[Floats]) -> list[int]:
    """Return a number for each kernel, the same for equal ones."""
    numbers: list[int] = []
    for i, kernel in enumerate(kernels):
        twin = next((j for j in range(i) if np.abs(kernels[j] - kernel).max() <= 1e-6), None)
        numbers.append(max(numbers, default=0) + 1 if twin is None else numbers[twin])
    return numbers


def _lines(report: Supports) -> list[str]:
    d, level = len(report.names), 1.0 - report.delta
    lines = [f"{d} simulators after {report.episodes:,} episodes, confidence {level:.3g}:"]
    if report.error:
        lines.append(f"  estimated     rows are within {report.error:.3g} of the simulators' own")
    if not report.sets:
        lines.append("  compatible    no mixture of these simulators explains the data: the truth is none of them")
        return lines + _why(report)
    needed = ", ".join(report.necessary) or "none is in all of them"
    lines.append(f"  needed        {needed} (in every set that explains the data)")
    least = len(report.sets[0].members)
    count = f"{len(report.smallest)} of the {math.comb(d, least):,} sets of {least}"
    larger = len(report.sets) - len(report.smallest)
    lines.append(
        f"  compatible    {count}" + (f", and {larger} larger ones that contain none of these" if larger else "")
    )
    for each in report.sets[:_SHOWN]:
        mixture = " + ".join(f"{w:.2f} of {name}" for w, name in zip(each.weights, each.members, strict=True))
        lines.append(
            f"                {mixture}: loss {each.excess:.2f} above the least, {report.allowance:.2f} allowed"
        )
    if len(report.sets) > _SHOWN:
        lines.append(f"                ... and {len(report.sets) - _SHOWN} more (see table())")
    if not report.complete:
        lines.append(f"                only sets of up to {report.largest} simulators were looked at")
    return lines + _why(report) + _next(report)


def _why(report: Supports) -> list[str]:
    """Return what cannot be told apart, and why."""
    lines, d = [], len(report.names)
    if report.rank < d:
        lines.append(
            f"  rank          the {d} kernels have rank {report.rank} (to 9 digits): of {d - 1} differences only "
            f"{report.rank - 1} can be learned, from any data"
        )
        for each in report.dependences[:3]:
            parts = [f"{w:+.3g} of {report.names[j]}" for w, j in zip(each.weights, each.others, strict=True)]
            others = " ".join(parts) if len(parts) <= 4 else f"a combination of {len(parts)} others"
            lines.append(f"                {report.names[each.simulator]} = {others}")
        if len(report.dependences) > 3:
            lines.append(f"                ... and {len(report.dependences) - 3} more")
    kinds = report.directions
    said = [f"{kinds.resolved} resolved", f"{kinds.weak} with too few data"]
    said += [f"{kinds.never_excited} never excited by what was played"] if kinds.never_excited else []
    said += [f"{kinds.blind} that no planned value depends on"] if kinds.blind else []
    said += [f"{kinds.dependent} that no data can tell"] if kinds.dependent else []
    lines.append(f"  differences   {', '.join(said)}")
    numbers = [each.kernel for each in report.sets]
    for kernel in sorted({k for k in numbers if numbers.count(k) > 1})[:3]:
        twins = ["{" + ", ".join(each.members) + "}" for each in report.sets if each.kernel == kernel]
        shown = ", ".join(twins[:_SHOWN]) + (", ..." if len(twins) > _SHOWN else "")
        lines.append(f"  the same      {len(twins)} sets fit with one and the same kernel, for ever: {shown}")
    for group, reason in report.alike:
        lines.append(f"  alike         {', '.join(group)}: {reason}")
    return lines


def _next(report: Supports) -> list[str]:
    """Return when the next set goes."""
    each = report.next_exclusion
    if each is None and len(report.sets) == 1:
        return ["  next          nothing left to exclude: one set remains"]
    if each is None:
        return ["  next          no set is seen to go: their losses do not grow apart at the present rate"]
    stay = sum(math.isinf(other.episodes_left) for other in report.sets)
    text = f"  next          {{{', '.join(each.members)}}} after about {each.episodes_left:,.0f} more episodes"
    text += " at the present rate (larger ones that contain it may take its place)"
    return [text + f"; {stay} of {len(report.sets)} sets show no such growth"]

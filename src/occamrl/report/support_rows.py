"""Where the rows of a report on supports come from: a run, an agent on a box, or statistics kept elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from occamrl.confidence.resolution import stack_of
from occamrl.contracts import Floats, Known
from occamrl.environments.simulators import Simulators
from occamrl.errors import ParameterError
from occamrl.families.features import FeatureMap
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin
from occamrl.runs.anchored import Anchored
from occamrl.runs.result import Result


class SupportRows(NamedTuple):
    """Rows over d candidates, what is known of their errors, and what could be met."""

    statistics: LinearStatistics
    features: FeatureMap
    known: Known
    values: Floats
    names: tuple[str, ...]
    level: float  # what is left of delta once the errors are paid for
    bias: float = 0.0  # sum of e_t^2
    error: float = 0.0  # the largest e_t


def rows_of(
    source: Any, simulators: Simulators | None, known: Known | None, values: Floats | None, delta: float
) -> SupportRows:
    """Return the rows, whatever they come from."""
    if isinstance(source, Anchored):
        return _of_box(source, simulators, delta)
    if isinstance(source, LinearStatistics):
        if simulators is None or known is None or values is None:
            raise ParameterError("source", got="statistics alone", expected="simulators, known and values as well")
        found, features = source, simulators.features
    else:
        if not isinstance(source, Result):
            expected = "a Result, an Anchored or LinearStatistics"
            raise ParameterError("source", got=type(source).__name__, expected=expected)
        learner = source.walk.phase.learner
        if not isinstance(learner, UCRLVTRLin) or learner.weights != "range":
            got = f"a run of {source.label}"
            raise ParameterError("source", got=got, expected="one of UCRLVTRLin, or built on it, with range weights")
        if simulators is not None and not _same_kernels(learner.features, simulators.features):
            expected = "those whose features the run learned with"
            raise ParameterError("simulators", got="other kernels", expected=expected)
        known, values, features = source.walk.known, source.state.values, learner.features
        found = learner.statistics(known, source.state)
    names = tuple(str(j + 1) for j in range(found.xy.size)) if simulators is None else simulators.names
    if simulators is None or not simulators.estimated:
        return SupportRows(found, features, known, values, names, delta)
    error = simulators.error(delta / 2.0)
    return SupportRows(
        found, features, known, values, names, delta / 2.0, found.episodes * known.horizon * error**2, error
    )


def _of_box(agent: Anchored, simulators: Simulators | None, delta: float) -> SupportRows:
    """Return the rows of an agent on a box; its draws have taken their share of delta already."""
    if simulators is not None:
        raise ParameterError("simulators", got="simulators", expected="None: an agent on a box has its own candidates")
    level = delta - (agent.delta - agent.level)
    if level <= 0.0:
        expected = f"more than {agent.delta - agent.level:g}, which the draws of the agent take"
        raise ParameterError("delta", got=delta, expected=expected)
    statistics = LinearStatistics(agent.seen.gram.ravel(), agent.seen.xy, agent.episode)
    worst = agent.row_error(max(1, agent.rows))
    return SupportRows(
        statistics,
        agent.system.features,
        agent.known,
        agent.values,
        agent.system.candidates,
        level,
        agent.squared_errors,
        worst,
    )


def _same_kernels(one: FeatureMap, other: FeatureMap) -> bool:
    if one is other:
        return True
    mine, theirs = stack_of(one), stack_of(other)
    return mine.shape == theirs.shape and bool(np.allclose(mine, theirs, rtol=0.0, atol=1e-9))

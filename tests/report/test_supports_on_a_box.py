"""Which candidates matter, asked of an agent on a box: the sets of the finite report, with the errors of integrals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from occamrl.confidence.compatible_sets import Evidence, compatible_sets
from occamrl.environments.simulators import Simulators
from occamrl.errors import ParameterError
from occamrl.learners.ucrl_vtr_lin import LinearStatistics
from occamrl.report.supports import supports
from occamrl.runs.anchored import Anchored
from occamrl.selectors.arl_lin_dim import ARLLinDim
from tests.continuous.circle import TURNS, driven, episode, learner, sampled

NAMES = ("slow", "fast", "back")


def played(models: Any, episodes: int = 40, **changes: Any) -> Anchored:
    agent, rng = learner(models, names=NAMES, agent=ARLLinDim, **changes), np.random.default_rng(0)
    for _ in range(episodes):
        episode(agent, rng)
    return agent


def test_exact_integrals_give_the_report_of_the_same_statistics() -> None:
    agent = played([driven(turn, 10) for turn in TURNS])
    sims = Simulators([agent.system.features.kernel(unit) for unit in np.eye(3)], names=NAMES)
    statistics = LinearStatistics(agent.seen.gram.ravel(), agent.seen.xy, agent.episode)
    found = supports(agent)
    assert found == supports(statistics, sims, known=agent.known, values=agent.values)
    assert found.episodes == 40
    assert ("slow",) in [each.members for each in found.sets]  # nine tenths of the truth: 80 rows do not show the rest
    assert "simulators after 40 episodes" in str(found)


@pytest.mark.parametrize("models", [[driven(turn, 3) for turn in TURNS], [sampled(turn, 60) for turn in TURNS]])
def test_errors_of_integrals_are_in_what_is_allowed(models: Any) -> None:
    drawn = hasattr(models[0], "draws")
    agent = played(models, error=0.0 if drawn else 0.2)
    found = supports(agent, delta=agent.delta)
    squares = [agent.row_error(t) ** 2 for t in range(1, agent.rows + 1)]
    evidence = Evidence(agent.seen.gram, agent.seen.xy, float(np.sum(squares)))
    direct = compatible_sets(evidence, delta=agent.delta / 2.0 if drawn else agent.delta)
    assert found.allowance == pytest.approx(direct.allowance)
    assert [each.members for each in found.sets] == [tuple(NAMES[j] for j in members) for members in direct.minimal]
    assert found.error == agent.row_error(agent.rows)
    assert "within" in str(found)
    assert found.allowance > 2.0 * compatible_sets(evidence._replace(bias=0.0), delta=agent.delta).allowance


def test_bad_questions_are_refused() -> None:
    agent = played([sampled(turn, 60) for turn in TURNS], episodes=1)
    with pytest.raises(ParameterError, match=r"delta.*more than 0\.15"):
        supports(agent, delta=0.1)
    sims = Simulators([agent.system.features.kernel(unit) for unit in np.eye(3)])
    with pytest.raises(ParameterError, match="simulators"):
        supports(agent, sims)
    with pytest.raises(ParameterError, match="source"):
        supports(3)  # type: ignore[arg-type]  # wrong on purpose

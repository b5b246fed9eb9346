"""Names of the parts of the likelihood while their callers move."""

from __future__ import annotations

from typing import Any

from occamrl.evidence.counts import JEFFREYS as JEFFREYS
from occamrl.evidence.counts import Symbols as Symbols
from occamrl.evidence.counts import begin_counts
from occamrl.evidence.counts import count_outcomes as count_outcomes
from occamrl.evidence.counts import counted_evidence as counted_evidence
from occamrl.evidence.counts import log_frequencies as log_frequencies
from occamrl.evidence.counts import symbol_at as symbol_at
from occamrl.evidence.counts import symbols_of as symbols_of
from occamrl.evidence.hulls import Seen as Seen
from occamrl.evidence.hulls import begin_hulls, score_hulls
from occamrl.evidence.hulls import draw_hull as draw_hull
from occamrl.evidence.hulls import draw_table as draw_table
from occamrl.evidence.hulls import hull_bound as hull_bound
from occamrl.evidence.hulls import hull_evidence as hull_evidence
from occamrl.evidence.hulls import hull_fit as hull_fit
from occamrl.evidence.hulls import hull_likelihood as hull_likelihood
from occamrl.evidence.hulls import hull_maximum as hull_maximum
from occamrl.evidence.hulls import open_hulls as open_hulls
from occamrl.evidence.hulls import seen_by as seen_by
from occamrl.evidence.lists import LARGEST_HULL as LARGEST_HULL
from occamrl.evidence.lists import Members as Members
from occamrl.evidence.lists import log_weights as log_weights


def begin(outcomes: Any, hulls: list[int] | None = None) -> dict[str, Any]:
    weights, score, fitted = begin_hulls(hulls or [])
    return {**begin_counts(outcomes), "weights": weights, "score": score, "fitted": fitted}


def add(state: Any, outcomes: Any, known: Any, flow: Any, hull: Any = None) -> None:
    pair, before = flow.state * known.actions + flow.action, state["count"]
    bonus = flow.bonus(known, outcomes)
    block = count_outcomes(state, outcomes, pair, flow, bonus, known.states)
    if hull is not None and block.any():
        score_hulls(state, outcomes, hull, before, block)

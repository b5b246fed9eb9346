"""References for a selector: the learner that knows the answer, and those on the largest and the smallest class.

Each function returns a plain learner with the selector's own parameters. With the same seed it meets the same random
numbers as the selector, so that regrets can be compared run by run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from occamrl.errors import ParameterError
from occamrl.learners.ucrl_vtr import UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.ladder import Ladder
from occamrl.protocols import Floats

Reference = UCRLVTR | UCRLVTRLin


def oracle(selector: Any, truth: int | Sequence[float] | Floats, **parameters: Any) -> Reference:
    """Return the learner that knows what a selector has to find out.

    Parameters
    ----------
    selector : ARLLinDim, ARLLinNorm, ARLLin, ARLGen or Ladder
        A ladder stands for ARLGen on it.
    truth : array [d] or int
        theta* for a linear selector, whose support, norm or both are then known; the number m* of the smallest class
        that holds the truth, from 1, on a ladder.
    **parameters
        Of the learner, instead of the selector's own.

    Examples
    --------
    ``oracle(ARLLinDim(features=features, norm_bound=b), theta)`` knows which coordinates matter, and
    ``oracle(ladder, 2, delta=0.1)`` plays the second class of a ladder.
    """
    if hasattr(selector, "oracle"):  # of theta
        learner: Reference = dataclasses.replace(selector.oracle(truth), **parameters)
        return learner
    return on_class(selector, truth, parameters)


def largest(selector: Any, **parameters: Any) -> Reference:
    """Return the learner that takes all that a selector could leave out: every coordinate, the norm bound, F_M."""
    if hasattr(selector, "base"):  # of theta
        learner: Reference = selector.base(**parameters)
        return learner
    return on_class(selector, _ladder(selector).classes, parameters)


def smallest(selector: Any, **parameters: Any) -> Reference:
    """Return the learner on the smallest class of a ladder, right or wrong."""
    return on_class(selector, 1, parameters)


def _ladder(selector: Any) -> Ladder:
    ladder = getattr(selector, "ladder", selector)
    if not isinstance(ladder, Ladder):
        raise ParameterError("selector", got=type(selector).__name__, expected="a selector or a Ladder")
    return ladder


def on_class(selector: Any, m: Any, parameters: dict[str, Any]) -> Reference:
    """Return the learner on class m of a ladder, from 1, with the parameters that it shares with the selector."""
    family = _ladder(selector).rung(m)
    if family.finite:
        return UCRLVTR(**{**own_parameters(selector, UCRLVTR), "family": family, **parameters})
    class_ = {"features": family.own_features, "norm_bound": family.norm_bound}
    return UCRLVTRLin(**{**own_parameters(selector, UCRLVTRLin), **class_, **parameters})


REFERENCES = {"oracle": oracle, "largest": largest, "smallest": smallest, "rung": on_class}


def own_parameters(selector: Any, learner: Any) -> dict[str, Any]:
    """Return the parameters of a class of learners that a selector sets."""
    if isinstance(selector, Ladder):
        return {}
    own = {
        each.name: getattr(selector, each.name) for each in dataclasses.fields(learner) if hasattr(selector, each.name)
    }
    if own.get("replan", 0.0) is None:  # the learner's own default
        del own["replan"]
    return own

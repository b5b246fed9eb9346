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
from occamrl.protocols import Floats
from occamrl.selectors.arl_lin import LinearSelector

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
    if isinstance(selector, LinearSelector):
        return dataclasses.replace(selector.oracle(truth), **parameters)  # type: ignore[arg-type]  # not a class here
    return _on_class(selector, truth, parameters)


def largest(selector: Any, **parameters: Any) -> Reference:
    """Return the learner that takes all that a selector could leave out: every coordinate, the norm bound, F_M."""
    if isinstance(selector, LinearSelector):
        return selector.base(**parameters)
    return _on_class(selector, _ladder(selector).classes, parameters)


def smallest(selector: Any, **parameters: Any) -> Reference:
    """Return the learner on the smallest class of a ladder, right or wrong."""
    return _on_class(selector, 1, parameters)


REFERENCES = {"oracle": oracle, "largest": largest, "smallest": smallest}


def _ladder(selector: Any) -> Any:
    ladder = getattr(selector, "ladder", selector)
    if not hasattr(ladder, "rung"):
        raise ParameterError("selector", got=type(selector).__name__, expected="a selector or a Ladder")
    return ladder


def _on_class(selector: Any, m: Any, parameters: dict[str, Any]) -> Reference:
    """Return the learner on class m of a ladder, with the parameters that it shares with the selector."""
    ladder = _ladder(selector)
    family = ladder.rung(m)
    names = [field.name for field in dataclasses.fields(UCRLVTR if family.finite else UCRLVTRLin)]
    own = {} if selector is ladder else {name: getattr(selector, name, None) for name in names}
    own = {name: value for name, value in own.items() if value is not None}
    if family.finite:
        return UCRLVTR(**{**own, "family": family, **parameters})
    class_ = {"features": family.own_features, "norm_bound": family.norm_bound}
    return UCRLVTRLin(**{**own, **class_, **parameters})

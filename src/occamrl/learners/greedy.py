"""Certainty equivalence for linear kernels: UCRL-VTR-LIN without its bonus.

The plan of :mod:`occamrl.learners.ucrl_vtr_lin` with beta = 0: the ridge estimate is taken for the
truth. A reference point that shows what optimism buys.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin


@dataclass(frozen=True, kw_only=True, eq=False)
class Greedy(UCRLVTRLin):
    """Certainty equivalence: the optimal policy of the ridge estimate.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> features = orl.FeatureMap.tabular(states=3, actions=2)
    >>> result = orl.run(orl.Greedy(features=features), problem, episodes=50)

    A reference point without a guarantee. Parameters are those of
    :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin` but for the bound on the norm and the scale
    of the radius, which is 0.
    """

    norm_bound: float = field(default=1.0, init=False, repr=False)
    scale: float = field(default=0.0, init=False, repr=False)

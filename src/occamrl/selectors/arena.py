"""An arena: a rule chooses before every episode which of several base learners plays it.

Where a :class:`~occamrl.protocols.Selector` hands out phases, an arena decides anew each time, and is a learner like
any other: it runs wherever one runs, and can be a base of another arena or play the phases of a selector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from occamrl.errors import ParameterError, require_kind, require_number
from occamrl.protocols import EpisodeLearner, Known, Learner, Rule, RuledBases, Selector


@dataclass(frozen=True, kw_only=True, eq=False)
class Arena(RuledBases):
    """Several base learners and a rule over them.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> bases = [orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), orl.UniformRandom()]
    >>> result = orl.run(orl.Arena(bases=bases, rule=orl.UCB1()), problem, episodes=50)
    >>> plays = result.state["plays"]  # episodes of each base

    Parameters
    ----------
    bases : sequence of learners
        Compiled ones, :class:`~occamrl.protocols.EpisodeLearner`, or other arenas. Each keeps its own state, and learns
        from the episodes that it plays.
    rule : Rule
        Says before every episode which base plays it, and is told the return.
    share : bool
        Let every base learn from every episode. A base then plans for an episode from what it knew before, whoever
        plays it, and its rows are (s, a, V, s') with V fixed before s' was seen: the confidence sets of
        :class:`~occamrl.UCRLVTR` and :class:`~occamrl.UCRLVTRLin`, the counts of tabular learners and posteriors stay
        valid, because they allow any choice of (s, a) that does not look ahead. These two learn from the steps in
        which their own plan has the action that was taken. What is lost is a bound on the regret
        of a base by its own plays, on which rules rely that compare bases. Learners whose updates assume that they
        play their own policy must not share. Replays are shared with nobody.
    largest_return : float, optional
        The largest possible sum of rewards of an episode, in the learner's unit; the horizon by default, because
        rewards lie in [0, 1]. Rules see returns divided by it.

    Notes
    -----
    ``result.state`` has the rule's ``memory``, the states of the ``bases`` and the number of ``plays`` of each;
    ``result.phases`` tells who played when.
    """

    bases: Sequence[Any]
    rule: Rule
    share: bool = False
    largest_return: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.bases, Sequence) or not self.bases:
            raise ParameterError("bases", got=repr(self.bases)[:80], expected="a list of learners")
        object.__setattr__(self, "bases", tuple(self.bases))
        for i, base in enumerate(self.bases):
            if isinstance(base, Selector):
                expected = "a learner; a selector hands out phases and cannot be asked for one episode"
                raise ParameterError("bases", got=f"the selector {type(base).__name__}", expected=expected, index=(i,))
            if isinstance(base, type) or not isinstance(base, (Learner, EpisodeLearner, RuledBases)):
                raise ParameterError("bases", got=repr(base)[:80], expected="a learner", index=(i,))
        if isinstance(self.rule, type) or not isinstance(self.rule, Rule):
            raise ParameterError("rule", got=repr(self.rule)[:80], expected="a rule: start, choose and update")
        require_kind("share", self.share, bool)
        if self.largest_return is not None:
            require_number("largest_return", self.largest_return, 0.0, math.inf, open_low=True)

    def largest(self, known: Known) -> float:
        """Return the largest possible sum of rewards of an episode."""
        return float(known.horizon if self.largest_return is None else self.largest_return)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a fresh state."""
        states, count = [base.begin(known) for base in self.bases], len(self.bases)
        return {"memory": self.rule.start(count), "bases": states, "past": [], "plays": [0] * count}

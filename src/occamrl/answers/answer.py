r"""The answer: which model is needed, what to do, what that is worth, and whether it matters.

With probability :math:`1 - \delta` the truth is among the models that are not ruled out, at all
times. So for every policy at once, :math:`[\min, \max]` of :math:`V_P^\pi` over these P holds what
the policy is worth; two policies are compared model by model, :math:`V_P^\pi - V_P^{\pi_0}`, which
is sharper than subtracting intervals. Recommended is the policy with the largest guaranteed worth
among the optimal policies of models that are possible, and today's. *The price of simplicity* is
what the best policy of a class that was ruled out would lose. Where models *misfit* is told pair by
pair.

An answer speaks to the evidence of its ladder (:class:`occamrl.protocols.Evidence`) and to nothing
else. What a kind of evidence cannot tell raises NotAvailable, which says why.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from occamrl.answers import tolerance, wording
from occamrl.answers.today import Today
from occamrl.answers.wording import Sentence
from occamrl.arrays import Floats
from occamrl.errors import NotAvailable, OccamRLError, require_integer
from occamrl.evidence.tolerance import GRID
from occamrl.evidence.tolerant import TolerantEvidence
from occamrl.evidence.worlds import FiniteWorlds
from occamrl.models.model import ParametricLadder
from occamrl.naming import Labels, labels_of
from occamrl.policies import Policy
from occamrl.progress import Progress
from occamrl.protocols import (
    DoubtfulPair,
    Evidence,
    Interval,
    Judgement,
    Known,
    Ladder,
    Misfit,
    Note,
    OffBy,
    OutcomeMisfit,
    ParameterRange,
    PolicyRule,
    Selector,
    State,
    System,
    World,
    Worlds,
    Worth,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from occamrl.running.result import Result

_AT_BOUND = 1e-6  # the share of a box from an end of it
_VAGUE = 0.9  # the share of what a class allows above which the data have said hardly anything
_LOOKED = 0.5  # the share of what the next class adds that is ruled out by data that have looked
_COUNTED = ("list", "simulators")  # ladders whose members can be counted
_WIDE = 0.1  # the share of a worth from which on its range is called wide
_NEGLIGIBLE = 1e-6  # the share of a worth that is no difference
_ALL = 10**9  # worlds


class MoreData(NamedTuple):
    """How many more episodes would be needed, at the rate at which the log tells kernels apart."""

    half: float  # to exclude half of the kernels alive outside the class chosen; infinite: never
    never: int  # how many of them no such log can tell from the best kernel of the class chosen
    if_wrong: float  # to reject the class chosen, if the best kernel outside it is the truth


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What the data say; print it, or write it as a page.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> ladder = orl.Ladder.of_problem(problem)
    >>> answer = orl.run(orl.Occam(ladder=ladder), problem, episodes=100).answer
    >>> round(answer.interval[0], 2) <= round(answer.value, 2) <= round(answer.interval[1], 2)
    True
    """

    ladder: Ladder
    known: Known | System
    weigher: Evidence
    state: State  # of the weigher
    episodes: int
    steps: int
    source: str = ""  # of the data, in words
    history: Sequence[Sequence[float]] = ()  # episodes or steps, and the evidence by then
    changed: bool = False  # whether the class chosen is one of the second half of a run
    log: Today | None = None  # what was played in a log
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of a log, by role
    more: MoreData | None = None
    returns: Sequence[float] = ()  # of a controller's episodes
    reward_error: float = 0.0  # by which rewards that came differ from the system's, per step
    runs: int = 8  # simulated episodes behind a worth, where it is not exact
    maximum: int | None = None  # worlds in which they are run; None: all
    notes: Sequence[Note] = ()  # what was done to the data before they were weighed
    progress: bool | None = None  # whether it is shown; None: where something takes long

    # Which model ----------------------------------------------------------------------------------

    @cached_property
    def judgement(self) -> Judgement:
        """What the evidence says of the classes."""
        return self.weigher.judge(self.state)

    @property
    def evidence(self) -> str:
        """By what classes are judged: "likelihood", "value" or "exchangeability"."""
        return self.weigher.kind

    @property
    def delta(self) -> float:
        """The level of the tests."""
        return self.weigher.delta

    @property
    def threshold(self) -> float:
        """The evidence above which a class is ruled out."""
        return math.log(1.0 / self.delta)

    @property
    def counted_in(self) -> str:
        """What time is counted in: an episode, or a step of a continuous system."""
        return "step" if isinstance(self.known, System) else self.labels.episode

    @property
    def misspecified(self) -> bool:
        """Whether no model explains the data."""
        return self.judgement.misspecified

    @property
    def chosen(self) -> int:
        """The smallest class that is not ruled out, from 1; where all are, the largest."""
        return self.judgement.chosen

    @property
    def model(self) -> str | None:
        """The name of the class that is needed; None if none fits."""
        if self.misspecified:
            return None
        return self.ladder.names[self.chosen - 1]

    @property
    def left(self) -> list[int] | None:
        """How many models of each class are not ruled out; None for linear classes."""
        if self.ladder.kind == "linear":
            return None
        return list(self.judgement.alive)

    @cached_property
    def status(self) -> str:
        """What the data say of the class chosen.

        "decided": nothing else is possible. "at least": all smaller classes are ruled out, and
        larger ones are possible. "enough so far": nothing speaks against it, and the data have
        looked, see :attr:`looked`. "not enough data": they have not. "misspecified": no class fits.
        """
        if self.misspecified:
            return "misspecified"
        if self._nothing_else:
            return "not enough data" if self._hardly_anything else "decided"
        if self.chosen > 1 and self.ladder.nested:
            return "at least"
        if not self.steps or self.barely_looked:
            return "not enough data"
        return "enough so far"

    @property
    def barely_looked(self) -> bool:
        """Whether the data rule out less than half of what the next class adds."""
        return self.looked is not None and self.looked < _LOOKED

    @property
    def _nothing_else(self) -> bool:
        """Whether nothing outside the class chosen is left."""
        alive = self.judgement.alive
        listed = self.ladder.kind in ("list", "simulators")
        return (
            self.chosen == len(alive)
            or not any(alive[self.chosen :])
            or (listed and self.ladder.nested and alive[self.chosen - 1] == alive[-1])
        )

    @property
    def _hardly_anything(self) -> bool:
        """Whether the data rule out less than a tenth of what the only class allows."""
        if len(self.ladder.names) > 1:
            return False
        if not self.steps:
            return True
        shares = [self._share_left(0, name) for name in self._ranges(0) if name in self.ladder.box]
        if shares:
            return min(shares) > _VAGUE
        if self.ladder.kind != "list":
            return False
        return self.judgement.alive[-1] > max(1.0, _VAGUE * (self.ladder.sizes[-1] or 0))

    @property
    def _next(self) -> int | None:
        """The next class, from 0, of which something outside the class chosen is left."""
        alive = self.judgement.alive
        for m in range(self.chosen, len(alive)):
            if alive[m] > (alive[self.chosen - 1] if self.ladder.kind in _COUNTED else 0):
                return m
        return None

    @property
    def next_class(self) -> str | None:
        """The name of the next class that is possible; None if nothing else is left."""
        return None if self._next is None else self.ladder.names[self._next]

    @cached_property
    def looked(self) -> float | None:
        """The share of what the next class adds that the data rule out; None if not known.

        Of lists it is a share of members, of real parameters one of the box: the smallest over the
        parameters that the next class frees.
        """
        following = self._next
        if following is None:
            return None
        sizes = self.ladder.sizes
        alive = self.judgement.alive
        size = sizes[following]
        before = sizes[self.chosen - 1]
        if self.ladder.kind in _COUNTED and size is not None and before is not None:
            further = size - before
            left = alive[following] - alive[self.chosen - 1]
            return 1.0 - left / further if further > 0 else None
        shares = [self._share_left(following, name) for name in self._freed(following)]
        return 1.0 - max(shares) if shares else None

    def _freed(self, following: int) -> list[str]:
        """Return the parameters that are free in a class and not in the one chosen."""
        here = self._ranges(self.chosen - 1)
        freed = [name for name in self._ranges(following) if name not in here]
        return [name for name in freed if name in self.ladder.box]

    def _share_left(self, m: int, name: str) -> float:
        """Return the share of a parameter's box that class m, from 0, leaves possible."""
        low, high = self.ladder.box[name]
        length = sum(end - begin for begin, end in self._ranges(m)[name].pieces)
        return length / (high - low)

    @property
    def more_for_half(self) -> int | None:
        """About how many more episodes would rule out half of what the next class adds.

        Of real parameters, whose ranges shrink as the root of the data; None where a range is as
        wide as the box, so that nothing can be told.
        """
        following = self._next
        if following is None or not self.ladder.box:
            return None
        widest = 0.0
        for name in self._freed(following):
            low, high = self.ladder.box[name]
            parameter = self._ranges(following)[name]
            if self._share_left(following, name) > _VAGUE:
                return None
            # as if the box did not cut it
            reach = max(parameter.value - parameter.low, parameter.high - parameter.value)
            widest = max(widest, 2.0 * reach / (high - low))
        done = self.steps if isinstance(self.known, System) else self.episodes
        more = math.ceil(done * ((widest / _LOOKED) ** 2 - 1.0))
        return more if more > 0 else None

    def rejected_after(self, m: int) -> int | None:
        """Return since how many episodes class m, from 1, is ruled out; None if it is not."""
        m = require_integer("m", m, 1, maximum=len(self.ladder.names))
        return self.judgement.rejected_after[m - 1]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of :attr:`table`, as dictionaries."""
        rows = []
        for m, name in enumerate(self.ladder.names):
            rows.append(
                {
                    "class": m + 1,
                    "name": name,
                    "size": self.ladder.sizes[m],
                    "left": None if self.left is None else self.left[m],
                    "evidence_against": float(self.judgement.against[m]),
                    "rejected_after": self.judgement.rejected_after[m],
                }
            )
        return rows

    @property
    def table(self) -> pa.Table:
        """A row for each class: size, models left, evidence against it, since when it is out."""
        from occamrl.answers.tables import table_of_rows

        return table_of_rows(self.rows)

    @cached_property
    def _known_ranges(self) -> dict[int, dict[str, ParameterRange]]:
        return {}

    def _ranges(self, m: int) -> dict[str, ParameterRange]:
        """Return the parameters of class m, from 0, if it is right; searched for once."""
        if m not in self._known_ranges:
            self._known_ranges[m] = self.weigher.parameters(self.state, m)
        return self._known_ranges[m]

    @cached_property
    def class_parameters(self) -> dict[str, dict[str, ParameterRange]]:
        """By class that is left, its real parameters if it is right: best guess and pieces."""
        ranges = {}
        for m, members in enumerate(self.judgement.alive):
            if members:
                ranges[self.ladder.names[m]] = self._ranges(m)
        return ranges

    @cached_property
    def parameters(self) -> dict[str, Interval]:
        """The real parameters, whichever of the classes left is right: best guess, low, high.

        The best guess is that of the class chosen. A class in which a parameter is not free says
        that it has its default.
        """
        if self.misspecified:
            return {name: found.interval for name, found in self._ranges(self.chosen - 1).items()}
        hulls: dict[str, Interval] = {}
        left = list(self.class_parameters.values())
        names = dict.fromkeys(name for ranges in left for name in ranges)
        for name in names:
            ends = []
            for ranges in left:
                if name in ranges:
                    ends.append(ranges[name].interval)
                elif name in self._defaults:
                    ends.append(Interval(*[self._defaults[name]] * 3))
            low = min(interval.low for interval in ends)
            high = max(interval.high for interval in ends)
            hulls[name] = Interval(ends[0].value, low, high)
        return hulls

    @property
    def _defaults(self) -> Mapping[str, float]:
        """What a parameter is in a class in which it is not free."""
        return self.ladder.model.defaults if isinstance(self.ladder, ParametricLadder) else {}

    @property
    def at_bounds(self) -> list[str]:
        """The parameters of the class chosen whose best guess is at an end of their box.

        The box may be too narrow.
        """
        names = []
        ranges = self._ranges(self.chosen - 1)
        for name, (low, high) in self.ladder.box.items():
            if name in ranges:
                value = ranges[name].value
                if min(value - low, high - value) <= _AT_BOUND * (high - low):
                    names.append(name)
        return names

    @cached_property
    def ruled_out(self) -> dict[str, tuple[int | None, float]]:
        """By class: since when, and how many times less likely than the best explanation it is."""
        classes = self.chosen if self.misspecified else self.chosen - 1
        against = self.judgement.against
        if isinstance(self.weigher, TolerantEvidence) and not self.tolerance:
            # without what bets have won
            against = self.weigher.exact.judge(self.state).against
        ruled_out = {}
        for m in range(classes):
            nats = float(against[m])
            worse = math.exp(min(nats, 700.0)) if nats < math.inf else math.inf
            ruled_out[self.ladder.names[m]] = (self.judgement.rejected_after[m], worse)
        return ruled_out

    @property
    def most_plausible(self) -> str:
        """The most plausible member of the class chosen, in words; empty where it has no name."""
        return self.weigher.describe(self.state, self.chosen - 1)

    # Where it misfits -----------------------------------------------------------------------------

    @cached_property
    def raw_misfits(self) -> list[Misfit]:
        """Where the best model misfits most, the clearest first."""
        return self.weigher.misfits(self.state, self.chosen - 1)

    @cached_property
    def misfits(self) -> list[dict[str, Any]]:
        """The same as rows: what the model predicts and what was seen."""
        rows = []
        for misfit in self.raw_misfits:
            row = misfit._asdict()
            if isinstance(misfit, OutcomeMisfit):
                if misfit.step is None:
                    del row["step"]
                row = {name.replace("_", " "): value for name, value in row.items()}
            rows.append(row)
        return rows

    @cached_property
    def later_errors(self) -> Any:
        """How well classes of fitted dynamics predict the last third of the data.

        A :class:`~occamrl.evidence.regression_report.Quality`; None where there are too few data.
        """
        if self.ladder.kind != "dynamics":
            raise NotAvailable("no errors of predictions: only fitted dynamics have them")
        from occamrl.answers.dynamics import errors_of  # which speaks of answers

        return errors_of(self)

    # How wrong the models may be ------------------------------------------------------------------

    @property
    def forgives(self) -> bool:
        """Whether tolerances can be asked for: of lists and real parameters, by likelihood."""
        return isinstance(self.weigher, TolerantEvidence)

    @property
    def tolerance(self) -> float:
        """By how much every step may be off in what is said: the tolerance in force."""
        return self.weigher.tolerance if isinstance(self.weigher, TolerantEvidence) else 0.0

    @cached_property
    def off_by(self) -> OffBy:
        """By how much all models are off: more than (proved), about (an estimate), and where."""
        return tolerance.off_by(self)

    @cached_property
    def surviving(self) -> float | None:
        """The smallest tolerance of a grid at which a model is left; None if none is."""
        return tolerance.surviving(self)

    def range_at(self, off_by: float) -> Interval:
        """Return what the policy earns in an episode if every step is off by at most so much.

        It holds for the models that are left at that tolerance, with probability 1 - delta if one
        of them is within it; where none is left, for the nearest one.
        """
        return tolerance.range_at(self, off_by)

    @cached_property
    def break_even(self) -> float | None:
        """Up to which tolerance the policy surely beats today's; None if that is not known."""
        return tolerance.break_even(self)

    @cached_property
    def too_far_off(self) -> bool:
        """Whether models seem, by an estimate, to be further off than :attr:`break_even`."""
        return tolerance.too_far_off(self)

    # What to do, and what it is worth -------------------------------------------------------------

    @property
    def valued(self) -> bool:
        """Whether policies and their worth can be told: rewards are known, and what is possible."""
        return not self.why_not_valued

    @cached_property
    def why_not_valued(self) -> str:
        """Why there is no policy and no worth; empty where there are."""
        try:
            assert self.worlds is not None  # noqa: S101  # or it says why not
        except NotAvailable as error:
            return str(error)
        return ""

    @cached_property
    def worlds(self) -> Worlds:
        """The models that are not ruled out; NotAvailable where these cannot be told."""
        if isinstance(self.known, Known) and not self.known.rewards_known:
            raise NotAvailable(
                "no worth and no policy: rewards are not known; "
                "give known=mdp.known, or use orl.Model"
            )
        return self._possible.sized(self.runs, self.maximum)

    @cached_property
    def _possible(self) -> Worlds:
        if self.forgives and self.misspecified:
            # what is left at the smallest tolerance at which something is: to act, no guarantee
            return tolerance.worlds_at(self, self.surviving or GRID[-1])
        return self.weigher.worlds(self.state)

    def simulated(self, runs: int, maximum: int | None = None) -> Answer:
        """Return the same answer with so many simulated episodes behind every worth."""
        require_integer("runs", runs, 0)
        if maximum is not None:
            require_integer("maximum", maximum, 1)
        answer = replace(self, runs=runs, maximum=maximum)
        if self.valued:
            # What was simulated already is not simulated again.
            vars(answer)["_possible"] = self._possible
        return answer

    def _with_runs(self, runs: int | None, maximum: int | None) -> Answer:
        if runs is None:
            return self.simulated(self.runs, maximum)
        return self.simulated(require_integer("runs", runs, 1), maximum)

    @cached_property
    def _best(self) -> World:
        return self.worlds.best(self.chosen - 1)

    def _interval(self, rule: PolicyRule, against: PolicyRule | None = None) -> Interval:
        """Return what a policy earns, or earns more than another one.

        That is in the best model, and its range over all that are possible.
        """

        def worth(world: World) -> Floats:
            returns = self.worlds.returns(rule, world)
            if against is None:
                return returns
            return returns - self.worlds.returns(against, world)

        guess = float(worth(self._best).mean())
        if self.misspecified:
            return Interval(guess, math.nan, math.nan)
        if isinstance(self.worlds, FiniteWorlds):
            low, high = self.worlds.range_of(rule, against)
        else:
            low, high = self._extremes(worth, differences=against is not None)
        return Interval(guess, min(low, guess), max(high, guess))

    def _extremes(self, worth: Worth, *, differences: bool = False) -> tuple[float, float]:
        """Return the least and the largest worth; where that takes long, it says so."""
        if self.worlds.exact:  # of a search nobody knows how long it is
            bar = Progress("worth", None, self.progress, "models")
        else:
            bar = Progress("worth", len(self.worlds.some(_ALL)), self.progress, "simulators")

        def shown(world: World) -> Floats:
            returns = worth(world)
            bar.update(bar.done + 1)
            return returns

        extremes = self.worlds.extremes(shown, differences=differences)
        bar.close()
        return extremes

    @cached_property
    def _recommended(self) -> PolicyRule:
        return self.worlds.recommend(self.today)

    @cached_property
    def policy(self) -> Any:  # a Policy; in a continuous system a function of states and step
        """What to do; a Policy covers the states that can be reached under some possible model."""
        if isinstance(self.known, Known):
            worlds = cast(FiniteWorlds, self.worlds)
            reached = worlds.reached(self._recommended)
            return Policy(self._recommended, self.known, reached, worlds.reached(), self.labels)
        return self._recommended

    @cached_property
    def labels(self) -> Labels:
        """What states, actions, steps and episodes are called, by the model and by a log."""
        arguments: Sequence[str] = ()
        if isinstance(self.ladder, ParametricLadder):
            arguments = list(inspect.signature(self.ladder.model.function).parameters)[:2]
        parts = 1
        if isinstance(self.known, Known):
            first = self.known.state_name(0)
            parts = len(first) if isinstance(first, tuple) else 1
        return labels_of(arguments, self.columns, parts)

    @cached_property
    def worth(self) -> Interval:
        """What the policy earns in an episode: best guess, low, high."""
        return self.worth_of(self._recommended)

    @property
    def value(self) -> float:
        """The best guess of what the policy earns in an episode."""
        return self.worth.value

    @property
    def interval(self) -> tuple[float, float]:
        """A range for that, over all that is still possible."""
        return self.worth.low, self.worth.high

    def worth_of(
        self, policy: object = None, *, runs: int | None = None, maximum: int | None = None
    ) -> Interval:
        """Return what a policy earns in an episode; by default the one that is recommended.

        Of a finite model that may be a Policy, actions [H, S], probabilities [H, S, A], a dict from
        states to actions, or a function of the state. Of simulators it is a function
        ``policy(states [N, n], step) -> actions [N, m]``, or the name of a class, in whose most
        plausible member is planned; ``runs`` episodes are simulated, in ``maximum`` simulators.
        """
        if runs is not None or maximum is not None:
            return self._with_runs(runs, maximum).worth_of(policy)
        rule = self.worlds.rule(self._recommended if policy is None else policy)
        return self._interval(rule)

    def compared_with(
        self, policy: object, *, runs: int | None = None, maximum: int | None = None
    ) -> Interval:
        """Return how much more the recommended policy earns in an episode than another one."""
        if runs is not None or maximum is not None:
            return self._with_runs(runs, maximum).compared_with(policy)
        return self._interval(self._recommended, self.worlds.rule(policy))

    @property
    def today(self) -> Floats | None:
        """An estimate of the policy that a log shows [H, S, A]; None without a log.

        It is step by step, and drawn to that of all steps where a step was seldom seen. The gain
        does without it.
        """
        return None if self.log is None else self.log.frequencies

    @cached_property
    def gain(self) -> Interval | None:
        """How much more the recommended policy earns than the log's; None without a log.

        Model by model, with the error of what the log's episodes happen to show. Its range misses
        with a probability of at most delta for the models and about delta for the episodes.
        """
        log = self.log
        if log is None:
            return None
        if self.tolerance:
            return tolerance.gain_within(self)
        return self._ranged(
            lambda world: _minus(log.regret(world, self.delta), self._regret(world))
        )

    @cached_property
    def today_worth(self) -> Interval | None:
        """What the log's policy earns in an episode, by the models; None without a log."""
        log = self.log
        if log is None:
            return None

        def worth(world: World) -> Interval:
            regret = log.regret(world, self.delta)
            best = self._optimum(world)
            return Interval(best - regret.value, best - regret.high, best - regret.low)

        return self._ranged(worth)

    @cached_property
    def luck(self) -> Interval | None:
        """What the log's episodes earned in excess of what the models say; None if not known."""
        log = self.log
        if log is None or log.mean_return is None:
            return None
        return self._ranged(lambda world: log.luck(world, self._optimum(world), self.delta))

    def _optimum(self, world: World) -> float:
        """Return what the optimal policy of a world earns in it."""
        return float(self.worlds.returns(self.worlds.policy(world), world).mean())

    def _regret(self, world: World) -> float:
        """Return what the recommended policy loses in a world."""
        return self._optimum(world) - float(self.worlds.returns(self._recommended, world).mean())

    def _ranged(self, worth: Callable[[World], Interval]) -> Interval:
        """Return the hull of ranges over all worlds that are possible."""
        ranges = [worth(self._best)]
        if self.misspecified:
            return Interval(ranges[0].value, math.nan, math.nan)

        def value(world: World) -> Floats:
            ranges.append(worth(world))
            return np.array([ranges[-1].value])

        self._extremes(value)
        low = min(found.low for found in ranges)
        return Interval(ranges[0].value, low, max(found.high for found in ranges))

    def negligible(self, difference: Interval) -> bool:
        """Return whether a difference of worths is none, whatever is true."""
        scale = max(abs(self.worth.value), self.known.unit.scale)
        return max(map(abs, difference)) <= _NEGLIGIBLE * scale

    @property
    def sure_of_worth(self) -> bool:
        """Whether the range of the worth is at most a tenth of it wide."""
        return self.worth.high - self.worth.low <= _WIDE * abs(self.worth.value)

    @cached_property
    def shares_of_pairs(self) -> Floats:
        """How often the recommended policy takes each pair at each step [H, S, A].

        In the best model, on average.
        """
        assert isinstance(self.known, Known)  # noqa: S101  # as exact worlds are
        shares = np.zeros((self.known.horizon, self.known.states, self.known.actions))
        visits = cast(FiniteWorlds, self.worlds).visits(self._recommended, self._best)
        for h, share in enumerate(visits):
            share = np.where(self.known.absorbing, 0.0, share)
            shares[h, np.arange(self.known.states), self._recommended[h]] = share
        return shares

    @property
    def untried_actions_taken(self) -> list[Any]:
        """The actions that a log never shows and the recommended policy takes."""
        if self.log is None or not isinstance(self.known, Known):
            return []
        taken = self.shares_of_pairs.sum(axis=(0, 1)) > 0.0
        never = np.flatnonzero(taken & ~self.log.pairs.any(axis=0))
        return [self.known.action_name(a) for a in never.tolist()]

    @property
    def untried_share(self) -> float:
        """The share of the recommended policy's steps in pairs that a log never shows.

        Where chances depend on the step, in pairs that it never shows at that step.
        """
        if self.log is None:
            return 0.0
        return float(self._untried.sum() / max(self.shares_of_pairs.sum(), 1e-300))

    @cached_property
    def _untried(self) -> Floats:
        """The shares of the recommended policy's steps in pairs that the log never shows."""
        assert self.log is not None  # noqa: S101  # as whoever asks has seen
        shares = self.shares_of_pairs
        tried = self.log.pairs_by_step if self.ladder.by_step else self.log.pairs
        return np.where(np.broadcast_to(tried == 0.0, shares.shape), shares, 0.0)

    @property
    def most_untried(self) -> DoubtfulPair:
        """The pair that the log never shows and the recommended policy takes most often."""
        assert isinstance(self.known, Known)  # noqa: S101  # as exact worlds are
        by_pair = self._untried.sum(axis=0)
        s, a = np.unravel_index(int(by_pair.argmax()), by_pair.shape)
        share = float(by_pair[s, a] / self._untried.sum())
        return DoubtfulPair(self.known.state_name(int(s)), self.known.action_name(int(a)), share)

    @cached_property
    def simple_policies(self) -> dict[str, PolicyRule]:
        """The best policy of each simpler class, by its name."""
        policies = {}
        for m, name in enumerate(self.ladder.names[: self.chosen - 1]):
            policies[name] = self.worlds.policy(self.worlds.best(m))
        return policies

    @cached_property
    def price_of_simplicity(self) -> dict[str, Interval]:
        """What the best policy of each simpler class would lose in an episode."""
        return {name: self.compared_with(rule) for name, rule in self.simple_policies.items()}

    @cached_property
    def doubtful(self) -> list[DoubtfulPair]:
        """What the recommended policy does not do and may be better, in some model left."""
        return self.worlds.doubtful(self._recommended)

    @property
    def to_try(self) -> list[dict[str, Any]]:
        """The same as rows."""
        return [pair._asdict() for pair in self.doubtful]

    # In words -------------------------------------------------------------------------------------

    @cached_property
    def said(self) -> list[Sentence]:
        """The answer as sentences, each with what it is about."""
        return wording.sentences_of(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer for a person to read."""
        return tuple(str(sentence) for sentence in self.said)

    @property
    def next_steps(self) -> list[str]:
        """What to do next."""
        return [str(sentence) for sentence in wording.what_next(self)]

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return wording.headline(self)

    @cached_property
    def questions(self) -> dict[str, list[str]]:
        """The answer as lines to the questions that a person asks."""
        return wording.questions_of(self)

    def money(self, amount: float) -> str:
        """Return an amount in the user's unit."""
        return wording.money(self, amount)

    def span(self, amount: Interval) -> str:
        """Return an amount with its range."""
        return wording.money_range(self, amount)

    def __str__(self) -> str:
        return "\n".join(wording.lines_of(self.said))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class as it grew, on new axes unless some are given."""
        from occamrl.answers.figures import draw_evidence

        return draw_evidence(self, axes)

    def plot_predictions(self, axes: Axes | None = None) -> Axes:
        """Draw the last episode, and what the heaviest simulator said of each step before it."""
        from occamrl.answers.simulators import draw_predictions

        return draw_predictions(self, axes)

    def plot_misfit(self, axes: Axes | None = None) -> Axes:
        """Draw the errors of a simulator in the last episode against what they depend on most."""
        from occamrl.answers.simulators import draw_misfit

        return draw_misfit(self, axes)

    def page(self, path: str | Path, *, runs: int | None = None) -> Path:
        """Write the answer as one HTML page: model, policy, what it is worth, the evidence.

        Of simulators ``runs`` episodes are planned in each of the most plausible to say what the
        planner is worth, and what simpler simulators would lose; 0 leaves that out.
        """
        from occamrl.answers.page import write_page

        answer = self if runs is None else self.simulated(runs, self.maximum)
        return write_page(answer, path)

    def as_data(self) -> dict[str, Any]:
        """Return the answer as plain data, as JSON takes it."""
        data: dict[str, Any] = {
            "classes": self.rows,
            "model": self.model,
            "chosen": self.chosen,
            "status": self.status,
            "misspecified": self.misspecified,
            "parameters": self.parameters,
            "ruled_out": self.ruled_out,
            "history": self.history,
            "episodes": self.episodes,
            "delta": self.delta,
            "evidence": self.evidence,
            "headline": self.headline,
            "sentences": self.sentences,
            "notes": [note._asdict() for note in self.notes],
        }
        if self.valued and self.worlds.exact:
            data |= {
                "value": self.value,
                "interval": self.interval,
                "price_of_simplicity": self.price_of_simplicity,
                "misfits": self.misfits,
                "policy": self.policy.rows,
            }
        if self.most_plausible:
            data["simulator"] = self.most_plausible
        # numbers that JSON does not have become null
        text = json.dumps(data, default=str)
        plain: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
        return plain


def _minus(regret: Interval, own: float) -> Interval:
    return Interval(regret.value - own, regret.low - own, regret.high - own)


def answer_of(result: Result) -> Answer:
    """Return the answer of a run's result."""
    agent = result.agent
    if not isinstance(agent, Selector):
        raise OccamRLError(
            f"{type(agent).__name__} has no evidence about a ladder of models; answers need a "
            "selector over a ladder: orl.Occam(ladder=...), or orl.ARLGen(ladder=...)"
        )
    weigher = agent.evidence(result.known)
    state = result.state["evidence"]
    notes = () if result.drive is None else result.drive.notes
    if isinstance(result.known, System):
        return Answer(
            ladder=agent.ladder,
            known=result.known,
            weigher=weigher,
            state=state,
            episodes=result.total_episodes,
            steps=state["steps"],
            source=result.environment.name,
            history=state["history"],
            returns=result.returns.tolist(),
            reward_error=state["reward_gap"] / max(1, state["steps"]),
            notes=notes,
        )
    steps = result.total_episodes * result.known.horizon
    if "count" in state:
        steps = int(state["count"].sum())
    chosen = result.next_plan.facts["chosen"]
    since = stretch_begin(result.phase_rows, "chosen", chosen, result.total_episodes)
    history: list[list[float]] = []
    if weigher.kind == "likelihood":
        history = evidence_history(result)
    return Answer(
        ladder=agent.ladder,
        known=result.known,
        weigher=weigher,
        state=state,
        episodes=result.total_episodes,
        steps=steps,
        source="the simulator" if result.environment is None else result.environment.name,
        history=history,
        changed=since > max(result.total_episodes / 2, 1),
        notes=notes,
    )


def evidence_history(result: Result) -> list[list[float]]:
    """Return episodes, and the evidence against each class by then, as a run kept them."""
    points = []
    for phase in result.blocks.phases:
        points += [point for point in phase.get("history", ()) if point[0]]
    if result.total_episodes:
        points.append([result.total_episodes, *result.next_plan.diagnostics["statistics"]])
    history = []
    for point in points:
        # None: what was seen is impossible under the class
        history.append([math.inf if number is None else float(number) for number in point])
    return history


def stretch_begin(
    rows: Sequence[Mapping[str, Any]], name: str, value: object, episodes: int
) -> int:
    """Return the first episode, from 1, of the latest stretch in which a fact had a value.

    It is the next episode if the last phase had another one.
    """
    begin = episodes + 1
    for row in reversed(rows):
        if row.get(name) != value:
            break
        begin = row["first"]
    return int(begin)

r"""A model as its user would write it down: a function of what can happen, with parameters to fit.

::

    def shop(stock, order, *, mean, empty=0.0):
        for demand, probability in demand_law(mean, empty):
            yield probability, next_stock, reward, False  # in Gymnasium's order; over or not

States and actions are any hashable things. Rewards belong to outcomes, in the user's unit: two
outcomes with the same next state and another reward are two outcomes. A *class* of models is a set
of parameters that are free in a box, the others having the defaults of the function; classes are
nested as these sets are.

**The listing.** States and outcomes are those that can be reached from the start at the corners of
the box and at some points inside it. It is made once, so that an outcome has one number for all
parameters. What a model does beyond its listing, and whatever else is seen, leads to one more
state, ``ELSEWHERE``, in which an episode rests.

**Rows.** A row is a law of outcomes. A model whose function does not look at the step has one for
each pair (s, a): one *layer*. A function with an argument ``step`` has a layer for each of the H
steps, with the states that can be reached by then: what a model with the step in its state would
list as ((step, s), a) is the row (step, s, a) here. Episodes that continue each other begin again
at step 1, in the state in which the last one ended.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import numbers
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from occamrl.arrays import Bools, distinct_rows
from occamrl.errors import (
    InvalidInput,
    ParameterError,
    ProbabilityError,
    RewardError,
    UnknownName,
    require_integer,
    require_kind,
    require_number,
    require_range,
)
from occamrl.models.families import FiniteFamily
from occamrl.naming import Names
from occamrl.problems.mdp import TOLERANCE, FiniteMDP, Listing, as_mdp, first_true
from occamrl.protocols import Evidence, Floats, Ints, Known, Outcomes, RewardMap

ELSEWHERE = "(not listed)"
MOST_STATES = 100_000
_INSIDE = 6  # points inside the box that are looked at, beside its corners
_MOST_CORNERS = 16
_ROUNDING = 1e-12  # probabilities that are negative by less are 0
_SAME = 1e-7  # probabilities that differ by less are equal
_TRIAL = 500  # rows after which only points are looked at that have added an outcome
_TRIAL_OF_LAYER = 20  # the least of these for each step
_SAMPLED = 10  # of the rows after these, every so many-th is looked at under other parameters too
_COMPARED = 100  # rows whose probabilities are compared if an array gives them
_BISECTIONS = 30  # until the end of a law is found
_ENTRY = "(probability, next state, reward, ended)"
_ANY_NUMBER = (-math.inf, math.inf)

Point = Mapping[str, float]
Row = tuple[Any, ...]  # (probability, next state, reward), or with whether the episode is over
Box = dict[str, tuple[float, float]]


def spread_points(dimensions: int, count: int) -> list[Floats]:
    """Return points that spread over the unit box: its middle, then Kronecker's sequence.

    Steps are the powers of 1/x with x^(d+1) = x + 1, which no sum of whole multiples brings to a
    whole number; in one dimension those of two.
    """
    exponent = max(dimensions, 2) + 1
    root = 1.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / exponent)
    steps = np.arange(1, count)[:, None] / root ** np.arange(1, dimensions + 1)
    return [np.full(dimensions, 0.5), *np.mod(steps, 1.0)]


def bounds_of(intervals: Iterable[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return the low ends of some intervals, and the high ends."""
    ends = np.array(list(intervals), dtype=np.float64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


class Model:
    """A system as a function of what can happen, with parameters that are free within bounds.

    >>> import occamrl as orl
    >>> def shop(stock, order, *, rate, rush=0.0):
    ...     chance, filled = rate + rush * (stock > 2), min(stock + order, 4)
    ...     yield 1 - chance, filled, -0.1 * stock, False
    ...     yield chance, max(filled - 1, 0), 1.0 * (filled > 0) - 0.1 * stock, False
    >>> bounds = {"rate": (0.1, 0.6), "rush": (0.0, 0.3)}
    >>> model = orl.Model(shop, start=2, actions=[0, 1], horizon=10, parameters=bounds)
    >>> ladder = model.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})
    >>> truth = model.mdp(rate=0.37, rush=0.21)
    >>> result = orl.run(orl.Occam(ladder=ladder), truth, episodes=100)

    Parameters
    ----------
    outcomes : callable
        ``outcomes(state, action, **parameters)`` yields (probability, next state, reward) or, with
        whether the episode is over, (probability, next state, reward, ended). Rewards are in your
        unit and do not depend on parameters. If it has an argument ``step``, it is called with the
        step of the episode, 1 to ``horizon``: chances that depend on the time of day.
    start : state or dict
        The first state, or a law {state: probability}.
    actions : sequence or callable
        The actions; or ``actions(state)``, those that are allowed in a state.
    horizon : int
        Steps of an episode.
    parameters : dict of str to (low, high), optional
        Bounds of the parameters that may be free. One without a default must be free in every
        class.
    discount : float
        In (0, 1]: what is earned h steps after the start counts discount^h times.
    continuing : bool
        The next episode begins where the last one ended.
    reward_range : (low, high), optional
        Bounds on the rewards of all outcomes; found by default.
    unit : str
        What rewards are counted in, such as "EUR"; it stands beside every amount.
    probabilities : callable, optional
        ``probabilities(pairs, **parameters)``: the probabilities that ``outcomes`` yields for a
        list of (state, action), one after the other in one array. It saves a call for each pair in
        large models. If ``outcomes`` has an argument ``step``, so has this: the step of each pair,
        an array.
    most_states : int
        More states than these are refused.
    """

    def __init__(
        self,
        outcomes: Callable[..., Iterable[Any]],
        *,
        start: Any,
        actions: Any,
        horizon: int,
        parameters: Mapping[str, Sequence[float]] | None = None,
        discount: float = 1.0,
        continuing: bool = False,
        reward_range: Sequence[float] | None = None,
        unit: str = "",
        probabilities: Callable[..., Any] | None = None,
        most_states: int = MOST_STATES,
    ) -> None:
        self.function = outcomes
        self.vectorised = probabilities
        self._actions = actions
        self.horizon = require_integer("horizon", horizon, 1)
        self.discount = require_number("discount", discount, 0.0, 1.0, open_low=True)
        require_kind("continuing", continuing, bool)
        self.continuing = continuing
        require_kind("unit", unit, str)
        self.unit_name = unit
        self._most_states = require_integer("most_states", most_states, 1)
        self.by_step = False  # whether chances depend on the step
        self.box, self.defaults = self._read_parameters({} if parameters is None else parameters)
        # In this order: each step reads what the ones before it have found.
        self.layers = self.horizon if self.by_step else 1
        law = _law_of(start)
        self._explore(law)
        self._arrange()
        self.unit = self._unit_of(reward_range)
        self.initial = self._initial_of(law)
        self.names = self._names()
        self._require_same_law()

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", "outcomes")
        kind = "pairs of a state and an action"
        if self.by_step:
            kind = "triples of a step, a state and an action"
        sizes = f"{len(self.pairs):,} {kind}, {self.reward.size:,} outcomes"
        return f"Model({name}, {sizes}, horizon={self.horizon})"

    # What the user hands in -----------------------------------------------------------------------

    def _read_parameters(self, bounds: Mapping[str, Sequence[float]]) -> tuple[Box, Point]:
        """Return the bounds, and the defaults of the function."""
        if not callable(self.function) or isinstance(self.function, type):
            raise ParameterError(
                "outcomes",
                got=f"{self.function!r:.80}",
                expected="a function of (state, action, *, parameters...)",
            )
        arguments = list(inspect.signature(self.function).parameters.values())
        if len(arguments) < 2:
            raise ParameterError(
                "outcomes",
                got=f"a function of {len(arguments)} arguments",
                expected="(state, action, ...)",
            )
        if not isinstance(bounds, Mapping):
            raise ParameterError(
                "parameters", got=f"{bounds!r:.80}", expected="a dict: {name: (low, high)}"
            )
        named = {}
        for argument in arguments[2:]:
            if argument.kind not in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL):
                named[argument.name] = argument.default
        if "step" in named and "step" not in bounds:
            self._read_step(named.pop("step"))
        box = {}
        for name, ends in bounds.items():
            if name not in named:
                raise UnknownName("parameters", got=name, known=named)
            box[name] = require_range(f"parameters[{name!r}]", ends)
        defaults = {}
        for name, default in named.items():
            if default is inspect.Parameter.empty:
                if name not in box:
                    raise ParameterError(
                        f"parameters[{name!r}]", got="nothing", expected="(low, high), or a default"
                    )
            elif name in box or isinstance(default, numbers.Real):
                # Other arguments, such as a table of prices, are the function's own.
                defaults[name] = require_number(name, default, -math.inf, math.inf)
                low, high = box.get(name, _ANY_NUMBER)
                if not low <= default <= high:
                    raise ParameterError(
                        f"parameters[{name!r}]",
                        got=(low, high),
                        expected=f"bounds that contain its default {default:g}, "
                        "which smaller classes use",
                    )
        return box, defaults

    def _read_step(self, default: object) -> None:
        """Take note that the function wants the step; refuse what may be meant as a constant."""
        if default is not inspect.Parameter.empty:
            raise ParameterError(
                "outcomes",
                got=f"an argument step={default!r:.40}",
                expected="step without a default, which is the step of the episode, from 1; "
                "another name for a constant",
            )
        self.by_step = True
        if self.vectorised is None:
            return
        arguments = inspect.signature(self.vectorised).parameters.values()
        if not any(one.name == "step" or one.kind == one.VAR_KEYWORD for one in arguments):
            raise ParameterError(
                "probabilities",
                got="no argument step",
                expected="step=, an array with the step of each pair, as outcomes(...) has one",
            )

    def _at_step(self, point: Point, layer: int) -> Point:
        """Return what the function is called with in a layer: parameters, and maybe the step."""
        return {**point, "step": layer + 1} if self.by_step else point

    def point(self, **values: float) -> dict[str, float]:
        """Return a value for every parameter: as given, or the default."""
        for name, value in values.items():
            if name not in self.box and name not in self.defaults:
                raise UnknownName("parameters", got=name, known={**self.box, **self.defaults})
            low, high = self.box.get(name, _ANY_NUMBER)
            require_number(name, value, low, high)
        point = {**self.defaults, **{name: float(value) for name, value in values.items()}}
        for name, ends in self.box.items():
            if name not in point:
                raise ParameterError(name, got="nothing", expected=f"a number in {list(ends)}")
        return point

    def _points(self) -> list[Point]:
        """Return where outcomes are listed: the middle of the box, points inside, corners."""
        low, high = bounds_of(self.box.values())
        # With many parameters there are too many corners; the last one is always looked at.
        corners = itertools.islice(itertools.product((0.0, 1.0), repeat=low.size), _MOST_CORNERS)
        shares = [*spread_points(low.size, _INSIDE), *corners, np.ones(low.size)]
        points: list[Point] = []
        for share in shares:
            values = low + np.array(share) * (high - low)
            points.append({**self.defaults, **dict(zip(self.box, values.tolist(), strict=True))})
        return points

    def _allowed_in(self, state: Hashable) -> list[Hashable]:
        """Return the actions that the user allows in a state."""
        allowed = self._actions
        where = ""
        if callable(self._actions):
            where = f" in state {state!r}"
            try:
                allowed = self._actions(state)
            except Exception as error:  # whatever the user's function raises
                raise ParameterError(
                    "actions",
                    got=f"{type(error).__name__}: {error}{where}",
                    expected="the actions that are allowed there",
                ) from error
        try:
            actions = list(itertools.islice(allowed, self._most_states + 1))
            different = 0 < len(set(actions)) == len(actions) <= self._most_states
        except TypeError:
            different = False
        if not different:
            raise ParameterError(
                "actions",
                got=f"{allowed!r:.80}{where}",
                expected=f"different hashable actions, 1 to {self._most_states:,}",
            )
        return actions

    def rows(self, state: Hashable, action: Hashable, point: Point) -> list[Row]:
        """Return what the function yields, as a list of tuples; refuse what is not a law."""
        try:
            rows = [tuple(row) for row in self.function(state, action, **point)]
        except Exception as error:  # whatever the user's function raises
            raised = Fault(ParameterError, f"{type(error).__name__}: {error}", f"tuples {_ENTRY}")
            raise raised.error(state, action, point) from error
        fault = _fault_of_law(rows)
        if fault is not None:
            if fault.kind is ProbabilityError:
                advice = self._narrower(state, action, point)
                fault = fault._replace(expected=fault.expected + advice)
            raise fault.error(state, action, point)
        return rows

    def _narrower(self, state: Hashable, action: Hashable, point: Point) -> str:
        """Return which bounds of single parameters would keep probabilities, where some do."""

        def lawful(name: str, value: float) -> bool:
            try:
                rows = [
                    tuple(row) for row in self.function(state, action, **{**point, name: value})
                ]
            except Exception:  # whatever the user's function raises
                return False
            return _fault_of_law(rows) is None

        advice = []
        for name, (low, high) in self.box.items():
            bad = point[name]
            good = (low + high) / 2.0
            if bad == good or not lawful(name, good):
                continue
            for _ in range(_BISECTIONS):
                half = (good + bad) / 2.0
                if lawful(name, half):
                    good = half
                else:
                    bad = half
            end = "high" if bad > good else "low"
            advice.append(f"{name} needs a {end} end of {_towards(good, (low + high) / 2.0):g}")
        if not advice:
            return ""
        return f"; there, {' or '.join(advice)}"

    # The listing ----------------------------------------------------------------------------------

    def _explore(self, law: Mapping[Hashable, float]) -> None:
        """Find the states and outcomes that can be reached, breadth first."""
        self.states: list[Any] = []
        self.absorbing: list[bool] = []  # whether nothing more happens there
        self._number: dict[Hashable, int] = {}
        self.actions: list[Any] = [] if callable(self._actions) else self._allowed_in(None)
        self.pairs: list[tuple[int, int]] = []  # (state, action) of each row
        self._layer_of: list[int] = []  # of each row
        self._tried = Counter[int]()  # rows of each layer
        self._indices: list[dict[Hashable, int]] = []  # of each row: outcomes of what is yielded
        self._listed: list[tuple[int, int, float]] = []  # outcomes: row, next state, reward
        points = self._points()
        useful: set[int] = set()  # points that have added an outcome
        places: dict[tuple[int, int], None] = {}  # (layer, state), in the order of discovery
        for state in law:
            places[0, self._number_of(state, False)] = None
        waiting = list(places)
        for layer, s in waiting:  # which grow meanwhile
            state = self.states[s]
            following = self._layer_after(layer)
            for action in self._allowed_in(state):
                if action not in self.actions:
                    self.actions.append(action)
                reached = self._list_row(layer, state, action, points, useful)
                self.pairs.append((s, self.actions.index(action)))
                self._layer_of.append(layer)
                for next_state in reached:
                    place = (following, next_state)
                    if following < 0 or self.absorbing[next_state] or place in places:
                        continue
                    places[place] = None
                    waiting.append(place)

    def _layer_after(self, layer: int) -> int:
        """Return the layer of the next step; -1 where the episode is over for good."""
        if layer + 1 < self.layers:
            return layer + 1
        return 0 if self.layers == 1 or self.continuing else -1

    def _list_row(
        self, layer: int, state: Hashable, action: Hashable, points: list[Point], useful: set[int]
    ) -> list[int]:
        """List the outcomes that a row has at some points of the box; return its next states."""
        number = len(self.pairs)
        # some rows of each layer are looked at everywhere: it may have outcomes of its own
        tried = self._tried[layer]
        self._tried[layer] += 1
        trial = max(_TRIAL // self.layers, _TRIAL_OF_LAYER)
        outcomes: dict[tuple[int, float], int] = {}  # by next state and reward
        indices: dict[Hashable, int] = {}
        rewards: list[dict[int, set[float]]] = []  # at each point, by next state
        for i, point in enumerate(points):
            # Later rows are seldom looked at where the first ones had nothing new, but now and
            # then at one other point, to see whether rewards are the same there.
            compared = i == 1 and number % _SAMPLED == 0
            if tried >= trial and i > 0 and i not in useful and not compared:
                continue
            rewards.append({})
            for row in self.rows(state, action, self._at_step(point, layer)):
                # What is impossible here may lead to states that no parameters reach.
                if row[0] <= 0.0:
                    continue
                next_state = self._number_of(row[1], len(row) == 4 and bool(row[3]))
                reward = float(row[2])
                rewards[-1].setdefault(next_state, set()).add(reward)
                if (next_state, reward) not in outcomes:
                    outcomes[next_state, reward] = len(self._listed)
                    self._listed.append((number, next_state, reward))
                    useful.add(i)
                indices[row[1:]] = outcomes[next_state, reward]
        _require_fixed_rewards(state, action, rewards)
        self._indices.append(indices)
        return [next_state for next_state, _ in outcomes]

    def _number_of(self, state: Hashable, absorbing: bool) -> int:
        """Return the number of a state, a new one if it has none."""
        try:
            number = self._number.get((state, absorbing))
        except TypeError:
            raise ParameterError(
                "state",
                got=f"{type(state).__name__} {state!r:.80}",
                expected="a hashable state: a number, a string, or a tuple of these",
            ) from None
        if number is None:
            number = len(self.states)
            if number >= self._most_states:
                ends = [*self.states[:3], *self.states[-3:]]
                some = ", ".join(f"{name!r:.30}" for name in ends)
                raise ParameterError(
                    "outcomes",
                    got=f"more than {number:,} states: {some}",
                    expected=f"at most {self._most_states:,}; "
                    "bound what the function can reach, or set most_states=",
                )
            self._number[state, absorbing] = number
            self.states.append(state)
            self.absorbing.append(absorbing)
        return number

    def _arrange(self) -> None:
        """Put the outcomes in the order of s*A + a, next state and reward."""
        self.elsewhere = len(self.states)
        self.states.append(ELSEWHERE)
        self.absorbing.append(True)
        actions = len(self.actions)
        self._cells = len(self.states) * actions  # S*A
        layer = np.array(self._layer_of, dtype=np.int64)
        number = layer * self._cells
        number += np.array([s * actions + a for s, a in self.pairs], dtype=np.int64)
        by_number = np.argsort(number)
        rank = np.argsort(by_number)  # of each row as it was discovered
        row, next_state, reward = (np.array(column) for column in zip(*self._listed, strict=True))
        order = np.lexsort((reward, next_state, rank[row]))
        position = np.argsort(order)  # of each outcome as it was discovered
        self.row = rank[row][order]
        self.next_state = next_state[order]
        self.reward = reward[order]
        # of a row, what its function yielded last, and which outcomes [O] these are
        self._yielded: dict[int, tuple[list[Any], Ints]] = {}
        discovered = [self._indices[i] for i in by_number]
        self._indices = []
        for indices in discovered:
            self._indices.append({key: int(position[o]) for key, o in indices.items()})
        self.pairs = [self.pairs[i] for i in by_number]
        self.layer = layer[by_number]  # of each row, from 0: its step
        self._number_of_row = number[by_number]  # (layer*S + s)*A + a
        self._row_of = np.full(self.layers * self._cells, -1)  # and back
        self._row_of[self._number_of_row] = np.arange(number.size)

    def _unit_of(self, reward_range: Sequence[float] | None) -> RewardMap:
        """Return the range of all rewards, or the one that the user states."""
        low = float(self.reward.min())
        high = float(self.reward.max())
        if any(self.absorbing[:-1]):  # where 0 is earned at rest
            low = min(low, 0.0)
            high = max(high, 0.0)
        if reward_range is not None:
            stated = require_range("reward_range", reward_range)
            if low < stated[0] or high > stated[1]:
                raise RewardError(
                    "reward_range",
                    got=stated,
                    expected=f"bounds of all rewards, {low:g} to {high:g}",
                )
            low, high = stated
        return RewardMap(low, high if high > low else low + 1.0)

    def _initial_of(self, law: Mapping[Hashable, float]) -> Floats:
        """Return the law of the first state [S]."""
        initial = np.zeros(len(self.states))
        for state, share in law.items():
            number = self._number[state, False]
            initial[number] = require_number(f"start[{state!r}]", share, 0.0, 1.0)
        if abs(initial.sum() - 1.0) > TOLERANCE:
            raise ProbabilityError(
                "start", got=f"a law that sums to {initial.sum():g}", expected="a sum of 1"
            )
        return initial

    def _names(self) -> Names:
        """Return what the user calls states and actions; a state may be an end as well."""
        # One name may be a state in which the episode goes on, and another in which it has ended.
        named = []
        for state, absorbing in zip(self.states, self.absorbing, strict=True):
            both = absorbing and (state, False) in self._number
            named.append(f"{state} (end)" if both else state)
        if len(set(named)) < len(named):
            twice = next(state for state in named if named.count(state) > 1)
            raise ParameterError(
                "state",
                got=repr(twice),
                expected="another name: "
                "this one is taken by the end of an episode, or by what is not listed",
            )
        return Names(tuple(named), tuple(self.actions), tuple(self.absorbing))

    @cached_property
    def layout(self) -> Outcomes:
        """The outcomes of all pairs s*A + a, as a problem lists them, allowed or not.

        Of a model by steps those of every layer in turn, :meth:`Known.pair_in`; a pair that cannot
        be reached at a step has none there.
        """
        equal = 1.0 / np.bincount(self.row)[self.row]
        mdp = self.mdp_at(equal)
        every = mdp.known.transition_rewards or mdp.outcomes
        if not self.by_step:
            return every
        absorbing = np.flatnonzero(self.absorbing)
        actions = len(self.actions)
        rest = (absorbing[:, None] * actions + np.arange(actions)).ravel()
        at_rest = (np.arange(self.layers)[:, None] * self._cells + rest).ravel()
        pair = np.concatenate([self._number_of_row[self.row], at_rest])
        next_state = np.concatenate([self.next_state, np.tile(rest // actions, self.layers)])
        earned = np.concatenate([self.reward, np.zeros(at_rest.size)])
        bonus = self.unit.to_unit(earned) - mdp.base_reward[pair % self._cells]
        order = np.lexsort((bonus, next_state, pair))
        start = np.searchsorted(pair[order], np.arange(self.layers * self._cells + 1))
        return Outcomes(start, next_state[order], bonus[order])

    def _require_same_law(self) -> None:
        """Refuse ``probabilities`` that are not those of ``outcomes``, at some pairs and points."""
        if self.vectorised is None:
            return
        # Some pairs are enough to notice another order or another formula.
        some = np.unique(np.linspace(0, len(self.pairs) - 1, _COMPARED).astype(int)).tolist()
        inside = np.isin(self.row, some)
        for point in self._points()[:2]:
            one = self._at_once(point, some)
            two = self._one_by_one(point, some)
            wrong = first_true(inside & ~(np.abs(one - two) <= _SAME))
            if wrong is None:
                continue
            values = ", ".join(f"{name}={value:g}" for name, value in point.items())
            outcome = f"next state {self.states[self.next_state[wrong]]!r}, {values}"
            raise ProbabilityError(
                "probabilities",
                got=f"{one[wrong]:g} {self._place_of(int(self.row[wrong]))}",
                expected=f"{two[wrong]:g}, as outcomes(...) has it for {outcome}",
            )

    def _place_of(self, row: int) -> str:
        """Return where a row is, in words."""
        s, a = self.pairs[row]
        where = f"at state {self.states[s]!r}, action {self.actions[a]!r}"
        return f"{where}, step {self.layer[row] + 1}" if self.by_step else where

    def row_of(self, step: Ints, state: Ints, action: Ints) -> Ints:
        """Return the rows of some steps, from 0; -1 at rest, and where no model comes."""
        number = step % self.layers * self._cells + state * len(self.actions) + action
        return np.asarray(self._row_of[number])

    # Members --------------------------------------------------------------------------------------

    def probability(self, point: Point, rows: Sequence[int] | None = None) -> Floats:
        """Return the probability of every outcome [O] at a point, of some rows only or of all."""
        return np.clip(self._as_given(point, rows), 0.0, 1.0)  # 1 - 0.9 - 0.1

    def _as_given(self, point: Point, rows: Sequence[int] | None = None) -> Floats:
        """Return what the user's function says, with its rounding."""
        if rows is None:
            rows = range(len(self.pairs))
        if self.vectorised is None:
            return self._one_by_one(point, rows)
        return self._at_once(point, rows)

    def _one_by_one(self, point: Point, rows: Sequence[int]) -> Floats:
        """Return the probabilities from a call for each row."""
        indices = [np.zeros(0, np.int64)]
        shares: list[float] = []
        for row in rows:
            s, a = self.pairs[row]
            arguments = self._at_step(point, int(self.layer[row]))
            yielded = list(self.function(self.states[s], self.actions[a], **arguments))
            shares += [outcome[0] for outcome in yielded]
            keys = [outcome[1:] for outcome in yielded]
            last = self._yielded.get(row)
            # mostly a row has the same outcomes in the same order at every point
            if last is None or last[0] != keys:
                listed = [self._indices[row].get(tuple(key), -1) for key in keys]
                last = keys, np.array(listed, np.int64)
                self._yielded[row] = last
            indices.append(last[1])
        return self._summed(np.concatenate(indices), np.array(shares))

    def _summed(self, index: Ints, shares: Floats) -> Floats:
        """Return the sums of shares by outcome [O]; the index -1 is none of them."""
        listed = index >= 0
        return np.bincount(index[listed], shares[listed], self.reward.size).astype(np.float64)

    def _at_once(self, point: Point, rows: Sequence[int]) -> Floats:
        """Return the probabilities from the user's array of them."""
        if self.vectorised is None or not len(rows):
            return np.zeros(self.reward.size)
        pairs = []
        for row in rows:
            s, a = self.pairs[row]
            pairs.append((self.states[s], self.actions[a]))
        index = np.concatenate([self._sequences[row] for row in rows])
        arguments: dict[str, Any] = {**point}
        if self.by_step:
            arguments["step"] = self.layer[list(rows)] + 1
        shares = np.asarray(self.vectorised(pairs, **arguments), dtype=np.float64)
        if shares.shape != index.shape:
            raise ProbabilityError(
                "probabilities",
                got=f"shape {shares.shape}",
                expected=f"{index.size:,} numbers: what outcomes(...) yields for each pair in turn",
            )
        return self._summed(index, shares)

    @cached_property
    def _sequences(self) -> list[Ints]:
        """The outcomes of each row in the order in which the function yields them."""
        point = self._points()[0]
        sequences = []
        for (s, a), layer, indices in zip(self.pairs, self.layer, self._indices, strict=True):
            arguments = self._at_step(point, int(layer))
            rows = self.rows(self.states[s], self.actions[a], arguments)
            sequences.append(np.array([indices.get(row[1:], -1) for row in rows]))
        return sequences

    def checked_probability(self, point: Point) -> Floats:
        """Return the probability of every outcome at a point that a user named; refuse no law."""
        probability = self._as_given(point)
        total = np.bincount(self.row, probability, len(self.pairs))
        fine = np.isfinite(total) & (total <= 1.0 + TOLERANCE)
        fine[self.row[probability < -_ROUNDING]] = False
        wrong = first_true(~fine)
        if wrong is not None:
            s, a = self.pairs[wrong]
            arguments = self._at_step(point, int(self.layer[wrong]))
            self.rows(self.states[s], self.actions[a], arguments)  # says what is wrong, mostly
            raise ProbabilityError(
                "probabilities",
                got=f"a sum of {total[wrong]:.12g} {self._place_of(wrong)}",
                expected="what outcomes(...) yields",
            )
        return np.clip(probability, 0.0, 1.0)

    def mdp_at(
        self,
        probability: Floats,
        row: Ints | None = None,
        next_state: Ints | None = None,
        reward: Floats | None = None,
    ) -> FiniteMDP:
        """Return the problem with these probabilities, of the outcomes or of others.

        What they lack to one leads elsewhere.
        """
        if row is None or next_state is None or reward is None:
            row = self.row
            next_state = self.next_state
            reward = self.reward
        actions = len(self.actions)
        # Parameters between the points that were looked at may reach what is not listed.
        missing = 1.0 - np.bincount(row, probability, self._number_of_row.size)
        lost = np.flatnonzero(missing > TOLERANCE)
        # states that no row leaves: at rest, or only reached at the end of an episode
        left = np.zeros(len(self.states), bool)
        left[[s for s, _ in self.pairs]] = True
        stay = (np.flatnonzero(~left)[:, None] * actions + np.arange(actions)).ravel()
        nothing = min(max(0.0, self.unit.low), self.unit.high)
        entries = RowOutcomes(
            number=np.concatenate([self._number_of_row[row], self._number_of_row[lost]]),
            next_state=np.concatenate([next_state, np.full(lost.size, self.elsewhere)]),
            probability=np.concatenate([probability, missing[lost]]),
            reward=np.concatenate([reward, np.full(lost.size, nothing)]),
        )
        united = self._united(entries)
        sure = np.ones((self.layers, stay.size))
        listing = Listing(
            states=len(self.states),
            actions=actions,
            pair=np.concatenate([united.pair, stay]),
            next_state=np.concatenate([united.next_state, stay // actions]),
            probability=np.concatenate([united.probability, sure], axis=1),
            reward=np.concatenate([united.reward, np.zeros(stay.size)]),
        )
        return FiniteMDP.of_listing(
            listing,
            horizon=self.horizon,
            initial=self.initial,
            unit=self.unit,
            unit_name=self.unit_name,
            names=self.names,
            discount=self.discount,
            continuing=self.continuing,
        )

    def _united(self, entries: RowOutcomes) -> PairOutcomes:
        """Return outcomes of rows as outcomes of pairs, with a probability in each layer.

        Where a pair is not listed in a layer nobody can be; from there all leads elsewhere.
        """
        if not self.by_step:
            probability = entries.probability[None]
            return PairOutcomes(entries.number, entries.next_state, probability, entries.reward)
        pair = entries.number % self._cells
        # with the least reward of the pair, so that no reward is added to those that it has
        least = np.full(self._cells, np.inf)
        np.minimum.at(least, pair, entries.reward)
        listed = np.isfinite(least)
        absent = np.flatnonzero(np.tile(listed, self.layers) & (self._row_of < 0))
        number = np.concatenate([entries.number, absent])
        next_state = np.append(entries.next_state, np.full(absent.size, self.elsewhere))
        chances = np.append(entries.probability, np.ones(absent.size))
        reward = np.append(entries.reward, least[absent % self._cells])
        layer, pair = np.divmod(number, self._cells)
        order, first = distinct_rows(pair, next_state, reward)
        outcome = np.zeros(order.size, np.int64)
        begins = np.zeros(order.size, np.int64)
        begins[first] = 1
        outcome[order] = np.cumsum(begins) - 1
        probability = np.zeros((self.layers, first.size))
        np.add.at(probability, (layer, outcome), chances)
        kept = order[first]
        return PairOutcomes(pair[kept], next_state[kept], probability, reward[kept])

    def mdp(self, **parameters: float) -> FiniteMDP:
        """Return the problem at these parameters; the others keep their defaults."""
        return self.mdp_at(self.checked_probability(self.point(**parameters)))

    @cached_property
    def known(self) -> Known:
        """What an agent may know of the system: everything but the parameters."""
        return self.mdp_at(self.checked_probability(self._points()[0])).known

    def family(self, values: Mapping[str, Sequence[float]]) -> FiniteFamily:
        """Return the list of the models at every combination of some values of parameters."""
        for name, listed in values.items():
            if isinstance(listed, str) or not isinstance(listed, Iterable):
                raise ParameterError(name, got=repr(listed), expected="a list of values")
        combinations = itertools.product(*values.values())
        return FiniteFamily(
            [self.mdp(**dict(zip(values, point, strict=True))) for point in combinations]
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what the model says at the points that were looked at, equal for equal ones."""
        bounds = (self.names, self.box, self.defaults)
        kind = (*bounds, self.horizon, self.discount, self.continuing, tuple(self.unit))
        digest = hashlib.sha256(repr(kind).encode())
        arrays = [self.row, self.next_state, self.reward, self.initial]
        if self.by_step:
            arrays.append(self.layer)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        # The function itself cannot be hashed; what it says at some points stands for it.
        for point in self._points()[: 1 + len(self.box)]:
            digest.update(self.probability(point).data)
        return digest.hexdigest()

    def probability_of(self, mdp: FiniteMDP) -> Floats | None:
        """Return the probabilities of the outcomes [O] in a problem; None if it has others."""
        same = (mdp.states, mdp.actions) == (len(self.states), len(self.actions))
        same &= mdp.stationary or (self.by_step and mdp.horizon == self.horizon)
        if not same or (mdp.known.names or self.names) != self.names:
            return None
        start = np.searchsorted(self.row, np.arange(len(self.pairs) + 1))
        listed = Outcomes(start, self.next_state, self.unit.to_unit(self.reward))
        pair = mdp.outcomes.pair
        earned = mdp.base_reward[pair] + mdp.outcomes.bonus
        elsewhere = mdp.outcomes.next_state == self.elsewhere
        target = np.zeros(self.reward.size)
        for layer in range(self.layers):
            probability = mdp.law(layer)
            row = self._row_of[layer * self._cells + pair]
            known = np.flatnonzero((row >= 0) & ~elsewhere & (probability > 0.0))
            following = mdp.outcomes.next_state[known]
            index = listed.index_of(row[known], following, earned[known], mdp.states)
            far = np.abs(listed.bonus[index] - earned[known]) > TOLERANCE
            if (index < 0).any() or far.any():
                return None
            np.add.at(target, index, probability[known])
        return target

    def ladder(self, classes: Mapping[str, Sequence[str]]) -> ParametricLadder:
        """Return classes, from simple to rich: by name, the parameters that are free in each.

        They need not be nested: {"wind": ["wind"], "drag": ["drag"], "both": ["wind", "drag"]}.
        """
        return ParametricLadder(self, classes)


class RowOutcomes(NamedTuple):
    """Outcomes of rows."""

    number: Ints  # (layer*S + s)*A + a
    next_state: Ints
    probability: Floats
    reward: Floats


class PairOutcomes(NamedTuple):
    """Outcomes of pairs."""

    pair: Ints  # s*A + a
    next_state: Ints
    probability: Floats  # [layers, O]
    reward: Floats


class Fault(NamedTuple):
    """What is wrong with what the user's function yields."""

    kind: type[InvalidInput]
    got: str
    expected: str

    def error(self, state: Hashable, action: Hashable, point: Point) -> InvalidInput:
        """Return the error, which says where it is."""
        values = ", ".join(f"{name}={value:g}" for name, value in point.items())
        where = f"at state {state!r}, action {action!r}, {values}"
        return self.kind("outcomes", got=f"{self.got} {where}", expected=self.expected)


def _towards(value: float, middle: float) -> float:
    """Return a value with three digits that count, rounded towards another one."""
    if not value:
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    steps = value / unit
    near = 1e-6  # what bisection may be off by
    return unit * (math.ceil(steps - near) if middle > value else math.floor(steps + near))


def _fault_of_law(rows: list[Row]) -> Fault | None:
    """Return what is wrong with all that may happen at a pair; None if nothing is."""
    total = 0.0
    for row in rows:
        fault = _fault_of(row)
        if fault is not None:
            return fault
        total += float(row[0])
    if abs(total - 1.0) <= TOLERANCE:
        return None
    got = f"probabilities that sum to {total:.12g}"
    return Fault(ProbabilityError, got, "a sum of 1: list everything that can happen")


def _fault_of(row: Row) -> Fault | None:
    """Return what is wrong with an outcome; None if nothing is."""
    if len(row) not in (3, 4):
        return Fault(ParameterError, f"{row!r:.80}", _ENTRY)
    probability, _, reward, *ended = row
    number = isinstance(probability, (int, float, np.number))
    if not number or not -_ROUNDING <= probability <= 1.0 + TOLERANCE:
        return Fault(ProbabilityError, f"a probability of {probability!r}", "a number in [0, 1]")
    if not isinstance(reward, (int, float, np.number)) or not math.isfinite(reward):
        return Fault(RewardError, f"a reward of {reward!r}", "a finite number")
    if ended and not isinstance(ended[0], (bool, np.bool_)):
        expected = "True or False, as the last of four"
        return Fault(ParameterError, f"ended = {ended[0]!r}", expected)
    return None


def _law_of(start: Any) -> Mapping[Hashable, float]:
    """Return the law of the first state."""
    expected = "a hashable state, or a law {state: probability}"
    try:
        law = start if isinstance(start, Mapping) else {start: 1.0}
    except TypeError:
        raise ParameterError("start", got=f"{start!r:.80}", expected=expected) from None
    if not law:
        raise ProbabilityError("start", got="an empty law", expected=expected)
    return law


def _require_fixed_rewards(
    state: Hashable, action: Hashable, rewards: list[dict[int, set[float]]]
) -> None:
    """Refuse rewards that depend on parameters: an outcome is a next state and a reward."""
    first = rewards[0]
    for other in rewards[1:]:
        for next_state in first.keys() & other.keys():
            one = first[next_state] - other[next_state]
            two = other[next_state] - first[next_state]
            if one and two:
                where = f"at state {state!r}, action {action!r}, under two parameters"
                raise RewardError(
                    "outcomes",
                    got=f"{min(one):g} and {min(two):g} {where}",
                    expected="rewards that depend on state, action and outcome alone; "
                    "average what is uncertain",
                )


class ParametricLadder:
    """Classes of models with real parameters: some ``free`` in each, the others at defaults.

    They are in the user's order, and nested if each frees the parameters of the one before it.
    """

    finite = False
    kind = "real parameters"
    draws = 0  # probabilities are computed, not estimated from draws
    classes: int  # the number M of classes
    sizes: list[int]  # how many parameters are free in each

    def __init__(self, model: Model, classes: Mapping[str, Sequence[str]]) -> None:
        if not isinstance(classes, Mapping) or not classes:
            raise ParameterError(
                "classes",
                got=f"{classes!r:.80}",
                expected='a dict such as {"steady": ["mean"], "erratic": ["mean", "spread"]}',
            )
        for name, free in classes.items():
            if isinstance(free, str) or not isinstance(free, Sequence):
                raise ParameterError(
                    f"classes[{name!r}]", got=repr(free), expected="a list of names of parameters"
                )
        self.model = model
        self.names = tuple(map(str, classes))
        self.free = [tuple(free) for free in classes.values()]
        self.classes = len(self.names)
        self.sizes = [len(free) for free in self.free]
        for name, free in zip(self.names, self.free, strict=True):
            self._require_free(name, free)
        for (m, earlier), (n, later) in itertools.combinations(enumerate(self.free, start=1), 2):
            if set(later) <= set(earlier):
                raise ParameterError(
                    "classes",
                    index=(m, n),
                    got=f"{list(earlier)} before {list(later)}",
                    expected="each class to free a parameter that an earlier one does not: "
                    "from simple to rich",
                )

    def _require_free(self, name: str, free: tuple[str, ...]) -> None:
        """Refuse a class with unknown parameters, or without those that have no default."""
        field = f"classes[{name!r}]"
        for parameter in free:
            if parameter not in self.model.box:
                raise UnknownName(field, got=parameter, known=self.model.box)
        for parameter in self.model.box:
            if parameter not in free and parameter not in self.model.defaults:
                raise ParameterError(
                    field, got=list(free), expected=f"{parameter!r} too, which has no default"
                )

    @cached_property
    def contains(self) -> Bools:
        """Which classes contain which [M, M]: those that free at least their parameters."""
        contains = np.zeros((self.classes, self.classes), bool)
        for m, free in enumerate(self.free):
            contains[m] = [set(other) <= set(free) for other in self.free]
        return contains

    @property
    def nested(self) -> bool:
        """Whether every class contains the one before it."""
        return bool(np.diagonal(self.contains, offset=-1).all())

    @property
    def by_step(self) -> bool:
        """Whether the chances of the model depend on the step."""
        return self.model.by_step

    @property
    def box(self) -> Mapping[str, tuple[float, float]]:
        """The bounds of the parameters, by name."""
        return self.model.box

    def evidence(self, known: Known, delta: float) -> Evidence:
        """Return what weighs the classes on a problem: the likelihood."""
        return _parametric_evidence(self, known, delta)

    def only(self, m: int) -> ParametricLadder:
        """Return the ladder of class m alone."""
        require_integer("m", m, 1, maximum=self.classes)
        return ParametricLadder(self.model, {self.names[m - 1]: self.free[m - 1]})

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model and the classes."""
        classes = f"{self.model.fingerprint} {self.names} {self.free}"
        return hashlib.sha256(classes.encode()).hexdigest()

    def class_of(self, mdp: object) -> int | None:
        """Return the first class that contains a problem's kernel; None if none does."""
        target = self.model.probability_of(as_mdp(mdp))
        if target is None:
            return None
        for m, free in enumerate(self.free, start=1):
            if self._contains(free, target):
                return m
        return None

    def _contains(self, free: tuple[str, ...], target: Floats) -> bool:
        """Return whether free parameters can give these probabilities [O], by least squares."""
        from scipy.optimize import least_squares  # slow to import, and seldom needed

        low, high = bounds_of([self.model.box[name] for name in free])

        def gap(values: Floats) -> Floats:
            point = {**self.model.defaults, **dict(zip(free, values.tolist(), strict=True))}
            return self.model.probability(point) - target

        for share in spread_points(len(free), 4):  # least squares may end in a local minimum
            values = low + share * (high - low)
            if free:
                values = least_squares(
                    gap,
                    values,
                    bounds=(low, high),
                    x_scale=high - low,
                    xtol=1e-15,
                    ftol=1e-15,
                    gtol=1e-15,
                    method="dogbox",
                ).x
            if np.abs(gap(values)).max() <= _SAME:
                return True
        return False

    def __repr__(self) -> str:
        pairs = zip(self.names, self.free, strict=True)
        classes = [f"{name} ({', '.join(free)})" for name, free in pairs]
        return f"ParametricLadder({' < '.join(classes)})"


@lru_cache(maxsize=32)
def _parametric_evidence(ladder: ParametricLadder, known: Known, delta: float) -> Evidence:
    """Return the evidence for a ladder on a problem; it remembers probabilities, and is kept."""
    from occamrl.evidence.parametric import ParametricEvidence  # which knows models

    return ParametricEvidence(ladder, known, delta)

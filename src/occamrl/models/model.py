r"""A model as its user would write it down: a function of what can happen, with parameters that are fitted.

::

    def shop(stock, order, *, mean, empty=0.0):
        for demand, probability in demand_law(mean, empty):
            yield probability, next_stock, reward, False  # Gymnasium's order; at the end, whether
            the episode is over

States and actions are any hashable things. Rewards belong to outcomes, in the user's unit: two
outcomes with the same next state and another reward are two outcomes. A *class* of models is a set
of parameters that are free in a box, the others having the defaults of the function; classes are
nested as these sets are.

**The listing.** States and outcomes are those that can be reached from the start at the corners of
the box and at some points inside it. It is made once, so that an outcome has one number for all
parameters. What a model does beyond its listing, and whatever else is seen, leads to one more
state, ``ELSEWHERE``, in which an episode rests.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
from scipy.optimize import least_squares

from occamrl.errors import (
    ParameterError,
    ProbabilityError,
    RewardError,
    UnknownName,
    require_integer,
    require_number,
    require_range,
)
from occamrl.models.families import FiniteFamily
from occamrl.naming import Names
from occamrl.problems.mdp import TOLERANCE, FiniteMDP, Listing, as_mdp
from occamrl.protocols import Evidence, Floats, Ints, Known, Outcomes, RewardMap

ELSEWHERE = "(not listed)"
MOST_STATES = 100_000
_INSIDE = 6  # points inside the box that are looked at, beside its corners
_MOST_CORNERS = 16
_ROUNDING = 1e-12  # probabilities that are negative by less are 0
_SAME = 1e-7  # probabilities that differ by less are equal
_TRIAL = 500  # pairs after which only points are looked at that have added an outcome
_SAMPLED = 10  # of the pairs after these, every so many-th is looked at under other parameters too
_COMPARED = 100  # pairs whose probabilities are compared if an array gives them

Point = Mapping[str, float]


def spread_points(dimensions: int, count: int) -> list[Floats]:
    """Return points that spread over the unit box: its middle, then Kronecker's sequence."""
    steps = np.arange(1, count)[:, None] / 1.32471795724474602596 ** np.arange(1, dimensions + 1)
    return [np.full(dimensions, 0.5), *np.mod(steps, 1.0)]


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
        unit and do not depend on parameters.
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
        large models.
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
        self.function, self.vectorised, self._actions = outcomes, probabilities, actions
        self.horizon = require_integer("horizon", horizon, 1)
        self.discount = require_number("discount", discount, 0.0, 1.0, open_low=True)
        self.continuing, self._most_states = (
            bool(continuing),
            require_integer("most_states", most_states, 1),
        )
        self.box, self.defaults = self._read_parameters(parameters or {})
        try:
            law = start if isinstance(start, Mapping) else {start: 1.0}
        except TypeError:
            expected = "a hashable state, or a law {state: probability}"
            raise ParameterError("start", got=f"{start!r:.80}", expected=expected) from None
        if not law:
            raise ProbabilityError(
                "start", got="an empty law", expected="a state, or a law {state: probability}"
            )
        self._list(law)
        self._arrange(law, reward_range, unit)
        self._require_same_law()

    def __repr__(self) -> str:
        sizes = f"{len(self.pairs):,} pairs of a state and an action, {self.reward.size:,} outcomes"
        return f"Model({getattr(self.function, '__name__', 'outcomes')}, {sizes}, horizon={self.horizon})"

    # What the user hands in -----------------------------------------------------------------------

    def _read_parameters(
        self, given: Mapping[str, Sequence[float]]
    ) -> tuple[dict[str, tuple[float, float]], Point]:
        """Return the bounds, and the defaults of the function."""
        if not callable(self.function):
            expected = "a function of (state, action, *, parameters...)"
            raise ParameterError("outcomes", got=f"{self.function!r:.80}", expected=expected)
        own = list(inspect.signature(self.function).parameters.values())
        named = {
            each.name: each
            for each in own[2:]
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        }
        if len(own) < 2:
            raise ParameterError(
                "outcomes",
                got=f"a function of {len(own)} arguments",
                expected="(state, action, ...)",
            )
        if not isinstance(given, Mapping):
            raise ParameterError(
                "parameters", got=f"{given!r:.80}", expected="a dict: {name: (low, high)}"
            )
        box, defaults = {}, {}
        for name, ends in given.items():
            if name not in named:
                raise UnknownName("parameters", got=name, known=named)
            box[name] = require_range(f"parameters[{name!r}]", ends)
        for name, each in named.items():
            if each.default is each.empty:
                if name not in box:
                    raise ParameterError(
                        f"parameters[{name!r}]", got="nothing", expected="(low, high), or a default"
                    )
            elif name in box or isinstance(
                each.default, numbers.Real
            ):  # a table of prices is the function's own
                low, high = box.get(name, (-math.inf, math.inf))
                defaults[name] = require_number(name, each.default, -math.inf, math.inf)
                if not low <= defaults[name] <= high:
                    expected = f"bounds that contain its default {defaults[name]:g}, which smaller classes use"
                    raise ParameterError(
                        f"parameters[{name!r}]", got=(low, high), expected=expected
                    )
        return box, defaults

    def point(self, **values: float) -> dict[str, float]:
        """Return a value for every parameter: as given, or the default."""
        for name, value in values.items():
            if name not in self.box and name not in self.defaults:
                raise UnknownName("parameters", got=name, known=list({**self.box, **self.defaults}))
            low, high = self.box.get(name, (-math.inf, math.inf))
            require_number(name, value, low, high)
        for name in self.box:
            if name not in values and name not in self.defaults:
                raise ParameterError(
                    name, got="nothing", expected=f"a number in {list(self.box[name])}"
                )
        return {**self.defaults, **{name: float(value) for name, value in values.items()}}

    def _points(self) -> list[dict[str, float]]:
        """Return the points of the box at which outcomes are listed: the middle, points inside, corners."""
        low, high = (np.array([ends[side] for ends in self.box.values()]) for side in (0, 1))
        corners = itertools.islice(itertools.product((0.0, 1.0), repeat=low.size), _MOST_CORNERS)
        every = [
            low + np.array(share) * (high - low)
            for share in (*spread_points(low.size, _INSIDE), *corners, np.ones(low.size))
        ]
        return [
            {**self.defaults, **dict(zip(self.box, each.tolist(), strict=True))} for each in every
        ]

    def _allowed_in(self, state: Any) -> list[Any]:
        try:
            given = self._actions(state) if callable(self._actions) else self._actions
        except Exception as error:  # whatever the user's function raises
            got = f"{type(error).__name__}: {error} in state {state!r}"
            raise ParameterError(
                "actions", got=got, expected="the actions that are allowed there"
            ) from error
        try:
            found = list(given)
            fine = 0 < len(set(found)) == len(found)
        except TypeError:
            fine = False
        if not fine:
            got = f"{given!r:.80}" + f" in state {state!r}" * callable(self._actions)
            raise ParameterError(
                "actions", got=got, expected="different hashable actions, at least one"
            )
        return found

    def rows(self, state: Any, action: Any, point: Point) -> list[tuple[Any, ...]]:
        """Return what the function yields, as a list of tuples; refuse what is not a law of outcomes."""
        where = f"at state {state!r}, action {action!r}, {', '.join(f'{k}={v:g}' for k, v in point.items())}"
        entry = "(probability, next state, reward, ended)"

        def refuse(kind: Any, got: str, expected: str, cause: Exception | None = None) -> NoReturn:
            raise kind("outcomes", got=f"{got} {where}", expected=expected) from cause

        try:
            found = [tuple(row) for row in self.function(state, action, **point)]
        except Exception as error:  # whatever the user's function raises
            refuse(ParameterError, f"{type(error).__name__}: {error}", f"tuples {entry}", error)
        total = 0.0
        for row in found:
            if len(row) not in (3, 4):
                refuse(ParameterError, f"{row!r:.80}", entry)
            numbers = [isinstance(each, (int, float, np.number)) for each in (row[0], row[2])]
            if not numbers[0] or not -_ROUNDING <= row[0] <= 1.0 + TOLERANCE:
                refuse(ProbabilityError, f"a probability of {row[0]!r}", "a number in [0, 1]")
            if not numbers[1] or not math.isfinite(row[2]):
                refuse(RewardError, f"a reward of {row[2]!r}", "a finite number")
            if len(row) == 4 and not isinstance(row[3], (bool, np.bool_)):
                refuse(ParameterError, f"ended = {row[3]!r}", "True or False, as the last of four")
            total += float(row[0])
        if abs(total - 1.0) > TOLERANCE:
            sums = f"probabilities that sum to {total:.12g}"
            refuse(ProbabilityError, sums, "a sum of 1: list everything that can happen")
        return found

    # The listing ----------------------------------------------------------------------------------

    def _list(self, law: Mapping[Any, float]) -> None:
        """Find the states and outcomes that can be reached, breadth first."""
        self.states: list[Any] = []
        self.absorbing: list[bool] = []  # whether nothing more happens there
        self._number: dict[Any, int] = {}
        self.actions: list[Any] = [] if callable(self._actions) else self._allowed_in(None)
        self.pairs: list[
            tuple[int, int]
        ] = []  # (state, action) that are allowed, in order of discovery
        self._places: list[
            dict[Any, int]
        ] = []  # of each pair: the outcome of what the function yields
        listed: list[tuple[int, int, float]] = []  # outcomes: pair, next state, reward
        points, useful = self._points(), set[int]()
        for state in law:
            self._number_of(state, False)
        for s, state in enumerate(self.states):  # which grow meanwhile
            for action in [] if self.absorbing[s] else self._allowed_in(state):
                if action not in self.actions:
                    self.actions.append(action)
                own: dict[tuple[int, float], int] = {}
                places: dict[Any, int] = {}
                rewards: list[dict[int, set[float]]] = []
                for i, point in enumerate(points):
                    looked = (
                        i == 1 and len(self.pairs) % _SAMPLED == 0
                    )  # whether rewards are the same there
                    if len(self.pairs) >= _TRIAL and i and i not in useful and not looked:
                        continue
                    found: dict[int, set[float]] = {}
                    for row in self.rows(state, action, point):
                        if row[0] <= 0.0:
                            continue
                        after, earned = (
                            self._number_of(row[1], len(row) == 4 and bool(row[3])),
                            float(row[2]),
                        )
                        found.setdefault(after, set()).add(earned)
                        if (after, earned) not in own:
                            own[after, earned] = len(listed)
                            listed.append((len(self.pairs), after, earned))
                            useful.add(i)
                        places[row[1:]] = own[after, earned]
                    rewards.append(found)
                self._require_fixed_rewards(state, action, rewards)
                self.pairs.append((s, self.actions.index(action)))
                self._places.append(places)
        self._listed = listed

    def _number_of(self, state: Any, rests: bool) -> int:
        """Return the number of a state, a new one if it has none."""
        try:
            known = self._number.get((state, rests))
        except TypeError:
            expected = "a hashable state: a number, a string, or a tuple of these"
            raise ParameterError(
                "state", got=f"{type(state).__name__} {state!r:.80}", expected=expected
            ) from None
        if known is None:
            known = self._number[state, rests] = len(self.states)
            if known >= self._most_states:
                some = ", ".join(f"{each!r:.30}" for each in [*self.states[:3], *self.states[-3:]])
                expected = f"at most {self._most_states:,}; bound what the function can reach, or set most_states="
                raise ParameterError(
                    "outcomes", got=f"more than {known:,} states: {some}", expected=expected
                )
            self.states.append(state)
            self.absorbing.append(rests)
        return known

    def _require_fixed_rewards(
        self, state: Any, action: Any, rewards: list[dict[int, set[float]]]
    ) -> None:
        """Refuse rewards that depend on parameters: an outcome is a next state and a reward."""
        for other in rewards[1:]:
            for after in rewards[0].keys() & other.keys():
                one, two = rewards[0][after] - other[after], other[after] - rewards[0][after]
                if one and two:
                    got = f"{min(one):g} and {min(two):g} at state {state!r}, action {action!r}, under two parameters"
                    expected = "rewards that depend on state, action and outcome alone; average what is uncertain"
                    raise RewardError("outcomes", got=got, expected=expected)

    def _arrange(
        self, law: Mapping[Any, float], reward_range: Sequence[float] | None, unit: str
    ) -> None:
        """Put the outcomes in the order of s*A + a, next state and reward, and build what all members share."""
        self.elsewhere, A = len(self.states), len(self.actions)
        self.states.append(ELSEWHERE)
        self.absorbing.append(True)
        at = np.array([s * A + a for s, a in self.pairs], dtype=np.int64)
        sort = np.argsort(at)
        rank = np.argsort(sort)  # rows of pairs are in the order of s*A + a
        given, after, reward = (np.array(column) for column in zip(*self._listed, strict=True))
        order = np.lexsort((reward, after, rank[given]))
        place = np.argsort(order)
        self.row, self.next_state, self.reward = rank[given][order], after[order], reward[order]
        self._places = [{key: int(place[o]) for key, o in self._places[i].items()} for i in sort]
        self.pairs = [self.pairs[i] for i in sort]
        self._at, self._row_of = (
            at[sort],
            np.full(len(self.states) * A, -1),
        )  # s*A + a of each pair, and back
        self._row_of[self._at] = np.arange(at.size)
        low, high = float(self.reward.min()), float(self.reward.max())
        if any(self.absorbing[:-1]):
            low, high = min(low, 0.0), max(high, 0.0)  # what is earned at rest
        if reward_range is not None:
            stated = require_range("reward_range", reward_range)
            if low < stated[0] or high > stated[1]:
                raise RewardError(
                    "reward_range",
                    got=stated,
                    expected=f"bounds of all rewards, {low:g} to {high:g}",
                )
            low, high = stated
        self.unit, self.unit_name = RewardMap(low, high if high > low else low + 1.0), unit
        self.initial = np.zeros(len(self.states))
        for state, share in law.items():
            self.initial[self._number[state, False]] = require_number(
                f"start[{state!r}]", share, 0.0, 1.0
            )
        if abs(self.initial.sum() - 1.0) > TOLERANCE:
            raise ProbabilityError(
                "start", got=f"a law that sums to {self.initial.sum():g}", expected="a sum of 1"
            )
        both = zip(self.states, self.absorbing, strict=True)
        named = (
            f"{state} (end)" if rests and (state, False) in self._number else state
            for state, rests in both
        )
        self.names = Names(tuple(named), tuple(self.actions), tuple(self.absorbing))
        if len(set(self.names.states)) < len(self.states):
            twice = next(name for name in self.names.states if self.names.states.count(name) > 1)
            expected = (
                "another name: this one is taken by the end of an episode, or by what is not listed"
            )
            raise ParameterError("state", got=repr(twice), expected=expected)

    @cached_property
    def layout(self) -> Outcomes:
        """The outcomes of all pairs s*A + a, allowed or not, with what is earned at rest; as a problem lists them."""
        mdp = self.mdp_at(np.full(self.reward.size, 1.0) / np.bincount(self.row)[self.row])
        return mdp.known.transition_rewards or mdp.outcomes

    def _require_same_law(self) -> None:
        """Refuse ``probabilities`` that are not those of ``outcomes``, at some pairs and points."""
        if self.vectorised is None:
            return
        some = np.unique(np.linspace(0, len(self.pairs) - 1, _COMPARED).astype(int)).tolist()
        inside = np.isin(self.row, some)
        for point in self._points()[:2]:
            one, two = self._at_once(point, some), self._one_by_one(point, some)
            for o in np.flatnonzero(inside & ~(np.abs(one - two) <= _SAME))[:1].tolist():
                s, a = self.pairs[self.row[o]]
                got = f"{one[o]:g} at state {self.states[s]!r}, action {self.actions[a]!r}"
                at = ", ".join(f"{name}={each:g}" for name, each in point.items())
                after = self.states[self.next_state[o]]
                expected = f"{two[o]:g}, as outcomes(...) has it for next state {after!r}, {at}"
                raise ProbabilityError("probabilities", got=got, expected=expected)

    def row_of(self, state: Ints, action: Ints) -> Ints:
        """Return the numbers of some pairs of a state and an action; -1 at rest."""
        return np.asarray(self._row_of[state * len(self.actions) + action])

    # Members --------------------------------------------------------------------------------------

    def probability(self, point: Point, rows: Any = None) -> Floats:
        """Return the probability of every outcome [O] at a point, of some pairs only (their numbers) or of all."""
        return np.clip(self._as_given(point, rows), 0.0, 1.0)  # 1 - 0.9 - 0.1

    def _as_given(self, point: Point, rows: Any = None) -> Floats:
        """Return what the user's function says, with its rounding."""
        which = range(len(self.pairs)) if rows is None else rows
        return (
            self._one_by_one(point, which)
            if self.vectorised is None
            else self._at_once(point, which)
        )

    def _one_by_one(self, point: Point, which: Any) -> Floats:
        """Return the same from a call for each pair."""
        found, function, states, actions = (
            np.zeros(self.reward.size),
            self.function,
            self.states,
            self.actions,
        )
        for row in which:
            (s, a), places = self.pairs[row], self._places[row]
            for each in function(states[s], actions[a], **point):
                place = places.get(tuple(each[1:]), -1)
                if place >= 0:
                    found[place] += each[0]
        return found

    def _at_once(self, point: Point, rows: Any) -> Floats:
        """Return the same from the user's array of probabilities."""
        found = np.zeros(self.reward.size)
        if not len(rows):
            return found
        pairs = [(self.states[s], self.actions[a]) for s, a in (self.pairs[row] for row in rows)]
        place = np.concatenate([self._sequences[row] for row in rows])
        given = np.asarray(self.vectorised(pairs, **point), dtype=np.float64)  # type: ignore[misc]  # is not None here
        if given.shape != place.shape:
            expected = f"{place.size:,} numbers: what outcomes(...) yields for each pair in turn"
            raise ProbabilityError("probabilities", got=f"shape {given.shape}", expected=expected)
        np.add.at(found, place[place >= 0], given[place >= 0])
        return found

    @cached_property
    def _sequences(self) -> list[Ints]:
        """The outcomes of each pair in the order in which the function yields them."""
        point, found = self._points()[0], []
        for (s, a), places in zip(self.pairs, self._places, strict=True):
            rows = self.rows(self.states[s], self.actions[a], point)
            found.append(np.array([places.get(row[1:], -1) for row in rows]))
        return found

    def checked_probability(self, point: Point) -> Floats:
        """Return the probability of every outcome at a point that a user named; refuse what is not a law."""
        found = self._as_given(point)
        total = np.bincount(self.row, found, len(self.pairs))
        fine = np.isfinite(total) & (total <= 1.0 + TOLERANCE)
        fine[self.row[found < -_ROUNDING]] = False
        for row in np.flatnonzero(~fine)[:1]:
            s, a = self.pairs[row]
            self.rows(self.states[s], self.actions[a], point)  # says what is wrong
            got = f"a sum of {total[row]:.12g} at state {self.states[s]!r}, action {self.actions[a]!r}"
            raise ProbabilityError("probabilities", got=got, expected="what outcomes(...) yields")
        return np.clip(found, 0.0, 1.0)

    def mdp_at(
        self, probability: Floats, row: Any = None, next_state: Any = None, reward: Any = None
    ) -> FiniteMDP:
        """Return the problem with these probabilities, of the outcomes or of others; the rest leads elsewhere."""
        if row is None:
            row, next_state, reward = self.row, self.next_state, self.reward
        at, A, rest = self._at, len(self.actions), np.flatnonzero(self.absorbing)
        missing = 1.0 - np.bincount(row, probability, at.size)
        lost = np.flatnonzero(missing > TOLERANCE)
        stay = (rest[:, None] * A + np.arange(A)).ravel()
        unearned = np.full(lost.size, min(max(0.0, self.unit.low), self.unit.high))
        listing = Listing(
            states=len(self.states),
            actions=A,
            pair=np.concatenate([at[row], at[lost], stay]),
            next_state=np.concatenate([next_state, np.full(lost.size, self.elsewhere), stay // A]),
            probability=np.concatenate([probability, missing[lost], np.ones(stay.size)])[None],
            reward=np.concatenate([reward, unearned, np.zeros(stay.size)]),
        )
        shared = ("horizon", "initial", "unit", "unit_name", "names", "discount", "continuing")
        return FiniteMDP.of_listing(listing, **{name: getattr(self, name) for name in shared})

    def mdp(self, **parameters: float) -> FiniteMDP:
        """Return the problem at these parameters; the others keep their defaults."""
        return self.mdp_at(self.checked_probability(self.point(**parameters)))

    @cached_property
    def known(self) -> Known:
        """What an agent may know of the system: everything but the parameters."""
        return self.mdp_at(self.checked_probability(self._points()[0])).known

    def family(self, values: Mapping[str, Sequence[float]]) -> FiniteFamily:
        """Return the list of the models at every combination of some values of parameters."""
        for name, each in values.items():
            if isinstance(each, str) or not isinstance(each, Iterable):
                raise ParameterError(name, got=repr(each), expected="a list of values")
        combinations = itertools.product(*values.values())
        return FiniteFamily(
            [self.mdp(**dict(zip(values, each, strict=True))) for each in combinations]
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what the model says at the points that were looked at: equal for equal models, in any process."""
        about = (
            self.names,
            self.box,
            self.defaults,
            self.horizon,
            self.discount,
            self.continuing,
            tuple(self.unit),
        )
        digest = hashlib.sha256(repr(about).encode())
        for array in (self.row, self.next_state, self.reward, self.initial):
            digest.update(np.ascontiguousarray(array).data)
        for point in self._points()[: 1 + len(self.box)]:
            digest.update(self.probability(point).data)
        return digest.hexdigest()

    def probability_of(self, mdp: FiniteMDP) -> Floats | None:
        """Return the probabilities of the outcomes [O] in another problem; None if it has others."""
        same = mdp.stationary and (mdp.states, mdp.actions) == (len(self.states), len(self.actions))
        if not same or (mdp.known.names or self.names) != self.names:
            return None
        start = np.searchsorted(self.row, np.arange(len(self.pairs) + 1))
        row, earned = (
            self._row_of[mdp.outcomes.pair],
            mdp.base_reward[mdp.outcomes.pair] + mdp.outcomes.bonus,
        )
        known = np.flatnonzero((row >= 0) & (mdp.outcomes.next_state != self.elsewhere))
        listed, asked = (
            Outcomes(start, self.next_state, self.unit.to_unit(self.reward)),
            earned[known],
        )
        place = listed.index_of(row[known], mdp.outcomes.next_state[known], asked, mdp.states)
        if (place < 0).any() or (np.abs(listed.bonus[place] - asked) > TOLERANCE).any():
            return None
        return np.bincount(place, mdp.probability[0, known], self.reward.size).astype(np.float64)

    def ladder(self, classes: Mapping[str, Sequence[str]]) -> ParametricLadder:
        """Return nested classes: by name, the parameters that are free in each."""
        return ParametricLadder(self, classes)


class ParametricLadder:
    """Nested classes of models with real parameters: class m has the parameters ``free[m - 1]``, others defaults."""

    finite = False
    classes: int  # the number M of classes
    sizes: list[int]  # how many parameters are free in each

    def __init__(self, model: Model, classes: Mapping[str, Sequence[str]]) -> None:
        if not isinstance(classes, Mapping) or not classes:
            expected = 'a dict such as {"steady": ["mean"], "with empty days": ["mean", "empty"]}'
            raise ParameterError("classes", got=f"{classes!r:.80}", expected=expected)
        for name, each in classes.items():
            if isinstance(each, str) or not isinstance(each, Sequence):
                raise ParameterError(
                    f"classes[{name!r}]", got=repr(each), expected="a list of names of parameters"
                )
        self.model, self.names, self.free = (
            model,
            tuple(map(str, classes)),
            [tuple(free) for free in classes.values()],
        )
        self.classes, self.sizes = len(self.names), [len(free) for free in self.free]
        for name, free in zip(self.names, self.free, strict=True):
            for each in free:
                if each not in model.box:
                    raise UnknownName(f"classes[{name!r}]", got=each, known=model.box)
            for each in model.box:
                if each not in free and each not in model.defaults:
                    expected = f"{each!r} too, which has no default"
                    raise ParameterError(f"classes[{name!r}]", got=list(free), expected=expected)
        for m, (one, two) in enumerate(itertools.pairwise(self.free), start=1):
            if not set(one) < set(two):
                got = f"{list(one)} before {list(two)}"
                expected = (
                    "each class to free the parameters of the one before it, and at least one more"
                )
                raise ParameterError("classes", index=(m, m + 1), got=got, expected=expected)

    kind = "real parameters"
    draws = 0  # probabilities are computed, not estimated from draws

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
        return hashlib.sha256(
            f"{self.model.fingerprint} {self.names} {self.free}".encode()
        ).hexdigest()

    def class_of(self, mdp: Any) -> int | None:
        """Return the first class that contains a problem's kernel, by least squares; None if none does."""
        model = self.model
        target = model.probability_of(as_mdp(mdp))
        if target is None:
            return None
        for m, free in enumerate(self.free, start=1):
            ends = [model.box[name] for name in free]

            def gap(
                values: Floats, free: tuple[str, ...] = free, target: Floats = target
            ) -> Floats:
                point = {**model.defaults, **dict(zip(free, values.tolist(), strict=True))}
                return model.probability(point) - target

            low, high = (np.array([end[side] for end in ends]) for side in (0, 1))
            for share in spread_points(len(free), 4):
                values = low + share * (high - low)
                if free:
                    precise: Any = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "method": "dogbox"}
                    values = least_squares(
                        gap, values, bounds=(low, high), x_scale=high - low, **precise
                    ).x
                if np.abs(gap(values)).max() <= _SAME:
                    return m
        return None

    def __repr__(self) -> str:
        listed = " < ".join(
            f"{name} ({', '.join(free)})" for name, free in zip(self.names, self.free, strict=True)
        )
        return f"ParametricLadder({listed})"


@lru_cache(maxsize=32)
def _parametric_evidence(ladder: ParametricLadder, known: Known, delta: float) -> Evidence:
    """Return the evidence for a ladder on a problem; it remembers probabilities, and is kept."""
    from occamrl.evidence.parametric import ParametricEvidence  # which knows models

    return ParametricEvidence(ladder, known, delta)

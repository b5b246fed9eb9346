"""An environment as a learner sees it: states, actions and steps are integers, rewards in [0, 1].

Discrete (with an offset), MultiDiscrete, MultiBinary, and Tuples and Dicts of these are counted in
mixed radix, the last part running fastest. A Box is finite only through a :class:`Discretiser`.

Termination leads to a state where nothing more is earned: the environment's own if the model has
the end there, otherwise one that is added, the last. Known rewards are held against what is known
of them; others have to lie in the stated range. Where the environment exposes its transition law,
regret is exact, and what the law excludes is refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces, wrappers
from gymnasium.vector import VectorEnv

from occamrl.envs import ProblemEnv
from occamrl.envs.lanes import Environment, Point, Response, act, lanes_of
from occamrl.errors import (
    EnvironmentFault,
    ParameterError,
    ShapeError,
    SpaceError,
    TableError,
    require_integer,
    require_kind,
)
from occamrl.problems.lakes import mdp_from_env, require_harmless_wrappers
from occamrl.problems.mdp import FiniteMDP, RewardMap, reward_map
from occamrl.protocols import UNIT, Floats, Known, Outcomes

LARGEST = 2**31  # states or actions
# How far a reward may be from the known one, in the learner's unit: it may come in 32 bits.
ROUNDING = 1e-6
_RANDOM = "; for random rewards, use RewardsPerPair(agent=...) and known=Known.of_sizes(...)"
_ONE_MORE = "`known` with one state more, for the end of an episode"


# Spaces -------------------------------------------------------------------------------------------


class Codec(ABC):
    """How the points of a space are numbered: a point has digits, the last running fastest."""

    radix: tuple[int, ...]  # how many values each digit has

    @abstractmethod
    def digits(self, value: Point) -> Sequence[int]:
        """Return the digits of a point.

        Whatever is not in the space is a TypeError, ValueError or LookupError.
        """

    @abstractmethod
    def point(self, digits: Sequence[int]) -> Point:
        """Return the point of some digits, as the environment wants it (of a cell: its middle)."""

    @property
    def size(self) -> int:
        """The number n of points (or cells)."""
        return math.prod(self.radix)

    def encode(self, value: Point) -> int:
        """Return the number of a point; SpaceError if it is not in the space."""
        try:
            return int(np.ravel_multi_index(tuple(self.digits(value)), self.radix))
        except (TypeError, ValueError, LookupError):
            raise SpaceError(
                "observation", got=f"{value!r:.80}", expected=f"a point of {self!s:.200}"
            ) from None

    def decode(self, index: int) -> Point:
        """Return the point of a number."""
        return self.point([int(digit) for digit in np.unravel_index(index, self.radix)])


@dataclass(frozen=True)
class Integers(Codec):
    """Discrete, MultiDiscrete and MultiBinary: an integer, or an array of them.

    Each has its own start and count.
    """

    radix: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...] = ()  # of an integer

    def digits(self, value: Point) -> Sequence[int]:
        """Return the entries, counted from their starts."""
        array = np.asarray(value)
        if array.dtype.kind not in ("biu" if self.shape else "iu"):
            raise TypeError("other kinds of numbers")
        if array.shape != self.shape:
            raise ValueError("another shape")
        return [int(entry) - start for entry, start in zip(array.ravel(), self.starts, strict=True)]

    def point(self, digits: Sequence[int]) -> Point:
        """Return the integer or the array."""
        entries = [digit + start for digit, start in zip(digits, self.starts, strict=True)]
        if not self.shape:
            return entries[0]
        return np.array(entries).reshape(self.shape)

    def __str__(self) -> str:
        ranges = []
        for start, count in zip(self.starts, self.radix, strict=True):
            ranges.append(f"{start} to {start + count - 1}")
        if not self.shape:
            return f"the integers from {ranges[0]}"
        return f"arrays of integers, from {', '.join(ranges)}"


@dataclass(frozen=True)
class Product(Codec):
    """Tuple and Dict: several parts; ``keys`` are those of a Dict, in its order."""

    parts: tuple[Codec, ...]
    keys: tuple[str, ...] | None = None

    @property
    def radix(self) -> tuple[int, ...]:  # type: ignore[override]  # derived
        """The sizes of the parts."""
        return tuple(part.size for part in self.parts)

    def digits(self, value: Point) -> Sequence[int]:
        """Return the parts' numbers."""
        if len(value) != len(self.parts):
            raise ValueError("other parts")
        values = value
        if self.keys is not None and not isinstance(value, tuple):
            values = [value[key] for key in self.keys]
        return [part.encode(entry) for part, entry in zip(self.parts, values, strict=True)]

    def point(self, digits: Sequence[int]) -> Point:
        """Return the tuple or dict of the parts."""
        values = [part.decode(digit) for part, digit in zip(self.parts, digits, strict=True)]
        if self.keys is None:
            return tuple(values)
        return dict(zip(self.keys, values, strict=True))


@dataclass(frozen=True)
class Discretiser(Codec):
    """A Box cut into cells between edges, in every dimension; the last one varies fastest.

    >>> import gymnasium as gym
    >>> import occamrl as orl
    >>> cells = orl.Discretiser.uniform(gym.spaces.Box(-1.0, 1.0, shape=(2,)), [10, 10])
    >>> cells.encode([0.05, -0.3]), cells.size
    (53, 100)

    Inside a cell all points are treated alike, which is exact if what follows depends on the cell
    alone.

    Parameters
    ----------
    edges : sequence of sequences of numbers
        For each dimension the m + 1 increasing edges of m cells. A point on an edge belongs to the
        cell above it, one on the last edge to the last cell. The first and last may be infinite.
    shape : tuple of int, optional
        Of the Box; by default one-dimensional.
    """

    edges: Sequence[Sequence[float]]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.edges)
        shape: tuple[int, ...] = (count,)
        if self.shape is not None:
            require_kind("shape", self.shape, (tuple, list))
            shape = tuple(require_integer("shape", n, 0) for n in self.shape)
        if count == 0 or math.prod(shape) != count:
            raise ParameterError(
                "edges", got=f"{count} dimensions", expected=f"those of shape {self.shape}"
            )
        for i, row in enumerate(self.edges):
            array = np.asarray(row)
            sound = array.dtype.kind in "biuf" and array.ndim == 1 and array.size >= 2
            if not sound or not (array[1:] > array[:-1]).all():  # false where not a number
                raise ParameterError(
                    "edges", index=(i,), got=row, expected="two or more increasing numbers"
                )
        edges = tuple(tuple(float(edge) for edge in row) for row in self.edges)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "shape", shape)

    @classmethod
    def uniform(cls, space: spaces.Space[Any], cells: int | Sequence[int]) -> Discretiser:
        """Return equal cells over a bounded Box, ``cells`` in each dimension."""
        if not isinstance(space, spaces.Box) or not np.isfinite([space.low, space.high]).all():
            raise SpaceError(
                "space",
                got=f"{space}, without bounds",
                expected="a Box with finite bounds, or Discretiser(edges) with your own",
            )
        size = space.low.size
        counts = [cells] * size if isinstance(cells, int) else list(cells)
        if len(counts) != size:
            got = f"{len(counts)} numbers"
            raise ParameterError("cells", got=got, expected=f"{size}, one per dimension")
        lows = space.low.astype(np.float64).ravel()
        highs = space.high.astype(np.float64).ravel()
        edges = []
        for low, high, count in zip(lows, highs, counts, strict=True):
            edges.append(np.linspace(low, high, require_integer("cells", count, 1) + 1).tolist())
        return cls(edges, shape=space.shape)

    @property
    def radix(self) -> tuple[int, ...]:  # type: ignore[override]  # derived
        """The number of cells in each dimension."""
        return tuple(len(row) - 1 for row in self.edges)

    def digits(self, value: Point) -> Sequence[int]:
        """Return the cell of a point, in every dimension."""
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError("other kinds of numbers")
        cells = []
        for x, row in zip(array.ravel().tolist(), self.edges, strict=True):
            if not row[0] <= x <= row[-1]:
                raise ValueError("outside")
            cells.append(int(np.searchsorted(row[1:-1], x, side="right")))
        return cells

    def point(self, digits: Sequence[int]) -> Point:
        """Return the middle of a cell (its finite edge, where the other is infinite)."""
        middle = []
        for row, digit in zip(self.edges, digits, strict=True):
            ends = [edge for edge in row[digit : digit + 2] if math.isfinite(edge)]
            middle.append(sum(ends) / max(len(ends), 1))
        return np.array(middle, dtype=np.float32).reshape(self.shape or ())


@dataclass(frozen=True)
class Renamed(Codec):
    """A space whose points are the names of a model's states or actions, numbered as there."""

    codec: Codec
    radix: tuple[int, ...]
    numbers: dict[int, int]  # by the point's own number

    def digits(self, value: Point) -> Sequence[int]:
        """Return the model's number."""
        return [self.numbers[self.codec.encode(value)]]

    def point(self, digits: Sequence[int]) -> Point:
        """Return the point that has the model's number."""
        points = {number: point for point, number in self.numbers.items()}
        return self.codec.decode(points[digits[0]])

    def __str__(self) -> str:
        return "those that your models list; allow it there"


def renamed(codec: Codec, names: Sequence[Hashable], absorbing: Sequence[bool]) -> Codec:
    """Return the codec of a model's names, if all of them are points of the space.

    Only states in which an episode rests need not be.
    """
    numbers = {}
    for i, name in enumerate(names):
        try:
            numbers[codec.encode(name)] = i
        except SpaceError:
            if not absorbing[i]:
                return codec
    size = len(names)
    if absorbing[-1]:
        size -= 1
    return Renamed(codec, (size,), numbers)


def codec_of(space: spaces.Space[Any], discretiser: Discretiser | None = None) -> Codec:
    """Return how the points of a space are numbered; SpaceError if it is not finite."""
    if discretiser is not None:
        require_kind("discretiser", discretiser, Discretiser)
        if not isinstance(space, spaces.Box) or space.shape != discretiser.shape:
            raise SpaceError(
                "discretiser",
                got=f"one for {space}",
                expected=f"only a Box of shape {discretiser.shape}",
            )
        return discretiser
    codec: Codec
    match space:
        case spaces.Discrete():
            codec = Integers((int(space.n),), (int(space.start),))
        case spaces.MultiDiscrete():
            counts = tuple(space.nvec.ravel().tolist())
            codec = Integers(counts, tuple(space.start.ravel().tolist()), space.nvec.shape)
        case spaces.MultiBinary():
            entries = math.prod(space.shape)
            codec = Integers((2,) * entries, (0,) * entries, space.shape)
        case spaces.Tuple():
            codec = Product(tuple(codec_of(part) for part in space.spaces))
        case spaces.Dict():
            parts = tuple(codec_of(part) for part in space.spaces.values())
            codec = Product(parts, tuple(space.spaces))
        case _:
            expected = (
                "Discrete, MultiDiscrete, MultiBinary, a Tuple or Dict of them; a Box needs "
                "discretiser=Discretiser.uniform(space, cells), or cells of your own"
            )
            raise SpaceError("space", got=f"{space}", expected=expected)
    if codec.size > LARGEST:
        raise SpaceError("space", got=f"{codec.size:,} points", expected=f"at most {LARGEST:,}")
    return codec


# Environments -------------------------------------------------------------------------------------


class Step(NamedTuple):
    """What the environment did in one step."""

    next_state: int
    reward: float  # in [0, 1]; a known one as it is known, so that rounding is no target
    earned: float  # in the environment's own unit
    terminated: bool
    truncated: bool


@dataclass(frozen=True)
class EnvironmentInfo:
    """The environment of a run: enough to go on, or to act, without the environment object."""

    name: str
    rewards: RewardMap
    observation: Codec
    action: Codec
    exact: bool  # whether the environment's truth was known, and regret with it
    why_not: str = ""

    def names(self, kind: str, size: int) -> list[str]:
        """Return what the ``size`` states or actions are called; the end is its number."""
        codec = self.observation if kind == "states" else self.action
        return [str(codec.decode(i) if i < codec.size else i) for i in range(size)]


class FiniteEnvironment:
    """A Gymnasium environment with finite spaces, as integers.

    Parameters
    ----------
    env : gymnasium.Env or VectorEnv
        Several equal environments play the episodes of a plan side by side.
    known : Known, optional
        What the learner knows: sizes, horizon and rewards (``mdp.known``,
        ``read_ladder(...).known``) of every outcome that some model of the learner thinks possible.
        By default read from the environment's table. For agents that estimate the rewards:
        ``Known.of_sizes(states=..., actions=..., horizon=...)``; rewards may then be random.
    horizon : int, optional
        H; by default that of ``known``, otherwise the environment's time limit.
    reward_range : (low, high), optional
        Mapped onto [0, 1] for the learner. By default that of ``known``; if it has none, the
        smallest that holds the table's rewards and 0; without a table (0, 1).
    discretiser : Discretiser, optional
        For observations in a Box.

    Where the environment exposes the truth, it is ``mdp``, and regret is exact; else
    ``info.why_not`` is the reason.
    """

    def __init__(
        self,
        env: Environment | VectorEnv[Any, Any, Any],
        *,
        known: Known | None = None,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        discretiser: Discretiser | None = None,
    ) -> None:
        self.lanes = lanes_of(env)
        if known is not None:
            require_kind("known", known, Known)
        env = self.lanes.env
        self.env = env
        self.observation = codec_of(env.observation_space, discretiser)
        self.action = codec_of(env.action_space)
        self.ends: dict[int, int] = {}  # where episodes of a model rest, by the state they end in
        if known is not None and not isinstance(env.unwrapped, ProblemEnv):
            self._take_names(known)
        steps = self._horizon(known, horizon)
        if reward_range is None and known is not None and known.unit != UNIT:
            reward_range = tuple(known.unit)
        self.rewards = reward_map(reward_range)
        self.mdp: FiniteMDP | None = None
        why_not = ""
        try:
            self._read_truth(steps, reward_range)
        except TableError as error:
            if known is None:
                raise
            why_not = str(error)
        truth = None if self.mdp is None else self.mdp.known
        given = cast(Known, known or truth)  # without either, what is missing was raised
        # Where episodes begin is known of the environment itself, never of a model of it.
        initial = None if truth is None else truth.initial
        self.known = replace(given, initial=initial, unit=self.rewards)

        self._require_sizes()
        size = self.observation.size
        self.end = size if self.known.states > size else -1
        # Random rewards cannot be held against known ones.
        noisy = self.mdp is not None and self.mdp.reward_noise is not None
        self.scatter = noisy or not self.known.rewards_known
        if self.end >= 0 and not self.known.rewards_known:
            low, high = self.rewards
            if not low <= 0.0 <= high:
                raise ParameterError(
                    "reward_range", got=(low, high), expected="a range with 0, earned after the end"
                )
        name = type(env.unwrapped).__name__ if env.spec is None else str(env.spec.id)
        exact = self.mdp is not None
        self.info = EnvironmentInfo(
            name, self.rewards, self.observation, self.action, exact, why_not
        )
        self.resting = self._resting_states()
        self._departures: set[int] = set()  # states that a step was made from
        self._ended: set[int] = set()  # states of the environment's own where an episode ended

    def _take_names(self, known: Known) -> None:
        """Count states and actions as a model does whose names are those of the environment."""
        if known.names is None:
            return
        absorbing = known.absorbing.tolist()
        self.observation = renamed(self.observation, known.names.states, absorbing)
        self.action = renamed(self.action, known.names.actions, [False] * known.actions)
        numbers = {name: s for s, name in enumerate(known.names.states)}
        for name, s in numbers.items():
            end = numbers.get(f"{name} (end)", s)
            if absorbing[end]:
                self.ends[s] = end

    def _read_truth(self, steps: int, reward_range: Sequence[float] | None) -> None:
        """Set ``mdp`` and ``rewards`` where the environment tells its law; else a TableError."""
        env = self.env
        if isinstance(env.unwrapped, ProblemEnv):
            require_harmless_wrappers(env)
            self.mdp = env.unwrapped.mdp
            self.rewards = self.mdp.known.unit
            if self.mdp.horizon != steps:
                raise ParameterError(
                    "horizon", got=steps, expected=f"{self.mdp.horizon}, the problem's own"
                )
        elif isinstance(self.observation, Renamed):
            raise TableError(
                "env", got="the states of a model", expected="the table's own, for exact regret"
            )
        else:
            self.mdp, self.rewards = mdp_from_env(env, horizon=steps, reward_range=reward_range)

    def _horizon(self, known: Known | None, horizon: int | None) -> int:
        """Return H: what is known or given, otherwise the problem's own or the time limit."""
        limits = []
        layer: Environment = self.env
        while isinstance(layer, gym.Wrapper):
            if isinstance(layer, wrappers.TimeLimit):
                limits.append(layer._max_episode_steps)
            layer = layer.env
        if known is not None:
            if horizon not in (None, known.horizon):
                raise ParameterError(
                    "horizon", got=horizon, expected=f"{known.horizon}, that of `known`"
                )
            horizon = known.horizon
        elif horizon is None and isinstance(layer, ProblemEnv):
            horizon = layer.mdp.horizon
        elif horizon is None:
            horizon = min(limits, default=None)
        if horizon is None:
            raise ParameterError(
                "horizon", got=None, expected="horizon=H, or known=...: there is no time limit"
            )
        if require_integer("horizon", horizon, 1) > min(limits, default=horizon):
            longer = f"gymnasium.make(..., max_episode_steps={horizon})"
            raise ParameterError(
                "horizon",
                got=horizon,
                expected=f"at most the time limit {min(limits)}, or {longer}",
            )
        return int(horizon)

    def _require_sizes(self) -> None:
        """Refuse a learner that counts other states or actions than the environment has."""
        size = self.observation.size
        possible = [size, size + 1]
        if self.mdp is not None:
            possible = [self.mdp.states]
        known = self.known
        if known.states not in possible or known.actions != self.action.size:
            got = f"{known.states} states and {known.actions} actions"
            states = " or ".join(map(str, possible))
            raise ShapeError(
                "known",
                got=got,
                expected=f"{states} (with one for the end), and {self.action.size}",
            )

    def _resting_states(self) -> frozenset[int]:
        """Return the states where, by the known rewards, nothing more is earned.

        None where there is no table but a state for the end, to which every termination leads.
        """
        known = self.known
        if self.mdp is None and (self.end >= 0 or not known.rewards_known):
            return frozenset()
        if self.mdp is not None and not known.rewards_known:
            known = self.mdp.known
        distance = np.abs(known.base_reward - self.rewards.to_unit(0.0))
        quiet = distance.max(axis=1) <= ROUNDING
        if known.transition_rewards is not None:
            table = known.transition_rewards
            quiet[table.pair[table.bonus > ROUNDING] // known.actions] = False
        if self.mdp is not None:
            state = self.mdp.outcomes.pair // known.actions
            quiet[state[self.mdp.outcomes.next_state != state]] = False
        return frozenset(np.flatnonzero(quiet[: self.observation.size]).tolist())

    def reset(self, seed: int) -> int:
        """Begin an episode and return its state."""
        observation, _ = self.env.reset(seed=seed)
        return self.observation.encode(observation)

    def step(self, s: int, a: int) -> Step:
        """Do a in s and return what followed."""
        return self.read(s, a, act(self.env, self.action.decode(a)))

    def read(self, s: int, a: int, response: Response) -> Step:
        """Return what followed a in s; EnvironmentFault is what the environment may not do."""
        observation, earned, terminated, truncated = response
        observed = self.observation.encode(observation)
        mapped = self.rewards.to_unit(earned)
        if not -ROUNDING <= mapped <= 1.0 + ROUNDING:  # not a number is neither
            low, high = self.rewards
            expected = (
                f"a number in [{low:g}, {high:g}]; reward_range=(low, high) states another range"
            )
            raise EnvironmentFault("reward", got=earned, expected=expected)
        next_state = self._arrive(s, observed, terminated)
        mapped = self._known_reward(s, a, next_state, min(1.0, max(0.0, mapped)))
        self._require_outcome(s, a, next_state, mapped)
        return Step(next_state, mapped, earned, terminated, truncated)

    def at_rest(self, s: int, a: int) -> float:
        """Return what is earned in a state after the end of an episode, in [0, 1]."""
        if self.known.rewards_known:
            return float(self.known.base_reward[s, a])
        return float(self.rewards.to_unit(0.0))

    def _known_reward(self, s: int, a: int, s2: int, mapped: float) -> float:
        """Return the known reward of a transition, or refuse another; what came where none is."""
        if self.scatter:
            return mapped
        known = self.known
        listed = bonuses(known.transition_rewards, s * known.actions + a, s2)
        if not listed.size:
            return mapped  # no model knows this outcome: what was seen is what it pays
        rewards = float(known.base_reward[s, a]) + listed
        nearest = float(rewards[np.abs(rewards - mapped).argmin()])
        if abs(nearest - mapped) <= ROUNDING:
            return nearest
        paid = [f"{self.rewards.total(reward, 1):.9g}" for reward in rewards.tolist()]
        step = (
            f"state {known.state_name(s)!r}, action {known.action_name(a)!r}, "
            f"next state {known.state_name(s2)!r}"
        )
        raise EnvironmentFault(
            "reward",
            got=self.rewards.total(mapped, 1),
            expected=f"{' or '.join(paid)}, the known reward of {step}{_RANDOM}",
        )

    def _require_outcome(self, s: int, a: int, s2: int, mapped: float) -> None:
        """Refuse what the environment's own table excludes."""
        if self.mdp is None:
            return
        pair = s * self.known.actions + a
        rewards = self.mdp.base_reward[pair] + bonuses(self.mdp.outcomes, pair, s2)
        if self.mdp.reward_noise is None:
            rewards = rewards[np.abs(rewards - mapped) <= ROUNDING]
        if not rewards.size:
            got = f"state {s2} with reward {self.rewards.total(mapped, 1):g} after ({s}, {a})"
            raise TableError(
                self.info.name, got=got, expected="an outcome of the environment's own table"
            )

    def _arrive(self, s: int, s2: int, terminated: bool) -> int:
        """Return the state that a step led to; the one for the end if it ended not at rest."""
        if terminated and s2 in self.ends:
            return self.ends[s2]
        # Without a table, an end is one only if no episode goes on from there.
        self._departures.add(s)
        if terminated and s2 in self.resting:
            self._ended.add(s2)
        both = self._departures & self._ended
        if self.mdp is None and both:
            got = f"state {min(both)}, where an episode ended and another one went on"
            raise TableError(self.info.name, got=got, expected=_ONE_MORE)
        if not terminated or s2 in self.resting:
            return s2
        if self.end < 0:
            got = (
                f"an episode that ended in state {s2}, where more may be earned as far as is known"
            )
            raise TableError(self.info.name, got=got, expected=_ONE_MORE)
        return self.end


def bonuses(table: Outcomes | None, pair: int, s2: int) -> Floats:
    """Return the bonuses that outcomes list for a pair s*A + a and s'.

    0 where rewards depend on the pair alone.
    """
    if table is None:
        return np.zeros(1)
    listed = slice(table.start[pair], table.start[pair + 1])
    return np.asarray(table.bonus[listed][table.next_state[listed] == s2])


def make_environment(field: str, name: str, options: dict[str, Any]) -> Environment:
    """Return a registered environment; whatever goes wrong is told of ``field``."""
    try:
        return gym.make(name, **options)
    except Exception as fault:  # of someone else's constructor, which may raise anything
        expected = (
            "a registered environment (--import names a module that registers it), "
            "and options that it takes"
        )
        got = f"{type(fault).__name__}: {fault}, from {name} with {options}"
        raise ParameterError(field, got=got, expected=expected) from fault


def require_finite(
    env: FiniteEnvironment | Environment | VectorEnv[Any, Any, Any], **options: Any
) -> FiniteEnvironment:
    """Return a FiniteEnvironment as it is, or one made from a Gymnasium environment."""
    if not isinstance(env, FiniteEnvironment):
        return FiniteEnvironment(env, **options)
    for name, value in options.items():
        if value is not None:
            raise ParameterError(
                name, got=value, expected="none: the FiniteEnvironment has its own"
            )
    return env

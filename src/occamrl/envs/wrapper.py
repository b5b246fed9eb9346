"""An environment as a learner sees it: states, actions and steps are integers, rewards lie in [0, 1].

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces, wrappers
from numpy.typing import NDArray

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
ROUNDING = 1e-6  # how far a reward may be from the known one, in the learner's unit: it may come in 32 bits
_RANDOM = "; for random rewards, use RewardsPerPair(agent=...) and known=Known.of_sizes(...)"
_ONE_MORE = "`known` with one state more, for the end of an episode"


class Codec(ABC):
    """How the points of a space are numbered: a point has digits, the last running fastest."""

    radix: tuple[int, ...]  # how many values each digit has

    @abstractmethod
    def digits(self, value: Any) -> Sequence[int]:
        """Return the digits of a point; whatever is not in the space is a TypeError, ValueError or LookupError."""

    @abstractmethod
    def point(self, digits: Sequence[int]) -> Any:
        """Return the point of some digits, as the environment wants it (of a cell: its middle)."""

    @property
    def size(self) -> int:
        """The number n of points (or cells)."""
        return math.prod(self.radix)

    def encode(self, value: Any) -> int:
        """Return the number of a point; SpaceError if it is not in the space."""
        try:
            return int(np.ravel_multi_index(tuple(self.digits(value)), self.radix))
        except (TypeError, ValueError, LookupError):
            raise SpaceError(
                "observation", got=f"{value!r:.80}", expected=f"a point of {self!s:.200}"
            ) from None

    def decode(self, index: int) -> Any:
        """Return the point of a number."""
        return self.point([int(digit) for digit in np.unravel_index(index, self.radix)])


@dataclass(frozen=True)
class Integers(Codec):
    """Discrete, MultiDiscrete and MultiBinary: an integer, or an array of them, each with its own start and count."""

    radix: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...] = ()  # of an integer

    def digits(self, value: Any) -> Sequence[int]:
        """Return the entries, counted from their starts."""
        array = _numbers(value, "biu" if self.shape else "iu")
        if array.shape != self.shape:
            raise ValueError("another shape")
        return [int(entry) - start for entry, start in zip(array.ravel(), self.starts, strict=True)]

    def point(self, digits: Sequence[int]) -> Any:
        """Return the integer or the array."""
        entries = [digit + start for digit, start in zip(digits, self.starts, strict=True)]
        return np.array(entries).reshape(self.shape) if self.shape else entries[0]

    def __str__(self) -> str:
        ranges = [
            f"{low} to {low + count - 1}"
            for low, count in zip(self.starts, self.radix, strict=True)
        ]
        return (
            f"the integers from {ranges[0]}"
            if not self.shape
            else f"arrays of integers, from {', '.join(ranges)}"
        )


@dataclass(frozen=True)
class Product(Codec):
    """Tuple and Dict: several parts; ``keys`` are those of a Dict, in its order."""

    parts: tuple[Codec, ...]
    keys: tuple[str, ...] | None = None

    @property
    def radix(self) -> tuple[int, ...]:  # type: ignore[override]  # derived
        """The sizes of the parts."""
        return tuple(part.size for part in self.parts)

    def digits(self, value: Any) -> Sequence[int]:
        """Return the parts' numbers."""
        values = (
            value
            if self.keys is None or isinstance(value, tuple)
            else [value[key] for key in self.keys]
        )
        if len(value) != len(self.parts):
            raise ValueError("other parts")
        return [part.encode(each) for part, each in zip(self.parts, values, strict=True)]

    def point(self, digits: Sequence[int]) -> Any:
        """Return the tuple or dict of the parts."""
        values = [part.decode(digit) for part, digit in zip(self.parts, digits, strict=True)]
        return tuple(values) if self.keys is None else dict(zip(self.keys, values, strict=True))


@dataclass(frozen=True)
class Discretiser(Codec):
    """A Box cut into cells between edges, in every dimension; the last dimension runs fastest.

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
        shape = (len(self.edges),) if self.shape is None else tuple(int(n) for n in self.shape)
        if len(self.edges) == 0 or math.prod(shape) != len(self.edges):
            raise ParameterError(
                "edges",
                got=f"{len(self.edges)} dimensions",
                expected=f"those of shape {self.shape}",
            )
        for i, row in enumerate(self.edges):
            array = np.asarray(row)
            sound = array.dtype.kind in "biuf" and array.ndim == 1 and array.size >= 2
            if not sound or not (array[1:] > array[:-1]).all():  # false where not a number
                raise ParameterError(
                    "edges", index=(i,), got=row, expected="two or more increasing numbers"
                )
        object.__setattr__(
            self, "edges", tuple(tuple(float(edge) for edge in row) for row in self.edges)
        )
        object.__setattr__(self, "shape", shape)

    @classmethod
    def uniform(cls, space: spaces.Space[Any], cells: int | Sequence[int]) -> Discretiser:
        """Return equal cells over a bounded Box, ``cells`` in each dimension."""
        if not isinstance(space, spaces.Box) or not np.isfinite([space.low, space.high]).all():
            expected = "a Box with finite bounds, or Discretiser(edges) with your own"
            raise SpaceError("space", got=f"{space}, without bounds", expected=expected)
        counts = [cells] * space.low.size if isinstance(cells, int) else list(cells)
        if len(counts) != space.low.size:
            raise ParameterError(
                "cells",
                got=f"{len(counts)} numbers",
                expected=f"{space.low.size}, one per dimension",
            )
        ends = (end.astype(np.float64).ravel() for end in (space.low, space.high))
        many = [require_integer("cells", count, 1) + 1 for count in counts]
        return cls(
            [np.linspace(*each).tolist() for each in zip(*ends, many, strict=True)],
            shape=space.shape,
        )

    @property
    def radix(self) -> tuple[int, ...]:  # type: ignore[override]  # derived
        """The number of cells in each dimension."""
        return tuple(len(row) - 1 for row in self.edges)

    def digits(self, value: Any) -> Sequence[int]:
        """Return the cell of a point in every dimension."""
        point = _numbers(value, "biuf").ravel().tolist()
        for x, row in zip(point, self.edges, strict=True):
            if not row[0] <= x <= row[-1]:
                raise ValueError("outside")
        return [
            int(np.searchsorted(row[1:-1], x, side="right"))
            for x, row in zip(point, self.edges, strict=True)
        ]

    def point(self, digits: Sequence[int]) -> Any:
        """Return the middle of a cell (its finite edge, where the other is infinite)."""
        cells = [row[i : i + 2] for row, i in zip(self.edges, digits, strict=True)]
        ends = [[edge for edge in cell if math.isfinite(edge)] for cell in cells]
        return np.array([sum(each) / max(len(each), 1) for each in ends], dtype=np.float32).reshape(
            self.shape or ()
        )


@dataclass(frozen=True)
class Renamed(Codec):
    """A space whose points are the names of a model's states or actions, numbered as the model does."""

    codec: Codec
    radix: tuple[int, ...]
    numbers: dict[int, int]  # by the point's own number

    def digits(self, value: Any) -> Sequence[int]:
        """Return the model's number."""
        return [self.numbers[self.codec.encode(value)]]

    def point(self, digits: Sequence[int]) -> Any:
        """Return the point that has the model's number."""
        return next(
            self.codec.decode(own) for own, number in self.numbers.items() if number == digits[0]
        )

    def __str__(self) -> str:
        return "those that your models list; allow it there"


def renamed(codec: Codec, names: Sequence[Any], rests: Sequence[bool]) -> Codec:
    """Return the codec of a model's names; as it is unless every name, of states where nothing rests, is a point."""
    numbers = {}
    for i, name in enumerate(names):
        try:
            numbers[codec.encode(name)] = i
        except SpaceError:
            if not rests[i]:
                return codec
    return Renamed(codec, (len(names) - bool(rests[-1]),), numbers)


def _numbers(value: Any, kinds: str) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in kinds:
        raise TypeError("other kinds of numbers")
    return array


def codec_of(space: spaces.Space[Any], discretiser: Discretiser | None = None) -> Codec:
    """Return how the points of a space are numbered; SpaceError if it is not finite, or a Box without a discretiser."""
    codec: Codec
    if discretiser is not None:
        require_kind("discretiser", discretiser, Discretiser)
        if not isinstance(space, spaces.Box) or space.shape != discretiser.shape:
            raise SpaceError(
                "discretiser",
                got=f"one for {space}",
                expected=f"only a Box of shape {discretiser.shape}",
            )
        return discretiser
    match space:
        case spaces.Discrete():
            codec = Integers((int(space.n),), (int(space.start),))
        case spaces.MultiDiscrete():
            codec = Integers(
                tuple(space.nvec.ravel().tolist()),
                tuple(space.start.ravel().tolist()),
                space.nvec.shape,
            )
        case spaces.MultiBinary():
            entries = math.prod(space.shape)
            codec = Integers((2,) * entries, (0,) * entries, space.shape)
        case spaces.Tuple():
            codec = Product(tuple(codec_of(part) for part in space.spaces))
        case spaces.Dict():
            codec = Product(
                tuple(codec_of(part) for part in space.spaces.values()), tuple(space.spaces)
            )
        case _:
            expected = "Discrete, MultiDiscrete, MultiBinary, a Tuple or Dict of them"
            expected += (
                "; a Box needs discretiser=Discretiser.uniform(space, cells), or cells of your own"
            )
            raise SpaceError("space", got=f"{space}", expected=expected)
    if codec.size > LARGEST:
        raise SpaceError("space", got=f"{codec.size:,} points", expected=f"at most {LARGEST:,}")
    return codec


class Step(NamedTuple):
    """What the environment did in one step."""

    next_state: int
    reward: (
        float  # in [0, 1]; a known one as it is known, so that rounding does not become a target
    )
    earned: float  # in the environment's own unit
    terminated: bool
    truncated: bool


@dataclass(frozen=True)
class EnvironmentInfo:
    """The Gymnasium environment of a run: enough to go on, or to act, without the environment object."""

    name: str
    rewards: RewardMap
    observation: Codec
    action: Codec
    exact: bool  # whether the environment's truth was known, and regret with it
    why_not: str = ""

    def names(self, kind: str, size: int) -> list[str]:
        """Return what the ``size`` states or actions are called: the observations themselves; the end has a number."""
        codec = self.observation if kind == "states" else self.action
        return [str(codec.decode(i) if i < codec.size else i) for i in range(size)]


class FiniteEnvironment:
    """A Gymnasium environment with finite spaces, as integers.

    Parameters
    ----------
    env : gymnasium.Env
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
        env: gym.Env[Any, Any],
        *,
        known: Known | None = None,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        discretiser: Discretiser | None = None,
    ) -> None:
        if not isinstance(env, gym.Env):
            expected = "a Gymnasium environment, gymnasium.make(...); for a problem or FiniteMDP, call occamrl.run"
            raise ParameterError("env", got=type(env).__name__, expected=expected)
        if known is not None:
            require_kind("known", known, Known)
        self.env = env
        self.observation = codec_of(env.observation_space, discretiser)
        self.action = codec_of(env.action_space)
        found = getattr(env.unwrapped, "mdp", None)
        own = found if isinstance(found, FiniteMDP) else None  # of a problem of this package
        self.ends: dict[
            int, int
        ] = {}  # where episodes of a model rest, by the state that they end in
        if known is not None and known.names is not None and own is None:
            names, rests = known.names, known.absorbing.tolist()
            self.observation = renamed(self.observation, names.states, rests)
            self.action = renamed(self.action, names.actions, [False] * known.actions)
            number = {name: s for s, name in enumerate(names.states)}
            ends = {s: number.get(f"{name} (end)", s) for name, s in number.items()}
            self.ends = {s: end for s, end in ends.items() if rests[end]}
        steps = self._horizon(known, horizon, own)
        self.mdp: FiniteMDP | None = None
        if reward_range is None and known is not None and known.unit != UNIT:
            reward_range = tuple(known.unit)
        self.rewards, why_not = reward_map(reward_range), ""
        try:
            if own is not None:
                require_harmless_wrappers(env)
                if own.horizon != steps:
                    raise ParameterError(
                        "horizon", got=steps, expected=f"{own.horizon}, the problem's own"
                    )
                self.mdp, self.rewards = own, getattr(env.unwrapped, "rewards", self.rewards)
            elif isinstance(self.observation, Renamed):
                raise TableError(
                    "env", got="the states of a model", expected="the table's own, for exact regret"
                )
            else:
                self.mdp, self.rewards = mdp_from_env(env, horizon=steps, reward_range=reward_range)
        except TableError as error:
            if known is None:
                raise
            why_not = str(error)
        truth = None if self.mdp is None else self.mdp.known
        given = cast(Known, truth if known is None else known)  # one of the two is there
        self.known = replace(
            given, initial=None if truth is None else truth.initial, unit=self.rewards
        )
        sizes, n = (self.known.states, self.known.actions), self.observation.size
        states = (n, n + 1) if self.mdp is None else (self.mdp.states,)
        if sizes[0] not in states or sizes[1] != self.action.size:
            expected = f"{' or '.join(str(each) for each in states)} (with one for the end), and {self.action.size}"
            raise ShapeError(
                "known", got=f"{sizes[0]} states and {sizes[1]} actions", expected=expected
            )
        self.end = n if self.known.states > n else -1
        self.scatter = not self.known.rewards_known or (
            self.mdp is not None and self.mdp.reward_noise is not None
        )
        if (
            self.end >= 0
            and not self.known.rewards_known
            and not self.rewards.low <= 0.0 <= self.rewards.high
        ):
            raise ParameterError(
                "reward_range", got=tuple(self.rewards), expected="0 in it, earned after the end"
            )
        name = str(env.spec.id) if env.spec is not None else type(env.unwrapped).__name__
        self.info = EnvironmentInfo(
            name, self.rewards, self.observation, self.action, self.mdp is not None, why_not
        )
        self.resting = self._resting_states()
        self._left: set[int] = set()  # states that a step was made from
        self._ended: set[int] = set()  # states of the environment's own where an episode ended

    def _horizon(self, known: Known | None, horizon: int | None, own: FiniteMDP | None) -> int:
        """Return H: what is known or given, otherwise the problem's own or the time limit, which it may not exceed."""
        limits, layer = [], self.env
        while isinstance(layer, gym.Wrapper):
            limits += [layer._max_episode_steps] if isinstance(layer, wrappers.TimeLimit) else []
            layer = layer.env
        if known is not None:
            if horizon not in (None, known.horizon):
                raise ParameterError(
                    "horizon", got=horizon, expected=f"{known.horizon}, that of `known`"
                )
            horizon = known.horizon
        elif horizon is None:
            horizon = min(limits, default=None) if own is None else own.horizon
        if horizon is None:
            raise ParameterError(
                "horizon", got=None, expected="horizon=H, or known=...: there is no time limit"
            )
        if require_integer("horizon", horizon, 1) > min(limits, default=horizon):
            expected = f"at most the time limit {min(limits)}, or gymnasium.make(..., max_episode_steps={horizon})"
            raise ParameterError("horizon", got=horizon, expected=expected)
        return int(horizon)

    def _resting_states(self) -> frozenset[int]:
        """States of the environment itself where, by the known rewards, nothing more is earned, whatever is done.

        None where there is no table but a state for the end, to which every termination then leads.
        """
        if self.mdp is None and (self.end >= 0 or not self.known.rewards_known):
            return frozenset()
        known = self.known if self.known.rewards_known or self.mdp is None else self.mdp.known
        quiet = np.abs(known.base_reward - self.rewards.to_unit(0.0)).max(axis=1) <= ROUNDING
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
        """Do a in s and return what followed; what the environment may not do is an EnvironmentFault."""
        observation, reward, terminated, truncated, _ = self.env.step(self.action.decode(a))
        earned, s2 = float(reward), self.observation.encode(observation)
        mapped = self.rewards.to_unit(earned)
        if not -ROUNDING <= mapped <= 1.0 + ROUNDING:  # not a number is neither
            low, high = self.rewards
            expected = (
                f"a number in [{low:g}, {high:g}]; reward_range=(low, high) states another range"
            )
            raise EnvironmentFault("reward", got=earned, expected=expected)
        after = self._arrive(s, s2, bool(terminated))
        mapped = self._checked(s, a, after, min(1.0, max(0.0, mapped)))
        return Step(after, mapped, earned, bool(terminated), bool(truncated))

    def at_rest(self, s: int, a: int) -> float:
        """Return what is earned in a state after the end of an episode, in [0, 1]."""
        return (
            float(self.known.base_reward[s, a])
            if self.known.rewards_known
            else self.rewards.to_unit(0.0)
        )

    def _checked(self, s: int, a: int, s2: int, mapped: float) -> float:
        """Return the reward of a transition, the known one where there is one; or refuse it."""
        if not self.scatter:
            base = float(self.known.base_reward[s, a])
            listed = bonuses(self.known.transition_rewards, s * self.known.actions + a, s2)
            if listed.size:  # otherwise no model knows this outcome: what was seen is what it pays
                nearest = base + float(listed[np.abs(base + listed - mapped).argmin()])
                if abs(nearest - mapped) > ROUNDING:
                    each = " or ".join(
                        f"{self.rewards.total(base + bonus, 1):.9g}" for bonus in listed.tolist()
                    )
                    where, after = self.known.state_name(s), self.known.state_name(s2)
                    step = f"state {where!r}, action {self.known.action_name(a)!r}, next state {after!r}"
                    expected = f"{each}, the known reward of {step}{_RANDOM}"
                    raise EnvironmentFault(
                        "reward", got=self.rewards.total(mapped, 1), expected=expected
                    )
                mapped = nearest
        if self.mdp is not None:
            pair = s * self.known.actions + a
            rewards = self.mdp.base_reward[pair] + bonuses(self.mdp.outcomes, pair, s2)
            if not (
                rewards.size
                if self.mdp.reward_noise
                else (np.abs(rewards - mapped) <= ROUNDING).any()
            ):
                got = f"state {s2} with reward {self.rewards.total(mapped, 1):g} after ({s}, {a})"
                raise TableError(
                    self.info.name, got=got, expected="an outcome of the environment's own table"
                )
        return mapped

    def _arrive(self, s: int, s2: int, terminated: bool) -> int:
        """Return the state that a step led to: the one for the end if the episode ended elsewhere than at rest."""
        if terminated and s2 in self.ends:
            return self.ends[s2]
        self._left.add(s)
        if terminated and s2 in self.resting:
            self._ended.add(s2)
        if self.mdp is None and not self._left.isdisjoint(self._ended):
            got = f"state {min(self._left & self._ended)}, where an episode ended and another one went on"
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
    """Return the bonuses that outcomes list for a pair s*A + a and s'; 0 where rewards depend on the pair alone."""
    if table is None:
        return np.zeros(1)
    at = slice(*table.start[pair:][:2])
    return np.asarray(table.bonus[at][table.next_state[at] == s2])


def make_environment(field: str, name: str, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """Return a registered environment; whatever goes wrong is told of ``field``."""
    try:
        return gym.make(name, **options)
    except Exception as fault:  # of someone else's constructor, which may raise anything
        expected = "a registered environment (--import names a module that registers it), and options that it takes"
        got = f"{type(fault).__name__}: {fault}, from {name} with {options}"
        raise ParameterError(field, got=got, expected=expected) from fault


def require_finite(env: Any, **about: Any) -> FiniteEnvironment:
    """Return a FiniteEnvironment as it is, or one made from a Gymnasium environment."""
    if not isinstance(env, FiniteEnvironment):
        return FiniteEnvironment(env, **about)
    for name, value in about.items():
        if value is not None:
            raise ParameterError(
                name, got=value, expected="none: the FiniteEnvironment has its own"
            )
    return env

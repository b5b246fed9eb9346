"""Frozen lakes, with ladders of how often, which way and where the ice makes one slip.

Walk from S to G, where 1 is paid; a hole H ends the episode, as G does. A step goes where it was
meant to, or is turned to the left or to the right. The kernel is linear in the probabilities of
these turns.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from occamrl.errors import (
    ParameterError,
    TableError,
    require_choice,
    require_integer,
    require_sequences,
)
from occamrl.problems.mdp import FiniteMDP, RewardMap, Small, read_table, reward_map
from occamrl.problems.mixtures import NestedClasses
from occamrl.protocols import Floats

MAPS = {  # Gymnasium's
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": (
        "SFFFFFFF",
        "FFFFFFFF",
        "FFFHFFFF",
        "FFFFFHFF",
        "FFFHFFFF",
        "FHHFFFHF",
        "FHFFHFHF",
        "FFFHFFFG",
    ),
}
# Rows and columns of left, down, right and up, in Gymnasium's order: each turns left the last one.
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
SIDE = 8
PARTS = 30  # slips of FrozenLake are multiples of 1/30
MOST = 20  # l + r, so that one step in three goes where it was meant to, at the least
_COLUMNS = (1, 2, 4, 8)  # parts of patchy ice: everywhere, halves, four strips, columns


def walk(lake: Sequence[str], turn: int) -> Floats:
    """Return the kernel [S, A, S] of steps that are all turned left by ``turn`` quarters."""
    rows = len(lake)
    columns = len(lake[0])
    kernel = np.zeros((rows * columns, len(STEPS), rows * columns))
    for s, a in itertools.product(range(rows * columns), range(len(STEPS))):
        row, column = divmod(s, columns)
        if lake[row][column] in "HG":
            # holes and the goal are not left
            kernel[s, a, s] = 1.0
            continue
        down, right = STEPS[(a + turn) % len(STEPS)]
        row = min(max(row + down, 0), rows - 1)
        column = min(max(column + right, 0), columns - 1)
        kernel[s, a, row * columns + column] = 1.0
    return kernel


class Lake(NestedClasses):
    """What lakes have in common: a map, and a kernel: the plain walk plus what slips change."""

    horizon: int | None
    map_name: str = "8x8"
    rows: int = SIDE  # how many rows of the map, from below

    @property
    def lake(self) -> tuple[str, ...]:
        """The map, row by row."""
        return MAPS[self.map_name][-self.rows :]

    @abstractmethod
    def changes(self, left: Floats, right: Floats) -> Sequence[Floats]:
        """Return what each kind of slip changes, given what turning every step does."""

    @cached_property
    def phi(self) -> list[sp.csr_array]:
        """Sparse kernels (S*A, S): the walk without slipping, and what each kind changes."""
        ahead = walk(self.lake, 0)
        left = walk(self.lake, 1) - ahead
        right = walk(self.lake, -1) - ahead
        parts = (ahead, *self.changes(left, right))
        return [sp.csr_array(part.reshape(-1, part.shape[-1])) for part in parts]

    @cached_property
    def reward(self) -> Floats:
        """r[s, a, s']: 1 for reaching the goal from where an episode goes on."""
        tiles = np.array(list("".join(self.lake)))
        # Once there, G pays no more.
        pays = np.logical_and.outer(~np.isin(tiles, ("H", "G")), tiles == "G")
        return np.repeat(pays[:, None].astype(np.float64), len(STEPS), axis=1)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The problem; episodes start in the upper left corner."""
        kernel = np.stack([part.toarray() for part in self.phi], axis=-1) @ self.theta
        # A probability of zero is a sum of terms of both signs, and may round to -1e-17.
        transition = np.maximum(kernel, 0.0).reshape(self.reward.shape)
        horizon = 15 * len(self.lake) // 2 if self.horizon is None else self.horizon
        return FiniteMDP(transition=transition, reward=self.reward, horizon=horizon)


@dataclass(frozen=True, kw_only=True)
class PatchyIce(Lake):
    """FrozenLake 8x8 whose slipperiness is the same everywhere, or differs from part to part.

    A step goes to each side of where it was meant to with probability q, the slip of the part one
    stands in. The lake has 1, 2, 4 or 8 parts of neighbouring columns.
    """

    class_names: ClassVar[tuple[str, ...]] = ("one part", "two parts", "four parts", "eight parts")

    slip: tuple[float, ...] = (0.1,)  # q of each of 1, 2, 4 or 8 parts, from left to right
    levels: tuple[float, ...] = (0.0, 0.1, 1.0 / 3.0)  # the slips that hypotheses may have
    horizon: int = 60
    rows: int = SIDE  # how many rows of the lake, from below; 8 are FrozenLake's

    small: ClassVar[Small] = (
        {"horizon": 24, "rows": 4},
        {"slip": (0.0, 1.0 / 3.0), "horizon": 30, "rows": 4},
    )

    def __post_init__(self) -> None:
        require_integer("rows", self.rows, 2, maximum=SIDE)
        require_sequences(self, 0.0, 0.5, "slip", "levels")
        if len(self.slip) not in _COLUMNS:
            raise ParameterError("slip", got=f"{len(self.slip)} numbers", expected="1, 2, 4 or 8")

    def changes(self, left: Floats, right: Floats) -> Sequence[Floats]:
        """Return what a slip in each column changes per q."""
        column = np.arange(len(left)) % SIDE
        return [np.where((column == c)[:, None, None], left + right, 0.0) for c in range(SIDE)]

    def classes(self) -> Sequence[Floats]:
        """Return theta = (1, q of each column) for 1, 2, 4 and 8 parts.

        With three levels these are 3, 9, 81 and 6,561 in all.
        """
        added = []
        for parts in _COLUMNS:
            slips = np.array(list(itertools.product(self.levels, repeat=parts)))
            by_column = np.repeat(slips, SIDE // parts, axis=1)
            added.append(np.insert(by_column, 0, 1.0, axis=1))
        return added

    @property
    def theta(self) -> Floats:
        """theta* [9]."""
        return np.append(1.0, np.repeat(self.slip, SIDE // len(self.slip)))


@dataclass(frozen=True, kw_only=True)
class FrozenLake(Lake):
    """FrozenLake with a ladder of slips: none < the same to both sides < any up to 20/30.

    Gymnasium's slippery lake has slips (10, 10), and its ``success_rate`` p is l = r = 15 (1 - p).
    A step turns to the left with probability l/30 and to the right with r/30, as seen by the
    walker; l + r <= 20.
    """

    class_names: ClassVar[tuple[str, ...]] = ("no slip", "the same to both sides", "any slip")

    map_name: str = "4x4"  # or "8x8"
    slip: tuple[int, int] = (10, 10)  # (l, r)
    horizon: int | None = None  # by default 30 and 60

    small: ClassVar[Small] = ({"horizon": 12}, {"slip": (3, 9), "horizon": 8})

    def __post_init__(self) -> None:
        require_choice("map_name", self.map_name, MAPS)
        require_sequences(self, 0.0, MOST, "slip")
        whole = [require_integer("slip", part, 0) for part in self.slip]
        if len(whole) != 2 or sum(whole) > MOST:
            raise ParameterError(
                "slip", got=self.slip, expected=f"two integers (l, r), l + r <= {MOST}"
            )

    def changes(self, left: Floats, right: Floats) -> Sequence[Floats]:
        """Return what a slip to each side changes."""
        return left, right

    def classes(self) -> Sequence[Floats]:
        """Return theta = (1, l/30, r/30) for no slip, l = r, and all; 1, 11 and 231 in all."""
        every = []
        for left, right in itertools.product(range(MOST + 1), repeat=2):
            if left + right <= MOST:
                every.append((1.0, left / PARTS, right / PARTS))
        slips = np.array(every)
        same = slips[:, 1] == slips[:, 2]
        return [slips[:1], slips[same], slips]

    @property
    def theta(self) -> Floats:
        """theta* [3]."""
        left, right = self.slip
        return np.array([1.0, left / PARTS, right / PARTS])


# Tables of environments ---------------------------------------------------------------------------

# Wrappers that leave observations, actions, rewards and ends alone, TimeLimit's truncation aside.
_HARMLESS = {
    "OrderEnforcing",
    "PassiveEnvChecker",
    "TimeLimit",
    "RecordEpisodeStatistics",
    "HumanRendering",
}


def require_harmless_wrappers(env: Any) -> None:
    """Refuse wrappers that may change what is observed, done or earned."""
    layer = env
    while layer is not env.unwrapped:
        if type(layer).__name__ not in _HARMLESS:
            raise TableError(
                type(env.unwrapped).__name__,
                got=f"the wrapper {type(layer).__name__}, which the table does not describe",
                expected="no wrapper that changes observations, actions or rewards",
            )
        layer = layer.env


def require_whole_truth(env: Any) -> None:
    """Refuse an environment whose table is missing or does not tell everything."""
    name = type(env.unwrapped).__name__
    if not isinstance(getattr(env.unwrapped, "P", None), (dict, list, tuple)):
        expected = (
            "one, or known=...; "
            "to estimate rewards, known=Known.of_sizes(...) and RewardsPerPair(agent=...)"
        )
        raise TableError(name, got="no table env.unwrapped.P", expected=expected)
    require_harmless_wrappers(env)
    # Taxi's passenger may change the destination on the way, and the table does not know it.
    if getattr(env.unwrapped, "fickle_passenger", False):
        raise TableError(
            name,
            got="fickle_passenger=True, which is not in the table",
            expected="fickle_passenger=False, or learning without exact regret",
        )


def smallest_range(environments: Iterable[Any]) -> tuple[float, float]:
    """Return the smallest range of all rewards of tables, and of the 0 earned after an end."""
    low = 0.0
    high = 0.0
    for env in environments:
        require_whole_truth(env)
        reward = read_table(env.unwrapped.P, RewardMap(-math.inf, math.inf)).reward
        low = min(low, float(reward.min()))
        high = max(high, float(reward.max()))
    if low == high:
        return (0.0, 1.0)
    return (low, high)


def mdp_from_env(
    env: Any, *, horizon: int, reward_range: Sequence[float] | None = None
) -> tuple[FiniteMDP, RewardMap]:
    """Return an environment's table as a problem, and the map of its rewards onto [0, 1].

    ``reward_range`` is by default the smallest that contains all rewards and 0. Episodes start as
    ``env.unwrapped.initial_state_distrib`` says, in state 0 where there is none.
    """
    require_whole_truth(env)
    if reward_range is None:
        reward_range = smallest_range([env])
    rewards = reward_map(reward_range)
    mdp = FiniteMDP(
        outcomes=env.unwrapped.P,
        horizon=horizon,
        initial_state=getattr(env.unwrapped, "initial_state_distrib", 0),
        reward_range=rewards,
    )
    return mdp, rewards

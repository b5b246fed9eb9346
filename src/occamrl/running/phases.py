"""Who plays: the phase that an agent is in, and its learner at play.

A selector hands out phases; a learner by itself is an agent with one endless phase. :class:`PhaseWalk` says who plays
now and for how many more episodes.

A player gives the same few calls to a compiled learner, to one in plain NumPy, and to a rule over bases. A source of
episodes is either the simulator, which needs ``simulate`` alone, or an environment that somebody else steps, which
needs ``open`` before an episode, ``close`` after it and ``evaluate`` where the truth is known.
"""

from __future__ import annotations

import copy
import math
import operator
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.arena import model_of, require_fields, resumed
from occamrl._core.bellman import all_policy_values, policy_values
from occamrl._core.loop import (
    CHANGED,
    PLANNED,
    REDRAWN,
    close_episode,
    draw_episode,
    draw_first_state,
    empty_path,
    holds_actions,
    open_episode,
    play_episodes,
    value_of_policy,
)
from occamrl.errors import CheckpointError, ContractError, ParameterError
from occamrl.protocols import (
    Agent,
    Episode,
    EpisodeLearner,
    Floats,
    Ints,
    Known,
    Learner,
    Phase,
    PhaseOutcome,
    Played,
    Replay,
    RuledBases,
    Selector,
    Truth,
)

MOST_ROWS = 1_000  # of one phase, in which bases take turns
Keys = tuple[np.uint64, np.uint64]  # of the environment's draws and of the agent's

ROOM = 64  # episodes reserved at a time, where they are played one by one
KEPT = 1_000  # past policies of a base, for replays
_KEPT_BYTES = 2**26  # and no more memory than that
_MASK = 2**64 - 1


def scratch(known: Known) -> tuple[Floats, Floats]:
    """Return room for the uniform numbers of an episode and for two rows of values."""
    return np.zeros(known.horizon + 1 + (known.horizon + 1) % 2), np.zeros((2, known.states))


class Turn(NamedTuple):
    """One simulated episode."""

    regret: float
    total: float  # the sum of rewards
    planned: float
    pessimistic: int  # 1 if the planned value was below the optimum
    news: int  # PLANNED | CHANGED | REDRAWN
    episode: Episode
    bonus: Floats  # [H] the part of the rewards that depends on the outcome


class Addressed:
    """A generator that is put to the address (key, episode), which is cheaper than to make one."""

    def __init__(self) -> None:
        self._key, self._bits = np.uint64(0), np.random.Philox(key=0)
        self._draw, self._state = np.random.Generator(self._bits), self._bits.state

    def at(self, key: np.uint64, episode: int) -> np.random.Generator:
        """Return the generator at an address; it is good until the next call."""
        if key != self._key:
            self._key = self._state["state"]["key"][0] = key
        self._state["state"]["counter"][3] = episode
        self._bits.state = self._state
        return self._draw


def episode_of(at_rest: Floats, path: Ints, reward: Floats, actions: Ints, steps: int, ended: bool) -> Episode:
    """Return the first ``steps`` steps and, of an episode that ``ended``, the rest of the horizon in its end state."""
    s = int(path[steps])
    taken = [int(actions[h, path[h]]) for h in range(steps)]
    states, rewards = path[: steps + 1].tolist(), reward[:steps].tolist()
    for h in range(steps, actions.shape[0] if ended else steps):
        taken.append(int(actions[h, s]))
        states.append(s)
        rewards.append(float(at_rest[s * (at_rest.size // actions.shape[1]) + taken[-1]]))
    return Episode(np.array(states, dtype=np.int64), np.array(taken, dtype=np.int64), np.array(rewards, dtype=float))


def sum_of(episode: Episode) -> float:
    """Return the sum of rewards, added one after another as compiled code does."""
    return float(episode.rewards.cumsum()[-1]) if episode.rewards.size else 0.0


class Player(ABC):
    """What all players have."""

    state: Any
    table: Ints  # [H, S] the actions of the policy in play, in the simulator
    planned_value = math.nan  # of the episode that was opened last

    def __init__(self, known: Known) -> None:
        self.known = known
        self.table = np.zeros((known.horizon, known.states), dtype=np.int64)
        self._uniforms, self._achieved = scratch(known)

    @abstractmethod
    def reserve(self, episodes: int) -> None:
        """Make room in the state for that many episodes, where it does not grow by itself."""

    @abstractmethod
    def resume(self, saved: Any) -> None:
        """Go on from a saved state."""

    def simulate(self, truth: Truth, keys: Keys, first: int, regret: Floats, returns: Floats) -> tuple[int, int]:
        """Play ``regret.size`` simulated episodes; return the numbers of plans and of pessimistic episodes."""
        plans = pessimistic = 0
        for k in range(regret.size):
            turn = self.play_episode(truth, keys, first + k)
            regret[k], returns[k] = turn.regret, turn.total
            plans += turn.news & PLANNED
            pessimistic += turn.pessimistic
        return plans, pessimistic

    @abstractmethod
    def play_episode(self, truth: Truth, keys: Keys, episode: int) -> Turn:
        """Play one simulated episode."""

    @abstractmethod
    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""

    @abstractmethod
    def close(
        self, at_rest: Floats, path: Ints, bonus: Floats, reward: Floats, actions: Ints, steps: int, ended: bool
    ) -> float:
        """Learn from the first ``steps`` steps, as :func:`close_episode` does; return the sum of rewards."""

    @abstractmethod
    def evaluate(self, truth: Truth) -> Any:
        """Return the value V^{pi_k}_1 [S] of the policy in play."""

    def observe(self, start: int, key: np.uint64, episode: int, *rows: Any) -> int:
        """Plan for an episode that somebody else plays, and learn from it: ``rows`` are the arguments of ``close``."""
        news = self.open(start, key, episode, self.table)
        self.close(*rows)
        return news

    def turns(self) -> list[tuple[int, int]]:
        """Return, of the episodes since the last call, the base that played and whether it planned; none, if alone."""
        return []


class CompiledPlayer(Player):
    """A learner of compiled functions."""

    def __init__(self, learner: Learner, known: Known, state: Any) -> None:
        super().__init__(known)
        self.learner, self.state = learner, state
        self.model = model_of(learner, known)
        require_fields(state, learner.fields(known, state))
        self._path, self._one, self._room = empty_path(known.horizon), np.zeros((2, 1)), 0
        self._truth: Truth | None = None  # of the value that is at hand for the table that is

    def reserve(self, episodes: int) -> None:
        """Make room in the state for that many episodes."""
        self.state = self.learner.reserve(self.state, episodes)

    def invalidate(self) -> None:
        """Take note that the state may have been written to: the table at hand may be another one's."""
        self._truth = None

    def resume(self, saved: Any) -> None:
        """Go on from a saved state, checked, in the arrays of the fresh one, which a selector's memory may share."""
        self.state = resumed(self.learner, self.known, self.model, self.state, saved)

    def _play(
        self, truth: Truth, keys: Keys, first: int, regret: Floats, returns: Floats
    ) -> tuple[int, int, int, float]:
        fresh, self._truth = truth is not self._truth, truth
        into, room = (regret, returns), (self._uniforms, self._achieved)
        told: tuple[int, int, int, float] = play_episodes(
            self.model, self.state, truth, *keys, first, *into, *room, self.table, self._path, fresh
        )
        return told

    def simulate(self, truth: Truth, keys: Keys, first: int, regret: Floats, returns: Floats) -> tuple[int, int]:
        """Play ``regret.size`` simulated episodes; return the numbers of plans and of pessimistic episodes."""
        self.reserve(regret.size)
        plans, pessimistic, _, _ = self._play(truth, keys, first, regret, returns)
        return plans, pessimistic

    def play_episode(self, truth: Truth, keys: Keys, episode: int) -> Turn:
        """Play one simulated episode."""
        self._make_room()
        regret, returns = self._one
        _, pessimistic, news, planned = self._play(truth, keys, episode, regret, returns)
        path = self._path
        seen = Episode(path.states.copy(), path.actions.copy(), path.reward.copy())
        return Turn(regret.item(), returns.item(), planned, pessimistic, news, seen, path.bonus)

    def observe(self, start: int, key: np.uint64, episode: int, *rows: Any) -> int:
        """Plan for an episode that somebody else plays, and learn from it: it takes as much room as one's own."""
        self._make_room()
        return super().observe(start, key, episode, *rows)

    def _make_room(self) -> None:
        """Reserve for many episodes at a time, where they come one by one."""
        if self._room == 0:
            self.reserve(ROOM)
            self._room = ROOM
        self._room -= 1

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
        self._actions, self._truth = actions, None
        news, self.planned_value = open_episode(self.model, self.state, start, key, episode, actions)
        return int(news)

    def close(
        self, at_rest: Floats, path: Ints, bonus: Floats, reward: Floats, actions: Ints, steps: int, ended: bool
    ) -> float:
        """Learn from the first ``steps`` steps, as :func:`close_episode` does; return the sum of rewards."""
        rows = at_rest, path, bonus, reward, actions, steps, ended
        return float(close_episode(self.model, self.state, *rows, self._path))

    def evaluate(self, truth: Truth) -> Any:
        """Return the value V^{pi_k}_1 [S] of the policy in play."""
        value_of_policy(self.model, self.state, truth, self._actions, self._achieved)
        return self._achieved[0]


class PlainPlayer(Player):
    """A learner in plain NumPy: Python plans and learns, compiled code draws episodes and evaluates policies.

    ``plan`` is called before every episode, so every episode counts as a plan.
    """

    def __init__(self, learner: EpisodeLearner, known: Known, state: Any) -> None:
        super().__init__(known)
        self.learner, self.state = learner, state
        self._policy: Any = None  # the policy in play, as it was returned
        self._checked = b""  # its bytes
        self._written = False  # to the player's own table
        self._address, self._bonus = Addressed(), np.zeros(known.horizon)
        self._truth: Truth | None = None  # of the values at hand
        self._best: list[float] = []
        self._value: list[float] = []

    def reserve(self, episodes: int) -> None:
        """Do nothing: the state grows by itself."""

    def resume(self, saved: Any) -> None:
        """Go on from a saved state; what is a dict may be shared with a selector's memory."""
        if isinstance(self.state, dict) and isinstance(saved, dict):
            self.state.clear()
            self.state.update(saved)
        else:
            self.state = saved

    def play_episode(self, truth: Truth, keys: Keys, episode: int) -> Turn:
        """Play one simulated episode."""
        horizon = self.known.horizon
        start = draw_first_state(truth.initial_cumulative, keys[0], episode, self._uniforms)
        news = self.open(start, keys[1], episode, self.table)
        if truth is not self._truth:
            self._truth, self._best = truth, truth.optimal_values[0].tolist()
            self._value = self.evaluate(truth).tolist()
        path, taken = np.empty(horizon + 1, dtype=np.int64), np.empty(horizon, dtype=np.int64)
        rewards = np.empty(horizon)
        path[0] = start
        rows = path, taken, self._bonus, rewards
        total = draw_episode(truth, keys[0], episode, self._uniforms, self.table, *rows)
        seen, planned = Episode(path, taken, rewards), self.planned_value
        self._learn(seen)
        best = self._best[start]
        pessimistic = int(planned < best - 1e-9 * horizon)
        return Turn(best - self._value[start], total, planned, pessimistic, news, seen, self._bonus)

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
        draw = self._address.at(key, episode)
        planned = self.learner.plan(self.known, self.state, start, draw)
        policy, value = planned if isinstance(planned, tuple) else (planned, math.nan)
        self.planned_value = float(value)
        policy = np.asarray(policy)
        content = policy.tobytes()
        changed = content != self._checked or self._policy is None or policy.shape != self._policy.shape
        if changed:
            self._policy, self._checked = self._sound(policy), content
            self._truth, self._written = None, False
        if self._policy.ndim == 3:  # every (h, s), which is visited at most once, has its action drawn beforehand
            passed = draw.random((*actions.shape, 1)) >= self._policy.cumsum(axis=2)[:, :, :-1]
            actions[...] = passed.sum(axis=2)
            return PLANNED | CHANGED | REDRAWN if changed else PLANNED | REDRAWN
        if actions is not self.table or not self._written:
            actions[...] = self._policy
            self._written |= actions is self.table
        return PLANNED | CHANGED if changed else PLANNED

    def _sound(self, policy: Any) -> Any:
        """Return a copy of a policy that compiled code may follow."""
        sizes = self.known.horizon, self.known.states, self.known.actions
        if policy.shape == sizes[:2] and policy.dtype.kind in "iu":
            table = policy.astype(np.int64, order="C")
            if holds_actions(table, self.known.actions):
                return table
        elif policy.shape == sizes and policy.dtype.kind == "f":
            shares = policy.astype(np.float64, order="C")
            if (shares >= 0.0).all() and np.allclose(shares.sum(axis=2), 1.0, rtol=0.0, atol=1e-9):
                return shares
        raise ContractError(
            f"{type(self.learner).__name__}.plan returned {policy.dtype}{list(policy.shape)}; expected actions in "
            f"[0, {sizes[2]}) as integers {list(sizes[:2])}, or their probabilities {list(sizes)}"
        )

    def close(
        self, at_rest: Floats, path: Ints, bonus: Floats, reward: Floats, actions: Ints, steps: int, ended: bool
    ) -> float:
        """Learn from the first ``steps`` steps and, after an episode that ``ended``, from rest; return the sum."""
        episode = episode_of(at_rest, path, reward, actions, steps, ended)
        self._learn(episode)
        return sum_of(episode)

    def evaluate(self, truth: Truth) -> Any:
        """Return the value V^{pi_k}_1 [S] of the policy in play."""
        kernel = truth.outcomes, truth.probability, truth.base_reward
        if self._policy.ndim == 3:
            return all_policy_values(*kernel, self._policy)[0]
        policy_values(*kernel, self._policy, self._achieved)
        return self._achieved[0]

    def _learn(self, episode: Episode) -> None:
        after = self.learner.learn(self.known, self.state, episode)
        if after is not None:
            self.state = after


class Past:
    """Tables of actions that a base has played, for replays: a uniform sample of its episodes.

    The first :data:`KEPT` episodes are kept; after that, episode n takes a random place with probability KEPT/n (a
    reservoir: Vitter 1985), so that a uniform draw from those kept is one from all. There are fewer places where tables
    are so large that these would not fit in 64 MB. Equal neighbours share their table.
    """

    def __init__(self, known: Known) -> None:
        self._shape = known.horizon, known.states
        self._kind = np.min_scalar_type(known.actions - 1)
        self._actions = known.actions
        self.places = max(1, min(KEPT, _KEPT_BYTES // (known.horizon * known.states * self._kind.itemsize)))
        self.episodes = 0
        self._kept: list[Any] = []
        self._last: Any = None

    def add(self, table: Ints, changed: bool, draw: np.random.Generator) -> None:
        """Take in the table of another episode; unless it may have ``changed``, it is that of the last one."""
        if self._last is None or (changed and not np.array_equal(table, self._last)):
            self._last = table.astype(self._kind)
        self.episodes += 1
        if self.episodes <= self.places:
            self._kept.append(self._last)
        else:
            place = int(draw.integers(self.episodes))
            if place < self.places:
                self._kept[place] = self._last

    def drawn(self, draw: np.random.Generator) -> Any:
        """Return the table of an episode, all being equally likely."""
        return self._kept[int(draw.integers(len(self._kept)))]

    def to_tree(self) -> dict[str, Any]:
        """Return it as plain data and arrays, each table once, the last one at the end."""
        tables = {id(table): table for table in self._kept}
        if self._last is not None:
            tables[id(self._last)] = tables.pop(id(self._last), self._last)
        at = {number: i for i, number in enumerate(tables)}
        places = np.array([at[id(table)] for table in self._kept], dtype=np.int64)
        stacked = np.array(list(tables.values()), dtype=self._kind).reshape(-1, *self._shape)
        return {"episodes": self.episodes, "tables": stacked, "places": places}

    def resume(self, tree: Any) -> None:
        """Go on from a tree, checked: compiled code will follow these tables."""
        episodes, tables, places = tree["episodes"], tree["tables"], tree["places"]
        sound = isinstance(tables, np.ndarray) and isinstance(places, np.ndarray) and type(episodes) is int
        sound = sound and tables.dtype == self._kind and tables.shape[1:] == self._shape and places.dtype == np.int64
        sound = sound and places.shape == (min(episodes, self.places),) and (len(tables) > 0) == (episodes > 0)
        if not sound or (tables >= self._actions).any() or ((places < 0) | (places >= len(tables))).any():
            raise CheckpointError("past", got="other arrays", expected=f"tables of {list(self._shape)} actions")
        self.episodes, kept = episodes, list(tables)
        self._kept = [kept[i] for i in places.tolist()]
        self._last = kept[-1] if kept else None


class ArenaPlayer(Player):
    """A rule and a bank of players, one per base; the base that the rule chooses plays one episode.

    The draws of the rule are at the address (key, episode), those of base i at one of its own.
    """

    def __init__(self, arena: RuledBases, known: Known, state: Any) -> None:
        super().__init__(known)
        self.learner, self.rule, self._state = arena, arena.rule, state
        self.largest = arena.largest(known)
        self.memory, self.plays = state["memory"], state["plays"]
        self.players = [player(base, known, own) for base, own in zip(arena.bases, state["bases"], strict=True)]
        self.past = [Past(known) for _ in arena.bases] if getattr(arena.rule, "replays", False) else []
        for past, tree in zip(self.past, state["past"], strict=False):
            past.resume(tree)
        self._address, self._rest = Addressed(), np.zeros(known.states * known.actions)
        self._key, self._keys = np.uint64(0), [np.uint64(0)] * len(self.players)
        self._turns: list[tuple[int, int]] = []
        self._in_play = -1  # the base whose policy is in play in an environment; -1 for none and for replays
        self._unseen = [CHANGED] * len(self.players)  # news of plans that were made for somebody else's episodes

    @property
    def state(self) -> Any:
        """The rule's memory, a state per base, past policies, and how often each base played."""
        self._state["memory"], self._state["plays"] = self.memory, self.plays
        self._state["bases"] = [each.state for each in self.players]
        self._state["past"] = [each.to_tree() for each in self.past]
        return self._state

    def reserve(self, episodes: int) -> None:
        """Make room in the state of every base for that many episodes."""
        for each in self.players:
            each.reserve(episodes)

    def resume(self, saved: Any) -> None:
        """Go on from a saved state; the parts that compiled code sees are checked."""
        plays, count = saved["plays"], len(self.players)
        sound = isinstance(plays, list) and len(plays) == count and all(type(n) is int and n >= 0 for n in plays)
        if not sound or not isinstance(saved["memory"], dict):
            raise CheckpointError("state", got="other parts", expected=f"a rule's memory, and plays of {count} bases")
        for each, own in zip(self.players, saved["bases"], strict=True):
            each.resume(own)
        for past, tree in zip(self.past, saved["past"], strict=True):
            past.resume(tree)
        self.memory, self.plays = saved["memory"], plays

    def _choose(self, key: np.uint64, episode: int) -> tuple[int, bool]:
        """Ask the rule; return the base and whether it is a replay. Draws go on where the rule left off."""
        if key != self._key:
            self._key = key
            self._keys = [_key_of_base(int(key), i) for i in range(len(self.players))]
        self._draw = self._address.at(key, episode)
        choice = self.rule.choose(self.memory, self._draw)
        replay = isinstance(choice, Replay)
        try:
            base = operator.index(choice.base if isinstance(choice, Replay) else choice)
        except TypeError:
            base = -1  # no number of a base
        expected = ""
        if replay and not self.past:
            expected = "no Replay without replays = True"
        elif not 0 <= base < len(self.players):
            expected = f"a base in [0, {len(self.players)})"
        elif replay and not self.past[base].episodes:
            expected = f"no Replay of base {base}, which has not played yet"
        if expected:
            raise ContractError(f"{type(self.rule).__name__}.choose returned {choice!r}; expected {expected}")
        return base, replay

    def play_episode(self, truth: Truth, keys: Keys, episode: int) -> Turn:
        """Play one simulated episode."""
        base, replay = self._choose(keys[1], episode)
        if replay:
            turn = self._replay(truth, keys[0], episode, self.past[base].drawn(self._draw))
        else:
            chosen = self.players[base]
            turn = chosen.play_episode(truth, (keys[0], self._keys[base]), episode)
            if self.learner.share:
                rows = turn.episode.states, turn.bonus, turn.episode.rewards, chosen.table, self.known.horizon, False
                self._share(base, int(turn.episode.states[0]), episode, self._rest, *rows)
            self.table = chosen.table
            self._keep(base, self.table, turn.news)
        self._tell(base, turn.total, turn.planned, turn.episode, replay, turn.news)
        return turn

    def _keep(self, base: int, table: Ints, news: int) -> None:
        """Keep the table of an episode, for replays."""
        if self.past:
            several = isinstance(self.players[base], ArenaPlayer)  # whose bases do not know of each other
            changed = several or bool((news | self._unseen[base]) & (CHANGED | REDRAWN))
            self.past[base].add(table, changed, self._draw)
            self._unseen[base] = 0

    def _replay(self, truth: Truth, key: np.uint64, episode: int, table: Any) -> Turn:
        """Play a past policy, without learning."""
        self.table, horizon = table.astype(np.int64), self.known.horizon
        path, taken = np.empty(horizon + 1, dtype=np.int64), np.empty(horizon, dtype=np.int64)
        bonus, rewards = np.empty(horizon), np.empty(horizon)
        path[0] = start = draw_first_state(truth.initial_cumulative, key, episode, self._uniforms)
        total = draw_episode(truth, key, episode, self._uniforms, self.table, path, taken, bonus, rewards)
        regret = float(truth.optimal_values[0, start] - self._value_of(truth, self.table)[start])
        return Turn(regret, total, math.nan, 0, CHANGED, Episode(path, taken, rewards), bonus)

    def _value_of(self, truth: Truth, table: Ints) -> Any:
        policy_values(truth.outcomes, truth.probability, truth.base_reward, table, self._achieved)
        return self._achieved[0]

    def _share(self, base: int, start: int, episode: int, *rows: Any) -> None:
        """Let the other bases learn from an episode; each plans for it first, from what it knew before."""
        for i, each in enumerate(self.players):
            if i != base:
                self._unseen[i] |= each.observe(start, self._keys[i], episode, *rows)

    def _tell(self, base: int, total: float, planned: float, episode: Episode, replay: bool, news: int) -> None:
        """Tell the rule how an episode went."""
        value = total / self.largest
        if value > 1.0 + 1e-9:
            raise ParameterError("largest_return", got=self.largest, expected=f"no less than {total}, a return")
        told = Played(min(max(value, 0.0), 1.0), planned / self.largest, int(episode.states[0]), episode, replay)
        self.rule.update(self.memory, base, told)
        self.plays[base] += 1
        self._turns.append((base, news & PLANNED))

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> int:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return PLANNED | CHANGED bits."""
        base, replay = self._choose(key, episode)
        self._opened = base, replay, start, episode
        if replay:
            actions[...] = self.past[base].drawn(self._draw)
            self.planned_value, news = math.nan, CHANGED
        else:
            news = self.players[base].open(start, self._keys[base], episode, actions)
            self.planned_value = self.players[base].planned_value
        before, self._in_play = self._in_play, -1 if replay else base
        self._news, self._actions = news, actions
        return news if base == before else news | CHANGED

    def close(
        self, at_rest: Floats, path: Ints, bonus: Floats, reward: Floats, actions: Ints, steps: int, ended: bool
    ) -> float:
        """Let the base learn, unless it was a replay, and tell the rule; return the sum of rewards."""
        base, replay, start, episode = self._opened
        seen = episode_of(at_rest, path, reward, actions, steps, ended)
        if not replay:
            rows = at_rest, path, bonus, reward, actions, steps, ended
            self.players[base].close(*rows)
            if self.learner.share:
                self._share(base, start, episode, *rows)
            self._keep(base, actions, self._news)
        total = sum_of(seen)
        self._tell(base, total, self.planned_value, seen, replay, self._news)
        return total

    def evaluate(self, truth: Truth) -> Any:
        """Return the value V^{pi_k}_1 [S] of the policy in play."""
        if self._in_play < 0:
            return self._value_of(truth, self._actions)
        return self.players[self._in_play].evaluate(truth)

    def observe(self, start: int, key: np.uint64, episode: int, *rows: Any) -> int:
        """Let every base learn from an episode that somebody else plays; the rule is not told of it."""
        for i, each in enumerate(self.players):
            self._unseen[i] |= each.observe(start, _key_of_base(int(key), i), episode, *rows)
        return CHANGED

    def turns(self) -> list[tuple[int, int]]:
        """Return, of the episodes since the last call, the base that played and whether it planned."""
        for each in self.players:  # which only the run's own player is asked for
            each.turns()
        turns, self._turns = self._turns, []
        return turns


def _key_of_base(key: int, base: int) -> np.uint64:
    """Return the key of a base's own draws (SplitMix64: Steele, Lea and Flood 2014)."""
    z = (key + (base + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return np.uint64(z ^ (z >> 31))


def player(learner: Any, known: Known, state: Any) -> Player:
    """Return the player of a learner, whichever kind it is."""
    if isinstance(learner, Learner):
        return CompiledPlayer(learner, known, state)
    if isinstance(learner, RuledBases):
        return ArenaPlayer(learner, known, state)
    return PlainPlayer(learner, known, state)


def running_total(before: float, values: Floats) -> float:
    """Return ``before`` plus all values, added one after another: the same bits however they are cut into chunks."""
    return float(np.cumsum(np.concatenate([[before], values]))[-1])


def _require_rows(rows: Any) -> None:
    """Refuse a table of phases that no walk has."""
    for i, row in enumerate(rows if isinstance(rows, list) and rows else [None]):
        for name, start in _MEASURED.items():
            value: Any = row.get(name) if isinstance(row, dict) else None
            if type(value) is not type(start) or abs(value) > 2**53 or (type(start) is int and value < 0):
                raise CheckpointError(f"rows[{i}].{name}", got=str(value)[:80], expected=f"a number like {start}")
        plays = row.get("plays") if isinstance(row, dict) else None
        if plays is not None and not (isinstance(plays, list) and all(type(n) is int and n >= 0 for n in plays)):
            raise CheckpointError(f"rows[{i}].plays", got=str(plays)[:80], expected="how often each base played")


_MEASURED: dict[str, Any] = {"episodes": 0, "regret": 0.0, "plans": 0, "realised_return": 0.0}
_TURNS = ("base", "plays")  # of phases in which bases take turns: the one that played, from 1; plays of each


class _Alone(Selector):
    """A learner that plays by itself."""

    def __init__(self, learner: Learner | EpisodeLearner | RuledBases) -> None:
        self.learner = learner

    def start(self, known: Known) -> dict[str, Any]:
        return {}

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        return Phase(self.learner, self.learner.begin(known), label=type(self.learner).__name__)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        raise ContractError("an endless phase does not end")


def plain(value: Any, name: str) -> Any:
    """Return a fact as plain data, which can be compared, put into a table and written as JSON."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part, name) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ContractError(f"the fact {name!r} is a {type(value).__name__}; numbers, strings, lists and arrays are facts")


def decided(phase: Phase) -> dict[str, Any]:
    """Return what a row of the table says about a phase before it is played."""
    row: dict[str, Any] = {"epoch": phase.epoch, "label": phase.label}
    for name, fact in phase.facts.items():
        if name in row or name in _MEASURED or name in _TURNS:
            raise ContractError(f"a fact of phase {phase.label!r} is called {name!r}, which is taken")
        row[name] = plain(fact, name)
    return row


def same(one: Any, other: Any) -> bool:
    """Return whether two facts agree: numbers up to the rounding that differs between machines, the rest exactly."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def facts_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says about its phase, without what was measured."""
    return {key: fact for key, fact in row.items() if key not in _MEASURED and key not in _TURNS}


def coarsened(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return rows of the same facts, in which bases took turns, as at most ``most`` of them.

    Neighbours are merged, from the oldest on, where both together have at most w episodes, w being the smallest power
    of two that is enough: a row of one base that played for long stays as it is. A merged row has no ``base``.
    """
    width = 2
    while len(rows) > most:
        merged = [rows[0]]
        for row in rows[1:]:
            last = merged[-1]
            if last["episodes"] + row["episodes"] <= width:
                counts = {name: last[name] + row[name] for name in _MEASURED}
                plays = [one + other for one, other in zip(last["plays"], row["plays"], strict=True)]
                base = row["base"] if row["base"] == last["base"] else None
                merged[-1] = {**row, **counts, "base": base, "plays": plays}
            else:
                merged.append(row)
        rows, width = merged, 2 * width
    return rows


def as_selector(agent: Agent) -> Selector:
    """Return a selector for any agent."""
    if isinstance(agent, type):  # a class has all the methods that its instances have
        raise ParameterError("agent", got=f"the class {agent.__name__}", expected="an instance of it")
    if isinstance(agent, Selector):
        return agent
    if isinstance(agent, (Learner, EpisodeLearner, RuledBases)):
        return _Alone(agent)
    raise ParameterError("agent", got=type(agent).__name__, expected="a learner or a selector")


class PhaseWalk:
    """The phase in play, its learner's state, and one row of facts per phase that was played.

    Rows of consecutive phases with the same epoch, label and facts are joined, so that a selector which decides anew
    every episode does not make a table as long as the run. In a phase of an arena, every base that takes over from
    another one has a row, until there are too many (:func:`coarsened`).
    """

    def __init__(self, agent: Agent, known: Known) -> None:
        self.selector, self.known = as_selector(agent), known
        self.memory = self.selector.start(known)
        self.rows: list[dict[str, Any]] = []
        self._enter()

    def _enter(self) -> None:
        self.before = copy.deepcopy(self.memory)  # what the decision follows from: with it, a run can be resumed
        phase = self.selector.next_phase(self.known, self.memory)
        if phase.episodes is not None and phase.episodes < 1:
            raise ContractError(f"phase {phase.label!r} has {phase.episodes} episodes; at least one is needed")
        self._take(phase)
        row = decided(phase)
        if not self.rows or row != facts_of(self.rows[-1]):
            self._first = len(self.rows)  # the first row with these facts
            self.rows.append({**row, **_MEASURED})

    def _take(self, phase: Phase) -> None:
        self.phase, last = phase, getattr(self, "player", None)
        own = isinstance(last, (CompiledPlayer, PlainPlayer))  # an arena's player keeps parts of its state by itself
        if last is None or not own or last.learner is not phase.learner or last.state is not phase.state:
            self.player = player(phase.learner, self.known, phase.state)
        elif isinstance(last, CompiledPlayer):
            last.invalidate()
        self.played, self.plans, self.returned = 0, 0, 0.0

    @property
    def state(self) -> Any:
        """The state of the learner in play."""
        return self.player.state

    @property
    def remaining(self) -> int | None:
        """Episodes left in this phase; None when it is endless."""
        return None if self.phase.episodes is None else self.phase.episodes - self.played

    def advance(self, plans: int, returns: Floats, regret: Floats) -> None:
        """Take note of episodes played in this phase, and enter the next phase when it is over."""
        turns = self.player.turns()
        if turns:
            self._take_turns(turns, returns, regret)
        else:
            row = self.rows[-1]
            row["episodes"] += returns.size
            row["plans"] += plans
            row["realised_return"] = running_total(row["realised_return"], returns)
            row["regret"] = running_total(row["regret"], regret)
        self.played += returns.size
        self.plans += plans
        self.returned = running_total(self.returned, returns)
        if self.remaining == 0:
            self.finish()

    def _take_turns(self, turns: list[tuple[int, int]], returns: Floats, regret: Floats) -> None:
        """Take note of episodes of several bases: a new row for each that takes over."""
        row, bases = self.rows[-1], len(self.phase.learner.bases)
        for (base, plans), value, loss in zip(turns, returns.tolist(), regret.tolist(), strict=False):
            if row["episodes"] and row["base"] != base + 1:
                row = {**facts_of(row), **_MEASURED}
                self.rows.append(row)
                if len(self.rows) - self._first > MOST_ROWS:
                    self.rows[self._first : -1] = coarsened(self.rows[self._first : -1], MOST_ROWS // 2)
            if not row["episodes"]:
                row["base"], row["plays"] = base + 1, [0] * bases
            row["episodes"] += 1
            row["plays"][base] += 1
            row["plans"] += plans
            row["realised_return"] += value
            row["regret"] += loss

    def finish(self) -> None:
        """Tell the selector how the phase went, and enter the next one."""
        outcome = PhaseOutcome(self.played, self.plans, self.returned, self.state)
        self.selector.finish_phase(self.known, self.memory, self.phase, outcome)
        self._enter()

    def fork(self) -> PhaseWalk:
        """Return an independent copy: what is played on it leaves this one as it is."""
        return PhaseWalk.from_tree(self.selector, self.known, copy.deepcopy(self.to_tree()))

    def to_tree(self) -> dict[str, Any]:
        """Return everything as plain data and arrays; the phase in play follows from the memory before it."""
        counts = {"played": self.played, "plans": self.plans, "returned": self.returned}
        return {"before": self.before, "state": self.state, "rows": self.rows, **counts}

    @classmethod
    def from_tree(cls, agent: Agent, known: Known, tree: dict[str, Any]) -> PhaseWalk:
        """Return the walk of a tree: the selector decides once more as it did, which gives the phase under way."""
        walk = cls.__new__(cls)
        walk.selector, walk.known = as_selector(agent), known
        walk.before, walk.rows = tree["before"], tree["rows"]
        _require_rows(walk.rows)
        check = getattr(walk.selector, "resume", None)  # before compiled code may see what a file holds
        if check is not None:
            check(known, walk.before)
        walk.memory = copy.deepcopy(walk.before)
        phase = walk.selector.next_phase(known, walk.memory)
        for name, fact in decided(phase).items():
            saved = walk.rows[-1].get(name) if walk.rows else None
            if not same(fact, saved):  # other sources or parameters than those that decided it: no row may mix both
                raise CheckpointError(f"rows[{len(walk.rows) - 1}].{name}", got=saved, expected=fact)
        walk._take(phase)
        most = math.inf if phase.episodes is None else phase.episodes
        for name, limit in (("played", most), ("plans", math.inf)):
            if type(tree[name]) is not int or not 0 <= tree[name] <= limit:
                raise CheckpointError(name, got=tree[name], expected=f"an integer from 0 to {limit}")
        walk.played, walk.plans, walk.returned = tree["played"], tree["plans"], float(tree["returned"])
        walk.player.resume(tree["state"])
        walk._first = len(walk.rows) - 1
        while walk._first and facts_of(walk.rows[walk._first - 1]) == facts_of(walk.rows[-1]):
            walk._first -= 1
        plays, bases = walk.rows[-1].get("plays"), getattr(phase.learner, "bases", ())
        if plays is not None and len(plays) != len(bases):
            raise CheckpointError("plays", got=plays, expected=f"those of {len(bases)} bases")
        return walk

"""Who plays: the phase that an agent is in, and its learner at play.

A selector hands out phases; a learner by itself is an agent with one endless phase. :class:`PhaseWalk` says who plays
now and for how many more episodes.

A player gives the same few calls to a compiled learner, to one in plain NumPy and to a rule over bases: ``open`` before
an episode, ``close`` after it, and ``evaluate`` where the truth is known. Compiled learners can also ``simulate`` many
episodes in one call.
"""

from __future__ import annotations

import copy
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from occamrl._core.arena import model_of, require_fields, resumed
from occamrl._core.bellman import all_policy_values, policy_values
from occamrl._core.loop import (
    CHANGED,
    PLANNED,
    close_episode,
    empty_path,
    holds_actions,
    open_episode,
    play_episodes,
    value_of_policy,
)
from occamrl.errors import CheckpointError, ContractError, ParameterError
from occamrl.protocols import (
    MOST_EPISODES,
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
KEPT = 1_000  # past policies of a base, for replays
_KEPT_BYTES = 2**26  # and no more memory than that
_MASK = 2**64 - 1


def empty_uniforms(horizon: int) -> Floats:
    """Return room for the uniform numbers of an episode."""
    return np.zeros(horizon + 1 + (horizon + 1) % 2)


class Seen(NamedTuple):
    """An episode as a source saw it: the first ``steps`` steps, then rest in the end state if it ``ended``."""

    at_rest: Floats  # [S*A] what a step in an end state earns
    path: Ints  # [H + 1] states
    bonus: Floats  # [H] the part of the rewards that depends on the outcome
    reward: Floats  # [H]
    actions: Ints  # [H, S] the policy that was followed
    steps: int
    ended: bool
    taken: Ints  # [H] the actions of these steps

    @property
    def episode(self) -> Episode:
        """The episode that a learner is taught, up to the horizon if it ended."""
        steps, (horizon, states) = self.steps, self.actions.shape
        seen = Episode(self.path[: steps + 1].copy(), self.taken[:steps].copy(), self.reward[:steps].copy())
        if steps == horizon or not self.ended:
            return seen
        rest = self.actions[steps:, seen.states[-1]]
        earned = self.at_rest[seen.states[-1] * (self.at_rest.size // states) + rest]
        path = np.append(seen.states, np.full(horizon - steps, seen.states[-1]))
        return Episode(path, np.append(seen.actions, rest), np.append(seen.rewards, earned))


def episode_return(episode: Episode) -> float:
    """Return the sum of rewards, added one after another as compiled code does."""
    return float(episode.rewards.cumsum()[-1]) if episode.rewards.size else 0.0


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


class Player(ABC):
    """A learner at play."""

    learner: Any
    state: Any
    planned_value = math.nan  # of the episode that was opened last
    base = -1  # which of several bases plays that episode
    changed = True  # the policy, since it was evaluated

    def __init__(self, known: Known) -> None:
        self.known = known
        self.achieved: Floats = np.zeros((2, known.states))

    def reserve(self, episodes: int) -> None:
        """Make room in the state for that many episodes, where it does not grow by itself."""
        return

    @abstractmethod
    def resume(self, saved: Any) -> None:
        """Go on from a saved state, checked."""

    @abstractmethod
    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> bool:
        """Begin an episode in ``start`` and write its policy to ``actions`` [H, S]; return whether a plan was made."""

    @abstractmethod
    def close(self, seen: Seen) -> float:
        """Learn from the episode; return the sum of its rewards."""

    @abstractmethod
    def evaluate(self, truth: Truth) -> None:
        """Write the value V^{pi_k}_1 of the policy in play to ``achieved[0]``; ``achieved`` is [2, S]."""

    def value(self, truth: Truth, start: int) -> float:
        """Return the value V^{pi_k}_1(start) of the policy in play, evaluated when it has changed."""
        if self.changed:
            self.evaluate(truth)
            self.changed = False
        return self.achieved.item(0, start)

    def observe(self, start: int, key: np.uint64, episode: int, seen: Seen) -> None:
        """Plan for an episode that somebody else plays, and learn from it."""
        self.open(start, key, episode, np.empty_like(seen.actions))
        self.close(seen)


class CompiledPlayer(Player):
    """A learner of compiled functions."""

    def __init__(self, learner: Learner, known: Known, state: Any) -> None:
        super().__init__(known)
        self.learner, self.state = learner, state
        self.model = model_of(learner, known)
        require_fields(state, learner.fields(known, state))
        self.table = np.zeros((known.horizon, known.states), dtype=np.int64)
        self._uniforms, self._path = empty_uniforms(known.horizon), empty_path(known.horizon)

    def reserve(self, episodes: int) -> None:
        """Make room in the state for that many episodes."""
        self.state = self.learner.reserve(self.state, episodes)

    def resume(self, saved: Any) -> None:
        """Go on from a saved state, checked, in the arrays of the fresh one, which a selector's memory may share."""
        self.state = resumed(self.learner, self.known, self.model, self.state, saved)

    def simulate(
        self, truth: Truth, keys: tuple[np.uint64, np.uint64], first: int, regret: Floats, returns: Floats
    ) -> tuple[int, int]:
        """Play ``regret.size`` simulated episodes; return the numbers of plans and of pessimistic episodes.

        ``keys`` are those of the environment's draws and of the agent's.
        """
        self.reserve(regret.size)
        self.changed = True
        environment, agent = keys
        told: tuple[int, int, int, float] = play_episodes(
            self.model, self.state, truth, environment, agent, first, regret, returns,
            self._uniforms, self.achieved, self.table, self._path, True,
        )  # fmt: skip
        return told[:2]

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> bool:
        """Begin an episode, in compiled code."""
        self._actions = actions
        news, self.planned_value = open_episode(self.model, self.state, start, key, episode, actions)
        self.changed |= bool(news & CHANGED)
        return bool(news & PLANNED)

    def close(self, seen: Seen) -> float:
        """Learn from the episode, in compiled code."""
        return float(close_episode(self.model, self.state, *seen[:-1], self._path))

    def evaluate(self, truth: Truth) -> None:
        """Evaluate the policy in play, in compiled code."""
        value_of_policy(self.model, self.state, truth, self._actions, self.achieved)


class PlainPlayer(Player):
    """A learner in plain NumPy. ``plan`` is called before every episode, so every episode counts as a plan."""

    def __init__(self, learner: EpisodeLearner, known: Known, state: Any) -> None:
        super().__init__(known)
        self.learner, self.state = learner, state
        self._policy: Any = None  # the policy in play, a copy
        self._content = b""  # its bytes, as it was returned
        self._address = Addressed()

    def resume(self, saved: Any) -> None:
        """Go on from a saved state; what is a dict may be shared with a selector's memory."""
        check = getattr(self.learner, "resume", None)
        if check is not None:
            check(self.known, saved)
        if isinstance(self.state, dict) and isinstance(saved, dict):
            self.state.clear()
            self.state.update(saved)
        else:
            self.state = saved

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> bool:
        """Begin an episode with a policy that compiled code may follow."""
        draw = self._address.at(key, episode)
        planned = self.learner.plan(self.known, self.state, start, draw)
        policy, value = planned if isinstance(planned, tuple) else (planned, math.nan)
        self.planned_value, policy = float(value), np.asarray(policy)
        content = policy.tobytes()
        if content != self._content or policy.shape != self._policy.shape:
            self._policy, self._content, self.changed = self._sound(policy), content, True
        if self._policy.ndim == 3:  # every (h, s), which is visited at most once, has its action drawn beforehand
            passed = draw.random((*actions.shape, 1)) >= self._policy.cumsum(axis=2)[:, :, :-1]
            actions[...] = passed.sum(axis=2)
        else:
            actions[...] = self._policy
        return True

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

    def close(self, seen: Seen) -> float:
        """Learn from the episode; return its sum of rewards, added one after another as compiled code does."""
        episode = seen.episode
        after = self.learner.learn(self.known, self.state, episode)
        if after is not None:
            self.state = after
        return episode_return(episode)

    def evaluate(self, truth: Truth) -> None:
        """Evaluate the policy, whose actions may be random."""
        if self._policy.ndim == 2:
            policy_values(truth, self._policy, self.achieved)
        else:
            kernel = truth.outcomes, truth.probability, truth.base_reward
            self.achieved[0] = all_policy_values(*kernel, self._policy)[0]


class Past:
    """Tables of actions that a base has played, for replays: a uniform sample of its episodes.

    The first :data:`KEPT` episodes are kept; after that, episode n takes a random place with probability KEPT/n (a
    reservoir: Vitter 1985), so that a uniform draw from those kept is one from all. There are fewer places where tables
    are so large that these would not fit in 64 MB.
    """

    def __init__(self, known: Known) -> None:
        kind, self._actions = np.min_scalar_type(known.actions - 1), known.actions
        places = max(1, min(KEPT, _KEPT_BYTES // (known.horizon * known.states * kind.itemsize)))
        self._tables = np.zeros((places, known.horizon, known.states), dtype=kind)
        self.episodes = 0

    @property
    def tables(self) -> Any:
        """Those that are kept."""
        return self._tables[: self.episodes]

    def add(self, table: Ints, draw: np.random.Generator) -> None:
        """Take in the table of another episode."""
        self.episodes += 1
        place = self.episodes - 1
        if place >= len(self._tables):
            place = int(draw.integers(self.episodes))
        if place < len(self._tables):
            self._tables[place] = table

    def drawn(self, draw: np.random.Generator) -> Any:
        """Return the table of an episode, all being equally likely."""
        return self.tables[int(draw.integers(len(self.tables)))]

    def to_tree(self) -> dict[str, Any]:
        """Return it as plain data and an array."""
        return {"episodes": self.episodes, "tables": self.tables.copy()}

    def resume(self, tree: Any) -> None:
        """Go on from a tree, checked: compiled code will follow these tables."""
        episodes, tables = tree["episodes"], tree["tables"]
        sound = type(episodes) is int and 0 <= episodes <= MOST_EPISODES
        sound = sound and isinstance(tables, np.ndarray) and tables.dtype == self._tables.dtype
        if not sound or tables.shape != self._tables[:episodes].shape or (tables >= self._actions).any():
            expected = f"tables of {list(self._tables.shape[1:])} actions"
            raise CheckpointError("past", got="other arrays", expected=expected)
        self.episodes = episodes
        self.tables[...] = tables


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
        self._address, self._replay = Addressed(), False

    @property
    def state(self) -> Any:
        """The rule's memory, a state per base, past policies, and how often each base played."""
        states, past = [each.state for each in self.players], [each.to_tree() for each in self.past]
        self._state.update(memory=self.memory, plays=self.plays, bases=states, past=past)
        return self._state

    def reserve(self, episodes: int) -> None:
        """Make room in the state of every base for that many episodes."""
        for each in self.players:
            each.reserve(episodes)

    def resume(self, saved: Any) -> None:
        """Go on from a saved state; the parts that compiled code sees are checked."""
        plays, count = saved["plays"], len(self.players)
        sound = are_plays(plays) and len(plays) == count
        if not sound or not isinstance(saved["memory"], dict):
            raise CheckpointError("state", got="other parts", expected=f"a rule's memory, and plays of {count} bases")
        for each, own in zip(self.players, saved["bases"], strict=True):
            each.resume(own)
        for past, tree in zip(self.past, saved["past"], strict=True):
            past.resume(tree)
        check = getattr(self.rule, "resume", None)
        if check is not None:
            check(count, saved["memory"])
        self.memory, self.plays = saved["memory"], plays

    def _choose(self, draw: np.random.Generator) -> tuple[int, bool]:
        """Ask the rule; return the base and whether it is a replay."""
        choice = self.rule.choose(self.memory, draw)
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

    def open(self, start: int, key: np.uint64, episode: int, actions: Ints) -> bool:
        """Begin an episode of the base that the rule chooses, or replay one."""
        self._opened = start, key, episode
        self._draw, self._actions = self._address.at(key, episode), actions  # draws go on where the rule left off
        self.base, self._replay = self._choose(self._draw)
        if self._replay:
            actions[...] = self.past[self.base].drawn(self._draw)
            self.planned_value = math.nan
            return False
        chosen = self.players[self.base]
        planned = chosen.open(start, _key_of_base(key, self.base), episode, actions)
        self.planned_value = chosen.planned_value
        return planned

    def close(self, seen: Seen) -> float:
        """Let the base learn, unless it was a replay, and tell the rule."""
        start, key, episode = self._opened
        told = seen.episode
        total = episode_return(told)
        if not self._replay:
            self.players[self.base].close(seen)
            for i, each in enumerate(self.players if self.learner.share else ()):
                if i != self.base:  # plans for the episode from what it knew before, and learns from it
                    each.observe(start, _key_of_base(key, i), episode, seen)
            if self.past:
                self.past[self.base].add(seen.actions, self._draw)
        value = total / self.largest
        if value > 1.0 + 1e-9:
            raise ParameterError("largest_return", got=self.largest, expected=f"no less than {total}, a return")
        planned = self.planned_value / self.largest
        self.rule.update(self.memory, self.base, Played(min(max(value, 0.0), 1.0), planned, start, told, self._replay))
        self.plays[self.base] += 1
        return total

    def evaluate(self, truth: Truth) -> None:
        """Evaluate the policy that is replayed."""
        policy_values(truth, self._actions, self.achieved)

    def value(self, truth: Truth, start: int) -> float:
        """Return the value V^{pi_k}_1(start) of the policy in play: that of a base, or a replayed one."""
        self.changed = True
        return super().value(truth, start) if self._replay else self.players[self.base].value(truth, start)

    def observe(self, start: int, key: np.uint64, episode: int, seen: Seen) -> None:
        """Let every base learn from an episode that somebody else plays; the rule is not told of it."""
        for i, each in enumerate(self.players):
            each.observe(start, _key_of_base(key, i), episode, seen)


def _key_of_base(key: np.uint64, base: int) -> np.uint64:
    """Return the key of a base's own draws (SplitMix64: Steele, Lea and Flood 2014)."""
    z = (int(key) + (base + 1) * 0x9E3779B97F4A7C15) & _MASK
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


_MEASURED: dict[str, Any] = {"episodes": 0, "regret": 0.0, "plans": 0, "realised_return": 0.0}
_TURNS = ("base", "plays")  # of phases in which bases take turns: the one that played, from 1; plays of each


def are_plays(found: Any) -> bool:
    """Say whether something lists how often each base played."""
    return isinstance(found, list) and all(type(n) is int and 0 <= n <= MOST_EPISODES for n in found)


def _require_rows(rows: Any) -> None:
    """Refuse a table of phases that no walk has."""
    for i, row in enumerate(rows if isinstance(rows, list) and rows else [None]):
        for name, start in _MEASURED.items():
            value: Any = row.get(name) if isinstance(row, dict) else None
            if type(value) is not type(start) or abs(value) > MOST_EPISODES or (type(start) is int and value < 0):
                raise CheckpointError(f"rows[{i}].{name}", got=str(value)[:80], expected=f"a number like {start}")
        plays = row.get("plays")
        if plays is not None and not are_plays(plays):
            raise CheckpointError(f"rows[{i}].plays", got=str(plays)[:80], expected="how often each base played")


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


def as_selector(agent: Agent) -> Selector:
    """Return a selector for any agent."""
    if isinstance(agent, type):  # a class has all the methods that its instances have
        raise ParameterError("agent", got=f"the class {agent.__name__}", expected="an instance of it")
    if isinstance(agent, Selector):
        return agent
    if isinstance(agent, (Learner, EpisodeLearner, RuledBases)):
        return _Alone(agent)
    raise ParameterError("agent", got=type(agent).__name__, expected="a learner or a selector")


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


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two rows can be joined: they say the same, and bases take turns in both or in none."""
    return facts_of(one) == facts_of(other) and ("plays" in one) == ("plays" in other)


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
        self.player: Any = None  # the learner at play
        self._enter()

    def _enter(self) -> None:
        self.before = copy.deepcopy(self.memory)  # what the decision follows from: with it, a run can be resumed
        row = {**self._decide(), **_MEASURED}
        if hasattr(self.phase.learner, "bases"):
            row |= {"base": None, "plays": [0] * len(self.phase.learner.bases)}
        if not self.rows or not _alike(row, self.rows[-1]):
            self._first = len(self.rows)  # the first row with these facts
            self.rows.append(row)

    def _decide(self) -> dict[str, Any]:
        """Enter the phase that the selector decides on; return its row of the table before it is played."""
        self.phase = phase = self.selector.next_phase(self.known, self.memory)
        if phase.episodes is not None and phase.episodes < 1:
            raise ContractError(f"phase {phase.label!r} has {phase.episodes} episodes; at least one is needed")
        last = self.player
        other = last is None or isinstance(last, ArenaPlayer)  # which keeps parts of its state by itself
        if other or last.learner is not phase.learner or last.state is not phase.state:
            self.player = player(phase.learner, self.known, phase.state)
        self.player.changed = True  # the selector may have written to the state
        self.played, self.plans, self.returned = 0, 0, 0.0
        return decided(phase)

    @property
    def state(self) -> Any:
        """The state of the learner in play."""
        return self.player.state

    @property
    def remaining(self) -> int | None:
        """Episodes left in this phase; None when it is endless."""
        return None if self.phase.episodes is None else self.phase.episodes - self.played

    def advance(self, plans: int, returns: Floats, regret: Floats, turns: Sequence[tuple[int, bool]] = ()) -> None:
        """Take note of episodes played in this phase, and enter the next phase when it is over.

        ``turns``, where bases take turns, has for every episode the base and whether it planned.
        """
        row = self.rows[-1]
        if not turns:
            row["episodes"] += returns.size
            row["plans"] += plans
            row["realised_return"] = running_total(row["realised_return"], returns)
            row["regret"] = running_total(row["regret"], regret)
        for (base, planned), value, loss in zip(turns, returns, regret, strict=False):
            if row["episodes"] and row["base"] != base + 1:  # another base takes over
                row = {**facts_of(row), **_MEASURED, "plays": [0] * len(row["plays"])}
                self.rows.append(row)
                if len(self.rows) - self._first > MOST_ROWS:
                    self.rows[self._first : -1] = coarsened(self.rows[self._first : -1], MOST_ROWS // 2)
            row["base"] = base + 1
            row["episodes"] += 1
            row["plays"][base] += 1
            row["plans"] += planned
            row["realised_return"] += float(value)
            row["regret"] += float(loss)
        self.played += returns.size
        self.plans += plans
        self.returned = running_total(self.returned, returns)
        if self.remaining == 0:
            self.finish()

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
        walk.selector, walk.known, walk.player = as_selector(agent), known, None
        walk.before, walk.rows = tree["before"], tree["rows"]
        _require_rows(walk.rows)
        check = getattr(walk.selector, "resume", None)  # before compiled code may see what a file holds
        if check is not None:
            check(known, walk.before)
        walk.memory = copy.deepcopy(walk.before)
        last = walk.rows[-1]
        for name, fact in walk._decide().items():
            if not same(fact, last.get(name)):  # decided by other sources or parameters: no row may mix both
                raise CheckpointError(f"rows[{len(walk.rows) - 1}].{name}", got=last.get(name), expected=fact)
        most = math.inf if walk.phase.episodes is None else walk.phase.episodes
        for name, limit in (("played", most), ("plans", math.inf)):
            if type(tree[name]) is not int or not 0 <= tree[name] <= limit:
                raise CheckpointError(name, got=tree[name], expected=f"an integer from 0 to {limit}")
        walk.played, walk.plans, walk.returned = tree["played"], tree["plans"], float(tree["returned"])
        walk.player.resume(tree["state"])
        walk._first = len(walk.rows) - 1
        while walk._first and _alike(walk.rows[walk._first - 1], last):
            walk._first -= 1
        bases = len(getattr(walk.phase.learner, "bases", ()))
        for row in walk.rows[walk._first :]:
            if len(row.get("plays", ())) != bases or (bases and type(row["base"]) not in (int, type(None))):
                raise CheckpointError("rows.plays", got=str(row.get("plays"))[:80], expected=f"those of {bases} bases")
        return walk

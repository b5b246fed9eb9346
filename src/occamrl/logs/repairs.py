"""From the labels of a log to the states, actions and rewards of models; what is mended is counted.

Labels that the models do not have are refused, or their rows dropped; episodes that are longer than
the horizon are refused, or cut; ends are moved to where the models end; rewards that the models
know take the place of the log's own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl.answers.wording import count_of
from occamrl.arrays import Bools, Floats, Ints
from occamrl.logs.table import END, MISSING, Labels, LogError, refuse
from occamrl.models.model import ELSEWHERE
from occamrl.protocols import SAME_REWARD, Flow, Known, Outcomes, RewardMap

if TYPE_CHECKING:
    from occamrl.logs.log import Log

_BEYOND = 1e9  # a bonus above all that are listed
_CONTRADICTION = 0.01  # the share of rows from which on rewards that contradict are refused
_EXPLAINED = 0.9  # the share of contradictions that one reason has to explain
_DIGITS = 6  # to which rewards may be rounded
_SHOWN = 3  # rows that are named of what models contradict
_EXAMPLES = {  # where it is not one
    "impossible": _SHOWN,
    "impossible_dropped": _SHOWN,
    "rewards_replaced": _SHOWN,
    "rewards_models": _SHOWN,
    "chosen_here": 0,
    "first_step": 0,
    "steps_counted": 0,
}


class Steps(NamedTuple):
    """Whole episodes of a log, in codes or in numbers of the models."""

    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    reward: Floats  # NaN where it is missing
    terminated: Bools
    row: Ints  # the number of each row in the table

    def where(self, kept: Bools) -> Steps:
        """Return some of the rows."""
        columns: list[Any] = [column[kept] for column in self]
        return Steps(*columns)

    def named(self, i: int) -> str:
        """Return which row of the table row i of the block is, in words."""
        return f"row {self.row[i]}"

    @property
    def begin(self) -> Ints:
        """The rows at which episodes begin, and where the last one ends."""
        return np.append(np.flatnonzero(np.diff(self.episode, prepend=-1)), self.episode.size)

    def flow(self, first: int, last: int) -> Flow:
        """Return what was counted in the episodes from ``first`` up to ``last``."""
        begin = self.begin
        rows = slice(int(begin[first]), int(begin[last]))
        flow = Flow(
            self.step[rows],
            self.state[rows],
            self.action[rows],
            self.next_state[rows],
            self.reward[rows],
            np.ones(self.step[rows].size, np.int64),
            last - first,
        )
        return Flow.joined([flow])


class Repairs:
    """What was done to the rows of a log: by kind to how many, of how many, and an example."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.totals: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}

    def add(
        self,
        kind: str,
        marked: Bools,
        example: Callable[[int], str],
        of: int | None = None,
    ) -> None:
        """Count the rows of a block that are marked; ``example(i)`` says what row i of it is.

        They are marked among ``of``, by default all rows of the block.
        """
        rows = np.flatnonzero(marked)
        self.totals[kind] = self.totals.get(kind, 0) + (marked.size if of is None else of)
        if rows.size:
            self.counts[kind] = self.counts.get(kind, 0) + rows.size
            shown = self.examples.setdefault(kind, [])
            more = _EXAMPLES.get(kind, 1) - len(shown)
            shown += [example(int(row)) for row in rows[:more]]

    def update(self, other: Repairs) -> None:
        """Take over what another says of its kinds."""
        self.counts |= other.counts
        self.totals |= other.totals
        self.examples |= other.examples

    def merge(self, later: Repairs) -> None:
        """Add what was counted in later rows."""
        for kind, total in later.totals.items():
            self.totals[kind] = self.totals.get(kind, 0) + total
        for kind, count in later.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
            shown = self.examples.setdefault(kind, [])
            shown += later.examples[kind][: _EXAMPLES.get(kind, 1) - len(shown)]

    def drop(self, kinds: Iterable[str]) -> None:
        """Forget some kinds, which are counted anew."""
        for kind in kinds:
            self.counts.pop(kind, None)
            self.totals.pop(kind, None)
            self.examples.pop(kind, None)


class Matching:
    """What takes blocks of a log to some models."""

    def __init__(
        self, log: Log, known: Known, outcomes: Outcomes | None, rewards: RewardMap | None
    ) -> None:
        self.log = log
        self.known = known
        self.names: dict[str, Sequence[Hashable]] = {
            "state": range(known.states),
            "action": range(known.actions),
        }
        if known.names is not None and not log.coded:
            self.names = {"state": known.names.states, "action": known.names.actions}
        self.labels: dict[str, Labels] = {"state": log.states, "action": log.actions}
        self.index = {kind: self.labels[kind].look_up(names) for kind, names in self.names.items()}
        pairs = known.states * known.actions
        nothing = Outcomes(np.zeros(pairs + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
        self.outcomes = outcomes or known.transition_rewards or nothing
        self.rewards = RewardMap(*known.unit)
        if rewards is not None:
            self.rewards = rewards
        elif log.coded:
            self.rewards = RewardMap()
        self.tolerance = SAME_REWARD
        if log.choices.tolerance is not None:
            self.tolerance = log.choices.tolerance / self.rewards.scale
        self.layers = (self.outcomes.start.size - 1) // pairs  # more than one: chances by step
        origin = known.origin(self.outcomes)
        self.can_be_left = np.zeros(known.states, bool)  # [S]
        self.can_be_left[origin[self.outcomes.next_state != origin]] = True

    def match(self, block: Steps) -> Steps:
        """Return a block in states, actions and rewards of the models."""
        return self._rewarded(self._placed(self._cut(self._looked_up(block))))

    def _looked_up(self, block: Steps) -> Steps:
        """Look labels up; those that the models do not have are refused, or their rows dropped."""
        state, no_state = self._numbers("state", "state", block.state, block)
        action, no_action = self._numbers("action", "action", block.action, block)
        next_state, no_next = self._numbers("next_state", "state", block.next_state, block)
        next_state = np.where(no_next & block.terminated, END, next_state)
        unknown = no_state | no_action
        block = block._replace(state=state, action=action, next_state=next_state)
        forbidden = ~unknown & ~self.known.allowed[np.maximum(state, 0), np.maximum(action, 0)]
        if self.log.choices.unlisted == "error" and forbidden.any():
            self._refuse_forbidden(forbidden, block)
        kept = ~(unknown | forbidden)
        block = self._drop("unlisted", block, ~kept)
        no_next = no_next[kept] & ~block.terminated
        return self._drop("unlisted_next", block, no_next)

    def _refuse_forbidden(self, forbidden: Bools, block: Steps) -> None:
        """Refuse actions that the models do not allow in their states."""
        s = int(block.state[int(np.argmax(forbidden))])
        known = self.known
        allowed = [known.action_name(int(a)) for a in np.flatnonzero(known.allowed[s])]
        expected = (
            f"an action that is allowed in state {known.state_name(s)!r}: one of {allowed!r:.200}; "
            'or leave such rows out with unlisted="drop"'
        )
        names = np.array([known.action_name(int(a)) for a in block.action], object)
        refuse(self.log.field("action"), forbidden, names, expected, block.row)

    def _numbers(self, role: str, kind: str, codes: Ints, block: Steps) -> tuple[Ints, Bools]:
        """Return the numbers of labels in the models, and where there are none."""
        numbers = self.index[kind][codes]
        missing = numbers == MISSING
        bad = missing
        if role == "next_state":
            bad = missing & ~block.terminated  # where an episode ends, its name does not matter
        if self.log.choices.unlisted == "error" and bad.any():
            decoded = self.labels[kind].decode(codes)
            expected = self._expected(kind, decoded[int(np.argmax(bad))])
            refuse(self.log.field(role), bad, decoded, expected, block.row)
        return numbers, missing

    def _expected(self, kind: str, label: Hashable) -> str:
        """Return the names of the models that are nearest to a label, and what to do."""
        names = self.names[kind]
        advice = 'add it to the models, or leave such rows out with unlisted="drop"'
        if isinstance(names, range):
            return f"one of 0 to {len(names) - 1}, as in the models; {advice}"
        names = [name for name in names if name != ELSEWHERE]
        if isinstance(label, str) and re.match(r"[-+]?\d", label):
            advice = f"{label!r} is a text: leave the numbers alone in their cells; or {advice}"
        due = _columns_of(names[0])
        if due != _columns_of(label):
            shape = f"a tuple of {due}" if due > 1 else "one value"
            columns = f"{count_of(due, 'column')} in columns={{{kind!r}: ...}}"
            return f"{shape}, as the {kind}s of the models are: name {columns}"
        texts = [repr(name) for name in names[:10_000]]
        near = difflib.get_close_matches(repr(label), texts, n=3, cutoff=0.3) or texts[:3]
        listed = f"one of the {len(names)} {kind}s of the models, such as {', '.join(near)}"
        return f"{listed}; {advice}"

    def _drop(self, kind: str, block: Steps, bad: Bools) -> Steps:
        self.log.repairs.add(kind, bad, block.named)
        return block.where(~bad) if bad.any() else block

    def _cut(self, block: Steps) -> Steps:
        """Cut episodes that are longer than the horizon, or refuse them; count shorter ones."""
        horizon = self.known.horizon
        piece, step = np.divmod(block.step, horizon)
        if not self.log.choices.split:
            expected = (
                f"at most {horizon} steps, from 0: a problem with horizon={self.log.longest}, "
                "or read_log(..., split=True)"
            )
            refuse(self.log.field("step"), piece > 0, block.step, expected, block.row)
        new = (np.diff(block.episode, prepend=-1) != 0) | (np.diff(piece, prepend=0) != 0)
        last = np.append(new[1:], True)[: new.size]
        short = last & ~block.terminated & (step < horizon - 1)
        pieces = int(new.sum())
        self.log.repairs.add("split", new & (piece > 0), block.named, pieces)

        def shortest(i: int) -> str:
            longest = f"the longest has {self.log.longest} of {count_of(horizon, 'step')}"
            return f"{block.named(i)}; {longest}" if self.log.longest < horizon else block.named(i)

        self.log.repairs.add("truncated", short, shortest, pieces)
        return block._replace(episode=np.cumsum(new) - 1, step=step)

    def _placed(self, block: Steps) -> Steps:
        """Refuse states at steps at which no model reaches them, or drop such rows.

        What follows a step that all models call impossible is left out: that says enough.
        """
        if self.layers == 1:
            return block
        self._require_clock(block)
        pair = self.known.pair_in(self.outcomes, block.step, block.state, block.action)
        unreached = np.diff(self.outcomes.start)[pair] == 0
        begins = np.append(True, (np.diff(block.episode) != 0) | (np.diff(block.step) != 1))
        if self.log.choices.unlisted == "error" and (unreached & begins).any():
            i = int(np.argmax(unreached & begins))
            names = np.array([repr(self.known.state_name(int(s))) for s in block.state], object)
            expected = self._expected_at(int(block.step[i]))
            refuse(self.log.field("state"), unreached & begins, names, expected, block.row)
        return self._drop("unlisted", block, unreached)

    def _expected_at(self, step: int) -> str:
        """Return the states that the models reach at a step, from 0, and what to do."""
        known = self.known
        sizes = np.diff(self.outcomes.start).reshape(-1, known.states, known.actions)
        reached = np.flatnonzero(sizes[step % self.layers].any(axis=1) & ~known.absorbing)
        names = [known.state_name(int(s)) for s in reached]
        advice = "let your model reach it then (start= says where episodes begin, continuing=True "
        advice += "that each begins where the last one ended)"
        shown = f"{names!r:.200}"
        return (
            f"a state that your models reach at step {step + 1}: one of {shown}; {advice}, "
            'or leave such rows out with unlisted="drop"'
        )

    def _require_clock(self, block: Steps) -> None:
        """Take note of how steps were counted; refuse rows of which that cannot be told."""
        log = self.log
        if log.report.get("gaps_joined"):
            expected = (
                'gaps="cut", which keeps the step of every row: the chances of the models depend '
                "on the step, and steps that count rows would be wrong after a gap"
            )
            raise LogError("gaps", got='"join"', expected=expected)
        log.require_one_beat(self.known.horizon)
        if "step" in log.roles:
            return
        kind = "first_step" if log.clocked else "steps_counted"
        new = np.diff(block.episode, prepend=-1) != 0
        log.repairs.add(kind, new, block.named, int(new.sum()))

    def _rewarded(self, block: Steps) -> Steps:
        """Move ends into the last state, where the models end, and take the models' rewards."""
        known = self.known
        goes_on = (block.next_state == END) | self.can_be_left[np.maximum(block.next_state, 0)]
        ends = block.terminated & goes_on
        if self.can_be_left[-1]:
            expected = "no end where the models go on, or models whose last state is an end"
            refuse(self.log.field("terminated"), ends, block.terminated, expected, block.row)
        block = block._replace(next_state=np.where(ends, known.states - 1, block.next_state))

        pair = known.pair_in(self.outcomes, block.step, block.state, block.action)
        base = known.base_reward[block.state, block.action]
        paid = self.rewards.to_unit(block.reward)
        nearest = self._index_of(pair, block.next_state, np.nan_to_num(paid - base))
        lowest = self._index_of(pair, block.next_state, np.full(pair.size, -_BEYOND))
        highest = self._index_of(pair, block.next_state, np.full(pair.size, _BEYOND))
        bonuses = np.append(self.outcomes.bonus, 0.0)  # 0 where an outcome is not listed
        listed = base + bonuses[nearest]
        # Not a number is far from every one.
        far = ~(np.abs(paid - base - bonuses[nearest]) <= self.tolerance)
        vague = far & (bonuses[highest] - bonuses[lowest] > SAME_REWARD)
        if self.log.choices.unlisted == "error":
            self._refuse_vague(vague, block)
        impossible = (nearest < 0) & (self.outcomes.next_state.size > 0)
        if known.rewards_known:
            silent = np.isnan(paid) & ~vague
            self.log.repairs.add("rewards_missing", silent, block.named)
            if not known.random_rewards:
                contradicts = far & ~vague & ~silent & ~impossible
                self._compare(contradicts, block, self.rewards.total(listed, 1))
            paid = listed
        elif self.outcomes.bonus.any():
            paid = np.where(np.isnan(paid) & (nearest >= 0), listed, paid)
        return self._without(impossible, vague, block._replace(reward=paid))

    def _without(self, impossible: Bools, vague: Bools, block: Steps) -> Steps:
        """Name the rows that every model calls impossible; without them, if they are dropped."""

        def example(i: int) -> str:
            known = self.known
            where = f"state {known.state_name(int(block.state[i]))!r}"
            action = f"action {known.action_name(int(block.action[i]))!r}"
            following = f"next state {known.state_name(int(block.next_state[i]))!r}"
            return f"{block.named(i)}: {where}, {action}, {following}"

        if self.log.choices.unlisted == "error":
            self.log.repairs.add("impossible", impossible, example)
            return block
        self.log.repairs.add("impossible_dropped", impossible, example)
        vague = vague[~impossible]
        if impossible.any():
            block = block.where(~impossible)
        return self._drop("unlisted_next", block, vague)

    def _compare(self, contradicts: Bools, block: Steps, due: Floats) -> None:
        """Count rewards that contradict the models; refuse them from a share of 1 % on."""

        def example(i: int) -> str:
            return f"{block.named(i)}: {block.reward[i]:.6g}, the models have {due[i]:.6g}"

        repairs = self.log.repairs
        kind = "rewards_replaced"
        if self.log.choices.rewards == "model":
            kind = "rewards_models"
        repairs.add(kind, contradicts, example)
        count = repairs.counts.get(kind, 0)
        if not contradicts.any() or not contradicted(repairs, self.log.rows):
            return
        reason = likely_reason(block.reward[contradicts], due[contradicts], self.tolerance)
        got = "; ".join(repairs.examples[kind])
        expected = (
            f"the rewards of the models, which {count:,} of {self.log.rows:,} rows contradict: "
            f"{reason}. Mend the log or the models; tolerance= if rewards are rounded, "
            'rewards="model" to take the models\''
        )
        first = int(np.argmax(contradicts))
        field = self.log.field("reward")
        raise LogError(field, index=(int(block.row[first]),), got=got, expected=expected)

    def _index_of(self, pair: Ints, next_state: Ints, bonus: Floats) -> Ints:
        return self.outcomes.index_of(pair, next_state, bonus, self.known.states, np.inf)

    def _refuse_vague(self, vague: Bools, block: Steps) -> None:
        """Refuse rewards that would have to tell outcomes apart, and do not."""
        expected = (
            "one that the models list, as it tells outcomes apart here; "
            "if it is rounded, tolerance="
        )
        if "reward" not in self.log.roles:
            expected = "a reward column, columns={'reward': ...}: rewards tell outcomes apart here"
        refuse(self.log.field("reward"), vague, block.reward, expected, block.row)


def contradicted(repairs: Repairs, rows: int) -> bool:
    """Return whether rewards contradict the models so often that the log is refused."""
    return repairs.counts.get("rewards_replaced", 0) >= max(1.0, _CONTRADICTION * rows)


def likely_reason(got: Floats, due: Floats, tolerance: float) -> str:
    """Return how rewards that contradict those that are due may have come about.

    >>> due = np.array([3.0, -1.0, 0.5])
    >>> likely_reason(-due, due, 1e-6)
    'they have the opposite sign'
    >>> likely_reason(100.0 * due, due, 1e-6)
    'they are 100 times as large, as in another unit'
    >>> likely_reason(due - 2.0, due, 1e-6)
    'they are 2 smaller everywhere, as from another zero'
    """
    scale = tolerance * float(np.abs(due).max(initial=1.0))

    def explains(slope: float, offset: float) -> bool:
        near = np.abs(got - slope * due - offset) <= scale * max(1.0, abs(slope))
        return bool(near.mean() >= _EXPLAINED)

    paying = due != 0.0
    factor = 1.0
    if paying.any():
        factor = float(np.median(got[paying] / due[paying]))
    offset = float(np.median(got - due))
    if got.size < _SHOWN:
        return "they are too few to say why"
    for digits in range(_DIGITS):
        if np.abs(got - np.round(due, digits)).max() <= scale:
            return f"they seem to be rounded: tolerance={0.5 * 10.0**-digits:g} takes them as such"
    if explains(-1.0, 0.0):
        return "they have the opposite sign"
    if factor and explains(factor, 0.0):
        if factor < 0.0:
            return f"they are {-factor:.4g} times as large, with the opposite sign"
        return f"they are {factor:.4g} times as large, as in another unit"
    if explains(1.0, offset):
        direction = "larger" if offset > 0.0 else "smaller"
        return f"they are {abs(offset):.4g} {direction} everywhere, as from another zero"
    if np.unique(due).size > 1:
        slope, shift = np.polyfit(due, got, 1).tolist()
        if slope and explains(slope, shift):
            return f"they are {slope:.4g} times as large plus {shift:.4g}, as on another scale"
    return "no one factor or offset explains them"


def _columns_of(label: Hashable) -> int:
    """Return how many columns a label takes."""
    return len(label) if isinstance(label, tuple) else 1

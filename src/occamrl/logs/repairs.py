"""From the labels of a log to the states, actions and rewards of models; what is mended is counted.

Labels that the models do not have are refused, or their rows dropped; episodes that are longer than
the horizon are refused, or cut; ends are moved to where the models end; rewards that the models
know take the place of the log's own.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl.answers.wording import count_of
from occamrl.arrays import Bools, Floats, Ints
from occamrl.logs.table import END, MISSING, Labels, refuse
from occamrl.models.model import ELSEWHERE
from occamrl.protocols import SAME_REWARD, Flow, Known, Outcomes, RewardMap

if TYPE_CHECKING:
    from occamrl.logs.log import Log

_BEYOND = 1e9  # a bonus above all that are listed


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
        self.examples: dict[str, str] = {}

    def add(
        self, kind: str, marked: Bools, example: Callable[[int], str], of: int | None = None
    ) -> None:
        """Count the rows of a block that are marked; ``example(i)`` says what row i of it is.

        They are marked among ``of``, by default all rows of the block.
        """
        rows = np.flatnonzero(marked)
        self.totals[kind] = self.totals.get(kind, 0) + (marked.size if of is None else of)
        if rows.size:
            self.counts[kind] = self.counts.get(kind, 0) + rows.size
            self.examples.setdefault(kind, example(int(rows[0])))

    def update(self, other: Repairs) -> None:
        """Take over what another says of its kinds."""
        self.counts |= other.counts
        self.totals |= other.totals
        self.examples |= other.examples

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
        origin = self.outcomes.pair // known.actions
        self.can_be_left = np.zeros(known.states, bool)  # [S]
        self.can_be_left[origin[self.outcomes.next_state != origin]] = True

    def match(self, block: Steps) -> Steps:
        """Return a block in states, actions and rewards of the models."""
        return self._rewarded(self._cut(self._looked_up(block)))

    def _looked_up(self, block: Steps) -> Steps:
        """Look labels up; those that the models do not have are refused, or their rows dropped."""
        state, no_state = self._numbers("state", "state", block.state, block)
        action, no_action = self._numbers("action", "action", block.action, block)
        next_state, no_next = self._numbers("next_state", "state", block.next_state, block)
        next_state = np.where(no_next & block.terminated, END, next_state)
        block = block._replace(state=state, action=action, next_state=next_state)
        return self._drop(block, no_state | no_action | (no_next & ~block.terminated))

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
        due = _columns_of(names[0])
        if due != _columns_of(label):
            shape = f"a tuple of {due}" if due > 1 else "one value"
            columns = f"{count_of(due, 'column')} in columns={{{kind!r}: ...}}"
            return f"{shape}, as the {kind}s of the models are: name {columns}"
        texts = [repr(name) for name in names[:10_000]]
        near = difflib.get_close_matches(repr(label), texts, n=3, cutoff=0.3) or texts[:3]
        listed = f"one of the {len(names)} {kind}s of the models, such as {', '.join(near)}"
        return f"{listed}; {advice}"

    def _drop(self, block: Steps, bad: Bools) -> Steps:
        self.log.repairs.add("unlisted", bad, block.named)
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
        self.log.repairs.add("truncated", short, block.named, pieces)
        return block._replace(episode=np.cumsum(new) - 1, step=step)

    def _rewarded(self, block: Steps) -> Steps:
        """Move ends into the last state, where the models end, and take the models' rewards."""
        known = self.known
        goes_on = (block.next_state == END) | self.can_be_left[np.maximum(block.next_state, 0)]
        ends = block.terminated & goes_on
        if self.can_be_left[-1]:
            expected = "no end where the models go on, or models whose last state is an end"
            refuse(self.log.field("terminated"), ends, block.terminated, expected, block.row)
        block = block._replace(next_state=np.where(ends, known.states - 1, block.next_state))

        pair = block.state * known.actions + block.action
        base = known.base_reward.ravel()[pair]
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
        if known.rewards_known:
            replaced = far & ~vague & ~np.isnan(paid)
            self.log.repairs.add("rewards_replaced", replaced, block.named)
            paid = listed
        elif self.outcomes.bonus.any():
            paid = np.where(np.isnan(paid) & (nearest >= 0), listed, paid)
        return self._drop(block._replace(reward=paid), vague)

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


def _columns_of(label: Hashable) -> int:
    """Return how many columns a label takes."""
    return len(label) if isinstance(label, tuple) else 1

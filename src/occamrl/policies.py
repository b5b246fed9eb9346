"""Policies in the user's names: what to do in every state and step, as a table, a file, or text."""

from __future__ import annotations

import csv
import io
import itertools
import json
import numbers
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamrl.arrays import Bools, Ints
from occamrl.errors import ParameterError, ShapeError, as_array, require_integer
from occamrl.files import write_whole
from occamrl.naming import Labels, csv_cell, describe_states, printable_name, spoken
from occamrl.protocols import Known

PLAIN = Labels()
_LONG = 110  # letters that list states
_MOST_SAID = 3  # stretches of steps that are said in a sentence


def stretches(policy: Ints) -> dict[str, int]:
    """Return the first steps, from 0, of stretches over which a policy [H, ...] stays the same.

    They are named by steps that count from 1: "steps 1 to 24", "step 25".
    """
    cuts = [0]
    for h in range(1, len(policy)):
        if (policy[h] != policy[h - 1]).any():
            cuts.append(h)
    first_steps = {}
    for first, end in itertools.pairwise([*cuts, len(policy)]):
        name = f"steps {first + 1} to {end}"
        if end == first + 1:
            name = f"step {end}"
        first_steps[name] = first
    return first_steps


class Stretch(NamedTuple):
    """Steps over which no state that is reached has two actions."""

    first: int  # from 0
    end: int
    action: Ints  # [S]; -1 where a state is not reached

    def called(self, step: str) -> str:
        """Return the steps, counted from 1: "steps 1 to 24", "step 25"."""
        if self.end == self.first + 1:
            return f"{step} {self.end}"
        return f"{step}s {self.first + 1} to {self.end}"


class Policy:
    """What to do in every state and step, in the user's names.

    ``policy(state, step)`` is an action; ``rows`` is a table, equal rows joined; ``to_csv`` and
    ``to_json`` write it. It is accepted wherever a policy is.

    Parameters
    ----------
    actions : array [H, S]
    known : Known
    reached : array of bool [H, S], optional
        Which states the policy itself may come to at a step.
    possible : array of bool [H, S], optional
        Which states any policy may come to at a step.
    labels : Labels
        What the parts of a state, an action and a step are called.
    """

    def __init__(
        self,
        actions: Ints,
        known: Known,
        reached: Bools | None = None,
        possible: Bools | None = None,
        labels: Labels = PLAIN,
    ) -> None:
        self.actions = actions
        self.known = known
        every = np.ones(actions.shape, bool)
        self.reached = every if reached is None else reached
        self.possible = every if possible is None else possible
        self.labels = labels

    def __call__(self, state: object, step: int = 0) -> Any:
        """Return the action in a state, at a step from 0."""
        h = require_integer("step", step, 0, maximum=len(self.actions) - 1)
        return self.known.action_name(int(self.actions[h, self.known.state_number(state)]))

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Stretches of steps over which nothing changes where the policy comes to."""
        stretches = []
        first = 0
        merged = np.full(self.known.states, -1)
        for h, actions in enumerate(self.actions):
            here = np.where(self.reached[h], actions, -1)
            if ((merged >= 0) & (here >= 0) & (merged != here)).any():
                stretches.append(Stretch(first, h, merged))
                first = h
                merged = here
            else:
                merged = np.where(here >= 0, here, merged)
        return [*stretches, Stretch(first, len(self.actions), merged)]

    @property
    def longest(self) -> Stretch:
        """The longest stretch of steps over which nothing changes."""
        return max(self.stretches, key=lambda stretch: stretch.end - stretch.first)

    @property
    def left_out(self) -> Ints:
        """The states that may be left, and that the policy never comes to."""
        return np.flatnonzero(~self.reached.any(axis=0) & ~self.known.absorbing)

    def _in_order(self, marked: Bools) -> list[int]:
        """Return the states that are marked, by name where names are numbers or tuples of them."""
        states = np.flatnonzero(marked).tolist()
        parts: dict[int, tuple[Any, ...]] = {}
        for s in states:
            name = self.known.state_name(s)
            parts[s] = name if isinstance(name, tuple) else (name,)
        for part in itertools.chain.from_iterable(parts.values()):
            if not isinstance(part, numbers.Real):
                return states
        return sorted(states, key=parts.__getitem__)

    def _groups(self, stretches: Sequence[Stretch]) -> dict[tuple[int, ...], list[int]]:
        """Return the states that are reached in some stretches, by their actions there."""
        table = np.array([stretch.action for stretch in stretches])
        groups: dict[tuple[int, ...], list[int]] = {}
        for s in self._in_order(np.asarray((table >= 0).any(axis=0))):
            groups.setdefault(tuple(table[:, s].tolist()), []).append(s)
        return groups

    def _describe(self, states: Sequence[int], labels: Sequence[str] = ()) -> str:
        """Return some states in words, cut where these are too many."""
        text = describe_states([self.known.state_name(s) for s in states], labels)
        if len(text) <= _LONG:
            return text
        begin = text[:_LONG].rpartition(" ")[0].rstrip(";:,")
        return f"{begin} ... ({len(states):,} states)"

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """A row for all states with equal actions, a column for each stretch of equal steps.

        Where a state is not reached in a stretch, there is no action.
        """
        head = "state" if len(self.labels.state) != 1 else self.labels.state[0]
        rows = []
        for actions, states in self._groups(self.stretches).items():
            row = {head: self._describe(states)}
            for stretch, a in zip(self.stretches, actions, strict=True):
                title = self.labels.action or "action"
                if len(self.stretches) > 1:
                    title = stretch.called(self.labels.step)
                row[title] = "" if a < 0 else spoken(self.known.action_name(a))
            rows.append(row)
        return rows

    def act_in_words(self, a: int) -> str:
        """Return an action as a sentence says it: "order 6"; a word stays as it is."""
        name = self.known.action_name(a)
        if isinstance(name, str):
            return printable_name(name)
        return f"{self.labels.action or 'action'} {spoken(name)}"

    @property
    def brief(self) -> str:
        """What to do in the longest stretches: "order 6 when stock is 0, otherwise order 0"."""
        longest = self.longest.end - self.longest.first
        shown = [
            stretch for stretch in self.stretches if 2 * (stretch.end - stretch.first) >= longest
        ]
        if len(self.stretches) == 1:
            return self._in_words(self.longest)
        if len(shown) > _MOST_SAID:
            shown = [self.longest]
        texts = []
        for stretch in shown:
            texts.append(f"{self._in_words(stretch)} ({stretch.called(self.labels.step)})")
        return f"{'; '.join(texts)[:-1]} of {len(self.actions)})"

    def _in_words(self, stretch: Stretch) -> str:
        """Return what to do in a stretch: "order 6 when stock is 0, otherwise order 0"."""
        groups = sorted(self._groups([stretch]).items(), key=lambda group: len(group[1]))
        texts = []
        for (a,), states in groups[:-1]:
            where = f"when {self._describe(states, self.labels.state)}"
            if not self.labels.state:
                noun = "state" if len(states) == 1 else "states"
                where = f"in {noun} {self._describe(states)}"
            texts.append(f"{self.act_in_words(a)} {where}")
        (a,), _ = groups[-1]
        otherwise = f"always {self.act_in_words(a)}"
        if texts:
            otherwise = f"otherwise {self.act_in_words(a)}"
        return ", ".join([*texts, otherwise])

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row for each state and stretch of steps, counted from 1, with equal actions.

        Steps at which no policy comes to the state belong to the stretch that they interrupt.
        """
        span = self.labels.step
        rows = []
        for s in self._in_order(~self.known.absorbing & self.possible.any(axis=0)):
            steps = np.flatnonzero(self.possible[:, s])
            actions = self.actions[steps, s]
            begin = np.flatnonzero(np.append(True, np.diff(actions) != 0))
            last = np.append(begin[1:], steps.size) - 1
            for first, end in zip(begin.tolist(), last.tolist(), strict=True):
                row = {f"first_{span}": int(steps[first]) + 1, f"last_{span}": int(steps[end]) + 1}
                row |= self._state_columns(self.known.state_name(s))
                row[self.labels.action or "action"] = self.known.action_name(int(actions[first]))
                rows.append(row)
        return rows

    def _state_columns(self, name: Any) -> dict[str, Any]:
        """Return a state by column; a tuple has one for each part: state_0, state_1, ..."""
        if not isinstance(name, tuple):
            return {self.labels.state[0] if len(self.labels.state) == 1 else "state": name}
        labels = [f"state_{i}" for i in range(len(name))]
        if len(self.labels.state) == len(name):
            labels = list(self.labels.state)
        return dict(zip(labels, name, strict=True))

    def to_csv(self, path: str | Path) -> None:
        """Write a row for each state and stretch of steps with equal actions.

        Columns are first and last step, counted from 1, the parts of a state, and the action, by
        the user's names where these are known. A text that a spreadsheet would take for a formula
        has an apostrophe in front, which ``read_log`` takes away.
        """
        rows = self.to_rows()
        columns = dict.fromkeys(itertools.chain.from_iterable(rows))
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(map(csv_cell, columns))
        for row in rows:
            writer.writerow([csv_cell(row.get(column, "")) for column in columns])
        write_whole(Path(path), text.getvalue().encode())

    def to_json(self, path: str | Path) -> None:
        """Write the same as JSON."""
        write_whole(Path(path), json.dumps(self.to_rows(), default=str, indent=1).encode())

    def __str__(self) -> str:
        columns = list(self.rows[0])
        table = [columns]
        for row in self.rows:
            table.append([row[column] for column in columns])
        widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
        lines = []
        for cells in table:
            padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines)


def as_policy(policy: object, known: Known) -> NDArray[Any]:
    """Return actions [H, S] or probabilities [H, S, A] of a policy in any form.

    That may be a Policy, actions [H, S] or [S], probabilities [H, S, A], a dict from states to
    actions, or a function of the state; what is not allowed is refused.
    """
    if isinstance(policy, Policy):
        return policy.actions
    if isinstance(policy, Mapping):
        return _by_state(policy, known)
    if callable(policy):
        states = [known.state_name(s) for s in np.flatnonzero(~known.absorbing).tolist()]
        return _by_state({state: policy(state) for state in states}, known)
    array = as_array("policy", policy)
    if array.shape == (known.states,) and array.dtype.kind in "iu":
        array = np.tile(array, (known.horizon, 1))
    require_policy("policy", array, known)
    return array


def _by_state(actions: Mapping[Hashable, object], known: Known) -> Ints:
    """Return actions [H, S] from a mapping of states to actions, which do not change."""
    chosen = np.where(known.absorbing, np.argmax(known.allowed, axis=1), -1)
    for name, action in actions.items():
        chosen[known.state_number(name)] = known.action_number(action)
    missing = np.flatnonzero(chosen < 0)
    if missing.size:
        name = known.state_name(int(missing[0]))
        expected = "an action for every state; or a function of the state"
        raise ParameterError("policy", got=f"no action in state {name!r}", expected=expected)
    policy = np.tile(chosen, (known.horizon, 1))
    require_policy("policy", policy, known)
    return policy


def require_policy(field: str, policy: object, known: Known) -> None:
    """Refuse what is neither actions [H, S] nor probabilities [H, S, A], or is not allowed."""
    sizes = known.horizon, known.states
    shapes = (sizes, (*sizes, known.actions))
    if not isinstance(policy, np.ndarray) or policy.shape not in shapes:
        expected = f"actions {sizes}, or probabilities {shapes[1]}"
        got = type(policy).__name__
        if isinstance(policy, np.ndarray):
            got = f"shape {policy.shape}"
        raise ShapeError(field, got=got, expected=expected)
    if policy.ndim == 2:
        whole = policy.dtype.kind in "iu"
        if not whole or policy.min() < 0 or policy.max() >= known.actions:
            got = f"{policy.dtype} from {policy.min():g} to {policy.max():g}"
            raise ParameterError(field, got=got, expected=f"integers from 0 to {known.actions - 1}")
    elif not (policy >= 0.0).all() or not (np.abs(policy.sum(axis=2) - 1.0) <= 1e-9).all():
        raise ParameterError(field, got="other numbers", expected="probabilities that sum to 1")
    if not known.allowed.all():
        _require_allowed(field, policy, known)


def _require_allowed(field: str, policy: NDArray[Any], known: Known) -> None:
    """Refuse a policy that may choose an action where it is not allowed."""
    taken = policy > 0.0 if policy.ndim == 3 else policy[..., None] == np.arange(known.actions)
    forbidden = np.argwhere(taken & ~known.allowed)
    if len(forbidden):
        h, s, a = forbidden[0].tolist()
        allowed = [known.action_name(int(i)) for i in np.flatnonzero(known.allowed[s])]
        got = f"{known.action_name(a)!r} in state {known.state_name(s)!r}, step {h}"
        expected = f"an action that is allowed there: {allowed!r:.80}"
        raise ParameterError(field, got=got, expected=expected, index=(h, s))

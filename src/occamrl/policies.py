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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occamrl.arrays import Bools, Ints
from occamrl.errors import ParameterError, ShapeError, require_integer
from occamrl.files import write_whole
from occamrl.naming import describe_states, spoken
from occamrl.protocols import Known

_LONG = 110  # letters that list states


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


class Policy:
    """What to do in every state and step, in the user's names.

    ``policy(state, step)`` is an action; ``rows`` is a table, equal rows joined; ``to_csv`` and
    ``to_json`` write it.
    """

    def __init__(self, actions: Ints, known: Known, reached: Bools | None = None) -> None:
        self.actions = actions  # [H, S]
        self.known = known
        self.reached = np.ones(known.states, bool) if reached is None else reached

    def __call__(self, state: object, step: int = 0) -> Any:
        """Return the action in a state, at a step from 0."""
        h = require_integer("step", step, 0, maximum=len(self.actions) - 1)
        return self.known.action_name(int(self.actions[h, self.known.state_number(state)]))

    @cached_property
    def stretches(self) -> dict[str, int]:
        """The first steps, from 0, of stretches over which nothing changes, by their names."""
        named = stretches(self.actions[:, self.reached])
        if len(named) == 1:
            return {"action": 0}
        return named

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

    def _groups(self, steps: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
        """Return the states that are reached, by their actions at some steps."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for s in self._in_order(self.reached):
            actions = tuple(self.actions[list(steps), s].tolist())
            groups.setdefault(actions, []).append(s)
        return groups

    def _describe(self, states: Sequence[int]) -> str:
        """Return some states in words, cut where these are too many."""
        text = describe_states([self.known.state_name(s) for s in states])
        if len(text) <= _LONG:
            return text
        begin = text[: text.rindex(" ", 0, _LONG)].rstrip(";:,")
        return f"{begin} ... ({len(states):,} states)"

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """A row for all states with equal actions, a column for each stretch of equal steps."""
        rows = []
        for actions, states in self._groups(list(self.stretches.values())).items():
            row = {"state": self._describe(states)}
            for stretch, a in zip(self.stretches, actions, strict=True):
                row[stretch] = str(self.known.action_name(a))
            rows.append(row)
        return rows

    @property
    def brief(self) -> list[str]:
        """What to do at the first step, and until something changes: a line for each action."""
        first = next(iter(self.stretches))
        when = "" if first == "action" else f" ({first})"
        groups = self._groups([0])
        lines = []
        for (a,), states in sorted(groups.items(), key=lambda group: -len(group[1])):
            where = "always"
            if len(groups) > 1:
                noun = "state" if len(states) == 1 else "states"
                where = f"in {noun} {self._describe(states)}"
            lines.append(f"{spoken(self.known.action_name(a))} {where}{when}")
        return lines

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row for each step, counted from 1, and state."""
        states = self._in_order(~self.known.absorbing)
        rows = []
        for step, actions in enumerate(self.actions, start=1):
            for s in states:
                action = self.known.action_name(int(actions[s]))
                rows.append({"step": step, "state": self.known.state_name(s), "action": action})
        return rows

    def to_csv(self, path: str | Path) -> None:
        """Write step, counted from 1 as in the printed table, state and action, of all states.

        A state that is a tuple has a column for each part: state_0, state_1, ...
        """
        rows = [_with_parts(row) for row in self.to_rows()]
        columns = dict.fromkeys(itertools.chain.from_iterable(rows))
        text = io.StringIO()
        writer = csv.DictWriter(text, list(columns))
        writer.writeheader()
        writer.writerows(rows)
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


def _with_parts(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a policy with a column for each part of its state."""
    state = row["state"]
    if not isinstance(state, tuple):
        return row
    parts = {f"state_{i}": part for i, part in enumerate(state)}
    return {"step": row["step"], **parts, "action": row["action"]}


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
    array = np.asarray(policy)
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

"""Policies in the user's names: what to do in every state and step, as a table, a file, or a few lines of text."""

from __future__ import annotations

import csv
import io
import json
import numbers
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, ShapeError, require_integer
from occamrl.naming import describe_states
from occamrl.protocols import Ints, Known
from occamrl.running.result import stretches
from occamrl.running.storage import write_whole
from occamrl.running.verdict import count_of, said

_LONG = 110  # letters that list states


class Policy:
    """What to do in every state and step, in the user's names.

    ``policy(state, step)`` is an action; ``rows`` is a table, equal rows joined; ``to_csv`` and
    ``to_json`` write it.
    """

    def __init__(self, actions: Ints, known: Known, reached: Any = None) -> None:
        self.actions, self.known = actions, known
        self.reached = np.ones(known.states, bool) if reached is None else reached

    def __call__(self, state: Any, step: int = 0) -> Any:
        """Return the action in a state, at a step from 0."""
        h = require_integer("step", step, 0, maximum=len(self.actions) - 1)
        return self.known.action_name(int(self.actions[h, self.known.state_number(state)]))

    @cached_property
    def stretches(self) -> dict[str, int]:
        """The first steps, from 0, of stretches over which nothing changes, by what they are called."""
        found = stretches(self.actions[:, self.reached])
        return {"action": 0} if len(found) == 1 else found

    def _ordered(self, marked: Any) -> list[int]:
        """Return the states that are marked, by name where all names are numbers or tuples of numbers."""
        names = {s: self.known.state_name(s) for s in np.flatnonzero(marked).tolist()}
        parts = {s: name if isinstance(name, tuple) else (name,) for s, name in names.items()}
        counted = all(isinstance(part, numbers.Real) for each in parts.values() for part in each)
        return sorted(parts, key=parts.__getitem__) if counted else list(parts)

    def _joined(self, steps: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
        """Return the states that are reached, by their actions at some steps."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for s in self._ordered(self.reached):
            groups.setdefault(tuple(self.actions[list(steps), s].tolist()), []).append(s)
        return groups

    def _states(self, states: Sequence[int]) -> str:
        """Return some states in words, not too many of them."""
        text = describe_states([self.known.state_name(s) for s in states])
        if len(text) <= _LONG:
            return text
        return f"{text[: text.rindex(' ', 0, _LONG)].rstrip(';:,')} ... ({count_of(len(states), 'state')})"

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """A row for all states with equal actions, a column for each stretch of equal steps."""
        found = []
        for chosen, states in self._joined(list(self.stretches.values())).items():
            names = (str(self.known.action_name(a)) for a in chosen)
            found.append(
                {"state": self._states(states), **dict(zip(self.stretches, names, strict=True))}
            )
        return found

    @property
    def brief(self) -> list[str]:
        """What to do at the first step, and until something changes: a line for each action."""
        first, groups = next(iter(self.stretches)), self._joined([0])
        when = "" if first == "action" else f" ({first})"
        found = []
        for (a,), states in sorted(groups.items(), key=lambda item: -len(item[1])):
            where = f"in state{'s' * (len(states) > 1)} {self._states(states)}"
            found.append(
                f"{said(self.known.action_name(a))} {where if len(groups) > 1 else 'always'}{when}"
            )
        return found

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row for each step, counted from 1, and state."""
        action, state, states = (
            self.known.action_name,
            self.known.state_name,
            self._ordered(~self.known.absorbing),
        )
        every = ((h, s, int(a[s])) for h, a in enumerate(self.actions, start=1) for s in states)
        return [{"step": h, "state": state(s), "action": action(a)} for h, s, a in every]

    def to_csv(self, path: str | Path) -> None:
        """Write step, counted from 1 as in the printed table, state and action, of all states.

        A state that is a tuple has a column for each part: state_0, state_1, ...
        """
        text, rows = io.StringIO(), self.to_rows()
        for row in rows:
            if isinstance(row["state"], tuple):
                parts = {f"state_{i}": part for i, part in enumerate(row.pop("state"))}
                row |= {**parts, "action": row.pop("action")}
        writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
        write_whole(Path(path), text.getvalue().encode())

    def to_json(self, path: str | Path) -> None:
        """Write the same as JSON."""
        write_whole(Path(path), json.dumps(self.to_rows(), default=str, indent=1).encode())

    def __str__(self) -> str:
        names = list(self.rows[0])
        wide = [max(len(name), *(len(row[name]) for row in self.rows)) for name in names]
        lines = [names, *([row[name] for name in names] for row in self.rows)]
        return "\n".join(
            "  ".join(f"{text:<{w}}" for text, w in zip(line, wide, strict=True)).rstrip()
            for line in lines
        )


def as_policy(policy: Any, known: Known) -> Any:
    """Return actions [H, S] or probabilities [H, S, A] of a policy in any form; refuse what is not allowed."""
    if isinstance(policy, Policy):
        return policy.actions
    if isinstance(policy, Mapping) or callable(policy):
        chosen = np.where(known.absorbing, np.argmax(known.allowed, axis=1), -1)
        names = [known.state_name(s) for s in np.flatnonzero(~known.absorbing).tolist()]
        for name, action in (
            policy if isinstance(policy, Mapping) else {each: policy(each) for each in names}
        ).items():
            chosen[known.state_number(name)] = known.action_number(action)
        for s in np.flatnonzero(chosen < 0)[:1].tolist():
            expected = "an action for every state; or a function of the state"
            raise ParameterError(
                "policy", got=f"no action in state {known.state_name(s)!r}", expected=expected
            )
        policy = chosen
    found = np.asarray(policy)
    if found.shape == (known.states,) and found.dtype.kind in "iu":
        found = np.tile(found, (known.horizon, 1))
    require_policy("policy", found, known)
    return found


def require_policy(field: str, policy: Any, known: Known) -> None:
    """Refuse what is neither actions [H, S] nor probabilities [H, S, A], or chooses what is not allowed."""
    sizes = known.horizon, known.states
    if not isinstance(policy, np.ndarray) or policy.shape not in (sizes, (*sizes, known.actions)):
        expected = f"actions {sizes}, or probabilities {(*sizes, known.actions)}"
        raise ShapeError(field, got=f"shape {np.shape(policy)}", expected=expected)
    if policy.ndim == 2 and (
        policy.dtype.kind not in "iu" or policy.min() < 0 or policy.max() >= known.actions
    ):
        got = f"{policy.dtype} from {policy.min():g} to {policy.max():g}"
        raise ParameterError(field, got=got, expected=f"integers from 0 to {known.actions - 1}")
    if policy.ndim == 3 and not (
        (policy >= 0.0).all() and (np.abs(policy.sum(axis=2) - 1.0) <= 1e-9).all()
    ):
        raise ParameterError(field, got="other numbers", expected="probabilities that sum to 1")
    if known.allowed.all():
        return
    taken = policy > 0.0 if policy.ndim == 3 else policy[..., None] == np.arange(known.actions)
    for h, s, a in np.argwhere(taken & ~known.allowed)[:1].tolist():
        may = [known.action_name(int(i)) for i in np.flatnonzero(known.allowed[s])]
        got = f"{known.action_name(a)!r} in state {known.state_name(s)!r}, step {h}"
        raise ParameterError(
            field, got=got, expected=f"an action that is allowed there: {may!r:.80}", index=(h, s)
        )

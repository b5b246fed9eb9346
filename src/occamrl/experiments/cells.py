"""A cell: one problem, one agent, one seed, in plain data. Nothing is imported that computes until a cell is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from occamrl.running.files import canonical, sha256

if TYPE_CHECKING:
    from occamrl.protocols import Agent

FORMAT = 1
MOST_EPISODES = 10**12
MOST_POINTS = 10**9  # of a curve
MOST_SEEDS = 2**63
CONTENT = ("format", "problem", "agent", "seed", "episodes", "thinning")  # what the id of a cell is the hash of
_RANGES = {"seed": (0, MOST_SEEDS - 1), "episodes": (1, MOST_EPISODES), "thinning": (0, MOST_POINTS)}
_VARIANT = {"name": str, "label": str, "parameters": dict}


@dataclass(frozen=True)
class Variant:
    """A problem or an agent of a cell, by its name."""

    name: str
    label: str
    parameters: dict[str, Any]


def id_of(content: dict[str, Any]) -> str:
    """Return the id of a cell with this content: sixteen hexadecimal digits."""
    return sha256(canonical(content).encode())[:16]


def content_fault(data: Any) -> str | None:
    """Return what is wrong with plain data that should be the content of a cell; None if nothing is."""
    if not isinstance(data, dict) or data.keys() != set(CONTENT) or data["format"] != FORMAT:
        return f"{data!r:.100}"
    for key in ("problem", "agent"):
        part = data[key]
        whole = isinstance(part, dict) and part.keys() == _VARIANT.keys()
        if not whole or not all(isinstance(part[name], kind) for name, kind in _VARIANT.items()):
            return f"{key}: {part!r:.100}"
    for key, (least, most) in _RANGES.items():
        if type(data[key]) is not int or not least <= data[key] <= most:
            return f"{key}: {data[key]!r:.100}"
    return None


@dataclass(frozen=True)
class Cell:
    """What is run, in plain data."""

    problem: Variant
    agent: Variant
    seed: int
    episodes: int
    thinning: int

    @classmethod
    def of(cls, content: dict[str, Any]) -> Cell:
        """Return the cell with this content, which has been checked."""
        rest = {key: content[key] for key in _RANGES}
        return cls(Variant(**content["problem"]), Variant(**content["agent"]), **rest)

    @property
    def content(self) -> dict[str, Any]:
        """Everything that makes the cell what it is."""
        rest = {key: getattr(self, key) for key in _RANGES}
        return {"format": FORMAT, "problem": vars(self.problem), "agent": vars(self.agent), **rest}

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return id_of(self.content)

    @property
    def names(self) -> dict[str, Any]:
        """What a person calls the cell: the columns of its tables, beside its id."""
        return {"problem": self.problem.label, "agent": self.agent.label, "seed": self.seed}

    def make(self) -> tuple[Any, Agent, dict[str, Any]]:
        """Return (problem, agent, the agent's parameters as resolved, in plain words), ready to run."""
        from occamrl.experiments.resolution import make_cell

        return make_cell(self)

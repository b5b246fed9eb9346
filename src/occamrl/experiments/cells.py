"""A cell: one problem, one agent, one seed, in plain data. Nothing is imported that computes until a cell is made."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from occamrl.running.files import canonical, sha256

if TYPE_CHECKING:
    from occamrl.protocols import Agent

FORMAT = 1
MOST_EPISODES = 10**12
MOST_POINTS = 10**9  # of a curve

Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Thinning = Annotated[int, Field(ge=0, le=MOST_POINTS, strict=True)]


class Strict(BaseModel):
    """Plain data without other keys, which nobody changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Variant(Strict):
    """A problem or an agent of a cell, by its name."""

    name: str
    label: str
    parameters: dict[str, Any]


def id_of(content: dict[str, Any]) -> str:
    """Return the id of a cell with this content."""
    return sha256(canonical(content).encode())[:16]


class Cell(BaseModel):
    """What is run, in plain data."""

    model_config = ConfigDict(frozen=True)  # a manifest has more keys

    problem: Variant
    agent: Variant
    seed: Seed
    episodes: Count
    thinning: Thinning

    @property
    def content(self) -> dict[str, Any]:
        """Everything that makes the cell what it is."""
        return {"format": FORMAT, **self.model_dump(include=set(Cell.model_fields))}

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
        from occamrl.experiments.spec import make_cell

        return make_cell(self)

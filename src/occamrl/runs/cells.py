"""Cells: one problem, one agent, one seed. A cell's id is a hash of its content, so others never disturb it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from occamrl import registry
from occamrl.contracts import Agent
from occamrl.errors import InvalidInput, OccamRLError, ParameterError, UnknownName
from occamrl.runs.failures import Fault, RecordError, SpecError
from occamrl.runs.files import canonical, sha256
from occamrl.runs.resolve import agents, make_agent, make_problem
from occamrl.runs.spec import MOST_CELLS, MOST_EPISODES, MOST_POINTS, AgentEntry, ProblemEntry, Spec

ID = re.compile(r"[0-9a-f]{16}")
FORMAT = 1
_RANGES = {"seed": (0, 2**63 - 1), "episodes": (1, MOST_EPISODES), "thinning": (0, MOST_POINTS)}
_OF_PARAMETERS = (OccamRLError, TypeError, ValueError, ArithmeticError, LookupError, MemoryError)  # what they can raise
_NAMED = {"name": str, "label": str, "parameters": dict}


@dataclass(frozen=True)
class Cell:
    """What is run, in plain data: {"name", "label", "parameters"} of problem and agent, and the rest."""

    problem: dict[str, Any]
    agent: dict[str, Any]
    seed: int
    episodes: int
    thinning: int

    @property
    def content(self) -> dict[str, Any]:
        """Everything that makes the cell what it is."""
        return {
            "format": FORMAT,
            "problem": self.problem,
            "agent": self.agent,
            "seed": self.seed,
            "episodes": self.episodes,
            "thinning": self.thinning,
        }

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return sha256(canonical(self.content).encode())[:16]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Cell:
        """Return the cell with this content (a manifest has it, among other things); refuse what is no cell."""
        made = cls(*(content.get(name) for name in ("problem", "agent", "seed", "episodes", "thinning")))  # type: ignore[arg-type]  # checked below
        for name, (least, most) in _RANGES.items():
            value = getattr(made, name)
            if type(value) is not int or not least <= value <= most:
                raise ParameterError(name, got=str(value)[:60], expected=f"a whole number from {least} to {most}")
        for name in ("problem", "agent"):
            value = getattr(made, name)
            if not isinstance(value, dict) or {key: type(part) for key, part in value.items()} != _NAMED:
                raise ParameterError(name, got=str(value)[:60], expected=f"an object with {', '.join(_NAMED)}")
            value["label"].encode()  # half of a surrogate pair is no text: a ValueError
        return made

    def make(self) -> tuple[Any, Agent]:
        """Return (problem, agent), ready to run."""
        problem = _problem(self.problem["name"], json.dumps(self.problem["parameters"]))
        return problem, make_agent(self.agent["name"], self.agent["parameters"], problem, self.episodes)


def require_id(cell: object, path: str | Path) -> str:
    """Refuse an id that is not one: it is part of a path."""
    if not isinstance(cell, str) or not ID.fullmatch(cell):
        raise RecordError(path, got=f"the cell id {str(cell)[:60]!r}", expected="sixteen hexadecimal digits")
    return cell


@lru_cache(maxsize=4)
def _problem(name: str, parameters: str) -> Any:
    """Return a problem; cells of one problem that follow each other share it."""
    return make_problem(name, json.loads(parameters))


def expand(spec: Spec, path: str | Path) -> list[Cell]:
    """Return the cells of a spec, after building every problem and agent once; all that is wrong is told at once."""
    seeds = spec.seed_list
    count = _pairs_of_labels(spec) * len(seeds)
    if not 0 < count <= MOST_CELLS:  # before any of them is built
        raise SpecError(path, [Fault("cells", f"{count:,}", f"from 1 to {MOST_CELLS:,}")])
    faults: list[Fault] = []
    problems = list(_problems(spec, faults))
    pairs = list(_pairs(spec, problems, faults))
    if faults:
        raise SpecError(path, list(dict.fromkeys(faults)))
    return [
        Cell(problem=problem, agent=agent, seed=seed, episodes=episodes, thinning=spec.thinning)
        for problem, agent, episodes in pairs
        for seed in seeds
    ]


def _plays(agent: AgentEntry, problem: ProblemEntry, label: str) -> bool:
    return not agent.only or not {problem.name, label}.isdisjoint(agent.only)


def _pairs_of_labels(spec: Spec) -> int:
    """Return how many (problem, agent) there are."""
    labels = [(problem, label) for problem in spec.problem for label, _ in problem.variants()]
    return sum(agent.size * sum(_plays(agent, *each) for each in labels) for agent in spec.agent)


Described = dict[str, Any]


def _problems(spec: Spec, faults: list[Fault]) -> Iterator[tuple[ProblemEntry, Described, Any]]:
    for number, entry in enumerate(spec.problem):
        key = f"problem[{number}]"
        try:
            name = registry.find(f"{key}.name", entry.name, registry.problems()).__name__
        except UnknownName as error:
            faults.append(Fault(error.field, str(error.got), str(error.expected)))
            continue
        for label, parameters in entry.variants():
            described = {"name": name, "label": label, "parameters": parameters}
            try:
                canonical(parameters)
                problem = _problem(name, json.dumps(parameters))
                _ = problem.mdp  # built here, so that what is wrong with it shows now
            except _OF_PARAMETERS as error:
                faults.append(_fault(error, key, entry.sweep))
            else:
                yield entry, described, problem


def _pairs(
    spec: Spec, problems: list[tuple[ProblemEntry, Described, Any]], faults: list[Fault]
) -> Iterator[tuple[Described, Described, int]]:
    names = {}
    for number, agent in enumerate(spec.agent):
        try:
            names[number] = registry.find(f"agent[{number}].name", agent.name, agents()).__name__
        except UnknownName as error:
            faults.append(Fault(error.field, str(error.got), str(error.expected)))
    for entry, described, problem in problems:
        episodes = entry.episodes or spec.episodes
        for number, name in names.items():
            agent = spec.agent[number]
            if _plays(agent, entry, described["label"]):
                yield from _agents(agent, number, name, described, problem, episodes, faults)


def _agents(
    entry: AgentEntry, number: int, name: str, problem: Described, made: Any, episodes: int, faults: list[Fault]
) -> Iterator[tuple[Described, Described, int]]:
    for label, parameters in entry.variants():
        try:
            canonical(parameters)
            make_agent(name, parameters, made, episodes)
        except _OF_PARAMETERS as error:
            faults.append(_fault(error, f"agent[{number}]", entry.sweep))
        else:
            yield problem, {"name": name, "label": label, "parameters": parameters}, episodes


def _fault(error: Exception, key: str, sweep: dict[str, Any]) -> Fault:
    """Return what is wrong with a parameter, under the key where the user wrote it."""
    if not isinstance(error, InvalidInput):
        return Fault(
            f"{key}.parameters", f"{type(error).__name__}: {error}", "values of valid kinds and sizes, none of them nan"
        )
    name = error.field.split()[0] if " " in error.field else error.field
    if isinstance(error, UnknownName) and error.field.endswith(" parameter"):
        name = str(error.got).strip("'")
    table = "sweep" if name.split(".")[0] in sweep else "parameters"
    return Fault(f"{key}.{table}.{name}", str(error.got), str(error.expected))

"""The spec of an experiment: one TOML file, checked as a whole, that expands to cells.

::

    name = "river"
    episodes = 10_000
    seeds = 5                      # 0, ..., 4; or a list
    thinning = 500                 # points kept of a curve; 0: every episode

    [[problem]]
    name = "RiverSwim"
    sweep = { states = [3, 4] }    # one problem for each; several lists: every combination

    [[agent]]
    name = "UCRLVTRLin"
    parameters = { features = "tabular", norm_bound = "sqrt(SA)" }

Everything wrong with a file is told at once: where, what was got, what was expected, the nearest valid name.
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from occamrl.runs.failures import Fault, RecordError, SpecError
from occamrl.runs.files import read_plain

LARGEST_SPEC = 2**20
MOST_CELLS = 100_000
MOST_EPISODES = 10**12
MOST_POINTS = 10**9  # of a curve

Count = Annotated[int, Field(ge=1, le=MOST_EPISODES, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Seeds = Annotated[
    Annotated[int, Field(ge=1, le=MOST_CELLS, strict=True), Tag("a number of seeds")]
    | Annotated[list[Seed], Field(min_length=1, max_length=MOST_CELLS), Tag("a list of seeds")],
    Discriminator(lambda value: "a list of seeds" if isinstance(value, list) else "a number of seeds"),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(_Strict):
    """A problem or an agent: what every variant has, and what is swept over."""

    name: Name
    label: Annotated[str, Field(max_length=200)] = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many variants there are."""
        return math.prod(map(len, self.sweep.values()))

    def variants(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (label, parameters) for every combination of the swept values."""
        for values in itertools.product(*self.sweep.values()):
            swept = dict(zip(self.sweep, values, strict=True))
            label, rest = self.label or self.name, []
            for key, value in swept.items():
                if f"{{{key}}}" in label:
                    label = label.replace(f"{{{key}}}", str(value))
                else:
                    rest.append(f"{key}={value}")
            yield label + (f" ({', '.join(rest)})" if rest else ""), {**self.parameters, **swept}


class ProblemEntry(Entry):
    """A problem; ``episodes`` overrides the experiment's."""

    episodes: Count | None = None


class AgentEntry(Entry):
    """An agent; ``only`` limits it to problems of these names or labels."""

    only: list[Name] = Field(default_factory=list)


class Spec(_Strict):
    """A whole experiment."""

    name: Name
    episodes: Count
    seeds: Seeds
    thinning: Annotated[int, Field(ge=0, le=MOST_POINTS, strict=True)] = 1_000
    baseline: Annotated[str, Field(max_length=200)] = ""  # the agent's label that a report compares with
    description: str = ""
    problem: Annotated[list[ProblemEntry], Field(min_length=1)]
    agent: Annotated[list[AgentEntry], Field(min_length=1)]

    @property
    def kinds(self) -> tuple[tuple[str, Sequence[Entry]], ...]:
        """Problems and agents, with the keys under which they stand."""
        return ("problem", self.problem), ("agent", self.agent)

    @property
    def seed_list(self) -> list[int]:
        """The seeds, one by one."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)


def shipped() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = resources.files("occamrl").joinpath("specs")
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))


def read_source(spec: str | Path) -> tuple[str, bytes]:
    """Return (where it is, content) of a spec file, or of a shipped spec called by its name."""
    path = Path(spec)
    if not os.path.exists(path) and str(spec) in shipped():  # noqa: PTH110  # a name too long is not there, either
        found = resources.files("occamrl").joinpath("specs", f"{spec}.toml")
        return str(found), found.read_bytes()
    if not os.path.isfile(path):  # noqa: PTH113  # as above
        near = difflib.get_close_matches(str(spec), shipped(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(spec, [Fault("file", "nothing there", f"a TOML file, or one of {', '.join(shipped())}{hint}")])
    try:
        return str(path), read_plain(path.resolve(), LARGEST_SPEC)
    except RecordError as error:
        raise SpecError(path, [Fault("file", str(error.got), str(error.expected))]) from error


def parse(content: bytes, path: str | Path) -> tuple[dict[str, Any], Spec]:
    """Return the TOML data and the checked spec; names and parameters are checked by :mod:`occamrl.runs.cells`."""
    try:
        data = tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a mark of the encoding
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise SpecError(path, [Fault("file", f"{error}", "TOML in UTF-8")]) from error
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError(path, [_fault(each) for each in error.errors()]) from error
    faults = list(_too_many(spec)) or list(_repeated(spec))
    if faults:
        raise SpecError(path, faults)
    return data, spec


def key_path(location: Sequence[int | str]) -> str:
    """Return ``agent[1].parameters.delta`` for ("agent", 1, "parameters", "delta")."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


_MODELS: dict[str, type[_Strict]] = {"problem": ProblemEntry, "agent": AgentEntry}
_TAGS = ("a number of seeds", "a list of seeds")  # pydantic's way of saying which form was tried
_SUBJECT = re.compile(r"^(Input|String|List|Dictionary) should (be|have) ")


def _fault(error: Any) -> Fault:
    location = [step for step in error["loc"] if step not in _TAGS]
    key = key_path(location)
    if error["type"] == "missing":
        return Fault(key, "nothing", "a value: it is required")
    if error["type"] == "extra_forbidden":
        model = _MODELS.get(str(location[0]), Spec) if len(location) > 1 else Spec
        return Fault(key, "an unknown key", nearest(str(location[-1]), list(model.model_fields)))
    try:
        got = repr(error["input"])
    except ValueError:  # Python does not write out a number of thousands of digits
        got = "a number of thousands of digits"
    return Fault(key, got if len(got) <= 100 else got[:100] + "...", _SUBJECT.sub("", error["msg"]))


def nearest(name: str, known: Sequence[str]) -> str:
    """Return what to say instead of an unknown name."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return (f"did you mean {near[0]!r}? valid: " if near else "one of ") + ", ".join(sorted(known))


def _too_many(spec: Spec) -> Iterator[Fault]:
    """Find what would not come to an end, before anything is expanded."""
    for kind, entries in spec.kinds:
        if (count := sum(entry.size for entry in entries)) > MOST_CELLS:
            yield Fault(f"{kind}.sweep", f"{count:,} combinations", f"at most {MOST_CELLS:,}")


def _repeated(spec: Spec) -> Iterator[Fault]:
    """Find what occurs twice or does nothing."""
    if not isinstance(spec.seeds, int) and len(set(spec.seeds)) < len(spec.seeds):
        yield Fault("seeds", f"{spec.seeds}", "each seed once")
    for kind, entries in spec.kinds:
        seen: set[str] = set()
        for number, entry in enumerate(entries):
            for key in sorted(set(entry.sweep) & set(entry.parameters)):
                yield Fault(f"{kind}[{number}].sweep.{key}", "also among parameters", "in one of the two")
            for label, _ in entry.variants():
                if label in seen:
                    yield Fault(f"{kind}[{number}].label", repr(label), "a label that no other entry has")
                seen.add(label)
    names = {entry.name for entry in spec.problem} | {label for entry in spec.problem for label, _ in entry.variants()}
    for number, agent in enumerate(spec.agent):
        for position, name in enumerate(agent.only):
            if name not in names:
                yield Fault(f"agent[{number}].only[{position}]", repr(name), nearest(name, sorted(names)))
    agents = [label for entry in spec.agent for label, _ in entry.variants()]
    if spec.baseline and spec.baseline not in agents:
        yield Fault("baseline", repr(spec.baseline), nearest(spec.baseline, agents))

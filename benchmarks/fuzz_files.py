"""Files that lie: every field of every state, memory and saved algorithm, changed in every way that may hurt.

A checkpoint with a valid digest is changed in one place, loaded and played on, in a child process of its own. What may
happen: an error of this package that names a field; the same result as that of the true file; or, where statistics are
such as another run could have, a run from there. What may not: any other error, a signal, a hang, a byte changed in an
array that belongs to somebody else.

    python -m benchmarks.fuzz_files [--every 1] [--cases finite,linear]

prints how many variants of each field ended how, and fails if one ended badly. ``NUMBA_BOUNDSCHECK=1`` turns every
index out of bounds in compiled code into an error, with a cache of its own (``OCCAMRL_CACHE_DIR``).
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import occamrl as orl
from occamrl import registry
from occamrl.errors import OccamRLError
from occamrl.learners.ucrl_vtr import NestedUCRLVTR
from occamrl.protocols import Episode, EpisodeLearner, Field, Known
from occamrl.running.files import read_document, write_document
from occamrl.running.storage import load, save

SECONDS = 20  # of processor time; a machine may be busy with other things, so 20 times as long by the clock
MEMORY = 3 * 2**30  # more than the process has, for what a file may make it ask for
EPISODES, MORE = 30, 12
REFUSED, SAME, ANOTHER = "refused", "same", "another run's"
_INTS = (-1, -2, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_NUMBERS = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, -1.0, 5e-324, 1e9)


@dataclass(frozen=True, kw_only=True, eq=False)
class Empirical(EpisodeLearner):
    """A learner in plain NumPy: plan on the frequencies of moves, with a bonus."""

    def fields(self, known: Known) -> list[Field]:
        """Return what the arrays of a state hold."""
        size = (known.states, known.actions, known.states)
        return [Field("moves", size, 0, 2**53), Field("episodes", (1,), 0, 2**53)]

    def begin(self, known: Known) -> dict[str, Any]:
        """Return a state without data."""
        return {each.name: each.make() for each in self.fields(known)}

    def resume(self, known: Known, state: Any) -> None:
        """Refuse another state."""
        for each in self.fields(known):
            each.require(state[each.name])

    def plan(self, known: Known, state: Any, start: int, draw: np.random.Generator) -> Any:
        """Plan optimistically."""
        n = np.maximum(state["moves"].sum(axis=2), 1)
        kernel, bonus = state["moves"] / n[:, :, None], 1.0 / np.sqrt(n)
        values, policy = np.zeros(known.states), np.zeros((known.horizon, known.states), dtype=np.int64)
        for h in reversed(range(known.horizon)):
            q = np.minimum(known.base_reward + bonus + kernel @ values, known.horizon - h)
            policy[h], values = q.argmax(axis=1), q.max(axis=1)
        return policy, values[start]

    def learn(self, known: Known, state: Any, episode: Episode) -> None:
        """Count."""
        np.add.at(state["moves"], (episode.states[:-1], episode.actions, episode.states[1:]), 1)
        state["episodes"] += 1


def cases() -> dict[str, tuple[Any, orl.FiniteMDP]]:
    """Return agents of every kind of state, each with a problem."""
    draw = np.random.default_rng(5)
    kernels = draw.dirichlet(np.ones(3), size=(5, 3, 2))
    reward = draw.random((3, 2))
    mdp = orl.FiniteMDP(transition=kernels[0], reward=reward, horizon=3, initial_state=[0.5, 0.25, 0.25])
    features, tabular = orl.FeatureMap(np.moveaxis(kernels[:3], 0, -1)), orl.FeatureMap.tabular(states=3, actions=2)
    sparse = orl.FeatureMap([sp.csr_array(kernel.reshape(6, 3)) for kernel in kernels[:3]])
    family = orl.FiniteFamily(kernels)
    ladder = orl.Ladder([orl.FiniteFamily(kernels[1:2]), orl.FiniteFamily(kernels[:2]), family])
    linear = orl.LinearFamily(features=features, norm_bound=2.0)
    mixed = orl.Ladder([orl.FiniteFamily(kernels[:2]), linear])
    pairs = orl.RewardsPerPair()
    agents: dict[str, Any] = {
        "linear": orl.UCRLVTRLin(features=features, norm_bound=2.0),
        "linear tabular": orl.UCRLVTRLin(features=tabular, norm_bound=2.0, replan=0.0),
        "linear sparse": orl.UCRLVTRLin(features=sparse, norm_bound=2.0, active=(0, 2)),
        "linear rewards": orl.UCRLVTRLin(features=features, norm_bound=2.0, rewards=pairs, kernel="per_step"),
        "greedy": orl.Greedy(features=features),
        "finite": orl.UCRLVTR(family=family),
        "finite ball": orl.UCRLVTR(family=family, radius="unweighted", replan=0.2),
        "finite rewards": orl.UCRLVTR(family=family, rewards=pairs, scale=0.1),
        "finite per step": orl.UCRLVTR(family=family, kernel="per_step"),
        "nested": NestedUCRLVTR(ladder=ladder, scale=0.05, guard=True),
        "optimal": orl.Optimal(mdp=mdp),
        "uniform": orl.UniformRandom(),
        "ARLLinDim": orl.ARLLinDim(features=features, norm_bound=2.0),
        "ARLLinNorm": orl.ARLLinNorm(features=features, norm_bound=20.0, initial_episodes=4),
        "ARLLin": orl.ARLLin(features=features, norm_bound=20.0),
        "ARLGen lists": orl.ARLGen(ladder=ladder),
        "Occam": orl.Occam(ladder=ladder, replan=0.0),
        "Occam per step": orl.Occam(ladder=ladder, acting="sampling", kernel="per_step"),
        "PSRL": orl.PSRL(),
        "UCBVI": orl.UCBVI(episodes=100, scale=0.01),
        "RLSVI": orl.RLSVI(kernel="per_step"),
        "QLearningUCB": orl.QLearningUCB(episodes=100, scale=0.01),
        "ARLGen": orl.ARLGen(ladder=mixed, rewards=pairs, scale=0.3),
        "OccamMixture": orl.OccamMixture(features=features),
        "OccamLin": orl.OccamLin(features=features),
        "LinPSRL": orl.LinPSRL(features=features),
        "UCRLVTRPlus": orl.UCRLVTRPlus(features=features, norm_bound=2.0, scale=0.1),
        "plain": Empirical(),
    }
    linear_bases = [agents[name] for name in ("linear", "OccamMixture", "UCRLVTRPlus")]
    inner = orl.Arena(bases=[orl.PSRL(), Empirical()], rule=orl.StochasticCORRAL(episodes=200))
    agents["arena of arenas"] = orl.Arena(bases=[*linear_bases, inner], rule=orl.ED2RB(), share=True)
    bases = [Empirical(), orl.UniformRandom(), orl.UCBVI(episodes=100, scale=0.01)]
    for name, kind in registry.rules().items():
        agents[f"arena {name}"] = orl.Arena(bases=bases, rule=kind.examples(len(bases))[0])
    return {name: (agent, mdp) for name, agent in agents.items()}


def variants(array: Any, draw: np.random.Generator) -> Iterator[Any]:
    """Yield arrays that differ from one: single numbers, all numbers, order, kind, byte order and shape."""

    def changed(at: int, value: Any) -> Any:
        other = array.copy()
        other.reshape(-1)[at] = np.asarray(value).astype(array.dtype)  # small integers wrap
        return other

    if array.size:
        for value in _INTS if array.dtype.kind in "iu" else _NUMBERS:
            for at in {0, int(draw.integers(array.size)), array.size - 1}:
                yield changed(at, value)
        for change in (1, -1, 7):
            at = int(draw.integers(array.size))
            yield changed(at, array.reshape(-1)[at].item() + change)
        yield np.full_like(array, array.reshape(-1)[0])
        yield np.full_like(array, 1)
        yield array.reshape(-1)[::-1].reshape(array.shape).copy()


def kinds(array: Any) -> Iterator[Any]:
    """Yield the same numbers as another kind of array."""
    for kind in (np.complex128, np.float32, np.int32):
        with warnings.catch_warnings(action="ignore"):  # numbers that such arrays cannot hold
            yield array.astype(kind)
    yield array.astype(array.dtype.newbyteorder())
    yield array.reshape(-1)[:-1].copy()
    yield np.append(array.reshape(-1), array.reshape(-1)[:1])
    yield array.reshape(1, *array.shape)
    yield np.zeros(0, array.dtype)
    yield np.asfortranarray(array) if array.ndim > 1 else array[:, None]


def scalars(value: Any) -> Iterator[Any]:
    """Yield other data in place of a part of a memory that is no array."""
    yield from (None, True, -1, 0, 10**30, 2**62, 1.5, float("nan"), float("inf"), -1e308, "text", [], [0] * 5, {})
    if isinstance(value, list):
        yield [*value, value[-1] if value else 0]
        yield [-1, *value[1:]]
        yield [2**40, *value[1:]]
        yield [10**30, *value[1:]]


Places = Iterator[tuple[str, Any]]


def places(tree: Any, name: str) -> Places:
    """Yield (name, where) of every array (the name of its entry) and of all other data (a part of the document)."""
    match tree:
        case {"array": str(number)}:
            yield name, number
        case {"named": str(kind), "parts": list(parts)}:
            module, _, qualified = kind.partition(":")
            for label, part in zip(getattr(sys.modules[module], qualified)._fields, parts, strict=True):
                yield from places(part, f"{name}.{label}")
        case {"dict": dict(parts)} | {"fields": dict(parts)}:
            for label, part in parts.items():
                yield from places(part, f"{name}.{label}")
        case {"list": list(parts)} | {"tuple": list(parts)} if any("value" not in part for part in parts):
            for label, part in enumerate(parts):
                yield from places(part, f"{name}[{label}]")
        case dict():
            yield name, tree


Arrays = dict[str, Any]


def altered(
    document: dict[str, Any], arrays: Arrays, tables: list[Any], draw: np.random.Generator
) -> Iterator[tuple[str, Arrays]]:
    """Yield (field, arrays) of every variant of a file, with ``document`` changed while it is looked at."""
    found = [place for top in ("tree", "known", "algorithm") for place in places(document[top], top)]
    for name, where in found:
        if isinstance(where, dict):
            before = dict(where)
            parts = before.get("list", before.get("tuple"))
            for other in scalars(before.get("value") if parts is None else [part["value"] for part in parts]):
                where.clear()
                where.update(_skeleton(other))
                yield name, arrays
            where.clear()
            where.update(before)
            continue
        array = arrays[where]
        for changed in kinds(array):
            yield name, {**arrays, where: changed}
        for label, part in _fields(name, where, arrays, tables) or [(name, slice(0, array.size))]:
            for changed in variants(array.reshape(-1)[part], draw):
                whole = array.copy()
                whole.reshape(-1)[part] = changed
                yield label, {**arrays, where: whole}


def _skeleton(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"list": [{"value": part} for part in value]}
    return {"dict": {}} if isinstance(value, dict) else {"value": value}


def _fields(name: str, where: str, arrays: Arrays, tables: list[Any]) -> list[tuple[str, slice]]:
    """Return the name and the place of every field of an arena, its head included; nothing for other arrays."""
    owner, _, part = name.rpartition(".")
    if part not in ("floats", "ints"):
        return []
    ints = arrays[where] if part == "ints" else arrays[f"a{int(where[1:]) + 1}"]  # which follow the floats
    table = next(table for table in tables if 4 * len(table) == ints[0])  # the first field follows the head
    listed = [(f"{owner}.head", slice(0, 4 * len(table)))] if part == "ints" else []
    for number, each in enumerate(table):
        offset, rows, columns, kind = (int(entry) for entry in ints[4 * number : 4 * number + 4])
        if (kind >= 2) == (part == "ints") and rows * columns:
            listed.append((f"{owner}.{each.name}", slice(offset, offset + rows * columns)))
    return listed


def tables_of(agent: Any, mdp: orl.FiniteMDP, result: Any) -> list[Any]:
    """Return the tables of fields of all states that a file may hold."""
    evidence = getattr(agent, "_evidence", None)
    learners = [*getattr(evidence, "_learners", []), getattr(evidence, "learner", None), result.walk.phase.learner]
    for each in learners:  # bases have bases
        learners += getattr(each, "bases", [])
    return [learner.fields(mdp.known) for learner in learners if hasattr(learner, "fields")]


def guards() -> list[Any]:
    """Return arrays of somebody else, of many sizes."""
    sizes = (16, 48, 96, 200, 400, 900, 2000, 5000, 20000)
    return [np.full(size, 0x5A, dtype=np.uint8) for size in sizes for _ in range(20)]


def play_on(path: Path, agent: Any, mdp: orl.FiniteMDP, expected: bytes) -> str:
    """Go on from a file and say how that went."""
    played = orl.run(agent, mdp, episodes=MORE, progress=False, continue_from=load(path, agent, mdp))
    if outcome(played) == expected:
        return SAME
    new = played.regret[-MORE:]
    sound = np.isfinite(new).all() and (new > -1e-6).all()
    return ANOTHER if sound else "a regret that is none"


def ask(path: Path) -> str:
    """Ask the algorithm of a file, on the problem that it claims to know, for a policy."""
    result = load(path)
    player, known = result.walk.fork().player, result.known
    player.reserve(1)
    actions = np.full((known.horizon, known.states), -1, dtype=np.int64)
    player.open(0, np.uint64(1), result.total_episodes, actions)
    return ANOTHER if ((actions >= 0) & (actions < known.actions)).all() else "actions that are none"


def guarded(work: Callable[[], str]) -> str:
    """Return what ``work`` says, or the error that refuses it, unless arrays of somebody else changed meanwhile."""
    before = guards()
    try:
        found = work()
    except OccamRLError as error:
        found = f"{REFUSED}: {error}"
    return found if all((array == 0x5A).all() for array in (*before, *guards())) else "foreign bytes changed"


def outcome(result: Any) -> bytes:
    """Return what two runs have to agree in."""
    return b"".join((result.regret.tobytes(), result.returns.tobytes(), repr(result.phases.to_pylist()).encode()))


def in_child(work: Callable[[], Iterable[str]]) -> list[str]:
    """Return the texts of ``work`` in a process of its own; where that was ended, the last one says how."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _limit_time()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            for text in work():
                os.write(writing, text.encode()[:2000] + b"\0")
                _limit_time()
        except BaseException as error:  # whatever it is, it is the finding
            os.write(writing, f"raw {type(error).__name__}: {error}".encode()[:2000] + b"\0")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        texts = pipe.read().decode(errors="replace").split("\0")[:-1]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        texts.append("hang" if ended in (signal.SIGALRM, signal.SIGPROF) else f"signal {ended}")
    return texts


def _limit_time() -> None:
    """End this process unless it is asked again in time."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(20 * SECONDS)


def fuzz(
    case: str, every: int = 1, seed: int = 0, some: int | None = None, part: str = ""
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return the outcomes of all variants of a case, or of one in ``every``, by field, and those that may not be.

    At least one of every field is drawn. ``some``: so many of the case instead, which share a process until one ends
    it; by default each has one of its own. ``part``: only fields whose name contains it.
    """
    agent, mdp = cases()[case]
    table: dict[str, Counter[str]] = {}
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "variant.npz"
        result = orl.run(agent, mdp, episodes=EPISODES, seed=1, progress=False)
        save(result, path)
        expected = outcome(orl.run(agent, mdp, episodes=MORE, progress=False, continue_from=result))
        document, arrays = read_document(path)
        owns = (False, True) if document["algorithm"] is not None else (False,)  # that of the file as well

        def attempt(own: bool) -> str:
            return guarded(lambda: ask(path) if own else play_on(path, agent, mdp, expected))

        for own in owns:  # in this process, which then has loaded all code
            if attempt(own) != (ANOTHER if own else SAME):
                bad.append(f"{case}: the true file is another run's")

        def every_one() -> Iterator[tuple[str, Arrays]]:
            return altered(document, arrays, tables_of(agent, mdp, result), np.random.default_rng(seed))

        draw, positions = np.random.default_rng(seed), dict[str, list[int]]()
        for number, (field, _) in enumerate(every_one()):
            positions.setdefault(field if some is None else "", []).append(number)
        chosen = {
            int(number)
            for each in positions.values()
            for number in draw.choice(each, min(len(each), some or -(-len(each) // every)), replace=False)
        }
        waiting = [
            (field, own, copy.deepcopy(document), changed)
            for number, (field, changed) in enumerate(every_one())
            if number in chosen and part in field
            for own in owns
            if own or field.startswith("tree")
        ]

        def several() -> Iterator[str]:
            for _, own, changed, parts in waiting[: 1 if some is None else None]:
                write_document(path, changed, dict(parts))
                yield attempt(own)

        while waiting:
            ended = in_child(several)
            for (field, *_), found in zip(waiting, ended, strict=False):
                kind = found.partition(":")[0]
                table.setdefault(field, Counter())[kind] += 1
                if kind not in (REFUSED, SAME, ANOTHER):
                    bad.append(f"{case}, {field}: {found[:300]}")
            del waiting[: len(ended)]
    return table, bad


def main() -> int:
    """Fuzz, print the table, and say whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(cases()), help="with commas between them; all by default")
    parser.add_argument("--field", default="", help="only fields whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="take one variant in so many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sums: dict[str, Counter[str]] = {}
    wrong = 0
    print(f"{'state':<16} {'field':<46} {'variants':>8} {REFUSED:>8} {SAME:>6} {ANOTHER:>14} {'bad':>5}")
    for case in options.cases.split(","):
        table, bad = fuzz(case, options.every, options.seed, part=options.field)
        for field, counts in table.items():
            print(row(case, field, counts))
            sums.setdefault(case, Counter()).update(counts)
        print("\n".join(bad[:40]), flush=True)
        wrong += len(bad)
    for case, counts in sums.items():
        print(row(case, "all fields", counts))
    total = sum(sums.values(), Counter[str]())
    print(f"{total.total():,} variants: {dict(total)}")
    return 1 if wrong else 0


def row(case: str, field: str, counts: Counter[str]) -> str:
    """Return a line of the table."""
    good = [counts[kind] for kind in (REFUSED, SAME, ANOTHER)]
    rest = f"{good[0]:>8} {good[1]:>6} {good[2]:>14} {counts.total() - sum(good):>5}"
    return f"{case:<16} {field:<46} {counts.total():>8} {rest}"


if __name__ == "__main__":
    raise SystemExit(main())
